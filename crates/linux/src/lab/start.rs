//! The start of programs that live in the nodes of a lab and end with it.
//!
//! **What.** Whoever builds a lab with forwarders gets it when the links are up ([`Lab::up_with`]), and starts them: a
//! [`Lab::folder`] for each node, and [`Lab::start`]. What was started is a [`NodeProgram`], written down in the lab's journal.
//!
//! **Why a shell in front.** The undo must be on disk before the change, but a process has no identity before it is there.
//! So what is started first is a shell that waits for one line and then becomes the program: same process, same start
//! time. The journal learns of the shell; then it gets its line. When the builder dies in between, the line never comes and
//! the shell ends.
//!
//! **Price.** One `/bin/sh` for each program, for a millisecond. What a program says is in a file of the lab's folder.

use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use record::{Problem, Result};

use super::live::Lab;
use super::program::{NodeProgram, ProgramLaunch};
use super::step::LabStep;
use crate::journal::Journal;
use crate::sys::process::{self, ProcessIdentity};

/// Waits for a line, then becomes what it was told, with nothing to read.
const GATE: &str = "read line && exec \"$@\" </dev/null";

impl Lab {
    /// A folder for the sockets and words of a node's programs; it goes with the lab.
    ///
    /// # Errors
    /// A host problem when it cannot be made.
    pub fn folder(&mut self, node: &str) -> Result<PathBuf> {
        let make = |path: &Path| match DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Problem::host(format!("cannot make the folder: {e}")).at(path.display().to_string()))
            }
            _ => Ok(()),
        };
        let folder = self.journals.folder(self.name());
        if !folder.exists() {
            self.will([LabStep::Folder { path: folder.clone() }])?;
            make(&folder)?;
        }
        let own = folder.join(node);
        make(&own)?;
        Ok(own)
    }

    /// Starts a program in a node; returns when it is the program and no longer waits for its turn.
    ///
    /// # Errors
    /// A host problem when it cannot be started.
    pub fn start(&mut self, node: &str, role: &str, program: ProgramLaunch) -> Result<NodeProgram> {
        let name = program.file.to_string_lossy().into_owned();
        let told =
            |e: std::io::Error| Problem::host(format!("cannot start {name}: {e}")).at(format!("node {node}"));
        let log = self.folder(node)?.join(format!("{role}.log"));
        let words = File::create(&log).map_err(told)?;
        let netns: Arc<OwnedFd> = Arc::new(self.node(node)?.netns().try_clone_to_owned().map_err(told)?);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GATE, "sh"]).arg(&program.file).args(&program.arguments);
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(words.try_clone().map_err(told)?).stderr(words);
        let lasts = self.journal.as_ref().is_some_and(Journal::is_persistent);
        process::enter(&mut command, netns, lasts);
        let mut child = command.spawn().map_err(told)?;
        let gate = child.stdin.take();
        let process = ProcessIdentity::of(child.id()).map_err(told)?;
        self.will([LabStep::Process { process: process.clone() }])?;
        self.children.push(child);
        gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n")).map_err(told)?;
        let ProgramLaunch { openflow, counters, .. } = program;
        let started =
            NodeProgram { node: node.to_owned(), role: role.to_owned(), process, openflow, counters, log };
        self.programs.push(started.clone());
        Ok(started)
    }
}

//! Programs that live in the nodes of a lab and end with it.
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

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use record::{Problem, Result};
use serde::{Deserialize, Serialize};

use super::live::Lab;
use super::step::LabStep;
use crate::journal::Journal;
use crate::sys::process::{self, ProcessIdentity};

/// Waits for a line, then becomes what it was told, with nothing to read.
const GATE: &str = "read line && exec \"$@\" </dev/null";

/// A program that lives in a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProgram {
    /// The node.
    pub node: String,
    /// What it is: `null`, `switch`, `ovs`, `ovsdb`, `controller`.
    pub role: String,
    /// The process.
    pub process: ProcessIdentity,
    /// Where it can be called by OpenFlow, if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openflow: Option<PathBuf>,
    /// The unix socket where it tells its counters, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<PathBuf>,
    /// What it says.
    pub log: PathBuf,
}

impl NodeProgram {
    /// It lives.
    pub fn alive(&self) -> bool {
        self.process.alive()
    }

    /// The last line that it said, for people.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
    }
}

/// What is to be started.
#[derive(Debug, Clone, Default)]
pub struct ProgramLaunch {
    /// The file.
    pub file: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What its environment has besides this process's.
    pub environment: Vec<(String, OsString)>,
    /// Where it will listen for OpenFlow, if it will.
    pub openflow: Option<PathBuf>,
    /// Where it will tell its counters, if it will.
    pub counters: Option<PathBuf>,
}

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

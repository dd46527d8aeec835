//! The one door for changes to the machine: the undo is on disk before the change.
//!
//! **What.** A [`Journal`] is a file with one JSON line for each step that would undo a change; the line is written
//! and synced before the change is made. Whoever finds a journal whose owner has died undoes its steps, last first, and
//! removes it: every `pathlab lab` command does so first, and `pathlab undo` does nothing else.
//!
//! **Why.** After `kill -9` at any moment nothing may be left behind, and nothing that belongs to somebody else may be
//! touched. So nothing is ever found by the look of its name: a step says exactly what it undoes (a namespace by its
//! inode, a process by its start time), every step may run twice, and one that finds something else there leaves it.
//!
//! **Price.** A build waits for a handful of `fdatasync` calls. A journal that cannot be written means that nothing is
//! built.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use record::{Problem, Result};
use serde::{Deserialize, Serialize};

use crate::htb;
use crate::lab::link::Netlink;
use crate::stamping;
use crate::sys::packet::StampConfig;
use crate::sys::process::Identity;
use crate::sys::{mount, netns, userns};

/// Version of the lines of a journal.
pub const SCHEMA: &str = "pathlab/undo/1";

/// How long a process may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(3);

/// One change that can be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A namespace is pinned to a file: take the mount off and remove the file.
    Unpin {
        /// The file.
        file: PathBuf,
        /// Inode of the namespace.
        netns: u64,
    },
    /// A link is made in a pinned namespace: delete it (its other end goes with it).
    Link {
        /// The file that the namespace is pinned to.
        file: PathBuf,
        /// Inode of the namespace.
        netns: u64,
        /// Index of the link.
        index: u32,
        /// Its name when it was made, for people.
        name: String,
    },
    /// A directory is made: remove it if it is empty.
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A folder of this lab alone is made in the state directory: remove it with all that is in it.
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// An interface is told to stamp frames: tell it what it did before.
    Stamps {
        /// Inode of its namespace.
        netns: u64,
        /// Its number there.
        index: i32,
        /// Its name.
        name: String,
        /// What was set before.
        was: StampConfig,
        /// Which frames; a journal that does not say it is about those that come in.
        #[serde(default)]
        side: stamping::Side,
    },
    /// An interface gets queues (an HTB with the handle that is ours alone): take them away.
    Queues {
        /// Inode of its namespace.
        netns: u64,
        /// Its number there.
        index: u32,
        /// Its name.
        name: String,
    },
    /// A process is started: end it.
    Process {
        /// Which one.
        process: Identity,
    },
}

impl Step {
    /// Undoes the change; undoing it again does nothing.
    fn undo(&self) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        match self {
            Step::Unpin { file, netns } => mount::unpin(file, *netns)
                .map_err(|error| format!("cannot unpin {}: {error}", file.display())),
            Step::Link { file, netns, index, name } => {
                let Some(pinned) = mount::pinned(file, *netns) else { return Ok(()) };
                let deleted =
                    netns::within(pinned.as_fd(), || Netlink::open().delete(*index)).map_err(told)?;
                deleted.map_err(|refusal| format!("cannot delete {name}: {refusal}"))
            }
            Step::Directory { path } => match fs::remove_dir(path) {
                Err(e) if !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTEMPTY | libc::EBUSY)) => {
                    Err(told(e))
                }
                _ => Ok(()),
            },
            Step::Folder { path } => match fs::remove_dir_all(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(told(e)),
                _ => Ok(()),
            },
            Step::Stamps { netns, index, name, was, side } => {
                stamping::undo(*netns, *index, name, *was, *side)
                    .map_err(|error| format!("cannot put back the time stamps of {name}: {error}"))
            }
            Step::Queues { netns, index, name } => htb::undo(*netns, *index, name)
                .map_err(|error| format!("cannot take away the queues of {name}: {error}")),
            Step::Process { process } => process.end(PATIENCE).map_err(told),
        }
    }
}

/// The first line of a journal: whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was built; also the name of the file.
    pub name: String,
    /// The process that builds or holds it.
    pub owner: Identity,
    /// It outlives its owner once it is complete.
    pub persistent: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Owner(Header),
    Undo(Step),
    Complete(serde_json::Value),
}

/// A journal as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Whose it is.
    pub header: Header,
    /// What would undo it, in the order in which it was written.
    pub steps: Vec<Step>,
    /// What the owner said when everything was built; none before that.
    pub complete: Option<serde_json::Value>,
}

impl Record {
    /// Reads the text of a journal. Lines that are not complete (the owner died while it wrote) are passed over: their
    /// change was not made yet. None when not even the first line is there; then nothing was changed at all.
    pub fn parse(text: &str) -> Option<Record> {
        let mut lines = text.lines();
        let Ok(Line::Owner(header)) = serde_json::from_str(lines.next()?) else { return None };
        let mut record = Record { header, steps: vec![], complete: None };
        for line in lines.filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                Line::Undo(step) => record.steps.push(step),
                Line::Complete(about) => record.complete = Some(about),
                Line::Owner(_) => {}
            }
        }
        Some(record)
    }

    /// True when nobody answers for it any more: it must be undone.
    pub fn stale(&self) -> bool {
        let kept = self.header.persistent && self.complete.is_some() && same_boot(&self.header.owner);
        !kept && !self.header.owner.alive()
    }

    /// Undoes every step, last first, and goes on when one fails.
    fn undo(&self) -> Result<()> {
        if !same_boot(&self.header.owner) {
            // Namespaces, links, settings of interfaces and processes did not survive; only files may have.
            self.steps.iter().rev().for_each(|step| match step {
                Step::Unpin { .. } | Step::Directory { .. } | Step::Folder { .. } => drop(step.undo()),
                Step::Link { .. } | Step::Stamps { .. } | Step::Queues { .. } | Step::Process { .. } => {}
            });
            return Ok(());
        }
        let failed: Vec<String> = self.steps.iter().rev().filter_map(|step| step.undo().err()).collect();
        match failed.first() {
            None => Ok(()),
            Some(first) => Err(Problem::host(format!(
                "'{}' could not be taken down whole: {first}",
                self.header.name
            ))
            .help(
                "the journal is kept; try again with 'pathlab lab down' or 'pathlab undo' as the same user",
            )),
        }
    }
}

fn same_boot(owner: &Identity) -> bool {
    Identity::own().is_ok_and(|own| own.boot == owner.boot)
}

/// The directory where journals are.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// The directory of this user: `/run/pathlab` for root, else `$XDG_RUNTIME_DIR/pathlab`, else `/tmp/pathlab-UID`.
    /// Made if it does not exist, for this user only. `$PATHLAB_STATE` names another one; labs are known only to commands
    /// with the same directory.
    ///
    /// # Errors
    /// A host problem when it cannot be made, or somebody else could write in it.
    pub fn open() -> Result<StateDir> {
        if let Some(path) = std::env::var_os("PATHLAB_STATE").filter(|path| !path.is_empty()) {
            return Self::at(Path::new(&path));
        }
        Self::at(&match (userns::outer_uid(), std::env::var_os("XDG_RUNTIME_DIR")) {
            (0, _) => PathBuf::from("/run/pathlab"),
            (_, Some(runtime)) if Path::new(&runtime).is_dir() => Path::new(&runtime).join("pathlab"),
            (uid, _) => PathBuf::from(format!("/tmp/pathlab-{uid}")),
        })
    }

    /// The directory at this path.
    ///
    /// # Errors
    /// As [`StateDir::open`].
    pub fn at(path: &Path) -> Result<StateDir> {
        let place = path.display().to_string();
        let told =
            |error: io::Error| Problem::host(format!("cannot use the state directory: {error}")).at(&place);
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(told(error)),
            _ => {}
        }
        let meta = fs::symlink_metadata(path).map_err(told)?;
        let own = meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw();
        if !own || meta.mode() & 0o077 != 0 {
            return Err(Problem::host("the state directory is not only this user's")
                .at(place)
                .help("remove it or move it away; pathlab makes it new with mode 0700"));
        }
        Ok(StateDir { path: path.into() })
    }

    /// Where what belongs to a journal's lab may be: sockets, and what its programs say.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.d"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.journal"))
    }

    /// Waits until no other pathlab makes or removes journals here; ends with the returned file.
    fn lock(&self) -> Result<File> {
        let path = self.path.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let locked = file.and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| Problem::host(format!("cannot lock: {error}")).at(path.display().to_string()))
    }

    /// The journal of that name, if there is one.
    pub fn read(&self, name: &str) -> Option<Record> {
        Record::parse(&String::from_utf8_lossy(&fs::read(self.file(name)).ok()?))
    }

    /// The names of all journals, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".journal")?.to_string()))
            .collect();
        names.sort();
        names
    }

    /// Undoes everything that nobody answers for any more; returns the names. Does not stop at the first problem.
    ///
    /// # Errors
    /// The first host problem, when all others were undone.
    pub fn clean(&self) -> Result<Vec<String>> {
        let _lock = self.lock()?;
        let mut undone = vec![];
        let mut problem = None;
        for name in self.names() {
            let record = self.read(&name);
            if record.as_ref().is_some_and(|record| !record.stale()) {
                continue;
            }
            // Under the lock a journal without its first line means that its maker died before it changed anything.
            match record.map_or(Ok(()), |record| record.undo()).and_then(|()| self.forget(&name)) {
                Ok(()) => undone.push(name),
                Err(this) => problem = problem.or(Some(this)),
            }
        }
        problem.map_or(Ok(undone), Err)
    }

    /// Undoes one journal, whoever owns it.
    ///
    /// # Errors
    /// A host problem when a step fails; the journal is then kept.
    pub fn undo(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        self.read(name).map_or(Ok(()), |record| record.undo())?;
        self.forget(name)
    }

    /// For tests: the journal of a process that is gone.
    #[cfg(test)]
    pub(crate) fn leave_behind(&self, name: &str, owner: Identity, steps: &[Step]) {
        let header = Header { schema: SCHEMA.into(), name: name.into(), owner, persistent: false };
        let lines = std::iter::once(Line::Owner(header)).chain(steps.iter().cloned().map(Line::Undo));
        let text: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
        fs::write(self.file(name), text).unwrap();
    }

    fn forget(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.file(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Problem::host(format!("cannot remove: {error}"))
                    .at(self.file(name).display().to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// A journal that its owner writes.
#[derive(Debug)]
pub struct Journal {
    directory: StateDir,
    file: File,
    header: Header,
}

impl Journal {
    /// Begins a journal, or none when there is already one of that name. `persistent`: what is built outlives this
    /// process once it is complete.
    ///
    /// # Errors
    /// A host problem when it cannot be written.
    pub fn begin(directory: &StateDir, name: &str, persistent: bool) -> Result<Option<Journal>> {
        let path = directory.file(name);
        let told = |error: io::Error| write_problem(&path, &error);
        let _lock = directory.lock()?;
        let opened = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            other => other.map_err(told)?,
        };
        let owner = Identity::own().map_err(told)?;
        let header = Header { schema: SCHEMA.into(), name: name.into(), owner, persistent };
        let mut journal = Journal { directory: directory.clone(), file, header: header.clone() };
        let written = journal.write(&[Line::Owner(header)]).and_then(|()| {
            File::open(&directory.path).and_then(|directory| directory.sync_all()).map_err(told)
        });
        if let Err(problem) = written {
            let _ = fs::remove_file(&path);
            return Err(problem);
        }
        Ok(Some(journal))
    }

    /// Puts on disk what would undo the changes that come next.
    ///
    /// # Errors
    /// A host problem when it cannot be written; then do not make the changes.
    pub fn will(&mut self, steps: impl IntoIterator<Item = Step>) -> Result<()> {
        let lines: Vec<Line> = steps.into_iter().map(Line::Undo).collect();
        if lines.is_empty() { Ok(()) } else { self.write(&lines) }
    }

    /// Says that everything is built, and what it is.
    ///
    /// # Errors
    /// A host problem when it cannot be written.
    pub fn complete(&mut self, about: &impl Serialize) -> Result<()> {
        let about = serde_json::to_value(about).map_err(|error| Problem::host(error.to_string()))?;
        self.write(&[Line::Complete(about)])
    }

    /// Undoes everything and removes the journal.
    ///
    /// # Errors
    /// A host problem when a step fails; the journal is then kept.
    pub fn undo(self) -> Result<()> {
        self.directory.undo(&self.header.name)
    }

    /// Removes the journal without undoing anything: no change was made.
    ///
    /// # Errors
    /// A host problem when it cannot be removed.
    pub fn forget(self) -> Result<()> {
        let _lock = self.directory.lock()?;
        self.directory.forget(&self.header.name)
    }

    fn write(&mut self, lines: &[Line]) -> Result<()> {
        let told = |error: io::Error| write_problem(&self.directory.file(&self.header.name), &error);
        let mut text = String::new();
        for line in lines {
            text += &serde_json::to_string(line).map_err(|error| told(error.into()))?;
            text.push('\n');
        }
        // One write, so that a line is never mixed with another.
        (&self.file).write_all(text.as_bytes()).and_then(|()| self.file.sync_data()).map_err(told)
    }
}

fn write_problem(path: &Path, error: &io::Error) -> Problem {
    Problem::host(format!("cannot write the undo journal: {error}"))
        .at(path.display().to_string())
        .help("nothing is built without it; make room or set XDG_RUNTIME_DIR")
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;

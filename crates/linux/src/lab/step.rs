//! What undoes the parts of a lab.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::journal;
use crate::netlink::Netlink;
use crate::sys::process::ProcessIdentity;
use crate::sys::{mount, netns};

/// How long a process may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(3);

/// A part of a lab that can be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabStep {
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
    /// A process is started: end it.
    Process {
        /// Which one.
        process: ProcessIdentity,
    },
}

impl journal::UndoStep for LabStep {
    fn undo(&self) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        match self {
            LabStep::Unpin { file, netns } => mount::unpin(file, *netns)
                .map_err(|error| format!("cannot unpin {}: {error}", file.display())),
            LabStep::Link { file, netns, index, name } => {
                let Some(pinned) = mount::pinned(file, *netns) else { return Ok(()) };
                let deleted =
                    netns::within(pinned.as_fd(), || Netlink::open().delete(*index)).map_err(told)?;
                deleted.map_err(|refusal| format!("cannot delete {name}: {refusal}"))
            }
            LabStep::Directory { path } => match fs::remove_dir(path) {
                Err(e) if !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTEMPTY | libc::EBUSY)) => {
                    Err(told(e))
                }
                _ => Ok(()),
            },
            LabStep::Folder { path } => match fs::remove_dir_all(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(told(e)),
                _ => Ok(()),
            },
            LabStep::Process { process } => process.end(PATIENCE).map_err(told),
        }
    }

    fn outlives_boot(&self) -> bool {
        match self {
            LabStep::Unpin { .. } | LabStep::Directory { .. } | LabStep::Folder { .. } => true,
            LabStep::Link { .. } | LabStep::Process { .. } => false,
        }
    }
}

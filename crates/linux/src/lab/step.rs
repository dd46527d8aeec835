//! What undoes the parts of a lab.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::journal;
use crate::netlink::{Netlink, NewLink, OffloadFeature, Refusal};
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
    /// A card of the machine is moved into a pinned namespace: move it back, as it was.
    Card {
        /// The file that the namespace is pinned to.
        file: PathBuf,
        /// Inode of the namespace.
        netns: u64,
        /// Index of the card there.
        index: u32,
        /// What it was.
        card: CardState,
    },
    /// A process is started: end it.
    Process {
        /// Which one.
        process: ProcessIdentity,
    },
}

/// A card as it was before a lab took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardState {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub address: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Transmit queue length in frames.
    pub tx_queue_len: u32,
    /// Its offloads by their words.
    pub offloads: BTreeMap<String, bool>,
}

impl CardState {
    /// Moves the card with that index of the calling thread's namespace into another one, and gives it back what it had.
    fn give_back(&self, index: u32, home: BorrowedFd<'_>) -> Result<(), Refusal> {
        let mut netlink = Netlink::open();
        if !netlink.links()?.iter().any(|link| link.index == index) {
            return Ok(());
        }
        netlink.set_down(index)?;
        let named = |word: &str| OffloadFeature::ALL.into_iter().find(|offload| offload.word() == word);
        let offloads = self.offloads.iter().filter_map(|(word, &on)| Some((named(word)?, on)));
        // What it cannot switch it never had.
        let _ = netlink.set_offloads(index, &offloads.collect());
        let CardState { mtu, tx_queue_len, .. } = *self;
        let old = NewLink {
            index,
            name: &self.name,
            mtu: Some(mtu),
            tx_queue_len: Some(tx_queue_len),
            queues: None,
            mac: self.address,
        };
        netlink.move_link(index, &NewLink { index: 0, ..old }, home)
    }
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
            LabStep::Card { file, netns, index, card } => {
                let Some(pinned) = mount::pinned(file, *netns) else { return Ok(()) };
                let home = netns::current().map_err(told)?;
                let given =
                    netns::within(pinned.as_fd(), || card.give_back(*index, home.as_fd())).map_err(told)?;
                given.map_err(|refusal| format!("cannot give back the card {}: {refusal}", card.name))
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
            LabStep::Link { .. } | LabStep::Card { .. } | LabStep::Process { .. } => false,
        }
    }
}

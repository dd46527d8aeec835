//! The record of one end: what `send --record` and `capture --record` write, for `pathlab join`.

use super::new_file::NewFile;
use clap::Args;
use linux::sys::{clock, netns};
use record::half::{Half, Identity, SCHEMA};
use record::{Problem, Result};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest half that is read: a thousand times what one has.
const MOST_BYTES: u64 = 64 << 20;

/// The flags of both commands.
#[derive(Args)]
pub struct HalfArgs {
    /// Write what this end saw, with its counters, to a new file; 'pathlab join' makes one ledger of two.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// The name of this end in that ledger [default: the host's name].
    #[arg(long, value_name = "NAME", requires = "record")]
    pub node: Option<String>,
}

/// A half that is being made.
pub struct Pending {
    file: NewFile,
    half: Half,
}

impl HalfArgs {
    /// Makes the file, if one was asked for.
    ///
    /// # Errors
    /// Input: it exists already, or cannot be made.
    pub fn begin(&self) -> Result<Option<Pending>> {
        let Some(path) = &self.record else { return Ok(None) };
        let file = NewFile::create(path)?;
        let half = Half {
            schema: SCHEMA.into(),
            node: self.node.clone().unwrap_or_else(|| setting("hostname")),
            host: linux::observe::host_facts(),
            identity: identity(),
            command: std::env::args().collect(),
            begun: experiment::now(),
            ..Half::default()
        };
        Ok(Some(Pending { file, half }))
    }
}

impl Pending {
    /// Writes it, with what only the end knows.
    ///
    /// # Errors
    /// Host: the disk is full, or broken.
    pub fn finish(mut self, fill: impl FnOnce(&mut Half)) -> Result<()> {
        fill(&mut self.half);
        let text =
            serde_json::to_vec(&self.half).map_err(|e| Problem::host(format!("cannot write JSON: {e}")))?;
        self.file.finish(&text)
    }
}

/// Reads a half.
///
/// # Errors
/// Input: there is no such file, or it is something else.
pub fn read(path: &Path) -> Result<Half> {
    let place = path.display().to_string();
    let mut text = vec![];
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text))
        .map_err(|e| Problem::input(format!("cannot read the record: {e}")).at(&place))?;
    serde_json::from_slice(&text).map_err(|e| {
        Problem::input(format!("this is not a half of a path: {}", record::problem::json_words(&e)))
            .at(&place)
            .help("give files that pathlab send --record and pathlab capture --record wrote")
    })
}

/// A value of the kernel's settings; empty when it cannot be read.
fn setting(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    text.trim().to_owned()
}

/// Whose clock and interfaces this process sees. What cannot be read is unknown.
fn identity() -> Identity {
    let network = netns::current().and_then(|namespace| netns::inode(namespace.as_fd()));
    Identity {
        boot_id: setting("random/boot_id"),
        time_namespace: std::fs::metadata("/proc/thread-self/ns/time").map_or(0, |namespace| namespace.ino()),
        network_namespace: network.unwrap_or(0),
        realtime_offset_ns: clock::realtime_ns().saturating_sub(clock::monotonic_ns()),
    }
}

//! The list of runs, and the file that makes it quick.
//!
//! **What.** `runs/.index.json` holds a line of the list for every run, with the size, the inode and the time of change of the record
//! that it was made from. A line counts as long as these three are the same; every other record is read again. So an index that
//! is missing, stale or damaged costs time and nothing else, and it may be deleted at any moment.
//!
//! **Two writers at once.** The index is written beside and renamed over, under a lock of the directory. Who does not get the lock
//! writes nothing: whoever lists next adds what is missing.
//!
//! **Price.** A list still asks the file system for every record (`stat`), some microseconds each.

use super::file::{self, Head, Named};
use super::{RunSummary, cannot};
use crate::table::grouped;
use record::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The version of the index. Another one is no index.
const SCHEMA: &str = "pathlab/runs-index/1";
const FILE: &str = ".index.json";
const NEW: &str = ".index.json.new";

/// By what a record is recognised without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    inode: u64,
    changed_ns: i64,
}

impl Stamp {
    fn of(file: &Path) -> Option<Stamp> {
        let meta = fs::metadata(file).ok()?;
        let changed_ns = meta.mtime().checked_mul(1_000_000_000)?.checked_add(meta.mtime_nsec())?;
        Some(Stamp { bytes: meta.size(), inode: meta.ino(), changed_ns })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    stamp: Stamp,
    run: RunSummary,
}

/// What the index file holds: lines by the name of the run.
#[derive(Default, Serialize, Deserialize)]
struct Index {
    schema: String,
    lines: BTreeMap<String, Line>,
}

impl Index {
    /// What is there and of this version; else nothing.
    fn read(root: &Path) -> Index {
        let bytes = fs::read(root.join(FILE)).unwrap_or_default();
        let index: Index = serde_json::from_slice(&bytes).unwrap_or_default();
        if index.schema == SCHEMA { index } else { Index { schema: SCHEMA.into(), ..Index::default() } }
    }

    /// Writes it, unless somebody else does so now or the directory may not be written: it is only a help.
    fn write(&self, root: &Path) {
        let Ok(Some(_lock)) = lock(root) else { return };
        let (new, file) = (root.join(NEW), root.join(FILE));
        let written = serde_json::to_vec(self)
            .map_err(std::io::Error::other)
            .and_then(|bytes| fs::write(&new, bytes))
            .and_then(|()| fs::rename(&new, &file));
        if written.is_err() {
            let _ = fs::remove_file(&new); // half an index helps nobody
        }
    }
}

/// Takes the lock of a directory; none when somebody else has it.
pub(super) fn lock(directory: &Path) -> std::io::Result<Option<File>> {
    let file = File::open(directory)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Runs below `root`, the oldest first: name and file. No directory is no run.
pub(super) fn files(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(root) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(|e| cannot("read", root, &e))?,
    };
    let run = |entry: fs::DirEntry| {
        Some((entry.file_name().to_string_lossy().into_owned(), file::within(&entry.path())?))
    };
    let mut files: Vec<_> = entries.flatten().filter_map(run).collect();
    files.sort();
    Ok(files)
}

/// The name of the run that began last. The second is in the name; of several in one second, and of those that somebody named anew, the records tell.
pub(super) fn latest(root: &Path) -> Result<Option<String>> {
    let files = files(root)?;
    let last = files.iter().filter_map(|(id, _)| second(id)).max();
    let may_be = |id: &str| second(id).is_none() || second(id) == last;
    let mut last = files.iter().filter(|(id, _)| may_be(id)).collect::<Vec<_>>();
    if last.len() < 2 {
        return Ok(last.pop().map(|(id, _)| id.clone()));
    }
    let mut runs: Vec<RunSummary> = last.iter().map(|(id, file)| RunSummary::read(id, file)).collect();
    runs.sort_by(|a, b| a.age().cmp(&b.age()));
    Ok(runs.pop().map(|run| run.id))
}

/// The time in the name of a run (`20260102T030405` of `20260102T030405Z-4f2a1c`); none where somebody gave it another name.
fn second(id: &str) -> Option<&str> {
    let time = id.split('-').next()?.strip_suffix('Z')?;
    let is_time = |(at, byte): (usize, u8)| if at == 8 { byte == b'T' } else { byte.is_ascii_digit() };
    (time.len() == 15 && time.bytes().enumerate().all(is_time)).then_some(time)
}

/// Every run below `root`, the oldest first. A damaged one is listed as such.
///
/// # Errors
/// Host problems when the directory itself cannot be read.
pub fn list(root: &Path) -> Result<Vec<RunSummary>> {
    let files = files(root)?;
    let mut index = Index::read(root);
    let mut lines = BTreeMap::new();
    let (mut runs, mut read) = (vec![], 0);
    for (id, file) in files {
        let stamp = Stamp::of(&file);
        let known = index.lines.remove(&id).filter(|line| Some(line.stamp) == stamp);
        read += usize::from(known.is_none());
        let mut run = known.map_or_else(|| RunSummary::read(&id, &file), |line| line.run);
        run.directory = root.join(&id);
        if let (Some(stamp), None) = (stamp, &run.broken) {
            lines.insert(id, Line { stamp, run: run.clone() });
        }
        runs.push(run);
    }
    let gone = index.lines.len();
    if (read > 0 && !lines.is_empty()) || gone > 0 {
        Index { schema: SCHEMA.into(), lines }.write(root);
    }
    runs.sort_by(|a, b| a.age().cmp(&b.age()));
    Ok(runs)
}

/// Puts a run that has just ended into the index, so that the next list need not read it.
pub(super) fn add(root: &Path, id: &str) {
    let file = root.join(id).join(file::FILE);
    if let Some(stamp) = Stamp::of(&file) {
        let mut index = Index::read(root);
        index.lines.insert(id.into(), Line { stamp, run: RunSummary::read(id, &file) });
        index.write(root);
    }
}

impl RunSummary {
    /// Reads the record.
    fn read(id: &str, file: &Path) -> RunSummary {
        let (id, directory) = (id.to_owned(), file.parent().unwrap_or(file).to_owned());
        let head = match Head::load(file) {
            Ok(head) => head,
            Err(problem) => {
                return RunSummary {
                    id,
                    directory,
                    broken: Some(problem.to_string()),
                    ..RunSummary::default()
                };
            }
        };
        let (tests, findings) = (head.tests.len(), head.findings.len());
        let same = |one: &Named, other: &Named| one.name == other.name;
        let names = grouped(head.tests, same).into_iter().map(|mut tests| tests.swap_remove(0).name);
        let path = match &head.way {
            Some(way) => crate::ways::title(&way.name, way.offload.as_deref()),
            None => head.topology_name,
        };
        RunSummary {
            id,
            directory,
            begun: head.begun,
            ended: head.ended,
            label: head.label,
            plan: head.plan_name,
            path,
            tests,
            names: names.collect(),
            findings,
            broken: None,
        }
    }

    /// What orders runs by age.
    fn age(&self) -> (String, &str, &str) {
        // As in names: without fractions of the second.
        let begun = || self.begun.split('.').next().unwrap_or_default().replace(['-', ':', 'Z'], "");
        (second(&self.id).map_or_else(begun, str::to_owned), &self.begun, &self.id)
    }
}

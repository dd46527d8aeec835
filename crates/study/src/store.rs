//! The directory of runs.
//!
//! **What.** `runs/<UTC time>-<random id>/run.json.zst` ([`file`]), one directory per run, never used twice. [`list`] says which there
//! are, [`delete`] takes some away.
//!
//! **Why this way.** After every test the whole record is written beside the old one, forced to the disk, and renamed
//! over it. A crash or a full disk at any moment leaves the record of all finished tests readable. What cannot be written stays
//! in memory, is tried again with the next test, and is given back at the end: whoever measured still has the results.
//!
//! **Price.** A run of n tests writes its first test n times: some hundred kilobytes, between tests, when nothing is measured.

mod delete;
mod file;
mod filter;
mod index;

pub use delete::delete;
pub use filter::Filter;
pub use index::list;

use jiff::Timestamp;
use record::run::SCHEMA;
use record::{Finding, Problem, Result, RunRecord, TestRecord};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// A run that is being written.
#[derive(Debug)]
pub struct RunWriter {
    root: PathBuf,
    directory: PathBuf,
    /// Keeps others from deleting it; none where the file system knows no locks.
    _lock: Option<File>,
    record: RunRecord,
    /// Tests that are safe on the disk.
    kept: usize,
}

/// A line of the list of runs.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RunSummary {
    /// Name of the run's directory.
    pub id: String,
    /// The directory.
    pub directory: PathBuf,
    /// When it began, RFC 3339.
    pub begun: String,
    /// When it ended; none if it did not.
    pub ended: Option<String>,
    /// What the user called it.
    pub label: Option<String>,
    /// The name of its plan: `default` or a file; empty when it is not known.
    pub plan: String,
    /// What was measured: the way (`switch:xdp, offload off`), else the name of the topology or `lab NAME`; empty when it is not
    /// known.
    pub path: String,
    /// How many tests it has.
    pub tests: usize,
    /// Names of the tests, each once.
    pub names: Vec<String>,
    /// How many findings it has.
    pub findings: usize,
    /// Why it could not be read; everything above but `id` and `directory` is then empty.
    pub broken: Option<String>,
}

/// The file for the dead frames of the `order`-th test of the run that is kept in that directory.
pub fn dead_frames(directory: &Path, order: u32) -> PathBuf {
    directory.join(file::dead_frames(order))
}

impl RunWriter {
    /// Makes a new directory below `root`, named after the record's begin, and writes the record without tests.
    ///
    /// # Errors
    /// Host problems when the directory or file cannot be made.
    pub fn create(root: &Path, mut record: RunRecord) -> Result<Self> {
        let (directory, id) = new_directory(root, &record.begun, "a run")?;
        record.id = id;
        record.schema = SCHEMA.into();
        record.ended = None;
        let lock = index::lock(&directory).ok().flatten();
        let mut writer = RunWriter { root: root.to_owned(), directory, _lock: lock, record, kept: 0 };
        writer.write()?;
        sync(root)?;
        Ok(writer)
    }

    /// The run's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The record so far.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// How many tests were in the record when it was last written.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Adds a finished test and makes it durable.
    ///
    /// # Errors
    /// A host problem that says what is kept. The test is then in the record, but not on the disk; the next one tries again.
    pub fn add(&mut self, test: TestRecord) -> Result<()> {
        self.record.tests.push(test);
        self.write()
    }

    /// Ends the run. The record comes back whether or not it could be written: a host problem then says what is kept.
    pub fn finish(
        mut self,
        findings: Vec<Finding>,
        ended: String,
        invalid: Vec<String>,
    ) -> (RunRecord, Result<()>) {
        self.record.findings = findings;
        self.record.ended = Some(ended);
        self.record.invalid.extend(invalid);
        let written = self.write();
        if written.is_ok() {
            index::add(&self.root, &self.record.id);
        }
        (self.record, written)
    }

    fn write(&mut self) -> Result<()> {
        let bytes = file::encode(&self.record)?;
        replace(&self.directory, file::FILE, &bytes).map_err(|e| {
            let file = self.directory.join(file::FILE);
            let room = "make room or choose another directory with --dir";
            let advice = record::problem::remedy_of(&e).unwrap_or(room);
            cannot("write", &file, &e).help(format!("{}; {advice}", self.kept_words(&file)))
        })?;
        self.kept = self.record.tests.len();
        sync(&self.directory)
    }

    /// What is on the disk, if the file is still there.
    fn kept_words(&self, file: &Path) -> String {
        match self.kept {
            _ if !file.is_file() => "nothing is kept there".into(),
            1 => "1 test is kept there".into(),
            many => format!("{many} tests are kept there"),
        }
    }
}

pub(crate) fn sync(directory: &Path) -> Result<()> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(|e| cannot("sync", directory, &e))
}

pub(crate) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Problem {
    Problem::host(format!("cannot {what} {}: {error}", path.display())).remedy(error)
}

/// Makes a new directory below `root`, named after an RFC 3339 time and at random; its name comes along.
pub(crate) fn new_directory(root: &Path, begun: &str, what: &str) -> Result<(PathBuf, String)> {
    fs::create_dir_all(root).map_err(|e| cannot("make the directory", root, &e))?;
    let time = name_of_time(begun)?;
    for _ in 0..100 {
        let made = short_id().and_then(|random| {
            let id = format!("{time}-{random}");
            let directory = root.join(&id);
            fs::create_dir(&directory).map(|()| (directory, id))
        });
        match made {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map_err(|e| cannot(&format!("make {what} in"), root, &e)),
        }
    }
    Err(Problem::host(format!("cannot find an unused name in {}", root.display())))
}

/// Writes a file beside the old one, forces it to the disk, and renames it over it.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let new = directory.join(format!("{name}.new"));
    let replace = || {
        let mut out = File::create(&new)?;
        out.write_all(bytes)?;
        out.sync_all()?;
        fs::rename(&new, directory.join(name))
    };
    replace().inspect_err(|_| {
        let _ = fs::remove_file(&new); // gives the space back; the old file is untouched either way
    })
}

/// `20260102T030405Z` of an RFC 3339 time.
fn name_of_time(begun: &str) -> Result<String> {
    let time: Timestamp =
        begun.parse().map_err(|e| Problem::input(format!("'{begun}' is not a time by RFC 3339: {e}")))?;
    Ok(time.strftime("%Y%m%dT%H%M%SZ").to_string())
}

/// Six random hexadecimal digits.
fn short_id() -> std::io::Result<String> {
    let mut bytes = [0u8; 3];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads a run: the id, the begin of one, `latest`, or a path to a run's directory or file.
///
/// # Errors
/// Input problems when there is no such run, more than one, or its file is damaged.
pub fn open(root: &Path, run: &str) -> Result<RunRecord> {
    let path = Path::new(run);
    let file = match find(root, run)? {
        Some(id) => file::within(&root.join(id)),
        None if path.is_file() => Some(path.into()),
        None => file::within(path),
    };
    file::load(&file.ok_or_else(|| not_found(root, run))?)
}

/// The name of the run that is meant by its name, the begin of it, or `latest`; none when there is none.
///
/// # Errors
/// Input: more than one run's name begins so.
fn find(root: &Path, run: &str) -> Result<Option<String>> {
    if run == "latest" {
        let none = || Problem::input(format!("there is no run in {}", root.display()));
        return index::latest(root)?.ok_or_else(none).map(Some);
    }
    let names: Vec<String> = index::files(root)?.into_iter().map(|(name, _)| name).collect();
    let matching: Vec<&String> =
        names.iter().filter(|name| !run.is_empty() && name.starts_with(run)).collect();
    match matching.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        many if many.iter().any(|name| *name == run) => Ok(Some(run.into())),
        many => {
            let some: Vec<_> = many.iter().take(5).map(|name| name.as_str()).collect();
            Err(Problem::input(format!("'{run}' is the begin of {} runs: {}", many.len(), some.join(", ")))
                .help("give more of the name"))
        }
    }
}

fn not_found(root: &Path, run: &str) -> Problem {
    Problem::input(format!("there is no run '{run}' in {}", root.display())).help("'pathlab runs' lists them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn empty() -> RunRecord {
        RunRecord { tests: vec![], findings: vec![], ..sample::run("") }
    }

    #[test]
    fn a_run_reads_back_as_it_was_written() {
        let root = tempfile::tempdir().unwrap();
        let mut writer = RunWriter::create(&root.path().join("runs"), empty()).unwrap();
        let test = sample::run("").tests.remove(1);
        writer.add(test.clone()).unwrap();
        let root = root.path().join("runs");
        let half = open(&root, "latest").unwrap();
        assert_eq!((half.tests.as_slice(), half.ended), (&[test][..], None), "readable while it runs");
        let (whole, written) = writer.finish(vec![], "2026-01-02T03:05:05Z".into(), vec![]);
        written.unwrap();
        assert!(whole.id.starts_with("20260102T030405Z-"));
        for name in [whole.id.as_str(), &whole.id[..18], root.join(&whole.id).to_str().unwrap()] {
            assert_eq!(open(&root, name).unwrap(), whole, "{name}");
        }
        assert_eq!(list(&root).unwrap()[0].tests, 1);
    }

    #[test]
    fn two_runs_of_one_second_do_not_meet() {
        let root = tempfile::tempdir().unwrap();
        let writers: Vec<_> = (0..3).map(|_| RunWriter::create(root.path(), empty()).unwrap()).collect();
        assert_eq!(list(root.path()).unwrap().len(), 3);
        let problem = open(root.path(), "2026").unwrap_err();
        assert!(problem.to_string().contains("begin of 3 runs"), "{problem}");
        assert_ne!(writers[0].directory(), writers[1].directory());
    }

    /// `/dev/full` answers every write with "no space left on device".
    #[test]
    fn a_full_disk_keeps_the_tests_so_far() {
        let root = tempfile::tempdir().unwrap();
        let mut writer = RunWriter::create(root.path(), empty()).unwrap();
        let tests = sample::run("").tests;
        writer.add(tests[0].clone()).unwrap();
        std::os::unix::fs::symlink("/dev/full", writer.directory().join(file::NEW)).unwrap();
        let problem = writer.add(tests[1].clone()).unwrap_err();
        assert_eq!(problem.kind.exit_code(), 3);
        assert!(problem.to_string().contains("1 test is kept"), "{problem}");
        assert!(problem.to_string().contains("No space left"), "{problem}");
        assert_eq!(open(root.path(), "latest").unwrap().tests.len(), 1);
        writer.add(tests[2].clone()).unwrap();
        assert_eq!(open(root.path(), "latest").unwrap().tests, tests[..3], "all, when there is room again");
    }

    #[test]
    fn what_cannot_be_written_is_given_back_and_not_said_to_be_kept() {
        let root = tempfile::tempdir().unwrap();
        let mut writer = RunWriter::create(root.path(), empty()).unwrap();
        let tests = sample::run("").tests;
        writer.add(tests[0].clone()).unwrap();
        fs::remove_dir_all(writer.directory()).unwrap();
        let problem = writer.add(tests[1].clone()).unwrap_err();
        assert_eq!(problem.kind.exit_code(), 3);
        assert!(problem.to_string().contains("nothing is kept there"), "{problem}");
        let (record, written) = writer.finish(vec![], "2026-01-02T03:05:05Z".into(), vec![]);
        assert_eq!(record.tests, tests[..2]);
        assert!(written.unwrap_err().to_string().contains("nothing is kept there"));
    }

    /// A copy of an old run with a name of its own ('before-the-patch') was the latest run for ever.
    #[test]
    fn a_run_that_somebody_named_anew_is_as_old_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, begun: &str, text: Option<&str>| {
            let begun = RunRecord { id: name.into(), begun: begun.into(), ..empty() };
            let text = text.map_or_else(|| serde_json::to_string(&begun).unwrap(), str::to_owned);
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("run.json"), text).unwrap();
        };
        put("before-the-patch", "2026-01-02T03:04:05.678Z", None);
        assert_eq!(open(root.path(), "latest").unwrap().id, "before-the-patch");
        put("20260102T030406Z-a", "2026-01-02T03:04:06.000Z", None);
        put("zero", "", Some("{"));
        put("20260102T030404Z-b", "2026-01-02T03:04:04.000Z", None);
        assert_eq!(open(root.path(), "latest").unwrap().id, "20260102T030406Z-a");
        let names = list(root.path()).unwrap().into_iter().map(|run| run.id).collect::<Vec<_>>();
        assert_eq!(names, ["zero", "20260102T030404Z-b", "before-the-patch", "20260102T030406Z-a"]);
        put("zz", "2026-01-02T03:04:07.000Z", None);
        assert_eq!(open(root.path(), "latest").unwrap().id, "zz");
    }

    #[test]
    fn a_damaged_run_is_one_sentence_and_the_others_are_listed() {
        let root = tempfile::tempdir().unwrap();
        let good = RunWriter::create(root.path(), empty()).unwrap().record().id.clone();
        for (name, text) in [("20990101T000000Z-bad", "{\"schema\":"), ("20990102T000000Z-other", "{}")] {
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("run.json"), text).unwrap();
        }
        let runs = list(root.path()).unwrap();
        assert_eq!(runs.iter().filter(|run| run.broken.is_some()).count(), 2);
        assert_eq!(runs[0].id, good);
        let problem = open(root.path(), "20990101").unwrap_err();
        assert!(problem.kind.exit_code() == 2 && !problem.to_string().contains('\n'), "{problem}");
        assert_eq!(open(&root.path().join("none"), "latest").unwrap_err().kind.exit_code(), 2);
    }
}

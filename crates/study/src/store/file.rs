//! The file of a run: one JSON document, compressed.
//!
//! **What.** `run.json.zst`: what `pathlab show --json` prints, on one line, in one frame of Zstandard (RFC 8878) with a checksum;
//! `zstdcat run.json.zst` shows it without pathlab. `run.json`, as version 1 wrote it, is read as well, and never written over.
//!
//! **Why compressed and nothing else.** Nine tenths of a record are snapshots that differ in a few digits, and the same names of
//! fields. On a record of the default plan (1,882 kB) compression gives 68 kB; storing each snapshot as the difference from the one
//! before it gives 583 kB, and 64 kB when compressed as well. Six percent are not worth a second form of a snapshot.

use record::problem::json_words;
use record::run::{PathVariant, SCHEMA, SCHEMA_1};
use record::{Problem, Result, RunRecord};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// What is written.
pub(super) const FILE: &str = "run.json.zst";
/// The same while it is being written.
pub(super) const NEW: &str = "run.json.zst.new";
/// What version 1 wrote.
const PLAIN: &str = "run.json";
/// Every file that pathlab makes in the directory of a run, in any version.
const OURS: [&str; 4] = [FILE, NEW, PLAIN, "run.json.new"];
/// How the files of dead frames begin and end; the place of the test in the order of the run is between.
const DEAD: (&str, &str) = ("dead-", ".pcapng");

/// The name of the file of dead frames of the `order`-th test of a run.
pub(super) fn dead_frames(order: u32) -> String {
    format!("{}{order}{}", DEAD.0, DEAD.1)
}

/// Whether pathlab made a file of that name.
pub(super) fn is_ours(name: &str) -> bool {
    let order = name.strip_prefix(DEAD.0).and_then(|rest| rest.strip_suffix(DEAD.1));
    OURS.contains(&name)
        || order.and_then(|order| order.parse().ok()).is_some_and(|order| dead_frames(order) == name)
}

/// How a frame of Zstandard begins (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Level 3 takes 10 ms for the default plan; level 19 takes 2 s and saves a quarter.
const LEVEL: i32 = 3;
/// No record is longer than this when unpacked: some 40,000 tests. A damaged or hostile file ends here and not in all memory.
const MOST_BYTES: u64 = 4 << 30;

/// The file of the run in that directory, if there is one.
pub(super) fn within(directory: &Path) -> Option<PathBuf> {
    [FILE, PLAIN].iter().map(|name| directory.join(name)).find(|file| file.is_file())
}

/// The bytes of a record.
pub(super) fn encode(record: &RunRecord) -> Result<Vec<u8>> {
    let cannot = |e: &dyn std::fmt::Display| Problem::host(format!("cannot write JSON: {e}"));
    let text = serde_json::to_vec(record).map_err(|e| cannot(&e))?;
    let packed = || -> std::io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(vec![], LEVEL)?;
        encoder.include_checksum(true)?;
        encoder.set_pledged_src_size(Some(text.len() as u64))?;
        encoder.write_all(&text)?;
        encoder.finish()
    };
    packed().map_err(|e| cannot(&e))
}

/// The whole record.
///
/// # Errors
/// Input: it cannot be read, is damaged, or of another version.
pub(super) fn load(file: &Path) -> Result<RunRecord> {
    let mut record: RunRecord = parse(file)?;
    check(&record.schema, file)?;
    record.schema = SCHEMA.into();
    Ok(record)
}

/// As much of a record as the list of runs needs.
#[derive(Deserialize)]
pub(super) struct Head {
    schema: String,
    pub begun: String,
    #[serde(default)]
    pub ended: Option<String>,
    #[serde(default)]
    pub label: Option<String>,
    #[serde(default)]
    pub plan_name: String,
    #[serde(default)]
    pub topology_name: String,
    #[serde(default)]
    pub way: Option<PathVariant>,
    pub tests: Vec<Named>,
    pub findings: Vec<IgnoredAny>,
}

/// A test, of which only the name is read.
#[derive(Deserialize)]
pub(super) struct Named {
    pub name: String,
}

impl Head {
    /// Reads it.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(file: &Path) -> Result<Head> {
        let head: Head = parse(file)?;
        check(&head.schema, file)?;
        Ok(head)
    }
}

fn check(schema: &str, file: &Path) -> Result<()> {
    if [SCHEMA, SCHEMA_1].contains(&schema) {
        return Ok(());
    }
    let what = format!("its schema is '{schema}', this pathlab reads '{SCHEMA}' and '{SCHEMA_1}'");
    Err(Problem::input(what).at(file.display().to_string()))
}

/// What a document says that it is.
#[derive(Deserialize)]
struct Kind {
    schema: String,
}

fn parse<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = text(file)?;
    serde_json::from_slice(&text).map_err(|e| {
        // A document of another kind or version has other fields: that is then the news.
        let kind = serde_json::from_slice::<Kind>(&text).map_or(Ok(()), |kind| check(&kind.schema, file));
        kind.err().unwrap_or_else(|| damaged(file, &json_words(&e)))
    })
}

/// The JSON of a file.
fn text(file: &Path) -> Result<Vec<u8>> {
    let unread = |e| Problem::input(format!("cannot read it: {e}")).at(file.display().to_string());
    let bytes = fs::read(file).map_err(unread)?;
    if !bytes.starts_with(&MAGIC) {
        return Ok(bytes);
    }
    let mut text = vec![];
    zstd::Decoder::new(bytes.as_slice())
        .and_then(|decoder| decoder.take(MOST_BYTES).read_to_end(&mut text))
        .map_err(|e| damaged(file, &format!("it cannot be decompressed ({e})")))?;
    Ok(text)
}

fn damaged(file: &Path, what: &str) -> Problem {
    Problem::input(format!("this is not a run record: {what}"))
        .at(file.display().to_string())
        .help("the file is damaged or not of pathlab")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_pathlab_gives_are_ours() {
        assert_eq!(dead_frames(12), "dead-12.pcapng");
        assert!(["run.json.zst", "dead-12.pcapng", "dead-0.pcapng"].into_iter().all(is_ours));
        let foreign = ["dead-012.pcapng", "dead-.pcapng", "dead-1.pcapng.gz", "dead-x.pcapng", "notes.txt"];
        assert!(!foreign.into_iter().any(is_ours));
    }

    #[test]
    fn what_is_no_record_is_named_before_what_is_wrong_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.json");
        for (text, words) in [
            (r#"{"schema":"pathlab/run/9","start":1}"#, "its schema is 'pathlab/run/9', this pathlab reads"),
            (r#"{"schema":"pathlab/facts/1"}"#, "its schema is 'pathlab/facts/1'"),
            (
                r#"{"schema":"pathlab/run/2","begun":5}"#,
                "line 1, column 35: invalid type: integer '5', expected a string",
            ),
            ("{", "it ends too early, in line 1; the file is damaged"),
            ("", "it is empty"),
            ("(\u{b5}/\u{fd}", "line 1, column 1 is not JSON"),
        ] {
            fs::write(&file, text).unwrap();
            let problem = Head::load(&file).map(|_| ()).unwrap_err().to_string();
            assert!(problem.contains(words), "{text}: {problem}");
        }
        fs::write(&file, MAGIC).unwrap();
        let problem = load(&file).unwrap_err().to_string();
        assert!(problem.contains("it cannot be decompressed (incomplete frame)"), "{problem}");
    }
}

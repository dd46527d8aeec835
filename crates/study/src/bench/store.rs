//! The directory of a benchmark: `bench.json` (the head, written once) and `cells.jsonl` (a line as each cell ends).
//!
//! **Why lines.** A cell that has ended is safe: its line is appended and forced to the disk, and nothing is written
//! again. After `kill -9` at any moment there is at most one torn line at the end; it is cut off when the benchmark goes
//! on, and its cell runs again.

use super::Measured;
use crate::store::{cannot, new_directory, replace, sync};
use record::bench::{BenchHead, Cell};
use record::problem::json_words;
use record::{Problem, Result};
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

const HEAD: &str = "bench.json";
const CELLS: &str = "cells.jsonl";

/// A benchmark that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Bench<R> {
    /// What was known before the first cell.
    pub head: BenchHead,
    /// Cells that ended, in the order in which they ran.
    pub results: Vec<R>,
}

impl<R: Measured> Bench<R> {
    /// Cells without a result, in their order.
    pub fn missing(&self) -> Vec<Cell> {
        let there = |cell: &&Cell| !self.results.iter().any(|result| result.cell() == *cell);
        self.head.cells.iter().filter(there).cloned().collect()
    }
}

/// A benchmark that is being written.
#[derive(Debug)]
pub struct BenchWriter<R> {
    directory: PathBuf,
    file: File,
    kind: PhantomData<R>,
}

impl<R: Measured> BenchWriter<R> {
    /// Makes a new directory below `root`, named after the head's begin, and writes the head. Its name is put into it.
    ///
    /// # Errors
    /// Host problems when something cannot be made.
    pub fn create(root: &Path, head: &mut BenchHead) -> Result<Self> {
        let (directory, id) = new_directory(root, &head.begun, "a benchmark")?;
        head.id = id;
        let bytes =
            serde_json::to_vec_pretty(head).map_err(|e| Problem::host(format!("cannot write JSON: {e}")))?;
        // The lines first: a directory with a head is whole.
        let lines = directory.join(CELLS);
        let file = OpenOptions::new().append(true).create_new(true).open(&lines);
        let file = file.map_err(|e| cannot("make", &lines, &e))?;
        replace(&directory, HEAD, &bytes).map_err(|e| cannot("write", &directory.join(HEAD), &e))?;
        sync(&directory)?;
        sync(root)?;
        Ok(BenchWriter { directory, file, kind: PhantomData })
    }

    /// Opens a benchmark to go on with it; what it has so far comes along. A torn last line is cut off.
    ///
    /// # Errors
    /// Input problems when this is no such benchmark or is damaged; host problems when it cannot be written.
    pub fn resume(directory: &Path, schema: &str) -> Result<(Self, Bench<R>)> {
        let (bench, whole) = read::<R>(directory, schema)?;
        let path = directory.join(CELLS);
        let file = OpenOptions::new().append(true).open(&path).map_err(|e| cannot("open", &path, &e))?;
        file.set_len(whole).map_err(|e| cannot("cut", &path, &e))?;
        Ok((BenchWriter { directory: directory.into(), file, kind: PhantomData }, bench))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds a cell that has ended and makes it durable.
    ///
    /// # Errors
    /// A host problem that says what helps.
    pub fn add(&mut self, result: &R) -> Result<()> {
        let mut line =
            serde_json::to_vec(result).map_err(|e| Problem::host(format!("cannot write JSON: {e}")))?;
        line.push(b'\n');
        self.file.write_all(&line).and_then(|()| self.file.sync_data()).map_err(|e| {
            let go_on = format!("make room, then go on with --resume {}", self.directory.display());
            cannot("write", &self.directory.join(CELLS), &e).help(go_on)
        })
    }
}

/// The version of a benchmark's documents; none when the directory holds no benchmark.
pub fn schema(directory: &Path) -> Option<String> {
    let head: serde_json::Value = serde_json::from_slice(&fs::read(directory.join(HEAD)).ok()?).ok()?;
    Some(head.get("schema")?.as_str()?.to_owned())
}

/// Reads a benchmark, also one that has not ended.
///
/// # Errors
/// Input problems when this is no such benchmark or is damaged.
pub fn open<R: DeserializeOwned>(directory: &Path, schema: &str) -> Result<Bench<R>> {
    Ok(read(directory, schema)?.0)
}

/// The benchmark, and how many bytes of its lines are whole.
fn read<R: DeserializeOwned>(directory: &Path, schema: &str) -> Result<(Bench<R>, u64)> {
    let path = directory.join(HEAD);
    let place = path.display().to_string();
    let text = fs::read(&path).map_err(|e| {
        Problem::input(format!("cannot read the benchmark: {e}"))
            .at(&place)
            .help("name the directory that 'pathlab bench' printed")
    })?;
    let damaged = |e: serde_json::Error| {
        Problem::input(format!("this is not a benchmark: {}", json_words(&e))).at(&place)
    };
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(damaged)?;
    let found = value.get("schema").and_then(|schema| schema.as_str()).unwrap_or("none");
    if found != schema {
        let what = format!("its schema is '{found}', this command reads '{schema}'");
        return Err(Problem::input(what).at(place));
    }
    let head = serde_json::from_value(value).map_err(damaged)?;
    let path = directory.join(CELLS);
    let lines = fs::read(&path)
        .map_err(|e| Problem::input(format!("cannot read it: {e}")).at(path.display().to_string()))?;
    let (results, whole) = parse(&lines, &path)?;
    Ok((Bench { head, results }, whole))
}

/// Reads whole lines; what follows the last line's end is torn. How many bytes are whole comes along.
fn parse<R: DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<(Vec<R>, u64)> {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut results = vec![];
    for (number, line) in bytes[..whole].split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let result = serde_json::from_slice(line).map_err(|e| {
            Problem::input(format!("this line is not a cell: {}", json_words(&e)))
                .at(format!("{}:{}", path.display(), number + 1))
                .help("remove the line, then its cell is measured again")
        })?;
        results.push(result);
    }
    Ok((results, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use record::bench::{CAPTURE, CaptureResult};

    fn cell(round: u32) -> Cell {
        Cell { tool: "ring".into(), frame_bytes: 60, ring_frames: Some(8), rate: 150_000, round }
    }

    fn head() -> BenchHead {
        let cells = (1..=3).map(cell).collect();
        BenchHead {
            schema: CAPTURE.into(),
            begun: "2026-01-02T03:04:05Z".into(),
            cells,
            ..BenchHead::default()
        }
    }

    fn result(round: u32) -> CaptureResult {
        CaptureResult { cell: cell(round), offered: 7, ..CaptureResult::default() }
    }

    #[test]
    fn a_torn_line_is_cut_off_and_its_cell_runs_again() {
        let root = tempfile::tempdir().unwrap();
        let mut writer = BenchWriter::create(root.path(), &mut head()).unwrap();
        let directory = writer.directory().to_owned();
        assert!(directory.file_name().unwrap().to_str().unwrap().starts_with("20260102T030405Z-"));
        writer.add(&result(2)).unwrap();
        writer.add(&result(1)).unwrap();
        let lines = fs::read(directory.join(CELLS)).unwrap();
        for cut in 0..lines.len() {
            fs::write(directory.join(CELLS), &lines[..cut]).unwrap();
            let (mut writer, bench) = BenchWriter::<CaptureResult>::resume(&directory, CAPTURE).unwrap();
            let first = lines.iter().position(|&byte| byte == b'\n').unwrap() + 1;
            let whole = if cut >= first { vec![result(2)] } else { vec![] };
            assert_eq!(bench.results, whole, "cut after {cut} bytes");
            assert_eq!(bench.missing().len(), 3 - whole.len());
            writer.add(&result(3)).unwrap();
            let again = open::<CaptureResult>(&directory, CAPTURE).unwrap();
            assert_eq!(again.results.last(), Some(&result(3)));
        }
    }

    #[test]
    fn what_is_no_benchmark_is_one_sentence() {
        let root = tempfile::tempdir().unwrap();
        let none = open::<CaptureResult>(root.path(), CAPTURE).unwrap_err();
        assert!(none.to_string().contains("cannot read the benchmark"), "{none}");
        fs::write(root.path().join(HEAD), "{\"schema\":\"pathlab/other/1\"}").unwrap();
        assert_eq!(schema(root.path()).as_deref(), Some("pathlab/other/1"));
        let other = open::<CaptureResult>(root.path(), CAPTURE).unwrap_err();
        assert!(other.to_string().contains("pathlab/other/1") && other.kind.exit_code() == 2, "{other}");
        let damaged = parse::<CaptureResult>(b"{}\n", Path::new("cells.jsonl")).unwrap_err();
        assert!(damaged.to_string().contains("cells.jsonl:1"), "{damaged}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse::<CaptureResult>(&bytes, Path::new("cells.jsonl"));
        }
    }
}

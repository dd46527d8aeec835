//! One file per command: its flags, and the order of events when it runs.

use experiment::plan::Plan;
use linux::lab::Topology;
use record::problem::json_words;
use record::{Problem, Result};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

pub mod agent;
pub mod bench;
mod between;
pub mod capture;
pub mod case;
pub mod compare;
pub mod completions;
pub mod controller;
pub mod doctor;
pub mod drops;
pub mod explain;
pub mod export;
pub mod facts;
pub mod flow;
pub mod follow;
pub mod half;
pub mod join;
pub mod lab;
pub mod llstat;
mod namespaces;
mod new_file;
pub mod null;
pub mod prove;
pub mod report;
pub mod run;
pub mod runs;
pub mod send;
pub mod serve;
pub mod shims;
pub mod show;
pub mod stamps;
pub mod switch;
pub mod tcp;
pub mod test;
pub mod timing;
pub mod tls;
pub mod tune;
pub mod undo;
pub mod vm;
pub mod watch;

/// The longest file that is read whole: a device that never ends is none.
const MOST_BYTES: u64 = 1 << 30;
/// What became of the text of a flag.
type Parsed<T> = std::result::Result<T, String>;

/// What some editors put before the first line of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Carries this command out in the virtual machines of a topology; returns only where it has none.
fn machines(topology: &Topology, plan: &Plan) -> Result<()> {
    if topology.has_machines() { in_machines(topology, plan, &own_words()) } else { Ok(()) }
}

/// The words of this program's command line.
fn own_words() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// Carries a command out in the virtual machines of a topology; does not return.
fn in_machines(topology: &Topology, plan: &Plan, words: &[OsString]) -> Result<()> {
    experiment::interruptible()?;
    if words.iter().any(|word| word == "-") {
        return Err(
            Problem::input("a virtual machine reads no standard input").help("give the plan as a file")
        );
    }
    std::process::exit(experiment::machines::carry_out(topology, plan, words)?.into())
}

/// Reads the count of a flag, written as everywhere (`64`, `50k`, `64Ki`), within these bounds.
fn amounts<T: TryFrom<u64>>(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Parsed<T> + Clone {
    move |text| within(record::unit::amount(text)?, &bounds)
}

/// The same of bytes (`1500`, `8KiB`).
fn bytes<T: TryFrom<u64>>(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Parsed<T> + Clone {
    move |text| within(record::unit::bytes(text)?, &bounds)
}

fn within<T: TryFrom<u64>>(value: u64, bounds: &RangeInclusive<u64>) -> Parsed<T> {
    let fits = T::try_from(value).ok().filter(|_| bounds.contains(&value));
    fits.ok_or_else(|| format!("{value} is not in {}..={}", bounds.start(), bounds.end()))
}

/// Reads a file of text, or standard input, which is `-`; `what` says what could not be done if it cannot be read.
pub fn read_text(path: impl AsRef<Path>, what: &str) -> Result<String> {
    let path = path.as_ref();
    let wrong = |why: String| Problem::input(format!("{what}: {why}")).at(path.display().to_string());
    let mut text = String::new();
    let read = match path.as_os_str().as_encoded_bytes() {
        b"-" => std::io::stdin().take(MOST_BYTES).read_to_string(&mut text),
        _ => File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text)),
    };
    match read {
        Ok(length) if length as u64 == MOST_BYTES => Err(wrong("it is longer than 1 GiB".into())),
        Ok(_) => {
            if text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len_utf8());
            }
            Ok(text)
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// What every document of this program says.
#[derive(serde::Deserialize)]
struct Schema {
    schema: String,
}

/// Reads a document that this program wrote: its schema first, as those of other commands and versions say other things.
///
/// # Errors
/// Input: the file cannot be read (`unread` says what could not be done), or is no such document (`none`, and `help` says what is).
pub fn read_document<T: DeserializeOwned>(
    file: &Path,
    schema: &str,
    [unread, none, help]: [&str; 3],
) -> Result<T> {
    let text = read_text(file, unread)?;
    let wrong = |what: String| Problem::input(what).at(file.display().to_string()).help(help);
    let broken = |error: serde_json::Error| wrong(format!("{none}: {}", json_words(&error)));
    let Schema { schema: found } = serde_json::from_str(&text).map_err(broken)?;
    if found != schema {
        return Err(wrong(format!("this is '{found}', and {schema} is read here")));
    }
    serde_json::from_str(&text).map_err(broken)
}

/// Reads every value of a flag; a value that cannot be read is reported with the flag's name.
pub fn each<T>(flag: &str, texts: &[String], read: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    texts.iter().map(|text| read(text).map_err(|problem| problem.at(flag))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_bytes_of_flags_are_written_as_everywhere() {
        let (count, bytes) = (amounts::<u32>(1..=100_000), bytes::<u32>(0..=u32::MAX.into()));
        assert_eq!((count("64"), count("50k"), count("64Ki")), (Ok(64), Ok(50_000), Ok(65_536)));
        assert_eq!((bytes("8kB"), bytes("1KiB"), bytes("1500")), (Ok(8000), Ok(1024), Ok(1500)));
        assert_eq!(count("1M"), Err("1000000 is not in 1..=100000".into()));
        assert_eq!(bytes("5G"), Err("5000000000 is not in 0..=4294967295".into()));
        assert!(count("x").unwrap_err().contains("50k = 50,000"));
    }

    #[test]
    fn a_text_begins_behind_its_byte_order_mark() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        for (written, read) in [("\u{feff}a\u{feff}", "a\u{feff}"), ("\u{feff}", ""), ("b", "b"), ("", "")] {
            std::fs::write(&file, written).unwrap();
            assert_eq!(read_text(&file, "cannot be read").unwrap(), read);
        }
    }
}

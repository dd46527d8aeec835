//! Small files of the kernel as facts; what cannot be read says why.

use std::fs;
use std::path::Path;

use record::facts::{Fact, Known};

/// The text of a file without white space around it.
///
/// # Errors
/// Why it cannot be read, with its path.
pub(super) fn text(path: &Path) -> Result<String, String> {
    let read = fs::read_to_string(path);
    read.map(|text| text.trim().to_owned()).map_err(|error| format!("{}: {}", shown(path), plain(&error)))
}

/// A path as people know it: roots of namespaces are opened files.
fn shown(path: &Path) -> String {
    let path = path.to_string_lossy();
    match path.strip_prefix("/proc/self/fd/").and_then(|rest| rest.split_once('/')) {
        Some((_, rest)) => format!("/sys/{rest}"),
        None => path.into_owned(),
    }
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        _ => error.to_string(),
    }
}

/// A number or a word.
pub(super) fn word(path: &Path) -> Fact {
    text(path).map_or_else(Fact::unknown, |text| Fact::word(&text))
}

/// A text, also where it looks like a number: masks and lists of CPUs.
pub(super) fn words(path: &Path) -> Fact {
    text(path).map_or_else(Fact::unknown, Fact::Text)
}

/// A counter.
pub(super) fn counter(path: &Path) -> Fact {
    match text(path).map(|text| text.parse::<u64>()) {
        Ok(Ok(value)) => count(value),
        Ok(Err(_)) => Fact::unknown(format!("{}: it is no number", shown(path))),
        Err(why) => Fact::unknown(why),
    }
}

/// One reading of a counter.
pub(super) fn count(value: u64) -> Fact {
    Fact::Counter { before: value, after: value }
}

/// The word in brackets: `always [madvise] never`.
pub(super) fn chosen(path: &Path) -> Fact {
    let choice = |text: String| {
        let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        inside.map_or(text.clone(), |(word, _)| word.to_owned())
    };
    text(path).map_or_else(Fact::unknown, |text| Fact::Text(choice(text)))
}

/// Names of a folder that begin so and go on with a number, in the order of those; with the number.
pub(super) fn numbered(folder: &Path, begin: &str) -> Vec<(u32, String)> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<(u32, String)> =
        names.filter_map(|name| Some((name.strip_prefix(begin)?.parse().ok()?, name))).collect();
    found.sort();
    found
}

/// The last part of where a link points.
pub(super) fn target(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Settings of the kernel (`net.core.rmem_max`) under the names of facts.
pub(super) fn settings(root: &Path, names: &[&str]) -> Known {
    let setting = |name: &&str| {
        let path = root.join("proc/sys").join(name.replace('.', "/"));
        let value = text(&path).map(|text| text.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
        (format!("sysctl {name}"), value.map_or_else(Fact::unknown, |text| Fact::word(&text)))
    };
    names.iter().map(setting).collect()
}

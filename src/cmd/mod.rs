//! One file per command: its flags, and the order of events when it runs.

use record::{Problem, Result};
use std::path::Path;

pub mod agent;
pub mod bench;
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

/// Reads a file of text, or standard input, which is `-`; `what` says what could not be done if it cannot be read.
pub fn read_text(path: impl AsRef<Path>, what: &str) -> Result<String> {
    let path = path.as_ref();
    let text = match path.as_os_str().as_encoded_bytes() {
        b"-" => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    text.map_err(|error| Problem::input(format!("{what}: {error}")).at(path.display().to_string()))
}

/// Reads every value of a flag; a value that cannot be read is reported with the flag's name.
pub fn each<T>(flag: &str, texts: &[String], read: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    texts.iter().map(|text| read(text).map_err(|problem| problem.at(flag))).collect()
}

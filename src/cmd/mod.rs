//! One file per command: its flags, and the order of events when it runs.

pub mod agent;
pub mod bench;
pub mod capture;
pub mod completions;
pub mod controller;
pub mod flow;
pub mod half;
pub mod join;
pub mod lab;
pub mod null;
pub mod report;
pub mod run;
pub mod runs;
pub mod send;
pub mod serve;
pub mod shims;
pub mod show;
pub mod stamps;
pub mod switch;
pub mod test;
pub mod timing;
pub mod tls;
pub mod undo;

/// Reads every value of a flag; a value that cannot be read is reported with the flag's name.
pub fn each<T>(
    flag: &str,
    texts: &[String],
    read: impl Fn(&str) -> record::Result<T>,
) -> record::Result<Vec<T>> {
    texts.iter().map(|text| read(text).map_err(|problem| problem.at(flag))).collect()
}

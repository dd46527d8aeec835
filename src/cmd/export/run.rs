//! `pathlab export RUN`: a finished run, under the names of the live counters.

use super::push::Collector;
use super::{ExportArgs, ExportCounts, told, written};
use crate::output::Output;
use record::{Problem, Result};
use std::time::Instant;
use study::export::Limits;
use study::export::run::{TestFamilies, of_run, together};

/// Writes the run, or pushes it once.
pub fn export(args: &ExportArgs, name: &str, collector: Option<&Collector>, output: &Output) -> Result<()> {
    let run = study::store::open(&args.dir, name)?;
    let tests = of_run(&run, Limits { sockets: args.sockets }, env!("CARGO_PKG_VERSION"));
    if tests.is_empty() {
        return Err(Problem::input("there is no test in this run").at(name));
    }
    match collector {
        Some(collector) => pushed(&tests, collector, output),
        None => {
            let ended_ns = tests.iter().map(|test| test.ended_ns).max().unwrap_or(0);
            written(&together(tests), ended_ns, output)
        }
    }
}

fn pushed(tests: &[TestFamilies], collector: &Collector, output: &Output) -> Result<()> {
    let (begun, counts) = (Instant::now(), ExportCounts::default());
    collector.push_run(tests, &counts)?;
    told(begun, &counts, output)
}

//! `pathlab join`: what two commands in two places wrote becomes one ledger.
//!
//! The order of events: read both halves, see that they belong together, close the ledger, keep it as the record of a run,
//! print it as a run is printed, and end with code 1 when frames are missing that nothing names, or more than were allowed.

use super::half;
use super::timing::ns;
use crate::output::{Notices, Output};
use clap::Args;
use record::half::{JoinEnd, JoinReport};
use record::unit::{count, many};
use record::{Problem, Result};
use std::path::PathBuf;
use study::criteria::MostLoss;
use study::store::RunWriter;
use study::table::facts;
use study::text::printable;

/// Flags of `pathlab join`.
#[derive(Args)]
pub struct JoinArgs {
    /// What 'pathlab send --record' wrote.
    sent: PathBuf,
    /// What 'pathlab capture --record' wrote.
    captured: PathBuf,
    /// Fail when more frames than this are missing, whether or not the cause is known: 25, 0, 0.1%.
    #[arg(long, value_name = "FRAMES")]
    max_loss: Option<MostLoss>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    dir: PathBuf,
}

/// Runs the command.
pub fn run(args: JoinArgs, output: &Output) -> Result<()> {
    let (sent, captured) = (half::read(&args.sent)?, half::read(&args.captured)?);
    let names = (args.sent.display().to_string(), args.captured.display().to_string());
    let mut report = study::join::join((&names.0, &sent), (&names.1, &captured), args.max_loss)?;
    let kept = keep(&mut report, &args);
    if kept.is_ok() {
        output.note(&format!("record: {}", report.record));
    }
    output.result(&report, |report| {
        format!("{}\n{}", heading(report), study::text::run(&report.run, output.colour))
    })?;
    kept?;
    if report.passed { Ok(()) } else { Err(Problem::measured(report.why)) }
}

/// Writes the record of the join into a directory of its own.
fn keep(report: &mut JoinReport, args: &JoinArgs) -> Result<()> {
    let mut header = report.run.clone();
    let (tests, findings) = (std::mem::take(&mut header.tests), std::mem::take(&mut header.findings));
    let mut writer = RunWriter::create(&args.dir, header)?;
    for test in tests {
        writer.add(test)?;
    }
    let directory = writer.directory().display().to_string();
    let (run, written) = writer.finish(findings, experiment::now(), vec![]);
    report.run = run;
    written?;
    report.record = directory;
    Ok(())
}

fn heading(report: &JoinReport) -> String {
    let end = |end: &JoinEnd| format!("{} at {}", end.port, end.node);
    let (numbering, sent) = (&report.numbering, many(report.sending.frames, "frame"));
    let received = report.run.tests.first().map(|test| test.received).unwrap_or_default();
    let captured = format!(
        "{} of them by {}; {} missing, {} duplicates, reordered {}",
        count(received.unique),
        end(&report.capturing),
        count(report.missing),
        count(received.duplicates),
        report.reordered.map_or("unknown".to_owned(), count)
    );
    let one_way = match &report.delay_ns {
        Some(delay) => {
            let (p50, p99, max) = (ns(delay.p50), ns(delay.p99), ns(delay.max));
            format!("p50 {p50}, p99 {p99}, max {max} over {}", many(delay.count, "frame"))
        }
        None => format!("delay unknown: {}", report.delay_unknown),
    };
    let (header, stream) = (&numbering.header, &numbering.stream);
    let sent = format!("{sent} of {header} {stream} through {}", end(&report.sending));
    printable(&facts(&[("sent", sent), ("captured", captured), ("one way", one_way)]))
}

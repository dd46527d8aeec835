//! `pathlab doctor`: what costs this host, a lab or a host elsewhere throughput, latency or frames.
//!
//! The order of events: take facts or read them from a file, apply the rules, say the suspects.

use super::facts::{WhereArgs, read, taken};
use crate::output::Output;
use clap::{Args, ValueEnum};
use record::unit::many;
use record::{Problem, Result};
use std::path::PathBuf;
use study::doctor::{Goal, RuleStatus, examine, text, word};

/// Flags of `pathlab doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// What the host is to be good at [default: throughput, latency and measurement].
    #[arg(long, value_name = "GOAL")]
    goal: Option<GoalWord>,
    /// Judge the facts in FILE, which 'pathlab facts -o' wrote, here or elsewhere.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["namespace", "lab", "target", "duration"])]
    facts: Option<PathBuf>,
    /// Facts of the other end, for rules that compare both.
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// List the rules without a finding, too.
    #[arg(long)]
    all: bool,
}

/// Words of goals.
#[derive(Clone, Copy, ValueEnum)]
pub enum GoalWord {
    /// Many bits per second.
    Throughput,
    /// Short times.
    Latency,
    /// Capture without loss.
    Capture,
    /// Frames handed on.
    Forwarding,
    /// Figures that can be believed.
    Measurement,
}

impl From<GoalWord> for Goal {
    fn from(word: GoalWord) -> Goal {
        match word {
            GoalWord::Throughput => Goal::Throughput,
            GoalWord::Latency => Goal::Latency,
            GoalWord::Capture => Goal::Capture,
            GoalWord::Forwarding => Goal::Forwarding,
            GoalWord::Measurement => Goal::Measurement,
        }
    }
}

/// Examines and reports; findings are the exit code 1.
pub fn run(args: DoctorArgs, output: &Output) -> Result<()> {
    let peer = args.peer.as_deref().map(read).transpose()?;
    let facts = match &args.facts {
        Some(file) => read(file)?,
        None => taken(&args.place, output)?,
    };
    let report = examine(&facts, peer.as_ref(), args.goal.map(Goal::from));
    output.result(&report, |report| text::report(report, args.all))?;
    match report.counts.get(word(RuleStatus::Finding)) {
        Some(findings) => Err(Problem::measured(many(*findings, "finding"))),
        None => Ok(()),
    }
}

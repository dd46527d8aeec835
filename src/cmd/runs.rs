//! `pathlab runs`: lists runs, and deletes those that are no longer needed.

use crate::output::{Output, object};
use clap::{Args, Subcommand};
use record::Result;
use std::path::PathBuf;
use study::store::Filter;

/// Flags of `pathlab runs`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    place: Place,
}

#[derive(Subcommand)]
enum RunsCommand {
    /// Delete runs permanently, without asking: all those named, or none if one cannot be identified.
    Delete {
        /// Names of runs, unambiguous beginnings of names, or `latest`.
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
}

/// Where runs are.
#[derive(Args)]
struct Place {
    /// The directory of runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    dir: PathBuf,
}

/// Which runs are listed: those that match every flag. Case does not matter.
#[derive(Args)]
struct Wanted {
    /// Only runs of plans with this text in their name.
    #[arg(long, value_name = "TEXT")]
    plan: Option<String>,
    /// Only runs with this text in their label.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Only runs with this text in their path: a way (`switch:xdp`), a topology (`bridge`).
    #[arg(long, value_name = "TEXT")]
    path: Option<String>,
    /// Only runs that began at this time or later, in UTC: 2026-11, 2026-11-22, 2026-11-22T14:30.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only runs that began at this time or earlier; 2026-11-22 includes that day.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only runs with this text anywhere: name, label, plan, path, names of tests.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
}

/// Lists the runs, or deletes some; a damaged one is listed with the reason and does not hide the others.
pub fn run(args: RunsArgs, output: &Output) -> Result<()> {
    if let Some(RunsCommand::Delete { runs, place }) = args.command {
        return delete(&runs, &place, output);
    }
    let Wanted { plan, label, path, since, until, text } = args.wanted;
    let filter = Filter { plan, label, path, since, until, text };
    filter.check()?;
    let mut runs = study::store::list(&args.place.dir)?;
    let total = runs.len();
    runs.retain(|run| filter.takes(run));
    let directory = args.place.dir.display().to_string();
    let document = object! { schema: "pathlab/runs/1", directory, total, runs };
    output.result(&document, |document| study::listing::list(&document.runs, total))
}

fn delete(runs: &[String], place: &Place, output: &Output) -> Result<()> {
    let deleted = study::store::delete(&place.dir, runs)?;
    let directory = place.dir.display().to_string();
    let document = object! { schema: "pathlab/runs-delete/1", directory, deleted };
    output.result(&document, |document| format!("deleted: {}", document.deleted.join(", ")))
}

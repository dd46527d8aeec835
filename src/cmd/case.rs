//! `pathlab case`: test cases, each with two arms and what is expected of the second; runs of them beside each other.

use super::between::BetweenArgs;
use super::new_file::NewFile;
use crate::output::Output;
use crate::progress::Screen;
use clap::{Args, Subcommand};
use experiment::case::carry::{self, CaseSetup};
use experiment::case::needs::NeedsLab;
use experiment::case::{self, Case};
use experiment::machines;
use linux::lab::Topology;
use record::case::{CaseAbout, CaseList, CaseVerdict, CasesRecord, LIST_SCHEMA, SCHEMA};
use record::{Problem, Result};
use std::path::{Path, PathBuf};
use study::case::{earlier, matrix};

/// Flags of `pathlab case`.
#[derive(Args)]
pub struct CaseArgs {
    #[command(subcommand)]
    command: CaseCommand,
}

#[derive(Subcommand)]
enum CaseCommand {
    /// List the cases: what their arms differ in, what is expected, whether they can be run here.
    List(ListArgs),
    /// Run cases: both arms in pairs, and whether the second is what was expected.
    Run(Box<RunArgs>),
    /// Put runs of cases beside each other, of several kernels, drivers or hosts, and name what became worse.
    Matrix(MatrixArgs),
}

#[derive(Args)]
struct ListArgs {
    /// Names of cases, or files that end with .case; all that are built in when none is given.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Args)]
struct RunArgs {
    /// Names of cases, files that end with .case, or 'all'.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    between: BetweenArgs,
    /// Measure between the virtual machines of this topology (FILE.lab or a built-in one), whose nodes have the names of the cases' (a and b): their cards, drivers and
    /// kernels (docs/topology.md).
    #[arg(long, value_name = "TOPOLOGY", conflicts_with = "to")]
    machines: Option<String>,
    /// With --to: allow settings that may take a link down for a moment.
    #[arg(long, requires = "to")]
    allow_link_flap: bool,
    /// Run each test for half a second.
    #[arg(long)]
    quick: bool,
    /// Measure at most so many pairs; what is clear earlier ends earlier.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(6..=1000))]
    pairs: u16,
    /// Where B has several settings and is a bug candidate, try each of them alone and name the one that makes the difference.
    #[arg(long)]
    bisect: bool,
    /// Take stamps of one in N messages in each layer of the path, and name the layer in which the slower arm is slower (docs/layers.md).
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "16",
        value_parser = super::amounts::<u32>(1..=1_000_000))]
    layers: Option<u32>,
    /// Compare each effect with the one of an earlier run, that -o or --json wrote.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Also write the result to a new file, for --against and 'pathlab case matrix'.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Words to find the run by (recorded).
    #[arg(long, value_name = "WORDS")]
    label: Option<String>,
    /// Seed of the order within the pairs (recorded).
    #[arg(long)]
    seed: Option<u64>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    dir: PathBuf,
}

#[derive(Args)]
struct MatrixArgs {
    /// What 'pathlab case run' wrote; the others are compared with the first.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: CaseArgs, output: &Output) -> Result<()> {
    match args.command {
        CaseCommand::List(args) => list(&args, output),
        CaseCommand::Run(args) => run_cases(&args, output),
        CaseCommand::Matrix(args) => beside(&args, output),
    }
}

fn list(args: &ListArgs, output: &Output) -> Result<()> {
    let cases = case::select(&args.names)?;
    linux::lab::enter_user_namespace()?;
    let place = NeedsLab::build()?;
    let about = |case: &Case| -> Result<CaseAbout> { Ok(case.about(place.lacking(&case.needs)?)) };
    let all: Result<Vec<CaseAbout>> = cases.iter().map(about).collect();
    place.leave(output);
    let list = CaseList { schema: LIST_SCHEMA.into(), cases: all? };
    output.result(&list, study::case::list)
}

fn run_cases(args: &RunArgs, output: &Output) -> Result<()> {
    let mut cases = case::select(&args.names)?;
    if args.quick {
        cases.iter_mut().for_each(Case::quick);
    }
    cases.iter_mut().flat_map(|case| &mut case.plans).try_for_each(|plan| plan.stamp_layers(args.layers))?;
    if args.between.to.is_none() {
        over_machines(args.machines.as_deref(), &cases)?;
    }
    let against = args.against.as_deref().map(read).transpose()?;
    let file = args.output.as_deref().map(NewFile::create).transpose()?;
    if args.between.to.is_none() {
        linux::lab::enter_user_namespace()?;
    }
    experiment::interruptible()?;
    let screen = Screen::new(output);
    let setup = CaseSetup {
        pairs: args.pairs.into(),
        seed: args.seed.unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000),
        bisect: args.bisect,
        to: args.between.to.as_deref(),
        reverse: args.between.reverse,
        via: &args.between.via,
        may_flap: args.allow_link_flap,
        label: args.label.as_deref(),
        dir: &args.dir,
        notices: &screen,
    };
    let (mut record, stopped) = carry::run(&cases, &setup)?;
    if let Some(then) = &against {
        earlier::compare_all(&mut record, then);
    }
    let text = serde_json::to_vec_pretty(&record)
        .map_err(|error| Problem::host(format!("cannot write JSON: {error}")))?;
    let written = file.map_or(Ok(()), |file| file.finish(&text));
    output.result(&record, study::case::run)?;
    written?;
    stopped.map_or(Ok(()), Err)?;
    judged(&record, args.between.to.is_some())
}

/// Carries this command out in virtual machines: those that were asked for, or those of the cases' own topology; returns only where there are none.
fn over_machines(asked: Option<&str>, cases: &[Case]) -> Result<()> {
    let plan = &cases[0].plans[0];
    let topology = match asked {
        Some(name) => Topology::load(name)?,
        None => {
            let names = cases.iter().flat_map(|case| case.plans.iter().map(move |plan| (case, plan)));
            let topologies = names.map(|(case, plan)| Ok((case, Topology::load(&plan.topology)?)));
            let topologies = topologies.collect::<Result<Vec<_>>>()?;
            let Some((first, of_machines)) = topologies.iter().find(|(_, one)| one.has_machines()) else {
                return Ok(());
            };
            if let Some((other, _)) = topologies.iter().find(|(_, one)| one != of_machines) {
                let what =
                    format!("{} has virtual machines, and {} another topology", first.name, other.name);
                return Err(Problem::input(what).help("run them one after the other"));
            }
            of_machines.clone()
        }
    };
    if !topology.has_machines() {
        return Err(Problem::input(format!(
            "the topology {} has no virtual machines",
            asked.unwrap_or_default()
        ))
        .at("--machines")
        .help("nodes of it are 'vm NAME …': see docs/topology.md"));
    }
    // The links are the machines' own.
    let words = machines::without_flag(&super::own_words(), "--machines");
    super::in_machines(&topology, plan, &machines::with_flags(&words, &["--allow-link-flap".into()]))
}

fn beside(args: &MatrixArgs, output: &Output) -> Result<()> {
    let read = |file: &PathBuf| Ok((file.display().to_string(), read(file)?));
    let runs = args.files.iter().map(read).collect::<Result<Vec<_>>>()?;
    let table = matrix::matrix(&runs);
    output.result(&table, matrix::text)?;
    matrix::regressions(&table).map_or(Ok(()), |sentence| Err(Problem::measured(sentence)))
}

/// A run of cases that was written down.
fn read(file: &Path) -> Result<CasesRecord> {
    let help = "give what 'pathlab case run -o FILE' or '--json' wrote";
    super::read_document(file, SCHEMA, ["the earlier run cannot be read", "this is no run of cases", help])
}

/// A bug candidate or a regression is what the command failed for; that no case could be run is what this host cannot.
fn judged(record: &CasesRecord, is_between: bool) -> Result<()> {
    let changes =
        record.cases.iter().filter_map(|case| Some((case.about.name.as_str(), case.earlier.as_ref()?)));
    let wrong = [study::case::candidates(record), earlier::regressions(changes)];
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    if !wrong.is_empty() {
        return Err(Problem::measured(wrong.join("; ")));
    }
    match record.cases.iter().all(|case| case.verdict == CaseVerdict::CannotRun) {
        true => {
            let help = if is_between { "each says why" } else { "'pathlab case list' says what each lacks" };
            Err(Problem::host("no case could be run here").help(help))
        }
        false => Ok(()),
    }
}

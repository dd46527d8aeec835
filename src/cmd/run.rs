//! `pathlab run`: build the path, drive it, close the ledger, say what limited it, keep the record.

use crate::output::Output;
use crate::plan::{self, Plan};
use crate::run::ways::Offload;
use crate::run::{About, Place, Session, keep, progress::Progress};
use clap::Args;
use linux::lab::{Lab, Lifetime, Topology};
use record::unit::many;
use record::{Finding, Kind, Problem, ProblemKind, Rate, Result};
use std::path::{Path, PathBuf};
use study::criteria::{self, Criteria, MostLatency, MostLoss};
use study::store::RunWriter;

/// Flags of `pathlab run`.
#[derive(Args)]
pub struct RunArgs {
    /// The plan to follow; without one, the default plan (six tests through a kernel bridge).
    plan: Option<PathBuf>,
    /// Half a second for each test: under 20 seconds for the default plan.
    #[arg(long)]
    quick: bool,
    /// Only the tests of these kinds: tcp-stream, udp-stream, tcp-rr, udp-rr, ping, frames.
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = super::test::kinds(), hide_possible_values = true)]
    only: Vec<Kind>,
    /// Compare ways between the two hosts in turn, instead of the plan's topology: direct, bridge, null, switch, ovs; null
    /// and switch also with a kind of ports (switch:xdp).
    #[arg(long, value_name = "WAY,…", value_delimiter = ',', conflicts_with = "lab")]
    path: Vec<String>,
    /// Switch all offloads of the two hosts' interfaces on or off, as `offload` in a topology does; with both, every way is
    /// measured with either. Left as the kernel gives them if not said.
    #[arg(long, value_name = "STATE", requires = "path")]
    offload: Option<Offload>,
    /// Use a lab that is already up, as found, whatever somebody changed inside it.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Repeat every test so often instead of what the plan says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Seed of the random order (printed and recorded with every run).
    #[arg(long)]
    seed: Option<u64>,
    /// End with code 1 when more messages of a test are missing: 25, 0, 0.1%. For every test that can lose some, instead of
    /// what the plan says.
    #[arg(long, value_name = "LOSS")]
    max_loss: Option<MostLoss>,
    /// End with code 1 when less arrives: messages (20kpps; all but tcp-stream) or payload bits (100mbit; streams and frames).
    #[arg(long, value_name = "RATE")]
    min_rate: Option<Rate>,
    /// End with code 1 when the 99th percentile of the latency is longer: 200us, 1.5ms (all but tcp-stream).
    #[arg(long, value_name = "TIME")]
    max_p99: Option<MostLatency>,
    /// What 'pathlab runs' shall call it.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    dir: PathBuf,
}

/// Runs the command.
pub fn run(args: RunArgs, output: &Output) -> Result<()> {
    let (plan, about) = read_plan(&args)?;
    let seed = args.seed.or(plan.seed).unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000);
    if !args.path.is_empty() {
        let ways = crate::run::ways::choose(&args.path, args.offload)?;
        return crate::run::ways::run(ways, &plan, &about, seed, &args.dir, output);
    }
    let lab = take_lab(&args, &plan)?;
    let measured = measure(&lab, &plan, (&about, seed), &args.dir, output);
    if args.lab.is_none() {
        output.warn(lab.down());
    }
    measured
}

/// Carries the plan out in the lab, and tells what came of it, however it ended.
fn measure(lab: &Lab, plan: &Plan, (about, seed): (&About, u64), dir: &Path, output: &Output) -> Result<()> {
    let mut session = Session::begin(lab, plan)?;
    let mut writer = RunWriter::create(dir, session.header(about, seed))?;
    let order = plan.schedule(seed);
    let Driven { not_made, stopped } = drive(&mut session, &mut writer, plan, &order, output);

    let failed = not_made.len();
    let mut findings = not_made;
    findings.extend(session.take_told());
    findings.extend(study::findings::findings(writer.record()));
    let directory = writer.directory().to_owned();
    let early = stopped.iter().map(|problem| format!("the run ended early: {problem}")).collect();
    let (record, written) = writer.finish(findings, session.now(), early);
    if written.is_ok() && stopped.is_none() {
        output.note(&format!("record: {}", directory.display()));
    }
    if stopped.is_none() || !record.tests.is_empty() {
        output.result(&record, |record| study::text::run(record, output.colour))?;
    }
    match (stopped, written) {
        (Some(problem), Ok(())) => {
            let tests = record.tests.len();
            let are = if tests == 1 { "is" } else { "are" };
            let kept = format!(
                "{} that ended before this {are} kept in {}",
                many(tests as u64, "test"),
                directory.display()
            );
            Err(also(problem, &kept))
        }
        (Some(problem), Err(unwritten)) => {
            output.problem(&unwritten);
            Err(problem)
        }
        (None, Err(unwritten)) => Err(unwritten),
        (None, Ok(())) => criteria::verdict(&criteria::failed(&record), failed, order.len()),
    }
}

/// What became of the tests that have no result.
struct Driven {
    /// Those that could not be made; the others went on.
    not_made: Vec<Finding>,
    /// What ended the run before its last test.
    stopped: Option<Problem>,
}

/// Measures one test after the other. A record that cannot be written does not end the run.
fn drive(
    session: &mut Session<'_>,
    writer: &mut RunWriter,
    plan: &Plan,
    order: &[(usize, u32)],
    output: &Output,
) -> Driven {
    let total = order.iter().map(|&(test, _)| load::length_ms(&plan.tests[test].spec)).sum();
    let mut progress = Progress::new(output, total);
    let mut not_made = vec![];
    for (order_of, &(test, repetition)) in order.iter().enumerate() {
        let planned = &plan.tests[test];
        progress.test(&planned.name, repetition, order_of + 1, order.len());
        let place =
            Place { repetition, order: order_of as u32 + 1, place: test as u32 + 1, begun: session.now() };
        match session.measure(planned, place) {
            Ok(test) => keep(writer, test, output),
            Err(problem) if problem.kind == ProblemKind::Measured => {
                not_made.push(study::findings::not_made(&planned.name, repetition, &problem));
            }
            Err(problem) => return Driven { not_made, stopped: Some(problem) },
        }
        progress.done(load::length_ms(&planned.spec));
    }
    Driven { not_made, stopped: None }
}

/// The problem with one more thing to know.
fn also(problem: Problem, word: &str) -> Problem {
    let advice = if problem.advice.is_empty() { word.into() } else { format!("{}; {word}", problem.advice) };
    problem.help(advice)
}

/// The plan with the flags applied, and what the record says of it.
fn read_plan(args: &RunArgs) -> Result<(Plan, About)> {
    let (text, name) = match &args.plan {
        None => (plan::DEFAULT.to_owned(), "default".to_owned()),
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|e| {
                Problem::input(format!("cannot read the plan: {e}"))
                    .at(&name)
                    .help("give the path of a .plan file")
            })?;
            (text, name)
        }
    };
    let mut plan = Plan::parse(&text, &name)?;
    plan.only(&args.only)?;
    plan.hold_to(Criteria { max_loss: args.max_loss, min_rate: args.min_rate, max_p99: args.max_p99 })?;
    if args.quick {
        plan.quick();
    }
    if let Some(repetitions) = args.repetitions {
        plan.repetitions = repetitions;
    }
    let topology = args.lab.as_ref().map_or(plan.topology.clone(), |lab| format!("lab {lab}"));
    Ok((plan, About { label: args.label.clone(), plan: name, topology, text }))
}

/// The lab that somebody built, or one of our own that ends with this process.
fn take_lab(args: &RunArgs, plan: &Plan) -> Result<Lab> {
    match &args.lab {
        Some(name) => {
            linux::lab::join_user_namespace(name)?;
            crate::interruptible()?;
            Lab::claim(name)
        }
        None => {
            linux::lab::enter_user_namespace()?;
            crate::interruptible()?;
            let name = format!("run-{}", std::process::id());
            crate::tenants::up(&Topology::load(&plan.topology)?, &name, Lifetime::Ephemeral)
        }
    }
}

//! `pathlab run`: build the path, drive it, close the ledger, say what limited it, keep the record.

use crate::output::Output;
use crate::plan::{self, Plan};
use crate::run::ways::Offload;
use crate::run::{About, Place, Session, progress::Progress};
use clap::Args;
use linux::lab::{Lab, Lifetime, Topology};
use record::{Kind, Problem, ProblemKind, Rate, Result};
use std::path::PathBuf;
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
    let mut session = Session::begin(&lab, &plan)?;
    let mut writer = RunWriter::create(&args.dir, session.header(&about, seed))?;

    let order = plan.schedule(seed);
    let mut progress =
        Progress::new(output, order.iter().map(|&(test, _)| load::length_ms(&plan.tests[test].spec)).sum());
    let mut not_made = vec![];
    for (order_of, &(test, repetition)) in order.iter().enumerate() {
        let planned = &plan.tests[test];
        progress.test(&planned.name, repetition, order_of + 1, order.len());
        let place =
            Place { repetition, order: order_of as u32 + 1, place: test as u32 + 1, begun: session.now() };
        match session.measure(planned, place) {
            Ok(test) => writer.add(test)?,
            Err(problem) if problem.kind == ProblemKind::Measured => {
                not_made.push(study::findings::not_made(&planned.name, repetition, &problem));
            }
            Err(problem) => return Err(interrupted_run(writer, session.now(), problem)),
        }
        progress.done(load::length_ms(&planned.spec));
    }
    drop(progress);

    let failed = not_made.len();
    let mut findings = not_made;
    findings.extend(session.take_told());
    findings.extend(study::findings::findings(writer.record()));
    let directory = writer.directory().to_owned();
    let record = writer.finish(findings, session.now(), vec![])?;
    if args.lab.is_none() {
        lab.down()?;
    }
    output.note(&format!("record: {}", directory.display()));
    output.result(&record, |record| study::text::run(record, output.colour))?;
    criteria::verdict(&criteria::failed(&record), failed, order.len())
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
            Lab::open(name)
        }
        None => {
            linux::lab::enter_user_namespace()?;
            crate::interruptible()?;
            let name = format!("run-{}", std::process::id());
            crate::tenants::up(&Topology::load(&plan.topology)?, &name, Lifetime::Ephemeral)
        }
    }
}

/// Closes the record of a run that could not go on, and says what was kept.
fn interrupted_run(writer: RunWriter, now: String, problem: Problem) -> Problem {
    let findings = study::findings::findings(writer.record());
    let kept = format!(
        "{} that ended before this {} kept in {}",
        record::unit::many(writer.record().tests.len() as u64, "test"),
        if writer.record().tests.len() == 1 { "is" } else { "are" },
        writer.directory().display()
    );
    // What was kept so far stays kept, whether or not the reason can be written beside it.
    let _ = writer.finish(findings, now, vec![format!("the run ended early: {problem}")]);
    let advice = if problem.advice.is_empty() { kept } else { format!("{}; {kept}", problem.advice) };
    problem.help(advice)
}

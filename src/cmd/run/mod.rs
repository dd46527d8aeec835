//! `pathlab run`: build the path, drive it, close the ledger, say what limited it, keep the record.

mod ways;

use super::between::BetweenArgs;
use super::read_text;
use crate::output::{Notices, Output};
use crate::progress::Screen;
use clap::Args;
use experiment::change::{self, Settings};
use experiment::course::{self, Chosen};
use experiment::hosts::HostPair;
use experiment::plan::{self, Extra, Plan};
use experiment::session::{self, Closed, Course};
use experiment::testbed::UnderTest;
use linux::lab::{Lab, Lifetime, Topology};
use record::unit::many;
use record::{PathVariant, Problem, Rate, Result, RunRecord, TrafficKind};
use std::path::{Path, PathBuf};
use study::criteria::{self, Criteria, MostLatency, MostLoss};

/// Flags of `pathlab run`.
#[derive(Args)]
pub struct RunArgs {
    /// The plan to follow, '-' from standard input; without one, the default plan (six tests through a kernel bridge).
    plan: Option<PathBuf>,
    /// Run each test for half a second: under 20 seconds for the default plan.
    #[arg(long)]
    quick: bool,
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = super::test::kinds(), hide_possible_values = true,
        help = format!("Only the tests of these kinds: {}", TrafficKind::names_where(|_| true, "and")))]
    only: Vec<TrafficKind>,
    /// Compare several ways between the two hosts, interleaved, instead of the plan's topology: direct, bridge, null, switch, ovs; null
    /// and switch also with a kind of ports (switch:xdp).
    #[arg(long, value_name = "WAY,…", value_delimiter = ',', conflicts_with_all = ["lab", "to"])]
    path: Vec<String>,
    /// Switch all offloads of the two hosts' interfaces on or off, as `offload` in a topology does; with both, every way is
    /// measured with each [default: as the kernel sets them].
    #[arg(long, value_name = "STATE", requires = "path", conflicts_with_all = ["lab", "to"],
        value_parser = ["on", "off", "both"])]
    offload: Option<String>,
    /// Use a lab that is already up, exactly as it is, even if it was changed.
    #[arg(long, value_name = "NAME", conflicts_with = "to")]
    lab: Option<String>,
    #[command(flatten)]
    between: BetweenArgs,
    /// Repeat every test N times, overriding the plan.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Seed of the random order (printed and recorded with every run).
    #[arg(long)]
    seed: Option<u64>,
    /// End with code 1 when a test loses more messages than this: 25, 0, 0.1%. Applies to every test that can lose messages,
    /// overriding the plan.
    #[arg(long, value_name = "LOSS")]
    max_loss: Option<MostLoss>,
    /// End with code 1 when less arrives: messages (20kpps; all but tcp-stream) or payload bits (100mbit; streams and frames).
    #[arg(long, value_name = "RATE")]
    min_rate: Option<Rate>,
    /// End with code 1 when the 99th percentile of the latency is longer: 200us, 1.5ms (all but tcp-stream).
    #[arg(long, value_name = "TIME")]
    max_p99: Option<MostLatency>,
    /// End with code 1 when a figure is suspect or invalid (docs/validity.md).
    #[arg(long)]
    require_valid: bool,
    /// Look at every CPU HZ times a second during each test, and see who waited for one and who ran meanwhile: a profile by function, as
    /// a flame graph in the report.
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true, default_missing_value = "997",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    profile: Option<u32>,
    /// Write the frames of each test that the kernel drops to a capture file beside the record, each with why it died (docs/drops.md).
    #[arg(long)]
    drops: bool,
    /// Take facts of all nodes in the middle of each test, in its first repetition, and say what the doctor finds in them (docs/doctor.md).
    #[arg(long)]
    doctor: bool,
    /// Take stamps of one in N messages in each layer of the path during each test, and split their latency by layer.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "16",
        value_parser = super::amounts::<u32>(1..=1_000_000))]
    layers: Option<u32>,
    /// The name that 'pathlab runs' shows.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    dir: PathBuf,
}

/// What is set on all offloads of the two hosts' interfaces, for each time that a way is measured.
fn offload_states(choice: Option<&str>) -> &'static [Option<&'static str>] {
    match choice {
        None => &[None],
        Some("on") => &[Some("on")],
        Some("off") => &[Some("off")],
        Some(_) => &[Some("on"), Some("off")],
    }
}

/// Runs the command.
pub fn run(args: RunArgs, output: &Output) -> Result<()> {
    let (plan, about) = read_plan(&args)?;
    plan.extra.profile_hz.map_or(Ok(()), linux::observe::check_profile)?;
    plan.extra.layers_every.map_or(Ok(()), |_| linux::observe::check_layers())?;
    check_drops(args.drops)?;
    if let Some(host) = &args.between.to {
        let pair = args.between.pair(host, &plan.tests[0].spec)?;
        return between(&pair, plan, &about, &args.dir, output);
    }
    if args.lab.is_none() && args.path.is_empty() {
        super::machines(&Topology::load(&plan.topology)?, &plan)?;
    }
    let offloads = offload_states(args.offload.as_deref());
    let chosen = course::choose(&args.path, offloads, &experiment::now())?;
    let lab = match &args.lab {
        Some(name) => claim(name)?,
        None => {
            linux::lab::enter_user_namespace()?;
            experiment::interruptible()?;
            if !chosen.is_empty() {
                return over_ways(chosen, &plan, &about, &args.dir, output);
            }
            let name = format!("run-{}", std::process::id());
            experiment::programs::up(&Topology::load(&plan.topology)?, &name, Lifetime::Ephemeral)?
        }
    };
    let measured = change::during(&[(&lab, &plan.settings)], || {
        on(UnderTest::Lab(&lab), &plan, &about, &args.dir, output)
    });
    if args.lab.is_none() {
        experiment::down(lab, output);
    }
    measured
}

/// Dying frames can be watched here, if that is wanted.
fn check_drops(wanted: bool) -> Result<()> {
    let checked = if wanted { experiment::drops::check() } else { Ok(()) };
    checked.map_err(|problem| {
        problem.at("--drops").help("run as root on the host (CAP_BPF and CAP_PERFMON), or without --drops")
    })
}

/// Carries out the plan between this host and that one.
fn between(pair: &HostPair, mut plan: Plan, about: &RunRecord, dir: &Path, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    plan.use_family(pair.family());
    change::during(&[(pair, &plan.settings)], || on(UnderTest::Hosts(pair), &plan, about, dir, output))
}

/// Carries out the plan and prints the result, however it ended.
fn on(target: UnderTest<'_>, plan: &Plan, about: &RunRecord, dir: &Path, output: &Output) -> Result<()> {
    let course = Course::on(target.testbed(plan)?, plan, about, None, dir)?;
    let (closed, stopped) = session::carry_out(vec![course], plan, about.seed, &Screen::new(output));
    for Closed { run, directory, kept, not_made } in closed {
        if kept.is_ok() && stopped.is_none() {
            output.note(&format!("record: {}", directory.display()));
        }
        if stopped.is_none() || !run.tests.is_empty() {
            output.result(&run, |run| study::text::run(run, output.colour))?;
        }
        match (&stopped, kept) {
            (Some(problem), Ok(())) => return Err(also_kept(problem.clone(), run.tests.len(), &directory)),
            (Some(_), Err(unwritten)) => output.problem(&unwritten),
            (None, Err(unwritten)) => return Err(unwritten),
            (None, Ok(())) => {
                let tests = plan.schedule(about.seed).len();
                return criteria::verdict(&criteria::failed(&run), not_made, tests);
            }
        }
    }
    stopped.map_or(Ok(()), Err)
}

/// Measures the plan over every way, and compares them.
fn over_ways(ways: Vec<Chosen>, plan: &Plan, about: &RunRecord, dir: &Path, output: &Output) -> Result<()> {
    let ways = course::build(ways)?;
    let built: Vec<Settings<'_>> =
        ways.iter().filter_map(|(_, lab)| Some((lab.as_ref().ok()? as _, &plan.settings[..]))).collect();
    let told = change::during(&built, || in_turn(&ways, plan, about, dir, output));
    ways.into_iter().filter_map(|(_, lab)| lab.ok()).for_each(|lab| experiment::down(lab, output));
    told
}

/// Measures the plan over ways whose labs are there.
fn in_turn(
    ways: &[(PathVariant, Result<Lab>)],
    plan: &Plan,
    about: &RunRecord,
    dir: &Path,
    output: &Output,
) -> Result<()> {
    let mut courses = vec![];
    for (way, lab) in ways.iter().filter_map(|(way, lab)| Some((way, lab.as_ref().ok()?))) {
        courses.push(Course::begin(lab, plan, about, Some(way.clone()), dir)?);
    }
    if let ([], Some((_, Err(absent)))) = (courses.as_slice(), ways.first()) {
        return Err(absent.clone());
    }
    let (closed, stopped) = session::carry_out(courses, plan, about.seed, &Screen::new(output));
    ways::tell(ways, &closed, about.seed, stopped.is_none(), output)?;
    let mut unwritten = closed.iter().filter_map(|closed| closed.kept.as_ref().err());
    if let Some(problem) = stopped {
        unwritten.for_each(|problem| output.problem(problem));
        return Err(problem);
    }
    unwritten.next().map_or(Ok(()), |problem| Err(problem.clone()))?;
    let missed: Vec<String> = ways::runs(&closed).flat_map(missed).collect();
    let failed = closed.iter().map(|closed| closed.not_made).sum();
    criteria::verdict(&missed, failed, plan.schedule(about.seed).len() * closed.len())
}

/// The criteria that were missed over a way, as sentences.
fn missed((way, run): (&PathVariant, &RunRecord)) -> Vec<String> {
    let failed = criteria::failed(run).into_iter();
    failed.map(|sentence| format!("over {}, {sentence}", ways::title(way))).collect()
}

/// What ended a run, and where its tests are that had ended before.
fn also_kept(problem: Problem, tests: usize, directory: &Path) -> Problem {
    let are = if tests == 1 { "is" } else { "are" };
    let tests = many(tests as u64, "test");
    let kept = format!("{tests} that ended before this {are} kept in {}", directory.display());
    let advice = if problem.advice.is_empty() { kept } else { format!("{}; {kept}", problem.advice) };
    problem.help(advice)
}

/// The plan with the flags applied, and what the record says of it.
fn read_plan(args: &RunArgs) -> Result<(Plan, RunRecord)> {
    let (text, name) = match &args.plan {
        None => (plan::DEFAULT.to_owned(), "default".to_owned()),
        Some(path) => {
            let text = read_text(path, "cannot read the plan");
            (
                text.map_err(|problem| problem.help("give the path of a .plan file"))?,
                path.display().to_string(),
            )
        }
    };
    let mut plan = Plan::parse(&text, &name)?;
    plan.only(&args.only)?;
    let (max_loss, min_rate, max_p99) = (args.max_loss, args.min_rate, args.max_p99);
    plan.hold_to(Criteria { max_loss, min_rate, max_p99, require_valid: args.require_valid })?;
    if args.quick {
        plan.quick();
    }
    plan.repetitions = args.repetitions.unwrap_or(plan.repetitions);
    let (profile_hz, layers_every) = (args.profile, args.layers);
    plan.extra = Extra { profile_hz, layers_every, dead_frames: args.drops, facts: args.doctor };
    let about = RunRecord {
        label: args.label.clone(),
        plan_name: name,
        topology_name: match (&args.lab, &args.between.to) {
            (Some(lab), _) => format!("lab {lab}"),
            (None, Some(host)) if args.between.reverse => format!("from {host}"),
            (None, Some(host)) => format!("to {host}"),
            (None, None) => plan.topology.clone(),
        },
        plan: text,
        seed: args.seed.or(plan.seed).unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000),
        ..RunRecord::default()
    };
    Ok((plan, about))
}

/// The lab that was built with 'lab up'.
pub fn claim(name: &str) -> Result<Lab> {
    let journals = linux::undo::open()?;
    linux::lab::join_user_namespace(&journals, name)?;
    experiment::interruptible()?;
    Lab::claim(&journals, name)
}

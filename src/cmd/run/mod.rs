//! `pathlab run`: build the path, drive it, close the ledger, say what limited it, keep the record.

mod ways;

use crate::output::Output;
use crate::progress::Screen;
use clap::Args;
use experiment::course::{self, Built, Chosen};
use experiment::plan::{self, Plan};
use experiment::session::{self, About, Closed, Course};
use linux::lab::{Lab, Lifetime, Topology};
use record::unit::many;
use record::{PathVariant, Problem, Rate, Result, RunRecord, TrafficKind};
use std::path::{Path, PathBuf};
use study::criteria::{self, Criteria, MostLatency, MostLoss};
use ways::Compared;

/// Flags of `pathlab run`.
#[derive(Args)]
pub struct RunArgs {
    /// The plan to follow; without one, the default plan (six tests through a kernel bridge).
    plan: Option<PathBuf>,
    /// Run each test for half a second: under 20 seconds for the default plan.
    #[arg(long)]
    quick: bool,
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = super::test::kinds(), hide_possible_values = true,
        help = format!("Only the tests of these kinds: {}", TrafficKind::names_where(|_| true, "and")))]
    only: Vec<TrafficKind>,
    /// Compare several ways between the two hosts, interleaved, instead of the plan's topology: direct, bridge, null, switch, ovs; null
    /// and switch also with a kind of ports (switch:xdp).
    #[arg(long, value_name = "WAY,…", value_delimiter = ',', conflicts_with = "lab")]
    path: Vec<String>,
    /// Switch all offloads of the two hosts' interfaces on or off, as `offload` in a topology does; with both, every way is
    /// measured with each [default: as the kernel sets them].
    #[arg(long, value_name = "STATE", requires = "path", value_parser = ["on", "off", "both"])]
    offload: Option<String>,
    /// Use a lab that is already up, exactly as it is, even if it was changed.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
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
    let seed = args.seed.or(plan.seed).unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000);
    if !args.path.is_empty() {
        let chosen = course::choose(&args.path, offload_states(args.offload.as_deref()))?;
        return over_ways(&chosen, &plan, (&about, seed), &args.dir, output);
    }
    let lab = take_lab(&args, &plan)?;
    let measured = in_lab(&lab, &plan, (&about, seed), &args.dir, output);
    if args.lab.is_none() {
        output.warn(lab.down());
    }
    measured
}

/// Carries out the plan in the lab and prints the result, however it ended.
fn in_lab(lab: &Lab, plan: &Plan, asked: (&About, u64), dir: &Path, output: &Output) -> Result<()> {
    let course = Course::begin(lab, plan, asked, None, dir)?;
    let (closed, stopped) = session::carry_out(vec![course], plan, asked.1, &Screen::new(output));
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
                let tests = plan.schedule(asked.1).len();
                return criteria::verdict(&criteria::failed(&run), not_made, tests);
            }
        }
    }
    stopped.map_or(Ok(()), Err)
}

/// Measures the plan over every way, and compares them.
fn over_ways(
    chosen: &[Chosen],
    plan: &Plan,
    (about, seed): (&About, u64),
    dir: &Path,
    output: &Output,
) -> Result<()> {
    linux::lab::enter_user_namespace()?;
    experiment::interruptible()?;
    let Built { labs, mut absent } = course::build(chosen)?;
    if labs.is_empty() && !absent.is_empty() {
        return Err(absent.swap_remove(0).1);
    }
    let group = experiment::now();
    let mut courses = vec![];
    for (chosen, lab) in &labs {
        let way = PathVariant {
            name: chosen.way.clone(),
            group: group.clone(),
            offload: chosen.offload.map(Into::into),
        };
        courses.push(Course::begin(lab, plan, (about, seed), Some(way), dir)?);
    }
    let (closed, stopped) = session::carry_out(courses, plan, seed, &Screen::new(output));
    let (mut runs, mut failed, mut written, mut unwritten) = (vec![], 0, vec![], vec![]);
    for ((chosen, _), Closed { run, kept, not_made, .. }) in labs.iter().zip(closed) {
        failed += not_made;
        match kept {
            Ok(()) => written.push(run.id.clone()),
            Err(problem) => unwritten.push(problem),
        }
        runs.push((*chosen, run));
    }
    if !written.is_empty() {
        output.note(&format!("records: {}", written.join(" ")));
    }
    let told = match stopped.is_none() || runs.iter().any(|(_, run)| !run.tests.is_empty()) {
        true => {
            let compared = Compared { ways: chosen, runs: &runs, absent: &absent, group, seed };
            compared.tell(unwritten.is_empty(), output)
        }
        false => Ok(()),
    };
    labs.into_iter().for_each(|(_, lab)| output.warn(lab.down()));
    told?;
    if let Some(problem) = stopped {
        unwritten.iter().for_each(|problem| output.problem(problem));
        return Err(problem);
    }
    unwritten.into_iter().next().map_or(Ok(()), Err)?;
    let missed: Vec<String> = runs.iter().flat_map(|(chosen, run)| missed_over(chosen, run)).collect();
    criteria::verdict(&missed, failed, plan.schedule(seed).len() * runs.len())
}

/// The criteria that were missed over a way, as sentences.
fn missed_over(chosen: &Chosen, run: &RunRecord) -> Vec<String> {
    let failed = criteria::failed(run).into_iter();
    failed.map(|sentence| format!("over {}, {sentence}", chosen.title())).collect()
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

/// The lab that was built with 'lab up', or one of our own that ends with this process.
fn take_lab(args: &RunArgs, plan: &Plan) -> Result<Lab> {
    match &args.lab {
        Some(name) => {
            let door = linux::undo::open()?;
            linux::lab::join_user_namespace(&door, name)?;
            experiment::interruptible()?;
            Lab::claim(&door, name)
        }
        None => {
            linux::lab::enter_user_namespace()?;
            experiment::interruptible()?;
            let name = format!("run-{}", std::process::id());
            experiment::programs::up(&Topology::load(&plan.topology)?, &name, Lifetime::Ephemeral)
        }
    }
}

//! `pathlab compare`: which of two paths, topologies or plans is better, shown by pairs.

use super::between::BetweenArgs;
use crate::output::{Notices, Output};
use crate::progress::Screen;
use clap::Args;
use experiment::change::{self, Settings};
use experiment::plan::{self, Plan};
use experiment::session::Course;
use experiment::side::{self, Described};
use experiment::testbed::UnderTest;
use experiment::trial::{self, Arm, ArmSettings, TrialEnd, TrialSetup};
use linux::lab::{Lab, Lifetime};
use record::trial::TrialRecord;
use record::{Problem, Result, RunRecord, TrafficKind};
use std::path::PathBuf;
use study::trial::StoppingRule;
use study::trial::figures::{self, FIGURES, Figure};

/// Flags of `pathlab compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// What is compared with: a way (direct, bridge, null, switch, ovs, switch:xdp, …), a topology (FILE.lab or a built-in one), or a plan
    /// (FILE.plan).
    a: String,
    /// What is tried.
    b: String,
    #[command(flatten)]
    between: BetweenArgs,
    /// End with code 1 when B is shown to be worse in a test.
    #[arg(long)]
    fail_if_worse: bool,
    #[command(flatten)]
    trial: TrialArgs,
}

/// Flags of every command that makes a trial.
#[derive(Args, Clone)]
pub struct TrialArgs {
    /// The plan with the tests, for a side that is no plan; without one, the default plan.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Run each test for half a second.
    #[arg(long)]
    quick: bool,
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', value_parser = super::test::kinds(), hide_possible_values = true,
        help = format!("Only the tests of these kinds: {}", TrafficKind::names_where(|_| true, "and")))]
    only: Vec<TrafficKind>,
    /// Measure at most so many pairs; what is clear earlier ends earlier.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(5..=1000))]
    pairs: u16,
    /// Differences of less than this are none.
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = share)]
    pub same_within: f64,
    #[arg(long, value_name = "NAME", value_parser = figure,
        help = format!("The figure that is compared [default: the one that each test is for]: {}", names()))]
    pub figure: Option<&'static Figure>,
    /// Take stamps of one in N messages in each layer of the path, and name the layer in which the slower side is slower (docs/layers.md).
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "16",
        value_parser = super::amounts::<u32>(1..=1_000_000))]
    layers: Option<u32>,
    /// Seed of the order within the pairs (printed and recorded).
    #[arg(long)]
    seed: Option<u64>,
    /// The name that 'pathlab runs' shows.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Where records are kept.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    dir: PathBuf,
}

fn names() -> String {
    FIGURES.map(|figure| format!("{} ({})", figure.name, figure.about)).join(", ")
}

fn figure(name: &str) -> std::result::Result<&'static Figure, String> {
    figures::named(name)
        .ok_or_else(|| format!("the figures are {}", FIGURES.map(|figure| figure.name).join(", ")))
}

/// A share, from a text such as `2%`.
fn share(text: &str) -> std::result::Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let share = percent.filter(|percent| (0.0..=50.0).contains(percent)).map(|percent| percent / 100.0);
    share.ok_or_else(|| format!("'{text}' is not a share from 0% to 50%"))
}

/// Runs the command.
pub fn run(args: CompareArgs, output: &Output) -> Result<()> {
    let sides = [args.trial.side(&args.a)?, args.trial.side(&args.b)?];
    if args.between.to.is_none() && sides.iter().any(|side| side.topology.has_machines()) {
        over_machines(&args, &sides)?;
    }
    let ended = match &args.between.to {
        Some(host) => between(&args, host, sides, output)?,
        None => in_labs(&args, &sides, output)?,
    };
    let worse = tell(ended, output)?;
    match worse.first().filter(|_| args.fail_if_worse) {
        Some(sentence) => Err(Problem::measured(sentence.clone())),
        None => Ok(()),
    }
}

/// Two plans in the machines of the topology that both have; does not return.
fn over_machines(args: &CompareArgs, sides: &[Described; 2]) -> Result<()> {
    let [a, b] = sides;
    let ends = |side: &Described| {
        let spec = &side.plan.tests[0].spec;
        (spec.from.clone(), spec.to.clone())
    };
    if a.topology.to_string() != b.topology.to_string() || ends(a) != ends(b) {
        return Err(Problem::input(
            "virtual machines are compared as two plans with one topology and one path",
        )
        .help("say the same 'topology' and 'path' in both, or measure each with 'pathlab run'"));
    }
    only_plans(args)?;
    super::machines(&a.topology, &a.plan)
}

/// Each side in a lab of its own.
fn in_labs(args: &CompareArgs, sides: &[Described; 2], output: &Output) -> Result<TrialEnd> {
    linux::lab::enter_user_namespace()?;
    experiment::interruptible()?;
    let labs = build(sides)?;
    let settings: [Settings<'_>; 2] = [0, 1].map(|side| (&labs[side] as _, &sides[side].plan.settings[..]));
    let ended = change::during(&settings, || {
        args.trial.measure(sides, [&labs[0], &labs[1]].map(UnderTest::Lab), &mut |_| Ok(()), output)
    });
    labs.into_iter().for_each(|lab| experiment::down(lab, output));
    ended
}

fn only_plans(args: &CompareArgs) -> Result<()> {
    match [&args.a, &args.b].into_iter().find(|side| !side.ends_with(".plan")) {
        Some(other) => {
            Err(Problem::input(format!("'{other}' is no plan")).help("between hosts two plans are compared"))
        }
        None => Ok(()),
    }
}

/// Both sides between this host and that one, each with its settings while it is measured.
fn between(args: &CompareArgs, host: &str, mut sides: [Described; 2], output: &Output) -> Result<TrialEnd> {
    only_plans(args)?;
    experiment::interruptible()?;
    let pair = |side: usize| args.between.pair(host, &sides[side].plan.tests[0].spec);
    let pairs = [pair(0)?, pair(1)?];
    sides.iter_mut().for_each(|side| side.plan.use_family(pairs[0].family()));
    let journals = linux::undo::journals()?;
    let settings: [Settings<'_>; 2] = [0, 1].map(|side| (&pairs[side] as _, &sides[side].plan.settings[..]));
    let mut settings = ArmSettings::new(&journals, settings, true);
    settings.look()?;
    let targets = pairs.each_ref().map(UnderTest::Hosts);
    let ended = args.trial.measure(&sides, targets, &mut |side| settings.enter(side), output);
    let back = settings.leave();
    let ended = ended?;
    back?;
    Ok(ended)
}

/// Both labs; one that cannot be built leaves none.
fn build(sides: &[Described; 2]) -> Result<Vec<Lab>> {
    let build = |(number, side): (usize, &Described)| {
        let name = format!("run-{}-{number}", std::process::id());
        experiment::programs::up(&side.topology, &name, Lifetime::Ephemeral)
            .map_err(|problem| if problem.place.is_empty() { problem.at(&side.title) } else { problem })
    };
    sides.iter().enumerate().map(build).collect()
}

impl TrialArgs {
    /// The plan and its topology.
    pub fn side_of_plan(&self) -> Result<Described> {
        let (plan, text) = self.read_plan()?;
        let topology = plan.topology.clone();
        self.applied(side::read_topology(&topology, (&plan, &text))?)
    }

    /// A side with the flags applied.
    fn side(&self, name: &str) -> Result<Described> {
        let (plan, text) = self.read_plan()?;
        self.applied(side::read(name, (&plan, &text))?)
    }

    fn read_plan(&self) -> Result<(Plan, String)> {
        let text = match &self.plan {
            None => plan::DEFAULT.to_owned(),
            Some(path) => super::read_text(path, "cannot read the plan")?,
        };
        let file = self.plan.as_ref().map_or("default".into(), |path| path.display().to_string());
        Ok((Plan::parse(&text, &file)?, text))
    }

    fn applied(&self, mut side: Described) -> Result<Described> {
        side.plan.only(&self.only)?;
        side.plan.stamp_layers(self.layers)?;
        if self.quick {
            side.plan.quick();
        }
        Ok(side)
    }

    /// The same flags with at most so many pairs, and this seed.
    #[must_use]
    pub fn at_most(&self, pairs: usize, seed: u64) -> TrialArgs {
        let pairs = self.pairs.min(u16::try_from(pairs).unwrap_or(u16::MAX));
        TrialArgs { pairs, seed: Some(seed), ..self.clone() }
    }

    /// The seed that was given, or one of the clock's.
    pub fn chosen_seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| linux::sys::clock::realtime_ns() % 1_000_000)
    }

    fn setup<'a>(&self, enter: &'a mut dyn FnMut(trial::TrialSide) -> Result<()>) -> TrialSetup<'a> {
        let rule = StoppingRule::new(usize::from(self.pairs), self.same_within);
        TrialSetup { rule, figure: self.figure, seed: self.chosen_seed(), enter }
    }

    /// Measures two sides, each in its lab or between its hosts.
    pub fn measure(
        &self,
        sides: &[Described; 2],
        targets: [UnderTest<'_>; 2],
        enter: &mut dyn FnMut(trial::TrialSide) -> Result<()>,
        output: &Output,
    ) -> Result<TrialEnd> {
        let setup = self.setup(enter);
        let arm = |side: &Described, target| -> Result<Arm<'_>> {
            let course = self.course(side, target, setup.seed)?;
            Ok(Arm { title: side.title.clone(), course, plan: side.plan.clone() })
        };
        let arms = [arm(&sides[0], targets[0])?, arm(&sides[1], targets[1])?];
        trial::carry_out(arms, setup, &Screen::new(output))
    }

    /// Begins the record of a side.
    pub fn course<'a>(&self, side: &Described, target: UnderTest<'a>, seed: u64) -> Result<Course<'a>> {
        Course::on(target.testbed(&side.plan)?, &side.plan, &self.about(side, seed), None, &self.dir)
    }

    /// What the record of a side says of it.
    fn about(&self, side: &Described, seed: u64) -> RunRecord {
        RunRecord {
            label: Some(self.label.clone().unwrap_or_else(|| format!("trial: {}", side.title))),
            plan_name: self.plan.as_ref().map_or("default".into(), |path| path.display().to_string()),
            topology_name: side.title.clone(),
            plan: side.text.clone(),
            seed,
            ..RunRecord::default()
        }
    }
}

/// Prints a trial and where its records are; the sentences of the tests in which B is worse.
fn tell(ended: TrialEnd, output: &Output) -> Result<Vec<String>> {
    let (trial, stopped) = told_in_part(ended, output);
    output.result(&trial, study::trial::text::trial)?;
    stopped.map_or(Ok(worse(&trial)), Err)
}

/// Says where the records of a trial are, if they could be written; the trial, and what lets no other follow.
pub fn told_in_part(ended: TrialEnd, output: &Output) -> (TrialRecord, Option<Problem>) {
    let TrialEnd { trial, closed, stopped, .. } = ended;
    if closed.iter().all(|closed| closed.kept.is_ok()) {
        output.note(&format!("records: {} {}", trial.a.run, trial.b.run));
    }
    (trial, stopped)
}

fn worse(trial: &TrialRecord) -> Vec<String> {
    let worse = trial.tests.iter().filter(|test| test.outcome() == "worse");
    worse.map(|test| study::trial::text::verdict(test, trial.same_within)).collect()
}

//! `pathlab prove`: whether a change of a knob helps, shown by pairs; kept when it does, put back when not.

use super::between::BetweenArgs;
use super::compare::{TrialArgs, told_in_part};
use crate::output::{Notices, Output};
use crate::progress::Screen;
use clap::Args;
use experiment::change::{self, Changed, LabChange, Settings, Tunable, keep};
use experiment::prove::suspects;
use experiment::prove::suspects::Bounds;
use experiment::side::Described;
use experiment::testbed::UnderTest;
use experiment::trial::ArmSettings;
use linux::journal::Journals;
use linux::lab::{Lab, Lifetime};
use record::knob::KnobChange;
use record::trial::{PROOF_SCHEMA, Proof, ProofRecord, Suspect};
use record::{Problem, Result};
use study::trial::decision::decide;

/// Flags of `pathlab prove`.
#[derive(Args)]
pub struct ProveArgs {
    /// What is to be tried: NODE/NAME=VALUE or NODE/IF:NAME=VALUE, as in a/eth0:mtu=9000 or 'b/net.ipv4.tcp_rmem=4096 131072 16777216'. Each
    /// is tried by itself, on top of those that were found better before it; then all of these together.
    #[arg(required_unless_present = "doctor", value_name = "CHANGE")]
    changes: Vec<String>,
    /// Ask the doctor while the tests run, and try each knob that it would turn, the largest estimated loss first.
    #[arg(long)]
    doctor: bool,
    /// Of what the doctor advises and can be done, try only the first N, those with the largest estimated loss.
    #[arg(long, value_name = "N", requires = "doctor", value_parser = clap::value_parser!(u16).range(1..))]
    most: Option<u16>,
    #[command(flatten)]
    proof: ProofArgs,
}

/// Flags of every command that proves changes.
#[derive(Args, Clone)]
pub struct ProofArgs {
    /// The lab that is up and whose knobs are changed; without one, the plan's topology is built, and nothing outlives it.
    #[arg(long, value_name = "NAME", conflicts_with = "to")]
    pub lab: Option<String>,
    #[command(flatten)]
    pub between: BetweenArgs,
    /// Put everything back, whatever was shown.
    #[arg(long)]
    pub no_keep: bool,
    /// Allow changes that may take a link down for a moment.
    #[arg(long)]
    pub allow_link_flap: bool,
    #[command(flatten)]
    pub trial: TrialArgs,
}

/// What every trial of a proof shares.
pub struct Proving<'a> {
    /// The flags.
    pub args: &'a ProofArgs,
    /// Where undos are kept.
    pub journals: &'a Journals,
    /// What is measured, and whose knobs are changed.
    pub target: UnderTest<'a>,
    /// It is there before and after the command: what was shown to be better can stay.
    pub outlives: bool,
    /// What is measured.
    pub side: Described,
    /// Where it is told.
    pub output: &'a Output,
}

/// Runs the command.
pub fn run(args: ProveArgs, output: &Output) -> Result<()> {
    let changes: Vec<LabChange> =
        args.changes.iter().map(|text| LabChange::parse(text)).collect::<Result<_>>()?;
    let side = args.proof.trial.side_of_plan()?;
    let (record, stopped) = args.proof.on(side, output, |proving| prove(&args, proving, &changes))?;
    output.result(&record, study::trial::text::proofs)?;
    stopped.map_or(Ok(()), Err)?;
    shown(&record)
}

impl ProofArgs {
    /// Does something in the lab that is up, in one that is built for it, or between two hosts.
    pub fn on<T>(
        &self,
        side: Described,
        output: &Output,
        work: impl FnOnce(&Proving<'_>) -> Result<T>,
    ) -> Result<T> {
        if self.between.to.is_none() && self.lab.is_none() {
            super::machines(&side.topology, &side.plan)?;
        }
        match &self.between.to {
            Some(host) => self.between_hosts(host, side, output, work),
            None => self.in_lab(side, output, work),
        }
    }

    fn in_lab<T>(
        &self,
        side: Described,
        output: &Output,
        work: impl FnOnce(&Proving<'_>) -> Result<T>,
    ) -> Result<T> {
        let lab = self.claim(&side)?;
        let settings = side.plan.settings.clone();
        let outlives = self.lab.is_some();
        let done = change::during(&[(&lab, &settings)], || {
            let journals = linux::undo::journals()?;
            work(&Proving {
                args: self,
                journals: &journals,
                target: UnderTest::Lab(&lab),
                outlives,
                side,
                output,
            })
        });
        if self.lab.is_none() {
            experiment::down(lab, output);
        }
        done
    }

    fn between_hosts<T>(
        &self,
        host: &str,
        mut side: Described,
        output: &Output,
        work: impl FnOnce(&Proving<'_>) -> Result<T>,
    ) -> Result<T> {
        experiment::interruptible()?;
        let pair = self.between.pair(host, &side.plan.tests[0].spec)?;
        side.plan.use_family(pair.family());
        let settings = side.plan.settings.clone();
        change::during(&[(&pair, &settings)], || {
            let journals = linux::undo::journals()?;
            let target = UnderTest::Hosts(&pair);
            work(&Proving { args: self, journals: &journals, target, outlives: true, side, output })
        })
    }

    fn claim(&self, side: &Described) -> Result<Lab> {
        match &self.lab {
            Some(name) => super::run::claim(name),
            None => {
                linux::lab::enter_user_namespace()?;
                experiment::interruptible()?;
                let name = format!("run-{}", std::process::id());
                experiment::programs::up(&side.topology, &name, Lifetime::Ephemeral)
            }
        }
    }
}

/// Nothing that was shown to be better is what the command failed for.
fn shown(record: &ProofRecord) -> Result<()> {
    let last = record.together.as_ref().or(record.proofs.iter().find(|proof| proof.is_better));
    match last.filter(|proof| proof.is_better) {
        Some(_) => Ok(()),
        None if record.proofs.is_empty() => Err(Problem::measured("the doctor found no knob to turn")),
        None => Err(Problem::measured("no change was shown to be better")),
    }
}

fn prove(
    args: &ProveArgs,
    proving: &Proving<'_>,
    changes: &[LabChange],
) -> Result<(ProofRecord, Option<Problem>)> {
    let name = args.proof.lab.clone().unwrap_or_default();
    let BetweenArgs { to, reverse, via } = args.proof.between.clone();
    let (schema, to) = (PROOF_SCHEMA.into(), to.unwrap_or_default());
    let mut record = ProofRecord { schema, lab: name, to, reverse, via, ..ProofRecord::default() };
    if args.doctor {
        let most = args.most.map_or(usize::MAX, usize::from);
        record.suspects = proving.suspects(Bounds { may_flap: args.proof.allow_link_flap, most })?;
    }
    let advised = record.suspects.iter().filter(|suspect| suspect.left_out.is_none());
    let advised = advised.map(|suspect| LabChange::parse(&suspect.change)).collect::<Result<Vec<_>>>()?;
    let mut better: Vec<LabChange> = vec![];
    changes.iter().try_for_each(|change| proving.try_out(std::slice::from_ref(change)))?;
    for change in changes.iter().chain(&advised) {
        let (proof, stopped) = match proving.proof(&better, std::slice::from_ref(change)) {
            // What was shown before is told.
            Err(problem) if !record.proofs.is_empty() => return Ok((record, Some(problem))),
            proved => proved?,
        };
        better.extend(proof.is_better.then(|| change.clone()));
        record.proofs.push(proof);
        if stopped.is_some() {
            return Ok((record, stopped));
        }
    }
    let mut stopped = None;
    if better.len() > 1 {
        match proving.proof(&[], &better) {
            Err(problem) => return Ok((record, Some(problem))),
            Ok((together, ended)) => (record.together, stopped) = (Some(together), ended),
        }
    }
    if record.together.as_ref().is_none_or(|together| together.is_better) && stopped.is_none() {
        record.kept = proving.keep(&better)?;
    }
    Ok((record, stopped))
}

impl<'a> Proving<'a> {
    /// What the doctor would turn, looked at while the tests run once.
    fn suspects(&self, bounds: Bounds) -> Result<Vec<Suspect>> {
        let mut side = self.titled("asking the doctor");
        side.plan = suspects::plan(&side.plan);
        let mut course = self.args.trial.course(&side, self.target, 0)?;
        let screen = Screen::new(self.output);
        let found = suspects::find(self.tunable(), &side.plan, &mut course, bounds, &screen);
        let closed = course.close(found.as_ref().err());
        closed.kept?;
        self.output.note(&format!("record: {}", closed.run.id));
        found
    }

    fn tunable(&self) -> &'a dyn Tunable {
        self.target.tunable()
    }

    /// Makes what was shown to be better stay in a lab that is up or on this host, unless nothing is to stay.
    pub fn keep(&self, better: &[LabChange]) -> Result<Vec<KnobChange>> {
        match self.outlives && !self.args.no_keep {
            true => keep(self.journals, self.tunable(), better, self.args.allow_link_flap),
            false => Ok(vec![]),
        }
    }

    fn make(&self, changes: &[LabChange]) -> Result<Changed> {
        Changed::make(self.journals, self.tunable(), changes, self.args.allow_link_flap)
    }

    /// Makes changes and puts them back: what cannot be made is refused before anything is measured.
    fn try_out(&self, changes: &[LabChange]) -> Result<()> {
        self.make(changes)?.put_back(self.tunable())
    }

    /// One trial: A with what is `in_place`, B with the changes on top; what stopped it so that no other can follow. One whose pairs could
    /// not be used has no verdict, which is told.
    pub fn proof(&self, in_place: &[LabChange], changes: &[LabChange]) -> Result<(Proof, Option<Problem>)> {
        self.try_out(changes)?;
        let base = self.make(in_place)?;
        let arms: [Settings<'_>; 2] = [(self.tunable(), &[]), (self.tunable(), changes)];
        let mut arms = ArmSettings::new(self.journals, arms, self.args.allow_link_flap);
        let change = changes.iter().map(|change| change.text.as_str()).collect::<Vec<_>>().join(" ");
        let sides = [self.titled("as it is"), self.titled(&change)];
        let ended =
            self.args.trial.measure(&sides, [self.target; 2], &mut |side| arms.enter(side), self.output)?;
        base.put_back(self.tunable())?;
        let unusable = ended.unusable;
        let (trial, mut stopped) = told_in_part(ended, self.output);
        if let Some(problem) = stopped.take_if(|_| unusable) {
            self.output.note(&format!("{change}: no verdict: {problem}"));
        }
        let (is_better, decision) = decide(&trial);
        Ok((Proof { change, trial, is_better, decision }, stopped))
    }

    /// What is measured, under this title.
    pub fn titled(&self, title: &str) -> Described {
        Described { title: title.into(), ..self.side.clone() }
    }
}

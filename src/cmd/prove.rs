//! `pathlab prove`: whether a change of a knob helps, shown by pairs; kept when it does, put back when not.

use super::compare::{TrialArgs, told_in_part};
use crate::output::{Notices, Output};
use crate::progress::Screen;
use clap::Args;
use experiment::prove::{Changed, ChangedArm, LabChange, keep, suspects};
use experiment::side::Described;
use linux::journal::Journals;
use linux::lab::{Lab, Lifetime};
use record::trial::{PROOF_SCHEMA, Proof, ProofRecord, Suspect};
use record::{Problem, Result};
use study::trial::decision::decide;

/// Flags of `pathlab prove`.
#[derive(Args)]
pub struct ProveArgs {
    /// What is to be tried: NODE/NAME=VALUE or NODE/IF:NAME=VALUE, as in a/eth0:mtu=9000 or b/net.core.rmem_max=16777216. Each is tried by
    /// itself, on top of those that were found better before it; then all of these together.
    #[arg(required_unless_present = "doctor", value_name = "CHANGE")]
    changes: Vec<String>,
    /// The lab that is up and whose knobs are changed; without one, the plan's topology is built, and nothing outlives it.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Ask the doctor while the tests run, and try each knob that it would turn, the largest estimated loss first.
    #[arg(long)]
    doctor: bool,
    /// Put everything back, whatever was shown.
    #[arg(long)]
    no_keep: bool,
    /// Allow changes that may take a link down for a moment.
    #[arg(long)]
    allow_link_flap: bool,
    #[command(flatten)]
    trial: TrialArgs,
}

/// What every trial of a proof shares.
struct Bench<'a> {
    args: &'a ProveArgs,
    journals: Journals,
    lab: &'a Lab,
    side: Described,
    output: &'a Output,
}

/// Runs the command.
pub fn run(args: ProveArgs, output: &Output) -> Result<()> {
    let changes: Vec<LabChange> =
        args.changes.iter().map(|text| LabChange::parse(text)).collect::<Result<_>>()?;
    let side = args.trial.side_of_plan()?;
    let lab = lab(&args, &side)?;
    let proved = prove(&args, &lab, side, &changes, output);
    if args.lab.is_none() {
        experiment::down(lab, output);
    }
    let (record, stopped) = proved?;
    output.result(&record, study::trial::text::proofs)?;
    stopped.map_or(Ok(()), Err)?;
    shown(&record)
}

fn lab(args: &ProveArgs, side: &Described) -> Result<Lab> {
    match &args.lab {
        Some(name) => super::run::claim(name),
        None => {
            linux::lab::enter_user_namespace()?;
            experiment::interruptible()?;
            let name = format!("run-{}", std::process::id());
            experiment::programs::up(&side.topology, &name, Lifetime::Ephemeral)
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
    lab: &Lab,
    side: Described,
    changes: &[LabChange],
    output: &Output,
) -> Result<(ProofRecord, Option<Problem>)> {
    let bench = Bench { args, journals: linux::undo::journals()?, lab, side, output };
    let name = args.lab.clone().unwrap_or_default();
    let mut record = ProofRecord { schema: PROOF_SCHEMA.into(), lab: name, ..ProofRecord::default() };
    if args.doctor {
        record.suspects = bench.suspects()?;
    }
    let advised = record.suspects.iter().filter(|suspect| suspect.left_out.is_none());
    let advised = advised.map(|suspect| LabChange::parse(&suspect.change)).collect::<Result<Vec<_>>>()?;
    let mut better: Vec<LabChange> = vec![];
    for change in changes.iter().chain(&advised) {
        let (proof, stopped) = bench.proof(&better, std::slice::from_ref(change))?;
        better.extend(proof.is_better.then(|| change.clone()));
        record.proofs.push(proof);
        if stopped.is_some() {
            return Ok((record, stopped));
        }
    }
    let mut stopped = None;
    if better.len() > 1 {
        let (together, ended) = bench.proof(&[], &better)?;
        (record.together, stopped) = (Some(together), ended);
    }
    let is_shown = record.together.as_ref().is_none_or(|together| together.is_better);
    if is_shown && stopped.is_none() && args.lab.is_some() && !args.no_keep {
        record.kept = keep(&bench.journals, lab, &better, args.allow_link_flap)?;
    }
    Ok((record, stopped))
}

impl Bench<'_> {
    /// What the doctor would turn, looked at while the tests run once.
    fn suspects(&self) -> Result<Vec<Suspect>> {
        let side = self.titled("asking the doctor");
        let mut course = self.args.trial.course(&side, self.lab, 0)?;
        let screen = Screen::new(self.output);
        let found = suspects::find(self.lab, &side.plan, &mut course, self.args.allow_link_flap, &screen);
        let closed = course.close(found.as_ref().err());
        closed.kept?;
        self.output.note(&format!("record: {}", closed.run.id));
        found
    }

    fn make(&self, changes: &[LabChange]) -> Result<Changed> {
        Changed::make(&self.journals, self.lab, changes, self.args.allow_link_flap)
    }

    /// One trial: A with what is `in_place`, B with the changes on top.
    fn proof(&self, in_place: &[LabChange], changes: &[LabChange]) -> Result<(Proof, Option<Problem>)> {
        // Refused before anything is measured.
        self.make(changes)?.put_back()?;
        let base = self.make(in_place)?;
        let mut arm = ChangedArm::new(&self.journals, self.lab, changes, self.args.allow_link_flap);
        let change = changes.iter().map(|change| change.text.as_str()).collect::<Vec<_>>().join(" ");
        let sides = [self.titled("as it is"), self.titled(&change)];
        let ended = self.args.trial.measure(
            &sides,
            [self.lab, self.lab],
            &mut |side| arm.enter(side),
            self.output,
        )?;
        base.put_back()?;
        let (trial, stopped) = told_in_part(ended, self.output)?;
        let (is_better, decision) = decide(&trial);
        Ok((Proof { change, trial, is_better, decision }, stopped))
    }

    fn titled(&self, title: &str) -> Described {
        Described { title: title.into(), ..self.side.clone() }
    }
}

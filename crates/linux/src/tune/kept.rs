//! Changes that stay when the command has ended, until they are undone; and those that are held while it runs.
//!
//! **What.** [`set`] changes knobs: a journal for each, which is on disk before the change and stays. [`undo`] puts back what was there, the last
//! change first; what somebody else has set since is left as it is, and said. [`changes`] lists them. [`hold`] sets knobs for as long as its guard lives.
//!
//! **Why a journal each.** Changes of one knob lie on each other and are undone in reverse, but each can be undone alone, whatever else was
//! changed with it. All knobs of one [`set`] are changed or none: their journals are complete only when the last was read back.
//!
//! **Price.** Two commands wait for each other. A change that died between its write and its reading back is put back whatever the
//! knob says then, so somebody else's change in that moment is taken for its own.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;

use record::knob::{ChangeState, KnobChange};
use record::{Problem, Result};
use serde::Deserialize;
use serde_json::json;

use super::list::{find, meant, named, not_set, told};
use super::row::{Access, Risk};
use super::rows::row;
use super::setting::{LATENCY, Setting};
use super::{Knob, Scope, TuneStep};
use crate::journal::{Journal, Journals, Record};
use crate::namespace;
use crate::netlink::{Netlink, Refusal};
use crate::sys::netns;

/// What the names of these journals begin with; a number follows.
pub const JOURNAL: &str = "tune-";
/// The lock that one command of them has at a time.
const TURN: &str = "tune.lock";

/// A knob that is to be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The interface, of a knob of one.
    pub interface: Option<String>,
    /// Its name.
    pub name: String,
    /// What to set it to.
    pub value: String,
}

/// As [`Ask::parse`] reads it.
impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(interface) = &self.interface {
            write!(f, "{interface}:")?;
        }
        write!(f, "{}={}", self.name, self.value)
    }
}

/// The interface and the knob that a text names: `ring.rx`, `eth1:ring.rx`, `net.core.rmem_max`, `sysctl net.core.rmem_max`.
pub fn name_of(text: &str, interface: Option<&str>) -> (Option<String>, String) {
    let text = text.trim();
    let (before, name) = match text.split_once(':') {
        // A route's prefix has colons, too.
        Some((before, name)) if !before.contains(['@', ' ']) => (Some(before), name.trim()),
        _ => (None, text),
    };
    let is_sysctl = ["net.", "vm.", "kernel."].iter().any(|begin| name.starts_with(begin));
    let name = if is_sysctl { format!("sysctl {name}") } else { name.to_owned() };
    let of_interface = row(&name).is_some_and(|(row, _)| row.place.is_of_interface());
    let interface = before.or(interface.filter(|_| of_interface)).map(str::to_owned);
    (interface, name)
}

impl Ask {
    /// Reads `NAME=VALUE` or `IF:NAME=VALUE`.
    ///
    /// # Errors
    /// Input: there is no `=`, no such knob, or it is one of an interface and none is named.
    pub fn parse(text: &str, interface: Option<&str>) -> Result<Ask> {
        let parts = text.split_once('=').filter(|(name, _)| !name.trim().is_empty());
        let (name, value) = parts.ok_or_else(|| Problem::input(format!("'{text}' is not NAME=VALUE")))?;
        let (interface, name) = name_of(name, interface);
        named(&name, interface.as_deref())?;
        Ok(Ask { interface, name, value: value.trim().to_owned() })
    }

    /// What the change may do to the link of the interface, as a sentence; none when nothing, or when the link is down anyway.
    ///
    /// # Errors
    /// Input: no such knob or interface.
    pub fn flap(&self) -> Result<Option<String>> {
        let mut setting = find(&self.name, self.interface.as_deref())?;
        let name = self.interface.clone().unwrap_or_default();
        let links = Netlink::open().links().unwrap_or_default();
        let is_up = links.iter().any(|link| link.name == name && link.up);
        let is_same = setting.read().ok() == setting.resolve(&self.value).ok();
        let flaps = setting.row.risk == Risk::LinkFlap && is_up && !is_same;
        Ok(flaps.then(|| {
            format!("setting {} may take the link of {name} down for a moment: many drivers do, and some refuse it while the interface is up", self.name)
        }))
    }
}

/// A knob that is about to be changed.
#[derive(Debug)]
struct Plan {
    setting: Setting,
    at: Scope,
    change: KnobChange,
}

impl Plan {
    /// Of each knob that the name means.
    fn all(ask: &Ask, namespace: &str) -> Result<Vec<Plan>> {
        let settings = meant(&ask.name, ask.interface.as_deref())?;
        settings.into_iter().map(|setting| Plan::of(setting, ask, namespace)).collect()
    }

    fn of(mut setting: Setting, ask: &Ask, namespace: &str) -> Result<Plan> {
        let interface = ask.interface.as_deref();
        let name = setting.name();
        let refused = |refusal: Refusal| told(&name, interface, &refusal);
        let was = setting.read().map_err(refused)?;
        let wanted = setting.resolve(&ask.value).map_err(|why| {
            let of = interface.map(|name| format!("{name} ")).unwrap_or_default();
            Problem::input(format!("{of}{name} cannot be set: {why}"))
        })?;
        let at = scope(&setting, interface)?;
        let namespace = (at != Scope::Machine).then(|| namespace.to_owned());
        let (set, now, state) = (was.clone(), Some(was.clone()), ChangeState::Already);
        let change =
            KnobChange { name, interface: ask.interface.clone(), namespace, was, wanted, set, now, state };
        Ok(Plan { setting, at, change })
    }

    fn is_done(&self) -> bool {
        self.change.was == self.change.wanted
    }

    /// An earlier change of the same command may have changed this one, too.
    fn look_again(&mut self) -> Result<()> {
        let change = &mut self.change;
        let refused = |refusal: Refusal| told(&change.name, change.interface.as_deref(), &refusal);
        change.was = self.setting.read().map_err(refused)?;
        Ok(())
    }

    /// Changes the knob; what would undo it is in the journal by then.
    fn make(mut self, mut journal: Journal) -> Result<Made> {
        match self.write(&mut journal) {
            Ok(()) => Ok(Made { journal, plan: self }),
            Err(problem) => {
                let _ = journal.undo();
                Err(problem)
            }
        }
    }

    fn write(&mut self, journal: &mut Journal) -> Result<()> {
        let change = &mut self.change;
        let interface = change.interface.clone();
        let refused = |name: &str, refusal: Refusal| not_set(name, interface.as_deref(), &refusal);
        let (knob, at) = (change.name.clone(), self.at.clone());
        let wanted = Some(change.wanted.clone());
        journal.will([TuneStep::Knob {
            knob: knob.clone(),
            at: at.clone(),
            was: json!(change.was),
            wanted,
        }])?;
        let setting = self.setting.clone().before(&change.was).set(change.wanted.clone());
        change.set = setting.map_err(|refusal| refused(&change.name, refusal))?;
        journal.will([TuneStep::Took { knob, at, now: change.set.clone() }])?;
        (change.now, change.state) = (Some(change.set.clone()), ChangeState::Set);
        Ok(())
    }
}

/// Where a knob of the calling thread's namespace is.
fn scope(setting: &Setting, interface: Option<&str>) -> Result<Scope> {
    let lost = |error: std::io::Error| Problem::host(format!("cannot tell the network namespace: {error}"));
    let inode = || netns::current().and_then(|space| netns::inode(space.as_fd())).map_err(lost);
    Ok(match (&setting.interface, interface) {
        (Some(place), Some(_)) => Scope::Interface(place.clone()),
        _ if setting.row.place.is_of_machine() => Scope::Machine,
        _ => Scope::Namespace(inode()?),
    })
}

/// A change that was made.
#[derive(Debug)]
struct Made {
    journal: Journal,
    plan: Plan,
}

impl Made {
    /// A feature may have waited for another one that was switched on after it: what it is now.
    fn settle(&mut self) -> Result<()> {
        let Plan { setting, at, change } = &mut self.plan;
        if !matches!(setting.row.access, Access::Feature) || change.set == change.wanted {
            return Ok(());
        }
        let refused = |refusal: Refusal| not_set(&change.name, change.interface.as_deref(), &refusal);
        let now = setting.read().map_err(refused)?;
        if now != change.wanted {
            let text = "it did not take effect: something that it depends on is off".into();
            return Err(refused(Refusal { errno: None, text }));
        }
        (change.set, change.now) = (now.clone(), Some(now.clone()));
        self.journal.will([TuneStep::Took { knob: change.name.clone(), at: at.clone(), now }])
    }
}

/// Makes changes: all of them or none.
fn make(journals: &Journals, plans: Vec<Plan>, persistent: bool) -> Result<(Vec<Made>, Vec<KnobChange>)> {
    let mut made: Vec<Made> = vec![];
    let mut changes = vec![];
    for plan in plans {
        match make_one(journals, plan, persistent) {
            Ok(Step::Made(one)) => made.push(*one),
            Ok(Step::Already(change)) => changes.push(change),
            Err(problem) => return Err(put_back(made).err().unwrap_or(problem)),
        }
    }
    if let Err(problem) = made.iter_mut().try_for_each(Made::settle) {
        return Err(put_back(made).err().unwrap_or(problem));
    }
    changes.extend(made.iter().map(|one| one.plan.change.clone()));
    Ok((made, changes))
}

/// What became of a plan.
enum Step {
    Made(Box<Made>),
    /// The knob was so already.
    Already(KnobChange),
}

fn make_one(journals: &Journals, mut plan: Plan, persistent: bool) -> Result<Step> {
    plan.look_again()?;
    if plan.is_done() {
        return Ok(Step::Already(plan.change));
    }
    Ok(Step::Made(Box::new(plan.make(begin(journals, persistent)?)?)))
}

/// The last change first.
fn put_back(made: Vec<Made>) -> Result<()> {
    let failed: Vec<Problem> = made.into_iter().rev().filter_map(|one| one.journal.undo().err()).collect();
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// A journal with a number above all others.
fn begin(journals: &Journals, persistent: bool) -> Result<Journal> {
    let number = |name: &String| name.strip_prefix(JOURNAL)?.parse::<u64>().ok();
    loop {
        let last = journals.names().iter().filter_map(number).max().unwrap_or(0);
        // None: another command has taken the number meanwhile.
        if let Some(journal) = journals.begin(&format!("{JOURNAL}{:08}", last + 1), persistent)? {
            return Ok(journal);
        }
    }
}

fn all_plans(asks: &[Ask], namespace: &str) -> Result<Vec<Plan>> {
    let all = asks.iter().map(|ask| Plan::all(ask, namespace)).collect::<Result<Vec<_>>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn plans(asks: &[Ask], namespace: &str, may_flap: bool) -> Result<Vec<Plan>> {
    let plans = all_plans(asks, namespace)?;
    let knob = |plan: &Plan| (plan.change.interface.clone(), plan.change.name.clone());
    let mut knobs = std::collections::BTreeSet::new();
    if let Some(twice) = plans.iter().find(|plan| !knobs.insert(knob(plan))) {
        return Err(Problem::input(format!("{} is to be set twice", twice.change.name)));
    }
    for ask in asks.iter().filter(|_| !may_flap) {
        if let Some(what) = ask.flap()? {
            return Err(
                Problem::input(format!("{what}; nothing was changed")).help("--allow-link-flap allows it")
            );
        }
    }
    Ok(plans)
}

/// Changes knobs of the calling thread's namespace, which is called like this, or of its interfaces, or of the machine; they stay so.
///
/// # Errors
/// Input: no such knob or value, or the link may flap and may not. Host: the kernel refuses one. All is then as it was.
pub fn set(journals: &Journals, namespace: &str, asks: &[Ask], may_flap: bool) -> Result<Vec<KnobChange>> {
    let _turn = journals.turn(TURN)?;
    let (made, changes) = make(journals, plans(asks, namespace, may_flap)?, true)?;
    for mut one in made {
        one.journal.complete(&one.plan.change)?;
    }
    Ok(changes)
}

/// Which of these knobs are something else now: `was` and `wanted` of each.
///
/// # Errors
/// Input: no such knob or value. Host: one cannot be read.
pub fn compare(namespace: &str, asks: &[Ask]) -> Result<Vec<KnobChange>> {
    let plans = all_plans(asks, namespace)?;
    let differing = plans.into_iter().filter(|plan| !plan.is_done()).map(|plan| plan.change);
    Ok(differing.map(|change| KnobChange { state: ChangeState::Foreign, ..change }).collect())
}

/// Knobs that are set as long as this lives.
#[derive(Debug)]
pub struct Held {
    made: Vec<Made>,
    /// Open as long as they hold.
    _files: Vec<File>,
}

impl Held {
    /// Puts back what was before; what became of each change, the last first: what somebody else has set since is left.
    ///
    /// # Errors
    /// A host problem when the kernel refuses; the journal is then kept.
    pub fn put_back(mut self) -> Result<Vec<KnobChange>> {
        self.undo()
    }

    fn undo(&mut self) -> Result<Vec<KnobChange>> {
        let made = std::mem::take(&mut self.made).into_iter().rev();
        let undone: Vec<(Result<()>, Plan)> = made.map(|one| (one.journal.undo(), one.plan)).collect();
        // Looked at when all are undone: one feature may depend on another.
        let seen = |(undone, plan): (Result<()>, Plan)| {
            let was = plan.change.was.clone();
            undone.map(|()| seen(plan.change, &plan.at, &was, ChangeState::Undone))
        };
        undone.into_iter().map(seen).collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // As [`super::Change`] does.
        let _ = self.undo();
    }
}

/// Sets knobs until the guard is dropped; the limit of C-states, too, which nothing else can set.
///
/// # Errors
/// As [`set`].
pub fn hold(
    journals: &Journals,
    namespace: &str,
    asks: &[Ask],
    may_flap: bool,
) -> Result<(Held, Vec<KnobChange>)> {
    let is_latency =
        |ask: &&Ask| row(&ask.name).is_some_and(|(row, _)| matches!(row.access, Access::Latency));
    let (latency, others): (Vec<&Ask>, Vec<&Ask>) = asks.iter().partition(is_latency);
    let others: Vec<Ask> = others.into_iter().cloned().collect();
    let _turn = journals.turn(TURN)?;
    let held = latency.into_iter().map(hold_latency).collect::<Result<Vec<_>>>()?;
    let (files, mut limits): (Vec<File>, Vec<KnobChange>) = held.into_iter().unzip();
    let (made, mut changes) = make(journals, plans(&others, namespace, may_flap)?, false)?;
    changes.append(&mut limits);
    Ok((Held { made, _files: files }, changes))
}

/// The kernel keeps the least of all limits that are written to this file and held open.
fn hold_latency(ask: &Ask) -> Result<(File, KnobChange)> {
    let mut plan = Plan::of(find(&ask.name, ask.interface.as_deref())?, ask, "")?;
    let number: i32 = plan
        .change
        .wanted
        .parse()
        .map_err(|_| Problem::input("the limit is too large").at(ask.name.clone()))?;
    let mut file = OpenOptions::new().write(true).open(LATENCY).map_err(Refusal::from);
    let written = file.as_mut().map_err(|refusal| refusal.clone());
    let written = written.and_then(|file| Ok(file.write_all(&number.to_ne_bytes())?));
    let refused = |refusal: Refusal| told(&ask.name, None, &refusal);
    written.map_err(refused)?;
    let now = plan.setting.read().map_err(refused)?;
    (plan.change.set, plan.change.now, plan.change.state) = (now.clone(), Some(now), ChangeState::Set);
    Ok((file.map_err(refused)?, plan.change))
}

/// What a knob is now; none where it is gone.
fn now(name: &str, at: &Scope) -> Option<String> {
    let (row, part) = row(name)?;
    let mut now = None;
    let _ = at.visit(|| {
        now = Setting::at(row, &part, at).read().ok();
        Ok(())
    });
    now
}

/// A change as it is now, when that is what it should be.
fn seen(change: KnobChange, at: &Scope, should: &str, so: ChangeState) -> KnobChange {
    let now = now(&change.name, at);
    let state = match &now {
        None => ChangeState::Gone,
        Some(now) if now == should => so,
        Some(_) => ChangeState::Foreign,
    };
    KnobChange { now, state, ..change }
}

/// A change that stays.
#[derive(Debug, Clone, PartialEq)]
struct Kept {
    /// Its journal.
    journal: String,
    change: KnobChange,
    at: Scope,
}

/// What is kept, in the order in which it was changed, and the first journal that is damaged: the others can be undone all the same.
fn kept(journals: &Journals) -> (Vec<Kept>, Option<Problem>) {
    let (mut found, mut damaged) = (vec![], None);
    for journal in journals.names().into_iter().filter(|name| name.starts_with(JOURNAL)) {
        match journals.read(&journal) {
            Ok(record) => found.extend(record.and_then(|record| Kept::of(journal, &record))),
            Err(problem) => damaged = damaged.or(Some(problem)),
        }
    }
    (found, damaged)
}

impl Kept {
    /// None of a lab, which may have such a name, and of a change that is not complete yet: it belongs to a command that runs.
    fn of(journal: String, record: &Record) -> Option<Kept> {
        let mut change = KnobChange::deserialize(record.complete.as_ref()?).ok()?;
        match TuneStep::deserialize(record.steps.first()?).ok()? {
            TuneStep::Knob { at, .. } => {
                // What was the changing process's own is another one where it was in another.
                let own = change.namespace.as_deref() == Some("host");
                if let Some(netns) = at.netns().filter(|_| own) {
                    change.namespace = Some(namespace::called(netns));
                }
                Some(Kept { journal, change, at })
            }
            _ => None,
        }
    }

    /// The change as it is now, when that is what it should be.
    fn seen(self, should: &str, so: ChangeState) -> KnobChange {
        seen(self.change, &self.at, should, so)
    }

    /// Whether it is in the network namespace with this inode; without one, wherever it is.
    fn is_in(&self, netns: Option<u64>) -> bool {
        netns.is_none() || self.at.netns() == netns
    }

    fn is_same_knob(&self, other: &Kept) -> bool {
        self.change.name == other.change.name && self.at == other.at
    }
}

/// What was changed and is not undone, in the network namespace with this inode, else everywhere; the first change first. Of changes on each
/// other the last says what the knob should be. And the first journal that is damaged.
pub fn changes(journals: &Journals, netns: Option<u64>) -> (Vec<KnobChange>, Option<Problem>) {
    let (all, damaged) = kept(journals);
    let last = |one: &Kept| {
        all.iter().rev().find(|other| other.is_same_knob(one)).map(|other| other.change.set.clone())
    };
    let seen = |one: &Kept| one.clone().seen(&last(one).unwrap_or_default(), ChangeState::Set);
    (all.iter().filter(|one| one.is_in(netns)).map(seen).collect(), damaged)
}

/// Puts back the changes that `which` says, in the network namespace with this inode, else everywhere, the last first; and what could not be
/// put back.
///
/// # Errors
/// Host: the turn cannot be had.
pub fn undo(
    journals: &Journals,
    netns: Option<u64>,
    which: impl Fn(&KnobChange) -> bool,
) -> Result<(Vec<KnobChange>, Option<Problem>)> {
    let _turn = journals.turn(TURN)?;
    let (mut all, damaged) = kept(journals);
    all.retain(|one| one.is_in(netns) && which(&one.change));
    all.reverse();
    let (mut undone, mut failed) = (vec![], damaged);
    for one in &all {
        let went = journals.undo(&one.journal);
        undone.push((went.is_ok(), now(&one.change.name, &one.at)));
        failed = failed.or(went.err());
    }
    let first = |one: &Kept| {
        all.iter().rev().find(|other| other.is_same_knob(one)).map(|other| other.change.was.clone())
    };
    // Looked at again when all are undone: one feature may depend on another.
    let seen = |(one, (went, then)): (&Kept, (bool, Option<String>))| {
        let seen = one.clone().seen(&first(one).unwrap_or_default(), ChangeState::Undone);
        match seen.state {
            ChangeState::Foreign if !went && seen.now.as_ref() == Some(&one.change.set) => {
                KnobChange { state: ChangeState::Set, ..seen }
            }
            // What was below it was somebody else's, and is again.
            ChangeState::Foreign if then.as_ref() == Some(&one.change.was) => {
                KnobChange { state: ChangeState::Undone, ..seen }
            }
            _ => seen,
        }
    };
    Ok((all.iter().zip(undone).map(seen).collect(), failed))
}

/// Forgets the changes in namespaces that went with their lab: there is nothing left to put back.
///
/// # Errors
/// Host: a journal cannot be removed.
pub fn forget_gone(journals: &Journals) -> Result<()> {
    let gone = || kept(journals).0.into_iter().filter(|one| one.at.is_gone());
    // Without any there is nobody to wait for.
    if gone().next().is_none() {
        return Ok(());
    }
    let _turn = journals.turn(TURN)?;
    gone().try_for_each(|one| journals.undo(&one.journal))
}

/// How many changes were made before the machine was started anew: they went with it, and so do their journals now.
///
/// # Errors
/// Host: a journal cannot be removed.
pub fn lost(journals: &Journals) -> Result<usize> {
    let mut lost = 0;
    for one in kept(journals).0 {
        if journals.read(&one.journal)?.is_some_and(|record| !record.of_this_boot()) {
            journals.undo(&one.journal)?;
            lost += 1;
        }
    }
    Ok(lost)
}

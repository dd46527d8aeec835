//! `pathlab doctor`: what facts of a host say against it, for a goal.
//!
//! **What.** 123 rules, each a row of a table ([`DoctorRule`]): its goals, its inputs, what it looks for, what to do, what that risks, how it is undone,
//! and where it comes from. [`examine`] applies all of them to all interfaces and ranks what was found by estimated loss.
//!
//! **Why rows.** One more rule is one row and its fixture; the page in `docs/` and the tests are made from the rows. A rule is not asked unless all its inputs are known:
//! what is missing makes it *unknown*, never *ok*. Counters are looked at over the window only, never since boot.
//!
//! **Price.** The loss is an estimate to rank by; only a trial tells what a change is worth.

mod bonds;
mod conflicts;
mod hosts;
mod interrupts;
mod links;
pub mod look;
pub mod measured;
mod neighbours;
mod offloads;
pub mod page;
mod protocols;
mod steering;
mod tcp;
#[cfg(test)]
mod tests;
pub mod text;

use look::{Answer, Found, Look};
use record::TrafficKind;
use record::facts::{Facts, Known};
use record::line::quoted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use conflicts::{CONFLICTS, Conflict, DoctorConflict};

/// What a host is to be good at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Many bits per second.
    Throughput,
    /// Short times.
    Latency,
    /// Capture without loss.
    Capture,
    /// Frames handed on.
    Forwarding,
    /// Figures that can be believed; every goal needs it.
    Measurement,
}

impl Goal {
    /// All of them.
    pub const ALL: [Goal; 5] =
        [Goal::Throughput, Goal::Latency, Goal::Capture, Goal::Forwarding, Goal::Measurement];

    /// Its letter in [`DoctorRule::goals`], and its word.
    fn row(self) -> (char, &'static str) {
        match self {
            Goal::Throughput => ('T', "throughput"),
            Goal::Latency => ('L', "latency"),
            Goal::Capture => ('C', "capture"),
            Goal::Forwarding => ('R', "forwarding"),
            Goal::Measurement => ('M', "measurement"),
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        self.row().1
    }

    /// What a test of this kind is about.
    pub fn of(kind: TrafficKind) -> Goal {
        if kind.is_round_trip() { Goal::Latency } else { Goal::Throughput }
    }

    /// Whether a rule is about it.
    pub fn is_of(self, goals: &str) -> bool {
        goals.contains(self.row().0)
    }
}

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The host: it is asked once.
    Host,
    /// A namespace: it is asked for each.
    Node,
    /// An interface: it is asked for each.
    Interface,
}

/// What to do. `IF` stands for the interface, `NEW` for the value, `OLD` for what it was.
#[derive(Debug, Clone, Copy)]
pub enum Advice {
    /// Set a knob of `pathlab tune` to a value; `NEW` is the one that was found.
    Knob(&'static str, &'static str),
    /// Set several together, each to its value, but those that are so already.
    Knobs(&'static [(&'static str, &'static str)]),
    /// The same at the other end of the connection.
    PeerKnob(&'static str, &'static str),
    /// Run a command; and what undoes it.
    Run(&'static str, &'static str),
    /// Something that no command does.
    Say(&'static str),
}

/// One rule.
#[derive(Debug)]
pub struct DoctorRule {
    /// Its name.
    pub id: &'static str,
    /// Letters of [`Goal`].
    pub goals: &'static str,
    /// What it is about.
    pub at: At,
    /// What must be so that it applies: a fact and its words, `a|b` for one of both.
    pub given: &'static [(&'static str, &'static str)],
    /// The facts that it needs; `a|b` for one of both.
    pub inputs: &'static [&'static str],
    /// When it fires.
    pub condition: &'static str,
    /// What that means.
    pub meaning: &'static str,
    /// What to do.
    pub advice: Advice,
    /// What is to be expected of that.
    pub effect: &'static str,
    /// What it may cost; empty when nothing.
    pub risk: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// Looks at the facts.
    pub look: fn(&Look<'_>) -> Answer,
}

/// The node that is a host's own namespace, in facts of that host.
const OWN: &str = "host";

/// All rules, by what they are about.
pub const SECTIONS: [(&str, &[&[DoctorRule]]); 6] = [
    ("CPU, power, host", &[hosts::RULES]),
    ("Interrupts, NAPI, softnet", &[interrupts::RULES]),
    ("Queues, steering, rings", &[steering::RULES]),
    ("Offloads, MTU, VLAN, qdisc", &[offloads::RULES]),
    ("TCP, UDP, IP", &[tcp::RULES, protocols::RULES]),
    ("Link, PCIe, driver, bonding, time, capture", &[links::RULES, bonds::RULES]),
];

/// Every rule, in the order of the sections.
pub fn rules() -> impl Iterator<Item = &'static DoctorRule> {
    SECTIONS.iter().flat_map(|(_, tables)| tables.iter().flat_map(|table| table.iter()))
}

/// How a rule ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleStatus {
    /// It does not apply.
    NotApplicable,
    /// It was looked at, and nothing was found.
    Ok,
    /// An input is missing.
    Unknown,
    /// Something was found.
    Finding,
}

/// What a rule says of a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorPlace {
    /// The node and interface; empty for the host.
    pub place: String,
    /// How it ended there.
    pub status: RuleStatus,
    /// The numbers that convict or acquit; of an unknown rule the input that is missing and why; else why it does not apply.
    pub evidence: String,
    /// Estimated part of the goal's quantity that it costs, 0 to 1; 0 without a finding.
    pub loss: f64,
    /// The command, or what to do; empty without a finding.
    pub command: String,
    /// What undoes it; empty when nothing needs to.
    pub undo: String,
    /// The change of a knob that is advised, as 'pathlab prove' tries it; none when it is another kind of advice.
    #[serde(default)]
    pub change: Option<AdvisedChange>,
}

/// A change of a knob in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvisedChange {
    /// The node at which the rule found something.
    pub node: String,
    /// The change belongs to the other end of what was found.
    pub at_peer: bool,
    /// `NAME=VALUE`, or `IF:NAME=VALUE`; several are joined by `+`.
    pub set: String,
    /// The link may go down for a moment.
    pub may_flap: bool,
}

/// What a rule says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its name.
    pub id: String,
    /// Its goals, by their words.
    pub goals: Vec<String>,
    /// The worst of its places.
    pub status: RuleStatus,
    /// The evidence of that place.
    pub evidence: String,
    /// The loss of that place.
    pub loss: f64,
    /// What it means.
    pub meaning: String,
    /// The command of that place.
    pub command: String,
    /// What undoes it.
    pub undo: String,
    /// What is to be expected.
    pub effect: String,
    /// What it may cost.
    pub risk: String,
    /// Who says so.
    pub source: String,
    /// Every place, the worst first.
    pub places: Vec<DoctorPlace>,
}

/// What `pathlab doctor` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// `pathlab/doctor/1`.
    pub schema: String,
    /// The goal that was asked for; none for throughput, latency and measurement.
    pub goal: Option<Goal>,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// All rules: findings first, by their loss, then those unknown, ok, not applicable.
    pub rules: Vec<RuleReport>,
    /// Settings about which goals disagree.
    pub conflicts: Vec<DoctorConflict>,
    /// How many rules ended how.
    pub counts: BTreeMap<String, u64>,
}

/// The schema of this version.
pub const SCHEMA: &str = "pathlab/doctor/1";

/// A place to look at: its name, the name of its interface, and what is known.
struct Place<'a> {
    name: String,
    node: &'a str,
    /// What leads to the node.
    within: &'a str,
    interface: &'a str,
    look: Look<'a>,
}

/// Applies every rule to every place.
///
/// Without a goal those of every host are asked for: capture and forwarding want what others do not.
pub fn examine(facts: &Facts, peer: Option<&Facts>, goal: Option<Goal>) -> DoctorReport {
    let others: Vec<&Facts> = peer.into_iter().collect();
    examine_beside(facts, &Beside { peer, others: &others, ..Beside::default() }, goal)
}

/// What is known beside the facts of a host.
#[derive(Default)]
struct Beside<'a> {
    /// The other end.
    peer: Option<&'a Facts>,
    /// Whoever may be at the other end of a link.
    others: &'a [&'a Facts],
    /// The nodes that hand frames on, to which the rules for that goal are applied, too; the host itself is the one without a name.
    forwarding: BTreeSet<String>,
}

fn examine_beside(facts: &Facts, beside: &Beside<'_>, goal: Option<Goal>) -> DoctorReport {
    let joined = neighbours::with_other_ends(facts, beside.others);
    // What makes figures worth nothing matters for every goal.
    let goals = match goal {
        Some(goal) => vec![goal, Goal::Measurement],
        None => vec![Goal::Throughput, Goal::Latency, Goal::Measurement],
    };
    let mut rules: Vec<RuleReport> = rules().map(|rule| report(rule, &joined, beside, &goals)).collect();
    rules.sort_by(|a, b| {
        (b.status, b.loss).partial_cmp(&(a.status, a.loss)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut counts = BTreeMap::new();
    for rule in &rules {
        *counts.entry(word(rule.status).to_owned()).or_insert(0) += 1;
    }
    let conflicts = conflicts::of(&joined);
    DoctorReport { schema: SCHEMA.into(), goal, seconds: facts.seconds, rules, conflicts, counts }
}

/// The word of a status.
pub fn word(status: RuleStatus) -> &'static str {
    match status {
        RuleStatus::NotApplicable => "not-applicable",
        RuleStatus::Ok => "ok",
        RuleStatus::Unknown => "unknown",
        RuleStatus::Finding => "finding",
    }
}

fn report(rule: &DoctorRule, facts: &Facts, beside: &Beside<'_>, goals: &[Goal]) -> RuleReport {
    let mut places = judged(rule, facts, beside, goals);
    places.sort_by(|a, b| {
        (b.status, b.loss).partial_cmp(&(a.status, a.loss)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let nowhere = || said("", RuleStatus::NotApplicable, "there is no interface to look at");
    let worst = places.first().cloned().unwrap_or_else(nowhere);
    let goals = Goal::ALL.iter().filter(|goal| goal.is_of(rule.goals));
    RuleReport {
        id: rule.id.into(),
        goals: goals.map(|goal| goal.word().to_owned()).collect(),
        status: worst.status,
        evidence: worst.evidence,
        loss: worst.loss,
        meaning: rule.meaning.into(),
        command: worst.command,
        undo: worst.undo,
        effect: rule.effect.into(),
        risk: rule.risk.into(),
        source: rule.source.into(),
        places,
    }
}

/// A rule at each of its places; at those alone that hand frames on where it is for that and not for what is asked, at none when it has another goal.
fn judged(rule: &DoctorRule, facts: &Facts, beside: &Beside<'_>, goals: &[Goal]) -> Vec<DoctorPlace> {
    let is_asked = goals.iter().any(|goal| goal.is_of(rule.goals));
    let is_forwarding = Goal::Forwarding.is_of(rule.goals) && !beside.forwarding.is_empty();
    if !is_asked && !is_forwarding {
        let goals = Goal::ALL.iter().filter(|goal| goal.is_of(rule.goals)).map(|goal| goal.word());
        let why = format!("it is for {}", goals.collect::<Vec<_>>().join(", "));
        return vec![said("", RuleStatus::NotApplicable, why)];
    }
    let all = places(rule.at, facts, beside.peer);
    let asked = all.iter().filter(|place| is_asked || beside.forwarding.contains(place.node));
    asked.map(|place| judge(rule, place)).collect()
}

fn places<'a>(at: At, facts: &'a Facts, peer: Option<&'a Facts>) -> Vec<Place<'a>> {
    let look = |interface: Option<&'a Known>, node: Option<&'a Known>| Look {
        known: [interface, node, Some(&facts.host)],
        peer,
        seconds: facts.seconds,
    };
    let nodes = facts.nodes.iter();
    let title = |node: &str, rest: &str| match (node, rest) {
        (OWN, rest) => rest.to_owned(),
        (node, "") => format!("node {node}"),
        (node, rest) => format!("{node}:{rest}"),
    };
    match at {
        At::Host => {
            let look = look(None, None);
            vec![Place { name: String::new(), node: "", within: "", interface: "", look }]
        }
        At::Node => nodes
            .map(|(name, node)| Place {
                name: title(name, ""),
                node: name,
                within: &node.place,
                interface: "",
                look: look(None, Some(&node.known)),
            })
            .collect(),
        At::Interface => nodes
            .flat_map(|(name, node)| {
                let place = move |(interface, known): (&'a String, &'a Known)| Place {
                    name: title(name, interface),
                    node: name,
                    within: &node.place,
                    interface,
                    look: look(Some(known), Some(&node.known)),
                };
                node.interfaces.iter().map(place)
            })
            .collect(),
    }
}

fn judge(rule: &DoctorRule, place: &Place<'_>) -> DoctorPlace {
    let (look, name) = (&place.look, place.name.as_str());
    if let Some(not) = rule.given.iter().find_map(|given| unfit(look, given)) {
        return match not {
            Ok(why) => said(name, RuleStatus::NotApplicable, why),
            Err(missing) => said(name, RuleStatus::Unknown, missing),
        };
    }
    let missing = rule.inputs.iter().find_map(|input| look.needs(input).err());
    match missing.map_or_else(|| (rule.look)(look), Err) {
        Err(missing) => said(name, RuleStatus::Unknown, missing),
        Ok(None) => said(name, RuleStatus::Ok, acquitting(rule, look)),
        Ok(Some(found)) => convicted(rule, place, &found),
    }
}

/// Why a rule does not apply, or which fact is missing that would tell; none when it applies.
fn unfit(look: &Look<'_>, (name, words): &(&str, &str)) -> Option<Result<String, String>> {
    match look.text(name) {
        Err(missing) => Some(Err(missing)),
        Ok(text) if words.split('|').any(|word| word == text) => None,
        Ok(text) => Some(Ok(format!("{name} is {text}"))),
    }
}

fn said(place: &str, status: RuleStatus, evidence: impl Into<String>) -> DoctorPlace {
    let (command, undo) = (String::new(), String::new());
    DoctorPlace {
        place: place.into(),
        status,
        evidence: evidence.into(),
        loss: 0.0,
        command,
        undo,
        change: None,
    }
}

/// What was looked at.
fn acquitting(rule: &DoctorRule, look: &Look<'_>) -> String {
    let names = rule.inputs.iter().flat_map(|input| input.split('|'));
    let one = |name: &str| Some(format!("{name} {}", look.fact(name).ok()?.words()));
    names.filter_map(one).take(4).collect::<Vec<_>>().join("; ")
}

fn convicted(rule: &DoctorRule, place: &Place<'_>, found: &Found) -> DoctorPlace {
    let advice = found.instead.unwrap_or(rule.advice);
    let (command, undo) = commands(advice, place, &found.new);
    let evidence = found.evidence.clone();
    let (loss, change) = (found.loss, change(advice, place, &found.new));
    DoctorPlace {
        place: place.name.clone(),
        status: RuleStatus::Finding,
        evidence,
        loss,
        command,
        undo,
        change,
    }
}

/// The change that is advised.
fn change(advice: Advice, place: &Place<'_>, new: &str) -> Option<AdvisedChange> {
    let (knobs, at_peer) = match advice {
        Advice::Knob(knob, value) => (vec![(knob, value)], false),
        Advice::Knobs(knobs) => (wanting(knobs, place), false),
        Advice::PeerKnob(knob, value) => (vec![(knob, value)], true),
        Advice::Run(..) | Advice::Say(_) => return None,
    };
    if place.node.is_empty() {
        return None;
    }
    let may_flap = knobs.iter().any(|(knob, _)| may_flap(knob));
    let set = |(knob, value): (&str, &str)| {
        format!("{}={}", named(knob, place.interface), filled(value, place, new, str::to_owned))
    };
    let set = knobs.into_iter().map(set).collect::<Vec<_>>().join("+");
    Some(AdvisedChange { node: place.node.into(), at_peer, set, may_flap })
}

/// The knobs that are not what they should be and can be; one of which nothing is known is one of them.
fn wanting(knobs: &[(&'static str, &'static str)], place: &Place<'_>) -> Vec<(&'static str, &'static str)> {
    // What a driver has for good is `off (fixed)`.
    let is_so = |knob: &str, value: &str| {
        place.look.text(knob).is_ok_and(|now| now == value || now.ends_with(" (fixed)"))
    };
    knobs.iter().filter(|(knob, value)| !is_so(knob, value)).copied().collect()
}

/// What to do and what undoes it, with the names and values put in.
fn commands(advice: Advice, place: &Place<'_>, new: &str) -> (String, String) {
    match advice {
        Advice::Knob(knob, value) => set_and_undo(&[(knob, value)], place, new),
        Advice::Knobs(knobs) => set_and_undo(&wanting(knobs, place), place, new),
        Advice::PeerKnob(knob, value) => {
            // Where it is, nobody knows here.
            let set = tune(&[(knob, filled(value, place, new, str::to_owned))], place.interface, "");
            let undo = quoted(&named(knob, place.interface));
            (format!("at the other end: {set}"), format!("at the other end: pathlab tune undo {undo}"))
        }
        Advice::Run(command, undo) => (entering(command, place, new), entering(undo, place, new)),
        Advice::Say(text) => (entering(text, place, new), String::new()),
    }
}

/// Commands of the system that are about the namespace in which they are given.
const OF_NAMESPACES: [&str; 4] = ["ethtool ", "ip ", "tc ", "hwstamp_ctl "];

/// Words with what they want put in, and those commands so that they are about the place's namespace.
fn entering(words: &str, place: &Place<'_>, new: &str) -> String {
    let enter = match place.within.split_once(' ') {
        Some(("--lab", word)) => {
            let words = word.split('/').map(quoted).collect::<Vec<_>>();
            format!("pathlab lab exec {} -- ", words.join(" "))
        }
        Some((_, word)) => match (word.strip_prefix("pid:"), word.contains('/')) {
            (Some(pid), _) => format!("nsenter {} ", quoted(&format!("--net=/proc/{pid}/ns/net"))),
            (None, true) => format!("nsenter {} ", quoted(&format!("--net={word}"))),
            (None, false) => format!("ip netns exec {} ", quoted(word)),
        },
        None => String::new(),
    };
    let one = |part: &str| {
        let is_of = OF_NAMESPACES.iter().any(|begin| part.starts_with(begin));
        let enter = if is_of { enter.as_str() } else { "" };
        // A setting that a text ends with is made there, too.
        let within =
            if part.contains("pathlab tune set ") { within(&[""], place.within) } else { String::new() };
        format!("{enter}{}{within}", filled(part, place, new, quoted))
    };
    words.split("; ").map(one).collect::<Vec<_>>().join("; ")
}

/// The command that sets knobs, and the one that sets what they were; where that is not known, the one that undoes what was set.
fn set_and_undo(knobs: &[(&str, &str)], place: &Place<'_>, new: &str) -> (String, String) {
    let values: Vec<_> =
        knobs.iter().map(|(knob, value)| (*knob, filled(value, place, new, str::to_owned))).collect();
    let old: Result<Vec<_>, _> =
        knobs.iter().map(|(knob, _)| place.look.text(knob).map(|old| (*knob, old))).collect();
    let undo = || {
        let one = |(knob, _): &(&str, &str)| {
            // A change of the machine was made in no namespace.
            let is_inside = knob.starts_with("sysctl net.") || !place.interface.is_empty();
            let within = if is_inside { within(&[knob], place.within) } else { String::new() };
            format!("pathlab tune undo {}{within}", quoted(&named(knob, place.interface)))
        };
        knobs.iter().rev().map(one).collect::<Vec<_>>().join("; ")
    };
    let undo = old.map_or_else(|_| undo(), |old| tune(&old, place.interface, place.within));
    (tune(&values, place.interface, place.within), undo)
}

/// Words with `NEW`, `IF` and facts in braces put in, each as `word` writes it. What is put in is a stranger's (the name of an
/// interface, a text of facts from another host) and is not looked into again.
fn filled(text: &str, place: &Place<'_>, new: &str, word: fn(&str) -> String) -> String {
    let (mut words, mut rest) = (String::new(), text);
    while let Some((at, mark)) =
        ["NEW", "IF", "{"].iter().filter_map(|mark| Some((rest.find(mark)?, *mark))).min()
    {
        words.push_str(&rest[..at]);
        rest = &rest[at + mark.len()..];
        words.push_str(&match (mark, rest.split_once('}')) {
            ("NEW", _) => word(new),
            ("{", Some((name, after))) => {
                rest = after;
                word(&place.look.text(name).unwrap_or_else(|_| "OLD".into()))
            }
            ("IF", _) if !place.interface.is_empty() => word(place.interface),
            _ => mark.to_owned(),
        });
    }
    words + rest
}

/// Knobs for which a link may go down for a moment.
const FLAPPING: [&str; 5] = ["ring.", "channels.", "pause.", "eee.", "mtu"];

fn may_flap(knob: &str) -> bool {
    FLAPPING.iter().any(|begin| knob.starts_with(begin))
}

/// Sysctls that only the first namespace can set, whether the others show them or not.
const OF_FIRST: [&str; 7] = [
    "sysctl net.core.rps_sock_flow_entries",
    "sysctl net.core.netdev_tstamp_prequeue",
    "sysctl net.core.rmem_max",
    "sysctl net.core.wmem_max",
    "sysctl net.core.rmem_default",
    "sysctl net.core.wmem_default",
    "sysctl net.netfilter.nf_conntrack_max",
];

/// The name of a knob as `pathlab tune` takes it: a sysctl's and a CPU's have no interface.
fn named(knob: &str, interface: &str) -> String {
    match knob.strip_prefix("sysctl ") {
        Some(name) => name.into(),
        None if interface.is_empty() => knob.into(),
        None => format!("{interface}:{knob}"),
    }
}

/// How knobs of one place are set, to which `within` leads: those that only the first namespace can set by a command of their own.
fn tune(knobs: &[(&str, String)], interface: &str, within: &str) -> String {
    let (first, others): (Vec<_>, Vec<_>) = knobs.iter().cloned().partition(|(knob, _)| is_of_first(knob));
    let parts = match within.is_empty() {
        true => vec![knobs],
        false => vec![first.as_slice(), others.as_slice()],
    };
    let parts = parts.into_iter().filter(|knobs| !knobs.is_empty());
    parts.map(|knobs| tune_together(knobs, interface, within)).collect::<Vec<_>>().join("; ")
}

fn is_of_first(knob: &str) -> bool {
    OF_FIRST.contains(&knob)
}

fn tune_together(knobs: &[(&str, String)], interface: &str, within: &str) -> String {
    let flaps = if knobs.iter().any(|(knob, _)| may_flap(knob)) { " --allow-link-flap" } else { "" };
    let is_sysctl = |knob: &str| knob.starts_with("sysctl ");
    let set = |(knob, value): &(&str, String)| {
        quoted(&format!("{}={value}", knob.strip_prefix("sysctl ").unwrap_or(knob)))
    };
    let of = match interface.is_empty() || knobs.iter().all(|(knob, _)| is_sysctl(knob)) {
        true => String::new(),
        false => quoted(interface) + " ",
    };
    let words = knobs.iter().map(set).collect::<Vec<_>>().join(" ");
    let names: Vec<&str> = knobs.iter().map(|(knob, _)| *knob).collect();
    format!("pathlab tune set {of}{words}{flaps}{}", self::within(&names, within))
}

/// The option that leads to the namespace of knobs, behind a blank; none for those that only the first one can set.
fn within(knobs: &[&str], place: &str) -> String {
    let option = place.split_once(' ').filter(|_| !knobs.iter().all(|knob| is_of_first(knob)));
    option.map_or(String::new(), |(option, word)| format!(" {option} {}", quoted(word)))
}

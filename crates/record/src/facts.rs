//! Facts: what a host is set to, what it is made of, and what its counters did in a window.
//!
//! **What.** Every fact has a name (`ring.rx`, `sysctl net.core.rmem_max`, `softnet.dropped`) and a typed value; a counter has two
//! readings; what cannot be told is a fact, too, and says why. Some facts have a value for each place ([`Fact::Each`]): a CPU, a queue,
//! an interrupt, a connection.
//!
//! **Why names and not fields.** A rule of `pathlab doctor` names its inputs, so that it can be told which of them is missing, and facts that were taken
//! by another version are read by the same rules: a name that is not there is unknown. The texts of the kernel's small files are kept
//! as they were, for versions that read more of them.

use crate::Delta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of this version.
pub const SCHEMA: &str = "pathlab/facts/1";

/// What is known of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a fact is a number, a text, true, false, or an object with before and after, each, or unknown"
)]
pub enum Fact {
    /// On or off.
    Flag(bool),
    /// A number; the name's end or the documentation has the unit.
    Number(f64),
    /// Words as the kernel has them.
    Text(String),
    /// A counter at the begin and at the end of the window.
    Counter {
        /// At the begin.
        before: u64,
        /// At the end.
        after: u64,
    },
    /// A value for each place.
    Each {
        /// By place: `0` of a CPU, `rx-0` of a queue.
        each: BTreeMap<String, Fact>,
    },
    /// It is not known.
    Unknown {
        /// Why not.
        unknown: String,
    },
}

impl Fact {
    /// A fact that is not known.
    pub fn unknown(why: impl Into<String>) -> Fact {
        Fact::Unknown { unknown: why.into() }
    }

    /// Values by place.
    pub fn each(places: impl IntoIterator<Item = (String, Fact)>) -> Fact {
        Fact::Each { each: places.into_iter().collect() }
    }

    /// Words of the kernel: a number where it is one.
    pub fn word(text: &str) -> Fact {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Fact::Number(number),
            _ => Fact::Text(text.to_owned()),
        }
    }

    /// Why it is not known: itself, one of its places, or a counter that ran backwards. None when it is.
    pub fn why_unknown(&self) -> Option<String> {
        match self {
            Fact::Unknown { unknown } => Some(unknown.clone()),
            Fact::Each { each } => {
                each.iter().find_map(|(place, fact)| Some(format!("{place}: {}", fact.why_unknown()?)))
            }
            Fact::Counter { before, after } => {
                let delta = Delta::of(*before, *after);
                delta.known().is_none().then(|| format!("the counter went from {before} to {after}: {delta}"))
            }
            _ => None,
        }
    }

    /// For people, on one line: a number, a word, `+12` of a counter.
    pub fn words(&self) -> String {
        match self {
            Fact::Flag(true) => "on".into(),
            Fact::Flag(false) => "off".into(),
            Fact::Number(number) => format!("{number}"),
            Fact::Text(text) => text.replace(char::is_control, " "),
            Fact::Counter { before, after } => match Delta::of(*before, *after).known() {
                Some(moved) => format!("+{moved}"),
                None => "?".into(),
            },
            Fact::Each { each } => {
                let one = |(place, fact): (&String, &Fact)| format!("{place}: {}", fact.words());
                let first: Vec<String> = each.iter().take(4).map(one).collect();
                let more = if each.len() > first.len() { ", …" } else { "" };
                if first.is_empty() { "none".into() } else { format!("{}{more}", first.join(", ")) }
            }
            Fact::Unknown { unknown } => format!("unknown ({unknown})"),
        }
    }
}

/// Facts by name.
pub type Known = BTreeMap<String, Fact>;

/// Facts of a namespace, and of its interfaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// What leads there, as pathlab takes it: `--in NAMESPACE`, `--lab LAB/NODE`; empty for our own namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// What is so for all of it.
    pub known: Known,
    /// By interface.
    pub interfaces: BTreeMap<String, Known>,
    /// Texts of the kernel's files at the begin and at the end, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, [String; 2]>,
}

/// What is known of a host and of nodes on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// `pathlab/facts/1`.
    pub schema: String,
    /// pathlab's version.
    pub pathlab: String,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// The host.
    pub host: Known,
    /// Its nodes; `host` is our own namespace.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// CPU time that reading took, in nanoseconds.
    pub cost_cpu_ns: u64,
}

/// What another reading of the same names makes of one: counters and settings that changed in between.
pub fn joined(before: &Known, after: &Known) -> Known {
    let mut changed = BTreeMap::new();
    let both = |(name, old): (&String, &Fact)| {
        let new =
            after.get(name).cloned().unwrap_or_else(|| Fact::unknown("it was gone at the end of the window"));
        (name.clone(), join(name, old, new, &mut changed))
    };
    let mut known: Known = before.iter().map(both).collect();
    for (name, fact) in stale(after, "it was not there at the begin of the window") {
        known.entry(name).or_insert(fact);
    }
    known.insert("changed".into(), Fact::each(changed));
    known
}

/// What a single reading tells of a window: its counters are not known, all else is.
pub fn stale(reading: &Known, why: &str) -> Known {
    let one = |(name, fact): (&String, &Fact)| {
        let fact = match fact {
            Fact::Counter { .. } => Fact::unknown(why),
            Fact::Each { each } => Fact::Each { each: stale(each, why) },
            other => other.clone(),
        };
        (name.clone(), fact)
    };
    reading.iter().map(one).collect()
}

fn join(name: &str, old: &Fact, new: Fact, changed: &mut Known) -> Fact {
    match (old, new) {
        (Fact::Counter { before, .. }, Fact::Counter { after, .. }) => {
            Fact::Counter { before: *before, after }
        }
        (Fact::Each { each: old }, Fact::Each { each: new }) => {
            let place = |(place, fact): (String, Fact)| {
                let joined = match old.get(&place) {
                    Some(old) => join(&format!("{name}@{place}"), old, fact, changed),
                    // A connection or a thread that is new has no window.
                    None if matches!(fact, Fact::Counter { .. }) => return None,
                    None => fact,
                };
                Some((place, joined))
            };
            Fact::each(new.into_iter().filter_map(place).collect::<Vec<_>>())
        }
        (_, new) => {
            if is_setting(old) && is_setting(&new) && *old != new {
                changed.insert(name.to_owned(), Fact::Text(format!("{} → {}", old.words(), new.words())));
            }
            new
        }
    }
}

fn is_setting(fact: &Fact) -> bool {
    matches!(fact, Fact::Flag(_) | Fact::Number(_) | Fact::Text(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(at: u64) -> Fact {
        Fact::Counter { before: at, after: at }
    }

    fn known(rows: &[(&str, Fact)]) -> Known {
        rows.iter().map(|(name, fact)| ((*name).to_owned(), fact.clone())).collect()
    }

    #[test]
    fn two_readings_are_a_window_and_tell_what_changed() {
        let places = |a: Fact, b: Fact| Fact::each([("0".to_owned(), a), ("1".to_owned(), b)]);
        let before = known(&[
            ("drops", counter(5)),
            ("mtu", Fact::Number(1500.0)),
            ("irq", places(Fact::word("0"), counter(2))),
            ("gone", counter(1)),
        ]);
        let after = known(&[
            ("drops", counter(9)),
            ("mtu", Fact::Number(9000.0)),
            ("irq", places(Fact::word("0-1"), counter(2))),
            ("new", counter(1)),
            ("queue", places(Fact::word("0"), counter(7))),
        ]);
        let window = joined(&before, &after);
        assert_eq!(window["drops"], Fact::Counter { before: 5, after: 9 });
        assert!(window["gone"].why_unknown().unwrap().contains("gone"));
        assert!(window["new"].why_unknown().unwrap().contains("begin"));
        assert!(window["queue"].why_unknown().unwrap().starts_with("1: it was not there"));
        assert_eq!(window["changed"].words(), "irq@0: 0 → 0-1, mtu: 1500 → 9000");
    }

    #[test]
    fn words_are_one_line() {
        assert_eq!(Fact::Text("4096\t131072\n 1. FAKE".into()).words(), "4096 131072  1. FAKE");
    }

    #[test]
    fn a_counter_that_ran_backwards_is_unknown() {
        let back = Fact::Counter { before: 5, after: 4 };
        assert!(back.why_unknown().unwrap().contains("from 5 to 4"));
        let each = Fact::each([("3".to_owned(), Fact::unknown("no such file"))]);
        assert_eq!(each.why_unknown().as_deref(), Some("3: no such file"));
        assert_eq!(Fact::Flag(false).why_unknown(), None);
    }

    #[test]
    fn facts_are_read_back_as_they_were_written() {
        let all = known(&[
            ("a", Fact::Flag(true)),
            ("b", Fact::Number(1.5)),
            ("c", Fact::Text("4096 8192".into())),
            ("d", Fact::Counter { before: 1, after: 1 << 52 }),
            ("e", Fact::each([("0".to_owned(), Fact::unknown("why"))])),
            ("f", Fact::unknown("")),
            ("g", Fact::each([])),
        ]);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Known>(&text).unwrap(), all);
        assert_eq!(Fact::word("12"), Fact::Number(12.0));
        assert_eq!(Fact::word("nan"), Fact::Text("nan".into()));
    }
}

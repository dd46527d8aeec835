//! The knobs that are usually tried for a goal, where nobody named any: a row each.

use crate::change::LabChange;
use crate::notices::Notices;
use crate::plan::Plan;
use crate::testbed::UnderTest;
use linux::tune::kept::name_of;
use linux::tune::row;
use record::{ProblemKind, Result};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use study::doctor::Goal;

/// Which ends of a test have the knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Sender,
    Receiver,
    Both,
}

/// A knob to try.
struct Usual {
    /// Letters of [`Goal`].
    goals: &'static str,
    end: End,
    name: &'static str,
    values: &'static [&'static str],
}

const fn usual(goals: &'static str, end: End, name: &'static str, values: &'static [&'static str]) -> Usual {
    Usual { goals, end, name, values }
}

use End::{Both, Receiver, Sender};

const KNOBS: [Usual; 16] = [
    usual("T", Sender, "feature.tx-tcp-segmentation", &["on"]),
    usual("T", Sender, "feature.tx-tcp6-segmentation", &["on"]),
    usual("T", Sender, "feature.tx-generic-segmentation", &["on"]),
    usual("TL", Receiver, "feature.rx-gro", &["on", "off"]),
    usual("TL", Receiver, "threaded", &["1"]),
    usual("TL", Receiver, "gro_flush_timeout", &["0", "20000"]),
    usual("T", Sender, "qdisc", &["fq", "fq_codel"]),
    usual("L", Both, "coalesce.adaptive-rx", &["off"]),
    usual("TL", Both, "coalesce.rx-usecs", &["0", "8", "64"]),
    usual("T", Sender, "net.ipv4.tcp_congestion_control", &["cubic", "bbr"]),
    usual("T", Sender, "net.ipv4.tcp_wmem", &["4096 262144 33554432"]),
    usual("T", Receiver, "net.ipv4.tcp_rmem", &["4096 262144 33554432"]),
    usual("T", Sender, "net.ipv4.tcp_limit_output_bytes", &["4194304"]),
    usual("TL", Sender, "net.ipv4.tcp_autocorking", &["0"]),
    usual("L", Both, "net.core.busy_poll", &["50"]),
    usual("L", Both, "net.core.busy_read", &["50"]),
];

/// The changes that are usually tried for a goal at the ends of a plan's tests, each once. Whether a node has the knob is another question; of a
/// host that does not tell its interfaces those of the host are listed, and that is said.
///
/// # Errors
/// Input: a test names a node that is not under test.
pub fn changes(
    place: UnderTest<'_>,
    plan: &Plan,
    goal: Goal,
    notices: &dyn Notices,
) -> Result<Vec<LabChange>> {
    let mut all: Vec<LabChange> = vec![];
    let mut known: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for node in plan.tests.iter().flat_map(|test| [&*test.spec.from, &*test.spec.to]) {
        if let Entry::Vacant(entry) = known.entry(node) {
            entry.insert(interfaces(place, node, notices)?);
        }
    }
    for (test, usual) in plan.tests.iter().flat_map(|test| of_goal(goal).map(move |usual| (test, usual))) {
        for node in usual.end.nodes(&test.spec.from, &test.spec.to) {
            for text in usual.texts(node, known[node].iter().map(String::as_str)) {
                let change = LabChange::parse(&text)?;
                all.extend((!all.contains(&change)).then_some(change));
            }
        }
    }
    Ok(all)
}

fn interfaces(place: UnderTest<'_>, node: &str, notices: &dyn Notices) -> Result<Vec<String>> {
    place.interfaces(node).or_else(|problem| match problem.kind {
        ProblemKind::Host => {
            notices.note(&format!("{node}: its interfaces are not known: {problem}"));
            Ok(vec![])
        }
        _ => Err(problem),
    })
}

fn of_goal(goal: Goal) -> impl Iterator<Item = &'static Usual> {
    KNOBS.iter().filter(move |usual| goal.is_of(usual.goals))
}

impl End {
    fn nodes<'a>(self, from: &'a str, to: &'a str) -> Vec<&'a str> {
        match self {
            Sender => vec![from],
            Receiver => vec![to],
            Both => vec![from, to],
        }
    }
}

impl Usual {
    /// Its changes at a node with these interfaces, as they are written.
    fn texts<'a>(&self, node: &str, interfaces: impl Iterator<Item = &'a str>) -> Vec<String> {
        let (_, name) = name_of(self.name, None);
        let of_interface = row(&name).is_some_and(|(row, _)| row.place.is_of_interface());
        let places: Vec<String> = match of_interface {
            true => interfaces.map(|name| format!("{node}/{name}:{}", self.name)).collect(),
            false => vec![format!("{node}/{}", self.name)],
        };
        let each = |place: String| self.values.iter().map(move |value| format!("{place}={value}"));
        places.into_iter().flat_map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::HostPair;
    use record::Problem;
    use std::cell::RefCell;

    #[derive(Default)]
    struct Notes(RefCell<Vec<String>>);

    impl Notices for Notes {
        fn note(&self, line: &str) {
            self.0.borrow_mut().push(line.into());
        }
        fn warn(&self, _: &Problem) {}
        fn part(&self, _: &str, _: u64, _: u64) {}
    }

    #[test]
    fn between_hosts_the_interface_that_leads_to_the_other_one_is_tried() {
        // Nobody answers at the first port: of the other host only what belongs to no interface is known.
        let pair = HostPair { name: "127.0.0.1:1".into(), near: "a".into(), far: "b".into(), via: vec![] };
        let plan = Plan::parse("topology pair\ntest tcp-rr\n", "p").unwrap();
        let notes = Notes::default();
        let all = changes(UnderTest::Hosts(&pair), &plan, Goal::Latency, &notes).unwrap();
        let texts: Vec<&str> = all.iter().map(|change| change.text.as_str()).collect();
        assert!(texts.contains(&"a/lo:coalesce.adaptive-rx=off"), "{texts:?}");
        assert!(texts.contains(&"b/net.core.busy_poll=50"), "{texts:?}");
        assert!(!texts.iter().any(|text| text.starts_with("b/") && text.contains(':')), "{texts:?}");
        let notes = notes.0.into_inner();
        assert!(notes.len() == 1 && notes[0].starts_with("b: its interfaces are not known"), "{notes:?}");
    }

    #[test]
    fn each_row_is_a_knob_of_the_table() {
        for usual in &KNOBS {
            let goals = Goal::ALL.iter().filter(|goal| goal.is_of(usual.goals)).count();
            assert_eq!(goals, usual.goals.len(), "{}", usual.name);
            for text in usual.texts("a", ["eth0"].into_iter()) {
                let change = LabChange::parse(&text).unwrap();
                assert!(row(&change.asks[0].name).is_some(), "{text}");
            }
        }
    }
}

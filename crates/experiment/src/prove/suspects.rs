//! What is worth trying: the doctor looks at the nodes of a lab while a test runs, and each knob that it would turn becomes a change.
//!
//! **What.** Each test of a plan runs once, long enough for a window in its middle, and has a record like any other. When its frames flow, facts of all nodes
//! are taken over the window ([`crate::doctor::take`]) and the rules are asked. What they advise is listed once, the largest estimated loss first.
//!
//! **Price.** Two readings of all facts beside the test, so its figures are not comparable with others; a trial follows for each change.

use super::{Changed, LabChange, search};
use crate::doctor::{FactWish, take};
use crate::notices::Notices;
use crate::plan::Plan;
use crate::session::Course;
use linux::lab::Lab;
use linux::sys::netns;
use record::trial::Suspect;
use record::{Delta, Problem, Result, TestSpec};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use study::doctor::{AdvisedChange, DoctorReport, Goal, RuleStatus, examine};

/// How long the facts are watched.
const WINDOW: Duration = Duration::from_millis(800);
/// How long a test must be for that, with time to begin and to end.
const TEST_MS: u64 = 2_500;
/// How often it is looked whether frames flow.
const LOOK: Duration = Duration::from_millis(50);
/// This many segments and datagrams in that time count as traffic.
const SOME: u64 = 5;

/// Runs each test of a plan once and asks the doctor meanwhile. What cannot be tried is listed with the reason.
///
/// # Errors
/// As [`Course::measure`], and what facts cannot be taken for.
pub fn find(
    lab: &Lab,
    plan: &Plan,
    course: &mut Course<'_>,
    may_flap: bool,
    notices: &dyn Notices,
) -> Result<Vec<Suspect>> {
    let mut plan = plan.clone();
    plan.tests.iter_mut().for_each(|test| test.spec.duration_ms = test.spec.duration_ms.max(TEST_MS));
    let mut all = vec![];
    for test in 0..plan.tests.len() {
        let spec = plan.tests[test].spec.clone();
        notices.part("asking the doctor", test as u64, plan.tests.len() as u64);
        let work = || course.measure(&plan, test, 1, test as u32 + 1, notices).map(drop);
        let (report, sends) = beside(lab, &spec, work)?;
        if !sends {
            let name = &plan.tests[test].name;
            notices.note(&format!("{name}: no frames flowed, or few; the doctor looked at the lab after it"));
        }
        all.extend(suspects(&report, &spec, may_flap));
    }
    let mut all = ranked(all);
    for suspect in all.iter_mut().filter(|suspect| suspect.left_out.is_none()) {
        suspect.left_out = refusal(lab, &suspect.change, may_flap)?;
    }
    Ok(all)
}

/// Why a change cannot be made or is none; nothing when it can be tried.
fn refusal(lab: &Lab, change: &str, may_flap: bool) -> Result<Option<String>> {
    let made = LabChange::parse(change).and_then(|change| match search::is_so(lab, &change)? {
        true => Err(Problem::input(search::ALREADY)),
        false => Changed::make(&linux::undo::journals()?, lab, &[change], may_flap),
    });
    made.map_or_else(|problem| Ok(Some(problem.to_string())), |made| made.put_back().map(|()| None))
}

/// Facts of all nodes while the work goes on, judged for what the test is for; and whether frames flowed when they were taken.
fn beside(lab: &Lab, spec: &TestSpec, work: impl FnOnce() -> Result<()>) -> Result<(DoctorReport, bool)> {
    let own = |node: &linux::lab::Node| -> Result<(String, OwnedFd)> {
        let lost = |error| Problem::host(format!("the node {} cannot be kept: {error}", node.name()));
        Ok((node.name().to_owned(), node.netns().as_fd().try_clone_to_owned().map_err(lost)?))
    };
    let nodes = lab.nodes().iter().map(own).collect::<Result<_>>()?;
    let wish = FactWish { nodes: Some(nodes), interface: None, window: WINDOW };
    let (sender, ended) = (lab.node(&spec.from)?.netns(), AtomicBool::new(false));
    let (facts, sends) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let sends = until_it_sends(|| sent(sender.as_fd()), || ended.load(Ordering::Relaxed));
            Ok((take(&wish, |_| {})?, sends))
        });
        let done = work();
        ended.store(true, Ordering::Relaxed);
        let facts = watch.join().map_err(|_| Problem::host("facts could not be taken"))?;
        done.and(facts)
    })?;
    let goal = if spec.kind.is_round_trip() { Goal::Latency } else { Goal::Throughput };
    Ok((examine(&facts, None, Some(goal)), sends))
}

/// Waits until frames flow, or the test is over; whether they flow.
fn until_it_sends(sent: impl Fn() -> Option<u64>, is_over: impl Fn() -> bool) -> bool {
    let mut before = sent();
    while !is_over() {
        std::thread::sleep(LOOK);
        let now = sent();
        let moved = before.zip(now).and_then(|(before, now)| Delta::of(before, now).known());
        if moved.is_some_and(|moved| moved >= SOME) {
            return true;
        }
        before = now;
    }
    false
}

/// Segments, datagrams and messages of ICMP that a namespace sent; none when it cannot be read.
fn sent(namespace: std::os::fd::BorrowedFd<'_>) -> Option<u64> {
    let text =
        netns::within(namespace, || std::fs::read_to_string("/proc/thread-self/net/snmp")).ok()?.ok()?;
    let of = |(protocol, name)| column(&text, protocol, name);
    [("Tcp:", "OutSegs"), ("Udp:", "OutDatagrams"), ("Icmp:", "OutMsgs")].map(of).into_iter().sum()
}

/// A number of `/proc/net/snmp`: a line of names, and one of values, each behind the protocol.
fn column(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let at = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
    lines.next()?.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// The changes that a report advises.
fn suspects(report: &DoctorReport, spec: &TestSpec, may_flap: bool) -> Vec<Suspect> {
    let found = report.rules.iter().filter(|rule| rule.status == RuleStatus::Finding);
    let places = found.flat_map(|rule| rule.places.iter().map(move |place| (rule, place)));
    places
        .filter_map(|(rule, place)| {
            let change = place.change.as_ref()?;
            let left_out =
                (change.may_flap && !may_flap).then(|| "it may take the link down: --allow-link-flap".into());
            Some(Suspect {
                rule: rule.id.clone(),
                place: place.place.clone(),
                evidence: place.evidence.clone(),
                loss: place.loss,
                change: format!("{}/{}", node(change, spec), change.set),
                left_out,
            })
        })
        .collect()
}

/// Where a change belongs: the other end of a test is the one that the rule did not look at.
fn node<'a>(change: &'a AdvisedChange, spec: &'a TestSpec) -> &'a str {
    match change.at_peer {
        false => &change.node,
        true if change.node == spec.from => &spec.to,
        true => &spec.from,
    }
}

/// The largest loss first, each change once.
fn ranked(mut all: Vec<Suspect>) -> Vec<Suspect> {
    all.sort_by(|a, b| b.loss.total_cmp(&a.loss));
    let mut kept: Vec<Suspect> = vec![];
    for one in all {
        if !kept.iter().any(|other| other.change == one.change) {
            kept.push(one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: InSegs OutSegs\nTcp: 3 4\nUdpLite: OutDatagrams\nUdpLite: 9\n";
        assert_eq!(column(text, "Tcp:", "OutSegs"), Some(4));
        assert_eq!(column(text, "Udp:", "OutDatagrams"), None);
    }

    #[test]
    fn it_waits_until_much_is_sent_or_the_test_is_over() {
        let calls = std::cell::Cell::new(0);
        let sent = || {
            calls.set(calls.get() + 1);
            [Some(0), Some(2), None, Some(20), Some(21), Some(40), Some(41)][calls.get() - 1]
        };
        assert!(until_it_sends(sent, || false));
        assert_eq!(calls.get(), 6);
        assert!(!until_it_sends(|| None, || true));
    }

    #[test]
    fn each_change_is_listed_once_by_its_loss() {
        let one = |change: &str, loss| Suspect { change: change.into(), loss, ..Suspect::default() };
        let order: Vec<String> = ranked(vec![one("x", 0.1), one("y", 0.5), one("x", 0.9)])
            .into_iter()
            .map(|one| one.change)
            .collect();
        assert_eq!(order, ["x", "y"]);
    }

    #[test]
    fn a_change_at_the_other_end_goes_to_the_other_node_of_the_test() {
        let spec = TestSpec { from: "a".into(), to: "b".into(), ..TestSpec::default() };
        let change = |node: &str, at_peer| AdvisedChange {
            node: node.into(),
            at_peer,
            set: "x=1".into(),
            may_flap: false,
        };
        assert_eq!(node(&change("a", true), &spec), "b");
        assert_eq!(node(&change("b", true), &spec), "a");
        assert_eq!(node(&change("r", false), &spec), "r");
    }
}

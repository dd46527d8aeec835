//! What a reader must know about a run before believing its numbers.
//!
//! A rule is a row of [`RULES`]: a claim, and its evidence if it holds for a test. Residuals have several claims. Losses are
//! summed per station over the repetitions of a test, so that a run with many repetitions does not repeat itself.

use crate::{table, validity};
use record::delta::sum;
use record::drop::{self, Fate};
use record::ledger::Station;
use record::unit::{self, time_ns};
use record::{
    Delta, DropSource, EndReport, Finding, Problem, RunRecord, Severity, TestRecord, Trust, WitnessStatus,
};
use std::collections::{BTreeMap, BTreeSet};

/// Observing may cost this share of a test's time before it is mentioned.
const OBSERVER_SHARE: f64 = 0.01;
/// What is claimed of a test whose figures are not valid.
const INVALID: &str = "the measurement is not valid";
/// What is claimed of a test whose figures may have been disturbed.
const SUSPECT: &str = "the measurement is suspect";
/// Frames that a link's IP layer may see as one.
const OFFLOADS: [&str; 4] = ["tso on", "gso on", "gro on", "lro on"];

/// How much it matters, the claim, the evidence if it holds for a test, and what to do.
type Rule = (Severity, &'static str, fn(&TestRecord) -> Option<String>, &'static str);

const UNSEEN: Rule = (
    Severity::Note,
    "a host between the two ends is not in the ledger",
    crate::hosts::unseen,
    "look whether it is on the way, and whether 'pathlab serve --observe' runs there as root",
);

const RULES: &[Rule] = &[
    (
        Severity::Loss,
        INVALID,
        |test| validity::reasons(test, Trust::Invalid),
        "do not use this number; repeat the test",
    ),
    (
        Severity::Warning,
        SUSPECT,
        |test| validity::reasons(test, Trust::Suspect),
        "repeat the test without what disturbed it before comparing",
    ),
    (
        Severity::Warning,
        "the generator did not keep its schedule",
        |test| generator(test).filter(|_| test.limit.what == "shaper"),
        "the path held the sender back: ask for less, or raise the shaper's rate",
    ),
    (
        Severity::Warning,
        "the generator did not keep its schedule",
        |test| generator(test).filter(|_| test.limit.what != "shaper"),
        "ask for less, or use larger batches: what the path can carry was not reached",
    ),
    (
        Severity::Note,
        "frames on the path were super-frames",
        |test| {
            let is_on = |line: &&String| OFFLOADS.iter().any(|off| line.contains(off));
            let matters = test.kind.is_bytes() || test.spec.gso > 1;
            joined(test.offloads.iter().filter(is_on).cloned()).filter(|_| matters)
        },
        "switch offloads off to measure frames of wire size",
    ),
    (
        Severity::Note,
        "p99.9 is the longest of too few samples",
        |test| {
            let latency = test.latency_ns.as_ref().filter(|latency| latency.count < 1000)?;
            Some(format!("timed: {}", unit::many(latency.count, "message")))
        },
        "send at least 1,000 messages, better 10,000",
    ),
    (
        Severity::Note,
        "observing cost more than 1 % of a CPU",
        |test| {
            let (cost, length) = (test.observer_cpu_ns as f64, test.seconds * 1e9);
            let evidence = || format!("{} of CPU for a test of {}", time_ns(cost), time_ns(length));
            (cost / length.max(1.0) > OBSERVER_SHARE).then(evidence)
        },
        "test longer, so that the two snapshots weigh less",
    ),
    (
        Severity::Loss,
        "the accept queue of a listening socket overflowed",
        |test| {
            let moved = |counter| Delta::of_protocol(&test.before, &test.after, &test.spec.to, counter);
            let overflows = moved("TcpExt.ListenOverflows");
            overflows.known().filter(|&overflows| overflows > 0)?;
            Some(format!("ListenOverflows {overflows}, ListenDrops {}", moved("TcpExt.ListenDrops")))
        },
        "accept faster, or raise the backlog of listen and net.core.somaxconn",
    ),
    // A few spurious ones are in every fast stream; from one in a thousand on they change what the rate means.
    (Severity::Warning, SENT_AGAIN, |test| retransmissions(test, |share| share >= 0.1), LOOK_FOR_DROPS),
    (Severity::Note, SENT_AGAIN, |test| retransmissions(test, |share| share < 0.1), LOOK_FOR_DROPS),
    (
        Severity::Warning,
        "counters and the witness do not agree",
        |test| {
            let witness = &test.ledger.as_ref()?.witness;
            (witness.status == WitnessStatus::Disagrees).then(|| witness.disagreement.join("; "))
        },
        "trust neither count at this node before the difference is understood",
    ),
    (
        Severity::Warning,
        "a setting that was asked for did not take effect",
        |test| {
            let ends = [("sender", &test.sender), ("receiver", &test.receiver)];
            let of = |(end, report): (&'static str, &EndReport)| {
                let refused = report.settings.refused.iter();
                refused.map(move |what| format!("{end}: {what}")).collect::<Vec<_>>()
            };
            joined(ends.into_iter().flat_map(of))
        },
        "the result is that of the system's own setting",
    ),
    (
        Severity::Note,
        "the sender or the receiver notes something",
        |test| {
            let ends = [("sender", &test.sender), ("receiver", &test.receiver)];
            let of = |(end, report): (&'static str, &EndReport)| {
                report.notes.iter().map(move |note| format!("{end}: {note}")).collect::<Vec<_>>()
            };
            joined(ends.into_iter().flat_map(of))
        },
        "read the figures with this in mind",
    ),
    UNSEEN,
    (
        Severity::Warning,
        "stations of the path could not be read",
        |test| {
            let unknown = |station: &Station| {
                let why = station.unknown.as_ref()?;
                Some(format!("{} of node {}: {why}", station.station, station.node))
            };
            joined(test.ledger.as_ref()?.stations.iter().filter_map(unknown))
        },
        "losses there show up further down the path",
    ),
    (
        Severity::Note,
        "some counters could not be read or were not settled",
        missing_sources,
        "what was not read is unknown, not zero",
    ),
    (
        Severity::Note,
        "messages came out of order or twice",
        |test| {
            let [late, twice, all] =
                [test.received.reordered, test.received.duplicates, test.received.datagrams].map(unit::count);
            let evidence = || format!("{late} out of order, {twice} more than once, of {all}");
            (test.received.reordered + test.received.duplicates > 0).then(evidence)
        },
        "look for parallel ways on the path",
    ),
];

/// What must be known of the hosts of a test between two that stands alone.
pub fn of_hosts(test: &TestRecord) -> Vec<Finding> {
    let (severity, claim, unseen, advice) = UNSEEN;
    let unseen = unseen(test).map(|evidence| finding(test, severity, claim, evidence, advice));
    unseen.into_iter().chain(crate::hosts::differences(test)).collect()
}

/// What the rules say of a test.
fn by_rules(test: &TestRecord) -> impl Iterator<Item = (&TestRecord, Finding)> {
    let rule = |(severity, claim, evidence, advice): &Rule| {
        Some(finding(test, *severity, claim, evidence(test)?, advice))
    };
    let found: Vec<Finding> = RULES.iter().filter_map(rule).chain(unexplained(test)).collect();
    found.into_iter().map(move |finding| (test, finding))
}

/// Clauses in one sentence; none where there are none.
fn joined(clauses: impl Iterator<Item = String>) -> Option<String> {
    clauses.reduce(|text, clause| format!("{text}; {clause}"))
}

/// Everything that should be known, worst first.
pub fn findings(run: &RunRecord) -> Vec<Finding> {
    let mut found: Vec<Finding> = losses(run);
    found.extend(pressure(run));
    let tests = table::in_plan_order(run);
    let by_rules = tests.iter().flat_map(|&test| by_rules(test));
    let by_switches = tests.iter().flat_map(|&test| {
        let found = crate::switches::findings(&title(test), &test.before, &test.after);
        found.into_iter().map(move |finding| (test, finding))
    });
    found.extend(merged(by_rules.chain(by_switches)));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// A finding that only repeats the validity of tests.
pub fn is_of_validity(finding: &Finding) -> bool {
    [INVALID, SUSPECT].contains(&finding.claim.as_str())
}

/// A test of the plan that the path did not let begin.
pub fn not_made(name: &str, repetition: u32, problem: &Problem) -> Finding {
    Finding {
        severity: Severity::Loss,
        test: format!("{name} #{repetition}"),
        claim: "the test could not be run".into(),
        evidence: Problem { advice: String::new(), ..problem.clone() }.to_string(),
        advice: problem.advice.clone(),
    }
}

/// `udp-stream 64 B #2`; a test that is of no run has no number.
pub fn title(test: &TestRecord) -> String {
    match test.repetition {
        0 => test.name.clone(),
        number => format!("{} #{number}", test.name),
    }
}

fn finding(test: &TestRecord, severity: Severity, claim: &str, evidence: String, advice: &str) -> Finding {
    Finding { severity, test: title(test), claim: claim.into(), evidence, advice: advice.into() }
}

/// The same claim with the same advice for repetitions of a test becomes one finding.
fn merged<'a>(findings: impl Iterator<Item = (&'a TestRecord, Finding)>) -> Vec<Finding> {
    let same = |(first, one): &(&TestRecord, Finding), (test, other): &(&TestRecord, Finding)| {
        (&one.claim, &one.advice, &first.name) == (&other.claim, &other.advice, &test.name)
    };
    let merge = |findings: Vec<(&TestRecord, Finding)>| {
        findings.into_iter().map(|(test, finding)| (test.repetition, finding)).reduce(
            |(_, mut first), (number, next)| {
                first.test = format!("{}, #{number}", first.test);
                if !first.evidence.contains(&next.evidence) {
                    first.evidence = format!("{}; {}", first.evidence, next.evidence);
                }
                (number, first)
            },
        )
    };
    table::grouped(findings, same).into_iter().filter_map(merge).map(|(_, finding)| finding).collect()
}

/// Test, node, station and name of a drop.
type LossKey<'a> = (&'a str, &'a str, &'a str, &'a str);
/// Lost, and how the first of them is known.
type LossSum<'a> = (u64, &'a str, DropSource);

/// Named losses of all repetitions, summed by test, station and name.
fn losses(run: &RunRecord) -> Vec<Finding> {
    let mut sums: BTreeMap<LossKey, LossSum> = BTreeMap::new();
    let mut sent: BTreeMap<&str, u64> = BTreeMap::new();
    for test in &run.tests {
        let Some(ledger) = &test.ledger else { continue };
        let all = sent.entry(&test.name).or_default();
        *all = sum([*all, ledger.sent]);
        for station in &ledger.stations {
            for drop in &station.drops {
                let key =
                    (test.name.as_str(), station.node.as_str(), station.station.as_str(), drop.name.as_str());
                let lost = sums.entry(key).or_insert((0, &drop.evidence, drop.source));
                lost.0 = sum([lost.0, drop.count]);
            }
        }
    }
    sums.into_iter()
        .filter(|((.., name), _)| drop::fate(name) != Fate::Surplus)
        .map(|((test, node, station, name), (count, evidence, source))| Finding {
            severity: Severity::Loss,
            test: test.into(),
            claim: format!(
                "{} of {} frames were lost at {station} of node {node}: {name}",
                unit::count(count),
                unit::count(sent[test])
            ),
            evidence: format!("{evidence} ({})", source.word()),
            advice: drop::advice(name).into(),
        })
        .collect()
}

/// What else the host did when the run began, when it was much.
pub fn busy(run: &RunRecord) -> Option<String> {
    let host = &run.host;
    let waiting = host.cpu_pressure.filter(|&percent| percent >= 10.0);
    let loaded = host.load_average > f64::from(host.cpus) * 0.5;
    match (waiting, loaded) {
        (Some(percent), _) => Some(format!("CPU pressure {percent:.0} % before the run")),
        (None, true) => {
            let cpus = unit::many(host.cpus.into(), "CPU");
            Some(format!("load average {:.2} on {cpus} before the run", host.load_average))
        }
        _ => None,
    }
}

fn pressure(run: &RunRecord) -> Option<Finding> {
    Some(Finding {
        severity: Severity::Warning,
        test: String::new(),
        claim: "other work ran on this machine".into(),
        evidence: busy(run)?,
        advice: "repeat the run on a quiet machine before comparing rates".into(),
    })
}

fn generator(test: &TestRecord) -> Option<String> {
    let (asked, offered) =
        (test.offered.requested_per_second.unwrap_or(0.0), test.offered.achieved_per_second);
    let evidence =
        || format!("asked {}, offered {}", unit::messages_per_s(asked), unit::messages_per_s(offered));
    test.offered.generator_limited.then(evidence)
}

const SENT_AGAIN: &str = "TCP sent bytes again";
const LOOK_FOR_DROPS: &str = "look where the kernel dropped, or where a udp-stream of that rate loses frames";

/// Bytes that TCP sent again, where their share of all, in percent, is of that kind.
fn retransmissions(test: &TestRecord, is: fn(f64) -> bool) -> Option<String> {
    let bytes = test.tcp.as_ref()?.retransmitted_bytes;
    let share = bytes as f64 * 100.0 / test.sender.sent_bytes.max(1) as f64;
    (bytes > 0 && is(share)).then_some(())?;
    let dropped = test.kernel_drops.iter().map(|drop| {
        let place = drop.location.as_deref().unwrap_or("an unknown function");
        format!("{} of {} at {} ({place})", unit::count(drop.frames), drop.reason, drop.node)
    });
    let told = dropped.reduce(|text, drop| format!("{text}, {drop}"));
    let told = told.map_or(String::new(), |told| format!("; the kernel dropped {told}"));
    Some(format!("{} B again, {share:.3} % of what was sent{told}", unit::count(bytes)))
}

fn unexplained(test: &TestRecord) -> Option<Finding> {
    let ledger = test.ledger.as_ref()?;
    let odd = ledger.stations.iter().filter(|station| station.residual.unsigned_abs() > station.uncertainty);
    let odd =
        odd.map(|s| format!("{} at {} of node {} (± {})", s.residual, s.station, s.node, s.uncertainty));
    let odd = joined(odd)?;
    let missing: i64 = ledger.stations.iter().map(|station| station.residual).sum();
    let claim = match missing {
        1.. => "frames are missing that nothing names",
        0 => "stations count more or fewer frames than their neighbours",
        _ => "stations count more frames than went in",
    };
    let advice = match ledger.witness.status {
        WitnessStatus::Agrees | WitnessStatus::Disagrees => {
            "do not trust the stations beside these before the difference is understood; see docs/ledger.md"
        }
        WitnessStatus::NotPermitted => "repeat as root, so that the witness can name them",
        WitnessStatus::Unavailable => {
            "look at the counters of what lies between these stations and their neighbours"
        }
    };
    Some(finding(test, Severity::Loss, claim, odd, advice))
}

fn missing_sources(test: &TestRecord) -> Option<String> {
    let missing: BTreeSet<&String> = test.before.missing.iter().chain(&test.after.missing).collect();
    let notes = test.ledger.iter().flat_map(|ledger| &ledger.notes);
    let unsettled = notes.filter(|note| note.contains("still waiting"));
    joined(missing.into_iter().chain(unsettled).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use record::TrafficKind;

    fn claims(run: &RunRecord) -> Vec<String> {
        findings(run).into_iter().map(|finding| finding.claim).collect()
    }

    #[test]
    fn a_clean_run_has_only_what_is_really_so() {
        let mut run = sample::run("quiet");
        run.tests.retain(|test| test.kind == TrafficKind::UdpRr);
        assert_eq!(claims(&run), Vec::<String>::new());
    }

    #[test]
    fn losses_of_repetitions_are_one_finding_and_come_first() {
        let run = sample::run("lossy");
        let found = findings(&run);
        assert_eq!(found[0].severity, Severity::Loss);
        let full: Vec<_> = found.iter().filter(|finding| finding.claim.ends_with("qdisc_full")).collect();
        assert_eq!(full.len(), 1, "{found:#?}");
        assert!(full[0].claim.starts_with("6,000 of 300,000 frames"), "{}", full[0].claim);
    }

    #[test]
    fn every_rule_can_speak() {
        let mut run = sample::run("all");
        let test = &mut run.tests[0];
        test.invalid = vec!["the clock stepped".into()];
        test.offered.generator_limited = true;
        test.kind = TrafficKind::TcpStream;
        test.offloads = vec!["a:eth0 tso on".into()];
        test.latency_ns = sample::latency(30_000, 12);
        test.observer_cpu_ns = 1 << 40;
        test.cpu = vec![record::snapshot::CpuTime { steal: 1, idle: 100, ..Default::default() }];
        test.before.nodes.entry("b".into()).or_default().protocols.insert("TcpExt.ListenOverflows".into(), 0);
        test.after.nodes.entry("b".into()).or_default().protocols.insert("TcpExt.ListenOverflows".into(), 4);
        test.tcp = Some(record::tcp::TcpDecomposition { retransmitted_bytes: 5, ..Default::default() });
        let ledger = run.tests[1].ledger.clone().unwrap();
        let ledger = run.tests[0].ledger.insert(ledger);
        ledger.witness.status = WitnessStatus::Disagrees;
        ledger.stations[0].residual = 7;
        ledger.stations[0].unknown = Some("because".into());
        let test = &mut run.tests[0];
        test.after.missing = vec!["softnet".into()];
        test.sender.settings.refused = vec!["congestion: no such".into()];
        test.receiver.notes = vec!["its clock is another".into()];
        test.received.duplicates = 1;
        let unseen = Some("no frame of the test came there".into());
        test.via = vec![record::ViaHost { name: "r".into(), unseen, facts: None }];
        let mut other = run.tests[0].clone();
        other.limit.what = "shaper".into();
        other.tcp =
            Some(record::tcp::TcpDecomposition { retransmitted_bytes: 1 << 40, ..Default::default() });
        for (_, claim, evidence, advice) in RULES {
            let said = [&run.tests[0], &other].map(evidence);
            assert!(said.iter().any(Option::is_some), "{claim}, {advice}");
        }
        assert!(unexplained(&run.tests[0]).is_some());
    }
}

//! What a reader must know about a run before believing its numbers.
//!
//! Every rule is one function from a test to maybe a [`Finding`]; the table [`RULES`] is all there is. Losses are
//! summed per station over the repetitions of a test, so that a run with many repetitions does not repeat itself.

use crate::table;
use record::drop::{self, Fate};
use record::unit::{self, time_ns};
use record::{Delta, DropSource, Finding, Problem, RunRecord, Severity, TestRecord, WitnessStatus};
use std::collections::BTreeMap;

/// Observing may cost this share of a test's time before it is mentioned.
const OBSERVER_SHARE: f64 = 0.01;
/// Steal time of the hypervisor, in percent of all CPU time, from which a number is doubtful.
const STEAL_PERCENT: f64 = 2.0;
/// Frames that a link's IP layer may see as one.
const OFFLOADS: [&str; 4] = ["tso on", "gso on", "gro on", "lro on"];

type Rule = fn(&TestRecord) -> Option<Finding>;
const RULES: &[Rule] = &[
    invalid,
    generator,
    super_frames,
    few_samples,
    observer,
    steal,
    accept_queue,
    retransmissions,
    witness,
    refused,
    unexplained,
    unknown_stations,
    missing_sources,
    reordered,
];

/// Everything that should be known, worst first.
pub fn findings(run: &RunRecord) -> Vec<Finding> {
    let mut found: Vec<Finding> = losses(run);
    found.extend(pressure(run));
    let tests = table::in_plan_order(run);
    let by_rules =
        tests.iter().flat_map(|&test| RULES.iter().filter_map(move |rule| Some((test, rule(test)?))));
    let by_switches = tests.iter().flat_map(|&test| {
        let found = crate::switches::findings(&title(test), &test.before, &test.after);
        found.into_iter().map(move |finding| (test, finding))
    });
    found.extend(merged(by_rules.chain(by_switches)));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// A test of the plan that the path did not let begin.
pub fn not_made(name: &str, repetition: u32, problem: &Problem) -> Finding {
    Finding {
        severity: Severity::Loss,
        test: format!("{name} #{repetition}"),
        claim: "the test could not be run".into(),
        evidence: format!(
            "{}{}{}",
            problem.place,
            if problem.place.is_empty() { "" } else { ": " },
            problem.what
        ),
        advice: problem.advice.clone(),
    }
}

/// `udp-stream 64 B #2`.
pub fn title(test: &TestRecord) -> String {
    format!("{} #{}", test.name, test.repetition)
}

fn finding(
    test: &TestRecord,
    severity: Severity,
    claim: &str,
    evidence: String,
    advice: &str,
) -> Option<Finding> {
    Some(Finding { severity, test: title(test), claim: claim.into(), evidence, advice: advice.into() })
}

/// The same claim with the same advice for repetitions of a test becomes one finding.
fn merged<'a>(findings: impl Iterator<Item = (&'a TestRecord, Finding)>) -> Vec<Finding> {
    let mut kept: Vec<(&TestRecord, Finding)> = vec![];
    for (test, finding) in findings {
        let same = |(first, other): &&mut (&TestRecord, Finding)| {
            other.claim == finding.claim && other.advice == finding.advice && first.name == test.name
        };
        match kept.iter_mut().find(same) {
            Some((_, first)) => {
                first.test = format!("{}, #{}", first.test, test.repetition);
                if !first.evidence.contains(&finding.evidence) {
                    first.evidence = format!("{}; {}", first.evidence, finding.evidence);
                }
            }
            None => kept.push((test, finding)),
        }
    }
    kept.into_iter().map(|(_, finding)| finding).collect()
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
        *all = all.saturating_add(ledger.sent);
        for station in &ledger.stations {
            for drop in &station.drops {
                let key =
                    (test.name.as_str(), station.node.as_str(), station.station.as_str(), drop.name.as_str());
                let sum = sums.entry(key).or_insert((0, &drop.evidence, drop.source));
                sum.0 = sum.0.saturating_add(drop.count);
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

fn pressure(run: &RunRecord) -> Option<Finding> {
    let host = &run.host;
    let waiting = host.cpu_pressure.filter(|&percent| percent >= 10.0);
    let loaded = host.load_average > f64::from(host.cpus) * 0.5;
    let evidence = match (waiting, loaded) {
        (Some(percent), _) => format!("CPU pressure {percent:.0} % before the run"),
        (None, true) => format!("load average {:.2} on {} CPUs before the run", host.load_average, host.cpus),
        _ => return None,
    };
    Some(Finding {
        severity: Severity::Warning,
        test: String::new(),
        claim: "other work ran on this machine".into(),
        evidence,
        advice: "repeat the run on a quiet machine before comparing rates".into(),
    })
}

fn invalid(test: &TestRecord) -> Option<Finding> {
    let why = test.invalid.join("; ");
    let advice = "do not use this number; repeat the test";
    (!why.is_empty()).then_some(())?;
    finding(test, Severity::Loss, "the measurement is not valid", why, advice)
}

fn generator(test: &TestRecord) -> Option<Finding> {
    test.offered.generator_limited.then_some(())?;
    let asked = test.offered.requested_per_second.unwrap_or(0.0);
    let offered = test.offered.achieved_per_second;
    let evidence =
        format!("asked {}, offered {}", unit::messages_per_s(asked), unit::messages_per_s(offered));
    let advice = match test.limit.what.as_str() {
        "shaper" => "the path held the sender back: ask for less, or raise the shaper's rate",
        _ => "ask for less, or use larger batches: what the path can carry was not reached",
    };
    finding(test, Severity::Warning, "the generator did not keep its schedule", evidence, advice)
}

fn super_frames(test: &TestRecord) -> Option<Finding> {
    let on: Vec<_> =
        test.offloads.iter().filter(|line| OFFLOADS.iter().any(|off| line.contains(off))).collect();
    let matters = test.kind.is_bytes() || test.spec.gso > 1;
    (matters && !on.is_empty()).then_some(())?;
    let lines: Vec<_> = on.into_iter().map(String::as_str).collect();
    let claim = "frames on the path were super-frames";
    finding(
        test,
        Severity::Note,
        claim,
        lines.join("; "),
        "switch offloads off to measure frames of wire size",
    )
}

fn few_samples(test: &TestRecord) -> Option<Finding> {
    let latency = test.latency_ns.as_ref().filter(|latency| latency.count < 1000)?;
    let evidence = format!("timed: {}", unit::many(latency.count, "message"));
    let claim = "p99.9 is the longest of too few samples";
    finding(test, Severity::Note, claim, evidence, "send at least 1,000 messages, better 10,000")
}

fn observer(test: &TestRecord) -> Option<Finding> {
    let share = test.observer_cpu_ns as f64 / (test.seconds * 1e9).max(1.0);
    (share > OBSERVER_SHARE).then_some(())?;
    let evidence = format!(
        "{} of CPU for a test of {}",
        time_ns(test.observer_cpu_ns as f64),
        time_ns(test.seconds * 1e9)
    );
    let claim = "observing cost more than 1 % of a CPU";
    finding(test, Severity::Note, claim, evidence, "test longer, so that the two snapshots weigh less")
}

fn steal(test: &TestRecord) -> Option<Finding> {
    let sum = |part: fn(&record::snapshot::CpuTime) -> u64| {
        test.cpu.iter().fold(0u64, |sum, cpu| sum.saturating_add(part(cpu)))
    };
    let stolen = sum(|cpu| cpu.steal);
    let all =
        [sum(|c| c.user), sum(|c| c.system), sum(|c| c.irq), sum(|c| c.softirq), stolen, sum(|c| c.idle)];
    let all = all.into_iter().fold(0u64, u64::saturating_add);
    let percent = stolen as f64 * 100.0 / all.max(1) as f64;
    (percent >= STEAL_PERCENT).then_some(())?;
    let evidence = format!("{percent:.1} % of the CPU time was stolen");
    finding(
        test,
        Severity::Warning,
        "the hypervisor gave CPU time to others",
        evidence,
        "repeat when the host is quiet",
    )
}

fn moved(test: &TestRecord, node: &str, counter: &str) -> Delta {
    Delta::of_protocol(&test.before, &test.after, node, counter)
}

fn accept_queue(test: &TestRecord) -> Option<Finding> {
    let node = &test.spec.to;
    let overflows = moved(test, node, "TcpExt.ListenOverflows");
    overflows.known().filter(|&overflows| overflows > 0)?;
    let evidence =
        format!("ListenOverflows {overflows}, ListenDrops {}", moved(test, node, "TcpExt.ListenDrops"));
    let claim = "the accept queue of a listening socket overflowed";
    finding(
        test,
        Severity::Loss,
        claim,
        evidence,
        "accept faster, or raise the backlog of listen and net.core.somaxconn",
    )
}

fn retransmissions(test: &TestRecord) -> Option<Finding> {
    let bytes = test.tcp.as_ref()?.retransmitted_bytes;
    let share = bytes as f64 * 100.0 / test.sender.sent_bytes.max(1) as f64;
    (bytes > 0).then_some(())?;
    let dropped = test.kernel_drops.iter().map(|drop| {
        let place = drop.location.as_deref().unwrap_or("an unknown function");
        format!("{} of {} at {} ({place})", unit::count(drop.frames), drop.reason, drop.node)
    });
    let dropped: Vec<String> = dropped.collect();
    let told = if dropped.is_empty() {
        String::new()
    } else {
        format!("; the kernel dropped {}", dropped.join(", "))
    };
    let evidence = format!("{} B again, {share:.3} % of what was sent{told}", unit::count(bytes));
    let advice = "look where the kernel dropped, or where a udp-stream of that rate loses frames";
    // A few spurious ones are in every fast stream; from one in a thousand on they change what the rate means.
    let severity = if share >= 0.1 { Severity::Warning } else { Severity::Note };
    finding(test, severity, "TCP sent bytes again", evidence, advice)
}

fn witness(test: &TestRecord) -> Option<Finding> {
    let witness = &test.ledger.as_ref()?.witness;
    (witness.status == WitnessStatus::Disagrees).then_some(())?;
    let claim = "counters and the witness do not agree";
    let advice = "trust neither count at this node before the difference is understood";
    finding(test, Severity::Warning, claim, witness.disagreement.join("; "), advice)
}

fn unexplained(test: &TestRecord) -> Option<Finding> {
    let ledger = test.ledger.as_ref()?;
    let odd = ledger.stations.iter().filter(|station| station.residual.unsigned_abs() > station.uncertainty);
    let odd: Vec<_> = odd
        .map(|s| format!("{} at {} of node {} (± {})", s.residual, s.station, s.node, s.uncertainty))
        .collect();
    (!odd.is_empty()).then_some(())?;
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
    finding(test, Severity::Loss, claim, odd.join("; "), advice)
}

fn refused(test: &TestRecord) -> Option<Finding> {
    let ends = [("sender", &test.sender), ("receiver", &test.receiver)];
    let refused: Vec<String> = ends
        .iter()
        .flat_map(|(end, report)| report.settings.refused.iter().map(move |what| format!("{end}: {what}")))
        .collect();
    (!refused.is_empty()).then_some(())?;
    let claim = "a setting that was asked for did not take effect";
    finding(
        test,
        Severity::Warning,
        claim,
        refused.join("; "),
        "the result is that of the system's own setting",
    )
}

fn unknown_stations(test: &TestRecord) -> Option<Finding> {
    let ledger = test.ledger.as_ref()?;
    let unknown = ledger.stations.iter().filter_map(|s| Some((s, s.unknown.as_ref()?)));
    let unknown: Vec<_> =
        unknown.map(|(s, why)| format!("{} of node {}: {why}", s.station, s.node)).collect();
    (!unknown.is_empty()).then_some(())?;
    let claim = "stations of the path could not be read";
    finding(test, Severity::Warning, claim, unknown.join("; "), "losses there show up further down the path")
}

fn missing_sources(test: &TestRecord) -> Option<Finding> {
    let mut missing: Vec<&str> =
        test.before.missing.iter().chain(&test.after.missing).map(String::as_str).collect();
    missing.sort_unstable();
    missing.dedup();
    let notes =
        test.ledger.iter().flat_map(|ledger| &ledger.notes).filter(|note| note.contains("still waiting"));
    missing.extend(notes.map(String::as_str));
    (!missing.is_empty()).then_some(())?;
    let claim = "some counters could not be read or were not settled";
    finding(test, Severity::Note, claim, missing.join("; "), "what was not read is unknown, not zero")
}

fn reordered(test: &TestRecord) -> Option<Finding> {
    let (late, twice) = (test.received.reordered, test.received.duplicates);
    (late + twice > 0).then_some(())?;
    let evidence = format!(
        "{} out of order, {} more than once, of {}",
        unit::count(late),
        unit::count(twice),
        unit::count(test.received.datagrams)
    );
    finding(
        test,
        Severity::Note,
        "messages came out of order or twice",
        evidence,
        "look for parallel ways on the path",
    )
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
        test.cpu = vec![record::snapshot::CpuTime { steal: 10, idle: 10, ..Default::default() }];
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
        test.received.duplicates = 1;
        for (index, rule) in RULES.iter().enumerate() {
            assert!(rule(&run.tests[0]).is_some(), "rule {index}");
        }
    }
}

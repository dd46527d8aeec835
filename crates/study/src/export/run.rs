//! A finished run as series: what moved during each test, and what its ends and its ledger say.
//!
//! **What.** [`of_run`] makes the series of a reading of every test: a count is what moved between the two snapshots of the test, everything else is what
//! the second one had. To these come the rows of the table that only a test has ([`s::TEST_THROUGHPUT`] and the others). Each sample says of which run, test and
//! repetition it is.
//!
//! **Price.** A counter that was not read before the test, or that went back, is absent: what it moved by is not known.

use super::series as s;
use super::{Families, Limits, SampleFamily, SampleValue, gather};
use record::watch::WatchReading;
use record::{Delta, DropSource, Ledger, RunRecord, Snapshot, TestRecord};
use std::collections::BTreeMap;

/// The labels that the samples of a run have besides those of their series.
pub const OF_A_TEST: &[&str] = &["run", "test", "repetition"];

/// The series of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct TestFamilies {
    /// When it began, in nanoseconds since 1970; 0 where the record does not say it.
    pub begun_ns: u64,
    /// When its traffic ended.
    pub ended_ns: u64,
    /// What is told of it.
    pub families: Families,
}

/// Everything of a run, test by test in the order in which they ran.
pub fn of_run(run: &RunRecord, limits: Limits, version: &str) -> Vec<TestFamilies> {
    run.tests.iter().map(|test| of_test(run, test, limits, version)).collect()
}

/// All tests together, for a text that has no times.
pub fn together(tests: Vec<TestFamilies>) -> Families {
    let mut all = Families::default();
    for family in tests.into_iter().flat_map(|test| test.families.0) {
        match all.0.iter_mut().find(|known| known.series == family.series) {
            Some(known) => known.samples.extend(family.samples),
            None => all.0.push(family),
        }
    }
    all.in_order()
}

fn of_test(run: &RunRecord, test: &TestRecord, limits: Limits, version: &str) -> TestFamilies {
    let counted = |snapshot: &Snapshot| {
        gather(&WatchReading { snapshot: snapshot.clone(), ..WatchReading::default() }, limits, version)
    };
    let mut all = moved(&counted(&test.before), counted(&test.after));
    of_ends(&mut all, test);
    test.ledger.iter().for_each(|ledger| of_ledger(&mut all, ledger));
    let label = [run.id.clone(), test.name.clone(), test.repetition.to_string()];
    let begun_ns = unix_ns(&test.begun).unwrap_or(0);
    let ended_ns = begun_ns.saturating_add((test.seconds.max(0.0) * 1e9) as u64);
    TestFamilies { begun_ns, ended_ns, families: all.in_order().labelled(OF_A_TEST, &label) }
}

fn unix_ns(time: &str) -> Option<u64> {
    u64::try_from(time.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok()
}

/// What counts moved by between two readings; of what is no count, the second one.
fn moved(before: &Families, after: Families) -> Families {
    let since = |family: SampleFamily| {
        let was = before.of(family.series).map(|family| &family.samples);
        let samples = family.samples.into_iter().filter_map(|(labels, now)| {
            let then = was.and_then(|samples| samples.get(&labels));
            let value = if family.series.is_count { difference(*then?, now)? } else { now };
            Some((labels, value))
        });
        let samples: BTreeMap<_, _> = samples.collect();
        (!samples.is_empty()).then_some(SampleFamily { samples, ..SampleFamily::of(family.series) })
    };
    Families(after.0.into_iter().filter_map(since).collect())
}

fn difference(then: SampleValue, now: SampleValue) -> Option<SampleValue> {
    match (then, now) {
        (SampleValue::Whole(then), SampleValue::Whole(now)) => {
            Delta::of(then, now).known().map(SampleValue::Whole)
        }
        (then, now) => Some(now.real() - then.real()).filter(|by| *by >= 0.0).map(SampleValue::Real),
    }
}

fn of_ends(all: &mut Families, test: &TestRecord) {
    all.add(&s::TEST_DURATION, &[], SampleValue::Real(test.seconds));
    // A stream of bytes has writes and reads, of which one is not the other.
    if !test.kind.is_bytes() {
        all.add(&s::TEST_OFFERED, &[], SampleValue::Whole(test.offered.datagrams));
        all.add(&s::TEST_SENT, &[], SampleValue::Whole(test.sent.datagrams));
        all.add(&s::TEST_RECEIVED, &[], SampleValue::Whole(test.received.unique));
    }
    if let Some(bps) = test.throughput() {
        all.add(&s::TEST_THROUGHPUT, &[], SampleValue::Real(bps));
    }
    if let Some(latency) = &test.latency_ns {
        let seconds = |ns: u64| SampleValue::Real(ns as f64 / 1e9);
        for (percentile, ns) in [
            ("0", latency.min),
            ("50", latency.p50),
            ("90", latency.p90),
            ("99", latency.p99),
            ("99.9", latency.p999),
            ("100", latency.max),
        ] {
            all.add(&s::TEST_LATENCY, &[&test.latency_kind, percentile], seconds(ns));
        }
    }
    if let Some(validity) = &test.validity {
        all.add(&s::TEST_VALIDITY, &[validity.verdict.word()], SampleValue::Whole(1));
    }
}

fn of_ledger(all: &mut Families, ledger: &Ledger) {
    for station in &ledger.stations {
        let at = [station.leg.as_str(), &station.node, &station.station];
        for drop in &station.drops {
            let labels = [at[0], at[1], at[2], &drop.name, source(drop.source)];
            all.add(&s::LEDGER_DROPS, &labels, SampleValue::Whole(drop.count));
        }
        all.add(&s::LEDGER_RESIDUAL, &at, SampleValue::Real(station.residual as f64));
    }
    all.add(&s::LEDGER_UNEXPLAINED, &[], SampleValue::Real(ledger.unexplained as f64));
}

/// How a drop is known, in a word.
fn source(source: DropSource) -> &'static str {
    match source {
        DropSource::Counter => "counter",
        DropSource::State => "state",
        DropSource::Witness => "witness",
    }
}

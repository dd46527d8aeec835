//! The numbers of a run as rows of text, for the terminal and for the page alike.
//!
//! Repetitions of a test share a row: the median, and behind the rate the interval for it. With fewer than six
//! repetitions that is the range ([`crate::stats`]).

use crate::findings::source_word;
use crate::stats::{Estimate, estimate};
use record::ledger::Station;
use record::snapshot::CpuTime;
use record::{Ledger, RunRecord, TestRecord, WitnessStatus};

/// Headers and rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Table {
    /// Names of the columns, with units.
    pub headers: Vec<String>,
    /// The rows, each as long as the headers.
    pub rows: Vec<Vec<String>>,
    /// How many columns, from the left, hold words rather than numbers.
    pub words: usize,
}

impl Table {
    fn new(words: usize, headers: &[&str]) -> Self {
        Table { headers: headers.iter().map(|header| (*header).into()).collect(), rows: vec![], words }
    }

    /// Columns aligned with two spaces between them: words to the left, numbers to the right.
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.headers).chain(&self.rows);
        let width = |column: usize| {
            lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headers.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let cell = |(column, cell): (usize, &String)| {
                let wide = widths[column];
                if column < self.words { format!("{cell:<wide$}") } else { format!("{cell:>wide$}") }
            };
            cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        lines().map(line).collect()
    }
}

/// The tests as the plan lists them, repetition after repetition, whatever the order in which they ran.
pub fn in_plan_order(run: &RunRecord) -> Vec<&TestRecord> {
    let mut tests: Vec<&TestRecord> = run.tests.iter().collect();
    tests.sort_by_key(|test| (test.place, test.repetition));
    tests
}

/// Tests of one name, in the order of the plan, each with its repetitions in order.
pub fn groups(run: &RunRecord) -> Vec<(&str, Vec<&TestRecord>)> {
    let mut groups: Vec<(&str, Vec<&TestRecord>)> = vec![];
    for test in in_plan_order(run) {
        match groups.iter_mut().find(|(name, _)| *name == test.name) {
            Some((_, tests)) => tests.push(test),
            None => groups.push((&test.name, vec![test])),
        }
    }
    groups
}

/// A number with as many digits as it deserves.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 || v == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// A count with thin groups of three: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn signed(value: i64) -> String {
    format!("{}{}", if value < 0 { "−" } else { "" }, count(value.unsigned_abs()))
}

fn of(tests: &[&TestRecord], value: impl Fn(&TestRecord) -> Option<f64>) -> Option<Estimate> {
    estimate(&tests.iter().filter_map(|test| value(test)).collect::<Vec<_>>())
}

fn cell(estimate: Option<Estimate>, scale: f64) -> String {
    estimate.map_or("–".into(), |estimate| number(estimate.value * scale))
}

/// Frames that did not arrive, in percent; none for TCP.
pub fn loss_percent(test: &TestRecord) -> Option<f64> {
    let ledger = test.ledger.as_ref()?;
    let lost = ledger.sent.saturating_sub(ledger.received);
    (ledger.sent > 0).then(|| lost as f64 * 100.0 / ledger.sent as f64)
}

/// Ticks in which a CPU did something.
fn busy(cpu: &CpuTime) -> u64 {
    cpu.user + cpu.system + cpu.irq + cpu.softirq
}

/// A share of the time of all CPUs of the host during the test, in percent; none when it was shorter than a tick.
fn host_percent(test: &TestRecord, part: impl Fn(&CpuTime) -> u64) -> Option<f64> {
    let all: u64 = test.cpu.iter().map(|cpu| busy(cpu) + cpu.steal + cpu.idle).sum();
    let part: u64 = test.cpu.iter().map(part).sum();
    (all > 0).then(|| part as f64 * 100.0 / all as f64)
}

/// One row per test name.
pub fn results(run: &RunRecord) -> Table {
    let headers = [
        "test",
        "n",
        "Mbit/s",
        "[interval]",
        "k/s",
        "p50 µs",
        "p90 µs",
        "p99 µs",
        "p99.9 µs",
        "loss %",
        "CPU snd %",
        "CPU rcv %",
        "host %",
        "softirq %",
        "RSS MB",
    ];
    let mut table = Table::new(1, &headers);
    for (name, tests) in groups(run) {
        let rate = of(&tests, |test| Some(test.throughput_bps));
        let interval =
            rate.map_or("–".into(), |r| format!("[{}, {}]", number(r.low * 1e-6), number(r.high * 1e-6)));
        let latency = |pick: fn(&record::Latency) -> u64| {
            cell(of(&tests, |test| test.latency_ns.as_ref().map(|latency| pick(latency) as f64)), 1e-3)
        };
        let actor = |role: &'static str, pick: fn(&record::ActorUsage) -> f64| {
            of(&tests, move |test| test.actors.iter().find(|actor| actor.role == role).map(pick))
        };
        let rss = of(&tests, |test| test.actors.iter().map(|actor| actor.rss_bytes as f64).reduce(f64::max));
        table.rows.push(vec![
            name.into(),
            tests.len().to_string(),
            cell(rate, 1e-6),
            interval,
            cell(of(&tests, |test| Some(test.messages_per_second)), 1e-3),
            latency(|latency| latency.p50),
            latency(|latency| latency.p90),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            cell(of(&tests, loss_percent), 1.0),
            cell(actor("sender", |actor| actor.cpu_percent), 1.0),
            cell(actor("receiver", |actor| actor.cpu_percent), 1.0),
            cell(of(&tests, |test| host_percent(test, busy)), 1.0),
            cell(of(&tests, |test| host_percent(test, |cpu| cpu.softirq)), 1.0),
            cell(rss, 1e-6),
        ]);
    }
    table
}

/// What the intervals of [`results`] are.
pub fn interval_words(run: &RunRecord) -> String {
    let least = groups(run).iter().map(|(_, tests)| tests.len()).min().unwrap_or(0);
    if least < 6 {
        "Medians over the repetitions; the interval is their range (too few for a 95 % interval).".into()
    } else {
        "Medians over the repetitions; the interval holds the true median with at least 95 %.".into()
    }
}

/// Something was lost, queued, left over or unknown here.
pub fn is_eventful(station: &Station) -> bool {
    !station.drops.is_empty() || station.queued != 0 || station.residual != 0 || station.unknown.is_some()
}

/// The drops of a station in words.
pub fn drops_words(station: &Station) -> String {
    let one = |drop: &record::Drop| format!("{} {}", drop.name, count(drop.count));
    station.drops.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// One row per station; only eventful ones unless `all`.
pub fn stations(ledger: &Ledger, all: bool) -> Table {
    let headers = ["node", "station", "leg", "dropped", "in", "out", "queued", "residual", "±"];
    let mut table = Table::new(4, &headers);
    for station in ledger.stations.iter().filter(|station| all || is_eventful(station)) {
        let dropped = match &station.unknown {
            Some(why) => format!("unknown: {why}"),
            None => drops_words(station),
        };
        let words = [&station.node, &station.station, &station.leg].map(Clone::clone);
        let numbers = [
            count(station.entered),
            count(station.left),
            signed(station.queued),
            signed(station.residual),
            count(station.uncertainty),
        ];
        table.rows.push(words.into_iter().chain([dropped]).chain(numbers).collect());
    }
    table
}

/// `sent 100,000, received 88,000, unexplained 0 ± 0`.
pub fn sums_words(ledger: &Ledger) -> String {
    format!(
        "sent {}, received {}, unexplained {} ± {}",
        count(ledger.sent),
        count(ledger.received),
        signed(ledger.unexplained),
        count(ledger.uncertainty)
    )
}

/// What the witness says, in words.
pub fn witness_words(ledger: &Ledger) -> String {
    let witness = &ledger.witness;
    let reasons: Vec<_> =
        witness.by_reason.iter().map(|named| format!("{} {}", named.name, count(named.count))).collect();
    let saw = if reasons.is_empty() { "saw no drop".into() } else { format!("saw {}", reasons.join(", ")) };
    match witness.status {
        WitnessStatus::Agrees if witness.why.is_empty() => format!("agrees: {saw}"),
        WitnessStatus::Agrees => format!("agrees, {}: {saw}", witness.why),
        WitnessStatus::Disagrees => format!("disagrees: {saw}; {}", witness.disagreement.join("; ")),
        WitnessStatus::NotPermitted => format!("not permitted: {}", witness.why),
        WitnessStatus::Unavailable => format!("unavailable: {}", witness.why),
    }
}

/// The evidence of every drop, one line each.
pub fn evidence_lines(ledger: &Ledger) -> Vec<String> {
    let lines = ledger.stations.iter().flat_map(|station| {
        station.drops.iter().filter(|drop| !drop.evidence.is_empty()).map(|drop| {
            format!(
                "{} at {} of {}: {} ({})",
                drop.name,
                station.station,
                station.node,
                drop.evidence,
                source_word(drop.source)
            )
        })
    });
    lines.collect()
}

/// What limited each test: one row for repetitions with the same limit, with the sentence of the first of them.
pub fn limits(run: &RunRecord) -> Table {
    let mut table = Table::new(2, &["test", "limited by"]);
    for (name, tests) in groups(run) {
        let mut kinds: Vec<Vec<&TestRecord>> = vec![];
        for test in tests {
            let same = |kind: &&mut Vec<&TestRecord>| {
                kind[0].limit.what == test.limit.what && kind[0].limit.place == test.limit.place
            };
            match kinds.iter_mut().find(same) {
                Some(kind) => kind.push(test),
                None => kinds.push(vec![test]),
            }
        }
        for kind in kinds {
            let limit = &kind[0].limit;
            let sentence = if limit.sentence.is_empty() { &limit.what } else { &limit.sentence };
            table.rows.push(vec![format!("{name} {}", numbers(&kind)), sentence.clone()]);
        }
    }
    table
}

/// `#1 #2 #3`.
pub fn numbers(tests: &[&TestRecord]) -> String {
    tests.iter().map(|test| format!("#{}", test.repetition)).collect::<Vec<_>>().join(" ")
}

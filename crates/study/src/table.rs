//! The numbers of a run as rows of text, for the terminal and for the page alike.
//!
//! Repetitions of a test share a row: the median, and behind the rate the interval for it. With fewer than six
//! repetitions that is the range ([`crate::stats`]).

use crate::stats::{Estimate, estimate};
use record::ledger::Station;
use record::snapshot::CpuTime;
use record::unit::{bits_per_s, prefixed, signed, time_ns};
pub use record::unit::{count, number};
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

    /// Columns aligned with two spaces between them: words to the left, numbers to the right. What is wider than
    /// [`WIDTH`] is folded: the widest column of words takes several lines, or columns of numbers go below.
    pub fn text(&self) -> String {
        self.text_within(WIDTH, &[])
    }

    /// The same in lines of at most `most` characters; when it must be folded, columns with the numbers in `breaks` begin a
    /// new block where that is possible.
    pub fn text_within(&self, most: usize, breaks: &[usize]) -> String {
        let width = |column: usize| {
            let cells = std::iter::once(&self.headers).chain(&self.rows).filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.headers.len()).map(width).collect();
        let all: Vec<usize> = (0..widths.len()).collect();
        if total(&widths, &all) <= most {
            return self.block(&widths, &all);
        }
        if let Some(widest) = (0..self.words.min(widths.len())).max_by_key(|&column| widths[column]) {
            let rest = total(&widths, &all) - widths[widest];
            if rest + NARROWEST <= most {
                widths[widest] = most - rest;
                return self.block(&widths, &all);
            }
        }
        self.blocks(&widths, most, breaks).iter().map(|columns| self.block(&widths, columns)).collect()
    }

    /// Which columns stand beside each other: as many as there is room for, the first one in front of all.
    fn blocks(&self, widths: &[usize], most: usize, breaks: &[usize]) -> Vec<Vec<usize>> {
        let mut blocks: Vec<Vec<usize>> = vec![vec![0]];
        for column in 1..widths.len() {
            let last = blocks.last_mut().expect("one is there");
            let longer = [&last[..], &[column]].concat();
            let full = last.len() > 1 && (breaks.contains(&column) || total(widths, &longer) > most);
            if full { blocks.push(vec![0, column]) } else { *last = longer }
        }
        blocks
    }

    /// Some of the columns; a cell of words that is wider than its column takes several lines.
    fn block(&self, widths: &[usize], columns: &[usize]) -> String {
        let line = |cells: &Vec<String>| {
            let lines: Vec<Vec<String>> = columns
                .iter()
                .map(|&column| match cells.get(column) {
                    Some(cell) if cell.chars().count() > widths[column] => wrapped(cell, widths[column]),
                    cell => vec![cell.cloned().unwrap_or_default()],
                })
                .collect();
            let height = lines.iter().map(Vec::len).max().unwrap_or(0);
            let one = |row: usize| {
                let cell = |(place, &column): (usize, &usize)| {
                    let (wide, empty) = (widths[column], String::new());
                    let text = lines[place].get(row).unwrap_or(&empty);
                    if column < self.words { format!("{text:<wide$}") } else { format!("{text:>wide$}") }
                };
                let cells: Vec<String> = columns.iter().enumerate().map(cell).collect();
                cells.join("  ").trim_end().to_owned() + "\n"
            };
            (0..height).map(one).collect::<String>()
        };
        std::iter::once(&self.headers).chain(&self.rows).map(line).collect()
    }
}

/// How many characters a line may have.
pub const WIDTH: usize = 80;

/// A column of words may be made as narrow as that.
const NARROWEST: usize = 18;

/// The width of columns beside each other.
fn total(widths: &[usize], columns: &[usize]) -> usize {
    columns.iter().map(|&column| widths[column] + 2).sum::<usize>().saturating_sub(2)
}

/// Text in lines of at most so many characters; a word that is longer has a line of its own.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("one is there");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Facts of one thing, a line for each: the names in one column, and what is wider than [`WIDTH`] goes on below itself.
pub fn facts(rows: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in rows {
        for (number, line) in wrapped(value, WIDTH - 12).iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            text += format!("{name:<11} {line}").trim_end();
            text.push('\n');
        }
    }
    text
}

/// Every line of a text in [`WIDTH`] characters: what is longer goes on below, `more` further in than it began.
pub fn folded(text: &str, more: usize) -> String {
    let mut all = String::new();
    for line in text.lines() {
        if line.chars().count() <= WIDTH {
            all += line;
            all.push('\n');
            continue;
        }
        let begin = line.len() - line.trim_start().len();
        let (first, next) = (" ".repeat(begin), " ".repeat(begin + more));
        for (number, part) in wrapped(&line[begin..], WIDTH - begin - more).iter().enumerate() {
            all += if number == 0 { &first } else { &next };
            all += part;
            all.push('\n');
        }
    }
    all
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
        "bit/s",
        "[interval]",
        "messages/s",
        "loss %",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "CPU snd %",
        "CPU rcv %",
        "host %",
        "softirq %",
        "RSS B",
    ];
    let mut table = Table::new(1, &headers);
    for (name, tests) in groups(run) {
        let rate = of(&tests, |test| Some(test.throughput_bps));
        let latency = |pick: fn(&record::Latency) -> u64| {
            let found = of(&tests, |test| test.latency_ns.as_ref().map(|latency| pick(latency) as f64));
            found.map_or("–".into(), |found| time_ns(found.value))
        };
        let actor = |role: &'static str, pick: fn(&record::ActorUsage) -> f64| {
            of(&tests, move |test| test.actors.iter().find(|actor| actor.role == role).map(pick))
        };
        let rss = of(&tests, |test| test.actors.iter().map(|actor| actor.rss_bytes as f64).reduce(f64::max));
        let scaled = |found: Option<Estimate>| found.map_or("–".into(), |found| prefixed(found.value));
        table.rows.push(vec![
            name.into(),
            tests.len().to_string(),
            scaled(rate),
            interval(rate.filter(|_| tests.len() > 1)),
            scaled(of(&tests, |test| Some(test.messages_per_second))),
            cell(of(&tests, loss_percent), 1.0),
            latency(|latency| latency.p50),
            latency(|latency| latency.p90),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            cell(actor("sender", |actor| actor.cpu_percent), 1.0),
            cell(actor("receiver", |actor| actor.cpu_percent), 1.0),
            cell(of(&tests, |test| host_percent(test, busy)), 1.0),
            cell(of(&tests, |test| host_percent(test, |cpu| cpu.softirq)), 1.0),
            scaled(rss),
        ]);
    }
    table
}

/// Where [`results`] is folded: rates, latencies, costs.
pub const RESULTS_BREAKS: [usize; 2] = [6, 10];

/// `[7.73 M, 7.81 M]`; one repetition has none.
fn interval(rate: Option<Estimate>) -> String {
    rate.map_or("–".into(), |rate| format!("[{}, {}]", prefixed(rate.low), prefixed(rate.high)))
}

/// Repetitions whose rate is far from all others of their test, one clause each: further from the nearest of them than
/// three times the range of the others, and more than a fifth of their median.
pub fn outliers(run: &RunRecord) -> Vec<String> {
    let mut said = vec![];
    for (name, tests) in groups(run).into_iter().filter(|(_, tests)| tests.len() >= 3) {
        for test in &tests {
            let rate = test.throughput_bps;
            let others: Vec<f64> =
                tests.iter().filter(|t| t.repetition != test.repetition).map(|t| t.throughput_bps).collect();
            let low = others.iter().copied().fold(f64::INFINITY, f64::min);
            let high = others.iter().copied().fold(0.0, f64::max);
            let away = (low - rate).max(rate - high);
            if away > 3.0 * (high - low) && away > 0.2 * low {
                said.push(format!(
                    "{name} #{} had {}, the others {} to {}",
                    test.repetition,
                    bits_per_s(rate),
                    bits_per_s(low),
                    bits_per_s(high)
                ));
            }
        }
    }
    said
}

/// What the intervals of [`results`] are.
pub fn interval_words(run: &RunRecord) -> String {
    let least = groups(run).iter().map(|(_, tests)| tests.len()).min().unwrap_or(0);
    if least < 2 {
        "One repetition: nothing tells how much these numbers vary.".into()
    } else if least < 6 {
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
                drop.source.word()
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

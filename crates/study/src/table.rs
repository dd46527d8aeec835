//! The numbers of a run as rows of text, for the terminal and for the page alike.
//!
//! Repetitions of a test share a row: the median, and behind the rate the interval for it. With fewer than six
//! repetitions that is the range ([`crate::stats`]).

use crate::stats::{estimate, median};
use record::delta::sum;
use record::ledger::Station;
use record::snapshot::CpuTime;
use record::unit::{bits_per_s, prefixed, signed, time_ns};
pub use record::unit::{count, number};
use record::{Latency, Ledger, RunRecord, TestRecord, WitnessStatus};
use std::borrow::Borrow;

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

/// A column of things that have a row each: its header, and what is in it.
pub type Column<R> = (&'static str, fn(&R) -> String);
/// A column of repetitions that share a row.
pub type SharedColumn<R> = (&'static str, fn(&[&R]) -> String);

impl Table {
    /// A row for each of the things.
    pub fn of<R>(
        words: usize,
        columns: &[Column<R>],
        things: impl IntoIterator<Item = impl Borrow<R>>,
    ) -> Self {
        let cells =
            things.into_iter().map(|thing| columns.iter().map(|(_, cell)| cell(thing.borrow())).collect());
        let headers = columns.iter().map(|(header, _)| (*header).into()).collect();
        Table { headers, rows: cells.collect(), words }
    }

    /// A row for all repetitions of each thing.
    pub fn shared<'r, R: 'r>(
        words: usize,
        columns: &[SharedColumn<R>],
        things: impl IntoIterator<Item = Vec<&'r R>>,
    ) -> Self {
        let cells = things.into_iter().map(|rounds| columns.iter().map(|(_, cell)| cell(&rounds)).collect());
        let headers = columns.iter().map(|(header, _)| (*header).into()).collect();
        Table { headers, rows: cells.collect(), words }
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
            if rest + NARROWEST.max(self.longest_word(widest)) <= most {
                widths[widest] = most - rest;
                return self.block(&widths, &all);
            }
        }
        self.blocks(&widths, most, breaks).iter().map(|columns| self.block(&widths, columns)).collect()
    }

    /// The characters of the longest word of a column, which has a line of its own and cannot be folded.
    fn longest_word(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.flat_map(|cell| cell.split(' ')).map(|word| word.chars().count()).max().unwrap_or(0)
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

/// Text in lines of [`WIDTH`] characters, with so much in front of the first and of the next ones.
fn hanging(first: &str, next: &str, text: &str) -> String {
    let lines = wrapped(text, WIDTH - next.len());
    let begins = std::iter::once(first).chain(std::iter::repeat(next));
    lines
        .iter()
        .zip(begins)
        .map(|(line, begin)| format!("{begin}{line}").trim_end().to_owned() + "\n")
        .collect()
}

/// Facts of one thing, a line for each: the names in one column, and what is wider than [`WIDTH`] goes on below itself.
pub fn facts(rows: &[(&str, String)]) -> String {
    let fact = |(name, value): &(&str, String)| hanging(&format!("{name:<11} "), &" ".repeat(12), value);
    rows.iter().map(fact).collect()
}

/// Every line of a text in [`WIDTH`] characters: what is longer goes on below, `more` further in than it began.
pub fn folded(text: &str, more: usize) -> String {
    let fold = |line: &str| {
        let begin = line.len() - line.trim_start().len();
        match line.chars().count() <= WIDTH {
            true => format!("{line}\n"),
            false => hanging(&" ".repeat(begin), &" ".repeat(begin + more), &line[begin..]),
        }
    };
    text.lines().map(fold).collect()
}

/// The tests as the plan lists them, repetition after repetition, whatever the order in which they ran.
pub fn in_plan_order(run: &RunRecord) -> Vec<&TestRecord> {
    let mut tests: Vec<&TestRecord> = run.tests.iter().collect();
    tests.sort_by_key(|test| (test.place, test.repetition));
    tests
}

/// What belongs together, in the order of the first of each.
pub fn grouped<T>(items: impl IntoIterator<Item = T>, same: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = vec![];
    for item in items {
        match groups.iter_mut().find(|group| same(&group[0], &item)) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}

/// Tests of one name, in the order of the plan, each with its repetitions in order.
pub fn groups(run: &RunRecord) -> Vec<Vec<&TestRecord>> {
    grouped(in_plan_order(run), |one, other| one.name == other.name)
}

/// The median over repetitions of those that have the value.
pub fn over<R>(rounds: &[&R], value: impl Fn(&R) -> Option<f64>) -> Option<f64> {
    median(&rounds.iter().filter_map(|round| value(round)).collect::<Vec<_>>())
}

/// A number as it is written; a dash where there is none.
pub fn told(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or("–".into(), write)
}

/// Frames that did not arrive, in percent; none for TCP. Where nobody observed the path, messages by the counts of the two ends.
pub fn loss_percent(test: &TestRecord) -> Option<f64> {
    let (sent, received) = match &test.ledger {
        Some(ledger) => (ledger.sent, ledger.received),
        None if test.spec.kind.has_ledger() => (test.sent.datagrams, test.received.unique),
        None => return None,
    };
    let lost = sent.saturating_sub(received);
    (sent > 0).then(|| lost as f64 * 100.0 / sent as f64)
}

/// A share of the time of all CPUs of the host during the test, in percent; none when it was shorter than a tick.
fn host_percent(test: &TestRecord, part: fn(&CpuTime) -> u64) -> Option<f64> {
    let (all, part) = (sum(test.cpu.iter().map(CpuTime::total)), sum(test.cpu.iter().map(part)));
    (all > 0).then(|| part as f64 * 100.0 / all as f64)
}

fn latency(tests: &[&TestRecord], pick: fn(&Latency) -> u64) -> String {
    told(over(tests, |test| test.latency_ns.as_ref().map(|latency| pick(latency) as f64)), time_ns)
}

fn actor_cpu(tests: &[&TestRecord], role: &str) -> String {
    let actor =
        |test: &TestRecord| test.actors.iter().find(|actor| actor.role == role).map(|a| a.cpu_percent);
    told(over(tests, actor), number)
}

/// `[7.73 M, 7.81 M]`; one repetition has none.
fn interval(tests: &[&TestRecord]) -> String {
    let rates: Vec<f64> = tests.iter().filter_map(|test| test.throughput()).collect();
    let rate = estimate(&rates).filter(|_| rates.len() > 1);
    rate.map_or("–".into(), |rate| format!("[{}, {}]", prefixed(rate.low), prefixed(rate.high)))
}

/// The columns of [`results`].
pub const RESULTS: &[SharedColumn<TestRecord>] = &[
    ("test", |tests| tests[0].name.clone()),
    ("n", |tests| tests.len().to_string()),
    ("bit/s", |tests| told(over(tests, TestRecord::throughput), prefixed)),
    ("[interval]", interval),
    ("messages/s", |tests| told(over(tests, TestRecord::message_rate), prefixed)),
    ("loss %", |tests| told(over(tests, loss_percent), number)),
    ("p50", |tests| latency(tests, |latency| latency.p50)),
    ("p90", |tests| latency(tests, |latency| latency.p90)),
    ("p99", |tests| latency(tests, |latency| latency.p99)),
    ("p99.9", |tests| latency(tests, |latency| latency.p999)),
    ("CPU snd %", |tests| actor_cpu(tests, "sender")),
    ("CPU rcv %", |tests| actor_cpu(tests, "receiver")),
    ("host %", |tests| told(over(tests, |test| host_percent(test, CpuTime::busy)), number)),
    ("softirq %", |tests| told(over(tests, |test| host_percent(test, |cpu| cpu.softirq)), number)),
    ("RSS B", |tests| {
        let most =
            |test: &TestRecord| test.actors.iter().map(|actor| actor.rss_bytes as f64).reduce(f64::max);
        told(over(tests, most), prefixed)
    }),
];

/// One row per test name.
pub fn results(run: &RunRecord) -> Table {
    Table::shared(1, RESULTS, groups(run))
}

/// Where [`results`] is folded: rates, latencies, costs.
pub const RESULTS_BREAKS: [usize; 2] = [6, 10];

/// Repetitions whose rate is far from all others of their test, one clause each: further from the nearest of them than
/// three times the range of the others, and more than a fifth of their median.
pub fn outliers(run: &RunRecord) -> Vec<String> {
    let mut said = vec![];
    for tests in groups(run) {
        for test in &tests {
            let Some(rate) = test.throughput() else { continue };
            let others = tests.iter().filter(|other| other.repetition != test.repetition);
            let others: Vec<f64> = others.filter_map(|other| other.throughput()).collect();
            let low = others.iter().copied().fold(f64::INFINITY, f64::min);
            let high = others.iter().copied().fold(0.0, f64::max);
            let away = (low - rate).max(rate - high);
            if others.len() >= 2 && away > 3.0 * (high - low) && away > 0.2 * low {
                said.push(format!(
                    "{} #{} had {}, the others {} to {}",
                    test.name,
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
    let least = groups(run).iter().map(Vec::len).min().unwrap_or(0);
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

const STATIONS: &[Column<Station>] = &[
    ("node", |station| station.node.clone()),
    ("station", |station| station.station.clone()),
    ("leg", |station| station.leg.clone()),
    ("dropped", |station| match &station.unknown {
        Some(why) => format!("unknown: {why}"),
        None => drops_words(station),
    }),
    ("in", |station| count(station.entered)),
    ("out", |station| count(station.left)),
    ("queued", |station| signed(station.queued)),
    ("residual", |station| signed(station.residual)),
    ("±", |station| count(station.uncertainty)),
];

/// One row per station; only eventful ones unless `all`.
pub fn stations(ledger: &Ledger, all: bool) -> Table {
    Table::of(4, STATIONS, ledger.stations.iter().filter(|station| all || is_eventful(station)))
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

const LIMITS: &[SharedColumn<TestRecord>] = &[
    ("test", numbered),
    ("limited by", |tests| {
        let limit = &tests[0].limit;
        match limit.sentence.is_empty() {
            true => limit.what.clone(),
            // What to do about a loss of datagrams is said with the loss.
            false if tests[0].ledger.is_some() || limit.advice.is_empty() => limit.sentence.clone(),
            false => format!("{} What to do: {}.", limit.sentence, limit.advice),
        }
    }),
];

/// What limited each test: one row for repetitions with the same limit, with the sentence of the first of them.
pub fn limits(run: &RunRecord) -> Table {
    Table::shared(2, LIMITS, limited_alike(run))
}

fn limited_alike(run: &RunRecord) -> Vec<Vec<&TestRecord>> {
    let limit = |test: &TestRecord| (test.limit.what.clone(), test.limit.place.clone());
    let same = |one: &&TestRecord, other: &&TestRecord| limit(one) == limit(other);
    groups(run).into_iter().flat_map(|tests| grouped(tests, same)).collect()
}

/// The same rows, those first that lost most; each with the highest loss of its repetitions in percent.
pub fn limits_by_loss(run: &RunRecord) -> Vec<(f64, [String; 2])> {
    let lost = |tests: &[&TestRecord]| tests.iter().filter_map(|test| loss_percent(test)).fold(0.0, f64::max);
    let mut rows: Vec<_> = limited_alike(run)
        .into_iter()
        .map(|tests| (lost(&tests), [LIMITS[0].1(&tests), LIMITS[1].1(&tests)]))
        .collect();
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    rows
}

/// Tests of one name with the same limit: which repetitions, and the sentence.
pub fn limits_of(tests: &[&TestRecord]) -> Vec<(String, String)> {
    let limit = |test: &TestRecord| (test.limit.what.clone(), test.limit.place.clone());
    let alike = grouped(tests.iter().copied(), |one, other| limit(one) == limit(other));
    let numbers = |alike: &[&TestRecord]| {
        let numbers: Vec<String> = alike.iter().map(|test| format!("#{}", test.repetition)).collect();
        numbers.join(" ")
    };
    alike.iter().map(|alike| (numbers(alike), LIMITS[1].1(alike))).collect()
}

/// `udp-stream 64 B #1 #2 #3`; a test that is of no run has no number.
pub fn numbered(tests: &[&TestRecord]) -> String {
    let numbers = tests.iter().map(|test| test.repetition).filter(|number| *number > 0);
    let numbers: String = numbers.map(|number| format!(" #{number}")).collect();
    format!("{}{numbers}", tests[0].name)
}

//! Benchmarks of ports: kept ([`store`]), summed up here, shown as tables and as a page
//! ([`report::bench`](crate::report::bench)).
//!
//! **What.** Cells that differ only in their round are one row: the median, and the interval for it ([`crate::stats`]).
//! Tools are compared round by round, so a machine that became slower became slower for both.

pub mod store;

use crate::stats::{estimate, ratio};
use crate::table::{Column, SharedColumn, Table, count, grouped, number, over, told};
use record::PlaceDrop;
use record::bench::{BenchHead, CaptureResult, Cell, SendResult};
use record::unit::{many, prefixed, time_ns};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Write;
pub use store::{Bench, BenchWriter};

/// The names of our ports, in the order in which tables show them; every other name is a rival.
pub const OURS: [&str; 11] = [
    "int",
    "ring",
    "ring-count",
    "ring-v2",
    "xdp",
    "live",
    "int-bypass",
    "int-join",
    "ring-bypass",
    "xdp-stamp",
    "live-stamp",
];

/// True for a port of pathlab, false for a rival.
pub fn is_ours(tool: &str) -> bool {
    OURS.contains(&tool)
}

/// The name by which the field knows a frame size: with FCS.
pub fn size_name(frame_bytes: u32) -> String {
    if frame_bytes == 0 { "random".into() } else { (frame_bytes + 4).to_string() }
}

/// A rate in words.
pub fn rate_name(rate: u64) -> String {
    match rate {
        0 => "max".into(),
        rate if rate % 1000 == 0 => format!("{}k", rate / 1000),
        rate => rate.to_string(),
    }
}

/// A ring's size in words.
pub fn ring_name(frames: Option<u32>) -> String {
    frames.filter(|&frames| frames > 0).map_or("default".into(), |frames| frames.to_string())
}

/// A cell in words.
pub fn cell_name(cell: &Cell) -> String {
    let ring =
        cell.ring_frames.map_or(String::new(), |frames| format!(", ring {},", ring_name(Some(frames))));
    let (size, rate) = (size_name(cell.frame_bytes), rate_name(cell.rate));
    format!("{} {size} bytes{ring} {rate} #{}", cell.tool, cell.round)
}

/// A result as the tables and the comparisons see it.
pub trait Measured: Serialize + DeserializeOwned + 'static {
    /// What the page is called, and what is compared beside the CPU.
    const WORDS: [&'static str; 2];
    /// How many of the first columns are words.
    const WORD_COLUMNS: usize;
    /// The columns of the table.
    const COLUMNS: &'static [SharedColumn<Self>];

    /// What was measured.
    fn cell(&self) -> &Cell;
    /// Why it could not be measured.
    fn problem(&self) -> Option<&str>;
    /// What is compared: the higher the better, and the CPU for each frame.
    fn compared(&self) -> [Option<f64>; 2];
    /// The conditions of a comparison in words; none where nothing is compared.
    fn conditions(rate: u64, frame_bytes: u32) -> Option<String>;
}

/// The median over several rounds with its interval.
fn with_range<R>(rounds: &[&R], value: impl Fn(&R) -> Option<f64>, write: fn(f64) -> String) -> String {
    match estimate(&rounds.iter().filter_map(|round| value(round)).collect::<Vec<_>>()) {
        None => "–".into(),
        Some(e) if e.samples < 2 => write(e.value),
        Some(e) => format!("{} ({} … {})", write(e.value), write(e.low), write(e.high)),
    }
}

/// Maximum is the fastest: it stands behind the others.
fn rate_order(rate: u64) -> u64 {
    if rate == 0 { u64::MAX } else { rate }
}

/// The tools of a benchmark, ours first.
pub fn tools(head: &BenchHead) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for cell in &head.cells {
        if !names.contains(&cell.tool) {
            names.push(cell.tool.clone());
        }
    }
    names.sort_by_key(|name| OURS.iter().position(|ours| ours == name).unwrap_or(OURS.len()));
    names
}

/// Nanoseconds for each frame.
fn per_frame(ns: u64, frames: u64) -> Option<f64> {
    (frames > 0).then(|| ns as f64 / frames as f64)
}

fn places(results: &[&CaptureResult]) -> String {
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for PlaceDrop { place, name, count } in results.iter().flat_map(|result| &result.drops) {
        *sums.entry((place.as_str(), name.as_str())).or_default() += count;
    }
    let lost: Vec<String> = sums
        .iter()
        .filter(|(_, sum)| **sum > 0)
        .map(|((place, name), sum)| format!("{place} {name} {}", count(*sum)))
        .collect();
    let freezes: u64 = results.iter().map(|result| result.freezes).sum();
    let residual: i64 = results.iter().map(|result| result.residual).sum();
    let mut words = if lost.is_empty() { "none".to_owned() } else { lost.join(", ") };
    if freezes > 0 {
        let _ = write!(words, ", {freezes} freezes");
    }
    if residual != 0 {
        let _ = write!(words, ", residual {residual}");
    }
    words
}

/// Every row of a benchmark: cells that differ only in their round. Those that could not be measured are left out.
pub fn table<R: Measured>(bench: &Bench<R>) -> Table {
    let tools = tools(&bench.head);
    let mut rows: BTreeMap<_, Vec<&R>> = BTreeMap::new();
    for result in bench.results.iter().filter(|result| result.problem().is_none()) {
        let Cell { tool, rate, frame_bytes, ring_frames, .. } = result.cell();
        let place = tools.iter().position(|other| other == tool).unwrap_or(usize::MAX);
        rows.entry((rate_order(*rate), frame_bytes, ring_frames, place, tool)).or_default().push(result);
    }
    Table::shared(R::WORD_COLUMNS, R::COLUMNS, rows.into_values())
}

impl Measured for CaptureResult {
    const WORDS: [&'static str; 2] = ["capture benchmark", "frames counted, ours ÷ theirs"];
    const WORD_COLUMNS: usize = 2;
    const COLUMNS: &'static [SharedColumn<Self>] = &[
        ("port", |rounds| rounds[0].cell.tool.clone()),
        ("lost where", |rounds| places(rounds)),
        ("bytes", |rounds| size_name(rounds[0].cell.frame_bytes)),
        ("ring", |rounds| ring_name(rounds[0].cell.ring_frames)),
        ("asked/s", |rounds| rate_name(rounds[0].cell.rate)),
        ("offered frames/s", |rounds| told(over(rounds, |r| Some(r.offered_per_second())), prefixed)),
        ("loss %", |rounds| with_range(rounds, Self::loss_percent, number)),
        ("CPU ns/frame", |rounds| told(over(rounds, Self::cpu_ns_per_frame), number)),
        ("softirq", |rounds| told(over(rounds, |r| per_frame(r.host.softirq_ns, r.arrived)), number)),
        ("start, end", |rounds| told(over(rounds, |r| Some(r.cpu.around_ns() as f64)), time_ns)),
        ("user %", |rounds| told(over(rounds, |r| r.cpu.user_percent()), number)),
        ("stamp p50", |rounds| told(over(rounds, |r| Some(r.stamp.as_ref()?.p50_ns as f64)), time_ns)),
        ("p99", |rounds| told(over(rounds, |r| Some(r.stamp.as_ref()?.p99_ns as f64)), time_ns)),
    ];

    fn cell(&self) -> &Cell {
        &self.cell
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn compared(&self) -> [Option<f64>; 2] {
        let share = if self.arrived > 0 { self.captured as f64 / self.arrived as f64 } else { 0.0 };
        [Some(share), self.cpu_ns_per_frame()]
    }

    fn conditions(rate: u64, frame_bytes: u32) -> Option<String> {
        Some(format!("{} frames/s of {} bytes", rate_name(rate), size_name(frame_bytes)))
    }
}

impl Measured for SendResult {
    const WORDS: [&'static str; 2] = ["send benchmark", "frames/s, ours ÷ theirs"];
    const WORD_COLUMNS: usize = 1;
    const COLUMNS: &'static [SharedColumn<Self>] = &[
        ("port", |rounds| rounds[0].cell.tool.clone()),
        ("bytes", |rounds| size_name(rounds[0].cell.frame_bytes)),
        ("asked/s", |rounds| rate_name(rounds[0].cell.rate)),
        ("transmitted frames/s", |rounds| with_range(rounds, Self::per_second, prefixed)),
        ("received frames/s", |rounds| {
            told(over(rounds, |r| (r.seconds > 0.0).then(|| r.received as f64 / r.seconds)), prefixed)
        }),
        ("claimed − transmitted", |rounds| {
            with_range(rounds, |r| Some(r.claimed as f64 - r.transmitted as f64), number)
        }),
        ("CPU ns/frame", |rounds| told(over(rounds, Self::cpu_ns_per_frame), number)),
        ("user", |rounds| told(over(rounds, |r| per_frame(r.cpu.user_ns, r.transmitted)), number)),
        ("sys", |rounds| told(over(rounds, |r| per_frame(r.cpu.system_ns, r.transmitted)), number)),
        ("softirq", |rounds| told(over(rounds, |r| per_frame(r.host.softirq_ns, r.transmitted)), number)),
        ("late p50", |rounds| told(over(rounds, |r| Some(r.late.as_ref()?.p50_ns as f64)), time_ns)),
        ("p99", |rounds| told(over(rounds, |r| Some(r.late.as_ref()?.p99_ns as f64)), time_ns)),
    ];

    fn cell(&self) -> &Cell {
        &self.cell
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn compared(&self) -> [Option<f64>; 2] {
        [self.per_second(), self.cpu_ns_per_frame()]
    }

    fn conditions(rate: u64, frame_bytes: u32) -> Option<String> {
        (rate == 0).then(|| format!("{} bytes, as fast as possible", size_name(frame_bytes)))
    }
}

/// Ours against a rival in cells that differ in nothing else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Versus {
    /// What the cells have in common, in words.
    pub at: String,
    /// Our port.
    pub ours: String,
    /// The rival.
    pub rival: String,
    /// Ours ÷ theirs: frames counted (capture), frames per second transmitted (send).
    pub rate: Option<Ratio>,
    /// Ours ÷ theirs: CPU for each frame.
    pub cost: Option<Ratio>,
}

/// A ratio over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How many rounds had both.
    pub rounds: usize,
}

impl Ratio {
    /// Ours ÷ theirs of pairs.
    fn of(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|&(ours, theirs)| (theirs, ours)).collect();
        let e = ratio(&swapped)?;
        Some(Ratio { median: e.value, low: e.low, high: e.high, rounds: e.samples })
    }

    fn words(ratio: Option<Ratio>) -> String {
        ratio.map_or("–".into(), |r| format!("{:.2} ({:.2} … {:.2})", r.median, r.low, r.high))
    }
}

/// Every port of ours against every rival, round by round under the same conditions.
pub fn versus<R: Measured>(bench: &Bench<R>) -> Vec<Versus> {
    let tools = tools(&bench.head);
    let (ours, rivals): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| is_ours(tool));
    let good = bench.results.iter().filter(|result| result.problem().is_none());
    let good: Vec<(&Cell, &R)> = good.map(|result| (result.cell(), result)).collect();
    let mut all_conditions: Vec<(u64, u32)> = good.iter().map(|(at, _)| (at.rate, at.frame_bytes)).collect();
    all_conditions.sort_unstable_by_key(|(rate, size)| (rate_order(*rate), *size));
    all_conditions.dedup();
    let mut all = vec![];
    for (rate, size) in all_conditions {
        let Some(at) = R::conditions(rate, size) else { continue };
        for (our, rival) in ours.iter().flat_map(|our| rivals.iter().map(move |rival| (*our, *rival))) {
            let is = |at: &Cell, tool: &String| (at.rate, at.frame_bytes, &at.tool) == (rate, size, tool);
            let theirs = |round| good.iter().find(|(at, _)| is(at, rival) && at.round == round);
            let ours = good.iter().filter(|(at, _)| is(at, our));
            let pairs: Vec<(&R, &R)> = ours.filter_map(|(at, a)| Some((*a, theirs(at.round)?.1))).collect();
            let ratio = |which: usize| {
                let both = |(a, b): &(&R, &R)| Some((a.compared()[which]?, b.compared()[which]?));
                Ratio::of(&pairs.iter().filter_map(both).collect::<Vec<_>>())
            };
            let (rate, cost) = (ratio(0), ratio(1));
            all.push(Versus { at: at.clone(), ours: our.clone(), rival: rival.clone(), rate, cost });
        }
    }
    all
}

/// The comparisons as a table.
pub fn versus_table(versus: &[Versus], rate: &'static str) -> Table {
    let columns: [Column<Versus>; 5] = [
        ("at", |versus| versus.at.clone()),
        ("ours", |versus| versus.ours.clone()),
        ("rival", |versus| versus.rival.clone()),
        (rate, |versus| Ratio::words(versus.rate)),
        ("CPU per frame, ours ÷ theirs", |versus| Ratio::words(versus.cost)),
    ];
    Table::of(3, &columns, versus)
}

/// What to know before the numbers: conditions in a few lines.
pub fn conditions(head: &BenchHead) -> Vec<String> {
    let host = &head.host;
    let mut lines = vec![
        format!(
            "{}, seed {}: {} of {}, {}",
            head.begun,
            head.seed,
            many(head.cells.len() as u64, "cell"),
            time_ns(head.duration_ms as f64 * 1e6),
            many(head.rounds.into(), "round")
        ),
        format!("Linux {}, {} × {}", host.kernel, host.cpus, host.cpu_model),
        head.placement.clone(),
        head.other_end.clone(),
        format!("offloads: {}", head.offloads.join("; ")),
        format!(
            "busy before: load {:.1}{}",
            host.load_average,
            host.cpu_pressure.map_or(String::new(), |p| format!(", CPU pressure {p:.0} %"))
        ),
    ];
    lines.extend(head.absent.iter().map(|absent| format!("absent: {absent}")));
    lines
}

/// A benchmark for people.
pub fn text<R: Measured>(bench: &Bench<R>) -> String {
    let mut text = conditions(&bench.head).join("\n") + "\n\n" + &table(bench).text();
    let versus = versus(bench);
    if !versus.is_empty() {
        text += &format!("\n{}", versus_table(&versus, R::WORDS[1]).text());
    }
    text + &problems(bench)
}

/// Cells that could not be measured; each reason once, with its first cell.
pub fn problems<R: Measured>(bench: &Bench<R>) -> String {
    let cells = bench.results.iter().filter_map(|result| Some((result.problem()?, result.cell())));
    let mut text = String::new();
    for same in grouped(cells, |(one, _), (other, _)| one == other) {
        let (why, cell) = same[0];
        let more = same.len() - 1;
        let others = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = write!(text, "\nnot measured: {}{others}: {why}", cell_name(cell));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(tool: &str, round: u32, captured: u64, flow_ns: u64) -> CaptureResult {
        let cell = Cell { tool: tool.into(), frame_bytes: 60, ring_frames: Some(0), rate: 150_000, round };
        let cpu = record::bench::ProcessCpu { flow_ns, ..Default::default() };
        CaptureResult {
            cell,
            arrived: 1000,
            captured,
            cpu,
            seconds: 1.0,
            offered: 1000,
            ..Default::default()
        }
    }

    fn bench(results: Vec<CaptureResult>) -> Bench<CaptureResult> {
        let cells = results.iter().map(|result| result.cell.clone()).collect();
        Bench { head: BenchHead { cells, ..BenchHead::default() }, results }
    }

    #[test]
    fn tools_are_compared_round_by_round() {
        // Twice as slow in the second round: the ratio does not notice.
        let results = vec![
            result("tcpdump", 1, 500, 5000),
            result("ring", 1, 1000, 1000),
            result("ring", 2, 1000, 2000),
            result("tcpdump", 2, 500, 10_000),
            CaptureResult { problem: Some("it died".into()), ..result("tcpdump", 3, 1, 1) },
        ];
        let versus = super::versus(&bench(results.clone()));
        assert_eq!(versus.len(), 1);
        let (rate, cost) = (versus[0].rate.unwrap(), versus[0].cost.unwrap());
        assert!((rate.median - 2.0).abs() < 1e-9 && rate.rounds == 2, "{rate:?}");
        assert!((cost.median - 0.1).abs() < 1e-9 && (cost.high - 0.1).abs() < 1e-9, "{cost:?}");
        let text = super::text(&bench(results));
        assert!(text.contains("not measured: tcpdump 64 bytes, ring default, 150k #3: it died"), "{text}");
        assert!(text.contains("50.0 (50.0 … 50.0)"), "{text}");
    }

    #[test]
    fn ours_stand_first_and_the_fastest_rate_last() {
        let mut fast = result("int", 1, 900, 1);
        fast.cell.rate = 0;
        let bench = bench(vec![fast, result("tcpdump", 1, 1, 1), result("ring", 1, 1, 1)]);
        assert_eq!(tools(&bench.head), ["int", "ring", "tcpdump"]);
        let rates: Vec<String> = table(&bench).rows.into_iter().map(|row| row[4].clone()).collect();
        assert_eq!(rates, ["150k", "150k", "max"]);
        assert_eq!(
            (size_name(60), size_name(0), ring_name(Some(0))),
            ("64".into(), "random".into(), "default".into())
        );
    }
}

//! Benchmarks of ports: kept ([`store`]), summed up here, shown as tables and as a page
//! ([`report::bench`](crate::report::bench)).
//!
//! **What.** Cells that differ only in their round are one row: the median, and the interval for it ([`crate::stats`]).
//! Tools are compared round by round, so a machine that became slower became slower for both.

pub mod store;

use crate::stats::{Estimate, estimate, ratio};
use crate::table::{Table, count, number};
use record::PlaceDrop;
use record::bench::{BenchHead, CaptureCell, CaptureResult, SendCell, SendResult};
use record::unit::{many, prefixed, time_ns};
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
pub fn ring_name(frames: u32) -> String {
    if frames == 0 { "default".into() } else { frames.to_string() }
}

/// Medians over several rounds.
struct Rounds;

impl Rounds {
    fn of<R>(results: &[&R], value: impl Fn(&R) -> Option<f64>) -> Option<Estimate> {
        estimate(&results.iter().filter_map(|result| value(result)).collect::<Vec<_>>())
    }
}

fn middle(estimate: Option<Estimate>, write: fn(f64) -> String) -> String {
    estimate.map_or("–".into(), |e| write(e.value))
}

fn with_range(estimate: Option<Estimate>, write: fn(f64) -> String) -> String {
    match estimate {
        None => "–".into(),
        Some(e) if e.samples < 2 => write(e.value),
        Some(e) => format!("{} ({} … {})", write(e.value), write(e.low), write(e.high)),
    }
}

/// Results by what they have in common, in the order of `key`. Cells that could not be measured are left out.
fn grouped<R, K: Ord>(
    results: &[R],
    problem: impl Fn(&R) -> bool,
    key: impl Fn(&R) -> K,
) -> BTreeMap<K, Vec<&R>> {
    let mut groups: BTreeMap<K, Vec<&R>> = BTreeMap::new();
    for result in results.iter().filter(|result| !problem(result)) {
        groups.entry(key(result)).or_default().push(result);
    }
    groups
}

/// Maximum is the fastest: it stands behind the others.
fn rate_order(rate: u64) -> u64 {
    if rate == 0 { u64::MAX } else { rate }
}

type CaptureKey = (u64, u32, u32, usize, String);

fn capture_groups(results: &[CaptureResult], tools: &[String]) -> BTreeMap<CaptureKey, Vec<CaptureResult>> {
    let place = |tool: &String| tools.iter().position(|other| other == tool).unwrap_or(usize::MAX);
    let key = |result: &CaptureResult| {
        let cell = &result.cell;
        let tool = cell.tool.clone();
        (rate_order(cell.rate), cell.frame_bytes, cell.ring_frames, place(&cell.tool), tool)
    };
    let groups = grouped(results, |result| result.problem.is_some(), key);
    groups.into_iter().map(|(key, group)| (key, group.into_iter().cloned().collect())).collect()
}

/// The tools of a benchmark, as the head names them first.
fn tools<C>(head: &BenchHead<C>, tool: impl Fn(&C) -> &str) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for cell in &head.cells {
        if !names.iter().any(|name| name == tool(cell)) {
            names.push(tool(cell).to_owned());
        }
    }
    names.sort_by_key(|name| OURS.iter().position(|ours| ours == name).unwrap_or(OURS.len()));
    names
}

/// The tools of a capture benchmark, ours first.
pub fn capture_tools(head: &BenchHead<CaptureCell>) -> Vec<String> {
    tools(head, |cell| &cell.tool)
}

/// The tools of a send benchmark, ours first.
pub fn send_tools(head: &BenchHead<SendCell>) -> Vec<String> {
    tools(head, |cell| &cell.tool)
}

/// Per million frames of those that were captured, in milliseconds.
fn per_million(ns: u64, frames: u64) -> Option<f64> {
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

/// Every row of a capture benchmark.
pub fn capture_table(bench: &Bench<CaptureResult>) -> Table {
    let headers = [
        "port",
        "lost where",
        "bytes",
        "ring",
        "asked/s",
        "offered frames/s",
        "loss %",
        "CPU ns/frame",
        "softirq",
        "start, end",
        "user %",
        "stamp p50",
        "p99",
    ];
    let mut table = Table { headers: headers.map(str::to_owned).to_vec(), rows: vec![], words: 2 };
    for ((.., tool), group) in capture_groups(&bench.results, &capture_tools(&bench.head)) {
        let group: Vec<&CaptureResult> = group.iter().collect();
        let cell = &group[0].cell;
        let stamp = |value: fn(&record::bench::StampError) -> u64| {
            Rounds::of(&group, |r| Some(value(r.stamp.as_ref()?) as f64))
        };
        table.rows.push(vec![
            tool.clone(),
            places(&group),
            size_name(cell.frame_bytes),
            ring_name(cell.ring_frames),
            rate_name(cell.rate),
            middle(Rounds::of(&group, |r| Some(r.offered_per_second())), prefixed),
            with_range(Rounds::of(&group, CaptureResult::loss_percent), number),
            middle(Rounds::of(&group, CaptureResult::cpu_ns_per_frame), number),
            middle(Rounds::of(&group, |r| per_million(r.host.softirq_ns, r.arrived)), number),
            middle(Rounds::of(&group, |r| Some(r.cpu.around_ns() as f64)), time_ns),
            middle(Rounds::of(&group, |r| r.cpu.user_percent()), number),
            middle(stamp(|stamp| stamp.p50_ns), time_ns),
            middle(stamp(|stamp| stamp.p99_ns), time_ns),
        ]);
    }
    table
}

/// Every row of a send benchmark.
pub fn send_table(bench: &Bench<SendResult>) -> Table {
    let headers = [
        "port",
        "bytes",
        "asked/s",
        "transmitted frames/s",
        "received frames/s",
        "claimed − transmitted",
        "CPU ns/frame",
        "user",
        "sys",
        "softirq",
        "late p50",
        "p99",
    ];
    let mut table = Table { headers: headers.map(str::to_owned).to_vec(), rows: vec![], words: 1 };
    let names = send_tools(&bench.head);
    let place = |tool: &String| names.iter().position(|other| other == tool).unwrap_or(usize::MAX);
    let key = |r: &SendResult| (rate_order(r.cell.rate), r.cell.frame_bytes, place(&r.cell.tool));
    for (_, group) in grouped(&bench.results, |r| r.problem.is_some(), key) {
        let cell = &group[0].cell;
        let late = |value: fn(&record::bench::StampError) -> u64| {
            Rounds::of(&group, |r| Some(value(r.late.as_ref()?) as f64))
        };
        let per_second = |frames: u64, r: &SendResult| (r.seconds > 0.0).then(|| frames as f64 / r.seconds);
        table.rows.push(vec![
            cell.tool.clone(),
            size_name(cell.frame_bytes),
            rate_name(cell.rate),
            with_range(Rounds::of(&group, |r| per_second(r.transmitted, r)), prefixed),
            middle(Rounds::of(&group, |r| per_second(r.received, r)), prefixed),
            with_range(Rounds::of(&group, |r| Some(r.claimed as f64 - r.transmitted as f64)), number),
            middle(Rounds::of(&group, SendResult::cpu_ns_per_frame), number),
            middle(Rounds::of(&group, |r| per_million(r.cpu.user_ns, r.transmitted)), number),
            middle(Rounds::of(&group, |r| per_million(r.cpu.system_ns, r.transmitted)), number),
            middle(Rounds::of(&group, |r| per_million(r.host.softirq_ns, r.transmitted)), number),
            middle(late(|late| late.p50_ns), time_ns),
            middle(late(|late| late.p99_ns), time_ns),
        ]);
    }
    table
}

/// Ours against a rival in cells that differ in nothing else.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
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

/// Round by round pairs of two tools: `same` says whether two results belong to the same conditions and round.
fn pairs<'r, R>(
    results: &'r [R],
    (ours, rival): (&str, &str),
    tool: impl Fn(&R) -> &str,
    same: impl Fn(&R, &R) -> bool,
) -> Vec<(&'r R, &'r R)> {
    let of = |name: &str| -> Vec<&R> { results.iter().filter(|r| tool(r) == name).collect() };
    let theirs = of(rival);
    let partner = |our: &'r R| Some((our, *theirs.iter().find(|their| same(our, their))?));
    of(ours).into_iter().filter_map(partner).collect()
}

/// Every port of ours against every rival, at each rate.
pub fn capture_versus(bench: &Bench<CaptureResult>) -> Vec<Versus> {
    let tools = capture_tools(&bench.head);
    let (ours, rivals): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| is_ours(tool));
    let good: Vec<CaptureResult> = bench.results.iter().filter(|r| r.problem.is_none()).cloned().collect();
    let mut rates: Vec<(u64, u32)> = good.iter().map(|r| (r.cell.rate, r.cell.frame_bytes)).collect();
    rates.sort_unstable_by_key(|(rate, size)| (rate_order(*rate), *size));
    rates.dedup();
    let mut all = vec![];
    for &(rate, size) in &rates {
        for (our, rival) in ours.iter().flat_map(|our| rivals.iter().map(move |rival| (our, rival))) {
            let same = |a: &CaptureResult, b: &CaptureResult| {
                (a.cell.rate, a.cell.frame_bytes, a.cell.round) == (rate, size, b.cell.round)
                    && (b.cell.rate, b.cell.frame_bytes) == (rate, size)
            };
            let pairs = pairs(&good, (our, rival), |r| &r.cell.tool, same);
            let counted: Vec<(f64, f64)> =
                pairs.iter().map(|(a, b)| (share(a).unwrap_or(0.0), share(b).unwrap_or(0.0))).collect();
            let cost: Vec<(f64, f64)> = pairs
                .iter()
                .filter_map(|(a, b)| Some((a.cpu_ns_per_frame()?, b.cpu_ns_per_frame()?)))
                .collect();
            all.push(Versus {
                at: format!("{} frames/s of {} bytes", rate_name(rate), size_name(size)),
                ours: (*our).clone(),
                rival: (*rival).clone(),
                rate: Ratio::of(&counted),
                cost: Ratio::of(&cost),
            });
        }
    }
    all
}

/// The share of arrived frames that were counted.
fn share(result: &CaptureResult) -> Option<f64> {
    (result.arrived > 0).then(|| result.captured as f64 / result.arrived as f64)
}

/// Every port of ours against every rival, at each frame size.
pub fn send_versus(bench: &Bench<SendResult>) -> Vec<Versus> {
    let tools = send_tools(&bench.head);
    let (ours, rivals): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| is_ours(tool));
    let good: Vec<SendResult> =
        bench.results.iter().filter(|r| r.problem.is_none() && r.cell.rate == 0).cloned().collect();
    let mut sizes: Vec<u32> = good.iter().map(|r| r.cell.frame_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut all = vec![];
    for &size in &sizes {
        for (our, rival) in ours.iter().flat_map(|our| rivals.iter().map(move |rival| (our, rival))) {
            let same = |a: &SendResult, b: &SendResult| {
                (a.cell.frame_bytes, b.cell.frame_bytes, a.cell.round) == (size, size, b.cell.round)
            };
            let pairs = pairs(&good, (our, rival), |r| &r.cell.tool, same);
            let of = |value: fn(&SendResult) -> Option<f64>| -> Vec<(f64, f64)> {
                pairs.iter().filter_map(|(a, b)| Some((value(a)?, value(b)?))).collect()
            };
            all.push(Versus {
                at: format!("{} bytes, as fast as possible", size_name(size)),
                ours: (*our).clone(),
                rival: (*rival).clone(),
                rate: Ratio::of(&of(SendResult::per_second)),
                cost: Ratio::of(&of(SendResult::cpu_ns_per_frame)),
            });
        }
    }
    all
}

/// The comparisons as a table.
pub fn versus_table(versus: &[Versus], rate: &str) -> Table {
    let headers = ["at", "ours", "rival", rate, "CPU per frame, ours ÷ theirs"];
    let rows = versus
        .iter()
        .map(|v| {
            let words = [v.at.clone(), v.ours.clone(), v.rival.clone()];
            words.into_iter().chain([Ratio::words(v.rate), Ratio::words(v.cost)]).collect()
        })
        .collect();
    Table { headers: headers.map(str::to_owned).to_vec(), rows, words: 3 }
}

/// What to know before the numbers: conditions in a few lines.
pub fn conditions<C>(head: &BenchHead<C>) -> Vec<String> {
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

/// A capture benchmark for people.
pub fn capture_text(bench: &Bench<CaptureResult>) -> String {
    let mut text = conditions(&bench.head).join("\n") + "\n\n" + &capture_table(bench).text();
    let versus = capture_versus(bench);
    if !versus.is_empty() {
        text += &format!("\n{}", versus_table(&versus, "frames counted, ours ÷ theirs").text());
    }
    text + &problems(bench.results.iter().map(|r| (cell_name(&r.cell), r.problem.as_deref())))
}

/// A send benchmark for people.
pub fn send_text(bench: &Bench<SendResult>) -> String {
    let mut text = conditions(&bench.head).join("\n") + "\n\n" + &send_table(bench).text();
    let versus = send_versus(bench);
    if !versus.is_empty() {
        text += &format!("\n{}", versus_table(&versus, "frames/s, ours ÷ theirs").text());
    }
    text + &problems(bench.results.iter().map(|r| (send_cell_name(&r.cell), r.problem.as_deref())))
}

/// A sender's cell in words.
pub fn send_cell_name(cell: &SendCell) -> String {
    format!("{} {} bytes {} #{}", cell.tool, size_name(cell.frame_bytes), rate_name(cell.rate), cell.round)
}

/// A cell in words.
pub fn cell_name(cell: &CaptureCell) -> String {
    format!(
        "{} {} bytes, ring {}, {} #{}",
        cell.tool,
        size_name(cell.frame_bytes),
        ring_name(cell.ring_frames),
        rate_name(cell.rate),
        cell.round
    )
}

/// Cells that could not be measured; each reason once, with its first cell.
pub fn problems<'r>(results: impl Iterator<Item = (String, Option<&'r str>)>) -> String {
    let mut reasons: Vec<(&str, String, usize)> = vec![];
    for (cell, why) in results.filter_map(|(cell, why)| Some((cell, why?))) {
        match reasons.iter_mut().find(|(known, ..)| *known == why) {
            Some((.., times)) => *times += 1,
            None => reasons.push((why, cell, 1)),
        }
    }
    let mut text = String::new();
    for (why, cell, times) in reasons {
        let others = if times > 1 { format!(" and {} more", times - 1) } else { String::new() };
        let _ = write!(text, "\nnot measured: {cell}{others}: {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(tool: &str, round: u32, captured: u64, flow_ns: u64) -> CaptureResult {
        let cell = CaptureCell { tool: tool.into(), frame_bytes: 60, ring_frames: 0, rate: 150_000, round };
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
        let versus = capture_versus(&bench(results.clone()));
        assert_eq!(versus.len(), 1);
        let (rate, cost) = (versus[0].rate.unwrap(), versus[0].cost.unwrap());
        assert!((rate.median - 2.0).abs() < 1e-9 && rate.rounds == 2, "{rate:?}");
        assert!((cost.median - 0.1).abs() < 1e-9 && (cost.high - 0.1).abs() < 1e-9, "{cost:?}");
        let text = capture_text(&bench(results));
        assert!(text.contains("not measured: tcpdump 64 bytes, ring default, 150k #3: it died"), "{text}");
        assert!(text.contains("50.0 (50.0 … 50.0)"), "{text}");
    }

    #[test]
    fn ours_stand_first_and_the_fastest_rate_last() {
        let mut fast = result("int", 1, 900, 1);
        fast.cell.rate = 0;
        let bench = bench(vec![fast, result("tcpdump", 1, 1, 1), result("ring", 1, 1, 1)]);
        assert_eq!(capture_tools(&bench.head), ["int", "ring", "tcpdump"]);
        let rates: Vec<String> = capture_table(&bench).rows.into_iter().map(|row| row[4].clone()).collect();
        assert_eq!(rates, ["150k", "150k", "max"]);
        assert_eq!(
            (size_name(60), size_name(0), ring_name(0)),
            ("64".into(), "random".into(), "default".into())
        );
    }
}

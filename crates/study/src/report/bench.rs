//! A benchmark of ports as a page: conditions, comparisons, plots, every row. It needs no script.

use super::{COLOURS, MARK, STYLE, render, svg};
use crate::bench::{self, Bench, Measured, ring_name, size_name};
use crate::stats::median;
use record::Result;
use record::bench::{CaptureResult, SendResult};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

const TEMPLATE: &str = include_str!("../../templates/bench.html");
/// Plots of one kind beyond this number are left to the table.
const MOST_PLOTS: usize = 12;

/// One plot.
#[derive(Debug, Serialize)]
pub struct Plot {
    title: String,
    svg: String,
}

/// The page of a benchmark.
///
/// # Errors
/// A host problem when the page cannot be rendered.
pub fn html<R: Plotted>(bench: &Bench<R>) -> Result<String> {
    let head = &bench.head;
    let page = json!({
        "mark": MARK,
        "style": STYLE,
        "title": format!("{} {}", R::WORDS[0], head.id),
        "command": head.command.join(" "),
        "missing": bench.missing().len(),
        "problems": bench::problems(bench).trim(),
        "conditions": bench::conditions(head),
        "versus": bench::versus_table(&bench::versus(bench), R::WORDS[1]),
        "plots": R::plots(bench),
        "table": bench::table(bench),
    });
    render(TEMPLATE, page)
}

/// A result that makes plots.
pub trait Plotted: Measured {
    /// The plots of a benchmark.
    fn plots(bench: &Bench<Self>) -> Vec<Plot>
    where
        Self: Sized;
}

impl Plotted for CaptureResult {
    fn plots(bench: &Bench<Self>) -> Vec<Plot> {
        capture_plots(bench)
    }
}

impl Plotted for SendResult {
    fn plots(bench: &Bench<Self>) -> Vec<Plot> {
        send_plots(bench)
    }
}

/// Which numbers of a result make a plot.
struct Axes<'a, R> {
    title: String,
    x: (&'a str, fn(&R) -> f64),
    y: (&'a str, fn(&R) -> Option<f64>),
    logarithmic: bool,
}

/// A plot with one line for each tool; none when nothing varies along x.
fn plot<R>(results: &[&R], tools: &[String], tool: fn(&R) -> &str, axes: Axes<R>) -> Option<Plot> {
    let mut lines = vec![];
    for (place, name) in tools.iter().enumerate() {
        let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for result in results.iter().filter(|result| tool(result) == name) {
            if let Some(y) = (axes.y.1)(result) {
                points.entry((axes.x.1)(result).to_bits()).or_default().push(y);
            }
        }
        let mut points: Vec<(f64, f64)> =
            points.into_iter().filter_map(|(x, ys)| Some((f64::from_bits(x), median(&ys)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !points.is_empty() {
            lines.push(svg::PlotLine { name, colour: COLOURS[place % COLOURS.len()], points });
        }
    }
    let varies = lines.iter().any(|line| line.points.len() > 1);
    let svg = varies.then(|| svg::lines(axes.x.0, axes.y.0, axes.logarithmic, &lines))?;
    Some(Plot { title: axes.title, svg })
}

/// What a value of a key stands for, each value once and in order.
fn values<R, K: Ord + Copy>(results: &[&R], key: impl Fn(&R) -> K) -> Vec<K> {
    let mut all: Vec<K> = results.iter().map(|result| key(result)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn capture_plots(bench: &Bench<CaptureResult>) -> Vec<Plot> {
    let tools = bench::tools::<CaptureResult>(&bench.head);
    let good: Vec<&CaptureResult> = bench.results.iter().filter(|r| r.problem.is_none()).collect();
    let tool: fn(&CaptureResult) -> &str = |r| &r.cell.tool;
    let loss: fn(&CaptureResult) -> Option<f64> = CaptureResult::loss_percent;
    let mut plots = vec![];
    for (size, rate) in values(&good, |r| (r.cell.frame_bytes, r.cell.rate)) {
        let same =
            |r: &&&CaptureResult| (r.cell.frame_bytes, r.cell.rate) == (size, rate) && r.cell.ring_frames > 0;
        let results: Vec<&CaptureResult> = good.iter().filter(same).copied().collect();
        let title =
            format!("Loss over ring size: {} bytes, {} frames/s", size_name(size), bench::rate_name(rate));
        let x: (&str, fn(&CaptureResult) -> f64) = ("ring size, frames", |r| f64::from(r.cell.ring_frames));
        plots.extend(plot(&results, &tools, tool, Axes { title, x, y: ("loss %", loss), logarithmic: true }));
    }
    for (size, ring) in values(&good, |r| (r.cell.frame_bytes, r.cell.ring_frames)) {
        let same = |r: &&&CaptureResult| (r.cell.frame_bytes, r.cell.ring_frames) == (size, ring);
        let results: Vec<&CaptureResult> = good.iter().filter(same).copied().collect();
        let title = format!("Loss over offered rate: {} bytes, ring {}", size_name(size), ring_name(ring));
        // The rate that was asked names the point, what was offered places it.
        let x: (&str, fn(&CaptureResult) -> f64) =
            ("offered, thousand frames/s", |r| (r.offered_per_second() / 1e3 / 5.0).round() * 5.0);
        plots.extend(plot(
            &results,
            &tools,
            tool,
            Axes { title, x, y: ("loss %", loss), logarithmic: false },
        ));
    }
    for (ring, rate) in values(&good, |r| (r.cell.ring_frames, r.cell.rate)) {
        let same =
            |r: &&&CaptureResult| (r.cell.ring_frames, r.cell.rate) == (ring, rate) && r.cell.frame_bytes > 0;
        let results: Vec<&CaptureResult> = good.iter().filter(same).copied().collect();
        let title = format!(
            "CPU of the capture over frame size: ring {}, {} frames/s",
            ring_name(ring),
            bench::rate_name(rate)
        );
        let x: (&str, fn(&CaptureResult) -> f64) =
            ("frame size with FCS, bytes", |r| f64::from(r.cell.frame_bytes + 4));
        let y: (&str, fn(&CaptureResult) -> Option<f64>) = ("ns/frame", CaptureResult::cpu_ns_per_frame);
        plots.extend(plot(&results, &tools, tool, Axes { title, x, y, logarithmic: true }));
    }
    plots.truncate(3 * MOST_PLOTS);
    plots
}

fn send_plots(bench: &Bench<SendResult>) -> Vec<Plot> {
    let tools = bench::tools::<SendResult>(&bench.head);
    let good: Vec<&SendResult> = bench.results.iter().filter(|r| r.problem.is_none()).collect();
    let tool: fn(&SendResult) -> &str = |r| &r.cell.tool;
    let x: (&str, fn(&SendResult) -> f64) =
        ("frame size with FCS, bytes", |r| f64::from(r.cell.frame_bytes + 4));
    let mut plots = vec![];
    for rate in values(&good, |r| r.cell.rate) {
        let results: Vec<&SendResult> = good.iter().filter(|r| r.cell.rate == rate).copied().collect();
        let name = bench::rate_name(rate);
        let y: (&str, fn(&SendResult) -> Option<f64>) =
            ("thousand frames/s", |r| Some(r.per_second()? / 1e3));
        let title = format!("Transmitted over frame size, asked {name}");
        plots.extend(plot(&results, &tools, tool, Axes { title, x, y, logarithmic: true }));
        let y: (&str, fn(&SendResult) -> Option<f64>) = ("ns/frame", SendResult::cpu_ns_per_frame);
        let title = format!("CPU of the sender over frame size, asked {name}");
        plots.extend(plot(&results, &tools, tool, Axes { title, x, y, logarithmic: true }));
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::bench::{BenchHead, CaptureCell, SendCell};

    #[test]
    fn the_page_has_the_plots_and_hides_no_markup() {
        let mut results = vec![];
        for ring_frames in [8, 64, 4096] {
            for tool in ["ring", "<script>"] {
                let cell =
                    CaptureCell { tool: tool.into(), frame_bytes: 60, ring_frames, rate: 150_000, round: 1 };
                let captured = 900 + u64::from(ring_frames / 64);
                let result = CaptureResult { cell, arrived: 1000, captured, ..CaptureResult::default() };
                results.push(result);
            }
        }
        results[0].problem = Some("no <b>room</b>".into());
        let cells = results.iter().map(|result| result.cell.clone()).collect();
        let bench = Bench { head: BenchHead { cells, ..BenchHead::default() }, results };
        let page = html(&bench).unwrap();
        assert!(page.starts_with(MARK) && page.contains("Loss over ring size: 64 bytes, 150k frames"));
        assert!(!page.contains("<script>") && !page.contains("<b>room") && page.contains("&lt;b&gt;room"));
        assert_eq!(page.matches("<polyline").count(), 2, "one line for each tool");
    }

    #[test]
    fn a_send_page_shows_rates_over_sizes() {
        let result = |frame_bytes| SendResult {
            cell: SendCell { tool: "live".into(), frame_bytes, rate: 0, round: 1 },
            transmitted: 1000,
            seconds: 1.0,
            ..SendResult::default()
        };
        let results = vec![result(60), result(1514)];
        let cells = results.iter().map(|result| result.cell.clone()).collect();
        let page = html(&Bench { head: BenchHead { cells, ..BenchHead::default() }, results }).unwrap();
        assert!(page.contains("Transmitted over frame size, asked max"), "{page}");
    }
}

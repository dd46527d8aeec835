//! A benchmark of ports as a page: conditions, comparisons, plots, every row. It needs no script.

use super::{COLOURS, MARK, STYLE, render, svg};
use crate::bench::{self, Bench, Measured, rate_name, ring_name, size_name};
use crate::stats::median;
use record::Result;
use record::bench::{CaptureResult, SendResult};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

const TEMPLATE: &str = include_str!("../../templates/bench.html");
/// Plots beyond this number are left to the table.
const MOST_PLOTS: usize = 36;

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
        "command": record::line::command_line(&head.command),
        "missing": bench.missing().len(),
        "problems": bench::problems(bench).trim(),
        "conditions": bench::conditions(head),
        "versus": bench::versus_table(&bench::versus(bench), R::WORDS[1]),
        "plots": plots(bench),
        "table": bench::table(bench),
    });
    render(TEMPLATE, page)
}

/// A result that makes plots.
pub trait Plotted: Measured + Sized {
    /// What is plotted of a benchmark.
    const PLOTS: &'static [PlotFamily<Self>];
}

/// Plots of the same results.
pub struct PlotFamily<R: 'static> {
    /// Results that are alike in this share a plot.
    key: fn(&R) -> [u64; 2],
    /// Whether a result has a place along x.
    takes: fn(&R) -> bool,
    axes: &'static [Axes<R>],
}

/// Which numbers of a result make a plot.
struct Axes<R> {
    title: fn(&R) -> String,
    x: (&'static str, fn(&R) -> f64),
    y: (&'static str, fn(&R) -> Option<f64>),
    logarithmic: bool,
}

fn plots<R: Plotted>(bench: &Bench<R>) -> Vec<Plot> {
    let tools = bench::tools(&bench.head);
    let mut plots = vec![];
    for family in R::PLOTS {
        let taken =
            bench.results.iter().filter(|result| result.problem().is_none() && (family.takes)(result));
        let mut alike: BTreeMap<[u64; 2], Vec<&R>> = BTreeMap::new();
        taken.for_each(|result| alike.entry((family.key)(result)).or_default().push(result));
        for results in alike.values() {
            plots.extend(family.axes.iter().filter_map(|axes| plot(results, &tools, axes)));
        }
    }
    plots.truncate(MOST_PLOTS);
    plots
}

/// A plot with one line for each tool; none when nothing varies along x.
fn plot<R: Measured>(results: &[&R], tools: &[String], axes: &Axes<R>) -> Option<Plot> {
    let mut lines = vec![];
    for (place, name) in tools.iter().enumerate() {
        let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for result in results.iter().filter(|result| result.cell().tool == *name) {
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
    Some(Plot { title: (axes.title)(results[0]), svg })
}

/// What is below a plot over the size of frames.
const SIZE: &str = "frame size with FCS, bytes";

impl Plotted for CaptureResult {
    const PLOTS: &'static [PlotFamily<Self>] = &[
        PlotFamily {
            key: |r| [r.cell.frame_bytes.into(), r.cell.rate],
            takes: |r| r.cell.ring_frames > Some(0),
            axes: &[Axes {
                title: |r| {
                    let (size, rate) = (size_name(r.cell.frame_bytes), rate_name(r.cell.rate));
                    format!("Loss over ring size: {size} bytes, {rate} frames/s")
                },
                x: ("ring size, frames", |r| r.cell.ring_frames.unwrap_or(0).into()),
                y: ("loss %", Self::loss_percent),
                logarithmic: true,
            }],
        },
        PlotFamily {
            key: |r| [r.cell.frame_bytes.into(), r.cell.ring_frames.unwrap_or(0).into()],
            takes: |_| true,
            axes: &[Axes {
                title: |r| {
                    let (size, ring) = (size_name(r.cell.frame_bytes), ring_name(r.cell.ring_frames));
                    format!("Loss over offered rate: {size} bytes, ring {ring}")
                },
                // The rate that was asked names the point, what was offered places it.
                x: ("offered, thousand frames/s", |r| (r.offered_per_second() / 1e3 / 5.0).round() * 5.0),
                y: ("loss %", Self::loss_percent),
                logarithmic: false,
            }],
        },
        PlotFamily {
            key: |r| [r.cell.ring_frames.unwrap_or(0).into(), r.cell.rate],
            takes: |r| r.cell.frame_bytes > 0,
            axes: &[Axes {
                title: |r| {
                    let (ring, rate) = (ring_name(r.cell.ring_frames), rate_name(r.cell.rate));
                    format!("CPU of the capture over frame size: ring {ring}, {rate} frames/s")
                },
                x: (SIZE, |r| f64::from(r.cell.frame_bytes + 4)),
                y: ("ns/frame", Self::cpu_ns_per_frame),
                logarithmic: true,
            }],
        },
    ];
}

impl Plotted for SendResult {
    const PLOTS: &'static [PlotFamily<Self>] = &[PlotFamily {
        key: |r| [r.cell.rate, 0],
        takes: |_| true,
        axes: &[
            Axes {
                title: |r| format!("Transmitted over frame size, asked {}", rate_name(r.cell.rate)),
                x: (SIZE, |r| f64::from(r.cell.frame_bytes + 4)),
                y: ("thousand frames/s", |r| Some(r.per_second()? / 1e3)),
                logarithmic: true,
            },
            Axes {
                title: |r| format!("CPU of the sender over frame size, asked {}", rate_name(r.cell.rate)),
                x: (SIZE, |r| f64::from(r.cell.frame_bytes + 4)),
                y: ("ns/frame", Self::cpu_ns_per_frame),
                logarithmic: true,
            },
        ],
    }];
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::bench::{BenchHead, Cell};

    #[test]
    fn the_page_has_the_plots_and_hides_no_markup() {
        let mut results = vec![];
        for ring_frames in [8, 64, 4096] {
            for tool in ["ring", "<script>"] {
                let cell = Cell {
                    tool: tool.into(),
                    frame_bytes: 60,
                    ring_frames: Some(ring_frames),
                    rate: 150_000,
                    round: 1,
                };
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
            cell: Cell { tool: "live".into(), frame_bytes, ring_frames: None, rate: 0, round: 1 },
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

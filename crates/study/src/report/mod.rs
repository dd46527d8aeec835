//! Runs as one self-contained page: no network, no other file.
//!
//! **What.** Results side by side, and for every test what limited it, the path with what was lost on it, throughput
//! and latency over time (uPlot, in `assets/`), the latency distribution, CPU by role, the whole ledger; plan, topology
//! and host at the end.
//!
//! **Why half SVG.** Figures that do not need a pointer are drawn here as SVG, so that the page prints and works
//! without scripts; only the two series over time are drawn in the browser.
//!
//! **Safety.** Every string goes through the template's HTML escape; data for scripts is JSON without `<`.

pub mod bench;
mod svg;

use crate::findings::title;
use crate::table::{self, Table, grouped, number, over, told};
use minijinja::{Environment, value::Serde};
use record::unit::{prefixed, time_ns};
use record::{EndReport, Interval, Latency, Ledger, Problem, Result, RunRecord, Severity, TestRecord};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The first line of every page; by it a file is known to be a page of pathlab that may be written again.
pub const MARK: &str = "<!DOCTYPE html><!-- pathlab report -->";

const TEMPLATE: &str = include_str!("../../templates/report.html");
const STYLE: &str = include_str!("../../templates/report.css");
const SCRIPT: &str = include_str!("../../templates/report.js");
const UPLOT: &str = include_str!("../../../../assets/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../../../assets/uPlot.min.css");
/// Colours of repetitions that are told apart on white and on black (after Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31"];
/// Latency distributions with more lines than this hide each other.
const MOST_LINES: usize = 12;

/// Makes the page.
///
/// # Errors
/// An input problem without any run; a host problem when the page cannot be rendered.
pub fn html(runs: &[RunRecord]) -> Result<String> {
    if runs.is_empty() {
        return Err(Problem::input("a report needs at least one run").help("'pathlab runs' lists them"));
    }
    let runs = &labelled(runs)[..];
    let (charts, tests): (Vec<Charts>, Vec<Value>) = sections(runs).into_iter().unzip();
    let data = script_safe(&serde_json::to_string(&charts).map_err(|e| broken(&e))?);
    let page = json!({
        "mark": MARK,
        "style": STYLE,
        "uplot": UPLOT,
        "uplot_style": UPLOT_STYLE,
        "script": SCRIPT,
        "data": data,
        "title": runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>().join(", "),
        "runs": runs.iter().map(facts).collect::<Vec<_>>(),
        "comparison": (runs.len() > 1).then(|| comparison(runs)),
        "ways": ways(runs),
        "tests": tests,
    });
    render(TEMPLATE, page)
}

/// Fills in a template; every text is escaped.
fn render(template: &str, page: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    environment.render_str(template, Serde(page)).map_err(|e| broken(&e))
}

fn broken(error: &dyn std::fmt::Display) -> Problem {
    Problem::host(format!("cannot render the report: {error}"))
}

/// JSON that cannot end a script element, whatever the strings in it.
fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// The journal's table, when the runs were made as ways between the same hosts.
fn ways(runs: &[RunRecord]) -> Option<Value> {
    let rows = crate::ways::rows(runs);
    if rows.is_empty() {
        return None;
    }
    let figure = |words: &str, value: &dyn Fn(&crate::ways::PathRow) -> Option<f64>| {
        let titles: Vec<String> = rows.iter().map(crate::ways::PathRow::title).collect();
        let bars: Vec<(&str, Option<f64>)> =
            titles.iter().zip(&rows).map(|(title, row)| (title.as_str(), value(row))).collect();
        (words.to_owned(), svg::bars(words, &bars))
    };
    let figures = [
        figure("latency, median, µs", &|row| row.latency_p50_ns.map(|ns| ns * 1e-3)),
        figure("TCP, Mbit/s", &|row| row.tcp_bps.map(|bps| bps * 1e-6)),
        figure("UDP, Mbit/s", &|row| row.udp_bps.map(|bps| bps * 1e-6)),
        figure("UDP, thousand datagrams per second", &|row| row.udp_per_second.map(|rate| rate * 1e-3)),
        figure("CPU but for the two ends, UDP, % of one CPU", &|row| row.cpu_udp_percent),
        figure("memory of the program, MB", &|row| row.ram_bytes.map(|bytes| bytes * 1e-6)),
    ];
    Some(json!({
        "table": crate::ways::table(&rows),
        "notes": crate::ways::notes(&rows),
        "figures": figures,
    }))
}

/// Runs over several ways are known by the way.
fn labelled(runs: &[RunRecord]) -> Vec<RunRecord> {
    let label = |run: &RunRecord| match &run.way {
        Some(way) if runs.len() > 1 => {
            let title = crate::ways::title(&way.name, way.offload.as_deref());
            RunRecord { id: format!("{title} ({})", run.id), ..run.clone() }
        }
        _ => run.clone(),
    };
    runs.iter().map(label).collect()
}

/// One run's facts; without criteria when nothing was wanted and something arrived.
fn facts(run: &RunRecord) -> Value {
    let mut invalid = run.invalid.clone();
    for test in table::in_plan_order(run) {
        invalid.extend(test.invalid.iter().map(|why| format!("{}: {why}", title(test))));
    }
    json!({
        "id": run.id,
        "label": run.label,
        "begun": run.begun,
        "ended": run.ended,
        "seed": run.seed,
        "command": run.command.join(" "),
        "invalid": invalid,
        "doubts": run.findings.iter().filter(|finding| finding.severity == Severity::Warning).count(),
        "limits": table::limits_by_loss(run),
        "results": table::results(run),
        "interval": table::interval_words(run),
        "counting": crate::way::cost_words(run),
        "criteria": crate::criteria::table(run),
        "findings": run.findings,
        "host": host_facts(run),
        "plan": run.plan,
        "topology": run.topology,
    })
}

fn host_facts(run: &RunRecord) -> Vec<(String, String)> {
    let host = &run.host;
    let pressure = host.cpu_pressure.map_or("not told".into(), |percent| format!("{percent:.1} %"));
    let machine = format!("{}{}", host.machine, if host.virtual_machine { ", virtual machine" } else { "" });
    let facts = [
        ("kernel", host.kernel.clone()),
        ("machine", machine),
        ("CPUs", format!("{} × {}", host.cpus, host.cpu_model)),
        ("memory", format!("{} MB", number(host.memory_bytes as f64 * 1e-6))),
        ("clock source", host.clock_source.clone()),
        ("governor", if host.governor.is_empty() { "none".into() } else { host.governor.clone() }),
        ("tick", format!("{} Hz", host.tick_hz)),
        ("privilege", host.privilege.clone()),
        ("load average before", format!("{:.2}", host.load_average)),
        ("CPU pressure before", pressure),
        ("pathlab", host.pathlab.clone()),
    ];
    let settings = host.settings.iter().map(|(name, value)| (name.clone(), value.clone()));
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(settings).collect()
}

/// Rates and medians of all runs beside each other, with the ratio to the first run.
fn comparison(runs: &[RunRecord]) -> Table {
    let mut headers = vec!["test".to_owned()];
    for run in runs {
        headers.extend([format!("{} bit/s", run.id), "× first".into(), "p50".into(), "loss %".into()]);
    }
    let mut table = Table { headers, rows: vec![], words: 1 };
    for tests in by_name(runs) {
        let mut row = vec![tests[0].1.name.clone()];
        let mut first = None;
        for run in 0..runs.len() {
            let tests = of_run(&tests, run);
            let rate = over(&tests, |test| Some(test.throughput_bps));
            let first = *first.get_or_insert(rate);
            let ratio = rate.zip(first).filter(|(_, first)| *first > 0.0).map(|(rate, first)| rate / first);
            let p50 = over(&tests, |test| Some(test.latency_ns.as_ref()?.p50 as f64));
            let loss = over(&tests, table::loss_percent);
            row.extend([told(rate, prefixed), told(ratio, number), told(p50, time_ns), told(loss, number)]);
        }
        table.rows.push(row);
    }
    table
}

/// Tests of one name in all runs, each with the number of its run.
type SameName<'r> = Vec<(usize, &'r TestRecord)>;

fn by_name(runs: &[RunRecord]) -> Vec<SameName<'_>> {
    let of = |(number, run)| table::in_plan_order(run).into_iter().map(move |test| (number, test));
    grouped(runs.iter().enumerate().flat_map(of), |(_, one), (_, other)| one.name == other.name)
}

fn of_run<'r>(tests: &[(usize, &'r TestRecord)], number: usize) -> Vec<&'r TestRecord> {
    tests.iter().filter(|(run, _)| *run == number).map(|(_, test)| *test).collect()
}

/// The data of the charts over time.
#[derive(Serialize, Default)]
struct Charts {
    throughput: Chart,
    latency: Option<Chart>,
}

/// Aligned series: `columns[0]` is seconds, then one column per label, null where there is no value.
#[derive(Serialize, Default)]
struct Chart {
    labels: Vec<String>,
    colours: Vec<String>,
    dashes: Vec<bool>,
    columns: Vec<Vec<Option<f64>>>,
}

/// Everything about the tests of each name.
fn sections(runs: &[RunRecord]) -> Vec<(Charts, Value)> {
    by_name(runs).iter().enumerate().map(|(index, tests)| section(runs, index, tests)).collect()
}

fn section(runs: &[RunRecord], index: usize, tests: &SameName) -> (Charts, Value) {
    let several = runs.len() > 1;
    let label = |number: usize, test: &TestRecord| {
        let run = if several { format!("{} ", runs[number].id) } else { String::new() };
        format!("{run}#{}", test.repetition)
    };
    let lines: Vec<Line> = tests
        .iter()
        .enumerate()
        .map(|(place, &(number, test))| Line {
            label: label(number, test),
            colour: COLOURS[place % COLOURS.len()],
            dashed: number % 2 == 1,
            test,
        })
        .collect();
    let curves: Vec<(&str, &str, &Latency)> = lines
        .iter()
        .filter_map(|line| Some((line.label.as_str(), line.colour, line.test.latency_ns.as_ref()?)))
        .take(MOST_LINES)
        .collect();
    let charts = charts(&lines);
    let shown = |(number, run): (usize, &RunRecord)| {
        section_run(several.then_some(run.id.as_str()), &of_run(tests, number))
    };
    let section = json!({
        "name": tests[0].1.name,
        "anchor": format!("test-{index}"),
        "runs": runs.iter().enumerate().filter_map(shown).collect::<Vec<_>>(),
        "is_timed": charts.latency.is_some(),
        "distribution": (!curves.is_empty()).then(|| svg::distribution(&curves)),
        "latency_kind": tests[0].1.latency_kind,
    });
    (charts, section)
}

/// What one run says about the tests of one name.
fn section_run(id: Option<&str>, tests: &[&TestRecord]) -> Option<Value> {
    let loss = |test: &TestRecord| {
        test.ledger.as_ref().map_or(0, |ledger| ledger.sent.saturating_sub(ledger.received))
    };
    let worst = tests.iter().copied().max_by_key(|test| (loss(test), std::cmp::Reverse(test.repetition)))?;
    let number = |test: &TestRecord| format!("#{}", test.repetition);
    let limits = tests.iter().map(|test| (number(test), &test.limit.sentence));
    Some(json!({
        "id": id,
        "limits": limits.collect::<Vec<_>>(),
        "path": svg::path(worst),
        "path_of": number(worst),
        "cpu": svg::cpu(tests),
        "ledgers": tests.iter().filter_map(|test| Some(ledger(test, test.ledger.as_ref()?, &number(test)))).collect::<Vec<_>>(),
        "settings": settings(worst),
    }))
}

fn ledger(test: &TestRecord, ledger: &Ledger, title: &str) -> Value {
    json!({
        "title": title,
        "sums": table::sums_words(ledger),
        "eventful": table::stations(ledger, false),
        "all": table::stations(ledger, true),
        "evidence": table::evidence_lines(ledger),
        "way": crate::way::lines(test),
        "witness": table::witness_words(ledger),
        "notes": ledger.notes,
    })
}

/// What took effect, and what did not.
fn settings(test: &TestRecord) -> Vec<String> {
    let mut lines = vec![];
    for (role, end) in [("sender", &test.sender), ("receiver", &test.receiver)] {
        let set = &end.settings;
        let congestion = set.congestion.as_ref().map_or(String::new(), |name| format!(", {name}"));
        let cpu = set.cpu.map_or(String::new(), |cpu| format!(", on CPU {cpu}"));
        lines.push(format!(
            "{role}: {}, SO_SNDBUF {}, SO_RCVBUF {}{congestion}{cpu}",
            if set.method.is_empty() { "no method told" } else { &set.method },
            record::unit::count(set.send_buffer),
            record::unit::count(set.receive_buffer)
        ));
        lines.extend(set.refused.iter().map(|refused| format!("{role} could not have: {refused}")));
        lines.extend(end.notes.iter().map(|note| format!("{role}: {note}")));
    }
    lines.extend(test.offloads.iter().cloned());
    lines
}

/// One test as a line in the charts.
struct Line<'a> {
    label: String,
    colour: &'static str,
    dashed: bool,
    test: &'a TestRecord,
}

/// The end that saw messages arrive.
fn arrived(test: &TestRecord) -> &EndReport {
    if test.kind.is_round_trip() { &test.sender } else { &test.receiver }
}

fn charts(lines: &[Line]) -> Charts {
    let rate = |interval: &Interval| {
        let seconds = interval.length_ns as f64 * 1e-9;
        (seconds > 0.0).then(|| interval.bytes as f64 * 8e-6 / seconds)
    };
    let timed =
        |interval: &Interval| (interval.latency_p50_ns > 0).then_some(interval.latency_p50_ns as f64 * 1e-3);
    let latency = chart(lines, timed);
    Charts {
        throughput: chart(lines, rate),
        latency: latency.columns.iter().skip(1).flatten().any(Option::is_some).then_some(latency),
    }
}

fn chart(lines: &[Line], value: impl Fn(&Interval) -> Option<f64>) -> Chart {
    let mut rows: BTreeMap<u64, Vec<Option<f64>>> = BTreeMap::new();
    for (column, line) in lines.iter().enumerate() {
        for interval in &arrived(line.test).intervals {
            let row = rows.entry(interval.from_ns / 1_000_000).or_insert_with(|| vec![None; lines.len()]);
            row[column] = value(interval);
        }
    }
    let mut columns =
        vec![rows.keys().map(|&milliseconds| Some(milliseconds as f64 / 1e3)).collect::<Vec<_>>()];
    columns.extend((0..lines.len()).map(|column| rows.values().map(|row| row[column]).collect()));
    Chart {
        labels: lines.iter().map(|line| line.label.clone()).collect(),
        colours: lines.iter().map(|line| line.colour.to_owned()).collect(),
        dashes: lines.iter().map(|line| line.dashed).collect(),
        columns,
    }
}

#[cfg(test)]
mod tests;

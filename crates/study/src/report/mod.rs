//! Runs as one self-contained page: no network, no other file.
//!
//! **What.** What went worst, the results of all runs as rows of one table, and for every test what limited it, the
//! path with what was lost on it, throughput and latency over time (uPlot, in `assets/`) and the latency distribution.
//! Ledgers, CPU by role, settings, topology and host can be opened.
//!
//! **How long.** A page of five runs of six tests has less than 8,000 pixels at a width of 1,400: what several runs say
//! alike is said once, and what is read only of a row that looks odd is folded.
//!
//! **Why half SVG.** Figures that do not need a pointer are drawn here as SVG, so that the page prints and works
//! without scripts; only the two series over time are drawn in the browser.
//!
//! **Safety.** Every string goes through the template's HTML escape; data for scripts is JSON without `<`.

pub mod bench;
mod doctor;
mod flame;
mod layers;
mod rows;
mod svg;
mod tcp;

pub use doctor::Examined;

use crate::findings::title;
use crate::table::{self, Table, grouped, number};
use minijinja::{Environment, value::Serde};
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
const MOST_LINES: usize = 24;

/// Makes the page, with a section for each test and each host of which the doctor saw facts.
///
/// # Errors
/// An input problem without any run; a host problem when the page cannot be rendered.
pub fn html(runs: &[RunRecord], examined: &[Examined]) -> Result<String> {
    if runs.is_empty() {
        return Err(Problem::input("a report needs at least one run").help("'pathlab runs' lists them"));
    }
    let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    let runs = &labelled(runs)[..];
    let groups = by_name(runs);
    let (charts, tests): (Vec<Charts>, Vec<Value>) = sections(runs, &groups).into_iter().unzip();
    let data = script_safe(&serde_json::to_string(&charts).map_err(|e| broken(&e))?);
    let page = json!({
        "mark": MARK,
        "style": STYLE,
        "uplot": UPLOT,
        "uplot_style": UPLOT_STYLE,
        "script": SCRIPT,
        "data": data,
        "title": ids.join(", "),
        "runs": runs.iter().zip(&ids).map(|(run, id)| facts(run, id)).collect::<Vec<_>>(),
        "worst": worst(runs),
        "results": rows::results(runs, &groups),
        "more": rows::more(runs, &groups),
        "findings": findings(runs),
        "examined": doctor::of_tests(runs).iter().chain(examined).map(doctor::section).collect::<Vec<_>>(),
        "criteria": criteria(runs),
        "has_failed": runs.iter().flat_map(|run| &run.tests).flat_map(|test| &test.criteria).any(|one| !one.passed),
        "plans": alike(runs, |run| run.plan.clone()),
        "topologies": alike(runs, |run| run.topology.clone()),
        "ways": ways(runs),
        "tests": tests,
    });
    render(TEMPLATE, page)
}

/// Fills in a template; every text is escaped, and characters that control a terminal or the direction of writing are replaced, as on a terminal.
fn render(template: &str, page: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    let page = environment.render_str(template, Serde(page)).map_err(|e| broken(&e))?;
    Ok(page.replace(|c| record::line::is_unsafe(c) && !"\n\t".contains(c), "\u{fffd}"))
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

/// Runs beside each other are known by their way or their label, as far as that tells them apart.
fn labelled(runs: &[RunRecord]) -> Vec<RunRecord> {
    if runs.len() < 2 {
        return runs.to_vec();
    }
    let short = |run: &RunRecord| match &run.way {
        Some(way) => crate::ways::title(&way.name, way.offload.as_deref()),
        None => run.label.clone().unwrap_or_else(|| run.id.clone()),
    };
    let names: Vec<String> = runs.iter().map(short).collect();
    let is_one = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let label = |(run, name): (&RunRecord, &String)| {
        let id = if is_one(name) { name.clone() } else { format!("{name} ({})", run.id) };
        RunRecord { id, ..run.clone() }
    };
    runs.iter().zip(&names).map(label).collect()
}

/// One run's facts; without criteria when nothing was wanted and something arrived. The record is known by `id`.
fn facts(run: &RunRecord, id: &str) -> Value {
    let mut invalid = run.invalid.clone();
    for test in table::in_plan_order(run) {
        invalid.extend(test.invalid.iter().map(|why| format!("{}: {why}", title(test))));
    }
    json!({
        "id": id,
        "name": run.id,
        "label": run.label,
        "begun": run.begun,
        "ended": run.ended,
        "seed": run.seed,
        "command": record::line::command_line(&run.command),
        "invalid": invalid,
        "doubts": run.findings.iter().filter(|finding| finding.severity == Severity::Warning).count(),
        "interval": table::interval_words(run),
        "counting": crate::way::cost_words(run),
        "host": host_facts(run),
    })
}

/// What limited the tests, the one that lost most first; of several runs only where something was lost.
fn worst(runs: &[RunRecord]) -> Table {
    let several = runs.len() > 1;
    let of = |run: &RunRecord| {
        let rows = table::limits_by_loss(run).into_iter();
        rows.map(|(loss, [test, limit])| (loss, vec![run.id.clone(), test, limit])).collect::<Vec<_>>()
    };
    let mut rows: Vec<(f64, Vec<String>)> = runs.iter().flat_map(of).collect();
    rows.retain(|(loss, _)| !several || *loss > 0.0);
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    let headers = ["run", "test", "limited by"].map(str::to_owned);
    let skipped = usize::from(!several);
    Table {
        headers: headers[skipped..].to_vec(),
        rows: rows.into_iter().map(|(_, row)| row[skipped..].to_vec()).collect(),
        words: 3 - skipped,
    }
}

/// What was asked of the tests of all runs; without rows when nothing was wanted and something arrived.
fn criteria(runs: &[RunRecord]) -> Table {
    let mut all = Table::default();
    for run in runs {
        let mut table = crate::criteria::table(run);
        if runs.len() > 1 {
            table.headers.insert(0, "run".into());
            table.rows.iter_mut().for_each(|row| row.insert(0, run.id.clone()));
            table.words += 1;
        }
        all = Table { rows: [all.rows, table.rows].concat(), ..table };
    }
    all
}

/// The findings of all runs, the most severe first; what several say alike is said once.
fn findings(runs: &[RunRecord]) -> Vec<Value> {
    let all = runs.iter().flat_map(|run| run.findings.iter().map(|finding| (run.id.as_str(), finding)));
    let mut groups = table::grouped(all, |(_, one), (_, other)| one == other);
    let rank = |severity| match severity {
        Severity::Loss => 0,
        Severity::Warning => 1,
        Severity::Note => 2,
    };
    groups.sort_by_key(|group| rank(group[0].1.severity));
    let told = |group: &Vec<(&str, &record::Finding)>| {
        let finding = group[0].1;
        let names: Vec<&str> = group.iter().map(|(name, _)| *name).collect();
        let test = if finding.test.is_empty() { "run" } else { &finding.test };
        let who = if runs.len() > 1 { format!("{}: {test}", names.join(", ")) } else { test.to_owned() };
        json!({ "who": who, "finding": finding, "is_note": finding.severity == Severity::Note })
    };
    groups.iter().map(told).collect()
}

/// A text of each run, once where it is the same: the names of the runs, and the text.
fn alike(runs: &[RunRecord], text: impl Fn(&RunRecord) -> String) -> Vec<(String, String)> {
    let texts = runs.iter().map(|run| (run.id.as_str(), text(run)));
    let groups = table::grouped(texts, |one, other| one.1 == other.1);
    let named = |group: Vec<(&str, String)>| {
        let names: Vec<&str> = group.iter().map(|(name, _)| *name).collect();
        (names.join(", "), group[0].1.clone())
    };
    groups.into_iter().map(named).collect()
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
        ("build of the kernel", host.kernel_version.clone()),
        ("host id", host.id.clone()),
        ("boot id", host.boot_id.clone()),
        ("label of the host", host.label.clone().unwrap_or_default()),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let interfaces = host.interfaces.iter().map(|one| {
        let parts = [&one.driver, &one.version, &one.firmware, &one.bus].map(String::as_str);
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        (format!("interface {}", one.name), format!("{}; {}", parts.join(" "), one.offloads.join(", ")))
    });
    let settings = host.settings.iter().map(|(name, value)| (name.clone(), value.clone()));
    facts.map(|(name, value)| (name.to_owned(), value)).chain(interfaces).chain(settings).collect()
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
    /// What the values are multiples of, chosen by the largest.
    unit: &'static str,
    labels: Vec<String>,
    colours: Vec<String>,
    dashes: Vec<bool>,
    columns: Vec<Vec<Option<f64>>>,
}

/// Everything about the tests of each name.
fn sections(runs: &[RunRecord], groups: &[SameName]) -> Vec<(Charts, Value)> {
    groups.iter().enumerate().map(|(index, tests)| section(runs, index, tests)).collect()
}

fn section(runs: &[RunRecord], index: usize, tests: &SameName) -> (Charts, Value) {
    let lines = lines(runs, tests);
    let curves: Vec<(&str, &str, &Latency)> = lines
        .iter()
        .filter_map(|line| Some((line.label.as_str(), line.colour, line.test.latency_ns.as_ref()?)))
        .take(MOST_LINES)
        .collect();
    let charts = charts(&lines);
    let mine: Vec<(&RunRecord, Vec<&TestRecord>)> =
        runs.iter().enumerate().map(|(number, run)| (run, of_run(tests, number))).collect();
    let of_runs = || mine.iter().filter(|(_, tests)| !tests.is_empty());
    let name = |run: &RunRecord| if runs.len() > 1 { run.id.clone() } else { String::new() };
    let limit = |(run, tests): &(&RunRecord, Vec<&TestRecord>)| {
        let limits = table::limits_of(tests).into_iter();
        let name = name(run);
        limits.map(move |(numbers, said)| (format!("{name} {numbers}"), said)).collect::<Vec<_>>()
    };
    let worst = of_runs().max_by_key(|(_, tests)| loss(most_lossy(tests)));
    let path = worst.map(|(run, tests)| {
        let one = most_lossy(tests);
        json!({
            "svg": svg::path(one),
            "of": format!("{} #{}", name(run), one.repetition),
            "is_odd": loss(one) > 0,
            "has_ledger": one.ledger.is_some(),
        })
    });
    let named = table::grouped(lines.iter(), |one, other| one.label == other.label);
    let section = json!({
        "name": tests[0].1.name,
        "anchor": format!("test-{index}"),
        "limits": of_runs().flat_map(limit).collect::<Vec<_>>(),
        "path": path,
        "runs": of_runs().map(|(run, tests)| section_run(&name(run), record_name(runs, run), tests)).collect::<Vec<_>>(),
        "is_timed": charts.latency.is_some(),
        "throughput_unit": charts.throughput.unit,
        "latency_unit": charts.latency.as_ref().map(|chart| chart.unit),
        "legend": (curves.is_empty() && named.len() < lines.len())
            .then(|| svg::legend_of(named.iter().map(|lines| (lines[0].label.as_str(), lines[0].colour)))),
        "distribution": (!curves.is_empty()).then(|| svg::distribution(&curves)),
        "latency_kind": tests[0].1.latency_kind,
    });
    (charts, section)
}

/// Repetitions have colours of their own in one run; in several runs each run has one.
fn lines<'a>(runs: &[RunRecord], tests: &SameName<'a>) -> Vec<Line<'a>> {
    let several = runs.len() > 1;
    let line = |(place, &(number, test)): (usize, &(usize, &'a TestRecord))| Line {
        label: if several { runs[number].id.clone() } else { format!("#{}", test.repetition) },
        colour: COLOURS[if several { number } else { place } % COLOURS.len()],
        dashed: several && number >= COLOURS.len(),
        test,
    };
    tests.iter().enumerate().map(line).collect()
}

/// Frames that did not arrive.
fn loss(test: &TestRecord) -> u64 {
    test.ledger.as_ref().map_or(0, |ledger| ledger.sent.saturating_sub(ledger.received))
}

/// The repetition that lost most; the first of those that are alike.
fn most_lossy<'t>(tests: &[&'t TestRecord]) -> &'t TestRecord {
    let worst = tests.iter().copied().max_by_key(|test| (loss(test), std::cmp::Reverse(test.repetition)));
    worst.expect("a run has a row for a test that it made")
}

/// The name of a run's record; none of several runs, which are known by what tells them apart.
fn record_name<'r>(runs: &[RunRecord], run: &'r RunRecord) -> &'r str {
    if runs.len() > 1 { "" } else { &run.id }
}

/// What one run says about the tests of one name, to be opened.
fn section_run(id: &str, record: &str, tests: &[&TestRecord]) -> Value {
    let worst = most_lossy(tests);
    let number = |test: &TestRecord| format!("#{}", test.repetition);
    json!({
        "id": id,
        "path": svg::path(worst),
        "path_of": number(worst),
        "sums": worst.ledger.as_ref().map(table::sums_words),
        "cpu": svg::cpu(tests),
        "ledgers": tests.iter().filter_map(|test| Some(ledger(test, test.ledger.as_ref()?, &number(test)))).collect::<Vec<_>>(),
        "settings": settings(worst),
        "times": tests.iter().filter_map(|test| times(test, &number(test))).collect::<Vec<_>>(),
        "flame": flame::graph(tests),
        "connections": connections(worst, &number(worst)),
        "dead_frames": tests.iter().filter_map(|test| Some(format!("{} {}", number(test), crate::dead_frames::line(record, test)?))).collect::<Vec<_>>(),
        "layers": layers::section(tests),
    })
}

/// The connections of a test over time; none where it has no TCP.
fn connections(test: &TestRecord, title: &str) -> Option<Value> {
    let (figures, more) = tcp::timelines(test);
    (!figures.is_empty()).then(|| json!({ "title": title, "figures": figures, "more": more }))
}

/// Who waited for a CPU and which functions ran, of a test with a profile.
fn times(test: &TestRecord, title: &str) -> Option<Value> {
    let time = test.time.as_ref()?;
    let profile = time.profile.as_ref()?;
    Some(json!({
        "title": title,
        "waits": crate::time::waits(time),
        "functions": crate::time::functions(profile),
        "meanwhile": crate::time::meanwhile(time),
        "notes": crate::time::notes(test),
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
        (seconds > 0.0).then(|| interval.bytes as f64 * 8.0 / seconds)
    };
    let timed = |interval: &Interval| (interval.latency_p50_ns > 0).then_some(interval.latency_p50_ns as f64);
    let latency = chart(lines, timed).within(&[("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)]);
    Charts {
        throughput: chart(lines, rate).within(&[
            ("Gbit/s", 1e9),
            ("Mbit/s", 1e6),
            ("kbit/s", 1e3),
            ("bit/s", 1.0),
        ]),
        latency: latency.columns.iter().skip(1).flatten().any(Option::is_some).then_some(latency),
    }
}

impl Chart {
    /// The same in the largest of these units that the largest value reaches.
    fn within(mut self, units: &[(&'static str, f64)]) -> Chart {
        let most =
            self.columns.iter().skip(1).flatten().flatten().fold(0.0, |most: f64, value| most.max(*value));
        let fitting = units.iter().find(|(_, size)| most >= *size).or(units.last());
        if let Some((unit, size)) = fitting {
            self.unit = unit;
            self.columns.iter_mut().skip(1).flatten().flatten().for_each(|value| *value /= size);
        }
        self
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
        unit: "",
        labels: lines.iter().map(|line| line.label.clone()).collect(),
        colours: lines.iter().map(|line| line.colour.to_owned()).collect(),
        dashes: lines.iter().map(|line| line.dashed).collect(),
        columns,
    }
}

#[cfg(test)]
mod tests;

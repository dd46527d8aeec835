//! Figures that need no script: the path with what was lost on it, the latency distribution, CPU by role.
//!
//! Colours come from the page's style sheet by class, so that they follow its light or dark dress.

use crate::table::{count, grouped, number, told};
use record::delta::sum;
use record::ledger::Station;
use record::snapshot::CpuTime;
use record::unit::{bits_per_s, frames_per_s, time_ns};
use record::{Hop, Latency, NodeRole, TestRecord};
use std::fmt::Write;

/// Escapes text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Cuts a text that would run into its neighbour.
fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return escape(text);
    }
    escape(&(text.chars().take(most - 1).collect::<String>() + "…"))
}

pub(super) fn label(out: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let _ = write!(out, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#);
}

/// A horizontal bar of a chart.
fn bar(out: &mut String, class: &str, (x, y): (f64, f64), wide: f64, inside: &str) {
    let _ = write!(
        out,
        r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="20">{inside}</rect>"#
    );
}

/// A figure of that height, with its legend below.
pub(super) fn figure(words: &str, high: f64, body: &str, legend: &str) -> String {
    let words = escape(words);
    format!(
        r#"<svg class="figure" role="img" aria-label="{words}" viewBox="0 0 {WIDE} {high:.0}">{body}</svg>{legend}"#
    )
}

pub(super) fn legend(entries: impl Iterator<Item = String>) -> String {
    format!(r#"<p class="legend">{}</p>"#, entries.collect::<String>())
}

/// What the colours of lines stand for.
pub fn legend_of<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    legend(lines.map(|(name, colour)| coloured(colour, name)))
}

/// What the colour of a line stands for.
pub(super) fn coloured(colour: &str, name: &str) -> String {
    format!(r#"<span><i style="background:{colour}"></i>{}</span>"#, escape(name))
}

const BOX: f64 = 236.0;
const GAP: f64 = 196.0;
const TOP: f64 = 30.0;

/// The path of a test: nodes, what each lost, and what crossed each link. The way back is a second row.
pub fn path(test: &TestRecord) -> String {
    let legs: Vec<(&str, &[Hop])> = [("forward", &test.path.forward[..]), ("back", &test.path.back[..])]
        .into_iter()
        .filter(|leg| !leg.1.is_empty())
        .collect();
    if legs.is_empty() {
        return "<p>The path is not known.</p>".into();
    }
    let mut body = String::new();
    let (mut y, mut wide) = (0.0, 0.0f64);
    for (leg, hops) in legs {
        let height = draw_leg(&mut body, test, leg, hops, y);
        wide = wide.max(hops.len() as f64 * (BOX + GAP) - GAP + 4.0);
        y += height + 14.0;
    }
    format!(
        r#"<svg class="path" role="img" aria-label="the path with losses" viewBox="-2 -2 {wide:.0} {y:.0}" style="min-width:{:.0}px">{body}</svg>"#,
        wide * 0.72
    )
}

fn draw_leg(out: &mut String, test: &TestRecord, leg: &str, hops: &[Hop], y: f64) -> f64 {
    let stations = |hop: &Hop| -> Vec<&Station> {
        let all = test.ledger.iter().flat_map(|ledger| &ledger.stations);
        // A station of the turn-around belongs to the leg that ends there.
        all.filter(|station| station.node == hop.node && station.leg == leg).collect()
    };
    let lines: Vec<Vec<(&str, String)>> = hops.iter().map(|hop| node_lines(&stations(hop))).collect();
    let rows = lines.iter().map(Vec::len).max().unwrap_or(1);
    let height = TOP + 22.0 + rows as f64 * 17.0;
    for (place, (hop, lines)) in hops.iter().zip(&lines).enumerate() {
        let x = place as f64 * (BOX + GAP);
        let bad = lines.iter().any(|(class, _)| *class == "drop" || *class == "odd");
        let class = if bad { "node bad" } else { "node" };
        let _ = write!(
            out,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{BOX}" height="{height:.1}" rx="8"/>"#
        );
        label(out, "name", x + 12.0, y + 21.0, &short(&hop.node, 14));
        label(out, "role", x + BOX - 12.0, y + 21.0, role(hop.role));
        for (row, (class, text)) in lines.iter().enumerate() {
            label(out, class, x + 12.0, y + TOP + 16.0 + row as f64 * 17.0, &short(text, 31));
        }
        if place + 1 < hops.len() {
            let next = &hops[place + 1];
            draw_link(out, test, &stations(hop), hop, next, (x + BOX, y + TOP + 8.0));
        }
    }
    height
}

fn role(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Sender => "sender",
        NodeRole::Bridge => "bridge",
        NodeRole::Router => "router",
        NodeRole::Forwarder => "program",
        NodeRole::Receiver => "receiver",
    }
}

fn node_lines(stations: &[&Station]) -> Vec<(&'static str, String)> {
    let mut lines = vec![];
    for station in stations {
        for drop in &station.drops {
            lines.push(("drop", format!("−{} {}", count(drop.count), drop.name)));
        }
        if station.queued != 0 {
            lines.push(("queued", format!("{} queued, {}", station.queued, station.station)));
        }
        if station.residual != 0 {
            let class = if station.residual.unsigned_abs() > station.uncertainty { "odd" } else { "quiet" };
            lines.push((
                class,
                format!("{} ± {} unexplained, {}", station.residual, station.uncertainty, station.station),
            ));
        }
        if station.unknown.is_some() {
            lines.push(("odd", format!("unknown: {}", station.station)));
        }
    }
    if lines.is_empty() {
        lines.push(("quiet", if stations.is_empty() { "not counted".into() } else { "nothing lost".into() }));
    }
    lines
}

fn draw_link(
    out: &mut String,
    test: &TestRecord,
    stations: &[&Station],
    hop: &Hop,
    next: &Hop,
    (x, y): (f64, f64),
) {
    let interface = hop.egress.as_deref().unwrap_or("?");
    let crossed =
        stations.iter().find(|station| station.station == format!("link {interface}")).map(|s| s.left);
    let seconds = test.seconds.max(1e-9);
    let text = match crossed {
        Some(frames) => format!("{}, {}", count(frames), frames_per_s(frames as f64 / seconds)),
        None => test.throughput().map_or(String::new(), bits_per_s),
    };
    // As thick as the part of what was sent that crossed it.
    let sent = test.ledger.as_ref().map_or(0, |ledger| ledger.sent).max(1);
    let thick = crossed.map_or(2.5, |frames| 1.0 + 7.0 * (frames as f64 / sent as f64).min(1.5));
    let lost = stations.iter().any(|s| s.station == format!("link {interface}") && !s.drops.is_empty());
    let class = if lost { "wire bad" } else { "wire" };
    let end = x + GAP - 8.0;
    let _ = write!(
        out,
        r#"<path class="{class}" stroke-width="{thick:.1}" d="M{x:.1} {y:.1}H{end:.1}"/><path class="tip" d="M{end:.1} {:.1}l8 5l-8 5z"/>"#,
        y - 5.0
    );
    label(out, "rate", x + GAP / 2.0, y - 9.0, &escape(&text));
    let ends = format!("{} → {}", interface, next.ingress.as_deref().unwrap_or("?"));
    label(out, "ends", x + GAP / 2.0, y + 19.0, &short(&ends, 22));
}

pub(super) const WIDE: f64 = 540.0;
const HIGH: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 34.0;
const BASE: f64 = 258.0;
/// The shares of the vertical axis: each step has a tenth of the samples beyond it.
const SHARES: [(f64, &str); 5] =
    [(0.0, "0"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

/// Percentiles against latency, both logarithmic, so that the tail has as much room as the middle.
pub fn distribution(curves: &[(&str, &str, &Latency)]) -> String {
    let low = curves.iter().map(|(.., latency)| latency.min).min().unwrap_or(1).max(1) as f64;
    let high = curves.iter().map(|(.., latency)| latency.max).max().unwrap_or(2).max(2) as f64;
    let (from, to) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let x = |ns: f64| LEFT + (ns.max(1.0).log10() - from) / (to - from) * (WIDE - LEFT - RIGHT);
    let depth = 4.0;
    let y = |share: f64| {
        let nines = -(1.0 - share).max(1e-4).log10();
        BASE - nines / depth * (BASE - 16.0)
    };
    let mut out = String::new();
    for (share, text) in SHARES {
        let at = y(share);
        let _ = write!(out, r#"<path class="grid" d="M{LEFT} {at:.1}H{:.1}"/>"#, WIDE - RIGHT);
        label(&mut out, "axis right", LEFT - 6.0, at + 4.0, text);
    }
    draw_decades(&mut out, from as i32, to as i32, &x);
    for curve in curves {
        draw_curve(&mut out, curve, &x, &y);
    }
    let named = grouped(curves.iter(), |one, other| one.0 == other.0);
    let legend = legend(named.iter().map(|curves| coloured(curves[0].1, curves[0].0)));
    figure("latency percentiles", HIGH, &out, &legend)
}

fn draw_curve(
    out: &mut String,
    (name, colour, latency): &(&str, &str, &Latency),
    x: &dyn Fn(f64) -> f64,
    y: &dyn Fn(f64) -> f64,
) {
    let total = latency.buckets.iter().map(|bucket| bucket.count).sum::<u64>().max(1) as f64;
    let mut path = format!("M{:.1} {:.1}", x(latency.min as f64), y(0.0));
    let mut below = 0.0;
    for bucket in &latency.buckets {
        below += bucket.count as f64;
        let _ = write!(path, "L{:.1} {:.1}", x(bucket.from_ns as f64), y(below / total));
    }
    let (p50, p99) = (time_ns(latency.p50 as f64), time_ns(latency.p99 as f64));
    let words = escape(&format!("{name}: p50 {p50}, p99 {p99}"));
    let _ = write!(out, r#"<path class="curve" stroke="{colour}" d="{path}"><title>{words}</title></path>"#);
}

fn draw_decades(out: &mut String, from: i32, to: i32, x: &dyn Fn(f64) -> f64) {
    for decade in from..=to {
        let ns = 10f64.powi(decade);
        let at = x(ns);
        let _ = write!(out, r#"<path class="grid" d="M{at:.1} 16V{BASE}"/>"#);
        let text = match decade {
            ..=2 => format!("{} ns", number(ns)),
            3..=5 => format!("{} µs", 10u64.pow((decade - 3) as u32)),
            6..=8 => format!("{} ms", 10u64.pow((decade - 6) as u32)),
            _ => format!("{} s", 10f64.powi(decade - 9)),
        };
        label(out, "axis middle", at, BASE + 20.0, &text);
        for step in 2..10 {
            let at = x(ns * f64::from(step));
            if decade < to {
                let _ = write!(out, r#"<path class="grid fine" d="M{at:.1} 16V{BASE}"/>"#);
            }
        }
    }
}

/// What a CPU does: the class of its colour, which is its name too, and its ticks.
type CpuRole = (&'static str, fn(&CpuTime) -> u64);

const ROLES: [CpuRole; 6] = [
    ("user", |time| time.user),
    ("system", |time| time.system),
    ("softirq", |time| time.softirq),
    ("irq", |time| time.irq),
    ("steal", |time| time.steal),
    ("idle", |time| time.idle),
];

/// One bar per CPU, split by role, over all repetitions; below, the processes that made the traffic.
pub fn cpu(tests: &[&TestRecord]) -> String {
    let cpus = grouped(tests.iter().flat_map(|test| &test.cpu), |one, other| one.cpu == other.cpu);
    let mut out = String::new();
    let mut y = 4.0;
    for times in &cpus {
        draw_cpu(&mut out, y, times);
        y += 26.0;
    }
    let used = |role: &str| {
        let actors = tests.iter().flat_map(|t| &t.actors).filter(|actor| actor.role == role);
        let median = crate::stats::median(&actors.map(|actor| actor.cpu_percent).collect::<Vec<_>>())?;
        Some(format!("<span>{role} {median:.0} % of one CPU</span>"))
    };
    let roles = ROLES.iter().map(|(name, _)| format!(r#"<span><i class="{name}"></i>{name}</span>"#));
    let legend = legend(roles.chain(["sender", "receiver"].into_iter().filter_map(used)));
    if cpus.is_empty() { legend } else { figure("CPU time by role", y, &out, &legend) }
}

fn draw_cpu(out: &mut String, y: f64, times: &[&CpuTime]) {
    let total = sum(times.iter().map(|time| time.total())).max(1) as f64;
    label(out, "axis right", LEFT + 22.0, y + 15.0, &format!("CPU {}", times[0].cpu));
    let mut x = LEFT + 30.0;
    for (name, part) in ROLES {
        let part = sum(times.iter().map(|time| part(time))) as f64;
        let wide = part / total * (WIDE - LEFT - 44.0);
        let percent = part * 100.0 / total;
        bar(out, name, (x, y), wide, &format!("<title>{name} {percent:.1} %</title>"));
        if wide > 46.0 && name != "idle" {
            label(out, "in", x + wide / 2.0, y + 14.5, &format!("{percent:.0} %"));
        }
        x += wide;
    }
}

/// One bar for each name, from 0 to the largest value; what is not known has none.
pub fn bars(words: &str, bars: &[(&str, Option<f64>)]) -> String {
    let most = bars.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max).max(1e-9);
    let begin = LEFT + 60.0;
    let mut out = String::new();
    let mut y = 4.0;
    for (name, value) in bars {
        label(&mut out, "axis right", begin - 8.0, y + 15.0, &short(name, 14));
        let wide = value.unwrap_or(0.0).max(0.0) / most * (WIDE - begin - 80.0);
        bar(&mut out, "user", (begin, y), wide, "");
        label(&mut out, "axis", begin + wide + 6.0, y + 15.0, &told(*value, number));
        y += 26.0;
    }
    figure(words, y, &out, "")
}

/// Repetitions as points on one line from 0 to `top`, each with what it is.
pub fn points(points: &[(String, f64)], top: f64) -> String {
    let x = |value: f64| 5.0 + value.max(0.0) / top.max(1e-9) * 90.0;
    let mut out = String::from(r#"<path class="grid" d="M5 3v10M5 8H95"/>"#);
    for (words, value) in points {
        let (words, at) = (escape(words), x(*value));
        let _ =
            write!(out, r#"<circle class="dot" cx="{at:.1}" cy="8" r="3.4"><title>{words}</title></circle>"#);
    }
    let words = escape(&points.iter().map(|(words, _)| words.as_str()).collect::<Vec<_>>().join(", "));
    format!(r#"<svg class="points" role="img" aria-label="{words}" viewBox="0 0 100 16">{out}</svg>"#)
}

/// A line of a plot.
pub struct PlotLine<'a> {
    /// What the legend says.
    pub name: &'a str,
    /// Its colour.
    pub colour: &'a str,
    /// Points with rising x.
    pub points: Vec<(f64, f64)>,
}

/// Lines over x, which may be drawn in steps of doubling; y begins at 0.
pub fn lines(x_words: &str, y_words: &str, doubling: bool, lines: &[PlotLine]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let place = |x: f64| if doubling { x.max(1.0).log2() } else { x };
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| {
        (low.min(place(point.0)), high.max(place(point.0)))
    });
    let wide = if high > low { high - low } else { 1.0 };
    let top = nice(all().fold(0.0, |top: f64, point| top.max(point.1)));
    let x = |value: f64| LEFT + 8.0 + (place(value) - low) / wide * (WIDE - LEFT - RIGHT - 16.0);
    let y = |value: f64| BASE - value / top * (BASE - 28.0);
    let mut out = String::new();
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let _ = write!(out, r#"<path class="grid" d="M{LEFT} {:.1}H{:.1}"/>"#, y(value), WIDE - RIGHT);
        label(&mut out, "axis right", LEFT - 6.0, y(value) + 4.0, &number(value));
    }
    draw_ticks(&mut out, all().map(|point| point.0).collect(), &x);
    label(&mut out, "axis middle", (LEFT + WIDE - RIGHT) / 2.0, BASE + 36.0, &escape(x_words));
    label(&mut out, "axis", 4.0, 14.0, &escape(y_words));
    for line in lines {
        draw_line(&mut out, line, &x, &y);
    }
    let legend = legend(lines.iter().map(|line| coloured(line.colour, line.name)));
    figure(&format!("{y_words} over {x_words}"), HIGH, &out, &legend)
}

fn draw_ticks(out: &mut String, mut ticks: Vec<f64>, x: &dyn Fn(f64) -> f64) {
    ticks.sort_by(f64::total_cmp);
    let mut before = f64::NEG_INFINITY;
    for tick in ticks {
        // Numbers that would run into each other are left out.
        if x(tick) - before >= 44.0 {
            before = x(tick);
            label(out, "axis middle", before, BASE + 18.0, &format!("{tick:.0}"));
        }
    }
}

fn draw_line(out: &mut String, line: &PlotLine, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let PlotLine { name, colour, points } = line;
    let places: Vec<String> = points.iter().map(|&(px, py)| format!("{:.1},{:.1}", x(px), y(py))).collect();
    let places = places.join(" ");
    let _ = write!(out, r#"<polyline class="curve" stroke="{colour}" points="{places}"/>"#);
    for &(px, py) in points {
        let words = escape(&format!("{name} at {px:.0}: {}", number(py)));
        let (cx, cy) = (x(px), y(py));
        let _ = write!(
            out,
            r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="3" fill="{colour}"><title>{words}</title></circle>"#
        );
    }
}

/// The next of 1, 2, 4, 5, 10, 20 … that is not below.
pub(super) fn nice(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * decade)
        .find(|&top| top >= value)
        .unwrap_or(value)
}

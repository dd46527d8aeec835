//! An interval as lines of text for a screen of a given width.
//!
//! **What.** [`screen`] is a pure function of the interval and of what the reader wants to see ([`View`]): nothing is asked of a
//! terminal here. **Price.** What does not fit into the width is cut, and the cut shows as `…`; below 80 columns that is a lot.

use crate::table::{Column, Table};
use record::llstat::Throughput;
use record::unit::{count, many, number, prefixed, time_ns};
use record::watch::{
    WatchCpu, WatchHop, WatchInterface, WatchInterrupt, WatchQueue, WatchReport, WatchSocket,
};

const NONE: &str = "–";
/// From this width on there is room for more columns.
const WIDE: usize = 120;

/// By what interfaces are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Frames, most first.
    #[default]
    Frames,
    /// Bits, most first.
    Bits,
    /// Drops, most first.
    Drops,
    /// Node and name.
    Name,
}

impl Sort {
    /// All, with the words for them.
    pub const ALL: [(Sort, &'static str); 4] =
        [(Sort::Frames, "frames"), (Sort::Bits, "bits"), (Sort::Drops, "drops"), (Sort::Name, "name")];

    /// The next one.
    pub fn next(self) -> Sort {
        let place = Self::ALL.iter().position(|(one, _)| *one == self).unwrap_or(0);
        Self::ALL[(place + 1) % Self::ALL.len()].0
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, word)| word)
    }
}

/// What a reader wants to see.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// How interfaces are sorted.
    pub sort: Sort,
    /// Only rows that have this part in their node, interface, name, or address.
    pub filter: String,
    /// Columns of the screen.
    pub width: usize,
}

/// The interval as lines of at most that many columns.
pub fn screen(report: &WatchReport, view: &View) -> String {
    let mut text = head(report, view);
    let shows = |words: &[&str]| view.filter.is_empty() || words.iter().any(|one| one.contains(&view.filter));
    if let Some(said) = &report.said {
        text += &format!("{}\n", wrapped(said, view.width));
    }
    text += &section("", table(&report.path, view, &PATH, 2));
    if report.uncertainty > 0 {
        text += &format!("±{}: the places are not read at one moment\n", many(report.uncertainty, "frame"));
    }
    let mut interfaces: Vec<&WatchInterface> =
        report.interfaces.iter().filter(|one| shows(&[&format!("{}:{}", one.node, one.interface)])).collect();
    sort(&mut interfaces, view.sort);
    let wide: &[Column<WatchInterface>] = if view.width >= WIDE { &INTERFACES_WIDE } else { &INTERFACES };
    text += &section("", table(interfaces.iter().copied(), view, wide, 1));
    if view.width < WIDE {
        text += &drops(&interfaces, view.width);
    }
    text += &section("", table(&report.cpus, view, &CPUS, 0));
    text += &squeezes(report);
    let of_name = |one: &&WatchInterrupt| shows(&[&one.name]);
    text += &section("", table(report.interrupts.iter().filter(of_name).take(6), view, &INTERRUPTS, 2));
    let of_queue = |one: &&WatchQueue| shows(&[&format!("{}:{}", one.node, one.interface)]);
    text += &section("", table(report.queues.iter().filter(of_queue), view, &QUEUES, 2));
    let of_socket = |one: &&WatchSocket| shows(&[&one.node, &one.local, &one.remote, &one.protocol]);
    let wide: &[Column<WatchSocket>] = if view.width >= WIDE { &SOCKETS_WIDE } else { &SOCKETS };
    text += &section("", table(report.sockets.iter().filter(of_socket).take(8), view, wide, 2));
    let missing = report.missing.iter().map(|why| format!("Not known: {}.\n", why.trim_end_matches('.')));
    text += &missing.collect::<String>();
    cut(&text, view.width)
}

fn head(report: &WatchReport, view: &View) -> String {
    let filter = if view.filter.is_empty() { String::new() } else { format!("  only '{}'", view.filter) };
    format!(
        "pathlab watch  {:.1} s  interval {}  reading took {}  by {}{filter}\n",
        report.seconds,
        time_ns(report.lasted_s * 1e9),
        time_ns(report.cost_cpu_ns as f64),
        view.sort.word(),
    )
}

/// A table with an empty line above it; nothing of one without rows.
fn section(title: &str, table: Option<String>) -> String {
    table.map_or(String::new(), |table| format!("\n{title}{table}"))
}

fn table<'a, R: 'a>(
    rows: impl IntoIterator<Item = &'a R>,
    view: &View,
    columns: &[Column<R>],
    words: usize,
) -> Option<String> {
    let table = Table::of(words, columns, rows);
    // What is too wide is cut, not folded: rows stay where the eye looks for them.
    (!table.rows.is_empty()).then(|| cut(&table.text_within(usize::MAX, &[]), view.width))
}

fn cut(text: &str, width: usize) -> String {
    let line = |line: &str| match line.chars().count() {
        long if long > width && width > 0 => line.chars().take(width - 1).collect::<String>() + "…\n",
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("one is there");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines.join("\n")
}

fn sort(interfaces: &mut [&WatchInterface], by: Sort) {
    let both = |one: &WatchInterface, of: fn(&Throughput) -> Option<f64>| {
        of(&one.receive).unwrap_or(0.0) + of(&one.transmit).unwrap_or(0.0)
    };
    let lost = |one: &WatchInterface| record::delta::sum(one.drops.values().copied());
    match by {
        Sort::Frames => interfaces
            .sort_by(|a, b| both(b, |way| way.frames_per_s).total_cmp(&both(a, |way| way.frames_per_s))),
        Sort::Bits => {
            interfaces.sort_by(|a, b| both(b, |way| way.rate_bps).total_cmp(&both(a, |way| way.rate_bps)))
        }
        Sort::Drops => interfaces.sort_by_key(|one| std::cmp::Reverse(lost(one))),
        Sort::Name => interfaces.sort_by(|a, b| (&a.node, &a.interface).cmp(&(&b.node, &b.interface))),
    }
}

fn or_none<T>(value: Option<T>, words: impl FnOnce(T) -> String) -> String {
    value.map_or(NONE.into(), words)
}

fn kilo(way: &Throughput) -> String {
    or_none(way.frames_per_s, |frames| number(frames / 1e3))
}

fn mega(way: &Throughput) -> String {
    or_none(way.rate_bps, |bits| number(bits / 1e6))
}

fn size(way: &Throughput) -> String {
    or_none(way.mean_bytes, |bytes| format!("{bytes:.0}"))
}

fn percent(share: Option<f64>) -> String {
    or_none(share, |share| number(share * 100.0))
}

fn names(drops: &record::snapshot::Counters) -> String {
    let named: Vec<String> = drops.iter().map(|(name, lost)| format!("{name} {}", count(*lost))).collect();
    named.join(", ")
}

fn place(one: &WatchInterface) -> String {
    format!("{}:{}{}", one.node, one.interface, if one.up { "" } else { " (down)" })
}

/// The larger part of the line rate.
fn line(one: &WatchInterface) -> String {
    percent(one.receive_share.into_iter().chain(one.transmit_share).reduce(f64::max))
}

const INTERFACES: [Column<WatchInterface>; 9] = [
    ("interface", place),
    ("in kfr/s", |one| kilo(&one.receive)),
    ("Mbit/s", |one| mega(&one.receive)),
    ("size", |one| size(&one.receive)),
    ("out kfr/s", |one| kilo(&one.transmit)),
    ("Mbit/s", |one| mega(&one.transmit)),
    ("size", |one| size(&one.transmit)),
    ("line %", line),
    ("drops", |one| prefixed(record::delta::sum(one.drops.values().copied()) as f64)),
];

const INTERFACES_WIDE: [Column<WatchInterface>; 13] = [
    ("interface", place),
    ("kind", |one| if one.kind.is_empty() { NONE.into() } else { one.kind.clone() }),
    ("in kframe/s", |one| kilo(&one.receive)),
    ("Mbit/s", |one| mega(&one.receive)),
    ("size", |one| size(&one.receive)),
    ("line %", |one| percent(one.receive_share)),
    ("out kframe/s", |one| kilo(&one.transmit)),
    ("Mbit/s", |one| mega(&one.transmit)),
    ("size", |one| size(&one.transmit)),
    ("line %", |one| percent(one.transmit_share)),
    ("queued frames", |one| count(one.backlog_frames)),
    ("bytes", |one| count(one.backlog_bytes)),
    ("drops", |one| names(&one.drops)),
];

const PATH: [Column<WatchHop>; 5] = [
    ("on the way", |hop| format!("{}:{}", hop.node, hop.interface)),
    ("", |hop| hop.way.clone()),
    ("frames", |hop| or_none(hop.frames, count)),
    ("lost before", |hop| or_none(hop.lost, record::unit::signed)),
    ("drops", |hop| names(&hop.drops)),
];

const CPUS: [Column<WatchCpu>; 12] = [
    ("CPU", |one| one.cpu.to_string()),
    ("user", |one| format!("{:.1}", one.user)),
    ("nice", |one| format!("{:.1}", one.nice)),
    ("sys", |one| format!("{:.1}", one.system)),
    ("irq", |one| format!("{:.1}", one.irq)),
    ("soft", |one| format!("{:.1}", one.softirq)),
    ("steal", |one| format!("{:.1}", one.steal)),
    ("idle", |one| format!("{:.1}", one.idle)),
    ("frames", |one| or_none(one.processed, |frames| prefixed(frames as f64))),
    ("drops", |one| or_none(one.dropped, count)),
    ("squeeze", |one| or_none(one.squeezed, count)),
    ("queued", |one| or_none(one.backlog, count)),
];

const INTERRUPTS: [Column<WatchInterrupt>; 4] = [
    ("irq", |one| one.irq.to_string()),
    ("name", |one| one.name.clone()),
    ("per s", |one| number(one.per_s)),
    ("CPU", |one| or_none(one.cpu, |cpu| cpu.to_string())),
];

const QUEUES: [Column<WatchQueue>; 6] = [
    ("queue of", |one| format!("{}:{}", one.node, one.interface)),
    ("", |one| one.queue.clone()),
    ("kframe/s", |one| or_none(one.frames_per_s, |frames| number(frames / 1e3))),
    ("drops", |one| or_none(one.drops, count)),
    ("bytes in the device", |one| or_none(one.inflight_bytes, count)),
    ("limit", |one| or_none(one.limit_bytes, count)),
];

fn megabits(rate: Option<f64>) -> String {
    or_none(rate, |bits| number(bits / 1e6))
}

fn ends(one: &WatchSocket) -> String {
    if one.remote.is_empty() { one.local.clone() } else { format!("{} > {}", one.local, one.remote) }
}

fn limit(one: &WatchSocket) -> String {
    match one.drops {
        Some(drops) if drops > 0 => format!("{} {}", one.limit, count(drops)),
        _ => one.limit.clone(),
    }
}

const SOCKETS: [Column<WatchSocket>; 7] = [
    ("socket", |one| format!("{} {}", one.node, one.protocol)),
    ("end", |one| if one.remote.is_empty() { one.local.clone() } else { one.remote.clone() }),
    ("out Mbit/s", |one| megabits(one.send_bps)),
    ("in", |one| megabits(one.receive_bps)),
    ("unread", |one| prefixed(one.receive_queue_bytes as f64)),
    ("unsent", |one| prefixed(one.send_queue_bytes as f64)),
    ("limit", limit),
];

const SOCKETS_WIDE: [Column<WatchSocket>; 7] = [
    ("socket", |one| format!("{} {}", one.node, one.protocol)),
    ("ends", ends),
    ("out Mbit/s", |one| megabits(one.send_bps)),
    ("in Mbit/s", |one| megabits(one.receive_bps)),
    ("bytes unread", |one| count(one.receive_queue_bytes)),
    ("unsent", |one| count(one.send_queue_bytes)),
    ("limit", limit),
];

/// A line for each interface that dropped, where the table has no room for names.
fn drops(interfaces: &[&WatchInterface], width: usize) -> String {
    let dropped = interfaces.iter().filter(|one| !one.drops.is_empty());
    dropped
        .map(|one| wrapped(&format!("dropped at {}: {}", place(one), names(&one.drops)), width) + "\n")
        .collect()
}

fn squeezes(report: &WatchReport) -> String {
    match (report.squeezed_budget, report.squeezed_time) {
        (Some(budget), Some(time)) if budget + time > 0 => {
            format!("squeezed: {} by budget, {} by time\n", count(budget), count(time))
        }
        _ => String::new(),
    }
}

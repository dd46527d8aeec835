//! What `pathlab llstat` says to people: a line for an interval, and tables at the end.

use crate::table::Table;
use record::Distribution;
use record::llstat::{
    InterruptRole, LlstatCost, LlstatEvents, LlstatPoller, LlstatReport, LlstatSoftnet, Pairing, Throughput,
};
use record::unit::{bits_per_s, count, frames_per_s, many, number, prefixed, signed, time_ns};

/// A table whose first columns hold words, the others numbers.
fn table(words: usize, headers: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { headers: headers.iter().map(|header| (*header).to_owned()).collect(), rows, words }
}

const NONE: &str = "–";

/// Distributions in their order: name in the record, name for people, whether they are times.
const DISTRIBUTIONS: [(&str, &str, bool); 12] = [
    ("interrupt_period_ns", "interrupt period", true),
    ("interrupt_handler_ns", "interrupt handler", true),
    ("interrupt_to_poll_ns", "interrupt to poll", true),
    ("interrupt_frames", "frames/interrupt", false),
    ("poll_frames", "frames/poll", false),
    ("poll_ns", "poll", true),
    ("full_polls_in_a_row", "full polls in a row", false),
    ("completion_buffers", "buffers/completion", false),
    ("transmit_ns", "driver's transmit", true),
    ("arrival_period_ns", "arrival to arrival", true),
    ("receive_bytes", "bytes received", false),
    ("transmit_bytes", "bytes sent", false),
];

/// A line while it goes on.
pub fn interval(report: &LlstatReport) -> String {
    let way = |one: &Throughput| {
        let frames = one.frames_per_s.map_or(NONE.into(), frames_per_s);
        format!("{frames} {}", one.rate_bps.map_or(NONE.into(), bits_per_s))
    };
    let mut line =
        format!("{:>6.1} s  in {}  out {}", report.seconds, way(&report.receive), way(&report.transmit));
    let known: Option<Vec<f64>> = report.interrupts.iter().map(|one| one.per_s).collect();
    if let Some(rates) = known.filter(|rates| !rates.is_empty()) {
        line += &format!("  {} irq/s", prefixed(rates.iter().sum()));
    }
    let polls: u64 = report.pollers.iter().map(|one| one.polls).sum();
    if let Some(frames) = report.distributions.get("poll_frames") {
        let full: u64 = report.pollers.iter().map(|one| one.full).sum();
        line += &format!("  {} frames/poll", number(frames.mean));
        line += &format!("  {} full", share(full, polls));
    }
    line + &sum_of_drops(report)
}

fn sum_of_drops(report: &LlstatReport) -> String {
    match report.drops.values().sum::<u64>() {
        0 => String::new(),
        drops => format!("  {} dropped or in error", count(drops)),
    }
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { NONE.into() } else { format!("{} %", number(part as f64 * 100.0 / whole as f64)) }
}

/// Everything at the end.
pub fn report(report: &LlstatReport) -> String {
    let kind = if report.kind.is_empty() { String::new() } else { format!(" ({})", report.kind) };
    let went = if report.ended == "gone" { ", then the interface went" } else { "" };
    let mut text = format!("{}:{}{kind}, {:.1} s{went}\n", report.node, report.interface, report.lasted_s);
    text += &throughput(report);
    text += &drops(report);
    if report.cost.is_some() {
        text += "\n";
        text += &distributions(report);
    }
    text += &interrupts(report);
    text += &pollers(&report.pollers);
    text += &queues(report);
    let lost = report.cost.as_ref().and_then(|cost| cost.lost);
    text.push('\n');
    text += &softnet(&report.softnet);
    text += &report.events.map(|found| events(&found, report.uncertainty, lost)).unwrap_or_default();
    text += &report.cost.as_ref().map(cost).unwrap_or_default();
    text += &report.missing.iter().map(|why| format!("Not known: {why}.\n")).collect::<String>();
    text.trim_end().to_owned()
}

fn throughput(report: &LlstatReport) -> String {
    let row = |(name, one): (&str, &Throughput)| {
        vec![
            name.to_owned(),
            one.frames.map_or(NONE.into(), count),
            one.frames_per_s.map_or(NONE.into(), prefixed),
            one.rate_bps.map_or(NONE.into(), prefixed),
            one.mean_bytes.map_or(NONE.into(), number),
        ]
    };
    let rows = [("received", &report.receive), ("sent", &report.transmit)].into_iter().map(row).collect();
    table(1, &["", "frames", "frames/s", "bit/s", "bytes/frame"], rows).text()
}

fn drops(report: &LlstatReport) -> String {
    let named = report.drops.iter().map(|(name, lost)| format!("{name} {}", count(*lost)));
    match named.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "No error and no drop was counted by the interface.\n".into(),
        named => format!("Errors and drops of the interface: {named}.\n"),
    }
}

fn distributions(report: &LlstatReport) -> String {
    let row = |(name, title, is_time): (&str, &str, bool)| {
        let value = |value: f64| if is_time { time_ns(value) } else { number(value) };
        let Some(Distribution { count: n, min, mean, p50, p99, max }) =
            report.distributions.get(name).copied()
        else {
            let none = vec![NONE.to_owned(); 6];
            return [vec![title.to_owned()], none].concat();
        };
        let whole = |amount: u64| if is_time { time_ns(amount as f64) } else { count(amount) };
        vec![title.to_owned(), count(n), whole(min), value(mean), whole(p50), whole(p99), whole(max)]
    };
    let rows = DISTRIBUTIONS.into_iter().map(row).collect();
    let text = table(1, &["", "count", "min", "mean", "p50", "p99", "max"], rows).text();
    text + &absent(report)
}

/// Why lines of the table are empty: lines with the same reason together.
fn absent(report: &LlstatReport) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = vec![];
    for (name, title, _) in DISTRIBUTIONS {
        let Some(why) = report.absent.get(name) else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, titles)) => titles.push(title),
            None => reasons.push((why, vec![title])),
        }
    }
    reasons.iter().map(|(why, titles)| format!("{NONE} {}: {why}.\n", titles.join(", "))).collect()
}

fn interrupts(report: &LlstatReport) -> String {
    if report.interrupts.is_empty() {
        return String::new();
    }
    let row = |one: &record::llstat::LlstatInterrupt| {
        let role = match one.role {
            InterruptRole::Receive => "receive",
            InterruptRole::Transmit => "transmit",
            InterruptRole::Other => "other",
        };
        let cpus: Vec<String> = one.cpus.iter().map(|(cpu, count)| format!("{cpu}: {count}")).collect();
        let (count, rate) = (one.count.map_or(NONE.into(), count), one.per_s.map_or(NONE.into(), prefixed));
        vec![one.irq.to_string(), one.name.clone(), role.to_owned(), cpus.join(", "), count, rate]
    };
    let rows = report.interrupts.iter().map(row).collect();
    "\n".to_owned() + &table(4, &["irq", "name", "for", "CPU: count", "count", "per s"], rows).text()
}

fn pollers(pollers: &[LlstatPoller]) -> String {
    if pollers.is_empty() {
        return String::new();
    }
    let per = |part: u64, whole: u64| {
        if whole == 0 { NONE.to_owned() } else { number(part as f64 / whole as f64) }
    };
    let row = |one: &LlstatPoller| {
        vec![
            one.napi.map_or_else(|| one.what.clone(), |id| format!("NAPI {id}")),
            queues_of(one),
            one.irq.map_or(NONE.into(), |irq| match one.paired_by {
                Some(Pairing::Name) => format!("{irq}?"),
                _ => irq.to_string(),
            }),
            count(one.polls),
            count(one.frames),
            per(one.frames, one.polls),
            share(one.full, one.polls),
            one.ns_per_frame.map_or(NONE.into(), number),
        ]
    };
    let headers = ["polled by", "queue", "irq", "polls", "frames", "per poll", "full", "ns/frame"];
    let mut text = "\n".to_owned() + &table(2, &headers, pollers.iter().map(row).collect()).text();
    if pollers.iter().any(|one| one.paired_by == Some(Pairing::Name)) {
        text += "? the driver does not tell the kernel; paired by the order of the queues.\n";
    }
    let untimed: u64 = pollers.iter().map(|one| one.untimed).sum();
    if untimed > 0 {
        text += &format!("{} by a thread or a busy-polling socket, without a time.\n", many(untimed, "poll"));
    }
    for one in pollers {
        if let (Some(napi), Some(thread)) = (one.napi, one.thread) {
            text += &format!("NAPI {napi} is polled by thread {thread}.\n");
        }
    }
    text
}

fn queues_of(one: &LlstatPoller) -> String {
    let list = |way: &str, queues: &[u32]| queues.iter().map(|queue| format!("{way}{queue}")).collect();
    let (receive, transmit): (Vec<String>, Vec<String>) =
        (list("rx", &one.receive_queues), list("tx", &one.transmit_queues));
    let all = [receive, transmit].concat();
    if all.is_empty() { NONE.into() } else { all.join(" ") }
}

fn queues(report: &LlstatReport) -> String {
    if report.queues.is_empty() {
        return "\nNo transmit queue tells how many bytes the device has (no byte queue limits).\n".into();
    }
    let row = |one: &record::llstat::QueueLimit| {
        vec![format!("tx{}", one.queue), count(one.inflight_bytes), count(one.limit_bytes)]
    };
    let rows = report.queues.iter().map(row).collect();
    "\n".to_owned() + &table(1, &["queue", "bytes in the device", "limit"], rows).text()
}

fn softnet(one: &LlstatSoftnet) -> String {
    let of = |count: Option<u64>| count.map_or("unknown".into(), record::unit::count);
    let mut text = format!(
        "Whole host: {} frames processed, {} dropped by a full backlog, {} squeezed",
        of(one.processed),
        of(one.dropped),
        of(one.squeezed)
    );
    if let (Some(budget), Some(time)) = (one.squeezed_budget, one.squeezed_time) {
        text += &format!(" ({} by budget, {} by time)", count(budget), count(time));
    }
    text += ".\n";
    if let (Some(runs), Some(transmit), Some(ns)) = (one.net_rx, one.net_tx, one.net_rx_ns) {
        let each = if runs == 0 { NONE.into() } else { time_ns(ns as f64 / runs as f64) };
        text += &format!("  NET_RX {} of {each}, NET_TX {}", count(runs), count(transmit));
        if let (Some(polls), Some(frames)) = (one.backlog_polls, one.backlog_frames) {
            text += &format!("; backlog {} in {}", many(frames, "frame"), many(polls, "poll"));
        }
        text += ".\n";
    }
    text
}

fn events(one: &LlstatEvents, uncertainty: u64, lost: Option<u64>) -> String {
    let mut text = format!(
        "Frames polled {} (counter {}), to the protocols {}; driver took {} (counter {}), gave back {}, freed {}.\n",
        count(one.polled),
        difference_words(one.receive_difference),
        count(one.received),
        count(one.sent),
        difference_words(one.transmit_difference),
        count(one.busy),
        count(one.freed),
    );
    if (one.receive_difference, one.transmit_difference) == (Some(0), Some(0)) {
        return text;
    }
    if uncertainty > 0 {
        text += &format!("  ±{}: they moved while the counters were read.\n", many(uncertainty, "frame"));
    }
    if lost.is_none_or(|lost| lost > 0) {
        text += "  Frames of events that the programs were not shown are missing, too.\n";
    }
    text
}

fn difference_words(difference: Option<i64>) -> String {
    match difference {
        Some(0) => "the same".into(),
        Some(frames) if frames > 0 => format!("+{}", signed(frames)),
        Some(frames) => signed(frames),
        None => "unknown".into(),
    }
}

/// The programs' share of one CPU, and what was measured of it where an empty program says what the measurement takes.
fn taken(one: &LlstatCost) -> (String, String) {
    let percent = |share: f64| format!("{} %", number(share * 100.0));
    match (one.own_cpu_share, one.cpu_share, one.empty_ns_per_run) {
        (Some(own), Some(measured), Some(empty)) => {
            let empty = time_ns(empty);
            let words = format!(
                " (measured {}, less {empty} a run that an empty program takes by the same measure)",
                percent(measured)
            );
            (percent(own), words)
        }
        (_, measured, _) => (measured.map_or("an unknown share".into(), percent), String::new()),
    }
}

fn cost(one: &LlstatCost) -> String {
    let runs: u64 = one.programs.iter().map(|program| program.runs).sum();
    let lost = match one.lost {
        Some(lost) => format!("{} not shown to them", many(lost, "event")),
        None => "how many events they missed is unknown".into(),
    };
    let (share, measured) = taken(one);
    format!("Cost: {share} of one CPU for {} of the programs{measured}; {lost}.\n", many(runs, "run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_without_the_measurement_where_that_is_known() {
        let known = LlstatCost {
            cpu_share: Some(0.05),
            own_cpu_share: Some(0.02),
            empty_ns_per_run: Some(60.0),
            lost: Some(0),
            programs: vec![],
        };
        assert_eq!(
            cost(&known),
            "Cost: 2.00 % of one CPU for 0 runs of the programs (measured 5.00 %, less 60 ns a run that an empty program takes by the same measure); 0 events not shown to them.\n"
        );
        let measured = LlstatCost { own_cpu_share: None, empty_ns_per_run: None, ..known };
        assert!(cost(&measured).starts_with("Cost: 5.00 % of one CPU for 0 runs of the programs; "));
        let unknown = LlstatCost { cpu_share: None, ..measured };
        assert!(cost(&unknown).starts_with("Cost: an unknown share of one CPU for 0 runs of the programs; "));
    }
}

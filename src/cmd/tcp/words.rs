//! What `pathlab tcp` says to people.

use crate::output::when_any;
use record::connection::{ConnectionReport, Extremes, TcpReport, TcpSampleLine};
use record::unit::{bits_per_s, count, many, time_ns};
use std::collections::BTreeMap;

/// The state in which nothing else is told: a socket that listens has no window and no rate.
const LISTENING: &str = "listening";
/// The kernel's way to say that slow start has not ended.
const INFINITE: u64 = 0x7fff_ffff;

/// A connection in a sample.
pub fn sample(line: &TcpSampleLine) -> String {
    let time = jiff::Timestamp::from_nanosecond(line.at_ns.into())
        .map_or_else(|_| "unknown time".to_owned(), |time| time.strftime("%H:%M:%S%.6f").to_string());
    let queues = format!("queues {}/{}", line.receive_queue, line.send_queue);
    let now = if line.state == LISTENING { String::new() } else { now(&line.info) + " " };
    format!("{time} {} {} > {} {} {now}{queues}", line.node, line.local, line.peer, line.state)
}

/// What the kernel says now; what it does not say is left out.
fn now(info: &BTreeMap<String, u64>) -> String {
    let get = |name: &str| info.get(name).copied();
    let words = [
        get("rtt").filter(|rtt| *rtt > 0).map(|rtt| format!("rtt {}", us(rtt))),
        // An unmeasured minimum is the largest number.
        get("min_rtt").filter(|rtt| *rtt < u64::from(u32::MAX)).map(|rtt| format!("min {}", us(rtt))),
        get("snd_cwnd").map(|cwnd| format!("cwnd {}", count(cwnd))),
        get("snd_ssthresh").map(|value| format!("ssthresh {}", threshold(value))),
        get("delivery_rate").map(|rate| format!("delivery {}", bits_per_s(rate as f64 * 8.0))),
        get("snd_wnd").map(|window| format!("peer's window {} B", count(window))),
        get("total_retrans").filter(|sent| *sent > 0).map(|sent| format!("retransmitted {}", count(sent))),
        get("bbr_bw").map(|rate| format!("BBR {}", bits_per_s(rate as f64 * 8.0))),
        get("dctcp_alpha").map(|alpha| format!("DCTCP alpha {:.3}", alpha as f64 / 1024.0)),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn us(value: u64) -> String {
    time_ns(value as f64 * 1000.0)
}

fn threshold(value: u64) -> String {
    if value >= INFINITE { "infinite".to_owned() } else { count(value) }
}

/// All that is known at the end.
pub fn report(report: &TcpReport) -> String {
    let filter = report.filter.as_ref().map_or(String::new(), |filter| format!(" with '{filter}'"));
    let connections = many(report.connections.len() as u64, "connection");
    let (time, ended) = (time_ns(report.seconds * 1e9), &report.ended);
    let mut lines =
        vec![format!("{}{filter}: {connections} in {time}; ended by {ended}", report.nodes.join(", "))];
    lines.extend(report.connections.iter().flat_map(connection));
    lines.push(cost(report));
    lines.join("\n")
}

fn connection(one: &ConnectionReport) -> Vec<String> {
    let control = one.congestion.as_ref().map_or(String::new(), |name| format!(", {name}"));
    let gone = if one.is_gone { ", gone" } else { "" };
    let ConnectionReport { node, local, peer, state, .. } = one;
    let mut lines = vec![format!("{node} {local} > {peer} {state}{gone}{control}; {}", queues(one))];
    if state == LISTENING {
        return lines;
    }
    let mut add = |words: String| {
        if !words.is_empty() {
            lines.push(format!("  {words}"));
        }
    };
    add(now(&one.info));
    add(moved(one));
    add(spread(one));
    add(time(one));
    add(one
        .limit
        .as_ref()
        .map_or(String::new(), |limit| format!("{} Advice: {}.", limit.sentence, limit.advice)));
    lines
}

/// The two queues. A socket that listens has connections in one, and its limit in place of the other.
fn queues(one: &ConnectionReport) -> String {
    let [came, goes] = [one.receive_queue, one.send_queue].map(|queue| count(queue.into()));
    if one.state != LISTENING {
        return format!("unread {came} B, unacknowledged {goes} B");
    }
    let most = one.extremes.get("receive_queue").filter(|seen| one.samples > 1 && seen.max > seen.min);
    let most = most.map_or(String::new(), |seen| format!(" (at most {} seen)", count(seen.max)));
    format!("not accepted {came}{most}, limit {goes}")
}

/// What was sent and received meanwhile.
fn moved(one: &ConnectionReport) -> String {
    let rate = |bytes: u64| bits_per_s(bytes as f64 * 8.0 / one.seconds);
    let words = |bytes: Option<u64>, what: &str| {
        bytes
            .filter(|_| one.seconds > 0.0)
            .map(|bytes| format!("{what} {} B ({})", count(bytes), rate(bytes)))
    };
    let again = one.time.map_or(String::new(), |time| {
        when_any(time.retransmitted_segments, |segments| format!(", {} again", many(segments, "segment")))
    });
    let all = [words(one.bytes_sent, "sent"), words(one.bytes_received, "received")];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { String::new() } else { all.join(", ") + &again }
}

/// Round-trip times and extremes.
fn spread(one: &ConnectionReport) -> String {
    let rtt = one.rtt_ns.as_ref().filter(|rtt| rtt.count > 1).map(|rtt| {
        let [p50, p99, max] = [rtt.p50, rtt.p99, rtt.max].map(|ns| time_ns(ns as f64));
        format!("rtt p50 {p50}, p99 {p99}, max {max}")
    });
    let range = |name: &str, words: &str| {
        let Extremes { min, max } = one.extremes.get(name).filter(|_| one.samples > 1)?;
        Some(format!("{words} {} to {}", count(*min), count(*max)))
    };
    let all = [rtt, range("snd_cwnd", "cwnd"), range("send_queue", "unacknowledged")];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Where its time went.
fn time(one: &ConnectionReport) -> String {
    let Some((time, changes)) = one.time.zip(one.changes) else { return String::new() };
    let part = |what: &str, us: u64, times: u64| {
        let share = us as f64 * 100.0 / time.wall_us.max(1) as f64;
        format!("{what} {share:.0} % ({})", many(times, "time"))
    };
    [
        part("application", time.application_us, changes.application),
        part("receiver's window", time.receiver_window_us, changes.receiver_window),
        part("send buffer", time.send_buffer_us, changes.send_buffer),
        part("network", time.network_us, changes.network),
    ]
    .join(", ")
}

/// What it cost, and what was missed.
fn cost(report: &TcpReport) -> String {
    let took = report.sample_ns.as_ref().map_or(String::new(), |took| {
        format!(", each {} (p50; p99 {})", time_ns(took.p50 as f64), time_ns(took.p99 as f64))
    });
    let asked = report.interval_ns.map_or(String::new(), |ns| format!(" at {}", time_ns(ns as f64)));
    let (samples, missed) = (many(report.samples, "sample"), count(report.missed));
    format!("{samples}{asked}{took}; {missed} missed; {} of CPU", time_ns(report.cpu_ns as f64))
}

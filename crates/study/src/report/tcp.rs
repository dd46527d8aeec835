//! The connections of a TCP test over time: what they carried, their window and round-trip time, when segments were sent again, and what held them back.
//!
//! **What.** A figure for each connection of the sender, of the readings of `TCP_INFO` in the record: three curves above each other over one axis of time,
//! marks where segments were sent again, and below a strip whose columns are split by what held the sender back ([`crate::tcp`]).
//!
//! **Price.** At most [`SLICES`] slices: what is shorter than one is only in the record. The kernel counts what holds a sender back in jiffies, so a column is
//! uncertain by one for each change of state.

use super::svg::{WIDE, escape, figure, label, legend_of, nice};
use crate::tcp::{TcpSlice, slices};
use record::TestRecord;
use record::tcp::TcpDecomposition;
use record::unit::{bits_per_s, time_ns};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Slices of a figure.
const SLICES: usize = 150;
/// Connections that have a figure; more hide each other.
const MOST: usize = 4;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 14.0;
/// A panel, and where the first one begins.
const PANEL: f64 = 62.0;
const STEP: f64 = 86.0;
const TOP: f64 = 22.0;
/// The strip below the panels.
const STRIP: f64 = 26.0;

/// A curve: its words, its colour, its values, and how the largest value is said.
type Curve = (&'static str, &'static str, fn(&TcpSlice) -> f64, fn(f64) -> String);

const CURVES: [Curve; 3] = [
    ("acknowledged", "#0072b2", |slice| slice.rate_bps, bits_per_s),
    ("window, segments", "#009e73", |slice| slice.cwnd.into(), |most| format!("{most:.0}")),
    ("round trip", "#cc79a7", |slice| f64::from(slice.rtt_us) * 1e3, time_ns),
];

/// What holds a sender back: its words, its colour, its part of the time.
type Limiter = (&'static str, &'static str, fn(&TcpDecomposition) -> u64);

const LIMITERS: [Limiter; 4] = [
    ("network", "#56b4e9", |parts| parts.network_us),
    ("receiver's window", "#e69f00", |parts| parts.receiver_window_us),
    ("send buffer", "#8c6d31", |parts| parts.send_buffer_us),
    ("application", "#9aa4b0", |parts| parts.application_us),
];
const AGAIN: &str = "#d55e00";

/// The figures of a test, each with its words; how many connections have none.
pub fn timelines(test: &TestRecord) -> (Vec<(String, String)>, usize) {
    let streams: BTreeSet<u32> = test.sender.tcp.iter().map(|sample| sample.stream).collect();
    let all = streams.iter().map(|stream| (*stream, slices(&test.sender.tcp, *stream, SLICES)));
    let told: Vec<_> = all.filter(|(_, slices)| slices.len() > 1).collect();
    let figures = told.iter().take(MOST).map(|(stream, slices)| (words(*stream, slices), drawn(slices)));
    (figures.collect(), told.len().saturating_sub(MOST))
}

fn again(slices: &[TcpSlice]) -> u64 {
    record::delta::sum(slices.iter().map(|slice| slice.parts.retransmitted_segments))
}

fn words(stream: u32, slices: &[TcpSlice]) -> String {
    let many = again(slices);
    let again = match many {
        0 => "nothing was sent again".to_owned(),
        1 => "1 segment was sent again".to_owned(),
        many => format!("{} segments were sent again", crate::table::count(many)),
    };
    format!("connection {stream}: {again}")
}

fn drawn(slices: &[TcpSlice]) -> String {
    let (from, to) = (slices[0].from_s, slices[slices.len() - 1].to_s);
    let x = |seconds: f64| LEFT + (seconds - from) / (to - from).max(1e-9) * (WIDE - LEFT - RIGHT);
    let mut out = String::new();
    for (place, curve) in CURVES.iter().enumerate() {
        panel(&mut out, TOP + place as f64 * STEP, curve, slices, &x);
    }
    let below = TOP + CURVES.len() as f64 * STEP - 12.0;
    marks(&mut out, below, slices, &x);
    strip(&mut out, below, slices, &x);
    label(&mut out, "axis right", LEFT - 6.0, below + 17.0, "held back by");
    let axis = below + STRIP + 17.0;
    seconds(&mut out, axis, (from, to), &x);
    let marks = (again(slices) > 0).then_some(("sent again", AGAIN));
    let is_seen = |(_, _, part): &&Limiter| slices.iter().any(|slice| part(&slice.parts) > 0);
    let seen = LIMITERS.iter().filter(is_seen).map(|(name, colour, _)| (*name, *colour));
    figure("a connection over time", axis + 8.0, &out, &legend_of(seen.chain(marks)))
}

fn seconds(out: &mut String, y: f64, (from, to): (f64, f64), x: &dyn Fn(f64) -> f64) {
    for step in 0..=4 {
        let seconds = from + (to - from) * f64::from(step) / 4.0;
        let (class, at) = if step == 4 { ("axis right", WIDE) } else { ("axis middle", x(seconds)) };
        label(out, class, at, y, &format!("{seconds:.2} s"));
    }
}

fn panel(out: &mut String, top: f64, curve: &Curve, slices: &[TcpSlice], x: &dyn Fn(f64) -> f64) {
    let (words, colour, value, said) = curve;
    let most = nice(slices.iter().map(value).fold(0.0, f64::max));
    let y = |value: f64| top + PANEL - value / most * PANEL;
    for share in [0.0, 0.5, 1.0] {
        let at = y(most * share);
        let _ = write!(out, r#"<path class="grid" d="M{LEFT} {at:.1}H{:.1}"/>"#, WIDE - RIGHT);
    }
    label(out, "axis right", LEFT - 6.0, top + 5.0, &escape(&said(most)));
    label(out, "axis right", LEFT - 6.0, top + PANEL + 4.0, "0");
    label(out, "axis", LEFT, top - 6.0, words);
    let _ = write!(
        out,
        r#"<path class="curve" stroke="{colour}" d="{}"/>"#,
        stairs(slices, x, &|slice| y(value(slice)))
    );
}

/// A curve that is level in each slice; it is written where it moves.
fn stairs(slices: &[TcpSlice], x: &dyn Fn(f64) -> f64, y: &dyn Fn(&TcpSlice) -> f64) -> String {
    let level = |slice: &TcpSlice| format!("{:.1}", y(slice));
    let mut path = format!("M{:.1} {}", x(slices[0].from_s), level(&slices[0]));
    for pair in slices.windows(2) {
        if level(&pair[0]) != level(&pair[1]) {
            let _ = write!(path, "H{:.1}V{}", x(pair[1].from_s), level(&pair[1]));
        }
    }
    let _ = write!(path, "H{:.1}", slices.last().map_or(LEFT, |last| x(last.to_s)));
    path
}

/// A line through all panels where segments were sent again.
fn marks(out: &mut String, bottom: f64, slices: &[TcpSlice], x: &dyn Fn(f64) -> f64) {
    for slice in slices.iter().filter(|slice| slice.parts.retransmitted_segments > 0) {
        let at = x((slice.from_s + slice.to_s) / 2.0);
        let words = format!("{} sent again until {:.3} s", slice.parts.retransmitted_segments, slice.to_s);
        let _ = write!(
            out,
            r#"<path class="again" stroke="{AGAIN}" stroke-opacity=".45" d="M{at:.1} {TOP}V{bottom:.1}"><title>{words}</title></path>"#
        );
    }
}

/// The strip: a column for each slice, split by what held the sender back. All parts of one limiter are one shape, which says its share of the whole.
fn strip(out: &mut String, top: f64, slices: &[TcpSlice], x: &dyn Fn(f64) -> f64) {
    let wall = record::delta::sum(slices.iter().map(|slice| slice.parts.wall_us)).max(1) as f64;
    for (place, (name, colour, part)) in LIMITERS.iter().enumerate() {
        let all = record::delta::sum(slices.iter().map(|slice| part(&slice.parts)));
        if all > 0 {
            let shape: String = slices.iter().map(|slice| block(slice, place, top, x)).collect();
            let percent = all as f64 / wall * 100.0;
            let _ = write!(
                out,
                r#"<path fill="{colour}" d="{shape}"><title>{name} {percent:.1} %</title></path>"#
            );
        }
    }
}

/// The part of one limiter in the column of a slice, below those before it.
fn block(slice: &TcpSlice, place: usize, top: f64, x: &dyn Fn(f64) -> f64) -> String {
    let high = |part: u64| part as f64 / slice.parts.wall_us.max(1) as f64 * STRIP;
    let above: f64 = LIMITERS[..place].iter().map(|(_, _, part)| high(part(&slice.parts))).sum();
    let (from, to, own) = (x(slice.from_s), x(slice.to_s), high(LIMITERS[place].2(&slice.parts)));
    if own <= 0.0 {
        return String::new();
    }
    format!("M{from:.1} {:.1}H{to:.1}v{own:.1}H{from:.1}z", top + above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::TcpSample;

    fn test(connections: u32) -> TestRecord {
        let at = |stream, step: u64| TcpSample {
            at_ns: step * 10_000_000,
            stream,
            bytes_acked: step * 12_500,
            cwnd: 10,
            rtt_us: 250,
            busy_us: step * 10_000,
            rwnd_limited_us: step.min(10) * 10_000,
            total_retrans: u32::from(step > 30) * 2,
            ..TcpSample::default()
        };
        let mut test = TestRecord::default();
        test.sender.tcp =
            (0..connections).flat_map(|stream| (0..50).map(move |step| at(stream, step))).collect();
        test
    }

    #[test]
    fn a_connection_is_drawn_with_its_marks_and_what_held_it_back() {
        let (figures, more) = timelines(&test(1));
        let [(words, svg)] = &figures[..] else { panic!("one figure") };
        assert_eq!((words.as_str(), more), ("connection 0: 2 segments were sent again", 0));
        for part in [
            "10.0 Mbit/s",
            "400 µs",
            "2 sent again until 0.310 s",
            "network 79.6 %",
            "receiver's window 20.4 %",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches("class=\"again\"").count(), 1);
        assert!(!svg.contains("send buffer"), "what never was is not in the legend");
    }

    #[test]
    fn many_connections_are_counted_and_other_tests_have_no_figure() {
        let (figures, more) = timelines(&test(7));
        assert_eq!((figures.len(), more), (MOST, 3));
        assert_eq!(timelines(&TestRecord::default()), (vec![], 0));
    }
}

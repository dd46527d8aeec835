//! Rules about TCP (TCP-01 … TCP-16), most of them about the connections that were seen in the window.

use super::look::{Found, Look, Missing, any_moved, any_of, becomes, count, percent, when};
use super::{Advice, At, DoctorRule};

/// A connection that has not what is set: setting it does not change what there is.
const ITS_OWN_CHOICE: Advice = Advice::Say(
    "look who asks for another (TCP_CONGESTION, 'ip route' with congctl); a connection that began before it was set is to be begun again",
);

/// A limit of TCP's own time counts from this part of the busy time on.
const LIMITED: f64 = 0.05;

/// A connection that had data on its way for so long was busy.
const BUSY_US: f64 = 100_000.0;

/// A window that lets less than this go at a time is a few segments.
const FEW_BYTES: f64 = 65_536.0;

/// With less than this on its way a connection hardly waits for a small window, but for one that the application which reads does not open: the
/// smallest buffer lets about as much go (`SOCK_MIN_RCVBUF`, `include/net/sock.h`).
const LEAST_WINDOW: f64 = 2_048.0;

/// The third word of a setting with three (least, default, most).
fn most_of(look: &Look<'_>, name: &str) -> Result<f64, Missing> {
    let text = look.text(name)?;
    let third = text.split_ascii_whitespace().nth(2).and_then(|word| word.parse().ok());
    third.ok_or_else(|| format!("{name}: '{text}' has no third number"))
}

/// The connection that was limited longest, of those that may be: who, for what part of its busy time, how many seconds it was busy.
fn limited(
    look: &Look<'_>,
    limit: &str,
    may_be: impl Fn(&str) -> bool,
) -> Result<Option<(String, f64, f64)>, Missing> {
    let limited = look.moves_by(limit)?;
    let share = |(who, busy): (String, f64)| {
        let us = limited.get(&who).copied().unwrap_or(0.0);
        (busy > 0.0 && us / busy > LIMITED).then(|| (who, us / busy, busy / 1e6))
    };
    Ok(look
        .moves("tcp.busy_us")?
        .into_iter()
        .filter(|(who, _)| may_be(who))
        .filter_map(share)
        .max_by(|a, b| (a.1 * a.2).total_cmp(&(b.1 * b.2))))
}

/// A window that carries the interface's rate over a connection's round trip, doubled; in bytes.
fn wanted_window(look: &Look<'_>, who: &str, now: f64) -> Result<f64, Missing> {
    let times = look.numbers("tcp.rtt_us")?;
    let rtt_us = times.iter().find(|(other, _)| other == who).map_or(0.0, |(_, us)| *us);
    // 10 Gbit/s where nothing is known of the wire.
    let wanted = 2.0 * 10e9 * rtt_us / 8e6;
    Ok(wanted.max(now * 4.0).max(6_291_456.0).ceil())
}

/// A finding for a connection held back by a buffer; `whose`: of which end the setting is, where that is not the one to blame.
fn buffer(
    look: &Look<'_>,
    (limit, may_be): (&str, impl Fn(&str) -> bool),
    (setting, whose): (&str, &str),
    what: &str,
) -> Result<Option<Found>, Missing> {
    let Some((who, share, busy_s)) = limited(look, limit, may_be)? else { return Ok(None) };
    let most = most_of(look, setting)?;
    let evidence = format!(
        "{who}: {what} held it back for {} of {busy_s:.2} s; {setting}{whose} allows {} bytes",
        percent(share),
        count(most)
    );
    let words = look.text(setting)?;
    let mut words = words.split_ascii_whitespace();
    let (least, usual) = (words.next().unwrap_or("4096"), words.next().and_then(|word| word.parse().ok()));
    let usual: u64 = usual.unwrap_or(131_072).max(65_536);
    becomes(true, share, evidence, format!("{least} {usual} {}", wanted_window(look, &who, most)?))
}

/// A connection whose send buffer is smaller than what it needs.
struct SmallBuffer {
    who: String,
    bytes: f64,
    need: f64,
    /// What needs that many bytes.
    what: &'static str,
}

/// The value of that connection.
fn value_of(places: &[(String, f64)], who: &str) -> Option<f64> {
    places.iter().find(|(one, _)| one == who).map(|(_, value)| *value)
}

/// What each connection had on its way while it was busy: rate × round trip, in bytes.
fn flights(look: &Look<'_>) -> Result<Vec<(String, f64)>, Missing> {
    let (sent, times) = (look.moves_by("tcp.bytes_sent")?, look.numbers("tcp.rtt_us")?);
    let flight = |(who, busy_us): (String, f64)| {
        let bytes = sent.get(&who)? * value_of(&times, &who)? / busy_us;
        (busy_us > 0.0).then_some((who, bytes))
    };
    Ok(look.moves("tcp.busy_us")?.into_iter().filter_map(flight).collect())
}

/// Connections with a send buffer of that kind that is smaller than rate × round trip. What sent no more than its buffer holds cannot have waited for it, whatever
/// rate a burst of it had.
fn small(look: &Look<'_>, wanted: impl Fn(f64) -> bool) -> Result<Vec<SmallBuffer>, Missing> {
    let (rates, times) = (look.numbers("tcp.delivery_bps")?, look.numbers("tcp.rtt_us")?);
    let sent = look.moves_by("tcp.bytes_sent")?;
    let need = |(who, bytes): (String, f64)| {
        let need = value_of(&rates, &who)? / 8e6 * value_of(&times, &who)?;
        // Below that a few segments are the whole of it.
        let is_small = need > FEW_BYTES && bytes < need && bytes < *sent.get(&who)? && wanted(bytes);
        is_small.then_some(SmallBuffer { who, bytes, need, what: "rate × round trip is" })
    };
    Ok(look.numbers("tcp.sndbuf")?.into_iter().filter_map(need).collect())
}

/// Connections with a send buffer that is at its limit and holds them back: it is smaller than rate × round trip, or, where they were
/// busy, than what the congestion window lets go.
fn at_limit(look: &Look<'_>) -> Result<Vec<SmallBuffer>, Missing> {
    let limit = most_of(look, "sysctl net.ipv4.tcp_wmem")?;
    let (windows, segments, busy) =
        (look.numbers("tcp.cwnd")?, look.numbers("tcp.mss")?, look.moves_by("tcp.busy_us")?);
    let below = |(who, bytes): (String, f64)| {
        let need = value_of(&windows, &who)? * value_of(&segments, &who)?;
        let is_busy = busy.get(&who).is_some_and(|busy_us| *busy_us >= BUSY_US);
        let is_small = is_busy && bytes >= limit && bytes < need;
        is_small.then_some(SmallBuffer { who, bytes, need, what: "the congestion window lets go" })
    };
    let mut found = small(look, |bytes| bytes >= limit)?;
    found.extend(look.numbers("tcp.sndbuf")?.into_iter().filter_map(below));
    Ok(found)
}

/// Parts of what a connection sent, by connection.
fn part(look: &Look<'_>, name: &str, of: &str) -> Result<Option<(String, f64)>, Missing> {
    let shares = look.shares(name, of)?;
    Ok(shares.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)))
}

/// The largest window without scaling (RFC 9293, section 3.1), in bits, for rates over a round trip in microseconds.
const UNSCALED_BITS_US: f64 = 65_535.0 * 8e6;

fn place_of(all: &[(String, f64)], who: &str) -> Option<f64> {
    all.iter().find(|(one, _)| one == who).map(|(_, value)| *value)
}

/// Which part of the largest window without scaling a connection fills in either direction, by its rate and its round trip; none when that is
/// not known. What it receives is at most a full segment in each that comes.
fn fill_of_window(look: &Look<'_>, who: &str) -> Option<f64> {
    let of = |name: &str| place_of(&look.numbers(name).ok()?, who);
    let segments = look.moves("tcp.segs_in").ok().and_then(|all| place_of(&all, who));
    let received =
        segments.zip(of("tcp.mss")).map(|(segments, mss)| segments * mss * 8.0 / look.seconds.max(1e-9));
    let bps = [of("tcp.delivery_bps"), received].into_iter().flatten().reduce(f64::max)?;
    of("tcp.rtt_us").filter(|us| *us > 0.0).map(|us| bps * us / UNSCALED_BITS_US)
}

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "TCP-01",
        goals: "T",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &[
            "sysctl net.ipv4.tcp_rmem",
            "tcp.busy_us",
            "tcp.rwnd_limited_us",
            "tcp.bytes_sent",
            "tcp.rtt_us",
            "tcp.wscale",
        ],
        condition: "a connection with window scaling waited over 5 % of its busy time for the receiver's window, and rate × round trip is at least 2 KiB (else the application reads slowly)",
        meaning: "the receiver's window is smaller than rate × round trip",
        advice: Advice::PeerKnob("sysctl net.ipv4.tcp_rmem", "NEW"),
        effect: "the rate grows to what the path carries",
        risk: "memory",
        source: "ESnet fasterdata; ndt7",
        look: |look| {
            let setting = ("sysctl net.ipv4.tcp_rmem", " of this end");
            // Without a scale no buffer makes the window larger (TCP-04).
            let scales = look.numbers("tcp.wscale")?;
            let flights = flights(look)?;
            let is_large = |who: &str| value_of(&flights, who).is_some_and(|bytes| bytes >= LEAST_WINDOW);
            let may_be = |who: &str| value_of(&scales, who) != Some(0.0) && is_large(who);
            buffer(look, ("tcp.rwnd_limited_us", may_be), setting, "the receiver's window")
        },
    },
    DoctorRule {
        id: "TCP-02",
        goals: "T",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &[
            "sysctl net.ipv4.tcp_wmem",
            "tcp.busy_us",
            "tcp.bytes_sent",
            "tcp.sndbuf_limited_us",
            "tcp.rtt_us",
            "tcp.sndbuf",
            "tcp.delivery_bps",
            "tcp.cwnd",
            "tcp.mss",
        ],
        condition: "a connection waited over 5 % of its busy time for its send buffer, or that is at its limit and smaller than rate × round trip or than the congestion window",
        meaning: "the send buffer is too small",
        advice: Advice::Knob("sysctl net.ipv4.tcp_wmem", "NEW"),
        effect: "the rate grows to what the path carries; let the application not set SO_SNDBUF",
        risk: "more data that waits in the sender",
        source: "ndt7",
        look: |look| {
            let (limit, setting) =
                (("tcp.sndbuf_limited_us", |_: &str| true), ("sysctl net.ipv4.tcp_wmem", ""));
            let waited = buffer(look, limit, setting, "its send buffer")?;
            let limit = most_of(look, "sysctl net.ipv4.tcp_wmem")?;
            let held = at_limit(look)?.into_iter().next().filter(|_| waited.is_none());
            let Some(SmallBuffer { who, bytes, need, what }) = held else { return Ok(waited) };
            let evidence = format!(
                "{who}: its send buffer is at the limit, {} bytes; {what} {}",
                count(bytes),
                count(need)
            );
            becomes(true, 0.4, evidence, format!("4096 65536 {}", wanted_window(look, &who, limit)?))
        },
    },
    DoctorRule {
        id: "TCP-03",
        goals: "T",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &[
            "tcp.sndbuf",
            "tcp.bytes_sent",
            "tcp.rtt_us",
            "tcp.delivery_bps",
            "sysctl net.ipv4.tcp_wmem",
            "sysctl net.core.wmem_max",
            "changed",
        ],
        condition: "the send buffer of a connection that sent more than it holds is smaller than rate × round trip, below its limit, and did not grow in the window",
        meaning: "the application has set SO_SNDBUF: the kernel no longer adjusts it (SO_RCVBUF shows as TCP-01)",
        advice: Advice::Say("remove the setsockopt; or raise net.core.rmem_max and wmem_max"),
        effect: "buffers that fit the path",
        risk: "",
        source: "tcp(7)",
        look: |look| {
            let (limit, max) =
                (most_of(look, "sysctl net.ipv4.tcp_wmem")?, look.number("sysctl net.core.wmem_max")?);
            let changed = look.texts("changed")?;
            let set = small(look, |bytes| bytes < limit)?.into_iter().next();
            let Some(SmallBuffer { who, bytes, need, .. }) = set else { return Ok(None) };
            let grew = changed.iter().any(|(name, _)| *name == format!("tcp.sndbuf@{who}"));
            let evidence = format!(
                "{who}: a send buffer of {} bytes, rate × round trip is {}; wmem_max {}",
                count(bytes),
                count(need),
                count(max)
            );
            when(!grew, 0.4, evidence)
        },
    },
    DoctorRule {
        id: "TCP-04",
        goals: "T",
        at: At::Node,
        given: &[],
        inputs: &["sysctl net.ipv4.tcp_window_scaling", "tcp.wscale", "tcp.rtt_us"],
        condition: "window scaling is off, or a connection has none",
        meaning: "a window of 65,535 bytes: 524 Mbit/s over 1 ms, 5.2 Mbit/s over 100 ms",
        advice: Advice::Knob("sysctl net.ipv4.tcp_window_scaling", "1"),
        effect: "windows as large as buffers; if it is on, look for the middlebox that removes the option",
        risk: "",
        source: "ESnet fasterdata; NDT; RFC 7323",
        look: |look| {
            let off = !look.is_on("sysctl net.ipv4.tcp_window_scaling")?;
            let (times, without) = (look.numbers("tcp.rtt_us")?, look.numbers("tcp.wscale")?);
            let without = without.into_iter().filter(|(_, on)| *on == 0.0).map(|(who, _)| who);
            let nearness = |who: &str| fill_of_window(look, who).unwrap_or(1.0);
            let worst = without.max_by(|a, b| nearness(a).total_cmp(&nearness(b)));
            let of = |all: &[(String, f64)], who: &str| place_of(all, who).filter(|value| *value > 0.0);
            let evidence = match worst.as_ref().map(|who| (who, of(&times, who))) {
                Some((who, Some(us))) => format!(
                    "{who}: no window scale, at most {} over a round trip of {us:.0} µs",
                    record::unit::bits_per_s(UNSCALED_BITS_US / us)
                ),
                Some((who, None)) => format!("{who}: no window scale"),
                None => "tcp_window_scaling is 0".into(),
            };
            let is_held_back = worst.as_ref().is_none_or(|who| nearness(who) > 0.5);
            let found = when(off || worst.is_some(), if is_held_back { 0.7 } else { 0.05 }, evidence)?;
            let there = Advice::PeerKnob("sysctl net.ipv4.tcp_window_scaling", "1");
            Ok(found.map(|found| if off { found } else { found.advising(there) }))
        },
    },
    DoctorRule {
        id: "TCP-05",
        goals: "TM",
        at: At::Node,
        given: &[],
        inputs: &["sysctl net.ipv4.tcp_timestamps", "sysctl net.ipv4.tcp_sack"],
        condition: "selective acknowledgements are off; or time stamps, which are then to be switched on",
        meaning: "no protection against wrapped numbers; without SACK a loss costs whole windows",
        advice: Advice::Knob("sysctl net.ipv4.tcp_sack", "1"),
        effect: "recovery from loss",
        risk: "12 bytes of each segment",
        source: "ESnet fasterdata",
        look: |look| {
            let (stamps, sack) =
                (look.number("sysctl net.ipv4.tcp_timestamps")?, look.number("sysctl net.ipv4.tcp_sack")?);
            let loss = if sack == 0.0 { 0.3 } else { 0.05 };
            let evidence = format!("tcp_timestamps {stamps}, tcp_sack {sack}");
            let found = when(stamps == 0.0 || sack == 0.0, loss, evidence)?;
            // The one that costs more is put right first.
            let stamps_only =
                |found: Found| found.advising(Advice::Knob("sysctl net.ipv4.tcp_timestamps", "1"));
            Ok(found.map(|found| if sack == 0.0 { found } else { stamps_only(found) }))
        },
    },
    DoctorRule {
        id: "TCP-06",
        goals: "TM",
        at: At::Node,
        given: &[],
        inputs: &[
            "sysctl net.ipv4.tcp_congestion_control",
            "sysctl net.ipv4.tcp_available_congestion_control",
            "tcp.congestion",
        ],
        condition: "congestion control is not one for today's paths (cubic, bbr, dctcp), or a connection has another than is set",
        meaning: "after a loss the rate comes back slowly; or the figure is of another algorithm than was meant",
        advice: Advice::Knob("sysctl net.ipv4.tcp_congestion_control", "NEW"),
        effect: "the rate comes back in seconds, not minutes, on long paths",
        risk: "fairness to others",
        source: "ESnet fasterdata; RFC 9438",
        look: |look| {
            let set = look.text("sysctl net.ipv4.tcp_congestion_control")?;
            let there = look.text("sysctl net.ipv4.tcp_available_congestion_control")?;
            // Which to advise, where it is known: only the first namespace takes one that is not allowed to everybody, and allows it
            // thereby (tcp_set_default_congestion_control).
            let allowed = look.text("sysctl net.ipv4.tcp_allowed_congestion_control").unwrap_or_default();
            let among = |list: &str| {
                ["cubic", "bbr"].into_iter().find(|name| list.split(' ').any(|one| one == *name))
            };
            let better = among(&allowed).or_else(|| among(&there));
            let other = look.texts("tcp.congestion")?.into_iter().find(|(_, name)| *name != set);
            let old = !["cubic", "bbr", "dctcp"].contains(&set.as_str());
            let evidence = match &other {
                Some((who, name)) => format!("{who} uses {name}, {set} is set"),
                None => format!("{set} is set; there are: {there}"),
            };
            let loss = if old { 0.4 } else { 0.1 };
            let found = becomes(old || other.is_some(), loss, evidence, better.unwrap_or("cubic"))?;
            Ok(found.map(|found| if old { found } else { found.advising(ITS_OWN_CHOICE) }))
        },
    },
    DoctorRule {
        id: "TCP-07",
        goals: "T",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &[
            "tcp.bytes_retrans",
            "tcp.bytes_sent",
            "tcp.rtt_us",
            "tcp.mss",
            "tcp.delivery_bps",
            "tcp.busy_us",
            "tcp.rwnd_limited_us",
            "tcp.sndbuf_limited_us",
            "tcp.sndbuf",
            "tcp.cwnd",
            "sysctl net.ipv4.tcp_wmem",
        ],
        condition: "under a tenth is sent again, the rate is between half of and twice MSS / RTT × 1.22 / √p, and neither a window nor a full send buffer held the connection back",
        meaning: "losses are the limit, not windows",
        advice: Advice::Say(
            "find where they are lost (pathlab follow, pathlab drops); smaller bursts (fq), BBR",
        ),
        effect: "",
        risk: "",
        source: "Mathis et al. 1997; NDT",
        look: |look| {
            let lost = look.shares("tcp.bytes_retrans", "tcp.bytes_sent")?;
            let (rates, times, sizes) =
                (look.numbers("tcp.delivery_bps")?, look.numbers("tcp.rtt_us")?, look.numbers("tcp.mss")?);
            let (window, buffer) = (
                look.shares("tcp.rwnd_limited_us", "tcp.busy_us")?,
                look.shares("tcp.sndbuf_limited_us", "tcp.busy_us")?,
            );
            let full = at_limit(look)?;
            // With more losses time-outs are what limits, which that model does not have (Padhye et al. 1998).
            let modelled = |(_, p): &(String, f64)| *p > 0.0 && *p < 0.1;
            let bound = lost.into_iter().filter(modelled).find_map(|(who, p)| {
                let (rate, bound) = (
                    value_of(&rates, &who)?,
                    value_of(&sizes, &who)? * 8e6 / value_of(&times, &who)? * 1.22 / p.sqrt(),
                );
                let waited = [&window, &buffer]
                    .into_iter()
                    .any(|shares| value_of(shares, &who).is_some_and(|part| part > LIMITED));
                let held = waited || full.iter().any(|full| full.who == who);
                (!held && rate > bound / 2.0 && rate < bound * 2.0).then(|| {
                    format!(
                        "{who}: {:.3} % sent again, {} where that loss allows {}",
                        p * 100.0,
                        record::unit::bits_per_s(rate),
                        record::unit::bits_per_s(bound)
                    )
                })
            });
            when(bound.is_some(), 0.5, bound.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "TCP-08",
        goals: "T",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &["tcp.reord_seen", "tcp.rcv_ooopack", "tcp.segs_out", "tcp.segs_in"],
        condition: "over 0.1 % of the segments were reordered",
        meaning: "reordering (balance-rr, RPS migration, several equal paths) is taken for loss",
        advice: Advice::Say("see BND-02 and RFS-01; net.ipv4.tcp_reordering"),
        effect: "fewer segments sent again for nothing",
        risk: "",
        source: "kernel, tcp.h",
        look: |look| {
            let worst = [
                part(look, "tcp.reord_seen", "tcp.segs_out")?,
                part(look, "tcp.rcv_ooopack", "tcp.segs_in")?,
            ];
            let worst = worst.into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1));
            let evidence = worst
                .as_ref()
                .map(|(who, share)| format!("{who}: {:.2} % of the segments out of order", share * 100.0));
            when(worst.is_some_and(|(_, share)| share > 0.001), 0.15, evidence.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "TCP-09",
        goals: "T",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &[
            "sysctl net.ipv4.tcp_slow_start_after_idle",
            "tcp.last_send_ms",
            "tcp.rto_ms",
            "tcp.bytes_sent",
        ],
        condition: "slow start after idle, and a connection that sends with pauses longer than its timeout",
        meaning: "the window collapses in each pause",
        advice: Advice::Knob("sysctl net.ipv4.tcp_slow_start_after_idle", "0"),
        effect: "no ramp after a pause",
        risk: "bursts",
        source: "tuned",
        look: |look| {
            let on = look.is_on("sysctl net.ipv4.tcp_slow_start_after_idle")?;
            let (timeouts, sent) = (look.numbers("tcp.rto_ms")?, look.moves_by("tcp.bytes_sent")?);
            let idle = look.numbers("tcp.last_send_ms")?.into_iter().find(|(who, ms)| {
                let rto = timeouts.iter().find(|(one, _)| one == who).map_or(f64::MAX, |(_, ms)| *ms);
                // It is bulk between the pauses: an initial window would have carried less.
                *ms > rto && sent.get(who).is_some_and(|bytes| *bytes > 65_536.0)
            });
            let evidence = idle
                .as_ref()
                .map(|(who, ms)| format!("{who}: paused for {ms:.0} ms, longer than its timeout"));
            when(on && idle.is_some(), 0.1, evidence.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "TCP-10",
        goals: "L",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &["sysctl net.ipv4.tcp_notsent_lowat", "tcp.notsent_bytes", "tcp.delivery_bps", "tcp.rtt_us"],
        condition: "no tcp_notsent_lowat, and a connection with over a megabyte and four round trips of unsent data",
        meaning: "the kernel holds data that the application can no longer change",
        advice: Advice::Knob("sysctl net.ipv4.tcp_notsent_lowat", "131072"),
        effect: "applications answer sooner",
        risk: "more wakeups",
        source: "tuned",
        look: |look| {
            let unlimited = look.number("sysctl net.ipv4.tcp_notsent_lowat")? > 2e9;
            let (rates, times) = (look.numbers("tcp.delivery_bps")?, look.numbers("tcp.rtt_us")?);
            let waits = look.numbers("tcp.notsent_bytes")?.into_iter().find(|(who, bytes)| {
                let of = |places: &[(String, f64)]| {
                    places.iter().find(|(one, _)| one == who).map_or(0.0, |(_, value)| *value)
                };
                *bytes > 1e6 && *bytes > 4.0 * of(&rates) / 8e6 * of(&times)
            });
            let evidence =
                waits.as_ref().map(|(who, bytes)| format!("{who}: {} bytes unsent", count(*bytes)));
            when(unlimited && waits.is_some(), 0.05, evidence.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "TCP-11",
        goals: "TC",
        at: At::Node,
        given: &[],
        inputs: &[
            "TcpExt.TCPMemoryPressures",
            "TcpExt.TCPRcvCollapsed",
            "TcpExt.PruneCalled",
            "TcpExt.RcvPruned",
            "TcpExt.TCPOFODrop",
            "sockstat.tcp_mem_pages",
            "sysctl net.ipv4.tcp_mem",
        ],
        condition: "memory pressure, or receive queues that were collapsed or pruned",
        meaning: "TCP's memory or a receive buffer is used up",
        advice: Advice::Say("raise net.ipv4.tcp_mem and tcp_rmem; a faster reader"),
        effect: "fewer drops",
        risk: "memory",
        source: "netdata",
        look: |look| {
            let said = any_of(
                look,
                &[
                    "TcpExt.TCPMemoryPressures",
                    "TcpExt.TCPRcvCollapsed",
                    "TcpExt.PruneCalled",
                    "TcpExt.RcvPruned",
                    "TcpExt.TCPOFODrop",
                ],
            )?;
            let pages = look.number("sockstat.tcp_mem_pages")?;
            let words = look.text("sysctl net.ipv4.tcp_mem")?;
            let pressure: f64 =
                words.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(f64::MAX);
            let full = if pages >= pressure {
                format!("{pages} pages in use, pressure begins at {pressure}")
            } else {
                String::new()
            };
            let evidence =
                [said, full].into_iter().filter(|one| !one.is_empty()).collect::<Vec<_>>().join("; ");
            when(!evidence.is_empty(), 0.2, evidence)
        },
    },
    DoctorRule {
        id: "TCP-12",
        goals: "T",
        at: At::Node,
        given: &[],
        inputs: &[
            "TcpExt.ListenOverflows",
            "TcpExt.ListenDrops",
            "TcpExt.TCPReqQFullDrop",
            "sysctl net.core.somaxconn",
        ],
        condition: "the queue of a listening socket overflowed",
        meaning: "the accept queue or the SYN queue is full",
        advice: Advice::Knob("sysctl net.core.somaxconn", "NEW"),
        effect: "more new connections, if the application's backlog is as large; SO_REUSEPORT",
        risk: "",
        source: "netdata",
        look: |look| {
            let said =
                any_of(look, &["TcpExt.ListenOverflows", "TcpExt.ListenDrops", "TcpExt.TCPReqQFullDrop"])?;
            let now = look.number("sysctl net.core.somaxconn")?;
            let evidence = format!("{said}; somaxconn {now}");
            becomes(!said.is_empty(), 0.3, evidence, f64::max(4096.0, now * 2.0))
        },
    },
    DoctorRule {
        id: "TCP-13",
        goals: "T",
        at: At::Node,
        given: &[],
        inputs: &[
            "TcpExt.TCPBacklogDrop",
            "TcpExt.TCPRcvQDrop",
            "TcpExt.TCPZeroWindowDrop",
            "TcpExt.TCPToZeroWindowAdv",
        ],
        condition: "segments dropped at a socket, or windows closed",
        meaning: "the receiving application is too slow",
        advice: Advice::Say("profile the application; larger reads, more threads"),
        effect: "",
        risk: "",
        source: "kernel, snmp.h",
        look: |look| {
            any_moved(
                look,
                &[
                    "TcpExt.TCPBacklogDrop",
                    "TcpExt.TCPRcvQDrop",
                    "TcpExt.TCPZeroWindowDrop",
                    "TcpExt.TCPToZeroWindowAdv",
                ],
                0.25,
            )
        },
    },
    DoctorRule {
        id: "TCP-14",
        goals: "M",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &["tcp.busy_us", "tcp.bytes_sent"],
        condition: "a connection that carried over a megabyte had nothing to send for over 10 % of the window",
        meaning: "the generator is the limit: the result is not of the network",
        advice: Advice::Say("a faster generator, larger writes"),
        effect: "",
        risk: "",
        source: "kernel, tcp.h",
        look: |look| {
            let sent = look.moves_by("tcp.bytes_sent")?;
            let idle = look.moves("tcp.busy_us")?.into_iter().find_map(|(who, us)| {
                let share = 1.0 - us / 1e6 / look.seconds.max(1e-9);
                (sent.get(&who).is_some_and(|bytes| *bytes > 1e6) && share > 0.1).then_some((who, share))
            });
            let evidence = idle
                .as_ref()
                .map(|(who, share)| format!("{who}: nothing to send for {} of the window", percent(*share)));
            when(
                idle.is_some(),
                idle.as_ref().map_or(0.0, |(_, share)| share / 2.0),
                evidence.unwrap_or_default(),
            )
        },
    },
    DoctorRule {
        id: "TCP-15",
        goals: "T",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &["TcpExt.TCPAckCompressed", "tcp.data_segs_out", "tcp.segs_in"],
        condition: "a sender got fewer than one acknowledgement for 40 segments, and acknowledgements were compressed",
        meaning: "acknowledgements are few: the window grows slowly",
        advice: Advice::Knob("sysctl net.ipv4.tcp_comp_sack_nr", "0"),
        effect: "a smoother ramp; try it, and a smaller gro_flush_timeout",
        risk: "CPU time",
        source: "general knowledge",
        look: |look| {
            let acks = look.moves_by("tcp.segs_in")?;
            let few = look.moves("tcp.data_segs_out")?.into_iter().find(|(who, segments)| {
                *segments > 1000.0 && acks.get(who).is_some_and(|acks| acks * 40.0 < *segments)
            });
            let compressed = look.moved("TcpExt.TCPAckCompressed")?;
            let evidence = few.as_ref().map(|(who, segments)| {
                format!(
                    "{who}: {} acknowledgements for {} segments, {} compressed",
                    count(acks[who]),
                    count(*segments),
                    count(compressed)
                )
            });
            when(few.is_some() && compressed > 0.0, 0.05, evidence.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "TCP-16",
        goals: "L",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &["tcp.rtt_us", "tcp.min_rtt_us", "tcp.bytes_sent"],
        condition: "round trips of a connection that sends are over 30 ms longer than its shortest",
        meaning: "a standing queue on the path: bufferbloat",
        advice: Advice::Say("active queue management at the bottleneck (fq_codel, cake), or BBR"),
        effect: "",
        risk: "",
        source: "RFC 8290",
        look: |look| {
            let (least, sent) = (look.numbers("tcp.min_rtt_us")?, look.moves_by("tcp.bytes_sent")?);
            let worst = look.numbers("tcp.rtt_us")?.into_iter().find_map(|(who, us)| {
                let idle = least.iter().find(|(one, _)| *one == who)?.1;
                (us - idle > 30_000.0 && sent.get(&who).is_some_and(|bytes| *bytes > 0.0))
                    .then_some((who, us, idle))
            });
            let evidence = worst.as_ref().map(|(who, us, idle)| {
                format!("{who}: {:.1} ms under load, {:.1} ms at best", us / 1e3, idle / 1e3)
            });
            when(
                worst.is_some(),
                worst.as_ref().map_or(0.0, |(_, us, idle)| 1.0 - idle / us),
                evidence.unwrap_or_default(),
            )
        },
    },
];

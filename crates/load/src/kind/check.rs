//! Which tests are possible, said before anything starts.

use record::kind::{Takes, TrafficKind};
use record::{PortKind, Problem, Rate, Result, TestSpec};
use wire::message;

/// The most parallel connections.
const MAX_STREAMS: u32 = 64;
/// The most datagrams per system call (`UIO_MAXIOV` of the kernel).
const MAX_BATCH: u32 = 1024;
/// The most datagrams that the kernel cuts out of one buffer (`UDP_MAX_SEGMENTS`; 64 before Linux 6.9).
const MAX_SEGMENTS: u32 = 128;
/// The longest test: one day.
const MAX_DURATION_MS: u64 = 24 * 3600 * 1000;

/// What a UDP datagram can carry.
pub const MAX_DATAGRAM: u32 = linux::sys::udp::MAX_PAYLOAD as u32;

/// What a kind can carry in one message, in bytes.
pub enum Sizes {
    /// Bytes as they are, from the first number to the second.
    Bytes(u32, u32),
    /// A message with its header, to this many.
    Message(u32),
    /// A whole frame, from the shortest over this version of IP to this many.
    Frame(fn(u8) -> usize, u32),
}

/// Refuses what cannot be done by a kind that carries `sizes`, with the sentence that says why.
pub fn check(spec: &TestSpec, sizes: &Sizes) -> Result<()> {
    check_sizes(spec, sizes)?;
    check_time(spec)?;
    check_options(spec)
}

fn within(what: &str, value: u64, low: u64, high: u64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Problem::input(format!("{what} {value} is not possible")).help(format!("use {low} to {high}")))
}

fn check_sizes(spec: &TestSpec, sizes: &Sizes) -> Result<()> {
    fits(spec, sizes, "size", spec.size)?;
    if spec.response == 0 {
        return Ok(());
    }
    let response = |kind: TrafficKind| kind.takes(Takes::Response);
    taken(true, spec.kind, response, ["no response size", "leave --response out; it belongs to"])?;
    fits(spec, sizes, "response", spec.response)
}

/// Refuses what was `asked` of a kind, but `is` for others only: the sentence of what the kind `has`, and what belongs to whom.
fn taken(asked: bool, of: TrafficKind, is: impl Fn(TrafficKind) -> bool, [has, to]: [&str; 2]) -> Result<()> {
    if !asked || is(of) {
        return Ok(());
    }
    let who = TrafficKind::names_where(is, "and");
    Err(Problem::input(format!("a {of} test has {has}")).help(format!("{to} {who}")))
}

/// Refuses a size that a message of the kind cannot have.
fn fits(spec: &TestSpec, sizes: &Sizes, what: &str, value: u32) -> Result<()> {
    let (least, most, why) = match *sizes {
        Sizes::Bytes(least, most) => (least, most, String::new()),
        Sizes::Message(most) => {
            let header = message::LENGTH;
            (header as u32, most, format!(" (every message carries a header of {header} bytes)"))
        }
        Sizes::Frame(shortest, most) => {
            (shortest(spec.family) as u32, most, " (a whole frame, without FCS)".to_owned())
        }
    };
    within(what, value.into(), least.into(), most.into()).map_err(|problem| {
        let advice = format!("{}{why}", problem.advice);
        problem.help(advice)
    })
}

fn check_time(spec: &TestSpec) -> Result<()> {
    if spec.count.is_none() {
        within("duration in ms", spec.duration_ms, 1, MAX_DURATION_MS)?;
    }
    within("duration in ms", spec.duration_ms, 0, MAX_DURATION_MS)?;
    if let Some(count) = spec.count {
        within("count", count, 1, message::MAX_SEQUENCE)?;
    }
    let Some(rate) = spec.rate else { return Ok(()) };
    let (Rate::MessagesPerSecond(value) | Rate::BitsPerSecond(value)) = rate;
    let per_second = rate.messages_per_second(spec.message_size());
    if value.is_finite() && (0.001..=1e9).contains(&per_second) {
        return Ok(());
    }
    Err(Problem::input(format!("a rate of {per_second} messages per second is not possible"))
        .help("use 0.001 to 1000000000 messages per second"))
}

fn check_options(spec: &TestSpec) -> Result<()> {
    if !matches!(spec.family, 4 | 6) {
        return Err(Problem::input(format!("there is no IP version {}", spec.family)).help("use 4 or 6"));
    }
    check_taken(spec)?;
    let most = if spec.kind.takes(Takes::Streams) { MAX_STREAMS } else { 1 };
    within("streams", spec.streams.into(), 1, most.into())?;
    within("batch", spec.batch.into(), 1, MAX_BATCH.into())?;
    within("gso", spec.gso.into(), 0, MAX_SEGMENTS.into())?;
    if spec.gso.saturating_mul(spec.size) > MAX_DATAGRAM && spec.gso > 1 {
        return Err(Problem::input(format!(
            "{} datagrams of {} bytes do not fit one buffer",
            spec.gso, spec.size
        ))
        .help(format!("gso × size may be {MAX_DATAGRAM} at most")));
    }
    check_ports(spec)?;
    check_congestion(spec)?;
    for cpu in [spec.sender_cpu, spec.receiver_cpu].into_iter().flatten() {
        within("CPU", cpu.into(), 0, 8191)?;
    }
    for bytes in [spec.send_buffer, spec.receive_buffer].into_iter().flatten() {
        within("socket buffer", bytes.into(), 1, i32::MAX as u64)?;
    }
    Ok(())
}

/// Refuses what this kind does not take.
fn check_taken(spec: &TestSpec) -> Result<()> {
    let kind = spec.kind;
    let streams = |kind: TrafficKind| kind.takes(Takes::Streams);
    taken(spec.streams > 1, spec.kind, streams, ["one stream", "parallel streams belong to"])?;
    let offload = |kind: TrafficKind| kind.takes(Takes::Segmentation);
    let asked = spec.gso > 0 || spec.gro;
    taken(asked, spec.kind, offload, ["no segmentation offload of its own", "--gso and --gro belong to"])?;
    if spec.receiver_cpu.is_some() && kind.facts().kernel_answers {
        return Err(Problem::input(format!("a {kind} test has no receiver to pin"))
            .help("the kernel answers; pin the sender only"));
    }
    Ok(())
}

fn check_congestion(spec: &TestSpec) -> Result<()> {
    let Some(name) = &spec.congestion else { return Ok(()) };
    let fits = !name.is_empty()
        && name.len() < 16
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let what = match (spec.kind.is_tcp(), fits) {
        (true, true) => return Ok(()),
        (true, false) => format!("'{name}' is not the name of a congestion control"),
        (false, _) => format!("a {} test has no congestion control", spec.kind),
    };
    let who = TrafficKind::names_where(TrafficKind::is_tcp, "and");
    Err(Problem::input(what)
        .help(format!("{who} take one of sysctl net.ipv4.tcp_available_congestion_control")))
}

/// Ports belong to frames, and frames have no sockets to set.
fn check_ports(spec: &TestSpec) -> Result<()> {
    taken(!spec.port.is_empty(), spec.kind, TrafficKind::is_by_port, ["no port", "ports belong to"])?;
    if !spec.kind.is_by_port() {
        return Ok(());
    }
    if spec.send_buffer.is_some() || spec.receive_buffer.is_some() {
        return Err(Problem::input(format!("a {} test has no socket whose buffer could be set", spec.kind))
            .help("set the buffer of the port, e.g. port int?buffer=64Ki"));
    }
    for (port, end) in [(spec.sender_port(), "send"), (spec.receiver_port(), "receive")] {
        let kind = port.split('?').next().unwrap_or_default();
        if kind == "xdp" && end == "receive" && port.contains("only=") {
            return Err(Problem::input("the test itself says which frames xdp takes").help("leave out only="));
        }
        let known = PortKind::names(PortKind::carries_links);
        if !known.contains(&kind) || port.contains(':') {
            let known = known.join(", ");
            return Err(Problem::input(format!("'{port}' is not a kind of port to {end} frames by"))
                .help(format!("use one of {known}, with settings behind it if need be: int?bypass=on")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::check_spec;
    use super::*;

    fn of(kind: TrafficKind, change: impl FnOnce(&mut TestSpec)) -> Result<()> {
        let mut spec = TestSpec { kind, ..TestSpec::default() };
        change(&mut spec);
        check_spec(&spec)
    }

    #[test]
    fn the_defaults_of_every_kind_are_possible() {
        for kind in TrafficKind::ALL {
            of(kind, |_| {}).unwrap();
        }
        of(TrafficKind::Frames, |s| s.port = "int/xdp?mode=generic".into()).unwrap();
        of(TrafficKind::TcpStream, |s| s.size = 0).unwrap();
        of(TrafficKind::UdpStream, |s| (s.size, s.gso, s.gro) = (1400, 46, true)).unwrap();
    }

    #[test]
    fn what_is_impossible_has_a_sentence() {
        type Change = fn(&mut TestSpec);
        let wrong: [(TrafficKind, Change, &str); 26] = [
            (TrafficKind::Frames, |s| s.size = 59, "size 59"),
            (TrafficKind::Frames, |s| (s.size, s.family) = (79, 6), "size 79"),
            (TrafficKind::Frames, |s| s.port = "pcap".into(), "'pcap'"),
            (TrafficKind::Frames, |s| s.port = "int/xdp?only=udp:9".into(), "leave out only="),
            (TrafficKind::Frames, |s| s.receive_buffer = Some(9), "no socket"),
            (TrafficKind::UdpStream, |s| s.port = "int".into(), "no port"),
            (TrafficKind::UdpStream, |s| s.size = 17, "size 17"),
            (TrafficKind::Ping, |s| s.size = 65_500, "size 65500"),
            (TrafficKind::UdpRr, |s| s.response = 3, "response 3"),
            (TrafficKind::UdpStream, |s| s.response = 64, "no response"),
            (TrafficKind::TcpRr, |s| s.size = 0, "size 0"),
            (TrafficKind::TcpStream, |s| s.streams = 65, "streams 65"),
            (TrafficKind::TcpStream, |s| s.streams = 0, "streams 0"),
            (TrafficKind::UdpStream, |s| s.streams = 2, "one stream"),
            (TrafficKind::UdpStream, |s| s.batch = 0, "batch 0"),
            (TrafficKind::UdpStream, |s| s.gso = 129, "gso 129"),
            (TrafficKind::UdpStream, |s| (s.gso, s.size) = (100, 1400), "do not fit"),
            (TrafficKind::TcpRr, |s| s.gro = true, "offload"),
            (TrafficKind::TcpRr, |s| s.family = 5, "IP version 5"),
            (TrafficKind::TcpRr, |s| s.duration_ms = 0, "duration"),
            (TrafficKind::TcpRr, |s| s.count = Some(0), "count 0"),
            (TrafficKind::UdpStream, |s| s.rate = Some(Rate::MessagesPerSecond(f64::NAN)), "rate"),
            (TrafficKind::UdpStream, |s| s.rate = Some(Rate::MessagesPerSecond(1e12)), "rate"),
            (TrafficKind::UdpStream, |s| s.congestion = Some("bbr".into()), "no congestion control"),
            (TrafficKind::TcpStream, |s| s.congestion = Some("b b r".into()), "'b b r'"),
            (TrafficKind::TcpStream, |s| s.sender_cpu = Some(1 << 20), "CPU"),
        ];
        for (kind, change, said) in wrong {
            let problem = of(kind, change).expect_err(said);
            assert!(problem.to_string().contains(said), "{problem}");
            assert_eq!(problem.kind.exit_code(), 2);
        }
    }
}

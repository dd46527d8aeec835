//! Who captures and who sends: how each tool is started, when it is ready, and where it says what it counted.
//!
//! **Fairness.** Every tool runs in the same node on the same CPU with the same generator, is asked to end by SIGINT
//! once the counters are quiet, and is believed in what it prints as its own result. Defaults are the tool's defaults
//! unless the name says otherwise.

use load::send::build::{Moment, build};
use load::send::template::Template;
use record::bench::{ProcessCpu, StampError};
use record::capture::CaptureReport;
use record::send::SendReport;
use record::{PlaceDrop, PortSetting, Problem, Result};

/// A program that captures.
#[derive(Clone, Copy)]
pub enum Capturer {
    /// `pathlab capture` with this kind of port.
    Ours(&'static str),
    /// Another one.
    Rival(&'static Rival),
}

/// A rival that captures.
pub struct Rival {
    /// The name that records and tables use.
    pub name: &'static str,
    program: &'static str,
    /// Its arguments, with `IF` for the interface.
    line: &'static str,
    /// Reads what it printed: standard output, errors.
    read: fn(&str, &str) -> Option<Counted>,
}

/// Our ports.
pub const OUR_CAPTURERS: [&str; 4] = ["int", "ring", "ring-v2", "xdp"];

/// `ring:` as the rivals use it: a block waits up to a second, as with libpcap, and frames are only counted. It costs
/// fewer wake-ups, and latency.
pub const PATIENT: &str = "ring-count";

/// The rivals: tcpdump with its default buffer and one of 64 MiB, libtrace's counter on two of its own ports, netsniff-ng. What
/// they write goes to /dev/null.
pub const RIVAL_CAPTURERS: &[Rival] = {
    const fn rival(
        name: &'static str,
        program: &'static str,
        line: &'static str,
        read: fn(&str, &str) -> Option<Counted>,
    ) -> Rival {
        Rival { name, program, line, read }
    }
    &[
        rival("tcpdump", "tcpdump", "-n -i IF -w /dev/null", read_tcpdump),
        rival("tcpdump -B 65536", "tcpdump", "-n -i IF -B 65536 -w /dev/null", read_tcpdump),
        rival("tracestats ring:", "tracestats", "ring:IF", read_tracestats),
        rival("tracestats int:", "tracestats", "int:IF", read_tracestats),
        // Its default is to raise sysctls of the host and to move interrupts: that is not ours to allow.
        rival(
            "netsniff-ng",
            "netsniff-ng",
            "--in IF --out /dev/null --silent --no-sock-mem --notouch-irq",
            read_netsniff,
        ),
    ]
};

/// What a tool says it counted.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// Frames.
    pub captured: u64,
    /// Lost frames by place.
    pub drops: Vec<PlaceDrop>,
    /// Drops beside the capture.
    pub beside: Vec<PlaceDrop>,
    /// Freezes of a ring.
    pub freezes: u64,
    /// Planned time against stamp.
    pub stamp: Option<StampError>,
    /// What took effect.
    pub settings: Vec<PortSetting>,
}

/// The bytes of socket memory that a frame takes: its buffer's size class (frame, headroom, `skb_shared_info`) and the
/// `sk_buff`. A 60-byte frame takes 768 here, one of 1514 takes 2304.
fn socket_memory(frame_bytes: u32) -> u64 {
    (u64::from(frame_bytes) + 48 + 320).next_power_of_two() + 256
}

impl Capturer {
    /// The tool of that name.
    pub fn named(name: &str) -> Option<Capturer> {
        let mut all = OUR_CAPTURERS.iter().copied().chain([PATIENT]);
        let ours = all.find(|known| *known == name).map(Capturer::Ours);
        ours.or_else(|| RIVAL_CAPTURERS.iter().find(|rival| rival.name == name).map(Capturer::Rival))
    }

    /// The program's name; none for ourselves.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Capturer::Ours(_) => None,
            Capturer::Rival(rival) => Some(rival.program),
        }
    }

    /// Its arguments, for an interface, frames of that size and a ring of so many frames (0: the default).
    pub fn arguments(self, interface: &str, frame_bytes: u32, ring_frames: u32) -> Vec<String> {
        let line = match self {
            Capturer::Ours(kind) => {
                let uri = our_uri(kind, interface, frame_bytes, ring_frames);
                let only = if kind == PATIENT { " --only-count" } else { "" };
                format!("capture {uri} --incoming --quiet --json{only}")
            }
            Capturer::Rival(rival) => rival.line.replace("IF", interface),
        };
        line.split(' ').map(str::to_owned).collect()
    }

    /// Reads what it printed.
    ///
    /// # Errors
    /// A sentence with what it said instead.
    pub fn read(self, stdout: &str, stderr: &str) -> Result<Counted> {
        let counted = match self {
            Capturer::Ours(_) => read_ours(stdout),
            Capturer::Rival(rival) => (rival.read)(stdout, stderr),
        };
        counted.ok_or_else(|| said_nothing(self.program().unwrap_or("pathlab capture"), stdout, stderr))
    }
}

/// The problem of a tool that printed no result: its last words.
fn said_nothing(name: &str, stdout: &str, stderr: &str) -> Problem {
    let last =
        |text: &str| text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    let words = last(stderr).or_else(|| last(stdout)).unwrap_or_else(|| "nothing".into());
    Problem::measured(format!("{name} printed no result but: {words}"))
}

fn our_uri(kind: &str, interface: &str, frame_bytes: u32, ring_frames: u32) -> String {
    let base = kind.split('-').next().unwrap_or(kind);
    let mut settings = vec![];
    match kind {
        "ring-v2" => settings.push("version=2".to_owned()),
        PATIENT => settings.push("retire_ms=1000".to_owned()),
        _ => {}
    }
    if ring_frames > 0 && base == "int" {
        // The kernel doubles what is asked.
        let bytes = if frame_bytes == 0 { 1514 } else { frame_bytes };
        let buffer = socket_memory(bytes) * u64::from(ring_frames) / 2;
        settings.push(format!("buffer={}", buffer.max(2048)));
    } else if ring_frames > 0 {
        settings.push(format!("frames={ring_frames}"));
    }
    let mark = if settings.is_empty() { "" } else { "?" };
    format!("{base}:{interface}{mark}{}", settings.join("&"))
}

/// The last line that is a whole report; lines before it are seconds.
fn read_ours(stdout: &str) -> Option<Counted> {
    let whole = serde_json::from_str::<CaptureReport>(stdout.trim()).ok();
    let report: CaptureReport =
        whole.or_else(|| stdout.lines().rev().find_map(|line| serde_json::from_str(line).ok()))?;
    let stream = report.census.streams.iter().max_by_key(|stream| stream.seen);
    let source = report.census.stamps.iter().max_by_key(|stamp| stamp.count);
    let stamp = stream.and_then(|stream| stream.delay_ns.as_ref()).map(|delay| StampError {
        source: source.map_or(String::new(), |source| source.name.clone()),
        count: delay.count,
        p50_ns: delay.p50,
        p99_ns: delay.p99,
        max_ns: delay.max,
    });
    let beside = report.account.iter().flat_map(|account| &account.beside);
    // What is beside the account is listed only where it is not zero: most of it never is.
    let beside = beside.filter(|drop| drop.count > 0).cloned();
    Some(Counted {
        captured: report.captured,
        drops: report.drops.clone(),
        beside: beside.collect(),
        freezes: report.freezes,
        stamp,
        settings: report.settings,
    })
}

/// The number in front of the first of these words, on any line.
fn before(text: &str, words: &[&str]) -> Option<u64> {
    words.iter().find_map(|word| {
        let line = text.lines().find(|line| line.contains(word))?;
        line.split(word).next()?.split_whitespace().last()?.parse().ok()
    })
}

/// The first number behind a word.
fn behind(text: &str, word: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.split_once(word))?.1;
    rest.split_whitespace().next()?.parse().ok()
}

fn lost(place: &str, name: &str, count: u64) -> Vec<PlaceDrop> {
    vec![PlaceDrop { place: place.into(), name: name.into(), count }]
}

fn read_tcpdump(_: &str, stderr: &str) -> Option<Counted> {
    let captured = before(stderr, &[" packets captured", " packet captured"])?;
    let dropped = before(stderr, &[" packets dropped by kernel", " packet dropped by kernel"])?;
    Some(Counted { captured, drops: lost("ring", "dropped by kernel", dropped), ..Counted::default() })
}

fn read_tracestats(stdout: &str, stderr: &str) -> Option<Counted> {
    let captured = behind(stdout, "Total:")?;
    let dropped = behind(stderr, "Dropped packets:").unwrap_or(0);
    Some(Counted { captured, drops: lost("kernel", "dropped", dropped), ..Counted::default() })
}

fn read_netsniff(stdout: &str, _: &str) -> Option<Counted> {
    let captured = before(stdout, &["  packets passed filter"])?;
    let dropped = before(stdout, &["  packets failed filter"])?;
    Some(Counted { captured, drops: lost("ring", "out of space", dropped), ..Counted::default() })
}

/// A program that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// `pathlab send` with this kind of port.
    Ours(&'static str),
    /// trafgen with one process; through the queueing discipline, or around it (its default).
    Trafgen {
        /// `--qdisc-path`.
        qdisc: bool,
    },
}

/// Our ports. With `-stamp` every frame carries its number and its time, which a rival's frames do not; the others send
/// the same bytes as the rivals, but for `-join`: there the IPv4 identification counts up, as a kernel's does.
pub const OUR_SENDERS: [&str; 9] =
    ["int", "int-bypass", "int-join", "ring", "ring-bypass", "xdp", "xdp-stamp", "live", "live-stamp"];

/// The rivals.
pub const RIVAL_SENDERS: [(&str, Sender); 2] = [
    ("trafgen", Sender::Trafgen { qdisc: false }),
    ("trafgen --qdisc-path", Sender::Trafgen { qdisc: true }),
];

/// Frames for each second of a cell that trafgen is to send as fast as it can: about what it reaches on a veth.
const TRAFGEN_PER_SECOND: u64 = 600_000;

/// What a sender says it did.
#[derive(Debug, Clone, Default)]
pub struct Claimed {
    /// Frames.
    pub frames: u64,
    /// Seconds.
    pub seconds: f64,
    /// How late they left.
    pub late: Option<StampError>,
    /// What took effect.
    pub settings: Vec<PortSetting>,
}

/// What every sender sends: to nobody, so that the far end's kernel drops it at the first look.
const TEMPLATE: &str =
    "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:63 / ip src=10.0.0.1 dst=10.0.0.99 / udp";
/// The same with identifications that count up.
const COUNTING: &str =
    "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:63 / ip src=10.0.0.1 dst=10.0.0.99 id=counter / udp";
/// The same with number and time.
pub const STAMPED: &str =
    "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:63 / ip src=10.0.0.1 dst=10.0.0.99 / udp / stamp";

impl Sender {
    /// The tool of that name.
    pub fn named(name: &str) -> Option<Sender> {
        let ours = OUR_SENDERS.iter().find(|known| **known == name).map(|kind| Sender::Ours(kind));
        ours.or_else(|| RIVAL_SENDERS.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool))
    }

    /// The program's name; none for ourselves.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Sender::Ours(_) => None,
            Sender::Trafgen { .. } => Some("trafgen"),
        }
    }

    /// Our port's name on an interface; empty for a rival.
    pub fn uri(self, interface: &str) -> String {
        let Sender::Ours(kind) = self else { return String::new() };
        let (base, suffix) = kind.split_once('-').unwrap_or((kind, ""));
        let settings = match suffix {
            "bypass" => "?bypass=on",
            "join" => "?join=64",
            _ => "",
        };
        format!("{base}:{interface}{settings}")
    }

    /// Its arguments, to send for that time.
    pub fn arguments(self, interface: &str, frame_bytes: u32, rate: u64, duration_ms: u64) -> Vec<String> {
        match self {
            Sender::Ours(kind) => {
                let template = match kind.split_once('-') {
                    Some((_, "stamp")) => STAMPED,
                    Some((_, "join")) => COUNTING,
                    _ => TEMPLATE,
                };
                our_send(&self.uri(interface), template, frame_bytes, rate, duration_ms)
            }
            Sender::Trafgen { qdisc } => {
                let bytes: Vec<String> = the_frame(frame_bytes).iter().map(u8::to_string).collect();
                let frame = format!("{{ {} }}", bytes.join(","));
                let mut words = vec!["--dev".to_owned(), interface.to_owned(), frame];
                // `-P 1` alone lets it choose the CPU; the process is pinned by us.
                words.extend(["-P", "1", "--no-sock-mem", "--notouch-irq"].map(str::to_owned));
                // It knows no duration, and its worker goes on when only its parent is interrupted: a count ends it.
                let per_second = if rate > 0 { rate } else { TRAFGEN_PER_SECOND };
                words.extend(["--num".to_owned(), (per_second * duration_ms / 1000).max(1).to_string()]);
                if qdisc {
                    words.push("--qdisc-path".into());
                }
                if rate > 0 {
                    words.extend(["--rate".to_owned(), format!("{rate}pps")]);
                }
                words
            }
        }
    }

    /// Reads what it printed.
    ///
    /// # Errors
    /// A sentence with what it said instead.
    pub fn read(self, stdout: &str, stderr: &str) -> Result<Claimed> {
        let claimed = match self {
            Sender::Ours(_) => read_send(stdout),
            Sender::Trafgen { .. } => read_trafgen(stdout),
        };
        claimed.ok_or_else(|| said_nothing(self.program().unwrap_or("pathlab send"), stdout, stderr))
    }
}

/// The frame that all senders send, without stamp.
fn the_frame(frame_bytes: u32) -> Vec<u8> {
    let text = format!("size {frame_bytes} / {TEMPLATE}");
    let template = Template::parse(&text, "bench send").expect("a fixed text");
    build(&template, 0, Moment::default())
}

/// `pathlab send` for frames of that size (0: random), at that rate (0: as fast as possible).
pub fn our_send(uri: &str, template: &str, frame_bytes: u32, rate: u64, duration_ms: u64) -> Vec<String> {
    let size = if frame_bytes == 0 { "random(60..1514)".to_owned() } else { frame_bytes.to_string() };
    let rate = if rate == 0 { "max".to_owned() } else { format!("{rate}pps") };
    let duration = format!("{duration_ms}ms");
    ["send", uri, "--frame", template, "--size", &size, "--rate", &rate, "--duration", &duration, "--json"]
        .map(str::to_owned)
        .to_vec()
}

/// Reads `pathlab send --json`.
pub fn read_send(stdout: &str) -> Option<Claimed> {
    let report: SendReport = serde_json::from_str(stdout.trim()).ok()?;
    let late = report.schedule.lateness.as_ref().map(|late| StampError {
        source: "sender".into(),
        count: late.count,
        p50_ns: late.p50,
        p99_ns: late.p99,
        max_ns: late.max,
    });
    Some(Claimed {
        frames: report.frames.transmitted,
        seconds: report.seconds,
        late,
        settings: report.settings,
    })
}

/// `1000 packets outgoing` and `0 sec, 1245 usec on CPU0 (1000 packets)`.
fn read_trafgen(stdout: &str) -> Option<Claimed> {
    let frames = before(stdout, &[" packets outgoing"])?;
    let line = stdout.lines().find(|line| line.contains(" usec on CPU"))?;
    let seconds: f64 = before(line, &[" sec,"])? as f64 + before(line, &[" usec on CPU"])? as f64 / 1e6;
    Some(Claimed { frames, seconds, ..Claimed::default() })
}

/// Time on the CPU while frames flowed and over the whole life.
pub fn cpu(flow_ns: u64, usage: linux::sys::process::Usage) -> ProcessCpu {
    ProcessCpu { flow_ns, user_ns: usage.user_ns, system_ns: usage.system_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the programs of Debian 12 print them.
    const TCPDUMP: &str = "tcpdump: listening on v1, link-type EN10MB (Ethernet), snapshot length 262144 bytes\n1 packet captured\n1001 packets received by filter\n7 packets dropped by kernel\n";
    const TRACESTATS: &str = "filter                        \t       count\t       bytes\t      %\n                         Total:\t         258\t       16532\n";
    const TRACESTATS_SAYS: &str = "ring:v1:\n               Dropped packets:\t         744\n              Accepted Packets:\t         258\n";
    const NETSNIFF: &str = "Running! Hang up with ^C!\n\n        1002  packets incoming (0 unread on exit)\n        1002  packets passed filter\n          31  packets failed filter (out of space)\n      0.0000% packet droprate\n           1  sec, 153154 usec in total\n";
    const TRAFGEN: &str = "     1 packets to schedule\n    60 bytes in total\nRunning! Hang up with ^C!\n\n        1000 packets outgoing\n       60000 bytes outgoing\n           2 sec, 1245 usec on CPU0 (1000 packets)\n";

    #[test]
    fn the_rivals_are_understood() {
        let of = |name: &str, out: &str, err: &str| {
            let counted = Capturer::named(name).unwrap().read(out, err).unwrap();
            (counted.captured, counted.drops[0].count)
        };
        assert_eq!(of("tcpdump", "", TCPDUMP), (1, 7));
        assert_eq!(of("tracestats ring:", TRACESTATS, TRACESTATS_SAYS), (258, 744));
        assert_eq!(of("netsniff-ng", NETSNIFF, ""), (1002, 31));
        let claimed = Sender::named("trafgen").unwrap().read(TRAFGEN, "").unwrap();
        assert_eq!((claimed.frames, claimed.seconds), (1000, 2.001245));
        let silent =
            Capturer::named("netsniff-ng").unwrap().read("", "cannot open: no\n").err().unwrap().to_string();
        assert!(silent.contains("netsniff-ng") && silent.contains("cannot open: no"), "{silent}");
    }

    #[test]
    fn settings_say_what_is_asked_of_each_kind() {
        assert_eq!(our_uri("ring", "eth0", 60, 0), "ring:eth0");
        assert_eq!(our_uri("ring-v2", "eth0", 60, 8), "ring:eth0?version=2&frames=8");
        assert_eq!(our_uri("int", "eth0", 60, 100), "int:eth0?buffer=38400", "half of 100 × 768");
        assert_eq!(our_uri("xdp", "eth0", 1514, 64), "xdp:eth0?frames=64");
        assert_eq!(Sender::Ours("ring-bypass").uri("eth0"), "ring:eth0?bypass=on");
        assert_eq!(Sender::Ours("live-stamp").uri("eth0"), "live:eth0");
        let words = |name: &str| Sender::named(name).unwrap().arguments("eth0", 60, 0, 10).join(" ");
        assert!(words("xdp-stamp").contains("/ stamp") && !words("xdp").contains("/ stamp"));
        let frame = the_frame(60);
        assert_eq!((frame.len(), &frame[..6]), (60, &[2, 0, 0, 0, 0, 0x63][..]));
        assert!(words("trafgen").contains("{ 2,0,0,0,0,99,2,0,0,0,0,1,8,0,69,"), "the same bytes");
        assert_eq!((socket_memory(60), socket_memory(1514)), (768, 2304));
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(text in "([0-9a-z:, ]{0,30}( packets? (captured|outgoing)|Total:|\n)){0,6}") {
            for rival in RIVAL_CAPTURERS {
                let _ = Capturer::named(rival.name).unwrap().read(&text, &text);
            }
            let _ = (read_ours(&text), read_send(&text), read_trafgen(&text));
        }
    }
}

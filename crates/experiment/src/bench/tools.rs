//! Who captures and who sends: how each tool is started, when it is ready, and where it says what it counted.
//!
//! **Fairness.** Every tool runs in the same node on the same CPU with the same generator, is asked to end by SIGINT
//! once the counters are quiet, and is believed in what it prints as its own result. Defaults are the tool's defaults
//! unless the name says otherwise.

use load::send::build::{Moment, build};
use load::send::template::Template;
use record::bench::{CaptureResult, Cell, SendResult, StampError};
use record::capture::CaptureReport;
use record::send::SendReport;
use record::{Latency, PlaceDrop, Problem, Result};

/// A tool of a benchmark, and what it counted as a result of which only that is filled in.
pub struct Tool<R: 'static> {
    /// The name that records and tables use.
    pub name: &'static str,
    program: &'static str,
    /// Our port, or the rival's arguments, with `IF` for the interface.
    line: &'static str,
    read: Read<R>,
}

/// Reads what a tool printed: standard output, errors.
type Read<R> = fn(&str, &str) -> Option<R>;

impl<R> Tool<R> {
    const fn new(name: &'static str, program: &'static str, line: &'static str, read: Read<R>) -> Self {
        Tool { name, program, line, read }
    }

    /// The tool of that name.
    ///
    /// # Errors
    /// Input: there is none.
    pub fn named(all: &'static [Tool<R>], name: &str) -> Result<&'static Tool<R>> {
        let found = all.iter().find(|tool| tool.name == name);
        found.ok_or_else(|| Problem::input(format!("'{name}' is not a tool of this benchmark")))
    }

    /// The program of a rival; none for ourselves.
    pub fn rival(&self) -> Option<&'static str> {
        (!self.program.starts_with("pathlab ")).then_some(self.program)
    }

    /// Reads what it printed.
    ///
    /// # Errors
    /// A sentence with what it said instead.
    pub fn read(&self, stdout: &str, stderr: &str) -> Result<R> {
        (self.read)(stdout, stderr).ok_or_else(|| {
            let last =
                |text: &str| text.lines().rev().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned);
            let words = last(stderr).or_else(|| last(stdout)).unwrap_or_else(|| "nothing".into());
            Problem::measured(format!("{} printed no result but: {words}", self.program))
        })
    }
}

/// `ring:` as the rivals use it: a block waits up to a second, as with libpcap, and frames are only counted. It costs
/// fewer wake-ups, and latency.
pub const PATIENT: &str = "ring-count";

/// Who captures: our ports, tcpdump with its default buffer and one of 64 MiB, libtrace's counter on two of its own ports,
/// netsniff-ng. What they write goes to /dev/null.
pub const CAPTURERS: &[Tool<CaptureResult>] = &[
    Tool::new("int", "pathlab capture", "int:IF", read_capture),
    Tool::new("ring", "pathlab capture", "ring:IF", read_capture),
    Tool::new("ring-v2", "pathlab capture", "ring:IF?version=2", read_capture),
    Tool::new("xdp", "pathlab capture", "xdp:IF", read_capture),
    Tool::new(PATIENT, "pathlab capture", "ring:IF?retire_ms=1000", read_capture),
    Tool::new("tcpdump", "tcpdump", "-n -i IF -w /dev/null", read_tcpdump),
    Tool::new("tcpdump -B 65536", "tcpdump", "-n -i IF -B 65536 -w /dev/null", read_tcpdump),
    Tool::new("tracestats ring:", "tracestats", "ring:IF", read_tracestats),
    Tool::new("tracestats int:", "tracestats", "int:IF", read_tracestats),
    // Its default is to raise sysctls of the host and to move interrupts: that is not ours to allow.
    Tool::new(
        "netsniff-ng",
        "netsniff-ng",
        "--in IF --out /dev/null --silent --no-sock-mem --notouch-irq",
        read_netsniff,
    ),
];

impl Tool<CaptureResult> {
    /// Its arguments.
    pub fn arguments(&self, interface: &str, cell: &Cell) -> Vec<String> {
        let mut line = self.line.replace("IF", interface);
        if self.rival().is_none() {
            let only = if self.name == PATIENT { " --only-count" } else { "" };
            let port = with_ring(&line, cell.frame_bytes, cell.ring_frames.unwrap_or(0));
            line = format!("capture {port} --incoming --quiet --json{only}");
        }
        line.split(' ').map(str::to_owned).collect()
    }
}

/// A port that holds so many frames of that size (0: as many as it does of itself).
fn with_ring(port: &str, frame_bytes: u32, ring_frames: u32) -> String {
    let mark = if port.contains('?') { '&' } else { '?' };
    if ring_frames == 0 {
        port.to_owned()
    } else if port.starts_with("int:") {
        // The kernel doubles what is asked.
        let bytes = if frame_bytes == 0 { 1514 } else { frame_bytes };
        let buffer = socket_memory(bytes) * u64::from(ring_frames) / 2;
        format!("{port}{mark}buffer={}", buffer.max(2048))
    } else {
        format!("{port}{mark}frames={ring_frames}")
    }
}

/// The bytes of socket memory that a frame takes: its buffer's size class (frame, headroom, `skb_shared_info`) and the
/// `sk_buff`. A 60-byte frame takes 768 here, one of 1514 takes 2304.
fn socket_memory(frame_bytes: u32) -> u64 {
    (u64::from(frame_bytes) + 48 + 320).next_power_of_two() + 256
}

/// The last line that is a whole report; lines before it are seconds.
fn read_capture(stdout: &str, _: &str) -> Option<CaptureResult> {
    let whole = serde_json::from_str::<CaptureReport>(stdout.trim()).ok();
    let report: CaptureReport =
        whole.or_else(|| stdout.lines().rev().find_map(|line| serde_json::from_str(line).ok()))?;
    let stream = report.census.streams.iter().max_by_key(|stream| stream.seen);
    let source = report.census.stamps.iter().max_by_key(|stamp| stamp.count);
    let stamp = stream
        .and_then(|stream| stream.delay_ns.as_ref())
        .map(|delay| lateness(source.map_or("", |source| &source.name), delay));
    let beside = report.account.iter().flat_map(|account| &account.beside);
    // What is beside the account is listed only where it is not zero: most of it never is.
    let beside = beside.filter(|drop| drop.count > 0).cloned();
    Some(CaptureResult {
        captured: report.captured,
        drops: report.drops.clone(),
        beside: beside.collect(),
        freezes: report.freezes,
        stamp,
        settings: report.settings,
        ..CaptureResult::default()
    })
}

fn lateness(source: &str, times: &Latency) -> StampError {
    let Latency { count, p50, p99, max, .. } = *times;
    StampError { source: source.into(), count, p50_ns: p50, p99_ns: p99, max_ns: max }
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
    vec![PlaceDrop::new(place, name, count)]
}

fn read_tcpdump(_: &str, stderr: &str) -> Option<CaptureResult> {
    let captured = before(stderr, &[" packets captured", " packet captured"])?;
    let dropped = before(stderr, &[" packets dropped by kernel", " packet dropped by kernel"])?;
    Some(CaptureResult {
        captured,
        drops: lost("ring", "dropped by kernel", dropped),
        ..CaptureResult::default()
    })
}

fn read_tracestats(stdout: &str, stderr: &str) -> Option<CaptureResult> {
    let captured = behind(stdout, "Total:")?;
    let dropped = behind(stderr, "Dropped packets:").unwrap_or(0);
    Some(CaptureResult { captured, drops: lost("kernel", "dropped", dropped), ..CaptureResult::default() })
}

fn read_netsniff(stdout: &str, _: &str) -> Option<CaptureResult> {
    let captured = before(stdout, &["  packets passed filter"])?;
    let dropped = before(stdout, &["  packets failed filter"])?;
    Some(CaptureResult { captured, drops: lost("ring", "out of space", dropped), ..CaptureResult::default() })
}

/// Who sends: our ports, and trafgen with one process, around the queueing discipline (its default) or through it. With `-stamp`
/// every frame of ours carries its number and its time, which a rival's frames do not; the others send the same bytes as the
/// rivals, but for `-join`: there the IPv4 identification counts up, as a kernel's does.
pub const SENDERS: &[Tool<SendResult>] = &[
    Tool::new("int", "pathlab send", "int:IF", read_send),
    Tool::new("int-bypass", "pathlab send", "int:IF?bypass=on", read_send),
    Tool::new("int-join", "pathlab send", "int:IF?join=64", read_send),
    Tool::new("ring", "pathlab send", "ring:IF", read_send),
    Tool::new("ring-bypass", "pathlab send", "ring:IF?bypass=on", read_send),
    Tool::new("xdp", "pathlab send", "xdp:IF", read_send),
    Tool::new("xdp-stamp", "pathlab send", "xdp:IF", read_send),
    Tool::new("live", "pathlab send", "live:IF", read_send),
    Tool::new("live-stamp", "pathlab send", "live:IF", read_send),
    // `-P 1` alone lets it choose the CPU; the process is pinned by us.
    Tool::new(
        "trafgen",
        "trafgen",
        "--dev IF FRAME -P 1 --no-sock-mem --notouch-irq --num COUNT",
        read_trafgen,
    ),
    Tool::new(
        "trafgen --qdisc-path",
        "trafgen",
        "--dev IF FRAME -P 1 --no-sock-mem --notouch-irq --num COUNT --qdisc-path",
        read_trafgen,
    ),
];

/// Frames for each second of a cell that trafgen is to send as fast as it can: about what it reaches on a veth.
const TRAFGEN_PER_SECOND: u64 = 600_000;

/// What every sender sends: to nobody, so that the far end's kernel drops it at the first look.
const TEMPLATE: &str =
    "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:63 / ip src=10.0.0.1 dst=10.0.0.99 / udp";
/// The same with identifications that count up.
const COUNTING: &str =
    "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:63 / ip src=10.0.0.1 dst=10.0.0.99 id=counter / udp";
/// The same with number and time.
pub const STAMPED: &str =
    "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:63 / ip src=10.0.0.1 dst=10.0.0.99 / udp / stamp";

impl Tool<SendResult> {
    /// Its arguments, to send for that time.
    pub fn arguments(&self, interface: &str, cell: &Cell, duration_ms: u64) -> Vec<String> {
        let line = self.line.replace("IF", interface);
        if self.rival().is_none() {
            let template = match self.name.split_once('-') {
                Some((_, "stamp")) => STAMPED,
                Some((_, "join")) => COUNTING,
                _ => TEMPLATE,
            };
            return our_send(&line, template, cell.frame_bytes, cell.rate, duration_ms);
        }
        // It knows no duration, and its worker goes on when only its parent is interrupted: a count ends it.
        let per_second = if cell.rate > 0 { cell.rate } else { TRAFGEN_PER_SECOND };
        let bytes: Vec<String> = the_frame(cell.frame_bytes).iter().map(u8::to_string).collect();
        let word = |word: &str| match word {
            "FRAME" => format!("{{ {} }}", bytes.join(",")),
            "COUNT" => (per_second * duration_ms / 1000).max(1).to_string(),
            _ => word.to_owned(),
        };
        let mut words: Vec<String> = line.split(' ').map(word).collect();
        if cell.rate > 0 {
            words.extend(["--rate".to_owned(), format!("{}pps", cell.rate)]);
        }
        words
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
pub fn read_send(stdout: &str, _: &str) -> Option<SendResult> {
    let report: SendReport = serde_json::from_str(stdout.trim()).ok()?;
    let late = report.schedule.lateness.as_ref().map(|late| lateness("sender", late));
    Some(SendResult {
        claimed: report.frames.transmitted,
        seconds: report.seconds,
        late,
        settings: report.settings,
        ..SendResult::default()
    })
}

/// `1000 packets outgoing` and `0 sec, 1245 usec on CPU0 (1000 packets)`.
fn read_trafgen(stdout: &str, _: &str) -> Option<SendResult> {
    let claimed = before(stdout, &[" packets outgoing"])?;
    let line = stdout.lines().find(|line| line.contains(" usec on CPU"))?;
    let seconds: f64 = before(line, &[" sec,"])? as f64 + before(line, &[" usec on CPU"])? as f64 / 1e6;
    Some(SendResult { claimed, seconds, ..SendResult::default() })
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
            let counted = Tool::named(CAPTURERS, name).unwrap().read(out, err).unwrap();
            (counted.captured, counted.drops[0].count)
        };
        assert_eq!(of("tcpdump", "", TCPDUMP), (1, 7));
        assert_eq!(of("tracestats ring:", TRACESTATS, TRACESTATS_SAYS), (258, 744));
        assert_eq!(of("netsniff-ng", NETSNIFF, ""), (1002, 31));
        let sent = Tool::named(SENDERS, "trafgen").unwrap().read(TRAFGEN, "").unwrap();
        assert_eq!((sent.claimed, sent.seconds), (1000, 2.001245));
        let netsniff = Tool::named(CAPTURERS, "netsniff-ng").unwrap();
        let silent = netsniff.read("", "cannot open: no\n").err().unwrap().to_string();
        assert!(silent.contains("netsniff-ng") && silent.contains("cannot open: no"), "{silent}");
    }

    #[test]
    fn settings_say_what_is_asked_of_each_kind() {
        let capture = |tool: &str, frame_bytes, ring_frames| {
            let cell = Cell { frame_bytes, ring_frames: Some(ring_frames), ..Cell::default() };
            Tool::named(CAPTURERS, tool).unwrap().arguments("eth0", &cell)[1].clone()
        };
        assert_eq!(capture("ring", 60, 0), "ring:eth0");
        assert_eq!(capture("ring-v2", 60, 8), "ring:eth0?version=2&frames=8");
        assert_eq!(capture("int", 60, 100), "int:eth0?buffer=38400", "half of 100 × 768");
        assert_eq!(capture("xdp", 1514, 64), "xdp:eth0?frames=64");
        let send = Cell { frame_bytes: 60, ..Cell::default() };
        let send = |tool: &str| Tool::named(SENDERS, tool).unwrap().arguments("eth0", &send, 10);
        assert_eq!(
            (send("ring-bypass")[1].as_str(), send("live-stamp")[1].as_str()),
            ("ring:eth0?bypass=on", "live:eth0")
        );
        let words = |tool: &str| send(tool).join(" ");
        assert!(words("xdp-stamp").contains("/ stamp") && !words("xdp").contains("/ stamp"));
        let frame = the_frame(60);
        assert_eq!((frame.len(), &frame[..6]), (60, &[2, 0, 0, 0, 0, 0x63][..]));
        assert!(words("trafgen").contains("{ 2,0,0,0,0,99,2,0,0,0,0,1,8,0,69,"), "the same bytes");
        assert_eq!((socket_memory(60), socket_memory(1514)), (768, 2304));
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(text in "([0-9a-z:, ]{0,30}( packets? (captured|outgoing)|Total:|\n)){0,6}") {
            for tool in CAPTURERS {
                let _ = tool.read(&text, &text);
            }
            for tool in SENDERS {
                let _ = tool.read(&text, &text);
            }
        }
    }
}

//! What a capture counted, and where the frames went that it did not get (`pathlab/capture/1`).

use crate::snapshot::Counters;
use crate::{Latency, NamedCount, PlaceDrop, PortSetting, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the JSON.
pub const SCHEMA: &str = "pathlab/capture/1";

/// The version of the JSON of one second.
pub const SECOND: &str = "pathlab/capture-second/1";

/// One second of a capture; printed while it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaptureSecond {
    /// [`SECOND`].
    pub schema: String,
    /// Which second, from 1.
    pub second: u64,
    /// How long it really was.
    pub duration_ns: u64,
    /// Frames captured in it.
    pub frames: u64,
    /// Their bytes on the wire, without FCS.
    pub bytes: u64,
    /// Frames per second.
    pub frames_per_s: f64,
    /// Bits per second, of the bytes above.
    pub rate_bps: f64,
    /// Frames captured since the beginning.
    pub total_frames: u64,
    /// Drops in this second, by place.
    pub drops: Vec<PlaceDrop>,
    /// Times in this second that the kernel stopped using the ring.
    pub freezes: u64,
}

/// A whole capture; printed at its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureReport {
    /// `pathlab/capture/1`.
    pub schema: String,
    /// The port.
    pub port: String,
    /// The filter, as it was written; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// When it began, nanoseconds since 1970.
    pub begun_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// Why it ended: `count`, `duration`, `interrupted`, `end of file`, or what went wrong.
    pub ended: String,
    /// Frames captured.
    pub captured: u64,
    /// Their bytes on the wire, without FCS.
    pub bytes: u64,
    /// Frames per second over the whole time.
    pub frames_per_s: f64,
    /// Bits per second over the whole time.
    pub rate_bps: f64,
    /// Of the frames, those that are shorter in the capture than they were.
    pub cut: u64,
    /// Frames that the filter did not want; null where the kernel ran it, which does not count them.
    pub filtered: Option<u64>,
    /// Frames that came after the end (beyond the count or the time) and are not captured.
    pub after: u64,
    /// Frames captured by each thread.
    pub threads: Vec<u64>,
    /// Drops by place. Every place that this capture has is listed, also with 0.
    pub drops: Vec<PlaceDrop>,
    /// Times that the kernel stopped using the ring because it was full: episodes, not frames.
    pub freezes: u64,
    /// The account against the interface; absent for a port without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<CaptureAccount>,
    /// What was written; absent when nothing was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// When the frames were recorded; absent unless they came from a capture file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// What the frames were.
    pub census: CaptureCensus,
    /// What the port says of itself.
    pub settings: Vec<PortSetting>,
    /// What a reader must know about these numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The times in a capture file, of the frames that were captured from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The earliest frame, nanoseconds since 1970.
    pub first_ns: u64,
    /// The latest frame.
    pub last_ns: u64,
    /// Frames per second between these two; null when they are at the same time.
    pub frames_per_s: Option<f64>,
    /// Bits per second between these two, without FCS; null when they are at the same time.
    pub rate_bps: Option<f64>,
}

impl Recorded {
    /// So many frames and bytes from the first to the last, both included (as capinfos counts).
    pub fn new(first_ns: u64, last_ns: u64, frames: u64, bytes: u64) -> Recorded {
        let seconds = last_ns.saturating_sub(first_ns) as f64 / 1e9;
        let per_second = |amount: f64| (seconds > 0.0).then_some(amount / seconds);
        Recorded {
            first_ns,
            last_ns,
            frames_per_s: per_second(frames as f64),
            rate_bps: per_second(bytes as f64 * 8.0),
        }
    }
}

/// What a capture saw around itself: all that its account is closed with, besides what it captured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CaptureSeen {
    /// The interface of the port; empty for a port without one, or where counters cannot be read.
    pub interface: String,
    /// The frames that the interface receives are captured.
    pub received: bool,
    /// The frames that the interface sends are captured.
    pub sent: bool,
    /// `CLOCK_MONOTONIC` when every port was surely open, in nanoseconds.
    pub begun_ns: u64,
    /// `CLOCK_MONOTONIC` when it was to end, in nanoseconds.
    pub ended_ns: u64,
    /// Before the ports were opened.
    pub opening: Option<CaptureReading>,
    /// When the ports were open.
    pub before: Option<CaptureReading>,
    /// When it was to end.
    pub ending: Option<CaptureReading>,
    /// When all threads had ended.
    pub after: Option<CaptureReading>,
    /// Why a reading is not there, the first time; empty when all are.
    pub trouble: String,
    /// Frames that the ports lost, as they counted them themselves.
    pub port_drops: Vec<PlaceDrop>,
    /// Pieces that super-frames stand for, beyond themselves.
    pub pieces: u64,
}

/// One reading around a capture.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CaptureReading {
    /// Every counter of its namespace.
    pub counters: Snapshot,
    /// What the driver counts for each receive queue of the interface, by the number of the queue.
    pub queues: BTreeMap<u32, Counters>,
    /// Why there is nothing about queues; empty if there is.
    pub queues_unknown: String,
}

/// received + sent = captured + after + filtered + lost + residual.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureAccount {
    /// The interface.
    pub interface: String,
    /// Frames that it received (`rx_packets`) while the capture ran; null when that side is not captured, or not known.
    pub received: Option<u64>,
    /// Frames that it sent (`tx_packets`); null when that side is not captured, or not known.
    pub sent: Option<u64>,
    /// Frames captured.
    pub captured: u64,
    /// Frames that came after the end.
    pub after: u64,
    /// Frames that the filter refused; null when nobody counted them.
    pub filtered: Option<u64>,
    /// Frames dropped between the interface and the capture (places `ring`, `socket`, `port`).
    pub lost: u64,
    /// What is not explained; null when the filter's share or a counter is not known.
    pub residual: Option<i64>,
    /// How large the residual may be without meaning anything: frames that passed while counters were read.
    pub uncertainty: u64,
    /// Drops before or beside the capture: at the interface (`nic`, not in `received`) and in the kernel (`kernel`,
    /// which may also concern frames that were captured).
    pub beside: Vec<PlaceDrop>,
    /// Drops in the receive queues of the whole host, not only of this interface.
    pub host_wide: Vec<PlaceDrop>,
    /// What each receive queue of the interface counted meanwhile, as far as its driver tells. Not to be added to
    /// `beside`: a frame that a queue lost may be counted there, too.
    #[serde(default)]
    pub queues: Vec<QueueCount>,
    /// Why there is nothing about queues; empty if there is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub queues_unknown: String,
    /// Why the account cannot be closed; empty if it can.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unknown: String,
}

/// What one receive queue of an interface counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCount {
    /// Its number.
    pub queue: u32,
    /// Frames that came by it; null when the driver does not tell.
    pub received: Option<u64>,
    /// Frames that it lost, by the kernel's names: `rx_hw_drops` (all that found no room), of these
    /// `rx_hw_drop_overruns` and `rx_hw_drop_ratelimits`, and `rx_alloc_fail` (no memory). Only what the driver counts.
    pub drops: Vec<NamedCount>,
}

/// captured = frames + drops at places `queue` and `disk`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Frames in the files, those of removed files included.
    pub frames: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The files that are there, oldest first; `-` is standard output.
    pub files: Vec<String>,
    /// Files that this capture wrote and removed again (`--files`).
    pub removed: u64,
    /// Frames that came too late for their place in the order of time, and stand behind later ones.
    pub disordered: u64,
    /// How long a frame waits for earlier ones of other threads; 0 with one thread.
    pub window_ns: u64,
}

/// What the captured frames were.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureCensus {
    /// Frames by size class of RFC 2819 (octets *with* the 4 of the FCS).
    pub sizes: Vec<NamedCount>,
    /// Frames and bytes by protocol; `ip/udp/53` is a part of `ip/udp`, which is a part of `ip`.
    pub protocols: Vec<ProtocolCount>,
    /// Who sent most to whom, by bytes.
    pub talkers: Vec<Talker>,
    /// Streams of test messages.
    pub streams: Vec<StreamCount>,
    /// Test messages of streams beyond the number that is followed.
    pub unfollowed_messages: u64,
    /// Frames by what is special: `outgoing`, `vlan`, `fragments`, `malformed`, `tcp_syn`, `damaged_messages`, `unfinished_checksum`,
    /// `super_frames`, `super_frame_pieces`…
    pub marks: Vec<NamedCount>,
    /// Frames by the source of their time.
    pub stamps: Vec<NamedCount>,
}

/// Frames of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolCount {
    /// Its path from Ethernet, e.g. `ip/tcp/443`.
    pub protocol: String,
    /// Frames.
    pub frames: u64,
    /// Bytes of whole frames.
    pub bytes: u64,
}

/// One direction between two addresses. The true count is at most `bytes` and at least `bytes - error_bytes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// Who sends.
    pub from: String,
    /// To whom.
    pub to: String,
    /// Frames, as far as they were counted since it was last followed.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
    /// By how much `bytes` may be too high.
    pub error_bytes: u64,
}

/// One stream of test messages, as the capture saw it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamCount {
    /// `message` (pathlab's header) or `pktgen` (the kernel's packet generator).
    pub header: String,
    /// From address and port to address and port.
    pub flow: String,
    /// The stream number of the header; 0 for pktgen.
    pub stream: u8,
    /// Messages seen, duplicates included.
    pub seen: u64,
    /// Bytes of their frames on the wire, without FCS.
    #[serde(default)]
    pub bytes: u64,
    /// Different messages.
    pub unique: u64,
    /// Lowest sequence number.
    pub first: u64,
    /// Highest sequence number.
    pub last: u64,
    /// Numbers between them that were not seen.
    pub missing: u64,
    /// Messages seen again.
    pub duplicates: u64,
    /// Messages behind a higher number; null when several threads shared the stream.
    pub reordered: Option<u64>,
    /// Messages too old to be judged.
    pub too_old: u64,
    /// Messages with a wrong checksum: their number and time are not believed, and they are not among those seen.
    #[serde(default)]
    pub damaged: u64,
    /// The earliest time in a header, on the sender's clock: `CLOCK_MONOTONIC`, for pktgen UTC; absent without times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_first_ns: Option<u64>,
    /// The latest time in a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_last_ns: Option<u64>,
    /// From the time in the header to the time of the frame, if both are of one clock (else absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Latency>,
    /// Messages whose two times do not fit together.
    pub untimed: u64,
}

//! What the two ends of a test saw.

use crate::histogram::Latency;
use crate::ledger::NamedCount;
use crate::port::{PlaceDrop, PortSetting};
use crate::tcp::TcpSample;
use serde::{Deserialize, Serialize};

/// Traffic counted in one interval (by default 100 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Begin of the interval, nanoseconds since the first message of the test.
    pub from_ns: u64,
    /// Length in nanoseconds.
    pub length_ns: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Messages (datagrams, replies, or `read` calls of a stream).
    pub messages: u64,
    /// Median latency of the messages in it, in nanoseconds; 0 if none was timed.
    pub latency_p50_ns: u64,
    /// Longest latency in it, in nanoseconds; 0 if none was timed.
    pub latency_max_ns: u64,
}

/// Asked against done: the first thing to look at before believing a rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Messages per second that were asked for; none means as fast as possible or closed loop.
    pub requested_per_second: Option<f64>,
    /// Messages per second that the sender really offered.
    pub achieved_per_second: f64,
    /// How late messages left against their planned time; none without a plan.
    pub lateness: Option<Latency>,
    /// True when the sender could not keep the schedule (offered less than 99 % of the plan).
    pub generator_limited: bool,
}

/// What took effect, as read back from the system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `SO_SNDBUF` as the kernel keeps it (twice what was asked).
    pub send_buffer: u64,
    /// `SO_RCVBUF` as the kernel keeps it.
    pub receive_buffer: u64,
    /// The system call in use, e.g. `sendmmsg ×32`, `sendmsg + UDP_SEGMENT 16`, `write 131072`.
    pub method: String,
    /// Congestion control, TCP only.
    pub congestion: Option<String>,
    /// The CPU that the traffic thread is pinned to, if it is.
    pub cpu: Option<u32>,
    /// Local address and port.
    pub local: String,
    /// Remote address and port, empty if not connected.
    pub remote: String,
    /// What was asked and could not be had, each with its reason.
    pub refused: Vec<String>,
    /// The port that frames went through, with its interface, e.g. `ring:eth0`; frames only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub port: String,
    /// Its settings as they took effect; frames only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub port_settings: Vec<PortSetting>,
    /// True when its frames go to the driver without the queueing discipline; frames only.
    #[serde(default)]
    pub bypasses_qdisc: bool,
}

/// What one end of a test did and saw. The sender fills the sending half, the receiver the receiving half; the sender
/// of a round-trip test fills both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// `CLOCK_MONOTONIC` of the first message, in nanoseconds.
    pub begun_ns: u64,
    /// `CLOCK_MONOTONIC` of the last message, in nanoseconds.
    pub ended_ns: u64,
    /// Messages that this end tried to send (datagrams, requests, echo requests; `write` calls of a stream).
    pub attempted: u64,
    /// Copies that the sender's own port made of them (`fault:`).
    #[serde(default, skip_serializing_if = "crate::flow::is_zero")]
    pub made: u64,
    /// Messages that the kernel accepted.
    pub sent: u64,
    /// Payload bytes that the kernel accepted.
    pub sent_bytes: u64,
    /// Send errors by errno name, in messages.
    pub send_errors: Vec<NamedCount>,
    /// System calls for sending.
    pub send_calls: u64,
    /// Messages read that belong to the test, duplicates included.
    pub received: u64,
    /// Different messages read that belong to the test.
    pub unique: u64,
    /// Payload bytes read that belong to the test.
    pub received_bytes: u64,
    /// Messages read more than once.
    pub duplicates: u64,
    /// Messages that arrived after a later one.
    pub reordered: u64,
    /// Replies that came after the sender had given them up (they are in `received` and `unique` as well).
    #[serde(default)]
    pub late: u64,
    /// Messages that did not belong to the test.
    pub foreign: u64,
    /// Messages of the test whose number cannot be theirs, or whose checksum is wrong where nobody below looked at it.
    #[serde(default)]
    pub damaged: u64,
    /// Messages read only after the test ended, out of the socket's queue (they are in `received` as well).
    pub left_in_socket: u64,
    /// Responses sent by the receiver (request/response kinds).
    pub responses: u64,
    /// Frames that the socket dropped, as the socket itself counts them; none if it cannot tell.
    pub socket_drops: Option<u64>,
    /// Frames that the port lost or refused, by place and reason; frames only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub port_drops: Vec<PlaceDrop>,
    /// Longest time between two reads while the test ran, in nanoseconds.
    pub longest_read_gap_ns: u64,
    /// Asked against done.
    pub schedule: Option<Schedule>,
    /// Latency: round trip at the sender, one way (from planned time) at the receiver of a datagram stream.
    pub latency: Option<Latency>,
    /// Latency as a closed loop sees it (from the real send time), when there was a plan and both are known.
    pub latency_from_send: Option<Latency>,
    /// Traffic over time.
    pub intervals: Vec<Interval>,
    /// TCP state of the test's sockets over time.
    pub tcp: Vec<TcpSample>,
    /// What took effect.
    pub settings: Settings,
    /// CPU time of the traffic threads, in nanoseconds: user and kernel.
    pub thread_cpu_ns: u64,
    /// Time that the traffic threads were runnable but waited for a CPU, in nanoseconds.
    #[serde(default)]
    pub thread_wait_ns: u64,
    /// What the user must know, e.g. a clock that the other end does not share.
    pub notes: Vec<String>,
}

/// The least time of traffic that a thread's CPU time is a part of: a thread also works a little before its first message and after
/// its last.
const CPU_SPAN_NS: u64 = 10_000_000;

impl EndReport {
    /// How long its traffic lasted, in nanoseconds; none where CPU time of its threads says nothing of so short a time.
    pub fn cpu_span_ns(&self) -> Option<u64> {
        Some(self.ended_ns.saturating_sub(self.begun_ns)).filter(|&span| span >= CPU_SPAN_NS)
    }

    /// Messages that were read, the test's or not.
    pub fn read(&self) -> u64 {
        [self.received, self.foreign, self.damaged].into_iter().fold(0, u64::saturating_add)
    }
}

//! What `pathlab watch` reads of a host, or of nodes, and says of an interval.

use crate::llstat::{InterruptCount, PollCounts, QueueLimit, Throughput};
use crate::snapshot::{Counters, Snapshot};
use crate::tcp::TcpSample;
use serde::{Deserialize, Serialize};

/// A TCP connection, as the kernel lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpSocket {
    /// The node.
    pub node: String,
    /// Its own end.
    pub local: String,
    /// The other end.
    pub remote: String,
    /// The number of the socket.
    pub inode: u64,
    /// Bytes that the application has not read.
    pub unread_bytes: u32,
    /// Bytes that the other end has not acknowledged.
    pub unacknowledged_bytes: u32,
    /// What the kernel tells of it.
    pub info: TcpSample,
}

/// A transmit queue of an interface of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeQueue {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// Its limit of bytes.
    pub limit: QueueLimit,
}

/// A receive queue of an interface of a node, as its driver counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiveQueueCount {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// The queue.
    pub queue: u32,
    /// Its counters.
    pub counters: Counters,
}

/// The line rate of an interface that has a wire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineRate {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// Bits per second.
    pub rate_bps: u64,
}

/// Everything at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WatchReading {
    /// Counters of nodes and host.
    pub snapshot: Snapshot,
    /// Interrupts of the host.
    pub interrupts: Vec<InterruptCount>,
    /// TCP connections.
    pub tcp: Vec<TcpSocket>,
    /// Transmit queues with a limit of bytes.
    pub transmit_queues: Vec<NodeQueue>,
    /// Receive queues that are counted.
    pub receive_queues: Vec<ReceiveQueueCount>,
    /// Line rates.
    pub line_rates: Vec<LineRate>,
    /// What the programs counted of soft interrupts; none without them.
    pub polls: Option<PollCounts>,
}

/// An interface in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchInterface {
    /// The node; `host` is our own namespace.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// The kind of link; empty for a card.
    pub kind: String,
    /// It is up and has a carrier.
    pub up: bool,
    /// Frames that came.
    pub receive: Throughput,
    /// Frames that were sent.
    pub transmit: Throughput,
    /// Line rate in bits per second; none where there is no wire.
    pub line_rate_bps: Option<u64>,
    /// Part of the line rate that came, 1 is all of it: preamble, FCS and gap are counted.
    pub receive_share: Option<f64>,
    /// Part of the line rate that was sent.
    pub transmit_share: Option<f64>,
    /// Drops and errors, by name.
    pub drops: Counters,
    /// Frames that wait in its qdiscs now.
    pub backlog_frames: u64,
    /// Bytes of those.
    pub backlog_bytes: u64,
}

/// A queue in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchQueue {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// `rx` or `tx`, and the number.
    pub queue: String,
    /// Frames per second, where the driver counts.
    pub frames_per_s: Option<f64>,
    /// Frames lost by the queue, where the driver counts.
    pub drops: Option<u64>,
    /// Bytes that the device has.
    pub inflight_bytes: Option<u64>,
    /// The limit of those.
    pub limit_bytes: Option<u64>,
}

/// A CPU in an interval, in parts of 100 that sum to 100.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchCpu {
    /// The CPU.
    pub cpu: u32,
    /// Programs.
    pub user: f64,
    /// Programs of low priority.
    pub nice: f64,
    /// The kernel on behalf of programs.
    pub system: f64,
    /// Interrupts.
    pub irq: f64,
    /// Soft interrupts.
    pub softirq: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Idle, or waiting for I/O.
    pub idle: f64,
    /// Frames that its backlog or its NAPI took; unknown is none, as below.
    pub processed: Option<u64>,
    /// Frames that its full backlog dropped.
    pub dropped: Option<u64>,
    /// NET_RX that ended with work left.
    pub squeezed: Option<u64>,
    /// Frames in its backlog now.
    pub backlog: Option<u64>,
}

/// An interrupt in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchInterrupt {
    /// Its number.
    pub irq: u32,
    /// Its handlers.
    pub name: String,
    /// How often in a second.
    pub per_s: f64,
    /// The CPU that had most of them.
    pub cpu: Option<u32>,
}

/// A socket in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchSocket {
    /// The node.
    pub node: String,
    /// `tcp`, `udp`, `udp6`, `raw`, …
    pub protocol: String,
    /// Its own end.
    pub local: String,
    /// The other end; empty for a socket that is not connected.
    pub remote: String,
    /// Bits per second that it sent, acknowledged ones; none when unknown.
    pub send_bps: Option<f64>,
    /// Bits per second that it received.
    pub receive_bps: Option<f64>,
    /// Bytes in its receive queue.
    pub receive_queue_bytes: u64,
    /// Bytes in its send queue.
    pub send_queue_bytes: u64,
    /// Frames that it dropped.
    pub drops: Option<u64>,
    /// What held it back, in words; empty when nothing did.
    pub limit: String,
}

/// A place on a path in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchHop {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// `in` or `out`.
    pub way: String,
    /// Frames that went this way; none when unknown.
    pub frames: Option<u64>,
    /// Frames less than at the place before it; negative when there were more; none when unknown.
    pub lost: Option<i64>,
    /// Of these, the ones that did not go on in another way: what counters of drops name, or what neither left the node by interfaces
    /// off the path nor was merged into super-frames.
    #[serde(default)]
    pub gone: u64,
    /// Counters of drops that moved between the two, by name.
    pub drops: Counters,
}

/// What `pathlab watch` says of an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchReport {
    /// `pathlab/watch/1`.
    pub schema: String,
    /// Seconds since the beginning.
    pub seconds: f64,
    /// How long the interval was.
    pub lasted_s: f64,
    /// Interfaces, those with most frames first.
    pub interfaces: Vec<WatchInterface>,
    /// Queues of interfaces, as far as their drivers tell.
    pub queues: Vec<WatchQueue>,
    /// CPUs.
    pub cpus: Vec<WatchCpu>,
    /// NET_RX that ended with work left because of the budget; none when unknown.
    pub squeezed_budget: Option<u64>,
    /// NET_RX that ended with work left because of the time; none when unknown.
    pub squeezed_time: Option<u64>,
    /// Interrupts that came, most first.
    pub interrupts: Vec<WatchInterrupt>,
    /// Sockets, those with most bytes first.
    pub sockets: Vec<WatchSocket>,
    /// The places of the path that was asked for, in their order.
    pub path: Vec<WatchHop>,
    /// Frames by which places of the path may differ because they are not read at one moment.
    pub uncertainty: u64,
    /// Where most frames were lost on that path, as a sentence; none when no more than that were, or no path was asked for.
    pub said: Option<String>,
    /// CPU time that reading took, in nanoseconds.
    pub cost_cpu_ns: u64,
    /// What cannot be told, each with its reason.
    pub missing: Vec<String>,
}

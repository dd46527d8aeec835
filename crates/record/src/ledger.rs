//! The ledger: where every frame of a test went.
//!
//! A station is a place on the path with an in, an out and drop counters. At every station
//! `in = out + named drops + queued + residual`; `in` is the `out` of the station before, so the residuals and the
//! named drops of all stations sum to exactly what was lost between the two applications.

use serde::{Deserialize, Serialize};

/// A count with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCount {
    /// What was counted.
    pub name: String,
    /// How many.
    pub count: u64,
}

/// How a drop got its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropSource {
    /// A kernel or application counter with exactly this meaning.
    Counter,
    /// The loss was located between two counters, and the state of the node names the cause (an MTU too small, a
    /// neighbour that does not answer, a filter that drops, a carrier that went away).
    State,
    /// The loss was located between two counters, and only the witness knows its name; it is then not confirmed twice.
    Witness,
}

impl DropSource {
    /// How the drop is known, in words.
    pub fn word(self) -> &'static str {
        match self {
            DropSource::Counter => "counted",
            DropSource::State => "located by counters, named by state",
            DropSource::Witness => "located by counters, named by the witness only",
        }
    }
}

/// Frames dropped at a station for one named reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drop {
    /// The reason, e.g. `qdisc_full`, `socket_buffer_full`, `backlog_full`.
    pub name: String,
    /// How many frames.
    pub count: u64,
    /// How the reason is known.
    pub source: DropSource,
    /// The evidence in words, e.g. `tbf limit 3000 B on s:eth1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
}

/// What kind of place a station is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StationKind {
    /// The sending application.
    AppSend,
    /// The port by which raw frames leave.
    Port,
    /// IP of the sending node.
    IpOut,
    /// A queueing discipline.
    Qdisc,
    /// A link, with the device in front of it.
    Link,
    /// A kernel bridge.
    Bridge,
    /// A program that hands frames on, or a part of one.
    Program,
    /// IP of a router.
    IpForward,
    /// What nobody knows between two ends that were started by hand.
    Between,
    /// IP of the receiving node.
    IpIn,
    /// UDP of the receiving node.
    UdpIn,
    /// The socket of the receiver.
    Socket,
    /// The kernel's answer to an echo.
    IcmpEcho,
    /// The port by which raw frames are received.
    Tap,
    /// The application that answers.
    AppReply,
    /// The receiving application.
    AppReceive,
    /// Not said: in records of before there were kinds.
    #[default]
    #[serde(other)]
    Unknown,
}

impl StationKind {
    /// True for a record that does not say.
    pub fn is_unknown(&self) -> bool {
        *self == StationKind::Unknown
    }
}

/// A place on the path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// The node that it is in.
    pub node: String,
    /// What kind of place it is.
    #[serde(default, skip_serializing_if = "StationKind::is_unknown")]
    pub kind: StationKind,
    /// The interface that it is at, where it is at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its name, e.g. `app send`, `qdisc eth0`, `link eth0`, `bridge br0`, `ip in`, `socket`.
    pub station: String,
    /// `forward` or `back` (the way of a response).
    pub leg: String,
    /// What came in (the `out` of the station before).
    #[serde(rename = "in")]
    pub entered: u64,
    /// What went out.
    #[serde(rename = "out")]
    pub left: u64,
    /// What was dropped, by name.
    pub drops: Vec<Drop>,
    /// Growth of the queue between the two snapshots.
    pub queued: i64,
    /// Copies that were made here, where the flow itself was counted: a mirror, a flood.
    #[serde(default, skip_serializing_if = "crate::flow::is_zero")]
    pub made: u64,
    /// What is unaccounted for: `in + made − out − drops − queued`. Negative: more left than entered.
    pub residual: i64,
    /// How large a residual may be without meaning anything.
    pub uncertainty: u64,
    /// Why the numbers of this station could not be read; its `out` is then taken as its `in`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// What the independent count of drops says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WitnessStatus {
    /// It counted and agrees with the stations' named drops.
    Agrees,
    /// It counted and does not agree; see [`Witness::disagreement`].
    Disagrees,
    /// It may not run here (no root, or no BPF); this is never a pass.
    NotPermitted,
    /// It was not asked for, or lost events, or broke.
    Unavailable,
}

/// One reason at one place, as the witness counted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessDrop {
    /// Drop reason by name, resolved from the running kernel, e.g. `QDISC_DROP`.
    pub reason: String,
    /// The node whose namespace the frame was in.
    pub node: String,
    /// The interface the frame was at, if any.
    pub interface: Option<String>,
    /// The kernel function that dropped it, if symbols are readable.
    pub location: Option<String>,
    /// How many datagrams (segments of a super-frame counted each).
    pub frames: u64,
    /// How many socket buffers.
    pub skbs: u64,
}

impl WitnessDrop {
    /// Whether it was that kernel function that dropped.
    pub fn is_at(&self, function: &str) -> bool {
        self.location.as_deref() == Some(function)
    }
}

/// Independent count of the same losses: the kernel's `skb:kfree_skb` event, filtered to this test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// Whether it ran and agrees.
    pub status: WitnessStatus,
    /// Why it did not run, if it did not; what it could not see, if it did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Drops by reason.
    pub by_reason: Vec<NamedCount>,
    /// Every reason at every place.
    #[serde(default)]
    pub details: Vec<WitnessDrop>,
    /// One sentence for each disagreement.
    #[serde(default)]
    pub disagreement: Vec<String>,
    /// Events that the witness itself could not count.
    #[serde(default)]
    pub lost: u64,
}

impl Witness {
    /// A witness that did not count, and why.
    pub fn absent(status: WitnessStatus, why: impl Into<String>) -> Self {
        Witness { status, why: why.into(), by_reason: vec![], details: vec![], disagreement: vec![], lost: 0 }
    }

    /// True when it counted (whether or not it agrees).
    pub fn counted(&self) -> bool {
        matches!(self.status, WitnessStatus::Agrees | WitnessStatus::Disagrees)
    }
}

/// Where every frame of a test went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// What the sending application handed (or tried to hand) to the kernel, in datagrams.
    pub sent: u64,
    /// Different datagrams that arrived at the last application (for round trips: different replies).
    pub received: u64,
    /// The stations in the order of the path.
    pub stations: Vec<Station>,
    /// Sum of the residuals: what no named drop and no queue explains.
    pub unexplained: i64,
    /// How large `unexplained` may be without meaning anything.
    pub uncertainty: u64,
    /// The independent count.
    pub witness: Witness,
    /// What a reader must know about these numbers, e.g. super-frames on the path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

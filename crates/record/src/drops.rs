//! What `pathlab drops` says: frames that died, their sums, and what was not seen.

use crate::ledger::NamedCount;
use serde::{Deserialize, Serialize};

/// One frame that died.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadFrameLine {
    /// `pathlab/dead-frame/1`.
    pub schema: String,
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// The kernel's reason.
    pub reason: String,
    /// The name of such a drop, from the table of names; none when the reason has none, or several fit.
    pub name: Option<String>,
    /// The function that dropped; none where the kernel hides its functions.
    pub place: Option<String>,
    /// The node: the namespace by its name.
    pub node: String,
    /// The interface; none when the buffer had none.
    pub interface: Option<String>,
    /// Bytes of the frame from its first header that is still there.
    pub length: u32,
    /// Bytes of it that were kept.
    pub captured: u32,
    /// Frames: the segments of a super-frame, or one.
    pub frames: u32,
    /// What its bytes begin with: `ethernet`, `ip`, or `other`.
    pub link: String,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Source address.
    pub source: Option<String>,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination address.
    pub destination: Option<String>,
    /// Destination port.
    pub destination_port: Option<u16>,
    /// Its headers in words.
    pub line: String,
}

/// The sum of one reason at one place of one interface of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropRow {
    /// The kernel's reason.
    pub reason: String,
    /// The name of such a drop, from the table of names; none when the reason has none, or several fit.
    pub name: Option<String>,
    /// The names that fit, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_be: Vec<String>,
    /// The function or the event that dropped; none where the kernel hides its functions.
    pub place: Option<String>,
    /// The interface; none when the buffer had none.
    pub interface: Option<String>,
    /// The node.
    pub node: String,
    /// Frames.
    pub frames: u64,
    /// Buffers: a super-frame is one.
    pub buffers: u64,
}

/// What a drop of some name means, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropMeaning {
    /// The name.
    pub name: String,
    /// What it means.
    pub meaning: String,
    /// What to do about it.
    pub advice: String,
}

/// A driver's own counter that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverCount {
    /// The node.
    pub node: String,
    /// The interface.
    pub interface: String,
    /// The driver's name of the counter.
    pub counter: String,
    /// By how much it moved.
    pub count: u64,
}

/// What died in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DropsSecond {
    /// `pathlab/drops-second/1`.
    pub schema: String,
    /// Seconds since the beginning.
    pub seconds: f64,
    /// Frames that died in the interval.
    pub frames: u64,
    /// Frames that have died since the beginning.
    pub total_frames: u64,
    /// Buffers of the interval that were counted and not shown.
    pub lost: u64,
    /// The sums of the interval.
    pub rows: Vec<DropRow>,
}

/// What became of the frames that were to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsWritten {
    /// The file.
    pub file: String,
    /// Frames in it.
    pub frames: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// All that died.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DropsReport {
    /// `pathlab/drops/1`.
    pub schema: String,
    /// Seconds from the beginning to the end.
    pub seconds: f64,
    /// Why it ended: `duration`, `count`, `interrupted`, `reader_gone`, `file`; beside a test `over`, with it.
    pub ended: String,
    /// The nodes that were watched; none: all of the host.
    pub nodes: Option<Vec<String>>,
    /// The filter; beside a test an expression for its frames. None: every frame.
    pub filter: Option<String>,
    /// Frames that died and passed the filter.
    pub frames: u64,
    /// Buffers that were these frames.
    pub buffers: u64,
    /// The sums, the largest first.
    pub rows: Vec<DropRow>,
    /// What their names mean.
    pub meanings: Vec<DropMeaning>,
    /// Buffers that were shown, whether they passed the filter or not.
    pub seen: u64,
    /// Buffers that did not pass the filter.
    pub filtered: u64,
    /// Buffers that were counted and not shown: the ring was full. A filter never saw them.
    pub lost: u64,
    /// Buffers that the kernel counted less those that were shown and lost; 0 unless something is wrong, none when it ended early.
    pub unaccounted: Option<i64>,
    /// Frames that were not shown whole: longer than the snap length, or partly in pages.
    pub cut: u64,
    /// Buffers that are missing in the sums: too many reasons and places.
    pub no_room: u64,
    /// Events of the whole host that the kernel did not show.
    pub hidden: u64,
    /// Buffers that died and are not among the frames: parts of a buffer that counted already, buffers of local sockets.
    pub left_out: Vec<NamedCount>,
    /// What drivers counted of frames that programs of XDP threw away.
    pub drivers: Vec<DriverCount>,
    /// What was not watched, each with the reason.
    pub missing: Vec<String>,
    /// The file.
    pub written: Option<DropsWritten>,
    /// CPU time of this process's reader, in nanoseconds.
    pub cpu_ns: u64,
}

//! Where the running kernel keeps what the programs read, and where the programs keep what they write.

use std::collections::BTreeMap;

use record::layers::StampPoint;

use super::super::btf::Btf;
use super::super::tracepoints::words;

/// What the programs read: structure, path, bytes.
const MEMBERS: [(&str, &str, u32); 13] = [
    ("sk_buff", "head", 8),
    ("sk_buff", "data", 8),
    ("sk_buff", "network_header", 2),
    ("sk_buff", "dev", 8),
    ("net_device", "nd_net.net", 8),
    ("net_device", "ifindex", 4),
    ("net", "ns.inum", 4),
    ("sock", "__sk_common.skc_num", 2),
    ("sock", "__sk_common.skc_dport", 2),
    ("tcp_sock", "rcv_nxt", 4),
    ("tcp_sock", "copied_seq", 4),
    ("tcp_sock", "bytes_received", 8),
    ("tcp_sock", "write_seq", 4),
];

/// Where the running kernel keeps what the programs read; every number from BTF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    offsets: BTreeMap<(&'static str, &'static str), u32>,
}

impl Layout {
    /// Finds everything in the kernel's BTF.
    ///
    /// # Errors
    /// The name of the first thing that this kernel does not have, or has in another size.
    pub fn find(btf: &Btf<'_>) -> Result<Layout, String> {
        let member = |&(outer, path, size): &(&'static str, &'static str, u32)| {
            Ok(((outer, path), btf.offset(outer, path, size)?))
        };
        Ok(Layout { offsets: MEMBERS.iter().map(member).collect::<Result<_, String>>()? })
    }

    /// The offset of one of the members.
    pub(super) fn at(&self, structure: &'static str, path: &'static str) -> u32 {
        self.offsets[&(structure, path)]
    }

    /// Each member 64 bytes behind the one before, for tests.
    #[cfg(test)]
    pub(super) fn spread() -> Layout {
        let places = MEMBERS.iter().zip((0u32..).step_by(64));
        Layout { offsets: places.map(|(&(outer, path, _), at)| ((outer, path), at)).collect() }
    }
}

/// The kernel's events at which the programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerEvent {
    /// A frame goes to the queueing discipline.
    Queue,
    /// A frame goes to a driver.
    Start,
    /// A driver hands a frame to the backlog of a CPU.
    Backlog,
    /// A driver hands a frame to GRO.
    Gro,
    /// The protocols get a frame.
    Receive,
    /// A socket can be read.
    Ready,
    /// A connection has given bytes to the application; asked for where messages are known by their place among these.
    Consume,
    /// A call has given bytes to a socket; asked for where messages are what an application writes at once (Linux 6.3).
    Sent,
    /// A system call begins.
    SysEnter,
    /// A system call ends.
    SysExit,
}

impl LayerEvent {
    /// All of them.
    pub const ALL: [LayerEvent; 10] = [
        LayerEvent::Queue,
        LayerEvent::Start,
        LayerEvent::Backlog,
        LayerEvent::Gro,
        LayerEvent::Receive,
        LayerEvent::Ready,
        LayerEvent::Consume,
        LayerEvent::Sent,
        LayerEvent::SysEnter,
        LayerEvent::SysExit,
    ];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            LayerEvent::Queue => "net_dev_queue",
            LayerEvent::Start => "net_dev_start_xmit",
            LayerEvent::Backlog => "netif_rx",
            LayerEvent::Gro => "napi_gro_receive_entry",
            LayerEvent::Receive => "netif_receive_skb",
            LayerEvent::Ready => "sk_data_ready",
            LayerEvent::Consume => "tcp_rcv_space_adjust",
            LayerEvent::Sent => "sock_send_length",
            LayerEvent::SysEnter => "sys_enter",
            LayerEvent::SysExit => "sys_exit",
        }
    }

    /// The stamp that it takes, or prepares.
    pub fn point(self) -> StampPoint {
        match self {
            LayerEvent::SysEnter | LayerEvent::Sent => StampPoint::Called,
            LayerEvent::Queue => StampPoint::Queued,
            LayerEvent::Start => StampPoint::Started,
            LayerEvent::Backlog | LayerEvent::Gro => StampPoint::Arrived,
            LayerEvent::Receive => StampPoint::Polled,
            LayerEvent::Ready => StampPoint::Delivered,
            LayerEvent::Consume | LayerEvent::SysExit => StampPoint::Returned,
        }
    }

    /// Without it there is nothing to split.
    pub fn is_needed(self) -> bool {
        matches!(
            self,
            LayerEvent::Queue
                | LayerEvent::Receive
                | LayerEvent::Consume
                | LayerEvent::Sent
                | LayerEvent::SysEnter
                | LayerEvent::SysExit
        )
    }
}

words! {
    /// The 64-bit words that a CPU has once.
    Cell {
        /// Runs of the first program; the others' follow, in the order of [`LayerEvent::ALL`].
        Runs0, Runs1, Runs2, Runs3, Runs4, Runs5, Runs6, Runs7, Runs8, Runs9,
        /// Stamps that found no room.
        Lost,
        /// 1 when the frame that the protocols got last on this CPU is a chosen one.
        Marked,
        /// Its stamp; the others of its words follow.
        Mark0, Mark1, Mark2, Mark3, Mark4, Mark5, Mark6,
    }
}

/// Bytes of a stamp.
pub const STAMP_BYTES: u32 = 56;
// Where it has what.
pub(super) const AT_TIME: i16 = 0;
pub(super) const AT_POINT: i16 = 8;
pub(super) const AT_NAMESPACE: i16 = 12;
pub(super) const AT_INTERFACE: i16 = 16;
pub(super) const AT_PORT: i16 = 20;
pub(super) const AT_IDS: i16 = 24;
pub(super) const AT_SEQUENCE: i16 = 32;
pub(super) const AT_PLANNED: i16 = 40;
pub(super) const AT_CALLED: i16 = 48;

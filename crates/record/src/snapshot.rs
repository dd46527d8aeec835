//! Many counters at one instant.
//!
//! A snapshot is read in one pass over every node of the path: interfaces, qdiscs, protocol counters, sockets,
//! neighbours, and once for the host: softnet, CPU time by role, the actors' own CPU time and memory.
//! A missing source is a missing entry, never a zero: what was not read is *unknown*.

use crate::{PlaceDrop, drop};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters by name, e.g. `"Udp.InDatagrams"`.
pub type Counters = BTreeMap<String, u64>;

/// Every counter of the lab (or of one host) at one instant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// `CLOCK_MONOTONIC` when reading began, in nanoseconds.
    pub begun_ns: u64,
    /// `CLOCK_MONOTONIC` when reading ended, in nanoseconds; the difference is the skew between counters.
    pub ended_ns: u64,
    /// CPU time that reading cost this process, in nanoseconds.
    pub cost_cpu_ns: u64,
    /// CPU time by role for every online CPU, in ticks of [`Snapshot::tick_hz`].
    pub cpus: Vec<CpuTime>,
    /// Ticks per second of [`CpuTime`] and [`ProcessSample`] (`sysconf(_SC_CLK_TCK)`).
    pub tick_hz: u64,
    /// Softnet counters for every online CPU (host-wide: they do not belong to a namespace).
    pub softnet: Vec<SoftnetRow>,
    /// The processes that make the traffic.
    pub processes: Vec<ProcessSample>,
    /// Counters of each node, by the node's name.
    pub nodes: BTreeMap<String, NodeSnapshot>,
    /// Sources that could not be read, each with its reason.
    pub missing: Vec<String>,
}

/// CPU time of one CPU since boot, in ticks (`/proc/stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// CPU number.
    pub cpu: u32,
    /// User time, that of low priority included.
    pub user: u64,
    /// Part of user: that of processes of low priority (nice above 0).
    #[serde(default)]
    pub nice: u64,
    /// Kernel time on behalf of processes.
    pub system: u64,
    /// Hard interrupts.
    pub irq: u64,
    /// Soft interrupts (packet receive, timers).
    pub softirq: u64,
    /// Time that the hypervisor gave to somebody else.
    pub steal: u64,
    /// Idle and waiting for I/O.
    pub idle: u64,
}

/// One row of `/proc/net/softnet_stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftnetRow {
    /// CPU number (column 13 where the kernel has it).
    pub cpu: u32,
    /// Frames taken from the backlog or by NAPI; not frame-exact (GRO merges before it, RPS counts again).
    pub processed: u64,
    /// Frames dropped because the backlog of this CPU was full.
    pub dropped: u64,
    /// Times that the receive loop ended with work left (budget or time), events and not frames.
    pub time_squeeze: u64,
    /// Frames handed over by RPS.
    pub received_rps: u64,
    /// Frames dropped by the flow limit.
    pub flow_limit: u64,
    /// Frames waiting now.
    pub backlog: u64,
}

/// CPU time and memory of one process (`/proc/PID/stat`, `/proc/PID/status`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Process id.
    pub pid: u32,
    /// What it does in the test: `sender`, `receiver`.
    pub role: String,
    /// The node that it runs in.
    pub node: String,
    /// User time in ticks.
    pub user: u64,
    /// Kernel time in ticks.
    pub system: u64,
    /// CPU time in nanoseconds where the kernel tells it (`/proc/PID/schedstat`), else 0.
    pub cpu_ns: u64,
    /// Time runnable but waiting for a CPU, in nanoseconds (`/proc/PID/schedstat`), else 0.
    pub wait_ns: u64,
    /// Resident memory now, in bytes.
    pub rss_bytes: u64,
    /// Highest resident memory, in bytes.
    pub peak_rss_bytes: u64,
    /// State letter, e.g. `R`, `S`, `T` (stopped).
    pub state: char,
}

/// Every counter of one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSnapshot {
    /// Interfaces (rtnetlink, 64-bit counters).
    pub links: Vec<LinkSample>,
    /// Queueing disciplines, roots and children.
    pub qdiscs: Vec<QdiscSample>,
    /// Protocol counters: `Ip.InReceives`, `Udp.InDatagrams`, `TcpExt.ListenDrops`, `IpExt.OutTransmits`,
    /// `Ip6.Ip6InReceives`… exactly as `/proc/net/snmp`, `/proc/net/netstat` and `/proc/net/snmp6` spell them
    /// (`snmp6` names get the prefix `Ip6.`, whatever their own is).
    pub protocols: Counters,
    /// UDP, raw and ICMP sockets with their queue and drops.
    pub sockets: Vec<SocketSample>,
    /// Packet sockets (`AF_PACKET`): what programs and captures take frames from an interface with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packet_sockets: Vec<PacketSocketSample>,
    /// Neighbour (ARP, ND) entries.
    pub neighbours: Vec<NeighbourSample>,
    /// Netfilter chains and rules that may drop, if there are any and they could be read.
    pub filters: Vec<FilterSample>,
    /// What the OpenFlow switch in the node counts, if there is one and it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchSample>,
    /// What the smallest forwarder in the node counts, one entry for each direction, if there is one and it answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<DirectionSample>,
}

/// One direction through `pathlab null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionSample {
    /// The interface that its frames came from.
    pub from: String,
    /// The interface that they went to.
    pub to: String,
    /// Frames received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that the transmitter had no room for.
    pub full: u64,
    /// Frames that were in hand when the transmitter failed.
    pub failed: u64,
    /// Frames that were lost before they were received.
    pub lost_before: Vec<PlaceDrop>,
    /// Frames that the transmitter refused or lost.
    pub lost_after: Vec<PlaceDrop>,
}

/// The counters of an OpenFlow switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchSample {
    /// Its ports.
    pub ports: Vec<SwitchPortSample>,
    /// Those of its tables that have rules or looked frames up.
    pub tables: Vec<SwitchTableSample>,
    /// Frames that rules counted which send to the controller: packet-ins that the switch meant to make.
    pub to_controller: u64,
    /// Frames that buckets of groups counted which send to the controller.
    #[serde(default)]
    pub buckets_to_controller: u64,
    /// Packet-ins that the switch dropped, because the controllers did not read them or a rate was exceeded. None where the switch does not tell.
    #[serde(default)]
    pub packet_ins_dropped: Option<u64>,
    /// Frames that rules counted which lead neither to a port nor to a group nor to another table.
    #[serde(default)]
    pub led_nowhere: u64,
    /// Frames that the bands of meters counted which drop.
    #[serde(default)]
    pub metered: u64,
    /// Frames that ended in its pipeline, by port and reason. None where the switch does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<Vec<SwitchDropSample>>,
}

/// Frames of a port of a switch that ended in its pipeline for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchDropSample {
    /// The port by which they came in; of `not_sent` the one by which they should have left.
    pub port: u32,
    /// The reason, as the switch names it.
    pub reason: String,
    /// How many.
    pub frames: u64,
}

/// One port of a switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPortSample {
    /// Its number.
    pub port: u32,
    /// Its interface.
    pub interface: String,
    /// Frames in.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames out.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames dropped on the way in.
    pub rx_dropped: u64,
    /// Frames dropped on the way out.
    pub tx_dropped: u64,
}

/// One table of a switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchTableSample {
    /// Its number.
    pub table: u8,
    /// Rules in it.
    pub rules: u32,
    /// Frames that were looked up.
    pub lookups: u64,
    /// Frames that matched a rule.
    pub matched: u64,
}

impl QdiscSample {
    /// A network emulation: it holds, loses and doubles frames as it was told to.
    pub fn is_netem(&self) -> bool {
        self.kind == "netem"
    }

    /// The name of what it drops itself.
    pub fn drop_name(&self) -> &'static str {
        if self.is_netem() { drop::NETEM_DROP } else { drop::QDISC_FULL }
    }
}

impl NodeSnapshot {
    /// The interface of that name.
    pub fn link(&self, name: &str) -> Option<&LinkSample> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The root qdisc of that interface; none means the kernel shows none (`noqueue` has no counters).
    pub fn root_qdisc(&self, interface: &str) -> Option<&QdiscSample> {
        self.qdiscs.iter().find(|qdisc| qdisc.interface == interface && qdisc.parent == TC_ROOT)
    }

    /// A protocol counter; none means that this kernel does not have it.
    pub fn protocol(&self, name: &str) -> Option<u64> {
        self.protocols.get(name).copied()
    }
}

/// `TC_H_ROOT`: the parent of a root qdisc (`include/uapi/linux/pkt_sched.h`).
pub const TC_ROOT: u32 = 0xffff_ffff;
/// `TC_H_INGRESS`, also clsact: the parent of the ingress qdisc.
pub const TC_INGRESS: u32 = 0xffff_fff1;

/// One interface (`RTM_GETLINK` with `IFLA_STATS64`). Directions are the interface's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSample {
    /// Name in its namespace.
    pub name: String,
    /// Index in its namespace.
    pub index: u32,
    /// MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Transmit queue length in frames.
    pub tx_queue_len: u32,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Carrier present (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// How often the carrier came or went.
    pub carrier_changes: u64,
    /// Index of the master (bridge), 0 if none.
    pub master: u32,
    /// Bridge port state (0 disabled, 1 listening, 2 learning, 3 forwarding, 4 blocking), if it is a bridge port.
    pub bridge_state: Option<u8>,
    /// What of a bridge port differs from the kernel's default: `isolated`, `locked`, `no_flood`, `no_learning`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bridge_flags: Vec<String>,
    /// Kind, e.g. `veth`, `bridge`, empty if the kernel tells none.
    pub kind: String,
    /// Name of the root qdisc as the link tells it, e.g. `noqueue`, `tbf`, `noop`.
    pub qdisc: String,
    /// `IFLA_STATS64` by its field names: `rx_packets`, `tx_dropped`, `rx_otherhost_dropped`…
    pub counters: Counters,
}

/// One queueing discipline (`RTM_GETQDISC` with `TCA_STATS2`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscSample {
    /// The interface that it belongs to.
    pub interface: String,
    /// Kind, e.g. `tbf`, `pfifo_fast`.
    pub kind: String,
    /// Handle, e.g. `0x10000` for `1:`.
    pub handle: u32,
    /// Parent handle; [`TC_ROOT`] for a root.
    pub parent: u32,
    /// Frames sent (segments of a super-frame counted each).
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Frames dropped (a super-frame counts once).
    pub drops: u64,
    /// Times that sending was over the limit (for a shaper: had to wait).
    pub overlimits: u64,
    /// Times that the driver gave a frame back.
    pub requeues: u64,
    /// Frames waiting now.
    pub qlen: u64,
    /// Bytes waiting now.
    pub backlog_bytes: u64,
    /// Configured rate in bytes per second, if it is a shaper.
    pub rate_bytes_per_second: Option<u64>,
    /// Configured limit in bytes or frames, if it has one.
    pub limit: Option<u64>,
}

/// One datagram socket (`/proc/net/{udp,udp6,raw,raw6,icmp,icmp6}`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketSample {
    /// `udp`, `udp6`, `raw`, `raw6`, `icmp`, `icmp6`.
    pub protocol: String,
    /// Local port (the ICMP id for `icmp`).
    pub local_port: u16,
    /// Remote port, 0 when not connected.
    pub remote_port: u16,
    /// Inode, which tells one socket from another.
    pub inode: u64,
    /// Bytes of memory in the receive queue now (with the kernel's overhead).
    pub receive_queue_bytes: u64,
    /// Bytes of memory in the send queue now.
    pub send_queue_bytes: u64,
    /// Frames dropped at this socket since it was opened.
    pub drops: u64,
}

/// One packet socket (`sock_diag` for `AF_PACKET`, as `ss -0 -m` shows it).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSocketSample {
    /// The interface that it takes frames from, empty for all of the namespace.
    pub interface: String,
    /// Inode, which tells one socket from another.
    pub inode: u64,
    /// Role of the process of the test or lab that has it open, e.g. `ovs`, `receiver`; empty for anybody else's, such as
    /// a capture.
    pub owner: String,
    /// Bytes of memory in the receive queue now (with the kernel's overhead). A ring is not counted in it.
    pub receive_queue_bytes: u64,
    /// `SO_RCVBUF` as the kernel keeps it, in bytes.
    pub receive_buffer_bytes: u64,
    /// Buffers that did not fit since it was opened (`SK_MEMINFO_DROPS`, 32 bits wide). A super-frame counts once, and
    /// what a ring had no room for does not count here.
    pub drops: u32,
}

/// One neighbour entry (`RTM_GETNEIGH`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourSample {
    /// The interface that it was learned on.
    pub interface: String,
    /// Its IP address as text.
    pub address: String,
    /// `incomplete`, `reachable`, `stale`, `delay`, `probe`, `failed`, `noarp`, `permanent`, `none`.
    pub state: String,
}

/// A netfilter place that may drop frames (`NFNL_SUBSYS_NFTABLES`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSample {
    /// Family: `ip`, `ip6`, `inet`, `bridge`, `netdev`, `arp`.
    pub family: String,
    /// Hook: `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`.
    pub hook: String,
    /// `table/chain` as the user named them.
    pub chain: String,
    /// True when the chain's policy or one of its rules has a drop or reject verdict.
    pub drops: bool,
    /// Sum of the frames counted by `counter` expressions in dropping rules, if they have any.
    pub counted: Option<u64>,
}

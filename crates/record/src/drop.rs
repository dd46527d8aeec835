//! The names of drops: one table, a row a name.
//!
//! **What.** A row says where frames are lost under this name, which of the kernel's own reasons it stands for, who
//! counts the same frames once more, what the verdict calls it and what to do about it. The verdict, the findings, the
//! witness, the ports and the tables of `docs/ledger.md` are made of these rows.
//!
//! **Why.** A name that one of five tables misses is a loss that is counted twice, or that no witness confirms,
//! without a word.
//!
//! **Price.** A name that is not here (a record of a newer version, a port of another program) is one of no known
//! meaning: it is its own word in the verdict, and the advice is to look closer.

const LOOK_CLOSER: &str = "look at this station with more detail";

/// What a frame under this name has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was dropped; where the kernel did it a socket buffer died, and the witness can see that.
    Dropped,
    /// Its call was refused or it was never given to the kernel: no socket buffer died.
    Refused,
    /// It arrived, and is not among those that were to arrive: no loss.
    Surplus,
}

/// One name.
#[derive(Debug, Clone, Copy)]
pub struct DropName {
    /// The name; of a family the part in front of `_`.
    pub name: &'static str,
    /// It stands for all names that begin with it and `_`: what follows is told by a hook, an error or a port.
    pub is_family: bool,
    /// The stations of the ledger, or the place of a port, where it is told.
    pub place: &'static str,
    /// The kernel's reasons (`enum skb_drop_reason`) that mean this: in capitals, a `*` at the end for all that begin
    /// so. In small letters a part of the name of the function that dropped, for drops without a reason of their own.
    pub kernel: &'static [&'static str],
    /// Reasons that mean another name first, and may be this one.
    pub may_be: &'static [&'static str],
    /// Of a port: who counts the same frame once more below it. None: nobody.
    pub below: Option<&'static str>,
    /// The word of the verdict; empty: the name itself.
    verdict: &'static str,
    /// What to do about it; empty: nothing of its own.
    advice: &'static str,
    /// What became of the frames.
    pub fate: Fate,
    /// What it means, in a sentence.
    meaning: &'static str,
}

const NONE: DropName = DropName {
    name: "",
    is_family: false,
    place: "",
    kernel: &[],
    may_be: &[],
    below: None,
    verdict: "",
    advice: "",
    fate: Fate::Dropped,
    meaning: "",
};

impl DropName {
    /// Whether this row is about a drop of that name.
    pub fn is(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name);
        rest.is_some_and(|rest| rest.is_empty() || (self.is_family && rest.starts_with('_')))
    }

    /// Whether the kernel's reason alone says so.
    pub fn means(&self, reason: &str) -> bool {
        self.kernel.iter().any(|known| is_reason(known, reason))
    }

    /// What it means, in a sentence.
    pub fn meaning(&self) -> &'static str {
        self.meaning.trim()
    }
}

/// The row of a name.
pub fn find(name: &str) -> Option<&'static DropName> {
    let exact = DROPS.iter().find(|row| !row.is_family && row.name == name);
    exact.or_else(|| DROPS.iter().find(|row| row.is(name)))
}

/// What the verdict calls a loss of this name.
pub fn verdict(name: &str) -> &str {
    find(name).map(|row| row.verdict).filter(|word| !word.is_empty()).unwrap_or(name)
}

/// What to do about a loss of this name.
pub fn advice(name: &str) -> &'static str {
    find(name).map(|row| row.advice).filter(|advice| !advice.is_empty()).unwrap_or(LOOK_CLOSER)
}

/// What to do about a loss that a verdict calls so; none when no name has this word.
pub fn advice_of_verdict(word: &str) -> Option<&'static str> {
    let row = DROPS.iter().find(|row| row.verdict == word || row.is(word))?;
    Some(row.advice).filter(|advice| !advice.is_empty())
}

/// What became of frames of this name.
pub fn fate(name: &str) -> Fate {
    find(name).map_or(Fate::Dropped, |row| row.fate)
}

/// Whether the kernel may have counted frames that a port tells under this name below the port, too.
///
/// Whether anybody did depends on where the frame died: `ENOBUFS` of a packet socket is a drop of the queueing
/// discipline or, without one, of the device, but a device that was merely busy counts nothing. So a reckoning takes
/// the counters below as they are and from the port only what exceeds them.
pub fn is_counted_below(name: &str) -> bool {
    find(name).is_some_and(|row| row.below.is_some())
}

/// The name of a drop by a chain of a filter at this hook.
pub fn filter(hook: &str) -> String {
    format!("{FILTER}_{hook}")
}

/// The name of what was refused when it was sent, by the name of the error or of the port's reason.
pub fn send(refused: &str) -> String {
    format!("{SEND}_{refused}")
}

/// The names that a drop may have which the kernel tells with this reason, at this function; those that it means first
/// come first. A reason without a meaning of its own is known by the function, of which the longest known part
/// decides. One that has a meaning, and no name here, has no name.
pub fn of_kernel(reason: &str, function: Option<&str>) -> Vec<&'static DropName> {
    let found = standing_for(|known| is_reason(known, reason));
    if !found.is_empty() || !says_nothing(reason) {
        return found;
    }
    let function = function.unwrap_or_default();
    let known = DROPS.iter().flat_map(|row| row.kernel.iter().chain(row.may_be));
    let parts = known
        .filter(|part| part.starts_with(|c: char| c.is_lowercase() || c == '_') && function.contains(**part));
    let Some(longest) = parts.max_by_key(|part| part.len()) else { return vec![] };
    standing_for(|known| known == *longest)
}

/// The name of a drop that the kernel tells so, where nothing else is known of it: none where several fit.
pub fn one_of_kernel(reason: &str, function: Option<&str>) -> Option<&'static DropName> {
    let names = of_kernel(reason, function);
    let mut meant = names.iter().filter(|row| row.means(reason));
    match (meant.next(), meant.next()) {
        (Some(one), None) => Some(one),
        (None, _) if names.len() == 1 => names.first().copied(),
        _ => None,
    }
}

/// Whether a reason tells nothing of why: none was given, a list was emptied, or it is one of another subsystem, which has a number only.
fn says_nothing(reason: &str) -> bool {
    matches!(reason, "" | "NOT_SPECIFIED" | "QUEUE_PURGE") || reason.starts_with("reason ")
}

/// Whether an entry, which may end in `*`, is about that reason.
fn is_reason(known: &str, reason: &str) -> bool {
    known.strip_suffix('*').map_or(reason == known, |begin| reason.starts_with(begin))
}

fn standing_for(is: impl Fn(&str) -> bool) -> Vec<&'static DropName> {
    let means = DROPS.iter().filter(|row| row.kernel.iter().any(|known| is(known)));
    let may_mean = DROPS.iter().filter(|row| row.may_be.iter().any(|known| is(known)));
    means.chain(may_mean).collect()
}

macro_rules! drops {
    ($($(#[doc = $meaning:literal])+ $constant:ident $name:literal at $place:literal { $($field:ident: $value:expr),* $(,)? })*) => {
        $($(#[doc = $meaning])+ pub const $constant: &str = $name;)*

        /// Every name, those of the path first, in the order of the path.
        pub const DROPS: &[DropName] = &[$(DropName {
            name: $name, place: $place, meaning: concat!($($meaning),+), $($field: $value,)* ..NONE
        }),*];
    };
}

drops! {
    /// The call to send was refused; NAME is the error, or the port's own reason.
    SEND "send" at "`app send`, `app reply`" {
        is_family: true, fate: Fate::Refused, advice: "see why the kernel, or the port itself, refused to send",
    }
    /// A filter at hook output refused the call.
    SEND_EPERM "send_EPERM" at "`app send`, `app reply`" {
        may_be: &["NETFILTER_DROP", "nf_hook", "nft_do_chain"],
        verdict: "filter", advice: "look at the dropping rule of this chain",
    }
    /// The send buffer or the queue had no room.
    SEND_ENOBUFS "send_ENOBUFS" at "`app send`, `app reply`" {
        fate: Fate::Refused, verdict: "send_buffer", advice: "see why the kernel refused to send",
    }
    /// The send buffer had no room, and the call was not to wait.
    SEND_EAGAIN "send_EAGAIN" at "`app send`, `app reply`" {
        fate: Fate::Refused, verdict: "send_buffer", advice: "see why the kernel refused to send",
    }
    /// A neighbour did not answer, or a frame waited for it too long.
    NEIGHBOUR_UNRESOLVED "neighbour_unresolved" at "`ip out`, `ip forward`" {
        kernel: &["NEIGH_*", "neigh", "arp_", "ndisc"],
        verdict: "neighbour", advice: "see why the next hop does not answer ARP or ND",
    }
    /// A queueing discipline had no room.
    QDISC_FULL "qdisc_full" at "`qdisc IF`, `port IF`, `program out IF`; the ports `int:` and `ring:` (ENOBUFS)" {
        // A packet socket's ENOBUFS through the queueing discipline is NET_XMIT_DROP (net/packet/af_packet.c).
        below: Some("`drops` of the queueing discipline, or `tx_dropped` where there is none"),
        kernel: &[
            "QDISC_DROP", "QDISC_OVERLIMIT", "QDISC_CONGESTED", "QDISC_BURST_DROP", "CAKE_FLOOD", "FQ_BAND_LIMIT",
            "FQ_FLOW_LIMIT", "FQ_HORIZON_LIMIT", "_enqueue", "dev_xmit_skb", "dev_qdisc",
            // What the queue inside a netem has no room for is freed when it would go on.
            "netem_dequeue",
        ],
        may_be: &["noop_enqueue", "qdisc_reset", "skb_queue_purge", "kfree_skb_list", "rtnl_kfree_skbs", "qdisc_purge"],
        verdict: "qdisc", advice: "offer less, or raise the limit or the rate of this queue",
    }
    /// A network emulation (netem) lost it by chance, as it was told to, or held as many frames as it may.
    NETEM_DROP "netem_drop" at "`qdisc IF`" {
        kernel: &["netem_enqueue"], may_be: &["QDISC_DROP", "dev_xmit_skb", "dev_qdisc", "kfree_skb_list"],
        verdict: "netem", advice: "this loss is made on purpose: see `tc qdisc show`, or `lose` in the topology",
    }
    /// The driver was busy when a port passed the queueing discipline by.
    DRIVER_BUSY "driver_busy" at "`port IF`, `program out IF`; the ports `int:` and `ring:` with `bypass=on` (ENOBUFS)" {
        // __dev_direct_xmit in net/core/dev.c.
        below: Some("`tx_dropped`, unless the driver was only busy"),
        advice: "offer less, or give the program faster ports (xdp) or a longer queue behind them",
    }
    /// The driver dropped what a port gave it past the queueing discipline.
    DRIVER_DROPPED "driver_dropped" at "`port IF`, `program out IF`; the port `xdp:` (EBUSY)" {
        // AF_XDP in copy mode: NET_XMIT_DROP in __xsk_generic_xmit (net/xdp/xsk.c).
        below: Some("`tx_dropped`"),
        advice: "offer less, or give the program faster ports (xdp) or a longer queue behind them",
    }
    /// The backlog of the CPU that should have received was full.
    BACKLOG_FULL "backlog_full" at "`link IF`; `pathlab capture`" {
        kernel: &["CPU_BACKLOG"],
        verdict: "backlog", advice: "spread the frames over CPUs, or raise net.core.netdev_max_backlog",
    }
    /// Longer than the MTU of the interface, of the route, or of the other end of the link.
    MTU_EXCEEDED "mtu_exceeded" at "`ip out`, `link IF`, `bridge BR`, `program`, `program out IF`, `ip forward`" {
        kernel: &[
            "PKT_TOO_BIG", "forward_skb", "veth", "br_", "ip_fragment", "ip_forward", "ip6_forward", "ip6_pkt_drop",
            "ip6_fragment",
        ],
        verdict: "mtu", advice: "give every interface on the path the same MTU, or send smaller datagrams",
    }
    /// A port of a bridge was not in the state forwarding, or there was none to send to.
    PORT_NOT_FORWARDING "port_not_forwarding" at "`bridge BR`" {
        kernel: &["BRIDGE_INGRESS_STP_STATE", "BRIDGE_NON_FORWARDING_STATE", "BRIDGE_NO_EGRESS_PORT", "NO_TX_TARGET"],
        may_be: &["br_"],
    }
    /// Both ports of a bridge are isolated: they do not talk to each other.
    PORT_ISOLATED "port_isolated" at "`bridge BR`" {
        may_be: &["br_"], advice: "end the isolation of one of the two ports (bridge link set dev PORT isolated off)",
    }
    /// A locked port of a bridge takes only frames whose sender is in its table.
    PORT_LOCKED "port_locked" at "`bridge BR`" {
        may_be: &["br_"], advice: "authorise the sender (bridge fdb add MAC dev PORT master), or unlock the port",
    }
    /// The interface had no carrier or was down.
    LINK_DOWN "link_down" at "every station with an interface; every port" {
        kernel: &[
            "DEV_READY", "DEV_HDR", "noop_enqueue", "qdisc_reset", "skb_queue_purge", "kfree_skb_list", "rtnl_kfree_skbs",
            "qdisc_purge",
        ],
        // An interface that has just lost its carrier has the qdisc that drops everything (noop), with the reason of a full
        // one; the device counts the frame. A carrier that goes takes the neighbours and routes with it.
        may_be: &[
            "QDISC_DROP", "_enqueue", "dev_xmit_skb", "dev_qdisc", "IP_INNOROUTES", "IP_OUTNOROUTES", "NEIGH_*", "neigh",
            "arp_", "ndisc", "BRIDGE_INGRESS_STP_STATE", "BRIDGE_NON_FORWARDING_STATE", "BRIDGE_NO_EGRESS_PORT",
            "NO_TX_TARGET", "forward_skb", "veth", "br_", "ip_error", "ip_rcv", "ip6_rcv",
        ],
        advice: "see who took the interface down",
    }
    /// The device dropped, for a reason that nothing else tells.
    TX_DROPPED "tx_dropped" at "`link IF`" {
        may_be: &["DEV_READY", "DEV_HDR", "forward_skb", "veth"],
    }
    /// The device could not transmit.
    TX_ERRORS "tx_errors" at "`link IF`" {}
    /// The address of the frame is another host's, or it has a VLAN tag that no interface takes.
    OTHERHOST "otherhost" at "`ip forward`, `ip in`" {
        kernel: &["OTHERHOST"], advice: "see why frames carry a wrong MAC address, or a VLAN tag that no interface there takes",
    }
    /// Reverse-path filtering: the way back would leave by another interface.
    RP_FILTER "rp_filter" at "`ip forward`, `ip in`" {
        kernel: &["IP_RPFILTER"], may_be: &["ip_error", "ip_rcv", "ip6_rcv"],
        advice: "route the way back over the same interface, or relax rp_filter",
    }
    /// A wrong checksum; of a port: one that it cannot leave to others.
    CHECKSUM "checksum" at "`ip forward`, `ip in`, `udp in`; the port `xdp:`" {
        kernel: &["UDP_CSUM", "IP_CSUM", "ICMP_CSUM", "SKB_CSUM"],
    }
    /// A broken IP header, or a TTL that ended.
    HEADER_ERROR "header_error" at "`ip forward`, `ip in`" {
        kernel: &["IP_INHDR"],
        may_be: &[
            "ip_forward", "ip6_forward", "ip6_pkt_drop", "ip_error", "ip_rcv", "ip6_rcv",
        ],
        advice: "see whether the TTL suffices and headers are intact",
    }
    /// No route leads there.
    NO_ROUTE "no_route" at "`ip out`, `ip forward`" {
        kernel: &["IP_INNOROUTES", "IP_OUTNOROUTES", "ip_error", "ip_rcv", "ip6_rcv", "dst_discard"],
        may_be: &["ip_forward", "ip6_forward", "ip6_pkt_drop"],
        advice: "look which route this node has for the address (ip route get): add the missing one, or remove a blackhole, unreachable or prohibit route",
    }
    /// An address that must not be there.
    ADDRESS_ERROR "address_error" at "`ip forward`, `ip in`" {
        kernel: &["IP_INADDRERRORS", "IP_INVALID_SOURCE", "IP_INVALID_DEST", "IP_LOCAL_SOURCE", "IP_LOCALNET"],
        may_be: &["ip_error", "ip_rcv", "ip6_rcv"],
    }
    /// Shorter than its headers say.
    TRUNCATED "truncated" at "`ip forward`, `ip in`" {
        kernel: &["PKT_TOO_SMALL", "IP_TRUNCATED"],
    }
    /// IP had no memory, or refused for a reason without a counter.
    IP_DISCARD "ip_discard" at "`ip forward`, `ip in`" {}
    /// Fragments that were never put together.
    REASSEMBLY_FAILED "reassembly_failed" at "`ip forward`, `ip in`" {
        kernel: &[
            "FRAG_REASM_TIMEOUT", "FRAG_TOO_FAR", "DUP_FRAG", "frag_rcv", "frag_queue", "frag_reasm", "ip_defrag", "inet_frag",
        ],
    }
    /// A chain of a firewall dropped.
    FILTER "filter" at "`ip out`, `port IF`, `bridge BR`, `program`, `program out IF`, `switch out IF`, `ip forward`, `ip in`, `icmp echo`" {
        is_family: true, kernel: &["NETFILTER_DROP", "nf_hook", "nft_do_chain"],
        may_be: &["br_", "ip_forward", "ip6_forward", "ip6_pkt_drop"],
        verdict: "filter", advice: "look at the dropping rule of this chain",
    }
    /// A policy of IPsec refused.
    IPSEC_POLICY "ipsec_policy" at "`ip out`, `ip forward`, `ip in`, by the witness" {
        kernel: &["XFRM_POLICY"], advice: "look at the blocking policy (ip xfrm policy)",
    }
    /// A program of tc or XDP dropped.
    TC "tc" at "any interface, by the witness" {
        kernel: &["TC_INGRESS", "TC_EGRESS", "XDP", "XDP_ABORTED", "xdp_generic", "veth_xdp"],
    }
    /// The interface received and dropped, before or behind a tap.
    RX_DROPPED "rx_dropped" at "`tap IF`, `bridge BR`, `ip forward`, `ip in`; `pathlab capture`" {
        may_be: &["br_"],
    }
    /// Nothing takes frames of this kind from the interface.
    RX_NOHANDLER "rx_nohandler" at "`ip in`; `pathlab capture`" {}
    /// The interface had no room for what came in.
    RX_MISSED_ERRORS "rx_missed_errors" at "`path to IF`; `pathlab capture`" {}
    /// The interface was overrun.
    RX_OVER_ERRORS "rx_over_errors" at "`path to IF`; `pathlab capture`" {}
    /// The interface's own queue overflowed.
    RX_FIFO_ERRORS "rx_fifo_errors" at "`path to IF`; `pathlab capture`" {}
    /// The interface received a frame with a wrong FCS.
    RX_CRC_ERRORS "rx_crc_errors" at "`path to IF`; `pathlab capture`" {}
    /// The interface received a frame that did not end where a byte ends.
    RX_FRAME_ERRORS "rx_frame_errors" at "`path to IF`; `pathlab capture`" {}
    /// The interface received a frame of a wrong length.
    RX_LENGTH_ERRORS "rx_length_errors" at "`path to IF`; `pathlab capture`" {}
    /// The interface received something broken.
    RX_ERRORS "rx_errors" at "`path to IF`; `pathlab capture`" {}
    /// Nobody listens on the port.
    NO_SOCKET "no_socket" at "`udp in`" {
        kernel: &["NO_SOCKET"], may_be: &["raw_", "ping_", "sock_queue", "udp"],
        advice: "see why nobody listens on the port any more",
    }
    /// UDP had used up its memory.
    UDP_MEMORY "udp_memory" at "`udp in`" {
        kernel: &["PROTO_MEM"],
    }
    /// A filter at the socket refused.
    SOCKET_FILTER "socket_filter" at "`udp in`" {
        kernel: &["SOCKET_FILTER"], may_be: &["raw_", "ping_", "sock_queue", "udp"],
    }
    /// The buffer of the socket was full.
    SOCKET_BUFFER_FULL "socket_buffer_full" at "`socket`, `tap IF`, `program`, `program in IF`, `switch in IF`" {
        kernel: &["SOCKET_RCVBUFF", "raw_", "ping_", "sock_queue", "udp"],
        may_be: &["PACKET_SOCK_ERROR", "PROTO_MEM"],
        verdict: "socket_buffer", advice: "read faster or raise SO_RCVBUF; offer less to see what the path itself carries",
    }
    /// The receive ring of the port was full.
    RING_FULL "ring_full" at "`tap IF`, `program in IF`; the ports `ring:` and `xdp:`" {
        kernel: &["PACKET_SOCK_ERROR", "XDP_REDIRECT_ENOMEM", "XDP_REDIRECT_ENOBUFS", "XDP_REDIRECT_ENOSPC"],
        verdict: "ring", advice: "offer less, or give the program a larger ring to receive from",
    }
    /// Came when its reader had ended.
    AFTER_END "after_end" at "`socket`, `tap IF`" {
        may_be: &["SOCKET_RCVBUFF"],
        advice: "the path held these frames back until the receiver had ended: see what on it got no CPU, and test again",
    }
    /// The kernel answers no more echoes than its limit allows.
    ICMP_RATE_LIMIT "icmp_rate_limit" at "`icmp echo`" {}
    /// A copy that was made on the way and ended elsewhere than at the receiver.
    COPY "copy" at "`ip forward`, where the flow was counted" { fate: Fate::Surplus }
    /// Read more than once.
    DUPLICATE "duplicate" at "`app receive`" { fate: Fate::Surplus }
    /// No message of the test.
    FOREIGN "foreign" at "`app receive`, `app reply`" { fate: Fate::Surplus }
    /// A message of the test whose number cannot be its own, or whose checksum is wrong.
    DAMAGED "damaged" at "`app receive`, `app reply`" {
        advice: "something on the path changes frames: look for a corrupting rule, a fault port, bad memory or a bad cable",
    }
    /// The other port of a program had no room.
    TRANSMITTER_FULL "transmitter_full" at "`program out IF`" {
        advice: "offer less, or give the program faster ports (xdp) or a longer queue behind them",
    }
    /// In hand when the other port of a program failed.
    TRANSMITTER_FAILED "transmitter_failed" at "`program out IF`" {}
    /// Longer than the port that a program sends by takes.
    PORT_OVERSIZE "port_oversize" at "`program out IF`" {
        advice: "give both sides of the program the same MTU, and see that its ports take super-frames or switch offloads off",
    }
    /// A port refused or lost it; NAME is its reason.
    PORT "port" at "`tap IF`, `program in IF`, `program out IF`" { is_family: true }
    /// A port of a switch dropped.
    SWITCH_PORT_FULL "switch_port_full" at "`switch in IF`, `switch out IF`" {
        advice: "offer less, or give the switch faster ports",
    }
    /// No rule of a table matched.
    TABLE_MISS "table_miss" at "`switch tables`" {
        advice: "add a rule for these frames; without one the table drops them",
    }
    /// A meter dropped it.
    METER "meter" at "`switch tables`" {
        advice: "raise the rate of the meter's band that drops ('pathlab flow meters'), or take the meter out of the rule",
    }
    /// A rule that leads to no port, no group and no other table.
    RULE_DROPS "rule_drops" at "`switch tables`" {
        advice: "give the rule an output; 'pathlab flow dump' shows the rules with their counters",
    }
    /// A rule counts the TTL down, and it was at its end.
    TTL_EXPIRED "ttl_expired" at "`switch tables`" {
        advice: "see which sender or router gave these frames so small a TTL, or take dec_ttl out of the rule",
    }
    /// A rule sends back by the port that the frame came in by, for which the action is IN_PORT.
    TO_IN_PORT "to_in_port" at "`switch tables`" {
        advice: "name the port IN_PORT in the rule if frames are to go back, else give it another output",
    }
    /// A rule sends to a port that the switch does not have.
    PORT_MISSING "port_missing" at "`switch tables`" {
        advice: "give the rule an output that 'pathlab flow ports' lists",
    }
    /// The port that a rule sends to is closed (no_fwd, port_down) or has no link.
    PORT_CLOSED "port_closed" at "`switch tables`" {
        advice: "see who closed the port ('pathlab flow ports'), or what became of its link",
    }
    /// The port that the frame came in by is closed (no_recv, port_down).
    PORT_NOT_RECEIVING "port_not_receiving" at "`switch in IF`" {
        advice: "see who closed the port ('pathlab flow ports')",
    }
    /// The switch is set to drop fragments.
    FRAGMENTS_REFUSED "fragments_refused" at "`switch tables`" {
        advice: "send datagrams that need no fragments, or let the switch take them (set-config)",
    }
    /// The bridge behind NORMAL keeps it: its destination is where it came from, or the bridge itself.
    NOT_BRIDGED "not_bridged" at "`switch tables`" {
        advice: "see where the switch learned this address",
    }
    /// Given to a group of which no bucket is live, or that has none.
    NO_LIVE_BUCKET "no_live_bucket" at "`switch tables`" {
        advice: "see what the group's buckets watch ('pathlab flow groups'), and which of these ports has a link ('pathlab flow ports')",
    }
    /// For the controller, and there was no room for it.
    PACKET_IN_DROPPED "packet_in_dropped" at "`switch tables`" {
        advice: "give the switch a rule that leads to a port, or a controller that reads faster",
    }
    /// Given to the controller.
    TO_CONTROLLER "to_controller" at "`switch tables`" { advice: "give the switch a rule that leads to a port" }

    /// Never offered to the port.
    NOT_OFFERED "not_offered" at "`pathlab send`" { fate: Fate::Refused }
    /// Not offered: the sending was interrupted.
    INTERRUPTED "interrupted" at "`pathlab send`" { fate: Fate::Refused }
    /// Not offered: the time was over.
    TIME_OVER "time_over" at "`pathlab send`" { fate: Fate::Refused }
    /// Not offered: the interface is gone.
    INTERFACE_GONE "interface_gone" at "`pathlab send`" { fate: Fate::Refused }
    /// Not offered: the other end of the port has ended.
    PORT_ENDED "port_ended" at "`pathlab send`" { fate: Fate::Refused }
    /// Not offered: the port failed.
    PORT_FAILED "port_failed" at "`pathlab send`" { fate: Fate::Refused }
    /// Taken by the queueing discipline of an interface without a carrier, which counts nothing.
    NO_CARRIER "no_carrier" at "`pathlab send`" {}

    /// Longer than the port takes.
    OVERSIZE "oversize" at "a port that sends" { fate: Fate::Refused }
    /// Shorter than an Ethernet header.
    RUNT "runt" at "a port that sends" { fate: Fate::Refused }
    /// A transmitter has taken it before.
    TAKEN "taken" at "a port that sends" { fate: Fate::Refused }
    /// Its sender left work to the hardware that this port cannot tell the kernel.
    OFFLOAD "offload" at "the ports `int:` and `ring:`" { fate: Fate::Refused }
    /// What is told of its checksum or segments cannot be.
    INVALID_OFFLOAD "invalid_offload" at "the ports `int:` and `ring:`" { fate: Fate::Refused }
    /// A super-frame that the port cannot send.
    SUPER_FRAME "super_frame" at "the ports `xdp:` and `tap:`" { fate: Fate::Refused }
    /// Its checksum could not be completed.
    UNFINISHED "unfinished" at "the port `tap:`" { fate: Fate::Refused }
    /// The kernel took a frame of the ring for broken.
    INVALID_FRAME "invalid_frame" at "the port `xdp:`" { fate: Fate::Refused }
    /// The kernel took a place of the ring for broken.
    INVALID_CHUNK "invalid_chunk" at "the port `xdp:`" {}
    /// The kernel dropped before the ring.
    DROPPED "dropped" at "the port `xdp:`" {}
    /// The kernel had no memory.
    NO_MEMORY "no_memory" at "the port `tap:`" { fate: Fate::Refused }
    /// The kernel took its headers for broken.
    INVALID "invalid" at "the port `tap:`" { fate: Fate::Refused }
    /// The queue of the port was full.
    QUEUE_FULL "queue_full" at "the port `tap:`" {}
    /// It came with headers of an offload that is not known.
    UNKNOWN_OFFLOAD "unknown_offload" at "the port `tap:`" {}
    /// The buffer of the port's socket was full: `socket_buffer_full` in the ledger.
    BUFFER_FULL "buffer_full" at "the port `int:`" {}
    /// What is told of its offload does not fit it.
    MALFORMED "malformed" at "the port `pcap:`" { fate: Fate::Refused }
    /// The file could not be written.
    WRITE_FAILED "write_failed" at "the port `pcap:`" { fate: Fate::Refused }
    /// The file says that the interface had lost so many.
    RECORDED_IFDROP "recorded_ifdrop" at "the port `pcap:`" {}
    /// The file says that the system had lost so many.
    RECORDED_OSDROP "recorded_osdrop" at "the port `pcap:`" {}
    /// Lost on purpose.
    FAULT_LOST "fault_lost" at "the port `fault:`" { fate: Fate::Refused }
    /// The queue to the writer was full.
    FULL "full" at "`pathlab capture`" {}
    /// The disk did not take it.
    NOT_WRITTEN "not_written" at "`pathlab capture`" {}
    /// The address of the frame is another host's: the kernel dropped it behind the capture.
    RX_OTHERHOST_DROPPED "rx_otherhost_dropped" at "`pathlab capture`" {}
    /// One flow had more than its part of a CPU's backlog.
    FLOW_LIMIT "flow_limit" at "`pathlab capture`" {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../docs/ledger.md");

    fn label(row: &DropName) -> String {
        match (row.is_family, row.name) {
            (true, FILTER) => format!("`{}_HOOK`", row.name),
            (true, _) => format!("`{}_NAME`", row.name),
            (false, name) => format!("`{name}`"),
        }
    }

    fn reasons(row: &DropName) -> String {
        let is_reason = |known: &&&str| known.starts_with(|c: char| c.is_uppercase());
        let of = |known: &[&str]| -> Vec<String> {
            known.iter().filter(is_reason).map(|known| format!("`{known}`")).collect()
        };
        let (means, may_mean) = (of(row.kernel), of(row.may_be));
        let may_mean =
            if may_mean.is_empty() { String::new() } else { format!("or {}", may_mean.join(", ")) };
        [means.join(", "), may_mean]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The tables of the documentation, made of this one.
    fn tables() -> (String, String) {
        let mut names =
            String::from("| name | where | the kernel's reasons | what it means |\n|---|---|---|---|\n");
        let mut below = String::from("| at the port | who counts it again |\n|---|---|\n");
        for row in DROPS {
            names += &format!("| {} | {} | {} | {} |\n", label(row), row.place, reasons(row), row.meaning());
            if let Some(who) = row.below {
                below += &format!("| {} | {who} |\n", label(row));
            }
        }
        (names, below)
    }

    #[test]
    fn the_documentation_has_the_tables() {
        let (names, below) = tables();
        assert!(DOCS.contains(&names), "docs/ledger.md must have this table:\n\n{names}");
        assert!(DOCS.contains(&below), "docs/ledger.md must have this table:\n\n{below}");
    }

    /// The names that the tables of stations tell have a row each.
    #[test]
    fn every_name_of_a_station_is_in_the_table() {
        let stations = DOCS.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 5);
        let mut found = 0;
        for line in stations {
            let Some(cell) = line
                .split('|')
                .nth(4)
                .filter(|_| !DROPS.iter().any(|row| line.starts_with(&format!("| {} ", label(row)))))
            else {
                continue;
            };
            for word in cell.split('`').skip(1).step_by(2) {
                let name = word.trim_end_matches(['*', '_']);
                if name.contains('_')
                    && name.chars().next().is_some_and(char::is_lowercase)
                    && !name.contains(' ')
                {
                    let known = find(name).is_some() || name.ends_with("NAME") || name.ends_with("ERRNO");
                    assert!(known || name == "tx_packets", "{name} in {line}");
                    found += 1;
                }
            }
        }
        assert!(found > 30, "the tables of stations were not found: {found}");
    }

    #[test]
    fn names_are_found_alone_and_in_their_families() {
        for (index, row) in DROPS.iter().enumerate() {
            assert!(DROPS[..index].iter().all(|other| other.name != row.name), "{} twice", row.name);
            assert_eq!(find(row.name).unwrap().name, row.name);
            assert!(row.meaning().ends_with('.') && !row.place.is_empty(), "{}", row.name);
        }
        assert_eq!(find(&filter("input")).unwrap().name, FILTER);
        assert_eq!(
            (find(&send("oversize")).unwrap().name, find("send_EPERM").unwrap().name),
            (SEND, SEND_EPERM)
        );
        assert_eq!(
            (verdict("filter_input"), verdict(SEND_EPERM), verdict("no_such")),
            ("filter", "filter", "no_such")
        );
        assert!(find("filters").is_none() && advice("no_such") == LOOK_CLOSER);
        assert_eq!(
            (fate(SEND_EPERM), fate("send_ENOBUFS"), fate(FOREIGN)),
            (Fate::Dropped, Fate::Refused, Fate::Surplus)
        );
        assert!(
            [QDISC_FULL, DRIVER_BUSY, DRIVER_DROPPED].into_iter().all(is_counted_below)
                && !is_counted_below(OVERSIZE)
        );
    }

    #[test]
    fn reasons_and_functions_lead_to_names() {
        let names = |reason, function| -> Vec<&str> {
            of_kernel(reason, function).iter().map(|row| row.name).collect()
        };
        assert_eq!(names("QDISC_DROP", None), [QDISC_FULL, NETEM_DROP, LINK_DOWN]);
        assert_eq!(one_of_kernel("QDISC_DROP", None).map(|row| row.name), Some(QDISC_FULL));
        assert_eq!(names("NEIGH_QUEUEFULL", None), [NEIGHBOUR_UNRESOLVED, LINK_DOWN]);
        assert_eq!(names("NETFILTER_DROP", Some("ip_forward")), [FILTER, SEND_EPERM]);
        let unspecified = |function| names("NOT_SPECIFIED", Some(function));
        assert_eq!(unspecified("noop_enqueue"), [LINK_DOWN, QDISC_FULL], "the longest part decides");
        assert_eq!(unspecified("pfifo_fast_enqueue"), [QDISC_FULL, LINK_DOWN]);
        assert_eq!(unspecified("veth_xmit"), [MTU_EXCEEDED, LINK_DOWN, TX_DROPPED]);
        // A veth frees what its program threw away; that was a buffer, as all that a local socket sent is.
        assert_eq!(unspecified("veth_xdp_rcv_skb"), [TC]);
        assert_eq!(unspecified("nf_hook_slow"), [FILTER, SEND_EPERM]);
        // Both free what is too long, or when there is no memory, and nothing else.
        assert_eq!(
            (unspecified("ip6_fragment"), unspecified("ip_fragment")),
            (vec![MTU_EXCEEDED], vec![MTU_EXCEEDED])
        );
        assert_eq!((unspecified("schedule"), names("NOT_SPECIFIED", None)), (vec![], vec![]));
    }

    #[test]
    fn a_drop_has_a_name_where_one_alone_fits() {
        let name = |reason, function| one_of_kernel(reason, Some(function)).map(|row| row.name);
        assert_eq!(name("QDISC_DROP", "tbf_enqueue"), Some("qdisc_full"));
        assert_eq!(name("NETFILTER_DROP", "nft_do_chain"), Some("filter"));
        assert_eq!(name("NOT_SPECIFIED", "arp_process"), None, "or the link was down");
        assert_eq!(name("NOT_SPECIFIED", "br_handle_frame_finish"), None);
        assert!(of_kernel("NOT_SPECIFIED", Some("br_handle_frame_finish")).len() > 3);
        // A reason that says why is not known by its function.
        assert!(of_kernel("UNICAST_IN_L2_MULTICAST", Some("ip_rcv_finish_core")).is_empty());
    }
}

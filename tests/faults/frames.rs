//! Faults on the way of raw frames, and of their ports.

use super::ends::{listen_to_the_receiver, packet_socket_drops};
use super::plan::{FRAMES, Fault, Truth};

pub fn all() -> Vec<Fault> {
    const TBF_ETH0: &str = "tc qdisc add dev eth0 root tbf rate 50mbit burst 5kb limit 10kb";
    vec![
        Fault::new("frames, tbf at the sender", "pair")
            .tests(FRAMES)
            .plant("a", TBF_ETH0)
            .guilty("a", "qdisc eth0", "qdisc_full", Truth::Tc("a", "eth0")),
        Fault::new("frames, tbf on the way", "bridge")
            .tests(FRAMES)
            .plant("s", "tc qdisc add dev p2 root tbf rate 50mbit burst 5kb limit 10kb")
            .guilty("s", "qdisc p2", "qdisc_full", Truth::Tc("s", "p2")),
        Fault::new("frames by ring, tbf on the way", "router")
            .tests("test frames size 1514 rate 10kpps duration 600ms port ring")
            .plant("r", "tc qdisc add dev eth1 root tbf rate 50mbit burst 5kb limit 10kb")
            .guilty("r", "qdisc eth1", "qdisc_full", Truth::Tc("r", "eth1")),
        Fault::new("frames, small port buffer", "bridge")
            .tests("test frames duration 400ms port int/int?buffer=2304")
            .needs("strace")
            .during(listen_to_the_receiver)
            .guilty("b", "tap eth0", "socket_buffer_full", Truth::By(packet_socket_drops)),
        Fault::new("frames, small ring", "bridge")
            .tests("test frames duration 400ms port int/ring?version=2&frames=8")
            .needs("strace")
            .during(listen_to_the_receiver)
            .guilty("b", "tap eth0", "ring_full", Truth::By(packet_socket_drops)),
        Fault::new("frames, drop in a bridge's forward", "bridge")
            .tests(FRAMES)
            .plant("s", "nft 'table bridge t { chain c { type filter hook forward priority 0; ip length 1500 numgen inc mod 3 0 counter drop; }; }'")
            .guilty("s", "bridge br0", "filter_forward", Truth::Nft("s")),
        Fault::new("frames, drop in forward", "router")
            .tests(FRAMES)
            .plant("r", "nft 'table ip t { chain c { type filter hook forward priority 0; ip length 1500 numgen inc mod 3 0 counter drop; }; }'")
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r")),
    ]
}

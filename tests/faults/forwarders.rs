//! Faults beside programs and hosts that hand frames on: `pathlab null`, our switch, Open vSwitch, a host of containers.

use super::plan::{Fault, Truth, counted, drop_one_in_three, until_counted};
use super::support::{TestLab, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A host with a bridge for containers, whose source it translates.
const CONTAINERS: &str = "node a
router h
node b
link a:eth0 -- h:c1
link h:eth0 -- b:eth0
bridge docker0 on h ports c1
interface a:eth0 address 172.17.0.2/16
interface h:docker0 address 172.17.0.1/16
interface h:eth0 address 192.0.2.1/24
interface b:eth0 address 192.0.2.2/24
route on a default via 172.17.0.1
";
const MASQUERADE: &str = "nft 'table ip n { chain c { type nat hook postrouting priority 100; ip saddr 172.17.0.0/16 masquerade; }; }'";

/// Our switch with its rules in the kernel.
const IN_THE_KERNEL: &str = "node a b
switch s
link a:eth0 -- s:p1
link b:eth0 -- s:p2
interface a:eth0 address 10.0.0.1/24 fd00::1/64
interface b:eth0 address 10.0.0.2/24 fd00::2/64
engine on s tcx
rule on s in_port=1 actions=output:2
rule on s in_port=2 actions=output:1
";

/// One datagram of the test in three, behind the program.
const AT_EGRESS: &str = "nft 'table netdev t { chain c { type filter hook egress device p2 priority 0; udp length 72 numgen inc mod 3 0 counter drop; }; }'";

/// Where the switch of a lab is asked.
fn switch_of(lab: &str) -> Option<String> {
    let all: Value = serde_json::from_slice(&run(&["lab", "list", "--json"]).stdout).ok()?;
    let lab = all["labs"].as_array()?.iter().find(|one| one["name"] == lab)?.clone();
    let programs = lab["programs"].as_array()?.iter();
    programs.filter_map(|program| program["openflow"].as_str()).next().map(str::to_owned)
}

/// Once frames of the test have come, tells the switch something.
fn tell(lab: &TestLab, lines: &[&[&str]]) -> Result<(), String> {
    until_counted(lab, 500)?;
    let socket = switch_of(&lab.name).ok_or("the switch has no socket")?;
    for line in lines {
        let told = run(&[&["flow", line[0], &socket], &line[1..]].concat());
        if !told.status.success() {
            return Err(String::from_utf8_lossy(&told.stderr).into_owned());
        }
    }
    Ok(())
}

/// The rule of the way there drops.
fn tell_to_drop(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    tell(lab, &[&["mod", "in_port=1 actions=drop"]])
}

/// The rule of the way there lets a few frames a second pass.
fn tell_to_meter(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    let meter = ["meters", "--add", "meter=1,pktps,stats,band=type=drop,rate=50,burst_size=10"];
    tell(lab, &[&meter, &["mod", "in_port=1 actions=meter:1,output:2"]])
}

/// The rule of the way there leads back by the port of its frames.
fn tell_to_return(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    tell(lab, &[&["mod", "in_port=1 actions=output:1"]])
}

/// The rule of the way there gives frames a TTL of 1 and counts it down.
fn tell_to_expire(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    tell(lab, &[&["mod", "in_port=1 actions=mod_nw_ttl:1,dec_ttl,output:2"]])
}

/// The rule of the way there leads to a port that is not there.
fn tell_to_miss_the_port(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    tell(lab, &[&["mod", "in_port=1 actions=output:9"]])
}

/// Port 2 no longer forwards.
fn close_port(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    tell(lab, &[])?;
    let socket = switch_of(&lab.name).ok_or("the switch has no socket")?;
    let line = ["-O", "OpenFlow13", "mod-port", &socket, "2", "no-forward"];
    let told = Command::new("ovs-ofctl").args(line).output().map_err(|error| error.to_string())?;
    told.status.success().then_some(()).ok_or(String::from_utf8_lossy(&told.stderr).into_owned())
}

/// What left `a` and did not reach `b`, less what packet sockets of the switch had no room for: those of `ss`, at the end of the brackets
/// `skmem:(r0,…,d12)`.
fn read_and_not_arrived(lab: &TestLab, _: &Path) -> Option<u64> {
    let sockets = lab.inside("s", "ss -0 -a -m").ok()?;
    let dropped = sockets.split(",d").skip(1).filter_map(|rest| rest.split(')').next()?.parse::<u64>().ok());
    counted(lab, "a")?.checked_sub(counted(lab, "b")?)?.checked_sub(dropped.sum())
}

pub fn all() -> Vec<Fault> {
    // It loses frames of its own when it gets no CPU for a while.
    const SLOW: &str = "test udp-stream size 64 rate 4kpps duration 1500ms receive-buffer 16777216";
    const INPUT: &str = drop_one_in_three!("ip", "input");
    let receiver = |name, topology| {
        Fault::new(name, topology).plant("b", INPUT).guilty("b", "ip in", "filter_input", Truth::Nft("b"))
    };
    let container = |name| Fault::new(name, CONTAINERS).plant("h", MASQUERADE);
    vec![
        receiver("drop behind null", "null").beside_strangers(),
        receiver("drop behind our switch", "switch").beside_strangers(),
        receiver("drop behind Open vSwitch", "ovs").tests(SLOW).needs("ovs-vswitchd").beside_strangers(),
        Fault::new("nothing but null", "null").counted().beside_strangers(),
        Fault::new("nothing but our switch", "switch").counted().beside_strangers(),
        Fault::new("nothing but Open vSwitch", "ovs")
            .counted()
            .tests(SLOW)
            .needs("ovs-vswitchd")
            .beside_strangers(),
        Fault::new("tbf behind our switch", "switch")
            .large()
            .plant("s", "tc qdisc add dev p2 root tbf rate 40mbit burst 5kb limit 10kb")
            .guilty("s", "qdisc p2", "qdisc_full", Truth::Between)
            .beside_strangers(),
        Fault::new("filter at the egress of our switch", "switch")
            .plant("s", AT_EGRESS)
            .guilty("s", "switch out p2", "filter_egress", Truth::Nft("s"))
            .beside_strangers(),
        Fault::new("filter at the egress of null", "null")
            .plant("s", AT_EGRESS)
            .guilty("s", "program out p2", "filter_egress", Truth::Nft("s"))
            .beside_strangers(),
        Fault::new("a switch that loses its rules", "switch")
            .counted()
            .during(|lab, _, _| {
                until_counted(lab, 1000)?;
                let socket = switch_of(&lab.name).ok_or("the switch has no socket")?;
                run(&["flow", "del", &socket]).status.success().then_some(()).ok_or("the rules stay".into())
            })
            .guilty("s", "switch tables", "table_miss", Truth::Between)
            .beside_strangers(),
        Fault::new("a rule of our switch that drops", "switch")
            .counted()
            .during(tell_to_drop)
            .guilty("s", "switch tables", "rule_drops", Truth::Between)
            .beside_strangers(),
        Fault::new("a rule that leads back to where frames came from", "switch")
            .counted()
            .during(tell_to_return)
            .guilty("s", "switch tables", "to_in_port", Truth::Between),
        Fault::new("a TTL that ends in our switch", "switch")
            .counted()
            .during(tell_to_expire)
            .guilty("s", "switch tables", "ttl_expired", Truth::Between)
            .beside_strangers(),
        Fault::new("a rule of the kernel's that leads back", IN_THE_KERNEL)
            .counted()
            .during(tell_to_return)
            .guilty("s", "switch tables", "to_in_port", Truth::Between),
        Fault::new("a rule to a port that our switch does not have", "switch")
            .counted()
            .during(tell_to_miss_the_port)
            .guilty("s", "switch tables", "port_missing", Truth::Between),
        Fault::new("a port of our switch that no longer forwards", "switch")
            .counted()
            .during(close_port)
            .guilty("s", "switch tables", "port_closed", Truth::Between)
            .needs("ovs-ofctl"),
        Fault::new("a meter of our switch", "switch")
            .counted()
            .during(tell_to_meter)
            .guilty("s", "switch tables", "meter", Truth::Between)
            .beside_strangers(),
        Fault::new("a rule of Open vSwitch that drops", "ovs")
            .counted()
            .tests(SLOW)
            .during(tell_to_drop)
            .guilty("s", "switch tables", "rule_drops", Truth::By(read_and_not_arrived))
            .may_follow("s", "socket_buffer_full")
            .needs("ovs-vswitchd"),
        container("nothing on the way out of a container").counted().beside_strangers(),
        container("drop in forward, out of a container")
            .plant("h", drop_one_in_three!("ip", "forward"))
            .guilty("h", "ip forward", "filter_forward", Truth::Nft("h"))
            .beside_strangers(),
        container("drop at the bridge of containers")
            .plant("h", drop_one_in_three!("bridge", "input"))
            .guilty("h", "*", "filter_input|filter", Truth::Nft("h")),
        container("tbf on the way out of a container")
            .large()
            .plant("h", "tc qdisc add dev eth0 root tbf rate 50mbit burst 5kb limit 10kb")
            .guilty("h", "qdisc eth0", "qdisc_full", Truth::Between)
            .beside_strangers(),
    ]
}

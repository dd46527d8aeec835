//! Why a stream is as slow as it is: one thing is wrong in a lab, the verdict must name it, and the rate must move when just that is put
//! right.

use crate::support::turn::at_once;
use crate::support::{
    Kept, PATHLAB, TestLab, again, command, installed, is_root, run, skip, start, until_it_says,
};
use crate::{alone, loud};
use serde_json::Value;
use std::path::Path;

/// How often a case is played at most. A rate of a busy machine may have another cause than the planted one.
const PLAYS: usize = 4;

/// What runs beside a test.
#[derive(Debug, Clone, Copy)]
enum Beside {
    Nobody,
    /// Endless loops, one on each of these CPUs, with this nice value.
    Hogs(&'static [u32], i32),
    /// The processes of this node are stopped for 80 of every 100 ms.
    Stops(&'static str),
    /// `pathlab null` from this port to `int:p2`, instead of the bridge of node s.
    Wire(&'static str),
}

impl Beside {
    /// Whether it takes CPU time from all that runs on this machine.
    fn takes_cpus(self) -> bool {
        matches!(self, Beside::Hogs(..) | Beside::Stops(_))
    }
}

/// How many cases are played at once: a rate that a window or a shaper limits is the same beside others. Where a CPU is what is wrong, a
/// case is alone.
const AT_ONCE: usize = 4;

/// One thing that is wrong, and what puts it right.
struct Case {
    name: &'static str,
    topology: &'static str,
    beside: Beside,
    plant: &'static [(&'static str, &'static str)],
    test: &'static str,
    /// The word of the verdict.
    what: &'static str,
    /// The beginning of its place.
    place: &'static str,
    cure: Cure,
}

/// What is changed for the second test, and how many times faster that must make it.
enum Cure {
    /// Commands in a node.
    Command(&'static str, &'static str, f64),
    /// Another test.
    Test(&'static str, f64),
    /// What runs beside it ends.
    Quiet(f64),
}

const NONE: Case = Case {
    name: "",
    topology: "router",
    beside: Beside::Nobody,
    plant: &[],
    test: "tcp-stream",
    what: "",
    place: "",
    cure: Cure::Quiet(0.0),
};

const PINNED: &str = "tcp-stream sender-cpu 0 receiver-cpu 1";
const NO_FILTER: &str = "nft delete table ip planted";

/// A wire through node s that `pathlab null` carries, with faults if need be.
pub const WIRE: &str = "node a b s
link a:eth0 -- s:p1 offload off
link s:p2 -- b:eth0 offload off
bridge br0 on s ports p1 p2
interface a:eth0 address 10.0.0.1/24
interface b:eth0 address 10.0.0.2/24
";

/// Two ways between two routers; only what is marked takes the second, which is longer.
const WAYS: &str = "node a b s
router r1 r2
link a:eth0 -- r1:eth0 offload off
link r1:eth1 -- r2:eth1 offload off
link r1:eth2 -- s:p1 offload off
link s:p2 -- r2:eth2 offload off
link r2:eth0 -- b:eth0 offload off
bridge br0 on s ports p1 p2
interface a:eth0 address 10.0.1.2/24
interface r1:eth0 address 10.0.1.1/24
interface r1:eth1 address 10.0.2.1/24
interface r2:eth1 address 10.0.2.2/24
interface r1:eth2 address 10.0.3.1/24
interface r2:eth2 address 10.0.3.2/24
interface r2:eth0 address 10.0.4.1/24
interface b:eth0 address 10.0.4.2/24
route on a default via 10.0.1.1
route on r1 10.0.4.0/24 via 10.0.2.2
route on r1 10.0.4.0/24 via 10.0.3.2 table 100
route on r2 10.0.1.0/24 via 10.0.2.1
route on b default via 10.0.4.1
";

const CASES: &[Case] = &[
    Case {
        name: "a process on the receiver's CPU",
        beside: Beside::Hogs(&[1], 0),
        test: PINNED,
        what: "other_work",
        place: "CPU 1",
        cure: Cure::Quiet(1.1),
        ..NONE
    },
    Case {
        name: "a shaper",
        plant: &[("r", "tc qdisc add dev eth1 root handle 1: tbf rate 50mbit burst 10kb limit 100kb")],
        what: "shaper",
        place: "node r, tbf on eth1",
        cure: Cure::Command(
            "r",
            "tc qdisc replace dev eth1 root handle 1: tbf rate 200mbit burst 10kb limit 100kb",
            2.0,
        ),
        ..NONE
    },
    Case {
        name: "a queue that is too short",
        plant: &[("r", "tc qdisc add dev eth1 root handle 1: tbf rate 100mbit burst 5kb limit 5kb")],
        what: "qdisc",
        place: "node r, qdisc eth1",
        cure: Cure::Command(
            "r",
            "tc qdisc replace dev eth1 root handle 1: tbf rate 100mbit burst 50kb limit 200kb",
            1.2,
        ),
        ..NONE
    },
    Case {
        name: "a receive buffer of 4 KiB",
        plant: &[("b", "sysctl -w net.ipv4.tcp_rmem='4096 4096 4096'")],
        what: "receiver_window",
        place: "node b",
        cure: Cure::Command("b", "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'", 2.0),
        ..NONE
    },
    Case {
        name: "a receive buffer that is small for the round trip",
        topology: WIRE,
        beside: Beside::Wire("fault:int:p1?delay=10ms&side=rx"),
        plant: &[("b", "sysctl -w net.ipv4.tcp_rmem='4096 65536 65536'")],
        what: "receiver_window",
        place: "node b",
        cure: Cure::Command("b", "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'", 2.0),
        ..NONE
    },
    Case {
        name: "a send buffer that is small for the round trip",
        topology: WIRE,
        beside: Beside::Wire("fault:int:p1?delay=10ms&side=rx"),
        test: "tcp-stream send-buffer 32kB",
        what: "send_buffer",
        place: "node a",
        cure: Cure::Test("tcp-stream send-buffer 1MB", 2.0),
        ..NONE
    },
    Case {
        name: "a reader that is stopped most of the time",
        beside: Beside::Stops("b"),
        what: "receiver_stalled",
        place: "node b",
        cure: Cure::Quiet(1.5),
        ..NONE
    },
    Case {
        name: "a sender that is stopped most of the time",
        beside: Beside::Stops("a"),
        what: "generator_stalled",
        place: "node a",
        cure: Cure::Quiet(1.5),
        ..NONE
    },
    Case {
        name: "a requested rate",
        test: "tcp-stream size 10000 rate 20mbit",
        what: "schedule",
        cure: Cure::Test("tcp-stream size 10000 rate 60mbit", 2.0),
        ..NONE
    },
    Case {
        name: "lost segments",
        plant: &[
            ("r", "nft add table ip planted"),
            ("r", "nft add chain ip planted c '{ type filter hook forward priority 0; }'"),
            ("r", "nft add rule ip planted c meta l4proto tcp numgen random mod 100 '<' 3 drop"),
        ],
        what: "filter",
        place: "node r, eth",
        cure: Cure::Command("r", NO_FILTER, 1.2),
        ..NONE
    },
    Case {
        name: "a policer",
        plant: &[
            ("r", "nft add table ip planted"),
            ("r", "nft add chain ip planted c '{ type filter hook forward priority 0; }'"),
            (
                "r",
                "nft add rule ip planted c ip daddr 10.0.2.2 limit rate over 5 mbytes/second burst 64 kbytes drop",
            ),
        ],
        what: "filter",
        place: "node r, eth",
        cure: Cure::Command("r", NO_FILTER, 2.0),
        ..NONE
    },
    Case {
        name: "segments that overtake each other",
        topology: WAYS,
        beside: Beside::Wire("fault:int:p1?delay=3ms&side=rx"),
        plant: &[
            ("r1", "ip rule add fwmark 1 lookup 100"),
            ("r1", "nft add table ip planted"),
            ("r1", "nft add chain ip planted c '{ type filter hook prerouting priority -150; }'"),
            ("r1", "nft add rule ip planted c ip daddr 10.0.4.2 numgen inc mod 4 0 meta mark set 1"),
        ],
        what: "spurious_retransmissions",
        cure: Cure::Command("r1", NO_FILTER, 1.2),
        ..NONE
    },
    Case {
        name: "a link that is too small, in silence",
        topology: "line3",
        plant: &[
            ("r1", "ip link set eth1 mtu 1300"),
            ("r2", "ip link set eth0 mtu 1300"),
            ("r1", "nft add table ip planted"),
            ("r1", "nft add chain ip planted c '{ type filter hook output priority 0; }'"),
            ("r1", "nft add rule ip planted c ip protocol icmp drop"),
        ],
        what: "mtu",
        place: "node r1",
        cure: Cure::Command("r1", NO_FILTER, 100.0),
        ..NONE
    },
    Case {
        name: "a shaper of the acknowledgements at the receiver",
        plant: &[("b", "tc qdisc add dev eth0 root handle 1: tbf rate 100kbit burst 2kb limit 10kb")],
        what: "ack_path",
        place: "node b, tbf on eth0",
        cure: Cure::Command("b", "tc qdisc del dev eth0 root", 3.0),
        ..NONE
    },
    Case {
        name: "a shaper of the acknowledgements at the router",
        plant: &[("r", "tc qdisc add dev eth0 root handle 1: tbf rate 100kbit burst 2kb limit 10kb")],
        what: "ack_path",
        place: "node r, tbf on eth0",
        cure: Cure::Command("r", "tc qdisc del dev eth0 root", 3.0),
        ..NONE
    },
];

/// Runs one test in a lab; the record of the run.
fn record(lab: &TestLab, folder: &Path, topology: &str, test: &str) -> Value {
    let (plan, records) = (folder.join("one.plan"), folder.join("runs"));
    std::fs::write(&plan, format!("topology {topology}\nrepetitions 1\nduration 1500ms\ntest {test}\n"))
        .unwrap();
    let [plan, records] = [plan, records].map(|path| path.display().to_string());
    let output = run(&["run", &plan, "--lab", &lab.name, "--dir", &records, "--json"]);
    let words = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{test}: {error}: {words}"))
}

fn measured(lab: &TestLab, folder: &Path, topology: &str, test: &str) -> Value {
    let run = record(lab, folder, topology, test);
    assert!(run["tests"][0].is_object(), "{test} was not made: {}", run["findings"]);
    run["tests"][0].clone()
}

/// The topology as `pathlab lab up` takes it: a name, or a file for a text.
fn topology(folder: &Path, case: &str) -> String {
    if !case.contains('\n') {
        return case.into();
    }
    let file = folder.join("planted.lab");
    std::fs::write(&file, case).unwrap();
    file.display().to_string()
}

/// What ends when this value does.
fn beside(lab: &TestLab, beside: Beside) -> Vec<Kept> {
    let script = |script: &str| {
        let mut tool = command("sh");
        tool.args(["-c", script]);
        Kept::new(start(tool))
    };
    match beside {
        Beside::Nobody => vec![],
        Beside::Hogs(cpus, nice) => {
            let hog = |cpu: &u32| format!("exec taskset -c {cpu} nice -n {nice} sh -c 'while :; do :; done'");
            cpus.iter().map(|cpu| script(&hog(cpu))).collect()
        }
        Beside::Stops(node) => {
            let each = |signal: &str| {
                format!("for p in $(ip netns pids {}); do kill -{signal} $p; done", lab.netns(node))
            };
            let (stop, go) = (each("STOP"), each("CONT"));
            vec![script(&format!("while :; do {stop}; sleep 0.08; {go}; sleep 0.02; done 2>/dev/null"))]
        }
        Beside::Wire(port) => vec![wire(lab, port)],
    }
}

/// `pathlab null` in node s, from this port to `int:p2`, instead of its bridge.
pub fn wire(lab: &TestLab, port: &str) -> Kept {
    lab.must("s", "ip link set p1 nomaster; ip link set p2 nomaster");
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("s"), PATHLAB, "null", port, "int:p2"]);
    let mut wire = start(tool);
    until_it_says(&mut wire, "forwarding");
    Kept::new(wire)
}

/// Plays a case once: why it is to be played again, if it is.
fn play(case: &Case) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let topology = topology(folder.path(), case.topology);
    let lab = TestLab::up(&topology, "slow");
    case.plant.iter().for_each(|(node, line)| drop(lab.must(node, line)));
    let running = beside(&lab, case.beside);
    let slow = measured(&lab, folder.path(), &topology, case.test);
    let limit = &slow["limit"];
    let (what, place) = (limit["what"].as_str().unwrap(), limit["where"].as_str().unwrap());
    println!("{}: {}", case.name, limit["sentence"]);
    if what != case.what
        || !place.starts_with(case.place)
        || limit["advice"].as_str().is_none_or(str::is_empty)
    {
        return Some(format!("not {} at '{}': {limit}", case.what, case.place));
    }
    let (test, factor, still) = match case.cure {
        Cure::Command(node, line, factor) => {
            lab.must(node, line);
            (case.test, factor, running)
        }
        Cure::Test(test, factor) => (test, factor, running),
        Cure::Quiet(factor) => {
            drop(running);
            (case.test, factor, vec![])
        }
    };
    let cured = measured(&lab, folder.path(), &topology, test);
    drop(still);
    let [before, after] = [&slow, &cured].map(|test| test["throughput_bps"].as_f64().unwrap() / 1e6);
    println!("  {before:.1} Mbit/s, and {after:.1} Mbit/s without it: {}", cured["limit"]["what"]);
    (after < before * factor).then(|| format!("{before:.1} Mbit/s became {after:.1}: {}", cured["limit"]))
}

fn tools() -> bool {
    is_root() && ["tc", "nft", "taskset", "sysctl"].iter().all(|tool| installed(tool))
}

#[test]
fn every_cause_has_its_verdict_and_the_rate_moves_with_it() {
    let _turn = alone();
    if !tools() {
        return skip("causes of slow streams", "needs root, tc, nft, taskset and sysctl");
    }
    let played = |case: &Case| {
        let once = || {
            let why = play(case);
            (why.clone(), why)
        };
        Some((case.name, again::play("causes of slow streams", case.name, PLAYS, once)?))
    };
    let (alone, others): (Vec<&Case>, Vec<_>) = CASES.iter().partition(|case| case.beside.takes_cpus());
    let wrong =
        [(1, alone), (AT_ONCE, others)].map(|(most, cases)| at_once(most, &cases, |case| played(case)));
    let wrong: Vec<_> = wrong.into_iter().flatten().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The verdict of a stream between two nodes, played until it is wanted.
fn verdict(name: &str, test: &str, around: Beside, wanted: impl Fn(&Value) -> bool) -> Value {
    again::play("causes of slow streams", name, PLAYS, || {
        let folder = tempfile::tempdir().unwrap();
        let lab = TestLab::up("router", "slow");
        let _running = beside(&lab, around);
        let limit = measured(&lab, folder.path(), "router", test)["limit"].clone();
        println!("{name}: {}", limit["sentence"]);
        let why = (!wanted(&limit)).then(|| limit.to_string());
        (limit, why)
    })
}

#[test]
fn a_full_cpu_is_named() {
    let _turn = alone();
    if !tools() || std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return skip("streams on full CPUs", "needs root, taskset and two CPUs");
    }
    let one = |limit: &Value| limit["what"] == "cpu" && limit["where"] == "CPU 0";
    let thread = |limit: &Value| limit["what"] == "generator_cpu" || limit["what"] == "receiver_cpu";
    names_a_full_cpu("both ends on one CPU", "tcp-stream sender-cpu 0 receiver-cpu 0", one);
    names_a_full_cpu("as fast as the CPUs can", PINNED, thread);
}

/// The verdict is the wanted one, unless somebody else had the CPUs each time, on this host or on the one that this is a guest of.
fn names_a_full_cpu(name: &str, test: &str, wanted: impl Fn(&Value) -> bool) {
    let found = verdict(name, test, Beside::Nobody, &wanted);
    match found["what"].as_str() {
        Some("other_work" | "host_cpu") => skip(name, &format!("each time: {}", found["sentence"])),
        _ => assert!(wanted(&found), "{found}"),
    }
}

/// The kernel lets work of low priority have its slice before a thread that wakes up: it is to blame if an end waited for it, and then the
/// rate moves without it.
#[test]
fn work_of_low_priority_is_blamed_only_if_the_rate_moves_without_it() {
    let _turn = alone();
    if !tools() {
        return skip("work of low priority", "needs root and taskset");
    }
    let once = || {
        let folder = tempfile::tempdir().unwrap();
        let lab = TestLab::up("router", "slow");
        let hogs = beside(&lab, Beside::Hogs(&[0, 1], 19));
        let slow = measured(&lab, folder.path(), "router", PINNED);
        drop(hogs);
        let cured = measured(&lab, folder.path(), "router", PINNED);
        let [before, after] = [&slow, &cured].map(|test| test["throughput_bps"].as_f64().unwrap() / 1e6);
        println!("{}: {before:.0} Mbit/s, and {after:.0} without", slow["limit"]["sentence"]);
        let blamed = slow["limit"]["evidence"].as_str().unwrap().contains("nice 19");
        let why = (slow["limit"]["what"] == "host_cpu" || (blamed && after < before * 1.1))
            .then(|| slow["limit"].to_string());
        (why.clone(), why)
    };
    let wrong = again::play("causes of slow streams", "work of low priority", PLAYS, once);
    assert!(wrong.is_none(), "{wrong:?}");
}

/// What keeps a connection from being made, the node that the finding names, a word of its evidence and one of its advice, and what undoes it.
type Refusal = (&'static str, &'static str, &'static str, &'static str, &'static str);

const FILTER: &str = "nft add table ip planted; nft add chain ip planted c '{ type filter hook HOOK priority 0; }'; nft add rule ip planted c RULE";

const REFUSALS: &[Refusal] = &[
    (
        "r",
        "ip route add blackhole 10.0.2.2",
        "blackhole",
        "remove the blackhole route",
        "ip route del blackhole 10.0.2.2",
    ),
    (
        "r",
        "ip route add prohibit 10.0.2.2",
        "prohibit",
        "remove the prohibit route",
        "ip route del prohibit 10.0.2.2",
    ),
    (
        "b",
        "ip route add blackhole 10.0.1.2",
        "(the way back)",
        "remove the blackhole route",
        "ip route del blackhole 10.0.1.2",
    ),
    (
        "b",
        "ip route del default",
        "no route to 10.0.1.2",
        "add the missing route",
        "ip route add default via 10.0.2.1",
    ),
    ("r", "forward|tcp dport 1024-65535 drop", "NETFILTER_DROP", "dropping rule", NO_FILTER),
    ("b", "input|tcp flags syn / syn,ack reject with tcp reset", "refused", "dropping rule", NO_FILTER),
];

#[test]
fn a_test_that_cannot_connect_names_the_place() {
    let _turn = loud();
    if !tools() {
        return skip("connections that are refused", "needs root and nft");
    }
    // Each in a lab of its own, all at once: they wait for connections that cannot be made.
    std::thread::scope(|scope| {
        let cases: Vec<_> = REFUSALS.iter().map(|refusal| scope.spawn(move || is_refused(refusal))).collect();
        cases.into_iter().for_each(|case| case.join().unwrap());
    });
}

/// One connection that cannot be made, and can be made again without what was planted.
fn is_refused((node, plant, evidence, advice, undo): &Refusal) {
    let folder = tempfile::tempdir().unwrap();
    let number = REFUSALS.iter().position(|refusal| refusal.1 == *plant).unwrap();
    let lab = TestLab::up("router", &format!("refused{number}"));
    let test = "tcp-stream duration 200ms";
    let line = plant.split_once('|').map(|(hook, rule)| FILTER.replace("HOOK", hook).replace("RULE", rule));
    lab.must(node, line.as_deref().unwrap_or(plant));
    let run = record(&lab, folder.path(), "router", test);
    let findings = run["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["claim"] == "the test could not be run");
    let found = found.unwrap_or_else(|| panic!("{plant}: {run}"));
    println!("{plant}: {} | {}", found["evidence"], found["advice"]);
    let told = found["evidence"].as_str().unwrap();
    assert!(
        told.starts_with(&format!("node {node}: ")) && told.to_lowercase().contains(&evidence.to_lowercase()),
        "{plant}: {found}"
    );
    assert!(found["advice"].as_str().unwrap().contains(advice), "{plant}: {found}");
    lab.must(node, undo);
    measured(&lab, folder.path(), "router", test);
}

//! Planted faults: one at a time, inside a running lab, with ordinary tools. pathlab must find the right station and the
//! right name, count within its own uncertainty, accuse nobody else, and leave nothing unexplained.
//!
//! The truth never comes from the record under test: it is the counter of the tool that planted the fault, a counter of the
//! node's kernel, or the difference of two counters of nftables, behind the sender and before the receiver. The scoreboard is
//! printed; anything below 100 % fails. `cargo test --test faults -- NAME` runs one.

#[path = "faults/innocents.rs"]
mod innocents;
mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use support::{Kept, TestLab, again, command, finish, installed, is_root, pathlab, skip, start};

/// A counting rule of nftables.
macro_rules! counter {
    ($hook:literal, $length:literal) => {
        concat!(
            "nft 'table ip count { chain c { type filter hook ",
            $hook,
            " priority 0; udp length ",
            $length,
            " counter; }; }'"
        )
    };
}

/// A fault, where it must be found, and how the truth is known.
struct Fault {
    name: &'static str,
    topology: &'static str,
    /// Tests of the plan, as its lines.
    tests: &'static str,
    /// Programs without which it cannot be planted.
    needs: &'static [&'static str],
    /// Commands, each inside a node, before the run.
    plant: &'static [(&'static str, &'static str)],
    /// What happens while traffic flows.
    during: Option<During>,
    /// Node, station and name that must be accused; none for the control (nobody may be accused).
    guilty: Option<Guilty>,
    /// The true number of lost datagrams or frames.
    truth: Truth,
    /// It is planted once more beside strangers on the same path, with this truth, which counts the test's frames alone.
    beside: Option<Truth>,
    /// Interfaces where its frames must have been counted, as `node:interface`.
    sees: &'static [&'static str],
}

/// What happens in a lab while the run of this process id is measured, with a folder for what it leaves; an error says which
/// moment was missed.
type During = fn(&TestLab, u32, &Path) -> Result<(), String>;

/// Reads the truth afterwards, from the lab or from that folder.
type Truth = fn(&TestLab, &Path) -> Option<u64>;

struct Guilty {
    node: &'static str,
    station: &'static str,
    name: &'static str,
}

const fn guilty(node: &'static str, station: &'static str, name: &'static str) -> Option<Guilty> {
    Some(Guilty { node, station, name })
}

/// 64 bytes of payload; a rule for `udp length 72` counts these datagrams and not the smaller probes before the test.
/// The receiver has room for all of them, so that one that gets no CPU for a while does not add a loss of its own.
const SMALL: &str = "test udp-stream size 64 rate 20kpps duration 600ms receive-buffer 16777216";
const LARGE: &str = "test udp-stream size 1472 rate 10kpps duration 600ms receive-buffer 16777216";

/// Rules that count the datagrams of a test, and not the smaller probes before it, as they leave the sender's IP and as they are
/// handed to the receiver's UDP: for faults between the two that no tool counts.
const SMALL_OUT: (&str, &str) = ("a", counter!("postrouting", "72"));
const SMALL_IN: (&str, &str) = ("b", counter!("input", "72"));
const LARGE_OUT: (&str, &str) = ("a", counter!("postrouting", "1480"));
const LARGE_IN: (&str, &str) = ("b", counter!("input", "1480"));

/// What left `a` by its counting rule and did not reach the one of `b`.
fn lost_between(lab: &TestLab) -> Option<u64> {
    nft_packets(lab, "a")?.checked_sub(nft_packets(lab, "b")?)
}

fn lost_between_ours(lab: &TestLab, _: &Path) -> Option<u64> {
    lost_between(lab)
}

/// Drops as `tc -s` counts them at the root qdisc of an interface.
fn tc_drops(lab: &TestLab, node: &str, interface: &str) -> Option<u64> {
    let text = lab.inside(node, &format!("tc -s qdisc show dev {interface}")).ok()?;
    text.split("dropped ").nth(1)?.split(',').next()?.parse().ok()
}

/// Packets as the `counter` of the only rule counts them.
fn nft_packets(lab: &TestLab, node: &str) -> Option<u64> {
    let text = lab.inside(node, "nft list ruleset").ok()?;
    text.split("packets ").nth(1)?.split(' ').next()?.parse().ok()
}

/// A counter of a node's kernel, of `/proc/net/netstat` or `/proc/net/snmp`: a line of names, then one of values.
fn kernel(lab: &TestLab, node: &str, protocol: &str, name: &str) -> Option<u64> {
    let text = lab.inside(node, "cat /proc/net/netstat /proc/net/snmp").ok()?;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    lines.chunks(2).filter(|pair| pair[0][0] == protocol).find_map(|pair| {
        let column = pair[0].iter().position(|&column| column == name)?;
        pair[1].get(column)?.parse().ok()
    })
}

/// Waits until something is so; an error says what never was.
fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("within 10 s, {what}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Waits until an interface has received so many frames, i.e. until traffic flows.
fn until_received(lab: &TestLab, node: &str, interface: &str, frames: u64) -> Result<(), String> {
    let line = format!("cat /sys/class/net/{interface}/statistics/rx_packets");
    let received = || lab.must(node, &line).trim().parse::<u64>().expect("a counter");
    until(&format!("{node} {interface} did not receive {frames} frames"), || received() >= frames)
}

/// The agents of a run, the sender first, as it is started first.
fn agents(run: u32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children"));
    children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn signal(pid: i32, signal: Signal) -> Result<(), String> {
    kill(Pid::from_raw(pid), signal).map_err(|e| format!("process {pid}: {e}"))
}

fn stop_the_reader(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 1000)?;
    let reader = *lab.pids("b").first().ok_or("no agent runs in b")?;
    signal(reader, Signal::SIGSTOP)?;
    std::thread::sleep(Duration::from_millis(300));
    signal(reader, Signal::SIGCONT)
}

fn take_the_link_down(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 1000)?;
    lab.inside("b", "ip link set eth0 down").map(drop)
}

/// Holds the sender before it connects, then the receiver before it accepts: connections overflow the accept queue.
fn fill_the_accept_queue(lab: &TestLab, run: u32, _: &Path) -> Result<(), String> {
    // When the receiver is there too, the sender has nothing to do until it connects.
    until("the run did not start its two agents", || agents(run).len() == 2)?;
    let [sender, receiver] = agents(run)[..] else { return Err("an agent ended".into()) };
    let filled = overflow(lab, sender, receiver);
    signal(sender, Signal::SIGCONT).and(signal(receiver, Signal::SIGCONT)).and(filled)
}

/// The same up to the moment when both go on.
fn overflow(lab: &TestLab, sender: i32, receiver: i32) -> Result<(), String> {
    signal(sender, Signal::SIGSTOP)?;
    let listens = || lab.inside("b", "cat /proc/net/tcp").is_ok_and(|text| text.contains(" 0A "));
    until("the receiver did not listen", listens)?;
    signal(receiver, Signal::SIGSTOP)?;
    signal(sender, Signal::SIGCONT)?;
    let overflows = || kernel(lab, "b", "TcpExt:", "ListenOverflows").unwrap_or(0) > 0;
    until("no connection overflowed the accept queue", overflows)
}

/// Listens to what the kernel answers when the receiver asks for the drops of its packet socket. Those of a ring it tells to nobody
/// else (`PACKET_STATISTICS`), and begins again at 0 with each answer; the others it tells as long as the socket is open
/// (`SO_MEMINFO`).
fn listen_to_the_receiver(lab: &TestLab, _run: u32, folder: &Path) -> Result<(), String> {
    until("no agent ran in b", || !lab.pids("b").is_empty())?;
    let reader = lab.pids("b").first().ok_or("the agent in b ended")?.to_string();
    let mut strace = command("strace");
    strace.args(["-f", "-qq", "-e", "trace=getsockopt", "-p", &reader, "-o"]).arg(folder.join(ANSWERS));
    let output = finish(start(strace), Duration::from_secs(60));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("strace: {}", said.trim())) }
}

/// The file of what was listened to.
const ANSWERS: &str = "answers";

/// The drops in these answers: the sum of what was cleared each time, and the last of what was not, for each socket.
fn packet_socket_drops(_: &TestLab, folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join(ANSWERS)).ok()?;
    let (mut cleared, mut kept) = (vec![], BTreeMap::new());
    for line in text.lines() {
        if let Some((_, drops)) = line.split_once("PACKET_STATISTICS").and_then(|x| x.1.split_once("drops="))
        {
            cleared.push(drops.split([',', '}']).next()?.parse::<u64>().ok()?);
        } else if let Some((socket, memory)) = line.split_once(", SOL_SOCKET, SO_MEMINFO, [") {
            let drops = memory.split(']').next()?.split(", ").nth(8)?;
            kept.insert(socket.rsplit('(').next()?.to_owned(), drops.parse::<u64>().ok()?);
        }
    }
    let is_answered = !cleared.is_empty() || !kept.is_empty();
    is_answered.then(|| cleared.iter().chain(kept.values()).sum())
}

fn faults() -> Vec<Fault> {
    let mut faults = vec![
        Fault {
            name: "nothing (control)",
            topology: "bridge",
            tests: SMALL,
            needs: &["nft"],
            plant: &[SMALL_OUT, SMALL_IN],
            during: None,
            guilty: None,
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "tbf with a small limit",
            topology: "bridge",
            tests: LARGE,
            needs: &["tc"],
            plant: &[
                LARGE_OUT,
                LARGE_IN,
                ("s", "tc qdisc add dev p2 root tbf rate 50mbit burst 5kb limit 10kb"),
            ],
            during: None,
            guilty: guilty("s", "qdisc p2", "qdisc_full"),
            truth: |lab, _| tc_drops(lab, "s", "p2"),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "tbf at the sender",
            topology: "pair",
            tests: LARGE,
            needs: &["tc"],
            plant: &[
                LARGE_OUT,
                LARGE_IN,
                ("a", "tc qdisc add dev eth0 root tbf rate 50mbit burst 5kb limit 10kb"),
            ],
            during: None,
            guilty: guilty("a", "qdisc eth0", "qdisc_full"),
            truth: |lab, _| tc_drops(lab, "a", "eth0"),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "small receive buffer",
            topology: "bridge",
            tests: "test udp-stream size 64 duration 400ms receive-buffer 2304",
            needs: &[],
            plant: &[],
            during: None,
            guilty: guilty("b", "socket", "socket_buffer_full"),
            truth: |lab, _| kernel(lab, "b", "Udp:", "RcvbufErrors"),
            beside: Some(|lab, _| kernel(lab, "b", "Udp:", "RcvbufErrors")),
            sees: &[],
        },
        Fault {
            name: "frames, tbf at the sender",
            topology: "pair",
            tests: "test frames size 1514 rate 10kpps duration 600ms",
            needs: &["tc"],
            plant: &[("a", "tc qdisc add dev eth0 root tbf rate 50mbit burst 5kb limit 10kb")],
            during: None,
            guilty: guilty("a", "qdisc eth0", "qdisc_full"),
            truth: |lab, _| tc_drops(lab, "a", "eth0"),
            beside: None,
            sees: &[],
        },
        Fault {
            name: "frames, tbf on the way",
            topology: "bridge",
            tests: "test frames size 1514 rate 10kpps duration 600ms",
            needs: &["tc"],
            plant: &[("s", "tc qdisc add dev p2 root tbf rate 50mbit burst 5kb limit 10kb")],
            during: None,
            guilty: guilty("s", "qdisc p2", "qdisc_full"),
            truth: |lab, _| tc_drops(lab, "s", "p2"),
            beside: None,
            sees: &[],
        },
        Fault {
            name: "frames, small port buffer",
            topology: "bridge",
            tests: "test frames duration 400ms port int/int?buffer=2304",
            needs: &["strace"],
            plant: &[],
            during: Some(listen_to_the_receiver),
            guilty: guilty("b", "tap eth0", "socket_buffer_full"),
            truth: packet_socket_drops,
            beside: None,
            sees: &[],
        },
        Fault {
            name: "frames, small ring",
            topology: "bridge",
            tests: "test frames duration 400ms port int/ring?version=2&frames=8",
            needs: &["strace"],
            plant: &[],
            during: Some(listen_to_the_receiver),
            guilty: guilty("b", "tap eth0", "ring_full"),
            truth: packet_socket_drops,
            beside: None,
            sees: &[],
        },
        Fault {
            name: "frames by ring, tbf on the way",
            topology: "router",
            tests: "test frames size 1514 rate 10kpps duration 600ms port ring",
            needs: &["tc"],
            plant: &[("r", "tc qdisc add dev eth1 root tbf rate 50mbit burst 5kb limit 10kb")],
            during: None,
            guilty: guilty("r", "qdisc eth1", "qdisc_full"),
            truth: |lab, _| tc_drops(lab, "r", "eth1"),
            beside: None,
            sees: &[],
        },
        Fault {
            name: "nftables drop in forward",
            topology: "router",
            tests: SMALL,
            needs: &["nft"],
            plant: &[(
                "r",
                "nft 'table ip t { chain f { type filter hook forward priority 0; \
                 udp length 72 numgen inc mod 3 0 counter drop; }; }'",
            )],
            during: None,
            guilty: guilty("r", "ip forward", "filter_forward"),
            truth: |lab, _| nft_packets(lab, "r"),
            beside: Some(|lab, _| nft_packets(lab, "r")),
            sees: &[],
        },
        Fault {
            name: "nftables drop in input",
            topology: "bridge",
            tests: SMALL,
            needs: &["nft"],
            plant: &[(
                "b",
                "nft 'table ip t { chain i { type filter hook input priority 0; \
                 udp length 72 numgen inc mod 3 0 counter drop; }; }'",
            )],
            during: None,
            guilty: guilty("b", "ip in", "filter_input"),
            truth: |lab, _| nft_packets(lab, "b"),
            beside: Some(|lab, _| nft_packets(lab, "b")),
            sees: &[],
        },
        Fault {
            name: "MTU hole behind a bridge",
            topology: "bridge",
            tests: LARGE,
            needs: &["ip", "nft"],
            plant: &[LARGE_OUT, LARGE_IN, ("b", "ip link set eth0 mtu 1000")],
            during: None,
            guilty: guilty("s", "link p2", "mtu_exceeded"),
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "MTU hole at a bridge port",
            topology: "bridge",
            tests: LARGE,
            needs: &["ip", "nft"],
            plant: &[LARGE_OUT, LARGE_IN, ("s", "ip link set p2 mtu 1000 && ip link set br0 mtu 1500")],
            during: None,
            guilty: guilty("s", "bridge br0", "mtu_exceeded"),
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "txqueuelen 2 under a shaper",
            topology: "bridge",
            tests: LARGE,
            needs: &["tc"],
            plant: &[
                LARGE_OUT,
                LARGE_IN,
                (
                    "s",
                    "ip link set p2 txqueuelen 2 && tc qdisc add dev p2 root handle 1: htb default 10 && \
                 tc class add dev p2 parent 1: classid 1:10 htb rate 50mbit quantum 1514",
                ),
            ],
            during: None,
            guilty: guilty("s", "qdisc p2", "qdisc_full"),
            truth: |lab, _| tc_drops(lab, "s", "p2"),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "rp_filter at the receiver",
            topology: "router",
            tests: SMALL,
            needs: &["ip", "nft"],
            plant: &[
                SMALL_OUT,
                SMALL_IN,
                (
                    "b",
                    "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1 && \
                 ip -4 route del default",
                ),
            ],
            during: None,
            guilty: guilty("b", "ip in", "rp_filter"),
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "rp_filter at a router",
            topology: "router",
            tests: SMALL,
            needs: &["ip", "nft"],
            plant: &[
                SMALL_OUT,
                SMALL_IN,
                (
                    "a",
                    "sysctl -qw net.ipv4.conf.eth0.arp_announce=2 && ip addr add 10.9.9.9/32 dev lo && \
                     ip route change default via 10.0.1.1 src 10.9.9.9",
                ),
                ("r", "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1"),
            ],
            during: None,
            guilty: guilty("r", "ip forward", "rp_filter"),
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "stopped reader",
            topology: "bridge",
            tests: "test udp-stream size 64 rate 50kpps duration 800ms receive-buffer system",
            needs: &[],
            plant: &[],
            during: Some(stop_the_reader),
            guilty: guilty("b", "socket", "socket_buffer_full"),
            truth: |lab, _| kernel(lab, "b", "Udp:", "RcvbufErrors"),
            beside: Some(|lab, _| kernel(lab, "b", "Udp:", "RcvbufErrors")),
            sees: &[],
        },
    ];
    faults.extend(faults_of_links());
    faults.extend(innocents::innocents());
    faults
}

fn faults_of_links() -> Vec<Fault> {
    vec![
        Fault {
            name: "missing neighbour entry",
            topology: "pair",
            tests: SMALL,
            needs: &["ip", "nft"],
            plant: &[SMALL_OUT, SMALL_IN, ("b", "ip link set eth0 arp off"), ("a", "ip neigh flush all")],
            during: None,
            guilty: guilty("a", "ip out", "neighbour_unresolved"),
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "missing neighbour at a router",
            topology: "router",
            tests: SMALL,
            needs: &["ip", "nft"],
            plant: &[SMALL_OUT, SMALL_IN, ("b", "ip link set eth0 arp off"), ("r", "ip neigh flush all")],
            during: None,
            guilty: guilty("r", "ip forward", "neighbour_unresolved"),
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "link down in mid-run",
            topology: "bridge",
            tests: "test udp-stream size 64 rate 20kpps duration 800ms receive-buffer 16777216",
            needs: &["ip", "nft"],
            plant: &[SMALL_OUT, SMALL_IN],
            during: Some(take_the_link_down),
            guilty: guilty("s", "*", "link_down"),
            truth: |lab, _| lost_between(lab),
            beside: Some(lost_between_ours),
            sees: &[],
        },
        Fault {
            name: "full accept queue",
            topology: "bridge",
            tests: "test tcp-stream streams 16 duration 500ms",
            needs: &[],
            plant: &[("b", "sysctl -qw net.core.somaxconn=1")],
            during: Some(fill_the_accept_queue),
            guilty: guilty("b", "accept queue", "accept_queue"),
            truth: |lab, _| kernel(lab, "b", "TcpExt:", "ListenOverflows"),
            beside: None,
            sees: &[],
        },
    ]
}

/// One line of the scoreboard.
struct Score {
    fault: String,
    expected: String,
    found: String,
    verdict: Result<(), String>,
}

/// What a fault that depends on the moment says when the moment was missed.
const NOT_PLANTED: &str = "the fault lost nothing: badly planted";

/// How the reason begins when a wait gave up.
const MISSED: &str = "badly planted: ";

/// What is said when others were accused, too, and the witness counted those losses as well. On a busy machine a reader can
/// be held up so long that its socket really overflows beside the planted fault; the accusation is right then, and the
/// experiment is not. An accusation that nobody confirms is never tried again.
const BESIDE: &str = "somebody else was accused too, and the witness agrees";

/// How often a fault is played at most.
const PLAYS: usize = 4;

/// Others' datagrams on the same path: of two lengths, to ports where nobody listens (so the kernel answers each), and to everybody on
/// the link, some thousands a second until the process is ended.
const STRANGERS: &str = "import socket,sys,time
one=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); one.setsockopt(socket.SOL_SOCKET,socket.SO_BROADCAST,1)
while True:
  for payload,port in ((b'x'*200,9001),(b'y'*1400,9002),(b'z'*100,9004)):
    for _ in range(2):
      try: one.sendto(payload,(sys.argv[1],port))
      except OSError: pass
  try: one.sendto(b'w'*100,('255.255.255.255',9003))
  except OSError: pass
  time.sleep(0.001)
";

/// Starts the strangers in `a`.
fn strangers(lab: &TestLab) -> Kept {
    let address = lab.must("b", "ip -4 -o addr show eth0");
    let address =
        address.split_whitespace().nth(3).and_then(|word| word.split('/').next()).expect("an address");
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("a"), "python3", "-c", STRANGERS, address]);
    Kept::new(start(tool))
}

/// Plays a fault; one that missed its moment is planted again, and so is one that was not alone: a wrong accusation would come again.
fn play_until_planted(fault: &Fault, is_beside: bool) -> Score {
    let once = || {
        let score = play(fault, is_beside);
        let why = score
            .verdict
            .as_ref()
            .err()
            .filter(|why| **why == BESIDE || **why == NOT_PLANTED || why.starts_with(MISSED));
        let why = why.map(|why| format!("{why}; found {}", score.found));
        (score, why)
    };
    again::play("planted faults", &title(fault, is_beside), PLAYS, once)
}

fn title(fault: &Fault, is_beside: bool) -> String {
    format!("{}{}", fault.name, if is_beside { ", beside strangers" } else { "" })
}

/// The name of a topology, or the file of one that is written out.
fn topology(fault: &Fault, folder: &Path) -> String {
    if !fault.topology.contains('\n') {
        return fault.topology.to_owned();
    }
    let file = folder.join("fault.lab");
    std::fs::write(&file, fault.topology).unwrap();
    file.display().to_string()
}

/// Plants one fault, runs the plan, compares.
fn play(fault: &Fault, is_beside: bool) -> Score {
    let folder = tempfile::tempdir().unwrap();
    let lab = TestLab::up(&topology(fault, folder.path()), "fault");
    let name = title(fault, is_beside);
    let _strangers = is_beside.then(|| strangers(&lab));
    let expected =
        fault.guilty.as_ref().map_or("nobody".into(), |g| format!("{} {}: {}", g.node, g.station, g.name));
    for (node, line) in fault.plant {
        if let Err(problem) = lab.inside(node, line) {
            return Score {
                fault: name,
                expected,
                found: String::new(),
                verdict: Err(format!("not planted: {problem}")),
            };
        }
    }
    let plan = folder.path().join("fault.plan");
    std::fs::write(&plan, format!("topology bridge\nrepetitions 1\n{}\n", fault.tests)).unwrap();
    let records = folder.path().join("runs");
    let (plan, records) = (plan.display().to_string(), records.display().to_string());
    let child = start(pathlab(&["run", &plan, "--lab", &lab.name, "--dir", &records, "--json"]));
    let mut missed = None;
    if let Some(during) = fault.during {
        missed = during(&lab, child.id(), folder.path()).err();
    }
    let output = finish(child, Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let json: Value = match serde_json::from_slice::<Value>(&output.stdout) {
        // A fault that takes all of a test makes the run end with code 1, after the results.
        Ok(json) if matches!(output.status.code(), Some(0 | 1)) && json["tests"][0].is_object() => json,
        _ => {
            let verdict = Err(format!("run ended with {}: {}", output.status, words.trim()));
            return Score { fault: name, expected, found: String::new(), verdict };
        }
    };
    let test = &json["tests"][0];
    let truth = fault.beside.filter(|_| is_beside).unwrap_or(fault.truth);
    let truth = truth(&lab, folder.path());
    let found = accused(test);
    let names: Vec<String> =
        found.iter().map(|a| format!("{} {}: {} ×{}", a.node, a.station, a.name, a.count)).collect();
    let verdict =
        missed.map_or_else(|| judge(fault, test, &found, truth), |why| Err(format!("{MISSED}{why}")));
    if verdict.is_err() {
        eprintln!(
            "--- {}: {}",
            fault.name,
            serde_json::to_string_pretty(&test["ledger"]).unwrap_or_default()
        );
        eprintln!("--- limit: {}", test["limit"]);
    }
    Score { fault: name, expected, found: names.join(", "), verdict }
}

/// Somebody whom the result accuses.
struct Accused {
    node: String,
    station: String,
    name: String,
    count: u64,
    uncertainty: u64,
}

/// All stations with a named drop or a residual beyond the uncertainty; for TCP the accept queue.
fn accused(test: &Value) -> Vec<Accused> {
    let mut found = vec![];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for station in test["ledger"]["stations"].as_array().into_iter().flatten() {
        let uncertainty = station["uncertainty"].as_u64().unwrap_or(0);
        let mut accuse = |name: String, count: u64| {
            if count > uncertainty {
                let (node, station) = (text(&station["node"]), text(&station["station"]));
                found.push(Accused { node, station, name, count, uncertainty });
            }
        };
        // A copy that ends somewhere else is no loss.
        let drops = station["drops"].as_array().into_iter().flatten();
        for drop in drops.filter(|drop| drop["name"] != "copy") {
            accuse(text(&drop["name"]), drop["count"].as_u64().unwrap_or(0));
        }
        accuse("residual".into(), station["residual"].as_i64().unwrap_or(0).unsigned_abs());
    }
    if test["limit"]["what"] == "accept_queue" {
        let evidence = text(&test["limit"]["evidence"]);
        let count =
            evidence.split(|c: char| !c.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap_or(0);
        let place = text(&test["limit"]["where"]);
        let node = place.trim_start_matches("node ").split([',', ' ']).next().unwrap_or_default().to_owned();
        found.push(Accused {
            node,
            station: "accept queue".into(),
            name: "accept_queue".into(),
            count,
            uncertainty: 0,
        });
    }
    found
}

fn judge(fault: &Fault, test: &Value, found: &[Accused], truth: Option<u64>) -> Result<(), String> {
    let ledger = &test["ledger"];
    if !ledger.is_null() {
        let unexplained = ledger["unexplained"].as_i64().ok_or("no 'unexplained' in the ledger")?;
        let uncertainty = ledger["uncertainty"].as_u64().unwrap_or(0);
        if unexplained.unsigned_abs() > uncertainty {
            return Err(format!("unexplained {unexplained} ± {uncertainty}"));
        }
        let witness = ledger["witness"]["status"].as_str().unwrap_or_default();
        if witness != "agrees" {
            return Err(format!("the witness {witness}: {}", ledger["witness"]["disagreement"]));
        }
    }
    if let Some(unseen) = fault.sees.iter().find(|place| !is_seen(test, place)) {
        return Err(format!("no frame was seen at {unseen}"));
    }
    let Some(guilty) = &fault.guilty else {
        // The witness agrees, or this would not be reached: the machine itself lost frames.
        return match (found, truth) {
            ([], Some(0)) => Ok(()),
            ([], truth) => Err(format!("nobody was accused, true is {truth:?}")),
            _ => Err(BESIDE.into()),
        };
    };
    let is_guilty = |a: &&Accused| {
        a.node == guilty.node
            && a.name == guilty.name
            && (guilty.station == "*" || a.station == guilty.station)
    };
    let right: Vec<&Accused> = found.iter().filter(is_guilty).collect();
    let truth = truth.ok_or("the truth could not be read")?;
    if truth == 0 {
        return Err(NOT_PLANTED.into());
    }
    if right.is_empty() {
        return Err("the guilty station was not accused".into());
    }
    if right.len() < found.len() {
        let confirmed = ledger["witness"]["status"] == "agrees";
        return Err(if confirmed { BESIDE } else { "somebody else was accused too" }.into());
    }
    let count: u64 = right.iter().map(|a| a.count).sum();
    let uncertainty: u64 = right.iter().map(|a| a.uncertainty).sum();
    if count.abs_diff(truth) > uncertainty {
        return Err(format!("counted {count} ± {uncertainty}, true is {truth}"));
    }
    Ok(())
}

/// Whether frames of the test were counted at `node:interface`.
fn is_seen(test: &Value, place: &str) -> bool {
    let mut interfaces = test["flow"]["interfaces"].as_array().into_iter().flatten();
    interfaces.any(|one| {
        let name =
            format!("{}:{}", one["node"].as_str().unwrap_or(""), one["interface"].as_str().unwrap_or(""));
        name == place && one["counts"].as_array().is_some_and(|counts| !counts.is_empty())
    })
}

fn main() -> ExitCode {
    if !is_root() {
        skip("planted faults", "needs root, to plant faults with ordinary tools and to run the witness");
        println!("0 passed, 0 failed, {} skipped", faults().len());
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (mut scores, mut skipped) = (vec![], 0);
    for fault in faults() {
        if !wanted.is_empty() && !wanted.iter().any(|word| fault.name.contains(word.as_str())) {
            continue;
        }
        match fault.needs.iter().find(|program| !installed(program)) {
            Some(program) => {
                skip(&format!("planted fault '{}'", fault.name), &format!("{program} is not installed"));
                skipped += 1;
            }
            None => {
                scores.push(play_until_planted(&fault, false));
                if fault.beside.is_some() {
                    scores.push(play_until_planted(&fault, true));
                }
            }
        }
    }
    println!(
        "\nplanted faults: right station, right name, count within uncertainty, nobody else accused, nothing unexplained"
    );
    for score in &scores {
        let mark = if score.verdict.is_ok() { "found " } else { "MISSED" };
        println!("  {mark}  {:<48} expected {:<34} found {}", score.fault, score.expected, score.found);
        if let Err(why) = &score.verdict {
            println!("          {why}");
        }
    }
    let passed = scores.iter().filter(|score| score.verdict.is_ok()).count();
    let failed = scores.len() - passed;
    println!("score {} %", 100 * passed / scores.len().max(1));
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

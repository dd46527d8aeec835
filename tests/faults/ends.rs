//! Faults at the ends: buffers, readers, queues of connections, ports; and what the sender itself is refused.

use super::plan::{Fault, Truth, drop_one_in_three, kernel, until, until_received};
use super::support::{TestLab, command, finish, start};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub fn all() -> Vec<Fault> {
    let full = || Truth::Kernel("b", "Udp:", "RcvbufErrors");
    vec![
        Fault::new("small receive buffer", "bridge")
            .tests("test udp-stream size 64 duration 400ms receive-buffer 2304")
            .guilty("b", "socket", "socket_buffer_full", full())
            .beside_strangers(),
        Fault::new("small receive buffer, IPv6", "router")
            .tests("test udp-stream size 64 family 6 duration 400ms receive-buffer 2304")
            .guilty("b", "socket", "socket_buffer_full", Truth::By(|lab, _| udp6(lab, "Udp6RcvbufErrors"))),
        Fault::new("stopped reader", "bridge")
            .tests("test udp-stream size 64 rate 50kpps duration 800ms receive-buffer system")
            .during(stop_the_reader)
            .guilty("b", "socket", "socket_buffer_full", full())
            .beside_strangers(),
        Fault::new("full accept queue", "bridge")
            .tests("test tcp-stream streams 16 duration 500ms")
            .plant("b", "sysctl -qw net.core.somaxconn=1")
            .during(fill_the_accept_queue)
            .guilty("b", "accept queue", "accept_queue", Truth::Kernel("b", "TcpExt:", "ListenOverflows")),
        Fault::new("drop at the sender's output", "bridge")
            .plant("a", drop_one_in_three!("ip", "output"))
            .guilty("a", "app send", "send_EPERM", Truth::Nft("a"))
            .beside_strangers(),
        Fault::new("drop at the sender's output, IPv6", "router")
            .tests(super::plan::SMALL_V6)
            .plant("a", drop_one_in_three!("ip6", "output"))
            .guilty("a", "app send", "send_EPERM", Truth::Nft("a")),
        Fault::new("drop of answers at their output", "bridge")
            .tests(super::plan::REQUESTS)
            .plant("b", drop_one_in_three!("ip", "output"))
            .guilty("b", "app reply", "send_EPERM", Truth::Nft("b")),
        Fault::new("no echo replies", "bridge")
            .tests("test ping size 56 count 400 rate 1kpps")
            .plant("b", drop_one_in_three!("ip", "output", "icmp type echo-reply ip length 84"))
            .guilty("b", "icmp echo", "filter_output", Truth::Nft("b"))
            .without_bpf("b", "ip out"),
    ]
}

/// A counter of `/proc/net/snmp6`.
fn udp6(lab: &TestLab, name: &str) -> Option<u64> {
    let text = lab.inside("b", "cat /proc/net/snmp6").ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
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
pub fn listen_to_the_receiver(lab: &TestLab, _run: u32, folder: &Path) -> Result<(), String> {
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
pub fn packet_socket_drops(_: &TestLab, folder: &Path) -> Option<u64> {
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

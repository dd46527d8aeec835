//! Rules in the kernel: what it forwards no thread of the switch sees, what it leaves over comes to user space, a barrier stays true, counters
//! and timeouts are those of the standard, and nothing is left of a switch that was killed. Real interfaces in namespaces.

use crate::barrier::flood;
use crate::client::{Client, End, PATIENCE, add, frame, rule};
use crate::engines;
use crate::links::{mod_port, transfer};
use crate::site::{Site, needs_root, within};
use crate::support;
use flow::openflow::bytes::Version;
use flow::openflow::message::Body;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::PortStatsRequest;
use flow::port::PortNo;
use flow::rule::FlowModCommand;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switch::config::{Listen, SwitchConfig};
use switch::control::{Switch, SwitchNotice};

/// An engine of the kernel and a kind of ports that it serves.
const ENGINES: [(&str, &str); 3] = [("tcx", "int"), ("tcx", "ring"), ("xdp", "xdp")];

/// Batches that user space worked on, programs that the kernel was given, and whether one is there.
type Work = (u64, u64, bool);

/// A switch in this process, at the cables of a site.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    work: Arc<Mutex<Work>>,
    said: Arc<Mutex<Vec<SwitchNotice>>>,
}

impl Running {
    fn start(site: &Site, engine: &str, ports: &[String]) -> Running {
        let mut config = SwitchConfig::new("k", 7);
        config.engine = engines::named(engine);
        config.ports = (1..).map(PortNo).zip(ports.iter().cloned()).collect();
        config.listen.push(Listen::Unix(site.socket()).into());
        let mut switch = within(&site.netns(0), || Switch::start(&config)).unwrap();
        let (stop, work, said) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<Work>>::default(), Arc::default());
        let (is_over, noted, notes): (_, _, Arc<Mutex<Vec<SwitchNotice>>>) =
            (stop.clone(), work.clone(), Arc::clone(&said));
        let netns = site.netns(0);
        let thread = std::thread::spawn(move || {
            within(&netns, move || {
                while !is_over.load(SeqCst) {
                    switch.step().unwrap();
                    notes.lock().unwrap().extend(switch.news());
                    *noted.lock().unwrap() = switch.work();
                }
            });
        });
        Running { stop, thread: Some(thread), work, said }
    }

    /// With the usual ports of a kind.
    fn usual(site: &Site, (engine, kind): (&str, &str)) -> Running {
        let ports: Vec<String> = (1..=site.hosts.len()).map(|host| format!("{kind}:p{host}")).collect();
        Running::start(site, engine, &ports)
    }

    /// Waits until a program made of the rules as they are now is in the kernel. Any request makes the switch's loop turn.
    fn settle(&self, client: &mut Client) -> Work {
        let deadline = Instant::now() + PATIENCE;
        loop {
            client.must([]);
            let work = *self.work.lock().unwrap();
            if work.2 {
                return work;
            }
            assert!(Instant::now() < deadline, "no program in the kernel: {:?}", self.said.lock().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn batches(&self, client: &mut Client) -> u64 {
        // Twice: what is noted is noted at the end of a turn.
        client.must([]);
        client.must([]);
        self.work.lock().unwrap().0
    }

    fn said(&self, what: &str) -> bool {
        let is_it = |notice: &SwitchNotice| matches!(notice, SwitchNotice::Kernel { what: said } if said.contains(what));
        self.said.lock().unwrap().iter().any(is_it)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().expect("the switch ended without a panic");
        }
    }
}

fn client(site: &Site) -> Client {
    Client::connect(&site.socket(), Version::V13)
}

fn ends<const N: usize>(site: &Site) -> [End; N] {
    std::array::from_fn(|at| within(&site.netns(at + 1), || End::open("int:eth0")))
}

/// A frame that differs from others by its number.
fn numbered(number: u32) -> Vec<u8> {
    frame(&format!(
        "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:02 / ip dst=10.1.0.1 / udp dport=7 / raw {number:08x}"
    ))
}

/// Frames that an interface of the switch received and sent, as the kernel says.
fn passed(site: &Site, interface: &str) -> (u64, u64) {
    let (ok, text) = site.try_run(0, &format!("ip -s -o link show {interface}"));
    assert!(ok, "{text}");
    let packets = |way: &str| {
        let numbers = text.split(way).nth(1).unwrap().split('\\').nth(1).unwrap();
        numbers.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (packets("RX:"), packets("TX:"))
}

fn sent_by(site: &Site, interface: &str) -> u64 {
    passed(site, interface).1
}

/// Frames of a port, as the switch says: received, sent.
fn port_counts(client: &mut Client, number: u32) -> (u64, u64) {
    let request = PortStatsRequest { port_no: number };
    match &client.question(Request::PortStats(request))[0] {
        Reply::PortStats(ports) => (ports[0].rx_packets, ports[0].tx_packets),
        other => panic!("{other:?}"),
    }
}

/// What the rule with this priority counted.
fn rule_count(client: &mut Client, priority: u16) -> u64 {
    client.rules().iter().find(|rule| rule.priority == priority).expect("the rule is there").packet_count
}

fn skipped(what: &str) -> bool {
    needs_root(what)
}

#[test]
fn the_kernel_forwards_and_user_space_gets_what_it_leaves_over() {
    if skipped("rules in the kernel") {
        return;
    }
    for engine in ENGINES {
        let site = Site::bare(2);
        let running = Running::usual(&site, engine);
        let mut client = client(&site);
        client.must([
            add("priority=5,udp,in_port=1 actions=dec_ttl,output:2"),
            add("priority=6,in_port=2 actions=output:1"),
            add("priority=9,dl_type=0x88b5 actions=CONTROLLER:65535"),
        ]);
        let [mut from, mut to] = ends(&site);
        running.settle(&mut client);
        let before = running.batches(&mut client);
        // Hosts may say something of their own: the port heard what the interface did.
        let (outside, inside) =
            ((passed(&site, "p1").0, sent_by(&site, "p2")), port_counts(&mut client, 1).0);
        for number in 0..200 {
            from.send(&numbered(number));
            let expected = frame(&format!(
                "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:02 / ip ttl=63,dst=10.1.0.1 / udp dport=7 / raw {number:08x}"
            ));
            assert_eq!(to.must(), expected, "{engine:?}");
        }
        assert_eq!(sent_by(&site, "p2") - outside.1, 200, "{engine:?}");
        let heard = passed(&site, "p1").0 - outside.0;
        assert_eq!(running.batches(&mut client), before, "user space saw none: {engine:?}");
        assert_eq!(rule_count(&mut client, 5), 200, "{engine:?}");
        assert_eq!(port_counts(&mut client, 1).0 - inside, heard, "{engine:?}");
        assert_eq!(port_counts(&mut client, 2).1, 200, "{engine:?}");
        // What asks a controller comes to it, whole and once.
        let asked = frame(
            "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:02 type=0x88b5 / raw 0102030405060708090a0b0c0d0e0f10",
        );
        from.send(&asked);
        let bytes = client.wait_for("the packet-in", |message| match &message.body {
            Body::PacketIn(one) => Some(one.data.0.clone()),
            _ => None,
        });
        assert_eq!(bytes[..asked.len()], asked, "{engine:?}");
        assert!(running.batches(&mut client) > before, "user space did that: {engine:?}");
        assert_eq!(rule_count(&mut client, 9), 1, "{engine:?}");
        assert_eq!(port_counts(&mut client, 1).0 - inside, passed(&site, "p1").0 - outside.0, "{engine:?}");
        to.nothing();
        from.nothing();
        assert!(client.unasked.iter().all(|message| !matches!(message.body, Body::PacketIn(_))));
        assert!(running.said("2 rules carried out in the kernel"), "{:?}", running.said.lock().unwrap());
        assert!(running.said("compared with the interpreter on"), "{:?}", running.said.lock().unwrap());
    }
}

/// Ways of a frame, as ovs-ofctl writes them, the port that it leaves by, and whether the kernel does it.
const WAYS: [(&str, usize); 4] =
    [("output:2", 2), ("output:3", 3), ("set_field:02:00:00:00:00:77->eth_dst,output:2", 2), ("group:1", 3)];

#[test]
fn after_the_reply_of_a_barrier_the_next_frame_meets_the_new_rule() {
    if skipped("barriers before rules in the kernel") {
        return;
    }
    for engine in [("tcx", "int"), ("xdp", "xdp")] {
        let site = Site::bare(5);
        let running = Running::usual(&site, engine);
        let mut client = client(&site);
        client.must([
            add("priority=20,in_port=4 actions=output:5"),
            crate::client::group(
                flow::numbered::ModCommand::Add,
                "group_id=1,type=indirect,bucket=actions=output:3",
            ),
        ]);
        let [mut from, mut second, mut third, source, sink] = ends(&site);
        let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| flood(source, &frame("eth / ip dst=10.0.0.0 / udp"), &stop, &came));
            scope.spawn(|| crate::barrier::swallow(sink, &stop, &came));
            let _end = crate::barrier::Stop(&stop);
            let mut given = 0;
            for turn in 0..60u32 {
                let (actions, port) = WAYS[turn as usize % WAYS.len()];
                // Half of the changes find a program at work, the others come while none is there yet.
                if turn % 2 == 0 {
                    given = running.settle(&mut client).1.max(given);
                }
                client.must([add(&format!("priority=10,in_port=1 actions={actions}"))]);
                from.send(&numbered(turn));
                let came = if port == 2 { second.must() } else { third.must() };
                let mut expected = numbered(turn);
                expected[5] = if actions.contains("77") { 0x77 } else { 2 };
                assert_eq!(came, expected, "turn {turn} of {engine:?}: {actions}");
            }
            client.must([rule(FlowModCommand::DeleteStrict, "priority=10,in_port=1")]);
            from.send(&numbered(99));
            second.nothing();
            third.nothing();
            assert!(given > 20, "only {given} programs were at work: {engine:?}");
        });
        assert!(came.load(SeqCst) > 0, "there was traffic");
    }
}

#[test]
fn a_rule_that_the_kernel_uses_is_not_idle_and_what_it_counted_is_told_at_its_end() {
    if skipped("idle timeouts of rules in the kernel") {
        return;
    }
    for engine in [("tcx", "int"), ("xdp", "xdp")] {
        let site = Site::bare(2);
        let running = Running::usual(&site, engine);
        let mut client = client(&site);
        client.must([add("priority=5,idle_timeout=3,send_flow_rem,in_port=1 actions=output:2")]);
        let [mut from, mut to] = ends(&site);
        let given = running.settle(&mut client).1;
        let begun = Instant::now();
        let mut sent = 0;
        // Three times as long as the rule may be idle.
        while begun.elapsed() < Duration::from_secs(9) {
            from.send(&numbered(sent));
            assert_eq!(to.must(), numbered(sent), "{engine:?}");
            sent += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        // It stayed where it was: nobody took it out to look.
        assert_eq!(running.settle(&mut client).1, given, "{engine:?}");
        let count = client.wait_for("the end of the rule", |message| match &message.body {
            Body::FlowRemoved(removed) => Some(removed.packet_count),
            _ => None,
        });
        assert_eq!(count, u64::from(sent), "{engine:?}");
    }
}

/// The tap of a port in tcx is an interface on which the kernel speaks: what it says is not of the cable.
#[test]
fn a_switch_that_starts_counts_nothing_on_a_silent_cable() {
    if skipped("ports of a switch in the kernel") {
        return;
    }
    let site = Site::bare(2);
    let running = Running::usual(&site, ("tcx", "int"));
    let mut client = client(&site);
    client.must([add("priority=5,in_port=1 actions=output:2")]);
    running.settle(&mut client);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!([1, 2].map(|port| port_counts(&mut client, port)), [(0, 0); 2]);
}

#[test]
fn a_switch_that_is_killed_leaves_nothing_between_the_cable_and_the_host() {
    if skipped("a kill of rules in the kernel") {
        return;
    }
    for (engine, kind) in [("tcx", "int"), ("xdp", "xdp")] {
        let mut site = Site::build(2);
        site.ip(0, "address add 10.0.0.9/24 dev p1");
        // The switch cannot find the namespaces of the hosts: no process lives there.
        for host in [1, 2] {
            let (ok, text) = site.try_run(host, "ethtool -K eth0 gro on");
            assert!(ok, "{text}");
        }
        let ports = [1, 2].map(|port| format!("{port}={kind}:p{port}"));
        let socket = format!("punix:{}", site.socket().display());
        site.reaches(1, "10.0.0.9");
        site.switch(&["--port", &ports[0], "--port", &ports[1], "--engine", engine, "--listen", &socket]);
        site.wait_for("the socket", |site| site.socket().exists());
        let mut client = client(&site);
        client.must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
        site.wait_for("rules in the kernel", |site| {
            site.logs().contains("2 rules carried out in the kernel")
        });
        site.reaches(1, "10.0.0.2");
        assert!(!site.pings(1, "10.0.0.9"), "the host gets no frames: {engine}");
        drop(client);
        site.kill();
        site.reaches(1, "10.0.0.9");
        let (_, links) = site.try_run(0, "ip link");
        assert!(!links.contains("xdp") && !links.contains("plx"), "{links}");
    }
}

#[test]
fn tcp_goes_through_tcx_as_super_frames_and_through_xdp_with_its_checksums() {
    if skipped("TCP through the kernel") {
        return;
    }
    for engine in [("tcx", "int"), ("xdp", "xdp")] {
        let site = Site::build(2);
        let running = Running::usual(&site, engine);
        let mut client = client(&site);
        client.must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
        running.settle(&mut client);
        site.reaches(1, "10.0.0.2");
        let (frames, batches) = (sent_by(&site, "p2"), running.batches(&mut client));
        let total = 8 << 20;
        transfer(&site, "10.0.0.2", 5000, total);
        if engine.0 == "tcx" {
            let frames = sent_by(&site, "p2") - frames;
            assert!(frames * 4000 < total as u64, "{frames} frames for {total} bytes: they were cut");
            assert_eq!(running.batches(&mut client), batches, "user space saw none");
        }
        // And what the kernel leaves over to user space keeps its description: a group is not for it.
        let group = "group_id=1,type=indirect,bucket=actions=output:2";
        client.must([
            crate::client::group(flow::numbered::ModCommand::Add, group),
            add("in_port=1 actions=group:1"),
        ]);
        running.settle(&mut client);
        transfer(&site, "10.0.0.2", 5001, total);
        assert!(running.batches(&mut client) > batches, "{engine:?}");
    }
}

#[test]
fn ports_that_a_controller_configures_are_so_in_the_kernel_too() {
    if skipped("port-mod and rules in the kernel") {
        return;
    }
    for engine in [("tcx", "int"), ("xdp", "xdp")] {
        let site = Site::bare(2);
        let running = Running::usual(&site, engine);
        let mut client = client(&site);
        client.must([add("udp,in_port=1 actions=output:2")]);
        let [mut from, mut to] = ends(&site);
        for (number, (port, off, on)) in
            (0u32..).zip([(2, "no-forward", "forward"), (1, "no-receive", "receive")])
        {
            for (word, passes) in [(off, false), (on, true)] {
                mod_port(&site, port, word);
                running.settle(&mut client);
                let bytes = numbered(2 * number + u32::from(passes));
                from.send(&bytes);
                match passes {
                    true => assert_eq!(to.must(), bytes, "{engine:?} {word}"),
                    false => to.nothing(),
                }
            }
        }
        assert_eq!(port_counts(&mut client, 2).1, 2, "{engine:?}");
    }
}

#[test]
fn ports_that_are_no_interfaces_are_served_by_user_space_and_that_is_said() {
    if skipped("a mixture of ports") {
        return;
    }
    let site = Site::bare(2);
    let ports = ["int:p1".to_owned(), "int:p2".to_owned(), "mem:kernel-mixture".to_owned()];
    let running = Running::start(&site, "tcx", &ports);
    let mut client = client(&site);
    let mut wire = End::open("mem:kernel-mixture");
    client.must([
        add("priority=1,in_port=1 actions=output:2"),
        add("priority=2,in_port=2 actions=output:3"),
        add("priority=3,in_port=3 actions=output:1"),
    ]);
    let [mut first, mut second] = ends(&site);
    running.settle(&mut client);
    for number in 0..20 {
        first.send(&numbered(number));
        assert_eq!(second.must(), numbered(number));
        second.send(&numbered(number + 100));
        assert_eq!(wire.must(), numbered(number + 100));
        wire.send(&numbered(number + 200));
        assert_eq!(first.must(), numbered(number + 200));
    }
    for priority in 1..=3 {
        assert_eq!(rule_count(&mut client, priority), 20);
    }
    assert!(running.said("user space does all for port 3"), "{:?}", running.said.lock().unwrap());
    // An engine that serves none of them goes on in user space, and says so.
    drop((client, running));
    let _ = std::fs::remove_file(site.socket());
    let running = Running::start(&site, "xdp", &ports[..2]);
    let mut client = Client::connect(&site.socket(), Version::V13);
    client.must([add("in_port=1 actions=output:2")]);
    first.send(&numbered(1));
    assert_eq!(second.must(), numbered(1));
    let both = "user space does all for port 1 (int:p1), 2 (int:p2): the kernel serves xdp: at xdp";
    assert!(running.said(both), "{:?}", running.said.lock().unwrap());
}

#[test]
fn without_bpf_rules_run_in_user_space_and_that_is_said() {
    if skipped("a switch without BPF") {
        return;
    }
    let Some(seccomp) = Path::new("/usr/bin/setpriv").exists().then_some("setpriv") else {
        return support::skip("a switch without BPF", "there is no setpriv");
    };
    let mut site = Site::build(2);
    let socket = format!("punix:{}", site.socket().display());
    let mut command = site.command(0, seccomp);
    let drop = "--bounding-set=-bpf,-sys_admin,-perfmon";
    command.args([drop, "--inh-caps=-bpf,-sys_admin,-perfmon", support::PATHLAB, "switch"]);
    command.args(["--port", "int:p1", "--port", "int:p2", "--engine", "tcx", "--listen", &socket]);
    command.env("PATHLAB_STATE", site.folder.path().join("state"));
    site.start(command);
    site.wait_for("the socket", |site| site.socket().exists());
    let mut client = client(&site);
    client.must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
    site.reaches(1, "10.0.0.2");
    assert!(site.logs().contains("this needs root, or CAP_BPF"), "{}", site.logs());
}

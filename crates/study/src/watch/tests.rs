use super::text::{Sort, View, screen};
use super::*;
use record::NodeRole;
use record::TcpSample;
use record::llstat::{InterruptCount, PollCounts, QueueLimit};
use record::snapshot::{CpuTime, QdiscSample, SocketSample, TC_ROOT};
use record::watch::{LineRate, NodeQueue, ReceiveQueueCount};

fn link(index: u32, name: &str, rx: u64, tx: u64, more: &[(&str, u64)]) -> LinkSample {
    let words = [("rx_packets", rx), ("tx_packets", tx), ("rx_bytes", rx * 60), ("tx_bytes", tx * 60)];
    let counters = words.iter().chain(more).map(|(name, count)| ((*name).to_owned(), *count)).collect();
    LinkSample {
        index,
        name: name.into(),
        kind: "veth".into(),
        up: true,
        carrier: true,
        counters,
        ..LinkSample::default()
    }
}

/// `n` seconds after the beginning: a sends 1000 frames a second to b, of which 100 come through s; s drops at its port.
fn reading(n: u64) -> WatchReading {
    let mut reading = WatchReading::default();
    reading.snapshot.ended_ns = n * 1_000_000_000;
    reading.snapshot.begun_ns = reading.snapshot.ended_ns;
    let mut node = |name: &str, links: Vec<LinkSample>| {
        reading.snapshot.nodes.insert(name.into(), NodeSnapshot { links, ..NodeSnapshot::default() });
    };
    node("a", vec![link(2, "eth0", 0, 1000 * n, &[])]);
    node(
        "s",
        vec![link(2, "br-linc1", 150 * n, 0, &[("rx_dropped", 50 * n)]), link(3, "p2", 0, 100 * n, &[])],
    );
    node("b", vec![LinkSample { kind: String::new(), ..link(2, "eth0", 100 * n, 0, &[]) }]);
    let b = reading.snapshot.nodes.get_mut("b").unwrap();
    b.protocols.insert("Udp.RcvbufErrors".into(), 7 * n);
    b.sockets.push(SocketSample {
        protocol: "udp".into(),
        local_port: 5201,
        inode: 9,
        receive_queue_bytes: 4096,
        drops: 7 * n,
        ..SocketSample::default()
    });
    let a = reading.snapshot.nodes.get_mut("a").unwrap();
    a.qdiscs.push(QdiscSample {
        interface: "eth0".into(),
        kind: "tbf".into(),
        parent: TC_ROOT,
        drops: 3 * n,
        qlen: 12,
        backlog_bytes: 999,
        ..QdiscSample::default()
    });
    let time = |cpu, busy: u64| CpuTime {
        cpu,
        user: 20 * n,
        nice: 5 * n,
        system: busy * n,
        irq: n,
        softirq: 10 * n,
        steal: 4 * n,
        idle: (65 - busy) * n,
    };
    reading.snapshot.cpus = vec![time(0, 30), time(1, 2)];
    reading.snapshot.softnet = vec![SoftnetRow {
        cpu: 0,
        processed: 500 * n,
        dropped: 2 * n,
        time_squeeze: 5 * n,
        backlog: 3,
        ..SoftnetRow::default()
    }];
    reading.line_rates.push(LineRate { node: "b".into(), interface: "eth0".into(), rate_bps: 1_000_000 });
    reading.interrupts.push(InterruptCount { irq: 41, name: "virtio2-input.0".into(), cpus: vec![n, 9 * n] });
    reading.receive_queues.push(ReceiveQueueCount {
        node: "b".into(),
        interface: "eth0".into(),
        queue: 0,
        counters: [("rx_packets".to_owned(), 100 * n), ("rx_hw_drops".to_owned(), n)].into(),
    });
    let limit = QueueLimit { queue: 0, limit_bytes: 3000, inflight_bytes: 1500 };
    reading.transmit_queues.push(NodeQueue { node: "b".into(), interface: "eth0".into(), limit });
    reading.tcp.push(TcpSocket {
        node: "a".into(),
        local: "10.0.0.1:40000".into(),
        remote: "10.0.0.2:5201".into(),
        inode: 77,
        info: TcpSample {
            bytes_acked: 125_000 * n,
            bytes_sent: 125_000 * n,
            busy_us: 900_000 * n,
            rwnd_limited_us: 800_000 * n,
            cwnd: 10,
            rtt_us: 50,
            ..TcpSample::default()
        },
        ..TcpSocket::default()
    });
    let words = [("budget_ends".to_owned(), 2 * n)].into();
    reading.polls = Some(PollCounts { words, ..PollCounts::default() });
    reading
}

fn path() -> Vec<Hop> {
    let hop = |node: &str, role, ingress: Option<&str>, egress: Option<&str>| Hop {
        node: node.into(),
        role,
        ingress: ingress.map(str::to_owned),
        egress: egress.map(str::to_owned),
        bridge: None,
    };
    vec![
        hop("a", NodeRole::Sender, None, Some("eth0")),
        hop("s", NodeRole::Forwarder, Some("br-linc1"), Some("p2")),
        hop("b", NodeRole::Receiver, Some("eth0"), None),
    ]
}

fn found() -> WatchReport {
    report(&reading(1), &reading(3), 0, &path())
}

#[test]
fn a_cpu_is_all_of_its_time() {
    for cpu in found().cpus {
        let sum = cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq + cpu.steal + cpu.idle;
        assert!((sum - 100.0).abs() < 1e-9, "{cpu:?}");
    }
    let cpu = found().cpus[0];
    assert_eq!((cpu.user, cpu.nice, cpu.system, cpu.steal), (15.0, 5.0, 30.0, 4.0));
    assert_eq!(
        (cpu.processed, cpu.dropped, cpu.squeezed, cpu.backlog),
        (Some(1000), Some(4), Some(10), Some(3))
    );
    assert_eq!(found().cpus[1].processed, None, "there is no row of it");
    assert_eq!((found().squeezed_budget, found().squeezed_time), (Some(4), Some(6)));
}

/// 14.88 million frames of 64 bytes with FCS are a line of 10 Gbit/s: the counters have 60 of each.
#[test]
fn the_share_of_a_line_counts_fcs_preamble_and_gap() {
    let way = |frames: f64, bytes: f64| Throughput {
        frames_per_s: Some(frames),
        rate_bps: Some(frames * bytes * 8.0),
        ..Throughput::default()
    };
    let line = |frames: f64, bytes: f64| share(&way(frames, bytes), 10_000_000_000).unwrap();
    assert!((line(10e9 / (8.0 * 84.0), 60.0) - 1.0).abs() < 1e-12);
    assert!((line(10e9 / (8.0 * 1538.0), 1514.0) - 1.0).abs() < 1e-12);
    assert_eq!(share(&Throughput::default(), 1), None);
    let interfaces = found().interfaces;
    let b = interfaces.iter().find(|one| one.node == "b").unwrap();
    assert!((b.receive_share.unwrap() - 100.0 * 84.0 * 8.0 / 1e6).abs() < 1e-12);
    assert_eq!(interfaces.iter().find(|one| one.node == "a").unwrap().receive_share, None);
}

#[test]
fn one_sentence_says_where_most_frames_are_lost() {
    let found = found();
    let lost: Vec<Option<i64>> = found.path.iter().map(|hop| hop.lost).collect();
    assert_eq!(lost, [None, Some(1700), Some(100), Some(0)]);
    let said = found.said.clone().unwrap();
    assert!(
        said.starts_with("Most frames are dropped before entering s:br-linc1: 850 frames/s of 900 frames/s"),
        "{said}"
    );
    assert!(said.contains("85.0 % of those sent (rx_dropped 100)"), "{said}");
    assert_eq!(found.path[0].drops, [(drop::QDISC_FULL.to_owned(), 6)].into());
    assert_eq!(found.uncertainty, 0, "everything was read at once");
    let mut slow = reading(3);
    // Reading took as long as 200 frames need.
    slow.snapshot.begun_ns = slow.snapshot.ended_ns - 200_000_000;
    let doubtful = report(&reading(1), &slow, 0, &path());
    assert_eq!(doubtful.uncertainty, 200);
    assert!(doubtful.said.is_some(), "1,700 are more than that");
    slow.snapshot.begun_ns = slow.snapshot.ended_ns - 1_800_000_000;
    assert_eq!(report(&reading(1), &slow, 0, &path()).said, None);
    let quiet = report(&reading(3), &reading(3), 0, &path());
    assert_eq!(quiet.said, None);
}

#[test]
fn frames_that_go_another_way_or_are_merged_are_not_called_dropped() {
    // s sends what a sends by two interfaces, of which one is on the way.
    let two_ways = |n: u64, dropped: u64| {
        let mut now = reading(n);
        let s = now.snapshot.nodes.get_mut("s").unwrap();
        let named = [("tx_dropped", dropped * n)];
        s.links = vec![
            link(2, "br-linc1", 1000 * n, 0, &[]),
            link(3, "p2", 0, 100 * n, &named),
            link(4, "p3", 0, 900 * n, &[]),
        ];
        now
    };
    let told = |before: &WatchReading, now: &WatchReading| report(before, now, 0, &path());
    let found = told(&two_ways(1, 0), &two_ways(3, 0));
    assert_eq!((found.path[2].lost, found.path[2].gone), (Some(1800), 0));
    let said = found.said.unwrap();
    assert!(said.starts_with("What is missing before leaving by s:p2 need not be lost"), "{said}");
    // A counter that names drops is believed.
    let found = told(&two_ways(1, 300), &two_ways(3, 300));
    assert_eq!(found.path[2].gone, 600);
    assert!(
        found
            .said
            .unwrap()
            .starts_with("Most frames are dropped before leaving by s:p2: 300 frames/s of 300")
    );

    // Ten frames of 1,500 bytes are merged into one, and have one header in place of ten.
    let merged = |n: u64, bytes: u64| {
        let mut now = reading(n);
        let s = now.snapshot.nodes.get_mut("s").unwrap();
        s.links = vec![link(2, "br-linc1", 1000 * n, 0, &[]), link(3, "p2", 0, 100 * n, &[])];
        s.links[0].counters.insert("rx_bytes".into(), 1_500_000 * n);
        s.links[1].counters.insert("tx_bytes".into(), bytes * n);
        now
    };
    let gone = |bytes: u64| told(&merged(1, bytes), &merged(3, bytes));
    let found = gone(1_500_000 - 900 * 66);
    assert_eq!((found.path[2].lost, found.path[2].gone), (Some(1800), 0));
    // As many bytes as those of 10 of 100 frames are missing, too.
    let found = gone((1_500_000 - 900 * 90) * 9 / 10);
    assert_eq!(found.path[2].gone, 189);
    let said = found.said.unwrap();
    assert!(
        said.starts_with("Most frames are dropped before leaving by s:p2: 94.5 frames/s of 94.5"),
        "{said}"
    );
    // All of them are merged and go by another interface.
    let aside = |n: u64| {
        let mut now = merged(n, 1_500_000 - 900 * 66);
        let s = now.snapshot.nodes.get_mut("s").unwrap();
        s.links[1].name = "p3".into();
        s.links.push(link(4, "p2", 0, 0, &[]));
        now
    };
    let found = told(&aside(1), &aside(3));
    assert_eq!((found.path[2].lost, found.path[2].gone), (Some(2000), 0));
    // A tunnel makes frames longer, and merges none.
    assert_eq!(gone(100 * 1550).path[2].gone, 1800);
}

#[test]
fn what_was_not_read_before_is_unknown() {
    let mut before = reading(1);
    before.snapshot.nodes.remove("s");
    before.polls = None;
    before.tcp.clear();
    let found = report(&before, &reading(3), 0, &path());
    assert!(found.interfaces.iter().all(|one| one.node != "s"));
    assert_eq!((found.path[1].frames, found.path[1].lost, found.path[2].lost), (None, None, None));
    assert_eq!((found.squeezed_budget, found.squeezed_time), (None, None));
    assert!(found.sockets.iter().all(|one| one.send_bps.is_none()), "{:?}", found.sockets);
}

#[test]
fn sockets_say_what_held_them_back() {
    let found = found();
    let limits: Vec<(&str, &str)> =
        found.sockets.iter().map(|one| (one.protocol.as_str(), one.limit.as_str())).collect();
    assert_eq!(
        limits,
        [("tcp", "receiver window 80.0 %, cwnd 10, rtt 50 µs"), ("udp", "socket_buffer_full")]
    );
    assert_eq!(found.sockets[0].send_bps, Some(1e6));
    assert_eq!(found.sockets[1].drops, Some(14));
}

#[test]
fn a_screen_of_80_columns_has_everything_and_nothing_is_wider() {
    for width in [80, 160] {
        let text = screen(&found(), &View { width, ..View::default() });
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width, "{longest} of {width}:\n{text}");
        for words in [
            "Most frames are dropped before entering s:br-linc1",
            "a:eth0",
            "qdisc_full 6",
            "squeezed: 4 by budget, 6 by time",
            "virtio2-input.0",
            "10.0.0.2:5201",
            "receiver",
            "lost before",
        ] {
            assert!(text.contains(words), "'{words}' is not on a screen of {width}:\n{text}");
        }
        assert_eq!(text.contains("queued frames"), width == 160, "{text}");
    }
}

#[test]
fn rows_are_sorted_and_filtered() {
    let rows = |view: &View| -> Vec<String> {
        let text = screen(&found(), view);
        let from = text.lines().skip_while(|line| !line.starts_with("interface ")).skip(1);
        from.take_while(|line| !line.is_empty() && !line.starts_with("dropped at"))
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect()
    };
    let view = |sort, filter: &str| View { sort, filter: filter.into(), width: 80 };
    assert_eq!(rows(&view(Sort::Frames, "")), ["a:eth0", "s:br-linc1", "b:eth0", "s:p2"]);
    assert_eq!(rows(&view(Sort::Drops, ""))[0], "s:br-linc1");
    assert_eq!(rows(&view(Sort::Name, "")), ["a:eth0", "b:eth0", "s:br-linc1", "s:p2"]);
    assert_eq!(rows(&view(Sort::Bits, "s:")), ["s:br-linc1", "s:p2"]);
    let mut all = Sort::default();
    Sort::ALL.iter().for_each(|_| all = all.next());
    assert_eq!(all, Sort::default());
}

/// Defects B1 and B8 of other tools: a frame's time on the wire without preamble and gap, or with those twice; links in classes that end at
/// 10 Gb/s. Line rate is rate / (8 · (size with FCS + 20)): 14.88, 8.45 and 0.813 Mframes/s at 10 Gb/s.
#[test]
fn b01_b08_line_rate_has_preamble_fcs_and_gap_once_at_any_speed() {
    for (size, at_10_gbit) in [(64u32, 14_880_952.38), (128, 8_445_945.95), (1518, 812_743.82)] {
        for gbit in [10u32, 25, 40, 100, 400, 800] {
            let frames = at_10_gbit * f64::from(gbit) / 10.0;
            // Counters of bytes have no FCS.
            let bits = frames * f64::from(size - 4) * 8.0;
            let way = record::llstat::Throughput {
                frames_per_s: Some(frames),
                rate_bps: Some(bits),
                ..record::llstat::Throughput::default()
            };
            let share = share(&way, u64::from(gbit) * 1_000_000_000).unwrap();
            assert!((share - 1.0).abs() < 1e-6, "{size} B at {gbit} Gb/s: {share}");
        }
    }
}

/// Defect B7 of other tools: whatever was dropped or squeezed since the machine started is told as if it were now.
#[test]
fn b07_what_was_counted_before_the_interval_is_not_told() {
    let mut old = reading(5);
    let mut now = old.clone();
    now.snapshot.begun_ns += 1_000_000_000;
    now.snapshot.ended_ns += 1_000_000_000;
    for reading in [&mut old, &mut now] {
        reading
            .snapshot
            .softnet
            .iter_mut()
            .for_each(|row| (row.time_squeeze, row.dropped) = (1_000_000, 500_000));
    }
    let report = report(&old, &now, 0, &path());
    assert!(report.interfaces.iter().all(|one| one.drops.is_empty()), "{:?}", report.interfaces);
    assert!(
        report.cpus.iter().all(|cpu| cpu.squeezed.unwrap_or(0) + cpu.dropped.unwrap_or(0) == 0),
        "{:?}",
        report.cpus
    );
    assert!(report.sockets.iter().all(|one| one.drops.unwrap_or(0) == 0) && report.said.is_none());
}

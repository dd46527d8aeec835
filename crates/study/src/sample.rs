//! Runs made up for tests: a bridge path, every kind of test, full of the values that a real run has.

use record::histogram::{Histogram, Latency};
use record::ledger::{Drop, NamedCount, Station, WitnessDrop};
use record::run::{ActorUsage, Offered, Received, SCHEMA, Sent};
use record::snapshot::*;
use record::tcp::{TcpDecomposition, TcpSample};
use record::traffic::{Interval, Schedule, Settings};
use record::*;

/// A distribution around a median, with a tail.
pub fn latency(median_ns: u64, count: u64) -> Option<Latency> {
    let mut histogram = Histogram::new();
    for i in 0..count {
        let x = (i * 7919 % count) as f64 / count as f64;
        let tail = if x > 0.98 { 1.0 + (x - 0.98) * 400.0 } else { 1.0 };
        histogram.record((median_ns as f64 * (0.7 + 0.6 * x) * tail) as u64);
    }
    histogram.summary()
}

fn hop(node: &str, role: NodeRole, ingress: Option<&str>, egress: Option<&str>) -> Hop {
    let bridge = (role == NodeRole::Bridge).then(|| "br0".to_owned());
    Hop { node: node.into(), role, ingress: ingress.map(Into::into), egress: egress.map(Into::into), bridge }
}

fn path(round_trip: bool) -> Path {
    let way = |from: &str, to: &str, [inward, outward]: [&str; 2]| {
        vec![
            hop(from, NodeRole::Sender, None, Some("eth0")),
            hop("s", NodeRole::Bridge, Some(inward), Some(outward)),
            hop(to, NodeRole::Receiver, Some("eth0"), None),
        ]
    };
    let back = if round_trip { way("b", "a", ["eth1", "eth0"]) } else { vec![] };
    Path { forward: way("a", "b", ["eth0", "eth1"]), back, source: "routes".into() }
}

fn station(node: &str, name: &str, leg: &str, entered: u64, drops: &[(&str, u64)]) -> Station {
    let drops: Vec<_> = drops
        .iter()
        .map(|(name, count)| Drop {
            name: (*name).into(),
            count: *count,
            source: DropSource::Counter,
            evidence: format!("evidence of {name}"),
        })
        .collect();
    let left = entered - drops.iter().map(|drop| drop.count).sum::<u64>();
    Station { node: node.into(), leg: leg.into(), entered, left, drops, ..labelled(name) }
}

/// A station of this name with the kind and the interface that belong to it.
pub fn labelled(name: &str) -> Station {
    let (what, interface) = name.rsplit_once(' ').unwrap_or((name, ""));
    let kind = match what {
        "qdisc" => StationKind::Qdisc,
        "link" => StationKind::Link,
        "bridge" => StationKind::Bridge,
        "tap" => StationKind::Tap,
        "port" => StationKind::Port,
        "socket" => StationKind::Socket,
        "program" | "program in" | "program out" | "switch in" | "switch out" => StationKind::Program,
        _ => StationKind::Unknown,
    };
    let interface = (!interface.is_empty() && !kind.is_unknown()).then(|| interface.to_owned());
    Station { station: name.into(), kind, interface, ..Station::default() }
}

/// Frames leave and enter by ports, so the stations of IP, UDP and the socket are not on their way.
fn by_ports(ledger: &mut Ledger) {
    let stations = &mut ledger.stations;
    stations.retain(|station| !matches!(station.station.as_str(), "udp in" | "socket"));
    for station in stations {
        match station.station.as_str() {
            "ip out" => station.station = "port eth0".into(),
            "ip in" => station.station = "tap eth0".into(),
            _ => {}
        }
    }
}

fn ledger(sent: u64, lossy: bool, round_trip: bool) -> Ledger {
    let (queue, full) = if lossy { (sent / 50, sent / 10) } else { (0, 0) };
    let mut stations = vec![
        station("a", "app send", "forward", sent, &[]),
        station("a", "ip out", "forward", sent, &[]),
        station("a", "link eth0", "forward", sent, &[]),
        station("s", "bridge br0", "forward", sent, &[]),
    ];
    let drops: &[(&str, u64)] = if lossy { &[("qdisc_full", queue)] } else { &[] };
    stations.push(station("s", "qdisc eth1", "forward", sent, drops));
    for (node, name) in [("s", "link eth1"), ("b", "ip in"), ("b", "udp in")] {
        stations.push(station(node, name, "forward", sent - queue, &[]));
    }
    let drops: &[(&str, u64)] = if lossy { &[("socket_buffer_full", full)] } else { &[] };
    stations.push(station("b", "socket", "forward", sent - queue, drops));
    let arrived = sent - queue - full;
    let back = [
        ("b", "app reply"),
        ("b", "ip out"),
        ("b", "link eth0"),
        ("s", "bridge br0"),
        ("s", "link eth0"),
        ("a", "ip in"),
        ("a", "udp in"),
        ("a", "socket"),
        ("a", "app receive"),
    ];
    if round_trip {
        stations.extend(back.map(|(node, name)| station(node, name, "back", arrived, &[])));
    } else {
        stations.push(station("b", "app receive", "forward", arrived, &[]));
    }
    let count = |name: &str, count| NamedCount { name: name.into(), count };
    let seen = |reason: &str, node: &str, frames| WitnessDrop {
        reason: reason.into(),
        node: node.into(),
        interface: Some("eth1".into()),
        location: Some("tbf_enqueue".into()),
        frames,
        skbs: frames,
    };
    let witness = Witness {
        status: WitnessStatus::Agrees,
        why: String::new(),
        by_reason: if lossy {
            vec![count("QDISC_DROP", queue), count("SOCKET_RCVBUFF", full)]
        } else {
            vec![]
        },
        details: if lossy {
            vec![seen("QDISC_DROP", "s", queue), seen("SOCKET_RCVBUFF", "b", full)]
        } else {
            vec![]
        },
        disagreement: vec![],
        lost: 0,
    };
    Ledger { sent, received: arrived, stations, unexplained: 0, uncertainty: 0, witness, notes: vec![] }
}

fn end(messages: u64, size: u64, median: Option<u64>, seconds: u64) -> EndReport {
    let steps = seconds * 10;
    let intervals = (0..steps).map(|i| {
        let wave = 1.0 + 0.1 * ((i as f64) * 0.7).sin();
        let messages = (messages as f64 / steps as f64 * wave) as u64;
        Interval {
            from_ns: i * 100_000_000,
            length_ns: 100_000_000,
            bytes: messages * size,
            messages,
            latency_p50_ns: median.map_or(0, |median| (median as f64 * wave) as u64),
            latency_max_ns: median.map_or(0, |median| (median as f64 * wave * 9.0) as u64),
        }
    });
    EndReport {
        begun_ns: 5_000_000_000,
        ended_ns: 5_000_000_000 + seconds * 1_000_000_000,
        attempted: messages,
        sent: messages,
        sent_bytes: messages * size,
        send_calls: messages / 32,
        received: messages,
        unique: messages,
        received_bytes: messages * size,
        socket_drops: Some(0),
        longest_read_gap_ns: 900_000,
        schedule: Some(Schedule {
            requested_per_second: None,
            achieved_per_second: messages as f64 / seconds as f64,
            lateness: None,
            generator_limited: false,
        }),
        latency: median.and_then(|median| latency(median, 5000)),
        intervals: intervals.collect(),
        settings: Settings {
            send_buffer: 212_992,
            receive_buffer: 212_992,
            method: "sendmmsg ×32".into(),
            ..Settings::default()
        },
        thread_cpu_ns: seconds * 700_000_000,
        ..EndReport::default()
    }
}

fn snapshot(at: u64) -> Snapshot {
    let link = LinkSample {
        name: "eth1".into(),
        index: 3,
        mtu: 1500,
        up: true,
        carrier: true,
        bridge_state: Some(3),
        ..LinkSample::default()
    };
    let qdisc = QdiscSample {
        interface: "eth1".into(),
        kind: "tbf".into(),
        parent: TC_ROOT,
        rate_bytes_per_second: Some(125_000_000),
        limit: Some(30_000),
        ..QdiscSample::default()
    };
    let node = NodeSnapshot {
        links: vec![link],
        qdiscs: vec![qdisc],
        protocols: [("Udp.InDatagrams".to_owned(), at)].into(),
        sockets: vec![SocketSample { protocol: "udp".into(), local_port: 9, ..SocketSample::default() }],
        packet_sockets: vec![PacketSocketSample {
            interface: "eth1".into(),
            owner: "switch".into(),
            receive_buffer_bytes: 212_992,
            ..PacketSocketSample::default()
        }],
        neighbours: vec![NeighbourSample {
            interface: "eth1".into(),
            address: "10.0.0.2".into(),
            state: "reachable".into(),
        }],
        filters: vec![FilterSample {
            family: "inet".into(),
            hook: "forward".into(),
            chain: "t/c".into(),
            drops: false,
            counted: Some(0),
        }],
        switch: Some(record::snapshot::SwitchSample {
            ports: vec![record::snapshot::SwitchPortSample::default()],
            tables: vec![record::snapshot::SwitchTableSample::default()],
            to_controller: 0,
            buckets_to_controller: 0,
            packet_ins_dropped: None,
            drops: Some(vec![SwitchDropSample::default()]),
            ..SwitchSample::default()
        }),
        ways: vec![record::snapshot::DirectionSample {
            lost_before: vec![PlaceDrop { place: "ring".into(), name: "ring_full".into(), count: 0 }],
            ..record::snapshot::DirectionSample::default()
        }],
    };
    Snapshot {
        begun_ns: at,
        ended_ns: at + 800_000,
        cost_cpu_ns: 700_000,
        cpus: vec![CpuTime { cpu: 0, ..CpuTime::default() }],
        tick_hz: 100,
        softnet: vec![SoftnetRow { cpu: 0, processed: at, ..SoftnetRow::default() }],
        processes: vec![ProcessSample {
            pid: 7,
            role: "sender".into(),
            node: "a".into(),
            state: 'S',
            ..ProcessSample::default()
        }],
        nodes: [("s".to_owned(), node)].into(),
        missing: vec![],
    }
}

/// Messages, bytes of each and the median of the latency in nanoseconds; any other kind has some of its own.
const FIGURES: [(TrafficKind, u64, u64, Option<u64>); 6] = [
    (TrafficKind::TcpStream, 40_000, 131_072, None),
    (TrafficKind::UdpStream, 100_000, 64, Some(40_000)),
    (TrafficKind::TcpRr, 60_000, 1, Some(31_000)),
    (TrafficKind::UdpRr, 70_000, 1, Some(27_000)),
    (TrafficKind::Ping, 80_000, 56, Some(12_000)),
    (TrafficKind::Frames, 120_000, 60, Some(9_000)),
];

/// One test of a kind; `lossy` ones lose frames at the shaper and the socket.
pub fn test(kind: TrafficKind, name: &str, repetition: u32, lossy: bool) -> TestRecord {
    let figures = FIGURES.iter().find(|figures| figures.0 == kind);
    let &(_, messages, size, median) = figures.unwrap_or(&(kind, 50_000, 64, Some(20_000)));
    let messages = messages + u64::from(repetition - 1) * if lossy { 0 } else { 700 };
    let round_trip = kind.is_round_trip();
    let tcp = kind.is_tcp();
    let ledger = kind.has_ledger().then(|| ledger(messages, lossy, round_trip));
    let mut ledger = ledger;
    if let Some(ledger) = ledger.as_mut().filter(|_| kind.is_by_port()) {
        by_ports(ledger);
    }
    let arrived = ledger.as_ref().map_or(messages, |ledger| ledger.received);
    let mut sender = end(messages, size, round_trip.then_some(median).flatten(), 2);
    if tcp {
        sender.tcp = (0..20u64)
            .map(|i| TcpSample {
                at_ns: i * 100_000_000,
                cwnd: 10 + i as u32,
                rtt_us: 80,
                ..TcpSample::default()
            })
            .collect();
    }
    let cpu = (0..2).map(|cpu| CpuTime {
        cpu,
        user: 20,
        nice: 2,
        system: 90,
        irq: 1,
        softirq: 60,
        steal: 1,
        idle: 28,
    });
    let actor = |role: &str, node: &str, cpu_percent| ActorUsage {
        role: role.into(),
        node: node.into(),
        cpu_percent,
        wait_percent: 1.5,
        stopped_percent: 0.0,
        rss_bytes: 3 << 20,
    };
    let limit = if lossy {
        "Loss at node b, socket limited it: socket_buffer_full."
    } else {
        "The round trip limited it."
    };
    TestRecord {
        kind,
        name: name.into(),
        repetition,
        order: repetition,
        place: 0,
        hosts: vec![],
        via: vec![],
        spec: TestSpec { kind, size: size as u32, ..TestSpec::default() },
        begun: "2026-01-02T03:04:05Z".into(),
        seconds: 2.0,
        offered: Offered {
            datagrams: messages,
            achieved_per_second: messages as f64 / 2.0,
            ..Offered::default()
        },
        sent: Sent { datagrams: messages, bytes: messages * size },
        received: Received {
            datagrams: arrived,
            unique: arrived,
            bytes: arrived * size,
            ..Received::default()
        },
        latency_ns: median.and_then(|median| latency(median + u64::from(repetition) * 300, 5000)),
        latency_kind: if round_trip { "round trip" } else { "one way from planned time" }.into(),
        throughput_bps: (arrived * size * 8) as f64 / 2.0,
        messages_per_second: arrived as f64 / 2.0,
        ledger,
        kernel_drops: vec![],
        dead_frames: None,
        facts: None,
        far_facts: None,
        limit: Limit {
            what: if lossy { "socket_buffer" } else { "round_trip" }.into(),
            place: if lossy { "node b, socket" } else { "" }.into(),
            evidence: "evidence".into(),
            sentence: limit.into(),
            advice: String::new(),
        },
        tcp: tcp.then(|| TcpDecomposition {
            wall_us: 2_000_000,
            network_us: 1_900_000,
            application_us: 100_000,
            ..TcpDecomposition::default()
        }),
        cpu: cpu.collect(),
        actors: vec![actor("sender", "a", 98.0), actor("receiver", "b", 64.0)],
        layers: None,
        others: vec![],
        time: None,
        observer_cpu_ns: 1_400_000,
        path: path(round_trip),
        offloads: vec!["a:eth0 tso off, gro off".into()],
        sender,
        receiver: end(arrived, size, (!round_trip).then_some(median).flatten(), 2),
        flow: None,
        before: snapshot(1_000_000),
        after: snapshot(3_000_000_000),
        criteria: vec![],
        conditions: vec![],
        validity: None,
        invalid: vec![],
    }
}

/// A run of three repetitions of every kind; UDP streams lose frames.
pub fn run(id: &str) -> RunRecord {
    let kinds = [
        (TrafficKind::TcpStream, "tcp-stream", false),
        (TrafficKind::UdpStream, "udp-stream 64 B", true),
        (TrafficKind::TcpRr, "tcp-rr", false),
        (TrafficKind::UdpRr, "udp-rr", false),
        (TrafficKind::Ping, "ping", false),
        (TrafficKind::Frames, "frames 60 B", false),
    ];
    let tests =
        (1..=3).flat_map(|repetition| kinds.map(|(kind, name, lossy)| test(kind, name, repetition, lossy)));
    let host = HostFacts {
        kernel: "6.18.44".into(),
        machine: "x86_64".into(),
        cpu_model: "Example CPU 9000".into(),
        cpus: 2,
        memory_bytes: 8 << 30,
        virtual_machine: true,
        clock_source: "kvm-clock".into(),
        governor: String::new(),
        tick_hz: 100,
        settings: vec![("net.core.rmem_max".into(), "212992".into())],
        privilege: "root".into(),
        load_average: 0.3,
        cpu_pressure: Some(1.0),
        pathlab: "0.1.0".into(),
        id: "a1b2c3d4e5f60718".into(),
        boot_id: "0f7f4b1e-3d0c-4a6f-9a43-1c8ad5a6a7f0".into(),
        kernel_version: "#1 SMP Debian".into(),
        label: None,
        interfaces: vec![HostInterface {
            name: "eth0".into(),
            driver: "virtio_net".into(),
            offloads: vec!["tso on".into(), "gro off".into()],
            ..HostInterface::default()
        }],
    };
    let mut run = RunRecord {
        schema: SCHEMA.into(),
        id: id.into(),
        label: Some("before the patch".into()),
        plan_name: "default".into(),
        topology_name: "bridge".into(),
        begun: "2026-01-02T03:04:05Z".into(),
        ended: Some("2026-01-02T03:05:05Z".into()),
        host,
        plan: "topology bridge\nrepeat 3\ntcp-stream\nudp-stream size=64\n".into(),
        topology: "node a\nnode b\nbridge s\nlink a:eth0 s:eth0\nlink s:eth1 b:eth0 rate=1gbit\n".into(),
        seed: 42,
        command: vec!["pathlab".into(), "run".into()],
        way: None,
        tests: tests.collect(),
        findings: vec![],
        invalid: vec![],
    };
    let asked = crate::criteria::Criteria { max_p99: "10ms".parse().ok(), ..Default::default() };
    run.tests.iter_mut().for_each(|test| test.criteria = crate::criteria::judge(asked, test));
    run.findings = crate::findings::findings(&run);
    run
}

/// Where the time of a test went whose receiver shared its CPU with 'burn'.
pub fn time() -> record::TimeObservation {
    use record::Distribution;
    use record::time::*;
    let woken =
        |count| Distribution { count, min: 900, mean: 3e3, p50: 2_000, p99: 3_000_000, max: 4_000_000 };
    let wait = |role: &str, node: &str, pid, ran_ns, waited_ns, takers: Vec<Taker>| CpuWait {
        role: role.into(),
        node: node.into(),
        pid,
        name: "pathlab".into(),
        ran_ns: Some(ran_ns),
        waited_ns: Some(waited_ns),
        gave_up: Some(900),
        was_preempted: Some(17),
        seen: Some(SeenWait {
            ran_ns,
            waited_ns,
            woken: Some(woken(900)),
            preempted: Some(woken(17)),
            takers,
            lock_ns: 0,
            locks: 0,
        }),
    };
    let taker = |pid, name: &str, ns| Taker { pid: Some(pid), name: name.into(), cpu: 0, ns };
    let stack = |role: &str, thread: &str, functions: &[u32], count| ProfileStack {
        role: role.into(),
        thread: thread.into(),
        functions: functions.to_vec(),
        count,
    };
    let names = [
        "main",
        "burn_cycles",
        "handle_softirqs_[k]",
        "process_backlog_[k]",
        "__send",
        "tcp_sendmsg_[k]",
        "idle_[k]",
    ];
    TimeObservation {
        window_ns: 2_000_000_000,
        waits: vec![
            wait("sender", "a", 7, 1_900_000_000, 1_000, vec![taker(8, "pathlab", 1_000)]),
            wait(
                "receiver",
                "b",
                8,
                1_100_000_000,
                812_000_000,
                vec![taker(42, "burn", 790_000_000), taker(0, "idle", 22_000_000)],
            ),
        ],
        stalls: vec![Stall { of: "memory".into(), some_us: 20_000, full_us: Some(0) }],
        scheduler: Some(SchedulerCounts {
            switches: 90_000,
            net_rx_ns: 600_000_000,
            polls: vec![PollTime { place: "backlog".into(), polls: 10, frames: 1_000, ns: 600_000_000 }],
            cost_ns: Some(40_000_000),
            runs: 200_000,
            ..SchedulerCounts::default()
        }),
        profile: Some(CpuProfile {
            hz: 997,
            cpus: 2,
            samples: 4_000,
            functions: names.map(str::to_owned).to_vec(),
            stacks: vec![
                stack("other", "burn", &[0, 1], 2_000),
                stack("softirq", "traffic-sender", &[2, 3], 1_000),
                stack("sender", "traffic-sender", &[4, 5], 900),
                stack("idle", "idle", &[6], 100),
            ],
            ..CpuProfile::default()
        }),
        missing: vec![],
    }
}

/// What died of a test: 20 frames at a filter, which are all in the file.
pub fn dead_frames() -> record::drops::DropsReport {
    use record::drops::*;
    let row = DropRow {
        reason: "NETFILTER_DROP".into(),
        name: Some("filter".into()),
        may_be: vec![],
        place: Some("nft_do_chain".into()),
        interface: Some("eth0".into()),
        node: "r".into(),
        frames: 20,
        buffers: 20,
    };
    let meaning =
        DropMeaning { name: "filter".into(), meaning: "A chain dropped.".into(), advice: "look".into() };
    let counter = DriverCount { node: "r".into(), interface: "eth0".into(), counter: "xdp".into(), count: 1 };
    DropsReport {
        schema: "pathlab/drops/1".into(),
        seconds: 2.1,
        ended: "over".into(),
        nodes: Some(vec!["r".into()]),
        filter: Some("udp port 40000".into()),
        frames: 20,
        buffers: 20,
        rows: vec![row],
        meanings: vec![meaning],
        seen: 21,
        filtered: 1,
        lost: 0,
        unaccounted: Some(0),
        cut: 0,
        no_room: 0,
        hidden: 0,
        left_out: vec![NamedCount { name: "parts".into(), count: 1 }],
        drivers: vec![counter],
        missing: vec![],
        written: Some(DropsWritten { file: "dead-1.pcapng".into(), frames: 20, bytes: 3_000 }),
        cpu_ns: 1_000_000,
    }
}

/// Stamps of a message through two layers, in which nothing is empty.
pub fn layers() -> record::LayerObservation {
    use record::layers::*;
    let place =
        |point, interface: &str| StampPlace { point, node: "<b>".into(), interface: interface.into() };
    let part = |layer: &str, place: &str, ns: u64| LayerPart {
        layer: layer.into(),
        place: place.into(),
        mean_ns: ns as f64,
        p50_ns: ns,
        p99_ns: ns,
        max_ns: ns,
    };
    LayerObservation {
        every: 16,
        places: vec![place(StampPoint::Arrived, "eth0"), place(StampPoint::Polled, "eth0")],
        messages: vec![StampedMessage { sequence: 16, planned_ns: 5, stamps: vec![(0, 3_000), (1, 10_000)] }],
        lost: 1,
        runs: 2,
        cost_ns: Some(400),
        window_ns: 8_000,
        missing: vec!["x".into()],
        split: Some(LayerSplit {
            parts: vec![part("application+driver", "<b>", 3_000), part("softirq", "<b>:eth0", 7_000)],
            complete: 1,
            incomplete: 0,
            sum_ns: 10_000.0,
            measured_ns: Some(11_000.0),
            error_ns: 3_220.0,
        }),
    }
}

/// Every name that serde emits for full records, below objects whose keys are data.
#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Objects whose keys are names of counters or nodes.
    const FREE_KEYS: [&str; 3] = ["nodes", "protocols", "counters"];

    fn names(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    into.insert(name.clone());
                    match value {
                        Value::Object(free) if FREE_KEYS.contains(&name.as_str()) => {
                            free.values().for_each(|v| names(v, into))
                        }
                        value => names(value, into),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, into)),
            _ => {}
        }
    }

    /// A run in which nothing is empty, so that no field is left out.
    fn full() -> RunRecord {
        let mut run = run("full");
        run.way = Some(record::PathVariant {
            name: "switch".into(),
            group: "g".into(),
            offload: Some("off".into()),
        });
        let text = || "x".to_owned();
        for test in &mut run.tests {
            conditions(test);
            test.time = Some(record::TimeObservation { missing: vec![text()], ..time() });
            test.dead_frames = Some(dead_frames());
            test.facts = Some(record::facts::Facts::default());
            test.layers = Some(layers());
            test.spec.rate = Some(Rate::BitsPerSecond(1e6));
            for end in [&mut test.sender, &mut test.receiver] {
                end.port_drops = vec![PlaceDrop { place: text(), name: text(), count: 1 }];
                end.settings.port = text();
                let (asked, note) = (text(), text());
                end.settings.port_settings =
                    vec![PortSetting { name: text(), asked, effective: text(), note }];
                end.send_errors = vec![NamedCount { name: text(), count: 1 }];
                end.tcp = vec![TcpSample::default()];
                end.latency_from_send = latency(1000, 2000);
                if let Some(schedule) = &mut end.schedule {
                    schedule.lateness = latency(1000, 2000);
                }
            }
            if let Some(ledger) = &mut test.ledger {
                ledger.notes = vec![text()];
                ledger.witness.why = text();
                ledger.stations[0].unknown = Some(text());
            }
        }
        run
    }

    /// Conditions of which nothing is empty, and what follows from them.
    fn conditions(test: &mut TestRecord) {
        use record::conditions::*;
        use record::validity::Unwatched;
        let text = || "x".to_owned();
        let reading = || ConditionReading {
            idle: vec![IdleState::default()],
            interrupts: vec![InterruptTarget::default()],
            pauses: vec![PauseCount::default()],
            ..ConditionReading::default()
        };
        test.conditions = vec![record::Conditions {
            host: text(),
            before: reading(),
            after: reading(),
            nodes: vec![text()],
            changes: vec![ConfigChange { about: Some(text()), ..ConfigChange::default() }],
            more_changes: 1,
            taps: vec![Tap::default()],
            programs: vec![ForeignProgram::default()],
            cost: ObserverCost::default(),
            cpu: test.cpu.clone(),
            ends: vec![text()],
            ended: vec![text()],
            unsettled: Some(text()),
            missing: vec![Unwatched::default()],
        }];
        test.validity = Some(crate::validity::judge(test));
    }

    #[test]
    fn every_field_is_documented() {
        let documentation = include_str!("../../../docs/json.md");
        let mut found = BTreeSet::new();
        names(&serde_json::to_value(full()).unwrap(), &mut found);
        assert!(found.len() > 150, "the full record has {} names only", found.len());
        let missing: Vec<_> =
            found.iter().filter(|name| !documentation.contains(&format!("`{name}`"))).collect();
        // The two forms of a rate are shown as objects.
        let missing: Vec<_> =
            missing.into_iter().filter(|name| !documentation.contains(&format!("{{\"{name}\":"))).collect();
        assert!(missing.is_empty(), "docs/json.md does not mention {missing:?}");
    }

    #[test]
    fn every_field_of_a_sending_is_documented() {
        let documentation = include_str!("../../../docs/json.md");
        let (text, count) = (|| "x".to_owned(), 1);
        let setting = PortSetting { name: text(), asked: text(), effective: text(), note: text() };
        let report = record::send::SendReport {
            replay: Some(record::send::ReplayFacts::default()),
            settings: vec![setting.clone()],
            frames: record::send::SendLedger {
                drops: vec![PlaceDrop { place: text(), name: text(), count }],
                ..Default::default()
            },
            schedule: Schedule { lateness: latency(1000, 2000), ..Schedule::default() },
            stamps: Some(record::send::SentStamps {
                sources: vec![record::send::SentStampSource::default()],
                ..Default::default()
            }),
            ..Default::default()
        };
        let calibration = record::send::Calibration { settings: vec![setting], ..Default::default() };
        let mut found = BTreeSet::new();
        names(&serde_json::to_value(report).unwrap(), &mut found);
        names(&serde_json::to_value(calibration).unwrap(), &mut found);
        assert!(found.len() > 50, "{} names only", found.len());
        let missing: Vec<_> =
            found.iter().filter(|name| !documentation.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/json.md does not mention {missing:?}");
    }

    #[test]
    fn every_field_of_a_capture_a_half_and_a_join_is_documented() {
        use record::capture::*;
        use record::half::*;
        let documentation = include_str!("../../../docs/json.md");
        let (text, count) = (|| "x".to_owned(), 1);
        let drop = || vec![PlaceDrop { place: text(), name: text(), count }];
        let counts = || vec![NamedCount { name: text(), count }];
        let (asked, effective, note) = (text(), text(), text());
        let stream = StreamCount {
            sent_first_ns: Some(1),
            sent_last_ns: Some(2),
            delay_ns: latency(1000, 2000),
            ..StreamCount::default()
        };
        let captured = CaptureReport {
            filter: Some(text()),
            drops: drop(),
            account: Some(CaptureAccount {
                beside: drop(),
                host_wide: drop(),
                unknown: text(),
                ..CaptureAccount::default()
            }),
            written: Some(Written::default()),
            census: CaptureCensus {
                sizes: counts(),
                protocols: vec![ProtocolCount::default()],
                talkers: vec![Talker::default()],
                streams: vec![stream],
                marks: counts(),
                stamps: counts(),
                ..CaptureCensus::default()
            },
            settings: vec![PortSetting { name: text(), asked, effective, note }],
            notes: vec![text()],
            ..CaptureReport::default()
        };
        let sent = Some(SentHalf { port_drops: drop(), ..SentHalf::default() });
        let half = Half { sent, captured: Some(captured), before: snapshot(0), ..Half::default() };
        let join = JoinReport {
            schema: JOIN_SCHEMA.into(),
            sending: JoinEnd::default(),
            capturing: JoinEnd::default(),
            numbering: Numbering::default(),
            flows: 1,
            one_clock: true,
            missing: 0,
            reordered: Some(0),
            delay_ns: latency(1000, 2000),
            delay_unknown: text(),
            passed: true,
            why: text(),
            record: text(),
            run: full(),
        };
        let mut found = BTreeSet::new();
        names(&serde_json::to_value(half).unwrap(), &mut found);
        names(&serde_json::to_value(join).unwrap(), &mut found);
        assert!(found.len() > 200, "{} names only", found.len());
        let missing: Vec<_> =
            found.iter().filter(|name| !documentation.contains(&format!("`{name}`"))).collect();
        let missing: Vec<_> =
            missing.into_iter().filter(|name| !documentation.contains(&format!("{{\"{name}\":"))).collect();
        assert!(missing.is_empty(), "docs/json.md does not mention {missing:?}");
    }

    /// Every name that the ledger can give to a drop or a station is in its document.
    #[test]
    fn every_drop_is_documented() {
        let documentation = include_str!("../../../docs/ledger.md");
        let sources = [
            include_str!("ledger/forward.rs"),
            include_str!("ledger/ends.rs"),
            include_str!("ledger/frames.rs"),
            include_str!("ledger/program.rs"),
            include_str!("ledger/switch.rs"),
        ]
        .concat();
        let constants = sources.split("drop::").skip(1).filter_map(|rest| {
            let name = rest.split(|c: char| !c.is_ascii_uppercase() && c != '_').next();
            name.filter(|name| !name.is_empty()).map(str::to_lowercase)
        });
        let names: BTreeSet<_> = constants.collect();
        assert!(names.len() > 15, "{names:?}");
        let missing: Vec<_> = names.into_iter().filter(|name| !documentation.contains(name)).collect();
        assert!(missing.is_empty(), "docs/ledger.md does not mention {missing:?}");
    }
}

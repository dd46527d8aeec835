//! Streams with one thing wrong, made up of what was read of real ones.

use super::super::limit;
use super::*;
use record::snapshot::{NodeSnapshot, QdiscSample, TC_ROOT};
use record::{ActorUsage, Conditions, Hop, NodeRole, TestSpec};

/// A second of a stream that nothing holds back: the congestion window is what it is.
fn quiet() -> TestRecord {
    let sample = TcpSample {
        rtt_us: 1000,
        cwnd: 100,
        snd_mss: 1448,
        snd_wnd: Some(4 << 20),
        ssthresh: 80,
        pmtu: 1500,
        ..TcpSample::default()
    };
    let mut test = TestRecord {
        spec: TestSpec { from: "a".into(), to: "b".into(), ..TestSpec::default() },
        tcp: Some(TcpDecomposition { wall_us: 100, network_us: 100, ..TcpDecomposition::default() }),
        ..TestRecord::default()
    };
    for end in [&mut test.sender, &mut test.receiver] {
        (end.begun_ns, end.ended_ns) = (1, 1_000_000_001);
        (end.settings.send_buffer, end.settings.receive_buffer) = (4 << 20, 131_072);
    }
    (test.sender.attempted, test.sender.sent_bytes) = (10, 100_000_000);
    test.sender.tcp = vec![sample; 3];
    test
}

fn word(test: &TestRecord) -> String {
    let limit = limit(test);
    assert!(limit.sentence.contains(&limit.evidence) && limit.sentence.ends_with('.'), "{limit:?}");
    assert_eq!(limit.advice, verdict::advice(&limit.what));
    limit.what
}

fn resent(mut test: TestRecord, share: f64, needless: u64) -> TestRecord {
    let parts = test.tcp.as_mut().unwrap();
    parts.retransmitted_bytes = (test.sender.sent_bytes as f64 * share) as u64;
    (parts.retransmitted_segments, parts.needless_segments) = (100, needless);
    for sample in &mut test.sender.tcp {
        (sample.bytes_sent, sample.bytes_acked) = (144_800, 0);
    }
    test
}

fn dropped(reason: &str, node: &str, frames: u64) -> WitnessDrop {
    WitnessDrop {
        reason: reason.into(),
        node: node.into(),
        interface: Some("eth1".into()),
        location: None,
        frames,
        skbs: frames,
    }
}

#[test]
fn a_quiet_stream_is_held_by_its_congestion_window() {
    let test = quiet();
    assert_eq!(word(&test), "network");
    assert!(limit(&test).evidence.contains("congestion window 144,800"), "{:?}", limit(&test));
}

/// Two virtual machines with cards that were full: no kernel freed a frame, and the counters of the flow know between which two.
#[test]
fn what_no_kernel_dropped_was_lost_on_the_link_that_let_out_fewest() {
    use record::flow::Hook;
    use record::{FlowCount, FlowInterface, FlowObservation, FlowPlace};
    let at = |[node, name]: [&str; 2], other: Option<[&str; 2]>, hook, frames| FlowInterface {
        node: node.into(),
        interface: name.into(),
        other: other.map(|[node, name]| FlowPlace { node: node.into(), interface: name.into() }),
        counts: vec![FlowCount {
            hook,
            leg: "forward".into(),
            frames,
            buffers: frames,
            bytes: 0,
            later_fragments: 0,
            first_ns: 1,
        }],
        ..FlowInterface::default()
    };
    let (a, r0, r1, b) = (["a", "eth0"], ["r", "eth0"], ["r", "eth1"], ["b", "lan"]);
    let mut test = resent(quiet(), 0.02, 0);
    let interfaces = vec![
        at(a, Some(r0), Hook::Egress, 8209),
        at(r0, Some(a), Hook::Ingress, 8149),
        at(r1, Some(b), Hook::Egress, 8149),
        at(b, Some(r1), Hook::Ingress, 8148),
    ];
    test.flow = Some(FlowObservation { interfaces, ..FlowObservation::default() });
    let found = limit(&test);
    assert_eq!((found.what.as_str(), found.place.as_str()), ("lost_on_link", "a:eth0 and r:eth0"));
    assert!(found.evidence.starts_with("60 of 8,209 segments that left by the one"), "{found:?}");
    // The kernel's own word goes first, and more than were sent again were not these.
    test.kernel_drops = vec![dropped("NETFILTER_DROP", "r", 90)];
    assert_eq!(word(&test), "filter");
    test.kernel_drops.clear();
    // Of a hundred that were lost, ten are not what limited it.
    test.flow.as_mut().unwrap().interfaces[0].counts[0].frames = 8159;
    assert_eq!(word(&test), "retransmissions");
    test.flow.as_mut().unwrap().interfaces[1].counts[0].frames = 2000;
    test.flow.as_mut().unwrap().interfaces[2].counts[0].frames = 2000;
    test.flow.as_mut().unwrap().interfaces[3].counts[0].frames = 2000;
    assert_eq!(word(&test), "retransmissions");
}

#[test]
fn losses_have_a_place_and_what_was_sent_for_nothing_is_none() {
    assert_eq!(word(&resent(quiet(), 0.02, 0)), "retransmissions");
    let mut test = resent(quiet(), 0.02, 0);
    test.kernel_drops = vec![dropped("NETFILTER_DROP", "r", 90), dropped("OTHERHOST", "s", 100)];
    let found = limit(&test);
    assert_eq!((found.what.as_str(), found.place.as_str()), ("filter", "node r, eth1"), "{found:?}");
    test.kernel_drops = vec![dropped("QDISC_DROP", "r", 5000)];
    assert_eq!(word(&test), "retransmissions", "more than were sent again were not these");
    assert_eq!(word(&resent(quiet(), 0.02, 90)), "spurious_retransmissions");
    let mut test = resent(quiet(), 0.02, 10);
    test.kernel_drops = vec![dropped("TCP_OLD_DATA", "b", 40), dropped("TCP_RFC7323_PAWS", "b", 55)];
    assert_eq!(word(&test), "spurious_retransmissions", "the receiver had them, whatever it could say");
    assert_eq!(word(&resent(quiet(), 0.0001, 90)), "network", "a few are in every fast stream");
    // Seen with netem that loses and duplicates: "65 of 94 segments for nothing … nothing was lost: look for parallel ways".
    let mut test = resent(quiet(), 0.14, 65);
    test.path.forward = vec![hop("r", "eth1")];
    test.kernel_drops = vec![dropped("QDISC_DROP", "r", 90), dropped("TCP_OLD_DATA", "b", 60)];
    let found = limit(&test);
    assert_eq!(found.place, "node r, eth1", "{found:?}");
    assert!(found.evidence.contains("10 of 100 segments for nothing"), "{found:?}");
}

#[test]
fn without_the_kernels_word_the_queue_that_dropped_is_the_place() {
    let mut test = resent(quiet(), 0.02, 0);
    test.path.forward = vec![hop("r", "eth1")];
    for (snapshot, drops) in [(&mut test.before, 1), (&mut test.after, 70)] {
        let qdisc = QdiscSample { drops, limit: Some(6000), ..queue("eth1") };
        snapshot.nodes.insert("r".into(), NodeSnapshot { qdiscs: vec![qdisc], ..NodeSnapshot::default() });
    }
    let found = limit(&test);
    assert_eq!((found.what.as_str(), found.place.as_str()), ("qdisc", "node r, qdisc eth1"), "{found:?}");
}

fn hop(node: &str, egress: &str) -> Hop {
    Hop {
        node: node.into(),
        role: NodeRole::Router,
        ingress: None,
        egress: Some(egress.into()),
        bridge: None,
    }
}

fn queue(interface: &str) -> QdiscSample {
    QdiscSample { interface: interface.into(), kind: "tbf".into(), parent: TC_ROOT, ..QdiscSample::default() }
}

#[test]
fn a_link_that_is_too_small_is_a_black_hole_only_while_the_sender_does_not_know() {
    let mut test = resent(quiet(), 0.07, 0);
    test.kernel_drops = vec![dropped("PKT_TOO_BIG", "r", 16)];
    assert_eq!(word(&test), "mtu");
    test.tcp.as_mut().unwrap().retransmitted_bytes = 1448;
    assert_eq!(word(&test), "network", "it learned after one segment");
}

#[test]
fn a_shaper_of_the_way_back_is_told_apart() {
    let shaped = |forward: bool| {
        let mut test = quiet();
        let leg = if forward { &mut test.path.forward } else { &mut test.path.back };
        *leg = vec![hop("b", "eth1")];
        test.after.begun_ns = 1_000_000_000;
        for (snapshot, bytes) in [(&mut test.before, 0), (&mut test.after, 990)] {
            let rate_bytes_per_second = Some(1000);
            let qdisc = QdiscSample { bytes, overlimits: bytes, rate_bytes_per_second, ..queue("eth1") };
            snapshot
                .nodes
                .insert("b".into(), NodeSnapshot { qdiscs: vec![qdisc], ..NodeSnapshot::default() });
        }
        word(&test)
    };
    assert_eq!((shaped(true).as_str(), shaped(false).as_str()), ("shaper", "ack_path"));
}

#[test]
fn a_stopped_process_is_convicted_at_its_end() {
    let stopped = |role: &str, stopped_percent| {
        let mut test = quiet();
        test.actors = vec![ActorUsage { role: role.into(), stopped_percent, ..ActorUsage::default() }];
        word(&test)
    };
    assert_eq!(stopped("receiver", 76.0), "receiver_stalled");
    assert_eq!(stopped("sender", 76.0), "generator_stalled");
    assert_eq!(stopped("receiver", 5.0), "network");
}

/// CPU time and waiting of the threads of both ends in percent of the second, and the CPUs that they are pinned to.
fn threads(ran: [u64; 2], waited: [u64; 2], cpus: [Option<u32>; 2]) -> TestRecord {
    let mut test = quiet();
    for (at, end) in [&mut test.sender, &mut test.receiver].into_iter().enumerate() {
        (end.thread_cpu_ns, end.thread_wait_ns) = (ran[at] * 10_000_000, waited[at] * 10_000_000);
        end.settings.cpu = cpus[at];
    }
    let cpu = |cpu| CpuTime { cpu, system: 40, idle: 60, ..CpuTime::default() };
    test.cpu = vec![cpu(0), cpu(1)];
    test
}

fn other(name: &str, nice: i32, cpu: u32, cpu_percent: f64) -> OtherWork {
    OtherWork { pid: 7, name: name.into(), nice, cpu, cpu_percent }
}

#[test]
fn whoever_had_the_cpu_that_an_end_waited_for_is_named() {
    let mut test = threads([45, 30], [2, 55], [Some(0), Some(1)]);
    test.others = vec![other("hog", 0, 1, 60.0), other("elsewhere", 0, 0, 50.0)];
    let found = limit(&test);
    assert_eq!((found.what.as_str(), found.place.as_str()), ("other_work", "CPU 1"), "{found:?}");
    assert!(
        found.evidence.contains("'hog' (process 7, nice 0) used 60 % of CPU 1")
            && !found.evidence.contains("elsewhere")
    );
    // The kernel's own threads carry the test's frames: nobody can end them.
    let mut softirq = test.clone();
    softirq.others = vec![other("ksoftirqd/1", 0, 1, 60.0)];
    assert_eq!(word(&softirq), "cpu");
    // What a taken CPU makes late is sent again for nothing.
    assert_eq!(word(&resent(test.clone(), 0.02, 90)), "other_work");
    test.others.clear();
    test.cpu[1] = CpuTime { cpu: 1, user: 60, system: 38, idle: 2, ..CpuTime::default() };
    assert!(
        limit(&test).evidence.starts_with("processes that began or ended meanwhile used 68 %"),
        "{:?}",
        limit(&test)
    );
}

#[test]
fn what_the_schedulers_events_tell_names_who_is_in_no_list() {
    let mut test = threads([45, 30], [2, 55], [Some(0), Some(1)]);
    test.time = Some(crate::sample::time());
    let found = limit(&test);
    assert_eq!((word(&test).as_str(), found.place.as_str()), ("other_work", "CPU 0"), "{found:?}");
    assert!(found.evidence.contains("'burn' (process 42) ran on CPU 0 for 790 ms of it"), "{found:?}");
    // A taker that had less than half of it is no more than told.
    let waits = &mut test.time.as_mut().unwrap().waits;
    waits[1].seen.as_mut().unwrap().takers[0].ns = 300_000_000;
    let found = limit(&test);
    assert_eq!(found.what, "cpu", "{found:?}");
    assert!(found.evidence.contains("ran on CPU 0 for 300 ms of it"), "{found:?}");
}

#[test]
fn low_priority_is_blamed_only_by_who_waited_for_it() {
    let hogs = || vec![other("hog", 19, 0, 55.0), other("hog", 19, 1, 60.0)];
    let mut test = threads([45, 40], [1, 1], [Some(0), Some(1)]);
    test.others = hogs();
    test.cpu.iter_mut().for_each(|row| (row.user, row.nice, row.idle) = (59, 59, 1));
    assert_eq!(word(&test), "network", "nobody waited");
    let mut test = threads([45, 47], [43, 52], [None, None]);
    test.others = hogs();
    test.cpu.iter_mut().for_each(|row| (row.system, row.idle) = (46, 54));
    assert_eq!(word(&test), "cpu", "the ends could have gone to the other CPU and shared one instead");
}

#[test]
fn a_cpu_for_both_ends_and_a_thread_without_time_are_convicted() {
    let mut test = threads([46, 47], [43, 52], [Some(0), Some(0)]);
    test.cpu[0] = CpuTime { cpu: 0, system: 57, softirq: 42, idle: 1, ..CpuTime::default() };
    let found = limit(&test);
    assert_eq!((found.what.as_str(), found.place.as_str()), ("cpu", "CPU 0"), "{found:?}");
    assert!(
        found.evidence.contains("CPU 0 was 99 % busy (user 0 %, system 57 %, interrupts 42 %)"),
        "{found:?}"
    );
    assert_eq!(word(&threads([89, 42], [2, 2], [None, None])), "generator_cpu");
    // A full CPU makes segments overtake each other; what comes of that is its doing as long as it is little.
    for (share, wanted) in [(0.013, "generator_cpu"), (0.03, "spurious_retransmissions")] {
        assert_eq!(word(&resent(threads([89, 42], [2, 2], [None, None]), share, 100)), wanted, "{share}");
    }
    assert_eq!(word(&threads([40, 93], [2, 2], [None, None])), "receiver_cpu");
    let mut test = threads([40, 40], [0, 0], [None, None]);
    test.cpu[1] = CpuTime { cpu: 1, softirq: 99, idle: 1, ..CpuTime::default() };
    assert_eq!(word(&test), "cpu");
    let mut test = threads([40, 40], [0, 0], [None, None]);
    let switch =
        ActorUsage { role: "switch".into(), node: "s".into(), cpu_percent: 99.0, ..ActorUsage::default() };
    test.actors = vec![switch];
    assert_eq!(word(&test), "forwarder_cpu");
}

/// Seen between two hosts: "the two ends had to share the CPUs … give each end a CPU of its own".
#[test]
fn two_hosts_share_no_cpu() {
    let between = |ran, waited, busy: [[u64; 2]; 2]| {
        let mut test = threads(ran, waited, [Some(0), Some(0)]);
        test.cpu.clear();
        let host = |(name, [system, softirq]): (&str, [u64; 2])| {
            let idle = 100 - system - softirq;
            let cpu = vec![CpuTime { system, softirq, idle, ..CpuTime::default() }];
            Conditions { host: name.into(), nodes: vec![name.into()], cpu, ..Conditions::default() }
        };
        test.conditions = ["a", "b"].into_iter().zip(busy).map(host).collect();
        let found = limit(&test);
        (found.what, found.place)
    };
    let is = |what: &str, place: &str| (what.to_owned(), place.to_owned());
    assert_eq!(between([1, 63], [17, 36], [[99, 0], [41, 31]]), is("receiver_cpu", "node b"));
    assert_eq!(between([1, 20], [17, 36], [[50, 0], [60, 39]]), is("host_cpu", "host b"));
    assert_eq!(between([1, 20], [0, 0], [[50, 0], [10, 89]]), is("cpu", "CPU 0 of host b"));
    assert_eq!(
        between([1, 20], [0, 0], [[99, 0], [99, 0]]),
        is("network", ""),
        "whose work that was is not known"
    );
    assert_eq!(between([1, 20], [17, 36], [[50, 0], [50, 0]]), is("network", ""));
    let mut unobserved = threads([46, 47], [43, 52], [Some(0), Some(0)]);
    unobserved.cpu.clear();
    assert_eq!(word(&unobserved), "receiver_cpu");
}

/// Three writes in 0.4 ms: 'the sender ran 115 % and waited for a CPU 28 % of the time'.
#[test]
fn threads_of_a_short_stream_are_not_judged() {
    let mut test = threads([115, 57], [28, 3], [None, None]);
    for end in [&mut test.sender, &mut test.receiver] {
        end.ended_ns = end.begun_ns + 400_000;
        (end.thread_cpu_ns, end.thread_wait_ns) = (end.thread_cpu_ns / 2500, end.thread_wait_ns / 2500);
    }
    assert_eq!(word(&test), "network");
}

#[test]
fn the_smallest_of_window_buffer_and_congestion_window_is_convicted() {
    let with = |peer, buffer| {
        let mut test = threads([30, 75], [1, 1], [None, None]);
        test.sender.tcp.iter_mut().for_each(|sample| sample.snd_wnd = Some(peer));
        test.sender.settings.send_buffer = buffer;
        test
    };
    assert_eq!(word(&with(39_552, 711_936)), "receiver_window");
    assert_eq!(word(&with(573_440, 64_000)), "send_buffer");
    let mut small_writes = with(1_043_456, 69_120);
    small_writes.sender.thread_cpu_ns = 998_000_000;
    assert_eq!(word(&small_writes), "generator_cpu", "a writer that never sleeps waits for no room");
    let mut slow = with(39_552, 711_936);
    slow.receiver.thread_wait_ns = 250_000_000;
    assert_eq!(word(&slow), "cpu", "a reader without a CPU makes any window small");
    slow.sender.tcp.iter_mut().for_each(|sample| sample.snd_wnd = Some(1536));
    assert_eq!(word(&slow), "receiver_window", "one segment is small for any reader");
}

#[test]
fn what_is_left_is_the_largest_wait() {
    let parts = |application_us, receiver_window_us, send_buffer_us| {
        let mut test = quiet();
        test.tcp = Some(TcpDecomposition {
            wall_us: 100,
            application_us,
            receiver_window_us,
            send_buffer_us,
            network_us: 100 - application_us - receiver_window_us - send_buffer_us,
            ..TcpDecomposition::default()
        });
        word(&test)
    };
    assert_eq!(parts(78, 0, 0), "generator");
    assert_eq!(parts(0, 60, 0), "receiver_window");
    assert_eq!(parts(0, 0, 60), "send_buffer");
}

/// Seen with a filter that dropped what was longer than a handshake: the full CPUs, or the schedule that was kept, were named.
#[test]
fn requests_that_nobody_answered_are_neither_the_schedules_nor_a_cpus() {
    let mut test = quiet();
    test.spec.kind = record::TrafficKind::TcpRr;
    (test.sender.attempted, test.sender.sent_bytes) = (1, 64);
    test.sender.schedule = Some(record::traffic::Schedule {
        requested_per_second: Some(100.0),
        achieved_per_second: 100.0,
        ..Default::default()
    });
    let mut lost = resent(test.clone(), 4.0, 0);
    lost.kernel_drops = vec![dropped("NETFILTER_DROP", "b", 500)];
    assert_eq!(word(&lost), "filter");
    let limit = limit(&lost);
    assert_eq!(limit.place, "node b, eth1");
    assert!(limit.evidence.contains("none of 1 request was answered"), "{limit:?}");
    // The answers may have been lost on their way, so that nothing was sent again.
    test.kernel_drops = vec![dropped("NETFILTER_DROP", "s", 3)];
    assert_eq!(word(&test), "filter");
    test.kernel_drops.clear();
    assert_eq!(word(&test), "unknown");
    test.sender.latency = crate::sample::latency(30_000, 12);
    assert_eq!(word(&test), "schedule");
}

//! Every kind of traffic between two agents of this process, over loopback, through the whole control protocol.

use load::conversation::AgentLink;
use load::conversation::agent::{self, TestLock};
use load::conversation::controller::{self, NoObserver, Observer};
use load::{DataPorts, Outcome};
use record::{Rate, Result, TestSpec, TrafficKind};
use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::net::UnixStream;

fn agent() -> AgentLink {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || agent::serve(theirs, "the test"));
    AgentLink::from_stream(ours, "agent").unwrap()
}

fn address(spec: &TestSpec) -> IpAddr {
    if spec.family == 6 { "::1".parse().unwrap() } else { "127.0.0.1".parse().unwrap() }
}

fn run(spec: &TestSpec) -> Result<Outcome> {
    controller::run(spec, &mut agent(), &mut agent(), address(spec), &mut NoObserver)
}

fn spec(kind: TrafficKind) -> TestSpec {
    TestSpec { kind, duration_ms: 200, ..TestSpec::default() }
}

#[test]
fn a_counted_udp_stream_arrives_whole() {
    for (batch, gso, gro, family) in [(1, 0, false, 4), (32, 0, false, 6), (32, 16, true, 4), (7, 5, true, 6)]
    {
        let rate = Some(Rate::MessagesPerSecond(20_000.0));
        // Room for all of them: a receiver that another program keeps from the CPU loses nothing.
        let room = Some(8 << 20);
        let spec = TestSpec {
            duration_ms: 0,
            count: Some(3_001),
            batch,
            gso,
            gro,
            family,
            rate,
            ..spec(TrafficKind::UdpStream)
        };
        let spec = TestSpec { receive_buffer: room, ..spec };
        let Outcome { sender, receiver, warm, ports, .. } = run(&spec).unwrap();
        assert!(warm && ports.receiver.is_some() && ports.sender.len() == 1);
        let label = format!("batch {batch} gso {gso} v{family}: {sender:?} {receiver:?}");
        if receiver.socket_drops != Some(0) {
            let granted = receiver.settings.receive_buffer;
            assert!(granted < 8 << 20, "{label}");
            assert_eq!(sender.sent, receiver.received + receiver.socket_drops.unwrap(), "{label}");
            return println!("SKIP: a whole stream: the socket lost some in the {granted} B it was given");
        }
        assert_eq!((sender.attempted, sender.sent, sender.sent_bytes), (3_001, 3_001, 3_001 * 64), "{label}");
        assert_eq!((receiver.received, receiver.unique, receiver.foreign), (3_001, 3_001, 0), "{label}");
        assert_eq!((receiver.duplicates, receiver.reordered), (0, 0), "{label}");
        assert_eq!(receiver.received_bytes, 3_001 * 64);
        assert_eq!(receiver.latency.unwrap().count, 3_001);
        assert_eq!(receiver.intervals.iter().map(|i| i.messages).sum::<u64>(), 3_001);
        assert_eq!(receiver.socket_drops, Some(0));
        assert!((sender.schedule.unwrap().requested_per_second.unwrap() - 20_000.0).abs() < 1e-6);
    }
}

#[test]
fn an_unlimited_udp_stream_loses_only_in_the_receiver_socket() {
    let spec = TestSpec { receive_buffer: Some(4096), batch: 64, ..spec(TrafficKind::UdpStream) };
    let Outcome { sender, receiver, .. } = run(&spec).unwrap();
    assert!(sender.send_errors.is_empty(), "{:?}", sender.send_errors);
    assert_eq!(receiver.received, receiver.unique);
    assert_eq!(sender.sent, receiver.received + receiver.socket_drops.unwrap());
    // From its first to its last datagram it sends for 200 ms, but for the time at either end in which it had no CPU.
    let lasted = sender.ended_ns - sender.begun_ns;
    assert!(lasted + sender.thread_wait_ns >= 150_000_000, "{sender:?}");
}

#[test]
fn a_sender_asked_for_too_much_says_so() {
    let rate = Some(Rate::MessagesPerSecond(200_000_000.0));
    let Outcome { sender, .. } = run(&TestSpec { rate, ..spec(TrafficKind::UdpStream) }).unwrap();
    let schedule = sender.schedule.unwrap();
    assert!(schedule.generator_limited, "{schedule:?}");
    assert!(schedule.achieved_per_second < 200_000_000.0);
}

#[test]
fn strangers_are_not_counted() {
    struct Stranger;
    impl Observer for Stranger {
        fn before(&mut self, ports: &DataPorts, _: u8) -> Result<()> {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for size in [0, 5, 64, 100] {
                socket.send_to(&vec![0x70; size], ("127.0.0.1", ports.receiver.unwrap())).unwrap();
            }
            Ok(())
        }
        fn settled(&mut self) -> Result<()> {
            NoObserver.settled()
        }
        fn after(&mut self) -> Result<()> {
            Ok(())
        }
    }
    let spec = TestSpec { duration_ms: 0, count: Some(10), ..spec(TrafficKind::UdpStream) };
    let (mut a, mut b) = (agent(), agent());
    let outcome = controller::run(&spec, &mut a, &mut b, address(&spec), &mut Stranger).unwrap();
    assert_eq!((outcome.receiver.received, outcome.receiver.foreign), (10, 4));
}

#[test]
fn every_request_has_one_reply() {
    for kind in [TrafficKind::UdpRr, TrafficKind::TcpRr] {
        for (rate, family) in [(None, 4), (Some(Rate::MessagesPerSecond(5_000.0)), 6)] {
            let spec =
                TestSpec { duration_ms: 0, count: Some(500), rate, family, response: 100, ..spec(kind) };
            let Outcome { sender, receiver, warm, .. } = run(&spec).unwrap();
            let label = format!("{kind} {rate:?}: {sender:?} {receiver:?}");
            assert!(warm);
            assert_eq!((sender.sent, sender.unique, sender.duplicates), (500, 500, 0), "{label}");
            assert_eq!((sender.late, sender.foreign, sender.received_bytes), (0, 0, 50_000), "{label}");
            assert_eq!((receiver.unique, receiver.responses), (500, 500), "{label}");
            assert_eq!(sender.latency.unwrap().count, 500);
            assert_eq!(sender.latency_from_send.is_some(), rate.is_some());
            assert_eq!(kind == TrafficKind::TcpRr, !sender.tcp.is_empty(), "{label}");
        }
    }
}

#[test]
fn requests_one_by_one_take_as_long_as_their_round_trips() {
    for kind in [TrafficKind::UdpRr, TrafficKind::TcpRr] {
        let Outcome { sender, .. } = run(&TestSpec { duration_ms: 0, count: Some(2), ..spec(kind) }).unwrap();
        let (lasted, latency) = (sender.ended_ns - sender.begun_ns, sender.latency.unwrap());
        // The buckets of a histogram are at most 1.6 % wide.
        assert!(lasted as f64 * 1.02 >= latency.mean * 2.0, "{kind}: {lasted} ns, {latency:?}");
    }
}

#[test]
fn a_tcp_stream_is_read_to_its_end() {
    for (streams, count, family) in [(1, None, 4), (3, None, 6), (2, Some(33), 4)] {
        let duration_ms = if count.is_some() { 0 } else { 200 };
        let spec = TestSpec { streams, size: 0, count, duration_ms, family, ..spec(TrafficKind::TcpStream) };
        let Outcome { sender, receiver, warm, ports, .. } = run(&spec).unwrap();
        assert!(warm);
        assert_eq!(ports.sender.len(), streams as usize);
        assert_eq!(sender.sent_bytes, receiver.received_bytes);
        assert!(receiver.received_bytes > 1_000_000);
        assert_eq!(receiver.intervals.iter().map(|i| i.bytes).sum::<u64>(), receiver.received_bytes);
        assert_eq!(sender.intervals.iter().map(|i| i.bytes).sum::<u64>(), sender.sent_bytes);
        if let Some(count) = count {
            assert_eq!((sender.sent, sender.sent_bytes), (count, count * 131_072));
        }
        let acked: u64 = (0..streams)
            .map(|stream| sender.tcp.iter().rfind(|s| s.stream == stream).unwrap().bytes_acked)
            .sum();
        assert!(acked >= sender.sent_bytes, "all of it is acknowledged in the last sample");
        assert!(receiver.tcp.iter().any(|sample| sample.bytes_received > 0));
        assert!(sender.notes.is_empty(), "{:?}", sender.notes);
    }
}

#[test]
fn a_paced_tcp_stream_keeps_its_rate() {
    let rate = Some(Rate::BitsPerSecond(80e6));
    let spec = TestSpec { size: 10_000, streams: 2, rate, duration_ms: 500, ..spec(TrafficKind::TcpStream) };
    let Outcome { sender, receiver, .. } = run(&spec).unwrap();
    assert_eq!((sender.sent, receiver.received_bytes), (500, 5_000_000), "{sender:?}");
    assert!((sender.schedule.unwrap().requested_per_second.unwrap() - 1_000.0).abs() < 1e-6);
}

/// A count that needs ten seconds by its rate, or no machine sends in this time: the duration ends the test, what was
/// planned before its end leaves, and the rest is said to be missing.
#[test]
fn a_duration_is_the_most_that_a_count_may_take() {
    let rates = [Some(Rate::MessagesPerSecond(1_000.0)), None];
    let kinds = [
        TrafficKind::UdpStream,
        TrafficKind::UdpRr,
        TrafficKind::TcpRr,
        TrafficKind::TcpStream,
        TrafficKind::Ping,
    ];
    for (kind, rate) in kinds.into_iter().flat_map(|kind| rates.map(|rate| (kind, rate))) {
        let count = if rate.is_some() { 10_000 } else { 1 << 40 };
        let size = if kind == TrafficKind::TcpStream { 1_000 } else { 64 };
        let spec = TestSpec { count: Some(count), rate, size, ..spec(kind) };
        let sender = match run(&spec) {
            Err(problem) if problem.to_string().contains("CAP_NET_RAW") => {
                return println!("SKIP: {problem}");
            }
            outcome => outcome.unwrap().sender,
        };
        let planned = if rate.is_some() { 200 } else { count - 1 };
        assert!((1..=planned).contains(&sender.attempted), "{kind} {rate:?}: {sender:?}");
        let note = format!("{} of {count} messages were not sent within", count - sender.attempted);
        assert!(
            sender.notes.iter().any(|said| said.starts_with(&note)),
            "{kind} {rate:?}: {:?}",
            sender.notes
        );
    }
}

#[test]
fn the_kernel_answers_every_ping() {
    for (rate, family) in [(None, 4), (None, 6), (Some(Rate::MessagesPerSecond(1_000.0)), 4)] {
        let spec =
            TestSpec { duration_ms: 0, count: Some(200), rate, family, size: 56, ..spec(TrafficKind::Ping) };
        let outcome = match run(&spec) {
            Err(problem) if problem.to_string().contains("CAP_NET_RAW") => {
                return println!("SKIP: {problem}");
            }
            outcome => outcome.unwrap(),
        };
        let sender = outcome.sender;
        assert!(outcome.warm && outcome.ports.icmp_id.is_some());
        assert_eq!((sender.sent, sender.unique, sender.foreign), (200, 200, 0), "{sender:?}");
        assert_eq!(sender.latency.unwrap().count, 200);
        assert_eq!(outcome.receiver.received, 0);
    }
}

/// What was sent until the interrupt has its replies and its counts, and was sent by plan: nothing of it is lost, late or cut off.
#[test]
fn a_test_that_is_interrupted_counts_what_was_sent() {
    struct Impatient(std::time::Instant);
    impl Observer for Impatient {
        fn starting(&mut self) {
            self.0 = std::time::Instant::now();
        }
        fn is_interrupted(&self) -> bool {
            self.0.elapsed().as_millis() > 300
        }
    }
    let slow = Some(Rate::MessagesPerSecond(500.0));
    let kinds = [
        (TrafficKind::UdpStream, slow),
        (TrafficKind::UdpRr, None),
        (TrafficKind::UdpRr, slow),
        (TrafficKind::TcpRr, None),
        (TrafficKind::TcpRr, slow),
        (TrafficKind::TcpStream, None),
        (TrafficKind::TcpStream, slow),
    ];
    let cases = kinds.map(|(kind, rate)| TestSpec { duration_ms: 60_000, rate, size: 64, ..spec(kind) });
    std::thread::scope(|scope| {
        for spec in &cases {
            scope.spawn(move || {
                // Every stage before the start takes less than that.
                let mut observer =
                    Impatient(std::time::Instant::now() + std::time::Duration::from_secs(3_600));
                let outcome =
                    controller::run(spec, &mut agent(), &mut agent(), address(spec), &mut observer).unwrap();
                let Outcome { sender, receiver, .. } = outcome;
                let label = format!("{} {:?}: {sender:?} {receiver:?}", spec.kind, spec.rate);
                let early = |note: &String| note.starts_with("it was told to end early: it sent for ");
                assert!(sender.notes.iter().any(early), "{label}");
                assert!(sender.sent > 0 && sender.sent == sender.attempted, "{label}");
                assert!(!sender.notes.iter().any(|note| note.contains("failed")), "{label}");
                let came =
                    if spec.kind.is_round_trip() { sender.received_bytes } else { receiver.received_bytes };
                assert_eq!(came, sender.sent_bytes, "{label}");
                let lasted = sender.ended_ns - sender.begun_ns;
                assert!(lasted < 20_000_000_000, "{label}");
            });
        }
    });
}

/// Whoever reaches the port of a server may have it send to himself, and to nobody else.
#[test]
fn a_server_sends_to_who_asks_alone() {
    let server = |peer: &'static str| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || agent::serve_in_turn(theirs, peer, &TestLock::default(), None));
        AgentLink::from_stream(ours, "server").unwrap()
    };
    let spec = TestSpec { duration_ms: 0, count: Some(5), ..spec(TrafficKind::UdpRr) };
    let from = |peer, spec: &TestSpec| {
        controller::run(spec, &mut server(peer), &mut agent(), address(spec), &mut NoObserver)
    };
    for peer in ["127.0.0.1:9", "[::ffff:127.0.0.1]:9"] {
        assert_eq!(from(peer, &spec).unwrap().sender.unique, 5);
    }
    for spec in [&spec, &TestSpec { family: 6, ..spec.clone() }] {
        let refused = from("192.0.2.7:9", spec).unwrap_err().to_string();
        assert!(refused.contains("it sends to 192.0.2.7, which asks, and not to "), "{refused}");
    }
}

#[test]
fn one_link_serves_many_tests_and_survives_a_failed_one() {
    let (mut a, mut b) = (agent(), agent());
    let wrong = TestSpec { congestion: None, family: 6, ..spec(TrafficKind::UdpRr) };
    let good = TestSpec { duration_ms: 0, count: Some(20), ..spec(TrafficKind::UdpRr) };
    for _ in 0..3 {
        let problem = controller::run(&wrong, &mut a, &mut b, "127.0.0.1".parse().unwrap(), &mut NoObserver)
            .unwrap_err();
        assert!(problem.to_string().contains("not an IPv6 address"), "{problem}");
        let outcome = controller::run(&good, &mut a, &mut b, address(&good), &mut NoObserver).unwrap();
        assert_eq!(outcome.sender.unique, 20);
    }
}

#[test]
fn a_busy_agent_says_so() {
    let turns = TestLock::default();
    let link = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let turns = turns.clone();
        std::thread::spawn(move || agent::serve_in_turn(theirs, "client-1", &turns, None));
        AgentLink::from_stream(ours, "server").unwrap()
    };
    let spec = TestSpec { duration_ms: 0, count: Some(1), ..spec(TrafficKind::UdpRr) };
    let problem =
        controller::run(&spec, &mut link(), &mut link(), address(&spec), &mut NoObserver).unwrap_err();
    assert!(problem.to_string().contains("busy with a test for client-1"), "{problem}");
}

/// The sender refuses when the receiver has its turn; the next command comes a moment later.
#[test]
fn a_test_that_was_given_up_is_in_nobodys_way() {
    let turns = TestLock::default();
    let receiver = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let turns = turns.clone();
        std::thread::spawn(move || agent::serve_in_turn(theirs, "client-1", &turns, None));
        AgentLink::from_stream(ours, "server").unwrap()
    };
    let good = TestSpec { duration_ms: 0, count: Some(1), ..spec(TrafficKind::UdpRr) };
    let wrong = TestSpec { sender_cpu: Some(8_191), ..good.clone() };
    for _ in 0..5 {
        let problem =
            controller::run(&wrong, &mut agent(), &mut receiver(), address(&wrong), &mut NoObserver)
                .unwrap_err();
        assert!(problem.to_string().contains("cannot run on CPU 8191"), "{problem}");
        controller::run(&good, &mut agent(), &mut receiver(), address(&good), &mut NoObserver).unwrap();
    }
}

#[test]
fn a_peer_that_speaks_something_else_is_named() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    let problem = AgentLink::from_stream(ours, "host:80").err().unwrap().to_string();
    assert!(problem.starts_with("host:80 announced a message of"), "{problem}");
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let problem = AgentLink::from_stream(ours, "host:80").err().unwrap().to_string();
    assert!(problem.starts_with("host:80 took no message"), "{problem}");
}

#[test]
fn a_receiver_that_dies_in_the_middle_is_named() {
    struct Kill(UnixStream);
    impl Observer for Kill {
        fn before(&mut self, _: &DataPorts, _: u8) -> Result<()> {
            self.0.shutdown(std::net::Shutdown::Both).unwrap();
            Ok(())
        }
        fn settled(&mut self) -> Result<()> {
            Ok(())
        }
        fn after(&mut self) -> Result<()> {
            Ok(())
        }
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut kill = Kill(ours.try_clone().unwrap());
    std::thread::spawn(move || agent::serve(theirs, "the test"));
    let mut receiver = AgentLink::from_stream(ours, "b").unwrap();
    let spec = TestSpec { duration_ms: 20_000, ..spec(TrafficKind::UdpStream) };
    let begun = std::time::Instant::now();
    let problem = controller::run(&spec, &mut agent(), &mut receiver, address(&spec), &mut kill)
        .unwrap_err()
        .to_string();
    assert!(problem.contains("the receiver (b) closed the control connection"), "{problem}");
    assert!(problem.contains("after the start, while the test was running"), "{problem}");
    assert!(begun.elapsed().as_secs() < 10);
}

//! Peers that misbehave: nonsense, half messages, questions whose answers nobody reads, a connection that ends inside a
//! bundle. Meanwhile every frame goes its way, and a second connection finds the tables as they must be.

use crate::client::{Client, End, Running, add, frame, silent};
use flow::openflow::bytes::{Bytes, Version};
use flow::openflow::message::{Body, BundleAdd, Message, Raw};
use flow::openflow::misc::{BundleCommand, BundleControl, BundleFlags, Echo, Empty};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Frames that go from port 1 to port 2, one by one, until it is asked how many; each must arrive.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Traffic {
    /// Begins, between the first two ports.
    pub fn start(running: &mut Running) -> Traffic {
        let mut to = running.ends.remove(1);
        let mut from: End = running.ends.remove(0);
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut count = 0u64;
            while !is_over.load(Relaxed) || count == 0 {
                let bytes = frame(&format!("eth / ip / udp / raw {count:016x}"));
                from.send(&bytes);
                assert_eq!(to.must(), bytes);
                count += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            count
        });
        Traffic { stop, thread }
    }

    /// Ends it; every frame must have arrived.
    pub fn end(self) {
        self.stop.store(true, Relaxed);
        let count = self.thread.join().expect("every frame arrived");
        assert!(count > 0);
    }
}

/// Numbers that look like chance and are the same every time.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A switch that forwards from 1 to 2, and its traffic.
fn busy() -> (Running, Client, Traffic) {
    let mut running = Running::start(2);
    let mut client = running.client(Version::V14);
    client.must([add("priority=60000,in_port=1 actions=output:2")]);
    let traffic = Traffic::start(&mut running);
    (running, client, traffic)
}

#[test]
fn nonsense_changes_nothing() {
    let (running, mut witness, traffic) = busy();
    for seed in 1..=200u64 {
        let mut dice = Dice(seed);
        let mut bytes: Vec<u8> = (0..dice.next() % 3000).map(|_| dice.next() as u8).collect();
        // Half of them begin as OpenFlow does, with a hello, so that what follows is looked at.
        if seed % 2 == 0 {
            let version = 4 + (seed / 2 % 2) as u8;
            let mut hello = vec![version, 0, 0, 8, 0, 0, 0, 1];
            for part in bytes.chunks_mut(64).filter(|part| part.len() > 8) {
                let length = part.len() as u16;
                (part[0], part[1]) = (version, part[1] % 36);
                part[2..4].copy_from_slice(&length.to_be_bytes());
                // What would be done if it were whole is another test's.
                if matches!(part[1], 14..=17 | 29 | 34) {
                    part[1] = 1;
                }
            }
            hello.append(&mut bytes);
            bytes = hello;
        }
        let mut stream = UnixStream::connect(running.socket()).unwrap();
        // The switch may hang up in the middle, which is its right.
        let _ = stream.write_all(&bytes);
    }
    assert_eq!(witness.rules().len(), 1);
    traffic.end();
}

#[test]
fn half_a_message_is_no_message() {
    let (running, mut witness, traffic) = busy();
    let (_, bytes) = witness.bytes(add("priority=5,ip actions=output:2"));
    for cut in [1, 7, 8, 20, bytes.len() - 1] {
        silent(&running.socket(), Version::V14).write_all(&bytes[..cut]).unwrap();
    }
    assert_eq!(witness.rules().len(), 1);
    // The same bytes in two pieces, a while apart, are one message.
    let mut stream = silent(&running.socket(), Version::V14);
    stream.write_all(&bytes[..30]).unwrap();
    assert_eq!(witness.rules().len(), 1);
    stream.write_all(&bytes[30..]).unwrap();
    let deadline = Instant::now() + crate::client::PATIENCE;
    while witness.rules().len() < 2 {
        assert!(Instant::now() < deadline, "the rule does not come");
    }
    traffic.end();
}

#[test]
fn a_hundred_thousand_flow_mods_are_done_though_no_answer_is_read() {
    let (running, mut witness, traffic) = busy();
    let mut bytes = vec![];
    for number in 0..100_000u32 {
        // 500 rules again and again; every tenth names a table that does not exist, and its error is not read.
        let text = format!("priority={},in_port=9 actions=output:{}", number % 500 + 1, number % 7 + 1);
        let mut body = add(&text);
        if let Body::FlowMod(change) = &mut body
            && number % 10 == 9
        {
            change.table_id = 255;
        }
        bytes.extend(witness.bytes(body).1);
    }
    // The barrier comes behind 10 000 errors.
    let (xid, barrier) = witness.bytes(Body::BarrierRequest(Empty::default()));
    bytes.extend(barrier);
    let mut stream = silent(&running.socket(), Version::V14);
    stream.write_all(&bytes).unwrap();
    let mut rude = Client::over(stream, Version::V14);
    let mut errors = 0;
    loop {
        let message = rude.next(crate::client::PATIENCE).expect("errors, then the barrier's reply");
        match message.body {
            Body::Error(_) => errors += 1,
            Body::BarrierReply(_) if message.xid == xid => break,
            Body::Hello(_) | Body::PortStatus(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(errors, 10_000);
    let rules = witness.rules();
    assert_eq!(rules.len(), 1 + 450);
    for rule in rules.iter().filter(|rule| rule.priority < 60_000) {
        // The last of the 200 rounds in which this priority came.
        let last = 99_500 + u32::from(rule.priority) - 1;
        let expected = flow::agent::translate::write_instructions(&[flow::Instruction::ApplyActions(vec![
            flow::Action::Output { port: flow::PortNo(last % 7 + 1), max_len: 0 },
        ])]);
        assert_eq!(rule.instructions, expected, "priority {}", rule.priority);
    }
    traffic.end();
}

#[test]
fn who_never_reads_is_disconnected_and_nobody_else_is() {
    let (running, mut witness, traffic) = busy();
    let mut deaf = silent(&running.socket(), Version::V14);
    deaf.set_nonblocking(true).unwrap();
    // Echoes, because they cost nothing else; dumps of many rules fill a buffer as well.
    let (_, bytes) = witness.bytes(Body::EchoRequest(Echo { data: Bytes(vec![7; 60_000]) }));
    let deadline = Instant::now() + Duration::from_secs(60);
    // Until the switch has had enough.
    let (mut written, mut wrote) = (0, 0u32);
    loop {
        assert!(Instant::now() < deadline, "after {wrote} questions it is still there");
        match deaf.write(&bytes[written..]) {
            Ok(count) => {
                written = (written + count) % bytes.len();
                wrote += u32::from(written == 0);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{e}");
                break;
            }
        }
    }
    assert_eq!(witness.rules().len(), 1);
    traffic.end();
}

#[test]
fn a_bundle_that_is_cut_off_was_never_there() {
    let (running, mut witness, traffic) = busy();
    let mut client = running.client(Version::V14);
    let flags = BundleFlags(BundleFlags::ATOMIC.0 | BundleFlags::ORDERED.0);
    let open = BundleControl { bundle_id: 1, kind: BundleCommand::OPEN_REQUEST, flags, properties: vec![] };
    assert_eq!(client.ask([Body::BundleControl(open)]).len(), 1);
    for number in 0..10 {
        let text = format!("priority={number},in_port=9 actions=drop");
        let answers = client.ask_with(|xid| {
            let message = Message { version: Version::V14, xid, body: add(&text) };
            let message = Raw(message.encode().unwrap());
            Body::BundleAdd(BundleAdd { bundle_id: 1, flags, message, properties: vec![] })
        });
        assert!(answers.is_empty(), "{answers:?}");
    }
    assert_eq!(witness.rules().len(), 1);
    drop(client);
    // A bundle belongs to its connection: nobody else can commit it.
    let commit =
        BundleControl { bundle_id: 1, kind: BundleCommand::COMMIT_REQUEST, flags, properties: vec![] };
    let bad_id = (17, flow::error::BundleFailed::BadId as u16);
    assert_eq!(witness.refused(Body::BundleControl(commit)), bad_id);
    assert_eq!(witness.rules().len(), 1);
    traffic.end();
}

#[test]
fn other_versions_are_refused_with_a_sentence() {
    let (running, mut witness, traffic) = busy();
    for version in [1u8, 2, 3] {
        let mut stream = UnixStream::connect(running.socket()).unwrap();
        stream.set_read_timeout(Some(crate::client::PATIENCE)).unwrap();
        stream.write_all(&[version, 0, 0, 8, 0, 0, 0, 1]).unwrap();
        let mut said = vec![];
        stream.read_to_end(&mut said).unwrap();
        // The hello of the switch, then HELLO_FAILED/INCOMPATIBLE with words, then the end.
        let length = usize::from(u16::from_be_bytes([said[2], said[3]]));
        let error = &said[length..];
        assert_eq!((error[1], &error[8..12]), (1, [0, 0, 0, 0].as_slice()), "version {version}");
        assert!(String::from_utf8_lossy(&error[12..]).contains("OpenFlow"), "{error:02x?}");
    }
    let echo = witness.ask([Body::EchoRequest(Echo::default())]);
    assert!(matches!(echo[0].body, Body::EchoReply(_)));
    traffic.end();
}

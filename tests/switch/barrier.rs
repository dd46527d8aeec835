//! What a barrier promises (docs/switch.md): when its reply is here, the very next frame meets the new rules; and no
//! frame ever meets a mixture of the old and the new ones of a bundle. Both with traffic, and never once otherwise.

use crate::client::{Client, End, PATIENCE, Running, add, frame, rule};
use flow::openflow::bytes::Version;
use flow::openflow::message::{Body, Message, Raw};
use flow::openflow::misc::{BundleAdd, BundleCommand, BundleControl, BundleFlags};
use flow::rule::FlowModCommand;
use linux::port::{ALL, Frames, Hand, Meta, Wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Sends one frame over and over until it is told to stop; a full wire is waited for.
fn flood(end: End, bytes: &[u8], stop: &AtomicBool, sent: &AtomicU64) {
    let (_receiver, mut transmitter) = end.split();
    let mut frames = Frames::new(16, 2048);
    while !stop.load(Relaxed) {
        frames.clear();
        while frames.push(bytes, Meta::default()) {}
        let mut batch = frames.batch();
        let given = &ALL[..batch.len()];
        let done = transmitter.transmit(&mut batch, given, Hand::Over).unwrap().dealt;
        sent.fetch_add(done as u64, Relaxed);
        transmitter.flush(Duration::from_millis(1)).unwrap();
    }
}

fn address(number: u32) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

/// A rule that sends one address somewhere.
fn way(number: u32, port: u32) -> String {
    format!("priority=10,ip,nw_dst={} actions=output:{port}", address(number))
}

fn fill(client: &mut Client, count: u32) {
    let numbers: Vec<u32> = (0..count).collect();
    for some in numbers.chunks(512) {
        client.must(some.iter().map(|number| add(&way(*number, 2))));
    }
}

#[test]
fn after_the_reply_of_a_barrier_the_next_frame_meets_the_new_rule() {
    for count in [1, 16, 256, 4096] {
        let mut running = Running::start(5);
        let mut client = running.client(Version::V13);
        client.must([add("priority=20,in_port=4 actions=output:5")]);
        fill(&mut client, count);
        let sink = running.ends.pop().unwrap();
        let source = running.ends.pop().unwrap();
        let (stop, sent, came) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| flood(source, &frame("eth / ip dst=10.0.0.0 / udp"), &stop, &sent));
            scope.spawn(|| {
                let (mut receiver, _transmitter) = sink.split();
                while !stop.load(Relaxed) {
                    let batch = receiver.receive(64, Wait::For(Duration::from_millis(20))).unwrap();
                    came.fetch_add(batch.len() as u64, Relaxed);
                }
            });
            // Ends the two threads also when a probe fails.
            let _end = Stop(&stop);
            probe(&mut running, &mut client, count);
        });
        assert!(came.load(Relaxed) > 0, "there was traffic");
    }
}

/// Sets its flag when it goes.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Turns rules over one by one; each probe has its own number, so a frame on the old way is seen whenever it comes.
fn probe(running: &mut Running, client: &mut Client, count: u32) {
    let mut ports = vec![2; count as usize];
    for turn in 0..150u32 {
        // Steps by a prime: first and last rules and those between.
        let number = turn.wrapping_mul(7919) % count;
        let port = &mut ports[number as usize];
        *port = 5 - *port;
        let change = match turn % 3 {
            0 => vec![rule(FlowModCommand::ModifyStrict, &way(number, *port))],
            1 => vec![add(&way(number, *port))],
            _ => vec![rule(FlowModCommand::DeleteStrict, &gone(number)), add(&way(number, *port))],
        };
        client.must(change);
        let text = format!("eth / ip dst={} / udp / raw {turn:08x}", address(number));
        running.end(1).send(&frame(&text));
        let came = running.end(*port as usize).must();
        assert_eq!(came, frame(&text), "turn {turn} of {count} rules");
    }
    // Deleted: the next frame meets nothing. The last probe behind it shows that it was looked at.
    client.must([rule(FlowModCommand::Delete, "ip,nw_dst=10.0.0.0")]);
    running.end(1).send(&frame("eth / ip dst=10.0.0.0 / udp"));
    for port in [2, 3] {
        client.must([add(&format!("priority=30,ip,nw_dst=11.0.0.0 actions=output:{port}"))]);
        running.end(1).send(&frame("eth / ip dst=11.0.0.0 / udp"));
        let came = running.end(port).must();
        assert_eq!(came, frame("eth / ip dst=11.0.0.0 / udp"), "a frame on an old way, of {count} rules");
        running.end(5 - port).nothing();
    }
}

fn gone(number: u32) -> String {
    let way = way(number, 2);
    way.split(" actions").next().unwrap().to_owned()
}

/// Marks of the two tables in a frame: what table 0 and table 1 wrote.
fn marks(frame: &[u8]) -> (u8, u8) {
    (frame[5], frame[11])
}

/// The rules of both tables for one mark.
fn both(mark: u8) -> [Body; 2] {
    let modify = |text: String| rule(FlowModCommand::ModifyStrict, &text);
    [modify(first(mark)), modify(second(mark))]
}

fn first(mark: u8) -> String {
    format!("table=0,priority=1 actions=set_field:02:00:00:00:00:{mark:02x}->eth_dst,goto_table:1")
}

fn second(mark: u8) -> String {
    format!("table=1,priority=1 actions=set_field:02:00:00:00:00:{mark:02x}->eth_src,output:2")
}

/// Makes changes as one bundle.
fn commit(client: &mut Client, id: u32, bodies: impl IntoIterator<Item = Body>) {
    let flags = BundleFlags(BundleFlags::ATOMIC.0 | BundleFlags::ORDERED.0);
    let control =
        |kind| Body::BundleControl(BundleControl { bundle_id: id, kind, flags, properties: vec![] });
    let mut all = client.ask([control(BundleCommand::OPEN_REQUEST)]);
    for body in bodies {
        all.extend(client.ask_with(|xid| {
            let message = Raw(Message { version: Version::V14, xid, body }.encode().unwrap());
            Body::BundleAdd(BundleAdd { bundle_id: id, flags, message, properties: vec![] })
        }));
    }
    all.extend(client.ask([control(BundleCommand::COMMIT_REQUEST)]));
    let kinds: Vec<_> = all
        .iter()
        .map(|message| match &message.body {
            Body::BundleControl(control) => control.kind,
            other => panic!("the bundle was refused: {other:?}"),
        })
        .collect();
    assert_eq!(kinds, [BundleCommand::OPEN_REPLY, BundleCommand::COMMIT_REPLY]);
}

/// What arrives behind both tables: probes go to whoever sent them, mixtures and the two kinds of others are counted.
fn watch(end: End, stop: &AtomicBool, probes: &std::sync::mpsc::Sender<(u8, u8)>) -> (u64, u64, u64) {
    let (mut receiver, _transmitter) = end.split();
    let (mut old, mut new, mut mixed) = (0, 0, 0);
    while !stop.load(Relaxed) {
        let batch = receiver.receive(64, Wait::For(Duration::from_millis(20))).unwrap();
        for index in 0..batch.len() {
            let bytes = batch.bytes(index);
            match marks(bytes) {
                // The last byte of a probe says so.
                both if bytes.last() == Some(&0xee) => probes.send(both).unwrap(),
                (a, b) if a != b => mixed += 1,
                (0xa, _) => old += 1,
                _ => new += 1,
            }
        }
    }
    (old, new, mixed)
}

fn next(probes: &Receiver<(u8, u8)>) -> (u8, u8) {
    probes.recv_timeout(PATIENCE).expect("the probe arrives")
}

#[test]
fn no_frame_meets_a_mixture_of_two_tables_that_one_bundle_changes() {
    let mut running = Running::start(3);
    let mut client = running.client(Version::V14);
    client.must([add(&first(0xa)), add(&second(0xa))]);
    let mut prober = running.ends.pop().unwrap();
    let sink = running.ends.pop().unwrap();
    let source = running.ends.pop().unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (probe_in, probes) = channel();
    let bytes = frame("eth / ip / udp / raw 00");
    let probe = frame("eth / ip / udp / raw ee");
    let (old, new, mixed) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(sink, &stop, &probe_in));
        // The watch can see a mixture: one table is changed alone, without traffic.
        let end = Stop(&stop);
        client.must([rule(FlowModCommand::ModifyStrict, &first(0xb))]);
        prober.send(&probe);
        assert_eq!(next(&probes), (0xb, 0xa));
        client.must([rule(FlowModCommand::ModifyStrict, &first(0xa))]);
        prober.send(&probe);
        assert_eq!(next(&probes), (0xa, 0xa));
        scope.spawn(|| flood(source, &bytes, &stop, &sent));
        for turn in 0..200 {
            let mark = if turn % 2 == 0 { 0xb } else { 0xa };
            commit(&mut client, turn, both(mark));
            prober.send(&probe);
            assert_eq!(next(&probes), (mark, mark), "the frame after commit {turn}");
        }
        drop(end);
        watcher.join().unwrap()
    });
    assert_eq!(mixed, 0, "of {} frames", old + new + mixed);
    assert!(old > 0 && new > 0, "traffic met both: {old}, {new}");
}

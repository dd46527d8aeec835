//! What a barrier promises (docs/switch.md): when its reply is here, the very next frame meets the new rules; and no
//! frame ever meets a mixture of the old and the new ones of a bundle. Both with traffic, and never once otherwise.

use crate::client::{Client, End, PATIENCE, Running, add, frame, group, rule};
use crate::engines::{self, wait_for_program};
use flow::numbered::ModCommand;
use flow::openflow::bytes::Version;
use flow::openflow::message::{Body, BundleAdd, Message, Raw};
use flow::openflow::misc::{BundleCommand, BundleControl, BundleFlags};
use flow::rule::FlowModCommand;
use linux::port::{ALL, Frames, Hand, Meta, Wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use switch::programs::EngineKind;

/// Frames of the flood that may be on their way at once: fewer than a wire holds, so that none is lost, neither of the flood
/// nor of the probes, however little CPU the far end gets.
const CREDIT: u64 = 200;

/// Sends one frame over and over until it is told to stop, as fast as `came` says that frames arrive.
pub fn flood(end: End, bytes: &[u8], stop: &AtomicBool, came: &AtomicU64) {
    let (_receiver, mut transmitter) = end.split();
    let mut frames = Frames::new(16, 2048);
    let mut sent = 0;
    while !stop.load(Relaxed) {
        if sent - came.load(Relaxed) >= CREDIT {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        frames.clear();
        while frames.push(bytes, Meta::default()) {}
        let mut batch = frames.batch();
        let given = &ALL[..batch.len()];
        sent += transmitter.transmit(&mut batch, given, Hand::Over).unwrap().dealt as u64;
        transmitter.flush(Duration::from_millis(1)).unwrap();
    }
}

/// Takes what arrives and counts it.
pub fn swallow(end: End, stop: &AtomicBool, came: &AtomicU64) {
    let (mut receiver, _transmitter) = end.split();
    while !stop.load(Relaxed) {
        let batch = receiver.receive(64, Wait::For(Duration::from_millis(20))).unwrap();
        came.fetch_add(batch.len() as u64, Relaxed);
    }
}

fn address(number: u32) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

/// What a rule does with its frame, in ovs-ofctl's text; by which port the frame then leaves; what is in it behind the
/// destination of the Ethernet header and before that of IP.
const WAYS: [(&str, usize, &str, &str); 9] = [
    ("output:2", 2, "", ""),
    ("output:3", 3, "", ""),
    ("set_field:02:00:00:00:00:77->eth_dst,output:2", 2, " dst=02:00:00:00:00:77", ""),
    ("push_vlan:0x8100,set_field:0x1007->vlan_vid,output:3", 3, " / vlan vid=7", ""),
    ("write_actions(output:2)", 2, "", ""),
    ("dec_ttl,output:3", 3, "", "ttl=63,"),
    ("group:1", 2, "", "ttl=62,"),
    ("write_metadata:0x5,goto_table:1", 3, " src=02:00:00:00:00:55", ""),
    ("write_actions(set_field:9->ip_dscp,group:2)", 3, "", "tos=36,"),
];

/// What the ways above need.
fn prepare(client: &mut Client) {
    client.must([
        group(ModCommand::Add, "group_id=1,type=all,bucket=actions=mod_nw_ttl:62,output:2"),
        group(ModCommand::Add, "group_id=2,type=indirect,bucket=actions=output:3"),
        add("table=1,metadata=0x5 actions=set_field:02:00:00:00:00:55->eth_src,output:3"),
    ]);
}

/// A rule that sends one address one of the ways.
fn way(number: u32, which: usize) -> String {
    format!("priority=10,ip,nw_dst={} actions={}", address(number), WAYS[which].0)
}

/// The frame of a turn to an address, as it leaves.
fn left(number: u32, which: usize, turn: u32) -> Vec<u8> {
    let (_, _, ethernet, ip) = WAYS[which];
    frame(&format!("eth{ethernet} / ip {ip}dst={} / udp / raw {turn:08x}", address(number)))
}

fn fill(client: &mut Client, count: u32) {
    let numbers: Vec<u32> = (0..count).collect();
    for some in numbers.chunks(512) {
        client.must(some.iter().map(|number| add(&way(*number, 0))));
    }
}

/// A test for each engine, because each waits most of its time.
fn after_the_reply_the_next_frame_meets_the_new_rule(engine: &str) {
    let engine = engines::all().into_iter().find(|one| one.name == engine).expect("an engine");
    for count in [1, 16, 256, 4096, 16_384, 65_536] {
        next_frame_meets_the_new_rule(engine, count);
    }
}

#[test]
fn after_the_reply_of_a_barrier_the_next_frame_meets_the_new_rule_interpreter() {
    after_the_reply_the_next_frame_meets_the_new_rule("interpreter");
}

#[test]
fn after_the_reply_of_a_barrier_the_next_frame_meets_the_new_rule_native() {
    after_the_reply_the_next_frame_meets_the_new_rule("native");
}

#[test]
fn after_the_reply_of_a_barrier_the_next_frame_meets_the_new_rule_copies() {
    after_the_reply_the_next_frame_meets_the_new_rule("copies");
}

#[test]
fn every_engine_is_asked_for_what_a_barrier_promises() {
    let names: Vec<_> = engines::all().iter().map(|engine| engine.name).collect();
    assert_eq!(names, ["interpreter", "native", "copies"], "a test above for each");
}

fn next_frame_meets_the_new_rule(engine: EngineKind, count: u32) {
    let mut running = Running::with(5, |config| config.engine = engine);
    let mut client = running.client(Version::V13);
    client.must([add("priority=20,in_port=4 actions=output:5")]);
    prepare(&mut client);
    fill(&mut client, count);
    let sink = running.ends.pop().unwrap();
    let source = running.ends.pop().unwrap();
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| flood(source, &frame("eth / ip dst=10.0.0.0 / udp"), &stop, &came));
        scope.spawn(|| swallow(sink, &stop, &came));
        // Ends the two threads also when a probe fails.
        let _end = Stop(&stop);
        probe(&mut running, &mut client, (engine, count));
    });
    assert!(came.load(Relaxed) > 0, "there was traffic");
}

/// Sets its flag when it goes.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Turns rules over one by one, to every way and in every manner in which a rule can change; each probe has its own
/// number, so a frame on the old way is seen whenever it comes.
fn probe(running: &mut Running, client: &mut Client, (engine, count): (EngineKind, u32)) {
    let (mut ways, mut programs) = (vec![0; count as usize], 0);
    for turn in 0..180u32 {
        // Steps by a prime: first and last rules and those between.
        let number = turn.wrapping_mul(7919) % count;
        let which = &mut ways[number as usize];
        // Another one than before, and in time all of them.
        *which = (*which + 1 + turn as usize % (WAYS.len() - 1)) % WAYS.len();
        let (command, text) = (FlowModCommand::ModifyStrict, way(number, *which));
        let change = match turn % 4 {
            0 => vec![rule(command, &text)],
            1 => vec![add(&text)],
            2 => vec![rule(FlowModCommand::DeleteStrict, &gone(number)), add(&text)],
            // A modify that is not strict finds the rule by its match.
            _ => vec![rule(FlowModCommand::Modify, text.trim_start_matches("priority=10,"))],
        };
        if turn % 2 == 0 {
            // A program of the rules as they were is at work when they change.
            programs += u32::from(wait_for_program(engine));
        }
        client.must(change);
        running.end(1).send(&left(number, 0, turn));
        let came = running.end(WAYS[*which].1).must();
        assert_eq!(came, left(number, *which, turn), "turn {turn} of {count} rules: {text}");
    }
    assert!(programs > 0 || engine.compiler.is_none(), "no program was ever at work");
    groups(running, client);
    // Deleted: the next frame meets nothing. The last probe behind it shows that it was looked at.
    client.must([rule(FlowModCommand::Delete, "ip,nw_dst=10.0.0.0")]);
    running.end(1).send(&left(0, 0, 0));
    for port in [2, 3] {
        client.must([add(&format!("priority=30,ip,nw_dst=11.0.0.0 actions=output:{port}"))]);
        running.end(1).send(&frame("eth / ip dst=11.0.0.0 / udp"));
        let came = running.end(port).must();
        assert_eq!(came, frame("eth / ip dst=11.0.0.0 / udp"), "a frame on an old way, of {count} rules");
        running.end(5 - port).nothing();
    }
}

/// A group that changes changes what all rules do that send to it, at once, too.
fn groups(running: &mut Running, client: &mut Client) {
    client.must([add(&way(0, 8))]);
    for turn in 0..20 {
        let port = 2 + turn as usize % 2;
        let text = format!("group_id=2,type=indirect,bucket=actions=output:{port}");
        client.must([group(ModCommand::Modify, &text)]);
        running.end(1).send(&left(0, 0, turn));
        assert_eq!(running.end(port).must(), left(0, 8, turn), "turn {turn} of a group");
    }
}

fn gone(number: u32) -> String {
    let way = way(number, 0);
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

/// What arrives behind both tables: probes go to whoever sent them, mixtures and the two kinds of others are counted;
/// `came` tells the flood how many of its frames are here.
fn watch(
    end: End,
    stop: &AtomicBool,
    came: &AtomicU64,
    probes: &std::sync::mpsc::Sender<(u8, u8)>,
) -> (u64, u64, u64) {
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
        came.store(old + new + mixed, Relaxed);
    }
    (old, new, mixed)
}

fn next(probes: &Receiver<(u8, u8)>) -> (u8, u8) {
    probes.recv_timeout(PATIENCE).expect("the probe arrives")
}

#[test]
fn no_frame_meets_a_mixture_of_two_tables_that_one_bundle_changes() {
    engines::all().into_iter().for_each(no_frame_meets_a_mixture);
}

fn no_frame_meets_a_mixture(engine: EngineKind) {
    let mut running = Running::with(3, |config| config.engine = engine);
    let mut client = running.client(Version::V14);
    client.must([add(&first(0xa)), add(&second(0xa))]);
    let mut prober = running.ends.pop().unwrap();
    let sink = running.ends.pop().unwrap();
    let source = running.ends.pop().unwrap();
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let (probe_in, probes) = channel();
    let bytes = frame("eth / ip / udp / raw 00");
    let probe = frame("eth / ip / udp / raw ee");
    let (old, new, mixed) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(sink, &stop, &came, &probe_in));
        // The watch can see a mixture: one table is changed alone, without traffic.
        let end = Stop(&stop);
        client.must([rule(FlowModCommand::ModifyStrict, &first(0xb))]);
        prober.send(&probe);
        assert_eq!(next(&probes), (0xb, 0xa));
        client.must([rule(FlowModCommand::ModifyStrict, &first(0xa))]);
        prober.send(&probe);
        assert_eq!(next(&probes), (0xa, 0xa));
        scope.spawn(|| flood(source, &bytes, &stop, &came));
        for turn in 0..200 {
            let mark = if turn % 2 == 0 { 0xb } else { 0xa };
            wait_for_program(engine);
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

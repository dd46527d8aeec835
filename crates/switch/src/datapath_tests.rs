//! Frames through a switch over wires in memory: who copies, and that nothing is lost on the way.

use super::*;
use crate::native::NATIVE;
use crate::programs::INTERPRETER;
use linux::port::{Hand, Meta, Port};

/// To everybody, so that a bridge floods it.
const FRAME: [u8; 60] = {
    let mut frame = [2; 60];
    frame.split_at_mut(6).0.copy_from_slice(&[0xff; 6]);
    frame
};

/// Ends the threads of the ports, also when a test fails.
struct Stop<'a>(&'a Datapath);

impl std::ops::Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Hears nothing.
struct Deaf;

impl PortEvents for Deaf {
    fn packet_ins(&self, frames: &mut Vec<PacketIn>) {
        frames.clear();
    }

    fn gone(&self, _: PortNo) {}
}

/// Lets a bridge with these ports pass frames from the first to the last one; how often each port but the
/// first copied a frame.
fn copies_of_bridge(uris: &[&str], count: usize) -> Vec<u64> {
    let ports: Vec<(PortNo, String)> =
        (1..).zip(uris).map(|(number, uri)| (PortNo(number), (*uri).to_owned())).collect();
    let (datapath, inlets, said) =
        build(Pipeline::new(1), &ports, None, INTERPRETER, ShadowRate::Off).unwrap();
    let shared = |one: &Opened| one.settings.iter().any(|setting| setting.note.contains("shared"));
    assert_eq!(said.iter().map(shared).collect::<Vec<_>>(), vec![!uris[0].contains("chunk"); uris.len()]);
    datapath.set_bridging(true);
    let mut far: Vec<Port> = uris.iter().map(|uri| open(uri, &PortOptions::default()).unwrap()).collect();
    let mut frames = Frames::new(count, 64);
    while frames.push(&FRAME, Meta::default()) {}
    std::thread::scope(|scope| {
        for inlet in inlets {
            scope.spawn(|| datapath.work(inlet, &Deaf));
        }
        let _stop = Stop(&datapath);
        let mut batch = frames.batch();
        let all = batch.all();
        let sent = far[0].transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Copy).unwrap();
        assert_eq!(sent.dealt, count);
        for port in &mut far[1..] {
            let (receiver, mut came) = (port.receiver.as_mut().unwrap(), 0);
            while came < count {
                let batch = receiver.receive(MAX_BATCH, Wait::For(Duration::from_secs(20))).unwrap();
                assert!(!batch.is_empty(), "{came} of {count} frames came");
                (0..batch.len()).for_each(|index| assert_eq!(batch.bytes(index), FRAME));
                came += batch.len();
            }
        }
    });
    let copied = |(number, _): &(PortNo, String)| datapath.outputs[&(*number, None)].counters().copied;
    ports[1..].iter().map(copied).collect()
}

#[test]
fn between_ports_that_share_memory_nothing_is_copied() {
    assert_eq!(copies_of_bridge(&["mem:dp-a", "mem:dp-b"], 200), [0]);
}

#[test]
fn a_frame_that_leaves_twice_is_copied_once() {
    assert_eq!(copies_of_bridge(&["mem:dp-c", "mem:dp-d", "mem:dp-e"], 200), [200, 0]);
}

#[test]
fn ports_with_memory_of_their_own_copy_once() {
    assert_eq!(copies_of_bridge(&["mem:dp-f?chunk=4096", "mem:dp-g?chunk=2048"], 200), [200]);
}

/// Sends more frames than a wire holds that nobody reads; what the port counts as transmitted, and what came when it is read at last.
fn counted_of_a_full_port(engine: EngineKind, names: [&str; 2]) -> [u64; 2] {
    const COUNT: u64 = 400;
    let uris = [format!("mem:{}", names[0]), format!("mem:{}?frames=100", names[1])];
    let ports: Vec<_> = (1..).zip(&uris).map(|(number, uri)| (PortNo(number), uri.clone())).collect();
    let (datapath, inlets, _) = build(Pipeline::new(10), &ports, None, engine, ShadowRate::OneOf(3)).unwrap();
    let [mut near, mut far] = uris.map(|uri| open(&uri, &PortOptions::default()).unwrap());
    datapath.change(|rules| flow::text::file::load(rules, "in_port=1 actions=output:2")).unwrap();
    let counters = |datapath: &Datapath, number| datapath.counted().ports[&PortNo(number)].counters;
    std::thread::scope(|scope| {
        let _stop = Stop(&datapath);
        scope.spawn(|| datapath.programs().run(|what| panic!("{what:?}")));
        while datapath.programs().compiles() && !datapath.programs().has_program() {
            std::thread::yield_now();
        }
        for inlet in inlets {
            scope.spawn(|| datapath.work(inlet, &Deaf));
        }
        let mut frames = Frames::new(COUNT as usize, 64);
        while frames.push(&FRAME, Meta::default()) {}
        let mut batch = frames.batch();
        let all = batch.all();
        let sent = near.transmitter.as_mut().unwrap().transmit(&mut batch, all, Hand::Copy).unwrap();
        assert_eq!(sent.dealt as u64, COUNT);
        let told = || counters(&datapath, 2).tx_frames + counters(&datapath, 2).tx_dropped;
        while told() < COUNT {
            std::thread::yield_now();
        }
    });
    let (receiver, mut came) = (far.receiver.as_mut().unwrap(), 0);
    loop {
        match receiver.receive(MAX_BATCH, Wait::Poll) {
            Ok(batch) if !batch.is_empty() => came += batch.len() as u64,
            _ => break,
        }
    }
    let PortCounters { tx_frames, tx_bytes, tx_dropped, .. } = counters(&datapath, 2);
    assert_eq!((tx_frames + tx_dropped, tx_bytes), (COUNT, tx_frames * FRAME.len() as u64));
    assert_eq!(tx_dropped, datapath.dropped(PortNo(2)));
    [tx_frames, came]
}

#[test]
fn what_a_full_port_lost_is_not_counted_as_transmitted() {
    assert_eq!(counted_of_a_full_port(INTERPRETER, ["full-a", "full-b"]), [100, 100]);
    assert_eq!(counted_of_a_full_port(NATIVE, ["full-c", "full-d"]), [100, 100]);
}

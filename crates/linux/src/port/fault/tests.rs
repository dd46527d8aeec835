use super::super::{Frames, open};
use super::*;
use proptest::prelude::*;

fn frame(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// A wire with faults at one end: that end, the plain end.
fn wire(name: &str, settings: &str) -> (Port, Port) {
    let (wish, name) = (PortOptions::default(), format!("mem:fault-{name}"));
    (open(&format!("fault:{name}?{settings}"), &wish).unwrap(), open(&name, &wish).unwrap())
}

fn send(to: &mut dyn Transmitter, numbers: std::ops::Range<u32>) -> usize {
    let mut frames = Frames::new(MAX_BATCH, 64);
    for i in numbers {
        assert!(frames.push(&frame(i), Meta::default()));
    }
    let mut batch = frames.batch();
    let all = batch.all();
    to.transmit(&mut batch, all, Hand::Over).unwrap().dealt
}

fn drain(from: &mut dyn Receiver, wait: Wait) -> Vec<Vec<u8>> {
    let mut all = vec![];
    loop {
        match from.receive(MAX_BATCH, wait) {
            Ok(batch) if batch.is_empty() => return all,
            Ok(batch) => all.extend((0..batch.len()).map(|i| batch.bytes(i).to_vec())),
            Err(PortError::Ended) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

fn extra(counted: &[(&'static str, u64)], name: &str) -> u64 {
    counted.iter().find(|(other, _)| *other == name).unwrap().1
}

fn lost(drops: &[PlaceDrop]) -> u64 {
    drops.iter().find(|drop| drop.name == "fault_lost").unwrap().count
}

const ALL_FAULTS: &str = "lose=10%&duplicate=5%&reorder=5%&corrupt=0.05&frames=4096";

/// What comes out of 2000 frames, in batches of so many, and the ledger of the way.
fn run(name: &str, settings: &str, batch: u32, receiving: bool) -> Vec<Vec<u8>> {
    let (mut faulty, mut plain) = wire(name, settings);
    let (to, from) = if receiving { (&mut plain, &mut faulty) } else { (&mut faulty, &mut plain) };
    let (to, from) = (to.transmitter.as_mut().unwrap(), from.receiver.as_mut().unwrap());
    let mut next = 0;
    let mut came = vec![];
    while next < 2000 {
        let end = (next + batch).min(2000);
        next += send(to.as_mut(), next..end) as u32;
        if receiving {
            came.extend(drain(from.as_mut(), Wait::Poll));
        }
    }
    assert_eq!(to.flush(Duration::from_secs(60)).unwrap(), 0);
    came.extend(drain(from.as_mut(), Wait::For(Duration::from_millis(30))));
    let (sent, received) = (to.counters(), from.counters());
    let (counted, drops) =
        if receiving { (&received.extra, &received.drops) } else { (&sent.extra, &sent.drops) };
    assert_eq!(extra(counted, "fault_entered"), 2000);
    assert_eq!(extra(counted, "fault_held"), 0);
    assert_eq!(
        2000 + extra(counted, "fault_duplicated"),
        came.len() as u64 + lost(drops),
        "the ledger closes"
    );
    assert_eq!((sent.offered, received.frames), (2000, came.len() as u64));
    came
}

#[test]
fn every_fault_happens_about_as_often_as_asked_and_is_counted() {
    for receiving in [false, true] {
        let came = run(&format!("often{receiving}"), ALL_FAULTS, 100, receiving);
        let corrupted =
            came.iter().filter(|bytes| **bytes != frame(number(bytes)) || number(bytes) >= 2000).count();
        assert!((50..200).contains(&corrupted), "{corrupted}");
        assert!((1700..2000).contains(&came.len()), "{}", came.len());
        let descents = came.windows(2).filter(|pair| number(&pair[0]) > number(&pair[1])).count();
        assert!((30..250).contains(&descents), "{descents}");
        let twins = came.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((40..160).contains(&twins), "{twins}");
    }
}

#[test]
fn the_same_seed_gives_the_same_faults_whatever_the_batches() {
    let with = |name: &str, seed: u32, batch| run(name, &format!("{ALL_FAULTS}&seed={seed}"), batch, false);
    let seven = with("seed-a", 7, 100);
    assert_eq!(seven, with("seed-b", 7, 100));
    assert_eq!(seven, with("seed-c", 7, 13));
    assert_ne!(seven, with("seed-d", 8, 100));
}

#[test]
fn another_chance_does_not_move_the_losses() {
    let losses = |name: &str, more: &str| {
        let came = run(name, &format!("lose=10%&seed=3&frames=4096{more}"), 50, false);
        let mut numbers: Vec<u32> = came.iter().map(|bytes| number(bytes)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    assert_eq!(losses("chance-a", ""), losses("chance-b", "&duplicate=20%&reorder=10%"));
}

#[test]
fn a_full_port_inside_neither_loses_nor_repeats() {
    let (mut faulty, mut plain) = wire("full", "duplicate=20%&reorder=20%&frames=7&seed=1");
    let (to, from) = (faulty.transmitter.as_mut().unwrap(), plain.receiver.as_mut().unwrap());
    let (mut next, mut came) = (0, vec![]);
    while next < 500 {
        next += send(to.as_mut(), next..(next + 20).min(500)) as u32;
        came.extend(drain(from.as_mut(), Wait::Poll));
    }
    while to.flush(Duration::ZERO).unwrap() > 0 {
        came.extend(drain(from.as_mut(), Wait::Poll));
    }
    came.extend(drain(from.as_mut(), Wait::Poll));
    let counted = to.counters().extra;
    assert_eq!(came.len() as u64, 500 + extra(&counted, "fault_duplicated"));
    let mut numbers: Vec<u32> = came.iter().map(|bytes| number(bytes)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    let reference = run("full-twin", "duplicate=20%&reorder=20%&frames=4096&seed=1", 50, false);
    assert_eq!(came, reference[..came.len()], "the same as without a full port");
}

#[test]
fn delayed_frames_come_in_order_and_not_too_early() {
    for side in ["rx", "tx"] {
        let (mut faulty, mut plain) = wire(&format!("delay-{side}"), &format!("delay=5ms&side={side}"));
        let (to, from) = if side == "rx" { (&mut plain, &mut faulty) } else { (&mut faulty, &mut plain) };
        let (to, from) = (to.transmitter.as_mut().unwrap(), from.receiver.as_mut().unwrap());
        let begun = clock::monotonic_ns();
        assert_eq!(send(to.as_mut(), 0..50), 50);
        assert!(drain(from.as_mut(), Wait::Poll).is_empty() || clock::monotonic_ns() - begun >= 5_000_000);
        assert_eq!(to.flush(Duration::from_secs(60)).unwrap(), 0);
        let first = from.receive(1, Wait::For(Duration::from_secs(60))).unwrap();
        assert_eq!((first.len(), number(first.bytes(0))), (1, 0));
        assert!(clock::monotonic_ns() - begun >= 5_000_000, "{side}");
        let rest = drain(from.as_mut(), Wait::For(Duration::from_millis(500)));
        let numbers: Vec<u32> = rest.iter().map(|bytes| number(bytes)).collect();
        assert_eq!(numbers, (1..50).collect::<Vec<_>>(), "{side}");
    }
}

#[test]
fn what_is_held_is_given_out_before_the_end_is_said() {
    let (mut faulty, mut plain) = wire("end", "delay=2ms&side=rx");
    assert_eq!(send(plain.transmitter.as_mut().unwrap().as_mut(), 0..5), 5);
    drop(plain);
    let from = faulty.receiver.as_mut().unwrap();
    let mut came = 0;
    let end = loop {
        match from.receive(2, Wait::For(Duration::from_secs(5))) {
            Ok(batch) => came += batch.len(),
            Err(error) => break error,
        }
    };
    assert!(matches!(end, PortError::Ended));
    assert_eq!(came, 5);

    // The last frame of all is chosen to be overtaken, and its sender goes away: it still arrives.
    let (faulty, mut plain) = wire("last", "reorder=100%&side=tx");
    let mut faulty = faulty;
    assert_eq!(send(faulty.transmitter.as_mut().unwrap().as_mut(), 0..3), 3);
    drop(faulty);
    let came = drain(plain.receiver.as_mut().unwrap().as_mut(), Wait::Poll);
    assert_eq!(came.iter().map(|bytes| number(bytes)).collect::<Vec<_>>(), [1, 0, 2]);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let refused = |uri: &str| open(uri, &PortOptions::default()).unwrap_err().to_string();
    assert!(refused("fault:mem:x?lose=2").contains("lose=2"));
    assert!(refused("fault:mem:x?lose=-1%").contains("chance"));
    assert!(refused("fault:mem:x?delay=5").contains("is not a time (examples: 250ns"));
    assert!(refused("fault:mem:x?side=left").contains("rx, tx or both"));
    assert!(refused("fault:mem:x?colour=red").contains("no setting 'colour'"));
    assert!(refused("fault:nothing").contains("KIND:NAME"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_ledger_closes_for_any_plan(seed: u64, lose in 0.0..1.0f64, duplicate in 0.0..1.0f64, reorder in 0.0..1.0f64, batch in 1u32..200) {
        let settings = format!("lose={lose}&duplicate={duplicate}&reorder={reorder}&seed={seed}&frames=8192");
        run(&format!("any{seed}"), &settings, batch, seed % 2 == 0);
    }
}

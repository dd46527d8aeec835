//! What every kind must do. Nothing here knows a kind.

use super::rig::{Came, Kind, Medium, Rig, frame};
use super::stage::Space;
use linux::port::{
    Frames, Hand, MAX_BATCH, Meta, PortError, PortOptions, TransmitCounters, Transmitted, Wait,
};
use record::PlaceDrop;
use std::time::{Duration, Instant};

fn bytes(came: &[Came]) -> Vec<Vec<u8>> {
    came.iter().map(|frame| frame.bytes.clone()).collect()
}

fn sum(drops: &[PlaceDrop]) -> u64 {
    drops.iter().map(|drop| drop.count).sum()
}

/// Compares without printing a thousand frames.
fn assert_same(rig: &Rig, came: &[Came], sent: &[Vec<u8>]) {
    let differs = came.iter().zip(sent).position(|(came, sent)| came.bytes != *sent);
    if let Some(at) = differs {
        panic!("{}: frame {at} differs:\n came {:02x?}\n sent {:02x?}", rig.name, came[at].bytes, sent[at]);
    }
    assert_eq!(came.len(), sent.len(), "{}: frames that came and were sent", rig.name);
}

/// Random frames of all ordinary lengths, with and without VLAN tags.
fn mixture(count: u32) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(3);
    let lengths = [14, 15, 17, 59, 60, 61, 64, 65, 127, 128, 590, 1000, 1499, 1513, 1514];
    let one = |number| {
        let length = if random.bool() { *random.choice(&lengths).unwrap() } else { random.usize(18..=1514) };
        let mut bytes = frame(number, length);
        let tag: &[u8] = match random.u8(0..8) {
            0 => &[0x81, 0, 0x20, 0x64],                   // priority 1, VLAN 100
            1 => &[0x88, 0xa8, 0, 7, 0x81, 0, 0xe0, 0x01], // a service tag, and one inside
            2 => &[0x81, 0, 0, 0],                         // a priority tag without a VLAN
            _ => &[],
        };
        // The kernel drops tagged frames that end before the ethertype inside and two bytes more (`skb_vlan_untag`).
        if (20..=1514).contains(&(length + tag.len())) && length >= 20 {
            bytes.splice(12..12, tag.iter().copied());
        }
        bytes
    };
    (0..count).map(one).collect()
}

pub fn same_frames(kind: &Kind) {
    for mut rig in kind.rigs(&PortOptions::default()) {
        let frames = mixture(2000);
        let total: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
        let mut tx_counters = None;
        // A file's transmitter is closed by the exchange; its counters are read by `batches`.
        let came = rig.exchange(&frames, 64);
        assert_same(&rig, &came, &frames);
        assert!(came.iter().all(|came| came.wire_length as usize == came.bytes.len()));
        if rig.tx.is_some() {
            tx_counters = Some(rig.tx().counters());
        }
        let received = rig.rx().counters();
        assert_eq!((received.frames, received.bytes, received.cut), (2000, total, 0), "{}", rig.name);
        assert_eq!(sum(&received.drops), 0, "{}: {:?}", rig.name, received.drops);
        if let Some(sent) = tx_counters {
            assert_eq!((sent.offered, sent.accepted, sent.bytes), (2000, 2000, total), "{}", rig.name);
            assert!(sent.completed.is_none_or(|completed| completed == 2000), "{}: {sent:?}", rig.name);
            assert_eq!(sum(&sent.drops), 0, "{}: {:?}", rig.name, sent.drops);
        }
        assert!(!rig.settings.is_empty(), "{}: every setting is said", rig.name);
    }
}

/// No frame, one, as many as a batch holds, and far more than any ring.
pub fn batches(kind: &Kind) {
    for mut rig in kind.rigs(&PortOptions::default()) {
        let mut none = Frames::new(1, 64);
        assert_eq!(rig.tx().transmit(&mut none.batch(), &[], Hand::Over).unwrap(), Transmitted::default());
        if rig.rx.is_some() {
            assert!(rig.rx().receive(0, Wait::Poll).unwrap().is_empty(), "{}", rig.name);
            assert!(rig.rx().receive(9, Wait::Poll).unwrap().is_empty(), "{}: no frame yet", rig.name);
        }
        let frames: Vec<Vec<u8>> = (0..6000).map(|i| frame(i, 60)).collect();
        if kind.medium == Medium::File {
            assert_same_after(&mut rig, &frames);
            continue;
        }
        for (part, batch) in [(&frames[..3], 1), (&frames[3..515], MAX_BATCH), (&frames[515..], 100)] {
            let came = rig.exchange(part, batch);
            assert_same(&rig, &came, part);
        }
        // One at a time, however many are there.
        let one = rig.exchange(&frames[..1], 1);
        assert_eq!(one.len(), 1);
        assert_eq!(
            send(&mut rig, &frames[..5]).unwrap(),
            Transmitted { dealt: 5, refused: 0 },
            "{}",
            rig.name
        );
        let mut numbers = vec![];
        let deadline = Instant::now() + Duration::from_secs(60);
        while numbers.len() < 5 && Instant::now() < deadline {
            let batch = rig.rx().receive(1, Wait::For(Duration::from_millis(100))).unwrap();
            assert!(batch.len() <= 1);
            numbers.extend((0..batch.len()).map(|i| batch.bytes(i).to_vec()));
        }
        assert_eq!(numbers, &frames[..5], "{}", rig.name);
        assert_eq!(rig.rx().counters().frames, 6006, "{}", rig.name);
    }
}

fn assert_same_after(rig: &mut Rig, frames: &[Vec<u8>]) {
    let came = rig.exchange(frames, MAX_BATCH);
    assert_same(rig, &came, frames);
}

/// Offers frames once; what became of them.
fn send(rig: &mut Rig, frames: &[Vec<u8>]) -> Result<Transmitted, PortError> {
    let mut memory = Frames::new(frames.len(), 2000);
    for frame in frames {
        assert!(memory.push(frame, Meta::default()));
    }
    let mut batch = memory.batch();
    let all = batch.all();
    let sent = rig.tx().transmit(&mut batch, all, Hand::Copy);
    for (i, frame) in frames.iter().enumerate() {
        assert_eq!(batch.bytes(i), &frame[..], "{}: a copy was asked for", rig.name);
    }
    rig.tx().flush(Duration::from_millis(100))?;
    sent
}

/// Runts and frames that are too long: carried whole or refused with a name, and good frames pass between them.
pub fn lengths(kind: &Kind) {
    for mut rig in kind.rigs(&PortOptions::default()) {
        let odd = [0usize, 1, 6, 13, 14, 15, 33, 60, 1514, 1515, 1519, 1900, 4000, 9000, 70000];
        let mut frames = vec![];
        for (i, length) in odd.iter().enumerate() {
            frames.push(frame(1000 + i as u32, *length));
            frames.push(frame(i as u32, 100));
        }
        let came = bytes(&rig.exchange(&frames, 64));
        // In order, nothing invented: what came is what was sent without some odd ones.
        let mut sent = frames.iter();
        for came in &came {
            assert!(sent.any(|sent| sent == came), "{}: {} bytes came changed", rig.name, came.len());
        }
        let good = |frame: &&Vec<u8>| frame.len() == 100 || (14..=1514).contains(&frame.len());
        let good: Vec<&Vec<u8>> = frames.iter().filter(good).collect();
        let came_good: Vec<&Vec<u8>> = came.iter().filter(|came| good.contains(came)).collect();
        assert_eq!(came_good, good, "{}", rig.name);
        if rig.tx.is_some() {
            let sent = rig.tx().counters();
            assert_eq!(sent.offered, frames.len() as u64, "{}", rig.name);
            assert_eq!(sent.accepted, came.len() as u64, "{}: {:?}", rig.name, sent.drops);
            assert_eq!(sum(&sent.drops), sent.offered - sent.accepted, "{}: {:?}", rig.name, sent.drops);
            if kind.has_interface() {
                assert!(rig.tx().longest() >= 1514, "{}", rig.name);
                assert!(
                    sent.drops.iter().any(|d| d.name == "oversize" && d.count >= 3),
                    "{}: {:?}",
                    rig.name,
                    sent.drops
                );
                assert!(
                    sent.drops.iter().any(|d| d.name == "runt" && d.count >= 3),
                    "{}: {:?}",
                    rig.name,
                    sent.drops
                );
            }
        }
    }
}

pub fn snap(kind: &Kind) {
    for mut rig in kind.rigs(&PortOptions { snap: Some(40), ..PortOptions::default() }) {
        let frames: Vec<Vec<u8>> =
            [14, 39, 40, 41, 60, 1514].iter().zip(0..).map(|(length, i)| frame(i, *length)).collect();
        let came = rig.exchange(&frames, 64);
        assert_eq!(came.len(), frames.len(), "{}", rig.name);
        for (came, sent) in came.iter().zip(&frames) {
            assert_eq!(came.bytes, sent[..sent.len().min(40)], "{}", rig.name);
            assert_eq!(came.wire_length as usize, sent.len(), "{}", rig.name);
        }
        let counters = rig.rx().counters();
        let total: usize = frames.iter().map(Vec::len).sum();
        assert_eq!((counters.frames, counters.bytes, counters.cut), (6, total as u64, 3), "{}", rig.name);
    }
}

/// Receives until the port says something that is not a frame.
fn wait_for_error(rig: &mut Rig) -> Option<PortError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Err(error) = rig.rx().receive(MAX_BATCH, Wait::For(Duration::from_millis(100))) {
            return Some(error);
        }
    }
    None
}

/// Nothing that was offered in between is claimed to have left: it was not accepted, or (a ring takes frames before the
/// driver sees them) is counted as lost, or is not reported complete.
fn assert_none_claimed(name: &str, before: &TransmitCounters, after: &TransmitCounters) {
    let taken = after.accepted - before.accepted;
    let lost = sum(&after.drops) - sum(&before.drops);
    let completed = before.completed.zip(after.completed).map(|(before, after)| after - before);
    let open = completed.is_some_and(|completed| completed == 0);
    assert!(taken == 0 || lost >= taken || open, "{name}: {before:?} {after:?}");
}

pub fn link_down(kind: &Kind) {
    if !kind.has_interface() {
        return; // nothing that could go down
    }
    for mut rig in kind.rigs(&PortOptions::default()) {
        let frames: Vec<Vec<u8>> = (0..5).map(|i| frame(i, 100)).collect();
        let came = rig.exchange(&frames, 64);
        assert_same(&rig, &came, &frames);
        let before = rig.tx().counters();
        let (sender, receiver) = (0, rig.places.len() - 1);
        set(&rig, sender, "down");
        set(&rig, receiver, "down");
        match send(&mut rig, &frames[..3]) {
            Ok(sent) => assert_eq!(sent.refused, sent.dealt, "{}: nothing can leave", rig.name),
            Err(error) => assert!(matches!(error, PortError::Down), "{}: {error:?}", rig.name),
        }
        let after = rig.tx().counters();
        assert_none_claimed(&rig.name, &before, &after);
        let error = wait_for_error(&mut rig);
        assert!(matches!(error, Some(PortError::Down)), "{}: {error:?}", rig.name);
        let quiet = rig.rx().receive(9, Wait::For(Duration::from_millis(30))).map(|batch| batch.len());
        assert!(matches!(quiet, Ok(0)), "{}: said once: {quiet:?}", rig.name);

        set(&rig, sender, "up");
        set(&rig, receiver, "up");
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut came = vec![];
        while came.is_empty() && Instant::now() < deadline {
            let _ = send(&mut rig, &frames[..1]); // it may say once more that it was down
            std::thread::sleep(Duration::from_millis(5));
            rig.take(&mut came, Wait::Poll);
        }
        assert!(!came.is_empty(), "{}: frames pass again", rig.name);
        // Those that were sent while the first was under way come, too.
        while {
            came.clear();
            rig.take(&mut came, Wait::For(Duration::from_millis(200)));
            !came.is_empty()
        } {}
        let came = rig.exchange(&frames, 64);
        assert_same(&rig, &came, &frames);
    }
}

fn set(rig: &Rig, place: usize, state: &str) {
    let (space, name) = &rig.places[place];
    space.ip(&format!("link set {name} {state}"));
}

pub fn removed(kind: &Kind) {
    if !kind.has_interface() {
        return; // nothing that could be removed
    }
    for mut rig in kind.rigs(&PortOptions::default()) {
        let frames: Vec<Vec<u8>> = (0..5).map(|i| frame(i, 100)).collect();
        let came = rig.exchange(&frames, 64);
        assert_same(&rig, &came, &frames);
        let before = rig.tx().counters();
        let (space, name) = &rig.places[0];
        space.ip(&format!("link del {name}"));
        let mut said = wait_for_error(&mut rig);
        if matches!(said, Some(PortError::Down)) {
            said = wait_for_error(&mut rig); // it goes down on its way out
        }
        assert!(matches!(said, Some(PortError::Gone)), "{}: {said:?}", rig.name);
        assert!(matches!(rig.rx().receive(9, Wait::Poll), Err(PortError::Gone)), "{}: again", rig.name);
        let tried: Vec<_> = (0..3).map(|_| send(&mut rig, &frames)).collect();
        assert!(matches!(tried[2], Err(PortError::Gone)), "{}: {tried:?}", rig.name);
        // Counters can still be read.
        assert_eq!(rig.rx().counters().frames, 5, "{}", rig.name);
        let after = rig.tx().counters();
        assert_none_claimed(&rig.name, &before, &after);
    }
}

/// What came before shows after the link is down, and says nothing about the link.
pub fn moved(kind: &Kind) {
    for mut rig in kind.rigs(&PortOptions::default()) {
        let frames: Vec<Vec<u8>> = (0..5).map(|i| frame(i, 100)).collect();
        let came = rig.exchange(&frames, 64);
        assert_same(&rig, &came, &frames);
        send(&mut rig, &frames).unwrap();
        let elsewhere = Space::new();
        let (space, name) = rig.places.last().unwrap();
        space.ip(&format!("link set {name} netns {}", elsewhere.path()));
        let mut said = wait_for_error(&mut rig);
        if matches!(said, Some(PortError::Down)) {
            said = wait_for_error(&mut rig);
        }
        assert!(matches!(said, Some(PortError::Gone)), "{}: {said:?}", rig.name);
    }
}

pub fn closed(kind: &Kind) {
    for mut rig in kind.rigs(&PortOptions::default()) {
        let frames: Vec<Vec<u8>> = (0..200).map(|i| frame(i, 100)).collect();
        for _ in 0..3 {
            let mut memory = Frames::new(200, 128);
            for frame in &frames {
                assert!(memory.push(frame, Meta::default()));
            }
            let mut batch = memory.batch();
            let all = batch.all();
            rig.tx().transmit(&mut batch, all, Hand::Over).unwrap();
            if rig.rx.is_some() {
                rig.rx().receive(3, Wait::Poll).unwrap();
            }
            rig.close();
            if kind.medium == Medium::File {
                return; // a file is not written twice
            }
            rig.open();
        }
        if kind.medium == Medium::TapReceives {
            rig.settle();
        }
        let came = rig.exchange(&frames, 64);
        // Frames of before may still have been under way; none may be damaged or lost among the new ones.
        let came: Vec<Came> = came[came.len().saturating_sub(200)..].to_vec();
        assert_same(&rig, &came, &frames);
    }
}

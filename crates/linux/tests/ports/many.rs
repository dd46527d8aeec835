//! 10⁸ frames: counters of bytes are beyond 32 bits many times over, nothing leaks.

use linux::port::{Area, Frames, Hand, MAX_BATCH, Meta, PortOptions, Wait, forward, open};

/// Frames bounce between the two ends of a wire; each crossing is one frame sent and one received.
#[test]
fn a_hundred_million_frames_are_counted() {
    const FRAMES: u64 = 100_000_000;
    let area = Area::new(4096, 2048).unwrap();
    let wish = PortOptions { area: Some(area.clone()), ..PortOptions::default() };
    let (mut a, mut b) = (open("mem:many", &wish).unwrap(), open("mem:many", &wish).unwrap());
    let (a_rx, a_tx) = (a.receiver.as_mut().unwrap(), a.transmitter.as_mut().unwrap());
    let (b_rx, b_tx) = (b.receiver.as_mut().unwrap(), b.transmitter.as_mut().unwrap());
    let mut frames = Frames::new(MAX_BATCH, 1514);
    while frames.add(1514, Meta::default()).is_some() {}
    let mut batch = frames.batch();
    let all = batch.all();
    assert_eq!(a_tx.transmit(&mut batch, all, Hand::Over).unwrap().dealt, MAX_BATCH);
    let mut crossed = MAX_BATCH as u64;
    while crossed < FRAMES {
        let moved = forward(b_rx.as_mut(), b_tx.as_mut(), Wait::Poll).unwrap();
        assert_eq!((moved.came, moved.sent()), (MAX_BATCH, MAX_BATCH));
        let moved = forward(a_rx.as_mut(), a_tx.as_mut(), Wait::Poll).unwrap();
        assert_eq!((moved.came, moved.sent()), (MAX_BATCH, MAX_BATCH));
        crossed += 2 * MAX_BATCH as u64;
    }
    let (there, back) = (a_tx.counters(), b_tx.counters());
    assert_eq!(there.accepted + back.accepted, crossed);
    assert_eq!(there.bytes + back.bytes, crossed * 1514);
    assert_eq!(there.copied + back.copied, MAX_BATCH as u64, "only the first batch");
    let received = (a_rx.counters(), b_rx.counters());
    assert_eq!(received.0.frames + received.1.frames, crossed - MAX_BATCH as u64, "one batch is under way");
    assert!(received.0.bytes > 1 << 36 && received.1.bytes > 1 << 36);
    drop((a, b));
    assert_eq!(area.free(), 4096, "every chunk came back");
}

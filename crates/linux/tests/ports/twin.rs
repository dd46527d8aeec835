//! Our segments against the kernel's: the same super-frames, cut by `wire::offload` and by an interface that cannot
//! carry them.

use super::stage::{Space, join, may_run};
use linux::port::{Frames, Hand, MAX_BATCH, Meta, PortOptions, Wait};
use std::time::{Duration, Instant};
use wire::frame::{TCP, UDP};
use wire::layers::Layers;
use wire::offload::{Offload, SegmentKind, Segments, partial_of, segment};

/// A super-frame with the pseudo header's sum in its checksum, as the kernel wants it.
fn super_frame(v6: bool, kind: SegmentKind, payload: usize, tag: bool, size: u16) -> (Vec<u8>, Offload) {
    let is_tcp = matches!(kind, SegmentKind::Tcp4 | SegmentKind::Tcp6);
    let mut transport = vec![0x13, 0x88, 0x13, 0x89];
    if is_tcp {
        // Sequence number near its end; CWR, PSH, ACK and FIN; 12 bytes of options.
        transport.extend([0xff, 0xff, 0xf0, 0, 0, 0, 0, 7, 0x80, 0x99, 0x20, 0, 0, 0, 0, 0]);
        transport.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    } else {
        transport.extend((8 + payload as u16).to_be_bytes());
        transport.extend([0, 0]);
    }
    let header = transport.len();
    let mut random = fastrand::Rng::with_seed(payload as u64);
    transport.extend(std::iter::repeat_with(|| random.u8(..)).take(payload));
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if tag {
        frame.extend([0x81, 0, 0, 42]);
    }
    let protocol = if is_tcp { TCP } else { UDP };
    let length = transport.len() as u16;
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend((0..32).map(|i| if i % 16 == 0 { 0xfd } else { i }));
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + length).to_be_bytes());
        frame.extend([0x12, 0xfe, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    let start = frame.len();
    frame.extend(transport);
    wire::repair::repair(&mut frame); // the IPv4 header
    let layers = Layers::of(&frame).unwrap();
    let partial = partial_of(&frame).unwrap();
    let pseudo = !layers.pseudo(&frame, protocol, frame.len() - start).finish();
    let field = usize::from(partial.start + partial.offset);
    frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    let segments = Segments { kind, size, header: (start + header) as u16, ecn: is_tcp };
    (frame, Offload { partial: Some(partial), segments: Some(segments), verified: false })
}

#[test]
fn the_kernel_cuts_super_frames_into_the_same_frames() {
    if !may_run("segments against the kernel's") {
        return;
    }
    let (a, b) = (Space::new(), Space::new());
    join((&a, "a0"), (&b, "b0"), false);
    let mut sender = a.open("int:a0", &PortOptions::default());
    let mut receiver = b.open("int:b0?vnet=off", &PortOptions::default());
    let (tx, rx) = (sender.transmitter.as_mut().unwrap(), receiver.receiver.as_mut().unwrap());
    let mut compared = 0;
    for (v6, kind) in [
        (false, SegmentKind::Tcp4),
        (true, SegmentKind::Tcp6),
        (false, SegmentKind::Udp),
        (true, SegmentKind::Udp),
        (false, SegmentKind::UdpFragments),
    ] {
        for (payload, size, tag) in [
            (4000, 1000, false),
            (4001, 1388, false),
            (20_000, 536, false),
            (5000, 1400, true),
            (1001, 1000, false),
        ] {
            // Fragments begin at multiples of 8 bytes; of another size the kernel makes fragments that overlap.
            let size = if kind == SegmentKind::UdpFragments { size & !7 } else { size };
            let (frame, offload) = super_frame(v6, kind, payload, tag, size);
            let mut ours = vec![];
            segment(&frame, &offload, &mut vec![], |piece| ours.push(piece.to_vec())).unwrap();
            let mut frames = Frames::new(1, frame.len());
            assert!(frames.push(&frame, Meta { offload, ..Meta::default() }));
            let mut batch = frames.batch();
            let all = batch.all();
            let sent = tx.transmit(&mut batch, all, Hand::Copy).unwrap();
            assert_eq!(
                (sent.dealt, sent.refused),
                (1, 0),
                "{kind:?} {payload} by {size}: {:?}",
                tx.counters().drops
            );
            let mut theirs: Vec<Vec<u8>> = vec![];
            let deadline = Instant::now() + Duration::from_secs(60);
            while theirs.len() < ours.len() && Instant::now() < deadline {
                let batch = rx.receive(MAX_BATCH, Wait::For(Duration::from_millis(50))).unwrap();
                theirs.extend((0..batch.len()).map(|i| batch.bytes(i).to_vec()));
            }
            let what = format!("{kind:?} v6 {v6} tag {tag}: {payload} bytes by {size}");
            assert_eq!(theirs.len(), ours.len(), "{what}: pieces");
            for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(ours, theirs, "{what}: piece {i}");
                compared += 1;
            }
        }
    }
    println!("{compared} pieces are equal");
}

/// Ordinary frames whose checksum was left open: the kernel completes them before an interface that cannot.
#[test]
fn the_kernel_completes_checksums_as_we_do() {
    if !may_run("checksums against the kernel's") {
        return;
    }
    let (a, b) = (Space::new(), Space::new());
    join((&a, "a0"), (&b, "b0"), false);
    let mut sender = a.open("int:a0", &PortOptions::default());
    let mut receiver = b.open("int:b0?vnet=off", &PortOptions::default());
    let (tx, rx) = (sender.transmitter.as_mut().unwrap(), receiver.receiver.as_mut().unwrap());
    for (v6, kind) in [
        (false, SegmentKind::Tcp4),
        (true, SegmentKind::Tcp6),
        (false, SegmentKind::Udp),
        (true, SegmentKind::Udp),
    ] {
        for payload in 1..60 {
            let (mut frame, offload) = super_frame(v6, kind, payload, payload % 2 == 0, 1000);
            let mut frames = Frames::new(1, frame.len());
            let meta = Meta { offload: Offload { segments: None, ..offload }, ..Meta::default() };
            assert!(frames.push(&frame, meta));
            let mut batch = frames.batch();
            let all = batch.all();
            assert_eq!(tx.transmit(&mut batch, all, Hand::Copy).unwrap().dealt, 1);
            wire::offload::complete(&mut frame, offload.partial.unwrap()).unwrap();
            let came = rx.receive(1, Wait::For(Duration::from_secs(60))).unwrap();
            assert_eq!(came.len(), 1, "{kind:?} {payload}");
            assert_eq!(came.bytes(0), frame, "{kind:?} {payload}");
        }
    }
}

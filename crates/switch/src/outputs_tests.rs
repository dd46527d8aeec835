//! What leaves by [`Outputs`] is what a [`Verdict`] says, which copies every frame: the same bytes, in the
//! same order for each port and queue.

use super::*;
use flow::interpret::Verdict;
use linux::port::Transmitted;
use linux::port::{PortOptions, open};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What is done with a frame: it leaves by a port and a queue, or is changed.
#[derive(Debug, Clone)]
enum Deed {
    Send(u32, Option<u32>),
    Change,
    /// A super-frame is made of it, which is long.
    Lengthen,
    /// What came in leaves once more, as from a bucket of a group.
    SendArrived(u32),
}

fn deeds() -> impl Strategy<Value = Vec<Vec<Deed>>> {
    let deed = prop_oneof![
        4 => (1u32..4, prop::option::of(0u32..2)).prop_map(|(port, queue)| Deed::Send(port, queue)),
        2 => Just(Deed::Change),
        1 => Just(Deed::Lengthen),
        1 => (1u32..4).prop_map(Deed::SendArrived),
    ];
    prop::collection::vec(prop::collection::vec(deed, 0..8), 0..40)
}

/// Tells a sink what the deeds come to.
fn act(deeds: &[Deed], arrived: &[u8], sink: &mut impl FrameSink) {
    let (mut bytes, mut form) = (arrived.to_vec(), 0);
    let offload = Offload::NONE;
    for deed in deeds {
        match deed {
            Deed::Send(port, queue) => {
                sink.send(PortNo(*port), *queue, LeavingFrame { form, bytes: &bytes, offload: &offload });
            }
            Deed::SendArrived(port) => {
                sink.send(PortNo(*port), None, LeavingFrame { form: 0, bytes: arrived, offload: &offload });
            }
            Deed::Change => (bytes[1], form) = (bytes[1] + 1, form + 1),
            Deed::Lengthen => {
                bytes.resize(3000, 7);
                form += 1;
            }
        }
    }
}

/// What left, by port and queue.
type Left = BTreeMap<(PortNo, Option<u32>), Vec<Vec<u8>>>;

proptest! {
    #[test]
    fn what_leaves_is_what_a_verdict_says(deeds in deeds(), limit in 1usize..9, is_left_over: bool) {
        let mut outputs = Outputs::default();
        // Twice, because memory is used again.
        for _ in 0..2 {
            let (mut frames, mut verdict, mut none) = (Frames::new(40, 64), Verdict::default(), Frames::new(40, 64));
            for number in 0..deeds.len() {
                assert!(frames.push(&[number as u8, 0, 1, 2], Meta::default()));
                assert!(none.push(&[number as u8, 0, 1, 2], Meta::default()));
            }
            let mut batch = frames.batch();
            outputs.clear(batch.len());
            // The second half first: as when a program leaves some over.
            let half = if is_left_over { deeds.len() / 2 } else { 0 };
            for number in (half..deeds.len()).chain(0..half) {
                outputs.begin(number as u16);
                act(&deeds[number], batch.bytes(number), &mut outputs);
            }
            (0..deeds.len()).for_each(|number| act(&deeds[number], none.batch().bytes(number), &mut verdict));
            let mut expected = Left::new();
            for sent in verdict.sent {
                expected.entry((sent.port, sent.queue)).or_default().push(sent.frame);
            }
            let (mut left, mut which, mut last) = (Left::new(), vec![], None);
            outputs.sort();
            while let Some(run) = outputs.next_run(last.as_ref(), limit, &mut which) {
                prop_assert!(which.len() <= limit);
                let bytes = |memory: &mut Batch<'_>| -> Vec<Vec<u8>> {
                    which.iter().map(|&index| memory.bytes(index.into()).to_vec()).collect()
                };
                let bytes = outputs.with_memory(&run, &mut batch, bytes);
                left.entry((run.port, run.queue)).or_default().extend(bytes);
                last = Some(run);
            }
            prop_assert_eq!(&left, &expected);
        }
    }
}

#[test]
fn only_the_last_port_may_take_the_memory_and_one_form_is_copied_once() {
    let wire = |name: &str| open(&format!("mem:{name}"), &PortOptions::default()).unwrap();
    let (mut near, mut far) = (wire("outputs"), wire("outputs"));
    let mut frames = Frames::new(1, 64);
    assert!(frames.push(&[1; 60], Meta::default()));
    let mut given = frames.batch();
    near.transmitter.as_mut().unwrap().transmit(&mut given, &[0], Hand::Copy).unwrap();
    let receiver = far.receiver.as_mut().unwrap();
    let mut batch = receiver.receive(1, linux::port::Wait::Poll).unwrap();
    let mut outputs = Outputs::default();
    outputs.clear(1);
    let offload = Offload::NONE;
    for port in [1, 2, 3] {
        outputs.send(PortNo(port), None, LeavingFrame { form: 0, bytes: &[1; 60], offload: &offload });
        outputs.send(PortNo(port), Some(9), LeavingFrame { form: 1, bytes: &[2; 60], offload: &offload });
    }
    outputs.sort();
    let (mut which, mut last, mut hands) = (vec![], None, vec![]);
    let transmitter = far.transmitter.as_mut().unwrap();
    while let Some(run) = outputs.next_run(last.as_ref(), 64, &mut which) {
        hands.push((run.queue, run.hand));
        let sent =
            outputs.with_memory(&run, &mut batch, |memory| transmitter.transmit(memory, &which, run.hand));
        assert_eq!(sent.unwrap(), Transmitted { dealt: 1, refused: 0 });
        last = Some(run);
    }
    let of = |queue| hands.iter().filter(|one| one.0 == queue).map(|one| one.1).collect::<Vec<_>>();
    assert_eq!(of(None), [Hand::Copy, Hand::Copy, Hand::Over]);
    assert_eq!(of(Some(9)), [Hand::Copy, Hand::Copy, Hand::Over]);
    // Two copies for ports that share the frame, and one for each that sends the changed one from here.
    assert_eq!((transmitter.counters().copied, outputs.short.uses.len()), (5, 1));
    assert!(batch.bytes(0).is_empty(), "the last one took it");
}

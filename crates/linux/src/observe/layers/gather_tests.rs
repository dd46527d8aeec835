use super::super::layout::STAMP_BYTES;
use super::*;
use proptest::prelude::*;

fn stamp(sequence: u64, point: StampPoint, at_ns: u64) -> Stamp {
    let place = RawPlace { point, namespace: 7, interface: 1, process: 0 };
    Stamp { at_ns, place, sequence, planned_ns: 1000, called_ns: 0 }
}

fn plain(place: &RawPlace) -> StampPlace {
    StampPlace {
        point: place.point,
        node: place.namespace.to_string(),
        interface: place.interface.to_string(),
    }
}

/// The points of a message and their times.
fn points(gathered: Gathered) -> Vec<(StampPoint, i64)> {
    let (places, messages) = gathered.named(plain);
    messages[0].stamps.iter().map(|(place, at)| (places[*place as usize].point, *at)).collect()
}

/// The call is in front of the first queue; what the same thread sends later for others, or on its way through a node, has none.
#[test]
fn the_call_that_sent_a_message_is_in_front_of_its_first_queue_only() {
    use StampPoint::*;
    let mut gathered = Gathered::new(1);
    let queued = |at, called_ns| Stamp { called_ns, ..stamp(0, Queued, at) };
    gathered.take(queued(1500, 1200));
    gathered.take(stamp(0, Started, 1600));
    gathered.take(queued(1900, 1200));
    gathered.take(stamp(0, Returned, 2100));
    // The answer: a call of its own, then an old one.
    gathered.take(queued(2500, 2300));
    gathered.take(queued(2900, 2050));
    let expected = [
        (Called, 200),
        (Queued, 500),
        (Started, 600),
        (Queued, 900),
        (Returned, 1100),
        (Called, 1300),
        (Queued, 1500),
        (Queued, 1900),
    ];
    assert_eq!(points(gathered), expected);
}

#[test]
fn a_call_that_began_before_the_message_was_planned_is_older() {
    let mut gathered = Gathered::new(1);
    gathered.take(Stamp { called_ns: 900, ..stamp(0, StampPoint::Queued, 1500) });
    assert_eq!(points(gathered), [(StampPoint::Queued, 500)]);
}

/// A message that says no plan: its times are those since the call that sent it, and of one without a call since its first stamp.
#[test]
fn without_a_plan_the_call_is_the_origin() {
    use StampPoint::*;
    let unplanned = |sequence, point, at_ns| Stamp { planned_ns: 0, ..stamp(sequence, point, at_ns) };
    let mut gathered = Gathered::new(1);
    gathered.take(Stamp { called_ns: 1200, ..unplanned(0, Queued, 1500) });
    gathered.take(Stamp { called_ns: 1200, ..unplanned(0, Queued, 1900) });
    assert_eq!(points(gathered), [(Called, 0), (Queued, 300), (Queued, 700)]);
    let mut gathered = Gathered::new(1);
    gathered.take(unplanned(0, Queued, 1500));
    gathered.take(unplanned(0, Started, 1600));
    assert_eq!(points(gathered), [(Queued, 0), (Started, 100)]);
}

/// Of a stream the call is told when it returns, in front of what the frames showed or behind it.
#[test]
fn a_call_that_is_told_last_is_the_origin() {
    use StampPoint::*;
    let unplanned = |point, at_ns| Stamp { planned_ns: 0, ..stamp(0, point, at_ns) };
    let stamps = [unplanned(Called, 1200), unplanned(Queued, 1500), unplanned(Returned, 2100)];
    for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0]] {
        let mut gathered = Gathered::new(1);
        order.iter().for_each(|number: &usize| gathered.take(stamps[*number]));
        assert_eq!(points(gathered), [(Called, 0), (Queued, 300), (Returned, 900)], "{order:?}");
    }
}

proptest! {
    /// However many there are: at most the bound, all that the final share chooses, and each with all of its stamps.
    #[test]
    fn when_there_are_too_many_the_others_keep_all_their_stamps(count in 1u64..9000, every in 1u64..5) {
        let mut gathered = Gathered::new(every);
        for point in [StampPoint::Queued, StampPoint::Started] {
            (0..count).for_each(|sequence| gathered.take(stamp(sequence, point, 2000 + sequence)));
        }
        let last = gathered.every;
        prop_assert!(last.is_multiple_of(every) && (last / every).is_power_of_two());
        let (places, messages) = gathered.named(plain);
        prop_assert!(messages.len() <= MOST_MESSAGES && places.len() == 2);
        let expected: Vec<u64> = (0..count).filter(|&sequence| is_chosen(sequence, last)).collect();
        prop_assert_eq!(messages.iter().map(|message| message.sequence).collect::<Vec<_>>(), expected);
        prop_assert!(messages.iter().all(|message| message.stamps.len() == 2));
        // No fewer than needed.
        prop_assert!(last == every || (0..count).filter(|&sequence| is_chosen(sequence, last / 2)).count() > MOST_MESSAGES);
    }

    #[test]
    fn any_bytes_are_a_stamp_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), point in 0u8..9) {
        let mut bytes = bytes;
        if let Some(at) = bytes.get_mut(AT_POINT as usize..AT_POINT as usize + 4) {
            at.copy_from_slice(&u32::from(point).to_ne_bytes());
        }
        let is_whole = bytes.len() >= STAMP_BYTES as usize && point < 7;
        prop_assert_eq!(Stamp::decode(&bytes).is_some(), is_whole);
        let mut gathered = Gathered::new(1);
        Stamp::decode(&bytes).into_iter().for_each(|stamp| gathered.take(stamp));
        gathered.named(plain);
    }
}

//! Two channels joined in memory by a wire that cuts, holds back and breaks; the clock is a number. And the roles of several controllers.

use super::bytes::{Bytes, Hex, Version};
use super::channel::{BackOff, Channel, ChannelConfig, Event, Side};
use super::fault::Fault;
use super::message::{Body, Header, Message, question};
use super::misc::{AsyncConfig, AsyncProperty, Echo, Empty, Hello, RoleCode, RoleReason, SwitchConfig};
use super::multipart::{MultipartFlags, MultipartReply, MultipartRequest, Reply, Request};
use super::roles::{Roles, Unasked};
use super::rule::{FlowMod, FlowStats, PacketOut};
use super::sample::Sampler;
use crate::error::{AsyncConfigFailed, BadProperty, BadRequest, RoleRequestFailed};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn config(versions: &[Version]) -> ChannelConfig {
    ChannelConfig { versions: versions.to_vec(), ..ChannelConfig::default() }
}

/// A switch and a client with a wire between them.
struct Pair {
    now: u64,
    switch: Channel,
    client: Channel,
}

impl Pair {
    fn new(switch: &[Version], client: &[Version]) -> Pair {
        Pair {
            now: 0,
            switch: Channel::new(Side::Switch, config(switch), 0),
            client: Channel::new(Side::Client, config(client), 0),
        }
    }

    /// Both up in 1.4, their first events taken.
    fn up() -> Pair {
        let mut pair = Pair::new(&Version::ALL, &Version::ALL);
        pair.carry(usize::MAX);
        assert_eq!(pair.switch.next_event(), Some(Event::Up { version: Version::V14 }));
        assert_eq!(pair.client.next_event(), Some(Event::Up { version: Version::V14 }));
        pair
    }

    /// Carries what there is, at most this many bytes at once, until nothing moves.
    fn carry(&mut self, piece: usize) {
        loop {
            let there = take(self.client.output(), piece);
            self.switch.input(self.now, &there);
            let back = take(self.switch.output(), piece);
            self.client.input(self.now, &back);
            if there.is_empty() && back.is_empty() {
                return;
            }
        }
    }

    fn ask(&mut self, body: Body) -> u32 {
        let xid = self.client.next_xid();
        self.client.send(&Message { version: Version::V14, xid, body }).unwrap();
        xid
    }
}

fn take(from: &mut Vec<u8>, piece: usize) -> Vec<u8> {
    let count = from.len().min(piece);
    from.drain(..count).collect()
}

fn events(channel: &mut Channel) -> Vec<Event> {
    std::iter::from_fn(|| channel.next_event()).collect()
}

fn sent(channel: &mut Channel) -> Vec<Message> {
    let bytes = std::mem::take(channel.output());
    let mut rest = &bytes[..];
    let mut all = vec![];
    while let Some(header) = Header::parse(rest) {
        let (one, more) = rest.split_at(usize::from(header.length));
        all.push(Message::decode(one).unwrap());
        rest = more;
    }
    all
}

#[test]
fn the_highest_common_version_is_spoken() {
    use Version::{V13, V14};
    for (switch, client, expected) in [
        (&[V13, V14][..], &[V13, V14][..], V14),
        (&[V13], &[V13, V14], V13),
        (&[V13, V14], &[V13], V13),
        (&[V14], &[V14], V14),
    ] {
        let mut pair = Pair::new(switch, client);
        pair.carry(3);
        assert_eq!(events(&mut pair.switch), [Event::Up { version: expected }]);
        assert_eq!(events(&mut pair.client), [Event::Up { version: expected }]);
    }
}

#[test]
fn a_hello_without_a_bitmap_counts_by_its_header() {
    for (number, speaks, expected) in [
        (4, &Version::ALL[..], Some(Version::V13)),
        (5, &Version::ALL, Some(Version::V14)),
        (6, &Version::ALL, Some(Version::V14)),
        (5, &[Version::V13], Some(Version::V13)),
        (4, &[Version::V14], None),
        (1, &Version::ALL, None),
        (3, &Version::ALL, None),
    ] {
        let mut switch = Channel::new(Side::Switch, config(speaks), 0);
        switch.input(0, &[number, 0, 0, 8, 0, 0, 0, 1]);
        assert_eq!(switch.version(), expected, "hello {number} to {speaks:?}");
        assert_eq!(switch.is_down(), expected.is_none());
    }
}

#[test]
fn openflow_1_0_is_refused_with_a_sentence_it_can_read() {
    let mut switch = Channel::new(Side::Switch, ChannelConfig::default(), 0);
    switch.output().clear();
    switch.input(0, &[1, 0, 0, 8, 0, 0, 0, 77]);
    let bytes = std::mem::take(switch.output());
    assert_eq!(
        bytes[..12],
        [1, 1, 0, bytes.len() as u8, 0, 0, 0, 77, 0, 0, 0, 0],
        "HELLO_FAILED, INCOMPATIBLE, in 1.0"
    );
    let sentence = "no OpenFlow version in common: here 1.3 and 1.4, there at most 1.0";
    assert_eq!(std::str::from_utf8(&bytes[12..]), Ok(sentence));
    assert_eq!(events(&mut switch), [Event::Down(sentence.to_owned())]);
    switch.input(1, &[1, 2, 0, 8, 0, 0, 0, 1]);
    assert!(switch.output().is_empty() && switch.next_event().is_none() && switch.deadline().is_none());
}

#[test]
fn a_peer_that_refuses_the_hello_is_heard_also_when_both_numbers_met() {
    // A controller of OpenFlow 1.5 alone says so in its header; the smaller of both numbers is ours, and it does not speak that.
    for version in [5, 6] {
        let mut switch = Channel::new(Side::Switch, ChannelConfig::default(), 0);
        switch.input(0, &[6, 0, 0, 8, 0, 0, 0, 1]);
        assert_eq!(events(&mut switch), [Event::Up { version: Version::V14 }]);
        let mut error = vec![version, 1, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0];
        error.extend(b"only 1.5");
        switch.input(1, &error);
        let why = "the peer refused the hello: 'only 1.5', HelloFailed/Incompatible (the hello was refused: \
                   no version in common)";
        assert_eq!(events(&mut switch), [Event::Down(why.to_owned())], "{version}");
    }
}

#[test]
fn who_does_not_begin_with_hello_is_sent_away() {
    let mut switch = Channel::new(Side::Switch, ChannelConfig::default(), 0);
    // "T " is a length of 21536, for which nobody waits.
    switch.input(0, b"GET / HT");
    let why = "the other end does not speak OpenFlow: its first bytes are 'GET / HT'";
    assert_eq!(events(&mut switch), [Event::Down(why.to_owned())]);
    let mut switch = Channel::new(Side::Switch, ChannelConfig::default(), 0);
    switch.input(0, &[4, 0, 0x54, 0x20, 0, 0, 0, 1]);
    // Nothing is decided before the message is there, but not for ever.
    assert!(!switch.is_down());
    switch.tick(5 * SECOND);
    assert_eq!(events(&mut switch), [Event::Down("no hello within 5 s".to_owned())]);
    let mut switch = Channel::new(Side::Switch, ChannelConfig::default(), 0);
    switch.input(0, &[4, 5, 0, 8, 0, 0, 0, 1]);
    assert!(switch.is_down());
}

#[test]
fn a_slow_dribble_does_not_put_off_the_end_of_the_greeting() {
    let mut switch = Channel::new(Side::Switch, ChannelConfig::default(), 0);
    for second in 0..5 {
        switch.input(second * SECOND, &[4]);
        switch.tick(second * SECOND);
    }
    switch.tick(5 * SECOND);
    assert!(switch.is_down());
}

#[test]
fn a_dead_peer_is_found_and_a_living_one_is_left_alone() {
    let mut pair = Pair::up();
    for _ in 0..100 {
        pair.now = pair.switch.deadline().unwrap().min(pair.client.deadline().unwrap());
        let now = pair.now;
        pair.switch.tick(now);
        pair.client.tick(now);
        pair.carry(usize::MAX);
    }
    assert!(pair.now >= 100 * 5 * SECOND / 2 && !pair.switch.is_down() && !pair.client.is_down());
    assert_eq!((events(&mut pair.switch), events(&mut pair.client)), (vec![], vec![]), "echoes stay inside");
    // Now the wire is cut.
    let asked = pair.switch.deadline().unwrap();
    pair.switch.tick(asked - 1);
    assert!(sent(&mut pair.switch).is_empty());
    pair.switch.tick(asked);
    assert!(matches!(sent(&mut pair.switch)[..], [Message { body: Body::EchoRequest(_), .. }]));
    assert_eq!(pair.switch.deadline(), Some(asked + 5 * SECOND));
    pair.switch.tick(asked + 5 * SECOND);
    assert_eq!(events(&mut pair.switch), [Event::Down("no answer to an echo within 5 s".to_owned())]);
}

#[test]
fn an_echo_comes_back_with_its_data() {
    let mut pair = Pair::up();
    let data = Bytes(vec![1, 2, 3]);
    let xid = pair.ask(Body::EchoRequest(Echo { data: data.clone() }));
    pair.switch.input(0, &take(pair.client.output(), usize::MAX));
    let reply = Message { version: Version::V14, xid, body: Body::EchoReply(Echo { data }) };
    assert_eq!(sent(&mut pair.switch), [reply]);
}

#[test]
fn a_peer_that_reads_is_there_though_its_echo_is_late() {
    let mut pair = Pair::up();
    let channel = &mut pair.switch;
    let mut late = channel.deadline().unwrap();
    for _ in 0..3 {
        // An echo is asked for, and before it is overdue the peer takes something of what stands in front of it.
        channel.tick(late);
        assert!(channel.deadline().unwrap() > late);
        let soon = channel.deadline().unwrap() - 1;
        channel.reads(soon);
        late = channel.deadline().unwrap();
        assert!(late > soon + 1_000_000_000);
    }
    channel.tick(late);
    channel.tick(channel.deadline().unwrap());
    assert!(channel.is_down());
    channel.reads(late);
    assert!(channel.is_down() && channel.deadline().is_none());
}

#[test]
fn what_cannot_be_decoded_is_answered_and_the_next_message_lives() {
    let mut pair = Pair::up();
    let mut bytes = vec![5, 99, 0, 12, 0, 0, 0, 9, 1, 2, 3, 4];
    bytes.extend([4, 5, 0, 8, 0, 0, 0, 10]); // another version
    bytes.extend([5, 10, 0, 8, 0, 0, 0, 11]); // a packet-in that is too short
    bytes.extend([5, 5, 0, 8, 0, 0, 0, 12]);
    pair.switch.input(0, &bytes);
    let errors: Vec<(u32, Fault, usize)> = sent(&mut pair.switch)
        .into_iter()
        .map(|message| match message.body {
            Body::Error(error) => (message.xid, error.fault, error.data.0.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (9, Fault::from(BadRequest::BadType), 12),
        (10, Fault::from(BadRequest::BadVersion), 8),
        (11, Fault::from(BadRequest::BadLen), 8),
    ];
    assert_eq!(errors, expected);
    let last = events(&mut pair.switch).pop();
    let asked = Message { version: Version::V14, xid: 12, body: Body::FeaturesRequest(Empty {}) };
    assert_eq!(last, Some(Event::Message(asked)));
}

#[test]
fn a_message_for_the_other_side_is_refused() {
    let mut pair = Pair::up();
    let xid = pair.ask(Body::BarrierReply(Empty {}));
    pair.carry(usize::MAX);
    let fault = Fault::from(BadRequest::BadType);
    assert_eq!(events(&mut pair.switch), [Event::Refused { xid, kind: 21, fault }]);
    assert!(
        matches!(&events(&mut pair.client)[..], [Event::Message(Message { body: Body::Error(error), .. })] if error.fault == fault)
    );
}

#[test]
fn errors_are_not_answered_by_errors() {
    let mut pair = Pair::up();
    pair.switch.input(0, &[5, 1, 0, 9, 0, 0, 0, 1, 0]);
    assert!(pair.switch.output().is_empty());
    assert_eq!(
        events(&mut pair.switch),
        [Event::Refused { xid: 1, kind: 1, fault: Fault::from(BadRequest::BadLen) }]
    );
}

#[test]
fn a_length_that_cannot_be_ends_the_connection() {
    let mut pair = Pair::up();
    pair.switch.input(0, &[5, 2, 0, 7, 0, 0, 0, 1]);
    assert!(pair.switch.is_down());
    assert!(
        matches!(&sent(&mut pair.switch)[..], [Message { body: Body::Error(error), .. }] if error.fault == Fault::from(BadRequest::BadLen))
    );
}

#[test]
fn a_barrier_stands_between_what_was_before_and_after() {
    let mut pair = Pair::up();
    let bodies = || {
        let set = |length| Body::SetConfig(SwitchConfig { miss_send_len: length, ..Default::default() });
        vec![set(1), set(2), Body::BarrierRequest(Empty {}), set(3), Body::BarrierRequest(Empty {})]
    };
    let xids: Vec<u32> = bodies().into_iter().map(|body| pair.ask(body)).collect();
    // The switch carries out one message after the other and the wire brings them in halves.
    let mut done = vec![];
    while !pair.client.output().is_empty() {
        let bytes = take(pair.client.output(), 5);
        pair.switch.input(0, &bytes);
        while let Some(Event::Message(message)) = pair.switch.next_event() {
            if let Body::BarrierRequest(_) = message.body {
                let reply = Message { body: Body::BarrierReply(Empty {}), ..message.clone() };
                pair.switch.send(&reply).unwrap();
            }
            done.push(message.xid);
        }
    }
    assert_eq!(done, xids);
    pair.carry(5);
    let replies: Vec<u32> = events(&mut pair.client)
        .into_iter()
        .map(|event| match event {
            Event::Message(message) => message.xid,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(replies, [xids[2], xids[4]]);
}

#[test]
fn a_long_answer_crosses_in_parts_and_arrives_whole() {
    let mut pair = Pair::up();
    let rules: Vec<FlowStats> =
        (0..5000).map(|index| FlowStats { cookie: Hex(index), ..FlowStats::default() }).collect();
    let body =
        Body::MultipartReply(MultipartReply { flags: MultipartFlags::default(), body: Reply::Flow(rules) });
    let reply = Message { version: Version::V14, xid: 5, body };
    pair.switch.send(&reply).unwrap();
    assert!(pair.switch.output().len() > 5000 * 56);
    pair.carry(1460);
    assert_eq!(events(&mut pair.client), [Event::Message(reply)]);
    let big = Body::PacketOut(PacketOut { data: Bytes(vec![0; 0x10000]), ..PacketOut::default() });
    assert!(pair.client.send(&Message { version: Version::V14, xid: 1, body: big }).is_err());
}

#[test]
fn a_question_that_is_never_finished_is_refused() {
    let mut pair = Pair::up();
    let half = MultipartRequest {
        flags: MultipartFlags::MORE,
        body: Request::TableFeatures(vec![Default::default()]),
    };
    let xid = pair.ask(Body::MultipartRequest(half.clone()));
    pair.carry(usize::MAX);
    assert_eq!(events(&mut pair.switch), []);
    let deadline = pair.switch.deadline().unwrap();
    assert_eq!(deadline, SECOND);
    pair.switch.tick(deadline);
    let fault = Fault::from(BadRequest::MultipartRequestTimeout);
    assert_eq!(events(&mut pair.switch), [Event::Refused { xid, kind: 18, fault }]);
    // Both halves in time are one question.
    pair.ask(Body::MultipartRequest(half));
    let rest = question(Version::V14, xid + 1, Request::TableFeatures(vec![Default::default()]));
    pair.client.send(&rest).unwrap();
    pair.carry(7);
    let whole = Request::TableFeatures(vec![Default::default(); 2]);
    assert_eq!(events(&mut pair.switch), [Event::Message(question(Version::V14, xid + 1, whole))]);
}

#[test]
fn waits_double_differ_and_begin_again() {
    let waits = |seed| {
        let mut back_off = BackOff::new(seed);
        (0..100).map(|_| back_off.next_delay_ns()).collect::<Vec<u64>>()
    };
    for (attempt, wait) in waits(1).into_iter().enumerate() {
        let whole = BackOff::LONGEST_NS.min(BackOff::FIRST_NS << attempt.min(20));
        assert!((whole / 2..whole).contains(&wait), "wait {wait} of {whole}");
    }
    assert_eq!(waits(7), waits(7));
    assert_ne!(waits(7), waits(8));
    let mut back_off = BackOff::new(3);
    (0..50).for_each(|_| assert!(back_off.next_delay_ns() > 0));
    back_off.lasted(BackOff::LONGEST_NS);
    assert!(back_off.next_delay_ns() < BackOff::FIRST_NS);
    // A channel that lasts less long than the wait before it could makes the next one no shorter.
    for attempt in 1..50 {
        let whole = BackOff::LONGEST_NS.min(BackOff::FIRST_NS << attempt.min(20));
        back_off.lasted(BackOff::FIRST_NS - 1);
        assert!(back_off.next_delay_ns() >= whole / 2);
    }
    let mut first = BackOff::new(3);
    first.lasted(0);
    assert!(first.next_delay_ns() < BackOff::FIRST_NS, "nothing was waited for yet");
}

#[test]
fn there_is_one_master_and_the_old_one_is_told() {
    let mut roles = Roles::default();
    (1..=3).for_each(|conn| roles.add(conn, Version::V14));
    assert_eq!(roles.role(1), Some(RoleCode::EQUAL));
    assert_eq!(roles.generation(), u64::MAX);
    assert_eq!(roles.set_role(1, RoleCode::MASTER, 10), Ok(vec![]));
    let told = roles.set_role(2, RoleCode::MASTER, 11).unwrap();
    assert_eq!(told.len(), 1);
    let (conn, status) = &told[0];
    assert_eq!(
        (*conn, status.role, status.reason, status.generation_id),
        (1, RoleCode::SLAVE, RoleReason::MASTER_REQUEST, Hex(11))
    );
    assert_eq!(
        [1, 2, 3].map(|conn| roles.role(conn).unwrap()),
        [RoleCode::SLAVE, RoleCode::MASTER, RoleCode::EQUAL]
    );
    assert_eq!(roles.set_role(2, RoleCode::MASTER, 11), Ok(vec![]), "the same again");
    assert_eq!(roles.set_role(1, RoleCode::MASTER, 10), Err(RoleRequestFailed::Stale.into()));
    assert_eq!(roles.set_role(3, RoleCode::SLAVE, 3), Err(RoleRequestFailed::Stale.into()));
    assert_eq!(roles.set_role(1, RoleCode::EQUAL, 0), Ok(vec![]), "an equal needs no generation");
    assert_eq!(roles.set_role(1, RoleCode(9), 12), Err(RoleRequestFailed::BadRole.into()));
    assert_eq!(roles.set_role(3, RoleCode::NOCHANGE, 0), Ok(vec![]));
    assert_eq!((roles.role(3), roles.generation()), (Some(RoleCode::EQUAL), 11));
}

#[test]
fn generations_go_round() {
    let mut roles = Roles::default();
    roles.add(1, Version::V13);
    assert_eq!(roles.set_role(1, RoleCode::MASTER, u64::MAX), Ok(vec![]));
    assert_eq!(roles.set_role(1, RoleCode::MASTER, 0), Ok(vec![]), "one further");
    assert_eq!(roles.set_role(1, RoleCode::MASTER, u64::MAX), Err(RoleRequestFailed::Stale.into()));
    assert_eq!(roles.set_role(1, RoleCode::MASTER, 1 << 62), Ok(vec![]));
}

#[test]
fn a_slave_may_read_only() {
    let mut roles = Roles::default();
    roles.add(1, Version::V14);
    roles.set_role(1, RoleCode::SLAVE, 1).unwrap();
    let features = |features| question(Version::V14, 1, Request::TableFeatures(features)).body;
    let refused = [
        Body::FlowMod(FlowMod::default()),
        Body::PacketOut(PacketOut::default()),
        features(vec![Default::default()]),
    ];
    let allowed = [
        Body::BarrierRequest(Empty {}),
        Body::FeaturesRequest(Empty {}),
        features(vec![]),
        Body::Hello(Hello::default()),
    ];
    for body in &refused {
        assert_eq!(roles.may(1, body), Err(BadRequest::IsSlave.into()), "{body:?}");
    }
    for body in &allowed {
        assert_eq!(roles.may(1, body), Ok(()), "{body:?}");
    }
    roles.set_role(1, RoleCode::EQUAL, 1).unwrap();
    assert!(refused.iter().chain(&allowed).all(|body| roles.may(1, body).is_ok()));
}

#[test]
fn who_hears_what_follows_from_role_and_masks() {
    let mut roles = Roles::default();
    roles.add(1, Version::V13);
    roles.add(2, Version::V14);
    roles.set_role(2, RoleCode::SLAVE, 1).unwrap();
    let hears = |roles: &Roles, kind, bit: u8| {
        roles.audience(kind, |_| bit).iter().map(|(conn, _)| *conn).collect::<Vec<_>>()
    };
    assert_eq!(hears(&roles, Unasked::PacketIn, 0), [1]);
    assert!(hears(&roles, Unasked::PacketIn, 2).is_empty(), "invalid TTL on demand only");
    assert_eq!(hears(&roles, Unasked::PortStatus, 1), [1, 2]);
    assert_eq!(hears(&roles, Unasked::RoleStatus, 0), [2], "1.3 has no such message");
    assert!(!roles.wants(1, Unasked::PacketIn, 200) && !roles.wants(9, Unasked::PacketIn, 0));

    let only = |property| AsyncConfig { properties: vec![property] };
    roles.set_async(2, &only(AsyncProperty::PacketInSlave(Hex(1 << 2)))).unwrap();
    assert_eq!(hears(&roles, Unasked::PacketIn, 2), [2]);
    assert_eq!(hears(&roles, Unasked::PortStatus, 1), [1, 2], "the others stay in 1.4");
    assert_eq!(
        roles.set_async(2, &only(AsyncProperty::PortStatusSlave(Hex(8)))),
        Err(AsyncConfigFailed::Invalid.into())
    );
    let twice = AsyncConfig { properties: vec![AsyncProperty::PacketInSlave(Hex(0)); 2] };
    assert_eq!(roles.set_async(2, &twice), Err(BadProperty::DupType.into()));
    assert_eq!(hears(&roles, Unasked::PacketIn, 2), [2], "a refused request changes nothing");

    // What is reported is what was set, in both versions.
    for conn in [1, 2] {
        let told = roles.async_config(conn);
        assert_eq!(told.properties.len(), if conn == 1 { 6 } else { 12 });
        roles.set_async(conn, &told).unwrap();
        assert_eq!(roles.async_config(conn), told);
    }
}

#[test]
fn auxiliary_connections_belong_to_their_main_one() {
    let mut roles = Roles::default();
    roles.add(1, Version::V14);
    assert_eq!(roles.add_auxiliary(7, 1, 3, Version::V14), Ok(()));
    for (conn, main, number, version) in
        [(8, 1, 3, Version::V14), (8, 1, 0, Version::V14), (8, 2, 4, Version::V14), (8, 1, 4, Version::V13)]
    {
        assert!(roles.add_auxiliary(conn, main, number, version).is_err(), "{number} of {main}");
    }
    assert_eq!((roles.auxiliary_id(1), roles.auxiliary_id(7), roles.main(7)), (0, 3, Some(1)));
    roles.set_role(7, RoleCode::SLAVE, 1).unwrap();
    assert_eq!((roles.role(1), roles.role(7)), (Some(RoleCode::SLAVE), Some(RoleCode::SLAVE)));
    assert_eq!(roles.may(7, &Body::FlowMod(FlowMod::default())), Err(BadRequest::IsSlave.into()));
    assert_eq!((roles.remove(7), roles.main(7), roles.controllers()), (vec![], None, 1));
    roles.add_auxiliary(9, 1, 3, Version::V14).unwrap();
    assert_eq!((roles.remove(1), roles.controllers()), (vec![9], 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the pieces, the same messages come out in the same order.
    #[test]
    fn pieces_do_not_matter(seeds in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8), piece in 1usize..300) {
        let mut pair = Pair::up();
        let mut whole = Pair::up();
        for seed in &seeds {
            let message = Sampler::new(seed, Version::V14).message();
            pair.client.send(&message).unwrap();
            whole.client.send(&message).unwrap();
        }
        pair.carry(piece);
        whole.carry(usize::MAX);
        prop_assert_eq!(events(&mut pair.switch), events(&mut whole.switch));
        prop_assert_eq!(events(&mut pair.client), events(&mut whole.client));
    }

    /// Any bytes, and any messages, at any time: no panic, nothing after the end, and a deadline as long as it lives.
    #[test]
    fn any_bytes_end_well(side in any::<bool>(), hello in any::<bool>(),
                          steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), 0u64..3 * SECOND), 0..30)) {
        let side = if side { Side::Switch } else { Side::Client };
        let mut channel = Channel::new(side, ChannelConfig::default(), 0);
        if hello {
            channel.input(0, &[5, 0, 0, 8, 0, 0, 0, 1]);
        }
        let mut now = 0;
        for (bytes, wait) in steps {
            now += wait;
            let message = Sampler::new(&bytes, Version::ALL[usize::from(wait % 2 == 1)]).message().encode().unwrap();
            let messages = wait % 3 > 0;
            channel.input(now, if messages { &message } else { &bytes });
            channel.tick(now);
            prop_assert_eq!(channel.deadline().is_none(), channel.is_down());
        }
        let all = events(&mut channel);
        let down = all.iter().position(|event| matches!(event, Event::Down(_)));
        prop_assert!(down.is_none_or(|at| at + 1 == all.len()));
        prop_assert_eq!(down.is_some(), channel.is_down());
    }
}

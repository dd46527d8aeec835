//! Time, room, groups, meters and what is refused, one behaviour a test.

use flow::action::{Action, Instruction};
use flow::entry::SECOND;
use flow::error::{self, BadAction, BadInstruction, Error, FlowModFailed, GroupModFailed, MeterModFailed};
use flow::event::{Event, Monitor, MonitorFlags};
use flow::field::{Field, VLAN_PRESENT};
use flow::group::{ALL_GROUPS, Bucket, Group, GroupMod, GroupType};
use flow::matching::{Match, MatchField};
use flow::meter::{ALL_METERS, Band, BandKind, Meter, MeterFlags, MeterMod, raise_drop_precedence};
use flow::numbered::ModCommand;
use flow::pipeline::{Config, Fragments, TableMod};
use flow::port::{Port, PortConfig, PortMod, PortState};
use flow::rule::{ALL_TABLES, ANY_GROUP, FlowMod, FlowModCommand, RemovedReason, Rule, RuleFlags};
use flow::table::{EvictionFlags, TableFlags};
use flow::{Pipeline, PortNo};
use proptest::prelude::*;

fn output(port: u32) -> Action {
    Action::Output { port: PortNo(port), max_len: 0 }
}

fn apply(actions: Vec<Action>) -> Vec<Instruction> {
    vec![Instruction::ApplyActions(actions)]
}

/// A change that lets a table evict.
fn evicting(table: u8, flags: EvictionFlags) -> TableMod {
    TableMod { table, flags: Some(TableFlags::EVICTION), eviction_flags: Some(flags), ..TableMod::default() }
}

/// A rule for one source address; numbers tell rules apart.
fn rule(number: u64) -> Rule {
    Rule::new(1, Match::new([MatchField::exact(Field::EthSrc, number)]).unwrap(), apply(vec![output(2)]))
}

fn add(table: u8, rule: Rule) -> FlowMod {
    FlowMod::new(FlowModCommand::Add, table, rule)
}

fn gone(events: &[Event]) -> Vec<(u64, RemovedReason)> {
    let number = |rule: &Rule| rule.matching.exact(Field::EthSrc).unwrap_or(0) as u64;
    let each = events.iter().filter_map(|event| match event {
        Event::RuleRemoved(one) => Some((number(&one.rule), one.reason)),
        _ => None,
    });
    each.collect()
}

fn numbers(pipeline: &Pipeline) -> Vec<u64> {
    let rules = pipeline.table(0).unwrap().rules();
    rules.map(|(_, entry)| entry.rule.matching.exact(Field::EthSrc).unwrap() as u64).collect()
}

fn group(id: u32, kind: GroupType, buckets: Vec<Bucket>) -> GroupMod {
    GroupMod { command: ModCommand::Add, group: Group { id, kind, buckets } }
}

fn chain(id: u32, to: u32) -> GroupMod {
    group(id, GroupType::All, vec![Bucket::new(vec![Action::Group(to)])])
}

fn with(command: ModCommand, change: GroupMod) -> GroupMod {
    GroupMod { command, ..change }
}

fn delete_group(id: u32) -> GroupMod {
    with(ModCommand::Delete, group(id, GroupType::All, vec![]))
}

fn meter(id: u32, flags: MeterFlags, bands: Vec<Band>) -> MeterMod {
    MeterMod { command: ModCommand::Add, meter: Meter { id, flags, bands } }
}

fn drop_band(rate: u32, burst_size: u32) -> Band {
    Band { rate, burst_size, kind: BandKind::Drop }
}

const PKTPS: MeterFlags = MeterFlags::PKTPS.with(MeterFlags::BURST).with(MeterFlags::STATS);

fn switch() -> Pipeline {
    let mut pipeline = Pipeline::default();
    for number in 1..=3 {
        pipeline.add_port(Port::new(PortNo(number), "p", [2, 0, 0, 0, 0, number as u8]));
    }
    pipeline
}

/// LINCX compared microseconds with seconds and let rules without timeout expire; nothing called it anyway.
#[test]
fn lincx_2_timeouts_run_to_the_nanosecond_and_zero_is_never() {
    let mut pipeline = switch();
    for (number, idle, hard) in [(1, 0, 0), (2, 3, 0), (3, 0, 5), (4, 9, 5), (5, 5, 9)] {
        let rule = Rule { idle_timeout: idle, hard_timeout: hard, ..rule(number) };
        pipeline.flow_mod(SECOND, &add(0, rule)).unwrap();
    }
    assert_eq!(pipeline.next_deadline(), Some(4 * SECOND));
    assert_eq!(pipeline.expire(4 * SECOND - 1), vec![]);
    assert_eq!(gone(&pipeline.expire(4 * SECOND)), [(2, RemovedReason::IdleTimeout)]);
    let both =
        [(3, RemovedReason::HardTimeout), (4, RemovedReason::HardTimeout), (5, RemovedReason::IdleTimeout)];
    assert_eq!(gone(&pipeline.expire(6 * SECOND)), both);
    assert_eq!(pipeline.expire(u64::MAX), vec![]);
    assert_eq!(numbers(&pipeline), [1]);
    assert_eq!(pipeline.next_deadline(), None);
}

/// LINCX swapped the two timeouts in flow_removed.
#[test]
fn lincx_3_a_removed_rule_is_told_as_it_was() {
    let mut pipeline = switch();
    let rule = Rule { idle_timeout: 7, hard_timeout: 3, cookie: 0xabc, ..rule(1) };
    pipeline.flow_mod(SECOND, &add(4, rule.clone())).unwrap();
    let events = pipeline.expire(5 * SECOND);
    let [Event::RuleRemoved(removed)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*removed.rule).clone(), rule);
    assert_eq!((removed.table, removed.duration_ns), (4, 4 * SECOND));
    assert_eq!(removed.reason, RemovedReason::HardTimeout);
}

/// LINCX computed the overlap and did not look at it.
#[test]
fn lincx_4_an_overlap_is_refused_when_asked_for() {
    let mut pipeline = switch();
    pipeline.flow_mod(0, &add(0, rule(1))).unwrap();
    let mut wide = Rule::new(1, Match::new([MatchField::exact(Field::EthDst, 1u8)]).unwrap(), vec![]);
    wide.flags = RuleFlags::CHECK_OVERLAP;
    let refused = pipeline.flow_mod(0, &add(0, wide.clone()));
    assert_eq!(refused, Err(FlowModFailed::Overlap.into()));
    assert!(pipeline.flow_mod(0, &add(0, Rule { priority: 2, ..wide.clone() })).is_ok());
    assert!(pipeline.flow_mod(0, &add(1, wide)).is_ok());
}

/// In LINCX a table's counters began anew with every change.
#[test]
fn lincx_5_changes_leave_the_counters_of_tables_and_rules_alone() {
    let mut pipeline = switch();
    pipeline.flow_mod(0, &add(0, rule(1))).unwrap();
    let frame = [0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 8, 0];
    let arrival = flow::interpret::InputFrame::new(PortNo(1), &frame);
    flow::interpret::receive(&mut pipeline, 5, arrival, &mut Default::default());
    pipeline.flow_mod(9, &add(0, rule(2))).unwrap();
    pipeline
        .flow_mod(9, &FlowMod::new(FlowModCommand::Modify, 0, Rule { instructions: vec![], ..rule(1) }))
        .unwrap();
    let table = pipeline.table(0).unwrap();
    assert_eq!((table.lookups, table.matched), (1, 1));
    let (_, entry) = table.rules().next().unwrap();
    assert_eq!((entry.frames, entry.bytes, entry.used_ns, entry.created_ns), (1, 14, 5, 0));
}

/// LINCX deleted no groups, found every group valid, and advertised types that it did not have.
#[test]
fn lincx_6_groups_exist_or_not_and_take_their_rules_along() {
    let mut pipeline = switch();
    let to_group = add(3, Rule::new(1, Match::all(), apply(vec![Action::Group(5)])));
    assert_eq!(pipeline.flow_mod(0, &to_group), Err(BadAction::BadOutGroup.into()));
    let watching = Bucket { watch_port: PortNo(1), ..Bucket::new(vec![output(1)]) };
    pipeline.group_mod(0, &group(5, GroupType::FastFailover, vec![watching])).unwrap();
    pipeline.group_mod(0, &group(6, GroupType::Indirect, vec![Bucket::new(vec![])])).unwrap();
    pipeline.flow_mod(0, &to_group).unwrap();
    pipeline.flow_mod(0, &add(0, rule(1))).unwrap();
    assert_eq!(pipeline.group_references()[&5], 1);
    let events = pipeline.group_mod(0, &delete_group(5)).unwrap();
    assert_eq!(gone(&events), [(0, RemovedReason::GroupDelete)]);
    assert_eq!(numbers(&pipeline), [1]);
    assert!(pipeline.groups().get(5).is_none() && pipeline.groups().get(6).is_some());
    assert_eq!(pipeline.group_mod(0, &delete_group(5)), Ok(vec![]), "deleting nothing is no error");
    pipeline.group_mod(0, &delete_group(ALL_GROUPS)).unwrap();
    assert!(pipeline.groups().is_empty());
}

/// LINCX ignored meters.
#[test]
fn lincx_7_meters_are_kept_and_take_their_rules_along() {
    let mut pipeline = switch();
    let metered = add(0, Rule { instructions: vec![Instruction::Meter(1)], ..rule(1) });
    assert_eq!(pipeline.flow_mod(0, &metered), Err(MeterModFailed::UnknownMeter.into()));
    pipeline.meter_mod(0, &meter(1, PKTPS, vec![drop_band(10, 0)])).unwrap();
    assert_eq!(
        pipeline.meters().get(1).unwrap().meter.bands[0].burst_size,
        0,
        "a burst of 0 is told back as 0"
    );
    pipeline.flow_mod(0, &metered).unwrap();
    assert_eq!(pipeline.meter_references()[&1], 1);
    let delete = MeterMod { command: ModCommand::Delete, ..meter(ALL_METERS, PKTPS, vec![]) };
    assert_eq!(gone(&pipeline.meter_mod(0, &delete).unwrap()), [(1, RemovedReason::MeterDelete)]);
    assert!(pipeline.meters().is_empty());
}

/// LINCX turned the order of equal priorities around.
#[test]
fn lincx_9_among_equals_the_first_comer_wins() {
    let mut pipeline = switch();
    let by = |field| Rule::new(1, Match::new([MatchField::exact(field, 1u8)]).unwrap(), vec![]);
    pipeline.flow_mod(0, &add(0, by(Field::EthSrc))).unwrap();
    pipeline.flow_mod(0, &add(0, by(Field::EthDst))).unwrap();
    pipeline.flow_mod(0, &add(0, by(Field::EthSrc))).unwrap();
    let table = pipeline.table(0).unwrap();
    let place = table.lookup(|_| Some(1)).unwrap();
    assert!(table.get(place).unwrap().rule.matching.get(Field::EthSrc).is_some());
}

#[test]
fn a_full_table_refuses_or_evicts_the_least_important_first() {
    let mut pipeline = Pipeline::new(2);
    for (number, importance) in [(1, 9), (2, 5)] {
        pipeline.flow_mod(0, &add(0, Rule { importance, ..rule(number) })).unwrap();
    }
    let third = |importance| add(0, Rule { importance, ..rule(3) });
    assert_eq!(pipeline.flow_mod(0, &third(7)), Err(FlowModFailed::TableFull.into()));
    assert!(
        pipeline.flow_mod(0, &add(0, Rule { importance: 5, ..rule(2) })).is_ok(),
        "a replacement needs no room"
    );
    pipeline.table_mod(&evicting(ALL_TABLES, EvictionFlags::IMPORTANCE)).unwrap();
    assert_eq!(pipeline.flow_mod(0, &third(4)), Err(FlowModFailed::TableFull.into()));
    assert_eq!(gone(&pipeline.flow_mod(0, &third(7)).unwrap()), [(2, RemovedReason::Eviction)]);
    assert_eq!(numbers(&pipeline), [1, 3]);
}

#[test]
fn eviction_by_lifetime_takes_the_rule_that_would_go_first() {
    let mut pipeline = Pipeline::new(3);
    for (number, hard_timeout) in [(1, 0), (2, 8), (3, 6)] {
        pipeline.flow_mod(0, &add(0, Rule { hard_timeout, ..rule(number) })).unwrap();
    }
    pipeline.table_mod(&evicting(0, EvictionFlags::LIFETIME)).unwrap();
    assert_eq!(gone(&pipeline.flow_mod(0, &add(0, rule(4))).unwrap()), [(3, RemovedReason::Eviction)]);
    assert_eq!(gone(&pipeline.flow_mod(0, &add(0, rule(5))).unwrap()), [(2, RemovedReason::Eviction)]);
    assert_eq!(gone(&pipeline.flow_mod(0, &add(0, rule(6))).unwrap()), [(1, RemovedReason::Eviction)]);
}

#[test]
fn vacancy_events_alternate() {
    let mut pipeline = Pipeline::new(10);
    let vacancy =
        TableMod { flags: Some(TableFlags::VACANCY_EVENTS), vacancy: Some((30, 60)), ..TableMod::default() };
    pipeline.table_mod(&vacancy).unwrap();
    let mut told = vec![];
    let mut hear = |events: Vec<Event>| {
        told.extend(events.into_iter().filter_map(|event| match event {
            Event::Vacancy { up, vacancy, .. } => Some((up, vacancy)),
            _ => None,
        }));
    };
    for number in 0..10 {
        hear(pipeline.flow_mod(0, &add(0, rule(number))).unwrap());
    }
    for number in 0..8 {
        hear(pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::DeleteStrict, 0, rule(number))).unwrap());
    }
    assert_eq!(told, [(false, 20), (true, 70)]);
    let wrong = TableMod { vacancy: Some((61, 60)), ..vacancy };
    assert_eq!(pipeline.table_mod(&wrong), Err(error::TableModFailed::BadConfig.into()));
}

#[test]
fn a_chain_of_groups_has_no_loop_and_an_end() {
    let mut pipeline = switch();
    let refused = |error: GroupModFailed| Err(Error::from(error));
    pipeline.group_mod(0, &group(1, GroupType::All, vec![Bucket::new(vec![output(1)])])).unwrap();
    for id in 2..=16 {
        pipeline.group_mod(0, &chain(id, id - 1)).unwrap();
    }
    assert_eq!(pipeline.group_mod(0, &chain(17, 16)), refused(GroupModFailed::ChainingUnsupported));
    assert_eq!(pipeline.group_mod(0, &with(ModCommand::Modify, chain(1, 16))), refused(GroupModFailed::Loop));
    assert_eq!(pipeline.group_mod(0, &chain(30, 30)), refused(GroupModFailed::Loop));
    assert_eq!(pipeline.group_mod(0, &delete_group(7)), refused(GroupModFailed::ChainedGroup));
    assert_eq!(pipeline.group_references()[&7], 1);
    pipeline.group_mod(0, &group(40, GroupType::All, vec![])).unwrap();
    let longer = with(ModCommand::Modify, chain(1, 40));
    assert_eq!(
        pipeline.group_mod(0, &longer),
        refused(GroupModFailed::ChainingUnsupported),
        "from above, too"
    );
    assert_eq!(pipeline.group_mod(0, &chain(50, 60)), Err(BadAction::BadOutGroup.into()));
}

#[test]
fn what_is_wrong_with_a_group_has_its_code() {
    let mut pipeline = switch();
    let mut refusal = |change: GroupMod| pipeline.group_mod(0, &change).unwrap_err();
    let bucket = || Bucket::new(vec![output(1)]);
    assert_eq!(refusal(group(0xffff_ff01, GroupType::All, vec![])), GroupModFailed::InvalidGroup.into());
    assert_eq!(refusal(group(1, GroupType::Indirect, vec![])), GroupModFailed::InvalidGroup.into());
    assert_eq!(refusal(group(1, GroupType::FastFailover, vec![bucket()])), GroupModFailed::BadWatch.into());
    let far = Bucket { watch_port: PortNo(77), ..bucket() };
    assert_eq!(refusal(group(1, GroupType::FastFailover, vec![far])), GroupModFailed::BadWatch.into());
    let far = Bucket { watch_group: 77, ..bucket() };
    assert_eq!(refusal(group(1, GroupType::FastFailover, vec![far])), GroupModFailed::BadWatch.into());
    assert_eq!(refusal(with(ModCommand::Modify, chain(1, 2))), GroupModFailed::UnknownGroup.into());
    let table = Bucket::new(vec![Action::Output { port: PortNo::TABLE, max_len: 0 }]);
    assert_eq!(refusal(group(1, GroupType::All, vec![table])), BadAction::BadOutPort.into());
    let many = vec![bucket(); 1025];
    assert_eq!(refusal(group(1, GroupType::All, many)), GroupModFailed::OutOfBuckets.into());
    pipeline.group_mod(0, &group(1, GroupType::All, vec![])).unwrap();
    assert_eq!(
        pipeline.group_mod(0, &group(1, GroupType::All, vec![])),
        Err(GroupModFailed::GroupExists.into())
    );
}

#[test]
fn fast_failover_follows_ports_and_groups_that_live() {
    let mut pipeline = switch();
    let watch = |port: u32, group: u32| Bucket {
        watch_port: PortNo(port),
        watch_group: group,
        ..Bucket::new(vec![])
    };
    let any = PortNo::ANY.0;
    let first = group(1, GroupType::FastFailover, vec![watch(1, ANY_GROUP), watch(2, ANY_GROUP)]);
    pipeline.group_mod(0, &first).unwrap();
    pipeline
        .group_mod(0, &group(2, GroupType::FastFailover, vec![watch(any, 1), watch(3, ANY_GROUP)]))
        .unwrap();
    let chosen = |pipeline: &Pipeline, id| {
        let live = |port: PortNo| pipeline.ports.get(&port).is_some_and(Port::is_live);
        pipeline.groups().choose(id, 0, &live)
    };
    assert_eq!((chosen(&pipeline, 1), chosen(&pipeline, 2)), (vec![0], vec![0]));
    let down = PortState::LINK_DOWN;
    assert_eq!(pipeline.set_port_state(PortNo(1), down), [Event::PortChanged { port: PortNo(1) }]);
    assert_eq!(pipeline.set_port_state(PortNo(1), down), []);
    assert_eq!((chosen(&pipeline, 1), chosen(&pipeline, 2)), (vec![1], vec![0]));
    pipeline.set_port_state(PortNo(2), down);
    assert_eq!((chosen(&pipeline, 1), chosen(&pipeline, 2)), (vec![], vec![1]));
    pipeline.set_port_state(PortNo(3), down);
    assert_eq!(chosen(&pipeline, 2), Vec::<usize>::new());
}

#[test]
fn liveness_of_many_watchers_is_found_at_once() {
    // 16 layers of 1024 buckets that all watch the layer below, whose port is dead: looked at one by one, 1024¹⁶.
    let mut pipeline = switch();
    pipeline.set_port_state(PortNo(1), PortState::LINK_DOWN);
    let watch = |port, group| Bucket { watch_port: port, watch_group: group, ..Bucket::new(vec![output(2)]) };
    pipeline
        .group_mod(0, &group(1, GroupType::FastFailover, vec![watch(PortNo(1), ANY_GROUP); 1024]))
        .unwrap();
    for id in 2..=16 {
        let buckets = vec![watch(PortNo::ANY, id - 1); 1024];
        pipeline.group_mod(0, &group(id, GroupType::FastFailover, buckets)).unwrap();
    }
    let live = |port: PortNo| pipeline.ports.get(&port).is_some_and(Port::is_live);
    assert_eq!(pipeline.groups().choose(16, 0, &live), Vec::<usize>::new());
    assert!(pipeline.group_references().is_empty(), "to watch is not to send");
}

#[test]
fn a_packet_in_has_a_finished_checksum() {
    let whole = flow::text::frame::parse("eth / ip / udp / raw 68656c6c6f").unwrap();
    let mut left = whole.clone();
    let partial = wire::offload::partial_of(&whole).unwrap();
    // The sum of the pseudo header: 10.0.0.1, 10.0.0.2, protocol 17, 13 bytes.
    left[40..42].copy_from_slice(&(0x0a00u16 + 1 + 0x0a00 + 2 + 17 + 13).to_be_bytes());
    let offload = wire::offload::Offload { partial: Some(partial), ..wire::offload::Offload::NONE };
    let mut pipeline = switch();
    let both = vec![Action::Output { port: PortNo::CONTROLLER, max_len: 0xffff }, output(2)];
    pipeline.flow_mod(0, &add(0, Rule::new(1, Match::all(), apply(both)))).unwrap();
    let arrival =
        flow::interpret::InputFrame { offload, ..flow::interpret::InputFrame::new(PortNo(1), &left) };
    let mut verdict = flow::interpret::Verdict::default();
    flow::interpret::receive(&mut pipeline, 0, arrival, &mut verdict);
    assert_eq!(verdict.packet_ins[0].frame, whole);
    assert_eq!(
        (&verdict.sent[0].frame, verdict.sent[0].offload),
        (&left, offload),
        "a port may have the hardware"
    );
}

/// §6.5: "specifies fields such as weight that are undefined for the specified group type".
#[test]
fn only_select_groups_have_weights() {
    let watched = |weight| Bucket { weight, watch_port: PortNo(2), ..Bucket::new(vec![output(2)]) };
    for kind in [GroupType::All, GroupType::Select, GroupType::Indirect, GroupType::FastFailover] {
        let mut pipeline = switch();
        let refused = pipeline.group_mod(0, &group(1, kind, vec![watched(1)])).err();
        let expected = (kind != GroupType::Select).then_some(GroupModFailed::InvalidGroup.into());
        assert_eq!(refused, expected, "{kind:?}");
        assert_eq!(pipeline.groups().len(), usize::from(kind == GroupType::Select));
        assert!(pipeline.group_mod(0, &group(2, kind, vec![watched(0)])).is_ok(), "{kind:?}");
    }
}

/// Ports 80 to 95 are one rule, as Open vSwitch has it.
#[test]
fn masks_on_transport_ports_are_ranges_of_ports() {
    let mut pipeline = switch();
    for protocol in ["tcp", "udp", "sctp"] {
        let text = format!("{protocol},tp_dst=0x50/0xfff0 actions=output:2");
        let (table, masked) = flow::text::rule::parse(&text).unwrap();
        assert!(flow::text::rule::show(table, &masked).contains(&format!("{protocol}_dst=0x50/0xfff0")));
        pipeline.flow_mod(0, &add(table, masked)).unwrap();
        for (port, leaves) in [(79, 0), (80, 1), (95, 1), (96, 0)] {
            let frame = flow::text::frame::parse(&format!("eth / ip / {protocol} dport={port}")).unwrap();
            let mut verdict = flow::interpret::Verdict::default();
            flow::interpret::receive(
                &mut pipeline,
                0,
                flow::interpret::InputFrame::new(PortNo(1), &frame),
                &mut verdict,
            );
            assert_eq!(verdict.sent.len(), leaves, "{protocol} {port}");
        }
    }
}

/// Controllers write ANY for "from nowhere", and LOCAL whether there is such a port or not.
#[test]
fn a_packet_out_may_come_from_nowhere() {
    let mut pipeline = switch();
    for from in [PortNo::CONTROLLER, PortNo::ANY, PortNo::LOCAL] {
        assert_eq!(pipeline.check_packet_out(from, &[output(2)]), Ok(()), "{from}");
        let back = pipeline.check_packet_out(from, &[output(PortNo::IN_PORT.0)]);
        assert_eq!(back, Err(BadAction::BadOutPort.into()), "{from}: nowhere to send it back to");
        let mut verdict = flow::interpret::Verdict::default();
        let arrival = flow::interpret::InputFrame::new(from, &[2; 60]);
        flow::interpret::packet_out(&mut pipeline, 0, arrival, &[output(PortNo::FLOOD.0)], &mut verdict);
        assert_eq!(verdict.sent.len(), pipeline.ports.len(), "{from}: flooded to every port");
    }
    let nowhere = pipeline.check_packet_out(PortNo(77), &[output(2)]);
    assert_eq!(nowhere, Err(error::BadRequest::BadPort.into()));
}

/// A TCP super-frame with so many segments of 1448 bytes, as a veth hands it over.
fn super_frame(segments: usize) -> (Vec<u8>, wire::offload::Offload) {
    let text = format!("eth / ip / tcp / raw {}", "00".repeat(1448 * segments));
    let frame = flow::text::frame::parse(&text).unwrap();
    let kind = wire::offload::SegmentKind::Tcp4;
    let segments = wire::offload::Segments { kind, size: 1448, header: 54, ecn: false };
    (frame, wire::offload::Offload { segments: Some(segments), ..wire::offload::Offload::NONE })
}

/// Whether a switch sees a super-frame or its segments must not matter to what it counts: the pieces come from the cutter that is
/// compared with the kernel's.
#[test]
fn a_super_frame_counts_as_its_segments_everywhere() {
    let (whole, offload) = super_frame(20);
    let cut = wire::offload::Cut::new(&whole, &offload).unwrap();
    let mut pieces = vec![];
    for piece in 0..cut.count() {
        pieces.push(vec![0; cut.length(piece)]);
        cut.write(piece, &mut pieces[piece]);
    }
    assert_eq!(pieces.len(), 20);
    let counted = |frames: &[(&[u8], wire::offload::Offload)]| {
        let mut pipeline = switch();
        pipeline.group_mod(0, &group(7, GroupType::All, vec![Bucket::new(vec![output(2)])])).unwrap();
        pipeline.meter_mod(0, &meter(1, PKTPS, vec![drop_band(1, 100)])).unwrap();
        let tagged = vec![Action::PushVlan(0x8100), Action::Group(7)];
        let instructions = vec![Instruction::Meter(1), Instruction::ApplyActions(tagged)];
        pipeline.flow_mod(0, &add(0, Rule::new(1, Match::all(), instructions))).unwrap();
        for (frame, offload) in frames {
            let arrival = flow::interpret::InputFrame {
                offload: *offload,
                ..flow::interpret::InputFrame::new(PortNo(1), frame)
            };
            flow::interpret::receive(&mut pipeline, 0, arrival, &mut Default::default());
        }
        let ports: Vec<_> = pipeline.ports.values().map(|port| port.counters).collect();
        let table = pipeline.table(0).unwrap();
        let rules: Vec<_> = table.rules().map(|(_, entry)| (entry.frames, entry.bytes)).collect();
        let (group, meter) = (pipeline.groups().get(7).unwrap(), pipeline.meters().get(1).unwrap());
        (ports, (table.lookups, table.matched), rules, group.counters, group.buckets.clone(), meter.counters)
    };
    let cut: Vec<_> = pieces.iter().map(|piece| (&piece[..], wire::offload::Offload::NONE)).collect();
    assert_eq!(counted(&[(&whole, offload)]), counted(&cut));
}

/// 1,000 frames a second are 1,000 segments, not super-frames, also when the burst is smaller than one of them.
#[test]
fn a_meter_counts_segments_and_lets_no_super_frame_wait_for_ever() {
    for (burst, least, most) in [(1, 990, 1_040), (100, 990, 1_140)] {
        let mut pipeline = switch();
        pipeline.meter_mod(0, &meter(1, PKTPS, vec![drop_band(1000, burst)])).unwrap();
        let mut entry = pipeline.meters().get(1).unwrap().clone();
        // One super-frame of 40 segments a millisecond for a second: forty times too many.
        let passed = (0..1000).filter(|ms| entry.measure(ms * 1_000_000, 40, 60_000).is_none()).count() * 40;
        assert!((least..=most).contains(&passed), "burst {burst}: {passed} segments passed");
    }
}

/// os-ken's suite sends random Ethernet headers and wants the shares within ±10 %.
#[test]
fn select_groups_spread_random_addresses_by_weight_and_keep_conversations() {
    let mut pipeline = switch();
    let bucket = |weight, port| Bucket { weight, ..Bucket::new(vec![output(port)]) };
    let buckets = vec![bucket(1, 2), bucket(2, 3), bucket(0, 2), bucket(1, 3)];
    pipeline.group_mod(0, &group(0, GroupType::Select, buckets)).unwrap();
    pipeline.flow_mod(0, &add(0, Rule::new(1, Match::all(), apply(vec![Action::Group(0)])))).unwrap();
    let mut seed = 1u64;
    let mut verdict = Default::default();
    for _ in 0..10_000 {
        let mut frame = vec![0u8; 64];
        for byte in &mut frame[..12] {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (seed >> 56) as u8;
        }
        frame[0] &= 0xfe;
        flow::interpret::receive(
            &mut pipeline,
            0,
            flow::interpret::InputFrame::new(PortNo(1), &frame),
            &mut verdict,
        );
        flow::interpret::receive(
            &mut pipeline,
            0,
            flow::interpret::InputFrame::new(PortNo(1), &frame),
            &mut verdict,
        );
        let sent = std::mem::take(&mut verdict).sent;
        assert_eq!(sent[0], sent[1], "the same frame goes the same way");
    }
    let counts: Vec<u64> =
        pipeline.groups().get(0).unwrap().buckets.iter().map(|bucket| bucket.frames).collect();
    for (count, share) in counts.iter().zip([5_000.0, 10_000.0, 0.0, 5_000.0]) {
        assert!((*count as f64 - share).abs() <= share / 10.0, "{counts:?}");
    }
}

#[test]
fn meter_modify_keeps_what_the_meter_counted_and_clears_its_bands() {
    let mut pipeline = switch();
    pipeline.meter_mod(0, &meter(1, PKTPS, vec![drop_band(0, 1)])).unwrap();
    let rule = Rule { instructions: vec![Instruction::Meter(1)], ..rule(1) };
    pipeline.flow_mod(0, &add(0, rule)).unwrap();
    for _ in 0..3 {
        let frame = [0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 8, 0];
        let arrival = flow::interpret::InputFrame::new(PortNo(1), &frame);
        flow::interpret::receive(&mut pipeline, 5, arrival, &mut Default::default());
    }
    let counted = |p: &Pipeline| {
        (p.meters().get(1).unwrap().counters.frames, p.meters().get(1).unwrap().bands[0].frames)
    };
    assert_eq!(counted(&pipeline), (3, 2));
    let modify = MeterMod { command: ModCommand::Modify, ..meter(1, PKTPS, vec![drop_band(5, 1)]) };
    pipeline.meter_mod(0, &modify).unwrap();
    assert_eq!(counted(&pipeline), (3, 0));
}

#[test]
fn what_is_wrong_with_a_meter_has_its_code() {
    let mut pipeline = switch();
    let mut refusal = |change: MeterMod| pipeline.meter_mod(0, &change).unwrap_err();
    assert_eq!(refusal(meter(0, PKTPS, vec![])), MeterModFailed::InvalidMeter.into());
    assert_eq!(refusal(meter(0xffff_0001, PKTPS, vec![])), MeterModFailed::InvalidMeter.into());
    let both = PKTPS.with(MeterFlags::KBPS);
    assert_eq!(refusal(meter(1, both, vec![])), MeterModFailed::BadFlags.into());
    let band = |kind| vec![Band { rate: 1, burst_size: 1, kind }];
    let experimenter = BandKind::Experimenter { experimenter: 1, data: vec![] };
    assert_eq!(refusal(meter(1, PKTPS, band(experimenter))), MeterModFailed::BadBand.into());
    let far = BandKind::DscpRemark { prec_level: 3 };
    assert_eq!(refusal(meter(1, PKTPS, band(far))), MeterModFailed::BadBandValue.into());
    assert_eq!(refusal(meter(1, PKTPS, vec![drop_band(1, 1); 17])), MeterModFailed::OutOfBands.into());
    let modify = MeterMod { command: ModCommand::Modify, ..meter(1, PKTPS, vec![]) };
    assert_eq!(refusal(modify), MeterModFailed::UnknownMeter.into());
    pipeline.meter_mod(0, &meter(1, PKTPS, vec![])).unwrap();
    assert_eq!(pipeline.meter_mod(0, &meter(1, PKTPS, vec![])), Err(MeterModFailed::MeterExists.into()));
}

#[test]
fn drop_precedence_rises_within_its_class() {
    // RFC 2597: AF21, AF22, AF23 are 18, 20, 22.
    assert_eq!(
        [(18, 1), (18, 2), (20, 1), (22, 1)].map(|(d, s)| raise_drop_precedence(d, s)),
        [20, 22, 22, 22]
    );
    assert_eq!([0, 46, 8, 56, 11].map(|dscp| raise_drop_precedence(dscp, 1)), [0, 46, 8, 56, 11]);
}

#[test]
fn what_is_wrong_with_a_rule_has_its_code() {
    let mut pipeline = switch();
    let mut refusal = |instructions: Vec<Instruction>| {
        pipeline.flow_mod(0, &add(3, Rule { instructions, ..rule(1) })).unwrap_err()
    };
    let set = |field, value: u32| apply(vec![Action::SetField { field, value: value.into() }]);
    assert_eq!(refusal(vec![Instruction::GotoTable(3)]), BadInstruction::BadTableId.into());
    assert_eq!(refusal(vec![Instruction::GotoTable(255)]), BadInstruction::BadTableId.into());
    assert_eq!(refusal(vec![Instruction::ClearActions; 2]), BadInstruction::DupInst.into());
    for port in [PortNo(0), PortNo::ANY, PortNo::TABLE, PortNo(0xffff_ff01)] {
        let out = apply(vec![Action::Output { port, max_len: 0 }]);
        assert_eq!(refusal(out), BadAction::BadOutPort.into(), "{port:?}");
    }
    assert_eq!(refusal(apply(vec![Action::PushVlan(0x9100)])), BadAction::BadTag.into());
    assert_eq!(refusal(apply(vec![Action::PushMpls(0x800)])), BadAction::BadTag.into());
    assert_eq!(refusal(apply(vec![Action::PushPbb(0x800)])), BadAction::BadTag.into());
    for field in [Field::InPort, Field::InPhyPort, Field::Metadata, Field::Ipv6Exthdr] {
        assert_eq!(refusal(set(field, 0)), BadAction::BadSetType.into(), "{field}");
    }
    assert_eq!(refusal(set(Field::VlanVid, 5)), BadAction::BadSetArgument.into());
    assert_eq!(refusal(set(Field::VlanVid, 0x2000)), BadAction::BadSetArgument.into());
    assert_eq!(refusal(set(Field::Ipv4Src, 1)), BadAction::MatchInconsistent.into());
    assert_eq!(refusal(set(Field::VlanPcp, 1)), BadAction::MatchInconsistent.into());
}

#[test]
fn earlier_actions_may_promise_what_a_set_field_needs() {
    let mut pipeline = switch();
    let set = |field| Action::SetField { field, value: 1 };
    let mut takes = |actions: Vec<Action>| {
        let instructions =
            vec![Instruction::ApplyActions(actions.clone()), Instruction::WriteActions(actions)];
        pipeline.flow_mod(0, &add(0, Rule { instructions, ..rule(1) })).is_ok()
    };
    assert!(takes(vec![Action::PushVlan(0x8100), set(Field::VlanPcp)]));
    assert!(takes(vec![Action::PushMpls(0x8847), set(Field::MplsLabel)]));
    assert!(takes(vec![Action::PushPbb(0x88e7), set(Field::PbbIsid)]));
    assert!(takes(vec![Action::PopMpls(0x800), set(Field::Ipv4Src)]));
    assert!(!takes(vec![Action::PopMpls(0x800), set(Field::Ipv6Src)]));
    assert!(!takes(vec![set(Field::MplsLabel), Action::PushMpls(0x8847)]));
}

#[test]
fn a_match_is_checked_when_it_is_made() {
    use flow::error::BadMatch::*;
    let refusal = |fields: Vec<MatchField>| Match::new(fields).err();
    let exact = |field, value: u32| MatchField::exact(field, value);
    assert_eq!(refusal(vec![exact(Field::InPort, 1), exact(Field::InPort, 1)]), Some(DupField));
    assert_eq!(refusal(vec![exact(Field::VlanPcp, 8)]), Some(BadValue));
    assert_eq!(refusal(vec![exact(Field::VlanPcp, 1)]), Some(BadPrereq));
    assert_eq!(refusal(vec![exact(Field::VlanVid, 0), exact(Field::VlanPcp, 1)]), Some(BadPrereq));
    assert_eq!(refusal(vec![exact(Field::VlanVid, 5)]), Some(BadValue));
    assert_eq!(refusal(vec![MatchField::masked(Field::EthType, 0x800u16, 0xff00u16)]), Some(BadMask));
    assert_eq!(refusal(vec![MatchField::masked(Field::EthSrc, 3u8, 1u8)]), Some(BadWildcards));
    assert_eq!(refusal(vec![exact(Field::Ipv4Src, 1), exact(Field::EthType, 0x800)]), Some(BadPrereq));
    assert_eq!(refusal(vec![exact(Field::EthType, 0x86dd), exact(Field::Ipv4Src, 1)]), Some(BadPrereq));
    let any_tag = MatchField::masked(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT);
    assert_eq!(refusal(vec![any_tag, exact(Field::VlanPcp, 1)]), None);
}

#[test]
fn a_port_mod_changes_what_its_mask_says_and_only_with_the_right_address() {
    let mut pipeline = switch();
    let all = PortConfig::ALL;
    let mask = PortConfig::NO_FWD;
    let change = PortMod { port: PortNo(2), address: [2, 0, 0, 0, 0, 2], config: all, mask };
    assert_eq!(pipeline.port_mod(&change).unwrap().len(), 1);
    assert_eq!(pipeline.ports[&PortNo(2)].config, mask);
    assert_eq!(pipeline.port_mod(&change).unwrap().len(), 0);
    let wrong = PortMod { address: [0; 6], ..change };
    assert_eq!(pipeline.port_mod(&wrong), Err(error::PortModFailed::BadHwAddr.into()));
    let wrong = PortMod { port: PortNo(9), ..change };
    assert_eq!(pipeline.port_mod(&wrong), Err(error::PortModFailed::BadPort.into()));
}

#[test]
fn reassembly_is_refused_and_buffers_are_unknown() {
    let mut pipeline = switch();
    let config = Config { fragments: Fragments::Reassemble, miss_send_len: 0 };
    assert_eq!(pipeline.set_config(config), Err(error::SwitchConfigFailed::BadFlags.into()));
    let change = FlowMod { buffer: Some(1), ..add(0, rule(1)) };
    assert_eq!(pipeline.flow_mod(0, &change), Err(error::BadRequest::BufferUnknown.into()));
    assert!(numbers(&pipeline).is_empty());
}

#[test]
fn a_monitor_hears_of_the_rules_that_it_selects() {
    let flags = MonitorFlags::ADD.with(MonitorFlags::REMOVED);
    let matching = Match::new([MatchField::exact(Field::EthSrc, 1u8)]).unwrap();
    let monitor = Monitor { id: 1, flags, table: 0, matching, out_port: PortNo(2), out_group: ANY_GROUP };
    let mut pipeline = switch();
    let mut heard = |change: FlowMod| {
        pipeline.flow_mod(0, &change).unwrap().iter().filter(|event| monitor.wants(event)).count()
    };
    assert_eq!(heard(add(0, rule(1))), 1);
    assert_eq!(heard(add(1, rule(1))), 0, "another table");
    assert_eq!(heard(add(0, rule(2))), 0, "another match");
    assert_eq!(heard(FlowMod::new(FlowModCommand::Modify, 0, rule(1))), 0, "not asked for");
    assert_eq!(heard(FlowMod::new(FlowModCommand::Delete, 0, rule(1))), 1);
    assert_eq!(heard(add(0, Rule { instructions: vec![], ..rule(1) })), 0, "another output");
    assert_eq!((flags.known(), MonitorFlags(0x80).known()), (Some(flags), None));
}

#[test]
fn a_monitor_of_a_port_hears_when_a_rule_no_longer_sends_there() {
    let flags = MonitorFlags::ADD.with(MonitorFlags::MODIFY);
    let matching = Match::all();
    let monitor = Monitor { id: 1, flags, table: 0, matching, out_port: PortNo(2), out_group: ANY_GROUP };
    let mut pipeline = switch();
    let mut heard = |change: FlowMod| {
        pipeline.flow_mod(0, &change).unwrap().iter().filter(|event| monitor.wants(event)).count()
    };
    let elsewhere = || Rule { instructions: apply(vec![output(1)]), ..rule(1) };
    assert_eq!(heard(add(0, rule(1))), 1);
    assert_eq!(heard(FlowMod::new(FlowModCommand::Modify, 0, elsewhere())), 1, "away from there");
    assert_eq!(heard(FlowMod::new(FlowModCommand::Modify, 0, elsewhere())), 0, "elsewhere all the time");
    assert_eq!(heard(FlowMod::new(FlowModCommand::Modify, 0, rule(1))), 1, "there again");
    assert_eq!(heard(add(0, elsewhere())), 1, "replaced by one that sends elsewhere");
    assert_eq!(heard(add(0, elsewhere())), 0);
}

/// A frame conforms when, from every earlier frame that passed to this one, no more passed than the burst and what the
/// rate gave meanwhile. That is what a token bucket means, without a bucket.
fn arrival_curve(rate: u64, burst: u64, arrivals: &[u64]) -> Vec<bool> {
    let mut passed: Vec<u64> = vec![];
    let conforms = |now: u64, passed: &[u64]| {
        (0..=passed.len()).all(|from| {
            let since = passed.get(from).copied().unwrap_or(now);
            let frames = (passed.len() - from + 1) as u128;
            frames * 1_000_000_000
                <= u128::from(burst) * 1_000_000_000 + u128::from(rate) * u128::from(now - since)
        })
    };
    let mut result = vec![];
    for now in arrivals {
        result.push(conforms(*now, &passed));
        if result[result.len() - 1] {
            passed.push(*now);
        }
    }
    result
}

proptest! {
    #[test]
    fn the_token_bucket_is_exact(
        rate in 0..2000u32,
        burst in 1..20u32,
        gaps in proptest::collection::vec(prop_oneof![0..3u64, 0..3_000_000u64, 0..900_000_000u64], 1..80),
    ) {
        let mut pipeline = switch();
        pipeline.meter_mod(0, &meter(1, PKTPS, vec![drop_band(rate, burst)])).unwrap();
        let arrivals: Vec<u64> = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) }).collect();
        let mut entry = pipeline.meters().get(1).unwrap().clone();
        let passed: Vec<bool> = arrivals.iter().map(|now| entry.measure(*now, 1, 100).is_none()).collect();
        prop_assert_eq!(passed, arrival_curve(rate.into(), burst.into(), &arrivals));
    }

    #[test]
    fn the_highest_band_that_is_exceeded_counts(rates in proptest::collection::vec(1..50u32, 1..6)) {
        let mut pipeline = switch();
        let bands = rates.iter().map(|rate| drop_band(*rate, 1)).collect();
        pipeline.meter_mod(0, &meter(1, PKTPS, bands)).unwrap();
        let mut entry = pipeline.meters().get(1).unwrap().clone();
        prop_assert_eq!(entry.measure(0, 1, 64), None);
        let hit = entry.measure(1, 1, 64).unwrap();
        prop_assert_eq!(rates[hit], *rates.iter().max().unwrap());
    }
}

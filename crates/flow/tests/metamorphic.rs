//! Changes of a pipeline that must not change what it does, over random rules and frames; and frames of any bytes.

use flow::interpret::{InputFrame, OutputFrame, PacketIn, Verdict, receive};
use flow::rule::{FlowMod, FlowModCommand, Rule};
use flow::text::{self, rule};
use flow::{Field, Match, Pipeline, PortNo};
use proptest::prelude::*;

const MATCHES: &[&str] = &[
    "",
    "in_port=1",
    "ip",
    "tcp",
    "udp,udp_dst=2000",
    "ip,nw_dst=10.0.0.0/30",
    "dl_vlan=5",
    "vlan_vid=0x1000/0x1000",
    "dl_vlan=0xffff",
    "dl_dst=02:00:00:00:00:02",
    "mpls,mpls_bos=1",
    "ipv6",
    "icmp6,icmpv6_type=135",
    "arp,arp_op=1",
    "metadata=0x1/0x1",
    "dl_type=0x88e7",
];

const ACTIONS: &[&str] = &[
    "output:2",
    "pop_vlan",
    "push_vlan:0x8100",
    "push_vlan:0x88a8",
    "set_field:02:00:00:00:00:07->eth_src",
    "dec_ttl",
    "mod_nw_ttl:2",
    "push_mpls:0x8847",
    "pop_mpls:0x0800",
    "dec_mpls_ttl",
    "copy_ttl_in",
    "copy_ttl_out",
    "push_pbb:0x88e7",
    "pop_pbb",
    "set_queue:3",
    "group:1",
    "group:2",
    "ALL",
    "IN_PORT",
    "NORMAL",
    "CONTROLLER:30",
    "set_field:7->tun_id",
];

const FRAMES: &[&str] = &[
    "eth / ip / tcp / raw 0102",
    "eth / ip dst=10.0.0.77 / udp / raw 010203",
    "eth / vlan vid=5 / ip / udp",
    "eth / vlan tag=0x88a8 vid=6 / vlan vid=5 / ip6 / tcp",
    "eth / mpls / ip / tcp",
    "eth / mpls / mpls / ip6 / udp",
    "eth / pbb isid=5 / eth / ip / udp",
    "eth / ip6 / hop / dest / sctp / raw 01020304",
    "eth / ip6 / ns",
    "eth / ip6 / routing left=1 / udp",
    "eth / ip6 / frag offset=3 next=17 / raw 01020304",
    "eth / ip mf=1 / tcp sum=5",
    "eth / arp",
    "eth / ip ttl=1 / icmp",
];

fn some_rule() -> impl Strategy<Value = (u8, Rule)> {
    let list = || proptest::collection::vec(0..ACTIONS.len(), 0..5);
    (0..3u8, 1..6u16, 0..MATCHES.len(), list(), list(), 0..4u8, any::<bool>()).prop_map(
        |(table, priority, matching, apply, write, next, clear)| {
            let list = |indices: &[usize]| indices.iter().map(|i| ACTIONS[*i]).collect::<Vec<_>>().join(",");
            let mut parts = vec![list(&apply)];
            parts.extend(clear.then(|| "clear_actions".to_owned()));
            parts.push(format!("write_actions({})", list(&write)));
            if next > table && next < 3 {
                parts.push(format!("write_metadata:{next},goto_table:{next}"));
            }
            parts.retain(|part| !part.is_empty());
            let line = format!(
                "table={table},priority={priority},{} actions={}",
                MATCHES[matching],
                parts.join(",")
            );
            rule::parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
        },
    )
}

fn some_rules() -> impl Strategy<Value = Vec<(u8, Rule)>> {
    proptest::collection::vec(some_rule(), 0..14)
}

/// Frames of the list, whole, cut, damaged; and any bytes.
fn some_frame() -> impl Strategy<Value = Vec<u8>> {
    let known = (0..FRAMES.len()).prop_map(|index| text::frame::parse(FRAMES[index]).unwrap());
    let cut = (known.clone(), any::<prop::sample::Index>()).prop_map(|(mut frame, at)| {
        frame.truncate(at.index(frame.len() + 1));
        frame
    });
    let damaged =
        (known.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut frame, at, byte)| {
            let at = at.index(frame.len());
            frame[at] = byte;
            frame
        });
    prop_oneof![3 => known, 1 => cut, 1 => damaged, 1 => proptest::collection::vec(any::<u8>(), 0..100)]
}

fn frames() -> impl Strategy<Value = Vec<(u32, Vec<u8>)>> {
    proptest::collection::vec((1..4u32, some_frame()), 1..12)
}

fn empty_switch() -> Pipeline {
    let mut pipeline = Pipeline::default();
    let groups = "group_id=1,type=all,bucket=actions=pop_vlan,output:3,bucket=actions=output:2\n\
                  group_id=2,type=select,bucket=actions=output:2,bucket=actions=group:1\n\
                  in_port=4 actions=drop";
    text::file::load(&mut pipeline, groups).unwrap();
    let nothing = Rule::new(0, Match::all(), vec![]);
    pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::Delete, 255, nothing)).unwrap();
    for number in 1..=4 {
        pipeline.add_port(flow::port::Port::new(PortNo(number), "p", [2, 0, 0, 0, 1, number as u8]));
    }
    pipeline
}

fn add(pipeline: &mut Pipeline, table: u8, rule: &Rule) {
    pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::Add, table, rule.clone())).unwrap();
}

fn switch(rules: &[(u8, Rule)]) -> Pipeline {
    let mut pipeline = empty_switch();
    rules.iter().for_each(|(table, rule)| add(&mut pipeline, *table, rule));
    pipeline
}

/// What leaves, by port or as packet-in. Counters are left out: some changes move them.
fn behaviour(mut pipeline: Pipeline, frames: &[(u32, Vec<u8>)]) -> Vec<(Vec<OutputFrame>, Vec<PacketIn>)> {
    let run = |(port, frame): &(u32, Vec<u8>)| {
        let mut verdict = Verdict::default();
        receive(&mut pipeline, 0, InputFrame::new(PortNo(*port), frame), &mut verdict);
        (verdict.sent, verdict.packet_ins)
    };
    frames.iter().map(run).collect()
}

fn dump(pipeline: &Pipeline) -> Vec<String> {
    pipeline
        .tables()
        .flat_map(|t| t.rules().map(|(_, e)| rule::show(t.number, &e.rule)).collect::<Vec<_>>())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_frame_passes_any_rules_and_the_counters_add_up(rules in some_rules(), frames in frames()) {
        let mut pipeline = switch(&rules);
        let mut sent = 0;
        for (port, frame) in &frames {
            let mut verdict = Verdict::default();
            receive(&mut pipeline, 0, InputFrame::new(PortNo(*port), frame), &mut verdict);
            sent += verdict.sent.len() as u64;
        }
        let ports = || pipeline.ports.values().map(|port| port.counters);
        prop_assert_eq!(ports().map(|c| c.rx_frames).sum::<u64>(), frames.len() as u64);
        prop_assert_eq!(ports().map(|c| c.tx_frames).sum::<u64>(), sent);
        let first = pipeline.table(0).unwrap();
        prop_assert_eq!(first.lookups, frames.len() as u64);
        for table in pipeline.tables() {
            prop_assert_eq!(table.rules().map(|(_, entry)| entry.frames).sum::<u64>(), table.matched);
        }
    }

    #[test]
    fn a_trace_ends_as_the_frame_does(rules in some_rules(), frames in frames()) {
        let (mut plain, mut traced) = (switch(&rules), switch(&rules));
        for (port, frame) in &frames {
            let mut verdict = Verdict::default();
            receive(&mut plain, 0, InputFrame::new(PortNo(*port), frame), &mut verdict);
            let trace = flow::trace::trace(&mut traced, 0, InputFrame::new(PortNo(*port), frame), None);
            let told = |kind: &str| trace.lines.iter().filter(|line| line.kind == kind).count();
            prop_assert_eq!(told("sent"), verdict.sent.len());
            prop_assert_eq!(told("packet-in"), verdict.packet_ins.len());
            prop_assert_eq!(&trace.verdict, &verdict);
            prop_assert!(trace.lines.iter().all(|line| line.depth < 20));
        }
    }

    #[test]
    fn a_rule_that_is_shadowed_changes_nothing(rules in some_rules(), hidden in some_rule(), frames in frames()) {
        let (table, mut hidden) = hidden;
        let shadow = rules.iter().find(|(of, r)| *of == table && hidden.matching.is_within(&r.matching));
        let Some((_, shadow)) = shadow else { return Ok(()) };
        hidden.priority = shadow.priority - 1;
        let is_new = !rules.iter().any(|(of, r)| {
            *of == table && r.priority == hidden.priority && r.matching.same(&hidden.matching)
        });
        let mut more = rules.clone();
        if is_new {
            more.push((table, hidden));
        }
        prop_assert_eq!(behaviour(switch(&rules), &frames), behaviour(switch(&more), &frames));
    }

    #[test]
    fn a_rule_split_into_halves_does_the_same(rules in some_rules(), index in any::<prop::sample::Index>(), frames in frames()) {
        let wide = |(_, r): &&(u8, Rule)| r.matching.get(Field::EthSrc).is_none();
        let splittable: Vec<&(u8, Rule)> = rules.iter().filter(wide).collect();
        if splittable.is_empty() {
            return Ok(());
        }
        let (table, whole) = splittable[index.index(splittable.len())].clone();
        let mut pipeline = switch(&rules);
        let expected = behaviour(switch(&rules), &frames);
        // Halves by one bit of the source; the second rule comes where the first was in the order of equals.
        let last = pipeline.table(table).unwrap().rules().filter(|(_, e)| e.rule.priority == whole.priority).count() == 1;
        if !last {
            return Ok(());
        }
        let held = pipeline.table(table).unwrap().rules().find(|(_, e)| e.rule.priority == whole.priority).unwrap().1.rule.clone();
        pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::DeleteStrict, table, (*held).clone())).unwrap();
        for bit in [0u128, 1] {
            let mut half = (*held).clone();
            half.matching.push(flow::matching::MatchField::masked(Field::EthSrc, bit, 1u128)).unwrap();
            add(&mut pipeline, table, &half);
        }
        // A frame too short for Ethernet has no source and is in neither half.
        let whole_frames: Vec<_> = frames.iter().map(|(_, frame)| frame.len() >= 14).collect();
        for ((got, expected), is_whole) in behaviour(pipeline, &frames).into_iter().zip(expected).zip(whole_frames) {
            prop_assert!(!is_whole || got == expected);
        }
    }

    #[test]
    fn the_order_of_adding_matters_only_among_equals(rules in some_rules(), frames in frames()) {
        let mut once = rules.clone();
        once.sort_by_key(|(table, rule)| (*table, rule.priority));
        once.dedup_by_key(|(table, rule)| (*table, rule.priority));
        let mut backwards = once.clone();
        backwards.reverse();
        prop_assert_eq!(behaviour(switch(&once), &frames), behaviour(switch(&backwards), &frames));
    }

    #[test]
    fn rules_written_down_and_read_back_do_the_same(rules in some_rules(), frames in frames()) {
        let pipeline = switch(&rules);
        let mut again = empty_switch();
        text::file::load(&mut again, &dump(&pipeline).join("\n")).unwrap();
        prop_assert_eq!(dump(&pipeline), dump(&again));
        prop_assert_eq!(behaviour(pipeline, &frames), behaviour(again, &frames));
    }

    #[test]
    fn delete_all_and_add_again_is_the_same(rules in some_rules(), frames in frames()) {
        let mut pipeline = switch(&rules);
        let before = dump(&pipeline);
        let nothing = Rule::new(0, Match::all(), vec![]);
        pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::Delete, 255, nothing)).unwrap();
        prop_assert!(dump(&pipeline).is_empty());
        rules.iter().for_each(|(table, rule)| add(&mut pipeline, *table, rule));
        prop_assert_eq!(dump(&pipeline), before);
        prop_assert_eq!(behaviour(pipeline, &frames), behaviour(switch(&rules), &frames));
    }

    #[test]
    fn an_action_set_at_the_end_is_the_same_list_applied(indices in proptest::collection::vec(0..ACTIONS.len(), 0..6), frames in frames()) {
        let list: Vec<flow::Action> = indices.iter().map(|i| text::action::action(text::Piece::line(ACTIONS[*i])).unwrap()).collect();
        let ordered: Vec<flow::Action> = flow::action_set::ActionSet::of(&list).in_order().cloned().collect();
        let of = |instruction| Rule::new(1, Match::all(), vec![instruction]);
        let written = switch(&[(0, of(flow::Instruction::WriteActions(list)))]);
        let applied = switch(&[(0, of(flow::Instruction::ApplyActions(ordered)))]);
        let packet_ins = |mut all: Vec<(Vec<OutputFrame>, Vec<PacketIn>)>| {
            // The reason tells the two apart (1.4 §7.4.1), and should.
            all.iter_mut().flat_map(|(_, ins)| ins).for_each(|one| one.reason = flow::rule::PacketInReason::Action);
            all
        };
        prop_assert_eq!(packet_ins(behaviour(written, &frames)), packet_ins(behaviour(applied, &frames)));
    }
}

use super::*;
use crate::action::{Action, Instruction};
use crate::field::{Field, TABLE};
use crate::group::{Bucket, Group, GroupType};
use crate::matching::{Match, MatchField};
use crate::meter::{Band, BandKind, Meter, MeterFlags};
use crate::port::PortNo;
use crate::rule::{FlowModCommand, Rule, RuleFlags};
use proptest::prelude::*;

/// Matches of every kind: the protocols come first in the draw, so that what needs them is often there.
fn some_match() -> impl Strategy<Value = Match> {
    let types = prop_oneof![
        Just(0x800u16),
        Just(0x86dd),
        Just(0x806),
        Just(0x8847),
        Just(0x8848),
        Just(0x88e7),
        Just(0x8035),
        any::<u16>()
    ];
    let protos = prop_oneof![Just(6u8), Just(17), Just(132), Just(1), Just(58), any::<u8>()];
    let rest =
        proptest::collection::vec((0..TABLE.len(), any::<u128>(), proptest::option::of(any::<u128>())), 0..8);
    (proptest::option::of(types), protos, prop_oneof![Just(135u8), Just(136)], any::<bool>(), rest).prop_map(
        |(eth_type, proto, nd, full, rest)| {
            let mut made = Match::all();
            for (index, value, mask) in &rest[..rest.len() / 2] {
                let _ = made.push(entry(*index, *value, *mask, full));
            }
            if let Some(eth_type) = eth_type {
                let _ = made.push(MatchField::exact(Field::EthType, eth_type));
                let _ = made.push(MatchField::exact(Field::IpProto, proto));
                let _ = made.push(MatchField::exact(Field::Icmpv6Type, nd));
            }
            for (index, value, mask) in &rest[rest.len() / 2..] {
                let _ = made.push(entry(*index, *value, *mask, full));
            }
            made
        },
    )
}

fn entry(index: usize, value: u128, mask: Option<u128>, full: bool) -> MatchField {
    let row = &TABLE[index];
    let value = value & row.field.full_mask();
    match mask.filter(|_| row.maskable) {
        // Prefixes and full masks, too.
        Some(mask) if mask & 3 == 0 => {
            let bits = u32::from(row.bits);
            let mask =
                row.field.full_mask() & u128::MAX.checked_shl((mask as u32 >> 2) % (bits + 1)).unwrap_or(0);
            MatchField::masked(row.field, value & mask, mask)
        }
        Some(_) if full => MatchField::masked(row.field, value, row.field.full_mask()),
        Some(mask) => {
            let mask = mask & row.field.full_mask();
            MatchField::masked(row.field, value & mask, mask)
        }
        None => MatchField::exact(row.field, value),
    }
}

fn some_action() -> impl Strategy<Value = Action> {
    let port = prop_oneof![1..9u32, 0xffff_fff8..=u32::MAX, any::<u32>()].prop_map(PortNo);
    prop_oneof![
        (port, prop_oneof![Just(0u16), Just(0xffff), any::<u16>()])
            .prop_map(|(port, max_len)| Action::Output { port, max_len }),
        Just(Action::CopyTtlOut),
        Just(Action::CopyTtlIn),
        any::<u8>().prop_map(Action::SetMplsTtl),
        Just(Action::DecMplsTtl),
        any::<u16>().prop_map(Action::PushVlan),
        Just(Action::PopVlan),
        any::<u16>().prop_map(Action::PushMpls),
        any::<u16>().prop_map(Action::PopMpls),
        any::<u32>().prop_map(Action::SetQueue),
        any::<u32>().prop_map(Action::Group),
        any::<u8>().prop_map(Action::SetNwTtl),
        Just(Action::DecNwTtl),
        (0..TABLE.len(), any::<u128>()).prop_map(|(index, value)| {
            let field = TABLE[index].field;
            Action::SetField { field, value: value & field.full_mask() }
        }),
        any::<u16>().prop_map(Action::PushPbb),
        Just(Action::PopPbb),
        (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..5))
            .prop_map(|(experimenter, data)| Action::Experimenter { experimenter, data }),
    ]
}

fn some_instructions() -> impl Strategy<Value = Vec<Instruction>> {
    let actions = || proptest::collection::vec(some_action(), 0..4);
    let each = (
        proptest::option::of(any::<u32>().prop_map(Instruction::Meter)),
        proptest::option::of(actions().prop_map(Instruction::ApplyActions)),
        proptest::option::of(Just(Instruction::ClearActions)),
        proptest::option::of(actions().prop_map(Instruction::WriteActions)),
        proptest::option::of(
            (any::<u64>(), prop_oneof![Just(u64::MAX), any::<u64>()])
                .prop_map(|(metadata, mask)| Instruction::WriteMetadata { metadata, mask }),
        ),
        proptest::option::of(any::<u8>().prop_map(Instruction::GotoTable)),
    );
    each.prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].into_iter().flatten().collect::<Vec<_>>())
        .prop_shuffle()
}

fn some_rule() -> impl Strategy<Value = Rule> {
    let numbers = (any::<u16>(), any::<u64>(), any::<u16>(), any::<u16>(), 0..32u16, any::<u16>());
    (some_match(), some_instructions(), numbers).prop_map(|(matching, instructions, numbers)| {
        let (priority, cookie, idle_timeout, hard_timeout, flags, importance) = numbers;
        let flags = RuleFlags(flags);
        Rule { priority, cookie, idle_timeout, hard_timeout, flags, importance, matching, instructions }
    })
}

fn some_group() -> impl Strategy<Value = Group> {
    let kinds = [GroupType::All, GroupType::Select, GroupType::Indirect, GroupType::FastFailover];
    let ends = || prop_oneof![Just(u32::MAX), any::<u32>()];
    let bucket = (any::<u16>(), ends(), ends(), proptest::collection::vec(some_action(), 0..4));
    (any::<u32>(), 0..4usize, proptest::collection::vec(bucket, 0..4)).prop_map(move |(id, kind, buckets)| {
        let each = buckets.into_iter().map(|(weight, port, watch_group, actions)| Bucket {
            weight,
            watch_port: PortNo(port),
            watch_group,
            actions,
        });
        Group { id, kind: kinds[kind], buckets: each.collect() }
    })
}

fn some_meter() -> impl Strategy<Value = Meter> {
    let kind = prop_oneof![
        Just(BandKind::Drop),
        any::<u8>().prop_map(|prec_level| BandKind::DscpRemark { prec_level }),
        (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..5))
            .prop_map(|(experimenter, data)| BandKind::Experimenter { experimenter, data }),
    ];
    let band = (any::<u32>(), any::<u32>(), kind).prop_map(|(rate, burst_size, kind)| Band {
        rate,
        burst_size,
        kind,
    });
    (prop_oneof![any::<u32>(), 0xffff_fffd..=u32::MAX], 0..16u16, proptest::collection::vec(band, 0..4))
        .prop_map(|(id, flags, bands)| Meter { id, flags: MeterFlags(flags), bands })
}

proptest! {
    #[test]
    fn a_rule_reads_back_as_it_was(table in any::<u8>(), rule in some_rule()) {
        let text = rule::show(table, &rule);
        prop_assert_eq!(rule::parse(&text), Ok((table, rule)), "{}", text);
    }

    #[test]
    fn a_group_reads_back_as_it_was(group in some_group()) {
        let text = group::show(&group);
        prop_assert_eq!(group::parse(&text), Ok(group), "{}", text);
    }

    #[test]
    fn a_meter_reads_back_as_it_was(meter in some_meter()) {
        let text = meter::show(&meter);
        prop_assert_eq!(meter::parse(&text), Ok(meter), "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", cut in any::<prop::sample::Index>(), rule in some_rule()) {
        let mut mangled = rule::show(0, &rule);
        let at = cut.index(mangled.len() + 1);
        mangled.truncate(at);
        mangled.push_str(&text);
        for text in [&text, &mangled] {
            let _ = (rule::parse(text), group::parse(text), meter::parse(text));
        }
    }
}

#[test]
fn actions_of_openflow_1_0_become_those_of_1_3() {
    let shown = |text: &str| rule::parse(text).map(|(_, rule)| action::show_instructions(&rule.instructions));
    let cases = [
        ("tcp actions=mod_tp_src:5,mod_tp_dst:6", "set_field:5->tcp_src,set_field:6->tcp_dst"),
        ("udp6 actions=mod_tp_dst:0x10", "set_field:16->udp_dst"),
        ("ip actions=mod_nw_tos:72,mod_nw_ecn:1", "set_field:18->ip_dscp,set_field:1->nw_ecn"),
        (
            "actions=mod_vlan_vid:4,mod_vlan_pcp:3",
            "push_vlan:0x8100,set_field:0x1004->vlan_vid,set_field:3->vlan_pcp",
        ),
        ("dl_vlan=9 actions=mod_vlan_vid:4", "set_field:0x1004->vlan_vid"),
        ("dl_vlan=9 actions=pop_vlan,mod_vlan_pcp:4", "pop_vlan,push_vlan:0x8100,set_field:4->vlan_pcp"),
        ("actions=enqueue:2:1", "set_queue:1,output:2"),
        ("actions=enqueue(2,1),set_queue:0,output:3", "set_queue:1,output:2,set_queue:0,output:3"),
        (
            "tcp actions=write_actions(mod_tp_dst:6,enqueue:LOCAL:3)",
            "write_actions(set_field:6->tcp_dst,set_queue:3,LOCAL)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
    }
    let refused = [
        ("ip actions=mod_tp_src:5", "mod_tp_src needs tcp, udp or sctp in the match"),
        ("ip actions=mod_nw_tos:5", "nw_ecn"),
        ("actions=mod_vlan_vid:4096", "more than 4095"),
        ("actions=enqueue:2", "enqueue:PORT:QUEUE"),
        ("actions=enqueue:2:1,output:3", "its queue, too"),
    ];
    for (text, why) in refused {
        let said = shown(text).unwrap_err().what;
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[test]
fn addresses_of_arp_have_the_names_of_those_of_ip() {
    let written = rule::parse_match("nw_proto=1,nw_src=10.0.0.0/8,arp,ip_dst=10.0.0.9").unwrap();
    let meant = rule::parse_match("arp,arp_op=1,arp_spa=10.0.0.0/8,arp_tpa=10.0.0.9").unwrap();
    assert!(written.same(&meant), "{written:?}");
    assert!(rule::parse_match("rarp,nw_src=10.0.0.1").is_err());
}

#[test]
fn what_ovs_ofctl_writes_is_understood() {
    let dumped = " cookie=0x1f, duration=12.3s, table=2, n_packets=4, n_bytes=5, idle_timeout=9, \
                  priority=10,icmp6,in_port=LOCAL,icmp_type=135,nd_target=fe80::1 \
                  actions=mod_dl_src:02:00:00:00:00:01,CONTROLLER:128,write_actions(group:7),goto_table:3";
    let (table, rule) = rule::parse(dumped).unwrap();
    let shown = "cookie=0x1f,table=2,priority=10,idle_timeout=9,icmp6,in_port=LOCAL,icmpv6_type=135,nd_target=fe80::1 \
                 actions=set_field:02:00:00:00:00:01->dl_src,CONTROLLER:128,write_actions(group:7),goto_table:3";
    assert_eq!(rule::show(table, &rule), shown);
    let (_, rule) = rule::parse("tp_dst=53,udp,dl_vlan=5,nw_tos=72 actions=drop").unwrap();
    let expected = "udp,udp_dst=53,dl_vlan=5,ip_dscp=18";
    assert!(rule.matching.same(&rule::parse_match(expected).unwrap()), "{rule:?}");
    let select =
        "group_id=4,type=select,bucket=bucket_id:0,weight:3,actions=output:1,output:2,bucket=output:3";
    assert_eq!(group::parse(select).unwrap().buckets.len(), 2);
    assert_eq!(group::parse(select).unwrap().buckets[0].actions.len(), 2);
    let meter = meter::parse("meter=1 kbps burst stats bands= type=drop rate=1000 burst_size=9").unwrap();
    assert_eq!(meter.bands, [Band { rate: 1000, burst_size: 9, kind: BandKind::Drop }]);
}

#[test]
fn fields_that_need_others_may_stand_in_any_order() {
    let one = rule::parse_match("nw_dst=10.1.2.3/8,ip").unwrap();
    assert!(one.same(&rule::parse_match("ip,nw_dst=10.0.0.0/255.0.0.0").unwrap()));
    assert_eq!(one.fields()[0].field, Field::EthType);
}

#[test]
fn an_error_says_where_and_what() {
    let errors = [
        (
            "in_port=1,nw_dst=10.0.0.1 actions=drop",
            11,
            "ipv4_dst: the field's prerequisite does not stand before it",
        ),
        ("in_port=1", 10, "a rule needs actions=… (actions=drop for none)"),
        ("tcp,nw_dst=10.0.0 actions=drop", 12, "`10.0.0` is not an IPv4 address"),
        ("actions=output:1,resubmit(,2)", 18, "`resubmit(…)` is not an action of OpenFlow 1.3 or 1.4"),
        ("priority=65536 actions=drop", 10, "65536 is more than 65535"),
        ("actions=output:1,drop", 18, "drop stands alone: to do nothing is to drop"),
        ("dl_type=0x800/0xff actions=drop", 15, "dl_type takes no mask"),
        (
            "actions=output:1,clear_actions,output:2",
            32,
            "actions to apply stand together, before or behind other instructions",
        ),
        ("ip,nw_ttl=3 actions=drop", 4, "OpenFlow 1.3 and 1.4 have no field nw_ttl"),
        ("in_port=1,in_port=2 actions=drop", 11, "in_port: the field stands there twice"),
        (
            "tcp,tcp_dst=80,colour=red actions=drop",
            16,
            "`colour=red` is neither a field nor a property of a rule",
        ),
        ("group_id=1,type=all", 1, "`group_id=1` begins a group, and a rule belongs here"),
        ("meter=1,kbps", 1, "`meter=1` begins a meter, and a rule belongs here"),
        ("actions=set_field:1->metadat", 22, "OpenFlow 1.3 and 1.4 have no field metadat"),
        ("cookie=1/1 actions=drop", 10, "a rule that is added has a cookie without a mask"),
    ];
    for (text, column, what) in errors {
        assert_eq!(rule::parse(text), Err(TextError { column, what: what.to_owned() }), "{text}");
    }
}

#[test]
fn deletes_have_filters_and_need_no_actions() {
    let change = rule::flow_mod(FlowModCommand::Delete, "cookie=0x5/-1,out_port=3,out_group=4,tcp").unwrap();
    assert_eq!((change.table, change.rule.cookie, change.cookie_mask), (255, 5, u64::MAX));
    assert_eq!((change.out_port, change.out_group), (PortNo(3), 4));
    assert_eq!(rule::flow_mod(FlowModCommand::Delete, "").unwrap().rule.matching, Match::all());
}

#[test]
fn a_change_refuses_the_words_that_it_would_not_look_at() {
    use FlowModCommand::*;
    let refused = [
        (Delete, "table=0,priority=0", 9),
        (Delete, "table=0,actions=FLOOD", 17),
        (DeleteStrict, "table=0,priority=0,actions=FLOOD", 28),
        (Delete, "cookie=7", 1),
        (DeleteStrict, "priority=3,cookie=7", 12),
        (Delete, "tcp,idle_timeout=5", 5),
        (Delete, "send_flow_rem", 1),
        (Modify, "priority=5,tcp actions=output:1", 1),
        (Modify, "tcp,cookie=7 actions=output:1", 5),
        (Modify, "out_port=3 actions=output:1", 1),
        (ModifyStrict, "priority=5,hard_timeout=3 actions=output:1", 12),
        (Add, "out_group=3 actions=output:1", 1),
    ];
    for (command, text, column) in refused {
        let error = rule::flow_mod(command, text).expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
    }
    let taken = [
        (DeleteStrict, "table=0,priority=0"),
        (Delete, "table=0,n_packets=4,tcp,cookie=7/-1"),
        (ModifyStrict, "priority=5,reset_counts,cookie=7/0xff,tcp actions=output:1"),
        (Add, "cookie=7,idle_timeout=5,check_overlap,priority=3 actions=drop"),
    ];
    for (command, text) in taken {
        assert!(rule::flow_mod(command, text).is_ok(), "{text}");
    }
}

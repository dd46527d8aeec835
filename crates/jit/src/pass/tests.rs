//! Passes on text: rules in, IR out.

use super::{PASSES, run};
use crate::ir::{End, Ir, Op};
use crate::lower;
use crate::tally::Slots;
use crate::verify;
use flow::Pipeline;
use flow::action::Action;
use flow::rule::FlowModCommand;
use flow::text::rule::flow_mod;

fn lowered(rules: &str) -> Ir {
    let mut pipeline = Pipeline::default();
    for line in rules.lines().map(str::trim).filter(|line| !line.is_empty()) {
        pipeline.flow_mod(0, &flow_mod(FlowModCommand::Add, line).unwrap()).unwrap();
    }
    lower::pipeline(&pipeline, &mut Slots::default())
}

/// The IR after all passes up to this one.
fn after(name: &str, rules: &str) -> String {
    let mut ir = lowered(rules);
    for pass in PASSES {
        (pass.run)(&mut ir);
        verify::lowered(&ir).unwrap();
        if pass.name == name {
            return ir.to_string();
        }
    }
    panic!("no pass {name}");
}

fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

fn is(name: &str, rules: &str, wanted: &str) {
    assert_eq!(lines(&after(name, rules)), lines(wanted));
}

#[test]
fn instructions_are_lowered_in_the_order_of_the_standard() {
    let ir = lowered(
        "priority=3,ip actions=write_metadata:0x5/0xf,goto_table:2,set_field:02:00:00:00:00:01->eth_dst,set_queue:3,output:2",
    );
    let wanted =
        "table 0\n3: ip -> set_field:02:00:00:00:00:01->dl_dst; queue:3; output:2; metadata=0x5/0xf; goto 2";
    assert_eq!(lines(&ir.to_string()), lines(wanted));
    let ir = lowered("priority=3 actions=output:2,CONTROLLER:60");
    assert_eq!(lines(&ir.to_string()), lines("table 0\n3: any -> interpret (controller)"));
}

#[test]
fn shadowed_rules_are_left_out_and_others_stay() {
    let rules = "priority=9,ip,nw_dst=10.0.0.0/8 actions=output:1
        priority=8,ip,nw_dst=10.1.0.0/16 actions=output:2
        priority=7,tcp,nw_dst=10.1.2.3 actions=output:3
        priority=6,ip,nw_dst=11.0.0.0/8 actions=output:4
        priority=5 actions=drop
        priority=4,arp actions=output:1";
    let wanted = "table 0
        9: ip,nw_dst=10.0.0.0/8 -> output:1; finish
        6: ip,nw_dst=11.0.0.0/8 -> output:4; finish
        5: any -> finish";
    is("shadowed", rules, wanted);
}

#[test]
fn tables_that_no_frame_comes_to_are_left_out() {
    let rules = "table=0,in_port=1 actions=goto_table:2
        table=1 actions=output:1
        table=3 actions=output:3";
    is("unreachable", rules, "table 0\n32768: in_port=1 -> goto 2\ntable 2");
}

#[test]
fn a_set_that_is_known_is_carried_out_where_the_rule_ends() {
    let rules = "table=0,priority=2,in_port=1 actions=write_actions(output:2,push_vlan:0x8100),goto_table:1
        table=0,priority=1 actions=write_actions(output:3)
        table=1,priority=2,ip actions=clear_actions
        table=1,priority=1 actions=write_actions(output:9)";
    let wanted = "table 0
        2: in_port=1 -> set:1; goto 1
        1: any -> output:3; done
        table 1
        2: ip -> done
        1: any -> push_vlan:0x8100; output:9; done
        set 1: push_vlan:0x8100; output:2; done
        set 2: output:3; done
        set 3: push_vlan:0x8100; output:9; done";
    is("sets", rules, wanted);
}

#[test]
fn sets_that_are_not_known_are_rows() {
    let rules = "table=0,priority=2,in_port=1 actions=write_actions(output:2),goto_table:1
        table=0,priority=1 actions=write_actions(output:3),goto_table:1
        table=1,priority=1 actions=write_actions(set_queue:7),goto_table:2
        table=2 actions=drop";
    let wanted = "table 0
        2: in_port=1 -> set:1; goto 1
        1: any -> set:2; goto 1
        table 1
        1: any -> set:map0; goto 2
        table 2
        32768: any -> finish
        set 1: output:2; done
        set 2: output:3; done
        set 3: queue:7; output:2; done
        set 4: queue:7; output:3; done
        map 0: [0, 3, 4, 0, 0]";
    is("sets", rules, wanted);
}

#[test]
fn a_ttl_is_counted_down_first_and_what_nobody_sees_is_left_out() {
    let rules = "priority=2,ip actions=set_field:02:00:00:00:00:01->eth_dst,set_field:02:00:00:00:00:02->eth_src,dec_ttl,output:1
        priority=1 actions=output:2,push_vlan:0x8100,set_queue:4";
    let wanted = "table 0
        2: ip -> dec_ttl; set_field:02:00:00:00:00:01->dl_dst; set_field:02:00:00:00:00:02->dl_src; output:1; done
        1: any -> output:2; done";
    is("dead", rules, wanted);
}

#[test]
fn a_rule_whose_next_table_always_exits_does_so_itself() {
    let rules = "table=0,in_port=1 actions=push_vlan:0x8100,goto_table:1
        table=1,priority=1,ip actions=group:1
        table=1,priority=0 actions=CONTROLLER:60";
    let mut pipeline = Pipeline::default();
    let group = flow::text::group::parse("group_id=1,type=all").unwrap();
    let command = flow::numbered::ModCommand::Add;
    pipeline.group_mod(0, &flow::group::GroupMod { command, group }).unwrap();
    for line in rules.lines() {
        pipeline.flow_mod(0, &flow_mod(FlowModCommand::Add, line.trim()).unwrap()).unwrap();
    }
    let mut ir = lower::pipeline(&pipeline, &mut Slots::default());
    run(&mut ir, |_, _| {}).unwrap();
    assert_eq!(ir.tables[0].rules[0].body.end.to_string(), "interpret (controller)");
    assert!(!ir.restores);
}

#[test]
fn a_frame_is_put_back_only_where_it_may_have_been_changed_before_an_exit() {
    let restores = |rules: &str| {
        let mut ir = lowered(rules);
        run(&mut ir, |_, _| {}).unwrap();
        ir.restores
    };
    assert!(!restores("ip actions=set_field:02:00:00:00:00:01->eth_dst,dec_ttl,output:1"));
    assert!(restores("ip actions=set_field:10.0.0.1->ip_dst,dec_ttl,output:1"));
    assert!(restores(
        "table=0 actions=push_vlan:0x8100,goto_table:1\ntable=1,in_port=1 actions=CONTROLLER:60"
    ));
    assert!(!restores("table=0 actions=goto_table:1\ntable=1,in_port=1 actions=CONTROLLER:60"));
}

#[test]
fn the_verifier_finds_what_a_pass_may_break() {
    let sound = || {
        let mut ir = lowered(
            "table=0,priority=2,in_port=1 actions=push_vlan:0x8100,goto_table:1
             table=0,priority=1 actions=write_actions(output:2),goto_table:1
             table=1,priority=1 actions=CONTROLLER:60
             table=1,priority=2,ip actions=output:1",
        );
        run(&mut ir, |_, _| {}).unwrap();
        ir
    };
    let broken = |spoil: fn(&mut Ir)| {
        let mut ir = sound();
        spoil(&mut ir);
        verify::ready(&ir).unwrap_err().what
    };
    assert_eq!(broken(|ir| ir.tables[0].rules.swap(0, 1)), "it stands behind a later rule");
    assert_eq!(broken(|ir| ir.restores = false), "a frame is changed before an exit");
    assert_eq!(broken(|ir| ir.tables[1].rules[0].body.end = End::Goto(1)), "it leads backwards");
    assert_eq!(broken(|ir| ir.tables[1].rules[0].body.end = End::Goto(9)), "the next table was left out");
    assert_eq!(
        broken(|ir| ir.tables[0].rules[0].tests[0].mask = 0),
        "a test has bits outside of its field or its mask, or asks nothing"
    );
    assert_eq!(
        broken(|ir| ir.tables[0].rules[0].body.ops.push(Op::Clear)),
        "the action set was not numbered"
    );
    assert_eq!(broken(|ir| ir.tables[0].rules[0].body.ops.push(Op::SetTo(77))), "no such action set");
    assert_eq!(broken(|ir| ir.tables[0].rules[0].body.ops.push(Op::SetMap(0))), "no such row of action sets");
    assert_eq!(
        broken(|ir| ir.tables[0].rules[0].body.ops.push(Op::Edit(Action::Group(1)))),
        "an action that changes no frame is taken for an edit"
    );
    let exit_late = |ir: &mut Ir| ir.tables[0].rules[0].body.end = End::Exit(crate::ir::Exit::Meter);
    assert_eq!(broken(exit_late), "something is done before an exit");
}

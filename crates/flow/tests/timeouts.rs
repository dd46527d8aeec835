//! Timeouts by the index of deadlines against a walk over all rules: whatever is added, changed, deleted, evicted and hit,
//! each rule goes away at the nanosecond at which the walk says so.

use flow::action::{Action, Instruction};
use flow::entry::SECOND;
use flow::event::Event;
use flow::field::Field;
use flow::interpret::{InputFrame, Verdict, receive};
use flow::matching::{Match, MatchField};
use flow::pipeline::TableMod;
use flow::port::Port;
use flow::rule::{ALL_TABLES, FlowMod, FlowModCommand, RemovedReason, Rule, RuleFlags};
use flow::table::{EvictionFlags, TableFlags};
use flow::{Pipeline, PortNo};
use proptest::prelude::*;

/// What happens to the switch.
#[derive(Debug, Clone)]
enum Step {
    Change(FlowMod),
    /// A frame by this port, whose thread read the clock so many nanoseconds ago.
    Frame(u32, u64),
    /// So much time.
    Time(u64),
    /// Until the time at which the switch wants to look, and so many nanoseconds more or, when negative, less.
    Until(i64),
    /// All changes in one bundle: tables are copies then.
    Bundle(Vec<FlowMod>),
}

fn some_change() -> impl Strategy<Value = FlowMod> {
    let command = prop_oneof![
        6 => Just(FlowModCommand::Add),
        1 => Just(FlowModCommand::Modify),
        1 => Just(FlowModCommand::ModifyStrict),
        1 => Just(FlowModCommand::Delete),
        1 => Just(FlowModCommand::DeleteStrict),
    ];
    let rule = (1..4u128, 0..3u16, 0..5u16, 0..5u16, any::<bool>());
    (command, 0..2u8, rule).prop_map(|(command, table, (port, priority, idle, hard, reset))| {
        let matching = Match::new([MatchField::exact(Field::InPort, port)]).unwrap();
        // Table 1 is reached through every rule of table 0.
        let instructions = match table {
            0 => vec![Instruction::GotoTable(1)],
            _ => vec![Instruction::ApplyActions(vec![Action::DecNwTtl])],
        };
        let mut rule = Rule::new(priority, matching, instructions);
        (rule.idle_timeout, rule.hard_timeout) = (idle, hard);
        rule.flags = if reset { RuleFlags::RESET_COUNTS } else { RuleFlags::default() };
        FlowMod::new(command, table, rule)
    })
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => some_change().prop_map(Step::Change),
        4 => (1..4u32, prop_oneof![Just(0), 0..2 * SECOND]).prop_map(|(port, ago)| Step::Frame(port, ago)),
        2 => (0..2 * SECOND).prop_map(Step::Time),
        1 => (0..9u64).prop_map(|seconds| Step::Time(seconds * SECOND)),
        3 => (-1..=1i64).prop_map(Step::Until),
        1 => proptest::collection::vec(some_change(), 0..4).prop_map(Step::Bundle),
    ]
}

/// A change that lets a table evict.
fn evicting(table: u8, flags: EvictionFlags) -> TableMod {
    TableMod { table, flags: Some(TableFlags::EVICTION), eviction_flags: Some(flags), ..TableMod::default() }
}

/// Six rules a table hold at most, and a full one evicts, now by what remains of a life and now by age.
fn switch(lifetime: bool) -> Pipeline {
    let mut pipeline = Pipeline::new(6);
    (1..4).for_each(|port| pipeline.add_port(Port::new(PortNo(port), "p", [2, 0, 0, 0, 0, port as u8])));
    let eviction_flags = if lifetime { EvictionFlags::LIFETIME } else { EvictionFlags::default() };
    pipeline.table_mod(&evicting(ALL_TABLES, eviction_flags)).unwrap();
    pipeline
}

/// The walk: every rule with a timeout by table and place, when it goes, and why.
fn walk(pipeline: &Pipeline) -> Vec<(u64, (u8, Rule, RemovedReason))> {
    let rules = pipeline.tables().flat_map(|table| table.rules().map(|(_, entry)| (table.number, entry)));
    let timed = rules.filter_map(|(table, entry)| {
        let (at, reason) = entry.deadline()?;
        Some((at, (table, (*entry.rule).clone(), reason)))
    });
    timed.collect()
}

fn removed(events: Vec<Event>) -> Vec<(u8, Rule, RemovedReason)> {
    let one = |event| match event {
        Event::RuleRemoved(one) => (one.table, (*one.rule).clone(), one.reason),
        other => panic!("{other:?}"),
    };
    events.into_iter().map(one).collect()
}

/// What the loop of the switch does, and what the walk says of it.
fn turn(pipeline: &mut Pipeline, now: u64) -> Result<(), TestCaseError> {
    let all = walk(pipeline);
    let (next, true_next) = (pipeline.next_deadline(), all.iter().map(|(at, _)| *at).min());
    prop_assert_eq!(next.is_some(), true_next.is_some());
    prop_assert!(next <= true_next, "{next:?} is too late for {true_next:?}");
    let over: Vec<_> = all.into_iter().filter(|(at, _)| *at <= now).map(|(_, what)| what).collect();
    prop_assert_eq!(pipeline.is_any_over(now), !over.is_empty());
    prop_assert!(!over.is_empty() || pipeline.next_deadline().is_none_or(|at| at > now), "it was filed anew");
    if next.is_some_and(|at| at <= now) {
        prop_assert_eq!(removed(pipeline.expire(now)), over);
    } else {
        prop_assert!(over.is_empty());
    }
    prop_assert!(pipeline.next_deadline().is_none_or(|at| at > now), "it would be asked again at once");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn rules_go_when_the_walk_says_so(lifetime in any::<bool>(), steps in proptest::collection::vec(some_step(), 1..60)) {
        let mut pipeline = switch(lifetime);
        let mut verdict = Verdict::default();
        let mut now = 5 * SECOND;
        for step in steps {
            match step {
                Step::Change(change) => drop(pipeline.flow_mod(now, &change)),
                Step::Frame(port, ago) => receive(&mut pipeline, now - ago, InputFrame::new(PortNo(port), &[0; 60]), &mut verdict),
                Step::Time(time) => now += time,
                Step::Until(offset) => {
                    let next = pipeline.next_deadline().unwrap_or(now);
                    now = now.max(next.saturating_add_signed(offset));
                }
                Step::Bundle(changes) => {
                    let changes: Vec<_> = changes.into_iter().map(flow::pipeline::Change::Flow).collect();
                    drop(pipeline.bundle(now, &changes));
                }
            }
            turn(&mut pipeline, now)?;
        }
        // Nothing but rules without a timeout outlives all time.
        drop(pipeline.expire(u64::MAX));
        prop_assert_eq!((pipeline.next_deadline(), walk(&pipeline).len()), (None, 0));
    }
}

#[test]
fn a_rule_that_is_used_stays_and_is_looked_at_once_in_its_timeout() {
    let mut pipeline = switch(false);
    let matching = Match::new([MatchField::exact(Field::InPort, 1u8)]).unwrap();
    let rule = Rule { idle_timeout: 2, ..Rule::new(1, matching, vec![]) };
    pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::Add, 0, rule)).unwrap();
    let mut verdict = Verdict::default();
    let mut looked = 0;
    for tenth in 0..=100 {
        let now = tenth * SECOND / 10;
        receive(&mut pipeline, now, InputFrame::new(PortNo(1), &[0; 60]), &mut verdict);
        if pipeline.next_deadline().is_some_and(|at| at <= now) {
            assert!(pipeline.expire(now).is_empty());
            looked += 1;
        }
    }
    assert_eq!(looked, 5);
    assert_eq!(pipeline.next_deadline(), Some(12 * SECOND));
    assert_eq!(pipeline.expire(12 * SECOND - 1), vec![]);
    assert_eq!(pipeline.expire(12 * SECOND).len(), 1);
}

#[test]
fn a_frame_of_a_slower_clock_shortens_no_life() {
    let mut pipeline = switch(false);
    let matching = Match::new([MatchField::exact(Field::InPort, 1u8)]).unwrap();
    let rule = Rule { idle_timeout: 2, ..Rule::new(1, matching, vec![]) };
    pipeline.flow_mod(SECOND, &FlowMod::new(FlowModCommand::Add, 0, rule)).unwrap();
    receive(&mut pipeline, SECOND / 2, InputFrame::new(PortNo(1), &[0; 60]), &mut Verdict::default());
    assert_eq!(pipeline.expire(3 * SECOND - 1), vec![]);
    assert_eq!(pipeline.expire(3 * SECOND).len(), 1);
}

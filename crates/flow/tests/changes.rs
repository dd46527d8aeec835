//! Changes of rules against a brute-force reading: every match is the set of the frames that it means, in a universe so
//! small that the set is one number of 64 bits.

use flow::action::{Action, Instruction};
use flow::error::{Error, FlowModFailed};
use flow::event::Event;
use flow::field::Field;
use flow::group::{Bucket, Group, GroupMod, GroupType};
use flow::matching::{Match, MatchField};
use flow::numbered::ModCommand;
use flow::rule::{ANY_GROUP, FlowMod, FlowModCommand, RemovedReason, Rule, RuleFlags};
use flow::{Pipeline, PortNo};
use proptest::prelude::*;

/// The universe: in_port 1 … 4 (no rule asks for 4), two bits of metadata, two bits of eth_dst.
const FRAMES: u32 = 64;

fn value_in(frame: u32, field: Field) -> Option<u128> {
    match field {
        Field::InPort => Some(u128::from(frame & 3) + 1),
        Field::Metadata => Some(u128::from(frame >> 2 & 3)),
        Field::EthDst => Some(u128::from(frame >> 4 & 3)),
        _ => None,
    }
}

/// The frames of a match, one bit each.
fn meant(matching: &Match) -> u64 {
    let is_meant = |frame: &u32| {
        matching.fields().iter().all(|f| value_in(*frame, f.field).unwrap() & f.bits() == f.value)
    };
    (0..FRAMES).filter(is_meant).fold(0, |set, frame| set | 1 << frame)
}

fn some_match() -> impl Strategy<Value = Match> {
    let masked = |field| {
        (0..4u128, 0..4u128).prop_map(move |(value, mask)| MatchField::masked(field, value & mask, mask))
    };
    let port = proptest::option::of((1..4u128).prop_map(|port| MatchField::exact(Field::InPort, port)));
    let metadata = proptest::option::of(masked(Field::Metadata));
    let dst = proptest::option::of(masked(Field::EthDst));
    // The two orders spell the same match.
    (port, metadata, dst, any::<bool>()).prop_map(|(a, b, c, turned)| {
        let mut fields: Vec<MatchField> = [a, b, c].into_iter().flatten().collect();
        if turned {
            fields.reverse();
        }
        Match::new(fields).unwrap()
    })
}

fn some_actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        (1..3u32).prop_map(|port| Action::Output { port: PortNo(port), max_len: 0 }),
        (1..3u32).prop_map(Action::Group),
        Just(Action::DecNwTtl),
    ];
    proptest::collection::vec(one, 0..3)
}

fn some_instructions() -> impl Strategy<Value = Vec<Instruction>> {
    (proptest::option::of(some_actions()), proptest::option::of(some_actions())).prop_map(|(apply, write)| {
        let apply = apply.map(Instruction::ApplyActions);
        apply.into_iter().chain(write.map(Instruction::WriteActions)).collect()
    })
}

fn some_change() -> impl Strategy<Value = FlowMod> {
    let command = prop_oneof![
        3 => Just(FlowModCommand::Add),
        1 => Just(FlowModCommand::Modify),
        1 => Just(FlowModCommand::ModifyStrict),
        1 => Just(FlowModCommand::Delete),
        1 => Just(FlowModCommand::DeleteStrict),
    ];
    let table = prop_oneof![4 => 0..2u8, 1 => Just(255u8)];
    let filters = (
        0..4u64,
        prop_oneof![2 => Just(u32::MAX), 1 => 1..3u32],
        prop_oneof![2 => Just(ANY_GROUP), 1 => 1..3u32],
    );
    let rule = (some_match(), some_instructions(), 0..3u16, 0..4u64, 0..32u16);
    (command, table, rule, filters).prop_map(|(command, table, rule, (cookie_mask, out_port, out_group))| {
        let (matching, instructions, priority, cookie, flags) = rule;
        let mut rule = Rule::new(priority, matching, instructions);
        (rule.cookie, rule.flags) = (cookie, RuleFlags(flags));
        FlowMod { cookie_mask, out_port: PortNo(out_port), out_group, ..FlowMod::new(command, table, rule) }
    })
}

/// What the standard says, read literally.
#[derive(Default)]
struct Reading {
    /// Table, rule, frames counted, and when the rule first got its place.
    rules: Vec<(u8, Rule, u64, usize)>,
    removed: Vec<(u8, Rule, u64)>,
    clock: usize,
}

impl Reading {
    fn named(actions: &[Instruction], wanted: impl Fn(&Action) -> bool) -> bool {
        actions.iter().any(|instruction| instruction.actions().iter().any(&wanted))
    }

    fn filters(change: &FlowMod, table: u8, rule: &Rule) -> bool {
        let is_delete = matches!(change.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        let strict = matches!(change.command, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict);
        let (wide, own) = (meant(&change.rule.matching), meant(&rule.matching));
        let port = change.out_port;
        let sends = |action: &Action| matches!(action, Action::Output { port: to, .. } if *to == port);
        let groups = |action: &Action| matches!(action, Action::Group(to) if *to == change.out_group);
        (change.table == 255 || change.table == table)
            && (if strict { wide == own && rule.priority == change.rule.priority } else { own & !wide == 0 })
            && rule.cookie & change.cookie_mask == change.rule.cookie & change.cookie_mask
            && (!is_delete || port == PortNo::ANY || Reading::named(&rule.instructions, sends))
            && (!is_delete || change.out_group == ANY_GROUP || Reading::named(&rule.instructions, groups))
    }

    fn apply(&mut self, change: &FlowMod) -> Result<(), Error> {
        self.removed.clear();
        self.clock += 1;
        match change.command {
            _ if change.table == 255 && (change.command as u8) < FlowModCommand::Delete as u8 => {
                return Err(FlowModFailed::BadTableId.into());
            }
            FlowModCommand::Add => self.add(change)?,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                for (table, rule, frames, _) in &mut self.rules {
                    if Reading::filters(change, *table, rule) {
                        rule.instructions = change.rule.instructions.clone();
                        *frames = if change.rule.flags.has(RuleFlags::RESET_COUNTS) { 0 } else { *frames };
                    }
                }
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                let is_meant =
                    |(table, rule, _, _): &(u8, Rule, u64, usize)| Reading::filters(change, *table, rule);
                let gone: Vec<_> = self.rules.iter().filter(|r| is_meant(r)).cloned().collect();
                self.rules.retain(|r| !is_meant(r));
                self.removed =
                    gone.into_iter().map(|(table, rule, frames, _)| (table, rule, frames)).collect();
            }
        }
        Ok(())
    }

    fn add(&mut self, change: &FlowMod) -> Result<(), Error> {
        let new = &change.rule;
        let beside = |table: u8, rule: &Rule| table == change.table && rule.priority == new.priority;
        let frames = meant(&new.matching);
        let overlaps = |r: &&(u8, Rule, u64, usize)| beside(r.0, &r.1) && meant(&r.1.matching) & frames != 0;
        if new.flags.has(RuleFlags::CHECK_OVERLAP) && self.rules.iter().any(|r| overlaps(&r)) {
            return Err(FlowModFailed::Overlap.into());
        }
        match self.rules.iter_mut().find(|r| beside(r.0, &r.1) && meant(&r.1.matching) == frames) {
            Some(old) => {
                old.1 = new.clone();
                old.2 = if new.flags.has(RuleFlags::RESET_COUNTS) { 0 } else { old.2 };
            }
            None => self.rules.push((change.table, new.clone(), 0, self.clock)),
        }
        Ok(())
    }

    /// The rule for a frame: the highest priority, then the one that came first.
    fn lookup(&self, table: u8, frame: u32) -> Option<&Rule> {
        let matching = self.rules.iter().filter(|r| r.0 == table && meant(&r.1.matching) & 1 << frame != 0);
        matching.max_by_key(|r| (r.1.priority, std::cmp::Reverse(r.3))).map(|r| &r.1)
    }
}

fn pipeline_with_groups() -> Pipeline {
    let mut pipeline = Pipeline::default();
    for id in 1..3 {
        let group = Group { id, kind: GroupType::All, buckets: vec![Bucket::new(vec![])] };
        pipeline.group_mod(0, &GroupMod { command: ModCommand::Add, group }).unwrap();
    }
    pipeline
}

fn removed(events: &[Event]) -> Vec<(u8, Rule, u64)> {
    let mut gone = vec![];
    for event in events {
        if let Event::RuleRemoved(one) = event {
            assert_eq!(one.reason, RemovedReason::Delete);
            gone.push((one.table, (*one.rule).clone(), one.frames));
        }
    }
    gone
}

fn sorted(mut rules: Vec<(u8, Rule, u64)>) -> Vec<(u8, Rule, u64)> {
    rules.sort_by_key(|(table, rule, _)| (*table, rule.priority, meant(&rule.matching)));
    rules
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_change_does_what_the_standard_says_literally(changes in proptest::collection::vec(some_change(), 1..40)) {
        let mut pipeline = pipeline_with_groups();
        let mut reading = Reading::default();
        for change in &changes {
            let before: Vec<_> = pipeline.table(0).unwrap().rules().map(|(_, e)| e.rule.clone()).collect();
            let result = pipeline.flow_mod(7, change);
            let expected = reading.apply(change);
            prop_assert_eq!(result.as_ref().err(), expected.as_ref().err(), "{:?}", change);
            match result {
                Ok(events) => prop_assert_eq!(sorted(removed(&events)), sorted(reading.removed.clone())),
                Err(_) => {
                    let after: Vec<_> = pipeline.table(0).unwrap().rules().map(|(_, e)| e.rule.clone()).collect();
                    prop_assert_eq!(before, after, "a refused change changed something");
                }
            }
            let held = pipeline.tables().flat_map(|t| t.rules().map(|(_, e)| (t.number, (*e.rule).clone(), e.frames)));
            let expected = reading.rules.iter().map(|(table, rule, frames, _)| (*table, rule.clone(), *frames));
            prop_assert_eq!(sorted(held.collect()), sorted(expected.collect()));
            for frame in 0..FRAMES {
                let table = pipeline.table(0).unwrap();
                let place = table.lookup(|field| value_in(frame, field));
                let found = place.map(|place| &*table.get(place).unwrap().rule);
                prop_assert_eq!(found, reading.lookup(0, frame));
            }
        }
    }

    #[test]
    fn inclusion_identity_and_overlap_are_those_of_sets(a in some_match(), b in some_match()) {
        prop_assert_eq!(a.is_within(&b), meant(&a) & !meant(&b) == 0);
        prop_assert_eq!(a.same(&b), meant(&a) == meant(&b));
        prop_assert_eq!(a.overlaps(&b), meant(&a) & meant(&b) != 0);
    }

    #[test]
    fn a_bundle_is_all_or_nothing(changes in proptest::collection::vec(some_change(), 1..20)) {
        let changes: Vec<_> = changes.into_iter().map(flow::pipeline::Change::Flow).collect();
        let mut one_by_one = pipeline_with_groups();
        let failure = changes.iter().enumerate().find_map(|(i, c)| one_by_one.apply(3, c).err().map(|e| (i, e)));
        let mut bundled = pipeline_with_groups();
        let rules = |p: &Pipeline| -> Vec<_> {
            p.tables().flat_map(|t| t.rules().map(|(place, e)| (t.number, place, e.rule.clone())).collect::<Vec<_>>()).collect()
        };
        match (bundled.bundle(3, &changes), failure) {
            (Ok(_), None) => prop_assert_eq!(rules(&bundled), rules(&one_by_one)),
            (Err(error), Some(failure)) => {
                prop_assert_eq!(error, failure);
                prop_assert!(rules(&bundled).is_empty());
            }
            (left, right) => prop_assert!(false, "{left:?} {right:?}"),
        }
    }
}

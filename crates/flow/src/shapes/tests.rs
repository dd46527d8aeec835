//! The index against the walk, and the work of both.

use super::*;
use crate::event::Event;
use crate::group::{Group, GroupMod, GroupType};
use crate::matching::MatchField;
use crate::meter::{Meter, MeterFlags, MeterMod};
use crate::numbered::ModCommand;
use crate::pipeline::Pipeline;
use crate::rule::{ALL_TABLES, FlowMod, FlowModCommand, RemovedReason, RuleFlags};
use crate::table::Table;
use proptest::prelude::*;

/// The slow twin of [`Shapes::overlap`].
fn overlap_by_walk(table: &Table, rule: &Rule) -> bool {
    let beside = |entry: &Entry| entry.rule.priority == rule.priority;
    table.rules().any(|(_, entry)| beside(entry) && entry.rule.matching.overlaps(&rule.matching))
}

/// The slow twin of [`Shapes::select`] and of [`Shapes::find`].
fn select_by_walk(table: &Table, selection: &Selection<'_>) -> Vec<RulePosition> {
    table.rules().filter(|(_, entry)| selection.takes(&entry.rule)).map(|(place, _)| place).collect()
}

fn some_match() -> impl Strategy<Value = Match> {
    let masked = |field| {
        let mask = prop_oneof![Just(0u128), Just(1), Just(2), Just(3), Just(field_mask(field))];
        proptest::option::of((0..4u128, mask))
            .prop_map(move |some| some.map(|(value, mask)| MatchField::masked(field, value & mask, mask)))
    };
    let port = proptest::option::of(1..4u128);
    let port = port.prop_map(|port| port.map(|port| MatchField::exact(Field::InPort, port)));
    let rest = (masked(Field::Metadata), masked(Field::EthDst), masked(Field::TunnelId), any::<bool>());
    (port, rest).prop_map(|(a, (b, c, d, turned))| {
        let mut fields: Vec<MatchField> = [a, b, c, d].into_iter().flatten().collect();
        if turned {
            fields.reverse();
        }
        Match::new(fields).unwrap()
    })
}

fn field_mask(field: Field) -> Value {
    field.full_mask()
}

fn some_rule() -> impl Strategy<Value = Rule> {
    let actions = proptest::collection::vec(
        prop_oneof![
            (1..4u32).prop_map(|port| Action::Output { port: PortNo(port), max_len: 0 }),
            (1..4u32).prop_map(Action::Group),
        ],
        0..3,
    );
    let meter = proptest::option::of((1..4u32).prop_map(Instruction::Meter));
    let instructions = (meter, actions).prop_map(|(meter, actions)| {
        meter.into_iter().chain([Instruction::ApplyActions(actions)]).collect::<Vec<_>>()
    });
    (some_match(), instructions, 0..3u16, 0..8u64).prop_map(|(matching, instructions, priority, cookie)| {
        Rule { cookie, ..Rule::new(priority, matching, instructions) }
    })
}

#[derive(Debug, Clone)]
enum Step {
    Add(Rule),
    /// The rule at this place of so many goes.
    Remove(prop::sample::Index),
    Modify(FlowMod, bool),
    /// The selection of this delete, with what the rules must refer to, asked this many times.
    Select(FlowMod, bool, Refers, usize),
}

fn some_refers() -> impl Strategy<Value = Refers> {
    let numbers =
        || prop_oneof![2 => (1..4u32).prop_map(|id| (id, id)), 1 => Just((0, u32::MAX)), 1 => Just((2, 3))];
    prop_oneof![
        2 => Just(Refers::Anywhere),
        1 => numbers().prop_map(|(from, to)| Refers::ToGroups(from, to)),
        1 => numbers().prop_map(|(from, to)| Refers::ToMeters(from, to)),
    ]
}

fn some_step() -> impl Strategy<Value = Step> {
    let filters = (
        prop_oneof![4 => Just(0u64), 1 => Just(u64::MAX), 1 => Just(!1), 1 => Just(2)],
        prop_oneof![4 => Just(u32::MAX), 1 => 1..4u32],
        prop_oneof![4 => Just(ANY_GROUP), 1 => 1..4u32],
    );
    let change = (some_rule(), filters).prop_map(|(rule, (cookie_mask, out_port, out_group))| FlowMod {
        cookie_mask,
        out_port: PortNo(out_port),
        out_group,
        ..FlowMod::new(FlowModCommand::Delete, 0, rule)
    });
    let change = change.boxed();
    prop_oneof![
        8 => some_rule().prop_map(Step::Add),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (change.clone(), any::<bool>()).prop_map(|(change, strict)| Step::Modify(change, strict)),
        4 => (change, any::<bool>(), some_refers(), 1..4usize)
            .prop_map(|(change, strict, refers, times)| Step::Select(change, strict, refers, times)),
    ]
}

/// Whether every key and column holds exactly the rules that there are.
fn is_whole(table: &Table) -> bool {
    let shapes = &table.shapes;
    let places: BTreeSet<RulePosition> = table.rules().map(|(place, _)| place).collect();
    let filed: BTreeSet<RulePosition> = shapes.shapes.values().flat_map(Shape::places).collect();
    let sizes = |shape: &Shape| shape.keys.iter().all(|keys| keys.places.len() == shape.len());
    let column = |(column, kept): (&Column, &Option<BTreeSet<(u64, RulePosition)>>)| {
        let is_one = |(place, entry): (RulePosition, &Entry)| {
            column.values(&entry.rule).into_iter().map(move |value| (value, place))
        };
        kept.as_ref().is_none_or(|kept| *kept == table.rules().flat_map(is_one).collect())
    };
    places == filed
        && shapes.shapes.values().all(|shape| shape.len() > 0 && sizes(shape))
        && COLUMNS.iter().zip(&shapes.columns).all(column)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_index_answers_what_the_walk_answers(few in 0..6usize, steps in proptest::collection::vec(some_step(), 1..120)) {
        let mut table = Table::new(0, 1 << 20);
        table.shapes.few = few;
        let mut events = vec![];
        for step in steps {
            match step {
                Step::Add(rule) => {
                    let expected = overlap_by_walk(&table, &rule);
                    prop_assert_eq!(table.has_overlap(&rule), expected);
                    let same = Selection { strict: true, ..Selection::within(&rule) };
                    prop_assert_eq!(table.find(&rule), select_by_walk(&table, &same).first().copied());
                    table.add(1, &rule, &mut events);
                }
                Step::Remove(which) => {
                    let places: Vec<RulePosition> = table.rules().map(|(place, _)| place).collect();
                    if !places.is_empty() {
                        table.remove(1, *which.get(&places), RemovedReason::Delete, &mut events);
                    }
                }
                Step::Modify(change, strict) => table.modify(&change, strict, &mut events),
                Step::Select(change, strict, refers, times) => {
                    let selection = Selection { refers, ..Selection::of_delete(&change, strict) };
                    let all = table.rules().count();
                    prop_assert!(!selection.is_all() || select_by_walk(&table, &selection).len() == all);
                    for _ in 0..times {
                        table.prepare(&selection);
                        prop_assert_eq!(table.select(&selection).0, select_by_walk(&table, &selection));
                    }
                }
            }
            prop_assert!(is_whole(&table));
        }
    }
}

const RULES: u32 = 20_000;

/// Rules of one priority and three shapes that do not overlap: metadata distinguishes the shapes.
fn apart(number: u32) -> Rule {
    let which = MatchField::exact(Field::Metadata, number % 3);
    let fields = match number % 3 {
        0 => vec![which, MatchField::exact(Field::EthDst, number)],
        1 => vec![which, MatchField::masked(Field::EthDst, u128::from(number) << 8, 0xffff_ffff_ff00u64)],
        _ => vec![
            which,
            MatchField::exact(Field::EthDst, number),
            MatchField::exact(Field::InPort, number % 7 + 1),
        ],
    };
    let port = Action::Output { port: PortNo(number / 10 + 1), max_len: 0 };
    let rule = Rule::new(5, Match::new(fields).unwrap(), vec![Instruction::ApplyActions(vec![port])]);
    let flags = RuleFlags::CHECK_OVERLAP;
    Rule { cookie: (number / 10).into(), flags, ..rule }
}

fn full_pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new(RULES as usize);
    for number in 0..RULES {
        let added = pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::Add, 0, apart(number)));
        added.unwrap_or_else(|error| panic!("{number}: {error:?}"));
    }
    pipeline
}

/// A walk looks at 200 million rules for this.
#[test]
fn twenty_thousand_adds_with_check_overlap_look_at_a_few_rules_each() {
    let pipeline = full_pipeline();
    let looked = pipeline.table(0).unwrap().looked;
    assert!(looked <= u64::from(RULES) * 8, "{looked} rules were looked at");
}

/// A walk looks at every rule for each delete; here each takes ten rules, and by each of the ways that a delete can name them.
#[test]
fn deletes_look_at_the_rules_that_they_take() {
    let delete = |rule: Rule| FlowMod::new(FlowModCommand::Delete, 255, rule);
    let nothing = || Rule::new(0, Match::all(), vec![]);
    let by_cookie = |number: u32| FlowMod {
        cookie_mask: u64::MAX,
        ..delete(Rule { cookie: number.into(), ..nothing() })
    };
    let by_port = |number: u32| FlowMod { out_port: PortNo(number + 1), ..delete(nothing()) };
    let by_match = |number: u32| {
        let dst = MatchField::masked(Field::EthDst, u128::from(number) << 4, 0xffff_ffff_fff0u64);
        delete(Rule::new(0, Match::new([dst]).unwrap(), vec![]))
    };
    let ways: [(&str, &dyn Fn(u32) -> FlowMod); 3] =
        [("cookie", &by_cookie), ("out_port", &by_port), ("match", &by_match)];
    for (name, way) in ways {
        let mut pipeline = full_pipeline();
        let before = pipeline.table(0).unwrap().looked;
        let mut gone = 0;
        for number in 0..1000 {
            let events = pipeline.flow_mod(0, &way(number)).unwrap();
            gone += events.iter().filter(|event| matches!(event, Event::RuleRemoved(_))).count() as u64;
        }
        assert!(gone >= 9_000, "{name}: {gone} rules went");
        // Two walks, the second of which makes the index, and then what is taken.
        let looked = pipeline.table(0).unwrap().looked - before;
        assert!(
            looked <= 3 * u64::from(RULES) + 2 * gone,
            "{name}: {looked} rules were looked at for {gone}"
        );
    }
}

/// The questions that a walk answers by a look at every rule each time; and what goes with a group or a meter.
#[test]
fn questions_and_groups_and_meters_that_go_look_at_the_rules_that_they_take() {
    let mut text = String::new();
    for id in 1..=100 {
        text += &format!(
            "group_id={id},type=all,bucket=actions=output:1\nmeter={id},pktps,band=type=drop,rate=5\n"
        );
    }
    let mut pipeline = Pipeline::new(RULES as usize);
    crate::text::file::load(&mut pipeline, &text).unwrap();
    for number in 0..RULES {
        // Every tenth rule has a group, every tenth a meter, of a hundred each.
        let id = number / 200 + 1;
        let mut rule = apart(number);
        rule.flags = RuleFlags::default();
        match number % 10 {
            0 => rule.instructions = vec![Instruction::ApplyActions(vec![Action::Group(id)])],
            5 => rule.instructions.insert(0, Instruction::Meter(id)),
            _ => {}
        }
        pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::Add, (number % 2) as u8, rule)).unwrap();
    }
    let looked = |pipeline: &Pipeline| pipeline.tables().map(|table| table.looked).sum::<u64>();
    let before = looked(&pipeline);
    let mut taken = 0;
    for number in 0..1000u32 {
        let dst = MatchField::masked(Field::EthDst, u128::from(number) << 4, 0xffff_ffff_fff0u64);
        let rule = Rule::new(0, Match::new([dst]).unwrap(), vec![]);
        let selection = Selection::within(&rule);
        let twin: Vec<(u8, RulePosition)> = pipeline
            .tables()
            .flat_map(|table| {
                select_by_walk(table, &selection).into_iter().map(|place| (table.number, place))
            })
            .collect();
        let answer: Vec<(u8, RulePosition)> =
            pipeline.select(ALL_TABLES, &selection).map(|(table, place, _)| (table, place)).collect();
        assert_eq!(answer, twin);
        taken += answer.len() as u64;
    }
    let work = looked(&pipeline) - before;
    assert!(
        taken > 9_000 && work <= 3 * u64::from(RULES) + 2 * taken,
        "{work} rules were looked at for {taken}"
    );
    for what in ["group", "meter"] {
        let before = looked(&pipeline);
        let mut gone = 0;
        for id in 1..=100 {
            let events = match what {
                "meter" => {
                    let meter = Meter { id, flags: MeterFlags::default(), bands: vec![] };
                    pipeline.meter_mod(0, &MeterMod { command: ModCommand::Delete, meter })
                }
                _ => {
                    let group = Group { id, kind: GroupType::All, buckets: vec![] };
                    pipeline.group_mod(0, &GroupMod { command: ModCommand::Delete, group })
                }
            };
            gone += events.unwrap().len() as u64;
        }
        assert_eq!(gone, u64::from(RULES) / 10, "{what}");
        let work = looked(&pipeline) - before;
        assert!(work <= 3 * u64::from(RULES) + 2 * gone, "{what}: {work} rules were looked at for {gone}");
    }
}

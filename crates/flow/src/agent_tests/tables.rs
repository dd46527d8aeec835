//! What a controller configures of tables.

use super::*;
use crate::error::{BadProperty, TableModFailed};

const VACANCY: TableModProperty =
    TableModProperty::Vacancy(Vacancy { vacancy_down: 20, vacancy_up: 70, vacancy: 0 });
const IMPORTANCE: TableModProperty =
    TableModProperty::Eviction(Eviction { flags: EvictionFlags::IMPORTANCE });

fn table_mod(table_id: u8, properties: &[TableModProperty]) -> Body {
    let config = TableFlags::EVICTION.with(TableFlags::VACANCY_EVENTS);
    Body::TableMod(TableMod { table_id, config, properties: properties.to_vec() })
}

/// What is told of a table: how far it is evicted and the two bounds of vacancy.
fn told(world: &mut World, table: usize) -> (EvictionFlags, u8, u8) {
    let Reply::TableDesc(tables) = world.question(Request::TableDesc(Empty {})) else { panic!() };
    match &tables[table].properties[..] {
        [TableModProperty::Eviction(eviction), TableModProperty::Vacancy(vacancy)] => {
            (eviction.flags, vacancy.vacancy_down, vacancy.vacancy_up)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_table_mod_leaves_out_stays_as_it_is_in_every_table() {
    let mut world = World::new(&[Version::V14]);
    world.done(table_mod(4, &[VACANCY]));
    world.done(table_mod(5, &[IMPORTANCE]));
    world.done(table_mod(crate::rule::ALL_TABLES, &[]));
    assert_eq!(told(&mut world, 4), (EvictionFlags::default(), 20, 70));
    assert_eq!(told(&mut world, 5), (EvictionFlags::IMPORTANCE, 0, 0));
    // Two of one bundle: the second does not undo the first.
    assert_eq!(bundled(&mut world, table_mod(6, &[VACANCY])), []);
    assert_eq!(bundled(&mut world, table_mod(6, &[IMPORTANCE])), []);
    world.ask(0, bundle(BundleCommand::COMMIT_REQUEST));
    assert_eq!(told(&mut world, 6), (EvictionFlags::IMPORTANCE, 20, 70));
}

#[test]
fn a_table_mod_with_unknown_or_doubled_properties_is_refused() {
    let mut world = World::new(&[Version::V14]);
    let unknown = TableModProperty::Eviction(Eviction { flags: EvictionFlags(8) });
    assert_eq!(world.refused(table_mod(1, &[unknown])).error(), Some(TableModFailed::BadConfig.into()));
    let twice = world.refused(table_mod(1, &[VACANCY, VACANCY]));
    assert_eq!(twice.error(), Some(BadProperty::DupType.into()));
    assert_eq!(told(&mut world, 1), (EvictionFlags::default(), 0, 0));
}

#[test]
fn a_table_mod_of_1_3_leaves_what_1_4_configured() {
    let mut world = World::new(&[Version::V14, Version::V13]);
    world.done(table_mod(1, &[IMPORTANCE]));
    let deprecated = TableMod { table_id: 1, config: TableFlags(3), properties: vec![] };
    assert_eq!(world.ask(1, Body::TableMod(deprecated)), []);
    let Reply::TableDesc(tables) = world.question(Request::TableDesc(Empty {})) else { panic!() };
    assert!(tables[1].config.has(TableFlags::EVICTION));
}

fn shape(world: &mut World, table_id: u8, max_entries: u32) -> Vec<Body> {
    let name = crate::openflow::bytes::Name::new("t");
    let wish = TableFeatures { table_id, name, max_entries, ..TableFeatures::default() };
    world.put(0, question(Version::V14, 0, Request::TableFeatures(vec![wish])).body);
    world.run();
    world.told(0).into_iter().map(|message| message.body).collect()
}

#[test]
fn table_features_give_a_table_no_more_rules_than_the_switch_lets_it_have() {
    let mut world = World::new(&[Version::V14]);
    world.pipeline = Pipeline::new(100);
    for (wish, given) in [(7, 7), (101, 100), (u32::MAX, 100)] {
        shape(&mut world, 3, wish);
        assert_eq!(world.pipeline.table(3).unwrap().max_rules, given);
    }
}

#[test]
fn a_table_that_gets_another_size_tells_of_its_vacancy() {
    let mut world = World::new(&[Version::V14]);
    let statuses = |told: Vec<Body>| -> Vec<TableReason> {
        let reasons = told.iter().filter_map(|body| match body {
            Body::TableStatus(status) => Some(status.reason),
            _ => None,
        });
        reasons.collect()
    };
    world.done(table_mod(0, &[VACANCY]));
    for priority in 0..9 {
        world.done(add(rule(priority, vec![], vec![])));
    }
    assert_eq!(statuses(shape(&mut world, 0, 10)), [TableReason::VACANCY_DOWN]);
    assert_eq!(statuses(shape(&mut world, 0, 20)), []);
    assert_eq!(statuses(shape(&mut world, 0, 100)), [TableReason::VACANCY_UP]);
}

//! Which rules of a table a change or a question can be about, without a look at each of them.
//!
//! **What.** [`Shapes`] files the rules of one table by the *shape* of their matches: which fields count, and which bits of each. It
//! answers three questions: which rule has this match and priority, whether a rule of this priority can overlap this one
//! (§6.4, `CHECK_OVERLAP`), and which rules a change or a question that is not strict can take.
//!
//! **Why.** A rule within `in_port=1` has a shape with at least these bits, and among the rules of one such shape the values of
//! these bits decide: they are a key. So is what two shapes have in common, for the question of overlap. This is the
//! tuple space search of Srinivasan, Suri and Varghese (SIGCOMM 1999), which Open vSwitch's classifier uses, too, here for
//! controllers only; frames still walk, because that is the meaning. Cookies, ports, groups and meters are columns of their
//! own.
//!
//! **Price.** Some 40 bytes for each rule, and as much again for each kind of question: a key for fewer bits than the shape's, or
//! for a column, is made when it is asked for the second time (an overlap: the first time) and kept up from then on. Every question
//! looks at each shape, so rules that all have different shapes gain nothing. Small tables are walked. The walk is the twin, in
//! the tests below.

use crate::action::{Action, Instruction};
use crate::entry::Entry;
use crate::field::{Field, Value};
use crate::matching::Match;
use crate::port::PortNo;
use crate::rule::{ANY_GROUP, Rule, RulePosition};
use crate::selection::{Refers, Selection};
use std::cmp::Reverse;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};

/// Tables, shapes and priorities with at most this many rules are walked.
const FEW: usize = 64;
/// Keys of one shape at most; each costs memory for every rule of it.
const MOST_KEYS: usize = 16;
/// A key that this many questions did not need makes room for another.
const STALE: u64 = 1024;
/// Questions that are remembered, to know the second time from the first.
const REMEMBERED: usize = 8;

/// Fields with the bits of them that count, in the order of the fields.
type Mask = Vec<(Field, Value)>;
/// The rules of a table.
type Rules = BTreeMap<RulePosition, Entry>;

/// The first and the last place that a rule can have.
const FIRST: RulePosition = (Reverse(u16::MAX), 0);
const LAST: RulePosition = (Reverse(0), u64::MAX);

fn mask_of(matching: &Match) -> Mask {
    let mut mask: Mask = matching.fields().iter().map(|entry| (entry.field, entry.bits())).collect();
    mask.retain(|(_, bits)| *bits != 0);
    mask.sort_unstable();
    mask
}

fn bits_of(mask: &Mask, field: Field) -> Value {
    mask.binary_search_by_key(&field, |(own, _)| *own).map_or(0, |at| mask[at].1)
}

/// Whether all bits of the one count in the other.
fn is_part(coarse: &Mask, fine: &Mask) -> bool {
    coarse.iter().all(|(field, bits)| bits_of(fine, *field) & bits == *bits)
}

/// The bits that count in both.
fn common(one: &Mask, other: &Mask) -> Mask {
    let mut both: Mask = one.iter().map(|(field, bits)| (*field, bits & bits_of(other, *field))).collect();
    both.retain(|(_, bits)| *bits != 0);
    both
}

/// Rules by what they have in some bits: a hash of the values, so a hit is to be compared.
#[derive(Debug, Clone)]
struct Keys {
    mask: Mask,
    places: BTreeSet<(u64, RulePosition)>,
    /// The number of the last question that needed it.
    used: u64,
}

/// The rules of one shape; the first key is of all its bits.
#[derive(Debug, Clone)]
struct Shape {
    keys: Vec<Keys>,
}

impl Shape {
    fn whole(&self) -> &Keys {
        &self.keys[0]
    }

    fn len(&self) -> usize {
        self.whole().places.len()
    }

    fn places(&self) -> impl Iterator<Item = RulePosition> + '_ {
        self.whole().places.iter().map(|(_, place)| *place)
    }

    fn by(&self, mask: &Mask) -> Option<&Keys> {
        self.keys.iter().find(|keys| keys.mask == *mask)
    }
}

/// What selections ask for, beside the match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Cookie,
    Port,
    Group,
    Meter,
}

const COLUMNS: [Column; 4] = [Column::Cookie, Column::Port, Column::Group, Column::Meter];

impl Column {
    /// What a rule has in this column.
    fn values(self, rule: &Rule) -> Vec<u64> {
        match self {
            Column::Cookie => vec![rule.cookie],
            Column::Port => {
                let port = |action: &Action| match action {
                    Action::Output { port, .. } => Some(u64::from(port.0)),
                    _ => None,
                };
                rule.instructions.iter().flat_map(Instruction::actions).filter_map(port).collect()
            }
            Column::Group => rule.groups().map(u64::from).collect(),
            Column::Meter => rule.meters().map(u64::from).collect(),
        }
    }

    /// The values that a selection wants here, from and to; none when it does not ask, or for bits of a cookie that are no prefix.
    fn wanted(self, selection: &Selection<'_>) -> Option<(u64, u64)> {
        let mask = selection.cookie_mask;
        match self {
            Column::Cookie if mask != 0 && mask.leading_ones() + mask.trailing_zeros() == 64 => {
                let from = selection.rule.cookie & mask;
                Some((from, from | !mask))
            }
            Column::Port if selection.out_port != PortNo::ANY => {
                Some((selection.out_port.0.into(), selection.out_port.0.into()))
            }
            Column::Group if selection.out_group != ANY_GROUP => {
                Some((selection.out_group.into(), selection.out_group.into()))
            }
            Column::Group => match selection.refers {
                Refers::ToGroups(from, to) => Some((from.into(), to.into())),
                _ => None,
            },
            Column::Meter => match selection.refers {
                Refers::ToMeters(from, to) => Some((from.into(), to.into())),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A question that may come again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    Within(Mask),
    By(Column),
}

/// The rules of a table by the shapes of their matches.
#[derive(Debug, Clone)]
pub(crate) struct Shapes {
    shapes: HashMap<Mask, Shape>,
    columns: [Option<BTreeSet<(u64, RulePosition)>>; COLUMNS.len()],
    hasher: RandomState,
    asked: VecDeque<Question>,
    questions: u64,
    few: usize,
}

impl Default for Shapes {
    fn default() -> Shapes {
        Shapes {
            shapes: HashMap::new(),
            columns: [const { None }; COLUMNS.len()],
            hasher: RandomState::new(),
            asked: VecDeque::new(),
            questions: 0,
            few: FEW,
        }
    }
}

/// The same number for matches that agree in these bits.
fn key(hasher: &RandomState, matching: &Match, mask: &Mask) -> u64 {
    let mut hasher = hasher.build_hasher();
    for (field, bits) in mask {
        (matching.get(*field).map_or(0, |entry| entry.value) & bits).hash(&mut hasher);
    }
    hasher.finish()
}

fn agree(one: &Match, other: &Match, mask: &Mask) -> bool {
    let value = |matching: &Match, field| matching.get(field).map_or(0, |entry| entry.value);
    mask.iter().all(|(field, bits)| (value(one, *field) ^ value(other, *field)) & bits == 0)
}

impl Shapes {
    /// Files a rule at its place.
    pub(crate) fn file(&mut self, place: RulePosition, rule: &Rule) {
        let mask = mask_of(&rule.matching);
        let shape = self.shapes.entry(mask).or_insert_with_key(|mask| Shape {
            keys: vec![Keys { mask: mask.clone(), places: BTreeSet::new(), used: 0 }],
        });
        for keys in &mut shape.keys {
            keys.places.insert((key(&self.hasher, &rule.matching, &keys.mask), place));
        }
        self.file_columns(place, rule);
    }

    /// Forgets a rule that was filed.
    pub(crate) fn forget(&mut self, place: RulePosition, rule: &Rule) {
        let mask = mask_of(&rule.matching);
        if let Some(shape) = self.shapes.get_mut(&mask) {
            for keys in &mut shape.keys {
                keys.places.remove(&(key(&self.hasher, &rule.matching, &keys.mask), place));
            }
            if shape.len() == 0 {
                self.shapes.remove(&mask);
            }
        }
        self.forget_columns(place, rule);
    }

    /// Files what a modify can change: where a rule sends.
    pub(crate) fn file_columns(&mut self, place: RulePosition, rule: &Rule) {
        for (column, kept) in COLUMNS.iter().zip(&mut self.columns) {
            if let Some(kept) = kept {
                kept.extend(column.values(rule).into_iter().map(|value| (value, place)));
            }
        }
    }

    /// Forgets what [`Shapes::file_columns`] filed.
    pub(crate) fn forget_columns(&mut self, place: RulePosition, rule: &Rule) {
        for (column, kept) in COLUMNS.iter().zip(&mut self.columns) {
            if let Some(kept) = kept {
                for value in column.values(rule) {
                    kept.remove(&(value, place));
                }
            }
        }
    }

    /// The place of the rule with this priority and match.
    pub(crate) fn find(&self, rules: &Rules, rule: &Rule) -> Option<RulePosition> {
        let mask = mask_of(&rule.matching);
        let whole = self.shapes.get(&mask)?.whole();
        let key = key(&self.hasher, &rule.matching, &mask);
        let mut near = whole.places.range((key, at(rule.priority, 0))..=(key, at(rule.priority, u64::MAX)));
        let same = |place: &RulePosition| agree(&rules[place].rule.matching, &rule.matching, &mask);
        near.find(|(_, place)| same(place)).map(|(_, place)| *place)
    }

    /// Whether a rule of the same priority overlaps this one, and how many rules were looked at for that.
    pub(crate) fn overlap(&mut self, rules: &Rules, rule: &Rule) -> (bool, usize) {
        self.questions += 1;
        let mut looked = 0;
        let mut overlaps = |entry: &Entry| {
            looked += 1;
            entry.rule.matching.overlaps(&rule.matching)
        };
        let of_priority = at(rule.priority, 0)..=at(rule.priority, u64::MAX);
        if rules.range(of_priority.clone()).nth(self.few).is_none() {
            let found = rules.range(of_priority).any(|(_, entry)| overlaps(entry));
            return (found, looked);
        }
        let mask = mask_of(&rule.matching);
        let mut built = 0;
        let found = self.shapes.values_mut().any(|shape| {
            let both = common(&shape.whole().mask, &mask);
            built += ensure(shape, &both, rules, &self.hasher, self.questions, self.few);
            let Some(keys) = shape.by(&both) else {
                let mut beside = shape.places().filter(|(priority, _)| priority.0 == rule.priority);
                return beside.any(|place| overlaps(&rules[&place]));
            };
            let key = key(&self.hasher, &rule.matching, &both);
            let of_key = (key, *of_priority.start())..=(key, *of_priority.end());
            keys.places.range(of_key).any(|(_, place)| overlaps(&rules[place]))
        });
        (found, looked + built)
    }

    /// Makes the keys that a selection needs, when it asks for the second time. How many rules were looked at for that.
    pub(crate) fn prepare(&mut self, rules: &Rules, selection: &Selection<'_>) -> usize {
        if selection.strict || rules.len() <= self.few {
            return 0;
        }
        self.questions += 1;
        let mut looked = 0;
        for (index, column) in COLUMNS.into_iter().enumerate() {
            let is_new = column.wanted(selection).is_some() && self.columns[index].is_none();
            if is_new && self.is_asked_again(Question::By(column)) {
                let filed = |(place, entry): (&RulePosition, &Entry)| {
                    let place = *place;
                    column.values(&entry.rule).into_iter().map(move |value| (value, place))
                };
                self.columns[index] = Some(rules.iter().flat_map(filed).collect());
                looked += rules.len();
            }
        }
        let mask = mask_of(&selection.rule.matching);
        let mut within = self.shapes.values().filter(|shape| is_part(&mask, &shape.whole().mask));
        let lacks = |shape: &Shape| shape.len() > self.few && shape.by(&mask).is_none();
        let is_new = !mask.is_empty() && within.any(lacks);
        let build = is_new && self.is_asked_again(Question::Within(mask.clone()));
        for shape in self.shapes.values_mut().filter(|shape| is_part(&mask, &shape.whole().mask)) {
            if build {
                looked += ensure(shape, &mask, rules, &self.hasher, self.questions, self.few);
            } else if let Some(keys) = shape.keys.iter_mut().find(|keys| keys.mask == mask) {
                keys.used = self.questions;
            }
        }
        looked
    }

    /// Remembers a question; whether it was asked before.
    fn is_asked_again(&mut self, question: Question) -> bool {
        let before = self.asked.len();
        self.asked.retain(|known| *known != question);
        let again = self.asked.len() < before;
        self.asked.push_back(question);
        if self.asked.len() > REMEMBERED {
            self.asked.pop_front();
        }
        again
    }

    /// The places of the rules that a selection takes, in their order, and how many rules were looked at for that.
    pub(crate) fn select(&self, rules: &Rules, selection: &Selection<'_>) -> (Vec<RulePosition>, usize) {
        let takes = |entry: &Entry| selection.takes(&entry.rule);
        let routes = if rules.len() > self.few { self.routes(selection) } else { vec![] };
        if routes.is_empty() {
            let taken = rules.iter().filter(|(_, entry)| takes(entry)).map(|(place, _)| *place).collect();
            return (taken, rules.len());
        }
        let (mut taken, looked) = shortest(routes);
        taken.retain(|place| takes(&rules[place]));
        taken.sort_unstable();
        // A rule may refer to several of the numbers that are asked for.
        taken.dedup();
        (taken, looked)
    }

    /// The ways to the rules of a selection: each is a list in which all of them are.
    fn routes<'a>(&'a self, selection: &Selection<'_>) -> Vec<Box<dyn Iterator<Item = RulePosition> + 'a>> {
        let mut routes: Vec<Box<dyn Iterator<Item = RulePosition> + 'a>> = vec![];
        for (column, kept) in COLUMNS.iter().zip(&self.columns) {
            if let (Some((from, to)), Some(kept)) = (column.wanted(selection), kept) {
                routes.push(Box::new(kept.range((from, FIRST)..=(to, LAST)).map(|(_, place)| *place)));
            }
        }
        let matching = &selection.rule.matching;
        let mask = mask_of(matching);
        let within = || self.shapes.values().filter(|shape| is_part(&mask, &shape.whole().mask));
        let can = |shape: &Shape| shape.len() <= self.few || shape.by(&mask).is_some();
        if !mask.is_empty() && within().all(can) {
            let key = key(&self.hasher, matching, &mask);
            let lists: Vec<Box<dyn Iterator<Item = RulePosition> + 'a>> = within()
                .map(|shape| -> Box<dyn Iterator<Item = RulePosition> + 'a> {
                    match shape.by(&mask) {
                        Some(keys) => {
                            Box::new(keys.places.range((key, FIRST)..=(key, LAST)).map(|(_, place)| *place))
                        }
                        None => Box::new(shape.places()),
                    }
                })
                .collect();
            routes.push(Box::new(lists.into_iter().flatten()));
        }
        routes
    }
}

fn at(priority: u16, number: u64) -> RulePosition {
    (Reverse(priority), number)
}

/// Makes a key for these bits of a shape with more than a few rules, if it has none and there is room; how many rules were looked at.
fn ensure(shape: &mut Shape, mask: &Mask, rules: &Rules, hash: &RandomState, now: u64, few: usize) -> usize {
    if let Some(keys) = shape.keys.iter_mut().find(|keys| keys.mask == *mask) {
        keys.used = now;
        return 0;
    }
    if shape.len() <= few {
        return 0;
    }
    if shape.keys.len() >= MOST_KEYS {
        // The first one is the shape itself.
        let oldest = (1..shape.keys.len()).min_by_key(|index| shape.keys[*index].used).unwrap_or(0);
        if shape.keys[oldest].used + STALE > now {
            return 0;
        }
        shape.keys.swap_remove(oldest);
    }
    let place_of = |place: RulePosition| (key(hash, &rules[&place].rule.matching, mask), place);
    let places = shape.places().map(place_of).collect();
    shape.keys.push(Keys { mask: mask.clone(), places, used: now });
    shape.len()
}

/// The list that ends first, all read side by side, and how many were read.
fn shortest(mut routes: Vec<Box<dyn Iterator<Item = RulePosition> + '_>>) -> (Vec<RulePosition>, usize) {
    let mut lists: Vec<Vec<RulePosition>> = vec![vec![]; routes.len()];
    let mut looked = 0;
    loop {
        for (route, list) in routes.iter_mut().zip(&mut lists) {
            let Some(place) = route.next() else { return (std::mem::take(list), looked) };
            list.push(place);
            looked += 1;
        }
    }
}

#[cfg(test)]
mod tests;

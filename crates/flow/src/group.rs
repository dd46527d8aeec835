//! Groups: ways to send that rules share.
//!
//! **What.** A [`Group`] of one of four types with its [`Bucket`]s (§5.6) and what a controller changes of them
//! (§7.3.4.4).
//!
//! **Why.** Many rules send "all of these", "one of these" or "the first of these that lives"; a group says it once.
//!
//! **Price.** A group may send to groups: what a frame meets is a tree, which is why loops are refused.

use crate::action::Action;
use crate::error::GroupModFailed;
use crate::numbered::{Counters, ModCommand, Numbered};
use crate::port::PortNo;
use crate::rule::ANY_GROUP;
use std::collections::{BTreeMap, BTreeSet};
use wire::refuse_if;

/// The largest number of a group (`OFPG_MAX`).
pub const MAX_GROUP: u32 = 0xffff_ff00;
/// The group number that means all groups (`OFPG_ALL`), for deletes.
pub const ALL_GROUPS: u32 = 0xffff_fffc;

/// How a group uses its buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupType {
    /// Every bucket gets a copy.
    All = 0,
    /// One bucket, chosen by the frame and the weights.
    Select = 1,
    /// The one bucket.
    Indirect = 2,
    /// The first bucket that is live.
    FastFailover = 3,
}

/// One way to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Its share in a select group; 0 elsewhere.
    pub weight: u16,
    /// The port whose liveness is the bucket's; [`PortNo::ANY`] for none.
    pub watch_port: PortNo,
    /// The group whose liveness is the bucket's; [`crate::rule::ANY_GROUP`] for none.
    pub watch_group: u32,
    /// What is done with the frame: an action set.
    pub actions: Vec<Action>,
}

impl Bucket {
    /// A bucket without weight that watches nothing.
    pub fn new(actions: Vec<Action>) -> Bucket {
        Bucket { weight: 0, watch_port: PortNo::ANY, watch_group: crate::rule::ANY_GROUP, actions }
    }
}

/// A group, as a controller wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// How it uses its buckets.
    pub kind: GroupType,
    /// The buckets.
    pub buckets: Vec<Bucket>,
}

/// A change of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMod {
    /// What to do.
    pub command: ModCommand,
    /// The group. Deletes use its number only.
    pub group: Group,
}

/// A group with what happened to it.
#[derive(Debug, Clone)]
pub struct GroupEntry {
    /// The group.
    pub group: Group,
    /// When it was added.
    pub created_ns: u64,
    /// What came to it.
    pub counters: Counters,
    /// What each bucket did.
    pub buckets: Vec<Counters>,
}

/// The groups of a switch.
pub type Groups = Numbered<GroupEntry>;

/// Groups that a switch holds.
pub const GROUP_LIMIT: usize = 1 << 16;
/// Buckets of one group.
pub const BUCKET_LIMIT: usize = 1 << 10;
/// How long a chain of groups may be: what a frame meets is walked by recursion.
pub const CHAIN_LIMIT: usize = 16;

/// The groups that these actions send to.
fn targets(actions: &[Action]) -> impl Iterator<Item = u32> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Group(id) => Some(*id),
        _ => None,
    })
}

/// The groups on which a bucket rests: those that it sends to and the one that it watches.
fn rests_on(bucket: &Bucket) -> impl Iterator<Item = u32> + '_ {
    targets(&bucket.actions).chain((bucket.watch_group != ANY_GROUP).then_some(bucket.watch_group))
}

impl GroupEntry {
    /// The groups on which it rests.
    fn rests_on(&self) -> impl Iterator<Item = u32> + '_ {
        self.group.buckets.iter().flat_map(rests_on)
    }
}

/// Whether a port is live.
type IsLive<'a> = &'a dyn Fn(PortNo) -> bool;

/// Layers of a graph that has no loop, from one group on. They cannot be more than the limit of chains.
fn layers(from: u32, next: impl Fn(&BTreeSet<u32>) -> BTreeSet<u32>) -> usize {
    let mut layer = BTreeSet::from([from]);
    let mut count = 0;
    while !layer.is_empty() {
        count += 1;
        layer = next(&layer);
    }
    count
}

impl Groups {
    /// Checks all that concerns groups alone; actions and ports are the caller's to check.
    pub fn check(&self, change: &GroupMod) -> Result<(), GroupModFailed> {
        let id = change.group.id;
        match change.command {
            ModCommand::Add if id > MAX_GROUP => Err(GroupModFailed::InvalidGroup),
            ModCommand::Add if self.0.contains_key(&id) => Err(GroupModFailed::GroupExists),
            ModCommand::Add if self.0.len() >= GROUP_LIMIT => Err(GroupModFailed::OutOfGroups),
            ModCommand::Modify if !self.0.contains_key(&id) => Err(GroupModFailed::UnknownGroup),
            ModCommand::Add | ModCommand::Modify => self.check_buckets(&change.group),
            ModCommand::Delete if id == ALL_GROUPS => Ok(()),
            ModCommand::Delete if id > MAX_GROUP => Err(GroupModFailed::InvalidGroup),
            // §6.5 with OFPGFC_CHAINING_CHECKS: a group that another one rests on stays.
            ModCommand::Delete => refuse_if(self.is_chained(id), GroupModFailed::ChainedGroup),
        }
    }

    fn check_buckets(&self, group: &Group) -> Result<(), GroupModFailed> {
        refuse_if(group.buckets.len() > BUCKET_LIMIT, GroupModFailed::OutOfBuckets)?;
        if group.kind == GroupType::Indirect && group.buckets.len() != 1 {
            return Err(GroupModFailed::InvalidGroup);
        }
        // §6.5: "fields such as weight that are undefined for the specified group type"; §7.3.4.4: only select has weights.
        if group.kind != GroupType::Select && group.buckets.iter().any(|bucket| bucket.weight != 0) {
            return Err(GroupModFailed::InvalidGroup);
        }
        let lower: BTreeSet<u32> = group.buckets.iter().flat_map(rests_on).collect();
        if lower.contains(&group.id) || lower.iter().any(|id| self.below(*id).contains(&group.id)) {
            return Err(GroupModFailed::Loop);
        }
        for bucket in &group.buckets {
            let watches = bucket.watch_port != PortNo::ANY || bucket.watch_group != ANY_GROUP;
            let unknown = bucket.watch_group != ANY_GROUP && !self.0.contains_key(&bucket.watch_group);
            // §5.6.1: each bucket of a fast-failover group is associated with a port or group that controls its
            // liveness.
            if unknown || group.kind == GroupType::FastFailover && !watches {
                return Err(GroupModFailed::BadWatch);
            }
        }
        let below = lower.iter().map(|id| self.depth(*id)).max().unwrap_or(0);
        // Nothing can rest on a new group: no walk over all others for each that is added.
        let above = if self.0.contains_key(&group.id) { self.height(group.id) } else { 1 };
        refuse_if(below + above > CHAIN_LIMIT, GroupModFailed::ChainingUnsupported)
    }

    fn lower(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        self.get(id).into_iter().flat_map(GroupEntry::rests_on)
    }

    /// Every group below `from`, each once.
    fn below(&self, from: u32) -> BTreeSet<u32> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<u32> = self.lower(from).collect();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(self.lower(id));
            }
        }
        seen
    }

    /// Groups in the longest chain that begins here.
    fn depth(&self, id: u32) -> usize {
        layers(id, |layer| layer.iter().flat_map(|id| self.lower(*id)).collect())
    }

    /// Groups in the longest chain that ends here.
    fn height(&self, id: u32) -> usize {
        layers(id, |layer| {
            let rests = |entry: &&GroupEntry| entry.rests_on().any(|id| layer.contains(&id));
            self.iter().filter(rests).map(|entry| entry.group.id).collect()
        })
    }

    fn is_chained(&self, id: u32) -> bool {
        self.iter().any(|entry| entry.rests_on().any(|to| to == id))
    }

    /// The groups that buckets send to, each as often as it is named (part of the reference count, §5.8).
    pub fn targets(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter().flat_map(|entry| &entry.group.buckets).flat_map(|bucket| targets(&bucket.actions))
    }

    /// Makes the change, which was checked.
    pub fn apply(&mut self, now: u64, change: &GroupMod) {
        let group = &change.group;
        let buckets = vec![Counters::default(); group.buckets.len()];
        match (change.command, self.0.get_mut(&group.id)) {
            (ModCommand::Delete, _) if group.id == ALL_GROUPS => self.0.clear(),
            (ModCommand::Delete, _) => drop(self.0.remove(&group.id)),
            // §6.5: the group's own counters go on, those of its buckets begin anew.
            (ModCommand::Modify, Some(entry)) => {
                entry.group.clone_from(group);
                entry.buckets = buckets;
            }
            (ModCommand::Add | ModCommand::Modify, _) => {
                let (group, counters) = (group.clone(), Counters::default());
                self.0.insert(group.id, GroupEntry { group, created_ns: now, counters, buckets });
            }
        }
    }

    /// Whether a bucket is live (§6.7): the port or the group that it watches is. One that watches nothing is. `known` are
    /// the groups that were looked at already: many buckets may watch one group, and that one others.
    fn is_live(&self, bucket: &Bucket, port_is_live: IsLive<'_>, known: &mut BTreeMap<u32, bool>) -> bool {
        let (no_port, no_group) = (bucket.watch_port == PortNo::ANY, bucket.watch_group == ANY_GROUP);
        (no_port && no_group)
            || (!no_port && port_is_live(bucket.watch_port))
            || (!no_group && self.group_is_live(bucket.watch_group, port_is_live, known))
    }

    /// Whether a group is live: one of its buckets is.
    fn group_is_live(&self, id: u32, port_is_live: IsLive<'_>, known: &mut BTreeMap<u32, bool>) -> bool {
        if let Some(is_live) = known.get(&id) {
            return *is_live;
        }
        let mut buckets = self.0.get(&id).into_iter().flat_map(|entry| &entry.group.buckets);
        let is_live = buckets.any(|bucket| self.is_live(bucket, port_is_live, known));
        known.insert(id, is_live);
        is_live
    }

    /// The buckets that a frame meets; `hash` is the frame's, for the choice of a select group.
    pub fn choose(&self, id: u32, hash: u64, port_is_live: IsLive<'_>) -> Vec<usize> {
        let Some(entry) = self.0.get(&id) else { return vec![] };
        let buckets = entry.group.buckets.iter().enumerate();
        let mut known = BTreeMap::new();
        let mut live = buckets.clone().filter(|(_, bucket)| self.is_live(bucket, port_is_live, &mut known));
        match entry.group.kind {
            GroupType::All | GroupType::Indirect => buckets.map(|(index, _)| index).collect(),
            GroupType::FastFailover => live.next().map(|(index, _)| index).into_iter().collect(),
            GroupType::Select => {
                let weights = live.map(|(index, bucket)| (index, u64::from(bucket.weight)));
                by_weight(&weights.collect::<Vec<_>>(), hash).into_iter().collect()
            }
        }
    }
}

/// The bucket whose share of the weights the hash falls into. When no bucket has a weight, all have the same.
fn by_weight(weights: &[(usize, u64)], hash: u64) -> Option<usize> {
    let given: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let weight_of = |weight: u64| if given == 0 { 1 } else { weight };
    let total: u64 = weights.iter().map(|(_, weight)| weight_of(*weight)).sum();
    // The high half of the product: uniform over 0..total when the hash is uniform.
    let mut point = ((u128::from(hash) * u128::from(total)) >> 64) as u64;
    for (index, weight) in weights {
        match point.checked_sub(weight_of(*weight)) {
            Some(rest) => point = rest,
            None => return Some(*index),
        }
    }
    None
}

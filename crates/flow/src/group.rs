//! Groups: ways to send that rules share.
//!
//! **What.** A [`Group`] of one of four types with its [`Bucket`]s (§5.6) and what a controller changes of them
//! (§7.3.4.4).
//!
//! **Why.** Many rules send "all of these", "one of these" or "the first of these that lives"; a group says it once.
//!
//! **Price.** A group may send to groups: what a frame meets is a tree, which is why loops are refused.

use crate::action::Action;
use crate::port::PortNo;

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

/// What a group-mod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum GroupModCommand {
    /// Add a group that does not exist.
    Add = 0,
    /// Change one that does.
    Modify = 1,
    /// Delete it, or all.
    Delete = 2,
}

/// A change of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMod {
    /// What to do.
    pub command: GroupModCommand,
    /// The group. Deletes use its number only.
    pub group: Group,
}

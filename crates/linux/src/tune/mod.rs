//! Settings that are changed: for as long as a command runs, or until they are undone.
//!
//! **What.** [`KNOBS`] is the table of all settings, a [`Row`] each. Most are text that a row says how to read and write ([`Setting`]); those
//! that other commands change have files of their own. All are a [`Knob`]: a change keeps what was before in a journal, is read back after it was
//! written, and is put back by a guard ([`Change`]), by `pathlab tune undo` ([`kept`]), or after a `kill -9` by the next command ([`TuneStep`]).
//!
//! **Why one module.** All of them are found again in the same way ([`Place`]): by the namespace's inode, and an interface by number and name in it.
//! Where another interface has that number or name now, or somebody else has changed the setting, nothing is done.
//!
//! **Price.** A namespace that nobody can be found in any more is not searched for its interfaces.

pub mod down;
pub mod kept;
mod list;
pub mod queues;
mod row;
mod rows;
mod setting;
pub mod stamps;
mod value;

use std::os::fd::AsFd;

use record::{Problem, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};

use crate::journal::{self, Journal};
use crate::namespace;
use crate::netlink::{Answer, Netlink, Refusal};
use crate::sys::netns;
use crate::sys::packet::StampConfig;

pub use list::{interfaces, irqbalance, list, read};
pub use row::{Kind, Risk, Row, Where};
pub use rows::{KNOBS, means, row};
pub use setting::Setting;

use row::Access;

/// A setting at one place: what reads and writes it, in the namespace of the calling thread.
trait Knob {
    /// What it can be set to.
    type Value: Clone + PartialEq + Serialize + DeserializeOwned;

    /// What it is set to.
    fn read(&mut self) -> Answer<Self::Value>;

    /// Sets it.
    fn write(&mut self, value: Self::Value) -> Answer;

    /// Sets it and reads it back: what it is now.
    fn set(&mut self, value: Self::Value) -> Answer<Self::Value> {
        self.write(value.clone())?;
        let now = self.read()?;
        let failed = || Refusal { errno: None, text: "it did not take effect".into() };
        if self.took(&value, &now) { Ok(now) } else { Err(failed()) }
    }

    /// Whether that is what came of setting it.
    fn took(&self, wanted: &Self::Value, now: &Self::Value) -> bool {
        wanted == now
    }

    /// Whether that is the answer of something without this setting.
    fn is_gone(&self, refusal: &Refusal) -> bool {
        refusal.errno == Some(libc::EOPNOTSUPP)
    }

    /// Whether somebody else has changed it since, and it stays as it is now.
    fn is_theirs(&self, _was: &Self::Value, _now: &Self::Value) -> bool {
        false
    }
}

/// Where a setting is, as a journal says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// At an interface.
    Interface(Place),
    /// In a network namespace, by its inode.
    Namespace(u64),
    /// On the machine.
    Machine,
}

impl Scope {
    /// The inode of the network namespace that it is in; none on the machine.
    fn netns(&self) -> Option<u64> {
        match self {
            Scope::Interface(Place { netns, .. }) | Scope::Namespace(netns) => Some(*netns),
            Scope::Machine => None,
        }
    }

    /// Whether nobody can be found in its namespace any more.
    fn is_gone(&self) -> bool {
        self.netns().is_some_and(|netns| namespace::find(netns).is_none())
    }

    /// Does something where it is; nothing where that is gone.
    fn visit(&self, work: impl FnOnce() -> Answer + Send) -> Answer {
        match self {
            Scope::Interface(place) => place.visit(work),
            Scope::Namespace(inode) => inside(*inode, work),
            Scope::Machine => work(),
        }
    }
}

/// Does something in a namespace; nothing where there is none.
fn inside(inode: u64, work: impl FnOnce() -> Answer + Send) -> Answer {
    let Some(space) = namespace::find(inode) else { return Ok(()) };
    netns::within(space.as_fd(), work)?
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Inode of its namespace.
    pub netns: u64,
    /// Its number there.
    pub index: u32,
    /// Its name.
    pub name: String,
}

impl Place {
    /// An interface of the namespace of the calling thread.
    fn here(index: u32, name: &str) -> std::io::Result<Place> {
        Ok(Place { netns: netns::inode(netns::current()?.as_fd())?, index, name: name.to_owned() })
    }

    /// Does something in its namespace; nothing where there is none, or another interface now.
    fn visit(&self, work: impl FnOnce() -> Answer + Send) -> Answer {
        inside(self.netns, || {
            let links = Netlink::open().links()?;
            let is_there = links.iter().any(|link| link.index == self.index && link.name == self.name);
            if is_there { work() } else { Ok(()) }
        })
    }
}

/// One setting that is to be changed.
struct Wish<K: Knob> {
    at: Place,
    knob: K,
    was: K::Value,
    wanted: K::Value,
}

/// Changes settings whose undo goes into the journal first, and reads each back: what they are now. When one is refused all are put back.
fn change<K: Knob>(
    mut journal: Journal,
    row: &Row,
    wishes: &mut [Wish<K>],
    refused: impl Fn(&Wish<K>, &Refusal) -> Problem,
) -> Result<(Change, Vec<K::Value>)> {
    let step = |wish: &Wish<K>| {
        let at = Scope::Interface(wish.at.clone());
        TuneStep::Knob { knob: row.name.into(), at, was: json!(wish.was), wanted: None }
    };
    if let Err(problem) = journal.will(wishes.iter().map(step)) {
        let _ = journal.forget();
        return Err(problem);
    }
    // From here on a return puts back what was changed.
    let change = Change { journal: Some(journal) };
    let mut now = vec![];
    for wish in wishes {
        let set = wish.knob.set(wish.wanted.clone());
        now.push(set.map_err(|refusal| refused(wish, &refusal))?);
    }
    Ok((change, now))
}

/// Sets what was before, unless it is set already or somebody else's now.
fn put_back<K: Knob>(knob: &mut K, was: K::Value) -> Answer {
    let now = match knob.read() {
        // What cannot be set any more is not set to something else.
        Err(refusal) if knob.is_gone(&refusal) => return Ok(()),
        other => other?,
    };
    if now == was || knob.is_theirs(&was, &now) {
        return Ok(());
    }
    knob.set(was).map(drop)
}

/// The same with what stands in a journal.
fn put_back_from<K: Knob>(mut knob: K, was: &Value) -> Answer {
    let was = serde_json::from_value(was.clone()).map_err(std::io::Error::from)?;
    put_back(&mut knob, was)
}

/// Changes that are put back when this is dropped.
#[derive(Debug)]
pub struct Change {
    journal: Option<Journal>,
}

impl Change {
    /// Puts back what was before.
    ///
    /// # Errors
    /// A host problem when the kernel refuses; the journal is then kept.
    pub fn put_back(mut self) -> Result<()> {
        self.journal.take().map_or(Ok(()), Journal::undo)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // Who wants to hear of trouble calls `put_back`; the journal stays, and 'pathlab undo' says it again.
        let _ = self.journal.take().map_or(Ok(()), Journal::undo);
    }
}

/// A setting that can be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuneStep {
    /// A setting is changed: set it to what it was.
    Knob {
        /// Its name in [`KNOBS`].
        #[serde(deserialize_with = "known")]
        knob: String,
        /// Where it is.
        at: Scope,
        /// What it was.
        was: Value,
        /// What it is set to, where only that is put back and what somebody else has made of it since is not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wanted: Option<String>,
    },
    /// What the kernel made of a setting that is changed; nothing is to be undone.
    Took {
        /// Its name.
        #[serde(deserialize_with = "known")]
        knob: String,
        /// Where it is.
        at: Scope,
        /// What it was when it was read back.
        now: String,
    },
    /// The knob of that side, as versions before the table wrote it.
    Stamps {
        /// Which interface.
        #[serde(flatten)]
        at: Place,
        /// What was set before.
        was: StampConfig,
        /// Which frames; a journal that does not say it is about those that come in.
        #[serde(default)]
        side: stamps::Side,
    },
    /// The knob of queues, as versions before the table wrote it.
    Queues(Place),
    /// The knob of an interface that is up, as versions before the table wrote it.
    Down(Place),
}

/// A name of the table: a journal with another one is of a later version.
fn known<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    let name = String::deserialize(from)?;
    row(&name).map(|_| name).ok_or_else(|| de::Error::custom("an unknown setting"))
}

impl TuneStep {
    /// Setting, place and what was there before; none when nothing is to be undone.
    fn parts(&self) -> Option<(&str, Scope, Value)> {
        let at = |at: &Place| Scope::Interface(at.clone());
        Some(match self {
            TuneStep::Knob { knob, at, was, .. } => (knob, at.clone(), was.clone()),
            TuneStep::Stamps { at: place, was, side } => (side.row().name, at(place), json!(was)),
            TuneStep::Queues(place) => (queues::KNOB.name, at(place), json!(false)),
            TuneStep::Down(place) => (down::KNOB.name, at(place), json!(true)),
            TuneStep::Took { .. } => return None,
        })
    }

    /// What a knob of text was set to: what the kernel made of it stands in a later step, once that is known.
    fn ours(&self, later: &[TuneStep]) -> Option<Ours> {
        let TuneStep::Knob { knob, at, wanted, .. } = self else { return None };
        let took = later.iter().rev().find_map(|step| match step {
            TuneStep::Took { knob: of, at: there, now } => (of == knob && there == at).then(|| now.clone()),
            _ => None,
        });
        wanted.as_ref()?;
        Some(took.map_or(Ours::Unknown, Ours::Is))
    }
}

/// What a change made of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ours {
    /// This: when it is something else now, it is somebody else's.
    Is(String),
    /// It was about to be changed when its owner died: whatever it is now came of that.
    Unknown,
}

impl journal::UndoStep for TuneStep {
    fn undo(&self) -> std::result::Result<(), String> {
        self.undo_before(&[])
    }

    fn undo_before(&self, later: &[Value]) -> std::result::Result<(), String> {
        let Some((name, at, was)) = self.parts() else { return Ok(()) };
        let (row, part) = row(name).ok_or("an unknown setting")?;
        let later: Vec<TuneStep> = later.iter().flat_map(TuneStep::deserialize).collect();
        let undone = at.visit(|| match (row.access, &at) {
            (Access::ForAWhile(_, put_back), Scope::Interface(at)) => put_back(at, &was),
            _ => put_back_from(Setting::at(row, &part, &at).of(self.ours(&later)), &was),
        });
        undone.map_err(|refusal| failed(row, name, &at, &refusal))
    }

    /// Interfaces have their settings from the boot on.
    fn outlives_boot(&self) -> bool {
        false
    }
}

/// Why a setting could not be put back.
fn failed(row: &Row, name: &str, at: &Scope, refusal: &Refusal) -> String {
    let of = match at {
        Scope::Interface(place) => &place.name,
        Scope::Namespace(_) => "its namespace",
        Scope::Machine => "the machine",
    };
    match row.access {
        Access::ForAWhile(failed, _) => format!("{}: {refusal}", failed.replace("IF", of)),
        _ => format!("cannot put back {name} of {of}: {refusal}"),
    }
}

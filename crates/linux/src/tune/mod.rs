//! Settings that are changed for a while: time stamps, queues, up and down.
//!
//! **What.** [`KNOBS`] is the table of all settings; each has its own file, with what reads and writes it ([`Knob`]) and a [`Row`]. A change
//! keeps what was before in a journal, is read back after it was written, and is put back by a guard ([`Change`]), or after a `kill -9` by
//! the next command ([`TuneStep`]).
//!
//! **Why one module.** All of them are found again in the same way ([`Place`]): by the namespace's inode, and an interface by number and name in it.
//! Where another interface has that number or name now, or somebody else has changed the setting, nothing is done.
//!
//! **Price.** A namespace that nobody can be found in any more is not searched for its interfaces.

pub mod down;
pub mod queues;
pub mod stamps;

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

/// Every setting that is ever changed.
pub const KNOBS: [&Row; 4] = [&stamps::RECEIVE, &stamps::TRANSMIT, &queues::KNOB, &down::KNOB];

/// A setting in a journal.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub meaning: &'static str,
    /// Why it could not be put back; `IF` stands for where it is.
    failed: &'static str,
    put_back: fn(&Place, &Value) -> Answer,
}

/// A setting at one place: what reads and writes it, in the namespace of the calling thread.
trait Knob {
    /// What it can be set to.
    type Value: Copy + PartialEq + Serialize + DeserializeOwned;

    /// What it is set to.
    fn read(&mut self) -> Answer<Self::Value>;

    /// Sets it.
    fn write(&mut self, value: Self::Value) -> Answer;

    /// Sets it and reads it back: what it is now.
    fn set(&mut self, value: Self::Value) -> Answer<Self::Value> {
        self.write(value)?;
        let now = self.read()?;
        let failed = || Refusal { errno: None, text: "it did not take effect".into() };
        if self.took(value, now) { Ok(now) } else { Err(failed()) }
    }

    /// Whether that is what came of setting it.
    fn took(&self, wanted: Self::Value, now: Self::Value) -> bool {
        wanted == now
    }

    /// Whether somebody else has changed it since, and it stays as it is now.
    fn is_theirs(&self, _was: Self::Value, _now: Self::Value) -> bool {
        false
    }
}

/// Where a setting is, as a journal says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// At an interface.
    Interface(Place),
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
        let Some(space) = namespace::find(self.netns) else { return Ok(()) };
        let visited = netns::within(space.as_fd(), || {
            let links = Netlink::open().links()?;
            let is_there = links.iter().any(|link| link.index == self.index && link.name == self.name);
            if is_there { work() } else { Ok(()) }
        });
        visited?
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
        TuneStep::Knob { knob: row.name.into(), at, was: json!(wish.was) }
    };
    if let Err(problem) = journal.will(wishes.iter().map(step)) {
        let _ = journal.forget();
        return Err(problem);
    }
    // From here on a return puts back what was changed.
    let change = Change { journal: Some(journal) };
    let mut now = vec![];
    for wish in wishes {
        let set = wish.knob.set(wish.wanted);
        now.push(set.map_err(|refusal| refused(wish, &refusal))?);
    }
    Ok((change, now))
}

/// Sets what was before, unless it is set already or somebody else's now.
fn put_back<K: Knob>(knob: &mut K, was: K::Value) -> Answer {
    let now = match knob.read() {
        // What cannot be set any more is not set to something else.
        Err(refusal) if refusal.errno == Some(libc::EOPNOTSUPP) => return Ok(()),
        other => other?,
    };
    if now == was || knob.is_theirs(was, now) {
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

fn row(name: &str) -> Option<&'static Row> {
    KNOBS.into_iter().find(|row| row.name == name)
}

/// A name of the table: a journal with another one is of a later version.
fn known<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    let name = String::deserialize(from)?;
    row(&name).map(|row| row.name.to_owned()).ok_or_else(|| de::Error::custom("an unknown setting"))
}

impl TuneStep {
    /// Setting, place and what was there before.
    fn parts(&self) -> (Option<&'static Row>, &Place, Value) {
        match self {
            TuneStep::Knob { knob, at: Scope::Interface(at), was } => (row(knob), at, was.clone()),
            TuneStep::Stamps { at, was, side } => (Some(side.row()), at, json!(was)),
            TuneStep::Queues(at) => (Some(&queues::KNOB), at, json!(false)),
            TuneStep::Down(at) => (Some(&down::KNOB), at, json!(true)),
        }
    }
}

impl journal::UndoStep for TuneStep {
    fn undo(&self) -> std::result::Result<(), String> {
        let (row, at, was) = self.parts();
        let row = row.ok_or("an unknown setting")?;
        let undone = at.visit(|| (row.put_back)(at, &was));
        undone.map_err(|refusal| format!("{}: {refusal}", row.failed.replace("IF", &at.name)))
    }

    /// Interfaces have their settings from the boot on.
    fn outlives_boot(&self) -> bool {
        false
    }
}

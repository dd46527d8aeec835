//! What a name means: a counter, a drop, a reason of the kernel, a knob, a kind of traffic or of port, a word of these pages, an exported series.
//!
//! **What.** [`explain`] finds a name in all tables: as it is, as other tools write it (`UdpInDatagrams`, `tcpi_rtt`), as the beginning of one name
//! alone; otherwise it says which names are near. [`list`] has all names.
//!
//! **Why here.** The tables are `record`'s; knobs, and the reasons that a newer kernel has, come as arguments ([`Machine`]).
//!
//! **Price.** Every question walks all tables, some 1,100 names: well below a millisecond.

pub mod search;
mod tables;
pub mod text;

use record::{Problem, Result};
use serde::Serialize;

/// What only the machine's crate knows.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Names of knobs, and what they are.
    pub knobs: Vec<(String, String)>,
    /// The running kernel's reasons for drops; empty where nobody asked.
    pub reasons: Vec<String>,
}

/// What kind of name it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameKind {
    /// A counter of the kernel, a driver, or pathlab's programs.
    Counter,
    /// A name of a drop in the ledger.
    Drop,
    /// The kernel's reason for a drop.
    KernelReason,
    /// A setting that pathlab changes and puts back.
    Knob,
    /// A kind of traffic.
    Workload,
    /// A kind of port.
    Port,
    /// A word of the documentation.
    Word,
    /// A series that `pathlab export` tells.
    Series,
}

impl NameKind {
    /// The words for people.
    pub fn words(self) -> &'static str {
        match self {
            NameKind::Counter => "counter",
            NameKind::Drop => "drop",
            NameKind::KernelReason => "kernel's reason",
            NameKind::Knob => "knob",
            NameKind::Workload => "kind of test",
            NameKind::Port => "kind of port",
            NameKind::Word => "word",
            NameKind::Series => "exported series",
        }
    }
}

/// Something about a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about: `unit`, `traps`, `advice`, …
    pub name: &'static str,
    /// What there is to say.
    pub text: String,
}

/// A name and what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What kind of name it is.
    pub kind: NameKind,
    /// The name; of a counter with its source: `interface:rx_packets`.
    pub name: String,
    /// What it means, in sentences.
    pub meaning: String,
    /// What else there is to say, in order; what is empty is left out.
    pub facts: Vec<Fact>,
}

impl Explanation {
    fn new(kind: NameKind, name: impl Into<String>, meaning: impl Into<String>) -> Explanation {
        Explanation { kind, name: name.into(), meaning: meaning.into(), facts: vec![] }
    }

    /// Adds something, unless it is empty.
    fn and(mut self, name: &'static str, text: impl Into<String>) -> Explanation {
        let text = text.into();
        if !text.is_empty() {
            self.facts.push(Fact { name, text });
        }
        self
    }

    /// The name without the source that it is in front of.
    pub fn short(&self) -> &str {
        match self.kind {
            NameKind::Counter => self.name.split_once(':').map_or(&self.name, |(_, name)| name),
            _ => &self.name,
        }
    }
}

/// What a name means: one explanation for each table that has it.
///
/// # Errors
/// An input problem when no table has it, with the names that are near, or when several begin with it.
pub fn explain(name: &str, machine: &Machine) -> Result<Vec<Explanation>> {
    let name = name.trim();
    let found = tables::named(name, machine);
    if !found.is_empty() {
        return Ok(found);
    }
    let all = list(machine);
    let alike = search::alike(name, &all);
    if !alike.is_empty() {
        return Ok(alike.into_iter().cloned().collect());
    }
    let near = search::near(name, &all);
    let found = if near.is_empty() { tables::perhaps(name) } else { vec![] };
    if !found.is_empty() {
        return Ok(found);
    }
    let near = if near.is_empty() {
        "see them all with --list".into()
    } else {
        format!("near are {}", near.join(", "))
    };
    let problem = Problem::input("no counter, drop, reason, knob, kind or word has this name");
    Err(problem.at(name.to_owned()).help(near))
}

/// Every name, table by table.
pub fn list(machine: &Machine) -> Vec<Explanation> {
    tables::all(machine)
}

#[cfg(test)]
mod tests;

//! What a row of the table of knobs says: where the knob is, what it can be set to, what a change of it risks, how it is read and written.

use serde_json::Value;

use super::Place;
use crate::netlink::Answer;
use crate::netlink::settings::Group;

/// A setting.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Where it is.
    pub place: Where,
    /// What it can be set to.
    pub kind: Kind,
    /// What a change of it risks.
    pub risk: Risk,
    /// What it does, in one line.
    pub meaning: &'static str,
    pub(super) access: Access,
}

/// Where a knob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// One for the whole machine.
    Machine,
    /// A CPU of the machine.
    Cpu,
    /// An interrupt of the machine.
    Interrupt,
    /// A network namespace; some of the first one's are the machine's.
    Namespace,
    /// A route of a network namespace.
    Route,
    /// An interface.
    Interface,
    /// A queue of an interface.
    Queue,
}

impl Where {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Where::Machine => "machine",
            Where::Cpu => "CPU",
            Where::Interrupt => "interrupt",
            Where::Namespace => "namespace",
            Where::Route => "route",
            Where::Interface => "interface",
            Where::Queue => "queue",
        }
    }

    /// There is one on a machine, whatever namespace asks.
    pub fn is_of_machine(self) -> bool {
        matches!(self, Where::Machine | Where::Cpu | Where::Interrupt)
    }

    /// It belongs to an interface.
    pub fn is_of_interface(self) -> bool {
        matches!(self, Where::Interface | Where::Queue)
    }
}

/// What a knob can be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number of this unit.
    Number(&'static str),
    /// Several whole numbers of this form.
    Numbers(&'static str),
    /// On or off.
    Switch,
    /// A list of CPUs.
    Cpus,
    /// Text of this form.
    Text(&'static str),
}

impl Kind {
    /// What to write, for people.
    pub fn words(self) -> String {
        match self {
            Kind::Number("") => "number".into(),
            Kind::Number(unit) => format!("number of {unit}"),
            Kind::Switch => "on, off".into(),
            Kind::Cpus => "CPUs (0-3,8), none".into(),
            Kind::Numbers(form) | Kind::Text(form) => form.into(),
        }
    }
}

/// What a change of a knob risks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Risk {
    /// Nothing but what it is for.
    Safe,
    /// Many drivers take the link down and up again, or want it down.
    LinkFlap,
    /// Frames may pass, or programs do something, that they should not.
    Security,
}

impl Risk {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Risk::Safe => "safe",
            Risk::LinkFlap => "link flap",
            Risk::Security => "security",
        }
    }
}

/// How a knob is read and written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Access {
    /// By other commands, for as long as they run: why it could not be put back (`IF` stands for where it is), and what puts it back.
    ForAWhile(&'static str, fn(&Place, &Value) -> Answer),
    /// The file of a sysctl; the part is its name.
    Sysctl,
    /// A file of the machine; `*` stands for the part.
    Machine(&'static str),
    /// A file of the interface in sysfs; `*` stands for the part.
    Interface(&'static str),
    /// An attribute of a group of ethtool's: its number, and that of the highest number that it can have (0: none is told).
    Ethtool(Group, u16, u16),
    /// A feature; the part is the kernel's name.
    Feature,
    /// The fields of frames of the part, a kind of flow, that are hashed.
    HashFields,
    /// The table of queues of the hash.
    HashTable,
    /// The key of the hash.
    HashKey,
    /// An attribute of 32 bits of the link.
    Link(u16),
    /// The qdisc at the root.
    Root,
    /// A metric of the route of the part; how many of the kernel's units one of ours is (0: it is text).
    Metric(u16, u32),
    /// The longest time in which a CPU may wake up, held by whoever has the file open.
    Latency,
}

/// The part of a name that stands for the interface's queues, the machine's CPUs, ….
pub(super) const PART: char = '*';

/// A row.
pub(super) const fn knob(
    name: &'static str,
    place: Where,
    kind: Kind,
    risk: Risk,
    access: Access,
    meaning: &'static str,
) -> Row {
    Row { name, place, kind, risk, meaning, access }
}

/// A setting that another command changes for as long as it runs.
pub(super) const fn for_a_while(
    name: &'static str,
    meaning: &'static str,
    failed: &'static str,
    put_back: fn(&Place, &Value) -> Answer,
) -> Row {
    let kind = Kind::Text("set by other commands");
    knob(name, Where::Interface, kind, Risk::Safe, Access::ForAWhile(failed, put_back), meaning)
}

impl Row {
    /// Its name with that part.
    pub fn named(&self, part: &str) -> String {
        self.name.replace(PART, part)
    }

    /// `tune set` can set it.
    pub fn can_be_set(&self) -> bool {
        !matches!(self.access, Access::ForAWhile(..) | Access::Latency)
    }
}

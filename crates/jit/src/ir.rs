//! The intermediate representation: what a pipeline does, without what only a controller wants to know.
//!
//! **What.** An [`Ir`] has tables of rules; a rule has [`Test`]s, [`Op`]s in the order in which they are carried out, and an [`End`].
//! Its text (`Display`) is what the passes are tested on, and what `pathlab flow compile` prints.
//!
//! **Why.** Instructions are in order, what code cannot do is one explicit end ([`End::Exit`]), and action sets are numbered, so that
//! every later stage is a loop over a list.
//!
//! **Price.** A rule is copied once; actions that change a frame stay those of the model ([`Op::Edit`]).

use flow::action::Action;
use flow::field::{Field, Value};
use flow::matching::MatchField;
use flow::rule::RulePosition;
use flow::text::{action as action_text, value as value_text};
use flow::{Match, PortNo};
use std::collections::BTreeSet;
use std::fmt;

/// The pipeline, ready to be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ir {
    /// The tables that may be reached, by number; before the passes, all that have rules.
    pub tables: Vec<IrTable>,
    /// The action sets that a frame may have at its end; the first one is empty.
    pub sets: Vec<Body>,
    /// What a write makes of each set: a row has the number of the new set by the number of the old one.
    pub maps: Vec<Vec<u32>>,
    /// Fragments of IP end as [`Exit::Fragment`] (the pipeline drops them).
    pub exits_fragments: bool,
    /// A frame may have been changed when it exits, so it has to be put back first.
    pub restores: bool,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IrTable {
    /// Its number.
    pub number: u8,
    /// Its rules, the one that wins first.
    pub rules: Vec<IrRule>,
    /// The action sets that a frame may come with, by number; known behind the pass `sets`.
    pub before: BTreeSet<u32>,
    /// Rules that a pass left out because no frame could come to them.
    pub dropped: usize,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IrRule {
    /// Its place in the pipeline's table.
    pub at: RulePosition,
    /// Its number among counters ([`crate::tally`]).
    pub slot: u32,
    /// What a frame must be; all of it.
    pub tests: Vec<Test>,
    /// What is done with it.
    pub body: Body,
}

/// What is done with a frame, and what comes then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// In this order.
    pub ops: Vec<Op>,
    /// And then.
    pub end: End,
}

/// A frame has this field, and where the mask has ones it has this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Test {
    /// The field.
    pub field: Field,
    /// The value; no bit outside of the mask.
    pub value: Value,
    /// The bits that count; not 0.
    pub mask: Value,
}

/// One thing that is done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Send the frame as it is now; IN_PORT, ALL and FLOOD have their meaning.
    Output(PortNo),
    /// The queue of later outputs.
    Queue(u32),
    /// Write bits of a field that stands in no frame: metadata or tunnel_id.
    Register {
        /// Which.
        field: Field,
        /// The bits.
        value: u64,
        /// Which bits.
        mask: u64,
    },
    /// An action that changes the frame.
    Edit(Action),
    /// Empty the action set; gone after the pass `sets`.
    Clear,
    /// Merge into the action set; gone after the pass `sets`.
    Write(Vec<Action>),
    /// The action set is this one now.
    SetTo(u32),
    /// The action set is what this row of [`Ir::maps`] makes of the one before.
    SetMap(u32),
}

/// What comes after the ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// A later table.
    Goto(u8),
    /// The action set.
    Finish,
    /// Nothing: the frame has been dealt with.
    Done,
    /// The interpreter takes the frame as it came in.
    Exit(Exit),
}

/// Why the interpreter has to do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// A group chooses and counts.
    Group,
    /// A meter has a state that threads share.
    Meter,
    /// The frame goes to the controllers.
    Controller,
    /// The bridge behind NORMAL learns.
    Normal,
    /// Fragments are to be dropped.
    Fragment,
    /// More action sets are possible than are numbered.
    Sets,
    /// More actions than a record holds.
    Long,
    /// A program in the kernel does not do it; machine code does.
    Kernel,
}

impl Test {
    /// Whether a frame with this value of the field passes.
    pub fn accepts(&self, value: Option<Value>) -> bool {
        value.is_some_and(|value| value & self.mask == self.value)
    }
}

impl IrTable {
    /// The numbers of the tables that its rules name.
    pub fn next(&self) -> impl Iterator<Item = u8> + '_ {
        self.rules.iter().filter_map(|rule| match rule.body.end {
            End::Goto(table) => Some(table),
            _ => None,
        })
    }
}

impl Ir {
    /// A table by its number.
    pub fn table(&self, number: u8) -> Option<&IrTable> {
        self.tables.iter().find(|table| table.number == number)
    }

    /// All bodies: of the rules, then of the sets.
    pub fn bodies(&self) -> impl Iterator<Item = &Body> {
        let rules = self.tables.iter().flat_map(|table| &table.rules).map(|rule| &rule.body);
        rules.chain(&self.sets)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|table| table.rules.len()).sum()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exit::Group => "group",
            Exit::Meter => "meter",
            Exit::Controller => "controller",
            Exit::Normal => "normal",
            Exit::Fragment => "fragment",
            Exit::Sets => "too many action sets",
            Exit::Long => "too many actions",
            Exit::Kernel => "not in the kernel",
        })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Output(port) => write!(f, "output:{port}"),
            Op::Queue(queue) => write!(f, "queue:{queue}"),
            Op::Register { field, value, mask } => write!(f, "{field}={value:#x}/{mask:#x}"),
            Op::Edit(action) => f.write_str(&action_text::show(action)),
            Op::Clear => f.write_str("clear"),
            Op::Write(actions) => write!(f, "write({})", action_text::show_list(actions)),
            Op::SetTo(set) => write!(f, "set:{set}"),
            Op::SetMap(row) => write!(f, "set:map{row}"),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Goto(table) => write!(f, "goto {table}"),
            End::Finish => f.write_str("finish"),
            End::Done => f.write_str("done"),
            End::Exit(why) => write!(f, "interpret ({why})"),
        }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ops.iter().try_for_each(|op| write!(f, "{op}; "))?;
        write!(f, "{}", self.end)
    }
}

impl fmt::Display for IrRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = |test: &Test| {
            let is_whole = test.mask == test.field.full_mask();
            MatchField { field: test.field, value: test.value, mask: (!is_whole).then_some(test.mask) }
        };
        let tests = value_text::show_match(&Match::unchecked(self.tests.iter().map(field).collect()));
        let tests = if tests.is_empty() { "any" } else { &tests };
        write!(f, "{}: {tests} -> {}", self.at.0.0, self.body)
    }
}

impl fmt::Display for Ir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in &self.tables {
            writeln!(f, "table {}", table.number)?;
            table.rules.iter().try_for_each(|rule| writeln!(f, "  {rule}"))?;
        }
        for (number, set) in self.sets.iter().enumerate().skip(1) {
            writeln!(f, "set {number}: {set}")?;
        }
        for (number, row) in self.maps.iter().enumerate() {
            writeln!(f, "map {number}: {row:?}")?;
        }
        Ok(())
    }
}

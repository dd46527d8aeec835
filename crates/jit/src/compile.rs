//! The compiler: from a pipeline to a program, and from a program to the next.
//!
//! **What.** [`Compiler::new`] is the story: lower, passes, needs, records, strategies, code. [`Compiler::update`] brings one rule up to
//! date: most rules are a record and an entry of a hash table, and no code at all. [`Compiler::program`] is what threads get.
//!
//! **Why.** The compiler belongs to who changes rules and keeps what only changes need; a program is a few pointers.
//!
//! **Price.** A rule that needs what its table has not (another mask, more outputs, a new action set) costs a table or everything anew;
//! [`Updated`] says which.

mod update;

use crate::emit::{self, Calls, Code, Search, Source};
use crate::exec::{self, Machine};
use crate::ir::{Body, End, Ir, IrRule, IrTable, Op};
use crate::key;
use crate::lower;
use crate::needs::Needs;
use crate::pass::{self, Pass};
use crate::path::{Faces, OUTPUTS};
use crate::plan::{self, DIRECT, Plan, Strategy};
use crate::program::{Engine, NativeData, Program};
use crate::record::{Records, rank};
use crate::table::{Probe, TableData, TableRule};
use crate::tally::Slots;
use crate::verify::Broken;
use flow::Pipeline;
use flow::rule::RulePosition;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A table of at most this many rules is made anew in less than a millisecond.
const QUICK_RULES: usize = 512;
/// Slots of rules that are gone, before that is worth compiling everything.
const WORN_SLOTS: usize = 100_000;
/// Bytes of records, beside those of the rules, before the same.
const WORN_BYTES: usize = 32 << 20;

/// Why there is no program; the interpreter goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A mistake in this crate.
    Broken(Broken),
    /// A frame could ask for more outputs than there is room for.
    Outputs(usize),
    /// There is no memory for code.
    Code(String),
    /// A program of the kernel would have jumps that are too far.
    Jumps,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Broken(broken) => broken.fmt(f),
            Refused::Outputs(outputs) => write!(
                f,
                "the pipeline was not compiled: one frame could ask for {outputs} outputs, and {OUTPUTS} is the most; \
                 the interpreter carries it out; groups of type all send to many ports with one action"
            ),
            Refused::Jumps => f.write_str(
                "the pipeline was not compiled for the kernel: its tables and what they do are more code than a jump reaches over; \
                 user space carries it out",
            ),
            Refused::Code(why) => {
                write!(
                    f,
                    "the pipeline was not compiled: {why}; the interpreter carries it out; fewer switches in one process need less"
                )
            }
        }
    }
}

impl std::error::Error for Refused {}

/// What an update cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// A few words.
    InPlace,
    /// The table's data.
    Table,
    /// Everything.
    Whole,
}

/// A table as the compiler keeps it.
#[derive(Debug, Clone)]
pub(crate) struct TableState {
    pub(crate) number: u8,
    /// The rules by rank.
    pub(crate) rules: BTreeMap<u64, TableRule>,
    pub(crate) strategy: Strategy,
    pub(crate) data: Arc<TableData>,
    /// Rules that passes left out: when one goes away, they may be wanted.
    pub(crate) dropped: usize,
    /// What a body of it did at most: bytes pushed, outputs.
    pub(crate) most: (usize, usize),
    /// Its search prunes, so that many probes are cheap.
    pub(crate) prunes: bool,
}

/// What makes programs.
#[derive(Debug)]
pub struct Compiler {
    /// Which rule each slot is of.
    pub slots: Slots,
    pub(crate) ir: Arc<Ir>,
    pub(crate) needs: Needs,
    pub(crate) tables: Vec<TableState>,
    pub(crate) records: Records,
    sets: Arc<Vec<u32>>,
    maps: Arc<Vec<u32>>,
    faces: Arc<Faces>,
    machine: Option<Arc<Machine>>,
}

impl Compiler {
    /// Compiles a pipeline.
    ///
    /// # Errors
    /// [`Refused`]: the interpreter carries it out.
    pub fn new(pipeline: &Pipeline) -> Result<Compiler, Refused> {
        Compiler::watched(pipeline, Slots::default(), |_| {}, |_, _| {})
    }

    /// Compiles; shows the IR before and after each pass.
    ///
    /// # Errors
    /// As [`Compiler::new`].
    pub fn watched(
        pipeline: &Pipeline,
        mut slots: Slots,
        lowered: impl FnOnce(&Ir),
        see: impl FnMut(&Pass, &Ir),
    ) -> Result<Compiler, Refused> {
        let mut ir = lower::pipeline(pipeline, &mut slots);
        lowered(&ir);
        pass::run(&mut ir, see).map_err(Refused::Broken)?;
        let needs = Needs::of(&ir);
        if needs.outputs > OUTPUTS {
            return Err(Refused::Outputs(needs.outputs));
        }
        let mut records = Records::default();
        let width = ir.sets.len();
        let sets = ir.sets.iter().map(|set| records.add(0, 0, set, width)).collect();
        let tables = ir.tables.iter().map(|table| table_state(table, width, &mut records, true)).collect();
        let maps = ir.maps.concat();
        let mut compiler = Compiler {
            slots,
            ir: Arc::new(ir),
            needs,
            tables,
            records,
            sets: Arc::new(sets),
            maps: Arc::new(maps),
            faces: Arc::new(Faces::of(pipeline)),
            machine: None,
        };
        compiler.emit()?;
        Ok(compiler)
    }

    /// What threads run.
    pub fn program(&self) -> Program {
        let engine = match &self.machine {
            Some(machine) => Engine::Native(machine.clone(), self.data()),
            None => Engine::Evaluator(self.ir.clone()),
        };
        Program { engine, faces: self.faces.clone(), grows: self.needs.grows }
    }

    /// The same program, run by the evaluator of the IR: for comparisons. True to the last compilation of everything only.
    pub fn evaluator(&self) -> Program {
        let engine = Engine::Evaluator(self.ir.clone());
        Program { engine, faces: self.faces.clone(), grows: self.needs.grows }
    }

    fn data(&self) -> NativeData {
        let tables: Vec<Arc<TableData>> = self.tables.iter().map(|table| table.data.clone()).collect();
        let directories = tables.iter().map(|table| table.pages.directory().as_ptr() as usize).collect();
        NativeData {
            tables,
            directories,
            records: self.records.pages.clone(),
            sets: self.sets.clone(),
            maps: self.maps.clone(),
            edits: self.records.edits.clone(),
            restores: self.ir.restores,
        }
    }

    /// What ports do now.
    pub fn update_ports(&mut self, pipeline: &Pipeline) {
        self.faces = Arc::new(Faces::of(pipeline));
    }

    /// Brings the rule at this place of a table up to date with the pipeline: one that came, changed or went.
    ///
    /// # Errors
    /// As [`Compiler::new`]; then the last program is out of date.
    pub fn update(&mut self, pipeline: &Pipeline, table: u8, at: RulePosition) -> Result<Updated, Refused> {
        match self.update_in_place(pipeline, table, at) {
            Some(update::Change::Data) => Ok(Updated::InPlace),
            Some(update::Change::Code) => self.emit().map(|()| Updated::InPlace),
            Some(update::Change::Table) => {
                self.build(table);
                self.emit().map(|()| Updated::Table)
            }
            None => self.compile_anew(pipeline).map(|()| Updated::Whole),
        }
    }

    /// Brings some rules up to date, if that is quick; false: compile the pipeline anew, this compiler is of no more use.
    ///
    /// # Errors
    /// As [`Compiler::new`]; then this compiler is of no more use, either.
    pub fn update_quickly(
        &mut self,
        pipeline: &Pipeline,
        rules: &[(u8, RulePosition)],
    ) -> Result<bool, Refused> {
        let (mut has_new_code, mut tables) = (false, BTreeSet::new());
        for (table, at) in rules {
            match self.update_in_place(pipeline, *table, *at) {
                Some(update::Change::Data) => {}
                Some(update::Change::Code) => has_new_code = true,
                Some(update::Change::Table) if self.is_small(*table) => _ = tables.insert(*table),
                _ => return Ok(false),
            }
        }
        tables.iter().for_each(|table| self.build(*table));
        if has_new_code || !tables.is_empty() {
            self.emit()?;
        }
        Ok(true)
    }

    fn is_small(&self, number: u8) -> bool {
        self.tables.iter().any(|table| table.number == number && table.rules.len() <= QUICK_RULES)
    }

    /// Chooses the strategy of a table and makes its data.
    fn build(&mut self, number: u8) {
        let table = self.tables.iter_mut().find(|table| table.number == number);
        table.into_iter().for_each(|table| table.build(&self.records));
    }

    /// Whether updates have left more memory unused than the rules need.
    pub fn is_worn(&self) -> bool {
        let rules: usize = self.tables.iter().map(|table| table.rules.len()).sum();
        self.slots.places.len() > 2 * rules + WORN_SLOTS
            || self.records.pages.bytes() > WORN_BYTES + 256 * rules
    }

    /// Compiles everything; rules keep their slots.
    fn compile_anew(&mut self, pipeline: &Pipeline) -> Result<(), Refused> {
        let slots = std::mem::take(&mut self.slots);
        *self = Compiler::watched(pipeline, slots, |_| {}, |_, _| {})?;
        Ok(())
    }

    /// Makes code for the tables and shapes as they are.
    fn emit(&mut self) -> Result<(), Refused> {
        if let Some(code) = self.shown(exec::calls())? {
            self.machine = Some(Arc::new(Machine::new(&code).map_err(Refused::Code)?));
        }
        Ok(())
    }

    /// The code, with these addresses in it; none where there is no code for the machine.
    pub(crate) fn shown(&self, calls: Calls) -> Result<Option<Code>, Refused> {
        if cfg!(not(target_arch = "x86_64")) {
            return Ok(None);
        }
        let searches = self.searches();
        emit::emit(self.source(&searches, calls)).map(Some).map_err(Refused::Code)
    }

    /// How each table is looked into.
    fn searches(&self) -> Vec<Search> {
        self.tables.iter().enumerate().map(|(index, table)| search(table, index)).collect()
    }

    /// What code is made from.
    fn source<'a>(&'a self, searches: &'a [Search], calls: Calls) -> Source<'a> {
        Source { ir: &self.ir, needs: self.needs, searches, shapes: &self.records.shapes, calls }
    }

    /// The IR after the last compilation of everything.
    pub fn ir(&self) -> &Ir {
        &self.ir
    }

    /// What has to be parsed.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// What was decided about each table.
    pub fn plans(&self) -> Vec<Plan> {
        let plan =
            |table: &TableState| Plan::of(table.number, table.rules.len(), &table.strategy, &table.data);
        self.tables.iter().map(plan).collect()
    }
}

fn search(table: &TableState, index: usize) -> Search {
    match &table.strategy {
        Strategy::Direct => Search::Direct(table.rules.values().rev().cloned().collect()),
        Strategy::Probes(probes) => Search::Probes(probes.clone(), table.data.pruning.clone(), index),
    }
}

pub(crate) fn table_state(table: &IrTable, width: usize, records: &mut Records, prunes: bool) -> TableState {
    let rules = table.rules.iter().filter_map(|rule| table_rule(rule, width, records));
    let rules: BTreeMap<u64, TableRule> = rules.map(|rule| (rule.rank, rule)).collect();
    let most = table.rules.iter().map(|rule| extent(&rule.body));
    let most = most.fold((0, 0), |all, one| (all.0.max(one.0), all.1.max(one.1)));
    let mut state = TableState {
        number: table.number,
        rules,
        strategy: Strategy::Direct,
        data: Arc::new(TableData::default()),
        dropped: table.dropped,
        most,
        prunes,
    };
    state.build(records);
    state
}

pub(crate) fn table_rule(rule: &IrRule, width: usize, records: &mut Records) -> Option<TableRule> {
    let tests = key::words(&rule.tests)?;
    let rank = rank(rule.at);
    Some(TableRule { tests, rank, record: records.add(rule.slot, rank, &rule.body, width) })
}

/// What a body pushes, and how many outputs it asks for.
pub(crate) fn extent(body: &Body) -> (usize, usize) {
    let outputs = body.ops.iter().filter(|op| matches!(op, Op::Output(_))).count();
    (crate::needs::growth(body), outputs)
}

/// The data that a strategy looks into.
fn data_of(strategy: &Strategy, parts: &[plan::Part], records: &Records) -> Arc<TableData> {
    match strategy {
        Strategy::Direct => Arc::default(),
        Strategy::Probes(_) => Arc::new(TableData::build(parts, &|record| records.rank_of(record))),
    }
}

impl TableState {
    /// Chooses the strategy and makes the data.
    pub(crate) fn build(&mut self, records: &Records) {
        let rules: Vec<TableRule> =
            if self.rules.len() <= DIRECT { vec![] } else { self.rules.values().cloned().collect() };
        let (strategy, parts) = plan::strategy(&rules, self.prunes);
        self.data = data_of(&strategy, &parts, records);
        self.strategy = strategy;
    }

    pub(crate) fn probes(&self) -> &[Probe] {
        match &self.strategy {
            Strategy::Direct => &[],
            Strategy::Probes(probes) => probes,
        }
    }
}

/// Whether a body leads to a table that there is.
pub(crate) fn leads_on(body: &Body, ir: &Ir) -> bool {
    !matches!(body.end, End::Goto(next) if ir.table(next).is_none())
}

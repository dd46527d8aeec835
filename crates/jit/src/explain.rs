//! Every stage of a compilation as text.
//!
//! **What.** [`Explained`] has the IR before and after each pass, what is parsed, the plan of each table, the shapes, and the code,
//! disassembled piece by piece.
//!
//! **Why.** What cannot be looked at cannot be trusted; and the same text is what `docs/compiled/` keeps, so that a change of the
//! compiler shows itself as a change of these pages.
//!
//! **Price.** The code that is shown is emitted once more, with the names of Rust's functions in place of their addresses.

use crate::compile::{Compiler, Refused};
use crate::emit::{Calls, Code};
use crate::plan::Plan;
use crate::tally::Slots;
use flow::Pipeline;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, NasmFormatter, OpKind};
use std::fmt;

/// What stands in the shown code where the addresses of Rust's functions stand in code that runs.
const NAMED: Calls = Calls { parse: 0x7061_7273_6500, edit: 0x6564_6974_0000, keep: 0x6b65_6570_0000 };

/// A stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its name; a pass's.
    pub name: String,
    /// What it does, in a sentence.
    pub what: String,
    /// The IR, or what else came out.
    pub text: String,
}

/// All stages.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The stages but the code, in order. A pass that changed nothing has no text.
    pub stages: Vec<Stage>,
    /// What was decided about each table.
    pub plans: Vec<Plan>,
    /// The code, disassembled; empty where there is none.
    pub code: String,
    /// Bytes of code.
    pub code_bytes: usize,
}

/// Compiles a pipeline and keeps every stage.
///
/// # Errors
/// [`Refused`].
pub fn explain(pipeline: &Pipeline) -> Result<Explained, Refused> {
    let stage =
        |name: &str, what: &str, text: String| Stage { name: name.to_owned(), what: what.to_owned(), text };
    let mut lowered = String::new();
    let mut stages = vec![];
    let mut last = String::new();
    let compiler = Compiler::watched(
        pipeline,
        Slots::default(),
        |ir| lowered = ir.to_string(),
        |pass, ir| {
            let text = ir.to_string();
            let changed = if text == last { String::new() } else { text.clone() };
            stages.push(stage(pass.name, pass.what, changed));
            last = text;
        },
    )?;
    if stages.first().is_some_and(|first| first.text == lowered) {
        stages[0].text.clear();
    }
    stages.insert(0, stage("lowered", "rules as tests, ops and an end", lowered));
    stages.push(stage("parse", "what of a frame is looked at", format!("{}\n", compiler.needs())));
    stages.push(stage("shapes", "what is done with frames; operands are data", shapes(&compiler)));
    let (code, code_bytes) = match compiler.shown(NAMED)? {
        Some(code) => (disassembled(&code), code.bytes.len()),
        None => (String::new(), 0),
    };
    Ok(Explained { stages, plans: compiler.plans(), code, code_bytes })
}

fn shapes(compiler: &Compiler) -> String {
    let shapes = compiler.records.shapes.iter().enumerate();
    let line = |(number, shape): (usize, &crate::record::BodyShape)| {
        let steps: String = shape.steps.iter().map(|step| format!("{step:?}; ")).collect();
        format!("shape {number}: {steps}{}\n", shape.end)
    };
    shapes.map(line).collect()
}

/// Instructions in Intel's syntax, with the names of pieces before them.
fn disassembled(code: &Code) -> String {
    let mut decoder = Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE);
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut pieces = code.pieces.iter().peekable();
    let (mut text, mut instruction) = (String::new(), Instruction::default());
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        while let Some((name, _)) = pieces.next_if(|(_, at)| *at as u64 <= instruction.ip()) {
            text += &format!("{name}:\n");
        }
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        text += &format!("  {:5x}  {line}{}\n", instruction.ip(), called(&instruction));
    }
    text
}

/// The name of the function whose address is loaded.
fn called(instruction: &Instruction) -> &'static str {
    if instruction.op_count() != 2 || instruction.op1_kind() != OpKind::Immediate64 {
        return "";
    }
    match instruction.immediate64() as usize {
        address if address == NAMED.parse => "  ; wire parses",
        address if address == NAMED.edit => "  ; wire edits",
        address if address == NAMED.keep => "  ; keep a copy",
        _ => "",
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Stage { name, what, text } in &self.stages {
            let text = if text.is_empty() { "(as before)\n" } else { text };
            writeln!(f, "== {name}: {what}\n{text}")?;
        }
        writeln!(f, "== strategy")?;
        self.plans.iter().try_for_each(|plan| writeln!(f, "{plan}"))?;
        if self.code.is_empty() {
            return writeln!(
                f,
                "\n== code: none; on this machine the evaluator of the IR carries the pipeline out"
            );
        }
        write!(f, "\n== code: {} bytes\n{}", self.code_bytes, self.code)
    }
}

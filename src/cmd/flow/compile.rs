//! `pathlab flow compile` and `pathlab flow plan`: what the compiler makes of rules.

use super::load;
use crate::output::{Fields, Output, object};
use clap::Args;
use flow::Pipeline;
use jit::Compiler;
use jit::explain::{Stage, explain};
use jit::plan::Plan;
use record::{Problem, Result};

/// Flags of `pathlab flow compile` and `pathlab flow plan`.
#[derive(Args)]
pub struct CompileArgs {
    /// Files of rules, groups and meters as ovs-ofctl writes them, one per line.
    #[arg(value_name = "FILE", required = true)]
    rules: Vec<String>,
}

/// Shows every stage.
pub fn compile(args: &CompileArgs, output: &Output) -> Result<()> {
    let explained = explain(&load(&args.rules)?).map_err(refused)?;
    let stages: Vec<Fields> = explained.stages.iter().map(stage).collect();
    let plans: Vec<Fields> = explained.plans.iter().map(planned).collect();
    let (code, code_bytes) = (&explained.code, explained.code_bytes);
    let document = object! { schema: "pathlab/flow-compile/1", stages: stages, tables: plans, code: code, code_bytes: code_bytes };
    output.result(&document, |_| explained.to_string())
}

/// Says how tables are looked up.
pub fn plan(args: &CompileArgs, output: &Output) -> Result<()> {
    let pipeline: Pipeline = load(&args.rules)?;
    let compiler = Compiler::new(&pipeline).map_err(refused)?;
    let plans = compiler.plans();
    let parse = compiler.needs().to_string();
    let tables: Vec<Fields> = plans.iter().map(planned).collect();
    let document = object! { schema: "pathlab/flow-plan/1", parse: &parse, tables: tables };
    let lines: String = plans.iter().map(|plan| format!("{plan}\n")).collect();
    output.result(&document, |_| format!("{parse}\n{lines}"))
}

fn refused(refused: jit::Refused) -> Problem {
    Problem::host(refused.to_string())
}

fn stage(stage: &Stage) -> Fields {
    Fields(vec![
        ("name", stage.name.clone().into()),
        ("what", stage.what.clone().into()),
        ("text", stage.text.clone().into()),
    ])
}

fn planned(plan: &Plan) -> Fields {
    Fields(vec![
        ("table", plan.table.into()),
        ("rules", plan.rules.into()),
        ("strategy", plan.strategy.into()),
        ("estimate_ns", plan.estimate_ns.into()),
        ("why", plan.why.clone().into()),
        ("change", plan.change.clone().into()),
    ])
}

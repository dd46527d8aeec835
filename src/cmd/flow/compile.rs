//! `pathlab flow compile` and `pathlab flow plan`: what the compiler makes of rules.

use super::load;
use crate::output::{Fields, Output, object};
use clap::Args;
use flow::Pipeline;
use flow::text::rule as rule_text;
use jit::Compiler;
use jit::explain::{Stage, explain};
use jit::kernel::{self, ByUserspace, Hook, KernelProgram};
use jit::plan::Plan;
use record::unit::{count, many};
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
    let pipeline = load(&args.rules)?;
    let explained = explain(&pipeline).map_err(refused)?;
    let kernel = HOOKS.map(|hook| kernel_stage(&pipeline, hook));
    let stages: Vec<Fields> = explained.stages.iter().chain(&kernel).map(stage).collect();
    let plans: Vec<Fields> = explained.plans.iter().map(planned).collect();
    let (code, code_bytes) = (&explained.code, explained.code_bytes);
    let document = object! { schema: "pathlab/flow-compile/1", stages: stages, tables: plans, code: code, code_bytes: code_bytes };
    let behind = |Stage { name, what, text }: &Stage| format!("\n== {name}: {what}\n{text}");
    output.result(&document, |_| explained.to_string() + &kernel.iter().map(behind).collect::<String>())
}

/// Says how tables are looked up.
pub fn plan(args: &CompileArgs, output: &Output) -> Result<()> {
    let pipeline: Pipeline = load(&args.rules)?;
    let compiler = Compiler::new(&pipeline).map_err(refused)?;
    let plans = compiler.plans();
    let parse = compiler.needs().to_string();
    let tables: Vec<Fields> = plans.iter().map(planned).collect();
    let divided = HOOKS.map(|hook| Divided::of(&pipeline, hook));
    let kernel: Vec<Fields> = divided.iter().map(Divided::fields).collect();
    let document = object! { schema: "pathlab/flow-plan/1", parse: &parse, tables: tables, kernel: kernel };
    let lines: String = plans.iter().map(|plan| format!("{plan}\n")).collect();
    let shares: String = divided.iter().map(Divided::text).collect();
    output.result(&document, |_| format!("{parse}\n{lines}{shares}"))
}

/// Where programs of the kernel run.
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tcx];

/// The program of the kernel, its maps before it.
fn kernel_stage(pipeline: &Pipeline, hook: Hook) -> Stage {
    let what =
        "the same as a program of the kernel; what it does not do for a frame, user space does".to_owned();
    let program = kernel::compile(pipeline, &kernel::supposed(pipeline, hook));
    let text = program.map_or_else(|refused| format!("{refused}\n"), |program| program.text());
    Stage { name: format!("kernel {hook}"), what, text }
}

/// Which rules the kernel does, and which user space does, each with the reason.
struct Divided {
    hook: Hook,
    /// The program; else why there is none.
    made: std::result::Result<KernelProgram, jit::Refused>,
    /// The rules in words, as those in the program.
    rules: Vec<String>,
}

impl Divided {
    fn of(pipeline: &Pipeline, hook: Hook) -> Divided {
        let made = kernel::compile(pipeline, &kernel::supposed(pipeline, hook));
        let words = |one: &ByUserspace| {
            let table = pipeline.table(one.table)?;
            let (_, entry) = table.rules().find(|(at, _)| *at == one.at)?;
            Some(rule_text::show(one.table, &entry.rule))
        };
        let userspace = made.iter().flat_map(|program| &program.userspace);
        let rules = userspace.map(|one| words(one).unwrap_or_default()).collect();
        Divided { hook, made, rules }
    }

    fn fields(&self) -> Fields {
        let (rules, refused) = match &self.made {
            Ok(program) => (program.kernel_rules, None),
            Err(refused) => (0, Some(refused.to_string())),
        };
        let userspace = self.made.iter().flat_map(|program| &program.userspace).zip(&self.rules);
        let one = |(one, rule): (&ByUserspace, &String)| serde_json::json!({ "table": one.table, "rule": rule, "reason": one.reason.to_string() });
        Fields(vec![
            ("hook", self.hook.to_string().into()),
            ("rules", rules.into()),
            ("userspace", userspace.map(one).collect::<Vec<_>>().into()),
            ("refused", refused.into()),
        ])
    }

    fn text(&self) -> String {
        let program = match &self.made {
            Ok(program) => program,
            Err(refused) => return format!("kernel {}: {refused}\n", self.hook),
        };
        let (inside, outside) = (program.kernel_rules, program.userspace.len());
        let mut text = format!(
            "kernel {}: {} instructions; {} by the kernel, {} by user space\n",
            self.hook,
            count(program.instructions() as u64),
            many(inside as u64, "rule"),
            count(outside as u64)
        );
        for (one, rule) in program.userspace.iter().zip(&self.rules).take(SHOWN) {
            text += &format!("  {}: {rule}\n", one.reason);
        }
        if outside > SHOWN {
            text += &format!("  and {} more; --json has all\n", outside - SHOWN);
        }
        text
    }
}

/// Rules of user space that are shown.
const SHOWN: usize = 20;

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

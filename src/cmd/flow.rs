//! `pathlab flow`: traces frames through OpenFlow rules, and asks or changes switches.
//!
//! `flow trace` builds a switch from files of rules, lets one frame in and prints every step. The commands that ask or
//! change a switch are in [`rules`], [`state`] and [`queues`].

pub mod ask;
mod compile;
mod monitor;
mod queues;
pub mod rules;
mod state;

use super::read_text;
use crate::output::{Fields, Output, object};
use clap::{Args, Subcommand};
use flow::interpret::{InputFrame, NO_COOKIE, OutputFrame, PacketIn};
use flow::port::Port;
use flow::rule::FlowModCommand;
use flow::text::{Piece, action, file, frame, hex, rule, value};
use flow::trace::{self, Trace};
use flow::{Action, Field, Pipeline, PortNo};
use load::send::replay::Recording;
use record::{Problem, Result};
use serde::Serialize;
use serde_json::Value;

/// Flags of `pathlab flow`.
#[derive(Args)]
pub struct FlowArgs {
    #[command(subcommand)]
    command: FlowCommand,
}

#[derive(Subcommand)]
enum FlowCommand {
    /// Show what rules do with one frame, step by step.
    Trace(TraceArgs),
    /// Show how rules become machine code: every stage, and the code.
    Compile(compile::CompileArgs),
    /// Say how each table of rules is looked up, why, and what a frame costs there.
    Plan(compile::CompileArgs),
    /// Add rules to a switch.
    Add(rules::ChangeArgs),
    /// Change the actions of rules of a switch.
    Mod(rules::ChangeArgs),
    /// Delete rules of a switch.
    Del(rules::ChangeArgs),
    /// Print the rules of a switch.
    Dump(rules::DumpArgs),
    /// Report changes to the rules of a switch as they happen.
    ///
    /// It needs OpenFlow 1.4. ovs-ofctl can do the same: `ovs-ofctl -O OpenFlow13 monitor SWITCH watch:`, but in OpenFlow 1.4
    /// `watch:` alone asks for the client's own changes only, and `-O OpenFlow14 monitor SWITCH 'watch:!own'` for all others.
    Monitor(monitor::MonitorArgs),
    /// Compare the rules of a switch with those of a file.
    Diff(rules::DiffArgs),
    /// Have a switch send a frame.
    PacketOut(state::PacketOutArgs),
    /// Print or change the groups of a switch.
    Groups(state::ListArgs),
    /// Print or change the meters of a switch.
    Meters(state::ListArgs),
    /// Print the ports of a switch and their counters.
    Ports(ask::AskArgs),
    /// Print the queues of a switch's ports, their rates and counters.
    Queues(queues::QueuesArgs),
    /// Print the tables of a switch that have rules or have seen frames.
    Tables(ask::AskArgs),
    /// Describe a switch.
    Show(ask::AskArgs),
}

#[derive(Args)]
struct TraceArgs {
    /// A file of rules, groups and meters as ovs-ofctl writes them, one per line; may be given more than once.
    #[arg(long, value_name = "FILE", required = true)]
    rules: Vec<String>,
    /// The frame: fields ('in_port=1,tcp,nw_dst=10.0.0.2'), layers ('eth / vlan vid=5 / ip / udp'), hexadecimal digits, or
    /// pcap:FILE.
    frame: String,
    /// The port by which it comes in, unless the frame says so itself.
    #[arg(long, value_name = "PORT", default_value = "1")]
    in_port: String,
    /// Which frame of a capture file, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    number: u64,
    /// Do these actions with the frame, as a packet-out does, instead of sending it through the tables.
    #[arg(long, value_name = "ACTIONS")]
    packet_out: Option<String>,
}

/// Carries out what was asked for.
pub fn run(args: FlowArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    match args.command {
        FlowCommand::Trace(args) => tell(&args, output),
        FlowCommand::Compile(args) => compile::compile(&args, output),
        FlowCommand::Plan(args) => compile::plan(&args, output),
        FlowCommand::Add(args) => rules::change(FlowModCommand::Add, &args, output),
        FlowCommand::Mod(args) => rules::change(FlowModCommand::Modify, &args, output),
        FlowCommand::Del(args) => rules::change(FlowModCommand::Delete, &args, output),
        FlowCommand::Dump(args) => rules::dump(&args, output),
        FlowCommand::Monitor(args) => monitor::monitor(&args, output),
        FlowCommand::Diff(args) => rules::diff(&args, output),
        FlowCommand::PacketOut(args) => state::packet_out(&args, output),
        FlowCommand::Groups(args) => state::groups(&args, output),
        FlowCommand::Meters(args) => state::meters(&args, output),
        FlowCommand::Ports(args) => state::ports(&args, output),
        FlowCommand::Queues(args) => queues::queues(&args, output),
        FlowCommand::Tables(args) => state::tables(&args, output),
        FlowCommand::Show(args) => state::show(&args, output),
    }
}

fn tell(args: &TraceArgs, output: &Output) -> Result<()> {
    let mut pipeline = load(&args.rules)?;
    let given = Given::read(args)?;
    let name = format!("port{}", given.port);
    let new = || Port::new(given.port, &name, [2, 0, 0, 0, 0, 0]);
    pipeline.ports.entry(given.port).or_insert_with(new);
    let actions = packet_out(args, &pipeline, given.port)?;
    let mut arrival = InputFrame::new(given.port, &given.frame);
    arrival.tunnel_id = given.tunnel_id;
    let trace = trace::trace(&mut pipeline, 0, arrival, actions.as_deref());
    output.result(&document(&trace), |_| trace.text())
}

/// A switch with the rules of these files.
fn load(files: &[String]) -> Result<Pipeline> {
    let mut pipeline = Pipeline::default();
    for path in files {
        let text = read_text(path, "cannot be read")?;
        file::load(&mut pipeline, &text).map_err(|error| Problem::input(error.to_string()).at(path))?;
    }
    Ok(pipeline)
}

/// The actions of `--packet-out`, checked.
fn packet_out(args: &TraceArgs, pipeline: &Pipeline, port: PortNo) -> Result<Option<Vec<Action>>> {
    let wrong = |what: String| Problem::input(what).at("--packet-out");
    let Some(text) = &args.packet_out else { return Ok(None) };
    let actions = action::list(Piece::line(text)).map_err(|error| wrong(error.to_string()))?;
    pipeline.check_packet_out(port, &actions).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(actions))
}

fn document(trace: &Trace) -> impl Serialize {
    let steps = trace.lines.iter().map(|line| {
        object! { depth: line.depth, kind: line.kind, text: &line.text }
    });
    object! {
        schema: "pathlab/flow-trace/1",
        steps: steps.collect::<Vec<_>>(),
        sent: trace.verdict.sent.iter().map(sent).collect::<Vec<_>>(),
        packet_ins: trace.verdict.packet_ins.iter().map(packet_in).collect::<Vec<_>>(),
    }
}

fn sent(one: &OutputFrame) -> Fields {
    let mut fields = vec![("port", Value::from(one.port.to_string()))];
    fields.extend(one.queue.map(|queue| ("queue", queue.into())));
    fields.push(("hex", hex(&one.frame).into()));
    Fields(fields)
}

fn packet_in(one: &PacketIn) -> Fields {
    let mut fields = vec![("reason", Value::from(format!("{:?}", one.reason))), ("table", one.table.into())];
    fields.extend((one.cookie != NO_COOKIE).then(|| ("cookie", format!("{:#x}", one.cookie).into())));
    fields.push(("metadata", format!("{:#x}", one.metadata).into()));
    fields.extend([("total_bytes", one.total_len.into()), ("hex", hex(&one.frame).into())]);
    Fields(fields)
}

/// The frame and what the switch knows about it.
struct Given {
    port: PortNo,
    tunnel_id: u64,
    frame: Vec<u8>,
}

impl Given {
    fn read(args: &TraceArgs) -> Result<Given> {
        let wrong = |what: String| Problem::input(what).at("FRAME");
        let port = value::port(Piece::line(&args.in_port));
        let port = port.map_err(|error| Problem::input(error.to_string()).at("--in-port"))?;
        let text = args.frame.trim();
        let is_hex = !text.is_empty() && text.chars().all(|letter| letter.is_ascii_hexdigit());
        let bare = |frame| Given { port, tunnel_id: 0, frame };
        if let Some(file) = text.strip_prefix("pcap:") {
            return recorded(file, args.number).map(bare);
        }
        if is_hex || text == "eth" || text.starts_with("eth ") {
            return frame::parse(text).map(bare).map_err(|error| wrong(error.to_string()));
        }
        let matching = rule::parse_match(text).map_err(|error| wrong(error.to_string()))?;
        let frame = frame::of_match(&matching).map_err(wrong)?;
        let port = matching.exact(Field::InPort).map_or(port, |number| PortNo(number as u32));
        let tunnel_id = matching.exact(Field::TunnelId).unwrap_or(0) as u64;
        Ok(Given { port, tunnel_id, frame })
    }
}

/// One frame of a capture file.
fn recorded(file: &str, number: u64) -> Result<Vec<u8>> {
    let recording = Recording::read(file, false, None)?;
    let frames = recording.len();
    if number > frames {
        return Err(Problem::input(format!("there are {frames} frames, and no number {number}")).at(file));
    }
    Ok(recording.frame(number - 1).to_vec())
}

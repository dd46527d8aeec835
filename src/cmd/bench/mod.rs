//! `pathlab bench`: pathlab measured against its peers, as ratios in one run.

mod flow;
mod null;
mod peers;
mod ports;
mod switch;
mod trials;
mod updates;

use crate::output::Output;
use clap::{Args, Subcommand};

/// Flags of `pathlab bench`.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compare with netperf and iperf3 in one lab, interleaved: TCP stream, small datagrams, TCP request/response.
    Peers(peers::PeersArgs),
    /// Measure reception, as in the libtrace diary's experiment: port kind × frame size × ring size × offered rate, loss by place and CPU cost.
    Capture(ports::CaptureArgs),
    /// Measure transmission: port kind × frame size, frames per second, CPU cost.
    Send(ports::SendArgs),
    /// Measure the smallest forwarder over every pairing of ports: Mframe/s and copies per frame.
    Null(null::NullArgs),
    /// Measure switches over wires, by ports, engine and number of rules, beside the kernel's bridge, the smallest forwarder and Open vSwitch: frames/s, TCP, ping, CPU, memory.
    Switch(switch::SwitchBenchArgs),
    /// Measure what changes of rules cost the frames that go through meanwhile: changes per second, the longest pause, memory by rule.
    Updates(updates::UpdatesArgs),
    /// Measure how often a trial is right: of two labs that are alike, of a knob that nothing feels, and of two shapers of which one lets a tenth
    /// more through.
    Trial(trials::TrialBenchArgs),
    /// Measure pipelines alone, from memory on one core: nanoseconds per frame of compiled code and of the interpreter, by rules and flows.
    Flow(flow::FlowArgs),
}

/// Runs the command.
pub fn run(args: BenchArgs, output: &Output) -> record::Result<()> {
    match args.what {
        What::Peers(args) => peers::run(args, output),
        What::Capture(args) => ports::capture(args, output),
        What::Send(args) => ports::send(args, output),
        What::Null(args) => null::run(args, output),
        What::Switch(args) => switch::run(args, output),
        What::Updates(args) => updates::run(args, output),
        What::Trial(args) => trials::run(args, output),
        What::Flow(args) => flow::run(args, output),
    }
}

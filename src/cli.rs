//! The one table of commands: help, completion, man pages and dispatch all come from it.

use crate::cmd;
use crate::output::Output;
use clap::{CommandFactory, Parser, Subcommand};

/// A laboratory for network data paths: where every frame went, why the path is slow, and the proof of the fix.
#[derive(Parser)]
#[command(name = "pathlab", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 the measured thing failed its criterion, 2 bad input, \
                        3 this host cannot (which capability, what helps), 130 interrupted.")]
pub struct Cli {
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Every command.
#[derive(Subcommand)]
pub enum Command {
    /// Build, inspect and take down labs: nodes and links inside this machine.
    Lab(cmd::lab::LabArgs),
    /// Clean up after pathlab commands that were killed.
    Undo,
    /// Measure a path: build it, send traffic, report where every frame went and what limited it.
    Run(cmd::run::RunArgs),
    /// Show which of two paths, topologies or plans is better: pairs in random order, with intervals.
    Compare(cmd::compare::CompareArgs),
    /// Show whether a change of a knob helps: pairs with and without it; kept when it does, put back when not.
    Prove(cmd::prove::ProveArgs),
    /// Run test cases: two arms each, and whether the second is what was expected.
    Case(cmd::case::CaseArgs),
    /// List the records of runs.
    Runs(cmd::runs::RunsArgs),
    /// Print the record of a run again.
    Show(cmd::show::ShowArgs),
    /// Write runs as one self-contained HTML page.
    Report(cmd::report::ReportArgs),
    /// Serve tests from other machines.
    Serve(cmd::serve::ServeArgs),
    /// Measure one kind of traffic to a host that runs `pathlab serve`.
    Test(cmd::test::TestArgs),
    /// Run a pathlab command in a virtual machine: another kernel, with network cards that have drivers.
    Vm(cmd::vm::VmArgs),
    /// The first process of a virtual machine.
    #[command(hide = true)]
    FirstProcess,
    /// One end of a test, started by pathlab itself inside a node.
    #[command(hide = true)]
    Agent,
    /// Capture frames: count them, write them, account for those lost.
    Capture(cmd::capture::CaptureArgs),
    /// Send frames: from a template, from a capture file, or by the kernel itself.
    Send(cmd::send::SendArgs),
    /// Follow a flow that somebody else sends: count it at every interface, name where its frames are lost.
    Follow(cmd::follow::FollowArgs),
    /// Watch every frame that dies on this host or in a lab: why, where, whose.
    Drops(cmd::drops::DropsArgs),
    /// Sample every TCP connection: what it does, and what holds it back.
    Tcp(cmd::tcp::TcpArgs),
    /// Watch interfaces, queues, CPUs, interrupts and sockets, and where a path loses frames.
    Watch(cmd::watch::WatchArgs),
    /// Show how an interface's frames meet the CPUs: interrupts, polls, completions, queues.
    Llstat(cmd::llstat::LlstatArgs),
    /// Explain a counter, a drop, a reason of the kernel, a knob, a kind or a word: what moves it, and what does not.
    Explain(cmd::explain::ExplainArgs),
    /// Export the counters of a host, of namespaces, of a lab or of a finished run: for Prometheus, by OpenTelemetry, or once as text.
    Export(cmd::export::ExportArgs),
    /// Show, set and undo the knobs of interfaces, namespaces and the machine.
    Tune(cmd::tune::TuneArgs),
    /// Find what costs this host or a lab throughput, latency or frames: 123 rules over what is set and what moves.
    Doctor(cmd::doctor::DoctorArgs),
    /// Write down what a host is set to and what its counters do, for doctor.
    Facts(cmd::facts::FactsArgs),
    /// Join what send and capture recorded in two places: one ledger of the path between them.
    Join(cmd::join::JoinArgs),
    /// Move every frame from one port to another: the smallest forwarder.
    Null(cmd::null::NullArgs),
    /// Run an OpenFlow switch, or several.
    Switch(cmd::switch::SwitchArgs),
    /// Trace a frame through OpenFlow rules; list or change the rules of a switch.
    Flow(cmd::flow::FlowArgs),
    /// Run a controller for OpenFlow switches, for experiments.
    Controller(cmd::controller::ControllerArgs),
    /// Create the command names that Mininet expects: ofdatapath, ofprotocol, dpctl, controller.
    Shims(cmd::shims::ShimsArgs),
    /// Benchmark pathlab itself against comparable tools.
    Bench(cmd::bench::BenchArgs),
    /// Print the completion script of a shell.
    Completions(cmd::completions::CompletionsArgs),
    /// Write the manual pages.
    Man(cmd::completions::ManArgs),
}

/// Does what the command line asks for.
pub fn dispatch(command: Command, output: &Output) -> record::Result<()> {
    match command {
        Command::Lab(args) => cmd::lab::run(args, output),
        Command::Undo => cmd::undo::run(output),
        Command::Run(args) => cmd::run::run(args, output),
        Command::Compare(args) => cmd::compare::run(args, output),
        Command::Prove(args) => cmd::prove::run(args, output),
        Command::Case(args) => cmd::case::run(args, output),
        Command::Runs(args) => cmd::runs::run(args, output),
        Command::Show(args) => cmd::show::run(args, output),
        Command::Report(args) => cmd::report::run(args, output),
        Command::Serve(args) => cmd::serve::run(args, output),
        Command::Test(args) => cmd::test::run(args, output),
        Command::Vm(args) => {
            // A command line that is wrong is refused here and now, and not by the machine.
            let is_nested = matches!(parsed(args.words.clone()).command, Command::Vm(_));
            cmd::vm::run(args, is_nested, output)
        }
        Command::FirstProcess => cmd::vm::first_process(),
        Command::Agent => cmd::agent::run(),
        Command::Capture(args) => cmd::capture::run(args, output),
        Command::Send(args) => cmd::send::run(args, output),
        Command::Follow(args) => cmd::follow::run(args, output),
        Command::Drops(args) => cmd::drops::run(args, output),
        Command::Tcp(args) => cmd::tcp::run(args, output),
        Command::Watch(args) => cmd::watch::run(args, output),
        Command::Llstat(args) => cmd::llstat::run(args, output),
        Command::Explain(args) => cmd::explain::run(args, output),
        Command::Export(args) => cmd::export::run(args, output),
        Command::Tune(args) => cmd::tune::run(args, output),
        Command::Doctor(args) => cmd::doctor::run(args, output),
        Command::Facts(args) => cmd::facts::run(args, output),
        Command::Join(args) => cmd::join::run(args, output),
        Command::Null(args) => cmd::null::run(args, output),
        Command::Switch(args) => cmd::switch::run(args, output),
        Command::Flow(args) => cmd::flow::run(args, output),
        Command::Controller(args) => cmd::controller::run(args, output),
        Command::Shims(args) => cmd::shims::run(args, output),
        Command::Bench(args) => cmd::bench::run(args, output),
        Command::Completions(args) => cmd::completions::completions(args, Cli::command(), output),
        Command::Man(args) => cmd::completions::man(args, Cli::command(), output),
    }
}

/// Carries out the words of a command line, without the program's name.
pub fn carry_out(words: Vec<String>, output: &Output) -> record::Result<()> {
    dispatch(parsed(words).command, output)
}

/// The words of a command line, without the program's name; ends the process with what is wrong with them.
fn parsed(words: Vec<String>) -> Cli {
    Cli::parse_from(std::iter::once("pathlab".to_owned()).chain(words))
}

//! `pathlab lab`: build labs, look at them, run programs in them, take them down.
//!
//! Without root, `lab up` starts a holder (`lab hold`, hidden): a process in a user namespace of its own that builds the
//! lab and stays until `lab down` ends it. The topology goes to it on standard input, and one line of JSON comes back.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};
use experiment::programs;
use linux::lab::{
    self, CheckLine, Lab, LabInfo, Lifetime, NodeProcess, ProgramInfo, RoutingCheck, State, Topology,
};
use linux::sys::{clock, process, userns};
use linux::undo;
use record::unit::{many, time_ns};
use record::{Problem, Result};

use crate::output::{Notices, Output, object, table};

/// Flags of `pathlab lab`.
#[derive(Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Build a lab that stays up until `lab down`.
    Up {
        /// A topology file, or one of pair, bridge, router, bottleneck, line3, null, switch, ovs, ecmp, rule,
        /// vxlan, macvlan, ipvlan, bond, bond-vlan, bridge-address, wan.
        file: String,
        /// The lab's name [default: the file's name without its ending].
        #[arg(long)]
        name: Option<String>,
    },
    /// Take a lab down.
    Down {
        /// The lab's name.
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Every lab of this user.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List this user's labs.
    List,
    /// Run a program in a node; its exit code becomes this command's.
    Exec {
        /// The lab's name.
        name: String,
        /// The node's name.
        node: String,
        /// The program and its arguments, after `--`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Compare a running lab with its topology; exit with code 1 if something differs.
    Check {
        /// The lab's name.
        name: String,
    },
    /// Print a topology as it was read.
    Show {
        /// A topology file, or one of pair, bridge, router, bottleneck, line3, null, switch, ovs, ecmp, rule,
        /// vxlan, macvlan, ipvlan, bond, bond-vlan, bridge-address, wan.
        file: String,
    },
    /// Hold the lab of an unprivileged user; started by `lab up`.
    #[command(hide = true)]
    Hold {
        /// The lab's name.
        name: String,
    },
}

/// Runs the command.
pub fn run(args: LabArgs, output: &Output) -> Result<()> {
    if !matches!(args.command, LabCommand::Hold { .. } | LabCommand::Show { .. }) {
        clean(output)?;
    }
    match args.command {
        LabCommand::Up { file, name } => up(&file, name, output),
        LabCommand::Down { name: Some(name), .. } => down(&[name], output),
        LabCommand::Down { name: None, .. } => down(&down_all(output)?, output),
        LabCommand::List => list(output),
        LabCommand::Exec { name, node, command } => Err(exec(&name, &node, &command)),
        LabCommand::Check { name } => check(&name, output),
        LabCommand::Show { file } => show(&file, output),
        LabCommand::Hold { name } => hold(&name),
    }
}

/// What killed commands left behind is removed first; failing to remove it is no reason to refuse other work.
fn clean(output: &Output) -> Result<()> {
    match undo::open()?.clean() {
        Ok(undone) => {
            undone.iter().for_each(|name| output.note(&format!("undid '{name}', whose owner is gone")))
        }
        Err(problem) => output.problem(&problem),
    }
    Ok(())
}

fn up(file: &str, name: Option<String>, output: &Output) -> Result<()> {
    let topology = load(file)?;
    let name = name.unwrap_or_else(|| Topology::default_name(file));
    let begun = clock::monotonic_ns();
    build(&topology, &name)?;
    let milliseconds = (clock::monotonic_ns() - begun) as f64 / 1e6;
    let text = topology.to_string();
    let document = object! { schema: "pathlab/lab-up/1", lab: &name, milliseconds, topology: text };
    output.result(&document, |_| {
        let nodes = many(topology.nodes.len() as u64, "node");
        let links = many(topology.links.len() as u64, "link");
        format!("lab {name} is up: {nodes}, {links}, built in {}", time_ns(milliseconds * 1e6))
    })
}

/// Builds the lab here, or without root in a holder.
fn build(topology: &Topology, name: &str) -> Result<()> {
    if userns::outer_uid() != 0 {
        return start_holder(topology, name);
    }
    experiment::interruptible()?;
    programs::up(topology, name, Lifetime::Persistent).map(drop)
}

/// Starts the holder and waits until the lab is up, or for the problem that keeps it from being built.
fn start_holder(topology: &Topology, name: &str) -> Result<()> {
    let told = |error: std::io::Error| Problem::host(format!("cannot start the lab's holder: {error}"));
    let program = std::env::current_exe().map_err(told)?;
    let mut holder = Command::new(program)
        .args(["lab", "hold", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(told)?;
    if let Some(mut text) = holder.stdin.take() {
        // If the holder has died already, its missing answer says so.
        let _ = text.write_all(topology.to_string().as_bytes());
    }
    let mut line = String::new();
    if let Some(answer) = holder.stdout.take() {
        BufReader::new(answer).read_line(&mut line).map_err(told)?;
    }
    match serde_json::from_str::<Option<Problem>>(&line) {
        Ok(problem) => problem.map_or(Ok(()), Err),
        Err(_) => Err(Problem::host("the lab's holder died before the lab was up")),
    }
}

/// The holder: builds the lab, reports it, and stays.
fn hold(name: &str) -> Result<()> {
    let told = |error: std::io::Error| Problem::host(format!("cannot hold the lab: {error}"));
    let end = process::detach().map_err(told)?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(told)?;
    let built = lab::enter_user_namespace()
        .and_then(|()| Topology::parse(&text, name))
        .and_then(|topology| programs::up(&topology, name, Lifetime::Persistent));
    let line = serde_json::to_string(&built.as_ref().err()).map_err(|e| Problem::host(e.to_string()))?;
    // If the caller is gone, this process ends, and the next command removes its journal.
    let heard = writeln!(std::io::stdout(), "{line}");
    let mut lab = built?;
    if heard.is_ok() {
        end.wait().map_err(told)?;
    }
    lab.release();
    Ok(())
}

/// The labs that `lab down --all` takes down: all but those that a running process builds or uses.
fn down_all(output: &Output) -> Result<Vec<String>> {
    let free = |lab: &LabInfo| !matches!(lab.state, State::Building | State::Owned) && lab.user.is_none();
    let (mine, busy): (Vec<LabInfo>, Vec<LabInfo>) = Lab::list(&undo::open()?).into_iter().partition(free);
    for LabInfo { name, owner, user, .. } in busy {
        let pid = owner.map_or("?".into(), |pid| pid.to_string());
        output.note(&match user {
            Some(user) => format!("'{name}' is used by process {user}; it stays"),
            None => format!("'{name}' belongs to process {pid}, which runs; it goes when that process ends"),
        });
    }
    Ok(mine.into_iter().map(|lab| lab.name).collect())
}

fn down(names: &[String], output: &Output) -> Result<()> {
    let journals = undo::open()?;
    let (mut gone, mut processes, mut problems) = (vec![], vec![], vec![]);
    for name in names {
        match lab::take_down(&journals, name) {
            Ok(inside) => {
                gone.push(name.as_str());
                processes.extend(inside);
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(linux::tune::kept::forget_gone(&journals).err());
    for NodeProcess { node, pid, process } in &processes {
        output
            .note(&format!("process {pid} ({process}) still runs in what was node {node}; it was not ended"));
    }
    let document = object! { schema: "pathlab/lab-down/2", down: &gone, processes };
    output.result(&document, |_| match gone.is_empty() {
        true => "no lab was taken down".into(),
        false => format!("down: {}", gone.join(", ")),
    })?;
    problems.iter().skip(1).for_each(|problem| output.problem(problem));
    problems.into_iter().next().map_or(Ok(()), Err)
}

fn list(output: &Output) -> Result<()> {
    let document = object! { schema: "pathlab/lab-list/2", labs: Lab::list(&undo::open()?) };
    output.result(&document, |document| match document.labs.as_slice() {
        [] => "no labs; build one with 'pathlab lab up bridge'".into(),
        labs => words(&["NAME", "STATE", "LINKS", "NODES", "PROGRAMS"], labs.iter().map(lab_row).collect()),
    })
}

fn lab_row(lab: &LabInfo) -> Vec<String> {
    let programs: Vec<String> = lab.programs.iter().map(program_words).collect();
    vec![lab.name.clone(), state(lab), lab.links.to_string(), lab.nodes.join(" "), programs.join(", ")]
}

/// What state a lab is in, and the processes that have to do with it.
fn state(lab: &LabInfo) -> String {
    let state = match (lab.state, lab.owner) {
        (State::Building, Some(pid)) => format!("being built by {pid}"),
        (State::Held, Some(pid)) => format!("up, held by {pid}"),
        (State::Owned, Some(pid)) => format!("used by {pid}"),
        (State::Damaged, _) if lab.gone.is_empty() => "damaged".into(),
        (State::Damaged, _) => format!("damaged: {} gone", lab.gone.join(" ")),
        _ => "up".into(),
    };
    state + &lab.user.map_or(String::new(), |user| format!(", used by {user}"))
}

/// `switch in s`, and whether it has ended.
fn program_words(program: &ProgramInfo) -> String {
    let ended = if program.alive { "" } else { " (ended)" };
    format!("{} in {}{ended}", program.role, program.node)
}

/// A lab that is up, in the user namespace of its holder.
fn open(name: &str) -> Result<Lab> {
    let journals = undo::open()?;
    lab::join_user_namespace(&journals, name)?;
    Lab::open(&journals, name)
}

/// Becomes the program, inside the node; comes back only with a problem.
fn exec(name: &str, node: &str, command: &[String]) -> Problem {
    if let Err(problem) = open(name).and_then(|lab| lab.node(node)?.enter()) {
        return problem;
    }
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    Problem::input(format!("cannot run '{}': {}", command[0], process::replace_by(program)))
}

fn check(name: &str, output: &Output) -> Result<()> {
    let lab = open(name)?;
    let (lines, routing) = (lab.check()?, lab.check_routing()?);
    let differing = lines.iter().filter(|line| !line.differences.is_empty()).count();
    let astray: Vec<&RoutingCheck> = routing.iter().filter(|node| !node.differences.is_empty()).collect();
    let programs: Vec<ProgramInfo> = lab.programs().iter().map(ProgramInfo::from).collect();
    let document = object! {
        schema: "pathlab/lab-check/2", lab: name, interfaces: &lines, differing, routing: &routing,
        programs: &programs,
    };
    output
        .result(&document, |_| check_table(&lines) + &routing_table(&astray) + &program_table(&programs))?;
    let differing = match (differing, &astray[..]) {
        (0, []) => None,
        (0, [first, ..]) => Some(format!("the routing of node {} differs from the topology", first.node)),
        (some, _) => Some(format!("{some} of {} interfaces differ from the topology", lines.len())),
    };
    verdict(name, differing, &programs)
}

/// Code 1 when a program of the lab has ended, or when something differs from the topology.
fn verdict(name: &str, differing: Option<String>, programs: &[ProgramInfo]) -> Result<()> {
    let again = format!("'pathlab lab down {name}' and 'pathlab lab up …'");
    let (what, advice) = match (programs.iter().find(|program| !program.alive), differing) {
        (None, None) => return Ok(()),
        (None, Some(what)) => (what, format!("build it again with {again}, or measure it as found")),
        (Some(gone), _) => (
            format!("the {} of node {} has ended", gone.role, gone.node),
            format!("build the lab again with {again}"),
        ),
    };
    Err(Problem::measured(what).at(format!("lab {name}")).help(advice))
}

fn check_table(lines: &[CheckLine]) -> String {
    let heads =
        ["INTERFACE", "STATE", "MTU", "QDISC", "RXQ", "TXQ", "TSO", "GSO", "GRO", "TX", "RX", "DIFFERS"];
    words(&heads, lines.iter().map(check_row).collect())
}

fn check_row(line: &CheckLine) -> Vec<String> {
    let state = match (line.up, line.carrier) {
        (true, true) => "up",
        (true, false) => "no carrier",
        (false, _) => "down",
    };
    let count = |queues: Option<u32>| queues.map_or("-".into(), |queues| queues.to_string());
    let mut row = vec![format!("{}:{}", line.node, line.interface), state.into(), line.mtu.to_string()];
    row.extend([line.qdisc.clone(), count(line.rx_queues), count(line.tx_queues)]);
    row.extend(["tso", "gso", "gro", "tx", "rx"].map(|word| switch_word(line.offloads.get(word)).into()));
    row.push(if line.differences.is_empty() { "-".into() } else { line.differences.join("; ") });
    row
}

fn switch_word(is_on: Option<&bool>) -> &'static str {
    match is_on {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

/// The nodes whose routes or policy rules are not those of the topology.
fn routing_table(astray: &[&RoutingCheck]) -> String {
    let row = |check: &&RoutingCheck| vec![check.node.clone(), check.differences.join("; ")];
    match astray {
        [] => String::new(),
        _ => format!("\n{}", words(&["NODE", "ROUTING DIFFERS"], astray.iter().map(row).collect())),
    }
}

fn program_table(programs: &[ProgramInfo]) -> String {
    let heads = ["NODE", "PROGRAM", "PID", "STATE", "OPENFLOW"];
    match programs {
        [] => String::new(),
        _ => format!("\n{}", words(&heads, programs.iter().map(program_row).collect())),
    }
}

fn program_row(program: &ProgramInfo) -> Vec<String> {
    let state = if program.alive { "runs" } else { "ended" };
    let openflow = program.openflow.clone().unwrap_or("-".into());
    vec![program.node.clone(), program.role.clone(), program.pid.to_string(), state.into(), openflow]
}

/// A table of words, as wide as it needs to be.
fn words(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    table(heads.len(), heads, rows).text_within(usize::MAX, &[])
}

fn show(file: &str, output: &Output) -> Result<()> {
    let topology = load(file)?.to_string();
    let document = object! { schema: "pathlab/lab-show/1", file, topology: &topology };
    output.result(&document, |_| topology.clone())
}

/// Reads a topology whose programs can be started here.
fn load(file: &str) -> Result<Topology> {
    let topology = Topology::load(file)?;
    programs::check(&topology)?;
    Ok(topology)
}

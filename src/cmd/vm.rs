//! `pathlab vm`: a command of this program, carried out in a virtual machine.

use crate::output::{Notices, Output};
use clap::Args;
use clap::builder::PossibleValuesParser;
use linux::lab::Topology;
use linux::netlink::StaticRoute;
use linux::vm::{
    self, ACCELERATORS, Accelerator, Heard, Kernel, MOST_CABLES, MOST_CPUS, MOST_WIRES, NIC_MODELS,
    VirtualMachine, Wire,
};
use record::unit::many;
use record::{Problem, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Folders that a machine has for itself.
const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// Variables that a command in a machine has as here, besides those of this program.
const PASSED: [&str; 3] = ["NO_COLOR", "TERM", "RUST_BACKTRACE"];
/// Variables of this program that say where things are on this host.
const OF_HOST: [&str; 4] = [linux::vm::VARIABLE, "PATHLAB_OVS", "PATHLAB_STATE", linux::lab::CABLES];

/// Flags of `pathlab vm`.
#[derive(Args)]
#[command(
    after_help = "The machine shares the current folder with this host: plans are read there, and records kept. Nothing else of this host is there."
)]
pub struct VmArgs {
    /// The kernel, a vmlinuz file [default: the newest in /boot].
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// The folder of the kernel's modules [default: lib/modules/RELEASE beside the kernel's folder].
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// The driver of the network cards.
    #[arg(long, value_name = "MODEL", default_value = NIC_MODELS[0].word,
        value_parser = PossibleValuesParser::new(NIC_MODELS.iter().map(|nic| nic.word)))]
    nic: String,
    /// Pairs of network cards, linked to each other. Each link of a topology takes one.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=i64::from(MOST_CABLES)))]
    cables: u8,
    /// A network card more, whose wire leads out of the machine: to a tap of this host (tap:NAME) or to another machine (unix:PATH), with its addresses
    /// and its name [default: wire0, wire1, …].
    #[arg(long = "wire", value_name = "[CARD@]END[=ADDRESS/LENGTH,…]")]
    wires: Vec<String>,
    /// A route of the machine: NETWORK via ADDRESS, or default via ADDRESS. Several times for several.
    #[arg(long = "route", value_name = "ROUTE")]
    routes: Vec<String>,
    /// A kernel setting of the machine, from before its cards are on: net.ipv4.ip_forward=1. Several times for several.
    #[arg(long = "sysctl", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Make the machine a node of a topology (NODE@FILE): each of its ends of links is a --wire of that name, and it has all that the topology says of the node.
    #[arg(long = "as", value_name = "NODE@TOPOLOGY", conflicts_with_all = ["routes", "settings"])]
    node: Option<String>,
    /// CPUs.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_CPUS)))]
    cpus: u8,
    /// Memory.
    #[arg(long, value_name = "BYTES", default_value = "1Gi")]
    memory: String,
    /// What carries the machine out: the CPU (kvm), or QEMU in software (emulation), whose clock is not to be trusted.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = ACCELERATORS)]
    accel: String,
    /// The command and its arguments, without 'pathlab'.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Runs the command; one that is nested would start another machine.
pub fn run(args: VmArgs, is_nested: bool, output: &Output) -> Result<()> {
    if is_nested {
        return Err(Problem::input("a virtual machine in a virtual machine").help("leave one 'vm' out"));
    }
    let folder = folder()?;
    let mut words = args.words.clone();
    if output.json && !words.iter().any(|word| word == "--json") {
        words.insert(0, "--json".into());
    }
    let machine = machine(&args)?;
    experiment::interruptible()?;
    let VirtualMachine { kernel, cpus, cables, wires, .. } = &machine;
    let parts = [many(u64::from(*cpus), "CPU"), many(u64::from(*cables), "cable")].join(", ");
    let wires = wires.iter().enumerate();
    let wires = wires.map(|(number, wire)| format!(", {} to {wire}", wire.card(number)));
    output.note(&format!(
        "starting a virtual machine: kernel {}, {parts} between {} cards{}",
        kernel.release,
        args.nic,
        wires.collect::<String>()
    ));
    let mut hear = |heard: Heard<'_>| {
        let written = match heard {
            Heard::Output(bytes) => write(&mut std::io::stdout(), bytes),
            Heard::Errors(bytes) => write(&mut std::io::stderr(), bytes),
            Heard::Note(sentence) => {
                output.note(&sentence);
                Ok(())
            }
        };
        written.map_err(|error| Problem::host(format!("cannot write what the virtual machine says: {error}")))
    };
    match machine.run(&folder, environment(), words, &mut hear)? {
        0 => Ok(()),
        // The command has said why.
        code => std::process::exit(i32::from(code)),
    }
}

fn write(to: &mut dyn Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// The first process of a machine; does not return.
pub fn first_process() -> Result<()> {
    if std::process::id() != 1 {
        return Err(
            Problem::input("this is for the first process of a virtual machine").help("see 'pathlab vm'")
        );
    }
    Err(Problem::host(linux::vm::first_process().to_string()))
}

fn machine(args: &VmArgs) -> Result<VirtualMachine> {
    let memory_mb = vm::memory_mb(&args.memory).map_err(|problem| problem.at("--memory"))?;
    if args.wires.len() > MOST_WIRES {
        return Err(
            Problem::input(format!("{MOST_WIRES} wires are the most that a machine has")).at("--wire")
        );
    }
    let wire = |text: &String| Wire::parse(text).map_err(|problem| problem.at("--wire"));
    let wires = args.wires.iter().map(wire).collect::<Result<Vec<_>>>()?;
    let route = |text: &String| {
        let wrong = || Problem::input(format!("'{text}' is no route")).at("--route");
        StaticRoute::parse(text)
            .ok_or_else(|| wrong().help("write '10.0.2.0/24 via 10.0.1.1' or 'default via 10.0.1.1'"))
    };
    let setting = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or_default();
        let wrong = || Problem::input(format!("'{text}' is no kernel setting")).at("--sysctl");
        let is_one = linux::lab::sysctl_key(key).is_ok() && !value.is_empty();
        is_one.then(|| (key.into(), value.into())).ok_or_else(|| wrong().help("write net.ipv4.ip_forward=1"))
    };
    let routes = args.routes.iter().map(route).collect::<Result<Vec<_>>>()?;
    let settings = args.settings.iter().map(setting).collect::<Result<Vec<_>>>()?;
    let node = args.node.as_deref().map(|text| node(text, &wires).map_err(|problem| problem.at("--as")));
    let node = node.transpose()?;
    let modules = args.modules.as_deref();
    let kernel = match &args.kernel {
        Some(file) => Kernel::at(file, modules)?,
        None => Kernel::newest(modules)?,
    };
    Ok(VirtualMachine {
        kernel,
        cpus: args.cpus,
        memory_mb,
        nic: *NIC_MODELS.iter().find(|nic| nic.word == args.nic).unwrap_or(&NIC_MODELS[0]),
        cables: args.cables,
        wires,
        settings,
        routes,
        node,
        accelerator: Accelerator::named(&args.accel),
    })
}

/// The node of a topology, whose ends of links these wires must be, and the topology's text.
fn node(text: &str, wires: &[Wire]) -> Result<(String, String)> {
    let no_node = || Problem::input(format!("'{text}' is no node of a topology")).help("write NODE@FILE.lab");
    let (name, file) = text.split_once('@').ok_or_else(no_node)?;
    let topology = Topology::load(file)?;
    topology.node(name).ok_or_else(no_node)?;
    let mut ends: Vec<&str> = topology.ends().filter(|end| end.node == name).map(|end| &*end.name).collect();
    let mut cards: Vec<&str> = wires.iter().filter_map(|wire| wire.name.as_deref()).collect();
    ends.sort_unstable();
    cards.sort_unstable();
    if ends != cards || cards.len() < wires.len() || wires.iter().any(|wire| !wire.addresses.is_empty()) {
        return Err(Problem::input(format!(
            "the wires are not the ends of node {name}: {}",
            ends.join(", ")
        ))
        .help("give one --wire CARD@END for each, without addresses"));
    }
    Ok((name.to_owned(), topology.to_string()))
}

/// The folder that is shared: the current one.
fn folder() -> Result<PathBuf> {
    let folder = std::env::current_dir()
        .map_err(|error| Problem::host(format!("cannot tell the current folder: {error}")))?;
    if folder == Path::new("/") || OWN.iter().any(|own| folder.starts_with(own)) {
        let what = "this folder cannot be shared with a virtual machine, which has its own";
        return Err(Problem::input(what)
            .at(folder.display().to_string())
            .help("change to the folder of your plans"));
    }
    Ok(folder)
}

fn environment() -> Vec<(String, String)> {
    let is_passed =
        |name: &str| (name.starts_with("PATHLAB_") && !OF_HOST.contains(&name)) || PASSED.contains(&name);
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_passed(name))
        .collect()
}

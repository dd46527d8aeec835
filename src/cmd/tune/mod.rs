//! `pathlab tune`: the settings of interfaces, namespaces and the machine: shown, changed, undone.
//!
//! Each command does its work on a thread that is in the namespace it is about; what was changed stays in journals, which belong to the
//! user and not to a namespace, so `undo` and `diff` without a file look into none.

mod profile;
mod search;
mod words;

use super::namespaces;
use crate::output::{Notices, Output, object};
use clap::{Args, Subcommand};
use linux::journal::Journals;
use linux::sys::{netns, process};
use linux::tune::kept::{self, Ask, name_of};
use linux::tune::{irqbalance, list, means, read, row};
use linux::undo;
use record::knob::{ChangeState, KnobChange, KnobReading};
use record::{Problem, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// How often an interrupt is looked for while knobs are held.
const TURN: Duration = Duration::from_millis(20);

/// Flags of `pathlab tune`.
#[derive(Args)]
pub struct TuneArgs {
    /// What to do.
    #[command(subcommand)]
    command: TuneCommand,
}

/// What `pathlab tune` can do.
#[derive(Subcommand)]
enum TuneCommand {
    /// Show knobs: of the namespace and the machine, of an interface, or those that are named.
    Show {
        /// An interface, or names of knobs (ring.rx, 'sysctl net.core.rmem_max'), or both.
        #[arg(value_name = "INTERFACE|KNOB")]
        words: Vec<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Set knobs; they stay so until they are undone.
    Set(SetArgs),
    /// Set knobs for as long as this command runs.
    Hold(SetArgs),
    /// Put back what was changed, the last change first.
    Undo {
        /// Names of knobs, of an interface as INTERFACE:KNOB.
        #[arg(value_name = "KNOB", required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// Everything that was changed.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Show what was changed and is not undone, or where a profile differs.
    Diff {
        /// A profile of 'tune save'.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        target: Target,
    },
    /// Write the knobs that can be set as a profile: text, a knob a line.
    Save {
        /// Only those of this interface.
        #[arg(value_name = "INTERFACE")]
        interface: Option<String>,
        /// Where to.
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Try combinations of knobs in a lab within a time, prove the best, and keep it when it is better.
    Search(search::SearchArgs),
    /// Set what a profile says and is not so yet; 'tune undo' puts it back.
    Apply {
        /// A profile of 'tune save'.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Change knobs even if the link may go down for a moment.
        #[arg(long)]
        allow_link_flap: bool,
        #[command(flatten)]
        target: Target,
    },
}

/// What to set.
#[derive(Args)]
struct SetArgs {
    /// KNOB=VALUE, as many as wanted, and the interface that they are of (or INTERFACE:KNOB=VALUE).
    #[arg(value_name = "KNOB=VALUE|INTERFACE", required = true)]
    words: Vec<String>,
    /// Change knobs even if the link may go down for a moment.
    #[arg(long)]
    allow_link_flap: bool,
    #[command(flatten)]
    target: Target,
}

/// Which namespace; our own, or all of those in which something was changed, when none is named.
#[derive(Args)]
struct Target {
    /// In this network namespace: a name of 'ip netns', a path, or pid:N of a process.
    #[arg(long = "in", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// In this node of a lab.
    #[arg(long, value_name = "LAB/NODE", conflicts_with = "namespace")]
    lab: Option<String>,
}

/// Runs the command.
pub fn run(args: TuneArgs, output: &Output) -> Result<()> {
    match args.command {
        TuneCommand::Show { words, target } => show(&words, &target, output),
        TuneCommand::Set(args) => set(&args, output),
        TuneCommand::Hold(args) => hold(&args, output),
        TuneCommand::Undo { names, target, .. } => put_back(&names, &target, output),
        TuneCommand::Diff { file: Some(file), target } => profile::diff(&file, &target, output),
        TuneCommand::Diff { file: None, target } => changes(&target, output),
        TuneCommand::Save { interface, output: file, target } => {
            profile::save(interface.as_deref(), &file, &target, output)
        }
        TuneCommand::Search(args) => search::run(args, output),
        TuneCommand::Apply { file, allow_link_flap, target } => {
            profile::apply(&file, allow_link_flap, &target, output)
        }
    }
}

impl Target {
    /// The namespace and what it is called.
    fn open(&self) -> Result<(String, OwnedFd)> {
        let Some(lab) = &self.lab else {
            let name = self.namespace.clone().unwrap_or_else(|| ".".into());
            let opened = namespaces::opened("--in", &[name])?;
            return opened.into_iter().next().ok_or_else(|| Problem::input("no namespace").at("--in"));
        };
        let wrong = || Problem::input("a node of a lab is LAB/NODE").at(lab.clone());
        let (lab, node) = lab.split_once('/').ok_or_else(wrong)?;
        let (lab_up, called) = (namespaces::lab(lab)?, format!("{lab}/{node}"));
        let space = lab_up.node(node)?.netns().try_clone_to_owned();
        Ok((
            called,
            space.map_err(|error| Problem::host(format!("the node {node} cannot be kept: {error}")))?,
        ))
    }

    /// The inode of the namespace that is named; none when none is.
    fn named(&self) -> Result<Option<u64>> {
        if self.lab.is_none() && self.namespace.is_none() {
            return Ok(None);
        }
        let (name, space) = self.open()?;
        let inode = netns::inode(space.as_fd());
        inode
            .map(Some)
            .map_err(|error| Problem::host(format!("the namespace {name} cannot be told: {error}")))
    }

    /// Does something in the namespace, whose name it gets.
    fn within<T: Send>(&self, work: impl FnOnce(&str) -> Result<T> + Send) -> Result<T> {
        if self.lab.is_none() && self.namespace.as_ref().is_none_or(|name| name == ".") {
            // Nobody needs rights to stay where he is.
            return work("host");
        }
        let (name, space) = self.open()?;
        let entered = netns::within(space.as_fd(), || work(&name));
        entered.map_err(|error| Problem::host(format!("the namespace {name} cannot be entered: {error}")))?
    }
}

/// The words of a command line, 'sysctl NAME' as one.
fn joined(words: &[String]) -> Vec<String> {
    let mut words = words.iter();
    let mut all = vec![];
    while let Some(word) = words.next() {
        let name = words.as_slice().first().filter(|_| word == "sysctl");
        all.push(name.map_or(word.clone(), |name| format!("sysctl {name}")));
        if name.is_some() {
            words.next();
        }
    }
    all
}

/// The one interface among the words, if any, and the others.
fn parted(words: &[String], is_interface: impl Fn(&String) -> bool) -> Result<(Option<String>, Vec<String>)> {
    let (interfaces, others): (Vec<String>, Vec<String>) = joined(words).into_iter().partition(is_interface);
    match interfaces.as_slice() {
        [] => Ok((None, others)),
        [one] => Ok((Some(one.clone()), others)),
        [first, second, ..] => {
            Err(Problem::input(format!("'{first}' and '{second}' are two interfaces, or no knobs"))
                .help("write INTERFACE:KNOB to name knobs of several interfaces"))
        }
    }
}

fn show(words: &[String], target: &Target, output: &Output) -> Result<()> {
    let is_interface = |word: &String| row(&name_of(word, None).1).is_none();
    let (interface, names) = parted(words, is_interface)?;
    let (namespace, knobs) = target.within(|space| {
        let knobs = match names.as_slice() {
            [] => list(interface.as_deref())?,
            names => {
                let all = names.iter().map(|name| named(name, interface.as_deref()));
                all.collect::<Result<Vec<_>>>()?.concat()
            }
        };
        Ok((space.to_owned(), knobs))
    })?;
    output.result(&object! { schema: "pathlab/tune-show/1", namespace, knobs }, |document| {
        words::knobs(&document.knobs)
    })
}

fn named(name: &str, interface: Option<&str>) -> Result<Vec<KnobReading>> {
    let (interface, name) = name_of(name, interface);
    read(&name, interface.as_deref())
}

fn asks(words: &[String]) -> Result<Vec<Ask>> {
    let (interface, knobs) = parted(words, |word| !word.contains('='))?;
    if knobs.is_empty() {
        return Err(Problem::input("nothing is to be set: KNOB=VALUE is missing"));
    }
    knobs.iter().map(|knob| Ask::parse(knob, interface.as_deref())).collect()
}

/// What is worth knowing before the change.
fn warn(asks: &[Ask], may_flap: bool, output: &Output) -> Result<()> {
    for ask in asks.iter().filter(|_| may_flap) {
        ask.flap()?.iter().for_each(|what| output.note(what));
    }
    let moves = asks.iter().any(|ask| ask.name.starts_with("irq.affinity"));
    if let Some(pid) = irqbalance().filter(|_| moves) {
        output.note(&format!(
            "irqbalance runs (process {pid}) and will move interrupts again: stop it, or ban these"
        ));
    }
    Ok(())
}

fn set(args: &SetArgs, output: &Output) -> Result<()> {
    let asks = asks(&args.words)?;
    set_all(&asks, args.allow_link_flap, &args.target, output)
}

fn set_all(asks: &[Ask], may_flap: bool, target: &Target, output: &Output) -> Result<()> {
    let journals = undo::journals()?;
    let (namespace, changes) = target.within(|space| {
        warn(asks, may_flap, output)?;
        Ok((space.to_owned(), kept::set(&journals, space, asks, may_flap)?))
    })?;
    output.result(&object! { schema: "pathlab/tune-set/1", namespace, changes }, |document| {
        words::set(&document.changes)
    })
}

fn hold(args: &SetArgs, output: &Output) -> Result<()> {
    let asks = asks(&args.words)?;
    let journals = undo::journals()?;
    experiment::interruptible()?;
    let (namespace, (held, changes)) = args.target.within(|space| {
        warn(&asks, args.allow_link_flap, output)?;
        Ok((space.to_owned(), kept::hold(&journals, space, &asks, args.allow_link_flap)?))
    })?;
    output.line(&object! { schema: "pathlab/tune-hold/1", namespace, changes }, |document| {
        words::set(&document.changes)
    })?;
    output.note("held until Ctrl-C");
    while !process::interrupted() {
        std::thread::sleep(TURN);
    }
    process::forget_interrupt();
    let left: Vec<KnobChange> =
        held.put_back()?.into_iter().filter(|change| change.state != ChangeState::Undone).collect();
    if !left.is_empty() {
        output.note(&words::undone(&left));
    }
    Ok(())
}

/// The journals, after what killed commands left and what a new start of the machine took was said; and what of it could not be undone.
fn looked_over(output: &Output) -> Result<(Journals, Option<Problem>)> {
    let journals = undo::open()?;
    let lost = kept::lost(&journals)?;
    if lost > 0 {
        let changes = record::unit::many(lost as u64, "change");
        output.note(&format!(
            "{changes} went when the machine was started anew: nothing of them is left to undo"
        ));
    }
    let (undone, failed) = match journals.clean_some(kept::JOURNAL) {
        Ok(undone) => (undone, None),
        Err(problem) => (vec![], Some(problem)),
    };
    if !undone.is_empty() {
        let changes = record::unit::many(undone.len() as u64, "change");
        output.note(&format!("{changes} of a command that was killed while it made them: undone"));
    }
    Ok((journals, failed))
}

fn put_back(names: &[String], target: &Target, output: &Output) -> Result<()> {
    let netns = target.named()?;
    let (journals, left) = looked_over(output)?;
    let wanted: Vec<(Option<String>, String)> =
        joined(names).iter().map(|name| name_of(name, None)).collect();
    let is_wanted = |change: &KnobChange| {
        let is_it = |(interface, name): &(Option<String>, String)| {
            means(name, &change.name) && (interface.is_none() || *interface == change.interface)
        };
        wanted.is_empty() || wanted.iter().any(is_it)
    };
    let (changes, failed) = kept::undo(&journals, netns, is_wanted)?;
    output.result(&object! { schema: "pathlab/tune-undo/1", changes }, |document| {
        words::undone(&document.changes)
    })?;
    failed.or(left).map_or(Ok(()), Err)
}

fn changes(target: &Target, output: &Output) -> Result<()> {
    let netns = target.named()?;
    let (journals, left) = looked_over(output)?;
    let (changes, damaged) = kept::changes(&journals, netns);
    output.result(&object! { schema: "pathlab/tune-diff/1", changes }, |document| {
        words::changes(&document.changes)
    })?;
    damaged.or(left).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_and_its_name_are_one_knob_and_an_interface_is_what_is_no_knob() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(joined(&words("sysctl net.core.rmem_max mtu")), ["sysctl net.core.rmem_max", "mtu"]);
        let asked = asks(&words("ring.rx=512 eth1 sysctl net.core.rmem_max=4Mi b:mtu=1400")).unwrap();
        let seen: Vec<_> = asked.iter().map(|ask| (ask.interface.as_deref(), ask.name.as_str())).collect();
        assert_eq!(seen, [(Some("eth1"), "ring.rx"), (None, "sysctl net.core.rmem_max"), (Some("b"), "mtu")]);
        assert!(asks(&words("eth1 eth2 mtu=1")).is_err() && asks(&words("eth1")).is_err());
        let route = Ask::parse("route.initcwnd@2001:db8::/64=20", None).unwrap();
        assert_eq!((route.interface, route.name.as_str()), (None, "route.initcwnd@2001:db8::/64"));
    }
}

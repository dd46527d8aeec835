//! `pathlab facts`: what a host is set to and what its counters do, written down for `pathlab doctor`, here or elsewhere.

use super::namespaces;
use crate::output::{Output, object, write_whole};
use crate::progress::Screen;
use clap::Args;
use experiment::Notices;
use experiment::doctor::{FactWish, take};
use experiment::hosts::remote::refuse_link_local;
use linux::observe::next_hop;
use linux::sys::netns;
use record::facts::{Fact, Facts, Known, SCHEMA};
use record::unit::{duration, many};
use record::{Problem, Result};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where to look, and for how long.
#[derive(Args)]
pub struct WhereArgs {
    /// The interface, or a host: then the interface that leads there [default: all that are up].
    #[arg(value_name = "IF|HOST")]
    target: Option<String>,
    /// In this network namespace: a name of 'ip netns', a path, or pid:N of a process.
    #[arg(long = "in", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// In all nodes of this lab, or in one.
    #[arg(long, value_name = "NAME[/NODE]", conflicts_with = "namespace")]
    lab: Option<String>,
    /// How long counters are watched.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    duration: Duration,
}

/// Flags of `pathlab facts`.
#[derive(Args)]
pub struct FactsArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Write them to FILE [default: to standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Takes facts and writes them.
pub fn run(args: FactsArgs, output: &Output) -> Result<()> {
    let facts = taken(&args.place, output)?;
    let text = |facts: &Facts| serde_json::to_string_pretty(facts).unwrap_or_default() + "\n";
    let Some(file) = &args.output else { return output.result(&facts, text) };
    let place = file.display().to_string();
    write_whole(file, &text(&facts))?;
    let (known, unknown) = counted(&facts);
    let written = object! { schema: "pathlab/facts-file/1", file: place.clone(), known, unknown };
    output.result(&written, |_| format!("{place}: {}, {unknown} unknown\n", many(known, "fact")))
}

/// How many facts are known and not.
fn counted(facts: &Facts) -> (u64, u64) {
    let nodes = facts.nodes.values();
    let all = nodes.flat_map(|node| node.interfaces.values().chain([&node.known])).chain([&facts.host]);
    let all: Vec<&Fact> = all.flat_map(Known::values).collect();
    let unknown = all.iter().filter(|fact| fact.why_unknown().is_some()).count();
    ((all.len() - unknown) as u64, unknown as u64)
}

/// Facts of the place that was asked for, with a bar when it takes long.
pub(super) fn taken(args: &WhereArgs, output: &Output) -> Result<Facts> {
    experiment::interruptible()?;
    let wish = wish(args)?;
    let (screen, total) = (Screen::new(output), args.duration.as_millis() as u64);
    let mut facts = take(&wish, |over| screen.part("watching counters", over.as_millis() as u64, total))?;
    facts.nodes.iter_mut().for_each(|(name, node)| node.place = leading(args, name));
    Ok(facts)
}

fn wish(args: &WhereArgs) -> Result<FactWish> {
    let nodes = nodes(args)?;
    let interface = interface(args, nodes.as_deref())?;
    Ok(FactWish { nodes, interface, window: args.duration })
}

/// What leads to a node.
fn leading(args: &WhereArgs, node: &str) -> String {
    let lab = args.lab.as_ref().map(|lab| lab.split_once('/').map_or(lab.as_str(), |(lab, _)| lab));
    match (&args.namespace, lab) {
        (Some(word), _) if word != "." => format!("--in {word}"),
        (_, Some(lab)) => format!("--lab {lab}/{node}"),
        _ => String::new(),
    }
}

fn nodes(args: &WhereArgs) -> Result<Option<Vec<(String, OwnedFd)>>> {
    if let Some(word) = args.namespace.as_ref().filter(|word| *word != ".") {
        return namespaces::opened("--in", std::slice::from_ref(word)).map(Some);
    }
    let Some(words) = &args.lab else { return Ok(None) };
    let (lab, node) = words.split_once('/').map_or((words.as_str(), None), |(lab, node)| (lab, Some(node)));
    let mut all = namespaces::of_lab(lab)?;
    if let Some(node) = node {
        all.retain(|(name, _)| name == node);
        if all.is_empty() {
            return Err(Problem::input(format!("lab {lab} has no node {node}")).at("--lab"));
        }
    }
    Ok(Some(all))
}

/// The interface that was asked for, or the one that leads to the host that was: from here, or from the one namespace that is looked into.
fn interface(args: &WhereArgs, nodes: Option<&[(String, OwnedFd)]>) -> Result<Option<String>> {
    let found = |word: &String| match nodes {
        None => from_here(word),
        Some([(node, namespace)]) => from_inside(word, node, namespace),
        Some(_) => Ok(word.clone()),
    };
    args.target.as_ref().map(found).transpose()
}

fn from_here(word: &str) -> Result<String> {
    if next_hop::is_interface(word)? { Ok(word.to_owned()) } else { next_hop::interface_to(address(word)?) }
}

/// Names of hosts are not looked up there: where nobody can be asked that may take long.
fn from_inside(word: &str, node: &str, namespace: &OwnedFd) -> Result<String> {
    let Ok(to) = word.parse() else { return Ok(word.to_owned()) };
    let closed = |error| Problem::host(format!("it cannot be entered: {error}")).at(node);
    netns::within(namespace.as_fd(), || next_hop::interface_to(to)).map_err(closed)?
}

fn address(word: &str) -> Result<IpAddr> {
    refuse_link_local(word)?;
    if let Ok(address) = word.parse() {
        return Ok(address);
    }
    let found = (word, 0).to_socket_addrs().ok().and_then(|mut all| all.next());
    let nothing = || Problem::input("this is neither an interface nor a host that is known").at(word);
    found.map(|found| found.ip()).ok_or_else(nothing)
}

/// Facts that were written down.
///
/// # Errors
/// Input: the file cannot be read, has no facts, or those of another schema.
pub fn read(file: &Path) -> Result<Facts> {
    let none = "these are no facts";
    let help = "give what 'pathlab facts -o FILE' wrote, of this version";
    let facts: Facts = super::read_document(file, SCHEMA, ["the facts cannot be read", none, help])?;
    if !facts.seconds.is_normal() || facts.seconds < 0.0 {
        let what = format!("{none}: they were watched for {} s", facts.seconds);
        return Err(Problem::input(what).at(file.display().to_string()));
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_are_no_facts_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let told = |text: String| {
            let file = folder.path().join("a.facts");
            std::fs::write(&file, text).unwrap();
            read(&file).map(drop).unwrap_err().to_string()
        };
        let older = told(r#"{"schema": "pathlab/facts/0", "other": 1}"#.into());
        assert!(older.contains("this is 'pathlab/facts/0', and pathlab/facts/1 is read here"), "{older}");
        let facts = Facts { schema: SCHEMA.into(), ..Facts::default() };
        let never = told(serde_json::to_string(&facts).unwrap());
        assert!(never.contains("these are no facts: they were watched for 0 s"), "{never}");
        let cut = told(r#"{"schema": "pathlab/facts/1","#.into());
        assert!(cut.contains("these are no facts: it ends too early, in line 1"), "{cut}");
        let odd = r#"{"schema": "pathlab/facts/1", "pathlab": "0", "seconds": 1, "host": {"a": {"b": 1}}}"#;
        let odd = told(odd.into());
        assert!(odd.contains("a fact is a number, a text, true, false, or an object with"), "{odd}");
    }
}

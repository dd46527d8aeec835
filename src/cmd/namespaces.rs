//! The namespaces that a command is to look into, by the words that people have for them.

use linux::lab::Lab;
use linux::namespace;
use linux::sys::netns;
use record::{Problem, Result};
use std::os::fd::OwnedFd;

/// The namespaces with their names, each once.
pub(super) fn opened(option: &str, words: &[String]) -> Result<Vec<(String, OwnedFd)>> {
    let mut found: Vec<(String, OwnedFd)> = vec![];
    for (name, file) in super::each(option, words, namespace::open)? {
        let is_same = |(known, other): &&(String, OwnedFd)| {
            *known == name || netns::same(other, &file).unwrap_or(false)
        };
        if let Some((known, _)) = found.iter().find(is_same) {
            return Err(Problem::input(format!("{known} and {name} are the same namespace")).at(option));
        }
        found.push((name, file));
    }
    Ok(found)
}

/// The process's own namespace, called `host`, and these.
pub(super) fn with_own(option: &str, words: &[String]) -> Result<Vec<(String, OwnedFd)>> {
    let own = [".".to_owned()];
    opened(option, &own.iter().chain(words).cloned().collect::<Vec<_>>())
}

/// The namespaces of the nodes of a lab, by the nodes' names.
pub(super) fn of_lab(name: &str) -> Result<Vec<(String, OwnedFd)>> {
    lab(name)?.nodes().iter().map(of_node).collect()
}

fn of_node(node: &linux::lab::Node) -> Result<(String, OwnedFd)> {
    let lost = |error| Problem::host(format!("the node {} cannot be kept: {error}", node.name()));
    Ok((node.name().to_owned(), node.netns().try_clone_to_owned().map_err(lost)?))
}

/// A lab that is up, to look at.
pub(super) fn lab(name: &str) -> Result<Lab> {
    let journals = linux::undo::journals()?;
    linux::lab::join_user_namespace(&journals, name)?;
    Lab::open(&journals, name)
}

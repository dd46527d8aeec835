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
            let what = match *known == name {
                true => format!("{name} is named twice"),
                false => format!("{known} and {name} are the same namespace"),
            };
            return Err(Problem::input(what).at(option).help("leave one of them out"));
        }
        found.push((name, file));
    }
    Ok(found)
}

/// The process's own namespace, called `host`, and these, none of which is to be that.
pub(super) fn with_own(option: &str, words: &[String]) -> Result<Vec<(String, OwnedFd)>> {
    let mut all = opened(option, &[".".to_owned()])?;
    let others = opened(option, words)?;
    let is_own = |(_, file): &(String, OwnedFd)| netns::same(&all[0].1, file).unwrap_or(false);
    if let Some(word) = others.iter().position(is_own).and_then(|at| words.get(at)) {
        return Err(Problem::input(format!("'{word}' is the namespace that this runs in"))
            .at(option)
            .help("leave it out: that is looked into in any case"));
    }
    all.extend(others);
    Ok(all)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_there_already_is_named_as_it_was_written() {
        let own = format!("pid:{}", std::process::id());
        let refused = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            [opened("--in", &words), with_own("--in", &words)].map(|all| all.err().map(|why| why.to_string()))
        };
        let [alone, beside] = refused(&[&own]);
        assert_eq!(alone, None);
        let expected = format!("--in: '{own}' is the namespace that this runs in; leave it out: ");
        assert!(beside.as_ref().is_some_and(|why| why.starts_with(&expected)), "{beside:?}");
        let twice = format!("--in: {own} is named twice; leave one of them out");
        assert_eq!(refused(&[&own, &own]), [Some(twice.clone()), Some(twice)]);
    }
}

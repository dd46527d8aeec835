//! Names for the kernel's numbers of namespaces and interfaces.
//!
//! Namespaces are opened to be asked and let go at once: a watch over all of the host must not keep alive what somebody deletes.

use linux::namespace;
use linux::netlink::Netlink;
use linux::observe::DeadFrame;
use linux::sys::netns;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is known so far.
#[derive(Default)]
pub(super) struct Names {
    nodes: BTreeMap<u32, String>,
    interfaces: BTreeMap<(u32, u32), String>,
}

impl Names {
    /// Those of the namespaces that are watched, or of all that can be found.
    pub(super) fn of(scope: Option<&[(String, OwnedFd)]>) -> Names {
        let mut names = Names::default();
        match scope {
            Some(scope) => scope.iter().for_each(|(name, file)| names.add(name, file.as_fd())),
            None => names.look(),
        }
        names
    }

    /// Looks for all namespaces of the host.
    fn look(&mut self) {
        namespace::all().iter().for_each(|(name, file)| self.add(name, file.as_fd()));
    }

    fn add(&mut self, name: &str, namespace: BorrowedFd<'_>) {
        let Ok(number) = netns::inode(namespace) else { return };
        self.nodes.entry(number as u32).or_insert_with(|| name.to_owned());
        let links = netns::within(namespace, || Netlink::open().links());
        for link in links.into_iter().flatten().flatten() {
            self.interfaces.insert((number as u32, link.index), link.name);
        }
    }

    /// Remembers the interface that a frame itself names.
    pub(super) fn learn(&mut self, frame: &DeadFrame) {
        let place = (frame.key.namespace, frame.key.interface);
        if let Some(name) = &frame.interface
            && self.interfaces.get(&place) != Some(name)
        {
            self.interfaces.insert(place, name.clone());
        }
    }

    /// The node of that number. One that came later is looked for, once.
    pub(super) fn node(&mut self, number: u32) -> String {
        if !self.nodes.contains_key(&number) {
            self.look();
        }
        self.nodes.entry(number).or_insert_with(|| format!("net:[{number}]")).clone()
    }

    /// The interface of that number; none for none.
    pub(super) fn interface(&mut self, namespace: u32, index: u32) -> Option<String> {
        if index == 0 {
            return None;
        }
        let known = self.interfaces.contains_key(&(namespace, index));
        if !known && let Some(file) = namespace::find(namespace.into()) {
            let name = self.node(namespace);
            self.add(&name, file.as_fd());
        }
        let name = self.interfaces.entry((namespace, index)).or_insert_with(|| format!("interface {index}"));
        Some(name.clone())
    }
}

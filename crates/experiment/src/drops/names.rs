//! Names for the kernel's numbers of namespaces and interfaces.
//!
//! Namespaces are opened to be asked and let go at once: a watch over all of the host must not keep alive what somebody deletes. So the number of
//! one that is gone may be given to the next one; the cookie tells them apart.

use linux::namespace::{self, NamespaceWatch};
use linux::netlink::Netlink;
use linux::observe::{DeadFrame, DeadKey};
use linux::sys::netns;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A namespace: its number and its cookie.
type Space = (u32, u64);

/// Namespaces of these that everybody else has left, and of which perhaps another one has the name now: one that comes later is not watched.
pub(super) fn gone(scope: &[(String, OwnedFd)]) -> Vec<String> {
    let changes = NamespaceWatch::given(scope).changes();
    let came = |name: &String| changes.came.iter().any(|(new, _)| new == name);
    let again =
        |name: &String| if came(name) { ", and the one that is called so now is another" } else { "" };
    changes
        .went
        .iter()
        .map(|name| format!("{name} to the end: its namespace is gone{}", again(name)))
        .collect()
}

/// What is known so far.
#[derive(Default)]
pub(super) struct Names {
    nodes: BTreeMap<Space, String>,
    interfaces: BTreeMap<(Space, u32), String>,
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
        // A kernel that tells no cookies has no other namespace of that number, as far as anybody knows.
        let space = (number as u32, netns::cookie(namespace).unwrap_or(0));
        self.nodes.entry(space).or_insert_with(|| name.to_owned());
        let links = netns::within(namespace, || Netlink::open().links());
        for link in links.into_iter().flatten().flatten() {
            self.interfaces.insert((space, link.index), link.name);
        }
    }

    /// The namespace of a key as it is known here.
    fn space(&self, key: &DeadKey) -> Space {
        let exact = (key.namespace, key.cookie);
        let mut same_number = self.nodes.range((key.namespace, 0)..=(key.namespace, u64::MAX));
        match same_number.find(|((_, cookie), _)| *cookie == 0 || key.cookie == 0) {
            Some((space, _)) if !self.nodes.contains_key(&exact) => *space,
            _ => exact,
        }
    }

    /// Remembers the interface that a frame itself names; true if it had another name, or none.
    pub(super) fn learn(&mut self, frame: &DeadFrame) -> bool {
        let place = (self.space(&frame.key), frame.key.interface);
        match &frame.interface {
            Some(name) if self.interfaces.get(&place) != Some(name) => {
                self.interfaces.insert(place, name.clone());
                true
            }
            _ => false,
        }
    }

    /// The node of a key. One that came later is looked for, once.
    pub(super) fn node(&mut self, key: &DeadKey) -> String {
        if !self.nodes.contains_key(&self.space(key)) {
            self.look();
        }
        let space = self.space(key);
        if let Some(name) = self.nodes.get(&space) {
            return name.clone();
        }
        let name = self.unnamed(key.namespace);
        self.nodes.insert(space, name.clone());
        name
    }

    /// What a namespace is called that nobody has any more. Several may have had the number, one after another.
    fn unnamed(&self, number: u32) -> String {
        let plain = format!("net:[{number}]");
        let numbered = (2..).map(|turn| format!("{plain} ({turn})"));
        let is_taken = |name: &String| {
            self.nodes.range((number, 0)..=(number, u64::MAX)).any(|(_, known)| known == name)
        };
        std::iter::once(plain.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// The interface of a key; none for none.
    pub(super) fn interface(&mut self, key: &DeadKey) -> Option<String> {
        if key.interface == 0 {
            return None;
        }
        let node = self.node(key);
        let place = (self.space(key), key.interface);
        if !self.interfaces.contains_key(&place)
            && let Some(file) = namespace::find(key.namespace.into())
        {
            self.add(&node, file.as_fd());
        }
        let unnamed = || format!("interface {}", key.interface);
        Some(self.interfaces.entry(place).or_insert_with(unnamed).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cookie: u64) -> DeadKey {
        DeadKey { reason: 2, namespace: 7, interface: 3, kind: 0, location: 0, cookie }
    }

    #[test]
    fn namespaces_of_one_number_are_told_apart_by_their_cookies() {
        let mut names = Names::default();
        names.nodes.insert((7, 41), "gone".into());
        names.interfaces.insert(((7, 41), 3), "eth0".into());
        let nodes = [41, 42, 43, 42].map(|cookie| names.node(&key(cookie)));
        assert_eq!(nodes, ["gone", "net:[7]", "net:[7] (2)", "net:[7]"]);
        assert_eq!(names.interface(&key(41)).as_deref(), Some("eth0"));
        assert_eq!(names.interface(&key(42)).as_deref(), Some("interface 3"));
        assert_eq!(names.node(&key(0)), "gone", "a kernel that tells no cookie");
    }
}

//! Sums by reason and place, and what drivers count.

use super::names::Names;
use linux::namespace;
use linux::netlink::Netlink;
use linux::observe::{DeadKey, DropCount, DropWatch, driver_counters};
use linux::sys::netns;
use record::drop;
use record::drops::{DriverCount, DropMeaning, DropRow};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Frames and buffers by the kernel's key.
#[derive(Default, Clone)]
pub(super) struct Sums {
    counts: BTreeMap<DeadKey, (u64, u64)>,
    rows: BTreeMap<DeadKey, DropRow>,
    parts: BTreeMap<DeadKey, bool>,
}

impl Sums {
    pub(super) fn of(counts: impl Iterator<Item = DropCount>) -> Sums {
        let counts = counts.map(|one| (one.key, (one.frames, one.buffers))).collect();
        Sums { counts, ..Sums::default() }
    }

    pub(super) fn add(&mut self, key: DeadKey, frames: u64, buffers: u64) {
        let sum = self.counts.entry(key).or_default();
        *sum = (sum.0 + frames, sum.1 + buffers);
    }

    pub(super) fn frames(&self) -> u64 {
        self.counts.values().map(|(frames, _)| frames).sum()
    }

    /// Whether frames of that key are parts of others; asked of the table of functions once.
    pub(super) fn is_part(&mut self, watch: &DropWatch, key: &DeadKey) -> bool {
        *self.parts.entry(*key).or_insert_with(|| watch.is_part(key))
    }

    /// The row of a key, with nothing counted.
    pub(super) fn row(&mut self, watch: &DropWatch, names: &mut Names, key: &DeadKey) -> &DropRow {
        self.rows.entry(*key).or_insert_with(|| row(watch, names, key))
    }

    /// An interface has another name: rows are made anew.
    pub(super) fn forget_rows(&mut self) {
        self.rows.clear();
    }

    /// The sums in words, the largest first. Several calls in one function are one place.
    pub(super) fn rows(&self, watch: &DropWatch, names: &mut Names) -> Vec<DropRow> {
        let mut rows: Vec<DropRow> = vec![];
        for (key, (frames, buffers)) in &self.counts {
            let new = DropRow { frames: *frames, buffers: *buffers, ..row(watch, names, key) };
            let is_same = |known: &&mut DropRow| {
                DropRow { frames: 0, buffers: 0, ..(**known).clone() }
                    == DropRow { frames: 0, buffers: 0, ..new.clone() }
            };
            match rows.iter_mut().find(is_same) {
                Some(known) => {
                    (known.frames, known.buffers) = (known.frames + frames, known.buffers + buffers);
                }
                None => rows.push(new),
            }
        }
        rows.sort_by(|a, b| (b.frames, &a.node, &a.reason).cmp(&(a.frames, &b.node, &b.reason)));
        rows
    }
}

/// What grew between two sums.
pub(super) fn difference(now: &Sums, before: &Sums) -> Sums {
    let grown = now.counts.iter().map(|(key, (frames, buffers))| {
        let old = before.counts.get(key).copied().unwrap_or_default();
        (*key, (frames.saturating_sub(old.0), buffers.saturating_sub(old.1)))
    });
    Sums { counts: grown.filter(|(_, count)| *count != (0, 0)).collect(), ..Sums::default() }
}

fn row(watch: &DropWatch, names: &mut Names, key: &DeadKey) -> DropRow {
    let (reason, place) = (watch.reason(key), watch.place(key));
    let name = drop::one_of_kernel(&reason, place.as_deref()).map(|row| row.name.to_owned());
    let fitting = drop::of_kernel(&reason, place.as_deref()).into_iter().map(|row| row.name.to_owned());
    let may_be = if name.is_none() { fitting.collect() } else { vec![] };
    let (node, interface) = (names.node(key), names.interface(key));
    DropRow { reason, name, may_be, place, interface, node, frames: 0, buffers: 0 }
}

/// What the names among the rows mean, each once.
pub(super) fn meanings(rows: &[DropRow]) -> Vec<DropMeaning> {
    let mut found: Vec<DropMeaning> = vec![];
    for name in rows.iter().filter_map(|row| row.name.as_ref()) {
        if let Some(known) = drop::find(name)
            && !found.iter().any(|one| one.name == *name)
        {
            let advice = drop::advice(name).to_owned();
            found.push(DropMeaning { name: name.clone(), meaning: known.meaning().to_owned(), advice });
        }
    }
    found
}

/// Counters of drivers at the beginning.
pub(super) struct Drivers(BTreeMap<(String, String, String), u64>);

impl Drivers {
    pub(super) fn read(scope: Option<&[(String, OwnedFd)]>) -> Drivers {
        let mut found = BTreeMap::new();
        let mut add = |node: &str, namespace: BorrowedFd<'_>| {
            let read = netns::within(namespace, of_this_namespace).unwrap_or_default();
            found.extend(
                read.into_iter()
                    .map(|(interface, counter, value)| ((node.to_owned(), interface, counter), value)),
            );
        };
        match scope {
            Some(scope) => scope.iter().for_each(|(name, file)| add(name, file.as_fd())),
            None => namespace::all().iter().for_each(|(name, file)| add(name, file.as_fd())),
        }
        Drivers(found)
    }

    /// Those that have moved since.
    pub(super) fn moved(&self, scope: Option<&[(String, OwnedFd)]>) -> Vec<DriverCount> {
        let moved = Drivers::read(scope).0.into_iter().map(|(key, value)| {
            // A counter that is new began at 0; one that is smaller began again.
            let before = self.0.get(&key).copied().filter(|before| *before <= value).unwrap_or(0);
            let (node, interface, counter) = key;
            DriverCount { node, interface, counter, count: value - before }
        });
        moved.filter(|one| one.count > 0).collect()
    }
}

/// Interface, counter and value of every driver of this namespace.
fn of_this_namespace() -> Vec<(String, String, u64)> {
    let links = Netlink::open().links().unwrap_or_default();
    let of = |name: String| {
        let counters = driver_counters::of_xdp(&name).unwrap_or_default();
        counters.into_iter().map(move |(counter, value)| (name.clone(), counter, value)).collect::<Vec<_>>()
    };
    links.into_iter().flat_map(|link| of(link.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(reason: u32) -> DeadKey {
        DeadKey { reason, namespace: 1, interface: 2, kind: 0, location: 3, cookie: 4 }
    }

    #[test]
    fn a_difference_has_only_what_grew() {
        let mut before = Sums::default();
        before.add(key(1), 5, 5);
        before.add(key(2), 1, 1);
        let mut now = before.clone();
        now.add(key(1), 4, 2);
        now.add(key(3), 1, 1);
        let grown = difference(&now, &before);
        assert_eq!(grown.counts, BTreeMap::from([(key(1), (4, 2)), (key(3), (1, 1))]));
        assert_eq!((now.frames(), grown.frames()), (11, 5));
    }

    #[test]
    fn every_meaning_is_told_once() {
        let row = |name: Option<&str>| DropRow {
            may_be: vec![],
            reason: "X".into(),
            name: name.map(str::to_owned),
            place: None,
            interface: None,
            node: "a".into(),
            frames: 1,
            buffers: 1,
        };
        let told = meanings(&[row(Some("filter")), row(None), row(Some("filter")), row(Some("no_route"))]);
        assert_eq!(told.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["filter", "no_route"]);
        assert!(told.iter().all(|one| !one.meaning.is_empty() && !one.advice.is_empty()));
    }
}

//! Every dying frame, live: counted in the kernel, and shown as far as there is room.
//!
//! **What.** [`DropWatch`] runs the programs of [`super::frames_program`] at the kernel's events: counts by reason, namespace, interface and
//! place are exact whatever happens to the ring; [`DropWatch::read`] lends the frames. It is the witness of the ledger without a flow.
//!
//! **What it cannot see.** Frames that never become a buffer: those that a card has no room for, and `XDP_DROP`, which has no event
//! ([`super::driver_counters`] is what counts that). Events that the kernel did not show to the program are told as `hidden`.
//!
//! **Price.** `docs/drops.md`. Needs `CAP_BPF` and `CAP_PERFMON`. Nothing is pinned: dropping the value releases everything.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;

use super::dead_frame::{DeadFrame, DeadKey, decode};
use super::drops_program::{
    KEY_BYTES, KIND_BY_SOCKET, LOST_EVENTS, LOST_NO_ROOM, Layout, MapFds, Scope, VALUE_BYTES,
};
use super::frames_program::{
    FrameMaps, KIND_XDP, LOSSES, LOST_RING, XDP_EVENTS, XdpEvent, assemble, assemble_xdp, record_room,
};
use super::symbols;
use super::witness::{MOST, is_no_loss, layout, refused, rejection, unavailable};
use crate::netlink::u64_at;
use crate::sys::bpf;
use crate::sys::bpf_ring::EventRing;
use crate::sys::perf::EventCount;

/// Different reasons at different places of some namespaces.
const ENTRIES: u32 = 8192;
/// The same of a host: namespaces that are gone keep theirs.
const ENTRIES_OF_A_HOST: u32 = 32_768;
/// Families of sockets whose buffers are frames: none told, IPv4, IPv6, packet sockets, AF_XDP.
const FAMILIES: [u32; 5] = [0, 2, 10, 17, 44];

/// What was counted under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropCount {
    /// Where and why.
    pub key: DeadKey,
    /// Frames.
    pub frames: u64,
    /// Buffers: a super-frame is one.
    pub buffers: u64,
}

/// What was not shown, or not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropLosses {
    /// Buffers that were counted and not shown, because the ring was full.
    pub ring: u64,
    /// Buffers that were not counted under their key, because there were too many keys.
    pub no_room: u64,
    /// Events of the whole host that the kernel did not show to the program.
    pub hidden: u64,
}

/// The programs at their events.
#[derive(Debug)]
pub struct DropWatch {
    // The order of fields is the order of release: first the events, then the program, then the maps.
    links: Vec<OwnedFd>,
    program: OwnedFd,
    all: Option<EventCount>,
    /// All events when the program was taken away.
    ended: Option<u64>,
    counts: bpf::Map,
    lost: bpf::Map,
    _record: bpf::Map,
    ring: EventRing,
    layout: &'static Layout,
    missing: Vec<String>,
}

impl DropWatch {
    /// Begins to watch these namespaces (by their numbers), or all of the host; of each frame at most `snap` bytes are kept, and
    /// `ring_bytes` of frames can wait to be read.
    ///
    /// # Errors
    /// The witness that could not be: `NotPermitted` or `Unavailable`, and why.
    pub fn start(
        namespaces: Option<&[u32]>,
        snap: u32,
        ring_bytes: u32,
    ) -> Result<DropWatch, record::Witness> {
        if namespaces.is_some_and(|those| those.is_empty() || those.len() > MOST) {
            return Err(unavailable(format!("it takes 1 to {MOST} namespaces, or all")));
        }
        let made = |error: io::Error| refused("bpf(BPF_MAP_CREATE)", &error);
        let map =
            |kind, key, value, entries, name| bpf::Map::create(kind, key, value, entries, name).map_err(made);
        let entries = if namespaces.is_some() { ENTRIES } else { ENTRIES_OF_A_HOST };
        let counts = map(bpf::MAP_PERCPU_HASH, KEY_BYTES, VALUE_BYTES, entries, "pathlab_dead")?;
        let lost = map(bpf::MAP_PERCPU_ARRAY, 4, 8, LOSSES, "pathlab_lost")?;
        let record = map(bpf::MAP_PERCPU_ARRAY, 4, record_room(), 1, "pathlab_frame")?;
        let ring = EventRing::create(ring_bytes, "pathlab_frames").map_err(made)?;
        let layout = layout().map_err(unavailable)?;
        let scope = namespaces.map_or(Scope::Any, Scope::These);
        let fds = MapFds { counts: counts.raw_fd(), lost: lost.raw_fd() };
        let maps = FrameMaps { counts: fds, record: record.raw_fd(), ring: ring.raw_fd() };
        let broken = |error| unavailable(format!("the program cannot be assembled: {error:?}"));
        let code = assemble(layout, scope, snap, maps).map_err(broken)?;
        let (program, link) = run_at("kfree_skb", &code)?;
        let (mut links, mut missing) = (vec![link], vec![]);
        for (number, event) in XDP_EVENTS.iter().enumerate() {
            let code = assemble_xdp(layout, scope, number, fds).map_err(broken)?;
            match run_at(event.name, &code) {
                Ok((_, link)) => links.push(link),
                Err(absent) => missing.push(format!("{}: {}", event.name, absent.why)),
            }
        }
        // Begun behind the program, and ended in front of it: what it counts beyond the program was surely not shown to it.
        let all = EventCount::start("events/skb/kfree_skb").ok();
        Ok(DropWatch {
            links,
            program,
            all,
            ended: None,
            counts,
            lost,
            _record: record,
            ring,
            layout,
            missing,
        })
    }

    /// Events that this kernel does not have, each with the reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Lends every frame that waits, `most` at most, while `take` says so; how many there were.
    pub fn read(&mut self, most: usize, mut take: impl FnMut(DeadFrame) -> bool) -> usize {
        self.ring.read(most, |record| decode(record).is_none_or(&mut take))
    }

    /// Takes the programs away. What waits in the ring can still be read, and the counts stay.
    ///
    /// # Errors
    /// The system's error.
    pub fn stop(&mut self) -> io::Result<()> {
        self.ended = self.all.as_ref().map(EventCount::read).transpose()?;
        self.links.clear();
        Ok(())
    }

    /// What was counted since the start.
    ///
    /// # Errors
    /// The system's error.
    pub fn counts(&self) -> io::Result<Vec<DropCount>> {
        let sum = |value: &[u8], at: usize| {
            value.chunks_exact(VALUE_BYTES as usize).filter_map(|one| u64_at(one, at)).sum::<u64>()
        };
        let count = |(key, value): (Vec<u8>, Vec<u8>)| {
            let count =
                DropCount { key: DeadKey::decode(&key)?, frames: sum(&value, 0), buffers: sum(&value, 8) };
            (count.buffers > 0).then_some(count)
        };
        Ok(self.counts.entries()?.into_iter().filter_map(count).collect())
    }

    /// What was not shown or not counted since the start.
    ///
    /// # Errors
    /// The system's error.
    pub fn losses(&self) -> io::Result<DropLosses> {
        let own = |which: i32| -> io::Result<u64> {
            let values = self.lost.lookup(&which.to_ne_bytes())?.unwrap_or_default();
            Ok(values.chunks_exact(8).filter_map(|value| u64_at(value, 0)).sum())
        };
        let all = match self.ended {
            Some(ended) => Some(ended),
            None => self.all.as_ref().map(EventCount::read).transpose()?,
        };
        let hidden = match all {
            Some(all) => all.saturating_sub(own(LOST_EVENTS)?),
            None => bpf::recursion_misses(self.program.as_fd())?.unwrap_or(0),
        };
        Ok(DropLosses { ring: own(LOST_RING)?, no_room: own(LOST_NO_ROOM)?, hidden })
    }

    /// The kernel's own word for the reason.
    pub fn reason(&self, key: &DeadKey) -> String {
        let error = || Errno::from_raw((key.reason as i32).wrapping_neg());
        match xdp_event(key).map(|event| event.word) {
            None => self.layout.reason(key.reason),
            Some(None) => action(key.reason),
            Some(Some(word)) => format!("{word}_{:?}", error()),
        }
    }

    /// The function that dropped, or the event that told it.
    pub fn place(&self, key: &DeadKey) -> Option<String> {
        match xdp_event(key) {
            Some(event) => Some(event.name.to_owned()),
            None => symbols::running().function(key.location).map(str::to_owned),
        }
    }

    /// False for a buffer that is no frame: one of a local socket, or of netlink.
    pub fn is_frame(key: &DeadKey) -> bool {
        key.kind & KIND_BY_SOCKET == 0 || FAMILIES.contains(&(key.kind & !KIND_BY_SOCKET))
    }

    /// True where no buffer died, so that there are no bytes to be shown.
    pub fn is_xdp(key: &DeadKey) -> bool {
        xdp_event(key).is_some()
    }

    /// True for a part of a buffer that was counted itself.
    pub fn is_part(&self, key: &DeadKey) -> bool {
        !Self::is_xdp(key) && is_no_loss(&self.reason(key), self.place(key).as_deref())
    }
}

fn xdp_event(key: &DeadKey) -> Option<&'static XdpEvent> {
    XDP_EVENTS.get(key.kind.checked_sub(KIND_XDP)? as usize)
}

/// What a program of XDP had decided (`enum xdp_action`).
fn action(number: u32) -> String {
    const ACTIONS: [&str; 5] = ["XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"];
    ACTIONS.get(number as usize).map_or_else(|| format!("XDP_{number}"), |name| (*name).to_owned())
}

/// Loads a program and runs it at that event until the second descriptor goes.
fn run_at(event: &str, code: &[u64]) -> Result<(OwnedFd, OwnedFd), record::Witness> {
    let name = CString::new(event).map_err(|_| unavailable("an event has no such name"))?;
    let program = bpf::load_program(bpf::PROG_RAW_TRACEPOINT, code, c"Dual MIT/GPL", "pathlab_dead")
        .map_err(|rejected| rejection(&rejected))?;
    let link = bpf::open_raw_tracepoint(&name, program.as_fd())
        .map_err(|error| refused("bpf(BPF_RAW_TRACEPOINT_OPEN)", &error))?;
    Ok((program, link))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: u32) -> DeadKey {
        DeadKey { reason: 2, namespace: 1, interface: 1, kind, location: 0, cookie: 9 }
    }

    #[test]
    fn buffers_of_local_sockets_are_no_frames() {
        assert!(DropWatch::is_frame(&key(0)) && DropWatch::is_frame(&key(KIND_BY_SOCKET | 10)));
        assert!(
            !DropWatch::is_frame(&key(KIND_BY_SOCKET | 1)) && !DropWatch::is_frame(&key(KIND_BY_SOCKET | 16))
        );
        assert!(DropWatch::is_frame(&key(KIND_XDP)) && DropWatch::is_xdp(&key(KIND_XDP + 1)));
        assert!(!DropWatch::is_xdp(&key(KIND_XDP + 99)) && !DropWatch::is_xdp(&key(0)));
    }

    #[test]
    fn actions_have_their_names() {
        assert_eq!(
            (action(0), action(3), action(77)),
            ("XDP_ABORTED".into(), "XDP_TX".into(), "XDP_77".into())
        );
    }
}

//! Counts one flow at every interface of every node, where frames come in and where they go out.
//!
//! **What.** Two small programs ([`super::flow_program`]) at each interface: at tcx ingress before all other programs, at
//! tcx egress behind all others. What two neighbouring counters differ by was lost, or made, between them, whoever else uses
//! the path. With the counts goes how the interfaces hang together ([`record::FlowInterface`]).
//!
//! **Why not the interface's own counters.** They count everybody's frames. And a path that is asked for by destination is not
//! the one that policy rules, several next hops or a tunnel give to a flow.
//!
//! **Price.** Loading takes well under a millisecond a program. What one takes for a frame is measured at the start, on frames
//! that the kernel makes for it, and goes with the counts; `docs/counters.md` has the cost for whole paths. Needs
//! `CAP_BPF` and `CAP_NET_ADMIN`, and Linux 6.6. Nothing is pinned: the kernel detaches everything when the process ends. To attach and to
//! detach waits for all CPUs, some 15 ms at each place, so [`FlowLinks`] can be kept from one flow to the next.
//!
//! **Interfaces that come later** are counted from when the kernel tells of them ([`super::flow_newcomers`]); how many frames crossed one before
//! is known to be no more than it had counted itself by then ([`record::flow::LateInterface`]). So are those of namespaces that come, where that
//! is wanted.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use record::Delta;
use record::flow::{FlowCount, FlowInterface, FlowObservation, FlowPlace, Hook, LateInterface};

use super::flow::{Flow, FlowEnds, FlowProtocol};
use super::flow_newcomers::{CountedNode, Newcomers};
use super::flow_program::{FRAGMENT_KEY_BYTES, Leg, Place, Start, VALUE_BYTES, assemble};
use crate::namespace::{NamespaceChanges, NamespaceWatch};
use crate::netlink::{LinkState, Netlink, u64_at};
use crate::sys::bpf::{self, Attachment};
use crate::sys::{clock, netns};
use wire::build::{Ends, build_echo, build_udp};
use wire::message::{self, Flags, Message};

/// Interfaces of all nodes together that are counted; what is beyond is said to be missing.
const MOST_INTERFACES: usize = 1024;
/// Of these, room for interfaces that come while the flow is counted.
const MOST_LATE: usize = 64;
/// How many frames the cost of a program is measured on, several times, of which the one in the middle counts: a machine that stood still in
/// one of them says nothing. Well under a millisecond together.
const COST_FRAMES: u32 = 1_000;
const COST_TIMES: usize = 5;
/// Datagrams in fragments that are on their way at once, at all places together.
const MOST_FRAGMENTED: u32 = 65_536;

/// Where programs are attached: the namespace's number, the index of the interface, whether what goes out is counted there. They are
/// detached when this is dropped.
#[derive(Debug, Default)]
pub struct FlowLinks(HashMap<(u64, u32, bool), Attachment>);

/// Counters of one flow, until they are dropped.
#[derive(Debug)]
pub struct FlowCounters {
    // The order of fields is the order of release: nobody attaches any more when what is attached goes.
    newcomers: Newcomers,
    counted: Arc<Mutex<Counted>>,
}

/// What is counted, and where.
#[derive(Debug)]
struct Counted {
    // First the links, then the maps.
    links: FlowLinks,
    counts: bpf::Map,
    fragments: bpf::Map,
    flow: Flow,
    /// As they were found; place numbers are twice the index, the second one for what goes out.
    interfaces: Vec<CountedInterface>,
    /// There are counts for so many.
    room: usize,
    missing: Vec<String>,
    /// Nanoseconds that one program takes for one frame of the flow.
    program_ns: Option<u32>,
    begun_ns: u64,
}

/// An interface with the number of its namespace and its index there.
#[derive(Debug)]
struct CountedInterface {
    key: (u64, u32),
    about: FlowInterface,
    /// The other end of its link now. That of `about` is where it was when the flow was counted.
    connected: Option<FlowPlace>,
    /// An earlier one of this name had counted frames of the flow.
    is_again: bool,
}

impl CountedInterface {
    fn new(found: &Found, about: FlowInterface) -> CountedInterface {
        CountedInterface { key: found.key(), connected: about.other.clone(), about, is_again: false }
    }

    /// An earlier one of the same name was connected elsewhere, and both were counted as one.
    fn mistaken(&self) -> Option<String> {
        let FlowInterface { node, interface, other, .. } = &self.about;
        let is_moved = other.is_some() && self.connected.is_some() && *other != self.connected;
        (self.is_again && is_moved)
            .then(|| format!("{node}:{interface} (an earlier one of this name was connected elsewhere)"))
    }
}

/// An interface of a node, before it is counted.
struct Found {
    node: usize,
    /// The number of its namespace.
    inode: u64,
    state: LinkState,
}

/// Where no interface is any more.
const GONE: (u64, u32) = (0, 0);

impl Found {
    fn key(&self) -> (u64, u32) {
        (self.inode, self.state.index)
    }
}

/// All interfaces of these nodes.
fn find(nodes: &[CountedNode<'_>]) -> Result<Vec<Found>, String> {
    let mut found = vec![];
    for (node, (name, namespace)) in nodes.iter().enumerate() {
        let links = netns::within(*namespace, || Netlink::open().links());
        let links = links.map_err(|error| format!("the namespace of {name} cannot be entered: {error}"))?;
        let links =
            links.map_err(|refusal| format!("the interfaces of {name} cannot be listed: {refusal}"))?;
        let inode = netns::inode(*namespace).unwrap_or(0);
        let links = links.into_iter().filter(|link| !is_way_to_program(link));
        found.extend(links.map(|state| Found { node, inode, state }));
    }
    Ok(found)
}

/// Socket buffers that were counted.
fn passed(count: &FlowCount) -> u64 {
    count.buffers + count.later_fragments
}

impl FlowCounters {
    /// Begins to count that flow at all interfaces of these nodes; an interface that cannot be counted is said so.
    ///
    /// # Errors
    /// The sentence why nothing can be counted here: no permission, or a kernel without tcx.
    pub fn start(nodes: &[CountedNode<'_>], flow: &Flow) -> Result<FlowCounters, String> {
        Self::begin(nodes, flow, FlowLinks::default(), None)
    }

    /// The same, and also in the namespaces that come; those that went are let go ([`FlowCounters::changes`]).
    ///
    /// # Errors
    /// As [`FlowCounters::start`].
    pub fn start_for_all(
        nodes: &[CountedNode<'_>],
        flow: &Flow,
        watch: NamespaceWatch,
    ) -> Result<FlowCounters, String> {
        Self::begin(nodes, flow, FlowLinks::default(), Some(watch))
    }

    /// The same with what a flow before left attached: where there is a link its program is exchanged, others are made, and those of
    /// interfaces that have gone are dropped.
    ///
    /// # Errors
    /// As [`FlowCounters::start`].
    pub fn start_at(nodes: &[CountedNode<'_>], flow: &Flow, kept: FlowLinks) -> Result<FlowCounters, String> {
        Self::begin(nodes, flow, kept, None)
    }

    fn begin(
        nodes: &[CountedNode<'_>],
        flow: &Flow,
        mut kept: FlowLinks,
        watch: Option<NamespaceWatch>,
    ) -> Result<FlowCounters, String> {
        // First the notices, then the state: what comes in between is told.
        let listening = Newcomers::listen(nodes, watch)?;
        let mut found = find(nodes)?;
        let mut missing = vec![];
        if found.len() > MOST_INTERFACES {
            missing.push(format!("{} of {} interfaces", found.len() - MOST_INTERFACES, found.len()));
            found.truncate(MOST_INTERFACES);
        }
        let room = found.len() + MOST_LATE;
        let (counts, fragments) = maps(room).map_err(|error| refused("bpf(BPF_MAP_CREATE)", &error))?;
        let program_ns = cost(flow, (counts.raw_fd(), fragments.raw_fd()), room);
        let about = describe(nodes, &found).into_iter();
        let interfaces = about.zip(&found).map(|(about, found)| CountedInterface::new(found, about));
        let mut counted = Counted {
            links: FlowLinks::default(),
            counts,
            fragments,
            flow: flow.clone(),
            interfaces: interfaces.collect(),
            room,
            missing,
            program_ns,
            begun_ns: clock::monotonic_ns(),
        };
        let all: Vec<(usize, &Found)> = found.iter().enumerate().collect();
        counted.attach_all(nodes, &all, &mut kept)?;
        let counted = Arc::new(Mutex::new(counted));
        let theirs = Arc::clone(&counted);
        let newcomers = listening.wait(move |nodes, refused| {
            let mut counted = lock(&theirs);
            refused.into_iter().for_each(|why| counted.miss(why));
            counted.look_again(nodes);
        })?;
        Ok(FlowCounters { newcomers, counted })
    }

    /// Namespaces that went and came since this was asked before: they are no longer counted in, or are. None where only some are.
    pub fn changes(&self) -> NamespaceChanges {
        self.newcomers.changes()
    }

    /// What was attached, for the next flow. The programs stay there until then, and count what nobody reads.
    pub fn into_links(self) -> FlowLinks {
        drop(self.newcomers);
        std::mem::take(&mut lock(&self.counted).links)
    }

    /// What was counted since the start. Counting goes on.
    ///
    /// # Errors
    /// A host problem when the counts cannot be read.
    pub fn read(&self) -> record::Result<FlowObservation> {
        let counted = lock(&self.counted);
        let interfaces = counted.interfaces.iter().enumerate().map(|(index, one)| {
            let counts = counted.counts_of(index)?;
            Ok(FlowInterface { counts, ..one.about.clone() })
        });
        let interfaces: io::Result<Vec<_>> = interfaces.collect();
        let interfaces = interfaces.map_err(|error| {
            record::Problem::host(format!("the counters of the flow cannot be read: {error}"))
        })?;
        let mistaken = counted.interfaces.iter().filter_map(CountedInterface::mistaken);
        let missing = counted.missing.iter().cloned().chain(mistaken).collect();
        let program_ns = counted.program_ns;
        Ok(FlowObservation { interfaces, missing, program_ns, absent: None })
    }
}

fn lock(counted: &Mutex<Counted>) -> MutexGuard<'_, Counted> {
    counted.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counted {
    /// Counts at these interfaces, which have numbers.
    fn attach_all(
        &mut self,
        nodes: &[CountedNode<'_>],
        found: &[(usize, &Found)],
        kept: &mut FlowLinks,
    ) -> Result<(), String> {
        // What comes in is counted first: a frame that arrives while this goes on is then never counted only where it left.
        for hook in [Hook::Ingress, Hook::Egress] {
            self.attach(nodes, found, hook, kept)?;
        }
        Ok(())
    }

    fn attach(
        &mut self,
        nodes: &[CountedNode<'_>],
        found: &[(usize, &Found)],
        hook: Hook,
        kept: &mut FlowLinks,
    ) -> Result<(), String> {
        for (node, (name, namespace)) in nodes.iter().enumerate() {
            let here: Vec<_> = found.iter().filter(|(_, found)| found.node == node).collect();
            if here.is_empty() {
                continue;
            }
            let maps = (self.counts.raw_fd(), self.fragments.raw_fd());
            let key = |found: &Found| (found.inode, found.state.index, hook == Hook::Egress);
            let attached = netns::within(*namespace, || {
                here.iter()
                    .map(|(index, found)| {
                        let kept = kept.0.remove(&key(found));
                        attach_one(&self.flow, maps, number(*index, hook), &found.state, hook, kept)
                    })
                    .collect::<Vec<_>>()
            });
            let attached =
                attached.map_err(|error| format!("the namespace of {name} cannot be entered: {error}"))?;
            for ((_, found), result) in here.iter().zip(attached) {
                match result {
                    Ok(attached) => drop(self.links.0.insert(key(found), attached)),
                    Err(Refused::Gone) => {}
                    // Of a kind that takes no program.
                    Err(Refused::Interface(why)) => self.miss(format!("{name}:{} ({why})", found.state.name)),
                    Err(Refused::Host(why)) => return Err(why),
                }
            }
        }
        Ok(())
    }

    /// Looks for interfaces that came, and counts them, too; what is in a bridge now and was in none is said to be. What cannot be counted is
    /// missing.
    fn look_again(&mut self, nodes: &[CountedNode<'_>]) {
        let done = find(nodes).and_then(|found| {
            self.forget_gone(&found);
            // Ways from namespace to namespace are asked for only where there is somebody new.
            let is_known = found.iter().all(|found| self.number_of(found.key()).is_some());
            let about = if is_known { masters(nodes, &found) } else { describe(nodes, &found) };
            let numbered = self.number_new(&found, &about);
            self.complete(&found, about);
            let before = self.passed_at(&numbered)?;
            self.attach_all(nodes, &numbered, &mut FlowLinks::default())?;
            self.say_what_passed(nodes, &numbered, &before)
        });
        if let Err(why) = done {
            self.miss(why);
        }
    }

    fn number_of(&self, key: (u64, u32)) -> Option<usize> {
        self.interfaces.iter().position(|one| one.key == key)
    }

    /// Says where interfaces are of which that was not known.
    fn complete(&mut self, found: &[Found], about: Vec<FlowInterface>) {
        for (found, about) in found.iter().zip(about) {
            let Some(index) = self.number_of(found.key()) else { continue };
            let is_counted = self.counts_of(index).is_ok_and(|counts| !counts.is_empty());
            let one = &mut self.interfaces[index].about;
            one.master = one.master.take().or(about.master);
            // One end of a pair may have moved to its namespace after both were made.
            let now = about.other.or_else(|| one.other.clone());
            if !is_counted {
                one.other.clone_from(&now);
            }
            self.interfaces[index].connected = now;
        }
    }

    /// Interfaces that were deleted, or moved to another namespace, where they are new.
    fn forget_gone(&mut self, found: &[Found]) {
        let is_there = |key: (u64, u32)| found.iter().any(|one| one.key() == key);
        self.links.0.retain(|(inode, index, _), _| is_there((*inode, *index)));
        for one in self.interfaces.iter_mut().filter(|one| !is_there(one.key)) {
            one.key = GONE;
        }
    }

    /// Numbers for new interfaces: that of one of the same name that is gone, or the next one, or, where there is no room, that of one that went
    /// without having seen the flow.
    fn number_new<'f>(&mut self, found: &'f [Found], about: &[FlowInterface]) -> Vec<(usize, &'f Found)> {
        let mut numbered = vec![];
        for (found, about) in found.iter().zip(about) {
            if self.number_of(found.key()).is_some() {
                continue;
            }
            let names = |about: &FlowInterface| (about.node.clone(), about.interface.clone());
            let same = |known: &CountedInterface| known.key == GONE && names(&known.about) == names(about);
            let next = || (self.interfaces.len() < self.room).then_some(self.interfaces.len());
            let index = self.interfaces.iter().position(same).or_else(next).or_else(|| self.unused());
            let Some(index) = index else {
                self.miss(format!("interfaces that came when {MOST_LATE} others had come"));
                break;
            };
            let is_counted = self.counts_of(index).is_ok_and(|counts| !counts.is_empty());
            let mut entry = CountedInterface::new(found, about.clone());
            match self.interfaces.get_mut(index) {
                Some(gone) => {
                    if names(&gone.about) == names(about) {
                        entry.about.late = gone.about.late.take();
                        // What was counted of the earlier one went there.
                        let before = gone.about.other.take().filter(|_| is_counted);
                        entry.about.other = before.or(entry.about.other);
                        entry.is_again = is_counted;
                    }
                    *gone = entry;
                }
                None => self.interfaces.push(entry),
            }
            numbered.push((index, found));
        }
        numbered
    }

    /// The number of an interface that is gone and never saw the flow.
    fn unused(&self) -> Option<usize> {
        let is_unused = |index: &usize| self.counts_of(*index).is_ok_and(|counts| counts.is_empty());
        (0..self.interfaces.len()).filter(|index| self.interfaces[*index].key == GONE).find(is_unused)
    }

    /// Something is not counted, which is said once.
    fn miss(&mut self, what: String) {
        if !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }

    /// Socket buffers that were counted at these interfaces, in and out.
    fn passed_at(&self, numbered: &[(usize, &Found)]) -> Result<Vec<[u64; 2]>, String> {
        let passed_at = |(index, _): &(usize, &Found)| {
            let counts =
                self.counts_of(*index).map_err(|error| refused("bpf(BPF_MAP_LOOKUP_ELEM)", &error))?;
            let at = |hook| counts.iter().filter(|count| count.hook == hook).map(passed).sum();
            Ok([Hook::Ingress, Hook::Egress].map(at))
        };
        numbered.iter().map(passed_at).collect()
    }

    /// What these interfaces had counted themselves before they were counted here.
    fn say_what_passed(
        &mut self,
        nodes: &[CountedNode<'_>],
        numbered: &[(usize, &Found)],
        before: &[[u64; 2]],
    ) -> Result<(), String> {
        if numbered.is_empty() {
            return Ok(());
        }
        let after_ns = clock::monotonic_ns().saturating_sub(self.begun_ns);
        // First our counts, then theirs: what passes in between is taken as not counted.
        let after = self.passed_at(numbered)?;
        let now = find(nodes)?;
        for (((index, found), before), after) in numbered.iter().zip(before).zip(after) {
            let state =
                now.iter().find(|now| now.key() == found.key()).map_or(&found.state, |now| &now.state);
            let (sent, received) = state.frames;
            let uncounted = |all: u64, hook: usize| {
                all.saturating_sub(Delta::of(before[hook], after[hook]).known().unwrap_or(0))
            };
            let late = &mut self.interfaces[*index].about.late;
            let earlier = late.take().unwrap_or_default();
            *late = Some(LateInterface {
                after_ns,
                received: earlier.received + uncounted(received, 0),
                sent: earlier.sent + uncounted(sent, 1),
            });
        }
        Ok(())
    }

    fn counts_of(&self, index: usize) -> io::Result<Vec<FlowCount>> {
        let mut counts = vec![];
        for hook in [Hook::Ingress, Hook::Egress] {
            for leg in Leg::ALL {
                counts.extend(self.count(index, hook, leg)?);
            }
        }
        Ok(counts)
    }

    /// One entry over all CPUs; none when nothing was counted there.
    fn count(&self, index: usize, hook: Hook, leg: Leg) -> io::Result<Option<FlowCount>> {
        let key = number(index, hook) * 2 + leg as u32;
        let values = self.counts.lookup(&key.to_ne_bytes())?.unwrap_or_default();
        let of_cpus = || values.chunks_exact(VALUE_BYTES as usize);
        let sum = |offset: usize| of_cpus().filter_map(|value| u64_at(value, offset)).sum::<u64>();
        let first = of_cpus().filter_map(|value| u64_at(value, 32)).filter(|first| *first > 0).min();
        let count = FlowCount {
            hook,
            leg: if leg == Leg::Forward { "forward".into() } else { "back".into() },
            frames: sum(0),
            buffers: sum(8),
            bytes: sum(16),
            later_fragments: sum(24),
            first_ns: first.unwrap_or(0),
        };
        Ok((count.buffers + count.later_fragments > 0).then_some(count))
    }
}

/// The number of a place.
fn number(index: usize, hook: Hook) -> u32 {
    index as u32 * 2 + u32::from(hook == Hook::Egress)
}

fn maps(interfaces: usize) -> io::Result<(bpf::Map, bpf::Map)> {
    // One interface more, that the cost is measured at.
    let entries = (interfaces as u32 + 1) * 4;
    Ok((
        bpf::Map::create(bpf::MAP_PERCPU_ARRAY, 4, VALUE_BYTES, entries, "pathlab_flow")?,
        bpf::Map::create(bpf::MAP_LRU_HASH, FRAGMENT_KEY_BYTES, 4, MOST_FRAGMENTED, "pathlab_parts")?,
    ))
}

/// What was refused.
enum Refused {
    /// It has just been deleted.
    Gone,
    /// This interface.
    Interface(String),
    /// All of them.
    Host(String),
}

fn load(flow: &Flow, place: Place) -> Result<OwnedFd, String> {
    let code =
        assemble(flow, place).map_err(|error| format!("the program cannot be assembled: {error:?}"))?;
    bpf::load_program(bpf::PROG_SCHED_CLS, &code, c"Dual MIT/GPL", "pathlab_flow")
        .map_err(|rejected| rejection(&rejected))
}

/// Nanoseconds that one program takes for one frame of the flow, with the frame and the counts in the CPU's cache; counted at an
/// interface that there is not.
fn cost(flow: &Flow, (counts, fragments): (i32, i32), interface: usize) -> Option<u32> {
    let number = number(interface, Hook::Ingress);
    let program = load(flow, Place { counts, fragments, number, start: Start::Ethernet }).ok()?;
    let sample = sample(flow)?;
    let run = |_| bpf::test_run(program.as_fd(), &sample, COST_FRAMES).ok().map(|(_, ns)| ns);
    let mut taken: Vec<u32> = (0..COST_TIMES).filter_map(run).collect();
    taken.sort_unstable();
    taken.get(taken.len() / 2).copied()
}

/// A frame of the flow.
fn sample(flow: &Flow) -> Option<Vec<u8>> {
    let port = flow.ports.first().copied().unwrap_or(9);
    let FlowEnds { source, destination } = flow.ends.unwrap_or_default();
    let is_v4 = flow.number(4).is_some();
    let any: IpAddr = if is_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let addresses = (source.address.unwrap_or(any), destination.address.unwrap_or(any));
    let ports = (source.port.unwrap_or(port), destination.port.unwrap_or(port));
    let ends = Ends { macs: ([2; 6], [2; 6]), addresses, ports };
    let mut message = [0; message::LENGTH];
    if let Some(stream) = flow.stream {
        Message { stream, flags: Flags::DATA, sequence: 0, planned_ns: 0 }.write(&mut message);
    }
    match flow.protocol {
        FlowProtocol::Icmp | FlowProtocol::Icmp6 => build_echo(&ends, port, 0, &message),
        FlowProtocol::Udp => build_udp(&ends, &message),
        FlowProtocol::Tcp => {
            let mut frame = build_udp(&ends, &message)?;
            frame[14 + if is_v4 { 9 } else { 6 }] = flow.protocol.number(4)?;
            Some(frame)
        }
    }
}

/// Whether it is a tap by which a switch of ours gets what the kernel does not deal with (`engine tcx`): a way inside of the
/// program, and no station of the path.
fn is_way_to_program(link: &LinkState) -> bool {
    let number = link.name.strip_prefix("plx");
    link.kind == "tun" && number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// In the namespace of the calling thread, by the link that was kept if that still leads there.
fn attach_one(
    flow: &Flow,
    (counts, fragments): (i32, i32),
    number: u32,
    link: &LinkState,
    hook: Hook,
    kept: Option<Attachment>,
) -> Result<Attachment, Refused> {
    let start = if link.ethernet { Start::Ethernet } else { Start::Ip };
    let program = load(flow, Place { counts, fragments, number, start }).map_err(Refused::Host)?;
    if let Some(kept) = kept
        && kept.exchange(program.as_fd()).is_ok()
    {
        return Ok(kept);
    }
    let place = if hook == Hook::Ingress { bpf::TCX_INGRESS } else { bpf::TCX_EGRESS };
    bpf::attach_to_interface(program.as_fd(), link.index, place).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL | libc::EPERM | libc::EACCES) => Refused::Host(refused("attaching to tcx", &error)),
        Some(libc::ENODEV) => Refused::Gone,
        _ => Refused::Interface(error.to_string()),
    })
}

fn refused(call: &str, error: &io::Error) -> String {
    let help = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; it needs root on the host (CAP_BPF and CAP_NET_ADMIN)",
        Some(libc::EINVAL) => "; it needs Linux 6.6",
        Some(libc::ENOSYS) => "; this kernel has no BPF",
        _ => "",
    };
    format!("{call}: {error}{help}")
}

fn rejection(rejected: &bpf::Rejected) -> String {
    let words = match rejected.log.is_empty() {
        true => refused("bpf(BPF_PROG_LOAD)", &rejected.error),
        false => format!("bpf(BPF_PROG_LOAD): {}", rejected.error),
    };
    let last = rejected.log.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
    last.map_or(words.clone(), |line| format!("{words}; the verifier says: {line}"))
}

/// The interface with that index in a node.
fn place(nodes: &[CountedNode<'_>], found: &[Found], node: usize, index: u32) -> Option<FlowPlace> {
    let there = found.iter().find(|other| other.node == node && other.state.index == index)?;
    Some(FlowPlace { node: nodes[node].0.clone(), interface: there.state.name.clone() })
}

/// How the interfaces hang together inside their nodes.
fn masters(nodes: &[CountedNode<'_>], found: &[Found]) -> Vec<FlowInterface> {
    let master =
        |one: &Found| place(nodes, found, one.node, one.state.master).filter(|_| one.state.master != 0);
    let interface = |one: &Found| FlowInterface {
        node: nodes[one.node].0.clone(),
        interface: one.state.name.clone(),
        kind: one.state.kind.clone(),
        master: master(one).map(|master| master.interface),
        ..FlowInterface::default()
    };
    found.iter().map(interface).collect()
}

/// How the interfaces hang together.
fn describe(nodes: &[CountedNode<'_>], found: &[Found]) -> Vec<FlowInterface> {
    let numbers: Vec<_> = nodes.iter().map(|(_, namespace)| numbers_in(*namespace, nodes)).collect();
    let other = |one: &Found| {
        let node = match one.state.peer_netns {
            None => one.node,
            Some(number) => numbers[one.node].iter().position(|known| *known == Some(number))?,
        };
        place(nodes, found, node, one.state.peer).filter(|_| one.state.peer != 0)
    };
    let interface = |(about, one)| FlowInterface { other: other(one), ..about };
    masters(nodes, found).into_iter().zip(found).map(interface).collect()
}

/// The numbers that a namespace has for the nodes' namespaces.
fn numbers_in(namespace: BorrowedFd<'_>, nodes: &[CountedNode<'_>]) -> Vec<Option<i32>> {
    let ask = || {
        let mut netlink = Netlink::open();
        nodes.iter().map(|(_, other)| netlink.number_of(*other).ok().flatten()).collect()
    };
    netns::within(namespace, ask).unwrap_or_default()
}

//! The way of a flow as its frames show it: where they were counted, in which order, in which share.
//!
//! **What.** Every count of [`record::flow`] is a passage between two sections of the path: out of a node's stack into a link, out of
//! the link into a bridge, and so on. [`sections`] puts the sections in the order in which the first frame entered them, each
//! with what entered and what left. Several ways at once (two next hops, a change in mid-run, a copy to a third node) are
//! several links side by side.
//!
//! **Why.** Routes that are asked for say where the kernel would send a frame to that address now. Where the frames of this
//! test went is known only by counting them.
//!
//! **Price.** Nothing is known of what passes the counters by. A link that lets out more than was counted into it is the
//! sign of that, and then there are no steps.

use std::collections::BTreeSet;

use record::delta::sum as sum_of;
use record::flow::{FlowCount, FlowInterface, FlowObservation, Hook};
use record::port::Through;
use record::unit::{count, many};
use record::{Hop, NodeRole, Path, PortKind, RunRecord, Snapshot, TestRecord, TestSpec};

/// A section of the path between counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    /// IP, and what stands on it, of a node.
    Stack(String),
    /// A bridge of a node.
    Bridge(String, String),
    /// From this interface of a node to its other end.
    Link(String, String),
    /// What is at the other side of an interface, and not observed.
    Outside(String, String),
}

/// Frames that pass from one section to another.
struct Passage<'a> {
    from: Identity,
    to: Identity,
    at: &'a FlowInterface,
    count: &'a FlowCount,
}

/// A section that frames of the test crossed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The node, what it does, and the interfaces that most frames came and went by.
    pub hop: Hop,
    /// The other end, of a link.
    pub next: Option<Hop>,
    /// Frames that were counted into it; at the sender those that came back to it.
    pub entered: u64,
    /// Frames that were counted out of it; at the receiver those that went on.
    pub left: u64,
    /// It is a link.
    pub is_link: bool,
    /// No frame that was here went on to the receiver.
    pub is_off_the_way: bool,
    /// Frames that may have entered or left without being counted, by an interface that came during the test.
    pub uncounted: u64,
    /// Fragments behind the first ones that were counted into it, and out of it.
    pub later: [u64; 2],
    /// Datagrams that are taken for lost here with no more than a later fragment; they are in `entered` and not in `left`.
    pub incomplete: u64,
    /// Datagrams that may have been lost here or elsewhere, because nobody knows which fragments were theirs.
    pub disputed: u64,
}

/// The ends of a leg, and the nodes on it whose frames a program hands on.
#[derive(Debug, Clone, Copy)]
pub struct Nodes<'a> {
    /// Where it begins.
    pub from: &'a str,
    /// Where it ends.
    pub to: &'a str,
    /// Nodes with a program between their interfaces.
    pub programs: &'a [&'a str],
    /// Nodes and interfaces with a network emulation, which may send a frame twice behind the counter there.
    pub emulated: &'a [(&'a str, &'a str)],
}

impl Nodes<'_> {
    fn may_double(self, link: &Section) -> bool {
        let egress = link.hop.egress.as_deref().unwrap_or_default();
        self.emulated.contains(&(link.hop.node.as_str(), egress))
    }

    fn role(self, node: &str) -> NodeRole {
        match node {
            node if node == self.from => NodeRole::Sender,
            node if node == self.to => NodeRole::Receiver,
            node if self.programs.contains(&node) => NodeRole::Forwarder,
            _ => NodeRole::Router,
        }
    }
}

/// The nodes of a path whose frames a program hands on.
pub(crate) fn programs(path: &Path) -> Vec<&str> {
    let hops = path.forward.iter().chain(&path.back);
    hops.filter(|hop| hop.role == NodeRole::Forwarder).map(|hop| hop.node.as_str()).collect()
}

/// The nodes and interfaces whose frames a network emulation sends.
pub(crate) fn emulated(snapshot: &Snapshot) -> Vec<(&str, &str)> {
    let all =
        snapshot.nodes.iter().flat_map(|(node, seen)| seen.qdiscs.iter().map(move |qdisc| (node, qdisc)));
    let netem = all.filter(|(_, qdisc)| qdisc.is_netem());
    netem.map(|(node, qdisc)| (node.as_str(), qdisc.interface.as_str())).collect()
}

/// The steps of a leg, in the order of the first frame; none when frames passed the counters by.
pub fn sections(flow: &FlowObservation, leg: &str, nodes: Nodes<'_>) -> Option<Vec<Section>> {
    let passages = passages(flow, leg);
    let (sender, receiver) = (Identity::Stack(nodes.from.into()), Identity::Stack(nodes.to.into()));
    let mut sections: Vec<(u64, &Identity)> = vec![(entered_at(&passages, &sender).unwrap_or(0), &sender)];
    for section in passages.iter().flat_map(|passage| [&passage.from, &passage.to]) {
        let when = entered_at(&passages, section).unwrap_or(0);
        if !sections.contains(&(when, section)) {
            sections.push((when, section));
        }
    }
    // The sender has no entry, so it is first; a link has one before what is behind it.
    sections.sort_by_key(|(when, section)| (*section != &sender, *when));
    let on_the_way = reaching(flow, &passages, &receiver);
    let step = |(_, section): (u64, &Identity)| Section {
        is_off_the_way: !on_the_way.contains(section),
        uncounted: uncounted(flow, &passages, section),
        ..step(&passages, section, nodes)
    };
    let found: Vec<Section> = sections.into_iter().map(step).collect();
    let most = |section: &Section| section.entered.saturating_add(section.uncounted);
    let is_counted = |link: &Section| link.left <= most(link) || nodes.may_double(link);
    let is_whole = found.iter().all(|section| !section.is_link || is_counted(section));
    is_whole.then_some(found)
}

/// Whether the counters saw what crossed these nodes: a port of a program may take frames before they are counted, and let them
/// out behind. One that no frame was seen to enter, or the sender that none was seen to leave, is taken for such.
pub(crate) fn are_seen<'a>(sections: &[Section], mut nodes: impl Iterator<Item = &'a str>) -> bool {
    let is_seen = |section: &Section| match section.hop.role {
        NodeRole::Sender => section.left > 0,
        _ => section.entered > 0,
    };
    nodes.all(|node| {
        let here = |section: &&Section| !section.is_link && section.hop.node == node;
        sections.iter().find(here).is_some_and(is_seen)
    })
}

/// A leg of a flow whose ends nobody told.
pub(crate) struct Leg<'a> {
    flow: &'a FlowObservation,
    passages: Vec<Passage<'a>>,
}

impl<'a> Leg<'a> {
    pub(crate) fn of(flow: &'a FlowObservation, leg: &str) -> Leg<'a> {
        Leg { flow, passages: passages(flow, leg) }
    }

    fn leaves(&self, section: &Identity) -> bool {
        self.passages.iter().any(|passage| passage.from == *section)
    }

    /// Frames that came to a node.
    pub(crate) fn came_to(&self, node: &str) -> u64 {
        let here = self.passages.iter().filter(|passage| passage.to.stack() == Some(node));
        sum_of(here.map(|passage| passage.count.frames))
    }

    /// Whether frames came to that section.
    pub(crate) fn reaches(&self, section: &Identity) -> bool {
        self.passages.iter().any(|passage| passage.to == *section)
    }

    /// What frames left and none came to, nodes first, then by the first frame.
    pub(crate) fn sources(&self) -> Vec<Identity> {
        let begins = self.passages.iter().filter(|passage| !self.reaches(&passage.from));
        let mut found: Vec<_> = begins
            .map(|passage| (passage.from.stack().is_none(), passage.count.first_ns, &passage.from))
            .collect();
        found.sort();
        let mut sources = vec![];
        for (.., section) in found {
            if !sources.contains(section) {
                sources.push(section.clone());
            }
        }
        sources
    }

    /// Where frames came from: what nothing comes to, or on a way in a circle what the first one left.
    pub(crate) fn origin(&self) -> Option<Identity> {
        let first = || self.passages.iter().min_by_key(|passage| passage.count.first_ns);
        self.sources().into_iter().next().or_else(|| Some(first()?.from.clone()))
    }

    /// The nodes, and what is outside, that no frame left, each with how many came to it; the last one first.
    pub(crate) fn sinks(&self) -> Vec<(Identity, u64)> {
        let mut found: Vec<(Identity, u64)> = vec![];
        let is_end = |section: &Identity| matches!(section, Identity::Stack(_) | Identity::Outside(..));
        for passage in self.passages.iter().filter(|to| is_end(&to.to) && !self.leaves(&to.to)) {
            match found.iter_mut().find(|(known, _)| *known == passage.to) {
                Some((_, frames)) => *frames += passage.count.frames,
                None => found.push((passage.to.clone(), passage.count.frames)),
            }
        }
        found.sort_by_key(|(section, _)| std::cmp::Reverse(entered_at(&self.passages, section)));
        found
    }

    /// What went outside in the middle of the way and what came in again elsewhere are two ends of one section, that nobody
    /// sees; what only came in elsewhere has the same origin.
    fn join_outsides(&mut self, origin: &Identity, receiver: Option<&Identity>) {
        let is_open = |section: &Identity| {
            let is_outside = matches!(section, Identity::Outside(..));
            is_outside && section != origin && Some(section) != receiver
        };
        let gone = self.sinks().into_iter().map(|(section, _)| section).rfind(is_open);
        let is_from_outside = matches!(origin, Identity::Outside(..)).then(|| origin.clone());
        let Some(gone) = gone.or(is_from_outside) else { return };
        let came = |passage: &Passage| is_open(&passage.from) && !self.reaches(&passage.from);
        let again: Vec<bool> = self.passages.iter().map(came).collect();
        let went: Vec<bool> =
            self.passages.iter().map(|to| is_open(&to.to) && !self.leaves(&to.to)).collect();
        for (passage, (again, went)) in self.passages.iter_mut().zip(again.into_iter().zip(went)) {
            if again {
                passage.from = gone.clone();
            }
            if went {
                passage.to = gone.clone();
            }
        }
    }

    /// The origin, the sections that frames entered from there, from these, and so on. The order of the first frames is that of
    /// the counters' beginnings where a flow was there before them.
    fn steps_from<'s>(&'s self, origin: &'s Identity) -> Vec<BTreeSet<&'s Identity>> {
        let (mut steps, mut known) = (vec![], BTreeSet::from([origin]));
        let mut next = known.clone();
        while !next.is_empty() {
            let goes_on = self.passages.iter().filter(|passage| next.contains(&passage.from));
            let found: BTreeSet<&Identity> = goes_on.map(|passage| &passage.to).collect();
            steps.push(std::mem::take(&mut next));
            next = found.into_iter().filter(|section| known.insert(section)).collect();
        }
        steps
    }

    /// The sections from that origin to that receiver, where there is one, in the order of the way.
    pub(crate) fn sections(
        mut self,
        origin: &Identity,
        receiver: Option<&Identity>,
    ) -> Vec<(Identity, Section)> {
        self.join_outsides(origin, receiver);
        let mut all: Vec<&Identity> =
            self.passages.iter().flat_map(|passage| [&passage.from, &passage.to]).collect();
        all.sort();
        all.dedup();
        let steps = self.steps_from(origin);
        let place =
            |section: &&Identity| steps.iter().position(|step| step.contains(section)).unwrap_or(steps.len());
        all.sort_by_cached_key(|section| (place(section), entered_at(&self.passages, section)));
        let on_the_way = receiver.map(|receiver| reaching(self.flow, &self.passages, receiver));
        // Where nothing reached the receiver, each end may have got the copies that a bridge made.
        let is_astray = |section: &Identity| match &on_the_way {
            Some(known) => !known.contains(section),
            None => section.stack().is_some() && section != origin && !self.leaves(section),
        };
        let (from, to) = (origin.stack(), receiver.and_then(Identity::stack));
        let nodes = Nodes {
            from: from.unwrap_or_default(),
            to: to.unwrap_or_default(),
            programs: &[],
            emulated: &[],
        };
        let section = |section: &Identity| Section {
            is_off_the_way: is_astray(section),
            uncounted: uncounted(self.flow, &self.passages, section),
            ..step(&self.passages, section, nodes)
        };
        all.into_iter().map(|one| (one.clone(), section(one))).collect()
    }
}

impl Identity {
    /// The node whose stack it is.
    pub(crate) fn stack(&self) -> Option<&str> {
        match self {
            Identity::Stack(node) => Some(node),
            _ => None,
        }
    }
}

fn passages<'a>(flow: &'a FlowObservation, leg: &str) -> Vec<Passage<'a>> {
    let of_interface = |at: &'a FlowInterface| {
        let passage = move |count: &'a FlowCount| {
            let (from, to) = sides(at, count.hook);
            Passage { from, to, at, count }
        };
        at.counts.iter().map(passage)
    };
    let all = flow.interfaces.iter().flat_map(of_interface);
    // What a tunnel gives back to the stack that it came from is no step.
    all.filter(|passage| passage.count.leg == leg && passage.count.frames > 0 && passage.from != passage.to)
        .collect()
}

/// From where to where frames go at a hook.
fn sides(at: &FlowInterface, hook: Hook) -> (Identity, Identity) {
    let (inside, outside) = (inside(at), outside(at, hook));
    if hook == Hook::Ingress { (outside, inside) } else { (inside, outside) }
}

/// Frames of a leg that may have entered or left a section without being counted, by interfaces that came late: of those that frames
/// were counted at, and of those at the other end of a link that frames were counted into.
fn uncounted(flow: &FlowObservation, passages: &[Passage], section: &Identity) -> u64 {
    let at_hook = |at: &FlowInterface, hook: Hook| {
        let (from, to) = sides(at, hook);
        let is_counted = passages.iter().any(|one| std::ptr::eq(one.at, at) && one.count.hook == hook);
        let is_here = (from == *section || to == *section)
            && (is_counted || is_counted_link(passages, &from) || is_counted_link(passages, &to));
        Some(at.late.as_ref()?.uncounted(hook)).filter(|_| is_here)
    };
    let late = flow.interfaces.iter().filter(|one| one.late.is_some());
    let buffers =
        sum_of(late.flat_map(|at| [Hook::Ingress, Hook::Egress].map(|hook| at_hook(at, hook))).flatten());
    let per_buffer = passages.iter().map(|one| one.count.frames.div_ceil(one.count.buffers.max(1))).max();
    buffers.saturating_mul(per_buffer.unwrap_or(1))
}

/// What is behind an interface inside its node.
fn inside(at: &FlowInterface) -> Identity {
    match &at.master {
        Some(bridge) => Identity::Bridge(at.node.clone(), bridge.clone()),
        None => Identity::Stack(at.node.clone()),
    }
}

/// Kinds of interfaces that lead to another one, and not to what is below them: wires, devices, programs.
const LEADS_OUT: [&str; 3] = ["veth", "", "tun"];

/// Whether what comes out of an interface comes from the stack that it goes back to: a tunnel that is no port of a bridge.
pub(crate) fn is_tunnel(at: &FlowInterface) -> bool {
    outside(at, Hook::Ingress) == inside(at)
}

/// Whether nobody knows where an interface leads.
pub(crate) fn is_open(at: &FlowInterface) -> bool {
    at.other.is_none() && LEADS_OUT.contains(&at.kind.as_str())
}

/// What is at the other side of an interface.
fn outside(at: &FlowInterface, hook: Hook) -> Identity {
    match (at.kind.as_str(), &at.other) {
        // A bond hands frames to its ports and takes them from there, as a bridge does.
        ("bridge" | "bond", _) => Identity::Bridge(at.node.clone(), at.interface.clone()),
        (kind, None) if LEADS_OUT.contains(&kind) => Identity::Outside(at.node.clone(), at.interface.clone()),
        (kind, Some(other)) if LEADS_OUT.contains(&kind) => match hook {
            Hook::Egress => Identity::Link(at.node.clone(), at.interface.clone()),
            Hook::Ingress => Identity::Link(other.node.clone(), other.interface.clone()),
        },
        // A tunnel, or an interface that stands on another one: what is below is the stack there.
        (_, Some(below)) => Identity::Stack(below.node.clone()),
        (_, None) => Identity::Stack(at.node.clone()),
    }
}

fn entered_at(passages: &[Passage], section: &Identity) -> Option<u64> {
    passages.iter().filter(|passage| passage.to == *section).map(|passage| passage.count.first_ns).min()
}

/// The sections from which a frame came to that one, or may have come by an interface that was late, and itself.
fn reaching(flow: &FlowObservation, passages: &[Passage], to: &Identity) -> BTreeSet<Identity> {
    let mut steps: Vec<(Identity, Identity)> =
        passages.iter().map(|passage| (passage.from.clone(), passage.to.clone())).collect();
    // All frames that crossed it may have done so before it was counted: its link, which some were counted at, does not end there.
    let may_have_passed =
        |at: &FlowInterface, hook: Hook| at.late.as_ref().is_some_and(|late| late.uncounted(hook) > 0);
    for at in &flow.interfaces {
        for hook in [Hook::Ingress, Hook::Egress].into_iter().filter(|hook| may_have_passed(at, *hook)) {
            let (from, to) = sides(at, hook);
            if is_counted_link(passages, &from) || is_counted_link(passages, &to) {
                steps.push((from, to));
            }
        }
    }
    let mut found = BTreeSet::from([to.clone()]);
    loop {
        let before = found.len();
        for (from, to) in &steps {
            if found.contains(to) {
                found.insert(from.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// It is a link that frames were counted into or out of.
fn is_counted_link(passages: &[Passage], side: &Identity) -> bool {
    matches!(side, Identity::Link(..)) && passages.iter().any(|one| one.from == *side || one.to == *side)
}

fn step(passages: &[Passage], section: &Identity, nodes: Nodes<'_>) -> Section {
    let into: Vec<&Passage> = passages.iter().filter(|passage| passage.to == *section).collect();
    let out: Vec<&Passage> = passages.iter().filter(|passage| passage.from == *section).collect();
    let sum = |some: &[&Passage]| some.iter().map(|passage| passage.count.frames).sum();
    let most = |some: &[&Passage]| {
        some.iter().max_by_key(|passage| passage.count.frames).map(|passage| passage.at.clone())
    };
    let (ingress, egress) = (most(&into), most(&out));
    let hop = |node: &str,
               role,
               ingress: Option<&FlowInterface>,
               egress: Option<&FlowInterface>,
               bridge: Option<&str>| Hop {
        node: node.into(),
        role,
        ingress: ingress.map(|at| at.interface.clone()),
        egress: egress.map(|at| at.interface.clone()),
        bridge: bridge.map(Into::into),
    };
    let (ingress, egress) = (ingress.as_ref(), egress.as_ref());
    let (hop, next) = match section {
        Identity::Stack(node) => (hop(node, nodes.role(node), ingress, egress, None), None),
        Identity::Bridge(node, bridge) => (hop(node, NodeRole::Bridge, ingress, egress, Some(bridge)), None),
        Identity::Link(node, interface) | Identity::Outside(node, interface) => {
            let next = other_end(ingress, egress).map(|(node, interface)| Hop {
                ingress: Some(interface),
                ..hop(&node, NodeRole::Router, None, None, None)
            });
            let here =
                Hop { egress: Some(interface.clone()), ..hop(node, NodeRole::Router, None, None, None) };
            (here, next)
        }
    };
    let is_link = matches!(section, Identity::Link(..) | Identity::Outside(..));
    let later = |some: &[&Passage]| sum_of(some.iter().map(|passage| passage.count.later_fragments));
    Section {
        hop,
        next,
        entered: sum(&into),
        left: sum(&out),
        is_link,
        is_off_the_way: false,
        uncounted: 0,
        later: [later(&into), later(&out)],
        incomplete: 0,
        disputed: 0,
    }
}

/// Where a link ends: where frames came out, or else where its first end says.
fn other_end(first: Option<&FlowInterface>, last: Option<&FlowInterface>) -> Option<(String, String)> {
    let last = last.map(|at| (at.node.clone(), at.interface.clone()));
    last.or_else(|| first?.other.as_ref().map(|other| (other.node.clone(), other.interface.clone())))
}

/// The sections of a leg of a test, where the flow was counted on all of it.
fn counted(test: &TestRecord, leg: &str) -> Option<Vec<Section>> {
    let TestRecord { spec, flow, path, .. } = test;
    let flow = flow.as_ref().filter(|flow| flow.absent.is_none() && flow.missing.is_empty())?;
    let (from, to) = if leg == "forward" { (&spec.from, &spec.to) } else { (&spec.to, &spec.from) };
    let (programs, emulated) = (programs(path), emulated(&test.after));
    let nodes = Nodes { from, to, programs: &programs, emulated: &emulated };
    let sections = sections(flow, leg, nodes)?;
    are_seen(&sections, passed_by(spec, path)).then_some(sections)
}

/// The nodes where frames may pass the counters by: those with a program, and the ends of frames that go by ports. What a packet
/// socket receives is counted behind it.
pub(crate) fn passed_by<'a>(spec: &'a TestSpec, path: &'a Path) -> impl Iterator<Item = &'a str> {
    let is_by_socket = PortKind::named(spec.receiver_port().split('?').next().unwrap_or_default())
        .is_some_and(|kind| kind.through == Through::PacketSocket);
    let ends = [Some(spec.from.as_str()), Some(spec.to.as_str()).filter(|_| !is_by_socket)];
    let ends = ends.into_iter().flatten().filter(|_| spec.kind.is_by_port());
    programs(path).into_iter().chain(ends)
}

/// The path of a test as its frames show it: the nodes and bridges that they crossed on the way to the receiver, in order; none
/// where the flow was not counted, or not on all of its way.
pub fn path_of_frames(test: &TestRecord) -> Option<Path> {
    let hops = |leg: &str| -> Option<Vec<Hop>> {
        let sections = counted(test, leg)?;
        let sections = sections.into_iter().filter(|step| !step.is_link && !step.is_off_the_way);
        let hops: Vec<Hop> = sections.map(|step| step.hop).collect();
        hops.last().is_some_and(|hop| hop.role == NodeRole::Receiver).then_some(hops)
    };
    let forward = hops("forward")?;
    let back = if test.path.back.is_empty() { vec![] } else { hops("back")? };
    Some(Path { forward, back, source: "frames".into() })
}

/// The link on the way to the receiver that most frames of a leg were counted into and not out of, with how many; none where all came out of all, or an
/// interface was late.
pub(crate) fn worst_link(test: &TestRecord, leg: &str) -> Option<(Section, u64)> {
    let sections = counted(test, leg)?;
    let links =
        sections.into_iter().filter(|step| step.is_link && !step.is_off_the_way && step.uncounted == 0);
    let missing = links.map(|link| {
        let missing = link.entered.saturating_sub(link.left);
        (link, missing)
    });
    missing.filter(|(_, missing)| *missing > 0).max_by_key(|(_, missing)| *missing)
}

/// The links that frames of a test crossed, in the order of the first frame, each with what came out of it; a line a leg. Empty
/// where the flow was not counted.
pub fn lines(test: &TestRecord) -> Vec<String> {
    let link = |step: &Section| {
        let (from, to) = (step.hop.egress.as_deref()?, step.next.as_ref());
        let to =
            to.map_or("outside".into(), |to| format!("{}:{}", to.node, to.ingress.as_deref().unwrap_or("?")));
        let lost =
            if step.left == step.entered { String::new() } else { format!(" of {}", count(step.entered)) };
        let off = if step.is_off_the_way { ", not to the receiver" } else { "" };
        Some(format!("{}:{from} → {to} {}{lost}{off}", step.hop.node, count(step.left)))
    };
    let line = |leg: &str| {
        let links: Vec<String> =
            counted(test, leg)?.iter().filter(|step| step.is_link).filter_map(link).collect();
        (!links.is_empty()).then(|| format!("way {leg}: {}", links.join("; ")))
    };
    ["forward", "back"].into_iter().filter_map(line).collect()
}

/// A sentence for each interface that came while the flow was counted and that frames of that leg crossed.
pub(crate) fn late_words<'a>(flow: &'a FlowObservation, leg: &'a str) -> impl Iterator<Item = String> + 'a {
    let crossed = move |one: &&FlowInterface| one.counts.iter().any(|count| count.leg == leg);
    flow.interfaces.iter().filter(crossed).filter_map(|one| {
        let (at, late) = (format!("{}:{}", one.node, one.interface), one.late.as_ref()?);
        let seconds = late.after_ns as f64 / 1e9;
        Some(match late.received.saturating_add(late.sent) {
            0 => format!("{at} came while the flow was counted, after {seconds:.3} s; no frame crossed it before it was counted"),
            most => format!(
                "{at} came while the flow was counted, after {seconds:.3} s; up to {} of any flow crossed it before it was counted, which is the \
                 uncertainty of both sides",
                many(most, "frame")
            ),
        })
    })
}

/// What counting took for each frame, and of a CPU in the test where it took most; none where no flow was counted.
pub fn cost_words(run: &RunRecord) -> Option<String> {
    let cost = |test: &TestRecord| {
        let (flow, length_ns) = (test.flow.as_ref()?, test.seconds * 1e9);
        let counts = flow.interfaces.iter().flat_map(|interface| &interface.counts);
        let frames: u64 = counts.map(|count| count.buffers).sum();
        Some((flow.program_ns?, f64::from(flow.program_ns?) * frames as f64 / length_ns))
            .filter(|_| length_ns > 0.0)
    };
    let costs = run.tests.iter().filter_map(cost);
    let (ns, share) = costs.max_by(|one, other| one.1.total_cmp(&other.1))?;
    let percent = share * 100.0;
    Some(format!(
        "Counting the flow: {ns} ns for a frame at each interface, at most {percent:.1} % of a CPU in one test."
    ))
}

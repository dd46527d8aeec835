//! What the host of an end sees around a test: counters of some nodes before and after, the flow at their interfaces, its drops.

use crate::protocol::setup::{DataPorts, EndRole};
use linux::observe::{Actor, ConditionWatch, Flow, FlowLinks, FlowProtocol, FlowWatch, Observer, host_facts};
use linux::sys::netns;
use record::kind::Transport;
use record::{HostObservation, Result, TestSpec};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Network namespaces with their names.
pub type Nodes = Vec<(String, OwnedFd)>;

/// An observation that goes on.
pub struct HostWatch {
    observer: Observer,
    actors: Vec<Actor>,
    watch: FlowWatch,
    conditions: ConditionWatch,
    seen: HostObservation,
}

impl HostWatch {
    /// Begins to watch a flow at these nodes, of which the first is the process's own, and reads their counters; `end` is the process of
    /// this host's end of the test, and which end that is; none between the two.
    ///
    /// # Errors
    /// A host problem when a node cannot be entered.
    pub fn start(nodes: &Nodes, flow: &Flow, end: Option<(u32, EndRole)>) -> Result<HostWatch> {
        let nodes: Vec<(String, BorrowedFd<'_>)> =
            nodes.iter().map(|(name, file)| (name.clone(), file.as_fd())).collect();
        let watch = FlowWatch::start(&nodes, flow, FlowLinks::default(), None);
        let mut observer = Observer::new(&nodes)?;
        let namespaces: Vec<u64> = nodes.iter().map(|(_, node)| netns::inode(*node).unwrap_or(0)).collect();
        let namespace = namespaces.first().copied().unwrap_or(0);
        let own = nodes.first().map(|(name, _)| name.clone()).unwrap_or_default();
        let actor = |(pid, role): (u32, EndRole)| Actor { pid, role: role.name().into(), node: own.clone() };
        let actors: Vec<Actor> = end.into_iter().map(actor).collect();
        let before = observer.snapshot(&actors)?;
        let host = host_facts();
        let seen = HostObservation { namespace, namespaces, host, before, ..HostObservation::default() };
        let processes: Vec<u32> = actors.iter().map(|actor| actor.pid).collect();
        let conditions = ConditionWatch::start(&nodes, &processes);
        Ok(HostWatch { observer, actors, watch, conditions, seen })
    }

    /// The traffic has ended.
    pub fn settle(&mut self) {
        self.conditions.settle();
    }

    /// Whether no frame of the flow moves any more; false where it is not counted.
    ///
    /// # Errors
    /// A host problem when the counts cannot be read.
    pub fn rests(&self) -> Result<bool> {
        self.watch.rests()
    }

    /// Reads the counters again, and says what was seen.
    ///
    /// # Errors
    /// A host problem when counters cannot be read.
    pub fn end(mut self) -> Result<HostObservation> {
        self.seen.conditions = vec![self.conditions.end()];
        self.seen.after = self.observer.snapshot(&self.actors)?;
        let (flow, witnessed, _) = self.watch.end()?;
        self.seen.flow = flow;
        match witnessed {
            Ok(count) => (self.seen.drops, self.seen.lost) = (count.details, count.lost),
            Err(absent) => self.seen.no_witness = Some(absent),
        }
        Ok(self.seen)
    }
}

/// The frames of a test, by its ports and the stream that its messages carry.
pub fn flow(spec: &TestSpec, ports: &DataPorts, stream: u8) -> Flow {
    let protocol = match (spec.kind.facts().transport, spec.family) {
        (Transport::Tcp, _) => FlowProtocol::Tcp,
        (Transport::Udp, _) => FlowProtocol::Udp,
        (Transport::Icmp, 6) => FlowProtocol::Icmp6,
        (Transport::Icmp, _) => FlowProtocol::Icmp,
    };
    // Any of these numbers makes a frame one of the test's: the receiver's port where there is one (the senders' ports are
    // then not needed), else the identifier of the echo requests.
    let stream = (!spec.kind.is_tcp()).then_some(stream);
    Flow { protocol, ports: ports.receiver.or(ports.icmp_id).into_iter().collect(), stream, ends: None }
}

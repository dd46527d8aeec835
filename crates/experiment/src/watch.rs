//! What is read around one test: counters of all nodes before and after, and the witness in between.

use crate::drops::DeadFrames;
use crate::processes::{self, ProcessWatch};
use crate::programs;
use linux::lab::{Lab, NodeProgram};
use linux::observe::{
    Actor, ConditionWatch, Flow, FlowWatch, LayerWatch, Observer, Patience, Settled, TimeDepth, TimeWatch,
    Witness, WitnessCount,
};
use load::DataPorts;
use load::conversation::observation::flow;
use record::drops::DropsReport;
use record::ledger::WitnessDrop;
use record::snapshot::NodeSnapshot;
use record::{
    Conditions, FlowInterface, FlowObservation, FlowPlace, LayerObservation, Result, Snapshot, TestSpec,
    TimeObservation,
};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use study::ledger::WitnessInput;

/// How long to wait for queues to empty after the last message; a shaper with a deep queue needs the most.
const SETTLE_NS: u64 = 2_000_000_000;

/// How long to wait for programs that hand frames on and are at work, or get no CPU, or are stopped.
const PROGRAMS_NS: u64 = 30_000_000_000;

/// Of a lab with more nodes only those on the way are watched: each takes five descriptors.
const MOST_WATCHED: usize = 32;

/// How often a program is asked at most until its counters rest.
const MOST_LOOKS: u32 = 5;

/// Counters that move while connections are made.
const OF_CONNECTIONS: [&str; 3] = ["TcpExt.ListenOverflows", "TcpExt.ListenDrops", "TcpExt.TCPReqQFullDrop"];

/// What each program said, or why nothing.
pub type Answers<'a> = Vec<(&'a NodeProgram, Result<NodeSnapshot>)>;

/// Asks every program of a lab until it says the same twice, its own lag apart.
pub fn ask(lab: &Lab) -> Answers<'_> {
    let still = |one: &NodeProgram| -> Result<NodeSnapshot> {
        let mut sample = programs::sample(one)?;
        for _ in 0..MOST_LOOKS {
            std::thread::sleep(programs::lag(one));
            let now = programs::sample(one)?;
            if now == sample {
                break;
            }
            sample = now;
        }
        Ok(sample)
    };
    programs::asked(lab).into_iter().map(|one| (one, still(one))).collect()
}

/// What every program says at once, whatever it still holds back.
pub fn glance(lab: &Lab) -> Answers<'_> {
    programs::asked(lab).into_iter().map(|one| (one, programs::sample(one))).collect()
}

/// Puts what the programs said into a snapshot.
pub fn put(snapshot: &mut Snapshot, answers: Answers<'_>) {
    for (NodeProgram { node, role, .. }, answer) in answers {
        match answer {
            Ok(sample) => {
                let node = snapshot.nodes.entry(node.clone()).or_default();
                (node.switch, node.ways) = (sample.switch, sample.ways);
            }
            Err(problem) => snapshot.missing.push(format!("the {role} of node {node}: {problem}")),
        }
    }
}

/// What is looked at beyond what is read of every test.
#[derive(Debug, Clone, Default)]
pub struct Depth {
    /// Samples of each CPU in a second; none without a profile.
    pub profile_hz: Option<u32>,
    /// One of so many messages is stamped in each layer; none without the layers.
    pub layers_every: Option<u32>,
    /// The file for the frames of the test that die; none where they are only counted.
    pub dead_frames: Option<PathBuf>,
}

/// The observer of one test.
pub struct TestObserver<'a> {
    lab: &'a Lab,
    spec: &'a TestSpec,
    observer: &'a mut Observer,
    actors: Vec<Actor>,
    watch: Option<FlowWatch>,
    /// Counters of connections before they were made, TCP only.
    opening: Option<Snapshot>,
    /// Drops of the flow while connections are made, where they can be seen; TCP only.
    connecting: Option<(Flow, Option<Witness>)>,
    watched: Option<ProcessWatch>,
    conditions: Option<ConditionWatch>,
    depth: Depth,
    time: Option<TimeWatch>,
    dead_frames: Option<DeadFrames>,
    layers: Option<std::result::Result<LayerWatch, String>>,
    /// What was seen.
    pub seen: TestObservation,
}

/// Everything that was read around a test.
#[derive(Default)]
pub struct TestObservation {
    /// Ports of the test's traffic.
    pub ports: DataPorts,
    /// Counters before the first message.
    pub before: Snapshot,
    /// Counters after the last one, when nothing moved any more.
    pub after: Snapshot,
    /// Whether the queues were quiet.
    pub settled: Option<Settled>,
    /// Programs of the lab that ended meanwhile.
    pub ended: Vec<String>,
    /// What else ran, and which end was stopped.
    pub beside: processes::Seen,
    /// The flow as it was counted at every interface.
    pub flow: FlowObservation,
    /// Where the time went.
    pub time: Option<TimeObservation>,
    /// When messages passed the layers, where that was asked for.
    pub layers: Option<LayerObservation>,
    /// What the witness counted, or why there is none.
    pub witness: Option<WitnessInput>,
    /// The conditions of the host meanwhile.
    pub conditions: Option<Conditions>,
    /// The frames that died, where a file of them was wanted.
    pub dead_frames: Option<DropsReport>,
}

impl<'a> TestObserver<'a> {
    /// A watch over one test, not yet begun.
    pub fn new(
        lab: &'a Lab,
        spec: &'a TestSpec,
        observer: &'a mut Observer,
        actors: Vec<Actor>,
        depth: Depth,
    ) -> Result<Self> {
        let opening = if spec.kind.is_tcp() { Some(observer.snapshot(&[])?) } else { None };
        let seen = TestObservation::default();
        Ok(TestObserver {
            lab,
            spec,
            observer,
            actors,
            watch: None,
            opening,
            connecting: None,
            watched: None,
            conditions: None,
            depth,
            time: None,
            dead_frames: None,
            layers: None,
            seen,
        })
    }

    /// Connections are made before the first reading. What the accept queue refused meanwhile belongs to the test, so
    /// these counters begin before the connections.
    fn count_connections_from_opening(&mut self) {
        let Some(opening) = self.opening.take() else { return };
        for (name, node) in opening.nodes {
            let Some(before) = self.seen.before.nodes.get_mut(&name) else { continue };
            let of_connections = |(counter, _): &(String, u64)| OF_CONNECTIONS.contains(&counter.as_str());
            before.protocols.extend(node.protocols.into_iter().filter(of_connections));
        }
    }

    /// What the kernel dropped of a connection that could not be made; empty where nobody could see it, none when there was a
    /// connection or none was tried.
    pub fn lost_connecting(&self) -> Option<Vec<WitnessDrop>> {
        let (_, witness) = self.connecting.as_ref()?;
        let count = witness.as_ref().and_then(|witness| witness.read().ok());
        Some(count.map(|count| count.details).unwrap_or_default())
    }
}

impl load::Observer for TestObserver<'_> {
    fn connecting(&mut self, ports: &DataPorts) -> Result<()> {
        if self.spec.kind.is_tcp() {
            let flow = flow(self.spec, ports, 0);
            let witness = Witness::start(&namespaces(self.lab), &flow).ok();
            self.connecting = Some((flow, witness));
        }
        Ok(())
    }

    fn before(&mut self, ports: &DataPorts, stream: u8) -> Result<()> {
        self.seen.ports = ports.clone();
        let flow = flow(self.spec, ports, stream);
        let of_flow = self.connecting.take().filter(|(connecting, _)| *connecting == flow);
        let witness = of_flow.and_then(|(_, witness)| witness);
        let nodes = namespaces(self.lab);
        let watch = |file: &PathBuf| DeadFrames::start(&nodes, &flow, file);
        self.dead_frames = self.depth.dead_frames.as_ref().map(watch).transpose()?;
        let links = std::mem::take(&mut self.observer.flow_links);
        self.watch = Some(FlowWatch::start(&nodes, &flow, links, witness));
        let asked = ask(self.lab);
        self.seen.before = self.observer.snapshot(&self.actors)?;
        put(&mut self.seen.before, asked);
        self.count_connections_from_opening();
        self.watched = Some(ProcessWatch::watch(&self.actors));
        let pids: Vec<u32> = self.actors.iter().map(|actor| actor.pid).collect();
        self.conditions = Some(ConditionWatch::start(&watched(self.lab, self.spec), &pids));
        let depth = self.depth.profile_hz.map_or(TimeDepth::Accounts, TimeDepth::Profile);
        self.time = Some(TimeWatch::start(&self.actors, depth)?);
        let watch =
            |every| LayerWatch::start(&watched(self.lab, self.spec), &self.actors, (self.spec, &flow), every);
        self.layers = self.depth.layers_every.map(watch);
        Ok(())
    }

    fn settled(&mut self) -> Result<()> {
        if let Some(watched) = &self.watched {
            watched.settle();
        }
        if let Some(conditions) = &mut self.conditions {
            conditions.settle();
        }
        if let Some(time) = &mut self.time {
            time.stop();
        }
        let now = linux::sys::clock::monotonic_ns();
        let patience = Patience { queues_ns: now + SETTLE_NS, programs_ns: now + PROGRAMS_NS };
        let mut settled = self.observer.settle(&self.actors, patience)?;
        if let (false, Some(watch)) = (settled.quiet, &self.watch) {
            settled.quiet = watch.rests()?;
        }
        self.seen.settled = Some(settled);
        Ok(())
    }

    fn after(&mut self) -> Result<()> {
        self.seen.conditions = self.conditions.take().map(ConditionWatch::end);
        let asked = ask(self.lab);
        self.seen.after = self.observer.snapshot(&self.actors)?;
        put(&mut self.seen.after, asked);
        if let Some(watched) = self.watched.take() {
            self.seen.beside = watched.end(self.seen.after.tick_hz);
        }
        let time = self.time.take();
        self.seen.time = time.map(|time| time.end(&namespaces(self.lab), &self.seen.after));
        self.seen.layers = self.layers.take().map(|watch| layers(watch, self.lab, &self.seen.after));
        if let Some(watch) = self.watch.take() {
            let (flow, witnessed, links) = watch.end()?;
            (self.seen.flow, self.observer.flow_links) = (flow, links);
            join_cables(self.lab, &mut self.seen.flow);
            self.seen.witness = Some(match witnessed {
                Ok(WitnessCount { details, lost, .. }) => WitnessInput::Counted { details, lost },
                Err(absent) => WitnessInput::Absent(absent),
            });
        }
        self.seen.dead_frames = self.dead_frames.take().map(DeadFrames::end).transpose()?;
        Ok(())
    }
}

/// What was seen of the layers, or why nothing was.
fn layers(watch: std::result::Result<LayerWatch, String>, lab: &Lab, after: &Snapshot) -> LayerObservation {
    match watch {
        Ok(watch) => watch.end(&namespaces(lab), after),
        Err(why) => LayerObservation { missing: vec![why], ..LayerObservation::default() },
    }
}

/// The nodes whose conditions are watched: all of a small lab, of a larger one those that the routes of the test name.
fn watched<'a>(lab: &'a Lab, spec: &TestSpec) -> Vec<(String, BorrowedFd<'a>)> {
    let mut nodes = namespaces(lab);
    if nodes.len() > MOST_WATCHED {
        let ways = [(&spec.from, &spec.to), (&spec.to, &spec.from)];
        let paths = ways.into_iter().filter_map(|(from, to)| lab.path(from, to, spec.family).ok());
        let named: Vec<String> = paths.flat_map(|path| path.forward).map(|hop| hop.node).collect();
        nodes.retain(|(name, _)| named.contains(name));
    }
    nodes
}

/// The nodes of a lab as the observing parts want them.
pub fn namespaces(lab: &Lab) -> Vec<(String, BorrowedFd<'_>)> {
    lab.nodes().iter().map(|node| (node.name().to_owned(), node.netns())).collect()
}

/// The kernel knows what is at the other end of a veth, and not what a cable leads to: that the topology says.
fn join_cables(lab: &Lab, flow: &mut FlowObservation) {
    let is_card = |one: &FlowInterface| one.other.is_none() && one.kind.is_empty();
    for one in flow.interfaces.iter_mut().filter(|one| is_card(one)) {
        let peer = lab.topology().peer(&one.node, &one.interface);
        one.other = peer.map(|end| FlowPlace { node: end.node.clone(), interface: end.name.clone() });
    }
}

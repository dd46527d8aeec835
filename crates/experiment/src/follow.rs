//! A flow that somebody else sends, counted in some namespaces of this host while it goes on.
//!
//! **What.** [`Following::start`] puts the counters of the flow at every interface, starts the witness, and reads the counters of
//! the nodes; [`Following::look`] says at any time what became of every frame, [`Following::report`] waits until no frame moves.
//!
//! **Namespaces come and go.** A container that is stopped would live on for as long as anything here has its namespace open:
//! [`Following::keep_up`] lets go of what everybody else has left, with what its counters said last, and takes in what comes.
//!
//! **Price.** The counters' programs run for every frame of these interfaces (`docs/counters.md`). Nothing is changed that outlives
//! the process.

use linux::namespace::{NamespaceChanges, NamespaceWatch};
use linux::netlink::Netlink;
use linux::observe::flow_watch::REST;
use linux::observe::{Flow, FlowCounters, FlowEnds, Observer, Witness, WitnessCount};
use linux::sys::netns;
use record::follow::{FollowChange, FollowLeg, FollowReport};
use record::{FlowObservation, Problem, Result, Snapshot};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use study::criteria::{MostLoss, followed};
use study::ledger::WitnessInput;
use study::ledger::follow::{FollowInput, follow, witness};

/// How long to wait at the end for frames that still move, or are still in a queue.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long when frames may wait for the address of a neighbour: three requests, a second apart (`mcast_solicit`, `retrans_time_ms`).
const PATIENCE_FOR_NEIGHBOURS: Duration = Duration::from_secs(4);

/// The two directions, in their order.
const LEGS: [&str; 2] = ["forward", "back"];

/// A namespace with its name.
type Node<'a> = (String, BorrowedFd<'a>);

/// All that was read at one time.
struct Reading {
    counted: FlowObservation,
    legs: Vec<FollowLeg>,
    witness: record::Witness,
    after: Snapshot,
}

/// A flow that is being followed.
pub struct Following {
    flow: Flow,
    names: Vec<String>,
    counters: FlowCounters,
    /// What was counted before the beginning, and how many frames were on their way then, on both legs.
    counted: FlowObservation,
    doubt: [u64; 2],
    witness: BegunWitness,
    observer: Observer,
    before: Snapshot,
    /// The last counters of the namespaces that went.
    last: Snapshot,
    changes: Vec<FollowChange>,
    /// The nodes that have the source's address and the destination's.
    homes: [Option<String>; 2],
    begun: Instant,
    /// Frames that moved between the last two readings, on both legs; none: they rest.
    moving: Option<[u64; 2]>,
}

impl Following {
    /// Begins to count in these namespaces, and in those that come; none of them is held open by the caller.
    ///
    /// # Errors
    /// A `Host` problem when the flow cannot be counted here.
    pub fn start(flow: Flow, namespaces: Vec<(String, OwnedFd)>, watch: NamespaceWatch) -> Result<Following> {
        let nodes: Vec<Node> = namespaces.iter().map(|(name, file)| (name.clone(), file.as_fd())).collect();
        let mut observer = Observer::new(&nodes)?;
        let before = observer.snapshot(&[])?;
        let counters = FlowCounters::start_for_all(&nodes, &flow, watch)
            .map_err(|why| Problem::host(format!("the flow cannot be counted here: {why}")))?;
        let witness = begun_witness(&nodes, &flow)?;
        // The flow may have been going on while the counters came one by one.
        let first = counters.read()?;
        let counted = counters.read()?;
        let (doubt, homes) = (moved(&first, &counted), homes(&nodes, &flow));
        let names = nodes.into_iter().map(|(name, _)| name).collect();
        Ok(Self {
            flow,
            names,
            counters,
            counted,
            doubt,
            witness,
            observer,
            before,
            last: Snapshot::default(),
            changes: vec![],
            homes,
            begun: Instant::now(),
            moving: Some([0; 2]),
        })
    }

    /// Lets go of namespaces that everybody else has left, and takes in those that came. To be called often: until then they live on.
    ///
    /// # Errors
    /// A `Host` problem when what the witness saw in them cannot be read.
    pub fn keep_up(&mut self) -> Result<()> {
        let NamespaceChanges { went, came } = self.counters.changes();
        let seconds = self.seconds();
        for node in went {
            self.last.nodes.extend(self.observer.leave(&node).map(|found| (node.clone(), found)));
            if let Ok((witness, _)) = &mut self.witness {
                witness.leave(&node)?;
            }
            self.changes.push(FollowChange { node, came: false, seconds });
        }
        for (node, namespace) in came {
            // One that went again at once was not there.
            let Ok(found) = self.observer.enter(&node, namespace.as_fd()) else { continue };
            // Of one that was started anew the counters begin anew; what was counted of the flow goes on.
            self.before.nodes.insert(node.clone(), found);
            self.last.nodes.remove(&node);
            if let Ok((witness, _)) = &mut self.witness {
                let refused =
                    |error| Problem::host(format!("the namespace {node} cannot be entered: {error}"));
                witness.enter(&node, namespace.as_fd()).map_err(refused)?;
            }
            let ends = self.flow.ends.unwrap_or_default();
            for (home, end) in self.homes.iter_mut().zip([ends.source, ends.destination]) {
                let is_home = || end.address.is_some_and(|address| has(namespace.as_fd(), address));
                if home.is_none() && is_home() {
                    *home = Some(node.clone());
                }
            }
            if !self.names.contains(&node) {
                self.names.push(node.clone());
            }
            self.changes.push(FollowChange { node, came: true, seconds });
        }
        Ok(())
    }

    /// Seconds since the beginning.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// What became of every frame until now, on each leg that has some.
    ///
    /// # Errors
    /// A `Host` problem when counters cannot be read.
    pub fn look(&mut self) -> Result<Vec<FollowLeg>> {
        Ok(self.read_moving()?.legs)
    }

    /// What was counted since the beginning.
    fn counted(&self) -> Result<FlowObservation> {
        Ok(self.counters.read()?.since(&self.counted))
    }

    fn read(&mut self, counted: FlowObservation, seen: [WitnessInput; 2]) -> Result<Reading> {
        let mut after = self.observer.snapshot(&[])?;
        after.nodes.extend(self.last.nodes.clone());
        let legs = [0, 1].into_iter().filter_map(|index| self.leg(index, &counted, &after, &seen[index]));
        let legs: Vec<FollowLeg> = legs.collect();
        let witness = witness(&seen, &legs);
        Ok(Reading { counted, legs, witness, after })
    }

    /// The leg forward (0) or back (1).
    fn leg(
        &self,
        index: usize,
        flow: &FlowObservation,
        after: &Snapshot,
        witness: &WitnessInput,
    ) -> Option<FollowLeg> {
        let [source, destination] = self.has_addresses();
        follow(&FollowInput {
            flow,
            leg: LEGS[index],
            home: self.homes[1 - index].as_deref(),
            addressed: if index == 0 { [source, destination] } else { [destination, source] },
            family: self.flow.ends.and_then(FlowEnds::version).unwrap_or(4),
            protocol: self.flow.protocol.name(),
            before: &self.before,
            after,
            witness,
            rests: self.moving.is_none(),
            doubt: self.doubt[index] + self.moving.map_or(0, |moving| moving[index]),
        })
    }

    /// Whether the words have the address of the source, and of the destination.
    fn has_addresses(&self) -> [bool; 2] {
        let FlowEnds { source, destination } = self.flow.ends.unwrap_or_default();
        [source, destination].map(|end| end.address.is_some())
    }

    /// What the witness saw of both legs.
    fn witness_inputs(&self) -> Result<[WitnessInput; 2]> {
        let (witness, before) = match &self.witness {
            Ok(witness) => witness,
            Err(absent) => return Ok(LEGS.map(|_| WitnessInput::Absent(absent.clone()))),
        };
        let backwards = || Problem::host("the counts of the drop witness went backwards");
        let WitnessCount { details, back, lost, .. } = witness.read()?.since(before).ok_or_else(backwards)?;
        Ok([details, back].map(|details| WitnessInput::Counted { details, lost }))
    }

    /// Waits until no frame moves, at most for a while, and says what became of every one.
    ///
    /// # Errors
    /// A `Host` problem when counters cannot be read.
    pub fn report(mut self, ended: &str, max_loss: Option<MostLoss>) -> Result<FollowReport> {
        self.keep_up()?;
        let seconds = self.seconds();
        let mut read = self.settled(Instant::now())?;
        read.legs.iter_mut().for_each(|leg| leg.notes.extend(self.nobodys_address(leg)));
        let missing = missing(&read.counted, &self.before, &read.after);
        let why = followed(&read.legs, max_loss);
        Ok(FollowReport {
            schema: "pathlab/follow/1".into(),
            flow: self.flow.to_string(),
            nodes: self.names,
            changes: self.changes,
            seconds,
            ended: ended.into(),
            rests: self.moving.is_none(),
            legs: read.legs,
            witness: read.witness,
            missing,
            program_ns: read.counted.program_ns,
            passed: why.is_none(),
            why: why.unwrap_or_default(),
        })
    }

    /// Where frames go to an address that no node has, they ended, or wait, where they were last seen.
    fn nobodys_address(&self, leg: &FollowLeg) -> Option<String> {
        let index = usize::from(leg.leg == LEGS[0]);
        let ends = self.flow.ends?;
        let address = [ends.source, ends.destination][index].address?;
        let is_for_many =
            address.is_multicast() || address == IpAddr::from([255; 4]) || address.is_loopback();
        let inside = leg.to.as_ref().filter(|to| to.beyond.is_none() && leg.received > 0)?;
        (self.homes[index].is_none() && !is_for_many).then(|| {
            format!(
                "no namespace alone has the address {address}: what {} received was translated there, or waits there, or was for all",
                inside.node
            )
        })
    }

    /// The first reading at which no frame moves and none is missing without a name, or the one after the longest patience.
    fn settled(&mut self, begun: Instant) -> Result<Reading> {
        let mut before = self.counted()?;
        loop {
            std::thread::sleep(REST);
            let now = self.counted()?;
            let is_late = begun.elapsed() >= PATIENCE;
            if is_late && now.interfaces != before.interfaces {
                return self.read_moving();
            }
            if is_late || now.interfaces == before.interfaces {
                self.moving = None;
                let seen = self.witness_inputs()?;
                let read = self.read(now.clone(), seen)?;
                let may_wait = begun.elapsed() < PATIENCE_FOR_NEIGHBOURS && is_asking(&read.after);
                // What nobody explains may still wait in a queue.
                if !may_wait && (is_late || read.legs.iter().all(|leg| leg.unexplained == 0)) {
                    return Ok(read);
                }
            }
            before = now;
        }
    }

    /// No reading is of one moment: what moves between two of them may be missing in one. What the witness sees later than the
    /// counters were read would be missing nowhere, so it is read first.
    fn read_moving(&mut self) -> Result<Reading> {
        let seen = self.witness_inputs()?;
        let before = self.counted()?;
        let now = self.counted()?;
        self.moving = Some(moved(&before, &now));
        self.read(now, seen)
    }
}

/// The witness, and what it had seen at the beginning.
type BegunWitness = std::result::Result<(Witness, WitnessCount), record::Witness>;

fn begun_witness(nodes: &[Node], flow: &Flow) -> Result<BegunWitness> {
    Ok(match Witness::start_for_all(nodes, flow) {
        Ok(witness) => {
            let seen = witness.read()?;
            Ok((witness, seen))
        }
        Err(absent) => Err(absent),
    })
}

/// Whether a node asks for the address of a neighbour, which frames may wait for.
fn is_asking(nodes: &Snapshot) -> bool {
    let mut neighbours = nodes.nodes.values().flat_map(|node| &node.neighbours);
    neighbours.any(|neighbour| neighbour.state == "incomplete")
}

/// Interfaces without counters; also those that came meanwhile, and are not others by a new name.
fn missing(counted: &FlowObservation, before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let was_there = |node: &str, index: u32| {
        before.nodes.get(node).is_some_and(|found| found.links.iter().any(|link| link.index == index))
    };
    let is_known = |node: &str, interface: &str| {
        counted.interfaces.iter().any(|one| one.node == node && one.interface == interface)
    };
    let came = after.nodes.iter().flat_map(|(node, found)| {
        let new =
            found.links.iter().filter(|link| !is_known(node, &link.name) && !was_there(node, link.index));
        new.map(move |link| format!("{node}:{} (it came while the flow was followed)", link.name))
    });
    counted.missing.iter().cloned().chain(came).collect()
}

/// The most that any counter grew by, on both legs.
fn moved(before: &FlowObservation, now: &FlowObservation) -> [u64; 2] {
    let grown = now.since(before);
    let counts = || grown.interfaces.iter().flat_map(|one| &one.counts);
    LEGS.map(|leg| counts().filter(|count| count.leg == leg).map(|count| count.frames).max().unwrap_or(0))
}

/// The nodes that have the source's address and the destination's.
fn homes(nodes: &[Node], flow: &Flow) -> [Option<String>; 2] {
    let FlowEnds { source, destination } = flow.ends.unwrap_or_default();
    [source, destination].map(|end| home(nodes, end.address?))
}

/// The node that has this address, if one alone has it.
fn home(nodes: &[Node], address: IpAddr) -> Option<String> {
    let mut found = nodes.iter().filter(|(_, namespace)| has(*namespace, address));
    let first = found.next().map(|(name, _)| name.clone());
    if found.next().is_some() { None } else { first }
}

fn has(namespace: BorrowedFd, address: IpAddr) -> bool {
    let listed = netns::within(namespace, || Netlink::open().addresses());
    listed.is_ok_and(|found| found.is_ok_and(|found| found.iter().any(|(_, one)| one.address == address)))
}

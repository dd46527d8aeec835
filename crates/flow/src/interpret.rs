//! The interpreter: what happens to a frame, written as the standard describes it.
//!
//! **What.** [`receive`] takes a frame that came in by a port through the tables (§5.1, figure 2); [`packet_out`] does
//! what a controller says with a frame of its own (§7.3.7). Both write a [`Verdict`]: the frames that leave and the
//! packet-ins. An [`Interpreter`] does the same for many frames in turn, and tells a [`FrameSink`] of its own what leaves.
//!
//! **Why.** This is the meaning of the pipeline. Every other engine is compared with it; it looks at rules one by one and
//! parses the frame again after every change, so that there is nothing in it to be wrong.
//!
//! **Price.** It is slow: time grows with the number of rules. A [`StepObserver`] sees every step; without one the compiler leaves
//! nothing of it. Groups allocate for each frame.

use crate::action::{Action, Instruction};
use crate::action_set::ActionSet;
use crate::bridge::BridgeOutput;
use crate::carried::{CarriedFrame, EditBuffers, LeavingFrame};
use crate::drop::Drop;
use crate::field::{Field, Value};
use crate::meter::{BandKind, CONTROLLER_METER, raise_drop_precedence};
use crate::pipeline::{Fragments, Pipeline};
use crate::port::{Port, PortConfig, PortNo, PortState};
use crate::rule::{PacketInReason, Rule};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use wire::edit::Refused;
use wire::layers::Fragment;
use wire::offload::{Offload, Pieces};

/// Buckets that one frame may meet. Groups that send to groups multiply copies; this bounds them.
pub const COPY_LIMIT: usize = 1024;
/// The cookie of a packet-in that no rule caused (§7.4.1).
pub const NO_COOKIE: u64 = u64::MAX;

/// A frame that comes in.
#[derive(Debug, Clone, Copy)]
pub struct InputFrame<'a> {
    /// The port.
    pub port: PortNo,
    /// The physical port under it, when the port is a logical one.
    pub phy_port: Option<PortNo>,
    /// What a logical port says about its tunnel; 0 for other ports (§7.2.3.7).
    pub tunnel_id: u64,
    /// The bytes.
    pub frame: &'a [u8],
    /// What their sender left to the hardware.
    pub offload: Offload,
}

impl<'a> InputFrame<'a> {
    /// A frame that comes in by an ordinary port.
    pub fn new(port: PortNo, frame: &'a [u8]) -> InputFrame<'a> {
        InputFrame { port, phy_port: None, tunnel_id: 0, frame, offload: Offload::NONE }
    }
}

/// A frame that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFrame {
    /// By this port.
    pub port: PortNo,
    /// By this queue of it.
    pub queue: Option<u32>,
    /// The bytes.
    pub frame: Vec<u8>,
    /// What is left to the hardware.
    pub offload: Offload,
}

/// A frame for the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketIn {
    /// Why.
    pub reason: PacketInReason,
    /// The table that the frame was in.
    pub table: u8,
    /// The cookie of the rule that sent it, or [`NO_COOKIE`].
    pub cookie: u64,
    /// The port by which the frame came in.
    pub in_port: PortNo,
    /// The physical port under it.
    pub phy_port: Option<PortNo>,
    /// The metadata at that moment.
    pub metadata: u64,
    /// The tunnel.
    pub tunnel_id: u64,
    /// How long the frame is.
    pub total_len: usize,
    /// All of it.
    pub frame: Vec<u8>,
}

/// A counter of the standard (§5.8, table 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Received by a port.
    Rx(PortNo),
    /// Received by a port and dropped there.
    RxDropped(PortNo),
    /// Sent by a port.
    Tx(PortNo),
    /// To be sent by a port and dropped there.
    TxDropped(PortNo),
    /// Looked up in a table.
    Lookup(u8),
    /// Matched in a table.
    Matched(u8),
    /// Matched by a rule.
    Rule(u8),
    /// Came to a group.
    Group(u32),
    /// Came to a bucket.
    Bucket(u32, usize),
    /// Came to a meter.
    Meter(u32),
    /// Fell into a band of a meter.
    Band(u32, usize),
}

/// What became of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// The frames that leave, in order.
    pub sent: Vec<OutputFrame>,
    /// The packet-ins, in order.
    pub packet_ins: Vec<PacketIn>,
}

/// Takes what a pipeline sends.
pub trait FrameSink {
    /// A frame leaves by a port and a queue of it.
    fn send(&mut self, port: PortNo, queue: Option<u32>, frame: LeavingFrame<'_>);
    /// A frame goes to the controllers.
    fn packet_in(&mut self, packet_in: PacketIn);
}

impl FrameSink for Verdict {
    fn send(&mut self, port: PortNo, queue: Option<u32>, frame: LeavingFrame<'_>) {
        let LeavingFrame { bytes, offload, .. } = frame;
        self.sent.push(OutputFrame { port, queue, frame: bytes.to_vec(), offload: *offload });
    }

    fn packet_in(&mut self, packet_in: PacketIn) {
        self.packet_ins.push(packet_in);
    }
}

impl Verdict {
    /// Forgets all, and keeps the memory for the next frame.
    pub fn clear(&mut self) {
        self.sent.clear();
        self.packet_ins.clear();
    }
}

/// One step of a frame's path, for an observer.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A rule of the table matched.
    Matched(u8, &'a Rule),
    /// No rule of the table matched: the frame is dropped (§5.4).
    Missed(u8),
    /// An instruction is carried out.
    Instruction(&'a Instruction),
    /// The action set is carried out.
    ActionSet(&'a ActionSet),
    /// An action is carried out.
    Action(&'a Action),
    /// An edit changed the frame, or not.
    Edited(Result<(), Refused>),
    /// A bucket of a group begins.
    Bucket(u32, usize),
    /// The bucket is done.
    BucketEnd,
    /// A group has no bucket for the frame.
    NoBucket(u32),
    /// A meter let the frame pass, or put it into a band.
    Metered(u32, Option<usize>),
    /// The frame leaves by a port.
    Sent(PortNo),
    /// The frame goes to the controllers.
    PacketIn(PacketInReason, usize),
    /// A counter moved, by one frame (a super-frame: by its segments).
    Counted(Counter),
    /// The frame, or this copy of it, ends here.
    Dropped(Drop),
}

/// Sees each step, with the frame as it is then.
pub trait StepObserver {
    /// A step was made.
    fn step(&mut self, step: Step<'_>, frame: &[u8]);
}

impl StepObserver for () {
    fn step(&mut self, _: Step<'_>, _: &[u8]) {}
}

/// Takes a frame that came in by a port through the tables.
pub fn receive(pipeline: &mut Pipeline, now: u64, arrival: InputFrame<'_>, verdict: &mut Verdict) {
    watched(pipeline, now, arrival, None, verdict, &mut ());
}

/// Does what a controller says with its frame; the packet-out was checked ([`Pipeline::check_packet_out`]).
pub fn packet_out(
    pipeline: &mut Pipeline,
    now: u64,
    arrival: InputFrame<'_>,
    actions: &[Action],
    verdict: &mut Verdict,
) {
    watched(pipeline, now, arrival, Some(actions), verdict, &mut ());
}

/// [`packet_out`] where there are actions, else [`receive`], step by step.
pub fn watched<W: StepObserver>(
    pipeline: &mut Pipeline,
    now: u64,
    arrival: InputFrame<'_>,
    actions: Option<&[Action]>,
    verdict: &mut Verdict,
    watch: &mut W,
) {
    Interpreter::default().carry(pipeline, now, arrival, actions, verdict, watch);
}

/// An interpreter for many frames in turn: it keeps the memory that edits need.
#[derive(Debug, Default)]
pub struct Interpreter {
    buffers: EditBuffers,
    set: ActionSet,
}

impl Interpreter {
    /// [`packet_out`] where there are actions, else [`receive`], for any sink.
    pub fn carry<S: FrameSink, W: StepObserver>(
        &mut self,
        pipeline: &mut Pipeline,
        now: u64,
        arrival: InputFrame<'_>,
        actions: Option<&[Action]>,
        sink: &mut S,
        watch: &mut W,
    ) {
        let Interpreter { buffers, set } = self;
        buffers.begin();
        let mut traveller = Traveller::new(&arrival);
        let mut walk = Walk { pipeline, now, sink, watch, buffers, set, copies: 0 };
        if let Some(actions) = actions {
            let _ = walk.list(&mut traveller, actions.iter(), Origin::PacketOut);
        } else if walk.enter_port(&traveller).is_continue() {
            walk.tables(&mut traveller);
        }
        traveller.frame.end(buffers);
    }
}

/// A frame on its way, with what the switch knows about it.
struct Traveller<'f> {
    frame: CarriedFrame<'f>,
    /// What it is on a wire: counters and meters count segments, not super-frames.
    pieces: Pieces,
    in_port: PortNo,
    phy_port: Option<PortNo>,
    tunnel_id: u64,
    metadata: u64,
    queue: Option<u32>,
    table: u8,
    cookie: u64,
    /// The rule that acts is a table-miss rule.
    is_miss: bool,
}

impl<'f> Traveller<'f> {
    fn new(arrival: &InputFrame<'f>) -> Traveller<'f> {
        Traveller {
            pieces: Pieces::of(arrival.frame, &arrival.offload),
            frame: CarriedFrame::new(arrival.frame, arrival.offload),
            in_port: arrival.port,
            phy_port: arrival.phy_port,
            tunnel_id: arrival.tunnel_id,
            metadata: 0,
            queue: None,
            table: 0,
            cookie: NO_COOKIE,
            is_miss: false,
        }
    }

    /// The same once more.
    fn copy(&self, buffers: &mut EditBuffers) -> Traveller<'f> {
        Traveller { frame: self.frame.copy(buffers), ..*self }
    }

    /// The value of a field; none when the frame has no such header.
    fn get(&self, field: Field) -> Option<Value> {
        match field {
            Field::InPort => Some(self.in_port.0.into()),
            // §7.2.3.7: the same as in_port when the port is a physical one.
            Field::InPhyPort => Some(self.phy_port.unwrap_or(self.in_port).0.into()),
            Field::Metadata => Some(self.metadata.into()),
            Field::TunnelId => Some(self.tunnel_id.into()),
            _ => self.frame.get(field),
        }
    }

    /// Frames on a wire.
    fn frames(&self) -> u64 {
        self.pieces.count
    }

    /// Their bytes.
    fn bytes(&self) -> u64 {
        self.pieces.bytes(self.frame.bytes().len())
    }
}

/// What carries actions out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Apply,
    ActionSet,
    Bucket,
    PacketOut,
}

type Flow = ControlFlow<()>;
/// The table that a frame goes on with, if one was named.
type NextTable = ControlFlow<(), Option<u8>>;
const GO_ON: Flow = ControlFlow::Continue(());
const STOP: Flow = ControlFlow::Break(());

struct Walk<'p, S, W> {
    pipeline: &'p mut Pipeline,
    now: u64,
    sink: &'p mut S,
    watch: &'p mut W,
    buffers: &'p mut EditBuffers,
    /// Memory for the action set.
    set: &'p mut ActionSet,
    /// Buckets that the frame met.
    copies: usize,
}

impl<S: FrameSink, W: StepObserver> Walk<'_, S, W> {
    fn step(&mut self, traveller: &Traveller<'_>, step: Step<'_>) {
        self.watch.step(step, traveller.frame.bytes());
    }

    /// Ends it, and counts that at the port by which it came in.
    fn end(&mut self, traveller: &Traveller<'_>, why: Drop) {
        self.end_at(traveller, traveller.in_port, why);
    }

    fn end_at(&mut self, traveller: &Traveller<'_>, port: PortNo, why: Drop) {
        if let Some(port) = self.pipeline.ports.get_mut(&port) {
            port.counters.drops.count(why, traveller.frames());
        }
        self.step(traveller, Step::Dropped(why));
    }

    fn stop(&mut self, traveller: &Traveller<'_>, why: Drop) -> Flow {
        self.end(traveller, why);
        STOP
    }

    fn moved(&mut self, counter: Counter, traveller: &Traveller<'_>) {
        self.step(traveller, Step::Counted(counter));
    }

    /// The port by which the frame comes in: its counters and its configuration (§7.2.1).
    fn enter_port(&mut self, traveller: &Traveller<'_>) -> Flow {
        let (number, bytes) = (traveller.in_port, traveller.bytes());
        if let Some(port) = self.pipeline.ports.get_mut(&number) {
            let is_open = !port.config.has(PortConfig::NO_RECV) && !port.config.has(PortConfig::PORT_DOWN);
            let counters = &mut port.counters;
            if is_open {
                counters.rx_frames += traveller.frames();
                counters.rx_bytes += bytes;
                self.moved(Counter::Rx(number), traveller);
            } else {
                counters.rx_dropped += traveller.frames();
                self.moved(Counter::RxDropped(number), traveller);
                return self.stop(traveller, Drop::NotReceived);
            }
        }
        let fragment = traveller.frame.headers().ip().map(|ip| ip.fragment);
        let is_fragment = matches!(fragment, Some(Fragment::First | Fragment::Later));
        if is_fragment && self.pipeline.config.fragments == Fragments::Drop {
            return self.stop(traveller, Drop::Fragment);
        }
        GO_ON
    }

    /// The tables, from the first one (§5.1), and the action set at the end.
    fn tables(&mut self, traveller: &mut Traveller<'_>) {
        let mut set = std::mem::take(self.set);
        set.clear();
        if self.through_tables(traveller, &mut set).is_continue() {
            self.step(traveller, Step::ActionSet(&set));
            self.action_set(traveller, &set, Origin::ActionSet);
        }
        *self.set = set;
    }

    fn through_tables(&mut self, traveller: &mut Traveller<'_>, set: &mut ActionSet) -> Flow {
        let mut next = Some(0);
        while let Some(table) = next {
            traveller.table = table;
            let Some(rule) = self.find(traveller, table) else { return STOP };
            traveller.cookie = rule.cookie;
            traveller.is_miss = rule.is_table_miss();
            next = self.instructions(traveller, &rule, set)?;
        }
        GO_ON
    }

    /// The rule of the table for the frame; counts the lookup and the match (§5.3).
    fn find(&mut self, traveller: &Traveller<'_>, number: u8) -> Option<Arc<Rule>> {
        self.moved(Counter::Lookup(number), traveller);
        let table = self.pipeline.table_mut(number)?;
        table.lookups += traveller.frames();
        let Some(place) = table.lookup(|field| traveller.get(field)) else {
            self.step(traveller, Step::Missed(number));
            return None;
        };
        table.matched += traveller.frames();
        let rule = table.count(self.now, place, traveller.frames(), traveller.bytes())?;
        self.moved(Counter::Matched(number), traveller);
        self.moved(Counter::Rule(number), traveller);
        self.step(traveller, Step::Matched(number, &rule));
        Some(rule)
    }

    /// The instructions of a rule in the order of §5.9; says which table comes next.
    fn instructions(&mut self, traveller: &mut Traveller<'_>, rule: &Rule, set: &mut ActionSet) -> NextTable {
        let mut next = None;
        let at = |place| rule.instructions.iter().filter(move |one| one.place() == place);
        for instruction in (0..=Instruction::LAST_PLACE).flat_map(at) {
            self.step(traveller, Step::Instruction(instruction));
            match instruction {
                Instruction::Meter(id) => self.meter(traveller, *id)?,
                Instruction::ApplyActions(actions) => self.list(traveller, actions.iter(), Origin::Apply)?,
                Instruction::ClearActions => set.clear(),
                Instruction::WriteActions(actions) => set.write(actions),
                Instruction::WriteMetadata { metadata, mask } => {
                    traveller.metadata = traveller.metadata & !mask | metadata & mask;
                }
                Instruction::GotoTable(table) => next = Some(*table),
                Instruction::Experimenter { .. } => {}
            }
        }
        ControlFlow::Continue(next)
    }

    /// An action set in its order (§5.10): of the action set of a frame, or of a bucket.
    fn action_set(&mut self, traveller: &mut Traveller<'_>, set: &ActionSet, origin: Origin) {
        if self.list(traveller, set.in_order(), origin).is_break() {
            return;
        }
        let leaves = |action: &Action| matches!(action, Action::Output { .. } | Action::Group(_));
        // A frame without an action in its action set may have left by actions that were applied.
        let is_worth_a_word = origin == Origin::Bucket || !set.is_empty();
        if is_worth_a_word && !set.in_order().any(leaves) {
            self.end(traveller, Drop::NoOutput);
        }
    }

    /// Actions in the order in which they stand (§5.11).
    fn list<'a>(
        &mut self,
        traveller: &mut Traveller<'_>,
        actions: impl Iterator<Item = &'a Action>,
        origin: Origin,
    ) -> Flow {
        for action in actions {
            self.step(traveller, Step::Action(action));
            self.action(traveller, action, origin)?;
        }
        GO_ON
    }

    /// One action (§5.12).
    fn action(&mut self, traveller: &mut Traveller<'_>, action: &Action, origin: Origin) -> Flow {
        match action {
            Action::Output { port, .. } => self.output(traveller, *port, origin),
            Action::Group(id) => self.group(traveller, *id),
            Action::SetQueue(queue) => traveller.queue = Some(*queue),
            Action::SetField { field: Field::TunnelId, value } => traveller.tunnel_id = *value as u64,
            _ => {
                let edited = traveller.frame.edit(action, self.buffers);
                self.step(traveller, Step::Edited(edited));
                // §5.12: a TTL that cannot be decremented is reported to the controllers, and the frame goes no further.
                if edited == Err(Refused::Expired) {
                    self.packet_in(traveller, PacketInReason::InvalidTtl);
                    return self.stop(traveller, Drop::InvalidTtl);
                }
            }
        }
        GO_ON
    }

    /// A meter (§5.7): the band that the frame falls into drops or marks it.
    fn meter(&mut self, traveller: &mut Traveller<'_>, id: u32) -> Flow {
        let now = self.now;
        let Some(meter) = self.pipeline.meters.0.get_mut(&id) else { return GO_ON };
        let band = meter.measure(now, traveller.frames(), traveller.bytes());
        let kind = band.map(|band| meter.meter.bands[band].kind.clone());
        self.moved(Counter::Meter(id), traveller);
        if let Some(band) = band {
            self.moved(Counter::Band(id, band), traveller);
        }
        self.step(traveller, Step::Metered(id, band));
        match kind {
            Some(BandKind::Drop) => self.stop(traveller, Drop::Meter),
            Some(BandKind::DscpRemark { prec_level }) => {
                // Frames without IP pass as they are.
                let Some(dscp) = traveller.get(Field::IpDscp) else { return GO_ON };
                let value = raise_drop_precedence(dscp as u8, prec_level).into();
                let action = Action::SetField { field: Field::IpDscp, value };
                let edited = traveller.frame.edit(&action, self.buffers);
                self.step(traveller, Step::Edited(edited));
                GO_ON
            }
            Some(BandKind::Experimenter { .. }) | None => GO_ON,
        }
    }

    /// A group (§5.6): each bucket that is chosen gets a copy of the frame as it is now; the frame itself stays.
    fn group(&mut self, traveller: &Traveller<'_>, id: u32) {
        let (frames, bytes) = (traveller.frames(), traveller.bytes());
        // The salt lets chained groups choose independently.
        let hash = traveller.frame.headers().flow(traveller.frame.bytes(), id);
        let ports = &self.pipeline.ports;
        let port_is_live = |number: PortNo| ports.get(&number).is_some_and(|port| port.is_live());
        let chosen = self.pipeline.groups.choose(id, hash, &port_is_live);
        let Some(entry) = self.pipeline.groups.0.get_mut(&id) else { return };
        entry.counters.count(frames, bytes);
        let kept = chosen.len().min(COPY_LIMIT - self.copies);
        for index in &chosen[..kept] {
            entry.buckets[*index].count(frames, bytes);
        }
        let sets: Vec<(usize, ActionSet)> = chosen[..kept]
            .iter()
            .map(|index| (*index, ActionSet::of(&entry.group.buckets[*index].actions)))
            .collect();
        self.copies += kept;
        self.moved(Counter::Group(id), traveller);
        if chosen.is_empty() {
            self.step(traveller, Step::NoBucket(id));
            self.end(traveller, Drop::NoBucket);
        }
        for (index, set) in sets {
            self.moved(Counter::Bucket(id, index), traveller);
            self.step(traveller, Step::Bucket(id, index));
            let mut copy = traveller.copy(self.buffers);
            self.action_set(&mut copy, &set, Origin::Bucket);
            copy.frame.end(self.buffers);
            self.step(traveller, Step::BucketEnd);
        }
        if kept < chosen.len() {
            self.end(traveller, Drop::TooManyCopies);
        }
    }

    /// An output to any port (§4.5).
    fn output(&mut self, traveller: &mut Traveller<'_>, port: PortNo, origin: Origin) {
        match port {
            PortNo::IN_PORT => self.transmit(traveller, traveller.in_port),
            PortNo::TABLE if origin == Origin::PacketOut => {
                let mut copy = traveller.copy(self.buffers);
                self.tables(&mut copy);
                copy.frame.end(self.buffers);
            }
            PortNo::CONTROLLER => self.packet_in(traveller, reason(traveller, origin)),
            PortNo::ALL => self.spread(traveller, false),
            PortNo::FLOOD => self.spread(traveller, true),
            PortNo::NORMAL => self.normal(traveller),
            // §5.12: back to where it came from only by the name IN_PORT.
            _ if port == traveller.in_port => self.end(traveller, Drop::InPort),
            _ => self.transmit(traveller, port),
        }
    }

    /// All ports but the one by which the frame came in; `flood` leaves blocked ones out (§4.5).
    fn spread(&mut self, traveller: &Traveller<'_>, flood: bool) {
        let is_meant = |port: &Port| {
            let is_blocked = flood && port.state.has(PortState::BLOCKED);
            port.number != traveller.in_port && !port.config.has(PortConfig::NO_FWD) && !is_blocked
        };
        let mut behind = Bound::Unbounded;
        while let Some((number, port)) = self.pipeline.ports.range((behind, Bound::Unbounded)).next() {
            let (number, is_meant) = (*number, is_meant(port));
            behind = Bound::Excluded(number);
            if is_meant {
                self.transmit(traveller, number);
            }
        }
    }

    fn normal(&mut self, traveller: &Traveller<'_>) {
        let address =
            |at: usize| traveller.frame.bytes().get(at..at + 6).and_then(|bytes| bytes.try_into().ok());
        let (Some(dst), Some(src)) = (address(0), address(6)) else { return };
        let vlan = traveller.get(Field::VlanVid).unwrap_or(0) as u16 & 0xfff;
        match self.pipeline.bridge.pass(self.now, traveller.in_port, vlan, dst, src) {
            BridgeOutput::Port(port) => self.transmit(traveller, port),
            BridgeOutput::Flood => self.spread(traveller, true),
            BridgeOutput::Nowhere => self.end(traveller, Drop::Bridge),
        }
    }

    /// The port by which the frame leaves: its configuration and its counters (§7.2.1).
    fn transmit(&mut self, traveller: &Traveller<'_>, number: PortNo) {
        let Some(port) = self.pipeline.ports.get_mut(&number) else {
            return self.end(traveller, Drop::NoPort);
        };
        if port.config.has(PortConfig::NO_FWD)
            || port.config.has(PortConfig::PORT_DOWN)
            || port.state.has(PortState::LINK_DOWN)
        {
            port.counters.tx_dropped += traveller.frames();
            self.moved(Counter::TxDropped(number), traveller);
            return self.end_at(traveller, number, Drop::NotSent);
        }
        port.counters.tx_frames += traveller.frames();
        port.counters.tx_bytes += traveller.bytes();
        self.moved(Counter::Tx(number), traveller);
        self.step(traveller, Step::Sent(number));
        self.sink.send(number, traveller.queue, traveller.frame.leaving());
    }

    /// A packet-in (§7.4.1), unless the port wants none for misses (§7.2.1) or the controllers' meter drops it (§5.7).
    ///
    /// It has the whole frame, whatever `max_len` and `miss_send_len` say: they are about frames that stay in a buffer, and there is none here
    /// ("Switches that do not support internal buffering … must send the full packet to controllers", §6.1.2).
    fn packet_in(&mut self, traveller: &Traveller<'_>, reason: PacketInReason) {
        let port = self.pipeline.ports.get(&traveller.in_port);
        let is_mute = reason == PacketInReason::TableMiss
            && port.is_some_and(|port| port.config.has(PortConfig::NO_PACKET_IN));
        let mut copy = traveller.copy(self.buffers);
        if is_mute || self.meter(&mut copy, CONTROLLER_METER).is_break() {
            copy.frame.end(self.buffers);
            return self.end(traveller, Drop::NoPacketIn);
        }
        let mut frame = copy.frame.bytes().to_vec();
        let total_len = frame.len();
        // A controller has no hardware that would finish a checksum. One that lies outside of the frame stays as it is.
        if let Some(partial) = copy.frame.offload().partial {
            let _ = wire::offload::complete(&mut frame, partial);
        }
        self.step(traveller, Step::PacketIn(reason, frame.len()));
        self.sink.packet_in(PacketIn {
            reason,
            table: copy.table,
            cookie: copy.cookie,
            in_port: copy.in_port,
            phy_port: copy.phy_port,
            metadata: copy.metadata,
            tunnel_id: copy.tunnel_id,
            total_len,
            frame,
        });
        copy.frame.end(self.buffers);
    }
}

/// Why an output to CONTROLLER sends. Only a table-miss rule that "directly sends packets to the controller" makes a
/// table-miss (§5.4): what the action set or a bucket sends may be another rule's wish, and 1.4 has reasons for these
/// (1.4 §7.4.1).
fn reason(traveller: &Traveller<'_>, origin: Origin) -> PacketInReason {
    match origin {
        Origin::PacketOut => PacketInReason::PacketOut,
        Origin::Apply if traveller.is_miss => PacketInReason::TableMiss,
        Origin::Apply => PacketInReason::Action,
        Origin::ActionSet => PacketInReason::ActionSet,
        Origin::Bucket => PacketInReason::Group,
    }
}

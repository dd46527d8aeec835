//! What became of a frame, before it counts.
//!
//! **What.** A [`Path`] lists the rules that matched with the length of the frame at that moment, and the ports that were named.
//! [`Faces::settle`] counts it and turns ports into ways out: closed ports, the port by which the frame came in, ALL and FLOOD.
//!
//! **Why.** Nothing is counted before the frame is done with, so an exit to the interpreter leaves no trace. Ports open and close
//! without a new program: what a port does is data here, not code.
//!
//! **Price.** A few nanoseconds per rule and output, in plain Rust, for every engine the same.

use crate::frame::{Departure, Frame, Outputs};
use crate::tally::Tally;
use flow::drop::Drop;
use flow::port::{Port, PortConfig, PortState};
use flow::{Pipeline, PortNo};
use wire::offload::Pieces;

/// The bit of a step that says that no rule of a table matched.
pub const MISS: u32 = 1 << 31;
/// What an output without a queue says.
pub const NO_QUEUE: u64 = u64::MAX;
/// Outputs that one frame may have; pipelines that could have more are not compiled.
pub const OUTPUTS: usize = 1024;

/// An output that a rule asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Asked {
    /// The port.
    pub port: u32,
    /// Bytes of the frame at that moment.
    pub length: u32,
    /// The queue, or [`NO_QUEUE`].
    pub queue: u64,
}

/// A table that the frame went through: the slot of the rule, or [`MISS`] and the table; and the length of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Passed {
    /// Slot, or [`MISS`] and the number of the table.
    pub slot: u32,
    /// Bytes of the frame at that moment.
    pub length: u32,
}

/// What became of a frame.
#[derive(Debug, Clone, Default)]
pub struct Path<'a> {
    /// The tables.
    pub passed: &'a [Passed],
    /// The outputs, in order.
    pub asked: &'a [Asked],
    /// Copies that were kept: the outputs before this index, from the last such index on, send that copy.
    pub kept: &'a [(usize, usize)],
}

/// What frames meet at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Face {
    number: PortNo,
    receives: bool,
    forwards: bool,
    sends: bool,
    blocked: bool,
}

/// The ports, as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faces {
    /// By number.
    list: Vec<Face>,
    /// Of the first numbers the index in the list, and one more.
    small: Vec<u16>,
}

/// Numbers of ports that are found without a search.
const SMALL: usize = 4096;

impl Face {
    fn of(port: &Port) -> Face {
        let has = |bit| port.config.has(bit);
        let forwards = !has(PortConfig::NO_FWD);
        Face {
            number: port.number,
            receives: !has(PortConfig::NO_RECV) && !has(PortConfig::PORT_DOWN),
            forwards,
            sends: forwards && !has(PortConfig::PORT_DOWN) && !port.state.has(PortState::LINK_DOWN),
            blocked: port.state.has(PortState::BLOCKED),
        }
    }
}

impl Faces {
    /// The ports of a pipeline.
    pub fn of(pipeline: &Pipeline) -> Faces {
        let list: Vec<Face> = pipeline.ports.values().map(Face::of).collect();
        let most = list.iter().map(|face| face.number.0 as usize).filter(|number| *number < SMALL).max();
        let mut small = vec![0; most.map_or(0, |most| most + 1)];
        for (index, face) in (1u16..).zip(&list) {
            if let Some(place) = small.get_mut(face.number.0 as usize) {
                *place = index;
            }
        }
        Faces { list, small }
    }

    fn find(&self, port: PortNo) -> Option<&Face> {
        match self.small.get(port.0 as usize) {
            Some(0) => None,
            Some(index) => self.list.get(usize::from(*index) - 1),
            None => {
                self.list.binary_search_by_key(&port, |face| face.number).ok().map(|index| &self.list[index])
            }
        }
    }

    /// Whether the port takes the frames that come in by it, as one that is not known does.
    pub fn receives(&self, port: PortNo) -> bool {
        self.find(port).is_none_or(|face| face.receives)
    }

    /// Counts what came in by the port, if it is one that is known; whether it takes the frame.
    pub fn enter(&self, port: PortNo, frames: u64, bytes: u64, tally: &mut Tally) -> bool {
        let Some(face) = self.find(port) else { return true };
        let counters = tally.port(port);
        if face.receives {
            counters.rx_frames += frames;
            counters.rx_bytes += bytes;
        } else {
            counters.rx_dropped += frames;
            counters.drops.count(Drop::NotReceived, frames);
        }
        face.receives
    }

    /// Counts a path and lists the ways out.
    pub fn settle(&self, path: &Path<'_>, of: Arrived, tally: &mut Tally, outputs: &mut Outputs) {
        for passed in path.passed {
            if passed.slot & MISS != 0 {
                tally.miss(passed.slot as u8, of.pieces.count);
            } else {
                tally.rule(passed.slot, of.now, of.pieces.count, of.pieces.bytes(passed.length as usize));
            }
        }
        let mut kept = path.kept.iter().copied().peekable();
        for (index, asked) in path.asked.iter().enumerate() {
            while kept.next_if(|(until, _)| index >= *until).is_some() {}
            let copy = kept.peek().map(|(_, copy)| *copy);
            self.output(asked, copy, of, tally, outputs);
        }
    }

    fn output(&self, asked: &Asked, copy: Option<usize>, of: Arrived, tally: &mut Tally, to: &mut Outputs) {
        match PortNo(asked.port) {
            PortNo::IN_PORT => self.transmit(of.port, asked, copy, of, tally, to),
            PortNo::ALL => self.spread(false, asked, copy, of, tally, to),
            PortNo::FLOOD => self.spread(true, asked, copy, of, tally, to),
            // §5.12: back to where it came from only by the name IN_PORT.
            port if port == of.port => tally.port(port).drops.count(Drop::InPort, of.pieces.count),
            port => self.transmit(port, asked, copy, of, tally, to),
        }
    }

    /// All ports but the one by which the frame came in; a flood leaves blocked ones out (§4.5).
    fn spread(
        &self,
        is_flood: bool,
        asked: &Asked,
        copy: Option<usize>,
        of: Arrived,
        tally: &mut Tally,
        to: &mut Outputs,
    ) {
        for face in &self.list {
            if face.number != of.port && face.forwards && !(is_flood && face.blocked) {
                self.transmit(face.number, asked, copy, of, tally, to);
            }
        }
    }

    fn transmit(
        &self,
        port: PortNo,
        asked: &Asked,
        copy: Option<usize>,
        of: Arrived,
        tally: &mut Tally,
        to: &mut Outputs,
    ) {
        let Some(face) = self.find(port) else {
            return tally.port(of.port).drops.count(Drop::NoPort, of.pieces.count);
        };
        let counters = tally.port(port);
        if !face.sends {
            counters.tx_dropped += of.pieces.count;
            counters.drops.count(Drop::NotSent, of.pieces.count);
            return;
        }
        counters.tx_frames += of.pieces.count;
        counters.tx_bytes += of.pieces.bytes(asked.length as usize);
        let queue = (asked.queue != NO_QUEUE).then_some(asked.queue as u32);
        to.list.push(Departure { port, queue, copy });
    }
}

/// Where a frame comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ingress {
    /// The port.
    pub port: PortNo,
    /// The physical port under it.
    pub phy_port: PortNo,
    /// What a logical port says about its tunnel; else 0.
    pub tunnel_id: u64,
}

impl From<PortNo> for Ingress {
    fn from(port: PortNo) -> Ingress {
        Ingress { port, phy_port: port, tunnel_id: 0 }
    }
}

/// What is known of a frame that came in.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// When, in nanoseconds of the pipeline's clock.
    pub now: u64,
    /// By which port.
    pub port: PortNo,
    /// What it is on a wire.
    pub pieces: Pieces,
}

impl Arrived {
    /// Of a frame that came in.
    pub fn new(now: u64, port: PortNo, frame: &Frame<'_>) -> Arrived {
        Arrived { now, port, pieces: Pieces::of(frame.bytes(), &frame.offload) }
    }
}

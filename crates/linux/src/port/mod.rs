//! Ports: where frames enter and leave.
//!
//! **What.** One small contract, [`Receiver`] and [`Transmitter`], and one file for each kind behind it: `int:`
//! ([`packet`]), `ring:` ([`ring`]), `xdp:` ([`xdp`]), `tap:` ([`tap`]), `pcap:` ([`pcap`]), `mem:` ([`mem`]) and
//! `fault:` around any of them ([`fault`]). A port is opened by its name ([`open`]); every setting is read back and said
//! ([`Port::settings`]).
//!
//! **Why so.** The currency is a loan ([`Batch`]): a receiver lends its frames where they lie, and a transmitter that
//! shares their memory takes them without a copy. A capture, a switch, a test and a generator work on the same thing.
//! `docs/decisions/0007-frame-currency.md` has the measurements.
//!
//! **The rules of the contract**, which the conformance test (`tests/ports`) holds for every kind:
//! * Same frames in, same frames out: bytes, order and count. A tag or checksum that the kernel keeps beside the frame
//!   is put back or described in [`Meta::offload`]; a transmitter that cannot hand such a description on completes the
//!   frame (checksum) or cuts it (super-frame). Nothing is silently broken.
//! * What cannot be sent is refused, counted with a name, and does not stop the frames behind it.
//! * Full is not an error: [`Transmitter::transmit`] takes as many frames as it can and says how many; the caller
//!   decides whether to wait ([`Transmitter::flush`]) or to drop.
//! * Counters are cumulative, 64 bits wide, and a read-and-clear counter of the kernel is read by its port alone.
//! * No hot path allocates, formats or logs.
//!
//! **Price.** One virtual call for a batch (not for a frame); a batch borrows its receiver, so a slow worker is loss at
//! the receiver, where it can be counted.
#![allow(unsafe_code)]

pub mod area;
pub mod batch;
mod batch_builder;
mod circle;
pub mod fault;
mod forward;
pub(in crate::port) mod interface;
pub mod live;
pub mod mem;
mod offload;
pub mod packet;
pub mod pcap;
pub mod ring;
mod sending;
mod sharing;
pub mod sink;
pub mod slot;
pub mod stamps;
pub mod tap;
pub mod tcx;
mod told;
pub mod uri;
pub mod xdp;

pub use area::Area;
pub use batch::{ALL, Batch, FrameDirection, Frames, MAX_BATCH, Meta};
pub use circle::circle;
pub use forward::{Broken, Moved, forward};
pub use sharing::areas;
pub use slot::ProgramSlot;
pub use uri::Uri;

use record::{PlaceDrop, PortKind, PortSetting, Problem};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who read the clock for a frame's time, and which clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum StampSource {
    /// Nobody.
    #[default]
    None,
    /// This program, when it received the batch (`CLOCK_REALTIME`).
    User,
    /// The kernel, when the driver handed the frame over (`CLOCK_REALTIME`, which is UTC).
    Software,
    /// The network interface, its own clock as it is (usually TAI, or free running).
    HardwareRaw,
    /// The network interface, turned into system time by the driver.
    HardwareSystem,
    /// A capture file says so.
    File,
}

impl StampSource {
    /// The word for it: `none`, `user`, `software`, `hardware_raw`, `hardware_system`, `file`.
    pub fn name(self) -> &'static str {
        match self {
            StampSource::None => "none",
            StampSource::User => "user",
            StampSource::Software => "software",
            StampSource::HardwareRaw => "hardware_raw",
            StampSource::HardwareSystem => "hardware_system",
            StampSource::File => "file",
        }
    }
}

/// When a frame passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Nanoseconds since 1970 on the clock of the source.
    pub ns: u64,
    /// Whose clock.
    pub source: StampSource,
}

/// When a frame left, as whoever sent it out last says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// Which frame: how many the port had dealt with before it.
    pub number: u64,
    /// When the system call with it began, `CLOCK_REALTIME` in nanoseconds.
    pub handed_ns: u64,
    /// When it left, and whose clock says so.
    pub stamp: Stamp,
}

/// How long to wait for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Poll,
    /// At most so long.
    For(Duration),
}

impl Wait {
    /// The moment until which to wait; none when not to wait at all.
    pub(in crate::port) fn deadline(self) -> Option<Instant> {
        match self {
            Wait::Poll => None,
            Wait::For(time) => Some(Instant::now() + time.min(Duration::from_secs(1 << 30))),
        }
    }
}

/// What becomes of frames that a transmitter is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// The transmitter may take the memory of the frames; they may be gone from the batch afterwards.
    Over,
    /// The frames are needed again (they go to another port too): the transmitter must copy.
    Copy,
}

/// What a transmitter did with the frames that it was given, counted from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transmitted {
    /// Frames that were dealt with. Fewer than given: it is full, and the rest is still the caller's.
    pub dealt: usize,
    /// Of these, how many were refused (oversize, link down, …), each counted with its reason in
    /// [`TransmitCounters::drops`].
    pub refused: usize,
}

/// What a port answers.
pub type PortResult<T> = Result<T, PortError>;

/// Why a port cannot go on.
#[derive(Debug)]
pub enum PortError {
    /// No further frame will ever come, or be taken: the file is at its end, the other end of a wire is closed.
    Ended,
    /// The link is down. Said once each time it goes down; frames may come again, so a caller may simply go on.
    Down,
    /// The interface was removed.
    Gone,
    /// What was read is not what it should be: where and why.
    Malformed(String),
    /// The kernel refused for another reason.
    Io(io::Error),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::Ended => f.write_str("there are no more frames"),
            PortError::Down => f.write_str("the link is down"),
            PortError::Gone => f.write_str("the interface was removed"),
            PortError::Malformed(what) => f.write_str(what),
            PortError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PortError {}

impl From<io::Error> for PortError {
    /// Sorts what the kernel says: `ENETDOWN` is [`PortError::Down`], `ENXIO`, `ENODEV` and `EBADFD` (the queue of a tap) are
    /// [`PortError::Gone`].
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENETDOWN) => PortError::Down,
            Some(libc::ENXIO | libc::ENODEV | libc::EBADFD) => PortError::Gone,
            _ => PortError::Io(error),
        }
    }
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        match error {
            PortError::Malformed(_) => Problem::input(error.to_string()),
            _ => Problem::host(error.to_string()),
        }
    }
}

/// What a receiver counted since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiveCounters {
    /// Frames that were lent to the caller.
    pub frames: u64,
    /// Their bytes on the wire (without FCS).
    pub bytes: u64,
    /// Of the frames, those that are shorter here than they were on the wire.
    pub cut: u64,
    /// Frames copied by this program (not by the kernel) on the way in.
    pub copied: u64,
    /// Frames that never reached the caller, by place and reason. A place that this kind has is always listed, also
    /// with 0.
    pub drops: Vec<PlaceDrop>,
    /// How often the ring was so full that the kernel stopped using it for a while (`tp_freeze_q_cnt`): episodes, not
    /// frames.
    pub freezes: u64,
    /// What else this kind counts, by name: no losses.
    pub extra: Vec<(&'static str, u64)>,
}

/// What a transmitter counted since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransmitCounters {
    /// Frames that the caller gave (each attempt of a frame that was dealt with).
    pub offered: u64,
    /// Frames that the kernel (or the file, or the other end) accepted.
    pub accepted: u64,
    /// Bytes of the accepted frames (without FCS).
    pub bytes: u64,
    /// Frames whose transmission was reported complete; none where the kind has no such report.
    pub completed: Option<u64>,
    /// Frames copied by this program (not by the kernel) on the way out.
    pub copied: u64,
    /// Frames refused or lost by this port, by place and reason.
    pub drops: Vec<PlaceDrop>,
    /// Frames whose checksum was completed here, because the port cannot hand on an unfinished one.
    pub completed_checksums: u64,
    /// Pieces made here out of super-frames; a super-frame counts once as offered and accepted.
    pub segments: u64,
    /// What else this kind counts, by name: no losses.
    pub extra: Vec<(&'static str, u64)>,
}

impl TransmitCounters {
    /// Copies that `fault:` made of frames on purpose: they are accepted or lost besides those that were offered.
    pub fn duplicated(&self) -> u64 {
        self.extra.iter().filter(|(name, _)| *name == "fault_duplicated").map(|(_, count)| count).sum()
    }
}

/// Where frames come from.
pub trait Receiver: Send {
    /// Lends up to `limit` frames (and at most [`MAX_BATCH`]), waiting for the first one only. An empty batch means that
    /// none came in time. The frames of the batch before are given back by this call.
    ///
    /// # Errors
    /// [`PortError`]; after [`PortError::Ended`] and [`PortError::Gone`] every further call says the same.
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>>;

    /// What was counted. Read-and-clear counters of the kernel are added up here, exactly once.
    fn counters(&mut self) -> ReceiveCounters;

    /// The interfaces that frames come from, as far as a capture file has named them yet; [`Meta::interface`] is an index
    /// into them. Empty for every other kind, which has one Ethernet interface.
    fn interfaces(&self) -> &[wire::pcap::Interface] {
        &[]
    }

    /// What a reader of the frames must know, one sentence each: a capture file that is cut off.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// A descriptor that becomes readable when frames are there; none where there is no such thing.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Where frames go.
pub trait Transmitter: Send {
    /// Sends frames of a batch, in the order of `which` (numbers of frames, see [`Batch::all`]).
    ///
    /// # Errors
    /// [`PortError`] when the port as a whole cannot go on; a single frame that cannot be sent is refused instead.
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], hand: Hand) -> PortResult<Transmitted>;

    /// Pushes out what was accepted and waits, at most so long, until the kernel reports it complete; how many frames
    /// are still under way. A kind whose frames are out when they are accepted has nothing to do.
    ///
    /// # Errors
    /// [`PortError`].
    fn flush(&mut self, _wait: Duration) -> PortResult<usize> {
        Ok(0)
    }

    /// Adds the time stamps of sent frames that the kernel has told since the last call, for a port that was opened to
    /// transmit with [`PortOptions::stamps`]; false when it was not. The kinds that have none are refused when they are opened
    /// so.
    fn departures(&mut self, _into: &mut Vec<Departure>) -> bool {
        false
    }

    /// What was counted.
    fn counters(&mut self) -> TransmitCounters;

    /// The longest frame that can be sent as it is (without FCS), in bytes.
    fn longest(&self) -> usize;
}

/// An open port: one end or both.
pub struct Port {
    /// Its name as it was given.
    pub uri: String,
    /// Where frames come from, if it was opened for that.
    pub receiver: Option<Box<dyn Receiver>>,
    /// Where frames go, if it was opened for that.
    pub transmitter: Option<Box<dyn Transmitter>>,
    /// What took effect: at the receiver, or where there is none at the transmitter.
    pub settings: Vec<PortSetting>,
}

/// An end of a port, and what took effect there.
type End<T> = (Box<T>, Vec<PortSetting>);

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = (self.receiver.is_some(), self.transmitter.is_some());
        write!(f, "Port({}, receives and transmits {ends:?})", self.uri)
    }
}

impl Port {
    /// A port with the ends that are wished for.
    fn with_ends(
        uri: &Uri,
        wish: &PortOptions,
        receiver: impl FnOnce() -> record::Result<End<dyn Receiver>>,
        transmitter: impl FnOnce() -> record::Result<End<dyn Transmitter>>,
    ) -> record::Result<Port> {
        let (receiver, received) = wish.direction.receives().then(receiver).transpose()?.unzip();
        let (transmitter, sent) = wish.direction.transmits().then(transmitter).transpose()?.unzip();
        let settings = received.or(sent).unwrap_or_default();
        Ok(Port { uri: uri.text.clone(), receiver, transmitter, settings })
    }
}

/// What a port is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Both ways.
    #[default]
    Both,
    /// Only to receive.
    Receive,
    /// Only to transmit.
    Transmit,
}

impl Direction {
    /// True when frames are to be received.
    pub fn receives(self) -> bool {
        self != Direction::Transmit
    }

    /// True when frames are to be sent.
    pub fn transmits(self) -> bool {
        self != Direction::Receive
    }
}

/// One of several receivers that share the frames of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Which one, from 0.
    pub index: u32,
    /// Of how many.
    pub count: u32,
    /// A number that all members share and no other group in this namespace has.
    pub group: u16,
}

/// How a port shall be opened; what is not said in the URI.
#[derive(Debug, Clone, Default)]
pub struct PortOptions {
    /// For what.
    pub direction: Direction,
    /// How many bytes of each frame are wanted; all when not said.
    pub snap: Option<u32>,
    /// See frames for other stations too.
    pub promiscuous: bool,
    /// See also the frames that this host itself sends. A capture wants them; a forwarder must not (it would receive
    /// its own frames again).
    pub outgoing: bool,
    /// Only frames for which this program says yes; run by the kernel where it can, else by the port.
    pub filter: Option<wire::filter::Program>,
    /// Which clock should stamp frames; what took effect is said in the settings and in every frame. Frames that are
    /// received, unless the port is opened only to transmit ([`Transmitter::departures`]).
    pub stamps: StampSource,
    /// Send into this class of the interface's qdisc (a handle, as 0x10002 of `tc`'s 1:2); only `int:` can.
    pub queue: Option<u32>,
    /// One of several receivers.
    pub member: Option<Member>,
    /// Take frames of a capture file that are not Ethernet, too ([`Meta::link`] says what they are): for those
    /// who look at frames and do not send them. Otherwise such a file is refused.
    pub any_link: bool,
    /// Bytes of the kernel's memory that a ring may take when its settings say nothing; the kind's own choice when none. Who opens
    /// hundreds of ports has a sum to think of.
    pub ring_bytes: Option<u64>,
    /// Memory to share with another port, for the kinds that can.
    pub area: Option<Arc<Area>>,
    /// What meets the frames first where a program is in it, and leaves those to the port that it does not take; only `xdp:` can.
    pub slot: Option<Arc<ProgramSlot>>,
}

/// Opens a port in the network namespace of the calling thread.
///
/// # Errors
/// Input: a name, kind or setting that does not exist. Host: what this host or this user cannot do, and what helps.
pub fn open(uri: &str, wish: &PortOptions) -> record::Result<Port> {
    let mut parsed = Uri::parse(uri)?;
    if wish.direction == Direction::Transmit && wish.stamps != StampSource::None && parsed.kind != "int" {
        let what = format!("a {}: port does not tell when its frames left", parsed.kind);
        return Err(Problem::input(what).at(uri).help("int:INTERFACE does"));
    }
    let opened = match parsed.kind.as_str() {
        "int" => packet::open(&mut parsed, wish),
        "ring" => ring::open(&mut parsed, wish),
        "xdp" => xdp::open(&mut parsed, wish),
        "tap" => tap::open(&mut parsed, wish),
        "pcap" => pcap::open(&mut parsed, wish),
        "mem" => mem::open(&mut parsed, wish),
        "fault" => return fault::open(&mut parsed, wish),
        other => {
            // What only sends is opened by whoever sends, before it comes to this.
            let is_meant = |kind: &PortKind| kind.receives || wish.direction == Direction::Transmit;
            return Err(Problem::input(format!("there is no port kind '{other}'"))
                .at(uri)
                .help(format!("the kinds are {}", PortKind::names(is_meant).join(", "))));
        }
    }?;
    parsed.finish()?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No interface has so long a name, and no such file is here.
    #[test]
    fn every_kind_of_the_table_that_receives_can_be_opened() {
        for kind in record::PORT_KINDS {
            let opened = open(&format!("{}:no-such-thing-here", kind.name), &PortOptions::default());
            let unknown =
                opened.err().is_some_and(|problem| problem.what.starts_with("there is no port kind"));
            assert_eq!(unknown, !kind.receives, "{}", kind.name);
        }
    }

    #[test]
    fn who_sends_is_told_of_the_kind_that_only_sends() {
        let kinds = |direction| {
            let wish = PortOptions { direction, ..PortOptions::default() };
            open("nope:x", &wish).err().unwrap().advice
        };
        assert!(kinds(Direction::Transmit).contains("live"), "{}", kinds(Direction::Transmit));
        assert!(!kinds(Direction::Both).contains("live"));
    }
}

//! Time stamps: who reads the clock for a frame, and whether that can be had here.
//!
//! **What.** [`enable`] asks a packet socket for the stamps that were wished and says what the kernel agreed to. What a
//! frame really carries is told by the frame itself: by `tp_status` in a ring ([`source_of`]), by the slot of the
//! control message beside a message ([`read`]).
//!
//! **Why.** Agreeing is no proof: the kernel takes the wish for hardware stamps of every interface, and an interface
//! without a clock delivers none. So no port calls a stamp what it was asked to be.
//!
//! **Price.** Software stamps make the kernel read its clock for every frame of the host (about 20 ns each) while any
//! socket wants them.

use super::packet::shared;
use super::told::setting;
use super::{Direction, FrameDirection, MAX_BATCH, PortOptions, Receiver, Stamp, StampSource, Uri, Wait};
use crate::sys::packet::StampFacts;
use crate::sys::{packet, socket};
use record::{PortSetting, Result, StampReport, StampSeen};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// `TP_STATUS_TS_SYS_HARDWARE`, which no kernel since 3.17 sets.
const SYSTEM: u32 = 1 << 30;
/// `TP_STATUS_TS_RAW_HARDWARE`.
const RAW: u32 = 1 << 31;

/// Where stamps are to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampLocation {
    /// Beside a message.
    Message,
    /// In a ring, which always has one.
    Ring,
}

/// The stamp of a frame of a ring.
#[inline]
pub fn of_ring(seconds: u32, nanoseconds: u32, status: u32) -> Stamp {
    Stamp { ns: u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds), source: source_of(status) }
}

/// Whose stamp a frame of a ring has. Without a bit it is still the kernel's clock, read when the frame was put into the
/// ring instead of when the driver handed it over.
#[inline]
fn source_of(status: u32) -> StampSource {
    match status & (SYSTEM | RAW) {
        0 => StampSource::Software,
        SYSTEM => StampSource::HardwareSystem,
        _ => StampSource::HardwareRaw,
    }
}

/// Asks for stamps; what came of it, in words.
pub fn enable(fd: impl AsFd, wish: StampSource, place: StampLocation) -> Vec<PortSetting> {
    let software = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let hardware = libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    let (flags, note) = match wish {
        StampSource::Software => (software, "CLOCK_REALTIME, read when the driver handed the frame over"),
        StampSource::HardwareRaw => (
            software | hardware,
            "hardware stamps come only from an interface with a clock that is switched on; each frame says whose it is",
        ),
        StampSource::HardwareSystem => (
            software | hardware,
            "no kernel since 3.17 turns hardware stamps into system time; each frame says whose stamp it has",
        ),
        _ => (0, ""),
    };
    let asked = if flags == 0 { "" } else { wish.name() };
    let otherwise = match place {
        StampLocation::Ring => ("software", "CLOCK_REALTIME, read when the frame was put into the ring"),
        StampLocation::Message => ("user", "CLOCK_REALTIME, read once for each batch"),
    };
    if flags == 0 {
        return vec![setting("stamps", asked, otherwise.0, otherwise.1)];
    }
    let mut done = socket::set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags);
    if done.is_ok() && place == StampLocation::Ring {
        let which = flags & (libc::SOF_TIMESTAMPING_RAW_HARDWARE | libc::SOF_TIMESTAMPING_SOFTWARE);
        done = packet::set(&fd, libc::PACKET_TIMESTAMP, which as i32);
    }
    match done {
        Ok(()) => {
            let effective = if wish == StampSource::Software { "software" } else { "as each frame says" };
            vec![setting("stamps", asked, effective, note)]
        }
        Err(error) => {
            let note = format!("the kernel refused {}: {error}; {}", wish.name(), otherwise.1);
            vec![setting("stamps", asked, otherwise.0, &note)]
        }
    }
}

/// The best stamp of a control message `SCM_TIMESTAMPING`: software, (unused), hardware.
pub fn read(stamps: &[libc::timespec; 3]) -> Option<Stamp> {
    let ns = |time: &libc::timespec| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let order = [(2, StampSource::HardwareRaw), (1, StampSource::HardwareSystem), (0, StampSource::Software)];
    order.into_iter().map(|(at, source)| Stamp { ns: ns(&stamps[at]), source }).find(|stamp| stamp.ns > 0)
}

/// Frames that [`probe`] sends.
const PROBES: u32 = 4;
/// How long it waits for each stamp.
const PATIENCE: Duration = Duration::from_millis(100);

/// Finds out which stamps an interface of this namespace delivers: asks its driver, then sends a few frames (Ethernet
/// type 0x88b5, for local experiments, to the interface's own address) and looks at what they, and what comes in
/// meanwhile, really carry. Changes nothing.
///
/// # Errors
/// Input: no such interface. Host: no permission, link down.
pub fn probe(interface: &str, wanted: StampSource) -> Result<StampReport> {
    let uri = Uri::parse(&format!("int:{interface}"))?;
    let (fd, facts) = shared::socket(&uri)?;
    let claims = packet::stamp_facts(&fd, interface);
    let wish = PortOptions {
        direction: Direction::Receive,
        outgoing: true,
        stamps: wanted,
        ..PortOptions::default()
    };
    let mut receiver = super::open(&uri.text, &wish)?.receiver;
    packet::bind(&fd, facts.index, 0).map_err(shared::refused(&uri, "to bind to the interface"))?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &TRANSMIT)
        .map_err(shared::refused(&uri, "stamps of frames that are sent"))?;
    let mut seen = Seen::default();
    for _ in 0..PROBES {
        packet::send(&fd, &frame(facts.mac)).map_err(shared::refused(&uri, "to send a probe"))?;
        seen.look(&fd, receiver.as_deref_mut());
    }
    Ok(seen.report(interface, wanted, claims.ok()))
}

/// All stamps on the way out.
pub(in crate::port) const TRANSMIT: u32 = libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RAW_HARDWARE;

fn frame(mac: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// What the probes showed.
#[derive(Default)]
struct Seen {
    receive: BTreeMap<&'static str, u32>,
    transmit: BTreeMap<&'static str, u32>,
    resolution: u64,
}

impl Seen {
    fn look(&mut self, fd: &OwnedFd, receiver: Option<&mut (dyn Receiver + 'static)>) {
        let until = Instant::now() + PATIENCE;
        let mut sent = false;
        while !sent && Instant::now() < until {
            while let Ok(Some(told)) = packet::take_sent_stamp(fd) {
                let Some(stamp) = read(&told.times) else { continue };
                // SCM_TSTAMP_SCHED is 1; the last step is SCM_TSTAMP_SND, 0.
                let name = if told.step == 1 { "scheduled" } else { stamp.source.name() };
                sent |= told.step != 1;
                *self.transmit.entry(name).or_default() += 1;
                self.resolution = common_step(self.resolution, stamp.ns);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let Some(receiver) = receiver else { return };
        let Ok(batch) = receiver.receive(MAX_BATCH, Wait::Poll) else { return };
        for index in 0..batch.len() {
            let meta = batch.meta(index);
            if meta.way == FrameDirection::In {
                *self.receive.entry(meta.stamp.source.name()).or_default() += 1;
            } else if meta.stamp.source != StampSource::User {
                *self.receive.entry("own_frames").or_default() += 1;
            }
            if meta.stamp.source != StampSource::User {
                self.resolution = common_step(self.resolution, meta.stamp.ns);
            }
        }
    }

    fn report(mut self, interface: &str, wanted: StampSource, claims: Option<StampFacts>) -> StampReport {
        let own = self.receive.remove("own_frames").unwrap_or(0);
        let came: u32 = self.receive.values().sum();
        let delivered = self.receive.contains_key(wanted.name())
            || wanted == StampSource::Software && own > 0 && came == 0;
        let mut notes = vec![];
        if claims.is_none() {
            notes.push("the driver does not tell which stamps it can make".to_owned());
        }
        if came == 0 {
            let seen = if own > 0 { "; the kernel stamped this host's own frames" } else { "" };
            notes.push(format!(
                "no frame came in while probing, so receive stamps of others are unproven{seen}"
            ));
        }
        let hardware = claims.is_some_and(|facts| facts.flags & libc::SOF_TIMESTAMPING_RX_HARDWARE != 0);
        if !hardware && matches!(wanted, StampSource::HardwareRaw | StampSource::HardwareSystem) {
            notes.push(format!("interface {interface} has no hardware stamps: software stamps are used"));
        } else if hardware && !delivered {
            notes.push(
                "the driver claims hardware stamps, and none came: they may be switched off".to_owned(),
            );
        }
        let raw = self.receive.contains_key("hardware_raw") || self.transmit.contains_key("hardware_raw");
        let clock = match (raw, self.resolution) {
            (true, _) => {
                "the interface's own clock (hardware_raw; UTC, TAI or free running) beside CLOCK_REALTIME"
            }
            (false, 0) => "none seen",
            (false, _) => "CLOCK_REALTIME (UTC) of this host",
        };
        let list = |seen: BTreeMap<&'static str, u32>| {
            seen.into_iter().map(|(source, count)| StampSeen { source: source.into(), count }).collect()
        };
        StampReport {
            interface: interface.into(),
            wanted: wanted.name().into(),
            delivered,
            claims: claims.map_or_else(Vec::new, |facts| names(facts.flags)),
            clock_index: claims.and_then(|facts| u32::try_from(facts.clock).ok()),
            receive: list(self.receive),
            transmit: list(self.transmit),
            probes: PROBES,
            clock: clock.into(),
            resolution_ns: (self.resolution > 0).then_some(self.resolution),
            notes,
        }
    }
}

/// The names of what a driver claims, as ethtool has them.
fn names(flags: u32) -> Vec<String> {
    let table = [
        (libc::SOF_TIMESTAMPING_TX_HARDWARE, "hardware-transmit"),
        (libc::SOF_TIMESTAMPING_TX_SOFTWARE, "software-transmit"),
        (libc::SOF_TIMESTAMPING_RX_HARDWARE, "hardware-receive"),
        (libc::SOF_TIMESTAMPING_RX_SOFTWARE, "software-receive"),
        (libc::SOF_TIMESTAMPING_SOFTWARE, "software-system-clock"),
        (libc::SOF_TIMESTAMPING_RAW_HARDWARE, "hardware-raw-clock"),
    ];
    table.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| name.to_owned()).collect()
}

/// The greatest step of which both are multiples.
fn common_step(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_of_a_clock_shows_in_its_stamps() {
        assert_eq!([4000, 12_000, 6000].into_iter().fold(0, common_step), 2000);
        assert_eq!(common_step(7, 9), 1);
    }

    #[test]
    fn a_stamp_says_whose_it_is() {
        assert_eq!(source_of(1), StampSource::Software);
        assert_eq!(source_of(1 | 1 << 29), StampSource::Software);
        assert_eq!(source_of(1 << 31), StampSource::HardwareRaw);
        let at = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        let zero = at(0, 0);
        assert_eq!(read(&[zero, zero, zero]), None);
        assert_eq!(
            read(&[at(1, 5), zero, zero]),
            Some(Stamp { ns: 1_000_000_005, source: StampSource::Software })
        );
        assert_eq!(read(&[at(1, 5), zero, at(2, 0)]).unwrap().source, StampSource::HardwareRaw);
    }
}

//! Live frames: the kernel's own generator.
//!
//! **What.** `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES` (Linux 5.18) makes frames in memory that it uses
//! again and again, runs an XDP program on each, and does what the program says. Ours ([`program`]) writes the frame
//! (from one or several templates, in turn), its number, its time and its checksum, and redirects it to an interface.
//!
//! **Why.** No socket buffer is allocated and no system call is made for a frame, which makes it about six times as
//! fast as AF_XDP on a veth. And the count is exact: the program counts in its own map.
//!
//! **Price.** It is no [`Transmitter`](super::Transmitter): it sends what it was opened with. It goes around queueing
//! disciplines and around captures of the sender's interface, and a frame that the driver refuses is seen only in the
//! interface's counters and in `xdp:xdp_devmap_xmit`. The calling thread (and its CPU) is busy while it sends. Frames
//! leave in bursts: a rate is kept by sleeping between bursts ([`Live::pace`]), and a call into the kernel may take tens of
//! milliseconds however few frames it makes, because the kernel builds and takes down a pool of pages each time.

mod peer;
mod program;

use super::interface::{Health, Interface, Probe};
use super::{PortError, PortResult, Uri};
use crate::port::told::setting;
use crate::sys::clock;
use record::{PortSetting, Problem, Result, unit};

pub use peer::PassingProgram;
pub(in crate::port) use peer::give_way;

/// Makes sure that redirected frames can leave through an interface.
pub(in crate::port) fn open_peer(interface: &Interface, place: &str) -> Result<peer::Peer> {
    peer::open(interface, true, place)
}

/// What one frame looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFrame {
    /// The whole frame, without FCS, with right checksums.
    pub bytes: Vec<u8>,
    /// Where an 18-byte [`wire::message`] begins whose number and time are to be written into each frame; its magic,
    /// stream and flags are sent as they are. The number counts frames, from [`LiveOptions::first_sequence`]; the time is
    /// `CLOCK_MONOTONIC` when the kernel made the frame. A UDP (unless it is 0), TCP, ICMP or ICMPv6 checksum is kept
    /// right.
    pub message: Option<usize>,
}

/// What is to be sent, and where.
#[derive(Debug, Clone, Default)]
pub struct LiveOptions {
    /// Sent in turn; at most 512.
    pub frames: Vec<LiveFrame>,
    /// The number in the first frame.
    pub first_sequence: u64,
    /// Frames that the kernel makes at a time, 1 to 256; 64 when 0.
    pub batch: u32,
    /// Where the other end of a veth does not take such frames: attach a program there that passes everything, as long
    /// as this value lives.
    pub open_peer: bool,
}

/// One call into the kernel, as [`Live::pace`] tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Frames that were sent before it.
    pub before: u64,
    /// Frames of this burst.
    pub frames: u64,
    /// When it should have begun (`CLOCK_MONOTONIC`); the same as `begun_ns` without a rate.
    pub planned_ns: u64,
    /// When it began.
    pub begun_ns: u64,
    /// When the last frame was handed to the driver.
    pub ended_ns: u64,
}

/// How many frames, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Stop after so many frames; never when not said.
    pub count: Option<u64>,
    /// Frames a second; as fast as possible when not said.
    pub rate: Option<f64>,
    /// Stop at this time (`CLOCK_MONOTONIC`).
    pub until_ns: Option<u64>,
}

/// The longest time between the bursts of a rate; a burst has as many frames as fall due in it.
const BURST_NS: u64 = 1_000_000;
/// Frames of the first call where no rate is kept.
const FIRST_FRAMES: u64 = 16_384;
/// How long a call shall take where no rate is kept: long against the kernel's work before and after the frames, short
/// enough that an end is noticed.
const UNPACED_NS: u64 = 200_000_000;
/// The most frames of one call.
const MOST_FRAMES: u64 = 1 << 21;
/// What the kernel takes at most for one batch (`TEST_XDP_MAX_BATCH`), and what it takes when none is said.
const MAX_BATCH: u32 = 256;
const DEFAULT_BATCH: u32 = 64;

/// A generator that is ready.
#[derive(Debug)]
pub struct Live {
    generator: program::Generator,
    probe: Probe,
    first_sequence: u64,
    batch: u32,
    settings: Vec<PortSetting>,
    /// Holds the program at the other end.
    _peer: Option<PassingProgram>,
}

impl Live {
    /// Prepares the generator for `live:INTERFACE?batch=N&peer=open|keep` in the namespace of the calling thread.
    ///
    /// # Errors
    /// As [`Live::open`], and input for an unknown setting.
    pub fn open_uri(text: &str, mut wish: LiveOptions) -> Result<Live> {
        let mut uri = Uri::parse(text)?;
        wish.batch = uri.take_number("batch", unit::amount, 1..=MAX_BATCH)?.unwrap_or(wish.batch);
        wish.open_peer = uri.take_word("peer", &[("open", true), ("keep", false)])?.unwrap_or(wish.open_peer);
        uri.finish()?;
        Live::open(&uri.rest, text, &wish)
    }

    /// Prepares the generator for an interface of the calling thread's namespace; `place` is what to say in errors.
    ///
    /// # Errors
    /// Input: no such interface, templates that cannot be sent. Host: the interface is down or cannot take such frames,
    /// the kernel is too old or this user may not.
    pub fn open(interface: &str, place: &str, wish: &LiveOptions) -> Result<Live> {
        let interface = Interface::find(interface, place)?;
        if !interface.link.up {
            return Err(Problem::host(format!("interface {} is down", interface.link.name))
                .at(place)
                .help(format!("switch it on: ip link set {} up", interface.link.name)));
        }
        check(&wish.frames, &interface, place)?;
        let peer = peer::open(&interface, wish.open_peer, place)?;
        let generator = program::Generator::new(&wish.frames, wish.first_sequence, interface.link.index)
            .map_err(|problem| problem.at(place))?;
        let probe = Probe::open(interface.link.index).map_err(|problem| problem.at(place))?;
        let batch = if wish.batch == 0 { DEFAULT_BATCH } else { wish.batch.min(MAX_BATCH) };
        let mut live = Live {
            generator,
            probe,
            first_sequence: wish.first_sequence,
            batch,
            settings: settings(&interface, wish, batch, peer.note),
            _peer: peer.program,
        };
        live.try_none(place)?;
        Ok(live)
    }

    /// Finds out whether the kernel runs live frames at all, without sending one: the program is told to drop.
    fn try_none(&mut self, place: &str) -> Result<()> {
        let refused = |e: std::io::Error| {
            let why = match e.raw_os_error() {
                Some(libc::EPERM) => {
                    "this user may not (CAP_SYS_ADMIN, or CAP_BPF and CAP_NET_ADMIN, is needed)"
                }
                Some(libc::EINVAL | libc::EOPNOTSUPP) => "it needs Linux 5.18",
                _ => "it refused",
            };
            Problem::host(format!("the kernel runs no live frames here: {why} ({e})"))
                .at(place)
                .help("use ring: or xdp: instead")
        };
        self.generator.rehearse().map_err(refused)
    }

    /// Sends exactly so many frames as fast as it goes; how many were sent, which is less only when a signal came.
    ///
    /// # Errors
    /// [`PortError::Gone`], [`PortError::Down`], and what else the kernel says.
    pub fn run(&mut self, count: u64) -> PortResult<u64> {
        let before = self.generator.sequence()?;
        let mut left = count;
        while left > 0 {
            let now = left.min(u64::from(i32::MAX as u32));
            let result = self.generator.run(now as u32, self.batch);
            let sent = self.generator.sequence()?.wrapping_sub(before);
            match result {
                Ok(()) if sent < count - (left - now) => return self.why_fewer(),
                Ok(()) => left -= now,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => return Ok(sent),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(count)
    }

    /// The program could not redirect: the map forgets an interface that was removed.
    fn why_fewer(&self) -> PortResult<u64> {
        match self.probe.health() {
            Health::Gone => Err(PortError::Gone),
            Health::Down => Err(PortError::Down),
            Health::Up => Err(PortError::Io(std::io::Error::other("the program could not redirect a frame"))),
        }
    }

    /// Sends at a pace, until it is done or `go_on`, which is asked after every burst, says no; how many frames were
    /// sent. Frames of a burst leave together at the time of the first; a burst that is late is followed at once by
    /// the next, so the rate is kept on the whole (open loop).
    ///
    /// # Errors
    /// As [`Live::run`].
    pub fn pace(&mut self, pace: &Pace, mut go_on: impl FnMut(&Burst) -> bool) -> PortResult<u64> {
        let begin = clock::monotonic_ns();
        let (mut sent, mut unpaced) = (0, FIRST_FRAMES);
        loop {
            let left = pace.count.map_or(u64::MAX, |count| count - sent);
            let now = clock::monotonic_ns();
            let (due, frames) = match pace.rate {
                None => (now, unpaced),
                Some(rate) => due(begin, sent, rate, now),
            };
            if left == 0 || pace.until_ns.is_some_and(|until| due.max(now) >= until) {
                return Ok(sent);
            }
            clock::sleep_until(due);
            let begun_ns = clock::monotonic_ns();
            let frames = self.run(frames.min(left).min(unpaced))?;
            let planned_ns = if pace.rate.is_some() { due } else { begun_ns };
            let burst = Burst { before: sent, frames, planned_ns, begun_ns, ended_ns: clock::monotonic_ns() };
            sent += frames;
            unpaced = unpaced_after(&burst, pace.until_ns);
            if !go_on(&burst) {
                return Ok(sent);
            }
        }
    }

    /// Frames that were sent since the opening (the program's own count).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sent(&self) -> std::io::Result<u64> {
        Ok(self.generator.sequence()?.wrapping_sub(self.first_sequence))
    }

    /// What took effect.
    pub fn settings(&self) -> &[PortSetting] {
        &self.settings
    }
}

/// When the next burst is due, and how many frames it has: those that fall due within the longest time between bursts,
/// or all that are overdue (one call into the kernel may take tens of milliseconds, however few frames it sends).
fn due(begin: u64, sent: u64, rate: f64, now: u64) -> (u64, u64) {
    let rate = rate.max(1e-9);
    let due = begin + (sent as f64 * 1e9 / rate) as u64;
    let frames = (rate * BURST_NS as f64 / 1e9) as u64;
    let overdue = (now.saturating_sub(begin) as f64 * rate / 1e9) as u64;
    (due, frames.max(overdue.saturating_sub(sent)).clamp(1, MOST_FRAMES))
}

/// How many frames the next call has where no rate is kept: as many as take [`UNPACED_NS`] if they are as fast as those
/// of the last call, at most four times as many as that had, and no more than there is time for.
fn unpaced_after(last: &Burst, until_ns: Option<u64>) -> u64 {
    let took = last.ended_ns.saturating_sub(last.begun_ns).max(1);
    let left = until_ns.map_or(u64::MAX, |until| until.saturating_sub(last.ended_ns));
    let frames = (u128::from(last.frames) * u128::from(UNPACED_NS.min(left)) / u128::from(took)) as u64;
    frames.min(4 * last.frames).clamp(64, MOST_FRAMES)
}

fn check(frames: &[LiveFrame], interface: &Interface, place: &str) -> Result<()> {
    let bad = |what: String| Err(Problem::input(what).at(place));
    if frames.is_empty() || frames.len() > 512 {
        return bad(format!("live frames need 1 to 512 templates, not {}", frames.len()));
    }
    // Ethernet header and one tag come on top of the MTU.
    let longest = (interface.link.mtu as usize + 18).min(program::LONGEST);
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.bytes.len();
        if length < 14 {
            return bad(format!("template {} has {length} bytes, which is not a frame", number + 1));
        }
        if length > longest {
            return bad(format!(
                "template {} has {length} bytes, and live frames on {} have at most {longest}",
                number + 1,
                interface.link.name
            ));
        }
        if frame.message.is_some_and(|at| at < 14 || at + wire::message::LENGTH > length) {
            return bad(format!("template {} has no room for the message", number + 1));
        }
    }
    Ok(())
}

fn settings(interface: &Interface, wish: &LiveOptions, batch: u32, peer: String) -> Vec<PortSetting> {
    let asked = if wish.batch == 0 { String::new() } else { wish.batch.to_string() };
    let mut all = vec![
        setting(
            "path",
            "",
            "XDP redirect to the driver",
            "no queueing discipline and no capture on this interface sees these frames",
        ),
        setting("batch", asked, format!("{batch} frames"), ""),
        setting("templates", "", wish.frames.len().to_string(), ""),
    ];
    if interface.link.kind == "veth" {
        all.push(setting("peer", "", peer, ""));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_keep_the_rate_on_the_whole() {
        assert_eq!(due(1000, 0, 1e6, 0), (1000, 1000));
        assert_eq!(due(0, 5000, 1e6, 0), (5_000_000, 1000));
        assert_eq!(due(0, 3, 10.0, 0), (300_000_000, 1), "one frame at a time when they are rare");
        assert_eq!(due(0, 0, 1e12, 0).1, MOST_FRAMES);
        assert_eq!(due(0, 5000, 1e5, 100_000_000).1, 5000, "what is overdue leaves at once");
    }

    #[test]
    fn calls_grow_until_they_take_long_and_end_in_time() {
        let last = |frames, took| Burst { before: 0, frames, planned_ns: 0, begun_ns: 0, ended_ns: took };
        assert_eq!(unpaced_after(&last(16_384, 1_000_000), None), 65_536, "at most four times as many");
        assert_eq!(unpaced_after(&last(1_000_000, 400_000_000), None), 500_000);
        assert_eq!(unpaced_after(&last(1_000_000, 200_000_000), Some(210_000_000)), 50_000, "10 ms are left");
        assert_eq!(unpaced_after(&last(0, 5), None), 64, "a signal came before the first frame");
        assert_eq!(unpaced_after(&last(MOST_FRAMES, 1), None), MOST_FRAMES);
    }
}

//! Frames from a capture file.
//!
//! The file is read once before anything is sent: its frames stay in memory, so that reading and decompressing cannot
//! make them late, and everything that a person should know about them is found before the first one leaves.

use super::build::Moment;
use super::engine::Source;
use linux::port::{Direction, Frames, MAX_BATCH, Meta, PortError, PortOptions, Wait};
use record::send::ReplayFacts;
use record::unit::{count, many};
use record::{Problem, Result};
use std::sync::Arc;
use wire::repair::{self, Checks};

/// Frames of one file take at most so much memory.
pub const MAX_BYTES: u64 = 4 << 30;

/// A file with one frame has no gap; looped, the frame leaves once a second, as ping does.
const LONE_GAP_NS: u64 = 1_000_000_000;

/// The frames of a capture file.
#[derive(Debug, Default)]
pub struct Recording {
    /// All bytes.
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<u64>,
    /// When each was captured, from the first on, ascending.
    pub offsets: Arc<Vec<u64>>,
    /// What was found.
    pub facts: ReplayFacts,
    /// What the file's reader says must be known.
    notes: Vec<String>,
}

impl Recording {
    /// Reads a file, a compressed file, or `-`: its first `most` frames, all when not said; `fix` repairs checksums. A
    /// file that is cut off is read as far as it goes, and [`Recording::warnings`] say so.
    ///
    /// # Errors
    /// Input: not such a file, damaged, without frames, or larger than fits.
    pub fn read(file: &str, fix: bool, most: Option<u64>) -> Result<Recording> {
        let uri = if file.starts_with("pcap:") { file.to_owned() } else { format!("pcap:{file}") };
        let wish = PortOptions { direction: Direction::Receive, ..PortOptions::default() };
        let mut port = linux::port::open(&uri, &wish)?;
        let Some(receiver) = port.receiver.as_mut() else {
            return Err(Problem::input("nothing can be read from it").at(&uri));
        };
        let mut builder = Builder { fix, ..Builder::default() };
        let most = most.unwrap_or(u64::MAX);
        while builder.recording.len() < most {
            let left = (most - builder.recording.len()).min(MAX_BATCH as u64) as usize;
            match receiver.receive(left, Wait::For(std::time::Duration::from_secs(1))) {
                Ok(batch) => {
                    for i in 0..batch.len() {
                        builder.add(batch.bytes(i), batch.meta(i));
                    }
                }
                Err(PortError::Ended) => break,
                Err(error) => return Err(Problem::from(error).at(file)),
            }
            if builder.recording.facts.bytes > MAX_BYTES {
                let what = format!("its frames have more than {} GiB", MAX_BYTES >> 30);
                return Err(Problem::input(what)
                    .at(file)
                    .help("send fewer of them with --count, or cut the file into pieces ('editcap -c')"));
            }
        }
        builder.recording.notes = receiver.notes().to_vec();
        if builder.recording.ends.is_empty() {
            return Err(Problem::input("it has no frames").at(file));
        }
        Ok(builder.finish())
    }

    /// How many frames.
    pub fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Frame `n`; the file begins again after its end.
    pub fn frame(&self, n: u64) -> &[u8] {
        let place = (n % self.len()) as usize;
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.bytes[begin as usize..self.ends[place] as usize]
    }

    /// From the begin of the file to the begin of its repetition: its span and one mean gap.
    pub fn round_ns(&self) -> u64 {
        match self.len() {
            0 | 1 => LONE_GAP_NS,
            n => self.facts.span_ns + self.facts.span_ns / (n - 1),
        }
    }

    /// How many frames leave at their own times, so many times as fast, within a duration; rounds follow each other.
    pub fn within(&self, duration_ms: u64, speed: f64) -> u64 {
        let span = duration_ms as f64 * 1e6 * speed;
        let round = self.round_ns().max(1) as f64;
        let rest = (span % round) as u64;
        let last = self.offsets.iter().take_while(|offset| **offset <= rest).count() as u64;
        (span / round) as u64 * self.len() + last
    }

    /// The mean length of a frame.
    pub fn mean(&self) -> f64 {
        self.facts.bytes as f64 / self.len().max(1) as f64
    }

    /// What a person should know before these frames are sent through a port that takes frames up to `longest`.
    pub fn warnings(&self, longest: usize) -> Vec<String> {
        let facts = &self.facts;
        let mut said = self.notes.clone();
        if facts.wrong_checksums > 0 && facts.repaired == 0 {
            said.push(format!(
                "{} of {} {} wrong checksums and {} sent unchanged; frame {}: {}; --fix-checksums repairs them",
                count(facts.wrong_checksums),
                many(facts.frames, "frame"),
                if facts.wrong_checksums == 1 { "has" } else { "have" },
                if facts.wrong_checksums == 1 { "is" } else { "are" },
                facts.first_wrong.unwrap_or(0),
                facts.first_wrong_what
            ));
        }
        if facts.repaired > 0 {
            said.push(format!(
                "the checksums of {} were repaired; frame {}: {}",
                many(facts.repaired, "frame"),
                facts.first_wrong.unwrap_or(0),
                facts.first_wrong_what
            ));
        }
        let too_long = (0..self.len()).filter(|n| self.frame(*n).len() > longest).count() as u64;
        let refuse = format!("longer than the {longest} bytes that the port takes, which will refuse");
        let counted = [
            ("cut when captured, and sent as short as that", facts.cut),
            ("earlier than one before, and sent at once", facts.backwards),
            (&refuse, too_long),
        ];
        let some = counted.into_iter().filter(|(_, count)| *count > 0);
        said.extend(some.map(|(what, count)| format!("{what}: {}", many(count, "frame"))));
        said
    }
}

/// What is wrong with the checksums of a frame, in words.
fn words(checks: &Checks) -> String {
    let transport = checks.transport.map(|(protocol, check)| (protocol.name().to_uppercase(), check));
    let all = checks.ipv4.map(|check| ("IPv4".to_owned(), check)).into_iter().chain(transport);
    let wrong = all.filter(|(_, check)| check.wants_repair()).map(|(name, check)| match check {
        repair::Check::Missing => format!("{name} checksum is 0"),
        repair::Check::Unfinished => format!("{name} checksum is unfinished (left to the hardware)"),
        _ => format!("{name} checksum is wrong"),
    });
    wrong.collect::<Vec<_>>().join(", ")
}

#[derive(Default)]
struct Builder {
    recording: Recording,
    offsets: Vec<u64>,
    first_ns: u64,
    fix: bool,
}

impl Builder {
    fn add(&mut self, bytes: &[u8], meta: &Meta) {
        let recording = &mut self.recording;
        let begin = recording.bytes.len();
        recording.bytes.extend_from_slice(bytes);
        let facts = &mut recording.facts;
        facts.frames += 1;
        facts.bytes += bytes.len() as u64;
        facts.longest = facts.longest.max(bytes.len() as u64);
        facts.cut += u64::from(meta.wire_length as usize > bytes.len());
        let checks = repair::check(bytes);
        if checks.wants_repair() {
            facts.wrong_checksums += 1;
            if facts.first_wrong.is_none() {
                facts.first_wrong = Some(facts.frames);
                facts.first_wrong_what = words(&checks);
            }
            if self.fix {
                facts.repaired += u64::from(repair::repair(&mut recording.bytes[begin..]).wants_repair());
            }
        }
        recording.ends.push(recording.bytes.len() as u64);
        if self.offsets.is_empty() {
            self.first_ns = meta.stamp.ns;
        }
        let last = self.offsets.last().copied().unwrap_or(0);
        let offset = meta.stamp.ns.checked_sub(self.first_ns).filter(|offset| *offset >= last);
        facts.backwards += u64::from(offset.is_none());
        self.offsets.push(offset.unwrap_or(last));
    }

    fn finish(mut self) -> Recording {
        self.recording.facts.span_ns = self.offsets.last().copied().unwrap_or(0);
        self.recording.offsets = Arc::new(self.offsets);
        self.recording
    }
}

impl Source for Recording {
    fn longest(&self) -> usize {
        self.facts.longest as usize
    }

    fn prepare(&self, frames: &mut Frames) {
        frames.clear();
    }

    #[inline]
    fn add(&self, frames: &mut Frames, n: u64, _moment: Moment) -> bool {
        frames.push(self.frame(n), Meta::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::build::build;
    use super::super::template::Template;
    use super::*;
    use linux::port::{Stamp, StampSource};

    fn recorded(frames: &[(&str, u64)], fix: bool) -> Recording {
        let mut builder = Builder { fix, ..Builder::default() };
        for (text, ns) in frames {
            let frame = build(&Template::parse(text, "t").unwrap(), 0, Moment::default());
            let stamp = Stamp { ns: *ns, source: StampSource::File };
            builder.add(&frame, &Meta { stamp, wire_length: frame.len() as u32, ..Meta::default() });
        }
        builder.finish()
    }

    const PING: &str = "eth / ip / icmp checksum=0 id=1 / payload text=\"0123456789012345678901234567\"";

    #[test]
    fn a_zero_checksum_is_warned_about_or_repaired() {
        let frames = [("eth / ip / udp", 5), (PING, 9), (PING, 9)];
        let told = recorded(&frames, false).warnings(1514);
        assert_eq!(
            told,
            [
                "2 of 3 frames have wrong checksums and are sent unchanged; frame 2: ICMP checksum is 0; --fix-checksums repairs them"
            ]
        );
        let fixed = recorded(&frames, true);
        assert_eq!(fixed.facts.repaired, 2);
        assert!(!repair::check(fixed.frame(1)).wants_repair());
        assert!(fixed.warnings(1514)[0].contains("2 frames were repaired"), "{:?}", fixed.warnings(1514));
    }

    #[test]
    fn times_never_go_back_and_a_round_has_one_more_gap() {
        let recording =
            recorded(&[("eth", 1000), ("eth", 1400), ("eth", 1300), ("size 2000 / eth", 1900)], false);
        assert_eq!(*recording.offsets, [0, 400, 400, 900]);
        assert_eq!((recording.facts.backwards, recording.round_ns()), (1, 1200));
        assert_eq!(recording.frame(7), recording.frame(3));
        let told = recording.warnings(1514);
        assert!(
            told[0].ends_with("sent at once: 1 frame") && told[1].starts_with("longer than the 1514 bytes"),
            "{told:?}"
        );
        assert_eq!(recorded(&[("eth", 7)], false).round_ns(), LONE_GAP_NS);
    }
}

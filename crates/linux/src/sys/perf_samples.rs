//! Samples of what every CPU does: the address, and those of its callers (`perf_event_open(2)`, the CPU clock).
//!
//! **What.** [`Samples::start`] opens one event and one ring for each CPU; [`Samples::read`] lends what lies in the rings and gives the room
//! back. **Why the CPU clock.** It is a timer of the kernel, which virtual machines have, too; counters of the hardware they mostly
//! have not.
//!
//! **Price.** [`RING_PAGES`] pages for each CPU, and some 2 µs for a sample.

use super::packet::Mapping;
use super::perf::{EventAttributes, open_event};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
// PERF_SAMPLE_TID, _TIME, _CALLCHAIN, _CPU: in a sample they follow each other as TID, TIME, CPU, CALLCHAIN.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 7;
/// Say when a process gets another name (`comm` of `struct perf_event_attr`).
const NAMES: u64 = 1 << 9;
/// Leave out callers in the process (`exclude_callchain_user`).
const KERNEL_ONLY: u64 = 1 << 22;

// Kinds of records (enum perf_event_type).
const LOST: u32 = 2;
const COMM: u32 = 3;
const THROTTLE: u32 = 5;
const SAMPLE: u32 = 9;

// Fields of struct perf_event_mmap_page.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Pages of a ring, a power of two: 512 KiB, which holds 1000 samples of 60 callers.
pub const RING_PAGES: usize = 128;
/// The same without callers in the process: 256 KiB, 1000 samples of 28 callers.
const KERNEL_RING_PAGES: usize = 64;

/// Addresses at and above are not addresses, but say whose the next ones are (`PERF_CONTEXT_MAX`).
const CONTEXTS: u64 = -4095i64 as u64;
/// The next addresses are the kernel's.
const CONTEXT_KERNEL: u64 = -128i64 as u64;

/// What lay in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SampleRecord {
    /// A CPU was looked at.
    Sample {
        /// Process id; 0 is idle.
        pid: u32,
        /// Thread id.
        tid: u32,
        /// The CPU.
        cpu: u32,
        /// Addresses in the kernel, the innermost first.
        kernel: Vec<u64>,
        /// Addresses in the process, the innermost first.
        user: Vec<u64>,
    },
    /// A thread got another name; if it became another program, its memory is another one, too.
    Renamed {
        /// Process id.
        pid: u32,
        /// Thread id.
        tid: u32,
        /// The name.
        name: String,
    },
    /// So many records found no room.
    Lost(u64),
    /// The kernel held sampling back.
    Throttled,
}

/// Running events and their rings.
#[derive(Debug)]
pub struct Samples {
    rings: Vec<Ring>,
}

#[derive(Debug)]
struct Ring {
    // The order of fields is the order of release.
    mapping: Mapping,
    _event: OwnedFd,
    page: usize,
    /// Bytes behind the first page.
    room: usize,
    position: u64,
}

/// What is kept of each sample.
#[derive(Clone, Copy)]
struct Kept {
    flags: u64,
    pages: usize,
}

impl Samples {
    /// Looks at every CPU so many times a second from now on.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` without permission (`kernel.perf_event_paranoid`, `CAP_PERFMON`), `ENOMEM`.
    pub fn start(hz: u32) -> io::Result<Samples> {
        Self::open(hz, Kept { flags: NAMES, pages: RING_PAGES })
    }

    /// The same without callers in the process and without names: what functions of the kernel took.
    ///
    /// # Errors
    /// As [`Samples::start`].
    pub fn of_kernel(hz: u32) -> io::Result<Samples> {
        Self::open(hz, Kept { flags: KERNEL_ONLY, pages: KERNEL_RING_PAGES })
    }

    fn open(hz: u32, kept: Kept) -> io::Result<Samples> {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
        let configured = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_CONF)?.unwrap_or(1);
        let mut rings = vec![];
        for cpu in 0..configured as libc::c_int {
            match Ring::open(hz, cpu, page, kept) {
                Ok(ring) => rings.push(ring),
                // A CPU that is switched off is not looked at.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Samples { rings })
    }

    /// How many CPUs are looked at.
    pub fn cpus(&self) -> u32 {
        self.rings.len() as u32
    }

    /// Gives out every record that is there.
    pub fn read(&mut self, mut take: impl FnMut(SampleRecord)) {
        self.rings.iter_mut().for_each(|ring| ring.read(&mut take));
    }
}

impl Ring {
    fn open(hz: u32, cpu: libc::c_int, page: usize, kept: Kept) -> io::Result<Ring> {
        let attributes = EventAttributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<EventAttributes>() as u32,
            config: PERF_COUNT_SW_CPU_CLOCK,
            // A period of the clock, in nanoseconds. With a frequency instead, Linux 6.18 passes idle CPUs over.
            sample_period: 1_000_000_000 / u64::from(hz.max(1)),
            sample_type: SAMPLE_TYPE,
            flags: kept.flags,
            ..EventAttributes::default()
        };
        let event = open_event(&attributes, cpu)?;
        let room = page * kept.pages;
        let mapping = Mapping::ring(event.as_fd(), page + room, 0)?;
        Ok(Ring { mapping, _event: event, page, room, position: 0 })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset is one of two aligned words of the first page, which is mapped as long as this value lives.
        unsafe { self.mapping.base().add(offset).cast::<AtomicU64>().as_ref() }
    }

    fn read(&mut self, take: &mut impl FnMut(SampleRecord)) {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        while self.position < head {
            let header = self.bytes(self.position, 8);
            let size = u64::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 || size > head - self.position {
                // Not the kernel's layout: what is left cannot be read.
                self.position = head;
                break;
            }
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            if let Some(record) = parse(kind, &self.bytes(self.position + 8, size as usize - 8)) {
                take(record);
            }
            self.position += size;
        }
        self.word(DATA_TAIL).store(self.position, Ordering::Release);
    }

    /// A copy of so many bytes, which may go round the end of the ring.
    fn bytes(&self, position: u64, length: usize) -> Vec<u8> {
        let at = (position % self.room as u64) as usize;
        let first = length.min(self.room - at);
        let part = |at: usize, length: usize| {
            // SAFETY: both parts lie inside the ring behind the first page; the kernel leaves alone what is before the head until
            // the tail is behind it.
            unsafe { std::slice::from_raw_parts(self.mapping.base().add(self.page + at).as_ptr(), length) }
        };
        [part(at, first), part(0, length - first)].concat()
    }
}

/// A record without its header; none for other kinds, and for what is cut short.
pub fn parse(kind: u32, body: &[u8]) -> Option<SampleRecord> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    match kind {
        LOST => u64_at(8).map(SampleRecord::Lost),
        THROTTLE => Some(SampleRecord::Throttled),
        COMM => {
            let name = body.get(8..)?.split(|&byte| byte == 0).next()?;
            let name = String::from_utf8_lossy(name).into_owned();
            Some(SampleRecord::Renamed { pid: u32_at(0)?, tid: u32_at(4)?, name })
        }
        SAMPLE => {
            let count = u64_at(24)?.min(body.len() as u64 / 8) as usize;
            let addresses = (0..count).filter_map(|place| u64_at(32 + place * 8));
            let [kernel, user] = chains(addresses);
            Some(SampleRecord::Sample { pid: u32_at(0)?, tid: u32_at(4)?, cpu: u32_at(16)?, kernel, user })
        }
        _ => None,
    }
}

/// The kernel's addresses and the process's.
fn chains(addresses: impl Iterator<Item = u64>) -> [Vec<u64>; 2] {
    let (mut chains, mut of_kernel) = ([vec![], vec![]], false);
    for address in addresses {
        match address {
            CONTEXTS.. => of_kernel = address == CONTEXT_KERNEL,
            _ => chains[usize::from(!of_kernel)].push(address),
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_sample_has_both_chains_and_a_loss_its_count() {
        let user = -512i64 as u64;
        let ids = 7u64 | 8 << 32;
        let body = words(&[ids, 99, 1, 5, CONTEXT_KERNEL, 0xffff_ffff_8100_0000, user, 0x1000, 0x2000]);
        let expected = SampleRecord::Sample {
            pid: 7,
            tid: 8,
            cpu: 1,
            kernel: vec![0xffff_ffff_8100_0000],
            user: vec![0x1000, 0x2000],
        };
        assert_eq!(parse(SAMPLE, &body), Some(expected));
        assert_eq!(parse(LOST, &words(&[1, 42])), Some(SampleRecord::Lost(42)));
        let mut renamed = words(&[ids]);
        renamed.extend(b"burn\0\0\0\0");
        let expected = SampleRecord::Renamed { pid: 7, tid: 8, name: "burn".into() };
        assert_eq!(parse(COMM, &renamed), Some(expected));
        assert_eq!(parse(SAMPLE, &body[..20]), None);
    }

    #[test]
    fn this_process_is_sampled_while_it_works() {
        let mut samples = match Samples::start(997) {
            Ok(samples) => samples,
            Err(error) => return println!("SKIP: samples are not permitted here: {error}"),
        };
        let end = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while std::time::Instant::now() < end {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
        let (mut own, mut lost) = (0, 0);
        samples.read(|record| match record {
            SampleRecord::Sample { pid, .. } => own += u32::from(pid == std::process::id()),
            SampleRecord::Lost(count) => lost += count,
            _ => {}
        });
        assert!(own > 0 && lost == 0, "{own} {lost}");
    }

    proptest! {
        #[test]
        fn noise_never_panics(kind in 0u32..12, body in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(kind, &body);
        }
    }
}

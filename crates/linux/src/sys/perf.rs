//! Counting a kernel event on all CPUs, without a program that could be kept from seeing it.
//!
//! The number of an event is in tracefs, which need not be mounted: it is opened here as a mount that no path shows, so
//! nothing has to be undone.

use super::mount::detached_mount;
use super::owned;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// `struct perf_event_attr` in its first published size (`PERF_ATTR_SIZE_VER0`, include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
pub(super) struct EventAttributes {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) sample_period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup_events: u32,
    pub(super) breakpoint_type: u32,
    pub(super) config1: u64,
}

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// A running count of one event on every CPU.
#[derive(Debug)]
pub struct EventCount {
    cpus: Vec<File>,
}

impl EventCount {
    /// Starts to count the event with that path below tracefs, e.g. `events/skb/kfree_skb`.
    ///
    /// # Errors
    /// The system's error: no permission (`CAP_PERFMON`), no tracefs, no such event.
    pub fn start(event: &str) -> io::Result<EventCount> {
        let number = event_number(event)?;
        let configured = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_CONF)?.unwrap_or(1);
        let mut cpus = vec![];
        for cpu in 0..configured as libc::c_int {
            match open_on(number, cpu) {
                Ok(count) => cpus.push(count),
                // A CPU that is switched off counts nothing.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(EventCount { cpus })
    }

    /// Events since the start, on all CPUs.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self) -> io::Result<u64> {
        let mut sum = 0u64;
        for cpu in &self.cpus {
            let mut bytes = [0; 8];
            (&*cpu).read_exact(&mut bytes)?;
            sum = sum.wrapping_add(u64::from_ne_bytes(bytes));
        }
        Ok(sum)
    }
}

fn open_on(event: u64, cpu: libc::c_int) -> io::Result<File> {
    let size = size_of::<EventAttributes>() as u32;
    let attributes =
        EventAttributes { kind: PERF_TYPE_TRACEPOINT, size, config: event, ..EventAttributes::default() };
    open_event(&attributes, cpu).map(File::from)
}

/// Opens an event of all processes on a CPU.
pub(super) fn open_event(attributes: &EventAttributes, cpu: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are valid for their size and only read; any process (-1) on this CPU, no group (-1).
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attributes,
            -1 as libc::pid_t,
            cpu,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    owned(fd)
}

/// The number of an event, read from a tracefs that is mounted nowhere.
fn event_number(event: &str) -> io::Result<u64> {
    let root = detached_mount(c"tracefs")?;
    let path = format!("{event}/id");
    let file = openat(&root, path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    text.trim().parse().map_err(io::Error::other)
}

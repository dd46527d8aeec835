//! One end of a test: prepared, warmed up, run, and kept open until the counters were read.

use super::schedule::{self, Ending};
use crate::protocol::message::Prepared;
use crate::protocol::setup::{EndRole, Setup};
use linux::sys::cpu;
use linux::sys::socket::{self, Direction};
use record::Result;
use record::spec::TestSpec;
use record::traffic::{EndReport, Settings};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a receiver waits in the kernel before it looks whether it should stop.
pub const POLL: Duration = Duration::from_millis(20);

/// How long a stopped receiver of a stream reads what is left at most, in nanoseconds.
pub const DRAIN_NS: u64 = 1_000_000_000;

/// How long a stopped receiver of datagrams reads what is left at most, in nanoseconds: of its own CPU time, for one that gets no CPU
/// reads nothing meanwhile, and by the clock, half of what its controller waits for the report.
pub const DRAIN_CPU_NS: u64 = 1_000_000_000;
/// See [`DRAIN_CPU_NS`].
pub const DRAIN_WAITING_NS: u64 = 10_000_000_000;

/// How long the sender of requests waits for the last replies, in nanoseconds.
pub const LINGER_NS: u64 = 200_000_000;

/// One end of one test. Its sockets stay open until it is dropped.
pub trait End: Send {
    /// Sends a few probes that are not part of the test; true when the path answered. Senders only.
    fn warm_up(&mut self) -> bool {
        false
    }

    /// Does its part until it is done (sender) or stopped (receiver).
    fn run(&mut self, stop: &Ending) -> EndReport;
}

/// An end that is ready, and what its controller must know of it.
pub type Ready = Result<(Prepared, Box<dyn End>)>;

/// Runs an end on the calling thread, pinned as asked; the report has the settings, with the buffers that the end itself
/// reports where the kernel changed them meanwhile.
pub fn run(end: &mut dyn End, setup: &Setup, settings: &Settings, stop: &Ending) -> EndReport {
    let pinned = setup.role.cpu(&setup.spec).map(|cpu| (cpu, cpu::pin_thread(cpu)));
    let mut report = end.run(stop);
    if setup.role == EndRole::Sender {
        report.notes.extend(match stop.is_over() {
            false => schedule::shortfall_note(&setup.spec, report.attempted),
            true => Some(early_note(&report)),
        });
    }
    let now = std::mem::replace(&mut report.settings, settings.clone());
    if now.send_buffer > 0 {
        report.settings.send_buffer = now.send_buffer;
        report.settings.receive_buffer = now.receive_buffer;
    }
    match pinned {
        Some((cpu, Ok(()))) => report.settings.cpu = Some(cpu),
        Some((cpu, Err(error))) => report.settings.refused.push(format!("pinning to CPU {cpu}: {error}")),
        None => {}
    }
    let less = smaller_buffers(&setup.spec, &report.settings);
    report.settings.refused.extend(less);
    report
}

/// What a person must know of a test that was ended before its time.
fn early_note(report: &EndReport) -> String {
    let lasted = report.ended_ns.saturating_sub(report.begun_ns) as f64;
    format!("it was told to end early: it sent for {}", record::unit::time_ns(lasted))
}

/// Buffers that the kernel made smaller than asked, in words. It keeps twice what it grants, for its own overhead (socket(7)).
fn smaller_buffers(spec: &TestSpec, settings: &Settings) -> Vec<String> {
    let buffers = [
        ("receive", spec.receive_buffer, settings.receive_buffer, "net.core.rmem_max"),
        ("send", spec.send_buffer, settings.send_buffer, "net.core.wmem_max"),
    ];
    let less = |(what, asked, kept, sysctl): (&str, Option<u32>, u64, &str)| {
        let (asked, granted) = (asked?, kept / 2);
        // An end without a socket keeps nothing.
        (kept > 0 && granted < u64::from(asked)).then(|| {
            format!("{what} buffer of {asked} B: the kernel granted {granted} B (raise {sysctl}, or give CAP_NET_ADMIN)")
        })
    };
    buffers.into_iter().filter_map(less).collect()
}

/// Buffers, addresses and port of a socket as they are; one that only receives has no remote address.
pub fn prepared(
    socket: impl AsFd,
    local: io::Result<SocketAddr>,
    remote: Option<SocketAddr>,
    refused: Vec<String>,
) -> Prepared {
    let settings = Settings {
        send_buffer: socket::buffer(&socket, Direction::Send).unwrap_or(0),
        receive_buffer: socket::buffer(&socket, Direction::Receive).unwrap_or(0),
        local: local.as_ref().map(SocketAddr::to_string).unwrap_or_default(),
        remote: remote.map(|address| address.to_string()).unwrap_or_default(),
        refused,
        ..Settings::default()
    };
    let ports = local.map(|address| address.port()).into_iter().collect();
    Prepared { ports, icmp_id: None, settings }
}

/// An address that means any of the same family.
pub fn any_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Opens a socket at `address`, or at any address when this host does not have that one (a translated address); says so
/// in the second value, with what the socket is `doing` there.
pub fn open_at<S>(
    address: IpAddr,
    doing: &str,
    open: impl Fn(SocketAddr) -> io::Result<S>,
) -> io::Result<(S, Option<String>)> {
    match open(SocketAddr::new(address, 0)) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let note = format!("address {address} is not one of this host's: {doing} at any address");
            Ok((open(SocketAddr::new(any_like(address), 0))?, Some(note)))
        }
        other => Ok((other?, None)),
    }
}

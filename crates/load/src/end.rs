//! One end of a test: prepared, warmed up, run, and kept open until the counters were read.

use crate::datagram::Errors;
use crate::{frames, ping, schedule, tcp_rr, tcp_stream, udp_rr, udp_stream};
use linux::sys::cpu;
use linux::sys::socket::{self, Direction};
use record::spec::{Kind, TestSpec};
use record::traffic::{EndReport, Settings};
use record::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a receiver waits in the kernel before it looks whether it should stop.
pub const POLL: Duration = Duration::from_millis(20);

/// How long a stopped receiver reads what is left at most, in nanoseconds.
pub const DRAIN_NS: u64 = 1_000_000_000;

/// How long the sender of requests waits for the last replies, in nanoseconds.
pub const LINGER_NS: u64 = 200_000_000;

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The end that starts the traffic.
    Sender,
    /// The end that it goes to.
    Receiver,
}

impl Role {
    /// `sender` or `receiver`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        }
    }
}

/// How the sender's clock reads on the receiver's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockRelation {
    /// Both ends are on one host: one clock, no error.
    #[default]
    Shared,
    /// Estimated over the control connection.
    Estimated {
        /// Receiver's clock minus sender's clock, in nanoseconds.
        offset_ns: i64,
        /// The true offset is at most so far from it.
        error_ns: u64,
    },
}

impl ClockRelation {
    /// What to add to the sender's time to get the receiver's.
    pub fn offset_ns(self) -> i64 {
        match self {
            ClockRelation::Shared => 0,
            ClockRelation::Estimated { offset_ns, .. } => offset_ns,
        }
    }

    /// What a person must know about one-way latencies.
    pub fn note(self) -> Option<String> {
        match self {
            ClockRelation::Shared => None,
            ClockRelation::Estimated { error_ns, .. } => Some(format!(
                "the ends have different clocks: one-way latency is known to ±{:.1} µs and no better",
                error_ns as f64 / 1e3
            )),
        }
    }
}

/// Everything that one end must know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Which end.
    pub role: Role,
    /// The test.
    pub spec: TestSpec,
    /// The address of the receiver.
    pub address: IpAddr,
    /// The receiver's port; 0 for the receiver itself, which chooses it, and for ping.
    pub port: u16,
    /// Marks the messages of this test.
    pub token: u8,
    /// How the clocks relate (used by the receiver).
    pub clock: ClockRelation,
}

/// One end of one test. Its sockets stay open until it is dropped.
pub trait End: Send {
    /// What took effect.
    fn settings(&self) -> Settings;

    /// Local ports (several for parallel connections; may be empty).
    fn ports(&self) -> Vec<u16>;

    /// The identifier of its echo requests, ping only.
    fn icmp_id(&self) -> Option<u16> {
        None
    }

    /// Sends a few probes that are not part of the test; true when the path answered. Senders only.
    fn warm_up(&mut self) -> bool {
        false
    }

    /// Does its part until it is done (sender) or stopped (receiver; a sender ends early).
    fn run(&mut self, stop: &AtomicBool) -> EndReport;
}

/// Opens the sockets of one end.
pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
    crate::check_spec(&setup.spec)?;
    crate::check_host(&setup.spec, setup.role)?;
    if setup.address.is_ipv4() != (setup.spec.family == 4) {
        return Err(Problem::input(format!("{} is not an IPv{} address", setup.address, setup.spec.family)));
    }
    match (setup.spec.kind, setup.role) {
        (Kind::TcpStream, Role::Sender) => tcp_stream::Sender::prepare(setup),
        (Kind::TcpStream, Role::Receiver) => tcp_stream::Receiver::prepare(setup),
        (Kind::UdpStream, Role::Sender) => udp_stream::Sender::prepare(setup),
        (Kind::UdpStream, Role::Receiver) => udp_stream::Receiver::prepare(setup),
        (Kind::TcpRr, Role::Sender) => tcp_rr::Sender::prepare(setup),
        (Kind::TcpRr, Role::Receiver) => tcp_rr::Receiver::prepare(setup),
        (Kind::UdpRr, Role::Sender) => udp_rr::Sender::prepare(setup),
        (Kind::UdpRr, Role::Receiver) => udp_rr::Receiver::prepare(setup),
        (Kind::Frames, Role::Sender) => frames::Sender::prepare(setup),
        (Kind::Frames, Role::Receiver) => frames::Receiver::prepare(setup),
        (Kind::Ping, Role::Sender) => ping::Sender::prepare(setup),
        (Kind::Ping, Role::Receiver) => Ok(Box::new(ping::Idle)),
    }
}

/// Runs an end on the calling thread, pinned as asked; the report has the settings.
pub fn run(end: &mut dyn End, setup: &Setup, stop: &AtomicBool) -> EndReport {
    let wanted = match setup.role {
        Role::Sender => setup.spec.sender_cpu,
        Role::Receiver => setup.spec.receiver_cpu,
    };
    let pinned = wanted.map(|cpu| (cpu, cpu::pin_thread(cpu)));
    let mut report = end.run(stop);
    if setup.role == Role::Sender && !stop.load(Relaxed) {
        report.notes.extend(schedule::shortfall_note(&setup.spec, report.attempted));
    }
    let filled = std::mem::take(&mut report.settings);
    report.settings = if filled.method.is_empty() { end.settings() } else { filled };
    match pinned {
        Some((cpu, Ok(()))) => report.settings.cpu = Some(cpu),
        Some((cpu, Err(error))) => report.settings.refused.push(format!("pinning to CPU {cpu}: {error}")),
        None => {}
    }
    let less = smaller_buffers(&setup.spec, &report.settings);
    report.settings.refused.extend(less);
    report
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

/// Buffers and addresses of a socket as they are.
pub fn settings_of(
    socket: impl AsFd,
    local: io::Result<SocketAddr>,
    remote: io::Result<SocketAddr>,
) -> Settings {
    Settings {
        send_buffer: socket::buffer(&socket, Direction::Send).unwrap_or(0),
        receive_buffer: socket::buffer(&socket, Direction::Receive).unwrap_or(0),
        local: local.map(|address| address.to_string()).unwrap_or_default(),
        remote: remote.map(|address| address.to_string()).unwrap_or_default(),
        ..Settings::default()
    }
}

/// What a person must know about errors while receiving.
pub fn receive_errors_note(errors: &Errors) -> Option<String> {
    let named: Vec<_> = errors.named().iter().map(|e| format!("{} × {}", e.count, e.name)).collect();
    (!named.is_empty()).then(|| format!("errors while receiving: {}", named.join(", ")))
}

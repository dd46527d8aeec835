//! One end of a test: prepared, warmed up, run, and kept open until the counters were read.

use super::datagram::Errors;
use super::schedule;
use crate::protocol::setup::{Role, Setup};
use linux::sys::cpu;
use linux::sys::socket::{self, Direction};
use record::spec::TestSpec;
use record::traffic::{EndReport, Settings};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a receiver waits in the kernel before it looks whether it should stop.
pub const POLL: Duration = Duration::from_millis(20);

/// How long a stopped receiver reads what is left at most, in nanoseconds.
pub const DRAIN_NS: u64 = 1_000_000_000;

/// How long the sender of requests waits for the last replies, in nanoseconds.
pub const LINGER_NS: u64 = 200_000_000;

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

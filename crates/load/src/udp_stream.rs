//! Datagrams over UDP, one direction.
//!
//! The sender fills a batch and hands it over in one system call, at its planned times or as fast as the kernel takes
//! it; without a plan the planned time of a batch is the time it was filled. The receiver reads in batches, takes the
//! time once per batch and judges every datagram. It echoes probes, which are never counted.

use crate::datagram::{Arrivals, Burst, Errors, Form, Outgoing, Sent, Through};
use crate::end::{DRAIN_NS, End, POLL, Setup, settings_of};
use crate::intervals::Intervals;
use crate::schedule::{self, Plan, Share};
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{self, ReceiveBatch, SendBatch, Wait};
use record::spec::TestSpec;
use record::traffic::{EndReport, Settings};
use record::{Histogram, Problem, Result};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::message::{self, Flags, Message};

/// With merged datagrams a buffer has 64 KiB; more than so many do not stay in the cache.
const MERGED_BUFFERS: usize = 16;

/// When probes are sent, in milliseconds after the first.
const PROBES_MS: [u64; 5] = [0, 50, 150, 350, 750];

/// Opens the sender's socket, connected to `remote`.
pub fn connect(spec: &TestSpec, remote: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let opened = udp::bind(SocketAddr::new(any, 0), spec.send_buffer, spec.receive_buffer)
        .and_then(|socket| socket.connect(remote).map(|()| socket))
        // A device that takes nothing for a quarter of a second refuses the datagram; the sender goes on.
        .and_then(|socket| {
            socket::set_timeout(&socket, Direction::Send, Some(Duration::from_millis(250))).map(|()| socket)
        });
    opened.map_err(|error| {
        Problem::host(format!("cannot open a UDP socket to {remote}: {error}"))
            .help("check the address and the routes of the sending node")
    })
}

/// Opens the receiver's socket at `address`, or at any address when this host does not have that one (a translated
/// address); says so in the second value.
pub fn bind(spec: &TestSpec, address: IpAddr) -> Result<(UdpSocket, Option<String>)> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let open = |address| udp::bind(SocketAddr::new(address, 0), spec.send_buffer, spec.receive_buffer);
    let (socket, note) = match open(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => (
            open(any),
            Some(format!("address {address} is not one of this host's: receiving at any address")),
        ),
        other => (other, None),
    };
    let ready = socket
        .and_then(|socket| socket::set_timeout(&socket, Direction::Receive, Some(POLL)).map(|()| socket))
        .map_err(|error| Problem::host(format!("cannot open a UDP socket at {address}: {error}")))?;
    Ok((ready, note))
}

/// Sends probes until one is answered, then waits a moment for the other answers so that none arrives in the test.
pub fn probe(socket: &UdpSocket, stream: u8) -> bool {
    let flags = Flags::PROBE.with(Flags::REQUEST);
    let (mut bytes, mut reply) = ([0; message::LENGTH], [0; 2048]);
    let begun = clock::monotonic_ns();
    let (mut sent, mut answered) = (0u64, 0u64);
    for (sequence, pair) in PROBES_MS.iter().enumerate() {
        let next = PROBES_MS.get(sequence + 1).copied().unwrap_or(pair + 250);
        Message { stream, flags, sequence: sequence as u64, planned_ns: 0 }.write(&mut bytes);
        sent += u64::from(socket.send(&bytes).is_ok());
        let until = if answered > 0 { clock::monotonic_ns() } else { begun + next * 1_000_000 };
        while answered < sent && is_answered(socket, until, &mut reply) {
            answered += 1;
        }
        if answered > 0 {
            let until = clock::monotonic_ns() + 20_000_000;
            while answered < sent && is_answered(socket, until, &mut reply) {
                answered += 1;
            }
            break;
        }
        clock::sleep_until(begun + next * 1_000_000);
    }
    answered > 0
}

fn is_answered(socket: &UdpSocket, until_ns: u64, reply: &mut [u8]) -> bool {
    loop {
        let left = until_ns.saturating_sub(clock::monotonic_ns());
        if left == 0 {
            return false;
        }
        let _ = socket::set_timeout(socket, Direction::Receive, Some(Duration::from_nanos(left)));
        match socket.recv(reply) {
            Ok(length) if Message::read(&reply[..length]).is_some_and(|m| m.flags.has(Flags::PROBE)) => {
                return true;
            }
            Ok(_) => {}
            // A host that answers "port unreachable" at once must not be asked again at once.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => clock::sleep_until(clock::monotonic_ns() + 1_000_000),
        }
    }
}

/// How many buffers, and how many datagrams in each, one system call sends.
fn shape(spec: &TestSpec) -> (usize, usize) {
    let merged = spec.gso.max(1);
    ((spec.batch.max(1).div_ceil(merged)) as usize, merged as usize)
}

/// The end that sends.
pub struct Sender {
    socket: UdpSocket,
    spec: TestSpec,
    burst: Burst,
    stream: u8,
    settings: Settings,
}

impl Sender {
    /// Opens and connects the socket and makes the buffers.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let spec = &setup.spec;
        let socket = connect(spec, SocketAddr::new(setup.address, setup.port))?;
        let mut settings = settings_of(&socket, socket.local_addr(), socket.peer_addr());
        let (mut buffers, mut merged) = shape(spec);
        if spec.gso > 1
            && let Err(error) = udp::set_segment(&socket, spec.size as u16)
        {
            settings.refused.push(format!("UDP_SEGMENT: {error}"));
            (buffers, merged) = (spec.batch.max(1) as usize, 1);
        }
        settings.method = match (buffers, merged) {
            (1, 1) => "sendmmsg ×1".to_owned(),
            (_, 1) => format!("sendmmsg ×{buffers}"),
            (1, _) => format!("sendmsg + UDP_SEGMENT {merged}"),
            _ => format!("sendmmsg ×{buffers} + UDP_SEGMENT {merged}"),
        };
        let form =
            Form { stream: setup.token, flags: Flags::DATA, size: spec.size as usize, merged, buffers };
        let burst = Burst::new(&socket, form);
        Ok(Box::new(Sender { socket, spec: spec.clone(), burst, stream: setup.token, settings }))
    }
}

/// Sends by plan: what is due leaves at once, at most one burst at a time. `left` is told of every burst: its numbers
/// and when it was due to leave the hands of the sender.
pub fn send_planned(
    out: &mut impl Outgoing,
    plan: &Plan,
    stop: &AtomicBool,
    mut left: impl FnMut(std::ops::Range<u64>, u64),
) -> (Sent, Histogram) {
    let (mut sent, mut lateness) = (Sent::default(), Histogram::new());
    let mut next = 0;
    while next < plan.total() {
        let Some(now) = schedule::wait_until(plan.planned(next), stop) else { break };
        if plan.is_over(now) {
            break;
        }
        let until = plan.due(now).clamp(next + 1, next + out.capacity());
        left(next..until, now);
        out.send(next..until, |number| plan.planned(number), &mut sent);
        for number in next..sent.attempted {
            lateness.record(now - plan.planned(number).min(now));
        }
        sent.begun_ns = if sent.begun_ns == 0 { now } else { sent.begun_ns };
        sent.ended_ns = now;
        next = sent.attempted;
    }
    (sent, lateness)
}

/// Sends as fast as the kernel takes it.
pub fn send_freely(
    out: &mut impl Outgoing,
    spec: &TestSpec,
    stop: &AtomicBool,
    over: &mut Intervals,
) -> Sent {
    let mut sent = Sent { begun_ns: clock::monotonic_ns(), ..Sent::default() };
    let end = schedule::deadline_of(spec, sent.begun_ns);
    let total = spec.count.unwrap_or(u64::MAX);
    let mut next = 0;
    let mut now = sent.begun_ns;
    while next < total && now < end && !stop.load(Relaxed) {
        let until = next + out.capacity().min(total - next);
        let before = (sent.sent, sent.bytes);
        out.send(next..until, |_| now, &mut sent);
        over.add(now, sent.sent - before.0, sent.bytes - before.1);
        next = sent.attempted;
        sent.ended_ns = now;
        now = clock::monotonic_ns();
    }
    sent
}

impl End for Sender {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.socket.local_addr().map(|address| address.port()).into_iter().collect()
    }

    fn warm_up(&mut self) -> bool {
        let plain = self.spec.gso <= 1 || udp::set_segment(&self.socket, 0).is_ok();
        let reachable = plain && probe(&self.socket, self.stream);
        if self.spec.gso > 1 && self.burst.capacity() > 1 {
            let _ = udp::set_segment(&self.socket, self.spec.size as u16);
        }
        reachable
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let mut out = Through { carrier: &self.socket, burst: &mut self.burst };
        let mut report = send(&mut out, &self.spec, stop);
        report.socket_drops = socket::drops(&self.socket).ok();
        report
    }
}

/// Sends a whole test one way, by its plan or as fast as the way out takes it, and reports the sending half.
pub fn send(out: &mut impl Outgoing, spec: &TestSpec, stop: &AtomicBool) -> EndReport {
    let mut report = EndReport::default();
    let mut over = Intervals::for_duration(spec.duration_ms);
    clock::precise_timers();
    let cpu = clock::thread_cpu_ns();
    let sent = match Plan::of(spec, clock::monotonic_ns(), spec.size, Share::ALL) {
        Some(plan) => {
            let size = u64::from(spec.size);
            let (sent, lateness) = send_planned(out, &plan, stop, |numbers, now| {
                let many = numbers.end - numbers.start;
                over.add(now, many, many * size);
            });
            let schedule = plan.outcome(sent.attempted, sent.begun_ns, sent.ended_ns, &lateness);
            report.notes.extend(schedule::lateness_note(schedule.lateness.as_ref()));
            report.schedule = Some(schedule);
            sent
        }
        None => {
            let sent = send_freely(out, spec, stop, &mut over);
            report.schedule = Some(schedule::without_plan(sent.attempted, sent.begun_ns, sent.ended_ns));
            sent
        }
    };
    sent.report(&mut report);
    report.intervals = over.finish();
    report.thread_cpu_ns = clock::thread_cpu_ns() - cpu;
    report
}

/// The end that receives.
pub struct Receiver {
    socket: UdpSocket,
    setup: Setup,
    batch: ReceiveBatch,
    settings: Settings,
}

impl Receiver {
    /// Opens the socket and makes the buffers.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let spec = &setup.spec;
        let (socket, note) = bind(spec, setup.address)?;
        let mut settings = settings_of(&socket, socket.local_addr(), Err(io::ErrorKind::NotConnected.into()));
        settings.refused.extend(note);
        let mut buffers = spec.batch.max(1) as usize;
        // One byte more than a datagram has shows one that is too long.
        let mut capacity = spec.size as usize + 1;
        settings.method = format!("recvmmsg ×{buffers}");
        if spec.gro {
            match udp::set_merge(&socket) {
                Ok(()) => {
                    (buffers, capacity) = (buffers.min(MERGED_BUFFERS), 65_535);
                    settings.method = format!("recvmmsg ×{buffers} + UDP_GRO");
                }
                Err(error) => settings.refused.push(format!("UDP_GRO: {error}")),
            }
        }
        let batch = ReceiveBatch::new(buffers, capacity);
        Ok(Box::new(Receiver { socket, setup: setup.clone(), batch, settings }))
    }
}

/// Reads until stopped, then what is left in the socket; `each` sees every batch with the time it was read at. Returns
/// how many messages of the batch were left when the stop came, and the errors met while reading.
pub fn read_until_stopped(
    socket: &UdpSocket,
    batch: &mut ReceiveBatch,
    stop: &AtomicBool,
    mut each: impl FnMut(&ReceiveBatch, usize, u64, bool),
) -> Errors {
    let mut errors = Errors::default();
    while !stop.load(Relaxed) {
        match batch.receive(socket, Wait::ForOne) {
            Ok(many) => each(batch, many, clock::monotonic_ns(), false),
            Err(error) => note_error(&error, &mut errors),
        }
    }
    let until = clock::monotonic_ns() + DRAIN_NS;
    while let Ok(many) = batch.receive(socket, Wait::No) {
        let now = clock::monotonic_ns();
        each(batch, many, now, true);
        if now > until {
            break;
        }
    }
    errors
}

/// Counts an error of a receive call, except a time-out and a signal; waits a little so that an error that stays does
/// not take the CPU.
pub fn note_error(error: &io::Error, errors: &mut Errors) {
    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
        errors.add(error, 1);
        clock::sleep_until(clock::monotonic_ns() + 1_000_000);
    }
}

/// Answers a probe in message `index`, if it is one.
pub fn answer_probe(socket: &UdpSocket, batch: &ReceiveBatch, index: usize, stream: u8) {
    let Some(mut message) = Message::read(batch.bytes(index)) else { return };
    let asks = Flags::PROBE.with(Flags::REQUEST);
    if message.stream != stream || message.flags != asks {
        return;
    }
    message.flags = Flags::PROBE.with(Flags::RESPONSE);
    let mut reply = SendBatch::new(1, message::LENGTH);
    message.write(reply.buffer(0));
    reply.answer(0, batch, index);
    let _ = reply.send(socket, 0..1);
}

impl End for Receiver {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.socket.local_addr().map(|address| address.port()).into_iter().collect()
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let Setup { spec, token, clock: offset, .. } = &self.setup;
        let intervals = Intervals::for_duration(spec.duration_ms);
        let mut arrivals =
            Arrivals::new(*token, Flags::DATA, spec.size as usize, offset.offset_ns(), intervals);
        let (mut left, socket) = (0, &self.socket);
        let errors = read_until_stopped(socket, &mut self.batch, stop, |batch, many, now, is_late| {
            arrivals.read_at(now);
            let before = arrivals.received();
            for index in 0..many {
                if batch.bytes(index).is_empty() {
                    arrivals.foreign(1);
                }
                for datagram in batch.datagrams(index) {
                    let known = arrivals.datagram(now, datagram);
                    if known.is_none() && datagram.len() == message::LENGTH {
                        answer_probe(socket, batch, index, *token);
                    }
                }
            }
            left += if is_late { arrivals.received() - before } else { 0 };
        });
        let mut report = EndReport { thread_cpu_ns: arrivals.cpu_ns(), ..EndReport::default() };
        arrivals.report(&mut report);
        report.left_in_socket = left;
        report.socket_drops = socket::drops(socket).ok();
        report.notes.extend(offset.note());
        report.notes.extend(crate::end::receive_errors_note(&errors));
        report
    }
}

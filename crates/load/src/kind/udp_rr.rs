//! One request, one response, over UDP.

use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::ask::{self, Question};
use crate::traffic::datagram::{Errors, Form};
use crate::traffic::end::{End, receive_errors_note, settings_of};
use crate::traffic::intervals::Intervals;
use crate::traffic::udp::{answer_probe, bind, connect, probe, read_until_stopped};
use linux::sys::socket;
use linux::sys::udp::{ReceiveBatch, SendBatch};
use record::Result;
use record::traffic::{EndReport, Settings};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wire::message::{self, Flags};

/// A reply that took longer counts as late; the closed loop then goes on without it.
pub const TIMEOUT: Duration = Duration::from_millis(200);

/// The end that asks.
pub struct Sender {
    socket: UdpSocket,
    question: Question,
    settings: Settings,
}

impl Sender {
    /// Opens and connects the socket.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let spec = setup.spec.clone();
        let socket = connect(&spec, SocketAddr::new(setup.address, setup.port))?;
        let mut settings = settings_of(&socket, socket.local_addr(), socket.peer_addr());
        let buffers = if spec.rate.is_some() { spec.batch.max(1) as usize } else { 1 };
        settings.method = format!("sendmmsg ×{buffers}, recvmmsg ×{buffers}");
        let form =
            Form { stream: setup.token, flags: Flags::REQUEST, size: spec.size as usize, merged: 1, buffers };
        let reply_size = spec.response_size();
        let question = Question {
            spec,
            form,
            reply_flags: Flags::RESPONSE,
            reply_size,
            timeout: TIMEOUT,
            counts_late: true,
        };
        Ok(Box::new(Sender { socket, question, settings }))
    }
}

impl End for Sender {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.socket.local_addr().map(|address| address.port()).into_iter().collect()
    }

    fn warm_up(&mut self) -> bool {
        probe(&self.socket, self.question.form.stream)
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        // Warming up used time-outs of its own.
        let _ = ask::set_timeout(&self.socket, TIMEOUT);
        ask::run(&self.socket, &self.question, stop)
    }
}

/// The end that answers.
pub struct Receiver {
    socket: UdpSocket,
    setup: Setup,
    batch: ReceiveBatch,
    replies: SendBatch,
    settings: Settings,
}

impl Receiver {
    /// Opens the socket and makes the buffers.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let spec = &setup.spec;
        let (socket, note) = bind(spec, setup.address)?;
        let mut settings = settings_of(&socket, socket.local_addr(), Err(io::ErrorKind::NotConnected.into()));
        settings.refused.extend(note);
        let buffers = if spec.rate.is_some() { spec.batch.max(1) as usize } else { 1 };
        settings.method = format!("recvmmsg ×{buffers}, sendmmsg ×{buffers}");
        let batch = ReceiveBatch::new(buffers, spec.size as usize + 1);
        let replies = SendBatch::new(buffers, spec.response_size());
        Ok(Box::new(Receiver { socket, setup: setup.clone(), batch, replies, settings }))
    }
}

/// What the answering end counts about its answers.
#[derive(Default)]
struct Answers {
    sent: u64,
    calls: u64,
    errors: Errors,
}

impl Answers {
    /// Sends the first `many` replies; what the kernel refuses is counted and left out.
    #[inline]
    fn send(&mut self, socket: &UdpSocket, replies: &mut SendBatch, many: usize) {
        let mut at = 0;
        while at < many {
            self.calls += 1;
            match replies.send(socket, at..many) {
                Ok(accepted) => {
                    self.sent += accepted as u64;
                    at += accepted;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.errors.add(&error, 1);
                    at += 1;
                }
            }
        }
    }
}

impl End for Receiver {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.socket.local_addr().map(|address| address.port()).into_iter().collect()
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let Receiver { socket, setup, batch, replies, .. } = self;
        let (spec, token) = (&setup.spec, setup.token);
        let intervals = Intervals::for_duration(spec.duration_ms);
        let offset = setup.clock.offset_ns();
        let mut requests = Arrivals::new(token, Flags::REQUEST, spec.size as usize, offset, intervals);
        let (mut answers, mut left) = (Answers::default(), 0);
        let errors = read_until_stopped(socket, batch, stop, |batch, many, now, is_late| {
            requests.read_at(now);
            let mut ready = 0;
            for index in 0..many {
                match requests.datagram(now, batch.bytes(index)) {
                    Some(known) => {
                        let mut reply = known.message;
                        reply.flags = Flags::RESPONSE;
                        reply.write(replies.buffer(ready));
                        replies.answer(ready, batch, index);
                        ready += 1;
                    }
                    None if batch.bytes(index).len() == message::LENGTH => {
                        answer_probe(socket, batch, index, token);
                    }
                    None => {}
                }
            }
            // Nobody waits any more for an answer to what was left in the socket.
            if is_late {
                left += ready as u64;
            } else {
                answers.send(socket, replies, ready);
            }
        });
        let mut report = EndReport { thread_cpu_ns: requests.cpu_ns(), ..EndReport::default() };
        requests.report(&mut report);
        report.responses = answers.sent;
        report.send_calls = answers.calls;
        report.send_errors = answers.errors.named();
        report.left_in_socket = left;
        report.socket_drops = socket::drops(&*socket).ok();
        report.notes.extend(setup.clock.note());
        report.notes.extend(receive_errors_note(&errors));
        report
    }
}

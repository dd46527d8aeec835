//! One request, one response, over UDP.

use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::ask::{self, Question};
use crate::traffic::datagram::{Errors, Form};
use crate::traffic::end::{End, Ready};
use crate::traffic::udp::{answer_probe, bind, connect, probe, read_until_stopped};
use linux::sys::socket;
use linux::sys::udp::{ReceiveBatch, SendBatch};
use record::traffic::EndReport;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wire::message::{self, Flags};

/// A reply that took longer counts as late; the closed loop then goes on without it.
pub const TIMEOUT: Duration = Duration::from_millis(200);

/// The end that asks.
struct Sender {
    socket: UdpSocket,
    question: Question,
}

/// Opens and connects the sender's socket.
pub fn sender(setup: &Setup) -> Ready {
    let spec = setup.spec.clone();
    let (socket, mut prepared) = connect(setup)?;
    let buffers = ask::buffers(&spec);
    prepared.settings.method = format!("sendmmsg ×{buffers}, recvmmsg ×{buffers}");
    let (stream, size) = (setup.token, spec.size as usize);
    let question = Question {
        form: Form { stream, flags: Flags::REQUEST, size, merged: 1, buffers },
        reply_flags: Flags::RESPONSE,
        reply_size: spec.response_size(),
        timeout: TIMEOUT,
        counts_late: true,
        spec,
    };
    Ok((prepared, Box::new(Sender { socket, question })))
}

impl End for Sender {
    fn warm_up(&mut self) -> bool {
        probe(&self.socket, self.question.form.stream)
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        ask::run(&self.socket, &self.question, stop)
    }
}

/// The end that answers.
struct Receiver {
    socket: UdpSocket,
    setup: Setup,
    batch: ReceiveBatch,
    replies: SendBatch,
}

/// Opens the receiver's socket and makes the buffers.
pub fn receiver(setup: &Setup) -> Ready {
    let spec = &setup.spec;
    let (socket, mut prepared) = bind(setup)?;
    let buffers = ask::buffers(spec);
    prepared.settings.method = format!("recvmmsg ×{buffers}, sendmmsg ×{buffers}");
    let batch = ReceiveBatch::new(buffers, spec.size as usize + 1);
    let replies = SendBatch::new(buffers, spec.response_size());
    Ok((prepared, Box::new(Receiver { socket, setup: setup.clone(), batch, replies })))
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
    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let Receiver { socket, setup, batch, replies } = self;
        let (socket, token) = (&*socket, setup.token);
        let mut requests = Arrivals::of(setup, Flags::REQUEST, setup.spec.size as usize);
        let mut answers = Answers::default();
        read_until_stopped(socket, batch, &mut requests, stop, |requests, batch, many, now| {
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
            if !requests.received.is_late {
                answers.send(socket, replies, ready);
            }
        });
        EndReport {
            responses: answers.sent,
            send_calls: answers.calls,
            send_errors: answers.errors.named(),
            socket_drops: socket::drops(socket).ok(),
            ..requests.into_report()
        }
    }
}

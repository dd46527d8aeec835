//! One request, one response, over UDP.

use crate::protocol::setup::Setup;
use crate::traffic::ask::{self, Asker};
use crate::traffic::datagram::{Form, push};
use crate::traffic::end::Ready;
use crate::traffic::udp::{answer_probe, bind, connect, reader};
use linux::sys::udp::{ReceiveBatch, SendBatch};
use std::os::fd::AsFd;
use std::time::Duration;
use wire::message::{self, Flags};

/// A reply that took longer counts as late; the closed loop then goes on without it.
pub const TIMEOUT: Duration = Duration::from_millis(200);

/// Opens and connects the sender's socket.
pub fn sender(setup: &Setup) -> Ready {
    let spec = setup.spec.clone();
    let (carrier, mut prepared) = connect(setup)?;
    let buffers = ask::buffers(&spec);
    prepared.settings.method = format!("sendmmsg ×{buffers}, recvmmsg ×{buffers}");
    let (stream, size) = (setup.token, spec.size as usize);
    let asker = Asker {
        carrier,
        form: Form { stream, flags: Flags::REQUEST, size, merged: 1, buffers },
        reply_flags: Flags::RESPONSE,
        reply_size: spec.response_size(),
        timeout: TIMEOUT,
        counts_late: true,
        spec,
    };
    Ok((prepared, Box::new(asker)))
}

/// Opens the receiver's socket and makes the buffers.
pub fn receiver(setup: &Setup) -> Ready {
    let spec = &setup.spec;
    let (socket, mut prepared) = bind(setup)?;
    let buffers = ask::buffers(spec);
    prepared.settings.method = format!("recvmmsg ×{buffers}, sendmmsg ×{buffers}");
    // One byte more than a request has shows one that is too long.
    let batch = ReceiveBatch::new(buffers, spec.size as usize + 1);
    let (stream, size) = (setup.token, spec.response_size());
    let form = Form { stream, flags: Flags::RESPONSE, size, merged: 1, buffers };
    let mut replies = SendBatch::new(buffers, size);
    let end = reader(socket, setup, Flags::REQUEST, batch, move |requests, socket, batch, many, now| {
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
                    answer_probe(socket, batch, index, stream);
                }
                None => {}
            }
        }
        // Nobody waits any more for an answer to what was left in the socket.
        if !requests.received.is_late {
            push(&mut replies, socket.as_fd(), ready as u64, &form, &mut requests.received.answers);
        }
    });
    Ok((prepared, end))
}

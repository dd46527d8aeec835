//! One connection of a switch: its socket, its channel, and what waits between them.
//!
//! **What.** [`Connection`] writes what the channel has for the peer, hands out the peer's messages one by one, and knows when to stop: while
//! too much waits to be read by the peer that asked for it ([`Backlog`]), when others are to have their turn, and when nothing can be written any more.
//!
//! **Why.** A write that fails does not mean that nothing is left to read. Linux keeps what had come before a reset or a hang-up, and gives it
//! to a reader that continues (`tcp_recvmsg_locked` and `unix_stream_read_generic` look at the queue before the error). So a broken connection is
//! heard to its end: a controller that sends its rules and goes, without reading what is said about them, has sent them.
//!
//! **Price.** Until then its answers are made and thrown away.

use crate::backlog::Backlog;
use crate::stream::Stream;
use flow::openflow::channel::{Channel, Event};
use linux::sys::notice::Ready;
use record::problem::system_words;
use std::io::{ErrorKind, Write};

/// Bytes of answers that are made before what waits is written and the other connections have their turn.
const TURN: usize = 1 << 20;
/// Bytes that may wait for a connection before it gets no more packet-ins.
const PACKET_IN_ROOM: usize = 128 << 10;

/// One connection, called or taken.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) channel: Channel,
    /// The other end, for people.
    pub(crate) name: String,
    /// When both ends agreed on a version.
    pub(crate) up_ns: Option<u64>,
    /// Which of the controllers that we call.
    pub(crate) caller: Option<usize>,
    /// At which of our listeners it called.
    pub(crate) listener: Option<usize>,
    /// Why nothing can be written any more.
    pub(crate) broken: Option<String>,
    /// Packet-ins that it did not get because it had not read those before.
    pub(crate) missed: u64,
    /// Bytes of the channel's output that were written already.
    written: usize,
    backlog: Backlog,
    /// Bytes that the last write left.
    left: usize,
    /// Messages wait in the channel, and bytes in the socket, until what was answered has been written.
    is_held: bool,
}

impl Connection {
    /// One that was just made.
    pub(crate) fn new(stream: Stream, channel: Channel, name: String) -> Connection {
        let (backlog, broken) = (Backlog::default(), None);
        Connection {
            stream,
            channel,
            name,
            up_ns: None,
            caller: None,
            listener: None,
            broken,
            missed: 0,
            written: 0,
            backlog,
            left: 0,
            is_held: false,
        }
    }

    /// Bytes that wait to be written.
    fn waiting(&self) -> usize {
        self.channel.output_len() - self.written
    }

    /// Whether another packet-in may be queued. Little enough may wait that an answer queued after it is not late.
    pub(crate) fn has_room(&self) -> bool {
        self.broken.is_none() && self.waiting() < PACKET_IN_ROOM
    }

    /// Whether no message is to be answered now: too much waits for who sent it, or as much as one turn may make.
    fn is_sated(&self) -> bool {
        Backlog::is_full(self.waiting()) || self.waiting() > self.left + TURN
    }

    /// Whether its messages wait until it has read more, or until its next turn.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// What poll is to look for.
    pub(crate) fn wish(&self) -> Ready {
        let writes = self.broken.is_none() && (self.waiting() > 0 || self.stream.wants_write());
        Ready { read: !self.is_held, write: writes }
    }

    /// Whether there is something to do without a word of poll.
    pub(crate) fn goes_on(&self) -> bool {
        if self.is_held { !self.is_sated() } else { self.stream.holds() }
    }

    /// The next message to carry out, unless too much was answered already.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.is_held = self.is_sated();
        if self.is_held { None } else { self.channel.next_event() }
    }

    /// The answer to its last message is in the channel.
    pub(crate) fn answered(&mut self) {
        let waiting = self.waiting();
        self.backlog.answered(waiting);
    }

    /// Writes what the socket takes; why the connection is to be ended, if it is.
    pub(crate) fn write(&mut self, now: u64) -> Option<String> {
        if self.broken.is_some() {
            self.channel.output().clear();
            (self.written, self.left) = (0, 0);
            return None;
        }
        let before = self.written;
        self.broken = self.write_some().err().map(|e| system_words(&e));
        let count = self.written - before;
        let output = self.channel.output();
        // The rest moves to the front only when as much was written: a long answer is not moved for every piece of it.
        if self.written * 2 >= output.len() {
            output.drain(..self.written);
            self.written = 0;
        }
        let waiting = self.waiting();
        self.left = waiting;
        if count > 0 && waiting > 0 {
            // There was no room, and now there is.
            self.channel.reads(now);
        }
        let too_much = self.backlog.wrote(now, count, waiting);
        if self.broken.is_some() { None } else { too_much }
    }

    fn write_some(&mut self) -> std::io::Result<()> {
        let output = self.channel.output();
        while self.written < output.len() {
            match self.stream.write(&output[self.written..]) {
                Ok(0) => break,
                Ok(count) => self.written += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        if self.stream.wants_write() { self.stream.flush() } else { Ok(()) }
    }

    /// Tries once to write what is to be said last (the reason of a refusal).
    pub(crate) fn say_last(&mut self) {
        let last = std::mem::take(self.channel.output());
        let _ = self.stream.write(&last[self.written..]);
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::openflow::bytes::{Bytes, Version};
    use flow::openflow::channel::{ChannelConfig, Side};
    use flow::openflow::message::{Body, Message};
    use flow::openflow::misc::{Echo, Empty, Hello};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_one_turn_answers_is_written_before_more_is_answered() {
        let (ours, _peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let channel = Channel::new(Side::Switch, ChannelConfig::default(), 0);
        let mut connection = Connection::new(Box::new(ours), channel, "peer".into());
        let bytes = |xid, body| Message { version: Version::V13, xid, body }.encode().unwrap();
        let mut questions = bytes(1, Body::Hello(Hello::with(&[Version::V13.number()])));
        (2..6).for_each(|xid| questions.extend(bytes(xid, Body::BarrierRequest(Empty {}))));
        connection.channel.input(0, &questions);
        assert!(matches!(connection.next_event(), Some(Event::Up { .. })));
        for turn in 0..4usize {
            assert!(matches!(connection.next_event(), Some(Event::Message(_))), "{turn}");
            // An answer of a MiB, and one byte.
            let long = Body::EchoReply(Echo { data: Bytes(vec![0; 32 << 10]) });
            (0..33).for_each(|xid| {
                connection.channel.send(&Message { version: Version::V13, xid, body: long.clone() }).unwrap();
            });
            assert!(connection.next_event().is_none() && connection.is_held() && !connection.goes_on());
            assert_eq!(connection.write(0), None);
            // The peer reads nothing, and far less waits than may.
            assert!(connection.goes_on() && connection.waiting() > turn * TURN);
        }
        assert!(connection.next_event().is_none() && !connection.is_held());
    }
}

//! What the programs know of a connection, whose messages say nothing of themselves: a message is told by where its bytes lie.
//!
//! **Where the bytes begin** is told by the connection itself, whenever its application takes some: the next number that it expects, and the bytes that it
//! has got. From both, the place of any segment's bytes among the messages ([`Place`]).
//!
//! **Exchanges** (requests and responses). A segment belongs to a message if it begins with it; the rest of a message that is longer has no stamps. The last stamp
//! is the return of the call that took its last byte.
//!
//! **Streams.** A message is what the application writes at once, and a stamp that of the frame that has its first byte, one frame perhaps for many messages. It is
//! known which call wrote that byte when the call returns (`sock_send_length`, Linux 6.3), long before or after the frame left; and when the receiver
//! copied it (`tcp_rcv_space_adjust`).
//!
//! **Price.** A look-up for each segment, and for those of a stream one comparison for each message that begins in it.

use super::*;

/// Requests and responses.
pub const DIRECTIONS: u32 = 2;
/// What the two directions of an exchange are called in the map of places. Not by their ports: that of the sender may be translated on the way.
pub(super) const REQUESTS: i32 = 0;
pub(super) const RESPONSES: i32 = 1;
/// What each direction of a connection begins with, before its messages: a greeting, which is the header of one (`load`, `traffic/tcp.rs`).
const GREETING: i32 = wire::message::LENGTH as i32;
/// Messages that begin in one frame, in one call, or in what an application copies at once, and are looked at: all of 64 KiB of messages of 64 bytes.
pub const MOST_BEGUN: i32 = 1024;

/// The three 64-bit words of a direction, or of a connection.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// The place among the messages of the byte that is expected next.
    Expected,
    /// What to add to a sequence number to have the place of its byte, of both only the low 32 bits: the same all the time.
    Base,
    /// The place of the first byte that the application has not taken.
    Taken,
}

impl Place {
    /// Bytes of the value.
    pub const BYTES: u32 = 24;

    fn offset(self) -> i16 {
        self as i16 * 8
    }
}

// On the stack, below what frames are copied to: a place, where the application was before, and which messages begin.
const PLACE: i16 = SEGMENT - 72;
const BEFORE: i16 = PLACE - 8;
const FIRST: i16 = BEFORE - 8;
const END: i16 = FIRST - 8;

impl Builder<'_> {
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.choice.numbering, Numbering::OfStream(_))
    }

    /// What an application has of a connection, which the event has: where its bytes begin, and the messages that it now has.
    pub(super) fn consume(&mut self) {
        self.only_ours();
        self.a.load(B8, R8, R6, 0);
        match self.choice.numbering {
            Numbering::InHeader(_) => {}
            Numbering::ByPosition(exchange) => {
                self.of_socket(exchange);
                self.note_places();
                self.took_message();
            }
            Numbering::OfStream(writes) => {
                self.of_receiver(writes);
                self.note_places();
                self.a.load(B8, R2, R10, BEFORE);
                self.a.load(B8, R1, R10, PLACE + Place::Taken.offset());
                self.begun(writes);
                self.note_time();
                self.show_chosen();
            }
        }
    }

    /// The message that the application now has all of, to the takes of its thread.
    fn took_message(&mut self) {
        self.a.load(B8, R2, R10, PLACE + Place::Taken.offset());
        self.number();
        // The number that the position has is the next one's. The first message tells where they begin, and has no stamps.
        self.a.op(Op::Subtract, R2, 1);
        self.a.jump_if(R2, When::SignedAtMost, 0, self.out);
        self.choose_number(self.out);
        self.a.load(B8, R1, R10, STAMP + AT_SEQUENCE);
        self.a.op(Op::Add, R1, 1);
        self.a.store(B8, R10, VALUE, R1);
        self.a.load(B4, R1, R10, STAMP + AT_IDS);
        self.a.store(B8, R10, KEY, R1);
        self.put(self.maps.takes);
    }

    /// A call has sent so many bytes: which messages these begin, with the begin of the call.
    pub(super) fn sent(&mut self) {
        let Numbering::OfStream(writes) = self.choice.numbering else { return };
        self.only_ours();
        self.look_up(self.maps.calls, self.out);
        self.a.load(B8, R1, R0, 0);
        self.a.store(B8, R10, STAMP + AT_TIME, R1);
        self.a.load(B8, R8, R6, 0);
        self.port_is("__sk_common.skc_dport", writes.port);
        self.a.store_imm(B8, R10, KEY, 0);
        if writes.connections > 1 {
            self.common(VALUE, "__sk_common.skc_num");
            self.a.load(B2, R1, R10, VALUE);
            self.a.store(B8, R10, KEY, R1);
        }
        // An error is a number below 0, of 32 bits.
        self.a.load(B8, R9, R6, 8);
        self.a.op(Op::ShiftLeft, R9, 32);
        self.a.op(Op::SignedShiftRight, R9, 32);
        self.a.jump_if(R9, When::SignedAtMost, 0, self.out);
        self.member(VALUE, 4, "write_seq");
        self.place();
        self.a.op_reg(Op::Move, R1, R2);
        self.a.op_reg(Op::Subtract, R2, R9);
        self.begun(writes);
        self.show_chosen();
    }

    /// Goes on if the socket at `R8` is an end of the test's connection: what it gets is then in the key, and the size of that in the scratch place.
    fn of_socket(&mut self, exchange: Exchange) {
        let (receiver, sized) = (self.a.label(), self.a.label());
        self.common(VALUE, "__sk_common.skc_num");
        self.a.load(B2, R1, R10, VALUE);
        self.a.jump_if(R1, When::Equal, exchange.port.into(), receiver);
        self.port_is("__sk_common.skc_dport", exchange.port);
        self.direction(RESPONSES, exchange.response);
        self.a.jump(sized);
        self.a.place(receiver);
        self.direction(REQUESTS, exchange.request);
        self.a.place(sized);
    }

    /// Goes on if the socket at `R8` is the receiver's of a connection of the test, which is then in the key.
    fn of_receiver(&mut self, writes: Writes) {
        self.common(VALUE, "__sk_common.skc_num");
        self.expect(B2, VALUE, writes.port.into(), self.out);
        self.a.store_imm(B8, R10, KEY, 0);
        if writes.connections > 1 {
            self.common(VALUE, "__sk_common.skc_dport");
            self.a.load(B2, R1, R10, VALUE);
            self.a.from_big_endian(R1, B2);
            self.a.store(B8, R10, KEY, R1);
        }
    }

    /// Goes on if that member of the socket at `R8` is the port, as the network has it.
    fn port_is(&mut self, member: &'static str, port: u16) {
        self.common(VALUE, member);
        self.expect(B2, VALUE, u16::from_ne_bytes(port.to_be_bytes()).into(), self.out);
    }

    fn direction(&mut self, direction: i32, bytes: u32) {
        self.a.store_imm(B8, R10, KEY, direction);
        self.a.store_imm(B8, R10, SCRATCH, bytes as i32);
    }

    /// Copies a port of the socket at `R8` to the stack.
    fn common(&mut self, to: i16, path: &'static str) {
        self.a.op_reg(Op::Move, R3, R8);
        self.read(to, 2, self.layout.at("sock", path), self.out);
    }

    /// Copies a member of the connection at `R8` to the stack.
    fn member(&mut self, to: i16, bytes: u32, path: &'static str) {
        self.a.op_reg(Op::Move, R3, R8);
        self.read(to, bytes, self.layout.at("tcp_sock", path), self.out);
    }

    /// Puts where the bytes of the connection at `R8` are under the key, and leaves it on the stack, with where the application was before.
    fn note_places(&mut self) {
        self.member(VALUE, 4, "rcv_nxt");
        self.a.load(B4, R9, R10, VALUE);
        self.member(VALUE, 4, "copied_seq");
        self.a.load(B4, R1, R10, VALUE);
        // Bytes that are not taken yet, by numbers of 32 bits, which begin anew.
        self.a.op_reg(Op::Move, R2, R9);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.op(Op::ShiftLeft, R2, 32);
        self.a.op(Op::ShiftRight, R2, 32);
        self.a.store(B8, R10, MESSAGE, R2);
        self.member(VALUE, 8, "bytes_received");
        self.a.load(B8, R1, R10, VALUE);
        self.a.op(Op::Subtract, R1, GREETING);
        self.a.store(B8, R10, PLACE + Place::Expected.offset(), R1);
        self.a.op_reg(Op::Move, R2, R1);
        self.a.op_reg(Op::Subtract, R1, R9);
        self.a.store(B8, R10, PLACE + Place::Base.offset(), R1);
        self.a.load(B8, R1, R10, MESSAGE);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.store(B8, R10, PLACE + Place::Taken.offset(), R2);
        self.put_places();
    }

    fn put_places(&mut self) {
        let (new, done) = (self.a.label(), self.a.label());
        self.look_up(self.maps.places, new);
        self.a.load(B8, R1, R0, Place::Taken.offset());
        self.a.store(B8, R10, BEFORE, R1);
        for word in [Place::Expected, Place::Base, Place::Taken] {
            self.a.load(B8, R1, R10, PLACE + word.offset());
            self.a.store(B8, R0, word.offset(), R1);
        }
        self.a.jump(done);
        self.a.place(new);
        self.a.load(B8, R1, R10, PLACE + Place::Taken.offset());
        self.a.store(B8, R10, BEFORE, R1);
        self.put_new(self.maps.places, PLACE);
        self.a.place(done);
    }

    /// From a sequence number, in the value, to the place of its byte, in `R2`; goes on if that is known. It is the one that is nearest to the byte that is expected: the numbers
    /// begin anew every 4 GiB.
    fn place(&mut self) {
        self.look_up(self.maps.places, self.out);
        self.a.load(B8, R1, R0, Place::Base.offset());
        self.a.load(B8, R3, R0, Place::Expected.offset());
        self.a.load(B4, R2, R10, VALUE);
        self.a.op_reg(Op::Add, R2, R1);
        self.a.op_reg(Op::Subtract, R2, R3);
        self.a.op(Op::ShiftLeft, R2, 32);
        self.a.op(Op::SignedShiftRight, R2, 32);
        self.a.op_reg(Op::Add, R2, R3);
    }

    /// From a place among the bytes, in `R2`, to the number of the message that begins there; goes on if one does.
    fn number(&mut self) {
        self.a.jump_if(R2, When::SignedBelow, 0, self.out);
        self.a.load(B8, R1, R10, SCRATCH);
        self.a.op_reg(Op::Move, R3, R2);
        self.a.op_reg(Op::Divide, R3, R1);
        self.a.op_reg(Op::Multiply, R1, R3);
        self.a.jump_if_reg(R1, When::NotEqual, R2, self.out);
        self.a.op_reg(Op::Move, R2, R3);
    }

    /// Goes on if a message begins among the bytes from the place in `R2` up to that in `R1`: the first such message and the one behind the last are then on the stack.
    /// The first of all has no stamps, as of an exchange.
    fn begun(&mut self, writes: Writes) {
        let not_first = self.a.label();
        self.a.jump_if(R2, When::SignedBelow, 0, self.out);
        self.a.jump_if(R1, When::SignedBelow, 0, self.out);
        for place in [R2, R1] {
            self.a.op(Op::Add, place, writes.size as i32 - 1);
            self.a.op(Op::Divide, place, writes.size as i32);
        }
        self.a.jump_if(R2, When::NotEqual, 0, not_first);
        self.a.op(Op::Move, R2, 1);
        self.a.place(not_first);
        self.a.jump_if_reg(R2, When::AtLeast, R1, self.out);
        self.a.store(B8, R10, FIRST, R2);
        self.a.store(B8, R10, END, R1);
    }

    /// Shows the stamp, of a stream once for each chosen message that begins.
    pub(super) fn show_chosen(&mut self) {
        if !self.is_stream() {
            return self.show();
        }
        let (again, next) = (self.a.label(), self.a.label());
        self.a.load(B8, R8, R10, FIRST);
        self.a.load(B8, R9, R10, END);
        self.a.op(Op::Move, R6, MOST_BEGUN);
        self.a.place(again);
        self.a.jump_if_reg(R8, When::AtLeast, R9, self.out);
        self.a.jump_if(R6, When::Equal, 0, self.out);
        self.a.op_reg(Op::Move, R2, R8);
        self.only_chosen(next);
        self.a.load(B4, R1, R10, KEY);
        self.a.op(Op::ShiftLeft, R1, 32);
        self.a.op_reg(Op::Or, R1, R8);
        self.a.store(B8, R10, STAMP + AT_SEQUENCE, R1);
        self.show();
        self.a.place(next);
        self.a.op(Op::Add, R8, 1);
        self.a.op(Op::Subtract, R6, 1);
        self.a.jump(again);
    }

    /// Goes on if the segment on the stack is one of the connection and begins with a chosen message: its number is then in the stamp.
    pub(super) fn judge_segment(&mut self, exchange: Exchange, ip: i16) {
        let (request, sized) = (self.a.label(), self.a.label());
        let port = u16::from_ne_bytes(exchange.port.to_be_bytes()).into();
        self.a.load(B2, R1, R10, SEGMENT + 2);
        self.a.jump_if(R1, When::Equal, port, request);
        self.expect(B2, SEGMENT, port, self.out);
        self.direction(RESPONSES, exchange.response);
        self.a.jump(sized);
        self.a.place(request);
        self.direction(REQUESTS, exchange.request);
        self.a.place(sized);
        self.with_data(ip);
        self.place_of_segment();
        self.number();
        self.a.jump_if(R2, When::Equal, 0, self.out);
        self.choose_number(self.out);
    }

    /// Goes on if messages begin in the segment on the stack, and it is one of the test's connections, which is then in the key.
    pub(super) fn judge_writes(&mut self, writes: Writes, ip: i16) {
        let port = u16::from_ne_bytes(writes.port.to_be_bytes()).into();
        self.expect(B2, SEGMENT + 2, port, self.out);
        self.a.store_imm(B8, R10, KEY, 0);
        if writes.connections > 1 {
            self.a.load(B2, R1, R10, SEGMENT);
            self.a.from_big_endian(R1, B2);
            self.a.store(B8, R10, KEY, R1);
        }
        self.with_data(ip);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.store(B8, R10, SCRATCH, R2);
        self.place_of_segment();
        self.a.load(B8, R1, R10, SCRATCH);
        self.a.op_reg(Op::Add, R1, R2);
        self.begun(writes);
    }

    /// Goes on if the segment on the stack has data: `R2` has the bytes behind the IP header, and `R1` those of the TCP header, which are the high four bits times four.
    fn with_data(&mut self, ip: i16) {
        let (length, own) = if self.choice.family == 6 { (4, 0) } else { (2, 20) };
        self.a.load(B2, R2, R10, ip + length);
        self.a.from_big_endian(R2, B2);
        self.a.op(Op::Subtract, R2, own);
        self.a.load(B1, R1, R10, SEGMENT + 12);
        self.a.op(Op::ShiftRight, R1, 4);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.a.jump_if_reg(R2, When::SignedAtMost, R1, self.out);
    }

    /// The place of the first byte of the segment on the stack, as [`Builder::place`].
    fn place_of_segment(&mut self) {
        self.a.load(B4, R1, R10, SEGMENT + 4);
        self.a.from_big_endian(R1, B4);
        self.a.store(B4, R10, VALUE, R1);
        self.place();
    }
}

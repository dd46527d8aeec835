//! The programs that run at the kernel's events of interrupts, polls and buffers, and count those of one interface.
//!
//! **What.** One program for each [`Tracepoint`], assembled for one interface of one namespace. All share a [`Cell`] of each CPU, where a
//! poll finds when it began and what was received meanwhile, a [`Slot`] of each CPU for each NAPI instance, and one array of
//! buckets ([`record::buckets`]) for all distributions.
//!
//! **When a poll began.** The kernel's event comes when a poll has ended. Polls of one soft interrupt follow each other, so a poll
//! began when the one before it ended, or when the soft interrupt began. A poll outside of NET_RX (a thread's, or of a socket that
//! busy-polls) has no known begin and is counted without a time.
//!
//! **Two programs on one CPU.** An interrupt comes in the middle of another program. No word is written by both: each takes the
//! difference to what it saw last instead of setting the other's count back.
//!
//! **Price.** 60 to 200 instructions for each event of the interface; of other interfaces those up to the comparison. What a run
//! costs is measured by the kernel and is part of the report.

use ::bpf::{AssembleError, Assembler, Label, Op, Reg, Reg::*, When, Width::*};
use record::buckets::BUCKETS;

use super::super::tracepoints::{self, Counting};
use super::layout::{
    BLOCK_ROOM, Cell, Layout, Measure, SLOT_BACKLOG, SLOT_OTHER, SLOT_TRANSMIT, Slot, Tracepoint,
};

/// The maps as the programs name them.
#[derive(Debug, Clone, Copy)]
pub struct MapFds {
    /// One [`Cell`].
    pub cell: i32,
    /// A [`Slot`] by number.
    pub slots: i32,
    /// Buckets: those of the first distribution, then those of the second.
    pub buckets: i32,
    /// Slot numbers by NAPI id.
    pub napis: i32,
    /// Slot numbers by interrupt.
    pub irqs: i32,
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The interface's number.
    pub interface: u32,
    /// The number of its namespace.
    pub namespace: u32,
    /// `net.core.netdev_budget`: frames that end a NET_RX.
    pub budget: i32,
    /// Where they are counted.
    pub maps: MapFds,
}

// Soft interrupts by number (include/linux/interrupt.h).
const NET_TX: i32 = 2;
const NET_RX: i32 = 3;
/// `NETDEV_TX_BUSY`
const TX_BUSY: i32 = 0x10;
/// A header whose place is not set.
const UNSET: i32 = 0xffff;

// Places on the stack, as distances from the frame pointer.
const KEY: i16 = -4;
const NUMBER: i16 = -8;
const SCRATCH: i16 = -16;
const WORK: i16 = -24;
const NAPI: i16 = -32;
const BLOCK: i16 = NAPI - BLOCK_ROOM as i16;

struct Builder<'a> {
    a: Assembler,
    layout: &'a Layout,
    target: &'a Target,
    out: Label,
}

/// Assembles the program of an event. `R6` is the context, `R7` the cell, `R8` the slot, `R9` the time.
pub fn assemble(event: Tracepoint, layout: &Layout, target: &Target) -> Result<Vec<u64>, AssembleError> {
    let mut a = Assembler::new();
    let out = a.label();
    let mut builder = Builder { a, layout, target, out };
    builder.begin(event);
    match event {
        Tracepoint::Poll => builder.poll(),
        Tracepoint::SoftirqEntry => builder.softirq_entry(),
        Tracepoint::SoftirqExit => builder.softirq_exit(),
        Tracepoint::IrqEntry => builder.irq_entry(),
        Tracepoint::IrqExit => builder.irq_exit(),
        Tracepoint::Receive => builder.receive(),
        Tracepoint::StartXmit => builder.start_xmit(),
        Tracepoint::Xmit => builder.xmit(),
        Tracepoint::Consume => builder.consume(),
    }
    builder.a.place(out);
    builder.a.op(Op::Move, R0, 0);
    builder.a.exit();
    builder.a.finish()
}

impl Counting for Builder<'_> {
    fn assembler(&mut self) -> &mut Assembler {
        &mut self.a
    }
}

impl Builder<'_> {
    /// Finds the cell and counts that the program ran, whatever the event: what the event counted beyond that was not shown to it.
    fn begin(&mut self, event: Tracepoint) {
        self.a.op_reg(Op::Move, R6, R1);
        self.a.store_imm(B4, R10, KEY, 0);
        self.look_up(self.target.maps.cell, KEY, self.out);
        self.a.op_reg(Op::Move, R7, R0);
        let number = Tracepoint::ALL.iter().position(|&one| one == event).unwrap_or(0);
        self.bump(R7, Cell::Runs0.offset() + number as i16 * 8, 1);
    }

    /// Adds a number to a word; uses `R1`.
    fn bump(&mut self, base: Reg, offset: i16, by: i32) {
        self.a.load(B8, R1, base, offset);
        self.a.op(Op::Add, R1, by);
        self.a.store(B8, base, offset, R1);
    }

    /// Goes on if the device at `R3` is the interface, else jumps; the device is kept at `WORK` meanwhile.
    fn only_ours(&mut self, other: Label) {
        self.a.store(B8, R10, WORK, R3);
        self.read(SCRATCH, 4, self.layout.ifindex, other);
        self.a.load(B4, R1, R10, SCRATCH);
        self.a.jump_if_u32(R1, When::NotEqual, self.target.interface, other);
        self.a.load(B8, R3, R10, WORK);
        self.read(SCRATCH, 8, self.layout.net, other);
        self.a.load(B8, R3, R10, SCRATCH);
        self.read(SCRATCH, 4, self.layout.inum, other);
        self.a.load(B4, R1, R10, SCRATCH);
        self.a.jump_if_u32(R1, When::NotEqual, self.target.namespace, other);
    }

    /// Counts the value in `R2` in a distribution.
    fn record(&mut self, measure: Measure) {
        let number = Measure::ALL.iter().position(|&one| one == measure).unwrap_or(0);
        self.add(R7, Cell::Sum0.offset() + number as i16 * 8, R2);
        self.bump(R7, Cell::Count0.offset() + number as i16 * 8, 1);
        tracepoints::bucket(&mut self.a);
        self.a.op(Op::Add, R2, (number * BUCKETS) as i32);
        self.a.store(B4, R10, KEY, R2);
        let counted = self.a.label();
        self.look_up(self.target.maps.buckets, KEY, counted);
        self.bump(R0, 0, 1);
        self.a.place(counted);
    }

    /// The place of the slot whose number is at `NUMBER`, to `R8`.
    fn slot(&mut self) {
        self.look_up(self.target.maps.slots, NUMBER, self.out);
        self.a.op_reg(Op::Move, R8, R0);
    }

    fn poll(&mut self) {
        let (backlog, mark) = (self.a.label(), self.a.label());
        self.now();
        self.add_work();
        self.a.load(B8, R3, R6, 0);
        self.read(NAPI, 8, self.layout.napi_dev, mark);
        self.a.load(B8, R3, R10, NAPI);
        self.a.jump_if(R3, When::Equal, 0, backlog);
        self.only_ours(mark);
        self.find_napi(mark);
        self.a.load(B8, R2, R6, 8);
        self.a.store(B8, R10, WORK, R2);
        self.count_poll(WORK);
        self.count_freed();
        self.answer();
        self.a.jump(mark);

        self.a.place(backlog);
        self.backlog(mark);

        self.a.place(mark);
        self.mark();
    }

    /// What all polls of a NET_RX took decides when it ends.
    fn add_work(&mut self) {
        let outside = self.a.label();
        self.a.load(B8, R1, R7, Cell::Entry.offset());
        self.a.jump_if(R1, When::Equal, 0, outside);
        self.a.load(B8, R2, R6, 8);
        self.add(R7, Cell::Work.offset(), R2);
        self.a.place(outside);
    }

    /// The slot of the NAPI instance, to `R8` and its number to `NUMBER`.
    fn find_napi(&mut self, unreadable: Label) {
        let (unknown, transmit, found) = (self.a.label(), self.a.label(), self.a.label());
        self.a.load(B8, R3, R6, 0);
        self.read(SCRATCH, 4, self.layout.napi_id, unreadable);
        self.a.load(B4, R1, R10, SCRATCH);
        self.a.jump_if(R1, When::Equal, 0, transmit);
        self.look_up(self.target.maps.napis, SCRATCH, unknown);
        self.a.load(B4, R1, R0, 0);
        self.a.store(B4, R10, NUMBER, R1);
        self.a.jump(found);
        self.a.place(unknown);
        self.a.store_imm(B4, R10, NUMBER, SLOT_OTHER as i32);
        self.a.jump(found);
        self.a.place(transmit);
        self.a.store_imm(B4, R10, NUMBER, SLOT_TRANSMIT as i32);
        self.a.place(found);
        self.slot();
    }

    /// Counts a poll of the slot that took as many frames of the interface as the stack has at `frames`.
    fn count_poll(&mut self, frames: i16) {
        let (not_empty, untimed) = (self.a.label(), self.a.label());
        self.bump(R8, Slot::Polls.offset(), 1);
        self.count_full();
        self.a.load(B8, R2, R10, frames);
        self.add(R8, Slot::Frames.offset(), R2);
        self.a.jump_if(R2, When::NotEqual, 0, not_empty);
        self.bump(R8, Slot::Empty.offset(), 1);
        self.a.place(not_empty);
        self.unless_transmit(|b| {
            b.a.load(B8, R2, R10, frames);
            b.record(Measure::PollFrames);
        });
        self.a.load(B8, R3, R7, Cell::Mark.offset());
        self.a.jump_if(R3, When::Equal, 0, untimed);
        self.a.op_reg(Op::Move, R2, R9);
        self.a.op_reg(Op::Subtract, R2, R3);
        self.add(R8, Slot::PollNs.offset(), R2);
        self.bump(R8, Slot::TimedPolls.offset(), 1);
        self.a.load(B8, R3, R6, 8);
        self.add(R8, Slot::TimedFrames.offset(), R3);
        self.unless_transmit(|b| b.record(Measure::PollNs));
        self.a.place(untimed);
    }

    /// Counts a poll that took as many as it may, and how many in a row did.
    fn count_full(&mut self) {
        let (not_full, counted) = (self.a.label(), self.a.label());
        self.a.load(B8, R1, R6, 8);
        self.a.load(B8, R3, R6, 16);
        self.a.jump_if_reg(R1, When::Below, R3, not_full);
        self.bump(R8, Slot::Full.offset(), 1);
        self.bump(R8, Slot::FullInARow.offset(), 1);
        self.unless_transmit(|b| {
            b.a.load(B8, R2, R8, Slot::FullInARow.offset());
            b.record(Measure::FullInARow);
        });
        self.a.jump(counted);
        self.a.place(not_full);
        self.a.store_imm(B8, R8, Slot::FullInARow.offset(), 0);
        self.a.place(counted);
    }

    /// What is said of receiving only.
    fn unless_transmit(&mut self, work: impl FnOnce(&mut Self)) {
        let transmit = self.a.label();
        self.a.load(B4, R1, R10, NUMBER);
        self.a.jump_if(R1, When::Equal, SLOT_TRANSMIT as i32, transmit);
        work(self);
        self.a.place(transmit);
    }

    /// What was freed in this poll after it was sent.
    fn count_freed(&mut self) {
        let none = self.a.label();
        self.a.load(B8, R1, R7, Cell::Mark.offset());
        self.a.jump_if(R1, When::Equal, 0, none);
        self.a.load(B8, R2, R7, Cell::Freed.offset());
        self.a.load(B8, R1, R7, Cell::FreedAtMark.offset());
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.jump_if(R2, When::Equal, 0, none);
        self.add(R7, Cell::FreedInPolls.offset(), R2);
        self.record(Measure::Freed);
        self.a.place(none);
    }

    /// If this is the first poll since the slot's interrupt, and began after it: the time between them.
    fn answer(&mut self) {
        let (seen, none) = (self.a.label(), self.a.label());
        self.a.load(B8, R3, R8, Slot::IrqAt.offset());
        self.a.load(B8, R1, R8, Slot::IrqSeen.offset());
        self.a.jump_if_reg(R3, When::AtMost, R1, none);
        self.a.load(B8, R2, R7, Cell::Mark.offset());
        self.a.jump_if(R2, When::Equal, 0, seen);
        // An interrupt in the middle of this poll is answered by the next one.
        self.a.jump_if_reg(R3, When::Above, R2, none);
        self.a.store(B8, R8, Slot::IrqSeen.offset(), R3);
        self.a.op_reg(Op::Subtract, R2, R3);
        self.unless_transmit(|b| b.record(Measure::AnswerNs));
        self.a.jump(none);
        self.a.place(seen);
        self.a.store(B8, R8, Slot::IrqSeen.offset(), R3);
        self.a.place(none);
    }

    /// A poll of a CPU's backlog, which has frames of any interface: those of ours were seen when they were received.
    fn backlog(&mut self, none: Label) {
        self.bump(R7, Cell::BacklogPolls.offset(), 1);
        self.a.load(B8, R2, R6, 8);
        self.add(R7, Cell::BacklogFrames.offset(), R2);
        self.a.load(B8, R1, R7, Cell::Mark.offset());
        self.a.jump_if(R1, When::Equal, 0, none);
        self.a.load(B8, R2, R7, Cell::Received.offset());
        self.a.load(B8, R1, R7, Cell::ReceivedAtMark.offset());
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.jump_if(R2, When::Equal, 0, none);
        self.a.store(B8, R10, WORK, R2);
        self.a.store_imm(B4, R10, NUMBER, SLOT_BACKLOG as i32);
        self.slot();
        self.count_poll(WORK);
    }

    /// The next poll begins now, if this is a NET_RX.
    fn mark(&mut self) {
        let outside = self.a.label();
        self.a.load(B8, R1, R7, Cell::Mark.offset());
        self.a.jump_if(R1, When::Equal, 0, outside);
        self.a.store(B8, R7, Cell::Mark.offset(), R9);
        self.a.place(outside);
        self.copy(Cell::Received, Cell::ReceivedAtMark);
        self.copy(Cell::Freed, Cell::FreedAtMark);
    }

    fn copy(&mut self, from: Cell, to: Cell) {
        self.a.load(B8, R1, R7, from.offset());
        self.a.store(B8, R7, to.offset(), R1);
    }

    fn softirq_entry(&mut self) {
        let receive = self.a.label();
        self.a.load(B8, R1, R6, 0);
        self.a.jump_if_u32(R1, When::Equal, NET_RX as u32, receive);
        self.a.jump_if_u32(R1, When::NotEqual, NET_TX as u32, self.out);
        self.bump(R7, Cell::NetTx.offset(), 1);
        self.a.jump(self.out);
        self.a.place(receive);
        self.bump(R7, Cell::NetRx.offset(), 1);
        self.now();
        self.a.store(B8, R7, Cell::Entry.offset(), R9);
        self.a.store(B8, R7, Cell::Mark.offset(), R9);
        self.a.store_imm(B8, R7, Cell::Work.offset(), 0);
        self.copy(Cell::Received, Cell::ReceivedAtMark);
        self.copy(Cell::Freed, Cell::FreedAtMark);
    }

    fn softirq_exit(&mut self) {
        let below = self.a.label();
        self.a.load(B8, R1, R6, 0);
        self.a.jump_if_u32(R1, When::NotEqual, NET_RX as u32, self.out);
        self.a.load(B8, R8, R7, Cell::Entry.offset());
        self.a.jump_if(R8, When::Equal, 0, self.out);
        self.now();
        self.a.op_reg(Op::Subtract, R9, R8);
        self.add(R7, Cell::NetRxNs.offset(), R9);
        self.a.load(B8, R1, R7, Cell::Work.offset());
        self.a.jump_if(R1, When::Below, self.target.budget, below);
        self.bump(R7, Cell::BudgetEnds.offset(), 1);
        self.a.place(below);
        self.a.store_imm(B8, R7, Cell::Entry.offset(), 0);
        self.a.store_imm(B8, R7, Cell::Mark.offset(), 0);
    }

    /// The slot of the interrupt, to `R8` and its number to `NUMBER`; others' interrupts end the program.
    fn find_irq(&mut self) {
        self.a.load(B8, R1, R6, 0);
        self.a.store(B4, R10, SCRATCH, R1);
        self.look_up(self.target.maps.irqs, SCRATCH, self.out);
        self.a.load(B4, R1, R0, 0);
        self.a.store(B4, R10, NUMBER, R1);
        self.slot();
    }

    fn irq_entry(&mut self) {
        let first = self.a.label();
        self.find_irq();
        self.now();
        self.bump(R8, Slot::Irqs.offset(), 1);
        self.a.load(B8, R2, R8, Slot::IrqAt.offset());
        self.a.jump_if(R2, When::Equal, 0, first);
        self.unless_transmit(|b| {
            b.a.op_reg(Op::Move, R3, R9);
            b.a.op_reg(Op::Subtract, R3, R2);
            b.a.op_reg(Op::Move, R2, R3);
            b.record(Measure::PeriodNs);
            b.a.load(B8, R2, R8, Slot::Frames.offset());
            b.a.load(B8, R1, R8, Slot::FramesAtIrq.offset());
            b.a.op_reg(Op::Subtract, R2, R1);
            b.record(Measure::InterruptFrames);
        });
        self.a.place(first);
        self.a.load(B8, R1, R8, Slot::Frames.offset());
        self.a.store(B8, R8, Slot::FramesAtIrq.offset(), R1);
        self.a.store(B8, R8, Slot::IrqAt.offset(), R9);
    }

    fn irq_exit(&mut self) {
        self.find_irq();
        self.a.load(B8, R1, R8, Slot::IrqAt.offset());
        self.a.jump_if(R1, When::Equal, 0, self.out);
        self.now();
        self.a.load(B8, R1, R8, Slot::IrqAt.offset());
        self.a.op_reg(Op::Move, R2, R9);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.record(Measure::HandlerNs);
    }

    /// Copies the needed part of the buffer to the stack and goes on if it is the interface's.
    fn only_our_buffer(&mut self) {
        self.a.load(B8, R3, R6, 0);
        self.read(BLOCK, self.layout.span(), self.layout.first(), self.out);
        self.a.load(B8, R3, R10, self.field(self.layout.dev));
        self.a.jump_if(R3, When::Equal, 0, self.out);
        self.only_ours(self.out);
    }

    /// Where the copied buffer has a field.
    fn field(&self, offset: u32) -> i16 {
        BLOCK + (offset - self.layout.first()) as i16
    }

    /// The protocols get a buffer from behind the header of its link, so that header's bytes are added.
    fn receive(&mut self) {
        let (plain, first) = (self.a.label(), self.a.label());
        self.only_our_buffer();
        self.bump(R7, Cell::Received.offset(), 1);
        self.now();
        self.a.load(B8, R8, R7, Cell::ReceivedAt.offset());
        self.a.store(B8, R7, Cell::ReceivedAt.offset(), R9);
        self.a.jump_if(R8, When::Equal, 0, first);
        self.a.op_reg(Op::Move, R2, R9);
        self.a.op_reg(Op::Subtract, R2, R8);
        self.record(Measure::ArrivalNs);
        self.a.place(first);
        self.a.load(B4, R2, R10, self.field(self.layout.len));
        self.a.load(B2, R3, R10, self.field(self.layout.mac_header));
        self.a.jump_if(R3, When::Equal, UNSET, plain);
        self.a.load(B8, R4, R10, self.field(self.layout.data));
        self.a.load(B8, R5, R10, self.field(self.layout.head));
        self.a.op_reg(Op::Subtract, R4, R5);
        self.a.jump_if_reg(R4, When::Below, R3, plain);
        self.a.op_reg(Op::Subtract, R4, R3);
        self.a.op_reg(Op::Add, R2, R4);
        self.a.place(plain);
        self.add(R7, Cell::ReceivedBytes.offset(), R2);
        self.record(Measure::ReceiveBytes);
    }

    fn start_xmit(&mut self) {
        self.a.load(B8, R3, R6, 8);
        self.only_ours(self.out);
        self.now();
        self.a.store(B8, R7, Cell::XmitAt.offset(), R9);
    }

    fn xmit(&mut self) {
        let (taken, busy, counted) = (self.a.label(), self.a.label(), self.a.label());
        self.a.load(B8, R3, R6, 16);
        self.only_ours(self.out);
        self.now();
        self.a.load(B8, R8, R7, Cell::XmitAt.offset());
        self.a.load(B8, R1, R6, 8);
        self.a.jump_if_u32(R1, When::Equal, 0, taken);
        self.a.jump_if_u32(R1, When::Equal, TX_BUSY as u32, busy);
        self.bump(R7, Cell::Refused.offset(), 1);
        self.a.jump(counted);
        self.a.place(busy);
        self.bump(R7, Cell::Busy.offset(), 1);
        self.a.jump(counted);
        self.a.place(taken);
        self.bump(R7, Cell::Sent.offset(), 1);
        self.a.load(B8, R2, R6, 24);
        self.add(R7, Cell::SentBytes.offset(), R2);
        self.record(Measure::TransmitBytes);
        self.a.place(counted);
        self.a.jump_if(R8, When::Equal, 0, self.out);
        self.a.op_reg(Op::Subtract, R9, R8);
        self.a.op_reg(Op::Move, R2, R9);
        self.record(Measure::XmitNs);
        self.a.store_imm(B8, R7, Cell::XmitAt.offset(), 0);
    }

    /// A buffer of the interface that did not come in by it was sent.
    fn consume(&mut self) {
        self.only_our_buffer();
        self.a.load(B4, R1, R10, self.field(self.layout.skb_iif));
        self.a.jump_if_u32(R1, When::Equal, self.target.interface, self.out);
        self.bump(R7, Cell::Freed.offset(), 1);
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;

//! The programs that run at the scheduler's events, and count those of the processes of a test.
//!
//! **What.** One program for each [`SchedulerEvent`]. A wait begins when a thread of a test's process is woken, or has a CPU taken from it, and ends
//! when it runs. Every CPU remembers its last [`TURNS`] turns (who ran, until when), so that at the end of a wait it is known who
//! ran meanwhile.
//!
//! **What it cannot see.** A thread that waits and is moved to another CPU: the turns are those of the CPU where it ran at last. What
//! interrupts take is the time of the task that they interrupt.
//!
//! **Two programs on one CPU.** `sched_switch` comes with interrupts off; a thread's words are written while the lock of its run queue
//! is held. The polls' words are those of soft interrupts, which do not interrupt each other.
//!
//! **Price.** 40 instructions and two look-ups for a switch between strangers; for a thread of the test up to 400, and a look-up for each
//! turn that it waited for.

use ::bpf::{AssembleError, Assembler, Label, Op, Reg, Reg::*, When, Width::*};
use record::buckets::BUCKETS;

use super::super::tracepoints::{self, Counting};
use super::layout::{Cell, Group, LOOKED_AT, Layout, Polls, SchedulerEvent, TURN_BYTES, TURNS, Thread};

/// The maps as the programs name them.
#[derive(Debug, Clone, Copy)]
pub struct MapFds {
    /// One [`Cell`].
    pub cell: i32,
    /// The turns of each CPU.
    pub turns: i32,
    /// Places by process id.
    pub places: i32,
    /// A [`Group`] by place.
    pub groups: i32,
    /// A [`Thread`] by thread id.
    pub threads: i32,
    /// Buckets: those of the first place after being woken, then after being preempted, then those of the second place.
    pub buckets: i32,
    /// Nanoseconds and a name by place and process.
    pub takers: i32,
    /// [`Polls`] by namespace and interface.
    pub polls: i32,
}

// Kernel functions by number (include/uapi/linux/bpf.h).
const MAP_UPDATE: i32 = 2;
const CURRENT_PID: i32 = 14;
const CURRENT_NAME: i32 = 16;

/// NET_RX (include/linux/interrupt.h).
const NET_RX: i32 = 3;
/// Bytes of a thread's name.
const NAME: i32 = 16;
/// The process id of what is not remembered.
pub const FORGOTTEN: u32 = u32::MAX;

// Places on the stack, as distances from the frame pointer.
const KEY: i16 = -4;
const PLACE: i16 = -8;
/// Thread id, then process id.
const IDS: i16 = -16;
/// Place, then process id.
const TAKER: i16 = -24;
const SINCE: i16 = -32;
const UPPER: i16 = -40;
const KIND: i16 = -48;
/// A new value of any map: up to 24 bytes.
const VALUE: i16 = -72;
const SCRATCH: i16 = -80;
const WORK: i16 = -88;
/// How many turns ago.
const BACK: i16 = -96;

struct Builder<'a> {
    a: Assembler,
    layout: &'a Layout,
    maps: &'a MapFds,
    out: Label,
}

/// Assembles the program of an event. `R6` is the context, `R7` the cell, `R9` the time.
pub fn assemble(event: SchedulerEvent, layout: &Layout, maps: &MapFds) -> Result<Vec<u64>, AssembleError> {
    let mut a = Assembler::new();
    let out = a.label();
    let mut builder = Builder { a, layout, maps, out };
    builder.begin(event);
    match event {
        SchedulerEvent::Switch => builder.switch(),
        SchedulerEvent::Wakeup | SchedulerEvent::WakeupNew => builder.wakeup(),
        SchedulerEvent::Poll => builder.poll(),
        SchedulerEvent::SoftirqEntry => builder.softirq_entry(),
        SchedulerEvent::SoftirqExit => builder.softirq_exit(),
        SchedulerEvent::LockBegin => builder.lock_begin(),
        SchedulerEvent::LockEnd => builder.lock_end(),
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
    /// Finds the cell and counts the run.
    fn begin(&mut self, event: SchedulerEvent) {
        self.a.op_reg(Op::Move, R6, R1);
        self.a.store_imm(B4, R10, KEY, 0);
        self.look_up(self.maps.cell, KEY, self.out);
        self.a.op_reg(Op::Move, R7, R0);
        let number = SchedulerEvent::ALL.iter().position(|&one| one == event).unwrap_or(0);
        self.bump(R7, Cell::Runs0.offset() + number as i16 * 8);
    }

    /// Puts the value at `VALUE` under a key; what finds no room is counted.
    fn put(&mut self, map: i32, key: i16) {
        let done = self.a.label();
        self.a.load_map(R1, map);
        self.stack(R2, key);
        self.stack(R3, VALUE);
        self.a.op(Op::Move, R4, 0);
        self.a.call(MAP_UPDATE);
        self.a.jump_if(R0, When::Equal, 0, done);
        self.bump(R7, Cell::NoRoom.offset());
        self.a.place(done);
    }

    /// Adds one to a word; uses `R1`.
    fn bump(&mut self, base: Reg, offset: i16) {
        self.a.load(B8, R1, base, offset);
        self.a.op(Op::Add, R1, 1);
        self.a.store(B8, base, offset, R1);
    }

    /// The ids of the current thread, to `IDS` and `R0`.
    fn current(&mut self) {
        self.a.call(CURRENT_PID);
        self.a.store(B8, R10, IDS, R0);
    }

    /// The place of the process at `IDS`, to `PLACE`; jumps for strangers.
    fn place_of(&mut self, stranger: Label) {
        self.look_up(self.maps.places, IDS + 4, stranger);
        self.a.load(B4, R1, R0, 0);
        self.a.store(B4, R10, PLACE, R1);
    }

    /// A switch: the context has whether it is a preemption, the thread that goes, the one that comes, and the state of the first.
    fn switch(&mut self) {
        self.now();
        self.current();
        self.check_current();
        self.bump(R7, Cell::Turns.offset());
        self.goes();
        let strange = self.a.label();
        self.a.load(B8, R3, R6, 16);
        self.read(IDS, 8, self.layout.pid, strange);
        self.a.load(B4, R1, R10, IDS);
        self.a.op(Op::Add, R1, 1);
        self.a.store(B8, R7, Cell::Current.offset(), R1);
        self.comes();
        self.a.jump(self.out);
        self.a.place(strange);
        self.a.store_imm(B8, R7, Cell::Current.offset(), 0);
    }

    /// The thread that goes must be the one that came.
    fn check_current(&mut self) {
        let right = self.a.label();
        self.a.load(B8, R1, R7, Cell::Current.offset());
        self.a.jump_if(R1, When::Equal, 0, right);
        self.a.load(B4, R2, R10, IDS);
        self.a.op(Op::Add, R2, 1);
        self.a.jump_if_reg(R1, When::Equal, R2, right);
        self.bump(R7, Cell::Missed.offset());
        self.a.place(right);
    }

    /// The place of the turn so many before the one that ends now, to `R3`; `R8` has where they begin. Uses `R1`.
    fn turn(&mut self, back: u32) {
        self.a.load(B8, R1, R7, Cell::Turns.offset());
        self.place_turn(back);
    }

    /// The place of the turn so many before that number in `R1`.
    fn place_turn(&mut self, back: u32) {
        self.a.op(Op::Subtract, R1, back as i32);
        self.a.op(Op::And, R1, TURNS as i32 - 1);
        self.a.op(Op::Multiply, R1, TURN_BYTES as i32);
        self.a.op_reg(Op::Move, R3, R8);
        self.a.op_reg(Op::Add, R3, R1);
    }

    /// The same, so many before the one of `BACK`. Uses `R1` and `R4`.
    fn turn_back(&mut self, back: u32) {
        self.a.load(B8, R1, R7, Cell::Turns.offset());
        self.a.load(B8, R4, R10, BACK);
        self.a.op_reg(Op::Subtract, R1, R4);
        self.place_turn(back);
    }

    /// A turn ends: it is remembered, and the thread that had it waits again if it could go on.
    fn goes(&mut self) {
        let (stranger, blocks, unknown, done) =
            (self.a.label(), self.a.label(), self.a.label(), self.a.label());
        self.look_up(self.maps.turns, KEY, self.out);
        self.a.op_reg(Op::Move, R8, R0);
        self.turn(1);
        self.a.load(B8, R4, R3, 0);
        self.a.store(B8, R10, UPPER, R4);
        self.turn(0);
        self.a.store(B8, R3, 0, R9);
        self.a.load(B8, R4, R10, IDS);
        self.a.store(B8, R3, 8, R4);
        self.a.op_reg(Op::Move, R1, R3);
        self.a.op(Op::Add, R1, 16);
        self.a.op(Op::Move, R2, NAME);
        self.a.call(CURRENT_NAME);
        self.place_of(stranger);
        self.ran();
        self.a.store_imm(B8, R10, VALUE + Thread::Since.offset(), 0);
        self.a.store_imm(B8, R10, VALUE + Thread::Preempted.offset(), 1);
        self.a.store_imm(B8, R10, VALUE + Thread::LockSince.offset(), 0);
        let runnable = self.a.label();
        self.a.load(B4, R1, R6, 0);
        self.a.op(Op::And, R1, 0xff);
        self.a.jump_if(R1, When::NotEqual, 0, runnable);
        self.a.load(B4, R1, R6, 24);
        self.a.jump_if(R1, When::NotEqual, 0, blocks);
        self.a.place(runnable);
        self.a.store(B8, R10, VALUE + Thread::Since.offset(), R9);
        self.a.place(blocks);
        self.look_up(self.maps.threads, IDS, unknown);
        self.a.load(B8, R1, R10, VALUE + Thread::Since.offset());
        self.a.store(B8, R0, Thread::Since.offset(), R1);
        self.a.store_imm(B8, R0, Thread::Preempted.offset(), 1);
        self.a.jump(done);
        self.a.place(unknown);
        self.put(self.maps.threads, IDS);
        self.a.place(done);
        self.a.place(stranger);
    }

    /// Adds the turn that ends now to what the process of `PLACE` ran; `UPPER` has its begin.
    fn ran(&mut self) {
        let unknown = self.a.label();
        self.a.load(B8, R1, R10, UPPER);
        self.a.jump_if(R1, When::Equal, 0, unknown);
        self.look_up(self.maps.groups, PLACE, unknown);
        self.a.op_reg(Op::Move, R2, R9);
        self.a.load(B8, R1, R10, UPPER);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.add(R0, Group::RanNs.offset(), R2);
        self.a.place(unknown);
    }

    /// The thread at `IDS` runs from now on: its wait has ended.
    fn comes(&mut self) {
        let (stranger, unseen, counted) = (self.a.label(), self.a.label(), self.a.label());
        self.place_of(stranger);
        self.look_up(self.maps.threads, IDS, unseen);
        self.a.load(B8, R2, R0, Thread::Since.offset());
        self.a.jump_if(R2, When::Equal, 0, unseen);
        self.a.store(B8, R10, SINCE, R2);
        self.a.load(B8, R3, R0, Thread::Preempted.offset());
        self.a.store(B8, R10, KIND, R3);
        self.a.store_imm(B8, R0, Thread::Since.offset(), 0);
        self.count_wait();
        self.takers();
        self.a.jump(counted);
        self.a.place(unseen);
        self.bump(R7, Cell::Unseen.offset());
        self.a.place(counted);
        self.a.place(stranger);
    }

    /// Counts the wait since `SINCE` of the process of `PLACE`.
    fn count_wait(&mut self) {
        let (preempted, counted, none) = (self.a.label(), self.a.label(), self.a.label());
        self.look_up(self.maps.groups, PLACE, none);
        self.a.op_reg(Op::Move, R2, R9);
        self.a.load(B8, R1, R10, SINCE);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.load(B8, R3, R10, KIND);
        self.a.jump_if(R3, When::NotEqual, 0, preempted);
        self.bump(R0, Group::Woken.offset());
        self.add(R0, Group::WokenNs.offset(), R2);
        self.a.jump(counted);
        self.a.place(preempted);
        self.bump(R0, Group::Preempted.offset());
        self.add(R0, Group::PreemptedNs.offset(), R2);
        self.a.place(counted);
        tracepoints::bucket(&mut self.a);
        self.a.load(B8, R3, R10, KIND);
        self.a.op(Op::Multiply, R3, BUCKETS as i32);
        self.a.op_reg(Op::Add, R2, R3);
        self.a.load(B4, R3, R10, PLACE);
        self.a.op(Op::Multiply, R3, 2 * BUCKETS as i32);
        self.a.op_reg(Op::Add, R2, R3);
        self.a.store(B4, R10, SCRATCH, R2);
        self.look_up(self.maps.buckets, SCRATCH, none);
        self.bump(R0, 0);
        self.a.place(none);
    }

    /// Who ran on this CPU since `SINCE`, the last turn first: each gets its share of the wait.
    fn takers(&mut self) {
        let done = self.a.label();
        self.a.load(B4, R1, R10, PLACE);
        self.a.store(B4, R10, TAKER, R1);
        self.a.store(B8, R10, UPPER, R9);
        self.a.store_imm(B8, R10, BACK, 0);
        let (next, whole, forgotten) = (self.a.label(), self.a.label(), self.a.label());
        self.a.place(next);
        self.a.load(B8, R1, R10, BACK);
        self.a.jump_if(R1, When::AtLeast, LOOKED_AT as i32, forgotten);
        // When the turn began: when the one before it ended.
        self.turn_back(1);
        self.a.load(B8, R2, R3, 0);
        self.a.load(B8, R4, R10, SINCE);
        self.a.jump_if_reg(R2, When::Above, R4, whole);
        self.a.op_reg(Op::Move, R2, R4);
        self.a.place(whole);
        self.a.store(B8, R10, WORK, R2);
        self.turn_back(0);
        self.taken();
        self.bump(R10, BACK);
        self.a.load(B8, R2, R10, WORK);
        self.a.store(B8, R10, UPPER, R2);
        self.a.load(B8, R4, R10, SINCE);
        self.a.jump_if_reg(R2, When::Above, R4, next);
        self.a.jump(done);
        self.a.place(forgotten);
        // What was before the turns that are looked at.
        self.a.store_imm(B4, R10, TAKER + 4, -1);
        self.a.load(B8, R2, R10, SINCE);
        self.a.store(B8, R10, WORK, R2);
        self.share(|b| {
            b.a.store_imm(B8, R10, VALUE + 8, 0);
            b.a.store_imm(B8, R10, VALUE + 16, 0);
        });
        self.a.place(done);
    }

    /// The turn at `R3` had the CPU from `WORK` to `UPPER`.
    fn taken(&mut self) {
        self.a.load(B4, R1, R3, 12);
        self.a.store(B4, R10, TAKER + 4, R1);
        self.a.load(B8, R1, R3, 16);
        self.a.store(B8, R10, VALUE + 8, R1);
        self.a.load(B8, R1, R3, 24);
        self.a.store(B8, R10, VALUE + 16, R1);
        self.share(|_| {});
    }

    /// Adds the time from `WORK` to `UPPER` to the taker.
    fn share(&mut self, name: impl FnOnce(&mut Self)) {
        let (new, done) = (self.a.label(), self.a.label());
        self.look_up(self.maps.takers, TAKER, new);
        self.length(R2);
        self.add(R0, 0, R2);
        self.a.jump(done);
        self.a.place(new);
        self.length(R2);
        self.a.store(B8, R10, VALUE, R2);
        name(self);
        self.put(self.maps.takers, TAKER);
        self.a.place(done);
    }

    /// From `WORK` to `UPPER`; uses `R3`.
    fn length(&mut self, to: Reg) {
        self.a.load(B8, to, R10, UPPER);
        self.a.load(B8, R3, R10, WORK);
        self.a.op_reg(Op::Subtract, to, R3);
    }

    /// A task becomes runnable, or is so already: then it waits longer.
    fn wakeup(&mut self) {
        let new = self.a.label();
        self.a.load(B8, R3, R6, 0);
        self.read(IDS, 8, self.layout.pid, self.out);
        self.place_of(self.out);
        self.now();
        self.look_up(self.maps.threads, IDS, new);
        self.a.load(B8, R1, R0, Thread::Since.offset());
        self.a.jump_if(R1, When::NotEqual, 0, self.out);
        self.a.store_imm(B8, R0, Thread::Preempted.offset(), 0);
        self.a.store(B8, R0, Thread::Since.offset(), R9);
        self.a.jump(self.out);
        self.a.place(new);
        self.a.store(B8, R10, VALUE + Thread::Since.offset(), R9);
        self.a.store_imm(B8, R10, VALUE + Thread::Preempted.offset(), 0);
        self.a.store_imm(B8, R10, VALUE + Thread::LockSince.offset(), 0);
        self.put(self.maps.threads, IDS);
    }

    /// Soft interrupts other than NET_RX end here.
    fn only_net_rx(&mut self) {
        self.a.load(B4, R1, R6, 0);
        self.a.jump_if(R1, When::NotEqual, NET_RX, self.out);
        self.now();
    }

    fn softirq_entry(&mut self) {
        self.only_net_rx();
        self.a.store(B8, R7, Cell::Entry.offset(), R9);
        self.a.store(B8, R7, Cell::Mark.offset(), R9);
    }

    fn softirq_exit(&mut self) {
        self.only_net_rx();
        self.a.load(B8, R3, R7, Cell::Entry.offset());
        self.a.jump_if(R3, When::Equal, 0, self.out);
        self.a.op_reg(Op::Move, R2, R9);
        self.a.op_reg(Op::Subtract, R2, R3);
        self.add(R7, Cell::NetRxNs.offset(), R2);
        self.a.store_imm(B8, R7, Cell::Entry.offset(), 0);
        self.a.store_imm(B8, R7, Cell::Mark.offset(), 0);
    }

    /// A poll has ended: the context has the instance, and how many frames it took. It began when the one before it ended.
    fn poll(&mut self) {
        let (of_cpu, counted, new, untimed) =
            (self.a.label(), self.a.label(), self.a.label(), self.a.label());
        self.now();
        self.a.store_imm(B8, R10, IDS, 0);
        self.a.load(B8, R3, R6, 0);
        self.read(SCRATCH, 8, self.layout.napi_dev, self.out);
        self.a.load(B8, R3, R10, SCRATCH);
        self.a.jump_if(R3, When::Equal, 0, of_cpu);
        self.read_interface();
        self.a.place(of_cpu);
        self.a.op(Op::Move, R8, 0);
        self.a.load(B8, R1, R7, Cell::Mark.offset());
        self.a.jump_if(R1, When::Equal, 0, untimed);
        self.a.op_reg(Op::Move, R8, R9);
        self.a.op_reg(Op::Subtract, R8, R1);
        self.a.store(B8, R7, Cell::Mark.offset(), R9);
        self.a.place(untimed);
        self.look_up(self.maps.polls, IDS, new);
        self.bump(R0, Polls::Count.offset());
        self.a.load(B4, R2, R6, 8);
        self.add(R0, Polls::Frames.offset(), R2);
        self.add(R0, Polls::Ns.offset(), R8);
        self.a.jump(counted);
        self.a.place(new);
        self.a.store_imm(B8, R10, VALUE + Polls::Count.offset(), 1);
        self.a.load(B4, R2, R6, 8);
        self.a.store(B8, R10, VALUE + Polls::Frames.offset(), R2);
        self.a.store(B8, R10, VALUE + Polls::Ns.offset(), R8);
        self.put(self.maps.polls, IDS);
        self.a.place(counted);
    }

    /// Namespace and number of the device at `R3`, to `IDS`.
    fn read_interface(&mut self) {
        self.a.store(B8, R10, WORK, R3);
        self.read(IDS + 4, 4, self.layout.ifindex, self.out);
        self.a.load(B8, R3, R10, WORK);
        self.read(SCRATCH, 8, self.layout.net, self.out);
        self.a.load(B8, R3, R10, SCRATCH);
        self.read(IDS, 4, self.layout.inum, self.out);
    }

    fn lock_begin(&mut self) {
        self.current();
        self.place_of(self.out);
        self.now();
        self.look_up(self.maps.threads, IDS, self.out);
        self.a.store(B8, R0, Thread::LockSince.offset(), R9);
    }

    fn lock_end(&mut self) {
        self.current();
        self.place_of(self.out);
        self.now();
        self.look_up(self.maps.threads, IDS, self.out);
        self.a.load(B8, R3, R0, Thread::LockSince.offset());
        self.a.jump_if(R3, When::Equal, 0, self.out);
        self.a.store_imm(B8, R0, Thread::LockSince.offset(), 0);
        self.a.op_reg(Op::Subtract, R9, R3);
        self.look_up(self.maps.groups, PLACE, self.out);
        self.bump(R0, Group::Locks.offset());
        self.add(R0, Group::LockNs.offset(), R9);
    }
}

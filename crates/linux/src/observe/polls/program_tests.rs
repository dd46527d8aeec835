//! The programs against a plain description of what they should count, on random sequences of events, in an interpreter. The
//! kernel's own counts are compared in `tests/system/llstat.rs`.

use ::bpf::interpret::{self, ExecutionError, Host, Memory};
use proptest::prelude::*;
use record::buckets::{BUCKETS, index};

use super::super::layout::SLOT_FIRST;
use super::*;
use crate::observe::tracepoints::{MAP_LOOKUP, PROBE_READ_KERNEL, TIME};

const CELL: u64 = 0x1_0000;
const SLOTS: u64 = 0x2_0000;
const CONTEXT: u64 = 0x4_0000;
const NUMBERS: u64 = 0x5_0000;
const DEVICE: u64 = 0x6_0000;
const OTHER_DEVICE: u64 = 0x6_1000;
const SAME_NUMBER_ELSEWHERE: u64 = 0x6_2000;
const NAPIS: u64 = 0x7_0000;
const SKB: u64 = 0x8_0000;
const BUCKET: u64 = 0x9_0000;
const HEAD: u64 = 0xa_0000;
const SLOT_COUNT: usize = SLOT_FIRST as usize + 1;
const MAPS: MapFds = MapFds { cell: 3, slots: 4, buckets: 5, napis: 6, irqs: 7 };
const TARGET: Target = Target { interface: 5, namespace: 4_026_532_001, budget: 300, maps: MAPS };
const NAPI_ID: u32 = 8193;
const IRQ: u32 = 41;
const TRANSMIT_IRQ: u32 = 42;

fn layout() -> Layout {
    Layout {
        napi_dev: 16,
        napi_id: 24,
        ifindex: 40,
        net: 8,
        inum: 4,
        dev: 16,
        len: 112,
        head: 200,
        data: 208,
        mac_header: 186,
        skb_iif: 140,
    }
}

/// The kernel's functions and maps. The buckets are one word in memory, which is booked after each run.
struct Kernel {
    now: u64,
    touched: Vec<usize>,
}

impl Host for Kernel {
    fn call(&mut self, memory: &mut Memory, function: i32, r: [u64; 5]) -> Result<u64, ExecutionError> {
        match function {
            TIME => Ok(self.now),
            PROBE_READ_KERNEL => {
                let Ok(bytes) = memory.bytes(r[2], r[1] as usize).map(|bytes| bytes.to_vec()) else {
                    return Ok(u64::MAX);
                };
                memory.bytes(r[0], bytes.len())?.copy_from_slice(&bytes);
                Ok(0)
            }
            MAP_LOOKUP => {
                let key = memory.read(r[1], 4)?;
                Ok(match r[0] as i32 {
                    fd if fd == MAPS.cell => CELL,
                    fd if fd == MAPS.slots && (key as usize) < SLOT_COUNT => SLOTS + key * 256,
                    fd if fd == MAPS.buckets => {
                        self.touched.push(key as usize);
                        BUCKET
                    }
                    fd if fd == MAPS.napis && key as u32 == NAPI_ID => NUMBERS,
                    fd if fd == MAPS.irqs && key as u32 == IRQ => NUMBERS,
                    fd if fd == MAPS.irqs && key as u32 == TRANSMIT_IRQ => NUMBERS + 8,
                    _ => 0,
                })
            }
            other => Err(ExecutionError::Function(other)),
        }
    }
}

/// Which NAPI instance is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Unlisted,
    Transmit,
    Foreign,
    Elsewhere,
    Backlog,
}

const WHO: [Who; 6] = [Who::Ours, Who::Unlisted, Who::Transmit, Who::Foreign, Who::Elsewhere, Who::Backlog];

#[derive(Debug, Clone, Copy)]
enum Happens {
    Softirq(u32),
    SoftirqEnd(u32),
    Irq(u32),
    IrqEnd(u32),
    Poll(Who, u64),
    Receive { ours: bool, bytes: u32, mac: bool },
    StartXmit { ours: bool },
    Xmit { ours: bool, code: u64, bytes: u32 },
    Consume { ours: bool, came_in: bool },
}

/// The machine that the programs run on.
struct Machine {
    memory: Memory,
    kernel: Kernel,
    buckets: Vec<u64>,
    programs: Vec<Vec<u64>>,
}

impl Machine {
    fn new() -> Machine {
        let mut memory = Memory::default();
        let mut piece = |base: u64, length: usize, words: &[(usize, &[u8])]| {
            let mut bytes = vec![0; length];
            words.iter().for_each(|(at, word)| bytes[*at..at + word.len()].copy_from_slice(word));
            memory.insert(base, bytes);
        };
        let (net, other_net) = (0xb_0000u64.to_le_bytes(), 0xb_1000u64.to_le_bytes());
        piece(0xb_0000, 16, &[(4, &TARGET.namespace.to_le_bytes())]);
        piece(0xb_1000, 16, &[(4, &4_026_531_840u32.to_le_bytes())]);
        piece(CELL, Cell::COUNT * 8, &[]);
        piece(SLOTS, SLOT_COUNT * 256, &[]);
        piece(CONTEXT, 32, &[]);
        piece(NUMBERS, 16, &[(0, &SLOT_FIRST.to_le_bytes()), (8, &SLOT_TRANSMIT.to_le_bytes())]);
        piece(DEVICE, 64, &[(8, &net), (40, &TARGET.interface.to_le_bytes())]);
        piece(OTHER_DEVICE, 64, &[(8, &net), (40, &6u32.to_le_bytes())]);
        piece(SAME_NUMBER_ELSEWHERE, 64, &[(8, &other_net), (40, &TARGET.interface.to_le_bytes())]);
        for (number, who) in WHO.iter().enumerate() {
            let (device, id) = match who {
                Who::Ours => (DEVICE, NAPI_ID),
                Who::Unlisted => (DEVICE, 9000),
                Who::Transmit => (DEVICE, 0),
                Who::Foreign => (OTHER_DEVICE, NAPI_ID),
                Who::Elsewhere => (SAME_NUMBER_ELSEWHERE, NAPI_ID),
                Who::Backlog => (0, 0),
            };
            let base = NAPIS + number as u64 * 64;
            piece(base, 32, &[(16, &device.to_le_bytes()), (24, &id.to_le_bytes())]);
        }
        piece(SKB, 256, &[]);
        piece(BUCKET, 8, &[]);
        let assembled = |event: &Tracepoint| assemble(*event, &layout(), &TARGET).expect("it is whole");
        Machine {
            memory,
            kernel: Kernel { now: 0, touched: vec![] },
            buckets: vec![0; Measure::ALL.len() * BUCKETS],
            programs: Tracepoint::ALL.iter().map(assembled).collect(),
        }
    }

    fn run(&mut self, event: Tracepoint, arguments: &[u64]) {
        for (place, argument) in arguments.iter().enumerate() {
            let at = self.memory.bytes(CONTEXT + place as u64 * 8, 8).unwrap();
            at.copy_from_slice(&argument.to_le_bytes());
        }
        let number = Tracepoint::ALL.iter().position(|&one| one == event).unwrap();
        let code = &self.programs[number];
        interpret::run(code, &mut self.memory, &mut self.kernel, CONTEXT, 10_000)
            .expect("programs end, and stay in their memory");
        std::mem::take(&mut self.kernel.touched).into_iter().for_each(|bucket| self.buckets[bucket] += 1);
    }

    fn skb(&mut self, ours: bool, bytes: u32, mac: bool, came_in: bool) {
        let device = if ours { DEVICE } else { SAME_NUMBER_ELSEWHERE };
        let (data, header) = (HEAD + 78, if mac { 64u16 } else { 0xffff });
        let came_in = if came_in { TARGET.interface } else { 0 };
        let words: [(u64, &[u8]); 6] = [
            (16, &device.to_le_bytes()),
            (112, &bytes.to_le_bytes()),
            (140, &came_in.to_le_bytes()),
            (186, &header.to_le_bytes()),
            (200, &HEAD.to_le_bytes()),
            (208, &data.to_le_bytes()),
        ];
        for (at, word) in words {
            self.memory.bytes(SKB + at, word.len()).unwrap().copy_from_slice(word);
        }
    }

    fn happens(&mut self, what: Happens) {
        let device = |ours| if ours { DEVICE } else { OTHER_DEVICE };
        match what {
            Happens::Softirq(number) => self.run(Tracepoint::SoftirqEntry, &[number.into()]),
            Happens::SoftirqEnd(number) => self.run(Tracepoint::SoftirqExit, &[number.into()]),
            Happens::Irq(number) => self.run(Tracepoint::IrqEntry, &[number.into()]),
            Happens::IrqEnd(number) => self.run(Tracepoint::IrqExit, &[number.into()]),
            Happens::Poll(who, work) => {
                let number = WHO.iter().position(|&one| one == who).unwrap() as u64;
                self.run(Tracepoint::Poll, &[NAPIS + number * 64, work, 64]);
            }
            Happens::Receive { ours, bytes, mac } => {
                self.skb(ours, bytes, mac, false);
                self.run(Tracepoint::Receive, &[SKB]);
            }
            Happens::StartXmit { ours } => self.run(Tracepoint::StartXmit, &[SKB, device(ours)]),
            Happens::Xmit { ours, code, bytes } => {
                self.run(Tracepoint::Xmit, &[SKB, code, device(ours), bytes.into()])
            }
            Happens::Consume { ours, came_in } => {
                self.skb(ours, 60, true, came_in);
                self.run(Tracepoint::Consume, &[SKB, 0]);
            }
        }
    }

    fn cell(&mut self, at: Cell) -> u64 {
        self.memory.read(CELL + at.offset() as u64, 8).unwrap()
    }

    fn slot(&mut self, slot: u32, at: Slot) -> u64 {
        self.memory.read(SLOTS + u64::from(slot) * 256 + at.offset() as u64, 8).unwrap()
    }
}

/// The same in plain words: one CPU's history, walked again for each question.
#[derive(Default)]
struct Plain {
    values: Vec<(Measure, u64)>,
    polls: Vec<(u32, u64, u64)>,
    softirq: Option<u64>,
    mark: Option<u64>,
    work: u64,
    budget_ends: u64,
    received: Vec<u64>,
    received_at: Option<u64>,
    /// By slot: full polls since the last one that was not.
    full: std::collections::BTreeMap<u32, u64>,
    freed: u64,
    since_mark: (u64, u64),
    sent: Vec<u64>,
    busy: u64,
    refused: u64,
    xmit_at: Option<u64>,
    /// By slot: when the last interrupt was, frames since, and whether it is still to be answered.
    irq: std::collections::BTreeMap<u32, (u64, u64, bool)>,
    irqs: u64,
    backlog: (u64, u64),
}

impl Plain {
    fn happens(&mut self, now: u64, what: Happens) {
        match what {
            Happens::Softirq(3) => {
                (self.softirq, self.mark, self.work, self.since_mark) = (Some(now), Some(now), 0, (0, 0));
            }
            Happens::SoftirqEnd(3) if self.softirq.is_some() => {
                self.budget_ends += u64::from(self.work >= 300);
                (self.softirq, self.mark) = (None, None);
            }
            Happens::Irq(number) => self.irq(now, number),
            Happens::IrqEnd(number) => {
                let slot = if number == IRQ { SLOT_FIRST } else { SLOT_TRANSMIT };
                if let (true, Some((at, ..))) = ([IRQ, TRANSMIT_IRQ].contains(&number), self.irq.get(&slot)) {
                    self.values.push((Measure::HandlerNs, now - at));
                }
            }
            Happens::Poll(who, work) => self.poll(now, who, work),
            Happens::Receive { ours: true, bytes, mac } => {
                let bytes = u64::from(bytes) + if mac { 14 } else { 0 };
                self.received.push(bytes);
                self.values.push((Measure::ReceiveBytes, bytes));
                if let Some(at) = self.received_at.replace(now) {
                    self.values.push((Measure::ArrivalNs, now - at));
                }
                self.since_mark.0 += 1;
            }
            Happens::StartXmit { ours: true } => self.xmit_at = Some(now),
            Happens::Xmit { ours: true, code, bytes } => {
                match code {
                    0 => {
                        self.sent.push(bytes.into());
                        self.values.push((Measure::TransmitBytes, bytes.into()));
                    }
                    0x10 => self.busy += 1,
                    _ => self.refused += 1,
                }
                if let Some(at) = self.xmit_at.take() {
                    self.values.push((Measure::XmitNs, now - at));
                }
            }
            Happens::Consume { ours: true, came_in: false } => {
                self.freed += 1;
                self.since_mark.1 += 1;
            }
            _ => {}
        }
    }

    fn irq(&mut self, now: u64, number: u32) {
        let slot = match number {
            IRQ => SLOT_FIRST,
            TRANSMIT_IRQ => SLOT_TRANSMIT,
            _ => return,
        };
        self.irqs += 1;
        if let (Some((before, frames, _)), IRQ) = (self.irq.get(&slot), number) {
            self.values.push((Measure::PeriodNs, now - before));
            self.values.push((Measure::InterruptFrames, *frames));
        }
        self.irq.insert(slot, (now, 0, true));
    }

    fn poll(&mut self, now: u64, who: Who, work: u64) {
        if self.softirq.is_some() {
            self.work += work;
        }
        let slot = match who {
            Who::Ours => Some(SLOT_FIRST),
            Who::Unlisted => Some(SLOT_OTHER),
            Who::Transmit => Some(SLOT_TRANSMIT),
            Who::Backlog => {
                self.backlog = (self.backlog.0 + 1, self.backlog.1 + work);
                (self.mark.is_some() && self.since_mark.0 > 0).then_some(SLOT_BACKLOG)
            }
            Who::Foreign | Who::Elsewhere => None,
        };
        if let Some(slot) = slot {
            let frames = if who == Who::Backlog { self.since_mark.0 } else { work };
            self.polls.push((slot, frames, work));
            let receives = slot != SLOT_TRANSMIT;
            let full = self.full.entry(slot).or_default();
            *full = if work >= 64 { *full + 1 } else { 0 };
            if receives && *full > 0 {
                self.values.push((Measure::FullInARow, *full));
            }
            if receives {
                self.values.push((Measure::PollFrames, frames));
            }
            if let (Some(mark), true) = (self.mark, receives) {
                self.values.push((Measure::PollNs, now - mark));
            }
            if self.mark.is_some() && self.since_mark.1 > 0 && who != Who::Backlog {
                self.values.push((Measure::Freed, self.since_mark.1));
            }
            self.answer(slot, frames);
        }
        self.mark = self.mark.map(|_| now);
        self.since_mark = (0, 0);
    }

    fn answer(&mut self, slot: u32, frames: u64) {
        let Some((at, since, open)) = self.irq.get_mut(&slot) else { return };
        *since += frames;
        match self.mark {
            Some(mark) if *open && *at <= mark => {
                *open = false;
                if slot != SLOT_TRANSMIT {
                    self.values.push((Measure::AnswerNs, mark - *at));
                }
            }
            None => *open = false,
            _ => {}
        }
    }
}

fn what() -> impl Strategy<Value = Happens> {
    let ours = || prop::bool::weighted(0.7);
    let irq = || prop::sample::select(vec![IRQ, IRQ, TRANSMIT_IRQ, 99]);
    let work = prop_oneof![0u64..=64, Just(64)];
    prop_oneof![
        3 => prop::sample::select(vec![3u32, 3, 2, 1]).prop_map(Happens::Softirq),
        2 => prop::sample::select(vec![3u32, 3, 2, 1]).prop_map(Happens::SoftirqEnd),
        3 => irq().prop_map(Happens::Irq),
        3 => irq().prop_map(Happens::IrqEnd),
        8 => (prop::sample::select(WHO.to_vec()), work).prop_map(|(who, work)| Happens::Poll(who, work)),
        4 => (ours(), 0u32..70_000, any::<bool>())
            .prop_map(|(ours, bytes, mac)| Happens::Receive { ours, bytes, mac }),
        2 => ours().prop_map(|ours| Happens::StartXmit { ours }),
        3 => (ours(), prop::sample::select(vec![0u64, 0, 0x10, 1]), 0u32..70_000)
            .prop_map(|(ours, code, bytes)| Happens::Xmit { ours, code, bytes }),
        3 => (ours(), any::<bool>()).prop_map(|(ours, came_in)| Happens::Consume { ours, came_in }),
    ]
}

proptest! {
    #[test]
    fn the_programs_count_what_the_plain_description_counts(
        events in prop::collection::vec((1u64..3_000_000, what()), 1..80),
    ) {
        let (mut machine, mut plain) = (Machine::new(), Plain::default());
        for (later, what) in &events {
            machine.kernel.now += later;
            machine.happens(*what);
            plain.happens(machine.kernel.now, *what);
        }
        let mut buckets = vec![0; machine.buckets.len()];
        let mut sums = [0; Measure::ALL.len()];
        let mut counts = [0; Measure::ALL.len()];
        for (measure, value) in &plain.values {
            let number = Measure::ALL.iter().position(|one| one == measure).unwrap();
            buckets[number * BUCKETS + index(*value)] += 1;
            sums[number] += value;
            counts[number] += 1;
        }
        prop_assert_eq!(&machine.buckets, &buckets);
        for (number, sum) in sums.iter().enumerate() {
            let [sum_at, count_at] = [Cell::Sum0, Cell::Count0]
                .map(|first| CELL + first.offset() as u64 + number as u64 * 8);
            let name = Measure::ALL[number].name();
            prop_assert_eq!(machine.memory.read(sum_at, 8).unwrap(), *sum, "{}", name);
            prop_assert_eq!(machine.memory.read(count_at, 8).unwrap(), counts[number], "{}", name);
        }
        for slot in 0..SLOT_COUNT as u32 {
            let of_slot: Vec<_> = plain.polls.iter().filter(|poll| poll.0 == slot).collect();
            let counted = [Slot::Polls, Slot::Frames, Slot::Full, Slot::Empty].map(|at| machine.slot(slot, at));
            let expected = [
                of_slot.len() as u64,
                of_slot.iter().map(|poll| poll.1).sum(),
                of_slot.iter().filter(|poll| poll.2 >= 64).count() as u64,
                of_slot.iter().filter(|poll| poll.1 == 0).count() as u64,
            ];
            prop_assert_eq!(counted, expected, "slot {}", slot);
        }
        let irqs: u64 = (0..SLOT_COUNT as u32).map(|slot| machine.slot(slot, Slot::Irqs)).sum();
        prop_assert_eq!(irqs, plain.irqs);
        let words = [Cell::Received, Cell::ReceivedBytes, Cell::Sent, Cell::SentBytes, Cell::Busy, Cell::Refused]
            .map(|at| machine.cell(at));
        let sum = |values: &[u64]| values.iter().sum::<u64>();
        let (received, sent) = (&plain.received, &plain.sent);
        let expected =
            [received.len() as u64, sum(received), sent.len() as u64, sum(sent), plain.busy, plain.refused];
        prop_assert_eq!(words, expected);
        let words = [Cell::Freed, Cell::BudgetEnds, Cell::BacklogPolls, Cell::BacklogFrames]
            .map(|at| machine.cell(at));
        prop_assert_eq!(words, [plain.freed, plain.budget_ends, plain.backlog.0, plain.backlog.1]);
        let runs: u64 = (0..Tracepoint::ALL.len())
            .map(|number| machine.memory.read(CELL + number as u64 * 8, 8).unwrap())
            .sum();
        prop_assert_eq!(runs, events.len() as u64);
    }

    /// The bucket that instructions find is the one of the plain function.
    #[test]
    fn buckets_are_those_of_the_record(value in prop_oneof![0u64..200, 0u64..1 << 40, any::<u64>()]) {
        let mut a = Assembler::new();
        let out = a.label();
        let mut builder = Builder { a, layout: &layout(), target: &TARGET, out };
        builder.a.op_reg(Op::Move, R2, R1);
        tracepoints::bucket(&mut builder.a);
        builder.a.op_reg(Op::Move, R0, R2);
        builder.a.exit();
        builder.a.place(out);
        let code = builder.a.finish().unwrap();
        let found = interpret::run(&code, &mut Memory::default(), &mut (), value, 1000);
        prop_assert_eq!(found, Ok(index(value) as u64));
    }
}

#[test]
fn every_count_has_a_meaning() {
    use super::super::{SLOT_WORDS, WORDS};
    let names = WORDS.iter().map(|(name, _)| *name).chain(SLOT_WORDS.iter().map(|(name, _)| *name));
    for name in names {
        assert!(record::counter::of("poll", name).is_some(), "{name} has no row in docs/counters/host.md");
    }
}

//! Where the running kernel keeps what the programs read, and what the programs count.

use super::super::btf::Btf;
use super::super::tracepoints::words;

/// Room for the needed part of `struct sk_buff`.
pub(super) const BLOCK_ROOM: u32 = 320;

/// Offsets from the kernel's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// `napi_struct.dev`
    pub napi_dev: u32,
    /// `napi_struct.napi_id`
    pub napi_id: u32,
    /// `net_device.ifindex`
    pub ifindex: u32,
    /// `net_device.nd_net`
    pub net: u32,
    /// `net.ns.inum`
    pub inum: u32,
    /// `sk_buff.dev`
    pub dev: u32,
    /// `sk_buff.len`
    pub len: u32,
    /// `sk_buff.head`
    pub head: u32,
    /// `sk_buff.data`
    pub data: u32,
    /// `sk_buff.mac_header`
    pub mac_header: u32,
    /// `sk_buff.skb_iif`
    pub skb_iif: u32,
}

impl Layout {
    /// Finds everything in the kernel's BTF.
    ///
    /// # Errors
    /// The name of the first thing that this kernel does not have, or has in another size.
    pub fn find(btf: &Btf<'_>) -> Result<Layout, String> {
        let buffer = |path, size| btf.offset("sk_buff", path, size);
        let layout = Layout {
            napi_dev: btf.offset("napi_struct", "dev", 8)?,
            napi_id: btf.offset("napi_struct", "napi_id", 4)?,
            ifindex: btf.offset("net_device", "ifindex", 4)?,
            net: btf.offset("net_device", "nd_net.net", 8)?,
            inum: btf.offset("net", "ns.inum", 4)?,
            dev: buffer("dev", 8)?,
            len: buffer("len", 4)?,
            head: buffer("head", 8)?,
            data: buffer("data", 8)?,
            mac_header: buffer("mac_header", 2)?,
            skb_iif: buffer("skb_iif", 4)?,
        };
        let is_near = layout.span() <= BLOCK_ROOM;
        is_near.then_some(layout).ok_or_else(|| "struct sk_buff of this kernel is spread too wide".into())
    }

    fn buffer(&self) -> [u32; 6] {
        [self.dev, self.len, self.head, self.data, self.mac_header, self.skb_iif]
    }

    /// Where the needed part of `struct sk_buff` begins.
    pub fn first(&self) -> u32 {
        self.buffer().into_iter().min().unwrap_or(0) & !7
    }

    /// Bytes from the first to the last needed field of `struct sk_buff`.
    pub fn span(&self) -> u32 {
        (self.buffer().into_iter().max().unwrap_or(0) + 8 - self.first()).next_multiple_of(8)
    }
}

/// The events that have a program, in the order in which programs are attached: what ends something comes before what begins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracepoint {
    /// A NAPI poll has ended.
    Poll,
    /// A soft interrupt begins.
    SoftirqEntry,
    /// A soft interrupt ends.
    SoftirqExit,
    /// The handler of an interrupt begins.
    IrqEntry,
    /// The handler of an interrupt ends.
    IrqExit,
    /// A buffer is given to the protocols.
    Receive,
    /// A buffer is given to a driver.
    StartXmit,
    /// A driver has taken a buffer, or not.
    Xmit,
    /// A buffer is freed that was not dropped.
    Consume,
}

impl Tracepoint {
    /// All.
    pub const ALL: [Tracepoint; 9] = [
        Tracepoint::Poll,
        Tracepoint::SoftirqExit,
        Tracepoint::SoftirqEntry,
        Tracepoint::IrqExit,
        Tracepoint::IrqEntry,
        Tracepoint::Receive,
        Tracepoint::Xmit,
        Tracepoint::StartXmit,
        Tracepoint::Consume,
    ];

    /// The tracepoint, and the folder of tracefs that it is in.
    pub fn in_tracefs(self) -> (&'static str, &'static str) {
        match self {
            Tracepoint::Poll => ("napi", "napi_poll"),
            Tracepoint::SoftirqEntry => ("irq", "softirq_entry"),
            Tracepoint::SoftirqExit => ("irq", "softirq_exit"),
            Tracepoint::IrqEntry => ("irq", "irq_handler_entry"),
            Tracepoint::IrqExit => ("irq", "irq_handler_exit"),
            Tracepoint::Receive => ("net", "netif_receive_skb"),
            Tracepoint::StartXmit => ("net", "net_dev_start_xmit"),
            Tracepoint::Xmit => ("net", "net_dev_xmit"),
            Tracepoint::Consume => ("skb", "consume_skb"),
        }
    }
}

/// What has a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Frames that one poll took.
    PollFrames,
    /// Duration of a poll.
    PollNs,
    /// Frames between one interrupt and the next.
    InterruptFrames,
    /// Time from one interrupt to the next.
    PeriodNs,
    /// Time from an interrupt to the begin of the poll that answers it.
    AnswerNs,
    /// Duration of the interrupt's handler.
    HandlerNs,
    /// Buffers that one poll freed after they were sent.
    Freed,
    /// Duration of the driver's transmit function.
    XmitNs,
    /// At a full poll: how many in a row were full with it.
    FullInARow,
    /// Time from one buffer that came to the next, on one CPU.
    ArrivalNs,
    /// Bytes of buffers that came.
    ReceiveBytes,
    /// Bytes of buffers that were sent.
    TransmitBytes,
}

impl Measure {
    /// All.
    pub const ALL: [Measure; 12] = [
        Measure::PollFrames,
        Measure::PollNs,
        Measure::InterruptFrames,
        Measure::PeriodNs,
        Measure::AnswerNs,
        Measure::HandlerNs,
        Measure::Freed,
        Measure::XmitNs,
        Measure::FullInARow,
        Measure::ArrivalNs,
        Measure::ReceiveBytes,
        Measure::TransmitBytes,
    ];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Measure::PollFrames => "poll_frames",
            Measure::PollNs => "poll_ns",
            Measure::InterruptFrames => "interrupt_frames",
            Measure::PeriodNs => "interrupt_period_ns",
            Measure::AnswerNs => "interrupt_to_poll_ns",
            Measure::HandlerNs => "interrupt_handler_ns",
            Measure::Freed => "completion_buffers",
            Measure::XmitNs => "transmit_ns",
            Measure::FullInARow => "full_polls_in_a_row",
            Measure::ArrivalNs => "arrival_period_ns",
            Measure::ReceiveBytes => "receive_bytes",
            Measure::TransmitBytes => "transmit_bytes",
        }
    }
}

/// The slot of receive interrupts and polls of which the kernel does not tell how they belong together.
pub const SLOT_OTHER: u32 = 0;
/// The slot of polls without a number, which drivers have for what was sent, and of their interrupts.
pub const SLOT_TRANSMIT: u32 = 1;
/// The slot of polls of a CPU's backlog that carried frames of the interface.
pub const SLOT_BACKLOG: u32 = 2;
/// The first slot of a NAPI instance.
pub const SLOT_FIRST: u32 = 3;

words! {
    /// The 64-bit words of a slot, on each CPU. Each is written by one program only.
    Slot {
        /// Interrupts.
        Irqs,
        /// Polls.
        Polls,
        /// Frames that the polls took.
        Frames,
        /// Polls that took as many as they may.
        Full,
        /// Those since the last one that was not full.
        FullInARow,
        /// Polls that took none.
        Empty,
        /// Time of the timed polls.
        PollNs,
        /// Polls whose begin was seen.
        TimedPolls,
        /// Frames of those; of the backlog those of all interfaces.
        TimedFrames,
        /// When the last interrupt came.
        IrqAt,
        /// The last interrupt that a poll answered.
        IrqSeen,
        /// Frames at the last interrupt.
        FramesAtIrq,
    }
}

words! {
    /// The 64-bit words that a CPU has once: first how often each program ran, last the sums of the distributions.
    Cell {
        /// Runs of the first program; the others' follow, in the order of [`Tracepoint::ALL`].
        Runs0, Runs1, Runs2, Runs3, Runs4, Runs5, Runs6, Runs7, Runs8,
        /// Soft interrupts NET_RX.
        NetRx,
        /// Soft interrupts NET_TX.
        NetTx,
        /// Time in NET_RX.
        NetRxNs,
        /// When NET_RX began; 0: it does not run.
        Entry,
        /// When the poll that runs now began; 0: nobody knows.
        Mark,
        /// Frames of this NET_RX so far, of all interfaces.
        Work,
        /// NET_RX that ended because of the budget of frames.
        BudgetEnds,
        /// Polls of the backlog, whatever they carried.
        BacklogPolls,
        /// Frames of those.
        BacklogFrames,
        /// Buffers given to the protocols.
        Received,
        /// The same when the poll that runs now began.
        ReceivedAtMark,
        /// When the last one was given to them; 0: none was.
        ReceivedAt,
        /// Their bytes.
        ReceivedBytes,
        /// Buffers that the driver took.
        Sent,
        /// Their bytes.
        SentBytes,
        /// Buffers that the driver gave back, because its queue was full.
        Busy,
        /// Buffers that the driver did not take and did not give back.
        Refused,
        /// When the driver's transmit function was called; 0: it does not run.
        XmitAt,
        /// Buffers freed after they were sent.
        Freed,
        /// The same when the poll that runs now began.
        FreedAtMark,
        /// Buffers freed in polls of the interface.
        FreedInPolls,
        /// Sum of the first distribution; the others' follow, in the order of [`Measure::ALL`].
        Sum0, Sum1, Sum2, Sum3, Sum4, Sum5, Sum6, Sum7, Sum8, Sum9, Sum10, Sum11,
        /// How many values the first distribution has; the others' follow.
        Count0, Count1, Count2, Count3, Count4, Count5, Count6, Count7, Count8, Count9, Count10, Count11,
    }
}

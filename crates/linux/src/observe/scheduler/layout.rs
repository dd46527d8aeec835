//! Where the running kernel keeps what the programs read, and what the programs count.

use super::super::btf::Btf;
use super::super::tracepoints::words;

/// Offsets from the kernel's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// `task_struct.pid`, with `tgid` behind it
    pub pid: u32,
    /// `napi_struct.dev`
    pub napi_dev: u32,
    /// `net_device.ifindex`
    pub ifindex: u32,
    /// `net_device.nd_net`
    pub net: u32,
    /// `net.ns.inum`
    pub inum: u32,
}

impl Layout {
    /// Finds everything in the kernel's BTF.
    ///
    /// # Errors
    /// The name of the first thing that this kernel does not have, or has elsewhere.
    pub fn find(btf: &Btf<'_>) -> Result<Layout, String> {
        let pid = btf.offset("task_struct", "pid", 4)?;
        if btf.offset("task_struct", "tgid", 4)? != pid + 4 {
            return Err("task_struct.tgid does not lie behind pid in this kernel".into());
        }
        Ok(Layout {
            pid,
            napi_dev: btf.offset("napi_struct", "dev", 8)?,
            ifindex: btf.offset("net_device", "ifindex", 4)?,
            net: btf.offset("net_device", "nd_net.net", 8)?,
            inum: btf.offset("net", "ns.inum", 4)?,
        })
    }
}

/// The events that have a program, in the order in which programs are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerEvent {
    /// A CPU goes from one task to another.
    Switch,
    /// A task becomes runnable.
    Wakeup,
    /// A new task becomes runnable for the first time.
    WakeupNew,
    /// A NAPI poll has ended.
    Poll,
    /// A soft interrupt ends.
    SoftirqExit,
    /// A soft interrupt begins.
    SoftirqEntry,
    /// A lock of the kernel has been got, or not.
    LockEnd,
    /// A lock of the kernel has to be waited for.
    LockBegin,
}

impl SchedulerEvent {
    /// All.
    pub const ALL: [SchedulerEvent; 8] = [
        SchedulerEvent::Switch,
        SchedulerEvent::Wakeup,
        SchedulerEvent::WakeupNew,
        SchedulerEvent::Poll,
        SchedulerEvent::SoftirqExit,
        SchedulerEvent::SoftirqEntry,
        SchedulerEvent::LockEnd,
        SchedulerEvent::LockBegin,
    ];

    /// The tracepoint.
    pub fn name(self) -> &'static str {
        match self {
            SchedulerEvent::Switch => "sched_switch",
            SchedulerEvent::Wakeup => "sched_wakeup",
            SchedulerEvent::WakeupNew => "sched_wakeup_new",
            SchedulerEvent::Poll => "napi_poll",
            SchedulerEvent::SoftirqExit => "softirq_exit",
            SchedulerEvent::SoftirqEntry => "softirq_entry",
            SchedulerEvent::LockEnd => "contention_end",
            SchedulerEvent::LockBegin => "contention_begin",
        }
    }

    /// Without it there is nothing to say of waiting.
    pub fn is_needed(self) -> bool {
        matches!(self, SchedulerEvent::Switch | SchedulerEvent::Wakeup | SchedulerEvent::WakeupNew)
    }
}

/// Turns on a CPU that are remembered, as a power of two.
pub const TURNS: u32 = 256;
/// Bytes of a turn: when it ended, the thread, its process, its name.
pub const TURN_BYTES: u32 = 32;
/// How many turns are looked at for one wait.
pub const LOOKED_AT: u32 = 250;

words! {
    /// The 64-bit words that a CPU has once.
    Cell {
        /// Runs of the first program; the others' follow, in the order of [`SchedulerEvent::ALL`].
        Runs0, Runs1, Runs2, Runs3, Runs4, Runs5, Runs6, Runs7,
        /// Task switches that were not shown to the program.
        Missed,
        /// Waits whose begin was not seen.
        Unseen,
        /// Something for which there was no room.
        NoRoom,
        /// The thread that got the CPU, plus one; 0: nobody knows.
        Current,
        /// How many turns there have been.
        Turns,
        /// Time in NET_RX.
        NetRxNs,
        /// When NET_RX began; 0: it does not run.
        Entry,
        /// When the poll that runs now began.
        Mark,
    }
}

words! {
    /// The 64-bit words of a process of the test, on each CPU.
    Group {
        /// Time on a CPU.
        RanNs,
        /// Waits after being woken.
        Woken,
        /// Their time.
        WokenNs,
        /// Waits after being preempted.
        Preempted,
        /// Their time.
        PreemptedNs,
        /// Waits for locks.
        Locks,
        /// Their time.
        LockNs,
    }
}

words! {
    /// The 64-bit words of a thread.
    Thread {
        /// Since when it waits for a CPU; 0: it does not.
        Since,
        /// 1 when it was preempted, 0 when it was woken.
        Preempted,
        /// Since when it waits for a lock; 0: it does not.
        LockSince,
    }
}

words! {
    /// The 64-bit words of polls of one interface, on each CPU.
    Polls {
        /// Polls.
        Count,
        /// Frames.
        Frames,
        /// Time of those whose begin was seen.
        Ns,
    }
}

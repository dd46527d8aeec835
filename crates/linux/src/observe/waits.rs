//! How long processes waited for a CPU and what they wanted for, by the kernel's own accounts: `/proc/PID/task/*/{schedstat,status}` and
//! `/proc/pressure`.
//!
//! **What it cannot see.** Threads that ended take their account with them. The kernel has no account of waiting for locks.
//!
//! **Price.** Two short files for each thread of the test, and three for the host, before and after.

use std::fs;

use record::Delta;
use record::time::{CpuWait, Stall};

use super::Actor;
use super::processes::host_processes;
use crate::sys::clock::parse_schedstat;

/// What the kernel has written down of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Time on a CPU, in nanoseconds.
    pub ran_ns: u64,
    /// Time runnable without one.
    pub waited_ns: u64,
    /// How often it gave a CPU up; none where it is not told.
    pub gave_up: Option<u64>,
    /// How often the CPU was taken from it.
    pub was_preempted: Option<u64>,
}

impl Account {
    /// That of all threads of a process; none when it is gone.
    pub fn read(pid: u32) -> Option<Account> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let of = |file: fs::DirEntry| {
            let read = |name| fs::read_to_string(file.path().join(name)).ok();
            Account::parse(&read("schedstat")?, &read("status").unwrap_or_default())
        };
        tasks.filter_map(of).reduce(Account::and)
    }

    /// From a `schedstat` and a `status` file.
    pub fn parse(schedstat: &str, status: &str) -> Option<Account> {
        let (ran_ns, waited_ns) = parse_schedstat(schedstat)?;
        let count = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        Some(Account {
            ran_ns,
            waited_ns,
            gave_up: count("voluntary_ctxt_switches:"),
            was_preempted: count("nonvoluntary_ctxt_switches:"),
        })
    }

    fn and(self, other: Account) -> Account {
        let both = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        Account {
            ran_ns: self.ran_ns.saturating_add(other.ran_ns),
            waited_ns: self.waited_ns.saturating_add(other.waited_ns),
            gave_up: both(self.gave_up, other.gave_up),
            was_preempted: both(self.was_preempted, other.was_preempted),
        }
    }
}

/// A process whose waiting is of interest, and its account when that began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Who it is; without what it waited.
    pub pid: u32,
    role: String,
    node: String,
    name: String,
    before: Account,
}

impl Waiting {
    /// What it waited until now does not count.
    pub fn restart(&mut self) {
        self.before = Account::read(self.pid).unwrap_or(self.before);
    }
}

/// The processes of a test, and the kernel's own threads that take frames: those of soft interrupts and of NAPI instances.
pub fn begin(actors: &[Actor]) -> Vec<Waiting> {
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let of_test = actors.iter().map(|actor| (actor.pid, &*actor.role, &*actor.node, name(actor.pid)));
    let kernel = host_processes().into_iter().filter(|one| is_of_kernel(&one.name));
    let kernel: Vec<(u32, String)> = kernel.map(|one| (one.pid, one.name)).collect();
    let kernel = kernel.into_iter().map(|(pid, name)| (pid, "kernel", "", name));
    let waiting = |(pid, role, node, name): (u32, &str, &str, String)| {
        let name = name.trim_end().to_owned();
        let before = Account::read(pid)?;
        Some(Waiting { pid, role: role.into(), node: node.into(), name, before })
    };
    of_test.chain(kernel).filter_map(waiting).collect()
}

fn is_of_kernel(name: &str) -> bool {
    name.starts_with("ksoftirqd/") || name.starts_with("napi/")
}

/// What they waited since; of those that ended, or whose threads did, that is not known, which is said in `missing`.
pub fn end(waiting: &[Waiting], missing: &mut Vec<String>) -> Vec<CpuWait> {
    waiting.iter().map(|one| since(one, Account::read(one.pid).as_ref(), missing)).collect()
}

fn since(one: &Waiting, now: Option<&Account>, missing: &mut Vec<String>) -> CpuWait {
    let Waiting { pid, role, node, name, before } = one.clone();
    let moved = |word: fn(&Account) -> Option<u64>| Delta::between(word(&before), now.and_then(word)).known();
    let ran_ns = moved(|account| Some(account.ran_ns));
    if ran_ns.is_none() {
        missing.push(format!("the account of '{name}' (process {pid}): it ended, or one of its threads"));
    }
    CpuWait {
        ran_ns,
        waited_ns: moved(|account| Some(account.waited_ns)),
        gave_up: moved(|account| account.gave_up),
        was_preempted: moved(|account| account.was_preempted),
        seen: None,
        role,
        node,
        pid,
        name,
    }
}

/// What tasks of the host stood still for since boot; empty where the kernel does not tell.
pub fn stalls() -> Vec<Stall> {
    let of = |name: &str| parse_stall(name, &fs::read_to_string(format!("/proc/pressure/{name}")).ok()?);
    ["cpu", "memory", "io"].into_iter().filter_map(of).collect()
}

/// One file of `/proc/pressure`.
pub fn parse_stall(name: &str, text: &str) -> Option<Stall> {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()
    };
    // `full` of the CPU is always 0 for a whole host: some task runs, or none wants to.
    let full_us = total("full ").filter(|_| name != "cpu");
    Some(Stall { of: name.into(), some_us: total("some ")?, full_us })
}

/// What came between two readings.
pub fn stalls_since(before: &[Stall], now: &[Stall]) -> Vec<Stall> {
    let since = |now: &Stall| {
        let before = before.iter().find(|before| before.of == now.of)?;
        let some_us = Delta::of(before.some_us, now.some_us).known()?;
        Some(Stall {
            of: now.of.clone(),
            some_us,
            full_us: Delta::between(before.full_us, now.full_us).known(),
        })
    };
    now.iter().filter_map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accounts_and_stalls_are_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let account = Account::parse("100 20 5\n", status).unwrap();
        assert_eq!((account.ran_ns, account.waited_ns), (100, 20));
        assert_eq!((account.gave_up, account.was_preempted), (Some(12), Some(3)));
        assert_eq!(Account::parse("1 2 3", "").unwrap().gave_up, None, "not told is not zero");
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=70\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n";
        let memory = parse_stall("memory", text).unwrap();
        assert_eq!((memory.some_us, memory.full_us), (70, Some(4)));
        assert_eq!(parse_stall("cpu", text).unwrap().full_us, None);
        let later = Stall { some_us: 100, full_us: Some(5), ..memory.clone() };
        assert_eq!(stalls_since(&[memory], &[later])[0].some_us, 30);
    }

    #[test]
    fn a_process_that_ended_is_missing_and_has_not_waited_zero() {
        let actor = |pid| Actor { pid, role: "sender".into(), node: "a".into() };
        let mut waiting = begin(&[actor(std::process::id())]);
        waiting.retain(|one| one.role == "sender");
        assert_eq!(waiting.len(), 1);
        assert!(begin(&[actor(u32::MAX)]).iter().all(|one| one.role != "sender"));
        waiting[0].pid = u32::MAX;
        let mut missing = vec![];
        let ended = end(&waiting, &mut missing);
        assert_eq!((ended[0].ran_ns, ended[0].waited_ns, missing.len()), (None, None, 1));
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "[a-z0-9=:. \n]{0,120}") {
            let _ = (Account::parse(&text, &text), parse_stall("io", &text));
        }
    }
}

//! The processes that make the traffic: `/proc/PID/stat`, `/proc/PID/status`, the process's CPU clock, and
//! `/proc/PID/task/*/schedstat`.
//!
//! Ticks of `stat` are those of the whole process, also of threads that ended. `/proc/PID/schedstat` is only that of
//! the first thread, hence the sum over tasks for waiting, and the process's CPU clock for nanoseconds of running.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use record::snapshot::ProcessSample;

use super::facts::kilobytes;
use crate::sys::clock::parse_schedstat;

/// State, user ticks and kernel ticks from `/proc/PID/stat`. The name in brackets may itself hold brackets and spaces.
pub fn parse_stat(text: &str) -> Option<(char, u64, u64)> {
    let words: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let state = words.first()?.chars().next()?;
    Some((state, words.get(11)?.parse().ok()?, words.get(12)?.parse().ok()?))
}

/// Resident memory now and at its highest, in bytes, from `/proc/PID/status`; zero where it is not told (kernel
/// threads, ended processes).
pub fn parse_status(text: &str) -> (u64, u64) {
    (kilobytes(text, "VmRSS"), kilobytes(text, "VmHWM"))
}

/// Any process of the host, and what it has used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProcess {
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// User and kernel time in ticks.
    pub ticks: u64,
    /// Its nice value.
    pub nice: i32,
    /// The CPU that it last ran on.
    pub cpu: u32,
}

/// One process from `/proc/PID/stat`.
pub fn parse_host_process(text: &str) -> Option<HostProcess> {
    let (head, rest) = text.rsplit_once(')')?;
    let (pid, name) = head.split_once(" (")?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some(HostProcess {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        ticks: ticks(11)?.saturating_add(ticks(12)?),
        nice: words.get(16)?.parse().ok()?,
        cpu: words.get(36)?.parse().ok()?,
    })
}

/// Every process that this one can see.
pub fn host_processes() -> Vec<HostProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| is_process(name))
        .filter_map(|name| parse_host_process(&fs::read_to_string(format!("/proc/{name}/stat")).ok()?))
        .collect()
}

/// Tables of `/proc/PID/net` that have sockets of the network with their inodes.
const TABLES: [&str; 9] = ["tcp", "tcp6", "udp", "udp6", "raw", "raw6", "icmp", "icmp6", "packet"];

/// The namespace of a process that has sockets of the network there; none when it has none.
///
/// # Errors
/// The process is gone, or somebody else's.
pub fn namespace_of_sockets(pid: u32) -> std::io::Result<Option<u64>> {
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    let sockets: Vec<String> =
        fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().filter_map(socket).collect();
    let is_ours =
        |line: &str| line.split_ascii_whitespace().any(|word| sockets.iter().any(|one| one == word));
    let has_some = |table: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().any(is_ours)
    };
    let has_any = !sockets.is_empty() && TABLES.into_iter().any(has_some);
    has_any.then(|| Ok(fs::metadata(format!("/proc/{pid}/ns/net"))?.ino())).transpose()
}

/// Whether a process of that name runs, among those that this one can see.
pub fn is_running(name: &str) -> bool {
    host_processes().iter().any(|process| process.name == name)
}

/// The state of a process by its letter, e.g. `R`, `S`, `T` (stopped); none if it is gone.
pub fn state(pid: u32) -> Option<char> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|(state, ..)| state)
}

/// Reads one process; none if it is gone.
pub fn read(pid: u32, role: &str, node: &str) -> Option<ProcessSample> {
    let (state, user, system) = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let (rss_bytes, peak_rss_bytes) = parse_status(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?);
    Some(ProcessSample {
        pid,
        role: role.to_owned(),
        node: node.to_owned(),
        user,
        system,
        cpu_ns: cpu_ns(pid).unwrap_or(0),
        wait_ns: wait_ns(pid),
        rss_bytes,
        peak_rss_bytes,
        state,
    })
}

fn cpu_ns(pid: u32) -> Option<u64> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    let time = clock_gettime(clock).ok()?;
    u64::try_from(time.tv_sec()).ok()?.checked_mul(1_000_000_000)?.checked_add(time.tv_nsec() as u64)
}

fn wait_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let waited = |entry: fs::DirEntry| {
        Some(parse_schedstat(&fs::read_to_string(entry.path().join("schedstat")).ok()?)?.1)
    };
    tasks.flatten().filter_map(waited).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_columns() {
        let text = "42 (a) b (c) T 1 42 42 0 -1 4194304 100 0 0 0 17 5 0 0 20 0 1 0 5000 1000000 200";
        assert_eq!(parse_stat(text), Some(('T', 17, 5)));
        assert_eq!(parse_stat("42 (a) R 1 2"), None);
        let whole = format!("{text} 1 2 3 4 5 6 7 8 9 10 11 12 13 17 1 0");
        let process = parse_host_process(&whole).expect("38 columns behind the name");
        assert_eq!((process.pid, process.name.as_str()), (42, "a) b (c"));
        assert_eq!((process.ticks, process.nice, process.cpu), (22, 0, 1));
        assert_eq!(parse_host_process(text), None);
    }

    #[test]
    fn memory_and_waiting_are_read() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse_status(status), (1 << 20, 2 << 20));
        assert_eq!(parse_status("Name:\tkthread\n"), (0, 0));
        assert_eq!(parse_schedstat("123 456 7\n"), Some((123, 456)));
    }

    #[test]
    fn this_process_is_read_and_an_absent_one_is_not() {
        let own = read(std::process::id(), "sender", "a").expect("this process exists");
        assert!(own.rss_bytes > 0 && own.peak_rss_bytes >= own.rss_bytes && own.cpu_ns > 0);
        assert_eq!((own.role.as_str(), own.node.as_str()), ("sender", "a"));
        assert!(host_processes().iter().any(|process| process.pid == own.pid));
        assert!(state(own.pid).is_some() && state(u32::MAX).is_none());
        assert_eq!(read(u32::MAX, "sender", "a"), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "[()A-Za-z0-9 :\n]{0,120}") {
            let _ = (parse_stat(&text), parse_status(&text), parse_schedstat(&text), parse_host_process(&text));
        }
    }
}

//! Processes: who is alive, end one, be interrupted.
//!
//! A process id alone is not a name: the kernel uses it again. [`ProcessIdentity`] adds the time at which the process began
//! and the boot in which that was, so nothing here ever touches a process that merely got the same number.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Pid, getpid, getppid, setsid};
use serde::{Deserialize, Serialize};

use super::socket::zeroed;
use super::{notice, owned};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// From now on SIGINT, SIGTERM and SIGHUP only set a flag (see [`interrupted`]), so that the program can take down
/// what it built. A second SIGINT or SIGTERM ends the process at once; what is left is undone by the next command. A second
/// SIGHUP does not: a shell that is hung up passes it on to jobs that were told already, and nobody meant it twice.
///
/// # Errors
/// The system's error; in practice none.
pub fn install_interrupt_handler() -> io::Result<()> {
    // No SA_RESTART: a blocking read or wait returns, so the flag is looked at.
    let once = SaFlags::SA_RESETHAND;
    for (signal, flags) in
        [(Signal::SIGINT, once), (Signal::SIGTERM, once), (Signal::SIGHUP, SaFlags::empty())]
    {
        let action = SigAction::new(SigHandler::Handler(note_interrupt), flags, SigSet::empty());
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// From now on a file that reaches a limit (`ulimit -f`) is an error of the call that writes it, and does not end this process with
/// SIGXFSZ. It is a handler, not `SIG_IGN`, which programs that are started from here would inherit.
///
/// # Errors
/// The system's error; in practice none.
pub fn report_file_limit() -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(ignore), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGXFSZ, &action) }.map(drop).map_err(io::Error::from)
}

/// Most open files that this process asks for: what a program started from here inherits, and some of those close each number up to it.
const OPEN_FILES: u64 = 65_536;

/// Raises the limit of open files to what the user may have, as far as [`OPEN_FILES`]: sessions begin with 1,024 and may have half a million, and each
/// node of a lab takes several.
///
/// # Errors
/// The system's error; in practice none.
pub fn raise_open_files() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(OPEN_FILES);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    }
    Ok(())
}

/// True once a signal asked this process to end (after [`install_interrupt_handler`]).
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Forgets an interrupt that was no trouble: the ordinary end of what goes on until somebody ends it.
pub fn forget_interrupt() {
    INTERRUPTED.store(false, Ordering::SeqCst);
}

/// From now on SIGINT does nothing: whoever started this process ends it. Call it while the process has one thread.
///
/// # Errors
/// The system's error; in practice none.
pub fn hold_back_interrupt() -> io::Result<()> {
    let signals: SigSet = [Signal::SIGINT].into_iter().collect();
    Ok(signals.thread_block()?)
}

/// A process that only waits for its end: leaves the caller's session and directory, and holds back SIGINT, SIGTERM and
/// SIGHUP until [`Detached::wait`] asks for them. Call it while the process has one thread.
///
/// # Errors
/// The system's error; in practice none.
pub fn detach() -> io::Result<Detached> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block()?;
    // Refused only for the leader of a process group, which then is its own master already.
    let _ = setsid();
    std::env::set_current_dir("/")?;
    Ok(Detached(signals))
}

/// See [`detach`].
pub struct Detached(SigSet);

impl Detached {
    /// Waits for SIGINT, SIGTERM or SIGHUP, also one that came earlier.
    ///
    /// # Errors
    /// The system's error; in practice none.
    pub fn wait(&self) -> io::Result<()> {
        self.0.wait().map(drop).map_err(Into::into)
    }
}

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id, as this process's `/proc` shows it.
    pub pid: u32,
    /// When it began, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start: u64,
    /// The boot in which that was (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
}

impl ProcessIdentity {
    /// This process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The process that has this number now.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn of(pid: u32) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_string();
        Ok(ProcessIdentity { pid, start: start_of(pid)?, boot })
    }

    /// True while exactly this process lives (a zombie has ended).
    pub fn alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }

    /// Stops the process until it is told to go on (SIGSTOP, SIGCONT). Nothing happens if it is this process or has ended already.
    ///
    /// # Errors
    /// When the signal is refused.
    pub fn stop(&self, is_stopped: bool) -> io::Result<()> {
        let signal = if is_stopped { Signal::SIGSTOP } else { Signal::SIGCONT };
        match open_pidfd(self.pid) {
            Ok(pidfd) if self.alive() && self.pid != std::process::id() => send_signal(pidfd.as_fd(), signal)
                .or_else(|error| match error {
                    Errno::ESRCH => Ok(()),
                    error => Err(error.into()),
                }),
            _ => Ok(()),
        }
    }

    /// Ends the process: SIGTERM, and SIGKILL if it has not gone after `patience`. Returns when it has gone.
    /// Nothing happens if it is this process or has ended already.
    ///
    /// # Errors
    /// When the signal is refused, or the process outlives SIGKILL by ten seconds.
    pub fn end(&self, patience: Duration) -> io::Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        // The descriptor names the process; the identity is compared after it is open, so the number cannot change
        // hands in between.
        let Ok(pidfd) = open_pidfd(self.pid) else { return Ok(()) };
        if !self.alive() {
            return Ok(());
        }
        for (signal, patience) in [(Signal::SIGTERM, patience), (Signal::SIGKILL, Duration::from_secs(10))] {
            match send_signal(pidfd.as_fd(), signal) {
                Err(Errno::ESRCH) => return Ok(()),
                other => other?,
            }
            if wait_end(pidfd.as_fd(), patience)? {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", self.pid)))
    }
}

/// Field 22 of `/proc/PID/stat`; the name in field 2 may hold spaces and parentheses, so count from the last one.
fn start_of(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = rest.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    let start = fields.nth(18).and_then(|field| field.parse().ok());
    start.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has no start time"))
    })
}

/// Gives memory that was freed back to the kernel. The C library keeps it otherwise, unless it lies at the very end of an area
/// (malloc_trim(3)); others keep none, and there nothing is done.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks; nothing that is in use moves.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the result is checked before it becomes an owner.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })
}

fn send_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> nix::Result<()> {
    // SAFETY: the descriptor is open; a null siginfo means "as kill(2)".
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal as i32,
            std::ptr::null::<u8>(),
            0,
        )
    };
    Errno::result(done).map(drop)
}

/// Waits until the process has ended; false when it has not after `patience`.
fn wait_end(pidfd: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if notice::poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], Some(left))? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// Makes the command's child enter a network namespace before its program starts. It dies with the thread that started it, so
/// that a dead parent leaves nothing behind; or it outlives this process in a session of its own, where no terminal's interrupt
/// reaches it.
pub fn enter(command: &mut Command, netns: Arc<OwnedFd>, outlives: bool) {
    let parent = getpid();
    let prepare = move || {
        nix::sched::setns(netns.as_fd(), nix::sched::CloneFlags::CLONE_NEWNET)?;
        if outlives {
            setsid()?;
            return Ok(());
        }
        die_with(parent)
    };
    // SAFETY: between fork and exec only async-signal-safe calls are made: setns, setsid, prctl, getppid, _exit; building an
    // io::Error from an errno does not allocate.
    unsafe { command.pre_exec(prepare) };
}

/// Makes the command's child die with the thread that started it.
pub fn dies_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, _exit.
    unsafe { command.pre_exec(move || die_with(parent)) };
}

/// Lets the calling process die with the thread that started it, which is one of `parent`.
fn die_with(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the line above.
    if getppid() != parent {
        // SAFETY: ends this process and touches nothing.
        unsafe { libc::_exit(127) }
    }
    Ok(())
}

/// Makes the command's child run on one CPU. The child fails to start with `EINVAL` when there is no such CPU.
pub fn on_cpu(command: &mut Command, cpu: u32) {
    // SAFETY: between fork and exec only sched_setaffinity is called, which is async-signal-safe.
    unsafe { command.pre_exec(move || super::cpu::pin_thread(cpu)) };
}

/// CPU time of a process that has ended, with all its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// In user mode, in nanoseconds.
    pub user_ns: u64,
    /// In the kernel on its behalf, in nanoseconds.
    pub system_ns: u64,
}

/// How a child ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it used.
    pub usage: Usage,
    /// It did not end in time and was killed.
    pub killed: bool,
}

/// Waits for the end of a child (`wait4`), and kills it when it has not ended in time.
///
/// # Errors
/// The system's error.
pub fn end_of(mut child: Child, patience: Duration) -> io::Result<Ended> {
    let killed = !wait_end(open_pidfd(child.id())?.as_fd(), patience)?;
    if killed {
        kill_group(&child);
        child.kill()?;
    }
    let (mut status, mut usage): (i32, libc::rusage) = (0, zeroed());
    let pid = child.id() as libc::pid_t;
    // SAFETY: both pointers are to values of ours; the process is our child and was not waited for.
    while let Err(error) = Errno::result(unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) }) {
        if error != Errno::EINTR {
            return Err(error.into());
        }
    }
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    let usage = Usage { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) };
    Ok(Ended { status: ExitStatus::from_raw(status), usage, killed })
}

/// Kills what is in the process group that the child leads (see `CommandExt::process_group`), its own children with it;
/// nothing when it leads none.
pub fn kill_group(child: &Child) {
    // A group's number is its leader's, which is not used again before the leader was waited for.
    let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(child.id() as libc::pid_t), Signal::SIGKILL);
}

/// Asks a child that was not waited for to end, as Ctrl-C does.
///
/// # Errors
/// The system's error.
pub fn interrupt(child: &Child) -> io::Result<()> {
    let pid = nix::unistd::Pid::from_raw(child.id() as libc::pid_t);
    Ok(nix::sys::signal::kill(pid, Signal::SIGINT)?)
}

/// Replaces this process by the command's program; returns only the error.
pub fn replace_by(mut command: Command) -> io::Error {
    command.exec()
}

/// The processes in a network namespace: id and name, this one left out. Processes that this user may not look at are
/// not seen.
pub fn in_namespace(netns_inode: u64) -> Vec<(u32, String)> {
    let wanted = format!("net:[{netns_inode}]");
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| pid != std::process::id())
        .filter(|pid| {
            fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|link| link.as_os_str() == wanted.as_str())
        })
        .map(|pid| (pid, name_of(pid)))
        .collect()
}

/// The name of a process, as `ps` shows it; empty when it has ended.
pub fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(identity.alive());
        let reused = ProcessIdentity { start: identity.start + 1, ..identity.clone() };
        reused.end(Duration::from_secs(1)).unwrap();
        assert!(identity.alive(), "a process with the same number but another start is left alone");
        let other_boot = ProcessIdentity { boot: "earlier".into(), ..identity.clone() };
        other_boot.end(Duration::from_secs(1)).unwrap();
        assert!(identity.alive());
        identity.end(Duration::from_secs(5)).unwrap();
        assert!(!identity.alive());
        child.wait().unwrap();
        identity.end(Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn one_that_ignores_the_request_is_killed() {
        let script = "trap '' TERM; echo ready; while :; do read x; done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
            .unwrap();
        ProcessIdentity::of(child.id()).unwrap().end(Duration::from_millis(50)).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }

    #[test]
    fn a_child_runs_on_its_cpu_and_tells_what_it_used() {
        let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
        let cpu = (0..nix::sched::CpuSet::count()).rfind(|&cpu| allowed.is_set(cpu).unwrap()).unwrap();
        let mut command = Command::new("sh");
        let script =
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; grep Cpus_allowed_list: /proc/self/status";
        command.args(["-c", script]).stdout(std::process::Stdio::piped());
        on_cpu(&mut command, cpu as u32);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut line).unwrap();
        assert_eq!(line.split_whitespace().last(), Some(cpu.to_string().as_str()));
        let ended = end_of(child, Duration::from_secs(60)).unwrap();
        assert!(ended.status.success() && !ended.killed && ended.usage.user_ns > 0, "{ended:?}");

        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let ended = end_of(child, Duration::from_millis(20)).unwrap();
        assert_eq!((ended.killed, ended.status.signal()), (true, Some(libc::SIGKILL)));
        // Whoever was started in the background of a script ignores SIGINT, and so do its children.
        let child = Command::new("env").args(["--default-signal=INT", "sleep", "60"]).spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        let soon = std::time::Instant::now() + Duration::from_secs(60);
        while std::fs::read_to_string(&name).is_ok_and(|name| name.trim() != "sleep")
            && soon > std::time::Instant::now()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        interrupt(&child).unwrap();
        let ended = end_of(child, Duration::from_secs(60)).unwrap();
        assert_eq!((ended.killed, ended.status.signal()), (false, Some(libc::SIGINT)));
    }
}

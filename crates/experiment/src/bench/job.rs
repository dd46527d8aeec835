//! A tool that runs in a node: started on one CPU, waited for, and ended whole.

use linux::lab::Node;
use linux::sys::process::{self, Ended};
use record::{Problem, Result};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a tool may take until it listens, and until it has ended.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How often to look.
const LOOK: Duration = Duration::from_millis(10);

/// A tool that runs; it ends with this value.
pub struct Job {
    child: Option<Child>,
    words: [Option<JoinHandle<String>>; 2],
}

impl Job {
    /// Starts a program (this one when none is named) in a node on a CPU.
    pub fn start(node: &Node, program: Option<&str>, arguments: &[String], cpu: u32) -> Result<Job> {
        let mut command = match program {
            Some(program) => node.command(program),
            None => node.command(crate::process::this_program()?),
        };
        process::on_cpu(&mut command, cpu);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin")).args(arguments);
        Self::spawn(command)
    }

    /// Starts a command; what it prints is kept.
    pub fn spawn(mut command: Command) -> Result<Job> {
        // A group of its own, so that a tool that forks (trafgen) can be ended whole.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| Problem::host(format!("cannot start {:?}: {e}", command.get_program())))?;
        let words = [
            child.stdout.take().map(|pipe| std::thread::spawn(move || all(pipe))),
            child.stderr.take().map(|pipe| std::thread::spawn(move || all(pipe))),
        ];
        Ok(Job { child: Some(child), words })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// True as soon as the process has an open packet socket that is bound, or an XDP program on an interface; false
    /// when it ended or took too long.
    pub fn listens(&mut self) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && self.lives()? {
            if has_bound_socket(self.pid()) || has_xdp_link(self.pid()) {
                // What it does between the binding and its loop.
                std::thread::sleep(Duration::from_millis(100));
                return self.lives();
            }
            std::thread::sleep(LOOK);
        }
        Ok(false)
    }

    /// False when it has ended (it is not waited for). An interrupt of this process is a problem.
    fn lives(&self) -> Result<bool> {
        if process::interrupted() {
            return Err(Problem::input("interrupted"));
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        Ok(!matches!(state, None | Some('Z' | 'X')))
    }

    /// Waits until it has ended; false when it has not in that time.
    pub fn ends_within(&self, time: Duration) -> Result<bool> {
        let deadline = Instant::now() + time;
        while self.lives()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK.min(deadline.saturating_duration_since(Instant::now())));
        }
        Ok(true)
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) -> Result<()> {
        let asked = self.child.as_ref().map_or(Ok(()), process::interrupt);
        asked.map_err(|e| Problem::host(format!("cannot end a tool: {e}")))
    }

    /// Waits for its end and takes its words.
    pub fn end(mut self) -> Result<(Ended, String, String)> {
        let child = self.child.take().ok_or_else(|| Problem::host("the tool has ended before"))?;
        let ended = process::end_of(child, PATIENCE)
            .map_err(|e| Problem::host(format!("cannot wait for a tool: {e}")))?;
        let [stdout, stderr] = self
            .words
            .each_mut()
            .map(|words| words.take().and_then(|reader| reader.join().ok()).unwrap_or_default());
        if ended.killed {
            return Err(Problem::measured(format!("it did not end within {} s", PATIENCE.as_secs())));
        }
        Ok((ended, stdout, stderr))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill_group(&child);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn all(mut pipe: impl Read) -> String {
    let mut bytes = vec![];
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Looks at `/proc/PID/net/packet`, where the kernel lists the packet sockets of the process's namespace; column `R` is 1
/// for one that is bound to an interface that runs. The benchmark's node has no other listener.
fn has_bound_socket(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/net/packet")).unwrap_or_default();
    text.lines().skip(1).any(|line| line.split_whitespace().nth(5) == Some("1"))
}

/// True when the process holds a BPF link: an AF_XDP port has attached its program.
fn has_xdp_link(pid: u32) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|to| to.to_string_lossy().contains("bpf_link"))
}

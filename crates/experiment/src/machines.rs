//! A plan whose topology is two virtual machines: they are the two hosts of `--to`.
//!
//! **What.** Each node is a `pathlab vm` with one card, whose wire is a socket between the two. The one to which the first test goes serves; the other one carries
//! out the very command that was given, with `--to` and the address of the first.
//!
//! **Price.** Two machines at once on the CPUs of this host. A record has what `--to` sees: the path between the two is one link.

use crate::process::this_program;
use linux::lab::{MachineEnd, Topology};
use linux::sys::process::{dies_with_parent, interrupt, interrupted};
use linux::vm::{ACCELERATORS, Kernel, MOST_CPUS, NIC_MODELS, NicModel, drives, memory_mb};
use record::{Problem, Result, TestSpec};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often to look whether a machine ended, or this process is to.
const LOOK: Duration = Duration::from_millis(50);
/// How long a machine that is to end may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where the socket between the two is, in the folder for temporary files: this and the process that made it.
const FOLDER: &str = "pathlab-wire-";
/// Its name there.
const SOCKET: &str = "wire";

/// Carries out the words of this program's command line in the machines of a topology; its exit code. `spec` is of the plan's first test.
///
/// # Errors
/// Input: the topology has no such nodes, or a word of a machine is wrong. Host: a machine cannot be started.
pub fn carry_out(topology: &Topology, spec: &TestSpec, words: &[OsString]) -> Result<u8> {
    let end = |node: &str| {
        let none =
            || Problem::input(format!("the path goes over '{node}', which the topology does not have"));
        topology.machine(node).ok_or_else(none)
    };
    let (here, there) = (end(&spec.from)?, end(&spec.to)?);
    let address = address(&there, spec)?;
    let flags = [flags(&here)?, flags(&there)?];
    [&here, &there].iter().try_for_each(|end| has_kernel(end))?;
    sweep(&std::env::temp_dir());
    let folder = tempfile::Builder::new()
        .prefix(&format!("{FOLDER}{}-", std::process::id()))
        .tempdir()
        .map_err(|error| Problem::host(format!("no folder for the wire between the machines: {error}")))?;
    let wire = format!("unix:{}", folder.path().join(SOCKET).display());
    let serve = ["serve", "--observe", "--tune", "--json"].map(OsString::from);
    let mut server = start(&there, &flags[1], &wire, &serve, Stdio::piped)?;
    wait_until_it_serves(&mut server, &spec.to)?;
    let mut client = start(&here, &flags[0], &wire, &with_host(words, address), Stdio::inherit)?;
    let mut told = false;
    loop {
        if let Some(status) = client.child.try_wait().map_err(|error| lost(&spec.from, &error))? {
            return Ok(code(status));
        }
        // A second interrupt ends this process, and with it the machines.
        if interrupted() && !told {
            told = true;
            let _ = interrupt(&client.child);
        }
        std::thread::sleep(LOOK);
    }
}

/// The words with the other host: behind them, or before the word that says that no flag follows.
fn with_host(words: &[OsString], address: String) -> Vec<OsString> {
    let (flags, rest) = words.split_at(words.iter().position(|word| word == "--").unwrap_or(words.len()));
    [flags, &["--to".into(), address.into()], rest].concat()
}

fn lost(node: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::host(format!("lost the virtual machine of node {node}: {error}"))
}

/// Takes away the folders of runs that were killed.
fn sweep(temporary: &Path) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let pid = name.strip_prefix(FOLDER).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Of somebody else it stays.
            let _ = std::fs::remove_file(entry.path().join(SOCKET));
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// The address of the serving machine of the version of IP of the plan's tests.
fn address(there: &MachineEnd<'_>, spec: &TestSpec) -> Result<String> {
    let addresses = &there.interface.addresses;
    let found = addresses.iter().find(|one| one.version() == spec.family);
    // A test that says no version has one by habit.
    let found = found.or(addresses.first());
    let none = || Problem::input(format!("{} has no address", there.interface.place()));
    found.map(|prefix| prefix.address.to_string()).ok_or_else(none)
}

/// A machine; ended with this value.
struct Running {
    child: Child,
    /// Hands on what it says of its troubles.
    errors: Option<JoinHandle<()>>,
    /// What it says is no news any more.
    is_over: Arc<AtomicBool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.is_over.store(true, Relaxed);
        let _ = interrupt(&self.child);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a machine that carries out these words.
fn start(
    end: &MachineEnd<'_>,
    flags: &[String],
    wire: &str,
    words: &[OsString],
    output: fn() -> Stdio,
) -> Result<Running> {
    let mut command = Command::new(this_program()?);
    command.args(["vm", "--cables", "0"]).args(flags);
    let addresses: Vec<String> = end.interface.addresses.iter().map(ToString::to_string).collect();
    command.arg("--wire").arg(format!("{}@{wire}={}", end.interface.name, addresses.join(",")));
    command.arg("--").args(words);
    // A terminal sends its interrupt to each process of the group: it is to reach the client's machine once, and the server's not before that has ended.
    command.stdin(Stdio::null()).stdout(output()).stderr(output()).process_group(0);
    dies_with_parent(&mut command);
    let mut child = command.spawn().map_err(|error| {
        Problem::host(format!("cannot start a virtual machine: {error}"))
            .at(format!("node {}", end.interface.node))
    })?;
    let is_over = Arc::<AtomicBool>::default();
    let errors = child.stderr.take().map(|errors| {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || relay(errors, &is_over))
    });
    Ok(Running { child, errors, is_over })
}

/// Hands on what a machine says of its troubles, until it is ended.
fn relay(errors: ChildStderr, is_over: &AtomicBool) {
    for line in BufReader::new(errors).lines().map_while(std::result::Result::ok) {
        if !is_over.load(Relaxed) {
            eprintln!("{line}");
        }
    }
}

/// What the topology says of a machine, as flags of `pathlab vm`.
///
/// # Errors
/// Input: no machine has such a value.
fn flags(end: &MachineEnd<'_>) -> Result<Vec<String>> {
    can_be(end).map_err(|problem| problem.at(format!("node {}", end.interface.node)))?;
    Ok(end.machine.0.iter().flat_map(|(word, value)| [format!("--{word}"), value.clone()]).collect())
}

/// What is said of a machine with this word.
fn said<'a>(end: &MachineEnd<'a>, word: &str) -> Option<&'a str> {
    end.machine.0.iter().find(|(said, _)| *said == word).map(|(_, value)| value.as_str())
}

/// The model of a machine's cards.
fn nic(end: &MachineEnd<'_>) -> Result<NicModel> {
    let word = said(end, "nic").unwrap_or(NIC_MODELS[0].word);
    let known = || NIC_MODELS.iter().map(|model| model.word).collect::<Vec<_>>().join(", ");
    NIC_MODELS.iter().find(|model| model.word == word).copied().ok_or_else(|| {
        Problem::input(format!("there is no network card '{word}'"))
            .help(format!("the models are {}", known()))
    })
}

/// Looks at the words of a machine: who wrote them in a topology knows no flags.
fn can_be(end: &MachineEnd<'_>) -> Result<()> {
    nic(end)?;
    let is_number = |text: &str| text.parse().is_ok_and(|cpus: u8| (1..=MOST_CPUS).contains(&cpus));
    if let Some(text) = said(end, "cpus").filter(|text| !is_number(text)) {
        return Err(Problem::input(format!("'{text}' is no number of CPUs"))
            .help(format!("a machine has 1 to {MOST_CPUS}")));
    }
    said(end, "memory").map(memory_mb).transpose().map_err(|problem| problem.at("memory"))?;
    match said(end, "accel").filter(|text| !ACCELERATORS.contains(text)) {
        Some(text) => Err(Problem::input(format!("'{text}' carries out no machine"))
            .help(format!("'accel' is one of {}", ACCELERATORS.join(", ")))),
        None => Ok(()),
    }
}

/// Makes sure that there is the kernel of a machine, with what it needs.
fn has_kernel(end: &MachineEnd<'_>) -> Result<()> {
    let modules = said(end, "modules").map(Path::new);
    let kernel = match said(end, "kernel") {
        Some(file) => Kernel::at(Path::new(file), modules),
        None => Kernel::newest(modules),
    };
    let drives = |kernel: Kernel| drives(&kernel, nic(end)?);
    kernel.and_then(drives).map_err(|problem| problem.at(format!("node {}", end.interface.node)))
}

/// Returns when the machine says that it answers tests.
fn wait_until_it_serves(server: &mut Running, node: &str) -> Result<()> {
    let output = server.child.stdout.take().ok_or_else(|| lost(node, &"it has no output"))?;
    let (said, hears) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            // Whoever listened has what it waited for: what is said later is read and left.
            let _ = said.send(line);
        }
    });
    loop {
        match hears.recv_timeout(LOOK) {
            Ok(line) if line.contains("\"listening\"") => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) if interrupted() => return Err(Problem::input("interrupted")),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let status = server.child.wait().map_err(|error| lost(node, &error))?;
                // Its own words come first.
                server.errors.take().map(JoinHandle::join);
                let what = format!("the virtual machine of node {node} ended before it answered tests");
                return Err(match code(status) {
                    2 => Problem::input(what),
                    _ => Problem::host(what),
                });
            }
        }
    }
}

/// The exit code of a command, or the one that a shell gives to a program that was killed.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "vm a nic virtio cpus 1\nvm b\nlink a:eth0 -- b:eth0\n\
        interface a:eth0 address 10.0.0.1/24 fd00::1/64\ninterface b:eth0 address 10.0.0.2/24 fd00::2/64\n";

    #[test]
    fn words_of_a_topology_are_flags() {
        let topology = Topology::parse(TWO, "x.lab").unwrap();
        let a = topology.machine("a").unwrap();
        assert_eq!(flags(&a).unwrap(), ["--nic", "virtio", "--cpus", "1"]);
        for (family, expected) in [(4, "10.0.0.2"), (6, "fd00::2")] {
            let spec = TestSpec { family, ..TestSpec::default() };
            assert_eq!(address(&topology.machine("b").unwrap(), &spec).unwrap(), expected);
        }
        let six = Topology::parse(&TWO.replace("10.0.0.2/24 ", ""), "x.lab").unwrap();
        assert_eq!(address(&six.machine("b").unwrap(), &TestSpec::default()).unwrap(), "fd00::2");
    }

    /// They were refused by the command line of 'pathlab vm', with flags that nobody had typed, and after the other machine was started.
    #[test]
    fn a_value_that_no_machine_has_is_refused_with_its_node() {
        let refused = |words: &str| {
            let wrong = Topology::parse(&TWO.replace("nic virtio cpus 1", words), "x.lab").unwrap();
            flags(&wrong.machine("a").unwrap()).unwrap_err().to_string()
        };
        for (words, expected) in [
            ("nic tulip", "node a: there is no network card 'tulip'; the models are igb, "),
            ("cpus 0", "node a: '0' is no number of CPUs; a machine has 1 to 64"),
            ("cpus two", "node a: 'two' is no number of CPUs; "),
            ("memory 3", "node a: memory: the memory is from 256Mi to 1Ti"),
            ("memory 1TB", "node a: memory: '1TB' is not a number of bytes"),
            ("accel tcg", "node a: 'tcg' carries out no machine; 'accel' is one of auto, kvm, emulation"),
        ] {
            assert!(refused(words).starts_with(expected), "{words}: {}", refused(words));
        }
        let wrong = Topology::parse(&TWO.replace("cpus 1", "kernel /nowhere/vmlinuz-1"), "x.lab").unwrap();
        let refused = has_kernel(&wrong.machine("a").unwrap()).unwrap_err().to_string();
        assert!(refused.starts_with("node a: /nowhere/vmlinuz-1: there is no such file"), "{refused}");
    }

    #[test]
    fn the_other_host_is_a_flag_of_the_command() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let all = with_host(&words, "10.0.0.2".into());
            all.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(&["run", "x.plan", "--quick"]), "run x.plan --quick --to 10.0.0.2");
        assert_eq!(of(&["run", "--", "-x.plan"]), "run --to 10.0.0.2 -- -x.plan");
    }

    #[test]
    fn folders_of_killed_runs_go_and_others_stay() {
        let temporary = tempfile::tempdir().unwrap();
        // No process has a number above 2^22 (`PID_MAX_LIMIT`).
        let [dead, filled, own, other] = [
            format!("{FOLDER}4194999-x"),
            format!("{FOLDER}4194998-x"),
            format!("{FOLDER}{}-x", std::process::id()),
            "x".into(),
        ]
        .map(|name| temporary.path().join(name));
        for folder in [&dead, &filled, &own, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(SOCKET), "").unwrap();
        }
        std::fs::write(filled.join("mine"), "").unwrap();
        sweep(temporary.path());
        assert_eq!(
            [&dead, &filled.join("mine"), &own.join(SOCKET), &other.join(SOCKET)].map(|it| it.exists()),
            [false, true, true, true]
        );
    }

    #[test]
    fn a_path_over_no_node_of_the_topology_is_refused() {
        let topology = Topology::parse(TWO, "x.lab").unwrap();
        let spec = TestSpec { from: "a".into(), to: "c".into(), ..TestSpec::default() };
        let refused = carry_out(&topology, &spec, &[]).unwrap_err().to_string();
        assert!(refused.contains("'c', which the topology does not have"), "{refused}");
    }
}

//! A plan whose topology is virtual machines: those at the ends of its path are the two hosts of `--to`, those between them of `--via`.
//!
//! **What.** Each node is a `pathlab vm` with a card for each of its links, whose wire is a socket between two of them. All but the one from which the first test
//! goes serve; that one carries out the very command that was given, with `--to` and the address of the other end, and `--via` for each on the way.
//!
//! **Price.** All machines at once on the CPUs of this host.

use crate::plan::Plan;
use crate::process::this_program;
use linux::lab::{InterfaceSpec, MachineNode, Topology};
use linux::sys::process::{dies_with_parent, interrupt, interrupted};
use linux::vm::{ACCELERATORS, Kernel, MOST_CPUS, NIC_MODELS, NicModel, drives, memory_mb};
use record::{Problem, Result, TestSpec};
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
/// Where the sockets between machines are, in the folder for temporary files: this and the process that made it.
const FOLDER: &str = "pathlab-wire-";
/// Their names there: this and the number of the link.
const SOCKET: &str = "wire";
/// The file of the topology there, which a later run may take away as it does the sockets.
const TOPOLOGY: &str = "wires.lab";

/// Carries out the words of this program's command line, which are about that plan, in the machines of a topology; its exit code.
///
/// # Errors
/// Input: the topology has no such nodes, a word of a machine is wrong, or the plan wants what is not between two hosts. Host: a machine cannot be started.
pub fn carry_out(topology: &Topology, plan: &Plan, words: &[OsString]) -> Result<u8> {
    let spec = &plan.tests[0].spec;
    plan.extra.is_of_hosts()?;
    let machine = |node: &str| {
        let none =
            || Problem::input(format!("the path goes over '{node}', which the topology does not have"));
        topology.machine(node).ok_or_else(none)
    };
    let here = machine(&spec.from)?;
    machine(&spec.to)?;
    let way = topology.machines_to(&spec.from, &spec.to).unwrap_or_default();
    let words = with_flags(words, &hosts(topology, &way, spec)?);
    let others = topology.nodes.iter().filter(|node| node.name != spec.from);
    let others = others.map(|node| machine(&node.name)).collect::<Result<Vec<_>>>()?;
    let flags =
        |machine: &MachineNode<'_>| flags(machine).and_then(|flags| has_kernel(machine).map(|()| flags));
    let own_flags = flags(&here)?;
    let flags = others.iter().map(flags).collect::<Result<Vec<_>>>()?;
    sweep(&std::env::temp_dir());
    let folder = tempfile::Builder::new()
        .prefix(&format!("{FOLDER}{}-", std::process::id()))
        .tempdir()
        .map_err(|error| Problem::host(format!("no folder for the wires between the machines: {error}")))?;
    let written = std::fs::write(folder.path().join(TOPOLOGY), topology.to_string());
    written.map_err(|error| Problem::host(format!("cannot write the topology for the machines: {error}")))?;
    let serve = ["serve", "--observe", "--tune", "--json"].map(OsString::from);
    let mut servers = vec![];
    for (machine, flags) in others.iter().zip(&flags) {
        let mut server = start(machine, flags, folder.path(), &serve, Stdio::piped)?;
        // The first of two machines makes the socket between them.
        wait_until_plugged(&mut server, machine, folder.path())?;
        servers.push((machine.node, server));
    }
    servers.iter_mut().try_for_each(|(node, server)| wait_until_it_serves(server, node))?;
    let mut client = start(&here, &own_flags, folder.path(), &words, Stdio::inherit)?;
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

/// The other machines of the way as flags of the command.
fn hosts(topology: &Topology, way: &[(&str, &InterfaceSpec)], spec: &TestSpec) -> Result<Vec<OsString>> {
    let Some(((_, last), between)) = way.split_last() else { return Ok(vec![]) };
    let mut flags: Vec<OsString> = vec!["--to".into(), address(topology, last, spec)?.into()];
    for (node, card) in between {
        flags.extend(["--via".into(), format!("{node}={}", address(topology, card, spec)?).into()]);
    }
    Ok(flags)
}

/// The words of a command line with more flags: behind them, or before the word that says that no flag follows.
pub fn with_flags(words: &[OsString], more: &[OsString]) -> Vec<OsString> {
    let (flags, rest) = words.split_at(no_flags_from(words));
    [flags, more, rest].concat()
}

/// The words without a flag and its value.
pub fn without_flag(words: &[OsString], flag: &str) -> Vec<OsString> {
    let joined = format!("{flag}=");
    let is_it = |word: &OsString| word == flag || word.as_encoded_bytes().starts_with(joined.as_bytes());
    let flags = &words[..no_flags_from(words)];
    match flags.iter().position(is_it) {
        None => words.to_vec(),
        Some(at) => {
            let behind = (at + if words[at] == flag { 2 } else { 1 }).min(words.len());
            [&words[..at], &words[behind..]].concat()
        }
    }
}

/// The word that says that no flag follows, or the end.
fn no_flags_from(words: &[OsString]) -> usize {
    words.iter().position(|word| word == "--").unwrap_or(words.len())
}

fn lost(node: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::host(format!("lost the virtual machine of node {node}: {error}"))
}

/// Takes away the folders of runs that were killed.
fn sweep(temporary: &Path) {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries(temporary) {
        let name = entry.file_name().into_string().unwrap_or_default();
        let pid = name.strip_prefix(FOLDER).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Of somebody else it stays.
            let is_socket = |file: &DirEntry| file.file_name().to_string_lossy().starts_with(SOCKET);
            for socket in entries(&entry.path()).filter(is_socket) {
                let _ = std::fs::remove_file(socket.path());
            }
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// The socket of a link.
fn socket(folder: &Path, link: usize) -> PathBuf {
    folder.join(format!("{SOCKET}{link}"))
}

/// The address by which a machine is reached at a card, of the version of IP of the plan's tests.
fn address(topology: &Topology, card: &InterfaceSpec, spec: &TestSpec) -> Result<String> {
    let all = topology.addresses_by(card);
    let found = all.iter().find(|one| one.version() == spec.family);
    // A test that says no version has one by habit.
    let found = found.or(all.first());
    let none = || Problem::input(format!("{} has no address", card.place()));
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
    machine: &MachineNode<'_>,
    flags: &[String],
    folder: &Path,
    words: &[OsString],
    output: fn() -> Stdio,
) -> Result<Running> {
    let mut command = Command::new(this_program()?);
    command.args(["vm", "--cables", "0"]).args(flags);
    for (link, card) in &machine.cards {
        command.arg("--wire").arg(format!("{}@unix:{}", card.name, socket(folder, *link).display()));
    }
    command.arg("--as").arg(format!("{}@{}", machine.node, folder.join(TOPOLOGY).display()));
    command.arg("--").args(words);
    // A terminal sends its interrupt to each process of the group: it is to reach the client's machine once, and the server's not before that has ended.
    command.stdin(Stdio::null()).stdout(output()).stderr(output()).process_group(0);
    dies_with_parent(&mut command);
    let mut child = command.spawn().map_err(|error| {
        Problem::host(format!("cannot start a virtual machine: {error}")).at(format!("node {}", machine.node))
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
fn flags(machine: &MachineNode<'_>) -> Result<Vec<String>> {
    can_be(machine).map_err(|problem| problem.at(format!("node {}", machine.node)))?;
    let words = machine.spec.0.iter().map(|(word, value)| [format!("--{word}"), value.clone()]);
    Ok(words.flatten().collect())
}

/// What is said of a machine with this word.
fn said<'a>(machine: &MachineNode<'a>, word: &str) -> Option<&'a str> {
    machine.spec.0.iter().find(|(said, _)| *said == word).map(|(_, value)| value.as_str())
}

/// The model of a machine's cards.
fn nic(machine: &MachineNode<'_>) -> Result<NicModel> {
    let word = said(machine, "nic").unwrap_or(NIC_MODELS[0].word);
    let known = || NIC_MODELS.iter().map(|model| model.word).collect::<Vec<_>>().join(", ");
    NIC_MODELS.iter().find(|model| model.word == word).copied().ok_or_else(|| {
        Problem::input(format!("there is no network card '{word}'"))
            .help(format!("the models are {}", known()))
    })
}

/// Looks at the words of a machine: who wrote them in a topology knows no flags.
fn can_be(machine: &MachineNode<'_>) -> Result<()> {
    nic(machine)?;
    let is_number = |text: &str| text.parse().is_ok_and(|cpus: u8| (1..=MOST_CPUS).contains(&cpus));
    if let Some(text) = said(machine, "cpus").filter(|text| !is_number(text)) {
        return Err(Problem::input(format!("'{text}' is no number of CPUs"))
            .help(format!("a machine has 1 to {MOST_CPUS}")));
    }
    said(machine, "memory").map(memory_mb).transpose().map_err(|problem| problem.at("memory"))?;
    match said(machine, "accel").filter(|text| !ACCELERATORS.contains(text)) {
        Some(text) => Err(Problem::input(format!("'{text}' carries out no machine"))
            .help(format!("'accel' is one of {}", ACCELERATORS.join(", ")))),
        None => Ok(()),
    }
}

/// Makes sure that there is the kernel of a machine, with what it needs.
fn has_kernel(machine: &MachineNode<'_>) -> Result<()> {
    let modules = said(machine, "modules").map(Path::new);
    let kernel = match said(machine, "kernel") {
        Some(file) => Kernel::at(Path::new(file), modules),
        None => Kernel::newest(modules),
    };
    let drives = |kernel: Kernel| drives(&kernel, nic(machine)?);
    kernel.and_then(drives).map_err(|problem| problem.at(format!("node {}", machine.node)))
}

/// Returns when a machine has made the sockets of its wires, or called at those that were there.
fn wait_until_plugged(server: &mut Running, machine: &MachineNode<'_>, folder: &Path) -> Result<()> {
    let is_there = |(link, _): &(usize, &InterfaceSpec)| socket(folder, *link).exists();
    while !machine.cards.iter().all(is_there) {
        if interrupted() {
            return Err(Problem::input("interrupted"));
        }
        if server.child.try_wait().map_err(|error| lost(machine.node, &error))?.is_some() {
            // It has its word to say.
            return wait_until_it_serves(server, machine.node);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
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
    use crate::plan::Extra;

    const TWO: &str = "vm a nic virtio cpus 1\nvm b\nlink a:eth0 -- b:eth0\n\
        interface a:eth0 address 10.0.0.1/24 fd00::1/64\ninterface b:eth0 address 10.0.0.2/24 fd00::2/64\n";

    #[test]
    fn flags_are_put_before_the_word_that_no_flag_follows_and_taken_out_with_their_value() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (before, without, with) in [
            ("case run --m x tso", "case run tso", "case run tso --to b"),
            ("case run --m=x tso", "case run tso", "case run tso --to b"),
            ("case run tso --m", "case run tso", "case run tso --to b"),
            ("case run -- --m x", "case run -- --m x", "case run --to b -- --m x"),
            ("run", "run", "run --to b"),
        ] {
            let left = without_flag(&words(before), "--m");
            assert_eq!(
                (&left, with_flags(&left, &words("--to b"))),
                (&words(without), words(with)),
                "{before}"
            );
        }
    }

    #[test]
    fn words_of_a_topology_are_flags() {
        let topology = Topology::parse(TWO, "x.lab").unwrap();
        let a = topology.machine("a").unwrap();
        assert_eq!(flags(&a).unwrap(), ["--nic", "virtio", "--cpus", "1"]);
        for (family, expected) in [(4, "10.0.0.2"), (6, "fd00::2")] {
            let spec = TestSpec { family, ..TestSpec::default() };
            let found = address(&topology, topology.machine("b").unwrap().cards[0].1, &spec);
            assert_eq!(found.unwrap(), expected);
        }
        let six = Topology::parse(&TWO.replace("10.0.0.2/24 ", ""), "x.lab").unwrap();
        let found = address(&six, six.machine("b").unwrap().cards[0].1, &TestSpec::default());
        assert_eq!(found.unwrap(), "fd00::2");
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
    fn machines_on_the_way_are_hosts_to_go_by() {
        let line = "vm a\nvm r\nvm b\nlink r:eth1 -- b:eth0\nlink a:eth0 -- r:eth0\n\
            interface a:eth0 address 10.0.1.2/24\ninterface r:eth0 address 10.0.1.1/24 fd00::1/64\n\
            interface r:eth1 address 10.0.2.1/24\ninterface b:eth0 address 10.0.2.2/24\n\
            route on a default via 10.0.1.1\nsysctl on r net.ipv4.ip_forward=1\n";
        let topology = Topology::parse(line, "x.lab").unwrap();
        let way = topology.machines_to("a", "b").unwrap();
        let hosts = hosts(&topology, &way, &TestSpec::default()).unwrap();
        assert_eq!(hosts, ["--to", "10.0.2.2", "--via", "r=10.0.1.1"].map(OsString::from));
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
        let plan = Plan::parse("topology pair\npath a c\ntest ping\n", "x.plan").unwrap();
        let refused = carry_out(&topology, &plan, &[]).unwrap_err().to_string();
        assert!(refused.contains("'c', which the topology does not have"), "{refused}");
    }

    /// They were refused by the machine, half a minute later.
    #[test]
    fn what_only_a_lab_shows_is_refused_before_a_machine_is_started() {
        let topology = Topology::parse(&TWO.replace("cpus 1", "kernel /nowhere/vmlinuz-1"), "x.lab").unwrap();
        let refused = |extra: Extra| {
            let plan =
                Plan { extra, ..Plan::parse("topology pair\npath a b\ntest ping\n", "x.plan").unwrap() };
            carry_out(&topology, &plan, &[]).unwrap_err().to_string()
        };
        assert!(refused(Extra { facts: true, ..Extra::default() }).contains("no such file of a kernel"));
        let wanted = [
            Extra { profile_hz: Some(99), ..Extra::default() },
            Extra { layers_every: Some(1), ..Extra::default() },
            Extra { dead_frames: true, ..Extra::default() },
        ];
        for extra in wanted {
            assert!(refused(extra).contains("are watched in labs only"), "{extra:?}");
        }
    }
}

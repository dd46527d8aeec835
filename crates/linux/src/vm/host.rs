//! The host's side of a machine: QEMU is started, heard, interrupted and ended.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use record::{Problem, Result};

use super::channel::{ALIVE, VmMessage};
use super::image::Archive;
use super::kernel::{Kernel, roots};
use super::orders::Orders;
use super::wire::Plugged;
use super::{NicModel, ORDERS, PORT, SHARED, VARIABLE, Wire, mac};
use crate::netlink::StaticRoute;
use crate::sys::{boot, process};

/// So many pairs of cards at most: each takes two places of the machine's bus.
pub const MOST_CABLES: u8 = 8;
/// So many CPUs at most.
pub const MOST_CPUS: u8 = 64;
/// What may be said of what carries a machine out ([`Accelerator::named`]).
pub const ACCELERATORS: [&str; 3] = ["auto", "kvm", "emulation"];
/// QEMU for the machines of this architecture.
const QEMU: &str = "qemu-system-x86_64";
/// Folders of QEMU's own files, below the folder of [`VARIABLE`].
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];
/// Modules that a machine needs besides that of its cards.
const NEEDED: [&str; 2] = ["9pnet_virtio", "9p"];
/// Modules that labs and settings may want; nothing loads them later. A kernel without one of them has it built in or not at all.
const WANTED: [&str; 31] = [
    "crc32c_generic",
    "veth",
    "bridge",
    "8021q",
    "bonding",
    "vxlan",
    "macvlan",
    "ipvlan",
    "tun",
    "ifb",
    "sch_fq",
    "sch_fq_codel",
    "sch_htb",
    "sch_tbf",
    "sch_netem",
    "sch_ingress",
    "sch_prio",
    "sch_mqprio",
    "cls_bpf",
    "act_bpf",
    "tcp_bbr",
    "tcp_dctcp",
    "inet_diag",
    "tcp_diag",
    "udp_diag",
    "unix_diag",
    "af_packet_diag",
    "xsk_diag",
    "nf_tables",
    "nf_conntrack",
    "nft_ct",
];
/// Programs that the lab starts.
const PROGRAMS: [&str; 1] = ["/bin/sh"];
/// What undoes the compression of a module, by the last part of its name.
const DECOMPRESSORS: [(&str, &str); 3] = [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];
/// How long a machine may take until its command begins, with KVM and without.
const START: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(120)];
/// How long nothing may be heard of one whose command has begun. The CPUs of an emulated one may stop for seconds when the host is busy.
const SILENCE: Duration = ALIVE.saturating_mul(24);
/// What helps when it does not start.
const NO_START: &str = "try another kernel (--kernel), other cards (--nic), or more memory (--memory)";
/// How long is waited for words of the machine at a time.
const TICK: Duration = Duration::from_millis(50);

/// What carries out the instructions of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The CPU itself, by the host's kernel.
    Kvm,
    /// QEMU, in software.
    Emulation,
}

impl Accelerator {
    /// That of a word of [`ACCELERATORS`]; none: KVM where a machine starts with it.
    pub fn named(word: &str) -> Option<Accelerator> {
        match word {
            "kvm" => Some(Accelerator::Kvm),
            "emulation" => Some(Accelerator::Emulation),
            _ => None,
        }
    }
}

/// Makes sure that a kernel has what a machine with cards of that model needs.
///
/// # Errors
/// Host: a module is missing.
pub fn drives(kernel: &Kernel, nic: NicModel) -> Result<()> {
    let mut modules = NEEDED.iter().chain([&nic.module]);
    match modules.find(|name| !kernel.has(name)) {
        Some(name) => {
            let what = format!("the kernel {} has no module {name}", kernel.release);
            Err(Problem::host(what).help("use another kernel (--kernel) or other cards (--nic)"))
        }
        None => Ok(()),
    }
}

/// The memory of a machine, in MB of 2^20 bytes.
///
/// # Errors
/// Input: the text is no number of bytes, or no machine has so many.
pub fn memory_mb(text: &str) -> Result<u32> {
    let bytes = record::unit::bytes(text).map_err(Problem::input)?;
    let memory_mb = u32::try_from(bytes >> 20).ok().filter(|mb| (256..=1 << 20).contains(mb));
    memory_mb.ok_or_else(|| Problem::input("the memory is from 256Mi to 1Ti"))
}

/// A virtual machine that can be started.
#[derive(Debug, Clone)]
pub struct VirtualMachine {
    /// Its kernel.
    pub kernel: Kernel,
    /// Its CPUs.
    pub cpus: u8,
    /// Its memory, in MB of 2^20 bytes.
    pub memory_mb: u32,
    /// The model of its cards.
    pub nic: NicModel,
    /// How many pairs of cards it has, each linked to each other; [`MOST_CABLES`] at most.
    pub cables: u8,
    /// Its cards whose wires lead out of it, besides; [`super::MOST_WIRES`] at most.
    pub wires: Vec<Wire>,
    /// Kernel settings that it is to have, before its cards are on: names and values.
    pub settings: Vec<(String, String)>,
    /// Routes that it is to have.
    pub routes: Vec<StaticRoute>,
    /// The node of a topology that it is to be, and the topology's text; its wires have the names of the node's ends of links.
    pub node: Option<(String, String)>,
    /// What carries it out; none: KVM where a machine starts with it.
    pub accelerator: Option<Accelerator>,
}

/// What is heard of a machine.
pub enum Heard<'a> {
    /// The command wrote this to its standard output.
    Output(&'a [u8]),
    /// The command wrote this to its standard error.
    Errors(&'a [u8]),
    /// Something about the machine that the user should know.
    Note(String),
}

/// Why a machine did not come to its command.
struct NotStarted(String);

impl VirtualMachine {
    /// Carries out a command of this program in the machine, in a folder that it shares with this host: its exit code.
    ///
    /// # Errors
    /// Host: QEMU or a module is missing, or the machine does not start, or ends before its command does.
    pub fn run(
        &self,
        folder: &Path,
        environment: Vec<(String, String)>,
        words: Vec<String>,
        hear: &mut dyn FnMut(Heard<'_>) -> Result<()>,
    ) -> Result<u8> {
        let qemu = Qemu::find()?;
        let image = self.image(folder, environment, words)?;
        let accelerators = match self.accelerator {
            Some(Accelerator::Kvm) => vec![Accelerator::Kvm],
            None if may_use_kvm() => vec![Accelerator::Kvm, Accelerator::Emulation, Accelerator::Emulation],
            // Twice: of some thirty starts of two emulated CPUs one lost the timer of the second CPU, and stood still.
            _ => vec![Accelerator::Emulation, Accelerator::Emulation],
        };
        let last = accelerators.len() - 1;
        for (at, accelerator) in accelerators.into_iter().enumerate() {
            match self.attempt(&qemu, accelerator, folder, &image, hear)? {
                Ok(code) => return Ok(code),
                Err(NotStarted(why)) if at < last => {
                    hear(Heard::Note(match accelerator {
                        Accelerator::Kvm => {
                            format!("KVM does not start this machine ({why}): it is emulated")
                        }
                        Accelerator::Emulation => {
                            format!("it is started once more, as it did not start: {why}")
                        }
                    }))?;
                }
                Err(NotStarted(why)) => {
                    let what = format!("the virtual machine did not start: {why}");
                    return Err(Problem::host(what).help(NO_START));
                }
            }
        }
        unreachable!("there is one accelerator at least")
    }

    /// The machine's first file system, in memory.
    fn image(&self, folder: &Path, environment: Vec<(String, String)>, words: Vec<String>) -> Result<File> {
        drives(&self.kernel, self.nic)?;
        let needed: Vec<&str> = NEEDED.iter().copied().chain([self.nic.module]).collect();
        let needed = self.kernel.modules_for(&needed)?;
        let mut optional = self.kernel.modules_for(&WANTED)?;
        optional.retain(|module| !needed.contains(module));
        let mut archive = Archive::default();
        ["/proc", "/sys", "/run"].iter().for_each(|folder| archive.folder(Path::new(folder)));
        archive.device(Path::new("/dev/console"), 5, 1);
        archive.device(Path::new("/dev/null"), 1, 3);
        let own =
            std::env::current_exe().map_err(|error| Problem::host(format!("no own program: {error}")))?;
        archive.file(Path::new("/init"), &read(&own)?);
        let programs = PROGRAMS.iter().map(PathBuf::from);
        let mut libraries = libraries(&own);
        for program in programs {
            libraries.extend(self::libraries(&program));
            archive.file(&program, &read(&program)?);
        }
        libraries.sort();
        libraries.dedup();
        for library in libraries {
            archive.file(&library, &read(&library)?);
        }
        let mut orders = Orders { folder: folder.to_owned(), environment, words, ..Orders::default() };
        (orders.cables, orders.settings) = (self.cables, self.settings.clone());
        (orders.routes, orders.node) = (self.routes.clone(), self.node.clone());
        let wires = self.wires.iter().enumerate();
        orders.wires = wires
            .map(|(number, wire)| (Wire::mac(number), wire.card(number), wire.addresses.clone()))
            .collect();
        for (number, module) in needed.iter().chain(&optional).enumerate() {
            let name = module.file_name().unwrap_or_default().display();
            let inside = Path::new("/modules").join(format!("{number:03}-{name}"));
            let (inside, content) = uncompressed(inside, module)?;
            archive.file(&inside, &content);
            let list = if number < needed.len() { &mut orders.modules } else { &mut orders.optional };
            list.push(inside);
        }
        archive.file(Path::new(ORDERS), &orders.write());
        let made = boot::file_in_memory("pathlab-vm-image");
        let written = made.and_then(|mut file| file.write_all(&archive.finish()).map(|()| file));
        written.map_err(|error| Problem::host(format!("no memory for the machine's file system: {error}")))
    }

    /// Starts the machine once; the command's exit code, or why it never began.
    fn attempt(
        &self,
        qemu: &Qemu,
        accelerator: Accelerator,
        folder: &Path,
        image: &File,
        hear: &mut dyn FnMut(Heard<'_>) -> Result<()>,
    ) -> Result<Result<u8, NotStarted>> {
        let no_memory = |error| Problem::host(format!("no memory for the machine's console: {error}"));
        let console = boot::file_in_memory("pathlab-vm-console").map_err(no_memory)?;
        let reconnect = if self.wires.is_empty() { "" } else { qemu.reconnect() };
        let wires = self.wires.iter().enumerate();
        let wires = wires.map(|(number, wire)| wire.plug(number, reconnect)).collect::<Result<Vec<_>>>()?;
        let mut command = qemu.command();
        command.args(self.arguments(accelerator, folder, image, &console));
        command.args(self.cards(&wires));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        process::dies_with_parent(&mut command);
        let mut child = command.spawn().map_err(|error| {
            Problem::host(format!("cannot start QEMU: {error}")).at(qemu.file.display().to_string())
        })?;
        let mut running = Running::listen(&mut child);
        let start = START[usize::from(accelerator == Accelerator::Emulation)];
        let done = running.follow([start, SILENCE], hear);
        // Nothing of it is on disk, and what its command wrote is here: there is no need to wait until it has switched itself off.
        let _ = child.kill();
        let status = child.wait();
        let code = done?;
        let last = || {
            let words = running.complaints();
            let console = last_lines(&console);
            let said = [words.trim(), console.trim()].into_iter().filter(|it| !it.is_empty());
            said.collect::<Vec<_>>().join("; ")
        };
        match code {
            Outcome::Ended(code) => Ok(Ok(code)),
            Outcome::Failed(sentence) => {
                Err(Problem::host(format!("the virtual machine: {sentence}")).help(NO_START))
            }
            Outcome::NeverBegan(why) => {
                let last = last();
                Ok(Err(NotStarted(if last.is_empty() { why } else { format!("{why}: {last}") })))
            }
            Outcome::Silent(time) => {
                let seconds = time.as_secs();
                let what =
                    format!("the virtual machine stands still: nothing was heard of it for {seconds} s");
                Err(Problem::host(what)
                    .help(format!("it was ended; try --cpus 1. Its last words: {}", last())))
            }
            Outcome::Lost => {
                let what = "the virtual machine ended before its command did";
                let how = match (last(), status.ok().and_then(|status| status.signal())) {
                    (said, Some(signal)) if said.is_empty() => format!(
                        "QEMU said nothing and got signal {signal}: from somebody, or from the kernel for want of memory"
                    ),
                    (said, _) => format!("it ended with: {said}"),
                };
                Err(Problem::host(what).help(how))
            }
        }
    }

    /// The words after `qemu-system-x86_64`.
    fn arguments(
        &self,
        accelerator: Accelerator,
        folder: &Path,
        image: &File,
        console: &File,
    ) -> Vec<String> {
        let inherited = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        // A comma ends a value unless there are two.
        let value = |path: &Path| path.display().to_string().replace(',', ",,");
        let (acceleration, cpu) = match accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            Accelerator::Emulation => ("tcg,thread=multi", "max"),
        };
        let (cpus, memory) = (self.cpus.to_string(), format!("{}M", self.memory_mb));
        let (kernel, image) = (self.kernel.file.display().to_string(), inherited(image));
        let console = format!("file:{}", inherited(console));
        let shared = format!("local,path={},mount_tag={SHARED},security_model=none", value(folder));
        let port = format!("virtserialport,chardev=channel,name={PORT}");
        let words = [
            "-machine",
            "q35",
            "-accel",
            acceleration,
            "-cpu",
            cpu,
            "-smp",
            &cpus,
            "-m",
            &memory,
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            "-rtc",
            "base=utc",
            "-kernel",
            &kernel,
            "-initrd",
            &image,
            "-append",
            "console=ttyS0 quiet panic=-1 rdinit=/init -- first-process",
            "-serial",
            &console,
            "-chardev",
            "stdio,id=channel,signal=off",
            "-device",
            "virtio-serial-pci",
            "-device",
            &port,
            "-virtfs",
            &shared,
        ];
        words.iter().map(|word: &&str| (*word).to_owned()).collect()
    }

    /// The words that give the machine its cards: the ends of its cables, then those with a wire.
    fn cards(&self, wires: &[Plugged]) -> Vec<String> {
        let ends = (0..self.cables).flat_map(|cable| [(cable, 0), (cable, 1)]);
        let ends = ends.map(|(cable, end)| {
            let id = format!("cable{cable}-{end}");
            (format!("hubport,id={id},hubid={}", cable + 1), id, mac(cable, end))
        });
        let wires = wires.iter().enumerate();
        let wires = wires.map(|(number, it)| (it.backend.clone(), Wire::id(number), Wire::mac(number)));
        let card = |(at, (backend, id, mac)): (usize, (String, String, String))| {
            // A port of its own: the virtual functions of an igb would take the places of others on the first bus.
            let slot = at + 1;
            let device = format!("{},bus=slot{slot},netdev={id},mac={mac},romfile=", self.nic.device);
            let port = format!("pcie-root-port,id=slot{slot},chassis={slot},slot={slot}");
            ["-netdev".into(), backend, "-device".into(), port, "-device".into(), device]
        };
        ends.chain(wires).enumerate().flat_map(card).collect()
    }
}

/// QEMU, and where its own files are.
struct Qemu {
    file: PathBuf,
    /// The folder of its unpacked package; none: it is installed.
    root: Option<PathBuf>,
}

impl Qemu {
    fn find() -> Result<Qemu> {
        let [unpacked @ .., _] = &roots()[..] else { unreachable!("the root is always one of them") };
        let own = unpacked.iter().map(|root| (root.join("usr/bin").join(QEMU), Some(root.clone())));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&path).map(|folder| (folder.join(QEMU), None));
        let found = own.chain(installed).find(|(file, _)| file.is_file());
        found.map(|(file, root)| Qemu { file, root }).ok_or_else(|| {
            Problem::host(format!("QEMU is not installed here: there is no {QEMU}")).help(format!(
                "install qemu-system-x86, or name the folder of its unpacked package in ${VARIABLE}"
            ))
        })
    }

    /// How it is told to call again each second where nobody answers: by another word from version 9.2 on.
    fn reconnect(&self) -> &'static str {
        let said = self.command().arg("--version").stderr(Stdio::null()).output();
        let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
        if calls_again_by_milliseconds(&said) { "reconnect-ms=1000" } else { "reconnect=1" }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        if let Some(root) = &self.root {
            let folders = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|it| root.join(it));
            command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap_or_default());
            for folder in FIRMWARE.map(|folder| root.join(folder)).iter().filter(|folder| folder.is_dir()) {
                command.arg("-L").arg(folder);
            }
        }
        command
    }
}

/// Whether a QEMU that says this of its version knows `reconnect-ms`, whose older word is `reconnect` (docs/about/deprecated.rst of QEMU 9.2).
fn calls_again_by_milliseconds(said: &str) -> bool {
    let version = said.split("version ").nth(1).unwrap_or_default();
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map_while(|it| it.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(9), Some(2))
}

/// How an attempt ended.
enum Outcome {
    /// The command ended with this exit code.
    Ended(u8),
    /// The machine could not do what it was told, and said why.
    Failed(String),
    /// The command was never begun, and why.
    NeverBegan(String),
    /// The machine was gone before the command had ended.
    Lost,
    /// Nothing was heard of it for so long.
    Silent(Duration),
}

/// A machine that is running.
struct Running {
    to: Option<ChildStdin>,
    messages: Receiver<VmMessage>,
    complaints: Arc<Mutex<String>>,
}

impl Running {
    /// Reads what QEMU and the machine say, on threads that end with it.
    fn listen(child: &mut Child) -> Running {
        let (send, messages) = mpsc::channel();
        if let Some(mut from) = child.stdout.take() {
            std::thread::spawn(move || {
                while let Ok(Some(message)) = VmMessage::read(&mut from) {
                    if send.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        let complaints = Arc::new(Mutex::new(String::new()));
        if let Some(mut from) = child.stderr.take() {
            let complaints = Arc::clone(&complaints);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = from.read(&mut buffer) {
                    let mut complaints = complaints.lock().unwrap_or_else(|broken| broken.into_inner());
                    complaints.push_str(&String::from_utf8_lossy(&buffer[..length]));
                }
            });
        }
        Running { to: child.stdin.take(), messages, complaints }
    }

    /// The first sentence of what QEMU complained about, without its warnings.
    fn complaints(&self) -> String {
        let complaints = self.complaints.lock().unwrap_or_else(|broken| broken.into_inner());
        let told = complaints.lines().find(|line| !line.contains("warning:") && !line.trim().is_empty());
        told.unwrap_or_default().trim_start_matches(&format!("{QEMU}: ")).to_owned()
    }

    /// Hears the machine until it has ended or will not begin. It has so long to begin, and may be silent for so long after that.
    fn follow(
        &mut self,
        [start, silence]: [Duration; 2],
        hear: &mut dyn FnMut(Heard<'_>) -> Result<()>,
    ) -> Result<Outcome> {
        let (since, mut has_begun, mut is_told) = (Instant::now(), false, false);
        // Counted and not measured: a process that was stopped (Ctrl-Z) has heard nothing either.
        let mut silent = Duration::ZERO;
        loop {
            let heard = self.messages.recv_timeout(TICK);
            silent = if heard.is_ok() { Duration::ZERO } else { silent + TICK };
            match heard {
                Ok(VmMessage::Ready) => has_begun = true,
                Ok(VmMessage::Output(bytes)) => hear(Heard::Output(&bytes))?,
                Ok(VmMessage::Errors(bytes)) => hear(Heard::Errors(&bytes))?,
                Ok(VmMessage::Ended(code)) => return Ok(Outcome::Ended(code)),
                Ok(VmMessage::Failed(sentence)) => return Ok(Outcome::Failed(sentence)),
                Ok(VmMessage::Interrupt | VmMessage::Alive) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if has_begun => return Ok(Outcome::Lost),
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Outcome::NeverBegan("it ended at once".into()));
                }
            }
            // A guest whose instruction KVM cannot carry out stands still.
            if self.complaints().contains("internal error") {
                return Ok(if has_begun {
                    Outcome::Lost
                } else {
                    Outcome::NeverBegan("it stands still".into())
                });
            }
            if has_begun && silent > silence {
                return Ok(Outcome::Silent(silence));
            }
            if !has_begun && since.elapsed() > start {
                let why = format!("it did not begin within {} s", start.as_secs());
                return Ok(Outcome::NeverBegan(why));
            }
            if process::interrupted() && !is_told {
                if !has_begun {
                    return Err(Problem::measured("interrupted while the virtual machine started"));
                }
                is_told = true;
                // One that does not hear it ends with this process.
                let _ = self.to.as_mut().map(|to| VmMessage::Interrupt.write(to));
            }
        }
    }
}

fn may_use_kvm() -> bool {
    OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|error| {
        Problem::host(format!("cannot read what the machine needs: {error}")).at(file.display().to_string())
    })
}

/// A module without its compression, under its name without that: an emulated CPU would take long for it (2.4 of the 14.6 s of CPU time until
/// `lab list` has ended). Where it cannot be undone here, the kernel does it.
fn uncompressed(inside: PathBuf, module: &Path) -> Result<(PathBuf, Vec<u8>)> {
    let kind = inside.extension().unwrap_or_default();
    let program = DECOMPRESSORS.iter().find(|(last, _)| kind == *last).map(|(_, program)| program);
    let said = program.and_then(|program| {
        Command::new(program)
            .args(["-dc", "--"])
            .arg(module)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()
    });
    match said {
        Some(said) if said.status.success() => Ok((inside.with_extension(""), said.stdout)),
        _ => Ok((inside, read(module)?)),
    }
}

/// The libraries of a program, as the system's own `ldd` finds them; none for a static one.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let said = Command::new("ldd").arg(program).stderr(Stdio::null()).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    said.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

/// The last lines of a machine's console.
fn last_lines(console: &File) -> String {
    let text = fs::read(format!("/proc/self/fd/{}", console.as_raw_fd())).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of which this is heard, a word every so often; then it is silent, and its port stays open.
    fn followed(words: Vec<VmMessage>, every: Duration, patience: [Duration; 2]) -> Outcome {
        let (send, messages) = mpsc::channel();
        let mut running = Running { to: None, messages, complaints: Arc::default() };
        std::thread::scope(|scope| {
            let (over, is_over) = mpsc::channel::<()>();
            scope.spawn(move || {
                for word in words {
                    std::thread::sleep(every);
                    let _ = send.send(word);
                }
                let _ = is_over.recv();
            });
            let outcome = running.follow(patience, &mut |_| Ok(())).unwrap();
            drop(over);
            outcome
        })
    }

    #[test]
    fn the_word_for_calling_again_is_that_of_the_version() {
        for (said, wanted) in [
            ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)", true),
            ("QEMU emulator version 9.2.0", true),
            ("QEMU emulator version 9.1.3", false),
            ("QEMU emulator version 8.2.2 (Debian 1:8.2.2+ds-0ubuntu1.4)", false),
            ("", false),
        ] {
            assert_eq!(calls_again_by_milliseconds(said), wanted, "{said}");
        }
    }

    #[test]
    fn a_machine_that_stands_still_is_noticed() {
        let (short, long) = (TICK * 20, Duration::from_secs(60));
        let outcome = followed(vec![], TICK, [short, long]);
        assert!(matches!(outcome, Outcome::NeverBegan(why) if why.starts_with("it did not begin within")));
        let outcome = followed(vec![VmMessage::Ready], TICK, [long, short]);
        assert!(matches!(outcome, Outcome::Silent(time) if time == short));
        // One that says every while that it is there may take as long as it likes.
        let mut words = vec![VmMessage::Ready];
        words.extend(std::iter::repeat_n(VmMessage::Alive, 8));
        words.push(VmMessage::Ended(3));
        assert!(matches!(followed(words, TICK * 4, [long, short]), Outcome::Ended(3)));
    }
}

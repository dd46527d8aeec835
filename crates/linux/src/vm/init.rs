//! The first process of a machine: mounts, modules, cards, then the command, and the end.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::channel::{ALIVE, VmMessage};
use super::orders::Orders;
use super::{ORDERS, PORT, SHARED, mac};
use crate::lab::{CABLES, Topology, become_node, write_sysctl};
use crate::netlink::{Netlink, Prefix, Refusal, StaticRoute};
use crate::sys::{boot, process};

/// What is mounted before everything else: source and kind, folder, and whether a machine can do without.
const MOUNTS: [(&str, &str, bool); 6] = [
    ("proc", "/proc", false),
    ("sysfs", "/sys", false),
    ("devtmpfs", "/dev", false),
    ("tmpfs", "/run", false),
    ("bpf", "/sys/fs/bpf", true),
    ("tracefs", "/sys/kernel/tracing", true),
];
/// How long cards and the serial port may take to appear.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a pause is between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long words of the command are waited for when it has ended.
const REST: Duration = Duration::from_secs(1);

/// What bytes of the command become.
type Kind = fn(Vec<u8>) -> VmMessage;
/// The serial port, on which several threads write.
type Port = Arc<Mutex<File>>;

/// Does all that a machine is there for, and switches it off; returns only why that failed.
pub fn first_process() -> io::Error {
    match begin() {
        Ok(port) => {
            if let Err(sentence) = work(&port) {
                say(&port, &VmMessage::Failed(sentence));
            }
            boot::power_off()
        }
        Err(error) => error,
    }
}

fn say(port: &Port, message: &VmMessage) {
    let mut port = port.lock().unwrap_or_else(|broken| broken.into_inner());
    // Nobody listens any more: the machine ends.
    let _ = message.write(&mut *port);
}

/// Mounts what there is, and opens the serial port.
fn begin() -> io::Result<Port> {
    for (kind, folder, is_optional) in MOUNTS {
        match boot::mount_at(kind, Path::new(folder), kind, "") {
            Err(error) if !is_optional => return Err(error),
            _ => {}
        }
    }
    let since = Instant::now();
    loop {
        if let Some(name) = port_name() {
            let opened = OpenOptions::new().read(true).write(true).open(Path::new("/dev").join(name));
            if let Ok(port) = opened {
                return Ok(Arc::new(Mutex::new(port)));
            }
        }
        if since.elapsed() > PATIENCE {
            return Err(io::Error::other("the serial port of the host did not appear"));
        }
        std::thread::sleep(LOOK);
    }
}

/// The device with the name that the host gave it (`/sys/class/virtio-ports`).
fn port_name() -> Option<String> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?.flatten();
    let is_it = |folder: &PathBuf| fs::read_to_string(folder.join("name")).is_ok_and(|it| it.trim() == PORT);
    let found = entries.map(|entry| entry.path()).find(is_it)?;
    Some(found.file_name()?.to_string_lossy().into_owned())
}

/// Carries out the command, and tells the host how it ended.
fn work(port: &Port) -> Result<(), String> {
    let orders = fs::read(ORDERS).map_err(|error| format!("cannot read what to do: {error}"))?;
    let orders = Orders::read(&orders);
    for module in &orders.modules {
        let told = |error: io::Error| format!("the kernel does not load {}: {error}", module.display());
        boot::load_module(module).map_err(told)?;
    }
    // Whoever wants one of these is told that the kernel has no such thing.
    orders.optional.iter().for_each(|module| drop(boot::load_module(module)));
    let told = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    fs::write("/proc/sys/kernel/hostname", "pathlab-vm").map_err(told("cannot set the host's name"))?;
    Netlink::open().set_up(1).map_err(|refusal| format!("cannot switch on lo: {refusal}"))?;
    let shared = boot::mount_at(SHARED, &orders.folder, "9p", "trans=virtio,version=9p2000.L,msize=262144");
    shared.map_err(told("cannot mount the shared folder"))?;
    boot::protect_root().map_err(told("cannot make the first file system one that is only read"))?;
    let cables = cables(orders.cables)?;
    settings(&orders.settings)?;
    let made = match &orders.node {
        Some((name, topology)) => node(name, topology, &orders.wires)?,
        None => wires(&orders.wires).map(Ok)?,
    };
    routes(&orders.routes)?;
    say(port, &VmMessage::Ready);
    if let Err(problem) = made {
        say(port, &VmMessage::Errors(format!("pathlab: {problem}\n").into_bytes()));
        say(port, &VmMessage::Ended(problem.kind.exit_code()));
        return Ok(());
    }
    let code = carry_out(port, &orders, &cables).map_err(told("cannot carry out the command"))?;
    say(port, &VmMessage::Ended(code));
    Ok(())
}

/// Waits for the cards: the names of each pair, as [`CABLES`] has them.
fn cables(wanted: u8) -> Result<String, String> {
    let since = Instant::now();
    loop {
        let cards = cards();
        let pair = |cable| [0, 1].map(|end| cards.get(&mac(cable, end)));
        let pairs = (0..wanted).map_while(|cable| match pair(cable) {
            [Some((_, a)), Some((_, b))] => Some(format!("{a}:{b}")),
            _ => None,
        });
        let pairs: Vec<String> = pairs.collect();
        if pairs.len() == usize::from(wanted) {
            return Ok(pairs.join(","));
        }
        if since.elapsed() > PATIENCE {
            return Err(format!("of {wanted} pairs of cards only {} appeared", pairs.len()));
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits for the card of a wire: its number.
fn card((mac, name, _): &(String, String, Vec<Prefix>)) -> Result<u32, String> {
    let since = Instant::now();
    loop {
        if let Some((index, _)) = cards().remove(mac) {
            return Ok(index);
        }
        if since.elapsed() > PATIENCE {
            return Err(format!("the card of {name} did not appear"));
        }
        std::thread::sleep(LOOK);
    }
}

/// Makes this machine a node of a topology; or what it says of that, as a command would: a setting that this kernel has not is no fault of the machine.
fn node(
    name: &str,
    topology: &str,
    wires: &[(String, String, Vec<Prefix>)],
) -> Result<record::Result<()>, String> {
    let cards = wires.iter().map(|wire| Ok((wire.1.clone(), card(wire)?)));
    let cards = cards.collect::<Result<Vec<_>, String>>()?;
    let topology = Topology::parse(topology, "topology");
    Ok(topology.and_then(|topology| become_node(&topology, name, &cards)))
}

/// Gives the cards whose wires lead out their names and addresses, and switches them on.
fn wires(wanted: &[(String, String, Vec<Prefix>)]) -> Result<(), String> {
    for wire in wanted {
        let (index, (_, name, addresses)) = (card(wire)?, wire);
        let refused = |refusal: Refusal| format!("cannot set up {name}: {refusal}");
        let mut netlink = Netlink::open();
        netlink.set_name(index, name).map_err(refused)?;
        netlink.set_up(index).map_err(refused)?;
        addresses.iter().try_for_each(|it| netlink.add_address(index, *it)).map_err(refused)?;
    }
    Ok(())
}

/// Makes kernel settings.
fn settings(wanted: &[(String, String)]) -> Result<(), String> {
    wanted.iter().try_for_each(|(key, value)| {
        write_sysctl(key, value).map_err(|error| format!("cannot set {key}={value}: {error}"))
    })
}

/// Adds routes.
fn routes(wanted: &[StaticRoute]) -> Result<(), String> {
    let mut netlink = Netlink::open();
    wanted.iter().try_for_each(|route| {
        netlink.add_route(route).map_err(|refusal| format!("cannot add the route {route}: {refusal}"))
    })
}

/// The interfaces of this machine by their hardware addresses: numbers and names.
fn cards() -> BTreeMap<String, (u32, String)> {
    let links = Netlink::open().links().unwrap_or_default();
    let text = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    links.into_iter().filter_map(|link| Some((text(link.address?), (link.index, link.name)))).collect()
}

/// Starts this program again with the words of the command, and sends on what it says.
fn carry_out(port: &Port, orders: &Orders, cables: &str) -> io::Result<u8> {
    let mut command = Command::new("/init");
    command.args(&orders.words).current_dir(&orders.folder).env_clear();
    command.envs(orders.environment.iter().map(|(name, value)| (name, value))).env(CABLES, cables);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (ended, ends) = mpsc::channel();
    let from: [(Option<Box<dyn Read + Send>>, Kind); 2] = [
        (child.stdout.take().map(|it| Box::new(it) as _), VmMessage::Output),
        (child.stderr.take().map(|it| Box::new(it) as _), VmMessage::Errors),
    ];
    for (from, message) in from {
        let (port, ended) = (Arc::clone(port), ended.clone());
        std::thread::spawn(move || {
            if let Some(mut from) = from {
                relay(&mut *from, &port, message);
            }
            let _ = ended.send(());
        });
    }
    let is_interrupted = Arc::new(AtomicBool::new(false));
    listen(port, &is_interrupted)?;
    let mut told = Instant::now();
    let status = loop {
        if told.elapsed() > ALIVE {
            told = Instant::now();
            say(port, &VmMessage::Alive);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if is_interrupted.swap(false, Ordering::Relaxed) {
            process::interrupt(&child)?;
        }
        std::thread::sleep(LOOK);
    };
    // What it started and left behind may hold the other end.
    let until = Instant::now() + REST;
    for _ in 0..2 {
        let _ = ends.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

fn relay(from: &mut dyn Read, port: &Port, message: Kind) {
    let mut buffer = [0; 16 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => say(port, &message(buffer[..length].to_vec())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Hears what the host says, on a thread that ends with the machine.
fn listen(port: &Port, is_interrupted: &Arc<AtomicBool>) -> io::Result<()> {
    let mut from = port.lock().unwrap_or_else(|broken| broken.into_inner()).try_clone()?;
    let is_interrupted = Arc::clone(is_interrupted);
    std::thread::spawn(move || {
        while let Ok(Some(message)) = VmMessage::read(&mut from) {
            if message == VmMessage::Interrupt {
                is_interrupted.store(true, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}

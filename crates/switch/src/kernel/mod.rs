//! Rules in the kernel: what a port's thread never sees.
//!
//! **What.** A [`KernelEngine`] stands before the ports of a switch. [`KernelEngine::make`] compiles a pipeline to a program of the kernel
//! and loads it; [`KernelEngine::fill`] puts it into use for all ports by one step, [`KernelEngine::withdraw`] takes it out, waits
//! until no run of it is under way, and hands over what it counted. What the program does not do for a frame goes to user space, where
//! the engine of the port's thread does it, with the same rules.
//!
//! **Why beside the engines of user space.** A program of the kernel cannot ask a controller, and is compiled in milliseconds and not in
//! microseconds. So it is an addition: there while rules are at rest, gone before they change.
//!
//! **Price.** Each change of rules that finds a program in use waits for a grace period of the kernel (8 to 16 ms). Frames that are forwarded
//! in the kernel can overtake some that came before and wait for user space.

mod loaded;
mod residence;
mod verify;

pub use loaded::LoadedProgram;
pub(crate) use residence::Residence;

use crate::shadow::Divergence;
use flow::pipeline::Pipeline;
use flow::port::PortNo;
pub use jit::kernel::Hook;
use jit::kernel::{KernelPort, Surroundings};
use linux::port::live::PassingProgram;
use linux::port::{Direction, PortOptions, ProgramSlot, Receiver, Transmitter, open, tcx, xdp};
use linux::sys::bpf::{self, Map};
use record::{PortSetting, Problem, Result};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

/// Receive queues of an interface that an AF_XDP port can have.
const QUEUES: u32 = 1024;

/// Where the rules of a switch run besides user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelWish {
    /// There.
    At(Hook),
    /// At tcx, where that goes.
    Auto,
}

impl KernelWish {
    fn hook(self) -> Hook {
        match self {
            KernelWish::At(hook) => hook,
            KernelWish::Auto => Hook::Tcx,
        }
    }
}

/// Why there is no program.
pub(crate) enum Refusal {
    /// It cannot be made: why.
    Cannot(String),
    /// It and the interpreter disagree.
    Diverged(Divergence),
}

/// A port that the kernel serves. Its place in the list of them is its index.
struct ServedPort {
    number: PortNo,
    interface: u32,
    /// Holds a program at the other end of a veth, which redirected frames need.
    peer: Option<PassingProgram>,
}

/// What stands before the ports of a switch.
pub(crate) struct KernelEngine {
    hook: Hook,
    slot: Arc<ProgramSlot>,
    served: Mutex<Vec<ServedPort>>,
    /// The way from the kernel to user space, by index: of a tap, or of a socket and its queue.
    userspace: Arc<Map>,
}

/// Both ends of a port that the kernel serves, and what took effect.
pub(crate) type Entered = (Box<dyn Receiver>, Box<dyn Transmitter>, Vec<PortSetting>);

impl KernelEngine {
    /// For a switch with so many ports.
    ///
    /// # Errors
    /// Host: why the kernel, or this user, cannot.
    pub(crate) fn new(wish: KernelWish, ports: usize) -> Result<KernelEngine> {
        let refused = |what: &str, e: io::Error| {
            let problem = Problem::host(format!("cannot {what}: {e}"));
            match e.raw_os_error() {
                Some(1) => problem.help("this needs root, or CAP_BPF and CAP_NET_ADMIN"),
                _ => problem,
            }
        };
        let hook = wish.hook();
        let slot = ProgramSlot::new().map_err(|e| refused("make a place for a program of the kernel", e))?;
        let (kind, entries) = match hook {
            Hook::Xdp => (bpf::MAP_XSK, ports.max(1) as u32 * QUEUES),
            Hook::Tcx => (bpf::MAP_ARRAY, ports.max(1) as u32),
        };
        let userspace =
            Map::create(kind, 4, 4, entries, "pathlab_user").map_err(|e| refused("make a map", e))?;
        let (slot, userspace) = (Arc::new(slot), Arc::new(userspace));
        Ok(KernelEngine { hook, slot, served: Mutex::default(), userspace })
    }

    /// Whether it can serve a port of this name.
    pub(crate) fn serves(&self, uri: &str) -> bool {
        let kind = uri.split(':').next().unwrap_or_default();
        match self.hook {
            Hook::Xdp => kind == "xdp",
            Hook::Tcx => kind == "int" || kind == "ring",
        }
    }

    /// The kinds of ports that it serves, in words.
    pub(crate) fn kinds(&self) -> &'static str {
        match self.hook {
            Hook::Xdp => "xdp:",
            Hook::Tcx => "int: and ring:",
        }
    }

    /// Where it runs.
    pub(crate) fn hook(&self) -> Hook {
        self.hook
    }

    /// Whether it serves any port.
    pub(crate) fn has_ports(&self) -> bool {
        !locked(&self.served).is_empty()
    }

    /// Opens a port and stands before it.
    ///
    /// # Errors
    /// As [`open`] and [`tcx::open`]; nothing is in the way of opening the port without this then.
    pub(crate) fn enter(&self, number: PortNo, uri: &str, name: &str, wish: &PortOptions) -> Result<Entered> {
        match self.hook {
            Hook::Xdp => self.enter_xdp(number, uri, name, wish),
            Hook::Tcx => self.enter_tcx(number, uri, name, wish),
        }
    }

    fn enter_tcx(&self, number: PortNo, uri: &str, name: &str, wish: &PortOptions) -> Result<Entered> {
        let only_out = PortOptions { direction: Direction::Transmit, ..wish.clone() };
        let port = open(uri, &only_out)?;
        let entrance = tcx::open(name, uri, &self.slot, wish)?;
        let transmitter =
            port.transmitter.ok_or_else(|| Problem::input("this port cannot transmit").at(uri))?;
        let at = self.register(ServedPort { number, interface: entrance.interface, peer: None });
        self.lead(at, entrance.tap, uri)?;
        Ok((entrance.receiver, transmitter, [port.settings, entrance.settings].concat()))
    }

    fn enter_xdp(&self, number: PortNo, uri: &str, name: &str, wish: &PortOptions) -> Result<Entered> {
        // While the program of the former time is there, the other end needs no other one, and it would have none once that goes.
        self.let_go_of_peer(number);
        let (peer, note) = xdp::takes_redirected(name, uri)?;
        let port = open(uri, &PortOptions { slot: Some(self.slot.clone()), ..wish.clone() })?;
        let both = port.receiver.zip(port.transmitter);
        let (receiver, transmitter) =
            both.ok_or_else(|| Problem::input("this port cannot do both").at(uri))?;
        let queue = port.settings.iter().find(|setting| setting.name == "queue");
        let queue = queue.and_then(|setting| setting.effective.parse::<u32>().ok()).unwrap_or(0);
        let interface = linux::netlink::Netlink::open().links().unwrap_or_default();
        let interface = interface.iter().find(|link| link.name == name).map_or(0, |link| link.index);
        let Some(socket) = receiver.descriptor().map(|fd| fd.as_raw_fd() as u32) else {
            return Err(Problem::host("there is no socket to hand frames to").at(uri));
        };
        let at = self.register(ServedPort { number, interface, peer });
        self.lead(at * QUEUES + queue, socket, uri)?;
        let redirected =
            PortSetting { name: "redirected".into(), asked: String::new(), effective: "taken".into(), note };
        let settings = [port.settings, vec![redirected]].concat();
        Ok((receiver, transmitter, settings))
    }

    /// Takes the program away that a port which was served before holds at the other end of its veth.
    fn let_go_of_peer(&self, number: PortNo) {
        let mut served = locked(&self.served);
        served.iter_mut().filter(|port| port.number == number).for_each(|port| port.peer = None);
    }

    /// The index of a port.
    fn register(&self, port: ServedPort) -> u32 {
        let mut served = locked(&self.served);
        let known = served.iter().position(|other| other.number == port.number);
        let at = known.unwrap_or(served.len());
        match known {
            Some(at) => served[at] = port,
            None => served.push(port),
        }
        at as u32
    }

    /// Says where the frames go that user space is to have.
    fn lead(&self, key: u32, value: u32, uri: &str) -> Result<()> {
        let lead = self.userspace.update(&key.to_ne_bytes(), &value.to_ne_bytes());
        lead.map_err(|e| Problem::host(format!("cannot hand frames to user space: {e}")).at(uri))
    }

    /// Compiles a pipeline, loads the program and compares it with the interpreter, without putting it into use.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn make(&self, pipeline: &Pipeline) -> std::result::Result<LoadedProgram, Refusal> {
        let served = locked(&self.served);
        let ports = served.iter().map(|port| KernelPort { number: port.number, interface: port.interface });
        let around = Surroundings { hook: self.hook, ports: ports.collect(), queues: QUEUES };
        drop(served);
        let program = jit::kernel::compile(pipeline, &around);
        let program = program.map_err(|refused| Refusal::Cannot(refused.to_string()))?;
        let loaded = LoadedProgram::load(program, Some(self.userspace.clone()));
        let mut loaded = loaded.map_err(Refusal::Cannot)?;
        loaded.compared = match verify::compare(&loaded, pipeline) {
            Ok(compared) => Ok(compared.map_err(Refusal::Diverged)?),
            Err(error) => Err(format!("the kernel runs it on no frame of ours: {error}")),
        };
        let begun = loaded.begin();
        begun.map_err(|error| Refusal::Cannot(format!("its counters cannot be read: {error}")))?;
        Ok(loaded)
    }

    /// Puts a program into use.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn fill(&self, program: &LoadedProgram) -> io::Result<()> {
        self.slot.fill(program.descriptor())
    }

    /// Takes the program out of use. What it counted until then is its own to tell.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn withdraw(&self) -> io::Result<()> {
        self.slot.empty()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    crate::shared::locked(mutex)
}

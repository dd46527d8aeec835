//! Programs of the kernel, run on frames from memory.
//!
//! **What.** A [`KernelProgram`] is loaded as the switch loads it ([`LoadedProgram`]) and run by `BPF_PROG_TEST_RUN`; [`Interfaces`] are what frames come
//! in by and leave by, in a namespace of their own. [`cost`] is what a frame costs.
//!
//! **Why.** The kernel runs the program as it would run it in front of a driver, gives the frame back, and times it; no frame leaves.
//!
//! **Price.** What is redirected is not sent, so the time is the program's alone.

use super::pipelines::{FRAME, FlowHeader};
use ::switch::kernel::LoadedProgram;
use flow::{Pipeline, PortNo};
use jit::kernel::{Hook, KernelCounters, KernelPort, KernelProgram, PortWord, Surroundings, compile};
use linux::netlink::Netlink;
use linux::netlink::link::NewLink;
use linux::sys::bpf::TestRun;
use linux::sys::{clock, netns};
use record::{Problem, Result};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Interfaces in a namespace of their own, loopback the first of them; they go with it.
#[derive(Debug)]
pub struct Interfaces {
    namespace: OwnedFd,
    /// Their indices.
    pub indices: Vec<u32>,
}

impl Interfaces {
    /// Makes so many.
    ///
    /// # Errors
    /// Host: no namespace or no veth can be made.
    pub fn make(count: usize) -> Result<Interfaces> {
        let namespace = netns::create().map_err(refused)?;
        let made = netns::within(namespace.as_fd(), || veths(count as u32)).and_then(|made| made);
        made.map_err(refused)?;
        Ok(Interfaces { namespace, indices: (1..=count as u32).collect() })
    }

    /// Does something on a thread in the namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        netns::within(self.namespace.as_fd(), work)
    }
}

fn refused(error: io::Error) -> Problem {
    Problem::host(format!("cannot make interfaces for programs of the kernel: {error}"))
        .help("this needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN")
}

/// Pairs of veths from index 2 on, both ends here.
fn veths(most: u32) -> io::Result<()> {
    let mut netlink = Netlink::open();
    let own = netns::current()?;
    for index in (2..=most).step_by(2) {
        let names = [format!("e{index}"), format!("e{}", index + 1)];
        let link = |at: usize| NewLink { index: index + at as u32, name: &names[at], ..NewLink::default() };
        let made = netlink.create_veth(&link(0), &link(1), own.as_fd());
        made.map_err(|refusal| io::Error::other(refusal.to_string()))?;
    }
    Ok(())
}

/// Compiles a pipeline for ports of these numbers, which are these interfaces.
///
/// # Errors
/// Host: the compiler refused.
pub fn compiled(
    pipeline: &Pipeline,
    hook: Hook,
    numbers: &[u32],
    interfaces: &[u32],
) -> Result<KernelProgram> {
    let ports = numbers.iter().zip(interfaces);
    let ports =
        ports.map(|(number, interface)| KernelPort { number: PortNo(*number), interface: *interface });
    let around = Surroundings { hook, ports: ports.collect(), queues: 1 };
    compile(pipeline, &around).map_err(|refused| Problem::host(refused.to_string()))
}

/// Loads a program that leads nowhere.
///
/// # Errors
/// Host: `bpf(2)` is refused, or the verifier refuses the program.
pub fn loaded(made: KernelProgram) -> Result<LoadedProgram> {
    LoadedProgram::load(made, None)
        .map_err(|what| Problem::host(what).help("this needs root, or CAP_BPF and CAP_NET_ADMIN"))
}

/// Runs a program on a frame of an interface that is no port.
fn pass(loaded: &LoadedProgram, frame: &[u8]) -> io::Result<TestRun> {
    let beyond = loaded.program.ports.iter().map(|port| port.interface).max().unwrap_or(0) + 1;
    loaded.run(beyond, frame, 0, 1)
}

/// Part of the frames since then that went to user space.
fn exits(loaded: &LoadedProgram, before: &KernelCounters) -> io::Result<f64> {
    let now = loaded.read_ports()?;
    let since = |word| {
        let ports = 0..loaded.program.ports.len();
        ports.map(|index| now.port(index, word) - before.port(index, word)).sum::<u64>() as f64
    };
    let (done, exits) = (since(PortWord::Done), since(PortWord::Exits));
    Ok(exits / (done + exits).max(1.0))
}

/// Runs of one frame in one call. The kernel changes its code for a program that it runs more than once, which takes milliseconds.
const REPEAT: u32 = 100_000;

/// Nanoseconds of the program per frame, for some milliseconds, in the namespace of its interfaces; and the part of frames that left it to user
/// space. The clock and the call cost something, too: a run that lets a frame of no port pass at once is taken off.
///
/// Of one flow whose frame stays as it is, one call runs the frame again and again. Else each frame is a call, so that no frame is one that
/// was edited before; the program then finds the caches as a system call left them.
///
/// # Errors
/// What the kernel says.
pub fn cost(
    loaded: &LoadedProgram,
    headers: &[FlowHeader],
    flows: u64,
    milliseconds: u64,
) -> io::Result<(f64, f64)> {
    let headers = &headers[..headers.len().min(flows as usize)];
    let before = loaded.read_ports()?;
    let (mut spent, mut frames, mut empty) = (0u64, 0u64, 0u64);
    let begun = clock::monotonic_ns();
    let mut flow = 0;
    for header in headers.iter().cycle() {
        let mut frame = [0; FRAME];
        let port = header.write(flow, &mut frame) as usize;
        flow = if flow + 1 == flows { 0 } else { flow + 1 };
        let interface = loaded.program.ports[port - 1].interface;
        let run = loaded.run(interface, &frame, 0, 1)?;
        if flows == 1 && run.frame == frame {
            let hot = loaded.run(interface, &frame, 0, REPEAT)?;
            return Ok((f64::from(hot.ns), exits(loaded, &before)?));
        }
        (spent, frames) = (spent + u64::from(run.ns), frames + 1);
        empty += u64::from(pass(loaded, &frame)?.ns);
        if clock::monotonic_ns() - begun > milliseconds * 1_000_000 {
            break;
        }
    }
    Ok(((spent as f64 - empty as f64) / frames.max(1) as f64, exits(loaded, &before)?))
}

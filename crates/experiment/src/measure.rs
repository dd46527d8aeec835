//! One test in the lab: two agents, one path, one watch.

use crate::process::this_program;
use crate::unconnected;
use crate::watch::{Depth, TestObservation, TestObserver};
use linux::lab::{Lab, Node};
use linux::observe::{Actor, Observer};
use linux::sys::process::ProcessIdentity;
use load::{AgentLink, Outcome};
use record::{Path, Problem, Result, TestSpec};
use std::net::IpAddr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often to look whether this process was asked to end.
const LOOK: Duration = Duration::from_millis(20);

/// How long an agent may take to end after its link was closed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The way of its frames, what both ends saw, and what was read around it.
pub type Measured = (Path, Outcome, TestObservation);

/// Runs one test: the way of its frames, what both ends saw, and what was read around it, to that depth.
///
/// # Errors
/// What stopped it: a dead agent, a host that cannot, an interrupt.
pub fn test(lab: &Lab, observer: &mut Observer, spec: &TestSpec, depth: Depth) -> Result<Measured> {
    if linux::sys::process::interrupted() {
        return Err(interrupted());
    }
    let (from, to) = (lab.node(&spec.from)?, lab.node(&spec.to)?);
    let address = address(lab, &spec.to, spec.family)?;
    let path = round_trip(lab, spec)?;
    let (mut sender, mut receiver) = (start(from)?, start(to)?);
    let actor = |pid, role: &str, node: &str| Actor { pid, role: role.into(), node: node.into() };
    let agents = [sender.pid(), receiver.pid()];
    let mut actors = vec![actor(agents[0], "sender", &spec.from), actor(agents[1], "receiver", &spec.to)];
    actors.extend(lab.programs().iter().map(|one| actor(one.process.pid, &one.role, &one.node)));
    let mut watch = TestObserver::new(lab, spec, observer, actors, depth)?;
    let outcome = carry_out(spec, [&mut sender, &mut receiver], address, &mut watch);
    let outcome = outcome.map_err(|problem| match watch.lost_connecting() {
        Some(drops) => unconnected::explain(problem, lab, spec, &drops),
        None => problem,
    })?;
    let mut seen = watch.seen;
    let ended = lab.programs().iter().filter(|program| !program.alive());
    seen.ended.extend(ended.map(|program| {
        format!("the {} of node {} ended: {}", program.role, program.node, program.last_words())
    }));
    Ok((path, outcome, seen))
}

/// The address of a node.
///
/// # Errors
/// Input: its topology gives it none of this family. Host: somebody has taken it away.
pub fn address(lab: &Lab, node: &str, family: u8) -> Result<IpAddr> {
    let mut interfaces = lab.topology().interfaces(node);
    lab.address_of(node, family).ok_or_else(|| {
        match interfaces.any(|interface| interface.has_family(family)) {
            true => Problem::host(format!("node '{node}' has lost its IPv{family} address")).help(
                "an interface of it is gone or was changed since the lab was built: build the lab again",
            ),
            false => Problem::input(format!("node '{node}' has no IPv{family} address"))
                .help("give one of its interfaces an address in the topology"),
        }
    })
}

/// The way there, and back for kinds that have responses or acknowledgements.
fn round_trip(lab: &Lab, spec: &TestSpec) -> Result<Path> {
    let mut path = lab.path(&spec.from, &spec.to, spec.family)?;
    if spec.kind.is_round_trip() || spec.kind.is_tcp() {
        path.back = lab.path(&spec.to, &spec.from, spec.family)?.forward;
    }
    Ok(path)
}

/// Carries a test out between two agents, the sender first. When this process is asked to end meanwhile, both are ended, and
/// with them the test.
///
/// # Errors
/// What stopped it: a dead agent, a host that cannot, an interrupt.
pub fn carry_out(
    spec: &TestSpec,
    [sender, receiver]: [&mut AgentProcess; 2],
    address: IpAddr,
    observer: &mut dyn load::Observer,
) -> Result<Outcome> {
    let outcome = interruptible(&[sender.pid(), receiver.pid()], || {
        load::conversation::controller::run(spec, &mut sender.link, &mut receiver.link, address, observer)
    });
    // The agents were ended with it: that they died is then not the news.
    if linux::sys::process::interrupted() { Err(interrupted()) } else { outcome }
}

/// Does something long. When this process is asked to end meanwhile, the agents are ended, and with them the test.
pub fn interruptible<T>(agents: &[u32], work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if linux::sys::process::interrupted() {
                    let alive = agents.iter().filter_map(|pid| ProcessIdentity::of(*pid).ok());
                    alive.for_each(|agent| drop(agent.end(PATIENCE)));
                    return;
                }
                std::thread::sleep(LOOK);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn interrupted() -> Problem {
    Problem::input("interrupted").help("the lab is taken down")
}

/// An agent and the process that it is; ends with this value. The link is dropped first: that tells the agent to end.
pub struct AgentProcess {
    /// The control connection.
    pub link: AgentLink,
    process: Process,
}

impl AgentProcess {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

struct Process(Child);

impl Drop for Process {
    /// The agent ends by itself when its link closes; one that does not is ended.
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts an agent inside a node.
pub fn start(node: &Node) -> Result<AgentProcess> {
    agent(node.command(this_program()?)).map_err(|problem| problem.at(format!("node {}", node.name())))
}

/// Starts an agent where this process is.
///
/// # Errors
/// Host: it cannot be started.
pub fn start_here() -> Result<AgentProcess> {
    agent(Command::new(this_program()?))
}

fn agent(mut command: Command) -> Result<AgentProcess> {
    command.arg("agent");
    let (link, child) = load::conversation::spawn(command)?;
    Ok(AgentProcess { link, process: Process(child) })
}

//! Runs one test between two agents: the sockets and the clock around [`crate::protocol::controller`].

use super::link::AgentLink;
use crate::kind::check_spec;
use crate::protocol::controller::{Action, Controller, Event, Look};
use crate::protocol::message::{FactsWindow, Observe, Reply, Request, name};
use crate::protocol::setup::{ClockRelation, DataPorts, EndRole, Outcome, Setup};
use linux::sys::{clock, socket};
use record::spec::TestSpec;
use record::{HostObservation, Problem, Result};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a host may take to begin to observe, or to tell, in nanoseconds: each of its interfaces gets two programs.
const OBSERVE_NS: u64 = 30_000_000_000;

/// How often it is looked whether the test is to end: a signal may come to another thread than the one that waits.
const INTERRUPT: Duration = Duration::from_millis(200);

/// Whoever reads counters around a test.
pub trait Observer {
    /// The receiver is ready, and the sender is about to reach it for the first time; its ports are not known yet.
    fn connecting(&mut self, _ports: &DataPorts) -> Result<()> {
        Ok(())
    }

    /// Both ends are ready and the path is warm; nothing of the test was sent yet. Its messages will carry that stream.
    fn before(&mut self, _ports: &DataPorts, _stream: u8) -> Result<()> {
        Ok(())
    }

    /// The end whose host is to observe, too.
    fn far_end(&self) -> Option<EndRole> {
        None
    }

    /// Whether the test is to end with what was sent until now.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// When that host is to take what the doctor judges, where it observes and that is wanted.
    fn wants_facts(&self) -> Option<FactsWindow> {
        None
    }

    /// Whoever observes does; the sender is told to start.
    fn starting(&mut self) {}

    /// What that host saw, or why it tells nothing.
    fn told(&mut self, _seen: Result<HostObservation>) {}

    /// The sender is done. Returns when the counters are quiet, or for whoever reads none after a moment: what was on the way when
    /// the sender ended is read by the receiver before it stops, and that takes one wait.
    fn settled(&mut self) -> Result<()> {
        clock::sleep_until(clock::monotonic_ns() + 100_000_000);
        Ok(())
    }

    /// Both ends have reported; their sockets are still open.
    fn after(&mut self) -> Result<()> {
        Ok(())
    }
}

/// An observer that sees nothing, for tests whose machines are not observed.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// Runs one test. The receiver's count is the result; `receiver_address` is where the sender sends to.
///
/// On an error the agents that still answer have closed their end, and their links can be used for the next test.
pub fn run(
    spec: &TestSpec,
    sender: &mut AgentLink,
    receiver: &mut AgentLink,
    receiver_address: IpAddr,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    check_spec(spec)?;
    // A reply that is still to come is one of a test that was given up.
    (sender.waiting, receiver.waiting) = (false, false);
    let clock = relate_clocks(sender, receiver)?;
    let names = [sender.peer.clone(), receiver.peer.clone()];
    let token = clock::monotonic_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    let (role, address) = (EndRole::Receiver, receiver_address);
    let setup = Setup { role, spec: spec.clone(), address, port: 0, token, clock };
    let (mut controller, first) = Controller::begin(setup, names, clock::monotonic_ns());
    let mut todo = VecDeque::from(first);
    let mut links = [sender, receiver];
    let mut interrupted = false;
    loop {
        while let Some(action) = todo.pop_front() {
            let event = match action {
                Action::Send(role, request) => {
                    links[role as usize].send(request).err().map(|why| Event::Lost(role, why))
                }
                Action::Look(look) => {
                    let looked = look_at(look, &controller, token, observer);
                    let looked =
                        looked.and_then(|()| look_there(look, &mut links, &controller, token, observer));
                    if look == Look::Before && looked.is_ok() {
                        observer.starting();
                    }
                    Some(Event::Looked(looked))
                }
                Action::Done(outcome) => return Ok(*outcome),
                Action::Failed(problem) => return Err(problem),
            };
            todo.extend(event.into_iter().flat_map(|event| controller.handle(clock::monotonic_ns(), event)));
        }
        let event = wait(&mut links, controller.deadline_ns(), || !interrupted && observer.is_interrupted());
        interrupted |= matches!(event, Event::Interrupted);
        todo.extend(controller.handle(clock::monotonic_ns(), event));
    }
}

fn look_at(look: Look, controller: &Controller, token: u8, observer: &mut dyn Observer) -> Result<()> {
    match look {
        Look::Connecting => observer.connecting(controller.ports()),
        Look::Before => observer.before(controller.ports(), token),
        Look::Settled => observer.settled(),
        Look::After => observer.after(),
    }
}

/// Lets the host of an end observe, where that is wanted: before the test and after it.
fn look_there(
    look: Look,
    links: &mut [&mut AgentLink; 2],
    controller: &Controller,
    stream: u8,
    observer: &mut dyn Observer,
) -> Result<()> {
    let Some(far) = observer.far_end() else { return Ok(()) };
    let link = &mut *links[far as usize];
    let request = match look {
        Look::Before => {
            let (ports, facts) = (controller.ports().clone(), observer.wants_facts());
            Request::Observe(Observe { ports, stream, spec: None, facts })
        }
        Look::After => Request::Observed,
        Look::Connecting | Look::Settled => return Ok(()),
    };
    match asked_to_observe(link, request)? {
        Ok(None) => {}
        Ok(Some(seen)) => observer.told(Ok(*seen)),
        Err(refused) => observer.told(Err(refused)),
    }
    Ok(())
}

/// What a host answers that is to observe, or to tell what it saw: nothing yet, that, or why it does not.
fn asked_to_observe(link: &mut AgentLink, request: Request) -> Result<Result<Option<Box<HostObservation>>>> {
    match link.exchange(request, OBSERVE_NS) {
        Ok(Reply::Observing) => Ok(Ok(None)),
        Ok(Reply::Observation(seen)) => Ok(Ok(Some(seen))),
        Ok(Reply::Failed(failure)) => Ok(Err(Problem::from(&failure))),
        Ok(other) => {
            let what = format!("{} answered '{}' when asked to observe", link.peer, name(&other));
            Err(Problem::input(what))
        }
        Err(why) => Err(Problem::measured(format!("{} {why} when asked to observe", link.peer))),
    }
}

/// A host between the two ends of a test, which is to observe it. It neither sends nor receives, and a test does not fail because of it.
pub struct ViaLink {
    /// Its name.
    pub name: String,
    link: AgentLink,
}

impl ViaLink {
    /// The host behind a control connection.
    pub fn new(name: &str, link: AgentLink) -> ViaLink {
        ViaLink { name: name.into(), link }
    }

    /// Lets it observe the test from now on, and take what the doctor judges where that is wanted.
    ///
    /// # Errors
    /// It does not: not asked to tell its counters, not permitted, or gone.
    pub fn observe(
        &mut self,
        spec: &TestSpec,
        ports: &DataPorts,
        stream: u8,
        facts: Option<FactsWindow>,
    ) -> Result<()> {
        let spec = Some(Box::new(spec.clone()));
        let request = Request::Observe(Observe { ports: ports.clone(), stream, spec, facts });
        asked_to_observe(&mut self.link, request)?.map(drop)
    }

    /// What it saw since.
    ///
    /// # Errors
    /// It does not tell, or is gone.
    pub fn observed(&mut self) -> Result<HostObservation> {
        let none = || Problem::input(format!("{} has seen nothing", self.name));
        asked_to_observe(&mut self.link, Request::Observed)??.map(|seen| *seen).ok_or_else(none)
    }
}

/// Waits for a word from either end, for the deadline, or until the test is interrupted.
fn wait(
    links: &mut [&mut AgentLink; 2],
    deadline_ns: Option<u64>,
    is_interrupted: impl Fn() -> bool,
) -> Event {
    loop {
        if is_interrupted() {
            return Event::Interrupted;
        }
        for role in EndRole::ALL {
            match links[role as usize].next() {
                Ok(Some(reply)) => return Event::Reply(role, reply),
                Ok(None) => {}
                Err(why) => return Event::Lost(role, why),
            }
        }
        let now = clock::monotonic_ns();
        let left = deadline_ns.map(|deadline| deadline.saturating_sub(now));
        if left == Some(0) {
            return Event::Tick;
        }
        let fds = [links[0].wire.stream.as_fd(), links[1].wire.stream.as_fd()];
        let left = left.map_or(INTERRUPT, Duration::from_nanos).min(INTERRUPT);
        let ready = socket::wait_readable(fds, Some(left)).unwrap_or_default();
        for role in EndRole::ALL {
            if ready[role as usize]
                && let Err(why) = links[role as usize].wire.read()
            {
                return Event::Lost(role, why);
            }
        }
    }
}

/// How the clocks of the two agents relate: the same host has the same clock, else both are compared with ours.
fn relate_clocks(sender: &mut AgentLink, receiver: &mut AgentLink) -> Result<ClockRelation> {
    if !sender.boot_id.is_empty() && sender.boot_id == receiver.boot_id {
        return Ok(ClockRelation::Shared);
    }
    let offset = |link: &mut AgentLink, role: EndRole| {
        link.clock_offset().map_err(|why| {
            Problem::input(format!("the {} ({}) {why} before the test", role.name(), link.peer))
                .help("look whether its process or its machine is still there")
        })
    };
    let (from, from_error) = offset(sender, EndRole::Sender)?;
    let (to, to_error) = offset(receiver, EndRole::Receiver)?;
    Ok(ClockRelation::Estimated {
        offset_ns: to.saturating_sub(from),
        error_ns: from_error.saturating_add(to_error),
    })
}

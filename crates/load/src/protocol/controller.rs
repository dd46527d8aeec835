//! The controller's side: the order of one test.
//!
//! Prepare receiver → prepare sender → warm up → look → start → finished → wait until the counters are quiet → stop
//! sender and receiver → look again → close. Every step but the looks has a deadline; whoever is lost, lies or stalls
//! is named together with the step.

use super::message::{Prepared, Reply, Request};
use super::setup::{ClockRelation, DataPorts, Outcome, Role, Setup, longest_ns};
use record::Problem;
use record::spec::TestSpec;
use std::net::IpAddr;

const SECOND: u64 = 1_000_000_000;
const PREPARE_NS: u64 = 30 * SECOND;
const WARM_UP_NS: u64 = 15 * SECOND;
const REPORT_NS: u64 = 20 * SECOND;
const CLOSE_NS: u64 = 10 * SECOND;
/// A sender may need so much longer than its test.
const FINISH_NS: u64 = 30 * SECOND;

/// When the caller looks at the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Just before the start.
    Before,
    /// After the last message, until nothing moves.
    Settled,
    /// After the reports, while the sockets are still open.
    After,
}

/// Where the test stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    PrepareReceiver,
    PrepareSender,
    WarmUp,
    Looking(Look),
    Sending,
    StopSender,
    StopReceiver,
    CloseSender,
    CloseReceiver,
    Over,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A reply came.
    Reply(Role, Reply),
    /// The connection to an agent is gone, and how.
    Lost(Role, String),
    /// The caller has looked, or could not.
    Looked(Result<(), Problem>),
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Send this to an agent.
    Send(Role, Request),
    /// Let the caller look; the ports are known by then.
    Look(Look),
    /// The test is over.
    Done(Box<Outcome>),
    /// The test failed. Agents that still answer have been told to close. A peer that was lost is a measured problem (this
    /// test has no result, others may), one that does not speak the protocol is bad input.
    Failed(Problem),
}

/// The state machine of one test.
#[derive(Debug)]
pub struct Controller {
    step: Step,
    setup: Setup,
    deadline_ns: u64,
    began_ns: u64,
    started_ns: Option<u64>,
    names: [String; 2],
    lost: [bool; 2],
    receiver: Prepared,
    sender: Prepared,
    warm: bool,
    outcome: Outcome,
}

impl Controller {
    /// A test of `spec` towards `address` that begins at `now_ns`, and what to do first. `names` are the sender's and
    /// the receiver's, for sentences.
    pub fn begin(
        spec: &TestSpec,
        address: IpAddr,
        token: u8,
        clock: ClockRelation,
        names: [String; 2],
        now_ns: u64,
    ) -> (Controller, Vec<Action>) {
        let setup = Setup { role: Role::Receiver, spec: spec.clone(), address, port: 0, token, clock };
        let first = Action::Send(Role::Receiver, Request::Prepare(Box::new(setup.clone())));
        let controller = Controller {
            step: Step::PrepareReceiver,
            setup,
            deadline_ns: now_ns.saturating_add(PREPARE_NS),
            began_ns: now_ns,
            started_ns: None,
            names,
            lost: [false; 2],
            receiver: Prepared::default(),
            sender: Prepared::default(),
            warm: false,
            outcome: Outcome::default(),
        };
        (controller, vec![first])
    }

    /// When to come back with [`Event::Tick`] if nothing else happens; none while the caller looks.
    pub fn deadline_ns(&self) -> Option<u64> {
        (!matches!(self.step, Step::Looking(_) | Step::Over)).then_some(self.deadline_ns)
    }

    /// Ports and identifiers of the data sockets, known once both ends are prepared.
    pub fn ports(&self) -> DataPorts {
        DataPorts {
            sender: self.sender.ports.clone(),
            receiver: self.receiver.ports.first().copied(),
            icmp_id: self.sender.icmp_id,
        }
    }

    /// Takes what happened, says what to do.
    pub fn handle(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        if self.step == Step::Over {
            return Vec::new();
        }
        match event {
            Event::Tick if self.deadline_ns().is_some_and(|deadline| now_ns >= deadline) => {
                self.timed_out(now_ns)
            }
            Event::Tick => Vec::new(),
            Event::Lost(role, why) => {
                self.lost[role as usize] = true;
                let what = format!("{} {} {}", self.named(role), printable(&why), self.when(now_ns));
                let advice = "look whether its process or its machine is still there";
                self.fail(Problem::measured(what).help(advice))
            }
            Event::Looked(result) => self.looked(now_ns, result),
            Event::Reply(role, Reply::Failed(failure)) => {
                let problem = Problem::from(&failure);
                let at = format!("{} ({})", role.name(), self.names[role as usize]);
                self.fail(problem.at(at))
            }
            Event::Reply(role, reply) => self.reply(now_ns, role, reply),
        }
    }

    fn named(&self, role: Role) -> String {
        format!("the {} ({})", role.name(), self.names[role as usize])
    }

    /// The point in time, in words.
    fn when(&self, now_ns: u64) -> String {
        let seconds = |from: u64| now_ns.saturating_sub(from) as f64 / 1e9;
        match (self.step, self.started_ns) {
            (_, None) => {
                format!("{:.1} s after the beginning, while {}", seconds(self.began_ns), self.doing())
            }
            (_, Some(started)) => {
                format!("{:.1} s after the start, while {}", seconds(started), self.doing())
            }
        }
    }

    fn doing(&self) -> &'static str {
        match self.step {
            Step::PrepareReceiver => "the receiver was prepared",
            Step::PrepareSender => "the sender was prepared",
            Step::WarmUp => "the path was warmed up",
            Step::Looking(_) => "the counters were read",
            Step::Sending => "the test was running",
            Step::StopSender | Step::StopReceiver => "the reports were collected",
            Step::CloseSender | Step::CloseReceiver | Step::Over => "the test was closed",
        }
    }

    /// Ends the test; agents that may still answer are told to close.
    fn fail(&mut self, problem: Problem) -> Vec<Action> {
        self.step = Step::Over;
        let still_there =
            [Role::Sender, Role::Receiver].into_iter().filter(|&role| !self.lost[role as usize]);
        let mut actions: Vec<_> = still_there.map(|role| Action::Send(role, Request::Close)).collect();
        actions.push(Action::Failed(problem));
        actions
    }

    fn timed_out(&mut self, now_ns: u64) -> Vec<Action> {
        let role = match self.step {
            Step::PrepareReceiver | Step::StopReceiver | Step::CloseReceiver => Role::Receiver,
            _ => Role::Sender,
        };
        self.lost[role as usize] = true;
        let what = format!("{} did not answer any more {}", self.named(role), self.when(now_ns));
        self.fail(
            Problem::measured(what).help("look whether its process is stopped or its machine overloaded"),
        )
    }

    fn go(&mut self, now_ns: u64, step: Step, patience_ns: u64, role: Role, request: Request) -> Vec<Action> {
        self.step = step;
        self.deadline_ns = now_ns.saturating_add(patience_ns);
        vec![Action::Send(role, request)]
    }

    fn look(&mut self, look: Look) -> Vec<Action> {
        self.step = Step::Looking(look);
        vec![Action::Look(look)]
    }

    fn reply(&mut self, now_ns: u64, role: Role, reply: Reply) -> Vec<Action> {
        match (self.step, role, reply) {
            (Step::PrepareReceiver, Role::Receiver, Reply::Prepared(prepared)) => {
                let port = prepared.ports.first().copied().unwrap_or(0);
                if port == 0 && !self.setup.spec.kind.is_echo() {
                    return self.lied(now_ns, role, "told no port");
                }
                self.receiver = *prepared;
                let setup = Setup { role: Role::Sender, port, ..self.setup.clone() };
                self.go(
                    now_ns,
                    Step::PrepareSender,
                    PREPARE_NS,
                    Role::Sender,
                    Request::Prepare(Box::new(setup)),
                )
            }
            (Step::PrepareSender, Role::Sender, Reply::Prepared(prepared)) => {
                self.sender = *prepared;
                self.go(now_ns, Step::WarmUp, WARM_UP_NS, Role::Sender, Request::WarmUp)
            }
            (Step::WarmUp, Role::Sender, Reply::Warm(reachable)) => {
                self.warm = reachable;
                self.look(Look::Before)
            }
            (Step::Sending, Role::Sender, Reply::Finished) => self.look(Look::Settled),
            (Step::StopSender, Role::Sender, Reply::Report(report)) => {
                self.outcome.sender = *report;
                self.go(now_ns, Step::StopReceiver, REPORT_NS, Role::Receiver, Request::Stop)
            }
            (Step::StopReceiver, Role::Receiver, Reply::Report(report)) => {
                self.outcome.receiver = *report;
                self.look(Look::After)
            }
            (Step::CloseSender, Role::Sender, Reply::Closed) => {
                self.go(now_ns, Step::CloseReceiver, CLOSE_NS, Role::Receiver, Request::Close)
            }
            (Step::CloseReceiver, Role::Receiver, Reply::Closed) => self.done(),
            (_, role, reply) => {
                let what = format!("said '{}' out of turn", reply.name());
                self.lied(now_ns, role, &what)
            }
        }
    }

    fn lied(&mut self, now_ns: u64, role: Role, what: &str) -> Vec<Action> {
        self.lost[role as usize] = true;
        let what = format!("{} {what} {}", self.named(role), self.when(now_ns));
        self.fail(
            Problem::input(what).help("it does not speak this protocol as it should: use the same version"),
        )
    }

    fn looked(&mut self, now_ns: u64, result: Result<(), Problem>) -> Vec<Action> {
        let Step::Looking(look) = self.step else { return Vec::new() };
        if let Err(problem) = result {
            return self.fail(problem);
        }
        match look {
            Look::Before => {
                self.started_ns = Some(now_ns);
                let patience = longest_ns(&self.setup.spec).saturating_add(FINISH_NS);
                self.go(now_ns, Step::Sending, patience, Role::Sender, Request::Start)
            }
            Look::Settled => self.go(now_ns, Step::StopSender, REPORT_NS, Role::Sender, Request::Stop),
            Look::After => self.go(now_ns, Step::CloseSender, CLOSE_NS, Role::Sender, Request::Close),
        }
    }

    fn done(&mut self) -> Vec<Action> {
        self.step = Step::Over;
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.warm = self.warm;
        outcome.ports = self.ports();
        outcome.clock = self.setup.clock;
        vec![Action::Done(Box::new(outcome))]
    }
}

use super::message::printable;

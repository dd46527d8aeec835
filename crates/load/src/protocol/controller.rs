//! The controller's side: the order of one test.
//!
//! Prepare receiver → prepare sender → warm up → look → start → finished → wait until the counters are quiet → stop
//! sender and receiver → look again → close. Every step but the looks has a deadline; whoever is lost, lies or stalls
//! is named together with the step.

use super::message::{Reply, Request, name, printable};
use super::setup::{DataPorts, EndRole, Outcome, Setup, longest_ns};
use record::Problem;

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
    /// The receiver is ready, and the sender is about to reach it for the first time.
    Connecting,
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
    Finishing,
    StopSender,
    StopReceiver,
    CloseSender,
    CloseReceiver,
    Over,
}

impl Step {
    /// Who does it, how long that may take (while sending: beyond the test itself), and what it is in words.
    fn facts(self) -> (EndRole, u64, &'static str) {
        match self {
            Step::PrepareReceiver => (EndRole::Receiver, PREPARE_NS, "the receiver was prepared"),
            Step::PrepareSender => (EndRole::Sender, PREPARE_NS, "the sender was prepared"),
            Step::WarmUp => (EndRole::Sender, WARM_UP_NS, "the path was warmed up"),
            Step::Looking(_) => (EndRole::Sender, 0, "the counters were read"),
            Step::Sending => (EndRole::Sender, FINISH_NS, "the test was running"),
            Step::Finishing => (EndRole::Sender, FINISH_NS, "the test was ended early"),
            Step::StopSender => (EndRole::Sender, REPORT_NS, "the reports were collected"),
            Step::StopReceiver => (EndRole::Receiver, REPORT_NS, "the reports were collected"),
            Step::CloseSender | Step::Over => (EndRole::Sender, CLOSE_NS, "the test was closed"),
            Step::CloseReceiver => (EndRole::Receiver, CLOSE_NS, "the test was closed"),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A reply came.
    Reply(EndRole, Reply),
    /// The connection to an agent is gone, and how.
    Lost(EndRole, String),
    /// Whoever asked for the test wants it to end: what was sent until now is its result, and without a message it has none.
    Interrupted,
    /// The caller has looked, or could not.
    Looked(Result<(), Problem>),
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Send this to an agent.
    Send(EndRole, Request),
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
    outcome: Outcome,
}

impl Controller {
    /// A test that begins at `now_ns`, and what to do first. `setup` is the receiver's, `names` are the sender's and the
    /// receiver's, for sentences.
    pub fn begin(setup: Setup, names: [String; 2], now_ns: u64) -> (Controller, Vec<Action>) {
        let first = Action::Send(EndRole::Receiver, Request::Prepare(Box::new(setup.clone())));
        let outcome = Outcome { clock: setup.clock, ..Outcome::default() };
        let controller = Controller {
            step: Step::PrepareReceiver,
            setup,
            deadline_ns: now_ns.saturating_add(PREPARE_NS),
            began_ns: now_ns,
            started_ns: None,
            names,
            lost: [false; 2],
            outcome,
        };
        (controller, vec![first])
    }

    /// When to come back with [`Event::Tick`] if nothing else happens; none while the caller looks.
    pub fn deadline_ns(&self) -> Option<u64> {
        (!matches!(self.step, Step::Looking(_) | Step::Over)).then_some(self.deadline_ns)
    }

    /// Ports and identifiers of the data sockets, known once both ends are prepared.
    pub fn ports(&self) -> &DataPorts {
        &self.outcome.ports
    }

    /// Takes what happened, says what to do.
    pub fn handle(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        if self.step == Step::Over {
            return Vec::new();
        }
        match event {
            Event::Tick if self.deadline_ns().is_some_and(|deadline| now_ns >= deadline) => {
                let (role, ..) = self.step.facts();
                let what = self.lost(now_ns, role, "did not answer any more");
                let advice = "look whether its process is stopped or its machine overloaded";
                self.fail(Problem::measured(what).help(advice))
            }
            Event::Tick => Vec::new(),
            Event::Lost(role, why) => {
                let what = self.lost(now_ns, role, &printable(&why));
                self.fail(
                    Problem::measured(what).help("look whether its process or its machine is still there"),
                )
            }
            Event::Interrupted if self.step == Step::Sending => {
                self.go(now_ns, Step::Finishing, Request::Finish)
            }
            // What is left is read and counted, which takes no longer than it may.
            Event::Interrupted if self.started_ns.is_some() => Vec::new(),
            Event::Interrupted => self.fail(Problem::input("interrupted before anything was sent")),
            Event::Looked(result) => self.looked(now_ns, result),
            Event::Reply(role, Reply::Failed(failure)) => {
                let problem = Problem::from(&failure);
                let at = format!("{} ({})", role.name(), self.names[role as usize]);
                self.fail(problem.at(at))
            }
            Event::Reply(role, reply) => self.reply(now_ns, role, reply),
        }
    }

    /// The point in time, in words.
    fn when(&self, now_ns: u64) -> String {
        let (from_ns, what) = match self.started_ns {
            None => (self.began_ns, "the beginning"),
            Some(started_ns) => (started_ns, "the start"),
        };
        let (.., doing) = self.step.facts();
        format!("{:.1} s after {what}, while {doing}", now_ns.saturating_sub(from_ns) as f64 / 1e9)
    }

    /// Gives an agent up; the sentence about it.
    fn lost(&mut self, now_ns: u64, role: EndRole, why: &str) -> String {
        self.lost[role as usize] = true;
        let (name, peer, when) = (role.name(), &self.names[role as usize], self.when(now_ns));
        format!("the {name} ({peer}) {why} {when}")
    }

    /// Ends the test; agents that may still answer are told to close.
    fn fail(&mut self, problem: Problem) -> Vec<Action> {
        self.step = Step::Over;
        let still_there = EndRole::ALL.into_iter().filter(|&role| !self.lost[role as usize]);
        let mut actions: Vec<_> = still_there.map(|role| Action::Send(role, Request::Close)).collect();
        actions.push(Action::Failed(problem));
        actions
    }

    fn go(&mut self, now_ns: u64, step: Step, request: Request) -> Vec<Action> {
        let (role, patience_ns, _) = step.facts();
        let test_ns = if step == Step::Sending { longest_ns(&self.setup.spec) } else { 0 };
        self.step = step;
        self.deadline_ns = now_ns.saturating_add(test_ns).saturating_add(patience_ns);
        vec![Action::Send(role, request)]
    }

    fn look(&mut self, look: Look) -> Vec<Action> {
        self.step = Step::Looking(look);
        vec![Action::Look(look)]
    }

    fn reply(&mut self, now_ns: u64, role: EndRole, reply: Reply) -> Vec<Action> {
        match (self.step, role, reply) {
            (Step::PrepareReceiver, EndRole::Receiver, Reply::Prepared(prepared)) => {
                self.outcome.ports.receiver = prepared.ports.first().copied();
                let port = self.outcome.ports.receiver.unwrap_or(0);
                if port == 0 && !self.setup.spec.kind.is_echo() {
                    return self.lied(now_ns, role, "told no port");
                }
                self.look(Look::Connecting)
            }
            (Step::PrepareSender, EndRole::Sender, Reply::Prepared(prepared)) => {
                (self.outcome.ports.sender, self.outcome.ports.icmp_id) = (prepared.ports, prepared.icmp_id);
                self.go(now_ns, Step::WarmUp, Request::WarmUp)
            }
            (Step::WarmUp, EndRole::Sender, Reply::Warm(reachable)) => {
                self.outcome.warm = reachable;
                self.look(Look::Before)
            }
            (Step::Sending | Step::Finishing, EndRole::Sender, Reply::Finished) => self.look(Look::Settled),
            (Step::StopSender, EndRole::Sender, Reply::Report(report)) => {
                self.outcome.sender = *report;
                self.go(now_ns, Step::StopReceiver, Request::Stop)
            }
            (Step::StopReceiver, EndRole::Receiver, Reply::Report(report)) => {
                self.outcome.receiver = *report;
                self.look(Look::After)
            }
            (Step::CloseSender, EndRole::Sender, Reply::Closed) => {
                self.go(now_ns, Step::CloseReceiver, Request::Close)
            }
            (Step::CloseReceiver, EndRole::Receiver, Reply::Closed) => self.done(),
            (_, role, reply) => {
                let what = format!("said '{}' out of turn", name(&reply));
                self.lied(now_ns, role, &what)
            }
        }
    }

    fn lied(&mut self, now_ns: u64, role: EndRole, what: &str) -> Vec<Action> {
        let what = self.lost(now_ns, role, what);
        let advice = "it does not speak this protocol as it should: use the same version";
        self.fail(Problem::input(what).help(advice))
    }

    fn looked(&mut self, now_ns: u64, result: Result<(), Problem>) -> Vec<Action> {
        let Step::Looking(look) = self.step else { return Vec::new() };
        if let Err(problem) = result {
            return self.fail(problem);
        }
        match look {
            Look::Connecting => {
                let port = self.outcome.ports.receiver.unwrap_or(0);
                let setup = Setup { role: EndRole::Sender, port, ..self.setup.clone() };
                self.go(now_ns, Step::PrepareSender, Request::Prepare(Box::new(setup)))
            }
            Look::Before => {
                self.started_ns = Some(now_ns);
                self.go(now_ns, Step::Sending, Request::Start)
            }
            Look::Settled => self.go(now_ns, Step::StopSender, Request::Stop),
            Look::After => self.go(now_ns, Step::CloseSender, Request::Close),
        }
    }

    fn done(&mut self) -> Vec<Action> {
        self.step = Step::Over;
        vec![Action::Done(Box::new(std::mem::take(&mut self.outcome)))]
    }
}

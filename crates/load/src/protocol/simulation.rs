//! A controller and two agents that talk through memory, on a clock that the test moves: every step of a test, and
//! every way in which a peer can be lost at every step.

use super::agent::{Agent, TestRunner};
use super::controller::{self, Controller, Look};
use super::message::{Hello, Observe, PROTOCOL, PeerHost, Prepared, Reply, Request, Tune, name};
use super::setup::{ClockRelation, EndRole, Outcome, Setup};
use proptest::prelude::*;
use record::knob::KnobChange;
use record::traffic::EndReport;
use record::{HostObservation, Problem, ProblemKind, TestSpec, TrafficKind};
use std::collections::VecDeque;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The peer is gone.
    Lost,
    /// It says nothing any more.
    Stalls,
    /// It answers something else.
    Lies,
    /// It says that it cannot.
    Fails,
}

/// The end of a test of one agent.
#[derive(Default)]
struct Runner {
    number: u16,
    now: u64,
    is_open: bool,
}

impl TestRunner for Runner {
    fn clock_ns(&self) -> u64 {
        self.now
    }
    fn prepare(&mut self, _: Setup) -> Result<Prepared, Problem> {
        self.is_open = true;
        Ok(Prepared { ports: vec![1000 + self.number], ..Prepared::default() })
    }
    fn warm_up(&mut self) -> bool {
        true
    }
    fn observe(&mut self, _: Observe) -> Result<(), Problem> {
        Ok(())
    }
    fn observed(&mut self) -> Result<Box<HostObservation>, Problem> {
        Ok(Box::default())
    }
    fn start(&mut self) -> Result<(), Problem> {
        Ok(())
    }
    fn finish(&mut self) {}
    fn stop(&mut self) -> Result<Box<EndReport>, Problem> {
        Ok(Box::new(EndReport { sent: 10 + u64::from(self.number), ..EndReport::default() }))
    }
    fn close(&mut self) {
        self.is_open = false;
    }
    fn tune(&mut self, _: Tune) -> Result<Vec<KnobChange>, Problem> {
        Ok(vec![])
    }
    fn put_back(&mut self) -> Result<(), Problem> {
        Ok(())
    }
    fn about(&mut self) -> Result<Box<PeerHost>, Problem> {
        Ok(Box::default())
    }
}

struct Pair {
    now: u64,
    controller: Controller,
    agents: [Agent; 2],
    todo: VecDeque<controller::Action>,
    looks: Vec<Look>,
    /// Requests that each agent had, by name.
    asked: [Vec<String>; 2],
    runners: [Runner; 2],
    ended: Option<Result<Outcome, Problem>>,
}

impl Pair {
    fn new(kind: TrafficKind) -> Self {
        let hello = || Hello { protocol: PROTOCOL, version: "t".into(), boot_id: String::new() };
        let mut agents = [Agent::new(hello(), 0), Agent::new(hello(), 0)];
        let mut runners = [Runner::default(), Runner { number: 1, ..Runner::default() }];
        for (agent, runner) in agents.iter_mut().zip(&mut runners) {
            agent.request(Request::Hello(hello()), runner);
        }
        let spec = TestSpec { kind, ..TestSpec::default() };
        let names = ["a".to_owned(), "b".to_owned()];
        let address = "10.0.0.2".parse().unwrap();
        let clock = ClockRelation::Shared;
        let setup = Setup { role: EndRole::Receiver, spec, address, port: 0, token: 3, clock };
        let (controller, first) = Controller::begin(setup, names, 0);
        Pair {
            now: 0,
            controller,
            agents,
            todo: first.into(),
            looks: Vec::new(),
            asked: Default::default(),
            runners,
            ended: None,
        }
    }

    fn tell(&mut self, event: controller::Event) {
        self.todo.extend(self.controller.handle(self.now, event));
    }

    /// Gives a request to an agent and returns its reply.
    fn ask(&mut self, role: EndRole, request: Request) -> Option<Reply> {
        let index = role as usize;
        self.asked[index].push(name(&request));
        let (agent, runner) = (&mut self.agents[index], &mut self.runners[index]);
        runner.now = self.now;
        // What is to be sent is sent at once.
        agent.request(request, runner).or_else(|| agent.finished(runner))
    }

    /// Runs to the end; the `at`-th request meets the fault.
    fn run(&mut self, fault: Option<(usize, Fault)>) -> EndRole {
        let (mut step, mut hit) = (0, EndRole::Sender);
        while self.ended.is_none() {
            let Some(action) = self.todo.pop_front() else {
                // Nothing to do: time passes until the controller's deadline.
                self.now = self.controller.deadline_ns().expect("a test that waits has a deadline");
                self.tell(controller::Event::Tick);
                continue;
            };
            self.now += 1_000_000;
            match action {
                controller::Action::Send(role, request) => {
                    let strikes = fault.filter(|(at, _)| *at == step).map(|(_, fault)| fault);
                    step += 1;
                    hit = if strikes.is_some() { role } else { hit };
                    match strikes {
                        Some(Fault::Lost) => {
                            self.tell(controller::Event::Lost(role, "closed the connection".into()));
                        }
                        Some(Fault::Stalls) => {}
                        Some(Fault::Lies) => self.tell(controller::Event::Reply(role, Reply::Clock(1))),
                        Some(Fault::Fails) => {
                            let failure = (&Problem::host("out of something")).into();
                            self.tell(controller::Event::Reply(role, Reply::Failed(failure)));
                        }
                        None => {
                            if let Some(reply) = self.ask(role, request) {
                                self.tell(controller::Event::Reply(role, reply));
                            }
                        }
                    }
                }
                controller::Action::Look(look) => {
                    self.looks.push(look);
                    self.tell(controller::Event::Looked(Ok(())));
                }
                controller::Action::Done(outcome) => self.ended = Some(Ok(*outcome)),
                controller::Action::Failed(problem) => self.ended = Some(Err(problem)),
            }
        }
        hit
    }
}

/// Requests of a whole test: prepare twice, warm up, start, stop twice, close twice.
const REQUESTS: usize = 8;

#[test]
fn a_test_goes_through_its_steps_in_order() {
    let mut pair = Pair::new(TrafficKind::UdpStream);
    pair.run(None);
    let outcome = pair.ended.unwrap().unwrap();
    assert_eq!((outcome.sender.sent, outcome.receiver.sent, outcome.warm), (10, 11, true));
    assert_eq!(outcome.ports.receiver, Some(1001));
    assert_eq!(pair.looks, [Look::Connecting, Look::Before, Look::Settled, Look::After]);
    assert_eq!(pair.asked[0], ["prepare", "warm up", "start", "stop", "close"]);
    assert_eq!(pair.asked[1], ["prepare", "stop", "close"]);
    assert!(pair.runners.iter().all(|runner| !runner.is_open));
}

#[test]
fn a_peer_that_is_lost_at_any_step_is_named_and_the_other_closed() {
    for fault in [Fault::Lost, Fault::Stalls, Fault::Lies, Fault::Fails] {
        for step in 0..REQUESTS {
            let mut pair = Pair::new(TrafficKind::TcpRr);
            let role = pair.run(Some((step, fault)));
            let problem = pair.ended.take().unwrap().expect_err("the test must fail");
            let lost = matches!(fault, Fault::Lost | Fault::Stalls);
            assert_eq!(problem.kind == ProblemKind::Measured, lost, "{fault:?} at {step}: {problem}");
            let problem = problem.to_string();
            assert!(problem.contains(role.name()), "{fault:?} at {step}: {problem}");
            let other = 1 - role as usize;
            assert!(!pair.runners[other].is_open, "{fault:?} at {step}: the other end was left open");
            if step >= 4 && fault != Fault::Fails {
                assert!(problem.contains("after the start"), "{problem}");
            }
        }
    }
}

#[test]
fn an_observer_that_cannot_look_ends_the_test() {
    let mut pair = Pair::new(TrafficKind::Ping);
    loop {
        match pair.todo.pop_front().unwrap() {
            controller::Action::Send(role, request) => {
                let reply = pair.ask(role, request).unwrap();
                pair.tell(controller::Event::Reply(role, reply));
            }
            controller::Action::Look(_) => break,
            other => panic!("{other:?}"),
        }
    }
    pair.tell(controller::Event::Looked(Err(Problem::host("no counters"))));
    assert!(
        matches!(pair.todo.back(), Some(controller::Action::Failed(problem)) if problem.what == "no counters")
    );
    assert_eq!(pair.controller.deadline_ns(), None);
}

/// Whoever asked for it ends it at any step: before the start it failed and is closed, while it sends it is over, after that it goes on as it did.
#[test]
fn a_test_that_is_interrupted_has_the_result_of_what_was_sent() {
    for step in 0..REQUESTS {
        let mut pair = Pair::new(TrafficKind::UdpStream);
        let mut asked = 0;
        while pair.ended.is_none() {
            match pair.todo.pop_front().unwrap() {
                controller::Action::Send(role, request) => {
                    let is_interrupted = asked == step;
                    asked += 1;
                    let (index, starts) = (role as usize, request == Request::Start);
                    pair.asked[index].push(name(&request));
                    let mut reply = pair.agents[index].request(request, &mut pair.runners[index]);
                    if is_interrupted {
                        pair.tell(controller::Event::Interrupted);
                        pair.tell(controller::Event::Interrupted);
                    }
                    let late = starts && is_interrupted;
                    if reply.is_none() && !late {
                        reply = pair.agents[index].finished(&pair.runners[index]);
                    }
                    if let Some(reply) = reply {
                        pair.tell(controller::Event::Reply(role, reply));
                    }
                }
                controller::Action::Look(_) => pair.tell(controller::Event::Looked(Ok(()))),
                controller::Action::Done(outcome) => pair.ended = Some(Ok(*outcome)),
                controller::Action::Failed(problem) => pair.ended = Some(Err(problem)),
            }
        }
        let ended = pair.ended.unwrap();
        assert_eq!(ended.is_ok(), step >= 3, "at {step}: {ended:?}");
        let finishes = ["prepare", "warm up", "start", "finish", "stop", "close"];
        assert_eq!(pair.asked[0] == finishes, step == 3, "at {step}: {:?}", pair.asked[0]);
        assert!(pair.runners.iter().all(|runner| !runner.is_open), "at {step}");
    }
}

fn any_event() -> impl Strategy<Value = (u8, bool, u64)> {
    (0u8..12, any::<bool>(), 0u64..60_000_000_000)
}

proptest! {
    /// Whatever comes in whatever order: no panic, one end and nothing after it.
    #[test]
    fn the_controller_survives_any_order(events in prop::collection::vec(any_event(), 0..60)) {
        let mut pair = Pair::new(TrafficKind::UdpRr);
        let mut ends = 0;
        for (kind, first, after) in events {
            pair.now += after;
            let role = if first { EndRole::Sender } else { EndRole::Receiver };
            let event = match kind {
                0 => controller::Event::Reply(role, Reply::Prepared(Box::new(Prepared { ports: vec![7], ..Prepared::default() }))),
                1 => controller::Event::Reply(role, Reply::Warm(first)),
                2 => controller::Event::Reply(role, Reply::Finished),
                3 => controller::Event::Reply(role, Reply::Report(Box::default())),
                4 => controller::Event::Reply(role, Reply::Closed),
                5 => controller::Event::Reply(role, Reply::Clock(1)),
                6 => controller::Event::Lost(role, "\u{7}gone".into()),
                7 => controller::Event::Reply(role, Reply::Prepared(Box::default())),
                8 => controller::Event::Looked(Ok(())),
                9 => controller::Event::Looked(Err(Problem::host("no"))),
                10 => controller::Event::Interrupted,
                _ => controller::Event::Tick,
            };
            let was_over = ends > 0;
            let actions = pair.controller.handle(pair.now, event);
            prop_assert!(!was_over || actions.is_empty());
            for action in actions {
                match action {
                    controller::Action::Done(_) => ends += 1,
                    controller::Action::Failed(problem) => {
                        ends += 1;
                        let is_clean = !problem.to_string().contains('\u{7}');
                        prop_assert!(is_clean);
                    }
                    _ => {}
                }
            }
            prop_assert!(ends <= 1);
        }
    }
}

//! The agent's side of the conversation: which request is right when, and what to do for it.
//!
//! The machine opens no socket itself: what a request asks for, a [`TestRunner`] does.

use super::message::{
    Hello, Observe, PROTOCOL, PeerHost, Prepared, ProblemMessage, Reply, Request, Tune, TuneAction, name,
};
use super::setup::{EndRole, Setup, longest_ns};
use record::knob::KnobChange;
use record::traffic::EndReport;
use record::{HostObservation, Problem, Result};

/// A new connection must say hello within so long, in nanoseconds.
const HELLO_NS: u64 = 10_000_000_000;
/// A connection without a test is closed after so long.
const IDLE_NS: u64 = 3_600_000_000_000;
/// So is one that holds knobs, after so long: a controller that is gone without a word holds them no longer.
const HOLDING_NS: u64 = 24 * IDLE_NS;
/// A test of which nothing was heard for its own duration and so long is given up.
const TEST_NS: u64 = 120_000_000_000;
/// A message must be whole so long after its first byte.
pub const PARTIAL_NS: u64 = 10_000_000_000;

/// Where the conversation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Idle,
    Ready(EndRole),
    Sending,
    Sent,
    Stopped,
    /// This host is between the two ends of a test, and observes it.
    Between,
}

/// Does what requests ask for: opens, runs and closes one end of a test.
pub trait TestRunner {
    /// The clock of this host.
    fn clock_ns(&self) -> u64;
    /// Opens the sockets; a receiver starts to receive at once.
    ///
    /// # Errors
    /// The sockets could not be opened.
    fn prepare(&mut self, setup: Setup) -> Result<Prepared>;
    /// Sends probes; true when the path answered.
    fn warm_up(&mut self) -> bool;
    /// Begins to observe this host while the test goes on.
    ///
    /// # Errors
    /// It may not, or it cannot.
    fn observe(&mut self, flow: Observe) -> Result<()>;
    /// What was observed.
    ///
    /// # Errors
    /// Nothing was observed, or counters cannot be read.
    fn observed(&mut self) -> Result<Box<HostObservation>>;
    /// Sends, in the background.
    ///
    /// # Errors
    /// Nothing can be sent.
    fn start(&mut self) -> Result<()>;
    /// Sends no more; the traffic ends by itself.
    fn finish(&mut self);
    /// Ends what runs and reports it; keeps the sockets.
    ///
    /// # Errors
    /// Nothing ran.
    fn stop(&mut self) -> Result<Box<EndReport>>;
    /// Ends what runs, closes the sockets.
    fn close(&mut self);
    /// Changes knobs of this host, or compares them.
    ///
    /// # Errors
    /// It may not, there is no such knob or value, or the kernel refuses.
    fn tune(&mut self, asked: Tune) -> Result<Vec<KnobChange>>;
    /// Puts back what is held.
    ///
    /// # Errors
    /// The kernel refuses.
    fn put_back(&mut self) -> Result<()>;
    /// Which host this is.
    ///
    /// # Errors
    /// It may not tell.
    fn about(&mut self) -> Result<Box<PeerHost>>;
}

/// The state machine.
#[derive(Debug)]
pub struct Agent {
    state: State,
    hello: Hello,
    deadline_ns: u64,
    test_ns: u64,
    /// Knobs of this host are held for the controller.
    holds: bool,
    ended: Option<String>,
}

impl Agent {
    /// A connection that begins at `now_ns`; `hello` is what this agent says of itself.
    pub fn new(hello: Hello, now_ns: u64) -> Self {
        let deadline_ns = now_ns.saturating_add(HELLO_NS);
        Agent { state: State::New, hello, deadline_ns, test_ns: 0, holds: false, ended: None }
    }

    /// When to come back with [`Agent::tick`] if nothing else happens.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Why the connection is to be closed, if so.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Time passed: a controller that was silent for too long is given up.
    pub fn tick(&mut self, runner: &mut impl TestRunner) {
        if runner.clock_ns() >= self.deadline_ns {
            runner.close();
            let why = match self.state {
                State::New => "did not say hello in time",
                State::Idle => "asked for nothing for too long",
                _ => "fell silent in the middle of a test",
            };
            self.ended = Some(why.to_owned());
        }
    }

    /// Everything is sent: the reply to the request to start, or to finish.
    pub fn finished(&mut self, runner: &impl TestRunner) -> Option<Reply> {
        let was_sending = self.state == State::Sending;
        self.state = if was_sending { State::Sent } else { self.state };
        self.wait_anew(runner.clock_ns());
        was_sending.then_some(Reply::Finished)
    }

    /// Does what a request asks for; its reply, none when that comes later (see [`Agent::finished`]).
    pub fn request(&mut self, request: Request, runner: &mut impl TestRunner) -> Option<Reply> {
        let reply = self.answer(request, runner);
        self.wait_anew(runner.clock_ns());
        reply.unwrap_or_else(|problem| Some(Reply::Failed(ProblemMessage::from(&problem))))
    }

    fn wait_anew(&mut self, now_ns: u64) {
        let patience = match self.state {
            State::New => HELLO_NS,
            State::Idle if self.holds => HOLDING_NS,
            State::Idle => IDLE_NS,
            _ => self.test_ns.saturating_add(TEST_NS),
        };
        self.deadline_ns = now_ns.saturating_add(patience);
    }

    fn answer(&mut self, request: Request, runner: &mut impl TestRunner) -> Result<Option<Reply>> {
        Ok(Some(match (self.state, request) {
            (State::New, Request::Hello(hello)) => self.greet(&hello),
            (State::New, _) => {
                self.ended = Some("did not say hello".to_owned());
                return Err(Problem::input("the first message must be a hello"));
            }
            (_, Request::Clock) => Reply::Clock(runner.clock_ns()),
            (State::Idle, Request::Prepare(setup)) => {
                let (role, test_ns) = (setup.role, longest_ns(&setup.spec));
                let prepared = runner.prepare(*setup).inspect_err(|_| runner.close())?;
                (self.state, self.test_ns) = (State::Ready(role), test_ns);
                Reply::Prepared(Box::new(prepared))
            }
            (State::Ready(EndRole::Sender), Request::WarmUp) => Reply::Warm(runner.warm_up()),
            (State::Ready(_), Request::Observe(flow)) => {
                runner.observe(flow)?;
                Reply::Observing
            }
            (State::Stopped, Request::Observed) => Reply::Observation(runner.observed()?),
            (State::Idle, Request::Observe(flow)) if flow.spec.is_some() => {
                let test_ns = flow.spec.as_deref().map_or(0, longest_ns);
                runner.observe(flow)?;
                (self.state, self.test_ns) = (State::Between, test_ns);
                Reply::Observing
            }
            (State::Between, Request::Observed) => {
                self.state = State::Idle;
                Reply::Observation(runner.observed()?)
            }
            (State::Ready(EndRole::Sender), Request::Start) => {
                self.state = State::Sending;
                runner.start()?;
                return Ok(None);
            }
            (State::Sending, Request::Finish) => {
                runner.finish();
                return Ok(None);
            }
            (State::Sent, Request::Finish) => Reply::Finished,
            (State::Ready(EndRole::Receiver) | State::Sending | State::Sent, Request::Stop) => {
                self.state = State::Stopped;
                Reply::Report(runner.stop()?)
            }
            (State::Idle, Request::Tune(asked)) => {
                self.holds |= asked.action == TuneAction::Hold;
                Reply::Tuned(runner.tune(asked)?)
            }
            (State::Idle, Request::PutBack) => {
                self.holds = false;
                runner.put_back()?;
                Reply::Tuned(vec![])
            }
            (State::Idle, Request::About) => Reply::About(runner.about()?),
            (_, Request::Close) => {
                self.state = State::Idle;
                runner.close();
                Reply::Closed
            }
            (state, request) => {
                let what = format!("'{}' is not possible now ({})", name(&request), describe(state));
                return Err(Problem::input(what));
            }
        }))
    }

    /// A peer of another version is told who speaks here, not only that it is refused: it can say more to its person.
    fn greet(&mut self, peer: &Hello) -> Reply {
        if peer.protocol == PROTOCOL {
            self.state = State::Idle;
        } else {
            self.ended = Some(format!("speaks version {} of the protocol, not {PROTOCOL}", peer.protocol));
        }
        Reply::Hello(self.hello.clone())
    }
}

fn describe(state: State) -> &'static str {
    match state {
        State::New => "nobody said hello",
        State::Idle => "no test is prepared",
        State::Ready(EndRole::Sender) => "a sender is ready",
        State::Ready(EndRole::Receiver) => "a receiver is receiving",
        State::Sending => "a sender is sending",
        State::Sent => "a sender is done",
        State::Stopped => "the test is stopped",
        State::Between => "a test is observed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::setup::ClockRelation;
    use proptest::prelude::*;
    use record::spec::TestSpec;

    fn hello(protocol: u32) -> Hello {
        Hello { protocol, version: "1".into(), boot_id: String::new() }
    }

    fn between() -> Observe {
        Observe { spec: Some(Box::default()), ..Observe::default() }
    }

    fn setup(role: EndRole) -> Box<Setup> {
        let address = "10.0.0.2".parse().unwrap();
        Box::new(Setup {
            role,
            spec: TestSpec::default(),
            address,
            port: 1,
            token: 1,
            clock: ClockRelation::Shared,
        })
    }

    /// Counts what is open, and fails where it is told to.
    #[derive(Default)]
    struct Runner {
        now: u64,
        is_open: bool,
        fails: bool,
    }

    impl Runner {
        fn outcome<T: Default>(&self) -> Result<T> {
            if self.fails { Err(Problem::host("no")) } else { Ok(T::default()) }
        }
    }

    impl TestRunner for Runner {
        fn clock_ns(&self) -> u64 {
            self.now
        }
        fn prepare(&mut self, _: Setup) -> Result<Prepared> {
            assert!(!self.is_open, "a test is opened only after the one before was closed");
            self.is_open = true;
            self.outcome()
        }
        fn warm_up(&mut self) -> bool {
            assert!(self.is_open);
            true
        }
        fn observe(&mut self, _: Observe) -> Result<()> {
            Ok(())
        }
        fn observed(&mut self) -> Result<Box<HostObservation>> {
            Ok(Box::default())
        }
        fn start(&mut self) -> Result<()> {
            assert!(self.is_open);
            self.outcome()
        }
        fn finish(&mut self) {
            assert!(self.is_open);
        }
        fn stop(&mut self) -> Result<Box<EndReport>> {
            assert!(self.is_open);
            self.outcome()
        }
        fn close(&mut self) {
            self.is_open = false;
        }
        fn tune(&mut self, _: Tune) -> Result<Vec<KnobChange>> {
            assert!(!self.is_open, "knobs are not changed in a test");
            self.outcome()
        }
        fn put_back(&mut self) -> Result<()> {
            assert!(!self.is_open);
            self.outcome()
        }
        fn about(&mut self) -> Result<Box<PeerHost>> {
            assert!(!self.is_open);
            self.outcome()
        }
    }

    #[test]
    fn another_version_is_told_who_speaks_and_hung_up_on() {
        let mut agent = Agent::new(hello(PROTOCOL), 0);
        let reply = agent.request(Request::Hello(hello(7)), &mut Runner::default());
        assert!(matches!(reply, Some(Reply::Hello(own)) if own.protocol == PROTOCOL));
        assert!(agent.ended().is_some_and(|why| why.contains("version 7")));
    }

    #[test]
    fn a_silent_controller_is_given_up() {
        let mut agent = Agent::new(hello(PROTOCOL), 0);
        let mut runner = Runner { now: HELLO_NS - 1, is_open: true, fails: false };
        agent.tick(&mut runner);
        assert_eq!((agent.ended(), runner.is_open), (None, true));
        runner.now = HELLO_NS;
        agent.tick(&mut runner);
        assert!(agent.ended().is_some() && !runner.is_open);
    }

    /// A connection that holds knobs is not an idle one: what it holds stays for longer than an hour.
    #[test]
    fn knobs_that_are_held_are_held_for_longer() {
        let (mut agent, mut runner) = (Agent::new(hello(PROTOCOL), 0), Runner::default());
        agent.request(Request::Hello(hello(PROTOCOL)), &mut runner);
        let hold = Tune { knobs: vec![], action: TuneAction::Hold, may_flap: false };
        assert_eq!(agent.request(Request::Tune(hold), &mut runner), Some(Reply::Tuned(vec![])));
        assert_eq!(agent.deadline_ns(), HOLDING_NS);
        agent.request(Request::PutBack, &mut runner);
        assert_eq!(agent.deadline_ns(), IDLE_NS);
    }

    /// A host between the two ends observes without a test of its own, once for each, and is waited for as long as the test may take.
    #[test]
    fn a_host_between_the_ends_observes_without_a_test() {
        let (mut agent, mut runner) = (Agent::new(hello(PROTOCOL), 0), Runner::default());
        agent.request(Request::Hello(hello(PROTOCOL)), &mut runner);
        let mut ask = |request| agent.request(request, &mut runner);
        assert!(matches!(ask(Request::Observe(Observe::default())), Some(Reply::Failed(_))));
        for _ in 0..2 {
            assert_eq!(ask(Request::Observe(between())), Some(Reply::Observing));
            let busy = ask(Request::Prepare(setup(EndRole::Sender)));
            assert!(matches!(busy, Some(Reply::Failed(why)) if why.what.contains("a test is observed")));
            assert!(matches!(ask(Request::Observed), Some(Reply::Observation(_))));
            assert!(matches!(ask(Request::Observed), Some(Reply::Failed(_))));
        }
        ask(Request::Observe(between()));
        assert_eq!(ask(Request::Close), Some(Reply::Closed));
        ask(Request::Observe(between()));
        assert_eq!(agent.deadline_ns(), longest_ns(&TestSpec::default()) + TEST_NS);
    }

    /// The traffic is over; what is no request and not this is time that passes.
    const FINISHED: u8 = 16;

    fn events() -> impl Strategy<Value = Vec<(u8, bool, u64)>> {
        prop::collection::vec((0u8..20, any::<bool>(), 0u64..TEST_NS * 2), 0..40)
    }

    fn request(kind: u8) -> Option<Request> {
        Some(match kind {
            0 => Request::Hello(hello(PROTOCOL)),
            1 => Request::Hello(hello(9)),
            2 => Request::Clock,
            3 => Request::Prepare(setup(EndRole::Sender)),
            4 => Request::Prepare(setup(EndRole::Receiver)),
            5 => Request::WarmUp,
            6 => Request::Start,
            7 => Request::Stop,
            8 => Request::Close,
            9 => Request::Observe(Observe::default()),
            10 => Request::Observed,
            11 => Request::Tune(Tune { knobs: vec![], action: TuneAction::Hold, may_flap: false }),
            12 => Request::PutBack,
            13 => Request::About,
            14 => Request::Finish,
            15 => Request::Observe(between()),
            _ => return None,
        })
    }

    proptest! {
        /// Whatever comes in whatever order: no panic, a reply to every request but one to start, and a test is opened only
        /// after the one before was closed.
        #[test]
        fn any_order_of_events_is_survived(events in events()) {
            let (mut agent, mut runner) = (Agent::new(hello(PROTOCOL), 0), Runner::default());
            for (kind, fails, after) in events {
                (runner.now, runner.fails) = (runner.now + after, fails);
                match request(kind) {
                    Some(request) => {
                        let replies = agent.request(request, &mut runner).is_some();
                        prop_assert!(replies || kind == 6 || kind == 14);
                    }
                    None if kind == FINISHED => drop(agent.finished(&runner)),
                    None => agent.tick(&mut runner),
                }
                if agent.ended().is_some() {
                    break;
                }
            }
        }
    }
}

//! The agent's side of the conversation: which request is right when, and what to do for it.
//!
//! The machine does nothing itself. Whoever drives it does what [`Action`]s say and tells it what came of it.

use super::message::{Hello, PROTOCOL, Prepared, ProblemMessage, Reply, Request, name};
use super::setup::{EndRole, Setup, longest_ns};
use record::Problem;
use record::traffic::EndReport;

/// A new connection must say hello within so long, in nanoseconds.
const HELLO_NS: u64 = 10_000_000_000;
/// A connection without a test is closed after so long.
const IDLE_NS: u64 = 3_600_000_000_000;
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
    Over,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A request came.
    Request(Request),
    /// The sockets are open, or could not be opened.
    Prepared(Result<Prepared, Problem>),
    /// The probes are done.
    Warm(bool),
    /// Everything is sent.
    Finished,
    /// The traffic ended, and what it was.
    Report(Result<Box<EndReport>, Problem>),
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Send this to the controller, as the reply to its last request.
    Reply(Reply),
    /// Tell the time: reply with the clock.
    Clock,
    /// Open the sockets; a receiver starts to receive at once.
    Prepare(Box<Setup>),
    /// Send probes.
    WarmUp,
    /// Send, in the background.
    Start,
    /// End what runs and report it; keep the sockets.
    Stop,
    /// End what runs, close the sockets.
    Close,
    /// Close the connection, and why.
    HangUp(String),
}

/// The state machine.
#[derive(Debug)]
pub struct Agent {
    state: State,
    hello: Hello,
    deadline_ns: u64,
    test_ns: u64,
}

impl Agent {
    /// A connection that begins at `now_ns`; `hello` is what this agent says of itself.
    pub fn new(hello: Hello, now_ns: u64) -> Self {
        Agent { state: State::New, hello, deadline_ns: now_ns.saturating_add(HELLO_NS), test_ns: 0 }
    }

    /// When to come back with [`Event::Tick`] if nothing else happens.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// True when the connection is to be closed.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Takes what happened, says what to do.
    pub fn handle(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        if self.state == State::Over {
            return Vec::new();
        }
        let actions = match event {
            Event::Tick if now_ns >= self.deadline_ns => return self.give_up(),
            Event::Tick => return Vec::new(),
            Event::Request(request) => self.request(request),
            Event::Prepared(result) => self.prepared(result),
            Event::Warm(reachable) => vec![Action::Reply(Reply::Warm(reachable))],
            Event::Finished if self.state == State::Sending => {
                self.state = State::Sent;
                vec![Action::Reply(Reply::Finished)]
            }
            Event::Finished => Vec::new(),
            Event::Report(Ok(report)) => vec![Action::Reply(Reply::Report(report))],
            Event::Report(Err(problem)) => vec![Action::Reply(failed(&problem))],
        };
        let patience = match self.state {
            State::New => HELLO_NS,
            State::Idle | State::Over => IDLE_NS,
            _ => self.test_ns.saturating_add(TEST_NS),
        };
        self.deadline_ns = now_ns.saturating_add(patience);
        actions
    }

    fn give_up(&mut self) -> Vec<Action> {
        let why = match self.state {
            State::New => "did not say hello in time",
            State::Idle => "asked for nothing for an hour",
            _ => "fell silent in the middle of a test",
        };
        self.state = State::Over;
        vec![Action::Close, Action::HangUp(why.to_owned())]
    }

    fn prepared(&mut self, result: Result<Prepared, Problem>) -> Vec<Action> {
        match result {
            Ok(prepared) => vec![Action::Reply(Reply::Prepared(Box::new(prepared)))],
            Err(problem) => {
                self.state = State::Idle;
                vec![Action::Close, Action::Reply(failed(&problem))]
            }
        }
    }

    fn request(&mut self, request: Request) -> Vec<Action> {
        match (self.state, request) {
            (State::New, Request::Hello(hello)) => self.greet(&hello),
            (State::New, _) => {
                self.state = State::Over;
                let problem = Problem::input("the first message must be a hello");
                vec![Action::Reply(failed(&problem)), Action::HangUp("did not say hello".to_owned())]
            }
            (_, Request::Clock) => vec![Action::Clock],
            (State::Idle, Request::Prepare(setup)) => {
                self.state = State::Ready(setup.role);
                self.test_ns = longest_ns(&setup.spec);
                vec![Action::Prepare(setup)]
            }
            (State::Ready(EndRole::Sender), Request::WarmUp) => vec![Action::WarmUp],
            (State::Ready(EndRole::Sender), Request::Start) => {
                self.state = State::Sending;
                vec![Action::Start]
            }
            (State::Ready(EndRole::Receiver) | State::Sending | State::Sent, Request::Stop) => {
                self.state = State::Stopped;
                vec![Action::Stop]
            }
            (_, Request::Close) => {
                self.state = State::Idle;
                vec![Action::Close, Action::Reply(Reply::Closed)]
            }
            (state, request) => {
                let what = format!("'{}' is not possible now ({})", name(&request), describe(state));
                vec![Action::Reply(failed(&Problem::input(what)))]
            }
        }
    }

    fn greet(&mut self, peer: &Hello) -> Vec<Action> {
        if peer.protocol == PROTOCOL {
            self.state = State::Idle;
            return vec![Action::Reply(Reply::Hello(self.hello.clone()))];
        }
        // The peer is told who speaks here, not only that it is refused: it can say more to its person.
        self.state = State::Over;
        let why = format!("speaks version {} of the protocol, not {PROTOCOL}", peer.protocol);
        vec![Action::Reply(Reply::Hello(self.hello.clone())), Action::HangUp(why)]
    }
}

fn failed(problem: &Problem) -> Reply {
    Reply::Failed(ProblemMessage::from(problem))
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
        State::Over => "the connection is over",
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

    #[test]
    fn another_version_is_told_who_speaks_and_hung_up_on() {
        let mut agent = Agent::new(hello(PROTOCOL), 0);
        let actions = agent.handle(0, Event::Request(Request::Hello(hello(7))));
        assert!(matches!(&actions[0], Action::Reply(Reply::Hello(own)) if own.protocol == PROTOCOL));
        assert!(matches!(&actions[1], Action::HangUp(why) if why.contains("version 7")));
        assert!(agent.is_over());
    }

    #[test]
    fn a_silent_controller_is_given_up() {
        let mut agent = Agent::new(hello(PROTOCOL), 0);
        assert!(agent.handle(HELLO_NS - 1, Event::Tick).is_empty());
        assert!(matches!(&agent.handle(HELLO_NS, Event::Tick)[..], [Action::Close, Action::HangUp(_)]));
    }

    fn events() -> impl Strategy<Value = Vec<(u8, u64)>> {
        prop::collection::vec((0u8..18, 0u64..TEST_NS * 2), 0..40)
    }

    fn event(kind: u8) -> Event {
        match kind {
            0 => Event::Request(Request::Hello(hello(PROTOCOL))),
            1 => Event::Request(Request::Hello(hello(9))),
            2 => Event::Request(Request::Clock),
            3 => Event::Request(Request::Prepare(setup(EndRole::Sender))),
            4 => Event::Request(Request::Prepare(setup(EndRole::Receiver))),
            5 => Event::Request(Request::WarmUp),
            6 => Event::Request(Request::Start),
            7 => Event::Request(Request::Stop),
            8 => Event::Request(Request::Close),
            9 => Event::Prepared(Ok(Prepared::default())),
            10 => Event::Prepared(Err(Problem::host("no"))),
            11 => Event::Warm(true),
            12 => Event::Finished,
            13 => Event::Report(Ok(Box::default())),
            14 => Event::Report(Err(Problem::host("no"))),
            _ => Event::Tick,
        }
    }

    proptest! {
        /// Whatever comes in whatever order: no panic, at most one reply per event, nothing after the end, and a test
        /// is opened only after the one before was closed.
        #[test]
        fn any_order_of_events_is_survived(events in events()) {
            let (mut agent, mut now, mut open) = (Agent::new(hello(PROTOCOL), 0), 0, false);
            for (kind, after) in events {
                now += after;
                let was_over = agent.is_over();
                let actions = agent.handle(now, event(kind));
                prop_assert!(!was_over || actions.is_empty());
                let replies = actions.iter().filter(|a| matches!(a, Action::Reply(_) | Action::Clock)).count();
                prop_assert!(replies <= 1);
                for action in &actions {
                    match action {
                        Action::Prepare(_) => { prop_assert!(!open); open = true; }
                        Action::Close => open = false,
                        Action::Start | Action::WarmUp | Action::Stop => prop_assert!(open),
                        _ => {}
                    }
                }
            }
        }
    }
}

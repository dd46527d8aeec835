//! An agent runs one end of each test at the command of a controller.
//!
//! The agent has one thread for the conversation and one for the traffic of the running test, so a word from the
//! controller (or its death) is noticed while traffic runs, and nothing but traffic runs in the traffic thread.

use super::facts::{FactsWatch, Host};
use super::knobs::Knobs;
use super::link::{ByteStream, Wire, hello};
use super::observation::{self, HostWatch};
use crate::kind;
use crate::protocol::agent::{Agent, TestRunner};
use crate::protocol::message::{Numbered, Observe, PeerHost, Prepared, Request, Tune};
use crate::protocol::setup::{EndRole, Setup};
use crate::traffic::end::{self, End};
use crate::traffic::schedule::Ending;
use linux::observe::next_hop;
use linux::sys::{clock, socket};
use record::knob::KnobChange;
use record::traffic::{EndReport, Settings};
use record::{HostObservation, Problem, Result};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a test waits for one that ends: a controller that is gone is noticed at once, its traffic thread ends a moment later.
const ENDING: Duration = Duration::from_millis(500);

/// One test at a time among all connections that share it: whoever holds the turn, by name.
#[derive(Debug, Clone, Default)]
pub struct TestLock(Arc<(Mutex<Option<String>>, Condvar)>);

impl TestLock {
    fn take(&self, peer: &str) -> Result<TestPermit> {
        let (holder, freed) = &*self.0;
        let holder = holder.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut holder, _) = freed
            .wait_timeout_while(holder, ENDING, |holder| holder.is_some())
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = &*holder {
            return Err(
                Problem::host(format!("busy with a test for {other}")).help("try again when that is over")
            );
        }
        *holder = Some(peer.to_owned());
        Ok(TestPermit(self.clone()))
    }
}

/// The right to run a test; given back when dropped.
struct TestPermit(TestLock);

impl Drop for TestPermit {
    fn drop(&mut self) {
        let (holder, freed) = &*self.0.0;
        *holder.lock().unwrap_or_else(PoisonError::into_inner) = None;
        freed.notify_one();
    }
}

type Traffic = JoinHandle<(Box<dyn End>, EndReport)>;

/// A test that is prepared or runs.
struct Test {
    setup: Setup,
    settings: Settings,
    /// The end, when no traffic thread has it.
    end: Option<Box<dyn End>>,
    traffic: Option<Traffic>,
    stop: Arc<Ending>,
    _turn: TestPermit,
}

impl Test {
    fn prepare(setup: Setup, turn: TestPermit, done: &UnixStream) -> Result<(Test, Prepared)> {
        let (prepared, end) = kind::prepare(&setup)?;
        let stop = Arc::<Ending>::default();
        let settings = prepared.settings.clone();
        let mut test = Test { setup, settings, end: Some(end), traffic: None, stop, _turn: turn };
        if test.setup.role == EndRole::Receiver {
            test.start(done)?;
        }
        Ok((test, prepared))
    }

    /// Runs the end on a thread of its own; `done` gets a byte when it is over.
    fn start(&mut self, done: &UnixStream) -> Result<()> {
        let Some(mut end) = self.end.take() else { return Err(Problem::host("the test is already running")) };
        let (setup, settings) = (self.setup.clone(), self.settings.clone());
        let stop = Arc::clone(&self.stop);
        let cannot = |error: io::Error| Problem::host(format!("cannot start a traffic thread: {error}"));
        let done = Finish(done.try_clone().map_err(cannot)?);
        let traffic =
            std::thread::Builder::new().name(format!("traffic-{}", setup.role.name())).spawn(move || {
                let report = end::run(&mut *end, &setup, &settings, &stop);
                drop(done);
                (end, report)
            });
        self.traffic = Some(traffic.map_err(cannot)?);
        Ok(())
    }

    /// Ends the traffic and returns its report; the sockets stay open.
    fn stop(&mut self) -> Result<Box<EndReport>> {
        self.stop.stop();
        let traffic = self.traffic.take().ok_or_else(|| Problem::input("no traffic was started"))?;
        let (end, report) = traffic
            .join()
            .map_err(|_| Problem::host("the traffic thread failed; this is a bug in pathlab"))?;
        self.end = Some(end);
        Ok(Box::new(report))
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(traffic) = self.traffic.take() {
            let _ = traffic.join();
        }
    }
}

/// Tells the conversation that the traffic is over, even when the traffic thread panics.
struct Finish(UnixStream);

impl Drop for Finish {
    fn drop(&mut self) {
        let _ = self.0.write_all(b".");
    }
}

/// Runs the tests of one control connection.
struct Runner {
    peer: String,
    /// Ends of a pair: the traffic thread writes, the conversation reads.
    done: (UnixStream, UnixStream),
    test: Option<Test>,
    turns: TestLock,
    /// What may be observed here; none: nothing.
    host: Option<Arc<Host>>,
    watch: Option<HostWatch>,
    facts: Option<FactsWatch>,
    /// Who changes knobs of this host for the controller, once it has asked.
    knobs: Option<Box<dyn Knobs>>,
}

impl Runner {
    /// This host, where it tells what it sees.
    fn telling(&self) -> Result<&Arc<Host>> {
        let refused =
            || Problem::host("it does not tell its counters").help("start it with 'pathlab serve --observe'");
        self.host.as_ref().ok_or_else(refused)
    }

    /// Whoever reaches the port of a server can let it send, but to himself alone: nobody else asked for it.
    fn may_send(&self, setup: &Setup) -> Result<()> {
        let Ok(peer) = self.peer.parse::<SocketAddr>() else { return Ok(()) };
        let peer = peer.ip().to_canonical();
        if setup.role == EndRole::Receiver || setup.address.to_canonical() == peer {
            return Ok(());
        }
        let what = format!("it sends to {peer}, which asks, and not to {}", setup.address);
        Err(Problem::input(what)
            .help("test in this direction from a host whose address nothing on the way translates"))
    }
}

impl TestRunner for Runner {
    fn clock_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn prepare(&mut self, setup: Setup) -> Result<Prepared> {
        self.may_send(&setup)?;
        let (test, prepared) = Test::prepare(setup, self.turns.take(&self.peer)?, &self.done.0)?;
        self.test = Some(test);
        Ok(prepared)
    }

    fn warm_up(&mut self) -> bool {
        let end = self.test.as_mut().and_then(|test| test.end.as_mut());
        end.is_some_and(|end| end.warm_up())
    }

    fn observe(&mut self, Observe { ports, stream, spec, facts }: Observe) -> Result<()> {
        let host = Arc::clone(self.telling()?);
        let own = self.test.as_ref().map(|test| &test.setup);
        let none = || Problem::input("no test is prepared");
        let of_test = own.map(|setup| &setup.spec).or(spec.as_deref()).ok_or_else(none)?;
        let flow = observation::flow(of_test, &ports, stream);
        let end = own.map(|setup| (std::process::id(), setup.role));
        self.watch = Some(HostWatch::start(&host.nodes, &flow, end)?);
        self.facts = facts.map(|when| FactsWatch::start(&host, when)).transpose()?;
        Ok(())
    }

    fn observed(&mut self) -> Result<Box<HostObservation>> {
        let watch = self.watch.take().ok_or_else(|| Problem::input("nothing was observed"))?;
        let mut seen = watch.end()?;
        let sends_to = self.test.as_ref().filter(|test| test.setup.role == EndRole::Sender);
        seen.interface = sends_to.and_then(|test| next_hop::interface_to(test.setup.address).ok());
        match self.facts.take().map(FactsWatch::end) {
            Some(Ok(facts)) => seen.facts = Some(facts),
            Some(Err(problem)) => seen.no_facts = Some(problem.to_string()),
            None => {}
        }
        Ok(Box::new(seen))
    }

    fn start(&mut self) -> Result<()> {
        self.test.as_mut().map_or(Ok(()), |test| test.start(&self.done.0))
    }

    fn finish(&mut self) {
        self.test.iter().for_each(|test| test.stop.finish());
    }

    fn stop(&mut self) -> Result<Box<EndReport>> {
        self.test.as_mut().ok_or_else(|| Problem::input("no test is prepared"))?.stop()
    }

    fn tune(&mut self, asked: Tune) -> Result<Vec<KnobChange>> {
        let open = self.host.as_ref().and_then(|host| host.knobs).ok_or_else(|| {
            Problem::host("it lets nobody change its knobs")
                .help("start it with 'pathlab serve --observe --tune'")
        })?;
        self.knobs.get_or_insert_with(open).tune(&asked)
    }

    fn put_back(&mut self) -> Result<()> {
        self.knobs.as_mut().map_or(Ok(()), |knobs| knobs.put_back())
    }

    fn about(&mut self) -> Result<Box<PeerHost>> {
        self.telling()?;
        let peer = self.peer.parse::<SocketAddr>().ok();
        let interface = peer.and_then(|peer| next_hop::interface_to(peer.ip().to_canonical()).ok());
        Ok(Box::new(PeerHost { host: linux::observe::host_facts(), interface }))
    }

    fn close(&mut self) {
        (self.test, self.watch, self.facts) = (None, None, None);
        while self.done.1.read(&mut [0; 64]).is_ok_and(|many| many > 0) {}
    }
}

/// What the conversation waits for.
enum Event {
    Request(Numbered<Request>),
    Finished,
    Tick,
}

/// One control connection.
struct Conversation {
    wire: Wire,
    machine: Agent,
    runner: Runner,
    /// The number of the start request, whose reply comes later.
    start_id: u64,
}

/// Serves one control connection until the peer closes it: all tests on it, one after another.
///
/// Returns a problem only when the peer was lost in the middle of something or does not speak the protocol.
pub fn serve(stream: impl ByteStream + 'static, peer: &str) -> Result<()> {
    serve_in_turn(stream, peer, &TestLock::default(), None)
}

/// As [`serve`], but a test is refused while another connection with the same `turns` has one that does not end within [`ENDING`], and what this `host` sees is
/// told to who asks.
pub fn serve_in_turn(
    stream: impl ByteStream + 'static,
    peer: &str,
    turns: &TestLock,
    host: Option<Arc<Host>>,
) -> Result<()> {
    let cannot = |error: io::Error| Problem::host(format!("cannot serve {peer}: {error}"));
    let done = UnixStream::pair().map_err(cannot)?;
    done.1.set_nonblocking(true).map_err(cannot)?;
    let runner = Runner {
        peer: peer.to_owned(),
        done,
        test: None,
        turns: turns.clone(),
        host,
        watch: None,
        facts: None,
        knobs: None,
    };
    let machine = Agent::new(hello(), clock::monotonic_ns());
    Conversation { wire: Wire::new(stream), machine, runner, start_id: 0 }.run()
}

impl Conversation {
    fn run(&mut self) -> Result<()> {
        loop {
            let event = match self.wait() {
                Ok(event) => event,
                // A peer that leaves between two tests has simply finished.
                Err(_) if self.runner.test.is_none() && !self.wire.decoder.is_waiting() => return Ok(()),
                Err(why) => return Err(self.problem(&why)),
            };
            self.handle(event).map_err(|why| self.problem(&why))?;
            if let Some(why) = self.machine.ended() {
                return Err(self.problem(why));
            }
        }
    }

    fn problem(&self, why: &str) -> Problem {
        Problem::input(format!("{} {why}", self.runner.peer))
    }

    /// Waits for the next thing to happen.
    fn wait(&mut self) -> Result<Event, String> {
        loop {
            if let Some(request) = self.wire.next::<Numbered<Request>>()? {
                return Ok(Event::Request(request));
            }
            let now = clock::monotonic_ns();
            let mut left = self.machine.deadline_ns().saturating_sub(now);
            if left == 0 {
                return Ok(Event::Tick);
            }
            if self.wire.decoder.is_waiting() {
                left = left.min(1_000_000_000);
            }
            let fds = [self.wire.stream.as_fd(), self.runner.done.1.as_fd()];
            let ready = socket::wait_readable(fds, Some(Duration::from_nanos(left))).unwrap_or_default();
            // A word of the controller comes first: it may have given the test up.
            if ready[0] {
                self.wire.read()?;
            } else if ready[1] && self.runner.done.1.read(&mut [0; 64]).is_ok() {
                return Ok(Event::Finished);
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let (id, reply) = match event {
            Event::Request(Numbered { id, body }) => (id, self.machine.request(body, &mut self.runner)),
            Event::Finished => (self.start_id, self.machine.finished(&self.runner)),
            Event::Tick => {
                self.machine.tick(&mut self.runner);
                return Ok(());
            }
        };
        match reply {
            Some(body) => self.wire.send(&Numbered { id, body }),
            None => {
                self.start_id = id;
                Ok(())
            }
        }
    }
}

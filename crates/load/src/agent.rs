//! An agent runs one end of each test at the command of a controller; a link is the controller's hold on an agent.
//!
//! The agent has one thread for the conversation and one for the traffic of the running test, so a word from the
//! controller (or its death) is noticed while traffic runs, and nothing but traffic runs in the traffic thread. A link
//! is any byte stream that can be waited for: TCP to another machine, a socket pair to a child.

use crate::control::agent::{Action, Agent, Event, PARTIAL_NS};
use crate::control::codec::{self, Decoder};
use crate::control::message::{Hello, Numbered, PROTOCOL, Prepared, Reply, Request, printable};
use crate::end::{self, End, Role, Setup};
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use record::traffic::EndReport;
use record::{Problem, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A peer that takes nothing for so long is lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a hello and a clock reading may take, in nanoseconds.
const HELLO_NS: u64 = 5_000_000_000;
/// Readings of a peer's clock; the one with the shortest round trip counts.
const CLOCK_READINGS: usize = 16;

/// A byte stream that can be waited for.
pub trait Stream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> Stream for T {}

/// What this program says of itself.
fn hello() -> Hello {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: boot_id.trim().to_owned(),
    }
}

/// A stream with messages on it. Errors are clauses that go on after the peer's name: "closed the connection".
struct Wire {
    stream: Box<dyn Stream>,
    decoder: Decoder,
    partial_since_ns: Option<u64>,
}

impl Wire {
    fn new(stream: impl Stream + 'static) -> Self {
        let _ = socket::set_timeout(&stream, Direction::Send, Some(WRITE_TIMEOUT));
        Wire { stream: Box::new(stream), decoder: Decoder::default(), partial_since_ns: None }
    }

    fn send<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let bytes = codec::encode(message)?;
        let written = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        written.map_err(|error| format!("took no message ({error})"))
    }

    /// Reads what is there; waits if nothing is.
    fn read(&mut self) -> Result<(), String> {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err("closed the control connection".to_owned()),
            Ok(many) => {
                self.decoder.push(&bytes[..many]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(())
            }
            Err(error) => Err(format!("lost the control connection ({error})")),
        }
    }

    fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let message = self.decoder.take()?;
        let now = clock::monotonic_ns();
        if !self.decoder.is_waiting() || message.is_some() {
            self.partial_since_ns = None;
        } else if now - *self.partial_since_ns.get_or_insert(now) > PARTIAL_NS {
            return Err("stopped in the middle of a message".to_owned());
        }
        Ok(message)
    }
}

/// The controller's hold on one agent.
pub struct AgentLink {
    wire: Wire,
    peer: String,
    boot_id: String,
    last_id: u64,
    /// The last request has no reply yet.
    waiting: bool,
    alive: bool,
}

impl AgentLink {
    /// Greets the agent behind `stream`; `peer` is its name in sentences.
    pub fn from_stream(stream: impl Stream + 'static, peer: &str) -> Result<AgentLink> {
        let mut link = AgentLink {
            wire: Wire::new(stream),
            peer: peer.to_owned(),
            boot_id: String::new(),
            last_id: 0,
            waiting: false,
            alive: true,
        };
        let said = link.exchange(Request::Hello(hello())).map_err(|why| {
            Problem::input(format!("{peer} {why} instead of greeting"))
                .help("check that 'pathlab serve' runs there and that nothing else uses its port")
        })?;
        match said {
            Reply::Hello(agent) if agent.protocol == PROTOCOL => link.boot_id = agent.boot_id,
            Reply::Hello(agent) => {
                let what = format!(
                    "{peer} is pathlab {} and speaks version {} of the protocol, this is pathlab {} with version {PROTOCOL}",
                    printable(&agent.version),
                    agent.protocol,
                    env!("CARGO_PKG_VERSION")
                );
                return Err(Problem::input(what).help("use the same version on both machines"));
            }
            Reply::Failed(failure) => return Err(Problem::from(&failure).at(peer)),
            other => return Err(Problem::input(format!("{peer} answered '{}' to a hello", other.name()))),
        }
        Ok(link)
    }

    /// Its name in sentences.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The boot id of its host; empty if it did not say.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// False once the agent was lost; the link is then of no more use.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Its descriptor, to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wire.stream.as_fd()
    }

    /// Sends a request; replies to earlier ones are forgotten from now on.
    pub(crate) fn send(&mut self, request: Request) -> Result<(), String> {
        self.last_id += 1;
        self.waiting = true;
        let sent = self.wire.send(&Numbered { id: self.last_id, body: request });
        self.keep(sent)
    }

    /// Ignores a reply that is still to come, of a test that was given up.
    pub(crate) fn forget(&mut self) {
        self.waiting = false;
    }

    /// Reads what is there; waits if nothing is.
    pub(crate) fn read(&mut self) -> Result<(), String> {
        let read = self.wire.read();
        self.keep(read)
    }

    /// The reply to the last request, if it is here.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, String> {
        loop {
            let next = self.wire.next::<Numbered<Reply>>();
            match self.keep(next)? {
                Some(reply) if reply.id != self.last_id || !self.waiting => {}
                Some(reply) => {
                    self.waiting = false;
                    return Ok(Some(reply.body));
                }
                None => return Ok(None),
            }
        }
    }

    fn keep<T>(&mut self, result: Result<T, String>) -> Result<T, String> {
        self.alive &= result.is_ok();
        result
    }

    /// Sends a request and waits for its reply.
    fn exchange(&mut self, request: Request) -> Result<Reply, String> {
        self.send(request)?;
        let deadline = clock::monotonic_ns() + HELLO_NS;
        loop {
            if let Some(reply) = self.next()? {
                return Ok(reply);
            }
            let left = deadline.saturating_sub(clock::monotonic_ns());
            let ready = socket::wait_readable([self.fd()], Some(Duration::from_nanos(left)));
            if ready.unwrap_or_default()[0] {
                self.read()?;
            } else if left == 0 {
                return self.keep(Err("did not answer in time".to_owned()));
            }
        }
    }

    /// Its clock minus ours, and how wrong that may be, in nanoseconds: half of the shortest round trip.
    pub(crate) fn clock_offset(&mut self) -> Result<(i64, u64), String> {
        let mut best: Option<(i64, u64)> = None;
        for _ in 0..CLOCK_READINGS {
            let before = clock::monotonic_ns();
            let reply = self.exchange(Request::Clock)?;
            let after = clock::monotonic_ns();
            let Reply::Clock(theirs) = reply else {
                return Err(format!("answered '{}' when asked for its clock", reply.name()));
            };
            let error = (after - before).div_ceil(2);
            if best.is_none_or(|(_, least)| error < least) {
                best = Some((theirs.wrapping_sub(before + (after - before) / 2) as i64, error));
            }
        }
        best.ok_or_else(|| "was not asked for its clock".to_owned())
    }
}

/// Starts an agent as a child: its standard input is one end of a socket pair. The caller reaps the child; the agent
/// ends by itself when the link is dropped.
pub fn spawn(mut command: Command) -> Result<(AgentLink, Child)> {
    let name = format!("agent '{}'", command.get_program().to_string_lossy());
    let cannot = |error: io::Error| Problem::host(format!("cannot start the {name}: {error}")).remedy(&error);
    let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    let mut child = command.spawn().map_err(cannot)?;
    // The command keeps the child's end of the pair open; it must go, or the child's death would not be seen.
    drop(command);
    let peer = format!("agent process {}", child.id());
    match AgentLink::from_stream(ours, &peer) {
        Ok(link) => Ok((link, child)),
        Err(problem) => {
            let _ = child.kill();
            let _ = child.wait();
            // It is this very program: what it does not say is no mistake of the user's.
            Err(Problem::measured(problem.what).help("look whether somebody ended its process"))
        }
    }
}

/// One test at a time among all connections that share it: whoever holds the turn, by name.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<Option<String>>>);

impl Turns {
    fn take(&self, peer: &str) -> Result<Turn> {
        let mut holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = &*holder {
            return Err(
                Problem::host(format!("busy with a test for {other}")).help("try again when that is over")
            );
        }
        *holder = Some(peer.to_owned());
        Ok(Turn(self.clone()))
    }
}

/// The right to run a test; given back when dropped.
struct Turn(Turns);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

type Traffic = JoinHandle<(Box<dyn End>, EndReport)>;

/// A test that is prepared or runs.
struct Test {
    setup: Setup,
    /// The end, when no traffic thread has it.
    end: Option<Box<dyn End>>,
    traffic: Option<Traffic>,
    stop: Arc<AtomicBool>,
    _turn: Turn,
}

impl Test {
    fn prepare(setup: Setup, turn: Turn, done: &UnixStream) -> Result<(Test, Prepared)> {
        let end = end::prepare(&setup)?;
        let prepared = Prepared { ports: end.ports(), icmp_id: end.icmp_id(), settings: end.settings() };
        let stop = Arc::new(AtomicBool::new(false));
        let mut test = Test { setup, end: Some(end), traffic: None, stop, _turn: turn };
        if test.setup.role == Role::Receiver {
            test.start(done)?;
        }
        Ok((test, prepared))
    }

    /// Runs the end on a thread of its own; `done` gets a byte when it is over.
    fn start(&mut self, done: &UnixStream) -> Result<()> {
        let Some(mut end) = self.end.take() else { return Err(Problem::host("the test is already running")) };
        let (setup, stop) = (self.setup.clone(), Arc::clone(&self.stop));
        let cannot = |error: io::Error| Problem::host(format!("cannot start a traffic thread: {error}"));
        let done = Finish(done.try_clone().map_err(cannot)?);
        let traffic =
            std::thread::Builder::new().name(format!("traffic-{}", setup.role.name())).spawn(move || {
                let report = end::run(&mut *end, &setup, &stop);
                drop(done);
                (end, report)
            });
        self.traffic = Some(traffic.map_err(cannot)?);
        Ok(())
    }

    /// Ends the traffic and returns its report; the sockets stay open.
    fn stop(&mut self) -> Result<Box<EndReport>> {
        self.stop.store(true, Relaxed);
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
        self.stop.store(true, Relaxed);
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

/// One control connection.
struct Conversation {
    wire: Wire,
    peer: String,
    machine: Agent,
    /// Ends of a pair: the traffic thread writes, the conversation reads.
    done: (UnixStream, UnixStream),
    test: Option<Test>,
    turns: Turns,
    last_id: u64,
    /// The number of the start request, whose reply comes later.
    start_id: u64,
}

/// Serves one control connection until the peer closes it: all tests on it, one after another.
///
/// Returns a problem only when the peer was lost in the middle of something or does not speak the protocol.
pub fn serve(stream: impl Stream + 'static, peer: &str) -> Result<()> {
    serve_in_turn(stream, peer, &Turns::default())
}

/// As [`serve`], but a test is refused as long as another connection with the same `turns` has one.
pub fn serve_in_turn(stream: impl Stream + 'static, peer: &str, turns: &Turns) -> Result<()> {
    let cannot = |error: io::Error| Problem::host(format!("cannot serve {peer}: {error}"));
    let done = UnixStream::pair().map_err(cannot)?;
    done.1.set_nonblocking(true).map_err(cannot)?;
    let mut conversation = Conversation {
        wire: Wire::new(stream),
        peer: peer.to_owned(),
        machine: Agent::new(hello(), clock::monotonic_ns()),
        done,
        test: None,
        turns: turns.clone(),
        last_id: 0,
        start_id: 0,
    };
    conversation.run()
}

impl Conversation {
    fn run(&mut self) -> Result<()> {
        while !self.machine.is_over() {
            let event = match self.wait() {
                Ok(event) => event,
                // A peer that leaves between two tests has simply finished.
                Err(_) if self.test.is_none() && !self.wire.decoder.is_waiting() => return Ok(()),
                Err(why) => return Err(Problem::input(format!("{} {why}", self.peer))),
            };
            self.handle(event)?;
        }
        Ok(())
    }

    /// Waits for the next thing to happen.
    fn wait(&mut self) -> Result<Event, String> {
        loop {
            if let Some(request) = self.wire.next::<Numbered<Request>>()? {
                self.last_id = request.id;
                return Ok(Event::Request(request.body));
            }
            let now = clock::monotonic_ns();
            let mut left = self.machine.deadline_ns().saturating_sub(now);
            if left == 0 {
                return Ok(Event::Tick);
            }
            if self.wire.decoder.is_waiting() {
                left = left.min(1_000_000_000);
            }
            let fds = [self.wire.stream.as_fd(), self.done.1.as_fd()];
            let ready = socket::wait_readable(fds, Some(Duration::from_nanos(left))).unwrap_or_default();
            // A word of the controller comes first: it may have given the test up.
            if ready[0] {
                self.wire.read()?;
            } else if ready[1] && self.done.1.read(&mut [0; 64]).is_ok() {
                return Ok(Event::Finished);
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let is_finish = matches!(event, Event::Finished);
            for action in self.machine.handle(clock::monotonic_ns(), event) {
                match action {
                    Action::Reply(reply) => {
                        let id = if is_finish { self.start_id } else { self.last_id };
                        self.reply(id, reply)?;
                    }
                    Action::Clock => self.reply(self.last_id, Reply::Clock(clock::monotonic_ns()))?,
                    Action::Prepare(setup) => events.push(Event::Prepared(self.prepare(*setup))),
                    Action::WarmUp => {
                        let end = self.test.as_mut().and_then(|test| test.end.as_mut());
                        events.push(Event::Warm(end.is_some_and(|end| end.warm_up())));
                    }
                    Action::Start => {
                        self.start_id = self.last_id;
                        if let Some(Err(problem)) = self.test.as_mut().map(|test| test.start(&self.done.0)) {
                            events.push(Event::Report(Err(problem)));
                        }
                    }
                    Action::Stop => {
                        let nothing = || Err(Problem::input("no test is prepared"));
                        events.push(Event::Report(self.test.as_mut().map_or_else(nothing, Test::stop)));
                    }
                    Action::Close => {
                        self.test = None;
                        while self.done.1.read(&mut [0; 64]).is_ok_and(|many| many > 0) {}
                    }
                    Action::HangUp(why) => return Err(Problem::input(format!("{} {why}", self.peer))),
                }
            }
        }
        Ok(())
    }

    fn prepare(&mut self, setup: Setup) -> Result<Prepared> {
        let (test, prepared) = Test::prepare(setup, self.turns.take(&self.peer)?, &self.done.0)?;
        self.test = Some(test);
        Ok(prepared)
    }

    fn reply(&mut self, id: u64, body: Reply) -> Result<()> {
        let sent = self.wire.send(&Numbered { id, body });
        sent.map_err(|why| Problem::input(format!("{} {why}", self.peer)))
    }
}

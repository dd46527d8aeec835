//! A link is the controller's hold on an agent, over any byte stream that can be waited for: TCP to another machine, a
//! socket pair to a child.

use crate::protocol::agent::PARTIAL_NS;
use crate::protocol::codec::{self, Decoder};
use crate::protocol::message::{Hello, Numbered, PROTOCOL, Reply, Request, name, printable};
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use record::{Problem, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A peer that takes nothing for so long is lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a hello and a clock reading may take, in nanoseconds.
const HELLO_NS: u64 = 5_000_000_000;
/// Readings of a peer's clock; the one with the shortest round trip counts.
const CLOCK_READINGS: usize = 16;

/// A byte stream that can be waited for.
pub trait ByteStream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> ByteStream for T {}

/// What this program says of itself.
pub(super) fn hello() -> Hello {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: boot_id.trim().to_owned(),
    }
}

/// A stream with messages on it. Errors are clauses that go on after the peer's name: "closed the connection".
pub(super) struct Wire {
    pub(super) stream: Box<dyn ByteStream>,
    pub(super) decoder: Decoder,
    partial_since_ns: Option<u64>,
}

impl Wire {
    pub(super) fn new(stream: impl ByteStream + 'static) -> Self {
        let _ = socket::set_timeout(&stream, Direction::Send, Some(WRITE_TIMEOUT));
        Wire { stream: Box::new(stream), decoder: Decoder::default(), partial_since_ns: None }
    }

    pub(super) fn send<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let bytes = codec::encode(message)?;
        let written = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        written.map_err(|error| format!("took no message ({error})"))
    }

    /// Reads what is there; waits if nothing is.
    pub(super) fn read(&mut self) -> Result<(), String> {
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

    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
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
    pub(super) wire: Wire,
    /// Its name in sentences.
    pub(super) peer: String,
    /// The boot id of its host; empty if it did not say.
    pub(super) boot_id: String,
    last_id: u64,
    /// The last request has no reply yet; false ignores one that is still to come.
    pub(super) waiting: bool,
}

impl AgentLink {
    /// Greets the agent behind `stream`; `peer` is its name in sentences.
    pub fn from_stream(stream: impl ByteStream + 'static, peer: &str) -> Result<AgentLink> {
        let mut link = AgentLink {
            wire: Wire::new(stream),
            peer: peer.to_owned(),
            boot_id: String::new(),
            last_id: 0,
            waiting: false,
        };
        let said = link.exchange(Request::Hello(hello()), HELLO_NS).map_err(|why| {
            Problem::input(format!("{peer} {why}; it should have greeted us"))
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
            other => return Err(Problem::input(format!("{peer} answered '{}' to a hello", name(&other)))),
        }
        Ok(link)
    }

    /// Sends a request; replies to earlier ones are forgotten from now on.
    pub(super) fn send(&mut self, request: Request) -> Result<(), String> {
        self.last_id += 1;
        self.waiting = true;
        self.wire.send(&Numbered { id: self.last_id, body: request })
    }

    /// The reply to the last request, if it is here.
    pub(super) fn next(&mut self) -> Result<Option<Reply>, String> {
        loop {
            match self.wire.next::<Numbered<Reply>>()? {
                Some(reply) if reply.id != self.last_id || !self.waiting => {}
                Some(reply) => {
                    self.waiting = false;
                    return Ok(Some(reply.body));
                }
                None => return Ok(None),
            }
        }
    }

    /// Sends a request and waits for its reply, at most for so long.
    pub(super) fn exchange(&mut self, request: Request, patience_ns: u64) -> Result<Reply, String> {
        self.send(request)?;
        let deadline = clock::monotonic_ns() + patience_ns;
        loop {
            if let Some(reply) = self.next()? {
                return Ok(reply);
            }
            let left = deadline.saturating_sub(clock::monotonic_ns());
            let ready = socket::wait_readable([self.wire.stream.as_fd()], Some(Duration::from_nanos(left)));
            if ready.unwrap_or_default()[0] {
                self.wire.read()?;
            } else if left == 0 {
                return Err("did not answer in time".to_owned());
            }
        }
    }

    /// Its clock minus ours, and how wrong that may be, in nanoseconds: half of the shortest round trip.
    pub(super) fn clock_offset(&mut self) -> Result<(i64, u64), String> {
        let mut best: Option<(i64, u64)> = None;
        for _ in 0..CLOCK_READINGS {
            let before = clock::monotonic_ns();
            let reply = self.exchange(Request::Clock, HELLO_NS)?;
            let after = clock::monotonic_ns();
            let Reply::Clock(theirs) = reply else {
                return Err(format!("answered '{}' when asked for its clock", name(&reply)));
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

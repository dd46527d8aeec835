//! A client of any OpenFlow switch: asks and waits.
//!
//! **What.** [`Client`] owns one connection: [`Client::ask`] sends a question and waits for its answer, [`Client::change`]
//! makes changes and says which of them the switch refused, [`Client::next`] waits for what comes unasked.
//!
//! **Why.** A command has one switch and all the time there is, so it may wait; the protocol is the
//! [`Channel`]'s, the same as the switch's.
//!
//! **Price.** One thread per switch, and a limit of time on every answer.

use crate::config::Remote;
use crate::stream::{self, Stream};
use crate::tls::Credentials;
use flow::openflow::bytes::{Tagged, Version};
use flow::openflow::channel::{Channel, ChannelConfig, Event, Side};
use flow::openflow::drops::{self, DropRow};
use flow::openflow::fault::Fault;
use flow::openflow::message::{Body, BundleAdd, Message, Raw};
use flow::openflow::misc::{BundleCommand, BundleControl, BundleFlags, Empty};
use flow::openflow::multipart::{Multipart, Reply, Request};
use linux::sys::{notice, process};
use record::{Problem, Result};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The bundle that a client makes; a connection has its own numbers, and this one makes one at a time.
const BUNDLE: u32 = 1;
/// How often interrupts are looked for.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes that wait to be sent before more are made: a million rules need not be in memory twice.
const ENOUGH: usize = 1 << 20;
/// How often is read at once.
const READS: u32 = 64;

/// One connection to a switch.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    channel: Channel,
    began: Instant,
    version: Version,
    limit: Duration,
    /// Messages that came while another was waited for.
    unasked: VecDeque<Message>,
    /// What the switch refused, by transaction.
    refused: BTreeMap<u32, Fault>,
    /// Messages that cannot be read, by transaction.
    unreadable: BTreeMap<u32, Fault>,
    /// Bytes that wait to be sent, up to the end of the last question.
    owed: usize,
    /// There may be more to read, which the descriptor of a TLS connection does not show.
    goes_on: bool,
    /// Why the connection ended; what came before is still to be had.
    ended: Option<String>,
}

/// One change that the switch refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the changes.
    pub index: usize,
    /// Why.
    pub fault: Fault,
}

impl Client {
    /// Calls a switch and waits for its hello.
    ///
    /// # Errors
    /// Input: no answer, or no version of OpenFlow in common.
    pub fn call(
        to: &Remote,
        credentials: Option<&Credentials>,
        versions: &[Version],
        limit: Duration,
    ) -> Result<Client> {
        let stream = stream::call(to, credentials).map_err(|e| {
            Problem::input(format!("cannot be called: {e}"))
                .at(to.to_string())
                .help(format!("is a switch listening there (pathlab switch --listen {})?", listening(to)))
        })?;
        Client::over(stream, versions, limit).map_err(|problem| problem.at(to.to_string()))
    }

    /// Speaks over a connection that is there, and waits for the hello.
    ///
    /// # Errors
    /// Input: the other end speaks no OpenFlow that is spoken here.
    pub fn over(stream: Stream, versions: &[Version], limit: Duration) -> Result<Client> {
        let config = ChannelConfig {
            versions: versions.to_vec(),
            echo_timeout_ns: limit.as_nanos() as u64,
            ..ChannelConfig::default()
        };
        let mut client = Client {
            stream,
            channel: Channel::new(Side::Client, config, 0),
            began: Instant::now(),
            version: Version::default(),
            limit,
            unasked: VecDeque::new(),
            refused: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            owed: 0,
            goes_on: false,
            ended: None,
        };
        let deadline = Instant::now() + limit;
        while client.channel.version().is_none() {
            client.turn(deadline)?;
        }
        client.version = client.channel.version().unwrap_or_default();
        Ok(client)
    }

    /// The version that both ends speak.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sends a message; its transaction. Nothing is waited for but room.
    ///
    /// # Errors
    /// Input: the connection ended, or the message is too long for OpenFlow.
    pub fn post(&mut self, body: Body) -> Result<u32> {
        let xid = self.channel.next_xid();
        let message = Message { version: self.version, xid, body };
        self.channel.send(&message).map_err(|too_long| Problem::input(too_long.to_string()))?;
        self.owed = self.channel.output_len();
        let deadline = Instant::now() + self.limit;
        while self.channel.output().len() > ENOUGH {
            self.turn(deadline)?;
        }
        Ok(xid)
    }

    /// Sends a question and waits for the answer.
    ///
    /// # Errors
    /// Input: the switch refuses it, does not answer in time, or answers what cannot be read.
    pub fn ask(&mut self, body: Body) -> Result<Body> {
        let refused = |fault| Problem::input(format!("the switch refuses the question: {fault}"));
        self.attempt(body)?.map_err(refused)
    }

    /// Asks a question of the multipart kind.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn multipart(&mut self, body: Request) -> Result<Reply> {
        match self.ask(Body::MultipartRequest(Multipart::whole(body)))? {
            Body::MultipartReply(Multipart { body, .. }) => Ok(body),
            other => Err(unexpected(&other)),
        }
    }

    /// Frames that ended in the pipeline, by port and reason; none where the switch does not know the question.
    pub fn drops(&mut self) -> Option<Vec<DropRow>> {
        let (mut all, mut next) = (vec![], Some(0));
        while let Some(first) = next {
            let Ok(Reply::Experimenter(reply)) = self.multipart(Request::Experimenter(drops::request(first)))
            else {
                return None;
            };
            let (rows, then) = drops::rows(&reply)?;
            all.extend(rows);
            // A switch that names again what it told already would never end.
            next = then.filter(|then| *then > first);
        }
        Some(all)
    }

    /// Makes changes, in their order, and waits until they are made: rules as one bundle when the version has bundles, which
    /// makes all or none; else one by one. What was refused, in the order of the changes.
    ///
    /// # Errors
    /// Input: the connection, not a change, failed.
    pub fn change(&mut self, changes: &[Body]) -> Result<Vec<Refusal>> {
        if self.is_all_or_none(changes) {
            return self.bundle(changes);
        }
        let xids = changes.iter().map(|body| self.post(body.clone())).collect::<Result<Vec<_>>>()?;
        self.barrier()?;
        Ok(self.refusals(&xids))
    }

    /// Whether [`Client::change`] makes one bundle of these: of one that is refused, none is made.
    pub fn is_all_or_none(&self, changes: &[Body]) -> bool {
        let may_be_bundled = changes.iter().all(|body| matches!(body, Body::FlowMod(_)));
        self.version == Version::V14 && changes.len() > 1 && may_be_bundled
    }

    /// Waits until the switch has done everything that was sent.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn barrier(&mut self) -> Result<()> {
        match self.ask(Body::BarrierRequest(Empty {}))? {
            Body::BarrierReply(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// What the switch refused since the last time.
    pub fn take_refused(&mut self) -> Vec<(u32, Fault)> {
        std::mem::take(&mut self.refused).into_iter().collect()
    }

    /// The next message that no question asked for; `None` when the time is over or the process is interrupted.
    ///
    /// # Errors
    /// Input: the connection ended.
    pub fn next(&mut self, time: Duration) -> Result<Option<Message>> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(message) = self.unasked.pop_front() {
                return Ok(Some(message));
            }
            if Instant::now() >= deadline || process::interrupted() {
                return Ok(None);
            }
            self.step(deadline)?;
        }
    }

    /// OpenFlow 1.4.1 section 6.9: opened, filled, closed, and committed only when nothing in it was refused.
    fn bundle(&mut self, changes: &[Body]) -> Result<Vec<Refusal>> {
        let flags = BundleFlags(BundleFlags::ATOMIC.0 | BundleFlags::ORDERED.0);
        let control =
            |kind| Body::BundleControl(BundleControl { bundle_id: BUNDLE, kind, flags, properties: vec![] });
        self.ask(control(BundleCommand::OPEN_REQUEST))?;
        let mut xids = vec![];
        for body in changes {
            // The message inside has the transaction of the one around it (7.3.9.6).
            let xid = self.channel.next_xid().wrapping_add(1).max(1);
            let inside = Message { version: self.version, xid, body: body.clone() };
            let inside = inside.encode().map_err(|too_long| Problem::input(too_long.to_string()))?;
            let add = BundleAdd { bundle_id: BUNDLE, flags, message: Raw(inside), properties: vec![] };
            xids.push(self.post(Body::BundleAdd(add))?);
        }
        let closed = self.attempt(control(BundleCommand::CLOSE_REQUEST))?;
        let refused = self.refusals(&xids);
        if !refused.is_empty() {
            // A switch that has thrown it away already says so.
            let _ = self.attempt(control(BundleCommand::DISCARD_REQUEST))?;
            return Ok(refused);
        }
        let no = |what: &str, fault| Problem::input(format!("the switch refuses {what}: {fault}"));
        closed.map_err(|fault| no("to close the bundle", fault))?;
        let committed = self.attempt(control(BundleCommand::COMMIT_REQUEST))?;
        match (committed, self.refusals(&xids)) {
            (Err(fault), refused) if refused.is_empty() => Err(no("the bundle", fault)),
            (_, refused) => Ok(refused),
        }
    }

    /// Takes what was refused of these transactions, in their order.
    fn refusals(&mut self, xids: &[u32]) -> Vec<Refusal> {
        let refused = |(index, xid)| self.refused.remove(xid).map(|fault| Refusal { index, fault });
        xids.iter().enumerate().filter_map(refused).collect()
    }

    /// Sends a question and waits for its answer, or its refusal.
    fn attempt(&mut self, body: Body) -> Result<Result<Body, Fault>> {
        let xid = self.post(body)?;
        self.answer(xid)
    }

    /// Waits for the answer to a transaction, or its refusal.
    fn answer(&mut self, xid: u32) -> Result<Result<Body, Fault>> {
        let mut deadline = Instant::now() + self.limit;
        loop {
            if let Some(place) = self.unasked.iter().position(|message| message.xid == xid)
                && let Some(message) = self.unasked.remove(place)
            {
                return Ok(Ok(message.body));
            }
            if let Some(fault) = self.refused.remove(&xid) {
                return Ok(Err(fault));
            }
            if let Some(fault) = self.unreadable.remove(&xid) {
                return Err(Problem::input(format!("the switch's answer cannot be read: {fault}")));
            }
            if self.turn(deadline)? {
                // A long answer takes as long as it takes, as long as it comes. What comes unasked is none: a switch that is stuck may still
                // ask for echoes, or send frames.
                deadline = Instant::now() + self.limit;
            }
        }
    }

    /// As [`Client::step`], where the end of the time is an error.
    fn turn(&mut self, deadline: Instant) -> Result<bool> {
        if Instant::now() >= deadline {
            return Err(Problem::input(format!("no answer within {} s", self.limit.as_secs_f64()))
                .help("--timeout SECONDS waits longer"));
        }
        if process::interrupted() {
            return Err(Problem::input("interrupted while waiting for the switch"));
        }
        self.step(deadline)
    }

    /// Waits once, reads and writes what can be, and sorts what came; whether bytes went, or some of an answer came.
    fn step(&mut self, deadline: Instant) -> Result<bool> {
        if let Some(why) = &self.ended {
            return Err(Problem::input(why.clone()));
        }
        let patience = if self.goes_on { Duration::ZERO } else { PATIENCE };
        let left = deadline.saturating_duration_since(Instant::now()).min(patience);
        let wants_room = !self.channel.output().is_empty() || self.stream.wants_write();
        let ready = notice::wait(&[(self.stream.as_fd(), wants_room)], left)
            .map_err(|e| Problem::host(format!("cannot wait for the switch: {e}")))?;
        let (answered, owed) = (self.channel.answered(), self.owed);
        if ready[0].write || wants_room {
            self.write();
        }
        if ready[0].read || self.goes_on {
            self.read();
        }
        self.channel.tick(self.now());
        let is_refused = self.sort();
        Ok(is_refused || self.owed < owed || self.channel.answered() > answered)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn write(&mut self) {
        match self.stream.drain(self.channel.output()) {
            Ok(sent) => self.owed = self.owed.saturating_sub(sent),
            Err(_) => {
                // What the switch said before it went is still to be read.
                self.read();
                self.channel.closed("the switch closed the connection");
            }
        }
    }

    fn read(&mut self) {
        let mut room = [0; 1 << 16];
        self.goes_on = false;
        for _ in 0..READS {
            match self.stream.read(&mut room) {
                Ok(0) => return self.channel.closed("the switch closed the connection"),
                Ok(came) => {
                    let now = self.now();
                    self.channel.input(now, &room[..came]);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => {
                    return self.channel.closed(&format!("the connection to the switch broke: {e}"));
                }
            }
        }
        // Who sends without end is not to keep us from looking at the time.
        self.goes_on = true;
    }

    /// Sorts what came; whether something was refused.
    fn sort(&mut self) -> bool {
        let mut is_refused = false;
        while let Some(event) = self.channel.next_event() {
            match event {
                Event::Up { .. } => {}
                Event::Message(Message { xid, body: Body::Error(error), .. }) => {
                    is_refused = true;
                    self.refused.insert(xid, error.fault);
                }
                Event::Message(message) => self.unasked.push_back(message),
                Event::Refused { xid, fault, .. } => {
                    self.unreadable.insert(xid, fault);
                }
                Event::Down(why) => self.ended = Some(why),
            }
        }
        is_refused
    }
}

/// Where a switch listens that is called so.
fn listening(to: &Remote) -> &'static str {
    match to {
        Remote::Tcp(_) => "ptcp:[PORT][:IP]",
        Remote::Tls(_) => "pssl:[PORT][:IP]",
        Remote::Unix(_) => "punix:PATH",
    }
}

fn unexpected(body: &Body) -> Problem {
    Problem::input(format!("the switch answers with {}, which does not answer the question", body.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// A hello of OpenFlow 1.4 and a question for an echo.
    const HELLO: [u8; 8] = [5, 0, 0, 8, 0, 0, 0, 1];
    const ECHO: [u8; 8] = [5, 2, 0, 8, 0, 0, 0, 2];
    /// A part of an answer about rules that holds none, and says that more follow.
    const NOTHING_YET: [u8; 16] = [5, 19, 0, 16, 0, 0, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0];

    #[test]
    fn a_switch_that_talks_and_does_not_answer_is_not_waited_for_longer() {
        let pauses = [Duration::ZERO, Duration::from_millis(10)];
        for (talk, pause) in
            [&ECHO[..], &NOTHING_YET].into_iter().flat_map(|talk| pauses.map(|pause| (talk, pause)))
        {
            let (here, mut there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            let switch = std::thread::spawn(move || {
                let end = Instant::now() + Duration::from_secs(20);
                there.write_all(&HELLO).unwrap();
                while Instant::now() < end && there.write_all(&talk.repeat(1000)).is_ok() {
                    std::thread::sleep(pause);
                }
                Instant::now() < end
            });
            let limit = Duration::from_millis(200);
            let mut client = Client::over(Box::new(here), &[Version::V14], limit).unwrap();
            assert!(client.barrier().unwrap_err().to_string().contains("no answer within 0.2 s"));
            drop(client);
            assert!(switch.join().unwrap(), "the client was still there after 20 s");
        }
    }
}

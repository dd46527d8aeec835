//! The secure channel of the reference switch: between a datapath that waits and controllers that are called.
//!
//! **What.** The reference implementation of OpenFlow is two programs: one has the ports and waits at a socket, the other
//! calls the controllers and carries their messages there. A [`Relay`] is the second: every controller, and every client
//! that calls the relay, gets a connection of its own to the datapath, and messages go through it unchanged. One question
//! is answered here: *are the ends connected?*
//!
//! **Why.** Mininet's `--switch user` starts the two programs by their names. The datapath keeps its controllers apart
//! by their connections, so roles, asynchronous masks and barriers mean through a relay what they mean without one.
//!
//! **Price.** A thread for each connection. Failing open is done by a rule that can be seen (see [`OPEN_RULE`]): a
//! datapath that is asked over OpenFlow cannot know which of its connections are controllers.

use crate::client::Client;
use crate::config::{FailMode, Remote};
use crate::notice::LastReason;
use crate::stream::{self, Listener, Stream};
use crate::tls::Credentials;
use flow::client;
use flow::openflow::bytes::Version;
use flow::openflow::channel::BackOff;
use flow::openflow::message::Header;
use flow::rule::{FlowMod, FlowModCommand};
use flow::text::rule;
use linux::sys::clock;
use linux::sys::notice::wait;
use record::problem::system_words;
use record::{Problem, Result};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// What fails open does: every frame to NORMAL before every other rule, until a controller is there again.
pub const OPEN_RULE: &str = "cookie=0x6661696c6f70656e,table=0,priority=65535 actions=NORMAL";
/// By which the rule is recognised.
const OPEN_COOKIE: &str = "0x6661696c6f70656e";

/// The experimenter of the status question: Nicira's number (`nicira-ext.h` of the reference implementation, `NXT_STATUS_REQUEST`).
pub const STATUS_EXPERIMENTER: u32 = 0x2320;
/// The kind of the question; its text is a beginning of the names that are wanted.
pub const STATUS_REQUEST: u32 = 0;
/// The kind of the answer; its text has a line `name=value` for each.
pub const STATUS_REPLY: u32 = 1;

/// Messages begin with version, type, length and transaction (OpenFlow 1.3.5 section 7.1.1).
const HEADER: usize = 8;
const HELLO: u8 = 0;
const EXPERIMENTER: u8 = 4;
/// Bytes that wait for one end before the other is not read any more.
const ENOUGH: usize = 1 << 18;
/// How long anything sleeps before it looks whether it is to end.
const NAP: Duration = Duration::from_millis(100);
/// How long both ends are left alone when nothing can move.
const PAUSE: Duration = Duration::from_millis(1);
/// Clients at a time.
const MOST_CLIENTS: usize = 64;
/// Bytes of answers that may wait for a client that asks and does not read; messages alone never reach this.
const MOST_ANSWERS: usize = 2 * ENOUGH;
/// How long what one end said before it hung up may take to the other end.
const LAST_WORDS: Duration = Duration::from_secs(30);
/// How long the bridge waits for a switch's answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The pause between two attempts to make or end the bridge.
const RETRY: Duration = Duration::from_secs(1);
/// Messages to the bridge's connection that are passed over at a time.
const MOST_UNWANTED: usize = 10_000;

/// What a relay is between.
pub struct Relay {
    /// The switch.
    pub datapath: Remote,
    /// The controllers that it obeys.
    pub controllers: Vec<Remote>,
    /// Where it listens for clients.
    pub listeners: Vec<Listener>,
    /// What happens while no controller is there.
    pub fail: FailMode,
    /// Key and certificates, for ends over TLS.
    pub credentials: Option<Credentials>,
    /// The longest pause between two calls.
    pub longest_pause: Duration,
}

/// What happened, to be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Messages go to and from this controller.
    Up(String),
    /// They do so no longer.
    Down(String, String),
    /// An end cannot be reached; reported once until it can.
    Unreachable(String, String),
    /// The switch became a bridge, or follows its rules again.
    Open(bool),
}

/// What the threads of a running relay share.
struct RelayState<'a> {
    relay: &'a Relay,
    /// For each controller whether both ends have said hello.
    up: Vec<AtomicBool>,
    clients: AtomicUsize,
    /// The relay cannot go on.
    has_failed: AtomicBool,
    stop: &'a (dyn Fn() -> bool + Sync),
    say: &'a (dyn Fn(Said) + Sync),
}

impl Relay {
    /// Carries messages until `stop` says so.
    ///
    /// # Errors
    /// Host: the kernel refused to wait.
    pub fn run(&self, stop: &(dyn Fn() -> bool + Sync), say: &(dyn Fn(Said) + Sync)) -> Result<()> {
        let up = self.controllers.iter().map(|_| AtomicBool::new(false)).collect();
        let (clients, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let state = RelayState { relay: self, up, clients, has_failed, stop, say };
        std::thread::scope(|scope| {
            for index in 0..self.controllers.len() {
                let state = &state;
                scope.spawn(move || state.follow(index));
            }
            let done = state.attend(scope);
            // The others look for it: without it they would keep this from returning.
            state.has_failed.store(done.is_err(), Relaxed);
            done
        })
    }
}

impl RelayState<'_> {
    fn is_over(&self) -> bool {
        (self.stop)() || self.has_failed.load(Relaxed)
    }

    fn is_connected(&self) -> bool {
        self.up.iter().any(|up| up.load(Relaxed))
    }

    /// Takes clients, and makes the switch a bridge and ends that.
    fn attend<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Result<()> {
        let mut opener = Opener::new();
        while !self.is_over() {
            let waited: Vec<_> = self.relay.listeners.iter().map(|one| (one.as_fd(), false)).collect();
            wait(&waited, NAP).map_err(|e| Problem::host(format!("cannot wait for clients: {e}")))?;
            for client in self.relay.listeners.iter().filter_map(Listener::take) {
                if self.clients.fetch_add(1, Relaxed) < MOST_CLIENTS {
                    scope.spawn(move || self.serve(client));
                } else {
                    self.clients.fetch_sub(1, Relaxed);
                }
            }
            if !self.relay.controllers.is_empty() {
                opener.turn(self);
            }
        }
        Ok(())
    }

    /// Keeps one controller connected.
    fn follow(&self, index: usize) {
        let controller = &self.relay.controllers[index];
        let mut back_off = BackOff::new(clock::monotonic_ns().wrapping_add(index as u64));
        let mut failed = LastReason::default();
        while !self.is_over() {
            match self.one_connection(index, &mut back_off) {
                Ok(why) => {
                    failed.forget();
                    (self.say)(Said::Down(controller.to_string(), why));
                }
                Err((who, why)) if !self.is_over() && failed.is_new(&why) => {
                    (self.say)(Said::Unreachable(who, why));
                }
                Err(_) => {}
            }
            self.sleep(Duration::from_nanos(back_off.next_delay_ns()).min(self.relay.longest_pause));
        }
    }

    /// One connection with a controller, from the call to the end, and why it ended. An error is before both ends had said hello: which
    /// end it was, and why.
    fn one_connection(&self, index: usize, back_off: &mut BackOff) -> Result<String, (String, String)> {
        let controller = &self.relay.controllers[index];
        // The controller first: without one there is no need to connect to the datapath.
        let far = self.call(controller)?;
        let near = self.call(&self.relay.datapath)?;
        let mut since = None;
        let why = self.pump(near, far, &mut |is_up| {
            self.up[index].store(is_up, Relaxed);
            if is_up {
                since = Some(clock::monotonic_ns());
                (self.say)(Said::Up(controller.to_string()));
            }
        });
        if let Some(since) = since {
            back_off.lasted(clock::monotonic_ns().saturating_sub(since));
        }
        match self.up[index].swap(false, Relaxed) {
            true => Ok(why),
            false => Err((controller.to_string(), why)),
        }
    }

    fn call(&self, to: &Remote) -> Result<Stream, (String, String)> {
        let failed = |error: io::Error| (to.to_string(), system_words(&error));
        stream::call(to, self.relay.credentials.as_ref()).map_err(failed)
    }

    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.is_over() {
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(NAP));
        }
    }

    /// Gives a client a connection to the datapath; without one the client is refused.
    fn serve(&self, client: Stream) {
        if let Ok(near) = self.call(&self.relay.datapath) {
            self.pump(near, client, &mut |_| {});
        }
        self.clients.fetch_sub(1, Relaxed);
    }

    /// Carries messages between two connections until one of them ends; returns why. `up` is called when both ends have sent
    /// their hello.
    fn pump(&self, near: Stream, far: Stream, up: &mut dyn FnMut(bool)) -> String {
        let (mut near, mut far) = (End::new(near), End::new(far));
        let why = self.carry(&mut near, &mut far, up);
        // The end that closed may have sent more than the other end has taken yet.
        let until = Instant::now() + LAST_WORDS;
        for end in [&mut near, &mut far] {
            while end.has_more() && Instant::now() < until && !self.is_over() {
                if !end.write() {
                    std::thread::sleep(PAUSE);
                }
            }
        }
        why
    }

    fn carry(&self, near: &mut End, far: &mut End, up: &mut dyn FnMut(bool)) -> String {
        let mut was_up = false;
        let status = |wanted: &str| self.status(wanted);
        while !self.is_over() {
            let there = near.pass(far, None).map_err(|why| format!("the switch {why}"));
            let back = far.pass(near, Some(&status)).map_err(|why| format!("the other end {why}"));
            let mut moved = matches!(there, Ok(true)) || matches!(back, Ok(true));
            for end in [&mut *near, &mut *far] {
                moved |= end.write();
            }
            if let Err(why) = there.and(back) {
                return why;
            }
            if near.has_greeted && far.has_greeted && !was_up {
                was_up = true;
                up(true);
            }
            if !moved && self.wait(near, far).is_err() {
                return "the kernel does not wait for it".into();
            }
        }
        "the relay ends".into()
    }

    /// Waits until an end can be read or written.
    fn wait(&self, near: &End, far: &End) -> io::Result<()> {
        // An end whose bytes are not taken is not read; waiting for it would return at once, again and again.
        if near.output.len() >= ENOUGH || far.output.len() >= ENOUGH {
            std::thread::sleep(PAUSE);
            return Ok(());
        }
        // What TLS has read already shows in no poll.
        if near.stream.holds() || far.stream.holds() {
            return Ok(());
        }
        let writes = |end: &End| !end.output.is_empty() || end.stream.wants_write();
        let ends = [near, far].map(|end| (end.stream.as_fd(), writes(end)));
        wait(&ends, NAP).map(drop)
    }

    /// The lines whose names begin so.
    fn status(&self, wanted: &str) -> String {
        let mut lines = vec![
            format!("remote.is-connected={}", self.is_connected()),
            // Whoever asks does it through the datapath.
            "local.is-connected=true".into(),
            format!("local.name={}", self.relay.datapath),
            format!("fail.mode={}", if self.relay.fail == FailMode::Secure { "closed" } else { "open" }),
        ];
        for (number, (controller, up)) in self.relay.controllers.iter().zip(&self.up).enumerate() {
            lines.push(format!("remote.{}.name={controller}", number + 1));
            lines.push(format!("remote.{}.is-connected={}", number + 1, up.load(Relaxed)));
        }
        lines.sort();
        lines.iter().filter(|line| line.starts_with(wanted)).map(|line| format!("{line}\n")).collect()
    }
}

/// One end of a pair: what came from it and what is to go there.
struct End {
    stream: Stream,
    inbox: Vec<u8>,
    output: Vec<u8>,
    has_greeted: bool,
    /// Why it takes nothing any more; what it said before is still to be read.
    deaf: Option<String>,
}

impl End {
    fn new(stream: Stream) -> End {
        End { stream, inbox: vec![], output: vec![], has_greeted: false, deaf: None }
    }

    /// Takes over what came, unless too much waits on the other side; whether anything came.
    fn pass(&mut self, to: &mut End, status: Option<&dyn Fn(&str) -> String>) -> Result<bool, String> {
        let read = if to.output.len() < ENOUGH { self.read() } else { Ok(0) };
        // What came before the end goes over, too.
        let count = self.sort(to, status).and(read)?;
        match &self.deaf {
            Some(why) if count == 0 => Err(why.clone()),
            _ => Ok(count > 0),
        }
    }

    /// Whether something waits to be written, and can be.
    fn has_more(&self) -> bool {
        self.deaf.is_none() && (!self.output.is_empty() || self.stream.wants_write())
    }

    /// Reads what is there; how many bytes.
    fn read(&mut self) -> Result<usize, String> {
        let mut room = [0; 1 << 16];
        match self.stream.read(&mut room) {
            Ok(0) => Err("closed the connection".into()),
            Ok(count) => {
                self.inbox.extend_from_slice(&room[..count]);
                Ok(count)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(e) => Err(format!("is gone: {}", system_words(&e))),
        }
    }

    /// Writes what can be; whether anything was.
    fn write(&mut self) -> bool {
        let written = self.stream.drain(&mut self.output).unwrap_or_else(|e| {
            self.output.clear();
            self.deaf.get_or_insert_with(|| format!("takes nothing any more: {}", system_words(&e)));
            0
        });
        written > 0
    }

    /// Takes whole messages over to the other end; where a status is known, the question for it is answered instead.
    fn sort(&mut self, to: &mut End, status: Option<&dyn Fn(&str) -> String>) -> Result<(), String> {
        let mut at = 0;
        while let Some(message) = whole(&self.inbox[at..])? {
            self.has_greeted |= message[1] == HELLO;
            at += message.len();
            match status.zip(question(message)) {
                Some(_) if self.output.len() > MOST_ANSWERS => {
                    let why = "reads no answers".to_owned();
                    self.deaf = Some(why.clone());
                    return Err(why);
                }
                Some((status, wanted)) => self.output.extend(answer(message, &status(&wanted))),
                None => to.output.extend_from_slice(message),
            }
        }
        self.inbox.drain(..at);
        Ok(())
    }
}

/// The first message, if it is there as a whole.
fn whole(bytes: &[u8]) -> Result<Option<&[u8]>, String> {
    match Header::parse(bytes).map(|header| usize::from(header.length)) {
        Some(length) if length < HEADER => Err("sends no OpenFlow".into()),
        length => Ok(length.and_then(|length| bytes.get(..length))),
    }
}

/// The text of a question for the status.
fn question(message: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u32::from_be_bytes(message.get(at..at + 4)?.try_into().ok()?));
    let is_one = message[1] == EXPERIMENTER
        && word(HEADER)? == STATUS_EXPERIMENTER
        && word(HEADER + 4)? == STATUS_REQUEST;
    let text = message.get(HEADER + 8..)?;
    is_one.then(|| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
}

/// The answer to a question.
fn answer(question: &[u8], text: &str) -> Vec<u8> {
    let most = usize::from(u16::MAX) - HEADER - 8;
    let text = &text.as_bytes()[..text.len().min(most)];
    let mut message = vec![question[0], EXPERIMENTER];
    message.extend(((HEADER + 8 + text.len()) as u16).to_be_bytes());
    message.extend(&question[4..HEADER]);
    message.extend(STATUS_EXPERIMENTER.to_be_bytes());
    message.extend(STATUS_REPLY.to_be_bytes());
    message.extend(text);
    message
}

/// Lets the switch be a bridge while no controller is there.
struct Opener {
    /// The connection that made the rule; the rule is taken to be gone with it.
    client: Option<Client>,
    /// The rule may be in the switch: this relay made it, or one before that was killed.
    may_be_open: bool,
    /// It was said that the switch is a bridge.
    is_open: bool,
    /// Why it could not be one.
    failed: LastReason,
    /// Not before this time is it tried again.
    next: Instant,
}

impl Opener {
    fn new() -> Opener {
        Opener {
            client: None,
            may_be_open: true,
            is_open: false,
            failed: LastReason::default(),
            next: Instant::now(),
        }
    }

    fn turn(&mut self, state: &RelayState<'_>) {
        if state.is_connected() || state.relay.fail == FailMode::Secure {
            self.close(state);
        } else {
            self.open(state);
        }
    }

    /// Takes the rule away, until that is sure: it would be above all rules of a controller.
    fn close(&mut self, state: &RelayState<'_>) {
        if !self.may_be_open || self.attempt(state, FlowModCommand::DeleteStrict).is_err() {
            return;
        }
        (self.client, self.may_be_open) = (None, false);
        if std::mem::take(&mut self.is_open) {
            (state.say)(Said::Open(false));
        }
    }

    fn open(&mut self, state: &RelayState<'_>) {
        if self.client.is_none() {
            match self.attempt(state, FlowModCommand::Add) {
                Ok(()) => {
                    (self.may_be_open, self.is_open) = (true, true);
                    self.failed.forget();
                    (state.say)(Said::Open(true));
                }
                Err(Some(why)) if self.failed.is_new(&why) => {
                    (state.say)(Said::Unreachable(state.relay.datapath.to_string(), why));
                }
                Err(_) => {}
            }
        }
        // What the switch sends to controllers comes here, too, and is not for us.
        for _ in 0..MOST_UNWANTED {
            match self.client.as_mut().map(|client| client.next(PAUSE)) {
                Some(Ok(Some(_))) => {}
                Some(Ok(None)) | None => break,
                Some(Err(_)) => self.client = None,
            }
        }
    }

    /// Makes one change, over the connection that is there or a new one, if it is time; why that failed.
    fn attempt(&mut self, state: &RelayState<'_>, command: FlowModCommand) -> Result<(), Option<String>> {
        if Instant::now() < self.next {
            return Err(None);
        }
        let relay = state.relay;
        let call = || Client::call(&relay.datapath, relay.credentials.as_ref(), &Version::ALL, LIMIT);
        let client = self.client.take().map_or_else(call, Ok);
        let changed = client.and_then(|mut client| change(&mut client, command).map(|()| client));
        let failed = |problem: Problem| {
            self.next = Instant::now() + RETRY;
            Some(problem.what)
        };
        self.client = Some(changed.map_err(failed)?);
        Ok(())
    }
}

/// Adds or deletes [`OPEN_RULE`].
fn change(client: &mut Client, command: FlowModCommand) -> Result<()> {
    let change = open_rule(command)?;
    let refused = client.change(&[client::flow_mod(&change)])?;
    match refused.first() {
        None => Ok(()),
        Some(refusal) => Err(Problem::input(refusal.fault.to_string())),
    }
}

fn open_rule(command: FlowModCommand) -> Result<FlowMod> {
    let text = match command {
        FlowModCommand::Add => OPEN_RULE.to_owned(),
        // Only the rule with this cookie: a controller may have put one of its own in its place.
        _ => format!("cookie={OPEN_COOKIE}/-1,table=0,priority=65535"),
    };
    rule::flow_mod(command, &text).map_err(|e| Problem::input(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    #[test]
    fn the_rule_of_failing_open_can_be_read_both_ways() {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            let change = open_rule(command).unwrap();
            assert_eq!(
                (change.table, change.rule.priority, change.rule.cookie),
                (0, 65535, 0x6661_696c_6f70_656e)
            );
        }
        let delete = open_rule(FlowModCommand::DeleteStrict).unwrap();
        assert_eq!(delete.cookie_mask, u64::MAX, "nobody else's rule is deleted");
    }

    /// A state whose datapath and controller wait at these files, until it is stopped.
    fn with_state<T>(folder: &Path, work: impl FnOnce(&RelayState<'_>) -> T) -> T {
        let relay = Relay {
            datapath: Remote::Unix(folder.join("datapath")),
            controllers: vec![Remote::Unix(folder.join("controller"))],
            listeners: vec![],
            fail: FailMode::Secure,
            credentials: None,
            longest_pause: Duration::ZERO,
        };
        work(&RelayState {
            relay: &relay,
            up: vec![AtomicBool::new(false)],
            clients: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            stop: &|| false,
            say: &|_| {},
        })
    }

    /// Two ends of a connection: the relay's, and the other, whose calls block.
    fn pair() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Box::new(ours), theirs)
    }

    /// A message of this many bytes.
    fn echo(length: u16) -> Vec<u8> {
        let mut message = vec![4, 2, 0, 0, 0, 0, 0, 1];
        message[2..4].copy_from_slice(&length.to_be_bytes());
        message.resize(usize::from(length), 7);
        message
    }

    #[test]
    fn what_was_said_before_hanging_up_arrives_though_it_is_taken_late() {
        let folder = tempfile::tempdir().unwrap();
        let ((near, mut switch), (far, mut client)) = (pair(), pair());
        // More than the kernel keeps for one end, less than the relay and both ends together.
        let all = echo(1000).repeat(300);
        let why = std::thread::scope(|scope| {
            let pump = scope.spawn(|| with_state(folder.path(), |state| state.pump(near, far, &mut |_| {})));
            client.write_all(&all).unwrap();
            drop(client);
            let mut came = vec![];
            switch.read_to_end(&mut came).unwrap();
            assert_eq!(came.len(), all.len());
            assert!(came == all);
            pump.join().unwrap()
        });
        assert_eq!(why, "the other end closed the connection");
    }

    #[test]
    fn who_asks_for_the_status_and_reads_no_answer_is_sent_away() {
        let folder = tempfile::tempdir().unwrap();
        let ((near, _switch), (far, mut client)) = (pair(), pair());
        let question = [4, 4, 0, 16, 0, 0, 0, 9, 0, 0, 0x23, 0x20, 0, 0, 0, 0].repeat(64);
        let why = std::thread::scope(|scope| {
            let pump = scope.spawn(|| with_state(folder.path(), |state| state.pump(near, far, &mut |_| {})));
            while client.write_all(&question).is_ok() {}
            pump.join().unwrap()
        });
        assert_eq!(why, "the other end reads no answers");
    }

    #[test]
    fn an_end_that_takes_nothing_any_more_is_heard_out_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let ((near, mut switch), (far, mut client)) = (pair(), pair());
        let last = echo(50_000);
        switch.write_all(&last).unwrap();
        switch.shutdown(Shutdown::Read).unwrap();
        client.write_all(&echo(8)).unwrap();
        let why = with_state(folder.path(), |state| state.pump(near, far, &mut |_| {}));
        assert_eq!(why, "the switch takes nothing any more: Broken pipe");
        let mut came = vec![];
        client.read_to_end(&mut came).unwrap();
        assert!(came == last);
    }

    #[test]
    fn a_datapath_is_not_called_for_nobody_and_who_hangs_up_at_once_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let listen = |name: &str| UnixListener::bind(folder.path().join(name)).unwrap();
        let datapath = listen("datapath");
        datapath.set_nonblocking(true).unwrap();
        with_state(folder.path(), |state| {
            let mut back_off = BackOff::new(1);
            let name = state.relay.controllers[0].to_string();
            let (who, why) = state.one_connection(0, &mut back_off).unwrap_err();
            assert_eq!((who, why.as_str()), (name.clone(), "No such file or directory"));
            assert_eq!(datapath.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            let controller = listen("controller");
            std::thread::scope(|scope| {
                scope.spawn(|| drop(controller.accept().unwrap()));
                let (who, why) = state.one_connection(0, &mut back_off).unwrap_err();
                assert_eq!((who, why.as_str()), (name, "the other end closed the connection"));
            });
        });
    }

    #[test]
    fn only_the_question_for_the_status_is_a_question() {
        let mut asked = vec![4, 4, 0, 22, 0, 0, 0, 9, 0, 0, 0x23, 0x20, 0, 0, 0, 0];
        asked.extend(b"remote");
        assert_eq!(whole(&asked).unwrap(), Some(&asked[..]));
        assert_eq!(question(&asked).as_deref(), Some("remote"));
        let answered = answer(&asked, "a=b\n");
        assert_eq!(
            answered,
            [&[4, 4, 0, 20, 0, 0, 0, 9, 0, 0, 0x23, 0x20, 0, 0, 0, 1][..], b"a=b\n"].concat()
        );
        assert_eq!(question(&answered), None, "an answer is none");
        asked[10] = 0;
        assert_eq!(question(&asked), None, "nor somebody else's message");
        assert!(whole(&[4, 4, 0, 7, 0, 0, 0, 9]).is_err());
    }

    proptest! {
        /// However the bytes come, the same messages go over, in order, and none is cut.
        #[test]
        fn messages_stay_whole(lengths in prop::collection::vec(0usize..40, 0..20), cut in 1usize..30, noise in any::<Vec<u8>>()) {
            let all: Vec<u8> = lengths.iter().enumerate().flat_map(|(index, more)| {
                let length = (HEADER + more) as u16;
                let mut message = vec![4, 10];
                message.extend(length.to_be_bytes());
                message.resize(usize::from(length), index as u8);
                message
            }).collect();
            let (mut inbox, mut over) = (vec![], vec![]);
            for piece in all.chunks(cut) {
                inbox.extend_from_slice(piece);
                while let Some(message) = whole(&inbox).unwrap() {
                    prop_assert!(question(message).is_none());
                    let length = message.len();
                    over.extend(inbox.drain(..length));
                }
            }
            prop_assert!(inbox.is_empty());
            prop_assert_eq!(over, all);
            if let Ok(Some(message)) = whole(&noise) {
                let _ = question(message).map(|wanted| answer(message, &wanted));
            }
        }
    }
}

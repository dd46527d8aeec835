//! One connection between a switch and a controller, without its socket.
//!
//! **What.** Bytes and the time go in; bytes to send and events come out. Inside are framing, the hello with its bitmap of versions
//! (OpenFlow 1.3.5 section 6.3.1), the echo that finds a dead peer (7.5.2 and 7.5.3), the answer to what cannot be decoded (7.4.4), questions
//! that come in several parts (7.3.5) and answers that leave in several.
//!
//! **Why.** Both sides are the same state machine, so two of them joined in memory test each other with any cut, delay and loss; and
//! whoever owns the socket (a thread, a poll loop, a test) has no protocol in it.
//!
//! **Order.** Messages come out in the order in which they came in, and what is sent leaves in the order of `send`. Who carries
//! out each message before taking the next has answered everything before a barrier when its reply is sent: the barrier needs
//! nothing else here (6.2). Each connection is an order of its own, auxiliary ones too.
//!
//! **Price.** The output is a buffer without limit: its owner looks at its length and stops asking for events when the peer does
//! not read.

use super::bytes::{Bytes, HEADER, LONGEST, Reader, Version};
use super::fault::Fault;
use super::message::{Body, Header, Message, TooLong, refusal};
use super::misc::{Echo, ErrorMessage, Hello};
use super::multipart::{self, MultipartAssembler, Reply, Request};
use crate::error::{BadRequest, Error, HelloFailed};
use std::collections::VecDeque;

/// Bytes of a part of an answer that holds nothing: the header, the kind, the flags.
const EMPTY_PART: usize = HEADER + 8;

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The switch.
    Switch,
    /// A controller, or a client that asks a switch.
    Client,
}

/// How a channel behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelConfig {
    /// The versions to speak.
    pub versions: Vec<Version>,
    /// After this time without a byte the peer is asked for an echo.
    pub echo_interval_ns: u64,
    /// After this time without a byte since then, or without a hello at the beginning, the channel is down.
    pub echo_timeout_ns: u64,
    /// A question in several parts whose next part does not come within this time is refused.
    pub multipart_timeout_ns: u64,
    /// Longer messages are refused.
    pub max_message: usize,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        ChannelConfig {
            versions: Version::ALL.to_vec(),
            echo_interval_ns: 5_000_000_000,
            echo_timeout_ns: 5_000_000_000,
            multipart_timeout_ns: 1_000_000_000,
            max_message: LONGEST,
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The hellos are exchanged.
    Up {
        /// The version that both speak.
        version: Version,
    },
    /// A message for the owner. A multipart one is whole.
    Message(Message),
    /// A message was refused, and the peer was informed unless this is a client.
    Refused {
        /// Its transaction.
        xid: u32,
        /// Its type, by number.
        kind: u8,
        /// Why.
        fault: Fault,
    },
    /// The connection is to be closed when the output is written; nothing more comes.
    Down(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for the hello.
    Greeting,
    Up(Version),
    Down,
}

/// One connection.
#[derive(Debug)]
pub struct Channel {
    side: Side,
    config: ChannelConfig,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
    events: VecDeque<Event>,
    /// When the connection was made.
    began: u64,
    /// When the last byte came.
    heard: u64,
    /// When an echo was asked for that has not been answered by any byte.
    asked: Option<u64>,
    xid: u32,
    questions: MultipartAssembler<Request>,
    answers: MultipartAssembler<Reply>,
    /// How many parts of answers came that hold something.
    answered: u64,
    /// When the last part of an incomplete question came, for the timeout.
    part: u64,
}

impl Channel {
    /// A connection that has just been made; the hello is in the output.
    ///
    /// # Panics
    /// When no version is to be spoken.
    pub fn new(side: Side, config: ChannelConfig, now: u64) -> Channel {
        let highest = *config.versions.iter().max().expect("at least one version");
        let numbers: Vec<u8> = config.versions.iter().map(|version| version.number()).collect();
        let mut channel = Channel {
            side,
            config,
            state: State::Greeting,
            input: vec![],
            output: vec![],
            events: VecDeque::new(),
            began: now,
            heard: now,
            asked: None,
            xid: 0,
            questions: MultipartAssembler::default(),
            answers: MultipartAssembler::default(),
            answered: 0,
            part: now,
        };
        let xid = channel.next_xid();
        channel.put(&Message { version: highest, xid, body: Body::Hello(Hello::with(&numbers)) });
        channel
    }

    /// The version that both speak, once the channel is up.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            State::Up(version) => Some(version),
            _ => None,
        }
    }

    /// Whether the channel has ended.
    pub fn is_down(&self) -> bool {
        self.state == State::Down
    }

    /// A transaction number that was not used here; never 0, which messages without a question have.
    pub fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1).max(1);
        self.xid
    }

    /// Bytes for the peer. The owner takes from the front what it wrote.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// How many bytes for the peer are there.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// How many parts of multipart answers came that hold something, whole or not: who waits for a long one sees that it goes on.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// The oldest event that was not taken.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes from the peer, in pieces of any size.
    pub fn input(&mut self, now: u64, bytes: &[u8]) {
        if self.is_down() || bytes.is_empty() {
            return;
        }
        (self.heard, self.asked) = (now, None);
        self.input.extend_from_slice(bytes);
        let mut start = 0;
        if self.state == State::Greeting && is_tls(&self.input) {
            self.down("the other end speaks TLS (ssl:, pssl:), and this end does not".to_owned());
        }
        if let Some(text) = text(&self.input).filter(|_| self.state == State::Greeting) {
            self.down(format!("the other end does not speak OpenFlow: its first bytes are '{text}'"));
        }
        while !self.is_down() {
            let Some(header) = Header::parse(&self.input[start..]) else { break };
            let length = usize::from(header.length);
            if length < HEADER {
                // Where the next one begins is unknown.
                let beginning = self.input[start..].to_vec();
                self.refuse_bytes(header, BadRequest::BadLen, &beginning);
                self.down(format!("the header of a message gives its length as {length} bytes"));
            } else if let Some(message) = self.input[start..].get(..length) {
                let message = message.to_vec();
                self.message(now, header, &message);
                start += length;
            } else {
                break;
            }
        }
        if self.is_down() {
            self.input = vec![];
        } else {
            self.input.drain(..start);
        }
    }

    /// The peer took bytes for which there had been no room: it is there. Its answer to an echo may be long in coming, because the echo
    /// comes after those bytes.
    pub fn reads(&mut self, now: u64) {
        if matches!(self.state, State::Up(_)) {
            (self.heard, self.asked) = (now, None);
        }
    }

    /// The peer closed the connection, or it broke.
    pub fn closed(&mut self, why: &str) {
        self.down(why.to_owned());
    }

    /// When [`Channel::tick`] has something to do next.
    pub fn deadline(&self) -> Option<u64> {
        let echo = match (self.state, self.asked) {
            (State::Down, _) => return None,
            (State::Greeting, _) => self.began.saturating_add(self.config.echo_timeout_ns),
            (_, None) => self.heard.saturating_add(self.config.echo_interval_ns),
            (_, Some(asked)) => asked.saturating_add(self.config.echo_timeout_ns),
        };
        let part = self.part.saturating_add(self.config.multipart_timeout_ns);
        Some(if self.questions.is_empty() { echo } else { echo.min(part) })
    }

    /// The time has come: asks for an echo, gives up.
    pub fn tick(&mut self, now: u64) {
        let part = self.part.saturating_add(self.config.multipart_timeout_ns);
        if let State::Up(version) = self.state
            && now >= part
        {
            for xid in self.questions.forget() {
                let fault = match version {
                    // 1.3 has no code for it.
                    Version::V13 => BadRequest::BadMultipart,
                    Version::V14 => BadRequest::MultipartRequestTimeout,
                }
                .into();
                self.put(&refusal(version, xid, fault, &[]));
                self.events.push_back(Event::Refused { xid, kind: 18, fault });
            }
        }
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let seconds = self.config.echo_timeout_ns as f64 / 1e9;
        match (self.state, self.asked) {
            (State::Up(version), None) => {
                let xid = self.next_xid();
                let body = Body::EchoRequest(Echo { data: Bytes::default() });
                self.put(&Message { version, xid, body });
                self.asked = Some(now);
            }
            (State::Up(_), Some(_)) => self.down(format!("no answer to an echo within {seconds} s")),
            _ => self.down(format!("no hello within {seconds} s")),
        }
    }

    /// Sends a message; a multipart reply that is too long for one leaves in several.
    pub fn send(&mut self, message: &Message) -> Result<(), TooLong> {
        if self.is_down() {
            return Ok(());
        }
        match (message.encode(), &message.body) {
            (Ok(bytes), _) => self.output.extend(bytes),
            (Err(_), Body::MultipartReply(reply)) => {
                let parts = multipart::split(message.version, message.xid, &reply.body)?;
                parts.iter().for_each(|part| self.output.extend(part));
            }
            (Err(too_long), _) => return Err(too_long),
        }
        Ok(())
    }

    /// Refuses a message that was understood: the error with its beginning goes to the peer.
    pub fn refuse(&mut self, message: &Message, fault: impl Into<Fault>) {
        let bytes = message.encode().unwrap_or_default();
        self.put(&refusal(message.version, message.xid, fault.into(), &bytes));
    }

    /// Says goodbye.
    fn down(&mut self, why: String) {
        if !self.is_down() {
            self.state = State::Down;
            self.events.push_back(Event::Down(why));
        }
    }

    /// Sends one of the small messages of the channel itself, which always fit.
    fn put(&mut self, message: &Message) {
        if let Ok(bytes) = message.encode() {
            self.output.extend(bytes);
        }
    }

    /// One whole message.
    fn message(&mut self, now: u64, header: Header, bytes: &[u8]) {
        match self.state {
            State::Greeting => self.greeting(header, bytes),
            State::Up(version) => self.business(now, version, header, bytes),
            State::Down => {}
        }
    }

    /// The first message: a hello of any version, or the refusal of ours.
    fn greeting(&mut self, header: Header, bytes: &[u8]) {
        match header.kind {
            0 => self.negotiate(header, &bytes[HEADER..]),
            1 => self.down(refused(bytes)),
            kind => {
                let why = format!("the first message has to be a hello; this one is of type {kind}");
                self.fail_hello(header, &why);
            }
        }
    }

    /// Section 6.3.1: the highest version of both bitmaps; without a bitmap, the smaller of both header numbers.
    fn negotiate(&mut self, header: Header, body: &[u8]) {
        // A body that cannot be read is one to be ignored, as the standard asks.
        let mut r = Reader::new(body, Version::V13, BadRequest::BadLen);
        let hello = <Hello as super::bytes::Part>::read(&mut r).unwrap_or_default();
        let mut own = self.config.versions.clone();
        own.sort();
        let highest = own.last().map_or(0, |version| version.number());
        let common = match hello.speaks(highest) {
            Some(_) => own.iter().rev().find(|version| hello.speaks(version.number()) == Some(true)),
            None => own.iter().find(|version| version.number() == header.version.min(highest)),
        };
        match common.copied() {
            Some(version) => {
                self.state = State::Up(version);
                self.events.push_back(Event::Up { version });
            }
            None => {
                let spoken: Vec<String> = own.iter().map(Version::to_string).collect();
                let why = format!(
                    "no OpenFlow version in common: here {}, there at most {}",
                    spoken.join(" and "),
                    name_of(header.version)
                );
                self.fail_hello(header, &why);
            }
        }
    }

    /// The refusal of a hello carries a sentence, and the peer's own version number so that it can be read: its layout is the same
    /// in all versions.
    fn fail_hello(&mut self, header: Header, why: &str) {
        let error = ErrorMessage {
            fault: HelloFailed::Incompatible.into(),
            experimenter: None,
            data: Bytes(why.as_bytes().to_vec()),
        };
        let message = Message { version: Version::V13, xid: header.xid, body: Body::Error(error) };
        let mut bytes = message.encode().unwrap_or_default();
        let highest = self.config.versions.iter().max().map_or(4, |version| version.number());
        if let Some(version) = bytes.first_mut() {
            *version = header.version.min(highest);
        }
        self.output.extend(bytes);
        self.down(why.to_owned());
    }

    /// A message after the hello.
    fn business(&mut self, now: u64, version: Version, header: Header, bytes: &[u8]) {
        if is_refused_hello(header, bytes) {
            // Section 6.3.1: without a bitmap the peer may not speak the smaller number after all. It says so, and ends the connection.
            return self.down(refused(bytes));
        }
        if header.version != version.number() {
            // A second hello or an error of the peer's other version is no reason to quarrel.
            if header.kind > 1 {
                self.refuse_bytes(header, BadRequest::BadVersion, bytes);
            }
            return;
        }
        if bytes.len() > self.config.max_message {
            return self.refuse_bytes(header, BadRequest::BadLen, bytes);
        }
        match Message::decode(bytes) {
            Err(fault) => self.refuse_bytes(header, fault, bytes),
            Ok(message) if !for_side(self.side, &message.body) => {
                self.refuse_bytes(header, BadRequest::BadType, bytes);
            }
            Ok(message) => self.understood(now, message, header, bytes),
        }
    }

    fn understood(&mut self, now: u64, message: Message, header: Header, bytes: &[u8]) {
        let Message { version, xid, body } = message;
        let whole = match body {
            Body::Hello(_) | Body::EchoReply(_) => return,
            Body::EchoRequest(echo) => {
                return self.put(&Message { version, xid, body: Body::EchoReply(echo) });
            }
            Body::MultipartRequest(part) => {
                self.part = now;
                self.questions.put(xid, part).map(|whole| whole.map(Body::MultipartRequest))
            }
            Body::MultipartReply(part) => {
                self.answered += u64::from(bytes.len() > EMPTY_PART);
                self.answers.put(xid, part).map(|whole| whole.map(Body::MultipartReply))
            }
            body => Ok(Some(body)),
        };
        match whole {
            Ok(None) => {}
            Ok(Some(body)) => self.events.push_back(Event::Message(Message { version, xid, body })),
            Err(fault) => self.refuse_bytes(header, fault, bytes),
        }
    }

    /// Refuses bytes. An error is never answered by an error, and a client does not teach a switch.
    fn refuse_bytes(&mut self, header: Header, fault: impl Into<Fault>, bytes: &[u8]) {
        let fault = fault.into();
        let version = match self.state {
            State::Up(version) => version,
            _ => Version::V13,
        };
        if self.side == Side::Switch && header.kind != 1 {
            self.put(&refusal(version, header.xid, fault, bytes));
        }
        self.events.push_back(Event::Refused { xid: header.xid, kind: header.kind, fault });
    }
}

/// Whether a message is the refusal of a hello. An error has one layout in all versions.
fn is_refused_hello(header: Header, bytes: &[u8]) -> bool {
    let (kind, _) = Error::from(HelloFailed::Incompatible).numbers();
    header.kind == 1 && bytes.get(HEADER..HEADER + 2) == Some(&kind.to_be_bytes()[..])
}

/// What an error says that answers a hello; its data is text (1.3.5 section 7.4.4.1).
fn refused(bytes: &[u8]) -> String {
    let mut bytes = bytes.to_vec();
    // Of whatever version it is, it is read as one of ours.
    bytes.iter_mut().take(1).for_each(|version| *version = Version::V13.number());
    let Ok(Message { body: Body::Error(error), .. }) = Message::decode(&bytes) else {
        return "the peer refused the hello with an error that cannot be read".to_owned();
    };
    let text = String::from_utf8_lossy(&error.data.0);
    let text = text.trim_end_matches('\0');
    match text.is_empty() || text.contains(char::is_control) {
        true => format!("the peer refused the hello: {}", error.fault),
        false => format!("the peer refused the hello: '{text}', {}", error.fault),
    }
}

/// What a peer began with, if that is text: no version of OpenFlow has the number of a letter.
fn text(bytes: &[u8]) -> Option<&str> {
    let first = bytes.get(..HEADER).filter(|first| first.iter().all(|byte| (b' '..=b'~').contains(byte)))?;
    std::str::from_utf8(first).ok()
}

/// Whether a connection begins as TLS does: an alert or a handshake of version 3.x (RFC 8446 section 5.1). As OpenFlow it would
/// have a version that does not exist, and an alert is shorter than a header.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, ..])
}

/// Whether a message of this type is one for this side.
fn for_side(side: Side, body: &Body) -> bool {
    match body {
        Body::Hello(_)
        | Body::Error(_)
        | Body::EchoRequest(_)
        | Body::EchoReply(_)
        | Body::Experimenter(_) => true,
        // The switch refuses every type that it does not know with an error of bundles.
        Body::BundleControl(control) => side == Side::Switch || control.kind.0 % 2 == 1,
        Body::FeaturesReply(_)
        | Body::GetConfigReply(_)
        | Body::PacketIn(_)
        | Body::FlowRemoved(_)
        | Body::PortStatus(_)
        | Body::MultipartReply(_)
        | Body::BarrierReply(_)
        | Body::QueueConfigReply(_)
        | Body::RoleReply(_)
        | Body::GetAsyncReply(_)
        | Body::RoleStatus(_)
        | Body::TableStatus(_)
        | Body::RequestForward(_) => side == Side::Client,
        _ => side == Side::Switch,
    }
}

/// The name of a version by its number on the wire.
fn name_of(number: u8) -> String {
    match number {
        1..=6 => format!("1.{}", number - 1),
        _ => format!("number {number}"),
    }
}

/// How long to wait before the next attempt to connect: doubles up to a limit, with half of it by chance so that a hundred switches
/// do not come back at the same instant.
#[derive(Debug, Clone)]
pub struct BackOff {
    attempts: u32,
    state: u64,
}

impl BackOff {
    /// The first wait is at most this long.
    pub const FIRST_NS: u64 = 500_000_000;
    /// No wait is longer.
    pub const LONGEST_NS: u64 = 8_000_000_000;

    /// The same seed gives the same waits.
    pub fn new(seed: u64) -> BackOff {
        BackOff { attempts: 0, state: seed }
    }

    /// How long to wait now.
    pub fn next_delay_ns(&mut self) -> u64 {
        let whole = Self::whole_ns(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        whole / 2 + (mixed ^ (mixed >> 31)) % (whole / 2)
    }

    /// The longest wait after so many attempts.
    fn whole_ns(attempts: u32) -> u64 {
        Self::FIRST_NS.checked_shl(attempts.min(32)).unwrap_or(u64::MAX).min(Self::LONGEST_NS)
    }

    /// A channel that was up for so long is gone: the next wait is a short one again, unless it went sooner than the wait for it could
    /// last. A controller that talks and hangs up every time is called less and less often.
    pub fn lasted(&mut self, up_ns: u64) {
        if self.attempts.checked_sub(1).is_some_and(|last| up_ns >= Self::whole_ns(last)) {
            self.attempts = 0;
        }
    }
}

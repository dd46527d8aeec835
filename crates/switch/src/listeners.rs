//! The places where a switch listens, and which callers are accepted.
//!
//! **What.** [`Listeners`] takes callers, as many at each place as its configuration says, and refuses the next ones at once: with a
//! sentence in an error of OpenFlow where that can be written, and for people with one line a second that counts them.
//!
//! **Why.** Each connection costs a descriptor, a poll in every turn and up to twice [`crate::backlog::BACKLOG`] bytes. A client that connects
//! without end, by mistake mostly, would take that from the controllers. And when the process has no descriptors left, the caller
//! stays in the kernel's queue and the listener stays readable: a loop that asked again at once would only burn a CPU, so the
//! place rests.
//!
//! **Price.** A caller that sends nothing holds its place until the hello is overdue (5 s).

use crate::config::ListenConfig;
use crate::notice::SwitchNotice;
use crate::stream::{Listener, Stream};
use crate::tls::Credentials;
use flow::error::HelloFailed;
use flow::openflow::bytes::{Bytes, Version};
use flow::openflow::message::{Body, Message};
use flow::openflow::misc::ErrorMessage;
use record::Result;
use record::problem::system_words;
use std::io::{ErrorKind, Write};

/// Callers that one place answers in one turn; the others wait for the next.
const TURN: usize = 64;
/// How long a place rests when the kernel has nothing left to take a caller with.
const REST_NS: u64 = 1_000_000_000;
/// Refused callers are reported at most this often, so that they cannot fill the log.
const TELL_NS: u64 = 1_000_000_000;
/// ENOMEM, ENFILE, EMFILE, ENOBUFS (accept(2)): errors that are not about one caller.
const EXHAUSTED: [i32; 4] = [12, 23, 24, 105];

struct Place {
    listener: Listener,
    config: ListenConfig,
    /// Callers that were refused since the last line about it.
    untold: u64,
    told_ns: Option<u64>,
    /// It is not asked for callers before.
    rests_until: Option<u64>,
}

/// Callers that are accepted, each with the number of its place.
type Callers = Vec<(usize, Stream)>;

/// All places of a switch.
pub(crate) struct Listeners(Vec<Place>);

impl Listeners {
    /// Listens everywhere.
    pub(crate) fn open(configs: &[ListenConfig], credentials: Option<&Credentials>) -> Result<Listeners> {
        let open = |config: &ListenConfig| {
            let listener = Listener::open(&config.at, credentials)?;
            let config = ListenConfig { at: listener.place()?, ..config.clone() };
            Ok(Place { listener, config, untold: 0, told_ns: None, rests_until: None })
        };
        configs.iter().map(open).collect::<Result<Vec<_>>>().map(Listeners)
    }

    /// Where it may be called.
    pub(crate) fn places(&self) -> impl Iterator<Item = &ListenConfig> {
        self.0.iter().map(|place| &place.config)
    }

    /// What is to be polled: places that do not rest.
    pub(crate) fn awake(&self) -> impl Iterator<Item = &Listener> {
        self.0.iter().filter(|place| place.rests_until.is_none()).map(|place| &place.listener)
    }

    /// When a place wakes up, or has something to report.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.0.iter().flat_map(|place| [place.rests_until, place.tells_at()]).flatten().min()
    }

    /// The callers that are accepted, and what is to be reported; `inside` says how many connections of a
    /// place there are.
    pub(crate) fn welcome(
        &mut self,
        now: u64,
        inside: impl Fn(usize) -> usize,
    ) -> (Callers, Vec<SwitchNotice>) {
        let (mut taken, mut vain) = (vec![], vec![]);
        for (number, place) in self.0.iter_mut().enumerate() {
            let room = place.config.connections.saturating_sub(inside(number));
            let streams = place.turn(now, room, &mut vain);
            taken.extend(streams.into_iter().map(|stream| (number, stream)));
            vain.extend(place.tell(now));
        }
        (taken, vain)
    }
}

impl Place {
    /// Takes the callers that wait, and refuses those for which there is no room.
    fn turn(&mut self, now: u64, room: usize, vain: &mut Vec<SwitchNotice>) -> Vec<Stream> {
        let mut taken = vec![];
        if self.rests_until.is_some_and(|until| now < until) {
            return taken;
        }
        self.rests_until = None;
        for _ in 0..TURN {
            match self.listener.accept() {
                Ok(stream) if taken.len() < room => taken.push(stream),
                Ok(stream) => {
                    self.untold += 1;
                    send_away(stream, &self.why());
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.raw_os_error().is_some_and(|code| EXHAUSTED.contains(&code)) => {
                    self.rests_until = Some(now.saturating_add(REST_NS));
                    let why =
                        format!("{}; the next try is in {} s", system_words(&e), REST_NS / 1_000_000_000);
                    vain.push(SwitchNotice::Refused {
                        who: format!("whoever is at {}", self.config.at),
                        why,
                    });
                    break;
                }
                // This one hung up already; the next may be there.
                Err(_) => {}
            }
        }
        taken
    }

    fn why(&self) -> String {
        let most = self.config.connections;
        format!("{most} connections are open at {}, which takes no more (connections={most})", self.config.at)
    }

    /// When the refused callers are reported.
    fn tells_at(&self) -> Option<u64> {
        (self.untold > 0).then(|| self.told_ns.map_or(0, |told| told.saturating_add(TELL_NS)))
    }

    fn tell(&mut self, now: u64) -> Option<SwitchNotice> {
        self.tells_at().filter(|at| *at <= now)?;
        self.told_ns = Some(now);
        let who = match std::mem::take(&mut self.untold) {
            1 => "1 caller".to_owned(),
            count => format!("{count} callers"),
        };
        Some(SwitchNotice::Refused { who, why: self.why() })
    }
}

/// Says why, if that can be said at once and in plain text, and hangs up. Version 1.3 of an error is that of 1.4.
fn send_away(mut stream: Stream, why: &str) {
    if stream.is_shaking_hands() {
        return;
    }
    let data = Bytes(why.as_bytes().to_vec());
    let error = ErrorMessage { fault: HelloFailed::Eperm.into(), experimenter: None, data };
    let message = Message { version: Version::V13, xid: 0, body: Body::Error(error) };
    let _ = stream.write(&message.encode().unwrap_or_default());
}

//! The thread that talks with controllers and clients.
//!
//! **What.** One loop over all connections, listeners, timers, news of the ports and notices of the kernel. Bytes go
//! through a [`Channel`], messages to the [`Agent`], frames of packet-outs to the [`Datapath`].
//!
//! **Why one thread.** Messages of one connection are answered in order, a barrier is a place in that order, and a
//! change is made under the same lock as a frame: so a barrier's reply is true when it is sent.
//!
//! **Price.** A controller that does not read fills its buffer here: [`crate::backlog`] says how far. Calls block, so each is made by a thread of its
//! own.

use crate::config::{Fail, Remote, SwitchConfig};
use crate::connection::Connection;
use crate::datapath::{self, Datapath, Inlet, News, Opened, Tell};
use crate::doors::Doors;
use crate::lane;
use crate::queues::{self, Queues};
use crate::stream::Stream;
use crate::tls::Credentials;
use flow::agent::{Agent, Effects, Identity};
use flow::error::{BadRequest, Error};
use flow::openflow::bytes::Version;
use flow::openflow::channel::{BackOff, Channel, ChannelConfig, Event, Side};
use flow::openflow::message::{Body, Message};
use flow::pipeline::Pipeline;
use flow::port::{PortNo, Queue};
use linux::lab::link::Netlink;
use linux::sys::clock;
use linux::sys::notice::{LinkNotice, Ready, Waker, wait_each};
use record::{Problem, Result};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Packet-ins that wait for the control thread; more are dropped and counted, so that a flood cannot eat the memory.
const PACKET_IN_BACKLOG: usize = 1 << 16;
/// Callers that fail are told of so often at most: who knocks a thousand times fills no log.
const REFUSED_PAUSE_NS: u64 = 1_000_000_000;
/// How long the loop sleeps at most.
const NAP: Duration = Duration::from_millis(500);
/// What is read from one connection in one go.
const READ: usize = 1 << 16;

/// What happened, for whoever prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    /// A connection agreed on a version.
    Up {
        /// The other end.
        who: String,
        /// The version.
        version: String,
    },
    /// A connection ended.
    Down {
        /// The other end.
        who: String,
        /// Why.
        why: String,
    },
    /// A controller cannot be reached, or ends the connection before its hello; said once until it is up.
    Unreachable {
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
    /// Somebody who called did not get as far as the hello; said once in a second at most.
    Refused {
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
}

/// Wakes the control thread with news.
struct Post {
    inbox: Sender<Input>,
    waker: Arc<Waker>,
    /// Packet-ins on their way.
    waiting: AtomicUsize,
    /// Packet-ins that found too many before them.
    dropped: AtomicU64,
}

enum Input {
    News(Vec<News>),
    Called(usize, io::Result<Stream>),
}

impl Tell for Post {
    fn tell(&self, mut news: Vec<News>) {
        let mut room = PACKET_IN_BACKLOG.saturating_sub(self.waiting.load(Relaxed));
        let before = news.len();
        news.retain(|one| {
            let is_frame = matches!(one, News::PacketIn(_));
            let stays = !is_frame || room > 0;
            room -= usize::from(is_frame && stays);
            stays
        });
        self.dropped.fetch_add((before - news.len()) as u64, Relaxed);
        self.waiting.fetch_add(news.len(), Relaxed);
        if self.inbox.send(Input::News(news)).is_ok() {
            self.waker.wake();
        }
    }
}

struct Caller {
    to: Remote,
    /// Of an auxiliary connection: which caller has the main one, and the number among its connections.
    auxiliary: Option<(usize, u8)>,
    back_off: BackOff,
    is_calling: bool,
    /// When to call next; none while a call or a connection is there.
    next_ns: Option<u64>,
    was_said: bool,
}

/// Everybody to call: each controller, and behind it its auxiliary connections, which wait for it.
fn callers(config: &SwitchConfig, now: u64) -> Vec<Caller> {
    let mut callers: Vec<Caller> = vec![];
    let seed = config.dpid ^ now;
    for controller in &config.controllers {
        let main = callers.len();
        let auxiliary = controller.auxiliary.iter().zip(1..=u8::MAX);
        let rest = auxiliary.map(|(to, number)| (to, Some((main, number)), None));
        for (to, auxiliary, next_ns) in std::iter::once((&controller.to, None, Some(now))).chain(rest) {
            let back_off = BackOff::new(seed.wrapping_add(callers.len() as u64));
            let (is_calling, was_said) = (false, false);
            callers.push(Caller { to: to.clone(), auxiliary, back_off, is_calling, next_ns, was_said });
        }
    }
    callers
}

/// A running switch.
pub struct Switch {
    /// What was opened, and what took effect.
    pub opened: Vec<Opened>,
    /// The queues of its ports.
    pub queues: Queues,
    datapath: Arc<Datapath>,
    agent: Agent,
    connections: BTreeMap<u64, Connection>,
    next_id: u64,
    doors: Doors,
    credentials: Option<Credentials>,
    callers: Vec<Caller>,
    /// The auxiliary connections that are up, by their main one: packet-ins go there.
    lanes: BTreeMap<u64, Vec<u64>>,
    /// When a caller that failed was told of.
    refused_ns: Option<u64>,
    inbox: Receiver<Input>,
    post: Arc<Post>,
    links: LinkNotice,
    fail: Fail,
    workers: Vec<JoinHandle<()>>,
    /// Names of the ports that are interfaces.
    names: BTreeMap<PortNo, String>,
    said: Vec<Say>,
}

impl Switch {
    /// Opens ports and listeners and starts to forward. Nothing is forwarded before all of it stands.
    ///
    /// # Errors
    /// As [`datapath::build`], [`crate::stream::Listener::open`] and [`Credentials::load`].
    pub fn start(config: &SwitchConfig) -> Result<Switch> {
        let host = |what: &str| {
            let what = what.to_owned();
            move |e: io::Error| Problem::host(format!("cannot {what}: {e}"))
        };
        let credentials = config.tls.load_if(config.needs_tls())?;
        let doors = Doors::open(&config.listen, credentials.as_ref())?;
        let (mut datapath, inlets, opened) =
            datapath::build(Pipeline::new(config.rules), &config.ports, config.local.as_deref())?;
        let queues = Queues::start(config, &mut datapath)?;
        let datapath = Arc::new(datapath);
        let (inbox_tx, inbox) = channel();
        let waker = Arc::new(Waker::new().map_err(host("make an eventfd"))?);
        let post = Arc::new(Post {
            inbox: inbox_tx,
            waker,
            waiting: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        });
        let links = LinkNotice::new().map_err(host("listen for changes of interfaces"))?;
        let now = clock::monotonic_ns();
        let identity = Identity {
            dpid: config.dpid,
            name: config.name.clone(),
            software: format!("pathlab {}", env!("CARGO_PKG_VERSION")),
            hardware: "software switch".into(),
        };
        let names = config.ports.iter().map(|(number, uri)| (*number, datapath::name_of(uri))).collect();
        let mut switch = Switch {
            opened,
            queues,
            datapath,
            agent: Agent::new(identity, now),
            connections: BTreeMap::new(),
            next_id: 1,
            doors,
            credentials,
            callers: callers(config, now),
            lanes: BTreeMap::new(),
            refused_ns: None,
            inbox,
            post,
            links,
            fail: config.fail,
            workers: vec![],
            names,
            said: vec![],
        };
        switch.look_at_links();
        switch.fail_or_follow();
        switch.workers = inlets.into_iter().map(|inlet| switch.worker(inlet)).collect();
        Ok(switch)
    }

    fn worker(&self, inlet: Inlet) -> JoinHandle<()> {
        let (datapath, post) = (self.datapath.clone(), self.post.clone());
        std::thread::spawn(move || datapath.work(inlet, post.as_ref()))
    }

    /// Works until `stop`; `say` hears what happens with controllers.
    ///
    /// # Errors
    /// Host: the kernel refused to wait.
    pub fn run(&mut self, stop: &AtomicBool, mut say: impl FnMut(Say)) -> Result<()> {
        while !stop.load(Relaxed) {
            self.step().map_err(|e| Problem::host(format!("cannot wait for controllers: {e}")))?;
            self.said.drain(..).for_each(&mut say);
        }
        Ok(())
    }

    /// One turn of the loop.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn step(&mut self) -> io::Result<()> {
        let ready = self.sleep()?;
        let mut effects = Effects::default();
        self.post.waker.calm();
        self.hear(&mut effects);
        if self.links.take() {
            let changed = self.look_at_links();
            let pipeline = self.datapath.pipeline();
            self.agent.publish(&changed, None, &pipeline, &mut effects);
        }
        self.welcome();
        for id in ready {
            self.read(id, &mut effects);
        }
        self.timers(&mut effects);
        self.carry_out(&mut effects);
        self.call();
        self.write();
        Ok(())
    }

    /// Waits for something to do; connections that may be read.
    fn sleep(&mut self) -> io::Result<Vec<u64>> {
        let now = clock::monotonic_ns();
        let time = self.deadline().map_or(NAP, |at| Duration::from_nanos(at.saturating_sub(now)).min(NAP));
        let wish = |(id, one): (&u64, &mut Connection)| (*id, one.wish(), one.goes_on());
        let ids: Vec<(u64, Ready, bool)> = self.connections.iter_mut().map(wish).collect();
        let time = if ids.iter().any(|(_, _, goes_on)| *goes_on) { Duration::ZERO } else { time };
        let reads = Ready { read: true, write: false };
        let mut descriptors = vec![(self.post.waker.as_fd(), reads), (self.links.as_fd(), reads)];
        descriptors.extend(self.doors.awake().map(|listener| (listener.as_fd(), reads)));
        let first = descriptors.len();
        for (id, wish, _) in &ids {
            descriptors.push((self.connections[id].stream.as_fd(), *wish));
        }
        let ready = wait_each(&descriptors, time)?;
        let each = ids.iter().zip(&ready[first..]);
        let is_due = |wish: &Ready, goes_on: bool, ready: &Ready| (wish.read && ready.read) || goes_on;
        let due = each.filter(|((_, wish, goes_on), ready)| is_due(wish, *goes_on, ready));
        Ok(due.map(|((id, ..), _)| *id).collect())
    }

    fn deadline(&self) -> Option<u64> {
        let channels = self.connections.values().filter_map(|connection| connection.channel.deadline());
        let calls = self.callers.iter().filter_map(|caller| caller.next_ns);
        let rest = [self.doors.deadline(), self.datapath.pipeline().next_deadline()];
        channels.chain(calls).chain(rest.into_iter().flatten()).min()
    }

    /// What the ports and the callers say.
    fn hear(&mut self, effects: &mut Effects) {
        while let Ok(input) = self.inbox.try_recv() {
            match input {
                Input::News(news) => {
                    self.post.waiting.fetch_sub(news.len(), Relaxed);
                    for one in news {
                        match one {
                            News::PacketIn(packet_in) => self.agent.packet_in(&packet_in, effects),
                            News::Link(port, state) => {
                                let mut pipeline = self.datapath.pipeline();
                                let events = pipeline.set_port_state(port, state);
                                self.agent.publish(&events, None, &pipeline, effects);
                            }
                        }
                    }
                }
                Input::Called(caller, result) => self.called(caller, result),
            }
        }
    }

    /// The state of the links under the ports; the events of those that changed.
    fn look_at_links(&mut self) -> Vec<flow::event::Event> {
        let Ok(links) = Netlink::open().links() else { return vec![] };
        let mut pipeline = self.datapath.pipeline();
        let mut events = vec![];
        for (number, name) in &self.names {
            // A port without an interface (a wire in memory) has nobody to ask.
            let state = links.iter().find(|link| link.name == *name).map(|link| link.up && link.carrier);
            if let Some(up) = state {
                events.extend(pipeline.set_port_state(*number, datapath::state(up)));
            }
        }
        events
    }

    /// Takes callers, if there is room for them.
    fn welcome(&mut self) {
        let connections = &self.connections;
        let inside = |door| connections.values().filter(|one| one.door == Some(door)).count();
        let (taken, vain) = self.doors.welcome(clock::monotonic_ns(), inside);
        self.said.extend(vain.into_iter().map(|(who, why)| Say::Refused { who, why }));
        for (door, stream) in taken {
            self.add(stream, None, Some(door));
        }
    }

    fn add(&mut self, stream: Stream, caller: Option<usize>, door: Option<usize>) {
        let now = clock::monotonic_ns();
        let mut config = ChannelConfig::default();
        let mut name = caller.map_or_else(|| stream.name(), |caller| self.callers[caller].to.to_string());
        if let Some((_, number)) = caller.and_then(|caller| self.callers[caller].auxiliary) {
            // The main connection went while this one was called: no auxiliary one without it.
            let Some((_, version)) = caller.and_then(|caller| self.main_of(caller)) else { return };
            config.versions = vec![version];
            name += &format!(" (auxiliary {number})");
        }
        let channel = Channel::new(Side::Switch, config, now);
        self.connections.insert(self.next_id, Connection::new(stream, channel, name, caller, door));
        self.next_id = self.next_id.wrapping_add(1).max(1);
    }

    /// The main connection of an auxiliary caller and its version, if it is up.
    fn main_of(&self, caller: usize) -> Option<(u64, Version)> {
        let (main, _) = self.callers[caller].auxiliary?;
        let is_it = |one: &&Connection| one.is_up && one.caller == Some(main);
        let mut found = self.connections.iter().filter(|(_, one)| is_it(one));
        found.find_map(|(id, one)| Some((*id, one.channel.version()?)))
    }

    /// A connection agreed on a version. Behind a controller's main connection its auxiliary ones are called.
    fn up(&mut self, id: u64, version: Version) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.is_up = true;
        let (who, caller) = (connection.name.clone(), connection.caller);
        let auxiliary = caller.and_then(|caller| self.callers[caller].auxiliary);
        let main = caller.and_then(|caller| Some((self.main_of(caller)?.0, auxiliary?.1)));
        if auxiliary.is_some() && main.is_none() {
            return self.end(id, "its main connection is gone".into());
        }
        if let Err(fault) = self.agent.up(id, version, main) {
            return self.end(id, fault.to_string());
        }
        if let Some(caller) = caller {
            self.callers[caller].back_off.reset();
            self.callers[caller].was_said = false;
            self.call_auxiliary(caller);
        }
        if let Some((main, _)) = main {
            self.lanes.entry(main).or_default().push(id);
        }
        self.said.push(Say::Up { who, version: version.to_string() });
        self.fail_or_follow();
    }

    /// The auxiliary connections of a controller that is up now.
    fn call_auxiliary(&mut self, main: usize) {
        let now = clock::monotonic_ns();
        for (index, caller) in self.callers.iter_mut().enumerate() {
            let is_there = self.connections.values().any(|one| one.caller == Some(index));
            if caller.auxiliary.is_some_and(|(of, _)| of == main) && !caller.is_calling && !is_there {
                caller.next_ns = Some(now);
            }
        }
    }

    /// The connection that a message takes: a packet-in one of the auxiliary ones, if there are any, and all of a flow the same.
    fn way(&self, id: u64, message: &Message) -> u64 {
        match (self.lanes.get(&id).map(Vec::as_slice), &message.body) {
            (Some(lanes @ [_, ..]), Body::PacketIn(packet_in)) => {
                lanes[(lane::flow_of(&packet_in.data.0) % lanes.len() as u64) as usize]
            }
            _ => id,
        }
    }

    /// Reads what is there and answers it, or goes on with what was read before.
    fn read(&mut self, id: u64, effects: &mut Effects) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_held() {
            return self.answer(id, effects);
        }
        let mut room = vec![0; READ];
        let ended = match connection.stream.read(&mut room) {
            Ok(0) => Some("the other end closed the connection".to_owned()),
            Ok(count) => {
                connection.channel.input(clock::monotonic_ns(), &room[..count]);
                None
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => None,
            // Nothing that was sent before it broke is left, and nothing more will come.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => connection.broken.clone(),
            Err(e) => Some(e.to_string()),
        };
        self.answer(id, effects);
        if let Some(why) = ended {
            let broken = self.connections.get_mut(&id).and_then(|one| one.broken.take());
            self.end(id, broken.unwrap_or(why));
        }
    }

    /// What the channel made of the bytes.
    fn answer(&mut self, id: u64, effects: &mut Effects) {
        while let Some(event) = self.connections.get_mut(&id).and_then(Connection::next_event) {
            match event {
                Event::Up { version } => self.up(id, version),
                Event::Message(message) => {
                    let now = clock::monotonic_ns();
                    if queues::is_asked_for(&message.body) {
                        self.queues.refresh(&self.datapath);
                    }
                    let mut pipeline = self.datapath.pipeline();
                    self.agent.message(now, id, &message, &mut pipeline, effects);
                    drop(pipeline);
                    self.carry_out(effects);
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.answered();
                    }
                }
                Event::Refused { .. } => {}
                Event::Down(why) => return self.end(id, why),
            }
        }
    }

    /// Sends messages into their channels, and frames out of their ports.
    fn carry_out(&mut self, effects: &mut Effects) {
        // A packet-out's own packet-ins become messages first.
        let packet_ins = std::mem::take(&mut effects.verdict.packet_ins);
        for packet_in in packet_ins {
            self.agent.packet_in(&packet_in, effects);
        }
        if !effects.verdict.sent.is_empty() {
            self.datapath.emit(&mut effects.verdict);
        }
        effects.verdict.moved.clear();
        for (id, message) in effects.messages.drain(..) {
            let id = self.way(id, &message);
            if let Some(connection) = self.connections.get_mut(&id) {
                // An answer with one item that fits into no message: said instead of it.
                if connection.channel.send(&message).is_err() {
                    connection.channel.refuse(&message, Error::from(BadRequest::MultipartBufferOverflow));
                }
            }
        }
    }

    fn timers(&mut self, effects: &mut Effects) {
        let now = clock::monotonic_ns();
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        let ids: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| due(connection.channel.deadline()))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.channel.tick(now);
            }
            self.answer(id, effects);
        }
        let mut pipeline = self.datapath.pipeline();
        if due(pipeline.next_deadline()) {
            self.agent.expire(now, &mut pipeline, effects);
        }
    }

    /// Calls the controllers whose time has come, each from a thread of its own.
    fn call(&mut self) {
        let now = clock::monotonic_ns();
        for (index, caller) in self.callers.iter_mut().enumerate() {
            if caller.next_ns.is_none_or(|at| at > now) {
                continue;
            }
            (caller.next_ns, caller.is_calling) = (None, true);
            let (to, post, credentials) = (caller.to.clone(), self.post.clone(), self.credentials.clone());
            std::thread::spawn(move || {
                let stream = Stream::call(&to, credentials.as_ref());
                if post.inbox.send(Input::Called(index, stream)).is_ok() {
                    post.waker.wake();
                }
            });
        }
    }

    fn called(&mut self, caller: usize, result: io::Result<Stream>) {
        self.callers[caller].is_calling = false;
        match result {
            Ok(stream) => self.add(stream, Some(caller), None),
            Err(e) => self.failed(caller, e.to_string()),
        }
    }

    /// A call led to nothing: again later.
    fn failed(&mut self, caller: usize, why: String) {
        self.again(caller);
        let one = &mut self.callers[caller];
        if !std::mem::replace(&mut one.was_said, true) {
            self.said.push(Say::Unreachable { who: one.to.to_string(), why });
        }
    }

    /// Calls again after a pause; an auxiliary connection only beside its main one, which calls it when it is up.
    fn again(&mut self, caller: usize) {
        let may_call = self.callers[caller].auxiliary.is_none() || self.main_of(caller).is_some();
        let one = &mut self.callers[caller];
        one.next_ns = may_call.then(|| clock::monotonic_ns() + one.back_off.next_delay_ns());
    }

    /// Writes what waits. Who does not read is disconnected; who went away is heard to the end.
    fn write(&mut self) {
        let now = clock::monotonic_ns();
        let mut ended = vec![];
        for (id, connection) in &mut self.connections {
            if let Some(why) = connection.write(now) {
                ended.push((*id, why));
            }
            if connection.broken.is_some() {
                // Packet-ins take another way at once.
                self.lanes.values_mut().for_each(|lanes| lanes.retain(|lane| lane != id));
            }
        }
        for (id, why) in ended {
            self.end(id, why);
        }
    }

    fn end(&mut self, id: u64, why: String) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.lanes.remove(&id);
        self.lanes.values_mut().for_each(|lanes| lanes.retain(|lane| *lane != id));
        // What was to be said last (the reason of a refusal) is tried once.
        connection.say_last();
        let shaking = if connection.stream.is_shaking_hands() { " (TLS handshake)" } else { "" };
        match (connection.is_up, connection.caller) {
            (true, caller) => {
                self.agent.down(id);
                self.said.push(Say::Down { who: connection.name, why });
                if let Some(caller) = caller {
                    self.again(caller);
                    self.end_auxiliary(caller);
                }
            }
            (false, Some(caller)) => self.failed(caller, why + shaking),
            (false, None) => self.refused(connection.name, why + shaking),
        }
        self.fail_or_follow();
    }

    /// A main connection that breaks takes its auxiliary ones with it at once (1.3.5, "Auxiliary Connections"), so that the controller
    /// does not meet the same datapath twice; those that are not up yet, too.
    fn end_auxiliary(&mut self, main: usize) {
        let callers = &mut self.callers;
        callers.iter_mut().filter(|one| one.auxiliary.is_some_and(|(of, _)| of == main)).for_each(|one| {
            one.next_ns = None;
        });
        let is_its = |one: &Connection| one.caller.and_then(|caller| callers[caller].auxiliary);
        let found = self.connections.iter().filter(|(_, one)| is_its(one).is_some_and(|(of, _)| of == main));
        let found: Vec<u64> = found.map(|(id, _)| *id).collect();
        for id in found {
            self.end(id, "its main connection is gone".into());
        }
    }

    fn refused(&mut self, who: String, why: String) {
        let now = clock::monotonic_ns();
        if self.refused_ns.is_none_or(|last| now >= last.saturating_add(REFUSED_PAUSE_NS)) {
            self.refused_ns = Some(now);
            self.said.push(Say::Refused { who, why });
        }
    }

    /// §6.3, Connection Interruption: without a controller a switch fails secure (it goes on with its rules) or standalone (it is a bridge). A
    /// switch that was never given a controller to call waits for clients, and follows its rules.
    fn fail_or_follow(&self) {
        let alone = !self.callers.is_empty()
            && !self.connections.values().any(|connection| connection.is_up && connection.caller.is_some());
        self.datapath.set_bridging(self.fail == Fail::Standalone && alone);
    }

    /// Packet-ins that were dropped because too many waited.
    pub fn packet_ins_dropped(&self) -> u64 {
        self.post.dropped.load(Relaxed)
    }

    /// The queues of a port with what they counted until now.
    pub fn queues_of(&self, port: PortNo) -> BTreeMap<u32, Queue> {
        self.queues.refresh(&self.datapath);
        self.datapath.pipeline().ports.get(&port).map_or_else(BTreeMap::new, |row| row.queues.clone())
    }

    /// Frames that could not leave by a port.
    pub fn dropped(&self, port: PortNo) -> u64 {
        self.datapath.dropped(port)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.datapath.stop();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

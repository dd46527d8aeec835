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

use crate::config::{self, FailMode, ListenConfig, Remote, SwitchConfig};
use crate::connection::Connection;
use crate::datapath::{self, Datapath, Opened, OpenedPort, PortEvents};
use crate::flow_hash;
use crate::listeners::Listeners;
use crate::notice::LastReason;
pub use crate::notice::SwitchNotice;
use crate::packet_ins::{PacketInCounts, PacketIns, Turn};
use crate::ports::Ports;
use crate::programs::ProgramNews;
use crate::queues::{self, Queues};
use crate::stream::{self, Stream};
use crate::tls::Credentials;
use flow::agent::{Effects, OpenFlowAgent, SwitchIdentity, packet_in_message};
use flow::error::{BadRequest, Error};
use flow::interpret::PacketIn;
use flow::openflow::bytes::Version;
use flow::openflow::channel::{BackOff, Channel, ChannelConfig, Event, Side};
use flow::openflow::message::{Body, Message};
use flow::openflow::misc::BundleCommand;
use flow::pipeline::Pipeline;
use flow::port::{PortNo, Queue};
use linux::netlink::LinkNotice;
use linux::sys::clock;
use linux::sys::notice::{Ready, Waker, wait_each};
use record::problem::system_words;
use record::{Problem, Result};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Packet-ins that are handled in one turn of the loop; then requests come first.
const PACKET_INS: usize = 512;
/// Failed callers are reported at most this often, so that they cannot fill the log.
const REFUSED_PAUSE_NS: u64 = 1_000_000_000;
/// How long the loop sleeps at most.
const NAP: Duration = Duration::from_millis(500);
/// What is read from one connection in one go.
const READ: usize = 1 << 16;

/// Wakes the control thread with news.
struct ControlNotifier {
    inbox: Sender<Input>,
    waker: Arc<Waker>,
    frames: Mutex<PacketIns>,
}

/// What happens rarely, beside the frames.
enum Input {
    /// The interface of a port is gone.
    Gone(PortNo),
    /// A call led somewhere, or not.
    Called(usize, io::Result<Stream>),
    /// What there is to say of programs.
    Programs(ProgramNews),
}

impl ControlNotifier {
    fn frames(&self) -> MutexGuard<'_, PacketIns> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, input: Input) {
        if self.inbox.send(input).is_ok() {
            self.waker.wake();
        }
    }
}

impl PortEvents for ControlNotifier {
    fn packet_ins(&self, frames: &mut Vec<PacketIn>) {
        let mut queues = self.frames();
        let mut is_new = false;
        frames.drain(..).for_each(|one| is_new |= queues.offer(one));
        drop(queues);
        // The thread that empties the queues sees the rest without being woken.
        if is_new {
            self.waker.wake();
        }
    }

    fn gone(&self, port: PortNo) {
        self.say(Input::Gone(port));
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
    failed: LastReason,
}

impl Caller {
    /// Who is called.
    fn name(&self) -> String {
        let number = self.auxiliary.map(|(_, number)| format!(" (auxiliary {number})"));
        format!("{}{}", self.to, number.unwrap_or_default())
    }
}

/// The connections to make: each controller, followed by its auxiliary connections, which wait for it.
fn callers(config: &SwitchConfig, now: u64) -> Vec<Caller> {
    let mut callers: Vec<Caller> = vec![];
    let seed = config.dpid ^ now;
    for controller in &config.controllers {
        let main = callers.len();
        let auxiliary = controller.auxiliary.iter().zip(1..=u8::MAX);
        let rest = auxiliary.map(|(to, number)| (to, Some((main, number)), None));
        for (to, auxiliary, next_ns) in std::iter::once((&controller.to, None, Some(now))).chain(rest) {
            let back_off = BackOff::new(seed.wrapping_add(callers.len() as u64));
            let (is_calling, failed) = (false, LastReason::default());
            callers.push(Caller { to: to.clone(), auxiliary, back_off, is_calling, next_ns, failed });
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
    agent: OpenFlowAgent,
    connections: BTreeMap<u64, Connection>,
    next_id: u64,
    listeners: Listeners,
    credentials: Option<Credentials>,
    callers: Vec<Caller>,
    /// The auxiliary connections that are up, by their main one: packet-ins go there.
    auxiliaries: BTreeMap<u64, Vec<u64>>,
    /// When a failed caller was reported.
    refused_ns: Option<u64>,
    inbox: Receiver<Input>,
    post: Arc<ControlNotifier>,
    links: LinkNotice,
    fail: FailMode,
    workers: Vec<JoinHandle<()>>,
    /// The interfaces under the ports.
    ports: Ports,
    said: Vec<SwitchNotice>,
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
        config::check_interfaces(std::slice::from_ref(config))?;
        config::check_controllers(config)?;
        // A switch that was killed may have left an interface down.
        // Where no directory can be made, nothing was left.
        linux::undo::open().map_or(Ok(vec![]), |journals| journals.clean_some(linux::tune::down::JOURNAL))?;
        let credentials = config.tls.load_if(config.needs_tls())?;
        let listeners = Listeners::open(&config.listen, credentials.as_ref())?;
        let (mut datapath, inlets, opened) = datapath::build(
            Pipeline::new(config.rules),
            &config.ports,
            config.local.as_deref(),
            config.engine,
            config.shadow,
        )?;
        let queues = Queues::start(config, &mut datapath)?;
        let datapath = Arc::new(datapath);
        let (inbox_tx, inbox) = channel();
        let waker = Arc::new(Waker::new().map_err(host("make an eventfd"))?);
        let now = clock::monotonic_ns();
        let frames = Mutex::new(PacketIns::new(config.packet_ins, now));
        let post = Arc::new(ControlNotifier { inbox: inbox_tx, waker, frames });
        let links = LinkNotice::new().map_err(host("listen for changes of interfaces"))?;
        let identity = SwitchIdentity {
            dpid: config.dpid,
            name: config.name.clone(),
            software: format!("pathlab {}", env!("CARGO_PKG_VERSION")),
            hardware: "software switch".into(),
        };
        let ports = Ports::new(opened.iter().map(|port| (port.number, port.uri.as_str())));
        let mut switch = Switch {
            opened,
            queues,
            datapath,
            agent: OpenFlowAgent::new(identity, now),
            connections: BTreeMap::new(),
            next_id: 1,
            listeners,
            credentials,
            callers: callers(config, now),
            auxiliaries: BTreeMap::new(),
            refused_ns: None,
            inbox,
            post,
            links,
            fail: config.fail,
            workers: vec![],
            ports,
            said: vec![],
        };
        switch.look_at_links(&mut Effects::default());
        switch.fail_or_follow();
        inlets.into_iter().for_each(|inlet| switch.receive_from(inlet));
        let notes = switch.datapath.notes().iter();
        switch.said = notes.map(|what| SwitchNotice::Kernel { what: what.clone() }).collect();
        switch.said.extend(switch.ports.news());
        switch.compile();
        Ok(switch)
    }

    /// Gives a port a thread.
    fn receive_from(&mut self, inlet: OpenedPort) {
        let (datapath, post) = (self.datapath.clone(), self.post.clone());
        self.workers.retain(|worker| !worker.is_finished());
        self.workers.push(std::thread::spawn(move || datapath.work(inlet, post.as_ref())));
    }

    /// Where it may be called.
    pub fn places(&self) -> impl Iterator<Item = &ListenConfig> {
        self.listeners.places()
    }

    /// Frames about which the engine and the interpreter disagreed.
    pub fn divergences(&self) -> u64 {
        self.datapath.programs().divergences()
    }

    /// Batches that user space worked on, how often a program was given to the kernel, and whether one is there.
    pub fn work(&self) -> (u64, u64, bool) {
        let (given, is_there) = self.datapath.programs().in_kernel();
        (self.datapath.batches(), given, is_there)
    }

    /// Gives the engine a thread to compile rules in, if it does that.
    fn compile(&mut self) {
        let (programs, post) = (self.datapath.programs().clone(), self.post.clone());
        if programs.compiles() {
            let run = move || programs.run(|news| post.say(Input::Programs(news)));
            self.workers.push(std::thread::spawn(run));
        }
    }

    /// Works until `stop`; `say` hears what happens with controllers.
    ///
    /// # Errors
    /// Host: the kernel refused to wait.
    pub fn run(&mut self, stop: &AtomicBool, mut say: impl FnMut(SwitchNotice)) -> Result<()> {
        while !stop.load(Relaxed) {
            self.step().map_err(|e| Problem::host(format!("cannot wait for controllers: {e}")))?;
            self.said.drain(..).for_each(&mut say);
        }
        Ok(())
    }

    /// What there is to say since this was asked last.
    pub fn news(&mut self) -> Vec<SwitchNotice> {
        std::mem::take(&mut self.said)
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
        let is_due = self.ports.deadline().is_some_and(|at| at <= clock::monotonic_ns());
        if self.notices_of_links() || is_due {
            self.look_at_links(&mut effects);
        }
        self.welcome();
        for id in ready {
            self.read(id, &mut effects);
        }
        self.timers(&mut effects);
        self.carry_out(&mut effects);
        self.call();
        // Answers first; packet-ins into the room that is left.
        self.write();
        self.packet_ins();
        self.write();
        Ok(())
    }

    /// Waits for something to do; connections that may be read.
    fn sleep(&mut self) -> io::Result<Vec<u64>> {
        let now = clock::monotonic_ns();
        let time = self.deadline().map_or(NAP, |at| Duration::from_nanos(at.saturating_sub(now)).min(NAP));
        let wish = |(id, one): (&u64, &mut Connection)| (*id, one.wish(), one.goes_on());
        let ids: Vec<(u64, Ready, bool)> = self.connections.iter_mut().map(wish).collect();
        let has_frames = self.post.frames().goes_on(now, |frame| self.turn(frame));
        let goes_on = has_frames || ids.iter().any(|(_, _, goes_on)| *goes_on);
        let time = if goes_on { Duration::ZERO } else { time };
        let reads = Ready { read: true, write: false };
        let mut descriptors = vec![(self.post.waker.as_fd(), reads), (self.links.as_fd(), reads)];
        descriptors.extend(self.listeners.awake().map(|listener| (listener.as_fd(), reads)));
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
        let frames = self.post.frames().deadline();
        let ports = self.ports.deadline();
        let rest = [self.listeners.deadline(), self.datapath.pipeline().next_deadline(), frames, ports];
        channels.chain(calls).chain(rest.into_iter().flatten()).min()
    }

    /// What the ports and the callers say: little, because frames go another way.
    fn hear(&mut self, effects: &mut Effects) {
        while let Ok(input) = self.inbox.try_recv() {
            match input {
                Input::Gone(port) => {
                    self.ports.gone(port);
                    self.notices_of_links();
                    self.look_at_links(effects);
                }
                Input::Called(caller, result) => self.called(caller, result),
                Input::Programs(ProgramNews::Interpreted(what)) => {
                    self.said.push(SwitchNotice::Interpreted { what });
                }
                Input::Programs(ProgramNews::Kernel(what)) => self.said.push(SwitchNotice::Kernel { what }),
            }
        }
    }

    /// Gives packet-ins to the connections that have room for them. One that does not read misses those that another one gets.
    fn packet_ins(&mut self) {
        let post = self.post.clone();
        for _ in 0..PACKET_INS {
            let next = post.frames().next(clock::monotonic_ns(), |frame| self.turn(frame));
            let Some(frame) = next else { return };
            for (id, version) in self.agent.wants(&frame) {
                let id = self.way(id, &frame.frame);
                let Some(connection) = self.connections.get_mut(&id) else { continue };
                if connection.has_room() {
                    // A packet-in always fits into a message.
                    let _ = connection.channel.send(&packet_in_message(&frame, version));
                } else {
                    connection.missed += 1;
                }
            }
        }
    }

    /// What becomes of a packet-in now.
    fn turn(&self, frame: &PacketIn) -> Turn {
        let mut turn = Turn::Nobody;
        for (id, _) in self.agent.wants(frame) {
            match self.connections.get(&self.way(id, &frame.frame)) {
                Some(connection) if connection.has_room() => return Turn::Send,
                Some(_) => turn = Turn::Wait,
                None => {}
            }
        }
        turn
    }

    /// Hears what the kernel noticed of interfaces; whether there was something.
    fn notices_of_links(&mut self) -> bool {
        let Self { links, ports, .. } = self;
        links.take_gone(&mut |index| ports.went(index))
    }

    /// Brings the ports up to date with the interfaces under them, and informs the controllers.
    fn look_at_links(&mut self, effects: &mut Effects) {
        let found = self.ports.look(clock::monotonic_ns(), &self.datapath);
        let pipeline = self.datapath.pipeline();
        self.agent.publish(&found.events, None, &pipeline, effects);
        drop(pipeline);
        found.inlets.into_iter().for_each(|inlet| self.receive_from(inlet));
        self.said.extend(found.said);
        if !found.events.is_empty() || found.is_open {
            // One that was made again may be configured down, of which there is no news.
            self.said.extend(self.ports.carry_down(&self.datapath));
        }
    }

    /// Takes callers, if there is room for them.
    fn welcome(&mut self) {
        let connections = &self.connections;
        let inside = |listener| connections.values().filter(|one| one.listener == Some(listener)).count();
        let (taken, vain) = self.listeners.welcome(clock::monotonic_ns(), inside);
        self.said.extend(vain);
        for (listener, stream) in taken {
            self.add(stream, None, Some(listener));
        }
    }

    fn add(&mut self, stream: Stream, caller: Option<usize>, listener: Option<usize>) {
        let now = clock::monotonic_ns();
        let mut config = ChannelConfig::default();
        let name = caller.map_or_else(|| stream.name(), |caller| self.callers[caller].name());
        if caller.is_some_and(|caller| self.callers[caller].auxiliary.is_some()) {
            // The main connection went while this one was called: no auxiliary one without it.
            let Some((_, version)) = caller.and_then(|caller| self.main_of(caller)) else { return };
            config.versions = vec![version];
        }
        let channel = Channel::new(Side::Switch, config, now);
        let mut connection = Connection::new(stream, channel, name);
        (connection.caller, connection.listener) = (caller, listener);
        self.connections.insert(self.next_id, connection);
        self.next_id = self.next_id.wrapping_add(1).max(1);
    }

    /// The main connection of an auxiliary caller and its version, if it is up.
    fn main_of(&self, caller: usize) -> Option<(u64, Version)> {
        let (main, _) = self.callers[caller].auxiliary?;
        let is_it = |one: &&Connection| one.up_ns.is_some() && one.caller == Some(main);
        let mut found = self.connections.iter().filter(|(_, one)| is_it(one));
        found.find_map(|(id, one)| Some((*id, one.channel.version()?)))
    }

    /// A connection agreed on a version. Behind a controller's main connection its auxiliary ones are called.
    fn up(&mut self, id: u64, version: Version) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.up_ns = Some(clock::monotonic_ns());
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
            self.callers[caller].failed.forget();
            self.call_auxiliary(caller);
        }
        if let Some((main, _)) = main {
            self.auxiliaries.entry(main).or_default().push(id);
        }
        self.said.push(SwitchNotice::Up { who, version: version.to_string() });
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

    /// The connection that a packet-in takes: one of the auxiliary ones, if there are any, and all of a flow the same.
    fn way(&self, id: u64, frame: &[u8]) -> u64 {
        match self.auxiliaries.get(&id).map(Vec::as_slice) {
            Some([one]) => *one,
            Some(auxiliaries @ [_, ..]) => {
                auxiliaries[(flow_hash::flow_of(frame) % auxiliaries.len() as u64) as usize]
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
            Err(e) => Some(system_words(&e)),
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
                        self.datapath.pipeline().packet_in_queues = self.post.frames().rows();
                    }
                    self.message(now, id, &message, effects);
                    if matches!(message.body, Body::PortMod(_) | Body::BundleControl(_)) {
                        // Before the next message is answered, a barrier's among them.
                        self.said.extend(self.ports.carry_down(&self.datapath));
                        self.look_at_links(effects);
                    }
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

    /// Lets the agent answer, with as much of the pipeline as the message needs.
    fn message(&mut self, now: u64, id: u64, message: &Message, effects: &mut Effects) {
        let (agent, datapath) = (&mut self.agent, &self.datapath);
        match &message.body {
            Body::MultipartRequest(_) => agent.message(now, id, message, &mut datapath.counted(), effects),
            body if changes(body) => {
                datapath.change(|pipeline| agent.message(now, id, message, pipeline, effects))
            }
            _ => agent.message(now, id, message, &mut datapath.pipeline(), effects),
        }
    }

    /// Sends messages into their channels, and frames out of their ports.
    fn carry_out(&mut self, effects: &mut Effects) {
        // A packet-out's own packet-ins come before what follows it, if there is room.
        if !effects.verdict.packet_ins.is_empty() {
            self.post.packet_ins(&mut effects.verdict.packet_ins);
            self.packet_ins();
        }
        if !effects.verdict.sent.is_empty() {
            self.datapath.send(&mut effects.verdict.sent);
        }
        for (id, message) in effects.messages.drain(..) {
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
        let is_due = |(id, one): (&u64, &Connection)| due(one.channel.deadline()).then_some(*id);
        for id in self.connections.iter().filter_map(is_due).collect::<Vec<u64>>() {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.channel.tick(now);
            }
            self.answer(id, effects);
        }
        let pipeline = self.datapath.pipeline();
        let (mut is_due, rules) = (due(pipeline.next_deadline()), pipeline.len());
        drop(pipeline);
        if is_due {
            // A rule that programs met since it was looked at is not idle.
            is_due = self.datapath.counted().is_any_over(now);
        }
        if is_due {
            self.datapath.change(|pipeline| self.agent.expire(now, pipeline, effects));
        }
        self.datapath.note_rules(rules);
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
                let stream = stream::call(&to, credentials.as_ref());
                post.say(Input::Called(index, stream));
            });
        }
    }

    fn called(&mut self, caller: usize, result: io::Result<Stream>) {
        self.callers[caller].is_calling = false;
        match result {
            Ok(stream) => self.add(stream, Some(caller), None),
            Err(e) => self.failed(caller, system_words(&e)),
        }
    }

    /// A call led to nothing: again later.
    fn failed(&mut self, caller: usize, why: String) {
        self.again(caller);
        let one = &mut self.callers[caller];
        if one.failed.is_new(&why) {
            self.said.push(SwitchNotice::Unreachable { who: one.name(), why });
        }
    }

    /// Calls again after a pause; an auxiliary connection only beside its main one, which calls it when it is up.
    fn again(&mut self, caller: usize) {
        let may_call = self.callers[caller].auxiliary.is_none() || self.main_of(caller).is_some();
        let one = &mut self.callers[caller];
        one.next_ns = may_call.then(|| clock::monotonic_ns() + one.back_off.next_delay_ns());
    }

    /// Writes what waits. A peer that does not read is disconnected; what one that went away had sent is still read.
    fn write(&mut self) {
        let now = clock::monotonic_ns();
        let mut ended = vec![];
        for (id, connection) in &mut self.connections {
            if let Some(why) = connection.write(now) {
                ended.push((*id, why));
            }
            if connection.broken.is_some() {
                // Packet-ins take another way at once.
                self.auxiliaries.values_mut().for_each(|auxiliaries| auxiliaries.retain(|one| one != id));
            }
        }
        for (id, why) in ended {
            self.end(id, why);
        }
    }

    fn end(&mut self, id: u64, why: String) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        self.auxiliaries.remove(&id);
        self.auxiliaries.values_mut().for_each(|auxiliaries| auxiliaries.retain(|one| *one != id));
        // What was to be said last (the reason of a refusal) is tried once.
        connection.say_last();
        let why = match connection.missed {
            0 => why,
            missed => format!("{why}; it read too slowly for {missed} packet-ins"),
        };
        let shaking = if connection.stream.is_shaking_hands() { " (TLS handshake)" } else { "" };
        match (connection.up_ns, connection.caller) {
            (Some(up_ns), caller) => {
                self.agent.down(id);
                self.said.push(SwitchNotice::Down { who: connection.name, why });
                if let Some(caller) = caller {
                    self.callers[caller].back_off.lasted(clock::monotonic_ns().saturating_sub(up_ns));
                    self.again(caller);
                    self.end_auxiliary(caller);
                }
            }
            (None, Some(caller)) => self.failed(caller, why + shaking),
            (None, None) => self.refused(connection.name, why + shaking),
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
            self.said.push(SwitchNotice::Refused { who, why });
        }
    }

    /// §6.3, Connection Interruption: without a controller a switch fails secure (it goes on with its rules) or standalone (it is a bridge). A
    /// switch that was never given a controller to call waits for clients, and follows its rules.
    fn fail_or_follow(&self) {
        let alone = !self.callers.is_empty()
            && !self
                .connections
                .values()
                .any(|connection| connection.up_ns.is_some() && connection.caller.is_some());
        self.datapath.set_bridging(self.fail == FailMode::Standalone && alone);
    }

    /// What became of packet-ins.
    pub fn packet_in_counts(&self) -> PacketInCounts {
        self.post.frames().counts()
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

/// Whether a message may change what becomes of frames. A packet-out only counts, and what is added to a bundle waits for its commit.
fn changes(body: &Body) -> bool {
    matches!(
        body,
        Body::FlowMod(_)
            | Body::GroupMod(_)
            | Body::MeterMod(_)
            | Body::PortMod(_)
            | Body::TableMod(_)
            | Body::SetConfig(_)
    ) || matches!(body, Body::BundleControl(control) if control.kind == BundleCommand::COMMIT_REQUEST)
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.datapath.stop();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

//! A controller for tests: a blocking socket, messages of the crate `flow`, and a switch inside this process whose ports
//! are wires in memory (no root, no kernel, every frame in order).

use flow::agent::translate::{write_actions, write_bands, write_buckets, write_instructions, write_match};
use flow::numbered::ModCommand;
use flow::openflow::bytes::{Bytes, Hex, Version};
use flow::openflow::group::{GroupCommand, GroupMod, GroupType, MeterCommand, MeterMod};
use flow::openflow::message::{Body, HEADER, Header, Message, question};
use flow::openflow::misc::{Empty, Hello};
use flow::openflow::multipart::{MultipartReply, Reply, Request};
use flow::openflow::rule::{FlowCommand, FlowMod, FlowStats, FlowStatsRequest, PacketOut};
use flow::rule::FlowModCommand;
use linux::port::{ALL, Frames, Hand, Meta, PortOptions, Receiver, Transmitter, Wait, open};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switch::config::{Listen, SwitchConfig};
use switch::control::{Switch, SwitchNotice};

/// Long enough for a busy machine; what takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Every number of OpenFlow for "any" and "none".
pub const ANY: u32 = u32::MAX;

/// The far end of one port of a switch.
pub struct End {
    receiver: Box<dyn Receiver>,
    transmitter: Box<dyn Transmitter>,
}

impl End {
    /// Opens a port in the namespace of this thread.
    pub fn open(uri: &str) -> End {
        let port = open(uri, &PortOptions { promiscuous: true, ..PortOptions::default() }).unwrap();
        End { receiver: port.receiver.unwrap(), transmitter: port.transmitter.unwrap() }
    }

    /// Sends a frame, waiting for room.
    pub fn send(&mut self, frame: &[u8]) {
        let mut frames = Frames::new(1, 2048);
        assert!(frames.push(frame, Meta::default()));
        let mut batch = frames.batch();
        let deadline = Instant::now() + PATIENCE;
        while self.transmitter.transmit(&mut batch, &ALL[..1], Hand::Over).unwrap().dealt == 0 {
            assert!(Instant::now() < deadline, "the wire stays full");
            self.transmitter.flush(Duration::from_millis(1)).unwrap();
        }
        self.transmitter.flush(Duration::from_millis(1)).unwrap();
    }

    /// The next frame, if one comes in this time.
    pub fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let batch = self.receiver.receive(1, Wait::For(left)).unwrap();
            if !batch.is_empty() {
                return Some(batch.bytes(0).to_vec());
            }
            if left.is_zero() {
                return None;
            }
        }
    }

    /// The next frame, which must come.
    pub fn must(&mut self) -> Vec<u8> {
        self.receive(PATIENCE).expect("a frame arrives")
    }

    /// No frame is here, and none is on the way: what was sent before has been dealt with by the switch.
    pub fn nothing(&mut self) {
        let frame = self.receive(Duration::from_millis(20));
        assert_eq!(frame, None, "this frame was not to come");
    }

    /// Both directions, for two threads.
    pub fn split(self) -> (Box<dyn Receiver>, Box<dyn Transmitter>) {
        (self.receiver, self.transmitter)
    }
}

/// A switch in a thread of this process, with wires in memory.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
    /// The far ends of the ports 1, 2, …
    pub ends: Vec<End>,
    /// What it said of its controllers and clients.
    pub said: Arc<Mutex<Vec<SwitchNotice>>>,
}

impl Running {
    /// A switch with so many ports that waits for clients.
    pub fn start(ports: u32) -> Running {
        Running::with(ports, |_| {})
    }

    /// The same, with something set otherwise.
    pub fn with(ports: u32, set: impl FnOnce(&mut SwitchConfig)) -> Running {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let mut config = SwitchConfig::new(&format!("t{number}"), u64::from(number));
        for port in 1..=ports {
            let uri = format!("mem:pathlab-switch-{number}-{port}?frames=4096");
            config.ports.push((flow::PortNo(port), uri));
        }
        config.listen.push(Listen::Unix(folder.path().join("s")).into());
        set(&mut config);
        let mut switch = Switch::start(&config).unwrap();
        let ends = config.ports.iter().map(|(_, uri)| End::open(uri)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let said = Arc::new(Mutex::new(vec![]));
        let notes = said.clone();
        let thread = std::thread::spawn(move || {
            switch.run(&is_over, |one| notes.lock().unwrap().push(one)).unwrap();
        });
        Running { stop, thread: Some(thread), folder, ends, said }
    }

    /// Where clients call.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// A new client.
    pub fn client(&self, version: Version) -> Client {
        Client::connect(&self.socket(), version)
    }

    /// The far end of a port.
    pub fn end(&mut self, port: usize) -> &mut End {
        &mut self.ends[port - 1]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().expect("the switch ended without a panic");
        }
    }
}

/// A controller. A thread of its own reads, and answers echoes however long a test thinks.
pub struct Client {
    stream: Arc<Mutex<UnixStream>>,
    messages: mpsc::Receiver<Message>,
    version: Version,
    xid: u32,
    /// Messages that nobody asked for, in order.
    pub unasked: VecDeque<Message>,
}

/// Connects. The file of a socket is there a moment before somebody listens.
pub fn call(path: &Path) -> UnixStream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(path) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other.unwrap(),
        }
    }
}

impl Client {
    /// Connects and exchanges hellos.
    pub fn connect(path: &Path, version: Version) -> Client {
        let mut client = Client::over(call(path), version);
        client.send(Body::Hello(Hello::with(&[version.number()])));
        let hello = client.next(PATIENCE).expect("a hello");
        assert!(matches!(hello.body, Body::Hello(_)), "{hello}");
        client
    }

    /// Reads from now on what comes over a connection.
    pub fn over(stream: UnixStream, version: Version) -> Client {
        let mut reader = stream.try_clone().unwrap();
        let stream = Arc::new(Mutex::new(stream));
        let (sender, messages) = channel();
        let writer = stream.clone();
        std::thread::spawn(move || {
            let (mut buffer, mut room) = (vec![], [0; 1 << 16]);
            while let Ok(count @ 1..) = reader.read(&mut room) {
                buffer.extend_from_slice(&room[..count]);
                while let Some(message) = cut(&mut buffer) {
                    if let Body::EchoRequest(echo) = message.body {
                        let reply = Message { version, xid: message.xid, body: Body::EchoReply(echo) };
                        let _ = writer.lock().unwrap().write_all(&reply.encode().unwrap());
                    } else if sender.send(message).is_err() {
                        return;
                    }
                }
            }
        });
        Client { stream, messages, version, xid: 1, unasked: VecDeque::new() }
    }

    /// Waits until the switch closes the connection; what it says before is thrown away.
    pub fn must_end(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the switch does not close the connection"),
            }
        }
    }

    /// The bytes of a message, with a new number.
    pub fn bytes(&mut self, body: Body) -> (u32, Vec<u8>) {
        self.xid += 1;
        let message = Message { version: self.version, xid: self.xid, body };
        (self.xid, message.encode().unwrap())
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.lock().unwrap().write_all(bytes).unwrap();
    }

    /// Sends a message; its number.
    pub fn send(&mut self, body: Body) -> u32 {
        let (xid, bytes) = self.bytes(body);
        self.write(&bytes);
        xid
    }

    /// The next message, if one comes in this time.
    pub fn next(&mut self, wait: Duration) -> Option<Message> {
        match self.messages.recv_timeout(wait) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the switch closed the connection"),
        }
    }

    /// Sends messages and a barrier; the answers to them that came before the barrier's. The rest is kept as unasked.
    pub fn ask(&mut self, bodies: impl IntoIterator<Item = Body>) -> Vec<Message> {
        let first = self.xid + 1;
        let mut bytes = vec![];
        for body in bodies.into_iter().chain([Body::BarrierRequest(Empty::default())]) {
            bytes.extend(self.bytes(body).1);
        }
        self.write(&bytes);
        let barrier = self.xid;
        let mut answers = vec![];
        loop {
            let message = self.next(PATIENCE).expect("the barrier's reply");
            match message.body {
                Body::BarrierReply(_) if message.xid == barrier => return answers,
                Body::PacketIn(_) | Body::FlowRemoved(_) | Body::PortStatus(_) => {
                    self.unasked.push_back(message)
                }
                _ if (first..barrier).contains(&message.xid) => answers.push(message),
                _ => self.unasked.push_back(message),
            }
        }
    }

    /// Asks with one message that has to know its own number.
    pub fn ask_with(&mut self, body: impl FnOnce(u32) -> Body) -> Vec<Message> {
        let body = body(self.xid + 1);
        self.ask([body])
    }

    /// Sends messages that are to be done without a word.
    pub fn must(&mut self, bodies: impl IntoIterator<Item = Body>) {
        let answers = self.ask(bodies);
        assert!(answers.is_empty(), "{}", answers[0]);
    }

    /// Sends a message that is to be refused: type and code of the error.
    pub fn refused(&mut self, body: Body) -> (u16, u16) {
        let answers = self.ask([body]);
        match answers.as_slice() {
            [Message { body: Body::Error(error), .. }] => (error.fault.kind, error.fault.code),
            other => panic!("this was not refused: {other:?}"),
        }
    }

    /// Asks a question; all parts of the answer.
    pub fn question(&mut self, request: Request) -> Vec<Reply> {
        let Message { body, .. } = question(self.version, 0, request);
        let part = |message: Message| match message.body {
            Body::MultipartReply(MultipartReply { body, .. }) => body,
            other => panic!("not an answer: {other:?}"),
        };
        self.ask([body]).into_iter().map(part).collect()
    }

    /// The rules of all tables.
    pub fn rules(&mut self) -> Vec<FlowStats> {
        let request = FlowStatsRequest { table_id: 255, out_port: ANY, out_group: ANY, ..Default::default() };
        let parts = self.question(Request::Flow(request)).into_iter();
        parts
            .flat_map(|part| if let Reply::Flow(rules) = part { rules } else { panic!("{part:?}") })
            .collect()
    }

    /// The next message that nobody asked for and that is wanted.
    pub fn wait_for<T>(&mut self, what: &str, mut wanted: impl FnMut(&Message) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(message) = self.unasked.pop_front() {
                if let Some(found) = wanted(&message) {
                    return found;
                }
            }
            assert!(Instant::now() < deadline, "{what} did not come");
            let message = self.next(Duration::from_millis(100));
            self.unasked.extend(message);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Ends the thread that reads.
        if let Ok(stream) = self.stream.lock() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A whole message from the buffer.
fn cut(buffer: &mut Vec<u8>) -> Option<Message> {
    let header = Header::parse(buffer.get(..HEADER)?)?;
    let length = usize::from(header.length);
    let bytes: Vec<u8> = (buffer.len() >= length).then(|| buffer.drain(..length).collect())?;
    Some(Message::decode(&bytes).unwrap_or_else(|fault| panic!("the switch sent {bytes:02x?}: {fault:?}")))
}

/// A connection that has said hello, and on which nobody reads.
pub fn silent(path: &Path, version: Version) -> UnixStream {
    let mut stream = call(path);
    let body = Body::Hello(Hello::with(&[version.number()]));
    stream.write_all(&Message { version, xid: 1, body }.encode().unwrap()).unwrap();
    stream
}

/// A flow-mod from ovs-ofctl's text.
pub fn rule(command: FlowModCommand, text: &str) -> Body {
    let model = flow::text::rule::flow_mod(command, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let command = match command {
        FlowModCommand::Add => FlowCommand::ADD,
        FlowModCommand::Modify => FlowCommand::MODIFY,
        FlowModCommand::ModifyStrict => FlowCommand::MODIFY_STRICT,
        FlowModCommand::Delete => FlowCommand::DELETE,
        FlowModCommand::DeleteStrict => FlowCommand::DELETE_STRICT,
    };
    Body::FlowMod(FlowMod {
        cookie: Hex(model.rule.cookie),
        cookie_mask: Hex(model.cookie_mask),
        table_id: model.table,
        command,
        idle_timeout: model.rule.idle_timeout,
        hard_timeout: model.rule.hard_timeout,
        priority: model.rule.priority,
        buffer_id: Hex(ANY),
        out_port: model.out_port.0,
        out_group: model.out_group,
        flags: model.rule.flags,
        importance: model.rule.importance,
        matching: write_match(&model.rule.matching),
        instructions: write_instructions(&model.rule.instructions),
    })
}

/// A rule to add.
pub fn add(text: &str) -> Body {
    rule(FlowModCommand::Add, text)
}

/// A group from ovs-ofctl's text.
pub fn group(command: ModCommand, text: &str) -> Body {
    let model = flow::text::group::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let kind = match model.kind {
        flow::group::GroupType::All => GroupType::ALL,
        flow::group::GroupType::Select => GroupType::SELECT,
        flow::group::GroupType::Indirect => GroupType::INDIRECT,
        flow::group::GroupType::FastFailover => GroupType::FF,
    };
    let command = match command {
        ModCommand::Add => GroupCommand::ADD,
        ModCommand::Modify => GroupCommand::MODIFY,
        ModCommand::Delete => GroupCommand::DELETE,
    };
    Body::GroupMod(GroupMod { command, kind, group_id: model.id, buckets: write_buckets(&model.buckets) })
}

/// A meter to add, from ovs-ofctl's text.
pub fn meter(text: &str) -> Body {
    let model = flow::text::meter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let (flags, bands) = (model.flags, write_bands(&model.bands));
    Body::MeterMod(MeterMod { command: MeterCommand::ADD, flags, meter_id: model.id, bands })
}

/// A packet-out with actions in ovs-ofctl's text.
pub fn packet_out(in_port: u32, actions: &str, frame: &[u8]) -> Body {
    let model = flow::text::rule::flow_mod(FlowModCommand::Add, &format!("actions={actions}")).unwrap();
    let Some(flow::Instruction::ApplyActions(actions)) = model.rule.instructions.first() else {
        panic!("{actions}: no actions")
    };
    let actions = write_actions(actions);
    Body::PacketOut(PacketOut { buffer_id: Hex(ANY), in_port, actions, data: Bytes(frame.to_vec()) })
}

/// A frame from the text of the crate `flow`, as `eth / ip dst=10.0.0.1 / udp`.
pub fn frame(text: &str) -> Vec<u8> {
    flow::text::frame::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

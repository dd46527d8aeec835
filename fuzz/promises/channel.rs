//! Any bytes in any cuts into the channels of a switch and the agent behind them.
//!
//! The input is a list of steps: bytes as they are, a message whose header is set right, time that passes, another connection, a frame.
//! So the fuzzer need not find lengths and hellos before it comes to what matters.

use flow::agent::{Effects, OpenFlowAgent, SwitchIdentity};
use flow::interpret::{self, InputFrame};
use flow::openflow::bytes::Version;
use flow::openflow::channel::{Channel, ChannelConfig, Event, Side};
use flow::openflow::message::{Body, HEADER, Header, Message};
use flow::openflow::misc::Hello;
use flow::port::Port;
use flow::{Action, Instruction, Pipeline, PortNo};

/// Connections: two with a hello, one of each version, and one that has said nothing.
const CONNECTIONS: u64 = 3;
/// Rules of a table: few enough that it becomes full.
const RULES: usize = 64;

struct Peer {
    channel: Channel,
    is_up: bool,
}

struct Scene {
    now: u64,
    agent: OpenFlowAgent,
    pipeline: Pipeline,
    peers: Vec<Peer>,
}

/// No step panics; what the switch says can be read; the tables have no rule that points to what is not there.
pub fn channel(bytes: &[u8]) {
    let mut scene = Scene::new();
    let mut to = 0u64;
    let mut rest = bytes;
    while let [kind, length, more @ ..] = rest {
        let (part, after) = more.split_at(usize::from(*length).min(more.len()));
        rest = after;
        match kind % 5 {
            0 => scene.input(to, part),
            1 => scene.whole(to, part),
            2 => scene.pass(u64::from(*length) * 50_000_000),
            3 => to = u64::from(*length) % CONNECTIONS,
            _ => scene.frame(part),
        }
        if matches!(kind % 5, 2 | 3) {
            // The length was the step itself.
            rest = more;
        }
    }
    scene.is_consistent();
}

impl Scene {
    fn new() -> Scene {
        let mut pipeline = Pipeline::new(RULES);
        for number in 1..=3 {
            pipeline.add_port(Port::new(PortNo(number), "p", [2, 0, 0, 0, 0, number as u8]));
        }
        let identity = SwitchIdentity { dpid: 1, ..SwitchIdentity::default() };
        let peer =
            |_| Peer { channel: Channel::new(Side::Switch, ChannelConfig::default(), 0), is_up: false };
        let agent = OpenFlowAgent::new(identity, 0);
        let mut scene = Scene { now: 0, agent, pipeline, peers: (0..CONNECTIONS).map(peer).collect() };
        for (to, version) in (0..).zip(Version::ALL) {
            let body = Body::Hello(Hello::with(&[version.number()]));
            scene.input(to, &Message { version, xid: 1, body }.encode().expect("a hello fits"));
        }
        scene
    }

    /// A message: its type, and what is behind the header; in two pieces.
    fn whole(&mut self, to: u64, part: &[u8]) {
        let Some((kind, body)) = part.split_first() else { return };
        let version = self.peers[to as usize].channel.version().unwrap_or(Version::V13);
        let mut message = vec![version.number(), kind % 36];
        message.extend(((HEADER + body.len()) as u16).to_be_bytes());
        message.extend([0, 0, 0, 7]);
        message.extend(body);
        let (first, second) = message.split_at(message.len() / 2);
        self.input(to, first);
        self.input(to, second);
    }

    fn input(&mut self, to: u64, bytes: &[u8]) {
        let now = self.now;
        self.peers[to as usize].channel.input(now, bytes);
        self.answer(to);
        self.empty();
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        for to in 0..CONNECTIONS {
            self.peers[to as usize].channel.tick(self.now);
            self.answer(to);
        }
        let mut effects = Effects::default();
        self.agent.expire(self.now, &mut self.pipeline, &mut effects);
        self.carry_out(effects);
        self.empty();
    }

    fn frame(&mut self, bytes: &[u8]) {
        let mut effects = Effects::default();
        let arrival = InputFrame::new(PortNo(1), bytes);
        interpret::receive(&mut self.pipeline, self.now, arrival, &mut effects.verdict);
        self.carry_out(effects);
        self.empty();
    }

    fn answer(&mut self, to: u64) {
        while let Some(event) = self.peers[to as usize].channel.next_event() {
            let mut effects = Effects::default();
            match event {
                Event::Up { version } => {
                    self.agent.up(to, version, None).expect("a main connection is never refused");
                    self.peers[to as usize].is_up = true;
                }
                Event::Message(message) => {
                    self.agent.message(self.now, to, &message, &mut self.pipeline, &mut effects);
                }
                Event::Refused { .. } => {}
                Event::Down(_) => {
                    self.agent.down(to);
                    self.peers[to as usize].is_up = false;
                }
            }
            self.carry_out(effects);
        }
    }

    fn carry_out(&mut self, mut effects: Effects) {
        for packet_in in std::mem::take(&mut effects.verdict.packet_ins) {
            self.agent.packet_in(&packet_in, &mut effects);
        }
        for (to, message) in effects.messages {
            let sent = self.peers[to as usize].channel.send(&message);
            assert!(sent.is_ok() || matches!(message.body, Body::MultipartReply(_)), "{message}");
        }
    }

    /// What the switch said is read, and thrown away.
    fn empty(&mut self) {
        for peer in &mut self.peers {
            let output = std::mem::take(peer.channel.output());
            let mut rest = &output[..];
            while let Some(header) = Header::parse(rest) {
                let (message, after) = rest.split_at(usize::from(header.length));
                // The refusal of a hello has the version of the other end.
                let is_ours = Version::ALL.iter().any(|version| version.number() == header.version);
                if is_ours {
                    Message::decode(message).expect("what the switch says can be read");
                }
                rest = after;
            }
            assert!(rest.is_empty(), "half a message");
        }
    }

    /// Every rule, and every bucket of a group, names only what is there, and tables are not longer than they may be.
    fn is_consistent(&self) {
        let pipeline = &self.pipeline;
        let group_is_there = |actions: &[Action]| {
            let mut groups = actions.iter().filter_map(|one| match one {
                Action::Group(id) => Some(*id),
                _ => None,
            });
            assert!(groups.all(|id| pipeline.groups().get(id).is_some()), "a group that is gone");
        };
        for table in pipeline.tables() {
            assert!(table.len() <= RULES);
            for (_, entry) in table.rules() {
                for instruction in &entry.rule.instructions {
                    group_is_there(instruction.actions());
                    match instruction {
                        Instruction::GotoTable(next) => assert!(*next > table.number),
                        Instruction::Meter(id) => assert!(pipeline.meters().get(*id).is_some()),
                        _ => {}
                    }
                }
            }
        }
        for group in pipeline.groups().iter() {
            group.group.buckets.iter().for_each(|bucket| group_is_there(&bucket.actions));
        }
        assert_eq!(self.agent.is_connected(), self.peers.iter().any(|peer| peer.is_up));
    }
}

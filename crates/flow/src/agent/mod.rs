//! The agent: what a switch answers to controllers, and what it reports to them unasked.
//!
//! **What.** [`OpenFlowAgent::message`] takes one decoded message of one connection, changes or reads the [`Pipeline`], and puts
//! replies (and the frames of a packet-out) into [`Effects`]. [`OpenFlowAgent::publish`] turns what happened ([`Event`]) into
//! flow-removed, port-status, table-status and monitor updates for those who want them; [`OpenFlowAgent::packet_in`] does the
//! same with a frame.
//!
//! **Why.** A protocol without a socket and without a clock can be tested with every order of messages; who reads and
//! writes bytes is the channel's business, who moves frames the datapath's.
//!
//! **Price.** Everything is decided under the lock of the pipeline; a dump of a million rules is built at once.

mod bundle;
mod change;
mod multipart;
mod queues;
mod tell;
pub mod translate;

use crate::error::{BadInstruction, BadRequest};
use crate::event::{Event, Monitor};
use crate::interpret::{self, InputFrame, Verdict};
use crate::openflow::bytes::{Bytes, Hex, Version};
use crate::openflow::extension;
use crate::openflow::fault::Fault;
use crate::openflow::message::{Body, Message};
use crate::openflow::misc::{
    Capabilities, ConfigFlags, Empty, ErrorMessage, Features, Role, RoleCode, SwitchConfig,
};
use crate::openflow::roles::{Conn, Roles, Unasked};
use crate::openflow::rule::PacketOut;
use crate::pipeline::{Config, Fragments, Pipeline};
use crate::port::PortNo;
use bundle::Bundle;
use std::collections::BTreeMap;
use wire::refuse_if;

pub use tell::packet_in_message;

/// What a message comes to, or the error that refuses it.
type Answer<T> = Result<T, Fault>;

/// How much of a refused message goes back (§7.4.4: at least 64 bytes).
const REFUSED_BYTES: usize = 128;

/// What the switch says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwitchIdentity {
    /// Its datapath identifier.
    pub dpid: u64,
    /// Its name, for people.
    pub name: String,
    /// The version of the program.
    pub software: String,
    /// The machine.
    pub hardware: String,
}

/// What is to be done after a message.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages to send, in order for each connection.
    pub messages: Vec<(Conn, Message)>,
    /// Frames that packet-outs sent, and packet-ins that they caused.
    pub verdict: Verdict,
}

/// What is known of one connection.
#[derive(Debug)]
struct Peer {
    version: Version,
    bundles: BTreeMap<u32, Bundle>,
    monitors: BTreeMap<u32, Monitor>,
}

/// The side of a switch that speaks OpenFlow.
#[derive(Debug)]
pub struct OpenFlowAgent {
    identity: SwitchIdentity,
    peers: BTreeMap<Conn, Peer>,
    roles: Roles,
    /// When it began: ports count from then.
    begun_ns: u64,
}

impl OpenFlowAgent {
    /// A switch without connections.
    pub fn new(identity: SwitchIdentity, now: u64) -> OpenFlowAgent {
        OpenFlowAgent { identity, peers: BTreeMap::new(), roles: Roles::default(), begun_ns: now }
    }

    /// A controller has agreed on a version. `main` is the main connection of an auxiliary one, with its number.
    ///
    /// # Errors
    /// `HelloFailed`: there is no such main connection, or the number is taken.
    pub fn up(&mut self, connection: Conn, version: Version, main: Option<(Conn, u8)>) -> Answer<()> {
        match main {
            None => self.roles.add(connection, version),
            Some((main, number)) => self.roles.add_auxiliary(connection, main, number, version)?,
        }
        let peer = Peer { version, bundles: BTreeMap::new(), monitors: BTreeMap::new() };
        self.peers.insert(connection, peer);
        Ok(())
    }

    /// A connection is gone: its bundles are discarded and its monitors forgotten (1.4 §7.3.9.4). Its auxiliary
    /// connections are the answer, to be closed.
    pub fn down(&mut self, connection: Conn) -> Vec<Conn> {
        self.peers.remove(&connection);
        self.roles.remove(connection)
    }

    /// True when at least one controller is there.
    pub fn is_connected(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Answers one message. Hello, echo and errors are the channel's; they are ignored here.
    pub fn message(
        &mut self,
        now: u64,
        connection: Conn,
        message: &Message,
        pipeline: &mut Pipeline,
        effects: &mut Effects,
    ) {
        let Some(peer) = self.peers.get(&connection) else { return };
        let from = From { connection, version: peer.version, xid: message.xid };
        let mut scene = Scene { now, from, pipeline, effects };
        if let Err(fault) = self.answer(&mut scene, message) {
            scene.effects.refuse(from, message, fault);
        }
    }

    fn answer(&mut self, scene: &mut Scene<'_>, message: &Message) -> Result<(), Fault> {
        self.roles.may(scene.from.connection, &message.body)?;
        match &message.body {
            Body::Hello(_) | Body::Error(_) | Body::EchoRequest(_) | Body::EchoReply(_) => {}
            Body::FeaturesRequest(_) => self.features(scene),
            Body::GetConfigRequest(_) => scene.reply(Body::GetConfigReply(config(scene.pipeline))),
            Body::SetConfig(wish) => set_config(scene.pipeline, wish)?,
            Body::PacketOut(out) => packet_out(scene, out)?,
            // The channel puts the parts of a long question together.
            Body::MultipartRequest(whole) => self.question(scene, &whole.body)?,
            // Everything before it is done when it is done here: changes are made at once, under the lock that
            // frames need, too (§6.2).
            Body::BarrierRequest(_) => scene.reply(Body::BarrierReply(Empty::default())),
            Body::QueueConfigRequest(request) => {
                let reply = queues::config(scene.pipeline, request.port)?;
                scene.reply(Body::QueueConfigReply(reply));
            }
            Body::RoleRequest(request) => self.role(scene, request)?,
            Body::GetAsyncRequest(_) => {
                let config = self.roles.async_config(scene.from.connection);
                scene.reply(Body::GetAsyncReply(config));
            }
            Body::SetAsync(config) => self.roles.set_async(scene.from.connection, config)?,
            Body::BundleControl(control) => self.bundle_control(scene, control)?,
            Body::BundleAdd(add) => self.bundle_add(scene, add)?,
            Body::Experimenter(one) => match extension::cancelled(scene.from.version, one) {
                Some(id) => self.cancel(scene.from.connection, id?)?,
                None => return Err(BadRequest::BadExperimenter.into()),
            },
            // It is refused when it is none: the rest is what only a switch says.
            _ => self.change(scene, message)?,
        }
        Ok(())
    }

    /// §7.3.9: a role is asked for, or only asked after.
    fn role(&mut self, scene: &mut Scene<'_>, wish: &Role) -> Result<(), Fault> {
        let connection = scene.from.connection;
        let demoted = self.roles.set_role(connection, wish.role, wish.generation_id.0)?;
        for (other, status) in demoted {
            let version = self.peers.get(&other).map_or(Version::V13, |peer| peer.version);
            // 1.4 §7.4.5: a controller whose role another one changed is informed.
            if version == Version::V14 && self.roles.wants(other, Unasked::RoleStatus, status.reason.0) {
                scene.effects.tell([(other, version)], &Body::RoleStatus(status));
            }
        }
        let role = self.roles.role(connection).unwrap_or(RoleCode::EQUAL);
        scene.reply(Body::RoleReply(Role { role, generation_id: Hex(self.roles.generation()) }));
        Ok(())
    }

    fn features(&self, scene: &mut Scene<'_>) {
        let auxiliary_id = self.roles.auxiliary_id(scene.from.connection);
        let capabilities = Capabilities::FLOW_STATS
            .with(Capabilities::TABLE_STATS)
            .with(Capabilities::PORT_STATS)
            .with(Capabilities::GROUP_STATS)
            .with(Capabilities::QUEUE_STATS);
        scene.reply(Body::FeaturesReply(Features {
            datapath_id: Hex(self.identity.dpid),
            n_buffers: 0,
            n_tables: scene.pipeline.tables().count() as u8,
            auxiliary_id,
            capabilities,
        }));
    }
}

/// Who sent a message, and how.
#[derive(Debug, Clone, Copy)]
pub struct From {
    connection: Conn,
    version: Version,
    xid: u32,
}

/// What one message may touch.
struct Scene<'a> {
    now: u64,
    from: From,
    pipeline: &'a mut Pipeline,
    effects: &'a mut Effects,
}

impl Scene<'_> {
    fn reply(&mut self, body: Body) {
        let From { connection, version, xid } = self.from;
        self.effects.messages.push((connection, Message { version, xid, body }));
    }
}

impl Effects {
    fn refuse(&mut self, from: From, message: &Message, fault: Fault) {
        let fault = spoken(from.version, fault);
        let mut data = message.encode().unwrap_or_default();
        data.truncate(REFUSED_BYTES);
        let body = Body::Error(ErrorMessage { fault, experimenter: None, data: Bytes(data) });
        self.messages.push((from.connection, Message { version: from.version, xid: message.xid, body }));
    }
}

/// The error in a version: 1.3 has no name for an instruction that stands there twice, so it is one that is not supported.
fn spoken(version: Version, fault: Fault) -> Fault {
    match version {
        Version::V13 if fault == BadInstruction::DupInst.into() => BadInstruction::UnsupInst.into(),
        _ => fault,
    }
}

fn config(pipeline: &Pipeline) -> SwitchConfig {
    let flags = match pipeline.config.fragments {
        Fragments::Normal => ConfigFlags::default(),
        Fragments::Drop => ConfigFlags::FRAG_DROP,
        Fragments::Reassemble => ConfigFlags::FRAG_REASM,
    };
    SwitchConfig { flags, miss_send_len: pipeline.config.miss_send_len }
}

fn set_config(pipeline: &mut Pipeline, wish: &SwitchConfig) -> Result<(), Fault> {
    let fragments = match wish.flags.0 {
        0 => Fragments::Normal,
        1 => Fragments::Drop,
        // Reassembly, and bits without a name: refused by the model.
        _ => Fragments::Reassemble,
    };
    Ok(pipeline.set_config(Config { fragments, miss_send_len: wish.miss_send_len })?)
}

/// §7.3.7: a frame, and what to do with it.
fn packet_out(scene: &mut Scene<'_>, out: &PacketOut) -> Result<(), Fault> {
    refuse_if(out.buffer_id.0 != translate::NO_BUFFER, BadRequest::BufferUnknown)?;
    let actions = translate::read_actions(scene.from.version, &out.actions)?;
    let in_port = PortNo(out.in_port);
    scene.pipeline.check_packet_out(in_port, &actions)?;
    // A frame has at least an Ethernet header.
    refuse_if(out.data.0.len() < 14, BadRequest::BadPacket)?;
    let arrival = InputFrame::new(in_port, &out.data.0);
    interpret::packet_out(scene.pipeline, scene.now, arrival, &actions, &mut scene.effects.verdict);
    Ok(())
}

impl OpenFlowAgent {
    /// Removes the rules whose time is over, and reports that to the controllers that want to know.
    pub fn expire(&mut self, now: u64, pipeline: &mut Pipeline, effects: &mut Effects) {
        let events: Vec<Event> = pipeline.expire(now);
        self.publish(&events, None, pipeline, effects);
    }
}

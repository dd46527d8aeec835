//! A whole message: the header, the table of message types, and a message inside another.

use super::bytes::{Bytes, Hex, Part, Reader, Tagged, Version, Writer, layout, tagged};
use super::extension;
use super::fault::Fault;
use super::forms::Aligned;
use super::group::{GroupMod, MeterMod};
use super::misc::{
    AsyncConfig, BundleControl, BundleFlags, Echo, Empty, ErrorMessage, Features, Hello, Role, RoleStatus,
    SwitchConfig, TableMod, TableStatus,
};
use super::multipart::{Multipart, MultipartReply, MultipartRequest, Request};
use super::oxm::{ExperimenterKind, OnlyExperimenter};
use super::port::{PortMod, PortStatus, QueueConfigReply, QueueConfigRequest};
use super::rule::{FlowMod, FlowRemoved, PacketIn, PacketOut};
use super::tree::Tree;
use crate::error::{BadRequest, BundleFailed};
use std::fmt;
use wire::refuse_if;

pub use super::bytes::{HEADER, LONGEST, TooLong};

tagged! {
    /// What a message says.
    pub enum Body {
        /// First of all.
        0 "hello" => Hello(Hello);
        /// A refusal.
        1 "error" => Error(ErrorMessage);
        /// Are you there?
        2 "echo_request" => EchoRequest(Echo);
        /// Yes.
        3 "echo_reply" => EchoReply(Echo);
        /// An experimenter's.
        4 "experimenter" => Experimenter(ExperimenterKind);
        /// Who are you?
        5 "features_request" => FeaturesRequest(Empty);
        /// The switch.
        6 "features_reply" => FeaturesReply(Features);
        /// How are you set?
        7 "get_config_request" => GetConfigRequest(Empty);
        /// Like this.
        8 "get_config_reply" => GetConfigReply(SwitchConfig);
        /// Be set like this.
        9 "set_config" => SetConfig(SwitchConfig);
        /// A frame for the controller.
        10 "packet_in" => PacketIn(PacketIn);
        /// A rule is gone.
        11 "flow_removed" => FlowRemoved(FlowRemoved);
        /// A port changed.
        12 "port_status" => PortStatus(PortStatus);
        /// A frame from the controller.
        13 "packet_out" => PacketOut(PacketOut);
        /// Rules.
        14 "flow_mod" => FlowMod(FlowMod);
        /// Groups.
        15 "group_mod" => GroupMod(GroupMod);
        /// Ports.
        16 "port_mod" => PortMod(PortMod);
        /// Tables.
        17 "table_mod" => TableMod(TableMod);
        /// A question that may be long.
        18 "multipart_request" => MultipartRequest(MultipartRequest);
        /// An answer that may be long.
        19 "multipart_reply" => MultipartReply(MultipartReply);
        /// Finish what came before.
        20 "barrier_request" => BarrierRequest(Empty);
        /// It is finished.
        21 "barrier_reply" => BarrierReply(Empty);
        /// Which queues? 1.4 asks in several parts.
        22 "queue_get_config_request" => QueueConfigRequest(QueueConfigRequest) in V13;
        /// These.
        23 "queue_get_config_reply" => QueueConfigReply(QueueConfigReply) in V13;
        /// I am master, slave, equal.
        24 "role_request" => RoleRequest(Role);
        /// So you are.
        25 "role_reply" => RoleReply(Role);
        /// Which messages do I get unasked?
        26 "get_async_request" => GetAsyncRequest(Empty);
        /// These.
        27 "get_async_reply" => GetAsyncReply(AsyncConfig);
        /// Send me these.
        28 "set_async" => SetAsync(AsyncConfig);
        /// Meters.
        29 "meter_mod" => MeterMod(MeterMod);
        /// Your role changed.
        30 "role_status" => RoleStatus(RoleStatus) in V14;
        /// A table changed.
        31 "table_status" => TableStatus(TableStatus) in V14;
        /// Another controller changed something.
        32 "requestforward" => RequestForward(RequestForward) in V14;
        /// Open, close, commit, discard.
        33 "bundle_control" => BundleControl(BundleControl) in V14;
        /// A message of a bundle.
        34 "bundle_add_message" => BundleAdd(BundleAdd) in V14;
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Which OpenFlow.
    pub version: Version,
    /// The transaction: a reply has its request's.
    pub xid: u32,
    /// What it says.
    pub body: Body,
}

/// The header of a message, of any version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The number of the version.
    pub version: u8,
    /// The number of the message type.
    pub kind: u8,
    /// Bytes of the whole message.
    pub length: u16,
    /// The transaction.
    pub xid: u32,
}

impl Header {
    /// The first eight bytes; `None` when there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let [version, kind, l1, l0, x3, x2, x1, x0] = *bytes.first_chunk()?;
        let (length, xid) = (u16::from_be_bytes([l1, l0]), u32::from_be_bytes([x3, x2, x1, x0]));
        Some(Header { version, kind, length, xid })
    }
}

impl Message {
    /// Reads one whole message; the fault is what to send back.
    pub fn decode(bytes: &[u8]) -> Result<Message, Fault> {
        let header = Header::parse(bytes).ok_or(BadRequest::BadLen)?;
        let version = Version::from_number(header.version).ok_or(BadRequest::BadVersion)?;
        refuse_if(usize::from(header.length) != bytes.len(), BadRequest::BadLen)?;
        let (kind, skip, layout) = extension::inside(version, header.kind, &bytes[HEADER..]);
        let mut r = Reader::new(&bytes[HEADER + skip..], layout, BadRequest::BadLen);
        let body = Body::read_body(kind, &mut r, BadRequest::BadType)?;
        r.end()?;
        Ok(Message { version, xid: header.xid, body })
    }

    /// Its bytes.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut w = Writer::new(self.version);
        let outside = extension::outside(self.version, self.body.number());
        w.put(&[self.version.number(), outside.map_or(self.body.number() as u8, |_| extension::KIND), 0, 0]);
        self.xid.write(&mut w);
        w.put(outside.as_ref().map_or(&[], |envelope| envelope));
        self.body.write_body(&mut w);
        w.measure(0, 2);
        let bytes = w.done();
        if bytes.len() <= LONGEST { Ok(bytes) } else { Err(TooLong(bytes.len())) }
    }

    /// Names and values, header first.
    pub fn tree(&self) -> Tree {
        let mut fields =
            vec![("version", Tree::Text(self.version.to_string())), ("xid", Hex(self.xid).tree())];
        let name = match self.body.body_tree() {
            Tree::Part(name, more) => {
                fields.extend(more);
                name
            }
            other => {
                fields.push(("body", other));
                self.body.name()
            }
        };
        Tree::Part(name, fields)
    }
}

/// One readable line.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tree().fmt(f)
    }
}

/// A message inside another, as bytes: it is decoded where it is needed, so that a message in a message in a message costs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Raw(pub Vec<u8>);

impl Part for Raw {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut whole = r.clone().part(r.left(), BundleFailed::MsgBadLen)?;
        let mut message = whole.measured(2)?;
        refuse_if(message.left() < HEADER, BundleFailed::MsgBadLen)?;
        r.skip(message.left())?;
        Ok(Raw(message.rest().to_vec()))
    }
    fn write(&self, w: &mut Writer) {
        w.put(&self.0);
    }
    fn tree(&self) -> Tree {
        // A bundle in a bundle is refused anyway; not decoding it bounds the depth.
        let nested = [extension::KIND, 32, 34].contains(self.0.get(1).unwrap_or(&0));
        match Message::decode(&self.0) {
            Ok(message) if !nested => message.tree(),
            _ => Tree::Bytes(self.0.clone()),
        }
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        let xid = s.number(32) as u32;
        let body = match s.below(3) {
            0 => Body::GroupMod(Part::sample(s)),
            1 => Body::MeterMod(Part::sample(s)),
            _ => Body::FlowMod(Part::sample(s)),
        };
        Raw(Message { version: s.version(), xid, body }.encode().unwrap())
    }
}

layout! {
    /// `requestforward` (1.4): a group-mod or meter-mod of another controller.
    pub struct RequestForward "requestforward" {
        /// The whole message.
        request: Raw;
    }
    /// `bundle_add_message` (1.4): one message of a bundle.
    pub struct BundleAdd "bundle_add_message" {
        /// Which bundle.
        bundle_id: u32;
        _ 2;
        /// As when it was opened.
        flags: BundleFlags;
        /// The whole message; its transaction number is the outer one's.
        message: Raw;
        /// Of experimenters. Only before them is the message padded.
        properties: Vec<OnlyExperimenter> as Aligned;
    }
}

/// A question as a message.
pub fn question(version: Version, xid: u32, request: Request) -> Message {
    Message { version, xid, body: Body::MultipartRequest(Multipart::whole(request)) }
}

/// The message that says why another one is refused.
pub fn refusal(version: Version, xid: u32, fault: Fault, refused: &[u8]) -> Message {
    // 1.3.5 section 7.4.4: at least 64 bytes, the whole message if it is shorter.
    let data = Bytes(refused[..refused.len().min(64)].to_vec());
    let body = Body::Error(ErrorMessage { fault, experimenter: None, data });
    Message { version, xid, body }
}

//! Questions and answers that may take several messages (OpenFlow 1.3.5 section 7.3.5, 1.4.1 section 7.3.5).
//!
//! An answer of many items is cut between items into messages that fit ([`split`]); what comes in several is put together again
//! with a limit ([`MultipartAssembler`]).

use super::bytes::{LONGEST, Part, Reader, Tagged, TooLong, Version, Writer, flag_sets, tagged};
use super::extension;
use super::fault::{self, Fault};
use super::group::{
    GroupDesc, GroupFeatures, GroupStats, GroupStatsRequest, MeterConfig, MeterFeatures, MeterRequest,
    MeterStats,
};
use super::misc::{Desc, Empty, TableDesc, TableFeatures, TableStats};
use super::oxm::ExperimenterKind;
use super::port::{Port, PortStats, PortStatsRequest, Queue, QueueRequest, QueueStats};
use super::rule::{AggregateStats, FlowStats, FlowStatsRequest, MonitorRequest, Update};
use super::tree::Tree;
use crate::error::BadRequest;
use crate::flags::flags;
use wire::refuse_if;

flag_sets! { MultipartFlags }

flags! {
    /// Whether more is to come.
    pub MultipartFlags(u16) { MORE = 1 "more" }
}

tagged! {
    /// A question.
    pub enum Request {
        /// Words about the switch.
        0 "desc" => Desc(Empty);
        /// Rules.
        1 "flow" => Flow(FlowStatsRequest);
        /// Sums over rules.
        2 "aggregate" => Aggregate(FlowStatsRequest);
        /// Counters of tables.
        3 "table" => Table(Empty);
        /// Counters of ports.
        4 "port_stats" => PortStats(PortStatsRequest);
        /// Counters of queues.
        5 "queue" => QueueStats(QueueRequest);
        /// Counters of groups.
        6 "group" => Group(GroupStatsRequest);
        /// Groups.
        7 "group_desc" => GroupDesc(Empty);
        /// What groups can do.
        8 "group_features" => GroupFeatures(Empty);
        /// Counters of meters.
        9 "meter" => Meter(MeterRequest);
        /// Meters.
        10 "meter_config" => MeterConfig(MeterRequest);
        /// What meters can do.
        11 "meter_features" => MeterFeatures(Empty);
        /// What tables can do, or are to do.
        12 "table_features" => TableFeatures(Vec<TableFeatures>);
        /// Ports.
        13 "port_desc" => PortDesc(Empty);
        /// How tables are configured.
        14 "table_desc" => TableDesc(Empty) in V14;
        /// Queues.
        15 "queue_desc" => QueueDesc(QueueRequest) in V14;
        /// Changes of rules, as they happen.
        16 "flow_monitor" => FlowMonitor(Vec<MonitorRequest>);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(ExperimenterKind);
    }
}

tagged! {
    /// An answer.
    pub enum Reply {
        /// Words about the switch.
        0 "desc" => Desc(Box<Desc>);
        /// Rules.
        1 "flow" => Flow(Vec<FlowStats>);
        /// Sums over rules.
        2 "aggregate" => Aggregate(AggregateStats);
        /// Counters of tables.
        3 "table" => Table(Vec<TableStats>);
        /// Counters of ports.
        4 "port_stats" => PortStats(Vec<PortStats>);
        /// Counters of queues.
        5 "queue" => QueueStats(Vec<QueueStats>);
        /// Counters of groups.
        6 "group" => Group(Vec<GroupStats>);
        /// Groups.
        7 "group_desc" => GroupDesc(Vec<GroupDesc>);
        /// What groups can do.
        8 "group_features" => GroupFeatures(GroupFeatures);
        /// Counters of meters.
        9 "meter" => Meter(Vec<MeterStats>);
        /// Meters.
        10 "meter_config" => MeterConfig(Vec<MeterConfig>);
        /// What meters can do.
        11 "meter_features" => MeterFeatures(MeterFeatures);
        /// What tables can do.
        12 "table_features" => TableFeatures(Vec<TableFeatures>);
        /// Ports.
        13 "port_desc" => PortDesc(Vec<Port>);
        /// How tables are configured.
        14 "table_desc" => TableDesc(Vec<TableDesc>) in V14;
        /// Queues.
        15 "queue_desc" => QueueDesc(Vec<Queue>) in V14;
        /// Changes of rules.
        16 "flow_monitor" => FlowMonitor(Vec<Update>);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(ExperimenterKind);
    }
}

/// A question or an answer, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart<T> {
    /// Whether more is to come.
    pub flags: MultipartFlags,
    /// This part of it.
    pub body: T,
}

/// A question, or a part of it.
pub type MultipartRequest = Multipart<Request>;
/// An answer, or a part of it.
pub type MultipartReply = Multipart<Reply>;

impl<T> Multipart<T> {
    /// One that is whole.
    pub fn whole(body: T) -> Self {
        Multipart { flags: MultipartFlags::default(), body }
    }
}

impl<T: Tagged> Part for Multipart<T> {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let number = u16::read(r)?;
        let flags = MultipartFlags::read(r)?;
        r.skip(4)?;
        let number = extension::multipart_inside(number, r)?;
        Ok(Multipart { flags, body: T::read_body(number, r, BadRequest::BadMultipart)? })
    }
    fn write(&self, w: &mut Writer) {
        write_head(w, self.body.number(), self.flags);
        self.body.write_body(w);
    }
    fn tree(&self) -> Tree {
        let kind = Tree::Code(u64::from(self.body.number()), self.body.name().to_owned());
        let body = match self.body.body_tree() {
            // A list is shown as it is.
            Tree::Part(_, mut fields) if fields.len() == 1 && fields[0].0 == "body" => fields.remove(0).1,
            other => other,
        };
        Tree::Part("multipart", vec![("type", kind), ("flags", self.flags.tree()), ("body", body)])
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        Multipart { flags: MultipartFlags(s.below(2) as u16), body: T::sample_body(s) }
    }
}

/// What comes before the body, with the envelope of an extension.
fn write_head(w: &mut Writer, number: u16, flags: MultipartFlags) {
    let envelope = extension::multipart_outside(w.version, number);
    envelope.map_or(number, |_| fault::EXPERIMENTER).write(w);
    flags.write(w);
    w.zeros(4);
    w.put(envelope.as_ref().map_or(&[], |bytes| bytes));
}

/// The messages of one answer, each as long as fits and all but the last with `more` set. An answer that is not a list and an
/// empty list are one message. An item that is too long for a message makes the answer impossible.
pub fn split(version: Version, xid: u32, reply: &Reply) -> Result<Vec<Vec<u8>>, TooLong> {
    split_at(version, xid, reply, LONGEST)
}

/// As [`split`], with messages of at most `longest` bytes.
pub fn split_at(version: Version, xid: u32, reply: &Reply, longest: usize) -> Result<Vec<Vec<u8>>, TooLong> {
    let head = |is_last: bool| {
        let mut w = Writer::new(version);
        w.put(&[version.number(), 19, 0, 0]);
        xid.write(&mut w);
        let flags = if is_last { MultipartFlags::default() } else { MultipartFlags::MORE };
        write_head(&mut w, reply.number(), flags);
        w
    };
    let front = head(true).at();
    let mut bodies: Vec<Vec<u8>> = vec![vec![]];
    for item in reply.body_pieces(version) {
        refuse_if(front + item.len() > longest, TooLong(item.len()))?;
        match bodies.last_mut() {
            Some(body) if front + body.len() + item.len() <= longest => body.extend(item),
            _ => bodies.push(item),
        }
    }
    let last = bodies.len() - 1;
    let whole = |(index, body): (usize, Vec<u8>)| {
        let mut w = head(index == last);
        w.put(&body);
        w.measure(0, 2);
        w.done()
    };
    Ok(bodies.into_iter().enumerate().map(whole).collect())
}

/// Parts that wait for the rest of their question or answer. At most [`MultipartAssembler::SEQUENCES`] transactions with [`MultipartAssembler::ITEMS`]
/// items each are kept; what exceeds it is refused with `multipart_buffer_overflow`, and a whole that never ends is forgotten with
/// the connection.
#[derive(Debug)]
pub struct MultipartAssembler<T> {
    waiting: Vec<(u32, T)>,
}

impl<T> Default for MultipartAssembler<T> {
    fn default() -> Self {
        MultipartAssembler { waiting: vec![] }
    }
}

impl<T: Tagged> MultipartAssembler<T> {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives up on everything that waits; gives the transactions.
    pub fn forget(&mut self) -> Vec<u32> {
        self.waiting.drain(..).map(|(xid, ..)| xid).collect()
    }

    /// Transactions at once.
    pub const SEQUENCES: usize = 8;
    /// Items of one.
    pub const ITEMS: usize = 1 << 20;

    /// Puts a part to what came before; gives the whole with its last part. Of the questions, only those about table features and
    /// monitors and those of experimenters have several parts.
    pub fn put(&mut self, xid: u32, part: Multipart<T>) -> Result<Option<Multipart<T>>, Fault> {
        let (number, more) = (part.body.number(), part.flags.has(MultipartFlags::MORE));
        let at = self.waiting.iter().position(|(other, body)| *other == xid && body.number() == number);
        match at {
            None if more && self.waiting.len() >= Self::SEQUENCES => {
                return Err(BadRequest::MultipartBufferOverflow.into());
            }
            None if more => self.waiting.push((xid, part.body)),
            None => return Ok(Some(part)),
            Some(at) => {
                // Other messages are one structure: a second part has no meaning.
                let joined = self.waiting[at].1.continue_body(part.body).ok_or(BadRequest::BadMultipart);
                let fits = joined.is_ok_and(|items| items <= Self::ITEMS);
                if !fits || !more {
                    let (_, whole) = self.waiting.swap_remove(at);
                    joined?;
                    let whole = fits.then(|| Multipart::whole(whole));
                    return whole.map(Some).ok_or(BadRequest::MultipartBufferOverflow.into());
                }
            }
        }
        Ok(None)
    }
}

//! Questions and answers that may take several messages (OpenFlow 1.3.5 section 7.3.5, 1.4.1 section 7.3.5).
//!
//! An answer of many items is cut between items into messages that fit ([`split`]); what comes in several is put together again
//! with a limit ([`MultipartAssembler`]).

use super::bytes::{LONGEST, Part, Reader, Version, Writer, flags, tagged};
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

macro_rules! multipart {
    ($($(#[$about:meta])* $Name:ident($Body:ident) $text:literal;)*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $Name {
            /// Whether more is to come.
            pub flags: MultipartFlags,
            /// This part of it.
            pub body: $Body,
        }

        impl Part for $Name {
            fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
                let number = u16::read(r)?;
                let flags = MultipartFlags::read(r)?;
                r.skip(4)?;
                let number = extension::multipart_inside(number, r)?;
                Ok($Name { flags, body: $Body::read_body(number, r, BadRequest::BadMultipart)? })
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
                Tree::Part($text, vec![("type", kind), ("flags", self.flags.tree()), ("body", body)])
            }
            #[cfg(test)]
            fn sample(s: &mut super::sample::Sampler) -> Self {
                $Name { flags: MultipartFlags(s.below(2) as u16), body: $Body::sample_body(s) }
            }
        }
    )*};
}

multipart! {
    /// A question, or a part of it.
    MultipartRequest(Request) "multipart_request";
    /// An answer, or a part of it.
    MultipartReply(Reply) "multipart_reply";
}

/// What comes before the body, with the envelope of an extension.
fn write_head(w: &mut Writer, number: u16, flags: MultipartFlags) {
    let envelope = extension::multipart_outside(w.version(), number);
    envelope.map_or(number, |_| fault::EXPERIMENTER).write(w);
    flags.write(w);
    w.zeros(4);
    w.put(envelope.as_ref().map_or(&[], |bytes| bytes));
}

/// An item longer than a message can carry: the answer cannot be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemTooLong(pub usize);

/// The messages of one answer, each as long as fits and all but the last with `more` set. An answer that is not a list and an
/// empty list are one message.
pub fn split(version: Version, xid: u32, reply: &Reply) -> Result<Vec<Vec<u8>>, ItemTooLong> {
    split_at(version, xid, reply, LONGEST)
}

/// As [`split`], with messages of at most `longest` bytes.
pub fn split_at(
    version: Version,
    xid: u32,
    reply: &Reply,
    longest: usize,
) -> Result<Vec<Vec<u8>>, ItemTooLong> {
    let head = |is_last: bool| {
        let mut w = Writer::new(version);
        w.put(&[version.number(), 19, 0, 0]);
        xid.write(&mut w);
        let flags = if is_last { MultipartFlags::default() } else { MultipartFlags::MORE };
        write_head(&mut w, reply.number(), flags);
        w
    };
    let front = head(true).at();
    let items = items(version, reply);
    let mut bodies: Vec<Vec<u8>> = vec![vec![]];
    for item in items {
        if front + item.len() > longest {
            return Err(ItemTooLong(item.len()));
        }
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

/// Each item of an answer as bytes; one for an answer that is not a list.
fn items(version: Version, reply: &Reply) -> Vec<Vec<u8>> {
    fn each<T: Part>(version: Version, items: &[T]) -> Vec<Vec<u8>> {
        let one = |item: &T| {
            let mut w = Writer::new(version);
            item.write(&mut w);
            w.done()
        };
        items.iter().map(one).collect()
    }
    match reply {
        Reply::Flow(items) => each(version, items),
        Reply::Table(items) => each(version, items),
        Reply::PortStats(items) => each(version, items),
        Reply::QueueStats(items) => each(version, items),
        Reply::Group(items) => each(version, items),
        Reply::GroupDesc(items) => each(version, items),
        Reply::Meter(items) => each(version, items),
        Reply::MeterConfig(items) => each(version, items),
        Reply::TableFeatures(items) => each(version, items),
        Reply::PortDesc(items) => each(version, items),
        Reply::TableDesc(items) => each(version, items),
        Reply::QueueDesc(items) => each(version, items),
        Reply::FlowMonitor(items) => each(version, items),
        Reply::Desc(_)
        | Reply::Aggregate(_)
        | Reply::GroupFeatures(_)
        | Reply::MeterFeatures(_)
        | Reply::Experimenter(_) => {
            let mut w = Writer::new(version);
            reply.write_body(&mut w);
            vec![w.done()]
        }
    }
}

/// What [`MultipartAssembler`] makes of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssembledPart<T> {
    /// More is to come.
    Waiting,
    /// The whole, under the transaction number.
    Whole(u32, T),
}

/// Parts that wait for the rest of their question or answer. At most [`MultipartAssembler::SEQUENCES`] transactions with [`MultipartAssembler::ITEMS`]
/// items each are kept; what exceeds it is refused with `multipart_buffer_overflow`, and a whole that never ends is forgotten with
/// the connection.
#[derive(Debug)]
pub struct MultipartAssembler<T> {
    waiting: Vec<(u32, u16, T)>,
}

impl<T> Default for MultipartAssembler<T> {
    fn default() -> Self {
        MultipartAssembler { waiting: vec![] }
    }
}

impl MultipartAssembler<Reply> {
    /// Puts a part of an answer to what came before.
    pub fn reply(&mut self, xid: u32, part: MultipartReply) -> Result<AssembledPart<Reply>, Fault> {
        self.put(xid, part.flags, part.body.number(), part.body, join_reply)
    }
}

impl MultipartAssembler<Request> {
    /// Puts a part of a question to what came before. Only table features and experimenters have questions of several parts.
    pub fn request(&mut self, xid: u32, part: MultipartRequest) -> Result<AssembledPart<Request>, Fault> {
        self.put(xid, part.flags, part.body.number(), part.body, join_request)
    }
}

impl<T> AssembledPart<T> {
    /// The whole in another shape.
    pub fn map<U>(self, shape: impl FnOnce(T) -> U) -> AssembledPart<U> {
        match self {
            AssembledPart::Waiting => AssembledPart::Waiting,
            AssembledPart::Whole(xid, whole) => AssembledPart::Whole(xid, shape(whole)),
        }
    }
}

impl<T> MultipartAssembler<T> {
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

    fn put(
        &mut self,
        xid: u32,
        flags: MultipartFlags,
        number: u16,
        part: T,
        join: fn(&mut T, T) -> Result<usize, Fault>,
    ) -> Result<AssembledPart<T>, Fault> {
        let at = self.waiting.iter().position(|(other, kind, _)| *other == xid && *kind == number);
        let more = flags.has(MultipartFlags::MORE);
        match at {
            None if more && self.waiting.len() >= Self::SEQUENCES => {
                return Err(BadRequest::MultipartBufferOverflow.into());
            }
            None if more => self.waiting.push((xid, number, part)),
            None => return Ok(AssembledPart::Whole(xid, part)),
            Some(at) => {
                let joined = join(&mut self.waiting[at].2, part);
                let fits = joined.is_ok_and(|items| items <= Self::ITEMS);
                if !fits || !more {
                    let (_, _, whole) = self.waiting.swap_remove(at);
                    joined?;
                    return if fits {
                        Ok(AssembledPart::Whole(xid, whole))
                    } else {
                        Err(BadRequest::MultipartBufferOverflow.into())
                    };
                }
            }
        }
        Ok(AssembledPart::Waiting)
    }
}

macro_rules! join {
    ($Type:ident, $all:expr, $more:expr, $($Case:ident)*) => {
        match ($all, $more) {
            $(($Type::$Case(all), $Type::$Case(more)) => {
                all.extend(more);
                Ok(all.len())
            })*
            ($Type::Experimenter(all), $Type::Experimenter(more))
                if all.experimenter == more.experimenter && all.exp_type == more.exp_type =>
            {
                all.data.0.extend(more.data.0);
                Ok(all.data.0.len())
            }
            // Other answers are one structure: a second part has no meaning.
            _ => Err(BadRequest::BadMultipart.into()),
        }
    };
}

fn join_reply(all: &mut Reply, more: Reply) -> Result<usize, Fault> {
    join!(
        Reply, all, more,
        Flow Table PortStats QueueStats Group GroupDesc Meter MeterConfig TableFeatures PortDesc TableDesc QueueDesc FlowMonitor
    )
}

fn join_request(all: &mut Request, more: Request) -> Result<usize, Fault> {
    join!(Request, all, more, TableFeatures FlowMonitor)
}

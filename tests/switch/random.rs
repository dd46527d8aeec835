//! Pipelines and frames by chance, of what OpenFlow and Open vSwitch both have.
//!
//! **What.** [`Case::new`] makes, from a number, groups and rules as text and the frames that are to meet them. Rules are made
//! from the fields of frames, so that they match some; frames are made from rules, inside of each match and one bit
//! outside.
//!
//! **Why.** Pure chance would meet no rule. The text is what both switches read: the two readers of it are compared as well.
//!
//! **Price.** What the two may do differently is not made here; `differential.rs` lists it, and why.

use flow::action::{Action, Instruction};
use flow::field::{Field, TABLE, VLAN_PRESENT, Value};
use flow::group::{Bucket, Group, GroupType};
use flow::matching::{Match, MatchField};
use flow::port::PortNo;
use flow::rule::{ANY_GROUP, Rule};
use wire::edit::FrameBuf;
use wire::offload::Offload;

/// Ports of the switches.
pub const PORTS: u32 = 4;
/// Tables that are used.
const TABLES: u8 = 4;

/// Numbers that look like chance and are the same for the same seed.
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Any number (splitmix64).
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }

    /// True once in so many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize]
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.any()) << 64 | u128::from(self.any())
    }
}

/// A frame and where it comes in.
#[derive(Debug, Clone)]
pub struct Given {
    /// The port.
    pub port: u32,
    /// The bytes; the last four are its number.
    pub frame: Vec<u8>,
}

/// Who may put a tag on a frame: only one does, so that no frame gets more tags than Open vSwitch can look behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pusher {
    Apply,
    Write,
    Bucket,
}

/// A pipeline and the frames for it.
#[derive(Debug)]
pub struct Case {
    /// Groups in ovs-ofctl's text, the ones that others send to first.
    pub groups: Vec<String>,
    /// Rules in ovs-ofctl's text; cookies number them from 1.
    pub rules: Vec<String>,
    /// The frames.
    pub frames: Vec<Given>,
}

impl Case {
    /// The case of a number.
    pub fn new(seed: u64, frames: u32) -> Case {
        let mut dice = Dice::new(seed);
        let pusher = dice.of(&[Pusher::Apply, Pusher::Write, Pusher::Bucket]);
        let stacks: Vec<String> = (0..6).map(|_| layers(&mut dice)).collect();
        let bases: Vec<FrameBuf> = stacks.iter().map(|text| buffer(text, 0)).collect();
        let groups: Vec<Group> = (1..=3).rev().map(|id| group(&mut dice, id, pusher)).collect();
        let mut rules = vec![];
        for table in 0..TABLES {
            let count = 3 + dice.below(6);
            for _ in 0..count {
                let base = &bases[dice.below(bases.len() as u64) as usize];
                rules.push((table, rule(&mut dice, table, base, pusher, rules.len())));
            }
            // A frame that no rule of a later table meets is dropped (§5.4); Open vSwitch carries its action set out.
            if table > 0 || !dice.once_in(3) {
                let mut miss = Maker::new(&mut dice, table, pusher, &Match::all());
                let instructions = miss.instructions();
                rules.push((table, numbered(Rule::new(0, Match::all(), instructions), rules.len())));
            }
        }
        let given = (0..frames)
            .map(|number| {
                let stack = &stacks[dice.below(stacks.len() as u64) as usize];
                given(&mut dice, buffer(stack, number), &rules)
            })
            .collect();
        let show = |(table, rule): &(u8, Rule)| flow::text::rule::show(*table, rule);
        let groups = groups.iter().map(flow::text::group::show).collect();
        Case { groups, rules: rules.iter().map(show).collect(), frames: given }
    }

    /// Groups and rules in one text, as `flow::text::file` reads them.
    pub fn text(&self) -> String {
        self.groups.iter().chain(&self.rules).map(|line| format!("{line}\n")).collect()
    }
}

fn numbered(mut rule: Rule, before: usize) -> Rule {
    rule.cookie = before as u64 + 1;
    rule
}

/// Layers of a frame by chance, from small sets of values, so that rules of one frame meet others.
fn layers(dice: &mut Dice) -> String {
    let mut text =
        format!("eth dst=02:00:00:00:00:0{:x},src=02:00:00:00:01:0{:x}", dice.below(4), dice.below(4));
    let tagged = |dice: &mut Dice| {
        format!(
            " / vlan tag={},vid={},pcp={}",
            dice.of(&["0x8100", "0x88a8"]),
            dice.of(&[1, 5, 4095]),
            dice.below(8)
        )
    };
    if dice.once_in(3) {
        text += &tagged(dice);
    }
    if dice.once_in(6) {
        for _ in 0..=dice.below(2) {
            let (label, ttl) = (dice.of(&[3, 16, 99, 0xfffff]), dice.of(&[0, 1, 2, 64, 255]));
            text += &format!(" / mpls label={label},tc={},ttl={ttl}", dice.below(8));
        }
        return text + &ipv4(dice);
    }
    match dice.below(8) {
        0 => {
            let (op, spa, tpa) = (dice.of(&[1, 2]), dice.below(3), dice.below(3));
            text + &format!(" / arp op={op},spa=10.0.0.{spa},tpa=10.0.1.{tpa},tha=02:00:00:00:00:0{spa}")
        }
        1 => text + ",type=0x9999",
        2..=4 => text + &ipv6(dice),
        _ => text + &ipv4(dice),
    }
}

fn ports(dice: &mut Dice) -> String {
    format!("sport={},dport={}", dice.of(&[0, 1000, 65535]), dice.of(&[1, 80, 443]))
}

fn ipv4(dice: &mut Dice) -> String {
    let tos = dice.of(&[0, 1, 0x28, 0xff]);
    let ttl = dice.of(&[0, 1, 2, 3, 64, 255]);
    let mut text = format!(
        " / ip src=10.{}.0.{},dst=10.0.{}.{},ttl={ttl},tos={tos}",
        dice.below(2),
        dice.below(4),
        dice.below(2),
        dice.below(4)
    );
    if dice.once_in(8) {
        text += ",options=01010100";
    }
    // No ports in fragments: Open vSwitch takes those of all fragments for 0.
    match dice.below(16) {
        0 => return text + ",mf=1",
        1 => return text + ",offset=5",
        _ => {}
    }
    let ports = ports(dice);
    text + &match dice.below(7) {
        0 => format!(" / icmp type={},code={}", dice.of(&[0, 3, 8]), dice.below(3)),
        1 => format!(" / sctp {ports}"),
        2 => format!(" / udp {ports},sum=0"),
        3 | 4 => format!(" / tcp {ports}"),
        _ => format!(" / udp {ports}"),
    }
}

fn ipv6(dice: &mut Dice) -> String {
    let ttl = dice.of(&[0, 1, 2, 64, 255]);
    let mut text = format!(
        " / ip6 src=fd00::{:x},dst=fd00::1:{:x},ttl={ttl},tc={},label={}",
        dice.below(3),
        dice.below(3),
        dice.of(&[0, 2, 0x28, 0xff]),
        dice.of(&[0, 1, 0xfffff])
    );
    let target = dice.below(3);
    let neighbour = dice.below(8);
    if neighbour == 0 {
        return text + &format!(" / ns target=fd00::{target},sll=02:00:00:00:00:0{target}");
    } else if neighbour == 1 {
        return text + &format!(" / na target=fd00::{target},tll=02:00:00:00:00:0{target}");
    }
    for extension in [" / hop", " / dest"] {
        if dice.once_in(8) {
            text += extension;
        }
    }
    let ports = ports(dice);
    text + &match dice.below(6) {
        0 => format!(" / icmp6 type={},code={}", dice.of(&[1, 128, 129]), dice.below(3)),
        1 => format!(" / sctp {ports}"),
        2 | 3 => format!(" / tcp {ports}"),
        _ => format!(" / udp {ports}"),
    }
}

/// The frame of a text, with its number at the end.
fn buffer(text: &str, number: u32) -> FrameBuf {
    // A frame that a pop makes shorter than Ethernet's shortest is filled up by one switch and not by the other. Nothing but
    // options may follow neighbour discovery.
    let filling = if text.contains(" / n") { "" } else { &"00".repeat(64) };
    let text = format!("{text} / raw {filling}{number:08x}");
    let bytes = flow::text::frame::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut frame = FrameBuf::new();
    frame.load(&bytes, Offload::NONE);
    frame
}

fn get(frame: &FrameBuf, field: Field) -> Option<Value> {
    frame.get(field)
}

/// Fields that only one of the two has, or that stand for something outside of a frame.
fn is_common(field: Field) -> bool {
    use Field::*;
    !matches!(field, InPort | InPhyPort | Metadata | TunnelId | PbbIsid | PbbUca | Ipv6Exthdr)
}

/// A rule that a frame meets, or meets nearly.
fn rule(dice: &mut Dice, table: u8, base: &FrameBuf, pusher: Pusher, before: usize) -> Rule {
    let mut fields: Vec<MatchField> = vec![];
    if dice.once_in(4) {
        fields.push(MatchField::exact(Field::InPort, 1 + dice.below(u64::from(PORTS))));
    }
    if table > 0 && dice.once_in(3) {
        let mask = dice.of(&[1u64, 3, 0xff, u64::MAX]);
        fields.push(MatchField::masked(Field::Metadata, dice.below(4) & mask, mask));
    }
    // Later tables are wider: what comes there was changed before.
    let wanted = dice.below(if table == 0 { 5 } else { 3 });
    let there: Vec<Field> = TABLE
        .iter()
        .map(|row| row.field)
        .filter(|field| is_common(*field) && get(base, *field).is_some())
        .collect();
    for _ in 0..wanted {
        let field = dice.of(&there);
        need(dice, base, &mut fields, field);
    }
    fields.sort_by_key(|entry| entry.field);
    let matching = Match::new(fields).expect("prerequisites are there");
    // No two rules of a table have the same priority: which of them wins is nobody's to say (§5.3).
    let priority = 1 + 100 * dice.below(600) as u16 + before as u16;
    let instructions = Maker::new(dice, table, pusher, &matching).instructions();
    numbered(Rule::new(priority, matching, instructions), before)
}

/// Adds a field with the value that the frame has, what must stand before it first.
fn need(dice: &mut Dice, base: &FrameBuf, fields: &mut Vec<MatchField>, field: Field) {
    use flow::field::Prerequisite::*;
    if fields.iter().any(|entry| entry.field == field) {
        return;
    }
    match field.row().prerequisite {
        None | InPort => {}
        VlanPresent => {
            fields.retain(|entry| entry.field != Field::VlanVid);
            fields.push(MatchField::masked(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT));
        }
        EthType(_) => need(dice, base, fields, Field::EthType),
        IpProto(..) => {
            need(dice, base, fields, Field::EthType);
            need(dice, base, fields, Field::IpProto);
        }
        Icmpv6Type(_) => {
            need(dice, base, fields, Field::EthType);
            need(dice, base, fields, Field::IpProto);
            need(dice, base, fields, Field::Icmpv6Type);
        }
    }
    let value = get(base, field).expect("the frame has it");
    let full = field.full_mask();
    let mask = match dice.below(4) {
        _ if !field.row().maskable => full,
        0 => full & (full << dice.below(field.bits().into())),
        1 => dice.wide() & full,
        _ => full,
    };
    // ovs-ofctl takes the mask of an IPv6 address for a length when it begins with a decimal digit: this one begins with f.
    let is_ipv6 = field.row().form == flow::field::Form::Ipv6;
    let mask = if is_ipv6 && mask != full { mask | 0xf << 124 } else { mask };
    // A VLAN that is there is asked for with the bit that says so.
    let is_tag = field == Field::VlanVid && value != 0;
    let mask = if is_tag { mask | Value::from(VLAN_PRESENT) } else { mask };
    let mask = if field == Field::VlanVid && value == 0 { full } else { mask };
    fields.push(match mask == full {
        true => MatchField::exact(field, value),
        false if mask == 0 => return,
        false => MatchField::masked(field, value & mask, mask),
    });
}

/// What is known of the frames that a rule gets, while actions are made for them.
struct Maker<'d> {
    dice: &'d mut Dice,
    table: u8,
    pusher: Pusher,
    eth_type: Option<Value>,
    proto: Option<Value>,
    icmp6: Option<Value>,
    /// Whether there is a VLAN tag.
    tag: Option<bool>,
    /// The bottom of the stack, of the outermost MPLS entry.
    bos: Option<Value>,
    /// The actions are of the action set.
    in_set: bool,
    /// An MPLS entry was pushed on a frame that may have no TTL to copy.
    is_new: bool,
}

impl<'d> Maker<'d> {
    fn new(dice: &'d mut Dice, table: u8, pusher: Pusher, matching: &Match) -> Maker<'d> {
        let vid = matching.get(Field::VlanVid);
        let tag = vid.map(|vid| vid.value & Value::from(VLAN_PRESENT) != 0);
        let exact = |field| matching.exact(field);
        let (eth_type, proto) = (exact(Field::EthType), exact(Field::IpProto));
        let (icmp6, bos) = (exact(Field::Icmpv6Type), exact(Field::MplsBos));
        Maker { dice, table, pusher, eth_type, proto, icmp6, tag, bos, in_set: false, is_new: false }
    }

    /// Forgets what is known of the frame behind its Ethernet header.
    fn inside(&mut self, eth_type: Option<Value>) {
        (self.eth_type, self.proto, self.icmp6, self.bos) = (eth_type, None, None, None);
    }

    fn instructions(&mut self) -> Vec<Instruction> {
        let mut made = vec![];
        if !self.dice.once_in(4) {
            let may_push = self.pusher == Pusher::Apply && self.table == 0;
            made.push(Instruction::ApplyActions(self.actions(may_push)));
        }
        if self.dice.once_in(6) {
            made.push(Instruction::ClearActions);
        }
        if self.dice.once_in(2) {
            let may_push = self.pusher == Pusher::Write && self.table == 0;
            self.in_set = true;
            let mut actions = self.actions(may_push);
            // Whether an action set that sends nothing counts a TTL down is nobody's to say; a packet-in would tell.
            if actions.iter().any(|action| matches!(action, Action::DecNwTtl | Action::DecMplsTtl)) {
                actions.push(self.output());
            }
            made.push(Instruction::WriteActions(actions));
        }
        if self.table + 1 < TABLES && !self.dice.once_in(3) {
            if self.dice.once_in(2) {
                let mask = self.dice.of(&[1, 3, 0xff00, u64::MAX]);
                let metadata = self.dice.of(&[1, 2, 3, 0x0300]) & mask;
                made.push(Instruction::WriteMetadata { metadata, mask });
            }
            let further = self.dice.below(u64::from(TABLES - self.table - 1)) as u8;
            made.push(Instruction::GotoTable(self.table + 1 + further));
        }
        made.retain(|one| !matches!(one, Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) if actions.is_empty()));
        made
    }

    fn actions(&mut self, may_push: bool) -> Vec<Action> {
        let mut made = vec![];
        if may_push && self.dice.once_in(2) {
            self.push(&mut made);
        }
        for _ in 0..self.dice.below(4) {
            match self.dice.below(8) {
                0..4 => self.set(&mut made),
                4 => self.time(&mut made),
                5 => self.pop(&mut made),
                6 => made.push(Action::Group(1 + self.dice.below(3) as u32)),
                _ => made.push(self.output()),
            }
        }
        if !self.dice.once_in(3) {
            made.push(self.output());
        }
        made
    }

    fn output(&mut self) -> Action {
        let port = match self.dice.below(12) {
            0 => PortNo::IN_PORT,
            1 => PortNo::ALL,
            2 => PortNo::FLOOD,
            3 => PortNo::CONTROLLER,
            _ => PortNo(1 + self.dice.below(u64::from(PORTS)) as u32),
        };
        let max_len = if port == PortNo::CONTROLLER { self.dice.of(&[64, 0xffff]) } else { 0 };
        Action::Output { port, max_len }
    }

    /// A tag in front, and all of its fields.
    fn push(&mut self, made: &mut Vec<Action>) {
        let set = |field, value| Action::SetField { field, value };
        let pcp = self.dice.below(8).into();
        match (self.eth_type, self.tag) {
            (Some(eth_type), Some(false)) if eth_type != 0x8847 && self.dice.once_in(2) => {
                made.push(Action::PushMpls(0x8847));
                self.is_new = true;
                made.push(set(Field::MplsLabel, self.dice.of(&[0, 17, 0xfffff])));
                made.push(set(Field::MplsTc, pcp));
                made.push(Action::SetMplsTtl(self.dice.of(&[2, 64])));
                self.inside(Some(0x8847));
            }
            _ => {
                made.push(Action::PushVlan(self.dice.of(&[0x8100, 0x88a8])));
                made.push(set(Field::VlanVid, Value::from(VLAN_PRESENT | self.dice.of(&[1, 7, 4094]))));
                made.push(set(Field::VlanPcp, pcp));
                self.tag = Some(true);
            }
        }
    }

    fn pop(&mut self, made: &mut Vec<Action>) {
        match (self.eth_type, self.bos) {
            // Open vSwitch 3.1 ends itself (recirc_alloc_id__) when an action set takes an MPLS entry off and goes on.
            (Some(0x8847), Some(_)) if self.in_set => {}
            (Some(0x8847), Some(1)) => {
                made.push(Action::PopMpls(0x800));
                self.inside(Some(0x800));
            }
            (Some(0x8847), Some(0)) => {
                made.push(Action::PopMpls(0x8847));
                self.inside(Some(0x8847));
            }
            _ if self.tag == Some(true) => {
                made.push(Action::PopVlan);
                self.tag = None;
            }
            _ => {}
        }
    }

    /// A TTL; counted down in the first table only, where no action set is waiting: a frame whose TTL is over is rejected
    /// (§5.12), and Open vSwitch still carries its action set out.
    fn time(&mut self, made: &mut Vec<Action>) {
        let ttl = self.dice.of(&[1, 2, 64, 255]);
        let sets = self.table > 0 || self.dice.once_in(3) || self.is_new;
        match self.eth_type {
            Some(0x800 | 0x86dd) => made.push(if sets { Action::SetNwTtl(ttl) } else { Action::DecNwTtl }),
            Some(0x8847) => made.push(if sets { Action::SetMplsTtl(ttl) } else { Action::DecMplsTtl }),
            _ => {}
        }
    }

    /// A field that frames here have, and that both can set.
    fn set(&mut self, made: &mut Vec<Action>) {
        let fields: Vec<Field> = TABLE
            .iter()
            .filter(|row| is_common(row.field) && row.settable && self.has(row.field))
            .map(|row| row.field)
            .collect();
        let field = self.dice.of(&fields);
        let full = field.full_mask();
        let value = match self.dice.below(4) {
            _ if field == Field::ArpOp => self.dice.of(&[1, 2]),
            _ if field == Field::VlanVid => Value::from(VLAN_PRESENT) | (self.dice.wide() & 0xfff),
            // All ones, and nothing but the last bit.
            0 => full,
            1 => 1,
            _ => self.dice.wide() & full,
        };
        made.push(Action::SetField { field, value });
    }

    fn has(&self, field: Field) -> bool {
        use flow::field::Prerequisite::*;
        // Types that say what follows are not Open vSwitch's to set; the end of a stack is set by nobody.
        if matches!(field, Field::EthType | Field::IpProto | Field::Icmpv6Type | Field::MplsBos) {
            return false;
        }
        let is_one = |known: Option<Value>, some: &[u16]| {
            known.is_some_and(|known| some.iter().any(|one| Value::from(*one) == known))
        };
        match field.row().prerequisite {
            // Open vSwitch sees neighbour discovery only with the code 0.
            _ if field == Field::Icmpv6Code && matches!(self.icmp6, Some(135 | 136)) => false,
            // The tag may be gone when the action set is carried out, and Open vSwitch makes a new one then.
            _ if self.in_set && matches!(field, Field::VlanVid | Field::VlanPcp) => false,
            _ if field == Field::VlanVid => self.tag == Some(true),
            None => true,
            InPort => false,
            VlanPresent => self.tag == Some(true),
            EthType(types) => is_one(self.eth_type, types),
            IpProto(proto, types) => is_one(self.eth_type, types) && is_one(self.proto, &[proto.into()]),
            Icmpv6Type(types) => {
                self.icmp6.is_some_and(|kind| types.iter().any(|one| Value::from(*one) == kind))
            }
        }
    }
}

/// A group; it may send to groups with higher numbers.
fn group(dice: &mut Dice, id: u32, pusher: Pusher) -> Group {
    let kind = dice.of(&[GroupType::All, GroupType::All, GroupType::Indirect, GroupType::FastFailover]);
    let count = if kind == GroupType::Indirect { 1 } else { dice.below(4) };
    let is_last = id == 3;
    let buckets = (0..count)
        .map(|_| {
            // Nothing is known of the frames that come to a group.
            let mut maker = Maker::new(dice, 0, pusher, &Match::all());
            let mut actions = vec![];
            if is_last && pusher == Pusher::Bucket {
                maker.push(&mut actions);
            }
            maker.set(&mut actions);
            actions.push(match maker.dice.below(4) {
                0 if !is_last => Action::Group(id + 1),
                _ => maker.output(),
            });
            let mut bucket = Bucket::new(actions);
            if kind == GroupType::FastFailover {
                bucket.watch_port = PortNo(1 + maker.dice.below(u64::from(PORTS)) as u32);
                bucket.watch_group = ANY_GROUP;
            }
            bucket
        })
        .collect();
    Group { id, kind, buckets }
}

/// A frame made to meet a rule, or to miss it by one bit.
fn given(dice: &mut Dice, mut frame: FrameBuf, rules: &[(u8, Rule)]) -> Given {
    let mut port = 1 + dice.below(u64::from(PORTS)) as u32;
    let (_, rule) = &rules[dice.below(rules.len() as u64) as usize];
    let fields = rule.matching.fields();
    // One frame in three is just as it is.
    if !fields.is_empty() && !dice.once_in(3) {
        let missed = dice.once_in(2).then(|| dice.below(fields.len() as u64) as usize);
        for (index, entry) in fields.iter().enumerate() {
            let free = dice.wide() & !entry.bits() & entry.field.full_mask();
            let free = if entry.field == Field::VlanVid { free & 0xfff } else { free };
            let mut value = entry.value | free;
            if missed == Some(index) {
                value ^= edge(dice, entry.bits());
            }
            match entry.field {
                Field::InPort => port = value as u32 % PORTS + 1,
                field => write(&mut frame, field, value),
            }
        }
    }
    Given { port, frame: frame.bytes().to_vec() }
}

/// One bit of a mask: often the lowest or the highest.
fn edge(dice: &mut Dice, mask: Value) -> Value {
    match dice.below(3) {
        _ if mask == 0 => 0,
        0 => 1 << mask.trailing_zeros(),
        1 => 1 << (127 - mask.leading_zeros()),
        _ => {
            let set: Vec<u32> = (0..128).filter(|bit| mask >> bit & 1 == 1).collect();
            1 << dice.of(&set)
        }
    }
}

/// Writes a field if the frame has it, and if it stays a frame of the same headers.
fn write(frame: &mut FrameBuf, field: Field, value: Value) {
    let keeps = match field {
        Field::EthType | Field::IpProto | Field::Icmpv6Type | Field::MplsBos => false,
        Field::VlanVid => value & Value::from(VLAN_PRESENT) != 0,
        Field::ArpOp => matches!(value, 1 | 2),
        // Open vSwitch sees neighbour discovery only with the code 0.
        Field::Icmpv6Code => get(frame, Field::NdTarget).is_none(),
        _ => get(frame, field).is_some(),
    };
    if keeps {
        let _ = frame.set(field, value);
    }
}

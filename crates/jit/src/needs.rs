//! What of a frame a pipeline looks at.
//!
//! **What.** [`Needs`]: which words of the key its tests ask, how deep headers are walked, how much edits may lengthen and shorten.
//!
//! **Why.** A pipeline of MAC addresses should not look at IP, and most pipelines never ask for neighbour discovery.
//!
//! **Price.** Edits of addresses walk to the transport, whose checksum follows.

use crate::ir::{Body, End, Ir, IrRule, Op};
use crate::key::{self, words};
use flow::action::Action;
use flow::field::Field;
use std::collections::BTreeMap;
use std::fmt;

/// How deep headers are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Depth {
    /// Ethernet and VLAN tags.
    #[default]
    Link,
    /// IP, ARP, MPLS, PBB.
    Network,
    /// TCP, UDP, SCTP, ICMP.
    Transport,
    /// Neighbour discovery.
    Neighbour,
}

/// What of a frame a pipeline looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// A bit for each word of the key.
    pub words: u16,
    /// How deep.
    pub depth: Depth,
    /// Bytes that pushes may put in front of one frame altogether.
    pub grows: usize,
    /// Outputs that one frame may ask for.
    pub outputs: usize,
}

impl Needs {
    /// Of a pipeline.
    pub fn of(ir: &Ir) -> Needs {
        let mut needs = Needs::default();
        for rule in ir.tables.iter().flat_map(|table| &table.rules) {
            for test in &rule.tests {
                needs.depth = needs.depth.max(depth(test.field));
            }
            for test in words(&rule.tests).unwrap_or_default() {
                needs.words |= 1 << test.word;
            }
        }
        for op in ir.bodies().flat_map(|body| &body.ops) {
            needs.depth = needs.depth.max(depth_of_edit(op));
        }
        if ir.exits_fragments {
            needs.depth = needs.depth.max(Depth::Network);
        }
        needs.grows = longest(ir, &growth);
        needs.outputs = longest(ir, &|body| body.ops.iter().filter(|op| matches!(op, Op::Output(_))).count());
        needs
    }

    /// Whether what a rule looks at is parsed.
    pub fn is_deep_enough(&self, rule: &IrRule) -> bool {
        let tests = rule.tests.iter().all(|test| depth(test.field) <= self.depth);
        let edits = rule.body.ops.iter().all(|op| depth_of_edit(op) <= self.depth);
        let words = words(&rule.tests).unwrap_or_default();
        tests && edits && words.iter().all(|test| self.asks(test.word))
    }

    /// Whether tests ask for a word.
    pub fn asks(&self, word: u8) -> bool {
        self.words >> word & 1 != 0
    }
}

fn depth(field: Field) -> Depth {
    let place = key::place(field);
    let asks = |bits: u64| {
        place.needs.iter().any(|(word, mask, _)| *word == 0 && mask & bits & !(0xffff << 32) != 0)
    };
    match () {
        () if asks(key::ND | key::LINK) => Depth::Neighbour,
        () if asks(key::TCP) => Depth::Transport,
        () if asks(key::MPLS | key::PBB | key::ARP | key::ARP_OP | key::IP) => Depth::Network,
        () => Depth::Link,
    }
}

fn depth_of_edit(op: &Op) -> Depth {
    match op {
        Op::Edit(Action::SetField { field, .. }) if depth(*field) > Depth::Link => Depth::Transport,
        Op::Edit(Action::DecNwTtl) => Depth::Network,
        _ => Depth::Link,
    }
}

/// Bytes that a body puts in front.
pub(crate) fn growth(body: &Body) -> usize {
    body.ops.iter().map(growth_of_op).sum()
}

fn growth_of_op(op: &Op) -> usize {
    match op {
        Op::Edit(Action::PushVlan(_) | Action::PushMpls(_)) => 4,
        Op::Edit(Action::PushPbb(_)) => 18,
        _ => 0,
    }
}

/// The largest sum over the bodies of one path.
fn longest(ir: &Ir, of: &dyn Fn(&Body) -> usize) -> usize {
    let sets = ir.sets.iter().map(of).max().unwrap_or(0);
    let mut tables: BTreeMap<u8, usize> = BTreeMap::new();
    for table in ir.tables.iter().rev() {
        let behind = |end: End| match end {
            End::Goto(next) => tables.get(&next).copied().unwrap_or(0),
            End::Finish => sets,
            End::Done | End::Exit(_) => 0,
        };
        let most = table.rules.iter().map(|rule| of(&rule.body) + behind(rule.body.end)).max();
        tables.insert(table.number, most.unwrap_or(0));
    }
    tables.get(&0).copied().unwrap_or(0)
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "summary",
            "ports",
            "network",
            "eth_dst",
            "eth_src",
            "metadata",
            "ipv6_src",
            "ipv6_src'",
            "ipv6_dst",
            "ipv6_dst'",
            "ipv6_rest",
            "nd_target",
            "nd_target'",
            "nd_link",
            "tunnel_id",
            "in_phy_port",
        ];
        let asked: Vec<&str> =
            (0..).zip(names).filter(|(word, _)| self.asks(*word)).map(|(_, name)| name).collect();
        let depth = match self.depth {
            Depth::Link => "Ethernet and VLAN",
            Depth::Network => "up to IP, ARP, MPLS",
            Depth::Transport => "up to the transport",
            Depth::Neighbour => "up to neighbour discovery",
        };
        write!(
            f,
            "parse {depth}; words: {}",
            if asked.is_empty() { "none".to_owned() } else { asked.join(" ") }
        )
    }
}

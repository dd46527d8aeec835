//! Rule sets in the shape of ClassBench: access lists, firewalls, chains of IP tables.
//!
//! **What.** [`rules`] draws five-tuples from distributions of prefix lengths, protocols and port classes that are those of ClassBench's three
//! families in outline (Taylor and Turner, IEEE/ACM ToN 2007): `acl` has exact destinations and few source ports, `fw` has wildcards in
//! both addresses, `ipc` is a mixture of all. Addresses come from few networks, so that prefixes nest.
//!
//! **Why.** The original generator is C with seed files under terms of its own; its published shapes are what matters here.
//!
//! **Price.** Not those very sets: figures compare with others' by order of magnitude only. Ranges of ports become prefixes of ports, as OpenFlow
//! has no ranges, so a set can have more rules than five-tuples; it is cut at the number that was asked for.

use flow::action::{Action, Instruction};
use flow::matching::MatchField;
use flow::rule::Rule;
use flow::{Field, Match, PortNo};
use std::cmp::Reverse;
use std::collections::HashSet;

/// A small generator of random numbers (SplitMix64), so that a seed means the same everywhere.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below this one.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// One of these values, by weight.
    fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in choices {
            if left < *weight {
                return *value;
            }
            left -= weight;
        }
        choices[0].1
    }
}

/// All bits of the one reach all bits of the other.
pub fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A family of rule sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Access lists.
    Acl,
    /// Firewalls.
    Fw,
    /// Chains of IP tables.
    Ipc,
}

/// Lengths of prefixes, by weight.
type Lengths = &'static [(u64, u32)];
/// Classes of ports: any, above 1023, a range, one; by weight.
type Ports = &'static [(u64, PortClass)];

#[derive(Debug, Clone, Copy)]
enum PortClass {
    Any,
    High,
    Range,
    One,
}

struct Shape {
    src: Lengths,
    dst: Lengths,
    src_port: Ports,
    dst_port: Ports,
    /// TCP, UDP, any.
    protocols: &'static [(u64, Option<u8>)],
}

use PortClass::{Any, High, One, Range};

const ACL: Shape = Shape {
    src: &[(25, 0), (10, 16), (15, 24), (10, 28), (40, 32)],
    dst: &[(2, 0), (8, 16), (25, 24), (15, 28), (50, 32)],
    src_port: &[(97, Any), (2, High), (1, One)],
    dst_port: &[(22, Any), (3, High), (15, Range), (60, One)],
    protocols: &[(70, Some(6)), (22, Some(17)), (8, None)],
};
const FW: Shape = Shape {
    src: &[(35, 0), (15, 16), (20, 24), (30, 32)],
    dst: &[(30, 0), (10, 16), (25, 24), (35, 32)],
    src_port: &[(70, Any), (10, High), (8, Range), (12, One)],
    dst_port: &[(30, Any), (10, High), (20, Range), (40, One)],
    protocols: &[(60, Some(6)), (30, Some(17)), (10, None)],
};
const IPC: Shape = Shape {
    src: &[(15, 0), (15, 16), (30, 24), (40, 32)],
    dst: &[(10, 0), (15, 16), (30, 24), (45, 32)],
    src_port: &[(80, Any), (5, High), (5, Range), (10, One)],
    dst_port: &[(40, Any), (5, High), (10, Range), (45, One)],
    protocols: &[(60, Some(6)), (25, Some(17)), (15, None)],
};

/// So many rules of a family, the first one of the highest priority; an address list has its last rule for all frames.
pub fn rules(family: Family, count: usize, seed: u64) -> Vec<Rule> {
    let shape = match family {
        Family::Acl => &ACL,
        Family::Fw => &FW,
        Family::Ipc => &IPC,
    };
    let Some(listed) = count.checked_sub(1) else { return vec![] };
    let mut random = Random(seed);
    let mut made: Vec<Vec<MatchField>> = vec![];
    let mut seen: HashSet<Vec<MatchField>> = HashSet::new();
    while made.len() < listed {
        made.extend(tuple(shape, &mut random).into_iter().filter(|fields| seen.insert(fields.clone())));
    }
    made.truncate(listed);
    made.sort_by_key(|fields| Reverse(bits(fields)));
    let ranked = made.into_iter().enumerate().map(|(place, matching)| {
        let priority = 60_000 - (place * 59_000 / count) as u16;
        rule(priority, matching, 2 + random.below(3) as u32)
    });
    ranked.chain([Rule::new(0, Match::all(), vec![])]).collect()
}

/// Bits that a match asks.
fn bits(fields: &[MatchField]) -> u32 {
    fields.iter().map(|field| field.bits().count_ones()).sum()
}

/// A rule that sends to a port.
pub fn rule(priority: u16, fields: Vec<MatchField>, port: u32) -> Rule {
    let output = Action::Output { port: PortNo(port), max_len: 0 };
    let matching = Match::new(fields).unwrap_or_default();
    Rule::new(priority, matching, vec![Instruction::ApplyActions(vec![output])])
}

/// The matches of one five-tuple.
fn tuple(shape: &Shape, random: &mut Random) -> Vec<Vec<MatchField>> {
    let mut fields = vec![MatchField::exact(Field::EthType, 0x800u16)];
    let protocol = random.weighted(shape.protocols);
    fields.extend(protocol.map(|protocol| MatchField::exact(Field::IpProto, protocol)));
    fields.extend(prefix(Field::Ipv4Src, random.weighted(shape.src), random));
    fields.extend(prefix(Field::Ipv4Dst, random.weighted(shape.dst), random));
    let Some(protocol) = protocol else { return vec![fields] };
    let (src, dst) =
        if protocol == 6 { (Field::TcpSrc, Field::TcpDst) } else { (Field::UdpSrc, Field::UdpDst) };
    let sources = ports(random.weighted(shape.src_port), random);
    let targets = ports(random.weighted(shape.dst_port), random);
    let with = |source: &(u16, u16), target: &(u16, u16)| {
        let ports = [(src, source), (dst, target)];
        let ports = ports.iter().filter(|(_, (_, mask))| *mask != 0);
        let ports = ports.map(|(field, (value, mask))| MatchField::masked(*field, *value, *mask));
        fields.iter().copied().chain(ports).collect()
    };
    sources.iter().flat_map(|source| targets.iter().map(move |target| with(source, target))).collect()
}

/// A prefix of one of few networks; none of length 0.
fn prefix(field: Field, length: u32, random: &mut Random) -> Option<MatchField> {
    let network = [10u64, 10, 172, 192, 192, 8][random.below(6) as usize] << 24;
    let address = network | random.below(8) << 16 | random.below(32) << 11 | random.below(1 << 11);
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    (length > 0).then(|| MatchField::masked(field, address as u32 & mask, mask))
}

/// Values and masks of a class of ports.
fn ports(class: PortClass, random: &mut Random) -> Vec<(u16, u16)> {
    const KNOWN: [u16; 12] = [20, 21, 22, 23, 25, 53, 80, 110, 123, 443, 1521, 8080];
    match class {
        Any => vec![(0, 0)],
        High => prefixes(1024, 65535),
        Range => {
            let from = random.below(60_000) as u16;
            prefixes(from, from + random.below(200) as u16)
        }
        One if random.below(3) > 0 => vec![(KNOWN[random.below(12) as usize], 0xffff)],
        One => vec![(random.below(10_000) as u16, 0xffff)],
    }
}

/// A range of ports as prefixes, the usual way.
fn prefixes(from: u16, to: u16) -> Vec<(u16, u16)> {
    let (mut at, end) = (u32::from(from), u32::from(to) + 1);
    let mut made = vec![];
    while at < end {
        let aligned = if at == 0 { 16 } else { at.trailing_zeros() };
        let size = 1u32 << aligned.min((end - at).ilog2());
        made.push((at as u16, !(size - 1) as u16));
        at += size;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_covered_exactly_once() {
        for (from, to) in [(0, 65535), (1024, 65535), (7, 7), (5, 1000), (60_000, 60_199)] {
            let covered =
                |port: u16| prefixes(from, to).iter().filter(|(value, mask)| port & mask == *value).count();
            assert!((0..=u16::MAX).all(|port| covered(port) == usize::from((from..=to).contains(&port))));
        }
    }

    #[test]
    fn a_set_has_the_size_that_was_asked_for_and_is_the_same_for_a_seed() {
        for family in [Family::Acl, Family::Fw, Family::Ipc] {
            let set = rules(family, 1000, 7);
            assert_eq!((set.len(), &set), (1000, &rules(family, 1000, 7)));
            assert!(set[..999].iter().all(|rule| rule.matching.get(Field::EthType).is_some()));
        }
    }
}

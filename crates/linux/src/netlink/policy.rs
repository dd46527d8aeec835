//! Policy rules: which table a datagram's route is looked up in.

use std::fmt;

use netlink_bindings::rt_rule;

use super::address::Prefix;
use super::route::{LOCAL_TABLE, MAIN_TABLE, RouteType};
use super::{Answer, Netlink};

/// `FR_ACT_TO_TBL` (`fib_rules.h`).
const TO_TABLE: u8 = 1;
/// The rules of every namespace: priority and table (`fib_default_rules_init`, `fib6_rules_net_init`).
const OF_THE_KERNEL: [(u32, u32); 3] = [(0, LOCAL_TABLE), (32766, MAIN_TABLE), (32767, 253)];

/// A mark of the kernel's firewall or of a socket: the bits that are looked at, and their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The values.
    pub value: u32,
    /// The bits.
    pub mask: u32,
}

/// What a rule does with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyAction {
    /// Looks its route up in the table of this number; goes on with the next rule when there is none.
    Table(u32),
    /// Refuses it.
    Refuse(RouteType),
}

/// A policy rule. What is not said holds for everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// Source address.
    pub from: Option<Prefix>,
    /// Destination address.
    pub to: Option<Prefix>,
    /// Interface that it came in by; `lo` for what the node itself sends.
    pub iif: Option<String>,
    /// Mark.
    pub fwmark: Option<Mark>,
    /// What is done.
    pub action: PolicyAction,
    /// Its place: rules are tried from the smallest on.
    pub priority: u32,
}

impl PolicyRule {
    /// The version of IP of its addresses (4 or 6); none: it has none and can be a rule of either.
    pub fn version(&self) -> Option<u8> {
        self.from.or(self.to).map(Prefix::version)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.value)?;
        if self.mask == u32::MAX { Ok(()) } else { write!(f, "/{:#x}", self.mask) }
    }
}

impl fmt::Display for PolicyRule {
    /// As a topology says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said =
            |word: &str, value: Option<&dyn fmt::Display>| value.map(|value| format!("{word} {value} "));
        let words = [
            said("from", self.from.as_ref().map(|it| it as _)),
            said("to", self.to.as_ref().map(|it| it as _)),
            said("iif", self.iif.as_ref().map(|it| it as _)),
            said("fwmark", self.fwmark.as_ref().map(|it| it as _)),
        ];
        f.write_str(&words.into_iter().flatten().collect::<String>())?;
        match self.action {
            PolicyAction::Table(MAIN_TABLE) => write!(f, "table main")?,
            PolicyAction::Table(table) => write!(f, "table {table}")?,
            PolicyAction::Refuse(kind) => f.write_str(kind.word())?,
        }
        write!(f, " priority {}", self.priority)
    }
}

impl Netlink {
    /// Adds a policy rule of a version of IP (4 or 6).
    pub fn add_policy(&mut self, version: u8, rule: &PolicyRule) -> Answer {
        let length = |prefix: Option<Prefix>| prefix.map_or(0, |prefix| prefix.length);
        let (action, table) = match rule.action {
            PolicyAction::Table(table) => (TO_TABLE, Some(table)),
            PolicyAction::Refuse(kind) => (kind.number(), None),
        };
        let header = rt_rule::FibRuleHdr {
            family: family_of(version),
            src_len: length(rule.from),
            dst_len: length(rule.to),
            action,
            ..Default::default()
        };
        let mut request = rt_rule::Request::new().set_create().set_excl().op_newrule_do(&header);
        let mut attributes = request.encode().push_priority(rule.priority).push_protocol(libc::RTPROT_STATIC);
        attributes = rule.from.iter().fold(attributes, |to, prefix| to.push_src(prefix.address));
        attributes = rule.to.iter().fold(attributes, |to, prefix| to.push_dst(prefix.address));
        attributes = rule.iif.iter().fold(attributes, |to, name| to.push_iifname_bytes(name.as_bytes()));
        attributes = table.iter().fold(attributes, |to, table| to.push_table(*table));
        let mark =
            |to: rt_rule::PushFibRuleAttrs<_>, mark: &Mark| to.push_fwmark(mark.value).push_fwmask(mark.mask);
        drop(rule.fwmark.iter().fold(attributes, mark));
        self.acknowledged(&request)
    }

    /// Every policy rule, with its version of IP, but for those that every namespace has.
    pub fn policies(&mut self) -> Answer<Vec<(u8, PolicyRule)>> {
        let mut rules = vec![];
        for version in [4, 6] {
            let header = rt_rule::FibRuleHdr { family: family_of(version), ..Default::default() };
            let request = rt_rule::Request::new().op_getrule_dump(&header);
            rules.extend(self.replies(&request, |(header, attributes)| {
                let rule = policy(&header, &attributes)?;
                let plain = rule.version().is_none() && rule.iif.is_none() && rule.fwmark.is_none();
                let table = if let PolicyAction::Table(table) = rule.action { table } else { 0 };
                let own = plain && OF_THE_KERNEL.contains(&(rule.priority, table));
                (!own).then_some((version, rule))
            })?);
        }
        Ok(rules)
    }
}

fn family_of(version: u8) -> u8 {
    (if version == 4 { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// One reply to a dump of rules; none for an action that a topology cannot say.
fn policy(
    header: &rt_rule::FibRuleHdr,
    attributes: &rt_rule::IterableFibRuleAttrs<'_>,
) -> Option<PolicyRule> {
    let action = match header.action {
        TO_TABLE => PolicyAction::Table(attributes.get_table().unwrap_or(u32::from(header.table))),
        other => PolicyAction::Refuse(RouteType::of(other)?),
    };
    let mark = |value| Mark { value, mask: attributes.get_fwmask().unwrap_or(u32::MAX) };
    Some(PolicyRule {
        from: attributes.get_src().ok().map(|address| Prefix { address, length: header.src_len }),
        to: attributes.get_dst().ok().map(|address| Prefix { address, length: header.dst_len }),
        iif: attributes.get_iifname().ok().map(|name| name.to_string_lossy().into_owned()),
        fwmark: attributes.get_fwmark().ok().map(mark),
        action,
        priority: attributes.get_priority().unwrap_or(0),
    })
}

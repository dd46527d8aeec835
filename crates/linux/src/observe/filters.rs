//! Netfilter rules that may drop: nftables chains and rules (`NFNL_SUBSYS_NFTABLES`).
//!
//! **What.** For every chain that traffic can reach from a hook: whether its policy or one of its rules drops or
//! rejects, and the frames that `counter` expressions of such rules have counted. A chain without a hook of its own is
//! reported under every hook that jumps to it.
//!
//! **What is not seen.** Rules of the old iptables interface, verdicts that come out of maps, and filters attached with
//! tc or XDP. `iptables-nft` is seen: it writes nftables rules, partly as `target` expressions.

use std::collections::BTreeSet;
use std::ffi::CStr;

use netlink_bindings::nftables::{self, ExprOps, IterableExprAttrs};
use netlink_bindings::traits::NetlinkRequest;
use record::snapshot::FilterSample;

use crate::netlink::{Dump, Family};

/// `NFT_MSG_GETCHAIN` with `struct nfgenmsg`, all zero: every family.
pub const CHAINS: Dump<'static> =
    Dump { family: Family::Netfilter, kind: 10 << 8 | 4, body: &[0; HEADER_BYTES] };
/// `NFT_MSG_GETRULE`, the same.
pub const RULES: Dump<'static> =
    Dump { family: Family::Netfilter, kind: 10 << 8 | 7, body: &[0; HEADER_BYTES] };

const HEADER_BYTES: usize = 4;

const NF_DROP: u32 = 0;

/// Family, table and name of a chain.
type ChainName = (u8, String, String);

/// A chain as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    name: ChainName,
    hook: Option<u32>,
    drop_policy: bool,
}

/// A rule as it was read: what matters of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    chain: ChainName,
    drops: bool,
    counted: Option<u64>,
    jumps: Vec<ChainName>,
}

/// Decodes one reply to [`CHAINS`].
pub fn parse_chain(message: &[u8]) -> Option<Chain> {
    let (header, attributes) = nftables::OpGetchainDump::decode_reply(message);
    let hook = attributes.get_hook().and_then(|hook| hook.get_num()).ok();
    Some(Chain {
        name: (header.nfgen_family, text(attributes.get_table().ok()?), text(attributes.get_name().ok()?)),
        hook,
        drop_policy: hook.is_some() && attributes.get_policy().ok() == Some(NF_DROP),
    })
}

/// Decodes one reply to [`RULES`].
pub fn parse_rule(message: &[u8]) -> Option<Rule> {
    let (header, attributes) = nftables::OpGetruleDump::decode_reply(message);
    let chain = (header.nfgen_family, text(attributes.get_table().ok()?), text(attributes.get_chain().ok()?));
    let mut rule = Rule { chain, ..Rule::default() };
    if let Ok(expressions) = attributes.get_expressions() {
        for element in expressions.get_elem() {
            expression(&element, &mut rule);
        }
    }
    Some(rule)
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

fn expression(element: &IterableExprAttrs<'_>, rule: &mut Rule) -> Option<()> {
    rule.drops |= element.get_name().ok()? == c"reject";
    match element.get_data().ok()? {
        ExprOps::Target(target) => rule.drops |= [c"DROP", c"REJECT"].contains(&target.get_name().ok()?),
        ExprOps::Counter(counter) => {
            let packets = counter.get_packets().ok()?;
            rule.counted = Some(rule.counted.unwrap_or(0).saturating_add(packets));
        }
        ExprOps::Immediate(immediate) => {
            let verdict = immediate.get_data().ok()?.get_verdict().ok()?;
            rule.drops |= verdict.get_code().ok()? == NF_DROP;
            let (family, table, _) = rule.chain.clone();
            rule.jumps.extend(verdict.get_chain().ok().map(|name| (family, table, text(name))));
        }
        _ => {}
    }
    Some(())
}

/// One entry for each chain at each hook that reaches it.
pub fn samples(chains: &[Chain], rules: &[Rule]) -> Vec<FilterSample> {
    let mut samples = Vec::new();
    for base in chains {
        let Some(hook) = base.hook else { continue };
        for name in reached(&base.name, rules) {
            let drop_policy = chains.iter().any(|chain| chain.name == name && chain.drop_policy);
            samples.push(sample(hook, drop_policy, &name, rules));
        }
    }
    samples
}

/// The chain itself and every chain that its rules jump to, however far.
fn reached(base: &ChainName, rules: &[Rule]) -> BTreeSet<ChainName> {
    let mut reached = BTreeSet::from([base.clone()]);
    let mut todo = vec![base];
    while let Some(name) = todo.pop() {
        let targets = rules.iter().filter(|rule| rule.chain == *name).flat_map(|rule| &rule.jumps);
        todo.extend(targets.filter(|target| reached.insert((*target).clone())));
    }
    reached
}

fn sample(hook: u32, drop_policy: bool, chain: &ChainName, rules: &[Rule]) -> FilterSample {
    let dropping: Vec<_> = rules.iter().filter(|rule| rule.chain == *chain && rule.drops).collect();
    let counted = dropping.iter().filter_map(|rule| rule.counted).reduce(u64::saturating_add);
    let (family, table, name) = chain;
    FilterSample {
        family: family_name(*family).to_owned(),
        hook: hook_name(*family, hook).to_owned(),
        chain: format!("{table}/{name}"),
        drops: drop_policy || !dropping.is_empty(),
        counted,
    }
}

fn family_name(family: u8) -> &'static str {
    match family {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "unknown",
    }
}

fn hook_name(family: u8, hook: u32) -> &'static str {
    match (family_name(family), hook) {
        ("netdev", 0) | ("inet", 5) => "ingress",
        ("netdev", 1) => "egress",
        ("arp", 0) | (_, 1) => "input",
        (_, 0) => "prerouting",
        (_, 2) => "forward",
        (_, 3) => "output",
        (_, 4) => "postrouting",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    // include/uapi/linux/netfilter/nf_tables.h
    const TABLE: u16 = 1; // NFTA_CHAIN_TABLE, NFTA_RULE_TABLE
    const CHAIN_NAME: u16 = 3;
    const CHAIN_HOOK: u16 = 4;
    const CHAIN_POLICY: u16 = 5;
    const HOOK_NUMBER: u16 = 1;
    const RULE_CHAIN: u16 = 2;
    const RULE_EXPRESSIONS: u16 = 4;
    const LIST_ELEMENT: u16 = 1;
    const EXPRESSION_NAME: u16 = 1;
    const EXPRESSION_DATA: u16 = 2;
    const IMMEDIATE_DATA: u16 = 2;
    const DATA_VERDICT: u16 = 2;
    const VERDICT_CODE: u16 = 1;
    const VERDICT_CHAIN: u16 = 2;
    const COUNTER_PACKETS: u16 = 2;

    fn chain_message(name: &[u8], hook: Option<u32>, policy: u32) -> Vec<u8> {
        let mut parts = vec![vec![2, 0, 0, 0], attribute(TABLE, b"t\0"), attribute(CHAIN_NAME, name)];
        if let Some(hook) = hook {
            parts.push(attribute(CHAIN_HOOK | 0x8000, &attribute(HOOK_NUMBER, &hook.to_be_bytes())));
            parts.push(attribute(CHAIN_POLICY, &policy.to_be_bytes()));
        }
        parts.concat()
    }

    fn expression_bytes(name: &[u8], data: &[u8]) -> Vec<u8> {
        attribute(
            LIST_ELEMENT,
            &join(&[&attribute(EXPRESSION_NAME, name), &attribute(EXPRESSION_DATA, data)]),
        )
    }

    fn verdict(code: i32, chain: Option<&[u8]>) -> Vec<u8> {
        let mut inner = attribute(VERDICT_CODE, &code.to_be_bytes());
        inner.extend(chain.map(|chain| attribute(VERDICT_CHAIN, chain)).unwrap_or_default());
        expression_bytes(b"immediate\0", &attribute(IMMEDIATE_DATA, &attribute(DATA_VERDICT, &inner)))
    }

    fn rule_message(chain: &[u8], expressions: &[Vec<u8>]) -> Vec<u8> {
        let list = attribute(RULE_EXPRESSIONS, &expressions.concat());
        join(&[&[2, 0, 0, 0], &attribute(TABLE, b"t\0"), &attribute(RULE_CHAIN, chain), &list])
    }

    fn counter(packets: u64) -> Vec<u8> {
        expression_bytes(b"counter\0", &attribute(COUNTER_PACKETS, &packets.to_be_bytes()))
    }

    #[test]
    fn a_dropping_rule_counts_also_behind_a_jump() {
        const JUMP: i32 = -3;
        let chains: Vec<_> = [chain_message(b"in\0", Some(1), 1), chain_message(b"sub\0", None, 1)]
            .iter()
            .map(|message| parse_chain(message).expect("well formed"))
            .collect();
        let rules: Vec<_> = [
            rule_message(b"in\0", &[counter(9), verdict(JUMP, Some(b"sub\0"))]),
            rule_message(b"sub\0", &[counter(4), verdict(0, None)]),
            rule_message(b"sub\0", &[counter(2), expression_bytes(b"reject\0", &[])]),
        ]
        .iter()
        .map(|message| parse_rule(message).expect("well formed"))
        .collect();
        let found = samples(&chains, &rules);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].chain.as_str(), found[0].drops, found[0].counted), ("t/in", false, None));
        assert_eq!((found[1].chain.as_str(), found[1].hook.as_str()), ("t/sub", "input"));
        assert_eq!((found[1].drops, found[1].counted, found[1].family.as_str()), (true, Some(6), "ip"));
    }

    #[test]
    fn a_drop_policy_drops_and_loops_end() {
        let chain = parse_chain(&chain_message(b"fw\0", Some(2), 0)).expect("well formed");
        let round = parse_rule(&rule_message(b"fw\0", &[verdict(-3, Some(b"fw\0"))])).expect("well formed");
        let found = samples(&[chain], &[round]);
        assert_eq!((found.len(), found[0].drops, found[0].hook.as_str()), (1, true, "forward"));
    }

    proptest! {
        #[test]
        fn damage_never_panics(cut in 0usize..200, at in 0usize..200, byte: u8) {
            for mut bytes in [chain_message(b"in\0", Some(1), 0), rule_message(b"in\0", &[counter(1), verdict(0, None)])] {
                if let Some(place) = bytes.get_mut(at) { *place = byte; }
                bytes.truncate(cut);
                let (chain, rule) = (parse_chain(&bytes), parse_rule(&bytes));
                let _ = samples(chain.as_slice(), rule.as_slice());
            }
        }
    }
}

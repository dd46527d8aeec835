//! The statements about where datagrams go: `route`, `policy`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use record::Result;
use record::line::Word;

use super::super::topology::{
    Mark, NextHop, PolicyAction, PolicyRule, PolicySpec, Prefix, RouteAction, RouteSpec, RouteType,
    StaticRoute,
};
use super::{Line, Reader};
use crate::netlink::{LOCAL_TABLE, MAIN_TABLE};

/// Weights that the kernel can keep (`rtnh_hops`, one byte, is one less).
const WEIGHT: RangeInclusive<u32> = 1..=256;
/// Before the rule that looks in the main table (32766).
const PRIORITY: RangeInclusive<u32> = 1..=32765;

/// A policy rule while it is read.
#[derive(Default)]
struct Draft {
    from: Option<Prefix>,
    to: Option<Prefix>,
    iif: Option<String>,
    fwmark: Option<Mark>,
    action: Option<PolicyAction>,
    priority: Option<u32>,
}

impl<'a> Line<'a> {
    /// The next word, if it is this one.
    fn takes(&mut self, keyword: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == keyword);
        self.next += usize::from(found);
        found
    }

    /// What follows `table`.
    fn table(&mut self) -> Result<u32> {
        let word = self.want("the table's number")?;
        let number = if word.text == "main" { Some(MAIN_TABLE) } else { word.text.parse().ok() };
        let what = format!("'{}' is not the number of a table", word.text);
        let sound = number.filter(|table| *table > 0 && !word.text.starts_with('+'));
        let table = self.meaning(sound, word, what, "write 'main', or a number from 1 to 4294967295")?;
        let own = "the kernel keeps a node's own addresses in table 255";
        self.refuse_if(table == LOCAL_TABLE, word, own, "use another number")?;
        Ok(table)
    }

    /// A network: an address with nothing set after the prefix.
    fn network(&self, word: Word) -> Result<Prefix> {
        let prefix = self.prefix(word)?;
        let right = prefix.whole();
        let what = format!("'{}' is an address and not a network", word.text);
        self.refuse_if(prefix != right, word, what, &format!("write {right}"))?;
        Ok(prefix)
    }
}

impl Line<'_> {
    /// `VALUE[/MASK]`, decimal or hexadecimal.
    fn mark(&mut self) -> Result<Mark> {
        let word = self.want("the mark")?;
        let (value, mask) = word.text.split_once('/').unwrap_or((word.text, "0xffffffff"));
        let number = |text: &str| match text.strip_prefix("0x") {
            _ if text.contains('+') => None,
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let mark = number(value).zip(number(mask)).map(|(value, mask)| Mark { value, mask });
        let sound = mark.filter(|mark| mark.mask != 0 && mark.value & !mark.mask == 0);
        let what = format!("'{}' is not a mark", word.text);
        self.meaning(sound, word, what, "write for example 7 or 0x10/0xff, without bits outside the mask")
    }
}

impl Reader {
    /// `policy on NODE [from PREFIX] [to PREFIX] [iif IF] [fwmark MARK] table N|blackhole|unreachable|prohibit priority N`.
    pub(super) fn policy(&mut self, line: &mut Line) -> Result<()> {
        let node = self.on_node(line)?;
        let about = line.line.words[0];
        let (mut draft, mut said) = (Draft::default(), vec![]);
        while let Some(word) = line.take() {
            let twice = said.contains(&word.text);
            line.refuse_if(twice, word, format!("'{}' is said twice", word.text), "")?;
            said.push(word.text);
            self.policy_word(line, node, word, &mut draft)?;
        }
        let action = draft.action.ok_or_else(|| line.problem(about, "the policy says nothing to do"));
        let action = action.map_err(|problem| problem.help("end it with 'table N priority N'"))?;
        let help = "rules are tried from the smallest on; write for example 'priority 1000'";
        let priority = line.meaning(draft.priority, about, "the policy has no priority", help)?;
        let Draft { from, to, iif, fwmark, .. } = draft;
        let rule = PolicyRule { from, to, iif, fwmark, action, priority };
        let mixed = from.zip(to).is_some_and(|(from, to)| from.address.is_ipv4() != to.address.is_ipv4());
        line.refuse_if(
            mixed,
            about,
            "'from' and 'to' are of different versions of IP",
            "write two policies",
        )?;
        let beside = |known: &&PolicySpec| known.node == node && known.rule.priority == priority;
        let same =
            self.topology.policies.iter().filter(beside).any(|known| {
                known.rule.version().zip(rule.version()).is_none_or(|(known, own)| known == own)
            });
        let what = format!("node '{node}' already has a policy with priority {priority}");
        line.refuse_if(
            same,
            about,
            what,
            "which of them is tried first would be chance; give it another one",
        )?;
        self.topology.policies.push(PolicySpec { node: node.into(), rule });
        Ok(())
    }

    /// One word of a policy with what follows it.
    fn policy_word(&self, line: &mut Line, node: &str, word: Word, draft: &mut Draft) -> Result<()> {
        match word.text {
            "from" => draft.from = Some(line.want("the source").and_then(|word| line.network(word))?),
            "to" => draft.to = Some(line.want("the destination").and_then(|word| line.network(word))?),
            "iif" => draft.iif = Some(self.came_in_by(line, node)?),
            "fwmark" => draft.fwmark = Some(line.mark()?),
            "priority" => draft.priority = line.number("the priority", PRIORITY)?,
            text => {
                let kind = RouteType::ALL.into_iter().find(|kind| kind.word() == text);
                let what = format!("unknown word '{text}' in a policy");
                let help =
                    "the words are from, to, iif, fwmark, table, blackhole, unreachable, prohibit, priority";
                line.refuse_if(kind.is_none() && text != "table", word, what, help)?;
                let second = draft.action.is_some();
                line.refuse_if(second, word, "the policy says two things to do", "write two policies")?;
                draft.action = Some(match kind {
                    Some(kind) => PolicyAction::Refuse(kind),
                    None => PolicyAction::Table(line.table()?),
                });
            }
        }
        Ok(())
    }

    /// An interface of the node, or `lo`.
    fn came_in_by(&self, line: &mut Line, node: &str) -> Result<String> {
        let word = line.want("the interface")?;
        let names: Vec<&str> = self.topology.interfaces(node).map(|known| known.name.as_str()).collect();
        let unknown = word.text != "lo" && !names.contains(&word.text);
        let what = format!("node '{node}' has no interface '{}'", word.text);
        let help = format!("its interfaces are {}; 'lo' is what the node itself sends", names.join(", "));
        line.refuse_if(unknown, word, what, &help)?;
        Ok(word.text.into())
    }

    /// `route on NODE TO via ADDRESS [weight N] … [table N]`, `route on NODE TO blackhole|unreachable|prohibit [table N]`.
    pub(super) fn route(&mut self, line: &mut Line) -> Result<()> {
        let node = self.on_node(line)?;
        let to = line.want("the network or 'default'")?;
        let (prefix, action) = self.route_action(line, node, to)?;
        let table = if line.takes("table") { line.table()? } else { MAIN_TABLE };
        let route = StaticRoute { to: prefix, table, action };
        let same =
            |known: &RouteSpec| known.node == node && known.route.to == prefix && known.route.table == table;
        let again = self.topology.routes.iter().any(same);
        let help = "name all its next hops in one line: 'via ADDRESS via ADDRESS'";
        line.refuse_if(again, to, format!("node '{node}' already has a route to {}", to.text), help)?;
        self.topology.routes.push(RouteSpec { node: node.into(), route });
        Ok(())
    }

    /// Where to, and what the route does there.
    fn route_action(&self, line: &mut Line, node: &str, to: Word) -> Result<(Prefix, RouteAction)> {
        let types = RouteType::ALL.map(RouteType::word).join(", ");
        let word = line.want("'via'")?;
        let what = format!("expected 'via', found '{}'", word.text);
        let kind = RouteType::ALL.into_iter().find(|kind| kind.word() == word.text);
        line.refuse_if(kind.is_none() && word.text != "via", word, what, &format!("or one of {types}"))?;
        let Some(kind) = kind else {
            let hops = self.next_hops(line, node, to)?;
            let everything = Prefix { address: hops[0].via, length: 0 }.whole();
            let prefix = if to.text == "default" { everything } else { line.network(to)? };
            return Ok((prefix, RouteAction::Via(hops)));
        };
        let help = "write 0.0.0.0/0 or ::/0";
        line.refuse_if(to.text == "default", to, "'default' does not say which version of IP", help)?;
        Ok((line.network(to)?, RouteAction::Refuse(kind)))
    }

    /// `ADDRESS [weight N] { via ADDRESS [weight N] }`.
    fn next_hops(&self, line: &mut Line, node: &str, to: Word) -> Result<Vec<NextHop>> {
        let mut hops: Vec<NextHop> = vec![];
        while hops.is_empty() || line.takes("via") {
            let word = line.want("the next node's address")?;
            let via = self.neighbour(line, word, node, to, hops.first())?;
            let twice = hops.iter().any(|hop| hop.via == via);
            line.refuse_if(twice, word, format!("{via} is said twice"), "give it a larger weight")?;
            let weighted = line.takes("weight");
            let weight = if weighted { line.number("the weight", WEIGHT)? } else { None };
            hops.push(NextHop { via, weight: weight.unwrap_or(1) });
        }
        // The kernel keeps no weight of a single one.
        if let [only] = &mut hops[..] {
            only.weight = 1;
        }
        Ok(hops)
    }

    /// An address in a network of the node, of the same version of IP as the destination and the first of the next hops.
    fn neighbour(
        &self,
        line: &Line,
        word: Word,
        node: &str,
        to: Word,
        first: Option<&NextHop>,
    ) -> Result<IpAddr> {
        let what = format!("'{}' is not an address", word.text);
        let via: IpAddr = line.meaning(word.text.parse().ok(), word, what, "")?;
        let version = match (first, to.text) {
            (Some(first), _) => first.via,
            (None, "default") => via,
            (None, _) => line.network(to)?.address,
        };
        let what = format!("the way to {} cannot lead over {via}", to.text);
        let mixed = version.is_ipv4() != via.is_ipv4();
        line.refuse_if(mixed, word, what, "use addresses of the same version of IP")?;
        let near = self.topology.interfaces(node).flat_map(|i| &i.addresses).any(|own| own.contains(via));
        let what = format!("{via} is in no network of node '{node}'");
        line.refuse_if(!near, word, what, "give a neighbour's address")?;
        Ok(via)
    }
}

//! The statements about where datagrams go: `route`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use record::Result;
use record::line::Word;

use super::super::topology::{NextHop, Prefix, RouteAction, RouteSpec, RouteType, StaticRoute};
use super::{Line, Reader};
use crate::netlink::{LOCAL_TABLE, MAIN_TABLE};

/// Weights that the kernel can keep (`rtnh_hops`, one byte, is one less).
const WEIGHT: RangeInclusive<u32> = 1..=256;

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

impl Reader {
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

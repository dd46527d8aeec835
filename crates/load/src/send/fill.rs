//! What a template does not say is found out, and said.
//!
//! Source addresses are those of the interface; the destination's hardware address is the neighbour's (of the gateway,
//! when the route has one), the group's for multicast, else broadcast. Where there is no interface (memory, files) the
//! addresses are those reserved for benchmarks.

use super::template::fields::Default as Unsaid;
use super::template::{LayerKind, Template};
use linux::netlink::Netlink;
use linux::observe::next_hop;
use record::unit::some_names;
use record::{Problem, Result};
use std::collections::HashMap;
use std::net::IpAddr;

/// What is known about an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its hardware address; none for interfaces without.
    pub mac: Option<u128>,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// The next node on the way to the destination, when that is not the destination itself.
    pub gateway: Option<IpAddr>,
    /// Hardware addresses of neighbours.
    pub neighbours: HashMap<IpAddr, u128>,
}

/// The interface and neighbours in the namespace of the calling thread; `to` is where frames shall go, if known.
///
/// # Errors
/// Input when there is no such interface, host when the kernel cannot be asked.
pub fn facts(interface: &str, to: Option<IpAddr>) -> Result<Facts> {
    let cannot = |e: &dyn std::fmt::Display| {
        Problem::host(format!("the addresses cannot be read: {e}")).at(format!("interface {interface}"))
    };
    let mut netlink = Netlink::open();
    let links = netlink.links().map_err(|e| cannot(&e))?;
    let Some(link) = links.iter().find(|link| link.name == interface) else {
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        return Err(Problem::input(format!("there is no interface '{interface}'"))
            .help(format!("the interfaces here are {}", some_names(&names))));
    };
    let index = link.index;
    let ours = next_hop::neighbours()?.into_iter().filter(|((at, _), _)| *at == index);
    let addresses = netlink.addresses().unwrap_or_default();
    let route = to.and_then(|to| netlink.route(to).ok().flatten()).filter(|route| route.interface == index);
    Ok(Facts {
        name: interface.to_owned(),
        mac: link.address.map(|mac| number(&mac)),
        addresses: addresses.into_iter().filter(|(at, _)| *at == index).map(|(_, p)| p.address).collect(),
        gateway: route.and_then(|route| route.via),
        neighbours: ours.map(|((_, address), mac)| (address, number(&mac))).collect(),
    })
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// Where the frames of a template go, by its outermost IP layer; none when that is not said.
pub fn destination(template: &Template) -> Option<IpAddr> {
    let layer =
        template.layers.iter().find(|layer| matches!(layer.kind, LayerKind::Ipv4 | LayerKind::Ipv6))?;
    let number = layer.get("dst")?.first();
    Some(match layer.kind {
        LayerKind::Ipv4 => IpAddr::from((number as u32).to_be_bytes()),
        _ => IpAddr::from(number.to_be_bytes()),
    })
}

/// Writes every address that the template does not say into it; what was written, one sentence each.
pub fn fill(template: &mut Template, facts: Option<&Facts>) -> Vec<String> {
    let destination = destination(template);
    let mut said = vec![];
    let mut seen = vec![];
    for index in 0..template.layers.len() {
        let kind = template.layers[index].kind;
        // Only the outermost header of a kind meets the interface.
        let facts = facts.filter(|_| !seen.contains(&kind));
        seen.push(kind);
        for field in kind.facts().fields {
            let Unsaid::Address(reserved) = field.default else { continue };
            if template.layers[index].get(field.name).is_some() {
                continue;
            }
            let found = facts.and_then(|facts| find(facts, kind, field.name, destination));
            let (number, why) = found.unwrap_or((reserved, reserved_why(field.name)));
            template.layers[index].set(field.name, number);
            said.push(format!("{} {}={}: {why}", kind.name(), field.name, field.form.write(number)));
        }
    }
    said
}

fn reserved_why(field: &str) -> String {
    match field {
        "dst" | "target" => "the template does not say it".into(),
        _ => "the template does not say it, and no interface does".into(),
    }
}

fn find(facts: &Facts, kind: LayerKind, field: &str, to: Option<IpAddr>) -> Option<(u128, String)> {
    let own = || format!("the address of {}", facts.name);
    let address = |four: bool| {
        let found = facts.addresses.iter().find(|address| address.is_ipv4() == four)?;
        Some((bits(*found), own()))
    };
    match (kind, field) {
        (LayerKind::Ethernet, "src") | (LayerKind::Arp, "sender-mac") => Some((facts.mac?, own())),
        (LayerKind::Ipv4, "src") | (LayerKind::Arp, "sender") => address(true),
        (LayerKind::Ipv6, "src") => address(false),
        (LayerKind::Ethernet, "dst") => Some(hardware_address(facts, to?)),
        _ => None,
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()),
        IpAddr::V6(six) => six.to_bits(),
    }
}

fn hardware_address(facts: &Facts, to: IpAddr) -> (u128, String) {
    match to {
        // RFC 1112 section 6.4, RFC 2464 section 7.
        IpAddr::V4(four) if four.is_multicast() => {
            return (0x0100_5e00_0000 | bits(to) & 0x7f_ffff, format!("the group {to}"));
        }
        IpAddr::V6(six) if six.is_multicast() => {
            return (0x3333_0000_0000 | bits(to) & 0xffff_ffff, format!("the group {to}"));
        }
        _ => {}
    }
    let next = facts.gateway.unwrap_or(to);
    match facts.neighbours.get(&next) {
        Some(mac) if facts.gateway.is_some() => (*mac, format!("the gateway {next} on the way to {to}")),
        Some(mac) => (*mac, format!("the neighbour {next}")),
        None => {
            let why = format!(
                "broadcast, because {} knows no neighbour {next} (ping it first, or set eth dst=)",
                facts.name
            );
            (0xffff_ffff_ffff, why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text, "t").unwrap()
    }

    fn known() -> Facts {
        Facts {
            name: "a0".into(),
            mac: Some(0x02aa),
            addresses: vec!["fd00::1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
            gateway: None,
            neighbours: HashMap::from([("10.0.0.2".parse().unwrap(), 0x02bb)]),
        }
    }

    #[test]
    fn what_is_missing_is_filled_in_and_said() {
        let mut t = template("eth / ip dst=10.0.0.2 / udp");
        let said = fill(&mut t, Some(&known()));
        assert_eq!(
            t.to_string(),
            "eth dst=00:00:00:00:02:bb src=00:00:00:00:02:aa\nip dst=10.0.0.2 src=10.0.0.1\nudp\n"
        );
        assert_eq!(said[0], "eth dst=00:00:00:00:02:bb: the neighbour 10.0.0.2");
        assert_eq!(said.len(), 3);
        assert!(fill(&mut t, Some(&known())).is_empty(), "a second time nothing is missing");
    }

    #[test]
    fn gateways_groups_strangers_and_no_interface() {
        let mac = |to: &str, facts: &Facts| hardware_address(facts, to.parse().unwrap());
        let routed = Facts { gateway: Some("10.0.0.2".parse().unwrap()), ..known() };
        assert_eq!(
            mac("192.0.2.1", &routed),
            (0x02bb, "the gateway 10.0.0.2 on the way to 192.0.2.1".into())
        );
        assert_eq!(mac("224.129.2.3", &known()).0, 0x0100_5e01_0203);
        assert_eq!(mac("ff02::1:ff00:1", &known()).0, 0x3333_ff00_0001);
        let (number, why) = mac("10.0.0.3", &known());
        assert!(number == 0xffff_ffff_ffff && why.contains("ping it first"), "{why}");
        let mut t = template("eth / ip / udp / eth / ip");
        assert_eq!(fill(&mut t, None).len(), 8);
        assert!(t.to_string().contains("198.18.0.1"));
    }
}

//! A case between this host and another one.
//!
//! **What.** The topology of a case is not built there. Where it gives an end one interface, that name means the interface of the end that leads to the other
//! host; any other name is the host's own. What a case asks of the topology itself (a bond, a VLAN, another topology in the second arm) cannot be run.
//!
//! **Price.** Nothing between the hosts is as the topology says, so results are never compared with those of a lab.

use super::Case;
use super::needs::Need;
use crate::change::LabChange;
use crate::hosts::{HostPair, remote};
use crate::notices::Notices;
use linux::lab::Topology;
use linux::observe::next_hop;
use linux::tune::kept::Ask;
use record::case::CaseHosts;
use record::{Problem, Result};

/// Knobs of IPv4 that a case names, and those of IPv6 that are meant where a host has that alone.
const OF_IPV6: [(&str, &str); 2] = [
    ("feature.tx-tcp-segmentation", "feature.tx-tcp6-segmentation"),
    ("feature.tx-checksum-ipv4", "feature.tx-checksum-ipv6"),
];

/// Asks the other host who it is, and finds the interfaces between the two.
///
/// # Errors
/// Host: it does not answer, or there is no route.
pub fn hosts(name: &str, reverse: bool, via: &[String], notices: &dyn Notices) -> Result<CaseHosts> {
    let interface = next_hop::interface_to(remote::usual(name)?.ip())?;
    let via = via.to_vec();
    let mut hosts = CaseHosts { name: name.into(), interface, reverse, via, ..CaseHosts::default() };
    let mut there = remote::knobs(name)?;
    match there.about() {
        Ok(about) => (hosts.far_interface, hosts.host) = (about.interface, Some(about.host)),
        Err(problem) => {
            notices.note(&format!("the other host's interface and kernel are not known: {problem}"));
        }
    }
    Ok(hosts)
}

/// The case with its settings at the interfaces of two hosts.
///
/// # Errors
/// Host: it cannot be run between hosts, and why.
pub fn at_hosts(case: &Case, pair: &HostPair, hosts: &CaseHosts) -> Result<Case> {
    let [a, b] = [0, 1].map(|arm| case.plans[arm].topology.as_str());
    if a != b {
        return Err(Problem::host("its arms have different topologies, and between hosts none is built")
            .help("run it in a lab: without --to or --machines"));
    }
    if let Some(need) = case.needs.iter().find(|need| need.is_built) {
        let what = format!("it needs {} in its topology, and between hosts none is built", need.name);
        return Err(Problem::host(what).help("run it in a lab: without --to or --machines"));
    }
    let topology = Topology::load(a)?;
    let mut plans = case.plans.clone();
    plans.iter_mut().for_each(|plan| plan.use_family(pair.family()));
    for test in plans.iter().flat_map(|plan| &plan.tests) {
        pair.address(test.spec.family)?;
    }
    let six = plans.iter().flat_map(|plan| &plan.tests).all(|test| test.any_family && test.spec.family == 6);
    let moved = |changes: &[LabChange]| -> Result<Vec<LabChange>> {
        changes.iter().map(|change| at_host(change, &topology, pair, hosts, six)).collect()
    };
    let (both, only_a, only_b) = (moved(&case.both)?, moved(&case.only_a)?, moved(&case.only_b)?);
    Ok(Case { plans, both, only_a, only_b, ..case.clone() })
}

/// What either host lacks of these needs, and what helps; none when nothing is known to be missing.
pub fn lacking(needs: &[&'static Need], hosts: &CaseHosts) -> Option<String> {
    let missing = needs.iter().find_map(|need| Some((need, (need.lacking_between)(hosts)?)));
    missing.map(|(need, what)| format!("{what}; {}", need.helps))
}

/// A change at the interface that leads to the other host, by IPv6 if that is `six`.
fn at_host(
    change: &LabChange,
    topology: &Topology,
    pair: &HostPair,
    hosts: &CaseHosts,
    six: bool,
) -> Result<LabChange> {
    let host = pair.elsewhere(&change.node).map_err(|problem| problem.at(&change.text))?;
    if host.is_some() && change.node != pair.far {
        // The topology says nothing of a host on the way: names are its own.
        return Ok(change.clone());
    }
    let named: Vec<&str> = topology.interfaces(&change.node).map(|one| one.name.as_str()).collect();
    let moved = |ask: &Ask| -> Result<Ask> {
        let is_named = ask.interface.as_deref().is_some_and(|name| named.contains(&name));
        if !is_named {
            return Ok(ask.clone());
        }
        if named.len() > 1 {
            let what = format!("{} has several interfaces in the case's topology", change.node);
            return Err(Problem::host(what)
                .at(&change.text)
                .help("name the host's own interface in the case"));
        }
        let known = if host.is_none() { Some(&hosts.interface) } else { hosts.far_interface.as_ref() };
        let unknown = || {
            Problem::host(format!("the interface of {} is not known", hosts.name)).at(&change.text).help(
                "start 'pathlab serve --observe --tune' there, or name the host's own interface in the case",
            )
        };
        let of_six = OF_IPV6.iter().find(|(name, _)| six && ask.name == *name);
        let name = of_six.map_or(&*ask.name, |(_, name)| name).to_owned();
        Ok(Ask { interface: Some(known.ok_or_else(unknown)?.clone()), name, ..ask.clone() })
    };
    let asks: Vec<Ask> = change.asks.iter().map(moved).collect::<Result<_>>()?;
    if asks == change.asks {
        return Ok(change.clone());
    }
    let texts: Vec<String> = asks.iter().map(Ask::to_string).collect();
    Ok(LabChange { node: change.node.clone(), asks, text: format!("{}/{}", change.node, texts.join("+")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{file, select};

    fn pair() -> HostPair {
        HostPair { name: "127.0.0.1".into(), near: "a".into(), far: "b".into(), via: vec![] }
    }

    fn known() -> CaseHosts {
        CaseHosts {
            name: "127.0.0.1".into(),
            interface: "ens1".into(),
            far_interface: Some("ens2".into()),
            reverse: false,
            via: vec![],
            host: None,
        }
    }

    fn texts(changes: &[LabChange]) -> Vec<&str> {
        changes.iter().map(|change| change.text.as_str()).collect()
    }

    #[test]
    fn the_interface_of_a_topology_is_the_one_that_leads_to_the_other_host() {
        let case = select(&["jumbo-frames".into()]).unwrap().remove(0);
        let case = at_hosts(&case, &pair(), &known()).unwrap();
        assert_eq!(texts(&case.only_b), ["a/ens1:mtu=9000", "b/ens2:mtu=9000"]);
        // In reverse a is the other host.
        let reverse = HostPair::of("127.0.0.1", &case.plans[0].tests[0].spec, true);
        let jumbo = select(&["jumbo-frames".into()]).unwrap().remove(0);
        let back = at_hosts(&jumbo, &reverse, &CaseHosts { reverse: true, ..known() }).unwrap();
        assert_eq!(texts(&back.only_b), ["a/ens2:mtu=9000", "b/ens1:mtu=9000"]);
        assert!(jumbo.arms(Some(&reverse))[0].contains("over IPv4, in reverse"));
        assert!(!jumbo.arms(Some(&pair()))[0].contains("in reverse"));
        let case = select(&["window-scaling".into()]).unwrap().remove(0);
        assert_eq!(at_hosts(&case, &pair(), &known()).unwrap().only_a, case.only_a);
        let untold = CaseHosts { far_interface: None, ..known() };
        let gro = select(&["gro".into()]).unwrap().remove(0);
        let why = at_hosts(&gro, &pair(), &untold).unwrap_err().to_string();
        assert!(
            why.contains("the interface of 127.0.0.1 is not known") && why.contains("--observe --tune"),
            "{why}"
        );
    }

    #[test]
    fn knobs_of_ipv4_are_those_of_ipv6_where_a_host_has_that_alone() {
        let pair = HostPair { name: "::1".into(), ..pair() };
        let case = select(&["tso".into()]).unwrap().remove(0);
        let case = at_hosts(&case, &pair, &known()).unwrap();
        assert_eq!(case.plans[1].tests[0].spec.family, 6);
        assert_eq!(texts(&case.only_b), ["a/ens1:feature.tx-tcp6-segmentation=on"]);
    }

    #[test]
    fn what_is_about_the_topology_or_another_node_cannot_be_run() {
        for name in ["bonding", "bonding-vlan"] {
            let case = select(&[name.into()]).unwrap().remove(0);
            let why = at_hosts(&case, &pair(), &known()).unwrap_err();
            assert!(why.what.contains("different topologies"), "{why}");
        }
        let of = |more: &str| {
            let text = format!(
                "case own\nquestion Is it so?\nsource this test\ntopology router\n{more}\ntest tcp-stream\nexpect better\n"
            );
            at_hosts(&file::parse(&text, "own.case").unwrap().remove(0), &pair(), &known())
        };
        let between = of("set-b r/net.ipv4.ip_forward=1").unwrap_err();
        assert!(between.to_string().contains("there is no node 'r'"), "{between}");
        let own = of("set-b a/wlan0:mtu=1400+eth0:mtu=1400").unwrap();
        assert_eq!(texts(&own.only_b), ["a/wlan0:mtu=1400+ens1:mtu=1400"]);
        let six = of("family 6\nset-b a/eth0:mtu=1400").unwrap_err();
        assert!(six.what.contains("has no address with IPv6"), "{six}");
        let bond = of("needs bonding\nset-b a/eth0:mtu=1400").unwrap_err();
        assert!(bond.what.contains("it needs bonding"), "{bond}");
    }

    #[test]
    fn needs_are_looked_for_at_both_hosts() {
        let needs: Vec<&Need> = crate::case::needs::named("two-cpus").into_iter().collect();
        let of = |cpus| CaseHosts {
            host: Some(record::HostFacts { cpus, ..record::HostFacts::default() }),
            ..known()
        };
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(lacking(&needs, &of(2)).is_some(), here < 2);
        assert!(lacking(&needs, &of(1)).is_some());
    }
}

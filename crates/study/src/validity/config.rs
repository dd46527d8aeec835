//! Rows about the path: links, settings, who else looks at its frames, counters.

use super::Found;
use super::case::{Case, holds, of_host, place};
use record::conditions::{Conditions, ConfigChange, PauseCount};
use record::snapshot::LinkSample;
use record::unit::{many, time_ns};
use record::{Delta, Snapshot, Trust};

/// What [`link_flap`] says, and [`link_changed`] does not again.
const FLAPS: [&str; 4] = ["set up", "set down", "the carrier came", "the carrier went"];

fn link<'a>(snapshot: &'a Snapshot, node: &str, interface: &str) -> Option<&'a LinkSample> {
    snapshot.nodes.get(node)?.links.iter().find(|link| link.name == interface)
}

/// The links of the path that both snapshots have.
fn links<'a>(case: &Case<'a>) -> Vec<(&'a str, &'a LinkSample, &'a LinkSample)> {
    let test = case.test;
    let both = |(node, interface): (&'a str, &'a str)| {
        Some((node, link(&test.before, node, interface)?, link(&test.after, node, interface)?))
    };
    case.interfaces().filter_map(both).collect()
}

pub fn link_flap(case: &Case<'_>, found: &mut Found) {
    for (node, before, after) in links(case) {
        let flapped = Delta::of(before.carrier_changes, after.carrier_changes).known().unwrap_or(0);
        let set: Vec<String> = case
            .changes(&["RTM_NEWLINK"])
            .filter(|(_, change)| {
                change.node == node && change.interface == after.name && FLAPS.contains(&change.what.as_str())
            })
            .map(|(_, change)| format!("{} after {}", change.what, time_ns(change.after_ns as f64)))
            .collect();
        if flapped == 0 && set.is_empty() {
            continue;
        }
        let told = if set.is_empty() { String::new() } else { format!(" (RTM_NEWLINK: {})", set.join(", ")) };
        let value = many(flapped, "change").replace("change", "carrier change");
        let reason = format!("{} of node {node} did not stay up: {value}{told}", after.name);
        found.say(place(node, &after.name), value, Trust::Invalid, reason);
    }
}

pub fn pause(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        for now in host.after.pauses.iter().filter(|one| case.is_on_path(&one.node, &one.interface)) {
            let same = |one: &&PauseCount| (&one.node, &one.interface) == (&now.node, &now.interface);
            let before = host.before.pauses.iter().find(same);
            let moved = |count: fn(&PauseCount) -> u64| {
                Delta::between(before.map(count), Some(count(now))).known().unwrap_or(0)
            };
            let (received, sent) = (moved(|one| one.received), moved(|one| one.sent));
            if received + sent > 0 {
                let value = format!("{received} received, {sent} sent");
                let whose =
                    if received > 0 { "the other side held it back" } else { "it held the other side back" };
                let reason = format!(
                    "pause frames passed at {} of node {} ({value}): {whose}, so the rate is of both",
                    now.interface, now.node
                );
                found.say(place(&now.node, &now.interface), value, Trust::Suspect, of_host(host, &reason));
            }
        }
    }
}

/// Says a change of configuration.
fn changed((host, change): (&Conditions, &ConfigChange), verdict: Trust, found: &mut Found) {
    let ConfigChange { after_ns, node, interface, message, about, what } = change;
    let about = about.as_ref().map_or(String::new(), |about| format!(", {about}"));
    let when = time_ns(*after_ns as f64);
    let place = place(node, interface);
    let reason = format!("{place}{about}: {what} {when} into the test ({message})");
    found.say(place, what, verdict, of_host(host, &reason));
}

/// Says those changes with such messages that are of interfaces of the path.
fn on_path(case: &Case<'_>, messages: &'static [&'static str], verdict: Trust, found: &mut Found) {
    let touching = |change: &ConfigChange| case.touches(&change.node, &change.interface);
    case.changes(messages).filter(|(_, one)| touching(one)).for_each(|one| changed(one, verdict, found));
}

pub fn link_changed(case: &Case<'_>, found: &mut Found) {
    let is_flap = |change: &ConfigChange| FLAPS.contains(&change.what.as_str());
    let touching =
        |change: &ConfigChange| case.is_on_path(&change.node, &change.interface) && !is_flap(change);
    let all = case.changes(&["RTM_NEWLINK", "RTM_DELLINK"]);
    all.filter(|(_, one)| touching(one)).for_each(|one| changed(one, Trust::Invalid, found));
    for host in case.hosts().filter(|host| host.more_changes > 0) {
        found
            .unknown
            .push(of_host(host, &format!("{} more were not looked at", many(host.more_changes, "change"))));
    }
}

pub fn qdisc_changed(case: &Case<'_>, found: &mut Found) {
    let messages = &[
        "RTM_NEWQDISC",
        "RTM_DELQDISC",
        "RTM_NEWTCLASS",
        "RTM_DELTCLASS",
        "RTM_NEWTFILTER",
        "RTM_DELTFILTER",
    ];
    on_path(case, messages, Trust::Invalid, found);
}

/// Says those changes that are about an address of an end.
fn of_ends(case: &Case<'_>, messages: &'static [&'static str], found: &mut Found) {
    for (host, change) in case.changes(messages) {
        if host.ends.is_empty() {
            found.unknown.push(of_host(host, "the addresses of the ends are not known"));
        } else if change.about.as_ref().is_some_and(|about| holds(about, &host.ends)) {
            changed((host, change), Trust::Invalid, found);
        }
    }
}

pub fn route_changed(case: &Case<'_>, found: &mut Found) {
    of_ends(case, &["RTM_NEWROUTE", "RTM_DELROUTE"], found);
}

pub fn address_changed(case: &Case<'_>, found: &mut Found) {
    of_ends(case, &["RTM_NEWADDR", "RTM_DELADDR"], found);
}

pub fn rule_changed(case: &Case<'_>, found: &mut Found) {
    on_path(case, &["RTM_NEWRULE", "RTM_DELRULE"], Trust::Suspect, found);
}

pub fn neighbour_changed(case: &Case<'_>, found: &mut Found) {
    on_path(case, &["RTM_NEWNEIGH", "RTM_DELNEIGH"], Trust::Suspect, found);
}

pub fn driver_changed(case: &Case<'_>, found: &mut Found) {
    on_path(case, &["ETHTOOL_MSG_"], Trust::Invalid, found);
}

/// How somebody came to be there.
fn since(was_there: bool) -> &'static str {
    if was_there { "before the test" } else { "during the test" }
}

pub fn tap(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        for tap in host.taps.iter().filter(|tap| case.touches(&tap.node, &tap.interface)) {
            let who = if tap.process.is_empty() { "somebody" } else { &tap.process };
            let place = place(&tap.node, &tap.interface);
            let reason =
                format!("{who} gets a copy of every frame at {place}, begun {}", since(tap.was_there));
            found.say(place, who, Trust::Suspect, of_host(host, &reason));
        }
    }
}

pub fn program(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        for one in host.programs.iter().filter(|one| case.is_on_path(&one.node, &one.interface)) {
            let name = if one.name.is_empty() { "a program" } else { &one.name };
            let value = if one.id > 0 { format!("{name} (program {})", one.id) } else { name.to_owned() };
            let (place, hook) = (place(&one.node, &one.interface), &one.hook);
            let reason = format!(
                "{value} of somebody else runs at {hook} of {place}, attached {}",
                since(one.was_there)
            );
            found.say(place, value, Trust::Suspect, of_host(host, &reason));
        }
    }
}

pub fn counter_reset(case: &Case<'_>, found: &mut Found) {
    for (node, before, after) in links(case) {
        let ran_back = |(name, now): (&String, &u64)| {
            let then = before.counters.get(name)?;
            (Delta::of(*then, *now) == Delta::Backwards).then(|| name.clone())
        };
        let back: Vec<String> = after.counters.iter().filter_map(ran_back).collect();
        if before.index != after.index {
            let reason = format!(
                "{} of node {node} was made anew during the test, and its counters with it",
                after.name
            );
            found.say(place(node, &after.name), "another interface", Trust::Invalid, reason);
        } else if !back.is_empty() {
            let back = back.join(", ");
            let reason = format!("counters of {} of node {node} ran backwards: {back}", after.name);
            found.say(place(node, &after.name), back, Trust::Invalid, reason);
        }
    }
}

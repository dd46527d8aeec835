//! Why a connection could not be made, and where.
//!
//! **What.** The error of connect(2) says that it failed, at most how. So the routes of all nodes on the way there and back are asked,
//! which finds a node that has none or refuses; and the kernel's drop event, which counted while the sender tried, tells of
//! filters, of unresolved neighbours and the like.
//!
//! **Price.** The drop event needs root. Where nothing is found, the error stays as it was.

use linux::lab::{DeadEnd, Lab};
use record::drop;
use record::ledger::WitnessDrop;
use record::unit;
use record::{Problem, TestSpec};

/// The problem of a sender that could not connect, with the place that is to blame if there is one.
pub fn explain(problem: Problem, lab: &Lab, spec: &TestSpec, drops: &[WitnessDrop]) -> Problem {
    let route = || {
        let there = dead_end(lab, &spec.from, &spec.to, spec.family, "");
        there.or_else(|| dead_end(lab, &spec.to, &spec.from, spec.family, " (the way back)"))
    };
    let found = route().or_else(|| dropped(drops)).or_else(|| nobody(&problem, spec));
    let Some((node, why, advice)) = found else { return problem };
    let place = format!("node {node}");
    Problem { place, what: format!("{}: {why}", problem.what), advice, ..problem }
}

/// The node, what is wrong there, and what to do.
type Found = (String, String, String);

fn dead_end(lab: &Lab, from: &str, to: &str, family: u8, leg: &str) -> Option<Found> {
    let address = lab.address_of(to, family)?;
    let DeadEnd { node, refuses } = lab.dead_end(from, address)?;
    Some(match refuses {
        Some(kind) => {
            let kind = kind.word();
            let why = format!("it has a route of type {kind} for {address}{leg}");
            (node, why, format!("remove the {kind} route"))
        }
        None => (
            node,
            format!("it has no route to {address}{leg}"),
            "add the missing route, or switch its interface on".into(),
        ),
    })
}

/// Where the kernel dropped most of what the two ends said.
fn dropped(drops: &[WitnessDrop]) -> Option<Found> {
    // What a host throws away because it is not for it (a copy) or comes too late says nothing.
    let told = |drop: &&WitnessDrop| !drop.reason.starts_with("TCP_") && drop.reason != "OTHERHOST";
    let most = drops.iter().filter(told).max_by_key(|drop| drop.frames)?;
    let name = drop::one_of_kernel(&most.reason, most.location.as_deref()).map_or("", |row| row.name);
    let interface = most.interface.as_deref().map_or(String::new(), |name| format!(" at {name}"));
    let frames = unit::many(most.frames, "frame");
    let function = most.location.as_deref().map_or(String::new(), |name| format!(" in {name}"));
    let called = if name.is_empty() { String::new() } else { format!("{name}: ") };
    let why = format!("its kernel dropped {frames}{interface} ({called}{}{function})", most.reason);
    Some((most.node.clone(), why, drop::advice(name).into()))
}

/// A refusal that nothing on the way explains is the receiver's own.
fn nobody(problem: &Problem, spec: &TestSpec) -> Option<Found> {
    let refused = problem.what.to_lowercase().contains("refused");
    let why = "it answered, but nobody listens there";
    refused.then(|| (spec.to.clone(), why.into(), "see what took the receiver's port or address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_not_what_stopped_a_connection() {
        let drop = |reason: &str, frames| WitnessDrop {
            reason: reason.into(),
            node: "r".into(),
            interface: Some("eth0".into()),
            location: Some("nft_do_chain".into()),
            frames,
            skbs: frames,
        };
        let (node, why, advice) =
            dropped(&[drop("OTHERHOST", 9), drop("NETFILTER_DROP", 3)]).expect("a filter");
        assert_eq!(
            (node.as_str(), why.as_str()),
            ("r", "its kernel dropped 3 frames at eth0 (filter: NETFILTER_DROP in nft_do_chain)")
        );
        assert!(advice.contains("chain"), "{advice}");
        assert!(dropped(&[drop("OTHERHOST", 9), drop("TCP_CLOSE", 1)]).is_none());
    }
}

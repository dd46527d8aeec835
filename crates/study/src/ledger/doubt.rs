//! What the counters say against the path itself, where only interfaces and hosts were counted.
//!
//! **What.** A station that lets out more than came in, where others let out less, shows frames that took another way
//! than the routes say; so does an interface off the path by which frames left. As many frames as that may be missing
//! elsewhere without being lost, and the uncertainty says so.
//!
//! **Why.** Such a ledger asks for the path by destination. Policy routes, several next hops, a tunnel or a bridge with an address give
//! a flow another one, and then two residuals of opposite sign stand beside each other although nothing was lost.
//!
//! **Price.** A true loss that is no larger than what went astray is then not accused of a place. Where the flow itself was
//! counted nothing of this is needed.

use super::book::Readings;
use super::chain::Draft;
use super::unit::Seen;
use record::StationKind;
use record::delta::sum;
use record::unit::many;

/// Widens the uncertainty of stations that the path may be wrong about.
pub fn of_the_path(stations: &mut [Draft], book: &mut Readings) {
    // A single command knows its own node only, and asks for no path.
    let is_asked = book.input.path.forward.len() > 1 && book.input.arrival.is_none();
    if !is_asked || stations.iter().any(|draft| draft.is_counted) {
        return;
    }
    let appeared = appeared(stations);
    if appeared > 0 {
        book.note(format!(
            "{} appeared on the path that the routes say, so they went another way; residuals up to that many are no losses",
            many(appeared, "frame")
        ));
    }
    for draft in stations.iter_mut().filter(|draft| is_open(draft)) {
        let astray = if draft.station.residual > 0 { astray(draft, book) } else { 0 };
        if astray > 0 {
            book.note(format!(
                "{} left node {} by interfaces that are not on the path that the routes say: what is missing there may have \
                 gone on",
                many(astray, "frame"),
                draft.station.node
            ));
        }
        let doubt = draft.station.residual.unsigned_abs().min(appeared.max(astray));
        draft.station.uncertainty = draft.station.uncertainty.max(doubt);
    }
}

fn is_open(draft: &Draft) -> bool {
    draft.station.residual.unsigned_abs() > draft.station.uncertainty
}

/// Frames that some stations let out without having let them in, as far as others miss them.
fn appeared(stations: &[Draft]) -> u64 {
    let of = |is_more: bool| {
        let these = stations.iter().filter(|draft| is_open(draft) && (draft.station.residual < 0) == is_more);
        sum(these.map(|draft| draft.station.residual.unsigned_abs()))
    };
    of(true).min(of(false))
}

/// Frames that left the node of a station that forwards by interfaces off the path.
fn astray(draft: &Draft, book: &Readings) -> u64 {
    if !matches!(draft.row.kind, StationKind::Bridge | StationKind::IpForward) {
        return 0;
    }
    let node = &draft.station.node;
    let path = book.input.path;
    let hops = || path.forward.iter().chain(&path.back).filter(|hop| hop.node == *node);
    let is_on_the_path = |name: &str| {
        hops().any(|hop| {
            [&hop.ingress, &hop.egress, &hop.bridge].iter().any(|one| one.as_deref() == Some(name))
        })
    };
    let Some((_, after)) = book.test.node(node) else { return 0 };
    let others = after.links.iter().filter(|link| link.kind != "bridge" && link.name != "lo");
    let left = |name: &str| -> Option<u64> {
        let Seen { count, doubt } = book.transmitted(&book.link(node, name)?)?;
        let background = book.background(|window| window.link_counter(node, name, "tx_packets"));
        Some(count.saturating_add(doubt).saturating_sub(background))
    };
    sum(others.map(|link| link.name.as_str()).filter(|name| !is_on_the_path(name)).filter_map(left))
}

//! What the programs of a lab count, asked for while they run.
//!
//! **What.** [`asked`] are the programs of a lab that can be asked, [`Asked::sample`] asks one: a switch by OpenFlow at its
//! socket, `pathlab null` at the socket of its counters.
//!
//! **What OpenFlow cannot say.** There is no counter of packet-ins (only of those that our own switch dropped). What rules and buckets counted that send to the controller
//! is what the switch meant to send there. A frame that one rule sends there twice (itself and by a group) counts twice.
//! An action set is written in one table and carried out behind the last: what a later table takes out of it again
//! still counts. Of what ended otherwise (a TTL that ran out, an output that led back) there is no counter either; our own switch has a question for it
//! ([`flow::openflow::drops`]), and where it is answered, what led back is not taken for a rule without an output.
//!
//! **Price.** Six requests for each reading of a switch, two more when its rules use groups, and two when they use meters.

use super::switch::call;
use flow::action::{Action, Instruction};
use flow::client;
use flow::field::Field;
use flow::group::ALL_GROUPS;
use flow::meter::{ALL_METERS, BandKind};
use flow::openflow::bytes::Version;
use flow::openflow::drops::DropRow;
use flow::openflow::group::{GroupStatsRequest, MeterRequest};
use flow::openflow::misc::Empty;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::{PortStats, PortStatsRequest, QueueRequest};
use flow::rule::Rule;
use linux::lab::{Lab, NodeProgram};
use load::null;
use record::Result;
use record::snapshot::{
    DirectionSample, NodeSnapshot, SwitchDropSample, SwitchPortSample, SwitchSample, SwitchTableSample,
};
use std::path::Path;
use std::time::Duration;
use switch::client::Client;

/// The programs of a lab that can be asked for their counters.
pub fn asked(lab: &Lab) -> Vec<&NodeProgram> {
    lab.programs().iter().filter(|one| one.openflow.is_some() || one.counters.is_some()).collect()
}

/// How long the counters of a program may lag behind.
pub fn lag(program: &NodeProgram) -> Duration {
    // Open vSwitch counts frames of its cache once in half a second (`max-revalidator`).
    Duration::from_millis(if program.role == "ovs" { 1100 } else { 120 })
}

/// What a program counts now, and nothing else of its node; a program without a socket for that counts nothing.
///
/// # Errors
/// Input, host: it does not answer.
pub fn sample(program: &NodeProgram) -> Result<NodeSnapshot> {
    let mut node = NodeSnapshot::default();
    if let Some(path) = &program.openflow {
        node.switch = Some(of_switch(path)?);
    } else if let Some(path) = &program.counters {
        node.ways = null::ask(path)?.ways.into_iter().map(of_way).collect();
    }
    Ok(node)
}

fn of_way(way: null::NullDirection) -> DirectionSample {
    DirectionSample {
        from: interface(&way.from),
        to: interface(&way.to),
        received: way.received,
        received_bytes: way.received_bytes,
        full: way.full,
        failed: way.failed,
        lost_before: way.lost_before,
        lost_after: way.lost_after,
    }
}

/// `p1` of `int:p1`, `ring:p1?frames=512` and `fault:int:p1?lose=1%`.
fn interface(port: &str) -> String {
    let name = port.split('?').next().unwrap_or_default();
    name.rsplit(':').next().unwrap_or_default().to_owned()
}

/// What a switch counts now.
fn of_switch(socket: &Path) -> Result<SwitchSample> {
    let mut client = call(socket)?;
    let version = client.version();
    let mut sample = SwitchSample { ports: ports(&mut client)?, ..SwitchSample::default() };
    if let Reply::Table(tables) = client.multipart(Request::Table(Empty {}))? {
        let used = tables.iter().filter(|table| table.active_count > 0 || table.lookup_count > 0);
        sample.tables.extend(used.map(|table| SwitchTableSample {
            table: table.table_id,
            rules: table.active_count,
            lookups: table.lookup_count,
            matched: table.matched_count,
        }));
    }
    sample.drops = client.drops().map(|rows| rows.iter().map(of_drop).collect());
    of_rules(&mut client, version, &mut sample)?;
    // Only a switch that has queues for packet-ins answers.
    let wish = QueueRequest { port_no: flow::PortNo::CONTROLLER.0, queue_id: u32::MAX };
    if let Ok(Reply::QueueStats(queues)) = client.multipart(Request::QueueStats(wish)) {
        sample.packet_ins_dropped = Some(queues.iter().map(|queue| queue.tx_errors).sum());
    }
    Ok(sample)
}

/// A row of what a switch tells of frames that ended.
fn of_drop(row: &DropRow) -> SwitchDropSample {
    SwitchDropSample { port: row.port, reason: row.why.name().to_owned(), frames: row.frames }
}

/// What the ports of a switch count.
fn ports(client: &mut Client) -> Result<Vec<SwitchPortSample>> {
    let names = client.multipart(Request::PortDesc(Empty {}))?;
    let counts = client.multipart(Request::PortStats(PortStatsRequest { port_no: flow::PortNo::ANY.0 }))?;
    let (Reply::PortDesc(names), Reply::PortStats(counts)) = (names, counts) else { return Ok(vec![]) };
    let port = |port: &PortStats| {
        let name = names.iter().find(|name| name.port_no == port.port_no)?;
        Some(SwitchPortSample {
            port: port.port_no,
            interface: name.name.text(),
            rx_frames: port.rx_packets,
            rx_bytes: port.rx_bytes,
            tx_frames: port.tx_packets,
            tx_bytes: port.tx_bytes,
            rx_dropped: port.rx_dropped,
            tx_dropped: port.tx_dropped,
        })
    };
    Ok(counts.iter().filter_map(port).collect())
}

/// What rules, buckets and meters counted of frames that go to the controller or nowhere.
fn of_rules(client: &mut Client, version: Version, sample: &mut SwitchSample) -> Result<()> {
    let all = client::flow_request(&client::delete_all());
    let Reply::Flow(rules) = client.multipart(Request::Flow(all))? else { return Ok(()) };
    let (mut uses_groups, mut uses_meters) = (false, false);
    let read = |stats| Some((client::rule(version, stats).ok()?.1, stats.packet_count));
    let rules: Vec<(Rule, u64)> = rules.iter().filter_map(read).collect();
    // Then a frame may leave by what an earlier table wrote.
    let sets_are_used = rules.iter().any(|(rule, _)| writes_for_later(rule));
    for (rule, frames) in &rules {
        let actions = || rule.instructions.iter().flat_map(Instruction::actions);
        uses_groups |= actions().any(|action| matches!(action, Action::Group(_)));
        uses_meters |= rule.instructions.iter().any(|one| matches!(one, Instruction::Meter(_)));
        if actions().any(sends_to_controller) {
            sample.to_controller = sample.to_controller.saturating_add(*frames);
        }
        if !sets_are_used && leads_nowhere(rule, sample.drops.is_some()) {
            sample.led_nowhere = sample.led_nowhere.saturating_add(*frames);
        }
    }
    // A group is reached from a rule, or from a group that is.
    if uses_groups {
        sample.buckets_to_controller = by_buckets(client, version)?;
    }
    if uses_meters {
        sample.metered = by_meters(client)?;
    }
    Ok(())
}

/// Whether frames of a rule go to no port, no group and no other table. To the port that they came in by they go only by the name IN_PORT
/// (section 5.12 of the standard).
/// What led back is left to a switch that tells it.
fn leads_nowhere(rule: &Rule, tells_drops: bool) -> bool {
    let in_port = rule.matching.exact(Field::InPort).map(|port| flow::PortNo(port as u32));
    let in_port = in_port.filter(|_| !tells_drops);
    let goes = |action: &Action| match action {
        Action::Output { port, .. } => Some(*port) != in_port,
        Action::Group(_) => true,
        _ => false,
    };
    let mut goes_on = rule.instructions.iter().map(|one| match one {
        Instruction::GotoTable(_) | Instruction::Experimenter { .. } => true,
        other => other.actions().iter().any(goes),
    });
    !goes_on.any(|goes| goes)
}

/// Whether it writes into the action set and goes on to another table.
fn writes_for_later(rule: &Rule) -> bool {
    let has = |which: fn(&Instruction) -> bool| rule.instructions.iter().any(which);
    has(|one| matches!(one, Instruction::GotoTable(_)))
        && has(|one| matches!(one, Instruction::WriteActions(_)))
}

/// What the bands of meters counted which drop.
fn by_meters(client: &mut Client) -> Result<u64> {
    let all = MeterRequest { meter_id: ALL_METERS };
    let meters = client.multipart(Request::MeterConfig(all.clone()))?;
    let counts = client.multipart(Request::Meter(all))?;
    let (Reply::MeterConfig(meters), Reply::Meter(counts)) = (meters, counts) else { return Ok(0) };
    let meters = meters.iter().filter_map(|meter| client::meter(meter).ok());
    let dropped = meters.filter_map(|meter| {
        let counted = counts.iter().find(|counted| counted.meter_id == meter.id)?;
        let bands = meter.bands.iter().zip(&counted.band_stats);
        Some(
            bands
                .filter(|(band, _)| band.kind == BandKind::Drop)
                .map(|(_, stats)| stats.packet_band_count)
                .sum::<u64>(),
        )
    });
    Ok(dropped.fold(0, u64::saturating_add))
}

/// What buckets counted that send to the controller. A bucket that sends to another group needs no following: the other's
/// buckets count for themselves.
fn by_buckets(client: &mut Client, version: Version) -> Result<u64> {
    let groups = client.multipart(Request::GroupDesc(Empty {}))?;
    let counts = client.multipart(Request::Group(GroupStatsRequest { group_id: ALL_GROUPS }))?;
    let (Reply::GroupDesc(groups), Reply::Group(counts)) = (groups, counts) else { return Ok(0) };
    let mut sum = 0u64;
    for group in groups.iter().filter_map(|group| client::group(version, group).ok()) {
        let Some(counted) = counts.iter().find(|counted| counted.group_id == group.id) else { continue };
        for (bucket, stats) in group.buckets.iter().zip(&counted.bucket_stats) {
            if bucket.actions.iter().any(sends_to_controller) {
                sum = sum.saturating_add(stats.packet_count);
            }
        }
    }
    Ok(sum)
}

fn sends_to_controller(action: &Action) -> bool {
    matches!(action, Action::Output { port, .. } if *port == flow::PortNo::CONTROLLER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_names_its_interface() {
        for port in ["int:p1", "ring:p1?frames=512", "fault:int:p1?lose=1%", "xdp:p1?only=udp:7"] {
            assert_eq!(interface(port), "p1", "{port}");
        }
    }
}

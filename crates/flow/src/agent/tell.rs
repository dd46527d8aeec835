//! What controllers hear unasked: packet-ins, removed rules, ports, tables, updates of monitors, forwarded requests.

use super::multipart::{self, update};
use super::{Conn, Effects, From, OpenFlowAgent, Scene, translate};
use crate::event::{Event, MonitorFlags, Removed};
use crate::field::Field;
use crate::interpret::PacketIn;
use crate::matching::{Match, MatchField};
use crate::openflow::bytes::{Bytes, Hex, Version, duration};
use crate::openflow::message::{Body, Message, Raw, RequestForward};
use crate::openflow::misc::{TableReason, TableStatus};
use crate::openflow::multipart::{Multipart, Reply};
use crate::openflow::port::{PortReason, PortStatus};
use crate::openflow::roles::Unasked;
use crate::openflow::rule::{self as wire, Update, UpdateAbbrev};
use crate::pipeline::Pipeline;
use crate::port::{Port, PortNo};
use crate::rule::{PacketInReason, RuleFlags};

impl OpenFlowAgent {
    /// Sends a frame to all controllers that want it.
    pub fn packet_in(&self, packet_in: &PacketIn, effects: &mut Effects) {
        for (connection, version) in self.wants(packet_in) {
            effects.messages.push((connection, packet_in_message(packet_in, version)));
        }
    }

    /// The connections that want a frame, with their versions.
    pub fn wants(&self, packet_in: &PacketIn) -> Vec<(Conn, Version)> {
        self.roles.audience(Unasked::PacketIn, |version| packet_in_reason(version, packet_in.reason).0)
    }

    /// Reports what happened to the controllers that want to know; `cause` is the message that caused it.
    pub fn publish(&mut self, events: &[Event], cause: Option<From>, of: &Pipeline, effects: &mut Effects) {
        for event in events {
            match event {
                Event::RuleRemoved(removed) if removed.rule.flags.has(RuleFlags::SEND_FLOW_REM) => {
                    self.removed(removed, effects)
                }
                Event::Vacancy { table, up, .. } => self.vacancy(*table, *up, of, effects),
                Event::PortChanged { port } => {
                    if let Some(port) = of.ports.get(port) {
                        self.port_status(port, PortReason::MODIFY, effects);
                    }
                }
                _ => {}
            }
        }
        self.update_monitors(events, cause, effects);
    }

    /// Tells of a port that came, changed or went.
    pub fn port_status(&self, port: &Port, reason: PortReason, effects: &mut Effects) {
        let body = Body::PortStatus(PortStatus { reason, desc: multipart::write_port(port) });
        effects.tell(self.roles.audience(Unasked::PortStatus, |_| reason.0), &body);
    }

    fn removed(&self, removed: &Removed, effects: &mut Effects) {
        for version in [Version::V13, Version::V14] {
            let reason = translate::removed_reason(version, removed.reason);
            let body = Body::FlowRemoved(write_removed(removed, reason));
            let mut audience = self.roles.audience(Unasked::FlowRemoved, |_| reason.0);
            audience.retain(|(_, spoken)| *spoken == version);
            effects.tell(audience, &body);
        }
    }

    fn vacancy(&self, table: u8, up: bool, pipeline: &Pipeline, effects: &mut Effects) {
        let Some(table) = pipeline.table(table).map(multipart::table_desc) else { return };
        let reason = if up { TableReason::VACANCY_UP } else { TableReason::VACANCY_DOWN };
        let audience = self.roles.audience(Unasked::TableStatus, |_| reason.0);
        effects.tell(audience, &Body::TableStatus(TableStatus { reason, table }));
    }

    /// 1.4 §7.3.5.17: each monitor hears of the events that it selects, in one message for each connection.
    fn update_monitors(&mut self, events: &[Event], cause: Option<From>, effects: &mut Effects) {
        for (connection, peer) in &self.peers {
            let own = cause.filter(|cause| cause.connection == *connection);
            let mut updates: Vec<Update> = vec![];
            for event in events {
                let wanting = peer.monitors.values().filter(|monitor| monitor.wants(event));
                let mut heard: Vec<MonitorFlags> = wanting.map(|monitor| monitor.flags).collect();
                heard.retain(|flags| own.is_some() || !flags.has(MonitorFlags::ONLY_OWN));
                if heard.is_empty() {
                    continue;
                }
                let any = |flag| heard.iter().any(|flags| flags.has(flag));
                let full = own.is_none() || any(MonitorFlags::NO_ABBREV);
                let instructions = any(MonitorFlags::INSTRUCTIONS);
                match (full, own) {
                    (false, Some(own)) => {
                        let abbrev = Update::Abbrev(UpdateAbbrev { xid: Hex(own.xid) });
                        if updates.last() != Some(&abbrev) {
                            updates.push(abbrev);
                        }
                    }
                    _ => updates.extend(update(peer.version, event, instructions)),
                }
            }
            if !updates.is_empty() {
                let body = Body::MultipartReply(Multipart::whole(Reply::FlowMonitor(updates)));
                effects.tell([(*connection, peer.version)], &body);
            }
        }
    }

    /// 1.4 §7.4.6: a group-mod or meter-mod of one controller goes to the others that asked for it.
    pub(super) fn forward_request(&self, scene: &mut Scene<'_>, message: &Message) {
        let reason = match message.body {
            Body::GroupMod(_) => 0,
            Body::MeterMod(_) => 1,
            _ => return,
        };
        // Whoever can ask for it speaks 1.4, and reads what is inside as that.
        let Ok(bytes) = (Message { version: Version::V14, ..message.clone() }).encode() else { return };
        let body = Body::RequestForward(RequestForward { request: Raw(bytes) });
        let mut audience = self.roles.audience(Unasked::RequestForward, |_| reason);
        audience.retain(|(connection, _)| *connection != scene.from.connection);
        scene.effects.tell(audience, &body);
    }
}

impl Effects {
    /// Sends what nobody asked for to connections that speak these versions.
    pub(super) fn tell(&mut self, audience: impl IntoIterator<Item = (Conn, Version)>, body: &Body) {
        let message = |(connection, version)| (connection, Message { version, xid: 0, body: body.clone() });
        self.messages.extend(audience.into_iter().map(message));
    }
}

/// A frame for a controller, as a message. What it says was true when the frame was there.
pub fn packet_in_message(packet_in: &PacketIn, version: Version) -> Message {
    let reason = packet_in_reason(version, packet_in.reason);
    Message { version, xid: 0, body: Body::PacketIn(write_packet_in(packet_in, reason)) }
}

/// 1.3 has three reasons (§7.4.1); what came later was an action there.
fn packet_in_reason(version: Version, reason: PacketInReason) -> wire::PacketInReason {
    match (version, reason) {
        (Version::V13, PacketInReason::ActionSet | PacketInReason::Group | PacketInReason::PacketOut) => {
            wire::PacketInReason::APPLY_ACTION
        }
        _ => wire::PacketInReason(reason as u8),
    }
}

/// The pipeline fields of a packet-in: those that are not what they are by default (§7.4.1).
fn context(packet_in: &PacketIn) -> Match {
    let mut fields = vec![MatchField::exact(Field::InPort, packet_in.in_port.0)];
    if let Some(PortNo(port)) = packet_in.phy_port.filter(|port| *port != packet_in.in_port) {
        fields.push(MatchField::exact(Field::InPhyPort, port));
    }
    if packet_in.metadata != 0 {
        fields.push(MatchField::exact(Field::Metadata, packet_in.metadata));
    }
    if packet_in.tunnel_id != 0 {
        fields.push(MatchField::exact(Field::TunnelId, packet_in.tunnel_id));
    }
    Match::unchecked(fields)
}

fn write_packet_in(packet_in: &PacketIn, reason: wire::PacketInReason) -> wire::PacketIn {
    // A message has at most 65535 bytes; as much of a super-frame as fits is sent.
    let data = &packet_in.frame[..packet_in.frame.len().min(0xffff - 128)];
    wire::PacketIn {
        buffer_id: Hex(translate::NO_BUFFER),
        total_len: packet_in.total_len.min(usize::from(u16::MAX)) as u16,
        reason,
        table_id: packet_in.table,
        cookie: Hex(packet_in.cookie),
        matching: translate::write_match(&context(packet_in)),
        data: Bytes(data.to_vec()),
    }
}

fn write_removed(removed: &Removed, reason: wire::RemovedReason) -> wire::FlowRemoved {
    let rule = &removed.rule;
    let (duration_sec, duration_nsec) = duration(removed.duration_ns);
    wire::FlowRemoved {
        cookie: Hex(rule.cookie),
        priority: rule.priority,
        reason,
        table_id: removed.table,
        duration_sec,
        duration_nsec,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        packet_count: removed.frames,
        byte_count: removed.bytes,
        matching: translate::write_match(&rule.matching),
    }
}

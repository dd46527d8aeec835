//! What the Open Networking Foundation gave OpenFlow 1.3 before 1.4 had it.
//!
//! **What.** Extension 230, bundles: the two messages of 1.4 (§7.3.9) inside experimenter messages. Extension 187, flow
//! monitors: the question and the answer of 1.4 (§7.3.5.17) inside experimenter multiparts, in layouts of their own, and a
//! message that cancels a monitor. Their errors travel as experimenter errors. `ovs-ofctl -O OpenFlow13` speaks both
//! (`--bundle`, `monitor SWITCH watch:`).
//!
//! **Why.** What differs is the envelope and, for monitors, the order of the fields, so the codec takes it off and puts it
//! on, and nobody else knows.
//!
//! **Price.** In 1.3 a bundle's message shows as what it is in 1.4, not as the experimenter's that it travels as. The match
//! of a monitor has two forms: with the header of `ofp_match` (Open vSwitch, `ofputil_pull_ofp11_match` in
//! lib/ofp-monitor.c) and bare (os-ken). Both are read, the first is written.

use super::action::Instruction;
use super::bytes::{Hex, Part, Reader, Version, Writer, layout};
use super::fault::{self, Fault};
use super::oxm::{ExperimenterKind, Match};
use super::rule::{MonitorCommand, MonitorFlags, MonitorRequest, RemovedReason, UpdateFull};
use super::tree::Tree;
use crate::error::{BadMatch, BadRequest, FlowMonitorFailed};
use crate::rule::ANY_GROUP;

/// The Open Networking Foundation as an experimenter.
const ONF: u32 = 0x4f4e_4600;
/// Nicira as an experimenter: the errors of monitors are theirs (Open vSwitch, include/openvswitch/ofp-errors.h).
const NICIRA: u32 = 0x2320;
/// The number of the experimenter's message.
pub(crate) const KIND: u8 = 4;

/// Bytes of experimenter and type.
const ENVELOPE: usize = 8;
/// `ONF_ET_BUNDLE_CONTROL`; the message of a bundle is one more. Errors begin here, too.
const BUNDLE: u32 = 2300;
/// Messages of 1.4 with these numbers: bundle_control, and bundle_add_message after it.
const BUNDLE_CONTROL: u16 = 33;
/// The type of 1.4's errors of bundles (`OFPET_BUNDLE_FAILED`) and how many codes it has.
const BUNDLE_FAILED: u16 = 17;
const BUNDLE_CODES: u16 = 16;
/// `ONFMP_FLOW_MONITOR`, and the message that cancels one (`ONFT_FLOW_MONITOR_CANCEL`).
const MONITOR: u32 = 1870;
/// The multipart of 1.4 with monitors.
const FLOW_MONITOR: u16 = 16;
/// The type of 1.4's errors of monitors (`OFPET_FLOW_MONITOR_FAILED`), and which codes are which of Nicira's.
const MONITOR_FAILED: u16 = 16;
const MONITOR_CODES: [(FlowMonitorFailed, u16); 3] = [
    (FlowMonitorFailed::MonitorExists, 6),
    (FlowMonitorFailed::BadFlags, 7),
    (FlowMonitorFailed::UnknownMonitor, 8),
];

/// The number of the message in this envelope, what of the body is envelope, and whose layout the rest has.
pub(crate) fn inside(version: Version, kind: u8, body: &[u8]) -> (u16, usize, Version) {
    let word = |at: usize| Some(u32::from_be_bytes(*body.get(at..)?.first_chunk()?));
    match word(4).and_then(|exp_type| exp_type.checked_sub(BUNDLE)) {
        Some(which @ 0..2) if version == Version::V13 && kind == KIND && word(0) == Some(ONF) => {
            (BUNDLE_CONTROL + which as u16, ENVELOPE, Version::V14)
        }
        _ => (kind.into(), 0, version),
    }
}

/// The envelope in which a message travels in this version.
pub(crate) fn outside(version: Version, number: u16) -> Option<[u8; ENVELOPE]> {
    let which = number.checked_sub(BUNDLE_CONTROL).filter(|which| *which < 2)?;
    (version == Version::V13).then(|| envelope(BUNDLE + u32::from(which)))
}

fn envelope(exp_type: u32) -> [u8; ENVELOPE] {
    (u64::from(ONF) << 32 | u64::from(exp_type)).to_be_bytes()
}

/// The number of the multipart with this number, whose envelope is taken off.
pub(crate) fn multipart_inside(number: u16, r: &mut Reader<'_>) -> Result<u16, Fault> {
    match (r.version(), number) {
        (Version::V13, FLOW_MONITOR) => Err(BadRequest::BadMultipart.into()),
        (Version::V13, fault::EXPERIMENTER)
            if r.clone().take(ENVELOPE).is_ok_and(|e| e == envelope(MONITOR)) =>
        {
            r.skip(ENVELOPE)?;
            Ok(FLOW_MONITOR)
        }
        _ => Ok(number),
    }
}

/// The envelope in which a multipart travels in this version.
pub(crate) fn multipart_outside(version: Version, number: u16) -> Option<[u8; ENVELOPE]> {
    ((version, number) == (Version::V13, FLOW_MONITOR)).then(|| envelope(MONITOR))
}

/// The monitor that a message of 1.3 cancels; nothing when it is another message.
pub(crate) fn cancelled(version: Version, message: &ExperimenterKind) -> Option<Result<u32, Fault>> {
    let is_it = version == Version::V13 && (message.experimenter.0, message.exp_type) == (ONF, MONITOR);
    let id = <[u8; 4]>::try_from(message.data.0.as_slice()).map_err(|_| BadRequest::BadLen.into());
    is_it.then(|| id.map(u32::from_be_bytes))
}

/// An error of this version as 1.4 has it.
pub(crate) fn error_inside(fault: Fault, experimenter: Option<u32>) -> Option<Fault> {
    match experimenter.filter(|_| fault.kind == fault::EXPERIMENTER)? {
        ONF => {
            let code = fault.code.checked_sub(BUNDLE as u16).filter(|code| *code < BUNDLE_CODES)?;
            Some(Fault { kind: BUNDLE_FAILED, code })
        }
        NICIRA => {
            let (ours, _) = MONITOR_CODES.iter().find(|(_, code)| *code == fault.code)?;
            Some(Fault { kind: MONITOR_FAILED, code: *ours as u16 })
        }
        _ => None,
    }
}

/// An error of 1.4 as this version has it, and whose it is.
pub(crate) fn error_outside(version: Version, fault: Fault) -> Option<(u32, Fault)> {
    let theirs = |code: u16| Fault { kind: fault::EXPERIMENTER, code };
    match fault.kind {
        _ if version != Version::V13 => None,
        BUNDLE_FAILED if fault.code < BUNDLE_CODES => Some((ONF, theirs(BUNDLE as u16 + fault.code))),
        MONITOR_FAILED => {
            let (_, code) = MONITOR_CODES.iter().find(|(ours, _)| *ours as u16 == fault.code)?;
            Some((NICIRA, theirs(*code)))
        }
        _ => None,
    }
}

/// A monitor that is wanted, in 1.3. There it cannot be changed, and a message of its own cancels it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Monitor13 {
    monitor_id: u32,
    flags: MonitorFlags,
    out_port: u32,
    table_id: u8,
    matching: Match,
}

impl Part for Monitor13 {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (monitor_id, flags, length) = (Part::read(r)?, Part::read(r)?, u16::read(r)?);
        let (out_port, table_id) = (Part::read(r)?, Part::read(r)?);
        r.skip(3)?;
        let matching = read_match(r, length)?;
        Ok(Monitor13 { monitor_id, flags, out_port, table_id, matching })
    }
    fn write(&self, w: &mut Writer) {
        self.monitor_id.write(w);
        self.flags.write(w);
        match_length(&self.matching).write(w);
        self.out_port.write(w);
        self.table_id.write(w);
        w.zeros(3);
        self.matching.write(w);
    }
    fn tree(&self) -> Tree {
        MonitorRequest::from(self.clone()).tree()
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        Monitor13 {
            monitor_id: Part::sample(s),
            flags: Part::sample(s),
            out_port: Part::sample(s),
            table_id: Part::sample(s),
            matching: Part::sample(s),
        }
    }
}

/// A match of either form. One with a header begins with the type of an OXM match and `match_len`. A bare field that begins so
/// would be of class 1, Nicira's, and longer than the match.
fn read_match(r: &mut Reader<'_>, length: u16) -> Result<Match, Fault> {
    let header = [1u16.to_be_bytes(), length.to_be_bytes()].concat();
    if length > 0 && r.clone().take(4).is_ok_and(|begin| begin == header) {
        return Match::read(r);
    }
    let length = usize::from(length);
    let fields = Part::read(&mut r.part(length, BadMatch::BadLen)?)?;
    r.part(length.next_multiple_of(8) - length, BadMatch::BadLen)?;
    Ok(Match { fields })
}

/// The length that a match says of itself: without padding.
fn match_length(matching: &Match) -> u16 {
    let mut w = Writer::new(Version::V13);
    matching.fields.write(&mut w);
    (4 + w.at()) as u16
}

impl From<Monitor13> for MonitorRequest {
    fn from(old: Monitor13) -> Self {
        let Monitor13 { monitor_id, flags, out_port, table_id, matching } = old;
        let (out_group, command) = (ANY_GROUP, MonitorCommand::ADD);
        MonitorRequest { monitor_id, out_port, out_group, flags, table_id, command, matching }
    }
}

impl From<&MonitorRequest> for Monitor13 {
    fn from(new: &MonitorRequest) -> Self {
        let MonitorRequest { monitor_id, flags, out_port, table_id, .. } = *new;
        Monitor13 { monitor_id, flags, out_port, table_id, matching: new.matching.clone() }
    }
}

layout! {
    /// A change of a rule, in 1.3.
    pub struct Update13 "update" {
        /// Why it is gone.
        reason: u16;
        /// Higher wins.
        priority: u16;
        /// Seconds.
        idle_timeout: u16;
        /// Seconds.
        hard_timeout: u16;
        /// Of the match, without padding.
        match_len: u16;
        /// In which table.
        table_id: u8;
        _ 1;
        /// The controller's own number.
        cookie: Hex<u64>;
        /// Which frames.
        matching: Match;
        /// What to do with them, if asked for.
        instructions: Vec<Instruction>;
    }
}

impl From<Update13> for UpdateFull {
    fn from(old: Update13) -> Self {
        let Update13 {
            priority, idle_timeout, hard_timeout, table_id, cookie, matching, instructions, ..
        } = old;
        let reason = RemovedReason(old.reason as u8);
        UpdateFull { table_id, reason, idle_timeout, hard_timeout, priority, cookie, matching, instructions }
    }
}

impl From<&UpdateFull> for Update13 {
    fn from(new: &UpdateFull) -> Self {
        let UpdateFull { table_id, idle_timeout, hard_timeout, priority, cookie, .. } = *new;
        Update13 {
            reason: new.reason.0.into(),
            priority,
            idle_timeout,
            hard_timeout,
            match_len: match_length(&new.matching),
            table_id,
            cookie,
            matching: new.matching.clone(),
            instructions: new.instructions.clone(),
        }
    }
}

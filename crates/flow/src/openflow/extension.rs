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

use super::bytes::{FieldForm, Part, Reader, Version, Writer};
use super::fault::{self, Fault};
use super::oxm::{ExperimenterKind, Match};
use crate::error::{BadMatch, BadRequest, FlowMonitorFailed};

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
    match (r.version, number) {
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

/// The length of the match that stands further on: what it says of itself, without padding.
pub(crate) struct MatchLength;

impl FieldForm<Match> for MatchLength {
    fn read(&self, r: &mut Reader<'_>) -> Result<Match, Fault> {
        r.skip(2)?;
        Ok(Match::default())
    }
    fn write(&self, value: &Match, w: &mut Writer) {
        let mut fields = Writer::new(w.version);
        value.fields.write(&mut fields);
        (4 + fields.at() as u16).write(w);
    }
}

/// A match with or without header, whose length stands so many bytes before it. One with a header begins with the type of an OXM match
/// and that length. A bare field that begins so would be of class 1, Nicira's, and longer than the match.
pub(crate) struct MatchOfEitherForm(pub(crate) usize);

impl FieldForm<Match> for MatchOfEitherForm {
    fn read(&self, r: &mut Reader<'_>) -> Result<Match, Fault> {
        let length = r.behind16(self.0)?;
        let header = [1u16.to_be_bytes(), length.to_be_bytes()].concat();
        if length > 0 && r.clone().take(4).is_ok_and(|begin| begin == header) {
            return Match::read(r);
        }
        let length = usize::from(length);
        let fields = Part::read(&mut r.part(length, BadMatch::BadLen)?)?;
        r.part(length.next_multiple_of(8) - length, BadMatch::BadLen)?;
        Ok(Match { fields })
    }
}

/// Not written, and always this.
pub(crate) struct Always<T>(pub(crate) T);

impl<T: Part + Copy> FieldForm<T> for Always<T> {
    fn read(&self, _: &mut Reader<'_>) -> Result<T, Fault> {
        Ok(self.0)
    }
    fn write(&self, _: &T, _: &mut Writer) {}
    #[cfg(test)]
    fn sample(&self, _: &mut super::sample::Sampler) -> T {
        self.0
    }
}

//! What the Open Networking Foundation gave OpenFlow 1.3 before 1.4 had it.
//!
//! **What.** Extension 230, bundles: the two messages of 1.4 (§7.3.9) inside experimenter messages, and their errors inside
//! experimenter errors. `ovs-ofctl --bundle -O OpenFlow13` speaks it.
//!
//! **Why.** Only the envelope differs, so the codec takes it off and puts it on, and nobody else knows.
//!
//! **Price.** In 1.3 a bundle's message shows as what it is in 1.4, not as the experimenter's that it travels as.

use super::bytes::Version;
use super::fault::{self, Fault};

/// The Open Networking Foundation as an experimenter.
pub(crate) const ONF: u32 = 0x4f4e_4600;
/// The number of the experimenter's message.
pub(crate) const KIND: u8 = 4;

/// Bytes of experimenter and type.
const ENVELOPE: usize = 8;
/// `ONF_ET_BUNDLE_CONTROL`; the message of a bundle is one more. Errors begin here, too.
const BUNDLE: u32 = 2300;
/// Messages of 1.4 with these numbers: bundle_control, and bundle_add_message behind it.
const BUNDLE_CONTROL: u16 = 33;
/// The type of 1.4's errors of bundles (`OFPET_BUNDLE_FAILED`) and how many codes it has.
const BUNDLE_FAILED: u16 = 17;
const BUNDLE_CODES: u16 = 16;

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

/// The experimenter's type in whose envelope a message travels in this version.
pub(crate) fn outside(version: Version, number: u16) -> Option<u32> {
    let which = number.checked_sub(BUNDLE_CONTROL).filter(|which| *which < 2)?;
    (version == Version::V13).then_some(BUNDLE + u32::from(which))
}

/// An error of this version as 1.4 has it: the code is the extension's.
pub(crate) fn error_inside(fault: Fault, experimenter: Option<u32>) -> Option<Fault> {
    let code = fault.code.checked_sub(BUNDLE as u16).filter(|code| *code < BUNDLE_CODES)?;
    let is_ours = fault.kind == fault::EXPERIMENTER && experimenter == Some(ONF);
    is_ours.then_some(Fault { kind: BUNDLE_FAILED, code })
}

/// An error of 1.4 as this version has it.
pub(crate) fn error_outside(version: Version, fault: Fault) -> Option<Fault> {
    let is_ours = version == Version::V13 && fault.kind == BUNDLE_FAILED && fault.code < BUNDLE_CODES;
    is_ours.then(|| Fault { kind: fault::EXPERIMENTER, code: BUNDLE as u16 + fault.code })
}

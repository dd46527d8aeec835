//! Why a message is refused, in the numbers that OpenFlow sends back.
//!
//! **What.** A [`Fault`] is the type and code of an error message (OpenFlow 1.3.5 section 7.4.4, 1.4.1 section 7.5.4). The names are the
//! model's ([`Error`]); here are the pairs that bytes alone can earn.
//!
//! **Why.** The codec, the channel and the agent all refuse; a controller must be able to tell exactly what. **Price.** A pair is
//! two numbers, because what another switch sends may have no name.

use super::version::Version;
use crate::error::{self, Error};
use std::fmt;

/// Type and code of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// `OFPET_…`.
    pub kind: u16,
    /// The code within the type.
    pub code: u16,
}

/// The type of an error that an experimenter defines.
pub const EXPERIMENTER: u16 = 0xffff;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let (kind, code) = error.numbers();
        Fault { kind, code }
    }
}

/// The faults that bytes alone can have; the model has the others.
macro_rules! faults {
    ($($CONST:ident = $kind:literal $Kind:ident::$Code:ident;)*) => {
        impl Fault {
            $(
                #[doc = concat!("`", stringify!($Kind), "/", stringify!($Code), "`.")]
                pub const $CONST: Fault = Fault { kind: $kind, code: error::$Kind::$Code as u16 };
            )*
        }
    };
}

faults! {
    ROLE_STALE = 11 RoleRequestFailed::Stale;
    ROLE_BAD_ROLE = 11 RoleRequestFailed::BadRole;
    REQUEST_MULTIPART_REQUEST_TIMEOUT = 1 BadRequest::MultipartRequestTimeout;
    REQUEST_IS_SLAVE = 1 BadRequest::IsSlave;
    PROPERTY_DUP_TYPE = 14 BadProperty::DupType;
    PROPERTY_BAD_EXPERIMENTER = 14 BadProperty::BadExperimenter;
    ASYNC_INVALID = 15 AsyncConfigFailed::Invalid;
    ACTION_BAD_LEN = 2 BadAction::BadLen;
    ACTION_BAD_TYPE = 2 BadAction::BadType;
    BUNDLE_MSG_BAD_LEN = 17 BundleFailed::MsgBadLen;
    HELLO_EPERM = 0 HelloFailed::Eperm;
    HELLO_INCOMPATIBLE = 0 HelloFailed::Incompatible;
    INSTRUCTION_BAD_LEN = 3 BadInstruction::BadLen;
    INSTRUCTION_UNKNOWN_INST = 3 BadInstruction::UnknownInst;
    MATCH_BAD_LEN = 4 BadMatch::BadLen;
    MATCH_BAD_TYPE = 4 BadMatch::BadType;
    METER_MOD_BAD_BAND = 12 MeterModFailed::BadBand;
    PROPERTY_BAD_LEN = 14 BadProperty::BadLen;
    PROPERTY_BAD_TYPE = 14 BadProperty::BadType;
    REQUEST_BAD_LEN = 1 BadRequest::BadLen;
    REQUEST_BAD_MULTIPART = 1 BadRequest::BadMultipart;
    REQUEST_BAD_TYPE = 1 BadRequest::BadType;
    REQUEST_BAD_VERSION = 1 BadRequest::BadVersion;
    REQUEST_MULTIPART_BUFFER_OVERFLOW = 1 BadRequest::MultipartBufferOverflow;
    TABLE_FEATURES_BAD_LEN = 13 TableFeaturesFailed::BadLen;
    TABLE_FEATURES_BAD_TYPE = 13 TableFeaturesFailed::BadType;
}

impl Fault {
    /// The model's error of these numbers, if the standard has it.
    pub fn error(self) -> Option<Error> {
        Error::from_numbers(self.kind, self.code)
    }

    /// The name of the type and the name of the code, where the standard has them.
    pub fn names(self) -> (Option<String>, Option<String>) {
        let names = self.error().map(Error::name).unwrap_or_default();
        match names.split_once('/') {
            Some((kind, code)) => (Some(kind.to_owned()), Some(code.to_owned())),
            None if self.kind == EXPERIMENTER => (Some("Experimenter".to_owned()), None),
            None => (None, None),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error() {
            Some(error) => write!(f, "{} ({error})", error.name()),
            None => write!(f, "error type {} code {}", self.kind, self.code),
        }
    }
}

impl std::error::Error for Fault {}

/// The two faults of a type-length-value.
#[derive(Debug, Clone, Copy)]
pub struct Bad {
    /// Its type is not known.
    pub kind: Fault,
    /// Its length cannot be.
    pub length: Fault,
}

/// Of an action.
pub(crate) fn action(_: Version) -> Bad {
    Bad { kind: Fault::ACTION_BAD_TYPE, length: Fault::ACTION_BAD_LEN }
}

/// Of an instruction.
pub(crate) fn instruction(_: Version) -> Bad {
    Bad { kind: Fault::INSTRUCTION_UNKNOWN_INST, length: Fault::INSTRUCTION_BAD_LEN }
}

/// Of a band.
pub(crate) fn band(_: Version) -> Bad {
    Bad { kind: Fault::METER_MOD_BAD_BAND, length: Fault::REQUEST_BAD_LEN }
}

/// Of a property. OpenFlow 1.3 has them in hello, queues and table features only, and no error type of their own.
pub(crate) fn property(version: Version) -> Bad {
    match version {
        Version::V13 => Bad { kind: Fault::REQUEST_BAD_TYPE, length: Fault::REQUEST_BAD_LEN },
        Version::V14 => Bad { kind: Fault::PROPERTY_BAD_TYPE, length: Fault::PROPERTY_BAD_LEN },
    }
}

/// Of a property of table features: OpenFlow 1.4 moved its codes to the properties in general.
pub(crate) fn table_property(version: Version) -> Bad {
    match version {
        Version::V13 => Bad { kind: Fault::TABLE_FEATURES_BAD_TYPE, length: Fault::TABLE_FEATURES_BAD_LEN },
        Version::V14 => property(version),
    }
}

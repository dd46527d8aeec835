//! Why a message is refused, in the numbers that OpenFlow sends back.
//!
//! **What.** A [`Fault`] is the type and code of an error message (OpenFlow 1.3.5 section 7.4.4, 1.4.1 section 7.5.4). The names are the
//! model's ([`Error`]), each of which is a fault.
//!
//! **Why.** The codec, the channel and the agent all refuse; a controller must be able to tell exactly what. **Price.** A pair is
//! two numbers, because what another switch sends may have no name.

use crate::error::Error;
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

impl<E: Into<Error>> From<E> for Fault {
    fn from(error: E) -> Fault {
        let (kind, code) = error.into().numbers();
        Fault { kind, code }
    }
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

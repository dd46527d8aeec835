//! The versions of OpenFlow that are spoken here.
//!
//! **Why.** Layouts and faults differ by version, and need each other. **Price.** A version is a case in every `match` that
//! differs.

/// Which OpenFlow a message speaks: the first byte of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// OpenFlow 1.3, wire number 4.
    #[default]
    V13,
    /// OpenFlow 1.4, wire number 5.
    V14,
}

impl Version {
    /// Both, oldest first.
    pub const ALL: [Version; 2] = [Version::V13, Version::V14];

    /// The number in the header.
    pub const fn number(self) -> u8 {
        match self {
            Version::V13 => 4,
            Version::V14 => 5,
        }
    }

    /// The version with this number, if it is spoken here.
    pub fn from_number(number: u8) -> Option<Version> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Version::V13 => "1.3",
            Version::V14 => "1.4",
        })
    }
}

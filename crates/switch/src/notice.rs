//! What a switch reports while it runs.

use flow::port::PortNo;

/// What happened, to be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchNotice {
    /// A connection agreed on a version.
    Up {
        /// The other end.
        who: String,
        /// The version.
        version: String,
    },
    /// A connection ended.
    Down {
        /// The other end.
        who: String,
        /// Why.
        why: String,
    },
    /// A controller cannot be reached, or ends the connection before its hello; said once until it is up.
    Unreachable {
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
    /// Something happened to the interface of a port.
    Port {
        /// The port.
        port: PortNo,
        /// What.
        what: String,
    },
    /// The rules cannot be compiled; they are interpreted.
    Interpreted {
        /// Why.
        what: String,
    },
    /// What of the rules the kernel carries out, or why it does not.
    Kernel {
        /// In words.
        what: String,
    },
    /// A caller did not get as far as the hello; reported at most once a second.
    Refused {
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
}

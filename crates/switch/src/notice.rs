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
    /// A controller cannot be reached, or ends the connection before its hello; said again when the reason is another one.
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

/// Why something that is tried again and again failed last: only another reason is said.
#[derive(Debug, Default)]
pub(crate) struct LastReason(Option<String>);

impl LastReason {
    /// Takes a reason; whether it is another one than last time.
    pub(crate) fn is_new(&mut self, why: &str) -> bool {
        let is_new = self.0.as_deref() != Some(why);
        self.0 = Some(why.to_owned());
        is_new
    }

    /// It went well: the next reason is new.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

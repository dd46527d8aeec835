//! The errors of a switch.
//!
//! **What.** One enum per error type of §7.5.4 (and 1.4 §7.5.4), one name per code, in the standard's order: the
//! discriminant is the code.
//!
//! **Why.** A controller reacts to (type, code); so that is what the model returns, and a codec has nothing to decide.
//!
//! **Price.** Codes that only a codec can find (a bad length) have their names here, too: one place for all.

use std::fmt;

/// Declares the error types, each with its number, a sentence and its codes, and the enum of all of them.
macro_rules! errors {
    ($($(#[$doc:meta])* $Kind:ident = $kind:literal $sentence:literal {
        $($Code:ident = $code:literal $text:literal,)+
    })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[repr(u16)]
            pub enum $Kind {
                $(#[doc = $text] $Code = $code,)+
            }

            impl fmt::Display for $Kind {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(match self { $($Kind::$Code => $text,)+ })
                }
            }

            impl From<$Kind> for Error {
                fn from(code: $Kind) -> Error {
                    Error::$Kind(code)
                }
            }
        )+

        /// An error that a switch answers: a type and a code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Error {
            $(#[doc = $sentence] $Kind($Kind),)+
        }

        impl Error {
            /// The number of the type and of the code.
            pub fn numbers(self) -> (u16, u16) {
                match self { $(Error::$Kind(code) => ($kind, code as u16),)+ }
            }

            /// The error with these numbers.
            pub fn from_numbers(kind: u16, code: u16) -> Option<Error> {
                match (kind, code) { $($(($kind, $code) => Some($Kind::$Code.into()),)+)+ _ => None }
            }

            /// The standard's name, e.g. `BadMatch/BadPrereq` for `OFPET_BAD_MATCH`/`OFPBMC_BAD_PREREQ`.
            pub fn name(self) -> String {
                match self { $(Error::$Kind(code) => format!("{}/{code:?}", stringify!($Kind)),)+ }
            }
        }

        impl fmt::Display for Error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Error::$Kind(code) => write!(f, "{}: {code}", $sentence),)+ }
            }
        }
    };
}

errors! {
    /// `OFPET_HELLO_FAILED`.
    HelloFailed = 0 "the hello was refused" {
        Incompatible = 0 "no version in common",
        Eperm = 1 "not allowed",
    }
    /// `OFPET_BAD_REQUEST`. The last two are of 1.4.
    BadRequest = 1 "the request was refused" {
        BadVersion = 0 "the version is not supported",
        BadType = 1 "the type is not supported",
        BadMultipart = 2 "the multipart type is not supported",
        BadExperimenter = 3 "the experimenter is not known",
        BadExpType = 4 "the experimenter's type is not known",
        Eperm = 5 "not allowed",
        BadLen = 6 "the length is wrong for the type",
        BufferEmpty = 7 "the buffer was already used",
        BufferUnknown = 8 "the buffer does not exist",
        BadTableId = 9 "the table does not exist",
        IsSlave = 10 "this controller is a slave",
        BadPort = 11 "the port does not exist or may not be used here",
        BadPacket = 12 "the frame of the packet-out is not valid",
        MultipartBufferOverflow = 13 "the multipart request is too long",
        MultipartRequestTimeout = 14 "the multipart request was not finished in time",
        MultipartReplyTimeout = 15 "the multipart reply was not finished in time",
    }
    /// `OFPET_BAD_ACTION`.
    BadAction = 2 "an action was refused" {
        BadType = 0 "the type is not known",
        BadLen = 1 "the length is wrong",
        BadExperimenter = 2 "the experimenter is not known",
        BadExpType = 3 "the experimenter's type is not known",
        BadOutPort = 4 "the port cannot be an output",
        BadArgument = 5 "the argument is not valid",
        Eperm = 6 "not allowed",
        TooMany = 7 "there are too many actions",
        BadQueue = 8 "the queue does not exist",
        BadOutGroup = 9 "the group does not exist",
        MatchInconsistent = 10 "it cannot apply to the frames of the match, or a set-field lacks its prerequisite",
        UnsupportedOrder = 11 "the order of the actions is not supported",
        BadTag = 12 "the ethertype of the tag is not supported",
        BadSetType = 13 "the field cannot be set",
        BadSetLen = 14 "the length of the field to set is wrong",
        BadSetArgument = 15 "the value of the field to set is not valid",
    }
    /// `OFPET_BAD_INSTRUCTION`. `DupInst` is of 1.4; 1.3 has no code for it (switches say `UnsupInst`).
    BadInstruction = 3 "an instruction was refused" {
        UnknownInst = 0 "the instruction is not known",
        UnsupInst = 1 "the instruction is not supported",
        BadTableId = 2 "the next table does not exist or is not a later one",
        UnsupMetadata = 3 "the metadata value is not supported",
        UnsupMetadataMask = 4 "the metadata mask is not supported",
        BadExperimenter = 5 "the experimenter is not known",
        BadExpType = 6 "the experimenter's type is not known",
        BadLen = 7 "the length is wrong",
        Eperm = 8 "not allowed",
        DupInst = 9 "an instruction is given twice",
    }
    /// `OFPET_BAD_MATCH`.
    BadMatch = 4 "the match was refused" {
        BadType = 0 "the type of the match is not supported",
        BadLen = 1 "the length is wrong",
        BadTag = 2 "the tag or encapsulation is not supported",
        BadDlAddrMask = 3 "the mask of the Ethernet address is not supported",
        BadNwAddrMask = 4 "the mask of the network address is not supported",
        BadWildcards = 5 "a bit of the value is set outside the mask",
        BadField = 6 "the field is not known",
        BadValue = 7 "the value is not one that the field can have",
        BadMask = 8 "the field takes no mask, or not this one",
        BadPrereq = 9 "the field's prerequisite does not stand before it",
        DupField = 10 "the field stands there twice",
        Eperm = 11 "not allowed",
    }
    /// `OFPET_FLOW_MOD_FAILED`. The last two are of 1.4.
    FlowModFailed = 5 "the flow-mod was refused" {
        Unknown = 0 "unspecified",
        TableFull = 1 "the table is full",
        BadTableId = 2 "the table does not exist",
        Overlap = 3 "a rule of the same priority overlaps",
        Eperm = 4 "not allowed",
        BadTimeout = 5 "the timeout is not supported",
        BadCommand = 6 "the command is not known",
        BadFlags = 7 "the flags are not supported",
        CantSync = 8 "the table cannot be synchronised",
        BadPriority = 9 "the priority is not supported",
    }
    /// `OFPET_GROUP_MOD_FAILED`.
    GroupModFailed = 6 "the group-mod was refused" {
        GroupExists = 0 "the group exists already",
        InvalidGroup = 1 "the group is not valid",
        WeightUnsupported = 2 "unequal weights are not supported",
        OutOfGroups = 3 "there are too many groups",
        OutOfBuckets = 4 "there are too many buckets",
        ChainingUnsupported = 5 "groups cannot send to groups",
        WatchUnsupported = 6 "the group cannot watch what it should",
        Loop = 7 "the group would send to itself",
        UnknownGroup = 8 "the group does not exist",
        ChainedGroup = 9 "another group sends to this one",
        BadType = 10 "the type is not known",
        BadCommand = 11 "the command is not known",
        BadBucket = 12 "a bucket is not valid",
        BadWatch = 13 "the port or group to watch is not valid",
        Eperm = 14 "not allowed",
    }
    /// `OFPET_PORT_MOD_FAILED`.
    PortModFailed = 7 "the port-mod was refused" {
        BadPort = 0 "the port does not exist",
        BadHwAddr = 1 "the address is not the port's",
        BadConfig = 2 "the configuration is not valid",
        BadAdvertise = 3 "the advertised features are not valid",
        Eperm = 4 "not allowed",
    }
    /// `OFPET_TABLE_MOD_FAILED`.
    TableModFailed = 8 "the table-mod was refused" {
        BadTable = 0 "the table does not exist",
        BadConfig = 1 "the configuration is not valid",
        Eperm = 2 "not allowed",
    }
    /// `OFPET_QUEUE_OP_FAILED`.
    QueueOpFailed = 9 "the queue operation was refused" {
        BadPort = 0 "the port does not exist",
        BadQueue = 1 "the queue does not exist",
        Eperm = 2 "not allowed",
    }
    /// `OFPET_SWITCH_CONFIG_FAILED`.
    SwitchConfigFailed = 10 "the switch configuration was refused" {
        BadFlags = 0 "the flags are not supported",
        BadLen = 1 "the miss_send_len is not valid",
        Eperm = 2 "not allowed",
    }
    /// `OFPET_ROLE_REQUEST_FAILED`.
    RoleRequestFailed = 11 "the role was refused" {
        Stale = 0 "the generation is older than one that was seen",
        Unsup = 1 "the role is not supported",
        BadRole = 2 "the role is not known",
    }
    /// `OFPET_METER_MOD_FAILED`.
    MeterModFailed = 12 "the meter-mod was refused" {
        Unknown = 0 "unspecified",
        MeterExists = 1 "the meter exists already",
        InvalidMeter = 2 "the meter is not valid",
        UnknownMeter = 3 "the meter does not exist",
        BadCommand = 4 "the command is not known",
        BadFlags = 5 "the flags are not supported",
        BadRate = 6 "the rate is not supported",
        BadBurst = 7 "the burst size is not supported",
        BadBand = 8 "the band is not supported",
        BadBandValue = 9 "the band's value is not supported",
        OutOfMeters = 10 "there are too many meters",
        OutOfBands = 11 "there are too many bands",
    }
    /// `OFPET_TABLE_FEATURES_FAILED`.
    TableFeaturesFailed = 13 "the table features were refused" {
        BadTable = 0 "the table does not exist",
        BadMetadata = 1 "the metadata mask is not valid",
        BadType = 2 "the property is not known",
        BadLen = 3 "the length of a property is wrong",
        BadArgument = 4 "the value of a property is not supported",
        Eperm = 5 "not allowed",
    }
    /// `OFPET_BAD_PROPERTY`, of 1.4.
    BadProperty = 14 "a property was refused" {
        BadType = 0 "the type is not known",
        BadLen = 1 "the length is wrong",
        BadValue = 2 "the value is not supported",
        TooMany = 3 "there are too many properties",
        DupType = 4 "a property is given twice",
        BadExperimenter = 5 "the experimenter is not known",
        BadExpType = 6 "the experimenter's type is not known",
        BadExpValue = 7 "the experimenter's value is not known",
        Eperm = 8 "not allowed",
    }
    /// `OFPET_ASYNC_CONFIG_FAILED`, of 1.4.
    AsyncConfigFailed = 15 "the asynchronous configuration was refused" {
        Invalid = 0 "a mask is not valid",
        Unsupported = 1 "the configuration is not supported",
        Eperm = 2 "not allowed",
    }
    /// `OFPET_FLOW_MONITOR_FAILED`, of 1.4.
    FlowMonitorFailed = 16 "the flow monitor was refused" {
        Unknown = 0 "unspecified",
        MonitorExists = 1 "the monitor exists already",
        InvalidMonitor = 2 "the monitor is not valid",
        UnknownMonitor = 3 "the monitor does not exist",
        BadCommand = 4 "the command is not known",
        BadFlags = 5 "the flags are not supported",
        BadTableId = 6 "the table does not exist",
        BadOut = 7 "the output port or group is not valid",
    }
    /// `OFPET_BUNDLE_FAILED`, of 1.4.
    BundleFailed = 17 "the bundle was refused" {
        Unknown = 0 "unspecified",
        Eperm = 1 "not allowed",
        BadId = 2 "the bundle does not exist",
        BundleExist = 3 "the bundle exists already",
        BundleClosed = 4 "the bundle is closed",
        OutOfBundles = 5 "there are too many bundles",
        BadType = 6 "the type is not known",
        BadFlags = 7 "the flags are not supported or not consistent",
        MsgBadLen = 8 "the length of a message is wrong",
        MsgBadXid = 9 "the xid of a message is not that of the bundle's message",
        MsgUnsup = 10 "the message is not allowed in a bundle",
        MsgConflict = 11 "the messages conflict with each other",
        MsgTooMany = 12 "there are too many messages",
        MsgFailed = 13 "a message failed",
        Timeout = 14 "the bundle took too long",
        BundleInProgress = 15 "a bundle in progress locks the resource",
    }
}

impl std::error::Error for Error {}

//! What is written down.
//!
//! **What.** The words that every other part of pathlab shares: a counter, a snapshot of many counters at one
//! instant, a latency distribution, a test and its result, the ledger of a path, a run. Everything here is plain
//! data that serialises to the documented JSON (`docs/json.md`).
//!
//! **Why here.** The crate that computes ([`study`](../study/index.html)) must never see the machine, and the crate
//! that reads the machine must not know what is concluded. They meet in these types and nowhere else, so a run
//! recorded on another host gives the same findings.
//!
//! **Price.** No I/O, no clock and no `unsafe`: time arrives as an argument in nanoseconds.

pub mod bench;
pub mod buckets;
pub mod capture;
pub mod case;
pub mod conditions;
pub mod connection;
pub mod counter;
pub mod delta;
pub mod drop;
pub mod drops;
pub mod facts;
pub mod finding;
pub mod flow;
pub mod follow;
pub mod half;
pub mod histogram;
pub mod host;
pub mod kind;
pub mod knob;
pub mod layers;
pub mod ledger;
pub mod line;
pub mod llstat;
pub mod observation;
pub mod path;
pub mod port;
pub mod prefix;
pub mod problem;
pub mod rate;
pub mod run;
pub mod search;
pub mod send;
pub mod snapshot;
pub mod spec;
pub mod tcp;
pub mod time;
pub mod traffic;
pub mod trial;
pub mod unit;
pub mod validity;
pub mod verdict;
pub mod watch;

pub use buckets::{Buckets, Distribution};
pub use conditions::{ConditionReading, Conditions};
pub use delta::Delta;
pub use facts::{Fact, Facts, Known, NodeFacts};
pub use finding::{Finding, Limit, Severity};
pub use flow::{FlowCount, FlowInterface, FlowObservation, FlowPlace};
pub use histogram::{Histogram, Latency};
pub use host::{HostFacts, HostInterface};
pub use kind::TrafficKind;
pub use layers::LayerObservation;
pub use ledger::{Drop, DropSource, Ledger, NamedCount, Station, StationKind, Witness, WitnessStatus};
pub use observation::{HostObservation, ViaHost};
pub use path::{Hop, NodeRole, Path};
pub use port::{PORT_KINDS, PlaceDrop, PortKind, PortSetting, StampReport, StampSeen, Through};
pub use prefix::Prefix;
pub use problem::{Problem, ProblemKind, Result};
pub use rate::Rate;
pub use run::{ActorUsage, OtherWork, PathVariant, RunRecord, TestRecord};
pub use snapshot::Snapshot;
pub use spec::TestSpec;
pub use tcp::TcpSample;
pub use time::TimeObservation;
pub use traffic::{EndReport, Interval};
pub use validity::{Trust, Validity};

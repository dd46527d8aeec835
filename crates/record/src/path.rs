//! The way that frames of a test take, node by node.

use serde::{Deserialize, Serialize};

/// What a node does with a frame on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Makes it.
    Sender,
    /// Forwards it by MAC address (kernel bridge).
    Bridge,
    /// Forwards it by IP address.
    Router,
    /// Hands it on in user space: `pathlab switch`, `pathlab null`, Open vSwitch.
    Forwarder,
    /// Takes it.
    Receiver,
}

/// One node on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The node's name.
    pub node: String,
    /// What it does.
    pub role: NodeRole,
    /// The interface where frames come in; none at the sender.
    pub ingress: Option<String>,
    /// The interface where frames go out; none at the receiver.
    pub egress: Option<String>,
    /// The bridge device between them, if the role is [`NodeRole::Bridge`].
    pub bridge: Option<String>,
}

/// The way of a test: there, and back if responses are part of the test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// From sender to receiver.
    pub forward: Vec<Hop>,
    /// From receiver to sender (request/response and ping), else empty.
    pub back: Vec<Hop>,
    /// How the way was found: `frames` (where they were counted), `routes` (asked from the kernel) or `topology` (the text file,
    /// when routing gave none).
    pub source: String,
}

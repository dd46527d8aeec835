//! A spot on the path with all that its stations may ask of it.

use record::{EndReport, Hop, NodeRole};

/// Where on its way a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// The application that sends.
    Start,
    /// A node on the way.
    Hop(NodeRole),
    /// Where a round trip turns.
    Turn,
    /// The application that receives at last.
    End,
}

/// The nodes that frames leave by an interface.
pub const LEFT_AGAIN: &[Spot] = &[
    Spot::Hop(NodeRole::Sender),
    Spot::Hop(NodeRole::Bridge),
    Spot::Hop(NodeRole::Router),
    Spot::Hop(NodeRole::Forwarder),
];

/// What a station is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// No interface.
    Node,
    /// The interface that frames come in by.
    Ingress,
    /// The interface that they leave by.
    Egress,
    /// The same, with the other end of its link.
    Wire,
    /// The bridge.
    Bridge,
}

/// A spot on the path with all that its stations may ask.
pub struct Visit<'a> {
    pub spot: Spot,
    pub node: &'a str,
    pub ingress: Option<&'a str>,
    pub egress: Option<&'a str>,
    pub bridge: Option<&'a str>,
    /// The node at the other end of the link, where that is known.
    pub next: Option<&'a Hop>,
    /// What the application at this end of the path saw.
    pub end: &'a EndReport,
    /// What left it by the counters of the flow itself, where these alone can say.
    pub counted: Option<u64>,
    /// The socket of that application, where datagrams come to it through one.
    pub socket: Option<SocketView>,
}

impl<'a> Visit<'a> {
    /// A node on the way.
    pub fn hop(hop: &'a Hop, next: Option<&'a Hop>, end: &'a EndReport) -> Self {
        Visit {
            spot: Spot::Hop(hop.role),
            node: &hop.node,
            ingress: hop.ingress.as_deref(),
            egress: hop.egress.as_deref(),
            bridge: hop.bridge.as_deref(),
            next,
            end,
            counted: None,
            socket: None,
        }
    }

    /// An application.
    pub fn end(spot: Spot, node: &'a str, end: &'a EndReport, socket: Option<SocketView>) -> Self {
        Visit {
            spot,
            node,
            ingress: None,
            egress: None,
            bridge: None,
            next: None,
            end,
            counted: None,
            socket,
        }
    }

    /// The interface at this place.
    pub fn interface(&self, place: Place) -> Option<&'a str> {
        match place {
            Place::Node => None,
            Place::Ingress => self.ingress,
            Place::Egress | Place::Wire => self.egress,
            Place::Bridge => self.bridge,
        }
    }

    /// What came to the end of the path and is not of the test.
    pub fn strangers(&self) -> u64 {
        let mine = self.end.read();
        let reads = self.socket.as_ref().map_or(0, |socket| socket.reads);
        reads.saturating_sub(mine).saturating_add(self.end.foreign)
    }
}

/// What is known about the datagram socket at one end.
pub struct SocketView {
    /// Datagrams read, by the kernel's count (or the application's).
    pub reads: u64,
    /// Datagrams that did not fit while the application read.
    pub full: u64,
    /// Datagrams that did not fit when it had ended and nobody read any more, although its socket was still
    /// open.
    pub late: u64,
    /// The most that can be in its queue.
    pub room: u64,
    /// UDP's own errors: memory, checksum, socket filter.
    pub memory: u64,
    pub checksum: u64,
    pub refused: u64,
    /// Where `full` was read.
    pub evidence: String,
}

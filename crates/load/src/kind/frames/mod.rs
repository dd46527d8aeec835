//! Raw frames, one direction: from a port of the sending node to a port of the receiving node.
//!
//! **What.** Each frame is a UDP datagram from the one node's address to the other's, with right checksums and the test's
//! message ([`wire::message`]) in its payload, so bridges and routers carry it as they carry any other. The sender
//! ([`sender`]) hands it to a port instead of a socket; the receiver ([`receiver`]) reads it from a port on the last
//! interface. Schedule, numbers, latency and reports are those of [`crate::kind::udp_stream`].
//!
//! **Why.** Sockets cost more than the path: a port offers and counts several times as many frames, and the station that
//! is measured is the interface, not the UDP layer of two hosts.
//!
//! **What the two hosts do besides.** Both ends hold their UDP port with an ordinary socket. The sender's probes leave by
//! it before the test, so its kernel resolves the next node's hardware address and the bridges learn; the receiver
//! answers them by its own. Otherwise the receiver's socket throws away everything: the kernel of the receiving node sees
//! a copy of every frame behind the port, and without a socket it would answer each with "port unreachable". These
//! copies are no part of the path; the ledger ends at the port.
//!
//! **Price.** Needs the right to open packet sockets. The hardware address is looked up once: a next node that changes it
//! during a test loses the rest.

mod flow;
mod receiver;
mod sender;
mod template;

pub use receiver::receiver;
pub use sender::sender;
pub use template::shortest;

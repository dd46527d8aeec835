//! What every kind of traffic is made of: sockets, bursts, arrivals, plans, time. Knows no kind.

pub mod arrivals;
pub mod ask;
pub mod datagram;
pub mod end;
pub mod intervals;
pub mod paced;
pub mod ports;
pub mod samples;
pub mod schedule;
pub mod sent_times;
pub mod sequence;
pub mod tcp;
pub mod threads;
pub mod udp;

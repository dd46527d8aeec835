//! The packet sockets by which programs take frames from an interface, and what waits in any socket.
//!
//! What did not fit into the packet sockets of a program the kernel counts at the socket, whatever the
//! program is and whether or not it tells. A capture beside it has such sockets, too; what those lose is no
//! loss of the path.

use super::book::Readings;
use super::gap::Gap;
use super::visit::Visit;
use super::window::MOST;
use record::delta::sum;
use record::drop;
use record::snapshot::PacketSocketSample;
use record::unit::count;

/// Memory that the kernel accounts for a queued datagram beyond its payload, at the very least.
const LEAST_OVERHEAD: u64 = 256;
/// Buffers that the kernel dropped at the packet sockets by which the programs of a node take frames from an
/// interface, and datagrams that may still wait there.
pub fn at_sockets(book: &Readings, at: &Visit) -> (u64, u64) {
    let sockets = sockets(book, at);
    let dropped = sum(sockets.iter().map(|(_, drops)| *drops));
    (dropped.min(MOST), waiting(book, &sockets))
}

fn sockets<'a>(book: &Readings<'a>, at: &Visit) -> Vec<(&'a PacketSocketSample, u64)> {
    book.test.packet_sockets(at.node, at.ingress.unwrap_or_default(), hands_on)
}

/// Gives both to the gap, as far as it needs them; `told` of the drops have a name already, from the program
/// itself.
pub fn packet_sockets(book: &mut Readings, gap: &mut Gap, at: &Visit, mut told: u64) {
    let sockets = sockets(book, at);
    for &(socket, drops) in &sockets {
        let twice = told.min(drops);
        told -= twice;
        let evidence = format!(
            "the packet socket of {} on {} dropped {} with SO_RCVBUF {}",
            socket.owner,
            at.ingress.unwrap_or_default(),
            count(drops),
            count(socket.receive_buffer_bytes)
        );
        let key = format!("packet socket {}", socket.inode);
        book.give(gap, &key, drops - twice, drop::SOCKET_BUFFER_FULL, evidence);
    }
    gap.queued = i64::try_from(gap.surely_open().min(waiting(book, &sockets))).unwrap_or(0);
}

/// The ends of the test have packet sockets of their own, and so have captures, which nobody knows.
fn hands_on(owner: &str) -> bool {
    !matches!(owner, "" | "sender" | "receiver")
}

/// The most datagrams that can wait in packet sockets.
pub fn waiting(book: &Readings, sockets: &[(&PacketSocketSample, u64)]) -> u64 {
    let waiting = |socket: &PacketSocketSample| most_waiting(book, socket.receive_queue_bytes);
    sum(sockets.iter().map(|(socket, _)| waiting(socket))).min(MOST)
}

/// The most datagrams that can wait in so many bytes of a socket's memory.
pub fn most_waiting(book: &Readings, bytes: u64) -> u64 {
    let overhead = if book.unit.per_buffer > 1 { 0 } else { LEAST_OVERHEAD };
    (bytes / (book.unit.ip_length + overhead).max(1)).min(MOST)
}

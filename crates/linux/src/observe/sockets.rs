//! Datagram sockets: `/proc/net/{udp,udp6,raw,raw6,icmp,icmp6}`.
//!
//! The last column is the socket's own drop count, which equals its share of `Udp.RcvbufErrors` and others. Queue bytes
//! are memory with the kernel's overhead (`truesize`), not payload.

use record::snapshot::SocketSample;

/// The files, which are also the names of the protocols.
pub const FILES: [&str; 6] = ["udp", "udp6", "raw", "raw6", "icmp", "icmp6"];

/// Reads one such file; lines that are not understood are passed over.
pub fn parse(protocol: &str, text: &str) -> Vec<SocketSample> {
    text.lines().skip(1).filter_map(|line| parse_line(protocol, line)).collect()
}

/// `sl: local remote st tx:rx tr:tm retrnsmt uid timeout inode ref pointer drops`, numbers with a colon in hex.
fn parse_line(protocol: &str, line: &str) -> Option<SocketSample> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let port = |word: &str| u16::from_str_radix(word.rsplit_once(':')?.1, 16).ok();
    let (send, receive) = words.get(4)?.split_once(':')?;
    Some(SocketSample {
        protocol: protocol.to_owned(),
        local_port: port(words.get(1)?)?,
        remote_port: port(words.get(2)?)?,
        inode: words.get(9)?.parse().ok()?,
        receive_queue_bytes: u64::from_str_radix(receive, 16).ok()?,
        send_queue_bytes: u64::from_str_radix(send, 16).ok()?,
        drops: words.get(12)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UDP: &str = include_str!("../../tests/fixtures/udp");

    #[test]
    fn ports_queues_and_drops_are_read() {
        let sockets = parse("udp", UDP);
        assert_eq!(sockets.len(), 2);
        let full = &sockets[0];
        assert_eq!((full.local_port, full.remote_port, full.inode), (5201, 0, 4711));
        assert_eq!((full.send_queue_bytes, full.receive_queue_bytes, full.drops), (0, 0x900, 1288));
        assert_eq!((sockets[1].local_port, sockets[1].remote_port, sockets[1].drops), (4096, 5201, 0));
    }

    #[test]
    fn a_cut_line_is_no_socket() {
        for end in 0..UDP.len() {
            if let Some(cut) = UDP.get(..end) {
                assert!(parse("udp", cut).len() <= 2);
            }
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "([0-9A-F: ]{0,40}\n?){0,6}") {
            let _ = parse("raw", &text);
        }
    }
}

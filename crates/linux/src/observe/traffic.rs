//! What one interface moved, cheap enough to be asked while a test runs.

use std::fs;

use super::facts::colon_value;

/// Bytes that an interface received and sent since it was made, in the network namespace of the calling thread; none
/// when there is no such interface. The columns are those of the kernel's `net/core/net-procfs.c`.
pub fn bytes(interface: &str) -> Option<(u64, u64)> {
    bytes_in(&fs::read_to_string("/proc/thread-self/net/dev").ok()?, interface)
}

fn bytes_in(text: &str, interface: &str) -> Option<(u64, u64)> {
    let counters = colon_value(text, interface)?;
    let mut counters = counters.split_whitespace();
    Some((counters.next()?.parse().ok()?, counters.nth(7)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninth_column_is_what_was_sent() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n    \
                    lo: 11 2 3 4 5 6 7 8 99 10 11 12 13 14 15 16\n  eth0:22 0 0 0 0 0 0 0 33 0 0 0 0 0 0 0\n";
        assert_eq!((bytes_in(text, "lo"), bytes_in(text, "eth0")), (Some((11, 99)), Some((22, 33))));
        assert_eq!(bytes_in(text, "eth"), None);
    }
}

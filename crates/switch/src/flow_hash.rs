//! Which of several connections a packet-in takes.
//!
//! **What.** [`flow_of`] makes a number of the fields by which frames belong together: addresses, VLAN, protocol and ports.
//!
//! **Why.** Auxiliary connections have no order among each other, so frames of one flow must stay on one of them, or a controller would see them
//! in another order than they came.
//!
//! **Price.** Headers that are not hashed (tunnels, labels of IPv6) put many flows on one connection.

use wire::headers::Headers;

/// The same number for all frames of a flow, whole or only their beginning.
pub fn flow_of(frame: &[u8]) -> u64 {
    Headers::parse(frame).flow(frame, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn frame(text: &str) -> Vec<u8> {
        flow::text::frame::parse(text).unwrap()
    }

    #[test]
    fn frames_of_a_flow_are_one_number_and_flows_are_many() {
        let one = "eth / ip dst=10.0.0.1 / udp dport=7";
        let number = flow_of(&frame(one));
        assert_eq!(number, flow_of(&frame(&format!("{one} / raw 0102"))));
        assert_eq!(number, flow_of(&frame(&format!("{one} / raw {}", "00".repeat(900)))[..128]));
        let many = (0..64).map(|port| flow_of(&frame(&format!("eth / ip / tcp dport={port}"))) % 4);
        assert_eq!(many.collect::<BTreeSet<_>>().len(), 4);
        for cut in 0..60 {
            flow_of(&frame(one)[..cut.min(frame(one).len())]);
        }
    }
}

//! Every TCP connection of a namespace, by `inet_diag` (`SOCK_DIAG_BY_FAMILY`), as `ss -tin` asks for them.
//!
//! **What.** [`TcpSockets::read`] lists the sockets with their state, queues, and all attributes that the kernel gives: `tcp_info` by the
//! length that was returned ([`FIELDS`]), the congestion control's name and, where it has some, its own numbers (BBR, DCTCP).
//!
//! **Why raw attributes too.** `tcp_info` grows with every kernel, and a record is read later than it is written: what this program does
//! not know yet is in the record as bytes.
//!
//! **Price.** Two dumps (IPv4, IPv6) for a reading; the kernel walks its table of sockets for each.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use record::connection::{Attributed, Connection, Reading};

use crate::netlink::{Dump, Family, Netlink, after, u32_at, u64_at};
use crate::sys::{netns, tcp};

/// `sizeof(struct inet_diag_msg)`.
const HEADER_BYTES: usize = 72;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;

// Attributes (include/uapi/linux/inet_diag.h).
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const DCTCP: u16 = 9;
const BBR: u16 = 16;
/// What is asked for: memory, `tcp_info`, the congestion control's numbers (whatever it is), its name, socket memory.
const WANTED: u8 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6;

/// `struct tcp_info` of Linux 6.18: names without `tcpi_`, place and width in bytes. It is only ever appended to.
pub const FIELDS: [(&str, usize, u8); 68] = [
    ("ca_state", 1, 1),
    ("retransmits", 2, 1),
    ("probes", 3, 1),
    ("backoff", 4, 1),
    ("options", 5, 1),
    ("rto", 8, 4),
    ("ato", 12, 4),
    ("snd_mss", 16, 4),
    ("rcv_mss", 20, 4),
    ("unacked", 24, 4),
    ("sacked", 28, 4),
    ("lost", 32, 4),
    ("retrans", 36, 4),
    ("last_data_sent", 44, 4),
    ("last_ack_sent", 48, 4),
    ("last_data_recv", 52, 4),
    ("last_ack_recv", 56, 4),
    ("pmtu", 60, 4),
    ("rcv_ssthresh", 64, 4),
    ("rtt", 68, 4),
    ("rttvar", 72, 4),
    ("snd_ssthresh", 76, 4),
    ("snd_cwnd", 80, 4),
    ("advmss", 84, 4),
    ("reordering", 88, 4),
    ("rcv_rtt", 92, 4),
    ("rcv_space", 96, 4),
    ("total_retrans", 100, 4),
    ("pacing_rate", 104, 8),
    ("max_pacing_rate", 112, 8),
    ("bytes_acked", 120, 8),
    ("bytes_received", 128, 8),
    ("segs_out", 136, 4),
    ("segs_in", 140, 4),
    ("notsent_bytes", 144, 4),
    ("min_rtt", 148, 4),
    ("data_segs_in", 152, 4),
    ("data_segs_out", 156, 4),
    ("delivery_rate", 160, 8),
    ("busy_time", 168, 8),
    ("rwnd_limited", 176, 8),
    ("sndbuf_limited", 184, 8),
    ("delivered", 192, 4),
    ("delivered_ce", 196, 4),
    ("bytes_sent", 200, 8),
    ("bytes_retrans", 208, 8),
    ("dsack_dups", 216, 4),
    ("reord_seen", 220, 4),
    ("rcv_ooopack", 224, 4),
    ("snd_wnd", 228, 4),
    ("rcv_wnd", 232, 4),
    ("rehash", 236, 4),
    ("total_rto", 240, 2),
    ("total_rto_recoveries", 242, 2),
    ("total_rto_time", 244, 4),
    ("received_ce", 248, 4),
    ("delivered_e1_bytes", 252, 4),
    ("delivered_e0_bytes", 256, 4),
    ("delivered_ce_bytes", 260, 4),
    ("received_e1_bytes", 264, 4),
    ("received_e0_bytes", 268, 4),
    ("received_ce_bytes", 272, 4),
    // Several small fields in one byte are told as that byte.
    ("window_scales", 6, 1),
    ("flags", 7, 1),
    ("accecn", 276, 4),
    ("state", 0, 1),
    ("fackets", 40, 4),
    // The end of the structure as it is known here.
    ("end", 280, 0),
];

/// What BBR and DCTCP tell of themselves.
const BBR_FIELDS: [(&str, usize, u8); 4] =
    [("bbr_bw", 0, 8), ("bbr_min_rtt", 8, 4), ("bbr_pacing_gain", 12, 4), ("bbr_cwnd_gain", 16, 4)];
const DCTCP_FIELDS: [(&str, usize, u8); 5] = [
    ("dctcp_enabled", 0, 2),
    ("dctcp_ce_state", 2, 2),
    ("dctcp_alpha", 4, 4),
    ("dctcp_ab_ecn", 8, 4),
    ("dctcp_ab_tot", 12, 4),
];

/// The connections of one namespace.
#[derive(Debug)]
pub struct TcpSockets {
    node: String,
    netlink: Netlink,
    requests: [Vec<u8>; 2],
}

impl TcpSockets {
    /// Prepares to ask inside that namespace for sockets in these states (a bit each, by the kernel's numbers).
    ///
    /// # Errors
    /// When the namespace cannot be entered, or the kernel has no `sock_diag`.
    pub fn open(node: &str, namespace: BorrowedFd<'_>, states: u32) -> io::Result<TcpSockets> {
        netns::within(namespace, || TcpSockets::here(node, states))?
    }

    /// The same in the namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel has no `sock_diag`.
    pub fn here(node: &str, states: u32) -> io::Result<TcpSockets> {
        let mut netlink = Netlink::open();
        netlink.prepare(Family::SockDiag)?;
        Ok(TcpSockets {
            node: node.into(),
            netlink,
            requests: [request(AF_INET, states), request(AF_INET6, states)],
        })
    }

    /// The sockets as they are now.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(&mut self) -> io::Result<Vec<Reading>> {
        let mut found = vec![];
        for body in &self.requests {
            let dump = Dump { family: Family::SockDiag, kind: 20, body };
            found.extend(self.netlink.dump(&dump, |message| parse(message, &self.node))?);
        }
        Ok(found)
    }
}

/// `struct inet_diag_req_v2` for all sockets of a family.
fn request(family: u8, states: u32) -> Vec<u8> {
    let mut body = vec![0; 56];
    body[..4].copy_from_slice(&[family, TCP, WANTED, 0]);
    body[4..8].copy_from_slice(&states.to_ne_bytes());
    // No cookie (INET_DIAG_NOCOOKIE).
    body[48..56].fill(0xff);
    body
}

/// Decodes one reply; none when it is of another family or is not whole. Fields that the kernel did not return are not there.
pub fn parse(message: &[u8], node: &str) -> Option<Reading> {
    let family = *message.first()?;
    message.get(..HEADER_BYTES)?;
    let info = after(message, HEADER_BYTES).get(INFO).filter(|info| !info.is_empty());
    Some(Reading {
        connection: Connection {
            node: node.into(),
            local: address(message, family, 4, 8)?,
            peer: address(message, family, 6, 24)?,
            cookie: u64_at(message, 44)?,
            inode: u32_at(message, 68)?,
            uid: u32_at(message, 64)?,
        },
        state: *message.get(1)?,
        receive_queue: u32_at(message, 56)?,
        send_queue: u32_at(message, 60)?,
        sample: info.map(tcp::parse),
        attributes: message[HEADER_BYTES..].to_vec(),
    })
}

/// The attributes of a reading in words; made only for readings that are told.
pub fn describe(attributes: &[u8]) -> Attributed {
    let all = after(attributes, 0);
    let of = |number: u16, fields: &[(&str, usize, u8)]| {
        all.get(number).map(|bytes| values(fields, bytes)).unwrap_or_default()
    };
    let congestion = all.get(CONGESTION).map(|name| {
        String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
    });
    Attributed {
        congestion,
        info: [of(INFO, &FIELDS), of(BBR, &BBR_FIELDS), of(DCTCP, &DCTCP_FIELDS)]
            .into_iter()
            .flatten()
            .collect(),
        raw: all.map(|(number, bytes)| (number.to_string(), hex(bytes))).collect(),
    }
}

fn address(message: &[u8], family: u8, port: usize, at: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*message.get(port..)?.first_chunk()?);
    let ip: IpAddr = match family {
        AF_INET => Ipv4Addr::from(*message.get(at..)?.first_chunk::<4>()?).into(),
        AF_INET6 => Ipv6Addr::from(*message.get(at..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The fields that lie within the bytes.
fn values(fields: &[(&str, usize, u8)], bytes: &[u8]) -> Vec<(String, u64)> {
    let value = |&(name, at, width): &(&str, usize, u8)| {
        let field = bytes.get(at..at + usize::from(width)).filter(|field| !field.is_empty())?;
        let mut word = [0; 8];
        let place = if cfg!(target_endian = "little") { 0 } else { 8 - field.len() };
        word[place..place + field.len()].copy_from_slice(field);
        Some((name.to_owned(), u64::from_ne_bytes(word)))
    };
    fields.iter().filter_map(value).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    /// A reply about a connection whose `tcp_info` has so many bytes.
    fn message(length: usize) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..4].copy_from_slice(&[AF_INET, 1, 0, 0]);
        header[4..8].copy_from_slice(&[0x14, 0x51, 0, 80]);
        header[8..12].copy_from_slice(&[10, 0, 0, 1]);
        header[24..28].copy_from_slice(&[10, 0, 0, 2]);
        header[44..52].copy_from_slice(&77u64.to_ne_bytes());
        header[60..64].copy_from_slice(&500u32.to_ne_bytes());
        let info: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let bbr = [&9u64.to_ne_bytes()[..], &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]].concat();
        let attributes = [
            attribute(INFO, &info),
            attribute(CONGESTION, b"bbr\0"),
            attribute(BBR, &bbr),
            attribute(99, &[1, 2]),
        ];
        let attributes: Vec<&[u8]> = attributes.iter().map(Vec::as_slice).collect();
        [header, join(&attributes)].concat()
    }

    /// What kernels of different ages return of `struct tcp_info`, the oldest first, that of 6.18 last.
    const LENGTHS: [usize; 11] = [104, 136, 160, 168, 192, 200, 224, 228, 240, 248, 280];

    #[test]
    fn every_length_that_kernels_return_is_read_as_far_as_it_goes() {
        let described = |length| describe(&parse(&message(length), "a").unwrap().attributes);
        for length in LENGTHS {
            let found = described(length);
            for (name, at, width) in FIELDS {
                let told = width > 0 && at + usize::from(width) <= length;
                assert_eq!(found.info.contains_key(name), told, "{name} of {length} bytes");
                if told && width == 1 {
                    assert_eq!(found.info[name], at as u64);
                }
            }
            assert_eq!(found.raw["2"].len(), 2 * length, "what is not known is kept");
        }
        assert_eq!(described(400).info, described(280).info);
    }

    /// A field that lies further back came later: the table of counters agrees with the structure, which only grows.
    #[test]
    fn every_field_has_a_meaning_and_the_kernel_that_brought_it() {
        let version = |row: &record::counter::Counter| {
            let mut parts = row.since.split('.').map(|part| part.parse::<u32>().unwrap());
            (parts.next().unwrap(), parts.next().unwrap())
        };
        let mut fields: Vec<_> = FIELDS.iter().filter(|(.., width)| *width > 0).collect();
        fields.sort_by_key(|(_, at, _)| *at);
        let mut newest = (0, 0);
        for (name, at, _) in fields {
            let row = record::counter::of("tcp_info", name).unwrap_or_else(|| panic!("{name} has no row"));
            // The first hundred bytes had gaps that were filled later.
            if *at >= 100 {
                assert!(version(row) >= newest, "{name} lies behind what Linux {newest:?} brought");
                newest = version(row);
            }
        }
        for (name, ..) in BBR_FIELDS.iter().chain(&DCTCP_FIELDS) {
            assert!(record::counter::of("congestion", name).is_some(), "{name} has no row");
        }
    }

    #[test]
    fn a_connection_is_read_whole() {
        let found = parse(&message(280), "a").unwrap();
        let connection = &found.connection;
        assert_eq!(connection.local.to_string(), "10.0.0.1:5201");
        assert_eq!(connection.peer.to_string(), "10.0.0.2:80");
        assert_eq!((connection.cookie, found.state, found.send_queue), (77, 1, 500));
        let words = describe(&found.attributes);
        assert_eq!((words.congestion.as_deref(), words.info["bbr_bw"]), (Some("bbr"), 9));
        assert_eq!((words.info["bbr_cwnd_gain"], words.raw["99"].as_str()), (3, "0102"));
        assert!(found.sample.is_some());
    }

    #[test]
    fn places_are_told_once_and_do_not_overlap() {
        let mut bytes = [0; 280];
        for (name, at, width) in FIELDS {
            for byte in &mut bytes[at..at + usize::from(width)] {
                *byte += 1;
                assert_eq!(*byte, 1, "{name} overlaps");
            }
        }
        assert!(bytes.iter().all(|byte| *byte == 1), "a byte of the structure has no name");
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..400) {
            let _ = (parse(&noise, "a"), describe(&noise));
            let whole = message(280);
            let _ = parse(&whole[..cut.min(whole.len())], "a");
        }
    }
}

//! Protocol counters: `/proc/net/snmp`, `/proc/net/netstat`, `/proc/net/snmp6`.
//!
//! The first two have pairs of lines, names and then values, each beginning with the group; the third has one name and
//! value per line. Names differ between kernels, so they are never assumed: what is not in the file is not in the map.

use record::snapshot::Counters;

/// Reads pairs of lines (`Udp: InDatagrams …` / `Udp: 5 …`) into `Udp.InDatagrams`. A value that is not a number (and
/// `-1`, which the kernel prints for "no limit") is left out.
pub fn parse_pairs(text: &str, into: &mut Counters) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((same, values))) = (names.split_once(':'), values.split_once(':'))
        else {
            return;
        };
        if group != same {
            return;
        }
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            if let Ok(value) = value.parse() {
                into.insert(format!("{group}.{name}"), value);
            }
        }
    }
}

/// Reads lines of `name value` into `Ip6.name`.
pub fn parse_lines(text: &str, into: &mut Counters) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
            into.insert(format!("Ip6.{name}"), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_files_of_a_real_kernel_are_read() {
        let mut counters = Counters::new();
        parse_pairs(include_str!("../../tests/fixtures/snmp"), &mut counters);
        parse_pairs(include_str!("../../tests/fixtures/netstat"), &mut counters);
        parse_lines(include_str!("../../tests/fixtures/snmp6"), &mut counters);
        for name in [
            "Ip.InReceives",
            "Udp.RcvbufErrors",
            "TcpExt.ListenDrops",
            "IpExt.InOctets",
            "Ip6.Udp6InDatagrams",
        ] {
            assert!(counters.contains_key(name), "{name}");
        }
        assert_eq!(counters["Ip.DefaultTTL"], 64);
        assert!(!counters.contains_key("Tcp.MaxConn"), "-1 means no limit and is not a count");
    }

    /// Kernels 2.6, 3.10 and 6.18: what a kernel does not have is missing, and every name has a meaning.
    #[test]
    fn files_of_old_and_new_kernels_are_read_and_every_name_has_a_meaning() {
        let files = [
            include_str!("../../tests/fixtures/snmp-2.6"),
            include_str!("../../tests/fixtures/snmp-3.10"),
            include_str!("../../tests/fixtures/snmp"),
            include_str!("../../tests/fixtures/netstat-3.10"),
            include_str!("../../tests/fixtures/netstat"),
        ];
        let [oldest, older, newest, older_details, details] = files.map(|file| {
            let mut counters = Counters::new();
            parse_pairs(file, &mut counters);
            counters
        });
        let of = |name: &str| [&oldest, &older, &newest].map(|counters| counters.get(name).copied());
        assert_eq!(of("Udp.RcvbufErrors"), [None, Some(11), Some(0)], "not told is not 0");
        assert_eq!(of("Udp.MemErrors"), [None, None, Some(0)]);
        assert_eq!(of("Udp.InDatagrams"), [Some(4900), Some(4900), Some(0)]);
        assert_eq!((older.get("IcmpMsg.OutType3"), older_details["IpExt.InCEPkts"]), (Some(&6), 17));
        assert_eq!((older_details["TcpExt.TCPPrequeued"], details.get("TcpExt.TCPPrequeued")), (21, None));
        let mut six = Counters::new();
        parse_lines(include_str!("../../tests/fixtures/snmp6"), &mut six);
        for name in [oldest, older, newest, older_details, details, six].iter().flat_map(Counters::keys) {
            assert!(!record::counter::named(name).is_empty(), "{name} has no row in docs/counters/");
        }
    }

    #[test]
    fn a_file_cut_short_gives_what_is_whole() {
        let mut counters = Counters::new();
        parse_pairs("Udp: InDatagrams NoPorts\nUdp: 5 6\nIcmp: InMsgs\n", &mut counters);
        parse_pairs("A: x\nB: 1\n", &mut counters);
        assert_eq!(counters.len(), 2);
        assert_eq!(counters["Udp.NoPorts"], 6);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "([A-Za-z]{0,3}:?[ 0-9a-z-]{0,12}\n?){0,12}") {
            let mut counters = Counters::new();
            parse_pairs(&text, &mut counters);
            parse_lines(&text, &mut counters);
        }
    }
}

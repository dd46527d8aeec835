use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Units that a row may have.
const UNITS: [&str; 22] = [
    "frames",
    "bytes",
    "bits",
    "events",
    "datagrams",
    "fragments",
    "segments",
    "messages",
    "buffers",
    "connections",
    "sockets",
    "processes",
    "queues",
    "pages",
    "ticks",
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "bytes per second",
    "percent",
    "number",
    "seconds",
];

#[test]
fn every_row_of_every_page_is_read_and_whole() {
    let lines = PAGES.iter().flat_map(|page| page.lines());
    let rows = lines.filter(|line| line.starts_with("| `")).count();
    assert_eq!(all().len(), rows, "a row has another shape");
    assert!(rows > 700, "{rows} rows");
    for row in all() {
        let source = &row.source;
        assert!(
            !source.key.is_empty() && !source.place.is_empty() && !source.reference.is_empty(),
            "{row:?}"
        );
        assert!(UNITS.contains(&row.unit), "{}: '{}'", row.name, row.unit);
        assert!(row.moves.ends_with(['.', ')']), "{}: {}", row.name, row.moves);
        assert!(row.traps.is_empty() || row.traps.ends_with(['.', ')']), "{}: {}", row.name, row.traps);
        let is_version = |word: &str| word.split('.').all(|part| part.parse::<u8>().is_ok());
        assert!(row.since.is_empty() || is_version(row.since), "{}: since {}", row.name, row.since);
    }
}

#[test]
fn a_source_has_a_name_once() {
    let mut seen = BTreeSet::new();
    for row in all() {
        assert!(seen.insert(row.full_name()), "{} twice", row.full_name());
    }
}

#[test]
fn names_of_several_sources_are_told_apart_and_the_closest_row_is_taken() {
    let found: Vec<String> = named("rx_packets").iter().map(|row| row.full_name()).collect();
    assert!(
        found.len() > 3 && found[0] == "interface:rx_packets" && found[1] == "queue:rx_packets",
        "{found:?}"
    );
    assert_eq!(named("interface:rx_packets").len(), 1);
    let of = |key, name| of(key, name).map(|row| row.name);
    assert_eq!(of("mlx5", "rx3_packets"), Some("rx<n>_packets"));
    assert_eq!(of("mlx5", "rx3_gro_bytes"), Some("rx<n>_<w>"));
    assert_eq!(of("mlx5", "rx_out_of_buffer"), Some("rx_out_of_buffer"));
    assert_eq!(of("i40e", "rx-12.packets"), Some("rx-<n>.packets"));
    assert_eq!(of("bnxt", "[0]: rx_discards"), Some("[<n>]: rx_discards"));
    assert_eq!(of("ice", "rx_size_64.nic"), Some("<w>.nic"));
    assert_eq!((of("mlx5", "rxx_packets"), of("veth", "rx_queue_xdp_drops")), (None, None));
    assert!(named("no_such_counter").is_empty());
}

#[test]
fn every_name_of_a_drop_that_is_a_kernel_counter_has_a_row() {
    for row in
        crate::drop::DROPS.iter().filter(|row| row.name.starts_with("rx_") || row.name.starts_with("tx_"))
    {
        let found = of("interface", row.name);
        assert!(found.is_some(), "{} has no row", row.name);
    }
}

/// The experiments (`docs/counters.md`) use the counters of the table, by these names.
#[test]
fn every_counter_of_the_experiments_has_a_row() {
    const DOCS: &str = include_str!("../../../docs/counters.md");
    let mut seen = 0;
    for word in DOCS.split('`').skip(1).step_by(2) {
        let group = word.split_once('.').map_or("", |(group, _)| group);
        let is_protocol = ["Ip", "Icmp", "Tcp", "Udp", "TcpExt", "IpExt", "Ip6"].contains(&group);
        let is_interface = (word.starts_with("rx_") || word.starts_with("tx_"))
            && ["packets", "dropped", "bytes", "errors"].iter().any(|end| word.ends_with(end));
        if (is_protocol && !word.contains(['*', ' '])) || is_interface {
            assert!(!named(word).is_empty(), "{word} has no row");
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} counters were found in docs/counters.md");
}

#[test]
fn every_reason_that_means_a_name_is_in_the_table_of_reasons() {
    let known: Vec<&str> = reasons().map(|(name, _)| name).collect();
    assert!(known.len() > 120 && known[0] == "NOT_SPECIFIED");
    // What failed redirects are called is an errno behind a prefix of ours.
    let of_drops = crate::drop::DROPS.iter().flat_map(|row| row.kernel.iter().chain(row.may_be));
    let of_enum = of_drops.filter(|reason| {
        reason.starts_with(char::is_uppercase) && !reason.ends_with('*') && !reason.starts_with("XDP_")
    });
    for reason in of_enum {
        assert!(known.contains(reason), "{reason}");
    }
    for (name, meaning) in reasons() {
        assert!(meaning.ends_with(['.', ')']), "{name}: {meaning}");
    }
}

proptest! {
    #[test]
    fn noise_never_panics(pattern in "(<n>|<w>|[a-z_é]){0,6}", name in "[a-z0-9_é:]{0,12}") {
        let _ = (fits(&pattern, &name), named(&name));
    }
}

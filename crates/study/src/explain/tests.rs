use super::*;
use proptest::prelude::*;

fn machine() -> Machine {
    Machine {
        knobs: ["up", "sysctl net.ipv4.tcp_rmem", "feature.*"]
            .map(|name| (name.into(), "Whether an interface is up.".into()))
            .into(),
        reasons: vec!["NEW_REASON".into()],
    }
}

fn names(name: &str) -> Vec<(NameKind, String)> {
    explain(name, &machine()).unwrap().into_iter().map(|one| (one.kind, one.name)).collect()
}

fn fact(name: &str, fact: &str) -> String {
    let all = explain(name, &machine()).unwrap();
    let found = all.iter().flat_map(|one| &one.facts).find(|one| one.name == fact);
    found.map(|one| one.text.clone()).unwrap_or_default()
}

#[test]
fn a_name_of_every_kind_is_explained() {
    for (name, kind) in [
        ("rx_missed_errors", NameKind::Counter),
        ("qdisc_full", NameKind::Drop),
        ("filter_input", NameKind::Drop),
        ("NEIGH_FAILED", NameKind::KernelReason),
        ("NEW_REASON", NameKind::KernelReason),
        ("up", NameKind::Knob),
        ("net.ipv4.tcp_rmem", NameKind::Knob),
        ("feature.rx-gro", NameKind::Knob),
        ("udp-rr", NameKind::Workload),
        ("ring:", NameKind::Port),
        ("squeeze", NameKind::Word),
        ("pathlab_drops_frames_total", NameKind::Series),
        ("pathlab.drops.frames", NameKind::Series),
    ] {
        let found = names(name);
        assert!(found.iter().any(|(found, _)| *found == kind), "{name}: {found:?}");
    }
}

#[test]
fn a_drop_has_reasons_advice_and_who_counts_it_again() {
    assert!(fact("qdisc_full", "kernel_reasons").contains("QDISC_DROP"));
    assert!(fact("qdisc_full", "counted_below").contains("tx_dropped"));
    assert!(fact("qdisc_full", "advice").contains("offer less"));
    assert_eq!(fact("SOCKET_RCVBUFF", "drops"), "socket_buffer_full, after_end");
    assert_eq!(fact("SKB_DROP_REASON_CPU_BACKLOG", "drops"), "backlog_full");
    assert_eq!(fact("socket_buffer", "verdict"), "socket_buffer", "the word of a verdict finds its drops");
}

#[test]
fn other_spellings_and_beginnings_of_one_name_are_understood() {
    for (asked, found) in [
        ("UdpInDatagrams", "udp:Udp.InDatagrams"),
        ("TcpExtListenDrops", "tcpext:TcpExt.ListenDrops"),
        ("tcpi_busy_time", "tcp_info:busy_time"),
        ("softnet:TIME-SQUEEZE", "softnet:time_squeeze"),
        ("TcpExt.TCPMemoryPressuresC", "tcpext:TcpExt.TCPMemoryPressuresChrono"),
        ("rx_cache_stashed_by_nobody", "mlx5:rx_<w>"),
        ("time_sque", "softnet:time_squeeze"),
        ("generator-l", "generator-limited"),
    ] {
        assert_eq!(names(asked)[0].1, found, "{asked}");
    }
    assert_eq!(names("rx_packets").len(), 5, "one for each source: {:?}", names("rx_packets"));
}

#[test]
fn an_unknown_name_is_a_sentence_with_the_nearest() {
    let problem = |name: &str| explain(name, &machine()).unwrap_err().to_string();
    assert!(problem("rx_mised_errors").contains("rx_missed_errors"), "{}", problem("rx_mised_errors"));
    assert!(problem("qdisk_ful").contains("qdisc_full"));
    assert!(problem("TcpExt.TCPFast").contains("TCPFast"), "several begin so: {}", problem("TcpExt.TCPFast"));
    assert!(problem("xyzzyxyzzy").contains("--list"));
    assert!(problem("").contains("--list"));
}

#[test]
fn everything_that_is_listed_is_found_by_its_own_name() {
    let all = list(&machine());
    assert!(all.len() > 1000, "{}", all.len());
    for one in &all {
        assert!(!one.meaning.is_empty(), "{}", one.name);
        let asked = one.name.replace("<n>", "3").replace("<w>", "x").replace("_NAME", "_input");
        let found = explain(&asked, &machine()).unwrap_or_else(|problem| panic!("{asked}: {problem}"));
        assert!(found.iter().any(|other| other.kind == one.kind), "{asked} is found as {found:?}");
    }
}

#[test]
fn text_fits_the_width_and_says_all() {
    let found = explain("Udp.InDatagrams", &machine()).unwrap();
    let text = text::explanations(&found, 60);
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(
        text.starts_with(
            "udp:Udp.InDatagrams  (counter)\n  Datagrams that the application has read.\n  traps"
        ),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn noise_never_panics(name in ".{0,24}") {
        let _ = explain(&name, &machine());
    }
}

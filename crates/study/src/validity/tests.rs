use super::*;
use crate::sample;
use record::conditions::*;
use record::flow::FlowPlace;
use record::snapshot::CpuTime;
use record::{Conditions, OtherWork, TrafficKind};

/// A test under conditions in which nothing was disturbed and everything is known.
fn quiet() -> TestRecord {
    let clock = |ns: u64| ClockReading {
        monotonic_ns: ns,
        raw_ns: ns + 7,
        realtime_ns: ns + 1_000_000,
        boot_ns: ns,
        width_ns: 100,
    };
    let reading = |ns: u64| ConditionReading {
        clock: clock(ns),
        governors: [("performance".to_owned(), 2)].into(),
        idle: vec![IdleState { name: "C6".into(), exit_ns: 133_000, entered: 7 }],
        throttled: Some(0),
        interrupts: vec![InterruptTarget {
            node: "a".into(),
            interface: "eth0".into(),
            irq: 61,
            name: "eth0-TxRx-0".into(),
            cpus: "1".into(),
        }],
        pauses: vec![PauseCount { node: "b".into(), interface: "eth0".into(), received: 1, sent: 2 }],
        irqbalance: false,
        emulated: false,
    };
    let mut test = sample::test(TrafficKind::UdpStream, "udp-stream 64 B", 1, false);
    test.cpu = vec![record::snapshot::CpuTime { user: 50, idle: 950, ..Default::default() }];
    test.conditions = vec![Conditions {
        before: reading(5_000_000_000),
        after: reading(7_000_000_000),
        nodes: ["a", "s", "b"].map(Into::into).into(),
        ends: vec!["10.0.0.1".into(), "10.0.0.2".into()],
        cost: ObserverCost {
            wall_ns: 2_000_000_000,
            driver_cpu_ns: Some(20_000_000),
            measured_ns: 100_000_000,
            programs_ns: 3_000_000,
            program_runs: 9,
        },
        ..Conditions::default()
    }];
    test
}

/// What disturbed a test: the words of the rows with their verdicts.
fn said(test: &TestRecord) -> Vec<(String, Trust)> {
    judge(test).reasons.into_iter().map(|one| (one.what, one.verdict)).collect()
}

fn change(node: &str, interface: &str, message: &str, about: Option<&str>, what: &str) -> ConfigChange {
    ConfigChange {
        after_ns: 1_230_000_000,
        node: node.into(),
        interface: interface.into(),
        message: message.into(),
        about: about.map(Into::into),
        what: what.into(),
    }
}

/// The test after something happened to it.
fn after(disturb: impl FnOnce(&mut TestRecord)) -> Vec<(String, Trust)> {
    let mut test = quiet();
    disturb(&mut test);
    said(&test)
}

fn only(what: &str, verdict: Trust) -> Vec<(String, Trust)> {
    vec![(what.to_owned(), verdict)]
}

#[test]
fn a_quiet_test_is_valid_and_nothing_is_unknown() {
    let judged = judge(&quiet());
    assert_eq!(
        (judged.verdict, judged.reasons.len(), judged.unwatched.len()),
        (Trust::Valid, 0, 0),
        "{judged:#?}"
    );
}

/// What happens to a test, and which row with which verdict speaks.
type Disturbed = (fn(&mut TestRecord), &'static str, Trust);

const DISTURBED: &[Disturbed] = &[
    (|test| _ = test.conditions[0].after.governors.insert("powersave".into(), 1), "governor", Trust::Suspect),
    (
        |test| {
            for reading in both(test) {
                reading.governors = [("schedutil".to_owned(), 2)].into();
            }
        },
        "governor",
        Trust::Suspect,
    ),
    (|test| test.conditions[0].after.throttled = Some(1), "throttled", Trust::Invalid),
    (|test| test.cpu[0].steal = 6, "steal", Trust::Suspect),
    (|test| test.cpu[0].steal = 21, "steal", Trust::Invalid),
    (|test| test.conditions[0].after.interrupts[0].cpus = "0".into(), "irq_moved", Trust::Invalid),
    (|test| test.conditions[0].after.emulated = true, "emulated", Trust::Suspect),
    (|test| test.conditions[0].after.irqbalance = true, "irqbalance", Trust::Suspect),
    (|test| test.conditions[0].after.pauses[0].received = 2, "pause", Trust::Suspect),
    (|test| test.conditions[0].after.clock.realtime_ns += 5_000_000, "clock_step", Trust::Suspect),
    (|test| test.conditions[0].after.clock.realtime_ns -= 5_000_000, "clock_step", Trust::Suspect),
    (|test| test.conditions[0].after.clock.raw_ns += 2_000_000, "clock_rate", Trust::Suspect),
    (|test| test.conditions[0].after.clock.raw_ns -= 30_000_000, "clock_rate", Trust::Invalid),
    (|test| test.conditions[0].after.clock.boot_ns += 5_000_000_000, "suspended", Trust::Invalid),
    (|test| test.conditions[0].cost.programs_ns = 30_000_000, "observer", Trust::Suspect),
    (|test| test.conditions[0].ended = vec!["the ovs of node s ended".into()], "ended", Trust::Invalid),
    (|test| test.conditions[0].unsettled = Some("counters still moved".into()), "unsettled", Trust::Invalid),
    (|test| (test.sender.attempted, test.sender.sent_bytes) = (0, 0), "nothing_sent", Trust::Invalid),
    (
        |test| {
            let links = &mut test.after.nodes.get_mut("s").unwrap().links;
            links[0].carrier_changes += 2;
        },
        "link_flap",
        Trust::Invalid,
    ),
    (
        |test| {
            test.before.nodes.get_mut("s").unwrap().links[0].counters.insert("rx_packets".into(), 9);
            test.after.nodes.get_mut("s").unwrap().links[0].counters.insert("rx_packets".into(), 8);
        },
        "counter_reset",
        Trust::Invalid,
    ),
    (|test| test.after.nodes.get_mut("s").unwrap().links[0].index = 9, "counter_reset", Trust::Invalid),
    (
        |test| {
            let (name, cpu_percent) = ("make".to_owned(), 40.0);
            test.others = vec![OtherWork { name, cpu_percent, ..OtherWork::default() }];
        },
        "other_work",
        Trust::Suspect,
    ),
    (
        |test| {
            let (node, process) = ("b".to_owned(), "tcpdump (4711)".to_owned());
            test.conditions[0].taps = vec![Tap { node, process, ..Tap::default() }];
        },
        "tap",
        Trust::Suspect,
    ),
    (
        |test| {
            let (node, interface, hook) = ("s".to_owned(), "eth1".to_owned(), "xdp".to_owned());
            test.conditions[0].programs =
                vec![ForeignProgram { node, interface, hook, id: 9, ..Default::default() }];
        },
        "program",
        Trust::Suspect,
    ),
];

fn both(test: &mut TestRecord) -> [&mut ConditionReading; 2] {
    let Conditions { before, after, .. } = &mut test.conditions[0];
    [before, after]
}

#[test]
fn a_disturbance_has_its_row_and_no_other() {
    for (disturb, what, verdict) in DISTURBED {
        assert_eq!(after(disturb), only(what, *verdict), "{what}");
    }
}

/// Node, interface, message, about, what; and the row that speaks, if one does.
type Changed = ([&'static str; 3], Option<&'static str>, &'static str, Option<(&'static str, Trust)>);

const CHANGED: &[Changed] = &[
    (["b", "eth0", "RTM_NEWLINK"], None, "MTU 1500 → 1400", Some(("link_changed", Trust::Invalid))),
    (["s", "eth1", "RTM_NEWLINK"], None, "set down", Some(("link_flap", Trust::Invalid))),
    (["b", "eth9", "RTM_NEWLINK"], None, "MTU 1500 → 1400", None),
    (["x", "eth0", "RTM_NEWLINK"], None, "MTU 1500 → 1400", None),
    (["s", "eth1", "RTM_NEWQDISC"], None, "the qdisc tbf was added", Some(("qdisc_changed", Trust::Invalid))),
    (
        ["s", "eth1", "RTM_NEWTFILTER"],
        None,
        "the filter bpf was added",
        Some(("qdisc_changed", Trust::Invalid)),
    ),
    (["s", "eth5", "RTM_DELQDISC"], None, "the qdisc tbf was removed", None),
    (["a", "eth0", "RTM_DELROUTE"], Some("10.0.0.0/24"), "removed", Some(("route_changed", Trust::Invalid))),
    (["a", "", "RTM_NEWROUTE"], Some("0.0.0.0/0"), "added", Some(("route_changed", Trust::Invalid))),
    (["a", "eth0", "RTM_NEWROUTE"], Some("10.9.0.0/24"), "added", None),
    (["a", "eth0", "RTM_NEWROUTE"], Some("::/0"), "added", None),
    (["b", "eth0", "RTM_DELADDR"], Some("10.0.0.2"), "removed", Some(("address_changed", Trust::Invalid))),
    (["b", "eth0", "RTM_NEWADDR"], Some("10.0.0.77"), "added", None),
    (["a", "", "RTM_NEWRULE"], None, "added", Some(("rule_changed", Trust::Suspect))),
    (["x", "", "RTM_NEWRULE"], None, "added", None),
    (["a", "eth0", "RTM_NEWNEIGH"], Some("10.0.0.2"), "moved", Some(("neighbour_changed", Trust::Suspect))),
    (["a", "eth7", "RTM_DELNEIGH"], Some("10.7.0.2"), "removed", None),
    (["a", "eth0", "ETHTOOL_MSG_FEATURES_NTF"], None, "offloads", Some(("driver_changed", Trust::Invalid))),
    (["a", "eth7", "ETHTOOL_MSG_RINGS_NTF"], None, "ring sizes", None),
];

#[test]
fn a_change_counts_where_it_touches_the_path() {
    for ([node, interface, message], about, what, expected) in CHANGED {
        let found = after(|test| {
            test.conditions[0].changes = vec![change(node, interface, message, *about, what)];
        });
        let expected: Vec<_> =
            expected.iter().map(|(what, verdict)| ((*what).to_owned(), *verdict)).collect();
        assert_eq!(found, expected, "{message} of {interface} of {node}: {what}");
    }
}

#[test]
fn thresholds_are_not_reached_a_little_below_them() {
    let untouched: &[fn(&mut TestRecord)] = &[
        |test| test.cpu[0].steal = 5,
        |test| test.conditions[0].after.clock.realtime_ns += 1_500_000,
        |test| test.conditions[0].after.clock.raw_ns += 1_000_000,
        |test| test.conditions[0].after.clock.boot_ns += 900_000,
        |test| test.conditions[0].cost.programs_ns = 18_000_000,
        |test| {
            test.others = vec![OtherWork { name: "make".into(), cpu_percent: 9.0, ..OtherWork::default() }]
        },
        |test| {
            test.others =
                vec![OtherWork { name: "ksoftirqd/1".into(), cpu_percent: 90.0, ..OtherWork::default() }]
        },
        |test| test.conditions[0].taps = vec![Tap { node: "x".into(), ..Tap::default() }],
        |test| {
            test.conditions[0].taps =
                vec![Tap { node: "b".into(), interface: "eth9".into(), ..Tap::default() }]
        },
        |test| test.conditions[0].programs = vec![ForeignProgram { node: "s".into(), ..Default::default() }],
    ];
    for (number, disturb) in untouched.iter().enumerate() {
        assert_eq!(after(disturb), [], "number {number}");
    }
}

#[test]
fn of_two_hosts_it_is_said_which_one_the_hypervisor_held_up() {
    let mut test = TestRecord::default();
    let cpu = |steal| vec![CpuTime { user: 100 - steal, steal, ..CpuTime::default() }];
    let host = |name: &str, steal| Conditions { host: name.into(), cpu: cpu(steal), ..Conditions::default() };
    test.conditions = vec![host("a", 0), host("b", 6)];
    let judged = judge(&test);
    let told = judged.reasons.iter().find(|one| one.what == "steal").unwrap();
    assert_eq!(told.place, "host b");
    assert_eq!(told.reason, "b: the hypervisor gave 6.0 % of the CPU time to others");
    assert!(judged.unwatched.iter().any(|one| one.what == "other_work"), "{judged:?}");
}

#[test]
fn an_idle_state_is_to_blame_for_a_tail_that_it_could_make() {
    let slept = |exit_ns: u64, p50: u64, p99: u64, missed: u64| {
        after(|test| {
            for (reading, entered) in both(test).into_iter().zip([7, 9]) {
                reading.idle = vec![IdleState { name: "C6".into(), exit_ns, entered }];
            }
            let latency = test.latency_ns.as_mut().unwrap();
            (latency.p50, latency.p99) = (p50, p99);
            for (snapshot, missed) in [(&mut test.before, 0), (&mut test.after, missed)] {
                let link = &mut snapshot.nodes.get_mut("s").unwrap().links[0];
                link.counters.insert("rx_missed_errors".into(), missed);
            }
        })
    };
    let suspect = || only("idle_state", Trust::Suspect);
    assert_eq!(slept(133_000, 20_000, 200_000, 0), suspect());
    assert_eq!(slept(1_000, 20_000, 200_000, 0), [], "too short to be the tail");
    assert_eq!(slept(133_000, 20_000, 30_000, 0), [], "no tail");
    assert_eq!(slept(133_000, 20_000, 30_000, 5), suspect());
    assert_eq!(slept(20_000, 20_000, 30_000, 5), []);
}

#[test]
fn what_could_not_be_watched_is_said_and_does_not_make_a_figure_doubtful() {
    let mut test = quiet();
    let missing = |what: &str, why: &str, at: Option<(&str, &str)>| Unwatched {
        what: what.into(),
        why: why.into(),
        at: at.map(|(node, interface)| FlowPlace { node: node.into(), interface: interface.into() }),
    };
    test.conditions[0].missing =
        vec![missing("governor", "no cpufreq", None), missing("pause", "not counted", Some(("b", "eth7")))];
    test.conditions[0].more_changes = 3;
    test.conditions[0].after.clock.raw_ns = 0;
    let judged = judge(&test);
    let unknown: Vec<&str> = judged.unwatched.iter().map(|one| one.what.as_str()).collect();
    assert_eq!((judged.verdict, unknown), (Trust::Valid, vec!["clock_rate", "governor", "link_changed"]));
    assert_eq!(unwatched(&[&test])[1], "governor: no cpufreq");
    let mut here = test.clone();
    here.conditions[0].missing[1] = missing("pause", "not counted", Some(("b", "eth0")));
    assert!(
        unwatched(&[&here]).contains(&"pause: node b, eth0: not counted".to_owned()),
        "{:?}",
        unwatched(&[&here])
    );
    test.conditions[0].nodes.pop();
    assert!(unwatched(&[&test]).contains(&"conditions: node b was not watched".to_owned()));
    test.cpu.clear();
    test.conditions[0].ends.clear();
    test.conditions[0].changes = vec![change("a", "eth0", "RTM_NEWROUTE", Some("10.0.0.0/8"), "added")];
    let unknown: Vec<String> = judge(&test).unwatched.into_iter().map(|one| one.what).collect();
    assert!(
        ["steal", "route_changed"].iter().all(|what| unknown.iter().any(|one| one == what)),
        "{unknown:?}"
    );
    let unwatched = TestRecord { conditions: vec![], ..quiet() };
    let judged = judge(&unwatched);
    assert_eq!((judged.verdict, judged.unwatched[0].what.as_str()), (Trust::Valid, CONDITIONS));
}

#[test]
fn a_record_of_before_is_judged_by_what_it_has() {
    let mut old = quiet();
    (old.conditions, old.validity) = (vec![], None);
    old.invalid = vec!["counters still moved".into()];
    assert_eq!(
        (of(&old).verdict, reasons(&old, Trust::Invalid)),
        (Trust::Invalid, Some("counters still moved".into()))
    );
    old.invalid.clear();
    assert_eq!(of(&old).verdict, Trust::Valid);
}

#[test]
fn repetitions_with_one_reason_share_a_line_and_the_worst_comes_first() {
    let mut tests = [quiet(), quiet(), quiet()];
    for (test, number) in tests.iter_mut().zip(1..) {
        test.repetition = number;
    }
    tests[0].cpu[0].steal = 6;
    tests[2].cpu[0].steal = 6;
    tests[1].conditions[0].changes = vec![change("b", "eth0", "RTM_NEWLINK", None, "MTU 1500 → 1400")];
    let tests: Vec<&TestRecord> = tests.iter().collect();
    let lines = lines(&tests);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert_eq!(
        lines[0],
        "! udp-stream 64 B #2: invalid: node b, eth0: MTU 1500 → 1400 1.23 s into the test (RTM_NEWLINK)"
    );
    assert!(
        lines[1].starts_with("? udp-stream 64 B #1 #3: suspect: the hypervisor gave 0.6 % of"),
        "{}",
        lines[1]
    );
    assert_eq!((worst_of(&tests), mark(worst_of(&tests))), (Trust::Invalid, " !"));
    let cost = cost_words(&tests).unwrap();
    assert!(cost.contains("pathlab 1.0 % of a CPU, its programs in the kernel 3.0 % of a CPU"), "{cost}");
}

#[test]
fn every_row_has_a_word_of_its_own_and_can_speak() {
    let words: Vec<&str> = ROWS.iter().map(|row| row.what).collect();
    let mut once = words.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), words.len());
    let spoken = DISTURBED.iter().map(|(_, what, _)| *what);
    let spoken: Vec<&str> =
        spoken.chain(CHANGED.iter().filter_map(|row| Some(row.3?.0))).chain(["idle_state"]).collect();
    let silent: Vec<&&str> = words.iter().filter(|word| !spoken.contains(*word)).collect();
    assert!(silent.is_empty(), "no test makes these speak: {silent:?}");
}

#[test]
fn the_documentation_has_the_table() {
    let mut table = String::from("| word | what is read | from when on |\n|---|---|---|\n");
    for [what, input, threshold] in rows() {
        table += &format!("| `{what}` | {input} | {threshold} |\n");
    }
    let docs = include_str!("../../../../docs/validity.md");
    assert!(docs.contains(&table), "docs/validity.md must have this table:\n\n{table}");
}

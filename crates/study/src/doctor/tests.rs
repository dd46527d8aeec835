//! Every rule on facts where it fires, where it does not, and without each of its inputs.

use super::measured::{of_hosts, of_test};
use super::*;
use record::facts::{Fact, Facts, Known, NodeFacts};
use record::{Hop, TestRecord, TrafficKind};
use std::collections::{BTreeMap, BTreeSet};

const FIXTURES: &str = include_str!("fixtures/rules.facts");

/// Sections of the table and how many rules each has: 123.
const IDS: [(&str, u32); 23] = [
    ("CPU", 13),
    ("IRQ", 8),
    ("SOFT", 9),
    ("RSS", 6),
    ("RPS", 2),
    ("RFS", 1),
    ("XPS", 1),
    ("RNG", 5),
    ("OFF", 8),
    ("MTU", 3),
    ("VLAN", 1),
    ("QD", 7),
    ("TCP", 16),
    ("UDP", 5),
    ("IP", 7),
    ("LNK", 5),
    ("PCI", 6),
    ("DRV", 5),
    ("BND", 5),
    ("TS", 4),
    ("CAP", 3),
    ("VM", 2),
    ("CG", 1),
];

/// Words of a line; quotes hold one together and mean that it is a text.
fn words(line: &str) -> Vec<String> {
    let (mut found, mut word, mut quoted) = (vec![], String::new(), false);
    for letter in line.chars() {
        match letter {
            '"' => {
                quoted = !quoted;
                word.push(letter);
            }
            ' ' if !quoted => found.push(std::mem::take(&mut word)),
            letter => word.push(letter),
        }
    }
    found.push(word);
    found.retain(|word| !word.is_empty());
    found
}

fn value(text: &str) -> Fact {
    if let Some(text) = text.strip_prefix('"') {
        return Fact::Text(text.trim_end_matches('"').to_owned());
    }
    if let Some((before, after)) = text.split_once("->") {
        return Fact::Counter { before: before.parse().unwrap(), after: after.parse().unwrap() };
    }
    match text {
        "on" => Fact::Flag(true),
        "off" => Fact::Flag(false),
        "{}" => Fact::each([]),
        text => Fact::word(text),
    }
}

/// What a line of fixtures says, and what it says of the other end.
fn parsed(line: &str) -> (Known, Known) {
    let (mut ours, mut theirs) = (Known::new(), Known::new());
    for word in words(line) {
        let (name, text) = word.split_once('=').unwrap_or_else(|| panic!("{word}"));
        let name = name.replace('"', "");
        let (known, name) = match name.strip_prefix("peer.") {
            Some(name) => (&mut theirs, name.to_owned()),
            None => (&mut ours, name),
        };
        let Some((name, place)) = name.split_once('@') else {
            known.insert(name, value(text));
            continue;
        };
        let entry = known.entry(name.to_owned()).or_insert_with(|| Fact::each([]));
        let Fact::Each { each } = entry else { panic!("{name} has places and none") };
        each.insert(place.to_owned(), value(text));
    }
    (ours, theirs)
}

/// Lines of the fixtures: rule, what it shall do, what is known here and at the other end.
fn fixtures() -> Vec<(&'static str, &'static str, Known, Known)> {
    let lines = FIXTURES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = |line: &'static str| {
        let mut parts = line.splitn(3, ' ');
        let (id, what, facts) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let (mut ours, theirs) = parsed(facts);
        let rule = rules().find(|rule| rule.id == id).unwrap_or_else(|| panic!("there is no rule {id}"));
        for (name, words) in rule.given {
            let first = words.split('|').next().unwrap();
            ours.entry((*name).to_owned()).or_insert_with(|| value(first));
        }
        (id, what, ours, theirs)
    };
    lines.map(line).collect()
}

fn host(known: Known) -> Facts {
    let interfaces = BTreeMap::from([("eth0".to_owned(), known)]);
    let node = NodeFacts { interfaces, ..NodeFacts::default() };
    Facts { seconds: 1.0, nodes: BTreeMap::from([("host".to_owned(), node)]), ..Facts::default() }
}

/// Facts where a rule looks for them: of the host, of a node, or of an interface.
fn facts(at: At, known: Known) -> Facts {
    let mut facts = host(Known::new());
    match at {
        At::Host => facts.host = known,
        At::Node => facts.nodes.get_mut("host").unwrap().known = known,
        At::Interface => return host(known),
    }
    facts
}

fn ends(rule: &DoctorRule, ours: &Known, theirs: &Known) -> RuleReport {
    let peer = (!theirs.is_empty()).then(|| host(theirs.clone()));
    let beside = Beside { peer: peer.as_ref(), ..Beside::default() };
    report(rule, &facts(rule.at, ours.clone()), &beside, &Goal::ALL)
}

#[test]
fn all_123_rules_are_there_once() {
    let wanted: Vec<String> = IDS
        .iter()
        .flat_map(|(name, count)| (1..=*count).map(move |number| format!("{name}-{number:02}")))
        .collect();
    let known: Vec<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!((wanted.len(), known.len()), (123, 123));
    assert_eq!(wanted.iter().map(String::as_str).collect::<BTreeSet<_>>(), known.into_iter().collect());
    for rule in rules() {
        assert!(!rule.inputs.is_empty() && !rule.goals.is_empty(), "{}", rule.id);
        assert!(rule.goals.chars().all(|goal| "TLCRM".contains(goal)), "{}", rule.id);
        for text in [rule.condition, rule.meaning, rule.source] {
            assert!(!text.is_empty(), "{}", rule.id);
        }
    }
}

#[test]
fn every_rule_fires_where_it_shall_and_only_there() {
    let mut seen = BTreeMap::new();
    for (id, what, ours, theirs) in fixtures() {
        let rule = rules().find(|rule| rule.id == id).unwrap();
        let report = ends(rule, &ours, &theirs);
        let status = match what {
            "fires" => RuleStatus::Finding,
            "quiet" => RuleStatus::Ok,
            other => panic!("{other}"),
        };
        assert_eq!(report.status, status, "{id} {what}: {}", report.evidence);
        assert!(!report.evidence.is_empty(), "{id}");
        if status == RuleStatus::Finding {
            assert!(report.loss > 0.0 && report.loss <= 1.0, "{id}: {}", report.loss);
            assert!(!report.command.is_empty(), "{id}");
            assert!(
                !report.command.contains('{') && !report.command.contains("NEW"),
                "{id}: {}",
                report.command
            );
        }
        seen.entry(id).or_insert_with(BTreeSet::new).insert(what);
    }
    let missing: Vec<&str> =
        rules().map(|rule| rule.id).filter(|id| seen.get(id).is_none_or(|seen| seen.len() < 2)).collect();
    assert_eq!(missing, [""; 0], "rules without fixtures");
}

#[test]
fn without_any_of_its_inputs_a_rule_is_unknown_and_says_which() {
    for (id, _, ours, theirs) in fixtures() {
        let rule = rules().find(|rule| rule.id == id).unwrap();
        for input in rule.inputs {
            let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
            for name in input.split('|') {
                match name.strip_prefix("peer.") {
                    Some(name) => theirs.insert(name.into(), Fact::unknown("it was taken away")),
                    None => ours.insert(name.into(), Fact::unknown("it was taken away")),
                };
            }
            let report = ends(rule, &ours, &theirs);
            assert_eq!(report.status, RuleStatus::Unknown, "{id} without {input}: {}", report.evidence);
            let first = input.split('|').next().unwrap();
            assert_eq!(report.evidence, format!("{first}: it was taken away"), "{id}");
        }
    }
}

/// What a rule reads and does not name as its input would be looked at without being known.
#[test]
fn a_rule_reads_nothing_but_its_inputs() {
    for (id, what, ours, theirs) in fixtures() {
        let rule = rules().find(|rule| rule.id == id).unwrap();
        let is_named = |name: &String| {
            let named = rule.inputs.iter().flat_map(|input| input.split('|')).any(|one| one == name);
            named || rule.given.iter().any(|(one, _)| one == name)
        };
        let only: Known =
            ours.iter().filter(|(name, _)| is_named(name)).map(|(a, b)| (a.clone(), b.clone())).collect();
        let report = ends(rule, &only, &theirs);
        assert!(
            matches!(report.status, RuleStatus::Finding | RuleStatus::Ok),
            "{id} {what}: {}",
            report.evidence
        );
        let named: Vec<&str> = rule.inputs.iter().flat_map(|input| input.split('|')).collect();
        let unused: Vec<&String> = ours.keys().filter(|name| !is_named(name)).collect();
        assert!(unused.is_empty(), "{id}: {unused:?} is in a fixture and not among {named:?}");
    }
}

#[test]
fn a_rule_does_not_apply_where_what_it_is_given_is_not_so() {
    let (_, _, mut ours, theirs) = fixtures().into_iter().find(|(id, ..)| *id == "BND-02").unwrap();
    let rule = rules().find(|rule| rule.id == "BND-02").unwrap();
    ours.insert("kind".into(), Fact::Text("veth".into()));
    let report = ends(rule, &ours, &theirs);
    assert_eq!((report.status, report.evidence.as_str()), (RuleStatus::NotApplicable, "kind is veth"));
    ours.remove("kind");
    let report = ends(rule, &ours, &theirs);
    assert_eq!(
        (report.status, report.evidence.as_str()),
        (RuleStatus::Unknown, "kind: these facts do not have it")
    );
}

#[test]
fn what_is_advised_goes_with_what_was_found() {
    let found = |rule: &str, which: usize| {
        let (_, _, ours, theirs) =
            fixtures().into_iter().filter(|one| one.0 == rule && one.1 == "fires").nth(which).unwrap();
        let report = ends(rules().find(|one| one.id == rule).unwrap(), &ours, &theirs);
        (report.command, report.undo, report.places[0].change.clone().map(|change| change.set))
    };
    let (command, undo, change) = found("MTU-02", 0);
    assert_eq!(
        (command.as_str(), undo.as_str()),
        (
            "pathlab tune set eth0 mtu=1500 --allow-link-flap",
            "pathlab tune set eth0 mtu=1400 --allow-link-flap"
        )
    );
    assert_eq!(change.as_deref(), Some("eth0:mtu=1500"));
    let (command, undo, change) = found("MTU-02", 1);
    assert!(
        command.starts_with("look for the smaller MTU") && undo.is_empty() && change.is_none(),
        "{command}"
    );
    // Of each queue or CPU, which each had a value of its own.
    let (command, undo, change) = found("RPS-01", 0);
    assert_eq!(
        (command.as_str(), undo.as_str()),
        ("pathlab tune set eth0 'rps_cpus@*=0-3'", "pathlab tune undo 'eth0:rps_cpus@*'")
    );
    assert_eq!(change.as_deref(), Some("eth0:rps_cpus@*=0-3"));
    let (command, undo, _) = found("CPU-01", 0);
    assert_eq!(
        (command.as_str(), undo.as_str()),
        ("pathlab tune set 'cpu.governor@*=performance'", "pathlab tune undo 'cpu.governor@*'")
    );
    let (sack, ..) = found("TCP-05", 0);
    let (stamps, undo, _) = found("TCP-05", 1);
    assert_eq!(
        (sack.as_str(), stamps.as_str()),
        ("pathlab tune set net.ipv4.tcp_sack=1", "pathlab tune set net.ipv4.tcp_timestamps=1")
    );
    assert_eq!(undo, "pathlab tune set net.ipv4.tcp_timestamps=0");
    let (command, undo, _) = found("QD-03", 0);
    assert_eq!(
        (command.as_str(), undo.as_str()),
        ("pathlab tune set eth0 qdisc=fq", "pathlab tune undo eth0:qdisc")
    );
    // What is so already, or cannot be more, is not advised.
    let facts = |id: &str, facts: &str| {
        let rule = rules().find(|rule| rule.id == id).unwrap();
        let mut known = parsed(facts).0;
        let given = rule
            .given
            .iter()
            .map(|(name, words)| ((*name).to_owned(), value(words.split('|').next().unwrap())));
        known.extend(given);
        ends(rule, &known, &Known::new()).command
    };
    let requeues = "qdisc.requeues=0->9000 tx_timeout=0->0";
    assert!(facts("RNG-03", requeues).starts_with("less at a time"));
    assert!(
        facts("RNG-03", &format!("{requeues} ring.tx=512 ring.tx-max=512")).starts_with("less at a time")
    );
    let longer = facts("RNG-03", &format!("{requeues} ring.tx=256 ring.tx-max=512"));
    assert_eq!(longer, "pathlab tune set eth0 ring.tx=512 --allow-link-flap");
    assert!(facts("VM-01", "queues.rx=1 cpus=8 channels.combined-max=1").starts_with("let the hypervisor"));
    assert!(facts("VM-01", "queues.rx=1 cpus=8 channels.combined-max=4").contains("channels.combined=4 "));
    let queues =
        "flows.active=200 queue.rx_packets@0=0->900 queue.rx_packets@1=0->50 queue.rx_packets@2=0->50";
    assert!(facts("RSS-03", queues).ends_with("ethtool -X eth0 equal 3"));
    assert!(facts("TS-01", "stamps.hardware=\"off (fixed)\"").starts_with("measure with a card"));
    let shaped =
        "queues.tx=8 cpu.busy@0=0->90 cpu.total@0=0->100 stats.rx_packets=0->9 stats.tx_packets=0->900000";
    assert_eq!(facts("QD-04", &format!("qdisc.kind=htb {shaped}")), "tc qdisc replace dev eth0 root mq");
    let scaled = "tcp.wscale@a>b=0 tcp.rtt_us@a>b=1000";
    let there = facts("TCP-04", &format!("\"sysctl net.ipv4.tcp_window_scaling\"=1 {scaled}"));
    assert_eq!(there, "at the other end: pathlab tune set net.ipv4.tcp_window_scaling=1");
    let names =
        "\"sysctl net.ipv4.tcp_available_congestion_control\"=\"reno cubic bbr\" tcp.congestion@a>b=cubic";
    let chosen =
        |set: &str| facts("TCP-06", &format!("\"sysctl net.ipv4.tcp_congestion_control\"={set} {names}"));
    assert!(
        chosen("bbr").starts_with("look who asks for another") && chosen("reno").contains("control=cubic")
    );
    // What it was there, nobody knows here.
    assert_eq!(found("TCP-01", 0).1, "at the other end: pathlab tune undo net.ipv4.tcp_rmem");
}

#[test]
fn commands_are_about_the_namespace_that_was_looked_into() {
    let advised = |id: &str, place: &str| {
        let (_, _, ours, _) = fixtures().into_iter().find(|one| one.0 == id && one.1 == "fires").unwrap();
        let rule = rules().find(|one| one.id == id).unwrap();
        let mut facts = facts(rule.at, ours);
        facts.nodes.values_mut().for_each(|node| node.place = place.into());
        let report = report(rule, &facts, &Beside::default(), &Goal::ALL);
        (report.command, report.undo)
    };
    assert_eq!(advised("QD-03", "--in blue").1, "pathlab tune undo eth0:qdisc --in blue");
    assert_eq!(advised("CPU-01", "--in blue").1, "pathlab tune undo 'cpu.governor@*'");
    let advised = |id: &str, place: &str| advised(id, place).0;
    assert_eq!(advised("OFF-01", "--lab l/a").split(" --lab ").nth(1), Some("l/a"));
    assert_eq!(advised("QD-03", "--in blue"), "pathlab tune set eth0 qdisc=fq --in blue");
    assert_eq!(advised("QD-03", ""), "pathlab tune set eth0 qdisc=fq");
    assert!(!advised("UDP-01", "--in blue").contains("--in"), "only the first namespace can set it");
    assert!(!advised("SOFT-09", "--in blue").contains("--in"), "only the first namespace has it");
    assert_eq!(
        advised("RFS-01", "--in blue"),
        "pathlab tune set net.core.rps_sock_flow_entries=32768; pathlab tune set eth0 'rps_flow_cnt@*=32768' --in blue"
    );
    assert!(advised("RFS-01", "").starts_with("pathlab tune set eth0 net.core.rps_sock_flow_entries=32768 "));
    assert_eq!(advised("QD-07", "--in blue"), "ip netns exec blue tc qdisc del dev eth0 root");
    assert!(advised("QD-06", "--in blue").ends_with("set eth0 ring.tx=256 --allow-link-flap --in blue"));
    assert!(advised("XPS-01", "--lab l/a").ends_with("set eth0 xps_cpus@tx-N=CPU --lab l/a"));
    for (place, begin) in [
        ("--in blue", "ip netns exec blue ethtool -X eth0 "),
        ("--in pid:7", "nsenter --net=/proc/7/ns/net ethtool -X eth0 "),
        ("--lab l/a", "pathlab lab exec l a -- ethtool -X eth0 "),
    ] {
        let command = advised("RSS-05", place);
        assert!(command.starts_with(begin), "{command}");
    }
}

#[test]
fn what_a_stranger_wrote_into_facts_is_one_word_of_a_command() {
    let known =
        parsed("feature.rx-checksum=\"off; reboot\" channels.combined={channels.combined} txqueuelen=5").0;
    let look = Look { known: [Some(&known), None, None], peer: None, seconds: 1.0 };
    let place = Place { name: String::new(), node: "a", within: "--in b;c", interface: "IF$(id)", look };
    let run = |words| commands(Advice::Run(words, ""), &place, "1;NEW").0;
    assert_eq!(
        run("ethtool -K IF rx {feature.rx-checksum}; echo NEW > /sys/class/net/IF/mtu"),
        "ip netns exec 'b;c' ethtool -K 'IF$(id)' rx 'off; reboot'; echo '1;NEW' > /sys/class/net/'IF$(id)'/mtu"
    );
    assert_eq!(run("echo {channels.combined}"), "echo '{channels.combined}'");
    let (set, undo) = commands(Advice::Knob("txqueuelen", "NEW"), &place, "1;NEW");
    assert_eq!(set, "pathlab tune set 'IF$(id)' 'txqueuelen=1;NEW' --in 'b;c'");
    assert_eq!(undo, "pathlab tune set 'IF$(id)' txqueuelen=5 --in 'b;c'");
}

#[test]
fn the_worst_comes_first_and_other_goals_do_not_count() {
    let (ours, _) = parsed(
        "kind=veth feature.tx-tcp-segmentation=off feature.rx-gro=on feature.rx-lro=off feature.tx-nocache-copy=on \
         stats.tx_packets=0->0 stats.tx_bytes=0->0",
    );
    let first = |goal| {
        let report = examine(&host(ours.clone()), None, goal);
        report.rules.first().map(|rule| (rule.id.clone(), rule.status)).unwrap()
    };
    assert_eq!(first(Some(Goal::Throughput)), ("OFF-01".into(), RuleStatus::Finding));
    assert_eq!(first(Some(Goal::Capture)), ("OFF-04".into(), RuleStatus::Finding));
    assert_eq!(first(Some(Goal::Latency)).1, RuleStatus::Unknown);
    let report = examine(&host(ours.clone()), None, Some(Goal::Throughput));
    assert_eq!(report.counts.values().sum::<u64>(), 123);
    assert_eq!(report.rules[0].command, "pathlab tune set eth0 feature.tx-tcp-segmentation=on");
    assert_eq!(report.rules[0].undo, "pathlab tune set eth0 feature.tx-tcp-segmentation=off");
    let gro = report.conflicts.iter().find(|one| one.knob == "feature.rx-gro").unwrap();
    assert!(gro.now.contains("eth0: on") && gro.other.contains("capture"), "{gro:?}");
    let text = super::text::report(&report, true);
    assert!(text.starts_with(" 1. OFF-01 eth0: tx-tcp-segmentation is off"), "{text}");
    assert!(
        text.contains("123 rules") && text.contains("CPU-05 cpu.steal: these facts do not have it"),
        "{text}"
    );
}

/// The places at which a rule was asked.
fn places_of(report: &DoctorReport, rule: &str) -> Vec<String> {
    let rule = report.rules.iter().find(|one| one.id == rule).unwrap();
    let mut places: Vec<String> = rule.places.iter().map(|place| place.place.clone()).collect();
    places.sort();
    places
}

/// A host on the way is asked for what forwarding wants, too, and the interfaces at which links to it end are known.
#[test]
fn a_host_on_the_way_is_judged_as_one_that_forwards() {
    let none = Fact::Counter { before: 0, after: 0 };
    let host = |node: &str, cards: &[(&str, &str, f64)]| {
        let card = |(name, addresses, mtu): &(&str, &str, f64)| {
            let quiet = ["stats.rx_length_errors", "stats.rx_over_errors"].map(|name| (name, none.clone()));
            let known = [("addresses", Fact::Text((*addresses).into())), ("mtu", Fact::Number(*mtu))];
            let known = known.into_iter().chain(quiet);
            ((*name).to_owned(), known.map(|(name, fact)| (name.to_owned(), fact)).collect())
        };
        let interfaces = cards.iter().map(card).collect();
        let counters = ["TcpExt.TCPMTUPFail", "Ip.FragFails"].map(|name| (name.to_owned(), none.clone()));
        let known = counters.into();
        let node_facts = NodeFacts { interfaces, known, ..NodeFacts::default() };
        Facts { nodes: [(node.to_owned(), node_facts)].into(), ..Facts::default() }
    };
    let (a, b) =
        (host("a", &[("eth0", "10.0.1.1/24", 9000.0)]), host("b", &[("eth0", "10.0.2.1/24", 9000.0)]));
    let router = host("r", &[("left", "10.0.1.9/24", 9000.0), ("right", "10.0.2.9/24", 1500.0)]);
    let mut test = TestRecord { facts: Some(a), far_facts: Some(b), ..TestRecord::default() };
    (test.spec.from, test.spec.to) = ("a".into(), "b".into());
    let (name, unseen) = ("r".to_owned(), None);
    test.via = vec![record::ViaHost { name, unseen, facts: Some(router) }];
    let reports = of_test(&test);
    let names: Vec<&str> = reports.iter().filter_map(|(name, _)| name.as_deref()).collect();
    assert_eq!(names, ["a", "r", "b"]);
    let findings = |id: &str| -> Vec<String> {
        let of = |(name, report): &(Option<String>, DoctorReport)| {
            let rule = report.rules.iter().find(|rule| rule.id == id).unwrap();
            let found = rule.places.iter().filter(|place| place.status == RuleStatus::Finding);
            found
                .map(|place| format!("{} says {}", name.as_deref().unwrap(), place.place))
                .collect::<Vec<_>>()
        };
        reports.iter().flat_map(of).collect()
    };
    assert_eq!(findings("MTU-02"), ["r says r:right", "b says b:eth0"]);
    let asked: Vec<Vec<String>> = reports.iter().map(|(_, report)| places_of(report, "IP-01")).collect();
    assert_eq!(asked, [vec![""], vec!["node r"], vec![""]], "who only receives is not asked");
}

/// Of a test over one card of a host with two, the other one's settings were advised, and tried by `prove --doctor`.
#[test]
fn between_two_hosts_the_interfaces_of_the_test_are_judged() {
    let slow = |mtu_other: f64| -> Known {
        [("mtu".to_owned(), Fact::Number(9000.0)), ("mtu.other".to_owned(), Fact::Number(mtu_other))].into()
    };
    let host = |own: &str, cards: &[&str]| {
        let interfaces = cards.iter().map(|name| ((*name).to_owned(), slow(1500.0))).collect();
        Facts {
            nodes: [(own.to_owned(), NodeFacts { interfaces, ..NodeFacts::default() })].into(),
            ..Facts::default()
        }
    };
    let mut test = TestRecord::default();
    (test.spec.from, test.spec.to) = ("local".into(), "far".into());
    let hop = |node: &str, egress: Option<&str>| Hop {
        node: node.into(),
        role: record::NodeRole::Sender,
        ingress: None,
        egress: egress.map(Into::into),
        bridge: None,
    };
    test.path.forward = vec![hop("local", Some("lan")), hop("far", None)];
    let (near, far) = (host(OWN, &["lan", "office"]), host("far", &["a", "b"]));
    let places = |test: Option<&TestRecord>| {
        let hosts = [("local", Some(&near)), ("far", Some(&far))];
        let reports = of_hosts(&hosts, test, Goal::Throughput).into_iter().flatten();
        reports.map(|report| places_of(&report, "MTU-02")).collect::<Vec<_>>()
    };
    assert_eq!(
        places(Some(&test)),
        [vec!["lan"], vec!["far:a", "far:b"]],
        "where nobody knows, all are judged"
    );
    assert_eq!(places(None)[0], ["lan", "office"]);
    test.facts = Some(near);
    let alone = of_test(&test);
    assert_eq!((alone.len(), alone[0].0.as_deref()), (1, Some("local")), "the other end tells nothing");
}

/// CPU-12 told to stop the port that receives a test of frames.
#[test]
fn the_port_of_a_test_is_no_observer_of_it() {
    let found = |kind: TrafficKind, port: &str, node: &str, taps: f64| {
        let eth0 =
            [("taps".to_owned(), Fact::Number(taps)), ("xdp".to_owned(), Fact::Text("none".into()))].into();
        let node_facts = NodeFacts { interfaces: [("eth0".to_owned(), eth0)].into(), ..NodeFacts::default() };
        let facts = Facts { nodes: [(node.to_owned(), node_facts)].into(), ..Facts::default() };
        let mut test = TestRecord::default();
        (test.spec.kind, test.spec.port) = (kind, port.into());
        (test.spec.from, test.spec.to) = ("a".into(), "b".into());
        let hop = |node: &str, ingress: Option<&str>| Hop {
            node: node.into(),
            role: record::NodeRole::Receiver,
            ingress: ingress.map(Into::into),
            egress: None,
            bridge: None,
        };
        test.path.forward = vec![hop("a", None), hop("b", Some("eth0"))];
        let reports = match node {
            // Of a lab.
            "b" => {
                test.facts = Some(facts);
                of_test(&test).into_iter().map(|(_, report)| report).collect::<Vec<_>>()
            }
            _ => {
                let hosts = [("a", None), ("b", Some(&facts))];
                of_hosts(&hosts, Some(&test), Goal::Throughput).into_iter().flatten().collect()
            }
        };
        let rule = reports[0].rules.iter().find(|rule| rule.id == "CPU-12").unwrap();
        rule.status == RuleStatus::Finding
    };
    for node in ["b", OWN] {
        assert!(
            !found(TrafficKind::Frames, "", node, 1.0) && !found(TrafficKind::Frames, "xdp/ring", node, 1.0)
        );
        assert!(found(TrafficKind::Frames, "", node, 2.0), "a stranger's beside it");
        assert!(
            found(TrafficKind::Frames, "int/xdp", node, 1.0) && found(TrafficKind::UdpStream, "", node, 1.0)
        );
    }
}

#[test]
fn of_several_knobs_those_that_are_so_already_are_left_out() {
    let rule = rules().find(|rule| rule.id == "IRQ-01").unwrap();
    let advised = |facts: &str| {
        let mut known = parsed(facts).0;
        known.insert("kind".into(), value("card"));
        let report = ends(rule, &known, &Known::new());
        let change = report.places[0].change.clone().map(|change| change.set);
        (report.command, report.undo, change.unwrap_or_default())
    };
    let (command, undo, change) = advised("coalesce.rx-usecs=8 coalesce.adaptive-rx=on");
    assert_eq!(command, "pathlab tune set eth0 coalesce.adaptive-rx=off coalesce.rx-usecs=0");
    assert_eq!(undo, "pathlab tune set eth0 coalesce.adaptive-rx=on coalesce.rx-usecs=8");
    assert_eq!(change, "eth0:coalesce.adaptive-rx=off+eth0:coalesce.rx-usecs=0");
    // A driver that has none.
    let (command, undo, change) = advised("coalesce.rx-usecs=100 coalesce.adaptive-rx=\"off (fixed)\"");
    assert_eq!(
        (command.as_str(), undo.as_str()),
        ("pathlab tune set eth0 coalesce.rx-usecs=0", "pathlab tune set eth0 coalesce.rx-usecs=100")
    );
    assert_eq!(change, "eth0:coalesce.rx-usecs=0");
}

/// What it depends on is switched on before it; an algorithm is one that the node's namespace takes.
#[test]
fn what_is_advised_can_be_set() {
    let advised = |id: &str, facts: &str| {
        let rule = rules().find(|rule| rule.id == id).unwrap();
        let mut known = parsed(facts).0;
        known.insert("kind".into(), value("card"));
        ends(rule, &known, &Known::new()).command
    };
    let off = "feature.tx-tcp-segmentation=off stats.tx_packets=0->9 stats.tx_bytes=0->9000";
    let rows = [
        ("", "feature.tx-tcp-segmentation=on"),
        (
            "feature.tx-checksum-ip-generic=off feature.tx-scatter-gather=off",
            "feature.tx-checksum-ip-generic=on feature.tx-scatter-gather=on feature.tx-tcp-segmentation=on",
        ),
        (
            "feature.tx-checksum-ip-generic=\"off (fixed)\" feature.tx-checksum-ipv4=off feature.tx-scatter-gather=off",
            "feature.tx-checksum-ipv4=on feature.tx-scatter-gather=on feature.tx-tcp-segmentation=on",
        ),
        (
            "feature.tx-checksum-ip-generic=on feature.tx-checksum-ipv4=off feature.tx-scatter-gather=off",
            "feature.tx-scatter-gather=on feature.tx-tcp-segmentation=on",
        ),
        (
            "feature.tx-tcp6-segmentation=off",
            "feature.tx-tcp-segmentation=on feature.tx-tcp6-segmentation=on",
        ),
        ("feature.tx-tcp6-segmentation=\"off (fixed)\"", "feature.tx-tcp-segmentation=on"),
        (
            "feature.tx-checksum-ip-generic=\"off (fixed)\" feature.tx-checksum-ipv4=off feature.tx-checksum-ipv6=\"off (fixed)\" \
             feature.tx-tcp6-segmentation=off",
            "feature.tx-checksum-ipv4=on feature.tx-scatter-gather=on feature.tx-tcp-segmentation=on feature.tx-tcp6-segmentation=on",
        ),
    ];
    for (more, wanted) in rows {
        assert_eq!(advised("OFF-01", &format!("{off} {more}")), format!("pathlab tune set eth0 {wanted}"));
    }
    // Of both versions of IP.
    let six = "feature.tx-tcp-segmentation=on feature.tx-tcp6-segmentation=off stats.tx_packets=0->9 stats.tx_bytes=0->9000";
    assert_eq!(advised("OFF-01", six), "pathlab tune set eth0 feature.tx-tcp6-segmentation=on");
    let sums = "feature.rx-checksum=\"on (fixed)\" feature.tx-checksum-ip-generic=off feature.tx-checksum-ipv4=\"off (fixed)\" \
        feature.tx-checksum-ipv6=\"off (fixed)\"";
    assert_eq!(advised("OFF-05", sums), "pathlab tune set eth0 feature.tx-checksum-ip-generic=on");
    let set = "\"sysctl net.ipv4.tcp_congestion_control\"=reno tcp.congestion={} \
        \"sysctl net.ipv4.tcp_available_congestion_control\"=\"reno bbr cubic\" \"sysctl net.ipv4.tcp_allowed_congestion_control\"=";
    for (allowed, wanted) in [("\"reno bbr\"", "bbr"), ("\"reno cubic bbr\"", "cubic"), ("reno", "cubic")] {
        let command = advised("TCP-06", &format!("{set}{allowed}"));
        assert_eq!(command, format!("pathlab tune set net.ipv4.tcp_congestion_control={wanted}"));
    }
}

/// Of connections without window scaling the one that comes nearest to what that allows is told; where none comes near, little is lost.
#[test]
fn a_window_that_nothing_fills_is_no_large_loss() {
    let rule = rules().find(|rule| rule.id == "TCP-04").unwrap();
    let of = |more: &str| {
        let on = "\"sysctl net.ipv4.tcp_window_scaling\"=1 tcp.wscale@a=off tcp.rtt_us@a=1000 tcp.wscale@b=off tcp.rtt_us@b=2000 ";
        let report = ends(rule, &parsed(&format!("{on}{more}")).0, &Known::new());
        (report.loss, report.evidence.split(':').next().unwrap_or_default().to_owned())
    };
    // 65,535 bytes in 1 ms are 524 Mbit/s, in 2 ms 262.
    assert_eq!(of("tcp.delivery_bps@a=250e6 tcp.delivery_bps@b=250e6"), (0.7, "b".into()));
    assert_eq!(of("tcp.delivery_bps@a=9e6 tcp.delivery_bps@b=1e6"), (0.05, "a".into()));
    // What it only receives fills the window of its own.
    let receives = "tcp.delivery_bps@b=8e3 tcp.segs_in@b=0->20000 tcp.mss@b=1448";
    assert_eq!(of(&format!("tcp.delivery_bps@a=9e6 {receives}")), (0.7, "b".into()));
    assert_eq!(of("").0, 0.7);
}

/// What only costs CPU time costs no throughput where the CPUs have time.
#[test]
fn wasted_cpu_time_is_ranked_by_how_busy_the_cpus_are() {
    let rule = rules().find(|rule| rule.id == "OFF-01").unwrap();
    let of = |more: &str| {
        let off = "kind=card feature.tx-tcp-segmentation=off stats.rx_packets=0->0 ";
        let report = ends(rule, &parsed(&format!("{off}{more}")).0, &Known::new());
        (format!("{:.2}", report.loss), report.places[0].evidence.clone())
    };
    let flows = "stats.tx_packets=0->1000 stats.tx_bytes=0->1500000";
    let alone = "tx-tcp-segmentation is off".to_owned();
    assert_eq!(of(flows), ("0.60".into(), alone.clone()), "nothing is known of the CPUs");
    let quarter = "cpu.busy@0=0->225 cpu.busy@1=0->20 cpu.total@0=0->1000 cpu.total@1=0->1000";
    let told = format!("{alone}; the busiest CPU is 22.5 % busy");
    assert_eq!(of(&format!("{flows} {quarter}")), ("0.15".into(), told));
    let full = "cpu.busy@0=0->950 cpu.busy@1=0->20 cpu.total@0=0->1000 cpu.total@1=0->1000";
    assert_eq!(of(&format!("{flows} {full}")), ("0.60".into(), alone.clone()));
    let nothing = "stats.tx_packets=0->3 stats.tx_bytes=0->200";
    assert_eq!(of(&format!("{nothing} {quarter}")), ("0.60".into(), alone), "nothing that a CPU would feel");
    // Samples of soft interrupts say themselves that there was work.
    for (id, share) in [("IP-05", "perf.nft_share=0.4"), ("PCI-05", "iommu=strict perf.iommu_share=0.4")] {
        let rule = rules().find(|rule| rule.id == id).unwrap();
        let loss = |more: &str| ends(rule, &parsed(&format!("{share} {more}")).0, &Known::new()).loss;
        assert_eq!(
            [quarter, full, ""].map(|cpus| format!("{:.2}", loss(cpus))),
            ["0.10", "0.40", "0.40"],
            "{id}"
        );
    }
}

#[test]
fn a_counter_that_ran_backwards_is_not_ok() {
    let rule = rules().find(|rule| rule.id == "IP-06").unwrap();
    let (ours, theirs) = parsed("Ip.ReasmFails=9->2 Ip.FragFails=0->0");
    let report = ends(rule, &ours, &theirs);
    assert_eq!(report.status, RuleStatus::Unknown);
    assert!(
        report.evidence.starts_with("Ip.ReasmFails: the counter went from 9 to 2"),
        "{}",
        report.evidence
    );
}

#[test]
fn the_documentation_has_the_tables_of_the_rows() {
    let docs = include_str!("../../../../docs/doctor.md");
    for part in [page::tables(), page::conflicts()] {
        assert!(docs.contains(part.trim()), "docs/doctor.md is not as the rows are; it should have:\n{part}");
    }
}

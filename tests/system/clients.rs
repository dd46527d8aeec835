//! `pathlab flow` and `pathlab controller` against `pathlab switch`, and ovs-ofctl against it.
//!
//! The switch has two ports without a cable, in a network namespace of its own that the test makes; a unix socket is reached from
//! anywhere, TCP from inside the namespace.

use super::switched::{Switched, until};
use crate::support::{self, finish, installed, pathlab, run, run_ok, skip, start};
use linux::sys::{netns, process};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A switch with two ports that listens at a unix socket and at TCP.
type Bench = Switched;

impl Switched {
    /// None, said visibly, where the test cannot run.
    fn build(what: &str, controller: Option<&str>) -> Option<Bench> {
        Switched::start(what, |folder| {
            let mut words =
                ["--dpid", "0x17", "--port", "1=int:p1", "--port", "2=int:p2"].map(str::to_owned).to_vec();
            words.extend(["--listen", "ptcp:6654:127.0.0.1"].map(str::to_owned));
            if let Some(controller) = controller {
                words.extend(["--controller".to_owned(), format!("unix:{}/{controller}", folder.display())]);
            }
            words
        })
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs a program in the namespace of the switch.
    fn inside(&self, mut command: Command) -> (Option<i32>, String, String) {
        process::enter(&mut command, self.netns.clone(), false);
        let output = finish(start(command), Duration::from_secs(60));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// ovs-ofctl, which must succeed; what it printed.
    fn ofctl(&self, arguments: &[&str]) -> String {
        let mut command = support::command("ovs-ofctl");
        command.args(arguments);
        let (code, out, err) = self.inside(command);
        assert_eq!(code, Some(0), "ovs-ofctl {arguments:?}: {out}{err}");
        out + &err
    }
}

fn document(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run_ok(&[&["--json"], arguments].concat())).expect("one document")
}

/// The rules of a dump, ours or ovs-ofctl's, as text of one form.
fn normal(dump: &str) -> BTreeSet<String> {
    let rules = dump.lines().filter(|line| line.contains("actions="));
    let one = |line: &str| {
        let (table, rule) = flow::text::rule::parse(line.trim()).unwrap_or_else(|e| panic!("{e}: {line}"));
        flow::text::rule::show(table, &flow::client::normal(&rule))
    };
    rules.map(one).collect()
}

const RULES: &str = "# a pipeline of two tables
table=0,priority=10,in_port=1 actions=goto_table:1
cookie=0x9,table=1,priority=5,tcp,nw_dst=10.0.0.0/8,tp_dst=80 actions=dec_ttl,output:2
table=1,priority=4,dl_vlan=7,idle_timeout=300 actions=pop_vlan,output:2
priority=3,ipv6,ipv6_dst=fe80::/10 actions=CONTROLLER:128

priority=0 actions=drop
";

#[test]
fn rules_go_in_come_out_and_are_compared() {
    let Some(bench) = Bench::build("pathlab flow", None) else { return };
    let (switch, file) = (bench.unix(), bench.file("rules", RULES));
    for version in ["1.3", "1.4"] {
        let ours = ["--openflow", version];
        let run_ok = |arguments: &[&str]| run_ok(&[&["flow"], arguments, &ours].concat());
        assert_eq!(run_ok(&["add", &switch, "--file", &file]), "5 rules added\n");
        let dump = run_ok(&["dump", &switch, "--rules"]);
        assert_eq!(normal(&dump), normal(RULES));
        assert_eq!(dump.lines().collect::<BTreeSet<_>>(), normal(RULES).iter().map(String::as_str).collect());
        assert!(run_ok(&["diff", &switch, &file]).contains("these rules and no others"));
        let only = run_ok(&["dump", &switch, "cookie=9/-1,table=1"]);
        assert!(
            only.lines().count() == 1 && only.contains("n_packets=0") && only.contains("tcp_dst=80"),
            "{only}"
        );
        run_ok(&["mod", &switch, "table=1,tcp actions=output:1"]);
        run_ok(&["del", &switch, "--strict", "table=0,priority=3,ipv6,ipv6_dst=fe80::/10"]);
        let output = run(&[&["flow", "diff", &switch, &file], &ours[..]].concat());
        assert_eq!(output.status.code(), Some(1));
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(words.lines().filter(|line| line.starts_with("- ")).count(), 2, "{words}");
        assert_eq!(words.lines().filter(|line| line.starts_with("+ ")).count(), 1, "{words}");
        assert_eq!(run_ok(&["del", &switch]), "4 rules deleted\n");
        assert_eq!(run_ok(&["dump", &switch]), "# no rules\n");
    }
}

#[test]
fn what_the_switch_refuses_is_one_sentence_with_the_rule() {
    let Some(bench) = Bench::build("pathlab flow, refusals", None) else { return };
    let switch = bench.unix();
    let file = bench.file("bad", "priority=1 actions=output:1\npriority=2 actions=group:77\n");
    for (version, left) in [("1.3", 1), ("1.4", 0)] {
        let output = run(&["flow", "add", &switch, "--file", &file, "--openflow", version]);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("bad:2") && words.contains("'priority=2 actions=group:77'"), "{words}");
        assert!(words.contains("BadOutGroup") && words.trim().lines().count() == 1, "{words}");
        // A bundle makes all or none; without one the first rule is there.
        let dump = document(&["flow", "dump", &switch, "--openflow", version]);
        assert_eq!(dump["rules"].as_array().unwrap().len(), left, "{dump}");
        run_ok(&["flow", "del", &switch]);
    }
    let output = run(&["flow", "add", &switch, "importance=7 actions=drop", "--openflow", "1.3"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && words.contains("importance is of OpenFlow 1.4"), "{words}");
    let nobody = format!("unix:{}/nobody", bench.folder.path().display());
    for arguments in [
        vec!["flow", "add", &switch, "priority=1,colour=red actions=drop"],
        vec!["flow", "add", &switch],
        vec!["flow", "dump", &nobody],
        vec!["flow", "dump", "somewhere"],
        vec!["flow", "show", &switch, "--openflow", "1.0"],
        vec!["controller", "dance"],
        vec!["controller", "replay"],
    ] {
        let output = run(&arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
        assert_eq!(words.trim().lines().count(), 1, "{arguments:?}: {words}");
    }
}

/// What ovs-ofctl refuses in a delete, and how many rules went, by the switch that ovs-ofctl asks.
#[test]
fn a_delete_refuses_what_it_would_not_look_at_and_says_how_many_rules_went() {
    let Some(bench) = Bench::build("pathlab flow del", None) else { return };
    let switch = bench.unix();
    let left = || normal(&run_ok(&["flow", "dump", &switch, "--rules"])).len();
    for version in ["1.3", "1.4"] {
        let of = ["--openflow", version];
        run_ok(&[&["flow", "add", &switch, "--file", &bench.file("rules", RULES)], &of[..]].concat());
        for arguments in [
            vec!["del", &switch, "table=0,priority=0,actions=FLOOD"],
            vec!["del", &switch, "table=0,priority=0"],
            vec!["del", &switch, "table=0,actions=FLOOD"],
            vec!["del", &switch, "--strict", "table=0,priority=0,actions=FLOOD"],
            vec!["del", &switch, "cookie=9"],
            vec!["mod", &switch, "table=0,priority=0,actions=FLOOD"],
            vec!["dump", &switch, "priority=0"],
        ] {
            let output = run(&[&["flow"], &arguments[..], &of[..]].concat());
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
            assert_eq!(words.trim().lines().count(), 1, "{arguments:?}: {words}");
        }
        assert_eq!(left(), 5);
        let del = |arguments: &[&str]| run_ok(&[&["flow", "del", &switch], arguments, &of[..]].concat());
        assert_eq!(del(&["--strict", "table=0,priority=0"]), "1 rule deleted\n");
        assert_eq!(del(&["--strict", "table=0,priority=0"]), "0 rules deleted\n");
        assert_eq!(del(&["table=1"]), "2 rules deleted\n");
        // Two deletes that are about the same rules count each rule once.
        assert!(del(&["table=0,in_port=1", "table=0", "--json"]).contains("\"removed\": 2"));
        assert_eq!(left(), 0);
    }
    if installed("ovs-ofctl") {
        for arguments in [
            vec!["del-flows", &switch, "table=0,priority=0"],
            vec!["del-flows", &switch, "table=0,actions=FLOOD"],
            vec!["--strict", "del-flows", &switch, "table=0,priority=0,actions=FLOOD"],
            vec!["del-flows", &switch, "cookie=9"],
        ] {
            let mut command = support::command("ovs-ofctl");
            command.args([&["-O", "OpenFlow13"], &arguments[..]].concat());
            let (code, out, err) = bench.inside(command);
            assert_eq!(code, Some(1), "ovs-ofctl {arguments:?}: {out}{err}");
        }
    }
}

#[test]
fn groups_meters_ports_tables_and_frames_can_be_asked_for() {
    let Some(bench) = Bench::build("pathlab flow, lists", None) else { return };
    let switch = bench.unix();
    let group = "group_id=5,type=all,bucket=actions=output:1,bucket=actions=output:2";
    let groups = document(&["flow", "groups", &switch, "--add", group]);
    assert_eq!(groups["groups"][0]["group"], group);
    let meter = "meter=3,kbps,band=type=drop,rate=1000";
    let meters = document(&["flow", "meters", &switch, "--add", meter]);
    assert_eq!(meters["meters"][0]["meter"], meter);
    run_ok(&["flow", "add", &switch, "in_port=1 actions=meter:3,group:5"]);
    let groups = document(&["flow", "groups", &switch]);
    assert_eq!((&groups["groups"][0]["references"], &groups["groups"][0]["id"]), (&1.into(), &5.into()));
    assert_eq!(document(&["flow", "meters", &switch])["meters"][0]["rules"], 1);

    run_ok(&[
        "flow",
        "packet-out",
        &switch,
        "output:2",
        "eth dst=02:00:00:00:00:09 / raw 0102",
        "--in-port",
        "1",
    ]);
    until("the frame left by port 2", || {
        let ports = document(&["flow", "ports", &switch]);
        let two = ports["ports"].as_array().unwrap().iter().find(|port| port["port"] == "2").unwrap().clone();
        two["tx_frames"].as_u64() >= Some(1) && two["name"] == "p2"
    });
    let tables = document(&["flow", "tables", &switch]);
    assert_eq!(tables["tables"][0]["rules"], 1);
    assert!(run_ok(&["flow", "tables", &switch]).contains("more tables are empty"));
    let shown = document(&["flow", "show", &switch]);
    assert_eq!((shown["dpid"].as_str(), shown["openflow"].as_str()), (Some("0000000000000017"), Some("1.4")));
    let named = "meter=controller,pktps,band=type=drop,rate=100";
    run_ok(&["flow", "meters", &switch, "--add", named]);
    let left = document(&["flow", "meters", &switch, "--delete", "controller", "--delete", "0x3"]);
    assert_eq!(left["meters"].as_array().unwrap().len(), 0, "{left}");
    for list in ["groups", "meters"] {
        let left = document(&["flow", list, &switch, "--delete", "all"]);
        assert_eq!(left[list].as_array().unwrap().len(), 0, "{left}");
    }
}

#[test]
fn a_controller_fills_switches_that_call_and_switches_that_it_calls() {
    let Some(bench) = Bench::build("pathlab controller", Some("c.sock")) else { return };
    let (switch, place) = (bench.unix(), format!("punix:{}/c.sock", bench.folder.path().display()));
    run_ok(&["flow", "add", &switch, "priority=7 actions=drop"]);
    let done = document(&["controller", "iperf", "--listen", &place, "--until", "1"]);
    assert_eq!(done["switches"][0]["dpid"], "0000000000000017");
    let dump = run_ok(&["flow", "dump", &switch, "--rules"]);
    assert_eq!(
        dump,
        "cookie=0x1,table=0,priority=32768,in_port=1 actions=output:2\n\
         cookie=0x2,table=0,priority=32768,in_port=2 actions=output:1\n"
    );
    let file = bench.file("rules", RULES);
    for (scenario, rules) in [
        (vec!["hub"], "cookie=0x1,table=0,priority=0 actions=FLOOD\n"),
        (vec!["drop-all"], "cookie=0x1,table=0,priority=0 actions=drop\n"),
        (vec!["replay", &file], RULES),
    ] {
        run_ok(&[&["controller"], &scenario[..], &["--switch", &switch, "--until", "1"]].concat());
        assert_eq!(normal(&run_ok(&["flow", "dump", &switch, "--rules"])), normal(rules));
    }
}

#[test]
fn a_learning_controller_makes_rules_of_frames() {
    let Some(bench) = Bench::build("pathlab controller learning", None) else { return };
    let switch = bench.unix();
    let controller = start(pathlab(&["controller", "learning", "--switch", &switch, "--json"]));
    until("the switch has its rule", || {
        run_ok(&["flow", "dump", &switch, "--rules"]).contains("CONTROLLER:65535")
    });
    let send = |port: &str, to: &str, from: &str| {
        let frame = format!("eth dst=02:00:00:00:00:{to} src=02:00:00:00:00:{from} / raw 0102");
        run_ok(&["flow", "packet-out", &switch, "TABLE", &frame, "--in-port", port]);
    };
    send("1", "bb", "aa");
    send("2", "aa", "bb");
    until("a rule was learned", || {
        let dump = run_ok(&["flow", "dump", &switch, "--rules"]);
        dump.contains("in_port=2,dl_dst=02:00:00:00:00:aa,dl_src=02:00:00:00:00:bb actions=output:1")
    });
    process::interrupt(&controller).unwrap();
    let output = finish(controller, Duration::from_secs(30));
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(done["switches"][0]["learned_rules"].as_u64() >= Some(1), "{done}");
    assert_eq!(done["switches"][0]["refused"], 0);
}

#[test]
fn ovs_ofctl_works_with_our_switch() {
    if !installed("ovs-ofctl") {
        return skip("ovs-ofctl with our switch", "ovs-ofctl is not installed (tests/peers.sh installs it)");
    }
    let Some(bench) = Bench::build("ovs-ofctl with our switch", None) else { return };
    let unix = bench.unix();
    let file = bench.file("rules", RULES);
    for (switch, version) in
        [(unix.as_str(), "OpenFlow13"), ("tcp:127.0.0.1:6654", "OpenFlow13"), (unix.as_str(), "OpenFlow14")]
    {
        let of = |arguments: &[&str]| bench.ofctl(&[&["-O", version], arguments].concat());
        assert!(of(&["show", switch]).contains("dpid:0000000000000017"), "{version}");
        of(&["add-flows", switch, &file]);
        of(&["add-flow", switch, "table=2,priority=8,udp,tp_src=53,actions=set_field:10.0.0.1->ip_src,2"]);
        of(&[
            "add-group",
            switch,
            "group_id=4,type=select,bucket=weight:3,output:1,bucket=weight:1,output:2",
        ]);
        of(&["add-meter", switch, "meter=6,pktps,burst,stats,band=type=drop,rate=10,burst_size=20"]);
        of(&["add-flow", switch, "table=3,ip,actions=meter:6,group:4"]);
        of(&["mod-flows", switch, "table=2,udp,actions=1"]);
        of(&["--strict", "del-flows", switch, "table=1,priority=4,dl_vlan=7"]);
        let (theirs, ours) = (of(&["dump-flows", switch]), run_ok(&["flow", "dump", &unix, "--rules"]));
        assert_eq!(normal(&theirs), normal(&ours), "{theirs}");
        assert_eq!(normal(&ours).len(), 6, "{ours}");
        assert!(normal(&ours).contains("table=2,priority=8,udp,udp_src=53 actions=output:1"), "{ours}");
        assert!(of(&["dump-groups", switch]).contains("group_id=4,type=select"), "{version}");
        assert!(of(&["dump-group-stats", switch]).contains("ref_count=1"), "{version}");
        assert!(of(&["dump-meters", switch]).contains("rate=10"), "{version}");
        assert!(of(&["dump-ports", switch]).contains("rx pkts="), "{version}");
        assert!(of(&["dump-ports-desc", switch]).contains("1(p1)"), "{version}");
        assert!(of(&["dump-tables", switch]).contains("active=3"), "{version}");
        assert!(of(&["dump-aggregate", switch]).contains("flow_count=6"), "{version}");
        of(&["packet-out", switch, "in_port=1 packet=0200000000090200000000018899 actions=output:2"]);
        of(&["del-flows", switch]);
        of(&["del-groups", switch]);
        of(&["del-meters", switch]);
        assert_eq!(run_ok(&["flow", "dump", &unix, "--rules"]).trim(), "");
    }
    // All or none, in one bundle; in 1.3 by extension 230 of the ONF.
    let bad = bench.file("half", "priority=1 actions=output:1\npriority=2 actions=group:77\n");
    for version in ["OpenFlow13", "OpenFlow14"] {
        bench.ofctl(&["-O", version, "del-flows", &unix]);
        let mut command = support::command("ovs-ofctl");
        command.args(["-O", version, "--bundle", "add-flows", &unix, &bad]);
        let (code, out, err) = bench.inside(command);
        assert_eq!(code, Some(1), "{version}: {out}{err}");
        assert!(
            err.contains("OFPBAC_BAD_OUT_GROUP") && err.contains("OFPBFC_MSG_FAILED"),
            "{version}: {err}"
        );
        assert_eq!(run_ok(&["flow", "dump", &unix, "--rules"]).trim(), "", "{version}");
        bench.ofctl(&["-O", version, "--bundle", "add-flows", &unix, &file]);
        assert_eq!(normal(&run_ok(&["flow", "dump", &unix, "--rules"])), normal(RULES), "{version}");
    }
    let mut command = support::command("ovs-ofctl");
    command.args(["-O", "OpenFlow14", "diff-flows", &unix, &file]);
    let (code, out, err) = bench.inside(command);
    assert_eq!(code, Some(0), "{out}{err}");
}

#[test]
fn ovs_ofctl_monitor_sees_what_our_switch_tells() {
    if !installed("ovs-ofctl") {
        return skip("ovs-ofctl monitor", "ovs-ofctl is not installed (tests/peers.sh installs it)");
    }
    let Some(bench) = Bench::build("ovs-ofctl monitor", None) else { return };
    let switch = bench.unix();
    run_ok(&["flow", "add", &switch, "priority=0 actions=CONTROLLER:65535"]);
    let (mut monitor, log) = ofctl_monitor(&bench, "OpenFlow13", "65534");
    let saw = || std::fs::read_to_string(&log).unwrap_or_default().contains("PACKET_IN");
    until("ovs-ofctl printed a packet-in", || {
        run_ok(&["flow", "packet-out", &switch, "TABLE", "eth / raw 0102", "--in-port", "1"]);
        saw()
    });
    // Not by an interrupt, which it ignores where the tests were started in the background of a script.
    monitor.kill().unwrap();
    monitor.wait().unwrap();
}

/// `ovs-ofctl monitor` of the switch, and the file that it writes to. It takes orders at `control` in the bench's folder.
fn ofctl_monitor(bench: &Bench, version: &str, what: &str) -> (std::process::Child, std::path::PathBuf) {
    let log = bench.folder.path().join("monitor");
    let mut command = support::command("ovs-ofctl");
    command.args(["-O", version, "monitor", &bench.unix(), what]);
    command.arg("--unixctl").arg(bench.folder.path().join("control"));
    // It makes a socket of its own there; the usual folder exists only where the daemon is installed.
    command.env("OVS_RUNDIR", bench.folder.path());
    let file = std::fs::File::create(&log).unwrap();
    command.stdout(file.try_clone().unwrap()).stderr(file);
    process::enter(&mut command, bench.netns.clone(), false);
    (command.spawn().unwrap(), log)
}

/// What others change; `watch:` alone asks for the client's own changes in 1.4's words (docs/clients.md).
#[test]
fn ovs_ofctl_watches_the_rules_of_our_switch() {
    if !installed("ovs-ofctl") {
        return skip("ovs-ofctl monitor watch:", "ovs-ofctl is not installed (tests/peers.sh installs it)");
    }
    let Some(bench) = Bench::build("ovs-ofctl monitor watch:", None) else { return };
    let switch = bench.unix();
    run_ok(&["flow", "add", &switch, "priority=5,tcp actions=output:2"]);
    let (mut monitor, log) = ofctl_monitor(&bench, "OpenFlow14", "watch:!own");
    let told = |event: &str| std::fs::read_to_string(&log).unwrap_or_default().contains(event);
    until("the rule that was there", || told("event=INITIAL table=0"));
    run_ok(&["flow", "add", &switch, "priority=6,udp actions=output:1"]);
    run_ok(&["flow", "mod", &switch, "udp actions=output:2"]);
    run_ok(&["flow", "del", &switch, "table=0"]);
    let events = ["event=ADDED table=0", "event=MODIFIED table=0", "event=DELETED reason=delete table=0"];
    until("every change", || events.iter().all(|event| told(event)));
    // Not by an interrupt, which it ignores where the tests were started in the background of a script.
    monitor.kill().unwrap();
    monitor.wait().unwrap();
}

/// By extension 187 of the ONF, where `watch:` alone means "own changes, too". What was there is told as added.
#[test]
fn ovs_ofctl_watches_the_rules_of_our_switch_in_1_3() {
    if !installed("ovs-ofctl") || !installed("ovs-appctl") {
        return skip(
            "ovs-ofctl monitor watch: in 1.3",
            "ovs-ofctl is not installed (tests/peers.sh installs it)",
        );
    }
    let Some(bench) = Bench::build("ovs-ofctl monitor watch: in 1.3", None) else { return };
    let switch = bench.unix();
    run_ok(&["flow", "add", &switch, "cookie=0x5,table=3,priority=5,tcp,nw_dst=10.0.0.0/8 actions=output:2"]);
    let (mut monitor, log) = ofctl_monitor(&bench, "OpenFlow13", "watch:");
    let order = |arguments: &[&str]| {
        let mut command = support::command("ovs-appctl");
        command.arg("-t").arg(bench.folder.path().join("control")).args(arguments);
        let (code, out, err) = bench.inside(command);
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
    };
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let told = |line: &str| read().lines().any(|one| one.trim() == line);
    let rule = "table=3 cookie=0x5 tcp,nw_dst=10.0.0.0/8 actions=output:2";
    until("the rule that was there", || told(&format!("event=ADDED {rule}")));
    run_ok(&["flow", "add", &switch, "priority=6,udp actions=output:1"]);
    run_ok(&["flow", "mod", &switch, "udp actions=output:2"]);
    run_ok(&["flow", "del", &switch, "table=3"]);
    let other = "table=0 cookie=0 udp";
    let events = [
        format!("event=ADDED {other} actions=output:1"),
        format!("event=MODIFIED {other} actions=output:2"),
        format!("event=DELETED reason=delete {rule}"),
    ];
    until("every change", || events.iter().all(|event| told(event)));
    // A delete of its own: every rule.
    order(&["ofctl/send", OWN_DELETE_13]);
    until("its own change, in full", || {
        told(&format!("event=DELETED reason=delete {other} actions=output:2"))
    });
    order(&["ofctl/send", CANCEL_13]);
    order(&["ofctl/barrier"]);
    run_ok(&["flow", "add", &switch, "table=7,udp actions=output:1"]);
    order(&["ofctl/barrier"]);
    assert!(!read().contains("table=7") && !read().contains("OFPT_ERROR"), "{}", read());
    order(&["ofctl/send", CANCEL_13]);
    until("there is no such monitor", || read().contains("OFPMOFC_UNKNOWN_MONITOR"));
    monitor.kill().unwrap();
    monitor.wait().unwrap();
}

/// `flow_mod` of 1.3: delete every rule of every table.
const OWN_DELETE_13: &str = "040e00380000006300000000000000000000000000000000ff03000000000000ffffffffffffffffffffffff000000000001000400000000";
/// `ONFT_FLOW_MONITOR_CANCEL` of monitor 0.
const CANCEL_13: &str = "04040014000000644f4e46000000074e00000000";

/// Two connections of our own: what `flow monitor` tells while another changes the switch.
#[test]
fn a_monitor_tells_what_happens_to_the_rules() {
    let Some(bench) = Bench::build("pathlab flow monitor", None) else { return };
    let switch = bench.unix();
    run_ok(&["flow", "add", &switch, "priority=5,in_port=1 actions=output:2"]);
    run_ok(&["flow", "add", &switch, "table=3,priority=5,in_port=1 actions=drop"]);
    let log = bench.folder.path().join("monitor.json");
    let mut command = pathlab(&["flow", "monitor", &switch, "table=0", "--json", "--count", "6"]);
    command.args(["--packet-ins", "--ports"]).stdout(std::fs::File::create(&log).unwrap());
    let mut monitor = command.spawn().unwrap();
    let lines = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    until("the rule that is there", || lines() == 1);
    run_ok(&["flow", "add", &switch, "cookie=0x7,priority=6,tcp actions=output:1"]);
    run_ok(&["flow", "mod", &switch, "tcp actions=output:2"]);
    run_ok(&["flow", "add", &switch, "table=3,priority=6,udp actions=drop"]);
    run_ok(&["flow", "del", &switch, "table=0,tcp"]);
    until("the rule went", || lines() == 4);
    run_ok(&["flow", "packet-out", &switch, "CONTROLLER:100", "eth / raw 0102", "--in-port", "1"]);
    until("the frame was told", || lines() == 5);
    netns::within(bench.netns.as_fd(), || {
        assert!(support::command("ip").args(["link", "set", "p2", "down"]).status().unwrap().success());
    })
    .unwrap();
    until("the monitor has its six lines", || matches!(monitor.try_wait(), Ok(Some(_))));
    assert!(monitor.wait().unwrap().success());
    let text = std::fs::read_to_string(&log).unwrap();
    let told: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let field = |index: usize, name: &str| told[index][name].clone();
    let events: Vec<_> = (0..6).map(|index| field(index, "event")).collect();
    assert_eq!(events, ["initial", "added", "modified", "removed", "packet_in", "port"]);
    assert_eq!(field(0, "rule"), "table=0,priority=5,in_port=1 actions=output:2");
    assert_eq!(field(1, "rule"), "cookie=0x7,table=0,priority=6,tcp actions=output:1");
    assert_eq!(field(2, "rule"), "cookie=0x7,table=0,priority=6,tcp actions=output:2");
    assert_eq!((field(3, "reason"), field(3, "cookie")), ("delete".into(), "0x7".into()));
    assert_eq!((field(4, "port"), field(4, "reason")), ("1".into(), "packet_out".into()));
    assert!(told.iter().all(|one| one["schema"] == "pathlab/flow-monitor/1" && one["at_ns"].is_u64()));
    // For people, without what is there; the time ends it.
    let words = run_ok(&["flow", "monitor", &switch, "--no-initial", "--duration", "0.3"]);
    assert_eq!(words, "");
    let words = run_ok(&["flow", "monitor", &switch, "--count", "1"]);
    assert!(words.contains("initial") && words.contains("in_port=1 actions=output:2"), "{words}");
}

#[test]
fn a_monitor_ends_when_it_is_interrupted_and_says_when_there_is_none() {
    let Some(mut bench) = Bench::build("pathlab flow monitor, ended", None) else { return };
    let switch = bench.unix();
    let old = run(&["flow", "monitor", &switch, "--openflow", "1.3"]);
    let said = String::from_utf8_lossy(&old.stderr).into_owned();
    assert!(old.status.code() == Some(2) && said.contains("monitors came with 1.4"), "{said}");
    run_ok(&["flow", "add", &switch, "priority=5,in_port=1 actions=output:2"]);
    let log = bench.folder.path().join("monitor.txt");
    let begin = || {
        let mut command = pathlab(&["flow", "monitor", &switch]);
        command.stdout(std::fs::File::create(&log).unwrap()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        until("the monitor runs", || std::fs::read_to_string(&log).unwrap().contains("initial"));
        child
    };
    let child = begin();
    process::interrupt(&child).unwrap();
    let output = finish(child, Duration::from_secs(30));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let child = begin();
    bench.switch.kill().unwrap();
    bench.switch.wait().unwrap();
    let output = finish(child, Duration::from_secs(30));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("closed the connection"), "{said}");
}

#[test]
fn a_replay_brings_groups_and_meters_too() {
    let Some(bench) = Bench::build("pathlab controller replay with groups", None) else { return };
    let switch = bench.unix();
    let file = bench.file(
        "all",
        "# a meter, a group, a rule that needs both\nmeter=1,kbps,band=type=drop,rate=5\n\
         group_id=2,type=all,bucket=output:1,bucket=output:2\npriority=9,in_port=1 actions=meter:1,group:2\n\
         add priority=8 actions=drop\n",
    );
    // Twice: what is there already is no reason to fail.
    for _ in 0..2 {
        let done = document(&["controller", "replay", &file, "--switch", &switch, "--until", "1"]);
        assert_eq!((&done["switches"][0]["rules"], &done["switches"][0]["others"]), (&2.into(), &2.into()));
    }
    let rules = run_ok(&["flow", "dump", &switch, "--rules"]);
    assert!(rules.contains("in_port=1 actions=meter:1,group:2"), "{rules}");
    let groups = document(&["flow", "groups", &switch]);
    assert_eq!(groups["groups"][0]["id"], 2, "{groups}");
    assert_eq!(groups["groups"][0]["buckets"].as_array().map(Vec::len), Some(2), "{groups}");
    let wrong = bench.file("wrong", "group_id=2,type=all,bucket=output:1\ngroup_id=x\n");
    let output = run(&["controller", "replay", &wrong, "--switch", &switch, "--until", "1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("wrong:2"), "{said}");
    let some = bench.file("some", "priority=1 actions=group:9\npriority=2 actions=drop\nactions=group:9\n");
    let output = run(&["controller", "replay", &some, "--switch", &switch, "--until", "1", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.trim_end().ends_with(", and 1 more; the other one was made"), "{said}");
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&done["switches"][0]["rules"], &done["switches"][0]["refused"]), (&1.into(), &2.into()));
    let add = |id: u32, to: u32| format!("group_id={id},type=all,bucket=group:{to}");
    let [good, bad, worse] = [add(7, 2), add(8, 99), add(9, 99)];
    let output = run(&["flow", "groups", &switch, "--add", &good, "--add", &bad, "--add", &worse]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.trim_end().ends_with(", and 1 more; the other one was made"), "{said}");
    // Where there are none, that is said, and no line is taken for a rule.
    assert_eq!(run_ok(&["flow", "dump", &switch, "table=7"]).lines().next(), Some("# no rules"));
    assert_eq!(run_ok(&["flow", "dump", &switch, "--rules", "table=7"]), "");
}

//! Labs with programs in their nodes: the switch, the smallest forwarder, Open vSwitch.

use crate::support::{
    Kept, PATHLAB, TestLab, again, command, finish, installed, is_root, pathlab, run, skip, start,
    unpacked_ovs,
};
use crate::{alone, beside, beside_for_long};
use std::path::Path;
use std::time::{Duration, Instant};

/// Whether Open vSwitch can be run; says why not.
pub fn has_ovs(what: &str) -> bool {
    let has = unpacked_ovs().join("usr/bin/ovs-vsctl").is_file() && installed("ovsdb-server");
    if !has {
        skip(what, "openvswitch-switch is not in target/peers/openvswitch (tests/peers.sh puts it there)");
    }
    has
}

/// Two hosts and a node `s` of this kind between them.
pub fn lab_text(kind: &str, more: &str) -> String {
    format!(
        "node a b\n{kind} s\nlink a:eth0 -- s:p1\nlink b:eth0 -- s:p2\n\
         interface a:eth0 address 10.0.0.1/24 fd00::1/64\ninterface b:eth0 address 10.0.0.2/24 fd00::2/64\n{more}"
    )
}

/// A program that corrupts one frame in a hundred: of the messages that come, some are damaged, and all others count as before. The
/// program stands in a node that is no forwarder of the lab, as somebody else's would.
#[test]
fn a_damaged_message_discards_nothing_else() {
    let _turn = alone();
    if !is_root() {
        return skip("damaged messages", "it needs root");
    }
    let bench = Bench::new();
    let text = "node a n b\nlink a:eth0 -- n:p1\nlink n:p2 -- b:eth0\n\
                interface a:eth0 address 10.0.0.1/24\ninterface b:eth0 address 10.0.0.2/24\n";
    let lab = TestLab::up(&bench.file("x.lab", text), "damage");
    let mut null = command("ip");
    null.args([
        "netns",
        "exec",
        &lab.netns("n"),
        PATHLAB,
        "null",
        "fault:int:p1?corrupt=1%&seed=3&side=rx",
        "int:p2",
    ]);
    null.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let _null = Kept::new(start(null));
    let deadline = Instant::now() + Duration::from_secs(20);
    while lab.inside("a", "ping -q -c 1 -W 1 10.0.0.2").is_err() {
        assert!(Instant::now() < deadline, "the program hands nothing on");
    }
    let tests = "test frames size 64 rate 20kpps count 15000 port int\n\
                 test udp-stream size 64 rate 20kpps count 15000 receive-buffer 16777216\n";
    let plan = bench.file("x.plan", &format!("topology bridge\nrepetitions 1\n{tests}"));
    let records = bench.file("runs", "");
    std::fs::remove_file(&records).unwrap();
    let output = finish(
        start(pathlab(&["run", &plan, "--lab", &lab.name, "--dir", &records, "--json"])),
        Duration::from_secs(120),
    );
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    for test in run["tests"].as_array().unwrap() {
        let of = |name: &str| test["receiver"][name].as_u64().unwrap();
        let (unique, damaged, foreign) = (of("unique"), of("damaged"), of("foreign"));
        let counts = format!("unique {unique}, damaged {damaged}, foreign {foreign}");
        assert!(unique > 14_700 && damaged > 0 && damaged + foreign < 200, "{counts}");
    }
}

pub const CROSS: &str = "rule on s in_port=1 actions=output:2\nrule on s in_port=2, actions=output:1\n";

pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

pub fn list(name: &str) -> serde_json::Value {
    let output = run(&["lab", "list", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let labs = all["labs"].as_array().unwrap();
    labs.iter().find(|lab| lab["name"] == name).cloned().unwrap_or_default()
}

fn alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn gone(pids: &[u64]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while pids.iter().any(|pid| alive(*pid)) {
        assert!(Instant::now() < deadline, "programs outlive their lab: {pids:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn frames_cross_every_kind_of_forwarder_and_nothing_outlives_its_lab() {
    let _turn = alone();
    if !is_root() {
        return skip("forwarders in a lab", "it needs root");
    }
    let bench = Bench::new();
    bench.file(
        "cross.rules",
        "# crossed\nmeter=1,pktps,band=type=drop,rate=1000000\ngroup_id=1,type=all,bucket=output:2\n\
         in_port=1 actions=meter:1,group:1\n\nin_port=2 actions=output:1 # back\n",
    );
    let mut cases = vec![
        ("null", "", 1),
        ("null", "ports on s ring\n", 1),
        ("null", "ports on s xdp\n", 1),
        ("switch", CROSS, 1),
        ("switch", "ports on s ring\nrules on s cross.rules\n", 1),
        ("switch", "ports on s xdp\nscenario on s learning\n", 2),
        ("switch", "fail on s standalone\nscenario on s hub\n", 2),
    ];
    if has_ovs("Open vSwitch in a lab") {
        cases.push(("ovs", "rules on s cross.rules\n", 2));
        cases.push(("ovs", "scenario on s iperf\n", 3));
    }
    for (kind, more, programs) in cases {
        let file = bench.file("x.lab", &lab_text(kind, more));
        let lab = TestLab::up(&file, "fwd");
        for host in ["10.0.0.2", "fd00::2"] {
            let all_came = || {
                let said =
                    lab.inside("a", &format!("ping -q -c 20 -i 0.01 -W 40 {host}")).unwrap_or_else(|e| e);
                said.contains(" 0% packet loss").then_some(()).ok_or(said)
            };
            let once = || {
                let came = all_came();
                let why = came.as_ref().err().cloned();
                (came, why)
            };
            // Open vSwitch loses frames of its own when it gets no CPU for a while; here it only has to be a way.
            let came = match kind {
                "ovs" => again::play("Open vSwitch loses frames", &format!("{host} {more:?}"), 5, once),
                _ => all_came(),
            };
            assert_eq!(came, Ok(()), "{kind} {more}");
        }
        let listed = list(&lab.name);
        let told = listed["programs"].as_array().unwrap().clone();
        assert_eq!(told.len(), programs, "{kind} {more}: {listed}");
        assert!(told.iter().all(|program| program["alive"] == true && program["node"] == "s"), "{listed}");
        let pids: Vec<u64> = told.iter().map(|program| program["pid"].as_u64().unwrap()).collect();
        let checked = run(&["lab", "check", &lab.name, "--json"]);
        let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
        assert_eq!(checked["programs"].as_array().unwrap().len(), programs);
        drop(lab);
        gone(&pids);
    }
}

#[test]
fn a_program_that_ended_is_told_and_a_killed_builder_leaves_nothing() {
    let _turn = beside();
    if !is_root() {
        return skip("programs of a lab that end", "it needs root");
    }
    let bench = Bench::new();
    let file = bench.file("x.lab", &lab_text("switch", CROSS));
    let lab = TestLab::up(&file, "end");
    let pid = list(&lab.name)["programs"][0]["pid"].as_u64().unwrap();
    let killed = crate::support::command("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    gone(&[pid]);
    let checked = run(&["lab", "check", &lab.name]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.code() == Some(1) && said.contains("switch of node s has ended"), "{said}");
    drop(lab);

    // A run owns its lab: killed without a chance to clean up, the next command does it.
    let plan = format!("topology {file}\npath a b\nrepetitions 1\nduration 30s\ntest ping\n");
    let plan = bench.file("x.plan", &plan);
    let mut command = pathlab(&["run", &plan, "--dir"]);
    command.arg(bench.folder.path().join("runs"));
    let mut child = start(command);
    let name = format!("run-{}", child.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    let pid = loop {
        if let Some(pid) = list(&name)["programs"][0]["pid"].as_u64() {
            break pid;
        }
        assert!(Instant::now() < deadline, "the run has no lab: {:?}", child.try_wait());
        std::thread::sleep(Duration::from_millis(50));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    run(&["lab", "list"]);
    gone(&[pid]);
    assert!(list(&name).is_null());
}

#[test]
fn what_cannot_be_built_is_one_sentence() {
    let bench = Bench::new();
    let refused = |text: &str, expected: &str| {
        let output = run(&["lab", "show", &bench.file("x.lab", text)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{text}: {said}");
    };
    refused(&lab_text("switch", "rule on s in_port=1 actions=fly"), "fly");
    refused(&lab_text("switch", "rules on s nothing.rules"), "nothing.rules");
    if !is_root() {
        return skip("refused rules, a missing Open vSwitch", "it needs root");
    }
    let name = format!("bad{}", std::process::id());
    // Port 9 is there for the text; a group that is not there is refused by the switch itself.
    let file = bench.file("x.lab", &lab_text("switch", "rule on s in_port=1 actions=group:7"));
    let output = run(&["lab", "up", &file, "--name", &name]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("group:7"), "{said}");
    let file = bench.file("x.lab", &lab_text("ovs", ""));
    let mut command = pathlab(&["lab", "up", &file, "--name", &name]);
    command.env("PATHLAB_OVS", bench.folder.path());
    if !installed("ovs-vswitchd") {
        let output = crate::support::finish(start(command), Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains("Open vSwitch is not installed"), "{said}");
    }
    assert!(list(&name).is_null());
}

#[test]
fn ways_are_measured_in_turn_and_make_the_table_of_the_journals() {
    let _turn = beside_for_long();
    if !is_root() {
        return skip("ways measured in turn", "it needs root");
    }
    let bench = Bench::new();
    let plan = "topology bridge\nrepetitions 1\nduration 200ms\ntest tcp-stream\ntest udp-stream size 64 rate 2kpps\ntest ping count 100\n";
    let (plan, runs) = (bench.file("x.plan", plan), bench.folder.path().join("runs").display().to_string());
    let measured = |ways: &str, ovs: Option<&Path>| {
        let mut command = pathlab(&["run", &plan, "--dir", &runs, "--path", ways, "--json"]);
        if let Some(folder) = ovs {
            command.env("PATHLAB_OVS", folder);
        }
        let output = crate::support::finish(start(command), Duration::from_secs(300));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{ways}: {words}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let mut ways = vec!["direct", "bridge", "null:ring", "switch"];
    if has_ovs("Open vSwitch among the ways") {
        ways.push("ovs");
    }
    let document = measured(&ways.join(","), None);
    assert_eq!(document["schema"], "pathlab/ways/1");
    let rows = document["ways"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["way"].as_str().unwrap()).collect::<Vec<_>>(), ways);
    for row in rows {
        let name = row["way"].as_str().unwrap();
        for field in ["latency_p50_ns", "latency_p99_ns", "tcp_bps", "udp_bps", "udp_per_second"] {
            assert!(row[field].as_f64().is_some_and(|value| value > 0.0), "{name} {field}: {row}");
        }
        let is_program = !["direct", "bridge"].contains(&name);
        assert_eq!(row["ram_bytes"].as_f64().is_some_and(|bytes| bytes > 1e6), is_program, "{row}");
        assert!(row["cpu_tcp_percent"].is_number() && row["not_measured"].is_null(), "{row}");
        assert_eq!(row["latency_test"], "ping 56 B ×100");
    }
    let ids: Vec<&str> = rows.iter().map(|row| row["run"].as_str().unwrap()).collect();
    let page = bench.folder.path().join("ways.html").display().to_string();
    let words = [&["report"][..], &ids[..], &["--dir", &runs, "-o", &page]].concat();
    assert!(run(&words).status.success());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Ways between the same two hosts") && page.contains("null:ring"));

    if !installed("ovs-vswitchd") {
        let document = measured("direct,ovs", Some(bench.folder.path()));
        let why = document["ways"][1]["not_measured"].as_str().unwrap();
        assert!(why.contains("Open vSwitch is not installed"), "{why}");
        assert!(document["ways"][1]["tcp_bps"].is_null() && document["ways"][0]["tcp_bps"].is_number());
    }
    let output = run(&["run", "--path", "direct,airship"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && words.contains("no way 'airship'"), "{words}");
}

/// Runs a plan of one test in a lab that is up; the run's record, and the exit code.
pub fn measured(bench: &Bench, lab: &str, test: &str) -> (serde_json::Value, Option<i32>) {
    let plan = bench.file("one.plan", &format!("topology switch\nrepetitions 1\n{test}\n"));
    let runs = bench.folder.path().join("runs").display().to_string();
    let output = run(&["run", &plan, "--dir", &runs, "--lab", lab, "--json"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = serde_json::from_slice(&output.stdout);
    (record.unwrap_or_else(|e| panic!("{e}: {words}")), output.status.code())
}

pub fn station<'r>(record: &'r serde_json::Value, name: &str) -> &'r serde_json::Value {
    let stations = record["tests"][0]["ledger"]["stations"].as_array().unwrap();
    let found = stations.iter().find(|station| station["station"] == name);
    found.unwrap_or_else(|| panic!("no station '{name}': {stations:#?}"))
}

fn claims(record: &serde_json::Value) -> String {
    let findings = record["findings"].as_array().unwrap();
    findings.iter().map(|found| format!("{}: {}\n", found["claim"], found["evidence"])).collect()
}

#[test]
fn every_frame_through_a_switch_is_in_its_own_counters() {
    let _turn = beside();
    if !is_root() {
        return skip("the ledger through a switch", "it needs root");
    }
    let bench = Bench::new();
    let mut kinds = vec!["switch"];
    if has_ovs("the ledger through Open vSwitch") {
        kinds.push("ovs");
    }
    for kind in kinds {
        let lab = TestLab::up(&bench.file("x.lab", &lab_text(kind, CROSS)), "led");
        let (record, code) = measured(&bench, &lab.name, "duration 60s\ntest udp-rr size 64 count 1000");
        assert_eq!(code, Some(0));
        let ledger = &record["tests"][0]["ledger"];
        assert_eq!(
            (&ledger["received"], &ledger["unexplained"]),
            (&1000.into(), &0.into()),
            "{kind}: {ledger:#}"
        );
        for name in ["switch in p1", "switch tables", "switch out p2"] {
            let station = station(&record, name);
            assert!(
                station["in"] == 1000 && station["out"] == 1000 && station["unknown"].is_null(),
                "{kind}: {station}"
            );
        }
        let counted = &record["tests"][0]["after"]["nodes"]["s"]["switch"];
        assert_eq!(counted["ports"].as_array().unwrap().iter().filter(|p| p["interface"] == "p1").count(), 1);
    }
}

/// Waits until some rule of a switch counted more frames than so many; how many it counted.
fn frames_counted(socket: &str, more_than: u64) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let dumped = run(&["flow", "dump", socket, "--json"]);
        let dumped: serde_json::Value = serde_json::from_slice(&dumped.stdout).unwrap();
        let frames = dumped["rules"].as_array().unwrap().iter().filter_map(|rule| rule["frames"].as_u64());
        let frames = frames.max().unwrap_or(0);
        if frames > more_than {
            return frames;
        }
        assert!(Instant::now() < deadline, "no traffic: {dumped}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_switch_that_sends_all_to_its_controller_and_one_that_forgets_its_rules_are_found() {
    let _turn = beside_for_long();
    if !is_root() {
        return skip("faults of a switch", "it needs root");
    }
    let bench = Bench::new();
    // The journal's mistake: every frame is shown to a controller, and nobody sends it on.
    let lab = TestLab::up(&bench.file("x.lab", &lab_text("switch", "rule on s actions=CONTROLLER\n")), "ctl");
    let record = measured(&bench, &lab.name, "duration 5s\ntest udp-rr size 64").0;
    let said = claims(&record);
    assert!(said.contains("the switch of node s sends every frame to the controller"), "{said}");
    drop(lab);
    // Without any rule nothing passes, and the misses say so.
    let lab = TestLab::up(&bench.file("x.lab", &lab_text("switch", "")), "mis");
    let record = measured(&bench, &lab.name, "duration 5s\ntest udp-rr size 64").0;
    let said = claims(&record);
    assert!(said.contains("missed in table 0 of node s are dropped"), "{said}");
    drop(lab);
    // Rules that go while traffic flows: every frame after that is a named miss.
    let lab = TestLab::up(&bench.file("x.lab", &lab_text("switch", CROSS)), "del");
    let socket = list(&lab.name)["programs"][0]["openflow"].as_str().unwrap().to_owned();
    let (record, passed) = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            measured(&bench, &lab.name, "duration 60s\ntest udp-stream size 64 count 5000 rate 500pps").0
        });
        let passed = frames_counted(&socket, 200);
        assert!(crate::support::run(&["flow", "del", &socket]).status.success());
        (run.join().unwrap(), passed)
    });
    let ledger = &record["tests"][0]["ledger"];
    let tables = station(&record, "switch tables");
    let missed = tables["drops"][0]["count"].as_u64().unwrap_or(0);
    assert_eq!(tables["drops"][0]["name"], "table_miss", "{ledger:#}");
    assert!(passed > 200 && missed > 0, "{ledger:#}");
    assert_eq!(ledger["received"].as_u64().unwrap() + missed, 5000, "{ledger:#}");
    assert_eq!((&ledger["unexplained"], &tables["residual"]), (&0.into(), &0.into()), "{ledger:#}");
    let said = claims(&record);
    assert!(said.contains("missed in table 0 of node s are dropped"), "{said}");
}

/// The drops of a station: name, how many, how it is known.
pub fn drops(station: &serde_json::Value) -> Vec<(&str, u64, &str)> {
    let drops = station["drops"].as_array().unwrap().iter();
    drops
        .map(|drop| {
            let word = |field: &str| drop[field].as_str().unwrap();
            (word("name"), drop["count"].as_u64().unwrap(), word("source"))
        })
        .collect()
}

#[test]
fn what_the_smallest_forwarder_drops_has_a_name() {
    let _turn = beside_for_long();
    if !is_root() {
        return skip("the ledger through null", "it needs root");
    }
    let bench = Bench::new();
    for ports in ["int", "ring", "xdp"] {
        let ports_line = format!("ports on s {ports}\n");
        let lab = TestLab::up(&bench.file("x.lab", &lab_text("null", &ports_line)), "nul");
        let (record, code) = measured(&bench, &lab.name, "duration 60s\ntest udp-rr size 64 count 500");
        assert_eq!(code, Some(0));
        let ledger = &record["tests"][0]["ledger"];
        assert_eq!(
            (&ledger["received"], &ledger["unexplained"]),
            (&500.into(), &0.into()),
            "{ports}: {ledger:#}"
        );
        for name in ["program in p1", "program out p2", "program in p2", "program out p1"] {
            let station = station(&record, name);
            assert!(
                station["in"] == 500 && station["out"] == 500 && station["unknown"].is_null(),
                "{ports}: {station}"
            );
        }
        drop(lab);

        // Behind it frames must be shorter than those that come: it refuses them, and says why.
        let narrow = format!("{ports_line}interface s:p2 mtu 1000\n");
        let lab = TestLab::up(&bench.file("x.lab", &lab_text("null", &narrow)), "nul");
        let record =
            measured(&bench, &lab.name, "duration 20s\ntest udp-stream size 1200 count 300 rate 500pps").0;
        let ledger = &record["tests"][0]["ledger"];
        let out = station(&record, "program out p2");
        // On a busy host the port in front may lose some before, with a name of its own.
        let came = out["in"].as_u64().unwrap();
        assert_eq!(drops(out), [("port_oversize", came, "counter")], "{ports}: {out}");
        assert_eq!((&out["out"], &out["residual"]), (&0.into(), &0.into()), "{out}");
        assert_eq!(
            (&ledger["received"], &ledger["unexplained"]),
            (&0.into(), &0.into()),
            "{ports}: {ledger:#}"
        );
        let said = claims(&record);
        assert!(said.contains("lost at program out p2 of node s: port_oversize"), "{said}");
    }
}

#[test]
fn frames_for_a_controller_by_a_group_are_no_residual() {
    let _turn = beside_for_long();
    if !is_root() {
        return skip("groups that send to the controller", "it needs root");
    }
    let bench = Bench::new();
    let mut kinds = vec!["switch"];
    if has_ovs("groups of Open vSwitch that send to the controller") {
        kinds.push("ovs");
    }
    for kind in kinds {
        let lab = TestLab::up(&bench.file("x.lab", &lab_text(kind, CROSS)), "grp");
        let told = list(&lab.name)["programs"].clone();
        let socket = told.as_array().unwrap().iter().find_map(|program| program["openflow"].as_str());
        let socket = socket.unwrap().to_owned();
        let must = |words: &[&str]| {
            let output = run(words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{kind} {words:?}: {said}");
        };
        // One group sends to the other, which sends to the controller; the stream's datagrams only, not the warm-up's replies.
        must(&["flow", "groups", &socket, "--add", "group_id=2,type=indirect,bucket=CONTROLLER"]);
        must(&["flow", "groups", &socket, "--add", "group_id=1,type=all,bucket=group:2"]);
        let (record, passed) = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                measured(&bench, &lab.name, "duration 60s\ntest udp-stream size 64 count 5000 rate 500pps").0
            });
            let passed = frames_counted(&socket, 200);
            must(&["flow", "add", &socket, "priority=40000,in_port=1,udp actions=group:1"]);
            (run.join().unwrap(), passed)
        });
        let ledger = &record["tests"][0]["ledger"];
        let tables = station(&record, "switch tables");
        let found = drops(tables);
        assert!(
            found.len() == 1 && found[0].0 == "to_controller" && found[0].2 == "counter",
            "{kind}: {tables}"
        );
        assert!(tables["drops"][0]["evidence"].as_str().unwrap().starts_with("buckets"), "{kind}: {tables}");
        assert!(passed > 200 && found[0].1 > 0, "{kind}: {tables}");
        // A switch that got no CPU for a while has lost some before, with a name of its own.
        let lost: u64 =
            ledger["stations"].as_array().unwrap().iter().flat_map(drops).map(|drop| drop.1).sum();
        assert_eq!(ledger["received"].as_u64().unwrap() + lost, 5000, "{kind}: {ledger:#}");
        assert_eq!(
            (&ledger["unexplained"], &tables["residual"]),
            (&0.into(), &0.into()),
            "{kind}: {ledger:#}"
        );
    }
}

#[test]
fn ways_with_offloads_on_and_off_close_their_ledgers() {
    let _turn = beside_for_long();
    if !is_root() {
        return skip("ways with offloads on and off", "it needs root");
    }
    let bench = Bench::new();
    let plan = "topology bridge\nrepetitions 1\nduration 300ms\ntest tcp-stream\n\
                test udp-stream size 1472 count 200 rate 500pps\ntest ping count 50\n";
    let (plan, runs) = (bench.file("x.plan", plan), bench.folder.path().join("runs").display().to_string());
    let ways = ["direct", "bridge", "null:int", "null:xdp", "switch"];
    let words = ["run", &plan, "--dir", &runs, "--path", &ways.join(","), "--offload", "both", "--json"];
    let output = crate::support::finish(start(pathlab(&words)), Duration::from_secs(300));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["ways"].as_array().unwrap();
    let asked = |row: &serde_json::Value| {
        (row["way"].as_str().unwrap().to_owned(), row["offload"].as_str().unwrap().to_owned())
    };
    let expected =
        ways.iter().flat_map(|way| ["on", "off"].map(|state| ((*way).to_owned(), state.to_owned())));
    assert_eq!(rows.iter().map(asked).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    for row in rows {
        let (way, state) = asked(row);
        let found: Vec<&str> =
            row["offloads"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        assert_eq!(found.len(), 2, "{row}");
        // An AF_XDP port switches segmentation off at the other end of its link; nothing switches it on.
        let is = |word: &str| found.iter().all(|line| line.contains(word));
        assert!(is(&format!("gro {state}")), "{way} {found:?}");
        assert!(state == "on" || is("tso off, gso off, gro off, tx-checksum off"), "{way} {found:?}");
        assert!(state == "off" || way == "null:xdp" || is("tso on, gso on"), "{way} {found:?}");
        assert!(row["tcp_bps"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        let id = row["run"].as_str().unwrap();
        let shown = run(&["show", id, "--dir", &runs, "--json"]);
        let record: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!((&record["way"]["name"], &record["way"]["offload"]), (&row["way"], &row["offload"]));
        assert!(
            record["topology"].as_str().unwrap().contains(&format!("offload {state}")),
            "{}",
            record["topology"]
        );
        let closed = record["tests"].as_array().unwrap().iter().filter(|test| !test["ledger"].is_null());
        let mut ledgers = 0;
        for test in closed {
            ledgers += 1;
            assert_eq!(test["ledger"]["unexplained"], 0, "{way} {state}: {:#}", test["ledger"]);
        }
        assert_eq!(ledgers, 2);
    }
    let notes = document["notes"].to_string();
    assert!(notes.contains("with offload off: tso off, gso off, gro off, tx-checksum off"), "{notes}");
    let refused = run(&["run", "--offload", "off"]);
    assert_eq!(refused.status.code(), Some(2));
}

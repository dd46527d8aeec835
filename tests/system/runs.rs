//! Measured runs: the ledger closes, the record is whole, nothing stays.

use crate::support::turn::at_once;
use crate::support::{PATHLAB, TestLab, command, finish, installed, is_root, pathlab, run_ok, skip, start};
use crate::{alone, beside, loud_for_long};
use serde_json::Value;
use std::time::Duration;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("not JSON ({e}): {text}"))
}

/// The ledger of a test must be closed exactly: residual 0 at every station.
fn assert_closed(test: &Value) {
    let ledger = &test["ledger"];
    let name = &test["name"];
    assert_eq!(ledger["unexplained"], 0, "{name}: {ledger:#}");
    for station in ledger["stations"].as_array().unwrap() {
        assert_eq!(station["residual"], 0, "{name}: {ledger:#}");
        assert!(station["unknown"].is_null(), "{name}: {ledger:#}");
        let sum = station["out"].as_i64().unwrap()
            + station["queued"].as_i64().unwrap()
            + station["drops"].as_array().unwrap().iter().map(|d| d["count"].as_i64().unwrap()).sum::<i64>();
        assert_eq!(station["in"].as_i64().unwrap(), sum, "{name}: {station:#}");
    }
}

#[test]
fn thirty_thousand_datagrams_close_with_residual_zero_at_every_station() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    let run = json(&run_ok(&["run", "plans/exact.plan", "--dir", &records, "--json"]));
    for test in run["tests"].as_array().unwrap() {
        assert_eq!(test["ledger"]["sent"], 30_000, "{}", test["name"]);
        assert_closed(test);
        let witness = test["ledger"]["witness"]["status"].as_str().unwrap();
        assert_eq!(
            witness,
            if is_root() { "agrees" } else { "not_permitted" },
            "{:#}",
            test["ledger"]["witness"]
        );
    }
}

#[test]
fn the_other_topologies_close_too_with_both_families() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    for topology in ["pair", "router", "line3"] {
        let plan = folder.path().join(format!("{topology}.plan"));
        let tests: String = ["4", "6"]
            .iter()
            .flat_map(|family| {
                ["udp-stream size 64 rate 20kpps", "udp-rr size 64", "ping size 56"]
                    .map(|test| format!("test {test} count 3000 family {family}\n"))
            })
            .collect();
        std::fs::write(&plan, format!("topology {topology}\nrepetitions 1\n{tests}")).unwrap();
        let records = folder.path().join("runs").display().to_string();
        let run = json(&run_ok(&["run", plan.to_str().unwrap(), "--dir", &records, "--json"]));
        assert_eq!(run["tests"].as_array().unwrap().len(), 6);
        for test in run["tests"].as_array().unwrap() {
            assert_closed(test);
        }
    }
}

/// Raw frames by ports through every topology, both families, both ways out of the sender.
#[test]
fn every_raw_frame_closes_with_residual_zero_at_every_station() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let run_plan = |plan: &str| json(&run_ok(&["run", plan, "--dir", &records, "--json"]));
    let shipped = run_plan("plans/frames.plan");
    assert!(shipped["tests"].as_array().unwrap().iter().all(|test| test["ledger"]["sent"] == 30_000));
    let run_over = |topology: &&str| {
        let plan = folder.path().join(format!("{topology}.plan"));
        let tests: String = ["family 4", "family 6", "port int?bypass=on/int"]
            .map(|how| format!("test frames count 10000 rate 20kpps {how}\n"))
            .concat();
        std::fs::write(&plan, format!("topology {topology}\nrepetitions 1\n{tests}")).unwrap();
        run_plan(plan.to_str().unwrap())
    };
    let mut runs = at_once(2, &["pair", "router", "line3"], run_over);
    runs.push(shipped);
    for test in runs.iter().flat_map(|run| run["tests"].as_array().unwrap()) {
        assert_closed(test);
        let witness = &test["ledger"]["witness"];
        assert_eq!(witness["status"], if is_root() { "agrees" } else { "not_permitted" }, "{witness:#}");
        let stations = test["ledger"]["stations"].as_array().unwrap();
        let names: Vec<_> = stations.iter().map(|station| station["station"].as_str().unwrap()).collect();
        assert_eq!(names[..2], ["app send", "port eth0"], "{names:?}");
        assert_eq!(names[names.len() - 2..], ["tap eth0", "app receive"], "{names:?}");
    }
}

/// An XDP receiver takes the test's frames and leaves ARP to its node, so the path works as with every other port.
#[test]
fn frames_are_received_by_xdp_with_residual_zero() {
    let _turn = beside();
    if !is_root() {
        return skip("frames received by xdp", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    for topology in ["pair", "router"] {
        let plan = folder.path().join(format!("{topology}.plan"));
        let tests: String =
            ["port int/xdp", "family 6 port int/xdp", "port xdp", "port int/xdp?mode=generic"]
                .map(|how| format!("test frames count 10000 rate 10kpps {how}\n"))
                .concat();
        std::fs::write(&plan, format!("topology {topology}\nrepetitions 1\n{tests}")).unwrap();
        let run = json(&run_ok(&["run", plan.to_str().unwrap(), "--dir", &records, "--json"]));
        for test in run["tests"].as_array().unwrap() {
            assert_closed(test);
            let settings = test["receiver"]["settings"]["port_settings"].as_array().unwrap();
            let takes = settings.iter().find(|setting| setting["name"] == "takes").unwrap();
            assert!(
                takes["effective"].as_str().unwrap().starts_with("incoming UDP datagrams to port"),
                "{takes}"
            );
        }
    }
}

#[test]
fn a_super_frame_is_counted_in_datagrams() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("gso.plan");
    std::fs::write(&plan, "topology bridge\nrepetitions 1\ntest udp-stream size 64 count 32000 gso 32 gro\n")
        .unwrap();
    let records = folder.path().join("runs").display().to_string();
    let run = json(&run_ok(&["run", plan.to_str().unwrap(), "--dir", &records, "--json"]));
    let ledger = &run["tests"][0]["ledger"];
    assert_eq!(ledger["sent"], 32_000);
    let unexplained = ledger["unexplained"].as_i64().unwrap().unsigned_abs();
    assert!(unexplained <= ledger["uncertainty"].as_u64().unwrap(), "{ledger:#}");
}

#[test]
fn the_default_plan_runs_quickly_and_its_record_can_be_shown_again() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().display().to_string();
    let run =
        json(&run_ok(&["run", "--quick", "--repetitions", "2", "--seed", "7", "--dir", &records, "--json"]));
    assert_eq!(run["schema"], "pathlab/run/2");
    assert_eq!(run["seed"], 7);
    assert_eq!(run["tests"].as_array().unwrap().len(), 12);
    for test in run["tests"].as_array().unwrap() {
        for field in ["kind", "repetition", "offered", "sent", "received", "throughput_bps", "limit"] {
            assert!(!test[field].is_null(), "{field} is missing: {}", test["name"]);
        }
        assert!(test["throughput_bps"].as_f64().unwrap() > 0.0, "{}", test["name"]);
        assert!(!test["limit"]["what"].as_str().unwrap().is_empty());
    }
    let id = run["id"].as_str().unwrap();
    let shown = json(&run_ok(&["show", id, "--dir", &records, "--json"]));
    assert_eq!(shown, run, "the record differs from what was printed");
    let listed = run_ok(&["runs", "--dir", &records]);
    assert!(listed.contains(id) && listed.contains("bridge") && listed.contains("default"), "{listed}");
    // Another program reads the record, and it is small.
    let file = folder.path().join(id).join("run.json.zst");
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(bytes * 10 < serde_json::to_vec(&run).unwrap().len() as u64, "the record has {bytes} bytes");
    if installed("zstd") {
        let mut reader = command("zstd");
        reader.arg("-dc").arg(&file);
        let plain = finish(start(reader), Duration::from_secs(60));
        assert_eq!(json(&String::from_utf8_lossy(&plain.stdout)), run);
    }
    let text = run_ok(&["show", id, "--dir", &records]);
    assert!(text.contains("unexplained"), "{text}");
}

#[test]
fn a_lab_that_is_up_is_measured_as_found() {
    let _turn = beside();
    if !is_root() || !installed("tc") {
        return skip("run --lab with a changed qdisc", "needs root and tc");
    }
    let lab = TestLab::up("bridge", "found");
    lab.must("s", "tc qdisc add dev p2 root tbf rate 20mbit burst 5kb limit 20kb");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology bridge\nrepetitions 1\ntest tcp-stream duration 500ms\n").unwrap();
    let records = folder.path().join("runs").display().to_string();
    let text = run_ok(&["run", plan.to_str().unwrap(), "--lab", &lab.name, "--dir", &records, "--json"]);
    let rate = json(&text)["tests"][0]["throughput_bps"].as_f64().unwrap();
    assert!(rate < 25e6, "the shaper of 20 Mbit/s is not in the result: {rate}");
    assert!(run_ok(&["lab", "list"]).contains(&lab.name), "a lab that was already up must stay");
}

#[test]
fn without_root_a_run_works_in_a_user_namespace() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs");
    let mut program = if is_root() {
        if !installed("setpriv") {
            return skip("run without root", "setpriv is not installed");
        }
        // A copy in a place that everybody may read: the build folder may not be.
        let copy = folder.path().join("pathlab");
        // By another process: a program that this one still has open for writing, in a child of another test, cannot be started.
        let mut cp = command("cp");
        cp.arg(PATHLAB).arg(&copy);
        assert!(finish(start(cp), Duration::from_secs(60)).status.success());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let mut program = command("setpriv");
        program.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(copy);
        program
    } else {
        command(PATHLAB)
    };
    program
        .args(["run", "--quick", "--only", "udp-stream", "--repetitions", "1", "--json", "--dir"])
        .arg(&records);
    program.current_dir(folder.path()).env_remove("XDG_RUNTIME_DIR");
    let output = finish(start(program), Duration::from_secs(180));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) && words.contains("user namespace") {
        return skip("run without root", words.trim());
    }
    assert!(output.status.success(), "{words}");
    let run = json(&String::from_utf8_lossy(&output.stdout));
    // Without the right to more than the system's most, what was granted is said.
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse::<u64>().unwrap();
    if most < 64 << 20 {
        let findings = run["findings"].as_array().unwrap().iter();
        let granted = format!("the kernel granted {most} B");
        assert!(
            findings.map(|f| f["evidence"].to_string()).any(|e| e.contains(&granted)),
            "{:#}",
            run["findings"]
        );
    }
    for test in run["tests"].as_array().unwrap() {
        assert_eq!(test["ledger"]["witness"]["status"], "not_permitted");
        assert!(!test["ledger"]["witness"]["why"].as_str().unwrap().is_empty());
        let unexplained = test["ledger"]["unexplained"].as_i64().unwrap().unsigned_abs();
        assert!(unexplained <= test["ledger"]["uncertainty"].as_u64().unwrap(), "{:#}", test["ledger"]);
    }
}

#[test]
fn the_contest_with_the_peers_can_be_held() {
    let _turn = loud_for_long();
    if !installed("netperf") || !installed("iperf3") {
        skip("bench peers, in full", "netperf or iperf3 is not installed");
    }
    let text = run_ok(&["bench", "peers", "--rounds", "1", "--seconds", "1", "--json"]);
    let bench = json(&text);
    assert_eq!(
        bench["contests"].as_array().unwrap().len(),
        9,
        "three with peers, two with and without counters of the flow, two as a run and unwatched, two with and without the profile"
    );
    for contest in bench["contests"].as_array().unwrap() {
        for contestant in contest["contestants"].as_array().unwrap() {
            assert!(contestant["scores"][0]["rate"].as_f64().unwrap() > 0.0, "{contest:#}");
        }
    }
}

/// The first line that a program prints, waited for at most a minute.
pub fn first_line(pipe: std::process::ChildStdout) -> String {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(pipe), &mut line);
        let _ = tell.send(line);
    });
    told.recv_timeout(Duration::from_secs(60)).expect("it printed nothing")
}

#[test]
fn two_machines_are_played_by_serve_and_test() {
    let _turn = beside();
    let mut server = pathlab(&["serve", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    server.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut server = server.spawn().unwrap();
    let line = first_line(server.stdout.take().unwrap());
    let address = json(&line)["listening"].as_str().unwrap_or_default().to_owned();
    let outcome = std::panic::catch_unwind(|| {
        for kind in ["tcp-stream", "udp-stream", "tcp-rr", "udp-rr"] {
            let text = run_ok(&["test", kind, &address, "--duration", "300ms", "--json"]);
            let result = json(&text);
            assert_eq!(result["schema"], "pathlab/test/1", "{kind}");
        }
        let text = run_ok(&["test", "udp-stream", &address, "--rate", "5kpps", "--count", "1000"]);
        assert!(text.contains("1,000") || text.contains("1000"), "{text}");
        // Who may not look into any namespace tests all the same.
        let mut plain = command("setpriv");
        plain.args(["--bounding-set", "-all", "--inh-caps", "-all", PATHLAB, "test", "udp-stream", &address]);
        plain.args(["--rate", "1kpps", "--count", "100"]);
        let output = finish(start(plain), Duration::from_secs(60));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("no ledger: "), "{text}");
    });
    let _ = server.kill();
    let _ = server.wait();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// The server's host counts, too: the ledger between two hosts is closed to the frame beside others' traffic, and a filter of the
/// other host is named with its node. A server that was not asked to tell its counters does not.
#[test]
fn a_test_between_two_hosts_has_a_ledger_where_both_observe() {
    let _turn = beside();
    if !is_root() || !installed("nft") || !installed("ethtool") {
        return skip("the ledger between two hosts", "it needs root, nft and ethtool");
    }
    let lab = TestLab::up("pair", "hosts");
    let in_node = |node: &str, arguments: &[&str]| {
        let mut program = command("ip");
        program.args(["netns", "exec", &lab.netns(node), PATHLAB]).args(arguments);
        program
    };
    let serve = |more: &[&str]| {
        let arguments = [&["serve", "--bind", "10.0.0.2", "--json"][..], more].concat();
        let mut server = in_node("b", &arguments);
        server.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let mut server = crate::support::Kept::new(server.spawn().unwrap());
        first_line(server.stdout_pipe().unwrap());
        server
    };
    let test = |kind: &str, more: &[&str]| -> Value {
        let arguments = [&["test", kind, "10.0.0.2", "--json"][..], more].concat();
        let output = finish(start(in_node("a", &arguments)), Duration::from_secs(60));
        json(&String::from_utf8_lossy(&output.stdout))
    };
    let silent = serve(&[]);
    let said = test("udp-stream", &["--count", "10", "--rate", "100pps"]);
    assert!(said["no_ledger"].as_str().is_some_and(|why| why.contains("serve --observe")), "{said:#}");
    drop(silent);
    let _server = serve(&["--observe"]);
    lab.must("b", "ethtool -K eth0 tso off");
    lab.must("b", "nft 'table ip t { chain c { type filter hook input priority 0; udp length 72 numgen inc mod 3 0 counter drop; }; }'");
    let mut stranger = command("ip");
    let others = "import socket,time\no=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nwhile True:\n  o.sendto(b'x'*64,('10.0.0.2',9)); time.sleep(0.0005)";
    stranger.args(["netns", "exec", &lab.netns("a"), "python3", "-c", others]);
    let _stranger = crate::support::Kept::new(start(stranger));
    let result = test("udp-stream", &["--size", "64", "--rate", "3kpps", "--count", "3000"]);
    let ledger = &result["ledger"];
    assert_eq!((&ledger["sent"], &ledger["unexplained"]), (&3000.into(), &0.into()), "{ledger:#}");
    assert_eq!(ledger["witness"]["status"], "agrees", "{ledger:#}");
    assert_eq!(result["path"]["source"], "frames", "{result:#}");
    let lossy: Vec<&Value> = ledger["stations"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["drops"] != Value::Array(vec![]))
        .collect();
    assert_eq!(lossy.len(), 1, "{ledger:#}");
    assert_eq!(
        (&lossy[0]["node"], &lossy[0]["drops"][0]["name"]),
        (&"10.0.0.2".into(), &"filter_input".into())
    );
    // Both ends say what they are, and in what they differ.
    let hosts = result["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2, "{hosts:#?}");
    assert!(
        hosts
            .iter()
            .all(|host| host["boot_id"] == hosts[0]["boot_id"] && host["interfaces"][0]["driver"] == "veth")
    );
    let differs: Vec<&Value> = result["findings"].as_array().unwrap().iter().collect();
    assert_eq!(differs.len(), 1, "{differs:#?}");
    let evidence = differs[0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("tso on at local") && evidence.contains("tso off"), "{evidence}");
    // Strangers go round with the rule, too: what it took of ours is what did not arrive.
    let lost = 3000 - result["receiver"]["unique"].as_u64().unwrap();
    assert_eq!(lossy[0]["drops"][0]["count"], lost, "{ledger:#}");
    let tcp = test("tcp-stream", &["--duration", "300ms"]);
    assert!(
        tcp["ledger"].is_null() && tcp["path"]["forward"].as_array().is_some_and(|hops| hops.len() == 2),
        "{tcp:#}"
    );
}

/// A stream that ends early at the receiver did not flow faster: `test` and `run` reckon with the sender's time, too, and both
/// say what follows from the counts and the times of the two ends.
#[test]
fn a_lost_tail_raises_no_throughput_in_test_and_run() {
    let _turn = alone();
    if !is_root() || !installed("nft") {
        return skip("a lost tail", "it needs root and nft");
    }
    let lab = TestLab::up("pair", "tail");
    // From 20,000 bytes on nothing reaches the receiver: some 200 of 1,000 datagrams of 92 bytes.
    let rule = "flush ruleset; table ip t { chain i { type filter hook input priority 0; meta l4proto udp quota over 20000 bytes counter drop; }; }";
    let in_node = |node: &str, arguments: &[&str]| {
        let mut program = command("ip");
        program.args(["netns", "exec", &lab.netns(node), PATHLAB]).args(arguments);
        program
    };
    let mut server = in_node("b", &["serve", "--bind", "10.0.0.2", "--json"]);
    server.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut server = crate::support::Kept::new(server.spawn().unwrap());
    first_line(server.stdout_pipe().unwrap());
    lab.must("b", &format!("nft '{rule}'"));
    let stream = ["udp-stream", "10.0.0.2", "--size", "64", "--rate", "1kpps", "--count", "1000", "--json"];
    let output = finish(start(in_node("a", &[&["test"][..], &stream].concat())), Duration::from_secs(60));
    let tested = json(&String::from_utf8_lossy(&output.stdout));
    let arrived = agrees(&tested["summary"], &tested);
    assert!((100..=217).contains(&arrived), "{arrived} of 1000 datagrams arrived: {tested:#}");

    lab.must("b", &format!("nft '{rule}'"));
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("tail.plan");
    let test = "test udp-stream size 64 rate 1000pps count 1000";
    std::fs::write(&plan, format!("topology pair\npath a b\nrepetitions 1\n{test}\n")).unwrap();
    let (plan, dir) = (plan.to_str().unwrap(), folder.path().join("runs"));
    let text = run_ok(&["run", plan, "--lab", &lab.name, "--json", "--dir", dir.to_str().unwrap()]);
    let test = &json(&text)["tests"][0];
    let arrived = agrees(test, test);
    assert!((100..=217).contains(&arrived), "{arrived} of 1000 datagrams arrived: {test:#}");
}

/// Holds the rates of `figures` to what the reports of the two ends say; how many datagrams arrived.
fn agrees(figures: &Value, ends: &Value) -> u64 {
    let number =
        |end: &str, name: &str| ends[end][name].as_u64().unwrap_or_else(|| panic!("{end} {name}: {ends:#}"));
    let (attempted, arrived) = (number("sender", "attempted"), number("receiver", "unique"));
    // 1,000 messages of a plan take 1,000 gaps; the sender's time is that of the 999 between them.
    let sent_in = (number("sender", "ended_ns") - number("sender", "begun_ns")) as f64 / 1e9;
    let seconds = sent_in * attempted as f64 / (attempted - 1) as f64;
    let expected = [arrived as f64 / seconds, number("receiver", "received_bytes") as f64 * 8.0 / seconds];
    for (name, expected) in ["messages_per_second", "throughput_bps"].into_iter().zip(expected) {
        let said = figures[name].as_f64().unwrap();
        assert!((said / expected - 1.0).abs() < 1e-6, "{name} is {said}, not {expected}: {ends:#}");
    }
    arrived
}

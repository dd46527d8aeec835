//! Measured runs: the ledger closes, the record is whole, nothing stays.

use crate::alone;
use crate::support::{PATHLAB, TestLab, command, finish, installed, is_root, pathlab, run_ok, skip, start};
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
    let _turn = alone();
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
fn thirty_thousand_raw_frames_close_with_residual_zero_at_every_station() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let run_plan = |plan: &str| json(&run_ok(&["run", plan, "--dir", &records, "--json"]));
    let shipped = run_plan("plans/frames.plan");
    assert!(shipped["tests"].as_array().unwrap().iter().all(|test| test["ledger"]["sent"] == 30_000));
    let mut runs = vec![shipped];
    for topology in ["pair", "router", "line3"] {
        let plan = folder.path().join(format!("{topology}.plan"));
        let tests: String = ["family 4", "family 6", "port int?bypass=on/int"]
            .map(|how| format!("test frames count 30000 rate 20kpps {how}\n"))
            .concat();
        std::fs::write(&plan, format!("topology {topology}\nrepetitions 1\n{tests}")).unwrap();
        runs.push(run_plan(plan.to_str().unwrap()));
    }
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
    let _turn = alone();
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
    let _turn = alone();
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
    let run = json(&run_ok(&["run", "--quick", "--seed", "7", "--dir", &records, "--json"]));
    assert_eq!(run["schema"], "pathlab/run/2");
    assert_eq!(run["seed"], 7);
    assert_eq!(run["tests"].as_array().unwrap().len(), 18);
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
    let _turn = alone();
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
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs");
    let mut program = if is_root() {
        if !installed("setpriv") {
            return skip("run without root", "setpriv is not installed");
        }
        // A copy in a place that everybody may read: the build folder may not be.
        let copy = folder.path().join("pathlab");
        std::fs::copy(PATHLAB, &copy).unwrap();
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
    let _turn = alone();
    if !installed("netperf") || !installed("iperf3") {
        skip("bench peers, in full", "netperf or iperf3 is not installed");
    }
    let text = run_ok(&["bench", "peers", "--rounds", "1", "--seconds", "1", "--json"]);
    let bench = json(&text);
    assert_eq!(bench["contests"].as_array().unwrap().len(), 3);
    for contest in bench["contests"].as_array().unwrap() {
        for contestant in contest["contestants"].as_array().unwrap() {
            assert!(contestant["scores"][0]["rate"].as_f64().unwrap() > 0.0, "{contest:#}");
        }
    }
}

/// The first line that a program prints, waited for at most a minute.
fn first_line(pipe: std::process::ChildStdout) -> String {
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
    let _turn = alone();
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
    });
    let _ = server.kill();
    let _ = server.wait();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

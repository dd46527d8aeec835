//! What goes wrong on the way: a killed program, a dead peer, a full disk. The lab is gone, the record is whole.

use crate::beside;
use crate::capture::until;
use crate::support::{
    PATHLAB, TestLab, command, finish, installed, is_root, pathlab, run, run_ok, skip, start,
};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Namespaces that our labs could have left.
fn namespaces() -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.starts_with("pathlab-"))
        .collect()
}

/// Finished tests in the only record of a folder.
fn tests_in_record(records: &Path) -> usize {
    study::store::open(records, "latest").unwrap().tests.len()
}

#[test]
fn a_killed_run_is_cleaned_up_by_the_next_command_and_its_finished_tests_are_kept() {
    let _turn = beside();
    if !is_root() {
        return skip(
            "kill -9 of a run",
            "without root everything lives in the killed process and ends with it",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs");
    // A state of its own: the next command may be one of a test beside, which would clean up before anybody looks.
    let of_own = |arguments: &[&str]| {
        let mut tool = pathlab(arguments);
        tool.env("PATHLAB_STATE", folder.path().join("state"));
        tool
    };
    let mut child = start(of_own(&["run", "--quick", "--dir", records.to_str().unwrap()]));
    let own = format!("pathlab-run-{}-", child.id());
    let record_there = || {
        records.is_dir()
            && std::fs::read_dir(&records).unwrap().flatten().any(|e| e.path().join("run.json.zst").is_file())
    };
    until("a record", record_there);
    until("a finished test", || tests_in_record(&records) > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(namespaces().iter().any(|n| n.starts_with(&own)), "kill -9 cannot clean up by itself");
    // Any command of labs does; `lab down --all` would take those of other tests.
    let labs = || {
        let listed = finish(start(of_own(&["lab", "list"])), Duration::from_secs(60));
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        String::from_utf8_lossy(&listed.stdout).into_owned()
    };
    labs();
    until("the namespaces to go", || !namespaces().iter().any(|n| n.starts_with(&own)));
    assert!(tests_in_record(&records) > 0);
    let left = labs();
    assert!(!left.contains("run-"), "{left}");
}

#[test]
fn an_interrupted_run_takes_its_lab_down_itself() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs");
    let plan = folder.path().join("long.plan");
    std::fs::write(&plan, "topology pair\nrepetitions 1\ntest udp-stream duration 60s rate 1kpps\n").unwrap();
    let child = start(pathlab(&["run", plan.to_str().unwrap(), "--dir", records.to_str().unwrap()]));
    let own = format!("pathlab-run-{}-", child.id());
    let record_there = || {
        records.is_dir()
            && std::fs::read_dir(&records).unwrap().flatten().any(|e| e.path().join("run.json.zst").is_file())
    };
    until("a record", record_there);
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = finish(child, Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(130));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("interrupted"), "{words}");
    assert!(!namespaces().iter().any(|n| n.starts_with(&own)), "the lab is still there");
}

#[test]
fn an_agent_that_is_killed_in_mid_test_fails_that_test_and_the_plan_goes_on() {
    let _turn = beside();
    if !is_root() {
        return skip("an agent that dies", "needs root, to find the agent in its node");
    }
    let lab = TestLab::up("bridge", "dies");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("long.plan");
    std::fs::write(
        &plan,
        "topology bridge\nrepetitions 1\norder listed\ntest ping count 100\n\
         test udp-stream duration 120s rate 1kpps\ntest udp-rr count 50\n",
    )
    .unwrap();
    let records = folder.path().join("runs");
    let plan = plan.to_str().unwrap();
    let child =
        start(pathlab(&["run", plan, "--lab", &lab.name, "--dir", records.to_str().unwrap(), "--json"]));
    let record_there = || {
        records.is_dir()
            && std::fs::read_dir(&records).unwrap().flatten().any(|e| e.path().join("run.json.zst").is_file())
    };
    until("a record", record_there);
    until("the first test", || tests_in_record(&records) == 1);
    // The first test had a few hundred frames.
    let before = lab.datagrams("b");
    lab.until_datagrams("b", before + 500);
    let receiver = lab.pids("b")[0];
    assert!(Command::new("kill").args(["-KILL", &receiver.to_string()]).status().unwrap().success());
    let output = finish(child, Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("1 of 3 tests could not be run"), "{words}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let kinds: Vec<_> = json["tests"].as_array().unwrap().iter().map(|test| test["kind"].as_str()).collect();
    assert_eq!(kinds, [Some("ping"), Some("udp-rr")]);
    let failed =
        json["findings"].as_array().unwrap().iter().find(|f| f["claim"] == "the test could not be run");
    let failed = failed.unwrap_or_else(|| panic!("{json}"));
    assert!(failed["test"].as_str().unwrap().starts_with("udp-stream"), "{failed}");
    let reason = failed["evidence"].as_str().unwrap();
    assert!(reason.contains(&format!("the receiver (agent process {receiver})")), "{reason}");
    assert_eq!(tests_in_record(&records), 2);
}

#[test]
fn a_full_disk_keeps_no_result_from_who_asked() {
    let _turn = beside();
    if !is_root() || !installed("mount") {
        return skip("a full disk", "needs root, to mount a small file system");
    }
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let (small, kept) = (small.display(), folder.path().join("kept"));
    // The disk is there for these commands only: a mount namespace that tells the host nothing (unshare's default). What
    // it holds at the end is copied out of it. It is full from the record's first version on, also when something is removed.
    let script = format!(
        "mount -t tmpfs -o size=4m none {small} || exit 77
        {PATHLAB} run --quick --only ping --repetitions 3 --dir {small}/runs --json & run=$!
        echo \"the run is $run.\" >&2
        until ls {small}/runs/*/run.json.zst >/dev/null 2>&1; do kill -0 $run || exit 78; sleep 0.01; done
        while kill -0 $run 2>/dev/null; do dd if=/dev/zero bs=4k >>{small}/filler 2>/dev/null; sleep 0.01; done
        wait $run; code=$?
        cp -r {small}/runs {}; exit $code",
        kept.display()
    );
    let mut tool = command("unshare");
    tool.args(["--mount", "sh", "-c", &script]);
    let output = finish(start(tool), Duration::from_secs(120));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("No space left") && words.contains(&small.to_string()), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    assert_eq!(json["tests"].as_array().map(Vec::len), Some(3), "every test is printed");
    let in_record = tests_in_record(&kept);
    let told = if in_record == 1 { "1 test is".into() } else { format!("{in_record} tests are") };
    assert!(in_record < 3 && words.contains(&format!("{told} kept there")), "{in_record}: {words}");
    assert!(words.contains("the run goes on"), "{words}");
    let own = words.split("the run is ").nth(1).and_then(|rest| rest.split('.').next()).expect("its process");
    let own = format!("pathlab-run-{own}-");
    assert!(!namespaces().iter().any(|n| n.starts_with(&own)), "the lab is still there");
}

#[test]
fn a_full_disk_keeps_no_verdict_from_who_asked() {
    let _turn = beside();
    if !is_root() || !installed("mount") {
        return skip("a full disk", "needs root, to mount a small file system");
    }
    let folder = tempfile::tempdir().unwrap();
    let (plan, small) = (folder.path().join("short.plan"), folder.path().join("small"));
    std::fs::write(&plan, "topology pair\ntest udp-rr duration 50ms\n").unwrap();
    std::fs::create_dir(&small).unwrap();
    let (plan, small) = (plan.display(), small.display());
    // Room for the first tests of the two arms, in a mount namespace as above.
    let script = format!(
        "mount -t tmpfs -o size=40k none {small} || exit 77
        exec {PATHLAB} compare {plan} {plan} --pairs 6 --same-within 50% --json --dir {small}/runs"
    );
    let mut tool = command("unshare");
    tool.args(["--mount", "sh", "-c", &script]);
    let output = finish(start(tool), Duration::from_secs(120));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("No space left") && !words.contains("records: "), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    let pairs = json["tests"][0]["pairs"].as_array().map(Vec::len);
    assert_eq!((pairs, json["stopped"].as_str()), (Some(6), None), "the whole trial is printed: {json}");
}

/// The file is written whole, or the one that was there stays.
#[test]
fn a_full_disk_leaves_the_facts_that_were_there() {
    let _turn = beside();
    if !is_root() || !installed("mount") {
        return skip("facts on a full disk", "needs root, to mount a small file system");
    }
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let (folder, small) = (folder.path().display(), small.display());
    let facts = format!("{PATHLAB} facts lo --duration 100ms -o {small}/facts");
    let script = format!(
        "mount -t tmpfs -o size=8m none {small} || exit 77
        {facts} >&2 && cp {small}/facts {folder}/first && cat /dev/zero 2>/dev/null >{small}/rest
        {facts} >&2; code=$?
        cmp {small}/facts {folder}/first >&2 && ls -A {small} && exit $code"
    );
    let mut tool = command("unshare");
    tool.args(["--mount", "sh", "-c", &script]);
    let output = finish(start(tool), Duration::from_secs(120));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("No space left"), "{words}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "facts\nrest\n", "{words}");
}

#[test]
fn a_directory_that_goes_in_mid_run_keeps_no_result_from_who_asked() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("two.plan");
    std::fs::write(
        &plan,
        "topology pair\nrepetitions 1\norder listed\ntest ping count 20\ntest udp-stream duration 5s rate 1kpps\n",
    )
    .unwrap();
    let records = folder.path().join("runs");
    let child =
        start(pathlab(&["run", plan.to_str().unwrap(), "--dir", records.to_str().unwrap(), "--json"]));
    let there = || {
        std::fs::read_dir(&records)
            .is_ok_and(|mut all| all.any(|e| e.unwrap().path().join("run.json.zst").is_file()))
    };
    until("a record", there);
    until("the first test", || tests_in_record(&records) == 1);
    std::fs::remove_dir_all(&records).unwrap();
    let output = finish(child, Duration::from_secs(120));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("nothing is kept there") && !words.contains("record: "), "{words}");
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
    assert_eq!(json["tests"].as_array().map(Vec::len), Some(2));
}

#[test]
fn too_few_open_files_are_said_to_be_too_few() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology pair\nrepetitions 1\ntest ping count 20\n").unwrap();
    let (mut refused, mut done) = (0, 0);
    // What is missing depends on how far it gets; the lab goes whatever it is.
    for limit in [12, 16, 20, 24, 28, 32, 36, 40, 48, 64, 1024] {
        let mut tool = command("sh");
        let script = format!("ulimit -n {limit}; exec {PATHLAB} run {} --dir runs", plan.display());
        tool.args(["-c", &script]).current_dir(folder.path());
        let child = start(tool);
        let own = format!("pathlab-run-{}-", child.id());
        let output = finish(child, Duration::from_secs(60));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => done += 1,
            _ => {
                assert!(
                    words.contains("Too many open files")
                        && words.contains("ulimit -n")
                        && !words.contains("unused name"),
                    "{limit}: {words}"
                );
                refused += 1;
            }
        }
        run_ok(&["lab", "list"]);
        assert!(!namespaces().iter().any(|n| n.starts_with(&own)), "{limit}: the lab is still there");
    }
    assert!(refused > 0 && done > 0);
}

#[test]
fn two_labs_side_by_side_do_not_meet() {
    let _turn = beside();
    if !is_root() || !installed("ping") {
        return skip("two labs side by side", "needs root and ping");
    }
    let (one, two) = (TestLab::up("pair", "one"), TestLab::up("pair", "two"));
    one.must("a", "ping -c 1 -W 2 10.0.0.2");
    two.must("b", "ip addr del 10.0.0.2/24 dev eth0");
    one.must("a", "ping -c 1 -W 2 10.0.0.2");
    assert!(two.inside("a", "ping -c 1 -W 1 10.0.0.2").is_err(), "the second lab reached the first");
}

#[test]
fn a_test_that_the_path_does_not_let_begin_is_a_finding_and_the_plan_goes_on() {
    let _turn = beside();
    if !is_root() || !installed("nft") {
        return skip("a path that carries no TCP", "needs root and nft");
    }
    let lab = TestLab::up("pair", "notcp");
    lab.must(
        "b",
        "nft 'table ip t { chain i { type filter hook input priority 0; meta l4proto tcp drop; }; }'",
    );
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("mixed.plan");
    std::fs::write(
        &plan,
        "topology pair\nrepetitions 1\norder listed\ntest tcp-rr count 10\ntest ping count 100\n",
    )
    .unwrap();
    let records = folder.path().join("runs");
    let arguments =
        ["run", plan.to_str().unwrap(), "--lab", &lab.name, "--dir", records.to_str().unwrap(), "--json"];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["tests"].as_array().unwrap().len(), 1);
    assert_eq!(json["tests"][0]["kind"], "ping");
    assert_eq!(json["findings"][0]["claim"], "the test could not be run");
}

//! Labs amid other people's mounts, and with damaged journals. Every test has a `/run` of its own.

use crate::is_root;
use crate::support::{finish, installed, must_with_own_run, script_with_own_run, skip, start};
use std::time::Duration;

/// How many mounts of network namespaces lie below the script's own `/run`, reachable or not, in the words of the kernel:
/// `ID PARENT … PLACE … - nsfs …`. (Copies of the host's lie elsewhere, and go when the host's go.)
const PINS: &str = r#"own=$(awk '$5 == "/run" { own = $1 } END { print own }' /proc/self/mountinfo)
    pins() {
        awk -v own="$own" '{ parent[$1] = $2 } / - nsfs / { pin[$1] }
            END { for (id in pin) { while (id != own && id in parent) id = parent[id]; if (id == own) count++ }
                  print count + 0 }' /proc/self/mountinfo
    }"#;

fn may_run(test: &str) -> bool {
    let may = is_root(test) && installed("unshare") && installed("ip");
    if !may {
        skip(test, "needs root, unshare and ip");
    }
    may
}

#[test]
fn a_lab_goes_down_after_somebodys_first_ip_netns_add_and_del() {
    if !may_run("the first 'ip netns add'") {
        return;
    }
    let (out, _) = must_with_own_run(&format!(
        "{PINS}
        $PATHLAB lab up pair --name m
        awk '$5 == \"/run/netns\"' /proc/self/mountinfo | tail -n 1
        ip netns add x
        test \"$($PATHLAB lab exec m a -- ls /sys/class/net | tr '\\n' ' ')\" = 'eth0 lo '
        ip netns del pathlab-m-b; $PATHLAB lab list
        $PATHLAB lab down m
        ip netns del x
        echo \"$(pins) pins\"; ls /run/netns"
    ));
    let place = out.lines().find(|line| line.contains(" /run/netns ")).unwrap_or("none");
    assert!(place.contains("shared:"), "/run/netns is not what iproute2 makes of it: {out}");
    let listed = out.lines().find(|line| line.starts_with("m ")).unwrap_or("none");
    assert!(listed.contains("damaged: b gone"), "somebody deleted a namespace of the lab: {out}");
    assert!(out.ends_with("down: m\n0 pins\n"), "{out}");
}

#[test]
fn a_lab_is_used_and_goes_down_beneath_what_was_mounted_over_its_namespaces() {
    if !may_run("mounts over /run/netns") {
        return;
    }
    let tmpfs = "mount -t tmpfs none /run/netns";
    // What iproute2 did to the labs of earlier versions, which pinned in a directory that was no mount.
    let bound = "mount --bind /run/netns /run/netns";
    let all_bound = "mount --rbind /run/netns /run/netns";
    for cover in [tmpfs, bound, all_bound, &format!("{tmpfs}; {tmpfs}"), &format!("{all_bound}; {tmpfs}")] {
        let (out, _) = must_with_own_run(&format!(
            "{PINS}
            $PATHLAB lab up pair --name m
            echo \"$(pins) pins\"
            {cover}
            $PATHLAB lab exec m a -- ping -c 1 -W 5 10.0.0.2 >/dev/null
            $PATHLAB lab down m
            echo \"$(pins) pins\"
            while umount /run/netns 2>/dev/null; do :; done
            ls /run/netns /run/pathlab"
        ));
        assert!(out.contains("2 pins"), "{cover}: {out}");
        assert!(out.ends_with("down: m\n0 pins\n/run/netns:\n\n/run/pathlab:\nlock\n"), "{cover}: {out}");
    }
}

#[test]
fn a_lab_beneath_another_of_the_same_name_goes_down_alone() {
    if !may_run("two labs of one name") {
        return;
    }
    let (out, _) = must_with_own_run(&format!(
        "{PINS}
        $PATHLAB lab up pair --name m
        mount -t tmpfs none /run/netns
        PATHLAB_STATE=/run/other $PATHLAB lab up pair --name m
        $PATHLAB lab down m
        echo \"$(pins) pins\"
        PATHLAB_STATE=/run/other $PATHLAB lab exec m a -- ping -c 1 -W 5 10.0.0.2 >/dev/null
        PATHLAB_STATE=/run/other $PATHLAB lab down m
        umount /run/netns
        echo \"$(pins) pins\"; ls /run/netns"
    ));
    assert!(out.contains("2 pins") && out.ends_with("down: m\n0 pins\n"), "{out}");
}

#[test]
fn a_lab_goes_down_from_a_mount_namespace_that_tells_nobody() {
    if !may_run("lab down in another mount namespace") {
        return;
    }
    let (out, _) = must_with_own_run(&format!(
        "{PINS}
        $PATHLAB lab up pair --name m
        unshare --mount --propagation private $PATHLAB lab down m
        echo \"$(pins) pins\""
    ));
    assert!(out.ends_with("down: m\n0 pins\n"), "{out}");
}

#[test]
fn a_failed_take_down_comes_after_the_results_of_a_run() {
    if !may_run("a failed take-down") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("one.plan");
    std::fs::write(&plan, "topology pair\nrepetitions 1\ntest ping count 20\n").unwrap();
    let runs = folder.path().join("runs");
    for way in ["", "--path direct"] {
        // Files can be made in such a directory, but not removed.
        let output = finish(
            start(script_with_own_run(&format!(
                "mkdir -m 755 /run/netns; chattr +a /run/netns || exit 77
                code=0; $PATHLAB run {} {way} --dir {} --json || code=$?
                chattr -a /run/netns
                $PATHLAB undo >&2
                ls /run/netns
                exit $code",
                plan.display(),
                runs.display()
            ))),
            Duration::from_secs(120),
        );
        if output.status.code() == Some(77) {
            return skip("a failed take-down", "needs a tmpfs with append-only directories (Linux 6.6)");
        }
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words}");
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"));
        let tests = if way.is_empty() { &json["tests"] } else { &json["ways"] };
        assert_eq!(tests.as_array().map(Vec::len), Some(1), "{json}");
        assert!(words.contains("warning: 'run-") && words.contains("could not be taken down"), "{words}");
        assert!(
            words.contains("undone: run-") || String::from_utf8_lossy(&output.stdout).contains("undone"),
            "{words}"
        );
    }
}

#[test]
fn a_damaged_journal_is_made_up_for_by_its_copy() {
    if !may_run("a damaged journal") {
        return;
    }
    let journal = "/run/pathlab/m.journal";
    for damage in [
        format!(": >{journal}"),
        format!("rm {journal}"),
        format!("sed -i 's/^.\"undo\"/{{\"undone\"/' {journal}"),
        format!("head -c 300 /dev/urandom >{journal}"),
        format!("head -n 2 {journal} >/run/cut; cat /run/cut >{journal}"),
        ": >/run/pathlab/m.copy".into(),
        "rm /run/pathlab/m.copy".into(),
    ] {
        let (out, err) = must_with_own_run(&format!(
            "{PINS}
            $PATHLAB lab up pair --name m
            {damage}
            $PATHLAB lab list
            echo \"$(pins) pins\"
            $PATHLAB lab exec m a -- true
            $PATHLAB lab down m
            echo \"$(pins) pins\"; ls /run/netns; ls /run/pathlab"
        ));
        assert!(!err.contains("undid"), "{damage}: {err}");
        let up =
            out.lines().any(|line| line.starts_with('m') && line.contains(" up ") && line.contains("a b"));
        assert!(up && out.contains("2 pins"), "{damage}: {out}");
        assert!(out.ends_with("down: m\n0 pins\nlock\n"), "{damage}: {out}");
    }
}

#[test]
fn a_lab_whose_journal_and_copy_are_damaged_is_named_and_not_said_to_be_gone() {
    if !may_run("a lost journal") {
        return;
    }
    let (out, err) = must_with_own_run(&format!(
        "{PINS}
        $PATHLAB lab up pair --name m
        $PATHLAB lab up pair --name m-other
        for file in /run/pathlab/m.*; do : >$file; done
        $PATHLAB lab list
        for words in 'lab down m' 'lab down --all' undo 'lab exec m a -- true'; do
            code=0; $PATHLAB $words || code=$?
            echo \"$words: code $code\"
        done
        echo \"$(pins) pins\"
        $PATHLAB lab up pair --name unharmed; $PATHLAB lab down unharmed
        : 'what the sentence says'
        ip netns del pathlab-m-a; ip netns del pathlab-m-b; rm /run/pathlab/m.*
        $PATHLAB lab list; $PATHLAB undo
        echo \"$(pins) pins\""
    ));
    assert!(!err.contains("undid") && !out.contains("down: m\n"), "{out}{err}");
    let sentence = err.lines().next().unwrap_or_default();
    assert!(sentence.contains("/run/pathlab/m.journal"), "{err}");
    assert!(sentence.contains("pathlab-m-a, pathlab-m-b") && !sentence.contains("pathlab-m-other"), "{err}");
    assert!(out.lines().any(|line| line.starts_with("m ") && line.contains("damaged")), "{out}");
    for line in [
        "lab down m: code 3",
        "lab down --all: code 3",
        "undo: code 3",
        "lab exec m a -- true: code 3",
        "2 pins",
    ] {
        assert!(out.lines().any(|said| said == line), "{line}: {out}{err}");
    }
    assert!(out.contains("down: m-other"), "{out}");
    assert!(
        out.ends_with("no labs; build one with 'pathlab lab up bridge'\nnothing was left behind\n0 pins\n"),
        "{out}"
    );
}

#[test]
fn a_lab_that_a_run_uses_is_neither_taken_down_nor_used_twice() {
    if !may_run("a lab in use") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("long.plan");
    std::fs::write(&plan, "topology pair\nrepetitions 1\ntest udp-stream duration 100s rate 100pps\n")
        .unwrap();
    let (plan, runs) = (plan.display(), folder.path().join("runs"));
    let runs = runs.display();
    let (out, err) = must_with_own_run(&format!(
        "{PINS}
        $PATHLAB lab up pair --name m
        $PATHLAB run {plan} --lab m --dir {runs} >/dev/null 2>&1 & run=$!
        trap \"kill $run\" EXIT
        until ls {runs}/*/run.json.zst >/dev/null 2>&1; do kill -0 $run; sleep 0.02; done
        echo \"the run is $run.\"
        for words in 'lab down m' 'lab down --all' 'run {plan} --lab m --dir {runs}'; do
            code=0; $PATHLAB $words || code=$?
            echo \"code $code\"
        done
        $PATHLAB lab list
        $PATHLAB lab exec m a -- true
        echo \"$(pins) pins\"
        trap - EXIT; kill -INT $run; wait $run || true
        $PATHLAB lab down m
        echo \"$(pins) pins\""
    ));
    let run = out.split("the run is ").nth(1).and_then(|rest| rest.split('.').next()).unwrap();
    let codes: Vec<&str> = out.lines().filter(|line| line.starts_with("code ")).collect();
    assert_eq!(codes, ["code 2", "code 0", "code 2"], "{out}{err}");
    let named = err.lines().filter(|line| line.contains("'m' is used by process ") && line.contains(run));
    assert_eq!(named.count(), 3, "{err}");
    assert!(out.contains(&format!("up, used by {run}")) && out.contains("2 pins"), "{out}");
    assert!(out.ends_with("down: m\n0 pins\n"), "{out}{err}");
}

//! Help, completion, manual pages, exit codes: what can be seen without building a lab.

use crate::support::{run, run_ok};

#[test]
fn every_command_explains_itself() {
    let help = run_ok(&["--help"]);
    for command in [
        "capture",
        "lab",
        "run",
        "test",
        "serve",
        "runs",
        "show",
        "report",
        "send",
        "join",
        "follow",
        "null",
        "switch",
        "flow",
        "controller",
        "shims",
        "bench",
        "undo",
        "completions",
        "man",
    ] {
        assert!(help.contains(&format!("  {command} ")), "{command} is not in the help");
        let own = run_ok(&[command, "--help"]);
        assert!(own.contains("Usage:"), "{command}");
        assert!(own.contains("--json"), "{command} has no --json");
    }
    assert!(!help.contains("agent"), "the inner command is shown to people");
}

#[test]
fn completion_and_manual_pages_come_from_the_same_table() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(run_ok(&["completions", shell]).contains("report"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let words = run_ok(&["man", &folder.path().display().to_string()]);
    assert!(words.contains("pages in"), "{words}");
    let page = std::fs::read_to_string(folder.path().join("pathlab-run.1")).unwrap();
    assert!(page.contains("quick"));
}

#[test]
fn bad_input_ends_with_one_sentence_and_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let plan = file("bad.plan", "topology bridge\ntest udp-strem\n");
    let nowhere = file("nowhere.plan", "topology bridge\npath a z\ntest ping\n");
    let no_lab = file("nolab.plan", "topology no-such-topology\ntest ping\n");
    let lab = file("bad.lab", "node a\nlink a:eth0 -- c:eth0\n");
    let cases: [(&[&str], &str); 8] = [
        (&["run", &plan], "bad.plan:2:6: unknown test kind 'udp-strem'"),
        (&["run", &nowhere], "'z'"),
        (&["run", &no_lab], "no-such-topology"),
        (&["run", "no/such.plan"], "cannot read the plan"),
        // Standard input, which is empty.
        (&["run", "-"], "-: no topology"),
        (&["lab", "up", &lab], "bad.lab:2:"),
        (&["run", "--lab", "no-such-lab"], "no-such-lab"),
        (&["show", "no-such-run", "--dir", folder.path().to_str().unwrap()], "no-such-run"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
        assert!(words.contains(expected), "{arguments:?}: {words}");
        assert_eq!(words.trim().lines().count(), 1, "{arguments:?}: not one sentence: {words}");
        assert!(output.stdout.is_empty(), "{arguments:?}: printed a result");
    }
}

/// What a flag needs is asked for although another flag rules that out: clap alone asks for it only where nothing does.
#[test]
fn a_flag_that_would_do_nothing_is_refused() {
    let cases: [&[&str]; 8] = [
        &["run", "--to", "192.0.2.1", "--offload", "off"],
        &["run", "--lab", "none", "--offload", "both"],
        &["send", "int:none", "none.tpl", "--loop", "3"],
        &["send", "int:none", "--frame", "eth", "--speed", "2"],
        &["send", "int:none", "--size", "60", "--fix-checksums"],
        &["report", "latest", "-o", "none.json", "--trace", "--goal", "latency"],
        &["report", "latest", "-o", "none.json", "--trace", "--peer", "none"],
        &["export", "--in", ".", "--dir", "none"],
    ];
    for arguments in cases {
        let output = run(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
        assert!(words.contains("cannot be used with"), "{arguments:?}: {words}");
    }
}

//! What `--json` prints, compared with the table of `docs/json.md` as a reader sees it.

use crate::beside;
use crate::support::{Kept, TestLab, command, finish, is_root, pathlab, run_ok, skip, start};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::time::Duration;

/// Fields by schema: the name of each, and whether it is always there.
fn documented() -> BTreeMap<String, Vec<(String, bool)>> {
    let docs = std::fs::read_to_string("docs/json.md").unwrap();
    let begin = docs.find("| command | schema |").expect("the table of documents");
    let rows = docs[begin..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let word = |text: &str| text.trim().trim_matches('`').to_owned();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').collect();
        let field = |name: &str| {
            let name = word(name);
            name.strip_suffix('?').map_or((name.clone(), true), |name| (name.to_owned(), false))
        };
        (word(cells[2]), cells[4].split_whitespace().map(field).collect())
    };
    rows.map(row).collect()
}

/// Every document that a command printed, and that each has the fields that the table says and no others. Their schemas.
fn schemas(printed: &str) -> Vec<String> {
    let table = documented();
    let documents = serde_json::Deserializer::from_str(printed).into_iter::<Value>();
    let check = |document: serde_json::Result<Value>| {
        let document = document.unwrap_or_else(|e| panic!("{e}: {printed}"));
        let schema =
            document["schema"].as_str().unwrap_or_else(|| panic!("no schema: {document}")).to_owned();
        let fields = table.get(&schema).unwrap_or_else(|| panic!("{schema} is not documented"));
        for key in document.as_object().unwrap().keys().filter(|key| *key != "schema") {
            assert!(fields.iter().any(|(name, _)| name == key), "{schema}: '{key}' is not documented");
        }
        for (name, _) in fields.iter().filter(|(_, always)| *always) {
            assert!(document.get(name).is_some(), "{schema}: '{name}' is missing");
        }
        schema
    };
    documents.map(check).collect()
}

fn printed(arguments: &[&str]) -> Vec<String> {
    schemas(&run_ok(&[arguments, &["--json"]].concat()))
}

#[test]
fn documents_of_runs_are_as_documented() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (records, plan) = (at("runs"), at("one.plan"));
    std::fs::write(&plan, "topology pair\nrepetitions 1\ntest ping count 3\n").unwrap();
    for (arguments, schema) in [
        (&["run", &plan, "--label", "x"][..], "pathlab/run/2"),
        (&["run", &plan, "--path", "direct", "--max-loss", "100%"], "pathlab/ways/1"),
        (&["runs"], "pathlab/runs/1"),
        (&["show"], "pathlab/run/2"),
        (&["report", "latest", "-o", &at("page.html")], "pathlab/report/1"),
        (&["runs", "delete", "latest"], "pathlab/runs-delete/1"),
    ] {
        let arguments = [arguments, &["--dir", &records]].concat();
        assert_eq!(printed(&arguments), [schema], "{arguments:?}");
    }
}

#[test]
fn documents_of_labs_are_as_documented_one_name_each() {
    let _turn = beside();
    if !is_root() {
        return skip("documents of labs", "needs root");
    }
    let name = format!("documents{}", std::process::id());
    assert_eq!(printed(&["lab", "up", "pair", "--name", &name]), ["pathlab/lab-up/1"]);
    let lab = TestLab { name };
    assert_eq!(printed(&["lab", "list"]), ["pathlab/lab-list/2"]);
    assert_eq!(printed(&["lab", "check", &lab.name]), ["pathlab/lab-check/2"]);
    assert_eq!(printed(&["lab", "show", "pair"]), ["pathlab/lab-show/1"]);
    let other = format!("another{}", std::process::id());
    run_ok(&["lab", "up", "pair", "--name", &other]);
    assert_eq!(printed(&["lab", "down", &other]), ["pathlab/lab-down/2"]);
    // In a /run of its own: what others have there is not this test's to undo.
    let mut own = command("unshare");
    own.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        "mount -t tmpfs none /run && exec \"$0\" undo --json",
    ]);
    own.arg(crate::support::PATHLAB);
    let undone = finish(start(own), Duration::from_secs(60));
    assert_eq!(schemas(&String::from_utf8_lossy(&undone.stdout)), ["pathlab/undo/1"]);
}

#[test]
fn documents_of_tools_are_as_documented() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (file, rules) = (at("frames.pcap"), at("rules"));
    std::fs::write(&rules, "in_port=1,actions=output:2\n").unwrap();
    let template = ["--frame", "eth / ip dst=10.0.0.2 / udp dport=9"];
    let send = |more: &[&str]| {
        let port = format!("pcap:{file}");
        printed(&[&["send", &port], &template[..], more].concat())
    };
    assert_eq!(send(&["--count", "3"]), ["pathlab/send/1"]);
    assert_eq!(send(&["--print", "2"]), ["pathlab/frame/1", "pathlab/frame/1"]);
    let captured = printed(&["capture", &format!("pcap:{file}")]);
    assert_eq!(captured.last().map(String::as_str), Some("pathlab/capture/1"));
    let (folder, links) = (at("man"), at("shims"));
    for (arguments, schema) in [
        (&["flow", "trace", "--rules", &rules, "in_port=1,tcp"][..], "pathlab/flow-trace/1"),
        (&["completions", "bash"], "pathlab/completions/1"),
        (&["man", &folder], "pathlab/man/1"),
        (&["shims", &links], "pathlab/shims/1"),
        (&["bench", "peers", "--rounds", "1", "--seconds", "1", "--only", "tcp-rr"], "pathlab/bench-peers/1"),
    ] {
        assert_eq!(printed(arguments), [schema], "{arguments:?}");
    }
}

#[test]
fn documents_of_serve_and_test_are_as_documented() {
    let _turn = beside();
    let mut server = pathlab(&["serve", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    server.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut server = Kept::new(server.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.stdout_pipe().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(schemas(&line), ["pathlab/serve/1"]);
    let address = serde_json::from_str::<Value>(&line).unwrap()["listening"].as_str().unwrap().to_owned();
    let test = ["test", "udp-stream", &address, "--count", "100", "--rate", "1kpps"];
    assert_eq!(printed(&test), ["pathlab/test/1"]);
}

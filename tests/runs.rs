//! `pathlab runs`, `show` and `report` as a user calls them.

use record::run::SCHEMA;
use record::{Finding, HostFacts, RunRecord, Severity};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn pathlab(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pathlab")).args(args).current_dir(directory).output().unwrap()
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), utf8(&output.stdout), utf8(&output.stderr))
}

/// A run without tests, with one finding, and a damaged one beside it.
fn directory() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let record = RunRecord {
        schema: SCHEMA.into(),
        id: String::new(),
        begun: "2026-01-02T03:04:05Z".into(),
        ended: None,
        host: HostFacts::default(),
        plan: "the plan".into(),
        topology: String::new(),
        seed: 7,
        command: vec![],
        way: None,
        tests: vec![],
        findings: vec![],
        invalid: vec![],
    };
    let writer = study::store::RunWriter::create(&directory.path().join("runs"), record).unwrap();
    let claim = "something is worth knowing".to_owned();
    let finding = Finding {
        severity: Severity::Note,
        test: String::new(),
        claim,
        evidence: "7".into(),
        advice: "do".into(),
    };
    let id = writer.finish(vec![finding], "2026-01-02T03:05:05Z".into(), vec![]).unwrap().id;
    let bad = directory.path().join("runs/20990101T000000Z-bad");
    fs::create_dir(&bad).unwrap();
    fs::write(bad.join("run.json"), "{").unwrap();
    (directory, id)
}

#[test]
fn runs_are_listed_and_shown_in_both_forms() {
    let (directory, id) = directory();
    let at = directory.path();
    let (code, listed, _) = text(&pathlab(at, &["runs"]));
    assert!(code == Some(0) && listed.contains(&id) && listed.contains("damaged"), "{listed}");
    let (_, json, _) = text(&pathlab(at, &["runs", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((list[0]["id"].as_str(), list[0]["broken"].is_null()), (Some(id.as_str()), true));
    let (code, shown, _) = text(&pathlab(at, &["show", &id[..20]]));
    assert!(code == Some(0) && shown.contains("something is worth knowing"), "{shown}");
    let (_, json, _) = text(&pathlab(at, &["show", &id, "--json"]));
    assert_eq!(serde_json::from_str::<RunRecord>(&json).unwrap().seed, 7);
}

#[test]
fn what_cannot_be_shown_is_one_sentence_with_exit_code_2() {
    let (directory, _) = directory();
    for args in [&["show", "nothing"][..], &["show", "2099"], &["show", "latest", "--dir", "elsewhere"]] {
        let (code, stdout, stderr) = text(&pathlab(directory.path(), args));
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (Some(2), "", 1), "{stderr}");
    }
}

#[test]
fn a_report_is_written_over_a_report_and_over_nothing_else() {
    let (directory, id) = directory();
    let at = directory.path();
    for _ in 0..2 {
        let (code, said, _) = text(&pathlab(at, &["report", &id, "-o", "out.html"]));
        assert!(code == Some(0) && said.contains("out.html"), "{said}");
    }
    let page = fs::read_to_string(at.join("out.html")).unwrap();
    assert!(page.contains(&id) && page.contains("the plan"));
    fs::write(at.join("mine.html"), "<!DOCTYPE html>mine").unwrap();
    let (code, _, said) = text(&pathlab(at, &["report", &id, "-o", "mine.html"]));
    assert!(code == Some(2) && said.contains("not a report"), "{said}");
    assert_eq!(fs::read_to_string(at.join("mine.html")).unwrap(), "<!DOCTYPE html>mine");
    let (code, _, said) = text(&pathlab(at, &["report", &id, "-o", "no/such/place.html"]));
    assert!(code == Some(3) && said.lines().count() == 1, "{said}");
}

//! What was written by earlier versions is undone by this one.

use super::*;
use crate::sys::process::ProcessIdentity;
use std::fs;

/// Journals as pathlab wrote them before there were modules of steps, line for line; `OWNER` is its owner, `HERE` a folder.
const OLD: &str = r#"{"owner":{"schema":"pathlab/undo/1","name":"old","owner":OWNER,"persistent":true}}
{"undo":{"unpin":{"file":"HERE/absent","netns":4026532001}}}
{"undo":{"link":{"file":"HERE/absent","netns":4026532001,"index":12,"name":"a:eth0"}}}
{"undo":{"directory":{"path":"HERE/directory"}}}
{"undo":{"folder":{"path":"HERE/old.d"}}}
{"undo":{"stamps":{"netns":1,"index":7,"name":"card0","was":{"flags":0,"transmit":1,"receive":0}}}}
{"undo":{"stamps":{"netns":1,"index":7,"name":"card0","was":{"flags":0,"transmit":1,"receive":0},"side":"transmit"}}}
{"undo":{"queues":{"netns":1,"index":7,"name":"card0"}}}
{"undo":{"down":{"netns":1,"index":7,"name":"card0"}}}
{"undo":{"process":{"process":OWNER}}}
"#;

/// The settings that a journal names now; one that is not among them is of a later version.
const KNOBS: &str = r#"[
{"knob":{"knob":"stamps_receive","at":{"interface":{"netns":1,"index":7,"name":"card0"}},"was":{"flags":0,"transmit":1,"receive":0}}},
{"knob":{"knob":"stamps_transmit","at":{"interface":{"netns":1,"index":7,"name":"card0"}},"was":{"flags":0,"transmit":0,"receive":0}}},
{"knob":{"knob":"queues","at":{"interface":{"netns":1,"index":7,"name":"card0"}},"was":false}},
{"knob":{"knob":"up","at":{"interface":{"netns":1,"index":7,"name":"card0"}},"was":true}}
]"#;

#[test]
fn every_knob_of_a_journal_is_undone_and_one_that_nobody_knows_damages_it() {
    let temporary = tempfile::tempdir().unwrap();
    let journals = open_at(&temporary.path().join("state")).unwrap();
    let mut steps: Vec<serde_json::Value> = serde_json::from_str(KNOBS).unwrap();
    // All others are text, at a place that nobody can find.
    for row in &tune::KNOBS[steps.len()..] {
        let at = if row.place.is_of_interface() {
            serde_json::json!({ "interface": { "netns": 1, "index": 7, "name": "card0" } })
        } else {
            serde_json::json!({ "namespace": 1 })
        };
        let name = row.named("rx-0");
        let step = serde_json::json!({ "knob": name, "at": at, "was": "1", "wanted": "2" });
        steps.push(serde_json::json!({ "knob": step }));
        steps.push(serde_json::json!({ "took": { "knob": row.named("rx-0"), "at": at, "now": "2" } }));
    }
    let dead = ProcessIdentity { start: 1, ..ProcessIdentity::own().unwrap() };
    journals.leave_behind("known", dead.clone(), &steps);
    assert_eq!(journals.clean().unwrap(), ["known"]);
    for change in [("queues", "later"), ("interface", "galaxy"), ("netns", "nets")] {
        let text = serde_json::to_string(&steps[2]).unwrap().replace(change.0, change.1);
        let step: serde_json::Value = serde_json::from_str(&text).unwrap();
        journals.leave_behind("unknown", dead.clone(), &[step]);
        assert!(journals.clean().unwrap_err().to_string().contains("damaged"), "{text}");
    }
}

#[test]
fn a_journal_of_an_earlier_version_is_read_undone_and_written_the_same() {
    let temporary = tempfile::tempdir().unwrap();
    let journals = open_at(&temporary.path().join("state")).unwrap();
    fs::create_dir(temporary.path().join("directory")).unwrap();
    fs::create_dir_all(temporary.path().join("old.d/node")).unwrap();
    let dead = ProcessIdentity { start: 1, ..ProcessIdentity::own().unwrap() };
    let owner = serde_json::to_string(&dead).unwrap();
    let here = temporary.path().display().to_string();
    let text = OLD.replace("OWNER", &owner).replace("HERE", &here);
    fs::write(temporary.path().join("state/old.journal"), &text).unwrap();
    let record = journals.read("old").unwrap().expect("every line is known");
    assert_eq!((record.steps.len(), record.stale()), (9, true));
    // The same lines come out again, but for the side, which was not said before there were two.
    for (line, entry) in text.lines().skip(1).zip(&record.steps) {
        let step = RecordedStep::deserialize(entry).unwrap();
        let written = serde_json::json!({ "undo": step });
        let mut read: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(stamps) = read["undo"].get_mut("stamps").and_then(|stamps| stamps.as_object_mut()) {
            stamps.entry("side").or_insert("receive".into());
        }
        assert_eq!(written, read);
    }
    assert_eq!(journals.clean().unwrap(), ["old"]);
    assert!(!temporary.path().join("directory").exists() && !temporary.path().join("old.d").exists());
    assert!(journals.names().is_empty());
}

#[test]
fn a_journal_with_a_step_that_nobody_knows_is_kept_and_named() {
    let temporary = tempfile::tempdir().unwrap();
    let journals = open_at(&temporary.path().join("state")).unwrap();
    let dead = ProcessIdentity { start: 1, ..ProcessIdentity::own().unwrap() };
    let made = temporary.path().join("made");
    fs::create_dir(&made).unwrap();
    let made_step = serde_json::json!({"directory": {"path": made}});
    journals.leave_behind("new", dead, &[made_step, serde_json::json!({"later": {"what": 1}})]);
    let said = journals.clean().unwrap_err().to_string();
    assert!(said.contains("the undo journal of 'new' is damaged"), "{said}");
    assert!(made.exists() && journals.names() == ["new"]);
}

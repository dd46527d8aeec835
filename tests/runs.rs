//! `pathlab runs`, `show` and `report` as a user calls them.

use record::run::{PathVariant, SCHEMA};
use record::{Finding, RunRecord, Severity};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use study::store::RunWriter;

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
        begun: "2026-01-02T03:04:05Z".into(),
        plan: "the plan".into(),
        seed: 7,
        ..RunRecord::default()
    };
    let writer = RunWriter::create(&directory.path().join("runs"), record).unwrap();
    let claim = "something is worth knowing".to_owned();
    let finding = Finding {
        severity: Severity::Note,
        test: String::new(),
        claim,
        evidence: "7".into(),
        advice: "do".into(),
    };
    let (record, written) = writer.finish(vec![finding], "2026-01-02T03:05:05Z".into(), vec![]);
    written.unwrap();
    let id = record.id;
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
    assert!(code == Some(0) && listed.contains(&id) && listed.contains("unreadable"), "{listed}");
    let (_, json, _) = text(&pathlab(at, &["runs", "--json"]));
    let list: Value = serde_json::from_str(&json).unwrap();
    let first = &list["runs"][0];
    assert_eq!((first["id"].as_str(), first["broken"].is_null()), (Some(id.as_str()), true));
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

/// A record as version 1 wrote it.
fn old_record(runs: &Path, id: &str, begun: &str) {
    let record = format!(
        r#"{{"schema":"pathlab/run/1","id":"{id}","begun":"{begun}","ended":"{begun}","host":{},"plan":"p",
            "topology":"t","seed":7,"command":[],"tests":[],"findings":[]}}"#,
        serde_json::to_string(&record::HostFacts::default()).unwrap()
    );
    fs::create_dir_all(runs.join(id)).unwrap();
    fs::write(runs.join(id).join("run.json"), record).unwrap();
}

/// A new run with these words about it.
fn new_run(runs: &Path, begun: &str, label: &str, path: &str) -> String {
    let way =
        (path != "bridge").then(|| PathVariant { name: path.into(), group: begun.into(), offload: None });
    let record = RunRecord {
        schema: SCHEMA.into(),
        begun: begun.into(),
        label: Some(label.into()),
        plan_name: "plans/paced.plan".into(),
        topology_name: "bridge".into(),
        way,
        ..RunRecord::default()
    };
    let (record, written) = RunWriter::create(runs, record).unwrap().finish(vec![], begun.into(), vec![]);
    written.unwrap();
    record.id
}

fn ids(at: &Path, args: &[&str]) -> Vec<String> {
    let (code, json, said) = text(&pathlab(at, &[&["runs", "--json"], args].concat()));
    assert_eq!(code, Some(0), "{args:?}: {said}");
    let listed: Value = serde_json::from_str(&json).unwrap();
    let id = |run: &Value| run["id"].as_str().unwrap().to_owned();
    listed["runs"].as_array().unwrap().iter().map(id).collect()
}

#[test]
fn records_of_version_1_are_listed_shown_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    old_record(&at.join("runs"), "20250102T030405Z-aaaaaa", "2025-01-02T03:04:05Z");
    new_run(&at.join("runs"), "2026-01-02T03:04:05Z", "new", "bridge");
    assert_eq!(ids(at, &[]).len(), 2);
    let (code, json, said) = text(&pathlab(at, &["show", "2025", "--json"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(serde_json::from_str::<RunRecord>(&json).unwrap().seed, 7);
    let (code, _, said) = text(&pathlab(at, &["report", "2025", "2026", "-o", "both.html"]));
    assert_eq!(code, Some(0), "{said}");
}

/// The runs of 2025 in a table, and the damaged ones among them; a long cell is folded into several lines.
fn runs_and_damaged(table: &str) -> (usize, usize) {
    (table.lines().filter(|line| line.starts_with("2025")).count(), table.matches("unreadable:").count())
}

/// The index is enough: records that were replaced by rubbish of the same size and age are not looked at.
#[test]
fn a_thousand_runs_are_listed_without_reading_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let (at, runs) = (directory.path(), directory.path().join("runs"));
    let names: Vec<String> =
        (0..1000).map(|i| format!("20250102T03{:02}{:02}Z-{i:06x}", i / 60, i % 60)).collect();
    names.iter().for_each(|id| old_record(&runs, id, "2025-01-02T03:04:05Z"));
    assert_eq!(ids(at, &[]), names);
    for id in &names {
        let file = runs.join(id).join("run.json");
        let meta = fs::metadata(&file).unwrap();
        fs::write(&file, vec![b'x'; meta.len() as usize]).unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(meta.modified().unwrap()).unwrap();
    }
    let (_, listed, _) = text(&pathlab(at, &["runs"]));
    assert_eq!(runs_and_damaged(&listed), (1000, 0), "{listed}");
    // One that looks changed is read, and only that one.
    let changed = runs.join(&names[500]).join("run.json");
    File::options().write(true).open(&changed).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    let (_, listed, _) = text(&pathlab(at, &["runs"]));
    assert_eq!(runs_and_damaged(&listed), (1000, 1), "{listed}");
}

#[test]
fn an_index_that_is_missing_stale_or_damaged_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let (at, runs) = (directory.path(), directory.path().join("runs"));
    let index = runs.join(".index.json");
    let mut known = vec![new_run(&runs, "2026-01-02T03:04:05Z", "first", "bridge")];
    assert!(index.is_file(), "a run that ended is in the index");
    let damages: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&index).unwrap(),
        &|| fs::write(&index, "{").unwrap(),
        &|| fs::write(&index, r#"{"schema":"pathlab/runs-index/99","lines":{"x":7}}"#).unwrap(),
        &|| fs::write(&index, "").unwrap(),
    ];
    for (number, damage) in damages.iter().enumerate() {
        damage();
        known.push(new_run(&runs, &format!("2026-01-0{}T03:04:05Z", number + 3), "next", "bridge"));
        damage();
        assert_eq!(ids(at, &[]), known);
        let whole: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        assert_eq!(whole["lines"].as_object().unwrap().len(), known.len());
    }
    // Somebody else removed a run.
    fs::remove_dir_all(runs.join(known.remove(0))).unwrap();
    assert_eq!(ids(at, &[]), known);
}

#[test]
fn runs_that_end_at_once_are_all_listed() {
    let directory = tempfile::tempdir().unwrap();
    let (at, runs) = (directory.path(), directory.path().join("runs"));
    let mut made: Vec<String> = std::thread::scope(|scope| {
        let writer = |thread: usize| {
            let runs = &runs;
            move || -> Vec<String> {
                (0..10)
                    .map(|i| new_run(runs, &format!("2026-01-02T03:{thread:02}:{i:02}Z"), "x", "bridge"))
                    .collect()
            }
        };
        let writers: Vec<_> = (0..4).map(|thread| scope.spawn(writer(thread))).collect();
        for _ in 0..5 {
            ids(at, &[]);
        }
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    made.sort();
    for _ in 0..2 {
        assert_eq!(ids(at, &[]), made);
    }
}

#[test]
fn runs_are_found_by_plan_label_path_time_and_text() {
    let directory = tempfile::tempdir().unwrap();
    let (at, runs) = (directory.path(), directory.path().join("runs"));
    let before = new_run(&runs, "2026-01-02T03:04:05Z", "before the patch", "bridge");
    let after = new_run(&runs, "2026-01-03T03:04:05Z", "after the patch", "switch:xdp");
    for (args, wanted) in [
        (&["--label", "PATCH"][..], vec![&before, &after]),
        (&["--label", "after"], vec![&after]),
        (&["--path", "switch"], vec![&after]),
        (&["--path", "bridge"], vec![&before]),
        (&["--plan", "paced", "--until", "2026-01-02"], vec![&before]),
        (&["--since", "2026-01-03"], vec![&after]),
        (&["--text", "xdp"], vec![&after]),
        (&["--text", "nothing like it"], vec![]),
    ] {
        assert_eq!(ids(at, args).iter().collect::<Vec<_>>(), wanted, "{args:?}");
    }
    let (_, listed, _) = text(&pathlab(at, &["runs"]));
    for word in ["after the patch", "switch:xdp", "bridge", "plans/paced.plan"] {
        assert!(listed.contains(word), "{word} is missing in\n{listed}");
    }
    let (code, _, said) = text(&pathlab(at, &["runs", "--since", "yesterday"]));
    assert!(code == Some(2) && said.contains("--since"), "{said}");
}

#[test]
fn runs_are_deleted_by_name_all_of_them_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let (at, runs) = (directory.path(), directory.path().join("runs"));
    let days = ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"];
    let all = days.map(|day| new_run(&runs, &format!("{day}T03:04:05Z"), "x", "bridge"));
    let elsewhere = directory.path().join("elsewhere");
    new_run(&elsewhere, "2026-01-02T03:04:05Z", "x", "bridge");
    let mine = runs.join(&all[2]).join("notes.txt");
    fs::write(&mine, "mine").unwrap();
    let header =
        RunRecord { schema: SCHEMA.into(), begun: "2026-01-06T00:00:00Z".into(), ..RunRecord::default() };
    let writer = RunWriter::create(&runs, header).unwrap();
    let (kept, elsewhere) = (ids(at, &[]), elsewhere.display().to_string());
    for (run, why) in [
        ("202601", "begin of 5 runs"),
        ("2027", "no run '2027'"),
        ("", "no run ''"),
        (elsewhere.as_str(), "no run"),
        ("../elsewhere", "no run"),
        ("20260104", "'notes.txt' is not of pathlab"),
        ("latest", "still being written"),
    ] {
        let (code, _, said) = text(&pathlab(at, &["runs", "delete", &all[0], run]));
        assert!(code == Some(2) && said.contains(why), "{run}: {said}");
        assert_eq!(ids(at, &[]), kept, "after {run}");
    }
    drop(writer);
    for run in ["latest", "latest", "20260102", "20260103"] {
        if run == "latest" && ids(at, &[]).last() == Some(&all[3]) {
            fs::remove_file(&mine).unwrap();
        }
        let (code, said, problem) = text(&pathlab(at, &["runs", "delete", run]));
        assert!(code == Some(0) && said.starts_with("deleted: "), "{run}: {problem}");
    }
    assert_eq!(ids(at, &[]), [all[2].clone()]);
    let (_, shown, _) = text(&pathlab(at, &["show", "latest"]));
    assert!(shown.contains(&all[2]), "{shown}");
}

/// Two runs of one second: the one that began later is the latest, whatever the random end of its name.
#[test]
fn the_latest_run_is_the_one_that_began_last() {
    let directory = tempfile::tempdir().unwrap();
    let runs = directory.path().join("runs");
    for (number, order) in [[1, 2, 3], [3, 2, 1], [2, 3, 1], [1, 3, 2]].iter().enumerate() {
        let begun = |part: &usize| format!("2026-01-02T03:04:0{number}.{part}00Z");
        let made: Vec<_> =
            order.iter().map(|part| (*part, new_run(&runs, &begun(part), "x", "bridge"))).collect();
        let last = &made.iter().max().unwrap().1;
        let (_, shown, _) = text(&pathlab(directory.path(), &["show"]));
        assert!(shown.contains(last), "{last} is not in {shown}");
        assert_eq!(ids(directory.path(), &[]).last(), Some(last));
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Bytes from outside: a record cut short, changed in the middle, or never one, is a sentence.
    #[test]
    fn a_record_of_any_bytes_is_read_or_is_a_sentence(
        noise in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
        at in 0usize..10_000,
        keep in 0usize..10_000,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let runs = directory.path().join("runs");
        let id = new_run(&runs, "2026-01-02T03:04:05Z", "x", "bridge");
        let file = runs.join(&id).join("run.json.zst");
        let mut bytes = fs::read(&file).unwrap();
        let at = at % bytes.len();
        bytes.splice(at..(at + noise.len()).min(bytes.len()), noise);
        bytes.truncate(keep);
        fs::write(&file, &bytes).unwrap();
        let listed = study::store::list(&runs).unwrap();
        proptest::prop_assert_eq!(listed.len(), 1);
        match study::store::open(&runs, &id) {
            Ok(_) => proptest::prop_assert!(listed[0].broken.is_none()),
            Err(problem) => {
                proptest::prop_assert_eq!(problem.kind.exit_code(), 2);
                proptest::prop_assert!(!problem.to_string().contains('\n'), "{}", problem);
            }
        }
    }
}

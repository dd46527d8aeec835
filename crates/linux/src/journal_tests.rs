//! Journals: half-written, stale, foreign.

use super::UndoStep as _;
use super::*;
use crate::lab::LabStep;
use crate::undo::open_at;
use proptest::prelude::*;

fn directory() -> (tempfile::TempDir, Journals) {
    let temporary = tempfile::tempdir().unwrap();
    let state = open_at(&temporary.path().join("state")).unwrap();
    (temporary, state)
}

fn entry(step: &LabStep) -> Value {
    serde_json::to_value(step).unwrap()
}

/// The steps of a lab.
fn known(entry: &Value) -> Option<Box<dyn super::UndoStep>> {
    LabStep::deserialize(entry).ok().map(|step| Box::new(step) as _)
}

fn dead() -> ProcessIdentity {
    ProcessIdentity { start: 1, ..ProcessIdentity::own().unwrap() }
}

fn write(state: &Journals, name: &str, lines: &[Line]) {
    let text: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    fs::write(&state.files(name)[0], text).unwrap();
}

fn header(name: &str, owner: ProcessIdentity, persistent: bool) -> Line {
    Line::Owner(Header { schema: SCHEMA.into(), name: name.into(), owner, persistent })
}

#[test]
fn a_name_is_taken_once_and_free_after_the_undo() {
    let (temporary, state) = directory();
    let made = temporary.path().join("made");
    let mut journal = state.begin("x", false).unwrap().unwrap();
    assert!(state.begin("x", false).unwrap().is_none());
    journal.will([LabStep::Directory { path: made.clone() }]).unwrap();
    fs::create_dir(&made).unwrap();
    journal.complete(&"all").unwrap();
    let record = state.read("x").unwrap().unwrap();
    assert_eq!((record.steps.len(), record.complete.is_some(), record.stale()), (1, true, false));
    assert!(state.clean().unwrap().is_empty(), "its owner lives");
    journal.undo().unwrap();
    assert!(!made.exists() && state.names().is_empty());
    assert!(state.begin("x", false).unwrap().is_some());
}

#[test]
fn what_a_dead_owner_left_is_undone_but_not_what_shall_last() {
    let (temporary, state) = directory();
    let made = temporary.path().join("made");
    fs::create_dir(&made).unwrap();
    let step = || Line::Undo(entry(&LabStep::Directory { path: made.clone() }));
    let complete = || Line::Complete(serde_json::json!({}));
    write(&state, "kept", &[header("kept", dead(), true), complete()]);
    write(&state, "unfinished", &[header("unfinished", dead(), true), step()]);
    write(&state, "mine", &[header("mine", ProcessIdentity::own().unwrap(), false)]);
    let earlier = ProcessIdentity { boot: "earlier".into(), ..dead() };
    write(&state, "earlier", &[header("earlier", earlier, true), complete()]);
    fs::write(state.path.join("unborn.journal.new"), "{\"owner\":{\"sch").unwrap();
    assert_eq!(state.clean().unwrap(), ["earlier", "unfinished"]);
    assert_eq!(state.names(), ["kept", "mine"]);
    assert!(!made.exists() && !state.path.join("unborn.journal.new").exists());
}

/// The steps of a lab; at the first look their owner says that all is built, and has ended when it is looked for.
fn completed_meanwhile(entry: &Value) -> Option<Box<dyn super::UndoStep>> {
    let LabStep::Directory { path } = LabStep::deserialize(entry).ok()? else { return None };
    let journal = path.with_extension("");
    if !fs::read_to_string(&journal).unwrap().contains("complete") {
        let line = serde_json::to_string(&Line::Complete(serde_json::json!({}))).unwrap() + "\n";
        let mut file = fs::OpenOptions::new().append(true).open(journal).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
    known(entry)
}

#[test]
fn what_an_owner_writes_last_counts_however_late_it_is_read() {
    let (_temporary, state) = directory();
    let state = Journals { dispatch: completed_meanwhile, ..state };
    let made = state.path.join("late.journal.made");
    fs::create_dir(&made).unwrap();
    let step = Line::Undo(entry(&LabStep::Directory { path: made.clone() }));
    write(&state, "late", &[header("late", dead(), true), step]);
    assert!(state.clean().unwrap().is_empty(), "it shall stay");
    assert!(made.exists());
    assert_eq!(state.names(), ["late"]);
}

/// What is left of a file's text; none when the file goes.
type Damage = fn(&[u8]) -> Option<Vec<u8>>;

#[test]
fn what_is_damaged_is_read_from_the_copy_or_not_said_to_be_undone() {
    let (temporary, state) = directory();
    let made = temporary.path().join("made");
    let step = LabStep::Directory { path: made.clone() };
    let damages: [Damage; 5] = [
        |_| Some(vec![]),
        |_| None,
        |text| Some(text[..9].to_vec()),
        |text| Some([&text[..text.len() - 20], b"\n\n"].concat()),
        |text| Some(text[..=text.iter().position(|byte| *byte == b'\n').unwrap()].to_vec()),
    ];
    let damage = |file: &Path, how: Damage| match how(&fs::read(file).unwrap()) {
        Some(text) => fs::write(file, text).unwrap(),
        None => fs::remove_file(file).unwrap(),
    };
    for (number, how) in damages.into_iter().enumerate() {
        for which in 0..2 {
            let mut journal = state.begin("x", false).unwrap().unwrap();
            journal.will([step.clone()]).unwrap();
            fs::create_dir(&made).unwrap();
            damage(&state.files("x")[which], how);
            assert!(
                state.read("x").unwrap().unwrap().steps.iter().eq([&entry(&step)]),
                "{number} of {which}"
            );
            journal.undo().unwrap();
            assert!(!made.exists() && state.names().is_empty(), "{number} of {which}");
        }
    }
    let mut journal = state.begin("x", false).unwrap().unwrap();
    journal.will([step]).unwrap();
    fs::create_dir(&made).unwrap();
    state.files("x").iter().for_each(|file| damage(file, damages[0]));
    write(&state, "other", &[header("other", dead(), false)]);
    let said = state.clean().unwrap_err().to_string();
    assert!(said.contains("x.journal: the undo journal of 'x' is damaged"), "{said}");
    assert_eq!(state.names(), ["x"], "the other one was undone");
    assert!(state.undo("x").is_err() && made.exists());
}

#[test]
fn only_what_the_step_names_is_touched() {
    let (temporary, _) = directory();
    let foreign = temporary.path().join("foreign");
    fs::write(&foreign, "not ours").unwrap();
    LabStep::Unpin { file: foreign.clone(), netns: 4_026_531_840 }.undo().unwrap();
    assert!(foreign.exists(), "a file with content was never made by us");
    let full = temporary.path().join("full");
    fs::create_dir_all(full.join("inside")).unwrap();
    LabStep::Directory { path: full.clone() }.undo().unwrap();
    assert!(full.exists());
    LabStep::Unpin { file: temporary.path().join("absent"), netns: 1 }.undo().unwrap();
    LabStep::Link { file: foreign, netns: 1, index: 1, name: "lo".into() }.undo().unwrap();
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let open = temporary.path().join("open");
    DirBuilder::new().mode(0o755).create(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let problem = open_at(&open).unwrap_err().to_string();
    assert!(problem.contains("not only this user's"), "{problem}");
    let link = temporary.path().join("link");
    std::os::unix::fs::symlink(temporary.path(), &link).unwrap();
    assert!(open_at(&link).is_err());
}

#[test]
fn who_wrote_a_journal_undoes_it_whatever_became_of_the_files() {
    let losses: [fn(&Journals); 2] = [
        |state| state.files("x").iter().for_each(|file| fs::write(file, "").unwrap()),
        |state| fs::remove_dir_all(&state.path).unwrap(),
    ];
    for loss in losses {
        let (temporary, state) = directory();
        let made = temporary.path().join("made");
        let mut journal = state.begin("x", false).unwrap().unwrap();
        journal.will([LabStep::Directory { path: made.clone() }]).unwrap();
        fs::create_dir(&made).unwrap();
        loss(&state);
        journal.undo().unwrap();
        assert!(!made.exists() && state.names().is_empty());
    }
}

proptest! {
    /// Cut anywhere: every step whose line is whole is known, and the owner as soon as the first line is whole.
    #[test]
    fn a_journal_cut_anywhere_keeps_its_whole_lines(steps in 0usize..6, cut: prop::sample::Index, junk in "\\PC{0,9}") {
        let mut text = serde_json::to_string(&header("x", dead(), false)).unwrap() + "\n";
        let first = text.len();
        for step in 0..steps {
            let line = Line::Undo(entry(&LabStep::Directory { path: format!("/nowhere/{step}").into() }));
            text += &(serde_json::to_string(&line).unwrap() + "\n");
        }
        let cut = cut.index(text.len() + 1);
        let kept = &text[..cut];
        let whole = kept.lines().count() - usize::from(!kept.is_empty() && !kept.ends_with('\n'));
        match Record::parse(&format!("{kept}{junk}"), known) {
            Some(record) => {
                prop_assert!(cut + 1 >= first);
                prop_assert!(record.steps.len() + 1 >= whole && record.steps.len() <= whole);
            }
            None => prop_assert!(cut <= first),
        }
    }

    #[test]
    fn any_text_is_a_journal_or_none(text in "\\PC{0,80}") {
        let _ = Record::parse(&text, known);
    }
}

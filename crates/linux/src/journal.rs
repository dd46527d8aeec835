//! Journals: what would undo a change is on disk before the change.
//!
//! **What.** A [`Journal`] is a file with one JSON line for each step that would undo a change; the line is written
//! and synced before the change is made. Whoever finds a journal whose owner has died undoes its steps, last first, and
//! removes it. What a step does is known by the module that wrote it ([`UndoStep`]); a [`Journals`] brings both together and is handed to each
//! module as an argument, so that no module knows another, nor where journals are.
//!
//! **Why.** After `kill -9` at any moment nothing may be left behind, and nothing that belongs to somebody else may be
//! touched. So nothing is ever found by the look of its name: a step says exactly what it undoes (a namespace by its
//! inode, a process by its start time), every step may run twice, and one that finds something else there leaves it.
//!
//! **A damaged journal.** Every line is written twice, to `NAME.journal` and to `NAME.copy`, and both get their names with their
//! first line in them. So no death of a writer leaves a file without its first line, and none but the last line can be
//! cut: a file that is otherwise was damaged by somebody, and the other one is read. When both are damaged nothing is undone and
//! nothing is said to be gone.
//!
//! **Price.** A build waits for two handfuls of `fdatasync` calls. A journal that cannot be written means that nothing is
//! built.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use record::{Problem, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sys::process::ProcessIdentity;
use crate::sys::{mount, userns};

/// Version of the lines of a journal.
pub const SCHEMA: &str = "pathlab/undo/1";

/// How the names of a journal's two files end.
const ENDINGS: [&str; 2] = [".journal", ".copy"];
/// How the name of a file ends that has no first line yet.
const UNBORN: &str = "new";

/// What undoes one change.
pub trait UndoStep {
    /// Undoes the change; undoing it again does nothing.
    ///
    /// # Errors
    /// A sentence that says what could not be undone, and why.
    fn undo(&self) -> std::result::Result<(), String>;

    /// The same, when these steps stand behind it in the journal.
    ///
    /// # Errors
    /// As [`UndoStep::undo`].
    fn undo_before(&self, _later: &[Value]) -> std::result::Result<(), String> {
        self.undo()
    }

    /// The change is still there after the machine was started anew: a file, not a namespace, a setting or a process.
    fn outlives_boot(&self) -> bool;
}

/// Finds what a step stands for, as it lies in a journal (`{"KIND": {…}}`); none when nobody knows its kind.
pub type Dispatch = fn(&Value) -> Option<Box<dyn UndoStep>>;

/// The first line of a journal: whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was built; also the name of the file.
    pub name: String,
    /// The process that builds or holds it.
    pub owner: ProcessIdentity,
    /// It outlives its owner once it is complete.
    pub persistent: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Owner(Header),
    Undo(Value),
    Complete(Value),
}

/// A journal as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Whose it is.
    pub header: Header,
    /// What would undo it, in the order in which it was written.
    pub steps: Vec<Value>,
    /// What the owner said when everything was built; none before that.
    pub complete: Option<Value>,
}

impl Record {
    /// Reads the text of a journal. A last line that is not complete (the owner died while it wrote) is passed over: its
    /// change was not made yet. None when any other line cannot be read: then somebody damaged the text, or it is of a pathlab that
    /// knows more kinds of steps.
    fn parse(text: &str, dispatch: Dispatch) -> Option<Record> {
        let mut lines = text.split_inclusive('\n');
        let Ok(Line::Owner(header)) = serde_json::from_str(lines.next()?) else { return None };
        let mut record = Record { header, steps: vec![], complete: None };
        for line in lines {
            match serde_json::from_str(line) {
                Ok(Line::Undo(step)) if dispatch(&step).is_some() => record.steps.push(step),
                Ok(Line::Complete(about)) => record.complete = Some(about),
                Ok(Line::Owner(_)) => {}
                Err(_) if !line.ends_with('\n') => {}
                Ok(Line::Undo(_)) | Err(_) => return None,
            }
        }
        Some(record)
    }

    /// How much was written down.
    fn length(&self) -> usize {
        self.steps.len() + usize::from(self.complete.is_some())
    }

    /// True when nobody answers for it any more: it must be undone.
    pub fn stale(&self) -> bool {
        let kept = self.header.persistent && self.complete.is_some() && same_boot(&self.header.owner);
        !kept && !self.header.owner.alive()
    }

    /// Undoes every step, last first, and goes on when one fails.
    fn undo(&self, dispatch: Dispatch) -> Result<()> {
        let steps = self.steps.iter().enumerate().rev();
        let steps = steps.filter_map(|(at, entry)| Some((dispatch(entry)?, &self.steps[at + 1..])));
        if !same_boot(&self.header.owner) {
            // Namespaces, links, settings of interfaces and processes did not survive; only files may have.
            steps.filter(|(step, _)| step.outlives_boot()).for_each(|(step, _)| drop(step.undo()));
            return Ok(());
        }
        let failed: Vec<String> = steps.filter_map(|(step, later)| step.undo_before(later).err()).collect();
        match failed.first() {
            None => Ok(()),
            Some(first) => Err(Problem::host(format!(
                "'{}' could not be taken down whole: {first}",
                self.header.name
            ))
            .help(
                "the journal is kept; try again as the same user: settings with 'pathlab tune undo', labs with 'pathlab lab down'",
            )),
        }
    }
}

impl Record {
    /// It was written since the machine was started.
    pub fn of_this_boot(&self) -> bool {
        same_boot(&self.header.owner)
    }
}

fn same_boot(owner: &ProcessIdentity) -> bool {
    ProcessIdentity::own().is_ok_and(|own| own.boot == owner.boot)
}

/// The way to journals: the directory where they are, and who knows what their steps mean. It is handed to whoever changes the machine.
#[derive(Debug, Clone)]
pub struct Journals {
    path: PathBuf,
    dispatch: Dispatch,
}

impl Journals {
    /// The directory of this user: `/run/pathlab` for root, else `$XDG_RUNTIME_DIR/pathlab`, else `/tmp/pathlab-UID`.
    /// Made if it does not exist, for this user only. `$PATHLAB_STATE` names another one; labs are known only to commands
    /// with the same directory.
    ///
    /// # Errors
    /// A host problem when it cannot be made, or somebody else could write in it.
    pub fn open(dispatch: Dispatch) -> Result<Journals> {
        if let Some(path) = std::env::var_os("PATHLAB_STATE").filter(|path| !path.is_empty()) {
            return Self::at(Path::new(&path), dispatch);
        }
        let path = match (userns::outer_uid(), std::env::var_os("XDG_RUNTIME_DIR")) {
            (0, _) => PathBuf::from("/run/pathlab"),
            (_, Some(runtime)) if Path::new(&runtime).is_dir() => Path::new(&runtime).join("pathlab"),
            (uid, _) => PathBuf::from(format!("/tmp/pathlab-{uid}")),
        };
        Self::at(&path, dispatch)
    }

    /// The directory at this path.
    ///
    /// # Errors
    /// As [`Journals::open`].
    pub fn at(path: &Path, dispatch: Dispatch) -> Result<Journals> {
        let place = path.display().to_string();
        let told =
            |error: io::Error| Problem::host(format!("cannot use the state directory: {error}")).at(&place);
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(told(error)),
            _ => {}
        }
        let meta = fs::symlink_metadata(path).map_err(told)?;
        let own = meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw();
        if !own || meta.mode() & 0o077 != 0 {
            return Err(Problem::host("the state directory is not only this user's")
                .at(place)
                .help("remove it or move it away; pathlab makes it new with mode 0700"));
        }
        Ok(Journals { path: path.into(), dispatch })
    }

    /// Where what belongs to a journal's lab may be: sockets, and what its programs say.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.d"))
    }

    /// A journal's two files.
    pub(crate) fn files(&self, name: &str) -> [PathBuf; 2] {
        ENDINGS.map(|ending| self.path.join(format!("{name}{ending}")))
    }

    /// Waits until no other pathlab makes or removes journals here; ends with the returned file.
    fn lock(&self) -> Result<File> {
        self.turn("lock")
    }

    /// Waits until no other pathlab is at what has that name; ends with the returned file.
    ///
    /// # Errors
    /// A host problem when the file cannot be made or locked.
    pub(crate) fn turn(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let locked = file.and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| Problem::host(format!("cannot lock: {error}")).at(path.display().to_string()))
    }

    /// The journal of that name, if there is one.
    ///
    /// # Errors
    /// A host problem when neither the journal nor its copy can be read.
    pub fn read(&self, name: &str) -> Result<Option<Record>> {
        let files = self.files(name);
        let texts = files.each_ref().map(fs::read);
        if texts.iter().all(|text| text.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)) {
            return Ok(None);
        }
        let unread = texts.iter().flat_map(|text| text.as_ref().err());
        let unread = unread.filter(|e| e.kind() != io::ErrorKind::NotFound).map(io::Error::to_string).next();
        let known = texts
            .iter()
            .flatten()
            .filter_map(|text| Record::parse(&String::from_utf8_lossy(text), self.dispatch));
        match known.max_by_key(Record::length) {
            Some(record) => Ok(Some(record)),
            None => Err(self.unreadable(name, unread)),
        }
    }

    /// A journal that tells nothing any more: what may be of it is named, and left alone.
    fn unreadable(&self, name: &str, error: Option<String>) -> Problem {
        let [journal, copy] = self.files(name).map(|file| file.display().to_string());
        let problem = |what: String| Problem::host(what).at(&journal);
        if let Some(error) = error {
            return problem(format!("cannot read the undo journal of '{name}': {error}"));
        }
        let what =
            format!("the undo journal of '{name}' is damaged, and so is its copy {copy}; nothing was undone");
        let pins = mount::pins_named(&format!("pathlab-{name}-"));
        let others = self.names();
        let others = others.iter().filter(|other| *other != name && other.starts_with(&format!("{name}-")));
        let others: Vec<String> = others.map(|other| format!("pathlab-{other}-")).collect();
        let of_another = |pin: &String| others.iter().any(|other| pin.starts_with(other));
        let pins: Vec<String> = pins.into_iter().filter(|pin| !of_another(pin)).collect();
        problem(what).help(match pins.is_empty() {
            true => "see 'ip netns' and 'ip link' for what it may have left, then remove both files".into(),
            false => format!(
                "the namespaces {} look like its own: remove them with 'ip netns del', then both files",
                pins.join(", ")
            ),
        })
    }

    /// The names of all journals, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let files: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        let name =
            |file: &str| ENDINGS.iter().find_map(|ending| file.strip_suffix(ending)).map(str::to_owned);
        let mut names: Vec<String> = files.iter().filter_map(|file| name(file.to_str()?)).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Undoes everything that nobody answers for any more; returns the names. Does not stop at the first problem.
    ///
    /// # Errors
    /// The first host problem, when all others were undone.
    pub fn clean(&self) -> Result<Vec<String>> {
        self.clean_some("")
    }

    /// The same for the journals whose names begin like this.
    ///
    /// # Errors
    /// As [`Journals::clean`].
    pub fn clean_some(&self, prefix: &str) -> Result<Vec<String>> {
        let _lock = self.lock()?;
        self.remove_unborn();
        let mut undone = vec![];
        let mut problem = None;
        // Changes of one thing lie on each other: the last goes first.
        for name in self.names().into_iter().rev().filter(|name| name.starts_with(prefix)) {
            let done = match self.left(&name) {
                Ok(Some(record)) => record.undo(self.dispatch).and_then(|()| self.forget(&name)),
                Ok(None) => continue,
                Err(problem) => Err(problem),
            };
            match done {
                Ok(()) => undone.push(name),
                Err(this) => problem = problem.or(Some(this)),
            }
        }
        undone.reverse();
        problem.map_or(Ok(undone), Err)
    }

    /// The journal of that name, if nobody answers for it. When its owner is gone it is read once more: what that wrote last, if only
    /// that all is built and stays, may have come after the first reading.
    fn left(&self, name: &str) -> Result<Option<Record>> {
        match self.read(name)? {
            Some(record) if record.stale() => Ok(self.read(name)?.filter(Record::stale)),
            _ => Ok(None),
        }
    }

    /// Removes the files of those who died before their journal had its name: they had changed nothing.
    fn remove_unborn(&self) {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path());
        files
            .filter(|file| file.extension().is_some_and(|ending| ending == UNBORN))
            .for_each(|file| drop(fs::remove_file(file)));
    }

    /// Undoes one journal, whoever owns it.
    ///
    /// # Errors
    /// A host problem when a step fails; the journal is then kept.
    pub fn undo(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        self.read(name)?.map_or(Ok(()), |record| record.undo(self.dispatch))?;
        self.forget(name)
    }

    /// For tests: the journal of a process that is gone.
    #[cfg(test)]
    pub(crate) fn leave_behind(&self, name: &str, owner: ProcessIdentity, steps: &[impl Serialize]) {
        let header = Header { schema: SCHEMA.into(), name: name.into(), owner, persistent: false };
        let lines = std::iter::once(Line::Owner(header))
            .chain(steps.iter().map(|step| Line::Undo(serde_json::to_value(step).unwrap())));
        let text: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
        fs::write(&self.files(name)[0], text).unwrap();
    }

    /// Begins a journal, or none when there is already one of that name. `persistent`: what is built outlives this
    /// process once it is complete.
    ///
    /// # Errors
    /// A host problem when it cannot be written.
    pub fn begin(&self, name: &str, persistent: bool) -> Result<Option<Journal>> {
        let paths = self.files(name);
        let told = |error: io::Error| write_problem(&paths[0], &error);
        let _lock = self.lock()?;
        if paths.iter().any(|path| fs::symlink_metadata(path).is_ok()) {
            return Ok(None);
        }
        let owner = ProcessIdentity::own().map_err(told)?;
        let header = Header { schema: SCHEMA.into(), name: name.into(), owner, persistent };
        let first = text_of(&[Line::Owner(header.clone())]).map_err(told)?;
        let [journal, copy] = paths.each_ref().map(|path| begin_file(path, &first));
        let begun = (|| {
            let files = [journal?, copy?];
            File::open(&self.path)?.sync_all()?;
            Ok(files)
        })();
        match begun {
            Ok(files) => {
                let record = Record { header, steps: vec![], complete: None };
                Ok(Some(Journal { journals: self.clone(), files, record }))
            }
            Err(error) => {
                paths.iter().for_each(|path| drop(fs::remove_file(path)));
                Err(told(error))
            }
        }
    }

    fn forget(&self, name: &str) -> Result<()> {
        let remove = |file: PathBuf| match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Problem::host(format!("cannot remove: {error}")).at(file.display().to_string()))
            }
            _ => Ok(()),
        };
        self.files(name).into_iter().try_for_each(remove)
    }
}

/// A journal that its owner writes.
#[derive(Debug)]
pub struct Journal {
    journals: Journals,
    files: [File; 2],
    /// What is written down so far.
    record: Record,
}

impl Journal {
    /// What it would undo outlives this process.
    pub fn is_persistent(&self) -> bool {
        self.record.header.persistent
    }

    /// Puts on disk what would undo the changes that come next.
    ///
    /// # Errors
    /// A host problem when it cannot be written; then do not make the changes.
    pub fn will<S: UndoStep + Serialize>(&mut self, steps: impl IntoIterator<Item = S>) -> Result<()> {
        let steps: serde_json::Result<Vec<Value>> = steps.into_iter().map(serde_json::to_value).collect();
        let steps = steps.map_err(|error| Problem::host(error.to_string()))?;
        let lines: Vec<Line> = steps.iter().cloned().map(Line::Undo).collect();
        self.record.steps.extend(steps);
        if lines.is_empty() { Ok(()) } else { self.write(&lines) }
    }

    /// Says that everything is built, and what it is.
    ///
    /// # Errors
    /// A host problem when it cannot be written.
    pub fn complete(&mut self, about: &impl Serialize) -> Result<()> {
        let about = serde_json::to_value(about).map_err(|error| Problem::host(error.to_string()))?;
        self.write(&[Line::Complete(about)])
    }

    /// Undoes everything and removes the journal. Its writer still knows every step, whatever became of the files.
    ///
    /// # Errors
    /// A host problem when a step fails; the journal is then kept.
    pub fn undo(self) -> Result<()> {
        let Journal { journals, record, .. } = self;
        // Nobody else undoes it while this process lives: the lock keeps out who would take its name, if it can be had.
        let _lock = journals.lock();
        record.undo(journals.dispatch)?;
        journals.forget(&record.header.name)
    }

    /// Removes the journal without undoing anything: no change was made.
    ///
    /// # Errors
    /// A host problem when it cannot be removed.
    pub fn forget(self) -> Result<()> {
        let _lock = self.journals.lock()?;
        self.journals.forget(&self.record.header.name)
    }

    fn write(&mut self, lines: &[Line]) -> Result<()> {
        let told =
            |error: io::Error| write_problem(&self.journals.files(&self.record.header.name)[0], &error);
        let text = text_of(lines).map_err(told)?;
        let write = |mut file: &File| file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        self.files.iter().try_for_each(write).map_err(told)
    }
}

/// The lines as one text for one write, so that a line is never mixed with another.
fn text_of(lines: &[Line]) -> io::Result<String> {
    lines.iter().map(|line| Ok(serde_json::to_string(line)? + "\n")).collect()
}

/// Makes a file that has its first line from the moment it has its name.
fn begin_file(path: &Path, first: &str) -> io::Result<File> {
    let mut unborn = path.as_os_str().to_owned();
    unborn.push(".");
    unborn.push(UNBORN);
    let _ = fs::remove_file(&unborn);
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&unborn)?;
    file.write_all(first.as_bytes())?;
    file.sync_data()?;
    fs::rename(&unborn, path)?;
    Ok(file)
}

fn write_problem(path: &Path, error: &io::Error) -> Problem {
    Problem::host(format!("cannot write the undo journal: {error}"))
        .at(path.display().to_string())
        .help("nothing is built without it; make room, or name another directory with PATHLAB_STATE")
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;

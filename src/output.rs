//! Where words go: tables and sentences for people, JSON for tools.
//!
//! Results go to standard output; progress, warnings and problems go to standard error. With `--json` standard output
//! holds exactly one JSON document (or one per line where a command says so) and nothing else.

pub use experiment::Notices;
use ratatui::crossterm::terminal::window_size;
use record::Problem;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::Path;
use study::table::Table;
use study::text::{printable, printable_in_colour};

/// A JSON object of these fields, in this order: `object! { schema: "pathlab/man/1", folder, pages }`.
macro_rules! object {
    ($($name:ident $(: $value:expr)?),* $(,)?) => {{
        #[allow(non_camel_case_types)] // each field's type is a parameter of the field's own name
        let object = {
            #[derive(serde::Serialize)]
            struct Object<$($name),*> { $($name: $name),* }
            Object { $($name $(: $value)?),* }
        };
        object
    }};
}
pub(crate) use object;

/// A JSON object of which each has only some of the fields, in their order.
#[derive(Default)]
pub struct Fields(pub Vec<(&'static str, Value)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// How results and messages are written.
pub struct Output {
    /// JSON instead of tables.
    pub json: bool,
    /// Colour on standard error and standard output: on a terminal only, never with `NO_COLOR`.
    pub colour: bool,
    /// A progress bar may be drawn on standard error.
    pub progress: bool,
    /// Results go to standard error, too.
    pub stderr: bool,
}

impl Output {
    /// Looks at the terminal and the environment (`NO_COLOR`, <https://no-color.org>).
    pub fn new(json: bool) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Output {
            json,
            colour: std::io::stdout().is_terminal() && !no_colour && !dumb,
            progress: std::io::stderr().is_terminal() && !dumb && !json,
            stderr: false,
        }
    }

    /// One sentence on standard error, whatever the output form.
    pub fn problem(&self, problem: &Problem) {
        tell(&format!("pathlab: {problem}"));
    }

    /// Prints a result: `value` as JSON, or the text that `people` makes of it.
    pub fn result<T: Serialize>(&self, value: &T, people: impl FnOnce(&T) -> String) -> record::Result<()> {
        let text = self.one(value, serde_json::to_string_pretty, people)?;
        let is_whole = text.is_empty() || text.ends_with('\n');
        self.text(&if is_whole { text } else { text + "\n" }).map(drop)
    }

    /// One of several results: as one line of JSON, or the line that `people` makes of it; false when the reader has gone away
    /// (`pathlab flow monitor … | head`).
    pub fn line<T: Serialize>(&self, value: &T, people: impl FnOnce(&T) -> String) -> record::Result<bool> {
        self.text(&(self.one(value, serde_json::to_string, people)? + "\n"))
    }

    /// A value as JSON, or in words. In a build with debug assertions no JSON leaves that `docs/json.md` does not have.
    fn one<T: Serialize>(
        &self,
        value: &T,
        write: impl FnOnce(&T) -> serde_json::Result<String>,
        people: impl FnOnce(&T) -> String,
    ) -> record::Result<String> {
        let no_json = |error| Problem::host(format!("cannot write JSON: {error}"));
        if !self.json {
            return Ok(safe(&people(value), self.colour));
        }
        if cfg!(debug_assertions) {
            let fault = crate::documents::fault(&serde_json::to_value(value).map_err(no_json)?);
            assert!(fault.is_none(), "this JSON is not as documented: {}", fault.unwrap_or_default());
        }
        write(value).map_err(no_json)
    }

    /// Writes text to standard output; false when the pipe is closed (`pathlab runs | head`), which is not an error.
    pub fn text(&self, text: &str) -> record::Result<bool> {
        if self.stderr {
            // That it is closed is no reason to end what is reported.
            let _ = std::io::stderr().write_all(text.as_bytes());
            return Ok(true);
        }
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(Problem::host(format!("cannot write to standard output: {e}"))),
        }
    }
}

/// Names of interfaces, processes and files are chosen by others, who may put anything into them that a terminal obeys.
fn safe(text: &str, colour: bool) -> String {
    if colour { printable_in_colour(text) } else { printable(text) }
}

/// Fewer columns make no sense.
const LEAST_COLUMNS: usize = 40;

/// The columns of text that is set to a width: what `COLUMNS` says, else those of the terminal, else as many as a file may have.
pub fn columns(of_file: usize) -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let size = std::io::stdout().is_terminal().then(window_size)?.ok()?;
        Some(usize::from(size.columns)).filter(|columns| *columns > 0)
    };
    told.or_else(of_terminal).map_or(of_file, |columns| columns.max(LEAST_COLUMNS))
}

/// A line on standard error. That nobody can read it (a log on a full disk, a terminal that was closed) is no reason to
/// end what goes on, and there is nowhere to say so.
pub fn tell(line: &str) {
    let _ = std::io::stderr().write_all(format!("{}\n", printable(line)).as_bytes());
}

impl Notices for Output {
    fn note(&self, line: &str) {
        tell(&format!("pathlab: {line}"));
    }

    fn warn(&self, problem: &Problem) {
        tell(&format!("pathlab: warning: {problem}"));
    }

    fn part(&self, line: &str, _done_ms: u64, _total_ms: u64) {
        if self.progress {
            self.note(line);
        }
    }
}

/// A table whose first columns hold words, the others numbers.
pub fn table(words: usize, headers: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { headers: headers.iter().map(|header| (*header).to_owned()).collect(), rows, words }
}

/// What there is to say of a count; nothing of none.
pub fn when_any<N: Copy + PartialEq + Default>(number: N, words: impl FnOnce(N) -> String) -> String {
    if number == N::default() { String::new() } else { words(number) }
}

/// What became of the changes beside those that a switch refused; nothing where there are none.
pub fn of_others(others: usize, made: usize) -> String {
    match (others, made) {
        (0, _) => String::new(),
        (_, 0) => "; nothing was changed, because all go together".into(),
        (_, 1) => "; the other one was made".into(),
        (_, made) => format!("; the other {} were made", record::unit::count(made as u64)),
    }
}

/// Refuses to replace a file that is not a page of pathlab.
pub fn refuse_foreign_page(file: &Path) -> record::Result<()> {
    refuse_foreign(file, study::report::MARK, "a report")
}

/// Refuses a file that exists and does not begin as what is to be written. No other than a regular file is opened: a pipe would not answer
/// before somebody writes to it.
pub fn refuse_foreign(file: &Path, mark: &str, what: &str) -> record::Result<()> {
    let begins = |about: fs::Metadata| {
        let mut begin = vec![];
        if about.is_file() {
            fs::File::open(file)?.take(mark.len() as u64).read_to_end(&mut begin)?;
        }
        Ok(begin == mark.as_bytes())
    };
    match fs::metadata(file).and_then(begins) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Ok(true) => Ok(()),
        Ok(false) => Err(Problem::input(format!("this file exists and is not {what} of pathlab"))
            .at(file.display().to_string())
            .help("choose another name with -o")),
        Err(e) => Err(Problem::input(format!("cannot look at it: {e}")).at(file.display().to_string())),
    }
}

/// Writes the file whole or not at all: one that was there stays when there is no room. What is no file, such as /dev/stdout, is
/// written to as it is.
pub fn write_whole(file: &Path, text: &str) -> record::Result<()> {
    let failed = |e| Problem::host(format!("cannot write it: {e}")).at(file.display().to_string());
    if fs::metadata(file).is_ok_and(|about| !about.is_file()) {
        return fs::write(file, text).map_err(failed);
    }
    let name = file.file_name().ok_or_else(|| Problem::input("-o needs the name of a file"))?;
    let new = file.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.map_err(|e| {
        let _ = fs::remove_file(&new); // it may never have been made
        failed(e)
    })
}

//! The house rules that a machine can check: which crate may use which, where `unsafe` may stand, how long a file and
//! a function may be, and that no clock or socket hides in a pure crate.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, its tests left out.
const MAX_FILE_LINES: usize = 800;
/// Longest function.
const MAX_FUNCTION_LINES: usize = 70;

/// The arrows: a crate and the crates of this project that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("record", &[]),
    ("flow", &["wire"]),
    ("study", &["record"]),
    ("linux", &["wire", "record"]),
    ("load", &["linux", "wire", "record"]),
    ("switch", &["flow", "linux", "wire", "record"]),
];

/// Crates without I/O and clocks, and what gives such a thing away.
const PURE: &[&str] = &["wire", "record", "flow"];
const IMPURE_WORDS: &[&str] = &[
    "std::fs",
    "UdpSocket",
    "net::TcpStream",
    "net::TcpListener",
    "std::time",
    "std::process",
    "std::thread",
    "libc::",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every source file of the project with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = vec![];
    rust_files(&root().join("src"), &mut found);
    for entry in fs::read_dir(root().join("crates")).unwrap().flatten() {
        rust_files(&entry.path().join("src"), &mut found);
    }
    assert!(found.len() > 20, "the sources were not found");
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(&path).unwrap());
    let all: Vec<(PathBuf, String)> = found.into_iter().map(read).collect();
    let tests: Vec<PathBuf> = all.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    all.into_iter().filter(|(path, _)| !tests.contains(path)).collect()
}

/// The files of modules that a file declares for tests only.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = match path.file_name().and_then(|name| name.to_str()) {
        Some("mod.rs" | "lib.rs" | "main.rs") => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = vec![];
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[cfg(test)]") {
        let mut rest = lines[index + 1..].iter();
        let Some(mut line) = rest.next() else { continue };
        if let Some(named) = line.strip_prefix("#[path = \"").and_then(|line| line.strip_suffix("\"]")) {
            found.push(path.parent().unwrap().join(named));
            line = rest.next().unwrap_or(line);
        }
        if let Some(name) = line.strip_suffix(';').and_then(|line| line.split("mod ").nth(1)) {
            found.push(folder.join(format!("{name}.rs")));
        }
    }
    found
}

/// The text before the first `#[cfg(test)]`: what is not tests.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]").next().unwrap_or(text)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn arrows_point_one_way() {
    let mut broken = vec![];
    for (name, allowed) in ARROWS {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for (other, _) in ARROWS {
            let uses = dependencies.lines().any(|line| line.split(['.', ' ', '=']).next() == Some(other));
            if uses && !allowed.contains(other) {
                broken.push(format!("{name} uses {other}"));
            }
        }
    }
    let folders = fs::read_dir(root().join("crates")).unwrap().count();
    assert_eq!(folders, ARROWS.len(), "a crate is missing in the table of arrows");
    report("a crate uses another against the arrows", &broken);
}

#[test]
fn unsafe_stands_only_on_the_floor() {
    let mut broken = vec![];
    for (path, text) in sources() {
        let floors = ["crates/linux/src/sys", "crates/linux/src/port"];
        let on_the_floor = floors.iter().any(|floor| path.starts_with(root().join(floor)));
        let said = text
            .lines()
            .filter(|line| !is_comment(line))
            .any(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe"));
        if said && !on_the_floor {
            broken.push(path.display().to_string());
        }
    }
    report("unsafe outside crates/linux/src/sys and crates/linux/src/port", &broken);
}

#[test]
fn pure_crates_have_no_clock_and_no_socket() {
    let mut broken = vec![];
    for (path, text) in sources() {
        let pure = PURE.iter().any(|name| path.starts_with(root().join("crates").join(name)));
        for (number, line) in without_tests(&text).lines().enumerate() {
            if pure && !is_comment(line) {
                let words = IMPURE_WORDS.iter().filter(|word| line.contains(**word));
                broken.extend(words.map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
            }
        }
    }
    report("a pure crate touches the machine", &broken);
}

#[test]
fn files_are_short() {
    let long = |(path, text): &(PathBuf, String)| {
        let lines = without_tests(text).lines().count();
        (lines > MAX_FILE_LINES).then(|| format!("{}: {lines} lines", path.display()))
    };
    report(
        "a file is longer than 800 lines without its tests",
        &sources().iter().filter_map(long).collect::<Vec<_>>(),
    );
}

/// Length of every function: from its `fn` line to the closing brace at the same indentation (rustfmt's shape).
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = vec![];
    for (begin, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let words = ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe ", "extern \"C\" "];
        let bare = words.iter().fold(code, |code, word| code.strip_prefix(word).unwrap_or(code));
        let is_function = bare.starts_with("fn ");
        if !is_function || code.ends_with(';') || code.ends_with('}') {
            continue;
        }
        let indent = &line[..line.len() - code.len()];
        let close = format!("{indent}}}");
        if let Some(length) = lines[begin..].iter().position(|line| *line == close) {
            found.push((begin + 1, length + 1));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut broken = vec![];
    for (path, text) in sources() {
        for (line, length) in functions(without_tests(&text)) {
            if length > MAX_FUNCTION_LINES {
                broken.push(format!("{}:{line}: {length} lines", path.display()));
            }
        }
    }
    report("a function is longer than 70 lines", &broken);
}

#[test]
fn the_length_of_a_function_is_measured() {
    let text = "fn one() {\n    1\n}\n\nimpl A {\n    pub fn two(\n        a: u8,\n    ) -> u8 {\n        a\n    }\n}\n";
    assert_eq!(functions(text), vec![(1, 3), (6, 5)]);
}

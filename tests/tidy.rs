//! The house rules that a machine can check: which crate may use which, where `unsafe` may stand, how long a file and
//! a function may be, and that no clock or socket hides in a pure crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, its tests left out.
const MAX_FILE_LINES: usize = 800;
/// Longest function.
const MAX_FUNCTION_LINES: usize = 70;
/// Lines of code that half of the functions of a crate, and 9 of 10, have at most.
const MEDIAN_FUNCTION_LINES: usize = 8;
const NINTH_FUNCTION_LINES: usize = 25;

/// The arrows: a crate and the crates of this project that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("record", &[]),
    ("flow", &["record", "wire"]),
    ("bpf", &[]),
    ("jit", &["flow", "wire", "bpf", "record"]),
    ("study", &["record"]),
    ("linux", &["wire", "record", "bpf"]),
    ("load", &["linux", "wire", "record"]),
    ("switch", &["flow", "jit", "linux", "wire", "record"]),
    ("experiment", &["study", "load", "switch", "linux", "jit", "flow", "wire", "record"]),
];

/// The arrows between the folders inside a crate, or inside a folder of `src`: a folder or file, and those beside it that it
/// may use. `lib.rs` and `main.rs` may use all; what `mod.rs` has itself is for all.
type FolderArrows = &'static [(&'static str, &'static [(&'static str, &'static [&'static str])])];
const FOLDER_ARROWS: FolderArrows = &[
    (
        "linux",
        &[
            ("sys", &[]),
            ("filter", &["sys"]),
            ("namespace", &["sys"]),
            ("journal", &["sys"]),
            ("netlink", &["sys"]),
            ("observe", &["namespace", "netlink", "sys"]),
            ("port", &["netlink", "observe", "sys"]),
            ("tune", &["journal", "namespace", "netlink", "observe", "sys"]),
            ("lab", &["journal", "netlink", "sys"]),
            ("undo", &["journal", "lab", "tune"]),
            ("vm", &["lab", "netlink", "port", "sys"]),
        ],
    ),
    (
        "load",
        &[
            ("protocol", &[]),
            ("traffic", &["protocol"]),
            ("send", &["traffic"]),
            // The frames of a test are those of a template.
            ("kind", &["protocol", "traffic", "send"]),
            ("conversation", &["protocol", "traffic", "kind"]),
            ("capture", &["traffic"]),
            ("null", &["traffic"]),
        ],
    ),
    (
        "jit",
        &[
            ("frame", &[]),
            ("hash", &[]),
            ("ir", &[]),
            ("pages", &[]),
            ("tally", &[]),
            ("key", &["ir"]),
            ("lower", &["ir", "tally"]),
            ("path", &["frame", "tally"]),
            ("verify", &["ir"]),
            ("eval", &["ir", "path"]),
            ("needs", &["ir", "key"]),
            ("pass", &["ir", "key", "lower", "verify"]),
            ("prune", &["hash", "key", "pages"]),
            ("record", &["ir", "pages", "path"]),
            ("context", &["frame", "key", "path", "prune"]),
            ("table", &["hash", "key", "pages", "prune"]),
            ("emit", &["context", "hash", "ir", "key", "needs", "pages", "path", "prune", "record", "table"]),
            ("plan", &["hash", "key", "table"]),
            ("exec", &["context", "emit", "frame", "key"]),
            (
                "program",
                &["context", "eval", "exec", "frame", "ir", "key", "pages", "path", "table", "tally"],
            ),
            (
                "compile",
                &[
                    "emit", "exec", "ir", "key", "lower", "needs", "pass", "path", "plan", "program",
                    "record", "table", "tally", "verify",
                ],
            ),
            ("explain", &["compile", "emit", "plan", "record", "tally"]),
            (
                "kernel",
                &[
                    "compile", "hash", "ir", "key", "lower", "needs", "pages", "pass", "plan", "record",
                    "table", "tally",
                ],
            ),
        ],
    ),
    (
        "switch",
        &[
            ("backlog", &[]),
            ("flow_hash", &[]),
            ("notice", &[]),
            ("packet_ins", &[]),
            ("queue_config", &[]),
            ("scenario", &[]),
            ("transport", &[]),
            ("tls", &["transport"]),
            ("shared", &[]),
            ("outputs", &[]),
            ("output_port", &["shared"]),
            ("engine", &["outputs", "shared"]),
            ("shadow", &[]),
            ("kernel", &["shadow", "shared"]),
            ("programs", &["engine", "kernel", "outputs", "shadow", "shared"]),
            ("native", &["outputs", "programs"]),
            ("engines", &["kernel", "native", "programs"]),
            ("datapath", &["engine", "kernel", "output_port", "outputs", "programs", "shadow", "shared"]),
            ("ports", &["datapath", "notice"]),
            ("config", &["datapath", "engines", "packet_ins", "programs", "queue_config", "shadow", "tls"]),
            ("queues", &["config", "datapath", "queue_config"]),
            ("stream", &["config", "tls", "transport"]),
            ("client", &["config", "stream", "tls"]),
            ("connection", &["backlog", "stream"]),
            ("listeners", &["config", "notice", "stream", "tls"]),
            ("relay", &["client", "config", "notice", "stream", "tls"]),
            (
                "control",
                &[
                    "config",
                    "connection",
                    "datapath",
                    "listeners",
                    "flow_hash",
                    "notice",
                    "packet_ins",
                    "ports",
                    "programs",
                    "queues",
                    "stream",
                    "tls",
                ],
            ),
        ],
    ),
    (
        "src",
        &[
            ("documents", &[]),
            ("output", &["documents"]),
            ("log", &["output"]),
            ("progress", &["output"]),
            ("cmd", &["log", "output", "progress"]),
            ("cli", &["cmd", "output"]),
            ("shim", &["cli", "cmd", "log", "output"]),
        ],
    ),
    (
        "src/cmd",
        &[
            ("agent", &[]),
            ("bench", &[]),
            ("completions", &[]),
            ("new_file", &[]),
            ("between", &[]),
            ("case", &["between", "new_file"]),
            ("half", &["new_file"]),
            ("lab", &[]),
            ("namespaces", &[]),
            ("null", &[]),
            ("runs", &[]),
            ("shims", &[]),
            ("show", &[]),
            ("stamps", &[]),
            ("timing", &[]),
            ("tls", &[]),
            ("undo", &[]),
            ("vm", &[]),
            ("capture", &["half", "stamps"]),
            ("flow", &["tls"]),
            ("drops", &["namespaces"]),
            ("tcp", &["namespaces"]),
            ("follow", &["namespaces"]),
            ("llstat", &["namespaces"]),
            ("facts", &["namespaces"]),
            ("doctor", &["facts"]),
            ("report", &["doctor", "facts"]),
            ("watch", &["namespaces"]),
            ("explain", &[]),
            ("export", &["namespaces"]),
            ("join", &["half", "timing"]),
            ("send", &["half", "stamps", "timing"]),
            ("serve", &["namespaces"]),
            ("switch", &["tls"]),
            ("test", &["namespaces", "timing"]),
            ("controller", &["flow", "tls"]),
            ("run", &["between", "test"]),
            ("compare", &["between", "test"]),
            ("prove", &["between", "compare", "run"]),
            ("tune", &["doctor", "namespaces", "prove"]),
        ],
    ),
    (
        "experiment",
        &[
            ("notices", &[]),
            ("process", &[]),
            ("doctor", &[]),
            ("hosts", &["doctor"]),
            ("change", &["hosts"]),
            ("plan", &["change"]),
            ("programs", &["process"]),
            ("null", &["notices"]),
            ("processes", &[]),
            ("machines", &["plan", "process"]),
            ("unconnected", &[]),
            ("drops", &[]),
            ("watch", &["drops", "processes", "programs"]),
            ("follow", &[]),
            ("tcp", &[]),
            ("measure", &["plan", "process", "programs", "unconnected", "watch"]),
            ("testbed", &["change", "doctor", "hosts", "measure", "notices", "plan", "watch"]),
            ("session", &["notices", "plan", "process", "testbed", "watch"]),
            ("course", &["programs"]),
            ("side", &["course", "plan"]),
            ("trial", &["change", "notices", "plan", "process", "session"]),
            ("prove", &["change", "notices", "plan", "session", "testbed", "trial"]),
            (
                "case",
                &["change", "hosts", "notices", "plan", "process", "programs", "session", "testbed", "trial"],
            ),
            (
                "bench",
                &[
                    "change", "measure", "notices", "plan", "process", "programs", "prove", "session",
                    "trial", "watch",
                ],
            ),
        ],
    ),
    (
        "study",
        &[
            ("stats", &[]),
            ("tcp", &[]),
            ("table", &["stats"]),
            ("time", &["table"]),
            ("way", &[]),
            ("verdict", &["time", "way"]),
            ("connection", &["tcp", "verdict"]),
            ("ledger", &["way"]),
            ("doctor", &["stats", "table"]),
            ("llstat", &["table"]),
            ("watch", &["llstat", "table"]),
            ("validity", &["table"]),
            ("hosts", &["validity", "way"]),
            ("ways", &["stats", "table", "validity"]),
            ("export", &["watch"]),
            ("explain", &["export", "table"]),
            ("switches", &["ledger"]),
            ("findings", &["hosts", "switches", "table", "validity"]),
            ("criteria", &["findings", "table", "validity"]),
            ("capturing", &["ledger"]),
            ("sending", &["ledger"]),
            ("layers", &["findings", "table"]),
            ("test", &["criteria", "layers", "ledger", "tcp", "time", "validity", "verdict", "way"]),
            ("dead_frames", &["ledger", "table"]),
            (
                "text",
                &[
                    "criteria",
                    "dead_frames",
                    "doctor",
                    "findings",
                    "layers",
                    "table",
                    "time",
                    "validity",
                    "way",
                ],
            ),
            ("trial", &["stats", "table", "text"]),
            ("case", &["table", "text", "trial"]),
            ("join", &["criteria", "findings", "ledger", "test", "text"]),
            ("store", &["table", "ways"]),
            ("listing", &["store", "table", "text"]),
            ("bench", &["stats", "store", "table"]),
            (
                "report",
                &[
                    "bench",
                    "criteria",
                    "dead_frames",
                    "doctor",
                    "findings",
                    "layers",
                    "stats",
                    "table",
                    "tcp",
                    "time",
                    "validity",
                    "way",
                    "ways",
                ],
            ),
        ],
    ),
];

/// Folders whose modules do not see each other.
const STRANGERS: &[(&str, &str)] = &[("load", "kind")];

/// Crates, and folders of crates, without I/O and clocks, and what gives such a thing away.
const PURE: &[&str] = &["wire", "record", "bpf", "flow", "jit", "study", "load/src/protocol"];
/// What may touch files all the same, and nothing else of the machine: records are kept and found in directories.
const STORES: &[&str] =
    &["crates/study/src/store.rs", "crates/study/src/store/", "crates/study/src/bench/store.rs"];
const IMPURE_WORDS: &[&str] = &[
    "std::fs",
    "UdpSocket",
    "net::TcpStream",
    "net::TcpListener",
    "std::time",
    "std::process",
    "std::thread",
    "libc::",
    "linux::",
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
    // The modules of a test module are in the folder of its name.
    let is_test =
        |path: &Path| tests.iter().any(|test| path == test || path.starts_with(test.with_extension("")));
    all.into_iter().filter(|(path, _)| !is_test(path)).collect()
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

/// Which lines belong to test modules.
fn test_lines(text: &str) -> Vec<bool> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = vec![false; lines.len()];
    for (begin, line) in lines.iter().enumerate().filter(|(_, line)| line.trim_start() == "#[cfg(test)]") {
        let indent = &line[..line.len() - line.trim_start().len()];
        let opens = lines[begin..].iter().position(|line| !line.trim_start().starts_with("#[")).unwrap_or(0);
        let head = lines[begin + opens].trim_start();
        let is_module = head.split(' ').any(|word| word == "mod");
        let end = match head.ends_with(';') {
            true => Some(opens),
            false => lines[begin..].iter().position(|line| *line == format!("{indent}}}")),
        };
        if is_module {
            found[begin..=begin + end.expect("rustfmt's shape")].fill(true);
        }
    }
    found
}

/// The text with empty lines for its test modules, so that numbers of lines stay.
fn without_tests(text: &str) -> String {
    let kept = text.lines().zip(test_lines(text)).map(|(line, is_test)| if is_test { "" } else { line });
    kept.collect::<Vec<_>>().join("\n")
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

/// The names that a path begins with: `a::{b, c::d}` is `a b` and `a c d`.
fn names(path: &str) -> Vec<Vec<String>> {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    let below = match rest.strip_prefix("::") {
        _ if name.is_empty() => vec![],
        Some(inside) if inside.starts_with('{') => {
            members(&inside[1..]).into_iter().flat_map(names).collect()
        }
        Some(more) => names(more),
        None => vec![],
    };
    let with_name = |rest: Vec<String>| [vec![name.to_owned()], rest].concat();
    if below.is_empty() { vec![with_name(vec![])] } else { below.into_iter().map(with_name).collect() }
}

/// The members of a group whose brace was opened before `text`, to its closing brace.
fn members(text: &str) -> Vec<&str> {
    let (mut found, mut depth, mut begin) = (vec![], 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(text[begin..at].trim());
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// What a file of a crate uses of the same crate, wherever it says so: the line and the path from the crate's root. `module`
/// is the file's own path. A `super::` on an indented line stands in a module inside the file.
fn own_uses(module: &[String], text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = vec![];
    let mut begin = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let code = if is_comment(line) { "" } else { line };
        for (at, _) in code.match_indices("crate::").filter(|(at, _)| !code[..*at].ends_with('$')) {
            let all = group_at(&text[begin + at + "crate::".len()..]);
            found.extend(all.into_iter().map(|path| (number + 1, path)));
        }
        let mut from = module.to_vec();
        if line.starts_with(' ') {
            from.push("inside".into());
        }
        let (upward, used) = (code.matches("super::").count(), code.rfind("super::"));
        if let Some(at) = used.filter(|_| code.trim_start().contains("use super::")) {
            from.truncate(from.len().saturating_sub(upward));
            let all = group_at(&text[begin + at + "super::".len()..]);
            found.extend(all.into_iter().map(|path| (number + 1, [from.clone(), path].concat())));
        }
        begin += line.len();
    }
    found
}

/// The paths that a path or a group of paths in braces names.
fn group_at(text: &str) -> Vec<Vec<String>> {
    match text.strip_prefix('{') {
        Some(inside) => members(inside).into_iter().flat_map(names).collect(),
        None => names(text),
    }
}

/// The path of a file's module in its crate: `kind/frames/mod.rs` is `kind frames`.
fn module_of(folder: &Path, path: &Path) -> Vec<String> {
    let inside = path.strip_prefix(folder).unwrap().with_extension("");
    let all = inside.iter().map(|part| part.to_string_lossy().into_owned());
    all.filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main")).collect()
}

/// The folder of sources with a name in [`FOLDER_ARROWS`], and the path of modules that leads from there to the rows.
fn arrows_at(name: &str) -> (PathBuf, Vec<String>) {
    match name.strip_prefix("src") {
        None => (root().join("crates").join(name).join("src"), vec![]),
        Some(rest) => {
            let inside = rest.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
            (root().join("src"), inside.collect())
        }
    }
}

#[test]
fn arrows_inside_a_crate_point_one_way() {
    let (all, mut broken, mut seen) = (sources(), vec![], 0);
    for (name, arrows) in FOLDER_ARROWS {
        let (folder, inside) = arrows_at(name);
        let files = all.iter().filter(|(path, _)| path.starts_with(&folder));
        let files: Vec<_> = files.map(|(path, text)| (module_of(&folder, path), path, text)).collect();
        let modules: Vec<&Vec<String>> = files.iter().map(|(module, ..)| module).collect();
        for (module, path, text) in &files {
            let Some(user) = module.strip_prefix(&inside[..]).and_then(<[_]>::first) else { continue };
            let Some((_, allowed)) = arrows.iter().find(|(folder, _)| folder == user) else {
                broken.push(format!("{}: {user} has no row", path.display()));
                continue;
            };
            for (line, used) in own_uses(module, &without_tests(text)) {
                // What is outside has an arrow of its own.
                let Some(below) = used.strip_prefix(&inside[..]) else { continue };
                seen += 1;
                let strangers = STRANGERS.contains(&(name, user)) && module.len() > 1;
                let own = below.first() == Some(user);
                let is_folder = |name: &str| arrows.iter().any(|(folder, _)| *folder == name);
                let right = match below.first() {
                    Some(first) if !own && inside.is_empty() => allowed.contains(&first.as_str()),
                    Some(first) if !own => allowed.contains(&first.as_str()) || !is_folder(first),
                    _ if strangers => {
                        used.get(1) == Some(&module[1])
                            || !modules.contains(&&used[..used.len().min(2)].to_vec())
                    }
                    _ => true,
                };
                if !right {
                    broken.push(format!(
                        "{}:{line}: {} uses {}",
                        path.display(),
                        module.join("::"),
                        used.join("::")
                    ));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} uses were found");
    report("a folder uses another against the arrows", &broken);
}

#[test]
fn uses_are_found_wherever_they_stand() {
    let module = ["kind".to_owned(), "ping".to_owned()];
    let text = "use crate::{a, b::{c, d as e}};\n// crate::no\nuse super::f::g;\nmod tests {\n    use super::*;\n    \
                use super::super::h;\n    let x = crate::i::J { k };\n}\n";
    let found: Vec<(usize, String)> =
        own_uses(&module, text).into_iter().map(|(line, path)| (line, path.join(" "))).collect();
    let expected =
        [(1, "a"), (1, "b c"), (1, "b d"), (3, "kind f g"), (5, "kind ping "), (6, "kind h"), (7, "i J")];
    assert_eq!(found, expected.map(|(line, path)| (line, path.to_owned())));
}

/// A folder uses only those whose rows stand before its own.
#[test]
fn the_arrows_inside_a_crate_have_no_circle() {
    for (krate, arrows) in FOLDER_ARROWS {
        for (at, (name, allowed)) in arrows.iter().enumerate() {
            let above = |other: &&&str| !arrows[..at].iter().any(|(known, _)| *known == **other);
            let wrong: Vec<_> = allowed.iter().filter(above).collect();
            assert!(wrong.is_empty(), "{krate}: {name} uses {wrong:?}, which do not stand before it");
        }
    }
}

#[test]
fn test_modules_alone_are_left_out() {
    let text = "use a;\n#[cfg(test)]\nuse b;\n#[cfg(test)]\nmod tests {\n    fn x() {}\n}\nfn y() {}\n#[cfg(test)]\n#[path = \"t.rs\"]\nmod t;\n";
    assert_eq!(without_tests(text), "use a;\n#[cfg(test)]\nuse b;\n\n\n\n\nfn y() {}\n\n\n");
}

#[test]
fn unsafe_stands_only_on_the_floor() {
    let mut broken = vec![];
    for (path, text) in sources() {
        let floors = ["crates/linux/src/sys", "crates/linux/src/port", "crates/jit/src/exec.rs"];
        let on_the_floor = floors.iter().any(|floor| path.starts_with(root().join(floor)));
        let said = text
            .lines()
            .filter(|line| !is_comment(line))
            .any(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe"));
        if said && !on_the_floor {
            broken.push(path.display().to_string());
        }
    }
    report("unsafe outside crates/linux/src/sys, crates/linux/src/port and crates/jit/src/exec.rs", &broken);
}

#[test]
fn pure_crates_have_no_clock_and_no_socket() {
    let mut broken = vec![];
    for (path, text) in sources() {
        let pure = PURE.iter().any(|name| path.starts_with(root().join("crates").join(name)));
        for (number, line) in without_tests(&text).lines().enumerate() {
            if pure && !is_comment(line) {
                let store =
                    |word: &str| word == "std::fs" && STORES.iter().any(|store| is_below(&path, store));
                let words = IMPURE_WORDS.iter().filter(|word| line.contains(**word) && !store(word));
                broken.extend(words.map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
            }
        }
    }
    report("a pure crate touches the machine", &broken);
}

/// The names of drops stand in the table of `record::drop` alone. Names that are words of their own, and those of kernel
/// counters, may stand elsewhere and mean something else; so may all in the OpenFlow engine, which knows no drops.
#[test]
fn names_of_drops_stand_in_their_table_only() {
    let telling = |name: &&str| name.contains('_') && !name.starts_with("rx_") && !name.starts_with("tx_");
    let names: Vec<&str> = record::drop::DROPS.iter().map(|row| row.name).filter(telling).collect();
    let mut broken = vec![];
    for (path, text) in sources() {
        let apart = ["crates/record/src/drop.rs", "crates/flow", "crates/wire"];
        if apart.iter().any(|apart| path.starts_with(root().join(apart))) {
            continue;
        }
        for (number, line) in without_tests(&text).lines().enumerate().filter(|(_, line)| !is_comment(line)) {
            let literals = line.split('"').skip(1).step_by(2);
            let told = literals.filter(|literal| names.contains(literal));
            broken.extend(told.map(|name| format!("{}:{}: {name}", path.display(), number + 1)));
        }
    }
    report("a name of a drop is written out; use the constant of record::drop", &broken);
}

/// True for a file, or a file below a folder whose name ends with `/`.
fn is_below(path: &Path, place: &str) -> bool {
    path.strip_prefix(root()).is_ok_and(|path| path.to_string_lossy().starts_with(place))
}

/// Where readings are put beside each other and concluded from; what one end counts while it works is its own.
const CONCLUDES: &[&str] = &["src/", "crates/study/src/", "crates/experiment/src/"];
/// Names of an earlier reading.
const EARLIER: &[&str] = &["before", "then", "earlier", "first"];
/// Differences that are none of two readings of one counter, or whose 0 says the same as unknown: file, words, reason.
const NO_COUNTERS: &[(&str, &str, &str)] = &[
    (
        "crates/study/src/tcp.rs",
        "first.",
        "samples of one connection by its own clock, cut so that the parts sum up",
    ),
    (
        "crates/study/src/ledger/window.rs",
        "carrier_changes",
        "only words about a loss that is known otherwise",
    ),
    ("crates/study/src/ledger/book.rs", "backlog(test.before)", "a queue's length, which may shrink"),
];

/// A counter that was not read, or that ran backwards, did not stand still: [`record::Delta`] keeps the three apart.
#[test]
fn counters_are_subtracted_in_one_place() {
    let (mut broken, mut used) = (vec![], vec![]);
    for (path, text) in sources() {
        if !CONCLUDES.iter().any(|place| is_below(&path, place)) {
            continue;
        }
        // One less than a number is no difference of readings, and the method `then` is none.
        let text = without_tests(&text).replace(".saturating_sub(1)", "").replace(".then(", ".(");
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let times = ["begun_ns", "ended_ns", "first_ns"].iter().any(|time| line.contains(time));
            if is_comment(line)
                || times
                || !line.contains("saturating_sub(")
                || !words.any(|word| EARLIER.contains(&word))
            {
                continue;
            }
            match NO_COUNTERS
                .iter()
                .position(|(file, words, _)| is_below(&path, file) && line.contains(words))
            {
                Some(exception) => used.push(exception),
                None => broken.push(format!("{}:{}: {}", path.display(), number + 1, line.trim())),
            }
        }
    }
    let stale = (0..NO_COUNTERS.len()).filter(|exception| !used.contains(exception));
    broken.extend(
        stale.map(|exception| format!("an exception that nothing needs: {}", NO_COUNTERS[exception].0)),
    );
    report("a difference of counters that takes unknown for 0: use record::Delta", &broken);
}

/// Pictures that the field has terms for; no type is called so.
const PICTURES: &[&str] = &[
    "House",
    "Tenant",
    "Inhabitant",
    "Door",
    "Doors",
    "Desk",
    "Lane",
    "Lanes",
    "Purse",
    "Teller",
    "Arena",
    "Contest",
];

/// The name of the type that a line defines, and whether everybody sees it.
fn type_defined_in(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    let (is_public, rest) = match line.strip_prefix("pub ") {
        Some(rest) => (true, rest),
        None => (
            false,
            line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest),
        ),
    };
    let (kind, rest) = rest.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (is_type && end > 0).then_some((&rest[..end], is_public))
}

#[test]
fn one_word_is_one_thing() {
    assert_eq!(type_defined_in("    pub(crate) struct Door<'a> {"), Some(("Door", false)));
    assert_eq!(type_defined_in("pub enum Way {"), Some(("Way", true)));
    assert_eq!(type_defined_in("let way = 3;"), None);
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut broken = vec![];
    for (path, text) in sources() {
        let inside = path.strip_prefix(root()).unwrap();
        let names: Vec<String> =
            inside.iter().take(2).map(|part| part.to_string_lossy().into_owned()).collect();
        let of = if names[0] == "crates" { names[1].clone() } else { "pathlab".to_owned() };
        for (name, is_public) in without_tests(&text).lines().filter_map(type_defined_in) {
            if PICTURES.contains(&name) {
                broken.push(format!("{}: {name}", inside.display()));
            }
            if is_public {
                crates.entry(name.to_owned()).or_default().insert(of.clone());
            }
        }
    }
    report("a type has the name of a picture; use the field's term", &broken);
    let many = crates.iter().filter(|(_, crates)| crates.len() > 2);
    let many: Vec<String> = many.map(|(name, crates)| format!("{name}: {crates:?}")).collect();
    report("a name of a public type stands in more than two crates", &many);
}

#[test]
fn files_are_short() {
    let long = |(path, text): &(PathBuf, String)| {
        let lines = test_lines(text).into_iter().filter(|is_test| !is_test).count();
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
        for (line, length) in functions(&without_tests(&text)) {
            if length > MAX_FUNCTION_LINES {
                broken.push(format!("{}:{line}: {length} lines", path.display()));
            }
        }
    }
    report("a function is longer than 70 lines", &broken);
}

/// Lines of code of every function, those of one line included.
fn sizes(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let code = |line: &&&str| !line.trim().is_empty() && !is_comment(line);
    let long = functions(text);
    let long = long
        .into_iter()
        .map(|(begin, length)| lines[begin - 1..begin - 1 + length].iter().filter(code).count());
    let words = ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe "];
    let bare = |line: &&str| {
        words
            .iter()
            .fold(line.trim_start(), |code, word| code.strip_prefix(word).unwrap_or(code))
            .starts_with("fn ")
    };
    let short = lines.iter().filter(|line| line.ends_with('}') && bare(line)).map(|_| 1);
    long.chain(short).collect()
}

#[test]
fn most_functions_are_small() {
    let mut crates: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
        let name = parts.find(|part| part != "crates").unwrap_or_default();
        crates.entry(name).or_default().extend(sizes(&without_tests(&text)));
    }
    let mut broken = vec![];
    for (name, mut lengths) in crates {
        lengths.sort_unstable();
        let at = |share: usize| lengths[lengths.len() * share / 100];
        if at(50) > MEDIAN_FUNCTION_LINES || at(90) > NINTH_FUNCTION_LINES {
            broken.push(format!("{name}: half have at most {} lines, 9 of 10 at most {}", at(50), at(90)));
        }
    }
    report(
        "half of the functions of a crate have more than 8 lines of code, or 1 of 10 more than 25",
        &broken,
    );
}

#[test]
fn the_length_of_a_function_is_measured() {
    let text = "fn one() {\n    1\n}\n\nimpl A {\n    pub fn two(\n        a: u8,\n    ) -> u8 {\n        a\n    }\n}\n";
    assert_eq!(functions(text), vec![(1, 3), (6, 5)]);
    assert_eq!(sizes(&format!("{text}    fn three() {{ 3 }}\n    fn four();\n")), vec![3, 5, 1]);
}

//! `dist/package.sh`: what people take along holds the program, every manual page and the completions, and is the same
//! bytes each time.

use crate::support::{PATHLAB, command, finish, installed, run_ok, skip, start};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// A copy of the program without its symbols, which only cost time to pack.
fn program(folder: &Path) -> String {
    let copy = folder.join("program").display().to_string();
    tool("strip", &["-o", &copy, PATHLAB]);
    copy
}

fn package(program: &str, folder: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/package.sh");
    let mut tool = command(script.to_str().unwrap());
    tool.arg(program).arg(folder).env("SOURCE_DATE_EPOCH", "1700000000");
    finish(start(tool), Duration::from_secs(300))
}

fn tool(program: &str, arguments: &[&str]) -> String {
    let mut tool = command(program);
    tool.args(arguments);
    let output = finish(start(tool), Duration::from_secs(120));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The one file of a folder whose name ends so.
fn file(folder: &Path, end: &str) -> String {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    let found: Vec<_> = names.filter(|name| name.ends_with(end)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn packages_hold_program_pages_and_completions() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (folder, other) = (folders[0].path().join("out"), folders[1].path());
    let program = program(folders[0].path());
    for folder in [&folder, other] {
        let output = package(&program, folder);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let archive = file(&folder, ".tar.gz");
    let twice = [&archive, &file(other, ".tar.gz")].map(|file| std::fs::read(file).unwrap());
    assert!(twice[0] == twice[1], "two archives of one program differ");
    let listed = tool("tar", &["-tzf", &archive]);
    for wanted in [
        "/pathlab\n",
        "/man/pathlab-run.1\n",
        "/completions/pathlab.zsh\n",
        "/LICENSE-MIT\n",
        "/plans/exact.plan\n",
    ] {
        assert!(listed.contains(wanted), "{wanted} is not in {listed}");
    }
    tool("tar", &["-xzf", &archive, "-C", folder.to_str().unwrap()]);
    let inside = archive.strip_suffix(".tar.gz").unwrap().to_owned() + "/pathlab";
    assert_eq!(tool(&inside, &["--version"]), run_ok(&["--version"]));
    tool("sh", &["-c", &format!("cd {} && sha256sum --check --quiet SHA256SUMS", folder.display())]);

    if !installed("dpkg-deb") {
        skip("the Debian package", "dpkg-deb is not installed");
        return;
    }
    let package = file(&folder, ".deb");
    let listed = tool("dpkg-deb", &["--contents", &package]);
    for wanted in
        ["root/root", "./usr/bin/pathlab\n", "./usr/share/man/man1/pathlab.1.gz\n", "completions/pathlab\n"]
    {
        assert!(listed.contains(wanted), "{wanted} is not in {listed}");
    }
    let version = tool("dpkg-deb", &["--field", &package, "Version"]);
    assert!(run_ok(&["--version"]).contains(version.trim()));
}

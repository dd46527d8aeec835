//! The README stays true: every command in it is run.

use crate::alone;
use crate::support::steal::Steal;
use crate::support::turn::{at_once, loud_for_long};
use crate::support::{PATHLAB, command, finish, is_root, skip, start};
use std::path::Path;
use std::time::Duration;

/// The `$ ` lines of the `console` blocks, block by block.
fn blocks(text: &str) -> Vec<Vec<String>> {
    text.split("```console\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .map(|block| block.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect())
        .collect()
}

/// Of a line of a block. The block's name of the lab is that of nobody else, so that it is its own wherever it stands.
fn takes_lab_down(line: &str) -> bool {
    line.starts_with("pathlab lab down ") && !line.ends_with(" --all")
}

/// How many blocks run at once: most of them wait, for the seconds that they measure.
const AT_ONCE: usize = 4;

/// Of a block: whether its code is a verdict of a trial, which wants the machine to itself.
fn has_verdict(block: &[String]) -> bool {
    block.iter().any(|line| ["pathlab compare ", "pathlab prove "].iter().any(|word| line.starts_with(word)))
}

#[test]
fn every_command_of_the_readme_works() {
    let _turn = loud_for_long();
    let readme = std::fs::read_to_string("README.md").unwrap();
    let blocks = blocks(&readme);
    let all: Vec<&String> = blocks.iter().flatten().collect();
    assert!(all.iter().any(|line| *line == "make run") && all.iter().any(|line| *line == "make test"));
    // What takes away everything would take it from the others.
    let takes_all = |block: &Vec<String>| block.iter().any(|line| line.ends_with(" --all"));
    let others = blocks.into_iter().filter(|block| !has_verdict(block));
    let (last, mut others): (Vec<_>, Vec<_>) = others.partition(takes_all);
    // The long ones stand at the end of the page.
    others.reverse();
    work("the commands of the README", &[(AT_ONCE, others), (1, last)]);
}

#[test]
fn every_trial_of_the_readme_has_its_verdict() {
    let _turn = alone();
    let mut blocks = blocks(&std::fs::read_to_string("README.md").unwrap());
    blocks.retain(|block| has_verdict(block));
    assert!(blocks.len() > 1, "{blocks:?}");
    work("the trials of the README", &[(1, blocks)]);
}

/// Carries out the blocks, so many of each group at once.
fn work(what: &str, groups: &[(usize, Vec<Vec<String>>)]) {
    if !is_root() {
        return skip(what, "some of them need root");
    }
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["labs", "plans"] {
        std::os::unix::fs::symlink(root.join(name), folder.path().join(name)).unwrap();
    }
    groups.iter().for_each(|(most, blocks)| {
        drop(at_once(*most, blocks, |block| carry_out(block, root, folder.path())))
    });
}

fn carry_out(block: &[String], root: &Path, folder: &Path) {
    let bin = Path::new(PATHLAB).parent().unwrap().display().to_string();
    // `make` would run this very test again: that its targets exist is what can be checked from here.
    let script: Vec<String> = block
        .iter()
        .map(|line| match line.strip_prefix("make ") {
            Some(target) => format!("make -C {} -n {target} >/dev/null", root.display()),
            None => line.clone(),
        })
        .collect();
    // However a block ends, its labs are taken down.
    let (down, script): (Vec<_>, Vec<_>) = script.into_iter().partition(|line| takes_lab_down(line));
    let ends: String = down.iter().map(|line| format!("trap '{line}' EXIT\n")).collect();
    let mut shell = command("bash");
    shell.args(["-euo", "pipefail", "-c", &(ends + &script.join("\n"))]).current_dir(folder);
    shell.env("PATH", format!("{bin}:{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    let steal = Steal::begin();
    let output = finish(start(shell), Duration::from_secs(180));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = format!("{block:?} ended with {}: {words}", output.status);
    // Code 1 is no verdict, or one that was not wanted.
    match output.status.code() {
        Some(0) => {}
        Some(1) => _ = steal.holds(&format!("the commands of the README: {}", block[0]), false, found),
        _ => panic!("{found}"),
    }
}

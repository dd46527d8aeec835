//! What the tests share: whether they can run here, and saying that one cannot.
#![allow(dead_code)]

use linux::sys::netns;

/// True when namespaces can be made; else says what is skipped.
pub fn may_run(what: &str) -> bool {
    let root = nix::unistd::geteuid().is_root() && netns::create().is_ok();
    if !root {
        skip(what, "needs root (network namespaces)");
    }
    root
}

/// Says that something was not tested: on standard output, and in the list that `make test` prints.
pub fn skip(what: &str, why: &str) {
    println!("SKIP: {what}: {why}");
    if let Some(list) = std::env::var_os("PATHLAB_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(list)
    {
        use std::io::Write;
        let _ = writeln!(file, "{what}: {why}");
    }
}

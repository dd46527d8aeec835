//! Who uses a lab: a lock on its journal.
//!
//! **What.** Whoever measures in a lab that somebody else built holds an exclusive `flock` on the lab's journal as long as it
//! does so; `lab down` and a second measurement take the same lock first, and say who has it.
//!
//! **Why a lock.** It ends with the process, however that ends; and the kernel's list of locks names the process, so
//! nothing has to be written down that could be out of date.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use record::{Problem, Result};

use crate::journal::Journals;

/// Takes the lock of a lab, until the file is closed.
///
/// # Errors
/// An input problem that names the process which has it.
pub(super) fn claim(state: &Journals, name: &str) -> Result<File> {
    let file = file(state, name)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            let user = match holder(&file) {
                Some(pid) => format!("process {pid} ({})", crate::sys::process::name_of(pid)),
                None => "another process".into(),
            };
            Err(Problem::input(format!("the lab '{name}' is used by {user}"))
                .help("wait until that process has ended, or end it"))
        }
        Err(fs::TryLockError::Error(error)) => {
            Err(Problem::host(format!("cannot lock the lab '{name}': {error}")))
        }
    }
}

/// The process that has the lock of a lab; none when nobody has it.
pub(super) fn user(state: &Journals, name: &str) -> Option<u32> {
    file(state, name).ok().and_then(|file| holder(&file))
}

/// The journal, or its copy when that is all there is.
fn file(state: &Journals, name: &str) -> Result<File> {
    let [journal, copy] = state.files(name);
    File::open(&journal).or_else(|_| File::open(copy)).map_err(|error| {
        Problem::host(format!("cannot open the undo journal of '{name}': {error}"))
            .at(journal.display().to_string())
    })
}

/// How often the list of locks is read: it is told in pieces, and where others take and give back locks meanwhile one may be left out.
const READS: u32 = 5;

/// The process that holds a `flock` on the file, as `/proc/locks` has it; 0 there is a process that this one cannot see.
fn holder(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (nix::sys::stat::major(meta.dev()), nix::sys::stat::minor(meta.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    (0..READS).find_map(|_| holder_in(&fs::read_to_string("/proc/locks").ok()?, &place))
}

/// A line is `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`; one who waits has `->` behind the number (`lock_get_status` in
/// fs/locks.c).
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    let lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let held = |words: &Vec<&str>| matches!(words[..], [_, "FLOCK", _, _, _, at, ..] if at == place);
    lines.filter(held).find_map(|words| words[4].parse().ok().filter(|pid| *pid != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_locks_names_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 00:1b:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 14 fe:00:77 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:77"), Some(13));
        assert_eq!(holder_in(locks, "fe:00:78"), None);
        assert_eq!(holder_in("1: FLOCK  ADVISORY  WRITE 0 fe:00:77 0 EOF", "fe:00:77"), None);
    }

    #[test]
    fn a_lock_is_seen_and_ends_with_its_file() {
        let temporary = tempfile::tempdir().unwrap();
        let state = Journals::at(&temporary.path().join("state"), |_| None).unwrap();
        let _journal = state.begin("x", false).unwrap().unwrap();
        let claimed = claim(&state, "x").unwrap();
        let refused = claim(&state, "x").unwrap_err().to_string();
        assert!(refused.contains(&format!("used by process {} (", std::process::id())), "{refused}");
        assert_eq!(user(&state, "x"), Some(std::process::id()));
        drop(claimed);
        // A test beside this one may be starting a program: its child holds every open file until it has become that.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        // The list may say otherwise for a moment: it is written while it is read.
        while claim(&state, "x").is_err() {
            assert!(std::time::Instant::now() < deadline, "the lock outlives its file");
            std::thread::yield_now();
        }
    }
}

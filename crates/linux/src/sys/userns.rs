//! User namespaces: root's rights over one's own namespaces, without being root.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};

/// Makes a new user and mount namespace for the calling process and becomes root in it; it keeps the host's network
/// namespace, over which it has no rights. The process must have one thread only.
///
/// # Errors
/// The system's error with the step that failed.
pub fn enter_new() -> Result<(), (&'static str, io::Error)> {
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(|e| ("unshare", e.into()))?;
    // The kernel wants setgroups denied before an unprivileged process may map its group (user_namespaces(7)).
    let write = |file: &'static str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| (file, error))
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("0 {uid} 1"))?;
    write("gid_map", format!("0 {gid} 1"))
}

/// Enters the user and mount namespaces of a process of the same user. The calling process must have one thread only.
///
/// # Errors
/// The system's error, e.g. `NotFound` when the process has ended.
pub fn join(pid: u32) -> io::Result<()> {
    let user = File::open(format!("/proc/{pid}/ns/user"))?;
    let mount = File::open(format!("/proc/{pid}/ns/mnt"))?;
    let current = fs::metadata("/proc/self/ns/user")?;
    if user.metadata()?.ino() != current.ino() {
        setns(&user, CloneFlags::CLONE_NEWUSER)?;
    }
    let directory = std::env::current_dir();
    setns(&mount, CloneFlags::CLONE_NEWNS)?;
    // Entering a mount namespace moves the working directory to its root.
    if let Ok(directory) = directory {
        let _ = std::env::set_current_dir(directory);
    }
    Ok(())
}

/// The user whom the host sees: inside a user namespace that maps one user only (as [`enter_new`] makes it) the mapped
/// one, otherwise the effective one. 0 is root.
pub fn outer_uid() -> u32 {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let fields: Vec<u32> = map.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [_, outer, 1] => outer,
        _ => geteuid().as_raw(),
    }
}

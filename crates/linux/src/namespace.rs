//! Network namespaces, found again by their inode.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::sys::{netns, process};

/// The namespace with that number: ours, one that is pinned to a file where `ip netns` pins them, or that of a process.
pub fn find(inode: u64) -> Option<OwnedFd> {
    let is_it = |file: &OwnedFd| netns::inode(file.as_fd()).is_ok_and(|found| found == inode);
    if let Some(own) = netns::current().ok().filter(is_it) {
        return Some(own);
    }
    let open = |path: &Path| File::open(path).ok().map(OwnedFd::from).filter(is_it);
    let pinned = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let found = pinned.map(|entry| entry.path()).find_map(|path| open(&path));
    found.or_else(|| {
        let processes = process::in_namespace(inode);
        processes.iter().find_map(|(pid, _)| open(Path::new(&format!("/proc/{pid}/ns/net"))))
    })
}

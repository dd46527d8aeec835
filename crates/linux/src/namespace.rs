//! Network namespaces, found by their inode or by the word that people have for them.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use record::{Problem, Result};

use crate::sys::{netns, process};

/// Where namespaces are pinned: by `ip netns` and this program, by Docker.
const PINNED: [&str; 2] = ["/run/netns", "/run/docker/netns"];
/// What our own namespace is called.
pub const OWN: &str = "host";

/// The namespace that a word stands for, and how it is called: a name of `ip netns`, a path, `pid:N` for that of a process, `.` for
/// our own, which is called `host`.
///
/// # Errors
/// An `Input` problem when there is no such namespace, a `Host` problem when it may not be opened.
pub fn open(word: &str) -> Result<(String, OwnedFd)> {
    let (name, path) = match word.strip_prefix("pid:") {
        _ if word == "." => (OWN.to_owned(), "/proc/self/ns/net".to_owned()),
        Some(pid) if pid.parse::<u32>().is_ok() => (word.to_owned(), format!("/proc/{pid}/ns/net")),
        Some(_) => return Err(Problem::input(format!("'{word}' is not pid:N with the number of a process"))),
        None if word.contains('/') => (word.to_owned(), word.to_owned()),
        None => (word.to_owned(), format!("{}/{word}", PINNED[0])),
    };
    let file = File::open(&path).map_err(|error| refused(word, &path, &error))?;
    match netns::within(file.as_fd(), || ()) {
        Ok(()) => Ok((name, file.into())),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Problem::host(format!("the namespace {word} may not be entered")).help("run as root"))
        }
        Err(_) => Err(Problem::input("this is no network namespace").at(path)),
    }
}

fn refused(word: &str, path: &str, error: &std::io::Error) -> Problem {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Problem::host(format!("the namespace {word} may not be opened ({path})")).help("run as root")
        }
        std::io::ErrorKind::NotFound => Problem::input(format!("there is no namespace {word} ({path})"))
            .help("a name of 'ip netns', a path, pid:N for that of a process, or . for our own"),
        _ => Problem::input(format!("the namespace {word} cannot be opened: {error}")).at(path),
    }
}

/// Every namespace that can be found: our own, the pinned ones, and those of processes (`pid:N`), each once.
pub fn all() -> Vec<(String, OwnedFd)> {
    let mut found: Vec<(String, u64, OwnedFd)> = vec![];
    let mut add = |name: String, path: &Path| {
        let Some(file) = File::open(path).ok().map(OwnedFd::from) else { return };
        let Ok(inode) = netns::inode(file.as_fd()) else { return };
        if !found.iter().any(|(_, known, _)| *known == inode) && netns::within(file.as_fd(), || ()).is_ok() {
            found.push((name, inode, file));
        }
    };
    add(OWN.to_owned(), Path::new("/proc/self/ns/net"));
    for folder in PINNED {
        names_in(folder).for_each(|name| add(name.clone(), &Path::new(folder).join(name)));
    }
    let pids = names_in("/proc").filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.for_each(|pid| add(format!("pid:{pid}"), Path::new(&format!("/proc/{pid}/ns/net"))));
    found.into_iter().map(|(name, _, file)| (name, file)).collect()
}

/// The names in a folder, in order; none where it cannot be read.
fn names_in(folder: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names.into_iter()
}

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

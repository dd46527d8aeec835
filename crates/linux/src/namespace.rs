//! Network namespaces, found by their inode or by the word that people have for them.
//!
//! **For a while.** Who holds a namespace open keeps it alive, with all its interfaces and addresses, when everybody else has left it: a container
//! that was stopped would stay on its bridge. [`NamespaceWatch`] tells which ones went, to be let go, and which ones came.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use record::{Problem, Result};

use crate::sys::{netns, process};

/// Where namespaces are pinned: by `ip netns` and this program, by Docker.
const PINNED: [&str; 2] = ["/run/netns", "/run/docker/netns"];
/// The least time between two looks for namespaces, of which the kernel tells nobody.
const LEAST_PAUSE: Duration = Duration::from_millis(250);
/// The least pause behind a look, in times of what it took.
const PAUSE_PER_LOOK: u32 = 100;
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
    for (name, path) in ways() {
        let is_known = |inode: u64| found.iter().any(|(_, known, _)| *known == inode);
        if inode_at(&path).is_none_or(is_known) {
            continue;
        }
        let Some(file) = open_at(&path) else { continue };
        if let Some(inode) = netns::inode(file.as_fd()).ok().filter(|inode| !is_known(*inode)) {
            found.push((name, inode, file));
        }
    }
    found.into_iter().map(|(name, _, file)| (name, file)).collect()
}

/// Every file that may lead to a namespace, with what the namespace is called if it does.
fn ways() -> impl Iterator<Item = (String, PathBuf)> {
    let own = std::iter::once((OWN.to_owned(), PathBuf::from("/proc/self/ns/net")));
    let pinned = PINNED
        .into_iter()
        .flat_map(|folder| names_in(folder).map(move |name| (name.clone(), Path::new(folder).join(name))));
    let pids = names_in("/proc").filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let processes = pids.map(|pid| (format!("pid:{pid}"), PathBuf::from(format!("/proc/{pid}/ns/net"))));
    own.chain(pinned).chain(processes)
}

/// The number of the file that a path leads to, without holding it open.
fn inode_at(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|about| about.ino())
}

/// The files that a namespace of this name was opened by.
fn ways_to(name: &str) -> Vec<PathBuf> {
    match name.strip_prefix("pid:") {
        _ if name == OWN => vec!["/proc/self/ns/net".into()],
        Some(pid) => vec![format!("/proc/{pid}/ns/net").into()],
        None if name.contains('/') => vec![name.into()],
        None => PINNED.iter().map(|folder| Path::new(folder).join(name)).collect(),
    }
}

/// Namespaces that are looked into for a while.
#[derive(Debug)]
pub struct NamespaceWatch {
    known: Vec<Known>,
    is_all: bool,
    /// Not again before.
    next: Instant,
}

#[derive(Debug)]
struct Known {
    /// What it is called here.
    name: String,
    /// What it was opened by.
    word: String,
    /// None while there is none.
    inode: Option<u64>,
}

/// What happened to the namespaces of a [`NamespaceWatch`].
#[derive(Debug, Default)]
pub struct NamespaceChanges {
    /// No process and no file leads to these any more: whoever has them open should close them.
    pub went: Vec<String>,
    /// These came. The name may be that of one that went: a container that was started anew.
    pub came: Vec<(String, OwnedFd)>,
}

impl NamespaceChanges {
    /// Nothing happened.
    pub fn is_empty(&self) -> bool {
        self.went.is_empty() && self.came.is_empty()
    }
}

impl NamespaceWatch {
    /// Of these, and of those that come again by the same words.
    pub fn given(namespaces: &[(String, OwnedFd)]) -> NamespaceWatch {
        let known = |(name, file): &(String, OwnedFd)| Known {
            name: name.clone(),
            word: name.clone(),
            inode: netns::inode(file.as_fd()).ok(),
        };
        NamespaceWatch {
            known: namespaces.iter().map(known).collect(),
            is_all: false,
            next: Instant::now() + LEAST_PAUSE,
        }
    }

    /// Of these, and of all that come.
    pub fn all(namespaces: &[(String, OwnedFd)]) -> NamespaceWatch {
        NamespaceWatch { is_all: true, ..Self::given(namespaces) }
    }

    /// The time until it is to be asked again.
    pub fn pause(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// What happened since it was asked before, when it is time to ask again; else nothing.
    pub fn changes_in_time(&mut self) -> NamespaceChanges {
        if self.pause().is_zero() { self.changes() } else { NamespaceChanges::default() }
    }

    /// What happened since it was asked before. Of given namespaces it looks at one file each; of all of them, at one for each process.
    pub fn changes(&mut self) -> NamespaceChanges {
        let begun = Instant::now();
        let changes = self.find();
        self.next = Instant::now() + LEAST_PAUSE.max(begun.elapsed() * PAUSE_PER_LOOK);
        changes
    }

    fn find(&mut self) -> NamespaceChanges {
        let leads = |known: &Known| ways_to(&known.word).iter().any(|path| inode_at(path) == known.inode);
        let is_doubtful = |known: &Known| known.inode.is_some() && !leads(known);
        let mut changes = NamespaceChanges::default();
        if !self.is_all && !self.known.iter().any(|known| known.inode.is_none() || is_doubtful(known)) {
            return changes;
        }
        let mut there: BTreeMap<u64, (String, PathBuf)> = BTreeMap::new();
        for (name, path) in ways() {
            if let Some(inode) = inode_at(&path) {
                there.entry(inode).or_insert((name, path));
            }
        }
        for known in &mut self.known {
            let is_there = |inode: u64| there.contains_key(&inode);
            if is_doubtful(known) && !known.inode.is_some_and(is_there) {
                known.inode = None;
                changes.went.push(known.name.clone());
            }
        }
        match self.is_all {
            true => self.take_in(there, &mut changes),
            false => self.take_again(&mut changes),
        }
        changes
    }

    /// All that nobody knew.
    fn take_in(&mut self, there: BTreeMap<u64, (String, PathBuf)>, changes: &mut NamespaceChanges) {
        self.known.retain(|known| known.inode.is_some());
        for (inode, (word, path)) in there {
            if self.known.iter().any(|known| known.inode == Some(inode)) {
                continue;
            }
            let file =
                open_at(&path).filter(|file| netns::inode(file.as_fd()).is_ok_and(|found| found == inode));
            if let Some(file) = file {
                let name = self.name(&word);
                self.known.push(Known { name: name.clone(), word, inode: Some(inode) });
                changes.came.push((name, file));
            }
        }
    }

    /// Those whose word leads somewhere again. The number of a process may be that of another one by now.
    fn take_again(&mut self, changes: &mut NamespaceChanges) {
        for index in 0..self.known.len() {
            let word = self.known[index].word.clone();
            if self.known[index].inode.is_some() || word.starts_with("pid:") {
                continue;
            }
            if let Some(file) = ways_to(&word).iter().find_map(|path| open_at(path)) {
                self.known[index].inode = netns::inode(file.as_fd()).ok();
                changes.came.push((self.known[index].name.clone(), file));
            }
        }
    }

    /// What one that comes is called: the namespace that had its name before may live on without it.
    fn name(&self, word: &str) -> String {
        let is_taken = |name: &str| self.known.iter().any(|known| known.name == name);
        let numbered = (2..).map(|number| format!("{word} ({number})"));
        let mut names = std::iter::once(word.to_owned()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or_default()
    }
}

/// The namespace that a path leads to.
fn open_at(path: &Path) -> Option<OwnedFd> {
    let file = OwnedFd::from(File::open(path).ok()?);
    netns::within(file.as_fd(), || ()).is_ok().then_some(file)
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
    Some(find_named(inode)?.1)
}

/// What the namespace with that number is called from here, as [`open`] takes it; `net:[N]`, as the kernel calls it, where nobody has it.
pub fn called(inode: u64) -> String {
    find_named(inode).map_or_else(|| format!("net:[{inode}]"), |(name, _)| name)
}

fn find_named(inode: u64) -> Option<(String, OwnedFd)> {
    let is_it = |file: &OwnedFd| netns::inode(file.as_fd()).is_ok_and(|found| found == inode);
    if let Some(own) = netns::current().ok().filter(is_it) {
        return Some(("host".into(), own));
    }
    let open = |path: &Path| File::open(path).ok().map(OwnedFd::from).filter(is_it);
    let pinned = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = |path: &Path| Some((path.file_name()?.to_string_lossy().into_owned(), open(path)?));
    pinned.map(|entry| entry.path()).find_map(|path| named(&path)).or_else(|| {
        let processes = process::in_namespace(inode);
        let of = |pid: &u32| Some((format!("pid:{pid}"), open(Path::new(&format!("/proc/{pid}/ns/net")))?));
        processes.iter().find_map(|(pid, _)| of(pid))
    })
}

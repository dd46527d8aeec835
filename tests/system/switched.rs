//! A running `pathlab switch` in a network namespace of its own, between two ends of one cable.

use crate::support::{self, is_root, pathlab, skip};
use linux::sys::{netns, process};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The switch, which ends with it; its interfaces are `p1` and `p2`.
pub struct Switched {
    pub netns: Arc<OwnedFd>,
    pub folder: tempfile::TempDir,
    pub switch: Child,
}

impl Switched {
    /// Listens at a unix socket, with more words for its command line, which may name files of the folder; none, said visibly,
    /// where the test cannot run.
    pub fn start(what: &str, words: impl FnOnce(&Path) -> Vec<String>) -> Option<Switched> {
        if !is_root() {
            skip(what, "it needs root (network namespaces)");
            return None;
        }
        let netns = Arc::new(netns::create().unwrap());
        netns::within(netns.as_fd(), || {
            for line in
                ["link set lo up", "link add p1 type veth peer name p2", "link set p1 up", "link set p2 up"]
            {
                let done = support::command("ip").args(line.split(' ')).status().unwrap();
                assert!(done.success(), "ip {line}");
            }
        })
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s.sock");
        let mut command = pathlab(&["switch", "--listen", &format!("punix:{}", socket.display())]);
        command.args(words(folder.path()));
        process::enter(&mut command, netns.clone(), false);
        let switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let switched = Switched { netns, folder, switch };
        // The file is there from bind(2) on, which is before anybody can be called.
        until("the switch listens", || UnixStream::connect(&socket).is_ok());
        Some(switched)
    }

    /// Where it listens.
    pub fn unix(&self) -> String {
        format!("unix:{}/s.sock", self.folder.path().display())
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = process::interrupt(&self.switch);
        let _ = self.switch.wait();
    }
}

/// Waits until something is so, at most a minute.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

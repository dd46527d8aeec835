//! A place to test in: a namespace for the switch, one for each host, a veth pair between. Everything of it ends with it.

use crate::support::{self, turn};
use linux::sys::{netns, process};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Namespaces and what was started in them.
pub struct Site {
    /// Where the switch and its controllers are.
    pub middle: Arc<OwnedFd>,
    /// The hosts 1, 2, …; each has `eth0`, and the switch has `p1`, `p2`, ….
    pub hosts: Vec<Arc<OwnedFd>>,
    /// For sockets and configurations.
    pub folder: tempfile::TempDir,
    children: Vec<Child>,
    /// Frames are not lost in a backlog that a flood of another test fills.
    turn: Option<turn::Turn>,
}

impl Site {
    /// Hosts with the addresses `10.0.0.N/24`.
    pub fn build(hosts: usize) -> Site {
        let site = Site::bare(hosts);
        for host in 1..=hosts {
            site.ip(host, &format!("address add 10.0.0.{host}/24 dev eth0"));
        }
        site
    }

    /// Hosts without addresses.
    pub fn bare(hosts: usize) -> Site {
        let turn = Some(turn::beside());
        let mut site = Site::in_turn(hosts);
        site.turn = turn;
        site
    }

    /// The same for a test that has its turn.
    pub fn in_turn(hosts: usize) -> Site {
        let new = || Arc::new(netns::create().unwrap());
        let (middle, hosts) = (new(), (0..hosts).map(|_| new()).collect());
        let site = Site { middle, hosts, folder: tempfile::tempdir().unwrap(), children: vec![], turn: None };
        site.ip(0, "link set lo up");
        for host in 1..=site.hosts.len() {
            site.cable(host);
        }
        site
    }

    /// Puts a cable between the switch and a host: `p1` here, `eth0` there.
    pub fn cable(&self, host: usize) {
        // The pair is made in the middle; the kernel moves one end by the process that holds the other namespace.
        let mut sleeper = self.command(host, "sleep").arg("60").spawn().unwrap();
        let line = format!("link add p{host} type veth peer name eth0 netns {}", sleeper.id());
        self.ip(0, &line);
        let _ = sleeper.kill();
        let _ = sleeper.wait();
        for (place, name) in [(0, format!("p{host}")), (host, "eth0".into())] {
            // The kernel itself is to say nothing on the cables.
            self.ip(place, &format!("link set {name} addrgenmode none"));
            self.ip(place, &format!("link set {name} up"));
        }
        self.ip(host, &format!("link set eth0 address 02:00:00:00:00:{host:02x}"));
    }

    /// Moves an interface from one place to another, where it is down.
    pub fn move_interface(&self, name: &str, from: usize, to: usize) {
        let mut sleeper = self.command(to, "sleep").arg("60").spawn().unwrap();
        self.ip(from, &format!("link set {name} netns {}", sleeper.id()));
        let _ = sleeper.kill();
        let _ = sleeper.wait();
    }

    /// The namespace: 0 is the middle.
    pub fn netns(&self, place: usize) -> Arc<OwnedFd> {
        if place == 0 { self.middle.clone() } else { self.hosts[place - 1].clone() }
    }

    /// A command inside.
    pub fn command(&self, place: usize, program: &str) -> Command {
        let mut command = support::command(program);
        process::enter(&mut command, self.netns(place), false);
        command
    }

    /// Runs a line there; what it said, and whether it went well.
    pub fn try_run(&self, place: usize, line: &str) -> (bool, String) {
        let mut words = line.split(' ');
        let mut command = self.command(place, words.next().unwrap());
        command.args(words);
        let output = support::finish(support::start(command), Duration::from_secs(60));
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// Runs `ip`, which must go well.
    pub fn ip(&self, place: usize, line: &str) {
        let (ok, text) = self.try_run(place, &format!("ip {line}"));
        assert!(ok, "ip {line}: {text}");
    }

    /// Starts something in the middle that lives as long as this; its number.
    pub fn start(&mut self, mut command: Command) -> usize {
        let log =
            std::fs::File::create(self.folder.path().join(format!("log{}", self.children.len()))).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null());
        self.children.push(command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", command.get_program())));
        self.children.len() - 1
    }

    /// The process that was started under this number.
    pub fn process(&self, number: usize) -> u32 {
        self.children[number].id()
    }

    /// Kills what was started under this number, without a chance to tidy up.
    pub fn kill_one(&mut self, number: usize) {
        self.children[number].kill().unwrap();
        self.children[number].wait().unwrap();
    }

    /// Starts `pathlab switch` with these words, in the middle.
    pub fn switch(&mut self, words: &[&str]) -> usize {
        let mut command = self.command(0, support::PATHLAB);
        command.env("PATHLAB_STATE", self.folder.path().join("state")).arg("switch").args(words);
        self.start(command)
    }

    /// Starts a switch with a port for each host, and a socket `s`.
    pub fn usual_switch(&mut self, more: &[&str]) -> usize {
        let ports: Vec<String> = (1..=self.hosts.len()).map(|host| format!("{host}=int:p{host}")).collect();
        let listen = format!("punix:{}", self.socket().display());
        let mut words = vec!["--listen", &listen];
        for port in &ports {
            words.extend(["--port", port]);
        }
        words.extend(more);
        let number = self.switch(&words);
        self.wait_for("the switch's socket", |site| site.socket().exists());
        number
    }

    /// Ends the last one that was started, in order, and waits for it.
    pub fn end(&mut self) {
        let mut child = self.children.pop().unwrap();
        process::interrupt(&child).unwrap();
        assert!(child.wait().unwrap().code().is_some(), "it ends by itself");
    }

    /// Kills the last one that was started, so that it cannot put anything in order.
    pub fn kill(&mut self) {
        let mut child = self.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The socket of the usual switch.
    pub fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("s")
    }

    /// What everything said that was started.
    pub fn logs(&self) -> String {
        let one = |index: usize| {
            let text = std::fs::read(self.folder.path().join(format!("log{index}"))).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let from = text.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
            format!("--- {index}\n{}\n", &text[from..])
        };
        (0..self.children.len()).map(one).collect()
    }

    /// Waits until something is so.
    pub fn wait_for(&self, what: &str, mut is_so: impl FnMut(&Site) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}: not within 90 s\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether one ping from a host is answered within a second.
    pub fn pings(&self, from: usize, to: &str) -> bool {
        self.try_run(from, &format!("ping -n -c 1 -W 1 {to}")).0
    }

    /// A ping that must succeed sooner or later: the controller may have to learn first.
    pub fn reaches(&self, from: usize, to: &str) {
        self.wait_for(&format!("host {from} pings {to}"), |site| site.pings(from, to));
    }

    /// A file in the folder.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        for child in &mut self.children {
            // The number of one that has ended may be another's by now.
            if matches!(child.try_wait(), Ok(None)) {
                let _ = process::interrupt(child);
            }
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs something in a namespace, in a thread of its own.
pub fn within<T: Send>(netns: &OwnedFd, work: impl FnOnce() -> T + Send) -> T {
    netns::within(netns.as_fd(), work).unwrap()
}

/// Says why a test that needs root is skipped; true when it is.
pub fn needs_root(what: &str) -> bool {
    if !support::is_root() {
        support::skip(what, "it needs root (network namespaces)");
    }
    !support::is_root()
}

/// A path inside the folder of this project.
pub fn project(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

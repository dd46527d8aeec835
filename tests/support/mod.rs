//! What the tests share: running pathlab, running ordinary tools inside a lab, saying what was skipped.
#![allow(dead_code)]

pub mod again;
pub mod steal;
pub mod turn;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The program under test.
pub const PATHLAB: &str = env!("CARGO_BIN_EXE_pathlab");

/// True when the tests run as root in the first user namespace.
pub fn is_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|l| l.strip_prefix("Uid:")).and_then(|l| l.split_whitespace().next());
    uid == Some("0") && map.split_whitespace().nth(2) == Some("4294967295")
}

/// True when the program can be found.
pub fn installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/bin";
    path.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// Says that something was not tested, visibly: on standard error, and in the list that `make test` prints at its end.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIP: {what}: {why}");
    again::append("PATHLAB_SKIPS", &format!("{what}: {why}"));
}

/// Where `tests/peers.sh` unpacks Open vSwitch.
pub fn unpacked_ovs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers/openvswitch")
}

/// A command with the folders of system tools in its path.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/bin");
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    let ovs = unpacked_ovs();
    if ovs.is_dir() {
        command.env("PATHLAB_OVS", ovs);
    }
    command
}

/// A shell script with mounts of its own, invisible outside, and with an empty `/run`: for whatever mounts over
/// `/run/netns` or damages `/run/pathlab`. `$PATHLAB` is the program; the script ends at the first command that fails. What it
/// pins is gone when its last process has ended.
pub fn script_with_own_run(script: &str) -> Command {
    let mut tool = command("unshare");
    let script = format!("mount -t tmpfs -o mode=755 none /run\n{script}");
    tool.args(["--mount", "--propagation", "private", "sh", "-euc", &script]);
    tool.env("PATHLAB", PATHLAB).env_remove("PATHLAB_STATE");
    tool
}

/// Runs such a script, which must succeed; both its outputs.
pub fn must_with_own_run(script: &str) -> (String, String) {
    let output = finish(start(script_with_own_run(script)), Duration::from_secs(120));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    (out, err)
}

/// `pathlab` with arguments, ready to be started.
pub fn pathlab(arguments: &[&str]) -> Command {
    let mut command = command(PATHLAB);
    command.args(arguments);
    command
}

/// Waits for a child at most so long; a child that takes longer is ended and the test fails.
pub fn finish(mut child: Child, limit: Duration) -> Output {
    use std::io::Read;
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    let out = std::thread::spawn(move || {
        let mut bytes = vec![];
        stdout.as_mut().map(|pipe| pipe.read_to_end(&mut bytes));
        bytes
    });
    let err = std::thread::spawn(move || {
        let mut bytes = vec![];
        stderr.as_mut().map(|pipe| pipe.read_to_end(&mut bytes));
        bytes
    });
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!(
                "it did not end within {limit:?}: {}",
                String::from_utf8_lossy(&err.join().unwrap_or_default())
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: out.join().unwrap_or_default(), stderr: err.join().unwrap_or_default() }
}

/// Starts a command with both outputs captured.
pub fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|e| panic!("cannot start {:?}: {e}", command.get_program()))
}

/// A child that ends with the test, however that ends.
pub struct Kept(Option<Child>);

impl Kept {
    /// From now on.
    pub fn new(child: Child) -> Kept {
        Kept(Some(child))
    }

    /// Its standard output, if it was captured and not taken before.
    pub fn stdout_pipe(&mut self) -> Option<std::process::ChildStdout> {
        self.0.as_mut()?.stdout.take()
    }

    /// For waiting until it ends.
    pub fn take(mut self) -> Child {
        self.0.take().expect("nobody took it before")
    }
}

impl std::ops::Deref for Kept {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("nobody took it")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until a command has said something on its standard error; the rest stays to be read.
pub fn until_it_says(child: &mut Child, words: &str) {
    use std::io::Read;
    let stderr = child.stderr.as_mut().expect("started with its output captured");
    let (mut said, mut byte) = (vec![], [0]);
    while !String::from_utf8_lossy(&said).contains(words) {
        let got = stderr.read(&mut byte).expect("a pipe");
        assert!(got == 1, "it ended without saying '{words}': {}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
}

/// Runs `pathlab` to its end (at most two minutes).
pub fn run(arguments: &[&str]) -> Output {
    finish(start(pathlab(arguments)), Duration::from_secs(120))
}

/// Runs `pathlab`, which must succeed; its standard output.
pub fn run_ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "pathlab {arguments:?} ended with {}: {words}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A lab that is taken down when the test ends, however it ends.
pub struct TestLab {
    /// Its name.
    pub name: String,
}

impl TestLab {
    /// Builds a lab with a name that no other test uses.
    pub fn up(topology: &str, label: &str) -> TestLab {
        static LABS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{label}{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        run_ok(&["lab", "up", topology, "--name", &name]);
        TestLab { name }
    }

    /// The name under which ordinary tools find a node's namespace.
    pub fn netns(&self, node: &str) -> String {
        format!("pathlab-{}-{node}", self.name)
    }

    /// Runs an ordinary tool inside a node; its output.
    pub fn inside(&self, node: &str, line: &str) -> std::result::Result<String, String> {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &self.netns(node), "sh", "-c", line]);
        let output = finish(start(tool), Duration::from_secs(60));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(format!("{node}: {line}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// The same, where failure fails the test.
    pub fn must(&self, node: &str, line: &str) -> String {
        self.inside(node, line).unwrap_or_else(|e| panic!("{e}"))
    }

    /// IPv4 datagrams that a node's kernel has taken in. It delivers them to captures before it counts them
    /// (`__netif_receive_skb_core`), so what is counted here is in their buffers.
    pub fn datagrams(&self, node: &str) -> u64 {
        let text = self.must(node, "cat /proc/net/snmp");
        let mut lines = text.lines().filter(|line| line.starts_with("Ip: ")).map(str::split_whitespace);
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let found = names.zip(values).find(|(name, _)| *name == "InReceives");
        found.and_then(|(_, value)| value.parse().ok()).expect("a counter")
    }

    /// Waits until a node has taken in this many.
    pub fn until_datagrams(&self, node: &str, wanted: u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.datagrams(node) < wanted {
            assert!(Instant::now() < deadline, "{node}: {} of {wanted} datagrams came", self.datagrams(node));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The processes inside a node.
    pub fn pids(&self, node: &str) -> Vec<i32> {
        let mut tool = command("ip");
        tool.args(["netns", "pids", &self.netns(node)]);
        let output = finish(start(tool), Duration::from_secs(60));
        String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        let output = run(&["lab", "down", &self.name]);
        if !output.status.success() && !std::thread::panicking() {
            panic!("lab down: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

//! `pathlab lab` as a user meets it: exit codes, JSON, no root, and `kill -9` at any moment.

mod support;

#[path = "lab/mounts.rs"]
mod mounts;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A user of the program: with a state directory of its own, so that labs of others on this machine are not met.
struct User {
    directory: tempfile::TempDir,
    program: PathBuf,
    uid: Option<u32>,
}

impl User {
    fn root() -> User {
        let directory = tempfile::tempdir().unwrap();
        User { directory, program: env!("CARGO_BIN_EXE_pathlab").into(), uid: None }
    }

    /// The user nobody, with a copy of the program where nobody may read it.
    fn nobody() -> User {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join("pathlab");
        fs::copy(env!("CARGO_BIN_EXE_pathlab"), &program).unwrap();
        let user = User { directory, program, uid: Some(65534) };
        fs::create_dir(user.state()).unwrap();
        fs::set_permissions(user.state(), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(user.state(), Some(65534), Some(65534)).unwrap();
        user
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments.split(' ')).env("PATHLAB_STATE", self.state()).current_dir("/");
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// A copy of the program cannot be started while another thread's child, which has not begun yet, has it open for writing.
    fn output(&self, arguments: &str) -> Output {
        loop {
            match self.command(arguments).output() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                output => return output.unwrap(),
            }
        }
    }

    fn run(&self, arguments: &str) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.output(arguments);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap_or(-1), text(stdout), text(stderr))
    }

    fn ok(&self, arguments: &str) -> String {
        let (code, out, err) = self.run(arguments);
        assert_eq!(code, 0, "{arguments}: {out}{err}");
        out
    }

    fn json(&self, arguments: &str) -> Value {
        let value: Value = serde_json::from_str(&self.ok(&format!("--json {arguments}"))).unwrap();
        let command = arguments.split(' ').nth(1).unwrap();
        let version = if ["down", "list", "check"].contains(&command) { 2 } else { 1 };
        assert_eq!(value["schema"], format!("pathlab/lab-{command}/{version}"));
        value
    }

    /// Nothing of the lab is left: no journal, no pin, no mount, no process of this program.
    fn assert_nothing_left(&self, lab: &str) {
        let left: Vec<_> = fs::read_dir(self.state()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "lock"), "state directory: {left:?}");
        let pins = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let pins: Vec<_> = pins.filter(|name| name.to_string_lossy().contains(lab)).collect();
        assert!(pins.is_empty(), "{pins:?}");
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(lab), "{mounts}");
        // A namespace lives by a mount, a process or a descriptor of a process. Mounts are checked above.
        let holders: Vec<_> = processes_of(&self.program, lab);
        assert!(holders.is_empty(), "{holders:?}");
    }
}

/// A test that fails leaves no lab and no holder either.
impl Drop for User {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.command("lab down --all").output();
        }
    }
}

/// Processes that run the program with the lab's name among their arguments.
fn processes_of(program: &Path, lab: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let runs_it =
        |entry: &fs::DirEntry| fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
    let lines =
        entries.filter(runs_it).filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(lab)).collect()
}

fn lab_name(test: &str) -> String {
    format!("c{}-{test}", std::process::id())
}

fn is_root(test: &str) -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    if !root {
        println!("SKIP: {test}: needs root");
    }
    root
}

/// The whole story of a lab, for whichever user.
fn a_lab_from_up_to_down(user: &User, lab: &str) {
    let built = user.json(&format!("lab up bridge --name {lab}"));
    assert_eq!(built["lab"], lab);
    let (code, _, err) = user.run(&format!("lab up pair --name {lab}"));
    assert_eq!((code, err.contains(&format!("there is already a lab named '{lab}'"))), (2, true), "{err}");
    let labs = user.json("lab list");
    assert_eq!(labs["labs"][0]["nodes"], serde_json::json!(["a", "s", "b"]));
    let (code, out, _) = user.run(&format!("lab exec {lab} s -- ls /sys/class/net"));
    assert_eq!((code, out.split_whitespace().collect::<Vec<_>>()), (0, vec!["br0", "lo", "p1", "p2"]));
    let status = user.command(&format!("lab exec {lab} a -- sh -c")).arg("exit 7").status().unwrap();
    assert_eq!(status.code(), Some(7));
    let (code, _, err) = user.run(&format!("lab exec {lab} z -- true"));
    assert_eq!((code, err.contains("unknown node 'z'; the nodes are a, s, b")), (2, true), "{err}");
    assert_eq!(user.json(&format!("lab check {lab}"))["differing"], 0);
    if user.run(&format!("lab exec {lab} a -- ip link set eth0 mtu 1400")).0 == 0 {
        let (code, out, err) = user.run(&format!("lab check {lab}"));
        assert_eq!(code, 1, "{out}{err}");
        assert!(out.contains("mtu is 1400, the topology says 1500"), "{out}");
    }
    assert_eq!(user.json("lab down --all")["down"], serde_json::json!([lab]));
    user.assert_nothing_left(lab);
    let (code, _, err) = user.run(&format!("lab down {lab}"));
    assert_eq!((code, err.contains("there is no lab named")), (2, true), "{err}");
}

#[test]
fn root_builds_uses_and_removes_a_lab() {
    if is_root("root's lab") {
        a_lab_from_up_to_down(&User::root(), &lab_name("root"));
    }
}

#[test]
fn a_user_without_root_builds_uses_and_removes_a_lab() {
    if !is_root("nobody's lab (only root can become nobody)") {
        return;
    }
    let user = User::nobody();
    let probe = user.run(&format!("lab up pair --name {}", lab_name("probe")));
    if probe.0 == 3 {
        println!("SKIP: nobody's lab: {}", probe.2);
        return;
    }
    user.ok("lab down --all");
    a_lab_from_up_to_down(&user, &lab_name("nobody"));
}

/// Kills `lab up` with SIGKILL at moments spread over its whole run, and somewhat beyond.
fn killed_at_any_moment(user: &User, file: &str, lab: &str, rounds: u32) {
    let begun = Instant::now();
    user.ok(&format!("lab up {file} --name {lab}"));
    let whole = begun.elapsed();
    user.ok("lab down --all");
    let mut finished = 0;
    for round in 0..rounds {
        // The golden ratio spreads the moments without a pattern and without chance.
        let part = (f64::from(round) * 0.618_033_988_75).fract();
        let mut child = user
            .command(&format!("lab up {file} --name {lab}"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * 1.1 * part));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for_orphans(user, lab);
        if round % 2 == 0 {
            user.ok("lab down --all");
        } else {
            // The next `lab up` has to cope as well, unless the killed one was just ready.
            let (code, _, err) = user.run(&format!("lab up pair --name {lab}"));
            finished += u32::from(code == 2 && err.contains("there is already a lab"));
            assert!(code == 0 || code == 2, "{err}");
            user.ok("lab down --all");
        }
        user.assert_nothing_left(lab);
    }
    println!("{lab}: killed {rounds} times within {whole:?}, {finished} of {} had just finished", rounds / 2);
}

/// The holder of a killed `lab up` may still be building; it gives up when it finds nobody to answer to. Only then is
/// the state of things decided.
fn wait_for_orphans(user: &User, lab: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let undecided = || {
        let labs = user.json("lab list");
        labs["labs"]
            .as_array()
            .unwrap()
            .iter()
            .any(|known| known["name"] == lab && known["state"] == "building")
            || (labs["labs"].as_array().unwrap().is_empty() && !processes_of(&user.program, lab).is_empty())
    };
    while undecided() {
        assert!(Instant::now() < deadline, "the holder neither finishes nor gives up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn root_kills_lab_up_at_any_moment_and_nothing_is_left() {
    if is_root("kill -9 as root") {
        for (file, rounds) in [("line3", 20), ("vxlan", 10), ("macvlan", 10), ("rule", 5)] {
            killed_at_any_moment(&User::root(), file, &lab_name(&format!("killed-{file}")), rounds);
        }
    }
}

#[test]
fn nobody_kills_lab_up_at_any_moment_and_nothing_is_left() {
    if !is_root("kill -9 as nobody") {
        return;
    }
    let user = User::nobody();
    let probe = user.run("lab up pair --name probe");
    if probe.0 == 3 {
        println!("SKIP: kill -9 as nobody: {}", probe.2);
        return;
    }
    user.ok("lab down --all");
    killed_at_any_moment(&user, "line3", &lab_name("nkilled"), 10);
    killed_at_any_moment(&user, "vxlan", &lab_name("nvxlan"), 5);
}

#[test]
fn a_request_to_end_takes_the_half_built_lab_down_at_once() {
    if !is_root("interrupts") {
        return;
    }
    let user = User::root();
    let lab = lab_name("term");
    for delay in [5, 20, 40, 60] {
        let mut child = user.command(&format!("lab up line3 --name {lab}")).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        let code = child.wait().unwrap().code();
        if code == Some(0) {
            user.ok("lab down --all");
        } else if code.is_none() {
            // The signal came before the handler; nothing was built, and any command removes the rest.
            user.ok("undo");
        }
        user.assert_nothing_left(&lab);
    }
}

#[test]
fn wrong_input_is_one_sentence_with_its_place_and_exit_code_2() {
    let user = User::root();
    let file = user.directory.path().join("wrong.lab");
    fs::write(&file, "node a b\nlink a:eth0 -- c:eth0\n").unwrap();
    let (code, out, err) = user.run(&format!("lab show {}", file.display()));
    let wanted = format!("pathlab: {}:2:16: unknown node 'c'; the nodes are a, b\n", file.display());
    assert_eq!((code, out.as_str(), err), (2, "", wanted));
    let (code, _, err) = user.run("lab show no-such-file");
    assert_eq!(code, 2);
    assert!(err.contains("or one of the built-in labs pair, bridge, router, bottleneck, line3"), "{err}");
    let shown = user.ok("lab show bridge");
    fs::write(&file, &shown).unwrap();
    assert_eq!(user.ok(&format!("lab show {}", file.display())), shown);
}

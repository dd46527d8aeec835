//! Ephemeral labs in processes of their own: without root in a user namespace, and killed while up.
//!
//! Not under the test harness: only a process with one thread may enter a user namespace. Started without arguments it
//! is the test; it starts itself again in the roles that need a process.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linux::lab::{self, Lab, Lifetime, Topology};
use linux::undo;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("hold") => hold(),
        _ if !nix::unistd::geteuid().is_root() => {
            support::skip("labs in processes of their own", "needs root")
        }
        _ => {
            killed_while_up();
            without_root();
            println!("test result: ok. labs in processes of their own");
        }
    }
}

/// The role of one who measures: a lab of its own, one datagram through it, and then whatever the caller wants.
fn hold() {
    if let Err(problem) = lab::enter_user_namespace() {
        println!("refused {problem}");
        return;
    }
    let lab = Lab::up(
        &linux::undo::journals().unwrap(),
        &Topology::load("router").unwrap(),
        "alone",
        Lifetime::Ephemeral,
    )
    .unwrap();
    for family in [4, 6] {
        let any = if family == 4 { "0.0.0.0:0" } else { "[::]:0" };
        let bind = |node: &str| lab.node(node).unwrap().within(|| UdpSocket::bind(any).unwrap()).unwrap();
        let (sender, receiver) = (bind("a"), bind("b"));
        receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let port = receiver.local_addr().unwrap().port();
        sender.send_to(b"frame", SocketAddr::new(lab.address_of("b", family).unwrap(), port)).unwrap();
        assert_eq!(receiver.recv(&mut [0; 9]).unwrap(), 5);
        assert_eq!(lab.path("a", "b", family).unwrap().source, "routes");
    }
    assert!(lab.check().unwrap().iter().all(|line| line.differences.is_empty()));
    let inside = lab.node("a").unwrap().command("readlink").arg("/proc/self/ns/net").output().unwrap();
    let inode = lab.node("a").unwrap().inode();
    assert_eq!(String::from_utf8_lossy(&inside.stdout).trim(), format!("net:[{inode}]"));
    println!("up {inode}");
    // The end of standard input is the request to end; the lab goes with the value.
    std::io::stdin().read_to_end(&mut vec![]).unwrap();
}

/// Starts this program in the role; returns it and its first line.
fn start(program: &Path, state: &Path, uid: Option<u32>) -> (Child, String) {
    let mut command = Command::new(program);
    command.arg("hold").env("PATHLAB_STATE", state).stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

fn killed_while_up() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("state");
    let state = undo::open_at(&path).unwrap();
    let (mut child, line) = start(&std::env::current_exe().unwrap(), &path, None);
    assert!(line.starts_with("up "), "{line}");
    assert!(state.clean().unwrap().is_empty(), "its owner lives");
    let pin = Path::new("/run/netns/pathlab-alone-a");
    assert!(pin.exists());
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(pin.exists(), "nobody has cleaned yet");
    assert_eq!(state.clean().unwrap(), ["alone"]);
    assert!(!pin.exists() && state.names().is_empty());
    println!("test an_ephemeral_lab_whose_owner_was_killed_goes_with_the_next_command ... ok");

    let (mut child, _) = start(&std::env::current_exe().unwrap(), &path, None);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(!pin.exists() && state.names().is_empty());
    println!("test an_ephemeral_lab_goes_with_its_value ... ok");
}

fn without_root() {
    let temporary = tempfile::tempdir().unwrap();
    std::fs::set_permissions(temporary.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = temporary.path().join("lab_alone");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let path = temporary.path().join("state");
    let state = undo::open_at(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    let (mut child, line) = start(&program, &path, Some(65534));
    if let Some(why) = line.strip_prefix("refused ") {
        support::skip("labs without root", why);
        child.wait().unwrap();
        return;
    }
    assert!(line.starts_with("up "), "{line}");
    assert!(!Path::new("/run/netns/pathlab-alone-a").exists(), "a user cannot pin");
    let record = state.read("alone").unwrap().unwrap();
    assert!(record.steps.is_empty() && !record.stale(), "{record:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(state.read("alone").unwrap().unwrap().stale());
    let inode: u64 = line.trim_start_matches("up ").trim().parse().unwrap();
    assert!(linux::sys::process::in_namespace(inode).is_empty(), "the namespace went with its process");
    println!("test a_lab_without_root_goes_with_its_process ... ok");

    let (mut child, line) = start(&program, &path, Some(65534));
    assert!(line.starts_with("up "), "what the killed one left is no hindrance: {line}");
    child.stdin.take().unwrap().flush().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(state.names().is_empty());
    println!("test a_lab_without_root_goes_with_its_value ... ok");
}

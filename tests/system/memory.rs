//! The memory that `pathlab switch` takes, and gives back.

use crate::support::{self, is_root, pathlab, skip};
use linux::sys::{netns, process};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A switch between interfaces in a namespace of its own.
struct Running {
    netns: Arc<OwnedFd>,
    _folder: tempfile::TempDir,
    switch: Child,
}

impl Running {
    /// With these ports; none, said visibly, where the test cannot run.
    fn start(what: &str, ports: &[&str]) -> Option<Running> {
        if !is_root() {
            skip(what, "it needs root (network namespaces)");
            return None;
        }
        let netns = Arc::new(netns::create().unwrap());
        netns::within(netns.as_fd(), || {
            for line in
                ["link set lo up", "link add p1 type veth peer name p2", "link set p1 up", "link set p2 up"]
            {
                assert!(
                    support::command("ip").args(line.split(' ')).status().unwrap().success(),
                    "ip {line}"
                );
            }
        })
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s.sock");
        let mut command = pathlab(&["switch", "--listen", &format!("punix:{}", socket.display())]);
        for port in ports {
            command.args(["--port", port]);
        }
        process::enter_and_die_with_parent(&mut command, netns.clone());
        let switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = Running { netns, _folder: folder, switch };
        until("the switch listens", || socket.exists());
        Some(running)
    }

    /// Bytes of each ring that its sockets have, as the kernel tells (packet_diag: receive and transmit, in turn).
    fn rings(&self) -> Vec<u64> {
        let mut command = support::command("ss");
        command.args(["-0", "-n", "-e"]);
        process::enter_and_die_with_parent(&mut command, self.netns.clone());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |ring: &str, name: &str| -> u64 {
            let rest = ring.split_once(name).unwrap_or_else(|| panic!("{name} in {text}")).1;
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
        };
        let each = text.split("ring_").skip(1);
        each.map(|ring| number(ring, "blk_size:") * number(ring, "blk_nr:")).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = process::interrupt(&self.switch);
        let _ = self.switch.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// 34 MiB for each port once; who asks for as much still gets it.
#[test]
fn rings_of_a_switch_are_small_unless_they_are_asked_for() {
    let what = "the rings of a switch";
    let Some(running) =
        Running::start(what, &["1=ring:p1", "2=ring:p2?block=256k&blocks=128&tx_frames=1024"])
    else {
        return;
    };
    let rings = running.rings();
    if rings.is_empty() {
        return skip(what, "ss of this host does not tell the rings of packet sockets");
    }
    let asked: Vec<u64> = rings.iter().copied().filter(|bytes| *bytes >= 32 << 20).collect();
    assert_eq!(asked, [32 << 20], "{rings:?}");
    let usual: u64 = rings.iter().sum::<u64>() - (32 << 20) - (2 << 20);
    assert!((1 << 20..10 << 20).contains(&usual), "{usual} B of {rings:?}");
}

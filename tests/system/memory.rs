//! The memory that `pathlab switch` takes, and gives back.

use crate::support::{self, is_root, pathlab, run_ok, skip};
use linux::sys::{netns, process};
use std::fmt::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A switch between interfaces in a namespace of its own.
struct Running {
    netns: Arc<OwnedFd>,
    folder: tempfile::TempDir,
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
        let running = Running { netns, folder, switch };
        // The socket is there before the ports are; an answer is not.
        until("the switch listens", || socket.exists());
        run_ok(&["flow", "show", &running.unix()]);
        Some(running)
    }

    fn unix(&self) -> String {
        format!("unix:{}/s.sock", self.folder.path().display())
    }

    /// Its resident memory, as the kernel counts it.
    fn rss_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.switch.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
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

#[test]
fn memory_goes_back_when_the_rules_are_gone() {
    const RULES: u32 = 60_000;
    let Some(running) = Running::start("the memory of rules", &["1=int:p1"]) else { return };
    let mut text = String::new();
    for number in 0..RULES {
        writeln!(
            text,
            "dl_dst=02:00:00:{:02x}:{:02x}:{:02x} actions=output:1",
            number >> 16,
            number >> 8 & 255,
            number & 255
        )
        .unwrap();
    }
    let file = running.folder.path().join("rules");
    std::fs::write(&file, text).unwrap();
    let (switch, file) = (running.unix(), file.display().to_string());
    let idle = running.rss_kib();
    assert_eq!(run_ok(&["flow", "add", &switch, "--file", &file]), format!("{RULES} rules added\n"));
    let full = running.rss_kib();
    assert!(full > idle + 10_000, "{idle} KiB idle, {full} KiB full: this test could not fail");
    assert_eq!(run_ok(&["flow", "del", &switch]), format!("{RULES} rules deleted\n"));
    until("half of the memory is given back", || running.rss_kib() < idle + (full - idle) / 2);
}

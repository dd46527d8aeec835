//! The memory that `pathlab switch` takes, and gives back.

use super::switched::{Switched, until};
use crate::support::{self, run_ok, skip};
use linux::sys::process;
use std::fmt::Write;

/// A switch with these ports, which answers.
fn start(what: &str, ports: &[&str]) -> Option<Switched> {
    let words = |_: &_| ports.iter().flat_map(|port| ["--port".to_owned(), (*port).to_owned()]).collect();
    let running = Switched::start(what, words)?;
    // The socket is there before the ports are; an answer is not.
    run_ok(&["flow", "show", &running.unix()]);
    Some(running)
}

impl Switched {
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
        process::enter(&mut command, self.netns.clone(), false);
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

/// 34 MiB for each port once; who asks for as much still gets it.
#[test]
fn rings_of_a_switch_are_small_unless_they_are_asked_for() {
    let what = "the rings of a switch";
    let Some(running) = start(what, &["1=ring:p1", "2=ring:p2?block=256Ki&blocks=128&tx_frames=1024"]) else {
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
    let Some(running) = start("the memory of rules", &["1=int:p1"]) else { return };
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

//! Filters in tcpdump's language, compiled by whichever of two programs this host has.
//!
//! **What.** [`compile`] asks libpcap, loaded at run time; where it cannot be loaded (a static binary loads no library),
//! `tcpdump -ddd`, which prints the program that its own libpcap made.
//!
//! **Why.** The language is what people know, and forty years of its corners are in that one compiler.
//!
//! **Price.** One of the two must be installed to filter. The result is checked by [`Program::new`] in both cases, and a
//! test compares the two.

use crate::sys::libpcap;
use record::{Problem, Result};
use std::io::Write;
use std::process::{Command, Stdio};
use wire::filter::{FilterInstruction, Program};

/// Compiles an expression (`man pcap-filter`) for frames of a link type (`LINKTYPE_…`); the program keeps `snap` bytes of
/// each frame that it wants.
///
/// # Errors
/// Input: the expression is wrong, in the compiler's words. Host: neither libpcap nor tcpdump is there.
pub fn compile(expression: &str, link: u16, snap: u32) -> Result<Program> {
    let wrong = |why: String| {
        Problem::input(format!("the filter '{expression}' cannot be compiled: {why}"))
            .help("the language is tcpdump's, see `man pcap-filter`")
    };
    let instructions = match libpcap::missing() {
        None => libpcap::compile(expression, link, snap),
        Some(why) => by_tcpdump(expression, link, snap).ok_or_else(|| {
            Problem::host(format!(
                "filters are compiled by libpcap, which cannot be loaded ({why}), or by tcpdump, which is not installed"
            ))
            .help("install tcpdump (or libpcap0.8, Fedora: libpcap, for a binary that is not static), or capture without a filter")
        })?,
    };
    Program::new(instructions.map_err(wrong)?).map_err(|refused| {
        Problem::input(format!("the filter '{expression}' cannot be run: {refused}"))
            .help("write it in another way")
    })
}

/// Instructions, or what is wrong with an expression.
type Compiled = std::result::Result<Vec<FilterInstruction>, String>;

/// The same by `tcpdump -ddd`; `None` when it cannot be started. It reads the link type and the snap length from the
/// header of an empty capture file, so it needs no interface and no permission.
fn by_tcpdump(expression: &str, link: u16, snap: u32) -> Option<Compiled> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/bin";
    let mut child = Command::new("tcpdump")
        .args(["-ddd", "-r", "-", "--", expression])
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    // It may have ended already, with something to say about the expression.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(&empty_capture(link, snap)));
    let output = child.wait_with_output().ok()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let why = words.lines().rev().find_map(|line| line.strip_prefix("tcpdump: ")).unwrap_or(words.trim());
        return Some(Err(why.to_owned()));
    }
    Some(instructions(&String::from_utf8_lossy(&output.stdout)))
}

/// The header of a pcap file without frames (`pcap-savefile(5)`).
fn empty_capture(link: u16, snap: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(24);
    header.extend(0xa1b2_c3d4_u32.to_ne_bytes());
    header.extend([2u16, 4].map(u16::to_ne_bytes).concat());
    header.extend([0, 0, snap, u32::from(link)].map(u32::to_ne_bytes).concat());
    header
}

/// Reads the lines of `tcpdump -ddd`: how many instructions there are, then `code jt jf k` of each, in decimal.
fn instructions(text: &str) -> Compiled {
    let mut lines = text.lines();
    let count = lines
        .next()
        .and_then(|line| line.trim().parse::<usize>().ok())
        .ok_or("tcpdump printed no program")?;
    let instructions: Vec<_> = lines.map_while(instruction).collect();
    if instructions.len() != count {
        return Err(format!("tcpdump announced {count} instructions and printed {}", instructions.len()));
    }
    Ok(instructions)
}

fn instruction(line: &str) -> Option<FilterInstruction> {
    let mut words = line.split_whitespace();
    Some(FilterInstruction {
        code: words.next()?.parse().ok()?,
        if_true: words.next()?.parse().ok()?,
        if_false: words.next()?.parse().ok()?,
        k: words.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both compilers, or a visible skip.
    fn both(expression: &str, link: u16, snap: u32) -> Option<(Compiled, Compiled)> {
        let theirs = by_tcpdump(expression, link, snap);
        if libpcap::missing().is_some() || theirs.is_none() {
            eprintln!("SKIP: filters by two compilers: libpcap or tcpdump is not installed");
        }
        Some((libpcap::compile(expression, link, snap), theirs?))
    }

    #[test]
    fn tcpdump_compiles_what_libpcap_compiles() {
        for (expression, link) in [
            ("", 1),
            ("tcp port 80", 1),
            ("vlan 5 and udp[8:2] == 0x704c", 1),
            ("not (ip6 or arp)", 1),
            ("-1 < len", 1),
            ("ip", 101),
        ] {
            for snap in [96, wire::pcap::MAX_FRAME] {
                let Some((ours, theirs)) = both(expression, link, snap) else { return };
                assert_eq!(
                    theirs.unwrap(),
                    ours.unwrap(),
                    "'{expression}' of link type {link}, {snap} bytes"
                );
            }
        }
    }

    #[test]
    fn tcpdump_says_what_is_wrong_with_an_expression() {
        let Some((ours, theirs)) = both("tcp prt 80", 1, 96) else { return };
        let (ours, theirs) = (ours.unwrap_err(), theirs.unwrap_err());
        assert!(theirs.contains("syntax error") && ours.contains("syntax error"), "{theirs}, {ours}");
        let problem = compile("tcp prt 80", 1, 96).unwrap_err();
        assert_eq!(problem.kind, record::ProblemKind::Input);
        let Some((_, theirs)) = both("ip protochain 6", 1, 96) else { return };
        assert!(Program::new(theirs.unwrap()).unwrap_err().to_string().contains("jumps out of the program"));
        let problem = compile("ip protochain 6", 1, 96).unwrap_err().to_string();
        assert!(
            problem.contains("cannot be run: ") && problem.contains("jumps out of the program"),
            "{problem}"
        );
    }

    #[test]
    fn a_program_that_is_cut_or_no_program_is_refused() {
        for text in ["", "two\n", "2\n6 0 0 1\n", "1\n6 0 0\n", "1\n6 0 0 99999999999\n"] {
            assert!(instructions(text).is_err(), "{text:?}");
        }
        assert!(instructions("1\n6 0 0 65535\n").is_ok());
    }
}

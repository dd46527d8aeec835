//! The floor: thin, safe functions over system calls. The only modules of this crate that may say `unsafe`.
#![allow(unsafe_code)]

use nix::errno::Errno;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub mod boot;
pub mod bpf;
pub mod bpf_ring;
pub mod clock;
pub mod cpu;
pub mod ethtool;
pub mod icmp;
pub mod libpcap;
pub mod mount;
pub mod netns;
pub mod notice;
pub mod packet;
pub mod perf;
pub mod perf_samples;
pub mod process;
pub mod ptp;
pub mod socket;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod userns;

/// The descriptor that a system call returned, or its error.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = Errno::result(result)?;
    // SAFETY: the kernel just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

//! The floor: thin, safe functions over system calls. The only modules of this crate that may say `unsafe`.
#![allow(unsafe_code)]

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
pub mod socket;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod userns;

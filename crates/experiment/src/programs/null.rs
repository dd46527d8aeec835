//! The smallest forwarder in a node.

use super::start::{interfaces, this_program, wait_for};
use linux::lab::{Forwarder, Lab, NodeSpec, ProgramLaunch};
use record::Result;
use std::ffi::OsString;

/// `pathlab null` between the two links.
pub fn start(lab: &mut Lab, node: &NodeSpec, forwarder: &Forwarder) -> Result<()> {
    let counters = lab.folder(&node.name)?.join("counters");
    let mut words: Vec<OsString> = vec!["null".into(), "--counters".into(), counters.clone().into()];
    words.extend(interfaces(lab, &node.name).iter().map(|name| forwarder.port(name).into()));
    let program = ProgramLaunch { counters: Some(counters), ..this_program(words)? };
    let program = lab.start(&node.name, "null", program)?;
    // It says so when both ports are open; that is its only sign.
    wait_for(&program, "forwards", || {
        std::fs::read_to_string(&program.log).is_ok_and(|said| said.contains("pathlab: forwarding "))
    })
}

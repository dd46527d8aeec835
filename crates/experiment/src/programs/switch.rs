//! A switch in a node, and its rules.
//!
//! Rules go to the switch through its own socket and as one list, so what the lab's text says is what the switch took, or
//! the lab is not built. A scenario gets a controller beside the switch, in the same node.

use super::start::{PATIENCE, interfaces, this_program, wait_for, wait_for_file};
use flow::client;
use flow::openflow::bytes::Version;
use flow::openflow::message::Body;
use flow::openflow::multipart::{Reply, Request};
use flow::pipeline::Change;
use flow::text::file;
use linux::lab::{Forwarder, Lab, NodeProgram, NodeSpec, ProgramLaunch};
use record::{Problem, Result};
use std::ffi::OsString;
use std::path::Path;
use switch::client::Client;
use switch::config::Remote;
use switch::scenario::body;

/// `pathlab switch` over the node's links.
pub fn switch(lab: &mut Lab, node: &NodeSpec, forwarder: &Forwarder, dpid: u64) -> Result<()> {
    let folder = lab.folder(&node.name)?;
    let (socket, meeting) = (folder.join("openflow"), folder.join("controller"));
    let mut words: Vec<OsString> = vec!["switch".into(), "--name".into(), node.name.clone().into()];
    words.extend(["--dpid".into(), format!("{dpid:#x}").into()]);
    words.extend(["--listen".into(), prefixed("punix:", &socket)]);
    for (number, interface) in (1..).zip(interfaces(lab, &node.name)) {
        words.extend(["--port".into(), format!("{number}={}", forwarder.port(&interface)).into()]);
    }
    words.extend(forwarder.engine.iter().flat_map(|engine| ["--engine".into(), engine.into()]));
    let controller = controller(lab, node, forwarder, &meeting)?;
    if controller.is_some() {
        words.extend(["--controller".into(), prefixed("unix:", &meeting)]);
    }
    if forwarder.standalone {
        words.extend(["--fail".into(), "standalone".into()]);
    }
    let program = lab.start(
        &node.name,
        "switch",
        ProgramLaunch { openflow: Some(socket.clone()), ..this_program(words)? },
    )?;
    fill(&program, controller.as_ref(), &socket, forwarder)
}

/// The controller of a scenario, waiting for its switch.
pub fn controller(
    lab: &mut Lab,
    node: &NodeSpec,
    forwarder: &Forwarder,
    meeting: &Path,
) -> Result<Option<NodeProgram>> {
    let Some(scenario) = &forwarder.scenario else { return Ok(None) };
    let words = vec!["controller".into(), scenario.into(), "--listen".into(), prefixed("punix:", meeting)];
    let program = lab.start(&node.name, "controller", this_program(words)?)?;
    wait_for_file(&program, meeting)?;
    Ok(Some(program))
}

/// Gives a switch that listens at a socket its rules, or waits until the controller has done so.
pub fn fill(
    program: &NodeProgram,
    controller: Option<&NodeProgram>,
    socket: &Path,
    forwarder: &Forwarder,
) -> Result<()> {
    wait_for_file(program, socket)?;
    let mut client = None;
    wait_for(program, "it speaks OpenFlow", || {
        client = call(socket).ok();
        client.is_some()
    })?;
    let Some(mut client) = client else { return Ok(()) };
    if let Some(controller) = controller {
        // Every scenario leaves at least one rule.
        return wait_for(controller, "the switch has its rules", || {
            count(&mut client).is_ok_and(|rules| rules > 0)
        });
    }
    // Open vSwitch begins with a rule of its own where it may be a bridge.
    let all = std::iter::once(Change::Flow(client::delete_all())).chain(rules(forwarder)?);
    let bodies: Vec<Body> = all.map(|change| body(&change)).collect();
    match client.change(&bodies)?.first() {
        None => Ok(()),
        Some(refusal) => {
            let text = refusal.index.checked_sub(1).and_then(|index| forwarder.rules.get(index));
            let text = text.map_or("to delete all rules", String::as_str);
            Err(Problem::input(format!("the switch refuses '{text}': {}", refusal.fault)))
        }
    }
}

/// Reads the rules of a node, with the groups and meters that they use.
///
/// # Errors
/// Input: the first that is none.
pub fn rules(forwarder: &Forwarder) -> Result<Vec<Change>> {
    let read =
        |text: &String| file::change(text).map_err(|error| Problem::input(format!("{error} in '{text}'")));
    forwarder.rules.iter().map(read).collect()
}

/// Calls a switch at its socket.
///
/// # Errors
/// As [`Client::call`].
pub fn call(socket: &Path) -> Result<Client> {
    Client::call(&Remote::Unix(socket.into()), None, &Version::ALL, PATIENCE)
}

/// How many rules a switch has.
fn count(client: &mut Client) -> Result<usize> {
    let all = client::flow_request(&client::delete_all());
    match client.multipart(Request::Flow(all))? {
        Reply::Flow(rules) => Ok(rules.len()),
        _ => Ok(0),
    }
}

/// `punix:` and the like before a path, whatever its bytes.
pub fn prefixed(prefix: &str, path: &Path) -> OsString {
    let mut word = OsString::from(prefix);
    word.push(path);
    word
}

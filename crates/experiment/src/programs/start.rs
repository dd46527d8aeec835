//! How a program is started in a node, and when it is ready.

use linux::lab::{Lab, NodeProgram, ProgramLaunch};
use linux::sys::process;
use record::{Problem, Result};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a program may take until it forwards.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);

/// The interfaces of a node's links, in the order of the file: ports 1, 2, ….
pub fn interfaces(lab: &Lab, node: &str) -> Vec<String> {
    lab.topology().interfaces(node).map(|interface| interface.name.clone()).collect()
}

/// This very program with these words.
pub fn this_program(words: Vec<OsString>) -> Result<ProgramLaunch> {
    Ok(ProgramLaunch {
        file: crate::process::this_program()?.into(),
        arguments: words,
        ..ProgramLaunch::default()
    })
}

/// Waits until a program is ready; one that has ended says why.
pub fn wait_for(program: &NodeProgram, what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        if process::interrupted() {
            return Err(Problem::host("interrupted while the lab was built; it is taken down again"));
        }
        let problem = |what: String| Problem::host(what).at(format!("node {}", program.node));
        if !program.alive() {
            let words = program.last_words();
            return Err(problem(format!("{} ended while it was started: {words}", program.role)));
        }
        if Instant::now() > deadline {
            let waited = PATIENCE.as_secs();
            return Err(problem(format!("{}: not ready ({what}) within {waited} s", program.role)));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until a socket or file of a program is there.
pub fn wait_for_file(program: &NodeProgram, path: &Path) -> Result<()> {
    wait_for(program, "its socket is there", || path.exists())
}

/// Waits until a program answers at a socket: its name is there a moment before anybody listens. Whoever is called hears a
/// caller that hangs up.
pub fn wait_for_answer(program: &NodeProgram, path: &Path) -> Result<()> {
    wait_for(program, "it listens at its socket", || UnixStream::connect(path).is_ok())
}

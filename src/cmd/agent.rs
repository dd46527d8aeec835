//! `pathlab agent`: one end of a test, started by pathlab itself inside a node; the conversation is on standard input.

use record::{Problem, Result};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Serves the controller on standard input until it closes the connection.
pub fn run() -> Result<()> {
    let stdin = std::io::stdin();
    let socket = stdin.as_fd().try_clone_to_owned().map(UnixStream::from);
    let socket = socket.and_then(|socket| socket.peer_addr().map(|_| socket));
    let socket = socket.map_err(|_| {
        Problem::input("standard input is not a socket")
            .help("agents are started by pathlab itself; use 'pathlab serve' to answer other machines")
    })?;
    // A terminal sends Ctrl-C to this process, too, and it is the controller who decides what becomes of the test.
    let _ = linux::sys::process::hold_back_interrupt();
    let controller = socket.try_clone();
    match load::conversation::agent::serve(socket, "the controller") {
        // It has said itself why it went: nobody waits for a second sentence.
        Err(_) if controller.is_ok_and(|controller| has_gone(&controller)) => Ok(()),
        other => other,
    }
}

/// Nobody has the other end any more.
fn has_gone(mut controller: &UnixStream) -> bool {
    let mut left = [0; 4096];
    if controller.set_nonblocking(true).is_err() {
        return false;
    }
    loop {
        match controller.read(&mut left) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

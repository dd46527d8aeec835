//! `pathlab agent`: one end of a test, started by pathlab itself inside a node; the conversation is on standard input.

use record::{Problem, Result};
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
    load::conversation::agent::serve(socket, "the controller")
}

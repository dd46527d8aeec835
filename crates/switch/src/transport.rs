//! What bytes to and from a peer go over: a socket that never blocks, or a session on one.

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// A connection that never blocks. What a socket alone does not know is that of a session: see [`crate::tls::Tls`].
pub trait Transport: Read + Write + AsFd + Debug + Send {
    /// The name of the other end, for people.
    fn name(&self) -> String;

    /// Whether something waits to be written that was already taken.
    fn wants_write(&self) -> bool {
        false
    }

    /// Whether there is something to read that poll does not report.
    fn holds(&self) -> bool {
        false
    }

    /// Whether both ends do not know each other yet.
    fn is_shaking_hands(&self) -> bool {
        false
    }

    /// Writes what can be of these bytes, and takes it off them; how many.
    ///
    /// # Errors
    /// The other end takes nothing any more.
    fn drain(&mut self, output: &mut Vec<u8>) -> io::Result<usize> {
        let written = if output.is_empty() { self.flush().map(|()| 0) } else { self.write(output) };
        match written {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            written => written.inspect(|count| drop(output.drain(..*count))),
        }
    }
}

impl Transport for TcpStream {
    fn name(&self) -> String {
        self.peer_addr().map_or("tcp".into(), |peer| format!("tcp:{peer}"))
    }
}

impl Transport for UnixStream {
    fn name(&self) -> String {
        "unix".into()
    }
}

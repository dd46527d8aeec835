//! Byte streams to controllers and clients: TCP or a unix socket, called or listened for, never blocking.

use crate::config::{Listen, Remote};
use record::{Problem, Result};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// How long a call to a controller may take.
pub const CALL: Duration = Duration::from_secs(5);

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Calls; blocks at most [`CALL`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn call(to: &Remote) -> io::Result<Stream> {
        let stream = match to {
            Remote::Tcp(address) => Stream::Tcp(TcpStream::connect_timeout(address, CALL)?),
            Remote::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        stream.prepare()?;
        Ok(stream)
    }

    fn prepare(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                // A reply is small and waited for.
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// Who is at the other end, for people.
    pub fn name(&self) -> String {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().map_or("tcp".into(), |peer| format!("tcp:{peer}")),
            Stream::Unix(_) => "unix".into(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(room),
            Stream::Unix(stream) => stream.read(room),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A place where a switch may be called. A unix socket's file is removed with it.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket, with its file.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// Input: the address is taken or not ours. A file that is left of a dead process is replaced; one that answers is
    /// not.
    pub fn open(at: &Listen) -> Result<Listener> {
        let bad = |e: io::Error| Problem::input(format!("cannot listen: {e}")).at(at.to_string());
        match at {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(bad)?;
                listener.set_nonblocking(true).map_err(bad)?;
                Ok(Listener::Tcp(listener))
            }
            Listen::Unix(path) => {
                let is_dead = UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
                if is_dead {
                    std::fs::remove_file(path).map_err(bad)?;
                }
                let listener = UnixListener::bind(path).map_err(bad)?;
                listener.set_nonblocking(true).map_err(bad)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    /// Takes a caller, if there is one.
    pub fn take(&self) -> Option<Stream> {
        let stream = match self {
            Listener::Tcp(listener) => Stream::Tcp(listener.accept().ok()?.0),
            Listener::Unix(listener, _) => Stream::Unix(listener.accept().ok()?.0),
        };
        stream.prepare().ok()?;
        Some(stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

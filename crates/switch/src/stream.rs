//! Byte streams to controllers and clients: TCP, TLS over it, or a unix socket, called or listened for, never blocking.

use crate::config::{HostPort, Listen, Remote};
use crate::tls::{Credentials, Tls};
use crate::transport::Transport;
use record::{Problem, Result};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// How long a call to a controller may take.
pub const CALL: Duration = Duration::from_secs(5);

/// What is said of TLS without key and certificates.
const NO_CREDENTIALS: &str = "TLS needs a private key, a certificate and the certificate of an authority";

/// The first address of a place that answers.
fn dial(place: &HostPort) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (place.host.as_str(), place.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CALL) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A reply is small and waited for, and nothing blocks.
fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A connection.
pub type Stream = Box<dyn Transport>;

/// Calls; blocks at most [`CALL`] for each address that a name has. The handshake of TLS has only begun then.
///
/// # Errors
/// What the kernel says; TLS is asked for and there are no credentials.
pub fn call(to: &Remote, credentials: Option<&Credentials>) -> io::Result<Stream> {
    match to {
        Remote::Tcp(place) => Ok(Box::new(prepared(dial(place)?)?)),
        Remote::Tls(place) => {
            let credentials = credentials.ok_or_else(|| io::Error::other(NO_CREDENTIALS))?;
            Ok(Box::new(Tls::call(prepared(dial(place)?)?, credentials)?))
        }
        Remote::Unix(path) => {
            let stream = UnixStream::connect(path).map_err(unix_words)?;
            stream.set_nonblocking(true)?;
            Ok(Box::new(stream))
        }
    }
}

/// The error of a unix socket, in words of its own where the path is too long: `sun_path` of `sockaddr_un` has 108 bytes.
fn unix_words(error: io::Error) -> io::Error {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::InvalidInput, None) => {
            io::Error::other("the path of a unix socket has at most 107 bytes, and no zero byte")
        }
        _ => error,
    }
}

/// A place where a switch may be called. A unix socket's file is removed with it.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// TLS over TCP.
    Tls(TcpListener, Box<Credentials>),
    /// A unix socket, with its file.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// Input: the address is taken or not ours. A file that is left of a dead process is replaced; one that answers is
    /// not. TLS is asked for and there are no credentials.
    pub fn open(at: &Listen, credentials: Option<&Credentials>) -> Result<Listener> {
        let bad = |e: io::Error| Problem::input(format!("cannot listen: {e}")).at(at.to_string());
        let bind = |address| {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        match at {
            Listen::Tcp(address) => Ok(Listener::Tcp(bind(address).map_err(bad)?)),
            Listen::Tls(address) => {
                let credentials = credentials.ok_or_else(|| bad(io::Error::other(NO_CREDENTIALS)))?;
                Ok(Listener::Tls(bind(address).map_err(bad)?, Box::new(credentials.clone())))
            }
            Listen::Unix(path) => {
                // The kernel refuses a connection to a file of another kind, too.
                let is_socket = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
                let is_dead = is_socket
                    && UnixStream::connect(path)
                        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
                if is_dead {
                    std::fs::remove_file(path).map_err(bad)?;
                }
                let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
                    ErrorKind::AddrInUse if !is_socket => {
                        bad(io::Error::other("there is a file that is not a socket"))
                            .help("name another place, or remove the file")
                    }
                    _ => bad(unix_words(error)),
                })?;
                listener.set_nonblocking(true).map_err(bad)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    /// Where it listens: for the TCP port 0 with the one that the kernel chose.
    ///
    /// # Errors
    /// Host: the kernel does not say it.
    pub fn place(&self) -> Result<Listen> {
        let address = |listener: &TcpListener| {
            listener
                .local_addr()
                .map_err(|e| Problem::host(format!("cannot ask where a socket listens: {e}")))
        };
        Ok(match self {
            Listener::Tcp(listener) => Listen::Tcp(address(listener)?),
            Listener::Tls(listener, _) => Listen::Tls(address(listener)?),
            Listener::Unix(_, path) => Listen::Unix(path.clone()),
        })
    }

    /// Takes a caller, if there is one.
    pub fn take(&self) -> Option<Stream> {
        self.accept().ok()
    }

    /// Takes a caller.
    ///
    /// # Errors
    /// `WouldBlock` when no caller waits; what the kernel says, which may be about this one caller or about all.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => Ok(Box::new(prepared(listener.accept()?.0)?)),
            Listener::Tls(listener, credentials) => {
                let socket = prepared(listener.accept()?.0)?;
                Ok(Box::new(Tls::take(socket, credentials)?))
            }
            Listener::Unix(listener, _) => {
                let stream = listener.accept()?.0;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
        }
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
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_that_the_kernel_chose_is_told() {
        let listener = Listener::open(&Listen::parse("ptcp:0:127.0.0.1").unwrap(), None).unwrap();
        let Listen::Tcp(address) = listener.place().unwrap() else { unreachable!("it is TCP") };
        assert!(address.port() > 0);
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn a_socket_of_a_dead_process_is_replaced_and_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let at = Listen::Unix(path.clone());
        // What std binds stays when it is dropped.
        let long = Listen::Unix(path.with_file_name("l".repeat(108)));
        let refused = Listener::open(&long, None).unwrap_err().to_string();
        assert!(refused.ends_with("a unix socket has at most 107 bytes, and no zero byte"), "{refused}");
        drop(UnixListener::bind(&path).unwrap());
        let first = Listener::open(&at, None).unwrap();
        assert!(Listener::open(&at, None).unwrap_err().to_string().contains("in use"));
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "of somebody").unwrap();
        let refused = Listener::open(&at, None).unwrap_err().to_string();
        assert!(refused.contains("a file that is not a socket"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of somebody");
    }
}

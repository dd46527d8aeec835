//! Network namespaces as file descriptors.
//!
//! `setns` changes only the calling thread, so work inside a namespace runs on a thread of its own that ends with it;
//! sockets and files opened there stay bound to that namespace and may then be used from anywhere.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;

use nix::sched::{CloneFlags, setns, unshare};

use super::socket;

/// `include/uapi/asm-generic/socket.h`.
const SO_NETNS_COOKIE: i32 = 71;

/// Runs `work` inside the namespace, on a thread of its own. The namespace of the caller needs no permission.
pub fn within<T: Send>(netns: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| -> io::Result<T> {
            if !is_current(netns).unwrap_or(false) {
                setns(netns, CloneFlags::CLONE_NEWNET)?;
            }
            Ok(work())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The calling thread is in that namespace; numbers of files are those of one file system.
fn is_current(netns: BorrowedFd<'_>) -> io::Result<bool> {
    let number = |file: OwnedFd| File::from(file).metadata().map(|about| (about.dev(), about.ino()));
    Ok(number(netns.try_clone_to_owned()?)? == number(current()?)?)
}

/// Moves the calling thread into the namespace, for good.
pub fn enter(netns: BorrowedFd<'_>) -> io::Result<()> {
    Ok(setns(netns, CloneFlags::CLONE_NEWNET)?)
}

/// Makes a new network namespace, held only by the returned descriptor (needs `CAP_SYS_ADMIN` in the user namespace).
pub fn create() -> io::Result<OwnedFd> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| -> io::Result<OwnedFd> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            current()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The namespace of the calling thread.
pub fn current() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// The number that identifies a namespace on this machine (`ns.inum`, as `lsns` shows it).
pub fn inode(netns: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(File::from(netns.try_clone_to_owned()?).metadata()?.ino())
}

/// What no other namespace has until the next boot (Linux 5.14), while a number is given again.
pub fn cookie(netns: BorrowedFd<'_>) -> io::Result<u64> {
    within(netns, || {
        let mut bytes = [0; 8];
        socket::get(UnixDatagram::unbound()?, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    })?
}

/// True when both descriptors name the same namespace.
pub fn same(a: impl AsFd, b: impl AsFd) -> io::Result<bool> {
    Ok(inode(a.as_fd())? == inode(b.as_fd())?)
}

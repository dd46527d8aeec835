//! Being woken: several descriptors at once, another thread.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of the descriptors is as it is asked, or has failed, at most so long; none waits for ever. False when the
/// time is over, or a signal came.
///
/// # Errors
/// What ppoll(2) says.
pub fn poll(asked: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<bool> {
    match ppoll(asked, limit.map(TimeSpec::from_duration), None) {
        Err(Errno::EINTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// What a descriptor is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// It can be read, or its end can be noticed by reading.
    pub read: bool,
    /// It can be written.
    pub write: bool,
}

/// Waits until one of the descriptors can be read (or written, where that is wanted), or the time is over.
///
/// # Errors
/// As [`poll`]; nothing is ready when a signal came.
pub fn wait(descriptors: &[(BorrowedFd<'_>, bool)], time: Duration) -> io::Result<Vec<Ready>> {
    let each = descriptors.iter().map(|(fd, write)| (*fd, Ready { read: true, write: *write }));
    wait_each(&each.collect::<Vec<_>>(), time)
}

/// The same where not everything is to be read: the end of a descriptor is noticed nevertheless, and is `read`.
///
/// # Errors
/// As [`wait`].
pub fn wait_each(descriptors: &[(BorrowedFd<'_>, Ready)], time: Duration) -> io::Result<Vec<Ready>> {
    let flags = |wanted: &Ready| {
        let read = if wanted.read { PollFlags::POLLIN } else { PollFlags::empty() };
        read | if wanted.write { PollFlags::POLLOUT } else { PollFlags::empty() }
    };
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|(fd, wanted)| PollFd::new(*fd, flags(wanted))).collect();
    poll(&mut polled, Some(time))?;
    let ended = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    let ready = |polled: &PollFd<'_>| {
        let flags = polled.revents().unwrap_or(PollFlags::empty());
        Ready {
            read: flags.intersects(PollFlags::POLLIN | ended),
            write: flags.intersects(PollFlags::POLLOUT | PollFlags::POLLERR),
        }
    };
    Ok(polled.iter().map(ready).collect())
}

/// Wakes a thread that waits for a descriptor.
#[derive(Debug)]
pub struct Waker(EventFd);

impl Waker {
    /// One that nobody has woken.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // It fails only when it is readable already, 2^64 times over.
        let _ = self.0.write(1);
    }

    /// Makes it sleep again.
    pub fn calm(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_to_be_read_wakes_nobody_until_it_ends() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &other, b"x").unwrap();
        let look =
            |read, write| wait_each(&[(one.as_fd(), Ready { read, write })], Duration::ZERO).unwrap()[0];
        assert_eq!(look(true, false), Ready { read: true, write: false });
        assert_eq!(look(false, false), Ready::default());
        assert_eq!(look(false, true), Ready { read: false, write: true });
        drop(other);
        assert!(look(false, false).read);
    }

    #[test]
    fn a_waker_is_readable_until_it_is_calmed() {
        let waker = Waker::new().unwrap();
        let look = || wait(&[(waker.as_fd(), false)], Duration::ZERO).unwrap()[0].read;
        assert!(!look());
        waker.wake();
        waker.wake();
        assert!(look() && look());
        waker.calm();
        assert!(!look());
        let begun = std::time::Instant::now();
        assert!(!wait(&[(waker.as_fd(), false)], Duration::from_millis(20)).unwrap()[0].read);
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}

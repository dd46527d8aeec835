//! Interfaces that come while a flow is counted.
//!
//! **What.** [`Newcomers::listen`] asks the kernel to tell of interfaces that come, go or change in some namespaces (`RTNLGRP_LINK`); a thread then lets
//! the counters look again ([`super::flow_counters`]) whenever something was told.
//!
//! **Why.** A container that starts, a tunnel that is set up, a port that is replaced give a flow a way that was not there at the beginning. Without
//! counters on it the flow ends, for the ledger, at the last interface that was there before.
//!
//! **Price.** A socket for each namespace and a thread that sleeps. An interface is counted some 10 to 40 ms after it came, most of it the kernel's wait for all
//! CPUs when a program is attached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::netlink::LinkNotice;
use crate::sys::netns;
use crate::sys::notice::{Waker, wait};

/// A wait without a notice; its end changes nothing.
const LONG: Duration = Duration::from_secs(3600);

/// A namespace with its name.
pub(super) type CountedNode<'a> = (String, BorrowedFd<'a>);

/// A namespace that is listened to.
struct Listening {
    name: String,
    netns: OwnedFd,
    notice: LinkNotice,
}

/// Namespaces that are listened to, before somebody waits.
pub(super) struct Listeners(Vec<Listening>);

/// Counts newcomers until it is dropped.
#[derive(Debug)]
pub(super) struct Newcomers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Debug)]
struct Shared {
    waker: Waker,
    done: AtomicBool,
}

impl Newcomers {
    /// Listens in these namespaces.
    ///
    /// # Errors
    /// The sentence why one cannot be listened to.
    pub(super) fn listen(nodes: &[CountedNode<'_>]) -> Result<Listeners, String> {
        let listen = |(name, namespace): &CountedNode<'_>| {
            let notice = netns::within(*namespace, LinkNotice::new).and_then(|notice| notice);
            let listening = notice.and_then(|notice| {
                Ok(Listening { name: name.clone(), netns: namespace.try_clone_to_owned()?, notice })
            });
            listening.map_err(|error| {
                format!("the interfaces that come in {name} cannot be listened for: {error}")
            })
        };
        Ok(Listeners(nodes.iter().map(listen).collect::<Result<_, _>>()?))
    }
}

impl Listeners {
    /// Waits for notices in a thread of its own, which looks again at all namespaces when something was told.
    ///
    /// # Errors
    /// The sentence why it cannot.
    pub(super) fn wait(
        self,
        look_again: impl FnMut(&[CountedNode<'_>]) + Send + 'static,
    ) -> Result<Newcomers, String> {
        let refused = |error: std::io::Error| format!("nobody can wait for interfaces that come: {error}");
        let shared = Arc::new(Shared { waker: Waker::new().map_err(refused)?, done: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("flow-newcomers".into())
            .spawn(move || self.until_done(&theirs, look_again))
            .map_err(refused)?;
        Ok(Newcomers { shared, thread: Some(thread) })
    }

    fn until_done(&self, shared: &Shared, mut look_again: impl FnMut(&[CountedNode<'_>])) {
        let nodes: Vec<CountedNode<'_>> =
            self.0.iter().map(|node| (node.name.clone(), node.netns.as_fd())).collect();
        let notices = self.0.iter().map(|node| (node.notice.as_fd(), false));
        let sources: Vec<_> = std::iter::once((shared.waker.as_fd(), false)).chain(notices).collect();
        while !shared.done.load(Relaxed) {
            if wait(&sources, LONG).is_err() {
                return;
            }
            // All of them: what was told to one is looked for in all.
            let told = self.0.iter().filter(|node| node.notice.take()).count();
            if told > 0 && !shared.done.load(Relaxed) {
                look_again(&nodes);
            }
        }
    }
}

impl Drop for Newcomers {
    fn drop(&mut self) {
        self.shared.done.store(true, Relaxed);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

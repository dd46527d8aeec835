//! Interfaces, and namespaces, that come while a flow is counted.
//!
//! **What.** [`Newcomers::listen`] asks the kernel to tell of interfaces that come, go or change in some namespaces (`RTNLGRP_LINK`); a thread then lets
//! the counters look again ([`super::flow_counters`]) whenever something was told. With a [`NamespaceWatch`] it also lets go the namespaces that
//! everybody else has left, and takes in those that come.
//!
//! **Why.** A container that starts, a tunnel that is set up, a port that is replaced give a flow a way that was not there at the beginning. Without
//! counters on it the flow ends, for the ledger, at the last interface that was there before. And a container that was stopped would keep its
//! address on the bridge for as long as its namespace is open here.
//!
//! **Price.** A socket for each namespace and a thread that sleeps. An interface is counted some 10 to 40 ms after it came, most of it the kernel's wait for all
//! CPUs when a program is attached. The kernel tells nobody of namespaces: they are looked for when an interface changed, which is how they are
//! connected, and four times a second (less often where that takes more than a hundredth of the time).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::namespace::{NamespaceChanges, NamespaceWatch};
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
pub(super) struct Listeners {
    here: Vec<Listening>,
    watch: Option<NamespaceWatch>,
}

/// Counts newcomers until it is dropped.
#[derive(Debug)]
pub(super) struct Newcomers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told, and what it tells.
#[derive(Debug)]
struct Shared {
    waker: Waker,
    done: AtomicBool,
    changes: Mutex<NamespaceChanges>,
}

impl Listening {
    fn begin(name: &str, namespace: BorrowedFd<'_>) -> Result<Listening, String> {
        let notice = netns::within(namespace, LinkNotice::new).and_then(|notice| notice);
        let listening = notice.and_then(|notice| {
            Ok(Listening { name: name.to_owned(), netns: namespace.try_clone_to_owned()?, notice })
        });
        listening
            .map_err(|error| format!("the interfaces that come in {name} cannot be listened for: {error}"))
    }
}

impl Newcomers {
    /// Listens in these namespaces, and in those that come.
    ///
    /// # Errors
    /// The sentence why one cannot be listened to.
    pub(super) fn listen(
        nodes: &[CountedNode<'_>],
        watch: Option<NamespaceWatch>,
    ) -> Result<Listeners, String> {
        let listen = |(name, namespace): &CountedNode<'_>| Listening::begin(name, *namespace);
        Ok(Listeners { here: nodes.iter().map(listen).collect::<Result<_, _>>()?, watch })
    }

    /// Namespaces that went and came since this was asked before. Whoever asks has to let go of those that went, too.
    pub(super) fn changes(&self) -> NamespaceChanges {
        std::mem::take(&mut *self.shared.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Listeners {
    /// Waits for notices in a thread of its own, which looks again at all namespaces when something was told; what cannot be listened to is told
    /// with it.
    ///
    /// # Errors
    /// The sentence why it cannot.
    pub(super) fn wait(
        self,
        look_again: impl FnMut(&[CountedNode<'_>], Vec<String>) + Send + 'static,
    ) -> Result<Newcomers, String> {
        let refused = |error: std::io::Error| format!("nobody can wait for interfaces that come: {error}");
        let shared = Arc::new(Shared {
            waker: Waker::new().map_err(refused)?,
            done: AtomicBool::new(false),
            changes: Mutex::default(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("flow-newcomers".into())
            .spawn(move || self.until_done(&theirs, look_again))
            .map_err(refused)?;
        Ok(Newcomers { shared, thread: Some(thread) })
    }

    fn until_done(mut self, shared: &Shared, mut look_again: impl FnMut(&[CountedNode<'_>], Vec<String>)) {
        while !shared.done.load(Relaxed) {
            let notices = self.here.iter().map(|node| (node.notice.as_fd(), false));
            let sources: Vec<_> = std::iter::once((shared.waker.as_fd(), false)).chain(notices).collect();
            if wait(&sources, self.watch.as_ref().map_or(LONG, NamespaceWatch::pause)).is_err() {
                return;
            }
            // All of them: what was told to one is looked for in all.
            let told = self.here.iter().filter(|node| node.notice.take()).count();
            let (is_changed, refused) = self.change(shared);
            if (told > 0 || is_changed) && !shared.done.load(Relaxed) {
                let nodes: Vec<CountedNode<'_>> =
                    self.here.iter().map(|node| (node.name.clone(), node.netns.as_fd())).collect();
                look_again(&nodes, refused);
            }
        }
    }

    /// Lets go what went and takes in what came; whether there was any, and what could not be taken in.
    fn change(&mut self, shared: &Shared) -> (bool, Vec<String>) {
        let changes = self.watch.as_mut().map(NamespaceWatch::changes).unwrap_or_default();
        if changes.is_empty() {
            return (false, vec![]);
        }
        self.here.retain(|node| !changes.went.contains(&node.name));
        let came = changes.came.iter().map(|(name, file)| Listening::begin(name, file.as_fd()));
        let mut refused = vec![];
        for listening in came {
            match listening {
                Ok(listening) => self.here.push(listening),
                Err(why) => refused.push(why),
            }
        }
        let mut told = shared.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for name in changes.went {
            // One that came and went before anybody asked is nobody's to let go.
            match told.came.iter().position(|(came, _)| *came == name) {
                Some(index) => drop(told.came.remove(index)),
                None => told.went.push(name),
            }
        }
        told.came.extend(changes.came);
        (true, refused)
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

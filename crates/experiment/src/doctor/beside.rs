//! Facts of all nodes of a lab while frames of a test flow.
//!
//! **Price.** Two readings of all facts beside the test. A test whose frames end before the window is over has less in it.

use super::{FactWish, take_when};
use linux::lab::{Lab, Node};
use linux::sys::netns;
use record::delta::sum;
use record::facts::Facts;
use record::{Delta, Problem, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked whether frames flow.
const LOOK: Duration = Duration::from_millis(50);
/// This many frames in that time count as traffic.
const SOME: u64 = 5;

/// Facts, and whether frames flowed when they were taken.
pub struct Taken {
    /// Of all nodes.
    pub facts: Facts,
    /// Frames flowed when the window began; otherwise the work was over by then.
    pub flowed: bool,
}

/// What came of some work that sends frames from a node, and the facts that were taken over a window meanwhile.
///
/// # Errors
/// Input: there is no such node. Host: a node cannot be kept.
pub fn facts<T>(
    lab: &Lab,
    from: &str,
    window: Duration,
    work: impl FnOnce() -> T,
) -> Result<(T, Result<Taken>)> {
    let own = |node: &Node| -> Result<(String, OwnedFd)> {
        let lost = |error| Problem::host(format!("the node {} cannot be kept: {error}", node.name()));
        Ok((node.name().to_owned(), node.netns().as_fd().try_clone_to_owned().map_err(lost)?))
    };
    let nodes = lab.nodes().iter().map(own).collect::<Result<_>>()?;
    let wish = FactWish { nodes: Some(nodes), interface: None, window };
    let (sender, ended) = (lab.node(from)?.netns(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut flowed = false;
            let ready = || {
                flowed = until_it_sends(|| sent(sender.as_fd()), || ended.load(Ordering::Relaxed));
                Ok(())
            };
            let facts = take_when(&wish, ready, |_| {})?;
            Ok(Taken { facts, flowed })
        });
        let done = work();
        ended.store(true, Ordering::Relaxed);
        let died = |_| Err(Problem::host("facts could not be taken"));
        Ok((done, watch.join().unwrap_or_else(died)))
    })
}

/// Waits until frames flow, or the test is over; whether they flow.
fn until_it_sends(sent: impl Fn() -> Option<u64>, is_over: impl Fn() -> bool) -> bool {
    let mut before = sent();
    while !is_over() {
        std::thread::sleep(LOOK);
        let now = sent();
        let moved = before.zip(now).and_then(|(before, now)| Delta::of(before, now).known());
        if moved.is_some_and(|moved| moved >= SOME) {
            return true;
        }
        before = now;
    }
    false
}

/// Frames that a namespace sent by all its interfaces, whatever is in them; none when it cannot be read.
fn sent(namespace: std::os::fd::BorrowedFd<'_>) -> Option<u64> {
    let text =
        netns::within(namespace, || std::fs::read_to_string("/proc/thread-self/net/dev")).ok()?.ok()?;
    Some(frames_sent(&text))
}

/// The sum of a column of `/proc/net/dev`: behind each interface's name there are eight numbers of what it received, then bytes and frames that it sent.
fn frames_sent(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| line.split_once(':'));
    sum(numbers.filter_map(|(_, numbers)| numbers.split_ascii_whitespace().nth(9)?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_interfaces_are_summed() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs|bytes packets errs\n    \
                    lo:  1 2 3 4 5 6 7 8 90 10 11 12\n  eth0:1 2 3 4 5 6 7 8 90 32 11 12\n";
        assert_eq!((frames_sent(text), frames_sent(""), frames_sent("eth0: 1")), (42, 0, 0));
    }

    #[test]
    fn it_waits_until_much_is_sent_or_the_test_is_over() {
        let calls = std::cell::Cell::new(0);
        let sent = || {
            calls.set(calls.get() + 1);
            [Some(0), Some(2), None, Some(20), Some(21), Some(40), Some(41)][calls.get() - 1]
        };
        assert!(until_it_sends(sent, || false));
        assert_eq!(calls.get(), 6);
        assert!(!until_it_sends(|| None, || true));
    }
}

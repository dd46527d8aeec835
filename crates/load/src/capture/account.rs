//! The account of a capture against its interface.
//!
//! **What.** Counters of the interface are read before and after; what it received (and sent, where that is captured) must
//! be what was captured, came after the end, was filtered, or was lost at a named place. What is left is the residual.
//!
//! **Why so.** Each place has one source, and sources are never added into each other: `rx_missed_errors` and its kind are
//! frames that the interface never counted as received (`nic`); `rx_dropped` is beside the account, because the kernel
//! counts there frames before *and* after the point where a capture sees them; softnet's drops belong to the whole host.
//!
//! **Uncertainty.** Frames that passed between opening the port and the first reading, and while the last frames were
//! taken; 0 when nothing moved then. Super-frames add the pieces that an interface may have counted instead of them.

use linux::observe::Observer;
use linux::observe::queues::{Queue, Queues};
use linux::port::Uri;
use record::capture::{CaptureAccount, QueueCount};
use record::snapshot::Counters;
use record::{NamedCount, PlaceDrop, Snapshot};

/// Counters of an interface that are frames lost in it (include/uapi/linux/if_link.h).
const NIC: [&str; 7] = [
    "rx_missed_errors",
    "rx_over_errors",
    "rx_fifo_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_errors",
];

/// Counters of frames lost in the kernel, before or behind the point where a capture sees them.
const KERNEL: [&str; 3] = ["rx_dropped", "rx_nohandler", "rx_otherhost_dropped"];

/// An interface that is watched.
pub struct Watch {
    observer: Observer,
    queues: Result<Queues, String>,
    interface: String,
    received: bool,
    sent: bool,
    /// Everything that the last reading saw.
    pub last: Snapshot,
    /// Why a reading failed, the first time.
    trouble: Option<String>,
}

/// Its counters at one instant.
#[derive(Debug, Clone)]
pub struct Reading {
    link: Counters,
    queues: Result<Vec<Queue>, String>,
    softnet_dropped: u64,
    flow_limit: u64,
}

/// What the capture knows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Frames captured.
    pub captured: u64,
    /// Frames after the end.
    pub after: u64,
    /// Frames filtered, where they are counted.
    pub filtered: Option<u64>,
    /// Frames lost by the port.
    pub lost: u64,
    /// Pieces that super-frames stand for, beyond themselves.
    pub pieces: u64,
}

/// The four readings: before the port was opened, when it was open, when it was to end, when it had ended.
#[derive(Debug, Clone, Default)]
pub struct Readings(pub [Option<Reading>; 4]);

/// Which interface a port takes its frames from, and which of its counters count them: received, sent.
pub fn interface_of(uri: &str, outgoing: bool) -> Option<(String, bool, bool)> {
    let uri = Uri::parse(uri).ok()?;
    match uri.kind.as_str() {
        "int" | "ring" => Some((uri.rest, true, outgoing)),
        "xdp" => Some((uri.rest, true, false)),
        // What the kernel sends through a tap is what its reader receives.
        "tap" => Some((uri.rest, false, true)),
        _ => None,
    }
}

impl Watch {
    /// Watches the interface of a port in the namespace of the calling thread; none for a port without one, or when
    /// counters cannot be read here.
    pub fn open(uri: &str, outgoing: bool) -> Option<Watch> {
        let (interface, received, sent) = interface_of(uri, outgoing)?;
        let (observer, queues) = (Observer::host().ok()?, Queues::open());
        Some(Watch { observer, queues, interface, received, sent, last: Snapshot::default(), trouble: None })
    }

    /// Reads it; none when it is not there, or cannot be read now: [`Watch::close`] says why.
    pub fn read(&mut self) -> Option<Reading> {
        let read = self.try_read();
        if let Err(why) = &read {
            self.trouble.get_or_insert_with(|| why.clone());
        }
        read.ok()
    }

    fn try_read(&mut self) -> Result<Reading, String> {
        self.last = self.observer.snapshot(&[]).map_err(|problem| problem.to_string())?;
        let snapshot = &self.last;
        let link =
            snapshot.nodes.values().next().and_then(|node| node.link(&self.interface)).ok_or_else(|| {
                let missing = snapshot.missing.first().map(|why| format!(" ({why})")).unwrap_or_default();
                format!("{} is not among the interfaces{missing}", self.interface)
            })?;
        let queues = match &mut self.queues {
            Ok(queues) => queues.read(link.index),
            Err(why) => Err(why.clone()),
        };
        Ok(Reading {
            link: link.counters.clone(),
            queues,
            softnet_dropped: snapshot.softnet.iter().map(|row| row.dropped).sum(),
            flow_limit: snapshot.softnet.iter().map(|row| row.flow_limit).sum(),
        })
    }

    /// Closes the account.
    pub fn close(&self, readings: &Readings, known: &Known) -> CaptureAccount {
        let mut account = CaptureAccount {
            interface: self.interface.clone(),
            captured: known.captured,
            after: known.after,
            filtered: known.filtered,
            lost: known.lost,
            ..CaptureAccount::default()
        };
        let [Some(before), Some(open), Some(ending), Some(ended)] = &readings.0 else {
            let why = self.trouble.as_deref().unwrap_or("it was not read");
            account.unknown = format!("the counters of the interface could not be read to the end: {why}");
            return account;
        };
        account.received = self.received.then(|| delta(open, ended, "rx_packets")).flatten();
        account.sent = self.sent.then(|| delta(open, ended, "tx_packets")).flatten();
        let passed = |from, to| {
            let side = |counts, name| if counts { delta(from, to, name).unwrap_or(0) } else { 0 };
            side(self.received, "rx_packets") + side(self.sent, "tx_packets")
        };
        account.uncertainty = passed(before, open) + passed(ending, ended) + known.pieces;
        let place = |place: &str, names: &[&str]| -> Vec<PlaceDrop> {
            let drop = |name: &&str| {
                let count = delta(open, ended, name)?;
                Some(PlaceDrop { place: place.into(), name: (*name).into(), count })
            };
            names.iter().filter_map(drop).collect()
        };
        if self.received {
            account.beside = [place("nic", &NIC), place("kernel", &KERNEL)].concat();
            match (&open.queues, &ended.queues) {
                (Ok(open), Ok(ended)) => account.queues = by_queue(open, ended),
                (Err(why), _) | (_, Err(why)) => account.queues_unknown.clone_from(why),
            }
        }
        let host = |name: &str, from: u64, to: u64| PlaceDrop {
            place: "kernel".into(),
            name: name.into(),
            count: to.saturating_sub(from),
        };
        account.host_wide = vec![
            host("softnet_dropped", open.softnet_dropped, ended.softnet_dropped),
            host("flow_limit", open.flow_limit, ended.flow_limit),
        ];
        let total = account.received.unwrap_or(0) + account.sent.unwrap_or(0);
        match known.filtered {
            None => {
                account.unknown =
                    "the kernel ran the filter and does not count what it refused; the rest of the interface's frames \
                     are filtered or lost before the socket"
                        .into();
            }
            Some(filtered) => {
                let explained = known.captured + known.after + filtered + known.lost;
                account.residual = Some(total as i64 - explained as i64);
            }
        }
        account
    }
}

fn delta(from: &Reading, to: &Reading, name: &str) -> Option<u64> {
    to.link.get(name)?.checked_sub(*from.link.get(name)?)
}

/// What the queues that were there all the time counted between two readings.
fn by_queue(from: &[Queue], to: &[Queue]) -> Vec<QueueCount> {
    let count = |to: &Queue| {
        let from = from.iter().find(|queue| queue.number == to.number)?;
        let grown = |name: &str| to.counters.get(name)?.checked_sub(*from.counters.get(name)?);
        let drops = to.counters.keys().filter(|name| *name != "rx_packets");
        Some(QueueCount {
            queue: to.number,
            received: grown("rx_packets"),
            drops: drops
                .filter_map(|name| Some(NamedCount { name: name.clone(), count: grown(name)? }))
                .collect(),
        })
    };
    to.iter().filter_map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(rx: u64, tx: u64, missed: u64) -> Option<Reading> {
        let link = [("rx_packets", rx), ("tx_packets", tx), ("rx_missed_errors", missed)];
        let link = link.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let queue = |number, drops: u64| Queue {
            number,
            counters: [("rx_packets".to_owned(), rx / 2), ("rx_hw_drops".to_owned(), drops)].into(),
        };
        let queues = Ok(vec![queue(0, 7), queue(1, 7 + missed)]);
        Some(Reading { link, queues, softnet_dropped: 5, flow_limit: 0 })
    }

    fn watch() -> Option<Watch> {
        Watch::open("ring:lo", true)
    }

    #[test]
    fn the_account_closes_over_both_directions_and_says_how_sure_it_is() {
        let Some(watch) = watch() else { return eprintln!("SKIP: the account: no netlink") };
        let readings =
            Readings([reading(10, 10, 0), reading(12, 10, 0), reading(100, 60, 3), reading(104, 60, 3)]);
        let known = Known { captured: 130, after: 4, filtered: Some(5), lost: 2, pieces: 0 };
        let account = watch.close(&readings, &known);
        assert_eq!((account.received, account.sent), (Some(92), Some(50)));
        assert_eq!((account.residual, account.uncertainty), (Some(1), 6));
        assert_eq!(
            account.beside[0],
            PlaceDrop { place: "nic".into(), name: "rx_missed_errors".into(), count: 3 }
        );
        assert_eq!(account.host_wide[0].count, 0);
        let told: Vec<_> = account.queues.iter().map(|q| (q.queue, q.received, q.drops[0].count)).collect();
        assert_eq!(told, [(0, Some(46), 0), (1, Some(46), 3)], "which queue was overrun");
        assert!(account.queues_unknown.is_empty());
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let Some(watch) = watch() else { return eprintln!("SKIP: the account: no netlink") };
        let mut readings = Readings([reading(0, 0, 0), reading(0, 0, 0), reading(9, 9, 0), reading(9, 9, 0)]);
        let account = watch.close(&readings, &Known { captured: 3, ..Known::default() });
        assert!(account.residual.is_none() && account.unknown.contains("filter"), "{account:?}");
        if let Some(reading) = &mut readings.0[1] {
            reading.queues = Err("the driver does not count by queue".into());
        }
        let account = watch.close(&readings, &Known::default());
        assert_eq!(
            (account.queues.len(), account.queues_unknown.as_str()),
            (0, "the driver does not count by queue")
        );
        readings.0[3] = None;
        let account = watch.close(&readings, &Known { filtered: Some(0), ..Known::default() });
        assert!(account.residual.is_none() && account.received.is_none() && !account.unknown.is_empty());
    }
}

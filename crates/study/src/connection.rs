//! What the readings of one connection say together.
//!
//! **What.** [`ConnectionStudy`] takes one reading after the other and keeps what is needed for the end: the first and the last, extremes,
//! the round-trip times, and how often something else began to hold the sender back.
//!
//! **Price.** A few fields and one count for each different round-trip time; readings are not kept.

use crate::tcp::decompose;
use crate::verdict;
use record::connection::{Attributed, ConnectionReport, Extremes, LimitChanges, Reading, state_name};
use record::tcp::{TcpDecomposition, TcpSample};
use record::{Delta, Histogram};
use std::collections::BTreeMap;

/// What held a connection back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Application,
    ReceiverWindow,
    SendBuffer,
    Network,
}

/// One connection over time.
#[derive(Debug, Clone)]
pub struct ConnectionStudy {
    last: Reading,
    samples: u64,
    first: Option<TcpSample>,
    held: Option<Held>,
    changes: LimitChanges,
    rtts: BTreeMap<u32, u64>,
    extremes: BTreeMap<&'static str, Extremes>,
    /// It was in the latest sample.
    pub is_there: bool,
}

impl ConnectionStudy {
    /// Begins with its first reading; the time of a reading is in its sample.
    pub fn begin(reading: Reading) -> ConnectionStudy {
        let mut study = ConnectionStudy {
            first: reading.sample,
            last: reading,
            samples: 1,
            held: None,
            changes: LimitChanges::default(),
            rtts: BTreeMap::new(),
            extremes: BTreeMap::new(),
            is_there: true,
        };
        study.note();
        study
    }

    /// Begins with the first reading of a connection that was not there at the sample before, at that time: it has counted from zero since.
    pub fn begin_new(reading: Reading, before_ns: u64) -> ConnectionStudy {
        let zero = |sample: TcpSample| TcpSample {
            at_ns: before_ns.min(sample.at_ns),
            stream: sample.stream,
            total_rto: sample.total_rto.map(|_| 0),
            ..TcpSample::default()
        };
        let first = reading.sample.map(zero);
        ConnectionStudy { first, ..Self::begin(reading) }
    }

    /// The next reading.
    pub fn add(&mut self, reading: Reading) {
        if let Some((before, now)) = self.last.sample.zip(reading.sample) {
            self.note_change(&before, &now);
        }
        self.first = self.first.or(reading.sample);
        (self.last, self.is_there) = (reading, true);
        self.samples += 1;
        self.note();
    }

    /// The latest reading.
    pub fn last(&self) -> &Reading {
        &self.last
    }

    fn note(&mut self) {
        let Some(sample) = self.last.sample else { return };
        // No round trip was measured yet.
        if sample.rtt_us > 0 {
            *self.rtts.entry(sample.rtt_us).or_default() += 1;
            self.extreme("rtt", sample.rtt_us.into());
        }
        self.extreme("snd_cwnd", sample.cwnd.into());
        self.extreme("delivery_rate", sample.delivery_rate);
        self.extreme("notsent_bytes", sample.notsent_bytes.into());
        if let Some(window) = sample.snd_wnd {
            self.extreme("snd_wnd", window.into());
        }
        self.extreme("receive_queue", self.last.receive_queue.into());
        self.extreme("send_queue", self.last.send_queue.into());
    }

    fn extreme(&mut self, name: &'static str, value: u64) {
        let known = self.extremes.entry(name).or_insert(Extremes { min: value, max: value });
        *known = Extremes { min: known.min.min(value), max: known.max.max(value) };
    }

    fn note_change(&mut self, before: &TcpSample, now: &TcpSample) {
        let Some(parts) = decompose(&[*before, *now]) else { return };
        let held = held(&parts);
        if self.held != Some(held) {
            let count = match held {
                Held::Application => &mut self.changes.application,
                Held::ReceiverWindow => &mut self.changes.receiver_window,
                Held::SendBuffer => &mut self.changes.send_buffer,
                Held::Network => &mut self.changes.network,
            };
            *count += 1;
            self.held = Some(held);
        }
    }

    /// All that can be said; `words` are the attributes of the latest reading.
    pub fn report(&self, words: Attributed) -> ConnectionReport {
        let connection = &self.last.connection;
        let ends = self.first.zip(self.last.sample).filter(|(first, last)| first.at_ns < last.at_ns);
        let time = ends.and_then(|(first, last)| decompose(&[first, last]));
        let grown = |of: fn(&TcpSample) -> u64| {
            ends.and_then(|(first, last)| Delta::of(of(&first), of(&last)).known())
        };
        // What an older kernel does not return reads as 0 in a sample, and is not known.
        let tells = |field: &str| words.info.contains_key(field);
        let time = time.filter(|_| tells("sndbuf_limited"));
        let bytes_sent = grown(|sample| sample.bytes_sent).filter(|_| tells("bytes_sent"));
        let bytes_received = grown(|sample| sample.bytes_received).filter(|_| tells("bytes_received"));
        let is_known = |name: &str| name.ends_with("_queue") || tells(name);
        let extremes = self.extremes.iter().filter(|(name, _)| is_known(name));
        let extremes = extremes.map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let sent = bytes_sent.is_some_and(|bytes| bytes > 0);
        let seconds = ends.map_or(0.0, |(first, last)| (last.at_ns - first.at_ns) as f64 / 1e9);
        let limit = time.as_ref().filter(|_| sent).map(|time| {
            verdict::connection(
                time,
                &connection.node,
                &connection.peer.to_string(),
                self.last.sample.as_ref(),
            )
        });
        ConnectionReport {
            node: connection.node.clone(),
            local: connection.local.to_string(),
            peer: connection.peer.to_string(),
            cookie: connection.cookie,
            inode: Some(connection.inode).filter(|inode| *inode != 0),
            uid: connection.uid,
            state: state_name(self.last.state),
            is_gone: !self.is_there,
            congestion: words.congestion,
            receive_queue: self.last.receive_queue,
            send_queue: self.last.send_queue,
            samples: self.samples,
            seconds,
            info: words.info,
            raw: words.raw,
            extremes,
            rtt_ns: self.rtts(),
            changes: time.map(|_| self.changes),
            time,
            bytes_sent,
            bytes_received,
            limit,
        }
    }

    fn rtts(&self) -> Option<record::Latency> {
        let mut all = Histogram::new();
        for (rtt_us, times) in &self.rtts {
            (0..*times).for_each(|_| all.record(u64::from(*rtt_us) * 1000));
        }
        all.summary()
    }
}

/// Which part is the largest; the network where two are alike.
fn held(parts: &TcpDecomposition) -> Held {
    let all = [
        (parts.application_us, Held::Application),
        (parts.send_buffer_us, Held::SendBuffer),
        (parts.receiver_window_us, Held::ReceiverWindow),
        (parts.network_us, Held::Network),
    ];
    all.into_iter().max_by_key(|(time, _)| *time).map_or(Held::Network, |(_, held)| held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::connection::Connection;

    fn reading(at_ms: u64, sample: TcpSample) -> Reading {
        let connection = Connection {
            node: "a".into(),
            local: "10.0.0.1:1".parse().unwrap(),
            peer: "10.0.0.2:2".parse().unwrap(),
            cookie: 9,
            inode: 0,
            uid: 0,
        };
        let sample = Some(TcpSample { at_ns: at_ms * 1_000_000, ..sample });
        Reading { connection, state: 1, receive_queue: 0, send_queue: 7, sample, attributes: vec![] }
    }

    fn words() -> Attributed {
        let known = ["bytes_sent", "sndbuf_limited", "rtt", "snd_cwnd"];
        Attributed { info: known.map(|name| (name.to_owned(), 1)).into(), ..Attributed::default() }
    }

    #[test]
    fn one_reading_has_no_time_and_no_verdict() {
        let report = ConnectionStudy::begin(reading(0, TcpSample { rtt_us: 300, ..Default::default() }))
            .report(words());
        assert_eq!((report.time, report.changes, report.limit, report.bytes_sent), (None, None, None, None));
        assert_eq!((report.rtt_ns.unwrap().max / 1000, report.inode), (300, None));
    }

    #[test]
    fn a_connection_that_began_meanwhile_counts_from_zero() {
        let sample = TcpSample { bytes_sent: 700, busy_us: 4000, ..TcpSample::default() };
        let mut study = ConnectionStudy::begin_new(reading(20, sample), 10_000_000);
        let report = study.report(words());
        assert_eq!((report.bytes_sent, report.samples, report.seconds), (Some(700), 1, 0.01));
        assert_eq!(report.time.unwrap().application_us, 6000);
        study.add(reading(30, TcpSample { bytes_sent: 900, ..sample }));
        assert_eq!(study.report(words()).bytes_sent, Some(900));
        let mut known = ConnectionStudy::begin(reading(20, sample));
        known.add(reading(30, TcpSample { bytes_sent: 900, ..sample }));
        assert_eq!(known.report(words()).bytes_sent, Some(200));
    }

    #[test]
    fn what_holds_back_is_counted_when_it_begins() {
        let mut sample = TcpSample::default();
        let mut study = ConnectionStudy::begin(reading(0, sample));
        // Four intervals of the receiver's window, two of the application, one of the network; then the window again.
        let life = [(10, 9), (10, 9), (10, 9), (10, 9), (0, 0), (0, 0), (10, 0), (10, 10)];
        for (index, (busy, window)) in life.into_iter().enumerate() {
            sample.busy_us += busy * 1000;
            sample.rwnd_limited_us += window * 1000;
            sample.bytes_sent += 100;
            study.add(reading((index as u64 + 1) * 10, sample));
        }
        let report = study.report(words());
        let changes = LimitChanges { application: 1, receiver_window: 2, send_buffer: 0, network: 1 };
        assert_eq!((report.changes, report.samples, report.bytes_sent), (Some(changes), 9, Some(800)));
        let time = report.time.unwrap();
        assert_eq!(
            (time.wall_us, time.receiver_window_us, time.network_us, time.application_us),
            (80_000, 46_000, 14_000, 20_000)
        );
        assert_eq!(report.limit.unwrap().what, "receiver_window");
        let idle = ConnectionStudy { first: study.last.sample, ..study.clone() };
        assert_eq!(idle.report(words()).limit, None);
    }

    #[test]
    fn what_an_old_kernel_does_not_tell_is_not_known() {
        let mut study = ConnectionStudy::begin(reading(0, TcpSample::default()));
        study.add(reading(10, TcpSample { bytes_sent: 5, ..TcpSample::default() }));
        let report = study.report(Attributed::default());
        assert_eq!((report.time, report.changes, report.limit), (None, None, None));
        assert_eq!((report.bytes_sent, report.bytes_received), (None, None));
        assert_eq!(report.extremes.keys().collect::<Vec<_>>(), ["receive_queue", "send_queue"]);
    }

    #[test]
    fn extremes_are_those_of_all_readings() {
        let of = |cwnd, rtt_us| TcpSample { cwnd, rtt_us, ..Default::default() };
        let mut study = ConnectionStudy::begin(reading(0, of(10, 0)));
        study.add(reading(1, of(3, 500)));
        study.add(reading(2, of(40, 200)));
        let report = study.report(words());
        assert_eq!(report.extremes["snd_cwnd"], Extremes { min: 3, max: 40 });
        assert_eq!(report.extremes["rtt"], Extremes { min: 200, max: 500 });
        assert_eq!(report.rtt_ns.unwrap().count, 2, "no round trip had been measured at the first");
    }
}

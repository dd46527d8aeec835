//! TCP connections of some namespaces, read again and again.
//!
//! **What.** [`run`] asks every namespace for its connections at fixed times, gives each reading to the study of its connection, and says at
//! the end what each did and what held it back. A connection that comes is taken in, one that goes stays in the report.
//!
//! **Price.** A sample asks the kernel twice for each namespace; how long that took, and how many times passed without a sample, is in the
//! report. Nothing is changed.

use linux::namespace::NamespaceWatch;
use linux::observe::{TcpSockets, tcp_sockets};
use linux::sys::{clock, process};
use record::connection::{ConnectionFilter, TcpReport, TcpSampleLine, state_name};
use record::{Histogram, Problem, Result};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use study::connection::ConnectionStudy;

/// The longest sleep without a look at interrupts.
const TURN_NS: u64 = 20_000_000;

/// What is to be done.
pub struct TcpWish {
    /// The namespaces with their names.
    pub nodes: Vec<(String, OwnedFd)>,
    /// What tells which of them go and which come; none where they stay.
    pub namespaces: Option<NamespaceWatch>,
    /// Which connections.
    pub filter: ConnectionFilter,
    /// Time between two samples; none: one sample.
    pub interval: Option<Duration>,
    /// End after that time.
    pub duration: Option<Duration>,
    /// Whether every connection of every sample is told.
    pub samples: bool,
}

/// Who is told while it goes on. What returns false ends it: nobody reads any more.
pub trait TcpListener {
    /// The first sample was taken.
    fn begun(&mut self) -> Result<()>;
    /// A connection in a sample.
    fn sample(&mut self, line: &TcpSampleLine) -> Result<bool>;
}

/// Samples until its end and reports.
///
/// # Errors
/// Host: a namespace cannot be entered, or the kernel does not tell.
pub fn run(mut wish: TcpWish, listener: &mut dyn TcpListener) -> Result<TcpReport> {
    let mut sampling = Sampling::start(&mut wish)?;
    let wish = &mut wish;
    let mut goes_on = sampling.sample(wish, listener)?;
    listener.begun()?;
    let ended = match wish.interval {
        None => "once",
        Some(interval) => loop {
            if !goes_on {
                break "reader_gone";
            }
            if let Some(ended) = sampling.wait(interval, wish.duration) {
                break ended;
            }
            sampling.keep_up(wish);
            goes_on = sampling.sample(wish, listener)?;
        },
    };
    Ok(sampling.report(wish, ended))
}

/// What was read so far.
struct Sampling {
    sockets: Vec<(String, TcpSockets)>,
    /// When each namespace was last read: what it had then is known.
    read_ns: BTreeMap<String, u64>,
    /// Also those that went.
    nodes: Vec<String>,
    studies: BTreeMap<(String, u64), ConnectionStudy>,
    epoch_ns: u64,
    begun_ns: u64,
    next_ns: u64,
    last_ns: u64,
    samples: u64,
    missed: u64,
    took: Histogram,
    cpu_ns: u64,
}

impl Sampling {
    fn start(wish: &mut TcpWish) -> Result<Sampling> {
        // From here on they are held open by their sockets alone.
        let nodes = std::mem::take(&mut wish.nodes);
        let open = |(name, file): &(String, OwnedFd)| {
            let sockets = TcpSockets::open(name, file.as_fd(), wish.filter.states());
            Ok((name.clone(), sockets.map_err(|error| untold(name, &error))?))
        };
        let sockets = nodes.iter().map(open).collect::<Result<_>>()?;
        clock::precise_timers();
        let begun_ns = clock::monotonic_ns();
        Ok(Sampling {
            sockets,
            read_ns: BTreeMap::new(),
            nodes: nodes.into_iter().map(|(name, _)| name).collect(),
            studies: BTreeMap::new(),
            epoch_ns: clock::realtime_ns().saturating_sub(begun_ns),
            begun_ns,
            next_ns: begun_ns,
            last_ns: begun_ns,
            samples: 0,
            missed: 0,
            took: Histogram::new(),
            cpu_ns: 0,
        })
    }

    /// Lets go of namespaces that everybody else has left, and takes in those that came.
    fn keep_up(&mut self, wish: &mut TcpWish) {
        let changes = wish.namespaces.as_mut().map(NamespaceWatch::changes_in_time).unwrap_or_default();
        self.sockets.retain(|(name, _)| !changes.went.contains(name));
        for (name, file) in changes.came {
            // One that went again at once has no connections.
            if let Ok(sockets) = TcpSockets::open(&name, file.as_fd(), wish.filter.states()) {
                self.read_ns.remove(&name);
                self.sockets.push((name.clone(), sockets));
                self.nodes.retain(|known| *known != name);
                self.nodes.push(name);
            }
        }
    }

    /// Reads every connection once; false when nobody reads any more.
    fn sample(&mut self, wish: &TcpWish, listener: &mut dyn TcpListener) -> Result<bool> {
        let (begun, cpu) = (clock::monotonic_ns(), clock::thread_cpu_ns());
        let (mut goes_on, mut lines) = (true, vec![]);
        self.studies.values_mut().for_each(|study| study.is_there = false);
        for (node, sockets) in &mut self.sockets {
            let read = sockets.read().map_err(|error| untold(node, &error))?;
            let at_ns = clock::monotonic_ns();
            // A connection may come into one of the wanted states with what it counted in others.
            let before = self.read_ns.insert(node.clone(), at_ns - self.begun_ns);
            let before = before.filter(|_| wish.filter.has_all_connected());
            for mut reading in read.into_iter().filter(|reading| wish.filter.wants(&reading.connection)) {
                if let Some(sample) = &mut reading.sample {
                    sample.at_ns = at_ns - self.begun_ns;
                }
                let key = (node.clone(), reading.connection.cookie);
                if wish.samples {
                    lines.push((key.clone(), at_ns));
                }
                match self.studies.entry(key) {
                    std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().add(reading),
                    std::collections::btree_map::Entry::Vacant(new) => {
                        new.insert(match before {
                            Some(before_ns) => ConnectionStudy::begin_new(reading, before_ns),
                            None => ConnectionStudy::begin(reading),
                        });
                    }
                }
            }
        }
        self.last_ns = clock::monotonic_ns();
        self.samples += 1;
        self.took.record(self.last_ns - begun);
        self.cpu_ns += clock::thread_cpu_ns() - cpu;
        for (key, at_ns) in lines {
            goes_on &= listener.sample(&self.line(&self.studies[&key], at_ns))?;
        }
        Ok(goes_on)
    }

    fn line(&self, study: &ConnectionStudy, at_ns: u64) -> TcpSampleLine {
        let reading = study.last();
        let connection = &reading.connection;
        TcpSampleLine {
            schema: "pathlab/tcp-sample/1".into(),
            at_ns: at_ns + self.epoch_ns,
            node: connection.node.clone(),
            local: connection.local.to_string(),
            peer: connection.peer.to_string(),
            cookie: connection.cookie,
            state: state_name(reading.state),
            receive_queue: reading.receive_queue,
            send_queue: reading.send_queue,
            info: tcp_sockets::describe(&reading.attributes).info,
        }
    }

    /// Waits for the time of the next sample; why it ended, if it did. Times that have passed are missed, not made up for; those after
    /// the end are none.
    fn wait(&mut self, interval: Duration, duration: Option<Duration>) -> Option<&'static str> {
        let step_ns = interval.as_nanos().max(1) as u64;
        let end_ns = duration.map_or(u64::MAX, |duration| self.begun_ns + duration.as_nanos() as u64);
        self.next_ns += step_ns;
        self.miss(clock::monotonic_ns().saturating_add(1).min(end_ns), step_ns);
        loop {
            if process::interrupted() {
                process::forget_interrupt();
                return Some("interrupted");
            }
            let now = clock::monotonic_ns();
            if now >= end_ns {
                self.miss(end_ns, step_ns);
                return Some("duration");
            }
            if now >= self.next_ns {
                return None;
            }
            clock::sleep_until(self.next_ns.min(now + TURN_NS).min(end_ns));
        }
    }

    /// Counts the times of samples before `until_ns`, from the next one on, as missed.
    fn miss(&mut self, until_ns: u64, step_ns: u64) {
        let missed = until_ns.saturating_sub(self.next_ns).div_ceil(step_ns);
        self.missed += missed;
        self.next_ns += missed * step_ns;
    }

    fn report(self, wish: &TcpWish, ended: &str) -> TcpReport {
        let report = |study: &ConnectionStudy| study.report(tcp_sockets::describe(&study.last().attributes));
        TcpReport {
            schema: "pathlab/tcp/1".into(),
            nodes: self.nodes,
            filter: wish.filter.text().map(str::to_owned),
            seconds: (self.last_ns - self.begun_ns) as f64 / 1e9,
            ended: ended.into(),
            interval_ns: wish.interval.map(|interval| interval.as_nanos() as u64),
            samples: self.samples,
            missed: self.missed,
            sample_ns: self.took.summary(),
            cpu_ns: self.cpu_ns,
            connections: self.studies.values().map(report).collect(),
        }
    }
}

fn untold(node: &str, error: &std::io::Error) -> Problem {
    Problem::host(format!("the connections of {node} cannot be read: {error}")).remedy(error)
}

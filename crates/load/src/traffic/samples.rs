//! `TCP_INFO` over time: read by a thread of its own while the test runs.

use super::threads::joined;
use linux::sys::{clock, tcp};
use record::TcpSample;
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

/// How often `TCP_INFO` is read.
const PERIOD: Duration = Duration::from_millis(50);
/// How often a sampler looks whether the test has begun.
const BEFORE: Duration = Duration::from_millis(10);
/// The most readings that are kept; then every second one is thrown away and the period doubles.
const SAMPLES: usize = 16_384;

/// Second handles to the connections of a test: for reading `TCP_INFO`, and to keep them open until the end.
pub struct Registry {
    streams: Vec<OnceLock<TcpStream>>,
}

impl Registry {
    /// Room for so many connections.
    pub fn new(streams: u32) -> Self {
        Registry { streams: (0..streams).map(|_| OnceLock::new()).collect() }
    }

    /// Adds a connection; none when there is no such index or it is taken.
    pub fn add(&self, index: u32, stream: &TcpStream) -> Option<()> {
        self.streams.get(index as usize)?.set(stream.try_clone().ok()?).ok()
    }

    /// True when every connection is there.
    pub fn is_full(&self) -> bool {
        self.streams.iter().all(|stream| stream.get().is_some())
    }

    /// Reads `TCP_INFO` of every connection until `done`, beginning when `first_ns` is not 0. The list is bounded:
    /// a long test is sampled more coarsely.
    pub fn sample(&self, first_ns: &AtomicU64, done: &AtomicBool) -> Vec<TcpSample> {
        let mut samples = Vec::with_capacity(SAMPLES + self.streams.len());
        let mut period = PERIOD;
        loop {
            let last = done.load(Acquire);
            let first = first_ns.load(Acquire);
            if first > 0 {
                self.read(first, &mut samples);
            }
            if last {
                return samples;
            }
            if samples.len() >= SAMPLES {
                self.thin(&mut samples);
                period *= 2;
            }
            std::thread::park_timeout(if first > 0 { period } else { BEFORE });
        }
    }

    fn read(&self, first_ns: u64, samples: &mut Vec<TcpSample>) {
        for (stream, socket) in (0..).zip(&self.streams) {
            if let Some(Ok(sample)) = socket.get().map(tcp::sample) {
                let at_ns = clock::monotonic_ns().saturating_sub(first_ns);
                samples.push(TcpSample { at_ns, stream, ..sample });
            }
        }
    }

    /// Keeps every second reading of each connection.
    fn thin(&self, samples: &mut Vec<TcpSample>) {
        let mut seen = vec![0u32; self.streams.len()];
        samples.retain(|sample| {
            let seen = &mut seen[sample.stream as usize];
            *seen += 1;
            *seen % 2 == 1
        });
    }
}

/// Runs `work` while a second thread reads `TCP_INFO`.
pub fn with_samples<T>(
    registry: &Registry,
    first_ns: &AtomicU64,
    work: impl FnOnce() -> T,
) -> (T, Vec<TcpSample>) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| registry.sample(first_ns, &done));
        let result = work();
        done.store(true, Release);
        sampler.thread().unpark();
        (result, joined(sampler))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_every_second_reading_of_each_connection() {
        let registry = Registry::new(2);
        let mut samples: Vec<_> = (0..8)
            .map(|n| TcpSample { at_ns: n / 2, stream: (n % 2) as u32, ..TcpSample::default() })
            .collect();
        registry.thin(&mut samples);
        let kept: Vec<_> = samples.iter().map(|s| (s.at_ns, s.stream)).collect();
        assert_eq!(kept, [(0, 0), (0, 1), (2, 0), (2, 1)]);
    }
}

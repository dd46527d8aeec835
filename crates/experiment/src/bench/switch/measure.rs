//! One round of one arm: frames, TCP, ping.

use super::arm::Standing;
use super::rules::WireRules;
use super::{Score, Wanted};
use crate::bench::pairing::{RateAndCost, between, received};
use crate::measure::{address, carry_out, start};
use linux::lab::{Lab, Node};
use linux::netlink::OffloadFeature;
use linux::port::live::{Live, LiveFrame, LiveOptions, Pace};
use load::conversation::controller::NoObserver;
use load::traffic::threads::joined;

use record::snapshot::ProcessSample;
use record::{Delta, Problem, ProblemKind, Result, TestSpec, TrafficKind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use study::test::figures;

/// The interface of both hosts.
const INTERFACE: &str = "eth0";

/// Everything that is wanted of an arm, once. What it could not carry in a round before is not tried again.
pub fn score(
    standing: &Standing,
    rules: &WireRules,
    wanted: &Wanted,
    before: Option<&Score>,
) -> Result<Score> {
    if linux::sys::process::interrupted() {
        return Err(Problem::host("interrupted"));
    }
    let lab = standing.lab()?;
    let mut score = frames(standing, rules, wanted.milliseconds)?;
    if wanted.only_frames {
        return Ok(score);
    }
    let failed = |figure: fn(&Score) -> Option<f64>| before.is_some_and(|before| figure(before).is_none());
    let milliseconds = wanted.milliseconds;
    if !failed(|score| score.tcp_bps) {
        score.tcp_bps = score.carried("TCP", tcp(lab, milliseconds))?;
    }
    if !failed(|score| score.tcp_bps_without_offloads) {
        let measured = without_offloads(lab, || tcp(lab, milliseconds));
        score.tcp_bps_without_offloads = score.carried("TCP without offloads", measured)?;
    }
    if !failed(|score| score.ping_ns) {
        score.ping_ns = score.carried("ping", ping(lab, milliseconds))?;
    }
    Ok(score)
}

impl Score {
    /// A figure; none, with the reason noted, of what did not get through.
    fn carried(&mut self, what: &str, measured: Result<f64>) -> Result<Option<f64>> {
        match measured {
            Err(problem) if problem.kind == ProblemKind::Measured => {
                self.not_carried.push(format!("{what}: {problem}"));
                Ok(None)
            }
            measured => measured.map(Some),
        }
    }
}

/// Frames as fast as the generator makes them.
fn frames(standing: &Standing, rules: &WireRules, milliseconds: u64) -> Result<Score> {
    let lab = standing.lab()?;
    let frames = rules.frames.iter().map(|bytes| LiveFrame { bytes: bytes.clone(), message: None });
    let wish = LiveOptions { frames: frames.collect(), open_peer: true, ..LiveOptions::default() };
    let mut live = lab.node("a")?.within(|| Live::open(INTERFACE, &format!("live:{INTERFACE}"), &wish))??;
    let (stop, sink) = (AtomicBool::new(false), lab.node("b")?);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| live.pace(&Pace::default(), |_| !stop.load(Relaxed)));
        let mut samples = vec![];
        let flowed = between(&|| received(sink, INTERFACE), milliseconds, || samples.push(standing.sample()));
        stop.store(true, Relaxed);
        joined(sending)?;
        let RateAndCost { frames, mfps, host_ns_per_frame } = flowed?;
        let used = |at: usize| samples.get(at)?.as_ref().map(|sample: &ProcessSample| sample.cpu_ns);
        let spent = Delta::between(used(0), used(1)).known();
        let last = samples.pop().flatten();
        Ok(Score {
            frames_per_s: mfps * 1e6,
            program_ns_per_frame: spent.map(|spent| spent as f64 / frames.max(1.0)),
            host_ns_per_frame,
            ram_bytes: last.map(|sample| sample.rss_bytes as f64),
            ..Score::default()
        })
    })
}

/// A TCP stream from a to b, bits per second.
fn tcp(lab: &Lab, milliseconds: u64) -> Result<f64> {
    let spec = TestSpec { kind: TrafficKind::TcpStream, duration_ms: milliseconds, size: 0, ..spec() };
    let outcome = outcome(lab, &spec)?;
    Ok(figures(&spec, &outcome.sender, &outcome.receiver, None).throughput_bps)
}

/// The median round trip.
fn ping(lab: &Lab, milliseconds: u64) -> Result<f64> {
    let spec = TestSpec { kind: TrafficKind::Ping, duration_ms: milliseconds, size: 56, ..spec() };
    let latency = outcome(lab, &spec)?.sender.latency;
    latency.map(|latency| latency.p50 as f64).ok_or_else(|| Problem::measured("no reply came"))
}

fn spec() -> TestSpec {
    TestSpec { from: "a".into(), to: "b".into(), ..TestSpec::default() }
}

/// Carries a test out from a to b, without observers.
pub fn outcome(lab: &Lab, spec: &TestSpec) -> Result<load::Outcome> {
    let (mut sender, mut receiver) = (start(lab.node("a")?)?, start(lab.node("b")?)?);
    let to = address(lab, "b", 4)?;
    carry_out(spec, [&mut sender, &mut receiver], to, &mut NoObserver)
}

/// Does something while all offloads of both hosts are off.
fn without_offloads<T>(lab: &Lab, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let hosts = [lab.node("a")?, lab.node("b")?];
    let off: BTreeMap<_, _> = OffloadFeature::ALL.into_iter().map(|one| (one, false)).collect();
    let before: Vec<_> = hosts.iter().map(|host| switched(host, &off)).collect::<Result<_>>()?;
    let value = work();
    for (host, before) in hosts.iter().zip(&before) {
        switched(host, before)?;
    }
    value
}

/// Switches the offloads of a host; what they were.
fn switched(
    host: &Node,
    offloads: &BTreeMap<OffloadFeature, bool>,
) -> Result<BTreeMap<OffloadFeature, bool>> {
    let links = host.links()?;
    let gone = || Problem::host(format!("{INTERFACE} of node {} is gone", host.name()));
    let index = links.iter().find(|link| link.name == INTERFACE).ok_or_else(gone)?.index;
    host.ask(|netlink| {
        let before = netlink.offloads(index)?;
        netlink.set_offloads(index, offloads)?;
        Ok(before)
    })
}

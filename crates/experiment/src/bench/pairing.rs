//! One measurement of `pathlab bench null`: a source, a forwarder, a sink.

use linux::lab::{Lab, Node};
use linux::port::live::{Live, LiveFrame, LiveOptions, Pace};
use linux::port::{
    Direction, Frames, Hand, MAX_BATCH, Meta, Port, PortOptions, Receiver, Transmitter, Wait, open,
};
use linux::sys::{clock, process};
use load::null::{RunningCounters, one_way, shared_area};
use load::traffic::threads::joined;
use record::{PortKind, Problem, Result, Through};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What flows before it is measured: the generator makes its calls longer in that time.
const WARM_UP_NS: u64 = 300_000_000;
/// How often who waits for the end looks for an interrupt.
const LOOK_NS: u64 = 100_000_000;
/// How long a thread waits before it looks whether it is to end.
const PATIENCE: Wait = Wait::For(Duration::from_millis(20));

/// A kind of port, as in the name of one.
pub type Kind = &'static str;

/// All that are measured.
pub const KINDS: [Kind; 5] = ["mem", "int", "ring", "xdp", "tap"];

fn goes_through(kind: Kind, through: Through) -> bool {
    PortKind::named(kind).is_some_and(|kind| kind.through == through)
}

/// The port's name at one side of x (1 or 2).
fn uri(kind: Kind, side: u8) -> String {
    match PortKind::named(kind).map(|kind| kind.through) {
        Some(Through::Memory) => format!("{kind}:bench{side}"),
        Some(Through::Tap) => format!("{kind}:t{side}"),
        _ => format!("{kind}:p{side}"),
    }
}

/// One round of one pairing.
#[derive(Debug, Clone, Serialize)]
pub struct Score {
    /// A million frames a second at the sink.
    pub mfps: f64,
    /// Times the forwarder copied a frame.
    pub copies_per_frame: f64,
    /// CPU of the forwarder's thread, by received frame.
    pub cpu_ns_per_frame: Option<f64>,
    /// Busy CPU of the host, by delivered frame.
    pub host_ns_per_frame: f64,
}

/// Where it is measured, and how.
pub struct MeasurementSetup<'a> {
    /// The lab a — x — b, with the forwarder in x.
    pub wire: &'a Lab,
    /// The lab with the kernel's bridge.
    pub bridge: &'a Lab,
    /// Milliseconds of each measurement.
    pub milliseconds: u64,
    /// Bytes of a frame, without FCS.
    pub size: usize,
}

/// A port of the forwarder, and the far end where it is a wire in memory.
type Ends = (Port, Option<Port>);

/// Offers frames as long as there is room for them, until told to stop.
type Source = Box<dyn FnOnce(&AtomicBool) -> Result<()> + Send>;

/// Where they are counted.
enum Sink<'a> {
    Interface(&'a Node, &'static str),
    Drained(Box<dyn Receiver>),
}

impl MeasurementSetup<'_> {
    /// Opens both ports, to see whether that can be done here.
    pub fn rehearse(&self, from: Kind, to: Kind) -> Result<()> {
        let ((_, feed), _) = &mut self.open(from, to)?;
        self.source(from, feed).map(drop)
    }

    fn open(&self, from: Kind, to: Kind) -> Result<(Ends, Ends)> {
        let (first, second) = (uri(from, 1), uri(to, 2));
        self.wire.node("x")?.within(|| {
            let area = shared_area(&[&first, &second])?;
            let ends = |kind, uri: &str, direction| -> Result<Ends> {
                // A wire in memory that lacks a half is closed for good, so its ends are opened whole.
                let whole = goes_through(kind, Through::Memory);
                let wish = PortOptions {
                    direction: if whole { Direction::Both } else { direction },
                    promiscuous: true,
                    area: area.clone(),
                    ..PortOptions::default()
                };
                Ok((open(uri, &wish)?, whole.then(|| open(uri, &wish)).transpose()?))
            };
            Ok((ends(from, &first, Direction::Receive)?, ends(to, &second, Direction::Transmit)?))
        })?
    }

    fn source(&self, from: Kind, feed: &mut Option<Port>) -> Result<Source> {
        if let Some(feed) = feed {
            let feed = feed.transmitter.take();
            let feed = feed.ok_or_else(|| Problem::host("a wire in memory lacks an end"))?;
            let size = self.size;
            return Ok(Box::new(move |stop| fill(feed, size, stop)));
        }
        if goes_through(from, Through::Tap) {
            self.live(self.wire.node("x")?, "t1")
        } else {
            self.live(self.wire.node("a")?, "eth0")
        }
    }

    /// The kernel's generator, for frames that no stack answers.
    fn live(&self, node: &Node, interface: &str) -> Result<Source> {
        let frame = LiveFrame { bytes: frame(self.size), message: None };
        let wish = LiveOptions { frames: vec![frame], open_peer: true, ..LiveOptions::default() };
        let mut live = node.within(|| Live::open(interface, &format!("live:{interface}"), &wish))??;
        Ok(Box::new(move |stop| Ok(live.pace(&Pace::default(), |_| !stop.load(Relaxed)).map(drop)?)))
    }

    /// Measures a pairing, or the bridge.
    pub fn measure(&self, job: Option<(Kind, Kind)>) -> Result<Score> {
        let Some((from, to)) = job else {
            let source = self.live(self.bridge.node("a")?, "eth0")?;
            return self.flow(source, Sink::Interface(self.bridge.node("b")?, "eth0"), None);
        };
        let ((mut near, mut feed), (mut far, mut drain)) = self.open(from, to)?;
        let source = self.source(from, &mut feed)?;
        let drained = drain.as_mut().and_then(|port| port.receiver.take());
        let sink = match drained {
            Some(receiver) => Sink::Drained(receiver),
            None if goes_through(to, Through::Tap) => Sink::Interface(self.wire.node("x")?, "t2"),
            None => Sink::Interface(self.wire.node("b")?, "eth0"),
        };
        let none = || Problem::host("a port lacks an end");
        let receiver = near.receiver.as_mut().ok_or_else(none)?;
        let transmitter = far.transmitter.as_mut().ok_or_else(none)?;
        self.flow(source, sink, Some((receiver.as_mut(), transmitter.as_mut())))
    }

    /// Lets frames flow, and looks at the sink twice.
    fn flow(
        &self,
        source: Source,
        sink: Sink<'_>,
        forwarder: Option<(&mut dyn Receiver, &mut dyn Transmitter)>,
    ) -> Result<Score> {
        let (stop, running, drained) =
            (AtomicBool::new(false), RunningCounters::default(), AtomicU64::new(0));
        let (stop, running, drained) = (&stop, &running, &drained);
        std::thread::scope(|scope| {
            let forwarding =
                forwarder.map(|(from, to)| scope.spawn(move || one_way(from, to, PATIENCE, stop, running)));
            let count: Box<dyn Fn() -> Result<u64>> = match sink {
                Sink::Interface(node, name) => Box::new(move || received(node, name)),
                Sink::Drained(mut receiver) => {
                    scope.spawn(move || drain(receiver.as_mut(), stop, drained));
                    Box::new(|| Ok(drained.load(Relaxed)))
                }
            };
            let sending = scope.spawn(move || source(stop));
            let measured = between(&count, self.milliseconds, || ());
            stop.store(true, Relaxed);
            let sent = joined(sending);
            let ended = forwarding.map(joined);
            sent?;
            let RateAndCost { mfps, host_ns_per_frame, .. } = measured?;
            if let Some(error) = ended.as_ref().and_then(|ended| ended.error.as_ref()) {
                return Err(Problem::host(format!("the forwarder ended: {error}")));
            }
            Ok(Score {
                mfps,
                host_ns_per_frame,
                copies_per_frame: ended.as_ref().map_or(0.0, |ended| ended.way.copies_per_frame),
                cpu_ns_per_frame: ended.map(|ended| ended.way.cpu_ns_per_frame),
            })
        })
    }
}

/// A frame of an experimental ethertype (IEEE 802, 0x88b5), for a station that does not exist.
fn frame(size: usize) -> Vec<u8> {
    let mut frame = vec![0; size];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
    frame
}

/// Frames that came to an interface.
pub(super) fn received(node: &Node, name: &str) -> Result<u64> {
    let links = node.links()?;
    let link = links.iter().find(|link| link.name == name);
    Ok(link.ok_or_else(|| Problem::host(format!("interface {name} is gone")))?.frames.1)
}

/// What came in the time of a measurement, and what it cost.
pub(super) struct RateAndCost {
    /// Frames.
    pub frames: f64,
    /// A million frames a second.
    pub mfps: f64,
    /// Busy nanoseconds of the host for each.
    pub host_ns_per_frame: f64,
}

/// Waits until frames flow, and counts them for so long; `at_both_ends` is called at the beginning and at the end.
pub(super) fn between(
    count: &dyn Fn() -> Result<u64>,
    milliseconds: u64,
    mut at_both_ends: impl FnMut(),
) -> Result<RateAndCost> {
    pass(clock::monotonic_ns() + WARM_UP_NS)?;
    at_both_ends();
    let (begun, busy, before) = (clock::monotonic_ns(), linux::observe::busy_seconds()?, count()?);
    pass(begun + milliseconds * 1_000_000)?;
    let after = count()?;
    let (took, busy) = (clock::monotonic_ns() - begun, linux::observe::busy_seconds()? - busy);
    at_both_ends();
    let frames = (after - before) as f64;
    Ok(RateAndCost {
        frames,
        mfps: frames * 1e3 / took as f64,
        host_ns_per_frame: busy * 1e9 / frames.max(1.0),
    })
}

/// Waits until then, or for an interrupt.
fn pass(until_ns: u64) -> Result<()> {
    while clock::monotonic_ns() < until_ns {
        if process::interrupted() {
            return Err(Problem::host("interrupted"));
        }
        clock::sleep_until(until_ns.min(clock::monotonic_ns() + LOOK_NS));
    }
    Ok(())
}

/// Offers as many frames as there is room for, until told to stop.
fn fill(mut wire: Box<dyn Transmitter>, size: usize, stop: &AtomicBool) -> Result<()> {
    let mut frames = Frames::new(256, size);
    while frames.push(&frame(size), Meta::default()) {}
    while !stop.load(Relaxed) {
        let mut batch = frames.batch();
        let all = batch.all();
        if wire.transmit(&mut batch, all, Hand::Copy)?.dealt == 0 {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Takes whatever comes, until told to stop and nothing comes any more.
fn drain(receiver: &mut dyn Receiver, stop: &AtomicBool, drained: &AtomicU64) {
    while let Ok(batch) = receiver.receive(MAX_BATCH, PATIENCE) {
        if batch.is_empty() && stop.load(Relaxed) {
            return;
        }
        drained.fetch_add(batch.len() as u64, Relaxed);
    }
}

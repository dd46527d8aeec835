//! `pathlab bench null`: what each pairing of ports costs a forwarder that does nothing.
//!
//! **What.** In a lab a — x — b, a forwarder in x (the loop of `pathlab null`, on a thread) moves 60-byte frames from one
//! kind of port to another. The kernel's live-frame generator offers more than any of them can take; what arrives is read
//! from the counters of the last interface. `mem` and `tap` have no wire: a thread feeds or drains the one, the kernel's
//! own end of the interface is fed or counted for the other. The kernel's bridge does the same job for comparison.
//!
//! **Why in one process.** A wire in memory has both ends in one process, and all pairings must be measured alike.
//!
//! **How.** Every round measures every pairing once, in an order that rotates; median and range are over the rounds. The
//! contract itself is measured without a kernel: from memory to memory in one thread, over one area and over two.

use super::contest::{median, range};
use super::pairing::{KINDS, Kind, MeasurementSetup, Score};
use crate::notices::{Notices, down};
use linux::lab::Topology;
use linux::port::{Area, Frames, Hand, MAX_BATCH, Meta, Port, PortOptions, Wait, forward, open};
use linux::sys::clock;
use record::{Problem, Result};
use serde::Serialize;

/// The lab: a wire to x on each side.
const WIRE: &str = "node a x b\nlink a:eth0 -- x:p1\nlink b:eth0 -- x:p2\n\
                    interface a:eth0 address 10.0.0.1/24\ninterface b:eth0 address 10.0.0.2/24\n";

/// What was measured, and where.
#[derive(Serialize)]
pub struct NullBenchDocument {
    /// `pathlab/bench-null/1`.
    pub schema: &'static str,
    /// How often every pairing was measured.
    pub rounds: u32,
    /// Milliseconds of each measurement.
    pub milliseconds: u64,
    /// Bytes of a frame, without FCS.
    pub frame_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu_model: String,
    /// How many of these.
    pub cpus: u32,
    /// Which process ran where, in words.
    pub placement: &'static str,
    /// The contract alone.
    pub contract: Vec<Contract>,
    /// The kernel's bridge, then every pairing.
    pub pairings: Vec<Pairing>,
    /// What could not be measured, and why.
    pub absent: Vec<String>,
}

/// What the contract costs without a kernel under it.
#[derive(Serialize)]
pub struct Contract {
    /// Bytes of a frame, without FCS.
    pub frame_bytes: usize,
    /// Both wires over one area, so that only the number of a chunk moves.
    pub one_area: bool,
    /// Times a frame was copied.
    pub copies_per_frame: f64,
    /// Nanoseconds for a frame, median over the rounds.
    pub ns_per_frame: f64,
    /// Lowest and highest round.
    pub range: (f64, f64),
}

/// All rounds of one pairing.
#[derive(Serialize)]
pub struct Pairing {
    /// Kind of the receiving port, or `kernel bridge`.
    pub from: String,
    /// Kind of the transmitting port; empty for the bridge.
    pub to: String,
    /// A million frames a second, median over the rounds.
    pub mfps: f64,
    /// Lowest and highest round.
    pub range: (f64, f64),
    /// Times the forwarder copied a frame.
    pub copies_per_frame: f64,
    /// CPU of the forwarder's thread, by received frame; none for the bridge, whose work belongs to nobody.
    pub cpu_ns_per_frame: Option<f64>,
    /// Busy CPU of the whole host, generator included, by delivered frame.
    pub host_ns_per_frame: f64,
    /// Every round.
    pub scores: Vec<Score>,
}

/// Runs the benchmark: so many rounds, each with one measurement of so many milliseconds for every pairing of these kinds (all when
/// none is named), with frames of so many bytes without FCS.
///
/// # Errors
/// Input: a kind that there is not; host: a lab cannot be built, a port breaks off; an interrupt.
pub fn run(
    rounds: u32,
    milliseconds: u64,
    wanted: &[String],
    frame_bytes: u64,
    notices: &dyn Notices,
) -> Result<NullBenchDocument> {
    crate::process::interruptible()?;
    let kinds = kinds(wanted)?;
    let wire = super::lab(&Topology::parse(WIRE, "null")?, "null-")?;
    let bridge = super::lab(&Topology::load("bridge")?, "bridge-")?;
    let place = MeasurementSetup { wire: &wire, bridge: &bridge, milliseconds, size: frame_bytes as usize };
    let (mut jobs, absent) = jobs(&kinds, &place);
    let mut contract = CONTRACT.map(|job| (job, vec![]));
    for round in 0..rounds as usize {
        notices.part(&format!("round {} of {rounds}", round + 1), 0, 0);
        for (job, spent) in &mut contract {
            spent.push(measure_contract(*job, milliseconds.min(300))?);
        }
        let count = jobs.len();
        for turn in 0..count {
            let (job, scores) = &mut jobs[(turn + round) % count];
            if linux::sys::process::interrupted() {
                return Err(Problem::host("interrupted"));
            }
            scores.push(place.measure(*job)?);
        }
    }
    let facts = linux::observe::host_facts();
    let document = NullBenchDocument {
        schema: "pathlab/bench-null/1",
        rounds,
        milliseconds,
        frame_bytes,
        kernel: facts.kernel,
        cpu_model: facts.cpu_model,
        cpus: facts.cpus,
        placement: "not pinned",
        contract: contract.iter().map(|(job, spent)| contract_of(*job, spent)).collect(),
        pairings: jobs.into_iter().map(|(job, scores)| summed(job, scores)).collect(),
        absent,
    };
    down(bridge, notices);
    down(wire, notices);
    Ok(document)
}

fn kinds(wanted: &[String]) -> Result<Vec<Kind>> {
    if wanted.is_empty() {
        return Ok(KINDS.to_vec());
    }
    let find = |name: &String| {
        let found = KINDS.into_iter().find(|kind| kind == name);
        found.ok_or_else(|| Problem::input(format!("there is no kind '{name}' here")).help(KINDS.join(", ")))
    };
    let mut kinds: Vec<Kind> = vec![];
    for kind in wanted.iter().map(find).collect::<Result<Vec<Kind>>>()? {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}

/// A pairing; none is the kernel's bridge.
type Job = Option<(Kind, Kind)>;

/// What can be measured here, and what not and why: one that cannot be opened now will not be opened in a round.
fn jobs(kinds: &[Kind], place: &MeasurementSetup<'_>) -> (Vec<(Job, Vec<Score>)>, Vec<String>) {
    let (mut jobs, mut absent) = (vec![(None, vec![])], vec![]);
    for &from in kinds {
        for &to in kinds {
            match place.rehearse(from, to) {
                Ok(()) => jobs.push((Some((from, to)), vec![])),
                Err(problem) => absent.push(format!("{from} to {to}: {problem}")),
            }
        }
    }
    (jobs, absent)
}

fn summed(job: Job, scores: Vec<Score>) -> Pairing {
    let (from, to) = job.unwrap_or(("kernel bridge", ""));
    let of = |figure: fn(&Score) -> Option<f64>| scores.iter().filter_map(figure).collect::<Vec<_>>();
    let rates = of(|score| Some(score.mfps));
    Pairing {
        from: from.into(),
        to: to.into(),
        mfps: median(&rates),
        range: range(&rates),
        copies_per_frame: median(&of(|score| Some(score.copies_per_frame))),
        cpu_ns_per_frame: job.map(|_| median(&of(|score| score.cpu_ns_per_frame))),
        host_ns_per_frame: median(&of(|score| Some(score.host_ns_per_frame))),
        scores,
    }
}

/// Bytes of a frame, and whether both wires are over one area.
type ContractJob = (usize, bool);
const CONTRACT: [ContractJob; 4] = [(60, true), (60, false), (1514, true), (1514, false)];

fn contract_of((frame_bytes, one_area): ContractJob, spent: &[f64]) -> Contract {
    let copies_per_frame = f64::from(u8::from(!one_area));
    Contract { frame_bytes, one_area, copies_per_frame, ns_per_frame: median(spent), range: range(spent) }
}

/// Nanoseconds that `forward` takes for a frame between two wires in memory; filling and emptying them is not counted.
fn measure_contract((frame_bytes, one_area): ContractJob, milliseconds: u64) -> Result<f64> {
    let area = || Area::new(4096, 2048).map_err(|e| Problem::host(format!("cannot map memory: {e}")));
    let first = area()?;
    let second = if one_area { first.clone() } else { area()? };
    let names = ["mem:bench-first", "mem:bench-second"];
    let wire = |name: &str, area: &std::sync::Arc<Area>| -> Result<(Port, Port)> {
        let wish = PortOptions { area: Some(area.clone()), ..PortOptions::default() };
        Ok((open(name, &wish)?, open(name, &wish)?))
    };
    let ((mut feed, mut from), (mut to, mut drain)) = (wire(names[0], &first)?, wire(names[1], &second)?);
    let none = || Problem::host("a wire in memory lacks an end");
    let feed = feed.transmitter.as_mut().ok_or_else(none)?;
    let from = from.receiver.as_mut().ok_or_else(none)?;
    let to = to.transmitter.as_mut().ok_or_else(none)?;
    let drain = drain.receiver.as_mut().ok_or_else(none)?;
    let mut frames = Frames::new(MAX_BATCH / 2, 1514);
    while frames.add(frame_bytes, Meta::default()).is_some() {}
    let (mut spent, mut moved) = (0, 0);
    let until = clock::monotonic_ns() + milliseconds * 1_000_000;
    while clock::monotonic_ns() < until {
        let mut batch = frames.batch();
        let all = batch.all();
        feed.transmit(&mut batch, all, Hand::Copy)?;
        let begun = clock::monotonic_ns();
        let came = forward(from.as_mut(), to.as_mut(), Wait::Poll).map_err(|broken| broken.error)?.came;
        spent += clock::monotonic_ns() - begun;
        moved += came as u64;
        while !drain.receive(MAX_BATCH, Wait::Poll)?.is_empty() {}
    }
    let copied = to.counters().copied;
    match copied == if one_area { 0 } else { moved } {
        true => Ok(spent as f64 / moved.max(1) as f64),
        false => {
            Err(Problem::host(format!("{copied} of {moved} frames were copied, which is not what was meant")))
        }
    }
}

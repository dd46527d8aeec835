//! Every file of `tests/cases`, run by machine code; what exits is run by the interpreter, as a switch does it.

#[path = "../../flow/tests/cases/runner.rs"]
mod runner;

use flow::Pipeline;
use flow::action::Action;
use flow::interpret::{Counter, InputFrame, OutputFrame, Verdict};
use jit::{Compiler, Frame, Ingress, Outcome, Outputs, Worker};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static DONE: AtomicU64 = AtomicU64::new(0);

/// A program for this one frame.
fn compiled(
    pipeline: &mut Pipeline,
    now: u64,
    arrival: InputFrame<'_>,
    actions: Option<&[Action]>,
    verdict: &mut Verdict,
) -> Vec<Counter> {
    let compiler = Compiler::new(pipeline).unwrap();
    let mut room = vec![0; 64];
    room.extend_from_slice(arrival.frame);
    let end = room.len();
    let mut frame = Frame { room: &mut room, start: 64, end, offload: arrival.offload };
    let (mut worker, mut outputs) = (Worker::default(), Outputs::default());
    let phy_port = arrival.phy_port.unwrap_or(arrival.port);
    let ingress = Ingress { port: arrival.port, phy_port, tunnel_id: arrival.tunnel_id };
    if actions.is_some() {
        return runner::interpreter(pipeline, now, arrival, actions, verdict);
    }
    let outcome = compiler.program().frame(&mut worker, now, ingress, &mut frame, &mut outputs);
    if outcome == Outcome::Interpret {
        return runner::interpreter(pipeline, now, arrival, actions, verdict);
    }
    DONE.fetch_add(1, Ordering::Relaxed);
    let sent = outputs.frames(&frame);
    verdict.sent.extend(sent.map(|(port, queue, bytes, offload)| OutputFrame {
        port,
        queue,
        frame: bytes.to_vec(),
        offload,
    }));
    let before = pipeline.clone();
    worker.tally.credit(&compiler.slots.places, pipeline);
    moved(&before, pipeline)
}

/// The counters that differ, each as often as it moved.
fn moved(before: &Pipeline, after: &Pipeline) -> Vec<Counter> {
    let mut moved = vec![];
    let mut push = |counter, times: u64| moved.extend((0..times).map(|_| counter));
    for (old, new) in before.ports.values().zip(after.ports.values()) {
        let (a, b) = (&old.counters, &new.counters);
        push(Counter::Rx(old.number), b.rx_frames - a.rx_frames);
        push(Counter::RxDropped(old.number), b.rx_dropped - a.rx_dropped);
        push(Counter::Tx(old.number), b.tx_frames - a.tx_frames);
        push(Counter::TxDropped(old.number), b.tx_dropped - a.tx_dropped);
    }
    for (old, new) in before.tables().zip(after.tables()) {
        push(Counter::Lookup(old.number), new.lookups - old.lookups);
        push(Counter::Matched(old.number), new.matched - old.matched);
        // A rule with no_packet_counts is moved all the same; it says so by its table.
        push(Counter::Rule(old.number), new.matched - old.matched);
    }
    moved
}

#[test]
fn every_case_holds_for_machine_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut wrong = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "case") {
            continue;
        }
        for failure in
            runner::run_on(&std::fs::read_to_string(&path).unwrap(), compiled).err().unwrap_or_default()
        {
            wrong += &format!("{}:{}: {}: {}\n", path.display(), failure.line, failure.case, failure.what);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let done = DONE.load(Ordering::Relaxed);
    assert!(done > 100, "only {done} frames of the cases were done in code");
}

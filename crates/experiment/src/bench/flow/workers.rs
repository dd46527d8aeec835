//! Two workers of one program at once, as two ports of a switch drive it.
//!
//! **Why.** Workers share the program and its tables, and have counters of their own; whether that is so shows in what two of them carry more than one.
//!
//! **Price.** The clock is the CPU time of each thread, so that another process on one of two CPUs takes nothing from the ratio; what two workers take from each other
//! (lines of a cache, memory) is in it, as long as they run at the same time.

use super::pipelines::FlowHeader;
use super::{FRAME, HEADROOM, loaded};
use jit::{Frame, Outputs, Program, Worker};
use std::sync::Barrier;
use wire::offload::Offload;

/// Frames per second of two workers at once ÷ those of one.
pub(super) fn ratio(program: &Program, headers: &[FlowHeader], flows: u64, milliseconds: u64) -> f64 {
    let rate = |workers: usize| rate(program, headers, flows, milliseconds, workers);
    let one = rate(1);
    rate(2) / one
}

/// Frames per second of all workers together, by the CPU time of each. Those that the program leaves to the interpreter are not carried out.
fn rate(program: &Program, headers: &[FlowHeader], flows: u64, milliseconds: u64, workers: usize) -> f64 {
    let headers = &headers[..headers.len().min(flows as usize)];
    let begin = Barrier::new(workers);
    let work = |number: usize| {
        // Each begins with another header: ports do not carry the same frames at the same time.
        let (later, first) = headers.split_at(number * headers.len() / workers);
        let headers = [first, later].concat();
        let (mut worker, mut outputs) = (Worker::default(), Outputs::default());
        begin.wait();
        let ns = loaded(&headers, flows, milliseconds, &mut |memory, port| {
            let (start, end, offload) = (HEADROOM, HEADROOM + FRAME, Offload::NONE);
            let mut frame = Frame { room: &mut memory.room, start, end, offload };
            program.frame(&mut worker, memory.now, port.into(), &mut frame, &mut outputs);
        });
        1e9 / ns
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|number| scope.spawn(move || work(number))).collect();
        work(0) + others.into_iter().map(|one| one.join().expect("a worker ended")).sum::<f64>()
    })
}

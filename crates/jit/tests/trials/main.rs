//! Random pipelines and frames: code, evaluator and interpreter have to do the same, to the byte and to the counter.
//!
//! `PATHLAB_TRIALS=N cargo test --release -p jit --test trials` makes N trials (a trial is a frame through a pipeline); the seed of a
//! pipeline that differs is printed, and `PATHLAB_SEED=S` plays that one.

mod make;

use fastrand::Rng;
use flow::interpret::{InputFrame, Verdict, receive};
use flow::rule::{FlowModCommand, RulePosition};
use flow::{Pipeline, PortNo};
use jit::{Compiler, Frame, Ingress, Outcome, Outputs, Program, Updated, Worker};
use std::collections::BTreeSet;
use std::env;
use wire::offload::{Offload, partial_of};

const HEADROOM: usize = 96;

/// What left, and what was told.
type Left = (Vec<(PortNo, Option<u32>, Vec<u8>, Offload)>, usize);

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn interpreted(pipeline: &mut Pipeline, now: u64, ingress: Ingress, bytes: &[u8], offload: Offload) -> Left {
    let mut verdict = Verdict::default();
    let phy_port = (ingress.phy_port != ingress.port).then_some(ingress.phy_port);
    let Ingress { port, tunnel_id, .. } = ingress;
    receive(pipeline, now, InputFrame { port, phy_port, tunnel_id, frame: bytes, offload }, &mut verdict);
    let sent = verdict.sent.into_iter().map(|sent| (sent.port, sent.queue, sent.frame, sent.offload));
    (sent.collect(), verdict.packet_ins.len())
}

/// A pipeline with a program beside it, as a switch has them.
struct Engine {
    program: Program,
    worker: Worker,
    pipeline: Pipeline,
    outputs: Outputs,
    exits: u64,
}

impl Engine {
    fn frame(&mut self, now: u64, ingress: Ingress, bytes: &[u8], offload: Offload, behind: usize) -> Left {
        let mut room = vec![0xee; HEADROOM];
        room.extend_from_slice(bytes);
        room.resize(room.len() + behind, 0xdd);
        let mut frame = Frame { room: &mut room, start: HEADROOM, end: HEADROOM + bytes.len(), offload };
        match self.program.frame(&mut self.worker, now, ingress, &mut frame, &mut self.outputs) {
            Outcome::Done => {
                let own = |(port, queue, bytes, offload): (PortNo, Option<u32>, &[u8], Offload)| {
                    (port, queue, bytes.to_vec(), offload)
                };
                (self.outputs.frames(&frame).map(own).collect(), 0)
            }
            Outcome::Interpret => {
                assert_eq!(frame.bytes(), bytes, "an exit leaves the frame as it came");
                assert_eq!(frame.offload, offload);
                self.exits += 1;
                interpreted(&mut self.pipeline, now, ingress, bytes, offload)
            }
        }
    }
}

fn counters(pipeline: &Pipeline) -> Vec<String> {
    let rules = pipeline.tables().flat_map(|table| {
        let rules = table
            .rules()
            .map(|(at, e)| format!("{} {at:?} {} {} {}", table.number, e.frames, e.bytes, e.used_ns));
        rules
            .chain([format!("table {} {} {}", table.number, table.lookups, table.matched)])
            .collect::<Vec<_>>()
    });
    rules.chain(pipeline.ports.values().map(|port| format!("{} {:?}", port.number, port.counters))).collect()
}

/// Frames through one pipeline; how many the program did itself.
fn trial(seed: u64, frames: usize, most: usize) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let (mut meant, mut lines) = make::pipeline(&mut rng, most);
    let mut compiler = Compiler::new(&meant).unwrap_or_else(|refused| panic!("seed {seed}: {refused}"));
    let engine = |program: Program, pipeline: &Pipeline| Engine {
        program,
        worker: Worker::default(),
        pipeline: pipeline.clone(),
        outputs: Outputs::default(),
        exits: 0,
    };
    let mut engines = [engine(compiler.program(), &meant), engine(compiler.evaluator(), &meant)];
    for number in 0..frames {
        if number == frames / 2 {
            lines.extend(changed(&mut rng, &mut meant, &mut compiler, &mut engines));
        }
        let bytes = make::frame(&mut rng);
        let mut offload = Offload::NONE;
        if rng.u8(0..10) == 0 {
            offload.partial = partial_of(&bytes);
        }
        let port = PortNo(rng.u32(1..6));
        let ingress = Ingress { port, phy_port: PortNo(port.0 + rng.u32(0..2)), tunnel_id: rng.u64(0..2) };
        let behind = rng.usize(0..3);
        let now = number as u64;
        let wanted = interpreted(&mut meant, now, ingress, &bytes, offload);
        for (index, engine) in engines.iter_mut().enumerate() {
            let left = engine.frame(now, ingress, &bytes, offload, behind);
            assert!(
                left == wanted,
                "engine {index}, seed {seed}, frame {number}, port {port}: {bytes:02x?}\n{left:02x?}\nwanted {wanted:02x?}\nrules:\n{}\n{}",
                lines.join("\n"),
                compiler.ir(),
            );
        }
    }
    for (index, engine) in engines.iter_mut().enumerate() {
        engine.worker.tally.credit(&compiler.slots.places, &mut engine.pipeline);
        assert_eq!(
            counters(&engine.pipeline),
            counters(&meant),
            "engine {index}, seed {seed}:\n{}",
            lines.join("\n")
        );
    }
    frames as u64 - engines[0].exits
}

/// Changes a few rules: the code's program by updates, the evaluator's by a compilation.
fn changed(
    rng: &mut Rng,
    meant: &mut Pipeline,
    compiler: &mut Compiler,
    engines: &mut [Engine; 2],
) -> Vec<String> {
    for engine in engines.iter_mut() {
        engine.worker.tally.credit(&compiler.slots.places, &mut engine.pipeline);
    }
    let mut lines = vec![];
    let mut touched: BTreeSet<(u8, RulePosition)> = BTreeSet::new();
    for _ in 0..rng.usize(0..5) {
        let Some(change) = make::change(rng, 4) else { continue };
        let before = places(meant);
        if meant.flow_mod(9, &change).is_err() {
            continue;
        }
        lines.push(format!("{:?} {}", change.command, flow::text::rule::show(change.table, &change.rule)));
        touched.extend(before.symmetric_difference(&places(meant)));
        touched.extend(
            meant.table(change.table).and_then(|t| t.find(&change.rule)).map(|at| (change.table, at)),
        );
        for engine in engines.iter_mut() {
            engine.pipeline.flow_mod(9, &change).unwrap();
        }
    }
    for (table, at) in touched {
        compiler.update(meant, table, at).unwrap();
    }
    engines[0].program = compiler.program();
    *compiler = Compiler::watched(meant, std::mem::take(&mut compiler.slots), |_| {}, |_, _| {}).unwrap();
    engines[1].program = compiler.evaluator();
    lines
}

fn places(pipeline: &Pipeline) -> BTreeSet<(u8, RulePosition)> {
    pipeline.tables().flat_map(|table| table.rules().map(|(at, _)| (table.number, at))).collect()
}

#[test]
fn code_and_evaluator_do_what_the_interpreter_does() {
    if let Some(seed) = number("PATHLAB_SEED") {
        let done = trial(seed, 200, size(seed));
        println!("{done} of 200 frames in code");
        return;
    }
    let trials = number("PATHLAB_TRIALS").unwrap_or(30_000);
    let (mut made, mut done) = (0, 0);
    for seed in 0.. {
        done += trial(seed, 200, size(seed));
        made += 200;
        if made >= trials {
            break;
        }
    }
    println!("{made} trials, {done} of them in code");
    assert!(done * 3 > made, "too many exits to say anything: {done} of {made}");
}

/// Small pipelines for direct code, larger ones for hashes, some for tries.
fn size(seed: u64) -> usize {
    [6, 6, 20, 6, 60, 20, 6, 200, 20, 6, 60, 20, 6, 60, 6, 600][(seed % 16) as usize]
}

/// A table whose rules carry out the one action set that frames came with is made anew for frames that come with none.
#[test]
fn a_rule_that_leads_on_without_an_action_set_does_not_get_that_of_another() {
    let mut pipeline = Pipeline::default();
    (1..6).for_each(|port| {
        pipeline.add_port(flow::port::Port::new(PortNo(port), "p", [2, 0, 0, 0, 0, port as u8]))
    });
    let add = |pipeline: &mut Pipeline, line: &str| {
        let change = flow::text::rule::flow_mod(FlowModCommand::Add, line).unwrap();
        pipeline.flow_mod(0, &change).unwrap();
    };
    add(&mut pipeline, "table=0,priority=7,tcp actions=write_actions(output:4),goto_table:1");
    add(&mut pipeline, "table=1,priority=9,ip actions=output:3");
    let mut compiler = Compiler::new(&pipeline).unwrap();
    let before = places(&pipeline);
    add(&mut pipeline, "table=0,priority=1,ip actions=goto_table:1");
    for (table, at) in places(&pipeline).difference(&before) {
        compiler.update(&pipeline, *table, *at).unwrap();
    }
    let (program, worker, outputs) = (compiler.program(), Worker::default(), Outputs::default());
    let mut engine = Engine { program, worker, pipeline: pipeline.clone(), outputs, exits: 0 };
    for (transport, ports) in [("udp", vec![3]), ("tcp", vec![3, 4])] {
        let bytes = flow::text::frame::parse(&format!("eth / ip / {transport}")).unwrap();
        let (left, _) = engine.frame(0, PortNo(1).into(), &bytes, Offload::NONE, 0);
        assert_eq!(left.iter().map(|sent| sent.0.0).collect::<Vec<_>>(), ports, "{transport}");
    }
}

/// A rule of a firewall: networks, and a range of ports.
fn firewall_rule(rng: &mut Rng) -> String {
    const LENGTHS: [u32; 4] = [0, 16, 24, 32];
    let (from, to) = (rng.choice(LENGTHS).unwrap_or(0), rng.choice(LENGTHS).unwrap_or(0));
    let (source, target, out) = (address(rng), address(rng), rng.u8(2..6));
    let protocol = if rng.bool() { "tcp" } else { "udp" };
    let shift = rng.u32(0..17);
    let port = rng.u32(0..4000) >> shift << shift;
    // None hides another one, so that each of them can go by itself.
    let priority = 100 + from + to - shift;
    let mask = 0xffff >> shift << shift;
    format!(
        "priority={priority},{protocol},nw_src={source}/{from},nw_dst={target}/{to},tp_dst={port}/{mask:#x} actions=output:{out}"
    )
}

/// One of a few networks.
fn address(rng: &mut Rng) -> String {
    format!("10.{}.{}.{}", rng.u8(0..3), rng.u8(0..16), rng.u8(0..64))
}

/// Adds or deletes a rule; where it is, or was.
fn carry_out(pipeline: &mut Pipeline, command: FlowModCommand, rule: &str) -> Option<RulePosition> {
    let change = flow::text::rule::flow_mod(command, rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
    let place = |pipeline: &Pipeline| pipeline.table(0).and_then(|table| table.find(&change.rule));
    let before = place(pipeline);
    pipeline.flow_mod(0, &change).unwrap();
    place(pipeline).or(before)
}

/// Changes rules of a firewall, one after the other: a tenth of them goes, as many come; how many of these changes were in place.
fn change_firewall(rng: &mut Rng, meant: &mut Pipeline, compiler: &mut Compiler, rules: &[String]) -> usize {
    let mut in_place = 0;
    for rule in rules.iter().step_by(10) {
        let (matching, _) = rule.split_once(" actions").unwrap();
        for (command, rule) in
            [(FlowModCommand::DeleteStrict, matching), (FlowModCommand::Add, &firewall_rule(rng))]
        {
            let Some(at) = carry_out(meant, command, rule) else { continue };
            let updated = compiler.update(meant, 0, at).unwrap();
            in_place += usize::from(updated == Updated::InPlace);
        }
    }
    in_place
}

/// Frames through a firewall in code and by a walk over its rules; how many left.
fn through_firewall(rng: &mut Rng, meant: &mut Pipeline, compiler: &Compiler) -> usize {
    let (program, worker, outputs) = (compiler.program(), Worker::default(), Outputs::default());
    let mut engine = Engine { program, worker, pipeline: meant.clone(), outputs, exits: 0 };
    let mut sent = 0;
    for now in 0..3000 {
        let (source, target, port) = (address(rng), address(rng), rng.u16(0..4000));
        let protocol = if rng.bool() { "tcp" } else { "udp" };
        let line = format!("eth / ip src={source} dst={target} / {protocol} dport={port}");
        let bytes = flow::text::frame::parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let wanted = interpreted(meant, now, PortNo(1).into(), &bytes, Offload::NONE);
        let left = engine.frame(now, PortNo(1).into(), &bytes, Offload::NONE, 0);
        assert!(left == wanted, "{line}: {left:02x?}\nwanted {wanted:02x?}\n{}", compiler.plans()[0]);
        sent += wanted.0.len();
    }
    engine.worker.tally.credit(&compiler.slots.places, &mut engine.pipeline);
    assert_eq!((counters(&engine.pipeline), engine.exits), (counters(meant), 0));
    sent
}

/// Tables of common bits have long chains, of which some go over the edge of a page of memory; rules that come and go tear them apart.
#[test]
fn a_firewall_in_code_finds_what_a_walk_over_its_rules_finds() {
    let mut rng = Rng::with_seed(1);
    let rules: Vec<String> = (0..3000).map(|_| firewall_rule(&mut rng)).collect();
    let mut meant = Pipeline::default();
    (1..6).for_each(|port| {
        meant.add_port(flow::port::Port::new(PortNo(port), "p", [2, 0, 0, 0, 0, port as u8]))
    });
    rules.iter().for_each(|rule| _ = carry_out(&mut meant, FlowModCommand::Add, rule));
    let mut compiler = Compiler::new(&meant).unwrap();
    let plan = compiler.plans().remove(0);
    assert!(plan.why.contains("pruned"), "{plan}");
    let before = through_firewall(&mut rng, &mut meant, &compiler);
    let in_place = change_firewall(&mut rng, &mut meant, &mut compiler, &rules);
    let behind = through_firewall(&mut rng, &mut meant, &compiler);
    assert!(before > 1000 && behind > 1000, "only {before} and {behind} frames met a rule");
    assert!(in_place > 400, "only {in_place} changes of 600 were in place");
}

/// Every value of a checksum through every edit that it has to follow: ones' complement has its corners at two of 65,536.
#[test]
fn checksums_follow_from_every_value() {
    for (protocol, set) in [("tcp", "tcp_dst"), ("udp", "udp_src")] {
        let rule = format!(
            "{protocol} actions=set_field:10.9.8.7->ip_src,output:1,set_field:{}->{set},output:2,dec_ttl,set_field:0.0.0.0->ip_dst,output:3",
            0xfffe
        );
        let mut pipeline = Pipeline::default();
        for port in 1..4 {
            pipeline.add_port(flow::port::Port::new(PortNo(port), "p", [2, 0, 0, 0, 0, port as u8]));
        }
        let change = flow::text::rule::flow_mod(FlowModCommand::Add, &rule).unwrap();
        pipeline.flow_mod(0, &change).unwrap();
        let program = Compiler::new(&pipeline).unwrap().program();
        let (worker, outputs) = (Worker::default(), Outputs::default());
        let mut engine = Engine { program, worker, pipeline: pipeline.clone(), outputs, exits: 0 };
        let mut bytes = flow::text::frame::parse(&format!("eth / ip / {protocol}")).unwrap();
        let at = if protocol == "tcp" { 50 } else { 40 };
        for sum in 0..=u16::MAX {
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            let wanted = interpreted(&mut pipeline, 0, PortNo(9).into(), &bytes, Offload::NONE);
            let left = engine.frame(0, PortNo(9).into(), &bytes, Offload::NONE, 0);
            assert!(left == wanted, "{protocol} {sum:#x}: {left:02x?}\nwanted {wanted:02x?}");
        }
        assert_eq!(engine.exits, 0);
    }
}

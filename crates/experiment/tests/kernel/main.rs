//! Random pipelines and frames: programs of the kernel and the interpreter have to do the same, to the byte and to the counter.
//!
//! Frames go through the kernel by `BPF_PROG_TEST_RUN`, which needs root; where it is not allowed the tests say that they were skipped.
//! `PATHLAB_TRIALS=N` makes N trials, and `PATHLAB_SEED=S` plays one pipeline.

#[path = "../../../jit/tests/trials/make.rs"]
#[allow(dead_code)] // Changes of rules are for programs that follow them in place.
mod make;

use ::switch::kernel::LoadedProgram;
use experiment::bench::flow::kernel::{Interfaces, compiled, loaded};
use experiment::bench::flow::pipelines::{FRAME, Named, PIPELINES};
use fastrand::Rng;
use flow::interpret::{InputFrame, Verdict, receive};
use flow::port::Port;
use flow::rule::FlowModCommand;
use flow::{Pipeline, PortNo};
use jit::kernel::{Hook, PortWord};
use std::env;
use wire::offload::{Offload, SegmentKind, Segments};

/// Numbers of the ports of random pipelines.
const NUMBERS: [u32; 4] = [1, 2, 3, 4];

const XDP_REDIRECT: u32 = 4;
const TC_ACT_REDIRECT: u32 = 7;
const EINVAL: i32 = 22;

fn skip(what: &str, why: &str) {
    println!("SKIP: {what}: {why}");
    if let Some(list) = env::var_os("PATHLAB_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(list)
    {
        use std::io::Write;
        let _ = writeln!(file, "{what}: {why}");
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// A pipeline in the kernel beside the interpreter.
struct Rig {
    loaded: LoadedProgram,
    /// What the interpreter does with every frame.
    meant: Pipeline,
    /// What it does with those that exit, and where the kernel's counters are credited.
    behind: Pipeline,
    lines: Vec<String>,
    exits: u64,
}

impl Rig {
    fn new(pipeline: Pipeline, lines: Vec<String>, hook: Hook, numbers: &[u32], interfaces: &[u32]) -> Rig {
        let made = compiled(&pipeline, hook, numbers, interfaces).unwrap();
        let text = made.text();
        let loaded = loaded(made).unwrap_or_else(|problem| panic!("{problem}\n{}\n{text}", lines.join("\n")));
        Rig { loaded, meant: pipeline.clone(), behind: pipeline, lines, exits: 0 }
    }

    /// The port by which a frame leaves, or none; and whether it exited: by what the counters say.
    fn counted(&self, before: &jit::kernel::KernelCounters) -> (Option<PortNo>, bool) {
        let after = self.loaded.read_ports().unwrap();
        let changed = |index: usize, word| after.port(index, word) != before.port(index, word);
        let ports = self.loaded.program.ports.iter().enumerate();
        let mut left = ports.clone().filter(|(index, _)| changed(*index, PortWord::TxFrames));
        let exited = ports.clone().any(|(index, _)| changed(index, PortWord::Exits));
        let to = left.next().map(|(_, port)| port.number);
        assert_eq!(left.next(), None, "two ports counted one frame");
        (to, exited)
    }

    /// A frame through both; false when the kernel makes no buffer of it: it is cut in its Ethernet or IP header.
    fn frame(&mut self, what: &str, index: usize, bytes: &[u8]) -> bool {
        let port = self.loaded.program.ports[index].number;
        let before = self.loaded.read_ports().unwrap();
        let run = match self.loaded.run(self.loaded.program.ports[index].interface, bytes, 0, 1) {
            Ok(run) => run,
            Err(error) if error.raw_os_error() == Some(EINVAL) && bytes.len() < 54 => return false,
            Err(error) => panic!("{what}: {} bytes: {error}", bytes.len()),
        };
        let mut verdict = Verdict::default();
        receive(&mut self.meant, 0, InputFrame::new(port, bytes), &mut verdict);
        let wanted: Vec<_> = verdict.sent.iter().map(|sent| (sent.port, sent.frame.clone())).collect();
        let (to, exited) = self.counted(&before);
        if exited {
            assert_eq!(run.frame, bytes, "{what}: an exit leaves the frame as it came");
            self.exits += 1;
            receive(&mut self.behind, 0, InputFrame::new(port, bytes), &mut Verdict::default());
            return true;
        }
        let redirect = if self.loaded.program.hook == Hook::Xdp { XDP_REDIRECT } else { TC_ACT_REDIRECT };
        assert_eq!(run.returned == redirect, to.is_some(), "{what}: returned {}", run.returned);
        let mut left: Vec<_> = to.map(|to| (to, run.frame)).into_iter().collect();
        if let ([(_, own)], [(_, meant)]) = (left.as_mut_slice(), wanted.as_slice())
            && self.loaded.program.hook == Hook::Tcx
            && own.len() + 4 == meant.len()
        {
            // The kernel keeps the outermost tag of a buffer beside it, and does not give it back.
            own.splice(12..12, meant[12..16].iter().copied());
        }
        assert!(
            left == wanted && verdict.packet_ins.is_empty(),
            "{what}, port {port}: {bytes:02x?}\n{left:02x?}\nwanted {wanted:02x?}\nrules:\n{}",
            self.lines.join("\n")
        );
        true
    }

    /// Compares all counters.
    fn settle(&mut self, what: &str) {
        let now = self.loaded.read().unwrap();
        let mut tally = self.loaded.program.tally(&Default::default(), &now, |_| 0);
        tally.credit(&self.loaded.program.places, &mut self.behind);
        assert_eq!(counters(&self.behind), counters(&self.meant), "{what}:\n{}", self.lines.join("\n"));
    }
}

fn counters(pipeline: &Pipeline) -> Vec<String> {
    let rules = pipeline.tables().flat_map(|table| {
        let rules = table.rules().map(|(at, e)| format!("{} {at:?} {} {}", table.number, e.frames, e.bytes));
        rules
            .chain([format!("table {} {} {}", table.number, table.lookups, table.matched)])
            .collect::<Vec<_>>()
    });
    rules.chain(pipeline.ports.values().map(|port| format!("{} {:?}", port.number, port.counters))).collect()
}

/// Frames through one pipeline; how many the kernel did itself.
fn trial(seed: u64, hook: Hook, frames: usize, interfaces: &[u32]) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let (pipeline, lines) = make::pipeline(&mut rng, size(seed));
    let mut rig = Rig::new(pipeline, lines, hook, &NUMBERS, interfaces);
    let mut tried = 0;
    for number in 0..frames {
        let bytes = make::frame(&mut rng);
        let index = rng.usize(0..NUMBERS.len());
        tried += u64::from(rig.frame(&format!("{hook}, seed {seed}, frame {number}"), index, &bytes));
    }
    rig.settle(&format!("{hook}, seed {seed}"));
    tried - rig.exits
}

/// Small pipelines for direct code, larger ones for hashes, some for tries.
fn size(seed: u64) -> usize {
    [6, 6, 20, 6, 60, 20, 6, 200, 20, 6, 60, 20, 6, 60, 6, 600][(seed % 16) as usize]
}

fn trials(hook: Hook) {
    let what = format!("programs of the kernel at {hook}");
    let Some((made, done)) = within(&what, NUMBERS.len(), |interfaces| {
        if let Some(seed) = number("PATHLAB_SEED") {
            return (100, trial(seed, hook, 100, interfaces));
        }
        let wanted = number("PATHLAB_TRIALS").unwrap_or(3_000);
        let (mut made, mut done) = (0, 0);
        for seed in 0.. {
            done += trial(seed, hook, 100, interfaces);
            made += 100;
            if made >= wanted {
                break;
            }
        }
        (made, done)
    }) else {
        return;
    };
    println!("{hook}: {made} trials, {done} of them in the kernel");
    assert!(done * 8 > made, "too many exits to say anything: {done} of {made}");
}

/// In a namespace with so many interfaces; none, and said, where there can be none.
fn within<T: Send>(what: &str, count: usize, work: impl FnOnce(&[u32]) -> T + Send) -> Option<T> {
    match Interfaces::make(count) {
        Ok(interfaces) => Some(interfaces.within(|| work(&interfaces.indices)).unwrap()),
        Err(problem) => {
            skip(what, &problem.to_string());
            None
        }
    }
}

#[test]
fn xdp_does_what_the_interpreter_does() {
    trials(Hook::Xdp);
}

#[test]
fn tcx_does_what_the_interpreter_does() {
    trials(Hook::Tcx);
}

#[test]
fn large_tables_of_xdp_are_what_the_interpreter_finds() {
    large_tables(Hook::Xdp);
}

#[test]
fn large_tables_of_tcx_are_what_the_interpreter_finds() {
    large_tables(Hook::Tcx);
}

/// Rules from which on fewer frames are sent: the interpreter looks at each rule for each.
const MANY_RULES: usize = 50_000;

/// The pipelines of the benchmark, up to 64,000 rules, with frames that meet them.
fn large_tables(hook: Hook) {
    let numbers: Vec<u32> = (1..=8).collect();
    within("large tables in the kernel", numbers.len(), |interfaces| {
        for named in PIPELINES.iter().filter(|named| named.name != "lpm500k") {
            large(named, hook, &numbers, interfaces);
        }
    });
}

fn large(named: &Named, hook: Hook, numbers: &[u32], interfaces: &[u32]) {
    let workload = named.make(1).unwrap();
    let frames = if workload.pipeline.len() > MANY_RULES { 100 } else { 300 };
    let begun = std::time::Instant::now();
    let mut rig = Rig::new(workload.pipeline, vec![named.name.to_owned()], hook, numbers, interfaces);
    let loaded = begun.elapsed();
    for (flow, header) in (0u64..).zip(workload.headers.iter().cycle().take(frames)) {
        let mut bytes = [0; FRAME];
        let port = header.write(flow, &mut bytes);
        rig.frame(&format!("{hook}, {}, flow {flow}", named.name), port as usize - 1, &bytes);
    }
    rig.settle(&format!("{hook}, {}", named.name));
    // Some of Faucet's targets are flooded.
    assert!(3 * rig.exits < frames as u64, "{hook}, {}: {} of {frames} frames exited", named.name, rig.exits);
    println!(
        "{hook} {}: {} instructions, made and loaded in {loaded:?}, {} of {frames} exited, {} rules by user space",
        named.name,
        rig.loaded.program.instructions(),
        rig.exits,
        rig.loaded.program.userspace.len()
    );
}

/// A tag that is pushed, written, looked at by later tables and popped again is no exit; nor are two that stay.
#[test]
fn tags_are_changed_in_the_kernel() {
    let lines = [
        "table=0,in_port=1,vlan_vid=0 actions=push_vlan:0x8100,set_field:4196->vlan_vid,goto_table:1",
        "table=0,in_port=2 actions=push_vlan:0x88a8,set_field:4296->vlan_vid,push_vlan:0x8100,set_field:5->vlan_pcp,output:3",
        "table=0,in_port=3,vlan_vid=0x1000/0x1000 actions=pop_vlan,output:1",
        "table=0,in_port=4,vlan_vid=0x1000/0x1000 actions=set_field:4097->vlan_vid,set_field:3->vlan_pcp,output:1",
        "table=1,priority=2,dl_vlan=100,dl_dst=02:00:00:00:00:02 actions=pop_vlan,output:2",
        "table=1,priority=1 actions=output:3",
    ];
    within("tags in the kernel", NUMBERS.len(), |interfaces| {
        for hook in [Hook::Xdp, Hook::Tcx] {
            let mut rig =
                Rig::new(ruled(&lines), lines.map(str::to_owned).to_vec(), hook, &NUMBERS, interfaces);
            for frame in [
                "eth dst=02:00:00:00:00:02 / ip / udp / raw 0102030405060708090a",
                "eth dst=02:00:00:00:00:02 / ip / tcp / raw 0102030405060708090a0b0c0d0e",
                "eth dst=02:00:00:00:00:03 / ip / udp",
                "eth / vlan vid=5 pcp=3 / ip / udp / raw 0102030405060708090a0b0c0d0e0f10111213",
                "eth / vlan tag=0x88a8 vid=7 / vlan vid=6 / ip / tcp",
            ] {
                let bytes = flow::text::frame::parse(frame).unwrap();
                (0..4).for_each(|index| {
                    _ = rig.frame(&format!("{hook}, {frame}, index {index}"), index, &bytes)
                });
            }
            rig.settle(&format!("{hook}"));
            assert_eq!(rig.exits, 0, "{hook}");
        }
    });
}

/// At tcx a super-frame is counted as its segments, each with its headers and with the tag that it got.
#[test]
fn super_frames_count_as_their_segments() {
    let lines = ["tcp,tcp_dst=80 actions=push_vlan:0x8100,output:2"];
    within("super-frames in the kernel", NUMBERS.len(), |interfaces| {
        let mut rig =
            Rig::new(ruled(&lines), lines.map(str::to_owned).to_vec(), Hook::Tcx, &NUMBERS, interfaces);
        for (payload, size) in [(2000usize, 1000u16), (2001, 1000), (999, 1000), (3000, 100)] {
            let raw = "5a".repeat(payload);
            let frame = flow::text::frame::parse(&format!("eth / ip / tcp dport=80 / raw {raw}")).unwrap();
            let segments = Segments { kind: SegmentKind::Tcp4, size, header: 54, ecn: false };
            let offload = Offload { segments: Some(segments), ..Offload::NONE };
            let input = InputFrame { offload, ..InputFrame::new(PortNo(1), &frame) };
            receive(&mut rig.meant, 0, input, &mut Verdict::default());
            let run = rig.loaded.run(rig.loaded.program.ports[0].interface, &frame, size.into(), 1).unwrap();
            assert_eq!(run.returned, TC_ACT_REDIRECT);
        }
        rig.settle("super-frames");
        assert!(rig.meant.ports[&PortNo(2)].counters.tx_frames >= 2 + 3 + 1 + 30);
    });
}

/// Every value of a checksum through every edit that it has to follow: ones' complement has its corners at two of 65,536.
#[test]
fn checksums_follow_from_every_value() {
    within("checksums in the kernel", NUMBERS.len(), |interfaces| {
        for (hook, (protocol, set, at)) in [Hook::Xdp, Hook::Tcx]
            .into_iter()
            .flat_map(|hook| [("tcp", "tcp_dst", 50), ("udp", "udp_src", 40)].map(|edit| (hook, edit)))
        {
            let line = format!(
                "{protocol} actions=set_field:10.9.8.7->ip_src,set_field:65534->{set},dec_ttl,set_field:0.0.0.0->ip_dst,output:3"
            );
            let mut rig = Rig::new(ruled(&[&line]), vec![line.clone()], hook, &NUMBERS, interfaces);
            let mut bytes = flow::text::frame::parse(&format!("eth / ip / {protocol}")).unwrap();
            let near = (0..0x100).chain(0x7f80..0x8080).chain(0xff00..=0xffff);
            for sum in near.chain((0..0xffff).step_by(23)) {
                bytes[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
                bytes[24..26].copy_from_slice(&(sum as u16).to_be_bytes());
                rig.frame(&format!("{hook}, {protocol}, {sum:#x}"), 0, &bytes);
            }
            assert_eq!(rig.exits, 0);
        }
    });
}

/// A switch of four ports with these rules.
fn ruled(lines: &[&str]) -> Pipeline {
    let mut pipeline = Pipeline::default();
    for port in NUMBERS {
        pipeline.add_port(Port::new(PortNo(port), &format!("p{port}"), [2, 0, 1, 0, 0, port as u8]));
    }
    for line in lines {
        let change = flow::text::rule::flow_mod(FlowModCommand::Add, line).unwrap();
        pipeline.flow_mod(0, &change).unwrap();
    }
    pipeline
}

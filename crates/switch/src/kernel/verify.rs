//! A program for the kernel is asked about some frames before it is put into use.
//!
//! **What.** For some rules frames are made that the rule matches, and for these the interpreter and the program (`BPF_PROG_TEST_RUN`, in the
//! kernel that it was loaded into) have to say the same: by which port the frame leaves, and its bytes. A frame that the program leaves to user
//! space is right whatever the rules are.
//!
//! **Why.** What runs in the kernel cannot be compared frame by frame while it runs, as shadow mode does it in user space.
//!
//! **Price.** Some ten microseconds a frame, at most [`MOST`] rules, and fewer where there are many: the interpreter looks at them one by one
//! ([`LOOKS`]). At tcx a VLAN tag stands beside the frame, which a test run cannot say: there
//! frames with a tag are not tried, and a tag that was pushed is not compared.

use super::loaded::LoadedProgram;
use crate::shadow::{Divergence, rules_text};
use flow::Pipeline;
use flow::interpret::{InputFrame, Interpreter, OutputFrame, Verdict};
use flow::matching::{Match, MatchField};
use flow::port::PortNo;
use jit::kernel::{Hook, KernelPort, PortWord};
use linux::sys::clock;
use std::io;
use wire::build::{Ends, build_echo, build_udp};
use wire::edit::FrameBuf;
use wire::field::Field;
use wire::offload::Offload;

/// Rules that frames are made for.
const MOST: usize = 64;
/// And those that there are for each of these: 64 of up to 5,000 rules, 3 of 100,000. With 64 of 40,000 the comparison took 7 s, in which
/// the rules were not compiled for user space either.
const LOOKS: usize = 64 * 5_000;
/// Ports that a frame is said to come in by, when its rule does not say.
const PORTS: usize = 2;

/// Compares the program with the interpreter; how many frames both decided about, or what they disagree about.
///
/// # Errors
/// The kernel does not run the program on a frame of ours.
pub(super) fn compare(program: &LoadedProgram, pipeline: &Pipeline) -> io::Result<Result<usize, Divergence>> {
    let (mut copy, mut interpreter, mut verdict) =
        (pipeline.clone(), Interpreter::default(), Verdict::default());
    let mut compared = 0;
    for (at, frame) in frames(pipeline, &program.program.ports) {
        let KernelPort { number, interface } = program.program.ports[at];
        if interface == 0 || (program.program.hook == Hook::Tcx && is_tagged(&frame)) {
            continue;
        }
        let Some(said) = rehearse(program, interface, &frame)? else { continue };
        verdict.clear();
        let input = InputFrame { offload: Offload::NONE, ..InputFrame::new(number, &frame) };
        interpreter.carry(&mut copy, clock::monotonic_ns(), input, None, &mut verdict, &mut ());
        let meant = Verdict { sent: as_a_test_run_has_it(&verdict.sent, &said, program), ..verdict.clone() };
        if let Some(divergence) = Divergence::of(number, &frame, &meant, &said, || rules_text(pipeline)) {
            return Ok(Err(divergence));
        }
        compared += 1;
    }
    Ok(Ok(compared))
}

/// What the program does with a frame; none when it leaves it to user space.
fn rehearse(program: &LoadedProgram, interface: u32, frame: &[u8]) -> io::Result<Option<Vec<OutputFrame>>> {
    let before = program.read_ports()?;
    let left = program.run(interface, frame, 0, 1)?.frame;
    let after = program.read_ports()?;
    let ports = &program.program.ports;
    let moved = |at: usize, word| after.port(at, word).wrapping_sub(before.port(at, word));
    if (0..ports.len()).all(|at| moved(at, PortWord::Done) == 0) {
        return Ok(None);
    }
    let sent = (0..ports.len()).filter(|&at| moved(at, PortWord::TxFrames) > 0);
    let output = |at: usize| OutputFrame {
        port: ports[at].number,
        queue: None,
        frame: left.clone(),
        offload: Offload::NONE,
    };
    Ok(Some(sent.map(output).collect()))
}

/// What the interpreter sends, without a tag that a test run at tcx does not show.
fn as_a_test_run_has_it(
    sent: &[OutputFrame],
    said: &[OutputFrame],
    program: &LoadedProgram,
) -> Vec<OutputFrame> {
    let shorter = |one: &OutputFrame, other: Option<&OutputFrame>| {
        other.is_some_and(|other| other.frame.len() + 4 == one.frame.len()) && is_tagged(&one.frame)
    };
    let mut sent = sent.to_vec();
    for (at, one) in sent.iter_mut().enumerate() {
        if program.program.hook == Hook::Tcx && shorter(one, said.get(at)) {
            one.frame.drain(12..16);
        }
    }
    sent
}

fn is_tagged(frame: &[u8]) -> bool {
    matches!(frame.get(12..14), Some([0x81, 0] | [0x88, 0xa8]))
}

/// Frames for some rules, each with the index of the port that it is to come in by.
fn frames(pipeline: &Pipeline, ports: &[KernelPort]) -> Vec<(usize, Vec<u8>)> {
    let bases = bases();
    let all = pipeline.tables().flat_map(|table| table.rules()).map(|(_, entry)| &entry.rule.matching);
    let most = (LOOKS / pipeline.len().max(1)).clamp(1, MOST);
    let step = pipeline.len().div_ceil(most).max(1);
    let mut frames = vec![];
    for matching in all.step_by(step) {
        let asked = matching.get(Field::InPort).map(|field| field.value as u32);
        let fits = |port: &KernelPort| asked.is_none_or(|asked| port.number == PortNo(asked));
        let places = (0..ports.len()).filter(|&at| fits(&ports[at])).take(PORTS);
        let made: Vec<Vec<u8>> = bases.iter().filter_map(|base| fitted(base, matching)).collect();
        // One that no base fits gets a frame that it does not match.
        let made = if made.is_empty() { vec![bases[0].clone()] } else { made };
        places.for_each(|at| frames.extend(made.iter().map(|frame| (at, frame.clone()))));
    }
    frames
}

/// A frame with what a match asks for written into it, if it is of that kind.
fn fitted(base: &[u8], matching: &Match) -> Option<Vec<u8>> {
    let mut frame = FrameBuf::new();
    frame.load(base, Offload::NONE);
    let of_frame =
        |field: &&MatchField| !matches!(field.field, Field::InPort | Field::InPhyPort | Field::Metadata);
    for field in matching.fields().iter().filter(of_frame) {
        let has = frame.get(field.field)?;
        if !field.accepts(has) {
            frame.set(field.field, (has & !field.bits()) | field.value).ok()?;
        }
        field.accepts(frame.get(field.field)?).then_some(())?;
    }
    Some(frame.bytes().to_vec())
}

/// ARP, UDP, TCP and ICMP over both IPs, and UDP with a tag.
fn bases() -> Vec<Vec<u8>> {
    let mut all = vec![];
    for addresses in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let address = |text: &str| text.parse().unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
        let ends = Ends {
            macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
            addresses: (address(addresses.0), address(addresses.1)),
            ports: (1000, 2000),
        };
        let protocol = if addresses.0.contains(':') { 20 } else { 23 };
        let udp = build_udp(&ends, &[0x50; 40]).unwrap_or_default();
        let mut tcp = udp.clone();
        tcp[protocol] = 6;
        let mut tagged = udp.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        all.extend([udp, tcp, tagged]);
        all.extend(build_echo(&ends, 1, 1, &[0; 40]));
    }
    let mut arp = all[0][..14].to_vec();
    arp[12..].copy_from_slice(&[8, 6]);
    arp.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    arp.resize(60, 1);
    all.push(arp);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::QUEUES;
    use flow::pipeline::RULE_LIMIT;
    use flow::port::Port;
    use flow::rule::FlowModCommand;
    use jit::kernel::{Surroundings, compile};
    use linux::sys::bpf::{self, Map};
    use linux::sys::netns;
    use std::os::fd::AsFd;
    use std::process::Command;
    use std::sync::Arc;

    fn ip(line: &str) {
        let output = Command::new("ip").args(line.split(' ')).output().expect("ip is installed");
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn pipeline(rules: &[&str]) -> Pipeline {
        let mut pipeline = Pipeline::new(RULE_LIMIT);
        for number in [1, 2] {
            pipeline.add_port(Port::new(PortNo(number), &format!("k{number}"), [2; 6]));
        }
        for rule in rules {
            let change = flow::text::rule::flow_mod(FlowModCommand::Add, rule).unwrap();
            pipeline.flow_mod(0, &change).unwrap();
        }
        pipeline
    }

    fn loaded(pipeline: &Pipeline, hook: Hook, ports: &[KernelPort]) -> LoadedProgram {
        let around = Surroundings { hook, ports: ports.to_vec(), queues: QUEUES };
        let program = compile(pipeline, &around).expect("it compiles");
        let (kind, entries) =
            if hook == Hook::Xdp { (bpf::MAP_XSK, 2 * QUEUES) } else { (bpf::MAP_ARRAY, 2) };
        let userspace = Arc::new(Map::create(kind, 4, 4, entries, "test").unwrap());
        LoadedProgram::load(program, Some(userspace)).expect("it is loaded")
    }

    /// Rules, and others that one frame of them tells apart.
    const PAIRS: [(&str, &str); 4] = [
        ("in_port=1 actions=output:2", "in_port=1 actions=drop"),
        ("udp,udp_dst=53 actions=dec_ttl,output:2", "udp,udp_dst=53 actions=output:2"),
        (
            "tcp6,ipv6_dst=fd00::7 actions=output:2",
            "tcp6,ipv6_dst=fd00::7 actions=set_field:9->tcp_dst,output:2",
        ),
        ("arp actions=output:2", "arp actions=set_field:02:00:00:00:00:09->eth_dst,output:2"),
    ];

    #[test]
    fn a_program_of_other_rules_is_told_from_one_of_these() {
        let inside = is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: programs compared in the kernel: needs root (network namespaces)");
        };
        netns::within(inside.as_fd(), || {
            ip("link add k1 type veth peer name k2");
            ["k1", "k2"].iter().for_each(|name| ip(&format!("link set {name} up")));
            let links = linux::netlink::Netlink::open().links().unwrap();
            let index = |name: &str| links.iter().find(|link| link.name == name).unwrap().index;
            let port =
                |number| KernelPort { number: PortNo(number), interface: index(&format!("k{number}")) };
            let ports = [port(1), port(2)];
            // A driver runs XDP on frames of ours only while a program is there.
            let _sinks = ["k1", "k2"].map(|name| linux::port::sink::Sink::open(name).unwrap());
            for hook in [Hook::Tcx, Hook::Xdp] {
                for (rule, other) in PAIRS {
                    let (right, wrong) = (pipeline(&[rule]), pipeline(&[other]));
                    let program = loaded(&right, hook, &ports);
                    let compared = compare(&program, &right).unwrap();
                    assert!(compared.is_ok_and(|frames| frames > 0), "{hook} {rule}");
                    assert!(compare(&program, &wrong).unwrap().is_err(), "{hook} {rule} is not {other}");
                }
            }
        })
        .unwrap();
    }

    fn is_root() -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
    }
}

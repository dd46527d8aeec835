//! The same pipelines and frames through Open vSwitch and through the interpreter.
//!
//! **What.** Pipelines by chance ([`crate::random`]) are loaded into both from the same text. Of every frame are compared:
//! the ports that Open vSwitch names when it is asked (`ofproto/trace`), the packet-ins and their reasons, the frames that
//! really leave its ports, byte by byte and in their order, and at the end what each rule counted. A smaller number
//! goes over real cables through both programs.
//!
//! **Why.** The interpreter was written by people who read the standard; so was Open vSwitch, by others. Where the two
//! agree on ten thousand frames, either both read it right or both in the same wrong way.
//!
//! **Price.** What Open vSwitch does not have, or does otherwise, is not made by chance. [`DIFFERENCES`] is the list of the
//! latter: each stands there with its section of the standard and a frame that shows it, so that the list cannot grow by
//! opinion, and tells when it is no longer true.

use crate::client::{Client, End, Running, add};
use crate::random::{Case, Given, PORTS};
use crate::site::{Site, needs_root, within};
use crate::vswitch::{Tail, Vswitch, is_missing, load};
use flow::Pipeline;
use flow::interpret::{InputFrame, Verdict, receive};
use flow::openflow::bytes::{Hex, Version};
use flow::openflow::message::Body;
use flow::openflow::misc::{AsyncConfig, AsyncProperty, SwitchConfig};
use flow::port::{Port, PortNo};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Pipelines by chance, and frames for each.
const PIPELINES: u64 = 200;
const FRAMES: u32 = 50;
/// Pipelines whose frames go over cables.
const WIRED: u64 = 24;

/// A frame that every pipeline sends to all ports: what came before it has left when it is there.
const FENCE: &str = "cookie=0xffff,table=0,priority=65535,dl_type=0x88b5 actions=ALL,IN_PORT";

/// What became of a frame: by port the frames that left, and the reasons of the packet-ins.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Fate {
    sent: BTreeMap<u32, Vec<String>>,
    packet_ins: Vec<u64>,
}

fn hex(bytes: &[u8]) -> String {
    flow::text::hex(bytes)
}

fn fence() -> Vec<u8> {
    flow::text::frame::parse("eth type=0x88b5 / pad 46").unwrap()
}

fn is_fence(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x88, 0xb5])
}

/// The number of LOCAL in Open vSwitch's datapath: the bridge's own port comes behind those that it was given.
const LOCAL: u32 = PORTS + 1;

/// The interpreter, with the rules of a text.
fn ours(text: &str) -> Result<Pipeline, String> {
    let mut pipeline = Pipeline::default();
    for number in 1..=PORTS {
        pipeline.add_port(Port::new(PortNo(number), &format!("p{number}"), [2, 0, 0, 0, 0, number as u8]));
    }
    pipeline.add_port(Port::new(PortNo::LOCAL, "local", [2, 0, 0, 0, 0, 0xfe]));
    flow::text::file::load(&mut pipeline, text).map_err(|error| format!("{error}\n{text}"))?;
    Ok(pipeline)
}

fn interpreted(pipeline: &mut Pipeline, given: &Given) -> Fate {
    let mut verdict = Verdict::default();
    receive(pipeline, 0, InputFrame::new(PortNo(given.port), &given.frame), &mut verdict);
    let mut fate = Fate::default();
    for sent in &verdict.sent {
        fate.sent.entry(sent.port.0).or_default().push(hex(&sent.frame));
    }
    fate.packet_ins = verdict.packet_ins.iter().map(|one| one.reason as u64).collect();
    fate
}

/// What Open vSwitch answered to a trace: the ports by which frames leave, and the reasons of packet-ins.
fn traced(answer: &str) -> (Vec<u32>, Vec<u64>) {
    let (mut ports, mut reasons) = (vec![], vec![]);
    for line in answer.lines().filter_map(|line| line.strip_prefix("Datapath actions: ")) {
        actions(line, &mut ports, &mut reasons);
    }
    ports.sort_unstable();
    (ports, reasons)
}

fn actions(list: &str, ports: &mut Vec<u32>, reasons: &mut Vec<u64>) {
    let mut rest = list;
    while !rest.is_empty() {
        let end = end_of_item(rest);
        let item = &rest[..end];
        rest = rest[end..].trim_start_matches(',');
        if let Ok(port) = item.parse() {
            ports.push(port);
        } else if let Some(inner) = item.strip_prefix("clone(") {
            actions(&inner[..inner.len() - 1], ports, reasons);
        } else if let Some((_, text)) = item.split_once("controller(reason=") {
            // Its own number for a packet-in of a table-miss rule is 6; it says 0 to controllers, as §7.4.1 does.
            let reason: u64 = text.split(',').next().unwrap().parse().unwrap();
            reasons.push(if reason == 6 { 0 } else { reason });
        }
    }
}

/// Where the first item of a list ends: at a comma outside of parentheses.
fn end_of_item(list: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in list.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    list.len()
}

/// Open vSwitch with ports in memory, and what left by each.
struct Theirs {
    vswitch: Vswitch,
    tails: Vec<Tail>,
    client: Client,
}

impl Theirs {
    fn start() -> Theirs {
        let vswitch = Vswitch::in_memory(PORTS);
        let tails = (1..=PORTS).map(|port| Tail::new(&vswitch.capture(port))).collect();
        let client = Client::connect(&vswitch.socket(), Version::V14);
        Theirs { vswitch, tails, client }
    }

    /// What becomes of the frames: the answers to their traces, and what left.
    fn run(&mut self, frames: &[Given]) -> (Vec<String>, Vec<Fate>) {
        let trace = |given: &Given| {
            ("ofproto/trace", vec!["br".to_owned(), format!("in_port={}", given.port), hex(&given.frame)])
        };
        let answers = self.vswitch.ask(&frames.iter().map(trace).collect::<Vec<_>>());
        let put = |port: u32, frame: &[u8]| ("netdev-dummy/receive", vec![format!("p{port}"), hex(frame)]);
        let mut puts: Vec<_> = frames.iter().map(|given| put(given.port, &given.frame)).collect();
        // Each port has a queue of its own.
        puts.extend((1..=PORTS).map(|port| put(port, &fence())));
        self.vswitch.ask(&puts);
        let mut fates = vec![Fate::default(); frames.len()];
        for port in 1..=PORTS {
            for frame in self.left(port) {
                let number = u32::from_be_bytes(frame[frame.len() - 4..].try_into().unwrap());
                fates[number as usize].sent.entry(port).or_default().push(hex(&frame));
            }
        }
        for (fate, answer) in fates.iter_mut().zip(&answers) {
            fate.packet_ins = traced(answer).1;
        }
        (answers, fates)
    }

    /// What left by a port before the fences.
    fn left(&mut self, port: u32) -> Vec<Vec<u8>> {
        let mut frames = vec![];
        let mut fences = 0;
        let deadline = Instant::now() + Duration::from_secs(60);
        while fences < PORTS {
            for frame in self.tails[port as usize - 1].read() {
                if is_fence(&frame) {
                    fences += 1;
                } else {
                    frames.push(frame);
                }
            }
            assert!(
                Instant::now() < deadline,
                "the fences do not come out: {fences}\n{}",
                self.vswitch.log()
            );
        }
        frames
    }

    /// Frames that each rule counted, by cookie.
    fn counts(&mut self) -> BTreeMap<u64, u64> {
        // What the cache counted goes to the rules.
        self.vswitch.ask(&[("revalidator/purge", vec![])]);
        self.client.rules().iter().map(|rule| (rule.cookie.0, rule.packet_count)).collect()
    }
}

/// All that is not the same for a case; nothing when both agree.
fn compare(theirs: &mut Theirs, case: &Case) -> (Vec<String>, usize) {
    let mut rules = case.rules.clone();
    rules.push(FENCE.to_owned());
    if let Err(refused) = theirs.vswitch.load(&case.groups, &rules) {
        return (vec![format!("Open vSwitch refuses the rules: {refused}")], 0);
    }
    let mut pipeline = match ours(&format!("{}{FENCE}\n", case.text())) {
        Ok(pipeline) => pipeline,
        Err(refused) => return (vec![format!("the interpreter refuses the rules: {refused}")], 0),
    };
    let (answers, fates) = theirs.run(&case.frames);
    let (mut wrong, mut forwarded) = (vec![], 0);
    for ((given, answer), fate) in case.frames.iter().zip(&answers).zip(&fates) {
        let mut before = pipeline.clone();
        let mut own = interpreted(&mut pipeline, given);
        let mut ports: Vec<u32> =
            own.sent.iter().flat_map(|(port, frames)| vec![*port; frames.len()]).collect();
        ports.iter_mut().filter(|port| **port == PortNo::LOCAL.0).for_each(|port| *port = LOCAL);
        ports.sort_unstable();
        // Open vSwitch does not write down what its own port gets.
        own.sent.remove(&PortNo::LOCAL.0);
        forwarded += usize::from(!ports.is_empty());
        // A trace ends where an MPLS entry was taken off and the frame is looked at again; the frames themselves go on.
        let is_whole = !answer.contains("recirc(");
        if !is_whole {
            own.packet_ins.clone_from(&fate.packet_ins);
        }
        if own != *fate || is_whole && ports != traced(answer).0 {
            let arrival = InputFrame::new(PortNo(given.port), &given.frame);
            let told = flow::trace::trace(&mut before, 0, arrival, None).text();
            let frame = hex(&given.frame);
            wrong.push(format!(
                "in_port={} {frame}\nours   {own:?}\ntheirs {fate:?}\n{told}{answer}",
                given.port
            ));
        }
    }
    let counted: BTreeMap<u64, u64> = pipeline
        .tables()
        .flat_map(|table| table.rules())
        .map(|(_, entry)| (entry.rule.cookie, entry.frames))
        .filter(|(cookie, _)| *cookie != 0xffff)
        .collect();
    let mut theirs = theirs.counts();
    theirs.remove(&0xffff);
    if wrong.is_empty() && counted != theirs {
        wrong.push(format!("the rules counted\nours   {counted:?}\ntheirs {theirs:?}"));
    }
    (wrong, forwarded)
}

/// The seed of this run: `PATHLAB_SEED`, else always the same.
fn seed() -> u64 {
    std::env::var("PATHLAB_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn pipelines(usual: u64) -> u64 {
    std::env::var("PATHLAB_PIPELINES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn pipelines_by_chance_do_what_they_do_in_open_vswitch() {
    let what = "pipelines by chance through Open vSwitch and the interpreter";
    if is_missing(what) {
        return;
    }
    let mut theirs = Theirs::start();
    let (first, mut forwarded, mut wrong) = (seed() * 1_000_000, 0, 0);
    let all = pipelines(PIPELINES);
    for number in first..first + all {
        let case = Case::new(number, FRAMES);
        let (found, left) = compare(&mut theirs, &case);
        forwarded += left;
        wrong += found.len();
        if !found.is_empty() && wrong - found.len() < 20 {
            println!("--- pipeline {number} (PATHLAB_SEED={})\n{}", seed(), found[0]);
        }
    }
    println!(
        "{all} pipelines, {} frames, {forwarded} of them left by some port, {wrong} differ",
        all * u64::from(FRAMES)
    );
    assert_eq!(wrong, 0, "Open vSwitch and the interpreter differ");
    assert!(forwarded as u64 > all * u64::from(FRAMES) / 4, "most frames meet rules: {forwarded}");
}

/// One thing that the two do otherwise, and that is not made by chance therefore.
struct Difference {
    /// What.
    what: &'static str,
    /// Why ours is as it is.
    because: &'static str,
    rules: &'static [&'static str],
    /// The frame comes in by port 1.
    frame: &'static str,
    /// By which port which frame leaves.
    ours: &'static [(u32, &'static str)],
    theirs: &'static [(u32, &'static str)],
}

/// A neighbour solicitation with the code 1.
const ND_WITH_CODE: &str = "eth / ip6 next=58 / raw 87010000\
    00000000fd0000000000000000000000000000020101020000000001 / raw 00000000";

/// An MPLS entry, and behind it what was behind the type of a VLAN tag.
const MPLS_IN_FRONT: &str =
    "eth / mpls label=9 / raw 000508004500002000010000401166ca0a0000010a00000203e807d0000ce01b00000000";

/// All of them. docs/switch.md tells them to people.
const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "a pushed VLAN tag has the number and the priority of the one behind it, not 0",
        because: "OpenFlow 1.3.5, 5.12.1 and table 6: a push copies VLAN ID and VLAN priority from an existing outer tag",
        rules: &["vlan_vid=0x1000/0x1000 actions=push_vlan:0x8100,output:2"],
        frame: "eth / vlan vid=5,pcp=3 / ip / udp / raw 00000000",
        ours: &[(2, "eth / vlan vid=5,pcp=3 / vlan vid=5,pcp=3 / ip / udp / raw 00000000")],
        theirs: &[(2, "eth / vlan vid=0,pcp=0 / vlan vid=5,pcp=3 / ip / udp / raw 00000000")],
    },
    Difference {
        what: "a pushed MPLS entry has label and traffic class 0, not what is made of the DSCP",
        because: "OpenFlow 1.3.5, table 6: label and traffic class come from an outer MPLS entry, and are 0 without one",
        rules: &["ip,dl_vlan=0xffff actions=push_mpls:0x8847,output:2"],
        frame: "eth / ip tos=184,ttl=9 / udp / raw 00000000",
        ours: &[(2, "eth / mpls label=0,tc=0,ttl=9 / ip tos=184,ttl=9 / udp / raw 00000000")],
        theirs: &[(2, "eth / mpls label=0,tc=6,ttl=9 / ip tos=184,ttl=9 / udp / raw 00000000")],
    },
    Difference {
        what: "an MPLS entry that is pushed on a frame without any TTL has TTL 0, not 64",
        because: "OpenFlow 1.3.5, table 6: the TTL comes from MPLS or IP, and is 0 without them",
        rules: &["arp,dl_vlan=0xffff actions=push_mpls:0x8847,set_field:9->mpls_label,output:2"],
        frame: "eth / arp / raw 00000000",
        ours: &[(2, "eth / mpls label=9,ttl=0 / arp / raw 00000000")],
        theirs: &[(2, "eth / mpls label=9,ttl=64 / arp / raw 00000000")],
    },
    Difference {
        what: "an MPLS entry is pushed in front of VLAN tags, not behind them",
        because: "OpenFlow 1.3.5, 5.12: the entry goes immediately after the Ethernet header and before other tags",
        rules: &[
            "ip,dl_vlan=5 actions=push_mpls:0x8847,set_field:9->mpls_label,set_field:0->mpls_tc,output:2",
        ],
        frame: "eth / vlan vid=5 / ip / udp / raw 00000000",
        ours: &[(2, MPLS_IN_FRONT)],
        theirs: &[(2, "eth / vlan vid=5 / mpls label=9 / ip / udp / raw 00000000")],
    },
    Difference {
        what: "the first fragment of a datagram has ports",
        because: "OpenFlow 1.3.5, 7.3.2: a fragment misses fields only if they are not present in it",
        rules: &["priority=2,udp,udp_dst=2000 actions=output:2", "priority=1 actions=output:3"],
        frame: "eth / ip mf=1 / udp / raw 00000000",
        ours: &[(2, "eth / ip mf=1 / udp / raw 00000000")],
        theirs: &[(3, "eth / ip mf=1 / udp / raw 00000000")],
    },
    Difference {
        what: "a later fragment has no ports, not the ports 0",
        because: "OpenFlow 1.3.5, 7.3.2: a frame without a field matches no rule that has that field",
        rules: &["priority=2,udp,udp_dst=0 actions=output:2", "priority=1 actions=output:3"],
        frame: "eth / ip offset=5,proto=17 / raw 00000000",
        ours: &[(3, "eth / ip offset=5,proto=17 / raw 00000000")],
        theirs: &[(2, "eth / ip offset=5,proto=17 / raw 00000000")],
    },
    Difference {
        what: "a header that is cut off has no fields, not fields of 0",
        because: "OpenFlow 1.3.5, 7.3.2: a frame without a field matches no rule that has that field",
        rules: &["priority=2,ip,nw_dst=0.0.0.0 actions=output:2", "priority=1 actions=output:3"],
        frame: "eth type=0x800 / raw 4500001400000000",
        ours: &[(3, "eth type=0x800 / raw 4500001400000000")],
        theirs: &[(2, "eth type=0x800 / raw 4500001400000000")],
    },
    Difference {
        what: "a frame whose TTL is over goes no further, and its action set with it",
        because: "OpenFlow 1.3.5, 5.12: the switch checks for packets with an invalid TTL and rejects them",
        rules: &["actions=write_actions(output:2),goto_table:1", "table=1,ip actions=dec_ttl,output:3"],
        frame: "eth / ip ttl=1 / udp / raw 00000000",
        ours: &[],
        theirs: &[(2, "eth / ip ttl=1 / udp / raw 00000000")],
    },
    Difference {
        what: "a frame of 60 bytes that loses a tag is filled up to 60 again",
        because: "IEEE 802.3, 3.2.8 and 802.1Q, G.2.3: no frame without FCS is shorter; who takes a tag away fills it up",
        rules: &["vlan_vid=0x1000/0x1000 actions=pop_vlan,output:2"],
        frame: "eth / vlan vid=5,type=0x9999 / pad 38 / raw 00000000",
        ours: &[(2, "eth type=0x9999 / pad 42 / raw 00000000")],
        theirs: &[(2, "eth type=0x9999 / pad 38 / raw 00000000")],
    },
    Difference {
        what: "neighbour discovery is known by its type alone, whatever its code",
        because: "OpenFlow 1.3.5, 7.2.3.8, table 11: the prerequisite of the fields is icmpv6_type",
        rules: &[
            "priority=2,icmp6,icmpv6_type=135,nd_target=fd00::2 actions=output:2",
            "priority=1 actions=output:3",
        ],
        frame: ND_WITH_CODE,
        ours: &[(2, ND_WITH_CODE)],
        theirs: &[(3, ND_WITH_CODE)],
    },
    Difference {
        what: "a set-field of a tag that is gone writes nothing, and makes no tag",
        because: "OpenFlow 1.3.5, 5.12: set-field modifies a header field; to make a tag is a push's",
        rules: &[
            "vlan_vid=0x1000/0x1000 actions=write_actions(set_field:0x1007->vlan_vid,output:2),goto_table:1",
            "table=1,vlan_vid=0x1000/0x1000 actions=pop_vlan",
        ],
        frame: "eth / vlan vid=5 / ip / udp / raw 00000000",
        ours: &[(2, "eth / ip / udp / raw 00000000")],
        theirs: &[(2, "eth / vlan vid=7 / ip / udp / raw 00000000")],
    },
    Difference {
        what: "a frame that meets no rule of a later table is dropped, and its action set with it",
        because: "OpenFlow 1.3.5, 5.4: without a table-miss rule, frames that no rule matches are dropped",
        rules: &["actions=write_actions(output:2),goto_table:1"],
        frame: "eth / ip / udp / raw 00000000",
        ours: &[],
        theirs: &[(2, "eth / ip / udp / raw 00000000")],
    },
];

#[test]
fn what_differs_from_open_vswitch_differs_as_the_list_says() {
    let what = "the list of differences from Open vSwitch";
    if is_missing(what) {
        return;
    }
    let mut theirs = Theirs::start();
    for one in DIFFERENCES {
        let frame = |text: &str| flow::text::frame::parse(text).unwrap();
        let given = Given { port: 1, frame: frame(one.frame) };
        let mut rules: Vec<String> = one.rules.iter().map(|rule| (*rule).to_owned()).collect();
        rules.push(FENCE.to_owned());
        theirs.vswitch.load(&[], &rules).unwrap();
        let text: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
        let own = interpreted(&mut ours(&text).unwrap(), &given);
        let (_, other) = theirs.run(&[given]);
        let expected = |list: &[(u32, &str)]| {
            list.iter().map(|(port, text)| (*port, vec![hex(&frame(text))])).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(own.sent, expected(one.ours), "ours: {}", one.what);
        assert_eq!(other[0].sent, expected(one.theirs), "no longer so in Open vSwitch: {}", one.what);
        assert_ne!(own.sent, other[0].sent, "{}: {}", one.what, one.because);
    }
}

/// Sends the frames and, behind them, fences on every port; what came out. A second round of fences, because Open vSwitch
/// lets frames of flows that it knows wait for the first frames of others that came with them; the standard does not
/// promise an order between flows.
fn over_cables(ends: &mut [End], frames: &[Given]) -> Vec<BTreeMap<u32, Vec<String>>> {
    let mut fates = vec![BTreeMap::new(); frames.len()];
    // Few at a time: what leaves has to fit into the sockets until it is read.
    for some in frames.chunks(10) {
        for given in some {
            ends[given.port as usize - 1].send(&given.frame);
        }
        for _ in 0..2 {
            fences(ends, &mut fates);
        }
    }
    fates
}

/// Sends a fence on every port, and takes what arrives before them.
fn fences(ends: &mut [End], fates: &mut [BTreeMap<u32, Vec<String>>]) {
    for end in ends.iter_mut() {
        end.send(&fence());
    }
    for (index, end) in ends.iter_mut().enumerate() {
        until_fences(end, |number, frame| {
            fates[number].entry(index as u32 + 1).or_default().push(hex(frame));
        });
    }
}

/// What arrives until there was a fence from every port.
fn until_fences(end: &mut End, mut take: impl FnMut(usize, &[u8])) {
    let mut fences = 0;
    while fences < PORTS {
        let frame = end.must();
        if is_fence(&frame) {
            fences += 1;
        } else {
            take(u32::from_be_bytes(frame[frame.len() - 4..].try_into().unwrap()) as usize, &frame);
        }
    }
}

fn ends(site: &Site) -> Vec<End> {
    site.hosts.iter().map(|host| within(host, || End::open("int:eth0"))).collect()
}

#[test]
fn the_same_frames_leave_both_switches_over_cables() {
    let what = "the same frames over cables through Open vSwitch and pathlab switch";
    if needs_root(what) || is_missing(what) {
        return;
    }
    let mut own = Site::bare(PORTS as usize);
    let listen = format!("punix:{}", own.socket().display());
    let ports = ["1=int:p1", "2=ring:p2", "3=int:p3", "4=ring:p4"];
    own.switch(&[&["--listen", &listen][..], &ports.map(|port| ["--port", port]).concat()].concat());
    own.wait_for("the switch's socket", |site| site.socket().exists());
    let other = Site::in_turn(PORTS as usize);
    let mut vswitch = Vswitch::in_site(&other);
    let (mut own_ends, mut other_ends) = (ends(&own), ends(&other));
    let (first, mut forwarded) = (seed() * 1_000_000 + 500_000, 0);
    for number in first..first + pipelines(WIRED).min(WIRED) {
        let case = Case::new(number, FRAMES);
        let mut rules = case.rules.clone();
        rules.push(FENCE.to_owned());
        vswitch.load(&case.groups, &rules).unwrap();
        load(own.folder.path(), &own.socket(), &case.groups, &rules).unwrap();
        let theirs = over_cables(&mut other_ends, &case.frames);
        let ours = over_cables(&mut own_ends, &case.frames);
        for ((given, ours), theirs) in case.frames.iter().zip(&ours).zip(&theirs) {
            let frame = hex(&given.frame);
            assert_eq!(
                ours,
                theirs,
                "PATHLAB_SEED={} pipeline {number}\n{}in_port={} {frame}",
                seed(),
                case.text(),
                given.port
            );
            forwarded += usize::from(!ours.is_empty());
        }
    }
    println!("{} pipelines over cables, {forwarded} frames left by some port", pipelines(WIRED).min(WIRED));
    assert!(forwarded > 0, "most frames meet rules");
}

/// How many bytes of a frame a packet-in carries: of an output that asks for 20 bytes, and of a TTL that is over, when 20 bytes were asked for.
fn told_bytes(client: &mut Client, put: &mut dyn FnMut(&[u8])) -> [usize; 2] {
    client.must([
        Body::SetConfig(SwitchConfig { flags: Default::default(), miss_send_len: 20 }),
        // Open vSwitch tells of a TTL that is over only who asks for it.
        Body::SetAsync(AsyncConfig { properties: vec![AsyncProperty::PacketInMaster(Hex(7))] }),
        add("priority=2,udp actions=controller:20"),
        add("priority=1,icmp actions=dec_ttl,output:2"),
    ]);
    ["eth / ip / udp / pad 60", "eth / ip ttl=1 / icmp / pad 60"].map(|text| {
        let frame = flow::text::frame::parse(text).unwrap();
        put(&frame);
        client.wait_for("packet-in", |message| match &message.body {
            Body::PacketIn(packet_in) => {
                assert_eq!(
                    (packet_in.buffer_id.0, usize::from(packet_in.total_len)),
                    (u32::MAX, frame.len())
                );
                Some(packet_in.data.0.len())
            }
            _ => None,
        })
    })
}

/// Neither buffers frames. OpenFlow 1.3.5 section 6.1.2: "Switches that do not support internal buffering … must send the full packet".
#[test]
fn packet_ins_are_as_long_as_those_of_open_vswitch() {
    let what = "the length of packet-ins beside Open vSwitch";
    if is_missing(what) {
        return;
    }
    let mut own = Running::start(2);
    let mut client = own.client(Version::V13);
    let ours = told_bytes(&mut client, &mut |frame| own.end(1).send(frame));
    let mut theirs = Vswitch::in_memory(2);
    let mut client = Client::connect(&theirs.socket(), Version::V13);
    let others = told_bytes(&mut client, &mut |frame| {
        theirs.ask(&[("netdev-dummy/receive", vec!["p1".to_owned(), hex(frame)])]);
    });
    assert_eq!((ours, others), ([14 + 20 + 8 + 60; 2], [14 + 20 + 8 + 60; 2]));
}

//! The pipelines that are measured, and the frames that meet their rules.
//!
//! **What.** [`PIPELINES`] names them; each makes rules and [`FlowHeader`]s: for every rule that frames should meet one header. A flow's
//! header is the one of its rule with the bits that the rule leaves open drawn from the flow's number.
//!
//! **Why.** One million flows must not be a million frames in memory, or the benchmark measures their cache misses: a header is made in
//! registers from a list as long as the rules and written into one frame.
//!
//! **Price.** That work is measured alone and taken off. The list of a set of 64k rules is two megabytes, read in order.

use super::classbench::{self, Family, Random, mixed, rule};
use flow::action::{Action, Instruction};
use flow::matching::MatchField;
use flow::port::Port;
use flow::rule::{FlowMod, FlowModCommand, Rule};
use flow::{Field, Match, Pipeline, PortNo, text};
use record::{Problem, Result};

/// Bytes of a frame: 64 with FCS.
pub const FRAME: usize = 60;

/// What a flow has: fixed bits, and which bits may vary.
#[derive(Debug, Clone, Copy)]
pub struct FlowHeader {
    dst: u64,
    src: u64,
    addresses: (u64, u64),
    ports: (u32, u32),
    protocol: u8,
    in_port: u32,
}

impl FlowHeader {
    /// TCP between two hosts, from port 1; nothing varies.
    pub fn any() -> FlowHeader {
        FlowHeader {
            dst: 0x0200_0000_0002,
            src: 0x0200_0000_0001,
            addresses: (0x0a00_0001_0a00_0002, 0),
            ports: (1000 << 16 | 80, 0),
            protocol: 6,
            in_port: 1,
        }
    }

    /// The header that a match asks for; the rest of addresses and ports is open.
    pub fn of(matching: &Match) -> FlowHeader {
        use Field::*;
        let mut header = FlowHeader::any();
        let part = |field| matching.get(field).map_or((0, 0), |m| (m.value as u64, m.bits() as u64));
        let ((src, src_mask), (dst, dst_mask)) = (part(Ipv4Src), part(Ipv4Dst));
        header.addresses = (src << 32 | dst, !(src_mask << 32 | dst_mask));
        header.protocol = matching.exact(IpProto).map_or(6, |protocol| protocol as u8);
        let (from, to) = if header.protocol == 6 { (TcpSrc, TcpDst) } else { (UdpSrc, UdpDst) };
        let ((from, from_mask), (to, to_mask)) = (part(from), part(to));
        header.ports = ((from << 16 | to) as u32, !(from_mask << 16 | to_mask) as u32);
        header.dst = matching.exact(EthDst).map_or(header.dst, |address| address as u64);
        header.src = matching.exact(EthSrc).map_or(header.src, |address| address as u64);
        header.in_port = matching.exact(InPort).map_or(1, |port| port as u32);
        header
    }

    /// Writes the header of a flow into a frame of IPv4; the port by which it comes in.
    pub fn write(&self, flow: u64, frame: &mut [u8; FRAME]) -> u32 {
        let random = mixed(flow);
        let addresses = self.addresses.0 | random & self.addresses.1;
        let ports = self.ports.0 | (random >> 16) as u32 & self.ports.1;
        frame[..8].copy_from_slice(&(self.dst << 16 | self.src >> 32).to_be_bytes());
        frame[8..12].copy_from_slice(&(self.src as u32).to_be_bytes());
        frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, self.protocol, 0, 0][..]);
        frame[26..34].copy_from_slice(&addresses.to_be_bytes());
        frame[34..38].copy_from_slice(&ports.to_be_bytes());
        self.in_port
    }
}

/// A pipeline and the headers of its flows.
#[derive(Debug)]
pub struct Workload {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// One for each rule that frames meet, in random order.
    pub headers: Vec<FlowHeader>,
}

/// A pipeline that is measured.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Part of `--quick`.
    pub is_quick: bool,
    make: fn(seed: u64) -> Result<Workload>,
}

/// All of them.
pub const PIPELINES: &[Named] = &[
    Named {
        name: "seed2",
        what: "the two rules of the LINC journal: by in_port",
        is_quick: true,
        make: seed2,
    },
    Named { name: "rules10", what: "10 rules: ports, addresses, protocols", is_quick: true, make: rules10 },
    Named { name: "udp256", what: "256 rules: udp_dst", is_quick: true, make: |_| udp(256) },
    Named {
        name: "cidr912",
        what: "912 rules: nw_src/len with tcp_dst",
        is_quick: true,
        make: |seed| cidr(912, seed),
    },
    Named { name: "mac1k", what: "1,000 MAC addresses", is_quick: true, make: |_| macs(1_000) },
    Named { name: "mac64k", what: "64,000 MAC addresses", is_quick: false, make: |_| macs(64_000) },
    Named {
        name: "lpm10k",
        what: "10,000 prefixes, next hops by set-field and dec_ttl",
        is_quick: true,
        make: |seed| lpm(10_000, seed),
    },
    Named {
        name: "lpm500k",
        what: "500,000 prefixes, the same",
        is_quick: false,
        make: |seed| lpm(500_000, seed),
    },
    Named {
        name: "acl1k",
        what: "access list, 1,000 rules",
        is_quick: false,
        make: |seed| set(Family::Acl, 1_000, seed),
    },
    Named {
        name: "acl10k",
        what: "access list, 10,000 rules",
        is_quick: true,
        make: |seed| set(Family::Acl, 10_000, seed),
    },
    Named {
        name: "acl64k",
        what: "access list, 64,000 rules",
        is_quick: false,
        make: |seed| set(Family::Acl, 64_000, seed),
    },
    Named {
        name: "fw1k",
        what: "firewall, 1,000 rules",
        is_quick: false,
        make: |seed| set(Family::Fw, 1_000, seed),
    },
    Named {
        name: "fw10k",
        what: "firewall, 10,000 rules",
        is_quick: true,
        make: |seed| set(Family::Fw, 10_000, seed),
    },
    Named {
        name: "fw64k",
        what: "firewall, 64,000 rules",
        is_quick: false,
        make: |seed| set(Family::Fw, 64_000, seed),
    },
    Named {
        name: "ipc1k",
        what: "IP chain, 1,000 rules",
        is_quick: false,
        make: |seed| set(Family::Ipc, 1_000, seed),
    },
    Named {
        name: "ipc10k",
        what: "IP chain, 10,000 rules",
        is_quick: true,
        make: |seed| set(Family::Ipc, 10_000, seed),
    },
    Named {
        name: "ipc64k",
        what: "IP chain, 64,000 rules",
        is_quick: false,
        make: |seed| set(Family::Ipc, 64_000, seed),
    },
    Named {
        name: "faucet",
        what: "Faucet's tables: ports to VLANs, learned sources, learned targets, flood",
        is_quick: true,
        make: faucet,
    },
    Named {
        name: "gateway",
        what: "5 tables: admission, firewall, address translation, routes, next hops",
        is_quick: true,
        make: gateway,
    },
];

impl Named {
    /// Makes it.
    ///
    /// # Errors
    /// A rule that the pipeline refuses: a mistake in this file.
    pub fn make(&self, seed: u64) -> Result<Workload> {
        (self.make)(seed)
    }
}

/// A switch with these rules; headers of those that are named, shuffled.
fn workload(rules: Vec<(u8, Rule)>, headers: Vec<FlowHeader>, seed: u64) -> Result<Workload> {
    let mut pipeline = Pipeline::default();
    for number in 1..=8 {
        pipeline.add_port(Port::new(PortNo(number), &format!("p{number}"), [2, 0, 1, 0, 0, number as u8]));
    }
    for (table, rule) in rules {
        let change = FlowMod::new(FlowModCommand::Add, table, rule);
        pipeline.flow_mod(0, &change).map_err(|error| Problem::host(error.to_string()))?;
    }
    let mut headers = headers;
    let mut random = Random(seed);
    for at in (1..headers.len()).rev() {
        headers.swap(at, random.below(at as u64 + 1) as usize);
    }
    Ok(Workload { pipeline, headers })
}

fn one_table(rules: Vec<Rule>, seed: u64) -> Result<Workload> {
    let headers =
        rules.iter().filter(|rule| rule.priority > 0).map(|rule| FlowHeader::of(&rule.matching)).collect();
    workload(rules.into_iter().map(|rule| (0, rule)).collect(), headers, seed)
}

/// Rules as ovs-ofctl writes them.
fn written(lines: &str) -> Result<Vec<(u8, Rule)>> {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let one = |line| text::rule::parse(line).map_err(|error| Problem::host(format!("{line}: {error}")));
    lines.map(one).collect()
}

fn seed2(_: u64) -> Result<Workload> {
    let rules =
        written("in_port=1 actions=write_actions(output:2)\nin_port=2 actions=write_actions(output:1)")?;
    one_table(rules.into_iter().map(|(_, rule)| rule).collect(), 1)
}

fn rules10(seed: u64) -> Result<Workload> {
    let rules = written(
        "priority=90,arp actions=output:3
         priority=80,tcp,nw_dst=10.0.0.0/24,tcp_dst=80 actions=output:2
         priority=79,tcp,nw_dst=10.0.1.0/24,tcp_dst=443 actions=output:3
         priority=78,udp,udp_dst=53 actions=output:4
         priority=70,ip,nw_src=192.168.0.0/16 actions=output:5
         priority=69,ip,nw_dst=10.9.0.0/16 actions=output:2
         priority=60,dl_dst=02:00:00:00:00:07 actions=output:2
         priority=50,in_port=3 actions=output:1
         priority=40,icmp actions=output:2
         priority=1,ip actions=output:6",
    )?;
    let rules: Vec<Rule> = rules.into_iter().map(|(_, rule)| rule).collect();
    let headers = rules.iter().filter(|rule| rule.matching.exact(Field::EthType) == Some(0x800));
    let headers = headers.map(|rule| FlowHeader::of(&rule.matching)).collect();
    workload(rules.into_iter().map(|rule| (0, rule)).collect(), headers, seed)
}

fn udp(count: u16) -> Result<Workload> {
    let fields = |port: u16| {
        let exact = |field, value: u16| MatchField::exact(field, value);
        vec![exact(Field::EthType, 0x800), exact(Field::IpProto, 17), exact(Field::UdpDst, 5000 + port)]
    };
    one_table((0..count).map(|port| rule(100, fields(port), 2)).collect(), 1)
}

fn cidr(count: usize, seed: u64) -> Result<Workload> {
    let mut random = Random(seed);
    let one = |index: usize| {
        let length = [16, 20, 22, 24, 24, 24, 28, 32][random.below(8) as usize];
        let mask = u32::MAX << (32 - length);
        let address = 0x0a00_0000 | random.below(1 << 22) as u32;
        let fields = vec![
            MatchField::exact(Field::EthType, 0x800u16),
            MatchField::exact(Field::IpProto, 6u8),
            MatchField::masked(Field::Ipv4Src, address & mask, mask),
            MatchField::exact(Field::TcpDst, [80u16, 443][index % 2]),
        ];
        rule(1000 + length as u16, fields, 2 + index as u32 % 4)
    };
    one_table((0..count).map(one).collect(), seed)
}

fn macs(count: u64) -> Result<Workload> {
    let one = |index: u64| {
        let address = 0x0200_0000_0000 | mixed(index) & 0xff_ffff_ffff;
        rule(100, vec![MatchField::exact(Field::EthDst, address)], 2 + index as u32 % 4)
    };
    one_table((0..count).map(one).collect(), 1)
}

/// Prefixes with the lengths of a full table of the Internet in outline, each with a next hop.
fn lpm(count: usize, seed: u64) -> Result<Workload> {
    let mut random = Random(seed);
    let mut seen = std::collections::HashSet::new();
    let mut rules = vec![];
    while rules.len() < count {
        let length =
            [24u32, 24, 24, 24, 24, 24, 23, 22, 22, 21, 20, 19, 18, 16, 16, 14][random.below(16) as usize];
        let mask = u32::MAX << (32 - length);
        let address = random.draw() as u32 & mask;
        if !(1 << 24..224 << 24).contains(&address) || !seen.insert((address, length)) {
            continue;
        }
        let fields = vec![
            MatchField::exact(Field::EthType, 0x800u16),
            MatchField::masked(Field::Ipv4Dst, address, mask),
        ];
        rules.push(Rule::new(
            length as u16,
            Match::new(fields).unwrap_or_default(),
            next_hop(random.below(16)),
        ));
    }
    one_table(rules, seed)
}

/// Addresses, TTL and port of a next hop.
fn next_hop(number: u64) -> Vec<Instruction> {
    let set = |field, value: u64| Action::SetField { field, value: value.into() };
    let port = PortNo(2 + number as u32 % 4);
    vec![Instruction::ApplyActions(vec![
        set(Field::EthSrc, 0x0200_0000_aa00 + u64::from(port.0)),
        set(Field::EthDst, 0x0200_0000_bb00 + number),
        Action::DecNwTtl,
        Action::Output { port, max_len: 0 },
    ])]
}

fn set(family: Family, count: usize, seed: u64) -> Result<Workload> {
    one_table(classbench::rules(family, count, seed), seed)
}

/// Hosts of the Faucet-like pipeline.
const HOSTS: u64 = 400;

/// Untagged ports of two VLANs: port → VLAN, source known, target known, else flood.
fn faucet(seed: u64) -> Result<Workload> {
    let mut lines = String::from("table=0,priority=0 actions=drop\ntable=1,priority=0 actions=drop\n");
    lines.extend((1..=8).map(faucet_port));
    lines +=
        "table=1,priority=20480,dl_type=0x88cc actions=drop\ntable=1,priority=4096,ip actions=goto_table:2\n";
    lines += "table=2,priority=0 actions=CONTROLLER:96,goto_table:3\n";
    lines.extend((0..HOSTS).map(faucet_host));
    lines += "table=3,priority=0 actions=goto_table:4\n";
    lines.extend((0..2).map(faucet_flood));
    workload(written(&lines)?, (0..HOSTS).map(faucet_header).collect(), seed)
}

/// A port is in one of the two VLANs.
fn faucet_port(port: u64) -> String {
    let vlan = 0x1000 + faucet_vlan(port);
    format!(
        "table=0,priority=9000,in_port={port},vlan_vid=0 actions=push_vlan:0x8100,set_field:{vlan}->vlan_vid,goto_table:1\n"
    )
}

fn faucet_vlan(parity: u64) -> u64 {
    100 * (1 + parity % 2)
}

/// A host is known at its port; three of four are known as targets, too.
fn faucet_host(host: u64) -> String {
    let (port, vlan) = (1 + host % 8, faucet_vlan(1 + host));
    let address = text::value::show(Field::EthSrc, (0x0200_0000_0000 + host).into());
    let source = format!(
        "table=2,priority=8191,in_port={port},dl_vlan={vlan},dl_src={address} actions=goto_table:3\n"
    );
    let target =
        format!("table=3,priority=8192,dl_vlan={vlan},dl_dst={address} actions=pop_vlan,output:{port}\n");
    if host % 4 == 3 { source } else { source + &target }
}

/// What is for nobody goes to all ports of the VLAN.
fn faucet_flood(parity: u64) -> String {
    let ports = (1..=8).filter(|port| port % 2 == parity).map(|port| format!("output:{port}"));
    let ports = ports.collect::<Vec<_>>().join(",");
    format!("table=4,priority=8000,dl_vlan={} actions=pop_vlan,{ports}\n", faucet_vlan(parity))
}

fn faucet_header(host: u64) -> FlowHeader {
    let other = (host + 2 * (1 + host % 7)) % HOSTS;
    let (src, dst) = (0x0200_0000_0000 + host, 0x0200_0000_0000 + other);
    FlowHeader { src, dst, in_port: (1 + host % 8) as u32, ..FlowHeader::any() }
}

/// Hosts behind the gateway.
const INSIDE: u32 = 2_000;

/// Admission by port and VLAN, firewall, address translation both ways, routes, next hops: edits in three tables.
fn gateway(seed: u64) -> Result<Workload> {
    let mut rules = written(
        "table=0,priority=10,in_port=1,ip actions=write_metadata:0x1,goto_table:1
         table=0,priority=10,in_port=2,ip actions=write_metadata:0x2,goto_table:2
         table=0,priority=1,arp actions=CONTROLLER:96
         table=2,priority=0 actions=goto_table:3",
    )?;
    let firewall = classbench::rules(Family::Fw, 1_000, seed).into_iter();
    let admitted = || vec![Instruction::GotoTable(2)];
    rules.extend(firewall.map(|rule| (1, Rule { instructions: admitted(), ..rule })));
    rules.extend(written(&(0..INSIDE).map(translation).collect::<String>())?);
    rules.extend(written(&routes(&mut Random(seed)))?);
    rules.extend((0..16).map(gateway_hop));
    workload(rules, (0..INSIDE).flat_map(gateway_headers).collect(), seed)
}

/// The address of a host is translated on its way out, and back on the way in, by its port.
fn translation(host: u32) -> String {
    let inside = format!("10.3.{}.{}", host / 250, host % 250 + 1);
    let port = 10_000 + host;
    format!(
        "table=2,priority=20,metadata=0x1,tcp,nw_src={inside} actions=set_field:198.51.100.7->ip_src,set_field:{port}->tcp_src,goto_table:3
             table=2,priority=20,metadata=0x2,tcp,nw_dst=198.51.100.7,tcp_dst={port} actions=set_field:{inside}->ip_dst,set_field:5000->tcp_dst,goto_table:3\n"
    )
}

/// Both directions of a host's flows.
fn gateway_headers(host: u32) -> [FlowHeader; 2] {
    let inside = 0x0a03_0000u64 | u64::from(host / 250) << 8 | u64::from(host % 250 + 1);
    let out = FlowHeader {
        addresses: (inside << 32 | 0x0800_0000, 0xffff),
        ports: (5000 << 16, 0xffff),
        ..FlowHeader::any()
    };
    let addresses = (0xc633_6407, 0xffff << 32);
    let back =
        FlowHeader { addresses, ports: (10_000 + host, 0xffff << 16), in_port: 2, ..FlowHeader::any() };
    [out, back]
}

/// Routes to one of sixteen next hops, and one for all else.
fn routes(random: &mut Random) -> String {
    let mut route = |number: u32| {
        let prefix = format!("{}.{}.0.0/16", 1 + random.below(220), random.below(256));
        let hop = (number % 16) << 8;
        format!(
            "table=3,priority=16,ip,nw_dst={prefix} actions=write_metadata:{hop:#x}/0xff00,goto_table:4\n"
        )
    };
    let routes: String = (0..500).map(&mut route).collect();
    routes + "table=3,priority=1,ip actions=goto_table:4"
}

fn gateway_hop(hop: u64) -> (u8, Rule) {
    let fields = vec![MatchField::masked(Field::Metadata, hop << 8, 0xff00u64)];
    (4, Rule::new(5, Match::new(fields).unwrap_or_default(), next_hop(hop)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::interpret::{InputFrame, Verdict, receive};
    use jit::{Compiler, Frame, Outcome, Outputs, Worker};
    use wire::offload::Offload;

    /// Where the frames of a workload leave, by code and by the interpreter.
    fn check(name: &str, workload: &Workload, program: &jit::Program) {
        let (mut worker, mut outputs, mut verdict) = Default::default();
        let mut pipeline = workload.pipeline.clone();
        let (worker, outputs): (&mut Worker, &mut Outputs) = (&mut worker, &mut outputs);
        for (flow, header) in workload.headers.iter().enumerate().step_by(workload.headers.len() / 300 + 1) {
            let mut bytes = [0; FRAME];
            let port = PortNo(header.write(flow as u64, &mut bytes));
            let verdict: &mut Verdict = &mut verdict;
            verdict.clear();
            receive(&mut pipeline, 1, InputFrame::new(port, &bytes), verdict);
            let sent: Vec<PortNo> = verdict.sent.iter().map(|output| output.port).collect();
            let mut room = [[0; 128].as_slice(), &bytes].concat();
            let (start, end) = (128, room.len());
            let mut frame = Frame { room: &mut room, start, end, offload: Offload::NONE };
            if program.frame(worker, 1, port.into(), &mut frame, outputs) == Outcome::Done {
                let left: Vec<PortNo> = outputs.list.iter().map(|output| output.port).collect();
                assert_eq!(left, sent, "{name}, flow {flow}");
            }
        }
    }

    fn follow(compiler: &mut Compiler, pipeline: &mut Pipeline) {
        let changed = pipeline.take_changed();
        changed.rules.iter().for_each(|(table, at)| _ = compiler.update(pipeline, *table, *at).unwrap());
    }

    /// Lists with hundreds of kinds of masks, whose probes are pruned: as they were made, and with rules taken out and put in again.
    #[test]
    fn frames_of_large_lists_leave_as_the_interpreter_says() {
        for (name, family, count) in [
            ("acl", Family::Acl, 700),
            ("fw", Family::Fw, 700),
            ("fw", Family::Fw, 4500),
            ("ipc", Family::Ipc, 1500),
        ] {
            let mut workload = set(family, count, 11).unwrap();
            let mut compiler = Compiler::new(&workload.pipeline).unwrap();
            check(name, &workload, &compiler.program());

            workload.pipeline.take_changed();
            let (mut fewer, mut gone) = (Workload { headers: workload.headers, ..workload }, vec![]);
            let rules: Vec<Rule> =
                fewer.pipeline.table(0).unwrap().rules().map(|(_, entry)| (*entry.rule).clone()).collect();
            for rule in rules.iter().step_by(9) {
                let change = FlowMod::new(FlowModCommand::DeleteStrict, 0, rule.clone());
                fewer.pipeline.flow_mod(0, &change).unwrap();
                gone.push(rule.clone());
            }
            follow(&mut compiler, &mut fewer.pipeline);
            check(name, &fewer, &compiler.program());
            for rule in gone {
                fewer.pipeline.flow_mod(0, &FlowMod::new(FlowModCommand::Add, 0, rule)).unwrap();
            }
            follow(&mut compiler, &mut fewer.pipeline);
            check(name, &fewer, &compiler.program());
        }
    }
}

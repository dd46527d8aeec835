//! Random rules, ports and frames, as text that `flow` reads: the smallest counterexample is then a file that a person can read.

use fastrand::Rng;
use flow::port::{Port, PortConfig, PortState};
use flow::rule::{FlowMod, FlowModCommand};
use flow::text::rule;
use flow::{Pipeline, PortNo, text};

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn ipv4(rng: &mut Rng) -> String {
    format!("10.{}.{}.{}", rng.u8(0..3), rng.u8(0..3), rng.u8(0..4))
}

fn mac(rng: &mut Rng) -> String {
    format!("02:00:00:00:00:0{}", rng.u8(0..6))
}

fn ipv6(rng: &mut Rng) -> String {
    format!("fd0{}::{}", rng.u8(0..3), rng.u8(0..4))
}

fn port(rng: &mut Rng) -> u16 {
    [80, 53, 1000, 1001, 1024, 2000][rng.usize(..6)]
}

/// One condition with what it needs before it; empty for all frames.
fn condition(rng: &mut Rng) -> String {
    let prefix = [8, 15, 16, 24, 30, 31, 32][rng.usize(..7)];
    let mask6 = [8, 16, 64, 127, 128][rng.usize(..5)];
    match rng.u8(0..42) {
        34 | 35 => "ip".to_owned(),
        36 => "tcp".to_owned(),
        37 | 38 => "udp".to_owned(),
        39 => "ipv6".to_owned(),
        40 => "vlan_vid=0x1000/0x1000".to_owned(),
        41 => "vlan_vid=0x1000/0x1000,ip".to_owned(),
        0..=2 => String::new(),
        3 => format!("in_port={}", rng.u8(1..5)),
        4 => format!("dl_dst={}", mac(rng)),
        5 => format!("dl_src={}", mac(rng)),
        6 => "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00".to_owned(),
        7 => format!("dl_vlan={}", rng.u8(4..8)),
        8 => pick(rng, &["vlan_vid=0x1000/0x1000", "dl_vlan=0xffff", "dl_vlan=5,dl_vlan_pcp=3"]).to_owned(),
        9 | 10 => format!("ip,nw_dst={}/{prefix}", ipv4(rng)),
        11 => format!("ip,nw_src={}/{prefix}", ipv4(rng)),
        12 => format!("ip,nw_src={}/{prefix},nw_dst={}/{prefix}", ipv4(rng), ipv4(rng)),
        13 => format!("tcp,tcp_dst={}", port(rng)),
        14 => format!("tcp,nw_dst={},tcp_src={}", ipv4(rng), port(rng)),
        15 => format!("udp,udp_dst={}", port(rng)),
        16 => format!("udp,nw_src={}/{prefix},udp_src={}", ipv4(rng), port(rng)),
        17 => format!("udp,udp_dst={:#x}/{:#x}", 1024, 0xfc00),
        18 => format!("sctp,sctp_dst={}", port(rng)),
        19 => pick(rng, &["icmp,icmp_type=8", "icmp,icmp_type=0,icmp_code=0", "icmp"]).to_owned(),
        20 => format!("ipv6,ipv6_dst={}/{mask6}", ipv6(rng)),
        21 => format!("ipv6,ipv6_src={}/{mask6},ipv6_dst={}", ipv6(rng), ipv6(rng)),
        22 => format!("tcp6,tcp_dst={}", port(rng)),
        23 => pick(
            rng,
            &[
                "icmp6,icmpv6_type=135",
                "icmp6,icmpv6_type=135,nd_target=fd00::1",
                "ipv6,ipv6_label=0x5",
                "icmp6,icmpv6_type=135,nd_sll=02:00:00:00:00:03",
                "ipv6,ipv6_exthdr=0x40/0x40",
                "icmp6,icmpv6_type=136",
            ],
        )
        .to_owned(),
        24 => format!("arp,arp_op={}", rng.u8(1..3)),
        25 => format!("arp,arp_tpa={}/{prefix}", ipv4(rng)),
        26 => format!("arp,arp_sha={}", mac(rng)),
        27 => pick(rng, &["mpls,mpls_bos=1", "mpls,mpls_label=5", "mpls,mpls_tc=2", "mplsm"]).to_owned(),
        28 => format!("metadata={:#x}/{:#x}", rng.u8(0..4) & 3, 3),
        29 => format!("tun_id={}", rng.u8(0..3)),
        30 => pick(
            rng,
            &[
                "dl_type=0x88e7",
                "dl_type=0x88e7,pbb_isid=5",
                "dl_type=0x05ff",
                "dl_type=0x0800",
                "dl_type=0x86dd",
            ],
        )
        .to_owned(),
        31 => format!("ip,ip_dscp={}", rng.u8(0..3)),
        32 => format!("in_port={},dl_vlan=5,ip,nw_dst={}/{prefix}", rng.u8(1..4), ipv4(rng)),
        _ => format!(
            "in_port=1,dl_dst={},tcp,nw_src={},nw_dst={},tcp_src={},tcp_dst={}",
            mac(rng),
            ipv4(rng),
            ipv4(rng),
            port(rng),
            port(rng)
        ),
    }
}

/// One action; the rare ones are those that the interpreter has to carry out.
fn action(rng: &mut Rng) -> String {
    match rng.u8(0..50) {
        46 | 47 => format!("set_field:{}->ip_{}", ipv4(rng), pick(rng, &["src", "dst"])),
        48 => format!("set_field:{}->udp_{}", port(rng), pick(rng, &["src", "dst"])),
        49 => format!("set_field:{}->tcp_{}", port(rng), pick(rng, &["src", "dst"])),
        0..=5 => format!("output:{}", rng.u8(1..6)),
        6..=8 => "dec_ttl".to_owned(),
        9 => "push_vlan:0x8100".to_owned(),
        10 => "IN_PORT".to_owned(),
        11 => pick(rng, &["ALL", "FLOOD"]).to_owned(),
        12 => format!("set_queue:{}", rng.u8(0..4)),
        13 | 14 => pick(rng, &["pop_vlan", "pop_vlan", "push_vlan:0x8100", "push_vlan:0x88a8"]).to_owned(),
        15 => format!("set_field:{}->eth_dst", mac(rng)),
        16 => format!("set_field:{}->eth_src", mac(rng)),
        17 => format!("set_field:{}->ip_src", ipv4(rng)),
        18 => format!("set_field:{}->ip_dst", ipv4(rng)),
        19 => format!("set_field:{}->tcp_src", port(rng)),
        20 => format!("set_field:{}->tcp_dst", port(rng)),
        21 => format!("set_field:{}->udp_src", port(rng)),
        22 => format!("set_field:{}->udp_dst", port(rng)),
        23 => format!("set_field:{}->vlan_vid", 4096 + u16::from(rng.u8(4..8))),
        24 => format!("set_field:{}->vlan_pcp", rng.u8(0..8)),
        25..=27 => "dec_ttl".to_owned(),
        28 => format!("mod_nw_ttl:{}", rng.u8(0..3)),
        29 => format!("set_field:{}->ip_dscp", rng.u8(0..3)),
        30 => pick(rng, &["push_mpls:0x8847", "push_mpls:0x8848"]).to_owned(),
        31 => pick(rng, &["pop_mpls:0x0800", "pop_mpls:0x86dd", "pop_mpls:0x8847"]).to_owned(),
        32 => "dec_mpls_ttl".to_owned(),
        33 => format!("set_field:{}->mpls_label", rng.u8(4..8)),
        34 => pick(rng, &["copy_ttl_in", "copy_ttl_out"]).to_owned(),
        35 => pick(rng, &["push_pbb:0x88e7", "pop_pbb"]).to_owned(),
        36 => format!("set_field:{}->tun_id", rng.u8(0..3)),
        37 => format!("set_field:{}->ipv6_src", ipv6(rng)),
        38 => format!("set_field:{}->ipv6_dst", ipv6(rng)),
        39 => format!("set_field:{}->sctp_dst", port(rng)),
        40 => format!("set_field:{}->arp_tpa", ipv4(rng)),
        41 => pick(
            rng,
            &[
                "set_field:17->ip_proto",
                "set_field:6->ip_proto",
                "set_field:0x86dd->eth_type",
                "set_field:136->icmpv6_type",
            ],
        )
        .to_owned(),
        42 => pick(rng, &["set_field:8->icmp_type", "set_field:1->ip_ecn", "set_field:2->arp_op"]).to_owned(),
        43 if rng.bool() => pick(rng, &["CONTROLLER:60", "NORMAL", "group:1"]).to_owned(),
        _ => format!("output:{}", rng.u8(1..4)),
    }
}

/// A switch that says whether a rule would be taken.
fn is_taken(line: &str) -> bool {
    thread_local! {
        static SCRATCH: std::cell::RefCell<Pipeline> = std::cell::RefCell::new(with_group());
    }
    let change = rule::flow_mod(FlowModCommand::Add, line);
    change.is_ok_and(|change| {
        SCRATCH.with_borrow_mut(|scratch| {
            let is_taken = scratch.flow_mod(0, &change).is_ok();
            scratch.flow_mod(0, &FlowMod { command: FlowModCommand::DeleteStrict, ..change }).unwrap();
            is_taken
        })
    })
}

fn with_group() -> Pipeline {
    let mut pipeline = Pipeline::new(1 << 20);
    let group =
        text::group::parse("group_id=1,type=all,bucket=actions=output:2,bucket=actions=output:3").unwrap();
    let command = flow::numbered::ModCommand::Add;
    pipeline.group_mod(0, &flow::group::GroupMod { command, group }).unwrap();
    pipeline
}

/// Actions of which each may follow those before it, for frames of this match; mostly with an output at the end.
fn list(rng: &mut Rng, matching: &str, most: usize) -> String {
    let comma = if matching.is_empty() { "" } else { "," };
    let mut actions: Vec<String> = vec![];
    for _ in 0..rng.usize(0..=most) {
        actions.push(action(rng));
        if !is_taken(&format!("priority=1{comma}{matching} actions={}", actions.join(","))) {
            actions.pop();
        }
    }
    if rng.u8(0..3) > 0 {
        actions.push(format!("output:{}", rng.u8(1..5)));
    }
    actions.join(",")
}

/// A rule; some are refused and made anew.
fn some_rule(rng: &mut Rng, tables: u8, actions: usize) -> String {
    let table = rng.u8(0..tables);
    let matching = condition(rng);
    let mut parts = vec![];
    let apply = list(rng, &matching, actions);
    parts.extend((!apply.is_empty()).then_some(apply));
    parts.extend((rng.u8(0..12) == 0).then(|| "clear_actions".to_owned()));
    if rng.u8(0..3) == 0 {
        parts.push(format!("write_actions({})", list(rng, &matching, 2)));
    }
    if rng.u8(0..4) == 0 {
        parts.push(format!("write_metadata:{:#x}/0x3", rng.u8(0..4)));
    }
    if table + 1 < tables && rng.u8(0..5) > 0 {
        parts.push(format!("goto_table:{}", rng.u8(table + 1..tables)));
    }
    let comma = if matching.is_empty() { "" } else { "," };
    let flags = pick(rng, &["", "", "", ",no_packet_counts", ",no_byte_counts"]);
    let priority = rng.u8(0..12);
    let actions = if parts.is_empty() { "drop".to_owned() } else { parts.join(",") };
    format!("table={table},priority={priority}{flags}{comma}{matching} actions={actions}")
}

/// A pipeline and the lines that made it.
pub fn pipeline(rng: &mut Rng, most: usize) -> (Pipeline, Vec<String>) {
    let mut pipeline = with_group();
    for number in 1..=4 {
        let mut port = Port::new(PortNo(number), &format!("p{number}"), [2, 0, 1, 0, 0, number as u8]);
        match rng.u8(0..24) {
            0 => port.config = port.config.with(PortConfig::NO_RECV),
            1 => port.config = port.config.with(PortConfig::NO_FWD),
            2 => port.state = port.state.with(PortState::LINK_DOWN),
            3 => port.state = port.state.with(PortState::BLOCKED),
            _ => {}
        }
        pipeline.add_port(port);
    }
    if rng.u8(0..16) == 0 {
        pipeline.config.fragments = flow::pipeline::Fragments::Drop;
    }
    let (tables, actions) = (rng.u8(1..5), rng.usize(1..5));
    let mut lines = vec![];
    let wanted = rng.usize(1..=most);
    for _ in 0..8 * wanted {
        let line = some_rule(rng, tables, actions);
        if let Ok(change) = rule::flow_mod(FlowModCommand::Add, &line)
            && pipeline.flow_mod(0, &change).is_ok()
        {
            lines.push(line);
        }
        if lines.len() >= wanted {
            break;
        }
    }
    (pipeline, lines)
}

/// Another rule for a pipeline, or a delete.
pub fn change(rng: &mut Rng, tables: u8) -> Option<FlowMod> {
    let line = some_rule(rng, tables, 3);
    let command = if rng.u8(0..3) == 0 { FlowModCommand::DeleteStrict } else { FlowModCommand::Add };
    match command {
        FlowModCommand::Add => rule::flow_mod(command, &line).ok(),
        _ => rule::flow_mod(command, line.split(" actions").next()?).ok(),
    }
}

/// A checksum; right or wrong, it has to follow. Those near zero are where ones' complement has its corners.
fn sum(rng: &mut Rng) -> u16 {
    if rng.bool() { rng.u16(..) } else { [0, 1, 0xfffe, 0xffff][rng.usize(..4)] }
}

/// A frame in the words of `flow::text::frame`.
fn layers(rng: &mut Rng) -> String {
    let mut line = format!("eth src={} dst={}", mac(rng), mac(rng));
    for _ in 0..[0, 0, 0, 0, 0, 1, 1, 1, 2, 3][rng.usize(..10)] {
        let tag = pick(rng, &["0x8100", "0x8100", "0x88a8"]);
        line += &format!(" / vlan tag={tag} vid={} pcp={}", rng.u8(4..8), rng.u8(0..8));
    }
    let ttl = [0, 1, 2, 64, 64, 64][rng.usize(..6)];
    let v4 = format!("ip src={} dst={} ttl={ttl} tos={}", ipv4(rng), ipv4(rng), rng.u8(0..12));
    let v6 = format!("ip6 src={} dst={} ttl={ttl}", ipv6(rng), ipv6(rng));
    let (from, to) = (port(rng), port(rng));
    let transport = match rng.u8(0..5) {
        0 | 1 => format!("tcp sport={from} dport={to} sum={}", sum(rng)),
        2 => format!("udp sport={from} dport={to} sum={}", sum(rng)),
        3 => format!("udp sport={from} dport={to} sum=0"),
        _ => format!("sctp sport={from} dport={to}"),
    };
    let bytes: String = (0..rng.usize(0..40)).map(|_| format!("{:02x}", rng.u8(..))).collect();
    let raw = if bytes.is_empty() { String::new() } else { format!(" / raw {bytes}") };
    line + &match rng.u8(0..22) {
        0..=5 => format!(" / {v4} / {transport}{raw}"),
        6 | 7 => format!(" / {v6} / {transport}{raw}"),
        8 => format!(" / {v4} / icmp{raw}"),
        9 => format!(
            " / {v6} / {} / {transport}{raw}",
            pick(rng, &["hop", "dest", "routing left=1", "hop / dest"])
        ),
        10 => format!(" / {v6} / frag offset={} next=17{raw}", rng.u8(0..2)),
        11 => format!(" / {v4} mf=1 / {transport}{raw}"),
        12 => format!(" / {v4} offset={}{raw}", [1, 8, 1000, 4096, 8191][rng.usize(..5)]),
        13 => format!(" / arp op={} spa={} tpa={} sha={}", rng.u8(1..3), ipv4(rng), ipv4(rng), mac(rng)),
        14 => format!(" / mpls label={} tc={} / {v4} / {transport}{raw}", rng.u8(4..8), rng.u8(0..4)),
        15 => format!(" / mpls label=5 / mpls label=6 / {v6} / {transport}{raw}"),
        16 => format!(" / pbb isid={} / eth / {v4} / {transport}{raw}", rng.u8(4..7)),
        17 => format!(" / {v6} / {}", pick(rng, &["ns", "na", "ns target=fd00::1 sll=02:00:00:00:00:03"])),
        18 => format!(" / {v4} / {v4} / {transport}"),
        19 => raw.clone(),
        _ => format!(" / {v4} / tcp sport={from} dport={to}{raw}"),
    }
}

/// A frame: whole, cut, or with bytes that were hit.
pub fn frame(rng: &mut Rng) -> Vec<u8> {
    let line = layers(rng);
    let mut frame = text::frame::parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    match rng.u8(0..12) {
        0 => frame.truncate(rng.usize(0..=frame.len())),
        1 => (0..rng.usize(1..4)).for_each(|_| {
            let at = rng.usize(..frame.len().min(70));
            frame[at] = rng.u8(..);
        }),
        2 => frame.resize(frame.len().max(60), 0),
        3 => frame.extend((0..rng.usize(..300)).map(|_| 7)),
        5 if frame.len() > 16 => frame[14] ^= 0x10,
        6 => {
            // What is behind a sum of ones' complement: a word of zeros or ones.
            let at = rng.usize(14..frame.len().max(15)) & !1;
            let word = pick(rng, &["0000", "ffff"]);
            for byte in frame.iter_mut().skip(at).take(2) {
                *byte = if word == "0000" { 0 } else { 0xff };
            }
        }
        4 if frame.len() > 20 => {
            // A length of IP that is not the frame's.
            let at = rng.usize(14..frame.len().min(40));
            frame[at] = frame[at].wrapping_add(1);
        }
        _ => {}
    }
    frame
}

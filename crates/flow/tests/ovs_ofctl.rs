//! Our text against that of the real ovs-ofctl(8): it reads what we write, and we read what it writes.

use flow::text::{group, rule};
use std::process::Command;

/// What `ovs-ofctl` prints about a line, or the reason why it cannot be asked.
fn ofctl(verb: &str, line: &str) -> Result<String, String> {
    let output = Command::new("ovs-ofctl")
        .args(["-O", "OpenFlow14", verb, line])
        .output()
        .map_err(|e| e.to_string())?;
    assert!(output.status.success(), "{verb} {line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_missing() -> bool {
    let is_missing = Command::new("ovs-ofctl").arg("--version").output().is_err();
    if is_missing {
        skip("ovs-ofctl's text: ovs-ofctl is not installed (Debian: openvswitch-common)");
    }
    is_missing
}

fn skip(what: &str) {
    use std::io::Write;
    eprintln!("SKIP: {what}");
    if let Some(path) = std::env::var_os("PATHLAB_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(file.unwrap(), "{what}").unwrap();
    }
}

/// Lines with every field, action and instruction that Open vSwitch has, too.
const RULES: &[&str] = &[
    "table=0,priority=1 actions=drop",
    "cookie=0x1234,table=3,priority=65535,idle_timeout=5,hard_timeout=6,importance=7,send_flow_rem,check_overlap,\
     reset_counts actions=output:1",
    "table=0,priority=2,in_port=1 actions=IN_PORT",
    "table=0,priority=2,in_port=LOCAL actions=output:1,FLOOD,ALL,NORMAL,LOCAL,CONTROLLER:65535",
    "table=0,priority=2,dl_src=02:00:00:00:00:01/ff:00:00:00:00:00,dl_dst=02:00:00:00:00:02 actions=CONTROLLER:128",
    "table=0,priority=2,metadata=0x5/0xff actions=write_metadata:0x1/0x3,goto_table:4",
    "table=0,priority=2,tun_id=0x99 actions=set_field:0x77->tun_id,output:2",
    "table=0,priority=2,dl_vlan=7,vlan_pcp=3 actions=set_field:0x1009->vlan_vid,set_field:5->vlan_pcp,pop_vlan,output:1",
    "table=0,priority=2,dl_vlan=0xffff actions=push_vlan:0x8100,set_field:0x1001->vlan_vid,output:1",
    "table=0,priority=2,vlan_vid=0x1000/0x1000 actions=output:1",
    "table=0,priority=2,ip,nw_src=10.0.0.0/8,nw_dst=10.9.8.7 actions=dec_ttl,output:1",
    "table=0,priority=2,ip,ip_dscp=18,nw_ecn=2 actions=set_field:20->ip_dscp,set_field:1->nw_ecn,mod_nw_ttl:9,output:1",
    "table=0,priority=2,tcp,tcp_src=1,tcp_dst=2 actions=set_field:3->tcp_src,set_field:10.0.0.1->nw_src,output:1",
    "table=0,priority=2,tcp,tcp_src=0x400/0xfc00,tcp_dst=0x50/0xfff0 actions=output:1",
    "table=0,priority=2,udp,udp_dst=2 actions=set_field:3->udp_dst,set_field:10.0.0.1->nw_dst,output:1",
    "table=0,priority=2,sctp,sctp_dst=2 actions=set_field:3->sctp_dst,output:1",
    "table=0,priority=2,icmp,icmp_type=8,icmp_code=0 actions=set_queue:5,output:1",
    "table=0,priority=2,tcp6,ipv6_src=fe80::/10,ipv6_dst=2001:db8::1,ipv6_label=0x55 actions=output:1",
    "table=0,priority=2,icmp6,icmpv6_type=135,nd_target=fe80::1,nd_sll=02:00:00:00:00:01 actions=output:1",
    "table=0,priority=2,icmp6,icmpv6_type=136,nd_tll=02:00:00:00:00:01 actions=output:1",
    "table=0,priority=2,arp,arp_op=1,arp_spa=10.0.0.0/24,arp_tpa=10.0.0.9,arp_sha=02:00:00:00:00:01 actions=output:1",
    "table=0,priority=2,mpls,mpls_label=99,mpls_tc=3,mpls_bos=1 actions=set_mpls_ttl(7),dec_mpls_ttl,pop_mpls:0x0800,output:1",
    "table=0,priority=2,ip actions=push_mpls:0x8847,set_field:77->mpls_label,output:1",
    "table=1,priority=2 actions=meter:3,output:1,clear_actions,write_actions(pop_vlan,output:2),goto_table:5",
    "table=1,priority=2 actions=group:9",
];

#[test]
fn ovs_ofctl_reads_our_rules_and_we_read_its() {
    if is_missing() {
        return;
    }
    for line in RULES {
        let (table, ours) = rule::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let shown = rule::show(table, &ours);
        let printed = ofctl("parse-flow", &shown).unwrap();
        let flow =
            printed.lines().find(|line| line.contains("FLOW_MOD")).unwrap_or_else(|| panic!("{printed}"));
        // OFPT_FLOW_MOD (OF1.4) (xid=0x1): ADD table:3 priority=… cookie:0x… idle:5 … actions=…
        let body = flow.split_once("ADD").unwrap_or_else(|| panic!("{flow}")).1;
        let (head, tail) = body.split_once("actions=").unwrap_or_else(|| panic!("{flow}"));
        let names = [
            ("table:", "table="),
            ("cookie:", "cookie="),
            ("idle:", "idle_timeout="),
            ("hard:", "hard_timeout="),
        ];
        let head = names
            .iter()
            .fold(head.replace("importance:", "importance="), |h, (theirs, ours)| h.replace(theirs, ours));
        let body = format!("{head}actions={tail}");
        let (their_table, theirs) =
            rule::parse(body.trim()).unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(their_table, table, "{flow}");
        assert!(theirs.matching.same(&ours.matching), "{shown}\n{flow}");
        assert_eq!(actions(&theirs.instructions), actions(&ours.instructions), "{shown}\n{flow}");
        let numbers = |rule: &flow::rule::Rule| {
            (rule.cookie, rule.idle_timeout, rule.hard_timeout, rule.importance, rule.flags)
        };
        assert_eq!(numbers(&theirs), numbers(&ours), "{flow}");
        if body.contains("priority=") {
            assert_eq!(theirs.priority, ours.priority, "{flow}");
        }
    }
}

/// ovs-ofctl prints some set-fields by their names of OpenFlow 1.0, which are read as the same actions; it forgets the
/// length of a frame for ports other than the controller, as we do.
fn actions(instructions: &[flow::Instruction]) -> Vec<String> {
    instructions.iter().map(flow::text::action::show_instruction).collect()
}

#[test]
fn ovs_ofctl_reads_our_groups() {
    if is_missing() {
        return;
    }
    let lines = [
        "group_id=1,type=all,bucket=actions=output:1,bucket=actions=output:2",
        "group_id=2,type=select,bucket=weight:5,actions=output:1,output:2,bucket=actions=group:1",
        "group_id=3,type=indirect,bucket=actions=output:3",
        "group_id=4,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:1,actions=output:2",
    ];
    for line in lines {
        let ours = group::parse(line).unwrap();
        let printed = ofctl("parse-group", &group::show(&ours)).unwrap();
        let theirs = printed
            .split_once("group_id=")
            .map(|(_, rest)| format!("group_id={}", rest.lines().next().unwrap()));
        let theirs = group::parse(&theirs.unwrap_or_else(|| panic!("{printed}"))).unwrap();
        assert_eq!(theirs, ours, "{printed}");
    }
}

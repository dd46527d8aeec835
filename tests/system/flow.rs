//! `pathlab flow trace` from outside.

use crate::support::{run, run_ok};

/// Rules with an access list, a group and a meter.
const RULES: &str = "meter=1,pktps,burst,band=type=drop,rate=100,burst_size=10\n\
    group_id=7,type=all,bucket=actions=output:2,bucket=actions=push_vlan:0x8100,output:3\n\
    table=0,priority=10,tcp,tcp_dst=23 actions=drop # no telnet\n\
    table=0,priority=1,ip actions=meter:1,dec_ttl,write_metadata:0x5,goto_table:1\n\
    table=1,metadata=0x5 actions=group:7,CONTROLLER:20\n";

fn rules() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), RULES).unwrap();
    file
}

#[test]
fn a_trace_tells_every_step_and_what_leaves() {
    let file = rules();
    let path = file.path().to_str().unwrap();
    let text = run_ok(&["flow", "trace", "--rules", path, "in_port=1,tcp,nw_dst=10.0.0.9,tcp_dst=80"]);
    for part in
        ["table: table=0,priority=1,ip", "meter: 1 lets it pass", "bucket: 1 of group 7", "sent: by port 3"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let frame = "eth / ip ttl=9 / udp / raw 0102";
    let json = run_ok(&["--json", "flow", "trace", "--rules", path, "--in-port", "4", frame]);
    let told: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["schema"], "pathlab/flow-trace/1");
    assert_eq!(told["sent"].as_array().unwrap().len(), 2);
    assert_eq!(told["sent"][0]["port"], "2");
    let sent = told["sent"][0]["hex"].as_str().unwrap();
    assert_eq!(&sent[44..46], "08", "the TTL is one less: {sent}");
    let whole = told["packet_ins"][0]["hex"].as_str().unwrap().len();
    assert_eq!(whole, sent.len(), "nothing is buffered, so the controller gets the whole frame");
    assert_eq!(told["packet_ins"][0]["metadata"], "0x5");
    let telnet = run_ok(&["flow", "trace", "--rules", path, "in_port=1,tcp,tcp_dst=23"]);
    assert!(telnet.contains("priority=10") && !telnet.contains("sent:"), "{telnet}");
}

#[test]
fn a_trace_says_what_is_wrong_and_where() {
    let file = rules();
    let path = file.path().to_str().unwrap();
    std::fs::write(file.path(), format!("{RULES}actions=group:9\n")).unwrap();
    let refused = run(&["flow", "trace", "--rules", path, "tcp"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert!(words.contains("line 6: an action was refused: the group does not exist"), "{words}");
    std::fs::write(file.path(), RULES).unwrap();
    for (frame, what) in
        [("tcp,colour=1", "column 5"), ("eth / ipx", "is not a layer"), ("pcap:/nowhere", "/nowhere")]
    {
        let refused = run(&["flow", "trace", "--rules", path, frame]);
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{words}");
        assert!(words.contains(what), "{words}");
    }
}

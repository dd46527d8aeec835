//! Every message there and back, every truncation, any bytes, and known bytes.

use super::bytes::{HEADER, Hex, Version};
use super::fault::Fault;
use super::message::{Body, Message, refusal};
use super::misc::{Echo, ErrorMessage, Hello};
use super::multipart::{self, Multipart, MultipartAssembler, MultipartReply, Reply, split_at};
use super::rule::FlowStats;
use super::sample::Sampler;
use crate::error::{BadAction, BadInstruction, BadMatch, BadRequest};
use proptest::prelude::*;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Known bytes, written by hand from the standard's structures or taken from what controllers send, and their line.
const KNOWN: &[(&str, &str)] = &[
    ("05 00 0010 00000001 0001 0008 00000030", "hello(version=1.4 xid=0x1 elements=[versionbitmap(versions=[4,5])])"),
    ("04 00 0008 00000002", "hello(version=1.3 xid=0x2)"),
    ("04 02 000a 0000000a 6869", "echo_request(version=1.3 xid=0xa data=6869)"),
    (
        "04 01 0014 00000007 0004 0009 040e001000000007",
        "error(version=1.3 xid=0x7 type=BadMatch code=BadPrereq data=040e001000000007)",
    ),
    (
        "04 06 0020 00000001 0000000000000001 00000000 fe 00 0000 0000004f 00000000",
        "features_reply(version=1.3 xid=0x1 datapath_id=0x1 n_buffers=0 n_tables=254 auxiliary_id=0 \
         capabilities=flow_stats|table_stats|port_stats|group_stats|queue_stats)",
    ),
    // What ovs-ofctl sends for add-flow priority=5,tcp,nw_dst=10.0.0.0/8,actions=output:2.
    (
        "04 0e 0068 00000005 0000000000000000 0000000000000000 00 00 0000 0000 0005 ffffffff ffffffff ffffffff 0000 0000
         0001 001b 80000a02 0800 80001401 06 80001908 0a000000 ff000000 0000000000
         0004 0018 00000000 0000 0010 00000002 ffff 000000000000",
        "flow_mod(version=1.3 xid=0x5 cookie=0x0 cookie_mask=0x0 table_id=0 command=add idle_timeout=0 hard_timeout=0 \
         priority=5 buffer_id=0xffffffff out_port=4294967295 out_group=4294967295 flags=0 importance=0 \
         matching=match(oxm_fields=[oxm(field=eth_type value=0x800),oxm(field=ip_proto value=6),\
         oxm(field=ipv4_dst value=10.0.0.0 mask=255.0.0.0)]) \
         instructions=[apply_actions(actions=[output(port=2 max_len=65535)])])",
    ),
    (
        "05 21 0010 00000009 00000001 0000 0003",
        "bundle_control(version=1.4 xid=0x9 bundle_id=1 kind=open_request flags=atomic|ordered)",
    ),
    (
        "04 18 0018 00000003 00000002 00000000 0000000000000005",
        "role_request(version=1.3 xid=0x3 role=master generation_id=0x5)",
    ),
    // What ovs-ofctl 3.1 sends for monitor watch:!own, as 1.4 has it.
    (
        "04 12 0030 00000002 ffff 0000 00000000 4f4e4600 0000074e 00000000 001f 0004 ffffffff ff 000000 0001 0004 00000000",
        "multipart_request(version=1.3 xid=0x2 type=flow_monitor flags=0 body=[flow_monitor_request(monitor_id=0 \
         out_port=4294967295 out_group=4294967295 flags=initial|add|removed|modify|instructions table_id=255 command=add \
         matching=match)])",
    ),
    // struct onf_flow_update_full, then the match with its header and the instructions, as Open vSwitch writes them
    // (ofputil_append_flow_update); `ovs-ofctl ofp-print` reads these bytes.
    (
        "04 13 0060 00000000 ffff 0000 00000000 4f4e4600 0000074e
         0040 0001 0002 0005 0000 0007 000a 03 00 0000000000000009 0001 000a 80000a02 0800 000000000000
         0004 0018 00000000 0000 0010 00000002 0000 000000000000 0008 0003 00000063",
        "multipart_reply(version=1.3 xid=0x0 type=flow_monitor flags=0 body=[removed(table_id=3 reason=delete idle_timeout=0 \
         hard_timeout=7 priority=5 cookie=0x9 matching=match(oxm_fields=[oxm(field=eth_type value=0x800)]) \
         instructions=[apply_actions(actions=[output(port=2 max_len=0)])]),abbrev(xid=0x63)])",
    ),
    (
        "04 01 0014 00000007 ffff 0006 00002320 00000000",
        "error(version=1.3 xid=0x7 type=FlowMonitorFailed code=MonitorExists data=00000000)",
    ),
];

/// Two monitors of 1.3 whose matches are bare, as os-ken writes them; the number of the second looks like a header.
#[test]
fn a_bare_match_of_a_monitor_is_read_and_written_with_its_header() {
    let monitor = |number: &str, matching: &str| format!("{number} 000f {matching}");
    let head = "04 12 0048 00000002 ffff 0000 00000000 4f4e4600 0000074e";
    let (one, empty) = (
        monitor("00000007", "0006 ffffffff ff 000000 80000a02 0800 0000"),
        monitor("00010000", "0000 ffffffff ff 000000"),
    );
    let message =
        Message::decode(&bytes_of(&format!("{head}{one}{empty}").replacen("0048", "0040", 1))).unwrap();
    let line = message.to_string();
    assert!(line.contains("monitor_id=7 ") && line.contains("field=eth_type value=0x800"), "{line}");
    assert!(line.contains("monitor_id=65536 "), "{line}");
    let (one, empty) = (
        monitor("00000007", "000a ffffffff ff 000000 0001 000a 80000a02 0800 000000000000"),
        monitor("00010000", "0004 ffffffff ff 000000 0001 0004 00000000"),
    );
    let bytes = bytes_of(&format!("{head}{one}{empty}").replacen("0048", "0050", 1));
    assert_eq!(message.encode().unwrap(), bytes);
    assert_eq!(Message::decode(&bytes), Ok(message));
}

#[test]
fn known_bytes_have_their_line_and_come_back() {
    for (hex, line) in KNOWN {
        let bytes = bytes_of(hex);
        let message = Message::decode(&bytes).unwrap_or_else(|fault| panic!("{fault}: {hex}"));
        assert_eq!(message.to_string(), *line);
        assert_eq!(message.encode().unwrap(), bytes, "{line}");
    }
}

#[test]
fn what_is_wrong_has_the_standards_error() {
    let wrong = [
        ("04", Fault::from(BadRequest::BadLen), "no header"),
        ("01 00 0008 00000001", Fault::from(BadRequest::BadVersion), "OpenFlow 1.0"),
        ("04 63 0008 00000001", Fault::from(BadRequest::BadType), "type 99"),
        ("04 21 0010 00000009 00000001 0000 0003", Fault::from(BadRequest::BadType), "a bundle in 1.3"),
        ("05 16 0010 00000009 00000001 00000000", Fault::from(BadRequest::BadType), "1.3's queues in 1.4"),
        ("04 05 000c 00000001 00000000", Fault::from(BadRequest::BadLen), "a body where there is none"),
        ("04 12 0010 00000001 0063 0000 00000000", Fault::from(BadRequest::BadMultipart), "multipart 99"),
        (
            "04 12 0010 00000001 000e 0000 00000000",
            Fault::from(BadRequest::BadMultipart),
            "table_desc in 1.3",
        ),
        (
            "04 12 0010 00000001 0010 0000 00000000",
            Fault::from(BadRequest::BadMultipart),
            "1.4's monitors in 1.3",
        ),
        (
            "04 12 0028 00000001 ffff 0000 00000000 4f4e4600 0000074e 00000000 001f 0004 ffffffff ff 000000",
            Fault::from(BadMatch::BadLen),
            "a monitor without its match",
        ),
        (
            "04 0d 0028 00000001 ffffffff fffffffd 0010 000000000000 0063 0010 00000001 ffff000000000000",
            Fault::from(BadAction::BadType),
            "action 99",
        ),
        (
            "04 0d 0028 00000001 ffffffff fffffffd 0010 000000000000 0000 0008 00000001 ffff000000000000",
            Fault::from(BadAction::BadLen),
            "an output of 8 bytes",
        ),
        (
            "04 0d 0028 00000001 ffffffff fffffffd 0010 000000000000 0000 0000 00000001 ffff000000000000",
            Fault::from(BadAction::BadLen),
            "an output of no length",
        ),
        (
            "04 0d 0028 00000001 ffffffff fffffffd 0020 000000000000 0000 0010 00000001 ffff000000000000",
            Fault::from(BadRequest::BadLen),
            "actions longer than the message",
        ),
    ];
    for (hex, fault, what) in wrong {
        assert_eq!(Message::decode(&bytes_of(hex)), Err(fault), "{what}");
    }
    let flow_mod = |tail: &str, length: usize| {
        let mut bytes = bytes_of(&format!(
            "040e0000 00000005 {} 00000000 0000 0005 ffffffff ffffffff ffffffff 00000000",
            "00".repeat(16)
        ));
        bytes.extend(bytes_of(tail));
        bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        assert_eq!(bytes.len(), length);
        Message::decode(&bytes)
    };
    assert_eq!(flow_mod("0000 0004 00000000", 56), Err(BadMatch::BadType.into()), "a standard match");
    assert_eq!(flow_mod("0001 0002 00000000", 56), Err(BadMatch::BadLen.into()), "shorter than its header");
    assert_eq!(
        flow_mod("0001 000a 80000a02 08 000000", 60),
        Err(BadMatch::BadLen.into()),
        "a field cut short"
    );
    assert_eq!(
        flow_mod("0001 0004 00000000 0009 0008 00000000", 64),
        Err(BadInstruction::UnknownInst.into()),
        "instruction 9"
    );
    assert_eq!(
        flow_mod("0001 0004 00000000 0001 0010 0100000000000000 00000000", 72),
        Err(BadInstruction::BadLen.into()),
        "goto of 16"
    );
}

#[test]
fn a_refusal_carries_the_beginning_of_what_it_refuses() {
    let long = vec![7u8; 200];
    let Body::Error(ErrorMessage { data, .. }) =
        refusal(Version::V13, 1, Fault::from(BadRequest::BadType), &long).body
    else {
        panic!("not an error")
    };
    assert_eq!(data.0, &long[..64]);
    let short = refusal(Version::V14, 1, Fault::from(BadRequest::BadType), &long[..9]);
    assert_eq!(Message::decode(&short.encode().unwrap()), Ok(short));
}

#[test]
fn a_hello_says_its_versions() {
    let hello = Hello::with(&[4, 5]);
    assert_eq!(
        (hello.speaks(4), hello.speaks(5), hello.speaks(1), hello.speaks(200)),
        (Some(true), Some(true), Some(false), Some(false))
    );
    assert_eq!(Hello::default().speaks(4), None);
}

#[test]
fn a_message_that_is_too_long_is_not_written() {
    let message = |length: usize| Message {
        version: Version::V13,
        xid: 1,
        body: Body::EchoRequest(Echo { data: super::bytes::Bytes(vec![0; length]) }),
    };
    assert_eq!(message(0xffff - HEADER).encode().map(|bytes| bytes.len()), Ok(0xffff));
    assert!(message(0x10000 - HEADER).encode().is_err());
}

fn rules(count: usize) -> Vec<FlowStats> {
    (0..count).map(|index| FlowStats { cookie: Hex(index as u64), ..FlowStats::default() }).collect()
}

#[test]
fn long_answers_are_split_between_items_and_put_together_again() {
    for (count, longest, messages) in
        [(0, 128, 1), (1, 128, 1), (2, 128, 1), (3, 128, 2), (3000, 0xffff, 3), (7, 72, 7)]
    {
        let whole = Reply::Flow(rules(count));
        let parts = split_at(Version::V14, 9, &whole, longest).unwrap();
        assert_eq!(parts.len(), messages, "{count} rules in messages of {longest}");
        let mut together = MultipartAssembler::<Reply>::default();
        for (index, bytes) in parts.iter().enumerate() {
            assert!(bytes.len() <= longest);
            let message = Message::decode(bytes).unwrap();
            let Body::MultipartReply(part) = message.body else { panic!("not a reply") };
            let put = together.put(message.xid, part).unwrap();
            match index + 1 == parts.len() {
                true => assert_eq!(put, Some(Multipart::whole(whole.clone()))),
                false => assert_eq!(put, None),
            }
        }
    }
    assert!(split_at(Version::V13, 1, &Reply::Flow(rules(1)), 40).is_err(), "an item that fits nowhere");
}

#[test]
fn parts_without_end_are_refused() {
    let part = |more: bool| MultipartReply {
        flags: multipart::MultipartFlags(u16::from(more)),
        body: Reply::Experimenter(super::oxm::ExperimenterKind {
            data: super::bytes::Bytes(vec![0; 60_000]),
            ..Default::default()
        }),
    };
    let mut together = MultipartAssembler::<Reply>::default();
    let fault = (0..100).find_map(|_| together.put(1, part(true)).err());
    assert_eq!(fault, Some(Fault::from(BadRequest::MultipartBufferOverflow)));
    for xid in 0..MultipartAssembler::<Reply>::SEQUENCES as u32 {
        assert_eq!(together.put(100 + xid, part(true)), Ok(None));
    }
    assert_eq!(together.put(200, part(true)), Err(BadRequest::MultipartBufferOverflow.into()));
    assert!(matches!(together.put(200, part(false)), Ok(Some(_))), "one of one part needs no room");
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V13), Just(Version::V14)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_message_comes_back(version in version(), seed in prop::collection::vec(any::<u8>(), 0..400)) {
        let message = Sampler::new(&seed, version).message();
        let bytes = message.encode().unwrap();
        let back = Message::decode(&bytes);
        prop_assert_eq!(back.as_ref(), Ok(&message), "{}", message);
        prop_assert_eq!(back.unwrap().encode().unwrap(), bytes);
        prop_assert!(!message.to_string().contains('\n'));
    }

    #[test]
    fn no_truncation_passes_for_the_whole(version in version(), seed in prop::collection::vec(any::<u8>(), 0..200)) {
        let message = Sampler::new(&seed, version).message();
        let bytes = message.encode().unwrap();
        for length in 0..bytes.len() {
            // As it came, and with a header that says the shorter length.
            prop_assert_eq!(Message::decode(&bytes[..length]), Err(BadRequest::BadLen.into()));
            if length >= HEADER {
                let mut cut = bytes[..length].to_vec();
                cut[2..4].copy_from_slice(&(length as u16).to_be_bytes());
                if let Ok(shorter) = Message::decode(&cut) {
                    prop_assert_ne!(&shorter, &message);
                    prop_assert!(shorter.encode().unwrap().len() <= cut.len());
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..36, version in 4u8..6) {
        let mut bytes = bytes;
        let _ = Message::decode(&bytes);
        if bytes.len() >= HEADER {
            bytes[0] = version;
            bytes[1] = kind;
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            check_promises(&bytes);
        }
    }

    #[test]
    fn damaged_messages_are_read_or_refused(version in version(), seed in prop::collection::vec(any::<u8>(), 0..300),
                                            at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = Sampler::new(&seed, version).message().encode().unwrap();
        let at = HEADER + at.index(bytes.len());
        if at < bytes.len() {
            bytes[at] = value;
            check_promises(&bytes);
        }
    }
}

/// What is read can be written, and is then read the same.
fn check_promises(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        let again = message.encode().expect("not longer than it was");
        assert_eq!(Message::decode(&again), Ok(message.clone()), "{message}");
        assert!(!message.to_string().is_empty());
    }
}

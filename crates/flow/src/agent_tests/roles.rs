//! What one controller hears of another, and of the rules.

use super::*;

#[test]
fn a_request_of_1_3_is_forwarded_as_one_of_1_4() {
    let mut world = World::new(&[Version::V13, Version::V14]);
    let masks = AsyncConfig { properties: vec![AsyncProperty::RequestForwardMaster(Hex(3))] };
    assert_eq!(world.ask(1, Body::SetAsync(masks)), []);
    let added = group(GroupCommand::ADD, 5, GroupType::ALL, &[1]);
    world.done(added.clone());
    match &world.told(1)[..] {
        [Message { body: Body::RequestForward(forwarded), .. }] => {
            let inside = Message::decode(&forwarded.request.0).unwrap();
            assert_eq!((inside.version, inside.body), (Version::V14, added));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_for_monitors_of_which_one_is_wrong_makes_none() {
    let mut world = World::new(&[Version::V14]);
    let wish = |monitor_id, table_id| MonitorRequest {
        monitor_id,
        out_port: ANY,
        out_group: ANY,
        table_id,
        flags: MonitorFlags::ADD,
        ..Default::default()
    };
    let ask = |wishes| question(Version::V14, 0, Request::FlowMonitor(wishes)).body;
    let twice = Fault { kind: 16, code: FlowMonitorFailed::MonitorExists as u16 };
    assert_eq!(world.refused(ask(vec![wish(1, 0), wish(1, 0)])), twice);
    assert!(matches!(world.ask(0, ask(vec![wish(1, 0)]))[..], [Body::MultipartReply(_)]));
}

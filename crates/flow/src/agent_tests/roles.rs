//! What one controller hears of another.

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

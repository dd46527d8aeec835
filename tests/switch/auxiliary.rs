//! Auxiliary connections (OpenFlow 1.3.5, "Auxiliary Connections"): a controller over the codec that takes them, and our own.

use crate::client::{Client, PATIENCE, Running, add, frame};
use crate::support::{Kept, finish, pathlab, start};
use crate::tls::{Authority, address};
use flow::openflow::bytes::Version;
use flow::openflow::message::Body;
use flow::openflow::misc::{Empty, Hello};
use flow::openflow::rule::PacketIn;
use linux::sys::process;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use switch::config::ControllerConfig;
use switch::control::SwitchNotice;

fn listen(path: &std::path::Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// The next connection of the switch; none of it has spoken yet.
fn accept(listener: &UnixListener, version: Version) -> Client {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return Client::over(stream, version);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                assert!(Instant::now() < deadline, "the switch does not call");
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => panic!("{e}"),
        }
    }
}

fn greet(client: &mut Client, version: Version) {
    client.send(Body::Hello(Hello::with(&[version.number()])));
    let hello = client.next(PATIENCE).expect("a hello");
    assert!(matches!(hello.body, Body::Hello(_)), "{hello}");
}

/// Datapath and number of a connection.
fn features(client: &mut Client) -> (u64, u8) {
    let answers = client.ask([Body::FeaturesRequest(Empty::default())]);
    match &answers[..] {
        [message] => match &message.body {
            Body::FeaturesReply(features) => (features.datapath_id.0, features.auxiliary_id),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A main connection and its three auxiliary ones, in the order of their numbers.
fn all(main_place: &UnixListener, other_place: &UnixListener) -> (Client, Vec<Client>) {
    let version = Version::V13;
    let mut main = accept(main_place, version);
    // Not before the main connection is up.
    std::thread::sleep(Duration::from_millis(100));
    for place in [main_place, other_place] {
        assert_eq!(place.accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    greet(&mut main, version);
    let (dpid, number) = features(&mut main);
    assert_eq!(number, 0);
    let mut rest = BTreeMap::new();
    for place in [main_place, main_place, other_place] {
        let mut client = accept(place, version);
        greet(&mut client, version);
        let (same, number) = features(&mut client);
        assert_eq!(same, dpid);
        rest.insert(number, client);
    }
    assert_eq!(rest.keys().copied().collect::<Vec<u8>>(), [1, 2, 3]);
    (main, rest.into_values().collect())
}

/// Packet-ins, each with the connection by which it came.
fn packet_ins(clients: &mut [Client], count: usize) -> Vec<(usize, PacketIn)> {
    let deadline = Instant::now() + PATIENCE;
    let mut found = vec![];
    while found.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} packet-ins came", found.len());
        for (index, client) in clients.iter_mut().enumerate() {
            if let Some(message) = client.next(Duration::from_millis(5))
                && let Body::PacketIn(packet_in) = message.body
            {
                found.push((index, packet_in));
            }
        }
    }
    found
}

#[test]
fn auxiliary_connections_come_with_the_main_one_and_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("main"), folder.path().join("other")];
    let (main_place, other_place) = (listen(&paths[0]), listen(&paths[1]));
    let mut running = Running::with(2, |config| {
        let text = format!("unix:{},aux=2,aux=unix:{}", paths[0].display(), paths[1].display());
        config.controllers.push(ControllerConfig::parse(&text).unwrap());
    });
    let (mut main, mut rest) = all(&main_place, &other_place);
    main.must([add("priority=0 actions=CONTROLLER:65535")]);
    for round in 0..3u8 {
        for flow in 0..16 {
            running.end(1).send(&frame(&format!("eth / ip / udp dport={} / raw {round:02x}", 1000 + flow)));
        }
    }
    let came = packet_ins(&mut rest, 48);
    let mut lanes: BTreeMap<Vec<u8>, Vec<(usize, u8)>> = BTreeMap::new();
    for (lane, packet_in) in came {
        let bytes = packet_in.data.0;
        // The port, and the payload behind the header of UDP.
        lanes.entry(bytes[36..38].to_vec()).or_default().push((lane, bytes[42]));
    }
    assert_eq!(lanes.len(), 16);
    for (flow, frames) in &lanes {
        assert!(frames.iter().all(|(lane, _)| *lane == frames[0].0), "{flow:?} on several: {frames:?}");
        assert!(frames.iter().map(|(_, round)| *round).eq(0..3), "{flow:?} out of order: {frames:?}");
    }
    let used: BTreeSet<usize> = lanes.values().map(|frames| frames[0].0).collect();
    assert!(used.len() > 1, "all flows are on one connection");
    assert!(main.unasked.is_empty() && main.next(Duration::from_millis(50)).is_none());
    // One that ends alone comes back, and the others do not notice.
    drop(rest.remove(0));
    let mut again = accept(&main_place, Version::V13);
    greet(&mut again, Version::V13);
    assert_eq!(features(&mut again).1, 1);
    assert_eq!((features(&mut main).1, features(&mut rest[0]).1), (0, 2));
    // The main one takes the others with it, and brings them back.
    drop(main);
    again.must_end();
    rest.iter_mut().for_each(Client::must_end);
    let (mut main, mut rest) = all(&main_place, &other_place);
    assert_eq!(main.rules().len(), 1);
    assert_eq!(rest[2].rules().len(), 1);
}

#[test]
fn an_auxiliary_connection_speaks_the_version_of_the_main_one() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("main"), folder.path().join("other")];
    let (main_place, other_place) = (listen(&paths[0]), listen(&paths[1]));
    let _running = Running::with(1, |config| {
        let text = format!("unix:{},aux=unix:{}", paths[0].display(), paths[1].display());
        config.controllers.push(ControllerConfig::parse(&text).unwrap());
    });
    let mut main = accept(&main_place, Version::V13);
    greet(&mut main, Version::V13);
    let mut other = accept(&other_place, Version::V14);
    other.send(Body::Hello(Hello::with(&[Version::V14.number()])));
    let answer = other.wait_for("a refusal", |message| match &message.body {
        Body::Error(error) => Some((error.fault.kind, error.fault.code)),
        _ => None,
    });
    assert_eq!(answer, (0, 0), "HELLO_FAILED, INCOMPATIBLE");
    other.must_end();
    assert_eq!(features(&mut main).1, 0);
}

#[test]
fn our_controller_takes_auxiliary_connections_over_tls() {
    let (authority, address) = (Authority::new(), address());
    let mut command =
        pathlab(&["controller", "learning", "--json", "--listen", &format!("pssl:6653:{address}")]);
    command.args(authority.papers("controller").flags());
    let controller = Kept::new(start(command));
    let mut running = Running::with(2, |config| {
        config.controllers.push(ControllerConfig::parse(&format!("ssl:{address}:6653,aux=2")).unwrap());
        config.tls = authority.papers("switch").files();
    });
    let deadline = Instant::now() + PATIENCE;
    let ups = |running: &Running| {
        let said = running.said.lock().unwrap();
        said.iter()
            .filter(|say| matches!(say, SwitchNotice::Up { who, .. } if who.starts_with("ssl:")))
            .count()
    };
    while ups(&running) < 3 {
        assert!(Instant::now() < deadline, "{:?}", running.said.lock().unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut witness = running.client(Version::V14);
    let ends = ["dst=02:00:00:00:00:02 src=02:00:00:00:00:01", "dst=02:00:00:00:00:01 src=02:00:00:00:00:02"];
    let frames = ends.map(|ends| frame(&format!("eth {ends} / ip / udp")));
    // Both directions may take different connections; what one learns the other knows.
    while !witness.rules().iter().any(|rule| rule.priority == 100) {
        assert!(Instant::now() < deadline, "no rule is learned");
        running.end(1).send(&frames[0]);
        running.end(2).send(&frames[1]);
        std::thread::sleep(Duration::from_millis(20));
    }
    process::interrupt(&controller).unwrap();
    let output = finish(controller.take(), PATIENCE);
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found: Vec<(u64, u64)> = done["switches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["auxiliary"].as_u64().unwrap(), one["packet_ins"].as_u64().unwrap()))
        .collect();
    found.sort_unstable();
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<u64>>(), [0, 1, 2], "{done}");
    // A frame may have come before the others were up.
    assert!(found[1].1 + found[2].1 > 0, "{done}");
}

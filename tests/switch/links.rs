//! Links that go and come back, switches without a controller, several switches in one process, frames that a switch must
//! not hear again, and TCP with all offloads on: real interfaces in namespaces.

use crate::client::{ANY, Client, End, add, frame, group, meter};
use crate::site::{Site, needs_root, within};
use crate::support;
use flow::numbered::ModCommand;
use flow::openflow::bytes::Version;
use flow::openflow::message::Body;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::{PortState, PortStatsRequest};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn client(site: &Site) -> Client {
    Client::connect(&site.socket(), Version::V13)
}

/// Waits for the news that this port's link is down, or up.
fn link_of(client: &mut Client, port: u32, is_down: bool) {
    client.wait_for("port-status", |message| match &message.body {
        Body::PortStatus(status) if status.desc.port_no == port => {
            (status.desc.state.has(PortState::LINK_DOWN) == is_down).then_some(())
        }
        _ => None,
    });
}

#[test]
fn controllers_hear_of_links_and_frames_go_again_when_they_are_back() {
    if needs_root("port status on link changes") {
        return;
    }
    let mut site = Site::build(2);
    site.usual_switch(&[]);
    let mut client = client(&site);
    client.must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
    site.reaches(1, "10.0.0.2");
    for place in [(2, "eth0"), (0, "p2")] {
        site.ip(place.0, &format!("link set {} down", place.1));
        link_of(&mut client, 2, true);
        assert!(!site.pings(1, "10.0.0.2"));
        site.ip(place.0, &format!("link set {} up", place.1));
        link_of(&mut client, 2, false);
        site.reaches(1, "10.0.0.2");
    }
    // An interface that is taken away is a link that is down; the others go on.
    site.ip(0, "link delete p2");
    link_of(&mut client, 2, true);
    assert_eq!(client.rules().len(), 2);
}

/// What the kernel says of an interface of the switch.
fn kernel(site: &Site, interface: &str) -> String {
    let (ok, text) = site.try_run(0, &format!("ip -o link show {interface}"));
    assert!(ok, "{text}");
    text
}

fn is_up(site: &Site, interface: &str) -> bool {
    let text = kernel(site, interface);
    let flags = text.split(['<', '>']).nth(1).unwrap_or_default();
    flags.split(',').any(|flag| flag == "UP")
}

/// Configures a port as ovs-ofctl says it.
pub fn mod_port(site: &Site, port: u32, word: &str) {
    let line = format!("ovs-ofctl -O OpenFlow13 mod-port unix:{} {port} {word}", site.socket().display());
    let (ok, text) = site.try_run(0, &line);
    assert!(ok, "{text}");
}

#[test]
fn a_port_that_a_controller_closes_is_down_in_the_kernel_and_up_again_at_the_end() {
    if needs_root("mod-port down") {
        return;
    }
    let mut site = Site::build(2);
    site.usual_switch(&[]);
    let mut watching = client(&site);
    watching.must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
    site.reaches(1, "10.0.0.2");
    mod_port(&site, 2, "down");
    assert!(!is_up(&site, "p2"), "{}", kernel(&site, "p2"));
    link_of(&mut watching, 2, true);
    assert!(!site.pings(1, "10.0.0.2"));
    // What has another name by then is put up all the same.
    site.ip(0, "link set p2 name other");
    mod_port(&site, 2, "up");
    assert!(is_up(&site, "other"));
    site.ip(0, "link set other name p2");
    link_of(&mut watching, 2, false);
    site.reaches(1, "10.0.0.2");
    // One that is made again while the port is closed is taken down, too.
    mod_port(&site, 2, "down");
    link_of(&mut watching, 2, true);
    site.ip(0, "link delete p2");
    site.cable(2);
    site.wait_for("the new interface to go down", |site| !is_up(site, "p2"));
    mod_port(&site, 2, "up");
    assert!(is_up(&site, "p2"));
    link_of(&mut watching, 2, false);
    // A switch that ends puts it up.
    mod_port(&site, 2, "down");
    assert!(!is_up(&site, "p2"));
    site.end();
    assert!(is_up(&site, "p2"));
    // One that is killed leaves it to the next.
    site.usual_switch(&[]);
    mod_port(&site, 2, "down");
    site.kill();
    assert!(!is_up(&site, "p2"));
    std::fs::remove_file(site.socket()).unwrap();
    site.usual_switch(&[]);
    assert!(is_up(&site, "p2"));
}

#[test]
fn an_interface_that_is_deleted_and_made_again_is_opened_again() {
    if needs_root("an interface that is made again") {
        return;
    }
    let cases = [
        ("int", "native"),
        ("ring", "native"),
        ("xdp", "native"),
        ("int", "tcx"),
        ("ring", "tcx"),
        ("xdp", "xdp"),
    ];
    for (kind, engine) in cases {
        let mut site = Site::bare(3);
        let socket = format!("punix:{}", site.socket().display());
        let ports = [1, 2, 3].map(|port| format!("{port}={kind}:p{port}"));
        let words: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
        site.switch(&[&words[..], &["--engine", engine, "--listen", &socket]].concat());
        site.wait_for("the socket", |site| site.socket().exists());
        let mut client = client(&site);
        let text = "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3";
        client.must([group(ModCommand::Add, text), add("in_port=1 actions=group:1")]);
        let open = |host| within(&site.netns(host), || End::open("int:eth0"));
        let (mut from, mut second, mut third) = (open(1), open(2), open(3));
        let text =
            |number: u32| format!("eth src=02:00:00:00:00:01 dst=02:00:00:00:00:02 / raw {number:0100x}");
        let pass = |from: &mut End, to: &mut End| {
            for number in 0..100 {
                from.send(&frame(&text(number)));
                assert_eq!(to.must(), frame(&text(number)), "{kind}");
            }
        };
        pass(&mut from, &mut second);
        let told = |what: &str| site.wait_for(what, |site| site.logs().contains(what));
        site.ip(0, "link delete p2");
        link_of(&mut client, 2, true);
        // The kernel takes a link down before it deletes it, and the switch prints after it has told its controllers.
        told("port 2: the interface p2 is gone");
        pass(&mut from, &mut third);
        site.cable(2);
        let address = kernel(&site, "p2").split("link/ether ").nth(1).unwrap()[..17].to_owned();
        client.wait_for("the new interface", |message| match &message.body {
            Body::PortStatus(status) if status.desc.port_no == 2 => {
                let bytes = status.desc.hw_addr.0.map(|byte| format!("{byte:02x}"));
                let is_new = bytes.join(":") == address;
                (is_new && !status.desc.state.has(PortState::LINK_DOWN)).then_some(())
            }
            _ => None,
        });
        drop(second);
        let mut second = open(2);
        pass(&mut from, &mut second);
        third.nothing();
        // And the other way.
        client.must([add("in_port=2 actions=output:1")]);
        pass(&mut second, &mut from);
        told("port 2: the interface p2 is back and was opened again");
        // The other end of a cable whose end here was in another namespace is the same, and may have our program still.
        site.move_interface("p2", 0, 3);
        site.move_interface("p2", 3, 0);
        link_of(&mut client, 2, true);
        site.ip(0, "link set p2 addrgenmode none");
        site.ip(0, "link set p2 up");
        link_of(&mut client, 2, false);
        pass(&mut from, &mut second);
    }
}

#[test]
fn one_interface_cannot_be_two_ports() {
    if needs_root("one interface as two ports") {
        return;
    }
    let site = Site::bare(1);
    for words in [["--port", "int:p1", "--port", "ring:p1"], ["--port", "1=int:p1", "--local", "int:p1"]] {
        let mut command = site.command(0, support::PATHLAB);
        command.arg("switch").args(words);
        let output = support::finish(support::start(command), Duration::from_secs(60));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("the interface p1 is port 1 of 's1' (int:p1) and port"), "{text}");
    }
}

#[test]
fn without_a_controller_a_switch_is_a_bridge_or_goes_on_with_its_rules() {
    if needs_root("fail secure and fail standalone") {
        return;
    }
    let nobody = ["--controller", "tcp:127.0.0.1:9"];
    for engine in ["native", "tcx"] {
        let mut bridge = Site::build(2);
        bridge.usual_switch(&[nobody[0], nobody[1], "--fail", "standalone", "--engine", engine]);
        bridge.reaches(1, "10.0.0.2");
    }

    let mut secure = Site::build(2);
    secure.usual_switch(&nobody);
    assert!(!secure.pings(1, "10.0.0.2"));
    client(&secure).must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
    secure.reaches(1, "10.0.0.2");
}

#[test]
fn two_switches_of_one_file_are_apart() {
    if needs_root("two logical switches") {
        return;
    }
    let mut site = Site::build(4);
    let socket = |name: &str| site.folder.path().join(name);
    let (one, two) = (socket("one"), socket("two"));
    let text = format!(
        "switch one\n  dpid 0x11\n  port 1 int:p1\n  port 2 ring:p2\n  listen punix:{}\n\
         switch two\n  port 1 int:p3\n  port 2 ring:p4\n  listen punix:{}\n",
        one.display(),
        two.display()
    );
    let file = site.file("two.switches", &text);
    site.switch(&[&file]);
    site.wait_for("both sockets", |_| one.exists() && two.exists());
    let dpid = |client: &mut Client| match &client.ask([Body::FeaturesRequest(Default::default())])[0].body {
        Body::FeaturesReply(features) => features.datapath_id.0,
        other => panic!("{other:?}"),
    };
    let (mut first, mut second) = (Client::connect(&one, Version::V13), Client::connect(&two, Version::V13));
    assert_eq!((dpid(&mut first), dpid(&mut second)), (0x11, 0x12));
    let rules = ["in_port=1 actions=output:2", "in_port=2 actions=output:1"];
    first.must(rules.map(add));
    site.reaches(1, "10.0.0.2");
    assert!(!site.pings(3, "10.0.0.4"), "the second one has no rules");
    second.must(rules.map(add));
    site.reaches(3, "10.0.0.4");
    assert!(!site.pings(1, "10.0.0.3"), "no frame goes from one switch to the other");
}

/// Frames that came in by a port.
fn received(client: &mut Client, port: u32) -> u64 {
    let request = PortStatsRequest { port_no: ANY };
    let parts = client.question(Request::PortStats(request));
    let mut rows =
        parts.iter().flat_map(|part| if let Reply::PortStats(rows) = part { &rows[..] } else { &[] });
    rows.find(|row| row.port_no == port).expect("the port is there").rx_packets
}

#[test]
fn a_switch_does_not_hear_what_it_says() {
    if needs_root("own frames are not received") {
        return;
    }
    for kind in ["int", "ring", "xdp"] {
        let mut site = Site::bare(2);
        let socket = format!("punix:{}", site.socket().display());
        // A cable from the switch to itself, over which frames go with a label.
        site.ip(0, "link add p3 mtu 1510 type veth peer name p4 mtu 1510");
        let ports = [1, 2, 3, 4].map(|port| format!("--port={port}={kind}:p{port}"));
        for name in ["p3", "p4"] {
            site.ip(0, &format!("link set {name} addrgenmode none up"));
        }
        site.switch(&[&ports[0], &ports[1], &ports[2], &ports[3], "--listen", &socket]);
        site.wait_for("the socket", |site| site.socket().exists());
        let mut client = client(&site);
        client.must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
        let [mut from, mut to] = [1, 2].map(|host| within(&site.netns(host), || End::open("int:eth0")));
        for number in 0..50 {
            let bytes =
                frame(&format!("eth src=02:00:00:00:00:01 dst=02:00:00:00:00:02 / raw {number:0100x}"));
            from.send(&bytes);
            assert_eq!(to.must(), bytes, "{kind}");
        }
        assert_eq!((received(&mut client, 1), received(&mut client, 2)), (50, 0), "{kind}");
        from.nothing();
    }
}

/// The bytes of a stream: no two places of it look alike.
fn pattern(from: usize, room: &mut [u8]) {
    for (index, byte) in room.iter_mut().enumerate() {
        let place = (from + index) as u64;
        *byte = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    }
}

/// Sends bytes from host 1 to host 2 by TCP and compares each of them.
pub fn transfer(site: &Site, to: &str, port: u16, total: usize) {
    let listener = within(&site.netns(2), || TcpListener::bind(("10.0.0.2", port)).unwrap());
    let timeout = Some(Duration::from_secs(60));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = within(&site.netns(1), || TcpStream::connect((to, port)).unwrap());
            stream.set_write_timeout(timeout).unwrap();
            let mut room = vec![0; 1 << 16];
            for from in (0..total).step_by(room.len()) {
                pattern(from, &mut room);
                stream.write_all(&room).unwrap();
            }
        });
        // Nobody calls when the other thread has failed.
        listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(150);
        let mut stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => panic!("nobody calls: {e}"),
            }
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(timeout).unwrap();
        let (mut room, mut expected) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut at = 0;
        loop {
            let count = stream.read(&mut room).unwrap();
            if count == 0 {
                break;
            }
            pattern(at, &mut expected[..count]);
            assert!(room[..count] == expected[..count], "bytes from {at} on are others");
            at += count;
        }
        assert_eq!(at, total);
    });
}

#[test]
fn tcp_with_offloads_on_arrives_byte_for_byte_also_when_headers_are_changed() {
    if needs_root("TCP with offloads") {
        return;
    }
    for kind in ["int", "ring"] {
        let mut site = Site::build(2);
        let (ok, features) = site.try_run(1, "ethtool -k eth0");
        assert!(ok && features.contains("tcp-segmentation-offload: on"), "{features}");
        assert!(features.contains("tx-checksumming: on"), "{features}");
        let socket = format!("punix:{}", site.socket().display());
        // A cable from the switch to itself, over which frames go with a label.
        site.ip(0, "link add p3 mtu 1510 type veth peer name p4 mtu 1510");
        let ports = [1, 2, 3, 4].map(|port| format!("--port={port}={kind}:p{port}"));
        for name in ["p3", "p4"] {
            site.ip(0, &format!("link set {name} addrgenmode none up"));
        }
        site.switch(&[&ports[0], &ports[1], &ports[2], &ports[3], "--listen", &socket]);
        site.wait_for("the socket", |site| site.socket().exists());
        let mut client = client(&site);
        client.must([add("in_port=1 actions=output:2"), add("in_port=2 actions=output:1")]);
        transfer(&site, "10.0.0.2", 5000, 8 << 20);
        // An address that nobody has becomes host 2's on the way, and its answers come from there: the checksums that the
        // hosts left to the hardware must follow.
        site.ip(1, "neighbour add 10.0.0.99 lladdr 02:00:00:00:00:02 dev eth0");
        client.must([
            add("priority=40000,tcp,in_port=1,nw_dst=10.0.0.99 \
                 actions=set_field:10.0.0.2->ip_dst,set_field:5001->tcp_dst,dec_ttl,output:2"),
            add("priority=40000,tcp,in_port=2 actions=set_field:10.0.0.99->ip_src,output:1"),
        ]);
        transfer(&site, "10.0.0.99", 5001, 8 << 20);
        // The switch counts segments; host 2's kernel counts what came in by its interface as one each.
        let counter = |name: &str| -> u64 {
            let (ok, text) = site.try_run(2, &format!("cat /sys/class/net/eth0/statistics/{name}"));
            assert!(ok, "{text}");
            text.trim().parse().unwrap()
        };
        let longest = counter("rx_bytes") / counter("rx_packets").max(1);
        assert!(longest > 1514, "super-frames went through whole ({kind}: {longest} bytes on average)");
        let rules = client.rules();
        let segment =
            rules.iter().filter(|rule| rule.packet_count > 0).map(|rule| rule.byte_count / rule.packet_count);
        assert!(segment.max() <= Some(1514), "rules count segments ({kind})");
        // The kernel cuts no super-frame behind a label: the port does.
        client.must([
            add("priority=50000,tcp,in_port=1,tcp_dst=5002 actions=push_mpls:0x8847,output:3"),
            add("priority=50000,mpls,in_port=4 actions=pop_mpls:0x0800,output:2"),
            add("priority=50000,tcp,in_port=2,tcp_src=5002 actions=output:1"),
        ]);
        transfer(&site, "10.0.0.2", 5002, 2 << 20);
    }
}

/// 1,000 frames a second are 1,000 segments, also of TCP's super-frames. The truth is from outside: bytes at the receiver, and
/// a clock that runs at least as long as the switch had.
#[test]
fn a_meter_of_frames_holds_tcp_with_super_frames_to_its_segments() {
    if needs_root("a meter and TCP with offloads") {
        return;
    }
    for kind in ["int", "ring"] {
        let mut site = Site::build(2);
        let socket = format!("punix:{}", site.socket().display());
        // A cable from the switch to itself, over which frames go with a label.
        site.ip(0, "link add p3 mtu 1510 type veth peer name p4 mtu 1510");
        let ports = [1, 2, 3, 4].map(|port| format!("--port={port}={kind}:p{port}"));
        for name in ["p3", "p4"] {
            site.ip(0, &format!("link set {name} addrgenmode none up"));
        }
        site.switch(&[&ports[0], &ports[1], &ports[2], &ports[3], "--listen", &socket]);
        site.wait_for("the socket", |site| site.socket().exists());
        let mut client = client(&site);
        client.must([meter("meter=1,pktps,burst,band=type=drop,rate=1000,burst_size=100")]);
        client.must([
            add("priority=1,in_port=1 actions=output:2"),
            add("priority=1,in_port=2 actions=output:1"),
            add("priority=9,tcp,in_port=1 actions=meter:1,output:2"),
        ]);
        let (total, before) = (2 << 20, Instant::now());
        transfer(&site, "10.0.0.2", 5000, total);
        // By its rate, from its full bucket, and one super-frame (64 KiB) that found the bucket full.
        let most = before.elapsed().as_secs_f64() * 1000.0 + 100.0 + 46.0;
        let least = total as f64 / 1460.0;
        assert!(least <= most, "{kind}: {least:.0} segments came, and the meter lets {most:.0} through");
    }
}

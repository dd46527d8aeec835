//! The kernel's own traffic, TCP and UDP, through a forwarder between two ports: what arrives is what was sent.
//!
//! ```text
//!   a ── x0 [X: port → port] x1 ── b          or, with a tap:   a [tap] [port] x1 ── b
//! ```
//! With offloads on, the sender leaves checksums open and hands down super-frames; a port that cannot carry them must
//! finish them, or b's kernel drops what it gets.

use super::stage::{Space, join, may_run};
use linux::port::{Direction, Port, PortOptions, Transmitter, Wait, forward};
use linux::sys::udp;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const A: &str = "10.9.0.1";
const B: &str = "10.9.0.2";

/// The bytes that cross: 3 MB that never repeat with any power of two.
fn content() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(11);
    std::iter::repeat_with(|| random.u8(..)).take(3_000_001).collect()
}

/// Forwards both ways until told to stop; both ports with their counters.
fn forwarding<T>(left: &mut Port, right: &mut Port, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let one_way = |from: &mut Port, to: &mut dyn Transmitter| {
        let from = from.receiver.as_mut().unwrap();
        while !stop.load(Ordering::Relaxed) {
            match forward(from.as_mut(), to, Wait::For(Duration::from_millis(5))) {
                Ok(moved) if moved.came > 0 => {}
                _ => drop(to.flush(Duration::ZERO)),
            }
        }
    };
    let (mut to_left, mut to_right) = (left.transmitter.take().unwrap(), right.transmitter.take().unwrap());
    let result = std::thread::scope(|scope| {
        scope.spawn(|| one_way(left, to_right.as_mut()));
        scope.spawn(|| one_way(right, to_left.as_mut()));
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        work()
    });
    (left.transmitter, right.transmitter) = (Some(to_left), Some(to_right));
    result
}

/// A stream there and back, compared byte by byte.
fn stream(a: &Space, b: &Space, what: &str) {
    let content = content();
    let listener = b.within(|| TcpListener::bind((B, 5001)).unwrap());
    let limit = Some(Duration::from_secs(60));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(limit).unwrap();
            let mut came = vec![0; content.len()];
            stream.read_exact(&mut came).unwrap_or_else(|e| panic!("{what}: stream to b: {e}"));
            assert!(came == content, "{what}: the stream to b differs");
            stream.write_all(&came).unwrap();
        });
        let address = (B.parse::<std::net::IpAddr>().unwrap(), 5001).into();
        let mut stream = a
            .within(|| TcpStream::connect_timeout(&address, Duration::from_secs(60)))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        stream.set_read_timeout(limit).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let sender = scope.spawn({
            let content = &content;
            move || stream.write_all(content).unwrap()
        });
        let mut back = vec![0; content.len()];
        reader.read_exact(&mut back).unwrap_or_else(|e| panic!("{what}: stream back to a: {e}"));
        assert!(back == content, "{what}: the stream back to a differs");
        sender.join().unwrap();
    });
}

/// Datagrams: small, fragmented by the sender's kernel, and super-frames of them. The receiving kernel checks sums.
fn datagrams(a: &Space, b: &Space, what: &str) {
    let from = a.within(|| UdpSocket::bind((A, 5002)).unwrap());
    let to = b.within(|| UdpSocket::bind((B, 5003)).unwrap());
    to.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let content = content();
    let mut buffer = vec![0; 65536];
    for length in [1, 2, 17, 1000, 1471, 1472, 4000, 9001] {
        from.send_to(&content[..length], (B, 5003)).unwrap();
        let came =
            to.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: a datagram of {length} bytes: {e}"));
        assert!(buffer[..came] == content[..length], "{what}: a datagram of {length} bytes differs");
    }
    udp::set_segment(&from, 1000).unwrap();
    from.send_to(&content[..10_500], (B, 5003)).unwrap();
    for piece in content[..10_500].chunks(1000) {
        let came = to.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: a piece of a super-frame: {e}"));
        assert!(buffer[..came] == *piece, "{what}: a piece of a super-frame differs");
    }
}

fn wish() -> PortOptions {
    PortOptions { promiscuous: true, ..PortOptions::default() }
}

/// A port; `A|B` receives by A and sends by B.
fn open_both(space: &Space, uri: &str, interface: &str) -> Port {
    let uri = uri.replace("IF", interface);
    let Some((receives, sends)) = uri.split_once('|') else { return space.open(&uri, &wish()) };
    let receiver = space.open(receives, &PortOptions { direction: Direction::Receive, ..wish() });
    let sender = space.open(sends, &PortOptions { direction: Direction::Transmit, ..wish() });
    Port { uri: uri.clone(), transmitter: sender.transmitter, ..receiver }
}

/// a — x0, x1 — b, with offloads on or off everywhere.
fn through(left: &str, right: &str, on: bool) -> Option<(Port, Port)> {
    let what = format!("{left} to {right}, offloads {}", if on { "on" } else { "off" });
    if !may_run(&what) {
        return None;
    }
    let (a, x, b) = (Space::new(), Space::new(), Space::new());
    let is_tap = left.contains("tap:");
    let mut left = if is_tap {
        open_both(&a, left, "a0")
    } else {
        join((&a, "a0"), (&x, "x0"), on);
        open_both(&x, left, "x0")
    };
    join((&b, "b0"), (&x, "x1"), on);
    let mut right = open_both(&x, right, "x1");
    a.address("a0", &format!("{A}/24"));
    b.address("b0", &format!("{B}/24"));
    forwarding(&mut left, &mut right, || {
        stream(&a, &b, &what);
        datagrams(&a, &b, &what);
    });
    Some((left, right))
}

fn both_states(left: &str, right: &str) {
    for on in [true, false] {
        through(left, right, on);
    }
}

macro_rules! pairings {
    ($($name:ident: $left:literal, $right:literal;)*) => { $(
        #[test]
        fn $name() { both_states($left, $right) }
    )* };
}

pairings! {
    int_to_int: "int:IF", "int:IF";
    int_to_plain_int: "int:IF", "int:IF|int:IF?vnet=off";
    ring_to_ring: "ring:IF?retire_ms=1", "ring:IF?retire_ms=1";
    ring_v2_to_plain_ring: "ring:IF?version=2", "ring:IF?version=2|ring:IF?version=2&vnet=off";
    xdp_to_xdp: "xdp:IF", "xdp:IF";
    int_to_xdp: "int:IF", "xdp:IF";
    tap_to_xdp: "tap:IF", "xdp:IF";
    tap_to_int: "tap:IF", "int:IF";
    tap_to_plain_int: "tap:IF", "int:IF|int:IF?vnet=off";
    plain_tap_to_int: "tap:IF?vnet=off", "int:IF";
    tap_to_ring: "tap:IF", "ring:IF?retire_ms=1";
    fault_around_tap_to_int: "fault:tap:IF?lose=0&seed=3", "int:IF";
}

/// A socket without vnet header is not told how a super-frame is to be cut, so it can only be refused, by name; without
/// offloads there are none.
#[test]
fn plain_sockets_carry_what_is_complete() {
    through("int:IF?vnet=off", "int:IF?vnet=off", false);
    // Generic XDP drops super-frames that are longer than its chunks, and counts them.
    through("xdp:IF?mode=generic", "int:IF", false);
    through("ring:IF?vnet=off&version=2", "ring:IF?vnet=off&version=2", false);
}

/// A pairing that cannot carry what the kernel leaves over must have finished it, and say so.
#[test]
fn what_was_finished_is_counted() {
    let Some((_, mut right)) = through("int:IF", "int:IF|int:IF?vnet=off", true) else { return };
    let counters = right.transmitter.as_mut().unwrap().counters();
    assert!(counters.segments > 0 && counters.completed_checksums > 0, "{counters:?}");
    let Some((mut left, _)) = through("tap:IF?vnet=off", "int:IF", true) else { return };
    let counters = left.transmitter.as_mut().unwrap().counters();
    assert!(counters.completed_checksums > 0, "{counters:?}");
}

//! More callers than a switch takes at once, and a switch that has no descriptors left.

use crate::client::{PATIENCE, Running, call};
use crate::support;
use crate::tls::address;
use flow::openflow::bytes::Version;
use flow::openflow::message::{Body, HEADER, Header, Message};
use flow::openflow::misc::{Echo, Hello};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use switch::config::{Listen, ListenConfig};
use switch::control::SwitchNotice;

/// Types of messages.
const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REPLY: u8 = 3;
/// How many are let in.
const MOST: usize = 3;

fn bytes(body: Body) -> Vec<u8> {
    Message { version: Version::V13, xid: 7, body }.encode().unwrap()
}

/// The next message: its type, and what stands in it.
fn next(stream: &mut impl Read) -> (u8, String) {
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).expect("a message within 30 s");
    let header = Header::parse(&head).unwrap();
    let mut body = vec![0; usize::from(header.length) - HEADER];
    stream.read_exact(&mut body).expect("the rest of it");
    (header.kind, String::from_utf8_lossy(&body).into_owned())
}

fn greeted<S: Write>(mut stream: S) -> S {
    // Who is sent away may be gone before he has said it.
    let _ = stream.write_all(&bytes(Body::Hello(Hello::with(&[4]))));
    stream
}

/// How many callers the switch told of that it sent away from a place.
fn sent_away(running: &Running, place: &str) -> usize {
    let said = running.said.lock().unwrap();
    let counts = said.iter().filter_map(|say| match say {
        SwitchNotice::Refused { who, why } if why.contains(place) && why.contains("connections=3") => {
            Some(who.split(' ').next().unwrap().parse::<usize>().expect("a number of callers"))
        }
        _ => None,
    });
    counts.sum()
}

/// As many as there is room for, more, and one who comes when another has gone.
fn crowd<S: Read + Write>(running: &Running, place: &str, call: impl Fn() -> S) {
    let mut inside: Vec<S> = (0..MOST).map(|_| greeted(call())).collect();
    assert!(inside.iter_mut().all(|one| next(one).0 == HELLO));
    let mut many = 150;
    for _ in 0..many {
        let mut one = greeted(call());
        let (kind, words) = next(&mut one);
        assert_eq!(kind, ERROR, "{words}");
        assert!(words.contains("3 connections are open") && words.contains("connections=3"), "{words}");
        assert!(!matches!(one.read(&mut [0; 64]), Ok(1..)), "and then the end");
    }
    // Those inside noticed nothing.
    for one in &mut inside {
        one.write_all(&bytes(Body::EchoRequest(Echo::default()))).unwrap();
        while next(one).0 != ECHO_REPLY {}
    }
    drop(inside.pop());
    let deadline = Instant::now() + PATIENCE;
    while next(&mut greeted(call())).0 != HELLO {
        many += 1;
        assert!(Instant::now() < deadline, "nobody is let in though one has left");
    }
    // Each is counted, and there are few lines.
    while sent_away(running, place) != many {
        assert!(Instant::now() < deadline, "{} of {many}", sent_away(running, place));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The last one inside leaves, too, so that nobody is told of later.
    drop(inside);
}

#[test]
fn the_next_caller_is_sent_away_with_a_sentence_until_one_leaves() {
    let address = address();
    let running = Running::with(2, |config| {
        config.listen[0].connections = MOST;
        let at = Listen::parse(&format!("ptcp:6653:{address}")).unwrap();
        config.listen.push(ListenConfig { at, connections: MOST });
    });
    crowd(&running, "punix:", || {
        let stream = call(&running.socket());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    });
    crowd(&running, "ptcp:", || {
        let stream = TcpStream::connect((address.as_str(), 6653)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    });
}

/// A program that ends with its test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_switch_without_descriptors_rests_and_takes_callers_later() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, log) = (folder.path().join("s"), folder.path().join("log"));
    let place = format!("punix:{},connections=1000", socket.display());
    let mut command = support::command("sh");
    command.args(["-c", "ulimit -n 32; exec \"$@\"", "sh", support::PATHLAB, "switch", "--listen", &place]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let _switch = Ends(command.spawn().unwrap());
    let lines = || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().filter(|line| line.contains("Too many open files")).count()
    };
    let until = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {}", std::fs::read_to_string(&log).unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    until("the socket", &mut || socket.exists());
    let mut callers: Vec<UnixStream> = (0..60).map(|_| greeted(call(&socket))).collect();
    until("it says so", &mut || lines() > 0);
    let (before, begun) = (lines(), Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    // One try a second, however often the listener is readable.
    let most = before as u64 + begun.elapsed().as_secs() + 2;
    assert!((lines() as u64) <= most, "{} lines", lines());
    let mut last = callers.pop().unwrap();
    drop(callers);
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(next(&mut last).0, HELLO);
}

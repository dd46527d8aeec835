//! Peers that ask more than they read, and peers that hang up on what they asked.

use crate::client::{ANY, Client, PATIENCE, Running, add, call, silent};
use crate::site::{Site, needs_root, within};
use flow::openflow::bytes::Version;
use flow::openflow::message::{Body, HEADER, Header, Message, question};
use flow::openflow::misc::{Echo, Hello};
use flow::openflow::multipart::Request;
use flow::openflow::rule::FlowStatsRequest;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use switch::config::{Listen, SwitchConfig};
use switch::control::{Switch, SwitchNotice};

const VERSION: Version = Version::V14;
/// Rules of a table that is asked for: about half a megabyte.
const RULES: u32 = 5_000;
/// What may wait for a peer before its next question does.
const BACKLOG: usize = 64 << 20;

fn full() -> (Running, Client) {
    let running = Running::start(2);
    let mut client = running.client(VERSION);
    client.must((0..RULES).map(|number| add(&format!("priority={number},in_port=9 actions=output:1"))));
    (running, client)
}

/// The same question for all rules, so many times.
fn dumps(count: usize) -> Vec<u8> {
    let request = FlowStatsRequest { table_id: 255, out_port: ANY, out_group: ANY, ..Default::default() };
    question(VERSION, 7, Request::Flow(request)).encode().unwrap().repeat(count)
}

/// The next message as bytes.
fn next(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    stream.read_exact(&mut bytes).expect("the answers do not end");
    bytes.resize(usize::from(Header::parse(&bytes).unwrap().length), 0);
    stream.read_exact(&mut bytes[HEADER..]).expect("a whole message");
    bytes
}

#[test]
fn who_asks_for_more_than_fits_and_reads_gets_everything() {
    const QUESTIONS: usize = 200;
    let (running, mut witness) = full();
    let mut stream = silent(&running.socket(), VERSION);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&dumps(QUESTIONS)).unwrap();
    let (mut answers, mut bytes) = (0, 0);
    while answers < QUESTIONS {
        let message = next(&mut stream);
        bytes += message.len();
        match message[1] {
            // The last part of a multipart reply has no MORE.
            19 => answers += usize::from(message[11] & 1 == 0),
            2 => {
                let Ok(Message { xid, body: Body::EchoRequest(Echo { data }), .. }) =
                    Message::decode(&message)
                else {
                    panic!("{message:02x?}")
                };
                let reply = Message { version: VERSION, xid, body: Body::EchoReply(Echo { data }) };
                stream.write_all(&reply.encode().unwrap()).unwrap();
            }
            0 => {}
            kind => panic!("a message of type {kind}"),
        }
    }
    assert!(bytes > BACKLOG, "{bytes} bytes are no test");
    assert_eq!(witness.rules().len(), RULES as usize);
}

/// Asks for gigabytes and reads nothing: how many bytes it left unread in the end, unless it was given up for its silence.
fn unread_by_one_who_never_reads(running: &Running, witness: &mut Client) -> Option<usize> {
    let before = running.said.lock().unwrap().len();
    let mut deaf = silent(&running.socket(), VERSION);
    // In more than one read of the switch.
    deaf.write_all(&dumps(2_000)).unwrap();
    let ended = || {
        let said = running.said.lock().unwrap();
        said[before..].iter().find_map(|say| match say {
            SwitchNotice::Down { why, .. } if why != "the other end closed the connection" => {
                Some(why.clone())
            }
            _ => None,
        })
    };
    let deadline = Instant::now() + 6 * PATIENCE;
    loop {
        assert_eq!(witness.rules().len(), RULES as usize);
        if let Some(why) = ended() {
            let number = why.strip_prefix("it left ").and_then(|rest| rest.strip_suffix(" bytes unread"));
            assert!(number.is_some() || why == "no answer to an echo within 5 s", "{why}");
            return number.map(|number| number.parse().unwrap());
        }
        assert!(Instant::now() < deadline, "it is still there");
        // The answers of the witness cost as much as those of the other: not all the time.
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_asks_and_never_reads_costs_no_more_than_is_said() {
    let (running, mut witness) = full();
    let one: usize = {
        let mut stream = silent(&running.socket(), VERSION);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&dumps(1)).unwrap();
        let mut bytes = 0;
        loop {
            let message = next(&mut stream);
            bytes += message.len();
            if message[1] == 19 && message[11] & 1 == 0 {
                break bytes;
            }
        }
    };
    // A peer that says nothing for ten seconds is given up for that: on a machine where so many answers take as long, again.
    let unread = (0..6).find_map(|_| unread_by_one_who_never_reads(&running, &mut witness));
    let unread = unread.expect("64 MiB of answers are made in less than ten seconds, once in six times");
    assert!(unread > BACKLOG, "{unread}");
    assert!(unread <= BACKLOG + 2 * one, "{unread} bytes, where an answer has {one}");
}

/// A switch without threads of its own, which goes on when it is told.
fn by_hand(places: Vec<Listen>) -> Switch {
    let mut config = SwitchConfig::new("by hand", 77);
    config.listen.extend(places.into_iter().map(Into::into));
    Switch::start(&config).unwrap()
}

fn hello() -> Vec<u8> {
    Message { version: VERSION, xid: 1, body: Body::Hello(Hello::with(&[VERSION.number()])) }
        .encode()
        .unwrap()
}

/// Changes whose answers are errors now and then; and the bytes after each, with the priority of the rule that it makes.
fn changes(count: u16) -> (Vec<u8>, Vec<(usize, Option<u16>)>) {
    let (mut bytes, mut ends) = (vec![], vec![]);
    for number in 1..=count {
        let mut body = add(&format!("priority={number},in_port=9 actions=output:1"));
        let is_wrong = number % 3 == 0;
        if let (Body::FlowMod(change), true) = (&mut body, is_wrong) {
            change.table_id = 255;
        }
        bytes.extend(Message { version: VERSION, xid: number.into(), body }.encode().unwrap());
        ends.push((bytes.len(), (!is_wrong).then_some(number)));
    }
    (bytes, ends)
}

/// Writes until there is no room for a while; how many bytes.
fn stuff(stream: &mut impl Write, bytes: &[u8]) -> usize {
    let (mut done, mut since) = (0, Instant::now());
    while done < bytes.len() && since.elapsed() < Duration::from_secs(1) {
        match stream.write(&bytes[done..]) {
            Ok(count) => (done, since) = (done + count, Instant::now()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            Err(e) => panic!("{e}"),
        }
    }
    done
}

/// The caller is gone: the switch runs, and somebody else looks for the rules of all changes that had arrived.
fn are_made(
    mut switch: Switch,
    witness: impl FnOnce() -> Client,
    arrived: usize,
    ends: &[(usize, Option<u16>)],
) {
    assert!(arrived > 100_000, "the switch would read {arrived} bytes in one go, nearly");
    let expected: Vec<u16> =
        ends.iter().filter(|(end, _)| *end <= arrived).filter_map(|(_, rule)| *rule).collect();
    let stop = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| switch.run(&stop, |_| {}).unwrap());
        let looking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut witness = witness();
            let deadline = Instant::now() + 6 * PATIENCE;
            loop {
                let mut found: Vec<u16> = witness.rules().iter().map(|rule| rule.priority).collect();
                found.sort_unstable();
                if found == expected || Instant::now() > deadline {
                    return found;
                }
            }
        }));
        stop.store(true, Relaxed);
        looking
    });
    let found = found.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert_eq!(found.len(), expected.len(), "of {arrived} bytes that arrived");
    assert_eq!(found, expected);
}

#[test]
fn what_came_before_a_hang_up_is_done_though_no_answer_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut switch = by_hand(vec![Listen::Unix(path.clone())]);
    let mut caller = call(&path);
    caller.write_all(&hello()).unwrap();
    (0..3).for_each(|_| switch.step().unwrap());
    caller.set_nonblocking(true).unwrap();
    let (bytes, ends) = changes(6_000);
    let arrived = stuff(&mut caller, &bytes);
    // The switch's hello is unread, and nothing of this was answered yet.
    drop(caller);
    are_made(switch, || Client::connect(&path, VERSION), arrived, &ends);
}

/// The same when the last acknowledgement is here: when it has not changed for a second.
fn settled(local: SocketAddr) -> usize {
    let look = || unacknowledged(local).expect("the socket is in the table");
    let (mut last, mut since) = (look(), Instant::now());
    while since.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(20));
        let now = look();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Bytes that a TCP socket was given and that the other end has not acknowledged (proc(5), `tx_queue`).
fn unacknowledged(local: SocketAddr) -> Option<usize> {
    let SocketAddr::V4(local) = local else { return None };
    let name = format!("{:08X}:{:04X}", u32::from_le_bytes(local.ip().octets()), local.port());
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(&name))?;
    let (queue, _) = line.split_whitespace().nth(4)?.split_once(':')?;
    usize::from_str_radix(queue, 16).ok()
}

#[test]
fn what_tcp_acknowledged_before_a_reset_is_done() {
    if needs_root("a reset of a TCP connection") {
        return;
    }
    let site = Site::bare(0);
    within(&site.netns(0), || {
        // Room for more than the switch reads in one go.
        std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 4194304 6291456").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let tcp = Listen::Tcp((Ipv4Addr::LOCALHOST, 6653).into());
        let mut switch = by_hand(vec![tcp, Listen::Unix(path.clone())]);
        let mut caller = TcpStream::connect((Ipv4Addr::LOCALHOST, 6653)).unwrap();
        caller.write_all(&hello()).unwrap();
        (0..3).for_each(|_| switch.step().unwrap());
        caller.set_nonblocking(true).unwrap();
        let (bytes, ends) = changes(6_000);
        let given = stuff(&mut caller, &bytes);
        let waiting = settled(caller.local_addr().unwrap());
        // With the switch's hello unread this is a reset, and what waits here is thrown away by this end's kernel.
        drop(caller);
        are_made(switch, || Client::connect(&path, VERSION), given - waiting, &ends);
    });
}

//! More frames for the controllers than they read: what is dropped, what is counted, and who is heard meanwhile.

use crate::client::{ANY, Client, PATIENCE, Running, add, call, frame};
use crate::site::{Site, needs_root, within};
use crate::support::turn;
use crate::vswitch::{Vswitch, is_missing};
use flow::openflow::bytes::Version;
use flow::openflow::message::{Body, HEADER, Header, Message};
use flow::openflow::misc::{Echo, Hello, SwitchConfig};
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::{PortStatsRequest, QueueRequest};
use flow::port::PortNo;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switch::packet_ins::Limit;

const VERSION: Version = Version::V13;
/// What docs/limits.md says that packet-ins cost at most.
const MEMORY: u64 = 64 << 20;
/// A frame on the wire, without FCS.
const FRAME: &str = "1464";
/// An answer that takes longer has not come before the frames, however slow the machine is.
const LATE: Duration = Duration::from_secs(10);

/// A connection on which a thread reads and counts packet-ins, and answers echoes.
struct Reader {
    stream: UnixStream,
    /// Packet-ins by the port that the frame came in by: 1 and 2.
    counts: Arc<[AtomicU64; 2]>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Calls; `pause` is what it rests behind each 64 KiB.
    fn start(path: &Path, pause: Duration) -> Reader {
        let mut stream = call(path);
        let mut reading = stream.try_clone().unwrap();
        let mut bodies = vec![Body::Hello(Hello::with(&[VERSION.number()]))];
        // Open vSwitch sends no packet-ins to a client that has not said how long they may be.
        bodies.push(Body::SetConfig(SwitchConfig { flags: Default::default(), miss_send_len: 0xffff }));
        bodies.push(Body::BarrierRequest(Default::default()));
        for body in bodies {
            stream.write_all(&Message { version: VERSION, xid: 1, body }.encode().unwrap()).unwrap();
        }
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let is_over = Arc::new(AtomicBool::new(false));
        let (counting, over) = (counts.clone(), is_over.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut room) = (vec![], vec![0; 1 << 16]);
            while let Ok(count @ 1..) = reading.read(&mut room) {
                buffer.extend_from_slice(&room[..count]);
                take(&mut buffer, &mut reading, &counting, &ready);
                std::thread::sleep(pause);
            }
            over.store(true, Relaxed);
        });
        is_ready.recv_timeout(PATIENCE).expect("the switch answers the barrier");
        Reader { stream, counts, is_over, thread: Some(thread) }
    }

    fn got(&self, port: usize) -> u64 {
        self.counts[port - 1].load(Relaxed)
    }

    fn is_there(&self) -> bool {
        !self.is_over.load(Relaxed)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Counts the whole messages of the buffer and takes them out of it; tells of the barrier's reply.
fn take(buffer: &mut Vec<u8>, stream: &mut UnixStream, counts: &[AtomicU64; 2], ready: &Sender<()>) {
    let mut start = 0;
    while let Some(header) = buffer.get(start..start + HEADER).and_then(Header::parse) {
        let Some(message) = buffer.get(start..start + usize::from(header.length)) else { break };
        match header.kind {
            // The first field of the match is the port (OpenFlow 1.3.5 section 7.4.1).
            10 => {
                let port = u32::from_be_bytes(message[32..36].try_into().unwrap());
                counts[port as usize - 1].fetch_add(1, Relaxed);
            }
            2 => {
                let Ok(Message { xid, body: Body::EchoRequest(Echo { data }), .. }) =
                    Message::decode(message)
                else {
                    panic!("{message:02x?}")
                };
                let reply = Message { version: VERSION, xid, body: Body::EchoReply(Echo { data }) };
                let _ = stream.write_all(&reply.encode().unwrap());
            }
            21 => drop(ready.send(())),
            _ => {}
        }
        start += usize::from(header.length);
    }
    buffer.drain(..start);
}

/// What a process has in memory, in bytes: `VmRSS` of `/proc/PID/status`.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Packet-ins of each port that the switch sent, and that it dropped, as it says itself.
fn told(client: &mut Client) -> Vec<(u32, u64, u64)> {
    let wish = QueueRequest { port_no: PortNo::CONTROLLER.0, queue_id: ANY };
    let parts = client.question(Request::QueueStats(wish)).into_iter();
    let rows =
        parts.flat_map(|part| if let Reply::QueueStats(rows) = part { rows } else { panic!("{part:?}") });
    rows.map(|row| (row.queue_id, row.tx_packets, row.tx_errors)).collect()
}

/// Frames that came in by a port.
fn received(client: &mut Client, port: u32) -> u64 {
    let parts = client.question(Request::PortStats(PortStatsRequest { port_no: port }));
    let rows =
        parts.into_iter().flat_map(|part| if let Reply::PortStats(rows) = part { rows } else { vec![] });
    rows.map(|row| row.rx_packets).sum()
}

/// Starts to send as fast as it goes from host 1.
fn flood(site: &mut Site) -> usize {
    let mut command = site.command(1, crate::support::PATHLAB);
    let text = "eth dst=02:00:00:00:00:99 / ip dst=10.0.0.9 / udp dport=9";
    command.args(["send", "ring:eth0", "--frame", text, "--size", FRAME, "--duration", "10m"]);
    site.start(command)
}

/// Waits until all that came in is sent or dropped.
fn settled(client: &mut Client) -> Vec<(u32, u64, u64)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rows = told(client);
        let is_even = |(port, sent, dropped): &(u32, u64, u64)| received(client, *port) == sent + dropped;
        if !rows.is_empty() && rows.iter().all(is_even) {
            return rows;
        }
        let counts: Vec<u64> = (1..=2).map(|port| received(client, port)).collect();
        assert!(Instant::now() < deadline, "frames came in {counts:?}, and packet-ins {rows:?}");
    }
}

#[test]
fn a_flood_of_packet_ins_costs_little_and_stops_nobody() {
    if needs_root("a flood of packet-ins") {
        return;
    }
    let _turn = turn::alone();
    let mut site = Site::in_turn(2);
    let number = site.usual_switch(&[]);
    let mut other = Client::connect(&site.socket(), VERSION);
    // The dumping client wants no frames (OpenFlow 1.3.5 section 7.3.10).
    other.must([Body::SetAsync(Default::default()), add("priority=0 actions=controller:65535")]);
    other.must((1..=1000).map(|priority| add(&format!("priority={priority},in_port=9 actions=output:1"))));
    assert_eq!(other.rules().len(), 1001);
    let pid = site.process(number);
    let idle = memory(pid);
    let reader = Reader::start(&site.socket(), Duration::from_millis(5));
    let generator = flood(&mut site);
    let mut few = within(&site.netns(2), || crate::client::End::open("int:eth0"));
    let (mut most, mut slowest, mut quiet) = (0, Duration::ZERO, 0);
    // So many that nothing but a drop explains where they are: twice what may be in memory.
    let enough = 2 * MEMORY / 1464;
    let deadline = Instant::now() + 4 * PATIENCE;
    loop {
        few.send(&frame("eth src=02:00:00:00:00:02 dst=02:00:00:00:00:98 / ip / udp"));
        quiet += 1;
        let began = Instant::now();
        assert_eq!(other.rules().len(), 1001);
        slowest = slowest.max(began.elapsed());
        most = most.max(memory(pid));
        assert!(reader.is_there(), "the client that reads was cut off: {}", site.logs());
        let dropped: u64 = told(&mut other).iter().map(|(.., dropped)| dropped).sum();
        if dropped >= enough && quiet >= 50 {
            break;
        }
        assert!(Instant::now() < deadline, "{dropped} of {enough} were dropped\n{}", site.logs());
    }
    site.kill_one(generator);
    let rows = settled(&mut other);
    println!(
        "memory {} KiB idle, {} KiB at most; slowest dump {slowest:?}; by port sent and dropped: {rows:?}",
        idle >> 10,
        most >> 10
    );
    assert!(most <= idle + MEMORY, "{idle} bytes idle, {most} at most");
    assert!(slowest < LATE, "a dump took {slowest:?}");
    // What the switch says that it sent has come, and the port that sent few frames lost none.
    let deadline = Instant::now() + PATIENCE;
    let sent = |port: u32| rows.iter().find(|row| row.0 == port).map_or(0, |row| row.1);
    while [1, 2].iter().any(|port| reader.got(*port) < sent(*port as u32)) {
        assert!(Instant::now() < deadline, "{} {} of {rows:?}", reader.got(1), reader.got(2));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((reader.got(1), reader.got(2)), (sent(1), quiet), "{rows:?}");
    let said =
        site.try_run(0, &format!("{} flow dump unix:{}", crate::support::PATHLAB, site.socket().display()));
    let line = format!("# packet-ins of port 1: {} sent, {} dropped", sent(1), rows[0].2);
    assert!(said.0 && said.1.contains(&line), "{line}: {}", said.1);
}

#[test]
fn a_limit_of_packet_ins_is_kept() {
    const FRAMES: u64 = 2000;
    let mut running = Running::with(1, |config| config.packet_ins = Some(Limit { rate: 100, burst: 20 }));
    let mut other = running.client(VERSION);
    other.must([Body::SetAsync(Default::default()), add("priority=0 actions=controller:65535")]);
    let reader = Reader::start(&running.socket(), Duration::ZERO);
    let began = Instant::now();
    for _ in 0..FRAMES {
        running.end(1).send(&frame("eth / ip / udp"));
    }
    let deadline = Instant::now() + PATIENCE;
    let rows = loop {
        let rows = told(&mut other);
        if rows.iter().map(|(_, sent, dropped)| sent + dropped).sum::<u64>() == FRAMES {
            break rows;
        }
        assert!(Instant::now() < deadline, "{rows:?}");
    };
    let most = 20 + (began.elapsed().as_millis() as u64).div_ceil(10);
    let (_, sent, dropped) = rows[0];
    assert!(sent >= 20 && sent <= most, "{sent} of at most {most}, {dropped} dropped");
    let deadline = Instant::now() + PATIENCE;
    while reader.got(1) < sent {
        assert!(Instant::now() < deadline, "{} of {sent}", reader.got(1));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What one switch did with the flood.
#[derive(Debug, Default)]
struct Figures {
    idle_kib: u64,
    most_kib: u64,
    dumps: Vec<Duration>,
    packet_ins_s: f64,
    stayed: bool,
}

/// Floods a switch for so long, with one client that reads and one that dumps.
fn measure(site: &mut Site, socket: &Path, pid: u32, time: Duration) -> Figures {
    let mut other = Client::connect(socket, VERSION);
    other.must([add("priority=0 actions=controller:65535")]);
    other.must((1..=100).map(|priority| add(&format!("priority={priority},in_port=9 actions=output:1"))));
    let mut figures = Figures { idle_kib: memory(pid) >> 10, ..Figures::default() };
    other.must([Body::SetAsync(Default::default())]);
    let reader = Reader::start(socket, Duration::ZERO);
    let generator = flood(site);
    while reader.got(1) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (began, first) = (Instant::now(), reader.got(1));
    while began.elapsed() < time {
        let asked = Instant::now();
        assert_eq!(other.rules().len(), 101);
        figures.dumps.push(asked.elapsed());
        figures.most_kib = figures.most_kib.max(memory(pid) >> 10);
        std::thread::sleep(Duration::from_millis(50));
    }
    figures.packet_ins_s = (reader.got(1) - first) as f64 / began.elapsed().as_secs_f64();
    figures.stayed = reader.is_there();
    site.kill_one(generator);
    figures.dumps.sort();
    figures
}

#[test]
#[ignore = "a measurement: cargo test --test switch -- --ignored --nocapture flood_beside"]
fn the_flood_beside_open_vswitch() {
    if needs_root("the flood beside Open vSwitch") || is_missing("the flood beside Open vSwitch") {
        return;
    }
    let _turn = turn::alone();
    for round in 1..=5 {
        for which in ["pathlab switch", "Open vSwitch"] {
            let mut site = Site::in_turn(1);
            let (socket, pid, vswitch);
            if which == "Open vSwitch" {
                let running = Vswitch::in_site(&site);
                (socket, pid) = (running.socket(), running.process());
                vswitch = Some(running);
            } else {
                let number = site.usual_switch(&[]);
                (socket, pid, vswitch) = (site.socket(), site.process(number), None);
            }
            let Figures { idle_kib, most_kib, dumps, packet_ins_s, stayed } =
                measure(&mut site, &socket, pid, Duration::from_secs(8));
            let (median, slowest) = (dumps[dumps.len() / 2], dumps[dumps.len() - 1]);
            println!(
                "{round} {which:14}: {packet_ins_s:7.0} packet-ins/s, memory {idle_kib} + {} KiB, dump {median:.1?} median {slowest:.1?} slowest, the reader {}",
                most_kib.saturating_sub(idle_kib),
                if stayed { "stayed" } else { "was cut off" }
            );
            drop(vswitch);
        }
    }
}

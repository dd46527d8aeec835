//! `tap:NAME`: an interface of this host whose wire ends in this program.
//!
//! **What.** What the host sends out of the interface is received here, what is sent here comes in there. The interface
//! is made if there is none of that name; a tap that exists already is joined. With `vnet=on` (the default) each frame
//! has a `struct virtio_net_hdr` beside it: the kernel leaves checksums unfinished and super-frames whole, both ways.
//!
//! **Undo.** None is needed: an interface that was made here lives as long as one of its queues is open, so it vanishes
//! with the process, however that ends. Nothing of an interface that existed before is changed, except that the last
//! one to open a queue decides for all whether the kernel leaves work to the readers.
//!
//! **Price.** One system call and one copy (by the kernel) for each frame and way. A tap has no wire and so no limit of
//! its own on what comes in; frames longer than the MTU are refused here, as a wire would.

use super::batch::{Batch, MAX_BATCH, Slot};
use super::batch_builder::Reader;
use super::interface::Probe;
use super::offload;
use super::sending::{ETHERNET, Outcome, TAG, refusing, send_each};
use super::told::{setting, text};
use super::{
    Hand, Port, PortOptions, PortResult, ReceiveCounters, Receiver, StampSource, TransmitCounters,
    Transmitted, Transmitter, Uri, Wait,
};
use crate::netlink::{Family, LinkState, Netlink};
use crate::observe::links;
use crate::sys::{notice, tun};
use nix::poll::{PollFd, PollFlags};
use record::{PlaceDrop, PortSetting, Problem, Result, drop, unit};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::offload::{HEADER, Offload};

/// The longest name of an interface (`IFNAMSIZ` and its final zero).
const MAX_NAME: usize = 15;
/// The kernel's limit (`MAX_TAP_QUEUES` is 256); nobody reads so many from one thread.
const MAX_QUEUES: usize = 64;
/// The longest super-frame (`GSO_LEGACY_MAX_SIZE`) with its Ethernet header and tags.
const SUPER_FRAME: usize = 65536 + ETHERNET + 2 * TAG;

/// What both ends share.
#[derive(Debug)]
struct Tap {
    queues: Vec<OwnedFd>,
    mtu: usize,
    has_header: bool,
}

/// Opens `tap:NAME?queues=N&vnet=on|off&mtu=BYTES&up=yes|no`.
///
/// # Errors
/// Input: a name or setting that cannot be used, an interface of that name that is no tap. Host: no permission, no
/// `/dev/net/tun`.
pub fn open(uri: &mut Uri, wish: &PortOptions) -> Result<Port> {
    let wanted = Wanted::take(uri, wish)?;
    opened(uri, wish, &wanted)
}

/// The same for a tap that must not be there yet.
///
/// # Errors
/// As [`open`]; host: it is there.
pub(in crate::port) fn make(uri: &mut Uri, wish: &PortOptions) -> Result<Port> {
    let wanted = Wanted { new: true, ..Wanted::take(uri, wish)? };
    opened(uri, wish, &wanted)
}

fn opened(uri: &mut Uri, wish: &PortOptions, wanted: &Wanted) -> Result<Port> {
    // Unknown settings are refused before anything is made.
    uri.finish()?;
    let mut netlink = Netlink::open();
    let existing = find(&mut netlink, &uri.rest, &uri.text)?;
    wanted.fits(uri, existing.as_ref())?;
    let queues = attach(uri, wanted, existing.as_ref())?;
    let offloads = offer(&queues, wanted.vnet).map_err(|e| failed(uri, "its offloads cannot be set", &e))?;
    let attached = look(&mut netlink, uri)?;
    // One that was there may have gone with its last program before it could be joined: then the kernel made a new one.
    let is_joined = existing.is_some_and(|before| before.index == attached.index);
    if !is_joined {
        configure(uri, wanted, &mut netlink)?;
    }
    let link = if is_joined { attached } else { look(&mut netlink, uri)? };
    let settings = wanted.settings(&link, offloads, is_joined);
    let tap = Arc::new(Tap { queues, mtu: link.mtu as usize, has_header: wanted.vnet });
    let receiver = || {
        let counts_drops = wish.member.is_none_or(|member| member.index == 0);
        let drops = KernelDrops::open(link.index, counts_drops).map_err(|e| failed(uri, "no netlink", &e))?;
        let probe = Probe::open(link.index).map_err(|problem| problem.at(&uri.text))?;
        Ok((Box::new(TapReceiver::new(tap.clone(), wish, drops, probe)) as _, settings.clone()))
    };
    let transmitter = || Ok((Box::new(TapTransmitter::new(tap.clone())) as _, settings.clone()));
    Port::with_ends(uri, wish, receiver, transmitter)
}

/// The queue of a tap that is there, for another program: complete frames, without a header before them.
///
/// # Errors
/// Input: a name that is none, no such interface, or one that is no tap. Host: it is in use, or belongs to somebody else.
pub fn existing_queue(name: &str) -> Result<OwnedFd> {
    let mut uri = Uri::parse(&format!("tap:{name}?vnet=off"))?;
    let wanted = Wanted::take(&mut uri, &PortOptions::default())?;
    uri.finish()?;
    let existing = find(&mut Netlink::open(), name, &uri.text)?.ok_or_else(|| {
        Problem::input(format!("there is no tap '{name}' in this network namespace"))
            .help(format!("make it first: 'ip tuntap add {name} mode tap' and 'ip link set {name} up'"))
    })?;
    wanted.fits(&uri, Some(&existing))?;
    let mut queues = attach(&uri, &wanted, Some(&existing))?;
    queues.pop().ok_or_else(|| Problem::host(format!("tap '{name}' has no queue")))
}

/// What the name asks for.
struct Wanted {
    queues: usize,
    asked_queues: Option<usize>,
    vnet: bool,
    mtu: Option<u32>,
    up: bool,
    /// Not one that is there.
    new: bool,
}

impl Wanted {
    fn take(uri: &mut Uri, wish: &PortOptions) -> Result<Wanted> {
        let asked = uri.take_number("queues", unit::amount, 1..=MAX_QUEUES)?;
        let queues = asked.unwrap_or(1);
        if queues > 1 && wish.member.is_some_and(|member| member.count > 1) {
            return Err(uri.bad(
                "queues",
                &queues.to_string(),
                "1 when several threads receive: each has a queue",
            ));
        }
        let vnet = uri.take_switch("vnet", true)?;
        let up = uri.take_switch("up", true)?;
        let mtu = uri.take_number("mtu", unit::bytes, 68..=65521)?;
        let name = &uri.rest;
        let bad = |what: &str| {
            Err(Problem::input(format!("'{name}' cannot name an interface")).at(&uri.text).help(what))
        };
        if name.is_empty() || name.len() > MAX_NAME {
            return bad("a name has 1 to 15 bytes");
        }
        if name.contains(|c: char| c == '/' || c == ':' || c == '%' || c.is_whitespace())
            || name == "."
            || name == ".."
        {
            return bad("a name has no blank, '/', ':' or '%' in it, and is neither '.' nor '..'");
        }
        Ok(Wanted { queues, asked_queues: asked, vnet, mtu, up, new: false })
    }

    /// What exists must be a tap, and is not changed.
    fn fits(&self, uri: &Uri, existing: Option<&LinkState>) -> Result<()> {
        let Some(link) = existing else { return Ok(()) };
        if link.kind != "tun" {
            let kind = if link.kind.is_empty() { "hardware or loopback" } else { &link.kind };
            return Err(Problem::input(format!(
                "interface '{}' exists and is not a tap ({kind})",
                link.name
            ))
            .at(&uri.text)
            .help("choose another name, or open it as int:, ring: or xdp:"));
        }
        match self.mtu {
            Some(mtu) if mtu != link.mtu => {
                Err(Problem::input(format!("tap '{}' exists and has an MTU of {}", link.name, link.mtu))
                    .at(&uri.text)
                    .help(format!("leave mtu= out, or change it with 'ip link set {} mtu {mtu}'", link.name)))
            }
            _ => Ok(()),
        }
    }

    fn settings(&self, link: &LinkState, offloads: tun::Offloads, existed: bool) -> Vec<PortSetting> {
        let vnet = match (self.vnet, offloads) {
            (false, _) => "off",
            (true, tun::Offloads::None) => "on",
            (true, tun::Offloads::Tcp) => "on, checksum and tcp super-frames",
            (true, tun::Offloads::TcpAndUdp) => "on, checksum, tcp and udp super-frames",
        };
        let life = if existed { "joined" } else { "made; vanishes when the port is closed" };
        let state = match (link.up, self.up) {
            (true, _) => "",
            (false, true) => "it was down before and is left so: 'ip link set … up' switches it on",
            (false, false) => "no frame passes before it is switched on",
        };
        vec![
            setting("interface", "", format!("{} ({life})", link.name), ""),
            setting("queues", text(self.asked_queues), self.queues.to_string(), ""),
            setting("vnet", "", vnet, ""),
            setting("mtu", text(self.mtu), link.mtu.to_string(), ""),
            setting("up", "", if link.up { "yes" } else { "no" }, state),
            setting("queue_frames", "", link.tx_queue_len.to_string(), "towards this program, per queue"),
            setting("stamps", "", StampSource::User.name(), "a tap has no clock of its own"),
        ]
    }
}

fn failed(uri: &Uri, what: &str, error: &io::Error) -> Problem {
    Problem::host(format!("{what}: {error}")).at(&uri.text)
}

fn find(netlink: &mut Netlink, name: &str, place: &str) -> Result<Option<LinkState>> {
    let links = netlink
        .links()
        .map_err(|e| Problem::host(format!("cannot ask for the interfaces: {e}")).at(place))?;
    Ok(links.into_iter().find(|link| link.name == name))
}

/// The interface that is open.
fn look(netlink: &mut Netlink, uri: &Uri) -> Result<LinkState> {
    let vanished = || Problem::host("the interface vanished while it was opened").at(&uri.text);
    find(netlink, &uri.rest, &uri.text)?.ok_or_else(vanished)
}

fn attach(uri: &Uri, wanted: &Wanted, existing: Option<&LinkState>) -> Result<Vec<OwnedFd>> {
    let mut queues = vec![];
    for index in 0..wanted.queues {
        let queue = tun::open().map_err(|e| {
            failed(uri, "cannot open /dev/net/tun", &e)
                .help("the kernel needs CONFIG_TUN, and the file must be there")
        })?;
        let shape = tun::Shape { many: true, header: wanted.vnet, new: wanted.new && index == 0 };
        let mut attached = tun::attach(&queue, &uri.rest, shape);
        // A tap that somebody made for one queue only.
        let is_invalid = |e: &io::Error| e.raw_os_error() == Some(libc::EINVAL);
        if wanted.queues == 1 && existing.is_some() && attached.as_ref().is_err_and(is_invalid) {
            attached = tun::attach(&queue, &uri.rest, tun::Shape { many: false, ..shape });
        }
        attached.map_err(|e| why_not_attached(uri, index, existing, &e))?;
        queues.push(queue);
    }
    Ok(queues)
}

fn why_not_attached(uri: &Uri, index: usize, existing: Option<&LinkState>, error: &io::Error) -> Problem {
    let name = &uri.rest;
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            Problem::host(format!("not permitted to make or join tap '{name}'")).at(&uri.text).help("run it as root")
        }
        Some(libc::EBUSY) => Problem::host(format!("tap '{name}' is in use by another program"))
            .at(&uri.text)
            .help("it has one queue only; end that program, or make it with several ('ip tuntap add … multi_queue')"),
        Some(libc::E2BIG) => Problem::host(format!("tap '{name}' has no queue left"))
            .at(&uri.text)
            .help(format!("queue {index} was too many")),
        Some(libc::EINVAL) if existing.is_some() => {
            Problem::input(format!("interface '{name}' exists and cannot be joined")).at(&uri.text).help(
                "it is a tun (without Ethernet headers), or it was made for one queue only",
            )
        }
        _ => failed(uri, &format!("cannot make tap '{name}'"), error),
    }
}

/// Asks the kernel to leave as much as it can to us; what it agreed to.
fn offer(queues: &[OwnedFd], vnet: bool) -> io::Result<tun::Offloads> {
    let steps = [tun::Offloads::TcpAndUdp, tun::Offloads::Tcp, tun::Offloads::None];
    let mut refused = None;
    for offloads in steps.into_iter().skip(if vnet { 0 } else { 2 }) {
        match queues.iter().try_for_each(|queue| tun::set_offloads(queue, offloads)) {
            Ok(()) => return Ok(offloads),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

fn configure(uri: &Uri, wanted: &Wanted, netlink: &mut Netlink) -> Result<()> {
    let link = find(netlink, &uri.rest, &uri.text)?
        .ok_or_else(|| Problem::host("the interface vanished while it was opened").at(&uri.text))?;
    let refused = |what: &str, e| Problem::host(format!("cannot {what}: {e}")).at(&uri.text);
    if let Some(mtu) = wanted.mtu {
        netlink.set_mtu(link.index, mtu).map_err(|e| refused("set the MTU", e))?;
    }
    if wanted.up {
        netlink.set_up(link.index).map_err(|e| refused("switch it on", e))?;
    }
    Ok(())
}

/// Frames that the kernel could not put into our queue (`tx_dropped` of the interface).
struct KernelDrops {
    netlink: Option<Netlink>,
    index: u32,
    /// What the interface had counted before.
    before: u64,
    /// What it had counted the last time that it could be asked.
    last: u64,
}

impl KernelDrops {
    fn open(index: u32, counts: bool) -> io::Result<KernelDrops> {
        let mut netlink = counts.then(Netlink::open);
        netlink.as_mut().map_or(Ok(()), |netlink| netlink.prepare(Family::Route))?;
        let mut drops = KernelDrops { netlink, index, before: 0, last: 0 };
        drops.before = drops.read();
        Ok(drops)
    }

    fn read(&mut self) -> u64 {
        let index = self.index;
        let dropped = |message: &[u8]| {
            let link = links::parse(message).filter(|link| link.index == index)?;
            link.counters.get("tx_dropped").copied()
        };
        let found = self.netlink.as_mut().and_then(|netlink| netlink.dump(&links::DUMP, dropped).ok());
        // An interface that is gone counts no more.
        self.last = found.and_then(|found| found.last().copied()).unwrap_or(self.last);
        self.last.saturating_sub(self.before)
    }
}

struct TapReceiver {
    tap: Arc<Tap>,
    reader: Reader,
    /// The queue that is read first, so that none starves.
    next: usize,
    unknown: u64,
    drops: KernelDrops,
    probe: Probe,
}

impl TapReceiver {
    fn new(tap: Arc<Tap>, wish: &PortOptions, drops: KernelDrops, probe: Probe) -> Self {
        TapReceiver { tap, reader: Reader::new(wish, SUPER_FRAME), next: 0, unknown: 0, drops, probe }
    }

    /// Reads what is there, from each queue in turn.
    fn drain(&mut self, limit: usize) -> PortResult<()> {
        for _ in &self.tap.queues {
            let (queue, unknown) = (&self.tap.queues[self.next], &mut self.unknown);
            let is_empty = self.reader.drain(limit, |room| {
                let mut header = [0; HEADER];
                let header = if self.tap.has_header { &mut header[..] } else { &mut [] };
                let length = tun::read(queue, header, room)?.saturating_sub(header.len());
                let offload = match <&[u8; HEADER]>::try_from(&*header) {
                    Ok(header) => Offload::read(header),
                    Err(_) => Some(Offload::NONE),
                };
                *unknown += u64::from(offload.is_none());
                Ok(offload.map(|offload| (length, offload)))
            })?;
            if !is_empty {
                break;
            }
            self.next = (self.next + 1) % self.tap.queues.len();
        }
        Ok(())
    }

    fn wait(&self, limit: Duration) -> io::Result<()> {
        let queues = &self.tap.queues;
        let readable = |queue| PollFd::new(AsFd::as_fd(queue), PollFlags::POLLIN);
        if let [queue] = &queues[..] {
            return notice::poll(&mut [readable(queue)], Some(limit)).map(drop);
        }
        let mut polled: Vec<PollFd<'_>> = queues.iter().map(readable).collect();
        notice::poll(&mut polled, Some(limit)).map(drop)
    }

    fn fill(&mut self, limit: usize, wait: Wait) -> PortResult<()> {
        self.drain(limit)?;
        let Some(end) = wait.deadline() else { return Ok(()) };
        while self.reader.batch.slots.is_empty() && limit > 0 {
            self.probe.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.wait(left)?;
            self.drain(limit)?;
        }
        Ok(())
    }
}

impl Receiver for TapReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>> {
        self.reader.clear();
        let filled = self.fill(limit.min(MAX_BATCH), wait);
        if self.reader.batch.slots.is_empty() {
            filled?;
        }
        Ok(self.reader.lend())
    }

    fn counters(&mut self) -> ReceiveCounters {
        ReceiveCounters {
            drops: vec![
                PlaceDrop::new("kernel", drop::QUEUE_FULL, self.drops.read()),
                PlaceDrop::new("port", drop::UNKNOWN_OFFLOAD, self.unknown),
            ],
            ..self.reader.batch.counters.clone()
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.tap.queues[..] {
            [queue] => Some(queue.as_fd()),
            _ => None,
        }
    }
}

struct TapTransmitter {
    tap: Arc<Tap>,
    /// Where pieces of super-frames are written.
    piece: Vec<u8>,
    counters: TransmitCounters,
}

/// Why a frame is refused.
const REFUSALS: [&str; 8] = [
    drop::OVERSIZE,
    drop::RUNT,
    drop::LINK_DOWN,
    drop::NO_MEMORY,
    drop::INVALID,
    drop::TAKEN,
    offload::REFUSALS[0],
    offload::REFUSALS[1],
];

impl TapTransmitter {
    fn new(tap: Arc<Tap>) -> Self {
        TapTransmitter { piece: vec![0; SUPER_FRAME], tap, counters: refusing(&REFUSALS) }
    }

    fn send(&mut self, slot: &mut Slot) -> PortResult<Outcome> {
        if let Some(why) = slot.refusal(self.longest(), usize::MAX) {
            return Ok(Outcome::Refused(why));
        }
        let queue = &self.tap.queues[0];
        if self.tap.has_header {
            return sort_write(tun::write(queue, &slot.meta.offload.write(), slot.bytes()));
        }
        let write = |bytes: &[u8]| sort_write(tun::write(queue, &[], bytes));
        offload::send_finished(slot, &mut self.piece, &mut self.counters, write)
    }
}

fn sort_write(written: io::Result<()>) -> PortResult<Outcome> {
    let Err(error) = written else { return Ok(Outcome::Sent) };
    Ok(match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Outcome::Full,
        Some(libc::EIO) => Outcome::Refused(drop::LINK_DOWN),
        Some(libc::ENOMEM | libc::ENOBUFS) => Outcome::Refused(drop::NO_MEMORY),
        Some(libc::EINVAL | libc::EMSGSIZE | libc::EFAULT) => Outcome::Refused(drop::INVALID),
        _ => return Err(error.into()),
    })
}

impl Transmitter for TapTransmitter {
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], _hand: Hand) -> PortResult<Transmitted> {
        send_each(self, (batch, which), |tap| &mut tap.counters, Self::send)
    }

    fn counters(&mut self) -> TransmitCounters {
        TransmitCounters { completed: Some(self.counters.accepted), ..self.counters.clone() }
    }

    fn longest(&self) -> usize {
        self.tap.mtu + ETHERNET
    }
}

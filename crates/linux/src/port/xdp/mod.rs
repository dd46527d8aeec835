//! `xdp:INTERFACE`: AF_XDP, frames between the driver and our own memory.
//!
//! **What.** A small XDP program ([`redirect`]) takes the frames of one receive queue before the kernel's stack sees them
//! and puts each into a chunk of an [`Area`] that this process shares with the kernel; sending works the other way
//! round. No system call is made for a frame, and none at all while both sides are busy.
//!
//! **Why.** Two `xdp:` ports over one area ([`PortOptions::area`]) forward without copying a byte here: the transmitter takes
//! the number of the chunk. (In copy mode, which every interface has, the kernel itself copies between chunk and socket
//! buffer; in zero-copy mode, which only some drivers have, nobody does. Which one it is, is said.)
//!
//! **Price.** A frame that is taken here does not reach the host's stack: this is a switch's port and a generator, and
//! no tap. Only frames that come in are seen, never those that the host sends. What the kernel keeps beside a frame is
//! lost: a VLAN tag that the driver took out stays out, and a checksum that the sender left to the hardware is not
//! told; it is found by its content and completed. Super-frames do not come in native mode (a veth's other end stops
//! making them while the program is attached); in generic mode one that is longer than a chunk is dropped and counted.
//! Time is stamped by this program, when it takes the batch.
//!
//! With `?only=udp:PORT` the program takes whole UDP datagrams to that port ([`only`]) and leaves everything else, ARP among it,
//! to the host.
//!
//! `?queue=N` one receive queue (0); `?mode=auto|native|generic`; `?copy=auto|zero|copy`; `?frames=N` entries of each ring
//! (2048); `?chunk=2048|4096` (as the MTU needs); `?wakeup=on|off` whether the kernel may sleep until it is called;
//! `?checksums=complete|keep`.

mod only;
mod receive;
mod redirect;
mod ring;
mod socket;
mod transmit;
mod unfinished;

use super::interface::{Interface, Probe};
use super::{Area, MAX_BATCH, Port, PortOptions, Receiver, StampSource, Transmitter, Uri};
use crate::port::area::{Sharing, SharingClass};
use crate::port::batch_builder::BatchBuilder;
use crate::port::live::PassingProgram;
use crate::port::packet::shared::switch;
use crate::port::sending::refusing;
use crate::port::told::{setting, text};
use crate::port::uri::word;
use crate::sys::packet;
use only::Only;
use receive::{Checksums, XdpReceiver};
use record::{PortSetting, Problem, Result, unit};
use redirect::{Mode, Redirect};
use socket::{Binding, Held, Outward, Parts, Socket};
use std::io;
use std::sync::Arc;
use transmit::XdpTransmitter;

/// Bytes that XDP leaves free before a frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Bytes of an Ethernet header with one tag: what a frame may have beyond the MTU.
const HEADER: u32 = 18;

/// Who copies a frame, as `sxdp_flags` of a socket says it.
const COPIES: [(&str, u16); 3] = [("auto", 0), ("zero", libc::XDP_ZEROCOPY), ("copy", libc::XDP_COPY)];

/// How many chunks an area must have for each port that shares it, with `frames` entries in each ring: what the kernel
/// may hold for receiving and for sending, and a batch in the hands of each end.
pub fn chunks(frames: u32) -> u32 {
    2 * frames + 2 * MAX_BATCH as u32
}

/// What a port of this name needs of memory that it shares.
///
/// # Errors
/// As [`open`] for names, settings and interfaces.
pub(in crate::port) fn sharing(uri: &mut Uri) -> Result<Sharing> {
    let asked = Asked::take(uri)?;
    let interface = Interface::find(&uri.rest, &uri.text)?;
    Ok(Sharing {
        class: SharingClass::Driver(asked.chunk, asked.copy, asked.wakeup),
        chunks: chunks(asked.frames),
        chunk_bytes: asked.chunk.unwrap_or(chunk_for(&interface)),
    })
}

/// Makes sure that frames which a program redirects to an interface of the calling thread's namespace can leave there: a veth takes them
/// only while its other end has an XDP program (or GRO), so one that passes everything is attached there as long as what is returned lives, or
/// until a port of this process opens that end; with what was found, in words.
///
/// # Errors
/// Input: no such interface. Host: the driver takes none, the other end cannot be reached or has another program.
pub fn takes_redirected(name: &str, place: &str) -> Result<(Option<PassingProgram>, String)> {
    let peer = super::live::open_peer(&Interface::find(name, place)?, place)?;
    Ok((peer.program, peer.note))
}

fn no_memory(error: io::Error) -> Problem {
    Problem::host(format!("cannot map memory for frames: {error}")).help("ask for fewer frames=")
}

/// The chunk that holds the interface's frames, if there is one.
fn chunk_for(interface: &Interface) -> u32 {
    if interface.link.mtu + HEADER + HEADROOM <= 2048 { 2048 } else { 4096 }
}

/// What the URI says.
struct Asked {
    queue: Option<u32>,
    mode: Mode,
    copy: u16,
    frames: u32,
    chunk: Option<u32>,
    wakeup: bool,
    checksums: Checksums,
    only: Option<Only>,
}

impl Asked {
    fn take(uri: &mut Uri) -> Result<Asked> {
        let chunk = |bytes| [2048, 4096].into_iter().find(|chunk| u64::from(*chunk) == bytes);
        let frames = uri.take_number("frames", unit::amount, 64u32..=1 << 16)?.unwrap_or(2048);
        if !frames.is_power_of_two() {
            return Err(uri.bad("frames", &frames.to_string(), "a power of two from 64 to 65536"));
        }
        Ok(Asked {
            queue: uri.take_number("queue", unit::amount, 0..=redirect::QUEUES - 1)?,
            mode: uri.take_word("mode", &Mode::NAMES)?.unwrap_or(Mode::Auto),
            copy: uri.take_word("copy", &COPIES)?.unwrap_or(0),
            frames,
            chunk: uri.take_as("chunk", |text| Ok(chunk(unit::bytes(text)?)), "2048 or 4096")?,
            wakeup: uri.take_switch("wakeup", true)?,
            checksums: uri.take_word("checksums", &Checksums::NAMES)?.unwrap_or(Checksums::Complete),
            only: uri.take_as(
                "only",
                |text| Ok(Only::read(text)),
                "udp:PORT, the port of the datagrams that are taken",
            )?,
        })
    }
}

/// Opens a port.
///
/// # Errors
/// Input: settings that cannot be used, no such interface or queue. Host: the interface is down or has another XDP
/// program, the driver or this user cannot.
pub fn open(uri: &mut Uri, wish: &PortOptions) -> Result<Port> {
    let asked = Asked::take(uri)?;
    // Nothing is touched before every setting is known to exist.
    uri.finish()?;
    let interface = Interface::find(&uri.rest, &uri.text)?;
    let port = open_on(&Opening { interface: &interface, asked: &asked, wish });
    let port =
        port.map_err(|problem| if problem.place.is_empty() { problem.at(&uri.text) } else { problem })?;
    Ok(Port { uri: uri.text.clone(), ..port })
}

/// What is being opened: on which interface, and how.
#[derive(Clone, Copy)]
struct Opening<'a> {
    interface: &'a Interface,
    asked: &'a Asked,
    wish: &'a PortOptions,
}

fn open_on(opening: &Opening<'_>) -> Result<Port> {
    let Opening { interface, asked, wish } = *opening;
    let name = &interface.link.name;
    if !interface.link.up {
        return Err(Problem::host(format!("interface {name} is down"))
            .help(format!("switch it on: ip link set {name} up")));
    }
    let queue = queue(interface, asked, wish)?;
    let area = area(interface, asked, wish)?;
    let first = wish.slot.as_ref().map(|slot| (slot.clone(), queue));
    let attach = || Redirect::attach(interface.link.index, name, asked.mode, asked.only, first);
    let redirect = wish.direction.receives().then(attach).transpose()?;
    let generic = redirect.as_ref().is_some_and(|redirect| redirect.mode == Mode::Generic);
    // Generic XDP works on socket buffers, so there is nothing that could be shared with the driver.
    let copy = if generic && asked.copy == 0 { libc::XDP_COPY } else { asked.copy };
    let binding = Binding { interface: interface.link.index, queue, copy, wakeup: asked.wakeup };
    let parts = Socket::open(&area, asked.frames, wish.direction, &binding)
        .map_err(|error| refused(error, interface, queue, asked))?;
    if let Some(redirect) = &redirect {
        redirect
            .serve(queue, parts.socket.fd())
            .map_err(|e| Problem::host(format!("cannot give queue {queue} of {name} to a socket: {e}")))?;
    }
    let settings = settings(opening, queue, &parts, redirect.as_deref());
    Ok(Port { settings, ..assemble(opening, parts, redirect)? })
}

fn assemble(opening: &Opening<'_>, parts: Parts, redirect: Option<Arc<Redirect>>) -> Result<Port> {
    let Opening { interface, asked, wish } = *opening;
    // A packet socket without a protocol holds promiscuous mode as long as it lives, and receives nothing.
    let promiscuous = || {
        let fd = packet::open()?;
        packet::set_promiscuous(&fd, interface.link.index as i32).map(|()| fd)
    };
    let refused = |e| Problem::host(format!("cannot make {} promiscuous: {e}", interface.link.name));
    let wanted = wish.promiscuous && redirect.is_some();
    let promiscuous = wanted.then(|| promiscuous().map_err(refused)).transpose()?;
    let mut receiver = None;
    if let (Some(rings), Some(redirect)) = (parts.inward, redirect) {
        let mut made = XdpReceiver {
            rings,
            held: Held::new(parts.socket.area.chunks()),
            posted: 0,
            frames: asked.frames,
            spare: Vec::with_capacity(asked.frames as usize + MAX_BATCH),
            batch: BatchBuilder::new(wish),
            completed_checksums: 0,
            checksums: asked.checksums,
            probe: Probe::open(interface.link.index)?,
            polls: 0,
            _promiscuous: promiscuous,
            socket: parts.socket.clone(),
            _redirect: redirect,
        };
        made.refill();
        receiver = Some(Box::new(made) as Box<dyn Receiver>);
    }
    let outward = parts.outward.map(|rings| transmitter(opening, rings, parts.socket)).transpose()?;
    Ok(Port { uri: String::new(), receiver, transmitter: outward, settings: vec![] })
}

fn transmitter(opening: &Opening<'_>, rings: Outward, socket: Arc<Socket>) -> Result<Box<dyn Transmitter>> {
    let Opening { interface, asked, .. } = *opening;
    Ok(Box::new(XdpTransmitter {
        rings,
        held: Held::new(socket.area.chunks()),
        under_way: 0,
        frames: asked.frames,
        longest: (interface.link.mtu + HEADER - 4).min(socket.area.chunk_bytes()),
        stash: Vec::with_capacity(asked.frames as usize + MAX_BATCH),
        counters: refusing(&transmit::REFUSALS),
        completed: 0,
        driver_dropped: 0,
        wakeup: asked.wakeup,
        probe: Probe::open(interface.link.index)?,
        to_say: None,
        socket,
    }))
}

/// The queue: as asked, or that of the member.
fn queue(interface: &Interface, asked: &Asked, wish: &PortOptions) -> Result<u32> {
    let (name, queues) = (&interface.link.name, interface.queues);
    let queue = match (asked.queue, wish.member) {
        (Some(_), Some(member)) if member.count > 1 => {
            return Err(Problem::input("one queue cannot be shared by several receivers")
                .help("leave out queue=, so that each takes a queue of its own"));
        }
        (Some(queue), _) => queue,
        (None, Some(member)) if member.count > queues => {
            return Err(Problem::host(format!(
                "{name} has {queues} receive queue(s), too few for {} receivers",
                member.count
            ))
            .help(format!("'ethtool -L {name} combined N' may add some; ring: shares one queue by fanout")));
        }
        (None, member) => member.map_or(0, |member| member.index),
    };
    match queue < queues {
        true => Ok(queue),
        false => Err(Problem::input(format!("{name} has no receive queue {queue}"))
            .help(format!("it has {queues}, counted from 0 (ethtool -l {name})"))),
    }
}

/// The memory: as wished, or new.
fn area(interface: &Interface, asked: &Asked, wish: &PortOptions) -> Result<Arc<Area>> {
    let longest = interface.link.mtu + HEADER;
    let wanted = chunk_for(interface);
    let chunk = wish.area.as_ref().map(|area| area.chunk_bytes()).or(asked.chunk).unwrap_or(wanted);
    if longest + HEADROOM > chunk && wish.direction.receives() {
        let most = chunk.saturating_sub(HEADROOM + HEADER);
        let problem = Problem::host(format!(
            "frames of {} (MTU {}) do not fit into a chunk of {chunk} bytes",
            interface.link.name, interface.link.mtu
        ));
        return Err(match chunk < 4096 && interface.link.mtu <= 4096 - HEADROOM - HEADER {
            true => problem.help("ask for chunk=4096"),
            false => problem.help(format!(
                "make the MTU {most} or less: ip link set {} mtu {most}; or use ring:",
                interface.link.name
            )),
        });
    }
    let Some(area) = &wish.area else {
        return Area::new(chunks(asked.frames), chunk).map_err(no_memory);
    };
    if asked.chunk.is_some_and(|asked| asked != area.chunk_bytes()) {
        return Err(Problem::input("the memory to be shared has chunks of another size")
            .help(format!("leave out chunk=, or make it {}", area.chunk_bytes())));
    }
    if area.chunks() < chunks(asked.frames) {
        return Err(Problem::input(format!(
            "the memory to be shared has {} chunks, and this port needs {}",
            area.chunks(),
            chunks(asked.frames)
        ))
        .help("ask for fewer frames="));
    }
    Ok(area.clone())
}

/// What to say when the socket could not be made or bound.
fn refused(error: io::Error, interface: &Interface, queue: u32, asked: &Asked) -> Problem {
    let name = &interface.link.name;
    let problem = Problem::host(format!("cannot open queue {queue} of {name} with AF_XDP: {error}"));
    match error.raw_os_error() {
        Some(libc::EPERM) => problem.help("this needs root, or CAP_NET_RAW and CAP_NET_ADMIN"),
        Some(libc::EAFNOSUPPORT) => problem.help("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)"),
        Some(libc::EBUSY) => Problem::host(format!("another AF_XDP socket has queue {queue} of {name}"))
            .help("end its process, or take another queue= if there is one"),
        Some(libc::EOPNOTSUPP | libc::EINVAL) if asked.copy == libc::XDP_ZEROCOPY => {
            Problem::host(format!("the driver of {name} has no zero-copy AF_XDP"))
                .help("ask for copy=auto or copy=copy")
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            problem.help("raise the limit of locked memory (ulimit -l), or ask for fewer frames=")
        }
        _ => problem,
    }
}

fn settings(of: &Opening<'_>, queue: u32, parts: &Parts, redirect: Option<&Redirect>) -> Vec<PortSetting> {
    let Opening { interface, asked, wish } = *of;
    let mut all = vec![];
    let mut say =
        |name, asked: &str, effective: &str, note: &str| all.push(setting(name, asked, effective, note));
    let zero = parts.socket.zero_copy();
    match redirect {
        Some(redirect) => {
            let note = match redirect.mode {
                Mode::Generic if redirect.why_generic.is_empty() => "on socket buffers",
                Mode::Generic => &redirect.why_generic,
                _ => "in the driver; the program goes with this process",
            };
            say("mode", word(&Mode::NAMES, asked.mode), word(&Mode::NAMES, redirect.mode), note);
        }
        None => say("mode", word(&Mode::NAMES, asked.mode), "none", "only to send: no program is attached"),
    }
    let shared = if parts.shares { "as the first port over this memory; " } else { "" };
    let who =
        if zero { "the driver uses our memory" } else { "the kernel copies between its memory and ours" };
    say("copy", word(&COPIES, asked.copy), if zero { "zero" } else { "copy" }, &format!("{shared}{who}"));
    let others = match interface.queues {
        1 => String::new(),
        queues => format!("of {queues}: frames of the others go to the host"),
    };
    say("queue", &text(asked.queue), &queue.to_string(), &others);
    say("frames", "", &format!("{} in each ring", asked.frames), "");
    let area = &parts.socket.area;
    let memory = format!("{} chunks of {} B", area.chunks(), area.chunk_bytes());
    say("memory", "", &memory, if wish.area.is_some() { "shared with other ports" } else { "" });
    say("wakeup", "", switch(asked.wakeup), "");
    if let (true, Some(budget)) = (wish.direction.transmits() && !zero, parts.budget) {
        say("budget", "", &format!("{budget} frames"), "sent by one system call at most");
    }
    if redirect.is_some() {
        let note = "the kernel does not tell of unfinished ones; they are found by their content";
        say("checksums", "", word(&Checksums::NAMES, asked.checksums), note);
        let asked_stamp = match wish.stamps {
            StampSource::None => "",
            other => other.name(),
        };
        say("stamps", asked_stamp, "user", "when this program takes the batch");
        let (asked, which, note) = match asked.only {
            None => (
                String::new(),
                "incoming frames only".to_owned(),
                "they do not reach the host's stack any more",
            ),
            Some(only) => {
                let which = format!("incoming UDP datagrams to port {}", only.udp);
                (only.text(), which, "everything else, fragments too, goes on to the host's stack")
            }
        };
        say("takes", &asked, &which, note);
    }
    all
}

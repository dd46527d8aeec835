//! What `int:` and `ring:` share: the interface, the tap with its filter, groups, a link that goes down, a tag that the
//! kernel took out.
//!
//! **The tag.** The kernel takes a VLAN tag out of every frame that comes in and keeps it beside the frame; filters run
//! on what is left. Here the tag is put back, so a filter must see it, too: the kernel's part of a filter lets every
//! tagged frame pass, and the same program then runs here on the bytes as they were on the wire.
//!
//! **The link.** An interface that goes down leaves `ENETDOWN` in the socket, once, and lets it sleep; one that is
//! removed says the same, *then* makes the socket forget the interface. So while the link is down the name of the
//! socket is looked at every [`SLICE`].

use super::super::batch::{Home, Slot};
use super::super::{FrameDirection, PortError, PortOptions, PortResult, Transmitted, Uri};
use crate::port::interface::alternative;
use crate::port::told::setting;
use crate::port::uri::word;
use crate::sys::notice;
use crate::sys::packet::{self, InterfaceFacts};
use nix::poll::{PollFd, PollFlags};
use record::{PortSetting, Problem, Result};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use wire::filter::{FilterInstruction, Program};
use wire::offload::{self, Offload};

/// How often a link that is down is looked at.
pub const SLICE: Duration = Duration::from_millis(50);

/// `on` or `off`.
pub fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Whether frames are described by virtio headers, as receivers say it.
pub fn vnet_setting(vnet: bool) -> PortSetting {
    let note = if vnet { "" } else { "super-frames are not described: how they are cut is lost" };
    setting("vnet", "", switch(vnet), note)
}

/// How receivers of one group share the frames: all frames of a flow to one member, in turn, by the CPU on which the frame
/// came in, the first member until its buffer is full and then the next one, by chance, by the queue of the interface on
/// which the frame came in.
const FANOUTS: [(&str, u32); 6] = [
    ("hash", libc::PACKET_FANOUT_HASH),
    ("lb", libc::PACKET_FANOUT_LB),
    ("cpu", libc::PACKET_FANOUT_CPU),
    ("rollover", libc::PACKET_FANOUT_ROLLOVER),
    ("random", libc::PACKET_FANOUT_RND),
    ("qm", libc::PACKET_FANOUT_QM),
];

/// The setting `fanout` of a URI (`PACKET_FANOUT_…`).
pub fn take_fanout(uri: &mut Uri) -> Result<Option<u32>> {
    uri.take_word("fanout", &FANOUTS)
}

/// A packet socket that is not bound yet, and the interface that the URI names.
pub fn socket(uri: &Uri) -> Result<(OwnedFd, InterfaceFacts)> {
    let fd = packet::open().map_err(|error| {
        let problem = Problem::host(format!("cannot open a packet socket: {error}")).at(&uri.text);
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => problem.help("it needs CAP_NET_RAW (run as root)"),
            _ => problem,
        }
    })?;
    let facts = packet::interface_named(&fd, &uri.rest).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => Problem::input(format!("there is no interface '{}' here", uri.rest))
            .at(&uri.text)
            .help("'ip link' lists those of this network namespace"),
        _ => Problem::host(format!("cannot ask for interface '{}': {error}", uri.rest)).at(&uri.text),
    })?;
    if let Some(real) = packet::name_of(&fd, facts.index).ok().filter(|real| *real != uri.rest) {
        return Err(alternative(&uri.rest, &real).at(&uri.text));
    }
    if !facts.is_ethernet() {
        return Err(Problem::host(format!(
            "the frames of interface '{}' have no Ethernet header (hardware type {})",
            uri.rest, facts.hardware
        ))
        .at(&uri.text)
        .help("use an Ethernet interface"));
    }
    Ok((fd, facts))
}

/// Says which step of opening a port the kernel refused.
pub fn refused<'a>(uri: &'a Uri, step: &'a str) -> impl Fn(io::Error) -> Problem + 'a {
    move |error| {
        let problem = Problem::host(format!("the kernel refused {step}: {error}")).at(&uri.text);
        match error.raw_os_error() {
            Some(libc::EPERM) => problem.help("it needs CAP_NET_ADMIN (run as root)"),
            Some(libc::ENOMEM) => problem.help("ask for less memory"),
            _ => problem,
        }
    }
}

/// The program that the kernel runs: every tagged frame passes (see the essay above), and nothing longer than `snap`.
fn kernel_program(filter: Option<&Program>, snap: u32) -> Vec<FilterInstruction> {
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT (linux/filter.h).
    const TAG_PRESENT: u32 = 0xffff_f000 + 48;
    let plain = |code, k| FilterInstruction { code, if_true: 0, if_false: 0, k };
    let Some(filter) = filter else { return vec![plain(RETURN, snap)] };
    let mut program = vec![
        plain(LOAD_BYTE, TAG_PRESENT),
        FilterInstruction { code: JUMP_EQUAL, if_true: 1, if_false: 0, k: 0 },
        plain(RETURN, snap),
    ];
    program.extend(filter.instructions().iter().map(|&instruction| match instruction.code {
        RETURN => FilterInstruction { k: instruction.k.min(snap), ..instruction },
        _ => instruction,
    }));
    program
}

/// Opens the tap: filter, promiscuous mode, direction, group. Nothing is seen before all of it stands.
pub fn listen(
    fd: &OwnedFd,
    facts: &InterfaceFacts,
    uri: &Uri,
    wish: &PortOptions,
    fanout: Option<u32>,
) -> Result<Vec<PortSetting>> {
    let mut settings = vec![];
    let program = kernel_program(wish.filter.as_ref(), wish.snap.unwrap_or(u32::MAX));
    if wish.promiscuous {
        packet::set_promiscuous(fd, facts.index).map_err(refused(uri, "promiscuous mode"))?;
    }
    settings.push(setting("promiscuous", "", switch(wish.promiscuous), ""));
    if !wish.outgoing {
        let step = "to leave out outgoing frames (Linux 4.20)";
        packet::set(fd, libc::PACKET_IGNORE_OUTGOING, 1).map_err(refused(uri, step))?;
    }
    settings.push(setting("outgoing", "", switch(wish.outgoing), ""));
    // A member of a group sees all frames from its bind until it has joined: nothing may pass meanwhile.
    let joins = wish.member.is_some_and(|member| member.count > 1);
    let nothing = kernel_program(None, 0);
    packet::attach_filter(fd, if joins { &nothing } else { &program }).map_err(refused(uri, "the filter"))?;
    packet::bind(fd, facts.index, packet::EVERYTHING).map_err(refused(uri, "to bind to the interface"))?;
    if let (true, Some(member)) = (joins, wish.member) {
        let kind = fanout.unwrap_or(libc::PACKET_FANOUT_HASH);
        let name = word(&FANOUTS, kind);
        // A group has a hook of its own, which does not ask its members' PACKET_IGNORE_OUTGOING.
        let own = if wish.outgoing { 0 } else { libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING };
        packet::set(fd, libc::PACKET_FANOUT, i32::from(member.group) | ((kind | own) << 16) as i32)
            .map_err(refused(uri, &format!("to join fanout group {} ({name})", member.group)))?;
        packet::attach_filter(fd, &program).map_err(refused(uri, "the filter"))?;
        let who = format!("{name}, member {} of {}", member.index, member.count);
        settings.push(setting("fanout", if fanout.is_some() { name } else { "" }, who, ""));
    } else if let Some(fanout) = fanout {
        let note = "there is only one receiver, so it gets all frames";
        settings.push(setting("fanout", word(&FANOUTS, fanout), "none", note));
    }
    if wish.filter.is_some() {
        let note =
            "runs in the kernel; for VLAN-tagged frames again here, where the tag is back in its place";
        settings.push(setting("filter", "", format!("{} instructions", program.len()), note));
    }
    if let Some(snap) = wish.snap {
        settings.push(setting("snap", snap.to_string(), format!("{snap} B"), ""));
    }
    Ok(settings)
}

/// What a socket knows of its link.
#[derive(Debug)]
pub struct LinkWatch {
    index: i32,
    down: bool,
    gone: bool,
    /// That the link went down, which the next call says.
    pub unsaid: bool,
}

impl LinkWatch {
    /// A link that is up until the kernel says otherwise.
    pub fn new(facts: &InterfaceFacts) -> LinkWatch {
        LinkWatch { index: facts.index, down: false, gone: false, unsaid: false }
    }

    /// The number of the interface.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// True when the link was down when it was last heard of.
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Frames pass again.
    pub fn passes(&mut self) {
        self.down = false;
    }

    /// An error once the interface was removed, or when it went down and that is still to be said.
    pub fn check(&mut self) -> PortResult<()> {
        match (self.gone, std::mem::take(&mut self.unsaid)) {
            (true, _) => Err(PortError::Gone),
            (false, true) => Err(PortError::Down),
            (false, false) => Ok(()),
        }
    }

    /// What a call answers that dealt with so many frames.
    pub fn answer(&mut self, sent: Transmitted) -> PortResult<Transmitted> {
        if sent.dealt == 0 { self.check().map(|()| sent) } else { Ok(sent) }
    }

    /// What an error of the socket means.
    pub fn explain(&mut self, fd: impl AsFd, error: io::Error) -> PortError {
        let error = PortError::from(error);
        self.gone |= matches!(error, PortError::Gone);
        if matches!(error, PortError::Down) {
            self.down = true;
            self.look(fd);
        }
        if self.gone { PortError::Gone } else { error }
    }

    /// Looks whether the interface is still there, and up.
    fn look(&mut self, fd: impl AsFd) {
        self.gone |= packet::bound_to(&fd).is_ok_and(|index| index != self.index);
        if let Ok(facts) = packet::interface_numbered(&fd, self.index) {
            self.down &= !facts.up;
        }
    }

    /// Waits until frames may be there: true, until the time is over or a signal came: false.
    ///
    /// # Errors
    /// Link down or interface removed.
    pub fn wait(&mut self, fd: BorrowedFd<'_>, deadline: Option<Instant>) -> PortResult<bool> {
        loop {
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            let time = if self.down { left.min(SLICE) } else { left };
            let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
            notice::poll(&mut polled, Some(time))?;
            let seen = polled[0].revents().unwrap_or(PollFlags::POLLERR);
            let ready = seen.contains(PollFlags::POLLIN);
            if !(seen - PollFlags::POLLIN).is_empty() {
                // Frames that came before the link went down are still to be read, and come first.
                if !ready && let Some(error) = packet::take_error(fd)? {
                    return Err(self.explain(fd, error));
                }
                return Ok(true);
            }
            if ready {
                return Ok(true);
            }
            if self.down {
                self.look(fd);
                self.check()?;
            }
            if time == left {
                return Ok(false);
            }
        }
    }
}

/// Which way a frame went, by `sll_pkttype`.
#[inline]
pub fn way(kind: u8) -> FrameDirection {
    if kind == libc::PACKET_OUTGOING { FrameDirection::Out } else { FrameDirection::In }
}

/// Bits of `tp_status` that tell about the frame, the same in a ring and beside a message.
pub mod status {
    /// The checksum is not finished (`TP_STATUS_CSUMNOTREADY`).
    pub const UNFINISHED: u32 = 1 << 3;
    /// There is a tag (`TP_STATUS_VLAN_VALID`).
    pub const TAG: u32 = 1 << 4;
    /// The tag's ethertype is told (`TP_STATUS_VLAN_TPID_VALID`); else it is 0x8100.
    pub const TAG_TYPE: u32 = 1 << 6;
    /// The checksum was verified (`TP_STATUS_CSUM_VALID`).
    pub const VERIFIED: u32 = 1 << 7;
}

/// What the kernel tells of the work left in a frame: in the virtio header before it where there is one, or by its status.
///
/// # Safety
/// The frame's bytes, and with `vnet` the header before them, are valid and ours.
#[inline]
pub unsafe fn offload_of(frame: NonNull<u8>, length: u32, vnet: bool, status: u32) -> Offload {
    if vnet {
        // SAFETY: as promised by the caller; the virtio header ends where the frame begins.
        let header = unsafe { frame.sub(offload::HEADER).cast::<[u8; offload::HEADER]>().as_ref() };
        return Offload::read(header).unwrap_or_default();
    }
    // SAFETY: as promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(frame.as_ptr(), length as usize) };
    let unfinished = status & status::UNFINISHED != 0;
    let partial = unfinished.then(|| offload::partial_of(bytes)).flatten();
    Offload { partial, verified: status & status::VERIFIED != 0, ..Offload::default() }
}

/// The tag that the kernel took out, ethertype first.
#[inline]
pub fn tag(status: u32, tci: u16, tpid: u16) -> Option<[u8; 4]> {
    if status & status::TAG == 0 {
        return None;
    }
    let tpid = if status & status::TAG_TYPE == 0 { 0x8100 } else { tpid };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    Some([a, b, c, d])
}

/// Puts a tag between the addresses and the ethertype, into the room before the frame.
///
/// # Safety
/// The slot's headroom and bytes are exclusively ours.
pub unsafe fn put_back(slot: &mut Slot, tag: [u8; 4]) {
    debug_assert!(slot.headroom >= 4 && slot.home != Home::Taken);
    slot.meta.wire_length += 4;
    if let Some(partial) = &mut slot.meta.offload.partial {
        partial.start += 4;
    }
    if let Some(segments) = &mut slot.meta.offload.segments
        && segments.header > 0
    {
        segments.header += 4;
    }
    // A frame that was cut within its addresses has no place for a tag.
    if slot.length < 12 {
        return;
    }
    // SAFETY: 4 bytes of headroom are ours; source and destination overlap, which `copy` allows.
    unsafe {
        let start = slot.data.sub(4);
        std::ptr::copy(slot.data.as_ptr(), start.as_ptr(), 12);
        std::ptr::copy_nonoverlapping(tag.as_ptr(), start.add(12).as_ptr(), 4);
        slot.data = start;
    }
    (slot.length, slot.headroom) = (slot.length + 4, slot.headroom - 4);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_filter_the_kernel_only_cuts() {
        assert_eq!(kernel_program(None, 96), [FilterInstruction { code: 6, if_true: 0, if_false: 0, k: 96 }]);
    }
}

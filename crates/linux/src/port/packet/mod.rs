//! `int:INTERFACE`: frames through a packet socket, many per system call.
//!
//! **What.** `recvmmsg` into buffers that are made once, `sendmmsg` straight from wherever the frames lie (no copy by
//! this program). What the kernel keeps beside a frame comes along: the VLAN tag is put back into the bytes, an
//! unfinished checksum and a super-frame's segments are told by the virtio header (`PACKET_VNET_HDR`) both ways.
//!
//! **Why.** It works on every interface and every kernel, has no added latency, and is the yardstick that a ring has to
//! beat. What receive and transmit share with `ring:` is in [`shared`].
//!
//! **Price.** The kernel copies each frame, and allocates a buffer for it: about 1.5 µs a frame. A socket buffer counts
//! the kernel's own overhead: a 60-byte frame takes 768 bytes of it.

mod join;
mod messages;
pub(in crate::port) mod receiver;
mod sent;
pub(in crate::port) mod shared;
pub(in crate::port) mod transmit;

pub(in crate::port) use transmit::PacketTransmitter;

use super::batch::MAX_BATCH;
use super::interface::Interface;
use super::{Direction, Port, PortOptions, StampSource, Transmitter, Uri};
use crate::netlink::Netlink;
use crate::netlink::OffloadFeature;
use record::{Problem, Result, unit};
use shared::take_fanout;
use wire::offload::MOST_JOINED;

/// The settings that the URI of an `int:` port can have.
struct Asked {
    buffer: u32,
    batch: usize,
    vnet: bool,
    bypass: bool,
    join: usize,
    fanout: Option<u32>,
}

/// Bytes of socket buffer that are asked for. The kernel doubles them; 60-byte frames take 768 bytes each, so this is
/// room for about 87,000 of them: 0.29 s at 300 kframe/s. Memory is taken only while frames wait.
const BUFFER: u32 = 32 << 20;

/// Opens `int:IF?buffer=32Mi&batch=64&vnet=on|off&bypass=on|off&join=64&fanout=hash|lb|cpu|rollover|random|qm`.
///
/// `join` sends frames of one UDP flow as super-frames that the kernel cuts: see [`join`].
///
/// # Errors
/// Input: no such interface, or settings that cannot be used. Host: what this host or this user cannot do.
pub fn open(uri: &mut Uri, wish: &PortOptions) -> Result<Port> {
    let asked = take(uri)?;
    uri.finish()?;
    let transmitter = || {
        let stamped = wish.direction == Direction::Transmit && wish.stamps != StampSource::None;
        if stamped {
            every_frame_is_one(uri, &asked)?;
        }
        if asked.join > 1 {
            cuts_super_frames(uri)?;
        }
        let (mut transmitter, mut settings) =
            PacketTransmitter::open(uri, asked.vnet, asked.bypass, asked.join)?;
        if stamped {
            settings.push(transmitter.stamp(uri, wish.stamps)?);
        }
        if let Some(class) = wish.queue {
            settings.push(transmitter.enter(uri, class)?);
        }
        Ok((Box::new(transmitter) as Box<dyn Transmitter>, settings))
    };
    Port::with_ends(uri, wish, || messages::open(uri, wish, &asked), transmitter)
}

/// A stamp belongs to what the kernel was given, so that must be one frame: neither several that were joined nor a piece
/// of one that was cut here.
fn every_frame_is_one(uri: &Uri, asked: &Asked) -> Result<()> {
    if asked.join > 1 {
        return Err(uri.bad("join", &asked.join.to_string(), "1 where every frame is to have a stamp"));
    }
    if !asked.vnet {
        return Err(uri.bad("vnet", "off", "on where every frame is to have a stamp"));
    }
    Ok(())
}

/// Makes sure that joined frames are cut before they are on the wire. A virtual interface that offers to cut UDP
/// super-frames passes them on whole instead: its other end would see one long frame, and its counters one.
fn cuts_super_frames(uri: &Uri) -> Result<()> {
    let interface = Interface::find(&uri.rest, &uri.text)?;
    let offloads = Netlink::open()
        .offloads(interface.link.index)
        .map_err(|e| Problem::host(format!("cannot ask for the offloads: {e}")).at(&uri.text))?;
    if interface.link.kind.is_empty() || offloads.get(&OffloadFeature::Uso) != Some(&true) {
        return Ok(());
    }
    let what =
        format!("{} interface {} passes super-frames on uncut", interface.link.kind, interface.link.name);
    let help = format!("ethtool -K {} tx-udp-segmentation off; or leave join out", interface.link.name);
    Err(Problem::host(what).at(&uri.text).help(help))
}

fn take(uri: &mut Uri) -> Result<Asked> {
    let vnet = uri.take_switch("vnet", true)?;
    let join = uri.take_number("join", unit::amount, 1..=MOST_JOINED)?.unwrap_or(1);
    if join > 1 && !vnet {
        return Err(uri.bad("join", &join.to_string(), "1, or more and vnet=on"));
    }
    Ok(Asked {
        buffer: uri.take_number("buffer", unit::bytes, 2048..=1 << 30)?.unwrap_or(BUFFER),
        batch: uri.take_number("batch", unit::amount, 1..=MAX_BATCH)?.unwrap_or(64),
        vnet,
        join,
        bypass: uri.take_switch("bypass", false)?,
        fanout: take_fanout(uri)?,
    })
}

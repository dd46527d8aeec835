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

mod receive;
pub(in crate::port) mod shared;
pub(in crate::port) mod transmit;

pub(in crate::port) use transmit::PacketTransmitter;

use super::batch::MAX_BATCH;
use super::{Port, Receiver, Transmitter, Uri, Wish};
use record::Result;
use shared::{Fanout, take_switch};

/// The settings that the URI of an `int:` port can have.
struct Asked {
    buffer: u32,
    batch: usize,
    vnet: bool,
    bypass: bool,
    fanout: Option<Fanout>,
}

/// Bytes of socket buffer that are asked for. The kernel doubles them; 60-byte frames take 768 bytes each, so this is
/// room for about 87,000 of them: 0.29 s at 300 kframe/s. Memory is taken only while frames wait.
const BUFFER: u64 = 32 << 20;

/// Opens `int:IF?buffer=32M&batch=64&vnet=on|off&bypass=on|off&fanout=hash|lb|cpu|rollover|random|qm`.
///
/// # Errors
/// Input: no such interface, or settings that cannot be used. Host: what this host or this user cannot do.
pub fn open(uri: &mut Uri, wish: &Wish) -> Result<Port> {
    let asked = take(uri)?;
    uri.finish()?;
    let mut port = Port { uri: uri.text.clone(), receiver: None, transmitter: None };
    if wish.direction.receives() {
        let receiver = receive::PacketReceiver::open(uri, wish, &asked)?;
        port.receiver = Some(Box::new(receiver) as Box<dyn Receiver>);
    }
    if wish.direction.transmits() {
        let transmitter = PacketTransmitter::open(uri, asked.vnet, asked.bypass)?;
        port.transmitter = Some(Box::new(transmitter) as Box<dyn Transmitter>);
    }
    Ok(port)
}

fn take(uri: &mut Uri) -> Result<Asked> {
    let buffer = uri.take_size("buffer")?.unwrap_or(BUFFER);
    if !(2048..=1 << 30).contains(&buffer) {
        return Err(uri.bad("buffer", &buffer.to_string(), "2048 to 1G (the kernel doubles it)"));
    }
    let batch = uri.take_size("batch")?.unwrap_or(64);
    if !(1..=MAX_BATCH as u64).contains(&batch) {
        return Err(uri.bad("batch", &batch.to_string(), "1 to 512 frames"));
    }
    Ok(Asked {
        buffer: buffer as u32,
        batch: batch as usize,
        vnet: take_switch(uri, "vnet", true)?,
        bypass: take_switch(uri, "bypass", false)?,
        fanout: Fanout::take(uri)?,
    })
}

//! `ring:INTERFACE`: frames in memory that the kernel shares (`PACKET_MMAP`, packet(7)).
//!
//! **What.** Receive: TPACKET_V3 ([`blocks`]), where the kernel fills blocks and hands them over whole, or TPACKET_V2
//! ([`slots`]), frame by frame. Transmit: a ring of slots ([`transmit`]) that one call tells the kernel to send.
//!
//! **Why.** Frames are read in place and without a system call while there are any: at high rates a frame costs the
//! reader some 50 ns instead of 1.5 µs. A ring of 32 MiB holds 0.7 s of 60-byte frames at 300 kframe/s.
//!
//! **The loan.** A block (or slot) goes back to the kernel when every frame in it was lent *and* the batch that lent the
//! last one is over: at the beginning of the next `receive`, never inside one.
//!
//! **Price.** Memory that cannot be swapped. V3 keeps a frame until its block is full or `retire_ms` are over, which
//! is latency: a frame may come that much late. `version=2` wakes at once and costs more for each frame.

mod blocks;
mod receive;
mod slots;
mod transmit;

use super::packet::shared::take_fanout;
use super::{Port, PortOptions, Uri};
use record::{Result, unit};
use std::mem::offset_of;
use std::ptr::NonNull;

/// Bytes of a receive ring when nothing is asked (see the essay).
const RING: u64 = 32 << 20;
/// Slots of a transmit ring when nothing is asked.
const TX_FRAMES: u64 = 1024;
/// Whoever opens a port may choose less ([`PortOptions::ring_bytes`]), and gets a transmit ring that is smaller by as much, but with
/// room for what one call sends ([`transmit`]).
const LEAST_TX_FRAMES: u64 = 128;
/// Bytes of a block: small enough that a slow trickle does not hold the ring, large enough for a super-frame.
const BLOCK: u64 = 256 << 10;
/// The most memory that a ring may take.
const MOST: u64 = 1 << 30;
/// Milliseconds until a block that is not full is handed over.
const RETIRE_MS: u64 = 4;
/// Bytes of a slot for frames of 1514 bytes, and what `frames=N` counts with.
const SLOT: u64 = 2048;
const PAGE: u64 = 4096;

/// What a ring shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    version: u8,
    block: u64,
    blocks: u64,
    retire_ms: u64,
    /// Bytes of a slot (version 2).
    slot: u64,
}

struct Asked {
    shape: Shape,
    /// As the user wrote it, for the settings.
    wrote: String,
    vnet: bool,
    fanout: Option<u32>,
    bypass: bool,
    tx_frames: u64,
}

/// Opens `ring:IF?version=3&block=256Ki&blocks=128&retire_ms=4&frames=N&vnet=on|off&fanout=…&tx_frames=1024&bypass=on|off`.
///
/// # Errors
/// Input: no such interface, or settings that cannot be used. Host: what this host or this user cannot do.
pub fn open(uri: &mut Uri, wish: &PortOptions) -> Result<Port> {
    let asked = take(uri, wish)?;
    uri.finish()?;
    let transmitter = || {
        let (transmitter, settings) = transmit::RingTransmitter::open(uri, &asked)?;
        Ok((Box::new(transmitter) as _, settings))
    };
    Port::with_ends(uri, wish, || receive::open(uri, wish, &asked), transmitter)
}

fn take(uri: &mut Uri, wish: &PortOptions) -> Result<Asked> {
    let version = uri.take_number("version", unit::amount, 2..=3)?.unwrap_or(3);
    let frames = uri.take_number("frames", unit::amount, 2..=MOST / SLOT)?;
    let block = uri.take_number("block", unit::bytes, PAGE..=64 << 20)?;
    let blocks = uri.take_number("blocks", unit::amount, 2..=1 << 18)?;
    let retire = uri.take_number("retire_ms", unit::amount, 1..=10_000)?;
    let slot = uri.take_number("slot", unit::bytes, 256..=128 << 10)?;
    let foreign: &[(&'static str, bool)] = if version == 3 {
        &[("slot", slot.is_some())]
    } else {
        &[("block", block.is_some()), ("blocks", blocks.is_some()), ("retire_ms", retire.is_some())]
    };
    if let Some((key, _)) = foreign.iter().find(|(_, there)| *there) {
        let other = if version == 3 { "version=2 (frame by frame)" } else { "version=3 (blocks)" };
        return Err(uri.bad(key, "…", &format!("left out, or come with {other}")));
    }
    if frames.is_some() && (block.is_some() || blocks.is_some()) {
        return Err(uri.bad(
            "frames",
            "…",
            "left out where block or blocks is given: they say the size, too",
        ));
    }
    let usual = wish.ring_bytes.unwrap_or(RING);
    let mut shape = match version {
        3 => shape_of_blocks(usual, frames, block, blocks),
        _ => shape_of_slots(usual, frames, slot),
    };
    shape.retire_ms = retire.unwrap_or(RETIRE_MS);
    if shape.block * shape.blocks > MOST {
        let size = format!("{} B", shape.block * shape.blocks);
        return Err(uri.bad("ring size", &size, "at most 1 GiB"));
    }
    let pairs = [("block", block), ("blocks", blocks), ("frames", frames), ("slot", slot)];
    let wrote: Vec<String> =
        pairs.iter().filter_map(|(key, value)| value.map(|value| format!("{key}={value}"))).collect();
    Ok(Asked {
        shape,
        wrote: wrote.join(" "),
        vnet: uri.take_switch("vnet", true)?,
        fanout: take_fanout(uri)?,
        bypass: uri.take_switch("bypass", false)?,
        tx_frames: uri
            .take_number("tx_frames", unit::amount, 2..=1 << 16)?
            .unwrap_or((TX_FRAMES * usual / RING).clamp(LEAST_TX_FRAMES, TX_FRAMES)),
    })
}

/// `sll_pkttype` of a frame: `struct sockaddr_ll` follows the header, both aligned to 16.
///
/// # Safety
/// A header of this type, which is ours, begins at `start`, and the address is behind it.
unsafe fn kind_of<H>(start: NonNull<u8>) -> u8 {
    let at = size_of::<H>().next_multiple_of(libc::TPACKET_ALIGNMENT);
    // SAFETY: as promised by the caller.
    unsafe { start.add(at + offset_of!(libc::sockaddr_ll, sll_pkttype)).read() }
}

/// Blocks are whole pages; `usual` are the bytes of a ring when nothing is asked. `frames=N` is a ring of so many slots of 2 KiB, in at most 64 blocks or of the usual size.
fn shape_of_blocks(usual: u64, frames: Option<u64>, block: Option<u64>, blocks: Option<u64>) -> Shape {
    let (block, blocks) = match frames {
        Some(frames) => {
            let bytes = frames * SLOT;
            let block = (bytes / 64).next_power_of_two().clamp(PAGE, BLOCK);
            (block, bytes.div_ceil(block).max(2))
        }
        None => {
            let block = block.unwrap_or(BLOCK).next_multiple_of(PAGE);
            (block, blocks.unwrap_or_else(|| (usual / block).max(2)))
        }
    };
    Shape { version: 3, block, blocks, retire_ms: 0, slot: SLOT }
}

/// Slots are powers of two, so that a block holds a whole number of them.
fn shape_of_slots(usual: u64, frames: Option<u64>, slot: Option<u64>) -> Shape {
    let slot = slot.unwrap_or(SLOT).next_power_of_two();
    let bytes = frames.unwrap_or(usual / slot) * slot;
    let block = bytes.next_power_of_two().clamp(PAGE.max(slot), (64 << 10).max(slot));
    Shape { version: 2, block, blocks: bytes.div_ceil(block), retire_ms: 0, slot }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_so_many_frames_has_room_for_them() {
        for frames in [2, 8, 100, 512, 4096, 100_000] {
            let shape = shape_of_blocks(RING, Some(frames), None, None);
            assert!(shape.block * shape.blocks >= frames * SLOT && shape.blocks >= 2);
            let shape = shape_of_slots(RING, Some(frames), None);
            assert!(shape.block * shape.blocks >= frames * SLOT && shape.block.is_multiple_of(shape.slot));
        }
        assert_eq!(shape_of_blocks(RING, Some(8), None, None).block, PAGE);
        let small = shape_of_blocks(1 << 20, None, None, None);
        assert_eq!((small.block, small.blocks), (BLOCK, 4));
        let shape = shape_of_blocks(1 << 20, None, Some(5000), Some(3));
        assert_eq!((shape.block, shape.blocks), (8192, 3));
    }
}

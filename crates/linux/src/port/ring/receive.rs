//! The receiving end of `ring:`, whichever version the ring is.

use super::super::packet::receiver::SocketReceiver;
use super::super::packet::shared::{self, refused};
use super::super::told::setting;
use super::super::{End, PortOptions, Receiver, Uri};
use super::Asked;
use super::blocks::Blocks;
use super::slots::Slots;
use crate::port::stamps;
use crate::sys::packet::{self, Mapping};
use crate::sys::socket;
use record::{PortSetting, Problem, Result};

/// Opens the receiving end as asked.
pub fn open(uri: &Uri, wish: &PortOptions, asked: &Asked) -> Result<End<dyn Receiver>> {
    let (fd, facts) = shared::socket(uri)?;
    let shape = asked.shape;
    let in_blocks = shape.version == 3;
    let version =
        if in_blocks { libc::tpacket_versions::TPACKET_V3 } else { libc::tpacket_versions::TPACKET_V2 };
    packet::set(&fd, libc::PACKET_VERSION, version as i32)
        .map_err(refused(uri, "this version of the ring"))?;
    if asked.vnet {
        packet::set(&fd, libc::PACKET_VNET_HDR, 1)
            .map_err(refused(uri, "virtio headers in a ring (Linux 4.6)"))?;
    }
    if !in_blocks {
        packet::set(&fd, libc::PACKET_COPY_THRESH, 1).map_err(refused(uri, "copies of long frames"))?;
        socket::set_buffer(&fd, socket::Direction::Receive, 8 << 20)
            .map_err(refused(uri, "the socket buffer"))?;
    }
    let bytes = shape.block * shape.blocks;
    // Version 2 reads the first four words of it.
    let wanted = libc::tpacket_req3 {
        tp_block_size: shape.block as u32,
        tp_block_nr: shape.blocks as u32,
        tp_frame_size: shape.slot as u32,
        tp_frame_nr: (shape.block / shape.slot * shape.blocks) as u32,
        tp_retire_blk_tov: shape.retire_ms as u32,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    let failed = |error: std::io::Error| {
        let what = format!(
            "the kernel gave no ring of {bytes} B ({} blocks of {} B): {error}",
            shape.blocks, shape.block
        );
        Problem::host(what).at(&uri.text).help("ask for a smaller one with frames=N or block=BYTES&blocks=N")
    };
    socket::set(&fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &wanted).map_err(failed)?;
    let map = Mapping::ring(&fd, bytes as usize, 0).map_err(failed)?;
    let mut settings = tell(asked);
    settings.extend(stamps::enable(&fd, wish.stamps, stamps::StampLocation::Ring));
    settings.extend(shared::listen(&fd, &facts, uri, wish, asked.fanout)?);
    let receiver: Box<dyn Receiver> = if in_blocks {
        let blocks = Blocks::new(map, asked);
        Box::new(SocketReceiver::new(blocks, fd, &facts, wish))
    } else {
        let slots = Slots::new(map, asked).map_err(failed)?;
        Box::new(SocketReceiver::new(slots, fd, &facts, wish))
    };
    Ok((receiver, settings))
}

fn tell(asked: &Asked) -> Vec<PortSetting> {
    let shape = asked.shape;
    let mut settings = vec![setting("version", "", format!("TPACKET_V{}", shape.version), "")];
    if shape.version == 3 {
        let size = format!("{} blocks of {} B", shape.blocks, shape.block);
        settings.push(setting("ring", &asked.wrote, size, "frames lie in a block one behind the other"));
        let note = format!(
            "a frame may come {} ms late, or twice that, while its block fills; retire_ms=1 shortens that, version=2 ends it",
            shape.retire_ms
        );
        settings.push(setting("retire", "", format!("{} ms", shape.retire_ms), &note));
    } else {
        let size = format!("{} slots of {} B", shape.block / shape.slot * shape.blocks, shape.slot);
        settings.push(setting("ring", &asked.wrote, size, "a longer frame goes through the socket's queue"));
    }
    settings.push(shared::vnet_setting(asked.vnet));
    settings
}

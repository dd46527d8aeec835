//! The receiving end of `ring:`, whichever version the ring is.

use super::super::batch::{Batch, MAX_BATCH, Slot};
use super::super::packet::shared::{self, Finish, LinkWatch, refused, switch};
use super::super::told::setting;
use super::super::{PortError, PortOptions, ReceiveCounters, Receiver, Uri, Wait};
use super::blocks::Blocks;
use super::found::Maker;
use super::slots::Slots;
use super::{Asked, Shape};
use crate::port::stamps;
use crate::sys::packet::{self, Mapping};
use crate::sys::socket;
use record::{PlaceDrop, PortSetting, Problem, Result, drop};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
enum Ring {
    Blocks(Blocks),
    Slots(Slots),
}

/// The receiving end.
pub struct RingReceiver {
    /// Before the socket, so that the mapping goes first.
    ring: Ring,
    fd: OwnedFd,
    watch: LinkWatch,
    maker: Maker,
    slots: Vec<Slot>,
    losses: packet::Losses,
    settings: Vec<PortSetting>,
}

impl RingReceiver {
    /// Opens it as asked.
    pub fn open(uri: &Uri, wish: &PortOptions, asked: &Asked) -> Result<RingReceiver> {
        let (fd, facts) = shared::socket(uri)?;
        let shape = asked.shape;
        let version = if shape.version == 3 {
            libc::tpacket_versions::TPACKET_V3
        } else {
            libc::tpacket_versions::TPACKET_V2
        };
        packet::set(&fd, libc::PACKET_VERSION, version as i32)
            .map_err(refused(uri, "this version of the ring"))?;
        if asked.vnet {
            packet::set(&fd, libc::PACKET_VNET_HDR, 1)
                .map_err(refused(uri, "virtio headers in a ring (Linux 4.6)"))?;
        }
        if shape.version == 2 {
            packet::set(&fd, libc::PACKET_COPY_THRESH, 1).map_err(refused(uri, "copies of long frames"))?;
            socket::set_buffer(&fd, socket::Direction::Receive, 8 << 20)
                .map_err(refused(uri, "the socket buffer"))?;
        }
        let ring = map(&fd, shape, uri)?;
        let mut settings = tell(asked);
        settings.extend(stamps::enable(&fd, wish.stamps, stamps::StampLocation::Ring));
        settings.extend(shared::listen(&fd, &facts, uri, wish, asked.fanout)?);
        Ok(RingReceiver {
            ring,
            fd,
            watch: LinkWatch::new(&facts),
            maker: Maker {
                finish: Finish::new(wish),
                vnet: asked.vnet,
                counters: ReceiveCounters::default(),
            },
            slots: Vec::with_capacity(MAX_BATCH),
            losses: packet::Losses::default(),
            settings,
        })
    }

    fn lend(&mut self, limit: usize) -> bool {
        match &mut self.ring {
            Ring::Blocks(blocks) => blocks.lend(limit, &mut self.maker, &mut self.slots),
            Ring::Slots(slots) => slots.lend(self.fd.as_fd(), limit, &mut self.maker, &mut self.slots),
        }
    }
}

fn map(fd: &OwnedFd, shape: Shape, uri: &Uri) -> Result<Ring> {
    let frames = (shape.block / shape.slot * shape.blocks) as u32;
    let asked = libc::tpacket_req3 {
        tp_block_size: shape.block as u32,
        tp_block_nr: shape.blocks as u32,
        tp_frame_size: shape.slot as u32,
        tp_frame_nr: frames,
        tp_retire_blk_tov: shape.retire_ms as u32,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    let bytes = shape.block * shape.blocks;
    let failed = |error: std::io::Error| {
        let what = format!(
            "the kernel gave no ring of {bytes} B ({} blocks of {} B): {error}",
            shape.blocks, shape.block
        );
        Problem::host(what).at(&uri.text).help("ask for a smaller one with frames=N or block=BYTES&blocks=N")
    };
    if shape.version == 3 {
        socket::set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &asked).map_err(failed)?;
    } else {
        let asked = libc::tpacket_req {
            tp_block_size: asked.tp_block_size,
            tp_block_nr: asked.tp_block_nr,
            tp_frame_size: asked.tp_frame_size,
            tp_frame_nr: frames,
        };
        socket::set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &asked).map_err(failed)?;
    }
    let map = Mapping::ring(fd, bytes as usize).map_err(failed)?;
    Ok(match shape.version {
        3 => Ring::Blocks(Blocks::new(map, shape.block as usize, shape.blocks as usize)),
        _ => Ring::Slots(Slots::new(map, shape.slot as usize).map_err(failed)?),
    })
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
    let note = if asked.vnet { "" } else { "super-frames are not described: how they are cut is lost" };
    settings.push(setting("vnet", "", switch(asked.vnet), note));
    settings
}

impl Receiver for RingReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> Result<Batch<'_>, PortError> {
        self.slots.clear();
        self.watch.check()?;
        let limit = limit.min(MAX_BATCH);
        if limit == 0 {
            return Ok(Batch::new(&mut self.slots));
        }
        let mut deadline = None;
        loop {
            if self.lend(limit) {
                if self.slots.is_empty() {
                    continue;
                }
                self.watch.passes();
                break;
            }
            deadline = deadline.or_else(|| shared::deadline(wait));
            if !self.watch.wait(self.fd.as_fd(), deadline)? {
                break;
            }
        }
        self.losses.count(&self.fd, &mut self.maker.counters.frames, self.slots.len());
        Ok(Batch::new(&mut self.slots))
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.losses.read(&self.fd);
        ReceiveCounters {
            drops: vec![PlaceDrop::new("ring", drop::RING_FULL, self.losses.drops)],
            freezes: self.losses.freezes,
            ..self.maker.counters.clone()
        }
    }

    fn settings(&self) -> &[PortSetting] {
        &self.settings
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

//! Writing a capture file as a transmitter.
//!
//! A file has no place for what a sender left to the hardware, so an unfinished checksum is completed and a super-frame
//! is cut before it is written. A frame that was cut to a snap length can be neither; it is written as it is, and its
//! length on the wire says so.

use super::writer::{Options, Writer};
use crate::port::batch::{Batch, Home};
use crate::port::sending::refusing;
use crate::port::told::setting;
use crate::port::{
    Hand, Meta, PortError, PortResult, Stamp, StampSource, TransmitCounters, Transmitted, Transmitter,
};
use crate::sys::clock;
use record::{PlaceDrop, PortSetting, Problem, Result, drop};
use std::io;
use std::time::Duration;
use wire::offload;
use wire::pcap::{Interface, MAX_FRAME};

/// The most interfaces that frames may bring along: more is a number that went wrong.
const MAX_INTERFACES: u32 = 1024;

/// A capture file as a transmitter.
pub(super) struct PcapTransmitter {
    writer: Writer,
    counters: TransmitCounters,
    super_frames: u64,
    /// Where frames are finished that were not.
    room: Vec<u8>,
}

impl PcapTransmitter {
    pub(super) fn create(path: &str, options: Options) -> Result<(PcapTransmitter, Vec<PortSetting>)> {
        let resolution = options.resolution;
        let writer = Writer::create(path, options)?;
        let settings = vec![
            setting("format", "", writer.format().name(), ""),
            setting("compress", "", writer.compression().name(), ""),
            setting("resolution", "", resolution.to_string(), ""),
        ];
        let counters = refusing(&[drop::OVERSIZE, drop::TAKEN, drop::MALFORMED]);
        Ok((PcapTransmitter { writer, counters, super_frames: 0, room: vec![] }, settings))
    }

    /// Makes sure that the interface of a frame is in the file.
    fn interface(&mut self, number: u32) -> Result<u32> {
        let wanted = number.min(MAX_INTERFACES - 1);
        while self.writer.interfaces() <= wanted as usize {
            let name = format!("interface {}", self.writer.interfaces());
            self.writer.interface(Interface { name, ..Interface::default() })?;
        }
        Ok(wanted)
    }

    /// Writes a frame, finished. False: what is said about it cannot be, and nothing was written.
    fn write(&mut self, bytes: &[u8], mut meta: Meta) -> Result<bool> {
        meta.interface = self.interface(meta.interface)?;
        let cut = meta.wire_length as usize > bytes.len();
        match meta.offload {
            offload if offload.is_complete() || cut => self.writer.write(bytes, &meta)?,
            offload::Offload { segments: None, partial: Some(partial), .. } => {
                self.room.clear();
                self.room.extend_from_slice(bytes);
                if offload::complete(&mut self.room, partial).is_err() {
                    return Ok(false);
                }
                self.counters.completed_checksums += 1;
                self.writer.write(&self.room, &meta)?;
            }
            offload => {
                let (writer, mut result) = (&mut self.writer, Ok(()));
                let pieces = offload::segment(bytes, &offload, &mut self.room, |piece| {
                    let meta = Meta { wire_length: piece.len() as u32, ..meta };
                    let written = writer.write(piece, &meta);
                    result = std::mem::replace(&mut result, Ok(())).and(written);
                });
                let Ok(pieces) = pieces else { return Ok(false) };
                self.counters.segments += pieces as u64;
                self.super_frames += 1;
                result?;
            }
        }
        self.counters.bytes += bytes.len() as u64;
        Ok(true)
    }

    fn error(&self, problem: &Problem) -> PortError {
        match &self.writer.failed {
            Some((io::ErrorKind::BrokenPipe, _)) => PortError::Ended,
            Some((kind, _)) => PortError::Io(io::Error::new(*kind, problem.to_string())),
            None => PortError::Io(io::Error::other(problem.to_string())),
        }
    }
}

impl Transmitter for PcapTransmitter {
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], _hand: Hand) -> PortResult<Transmitted> {
        let mut sent = Transmitted::default();
        for &index in which {
            let slot = &batch.slots()[usize::from(index)];
            let (home, length, mut meta) = (slot.home, slot.length, slot.meta);
            self.counters.offered += 1;
            sent.dealt += 1;
            let refused = match home {
                Home::Taken => Some(drop::TAKEN),
                _ if length > MAX_FRAME => Some(drop::OVERSIZE),
                _ => None,
            };
            if let Some(why) = refused {
                self.counters.refuse(why, 1);
                sent.refused += 1;
                continue;
            }
            if meta.stamp.source == StampSource::None {
                meta.stamp = Stamp { ns: clock::realtime_ns(), source: StampSource::User };
            }
            let written = self.write(batch.bytes(usize::from(index)), meta);
            if !written.map_err(|problem| self.error(&problem))? {
                self.counters.refuse(drop::MALFORMED, 1);
                sent.refused += 1;
            }
        }
        Ok(sent)
    }

    fn flush(&mut self, _wait: Duration) -> PortResult<usize> {
        self.writer.flush().map_err(|problem| self.error(&problem))?;
        Ok(0)
    }

    fn counters(&mut self) -> TransmitCounters {
        let mut counters = self.counters.clone();
        // A super-frame is one frame here, but several in the file.
        counters.accepted =
            (self.writer.frames() - self.writer.lost() + self.super_frames).saturating_sub(counters.segments);
        counters.completed = Some(self.writer.safe());
        counters.copied = self.writer.frames();
        counters.drops.push(PlaceDrop::new("disk", drop::WRITE_FAILED, self.writer.lost()));
        counters
    }

    fn longest(&self) -> usize {
        MAX_FRAME as usize
    }
}

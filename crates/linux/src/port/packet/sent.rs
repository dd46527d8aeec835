//! When frames left: the kernel's stamps of the frames that one socket sends.
//!
//! **What.** [`SentStamps`] asks for a stamp of every frame and reads them back from the socket's error queue. The kernel
//! numbers the frames that it takes (`SOF_TIMESTAMPING_OPT_ID`), and [`SentStamps::taken`] keeps which of its numbers is
//! which frame of ours. A frame has one stamp: the card's if it made one, else the software's, which the driver calls for
//! right before it gives the frame to the card (`skb_tx_timestamp`).
//!
//! **Why.** What a generator knows is when it called the kernel. What the queues and the driver made of that is here.
//!
//! **Price.** A system call for each stamp, and a small buffer in the kernel (about 900 B) until it is read: some 1.5 µs a
//! frame. Stamps that find the receive buffer full are dropped by the kernel without a count: the caller sees them missing.
//! The kernel's number is used up by frames that it tried and dropped, too, but not by those that it would not try.

use super::super::stamps::{self, TRANSMIT};
use super::super::{Departure, StampSource, Uri};
use super::shared::refused;
use crate::port::told::setting;
use crate::sys::{clock, packet, socket};
use record::{PortSetting, Result};
use std::os::fd::AsFd;

/// Room for stamps that were not read yet: bytes that are asked for, which the kernel doubles.
const BUFFER: u32 = 32 << 20;
/// Frames whose stamps may be under way at the same time; a power of two.
const UNDER_WAY: usize = 1 << 16;

/// A frame whose stamp may still come.
#[derive(Debug, Clone, Copy)]
struct Expected {
    key: u32,
    number: u64,
    handed_ns: u64,
}

/// The stamps of one socket.
#[derive(Debug)]
pub(in crate::port) struct SentStamps {
    next_key: u32,
    expected: Vec<Option<Expected>>,
}

impl SentStamps {
    /// Asks the socket for stamps of what it sends.
    pub fn enable(fd: impl AsFd, uri: &Uri, wish: StampSource) -> Result<(SentStamps, PortSetting)> {
        let software = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        let wanted = if wish == StampSource::Software {
            software
        } else {
            TRANSMIT & !libc::SOF_TIMESTAMPING_TX_SCHED
        };
        let flags = wanted | libc::SOF_TIMESTAMPING_OPT_ID | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        socket::set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
            .map_err(refused(uri, "stamps of frames that are sent"))?;
        socket::set_buffer(&fd, socket::Direction::Receive, BUFFER)
            .map_err(refused(uri, "room for the stamps of frames that are sent"))?;
        let note = "read when the driver took the frame (CLOCK_REALTIME), or by the interface's own clock; each stamp says \
                    whose it is";
        let stamps = SentStamps { next_key: 0, expected: vec![None; UNDER_WAY] };
        Ok((stamps, setting("stamps", wish.name(), "as each stamp says", note)))
    }

    /// The kernel has taken this frame and given it its next number.
    #[inline]
    pub fn taken(&mut self, number: u64, handed_ns: u64) {
        let key = self.next_key;
        self.next_key = key.wrapping_add(1);
        self.expected[key as usize % UNDER_WAY] = Some(Expected { key, number, handed_ns });
    }

    /// The kernel has used up a number for a frame that then was dropped.
    pub fn tried(&mut self) {
        self.next_key = self.next_key.wrapping_add(1);
    }

    /// Reads the stamps that are there.
    pub fn read(&mut self, fd: impl AsFd, into: &mut Vec<Departure>) {
        while let Ok(Some(told)) = packet::take_sent_stamp(&fd) {
            let Some(stamp) = stamps::read(&told.times) else { continue };
            let place = &mut self.expected[told.key as usize % UNDER_WAY];
            if let Some(found) = place.take_if(|expected| expected.key == told.key) {
                into.push(Departure { number: found.number, handed_ns: found.handed_ns, stamp });
            }
        }
    }

    /// The time for [`SentStamps::taken`]: right before the system call.
    #[inline]
    pub fn now() -> u64 {
        clock::realtime_ns()
    }
}

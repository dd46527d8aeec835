//! How many frames ended in the pipeline, by port and reason: a question of our own.
//!
//! **What.** An experimenter multipart. A question names the first port that it is about; the answer has rows in the order of the ports' numbers, and
//! the port to ask for next. The layouts (all numbers big-endian):
//!
//! | question | | answer | | a row | |
//! |---|---|---|---|---|---|
//! | experimenter | 4 | experimenter | 4 | port | 4 |
//! | type, 1 | 4 | type, 1 | 4 | reason ([`Drop`]) | 2 |
//! | first port | 4 | next port; `OFPP_ANY`: no more | 4 | zeros | 2 |
//! | zeros | 4 | zeros | 4 | frames since the switch began | 8 |
//!
//! **Why.** OpenFlow has no counters of these. A row that is 0 is left out, so an answer is short.
//!
//! **Price.** The experimenter's number is an address prefix of local administration: nobody assigned it to us, and nobody else has it assigned.

use super::bytes::{Bytes, Hex};
use super::fault::Fault;
use super::oxm::ExperimenterKind;
use crate::drop::Drop;
use crate::error::BadRequest;
use crate::port::PortNo;

/// We as an experimenter: 02-70-6C, a prefix of locally administered addresses.
pub const PATHLAB: u32 = 0x0002_706c;
/// The question about drops.
const DROPS: u32 = 1;
/// Bytes of a row, and of what stands before the rows.
const ROW: usize = 16;
const HEAD: usize = 8;
/// Rows of one answer: what fits into a message.
const ROWS: usize = 4000;

/// Frames of a port that ended for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropRow {
    /// The port by which they came in; of [`Drop::NotSent`] the one by which they should have left.
    pub port: u32,
    /// The reason.
    pub why: Drop,
    /// How many.
    pub frames: u64,
}

fn body(data: Vec<u8>) -> ExperimenterKind {
    ExperimenterKind { experimenter: Hex(PATHLAB), exp_type: DROPS, data: Bytes(data) }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

/// The question about this port and all after it.
pub fn request(first: u32) -> ExperimenterKind {
    body((u64::from(first) << 32).to_be_bytes().to_vec())
}

/// The first port that is asked for.
///
/// # Errors
/// It is another experimenter's question, one that we do not know, or it has another length.
pub fn first_port(request: &ExperimenterKind) -> Result<u32, Fault> {
    match (request.experimenter.0, request.exp_type, request.data.0.len()) {
        (PATHLAB, DROPS, HEAD) => word(&request.data.0, 0).ok_or(BadRequest::BadLen.into()),
        (PATHLAB, DROPS, _) => Err(BadRequest::BadLen.into()),
        (PATHLAB, ..) => Err(BadRequest::BadExpType.into()),
        _ => Err(BadRequest::BadExperimenter.into()),
    }
}

/// The answer with as many of these rows as fit; they are in the order of their ports.
pub fn reply(rows: &[DropRow]) -> ExperimenterKind {
    reply_of(rows, ROWS)
}

fn reply_of(rows: &[DropRow], most: usize) -> ExperimenterKind {
    // The rows of a port stay together.
    let next = rows.get(most).map_or(PortNo::ANY.0, |row| row.port);
    let mut data = (u64::from(next) << 32).to_be_bytes().to_vec();
    for row in rows.iter().take_while(|row| row.port < next) {
        data.extend(row.port.to_be_bytes());
        data.extend((row.why as u16).to_be_bytes());
        data.extend([0; 2]);
        data.extend(row.frames.to_be_bytes());
    }
    body(data)
}

/// The rows of an answer, and the port to ask for next, if there is more. Reasons that are not known here are left out; none when it is no answer.
pub fn rows(reply: &ExperimenterKind) -> Option<(Vec<DropRow>, Option<u32>)> {
    let is_ours = (reply.experimenter.0, reply.exp_type) == (PATHLAB, DROPS);
    let data = &reply.data.0;
    let next = word(data, 0).filter(|_| is_ours && data.len() >= HEAD)?;
    let row = |row: &[u8]| {
        let why = Drop::of(u16::from_be_bytes(*row.get(4..)?.first_chunk()?))?;
        let frames = u64::from_be_bytes(*row.get(8..)?.first_chunk()?);
        Some(DropRow { port: word(row, 0)?, why, frames })
    };
    let rows = data[HEAD..].chunks_exact(ROW).filter_map(row).collect();
    Some((rows, (next != PortNo::ANY.0).then_some(next)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let asked = request(7);
        assert_eq!((asked.experimenter.0, asked.exp_type), (0x0002_706c, 1));
        assert_eq!(asked.data.0, [0, 0, 0, 7, 0, 0, 0, 0]);
        let told = reply(&[DropRow { port: 2, why: Drop::InPort, frames: 258 }]);
        let row = [0, 0, 0, 2, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(told.data.0, [&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0][..], &row].concat());
    }

    #[test]
    fn other_questions_are_refused_each_by_its_own_error() {
        let with = |experimenter, exp_type, data: &[u8]| ExperimenterKind {
            experimenter: Hex(experimenter),
            exp_type,
            data: Bytes(data.to_vec()),
        };
        assert_eq!(first_port(&with(PATHLAB, 1, &[0; 4])), Err(BadRequest::BadLen.into()));
        assert_eq!(first_port(&with(PATHLAB, 2, &[0; 8])), Err(BadRequest::BadExpType.into()));
        assert_eq!(first_port(&with(0x2320, 1, &[0; 8])), Err(BadRequest::BadExperimenter.into()));
    }

    proptest! {
        /// Whoever asks on gets every row once, however few fit into an answer; an answer never cuts a port.
        #[test]
        fn all_rows_come(counts in prop::collection::vec((1u32..40, 0usize..10, 1u64..), 0..60), most in 10usize..30) {
            let mut all: Vec<DropRow> = counts
                .iter()
                .map(|(port, why, frames)| DropRow { port: *port, why: Drop::COUNTED[*why], frames: *frames })
                .collect();
            all.sort_by_key(|row| (row.port, row.why as u16));
            all.dedup_by_key(|row| (row.port, row.why as u16));
            let (mut got, mut next) = (vec![], Some(0));
            while let Some(first) = next {
                let left: Vec<DropRow> = all.iter().filter(|row| row.port >= first).copied().collect();
                let (some, then) = rows(&reply_of(&left, most)).unwrap();
                got.extend(some);
                next = then;
            }
            prop_assert_eq!(got, all);
        }

        #[test]
        fn any_bytes_are_read(data in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = rows(&body(data.clone()));
            let _ = first_port(&body(data));
        }
    }
}

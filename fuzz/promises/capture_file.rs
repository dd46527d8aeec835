//! Capture files.

use wire::pcap::write::{self, NewFrame};
use wire::pcap::{Damage, Frame, Interface, Item, Reader, Resolution, Section, Step};

/// What a reader said of a file.
#[derive(Debug, PartialEq)]
struct Told {
    items: Vec<Item>,
    /// The bytes of the frames.
    frames: Vec<Vec<u8>>,
    end: Result<(), Damage>,
}

/// Reads a file that comes `piece` bytes at a time.
fn read(file: &[u8], piece: usize) -> Told {
    let mut reader = Reader::new();
    let (mut items, mut frames) = (vec![], vec![]);
    let (mut start, mut have) = (0, 0);
    let end = loop {
        match reader.step(&file[start..have]) {
            Ok(Step::Need(need)) => {
                assert!(need > have - start, "what is there is not asked for");
                assert!(need <= wire::pcap::MAX_BLOCK as usize, "no absurd wishes");
                if have == file.len() {
                    break reader.end(&file[start..]);
                }
                have = (have + piece).min(file.len());
            }
            Ok(Step::Item { length, item }) => {
                assert!(length > 0 && start + length <= have);
                if let Item::Frame(frame) = &item {
                    let bytes = &file[start..start + length][frame.bytes.clone()];
                    assert!(frame.wire_length as usize >= bytes.len());
                    assert!((frame.interface as usize) < reader.interfaces().len());
                    let _ = reader.comment(&file[start..have], frame);
                    frames.push(bytes.to_vec());
                }
                items.push(item);
                start += length;
                assert_eq!(reader.offset(), start as u64);
            }
            Err(damage) => {
                assert!(damage.offset <= file.len() as u64 && !damage.to_string().is_empty());
                break Err(damage);
            }
        }
    };
    assert_eq!(reader.frames(), frames.len() as u64);
    Told { items, frames, end }
}

fn frames_of(told: &Told) -> Vec<(&Frame, &[u8])> {
    let frames = told.items.iter().filter_map(|item| match item {
        Item::Frame(frame) => Some(frame),
        _ => None,
    });
    frames.zip(told.frames.iter().map(Vec::as_slice)).collect()
}

/// Any bytes as a capture file: the reader ends, stays within them and says the same when it is fed in pieces; what it
/// read, written again, is read the same.
pub fn capture_file(bytes: &[u8]) {
    let told = read(bytes, bytes.len().max(1));
    let piece = 1 + bytes.first().map_or(0, |byte| usize::from(*byte) % 61);
    assert_eq!(told, read(bytes, piece), "in pieces of {piece}");

    let mut again = vec![];
    write::section(&mut again, &Section::default());
    let interfaces = frames_of(&told).iter().map(|(frame, _)| frame.interface + 1).max().unwrap_or(0);
    if interfaces > 64 {
        return;
    }
    for _ in 0..interfaces {
        write::interface(&mut again, &Interface { resolution: Resolution::NANO, ..Interface::default() });
    }
    for (frame, bytes) in frames_of(&told) {
        let new = NewFrame {
            bytes,
            wire_length: frame.wire_length,
            time_ns: frame.time_ns.unwrap_or(0),
            interface: frame.interface,
            direction: frame.direction,
            lost: frame.lost,
            comment: "",
        };
        write::frame(&mut again, &new, Resolution::NANO);
    }
    let back = read(&again, again.len());
    assert_eq!(back.end, Ok(()));
    assert_eq!(back.frames, told.frames);
    for ((old, _), (new, _)) in frames_of(&told).into_iter().zip(frames_of(&back)) {
        assert_eq!(new.time_ns, Some(old.time_ns.unwrap_or(0)));
        assert_eq!((new.wire_length, new.interface), (old.wire_length, old.interface));
        assert_eq!((new.direction, new.lost), (old.direction, old.lost));
    }
}

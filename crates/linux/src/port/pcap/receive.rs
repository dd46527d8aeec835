//! Reading a capture file, in place.

use super::source::Source;
use crate::port::batch::{Batch, Home, MAX_BATCH, Meta, Slot};
use crate::port::batch_builder::BatchBuilder;
use crate::port::told::setting;
use crate::port::{
    FrameDirection, PortError, PortOptions, PortResult, ReceiveCounters, Receiver, Stamp, StampSource, Wait,
};
use record::{PlaceDrop, PortSetting, Problem, Result, drop};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::time::Instant;
use wire::pcap::{Damage, Direction, Fault, Frame, Interface, Item, Link, Reader, Section, Step};

/// Bytes that are read at once; it grows for a block that is longer (at most to [`wire::pcap::MAX_BLOCK`]).
const BUFFER: usize = 1 << 20;

/// A capture file as a receiver.
pub(super) struct PcapReceiver {
    name: String,
    source: Source,
    reader: Reader,
    buffer: Vec<u8>,
    /// What of the buffer is not read yet.
    start: usize,
    end: usize,
    /// Bytes that the reader wants before it can go on.
    need: usize,
    /// Why there are no more frames. The end may be in the middle of a record: whoever wrote it was killed, and every frame
    /// before that is good. The notes say it.
    ended: Option<PortError>,
    batch: BatchBuilder,
    /// Where in the buffer the frame of each slot begins.
    places: Vec<usize>,
    any_link: bool,
    section: Section,
    /// What the file says was dropped, for each interface: by the interface, by the system.
    recorded: Vec<(u64, u64)>,
    notes: Vec<String>,
}

impl PcapReceiver {
    /// Opens the file (`-`: standard input) and, unless it is a pipe, looks at its header.
    pub(super) fn open(path: &str, wish: &PortOptions) -> Result<PcapReceiver> {
        let (name, file) = find(path)?;
        let mut receiver = PcapReceiver {
            name,
            source: Source::new(file),
            reader: Reader::new(),
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            need: 0,
            ended: None,
            batch: BatchBuilder::new(wish),
            places: Vec::with_capacity(MAX_BATCH),
            any_link: wish.any_link,
            section: Section::default(),
            recorded: vec![],
            notes: vec![],
        };
        if !receiver.source.is_pipe() {
            receiver.look()?;
        }
        Ok(receiver)
    }

    /// Reads up to the first interface, before which there cannot be a frame.
    fn look(&mut self) -> Result<()> {
        while self.reader.interfaces().is_empty() && self.ended.is_none() {
            match self.next() {
                Ok(Some(_)) => {}
                Ok(None) => drop(self.refill(Instant::now())),
                Err(damage) => self.malformed(&damage),
            }
        }
        let first = self.reader.interfaces().first().map(|interface| interface.link);
        match (&self.ended, first) {
            (Some(PortError::Malformed(what)), _) => Err(Problem::input(what.clone())
                .at(&self.name)
                .help("pcap and pcapng can be read, plain or compressed with gzip or zstd")),
            (Some(PortError::Io(error)), _) => Err(Problem::input(error.to_string()).at(&self.name)),
            (_, Some(link)) if link != Link::ETHERNET && !self.any_link => {
                Err(Problem::input(not_ethernet(link))
                    .at(&self.name)
                    .help("only a capture without a filter takes them"))
            }
            _ => Ok(()),
        }
    }

    /// The next thing in the buffer; none when it holds no whole one.
    #[inline]
    fn next(&mut self) -> std::result::Result<Option<Item>, Damage> {
        match self.reader.step(&self.buffer[self.start..self.end])? {
            Step::Need(need) => {
                self.need = need;
                Ok(None)
            }
            Step::Item { length, item } => {
                self.start += length;
                if !matches!(item, Item::Frame(_)) {
                    self.note(&item);
                }
                Ok(Some(item))
            }
        }
    }

    fn note(&mut self, item: &Item) {
        match item {
            Item::Section(section) => self.section = section.as_ref().clone(),
            Item::Statistics(statistics) => {
                let index = statistics.interface as usize;
                if self.recorded.len() <= index {
                    self.recorded.resize(index + 1, (0, 0));
                }
                // Later statistics of an interface include the earlier ones.
                self.recorded[index] = (statistics.dropped.unwrap_or(0), statistics.os_dropped.unwrap_or(0));
            }
            Item::Interface(_) | Item::Frame(_) | Item::Skipped(_) => {}
        }
    }

    fn malformed(&mut self, damage: &Damage) {
        let what = format!("{damage}; {} before it", good(self.reader.frames()));
        let is_cut = matches!(damage.fault, Fault::Truncated { .. });
        self.ended = Some(self.cut_or(is_cut, what));
    }

    /// The end of a file that is not whole: the rest is missing, or what is there is wrong.
    fn cut_or(&mut self, is_cut: bool, what: String) -> PortError {
        // Without an interface it has not even begun.
        if !is_cut || self.reader.interfaces().is_empty() {
            return PortError::Malformed(what);
        }
        self.notes.push(what);
        PortError::Ended
    }

    /// Takes the frames that are in the buffer, up to a limit.
    fn take(&mut self, limit: usize) {
        while self.batch.slots.len() < limit {
            let before = self.start;
            match self.next() {
                Ok(Some(Item::Frame(frame))) => {
                    let link = self.reader.interfaces()[frame.interface as usize].link;
                    if link != Link::ETHERNET && !self.any_link {
                        self.ended = Some(PortError::Malformed(not_ethernet(link)));
                        return;
                    }
                    self.lend(&frame, before, link);
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(damage) => return self.malformed(&damage),
            }
        }
    }

    /// Makes a slot for a frame whose record begins at `record` of the buffer, if it is wanted.
    #[inline]
    fn lend(&mut self, frame: &Frame, record: usize, link: Link) {
        let place = record + frame.bytes.start;
        let bytes = &self.buffer[place..record + frame.bytes.end];
        let wanted = self.batch.wanted(bytes, frame.wire_length);
        if wanted == 0 {
            return;
        }
        let stamp = match frame.time_ns {
            Some(ns) => Stamp { ns, source: StampSource::File },
            None => Stamp::default(),
        };
        let meta = Meta {
            wire_length: frame.wire_length,
            stamp,
            way: if frame.direction == Direction::Out { FrameDirection::Out } else { FrameDirection::In },
            interface: frame.interface,
            link,
            ..Meta::default()
        };
        let slot = Slot {
            data: NonNull::dangling(),
            length: bytes.len() as u32,
            // What is before the frame is its record's header, which was read.
            headroom: frame.bytes.start as u32,
            tailroom: 0,
            home: Home::Lent,
            meta,
        };
        self.places.push(place);
        self.batch.add(slot, wanted);
    }

    /// Reads on. An error is `WouldBlock`, or was noted as the end.
    fn refill(&mut self, deadline: Instant) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.need > self.buffer.len() {
            self.buffer.resize(self.need.next_power_of_two(), 0);
        }
        match self.source.read(&mut self.buffer[self.end..], deadline) {
            Ok(0) => {
                match self.reader.end(&self.buffer[..self.end]) {
                    Ok(()) => self.ended = Some(PortError::Ended),
                    Err(damage) => self.malformed(&damage),
                }
                Ok(())
            }
            Ok(count) => {
                self.end += count;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(error) => {
                let end = self.unreadable(&error);
                self.ended = Some(end);
                Err(error)
            }
        }
    }

    #[cold]
    fn unreadable(&mut self, error: &io::Error) -> PortError {
        let frames = self.reader.frames();
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.cut_or(true, format!("the compressed file is cut off; {} before that", good(frames)))
            }
            // What the decoders say of damaged bytes.
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
                let what = format!("the compressed file is damaged ({error}); {} before that", good(frames));
                self.cut_or(false, what)
            }
            kind => {
                let what = format!("cannot be read: {error}; {} before that", good(frames));
                PortError::Io(io::Error::new(kind, what))
            }
        }
    }

    /// What is known of the file.
    pub(super) fn settings(&self) -> Vec<PortSetting> {
        let Some(compression) = self.source.compression() else {
            return vec![setting("format", "", "not known before its first bytes come", "")];
        };
        let mut settings = vec![
            setting("format", "", self.section.format.name(), ""),
            setting("compress", "", compression.name(), ""),
        ];
        for (index, interface) in self.reader.interfaces().iter().enumerate().take(8) {
            let name = if interface.name.is_empty() { index.to_string() } else { interface.name.clone() };
            let effective = format!("{name}: {}, {}", interface.link, interface.resolution);
            settings.push(setting("interface", "", effective, &interface.description));
        }
        settings
    }

    fn over(&self) -> Option<PortError> {
        Some(match self.ended.as_ref()? {
            PortError::Malformed(what) => PortError::Malformed(what.clone()),
            PortError::Io(error) => PortError::Io(io::Error::new(error.kind(), error.to_string())),
            _ => PortError::Ended,
        })
    }
}

impl Receiver for PcapReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> PortResult<Batch<'_>> {
        let deadline = wait.deadline().unwrap_or_else(Instant::now);
        self.batch.slots.clear();
        self.places.clear();
        loop {
            if self.ended.is_none() {
                self.take(limit.min(MAX_BATCH));
            }
            if !self.batch.slots.is_empty() || limit == 0 {
                break;
            }
            if let Some(error) = self.over() {
                return Err(error);
            }
            match self.refill(deadline) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A filter may refuse everything for long: the caller's time holds here, too.
                Ok(()) if self.source.is_pipe() && wait != Wait::Poll && Instant::now() >= deadline => {
                    self.take(limit.min(MAX_BATCH));
                    break;
                }
                _ => {}
            }
        }
        let base = self.buffer.as_mut_ptr();
        for (slot, &place) in self.batch.slots.iter_mut().zip(&self.places) {
            // SAFETY: the frame's bytes, and the record's header before them, lie in the buffer, which is not touched
            // before the batch is given back.
            slot.data = unsafe { NonNull::new_unchecked(base.add(place)) };
        }
        Ok(self.batch.lend())
    }

    fn counters(&mut self) -> ReceiveCounters {
        let (interface, system) = self
            .recorded
            .iter()
            .fold((0u64, 0u64), |(a, b), (c, d)| (a.saturating_add(*c), b.saturating_add(*d)));
        ReceiveCounters {
            drops: vec![
                PlaceDrop::new("file", drop::RECORDED_IFDROP, interface),
                PlaceDrop::new("file", drop::RECORDED_OSDROP, system),
            ],
            ..self.batch.counters.clone()
        }
    }

    fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// How many frames are good, as a clause.
fn good(frames: u64) -> String {
    match frames {
        0 => "there is no frame".to_owned(),
        1 => "one frame is good".to_owned(),
        many => format!("{} frames are good", record::unit::count(many)),
    }
}

fn not_ethernet(link: Link) -> String {
    format!("its frames are {link}, not Ethernet")
}

/// The name for people, and the file.
fn find(path: &str) -> Result<(String, File)> {
    if path == "-" {
        let file = io::stdin().as_fd().try_clone_to_owned();
        let file = file.map_err(|e| Problem::host(format!("cannot be used: {e}")).at("standard input"))?;
        return Ok(("standard input".to_owned(), file.into()));
    }
    let file = File::open(path).map_err(|e| Problem::input(format!("cannot be opened: {e}")).at(path))?;
    Ok((path.to_owned(), file))
}

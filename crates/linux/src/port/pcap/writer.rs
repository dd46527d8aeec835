//! Writing a capture file, and knowing at every moment how much of it is safe.

use super::source::Compression;
use crate::port::{FrameDirection, Meta};
use flate2::write::GzEncoder;
use record::{Problem, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use wire::pcap::write::{self, NewFrame};
use wire::pcap::{Direction, Format, Interface, MAX_FRAME, Resolution, Section, Statistics};

/// Bytes that are collected before they are handed to the kernel (or the compressor).
const BUFFER: usize = 256 << 10;

/// How a file is to be written.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its format; by its name when not said (`.pcap`, `.cap`, `.dmp`: pcap, everything else pcapng).
    pub format: Option<Format>,
    /// Its compression; by its name when not said (`.gz`, `.zst`).
    pub compression: Option<Compression>,
    /// What one tick of its times is; [`Resolution::MICRO`] or [`Resolution::NANO`] in pcap.
    pub resolution: Resolution,
    /// An existing file may be replaced.
    pub overwrite: bool,
    /// How a user says so, for the sentence that refuses to: `add --overwrite`.
    pub overwrite_by: String,
    /// [`Writer::finish`] waits until the disk has everything.
    pub sync: bool,
    /// Say of every frame which way it went, not only of those that this host sent: for a port that knows.
    pub directions: bool,
    /// The interfaces; more may be added later ([`Writer::interface`]). Their resolution is the file's.
    pub interfaces: Vec<Interface>,
    /// Something about the whole capture, for people.
    pub comment: String,
}

impl Default for Options {
    /// By the file's name, in nanoseconds, nothing overwritten, no interface yet.
    fn default() -> Self {
        Options {
            format: None,
            compression: None,
            resolution: Resolution::NANO,
            overwrite: false,
            overwrite_by: String::new(),
            sync: false,
            directions: false,
            interfaces: vec![],
            comment: String::new(),
        }
    }
}

/// What can be written beside a frame (pcapng).
#[derive(Debug, Clone, Copy, Default)]
pub struct Extra<'a> {
    /// Frames lost between the one before and this one.
    pub lost: Option<u64>,
    /// Something for people; empty: nothing.
    pub comment: &'a str,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Frames in it.
    pub frames: u64,
    /// Its bytes, as compressed as it is.
    pub bytes: u64,
}

/// The file itself; counts what it took.
#[derive(Debug)]
struct Out {
    file: File,
    regular: bool,
    bytes: u64,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is between the buffer and the file.
enum Sink {
    Plain(Out),
    Gz(GzEncoder<Out>),
    Zst(zstd::stream::write::Encoder<'static, Out>),
}

impl Sink {
    fn new(out: Out, compression: Compression) -> io::Result<Sink> {
        Ok(match compression {
            Compression::None => Sink::Plain(out),
            // The fastest level: a capture has no time, and frames repeat so much that it halves them anyway.
            Compression::Gz => Sink::Gz(GzEncoder::new(out, flate2::Compression::fast())),
            Compression::Zst => Sink::Zst(zstd::stream::write::Encoder::new(out, 1)?),
        })
    }

    fn out(&self) -> &Out {
        match self {
            Sink::Plain(out) => out,
            Sink::Gz(encoder) => encoder.get_ref(),
            Sink::Zst(encoder) => encoder.get_ref(),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Sink::Plain(out) => out,
            Sink::Gz(encoder) => encoder,
            Sink::Zst(encoder) => encoder,
        }
    }

    /// Writes what closes a compressed file.
    fn close(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(_) => Ok(()),
            Sink::Gz(encoder) => encoder.try_finish(),
            Sink::Zst(encoder) => encoder.do_finish(),
        }
    }
}

/// A capture file that is being written.
///
/// Frames are collected in a buffer; [`Writer::flush`], to be called about once a second, hands them to the kernel, after
/// which they survive this process. Dropping a writer does what [`Writer::finish`] does, but cannot tell whether it
/// worked.
pub struct Writer {
    name: String,
    sink: Sink,
    format: Format,
    compression: Compression,
    resolution: Resolution,
    directions: bool,
    sync: bool,
    interfaces: Vec<Interface>,
    buffer: Vec<u8>,
    /// Frames that were given, and how many of them the file certainly has.
    frames: u64,
    safe: u64,
    /// Why writing failed, if it did.
    pub(super) failed: Option<(io::ErrorKind, Problem)>,
    closed: bool,
}

impl Writer {
    /// Makes the file (`-`: standard output) and writes its header.
    ///
    /// # Errors
    /// Input: it exists already, or cannot be made there; interfaces that the format cannot hold. Host: a full disk.
    pub fn create(path: &str, options: Options) -> Result<Writer> {
        let (compression, stem) = Compression::by_name(path);
        let format = options.format.unwrap_or_else(|| format_by_name(stem));
        let compression = options.compression.unwrap_or(compression);
        check_resolution(format, options.resolution).map_err(|problem| problem.at(path))?;
        let (name, file) = make(path, &options)?;
        // What standard output is redirected to may hold something of somebody else's: nothing is cut off there.
        let regular = path != "-" && file.metadata().is_ok_and(|metadata| metadata.is_file());
        let sink = Sink::new(Out { file, regular, bytes: 0 }, compression)
            .map_err(|e| Problem::host(format!("cannot compress: {e}")).at(&name))?;
        let mut writer = Writer {
            name,
            sink,
            format,
            compression,
            resolution: options.resolution,
            directions: options.directions,
            sync: options.sync,
            interfaces: vec![],
            buffer: Vec::with_capacity(BUFFER + 4096),
            frames: 0,
            safe: 0,
            failed: None,
            closed: false,
        };
        if format == Format::Pcapng {
            write::section(&mut writer.buffer, &this_section(options.comment));
        }
        for interface in options.interfaces {
            writer.interface(interface)?;
        }
        writer.flush()?;
        Ok(writer)
    }

    /// Adds an interface; its number is the one for [`Meta::interface`]. A pcap file has one link type and does not tell
    /// interfaces apart.
    ///
    /// # Errors
    /// Input: a second link type in a pcap file. Else as [`Writer::write`].
    pub fn interface(&mut self, mut interface: Interface) -> Result<u32> {
        (interface.resolution, interface.offset_s) = (self.resolution, 0);
        let nano = self.resolution == Resolution::NANO;
        match (self.format, self.interfaces.first()) {
            (Format::Pcapng, _) => write::interface(&mut self.buffer, &interface),
            (Format::Pcap, None) => {
                let snap = if interface.snap == 0 { MAX_FRAME } else { interface.snap };
                write::pcap_header(&mut self.buffer, interface.link, snap, nano);
            }
            (Format::Pcap, Some(first)) if first.link != interface.link => {
                let what =
                    format!("a pcap file holds one link type, not {} and {}", first.link, interface.link);
                return Err(Problem::input(what).at(&self.name).help("write pcapng"));
            }
            (Format::Pcap, Some(_)) => {}
        }
        self.interfaces.push(interface);
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Writes a frame as it is: whatever is left to do to it ([`Meta::offload`]) is not done here.
    ///
    /// # Errors
    /// Input: longer than [`MAX_FRAME`], or from an interface that was not added. Host: the disk is full, or the file cannot
    /// be written for another reason; every further call says so again, and the frames count as lost.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], meta: &Meta) -> Result<()> {
        self.write_with(bytes, meta, Extra::default())
    }

    /// The same with something beside the frame.
    ///
    /// # Errors
    /// As [`Writer::write`].
    #[inline]
    pub fn write_with(&mut self, bytes: &[u8], meta: &Meta, extra: Extra<'_>) -> Result<()> {
        if bytes.len() > MAX_FRAME as usize || meta.interface as usize >= self.interfaces.len() {
            return Err(self.refusal(bytes.len(), meta.interface));
        }
        self.frames += 1;
        if let Some((_, problem)) = &self.failed {
            return Err(problem.clone());
        }
        let frame = NewFrame {
            bytes,
            wire_length: meta.wire_length,
            time_ns: meta.stamp.ns,
            interface: meta.interface,
            direction: match meta.way {
                FrameDirection::Out => Direction::Out,
                FrameDirection::In if self.directions => Direction::In,
                FrameDirection::In => Direction::Unknown,
            },
            lost: extra.lost,
            comment: extra.comment,
        };
        let resolution = self.resolution;
        match self.format {
            Format::Pcapng => write::frame(&mut self.buffer, &frame, resolution),
            Format::Pcap => write::pcap_frame(&mut self.buffer, &frame, resolution == Resolution::NANO),
        }
        if self.buffer.len() >= BUFFER { self.push() } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self, length: usize, interface: u32) -> Problem {
        let what = if length > MAX_FRAME as usize {
            format!("a frame of {length} bytes is longer than a capture file holds ({MAX_FRAME})")
        } else {
            format!("there is no interface {interface} in it")
        };
        Problem::input(what).at(&self.name)
    }

    /// Writes what was counted at an interface (pcapng; a pcap file has no place for it). A drop whose place the format
    /// does not know belongs into the comment.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn interface_statistics(&mut self, statistics: &Statistics) -> Result<()> {
        if statistics.interface as usize >= self.interfaces.len() {
            return Err(self.refusal(0, statistics.interface));
        }
        if let Some((_, problem)) = &self.failed {
            return Err(problem.clone());
        }
        if self.format == Format::Pcapng {
            write::statistics(&mut self.buffer, statistics, self.resolution);
        }
        Ok(())
    }

    /// Hands everything to the kernel: from then on it survives the end of this process.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn flush(&mut self) -> Result<()> {
        self.push()?;
        // A plain file has no state between; a compressor holds frames back until it is told.
        if self.compression != Compression::None {
            if let Err(error) = self.sink.writer().flush() {
                return Err(self.fail(&error));
            }
            self.safe = self.frames;
        }
        Ok(())
    }

    /// Closes the file.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn finish(mut self) -> Result<Summary> {
        self.close()?;
        Ok(Summary { frames: self.safe, bytes: self.sink.out().bytes })
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its compression.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// How many interfaces it has.
    pub fn interfaces(&self) -> usize {
        self.interfaces.len()
    }

    /// Bytes of the file, with those that are still in the buffer (compressed: those that left the compressor).
    pub fn bytes_written(&self) -> u64 {
        let waiting = if self.compression == Compression::None { self.buffer.len() as u64 } else { 0 };
        self.sink.out().bytes + waiting
    }

    /// Frames that were given and not refused.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Of these, frames that the file certainly has. The rest waits in the buffer or, once writing failed, is lost.
    pub fn safe(&self) -> u64 {
        self.safe
    }

    /// Frames that are lost because writing failed.
    pub fn lost(&self) -> u64 {
        if self.failed.is_some() { self.frames - self.safe } else { 0 }
    }

    /// Empties the buffer into the sink.
    fn push(&mut self) -> Result<()> {
        if let Some((_, problem)) = &self.failed {
            return Err(problem.clone());
        }
        let before = self.sink.out().bytes;
        match self.sink.writer().write_all(&self.buffer) {
            Ok(()) if self.compression == Compression::None => self.safe = self.frames,
            Ok(()) => {}
            Err(error) => {
                if self.compression == Compression::None {
                    self.keep_whole(before);
                }
                return Err(self.fail(&error));
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// After a failed write of the buffer, which began at byte `before` of the file: counts the frames that got there
    /// whole, and cuts off the one that did not.
    fn keep_whole(&mut self, before: u64) {
        let written = (self.sink.out().bytes - before) as usize;
        let (whole, frames) = whole_records(&self.buffer[..written], self.format, before == 0);
        self.safe += frames;
        let Sink::Plain(out) = &mut self.sink else { return };
        if out.regular && out.file.set_len(before + whole as u64).is_ok() {
            out.bytes = before + whole as u64;
        }
    }

    #[cold]
    fn fail(&mut self, error: &io::Error) -> Problem {
        let least = if self.compression == Compression::None { "" } else { "at least " };
        let what = match error.kind() {
            io::ErrorKind::BrokenPipe => "nobody reads it any more".to_owned(),
            _ => format!("it cannot be written any further: {error}"),
        };
        let problem =
            Problem::host(format!("{what}; {least}{} safely in it", kept(self.safe))).at(&self.name);
        let problem = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                problem.help("make room, or write to another disk")
            }
            io::ErrorKind::FileTooLarge => {
                problem.help("raise the limit (ulimit -f), or begin new files with a rotation")
            }
            _ => problem,
        };
        self.failed = Some((error.kind(), problem.clone()));
        self.buffer.clear();
        problem
    }

    fn close(&mut self) -> Result<()> {
        self.closed = true;
        self.push()?;
        let closed = self.sink.close().and_then(|()| match self.sync && self.sink.out().regular {
            true => self.sink.out().file.sync_all(),
            false => Ok(()),
        });
        if let Err(error) = closed {
            return Err(self.fail(&error));
        }
        self.safe = self.frames;
        Ok(())
    }
}

/// `1 frame is`, `2 frames are`.
fn kept(frames: u64) -> String {
    format!("{} {}", record::unit::many(frames, "frame"), if frames == 1 { "is" } else { "are" })
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.closed {
            let _ = self.close();
        }
    }
}

/// How many bytes of the records in `bytes` are whole, and how many of these are frames. `beginning`: the bytes begin
/// with the header of a file.
fn whole_records(bytes: &[u8], format: Format, beginning: bool) -> (usize, u64) {
    let number = |at: usize| -> Option<usize> {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
    };
    let (mut at, mut frames) = (0, 0);
    if format == Format::Pcap && beginning {
        at = 24;
    }
    loop {
        let length = match format {
            Format::Pcap => number(at + 8).map(|captured| 16 + captured),
            Format::Pcapng => number(at + 4),
        };
        match length {
            Some(length) if at + length <= bytes.len() => {
                // An enhanced packet block has type 6; every record of pcap is a frame.
                frames += u64::from(format == Format::Pcap || number(at) == Some(6));
                at += length;
            }
            _ => return (at.min(bytes.len()), frames),
        }
    }
}

fn this_section(comment: String) -> Section {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Section {
        format: Format::Pcapng,
        big_endian: false,
        hardware: std::env::consts::ARCH.to_owned(),
        os: format!("Linux {}", release.trim()).trim().to_owned(),
        application: concat!("pathlab ", env!("CARGO_PKG_VERSION")).to_owned(),
        comment,
    }
}

fn format_by_name(name: &str) -> Format {
    if [".pcap", ".cap", ".dmp"].iter().any(|ending| name.ends_with(ending)) {
        Format::Pcap
    } else {
        Format::Pcapng
    }
}

fn check_resolution(format: Format, resolution: Resolution) -> Result<()> {
    if format == Format::Pcapng || [Resolution::MICRO, Resolution::NANO].contains(&resolution) {
        return Ok(());
    }
    Err(Problem::input(format!("a pcap file cannot hold times in {resolution}"))
        .help("write us, ns, or pcapng"))
}

/// The name for people, and the file.
fn make(path: &str, options: &Options) -> Result<(String, File)> {
    if path == "-" {
        let file = io::stdout().as_fd().try_clone_to_owned();
        let file = file.map_err(|e| Problem::host(format!("cannot be used: {e}")).at("standard output"))?;
        return Ok(("standard output".to_owned(), file.into()));
    }
    // A pipe or a terminal has nothing that could be lost.
    let stream = std::fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_char_device() || kind.is_socket()
    });
    let mut how = OpenOptions::new();
    how.write(true);
    match (stream, options.overwrite) {
        (true, _) => &mut how,
        (false, true) => how.create(true).truncate(true),
        (false, false) => how.create_new(true),
    };
    let file = how.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Problem::input("the file exists already").at(path).help(match options.overwrite_by.as_str() {
                "" => "name another one".to_owned(),
                by => format!("name another one, or {by} if it may be lost"),
            })
        }
        io::ErrorKind::StorageFull => Problem::host(format!("the file cannot be made: {error}")).at(path),
        _ => Problem::input(format!("the file cannot be made: {error}")).at(path),
    })?;
    Ok((path.to_owned(), file))
}

//! Where the bytes of a file come from: a disk or a pipe, plain or compressed.

use crate::port::uri::word;
use crate::sys::notice;
use flate2::read::MultiGzDecoder;
use nix::poll::{PollFd, PollFlags};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::time::Instant;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// With gzip.
    Gz,
    /// With Zstandard.
    Zst,
}

impl Compression {
    /// All of them, with the words for them; what the name of a compressed file ends with.
    pub(super) const NAMES: [(&'static str, Compression); 3] =
        [("gz", Compression::Gz), ("zst", Compression::Zst), ("none", Compression::None)];

    /// `none`, `gz` or `zst`.
    pub fn name(self) -> &'static str {
        word(&Self::NAMES, self)
    }

    /// The one that a file's name asks for by its ending, and the name without it.
    pub(super) fn by_name(path: &str) -> (Compression, &str) {
        let rest = |ending: &str| path.strip_suffix(ending)?.strip_suffix('.');
        let named = Self::NAMES[..2].iter().find_map(|(ending, named)| Some((*named, rest(ending)?)));
        named.unwrap_or((Compression::None, path))
    }
}

/// A file that may be a pipe: a read waits until the deadline only, and says `WouldBlock` then.
struct Waiting {
    file: File,
    /// Its first bytes, which were read to see what it is.
    head: Vec<u8>,
    /// How many of them were handed out.
    told: usize,
    /// True for what a read may have to wait for.
    pipe: bool,
    deadline: Option<Instant>,
}

impl Waiting {
    fn wait(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline.filter(|_| self.pipe) else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        let mut descriptors = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        match notice::poll(&mut descriptors, Some(left))? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Reads until there are enough bytes to see what it is, or no more.
    fn look(&mut self) -> io::Result<()> {
        while self.head.len() < 4 {
            let mut few = [0; 4];
            self.wait()?;
            let count = self.file.read(&mut few[self.head.len()..])?;
            if count == 0 {
                break;
            }
            self.head.extend_from_slice(&few[..count]);
        }
        Ok(())
    }
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = &self.head[self.told..];
        if !left.is_empty() {
            let count = left.len().min(buffer.len());
            buffer[..count].copy_from_slice(&left[..count]);
            self.told += count;
            return Ok(count);
        }
        self.wait()?;
        self.file.read(buffer)
    }
}

enum Stage {
    /// Nothing was read yet.
    Unknown(Waiting),
    Plain(Waiting),
    Gz(Box<MultiGzDecoder<Waiting>>),
    Zst(Box<zstd::stream::read::Decoder<'static, BufReader<Waiting>>>),
    /// A decoder could not be made.
    Broken,
}

/// The bytes of a file, as they were before somebody compressed them.
pub(super) struct Source {
    stage: Stage,
    pipe: bool,
}

impl Source {
    pub(super) fn new(file: File) -> Source {
        let pipe = !file.metadata().is_ok_and(|found| found.is_file());
        let waiting = Waiting { file, head: vec![], told: 0, pipe, deadline: None };
        Source { stage: Stage::Unknown(waiting), pipe }
    }

    /// True for what a read may have to wait for.
    pub(super) fn is_pipe(&self) -> bool {
        self.pipe
    }

    /// How it turned out to be compressed; none before the first bytes came.
    pub(super) fn compression(&self) -> Option<Compression> {
        match &self.stage {
            Stage::Unknown(_) | Stage::Broken => None,
            Stage::Plain(_) => Some(Compression::None),
            Stage::Gz(_) => Some(Compression::Gz),
            Stage::Zst(_) => Some(Compression::Zst),
        }
    }

    /// Reads some bytes; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` when none came before the deadline, `UnexpectedEof` when compressed bytes are cut off.
    pub(super) fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        if let Some(waiting) = self.waiting() {
            waiting.deadline = Some(deadline);
        }
        loop {
            match &mut self.stage {
                Stage::Unknown(_) => self.begin()?,
                Stage::Plain(plain) => return again(|| plain.read(buffer)),
                Stage::Gz(decoder) => return again(|| decoder.read(buffer)),
                Stage::Zst(decoder) => return again(|| decoder.read(buffer)),
                Stage::Broken => return Ok(0),
            }
        }
    }

    fn waiting(&mut self) -> Option<&mut Waiting> {
        match &mut self.stage {
            Stage::Unknown(waiting) | Stage::Plain(waiting) => Some(waiting),
            Stage::Gz(decoder) => Some(decoder.get_mut()),
            Stage::Zst(decoder) => Some(decoder.get_mut().get_mut()),
            Stage::Broken => None,
        }
    }

    /// Looks at the first bytes and puts the right decoder before them.
    fn begin(&mut self) -> io::Result<()> {
        let Stage::Unknown(waiting) = &mut self.stage else { return Ok(()) };
        waiting.look()?;
        let Stage::Unknown(waiting) = std::mem::replace(&mut self.stage, Stage::Broken) else {
            return Ok(());
        };
        self.stage = match waiting.head[..] {
            [0x1f, 0x8b, ..] => Stage::Gz(Box::new(MultiGzDecoder::new(waiting))),
            [0x28, 0xb5, 0x2f, 0xfd] => {
                let decoder = zstd::stream::read::Decoder::with_buffer(BufReader::new(waiting))?;
                Stage::Zst(Box::new(decoder))
            }
            _ => Stage::Plain(waiting),
        };
        Ok(())
    }
}

/// Reads again when a signal came between.
fn again(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

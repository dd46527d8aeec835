//! The writing thread: frames of all lanes in the order of time, into files that rotate.
//!
//! **What.** [`run`] takes blocks from the lanes, merges them ([`Merge`]) and writes each frame into the [`Files`]. A frame
//! waits until every other lane has shown a later one or has said that nothing older will come; [`WINDOW_NS`] is how far a
//! lane's word lags behind its clock, because a kernel ring hands frames over late. What comes later still is written
//! where it comes and counted as disordered. The frames of one lane keep their order always.
//!
//! **Why.** One thread writes, so a stall of the disk stops nobody who receives. **Price.** With several threads a frame
//! waits up to the window; a lane that has few blocks left is written without waiting.

use super::queue::{Block, Collector, Kept};
use linux::port::pcap::{Extra, Options, Writer};
use record::capture::Written;
use record::{Problem, Result};
use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use wire::pcap::{Interface, Link, Statistics};

/// How long after its time a frame of a lane may still appear.
pub const WINDOW_NS: u64 = 200_000_000;

/// A crash loses at most what came in this time.
const FLUSH: Duration = Duration::from_millis(500);

/// How frames shall be written.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
    /// The file; `-` is standard output.
    pub path: String,
    /// Begin a new file when this one has so many bytes.
    pub rotate_bytes: Option<u64>,
    /// Begin a new file when this one is so old.
    pub rotate_time: Option<Duration>,
    /// Keep only so many files.
    pub keep: Option<usize>,
    /// A file that exists already may be replaced.
    pub overwrite: bool,
    /// The file that the frames come from, which cannot be written over meanwhile.
    pub from: Option<String>,
    /// The interface that is written into the file; one for each link type, if its frames have several.
    pub interface: Interface,
    /// What the first frames begin with, if that is known before they come.
    pub link: Option<Link>,
    /// Say of every frame which way it went.
    pub directions: bool,
}

/// What was lost before the writer saw it, so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Frames lost by the port.
    pub port: u64,
    /// Frames lost because the queue was full.
    pub queue: u64,
}

/// Asks for [`Lost`].
type Ask<'a> = &'a (dyn Fn() -> Lost + Sync);

/// Whether writing failed.
#[derive(Debug, Default)]
pub struct Shared {
    /// Frames that could not be written.
    pub disk_drops: AtomicU64,
    /// Nothing more can be written.
    pub failed: AtomicBool,
}

/// The files of one capture.
struct Files {
    wish: FileOptions,
    now: Option<Writer>,
    /// The link type of each interface of this file, and the frames that were given to it.
    links: Vec<(Link, u64)>,
    begun: Instant,
    begun_ns: u64,
    number: u64,
    written: Written,
    frames_before: u64,
    lost_before: Lost,
}

impl Files {
    fn open(wish: FileOptions, window_ns: u64) -> Result<Files> {
        let written = Written { window_ns, ..Written::default() };
        let mut files = Files {
            wish,
            now: None,
            links: vec![],
            begun: Instant::now(),
            begun_ns: 0,
            number: 0,
            written,
            frames_before: 0,
            lost_before: Lost::default(),
        };
        files.next()?;
        Ok(files)
    }

    fn rotates(&self) -> bool {
        self.wish.rotate_bytes.is_some() || self.wish.rotate_time.is_some()
    }

    /// The name of the next file: as it was given, or with a number before its endings when there are several.
    fn name(&self) -> String {
        if !self.rotates() {
            return self.wish.path.clone();
        }
        let path = PathBuf::from(&self.wish.path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (stem, endings) = match name.find('.').filter(|&at| at > 0) {
            Some(at) => name.split_at(at),
            None => (name.as_str(), ""),
        };
        path.with_file_name(format!("{stem}-{:05}{endings}", self.number)).display().to_string()
    }

    /// Begins a file, and removes the oldest when there are too many. Only files that this capture made are in the list.
    fn next(&mut self) -> Result<()> {
        self.number += 1;
        let name = self.name();
        if self.wish.from.as_ref().is_some_and(|from| is_same_file(from, &name)) {
            return Err(Problem::input("the frames are read from this file")
                .at(name)
                .help("name another one"));
        }
        let options = Options {
            directions: self.wish.directions,
            overwrite: self.wish.overwrite,
            overwrite_by: "add --overwrite".into(),
            ..Options::default()
        };
        self.now = Some(Writer::create(&name, options)?);
        self.links.clear();
        if let Some(link) = self.wish.link {
            self.interface_of(link)?;
        }
        self.flush()?;
        (self.begun, self.begun_ns) = (Instant::now(), linux::sys::clock::realtime_ns());
        self.written.files.push(name);
        while self.wish.keep.is_some_and(|keep| self.written.files.len() > keep) {
            let oldest = self.written.files.remove(0);
            std::fs::remove_file(&oldest)
                .map_err(|e| Problem::host(format!("cannot remove the oldest file: {e}")).at(&oldest))?;
            self.written.removed += 1;
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, bytes: &[u8], kept: &Kept, lost: Ask) -> Result<()> {
        if let Some(most) = self.wish.rotate_bytes
            && self.now.as_ref().is_some_and(|file| {
                file.frames() > 0 && file.bytes_written() + bytes.len() as u64 + 64 > most
            })
        {
            self.rotate(lost)?;
        }
        let mut meta = kept.meta;
        // The file has its own interfaces, whatever the port's are.
        meta.interface = self.interface_of(meta.link)?;
        self.links[meta.interface as usize].1 += 1;
        let Some(file) = &mut self.now else { return Err(Problem::host("no file is open")) };
        let lost = (kept.lost > 0).then_some(u64::from(kept.lost));
        file.write_with(bytes, &meta, Extra { lost, comment: "" })
    }

    /// The number of the interface of this link type, which is made for the first of its frames. A pcap file holds one type.
    #[inline]
    fn interface_of(&mut self, link: Link) -> Result<u32> {
        match self.links.iter().position(|(known, _)| *known == link) {
            Some(number) => Ok(number as u32),
            None => self.new_interface(link),
        }
    }

    #[cold]
    fn new_interface(&mut self, link: Link) -> Result<u32> {
        let Some(file) = &mut self.now else { return Err(Problem::host("no file is open")) };
        let number = file.interface(Interface { link, ..self.wish.interface.clone() })?;
        self.links.push((link, 0));
        Ok(number)
    }

    /// Hands everything to the kernel.
    fn flush(&mut self) -> Result<()> {
        self.now.as_mut().map_or(Ok(()), Writer::flush)
    }

    /// Closes this file and begins the next.
    fn rotate(&mut self, lost: Ask) -> Result<()> {
        self.close(lost())?;
        self.next()
    }

    /// Closes the file, with what was counted and lost since it was begun.
    fn close(&mut self, lost: Lost) -> Result<()> {
        if self.links.is_empty() && self.now.is_some() {
            // A pipe that brought nothing: the file has a header all the same.
            self.interface_of(Link::ETHERNET)?;
        }
        let Some(mut file) = self.now.take() else { return Ok(()) };
        let told = self.statistics(lost).iter().try_for_each(|one| file.interface_statistics(one));
        self.lost_before = lost;
        let ended = told.and_then(|()| file.flush());
        // When the disk is full, a part of what was flushed is in the file all the same.
        self.frames_before += file.safe();
        if ended.is_err() {
            self.written.bytes += file.bytes_written();
            return ended;
        }
        self.written.bytes += file.finish()?.bytes;
        Ok(())
    }

    /// Gives up a file that nothing more can be written to; what is in it counts.
    fn give_up(&mut self) {
        let Some(file) = self.now.take() else { return };
        self.frames_before += file.safe();
        self.written.bytes += file.bytes_written();
    }

    /// What the last block of a pcapng file says. Every file speaks for itself, so that the files of one capture add up
    /// to it; losses count for the file that was open when they were noticed, a fraction of a second after they happened,
    /// and for its first interface.
    fn statistics(&self, lost: Lost) -> Vec<Statistics> {
        let port = lost.port.saturating_sub(self.lost_before.port);
        let queue = lost.queue.saturating_sub(self.lost_before.queue);
        let now = linux::sys::clock::realtime_ns();
        let of = |(number, (_, delivered)): (usize, &(Link, u64))| Statistics {
            interface: number as u32,
            time_ns: Some(now),
            start_ns: Some(self.begun_ns),
            end_ns: Some(now),
            os_dropped: Some(if number == 0 { port + queue } else { 0 }),
            delivered: Some(*delivered),
            comment: if number == 0 {
                format!("drops by place: port {port}, queue {queue}")
            } else {
                String::new()
            },
            ..Statistics::default()
        };
        self.links.iter().enumerate().map(of).collect()
    }

    /// Once in a while: everything so far is in the file, and an old file makes place for a new one.
    fn tick(&mut self, lost: Ask) -> Result<()> {
        let old = self.wish.rotate_time.is_some_and(|time| self.begun.elapsed() >= time);
        match &mut self.now {
            Some(file) if old && file.frames() > 0 => self.rotate(lost),
            _ => self.flush(),
        }
    }

    /// Frames that are certainly in files.
    fn safe(&self) -> u64 {
        self.frames_before + self.now.as_ref().map_or(0, Writer::safe)
    }
}

/// True for two names of one file.
fn is_same_file(one: &str, other: &str) -> bool {
    let identity = |path: &str| {
        std::fs::metadata(path).ok().filter(|found| found.is_file()).map(|found| (found.dev(), found.ino()))
    };
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Frames of several lanes in the order of time.
#[derive(Debug, Default)]
pub struct Merge {
    lanes: Vec<LaneState>,
    blocks: usize,
    newest_ns: u64,
    /// Frames that came too late for their place.
    pub disordered: u64,
}

#[derive(Debug, Default)]
struct LaneState {
    blocks: VecDeque<(Block, usize)>,
    watermark_ns: u64,
    ended: bool,
}

impl LaneState {
    fn head_ns(&self) -> Option<u64> {
        let (block, next) = self.blocks.front()?;
        Some(block.frames[*next].meta.stamp.ns)
    }
}

impl Merge {
    /// For so many lanes of so many blocks.
    pub fn new(lanes: usize, blocks: usize) -> Self {
        Merge { lanes: (0..lanes).map(|_| LaneState::default()).collect(), blocks, ..Merge::default() }
    }

    /// Takes a block; gives back an empty one at once.
    pub fn take(&mut self, block: Block) -> Option<Block> {
        let lane = &mut self.lanes[block.lane];
        lane.watermark_ns = lane.watermark_ns.max(block.watermark_ns);
        lane.ended |= block.last;
        if block.frames.is_empty() {
            return Some(block);
        }
        lane.blocks.push_back((block, 0));
        None
    }

    /// True when every lane has ended and nothing is left.
    pub fn is_done(&self) -> bool {
        self.lanes.iter().all(|lane| lane.ended && lane.blocks.is_empty())
    }

    /// The lane whose frame is next, if it need not wait.
    fn next(&self) -> Option<usize> {
        if let [only] = &self.lanes[..] {
            return (!only.blocks.is_empty()).then_some(0);
        }
        let heads = self.lanes.iter().enumerate().filter_map(|(i, lane)| Some((lane.head_ns()?, i)));
        let (ns, first) = heads.min()?;
        let may_bring_older =
            |lane: &LaneState| lane.blocks.is_empty() && !lane.ended && lane.watermark_ns < ns;
        let scarce = self.lanes.iter().any(|lane| lane.blocks.len() + 1 >= self.blocks);
        (scarce || !self.lanes.iter().any(may_bring_older)).then_some(first)
    }

    /// Hands out frames that need not wait; blocks that are used up go to `empty`.
    pub fn drain(&mut self, mut frame: impl FnMut(&[u8], &Kept), mut empty: impl FnMut(Block)) {
        while let Some(number) = self.next() {
            let lane = &mut self.lanes[number];
            let Some((block, next)) = lane.blocks.front_mut() else { return };
            let kept = block.frames[*next];
            if kept.meta.stamp.ns < self.newest_ns {
                self.disordered += 1;
            }
            self.newest_ns = self.newest_ns.max(kept.meta.stamp.ns);
            frame(block.frame(&kept), &kept);
            *next += 1;
            if *next == block.frames.len()
                && let Some((block, _)) = lane.blocks.pop_front()
            {
                empty(block);
            }
        }
    }
}

/// A writer that is ready: its first file is there.
pub struct Ready {
    files: Files,
    collector: Collector,
    merge: Merge,
}

/// Makes the first file.
///
/// # Errors
/// As [`Writer::create`].
pub fn prepare(wish: FileOptions, collector: Collector, lanes: usize) -> Result<Ready> {
    let window_ns = if lanes > 1 { WINDOW_NS } else { 0 };
    let merge = Merge::new(lanes, collector.blocks);
    Ok(Ready { files: Files::open(wish, window_ns)?, collector, merge })
}

/// Writes until every lane has ended. What was written, and why not all of it. `lost` is asked at the end of each file.
pub fn run(ready: Ready, shared: &Shared, lost: Ask) -> (Written, Option<Problem>) {
    let Ready { mut files, collector, mut merge } = ready;
    let (mut problem, mut given, mut flushed) = (None::<Problem>, 0u64, Instant::now());
    while !merge.is_done() {
        if let Ok(block) = collector.full.recv_timeout(FLUSH / 4)
            && let Some(empty) = merge.take(block)
        {
            collector.give_back(empty);
        }
        let write = |bytes: &[u8], kept: &Kept| {
            given += 1;
            if problem.is_none() {
                problem = files.write(bytes, kept, lost).err();
            }
        };
        merge.drain(write, |block| collector.give_back(block));
        if problem.is_none() && flushed.elapsed() >= FLUSH {
            (problem, flushed) = (files.tick(lost).err(), Instant::now());
        }
        if problem.is_some() {
            shared.disk_drops.store(given - files.safe(), Relaxed);
            shared.failed.store(true, Relaxed);
        }
    }
    match problem {
        None => problem = files.close(lost()).err(),
        Some(_) => files.give_up(),
    }
    let frames = files.safe();
    shared.disk_drops.store(given - frames, Relaxed);
    files.written.disordered = merge.disordered;
    (Written { frames, ..files.written }, problem)
}

#[cfg(test)]
mod tests {
    use super::super::queue;
    use super::*;
    use linux::port::{Meta, Stamp, StampSource};
    use proptest::prelude::*;

    fn meta(ns: u64) -> Meta {
        Meta { stamp: Stamp { ns, source: StampSource::Software }, ..Meta::default() }
    }

    proptest! {
        /// Lanes with times that go forward come out sorted, whatever the blocks.
        #[test]
        fn frames_of_several_lanes_come_out_in_order(
            steps in prop::collection::vec((0usize..3, 1u64..50, any::<bool>()), 1..300)
        ) {
            let (mut lanes, collector) = queue::lanes(3, 64 << 20, 65535);
            let mut merge = Merge::new(3, collector.blocks);
            let (mut now, mut out, mut given) = (0u64, vec![], 0);
            for (lane, step, pause) in steps {
                now += step;
                prop_assert!(lanes[lane].push(&now.to_be_bytes(), &meta(now)));
                given += 1;
                if pause {
                    lanes[lane].pause(now, true);
                }
                while let Ok(block) = collector.full.try_recv() {
                    if let Some(empty) = merge.take(block) { collector.give_back(empty); }
                }
                merge.drain(|bytes, kept| {
                    assert_eq!(bytes, kept.meta.stamp.ns.to_be_bytes());
                    out.push(kept.meta.stamp.ns);
                }, |block| collector.give_back(block));
            }
            for lane in lanes {
                lane.finish();
            }
            while let Ok(block) = collector.full.try_recv() {
                if let Some(empty) = merge.take(block) { collector.give_back(empty); }
            }
            merge.drain(|_, kept| out.push(kept.meta.stamp.ns), |block| collector.give_back(block));
            prop_assert!(merge.is_done());
            prop_assert_eq!((out.len(), merge.disordered), (given, 0));
            prop_assert!(out.is_sorted());
        }
    }

    #[test]
    fn a_full_queue_is_counted_and_told_beside_the_next_frame() {
        let (mut lanes, collector) = queue::lanes(1, 0, 65535);
        let frame = vec![1; 60_000];
        let pushed = (0..100).filter(|&i| lanes[0].push(&frame, &meta(i))).count();
        assert!((3 * 8..100).contains(&pushed), "{pushed}");
        assert_eq!(lanes[0].dropped, 100 - pushed as u64);
        collector.give_back(collector.full.recv().unwrap());
        assert!(lanes[0].push(&frame, &meta(101)));
        lanes.remove(0).finish();
        let mut lost = 0;
        while let Ok(block) = collector.full.try_recv() {
            lost += block.frames.iter().map(|kept| kept.lost as usize).sum::<usize>();
        }
        assert_eq!(lost, 100 - pushed);
    }

    #[test]
    fn a_lane_that_waits_loses_nothing_to_a_writer_that_is_slower() {
        let (mut lanes, collector) = queue::lanes(1, 0, 65535);
        let mut lane = lanes.remove(0);
        lane.waits = true;
        let reader = std::thread::spawn(move || {
            let pushed = (0..200).filter(|&i| lane.push(&[1; 60_000], &meta(i))).count();
            let dropped = lane.dropped;
            lane.finish();
            (pushed, dropped)
        });
        let mut got = 0;
        while let Ok(block) = collector.full.recv() {
            got += block.frames.len();
            let last = block.last;
            collector.give_back(block);
            if last {
                break;
            }
        }
        assert_eq!((reader.join().unwrap(), got), ((200, 0), 200));
    }
}

//! Every frame that dies in some namespaces, or on all of this host, while it goes on.
//!
//! **What.** [`run`] starts the programs at the kernel's events, takes the frames out of their ring, judges each by the filter, hands it on, writes
//! it to a file, and adds up. Sums are those of the kernel's programs; only a filter, which looks at the bytes, needs the frames.
//!
//! **Why.** Counters say how many; the frame says whose. What was not shown is counted beside what was, so the sums close.
//!
//! **Price.** The reader looks into the ring every few milliseconds and takes as much of a CPU as there are frames (`cpu_ns` of the report);
//! what the programs cost is in `docs/drops.md`. Nothing is changed that outlives the process.

mod beside;
mod describe;
mod file;
mod names;
mod sums;

use linux::observe::{DeadFrame, DropLosses, DropWatch, Flow, MOST_BYTES};
use linux::sys::{clock, netns, process};
use record::drops::{DeadFrameLine, DropsReport, DropsSecond};
use record::ledger::NamedCount;
use record::{Problem, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use beside::DeadFrames;
use describe::{Filter, describe};
use file::DeadFile;
use names::Names;
use sums::{Drivers, Sums, difference, meanings};

/// How long the reader sleeps when the ring is empty.
const TURN: Duration = Duration::from_millis(4);
/// Frames that are taken out of the ring at a time.
const BATCH: usize = 512;

/// What is to be done.
pub struct DropsWish {
    /// The namespaces with their names; none: all of the host.
    pub scope: Option<Vec<(String, OwnedFd)>>,
    /// A filter in tcpdump's language.
    pub filter: Option<String>,
    /// Only the frames of this flow of a test; not together with a filter.
    pub flow: Option<Flow>,
    /// Bytes of each frame that are kept.
    pub snap: u32,
    /// Bytes of the ring.
    pub ring_bytes: u32,
    /// Where the frames are written to, and whether a file there may be replaced.
    pub file: Option<(String, bool)>,
    /// End after that many frames.
    pub count: Option<u64>,
    /// End after that time.
    pub duration: Option<Duration>,
    /// How often [`DropsListener::interval`] is told; none: never.
    pub interval: Option<Duration>,
    /// Whether [`DropsListener::frame`] is told of every frame.
    pub frames: bool,
    /// Ends it when it is true; an interrupt is then left to whoever sets it.
    pub over: Option<Arc<AtomicBool>>,
}

impl DropsWish {
    /// Not every frame is wanted, so the kernel's sums are not those that are.
    fn is_choosy(&self) -> bool {
        self.filter.is_some() || self.flow.is_some() || self.count.is_some()
    }

    /// Why it was told to end, if it was.
    fn told_to_end(&self) -> Option<&'static str> {
        match &self.over {
            Some(over) => over.load(Ordering::Relaxed).then_some("over"),
            None if process::interrupted() => {
                process::forget_interrupt();
                Some("interrupted")
            }
            None => None,
        }
    }
}

/// Whether dying frames can be watched here.
///
/// # Errors
/// Host: not permitted, or the kernel does not show them.
pub fn check() -> Result<()> {
    const LEAST_RING: u32 = 4096;
    DropWatch::start(None, 0, LEAST_RING).map(drop).map_err(unwatched)
}

fn unwatched(absent: record::Witness) -> Problem {
    Problem::host(format!("dying frames cannot be watched here: {}", absent.why))
}

/// Who is told while it goes on. What returns false ends it: nobody reads any more.
pub trait DropsListener {
    /// From now on every frame that dies is counted.
    fn begun(&mut self) -> Result<()>;
    /// A frame died and passed the filter.
    fn frame(&mut self, frame: &DeadFrameLine) -> Result<bool>;
    /// An interval is over.
    fn interval(&mut self, second: &DropsSecond) -> Result<bool>;
}

/// Watches until its end and reports. Beside the report is why its file could not be written to the end, if so: that ends the watch, and
/// what was counted is told all the same.
///
/// # Errors
/// Input: the filter, the file. Host: not permitted here.
pub fn run(wish: DropsWish, listener: &mut dyn DropsListener) -> Result<(DropsReport, Option<Problem>)> {
    let mut watching = Watching::start(&wish)?;
    listener.begun()?;
    let ended = watching.watch(&wish, listener)?;
    watching.report(&wish, ended, listener)
}

/// What became of the buffers that were shown.
#[derive(Default)]
struct Shown {
    seen: u64,
    passed: u64,
    filtered: u64,
    cut: u64,
    parts: u64,
    not_frames: u64,
}

/// A running watch.
struct Watching {
    watch: DropWatch,
    names: Names,
    filter: Filter,
    file: Option<DeadFile>,
    /// Why the file could not be written any further.
    failed: Option<Problem>,
    shown: Shown,
    sums: Sums,
    drivers: Drivers,
    /// Realtime less monotonic time.
    epoch_ns: u64,
    begun: Instant,
    cpu_ns: u64,
    told: (Sums, u64),
}

impl Watching {
    fn start(wish: &DropsWish) -> Result<Watching> {
        let filter = Filter::of(wish)?;
        let scope = wish.scope.as_deref();
        let number = |(_, file): &(String, OwnedFd)| Ok(netns::inode(file.as_fd())? as u32);
        let numbers = scope.map(|scope| scope.iter().map(number).collect::<std::io::Result<Vec<u32>>>());
        let numbers = numbers
            .transpose()
            .map_err(|error| Problem::host(format!("a namespace cannot be read: {error}")))?;
        let file = wish
            .file
            .as_ref()
            .map(|(path, overwrite)| DeadFile::create(path, *overwrite, filter.words()))
            .transpose()?;
        let names = Names::of(scope);
        let drivers = Drivers::read(scope);
        let cpu_ns = clock::thread_cpu_ns();
        let watch = DropWatch::start(numbers.as_deref(), wish.snap.min(MOST_BYTES), wish.ring_bytes)
            .map_err(unwatched)?;
        let epoch_ns = clock::realtime_ns().saturating_sub(clock::monotonic_ns());
        let (shown, sums, told) = (Shown::default(), Sums::default(), (Sums::default(), 0));
        let begun = Instant::now();
        let failed = None;
        Ok(Watching {
            watch,
            names,
            filter,
            file,
            failed,
            shown,
            sums,
            drivers,
            epoch_ns,
            begun,
            cpu_ns,
            told,
        })
    }

    /// Takes frames until there is a reason to end.
    fn watch(&mut self, wish: &DropsWish, listener: &mut dyn DropsListener) -> Result<&'static str> {
        let until = wish.duration.map(|time| self.begun + time);
        let mut next = wish.interval.map(|interval| self.begun + interval);
        loop {
            if let Some(ended) = wish.told_to_end() {
                return Ok(ended);
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Ok("duration");
            }
            let taken = self.take(wish, listener)?;
            if let Some(ended) = taken.ended {
                return Ok(ended);
            }
            if self.failed.is_some() {
                return Ok("file");
            }
            if let (Some(at), Some(interval)) = (next, wish.interval)
                && now >= at
            {
                if !self.tell(wish, listener)? {
                    return Ok("reader_gone");
                }
                next = Some((at + interval).max(now));
            }
            if taken.frames == 0 {
                let end = [until, next].into_iter().flatten().min().unwrap_or(now + TURN);
                std::thread::sleep(end.saturating_duration_since(now).min(TURN));
            }
        }
    }

    /// Takes a batch out of the ring.
    fn take(&mut self, wish: &DropsWish, listener: &mut dyn DropsListener) -> Result<Taken> {
        let (mut ended, mut failed) = (None, None);
        let mut batch = vec![];
        let room = wish.count.map_or(BATCH, |count| BATCH.min((count - self.shown.passed) as usize));
        let frames = self.watch.read(room, |frame| {
            batch.push(frame);
            true
        });
        for frame in batch {
            match self.one(frame, wish, listener) {
                Ok(true) => {}
                Ok(false) => ended = Some("reader_gone"),
                Err(problem) => failed = Some(problem),
            }
        }
        if wish.count.is_some_and(|count| self.shown.passed >= count) {
            ended = ended.or(Some("count"));
        }
        failed.map_or(Ok(Taken { frames, ended }), Err)
    }

    /// Judges a frame and hands it on; false when nobody reads any more.
    fn one(&mut self, frame: DeadFrame, wish: &DropsWish, listener: &mut dyn DropsListener) -> Result<bool> {
        self.shown.seen += 1;
        if !DropWatch::is_frame(&frame.key) {
            self.shown.not_frames += 1;
            return Ok(true);
        }
        if self.sums.is_part(&self.watch, &frame.key) {
            self.shown.parts += 1;
            return Ok(true);
        }
        if self.names.learn(&frame) {
            self.sums.forget_rows();
        }
        if !self.filter.passes(&frame) {
            self.shown.filtered += 1;
            return Ok(true);
        }
        self.shown.passed += 1;
        // While it is there: its interfaces may be gone with it when the sums are told.
        self.names.node(&frame.key);
        self.shown.cut += u64::from((frame.bytes.len() as u32) < frame.length);
        self.sums.add(frame.key, u64::from(frame.segments), 1);
        if !wish.frames && self.file.is_none() {
            return Ok(true);
        }
        let row = self.sums.row(&self.watch, &mut self.names, &frame.key);
        let at_ns = frame.at_ns + self.epoch_ns;
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write(&frame, at_ns, row));
        let goes_on = if wish.frames { listener.frame(&describe(&frame, at_ns, row)) } else { Ok(true) };
        self.no_more_file(written);
        goes_on
    }

    /// What cannot be written any further is let go; the rest is counted.
    fn no_more_file(&mut self, written: Result<()>) {
        if let Err(problem) = written {
            (self.failed, self.file) = (Some(problem), None);
        }
    }

    /// The sums until now: the kernel's, or of a filter or a count those of the frames that were shown.
    fn sums(&self, wish: &DropsWish) -> Result<Sums> {
        if wish.is_choosy() {
            return Ok(self.sums.clone());
        }
        let counts = self.watch.counts().map_err(unreadable)?;
        Ok(Sums::of(counts.into_iter().filter(|one| self.is_wanted(one.key))))
    }

    fn is_wanted(&self, key: linux::observe::DeadKey) -> bool {
        DropWatch::is_frame(&key) && !self.watch.is_part(&key)
    }

    fn losses(&self) -> Result<DropLosses> {
        self.watch.losses().map_err(unreadable)
    }

    fn tell(&mut self, wish: &DropsWish, listener: &mut dyn DropsListener) -> Result<bool> {
        let (now, losses) = (self.sums(wish)?, self.losses()?);
        let grown = difference(&now, &self.told.0);
        let rows = grown.rows(&self.watch, &mut self.names);
        let second = DropsSecond {
            schema: "pathlab/drops-second/1".into(),
            seconds: self.begun.elapsed().as_secs_f64(),
            frames: rows.iter().map(|row| row.frames).sum(),
            total_frames: now.frames(),
            lost: losses.ring - self.told.1,
            rows,
        };
        self.told = (now, losses.ring);
        if let Some(file) = &mut self.file {
            let flushed = file.flush();
            self.no_more_file(flushed);
        }
        listener.interval(&second)
    }

    /// Ends the programs, takes what is left in the ring, and says everything.
    fn report(
        mut self,
        wish: &DropsWish,
        ended: &str,
        listener: &mut dyn DropsListener,
    ) -> Result<(DropsReport, Option<Problem>)> {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.watch.stop().map_err(unreadable)?;
        // A program that was running on another CPU when it was taken away is done after this.
        std::thread::sleep(TURN);
        let is_early = matches!(ended, "count" | "reader_gone");
        while !is_early && self.take(wish, listener)?.frames > 0 {}
        let (sums, losses) = (self.sums(wish)?, self.losses()?);
        let counts = self.watch.counts().map_err(unreadable)?;
        let buffers: u64 =
            counts.iter().filter(|one| !DropWatch::is_xdp(&one.key)).map(|one| one.buffers).sum();
        let unaccounted =
            (!is_early).then(|| (buffers + losses.no_room) as i64 - (self.shown.seen + losses.ring) as i64);
        let rows = sums.rows(&self.watch, &mut self.names);
        let left_out = [("parts", self.shown.parts), ("local_sockets", self.shown.not_frames)];
        let left_out = left_out.into_iter().filter(|(_, count)| *count > 0);
        let mut missing = self.watch.missing().to_vec();
        missing.extend(self.filter.missing.take());
        missing.extend(wish.scope.as_deref().map(names::gone).unwrap_or_default());
        let written = self.file.take().map(DeadFile::finish).transpose();
        let written = written.unwrap_or_else(|problem| {
            self.failed = Some(problem);
            None
        });
        let report = DropsReport {
            schema: "pathlab/drops/1".into(),
            seconds,
            ended: ended.into(),
            nodes: wish.scope.as_ref().map(|scope| scope.iter().map(|(name, _)| name.clone()).collect()),
            filter: self.filter.words(),
            frames: rows.iter().map(|row| row.frames).sum(),
            buffers: rows.iter().map(|row| row.buffers).sum(),
            meanings: meanings(&rows),
            rows,
            seen: self.shown.seen,
            filtered: self.shown.filtered,
            lost: losses.ring,
            unaccounted,
            cut: self.shown.cut,
            no_room: losses.no_room,
            hidden: losses.hidden,
            left_out: left_out.map(|(name, count)| NamedCount { name: name.into(), count }).collect(),
            drivers: self.drivers.moved(wish.scope.as_deref()),
            missing,
            written,
            cpu_ns: clock::thread_cpu_ns() - self.cpu_ns,
        };
        Ok((report, self.failed))
    }
}

/// What a look into the ring brought.
struct Taken {
    frames: usize,
    ended: Option<&'static str>,
}

fn unreadable(error: std::io::Error) -> Problem {
    Problem::host(format!("the counts of dying frames cannot be read: {error}"))
}

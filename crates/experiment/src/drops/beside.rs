//! The dead frames of one test, written to a file while it goes on.
//!
//! A thread of its own watches the nodes and keeps the frames of the test alone; what was lost on the way to it is counted in its report, as always.
//! A test that is given up leaves no file, nor does one of which nothing died.

use super::{DropsListener, DropsWish, run};
use linux::observe::Flow;
use record::drops::{DeadFrameLine, DropsReport, DropsSecond};
use record::{Problem, Result};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Bytes of the ring between the kernel and the thread.
const RING_BYTES: u32 = 16 << 20;

/// A running watch beside a test.
pub struct DeadFrames {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<DropsReport>>>,
    file: PathBuf,
}

impl DeadFrames {
    /// From now on every frame of that flow that dies at these nodes is counted and written to the file.
    ///
    /// # Errors
    /// Host: not permitted here, the file cannot be made.
    pub fn start(nodes: &[(String, BorrowedFd<'_>)], flow: &Flow, file: &Path) -> Result<DeadFrames> {
        let over = Arc::new(AtomicBool::new(false));
        let (ready, begun) = channel();
        let wish = wish(nodes, flow, file, &over)?;
        let watch =
            move || run(wish, &mut Begin(ready)).and_then(|(report, failed)| failed.map_or(Ok(report), Err));
        let thread = std::thread::spawn(watch);
        let mut watch = DeadFrames { over, thread: Some(thread), file: file.to_owned() };
        watch.wait(&begun)?;
        Ok(watch)
    }

    /// Waits until it watches; why it does not.
    fn wait(&mut self, begun: &Receiver<()>) -> Result<()> {
        match begun.recv() {
            Ok(()) => Ok(()),
            Err(_) => self.join().map(drop),
        }
    }

    fn join(&mut self) -> Result<DropsReport> {
        let ended = self.thread.take().map(JoinHandle::join);
        let died = || Problem::host("the thread that watched dying frames ended by itself");
        ended.and_then(|ended| ended.ok()).unwrap_or_else(|| Err(died()))
    }

    /// Ends it. The file is told by its name alone: it lies beside the record.
    ///
    /// # Errors
    /// Host: a full disk, counts that cannot be read.
    pub fn end(mut self) -> Result<DropsReport> {
        self.over.store(true, Ordering::Relaxed);
        let mut report = self.join()?;
        report.written = report.written.filter(|written| written.frames > 0);
        if let Some(written) = &mut report.written {
            written.file = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.file = PathBuf::new();
        }
        Ok(report)
    }
}

impl Drop for DeadFrames {
    /// Ends the thread; a file that is in no report goes.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if self.thread.is_some() {
            let _ = self.join();
        }
        if self.file != Path::new("") {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

fn wish(
    nodes: &[(String, BorrowedFd<'_>)],
    flow: &Flow,
    file: &Path,
    over: &Arc<AtomicBool>,
) -> Result<DropsWish> {
    let own = |(name, node): &(String, BorrowedFd<'_>)| Ok((name.clone(), node.try_clone_to_owned()?));
    let scope = nodes.iter().map(own).collect::<std::io::Result<Vec<_>>>();
    let unread = |error| Problem::host(format!("a namespace cannot be watched: {error}"));
    Ok(DropsWish {
        scope: Some(scope.map_err(unread)?),
        filter: None,
        flow: Some(flow.clone()),
        snap: linux::observe::MOST_BYTES,
        ring_bytes: RING_BYTES,
        file: Some((file.display().to_string(), false)),
        count: None,
        duration: None,
        interval: None,
        frames: false,
        over: Some(over.clone()),
    })
}

/// Says that it watches.
struct Begin(Sender<()>);

impl DropsListener for Begin {
    fn begun(&mut self) -> Result<()> {
        let _ = self.0.send(());
        Ok(())
    }

    fn frame(&mut self, _: &DeadFrameLine) -> Result<bool> {
        Ok(true)
    }

    fn interval(&mut self, _: &DropsSecond) -> Result<bool> {
        Ok(true)
    }
}

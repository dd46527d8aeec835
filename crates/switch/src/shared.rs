//! The pipeline that frames and controllers share, and the turns in which they get it.
//!
//! **What.** A [`SharedPipeline`] is one lock. [`SharedPipeline::lock`] is for whoever changes or reads,
//! [`SharedPipeline::lock_for_frames`] for a batch of frames.
//!
//! **Why.** A mutex of the standard library is not fair: a port's thread that has always the next batch takes
//! it again before a thread that was woken for it runs. So [`Turns`] makes whoever wants the pipeline take another lock first, and
//! give it back when he has it; and of the ports' threads only one at a time may ask. Whoever
//! changes rules waits for one batch of frames at most.
//!
//! **Price.** Three locks for a batch, of which two are free unless somebody waits.

use flow::pipeline::Pipeline;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many rules are megabytes.
pub(crate) const MANY_RULES: usize = 10_000;

/// A value behind a lock that nobody gets twice while another one waits for it.
#[derive(Debug, Default)]
pub(crate) struct Turns<T> {
    /// Who comes next.
    next: Mutex<()>,
    held: Mutex<T>,
}

impl<T> Turns<T> {
    /// Waits for the turn.
    pub(crate) fn enter(&self) -> MutexGuard<'_, T> {
        let _next = locked(&self.next);
        locked(&self.held)
    }
}

/// A pipeline behind a lock.
#[derive(Debug, Default)]
pub struct SharedPipeline {
    pipeline: Turns<Pipeline>,
    /// Which of the ports' threads asks for its turn.
    frames: Mutex<()>,
    /// No controller is there, and that means to be a bridge.
    bridging: AtomicBool,
}

/// The pipeline in the turn of a batch of frames.
pub struct FrameTurn<'a> {
    // Given back in this order.
    pipeline: MutexGuard<'a, Pipeline>,
    _turn: MutexGuard<'a, ()>,
}

impl Deref for FrameTurn<'_> {
    type Target = Pipeline;

    fn deref(&self) -> &Pipeline {
        &self.pipeline
    }
}

impl DerefMut for FrameTurn<'_> {
    fn deref_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }
}

impl SharedPipeline {
    /// Shares a pipeline.
    pub fn new(pipeline: Pipeline) -> SharedPipeline {
        let pipeline = Turns { held: Mutex::new(pipeline), ..Turns::default() };
        SharedPipeline { pipeline, ..SharedPipeline::default() }
    }

    /// The pipeline, for changing or reading it. A thread that panicked while it held the lock has not left
    /// half a change behind: every change is checked before it begins.
    pub fn lock(&self) -> MutexGuard<'_, Pipeline> {
        self.pipeline.enter()
    }

    /// The pipeline, for a batch of frames.
    pub fn lock_for_frames(&self) -> FrameTurn<'_> {
        let _turn = locked(&self.frames);
        FrameTurn { pipeline: self.lock(), _turn }
    }

    /// Be a learning bridge, or follow the rules.
    pub fn set_bridging(&self, on: bool) {
        self.bridging.store(on, Relaxed);
    }

    /// Whether it is a learning bridge.
    pub fn is_bridging(&self) -> bool {
        self.bridging.load(Relaxed)
    }
}

/// Takes a mutex, even if a thread panicked with it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

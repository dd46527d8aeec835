//! Knobs: settings that can be read and written, and what was changed of them.

use serde::{Deserialize, Serialize};

/// A knob as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KnobReading {
    /// Its name, with the part of the interface or machine that it is of: `ring.rx`, `rps_cpus@rx-0`, `sysctl net.core.rmem_max`.
    pub name: String,
    /// The interface that it is of; none of a namespace's or the machine's.
    pub interface: Option<String>,
    /// What it is set to.
    pub value: String,
    /// The highest number that the driver takes, where it says so.
    pub most: Option<u64>,
    /// Nothing can change it.
    pub fixed: bool,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// The knob was set so already: nothing was done.
    Already,
    /// It is as it was set.
    Set,
    /// It was put back.
    Undone,
    /// Somebody else has set it to something else since: it is left as it is.
    Foreign,
    /// What it is of is gone, or has another name.
    Gone,
}

/// A knob that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobChange {
    /// Its name.
    pub name: String,
    /// The interface that it is of; none of a namespace's or the machine's.
    pub interface: Option<String>,
    /// The network namespace, as it was called then; none of the machine's knobs.
    pub namespace: Option<String>,
    /// What it was before.
    pub was: String,
    /// What was asked for.
    pub wanted: String,
    /// What the kernel made of that.
    pub set: String,
    /// What it is now; none where it cannot be read.
    pub now: Option<String>,
    /// What became of it.
    pub state: ChangeState,
}

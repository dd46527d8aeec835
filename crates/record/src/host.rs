//! The machine that a run was made on: what a reader needs to trust or repeat a number.

use serde::{Deserialize, Serialize};

/// Facts about the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Kernel release, e.g. `6.18.44`.
    pub kernel: String,
    /// Architecture, e.g. `x86_64`.
    pub machine: String,
    /// CPU model name.
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Hypervisor flag of the CPU.
    pub virtual_machine: bool,
    /// Current clock source, e.g. `tsc`, `kvm-clock`.
    pub clock_source: String,
    /// Frequency governor of CPU 0, empty if there is none.
    pub governor: String,
    /// Timer frequency as far as known from the tick (`CLK_TCK`).
    pub tick_hz: u64,
    /// `net.core.*` settings and others that shape a path.
    pub settings: Vec<(String, String)>,
    /// Root, or root only in a user namespace.
    pub privilege: String,
    /// Load average over one minute before the run.
    pub load_average: f64,
    /// Pressure-stall share of CPU over ten seconds before the run, in percent, if the kernel tells.
    pub cpu_pressure: Option<f64>,
    /// pathlab's version.
    pub pathlab: String,
}

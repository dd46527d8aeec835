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
    /// Which machine it is, the same at every boot: a number made of `/etc/machine-id`, which itself is confidential (machine-id(5)); empty
    /// where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Which boot of it: `/proc/sys/kernel/random/boot_id`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Which build of the kernel: `/proc/sys/kernel/version`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel_version: String,
    /// What its user calls it (`PATHLAB_HOST_LABEL`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Interfaces of the namespace that the facts were read in, and of a run those of its lab's nodes; without loopbacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<HostInterface>,
}

/// An interface of a host, and who drives it; empty where the driver does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInterface {
    /// The node of a lab that it is in; empty for the namespace that the facts were read in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Its name.
    pub name: String,
    /// The driver, e.g. `ixgbe`, `veth`.
    pub driver: String,
    /// The driver's version; of those in the kernel mostly the kernel's.
    pub version: String,
    /// Version of the firmware.
    pub firmware: String,
    /// Where the device is on its bus.
    pub bus: String,
    /// Its offloads: `tso on`, `gro off`, …
    pub offloads: Vec<String>,
}

//! A virtual machine in which a command of this program is carried out: another kernel, with network cards that have drivers.
//!
//! **What.** [`VirtualMachine::run`] starts QEMU with a kernel of a distribution and a first file system of this program, its libraries and the
//! modules of the kernel; [`first_process`] is what runs there. The machine has pairs of network cards that are linked to each other
//! (*cables*), of which labs are built in place of veth pairs ([`crate::lab`]), and shares one folder
//! with the host. A card may also have a wire that leads out of the machine ([`Wire`]): then it is one of two hosts.
//!
//! **Why.** Bonds, VLANs, rings, interrupt moderation and hardware queues belong to drivers and modules that a namespace of the host does
//! not have. One machine with namespaces, and not one for each node: all that looks at a lab looks at one kernel, and works unchanged.
//!
//! **Price.** QEMU and a kernel with its modules. Seconds for the start, and without KVM a slow machine with a clock that is not to be
//! trusted: it says so with each figure. Nothing of it is on disk, and it ends with the process that started it.

mod channel;
mod host;
mod image;
mod init;
mod kernel;
mod orders;
mod wire;

pub use host::{ACCELERATORS, Accelerator, Heard, MOST_CABLES, MOST_CPUS, VirtualMachine, drives, memory_mb};
pub use init::first_process;
pub use kernel::{Kernel, VARIABLE};
pub use wire::{MOST_WIRES, Wire, WireEnd};

/// A model of network cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicModel {
    /// What it is called, which is its driver.
    pub word: &'static str,
    /// What QEMU calls it.
    device: &'static str,
    /// The kernel's module.
    module: &'static str,
}

/// The models that a machine may have; the first is the one that it has if none is said.
pub const NIC_MODELS: &[NicModel] = &[
    NicModel { word: "igb", device: "igb", module: "igb" },
    NicModel { word: "e1000e", device: "e1000e", module: "e1000e" },
    NicModel { word: "virtio", device: "virtio-net-pci", module: "virtio_net" },
    NicModel { word: "vmxnet3", device: "vmxnet3", module: "vmxnet3" },
];

/// The file of a machine that says what it is to do.
const ORDERS: &str = "/pathlab.orders";
/// The name of the serial port between machine and host.
const PORT: &str = "pathlab";
/// The tag of the shared folder.
const SHARED: &str = "pathlab";

/// The hardware address of a card: which cable, and which end of it. Locally administered, of the block that QEMU uses.
fn mac(cable: u8, end: u8) -> String {
    format!("52:54:00:70:{cable:02x}:{end:02x}")
}

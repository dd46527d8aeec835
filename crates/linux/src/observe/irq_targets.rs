//! Where the interrupts of an interface go: `/proc/irq/N/effective_affinity_list`.
//!
//! **Why not `smp_affinity_list`.** That is what was asked for; with MSI-X an interrupt fires on one of these CPUs, and only the
//! effective list says which.
//!
//! **Which.** Those of [`interrupts::is_of`]. A virtual interface (veth, bridge) has none: its frames are handed over in a soft interrupt of the CPU that sends.

use std::fs;
use std::path::Path;

use record::conditions::InterruptTarget;

use super::interrupts;

/// The interrupts of an interface whose `/proc` is below a root directory; with the `/sys` of the interface's namespace, where that is at hand.
pub fn of(root: &Path, sysfs: Option<&Path>, node: &str, interface: &str) -> Vec<InterruptTarget> {
    let device = sysfs.map(|sysfs| sysfs.join("class/net").join(interface).join("device"));
    let numbers = device.map(|device| interrupts::of_device(&device)).unwrap_or_default();
    let text = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let mut found = vec![];
    for one in interrupts::parse(&text) {
        if !interrupts::is_of(&one, &numbers, interface) {
            continue;
        }
        let list = root.join(format!("proc/irq/{}/effective_affinity_list", one.irq));
        if let Ok(cpus) = fs::read_to_string(list) {
            let (node, interface) = (node.to_owned(), interface.to_owned());
            let cpus = cpus.trim().to_owned();
            found.push(InterruptTarget { node, interface, irq: one.irq, name: one.name, cpus });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/interrupts",
            "      CPU0  CPU1\n 38: 5 0 PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0\n 61: 0 7 PCI-MSI 2-edge eth1-TxRx-0\n 62: 1 1 PCI-MSI 3-edge eth10-TxRx-0\n",
        );
        write("proc/irq/38/effective_affinity_list", "1\n");
        write("proc/irq/61/effective_affinity_list", "0-1\n");
        write("proc/irq/62/effective_affinity_list", "0\n");
        write("sys/class/net/eth0/device/msi_irqs/38", "msix\n");
        root
    }

    #[test]
    fn interrupts_are_found_by_device_and_by_name() {
        let root = root();
        let sysfs = root.path().join("sys");
        let shown = |interface, is_here: bool| -> Vec<(u32, String)> {
            let sysfs = is_here.then_some(sysfs.as_path());
            of(root.path(), sysfs, "host", interface).into_iter().map(|one| (one.irq, one.cpus)).collect()
        };
        assert_eq!(shown("eth0", true), [(38, "1".to_owned())]);
        assert_eq!(shown("eth0", false), [], "another namespace's eth0 is another interface");
        assert_eq!(shown("eth1", false), [(61, "0-1".to_owned())]);
        assert_eq!(shown("veth0", true), []);
    }
}

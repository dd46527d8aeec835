//! Interrupts: `/proc/interrupts`, and which of them belong to an interface.
//!
//! **What.** For each numbered interrupt its count on every CPU and the names of its handlers. A driver names its interrupts after
//! the interface (`eth0-TxRx-3`, `mlx5_comp3@pci:…`) or after its device (`virtio2-input.0`); the numbers of a PCI device are also
//! in `msi_irqs` of its folder in sysfs. Where they are, they alone count: an interface of another namespace may have the same name, and a
//! handler keeps the name that its interface had when it was taken up.
//!
//! **Why names at all.** The kernel tells which interrupt polls which NAPI instance only where the driver says so
//! (`netif_napi_set_irq`), which few do.

use std::fs;
use std::path::Path;

use record::llstat::{InterruptCount, InterruptRole};

/// Reads `/proc/interrupts`; rows of interrupts without a number (`LOC`, `NMI`) are passed over.
pub fn parse(text: &str) -> Vec<InterruptCount> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |head| head.split_ascii_whitespace().count());
    lines.filter_map(|line| parse_line(line, cpus)).collect()
}

fn parse_line(line: &str, cpus: usize) -> Option<InterruptCount> {
    let (number, rest) = line.split_once(':')?;
    let irq = number.trim().parse().ok()?;
    let mut words = rest.split_ascii_whitespace();
    let counts: Vec<u64> =
        words.by_ref().take(cpus).map(|word| word.parse().ok()).collect::<Option<Vec<_>>>()?;
    // The chip, the hardware's number with the trigger, and then who handles it; a device's name may have blanks.
    let rest: Vec<&str> = words.collect();
    let trigger = rest.iter().position(|word| word.ends_with("-edge") || word.ends_with("-level"));
    let names = rest.get(trigger.map_or(2, |place| place + 1)..).unwrap_or_default().join(" ");
    (counts.len() == cpus).then_some(InterruptCount { irq, name: names, cpus: counts })
}

/// What an interrupt is for, as far as the names of all interrupts of its interface say. One that is named like the interface alone, beside others
/// that have a queue behind that name, is for what else a card has to tell (igb, ixgbe: `eth0` beside `eth0-TxRx-0`).
pub fn role(one: &InterruptCount, of_interface: &[InterruptCount]) -> InterruptRole {
    let is_queue =
        |other: &InterruptCount| other.name.strip_prefix(&one.name).is_some_and(|rest| rest.starts_with('-'));
    if of_interface.iter().any(is_queue) { InterruptRole::Other } else { role_by_name(&one.name) }
}

fn role_by_name(name: &str) -> InterruptRole {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let receives = has(&["rx", "input"]);
    if !receives
        && has(&["config", "ctrl", "control", "mgmnt", "async", "adminq", "-aq", "misc", "event", "link"])
    {
        InterruptRole::Other
    } else if !receives && has(&["tx", "output"]) {
        InterruptRole::Transmit
    } else {
        InterruptRole::Receive
    }
}

/// The interrupts of an interface's device, by the device's folder in sysfs: its own, or of a virtio device those of the PCI device above.
/// Empty where they are not listed: no device, no message-signalled interrupts.
pub fn of_device(device: &Path) -> Vec<u32> {
    let list = |folder: &Path| fs::read_dir(folder.join("msi_irqs")).ok();
    // Above a PCI device is a bridge, which has interrupts of its own.
    let is_pci = fs::read_link(device.join("subsystem")).is_ok_and(|bus| bus.ends_with("pci"));
    let above = || (!is_pci).then(|| list(&device.join(".."))).flatten();
    let entries = list(device).or_else(above).into_iter().flatten().flatten();
    entries.filter_map(|one| one.file_name().to_str()?.parse().ok()).collect()
}

/// Whether an interrupt is the interface's: one of its device, and where those are not listed one whose handler is named after it.
pub fn is_of(one: &InterruptCount, of_device: &[u32], interface: &str) -> bool {
    match of_device {
        [] => is_named_after(&one.name, interface),
        listed => listed.contains(&one.irq),
    }
}

/// True when a handler is named after the interface: its name, and then no letter or digit.
fn is_named_after(names: &str, interface: &str) -> bool {
    names.split(", ").any(|name| {
        let rest = name.strip_prefix(interface);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
    })
}

/// The number at the end of a name, which is the queue's.
pub fn queue(name: &str) -> Option<u32> {
    let digits = name.len() - name.trim_end_matches(|one: char| one.is_ascii_digit()).len();
    name[name.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "           CPU0       CPU1       \n  0:         44          0   IO-APIC   2-edge      timer\n \
        38:          0       7171 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n \
        61:         12          3  IR-PCI-MSI 524289-edge      eth0-TxRx-1\n  \
        9:          0          5   IO-APIC   9-fasteoi   acpi, usb hub\n\
        NMI:          0          0   Non-maskable interrupts\nERR:          0\n";

    #[test]
    fn numbered_interrupts_are_read_with_their_names() {
        let found = parse(TEXT);
        let shown: Vec<_> =
            found.iter().map(|one| (one.irq, one.cpus.iter().sum::<u64>(), one.name.as_str())).collect();
        assert_eq!(
            shown,
            [
                (0, 44, "timer"),
                (38, 7171, "virtio2-input.0"),
                (61, 15, "eth0-TxRx-1"),
                (9, 5, "acpi, usb hub")
            ]
        );
    }

    #[test]
    fn a_name_says_what_for_and_for_whom() {
        let roles =
            ["virtio2-input.0", "virtio2-output.1", "virtio2-config", "eth0-TxRx-3", "eth0", "eth0-tx-0"];
        let expected = [
            InterruptRole::Receive,
            InterruptRole::Transmit,
            InterruptRole::Other,
            InterruptRole::Receive,
            InterruptRole::Receive,
            InterruptRole::Transmit,
        ];
        assert_eq!(roles.map(role_by_name), expected);
        let named = |name: &str| InterruptCount { irq: 1, name: name.into(), cpus: vec![] };
        let igb = [named("eth1"), named("eth1-TxRx-0")];
        let roles = igb.each_ref().map(|one| role(one, &igb));
        assert_eq!(roles, [InterruptRole::Other, InterruptRole::Receive]);
        assert_eq!(role(&igb[0], &igb[..1]), InterruptRole::Receive, "the only one of an older card");
        assert!(is_named_after("acpi, eth1-rx-0", "eth1") && is_named_after("eth1", "eth1"));
        assert!(!is_named_after("eth10-rx-0", "eth1"));
        assert_eq!(
            (queue("eth0-rx-12"), queue("virtio2-input.0"), queue("eth0x")),
            (Some(12), Some(0), None)
        );
    }

    #[test]
    fn what_the_device_lists_is_the_interfaces_and_names_count_without_a_list_only() {
        let found = parse(TEXT);
        let ours = |listed: &[u32], interface| -> Vec<u32> {
            found.iter().filter(|one| is_of(one, listed, interface)).map(|one| one.irq).collect()
        };
        assert_eq!(ours(&[38], "eth0"), [38], "eth0-TxRx-1 is of an eth0 in another namespace");
        assert_eq!(ours(&[], "eth0"), [61]);

        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| fs::create_dir_all(root.path().join(name)).unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.path().join(name)).unwrap();
        ["bus/msi_irqs/24", "bus/card/virtio2", "bus/other/msi_irqs/30", "bus/card/msi_irqs/38"]
            .into_iter()
            .for_each(folder);
        link("/sys/bus/virtio", "bus/card/virtio2/subsystem");
        link("/sys/bus/pci", "bus/other/subsystem");
        let listed = |name: &str| of_device(&root.path().join(name));
        assert_eq!((listed("bus/card/virtio2"), listed("bus/other")), (vec![38], vec![30]));
        folder("bus/old");
        link("/sys/bus/pci", "bus/old/subsystem");
        assert!(listed("bus/old").is_empty(), "24 is the bridge's");
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "(CPU0 CPU1\n)?([ 0-9:a-zA-Z-]{0,60}\n){0,5}") {
            parse(&text).iter().for_each(|one| _ = (role_by_name(&one.name), queue(&one.name)));
        }
    }
}

//! Facts of the device behind an interface: its bus, its interrupts, the counters of its driver.

use std::fs;
use std::path::{Path, PathBuf};

use record::facts::{Fact, Known};
use record::llstat::InterruptCount;

use super::files::{count, numbered, target, text, word, words};
use crate::netlink::Netlink;
use crate::observe::devlink::DevlinkDevice;
use crate::observe::interrupts;
use crate::observe::kernel_messages::{self, KernelMessages};
use crate::sys::packet::DriverInfo;
use crate::sys::{packet, ptp};

/// The driver whose cards can do little without a package of the firmware (ice README).
const NEEDS_PACKAGE: &str = "ice";
const HEALTH_ERRORS: &str = "devlink.health_errors";
const SCHEDULING_LAYERS: &str = "devlink.tx_scheduling_layers";
/// Facts that are sums of the driver's counters: a name, and the words that a counter's name has.
const SUMS: [(&str, &[&[&str]]); 5] = [
    ("rx.alloc_fail", &[&["rx", "alloc_fail"], &["rx", "alloc_err"]]),
    ("pfc.pauses", &[&["prio", "pause"], &["prio", "xoff"], &["_pb_", "pxoff"]]),
    ("pfc.discards", &[&["prio", "discard"]]),
    ("pci.stalls", &[&["pci_stalled", "_events"]]),
    ("allowance.exceeded", &[&["allowance_exceeded"]]),
];
/// What has such words and is a length of time, or an event of another kind (mlx5; i40e and ice).
const NO_COUNTS: [&str; 3] = ["_duration", "_transition", "xon_2_xoff"];
/// Reads them; an interface without a device has none.
pub(super) fn read(
    netlink: &mut Netlink,
    folder: &Path,
    is_card: bool,
    name: &str,
    interrupts: &[InterruptCount],
) -> Known {
    let device = folder.join("device");
    let mut known = driver_counters(name);
    let driver = target(&device.join("driver"));
    // What has no device, as a tap, has a driver of the kernel's own that tells its name (`ethtool -i`).
    let driver =
        driver.or_else(|| about(name).ok().map(|about| about.driver)).filter(|name| !name.is_empty());
    let driver = driver.unwrap_or_else(|| "none".into());
    let needs_package = driver == NEEDS_PACKAGE;
    known.insert("driver".into(), Fact::Text(driver));
    if !is_card {
        // Without a device there is nobody whom devlink could report.
        known.insert(HEALTH_ERRORS.into(), Fact::each([]));
        return known;
    }
    known.extend(devlink(netlink, &device));
    if needs_package {
        known.insert("ddp.safe_mode".into(), safe_mode(&device));
    }
    known.insert("firmware".into(), firmware(name));
    known.insert("phc.offset_ns".into(), clock_offset(&device));
    known.extend(bus(&device));
    known.extend(placement(&device, name, interrupts));
    known
}

/// What devlink tells of the device. Where the kernel or the driver has no devlink, nobody can report an error.
fn devlink(netlink: &mut Netlink, device: &Path) -> Known {
    let (Some(bus), Some(address)) = (target(&device.join("subsystem")), target(device)) else {
        let why = || Fact::unknown("the device cannot be found");
        return [HEALTH_ERRORS, SCHEDULING_LAYERS].map(|name| (name.to_owned(), why())).into();
    };
    let device = DevlinkDevice { bus, address };
    let refused = |error: std::io::Error| Fact::unknown(format!("devlink cannot be asked: {error}"));
    let errors = match device.health_errors(netlink) {
        Ok(errors) => {
            Fact::each(errors.into_iter().map(|(name, all)| (name, count(all))).collect::<Vec<_>>())
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Fact::each([]),
        Err(error) => refused(error),
    };
    let layers = match device.parameter(netlink, "tx_scheduling_layers") {
        Ok(layers) => layers.map_or_else(
            || Fact::unknown("devlink has no tx_scheduling_layers of it"),
            |layers| Fact::Number(layers as f64),
        ),
        Err(error) => refused(error),
    };
    Known::from([(HEALTH_ERRORS.to_owned(), errors), (SCHEDULING_LAYERS.to_owned(), layers)])
}

/// Whether the driver said that it runs without its package.
fn safe_mode(device: &Path) -> Fact {
    let Some(address) = target(device) else { return Fact::unknown("the device cannot be found") };
    match kernel_messages::read() {
        Ok(all) => safe_mode_of(&all, &address),
        Err(error) => {
            let why = record::problem::system_words(&error);
            Fact::unknown(format!("the kernel's messages cannot be read (CAP_SYSLOG): {why}"))
        }
    }
}

fn safe_mode_of(all: &KernelMessages, address: &str) -> Fact {
    let says = |text: &&String| text.contains(address) && text.to_ascii_lowercase().contains("safe mode");
    match all.texts.iter().any(|text| says(&text)) {
        true => Fact::Flag(true),
        false if all.is_whole => Fact::Flag(false),
        false => Fact::unknown("the kernel no longer has its first messages"),
    }
}

/// How far the card's clock is ahead of the system's, in nanoseconds. A reading less exact than what a rule asks for (1 µs) is told only where it is
/// beyond its error.
fn clock_offset(device: &Path) -> Fact {
    const EXACT_NS: i128 = 1000;
    let Some((number, _)) = numbered(&device.join("ptp"), "ptp").pop() else {
        return Fact::unknown("it has no clock");
    };
    let clock = PathBuf::from(format!("/dev/ptp{number}"));
    match ptp::offset(&clock) {
        Ok(read) if read.error_ns > EXACT_NS && read.offset_ns.abs() <= read.error_ns + EXACT_NS => {
            let exact = record::unit::time_ns(read.error_ns as f64);
            Fact::unknown(format!("its clock could be read to {exact} only"))
        }
        Ok(read) => Fact::Number(read.offset_ns as f64),
        Err(error) => {
            Fact::unknown(format!("{}: {}", clock.display(), record::problem::system_words(&error)))
        }
    }
}

/// What the driver says of itself.
fn about(name: &str) -> std::io::Result<DriverInfo> {
    packet::any_socket().and_then(|socket| packet::driver_info(&socket, name))
}

/// Version of the device's firmware, as its driver tells it.
fn firmware(name: &str) -> Fact {
    match about(name) {
        Ok(about) if about.firmware.is_empty() => Fact::Text("none".into()),
        Ok(about) => Fact::Text(about.firmware),
        Err(error) => Fact::unknown(format!("the driver cannot be asked for its firmware: {error}")),
    }
}

/// The device on its bus; of a virtio device the numbers are those of the PCI device above.
fn bus(device: &Path) -> Known {
    let kind = target(&device.join("subsystem")).unwrap_or_else(|| "none".into());
    let config = fs::read(device.join("config")).unwrap_or_default();
    let request = max_read_request(&config);
    Known::from([
        ("bus".into(), Fact::Text(kind)),
        ("pci.width".into(), word(&device.join("current_link_width"))),
        ("pci.max_width".into(), word(&device.join("max_link_width"))),
        ("pci.speed".into(), words(&device.join("current_link_speed"))),
        ("pci.max_speed".into(), words(&device.join("max_link_speed"))),
        ("pci.aer_correctable".into(), aer(&device.join("aer_dev_correctable"))),
        ("pci.ports".into(), ports(device)),
        (
            "pci.max_read_request".into(),
            request.map_or_else(|| Fact::unknown("the device's configuration cannot be read"), Fact::Number),
        ),
    ])
}

/// The sum at the end: `TOTAL_ERR_COR 3`.
fn aer(path: &Path) -> Fact {
    let total =
        |text: String| text.lines().find_map(|line| line.strip_prefix("TOTAL_ERR_COR ")?.trim().parse().ok());
    match text(path).map(total) {
        Ok(Some(errors)) => count(errors),
        Ok(None) => Fact::unknown("the device tells no sum of corrected errors"),
        Err(why) => Fact::unknown(why),
    }
}

/// Bytes of the largest read request, from the PCI Express capability (PCIe base specification 7.5.3.4).
fn max_read_request(config: &[u8]) -> Option<f64> {
    const CAPABILITIES: usize = 0x34;
    const EXPRESS: u8 = 0x10;
    let mut at = usize::from(*config.get(CAPABILITIES)?);
    for _ in 0..48 {
        if *config.get(at).filter(|_| at >= 0x40)? == EXPRESS {
            let control = u16::from_le_bytes([*config.get(at + 8)?, *config.get(at + 9)?]);
            return Some(f64::from(128u32 << (control >> 12 & 7)));
        }
        at = usize::from(*config.get(at + 1)?);
    }
    None
}

/// Functions of the same slot that have an interface.
fn ports(device: &Path) -> Fact {
    let Some(address) = target(device) else { return Fact::unknown("the device cannot be found") };
    let Some((slot, _)) = address.rsplit_once('.') else { return Fact::unknown("the device has no slot") };
    let bus = device.join("..");
    let functions = numbered(&bus, &format!("{slot}."));
    let functions = functions.into_iter().filter(|(_, name)| bus.join(name).join("net").exists());
    Fact::Number(functions.count().max(1) as f64)
}

/// Where the device is and where its interrupts come to.
fn placement(device: &Path, name: &str, all: &[InterruptCount]) -> Known {
    let folder = |file: &str| -> Option<PathBuf> {
        [device.join(file), device.join("..").join(file)].into_iter().find(|path| path.exists())
    };
    let node = folder("numa_node").map_or(Fact::Number(-1.0), |path| word(&path));
    let near = folder("local_cpulist").map(|path| words(&path)).filter(|fact| !fact.words().is_empty());
    let online = || words(Path::new("/sys/devices/system/cpu/online"));
    let numbers = interrupts::of_device(device);
    let ours: Vec<InterruptCount> =
        all.iter().filter(|one| interrupts::is_of(one, &numbers, name)).cloned().collect();
    let has_frames =
        |one: &&InterruptCount| interrupts::role(one, &ours) != record::llstat::InterruptRole::Other;
    let ours: Vec<&InterruptCount> = ours.iter().filter(has_frames).collect();
    let list = |irq: u32| words(Path::new(&format!("/proc/irq/{irq}/effective_affinity_list")));
    Known::from([
        ("numa_node".into(), node),
        ("local_cpus".into(), near.unwrap_or_else(online)),
        (
            "irq.affinity".into(),
            Fact::each(ours.iter().map(|one| (one.irq.to_string(), list(one.irq))).collect::<Vec<_>>()),
        ),
        (
            "irq.count".into(),
            Fact::each(
                ours.iter()
                    .map(|one| (one.irq.to_string(), count(one.cpus.iter().sum())))
                    .collect::<Vec<_>>(),
            ),
        ),
    ])
}

fn driver_counters(name: &str) -> Known {
    let socket = packet::any_socket();
    match socket.and_then(|socket| packet::driver_counters(&socket, name)) {
        Ok(all) => of_counters(&all),
        Err(error) => {
            let names = SUMS.iter().map(|(name, _)| *name).chain(["queue.rx_packets", "queue.tx_packets"]);
            let why = format!("the driver keeps no counters of its own ({error})");
            names.map(|name| (name.to_owned(), Fact::unknown(&why))).collect()
        }
    }
}

fn of_counters(all: &[(String, u64)]) -> Known {
    let is_one = |name: &str, sets: &[&[&str]]| {
        sets.iter().any(|words| words.iter().all(|word| name.contains(word)))
            && !NO_COUNTS.iter().any(|word| name.contains(word))
    };
    let sum = |(fact, sets): &(&str, &[&[&str]])| {
        let found: Vec<u64> =
            all.iter().filter(|(name, _)| is_one(name, sets)).map(|(_, value)| *value).collect();
        let none = || Fact::unknown("the driver does not count it");
        ((*fact).to_owned(), if found.is_empty() { none() } else { count(found.iter().sum()) })
    };
    let mut known: Known = SUMS.iter().map(sum).collect();
    for way in ["rx", "tx"] {
        let queues: Vec<(String, Fact)> =
            all.iter().filter_map(|(name, value)| Some((queue(name, way)?, count(*value)))).collect();
        let none = || Fact::unknown("the driver does not count frames by queue");
        known.insert(
            format!("queue.{way}_packets"),
            if queues.is_empty() { none() } else { Fact::each(queues) },
        );
    }
    known
}

/// The queue of a counter of frames: `rx_queue_3_packets`, `rx3_packets`, `rx-3.packets`.
fn queue(name: &str, way: &str) -> Option<String> {
    let rest = name.strip_prefix(way)?.strip_suffix("packets")?;
    let rest = rest.trim_start_matches(['_', '-', '.']);
    let rest = rest.strip_prefix("queue_").unwrap_or(rest);
    let digits = rest.trim_end_matches(['_', '-', '.']);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| format!("{way}-{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_drivers_say_which_queue_and_what() {
        for (name, way, expected) in [
            ("rx_queue_3_packets", "rx", Some("rx-3")),
            ("rx3_packets", "rx", Some("rx-3")),
            ("tx-11.packets", "tx", Some("tx-11")),
            ("rx_packets", "rx", None),
            ("rx_queue_0_xdp_packets", "rx", None),
        ] {
            assert_eq!(queue(name, way).as_deref(), expected, "{name}");
        }
        let all = [
            ("rx_prio3_pause", 2),
            ("rx_prio3_pause_duration", 7000),
            ("rx_prio3_discards", 5),
            ("rx_queue_0_packets", 9),
            ("outbound_pci_stalled_wr", 30),
        ];
        let known = of_counters(&all.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!((known["pfc.discards"].clone(), known["pfc.pauses"].clone()), (count(5), count(2)));
        assert!(known["pci.stalls"].why_unknown().is_some());
    }

    #[test]
    fn safe_mode_is_off_only_where_all_messages_are_there() {
        let all = |text: &str, is_whole| KernelMessages { texts: vec![text.into()], is_whole };
        let says = "ice 0000:01:00.0: The DDP package file was not found. Entering Safe Mode.";
        assert_eq!(safe_mode_of(&all(says, false), "0000:01:00.0"), Fact::Flag(true));
        assert_eq!(safe_mode_of(&all(says, true), "0000:02:00.0"), Fact::Flag(false));
        assert!(safe_mode_of(&all(says, false), "0000:02:00.0").why_unknown().is_some());
    }

    /// Also where `/sys` is reached by an opened file, through which no path can be made whole.
    #[test]
    fn ports_of_a_card_are_functions_of_its_slot_with_an_interface() {
        let folder = tempfile::tempdir().unwrap();
        let slots = folder.path().join("devices/pci0");
        for (function, inner) in [("0000:03:00.0", "net"), ("0000:03:00.1", "net"), ("0000:03:00.2", "usb")] {
            fs::create_dir_all(slots.join(function).join(inner)).unwrap();
        }
        fs::create_dir_all(slots.join("0000:04:00.0/net")).unwrap();
        let class = folder.path().join("class/eth0");
        fs::create_dir_all(&class).unwrap();
        std::os::unix::fs::symlink("../../devices/pci0/0000:03:00.1", class.join("device")).unwrap();
        assert_eq!(ports(&class.join("device")), Fact::Number(2.0));
        assert!(ports(&class).why_unknown().is_some());
    }

    #[test]
    fn the_read_request_is_found_in_the_list_of_capabilities() {
        let mut config = vec![0; 256];
        (config[0x34], config[0x40], config[0x41]) = (0x40, 0x05, 0x60);
        (config[0x60], config[0x68], config[0x69]) = (0x10, 0x10, 0x29);
        assert_eq!(max_read_request(&config), Some(512.0));
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..256), name in "(rx|tx)[a-z0-9_.]{0,20}") {
            let _ = (max_read_request(&noise), queue(&name, "rx"));
        }
    }
}

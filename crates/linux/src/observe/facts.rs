//! The machine that a run is made on: what a reader needs to trust or repeat a number.

use std::fs;

use nix::unistd::{SysconfVar, geteuid, sysconf};
use record::{HostFacts, HostInterface};

use crate::netlink::{LinkState, Netlink, OffloadFeature};
use crate::sys::packet;

/// Interfaces beyond these are left out: hosts of containers have thousands.
const MOST_INTERFACES: usize = 64;

/// Settings that shape a path, in the order in which they are written down. Those of a node's own namespace are read
/// in the namespace of the calling thread.
const SETTINGS: [&str; 25] = [
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.core.optmem_max",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.dev_weight",
    "net.core.default_qdisc",
    "net.core.somaxconn",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.rps_sock_flow_entries",
    "net.core.bpf_jit_enable",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "kernel.sched_rt_runtime_us",
    "kernel.perf_event_paranoid",
];

/// Reads the facts about this host. What cannot be read stays empty, zero or none.
pub fn host_facts() -> HostFacts {
    let cpuinfo = read("/proc/cpuinfo");
    HostFacts {
        kernel: read("/proc/sys/kernel/osrelease"),
        machine: std::env::consts::ARCH.to_owned(),
        cpu_model: colon_value(&cpuinfo, "model name").unwrap_or_default(),
        cpus: super::cpus::parse_stat(&read("/proc/stat")).len() as u32,
        memory_bytes: kilobytes(&read("/proc/meminfo"), "MemTotal"),
        virtual_machine: colon_value(&cpuinfo, "flags")
            .is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
        clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        tick_hz: tick_hz(),
        settings: SETTINGS.iter().filter_map(|name| setting(name)).collect(),
        privilege: privilege(geteuid().is_root(), &read("/proc/self/uid_map")).to_owned(),
        load_average: read("/proc/loadavg")
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0.0),
        cpu_pressure: pressure(&read("/proc/pressure/cpu")),
        pathlab: env!("CARGO_PKG_VERSION").to_owned(),
        id: host_id(&read("/etc/machine-id")),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        kernel_version: read("/proc/sys/kernel/version"),
        label: std::env::var("PATHLAB_HOST_LABEL").ok().filter(|label| !label.is_empty()),
        interfaces: interfaces_of(""),
    }
}

/// A number that stands for this machine and does not tell its id: FNV-1a of 64 bits, which every version of pathlab computes alike.
fn host_id(machine_id: &str) -> String {
    let mixed = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = format!("pathlab {machine_id}").bytes().fold(0xcbf2_9ce4_8422_2325, mixed);
    if machine_id.is_empty() { String::new() } else { format!("{hash:016x}") }
}

/// The interfaces of the calling thread's namespace, which is that node, with their drivers and offloads; an empty name for none.
pub fn interfaces_of(node: &str) -> Vec<HostInterface> {
    let mut netlink = Netlink::open();
    let socket = packet::any_socket();
    let links = netlink.links().unwrap_or_default();
    let links = links.into_iter().filter(|link| link.name != "lo").take(MOST_INTERFACES);
    let interface = |link: LinkState| {
        let about = socket.as_ref().ok().and_then(|socket| packet::driver_info(socket, &link.name).ok());
        let packet::DriverInfo { driver, version, firmware, bus, .. } = about.unwrap_or_default();
        let offloads = netlink.offloads(link.index).map(|on| OffloadFeature::states(&on));
        HostInterface {
            node: node.to_owned(),
            name: link.name,
            driver,
            version,
            firmware,
            bus,
            offloads: offloads.unwrap_or_default(),
        }
    };
    links.map(interface).collect()
}

/// The name of this host; empty where the kernel tells none.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Ticks per second of CPU times in `/proc`.
pub fn tick_hz() -> u64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|hz| u64::try_from(hz).ok()).unwrap_or(100)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim_end().to_owned()).unwrap_or_default()
}

fn setting(name: &str) -> Option<(String, String)> {
    let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    Some((name.to_owned(), value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")))
}

/// The value of the first line `name : value`.
pub(super) fn colon_value(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// The value of the first line `name : value kB` in bytes; zero where there is none.
pub(super) fn kilobytes(text: &str, name: &str) -> u64 {
    let value = colon_value(text, name).unwrap_or_default();
    value.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
}

/// The share of ten seconds in which some task waited for a CPU: `some avg10=1.23 …`.
fn pressure(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// Root of the host, root of a user namespace (where ids are mapped), or a user.
fn privilege(root: bool, uid_map: &str) -> &'static str {
    let whole = uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    match (root, whole) {
        (true, true) => "root",
        (true, false) => "root in a user namespace",
        (false, _) => "user",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privilege_tells_the_two_kinds_of_root_apart() {
        assert_eq!(privilege(true, "         0          0 4294967295"), "root");
        assert_eq!(privilege(true, "         0       1000          1"), "root in a user namespace");
        assert_eq!(privilege(false, "         0          0 4294967295"), "user");
    }

    #[test]
    fn a_host_has_one_id_that_does_not_tell_its_own() {
        assert_eq!(host_id(""), "");
        let id = host_id("0123456789abcdef0123456789abcdef");
        assert_eq!(id, host_id("0123456789abcdef0123456789abcdef"));
        assert_ne!(id, host_id("0123456789abcdef0123456789abcdee"));
        assert_eq!(id.len(), 16);
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        assert_eq!(
            colon_value("a\t: 1\nmodel name\t: AMD EPYC\n", "model name").as_deref(),
            Some("AMD EPYC")
        );
        assert_eq!(kilobytes("MemFree: 1 kB\nMemTotal:       2048 kB\n", "MemTotal"), 2 << 20);
        assert_eq!(pressure("some avg10=1.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00\n"), Some(1.5));
        assert_eq!(pressure(""), None);
    }

    #[test]
    fn this_host_has_facts() {
        let facts = host_facts();
        assert!(!facts.kernel.is_empty() && facts.cpus > 0 && facts.memory_bytes > 0 && facts.tick_hz > 0);
        assert!(!facts.privilege.is_empty());
    }
}

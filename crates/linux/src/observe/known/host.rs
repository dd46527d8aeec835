//! Facts of the host: CPUs and their power, clocks, memory, soft interrupts, daemons.

use std::fs;
use std::path::Path;

use record::facts::{Fact, Known};

use super::files::{chosen, count, counter, numbered, settings, text, word, words};
use crate::observe::facts::colon_value;
use crate::observe::{cpus, processes};

/// Settings of the host that no namespace has for itself.
const SETTINGS: [&str; 13] = [
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.dev_weight",
    "net.core.dev_weight_rx_bias",
    "net.core.netdev_tstamp_prequeue",
    "net.core.flow_limit_cpu_bitmap",
    "net.core.rps_sock_flow_entries",
    "kernel.osrelease",
    // These are read once more in each namespace that shows them.
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
];

/// Reads them below a root directory.
pub(super) fn read(root: &Path) -> Known {
    let mut known = settings(root, &SETTINGS);
    let cpu = root.join("sys/devices/system/cpu");
    let cpus = numbered(&cpu, "cpu");
    let each = |name: &str, of: &dyn Fn(&Path) -> Fact| {
        let place = |(number, folder): &(u32, String)| (number.to_string(), of(&cpu.join(folder).join(name)));
        Fact::each(cpus.iter().map(place).collect::<Vec<_>>())
    };
    let present = |found: bool| Fact::Text(if found { "yes" } else { "none" }.into());
    let mut know = |name: &str, fact: Fact| known.insert(name.into(), fact);
    know("cpus", Fact::Number(cpus.len() as f64));
    know("cpufreq", present(cpu.join("cpu0/cpufreq/scaling_governor").exists()));
    know("cpuidle", present(cpu.join("cpu0/cpuidle/state0").exists()));
    know("cpu.governor", each("cpufreq/scaling_governor", &words));
    know("cpu.epp", each("cpufreq/energy_performance_preference", &words));
    know("cpu.epb", each("power/energy_perf_bias", &word));
    know("cpu.min_perf_pct", word(&cpu.join("intel_pstate/min_perf_pct")));
    know("cpu.siblings", each("topology/thread_siblings_list", &words));
    know("cpu.throttle", each("thermal_throttle/core_throttle_count", &counter));
    know("cpu.smt", flag(&cpu.join("smt/active")));
    know(
        "clock.source",
        words(&root.join("sys/devices/system/clocksource/clocksource0/current_clocksource")),
    );
    know("mm.transparent_hugepage", chosen(&root.join("sys/kernel/mm/transparent_hugepage/enabled")));
    know("pci.aspm", chosen(&root.join("sys/module/pcie_aspm/parameters/policy")));
    know("kernel", words(&root.join("proc/sys/kernel/osrelease")));
    know("iommu", Fact::Text(iommu(root).into()));
    known.extend(virtualisation(root));
    known.extend(memory(root, &cpus));
    known.extend(idle_states(&cpu, &cpus));
    known.extend(times(root));
    known.insert("cpu.vulnerabilities".into(), vulnerabilities(&cpu));
    known.insert("cgroup.throttled".into(), throttled(&root.join("sys/fs/cgroup")));
    known
}

/// 0 or 1.
fn flag(path: &Path) -> Fact {
    text(path).map_or_else(Fact::unknown, |text| Fact::Flag(text == "1"))
}

fn virtualisation(root: &Path) -> Known {
    let told = text(&root.join("proc/cpuinfo")).map(|text| {
        let flags = colon_value(&text, "flags").unwrap_or_default();
        Fact::Flag(flags.split(' ').any(|flag| flag == "hypervisor"))
    });
    Known::from([("virtual".into(), told.unwrap_or_else(Fact::unknown))])
}

/// NUMA nodes, and the size of the last cache. A kernel without NUMA has one node and balances nothing.
fn memory(root: &Path, cpus: &[(u32, String)]) -> Known {
    let nodes = root.join("sys/devices/system/node");
    let cpu = root.join("sys/devices/system/cpu");
    let node = |(number, folder): &(u32, String)| {
        let own = numbered(&cpu.join(folder), "node");
        (number.to_string(), Fact::Number(own.first().map_or(0.0, |(node, _)| f64::from(*node))))
    };
    let balancing = root.join("proc/sys/kernel/numa_balancing");
    let balancing = if balancing.exists() { word(&balancing) } else { Fact::Number(0.0) };
    let cache = cpu.join("cpu0/cache");
    let sizes = numbered(&cache, "index").into_iter().filter_map(|(_, name)| {
        let text = text(&cache.join(name).join("size")).ok()?;
        text.strip_suffix('K')?.parse::<f64>().ok()
    });
    let last = sizes.fold(None, |most: Option<f64>, size| Some(most.map_or(size, |most| most.max(size))));
    Known::from([
        ("numa.nodes".into(), Fact::Number(numbered(&nodes, "node").len().max(1) as f64)),
        ("sysctl kernel.numa_balancing".into(), balancing),
        ("cpu.node".into(), Fact::each(cpus.iter().map(node).collect::<Vec<_>>())),
        (
            "cache.last_bytes".into(),
            last.map_or_else(
                || Fact::unknown("sysfs has no sizes of caches"),
                |size| Fact::Number(size * 1024.0),
            ),
        ),
    ])
}

/// Of each idle state of each CPU how long it takes to leave, and how often it was entered.
fn idle_states(cpu: &Path, cpus: &[(u32, String)]) -> Known {
    let (mut latency, mut usage) = (vec![], vec![]);
    for (number, folder) in cpus {
        let states = cpu.join(folder).join("cpuidle");
        for (_, state) in numbered(&states, "state") {
            let folder = states.join(state);
            let place = format!("{number}.{}", text(&folder.join("name")).unwrap_or_default());
            latency.push((place.clone(), word(&folder.join("latency"))));
            usage.push((place, counter(&folder.join("usage"))));
        }
    }
    Known::from([
        ("cpuidle.latency_us".into(), Fact::each(latency)),
        ("cpuidle.usage".into(), Fact::each(usage)),
    ])
}

/// What CPUs did, and what their soft interrupts did.
fn times(root: &Path) -> Known {
    let mut known = Known::new();
    let all = text(&root.join("proc/stat")).map(|text| cpus::parse_stat(&text));
    let of = |part: fn(&record::snapshot::CpuTime) -> u64| match &all {
        Ok(all) => Fact::each(all.iter().map(|cpu| (cpu.cpu.to_string(), count(part(cpu))))),
        Err(why) => Fact::unknown(why),
    };
    known.insert("cpu.steal".into(), of(|cpu| cpu.steal));
    known.insert("cpu.softirq".into(), of(|cpu| cpu.softirq));
    known.insert("cpu.busy".into(), of(|cpu| cpu.busy()));
    known.insert("cpu.total".into(), of(|cpu| cpu.total()));
    let rows = text(&root.join("proc/net/softnet_stat")).map(|text| cpus::parse_softnet(&text));
    let of = |part: fn(&record::snapshot::SoftnetRow) -> u64| match &rows {
        Ok(rows) => Fact::each(rows.iter().map(|row| (row.cpu.to_string(), count(part(row))))),
        Err(why) => Fact::unknown(why),
    };
    known.insert("softnet.processed".into(), of(|row| row.processed));
    known.insert("softnet.dropped".into(), of(|row| row.dropped));
    known.insert("softnet.squeezed".into(), of(|row| row.time_squeeze));
    known.insert("softnet.received_rps".into(), of(|row| row.received_rps));
    known.insert("softnet.flow_limit".into(), of(|row| row.flow_limit));
    known
}

fn vulnerabilities(cpu: &Path) -> Fact {
    let folder = cpu.join("vulnerabilities");
    let Ok(entries) = fs::read_dir(&folder) else {
        return Fact::unknown("sysfs has no cpu/vulnerabilities");
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Fact::each(names.map(|name| (name.clone(), words(&folder.join(name)))).collect::<Vec<_>>())
}

fn iommu(root: &Path) -> &'static str {
    let groups = root.join("sys/kernel/iommu_groups");
    let kinds: Vec<String> = numbered(&groups, "")
        .into_iter()
        .filter_map(|(_, name)| text(&groups.join(name).join("type")).ok())
        .collect();
    match kinds.iter().any(|kind| kind.starts_with("DMA")) {
        _ if kinds.is_empty() => "none",
        true => "translated",
        false => "passthrough",
    }
}

/// How often control groups of the first two levels were throttled.
fn throttled(root: &Path) -> Fact {
    let below = |folder: &Path| -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let first = below(root);
    let folders = first.iter().flat_map(|folder| below(folder)).chain(first.iter().cloned());
    let group = |folder: std::path::PathBuf| {
        let stat = text(&folder.join("cpu.stat")).ok()?;
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
        let name = folder.strip_prefix(root).ok()?.to_string_lossy().into_owned();
        Some((name, count(line.parse().ok()?)))
    };
    let found: Vec<_> = folders.filter_map(group).collect();
    if found.is_empty() {
        Fact::unknown("no control group tells how often it was throttled")
    } else {
        Fact::each(found)
    }
}

/// What processes did: threads of the kernel that poll, threads of programs, daemons that matter.
pub(super) fn processes(all: &[processes::HostProcess], threads: &[processes::HostProcess]) -> Known {
    let name = |thread: &processes::HostProcess| format!("{} ({})", thread.pid, thread.name);
    let polls = |thread: &processes::HostProcess| {
        Some((thread.name.strip_prefix("ksoftirqd/")?.to_owned(), count(thread.ticks)))
    };
    let balances = all.iter().any(|process| process.name == "irqbalance");
    // Threads of the kernel are no applications.
    let programs: Vec<_> = threads.iter().filter(|thread| !thread.name.contains('/')).collect();
    Known::from([
        ("ksoftirqd.ticks".into(), Fact::each(all.iter().filter_map(polls).collect::<Vec<_>>())),
        (
            "thread.ticks".into(),
            Fact::each(programs.iter().map(|one| (name(one), count(one.ticks))).collect::<Vec<_>>()),
        ),
        (
            "thread.cpu".into(),
            Fact::each(
                programs.iter().map(|one| (name(one), Fact::Number(f64::from(one.cpu)))).collect::<Vec<_>>(),
            ),
        ),
        ("daemon.irqbalance".into(), Fact::Text(if balances { "running" } else { "absent" }.into())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root directory with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_host_is_read_from_its_files_and_what_is_missing_says_why() {
        let cpu = "sys/devices/system/cpu/cpu0";
        let folder = root(&[
            (&format!("{cpu}/cpufreq/scaling_governor"), "powersave\n"),
            (&format!("{cpu}/cpuidle/state3/name"), "C6\n"),
            (&format!("{cpu}/cpuidle/state3/latency"), "133\n"),
            (&format!("{cpu}/cpuidle/state3/usage"), "42\n"),
            (&format!("{cpu}/cpuidle/state0/name"), "POLL\n"),
            (&format!("{cpu}/cache/index3/size"), "32768K\n"),
            ("sys/devices/system/cpu/smt/active", "1\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/iommu_groups/0/type", "DMA-FQ\n"),
            ("sys/fs/cgroup/system.slice/cpu.stat", "nr_periods 9\nnr_throttled 4\n"),
            ("proc/stat", "cpu  1 1 1 1\ncpu0 1 0 2 90 0 3 4 5 0 0\n"),
            ("proc/net/softnet_stat", "0000000a 00000002 00000001 0 0 0 0 0 0 00000003 00000004\n"),
            ("proc/sys/net/core/netdev_budget", "300\n"),
        ]);
        let known = read(folder.path());
        for (name, words) in [
            ("cpus", "1"),
            ("cpufreq", "yes"),
            ("cpu.governor", "0: powersave"),
            ("cpuidle.latency_us", "0.C6: 133"),
            ("cpu.smt", "on"),
            ("cache.last_bytes", "33554432"),
            ("mm.transparent_hugepage", "madvise"),
            ("iommu", "translated"),
            ("sysctl net.core.netdev_budget", "300"),
            ("sysctl kernel.numa_balancing", "0"),
        ] {
            let fact = &known[name];
            // A state without a latency is unknown by itself, and all of them are known only together.
            let shown = fact.words();
            assert!(shown.contains(words), "{name}: {shown}");
        }
        assert_eq!(known["softnet.dropped"], Fact::each([("0".to_owned(), count(2))]));
        assert_eq!(known["cpu.steal"], Fact::each([("0".to_owned(), count(5))]));
        assert_eq!(known["cgroup.throttled"], Fact::each([("system.slice".to_owned(), count(4))]));
        let why = known["cpuidle.latency_us"].why_unknown().unwrap();
        assert!(why.starts_with("0.POLL: ") && why.ends_with("there is no such file"), "{why}");
        assert!(
            known["cpu.throttle"].why_unknown().is_some() && known["clock.source"].why_unknown().is_some()
        );
        assert!(read(&folder.path().join("nowhere"))["cpu.steal"].why_unknown().is_some());
    }

    #[test]
    fn daemons_and_threads_are_told_apart() {
        let one = |pid, name: &str, ticks| processes::HostProcess {
            pid,
            name: name.into(),
            ticks,
            nice: 0,
            cpu: 1,
        };
        let all = [one(9, "ksoftirqd/1", 7), one(70, "irqbalance", 1), one(80, "iperf3", 50)];
        let known = processes(&all, &all);
        assert_eq!(known["ksoftirqd.ticks"], Fact::each([("1".to_owned(), count(7))]));
        assert_eq!(known["daemon.irqbalance"].words(), "running");
        assert!(known["thread.ticks"].words().contains("80 (iperf3): +0"));
        assert!(!known["thread.ticks"].words().contains("ksoftirqd"));
        assert_eq!(processes(&[], &[])["daemon.irqbalance"].words(), "absent");
    }
}

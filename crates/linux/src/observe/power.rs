//! What holds CPUs back: frequency governors, idle states, throttling by temperature (`/sys/devices/system/cpu`).
//!
//! **What.** Sums over the online CPUs: how many have which governor, how often each idle state was entered and how long leaving it takes
//! by the driver's table, how often a core or a package was throttled.
//!
//! **Price.** Some files for each CPU, all short. In a virtual machine most of them are absent: the frequency is the host's affair.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use record::conditions::IdleState;

/// Where the kernel shows them, below the root directory.
const CPUS: &str = "sys/devices/system/cpu";

/// The folders of the CPUs, in no order; none where they cannot be read.
fn folders(root: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root.join(CPUS)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_cpu(path))
}

fn is_cpu(path: &Path) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("cpu"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// Whether QEMU emulates the CPUs in software: its models say so in their name (`model name` of `/proc/cpuinfo`; target/i386/cpu.c of QEMU).
pub fn is_emulated(root: &Path) -> bool {
    let models = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    models.lines().any(|line| line.starts_with("model name") && line.contains("QEMU TCG"))
}

/// How many CPUs each frequency governor has; empty without `cpufreq`.
pub fn governors(root: &Path) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for governor in folders(root).filter_map(|cpu| text(&cpu.join("cpufreq/scaling_governor"))) {
        *found.entry(governor).or_default() += 1;
    }
    found
}

/// Idle states by name, all CPUs together, those that take least to leave first; empty without `cpuidle`.
pub fn idle_states(root: &Path) -> Vec<IdleState> {
    let mut found: BTreeMap<(u64, String), u64> = BTreeMap::new();
    for cpu in folders(root) {
        let states = fs::read_dir(cpu.join("cpuidle")).into_iter().flatten().flatten();
        for (name, exit_ns, entered) in states.filter_map(|entry| idle_state(&entry.path())) {
            let sum = found.entry((exit_ns, name)).or_default();
            *sum = sum.saturating_add(entered);
        }
    }
    let state = |((exit_ns, name), entered)| IdleState { name, exit_ns, entered };
    found.into_iter().map(state).collect()
}

/// Name, nanoseconds to leave, times entered.
fn idle_state(folder: &Path) -> Option<(String, u64, u64)> {
    let exit_us = number(&folder.join("latency"))?;
    Some((text(&folder.join("name"))?, exit_us.saturating_mul(1000), number(&folder.join("usage"))?))
}

/// How often cores and packages were throttled since boot, each CPU's counts added; none where nobody counts.
pub fn throttled(root: &Path) -> Option<u64> {
    let counts = folders(root).flat_map(|cpu| {
        ["core_throttle_count", "package_throttle_count"].map(|name| cpu.join("thermal_throttle").join(name))
    });
    counts.filter_map(|path| number(&path)).reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a new root.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(CPUS).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn an_emulated_cpu_says_so() {
        let of = |model: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("proc")).unwrap();
            fs::write(folder.path().join("proc/cpuinfo"), format!("processor\t: 0\nmodel name\t: {model}\n"))
                .unwrap();
            is_emulated(folder.path())
        };
        assert!(of("QEMU TCG CPU version 2.5+"));
        assert!(!of("AMD EPYC 7B13") && !of("QEMU Virtual CPU version 2.5+"));
    }

    #[test]
    fn governors_are_counted() {
        let files = [
            ("cpu0/cpufreq/scaling_governor", "performance\n"),
            ("cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("cpu10/cpufreq/scaling_governor", "performance\n"),
            ("cpufreq/scaling_governor", "not a cpu\n"),
        ];
        let expected = [("performance".to_owned(), 2), ("powersave".to_owned(), 1)].into();
        assert_eq!(governors(root(&files).path()), expected);
        assert!(governors(root(&[("cpu0/uevent", "")]).path()).is_empty());
    }

    #[test]
    fn idle_states_of_all_cpus_are_one() {
        let root = root(&[
            ("cpu0/cpuidle/state0/name", "POLL\n"),
            ("cpu0/cpuidle/state0/latency", "0\n"),
            ("cpu0/cpuidle/state0/usage", "5\n"),
            ("cpu0/cpuidle/state3/name", "C6\n"),
            ("cpu0/cpuidle/state3/latency", "133\n"),
            ("cpu0/cpuidle/state3/usage", "1000\n"),
            ("cpu1/cpuidle/state3/name", "C6\n"),
            ("cpu1/cpuidle/state3/latency", "133\n"),
            ("cpu1/cpuidle/state3/usage", "234\n"),
            ("cpu1/cpuidle/state4/name", "no latency\n"),
        ]);
        let seen: Vec<_> = idle_states(root.path());
        let shown: Vec<_> = seen.iter().map(|one| (one.name.as_str(), one.exit_ns, one.entered)).collect();
        assert_eq!(shown, [("POLL", 0, 5), ("C6", 133_000, 1234)]);
    }

    #[test]
    fn throttling_is_summed_and_absent_is_not_zero() {
        let files = [
            ("cpu0/thermal_throttle/core_throttle_count", "3\n"),
            ("cpu0/thermal_throttle/package_throttle_count", "4\n"),
            ("cpu1/thermal_throttle/core_throttle_count", "0\n"),
        ];
        assert_eq!(throttled(root(&files).path()), Some(7));
        assert_eq!(throttled(root(&[("cpu0/uevent", "")]).path()), None);
        assert_eq!(throttled(Path::new("/nosuch")), None);
    }
}

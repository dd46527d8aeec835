//! Settings about which goals, and those who give advice, do not agree.
//!
//! **Why.** A rule without a goal is wrong for somebody. What is set serves some goals and costs others; the report says which, and how this
//! program decides.

use super::Goal;
use record::facts::{Fact, Facts};
use serde::{Deserialize, Serialize};

/// Two pieces of advice about one setting.
#[derive(Debug)]
pub struct Conflict {
    /// The setting, as facts have it.
    pub knob: &'static str,
    /// For people.
    pub title: &'static str,
    /// One value, letters of the goals that want it, who says so.
    pub one: (&'static str, &'static str, &'static str),
    /// The other.
    pub other: (&'static str, &'static str, &'static str),
    /// What is done about it.
    pub resolution: &'static str,
}

/// All of them.
pub const CONFLICTS: &[Conflict] = &[
    Conflict {
        knob: "pause.rx",
        title: "pause frames",
        one: ("on", "T", "ESnet fasterdata, 100 Gbit/s"),
        other: ("off", "CRM", "netmap, Suricata, mlnx_tune for forwarding, Cloudflare"),
        resolution: "off in tests of loss and frame rates, or the pauses are told beside the result; on in a network that must not lose",
    },
    Conflict {
        knob: "coalesce.adaptive-rx",
        title: "adaptive moderation of interrupts",
        one: ("on", "T", "ESnet fasterdata, mlnx_tune for many streams"),
        other: ("off", "LCM", "Intel README, Suricata, mlnx_tune for one stream"),
        resolution: "a fixed value in measurements: an adaptive one differs from run to run",
    },
    Conflict {
        knob: "feature.rx-gro",
        title: "generic receive offload",
        one: ("on", "T", "ESnet fasterdata"),
        other: ("off", "CR", "mlnx_tune for forwarding, Suricata, netmap"),
        resolution: "on for throughput, off for forwarding and capture",
    },
    Conflict {
        knob: "ring.rx",
        title: "size of the receive ring",
        one: ("8192", "T", "ESnet fasterdata, mlnx_tune"),
        other: ("1024", "LC", "Suricata; netutils-linux: 2048 at most"),
        resolution: "as long as the longest stall that was measured (RNG-01), then a trial for the cache",
    },
    Conflict {
        knob: "channels.combined",
        title: "number of queues",
        one: ("one for each CPU", "L", "kernel, scaling.rst"),
        other: (
            "the smallest without overflow",
            "TC",
            "kernel, scaling.rst; Suricata: one unless the hash is symmetric",
        ),
        resolution: "a search for the smallest number that meets the goal",
    },
    Conflict {
        knob: "cpu.smt",
        title: "simultaneous multithreading",
        one: ("off", "TLM", "ESnet fasterdata"),
        other: ("on", "R", "i40e README, 64-byte frames"),
        resolution: "a trial",
    },
    Conflict {
        knob: "daemon.irqbalance",
        title: "irqbalance",
        one: ("absent", "MC", "kernel, scaling.rst"),
        other: ("running", "T", "distributions"),
        resolution: "stopped while something is measured",
    },
    Conflict {
        knob: "sysctl net.ipv4.tcp_timestamps",
        title: "TCP time stamps",
        one: ("1", "TM", "ESnet fasterdata"),
        other: ("0", "L", "Mellanox sysctl_perf_tuning, out of date"),
        resolution: "1",
    },
    Conflict {
        knob: "iommu",
        title: "IOMMU",
        one: ("translated", "M", "ESnet fasterdata: enable it"),
        other: ("passthrough", "TLR", "Intel"),
        resolution: "iommu=pt",
    },
    Conflict {
        knob: "sysctl net.core.rmem_default",
        title: "default receive buffer",
        one: ("as it is", "TLCRM", "kernel"),
        other: (
            "a quarter of rmem_max",
            "T",
            "fasterdata-tuning.sh: 512 MB for each socket at 100 Gbit/s, UDP's too",
        ),
        resolution: "never touched",
    },
    Conflict {
        knob: "sysctl net.core.netdev_max_backlog",
        title: "length of the backlog",
        one: ("250000", "T", "tuning scripts"),
        other: ("twice, when it drops", "L", "Red Hat"),
        resolution: "doubled only when the backlog drops (SOFT-01)",
    },
    Conflict {
        knob: "xps_cpus",
        title: "XPS in virtual machines",
        one: ("off", "T", "i40e README"),
        other: ("one CPU for each queue", "T", "kernel, scaling.rst"),
        resolution: "a trial",
    },
];

/// A conflict, with what is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoctorConflict {
    /// The setting.
    pub knob: String,
    /// For people.
    pub title: String,
    /// What it is set to, with the place.
    pub now: String,
    /// One piece of advice: value, for which goals, who says so.
    pub one: String,
    /// The other.
    pub other: String,
    /// What is done about it.
    pub resolution: String,
}

/// Those of which it is known what is set.
pub(super) fn of(facts: &Facts) -> Vec<DoctorConflict> {
    CONFLICTS.iter().filter_map(|conflict| shown(conflict, facts)).collect()
}

fn shown(conflict: &Conflict, facts: &Facts) -> Option<DoctorConflict> {
    let now = settings(facts, conflict.knob);
    let said = |(value, goals, who): (&str, &str, &str)| {
        let goals = Goal::ALL.iter().filter(|goal| goal.is_of(goals)).map(|goal| goal.word());
        format!("{value} for {} ({who})", goals.collect::<Vec<_>>().join(", "))
    };
    (!now.is_empty()).then(|| DoctorConflict {
        knob: conflict.knob.into(),
        title: conflict.title.into(),
        now: now.join(", "),
        one: said(conflict.one),
        other: said(conflict.other),
        resolution: conflict.resolution.into(),
    })
}

/// What a setting is at every place that tells, each value once.
fn settings(facts: &Facts, name: &str) -> Vec<String> {
    let known = |fact: Option<&Fact>| fact.filter(|fact| fact.why_unknown().is_none()).map(Fact::words);
    let mut found: Vec<String> = known(facts.host.get(name)).into_iter().collect();
    for node in facts.nodes.values() {
        found.extend(known(node.known.get(name)));
        let at = |(interface, all): (&String, _)| {
            Some(format!("{interface}: {}", known(record::Known::get(all, name))?))
        };
        found.extend(node.interfaces.iter().filter_map(at));
    }
    found.dedup();
    found
}

//! Rules about CPUs, power and the host (CPU-01 … CPU-13).

use super::look::{SATURATED, count, cpus_of_list, median, most, percent, ring_time_us, when};
use super::{Advice, At, DoctorRule};

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "CPU-01",
        goals: "TLCRM",
        at: At::Host,
        given: &[("cpufreq", "yes")],
        inputs: &["cpu.governor"],
        condition: "the governor of a CPU is not performance",
        meaning: "clocks ramp up during a test: results have two modes",
        advice: Advice::Knob("cpu.governor@*", "performance"),
        effect: "10 to 50 % more from a single flow, less variance",
        risk: "power, heat",
        source: "ESnet fasterdata; netmap README; tuned",
        look: |look| {
            let governors = look.texts("cpu.governor")?;
            let other: Vec<_> = governors.iter().filter(|(_, governor)| governor != "performance").collect();
            let Some((cpu, governor)) = other.first() else { return Ok(None) };
            let evidence = format!("{} of {} CPUs, CPU {cpu}: {governor}", other.len(), governors.len());
            when(true, 0.2 * other.len() as f64 / governors.len() as f64, evidence)
        },
    },
    DoctorRule {
        id: "CPU-02",
        goals: "TL",
        at: At::Host,
        given: &[("cpufreq", "yes")],
        inputs: &["cpu.epp|cpu.epb|cpu.min_perf_pct"],
        condition: "energy_perf_bias > 0, energy_performance_preference is not performance, or min_perf_pct < 100",
        meaning: "the firmware holds the clock down",
        advice: Advice::Run(
            "x86_energy_perf_policy performance",
            "x86_energy_perf_policy normal, or what it was",
        ),
        effect: "as of CPU-01",
        risk: "power",
        source: "tuned",
        look: |look| {
            let saving = |name: &str, odd: fn(&str) -> bool| {
                let places = look.texts(name).unwrap_or_default();
                let found = places.into_iter().find(|(_, text)| odd(text));
                found.map(|(cpu, text)| format!("{name} of CPU {cpu} is {text}"))
            };
            let least = look.number("cpu.min_perf_pct").ok().filter(|least| *least < 100.0);
            let said = saving("cpu.epp", |text| text != "performance")
                .or_else(|| saving("cpu.epb", |text| text != "0"))
                .or_else(|| least.map(|least| format!("intel_pstate/min_perf_pct is {least}")));
            when(said.is_some(), 0.1, said.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "CPU-03",
        goals: "LCT",
        at: At::Interface,
        given: &[("kind", "card"), ("cpuidle", "yes")],
        inputs: &[
            "cpuidle.latency_us",
            "cpuidle.usage",
            "stats.rx_missed_errors",
            "stats.rx_packets",
            "stats.rx_bytes",
            "ring.rx",
            "speed_mbps",
        ],
        condition: "an idle state that was entered takes longer to leave than half of the ring's time, and frames were missed",
        meaning: "waking up takes longer than the ring can hold: frames are lost while the CPU looks idle",
        advice: Advice::Run("cpupower idle-set -D 10", "cpupower idle-set -E"),
        effect: "no missed frames, 50 to 130 µs off the 99th percentile",
        risk: "10 to 40 W for each socket",
        source: "RHEL 10 guide ch. 3; Oracle note 2142951.1; Intel 700 series guide",
        look: |look| {
            let (ring_us, missed) = (ring_time_us(look)?, look.moved("stats.rx_missed_errors")?);
            let used = look.moves_by("cpuidle.usage")?;
            let mut states = look.numbers("cpuidle.latency_us")?;
            states.retain(|(state, _)| used.get(state).is_some_and(|entered| *entered > 0.0));
            let (state, latency_us) = most(&states);
            let all = missed + look.moved("stats.rx_packets")?;
            let evidence = format!(
                "idle state {state} takes {latency_us} µs to leave, the ring holds {ring_us:.0} µs, {} frames were missed",
                count(missed)
            );
            when(missed > 0.0 && latency_us > ring_us / 2.0, missed / all.max(1.0), evidence)
        },
    },
    DoctorRule {
        id: "CPU-04",
        goals: "M",
        at: At::Host,
        given: &[],
        inputs: &["clock.source"],
        condition: "the clock source is hpet, acpi_pm, jiffies or another slow one",
        meaning: "each time stamp costs 0.5 to 2 µs",
        advice: Advice::Run("boot with clocksource=tsc tsc=reliable", "boot without them"),
        effect: "time stamps cost a twentieth",
        risk: "wrong time where the TSC is not stable",
        source: "tuned; general knowledge",
        look: |look| {
            let source = look.text("clock.source")?;
            let fast = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
            when(!fast.contains(&source.as_str()), 0.1, format!("the clock source is {source}"))
        },
    },
    DoctorRule {
        id: "CPU-05",
        goals: "M",
        at: At::Host,
        given: &[],
        inputs: &["cpu.steal", "cpu.total"],
        condition: "steal > 0.5 % of the CPU time; from 2 % on figures are not valid",
        meaning: "the hypervisor took the CPU: figures are of the neighbour",
        advice: Advice::Say("pin the virtual CPUs, or measure on a host of its own; repeat"),
        effect: "",
        risk: "",
        source: "general knowledge",
        look: |look| {
            let share = look.moved("cpu.steal")? / look.moved("cpu.total")?.max(1.0);
            let invalid = if share > 0.02 { ": figures are not valid" } else { "" };
            when(share > 0.005, share, format!("{} of the CPU time was stolen{invalid}", percent(share)))
        },
    },
    DoctorRule {
        id: "CPU-06",
        goals: "TLC",
        at: At::Host,
        given: &[],
        inputs: &["cpu.softirq", "cpu.total"],
        condition: "one CPU spends more than 90 % in soft interrupts while the median is below 30 %",
        meaning: "flows, queues or interrupts are not spread over the CPUs",
        advice: Advice::Say("see IRQ-05, RSS-01 and RPS-01 of the interface that is busy"),
        effect: "frame rate times the balance",
        risk: "",
        source: "Suricata, analysis of performance",
        look: |look| {
            let shares = look.shares("cpu.softirq", "cpu.total")?;
            let ((cpu, share), middle) = (most(&shares), median(&shares));
            let evidence =
                format!("CPU {cpu}: {} in soft interrupts, the median {}", percent(share), percent(middle));
            when(shares.len() > 1 && share > SATURATED && middle < 0.3, 0.5, evidence)
        },
    },
    DoctorRule {
        id: "CPU-07",
        goals: "TL",
        at: At::Host,
        given: &[],
        inputs: &["ksoftirqd.ticks", "cpu.total"],
        condition: "a ksoftirqd runs for more than 20 % of the window",
        meaning: "soft interrupts are deferred to a thread that competes with applications",
        advice: Advice::Say("spread the queues; or threaded NAPI, pinned: pathlab tune set IF threaded=1"),
        effect: "shorter tails, fairness",
        risk: "longer times with threads that are not pinned",
        source: "kernel, networking/napi.rst",
        look: |look| {
            let shares = look.shares("ksoftirqd.ticks", "cpu.total")?;
            let (cpu, share) = most(&shares);
            when(share > 0.2, share / 2.0, format!("ksoftirqd/{cpu} ran for {}", percent(share)))
        },
    },
    DoctorRule {
        id: "CPU-08",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card|veth")],
        inputs: &[
            "netns",
            "thread.netns",
            "thread.busy_share",
            "stats.rx_bytes",
            "stats.tx_bytes",
            "speed_mbps",
        ],
        condition: "a thread with sockets of the interface's namespace uses 95 % of a CPU while the interface is below 90 % of its rate",
        meaning: "the application or its copies are the limit, not the network",
        advice: Advice::Say("more threads or streams, larger sends, zero copy, GSO and GRO"),
        effect: "up to the number of CPUs",
        risk: "",
        source: "ESnet fasterdata (≥ 3 GHz for 30 Gbit/s of one flow)",
        look: |look| {
            let (here, namespaces) = (look.text("netns")?, look.texts("thread.netns")?);
            let is_here = |thread: &str| namespaces.iter().any(|(one, at)| one == thread && *at == here);
            let mut busiest = look.numbers("thread.busy_share")?;
            busiest.retain(|(thread, _)| is_here(thread));
            let (thread, busy) = most(&busiest);
            let rate_bps = look.per_s("stats.rx_bytes")?.max(look.per_s("stats.tx_bytes")?) * 8.0;
            let line = rate_bps / (look.number("speed_mbps")? * 1e6).max(1.0);
            let evidence =
                format!("{thread} used {} of a CPU, the interface is at {}", percent(busy), percent(line));
            // A busy thread is of no interest to an interface without traffic.
            when(busy >= 0.95 && rate_bps > 1e8 && line < 0.9, 0.3 * (1.0 - line), evidence)
        },
    },
    DoctorRule {
        id: "CPU-09",
        goals: "LC",
        at: At::Interface,
        given: &[("cpu.smt", "on"), ("kind", "card")],
        inputs: &["cpu.siblings", "irq.affinity", "thread.cpu"],
        condition: "a busy thread runs on the sibling of a CPU that has the interface's interrupts",
        meaning: "both share one core: half the rate for each, and noise",
        advice: Advice::Run(
            "pin both to different cores, or: echo off > /sys/devices/system/cpu/smt/control",
            "echo on > /sys/devices/system/cpu/smt/control",
        ),
        effect: "less variance",
        risk: "fewer logical CPUs; i40e's README wants them for 64-byte frames: try both",
        source: "ESnet fasterdata against i40e README",
        look: |look| {
            let irqs: Vec<u32> =
                look.texts("irq.affinity")?.iter().flat_map(|(_, list)| cpus_of_list(list)).collect();
            let siblings = look.texts("cpu.siblings")?;
            let shared = look.numbers("thread.cpu")?.into_iter().find_map(|(thread, cpu)| {
                let (_, list) = siblings.iter().find(|(of, _)| *of == cpu.to_string())?;
                let other = cpus_of_list(list)
                    .into_iter()
                    .find(|one| f64::from(*one) != cpu && irqs.contains(one))?;
                Some(format!("{thread} runs on CPU {cpu}, interrupts come to its sibling {other}"))
            });
            when(shared.is_some(), 0.2, shared.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "CPU-10",
        goals: "L",
        at: At::Host,
        given: &[],
        inputs: &["sysctl kernel.numa_balancing", "numa.nodes", "mm.transparent_hugepage"],
        condition: "automatic NUMA balancing on more than one node, or transparent huge pages always",
        meaning: "pages migrate or are merged while a program waits",
        advice: Advice::Run(
            "sysctl kernel.numa_balancing=0; echo never > /sys/kernel/mm/transparent_hugepage/enabled",
            "sysctl kernel.numa_balancing={sysctl kernel.numa_balancing}; echo {mm.transparent_hugepage} > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        effect: "shorter extreme tails",
        risk: "slower programs that use much memory",
        source: "tuned, network-latency",
        look: |look| {
            let balances =
                look.number("sysctl kernel.numa_balancing")? != 0.0 && look.number("numa.nodes")? > 1.0;
            let huge = look.text("mm.transparent_hugepage")?;
            let evidence = match (balances, huge == "always") {
                (true, _) => "numa_balancing is on",
                _ => "transparent_hugepage is always",
            };
            when(balances || huge == "always", 0.03, evidence)
        },
    },
    DoctorRule {
        id: "CPU-11",
        goals: "M",
        at: At::Host,
        given: &[],
        inputs: &["cpu.throttle"],
        condition: "a CPU was throttled in the window",
        meaning: "the clock fell because of heat: the figures are not of this host",
        advice: Advice::Say("discard the figures; cool the host"),
        effect: "",
        risk: "",
        source: "general knowledge",
        look: |look| {
            let moves = look.moves("cpu.throttle")?;
            let (cpu, times) = most(&moves);
            when(times > 0.0, 0.3, format!("CPU {cpu} was throttled {} times", count(times)))
        },
    },
    DoctorRule {
        id: "CPU-12",
        goals: "M",
        at: At::Interface,
        given: &[],
        inputs: &["taps", "xdp"],
        condition: "a tap for all frames or an XDP program is on the interface",
        meaning: "the observer changes what it observes: a copy of every frame, or a program run for each",
        advice: Advice::Say("stop it, or write down that it was there: ss -0p, bpftool net"),
        effect: "",
        risk: "",
        source: "nettrace README (up to −80 %); iptraf-ng #33",
        look: |look| {
            let (taps, xdp) = (look.number("taps")?, look.text("xdp")?);
            let program = if xdp == "none" { String::new() } else { format!(", XDP program: {xdp}") };
            when(taps > 0.0 || xdp != "none", 0.1, format!("taps: {taps}{program}"))
        },
    },
    DoctorRule {
        id: "CPU-13",
        goals: "TRM",
        at: At::Host,
        given: &[],
        inputs: &["cpu.vulnerabilities", "peer.cpu.vulnerabilities"],
        condition: "mitigations differ from those of the other host",
        meaning: "the cost of indirect calls differs: 10 to 30 % of the frame rate",
        advice: Advice::Say("write it down beside both figures; do not compare them"),
        effect: "",
        risk: "",
        source: "general knowledge",
        look: |look| {
            let (ours, theirs) =
                (look.texts("cpu.vulnerabilities")?, look.texts("peer.cpu.vulnerabilities")?);
            let listed = |of: &[(String, String)], name: &str| {
                let found = of.iter().find(|(one, _)| one == name);
                found.map_or_else(|| "not listed".to_owned(), |(_, words)| words.clone())
            };
            // A kernel that does not know a weakness has nothing switched on against it.
            let same = |[one, other]: &[String; 2]| {
                let does_nothing = |words: &String| words == "Not affected" || words == "not listed";
                one == other || (does_nothing(one) && does_nothing(other))
            };
            let names = ours.iter().chain(&theirs).map(|(name, _)| name);
            let pairs = names.map(|name| (name, [listed(&ours, name), listed(&theirs, name)]));
            let differ = pairs.into_iter().find(|(_, words)| !same(words));
            let evidence = differ.map(|(name, [here, there])| format!("{name}: {here} here, {there} there"));
            when(evidence.is_some(), 0.1, evidence.unwrap_or_default())
        },
    },
];

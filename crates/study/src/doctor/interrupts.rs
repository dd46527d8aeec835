//! Rules about interrupts, NAPI and soft interrupts (IRQ-01 … IRQ-08, SOFT-01 … SOFT-09).

use super::look::{
    becomes, busiest, changed, count, cpus_of_list, cpus_of_mask, most, percent, ring_time_us, when,
};
use super::{Advice, At, DoctorRule};
use std::collections::BTreeMap;

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "IRQ-01",
        goals: "L",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["coalesce.rx-usecs", "coalesce.adaptive-rx"],
        condition: "adaptive moderation, or rx-usecs > 50",
        meaning: "moderation of interrupts adds up to rx-usecs to each round trip",
        advice: Advice::Knobs(&[("coalesce.adaptive-rx", "off"), ("coalesce.rx-usecs", "0")]),
        effect: "round trips shorter by rx-usecs",
        risk: "more interrupts, more CPU time",
        source: "ice and i40e README",
        look: |look| {
            let (usecs, adaptive) = (look.number("coalesce.rx-usecs")?, look.is_on("coalesce.adaptive-rx")?);
            let word = if adaptive { "adaptive" } else { "fixed" };
            // Against a round trip of 100 µs on a quiet network.
            let loss = (usecs / (usecs + 100.0)).max(if adaptive { 0.2 } else { 0.0 });
            when(adaptive || usecs > 50.0, loss, format!("rx-usecs {usecs}, {word}"))
        },
    },
    DoctorRule {
        id: "IRQ-02",
        goals: "TRC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["irq.count", "stats.rx_packets", "cpu.busy", "cpu.total"],
        condition: "more than 50,000 interrupts/s of a queue, or less than 4 frames for each on a CPU that is over 80 % busy",
        meaning: "the host spends its time on interrupts",
        advice: Advice::Knobs(&[("coalesce.adaptive-rx", "off"), ("coalesce.rx-usecs", "80")]),
        effect: "20 to 40 % less CPU time",
        risk: "80 µs more for a round trip",
        source: "ice README; llstat",
        look: |look| {
            let moves = look.moves("irq.count")?;
            let per_s = most(&moves).1 / look.seconds.max(1e-9);
            let interrupts: f64 = moves.iter().map(|(_, moved)| moved).sum();
            let frames = look.moved("stats.rx_packets")? / interrupts.max(1.0);
            let busy = busiest(look)?;
            let few = interrupts / look.seconds.max(1e-9) > 1000.0 && frames < 4.0 && busy > 0.8;
            let evidence = format!(
                "{} interrupts/s of a queue, {frames:.1} frames for each, the busiest CPU {}",
                count(per_s),
                percent(busy)
            );
            when(per_s > 50_000.0 || few, 0.3, evidence)
        },
    },
    DoctorRule {
        id: "IRQ-03",
        goals: "CT",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["coalesce.rx-usecs", "ring.rx", "speed_mbps", "stats.rx_packets", "stats.rx_bytes"],
        condition: "rx-usecs > half of the ring's time at line rate",
        meaning: "moderation alone can overflow the ring",
        advice: Advice::Knob("coalesce.rx-usecs", "NEW"),
        effect: "fewer missed frames",
        risk: "more CPU time",
        source: "arithmetic: slots × 8 × (frame + 20) / rate",
        look: |look| {
            let (usecs, ring_us) = (look.number("coalesce.rx-usecs")?, ring_time_us(look)?);
            let evidence = format!("rx-usecs {usecs}, the ring holds {ring_us:.0} µs at line rate");
            becomes(usecs > ring_us / 2.0, 0.4, evidence, (ring_us / 4.0).floor())
        },
    },
    DoctorRule {
        id: "IRQ-04",
        goals: "LT",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &[
            "irq.count",
            "stats.rx_packets",
            "napi_defer_hard_irqs",
            "gro_flush_timeout",
            "cpu.busy",
            "cpu.total",
        ],
        condition: "interrupt bound as in IRQ-02 and no deferral by software",
        meaning: "each few frames cost an interrupt",
        advice: Advice::Knobs(&[("napi_defer_hard_irqs", "2"), ("gro_flush_timeout", "20000")]),
        effect: "a half to a tenth of the interrupts",
        risk: "times longer by at most the timeout",
        source: "kernel, networking/napi.rst",
        look: |look| {
            let interrupts = look.moved("irq.count")?;
            let (per_s, busy) = (interrupts / look.seconds.max(1e-9), busiest(look)?);
            let frames = look.moved("stats.rx_packets")? / interrupts.max(1.0);
            let off = look.number("napi_defer_hard_irqs")? == 0.0 && look.number("gro_flush_timeout")? == 0.0;
            let evidence = format!(
                "{} interrupts/s, {frames:.1} frames for each, the busiest CPU {}",
                count(per_s),
                percent(busy)
            );
            when(off && per_s > 1000.0 && frames < 4.0 && busy > 0.8, 0.2, evidence)
        },
    },
    DoctorRule {
        id: "IRQ-05",
        goals: "TLC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["irq.affinity", "local_cpus"],
        condition: "two queue interrupts on one CPU while another CPU of the node has none",
        meaning: "queues share a CPU that need not",
        advice: Advice::Run(
            "set_irq_affinity -x local IF, or for each interrupt: echo CPU > /proc/irq/N/smp_affinity_list",
            "write back: {irq.affinity}",
        ),
        effect: "balanced soft interrupts",
        risk: "",
        source: "ice README; netutils-linux rss-ladder",
        look: |look| {
            let mut at: BTreeMap<u32, u32> = BTreeMap::new();
            for (_, list) in look.texts("irq.affinity")? {
                // One that may come to several CPUs comes to one of them; which, nobody knows.
                if let [cpu] = cpus_of_list(&list)[..] {
                    *at.entry(cpu).or_default() += 1;
                }
            }
            let local = cpus_of_list(&look.text("local_cpus")?);
            let free: Vec<&u32> = local.iter().filter(|cpu| !at.contains_key(cpu)).collect();
            let crowded = at.iter().find(|(_, queues)| **queues > 1);
            let evidence = crowded.map(|(cpu, queues)| {
                format!("{queues} queue interrupts on CPU {cpu}, {} local CPUs have none", free.len())
            });
            when(evidence.is_some() && !free.is_empty(), 0.3, evidence.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "IRQ-06",
        goals: "TLC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["irq.affinity", "numa_node", "cpu.node"],
        condition: "a queue interrupt on a CPU of another NUMA node",
        meaning: "every frame crosses between sockets; direct cache access is lost",
        advice: Advice::Run("set_irq_affinity -x local IF", "write back: {irq.affinity}"),
        effect: "10 to 40 % more frames, shorter times",
        risk: "",
        source: "Suricata; mlnx_tune",
        look: |look| {
            let node = look.number("numa_node")?;
            let nodes: BTreeMap<String, f64> = look.numbers("cpu.node")?.into_iter().collect();
            let affinity = look.texts("irq.affinity")?;
            let remote = affinity.iter().find_map(|(irq, list)| {
                let away = |cpu: &u32| nodes.get(&cpu.to_string()).is_some_and(|other| *other != node);
                let cpu = cpus_of_list(list).into_iter().find(away)?;
                Some(format!("interrupt {irq} comes to CPU {cpu}, the card is at node {node}"))
            });
            when(node >= 0.0 && remote.is_some(), 0.25, remote.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "IRQ-07",
        goals: "MC",
        at: At::Host,
        given: &[],
        inputs: &["daemon.irqbalance"],
        condition: "irqbalance runs",
        meaning: "it moves interrupts during a measurement, and away from where they were pinned",
        advice: Advice::Run("systemctl stop irqbalance", "systemctl start irqbalance"),
        effect: "placement that stays",
        risk: "other interrupts are not balanced",
        source: "kernel, networking/scaling.rst; irqbalance(1)",
        look: |look| {
            let state = look.text("daemon.irqbalance")?;
            when(state != "absent", 0.05, format!("irqbalance: {state}"))
        },
    },
    DoctorRule {
        id: "IRQ-08",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["irq.affinity", "changed"],
        condition: "the placement of an interrupt changed in the window",
        meaning: "half of the figures are of another placement",
        advice: Advice::Say("discard the figures and repeat; see IRQ-07"),
        effect: "",
        risk: "",
        source: "mlx5 counter ch_aff_change",
        look: |look| changed(look, &["irq.affinity"]),
    },
    DoctorRule {
        id: "SOFT-01",
        goals: "TCR",
        at: At::Host,
        given: &[],
        inputs: &["softnet.dropped", "softnet.processed", "sysctl net.core.netdev_max_backlog"],
        condition: "a backlog dropped frames",
        meaning: "the backlog of a CPU (RPS, veth, loopback, tunnels) was full",
        advice: Advice::Knob("sysctl net.core.netdev_max_backlog", "NEW"),
        effect: "no drops there",
        risk: "longer queues, memory",
        source: "Red Hat; netdata",
        look: |look| {
            let dropped = look.moves("softnet.dropped")?;
            let ((cpu, most), all) = (most(&dropped), look.moved("softnet.dropped")?);
            let share = all / (all + look.moved("softnet.processed")?).max(1.0);
            let limit = look.number("sysctl net.core.netdev_max_backlog")?;
            let evidence = format!(
                "{} frames dropped ({}), most at CPU {cpu}: {}; the backlog holds {limit}",
                count(all),
                percent(share),
                count(most)
            );
            // A loss of frames costs a TCP stream more than those frames.
            becomes(all > 0.0, (share * 10.0).max(0.05), evidence, limit * 2.0)
        },
    },
    DoctorRule {
        id: "SOFT-02",
        goals: "TCR",
        at: At::Host,
        given: &[],
        inputs: &["squeezed.budget", "squeezed.time", "sysctl net.core.netdev_budget"],
        condition: "more than 10 squeezes/s, 80 % of them because the budget of frames was used up",
        meaning: "the poll loop is cut off by its budget",
        advice: Advice::Knob("sysctl net.core.netdev_budget", "NEW"),
        effect: "fewer rounds of soft interrupts",
        risk: "programs wait longer",
        source: "kernel, sysctl/net.rst and net/core/dev.c",
        look: |look| {
            let (budget, time) = (look.per_s("squeezed.budget")?, look.per_s("squeezed.time")?);
            let now = look.number("sysctl net.core.netdev_budget")?;
            let evidence = format!(
                "{} squeezes/s, {} of them because of netdev_budget {now}",
                count(budget + time),
                percent(budget / (budget + time).max(1e-9))
            );
            becomes(budget + time > 10.0 && budget >= 0.8 * (budget + time), 0.05, evidence, now * 2.0)
        },
    },
    DoctorRule {
        id: "SOFT-03",
        goals: "TCR",
        at: At::Host,
        given: &[],
        inputs: &["squeezed.budget", "squeezed.time", "sysctl net.core.netdev_budget_usecs"],
        condition: "more than 10 squeezes/s, and more than 20 % of them because the time was used up",
        meaning: "frames are expensive (rules, taps), or two ticks are too short",
        advice: Advice::Knob("sysctl net.core.netdev_budget_usecs", "NEW"),
        effect: "fewer rounds; find what frames cost with perf",
        risk: "others wait longer",
        source: "kernel, sysctl/net.rst and net/core/dev.c",
        look: |look| {
            let (budget, time) = (look.per_s("squeezed.budget")?, look.per_s("squeezed.time")?);
            let now = look.number("sysctl net.core.netdev_budget_usecs")?;
            let evidence = format!(
                "{} squeezes/s, {} of them because of netdev_budget_usecs {now}",
                count(budget + time),
                percent(time / (budget + time).max(1e-9))
            );
            becomes(budget + time > 10.0 && time > 0.2 * (budget + time), 0.05, evidence, now * 2.0)
        },
    },
    DoctorRule {
        id: "SOFT-04",
        goals: "TC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["polls.full_run", "ring.rx"],
        condition: "as many full polls in a row as fill the ring: ring / 64",
        meaning: "the receive ring has surely overflowed",
        advice: Advice::Say("see RNG-01; more queues"),
        effect: "fewer missed frames",
        risk: "",
        source: "napi_monitor.bt of xdp-project",
        look: |look| {
            let (run, ring) = (look.number("polls.full_run")?, look.number("ring.rx")?);
            let evidence =
                format!("{run} full polls in a row, a ring of {ring} holds {}", (ring / 64.0).ceil());
            when(run >= (ring / 64.0).max(1.0), 0.2, evidence)
        },
    },
    DoctorRule {
        id: "SOFT-05",
        goals: "LC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &[
            "stall.p99_us",
            "stall.most_us",
            "ring.rx",
            "speed_mbps",
            "stats.rx_packets",
            "stats.rx_bytes",
        ],
        condition: "from interrupt to poll: the 99th percentile longer than half of the ring's time, or anything above 2 ms",
        meaning: "something keeps soft interrupts from running (interrupts off, another driver)",
        advice: Advice::Say("find what ran meanwhile (softirqslower, perf), keep it from this CPU"),
        effect: "no drops without a cause",
        risk: "",
        source: "softirq_net_latency.bt of xdp-project; bcc softirqslower",
        look: |look| {
            let (often, longest) = (look.number("stall.p99_us")?, look.number("stall.most_us")?);
            let ring_us = ring_time_us(look)?;
            let evidence = format!(
                "interrupt to poll: p99 {often:.0} µs, longest {longest:.0} µs; the ring holds {ring_us:.0} µs"
            );
            when(often > ring_us / 2.0 || longest > 2000.0, 0.2, evidence)
        },
    },
    DoctorRule {
        id: "SOFT-06",
        goals: "C",
        at: At::Host,
        given: &[],
        inputs: &["softnet.flow_limit", "softnet.processed"],
        condition: "the flow limit of RPS dropped frames",
        meaning: "a large flow is dropped in favour of small ones",
        advice: Advice::Knob("sysctl net.core.flow_limit_cpu_bitmap", "0"),
        effect: "the large flow is captured whole",
        risk: "small flows suffer",
        source: "kernel, networking/scaling.rst",
        look: |look| {
            let (limited, all) = (look.moved("softnet.flow_limit")?, look.moved("softnet.processed")?);
            when(
                limited > 0.0,
                limited / (limited + all).max(1.0),
                format!("{} frames dropped by the flow limit", count(limited)),
            )
        },
    },
    DoctorRule {
        id: "SOFT-07",
        goals: "L",
        at: At::Node,
        given: &[("tcp.connections", "some")],
        inputs: &["sysctl net.core.busy_read", "TcpExt.BusyPollRxPackets", "tcp.rtt_us"],
        condition: "no busy polling, and a connection whose round trips are so short (below 200 µs) that waking up counts",
        meaning: "sleeping and interrupts cost 5 to 20 µs of each answer",
        advice: Advice::Knob("sysctl net.core.busy_read", "50"),
        effect: "5 to 20 µs less",
        risk: "a CPU at 100 %",
        source: "kernel, sysctl/net.rst (recommends 50)",
        look: |look| {
            let off = look.number("sysctl net.core.busy_read")? == 0.0
                && look.moved("TcpExt.BusyPollRxPackets")? == 0.0;
            let times = look.numbers("tcp.rtt_us")?;
            let shortest = times.iter().filter(|(_, us)| *us > 0.0).min_by(|a, b| a.1.total_cmp(&b.1));
            let evidence =
                shortest.map(|(who, us)| format!("{who}: round trips of {us:.0} µs, none was polled for"));
            let loss = shortest.map_or(0.0, |(_, us)| 10.0 / (us + 10.0));
            when(
                off && shortest.is_some_and(|(_, us)| *us < 200.0),
                loss.min(0.2),
                evidence.unwrap_or_default(),
            )
        },
    },
    DoctorRule {
        id: "SOFT-08",
        goals: "R",
        at: At::Host,
        given: &[],
        inputs: &[
            "softnet.received_rps",
            "softnet.processed",
            "softnet.squeezed",
            "sysctl net.core.dev_weight",
            "sysctl net.core.dev_weight_rx_bias",
        ],
        condition: "most frames come by RPS while polls are squeezed, and both have the same weight",
        meaning: "backlogs compete with the driver for the budget",
        advice: Advice::Knob("sysctl net.core.dev_weight_rx_bias", "2"),
        effect: "rare",
        risk: "",
        source: "kernel, sysctl/net.rst",
        look: |look| {
            let share = look.moved("softnet.received_rps")? / look.moved("softnet.processed")?.max(1.0);
            let (squeezed, bias) =
                (look.per_s("softnet.squeezed")?, look.number("sysctl net.core.dev_weight_rx_bias")?);
            let weight = look.number("sysctl net.core.dev_weight")?;
            let evidence = format!(
                "RPS wakes for {} of the frames, {} squeezes/s, weight {weight} × {bias}",
                percent(share),
                count(squeezed)
            );
            when(share > 0.2 && squeezed > 10.0 && bias <= 1.0, 0.03, evidence)
        },
    },
    DoctorRule {
        id: "SOFT-09",
        goals: "LTM",
        at: At::Interface,
        given: &[],
        inputs: &["sysctl net.core.netdev_tstamp_prequeue", "rps_cpus", "cpu.busy", "cpu.total"],
        condition: "with RPS: time stamps taken behind its queue, or before it by a CPU that is over 90 % busy",
        meaning: "receive time stamps have the backlog's delay in them; or the interrupt's CPU makes them for all",
        advice: Advice::Knob("sysctl net.core.netdev_tstamp_prequeue", "NEW"),
        effect: "true receive times (1), or less for the interrupt's CPU (0)",
        risk: "with 0 time stamps have the delay of the backlog",
        source: "kernel, sysctl/net.rst",
        look: |look| {
            let before = look.is_on("sysctl net.core.netdev_tstamp_prequeue")?;
            let steers = look.texts("rps_cpus")?.iter().any(|(_, mask)| cpus_of_mask(mask) > 0);
            let busy = busiest(look)?;
            let evidence = format!(
                "RPS is on, netdev_tstamp_prequeue {}, the busiest CPU {}",
                u8::from(before),
                percent(busy)
            );
            becomes(steers && (!before || busy > 0.9), 0.02, evidence, u8::from(!before))
        },
    },
];

//! Rules about links, PCIe and drivers (LNK-01 … DRV-05).

use super::look::{Look, Missing, any_moved, busiest, count, most, percent, uneven, when};
use super::{Advice, At, DoctorRule};

/// `16.0 GT/s PCIe` as a number.
fn giga_transfers(look: &Look<'_>, name: &str) -> Result<f64, Missing> {
    let text = look.text(name)?;
    let number = text.split(' ').next().and_then(|word| word.parse().ok());
    number.ok_or_else(|| format!("{name}: '{text}' is no speed"))
}

/// What a PCIe link carries, in Gbit/s: transfers × lanes × coding, 85 % of which is data.
fn pci_gbps(look: &Look<'_>) -> Result<f64, Missing> {
    let speed = giga_transfers(look, "pci.speed")?;
    let coding = if speed < 8.0 { 0.8 } else { 128.0 / 130.0 };
    Ok(speed * look.number("pci.width")? * coding * 0.85)
}

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "LNK-01",
        goals: "TM",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["duplex", "speed_mbps", "speed.max_mbps"],
        condition: "half duplex, or a speed below what both ends can",
        meaning: "the link was negotiated down, or one end was forced",
        advice: Advice::Run(
            "ethtool -s IF autoneg on",
            "ethtool -s IF speed {speed_mbps} duplex {duplex} autoneg off",
        ),
        effect: "the full rate",
        risk: "the link flaps",
        source: "NDT",
        look: |look| {
            let (duplex, speed) = (look.text("duplex")?, look.number("speed_mbps")?);
            if duplex == "half" {
                return when(true, 0.8, format!("{speed} Mbit/s, half duplex"));
            }
            let max = look.number("speed.max_mbps")?;
            when(speed < max, 1.0 - speed / max.max(1.0), format!("{speed} of {max} Mbit/s, {duplex} duplex"))
        },
    },
    DoctorRule {
        id: "LNK-02",
        goals: "TCM",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["pause.rx", "pause.frames_received"],
        condition: "pause frames came",
        meaning: "receiver or switch holds us back: the rate is theirs, and losses are hidden",
        advice: Advice::Knob("pause.rx", "off"),
        effect: "real losses can be seen; leave it on in a network that must not lose",
        risk: "drops appear; i40e warns of hanging when it is switched under load",
        source: "netmap README (off) against ESnet fasterdata (on)",
        look: |look| {
            let frames = look.moved("pause.frames_received")?;
            when(
                frames > 0.0,
                0.3,
                format!("{} pause frames received, pause.rx {}", count(frames), look.text("pause.rx")?),
            )
        },
    },
    DoctorRule {
        id: "LNK-03",
        goals: "M",
        at: At::Interface,
        given: &[],
        inputs: &["stats.rx_crc_errors", "stats.rx_frame_errors", "carrier.changes"],
        condition: "frames with a wrong checksum, or the carrier came and went",
        meaning: "of a card: a bad cable or transceiver; else the other end was switched off or taken away",
        advice: Advice::Say(
            "of a card: replace cable or transceiver, or another FEC mode; else look for what switched it off",
        ),
        effect: "the loss is gone",
        risk: "",
        source: "kernel, if_link.h",
        look: |look| {
            any_moved(look, &["stats.rx_crc_errors", "stats.rx_frame_errors", "carrier.changes"], 0.5)
        },
    },
    DoctorRule {
        id: "LNK-04",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["pfc.pauses", "pfc.discards"],
        condition: "pauses or discards of priorities",
        meaning: "priority flow control stops traffic: a storm or a deadlock",
        advice: Advice::Say("correct the map of priorities (DCB)"),
        effect: "",
        risk: "",
        source: "ice README, DCB",
        look: |look| any_moved(look, &["pfc.pauses", "pfc.discards"], 0.3),
    },
    DoctorRule {
        id: "LNK-05",
        goals: "L",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["eee.enabled", "speed_mbps"],
        condition: "energy efficient Ethernet is on at 10 Gbit/s or less",
        meaning: "the link sleeps: 10 to 100 µs to wake up",
        advice: Advice::Knob("eee.enabled", "off"),
        effect: "shorter tails",
        risk: "power",
        source: "i40e counters; general knowledge",
        look: |look| {
            let (on, speed) = (look.is_on("eee.enabled")?, look.number("speed_mbps")?);
            when(on && speed <= 10_000.0, 0.15, format!("EEE is on at {speed} Mbit/s"))
        },
    },
    DoctorRule {
        id: "PCI-01",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card"), ("bus", "pci")],
        inputs: &["pci.width", "pci.max_width", "pci.speed", "pci.max_speed"],
        condition: "the card's link is narrower or slower than the card can",
        meaning: "slot, riser or firmware limits it",
        advice: Advice::Say("move the card to another slot"),
        effect: "the card's full rate",
        risk: "the host is down meanwhile",
        source: "mlnx_tune; i40e README; sqlpassion (x4 gen 2: 11 of 40 Gbit/s)",
        look: |look| {
            let (width, wide) = (look.number("pci.width")?, look.number("pci.max_width")?);
            let (speed, fast) = (giga_transfers(look, "pci.speed")?, giga_transfers(look, "pci.max_speed")?);
            let part = width * speed / (wide * fast).max(1e-9);
            when(part < 1.0, 1.0 - part, format!("x{width} of x{wide}, {speed} of {fast} GT/s"))
        },
    },
    DoctorRule {
        id: "PCI-02",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card"), ("bus", "pci")],
        inputs: &["pci.width", "pci.speed", "speed_mbps", "pci.ports"],
        condition: "the slot carries less than 1.2 times the card's ports",
        meaning: "the slot is the limit (gen 3 x8: 50 Gbit/s of data)",
        advice: Advice::Say("another slot, or fewer ports of this card"),
        effect: "",
        risk: "",
        source: "arithmetic: GT/s × lanes × coding × 0.85",
        look: |look| {
            let (slot, line) =
                (pci_gbps(look)?, look.number("speed_mbps")? * look.number("pci.ports")? / 1000.0);
            when(
                slot < 1.2 * line,
                1.0 - slot / (1.2 * line),
                format!("the slot carries {slot:.0} Gbit/s, the ports {line} Gbit/s"),
            )
        },
    },
    DoctorRule {
        id: "PCI-03",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card"), ("bus", "pci")],
        inputs: &["pci.max_read_request", "speed_mbps"],
        condition: "read requests of less than 512 bytes at 25 Gbit/s or more",
        meaning: "the card waits for its reads of memory",
        advice: Advice::Say("the vendor's tool, or setpci on the device control register"),
        effect: "a few percent",
        risk: "instability",
        source: "mlnx_tune",
        look: |look| {
            let (bytes, speed) = (look.number("pci.max_read_request")?, look.number("speed_mbps")?);
            when(
                bytes < 512.0 && speed >= 25_000.0,
                0.05,
                format!("MaxReadReq {bytes} at {} Gbit/s", speed / 1000.0),
            )
        },
    },
    DoctorRule {
        id: "PCI-04",
        goals: "CT",
        at: At::Interface,
        given: &[("kind", "card"), ("bus", "pci")],
        inputs: &["pci.aer_correctable|pci.stalls", "cpu.busy", "cpu.total"],
        condition: "the card counts stalls of PCIe, or the bus corrected errors",
        meaning: "back pressure of the bus: IOMMU, memory of another node, a bad slot",
        advice: Advice::Say("memory and CPUs of the card's node, iommu=pt, relaxed ordering"),
        effect: "fewer drops",
        risk: "isolation (iommu)",
        source: "ice README; mlx5 counter outbound_pci_stalled_wr_events",
        look: |look| {
            // Few drivers count stalls.
            let told = [("pci.aer_correctable", "corrected errors"), ("pci.stalls", "stalls")];
            let told = told.map(|(name, words)| look.moved(name).ok().map(|moved| (moved, words)));
            let told: Vec<(f64, &str)> = told.into_iter().flatten().collect();
            let words: Vec<String> =
                told.iter().map(|(moved, words)| format!("{} {words}", count(*moved))).collect();
            let evidence = format!("{}, the busiest CPU {}", words.join(", "), percent(busiest(look)?));
            when(told.iter().any(|(moved, _)| *moved > 0.0), 0.2, evidence)
        },
    },
    DoctorRule {
        id: "PCI-05",
        goals: "T",
        at: At::Host,
        given: &[("iommu", "translated|strict")],
        inputs: &["perf.iommu_share"],
        condition: "the IOMMU translates, and its functions take over 5 % of the CPU time",
        meaning: "buffers are mapped and unmapped for every frame",
        advice: Advice::Run("boot with iommu=pt", "boot without it"),
        effect: "10 to 30 % more",
        risk: "weaker isolation",
        source: "i40e README; ESnet fasterdata",
        look: |look| {
            let share = look.number("perf.iommu_share")?;
            let found = when(share > 0.05, share, format!("{} in functions of the IOMMU", percent(share)))?;
            Ok(found.map(|found| found.of_busiest(look)))
        },
    },
    DoctorRule {
        id: "PCI-06",
        goals: "TL",
        at: At::Host,
        given: &[("virtual", "off")],
        inputs: &["pci.aspm"],
        condition: "the policy of PCIe's power states is not performance",
        meaning: "the slot's link sleeps and wakes up",
        advice: Advice::Run(
            "echo performance > /sys/module/pcie_aspm/parameters/policy",
            "echo {pci.aspm} > /sys/module/pcie_aspm/parameters/policy",
        ),
        effect: "shorter tails; for nodes per socket see the vendor's guide",
        risk: "power",
        source: "AMD EPYC guide 56739; Broadcom UG601",
        look: |look| {
            let policy = look.text("pci.aspm")?;
            when(policy != "performance", 0.03, format!("pcie_aspm policy {policy}"))
        },
    },
    DoctorRule {
        id: "DRV-01",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card"), ("driver", "ice")],
        inputs: &["ddp.safe_mode", "firmware"],
        condition: "the driver runs in safe mode: no DDP package",
        meaning: "one queue, no RSS, no features",
        advice: Advice::Say("install the DDP package of the driver's version, reload the driver"),
        effect: "",
        risk: "",
        source: "ice README",
        look: |look| {
            when(look.is_on("ddp.safe_mode")?, 0.7, format!("safe mode, firmware {}", look.text("firmware")?))
        },
    },
    DoctorRule {
        id: "DRV-02",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card|tun")],
        inputs: &["driver|firmware|kernel", "peer.driver|peer.firmware|peer.kernel"],
        condition: "driver, firmware or kernel differ from those of the other end",
        meaning: "a comparison of the two compares more than what was meant",
        advice: Advice::Say("make both ends equal"),
        effect: "",
        risk: "",
        source: "general knowledge",
        look: |look| {
            let both = |name| Some((name, look.text(name).ok()?, look.text(&format!("peer.{name}")).ok()?));
            // A tap has no firmware.
            let told: Vec<_> = ["driver", "firmware", "kernel"].into_iter().filter_map(both).collect();
            if told.is_empty() {
                return Err("driver, firmware, kernel: the two ends tell none in common".into());
            }
            let differ = told.into_iter().filter(|(_, ours, theirs)| ours != theirs);
            let differ: Vec<String> =
                differ.map(|(name, ours, theirs)| format!("{name} {ours}, there {theirs}")).collect();
            when(!differ.is_empty(), 0.1, differ.join("; "))
        },
    },
    DoctorRule {
        id: "DRV-03",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card"), ("driver", "ice")],
        inputs: &["devlink.tx_scheduling_layers", "queue.tx_packets"],
        condition: "nine layers of the transmit scheduler, over 8 busy queues, and one with four times the share",
        meaning: "the scheduler's tree is not balanced",
        advice: Advice::Run(
            "devlink dev param set pci/… name tx_scheduling_layers value 5 cmode permanent, then a power cycle",
            "the same with value 9",
        ),
        effect: "equal shares",
        risk: "fewer levels of quality of service",
        source: "ice README",
        look: |look| {
            let (layers, mut queues) =
                (look.number("devlink.tx_scheduling_layers")?, look.moves("queue.tx_packets")?);
            queues.retain(|(_, frames)| *frames > 0.0);
            let ratio = uneven(&queues);
            let evidence = format!(
                "{layers} layers, {} busy queues, {} has {ratio:.1} times the mean",
                queues.len(),
                most(&queues).0
            );
            when(layers == 9.0 && queues.len() > 8 && ratio >= 2.5, 0.2, evidence)
        },
    },
    DoctorRule {
        id: "DRV-04",
        goals: "M",
        at: At::Interface,
        given: &[],
        inputs: &["tx_timeout", "devlink.health_errors"],
        condition: "a transmit timeout, or an error that devlink reports",
        meaning: "the card hung or was reset in the window",
        advice: Advice::Say("discard the figures; update driver and firmware"),
        effect: "",
        risk: "",
        source: "general knowledge",
        look: |look| {
            let (timeouts, errors) = (look.moved("tx_timeout")?, look.moved("devlink.health_errors")?);
            when(
                timeouts + errors > 0.0,
                0.5,
                format!("{} timeouts, {} errors", count(timeouts), count(errors)),
            )
        },
    },
    DoctorRule {
        id: "DRV-05",
        goals: "M",
        at: At::Interface,
        given: &[],
        inputs: &["counters.backwards"],
        condition: "a counter went backwards",
        meaning: "the driver has reset its counters (i40e: when promiscuous mode is switched): differences mean nothing",
        advice: Advice::Say("read again; take what it was about as unknown"),
        effect: "",
        risk: "",
        source: "i40e README",
        look: |look| {
            let back = look.texts("counters.backwards")?;
            let words: Vec<String> =
                back.iter().take(4).map(|(name, words)| format!("{name} {words}")).collect();
            when(!back.is_empty(), 0.3, words.join(", "))
        },
    },
];

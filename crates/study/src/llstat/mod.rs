//! From two readings of an interface to what `pathlab llstat` says.
//!
//! **What.** [`report`] subtracts, and says of everything that is not there why. **Why here.** It sees only readings, so fixtures
//! test it, and a watch on another host says the same. [`text`] says it to people.

pub mod text;

use record::Delta;
use record::buckets::Buckets;
use record::llstat::{
    InterruptRole, LlstatCost, LlstatEvents, LlstatFacts, LlstatInterrupt, LlstatPoller, LlstatProgram,
    LlstatReport, LlstatSoftnet, Napi, PollCounts, Reading, Throughput,
};
use record::snapshot::{Counters, SoftnetRow};
use std::collections::BTreeMap;

/// Slots that are no NAPI instance's: what they are called.
const SLOTS: [&str; 3] = ["other", "transmit", "backlog"];
/// Counters that say what moved, not what was lost.
const NO_DROPS: [&str; 8] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "multicast",
    "rx_compressed",
    "tx_compressed",
    "collisions",
];

/// What happened between two readings.
pub fn report(
    facts: &LlstatFacts,
    before: &Reading,
    after: &Reading,
    begun_ns: u64,
    ended: &str,
) -> LlstatReport {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let (from_ns, to_ns) = (before.at_ns, after.at_ns);
    let lasted_s = seconds(to_ns.saturating_sub(from_ns));
    let polls = after.polls.as_ref().zip(before.polls.as_ref()).and_then(|(now, then)| since(now, then));
    let moved = |name: &str| moved(&before.counters, &after.counters, name);
    let [receive, transmit] = ["rx", "tx"]
        .map(|way| throughput(moved(&format!("{way}_packets")), moved(&format!("{way}_bytes")), lasted_s));
    let interrupts = interrupts(facts, before, after, lasted_s);
    let pollers = polls.as_ref().map(|polls| pollers(facts, polls)).unwrap_or_default();
    let (distributions, absent) = distributions(facts, polls.as_ref(), &interrupts, &pollers);
    let drops = after.counters.keys().filter(|name| !NO_DROPS.contains(&name.as_str()));
    LlstatReport {
        schema: format!("pathlab/llstat{}/1", if ended == "interval" { "-interval" } else { "" }),
        node: facts.node.clone(),
        interface: facts.interface.clone(),
        kind: facts.kind.clone(),
        seconds: seconds(to_ns.saturating_sub(begun_ns)),
        lasted_s,
        ended: ended.into(),
        drops: drops
            .filter_map(|name| Some((name.clone(), moved(name).known().filter(|count| *count > 0)?)))
            .collect(),
        events: polls.as_ref().map(|polls| events(polls, &pollers, &receive, &transmit)),
        softnet: softnet(before, after, polls.as_ref()),
        cost: polls.as_ref().map(|polls| cost(polls, lasted_s)),
        receive,
        transmit,
        interrupts,
        pollers,
        distributions,
        absent,
        queues: after.queues.clone(),
        uncertainty: before.moved.saturating_add(after.moved),
        missing: facts.missing.iter().chain(&facts.no_programs).cloned().collect(),
    }
}

fn moved(before: &Counters, after: &Counters, name: &str) -> Delta {
    Delta::between(before.get(name).copied(), after.get(name).copied())
}

pub(crate) fn throughput(frames: Delta, bytes: Delta, lasted_s: f64) -> Throughput {
    let (frames, bytes) = (frames.known(), bytes.known());
    let per_s = |count: Option<u64>| count.filter(|_| lasted_s > 0.0).map(|count| count as f64 / lasted_s);
    Throughput {
        frames,
        bytes,
        frames_per_s: per_s(frames),
        rate_bps: per_s(bytes).map(|bytes| bytes * 8.0),
        mean_bytes: frames.zip(bytes).filter(|(frames, _)| *frames > 0).map(|(f, b)| b as f64 / f as f64),
    }
}

/// The difference of everything that programs counted; none when something ran backwards.
fn since(now: &PollCounts, then: &PollCounts) -> Option<PollCounts> {
    let counters = |now: &Counters, then: &Counters| -> Option<Counters> {
        now.keys().map(|name| Some((name.clone(), moved(then, now, name).known()?))).collect()
    };
    let nothing = Counters::new();
    let slots = now.slots.iter().enumerate();
    let mut programs = now.programs.clone();
    for one in &mut programs {
        let before = then.programs.iter().find(|other| other.event == one.event)?;
        one.runs = Delta::of(before.runs, one.runs).known()?;
        one.events = Delta::between(before.events, one.events).known();
    }
    let no_values = Buckets::default();
    Some(PollCounts {
        programs,
        empty: now.empty,
        words: counters(&now.words, &then.words)?,
        slots: slots
            .map(|(number, slot)| counters(slot, then.slots.get(number).unwrap_or(&nothing)))
            .collect::<Option<_>>()?,
        buckets: now
            .buckets
            .iter()
            .map(|(name, one)| Some((name.clone(), one.since(then.buckets.get(name).unwrap_or(&no_values))?)))
            .collect::<Option<_>>()?,
    })
}

fn interrupts(facts: &LlstatFacts, before: &Reading, after: &Reading, lasted_s: f64) -> Vec<LlstatInterrupt> {
    let one = |irq: &record::llstat::InterruptCount| {
        let then = before.interrupts.iter().find(|other| other.irq == irq.irq);
        let of_cpu = |cpu: usize| {
            let before = then.and_then(|then| then.cpus.get(cpu).copied());
            Delta::between(before, irq.cpus.get(cpu).copied()).known()
        };
        let counts: Option<Vec<u64>> = (0..irq.cpus.len()).map(of_cpu).collect();
        let count = counts.as_ref().map(|counts| record::delta::sum(counts.iter().copied()));
        LlstatInterrupt {
            irq: irq.irq,
            name: irq.name.clone(),
            role: facts.roles.get(&irq.irq).copied().unwrap_or(InterruptRole::Other),
            count,
            per_s: count.filter(|_| lasted_s > 0.0).map(|count| count as f64 / lasted_s),
            cpus: counts
                .unwrap_or_default()
                .into_iter()
                .enumerate()
                .filter(|(_, count)| *count > 0)
                .map(|(cpu, count)| (cpu as u32, count))
                .collect(),
        }
    };
    after.interrupts.iter().map(one).collect()
}

fn get(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// What polled: every NAPI instance, and of the others what did something.
fn pollers(facts: &LlstatFacts, polls: &PollCounts) -> Vec<LlstatPoller> {
    let nobody = Napi::default();
    let one = |(number, slot): (usize, &Counters)| {
        let napi = number.checked_sub(SLOTS.len()).and_then(|place| facts.napis.get(place));
        let timed = get(slot, "timed_frames");
        let about = napi.unwrap_or(&nobody);
        LlstatPoller {
            what: SLOTS.get(number).unwrap_or(&"napi").to_string(),
            napi: napi.map(|napi| napi.id),
            irq: about.irq,
            paired_by: about.paired_by,
            thread: about.thread,
            receive_queues: about.receive_queues.clone(),
            transmit_queues: about.transmit_queues.clone(),
            interrupts: get(slot, "irqs"),
            polls: get(slot, "polls"),
            frames: get(slot, "frames"),
            full: get(slot, "full"),
            empty: get(slot, "empty"),
            untimed: get(slot, "polls").saturating_sub(get(slot, "timed_polls")),
            ns_per_frame: (timed > 0).then(|| get(slot, "poll_ns") as f64 / timed as f64),
        }
    };
    let all = polls.slots.iter().enumerate().map(one);
    all.filter(|poller| poller.napi.is_some() || poller.polls + poller.interrupts > 0).collect()
}

type Named<T> = BTreeMap<String, T>;

/// What was counted, and of the rest why not.
fn distributions(
    facts: &LlstatFacts,
    polls: Option<&PollCounts>,
    interrupts: &[LlstatInterrupt],
    pollers: &[LlstatPoller],
) -> (Named<record::Distribution>, Named<String>) {
    let (mut found, mut absent) = (Named::new(), Named::new());
    let Some(polls) = polls else { return (found, absent) };
    for (name, buckets) in &polls.buckets {
        let is_told = name != "interrupt_frames" || !is_alone(facts);
        match buckets.summary().filter(|_| is_told) {
            Some(summary) => _ = found.insert(name.clone(), summary),
            None => _ = absent.insert(name.clone(), why_not(name, facts, interrupts, pollers)),
        }
    }
    (found, absent)
}

/// Whether an interrupt for received frames belongs to none of the instances that take them: what it brought is not known, and is not 0.
fn is_alone(facts: &LlstatFacts) -> bool {
    let is_paired = |irq: u32| facts.napis.iter().any(|napi| napi.irq == Some(irq));
    let receives = |(irq, role): (&u32, &InterruptRole)| *role == InterruptRole::Receive && !is_paired(*irq);
    !facts.napis.is_empty() && facts.roles.iter().any(receives)
}

/// Whether polls and interrupts cannot be brought together, because of no instance the interrupt is known.
fn is_unpaired(napis: &[Napi]) -> bool {
    !napis.is_empty() && napis.iter().all(|napi| napi.irq.is_none())
}

/// Why nothing was counted of that name.
fn why_not(
    name: &str,
    facts: &LlstatFacts,
    interrupts: &[LlstatInterrupt],
    pollers: &[LlstatPoller],
) -> String {
    let kind = if facts.kind.is_empty() { "it" } else { &facts.kind };
    let no_polls = pollers.iter().all(|poller| poller.polls == 0);
    let of_interrupt = name.starts_with("interrupt");
    let untimed = pollers.iter().any(|poller| poller.untimed > 0);
    match name {
        _ if of_interrupt && interrupts.is_empty() => match facts.kind.as_str() {
            "" => "no interrupt of it is known".into(),
            _ => format!("{kind} has no interrupt"),
        },
        _ if of_interrupt && interrupts.iter().all(|one| one.count == Some(0)) => "no interrupt came".into(),
        "interrupt_to_poll_ns" | "poll_ns" if untimed => {
            "its polls are made by a thread or a busy-polling socket, whose begin no event tells".into()
        }
        "interrupt_to_poll_ns" | "interrupt_frames"
            if !no_polls && (is_alone(facts) || is_unpaired(&facts.napis)) =>
        {
            "neither the kernel nor the names of its interrupts tell which NAPI instance answers them".into()
        }
        "completion_buffers" if facts.kind == "veth" => {
            "a veth hands its buffers to its peer and frees none".into()
        }
        "completion_buffers" => "no poll freed a buffer that was sent".into(),
        "poll_frames" | "poll_ns" if no_polls => "no poll brought a frame of it".into(),
        "full_polls_in_a_row" => "no poll was full".into(),
        "transmit_ns" | "transmit_bytes" => "nothing was sent".into(),
        "receive_bytes" => "nothing was received".into(),
        "arrival_period_ns" => "no two buffers came on one CPU".into(),
        _ => "it did not happen".into(),
    }
}

fn events(
    polls: &PollCounts,
    pollers: &[LlstatPoller],
    receive: &Throughput,
    transmit: &Throughput,
) -> LlstatEvents {
    let word = |name| get(&polls.words, name);
    let polled = record::delta::sum(pollers.iter().map(|poller| poller.frames));
    let difference = |frames: Option<u64>, counted: u64| frames.map(|frames| frames as i64 - counted as i64);
    LlstatEvents {
        received: word("received"),
        sent: word("sent"),
        busy: word("busy"),
        refused: word("refused"),
        freed: word("freed"),
        freed_in_polls: word("freed_in_polls"),
        polled,
        receive_difference: difference(receive.frames, polled),
        transmit_difference: difference(transmit.frames, word("sent")),
    }
}

fn softnet(before: &Reading, after: &Reading, polls: Option<&PollCounts>) -> LlstatSoftnet {
    let sum = |of: fn(&SoftnetRow) -> u64| {
        let one = |row: &SoftnetRow| {
            let then = before.softnet.iter().find(|other| other.cpu == row.cpu)?;
            // These counters have 32 bits, whatever the machine (`struct softnet_data`).
            Some(u64::from((of(row) as u32).wrapping_sub(of(then) as u32)))
        };
        let all: Option<Vec<u64>> = after.softnet.iter().map(one).collect();
        all.filter(|all| !all.is_empty()).map(record::delta::sum)
    };
    let word = |name| polls.map(|polls| get(&polls.words, name));
    let squeezed = sum(|row| row.time_squeeze);
    let squeezed_budget = word("budget_ends").zip(squeezed).map(|(budget, all)| budget.min(all));
    LlstatSoftnet {
        processed: sum(|row| row.processed),
        dropped: sum(|row| row.dropped),
        squeezed,
        squeezed_budget,
        squeezed_time: squeezed.zip(squeezed_budget).map(|(all, budget)| all - budget),
        net_rx: word("net_rx"),
        net_tx: word("net_tx"),
        net_rx_ns: word("net_rx_ns"),
        backlog_polls: word("backlog_polls"),
        backlog_frames: word("backlog_frames"),
    }
}

fn per_run(measured: Option<(u64, u64)>) -> Option<f64> {
    measured.filter(|(_, runs)| *runs > 0).map(|(ns, runs)| ns as f64 / runs as f64)
}

/// What all runs take, each of them less what an empty program takes; none when one of them is unknown.
fn all_ns(programs: &[LlstatProgram], empty_ns: f64) -> Option<f64> {
    let ns = |one: &LlstatProgram| match one.runs {
        0 => Some(0.0),
        runs => one.ns_per_run.map(|ns| (ns - empty_ns).max(0.0) * runs as f64),
    };
    programs.iter().map(ns).sum()
}

/// What a run takes is known of those that were measured, since the beginning; all are as long.
fn cost(polls: &PollCounts, lasted_s: f64) -> LlstatCost {
    let program = |one: &record::llstat::ProgramCount| LlstatProgram {
        event: one.event.clone(),
        runs: one.runs,
        ns_per_run: per_run(one.measured),
        lost: one.events.map(|events| events.saturating_sub(one.runs)),
    };
    let programs: Vec<LlstatProgram> = polls.programs.iter().map(program).collect();
    let share = |ns: f64| (lasted_s > 0.0).then_some(ns / 1e9 / lasted_s);
    let empty_ns_per_run = per_run(polls.empty);
    let lost: Option<Vec<u64>> = programs.iter().map(|one| one.lost).collect();
    LlstatCost {
        cpu_share: all_ns(&programs, 0.0).and_then(share),
        own_cpu_share: empty_ns_per_run.and_then(|empty| all_ns(&programs, empty)).and_then(share),
        empty_ns_per_run,
        lost: lost.map(record::delta::sum),
        programs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::llstat::{InterruptCount, ProgramCount, QueueLimit};

    fn counters(words: &[(&str, u64)]) -> Counters {
        words.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn reading(n: u64) -> Reading {
        let mut poll_frames = Buckets::default();
        (0..n).for_each(|_| poll_frames.record(8));
        let buckets = [("poll_frames", poll_frames), ("completion_buffers", Buckets::default())];
        Reading {
            at_ns: 1_000_000_000 * n,
            counters: counters(&[("rx_packets", 80 * n), ("rx_bytes", 8000 * n), ("rx_missed_errors", n)]),
            interrupts: vec![InterruptCount {
                irq: 41,
                name: "virtio2-input.0".into(),
                cpus: vec![0, 5 * n],
            }],
            softnet: vec![SoftnetRow {
                processed: u64::from((u32::MAX - 5).wrapping_add(n as u32 * 4)),
                time_squeeze: 3 * n,
                ..SoftnetRow::default()
            }],
            queues: vec![QueueLimit { queue: 0, limit_bytes: 3000, inflight_bytes: 100 }],
            polls: Some(PollCounts {
                programs: vec![ProgramCount {
                    event: "napi_poll".into(),
                    runs: 10 * n,
                    events: Some(11 * n),
                    measured: Some((700, 7)),
                }],
                empty: Some((80, 2)),
                words: counters(&[("received", 79 * n), ("sent", 0), ("budget_ends", n)]),
                slots: vec![
                    Counters::new(),
                    Counters::new(),
                    counters(&[
                        ("polls", 10 * n),
                        ("frames", 80 * n),
                        ("full", n),
                        ("poll_ns", 800 * n),
                        ("timed_polls", 9 * n),
                        ("timed_frames", 80 * n),
                    ]),
                ],
                buckets: buckets.map(|(name, one)| (name.to_owned(), one)).into(),
            }),
            ..Reading::default()
        }
    }

    fn facts() -> LlstatFacts {
        LlstatFacts {
            kind: "veth".into(),
            roles: [(41, InterruptRole::Receive)].into(),
            ..LlstatFacts::default()
        }
    }

    #[test]
    fn a_report_is_the_difference_of_two_readings() {
        let found = report(&facts(), &reading(1), &reading(3), 0, "duration");
        assert_eq!((found.schema.as_str(), found.seconds, found.lasted_s), ("pathlab/llstat/1", 3.0, 2.0));
        assert_eq!((found.receive.frames, found.receive.frames_per_s), (Some(160), Some(80.0)));
        assert_eq!((found.receive.mean_bytes, found.receive.rate_bps), (Some(100.0), Some(64_000.0)));
        assert_eq!(found.transmit.frames, None, "unknown is not zero");
        assert_eq!(found.drops, counters(&[("rx_missed_errors", 2)]));
        let irq = &found.interrupts[0];
        assert_eq!((irq.count, irq.per_s, irq.cpus.clone()), (Some(10), Some(5.0), vec![(1, 10)]));
        let [backlog] = &found.pollers[..] else { panic!("{:?}", found.pollers) };
        assert_eq!((backlog.what.as_str(), backlog.polls, backlog.untimed), ("backlog", 20, 2));
        assert_eq!(backlog.ns_per_frame, Some(10.0));
        assert_eq!(found.distributions["poll_frames"].count, 2);
        assert!(found.absent["completion_buffers"].contains("peer"));
        let events = found.events.unwrap();
        assert_eq!(
            (events.polled, events.receive_difference, events.transmit_difference),
            (160, Some(0), None)
        );
        let cost = found.cost.unwrap();
        assert_eq!(
            (cost.lost, cost.programs[0].ns_per_run, cost.cpu_share),
            (Some(2), Some(100.0), Some(1e-6))
        );
        let own = cost.own_cpu_share.unwrap();
        assert!(cost.empty_ns_per_run == Some(40.0) && (own - 0.6e-6).abs() < 1e-12, "{own}");
    }

    #[test]
    fn what_the_measurement_takes_is_taken_off_each_run() {
        let program = |runs, ns_per_run| LlstatProgram { event: "e".into(), runs, ns_per_run, lost: None };
        let programs = [program(10, Some(100.0)), program(5, Some(30.0)), program(0, None)];
        assert_eq!((all_ns(&programs, 0.0), all_ns(&programs, 40.0)), (Some(1150.0), Some(600.0)));
        assert_eq!(all_ns(&[program(1, None)], 40.0), None, "a run of unknown length");
        assert_eq!((per_run(Some((80, 2))), per_run(Some((0, 0))), per_run(None)), (Some(40.0), None, None));
    }

    #[test]
    fn softnet_wraps_at_32_bits_and_squeezes_are_split() {
        let softnet = report(&facts(), &reading(1), &reading(3), 0, "interval").softnet;
        assert_eq!((softnet.processed, softnet.squeezed), (Some(8), Some(6)));
        assert_eq!((softnet.squeezed_budget, softnet.squeezed_time), (Some(2), Some(4)));
    }

    /// Seen of igb on Linux 6.12: 151 frames in 290 interrupts were 0 frames for each.
    #[test]
    fn frames_of_an_interrupt_that_no_instance_is_known_to_answer_are_unknown() {
        let with = |irq: Option<u32>| {
            let of_interrupts = |n: u64| {
                let mut nothing = Buckets::default();
                (0..n).for_each(|_| nothing.record(0));
                let mut reading = reading(n);
                reading.polls.as_mut().unwrap().buckets.insert("interrupt_frames".into(), nothing);
                reading
            };
            let napi = Napi { id: 8193, irq, ..Napi::default() };
            let facts = LlstatFacts { kind: String::new(), napis: vec![napi], ..facts() };
            report(&facts, &of_interrupts(1), &of_interrupts(3), 0, "duration")
        };
        let alone = with(None);
        assert!(!alone.distributions.contains_key("interrupt_frames"));
        assert!(alone.absent["interrupt_frames"].starts_with("neither the kernel nor"), "{:?}", alone.absent);
        assert_eq!(with(Some(41)).distributions["interrupt_frames"].count, 2);
    }

    #[test]
    fn without_programs_the_counters_remain_and_the_reason_is_said() {
        let facts = LlstatFacts { no_programs: Some("not permitted".into()), ..facts() };
        let bare = |n| Reading { polls: None, ..reading(n) };
        let found = report(&facts, &bare(1), &bare(3), 0, "duration");
        assert!(found.events.is_none() && found.cost.is_none() && found.pollers.is_empty());
        assert_eq!((found.receive.frames, found.missing), (Some(160), vec!["not permitted".to_owned()]));
        assert_eq!((found.softnet.squeezed, found.softnet.squeezed_budget), (Some(6), None));
    }
}

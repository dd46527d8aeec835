//! Rows about the host: its CPUs, its clocks, who else was at work, and what observing cost.

use super::Found;
use super::case::{Case, host_place, of_host, place};
use record::conditions::{Conditions, IdleState, InterruptTarget};
use record::delta::sum;
use record::snapshot::CpuTime;
use record::unit::time_ns;
use record::{Delta, Trust};

/// Steal in percent of all CPU time.
const STEAL_SUSPECT: f64 = 0.5;
const STEAL_INVALID: f64 = 2.0;
/// A process that takes more of a CPU than this is said, in percent.
const BUSY: f64 = 10.0;
/// Times are counted in ticks: fewer than two may be anybody's.
const TICKS: f64 = 1.9;
/// An idle state that takes as long to leave lets a card without buffers miss frames, in nanoseconds.
const LONG_EXIT_NS: u64 = 50_000;
/// NTP may steer a clock by 500 ppm (`ntp_adjtime(2)`); beyond 600 something else does.
const STEERED_PPM: f64 = 600.0;
/// A clock that is so far off makes rates wrong by as much, in ppm.
const WRONG_PPM: f64 = 10_000.0;
/// A difference of clocks that is believed, in nanoseconds.
const STEP_NS: u64 = 1_000_000;
/// What observing may take of a CPU while traffic flows, in percent.
const OBSERVER_PERCENT: f64 = 20.0;
/// The governor under which a CPU keeps its highest frequency.
const PERFORMANCE: &str = "performance";

pub fn governor(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        let (before, after) = (&host.before.governors, &host.after.governors);
        if before != after && !before.is_empty() {
            let reason = "the frequency governor of CPUs was changed during the test, so it is of two clocks";
            found.say(host_place(host), governors(after), Trust::Suspect, of_host(host, reason));
        } else if before.keys().any(|governor| governor != PERFORMANCE) {
            let value = governors(before);
            let reason = format!(
                "the governor is not performance everywhere ({value}), so CPUs change their clock with the load"
            );
            found.say(host_place(host), value, Trust::Suspect, of_host(host, &reason));
        }
    }
}

/// `performance on 2 CPUs, powersave on 6 CPUs`.
fn governors(all: &std::collections::BTreeMap<String, u32>) -> String {
    let words =
        all.iter().map(|(name, cpus)| format!("{name} on {}", record::unit::many(u64::from(*cpus), "CPU")));
    words.collect::<Vec<_>>().join(", ")
}

pub fn idle_state(case: &Case<'_>, found: &mut Found) {
    let missed = missed(case);
    let tail = case.test.latency_ns.as_ref().filter(|latency| latency.p99 >= latency.p50.saturating_mul(2));
    let tail_ns = tail.map(|latency| latency.p99 - latency.p50);
    for host in case.hosts() {
        let Some((state, entered)) = deepest(host) else { continue };
        let exit = time_ns(state.exit_ns as f64);
        let value = format!("{} entered {} times, {exit} to leave", state.name, record::unit::count(entered));
        if let Some(tail_ns) = tail_ns.filter(|tail| state.exit_ns.saturating_mul(2) >= *tail) {
            let tail = time_ns(tail_ns as f64);
            let reason = format!(
                "CPUs slept in {}, which takes {exit} to leave: as much as the tail of the latency ({tail})",
                state.name
            );
            found.say(host_place(host), value, Trust::Suspect, of_host(host, &reason));
        } else if missed > 0 && state.exit_ns >= LONG_EXIT_NS {
            let missed = record::unit::many(missed, "frame");
            let reason = format!(
                "CPUs slept in {}, which takes {exit} to leave, and the card missed {missed}",
                state.name
            );
            found.say(host_place(host), value, Trust::Suspect, of_host(host, &reason));
        }
    }
}

/// The state that takes longest to leave of those that were entered, and how often.
fn deepest(host: &Conditions) -> Option<(&IdleState, u64)> {
    let entered = |state: &&IdleState| {
        let before =
            host.before.idle.iter().find(|one| one.name == state.name && one.exit_ns == state.exit_ns);
        Delta::between(before.map(|one| one.entered), Some(state.entered)).known().unwrap_or(0)
    };
    let used = host.after.idle.iter().filter(|state| entered(state) > 0);
    used.max_by_key(|state| state.exit_ns).map(|state| (state, entered(&state)))
}

/// Frames that cards of the path had no room for.
fn missed(case: &Case<'_>) -> u64 {
    let count = |snapshot: &record::Snapshot, node: &str, interface: &str| {
        let links = &snapshot.nodes.get(node)?.links;
        links.iter().find(|link| link.name == interface)?.counters.get("rx_missed_errors").copied()
    };
    let (before, after) = (&case.test.before, &case.test.after);
    let moved = case.interfaces().map(|(node, interface)| {
        Delta::between(count(before, node, interface), count(after, node, interface)).known().unwrap_or(0)
    });
    sum(moved)
}

pub fn throttled(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        let moved = Delta::between(host.before.throttled, host.after.throttled);
        if let Some(times) = moved.known().filter(|times| *times > 0) {
            let times = record::unit::many(times, "time");
            let reason = format!("CPUs were throttled by their temperature {times} during the test");
            found.say(host_place(host), times, Trust::Invalid, of_host(host, &reason));
        }
    }
}

pub fn steal(case: &Case<'_>, found: &mut Found) {
    let one = |found: &mut Found, host: Option<&Conditions>, cpus: &[CpuTime]| {
        let (stolen, all) = (sum(cpus.iter().map(|cpu| cpu.steal)), sum(cpus.iter().map(CpuTime::total)));
        let percent = stolen as f64 * 100.0 / all.max(1) as f64;
        let verdict = match percent {
            percent if percent > STEAL_INVALID => Trust::Invalid,
            percent if percent > STEAL_SUSPECT => Trust::Suspect,
            _ => return,
        };
        let value = format!("{percent:.1} %");
        let reason = format!("the hypervisor gave {value} of the CPU time to others");
        let reason = host.map_or(reason.clone(), |host| of_host(host, &reason));
        found.say(host.map_or("host".into(), host_place), value, verdict, reason);
    };
    let watched: Vec<&Conditions> = case.hosts().filter(|host| !host.cpu.is_empty()).collect();
    if !case.test.cpu.is_empty() {
        one(found, None, &case.test.cpu);
    } else if watched.is_empty() {
        found.unknown.push("the CPU time of the test is not known".into());
    }
    watched.iter().for_each(|host| one(found, Some(host), &host.cpu));
}

pub fn other_work(case: &Case<'_>, found: &mut Found) {
    if case.test.cpu.is_empty() {
        found.unknown.push("processes beside the test are looked at where both ends are on one host".into());
    }
    let least = BUSY.max(TICKS * tick_percent(case));
    let others = case.test.others.iter().filter(|other| !other.is_for_the_test());
    for other in others.filter(|other| other.cpu_percent >= least) {
        let value = format!("{:.0} % of a CPU", other.cpu_percent);
        let reason = format!("{} took {value} beside the test (process {})", other.name, other.pid);
        found.say(format!("CPU {}", other.cpu), value, Trust::Suspect, reason);
    }
}

/// What one tick of CPU time is of a test, in percent of one CPU; 0 where it is not known.
fn tick_percent(case: &Case<'_>) -> f64 {
    let (before, after) = (&case.test.before, &case.test.after);
    let wall_s = after.begun_ns.saturating_sub(before.begun_ns) as f64 * 1e-9;
    let ticks = wall_s * after.tick_hz as f64;
    if ticks > 0.0 { 100.0 / ticks } else { 0.0 }
}

pub fn irq_moved(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        for now in host.after.interrupts.iter().filter(|one| case.is_on_path(&one.node, &one.interface)) {
            let same = |one: &&InterruptTarget| {
                (&one.node, &one.interface, one.irq) == (&now.node, &now.interface, now.irq)
            };
            let Some(before) = host.before.interrupts.iter().find(same).filter(|one| one.cpus != now.cpus)
            else {
                continue;
            };
            let value = format!("CPU {} → {}", before.cpus, now.cpus);
            let reason = format!(
                "interrupt {} ({}) was moved from CPU {} to {}",
                now.irq, now.name, before.cpus, now.cpus
            );
            found.say(place(&now.node, &now.interface), value, Trust::Invalid, of_host(host, &reason));
        }
    }
}

pub fn emulated(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts().filter(|host| host.after.emulated) {
        let reason = "the CPUs are emulated in software: times and rates are not those of a machine, counts and shapes are";
        found.say(host_place(host), "QEMU TCG", Trust::Suspect, of_host(host, reason));
    }
}

pub fn irqbalance(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        let has_interrupts =
            host.after.interrupts.iter().any(|one| case.is_on_path(&one.node, &one.interface));
        if has_interrupts && (host.before.irqbalance || host.after.irqbalance) {
            let reason = "irqbalance runs, and may move the interrupts of the path at any time";
            found.say(host_place(host), "irqbalance", Trust::Suspect, of_host(host, reason));
        }
    }
}

/// How far each of two clocks went, if neither ran backwards.
fn went(host: &Conditions, clock: fn(&record::conditions::ClockReading) -> u64) -> Option<u64> {
    Delta::of(clock(&host.before.clock), clock(&host.after.clock)).known()
}

/// How far the readings may be apart because they were not made at one instant.
fn width(host: &Conditions) -> u64 {
    host.before.clock.width_ns.saturating_add(host.after.clock.width_ns)
}

pub fn clock_step(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        let Some(ours) = went(host, |clock| clock.monotonic_ns) else { continue };
        let (before, after) = (&host.before.clock, &host.after.clock);
        let apart = after.realtime_ns.abs_diff(before.realtime_ns.saturating_add(ours));
        let steered = (ours as f64 * STEERED_PPM * 1e-6) as u64;
        if apart > STEP_NS.saturating_add(steered).saturating_add(width(host)) {
            let value = time_ns(apart as f64);
            let reason = format!(
                "the time of day was set by {value} during the test; delays between hosts are not to be trusted"
            );
            found.say(host_place(host), value, Trust::Suspect, of_host(host, &reason));
        }
    }
}

pub fn clock_rate(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        let both = went(host, |clock| clock.monotonic_ns).zip(went(host, |clock| clock.raw_ns));
        let Some((ours, raw)) = both.filter(|(_, raw)| *raw > 0) else {
            found.unknown.push(of_host(host, "the clocks cannot be compared"));
            continue;
        };
        let ppm = ours.abs_diff(raw).saturating_sub(width(host)) as f64 * 1e6 / raw as f64;
        let verdict = match ppm {
            ppm if ppm > WRONG_PPM => Trust::Invalid,
            ppm if ppm > STEERED_PPM => Trust::Suspect,
            _ => continue,
        };
        let value = format!("{ppm:.0} ppm");
        let way = if ours > raw { "fast" } else { "slow" };
        let reason = format!("the clock of the figures ran {way} by {value}, and so are all times and rates");
        found.say(host_place(host), value, verdict, of_host(host, &reason));
    }
}

pub fn suspended(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        let both = went(host, |clock| clock.boot_ns).zip(went(host, |clock| clock.monotonic_ns));
        let Some((boot, ours)) = both else { continue };
        let slept = boot.saturating_sub(ours);
        if slept > STEP_NS.saturating_add(width(host)) {
            let value = time_ns(slept as f64);
            let reason = format!("the host was suspended for {value} during the test");
            found.say(host_place(host), value, Trust::Invalid, of_host(host, &reason));
        }
    }
}

pub fn observer(case: &Case<'_>, found: &mut Found) {
    for host in case.hosts() {
        let programs = host.cost.programs_percent();
        let percent = host.cost.driver_percent().unwrap_or(0.0) + programs.unwrap_or(0.0);
        if percent > OBSERVER_PERCENT {
            let value = format!("{percent:.0} % of a CPU");
            let reason = format!("observing took {value} while traffic flowed");
            found.say(host_place(host), value, Trust::Suspect, of_host(host, &reason));
        }
    }
}

pub fn ended(case: &Case<'_>, found: &mut Found) {
    for (host, why) in case.hosts().flat_map(|host| host.ended.iter().map(move |why| (host, why))) {
        found.say(host_place(host), "ended", Trust::Invalid, why);
    }
}

pub fn unsettled(case: &Case<'_>, found: &mut Found) {
    for (host, why) in case.hosts().filter_map(|host| Some((host, host.unsettled.as_ref()?))) {
        found.say(host_place(host), "moving", Trust::Invalid, why);
    }
}

pub fn nothing_sent(case: &Case<'_>, found: &mut Found) {
    let sender = &case.test.sender;
    if sender.attempted == 0 && sender.sent_bytes == 0 {
        found.say(
            format!("node {}", case.test.spec.from),
            "0 messages",
            Trust::Invalid,
            "the sender sent nothing",
        );
    }
    // Records of before the rows have sentences only.
    if case.test.validity.is_none() && case.test.conditions.is_empty() {
        let said = case.test.invalid.iter().filter(|why| *why != "the sender sent nothing");
        said.for_each(|why| found.say("", "", Trust::Invalid, why));
    }
}

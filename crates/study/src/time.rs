//! Where the time of a test went, in words: who waited for a CPU and who had it, and which functions ran.
//!
//! **What.** [`of_traffic`] adds what the traffic threads know of themselves, [`waits`] and [`functions`] are the tables that people see,
//! [`taken`] is the evidence of a verdict, and [`notes`] says what is missing and what the observation itself took.

use crate::table::Table;
use record::delta::sum;
use record::flow::Hook;
use record::time::{CpuProfile, CpuWait, PollTime, SchedulerCounts, Taker, TimeObservation};
use record::unit::{count, many, number, time_ns};
use record::{EndReport, TestRecord};
use std::collections::BTreeMap;

/// Who ran in less than this share of a wait is not mentioned.
const MENTIONED: f64 = 0.05;
/// A smaller share of the time without samples is not mentioned: it is that of the begin and the end.
const PASSED_OVER: f64 = 0.05;
/// Functions that are shown of each role.
const FUNCTIONS: usize = 5;
/// Roles in the order of tables; others are between.
const FIRST: [&str; 3] = ["sender", "receiver", "softirq"];
const LAST: [&str; 2] = ["other", "idle"];

/// Traffic threads that ended took their account with them, but they had read it: what they say of themselves is then the
/// larger.
pub fn of_traffic(time: &mut TimeObservation, sender: &EndReport, receiver: &EndReport) {
    for (role, end) in [("sender", sender), ("receiver", receiver)] {
        let Some(wait) = time.waits.iter_mut().find(|wait| wait.role == role) else { continue };
        if wait.ran_ns.unwrap_or(0) < end.thread_cpu_ns {
            (wait.ran_ns, wait.waited_ns) = (Some(end.thread_cpu_ns), Some(end.thread_wait_ns));
            // Those of the threads that are left say nothing of the one that did the work.
            (wait.gave_up, wait.was_preempted) = (None, None);
            let own = format!("(process {}): it ended", wait.pid);
            time.missing.retain(|why| !why.contains(&own));
        }
    }
}

/// Who it is: `receiver b`, `ksoftirqd/0`.
fn who(wait: &CpuWait) -> String {
    if wait.role == "kernel" { wait.name.clone() } else { format!("{} {}", wait.role, wait.node) }
}

/// How long it waited: what the programs saw, else the kernel's account; none where nobody knows.
pub fn waited_ns(wait: &CpuWait) -> Option<u64> {
    wait.seen.as_ref().map(|seen| seen.waited_ns).or(wait.waited_ns)
}

/// `'burn' (process 42)`, `an idle CPU`.
fn taker_words(taker: &Taker, waits: &[CpuWait]) -> String {
    let own = waits.iter().find(|wait| Some(wait.pid) == taker.pid && wait.role != "kernel");
    match (taker.pid, own) {
        (None, _) => "what ran too long ago to be remembered".into(),
        (Some(0), _) => "idle".into(),
        (Some(_), Some(own)) => format!("the {}", own.role),
        (Some(pid), None) => format!("'{}' (process {pid})", taker.name),
    }
}

/// The takers that are worth a word.
fn mentioned(wait: &CpuWait) -> impl Iterator<Item = &Taker> {
    let seen = wait.seen.as_ref();
    let least = seen.map_or(0.0, |seen| seen.waited_ns as f64 * MENTIONED);
    seen.into_iter().flat_map(|seen| &seen.takers).filter(move |one| one.ns as f64 >= least).take(3)
}

/// What the programs saw of the wait of a process of the test, if it was at least that share of the time: `the receiver waited 812 ms of
/// 2.00 s for a CPU: 'burn' (process 42) ran on CPU 0 for 790 ms of it`.
pub fn taken(time: &TimeObservation, wait: &CpuWait, least: f64) -> Option<String> {
    let who = if wait.role == "kernel" { wait.name.clone() } else { format!("the {}", wait.role) };
    let enough = |ns: u64| ns > 0 && ns as f64 >= least * time.window_ns as f64;
    let seen = wait.seen.as_ref().filter(|seen| enough(seen.waited_ns))?;
    let ms = |ns: u64| time_ns(ns as f64);
    let told: Vec<String> = mentioned(wait)
        .map(|one| {
            format!("{} ran on CPU {} for {} of it", taker_words(one, &time.waits), one.cpu, ms(one.ns))
        })
        .collect();
    let (waited, window) = (ms(seen.waited_ns), ms(time.window_ns));
    (!told.is_empty()).then(|| format!("{who} waited {waited} of {window} for a CPU: {}", told.join(", ")))
}

/// The process that is not of the test and had most of what an end waited for, if that was half of it.
pub fn taker_of<'t>(test: &'t TestRecord, role: &str) -> Option<&'t Taker> {
    let time = test.time.as_ref()?;
    let seen = time.waits.iter().find(|wait| wait.role == role)?.seen.as_ref()?;
    let is_other = |one: &&Taker| {
        let of_test = time.waits.iter().any(|wait| Some(wait.pid) == one.pid);
        one.pid.is_some_and(|pid| pid != 0) && !of_test
    };
    seen.takers.iter().find(is_other).filter(|one| one.ns >= seen.waited_ns / 2)
}

/// Who ran and waited how long.
pub fn waits(time: &TimeObservation) -> Table {
    let told = |ns: Option<u64>| ns.map_or("unknown".into(), |ns| time_ns(ns as f64));
    let is_worth = |wait: &&CpuWait| wait.role != "kernel" || waited_ns(wait) != Some(0);
    let row = |wait: &CpuWait| {
        let seen = wait.seen.as_ref();
        let percentile = |pick: fn(&record::Distribution) -> u64| {
            let woken = seen.and_then(|seen| seen.woken.as_ref());
            woken.map_or(String::new(), |woken| time_ns(pick(woken) as f64))
        };
        let preempted = seen.map(|seen| seen.preempted.map_or(0, |one| one.count)).or(wait.was_preempted);
        let lock =
            seen.filter(|seen| seen.lock_ns > 0).map_or(String::new(), |seen| time_ns(seen.lock_ns as f64));
        vec![
            who(wait),
            told(seen.map(|seen| seen.ran_ns).or(wait.ran_ns)),
            told(waited_ns(wait)),
            percentile(|woken| woken.p50),
            percentile(|woken| woken.p99),
            preempted.map_or("unknown".into(), count),
            lock,
        ]
    };
    let headers = ["who", "ran", "waited", "woken p50", "p99", "preempted", "locks"];
    let rows = time.waits.iter().filter(is_worth).map(row).collect();
    Table { headers: headers.map(str::to_owned).to_vec(), rows, words: 1 }
}

/// Who ran while each waited, a line each.
pub fn meanwhile(time: &TimeObservation) -> Vec<String> {
    let words = |one: &Taker| {
        format!("{} {} on CPU {}", taker_words(one, &time.waits), time_ns(one.ns as f64), one.cpu)
    };
    let line = |wait: &CpuWait| {
        let told: Vec<String> = mentioned(wait).map(words).collect();
        (!told.is_empty()).then(|| format!("while {} waited: {}", who(wait), told.join(", ")))
    };
    time.waits.iter().filter_map(line).collect()
}

/// Samples of each role.
pub fn roles(profile: &CpuProfile) -> Vec<(&str, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        *counts.entry(&stack.role).or_default() += stack.count;
    }
    let place = |role: &str| {
        let first = FIRST.iter().position(|one| *one == role);
        let last = LAST.iter().position(|one| *one == role);
        first.or(last.map(|at| 100 + at)).unwrap_or(50)
    };
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(role, _)| place(role));
    counts
}

/// Functions of a role by their own time, the most first, with their samples.
pub fn own_time<'p>(profile: &'p CpuProfile, role: &str) -> Vec<(&'p str, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in profile.stacks.iter().filter(|stack| stack.role == role) {
        *counts.entry(innermost(profile, &stack.functions)).or_default() += stack.count;
    }
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    counts
}

fn innermost<'p>(profile: &'p CpuProfile, functions: &[u32]) -> &'p str {
    functions.last().and_then(|&one| profile.functions.get(one as usize)).map_or("[unknown]", String::as_str)
}

/// Where the CPUs were, by role: the share of all samples, and the functions that most of them fell into.
pub fn functions(profile: &CpuProfile) -> Table {
    let share = |part: u64| 100.0 * part as f64 / profile.samples.max(1) as f64;
    let row = |(role, samples): (&str, u64)| {
        let told = own_time(profile, role).into_iter().take(FUNCTIONS);
        let told = told.map(|(name, samples)| format!("{name} {} %", number(share(samples))));
        vec![role.to_owned(), told.collect::<Vec<_>>().join(", "), format!("{} %", number(share(samples)))]
    };
    let headers = ["role", "functions by their own time (_[k]: of the kernel)", "of all CPUs"];
    let rows = roles(profile).into_iter().map(row).collect();
    Table { headers: headers.map(str::to_owned).to_vec(), rows, words: 2 }
}

/// What the polls of the backlog took for frames of the test: the share of the flow among the buffers that they took, which are those that came
/// in by a veth.
fn of_flow(test: &TestRecord) -> Option<String> {
    let polls = &test.time.as_ref()?.scheduler.as_ref()?.polls;
    let backlog = polls.iter().find(|poll| poll.place == "backlog" && poll.frames > 0)?;
    let interfaces = &test.flow.as_ref().filter(|flow| flow.absent.is_none())?.interfaces;
    let counts = interfaces.iter().filter(|one| one.kind == "veth").flat_map(|one| &one.counts);
    let came = counts.filter(|count| count.hook == Hook::Ingress).map(|count| count.buffers);
    let share = (sum(came) as f64 / backlog.frames as f64).min(1.0);
    let took = time_ns(backlog.ns as f64 * share);
    Some(format!("{} % of the backlog's frames were the test's: {took} of its time", number(share * 100.0)))
}

/// What is missing, what soft interrupts took, and what observing took.
pub fn notes(test: &TestRecord) -> Vec<String> {
    let Some(time) = &test.time else { return vec![] };
    let mut notes: Vec<String> = vec![];
    let stalls: Vec<String> = time
        .stalls
        .iter()
        .filter(|one| one.some_us > 0)
        .map(|one| stall_words(one, time.window_ns))
        .collect();
    if !stalls.is_empty() {
        notes.push(format!("tasks of the host stood still: {}", stalls.join(", ")));
    }
    notes.extend(time.scheduler.iter().flat_map(|counts| scheduler_notes(counts, time.window_ns)));
    notes.extend(of_flow(test));
    notes.extend(time.profile.iter().map(profile_note));
    notes.extend(time.profile.iter().filter_map(|profile| idle_note(profile, time.window_ns)));
    let missing = time.profile.iter().flat_map(|profile| &profile.missing).chain(&time.missing);
    notes.extend(missing.map(|why| format!("missing: {why}")));
    notes
}

fn stall_words(stall: &record::time::Stall, window_ns: u64) -> String {
    let share = (stall.some_us as f64 * 1e5 / window_ns.max(1) as f64).min(100.0);
    format!("for want of {} in {} % of the time", stall.of, number(share))
}

fn scheduler_notes(counts: &SchedulerCounts, window_ns: u64) -> Vec<String> {
    let share = |ns: u64| number(ns as f64 * 100.0 / window_ns.max(1) as f64);
    let SchedulerCounts { switches, missed_switches, unseen_begins, no_room, net_rx_ns, .. } = *counts;
    let polls: Vec<String> = counts.polls.iter().map(poll_words).collect();
    let polls = if polls.is_empty() { String::new() } else { format!(": {}", polls.join("; ")) };
    let mut notes =
        vec![format!("soft interrupts of receiving took {} % of one CPU{polls}", share(net_rx_ns))];
    let cost = counts.cost_ns.map_or("unknown".into(), |ns| format!("{} % of one CPU", share(ns)));
    let gaps = [
        (missed_switches, "not shown to the programs"),
        (unseen_begins, "waits without a begin"),
        (no_room, "without room"),
    ];
    let gaps = gaps
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!(", {} {what}", self::count(*count)));
    let gaps: String = gaps.collect();
    let (switches, runs) = (format!("task switches {}", count(switches)), count(counts.runs));
    notes.push(format!("{switches}{gaps}; the programs ran {runs} times and took {cost}"));
    notes
}

/// `backlog 95,960 frames in 47,980 polls, 5.7 µs a frame`.
fn poll_words(poll: &PollTime) -> String {
    let PollTime { place, polls, frames, ns } = poll;
    let each = if *frames == 0 {
        String::new()
    } else {
        format!(", {} a frame", time_ns(*ns as f64 / *frames as f64))
    };
    format!("{place} {} frames in {} polls, {}{each}", count(*frames), count(*polls), time_ns(*ns as f64))
}

fn profile_note(profile: &CpuProfile) -> String {
    let CpuProfile { hz, cpus, samples, lost, throttled, .. } = profile;
    let gaps = match (lost, throttled) {
        (0, 0) => "none lost".into(),
        _ => format!("{} lost, held back by the kernel {} times", count(*lost), count(*throttled)),
    };
    format!("{} of {} at {hz} Hz, {gaps}", many(*samples, "sample"), many(u64::from(*cpus), "CPU"))
}

/// Idle CPUs, and those that a host takes away, are passed over by the timer of the samples: how much of the time has none, between which shares idleness
/// then is, and what the other shares are of the time. None where nearly all of it was looked at, or where the kernel held sampling back.
fn idle_note(profile: &CpuProfile, window_ns: u64) -> Option<String> {
    let due = f64::from(profile.hz) * f64::from(profile.cpus) * window_ns as f64 / 1e9;
    let seen = profile.samples.saturating_add(profile.lost) as f64;
    if profile.throttled > 0 || seen >= due * (1.0 - PASSED_OVER) {
        return None;
    }
    let idle =
        sum(profile.stacks.iter().filter(|stack| stack.role == "idle").map(|stack| stack.count)) as f64;
    let percent = |samples: f64| number(100.0 * samples / due);
    let (without, least, most) = (percent(due - seen), percent(idle), percent(idle + due - seen));
    let factor = number(seen / due);
    Some(format!(
        "{without} % of the CPUs' time has no sample: one that is idle, or that its host takes away, is passed over at times; idle was {least} to {most} % of the \
         time; multiply the other shares by {factor} for shares of the time"
    ))
}

/// All of it as text, of one test; nothing where there is neither a profile nor a wait worth a word.
pub fn text(test: &TestRecord) -> String {
    let Some(time) = test.time.as_ref().filter(|time| time.profile.is_some()) else { return String::new() };
    let lines = |lines: Vec<String>| -> String {
        lines.into_iter().map(|line| crate::table::folded(&format!("{line}\n"), 2)).collect()
    };
    let mut text = waits(time).text_within(crate::table::WIDTH, &[]) + &lines(meanwhile(time));
    if let Some(profile) = &time.profile {
        text += &functions(profile).text_within(crate::table::WIDTH, &[]);
    }
    text + &lines(notes(test))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use record::TrafficKind;

    fn test() -> TestRecord {
        TestRecord {
            time: Some(sample::time()),
            ..sample::test(TrafficKind::TcpStream, "tcp-stream", 1, false)
        }
    }

    #[test]
    fn the_evidence_names_who_ran_and_how_long() {
        let test = test();
        let time = test.time.as_ref().unwrap();
        let of = |role: &str| time.waits.iter().find(|wait| wait.role == role).unwrap();
        let told = taken(time, of("receiver"), 0.1).unwrap();
        assert_eq!(
            told,
            "the receiver waited 812 ms of 2.00 s for a CPU: 'burn' (process 42) ran on CPU 0 for 790 ms of it"
        );
        assert_eq!(taken(time, of("sender"), 0.1), None, "it hardly waited");
        let thread = CpuWait { role: "kernel".into(), name: "ksoftirqd/1".into(), ..of("receiver").clone() };
        let told = taken(time, &thread, 0.1).unwrap();
        assert!(told.starts_with("ksoftirqd/1 waited 812 ms"), "{told}");
        assert_eq!(taker_of(&test, "receiver").unwrap().name, "burn");
        assert_eq!(taker_of(&test, "sender"), None, "the receiver is of the test");
    }

    #[test]
    fn the_text_has_who_waited_the_functions_and_what_it_cost() {
        let text = text(&test());
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "1.10 s 812 ms 2.00 µs 3.00 ms 17",
            "while receiver b waited: 'burn' (process 42) 790 ms on CPU 0",
            "softirq process_backlog_[k] 25.0 % 25.0 %",
            "other burn_cycles 50.0 % 50.0 %",
            "soft interrupts of receiving took 30.0 % of one CPU: backlog 1,000 frames in 10 polls, 600 ms, 600 µs a frame",
            "took 2.00 % of one CPU",
            "4,000 samples of 2 CPUs at 997 Hz, none lost",
            "for want of memory in 1.00 % of the time",
        ] {
            assert!(words.contains(part), "{part}\n{words}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= crate::table::WIDTH), "{text}");
    }

    #[test]
    fn time_without_samples_is_said_with_what_it_does_to_the_shares() {
        let full = sample::time().profile.unwrap();
        assert_eq!(idle_note(&full, 2_000_000_000), None);
        // 1,994 a second of two CPUs: 4,000 samples, 100 of them idle, are half of what four seconds have room for.
        let note = idle_note(&full, 4_012_036_108).unwrap();
        for part in ["50.0 % of the CPUs' time has no sample", "idle was 1.25 to 51.2 %", "shares by 0.500 "]
        {
            assert!(note.contains(part), "{part}: {note}");
        }
        let full_ring = CpuProfile { lost: 3_900, ..full.clone() };
        assert_eq!(idle_note(&full_ring, 4_012_036_108), None, "what was lost was not passed over");
        let held_back = CpuProfile { throttled: 1, ..full };
        assert_eq!(idle_note(&held_back, 4_012_036_108), None, "that was the kernel");
        assert_eq!(idle_note(&CpuProfile::default(), 0), None);
    }

    #[test]
    fn a_thread_that_ended_is_known_by_its_own_reading() {
        let mut time = sample::time();
        time.waits[0].ran_ns = None;
        time.waits[0].waited_ns = None;
        time.missing.push("the account of 'pathlab' (process 7): it ended, or one of its threads".into());
        let end = |cpu, wait| EndReport { thread_cpu_ns: cpu, thread_wait_ns: wait, ..EndReport::default() };
        of_traffic(&mut time, &end(9, 3), &end(1, 1));
        assert_eq!((time.waits[0].ran_ns, time.waits[0].waited_ns), (Some(9), Some(3)));
        assert_eq!(
            time.waits[1].ran_ns,
            Some(1_100_000_000),
            "the receiver's account has more than it says itself"
        );
        assert!(time.missing.is_empty());
    }

    #[test]
    fn the_flow_has_its_share_of_the_backlog() {
        use record::{FlowCount, FlowInterface, FlowObservation};
        let count = |hook, buffers| FlowCount {
            hook,
            leg: "forward".into(),
            frames: buffers,
            buffers,
            bytes: buffers * 60,
            later_fragments: 0,
            first_ns: 1,
        };
        let interface =
            |kind: &str, counts| FlowInterface { kind: kind.into(), counts, ..FlowInterface::default() };
        let both = || vec![count(Hook::Ingress, 250), count(Hook::Egress, 9)];
        let interfaces =
            vec![interface("veth", both()), interface("veth", both()), interface("bridge", both())];
        let flow = Some(FlowObservation { interfaces, ..FlowObservation::default() });
        let told = of_flow(&TestRecord { flow, ..test() }).unwrap();
        assert_eq!(told, "50.0 % of the backlog's frames were the test's: 300 ms of its time");
        assert_eq!(of_flow(&TestRecord { flow: None, ..test() }), None);
    }

    #[test]
    fn loss_and_hidden_names_are_said() {
        let mut time = sample::time();
        let profile = time.profile.as_mut().unwrap();
        (profile.lost, profile.throttled) = (12, 1);
        profile.missing.push("functions of the kernel".into());
        time.scheduler.as_mut().unwrap().missed_switches = 4;
        let notes = notes(&TestRecord { time: Some(time), ..test() }).join("\n");
        for part in
            ["12 lost, held back by the kernel 1 times", "missing: functions of the kernel", "4 not shown"]
        {
            assert!(notes.contains(part), "{part}\n{notes}");
        }
    }
}

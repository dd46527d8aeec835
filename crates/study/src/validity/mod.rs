//! Whether the figures of a test are valid: what disturbed them, and what nobody could tell.
//!
//! **What.** A row of [`ROWS`] looks at one thing (the governor, a link that flaps, a tap) and says what it found, with the number that
//! convicts it, or why it is unknown. [`judge`] asks all rows; the worst word is the verdict. `docs/validity.md` is made of the rows.
//!
//! **Why rows.** This is the one place that says why a figure is not to be trusted: texts, pages, comparisons and criteria show
//! what it found.
//!
//! **Price.** It is arithmetic over a record, so an old record is judged by what it has; the rest of it is unwatched.

mod case;
mod config;
mod host;
#[cfg(test)]
mod tests;

use case::Case;
use record::validity::{self, Disturbance, Trust, Unwatched, Validity};
use record::{RunRecord, TestRecord};
use std::borrow::Cow;

/// What a row found.
#[derive(Debug, Default)]
struct Found {
    reasons: Vec<Disturbance>,
    unknown: Vec<String>,
}

impl Found {
    fn say(
        &mut self,
        place: impl Into<String>,
        value: impl Into<String>,
        verdict: Trust,
        reason: impl Into<String>,
    ) {
        self.reasons.push(Disturbance {
            what: String::new(),
            place: place.into(),
            value: value.into(),
            verdict,
            reason: reason.into(),
        });
    }
}

/// One thing that can make a figure doubtful.
struct Row {
    /// Its word.
    what: &'static str,
    /// What is read.
    input: &'static str,
    /// From when on it makes a figure suspect or invalid.
    threshold: &'static str,
    /// It can only be said of a test whose conditions were watched.
    is_watched: bool,
    look: fn(&Case<'_>, &mut Found),
}

macro_rules! rows {
    ($($what:ident $needs:ident $look:path: $input:literal, $threshold:literal;)*) => {
        const ROWS: &[Row] = &[$(Row {
            what: validity::$what,
            input: $input,
            threshold: $threshold,
            is_watched: rows!(@ $needs),
            look: $look,
        }),*];
    };
    (@ watched) => { true };
    (@ recorded) => { false };
}

rows! {
    GOVERNOR watched host::governor: "`cpufreq/scaling_governor` of every CPU, before and after", "suspect: another than `performance`, or changed";
    IDLE_STATE watched host::idle_state: "`cpuidle/state*/usage` and `latency`; `rx_missed_errors` of the path", "suspect: a state whose exit takes at least half of p99 − p50, where p99 is at least twice p50; or at least 50 µs where the card missed frames";
    THROTTLED watched host::throttled: "`thermal_throttle/*_throttle_count` of every CPU", "invalid: moved";
    STEAL recorded host::steal: "steal of `/proc/stat`, in all CPU time", "suspect: more than 0.5 %; invalid: more than 2 %";
    EMULATED watched host::emulated: "`model name` of `/proc/cpuinfo`", "suspect: QEMU's emulation, whose time drifts with its host's load";
    OTHER_WORK recorded host::other_work: "CPU time of processes that are not of the test, kernel threads of the test's own work apart", "suspect: at least 10 % of a CPU, and at least two ticks";
    IRQ_MOVED watched host::irq_moved: "`/proc/irq/*/effective_affinity_list` of the interfaces of the path", "invalid: changed";
    IRQBALANCE watched host::irqbalance: "a process of that name, where the path has interrupts", "suspect: it runs";
    LINK_FLAP recorded config::link_flap: "`IFLA_CARRIER_CHANGES` of the interfaces of the path, and notices", "invalid: moved, or set down";
    PAUSE watched config::pause: "pause frames of the interfaces of the path (ethtool)", "suspect: moved";
    LINK_CHANGED watched config::link_changed: "`RTM_NEWLINK`, `RTM_DELLINK` of the interfaces of the path: MTU, address, master, queue length, name", "invalid: changed";
    QDISC_CHANGED watched config::qdisc_changed: "notices of qdiscs, classes and filters at the interfaces of the path", "invalid: changed";
    ROUTE_CHANGED watched config::route_changed: "`RTM_NEWROUTE`, `RTM_DELROUTE` in the nodes of the path whose prefix holds an address of an end", "invalid: changed";
    ADDRESS_CHANGED watched config::address_changed: "`RTM_NEWADDR`, `RTM_DELADDR` of an address of an end", "invalid: changed";
    RULE_CHANGED watched config::rule_changed: "`RTM_NEWRULE`, `RTM_DELRULE` in the nodes of the path", "suspect: changed";
    NEIGHBOUR_CHANGED watched config::neighbour_changed: "`RTM_NEWNEIGH`, `RTM_DELNEIGH` at the interfaces of the path: another Ethernet address, failed, removed", "suspect: changed";
    DRIVER_CHANGED watched config::driver_changed: "`ETHTOOL_MSG_*_NTF` of the interfaces of the path: offloads, rings, queues, coalescing, speed", "invalid: changed";
    TAP watched config::tap: "packet sockets of others at the interfaces of the path (`sock_diag`)", "suspect: there";
    PROGRAM watched config::program: "programs and filters of others at XDP, tcx and tc of the interfaces of the path", "suspect: there";
    CLOCK_STEP watched host::clock_step: "`CLOCK_REALTIME` against `CLOCK_MONOTONIC`", "suspect: apart by more than 1 ms and 600 ppm of the test";
    CLOCK_RATE watched host::clock_rate: "`CLOCK_MONOTONIC` against `CLOCK_MONOTONIC_RAW`", "suspect: apart by more than 600 ppm; invalid: more than 1 %";
    SUSPENDED watched host::suspended: "`CLOCK_BOOTTIME` against `CLOCK_MONOTONIC`", "invalid: apart by more than 1 ms";
    OBSERVER watched host::observer: "CPU time of pathlab and run time of its programs while traffic flowed", "suspect: more than 20 % of a CPU";
    COUNTER_RESET recorded config::counter_reset: "counters of the interfaces of the path, before and after", "invalid: one ran backwards, or the interface was made anew";
    ENDED recorded host::ended: "programs of the lab", "invalid: one ended";
    UNSETTLED recorded host::unsettled: "counters and queues after the last message", "invalid: they still moved when the test had to end";
    NOTHING_SENT recorded host::nothing_sent: "what the sender tried", "invalid: nothing";
}

/// Every row for people: its word, what is read, and from when on it speaks.
pub fn rows() -> impl Iterator<Item = [&'static str; 3]> {
    ROWS.iter().map(|row| [row.what, row.input, row.threshold])
}

/// What is said of a test that nobody watched.
const NOT_WATCHED: &str = "the conditions of this test were not watched";
/// The word for all rows at once.
pub const CONDITIONS: &str = "conditions";

/// Whether the figures of a test are valid, by everything that its record has.
pub fn judge(test: &TestRecord) -> Validity {
    let case = Case::of(test);
    let mut judged = Validity::default();
    for row in ROWS.iter().filter(|row| !row.is_watched || !test.conditions.is_empty()) {
        let mut found = Found::default();
        (row.look)(&case, &mut found);
        let named = |one: Disturbance| Disturbance { what: row.what.to_owned(), ..one };
        judged.reasons.extend(found.reasons.into_iter().map(named));
        let unknown =
            found.unknown.into_iter().map(|why| Unwatched { what: row.what.to_owned(), why, at: None });
        judged.unwatched.extend(unknown);
    }
    judged.unwatched.extend(case.missing());
    if test.conditions.is_empty() {
        let (what, why) = (CONDITIONS.to_owned(), NOT_WATCHED.to_owned());
        judged.unwatched.push(Unwatched { what, why, at: None });
    }
    judged.unwatched.sort();
    judged.unwatched.dedup();
    // Two nodes of one host say the same of it.
    judged.reasons = crate::table::grouped(judged.reasons, PartialEq::eq)
        .into_iter()
        .filter_map(|mut alike| alike.pop())
        .collect();
    judged.reasons.sort_by_key(|one| std::cmp::Reverse(one.verdict));
    judged.verdict = judged.reasons.first().map_or(Trust::Valid, |worst| worst.verdict);
    judged
}

/// What was concluded of a test, or is now of a record from before that was.
pub fn of(test: &TestRecord) -> Cow<'_, Validity> {
    test.validity.as_ref().map_or_else(|| Cow::Owned(judge(test)), Cow::Borrowed)
}

/// The worst verdict of the tests of a run; valid without any.
pub fn worst(run: &RunRecord) -> Trust {
    run.tests.iter().map(|test| of(test).verdict).max().unwrap_or_default()
}

/// The reasons with such a verdict, as one clause; none without any.
pub fn reasons(test: &TestRecord, verdict: Trust) -> Option<String> {
    let validity = of(test);
    let said: Vec<&str> =
        validity.reasons.iter().filter(|one| one.verdict == verdict).map(|one| one.reason.as_str()).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The mark of a figure in a table: `!` for invalid, `?` for suspect.
pub fn mark(verdict: Trust) -> &'static str {
    match verdict {
        Trust::Valid => "",
        Trust::Suspect => " ?",
        Trust::Invalid => " !",
    }
}

/// The worst verdict of some tests.
pub fn worst_of(tests: &[&TestRecord]) -> Trust {
    tests.iter().map(|test| of(test).verdict).max().unwrap_or_default()
}

/// What of some tests is not valid, a line for each reason and the tests that have it: `? udp-rr #1 #3: …`; repetitions of one test that have the same
/// reason share a line.
pub fn lines(tests: &[&TestRecord]) -> Vec<String> {
    let all = tests.iter().flat_map(|test| {
        let reasons = of(test).into_owned().reasons.into_iter();
        reasons.map(move |one| (*test, one))
    });
    // Of the host it is said once, whichever CPU it was.
    let place = |one: &Disturbance| one.place.starts_with("node ").then(|| one.place.clone());
    let same = |(test, one): &(&TestRecord, Disturbance), (other, two): &(&TestRecord, Disturbance)| {
        (&test.name, &one.what, one.verdict, place(one)) == (&other.name, &two.what, two.verdict, place(two))
    };
    let line = |alike: Vec<(&TestRecord, Disturbance)>| {
        let (mut numbered, reasons): (Vec<&TestRecord>, Vec<Disturbance>) = alike.into_iter().unzip();
        numbered.dedup_by_key(|test| test.repetition);
        let (first, mark) = (&reasons[0], mark(reasons[0].verdict).trim_start());
        let others = reasons.iter().filter(|one| one.reason != first.reason).count();
        let more = if others > 0 { format!(" (and {others} more like it)") } else { String::new() };
        let (numbered, verdict) = (crate::table::numbered(&numbered), first.verdict.word());
        format!("{mark} {numbered}: {verdict}: {}{more}", first.reason)
    };
    let mut groups = crate::table::grouped(all, same);
    groups.sort_by_key(|alike| std::cmp::Reverse(alike[0].1.verdict));
    groups.into_iter().map(line).collect()
}

/// What could not be watched in some tests, one clause each: `governor: this host shows no …`.
pub fn unwatched(tests: &[&TestRecord]) -> Vec<String> {
    let mut said: Vec<String> = vec![];
    for one in tests.iter().flat_map(|test| of(test).into_owned().unwatched) {
        let clause = format!("{}: {}", one.what.replace('_', " "), one.why);
        if !said.contains(&clause) {
            said.push(clause);
        }
    }
    said
}

/// What observing cost at most while traffic of some tests flowed, in words; none where nobody measured.
pub fn cost_words(tests: &[&TestRecord]) -> Option<String> {
    let hosts = || tests.iter().flat_map(|test| &test.conditions).map(|host| &host.cost);
    let most =
        |of: fn(&record::conditions::ObserverCost) -> Option<f64>| hosts().filter_map(of).reduce(f64::max);
    let said =
        |what: &str, percent: Option<f64>| percent.map(|percent| format!("{what} {percent:.1} % of a CPU"));
    let driver = said("pathlab", most(|cost| cost.driver_percent()));
    let programs = said("its programs in the kernel", most(|cost| cost.programs_percent()));
    let both: Vec<String> = driver.into_iter().chain(programs).collect();
    (!both.is_empty()).then(|| format!("Observing took at most, while traffic flowed: {}.", both.join(", ")))
}

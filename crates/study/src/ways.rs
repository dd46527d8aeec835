//! Several ways between the same two hosts beside each other: the table of the switch journals.
//!
//! **What.** [`row`] makes of the run over one way what those journals noted by hand: latency, TCP and UDP throughput, memory and
//! CPU of what is in the middle; [`table`] puts the rows of all ways under each other.
//!
//! **Why two numbers for CPU.** A program in the middle has a CPU time of its own, a kernel bridge has none; and a program
//! makes the kernel work in interrupts that nobody's account shows. So besides the program's own time there is
//! all that the host did but for the two ends: the thing and its kernel work, comparable for every way.
//!
//! **Price.** What else runs on the host counts into the latter; the first row (usually the direct way) shows how much that is.

use crate::table::{Column, Table, groups, loss_percent, number, over, told};
use crate::validity;
use record::delta::sum;
use record::snapshot::CpuTime;
use record::unit::{prefixed, time_ns};
use record::{RunRecord, TestRecord, TrafficKind, Trust};

/// One way in numbers: medians over the repetitions; none where nothing was measured.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct PathRow {
    /// Its name: `direct`, `bridge`, `null`, `switch`, `ovs`, with the kind of ports if one was chosen (`switch:xdp`).
    pub way: String,
    /// What was asked of the hosts' offloads: `on`, `off`; none left them as the kernel gives them.
    pub offload: Option<String>,
    /// The run's name.
    pub run: Option<String>,
    /// Why it was not measured.
    pub not_measured: Option<String>,
    /// The test that the latency is of.
    pub latency_test: Option<String>,
    /// Median latency in nanoseconds.
    pub latency_p50_ns: Option<f64>,
    /// 99th percentile in nanoseconds.
    pub latency_p99_ns: Option<f64>,
    /// TCP payload bits per second.
    pub tcp_bps: Option<f64>,
    /// UDP payload bits per second, of the test with the largest datagrams.
    pub udp_bps: Option<f64>,
    /// Datagrams per second that arrived, of the test with the smallest datagrams.
    pub udp_per_second: Option<f64>,
    /// Datagrams that did not arrive in that test, in percent.
    pub udp_loss_percent: Option<f64>,
    /// Highest resident memory of the programs in the middle, in bytes; none where the kernel forwards.
    pub ram_bytes: Option<f64>,
    /// CPU use of these programs in percent of one CPU, in the test where it was highest.
    pub cpu_program_percent: Option<f64>,
    /// All that the host did but for the two ends, in percent of one CPU, in the TCP test.
    pub cpu_tcp_percent: Option<f64>,
    /// The same in the UDP test with the smallest datagrams.
    pub cpu_udp_percent: Option<f64>,
    /// Offload states of the two hosts' interfaces.
    pub offloads: Vec<String>,
    /// The worst verdict of its tests; none where nothing was measured.
    pub validity: Option<Trust>,
    /// Why its figures are suspect or invalid, a line for each reason.
    pub doubts: Vec<String>,
}

/// The two ends are processes of the traffic; everything else on a node's account is the middle.
fn is_end(role: &str) -> bool {
    matches!(role, "sender" | "receiver")
}

/// CPU use of the whole host but for the ends, in percent of one CPU.
fn middle_percent(test: &TestRecord) -> Option<f64> {
    let hertz = test.after.tick_hz as f64;
    let wall_s = test.after.begun_ns.saturating_sub(test.before.begun_ns) as f64 * 1e-9;
    let busy = sum(test.cpu.iter().map(CpuTime::busy));
    let ends: f64 =
        test.actors.iter().filter(|actor| is_end(&actor.role)).map(|actor| actor.cpu_percent).sum();
    let known = hertz > 0.0 && wall_s > 0.0 && !test.cpu.is_empty();
    known.then(|| (busy as f64 / hertz / wall_s * 100.0 - ends).max(0.0))
}

/// Sum over the programs in the middle; none when there is none.
fn programs(test: &TestRecord, value: impl Fn(&record::ActorUsage) -> f64) -> Option<f64> {
    let middle: Vec<f64> = test.actors.iter().filter(|actor| !is_end(&actor.role)).map(value).collect();
    (!middle.is_empty()).then(|| middle.iter().sum())
}

/// The offload states of the two ends: they decide what kind of frames cross the way.
fn of_hosts(test: &TestRecord) -> Vec<String> {
    let is_of =
        |line: &&String, node: &str| line.strip_prefix(node).is_some_and(|rest| rest.starts_with(':'));
    let hosts = |line: &&String| is_of(line, &test.spec.from) || is_of(line, &test.spec.to);
    test.offloads.iter().filter(hosts).cloned().collect()
}

/// The run over one way as a row.
pub fn row(way: &str, run: &RunRecord) -> PathRow {
    let groups = groups(run);
    let of_kind = |is: fn(TrafficKind) -> bool| groups.iter().filter(move |tests| is(tests[0].kind));
    let datagrams = |kind: TrafficKind| kind.is_one_way() && !kind.is_by_port();
    // The journals timed with ping; a plan without one has another round trip.
    let trips = || of_kind(TrafficKind::is_round_trip);
    let timed = trips().find(|tests| tests[0].kind.is_echo()).or_else(|| trips().next());
    let latency = |pick: fn(&record::Latency) -> u64| {
        timed.and_then(|tests| over(tests, |test| test.latency_ns.as_ref().map(|l| pick(l) as f64)))
    };
    let tcp = of_kind(TrafficKind::is_bytes).next();
    let largest = of_kind(datagrams).max_by_key(|tests| tests[0].spec.size);
    let smallest = of_kind(datagrams).min_by_key(|tests| tests[0].spec.size);
    let most = |value: &dyn Fn(&TestRecord) -> Option<f64>| {
        groups.iter().filter_map(|tests| over(tests, value)).reduce(f64::max)
    };
    PathRow {
        way: way.into(),
        offload: run.way.as_ref().and_then(|way| way.offload.clone()),
        run: Some(run.id.clone()),
        not_measured: None,
        latency_test: timed.map(|tests| tests[0].name.clone()),
        latency_p50_ns: latency(|latency| latency.p50),
        latency_p99_ns: latency(|latency| latency.p99),
        tcp_bps: tcp.and_then(|tests| over(tests, TestRecord::throughput)),
        udp_bps: largest.and_then(|tests| over(tests, TestRecord::throughput)),
        udp_per_second: smallest.and_then(|tests| over(tests, TestRecord::message_rate)),
        udp_loss_percent: smallest.and_then(|tests| over(tests, loss_percent)),
        ram_bytes: most(&|test| programs(test, |actor| actor.rss_bytes as f64)),
        cpu_program_percent: most(&|test| programs(test, |actor| actor.cpu_percent)),
        cpu_tcp_percent: tcp.and_then(|tests| over(tests, middle_percent)),
        cpu_udp_percent: smallest.and_then(|tests| over(tests, middle_percent)),
        offloads: run.tests.first().map(of_hosts).unwrap_or_default(),
        validity: (!run.tests.is_empty()).then(|| validity::worst(run)),
        doubts: validity::lines(&crate::table::in_plan_order(run)),
    }
}

/// The rows of runs that were made as ways, in the order of the runs.
pub fn rows(runs: &[RunRecord]) -> Vec<PathRow> {
    runs.iter().filter_map(|run| Some(row(&run.way.as_ref()?.name, run))).collect()
}

impl PathRow {
    /// The way with what was asked of the offloads, when something was: what tells it from the others.
    pub fn title(&self) -> String {
        title(&self.way, self.offload.as_deref())
    }
}

/// `switch`, or `switch, offload off`.
pub fn title(way: &str, offload: Option<&str>) -> String {
    offload.map_or(way.to_owned(), |state| format!("{way}, offload {state}"))
}

const COLUMNS: [Column<PathRow>; 12] = [
    ("path", |row| format!("{}{}", row.way, validity::mark(row.validity.unwrap_or_default()))),
    ("offload", |row| row.offload.clone().unwrap_or("–".into())),
    ("p50", |row| told(row.latency_p50_ns, time_ns)),
    ("p99", |row| told(row.latency_p99_ns, time_ns)),
    ("TCP bit/s", |row| told(row.tcp_bps, prefixed)),
    ("UDP bit/s", |row| told(row.udp_bps, prefixed)),
    ("UDP messages/s", |row| told(row.udp_per_second, prefixed)),
    ("UDP loss %", |row| told(row.udp_loss_percent, number)),
    ("RAM B", |row| told(row.ram_bytes, prefixed)),
    ("CPU program %", |row| told(row.cpu_program_percent, number)),
    ("CPU TCP %", |row| told(row.cpu_tcp_percent, number)),
    ("CPU UDP %", |row| told(row.cpu_udp_percent, number)),
];

/// The table of the journals; with a column for the offloads where something was asked of them.
pub fn table(rows: &[PathRow]) -> Table {
    let asked = rows.iter().any(|row| row.offload.is_some());
    let columns: Vec<Column<PathRow>> =
        COLUMNS.into_iter().filter(|(header, _)| asked || *header != "offload").collect();
    Table::of(1 + usize::from(asked), &columns, rows)
}

/// What the columns mean, what was not measured, and the offloads.
pub fn notes(rows: &[PathRow]) -> Vec<String> {
    let mut notes = vec![];
    if let Some(test) = rows.iter().find_map(|row| row.latency_test.as_ref()) {
        notes.push(format!(
            "Medians over the repetitions. Latency: {test}, round trip. UDP bit/s: the largest datagrams; messages/s and loss: the \
             smallest. RAM and CPU program: the programs between the hosts. CPU TCP and UDP: all that this host did but for \
             the two ends, in percent of one CPU."
        ));
    }
    for row in rows {
        if let Some(why) = &row.not_measured {
            notes.push(format!("{}: not measured: {why}", row.title()));
        }
        notes.extend(row.doubts.iter().map(|line| format!("{}: {line}", row.title())));
    }
    let mut asked: Vec<Option<&str>> = rows.iter().map(|row| row.offload.as_deref()).collect();
    asked.sort();
    asked.dedup();
    for offload in asked {
        let of = |row: &&PathRow| row.offload.as_deref() == offload && row.not_measured.is_none();
        notes.extend(offloads(&rows.iter().filter(of).collect::<Vec<_>>()));
    }
    notes
}

/// The states of the hosts' interfaces as they were found: one sentence where they are the same on all these ways, else one for
/// each way.
fn offloads(rows: &[&PathRow]) -> Vec<String> {
    let states = |row: &PathRow| -> Vec<String> {
        let words =
            row.offloads.iter().filter_map(|line| line.split_once(' ')).map(|(_, words)| words.to_owned());
        let mut words: Vec<String> = words.collect();
        words.sort();
        words.dedup();
        words
    };
    let Some((first, rest)) = rows.split_first() else { return vec![] };
    let asked = first.offload.as_ref().map_or(String::new(), |state| format!(" with offload {state}"));
    match &states(first)[..] {
        [all] if rest.iter().all(|row| states(row) == [all.clone()]) => {
            vec![format!("Offloads of the hosts' interfaces{asked}: {all}.")]
        }
        _ => {
            rows.iter().map(|row| format!("{}: offloads: {}", row.title(), row.offloads.join("; "))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use record::{ActorUsage, PathVariant};

    fn over(name: &str, more: Option<ActorUsage>) -> RunRecord {
        let mut run = sample::run("x");
        run.way = Some(PathVariant { name: name.into(), group: "g".into(), offload: None });
        run.tests.iter_mut().for_each(|test| test.actors.extend(more.clone()));
        run
    }

    #[test]
    fn a_program_has_memory_and_the_kernel_has_none() {
        let usage = |role: &str| ActorUsage {
            role: role.into(),
            node: "s".into(),
            cpu_percent: 30.0,
            wait_percent: 0.0,
            stopped_percent: 0.0,
            rss_bytes: 5_000_000,
        };
        let mut two = over("ovs", Some(usage("ovs")));
        two.tests.iter_mut().for_each(|test| test.actors.push(usage("ovsdb")));
        let mut rows = rows(&[over("direct", None), two]);
        assert_eq!((rows[0].ram_bytes, rows[1].ram_bytes), (None, Some(1e7)));
        assert_eq!(rows[1].cpu_program_percent, Some(60.0));
        assert_eq!(rows[0].tcp_bps, rows[1].tcp_bps);
        assert!(
            rows[0].tcp_bps.is_some() && rows[0].udp_per_second.is_some() && rows[0].latency_p50_ns.is_some()
        );
        rows.push(PathRow { way: "null".into(), not_measured: Some("why".into()), ..PathRow::default() });
        let table = table(&rows);
        assert!(table.rows.iter().all(|row| row.len() == table.headers.len()));
        assert!(table.rows[2][1..].iter().all(|cell| cell == "–"));
        let notes = notes(&rows);
        assert!(notes.contains(&"null: not measured: why".to_owned()), "{notes:?}");
        assert!(
            notes.iter().any(|note| note.starts_with("Offloads of the hosts' interfaces: tso off")),
            "{notes:?}"
        );
    }

    #[test]
    fn a_course_that_is_not_valid_is_marked() {
        let mut run = over("switch", None);
        run.tests[0].invalid = vec!["counters still moved".into()];
        let rows = rows(&[over("direct", None), run]);
        assert_eq!(rows[0].validity, Some(Trust::Valid));
        let table = table(&rows);
        assert_eq!([&table.rows[0][0], &table.rows[1][0]], ["direct", "switch !"]);
        let said = notes(&rows);
        assert!(
            said.iter().any(|note| note.starts_with("switch: ! ") && note.ends_with("counters still moved")),
            "{said:?}"
        );
    }

    #[test]
    fn what_was_asked_of_the_offloads_stands_beside_the_numbers() {
        let off = |name: &str, state: Option<&str>, found: &str| {
            let mut run = over(name, None);
            run.way.as_mut().unwrap().offload = state.map(Into::into);
            for test in &mut run.tests {
                test.offloads =
                    [&test.spec.from, &test.spec.to].map(|node| format!("{node}:eth0 {found}")).into();
            }
            run
        };
        let runs = [
            off("direct", Some("on"), "tso on"),
            off("direct", Some("off"), "tso off"),
            off("switch", Some("on"), "tso on"),
            off("switch", Some("off"), "tso off"),
        ];
        let table_of = |runs: &[RunRecord]| table(&rows(runs));
        let both = table_of(&runs);
        assert_eq!((both.headers[1].as_str(), both.words), ("offload", 2));
        assert_eq!(
            both.rows.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(),
            ["on", "off", "on", "off"]
        );
        let said = notes(&rows(&runs));
        for state in ["on", "off"] {
            let sentence = format!("Offloads of the hosts' interfaces with offload {state}: tso {state}.");
            assert!(said.contains(&sentence), "{said:?}");
        }
        // A port that switches an offload off is told with its way.
        let said = notes(&rows(&[runs[0].clone(), off("switch:xdp", Some("on"), "tso off")]));
        assert!(said.iter().any(|note| note.starts_with("switch:xdp, offload on: offloads: ")), "{said:?}");
        assert_eq!(table_of(&[off("direct", None, "tso on")]).headers[1], "p50");
    }

    #[test]
    fn the_middle_is_what_the_ends_do_not_use() {
        let mut test = sample::run("x").tests.remove(0);
        let wall_s = (test.after.begun_ns - test.before.begun_ns) as f64 * 1e-9;
        let busy: u64 = test.cpu.iter().map(|cpu| cpu.user + cpu.system + cpu.irq + cpu.softirq).sum();
        test.after.tick_hz = 100;
        test.actors.retain(|actor| actor.role == "sender");
        test.actors.iter_mut().for_each(|actor| actor.cpu_percent = 1.0);
        let expected = (busy as f64 / wall_s - test.actors.len() as f64).max(0.0);
        assert!((middle_percent(&test).unwrap() - expected).abs() < 1e-9);
        test.cpu.clear();
        assert_eq!(middle_percent(&test), None);
    }
}

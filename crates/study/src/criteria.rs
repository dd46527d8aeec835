//! What a test must reach, and whether it did: what makes `pathlab run` end with code 1.
//!
//! **What.** A criterion is a limit for one number of a test: the most loss, the least rate, the longest 99th percentile. [`judge`]
//! compares, and writes down what was wanted and what was found. A test that carried nothing at all has failed even when nothing was
//! asked of it, unless a loss that large was allowed.
//!
//! **Unknown is not passed.** A number that a test of this kind has, and that could not be measured, fails its criterion.

use crate::findings::title;
use crate::table::{Column, Table, count, grouped, numbered};
use record::follow::FollowLeg;
use record::run::Criterion;
use record::unit::{amount, many, nanoseconds, scaled, time_ns};
use record::{Problem, Rate, RunRecord, TestRecord, TrafficKind, Trust};
use std::fmt;
use std::str::FromStr;

/// How many frames or messages may be missing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MostLoss {
    /// So many.
    Frames(u64),
    /// This share of the offered ones, in percent.
    Percent(f64),
}

impl MostLoss {
    /// How many of so many offered ones.
    pub fn of(self, offered: u64) -> u64 {
        match self {
            MostLoss::Frames(frames) => frames,
            MostLoss::Percent(percent) => (offered as f64 * percent / 100.0) as u64,
        }
    }
}

impl FromStr for MostLoss {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let bad = || format!("'{text}' is not a loss (examples: 0, 25, 0.1%)");
        match text.strip_suffix('%') {
            None => amount(text).map(MostLoss::Frames).map_err(|_| bad()),
            Some(share) => {
                let share = share.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
                share.map(MostLoss::Percent).ok_or_else(bad)
            }
        }
    }
}

impl fmt::Display for MostLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MostLoss::Frames(frames) => write!(f, "{frames}"),
            MostLoss::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The longest latency that is allowed, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MostLatency(pub u64);

impl FromStr for MostLatency {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match nanoseconds(text)? {
            ns @ 1..=3_600_000_000_000 => Ok(MostLatency(ns)),
            _ => Err(format!("'{text}' is not a latency from 1ns to 1h")),
        }
    }
}

impl fmt::Display for MostLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&time_ns(self.0 as f64))
    }
}

/// What is asked of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Criteria {
    /// Messages that may be missing.
    pub max_loss: Option<MostLoss>,
    /// Messages or payload bits that must arrive each second.
    pub min_rate: Option<Rate>,
    /// The longest 99th percentile of the latency.
    pub max_p99: Option<MostLatency>,
    /// Its figures must be valid.
    pub require_valid: bool,
}

impl Criteria {
    /// Those that a test of this kind can be held to.
    pub fn of(self, kind: TrafficKind) -> Criteria {
        Criteria {
            max_loss: self.max_loss.filter(|_| kind.has_ledger()),
            min_rate: self.min_rate.filter(|rate| has_rate(kind, *rate)),
            max_p99: self.max_p99.filter(|_| !kind.is_bytes()),
            require_valid: self.require_valid,
        }
    }

    /// These, and the others where these say nothing.
    pub fn or(self, others: Criteria) -> Criteria {
        Criteria {
            max_loss: self.max_loss.or(others.max_loss),
            min_rate: self.min_rate.or(others.min_rate),
            max_p99: self.max_p99.or(others.max_p99),
            require_valid: self.require_valid || others.require_valid,
        }
    }

    /// The first that no test of these kinds can be held to: its name and why.
    pub fn impossible(self, kinds: &[TrafficKind]) -> Option<(&'static str, String)> {
        let held = kinds.iter().map(|kind| self.of(*kind)).reduce(Criteria::or).unwrap_or_default();
        let (name, why) = if self.max_loss != held.max_loss {
            ("max-loss", "TCP repairs its losses, and".to_owned())
        } else if let Some(rate) = self.min_rate.filter(|_| held.min_rate.is_none()) {
            ("min-rate", format!("no test counts what {rate} is a rate of,"))
        } else if self.max_p99 != held.max_p99 {
            ("max-p99", "a stream of bytes has no latency, and".to_owned())
        } else {
            return None;
        };
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        Some((name, format!("{why} there is only {}", kinds.join(", "))))
    }
}

/// Bits are counted of streams, messages of all but a stream of bytes.
fn has_rate(kind: TrafficKind, rate: Rate) -> bool {
    match rate {
        Rate::BitsPerSecond(_) => !kind.is_round_trip(),
        Rate::MessagesPerSecond(_) => !kind.is_bytes(),
    }
}

/// Compares a test with what was asked of it.
pub fn judge(criteria: Criteria, test: &TestRecord) -> Vec<Criterion> {
    let Criteria { max_loss, min_rate, max_p99, require_valid } = criteria.of(test.kind);
    let mut judged = vec![];
    let mut add = |name: &str, wanted: String, found: String, passed: bool| {
        judged.push(Criterion { name: name.into(), wanted, found, passed });
    };
    let offered = test.offered.datagrams;
    let lost = offered.saturating_sub(test.received.unique);
    let nothing = test.received.unique == 0 && test.received.bytes == 0;
    if let Some(most) = max_loss {
        let found = format!("{} of {} lost", count(lost), count(offered));
        add("max-loss", most.to_string(), found, offered > 0 && lost <= most.of(offered));
    } else if nothing {
        let found = match offered {
            0 => "nothing was sent".into(),
            offered => format!("nothing of {} arrived", many(offered, "message")),
        };
        add("arrives", "something".into(), found, false);
    }
    if let Some(least) = min_rate {
        let (found, limit, unit) = match least {
            Rate::BitsPerSecond(limit) => (test.throughput(), limit, "bit/s"),
            Rate::MessagesPerSecond(limit) => (test.message_rate(), limit, "messages/s"),
        };
        let words =
            found.map_or("unknown: what arrived, arrived at one time".into(), |rate| scaled(rate, unit));
        add("min-rate", least.to_string(), words, found.is_some_and(|rate| rate >= limit));
    }
    if let Some(most) = max_p99 {
        let p99 = test.latency_ns.as_ref().filter(|latency| latency.count > 0).map(|latency| latency.p99);
        let found = p99.map_or("unknown: no message was timed".into(), |ns| time_ns(ns as f64));
        add("max-p99", most.to_string(), found, p99.is_some_and(|p99| p99 <= most.0));
    }
    judged.extend(require_valid.then(|| valid(test)));
    judged
}

/// Whether the figures of a test are valid, as a criterion.
fn valid(test: &TestRecord) -> Criterion {
    let validity = crate::validity::of(test);
    let worst = validity.reasons.first().map_or(String::new(), |one| format!(": {}", one.reason));
    let found = format!("{}{worst}", validity.verdict.word());
    Criterion {
        name: "valid".into(),
        wanted: "valid".into(),
        found,
        passed: validity.verdict == Trust::Valid,
    }
}

/// The end of a command whose test must have valid figures.
///
/// # Errors
/// Measured: they are not.
pub fn required_valid(test: &TestRecord) -> record::Result<()> {
    let one = valid(test);
    if one.passed { Ok(()) } else { Err(Problem::measured(sentence(&one))) }
}

/// The criteria that the tests of a run failed, one sentence each.
pub fn failed(run: &RunRecord) -> Vec<String> {
    let of = |test: &TestRecord| -> Vec<String> {
        let failed = test.criteria.iter().filter(|criterion| !criterion.passed);
        failed.map(|criterion| format!("{}: {}", title(test), sentence(criterion))).collect()
    };
    crate::table::in_plan_order(run).into_iter().flat_map(of).collect()
}

fn sentence(criterion: &Criterion) -> String {
    let Criterion { name, wanted, found, .. } = criterion;
    match name.as_str() {
        "arrives" => found.clone(),
        "valid" => format!("its figures are {found}"),
        _ => format!("{found}, but {name} is {wanted}"),
    }
}

/// The end of a command whose tests had such criteria.
///
/// # Errors
/// Measured: one of them failed, or a test could not be run.
pub fn verdict(failed: &[String], not_made: usize, tests: usize) -> record::Result<()> {
    let mut said = vec![];
    if let Some((first, more)) = failed.split_first() {
        let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
        said.push(format!("{first}{more}"));
    }
    if not_made > 0 {
        said.push(format!(
            "{not_made} of {} could not be run, the findings say why",
            record::unit::many(tests as u64, "test")
        ));
    }
    match said.is_empty() {
        true => Ok(()),
        false => Err(Problem::measured(said.join("; "))),
    }
}

/// Repetitions that met, or missed, the same criterion: the tests and what was found.
type Judged<'a> = Vec<(&'a TestRecord, &'a Criterion)>;

/// The criteria of a run: repetitions that passed share a row.
pub fn table(run: &RunRecord) -> Table {
    let columns: [Column<Judged>; 5] = [
        ("test", |row| numbered(&row.iter().map(|(test, _)| *test).collect::<Vec<_>>())),
        ("criterion", |row| row[0].1.name.clone()),
        ("wanted", |row| row[0].1.wanted.clone()),
        ("found", |row| {
            let mut found: Vec<&str> = row.iter().map(|(_, criterion)| criterion.found.as_str()).collect();
            found.dedup();
            found.join("; ")
        }),
        ("verdict", |row| if row[0].1.passed { "passed" } else { "failed" }.into()),
    ];
    let rows = crate::table::groups(run).into_iter().flat_map(|tests| {
        let judged = tests.into_iter().flat_map(|test| test.criteria.iter().map(move |one| (test, one)));
        grouped(judged, |(_, one), (_, other)| {
            (&one.name, &one.wanted, one.passed) == (&other.name, &other.wanted, other.passed)
        })
    });
    Table::of(columns.len(), &columns, rows)
}

/// Why what a followed flow lost is more than is allowed; none when it is not.
pub fn followed(legs: &[FollowLeg], max_loss: Option<MostLoss>) -> Option<String> {
    let most = max_loss?;
    if legs.is_empty() {
        return Some("no frame of the flow was seen".into());
    }
    let too_many = legs.iter().find(|leg| leg.lost().saturating_sub(leg.uncertainty) > most.of(leg.sent))?;
    let FollowLeg { leg, sent, .. } = too_many;
    let (lost, sent) = (record::unit::count(too_many.lost()), many(*sent, "frame"));
    Some(format!("{lost} of {sent} were lost on the way {leg}, more than {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn of(kind: TrafficKind) -> TestRecord {
        sample::run("x").tests.into_iter().find(|test| test.kind == kind).expect("one of each kind")
    }

    fn all(loss: &str, rate: &str, p99: &str) -> Criteria {
        Criteria {
            max_loss: Some(loss.parse().unwrap()),
            min_rate: Some(rate.parse().unwrap()),
            max_p99: Some(p99.parse().unwrap()),
            require_valid: false,
        }
    }

    #[test]
    fn every_limit_passes_at_the_number_itself_and_fails_beside_it() {
        let mut test = of(TrafficKind::UdpStream);
        (test.offered.datagrams, test.received.unique, test.messages_per_second) = (1000, 990, 5000.0);
        test.latency_ns.as_mut().unwrap().p99 = 1_500_000;
        let passed = |criteria| judge(criteria, &test).iter().map(|c| c.passed).collect::<Vec<_>>();
        assert_eq!(passed(all("10", "5kpps", "1.5ms")), [true, true, true]);
        assert_eq!(passed(all("1%", "5kpps", "1500us")), [true, true, true]);
        assert_eq!(passed(all("9", "5001pps", "1499us")), [false, false, false]);
        let found: Vec<String> = judge(all("0", "1pps", "1s"), &test).into_iter().map(|c| c.found).collect();
        assert_eq!(found, ["10 of 1,000 lost", "5.00 kmessages/s", "1.50 ms"]);
    }

    /// One message, or several that arrived at one time, have no rate.
    #[test]
    fn a_rate_that_is_not_known_is_no_nought_and_not_enough() {
        let mut run = sample::run("x");
        run.tests.retain(|test| test.kind == TrafficKind::UdpStream);
        run.tests.truncate(1);
        let test = &mut run.tests[0];
        (test.received.unique, test.received.bytes) = (1, 64);
        (test.messages_per_second, test.throughput_bps) = (0.0, 0.0);
        let limit = Criteria { min_rate: Some("1pps".parse().unwrap()), ..Criteria::default() };
        let judged = judge(limit, test);
        assert_eq!(judged[0].found, "unknown: what arrived, arrived at one time");
        assert!(!judged[0].passed);
        let row = crate::table::results(&run).rows.remove(0);
        assert_eq!([&row[2], &row[3], &row[4]], ["–"; 3]);
        (run.tests[0].received.unique, run.tests[0].received.bytes) = (0, 0);
        assert_eq!(crate::table::results(&run).rows[0][2], "0", "nothing is no rate that is unknown");
    }

    #[test]
    fn a_test_that_carried_nothing_has_failed_unless_that_was_allowed() {
        let mut test = of(TrafficKind::UdpStream);
        (test.received.unique, test.received.bytes, test.latency_ns) = (0, 0, None);
        let judged = judge(Criteria::default(), &test);
        assert!(judged.len() == 1 && !judged[0].passed && judged[0].found.contains("arrived"), "{judged:?}");
        let allowed = Criteria { max_loss: Some(MostLoss::Percent(100.0)), ..Criteria::default() };
        assert!(judge(allowed, &test).iter().all(|criterion| criterion.passed));
        let timed = Criteria { max_p99: Some(MostLatency(1 << 40)), ..allowed };
        assert!(judge(timed, &test).iter().any(|c| !c.passed && c.found.contains("unknown")));
        assert!(judge(Criteria::default(), &of(TrafficKind::TcpStream)).is_empty());
    }

    #[test]
    fn a_criterion_is_for_the_kinds_that_have_its_number() {
        let criteria = all("0", "1mbit", "1ms");
        assert_eq!(
            criteria.of(TrafficKind::TcpStream),
            Criteria { min_rate: criteria.min_rate, ..Criteria::default() }
        );
        assert_eq!(criteria.of(TrafficKind::Ping).min_rate, None);
        assert_eq!(criteria.impossible(&[TrafficKind::TcpStream, TrafficKind::Ping]), None);
        assert_eq!(criteria.impossible(&[TrafficKind::TcpStream]).unwrap().0, "max-loss");
        assert_eq!(criteria.impossible(&[TrafficKind::Ping]).unwrap().0, "min-rate");
        let p99 = Criteria { max_p99: Some(MostLatency(1)), ..Criteria::default() };
        assert_eq!(p99.impossible(&[TrafficKind::TcpStream]).unwrap().0, "max-p99");
    }

    #[test]
    fn figures_must_be_valid_only_where_that_is_asked() {
        let mut test = sample::test(TrafficKind::TcpRr, "tcp-rr", 1, false);
        let asked = Criteria { require_valid: true, ..Criteria::default() };
        assert!(judge(asked, &test).iter().all(|one| one.name == "valid" && one.passed));
        required_valid(&test).unwrap();
        test.others =
            vec![record::OtherWork { name: "make".into(), cpu_percent: 80.0, ..Default::default() }];
        assert!(judge(Criteria::default(), &test).is_empty());
        let judged = judge(asked, &test);
        assert!(!judged[0].passed && judged[0].found.starts_with("suspect: make took 80 %"), "{judged:?}");
        assert_eq!(required_valid(&test).unwrap_err().kind.exit_code(), 1);
        assert!(
            asked.of(TrafficKind::TcpStream).require_valid
                && asked.impossible(&[TrafficKind::Ping]).is_none()
        );
    }

    #[test]
    fn limits_are_read_and_wrong_ones_explained() {
        for (text, ns) in
            [("250ns", 250), ("1.5ms", 1_500_000), ("20us", 20_000), ("20µs", 20_000), ("1s", 1_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(MostLatency(ns)));
        }
        for wrong in ["", "1", "ms", "1.2.3ms", "0ms", "-1ms", "61m", "5h"] {
            assert!(wrong.parse::<MostLatency>().is_err(), "{wrong}");
        }
        assert_eq!(MostLatency(1_500_000).to_string(), "1.50 ms");
    }

    #[test]
    fn the_table_and_the_sentences_say_which_repetition_failed() {
        let mut run = sample::run("x");
        for test in run.tests.iter_mut().filter(|test| test.kind == TrafficKind::Ping) {
            test.latency_ns.as_mut().unwrap().p99 = if test.repetition == 2 { 9_000_000 } else { 1_000_000 };
            test.criteria =
                judge(Criteria { max_p99: Some(MostLatency(2_000_000)), ..Criteria::default() }, test);
        }
        let mut table = table(&run);
        table.rows.retain(|row| row[0].starts_with("ping"));
        assert_eq!(table.rows.len(), 2, "{}", table.text());
        assert!(table.rows.iter().any(|row| row[0].contains("#2") && row[4] == "failed"), "{}", table.text());
        assert_eq!(failed(&run), ["ping #2: 9.00 ms, but max-p99 is 2.00 ms"]);
        assert!(verdict(&failed(&run), 0, 18).unwrap_err().kind.exit_code() == 1);
        assert!(verdict(&[], 2, 18).unwrap_err().to_string().contains("2 of 18 tests"));
        verdict(&[], 0, 18).unwrap();
    }
}

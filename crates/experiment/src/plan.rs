//! Plans: experiments as text.
//!
//! **What.** A plan names a topology, the two ends, and the tests with their settings; `docs/plans.md` has the
//! grammar. **Why.** An experiment that is a text file can be repeated, reviewed and compared; the record of a run
//! keeps the text. **Price.** One statement per line; what it cannot say, a flag of `pathlab run` cannot say either.

use crate::change::LabChange;
use record::line::{self, Word};
use record::unit::{self, duration_ms};
use record::{Problem, Rate, Result, TestSpec, TrafficKind};
use std::str::FromStr;
use study::criteria::Criteria;

/// The plan that `pathlab run` follows when none is named.
pub const DEFAULT: &str = include_str!("../../../plans/default.plan");

/// A test with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Name in tables, e.g. `udp-stream 64 B`.
    pub name: String,
    /// What to do.
    pub spec: TestSpec,
    /// What it must reach.
    pub criteria: Criteria,
    /// Nobody said which version of IP: it is 4 where both ends have that.
    pub any_family: bool,
}

/// What is watched of each test beside its counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extra {
    /// Samples of every CPU in a second; none without a profile.
    pub profile_hz: Option<u32>,
    /// One of so many messages is stamped in each layer; none without the layers.
    pub layers_every: Option<u32>,
    /// Whether the frames of each test that die are written to a file beside the record.
    pub dead_frames: bool,
    /// Whether facts of all nodes are taken while frames of each test flow, in its first repetition.
    pub facts: bool,
}

impl Extra {
    /// Makes sure that nothing is to be watched that is not between two hosts.
    ///
    /// # Errors
    /// Input: something is.
    pub fn is_of_hosts(&self) -> Result<()> {
        if self.profile_hz.is_some() || self.layers_every.is_some() || self.dead_frames {
            return Err(Problem::input("profiles, layers and dead frames are watched in labs only")
                .help("leave --profile, --layers and --drops out, or measure in a lab"));
        }
        Ok(())
    }
}

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// A built-in topology's name or a file.
    pub topology: String,
    /// How often every test is repeated.
    pub repetitions: u32,
    /// All tests and repetitions shuffled, with a recorded seed, not as written, repetition by repetition.
    pub shuffled: bool,
    /// Seed of the random order, if the plan fixes it.
    pub seed: Option<u64>,
    /// What knobs of the lab are set to while the tests run.
    pub settings: Vec<LabChange>,
    /// The tests as written.
    pub tests: Vec<Planned>,
    /// What is watched beside the counters. Plans do not have it: those are flags.
    pub extra: Extra,
}

impl Plan {
    /// Reads a plan. `file` is the name used in messages.
    ///
    /// # Errors
    /// Bad input with `file:line:column`, what was wrong and what is possible there.
    pub fn parse(text: &str, file: &str) -> Result<Plan> {
        let mut reader = Reader::default();
        for line in line::lines(text) {
            reader.statement(&line.words).map_err(|(at, problem)| {
                let column = if at == 0 { line.words[0].column } else { at };
                problem.at(format!("{file}:{}:{column}", line.number))
            })?;
            reader.idle = match line.words[0] {
                word if word.text == "test" => None,
                word if STATEMENTS.contains(&(word.text, false)) => Some(word),
                _ => reader.idle,
            };
        }
        if let Some(word) = reader.idle.filter(|_| !reader.plan.tests.is_empty()) {
            let what = format!("'{}' holds for the tests after it, and there is none", word.text);
            return Err(word.problem(file, what).help("write it above the tests"));
        }
        reader.finish().map_err(|problem| problem.at(file))
    }

    /// Keeps only the tests of these kinds; all when none is named.
    ///
    /// # Errors
    /// Bad input when one of them is not there.
    pub fn only(&mut self, kinds: &[TrafficKind]) -> Result<()> {
        let missing = kinds.iter().find(|kind| self.tests.iter().all(|test| test.spec.kind != **kind));
        if let Some(kind) = missing {
            return Err(Problem::input(format!("the plan has no {kind} test to keep"))
                .at("--only")
                .help("name kinds that the plan has"));
        }
        self.tests.retain(|test| kinds.is_empty() || kinds.contains(&test.spec.kind));
        Ok(())
    }

    /// Holds every test to these criteria, where it has such a number, instead of what the plan says.
    ///
    /// # Errors
    /// Bad input when no test has such a number.
    pub fn hold_to(&mut self, criteria: Criteria) -> Result<()> {
        let kinds: Vec<TrafficKind> = self.tests.iter().map(|test| test.spec.kind).collect();
        if let Some((name, why)) = criteria.impossible(&kinds) {
            return Err(Problem::input(why)
                .at(format!("--{name}"))
                .help("leave it out, or name another plan"));
        }
        for test in &mut self.tests {
            test.criteria = criteria.of(test.spec.kind).or(test.criteria);
        }
        Ok(())
    }

    /// Uses that version of IP in the tests of which nobody said one; what is longer with it than the usual size has the name of its own.
    pub fn use_family(&mut self, family: u8) {
        for Planned { name, spec, .. } in self.tests.iter_mut().filter(|test| test.any_family) {
            if spec.size == spec.kind.default_size(spec.family) {
                let sized = |spec: &TestSpec| format!("{} {} B", spec.kind.name(), spec.size);
                let before = sized(spec);
                spec.size = spec.kind.default_size(family);
                *name = name.replacen(&before, &sized(spec), 1);
            }
            spec.family = family;
        }
    }

    /// Shortens every test to half a second (a test with a count keeps its count, and ends with it).
    pub fn quick(&mut self) {
        for test in &mut self.tests {
            if test.spec.count.is_none() {
                test.spec.duration_ms = test.spec.duration_ms.min(500);
            }
        }
    }

    /// Stamps one of so many messages in each layer of the path; none without a number.
    ///
    /// # Errors
    /// Host: its kernel or its permissions do not let programs take stamps.
    pub fn stamp_layers(&mut self, every: Option<u32>) -> Result<()> {
        self.extra.layers_every = every;
        every.map_or(Ok(()), |_| linux::observe::check_layers())
    }

    /// The tests in the order in which they are to run: (index of the test, repetition from 1).
    pub fn schedule(&self, seed: u64) -> Vec<(usize, u32)> {
        let mut all: Vec<(usize, u32)> = (1..=self.repetitions)
            .flat_map(|repetition| (0..self.tests.len()).map(move |test| (test, repetition)))
            .collect();
        if self.shuffled {
            study::stats::SplitMix64::new(seed).shuffle(&mut all);
        }
        all
    }
}

/// What helps with most words.
const DOCS: &str = "see docs/plans.md";

/// A problem and the column it is at (0: the first word of the line).
type Located<T> = std::result::Result<T, (usize, Problem)>;

fn wrong<T>(column: usize, what: impl Into<String>, help: impl Into<String>) -> Located<T> {
    Err((column, Problem::input(what).help(help)))
}

/// The value of a word; one that cannot be read is reported at its place.
fn read<T>(word: Word<'_>, read: impl FnOnce(&str) -> Result<T, String>, help: &str) -> Located<T> {
    read(word.text).or_else(|what| wrong(word.column, what, help))
}

/// What was read so far.
struct Reader<'a> {
    /// Its topology is empty until it was named.
    plan: Plan,
    ends: (String, String),
    /// The last `duration` statement; none was there yet.
    duration_ms: Option<u64>,
    /// The last `family` statement; none was there yet.
    family: Option<u8>,
    /// Statements that were there.
    seen: Vec<&'static str>,
    /// The last statement for the tests after it, until one comes.
    idle: Option<Word<'a>>,
}

impl Default for Reader<'_> {
    fn default() -> Self {
        let plan = Plan {
            topology: String::new(),
            repetitions: 3,
            shuffled: true,
            seed: None,
            settings: vec![],
            tests: vec![],
            extra: Extra::default(),
        };
        Reader {
            plan,
            ends: ("a".into(), "b".into()),
            duration_ms: None,
            family: None,
            seen: vec![],
            idle: None,
        }
    }
}

/// Statements beside `test`, and whether they hold for the whole plan and stand only once (the others hold for the tests after
/// them).
const STATEMENTS: [(&str, bool); 7] = [
    ("topology", true),
    ("path", true),
    ("repetitions", true),
    ("duration", false),
    ("family", false),
    ("order", true),
    ("seed", true),
];

impl Reader<'_> {
    fn statement(&mut self, words: &[Word<'_>]) -> Located<()> {
        let keyword = words[0].text;
        match keyword {
            "test" => return self.test(&words[1..]),
            "set" => return self.setting(&words[1..]),
            _ => {}
        }
        let wanted = if keyword == "path" { 2 } else { 1 };
        let Some(&(keyword, once)) = STATEMENTS.iter().find(|(known, _)| *known == keyword) else {
            let names = STATEMENTS.map(|(name, _)| name).join(", ");
            let help = format!("the statements are {names}, set, test");
            return wrong(0, format!("unknown statement '{keyword}'"), help);
        };
        if words.len() != wanted + 1 {
            let plural = if wanted == 1 { "one word" } else { "two node names" };
            return wrong(0, format!("'{keyword}' takes {plural}"), DOCS);
        }
        if once && self.seen.contains(&keyword) {
            return wrong(0, format!("'{keyword}' is given twice"), "leave one of them out");
        }
        if keyword == "path" && words[1].text == words[2].text {
            let what = format!("the path goes from node '{}' to itself", words[1].text);
            return wrong(words[2].column, what, "name two nodes, e.g. 'path a b'");
        }
        self.seen.push(keyword);
        let value = words[1];
        match keyword {
            "topology" => self.plan.topology = value.text.into(),
            "path" => self.ends = (value.text.into(), words[2].text.into()),
            "repetitions" => self.plan.repetitions = ranged(value, 1, 1000)? as u32,
            "duration" => self.duration_ms = Some(duration(value)?),
            "family" => self.family = Some(family(value)?),
            "seed" => self.plan.seed = Some(number(value)?),
            _ => self.plan.shuffled = order(value)?,
        }
        Ok(())
    }

    fn setting(&mut self, words: &[Word<'_>]) -> Located<()> {
        let text = words.iter().map(|word| word.text).collect::<Vec<_>>().join(" ");
        let change = LabChange::parse(&text).map_err(|problem| (0, problem))?;
        if self.plan.settings.iter().any(|other| other.shares_a_knob(&change)) {
            return wrong(0, format!("a knob of '{text}' is set twice"), "leave one of them out");
        }
        self.plan.settings.push(change);
        Ok(())
    }

    fn test(&mut self, words: &[Word<'_>]) -> Located<()> {
        let Some(&first) = words.first() else {
            return wrong(0, "'test' needs a kind", "e.g. test udp-stream size 64");
        };
        let kind = read(first, TrafficKind::from_str, DOCS)?;
        let (family, receive_buffer) = (self.family.unwrap_or(4), TestSpec::default_receive_buffer(kind));
        let mut spec =
            TestSpec { kind, size: 0, duration_ms: 0, family, receive_buffer, ..TestSpec::default() };
        let mut criteria = Criteria::default();
        let mut rest = words[1..].iter();
        let mut seen = vec![];
        while let Some(&key) = rest.next() {
            if seen.contains(&key.text) {
                return wrong(key.column, format!("'{}' is given twice", key.text), "leave one of them out");
            }
            seen.push(key.text);
            if key.text == "gro" {
                spec.gro = true;
                continue;
            }
            let Some(&value) = rest.next() else {
                return wrong(key.column, format!("'{}' needs a value", key.text), "e.g. size 64");
            };
            if !limit(&mut criteria, kind, key, value)? {
                set(&mut spec, key, value)?;
            }
        }
        if spec.duration_ms == 0 {
            // A count that nobody limits takes as long as it takes.
            let unsaid = if spec.count.is_some() { 0 } else { TestSpec::default().duration_ms };
            spec.duration_ms = self.duration_ms.unwrap_or(unsaid);
        }
        // Said last, when the family is known; a frame of 0 bytes is the shortest.
        if !seen.contains(&"size") || kind.is_by_port() && spec.size == 0 {
            spec.size = kind.default_size(spec.family);
        }
        load::check_spec(&spec).map_err(|problem| (first.column, problem))?;
        let name = name_of(&spec, &words[1..]);
        if self.plan.tests.iter().any(|test| test.name == name) {
            let what = format!("the test '{name}' is given twice");
            return wrong(0, what, "use repetitions, or change a setting");
        }
        let any_family = self.family.is_none() && !seen.contains(&"family");
        self.plan.tests.push(Planned { name, spec, criteria, any_family });
        Ok(())
    }

    fn finish(mut self) -> Result<Plan> {
        if self.plan.topology.is_empty() {
            return Err(Problem::input("no topology").help("add a line such as: topology bridge"));
        }
        if self.plan.tests.is_empty() {
            return Err(Problem::input("no tests").help("add a line such as: test tcp-stream"));
        }
        for test in &mut self.plan.tests {
            (test.spec.from, test.spec.to) = self.ends.clone();
        }
        Ok(self.plan)
    }
}

/// Words of a test that say what it must reach, and do not shape it.
const LIMITS: [&str; 3] = ["max-loss", "min-rate", "max-p99"];

/// Reads a criterion; false when the word is none.
fn limit(criteria: &mut Criteria, kind: TrafficKind, key: Word<'_>, value: Word<'_>) -> Located<bool> {
    match key.text {
        "max-loss" => criteria.max_loss = Some(read(value, str::parse, DOCS)?),
        "min-rate" => criteria.min_rate = Some(read(value, str::parse, DOCS)?),
        "max-p99" => criteria.max_p99 = Some(read(value, str::parse, DOCS)?),
        _ => return Ok(false),
    }
    match criteria.impossible(&[kind]) {
        Some((name, why)) => {
            wrong(key.column, format!("'{name}' is not for this test: {why}"), "leave it out")
        }
        None => Ok(true),
    }
}

fn set(spec: &mut TestSpec, key: Word<'_>, value: Word<'_>) -> Located<()> {
    let text = || value.text.to_owned();
    match key.text {
        "size" => spec.size = bytes(value)?,
        "response" => spec.response = bytes(value)?,
        "rate" => spec.rate = Some(read(value, Rate::from_str, DOCS)?),
        "count" => spec.count = Some(ranged(value, 1, 1 << 40)?),
        "duration" => spec.duration_ms = duration(value)?,
        "family" => spec.family = family(value)?,
        "streams" => spec.streams = ranged(value, 1, 64)? as u32,
        "batch" => spec.batch = ranged(value, 1, 1024)? as u32,
        "gso" => spec.gso = ranged(value, 0, 128)? as u32,
        "send-buffer" => spec.send_buffer = Some(bytes(value)?),
        "receive-buffer" if value.text == "system" => spec.receive_buffer = None,
        "receive-buffer" => spec.receive_buffer = Some(bytes(value)?),
        "sender-cpu" => spec.sender_cpu = Some(ranged(value, 0, 4095)? as u32),
        "receiver-cpu" => spec.receiver_cpu = Some(ranged(value, 0, 4095)? as u32),
        "congestion" => spec.congestion = Some(text()),
        "port" => spec.port = text(),
        other => {
            let keys = "size, response, rate, count, duration, family, streams, batch, gso, gro, send-buffer, \
                        receive-buffer, sender-cpu, receiver-cpu, congestion, port, max-loss, min-rate, max-p99";
            let what = format!("unknown setting '{other}'");
            return wrong(key.column, what, format!("the settings are {keys}"));
        }
    }
    Ok(())
}

fn number(word: Word<'_>) -> Located<u64> {
    read(word, unit::amount, DOCS)
}

fn ranged(word: Word<'_>, low: u64, high: u64) -> Located<u64> {
    let value = number(word)?;
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    wrong(word.column, format!("{value} is out of range"), format!("{low} to {high}"))
}

fn duration(word: Word<'_>) -> Located<u64> {
    read(word, duration_ms, "e.g. 2s")
}

fn order(word: Word<'_>) -> Located<bool> {
    match word.text {
        "random" => Ok(true),
        "listed" => Ok(false),
        other => wrong(word.column, format!("unknown order '{other}'"), "random or listed"),
    }
}

fn family(word: Word<'_>) -> Located<u8> {
    match word.text {
        "4" => Ok(4),
        "6" => Ok(6),
        other => wrong(word.column, format!("unknown family '{other}'"), "4 or 6"),
    }
}

fn bytes(word: Word<'_>) -> Located<u32> {
    let bytes = read(word, unit::bytes, DOCS)?;
    u32::try_from(bytes).or_else(|_| wrong(word.column, format!("{bytes} is out of range"), "below 4 GiB"))
}

fn name_of(spec: &TestSpec, words: &[Word<'_>]) -> String {
    let mut name = spec.kind.name().to_owned();
    if spec.size > 0 {
        name.push_str(&format!(" {} B", spec.size));
    }
    let mut rest = words.iter().map(|word| word.text);
    while let Some(key) = rest.next() {
        let value = if key == "gro" { "" } else { rest.next().unwrap_or_default() };
        match key {
            "size" => {}
            limit if LIMITS.contains(&limit) => {}
            "rate" => name.push_str(&format!(" {value}")),
            "count" => name.push_str(&format!(" ×{value}")),
            "gro" => name.push_str(" gro"),
            _ => name.push_str(&format!(" {key} {value}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_version_of_ip_that_somebody_said_stays() {
        let text = "topology pair\ntest frames rate 1kpps\ntest udp-stream family 4\nfamily 4\ntest tcp-rr\ntest tcp-stream family 6\n";
        let mut plan = Plan::parse(text, "p").unwrap();
        plan.use_family(6);
        let families: Vec<u8> = plan.tests.iter().map(|test| test.spec.family).collect();
        assert_eq!(families, [6, 4, 4, 6]);
        let frames = &plan.tests[0];
        assert_eq!(
            (frames.spec.size, frames.name.as_str()),
            (80, "frames 80 B 1kpps"),
            "no frame of IPv6 is shorter"
        );
    }

    #[test]
    fn every_shipped_plan_reads() {
        for entry in std::fs::read_dir("../../plans").unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let plan = Plan::parse(&text, &path.display().to_string()).unwrap_or_else(|e| panic!("{e}"));
            assert!(!plan.tests.is_empty());
        }
    }

    #[test]
    fn the_default_plan_has_the_six_tests_of_the_journals() {
        let plan = Plan::parse(DEFAULT, "default").unwrap();
        let names: Vec<_> = plan.tests.iter().map(|test| test.name.as_str()).collect();
        let expected =
            ["tcp-stream", "udp-stream 64 B", "udp-stream 1472 B", "tcp-rr 64 B", "udp-rr 64 B", "ping 56 B"];
        assert_eq!(names, expected);
        assert_eq!(plan.schedule(7).len(), 18);
    }

    #[test]
    fn settings_are_changes_of_knobs() {
        let text = "topology pair\nset b/net.ipv4.tcp_rmem=4096 8192  16384\n\
                    set a/eth0:coalesce.rx-usecs=8+eth0:mtu=9000 # both\ntest ping";
        let settings = Plan::parse(text, "p").unwrap().settings;
        assert_eq!(settings[0].asks[0].value, "4096 8192 16384");
        assert_eq!((settings[1].node.as_str(), settings[1].asks.len()), ("a", 2));
    }

    #[test]
    fn several_kinds_can_be_kept() {
        let mut plan = Plan::parse(DEFAULT, "default").unwrap();
        plan.only(&[]).unwrap();
        assert_eq!(plan.tests.len(), 6);
        assert!(
            plan.only(&[TrafficKind::Ping, TrafficKind::Frames])
                .unwrap_err()
                .to_string()
                .contains("no frames test")
        );
        plan.only(&[TrafficKind::Ping, TrafficKind::TcpStream]).unwrap();
        let names: Vec<_> = plan.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["tcp-stream", "ping 56 B"]);
    }

    #[test]
    fn a_duration_that_was_said_limits_a_count() {
        let of = |text: &str| Plan::parse(text, "p").unwrap().tests[0].spec.duration_ms;
        assert_eq!(of("topology pair\ntest ping"), 2000);
        assert_eq!(of("topology pair\ntest ping count 9"), 0, "as long as it takes");
        assert_eq!(of("topology pair\nduration 10s\ntest ping count 9"), 10_000);
        assert_eq!(of("topology pair\nduration 10s\ntest ping count 9 duration 500ms"), 500);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_place_and_a_way_out() {
        let cases = [
            ("topology bridge\ntest udp-strem", "p:2:6: unknown test kind 'udp-strem'"),
            ("topology bridge\ntest udp-stream size x", "p:2:22: 'x' is not a number of bytes"),
            ("topology bridge\n  tset tcp-stream", "p:2:3: unknown statement 'tset'"),
            ("topology bridge\ntest tcp-stream sise 4", "p:2:17: unknown setting 'sise'"),
            ("topology bridge\ntest ping size", "p:2:11: 'size' needs a value"),
            ("test ping", "p: no topology"),
            ("topology bridge", "p: no tests"),
            ("topology bridge\ntopology pair\ntest ping", "p:2:1: 'topology' is given twice"),
            ("topology bridge\npath a a\ntest ping", "p:2:8: the path goes from node 'a' to itself"),
            ("topology bridge\ntest ping size 56 size 57", "p:2:19: 'size' is given twice"),
            ("topology pair\nset eth0\ntest ping", "p:2:1: 'eth0' is no change"),
            ("topology pair\nset a/eth0:mtu=9\nset a/eth0:mtu=9\ntest ping", "p:3:1: a knob of"),
            ("topology bridge\ntest ping\ntest ping", "p:3:1: the test 'ping 56 B' is given twice"),
            ("topology pair\ntest ping\nfamily 6\nseed 1", "p:3:1: 'family' holds for the tests after it"),
            ("duration 1s\ntest ping\n  duration 2s\ntopology pair", "p:3:3: 'duration' holds for the tests"),
        ];
        for (text, expected) in cases {
            let problem = Plan::parse(text, "p").unwrap_err();
            assert!(problem.to_string().starts_with(expected), "{problem}");
            assert_eq!(problem.kind.exit_code(), 2);
            assert!(!problem.advice.is_empty() || problem.what.contains("one of"), "{problem}");
        }
    }

    #[test]
    fn a_seed_fixes_the_order_and_loses_nothing() {
        let plan = Plan::parse(DEFAULT, "default").unwrap();
        let mut order = plan.schedule(42);
        assert_eq!(order, plan.schedule(42));
        assert_ne!(order, plan.schedule(43));
        order.sort_unstable();
        order.dedup();
        assert_eq!(order.len(), 18);
    }

    proptest! {
        #[test]
        fn any_text_is_a_plan_or_a_sentence(text in "(topology|test|path|ping|size|[a-z0-9# \n\"é]){0,30}") {
            let _ = Plan::parse(&text, "p");
        }
    }
}

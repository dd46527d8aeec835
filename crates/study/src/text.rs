//! A run as plain text: results, losses station by station, limits, findings.
//!
//! Texts of a record may come from another machine, so control characters never reach the terminal.

use crate::findings::title;
use crate::table::{self, Table};
use crate::validity;
use record::ledger::WitnessDrop;
use record::line::is_unsafe;
use record::{Finding, Ledger, RunRecord, Severity, TestRecord, Trust, WitnessStatus};

/// Colours, or none of them.
struct Paint(bool);

impl Paint {
    fn with(&self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    fn head(&self, text: &str) -> String {
        self.with("1", text)
    }
}

/// Replaces characters that move or turn what stands around them, except line ends and tabs.
pub fn printable(text: &str) -> String {
    let safe = |c: char| if is_unsafe(c) && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.chars().map(safe).collect()
}

/// The same of text that may be coloured (`ESC [ 31 m`): colours stay, whatever else moves or asks a terminal does not.
pub fn printable_in_colour(text: &str) -> String {
    const BEGIN: &str = "\x1b[";
    let mut pieces = text.split(BEGIN);
    let mut safe = printable(pieces.next().unwrap_or_default());
    for piece in pieces {
        let code = piece.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(piece.len());
        safe += if piece[code..].starts_with('m') { BEGIN } else { "\u{fffd}[" };
        safe += &printable(piece);
    }
    safe
}

/// The whole run, as `pathlab run` and `pathlab show` print it.
pub fn run(run: &RunRecord, colour: bool) -> String {
    let paint = Paint(colour);
    let mut parts = vec![fold(&heading(run, &paint), &paint), results(run, &paint)];
    parts.push(section(&paint, "Criteria", text(&crate::criteria::table(run))));
    parts.push(fold(&section(&paint, "Where every frame went", ledgers(run, &paint)), &paint));
    parts.push(section(&paint, "What limited each test", text(&table::limits(run))));
    parts.push(section(&paint, "Where the time went", times(run, &paint)));
    parts.push(section(&paint, "Latency by layer", layers(run, &paint)));
    parts.push(section(&paint, "What the doctor finds", of_tests(run, &paint, crate::doctor::text::of_test)));
    parts.push(fold(&section(&paint, "Findings", findings(&run.findings, &paint)), &paint));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Folds a line of prose that may be coloured at its begin; what follows stands further in.
fn fold(text: &str, paint: &Paint) -> String {
    // Colours take no room on the screen, so a coloured line is left to the terminal.
    if paint.0 { text.to_owned() } else { table::folded(text, 4) }
}

fn heading(run: &RunRecord, paint: &Paint) -> String {
    let host = &run.host;
    let ended = run.ended.as_deref().map_or("not finished".into(), printable);
    let mut text = format!(
        "{}  {} … {ended}  seed {}\n{} on Linux {}, {} ({}){}, {}\n",
        paint.head(&format!("Run {}", printable(&run.id))),
        printable(&run.begun),
        run.seed,
        printable(&host.machine),
        printable(&host.kernel),
        record::unit::many(host.cpus.into(), "CPU"),
        printable(&host.cpu_model),
        if host.virtual_machine { ", virtual machine" } else { "" },
        printable(&host.privilege),
    );
    if let Some(label) = &run.label {
        text += &format!("label: {}\n", printable(label));
    }
    for why in &run.invalid {
        text += &paint.with("31", &format!("not valid: {}\n", printable(why)));
    }
    text
}

/// A head and what stands below it; nothing without that.
fn section(paint: &Paint, head: &str, body: String) -> String {
    if body.is_empty() { body } else { format!("{}\n{body}", paint.head(head)) }
}

/// The rows of a table with its head; nothing without rows.
fn text(table: &Table) -> String {
    if table.rows.is_empty() { String::new() } else { printable(&table.text()) }
}

fn results(run: &RunRecord, paint: &Paint) -> String {
    let mut table = table::results(run);
    if table.rows.is_empty() {
        return "No test was finished.\n".into();
    }
    for (row, tests) in table.rows.iter_mut().zip(table::groups(run)) {
        row[0] += validity::mark(validity::worst_of(&tests));
    }
    let outliers = table::outliers(run);
    let mut words = format!("{}\n", table::interval_words(run));
    if !outliers.is_empty() {
        words += &format!("Far from the other repetitions: {}.\n", outliers.join("; "));
    }
    let text = printable(&table.text_within(table::WIDTH, &table::RESULTS_BREAKS));
    let validity = table::folded(&printable(&validity_lines(run)), 2);
    format!("{}\n{text}{}{validity}", paint.head("Results"), table::folded(&printable(&words), 2))
}

/// Why figures of the table are marked, and what nobody could tell of any.
fn validity_lines(run: &RunRecord) -> String {
    of_validity(&table::in_plan_order(run))
}

/// The same of some tests.
fn of_validity(tests: &[&TestRecord]) -> String {
    let mut lines = validity::lines(tests);
    let doubtful = tests.iter().filter(|test| validity::of(test).verdict > Trust::Valid).count();
    if doubtful == 0 {
        lines.push("Nothing that was watched makes a figure doubtful.".into());
    }
    lines.extend(validity::cost_words(tests));
    let unwatched = validity::unwatched(tests);
    if !unwatched.is_empty() {
        lines.push(format!("Not watched: {}.", unwatched.join("; ")));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Whether the figures of a test that stands alone are valid.
pub fn validity(test: &TestRecord) -> String {
    let head = format!("figures: {}\n", validity::of(test).verdict.word());
    table::folded(&printable(&(head + &of_validity(&[test]))), 2)
}

/// In what the two ends of a test differ, and which hosts between them told nothing.
pub fn of_hosts(test: &TestRecord) -> String {
    table::folded(&findings(&crate::findings::of_hosts(test), &Paint(false)), 4)
}

/// The ledgers of all tests, in the order of the plan. Repetitions in which nothing happened share a line: that nothing was
/// lost is a result too.
fn ledgers(run: &RunRecord, paint: &Paint) -> String {
    let mut text = String::new();
    for tests in table::groups(run) {
        let quiet = |test: &&TestRecord| test.ledger.as_ref().is_some_and(is_quiet);
        let (calm, eventful): (Vec<&TestRecord>, Vec<&TestRecord>) = tests.into_iter().partition(quiet);
        if let Some(ledger) = calm.first().and_then(|test| test.ledger.as_ref()) {
            let sum =
                |pick: fn(&Ledger) -> u64| calm.iter().filter_map(|t| t.ledger.as_ref()).map(pick).sum();
            let (sent, received): (u64, u64) = (sum(|l| l.sent), sum(|l| l.received));
            let head = table::numbered(&calm);
            let (sent, received) = (table::count(sent), table::count(received));
            let witness = table::witness_words(ledger);
            let line = format!("sent {sent}, received {received}, unexplained 0 ± 0; witness {witness}");
            text += &format!("{}: {}\n", paint.head(&printable(&head)), printable(&line));
        }
        for test in eventful {
            text += &losses(test, &title(test), paint).unwrap_or_default();
        }
    }
    text += &dead_frames(run);
    if let Some(words) = crate::way::cost_words(run) {
        text += &table::folded(&format!("{words}\n"), 2);
    }
    text
}

/// The files of dead frames, a line for each test.
fn dead_frames(run: &RunRecord) -> String {
    let line = |test: &&TestRecord| {
        let line = crate::dead_frames::line(&run.id, test)?;
        Some(table::folded(&format!("{}: {}\n", printable(&title(test)), printable(&line)), 2))
    };
    table::in_plan_order(run).iter().filter_map(line).collect()
}

/// Who waited for a CPU and which functions ran, of each test that has a profile.
fn times(run: &RunRecord, paint: &Paint) -> String {
    of_tests(run, paint, crate::time::text)
}

/// Which layer of the path took how long, of each test that has stamps.
fn layers(run: &RunRecord, paint: &Paint) -> String {
    of_tests(run, paint, crate::layers::text)
}

/// What there is to say of each test, below its name.
fn of_tests(run: &RunRecord, paint: &Paint, text: fn(&TestRecord) -> String) -> String {
    let one = |test: &&TestRecord| {
        let text = text(test);
        (!text.is_empty()).then(|| format!("{}\n{}", paint.head(&printable(&title(test))), printable(&text)))
    };
    let all: Vec<String> = table::in_plan_order(run).iter().filter_map(one).collect();
    all.join("\n")
}

/// Nothing was lost, queued, unknown or uncertain.
fn is_quiet(ledger: &Ledger) -> bool {
    let clean = ledger.stations.iter().all(|s| !table::is_eventful(s) && s.uncertainty == 0);
    let same = ledger.sent == ledger.received && ledger.unexplained == 0;
    clean && same && ledger.notes.is_empty() && ledger.witness.status != WitnessStatus::Disagrees
}

/// The ledger of a test that stands alone.
pub fn ledger(test: &TestRecord) -> Option<String> {
    Some(table::folded(&losses(test, "ledger", &Paint(false))?, 4))
}

/// The way of a test without a ledger, and what the kernels dropped of it.
pub fn way(test: &TestRecord) -> String {
    let drop = |seen: &WitnessDrop| {
        let at = seen.location.as_deref().unwrap_or("an unknown function");
        format!("dropped at {}: {} of {} at {at}", seen.node, table::count(seen.frames), seen.reason)
    };
    let lines = crate::way::lines(test).into_iter().chain(test.kernel_drops.iter().map(drop));
    table::folded(&lines.map(|line| format!("{}\n", printable(&line))).collect::<String>(), 4)
}

/// The ledger of one test in which something happened.
fn losses(test: &TestRecord, name: &str, paint: &Paint) -> Option<String> {
    let ledger = test.ledger.as_ref()?;
    let head = format!("{name}: {}", table::sums_words(ledger));
    let mut text = format!("{}\n", paint.head(&printable(&head)));
    let table = table::stations(ledger, false);
    let mut lines = vec![];
    if !table.rows.is_empty() {
        // It stands two characters further in.
        lines.extend(table.text_within(table::WIDTH - 2, &[]).lines().map(ToOwned::to_owned));
        lines.extend(table::evidence_lines(ledger).into_iter().map(|line| format!("because: {line}")));
    }
    lines.extend(crate::way::lines(test));
    lines.push(format!("witness {}", table::witness_words(ledger)));
    lines.extend(ledger.notes.iter().map(|note| format!("note: {note}")));
    for line in lines {
        text += &format!("  {}\n", printable(&line));
    }
    Some(text)
}

fn findings(findings: &[Finding], paint: &Paint) -> String {
    let mut text = String::new();
    // What makes figures doubtful stands below them.
    for finding in findings.iter().filter(|finding| !crate::findings::is_of_validity(finding)) {
        let (word, code) = match finding.severity {
            Severity::Note => ("note", "36"),
            Severity::Warning => ("warning", "33"),
            Severity::Loss => ("loss", "31"),
        };
        let test = if finding.test.is_empty() { "run" } else { &finding.test };
        text +=
            &format!("  {}  {}: {}\n", paint.with(code, word), printable(test), printable(&finding.claim));
        text += &format!("      {}\n      → {}\n", printable(&finding.evidence), printable(&finding.advice));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_test_that_stands_alone_is_as_narrow_as_a_run() {
        let tests = sample::run("20260102T030405Z-abc123").tests;
        let mut test = tests.into_iter().find(|test| test.ledger.is_some()).unwrap();
        let long = "a reason of the kernel that goes on and on ".repeat(3);
        test.ledger.as_mut().unwrap().notes = vec![long.clone()];
        let host = |kernel: &str| record::HostFacts { kernel: kernel.into(), ..Default::default() };
        test.hosts = vec![host(&long), host("6.18")];
        test.kernel_drops = vec![WitnessDrop {
            reason: long,
            node: "b".into(),
            interface: None,
            location: None,
            frames: 1,
            skbs: 1,
        }];
        for text in [ledger(&test).unwrap(), way(&test), of_hosts(&test)] {
            assert!(text.contains("on and"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= table::WIDTH), "{text}");
        }
    }

    #[test]
    fn the_text_has_every_number_that_convicts() {
        let text = run(&sample::run("20260102T030405Z-abc123"), false);
        assert!(text.lines().all(|line| line.chars().count() <= table::WIDTH), "{text}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Run 20260102T030405Z-abc123",
            "udp-stream 64 B #1: sent 100,000, received 88,000, unexplained 0 ± 0",
            "qdisc_full 2,000",
            "socket_buffer_full 10,000",
            "witness agrees: saw QDISC_DROP 2,000, SOCKET_RCVBUFF 10,000",
            "The round trip limited it.",
            "unexplained 0 ± 0; witness agrees: saw no drop",
            "their range",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn a_doubtful_figure_is_marked_and_its_reason_stands_below() {
        let mut record = sample::run("x");
        let words = |record: &RunRecord| run(record, false).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&record).contains("Nothing that was watched makes a figure doubtful."));
        let first = record.tests.iter_mut().find(|test| test.name == "tcp-rr").unwrap();
        first.others =
            vec![record::OtherWork { name: "make".into(), cpu_percent: 80.0, ..Default::default() }];
        record.tests[1].invalid = vec!["counters still moved".into()];
        record.findings = crate::findings::findings(&record);
        let text = words(&record);
        assert!(text.contains("tcp-rr ? 3") && text.contains("udp-stream 64 B ! 3"), "{text}");
        assert!(text.contains("? tcp-rr #1: suspect: make took 80 % of a CPU beside the test"), "{text}");
        assert!(text.contains("! udp-stream 64 B #1: invalid: counters still moved"), "{text}");
        assert_eq!(text.matches("counters still moved").count(), 1, "said once: {text}");
    }

    #[test]
    fn columns_stand_under_each_other() {
        let table = table::results(&sample::run("x"));
        let text = table.text_within(table::WIDTH, &table::RESULTS_BREAKS);
        let lengths: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        let height = table.rows.len() + 1;
        assert_eq!(lengths.len(), 3 * height, "{text}");
        for block in lengths.chunks(height) {
            assert!(block.iter().all(|length| *length == block[0] && *length <= table::WIDTH), "{text}");
        }
    }

    #[test]
    fn a_wide_column_of_words_takes_several_lines() {
        let sentence = "word ".repeat(40).trim().to_owned();
        let table = Table {
            headers: vec!["test".into(), "why".into()],
            rows: vec![vec!["a".into(), sentence.clone()]],
            words: 2,
        };
        let text = table.text();
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.chars().count() <= table::WIDTH));
        assert_eq!(text.matches("word").count(), 40, "{text}");
        assert!(text.lines().nth(2).unwrap().starts_with("      word"), "{text}");
    }

    #[test]
    fn a_word_that_cannot_be_folded_moves_no_column() {
        let knob = "a/eth0:feature.tx-tcp-segmentation".repeat(2);
        let rows = [format!("{knob} off"), "mtu".into()].map(|change| vec![change, "better by 2 %".into()]);
        let table = Table { headers: vec!["change".into(), "expected".into()], rows: rows.into(), words: 1 };
        let text = table.text();
        let columns: Vec<usize> = text
            .lines()
            .filter_map(|line| line.find("better").map(|at| line[..at].chars().count()))
            .collect();
        assert!(columns.len() == 2 && columns[0] == columns[1], "{text}");
    }

    #[test]
    fn an_outlier_is_said_and_one_repetition_has_no_interval() {
        let mut record = sample::run("x");
        let first = record.tests[0].clone();
        let rates = [100e6, 101e6, 40e6];
        let test =
            |(n, rate): (u32, f64)| TestRecord { repetition: n, throughput_bps: rate, ..first.clone() };
        record.tests = (1..).zip(rates).map(test).collect();
        let text = run(&record, false).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("#3 had 40.0 Mbit/s, the others 100 Mbit/s to 101"), "{text}");
        record.tests[2].throughput_bps = 99e6;
        assert!(!run(&record, false).contains("Far from"));
        record.tests.truncate(1);
        let text = run(&record, false);
        assert!(!text.contains("100 M]") && text.contains("One repetition"), "{text}");
    }

    #[test]
    fn a_record_cannot_speak_to_the_terminal() {
        let mut record = sample::run("evil\x1b[2J");
        record.tests[0].name = "\x1b]0;title\x07".into();
        record.findings[0].claim = "\x1b[31m".into();
        assert!(!run(&record, false).contains(['\x1b', '\x07']));
    }

    #[test]
    fn only_colours_reach_the_terminal() {
        let named = "\x1b[1;31mloss\x1b[0m at \x1b[2Jeth0\x1b]0;title\x07\tend\n";
        let shown = "\x1b[1;31mloss\x1b[0m at \u{fffd}[2Jeth0\u{fffd}]0;title\u{fffd}\tend\n";
        assert_eq!(printable_in_colour(named), shown);
        assert_eq!(printable_in_colour("cut \x1b["), "cut \u{fffd}[");
        assert_eq!(printable("\x1b[31mred"), "\u{fffd}[31mred");
    }

    #[test]
    fn an_empty_run_is_a_sentence() {
        let empty = RunRecord { tests: vec![], findings: vec![], ..sample::run("x") };
        assert!(run(&empty, true).contains("No test was finished."));
    }

    #[test]
    fn counts_are_grouped() {
        for (value, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")]
        {
            assert_eq!(table::count(value), text);
        }
    }
}

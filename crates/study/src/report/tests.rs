use super::*;
use crate::sample;
use record::run::Criterion;

/// A page without facts of a host.
fn html(runs: &[RunRecord]) -> Result<String> {
    super::html(runs, &[])
}

#[test]
fn the_page_is_whole_and_fetches_nothing() {
    let page = html(&[sample::run("20260102T030405Z-abc123")]).unwrap();
    assert!(page.starts_with(MARK));
    for part in [
        "udp-stream 64 B",
        "−2,000 qdisc_full",
        "Example CPU 9000",
        "topology bridge",
        "unexplained 0 ± 0",
        "TCP over time, #",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for (tag, attribute) in [("<link", "href="), ("<script", "src="), ("<img", "src="), ("@import", "")] {
        let fetches = page.match_indices(tag).any(|(at, _)| {
            let end = page[at..].find('>').map_or(page.len(), |end| at + end);
            page[at..end].contains(attribute)
        });
        assert!(!fetches, "{tag} {attribute}");
    }
}

#[test]
fn hostile_names_stay_text() {
    const EVIL: &str =
        "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'\u{1b}[31m\u{0}\u{202e}";
    let mut run = sample::run(EVIL);
    (run.plan, run.topology) = (EVIL.into(), EVIL.into());
    run.command = vec![EVIL.into()];
    run.invalid = vec![EVIL.into()];
    run.host.cpu_model = EVIL.into();
    for test in &mut run.tests {
        test.name = format!("{EVIL}{}", test.kind);
        test.limit.sentence = EVIL.into();
        test.latency_kind = EVIL.into();
        test.path.forward[0].node = EVIL.into();
        test.path.forward[0].egress = Some(EVIL.into());
        test.sender.settings.method = EVIL.into();
        for station in test.ledger.iter_mut().flat_map(|ledger| &mut ledger.stations) {
            station.station = EVIL.into();
            for drop in &mut station.drops {
                (drop.name, drop.evidence) = (EVIL.into(), EVIL.into());
            }
        }
    }
    run.findings = crate::findings::findings(&run);
    let page = html(&[run.clone(), run]).unwrap();
    assert!(!page.contains("<img"), "markup of a name reached the page");
    assert!(!page.contains("<script>alert"));
    assert!(
        !page.chars().any(|c| record::line::is_unsafe(c) && !"\n\t".contains(c)),
        "a name moves what stands beside it"
    );
    assert_eq!(page.matches("</script>").count(), 3);
}

#[test]
fn no_run_is_a_problem_and_an_empty_run_is_a_page() {
    assert_eq!(html(&[]).unwrap_err().kind.exit_code(), 2);
    let empty = RunRecord { tests: vec![], findings: vec![], ..sample::run("x") };
    assert!(html(&[empty]).unwrap().contains("Results"));
}

#[test]
fn the_page_names_the_run_and_shows_what_was_asked_of_it() {
    let mut run = sample::run("one");
    run.tests.iter_mut().for_each(|test| test.criteria.clear());
    assert!(!html(std::slice::from_ref(&run)).unwrap().contains("<h3>Criteria</h3>"));
    let criterion = |passed| Criterion {
        name: "max-loss".into(),
        wanted: "0".into(),
        found: "7 of 100 lost".into(),
        passed,
    };
    run.tests[0].criteria = vec![criterion(false)];
    run.label = Some("<after> the patch".into());
    let page = html(&[run]).unwrap();
    for part in ["<h3>Criteria</h3>", "7 of 100 lost", "failed", "&lt;after&gt; the patch"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn series_are_aligned_by_time() {
    let run = sample::run("x");
    let mut tests = table::in_plan_order(&run);
    tests.retain(|test| test.name == "udp-rr");
    let lines: Vec<_> = tests
        .iter()
        .map(|test| Line { label: String::new(), colour: COLOURS[0], dashed: false, test })
        .collect();
    let charts = charts(&lines);
    assert!(charts.throughput.columns.iter().all(|column| column.len() == 20));
    assert_eq!(charts.throughput.columns.len(), 4);
    assert_eq!(charts.throughput.columns[0][3], Some(0.3));
    assert!(charts.latency.is_some());
}

/// The asset is the published one: `npm pack uplot@1.6.32`.
#[test]
fn the_chart_library_is_the_pinned_one() {
    assert!(UPLOT.contains("uPlot (v1.6.32)") && UPLOT.len() == 51_081 && UPLOT_STYLE.len() == 1_857);
}

/// Five courses of one plan: one has an open ledger, on one the host did other work.
fn five_courses() -> Vec<RunRecord> {
    let names = ["direct", "bridge", "null", "switch", "ovs"];
    let mut runs: Vec<RunRecord> = names.iter().map(|name| sample::run(&format!("id-of-{name}"))).collect();
    for (run, name) in runs.iter_mut().zip(names) {
        run.way = Some(record::PathVariant { name: name.into(), group: "g".into(), offload: None });
        (run.host.load_average, run.host.cpu_pressure) = (0.0, None);
        run.tests.iter_mut().for_each(|test| test.offloads = vec!["a:eth0 tso on".into()]);
        run.findings = crate::findings::findings(run);
    }
    runs[1].tests[1].ledger.as_mut().unwrap().unexplained = 7;
    runs[3].host.cpu_pressure = Some(90.0);
    runs[4].tests[2].others =
        vec![record::OtherWork { name: "make".into(), cpu_percent: 80.0, ..record::OtherWork::default() }];
    runs
}

#[test]
fn courses_are_rows_of_one_table_with_repetitions_as_points() {
    let runs = five_courses();
    let page = html(&runs).unwrap();
    let table = page.split("<table class=\"results\">").nth(1).unwrap().split("</table>").next().unwrap();
    let rows: Vec<&str> = table.split("<tr class=").skip(1).collect();
    assert_eq!(rows.len(), 6 * 5, "six tests of five courses");
    assert!(rows.iter().all(|row| row.matches("<circle class=\"dot\"").count() == 3), "three repetitions");
    let of = |test: &str, course: &str| {
        let row = rows
            .iter()
            .find(|row| row.contains(&format!(">{test}<")) && row.contains(&format!(">{course}<")));
        *row.unwrap_or_else(|| panic!("no row of {test} over {course}"))
    };
    let open = of("udp-stream 64 B", "bridge");
    assert!(open.contains("open ledger") && open.contains("#1: sent 100,000"), "{open}");
    assert_eq!(table.matches("open ledger").count(), 1, "one ledger is open");
    assert_eq!(rows.iter().filter(|row| row.contains("busy host")).count(), 6 + 1, "one run, and one test");
    assert!(of("ping", "switch").contains("CPU pressure 90 % before the run"));
    assert!(of("tcp-rr", "ovs").contains("make took 80 % of a CPU"));
    // Names are short, and each course is compared with the first one.
    assert!(!table.contains("id-of-"));
    assert!(of("tcp-stream", "direct").contains(">1.00<"));
    // What several say alike is said once.
    assert_eq!(page.matches("frames on the path were super-frames").count(), 1);
    assert_eq!(page.matches("<b>Plan</b>").count(), 1);
}

#[test]
fn a_figure_that_is_not_valid_is_marked_with_the_reason() {
    use record::validity::Disturbance;
    let mut run = sample::run("x");
    let reason = |what: &str, verdict, reason: &str| Disturbance {
        what: what.into(),
        verdict,
        reason: reason.into(),
        ..Disturbance::default()
    };
    let reasons = vec![
        reason("link_flap", record::Trust::Invalid, "eth0 did not stay up"),
        reason("tap", record::Trust::Suspect, "tcpdump gets a copy"),
    ];
    run.tests[0].validity =
        Some(record::Validity { verdict: record::Trust::Invalid, reasons, ..record::Validity::default() });
    let page = html(&[run]).unwrap();
    let table = page.split("<table class=\"results\">").nth(1).unwrap().split("</table>").next().unwrap();
    for part in ["not valid", "#1: eth0 did not stay up", "suspect", "#1: tcpdump gets a copy"] {
        assert!(table.contains(part), "{part} is missing");
    }
}

#[test]
fn runs_that_are_called_alike_are_told_apart() {
    let mut runs = [sample::run("one"), sample::run("two"), sample::run("three")];
    runs.iter_mut().for_each(|run| run.label = Some("patch".into()));
    runs[2].label = Some("base".into());
    let names: Vec<String> = labelled(&runs).into_iter().map(|run| run.id).collect();
    assert_eq!(names, ["patch (one)", "patch (two)", "base"]);
    assert_eq!(labelled(&runs[..1])[0].id, "one");
}

/// The unit is the largest that the largest value reaches, so that no number of an axis has more than three digits before the point.
#[test]
fn axes_are_in_fitting_units() {
    let chart =
        |most: f64| Chart { columns: vec![vec![Some(0.0)], vec![Some(most), None]], ..Chart::default() };
    let units = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("bit/s", 1.0)];
    for (most, unit, value) in [(13.7e9, "Gbit/s", 13.7), (1e6, "Mbit/s", 1.0), (0.0, "bit/s", 0.0)] {
        let chart = chart(most).within(&units);
        assert_eq!((chart.unit, chart.columns[1][0], chart.columns[1][1]), (unit, Some(value), None));
        assert_eq!(chart.columns[0][0], Some(0.0), "time stays");
    }
}

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Says so visibly: in the list that `make test` prints at its end, too.
fn skip_browser() {
    use std::io::Write;
    println!("SKIP: a report in a browser: no Chromium on this machine");
    let list = std::env::var_os("PATHLAB_SKIPS");
    let opened = list.and_then(|list| std::fs::OpenOptions::new().append(true).create(true).open(list).ok());
    opened.map(|mut list| writeln!(list, "a report in a browser: no Chromium on this machine"));
}

/// The page as headless Chromium has it in a window of this width, after its scripts; none without a browser.
fn browse(file: &std::path::Path, width: u32) -> Option<String> {
    let is_there = |name: &&str| {
        std::process::Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let Some(browser) = BROWSERS.into_iter().find(is_there) else {
        skip_browser();
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--virtual-time-budget=4000", "--dump-dom"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Writes a page to the directory that `PATHLAB_REPORT_DIR` names, where it can be looked at, else to this one.
fn written(name: &str, page: &str, temporary: &std::path::Path) -> std::path::PathBuf {
    let kept = std::env::var_os("PATHLAB_REPORT_DIR").map(std::path::PathBuf::from);
    let file = kept.as_deref().unwrap_or(temporary).join(format!("{name}.html"));
    std::fs::write(&file, page).unwrap();
    file
}

/// Headless Chromium runs the page's script: every chart is drawn.
#[test]
fn a_browser_draws_every_chart() {
    let temporary = tempfile::tempdir().unwrap();
    let two = [sample::run("20260102T030405Z-abc123"), sample::run("20260102T040506Z-def456")];
    for (name, runs) in [("one", &two[..1]), ("two", &two[..])] {
        let file = written(name, &html(runs).unwrap(), temporary.path());
        let Some(dom) = browse(&file, 1400) else { return };
        assert!(
            dom.contains("data-drawn=\"11\""),
            "6 charts of throughput and 5 of latency: {}",
            &dom[..dom.len().min(200)]
        );
        assert_eq!(dom.matches("<canvas").count(), 11);
    }
}

/// Tells the sizes of a page: its height, how much wider it is than the window, and how many tables and texts of figures are cut.
const MEASURE: &str = "<script>addEventListener('load', () => {
    const root = document.documentElement;
    const cut = [...document.querySelectorAll('.scroll > table')].filter((table) => table.scrollWidth > table.parentElement.clientWidth + 1);
    const left = (one) => one.getBoundingClientRect().left, right = (one) => one.getBoundingClientRect().right;
    const out = [...document.querySelectorAll('svg.figure text')].filter((text) => text.getClientRects().length
        && (left(text) < left(text.ownerSVGElement) - 1 || right(text) > right(text.ownerSVGElement) + 1));
    root.dataset.sizes = [root.scrollHeight, root.scrollWidth - root.clientWidth, cut.length, out.length].join(' ');
});</script></body>";

#[test]
fn five_courses_have_room_on_a_page() {
    let temporary = tempfile::tempdir().unwrap();
    let page = html(&five_courses()).unwrap();
    for (width, highest) in [(1400, 8_000), (1000, 11_000), (500, 24_000)] {
        let page = page.replace("</body>", MEASURE);
        let file = written("five", &page, temporary.path());
        let Some(dom) = browse(&file, width) else { return };
        let sizes = dom.split("data-sizes=\"").nth(1).and_then(|rest| rest.split('"').next());
        let sizes: Vec<u32> =
            sizes.expect("the page was measured").split(' ').map(|size| size.parse().unwrap()).collect();
        println!("{width} wide: {sizes:?}");
        assert!(sizes[0] < highest, "{width} wide, it is {} high", sizes[0]);
        assert_eq!(
            sizes[1..],
            [0, 0, 0],
            "{width} wide: beyond the window, tables cut, texts of figures cut"
        );
    }
}

#[test]
fn the_doctor_has_a_section_for_each_host_and_hostile_facts_stay_text() {
    use crate::doctor::{DoctorReport, RuleStatus, examine};
    use record::facts::{Facts, Known, NodeFacts};
    let interfaces = [("<img src=x>".into(), Known::new())].into();
    let node = NodeFacts { interfaces, ..NodeFacts::default() };
    let facts = Facts { nodes: [("a".into(), node)].into(), ..Facts::default() };
    let mut examined = Examined { name: "<img>.json".into(), report: examine(&facts, None, None) };
    let rule = &mut examined.report.rules[0];
    rule.status = RuleStatus::Finding;
    rule.places[0].status = RuleStatus::Finding;
    (rule.places[0].place, rule.places[0].evidence) = ("a:<img src=y>".into(), "64 <b>of</b> 100".into());
    (rule.command, rule.loss) = ("pathlab tune set x y=1".into(), 0.25);
    let conflict = crate::doctor::DoctorConflict {
        title: "the <i>y</i> of x".into(),
        knob: "y".into(),
        now: "0".into(),
        one: String::new(),
        other: String::new(),
        resolution: String::new(),
    };
    examined.report.conflicts = vec![conflict];
    let quiet = Examined {
        name: "far.json".into(),
        report: DoctorReport { rules: vec![], ..examined.report.clone() },
    };
    let page = super::html(&[sample::run("x")], &[examined, quiet]).unwrap();
    for part in [
        "found in &lt;img&gt;.json",
        "a:&lt;img src=y&gt;: 64 &lt;b&gt;of&lt;&#x2f;b&gt; 100",
        "estimated cost 25 %",
        "<code>pathlab tune set x y=1</code>",
        "the &lt;i&gt;y&lt;&#x2f;i&gt; of x: now 0",
        "found in far.json",
        "nothing found",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<img"), "markup of a name reached the page");
    assert!(!html(&[sample::run("x")]).unwrap().contains("What the doctor found"));
}

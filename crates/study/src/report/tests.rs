use super::*;
use crate::sample;
use record::run::Criterion;

#[test]
fn the_page_is_whole_and_fetches_nothing() {
    let page = html(&[sample::run("20260102T030405Z-abc123")]).unwrap();
    assert!(page.starts_with(MARK));
    for part in
        ["udp-stream 64 B", "−2,000 qdisc_full", "Example CPU 9000", "topology bridge", "unexplained 0 ± 0"]
    {
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
    const EVIL: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'";
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

/// Headless Chromium runs the page's script: every chart is drawn, and what a reader would see can be looked at in the
/// directory that `PATHLAB_REPORT_DIR` names.
#[test]
fn a_browser_draws_every_chart() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        std::process::Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    }) else {
        println!("SKIP: no Chromium on this machine");
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PATHLAB_REPORT_DIR").map(std::path::PathBuf::from);
    let directory = kept.as_deref().unwrap_or(temporary.path());
    let two = [sample::run("20260102T030405Z-abc123"), sample::run("20260102T040506Z-def456")];
    for (name, runs) in [("one", &two[..1]), ("two", &two[..])] {
        let file = directory.join(format!("{name}.html"));
        std::fs::write(&file, html(runs).unwrap()).unwrap();
        let output = std::process::Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--virtual-time-budget=4000",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", temporary.path().join("profile").display()))
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout);
        assert!(
            dom.contains("data-drawn=\"11\""),
            "6 charts of throughput and 5 of latency: {}",
            &dom[..dom.len().min(200)]
        );
        assert_eq!(dom.matches("<canvas").count(), 11);
    }
}

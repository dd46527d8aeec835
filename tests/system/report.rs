//! The report, opened in a real browser that has no network.

use crate::beside;
use crate::support::{command, finish, installed, run, run_ok, skip, start};
use std::time::Duration;

#[test]
fn a_report_is_one_page_that_a_browser_draws_without_network() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    run_ok(&["run", "--quick", "--only", "udp-stream", "--repetitions", "1", "--dir", &records, "--json"]);
    let page = folder.path().join("report.html");
    let page_text = page.display().to_string();
    run_ok(&["report", "latest", "--dir", &records, "-o", &page_text]);
    let html = std::fs::read_to_string(&page).unwrap();
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!html.contains(outside), "the page loads something: {outside}");
    }

    std::fs::write(folder.path().join("mine.html"), "precious").unwrap();
    let mine = folder.path().join("mine.html").display().to_string();
    let refused = run(&["report", "latest", "--dir", &records, "-o", &mine]);
    assert_eq!(refused.status.code(), Some(2), "a file of somebody else was overwritten");
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), "precious");

    if !installed("chromium") {
        return skip("the report in a browser", "chromium is not installed");
    }
    let profile = tempfile::tempdir().unwrap();
    let mut browser = command("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]);
    browser.args([
        "--disable-component-update",
        "--disable-sync",
        "--virtual-time-budget=4000",
        "--dump-dom",
    ]);
    browser.arg(format!("--user-data-dir={}", profile.path().display())).arg(format!("file://{page_text}"));
    let output = finish(start(browser), Duration::from_secs(60));
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(dom.contains("<canvas"), "the browser drew no chart");
    assert!(dom.matches("<svg").count() >= 1, "the path is not drawn");
    assert!(!dom.contains("NaN"), "a number is missing in the page");
}

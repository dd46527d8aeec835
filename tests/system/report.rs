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

#[test]
fn what_the_doctor_finds_in_facts_is_a_section_of_the_page() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (records, facts, page) = (file("runs"), file("facts.json"), file("page.html"));
    run_ok(&["run", "--quick", "--only", "udp-rr", "--repetitions", "1", "--dir", &records, "--json"]);
    run_ok(&["facts", "-o", &facts, "--duration", "200ms"]);
    // A slow clock convicts, whatever else this host does.
    let text = std::fs::read_to_string(&facts).unwrap();
    let mut edited: serde_json::Value = serde_json::from_str(&text).unwrap();
    edited["host"]["clock.source"] = "hpet".into();
    edited["host"]["cpu.vulnerabilities"] = serde_json::json!({ "each": { "meltdown": "Not affected" } });
    std::fs::write(&facts, edited.to_string()).unwrap();

    let report = |more: &[&str]| {
        run(&[&["report", "latest", "--dir", records.as_str(), "-o", page.as_str()], more].concat())
    };
    // What `doctor` finds with the same flags is in each section, and nothing else is.
    let sections = |files: usize, flags: &[&str]| -> String {
        assert!(report(&[&["--facts", &facts].repeat(files), flags].concat()).status.success());
        let html = std::fs::read_to_string(&page).unwrap();
        assert_eq!(html.matches("What the doctor found in").count(), files, "a section for each file");
        let asked = run(&[&["doctor", "--facts", &facts, "--json"], flags].concat());
        let asked: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
        let mut found = 0;
        for rule in asked["rules"].as_array().unwrap() {
            let told = html.matches(&format!("<b>{}</b><br>", rule["id"].as_str().unwrap())).count();
            let is_found = rule["status"] == "finding";
            assert_eq!(told, if is_found { files } else { 0 }, "{rule}");
            found += usize::from(is_found);
        }
        assert!(found > 0, "nothing was found with a slow clock");
        html
    };
    let html = sections(2, &[]);
    assert!(!html.contains("<b>CPU-13</b><br>"), "nobody knows without the other end");
    // The other end is compared.
    let other = file("other.json");
    edited["host"]["cpu.vulnerabilities"]["each"]["meltdown"] = "Mitigation: PTI".into();
    std::fs::write(&other, edited.to_string()).unwrap();
    assert!(sections(1, &["--peer", &other]).contains("<b>CPU-13</b><br>"));
    let html = sections(1, &["--peer", &other, "--goal", "capture"]);
    assert_eq!(report(&["--peer", &other]).status.code(), Some(2), "a peer of nothing");

    std::fs::write(&facts, "{}").unwrap();
    let refused = report(&["--facts", &facts]);
    assert_eq!(refused.status.code(), Some(2), "no facts are bad input");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("facts.json"), "the file is not named");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), html, "the page was touched");
    assert_eq!(report(&["--facts", &facts, "--trace"]).status.code(), Some(2));
}

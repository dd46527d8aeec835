//! Programs that are killed and start again: the controller under a switch that fails secure or standalone, and the switch
//! under its controller. Frames go on, rules come again, and nothing of the dead is left on the interfaces.

use crate::site::{Site, needs_root};
use crate::support;
use std::time::Duration;

/// Starts a controller that gives its switch the ways between hosts 1 and 2, under a cookie of its own; its number.
fn controller(site: &mut Site, cookie: &str) -> usize {
    let text =
        format!("cookie={cookie},in_port=1 actions=output:2\ncookie={cookie},in_port=2 actions=output:1\n");
    let file = site.file(cookie, &text);
    let mut command = site.command(0, support::PATHLAB);
    let listen = format!("punix:{}", site.folder.path().join("c").display());
    command.args(["controller", "replay", &file, "--listen", &listen]);
    site.start(command)
}

fn rules(site: &Site) -> String {
    let line = format!("ovs-ofctl -O OpenFlow13 dump-flows unix:{}", site.socket().display());
    let (ok, rules) = site.try_run(0, &line);
    // A switch that is just starting answers later.
    if ok { rules } else { String::new() }
}

fn has_rules_of(site: &Site, cookie: &str) {
    site.wait_for(&format!("the rules {cookie}"), |site| {
        rules(site).matches(&format!("cookie={cookie},")).count() == 2
    });
}

/// Host 1 pings host 2 while something happens; every ping must be answered.
fn while_pinging(site: &mut Site, work: impl FnOnce(&mut Site)) {
    let mut command = site.command(1, "ping");
    command.args(["-n", "-c", "100", "-i", "0.02", "-W", "20", "10.0.0.2"]);
    let child = support::start(command);
    work(site);
    let output = support::finish(child, Duration::from_secs(60));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(" 100 received"), "frames were lost: {text}");
}

/// A controller is killed in the middle of traffic; another one comes; then the switch is killed, and another one comes.
fn killed_and_back(fail: &str) {
    let mut site = Site::build(3);
    let first = controller(&mut site, "0xa");
    let to = format!("unix:{}", site.folder.path().join("c").display());
    let words = ["--controller", &to, "--fail", fail];
    let switch = site.usual_switch(&words);
    has_rules_of(&site, "0xa");
    site.reaches(1, "10.0.0.2");
    assert!(!site.pings(1, "10.0.0.3"), "the controller has no way to host 3");

    while_pinging(&mut site, |site| {
        site.kill_one(first);
        site.wait_for("the switch sees it", |site| site.logs().contains("is gone"));
    });
    match fail {
        "standalone" => site.reaches(1, "10.0.0.3"),
        _ => assert!(!site.pings(1, "10.0.0.3"), "a switch that fails secure keeps its rules"),
    }
    has_rules_of(&site, "0xa");

    controller(&mut site, "0xb");
    has_rules_of(&site, "0xb");
    assert!(!rules(&site).contains("cookie=0xa,"), "the new controller begins anew");
    site.reaches(1, "10.0.0.2");
    assert!(!site.pings(1, "10.0.0.3"), "the rules hold again");

    site.kill_one(switch);
    assert!(!site.pings(1, "10.0.0.2"), "nobody forwards");
    for port in ["p1", "p2", "p3"] {
        let (ok, text) = site.try_run(0, &format!("ip -details link show {port}"));
        assert!(
            ok && text.contains("promiscuity 0") && !text.contains("prog/xdp"),
            "something is left: {text}"
        );
    }
    site.usual_switch(&words);
    has_rules_of(&site, "0xb");
    site.reaches(1, "10.0.0.2");
    assert!(!site.pings(1, "10.0.0.3"));
}

#[test]
fn a_controller_or_a_switch_is_killed_and_comes_back_failing_secure() {
    if !needs_root("controller and switch killed, fail secure") {
        killed_and_back("secure");
    }
}

#[test]
fn a_controller_or_a_switch_is_killed_and_comes_back_failing_standalone() {
    if !needs_root("controller and switch killed, fail standalone") {
        killed_and_back("standalone");
    }
}

//! Mininet, unmodified: `mn --switch user` starts this switch by the reference implementation's names.
//!
//! Mininet makes its interfaces in the namespace that it is started in, writes to `/tmp`, sets sysctls and ends processes by
//! their names. So it gets namespaces of its own for all of it: network, mounts (an empty `/tmp`, `/proc/sys` read-only) and
//! processes; when the last process there ends, nothing is left.

use crate::site::{Site, needs_root, project};
use crate::support;
use linux::netlink::Netlink;
use std::time::Duration;

/// What runs inside, around the line that starts Mininet. `$1` is pathlab, `$2` the folder of another controller.
const AROUND: [&str; 2] = [
    "set -e\n\
     mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys\n\
     mount -t tmpfs tmpfs /tmp\n\
     ip link set lo up\n\
     export OVS_RUNDIR=/tmp\n\
     \"$1\" shims /tmp/shims\n\
     export PATH=/tmp/shims:$PATH:$2\n\
     printf 'dpctl status\\ndpctl dump-flows\\ndpctl show\\ndpctl add-flow priority=7,in_port=1,actions=drop\\ndpctl dump-flows in_port=1\\ndpctl queue-mod\\n' > /tmp/post\n",
    "\nfor i in $(seq 600); do ps -eo comm= | grep -xE 'ofdatapath|ofprotocol|controller' > /tmp/pids || break; sleep 0.1; done\n\
     echo == left; cat /tmp/pids; ip -o link show; find /tmp -type s\n",
];

/// Runs Mininet; what it and the commands behind it said.
fn mn(site: &Site, line: &str) -> String {
    let script = AROUND.join(&format!("timeout 200 {line}"));
    let mut command = site.command(0, "unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script, "sh"]);
    command.arg(support::PATHLAB).arg(project("target/peers/testcontroller/usr/bin"));
    let output = support::finish(support::start(command), Duration::from_secs(300));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {text}");
    text.into_owned()
}

/// The interfaces of the namespace that the test itself is in, as Mininet names them.
fn strangers() -> Vec<String> {
    let links = Netlink::open().links().unwrap();
    let of_mininet = |name: &str| name.starts_with('s') && name.contains("-eth");
    links.into_iter().map(|link| link.name).filter(|name| of_mininet(name)).collect()
}

/// False, with a reason, when Mininet cannot be run here.
fn can_run(what: &str) -> bool {
    if needs_root(what) {
        return false;
    }
    let missing =
        ["mn", "unshare", "telnet", "ifconfig"].into_iter().find(|program| !support::installed(program));
    if let Some(program) = missing {
        support::skip(what, &format!("{program} is missing (tests/peers.sh installs mininet)"));
        return false;
    }
    // The folder /tmp is hidden inside.
    if support::PATHLAB.starts_with("/tmp/") {
        support::skip(what, "pathlab was built in /tmp, which Mininet gets an empty one of");
        return false;
    }
    true
}

/// What was left behind: nothing but the loopback interface.
fn assert_clean(text: &str) {
    let (_, left) = text.split_once("== left\n").unwrap_or_else(|| panic!("{text}"));
    let left: Vec<&str> = left.lines().take_while(|line| !line.starts_with("***")).collect();
    assert!(left.first().is_some_and(|line| line.starts_with("1: lo:")), "{text}");
    assert!(left.iter().skip(1).all(|line| !line.contains("-eth") && !line.starts_with("/tmp/")), "{text}");
}

#[test]
fn mininet_pings_all_over_three_topologies_with_our_own_controller() {
    let what = "Mininet with --switch user";
    if !can_run(what) {
        return;
    }
    for topology in ["single,3", "linear,3", "tree,2"] {
        let site = Site::bare(0);
        let text = mn(&site, &format!("mn --switch user --controller ref --topo {topology} --test pingall"));
        assert!(text.contains("*** Results: 0% dropped"), "{topology}: {text}");
        assert_clean(&text);
        assert!(strangers().is_empty(), "{:?}", strangers());
    }
}

#[test]
fn mininet_asks_its_switch_by_dpctl_under_ovs_testcontroller() {
    let what = "Mininet with --switch user and ovs-testcontroller";
    if !can_run(what) {
        return;
    }
    if !project("target/peers/testcontroller/usr/bin/ovs-testcontroller").exists() {
        return support::skip(
            what,
            "ovs-testcontroller is not in target/peers (tests/peers.sh puts it there)",
        );
    }
    let site = Site::bare(0);
    let text =
        mn(&site, "mn --switch user --controller ovsc --topo single,2 --mac --test pingall --post /tmp/post");
    assert!(text.contains("*** Results: 0% dropped"), "{text}");
    for expected in [
        // status
        "local.is-connected=true",
        "remote.1.name=tcp:127.0.0.1:6653",
        // dump-flows: what the controller learned
        "dl_dst=00:00:00:00:00:02",
        // show
        "0000000000000001",
        "s1-eth2",
        // add-flow, and dump-flows with a match
        "priority=7,in_port=1",
        // A command that is not there is one sentence.
        "dpctl has no command 'queue-mod' here",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_clean(&text);
}

#[test]
fn a_secure_channel_that_fails_open_makes_a_bridge_until_a_controller_is_there() {
    if needs_root("ofprotocol --fail=open") {
        return;
    }
    let mut site = Site::bare(0);
    let at = |name: &str| site.folder.path().join(name).display().to_string();
    let (shims, datapath, listen) = (at("shims"), at("s"), at("l"));
    support::run_ok(&["shims", &shims]);
    let program = |name: &str| format!("{shims}/{name}");
    let start = |site: &mut Site, name: &str, words: &[&str]| {
        let mut command = site.command(0, &program(name));
        command.args(words);
        site.start(command)
    };
    start(&mut site, "ofdatapath", &["-i", "mem:open-a,mem:open-b", &format!("punix:{datapath}")]);
    let (to, place) = (format!("unix:{datapath}"), format!("--listen=punix:{listen}"));
    let secure_channel: [&str; 4] = [&to, "tcp:127.0.0.1:6653", "--fail=open", &place];
    let first = start(&mut site, "ofprotocol", &secure_channel);
    let asked =
        |site: &Site, words: &str| site.try_run(0, &format!("{} unix:{listen} {words}", program("dpctl"))).1;
    let is_open = |site: &Site| asked(site, "dump-flows").contains("priority=65535 actions=NORMAL");
    site.wait_for("the rule of a bridge", is_open);
    assert!(asked(&site, "status remote.is").contains("remote.is-connected=false"));
    start(&mut site, "controller", &["ptcp:6653:127.0.0.1"]);
    site.wait_for("the controller's rules alone", |site| {
        !is_open(site) && asked(site, "dump-flows").contains("actions=CONTROLLER")
    });
    assert!(asked(&site, "status remote.is").contains("remote.is-connected=true"));
    site.end();
    site.wait_for("a bridge again", is_open);
    // Killed, it leaves its bridge; the next one takes that away when it meets a controller.
    site.kill_one(first);
    start(&mut site, "controller", &["ptcp:6653:127.0.0.1"]);
    start(&mut site, "ofprotocol", &secure_channel);
    site.wait_for("the controller's rules alone again", |site| {
        asked(site, "dump-flows").contains("actions=CONTROLLER") && !is_open(site)
    });
}

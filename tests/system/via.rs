//! Hosts between the two ends of a test that observe it, too: `--via`.

use crate::beside;
use crate::runs::first_line;
use crate::support::{Kept, PATHLAB, TestLab, command, finish, installed, is_root, skip, start};
use serde_json::Value;
use std::process::{Output, Stdio};
use std::time::Duration;

/// Two hosts with two routers between them, all of which answer; commands are given at a.
struct Way {
    lab: TestLab,
    folder: tempfile::TempDir,
    _servers: Vec<Kept>,
}

/// The addresses of the routers and of the other host, as a calls them.
const R1: &str = "10.0.1.1";
const R2: &str = "10.0.2.2";
const B: &str = "10.0.4.2";

fn program(lab: &TestLab, node: &str, arguments: &[&str]) -> std::process::Command {
    let mut program = command("ip");
    program.args(["netns", "exec", &lab.netns(node), PATHLAB]).args(arguments);
    program
}

fn serve(lab: &TestLab, node: &str, flags: &[&str]) -> Kept {
    let mut server = program(lab, node, &[&["serve", "--json"][..], flags].concat());
    let mut server = Kept::new(server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    first_line(server.stdout_pipe().unwrap());
    server
}

impl Way {
    fn up(label: &str) -> Way {
        let lab = TestLab::up("ecmp", label);
        let servers = ["r1", "r2", "b"].map(|node| serve(&lab, node, &["--observe", "--tune"]));
        Way { lab, folder: tempfile::tempdir().unwrap(), _servers: servers.into() }
    }

    /// Lets a node drop one in so many datagrams of that length.
    fn drop(&self, node: &str, hook: &str, length: u32, every: u32) {
        let rule = format!("udp length {length} numgen inc mod {every} == 0 counter drop");
        let chain = format!("type filter hook {hook} priority 0;");
        self.lab.must(node, &format!("nft 'table inet t {{ chain c {{ {chain} {rule}; }}; }}'"));
    }

    /// How many it did.
    fn dropped(&self, node: &str) -> u64 {
        let said = self.lab.must(node, "nft list table inet t");
        said.split("counter packets ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    fn at_a(&self, arguments: &[&str]) -> Output {
        finish(start(program(&self.lab, "a", arguments)), Duration::from_secs(60))
    }

    fn document(&self, arguments: &[&str]) -> Value {
        let output = self.at_a(arguments);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

/// What was lost at each node, by name, and whether all of it was explained.
fn losses(test: &Value) -> Vec<(String, u64)> {
    let ledger = &test["ledger"];
    assert_eq!(ledger["unexplained"], 0, "{ledger:#}");
    let drops = |station: &Value| -> u64 {
        station["drops"].as_array().unwrap().iter().map(|drop| drop["count"].as_u64().unwrap()).sum()
    };
    let stations = ledger["stations"].as_array().unwrap().iter();
    let lost = stations.map(|station| (station["node"].as_str().unwrap().to_owned(), drops(station)));
    lost.filter(|(_, lost)| *lost > 0).collect()
}

/// What routers between two hosts drop is theirs, in whatever order they are named, as nft counted it; so is it in a record, in reverse.
#[test]
fn what_routers_between_two_hosts_drop_is_in_the_ledger() {
    let _turn = beside();
    if !is_root() || !installed("nft") {
        return skip("hosts between the ends", "it needs root and nft");
    }
    let way = Way::up("via");
    way.drop("r1", "postrouting", 108, 10);
    way.drop("r2", "forward", 108, 7);
    let flags = ["test", "udp-stream", B, "--size", "100", "--rate", "2kpps", "--count", "1000", "--json"];
    let test = way.document(&[&flags[..], &["--via", R2, "--via", R1]].concat());
    let counted = ["r1", "r2"].map(|node| way.dropped(node));
    assert!(counted[0] >= 100 && counted[1] > 120, "{counted:?}");
    assert_eq!(losses(&test), [(R1.to_owned(), counted[0]), (R2.to_owned(), counted[1])]);
    let names: Vec<&Value> = test["via"].as_array().unwrap().iter().map(|host| &host["name"]).collect();
    assert_eq!(names, [R1, R2], "in the order of the frames");
    assert_eq!(test["hosts"].as_array().unwrap().len(), 4);

    let plan = way.folder.path().join("way.plan");
    std::fs::write(&plan, "topology pair\nrepetitions 1\ntest udp-stream size 100 rate 2kpps count 500\n")
        .unwrap();
    let (plan, records) = (plan.display().to_string(), way.folder.path().join("runs").display().to_string());
    let flags = ["run", &plan, "--to", B, "--reverse", "--via", R1, "--via", R2, "--dir", &records, "--json"];
    let run = way.document(&flags);
    let now = ["r1", "r2"].map(|node| way.dropped(node));
    let lost = losses(&run["tests"][0]);
    assert_eq!(lost, [(R2.to_owned(), now[1] - counted[1]), (R1.to_owned(), now[0] - counted[0])]);
    let topology = format!("# b is this host, a is {B}, observed between them: {R1}, {R2}\nnode b a\n");
    assert_eq!(run["topology"], topology);
}

/// A host that tells nothing, or that no frame came to, is named with the reason, and the ledger is that of the others; a name that
/// stands twice is refused.
#[test]
fn hosts_that_tell_nothing_are_named() {
    let _turn = beside();
    if !is_root() || !installed("nft") {
        return skip("hosts between the ends that tell nothing", "it needs root and nft");
    }
    let way = Way::up("untold");
    let _silent = serve(&way.lab, "r1", &["--port", "5400"]);
    way.drop("r2", "forward", 108, 5);
    let silent = format!("{R1}:5400");
    let flags = ["test", "udp-stream", B, "--size", "100", "--rate", "2kpps", "--count", "200"];
    let test = way.document(&[&flags[..], &["--json", "--via", &silent, "--via", R2]].concat());
    assert_eq!(losses(&test), [(R2.to_owned(), way.dropped("r2"))]);
    let said = test["via"][0]["unseen"].as_str().unwrap_or_default();
    assert!(said.contains("start it with 'pathlab serve --observe'"), "{:#}", test["via"]);
    // By its other address it is the same one.
    let twice = way.at_a(&[&flags[..], &["--via", R2, "--via", "10.0.3.2"]].concat());
    let text = String::from_utf8_lossy(&twice.stdout).into_owned();
    assert!(text.contains("a host between the two ends is not in the ledger"), "{text}");
    assert!(text.contains("10.0.3.2: another one of the hosts observes the same network"), "{text}");
    let [named, gone] =
        [(B, 2, "is a node of the test already"), ("10.0.1.77:1", 3, "cannot reach 10.0.1.77:1")];
    for (via, code, said) in [named, gone] {
        let refused = way.at_a(&[&flags[..], &["--via", via]].concat());
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("--via: ") && text.contains(said), "{text}");
        assert_eq!(refused.status.code(), Some(code), "{text}");
    }
}

/// The doctor judges a router between two hosts, and a plan changes its knobs while it is measured: the segments that it cuts come to b one by one.
#[test]
fn routers_between_two_hosts_are_examined_and_changed() {
    let _turn = beside();
    if !is_root() || !installed("ethtool") {
        return skip("knobs of hosts between the ends", "it needs root and ethtool");
    }
    let way = Way::up("knobs");
    way.lab.must("r2", "ip link set eth2 mtu 1400");
    let plan = way.folder.path().join("cut.plan");
    let off = "eth2:feature.tx-tcp-segmentation=off\nset r2/eth2:feature.tx-generic-segmentation=off";
    let text =
        format!("topology pair\nrepetitions 1\nset r2/{off}\ntest tcp-stream rate 400Mbit duration 2500ms\n");
    std::fs::write(&plan, &text).unwrap();
    let (plan, records) = (plan.display().to_string(), way.folder.path().join("runs").display().to_string());
    let (r1, r2) = (format!("r1={R1}"), format!("r2={R2}"));
    let to = ["--to", B, "--via", &r1, "--via", &r2, "--dir", &records];
    let run = way.document(&[&["run", &plan, "--doctor", "--json"], &to[..]].concat());
    let test = &run["tests"][0];
    let came = test["flow"]["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .find(|at| at["node"] == "b" && at["interface"] == "eth0")
        .unwrap();
    let is_in = |count: &&Value| count["hook"] == "ingress" && count["leg"] == "forward";
    let count = came["counts"].as_array().unwrap().iter().find(is_in).unwrap();
    assert!(count["frames"].as_u64() > Some(1000) && count["frames"] == count["buffers"], "{count}");
    let state = way.lab.must("r2", "ethtool -k eth2");
    assert!(state.contains("tx-tcp-segmentation: on"), "put back: {state}");
    let via = test["via"].as_array().unwrap();
    let known = &via[1]["facts"]["nodes"]["r2"]["interfaces"]["eth2"]["feature.tx-tcp-segmentation"];
    assert_eq!((via.len(), &via[1]["name"], known), (2, &"r2".into(), &false.into()), "{via:#?}");
    let shown = way.at_a(&["show", "latest", "--dir", &records]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let at = |name: &str| shown.split(&format!("at {name}:\n")).nth(1).unwrap_or_else(|| panic!("{shown}"));
    assert!(at("r2").contains("MTU-02 r2:eth2"), "{shown}");
    assert!(!at("r1").split("at r2:").next().unwrap().contains("MTU-02"), "{shown}");
    // A node that is none of them is refused with those that are.
    let wrong = ["prove", "r3/eth2:mtu=1400", "--only", "tcp-stream", "--quick"];
    let refused = way.at_a(&[&wrong[..], &to[..]].concat());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains(&format!("no node 'r3'; 'a' is this host, 'b' is {B}, 'r1' is {R1}, 'r2' is {R2}")),
        "{text}"
    );
    assert_eq!(refused.status.code(), Some(2), "{text}");
}

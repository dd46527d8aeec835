//! The same plans between two hosts: `run --to` and `prove --to`, with the other host answering tests.

use crate::case::PLANTED;
use crate::runs::first_line;
use crate::support::steal::Steal;
use crate::support::{Kept, PATHLAB, TestLab, command, finish, installed, is_root, skip, start};
use crate::{alone, beside, beside_for_long};
use linux::sys::process;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// Pairs at most; a trial ends after 9 or 13 where these tell enough. Of six one that does not follow leaves it open: a stream of 150 ms may fall on a
/// moment in which the machine does something else.
const PAIRS: &str = "20";

/// Two hosts of a lab: a, where commands are given, and b, which answers tests at 10.0.0.2.
struct Pair {
    lab: TestLab,
    folder: tempfile::TempDir,
}

impl Pair {
    fn up() -> Pair {
        Pair { lab: TestLab::up("pair", "between"), folder: tempfile::tempdir().unwrap() }
    }

    fn program(&self, node: &str, arguments: &[&str]) -> std::process::Command {
        let mut program = command("ip");
        program.args(["netns", "exec", &self.lab.netns(node), PATHLAB]).args(arguments);
        program
    }

    fn serve(&self, more: &[&str]) -> Kept {
        let mut server = self.program("b", &[&["serve", "--bind", "10.0.0.2", "--json"][..], more].concat());
        server.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Kept::new(server.spawn().unwrap());
        first_line(server.stdout_pipe().unwrap());
        server
    }

    fn plan(&self, tests: &str) -> String {
        let plan = self.folder.path().join("between.plan");
        std::fs::write(&plan, format!("topology pair\nrepetitions 1\n{tests}")).unwrap();
        plan.display().to_string()
    }

    /// What a command at a says, with its records in a folder of the test.
    fn at_a(&self, arguments: &[&str]) -> Output {
        let records = self.folder.path().join("runs").display().to_string();
        let all = [arguments, &["--to", "10.0.0.2", "--dir", &records]].concat();
        finish(start(self.program("a", &all)), Duration::from_secs(120))
    }
}

fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn of<'a>(run: &'a Value, kind: &str) -> &'a Value {
    run["tests"].as_array().unwrap().iter().find(|test| test["kind"] == kind).expect("a test of the kind")
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A plan of a lab has its figures, criteria and ledger between two hosts, too, beside others' datagrams; what only a lab has is refused.
#[test]
fn a_plan_is_carried_out_between_two_hosts() {
    let _turn = beside();
    if !is_root() {
        return skip("a plan between two hosts", "it needs root");
    }
    let pair = Pair::up();
    let plan = pair.plan(
        "test udp-stream rate 3kpps count 900 max-loss 0\ntest tcp-rr rate 500pps count 100 min-rate 400pps\n",
    );
    // Nobody tells the other host's counters: figures and criteria are there all the same.
    let silent = pair.serve(&[]);
    let output = pair.at_a(&["run", &plan, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let run = document(&output);
    assert_eq!(said.matches("no ledger between the hosts").count(), 1, "once for all tests: {said}");
    let stream = of(&run, "udp-stream");
    assert_eq!((&stream["received"]["unique"], &stream["ledger"]), (&900.into(), &Value::Null));
    let shown =
        String::from_utf8_lossy(&pair.at_a(&["run", &plan, "--only", "udp-stream"]).stdout).into_owned();
    let row = shown.lines().find(|line| line.starts_with("udp-stream")).unwrap_or_default().to_owned();
    assert!(row.trim_end().ends_with(" 0"), "no loss, by the counts of the ends: {shown}");
    assert_eq!(output.status.code(), Some(0), "its criteria hold: {run:#}");
    drop(silent);

    let _server = pair.serve(&["--observe"]);
    let others = "import socket,time\no=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nwhile True:\n  o.sendto(b'x'*64,('10.0.0.2',9)); time.sleep(0.0005)";
    let mut stranger = command("ip");
    stranger.args(["netns", "exec", &pair.lab.netns("a"), "python3", "-c", others]);
    let _stranger = Kept::new(start(stranger));
    let run = document(&pair.at_a(&["run", &plan, "--json"]));
    for test in run["tests"].as_array().unwrap() {
        let criteria = test["criteria"].as_array().unwrap();
        assert!(criteria.len() == 1 && criteria[0]["passed"] == true, "{criteria:#?}");
        let ends: Vec<&Value> = test["actors"].as_array().unwrap().iter().map(|one| &one["node"]).collect();
        assert_eq!(ends, ["a", "b"], "the CPU time of both ends");
    }
    let ledger = &of(&run, "udp-stream")["ledger"];
    assert_eq!((&ledger["sent"], &ledger["unexplained"]), (&900.into(), &0.into()), "{ledger:#}");
    assert_eq!(run["topology"], "# a is this host, b is 10.0.0.2\nnode a b\n");

    let facts = pair.at_a(&["run", &plan, "--only", "udp-stream", "--doctor", "--json"]);
    let test = &document(&facts)["tests"][0];
    for (name, node) in [("facts", "a"), ("far_facts", "b")] {
        assert!(test[name]["nodes"][node]["interfaces"]["eth0"].is_object(), "{name}: {test:#}");
    }
    let records = pair.folder.path().join("runs").display().to_string();
    let shown =
        finish(start(pair.program("a", &["show", "latest", "--dir", &records])), Duration::from_secs(20));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(["at a:", "at b:"].iter().all(|end| shown.contains(end)), "{shown}");
    // Where nobody said which version of IP, it is one that the other host has.
    let mut six = pair.program("b", &["serve", "--bind", "fd00::2", "--observe", "--json"]);
    six.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut six = Kept::new(six.spawn().unwrap());
    first_line(six.stdout_pipe().unwrap());
    let flags = ["run", &plan, "--only", "udp-stream", "--to", "fd00::2", "--dir", &records, "--json"];
    let run = document(&finish(start(pair.program("a", &flags)), Duration::from_secs(60)));
    let stream = of(&run, "udp-stream");
    assert_eq!(
        (&stream["spec"]["family"], &stream["ledger"]["unexplained"]),
        (&6.into(), &0.into()),
        "{stream:#}"
    );
    let other = pair.plan("family 6\ntest ping count 3\n");
    let family = refusal(&pair.at_a(&["run", &other]));
    assert!(family.contains("has no address with IPv6; say 'family 4' in the plan"), "{family}");
    let layers = refusal(&pair.at_a(&["run", &plan, "--layers"]));
    assert!(layers.contains("in labs only"), "{layers}");
}

/// Traffic from the other host has a ledger, too, with what was dropped at either end at its place; Ctrl-C at a terminal, which reaches every process
/// of the group, ends such a test with the result of what was sent.
#[test]
fn tests_go_from_the_other_host_to_this_one_and_end_early() {
    let _turn = beside();
    if !is_root() || !installed("nft") {
        return skip("tests from the other host", "it needs root and nft");
    }
    let pair = Pair::up();
    let _server = pair.serve(&["--observe"]);
    let drop = |node: &str, hook: &str, every: u32| {
        let rule = format!("udp length 108 numgen inc mod {every} == 0 counter drop");
        let chain = format!("type filter hook {hook} priority 0;");
        let rules = format!("table inet t {{\n chain c {{\n {chain}\n {rule}\n }}\n}}\n");
        pair.lab.must(node, &format!("nft '{rules}'"));
    };
    drop("a", "input", 7);
    drop("b", "postrouting", 10);
    let counted = |node: &str| -> u64 {
        let said = pair.lab.must(node, "nft list table inet t");
        said.split("counter packets ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    let test = |more: &[&str]| {
        let flags = ["test", "udp-stream", "10.0.0.2", "-R", "--size", "100", "--rate", "2kpps", "--json"];
        let mut program = pair.program("a", &[&flags[..], more].concat());
        program.process_group(0);
        start(program)
    };
    let whole = document(&finish(test(&["--count", "1000"]), Duration::from_secs(60)));
    let (here, there) = (counted("a"), counted("b"));
    assert!(here > 100 && there >= 100, "{here} {there}");
    assert_eq!((&whole["spec"]["from"], &whole["spec"]["to"]), (&"10.0.0.2".into(), &"local".into()));
    let ledger = &whole["ledger"];
    assert_eq!((&ledger["sent"], &ledger["received"]), (&1000.into(), &(1000 - here - there).into()));
    assert_eq!(ledger["unexplained"], 0, "{ledger:#}");
    let stations = ledger["stations"].as_array().unwrap();
    let dropped = |node: &str| -> u64 {
        let own = stations.iter().filter(|station| station["node"] == node);
        own.flat_map(|one| one["drops"].as_array().unwrap()).map(|drop| drop["count"].as_u64().unwrap()).sum()
    };
    assert_eq!((dropped("local"), dropped("10.0.0.2")), (here, there), "{ledger:#}");

    let running = Kept::new(test(&["--duration", "100s"]));
    let begun = Instant::now();
    while counted("a") < here + 100 {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is sent");
        std::thread::sleep(Duration::from_millis(100));
    }
    let running = running.take();
    killpg(Pid::from_raw(running.id() as i32), Signal::SIGINT).unwrap();
    let output = finish(running, Duration::from_secs(30));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted; the figures are those of what was sent until then"), "{said}");
    let early = document(&output);
    let sent = early["sender"]["attempted"].as_u64().unwrap();
    assert!(sent > 500 && early["interrupted"] == true && whole["interrupted"] == false, "{early:#}");
    assert_eq!((&early["ledger"]["sent"], &early["ledger"]["unexplained"]), (&sent.into(), &0.into()));
    let lost = counted("a") + counted("b") - here - there;
    assert_eq!(early["ledger"]["received"], sent - lost, "{:#}", early["ledger"]);
}

/// Two plans that differ in a setting of this host are compared over the same two hosts: each has its setting while it is measured.
#[test]
fn two_plans_are_compared_between_two_hosts() {
    let _turn = alone();
    if !is_root() || !installed("ethtool") {
        return skip("plans between two hosts", "it needs root and ethtool");
    }
    let pair = Pair::up();
    let features = || pair.lab.must("a", "ethtool -k eth0");
    let before = features();
    let plan = |name: &str, setting: &str| {
        let path = pair.folder.path().join(name).display().to_string();
        std::fs::write(&path, format!("topology pair\n{setting}test tcp-stream duration 150ms\n")).unwrap();
        path
    };
    let usual = plan("usual.plan", "");
    let unsegmented = plan("unsegmented.plan", "set a/eth0:feature.tx-tcp-segmentation=off\n");
    let _server = pair.serve(&["--observe"]);
    let steal = Steal::begin();
    let output = pair.at_a(&["compare", &usual, &unsegmented, "--pairs", PAIRS, "--json"]);
    let trial = document(&output);
    let test = &trial["tests"][0];
    let is_worse = test["verdict"]["is"] == "changed" && test["effect"]["value"].as_f64() < Some(0.8);
    if steal.holds("plans between two hosts", is_worse, format_args!("{trial:#}")) {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert_eq!(features(), before, "it is put back");
    let way = refusal(&pair.at_a(&["compare", &usual, "direct"]));
    assert!(way.contains("'direct' is no plan"), "{way}");
    // What cannot be set is refused before anything is measured.
    let refused = pair.at_a(&["compare", &usual, &plan("wrong.plan", "set c/eth0:txqueuelen=7\n")]);
    assert!(refusal(&refused).contains("there is no node 'c'") && refused.stdout.is_empty(), "{refused:?}");
}

/// Segmentation is off at this host: the doctor names it first, the trial shows the gain, it stays until it is undone. Knobs of another host are not
/// touched from here.
#[test]
fn a_slow_host_is_cured_by_what_the_doctor_advises() {
    let _turn = alone();
    if !is_root() || !installed("ethtool") {
        return skip("a slow host", "it needs root and ethtool");
    }
    let pair = Pair::up();
    let segmentation = || -> String {
        let all = pair.lab.must("a", "ethtool -k eth0");
        let line = all.lines().find(|line| line.starts_with("tcp-segmentation-offload"));
        line.unwrap_or_default().to_owned()
    };
    let plan = pair.plan("test tcp-stream duration 300ms\n");
    let _server = pair.serve(&["--observe"]);
    pair.lab.must("a", "ethtool -K eth0 tso off");
    let steal = Steal::begin();
    let flags = ["prove", "--doctor", "--most", "1", "--plan", &plan, "--pairs", PAIRS, "--json"];
    let output = pair.at_a(&flags);
    let proof = document(&output);
    let is_better = output.status.code() == Some(0) && proof["proofs"][0]["is_better"] == true;
    if steal.holds("a slow host", is_better, format_args!("{proof:#}")) {
        assert_eq!((&proof["suspects"][0]["rule"], &proof["to"]), (&"OFF-01".into(), &"10.0.0.2".into()));
        let change = "a/eth0:feature.tx-tcp-segmentation=on+eth0:feature.tx-tcp6-segmentation=on";
        assert_eq!(proof["suspects"][0]["change"], change, "{proof:#}");
        assert_eq!(proof["kept"].as_array().unwrap().len(), 2, "{proof:#}");
        assert!(segmentation().ends_with(": on"), "{}", segmentation());
        let undone = finish(start(pair.program("a", &["tune", "undo", "--all"])), Duration::from_secs(20));
        assert!(undone.status.success(), "{undone:?}");
        assert!(segmentation().ends_with(": off"), "{}", segmentation());
    }
    let far = pair.at_a(&["prove", "b/eth0:mtu=1400", "--plan", &plan]);
    let said = String::from_utf8_lossy(&far.stderr);
    assert!(far.status.code() == Some(3) && said.contains("serve --observe --tune"), "{said}");
}

/// The receiver's buffer is small: it is changed at the other host, which lets us; what is held there ends with us, what is kept is undone there.
#[test]
fn knobs_of_the_other_host_are_tried_where_it_lets_us() {
    let _turn = beside();
    if !is_root() || !installed("sysctl") {
        return skip("knobs of another host", "it needs root and sysctl");
    }
    const SMALL: &str = "4096 4096 4096";
    const USUAL: &str = "4096 131072 6291456";
    let pair = Pair::up();
    let buffer = || -> String {
        let text = pair.lab.must("b", "sysctl -n net.ipv4.tcp_rmem");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let until = |wanted: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while buffer() != wanted {
            assert!(Instant::now() < deadline, "{} and not {wanted}", buffer());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    pair.lab.must("b", &format!("sysctl -w net.ipv4.tcp_rmem='{SMALL}'"));
    let plan = pair.plan("test tcp-stream duration 150ms\n");
    let server = pair.serve(&["--observe", "--tune"]);
    let change = format!("b/net.ipv4.tcp_rmem={USUAL}");
    let prove = ["prove", &change, "--plan", &plan, "--pairs", "6", "--json"];

    let records = pair.folder.path().join("others").display().to_string();
    let proving = || {
        let mut proving = pair.program("a", &[&prove[..], &["--to", "10.0.0.2", "--dir", &records]].concat());
        proving.stdout(Stdio::null()).stderr(Stdio::null());
        let proving = Kept::new(start(proving));
        until(USUAL);
        proving
    };
    // A server that is ended holds nothing any more when it is gone.
    let left = proving();
    let mut server = server.take();
    process::interrupt(&server).unwrap();
    server.wait().unwrap();
    assert_eq!(buffer(), SMALL, "put back before it ended");
    drop(left);

    // Whoever is killed holds nothing any more.
    let _server = pair.serve(&["--observe", "--tune"]);
    let mut killed = proving().take();
    killed.kill().unwrap();
    killed.wait().unwrap();
    until(SMALL);

    let steal = Steal::begin();
    let output = pair.at_a(&prove);
    let proof = document(&output);
    let is_better = output.status.code() == Some(0) && proof["proofs"][0]["is_better"] == true;
    if steal.holds("knobs of another host", is_better, format_args!("{proof:#}")) {
        assert_eq!(proof["kept"][0]["namespace"], "10.0.0.2", "{proof:#}");
        assert_eq!(buffer(), USUAL, "it is kept there");
        let undo = pair.program("b", &["tune", "undo", "net.ipv4.tcp_rmem"]);
        let undone = finish(start(undo), Duration::from_secs(20));
        assert!(undone.status.success() && buffer() == SMALL, "{undone:?} {}", buffer());
    }
    let wrong = pair.at_a(&["prove", "b/eth0:nosuch=1", "--plan", &plan]);
    let said = refusal(&wrong);
    assert!(said.contains("b/eth0:nosuch=1: there is no knob 'nosuch'"), "{said}");
}

/// The setting of many that cures the other host is found and kept there.
#[test]
fn settings_of_two_hosts_are_searched() {
    let _turn = beside_for_long();
    if !is_root() || !installed("sysctl") {
        return skip("a search between two hosts", "it needs root and sysctl");
    }
    const USUAL: &str = "b/net.ipv4.tcp_rmem=4096 131072 6291456";
    let pair = Pair::up();
    let buffer = || {
        pair.lab.must("b", "sysctl -n net.ipv4.tcp_rmem").split_whitespace().next_back().map(str::to_owned)
    };
    pair.lab.must("b", "sysctl -w net.ipv4.tcp_rmem='4096 4096 4096'");
    let plan = pair.plan("test tcp-stream duration 100ms\n");
    let _server = pair.serve(&["--observe", "--tune"]);
    let steal = Steal::begin();
    // With the time that it asks for, however fast this machine is.
    let given_time = || {
        let mut budget = "25s".to_owned();
        for _ in 0..4 {
            let flags =
                ["tune", "search", USUAL, "--plan", &plan, "--pairs", "8", "--json", "--budget", &budget];
            let output = pair.at_a(&flags);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let advised =
                said.split_once("give at least --budget ").filter(|_| output.status.code() == Some(2));
            let Some((_, advice)) = advised else { return output };
            budget = advice.split(',').next().unwrap().to_owned();
        }
        panic!("the time that it asked for was too short three times, at last {budget}")
    };
    let output = given_time();
    let found = document(&output);
    assert_eq!((&found["lab"], &found["to"]), (&"".into(), &"10.0.0.2".into()));
    let is_better = output.status.code() == Some(0) && found["proof"]["is_better"] == true;
    if steal.holds("a search between two hosts", is_better, format_args!("{found:#}")) {
        assert_eq!(found["kept"][0]["namespace"], "10.0.0.2", "{found:#}");
        assert_eq!(buffer().as_deref(), Some("6291456"), "it is kept there");
    }
}

/// A case has its settings at the interfaces that lead from one host to the other; what it asks of a topology cannot be run.
#[test]
fn cases_are_run_between_two_hosts() {
    let _turn = alone();
    if !is_root() || !installed("ethtool") || !installed("sysctl") {
        return skip("cases between two hosts", "it needs root, ethtool and sysctl");
    }
    let pair = Pair::up();
    for (node, name) in [("a", "lan0"), ("b", "wan0")] {
        pair.lab.must(
            node,
            &format!("ip link set eth0 down && ip link set eth0 name {name} && ip link set {name} up"),
        );
    }
    let state = || pair.lab.must("a", "ethtool -k lan0") + &pair.lab.must("b", "sysctl net.ipv4.tcp_rmem");
    let before = state();
    let file = pair.folder.path().join("planted.case").display().to_string();
    let planted = PLANTED.replace("a/net.ipv4.ip_default_ttl=66", "a/eth0:feature.tx-udp-segmentation=off");
    std::fs::write(&file, &planted).unwrap();
    let server = pair.serve(&["--observe", "--tune"]);
    let steal = Steal::begin();
    let output = pair.at_a(&["case", "run", &file, "bonding", "jumbo-frames", "--pairs", "6", "--json"]);
    let run = document(&output);
    assert_eq!((&run["to"]["interface"], &run["to"]["far_interface"]), (&"lan0".into(), &"wan0".into()));
    assert_eq!(run["to"]["host"]["kernel"], run["kernel"], "{:#}", run["to"]);
    let [case, bonding, jumbo] = [0, 1, 2].map(|case| &run["cases"][case]);
    let is_candidate = output.status.code() == Some(1) && case["verdict"] == "bug_candidate";
    for arm in case["arms"].as_array().unwrap() {
        assert!(arm.as_str().unwrap().contains("between two hosts over IPv4"), "{arm}");
    }
    steal.holds("cases between two hosts", is_candidate, format_args!("{case:#}"));
    let wanted = ["b/net.ipv4.tcp_rmem=4096 4096 4096", "a/lan0:feature.tx-udp-segmentation=off"];
    assert_eq!(case["b"], serde_json::json!(wanted), "{case:#}");
    for (case, why) in [(bonding, "different topologies"), (jumbo, "--allow-link-flap allows it")] {
        assert_eq!(case["verdict"], "cannot_run", "{case:#}");
        assert!(case["why"].as_str().unwrap().contains(why), "{case:#}");
    }
    assert_eq!(state(), before, "all is put back");

    // Whoever lets nobody change its knobs is told what helps.
    drop(server);
    let _silent = pair.serve(&["--observe"]);
    let refused = pair.at_a(&["case", "run", &file]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(refused.status.code() == Some(3) && said.contains("serve --observe --tune"), "{said}");
    // What is changed here alone needs no permission there.
    let own = planted.replace("set-b b/net.ipv4.tcp_rmem=4096 4096 4096\n", "");
    std::fs::write(&file, own).unwrap();
    let steal = Steal::begin();
    let output = pair.at_a(&["case", "run", &file, "--pairs", "6"]);
    steal.holds("a case of this host alone", output.status.code() == Some(0), format_args!("{output:?}"));
}

/// A server of one connection ends by an interrupt, too, while that is open.
#[test]
fn a_server_of_one_connection_can_be_interrupted() {
    let _turn = beside();
    let mut server = command(PATHLAB);
    server.args(["serve", "--once", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    server.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Kept::new(server.spawn().unwrap());
    let line: Value = serde_json::from_str(&first_line(server.stdout_pipe().unwrap())).unwrap();
    let open = std::net::TcpStream::connect(line["listening"].as_str().unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let mut server = server.take();
    process::interrupt(&server).unwrap();
    let begun = Instant::now();
    assert_eq!(server.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(open);
}

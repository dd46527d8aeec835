//! `pathlab tune`: what it changes is seen by other tools, and comes back whatever happens in between.

use crate::beside;
use crate::routing::lab;
use crate::support::{TestLab, command, finish, is_root, pathlab, run, run_ok, skip, start, until_it_says};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

const PAIR: &str = "node a b\nlink a:tu0 -- b:tu1\n\
                    interface a:tu0 address 10.0.0.1/24\ninterface b:tu1 address 10.0.0.2/24\n";

/// How often a command is killed.
const KILLS: usize = 50;

/// A lab, and journals that no other test and nobody else has.
struct Bench {
    lab: TestLab,
    state: tempfile::TempDir,
}

impl Bench {
    fn up(label: &str) -> Option<Bench> {
        if !is_root() {
            skip(label, "needs root");
            return None;
        }
        let lab = lab(PAIR, "tune")?;
        // The kernel gives routes and addresses of its own a little later.
        lab.must(
            "a",
            "ip -6 address flush dev tu0; ip route add 10.9.0.0/16 via 10.0.0.2 dev tu0 advmss 1200",
        );
        let memory = std::path::Path::new("/dev/shm");
        let state = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Some(Bench { lab, state: state.unwrap() })
    }

    /// `pathlab tune` about node a.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = pathlab(&[&["tune"], arguments].concat());
        command.env("PATHLAB_STATE", self.state.path().join("state"));
        let is_about = !matches!(arguments.first(), Some(&"undo"))
            && !matches!(arguments, ["diff"] | ["diff", "--json"] | ["diff", "--in", _]);
        if is_about {
            command.args(["--in", &self.lab.netns("a")]);
        }
        command
    }

    fn tune(&self, arguments: &[&str]) -> Output {
        finish(start(self.command(arguments)), Duration::from_secs(60))
    }

    fn must(&self, arguments: &[&str]) -> String {
        let output = self.tune(arguments);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} ended with {}: {words}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.must(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// What it says when it refuses: one sentence, and the exit code.
    fn refused(&self, arguments: &[&str]) -> (String, Option<i32>) {
        let output = self.tune(arguments);
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert!(!output.status.success(), "{arguments:?} was not refused");
        assert!(words.contains("pathlab: ") && !words.contains("panicked"), "{words}");
        (words, output.status.code())
    }

    /// The whole state of the node as other tools see it, without counters.
    fn state(&self) -> String {
        let tools = "ip -d -j link; ip -j address; ip -d route show table all; tc -d qdisc show; ethtool -k tu0; ethtool -l tu0; \
                     cd /proc/sys/net/ipv4; grep . tcp_rmem tcp_wmem tcp_ecn tcp_congestion_control conf/tu0/rp_filter";
        let seen = self.lab.must("a", tools);
        // How many hold on to a qdisc has nothing to do with what it is.
        seen.replace(" refcnt 2", "").replace(" refcnt 3", "")
    }

    fn journals(&self) -> usize {
        let files = std::fs::read_dir(self.state.path().join("state")).into_iter().flatten().flatten();
        files.filter(|file| file.file_name().to_string_lossy().starts_with("tune-")).count()
    }
}

/// Knobs of every kind that a veth has.
const KNOBS: [&str; 10] = [
    "tu0",
    "mtu=1400",
    "txqueuelen=77",
    "qdisc=pfifo",
    "feature.tx-tcp-segmentation=off",
    "feature.tx-checksum-ip-generic=off",
    "rps_flow_cnt@rx-0=1000",
    "napi_defer_hard_irqs=2",
    "sysctl net.ipv4.tcp_rmem=4096 90000 1000000",
    "route.initcwnd@10.9.0.0/16=40",
];

fn set<'a>(knobs: &[&'a str]) -> Vec<&'a str> {
    [&["set", "--allow-link-flap"], knobs].concat()
}

#[test]
fn what_is_set_is_seen_by_other_tools_and_undone_to_the_byte() {
    let _turn = beside();
    let Some(bench) = Bench::up("tune") else { return };
    let before = bench.state();
    let shown = bench.must(&["show", "tu0"]);
    let done = bench.json(&set(&KNOBS));
    let changes = done["changes"].as_array().unwrap();
    assert_eq!(changes.len(), KNOBS.len() - 1);
    let rounded = changes.iter().find(|change| change["name"] == "rps_flow_cnt@rx-0").unwrap();
    assert_eq!((&rounded["wanted"], &rounded["set"]), (&"1000".into(), &"1024".into()), "rounded, and told");
    let seen = bench.state();
    for words in [
        "\"mtu\":1400",
        "\"txqlen\":77",
        "qdisc pfifo",
        "tx-tcp-segmentation: off",
        "90000",
        "initcwnd 40",
        "advmss 1200",
    ] {
        assert!(seen.contains(words), "no {words} in {seen}");
    }
    let kept = bench.json(&["diff"]);
    assert!(kept["changes"].as_array().unwrap().iter().all(|change| change["state"] == "set"), "{kept}");
    let again = bench.must(&set(&["tu0", "mtu=1400"]));
    assert!(again.contains("is 1400 already"), "{again}");
    // One alone, then all others.
    assert!(bench.must(&["undo", "tu0:mtu"]).contains("1400 → 1500"));
    assert!(bench.state().contains("\"mtu\":1500"));
    let undone = bench.json(&["undo", "--all"]);
    assert!(
        undone["changes"].as_array().unwrap().iter().all(|change| change["state"] == "undone"),
        "{undone}"
    );
    assert_eq!(bench.state(), before);
    assert_eq!(bench.must(&["show", "tu0"]), shown);
    assert_eq!((bench.journals(), bench.must(&["diff"]).trim()), (0, "nothing is changed"));
}

#[test]
fn changes_lie_on_each_other_and_what_somebody_else_set_stays() {
    let _turn = beside();
    let Some(bench) = Bench::up("stacked tune") else { return };
    let before = bench.state();
    for length in ["txqueuelen=10", "txqueuelen=20", "txqueuelen=30"] {
        bench.must(&["set", length, "tu0"]);
    }
    bench.must(&["undo", "txqueuelen"]);
    assert_eq!(bench.state(), before);
    bench.must(&["set", "txqueuelen=10", "net.ipv4.tcp_ecn=1", "tu0"]);
    bench.lab.must("a", "ip link set tu0 txqueuelen 55");
    // Only in the namespace that is named, and the namespace is told.
    let (a, b) = (bench.lab.netns("a"), bench.lab.netns("b"));
    assert_eq!(bench.must(&["diff", "--in", &b]).trim(), "nothing is changed");
    assert_eq!(bench.must(&["undo", "--all", "--in", &b]).trim(), "nothing was changed");
    assert_eq!(bench.must(&["diff", "--in", &a]), bench.must(&["diff"]));
    let kept = bench.must(&["diff"]);
    assert!(kept.lines().all(|line| line.starts_with(&format!("{a}: "))), "{kept}");
    // So it is called, too, where the command that changed it was in there itself.
    let mut inside = Command::new("nsenter");
    let set = bench.command(&["undo"]);
    inside.arg(format!("--net=/run/netns/{a}")).arg(set.get_program()).args([
        "tune",
        "set",
        "tu0",
        "napi_defer_hard_irqs=3",
    ]);
    inside.envs(set.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(inside.status().unwrap().success());
    let line = format!("{a}: tu0:napi_defer_hard_irqs: 0 → 3");
    assert!(bench.must(&["diff"]).contains(&line), "{}", bench.must(&["diff"]));
    assert!(kept.contains("and 55 now, which somebody else has set"), "{kept}");
    let undone = bench.must(&["undo", "--all"]);
    assert!(
        undone.contains("tu0:txqueuelen: left at 55: somebody else has set it since it was 10"),
        "{undone}"
    );
    assert!(undone.contains("tcp_ecn: 1 → 2") || undone.contains("tcp_ecn: 1 → 0"), "{undone}");
    bench.lab.must("a", "ip link set tu0 txqueuelen 1000");
    assert_eq!((bench.state(), bench.journals()), (before.clone(), 0));
    // What somebody else set lies between two changes: the upper one is undone to it.
    bench.must(&["set", "txqueuelen=10", "tu0"]);
    bench.lab.must("a", "ip link set tu0 txqueuelen 55");
    bench.must(&["set", "txqueuelen=20", "tu0"]);
    let undone = bench.must(&["undo", "--all"]);
    assert!(
        undone.contains("tu0:txqueuelen: 20 → 55") && undone.contains("left at 55: somebody else"),
        "{undone}"
    );
    bench.lab.must("a", "ip link set tu0 txqueuelen 1000");
    assert_eq!((bench.state(), bench.journals()), (before, 0));
}

#[test]
fn what_cannot_be_put_back_is_not_said_to_be_somebody_elses() {
    let _turn = beside();
    let Some(bench) = Bench::up("tune undo where the files are read-only") else { return };
    let before = bench.state();
    bench.must(&["set", "net.ipv4.tcp_sack=0", "txqueuelen=7", "tu0"]);
    let mut inside = Command::new("unshare");
    let script = "mount -o bind,ro /proc/sys /proc/sys && exec \"$@\"";
    inside
        .args(["--mount", "sh", "-c", script, "sh"])
        .envs(bench.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let undo = bench.command(&["undo", "--all"]);
    let refused = inside.arg(undo.get_program()).args(undo.get_args()).output().unwrap();
    let (told, said) = (String::from_utf8_lossy(&refused.stdout), String::from_utf8_lossy(&refused.stderr));
    assert_eq!(refused.status.code(), Some(3), "{told}{said}");
    assert!(
        told.contains("txqueuelen: 7 → 1000") && told.contains("tcp_sack: still 0: it could not be put back"),
        "{told}"
    );
    assert!(
        said.contains("of its namespace: Read-only file system") && said.contains("pathlab tune undo"),
        "{said}"
    );
    bench.must(&["undo", "--all"]);
    assert_eq!((bench.state(), bench.journals()), (before, 0));
}

#[test]
fn a_damaged_journal_keeps_no_other_change_from_being_undone() {
    let _turn = beside();
    let Some(bench) = Bench::up("tune with a damaged journal") else { return };
    bench.must(&["set", "txqueuelen=10", "tu0"]);
    bench.must(&["set", "net.ipv4.tcp_ecn=1"]);
    for ending in ["journal", "copy"] {
        std::fs::write(bench.state.path().join("state/tune-00000001").with_extension(ending), "x").unwrap();
    }
    for (command, line) in [(&["diff"][..], "tcp_ecn: "), (&["undo", "--all"], "tcp_ecn: 1 → ")] {
        let output = bench.tune(command);
        let [words, problem] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(words.contains(line) && problem.contains("tune-00000001' is damaged"), "{words}{problem}");
        assert_eq!(output.status.code(), Some(3), "{problem}");
    }
    assert_eq!(bench.journals(), 2, "the two files that somebody must look at");
}

#[test]
fn a_star_stands_for_each_queue_that_there_is() {
    let _turn = beside();
    let Some(bench) = Bench::up("all queues") else { return };
    bench.lab.must("a", "ip link add q0 numrxqueues 3 numtxqueues 3 type veth peer name q1");
    let cpus = |folder: &str| {
        // In the namespace's own sysfs.
        let line = format!("mount -t sysfs none /sys; grep -H . {folder}/queues/rx-*/rps_cpus");
        bench.lab.must("a", &format!("unshare -m sh -c '{line}'"))
    };
    let before = cpus("/sys/class/net/q0");
    assert_eq!(before.lines().count(), 3, "{before}");
    bench.must(&["set", "q0", "rps_cpus@rx-1=0"]);
    let one = cpus("/sys/class/net/q0");
    let made = bench.json(&["set", "q0", "rps_cpus@*=0"]);
    let states: Vec<&str> =
        made["changes"].as_array().unwrap().iter().filter_map(|change| change["state"].as_str()).collect();
    assert_eq!(states, ["already", "set", "set"]);
    assert!(cpus("/sys/class/net/q0").lines().all(|line| line.ends_with('1')));
    let shown = bench.json(&["show", "q0:rps_cpus@*"]);
    let values: Vec<&str> =
        shown["knobs"].as_array().unwrap().iter().filter_map(|knob| knob["value"].as_str()).collect();
    assert_eq!(values, ["0", "0", "0"]);
    // A profile may say so, too.
    let file = bench.state.path().join("profile");
    std::fs::write(&file, "q0:rps_cpus@*=none\n").unwrap();
    let differs = bench.json(&["diff", file.to_str().unwrap()]);
    assert_eq!(differs["changes"].as_array().unwrap().len(), 3, "{differs}");
    let (said, code) = bench.refused(&["set", "q0", "rps_cpus@rx-0=1", "rps_cpus@*=0"]);
    assert!(said.contains("rps_cpus@rx-0 is to be set twice") && code == Some(2), "{said}");
    let (said, code) = bench.refused(&["show", "lo:xps_cpus@*"]);
    assert!(said.contains("lo has no xps_cpus@*") && code == Some(3), "{said}");
    let undone = bench.json(&["undo", "q0:rps_cpus@*"]);
    assert_eq!(undone["changes"].as_array().unwrap().len(), 3, "each with what was before it: {undone}");
    assert_ne!(one, before);
    assert_eq!((cpus("/sys/class/net/q0"), bench.journals()), (before, 0));
}

#[test]
fn an_interface_that_went_or_has_another_name_is_said() {
    let _turn = beside();
    let Some(bench) = Bench::up("tune of what goes") else { return };
    bench.lab.must(
        "a",
        "ip link add name gone type veth peer name other; ip link add name old type veth peer name older",
    );
    bench.must(&["set", "gone:txqueuelen=10", "old:txqueuelen=10"]);
    bench.lab.must("a", "ip link del gone; ip link set old name new");
    let undone = bench.must(&["undo", "--all"]);
    for name in ["gone", "old"] {
        assert!(
            undone.contains(&format!("{name}:txqueuelen: left: it is gone, or has another name")),
            "{undone}"
        );
    }
    assert!(
        bench.lab.must("a", "ip link show new").contains("qlen 10"),
        "another interface's name is not guessed"
    );
    assert_eq!(bench.journals(), 0);
}

#[test]
fn two_commands_at_once_leave_nothing_that_cannot_be_undone() {
    let _turn = beside();
    let Some(bench) = Bench::up("tunes at once") else { return };
    let before = bench.state();
    let begin = |length: usize| start(bench.command(&["set", &format!("txqueuelen={}", 10 + length), "tu0"]));
    let running: Vec<Child> = (0..8).map(begin).collect();
    for child in running {
        assert!(finish(child, Duration::from_secs(60)).status.success());
    }
    assert_eq!(bench.journals(), 16, "eight changes, each with a copy of its journal");
    bench.must(&["undo", "--all"]);
    assert_eq!((bench.state(), bench.journals()), (before, 0));
}

/// Starts a command, and kills it `after` it began to change something, which `begun` says, or after its start.
fn killed(mut command: Command, begun: impl Fn() -> bool, after: Duration) {
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    while !begun() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(after);
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_kill_at_any_moment_leaves_what_undo_all_puts_back_to_the_byte() {
    let _turn = beside();
    let Some(bench) = Bench::up("tune and kill -9") else { return };
    let before = bench.state();
    let begun = Instant::now();
    bench.must(&set(&KNOBS));
    let set_time = begun.elapsed();
    let begun = Instant::now();
    bench.must(&["undo", "--all"]);
    let undo_time = begun.elapsed();
    assert_eq!(bench.state(), before);
    let mut interrupted = 0;
    for moment in 0..KILLS as u32 {
        // Moments spread over the whole time, and a little beyond.
        let at = |whole: Duration| whole * (moment * 37 % KILLS as u32) / (KILLS as u32 - 5);
        // Every second one from its first journal on: beside other tests, no time is enough for all to get there.
        killed(bench.command(&set(&KNOBS)), || moment % 2 == 0 || bench.journals() > 0, at(set_time));
        interrupted += usize::from(bench.journals() > 0);
        if moment % 4 < 2 {
            killed(bench.command(&["undo", "--all"]), || true, at(undo_time));
        }
        bench.must(&["undo", "--all"]);
        assert_eq!(bench.state(), before, "killed at moment {moment}");
        assert_eq!(bench.journals(), 0);
    }
    assert!(interrupted > 5, "only {interrupted} kills found something changed");
}

#[test]
fn what_is_refused_is_one_sentence_and_changes_nothing() {
    let _turn = beside();
    let Some(bench) = Bench::up("refused tune") else { return };
    let before = bench.state();
    for (arguments, words) in [
        (&["set", "txqueuelen=5", "mtu=1400", "tu0"][..], "may take the link of tu0 down"),
        (&["set", "txqueuelen=5", "feature.highdma2=on", "tu0"], "has no feature.highdma2"),
        (&["set", "txqueuelen=many", "tu0"], "txqueuelen cannot be set"),
        (&["set", "nothing=1", "tu0"], "no knob 'nothing'"),
        (&["set", "mtu=1400"], "is a knob of an interface"),
        (&["set", "mtu=1400", "nobody"], "no interface 'nobody'"),
        (&["set", "txqueuelen=5", "txqueuelen=6", "tu0"], "twice"),
        (&["set", "txqueuelen=5", "sysctl net.ipv4.tcp_congestion_control=nonesuch", "tu0"], "cannot be set"),
        (&["set", "ring.rx=128", "tu0", "--allow-link-flap"], "has no ring.rx"),
        (&["set", "net.ipv6.conf.tu0.disable_ipv6=1"], "no undo gives back"),
        (&["set", "cpu.cstate-limit-us=5"], "tune hold"),
        (&["set", "route.initcwnd@10.77.0.0/16=5"], "no route"),
        (&["set", "qdisc=nonesuch", "tu0"], "qdisc"),
        (&["set", "stamps_receive=1", "tu0"], "other commands"),
    ] {
        let (said, code) = bench.refused(arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(matches!(code, Some(2 | 3)), "{arguments:?}: {code:?}");
        assert_eq!(bench.state(), before, "{arguments:?}");
        assert_eq!(bench.journals(), 0, "{arguments:?}");
    }
}

#[test]
fn who_may_not_is_told_in_one_sentence() {
    let _turn = beside();
    let Some(bench) = Bench::up("tune without permission") else { return };
    let home = tempfile::tempdir().unwrap();
    nix::unistd::chown(home.path(), Some(65534.into()), Some(65534.into())).unwrap();
    let mut tool = command("ip");
    tool.args([
        "netns",
        "exec",
        &bench.lab.netns("a"),
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]);
    tool.arg(crate::support::PATHLAB).args(["tune", "set", "txqueuelen=5", "tu0"]);
    tool.env("PATHLAB_STATE", home.path().join("state"));
    let output = finish(start(tool), Duration::from_secs(60));
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("setpriv") {
        return skip("tune without permission", &said);
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("txqueuelen may not be changed") && said.contains("CAP_NET_ADMIN"), "{said}");
    assert!(bench.lab.must("a", "ip link show tu0").contains("qlen 1000"));
}

#[test]
fn a_profile_is_text_that_sets_what_differs() {
    let _turn = beside();
    let Some(bench) = Bench::up("profiles of tune") else { return };
    let before = bench.state();
    let file = bench.state.path().join("profile");
    let file = file.to_str().unwrap();
    let saved = bench.json(&["save", "-o", file]);
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(saved["knobs"].as_u64().unwrap() as usize, text.lines().count() - 1);
    assert!(text.contains("\ntu0:mtu=1500\n") && text.contains("\nsysctl net.ipv4.tcp_rmem=4096 "), "{text}");
    assert!(bench.must(&["diff", file]).contains("all is as the profile says"));
    bench
        .lab
        .must("a", "ip link set tu0 txqueuelen 5; ethtool -K tu0 tso off; tc qdisc add dev tu0 root pfifo");
    let other = bench.state();
    let differs = bench.must(&["diff", file]);
    assert!(differs.contains("tu0:txqueuelen: 5, and 1000 in the profile"), "{differs}");
    bench.must(&["apply", file]);
    assert_eq!(bench.state(), before);
    bench.must(&["undo", "--all"]);
    assert_eq!(bench.state(), other, "an applied profile is undone, too");
    std::fs::write(file, "# a comment\n\ntu0:txqueuelen\n").unwrap();
    let (said, _) = bench.refused(&["apply", file]);
    assert!(said.contains("not NAME=VALUE") && said.contains("profile:3"), "{said}");
}

#[test]
fn what_is_held_is_put_back_at_ctrl_c_and_after_kill_9() {
    let _turn = beside();
    let Some(bench) = Bench::up("tune hold") else { return };
    let before = bench.state();
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut holding = start(bench.command(&["hold", "txqueuelen=5", "tu0"]));
        until_it_says(&mut holding, "held until");
        assert!(bench.lab.must("a", "ip link show tu0").contains("qlen 5"));
        kill(Pid::from_raw(holding.id() as i32), signal).unwrap();
        finish(holding, Duration::from_secs(60));
        if signal == Signal::SIGKILL {
            bench.must(&["undo", "--all"]);
        }
        assert_eq!((bench.state(), bench.journals()), (before.clone(), 0));
    }
    let mut holding = start(bench.command(&["hold", "txqueuelen=5", "tu0"]));
    until_it_says(&mut holding, "held until");
    bench.lab.must("a", "ip link set tu0 txqueuelen 55");
    kill(Pid::from_raw(holding.id() as i32), Signal::SIGINT).unwrap();
    let ended = finish(holding, Duration::from_secs(60));
    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && words.contains("txqueuelen: left at 55: somebody else"), "{words}");
    assert!(bench.lab.must("a", "ip link show tu0").contains("qlen 55"), "somebody else's change stays");
}

#[test]
fn the_limit_of_c_states_holds_as_long_as_the_command() {
    let _turn = beside();
    if !is_root() || !std::path::Path::new("/dev/cpu_dma_latency").exists() {
        return skip("the limit of C-states", "needs root and /dev/cpu_dma_latency");
    }
    let limit = || {
        let bytes = std::fs::read("/dev/cpu_dma_latency").unwrap();
        u32::from_ne_bytes(bytes[..4].try_into().unwrap())
    };
    let before = limit();
    let mut holding = start(pathlab(&["tune", "hold", "cpu.cstate-limit-us=123456"]));
    until_it_says(&mut holding, "held until");
    let held = limit();
    kill(Pid::from_raw(holding.id() as i32), Signal::SIGINT).unwrap();
    finish(holding, Duration::from_secs(60));
    assert_eq!(held, before.min(123_456), "the least of all limits holds");
    assert_eq!(limit(), before);
}

#[test]
fn the_page_has_the_table_of_the_program() {
    let page = std::fs::read_to_string("docs/tune.md").unwrap();
    let wanted: Vec<String> = linux::tune::KNOBS.iter().map(row).collect();
    let begin = page.find("| knob |").expect("the table of knobs");
    let found: Vec<&str> = page[begin..].lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let wrong: Vec<_> = wanted.iter().filter(|row| !found.contains(&row.as_str())).collect();
    assert!(
        wrong.is_empty(),
        "docs/tune.md lacks:\n{}",
        wrong.iter().map(|row| row.as_str()).collect::<Vec<_>>().join("\n")
    );
    assert_eq!(found.len(), wanted.len(), "docs/tune.md has rows of knobs that are not there");
}

fn row(row: &linux::tune::Row) -> String {
    let (place, kind, risk) = (row.place.word(), row.kind.words(), row.risk.word());
    format!("| `{}` | {place} | {kind} | {risk} | {} |", row.name, row.meaning)
}

#[test]
fn documents_of_tune_are_those_of_the_docs() {
    let _turn = beside();
    let Some(bench) = Bench::up("documents of tune") else { return };
    // A build for tests ends when a document is not as docs/json.md has it.
    assert_eq!(bench.json(&["show", "mtu", "tu0"])["knobs"][0]["value"], "1500");
    assert_eq!(bench.json(&["show", "sysctl", "net.ipv4.tcp_ecn"])["schema"], "pathlab/tune-show/1");
    assert_eq!(run(&["tune", "undo"]).status.code(), Some(2), "what to undo is to be said");
    assert!(run_ok(&["tune", "show", "cpu.cstate-limit-us"]).contains("fixed"));
}

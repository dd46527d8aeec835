//! os-ken's switch suite (the Ryu switch test tool) against `pathlab switch`: every case of OpenFlow 1.3 and 1.4.
//!
//! Each worker has a network namespace with three cables between two switches, the one that is tested and the one that sends and
//! looks; both are ours (a switch that cannot be told apart from a right one by its own frames is caught by the other tests, which
//! compare with other programs). The files of the suite are dealt out to the workers. Cases of groups and meters measure rates, in
//! which os-ken itself must send up to 20,000 frames a second: the hungriest are run one at a time. They are measured for 4
//! seconds, from the second after their first frame; a case that was missed is measured again at the end as os-ken does it, for 30
//! seconds and with the burst of its meter (half a second of its rate) among them, with no other case beside it, twice at most, and
//! counted. Where a group chooses among buckets by random addresses, 4 seconds of 175 frames a second would miss 10 % by chance
//! (one bucket of weight 1 beside one of weight 2: 233 ± 12 frames), so those have 30 seconds at once. The scoreboard and every
//! failure are printed; one failure fails.
//!
//! `cargo test --test openflow -- 13/meter` runs the files whose path contains that.

mod support;

use linux::sys::{netns, process};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{finish, is_root, skip, start};

/// The variable that names another engine than the switch's default one.
const ENGINE: &str = "PATHLAB_SWITCH_ENGINE";
/// The variable that names another kind of ports than `int`.
const PORTS: &str = "PATHLAB_SWITCH_PORTS";
/// How many cases the suite of os-ken 3.1.0 has.
const CASES: [(&str, usize); 2] = [("13", 991), ("14", 1003)];
/// Workers for each lane: those that need a CPU alone, those that measure rates and sleep between frames, and those that take as
/// long as their messages. So many that all lanes end at about the same time, with the hungry one.
const WORKERS: [(Lane, usize); 3] = [(Lane::Hungry, 1), (Lane::Rate, 9), (Lane::Quick, 4)];
/// How often a rate that was missed is measured again.
const AGAIN: usize = 2;
/// Seconds that a rate is measured at first, unless it is one of chance.
const SHORT: u64 = 4;
/// Seconds that os-ken's files measure a rate.
const LONG: u64 = 30;
/// What the list of retries calls these cases.
const KIND: &str = "os-ken, rates";
/// Files of one start of os-ken: its start takes as long as ten cases.
const FILES: usize = 12;
/// How long one start may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Some files of one version, for one start of os-ken.
#[derive(Debug)]
struct Task {
    version: &'static str,
    files: Vec<PathBuf>,
    lane: Lane,
    /// How long each rate is measured, in seconds.
    seconds: u64,
    /// Only the cases of these names; all if there are none.
    only: BTreeSet<String>,
}

/// What a task needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// As long as its messages take.
    Quick,
    /// As long as a rate is measured, and a part of a CPU.
    Rate,
    /// The same, and a whole CPU: 100 Mbit/s and 10,000 frames a second are to be exceeded.
    Hungry,
}

impl Lane {
    fn of(kind: &str, file: &Path) -> Lane {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match kind {
            "match" | "action" => Lane::Quick,
            _ if name.contains("_100M") || name.contains("_10000") => Lane::Hungry,
            _ => Lane::Rate,
        }
    }
}

/// A case and what became of it.
#[derive(Debug)]
struct Case {
    version: &'static str,
    /// What the file calls itself: `meter: 01_DROP_00_KBPS_00_1M`.
    file: String,
    name: String,
    /// What the tester says of a failure; none when it passed.
    failure: Option<String>,
}

fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers/osken/bin/python")
}

fn suite() -> Command {
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/osken/suite.py"));
    command.env("OSKEN_HUB_TYPE", "eventlet").env("PYTHONWARNINGS", "ignore");
    command
}

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let problem = if !is_root() {
        Some("it needs root (network namespaces)")
    } else if !python().exists() {
        Some("os-ken 3.1.0 is not in target/peers/osken (tests/peers.sh puts it there)")
    } else {
        None
    };
    if let Some(problem) = problem {
        skip("os-ken's switch suite", problem);
        return ExitCode::SUCCESS;
    }
    let tasks = tasks(filter.as_deref());
    let cases = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for (lane, workers) in WORKERS {
            let queue: Vec<&Task> = tasks.iter().filter(|task| task.lane == lane).collect();
            let workers = workers.min(queue.len());
            let queue = Arc::new(Mutex::new(queue));
            for _ in 0..workers {
                let (queue, cases) = (queue.clone(), &cases);
                scope.spawn(move || {
                    if lane == Lane::Hungry {
                        hurry();
                    }
                    let bench = Bench::build();
                    loop {
                        let Some(task) = queue.lock().unwrap().pop() else { break };
                        let done = bench.run(task);
                        cases.lock().unwrap().extend(done);
                    }
                });
            }
        }
    });
    let mut cases = cases.into_inner().unwrap();
    hurry();
    again(&tasks, &mut cases);
    report(&cases, filter.is_some())
}

/// What this thread starts from now on has a CPU before the tests that run beside this suite. It is no failure where that may not be.
fn hurry() {
    let thread = nix::unistd::gettid().to_string();
    let mut renice = support::command("renice");
    renice.args(["-n", "-5", "-p", &thread]);
    finish(start(renice), Duration::from_secs(10));
}

/// Measures rates that were missed once more, for long, with no other case beside them.
fn again(tasks: &[Task], cases: &mut [Case]) {
    for case in cases.iter().filter(|case| case.is_rate()) {
        support::again::first(KIND, &case.title());
    }
    for _ in 0..AGAIN {
        for task in tasks.iter().filter(|task| task.lane != Lane::Quick) {
            let missed: Vec<&Case> =
                cases.iter().filter(|case| case.failure.is_some() && case.is_of(task)).collect();
            if missed.is_empty() {
                continue;
            }
            for case in &missed {
                support::again::again(KIND, &case.title(), case.failure.as_deref().unwrap_or_default());
            }
            let only = missed.iter().map(|case| case.name.clone()).collect();
            let task = Task { files: task.files.clone(), seconds: LONG, only, ..*task };
            for new in Bench::build().run(&task) {
                let old = cases.iter_mut().find(|old| old.title() == new.title());
                if let Some(old) = old.filter(|old| old.failure.is_some()) {
                    *old = new;
                }
            }
        }
    }
}

impl Case {
    /// Whether it stands in the file of a task that has only one.
    fn is_of(&self, task: &Task) -> bool {
        let name = self.file.split(": ").nth(1).unwrap_or_default();
        self.version == task.version && task.name() == name
    }

    /// `match`, `action`, `group` or `meter`.
    fn kind(&self) -> &str {
        self.file.split(':').next().unwrap_or_default()
    }

    fn is_rate(&self) -> bool {
        measures_rates(self.kind())
    }

    /// Its one name in all of the suite.
    fn title(&self) -> String {
        format!("OpenFlow 1.{} {}: {}", &self.version[1..], self.file, self.name)
    }
}

fn measures_rates(kind: &str) -> bool {
    matches!(kind, "group" | "meter")
}

impl Task {
    /// The name of its first file, as the suite says it.
    fn name(&self) -> String {
        self.files[0].file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A file of the suite with the cases that are wanted: a list of a description and the cases.
    fn text(&self, file: &Path) -> Vec<u8> {
        let text = std::fs::read(file).unwrap();
        if self.only.is_empty() {
            return text;
        }
        let mut items: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
        items.retain(|item| item["description"].as_str().is_none_or(|name| self.only.contains(name)));
        serde_json::to_vec(&items).unwrap()
    }
}

/// What is to be done, what is measured longest last (workers take from the end).
fn tasks(filter: Option<&str>) -> Vec<Task> {
    let folder = support::finish(start_piped(suite().arg("--folder")), Duration::from_secs(60));
    let folder = PathBuf::from(String::from_utf8_lossy(&folder.stdout).trim());
    let mut tasks = vec![];
    for (version, _) in CASES {
        for kind in ["match", "action", "group", "meter"] {
            let mut files = vec![];
            collect(&folder.join(format!("of{version}/{kind}")), &mut files);
            files.retain(|file| filter.is_none_or(|filter| file.to_string_lossy().contains(filter)));
            files.sort();
            let size = if measures_rates(kind) { 1 } else { FILES };
            let task = |files: &[PathBuf]| {
                let lane = Lane::of(kind, &files[0]);
                let is_by_chance = kind == "group" && files[0].to_string_lossy().contains("_SELECT_");
                let seconds = if is_by_chance { LONG } else { SHORT };
                Task { version, files: files.to_vec(), lane, seconds, only: BTreeSet::new() }
            };
            tasks.extend(files.chunks(size).map(task));
        }
    }
    tasks.sort_by_key(|task| task.seconds);
    tasks
}

fn start_piped(command: &mut Command) -> Child {
    use std::process::Stdio;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|end| end == "json") {
            files.push(path);
        }
    }
}

/// Two switches and three cables in a namespace of their own.
struct Bench {
    netns: Arc<OwnedFd>,
    switches: Vec<Child>,
}

impl Bench {
    fn build() -> Bench {
        let netns = Arc::new(netns::create().unwrap());
        netns::within(netns.as_fd(), || {
            let ip = |line: &str| {
                let done = support::command("ip").args(line.split(' ')).status().unwrap();
                assert!(done.success(), "ip {line}");
            };
            ip("link set lo up");
            for i in 1..=3 {
                ip(&format!("link add tg{i} type veth peer name te{i}"));
                for end in ["tg", "te"] {
                    // The kernel itself is to say nothing on the cables.
                    ip(&format!("link set {end}{i} addrgenmode none"));
                    ip(&format!("link set {end}{i} up"));
                }
            }
        })
        .unwrap();
        let mut bench = Bench { netns, switches: vec![] };
        bench.switches = [("1", "tg"), ("2", "te")].map(|(dpid, end)| bench.switch(dpid, end)).into();
        bench
    }

    fn switch(&self, dpid: &str, end: &str) -> Child {
        let mut command = support::pathlab(&["switch", "--dpid", dpid, "--name", end]);
        if let Some(engine) = std::env::var_os(ENGINE) {
            command.arg("--engine").arg(engine);
        }
        let kind = std::env::var(PORTS).unwrap_or_else(|_| "int".into());
        for i in 1..=3 {
            command.args(["--port", &format!("{i}={kind}:{end}{i}")]);
        }
        command.args(["--controller", "tcp:127.0.0.1:6653"]);
        process::enter(&mut command, self.netns.clone(), false);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    }

    /// Runs os-ken on the files; what it said of each case.
    fn run(&self, task: &Task) -> Vec<Case> {
        let folder = tempfile::tempdir().unwrap();
        for (number, file) in task.files.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{number:02}.json")), task.text(file)).unwrap();
        }
        let mut command = suite();
        if task.seconds != LONG {
            command.env("PATHLAB_OSKEN_SECONDS", task.seconds.to_string());
        }
        command.args(["--ofp-tcp-listen-port", "6653", "--test-switch-dir"]).arg(folder.path());
        let version = format!("openflow{}", task.version);
        command.args(["--test-switch-target-version", &version, "--test-switch-tester-version", &version]);
        process::enter(&mut command, self.netns.clone(), false);
        let output = finish(start(command), LIMIT);
        let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        read(task.version, &text)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for switch in &mut self.switches {
            let _ = process::interrupt(switch);
        }
        for switch in &mut self.switches {
            let _ = switch.wait();
        }
    }
}

/// Reads `    NAME    OK` and `    NAME    ERROR` with its reason on the line below; the file's name stands unindented above.
fn read(version: &'static str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = vec![];
    let mut file = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.contains("--- Test report ---") {
            break;
        }
        let ended = line.strip_suffix(" OK").map(|name| (name, false));
        let ended = ended.or(line.strip_suffix(" ERROR").map(|name| (name, true)));
        match ended {
            Some((name, failed)) if line.starts_with("    ") => {
                let reason = failed.then(|| lines.next().unwrap_or_default().trim().to_owned());
                cases.push(Case { version, file: file.clone(), name: name.trim().into(), failure: reason });
            }
            _ if ["action: ", "match: ", "group: ", "meter: "].iter().any(|kind| line.starts_with(kind)) => {
                line.clone_into(&mut file);
            }
            _ => {}
        }
    }
    cases
}

/// The scoreboard: failures by name, then the counts; everything must be there and right.
fn report(cases: &[Case], is_part: bool) -> ExitCode {
    let mut kinds: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for case in cases {
        let row = kinds.entry((case.version, case.kind())).or_default();
        row.1 += 1;
        match &case.failure {
            None => row.0 += 1,
            Some(why) => println!("FAILED {}\n    {why}", case.title()),
        }
    }
    println!("\nos-ken's switch suite   passed  cases");
    for ((version, kind), (passed, all)) in &kinds {
        println!("  OpenFlow 1.{}  {kind:<8} {passed:>6} {all:>6}", &version[1..]);
    }
    let mut complete = true;
    for (version, expected) in CASES {
        let of = || cases.iter().filter(|case| case.version == version);
        let passed = of().filter(|case| case.failure.is_none()).count();
        println!("  OpenFlow 1.{}  {passed} of {expected}", &version[1..]);
        complete &= is_part || (of().count() == expected && passed == expected);
    }
    let failed = cases.iter().any(|case| case.failure.is_some()) || cases.is_empty();
    if failed || !complete { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

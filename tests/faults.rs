//! Planted faults: one at a time, inside a running lab, with ordinary tools. pathlab must find the right station and the
//! right name, count within its own uncertainty, accuse nobody else, and leave nothing unexplained.
//!
//! The truth never comes from the record under test: it is the counter of the tool that planted the fault, a counter of the
//! node's kernel, or the difference of two counters of nftables, behind the sender and before the receiver. The scoreboard is
//! printed; anything below 100 % fails. `cargo test --test faults -- NAME` runs one.
//!
//! `cargo test --test faults -- without-bpf` plays all of the silent half once more where the kernel refuses BPF, as a
//! container's usual seccomp profile does, and prints how many are found all the same. A few of these are played every time.

#[path = "faults/bridges.rs"]
mod bridges;
#[path = "faults/ends.rs"]
mod ends;
#[path = "faults/filters.rs"]
mod filters;
#[path = "faults/forwarders.rs"]
mod forwarders;
#[path = "faults/frames.rs"]
mod frames;
#[path = "faults/innocents.rs"]
mod innocents;
#[path = "faults/pairs.rs"]
mod pairs;
#[path = "faults/plan.rs"]
mod plan;
#[path = "faults/queues.rs"]
mod queues;
#[path = "faults/routes.rs"]
mod routes;
mod support;
#[path = "faults/without_bpf.rs"]
mod without_bpf;

use plan::{During, Fault, Guilty, Truth, until_counted};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use support::{
    Kept, TestLab, again, command, finish, installed, is_root, pathlab, skip, start, turn, unpacked_ovs,
};
use without_bpf::Told;

/// All faults, the innocents last.
fn faults() -> Vec<Fault> {
    [
        queues::all,
        filters::all,
        routes::all,
        bridges::all,
        ends::all,
        frames::all,
        forwarders::all,
        pairs::all,
        innocents::all,
    ]
    .into_iter()
    .flat_map(|all| all())
    .collect()
}

/// One line of the scoreboard.
struct Score {
    fault: String,
    expected: String,
    found: String,
    verdict: Result<(), String>,
    /// How well it was told, where it was played without BPF.
    told: Option<Told>,
}

/// What a fault is played beside, or without.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// Alone on the path.
    Silent,
    /// Strangers use the same path.
    Beside,
    /// Alone, and the kernel refuses BPF.
    WithoutBpf,
}

impl Setting {
    const ALL: [Setting; 3] = [Setting::Silent, Setting::Beside, Setting::WithoutBpf];
}

/// What a fault that depends on the moment says when the moment was missed.
const NOT_PLANTED: &str = "the fault lost nothing: badly planted";

/// How the reason begins when a wait gave up.
const MISSED: &str = "badly planted: ";

/// What is said when others were accused, too, and the witness counted those losses as well. On a busy machine a reader can
/// be held up so long that its socket really overflows beside the planted fault; the accusation is right then, and the
/// experiment is not. An accusation that nobody confirms is never tried again.
const BESIDE: &str = "somebody else was accused too, and the witness agrees";

/// How often a fault is played at most.
const PLAYS: usize = 4;

/// Others' datagrams on the same path: of several lengths, one of which the kernel cuts, to ports where nobody listens (so the kernel
/// answers each), and to everybody on the link, some thousands a second until the process is ended.
const STRANGERS: &str = "import socket,sys,time
one=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); one.setsockopt(socket.SOL_SOCKET,socket.SO_BROADCAST,1)
while True:
  for payload,port in ((b'x'*200,9001),(b'y'*1400,9002),(b'z'*100,9004),(b'v'*3000,9005)):
    for _ in range(2):
      try: one.sendto(payload,(sys.argv[1],port))
      except OSError: pass
  try: one.sendto(b'w'*100,('255.255.255.255',9003))
  except OSError: pass
  time.sleep(0.001)
";

/// Starts the strangers in `a`.
fn strangers(lab: &TestLab) -> Kept {
    let address = lab.must("b", "ip -4 -o addr show eth0");
    let address =
        address.split_whitespace().nth(3).and_then(|word| word.split('/').next()).expect("an address");
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("a"), "python3", "-c", STRANGERS, address]);
    Kept::new(start(tool))
}

/// Plays a fault; one that missed its moment is planted again, and so is one that was not alone: a wrong accusation would come again.
fn play_until_planted(fault: &Fault, setting: Setting) -> Score {
    let once = || {
        let score = play(fault, setting);
        let why = score
            .verdict
            .as_ref()
            .err()
            .filter(|why| **why == BESIDE || **why == NOT_PLANTED || why.starts_with(MISSED));
        let why = why.map(|why| format!("{why}; found {}", score.found));
        (score, why)
    };
    again::play("planted faults", &title(fault, setting), PLAYS, once)
}

fn title(fault: &Fault, setting: Setting) -> String {
    let words = match setting {
        Setting::Silent => "",
        Setting::Beside => ", beside strangers",
        Setting::WithoutBpf => ", without BPF",
    };
    format!("{}{words}", fault.name)
}

/// The name of a topology, or the file of one that is written out.
fn topology(fault: &Fault, folder: &Path) -> String {
    if !fault.topology.contains('\n') {
        return fault.topology.to_owned();
    }
    let file = folder.join("fault.lab");
    std::fs::write(&file, fault.topology).unwrap();
    file.display().to_string()
}

/// Plants one fault, runs the plan, compares.
fn play(fault: &Fault, setting: Setting) -> Score {
    let folder = tempfile::tempdir().unwrap();
    let lab = TestLab::up(&topology(fault, folder.path()), "fault");
    let name = title(fault, setting);
    let _strangers = (setting == Setting::Beside).then(|| strangers(&lab));
    let expected: Vec<String> =
        fault.guilty.iter().map(|g| format!("{} {}: {}", g.node, g.station, g.name)).collect();
    let expected = if expected.is_empty() { "nobody".to_owned() } else { expected.join(", ") };
    for (node, line) in &fault.plant {
        if let Err(problem) = lab.inside(node, line) {
            return Score {
                fault: name,
                expected,
                found: String::new(),
                verdict: Err(format!("not planted: {problem}")),
                told: None,
            };
        }
    }
    let plan = folder.path().join("fault.plan");
    std::fs::write(&plan, format!("topology bridge\nrepetitions 1\n{}\n", fault.tests)).unwrap();
    let records = folder.path().join("runs");
    let (plan, records) = (plan.display().to_string(), records.display().to_string());
    let arguments = ["run", &plan, "--lab", &lab.name, "--dir", &records, "--json"];
    let is_refused = setting == Setting::WithoutBpf;
    let child = start(if is_refused { without_bpf::refused(&arguments) } else { pathlab(&arguments) });
    let mut missed = None;
    if let Some(during) = &fault.during {
        missed = happen(during, &lab, child.id(), folder.path()).err();
    }
    let output = finish(child, Duration::from_secs(60));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let json: Value = match serde_json::from_slice::<Value>(&output.stdout) {
        // A fault that takes all of a test makes the run end with code 1, after the results.
        Ok(json) if matches!(output.status.code(), Some(0 | 1)) && json["tests"][0].is_object() => json,
        _ => {
            let verdict = Err(format!("run ended with {}: {}", output.status, words.trim()));
            return Score { fault: name, expected, found: String::new(), verdict, told: None };
        }
    };
    let test = &json["tests"][0];
    let found = accused(test);
    let truth = |truth: Truth| truth.read(&lab, folder.path());
    let names: Vec<String> =
        found.iter().map(|a| format!("{} {}: {} ×{}", a.node, a.station, a.name, a.count)).collect();
    let (verdict, told) = match missed {
        Some(why) => (Err(format!("{MISSED}{why}")), None),
        None if is_refused => without_bpf::verdict(fault, test, &found, &truth),
        None => (judge(fault, test, &found, &truth), None),
    };
    if verdict.is_err() {
        eprintln!(
            "--- {}: {}",
            fault.name,
            serde_json::to_string_pretty(&test["ledger"]).unwrap_or_default()
        );
        eprintln!("--- limit: {}", test["limit"]);
    }
    Score { fault: name, expected, found: names.join(", "), verdict, told }
}

fn happen(during: &During, lab: &TestLab, run: u32, folder: &Path) -> Result<(), String> {
    match during {
        During::By(by) => by(lab, run, folder),
        During::Inside { node, line } => {
            until_counted(lab, 1000)?;
            lab.inside(node, line).map(drop)
        }
    }
}

/// Somebody whom the result accuses.
struct Accused {
    node: String,
    station: String,
    name: String,
    count: u64,
    uncertainty: u64,
}

/// All stations with a named drop or a residual beyond the uncertainty; for TCP the accept queue.
fn accused(test: &Value) -> Vec<Accused> {
    let mut found = vec![];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for station in test["ledger"]["stations"].as_array().into_iter().flatten() {
        let uncertainty = station["uncertainty"].as_u64().unwrap_or(0);
        let mut accuse = |name: String, count: u64| {
            if count > uncertainty {
                let (node, station) = (text(&station["node"]), text(&station["station"]));
                found.push(Accused { node, station, name, count, uncertainty });
            }
        };
        // A copy that ends somewhere else is no loss.
        let drops = station["drops"].as_array().into_iter().flatten();
        for drop in drops.filter(|drop| drop["name"] != "copy") {
            accuse(text(&drop["name"]), drop["count"].as_u64().unwrap_or(0));
        }
        accuse("residual".into(), station["residual"].as_i64().unwrap_or(0).unsigned_abs());
    }
    if test["limit"]["what"] == "accept_queue" {
        let evidence = text(&test["limit"]["evidence"]);
        let count =
            evidence.split(|c: char| !c.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap_or(0);
        let place = text(&test["limit"]["where"]);
        let node = place.trim_start_matches("node ").split([',', ' ']).next().unwrap_or_default().to_owned();
        found.push(Accused {
            node,
            station: "accept queue".into(),
            name: "accept_queue".into(),
            count,
            uncertainty: 0,
        });
    }
    found
}

fn judge(
    fault: &Fault,
    test: &Value,
    found: &[Accused],
    truth: &dyn Fn(Truth) -> Option<u64>,
) -> Result<(), String> {
    let ledger = &test["ledger"];
    if !ledger.is_null() {
        let unexplained = ledger["unexplained"].as_i64().ok_or("no 'unexplained' in the ledger")?;
        let uncertainty = ledger["uncertainty"].as_u64().unwrap_or(0);
        if unexplained.unsigned_abs() > uncertainty {
            return Err(format!("unexplained {unexplained} ± {uncertainty}"));
        }
        let witness = ledger["witness"]["status"].as_str().unwrap_or_default();
        if witness != "agrees" {
            return Err(format!("the witness {witness}: {}", ledger["witness"]["disagreement"]));
        }
    }
    if let Some(unseen) = fault.sees.iter().find(|place| !is_seen(test, place)) {
        let missed = if fault.during.is_some() { MISSED } else { "" };
        return Err(format!("{missed}no frame was seen at {unseen}"));
    }
    if fault.guilty.is_empty() {
        let is_counted = fault.plant.iter().any(|(_, line)| line.contains(" count "));
        let lost = if is_counted { truth(Truth::Between) } else { Some(0) };
        // The witness agrees, or this would not be reached: the machine itself lost frames.
        return match (found, lost) {
            ([], Some(0)) => Ok(()),
            ([], lost) => Err(format!("nobody was accused, true is {lost:?}")),
            _ => Err(BESIDE.into()),
        };
    }
    for guilty in &fault.guilty {
        agrees(guilty, found, truth(guilty.truth).ok_or("the truth could not be read")?)?;
    }
    let follows = |accused: &Accused| {
        fault.follows.is_some_and(|(node, name)| accused.node == node && accused.name.starts_with(name))
    };
    let is_expected =
        |accused: &Accused| follows(accused) || fault.guilty.iter().any(|guilty| is_meant(guilty, accused));
    match found.iter().all(is_expected) {
        true => Ok(()),
        false => {
            let confirmed = ledger["witness"]["status"] == "agrees";
            Err(if confirmed { BESIDE } else { "somebody else was accused too" }.into())
        }
    }
}

fn is_meant(guilty: &Guilty, accused: &Accused) -> bool {
    let is = |word: &str, other: &str| word == "*" || word == other;
    is(guilty.node, &accused.node)
        && guilty.name.split('|').any(|name| name == accused.name)
        && is(guilty.station, &accused.station)
}

/// One of the guilty was accused, with the true count.
fn agrees(guilty: &Guilty, found: &[Accused], truth: u64) -> Result<(), String> {
    if truth == 0 {
        return Err(NOT_PLANTED.into());
    }
    let right: Vec<&Accused> = found.iter().filter(|accused| is_meant(guilty, accused)).collect();
    if right.is_empty() {
        return Err(format!("{} {} was not accused, true is {truth}", guilty.node, guilty.station));
    }
    let count: u64 = right.iter().map(|a| a.count).sum();
    let uncertainty: u64 = right.iter().map(|a| a.uncertainty).sum();
    match count.abs_diff(truth) > uncertainty {
        true => Err(format!(
            "{} {}: counted {count} ± {uncertainty}, true is {truth}",
            guilty.node, guilty.station
        )),
        false => Ok(()),
    }
}

/// Whether frames of the test were counted at `node:interface`.
fn is_seen(test: &Value, place: &str) -> bool {
    let mut interfaces = test["flow"]["interfaces"].as_array().into_iter().flatten();
    interfaces.any(|one| {
        let name =
            format!("{}:{}", one["node"].as_str().unwrap_or(""), one["interface"].as_str().unwrap_or(""));
        name == place && one["counts"].as_array().is_some_and(|counts| !counts.is_empty())
    })
}

/// How many labs are played in at once: a play mostly waits. Those that are alone are played behind all others, one by one.
const AT_ONCE: usize = 6;

fn play_all(plays: &[(&Fault, Setting)]) -> Vec<Score> {
    let (alone, others): (Vec<_>, Vec<_>) = plays.iter().partition(|(fault, _)| fault.is_alone());
    let groups = [(AT_ONCE, others), (1, alone)];
    let scores = groups.map(|(most, plays)| {
        turn::at_once(most, &plays, |(fault, setting)| play_until_planted(fault, *setting))
    });
    scores.into_iter().flatten().collect()
}

fn main() -> ExitCode {
    if !is_root() {
        skip("planted faults", "needs root, to plant faults with ordinary tools and to run the witness");
        println!("0 passed, 0 failed, {} skipped", faults().len());
        return ExitCode::SUCCESS;
    }
    let mut wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let of_all = wanted.len();
    wanted.retain(|word| word != without_bpf::WORD);
    let only_without_bpf = wanted.len() < of_all;
    let is_wanted =
        |fault: &Fault| wanted.is_empty() || wanted.iter().any(|word| fault.name.contains(word.as_str()));
    let is_known = |name: &&str| faults().iter().any(|fault| fault.name == *name);
    let unknown = without_bpf::NAMED_BEFORE.iter().find(|name| !is_known(name));
    assert_eq!(unknown, None, "a fault that is to be played without BPF has another name");
    let (mut plays, mut skipped) = (vec![], 0);
    for fault in faults().into_iter().filter(is_wanted) {
        let is_there =
            |program: &&&str| installed(program) || (**program == "ovs-vswitchd" && unpacked_ovs().is_dir());
        match fault.needs.iter().find(|program| !is_there(program)) {
            Some(program) => {
                skip(&format!("planted fault '{}'", fault.name), &format!("{program} is not installed"));
                skipped += 1;
            }
            None => plays.push(fault),
        }
    }
    let is_played = |fault: &Fault, setting: Setting| match setting {
        Setting::WithoutBpf if only_without_bpf => fault.guilty.len() <= 1,
        Setting::WithoutBpf => without_bpf::NAMED_BEFORE.contains(&fault.name),
        _ if only_without_bpf => false,
        Setting::Beside => fault.is_beside,
        Setting::Silent => true,
    };
    let plays: Vec<(&Fault, Setting)> = plays
        .iter()
        .flat_map(|fault| Setting::ALL.map(|setting| (fault, setting)))
        .filter(|(fault, setting)| is_played(fault, *setting))
        .collect();
    let scores = play_all(&plays);
    println!(
        "\nplanted faults: right station, right name, count within uncertainty, nobody else accused, nothing unexplained"
    );
    for score in &scores {
        let mark = if score.verdict.is_ok() { "found " } else { "MISSED" };
        println!("  {mark}  {:<48} expected {:<34} found {}", score.fault, score.expected, score.found);
        if let Err(why) = &score.verdict {
            println!("          {why}");
        }
    }
    print!("{}", without_bpf::summary(scores.iter().filter_map(|score| score.told)));
    let passed = scores.iter().filter(|score| score.verdict.is_ok()).count();
    let failed = scores.len() - passed;
    println!("score {} %", 100 * passed / scores.len().max(1));
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

//! Who had the CPU that an end waited for, which functions ran, and that the page shows it: with a program that burns a known share.

use crate::alone;
use crate::support::steal::Steal;
use crate::support::{Kept, again, command, finish, installed, is_root, run, run_ok, skip, start};
use nix::time::ClockId;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The CPU of the receiver and of the burner.
const CPU: u32 = 0;
/// The burner burns as long as it sleeps.
const TURN: Duration = Duration::from_millis(4);
/// What a verdict says of the burner.
const TOLD: &str = "for a CPU: 'time::burns' (process ";
/// Says that this process is to burn, and for how many milliseconds.
const BURN: &str = "PATHLAB_TEST_BURN_MS";

/// A loop that calls nothing, whatever the optimiser makes of it.
#[inline(never)]
fn burn_cycles(turns: u64) -> u64 {
    let (mut sum, mut turn) = (1u64, 0);
    while turn < turns {
        sum = sum << 7 ^ sum >> 9 ^ turn;
        turn += 1;
    }
    sum
}

/// Not a test by itself: the program that burns. It says now and then how long it has had a CPU, and when that was.
#[test]
fn burns() {
    let Some(milliseconds) = std::env::var(BURN).ok().and_then(|text| text.parse().ok()) else { return };
    let clock = |id| Duration::from(nix::time::clock_gettime(id).unwrap());
    let own = || clock(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(milliseconds) {
        let turn = own();
        while own() - turn < TURN {
            std::hint::black_box(burn_cycles(std::hint::black_box(10_000)));
        }
        println!("burned {} {}", clock(ClockId::CLOCK_MONOTONIC).as_nanos(), own().as_nanos());
        std::thread::sleep(TURN);
    }
}

/// The share of its time that the burner had a CPU, between two times of the monotonic clock.
fn burned(said: &str, from: f64, to: f64) -> f64 {
    let line = |line: &str| {
        let (at, used) = line.strip_prefix("burned ")?.split_once(' ')?;
        Some((at.parse::<f64>().ok()?, used.parse::<f64>().ok()?))
    };
    let mut inside = said.lines().filter_map(line).filter(|(at, _)| (from..to).contains(at));
    let first = inside.next().unwrap_or_else(|| panic!("the burner did not burn meanwhile: {said}"));
    let last = inside.next_back().unwrap_or(first);
    (last.1 - first.1) / (last.0 - first.0)
}

/// Burns until it is dropped, and says so in that file.
fn burner(said: &Path) -> Kept {
    // Before all else that may run here: its share is then its own.
    let mut burner = command("nice");
    burner.args(["-n", "-15", "taskset", "-c", &CPU.to_string()]).arg(std::env::current_exe().unwrap());
    burner.args(["time::burns", "--exact", "--nocapture"]);
    burner.env(BURN, "60000").stdout(std::fs::File::create(said).unwrap());
    Kept::new(burner.spawn().unwrap())
}

fn plan(folder: &Path, test: &str) -> String {
    let plan = folder.join("time.plan").display().to_string();
    std::fs::write(&plan, format!("topology pair\nrepetitions 1\nduration 2s\ntest {test}\n")).unwrap();
    plan
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number, not {value}"))
}

/// Samples of the stacks that this holds for.
fn samples(profile: &Value, is_wanted: impl Fn(&Value, &[&str]) -> bool) -> f64 {
    let names = profile["functions"].as_array().unwrap();
    let one = |stack: &Value| {
        let functions = stack["functions"].as_array().unwrap();
        let functions: Vec<&str> =
            functions.iter().map(|at| names[at.as_u64().unwrap() as usize].as_str().unwrap()).collect();
        if is_wanted(stack, &functions) { number(&stack["count"]) } else { 0.0 }
    };
    profile["stacks"].as_array().unwrap().iter().map(one).sum()
}

/// What programs are loaded and which samples are taken by this host: nothing of ours may be left.
fn programs() -> usize {
    let listed = command("bpftool").args(["prog", "list"]).output();
    listed.map_or(0, |listed| String::from_utf8_lossy(&listed.stdout).matches("pl_sched").count())
}

/// A run beside the burner: the record, and the share of the traffic's time that the burner had its CPU.
fn beside_the_burner(plan: &str, records: &str) -> (Value, f64) {
    let said = Path::new(plan).with_file_name("burned");
    let burner = burner(&said);
    let printed = run_ok(&["run", plan, "--profile", "--dir", records, "--json"]);
    drop(burner);
    let record: Value = serde_json::from_str(&printed).unwrap();
    let [from, to] = ["begun_ns", "ended_ns"].map(|name| number(&record["tests"][0]["sender"][name]));
    let share = burned(&std::fs::read_to_string(said).unwrap(), from, to);
    (record, share)
}

fn receiver(time: &Value) -> &Value {
    time["waits"].as_array().unwrap().iter().find(|wait| wait["role"] == "receiver").unwrap()
}

/// Who took most of what the receiver waited for. What ran too long ago to be remembered has no name: a host that does much else has more
/// turns than are kept.
fn first_taker(time: &Value) -> Option<&Value> {
    receiver(time)["seen"]["takers"].as_array()?.iter().find(|taker| !taker["pid"].is_null())
}

/// The samples of a CPU that is looked at all the time.
fn of_one_cpu(time: &Value) -> f64 {
    number(&time["profile"]["hz"]) * number(&time["window_ns"]) / 1e9
}

/// Why a test does not say that the burner held it back: on a machine that others use they may have more of a CPU, or hold the sender back.
fn not_told(test: &Value) -> Option<String> {
    let limit = &test["limit"];
    let is_told = limit["what"] == "other_work" && limit["evidence"].as_str().unwrap().contains(TOLD);
    match first_taker(&test["time"]).map_or("nobody", |taker| taker["name"].as_str().unwrap()) {
        "time::burns" if is_told => None,
        "time::burns" => Some(limit["sentence"].as_str().unwrap().to_owned()),
        other => Some(format!("'{other}' had more of the CPU")),
    }
}

#[test]
fn who_burned_the_receivers_cpu_is_named_with_its_share() {
    let _turn = alone();
    if !is_root() {
        return skip("who burned the receiver's CPU", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("runs").display().to_string();
    let plan = plan(folder.path(), "tcp-stream sender-cpu 1 receiver-cpu 0");
    let before = programs();
    let steal = Steal::begin();
    let once = || {
        let played = beside_the_burner(&plan, &records);
        let why = not_told(&played.0["tests"][0]);
        (played, why)
    };
    let (record, share) = again::play("who burned the CPU", "a burner", 4, once);
    assert_eq!(programs(), before, "programs are left");
    let (test, time) = (&record["tests"][0], &record["tests"][0]["time"]);
    if receiver(time)["seen"].is_null() {
        return skip("who burned the receiver's CPU", &time["missing"].to_string());
    }
    let why = not_told(test);
    if !steal.holds("who burned the receiver's CPU", why.is_none(), why.unwrap_or_default()) {
        return;
    }
    the_wait_is_that_of_schedstat_and_the_burner_took_it(time, share);
    the_profile_has_its_share_and_its_function(time, share);

    // The verdict names it, with the wait.
    assert_eq!(test["limit"]["what"], "other_work", "{}", test["limit"]);
    let evidence = test["limit"]["evidence"].as_str().unwrap();
    for part in ["the receiver waited ", TOLD] {
        assert!(evidence.contains(part), "{part}: {evidence}");
    }
    let text = run_ok(&["show", "--dir", &records]);
    for part in ["Where the time went", "while receiver b waited: 'time::burns'", "time::burn_cycles"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Idle CPUs have fewer samples than time: said exactly where the record has too few.
    let of_profile = |name: &str| number(&time["profile"][name]);
    let (taken, due) = (of_profile("samples") + of_profile("lost"), of_one_cpu(time) * of_profile("cpus"));
    let is_passed_over = taken < 0.95 * due && time["profile"]["throttled"] == 0;
    assert_eq!(text.contains("of the CPUs' time has no sample"), is_passed_over, "{taken} of {due}\n{text}");
    in_browser(folder.path(), &records);
}

fn the_wait_is_that_of_schedstat_and_the_burner_took_it(time: &Value, share: f64) {
    let window = number(&time["window_ns"]);
    let receiver = receiver(time);
    let seen = &receiver["seen"];
    // Both accounts of the wait agree, but that schedstat leaves out from a wake-up to the switch that it causes (docs/limits.md).
    let (waited, told) = (number(&seen["waited_ns"]), number(&receiver["waited_ns"]));
    assert!(told < 1.1 * waited + 30e6 && told > 0.4 * waited, "programs {waited}, schedstat {told}");
    assert!(waited > 0.1 * window, "the burner made it wait: {receiver}");
    let takers = seen["takers"].as_array().unwrap();
    let taken: f64 = takers.iter().map(|taker| number(&taker["ns"])).sum();
    assert!((taken - waited).abs() < 1.0, "{taken} of {waited}");
    let first = first_taker(time).unwrap();
    assert_eq!((first["name"].as_str(), &first["cpu"]), (Some("time::burns"), &CPU.into()), "{first}");
    // What it took is what it had, and no more.
    let took = number(&first["ns"]);
    assert!(took > 0.02 * waited && took < share * window * 1.05 + 20e6, "{share} of {window}: {first}");
}

fn the_profile_has_its_share_and_its_function(time: &Value, share: f64) {
    let profile = &time["profile"];
    assert_eq!((&profile["lost"], &profile["missing"]), (&0.into(), &Value::Null));
    let cpus = number(&profile["cpus"]);
    let (one, expected) = (of_one_cpu(time), of_one_cpu(time) * cpus);
    let all = samples(profile, |_, _| true);
    assert_eq!(all, number(&profile["samples"]));
    // A busy machine looks a little longer than it says; an idle CPU is passed over at times.
    assert!(all > 0.4 * expected && all < 1.3 * expected, "{all} of {expected} samples");
    let of_burner = samples(profile, |stack, _| stack["thread"] == "time::burns") / one;
    assert!((of_burner - share).abs() < 0.06, "the profile has {of_burner}, the burner says {share}");
    let burning = samples(profile, |stack, functions| {
        stack["role"] == "other" && functions.iter().any(|name| name.contains("time::burn_cycles"))
    });
    let names = &profile["functions"];
    assert!(burning / one > 0.6 * share, "{burning} samples in its function: {names}");
    let received = samples(profile, |stack, functions| {
        stack["role"] == "softirq" && functions.iter().any(|name| name.starts_with("tcp_v4_rcv"))
    });
    assert!(received > 0.0, "no sample in the receive path");
    let scheduler = &time["scheduler"];
    let of_backlog = |one: &&Value| one["place"] == "backlog" && number(&one["frames"]) > 1000.0;
    let polls = scheduler["polls"].as_array().unwrap();
    assert!(polls.iter().any(|one| of_backlog(&one)), "{polls:?}");
    assert!(number(&scheduler["cost_ns"]) > 0.0);
}

/// The page in a browser: the graph is drawn, a search finds the burner's function, and a click makes it as wide as the figure.
fn in_browser(folder: &Path, records: &str) {
    let page = folder.join("page.html").display().to_string();
    run_ok(&["report", "latest", "--dir", records, "-o", &page]);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("figure class=\"flame\"") && html.contains("time::burn_cycles"));
    if !installed("chromium") {
        return skip("the flame graph in a browser", "chromium is not installed");
    }
    let probe = r#"<script>
const box = [...document.querySelectorAll("figure.flame svg svg")].find((one) => one.dataset.n.includes("burn_cycles"));
const find = document.querySelector(".flame-find");
find.value = "BURN_cycles";
find.dispatchEvent(new Event("input"));
document.documentElement.dataset.found = document.querySelector(".flame-found").textContent;
box.dispatchEvent(new MouseEvent("click"));
const width = (one) => one.getBoundingClientRect().width;
document.documentElement.dataset.wide = (width(box) / width(box.ownerSVGElement)).toFixed(2);
document.querySelector(".flame-all").click();
document.documentElement.dataset.again = width(box) < width(box.ownerSVGElement) ? "narrow" : "wide";
</script></body>"#;
    std::fs::write(&page, html.replace("</body>", probe)).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let mut browser = command("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]);
    browser.args(["--disable-background-networking", "--disable-component-update"]);
    browser.args(["--virtual-time-budget=4000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", profile.path().display())).arg(format!("file://{page}"));
    let output = finish(start(browser), Duration::from_secs(60));
    let dom = String::from_utf8_lossy(&output.stdout);
    let said = |name: &str| {
        let at =
            dom.find(&format!("data-{name}=\"")).unwrap_or_else(|| panic!("the page did not say '{name}'"));
        dom[at..].split('"').nth(1).unwrap().to_owned()
    };
    let found: f64 = said("found").split(' ').next().unwrap().parse().unwrap();
    assert!(found > 5.0 && found < 60.0, "the burner's function has {found} % of all samples");
    assert_eq!((said("wide").as_str(), said("again").as_str()), ("1.00", "narrow"));
}

/// Where the kernel hides its addresses, functions of the kernel have no names, and that is said; a program without symbols has the name of
/// its file.
#[test]
fn hidden_addresses_and_stripped_programs_are_said() {
    let _turn = alone();
    if !is_root() {
        return skip("hidden addresses", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), "udp-rr size 64 duration 500ms");
    let records = folder.path().join("runs").display().to_string();
    // What /proc/kallsyms shows with kernel.kptr_restrict, in a mount namespace of its own.
    let hidden = folder.path().join("kallsyms");
    std::fs::write(&hidden, "0000000000000000 T _text\n0000000000000000 t handle_softirqs\n").unwrap();
    let mut hog = command("sh");
    hog.args(["-c", "while :; do :; done"]);
    let _hog = Kept::new(hog.spawn().unwrap());
    let mut own = command("unshare");
    own.args(["--mount", "--propagation", "private", "sh", "-c"]);
    own.arg("mount --bind \"$1\" /proc/kallsyms && exec \"$0\" run \"$2\" --profile=499 --dir \"$3\" --json");
    own.arg(crate::support::PATHLAB).arg(&hidden).args([&plan, &records]).stdout(Stdio::piped());
    let output = finish(own.spawn().unwrap(), Duration::from_secs(60));
    let record: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let profile = &record["tests"][0]["time"]["profile"];
    assert_eq!(profile["hz"], 499);
    assert!(profile["missing"][0].as_str().unwrap().contains("kptr_restrict"), "{profile}");
    let functions = profile["functions"].as_array().unwrap();
    let of_kernel: Vec<&Value> =
        functions.iter().filter(|name| name.as_str().unwrap().ends_with("_[k]")).collect();
    assert_eq!(of_kernel, [&Value::from("[kernel]_[k]")], "{of_kernel:?}");
    let stripped = samples(profile, |stack, functions| {
        stack["thread"] == "sh" && functions.iter().any(|name| name.starts_with('['))
    });
    assert!(stripped > 0.0, "the shell has no symbols: {functions:?}");
}

/// Without a profile there are the kernel's accounts, and nothing else is started.
#[test]
fn without_a_profile_there_are_accounts_and_stalls() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), "udp-rr size 64 duration 300ms");
    let records = folder.path().join("runs").display().to_string();
    let record: Value = serde_json::from_str(&run_ok(&["run", &plan, "--dir", &records, "--json"])).unwrap();
    let time = &record["tests"][0]["time"];
    for role in ["sender", "receiver"] {
        let wait = time["waits"].as_array().unwrap().iter().find(|wait| wait["role"] == role).unwrap();
        assert!(number(&wait["ran_ns"]) > 1e6, "{wait}");
        assert!(wait["seen"].is_null(), "{wait}");
    }
    assert!(time["profile"].is_null() && time["scheduler"].is_null());
    if Path::new("/proc/pressure/cpu").exists() {
        assert_eq!(time["stalls"][0]["of"], "cpu");
    }
}

/// Who may not have samples is told so before anything is built.
#[test]
fn without_permission_a_profile_is_refused_and_a_run_is_not() {
    let _turn = alone();
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if !is_root() || paranoid.trim().parse::<i32>().unwrap_or(2) < 0 {
        return skip("a profile without permission", "needs root that can give it up");
    }
    let mut denied = command("setpriv");
    denied.args(["--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534", "--clear-groups"]);
    denied.arg(crate::support::PATHLAB).args(["run", "--profile", "--dir", "/nowhere"]);
    let output = finish(start(denied), Duration::from_secs(20));
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(127) || said.contains("setpriv:") {
        return skip("a profile without permission", "setpriv cannot run the program");
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("perf_event_paranoid"), "{said}");
    let wrong = run(&["run", "--profile=0"]);
    assert_eq!(wrong.status.code(), Some(2));
}

//! `pathlab vm`: labs over network cards of another kernel, and nothing of the machine is left.

use crate::support::again::play;
use crate::support::steal::Steal;
use crate::support::turn::{beside, beside_for_long, loud_for_long};
use crate::support::{
    Kept, PATHLAB, TestLab, command, finish, is_root, run, script_with_own_run, skip, start,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long one machine with its command may take, emulated and on a busy host.
const LIMIT: Duration = Duration::from_secs(400);

/// Where `tests/peers.sh` unpacks QEMU and a kernel; none, said visibly, where that was not possible.
fn unpacked(what: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers/vm");
    if folder.join("complete").exists() {
        return Some(folder);
    }
    skip(what, "QEMU and a kernel were not unpacked (tests/peers.sh)");
    None
}

/// `pathlab vm` in a folder of its own.
fn vm(unpacked: &Path, folder: &Path, arguments: &[&str]) -> Command {
    within(command(PATHLAB), unpacked, folder, arguments)
}

/// The same by a command that ends with the program's name.
fn within(mut tool: Command, unpacked: &Path, folder: &Path, arguments: &[&str]) -> Command {
    tool.arg("vm").args(arguments).env("PATHLAB_VM", unpacked).current_dir(folder);
    // The journals of this host are no place in the machine.
    tool.env("PATHLAB_STATE", "/proc/none");
    tool
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its one JSON document; it must have ended with one of these codes.
fn document(output: &Output, codes: &[i32]) -> Value {
    let said = words(&output.stderr);
    let code = output.status.code();
    assert!(code.is_some_and(|code| codes.contains(&code)), "{code:?}: {said}\n{}", words(&output.stdout));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{said}", words(&output.stdout)))
}

/// What carries a machine out here. A KVM that starts none is tried once and not before each of them, which costs some 6 s a time; that the
/// program finds it out by itself is seen where a machine serves.
fn accelerator(unpacked: &Path) -> &'static str {
    static FOUND: OnceLock<&str> = OnceLock::new();
    FOUND.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let words = ["--cpus", "1", "--cables", "0", "--accel", "kvm", "lab", "list"];
        let does = || finish(start(vm(unpacked, folder.path(), &words)), LIMIT).status.success();
        if Path::new("/dev/kvm").exists() && does() { "kvm" } else { "emulation" }
    })
}

/// What comes of a command in a machine with one CPU, and the folder that it shares: with this file in it, by name and text.
fn carried_out(what: &str, cables: &str, file: (&str, &str), words: &[&str]) -> Option<(TempDir, Output)> {
    with_files(what, cables, &[file], words)
}

/// The same with several files.
fn with_files(what: &str, cables: &str, files: &[(&str, &str)], words: &[&str]) -> Option<(TempDir, Output)> {
    let unpacked = unpacked(what)?;
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let accelerator = accelerator(&unpacked);
    let arguments = [&["--cpus", "1", "--cables", cables, "--accel", accelerator], words].concat();
    let output = finish(start(vm(&unpacked, folder.path(), &arguments)), LIMIT);
    Some((folder, output))
}

/// Two cables in a bond, and a VLAN over that.
const PLAN: &str = "topology bond-vlan\npath a b\ntest udp-stream size 200 rate 500pps count 400\ntest ping rate 50pps count 40\n";
/// Trials that may be played again: an emulated machine beside other tests may stand still in pairs enough to leave one open.
const KIND: &str = "trials with network cards";
/// Pairs of a trial there, the fewest that can have a verdict.
const PAIRS: &str = "6";
/// How long each interrupt of the cards may wait for more frames: 6 ms (the register ends at 8), or not at all. That a round trip feels it
/// holds in emulation, too, where one may take some milliseconds without.
const MODERATION: &str = "case moderation\nquestion Is a round trip shorter when no interrupt waits?\nsource this test\nneeds coalescing\n\
    topology pair\ntest tcp-rr size 1 duration 300ms\nset-a a/eth0:coalesce.rx-usecs=6000\nset-a b/eth0:coalesce.rx-usecs=6000\n\
    set-b a/eth0:coalesce.rx-usecs=0\nset-b b/eth0:coalesce.rx-usecs=0\nexpect better by 20%\n";
/// A slow path: interrupts of one end that wait, in a ring that is smaller than the driver's own. To set that takes the link down.
const SLOW: &str = "topology pair\nset a/eth0:coalesce.rx-usecs=3000\nset a/eth0:ring.rx=128\ntest tcp-rr size 1 duration 300ms\n";

/// All that was sent came, the ledger closes, and each figure is suspect where the machine is emulated.
fn closes(run: &Value) {
    let is_emulated =
        unpacked("whether a machine is emulated").is_none_or(|it| accelerator(&it) == "emulation");
    for test in run["tests"].as_array().unwrap() {
        let (sent, received) = (&test["sender"]["sent"], &test["receiver"]["received"]);
        assert!(sent.as_u64().is_some_and(|sent| sent >= 40), "{}: {sent}", test["name"]);
        // An echo is answered by the kernel, which nobody receives.
        assert!(test["spec"]["kind"] == "ping" || sent == received, "{}: {sent} {received}", test["name"]);
        assert_eq!(test["ledger"]["unexplained"].as_i64(), Some(0), "{}", test["ledger"]);
        // A figure of an emulated machine is never shown as one of a machine.
        let reasons = test["validity"]["reasons"].to_string();
        assert_eq!(reasons.contains("\"emulated\""), is_emulated, "{reasons}");
    }
}

#[test]
fn a_run_over_cards_of_another_kernel_closes_its_ledger_and_leaves_its_record_here() {
    let _turn = loud_for_long();
    let words_of_run = ["run", "own.plan", "--repetitions", "1", "--doctor", "--json"];
    let what = "a run over network cards of a virtual machine";
    let Some((folder, output)) = carried_out(what, "2", ("own.plan", PLAN), &words_of_run) else { return };
    let run = document(&output, &[0]);
    let own = words(&std::fs::read("/proc/sys/kernel/osrelease").unwrap());
    assert_ne!(run["host"]["kernel"].as_str().unwrap(), own.trim(), "it is this host's kernel");
    // The cards in the nodes have the driver that was asked for, by the kernel's own word.
    let interfaces = run["host"]["interfaces"].as_array().unwrap();
    let driven = interfaces.iter().filter(|one| one["driver"] == "igb" && one["firmware"] != "");
    let places: Vec<_> = driven.map(|one| format!("{}/{}", one["node"], one["name"])).collect();
    for place in ["a", "b"].iter().flat_map(|node| ["eth0", "eth1"].map(|name| format!("{node:?}/{name:?}")))
    {
        assert!(places.contains(&place), "{place}: {interfaces:#?}");
    }
    closes(&run);
    // Its driver set the card's clock to the system's when it was loaded.
    let facts = &run["tests"][0]["facts"]["nodes"]["a"]["interfaces"]["eth0"];
    let offset_ns = facts["phc.offset_ns"].as_f64();
    assert!(offset_ns.is_some_and(|ns| ns != 0.0 && ns.abs() < 1e9), "{facts:#}");
    // The device on its bus, its pause frames, and errors that its driver would report by devlink, which it does not have.
    assert!(facts["pci.ports"].as_f64().is_some_and(|ports| ports >= 1.0), "{facts:#}");
    assert!(facts["pause.frames_received"]["after"].is_u64(), "{facts:#}");
    assert_eq!(
        facts["devlink.health_errors"]["each"].as_object().map(|each| each.len()),
        Some(0),
        "{facts:#}"
    );
    // It was written here, as root's or whoever's record, and is shown like any other.
    let id = run["id"].as_str().unwrap();
    let shown = finish(
        start({
            let mut tool = command(PATHLAB);
            tool.args(["show", id, "--json"]).current_dir(folder.path());
            tool
        }),
        LIMIT,
    );
    assert_eq!(document(&shown, &[0])["id"], run["id"]);
}

/// Nodes of a topology that are machines are hosts with wires between them, each with the card, the names, routes and settings that the topology says: the two ends of
/// the plan, and a router whose part of the way is in the ledger; nothing of them is left but the record.
#[test]
fn machines_of_a_topology_are_the_hosts_of_its_plan() {
    let _turn = loud_for_long();
    let Some(unpacked) = unpacked("virtual machines of a topology") else { return };
    let folder = tempfile::tempdir().unwrap();
    let accelerator = accelerator(&unpacked);
    let machines = ["a nic virtio", "r nic e1000e", "b nic igb"]
        .map(|it| format!("vm {it} cpus 1 accel {accelerator}\n"));
    let bond = ["a", "r"].map(|it| {
        format!(
            "bond bond0 on {it} ports eth0 eth1 mode active-backup\nvlan bond0.5 on {it} over bond0 id 5 proto 802.1ad\n\
             vlan inner on {it} over bond0.5 id 7\n"
        )
    });
    let lab = [
        &machines.concat(),
        "link a:eth0 -- r:eth0\nlink a:eth1 -- r:eth1\nlink r:eth2 -- b:lan0\n",
        &bond.concat(),
        "interface a:inner address 10.0.1.2/24\ninterface r:inner address 10.0.1.1/24\n",
        "interface r:eth2 address 10.0.2.1/24 delay 2ms\n",
        "interface b:lan0 address 10.0.2.2/24\nsysctl on r net.ipv4.ip_forward=1\n",
        "route on a default via 10.0.1.1\nroute on b default via 10.0.2.1\n",
    ]
    .concat();
    let plan = "topology two.lab\nrepetitions 1\nset b/lan0:mtu=1400\ntest udp-stream size 200 rate 200pps count 200\n";
    for (name, text) in [("two.lab", lab.as_str()), ("two.plan", plan)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let mut tool = command(PATHLAB);
    tool.args(["run", "two.plan", "--json"]).env("PATHLAB_VM", &unpacked).current_dir(folder.path());
    tool.env("PATHLAB_STATE", "/proc/none").env("TMPDIR", folder.path());
    let run = document(&finish(start(tool), LIMIT), &[0]);
    closes(&run);
    let test = &run["tests"][0];
    let driver = |host: usize| {
        let interfaces = test["hosts"][host]["interfaces"].as_array().unwrap();
        let names: Vec<_> =
            interfaces.iter().map(|one| (one["name"].as_str(), one["driver"].as_str())).collect();
        format!("{names:?}")
    };
    assert!(driver(0).contains("(Some(\"eth0\"), Some(\"virtio_net\"))"), "{}", driver(0));
    assert!(driver(1).contains("(Some(\"lan0\"), Some(\"igb\"))"), "{}", driver(1));
    assert!(driver(2).contains("(Some(\"eth1\"), Some(\"e1000e\"))"), "{}", driver(2));
    let interfaces = test["flow"]["interfaces"].as_array().unwrap().iter();
    let of_r = interfaces.filter(|one| one["node"] == "r" && one["counts"] != Value::Array(vec![]));
    let counted: BTreeMap<String, u64> = of_r
        .map(|one| (one["interface"].as_str().unwrap().into(), one["counts"][0]["frames"].as_u64().unwrap()))
        .collect();
    let expected = ["bond0", "bond0.5", "inner", "eth0", "eth2"].map(|name| (name.to_owned(), 200));
    assert_eq!(counted, expected.into(), "{:#}", test["flow"]);
    let queues = test["before"]["nodes"]["r"]["qdiscs"].as_array().unwrap();
    assert!(queues.iter().any(|one| one["kind"] == "netem"), "{queues:#?}");
    let left =
        std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut left: Vec<String> = left.collect();
    left.sort();
    assert_eq!(left, ["runs", "two.lab", "two.plan"]);
}

/// What the kernel of this host may not have: containers under the hardware address of their host's card, and a long way behind it that
/// loses frames and doubles others, all of which has its name, as often as the queueing disciplines say.
#[test]
fn ipvlans_over_a_card_and_a_long_way_close_their_ledger() {
    let _turn = loud_for_long();
    let long =
        "interface h:eth0 delay 5ms lose 4% duplicate 3% reorder 2% rate 500kbit limit 9kB burst 9kB\n";
    let lab = [include_str!("../../labs/ipvlan.lab"), long].concat();
    let plan = PLAN.replace("bond-vlan", "own.lab") + "test udp-stream size 1000 rate 500pps count 400\n";
    let files = [("own.plan", plan.as_str()), ("own.lab", &lab)];
    let words_of_run = ["run", "own.plan", "--repetitions", "1", "--layers", "--json"];
    let Some((_folder, output)) = with_files("ipvlans of another kernel", "1", &files, &words_of_run) else {
        return;
    };
    let run = document(&output, &[0]);
    let tests = run["tests"].as_array().unwrap();
    let mut doubled = 0;
    for test in tests {
        assert_eq!(test["ledger"]["unexplained"].as_i64(), Some(0), "{}", test["ledger"]);
        assert_eq!(test["ledger"]["witness"]["status"], "agrees", "{}", test["ledger"]);
        let stations = test["ledger"]["stations"].as_array().unwrap();
        let named = |name: &str| -> u64 {
            let drops = stations.iter().flat_map(|station| station["drops"].as_array().unwrap());
            drops.filter(|drop| drop["name"] == name).map(|drop| drop["count"].as_u64().unwrap()).sum()
        };
        let counted = |kind: &str| -> u64 {
            let [before, after] = ["before", "after"].map(|when| {
                let qdiscs = test[when]["nodes"]["h"]["qdiscs"].as_array().unwrap();
                let one =
                    qdiscs.iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
                one["drops"].as_u64().unwrap()
            });
            after - before
        };
        let (lost, full) = (counted("netem") - counted("tbf"), counted("tbf"));
        assert_eq!((named("netem_drop"), named("qdisc_full")), (lost, full), "{}", test["ledger"]);
        assert!(lost > 0 || test["spec"]["kind"] == "ping", "{}: nothing was lost", test["name"]);
        // 4 Mbit/s into a half, however slow the machine.
        assert!(full > 50 || test["spec"]["size"] != 1000, "{full}: {}", test["name"]);
        doubled += named("duplicate");
        let usual = test["latency_ns"]["p50"].as_f64().unwrap();
        assert!(usual > 4e6, "{}: {}", test["name"], test["latency_ns"]);
        if test["spec"]["kind"] == "ping" {
            continue; // three messages with stamps, of which some are lost
        }
        // The delay is where it was planted; an emulated CPU may be late by more in any other part.
        let parts = test["layers"]["split"]["parts"].as_array();
        let parts = parts.unwrap_or_else(|| panic!("{}", test["layers"]));
        let is_of_queue = |part: &&Value| part["layer"] == "qdisc" && part["place"] == "h:eth0";
        let queue = parts.iter().find(is_of_queue).unwrap_or_else(|| panic!("{parts:?}"));
        assert!(queue["p50_ns"].as_u64() > Some(4_900_000), "{}: {queue}", test["name"]);
    }
    assert!(doubled > 0, "nothing came twice");
}

/// A case that says 'pair' is run between two machines, each with a kernel of its own; what it sets at their cards is felt.
#[test]
fn a_round_trip_feels_how_long_the_interrupts_of_a_real_driver_wait() {
    let _turn = loud_for_long();
    let Some(unpacked) = unpacked("the case of interrupt moderation") else { return };
    let folder = tempfile::tempdir().unwrap();
    let accelerator = accelerator(&unpacked);
    let machines = ["a", "b"].map(|it| format!("vm {it} nic igb cpus 1 accel {accelerator}\n"));
    let link =
        "link a:eth0 -- b:eth0\ninterface a:eth0 address 10.0.0.1/24\ninterface b:eth0 address 10.0.0.2/24\n";
    for (name, text) in [("two.lab", machines.concat() + link), ("moderation.case", MODERATION.into())] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let steal = Steal::begin();
    let played = play(KIND, "moderation", 2, || {
        let mut tool = command(PATHLAB);
        tool.args(["case", "run", "moderation.case", "--machines", "two.lab", "--pairs", PAIRS, "--json"]);
        tool.env("PATHLAB_VM", &unpacked).env("PATHLAB_STATE", "/proc/none");
        tool.env("TMPDIR", folder.path()).current_dir(folder.path());
        let run = document(&finish(start(tool), LIMIT), &[0, 1]);
        let cards = run["to"]["host"]["interfaces"].as_array().unwrap();
        let is_igb = |one: &Value| one["name"] == "eth0" && one["driver"] == "igb";
        assert!(cards.iter().any(is_igb), "{:#}", run["to"]);
        let played = run["cases"][0].clone();
        let verdict = &played["verdict"];
        let open = (verdict != "as_expected").then(|| format!("{verdict}"));
        (played, open)
    });
    steal.holds("interrupt moderation", played["verdict"] == "as_expected", format_args!("{played:#}"));
}

#[test]
fn interrupts_that_wait_are_named_first_and_the_cure_is_shown() {
    let _turn = loud_for_long();
    let prove = ["prove", "--doctor", "--most", "1", "--plan", "slow.plan", "--pairs", PAIRS, "--json"];
    let steal = Steal::begin();
    let what = "a proof with network cards";
    // What is named first may not differ.
    let proof = play(KIND, "IRQ-01", 2, || {
        let Some((_folder, output)) = carried_out(what, "1", ("slow.plan", SLOW), &prove) else {
            return (None, None);
        };
        let document = document(&output, &[0, 1]);
        let first = &document["suspects"][0];
        assert!(first["rule"] == "IRQ-01" && first["left_out"].is_null(), "{:#}", document["suspects"]);
        // This driver has no moderation that adapts, which is therefore not asked to be off.
        assert_eq!(first["change"], "a/eth0:coalesce.rx-usecs=0");
        let proof = document["proofs"][0].clone();
        let open = (proof["is_better"] != true).then(|| "it is not shown to help".to_owned());
        (Some(proof), open)
    });
    let Some(proof) = proof else { return };
    steal.holds(what, proof["is_better"] == true, format_args!("{proof:#}"));
}

#[test]
fn what_a_machine_cannot_do_is_one_sentence() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let refused = |arguments: &[&str], code: i32, wanted: &str| {
        let output = finish(start(vm(&nowhere, folder.path(), arguments)), LIMIT);
        let said = words(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    };
    // A command line that is wrong is refused before anything is started.
    refused(&["run", "--no-such-flag"], 2, "--no-such-flag");
    refused(&["--nic", "rtl8139", "run"], 2, "rtl8139");
    refused(&["--memory", "64Mi", "run"], 2, "the memory is from 256Mi");
    refused(&["--wire", "tap:t0=10.0.0.1", "run"], 2, "'10.0.0.1' is not an address with a prefix length");
    refused(&["vm", "run"], 2, "a virtual machine in a virtual machine");
    refused(&["--kernel", "no-such-file", "run"], 2, "there is no such file of a kernel");
    refused(&["--kernel", PATHLAB, "--modules", "no-such-folder", "run"], 2, "no such folder of modules");
    let output = run(&["first-process"]);
    assert_eq!(output.status.code(), Some(2), "{}", words(&output.stderr));
    let Some(unpacked) = unpacked("what a virtual machine cannot do") else { return };
    let output = finish(
        start({
            let mut tool = vm(&unpacked, Path::new("/proc"), &["lab", "list"]);
            tool.current_dir("/");
            tool
        }),
        LIMIT,
    );
    assert_eq!(output.status.code(), Some(2), "{}", words(&output.stderr));
}

/// A lab over pairs of interfaces of its own namespace, which stand for cards with a cable between them.
const CABLES: &str = "ip link set lo up\n\
    ip link add c0 type veth peer name c1\nip link add c2 mtu 1400 type veth peer name c3\nip link set c0 txqueuelen 77\n\
    look() { ip -o link | sed 's/^[0-9]*: //' | sort; ethtool -k c0 | grep tcp-segm; }\nlook >before\n\
    export PATHLAB_CABLES=c0:c1,c2:c3\n\
    \"$PATHLAB\" lab up two.lab --name cards 2>&1\n! ip link show c0 2>/dev/null\n\"$PATHLAB\" lab check cards\n\
    ! \"$PATHLAB\" lab up line3 2>line3\ngrep 'the topology has 4 links, and 1 of this machine.s 2 cables are free: c0 is not here' line3\n\
    \"$PATHLAB\" lab down cards\nlook >after\ndiff before after\n\
    \"$PATHLAB\" run two.plan --quick >/dev/null 2>&1 &\n\
    while ip link show c0 >/dev/null 2>&1; do sleep 0.02; done\nkill -9 $!\nwait $! || true\n\"$PATHLAB\" undo\nlook >after\ndiff before after\n\
    ip link set c0 up\n! PATHLAB_CABLES=c0:c1 \"$PATHLAB\" lab up two.lab 2>up\ngrep 'c0 is switched on' up\n\
    ! PATHLAB_CABLES=c0 \"$PATHLAB\" lab up two.lab 2>wrong\ngrep \"'c0' is not a pair of interfaces\" wrong\n";

#[test]
fn a_lab_takes_cards_and_gives_them_back_as_they_were() {
    let _turn = beside();
    if !is_root() {
        return skip("a lab over cards", "needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = "node a b\nlink a:eth0 -- b:eth0 mtu 1300 tso off txqueuelen 5\n\
        interface a:eth0 address 10.0.0.1/24 mac 02:00:00:00:00:01\ninterface b:eth0 address 10.0.0.2/24\n";
    std::fs::write(folder.path().join("two.lab"), lab).unwrap();
    std::fs::write(folder.path().join("two.plan"), "topology two.lab\npath a b\ntest ping rate 50pps\n")
        .unwrap();
    let mut tool = script_with_own_run(&format!("cd {}\n{CABLES}", folder.path().display()));
    let script = std::mem::replace(&mut tool, command("unshare"));
    tool.arg("--net")
        .arg(script.get_program())
        .args(script.get_args())
        .env("PATHLAB", PATHLAB)
        .env_remove("PATHLAB_STATE");
    let output = finish(start(tool), Duration::from_secs(120));
    assert!(output.status.success(), "{}{}", words(&output.stdout), words(&output.stderr));
}

/// What a test from this kernel to the one of the machine says, where a tap and a card with a driver are the two ends.
fn two_kernels_are_two_hosts(mut tool: Command) {
    tool.args([
        "--json",
        "test",
        "udp-stream",
        "10.9.0.2",
        "--size",
        "200",
        "--rate",
        "200pps",
        "--count",
        "200",
    ]);
    tool.arg("--doctor");
    let output = finish(start(tool), LIMIT);
    let test = document(&output, &[0]);
    assert_eq!(
        (&test["sender"]["sent"], &test["receiver"]["received"]),
        (&Value::from(200), &Value::from(200))
    );
    assert_eq!(test["ledger"]["unexplained"].as_i64(), Some(0), "{}", test["ledger"]);
    let own = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let found = |end: usize| {
        let rules = test["doctor"][end]["report"]["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["id"] == "DRV-02").unwrap()["evidence"].as_str().unwrap().to_owned()
    };
    let (here, there) = (found(0), found(1));
    // What was said of the machine on its command line.
    let said = test["doctor"][1]["facts"]["nodes"]["host"].to_string();
    assert!(said.contains("4096 77777 6291456"), "{said}");
    assert!(
        here.contains(", there igb") && here.contains(&format!("kernel {}, there", own.trim())),
        "{here}"
    );
    assert!(
        there.contains("driver igb, there") && there.ends_with(&format!("there {}", own.trim())),
        "{there}"
    );
}

/// The other end of a wire hears the card, which the kernel of the machine switched on: a length and a frame, as QEMU writes both.
/// Who asked whether somebody is there, and a machine that did not start, called before and said nothing.
fn hears_a_card_of_this_number(neighbour: &UnixListener, number: u8) {
    let frame = loop {
        let (mut wire, _) = neighbour.accept().unwrap();
        wire.set_read_timeout(Some(LIMIT)).unwrap();
        let mut length = [0; 4];
        if wire.read_exact(&mut length).is_ok() {
            let mut frame = vec![0; u32::from_be_bytes(length) as usize];
            wire.read_exact(&mut frame).unwrap();
            break frame;
        }
    };
    assert_eq!(frame.get(6..9), Some(&[0x52, 0x54, number][..]), "{frame:02x?}");
}

#[test]
fn a_machine_ends_with_the_process_that_started_it_and_an_interrupt_reaches_its_command() {
    let _turn = beside_for_long();
    let Some(unpacked) = unpacked("the end of a virtual machine") else { return };
    let folder = tempfile::tempdir().unwrap();
    // Its command never ends by itself.
    let begun = |tool: Command| {
        let mut child = Kept::new(start(tool));
        let (mut stdout, mut said, mut byte) = (child.stdout_pipe().unwrap(), vec![], [0]);
        while !words(&said).contains("serving tests at") {
            assert!(stdout.read(&mut byte).unwrap() == 1, "it ended without serving: {}", words(&said));
            said.push(byte[0]);
        }
        (child, stdout)
    };
    let machines = |of: u32| -> Vec<String> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_child = |pid: &String| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            stat.contains("(qemu-system") && after_name.split_whitespace().nth(1) == Some(&of.to_string())
        };
        pids.filter(is_child).collect()
    };
    let serve = ["--cpus", "1", "--cables", "0", "--wire", "unix:wire", "serve", "--observe"];
    let neighbour = UnixListener::bind(folder.path().join("wire")).unwrap();
    let (child, _stdout) = if is_root() {
        let lab = TestLab::up("pair", "wire");
        let inside = |program: &str| {
            let mut tool = command("ip");
            tool.args(["netns", "exec", &lab.netns("a"), program]);
            tool
        };
        let made = "ip tuntap add t0 mode tap && ip address add 10.9.0.1/24 dev t0 && ip link set t0 up";
        let mut tool = inside("sh");
        tool.args(["-c", made]);
        assert!(finish(start(tool), Duration::from_secs(30)).status.success());
        let settings =
            ["--sysctl", "net.ipv4.tcp_rmem=4096 77777 6291456", "--route", "10.77.0.0/16 via 10.9.0.1"];
        let wires = [&["--wire", "tap:t0=10.9.0.2/24"][..], &settings, &serve].concat();
        let begun = begun(within(inside(PATHLAB), &unpacked, folder.path(), &wires));
        two_kernels_are_two_hosts(inside(PATHLAB));
        begun
    } else {
        skip("a wire from a tap to a virtual machine", "needs root");
        begun(vm(&unpacked, folder.path(), &serve))
    };
    hears_a_card_of_this_number(&neighbour, if is_root() { 2 } else { 1 });
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let output = finish(child.take(), LIMIT);
    assert_eq!(output.status.code(), Some(130), "{}", words(&output.stderr));
    assert!(
        words(&output.stderr).contains("interrupted: no further tests are answered"),
        "{}",
        words(&output.stderr)
    );
    // Killed while the machine starts.
    let mut child = start(vm(&unpacked, folder.path(), &["--accel", "emulation", "lab", "list"]));
    let since = Instant::now();
    let machine = loop {
        if let Some(machine) = machines(child.id()).pop() {
            break machine;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "no machine was started");
        std::thread::sleep(Duration::from_millis(20));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let since = Instant::now();
    let path = format!("/proc/{machine}/stat");
    let is_alive = || std::fs::read_to_string(&path).is_ok_and(|stat| !stat.contains(") Z "));
    while is_alive() {
        assert!(since.elapsed() < Duration::from_secs(10), "QEMU outlives the process that started it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! Namespaces that come, go and come again while a command looks into them: a container that is started, stopped and started anew. What nobody else
//! holds any more must go at once, as its bridge shows; what was counted must not.

use crate::support::{
    Kept, TestLab, command, finish, installed, is_root, pathlab, run_ok, skip, start, until_it_says,
};
use crate::{alone, beside};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::Child;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Places that a container has: the two ends of its link and its loopback interface, in and out.
const OF_A_CONTAINER: usize = 6;
/// How long a namespace that was deleted may live on: a look of ours, and the kernel's own work.
const GONE: Duration = Duration::from_secs(10);

/// A namespace with an address, connected to node `b` of a lab; deleted with this at the latest.
struct Container<'a> {
    lab: &'a TestLab,
    name: String,
}

impl<'a> Container<'a> {
    /// As container runtimes do it: both ends are made outside, and one moves in.
    fn start(lab: &'a TestLab) -> Container<'a> {
        let name = format!("{}-c", lab.netns("b"));
        lab.must("b", "ip link add vc type veth peer name vt address 02:00:00:00:00:99");
        ip(&["netns", "add", &name]);
        ip(&["-n", &lab.netns("b"), "link", "set", "vt", "netns", &name]);
        let this = Container { lab, name };
        this.must("ip link set vt name eth0; ip address add 10.99.0.2/30 dev eth0; ip link set eth0 up");
        lab.must("b", "ip address add 10.99.0.1/30 dev vc && ip link set vc up");
        this
    }

    fn must(&self, line: &str) -> String {
        let mut tool = command("ip");
        tool.args(["netns", "exec", &self.name, "sh", "-c", line]);
        let output = finish(start(tool), LIMIT);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Deletes the namespace, which must take the other end of its link with it.
    fn stop(self) {
        let lab = self.lab;
        drop(self);
        let deadline = Instant::now() + GONE;
        while lab.inside("b", "ip link show vc").is_ok() {
            assert!(Instant::now() < deadline, "somebody keeps a namespace that was deleted");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Echo requests to it, all of them, whatever is answered.
    fn echoes(&self, count: u32) {
        let _ = self.lab.inside("b", &format!("ping -q -c {count} -i 0.02 -W 1 10.99.0.2"));
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.name]);
    }
}

fn ip(arguments: &[&str]) {
    let mut tool = command("ip");
    tool.args(arguments);
    let output = finish(start(tool), LIMIT);
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Interrupts a command; the last document that it printed.
fn last(child: Kept) -> Value {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = finish(child.take(), LIMIT);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.lines().last().expect("a document")).unwrap()
}

/// Places where a process counts, as the kernel tells (`bpf_link_show_fdinfo`); one whose interface is gone has the index 0.
fn places(pid: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let value = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let is_place = |text: &String| {
        value(text, "link_type:").as_deref() == Some("tcx") && value(text, "ifindex:").as_deref() != Some("0")
    };
    texts.filter(is_place).count()
}

/// Waits until a process counts at so many places; before that a frame would come too early to be counted.
fn until_counted(following: &Kept, wanted: usize) {
    let deadline = Instant::now() + LIMIT;
    while places(following.id()) < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} places are counted", places(following.id()));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn begun(arguments: &[&str], words: &str) -> Kept {
    let mut child: Child = start(pathlab(arguments));
    until_it_says(&mut child, words);
    Kept::new(child)
}

fn may(label: &str, tools: &[&str]) -> bool {
    let absent = tools.iter().find(|tool| !installed(tool));
    match absent {
        _ if !is_root() => skip(label, "needs root (network namespaces)"),
        Some(tool) => skip(label, &format!("{tool} is not installed")),
        None => return true,
    }
    false
}

/// The changes of one namespace: whether it came.
fn came(report: &Value, name: &str) -> Vec<bool> {
    let changes = report["changes"].as_array().map_or(&[][..], Vec::as_slice).iter();
    changes.filter(|one| one["node"] == name).map(|one| one["came"].as_bool().unwrap()).collect()
}

#[test]
fn a_flow_is_followed_into_a_container_that_is_started_stopped_and_started_anew() {
    let _turn = alone();
    if !may("following into a container", &["nft", "ping"]) {
        return;
    }
    let lab = TestLab::up("pair", "followns");
    let follow = ["follow", "icmp 10.99.0.1 > 10.99.0.2", "--all-namespaces", "--quiet", "--json"];
    let following = begun(&follow, "following");
    let counted = places(following.id());
    let container = Container::start(&lab);
    until_counted(&following, counted + OF_A_CONTAINER);
    container.echoes(20);
    container.stop();
    let container = Container::start(&lab);
    let name = container.name.clone();
    container.must(
        "nft 'table inet t { counter lost { }; chain i { type filter hook input priority 0; icmp type echo-request numgen inc mod 5 == 2 counter name lost drop; }; }'",
    );
    until_counted(&following, counted + OF_A_CONTAINER);
    container.echoes(20);
    let lost: Value = serde_json::from_str(&container.must("nft -j list counter inet t lost")).unwrap();
    let lost = lost["nftables"][1]["counter"]["packets"].as_u64().unwrap();
    let report = last(following);
    container.stop();
    assert_eq!(lost, 4);
    assert_eq!(came(&report, &name), [true, false, true], "{:#}", report["changes"]);
    let leg =
        |wanted: &str| report["legs"].as_array().unwrap().iter().find(|leg| leg["leg"] == wanted).unwrap();
    let (forward, back) = (leg("forward"), leg("back"));
    let hidden = report["witness"]["lost"].as_u64().unwrap();
    assert_eq!((&forward["sent"], &back["sent"]), (&40.into(), &36.into()), "{report:#}");
    assert_eq!(
        (&forward["to"]["node"], &forward["unexplained"]),
        (&name.as_str().into(), &0.into()),
        "{forward:#}"
    );
    let drops =
        forward["stations"].as_array().unwrap().iter().flat_map(|one| one["drops"].as_array().unwrap());
    let named: u64 = drops
        .filter(|drop| drop["name"].as_str().unwrap().starts_with("filter"))
        .map(|drop| drop["count"].as_u64().unwrap())
        .sum();
    assert!((lost - hidden.min(lost)..=lost).contains(&named), "{forward:#}");
    assert_eq!(back["received"], 36, "{back:#}");
}

#[test]
fn namespaces_that_are_named_are_let_go_and_taken_in_again() {
    let _turn = beside();
    if !may("namespaces that come again", &["ping"]) {
        return;
    }
    let lab = TestLab::up("pair", "comens");
    let container = Container::start(&lab);
    let name = container.name.clone();
    let (flow, host) = ("icmp 10.99.0.1 > 10.99.0.2", lab.netns("b"));
    let following = begun(&["follow", flow, "--in", &host, &name, "--quiet", "--json"], "following");
    let sampling = begun(&["tcp", "--in", &name, "--json", "state", "listening"], "sampling");
    let watching = begun(&["watch", "--in", &name, "--plain", "--json", "--interval", "200ms"], "watching");
    let counted = places(following.id());
    container.echoes(10);
    container.stop();
    let container = Container::start(&lab);
    let server = installed("python3").then(|| {
        let line = "exec python3 -u -m http.server 8099 --bind 10.99.0.2 1>&2";
        let mut server = command("ip");
        server.args(["netns", "exec", &name, "sh", "-c", line]);
        let mut server = start(server);
        until_it_says(&mut server, "Serving HTTP");
        Kept::new(server)
    });
    until_counted(&following, counted);
    // `tcp` and `watch` look four times a second.
    std::thread::sleep(Duration::from_secs(2));
    container.echoes(10);
    let (followed, sampled, watched) = (last(following), last(sampling), last(watching));
    assert_eq!(came(&followed, &name), [false, true], "{:#}", followed["changes"]);
    let forward = &followed["legs"][0];
    assert_eq!((&forward["sent"], &forward["received"]), (&20.into(), &20.into()), "{forward:#}");
    assert_eq!(sampled["nodes"], serde_json::json!([name]));
    if installed("python3") {
        assert_eq!(sampled["connections"].as_array().map(Vec::len), Some(1), "{sampled:#}");
    }
    assert!(!watched["missing"].to_string().contains("is gone"), "{}", watched["missing"]);
    assert!(watched["interfaces"].to_string().contains(&name), "{:#}", watched["interfaces"]);
    drop(server);
    container.stop();
    let told = run_ok(&["watch", "--in", &host, "--once", "--json"]);
    assert!(!told.contains("is gone"), "{told}");
}

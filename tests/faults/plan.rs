//! A planted fault as a value: what is planted where, who must be accused, and where the truth is read.

use super::support::TestLab;
use std::path::Path;
use std::time::{Duration, Instant};

/// A fault, who must be found, and how the truth is known.
pub struct Fault {
    pub name: &'static str,
    /// A built-in topology, or the text of one.
    pub topology: &'static str,
    /// Tests of the plan, as its lines.
    pub tests: &'static str,
    /// Programs without which it cannot be planted.
    pub needs: Vec<&'static str>,
    /// Commands, each inside a node, before the run.
    pub plant: Vec<(&'static str, &'static str)>,
    /// What happens while traffic flows.
    pub during: Option<During>,
    /// All who must be accused; nobody else may be.
    pub guilty: Vec<Guilty>,
    /// Node and beginning of a name that may be accused besides, of what the fault makes by the way.
    pub follows: Option<(&'static str, &'static str)>,
    /// It is planted once more beside strangers on the same path.
    pub is_beside: bool,
    /// Node and station where the counters of interfaces and hosts tell it, when they draw the line elsewhere than the flow's.
    pub without_bpf: Option<(&'static str, &'static str)>,
    /// Interfaces where its frames must have been counted, as `node:interface`.
    pub sees: &'static [&'static str],
}

/// What happens while a run is measured.
pub enum During {
    /// This command, inside this node, once some of the test's frames have come to `b`.
    Inside { node: &'static str, line: &'static str },
    /// Something with the lab, the process id of the run, and a folder for what it leaves; an error says which moment was missed.
    By(fn(&TestLab, u32, &Path) -> Result<(), String>),
}

/// Node, station and name that must be accused, and the true number of lost datagrams or frames.
pub struct Guilty {
    pub node: &'static str,
    /// `*` for any.
    pub station: &'static str,
    /// Or several, with `|` between them: what dies of a link that is down also dies in the queue before it.
    pub name: &'static str,
    pub truth: Truth,
}

/// Where the truth is read afterwards. Never in the record under test.
#[derive(Clone, Copy)]
pub enum Truth {
    /// What the dropping rules of nftables in a node counted.
    Nft(&'static str),
    /// Drops as `tc -s` counts them at the root qdisc of an interface of a node; strangers' are among them.
    Tc(&'static str, &'static str),
    /// A counter of a node's kernel: protocol, name.
    Kernel(&'static str, &'static str, &'static str),
    /// What left `a` by its counting rule and did not reach the one of `b`.
    Between,
    /// The same less what the dropping rules of this node counted.
    BetweenLess(&'static str),
    /// By a function of the lab and the folder of what happened meanwhile.
    By(fn(&TestLab, &Path) -> Option<u64>),
}

impl Truth {
    /// The number; none when it cannot be read.
    pub fn read(self, lab: &TestLab, folder: &Path) -> Option<u64> {
        let between = || counted(lab, "a")?.checked_sub(counted(lab, "b")?);
        let dropped = |node: &str| Some(packets(&lab.inside(node, "nft list ruleset").ok()?, true));
        match self {
            Truth::Nft(node) => dropped(node),
            Truth::Tc(node, interface) => {
                let text = lab.inside(node, &format!("tc -s qdisc show dev {interface}")).ok()?;
                text.split("dropped ").nth(1)?.split(',').next()?.parse().ok()
            }
            Truth::Kernel(node, protocol, name) => kernel(lab, node, protocol, name),
            Truth::Between => between(),
            Truth::BetweenLess(node) => between()?.checked_sub(dropped(node)?),
            Truth::By(read) => read(lab, folder),
        }
    }
}

/// What the counting rules of a node counted.
pub fn counted(lab: &TestLab, node: &str) -> Option<u64> {
    Some(packets(&lab.inside(node, "nft list ruleset").ok()?, false))
}

/// Datagrams of 1,200 bytes that the counting rule of a node counted, whether each by itself or as super-frames.
pub fn segments(lab: &TestLab, node: &str) -> Option<u64> {
    let text = lab.inside(node, "nft list ruleset").ok()?;
    let mut words = text.split("counter packets ").nth(1)?.split_whitespace();
    let packets: u64 = words.next()?.parse().ok()?;
    let bytes: u64 = words.nth(1)?.parse().ok()?;
    Some((bytes - 28 * packets) / 1200)
}

/// The sum of the counters of the rules that drop, or of those that only count.
fn packets(ruleset: &str, of_drops: bool) -> u64 {
    let rules = ruleset.lines().filter(|line| line.ends_with("drop") == of_drops);
    rules
        .filter_map(|line| line.split("counter packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// 64 bytes of payload; a rule for `udp length 72` counts these datagrams and not the smaller probes before the test.
/// The receiver has room for all of them, so that one that gets no CPU for a while does not add a loss of its own.
pub const SMALL: &str = "test udp-stream size 64 rate 20kpps duration 600ms receive-buffer 16777216";
/// The same for long enough that something can happen in the middle on a busy machine.
const SMALL_FOR_LONG: &str = "test udp-stream size 64 rate 20kpps duration 1500ms receive-buffer 16777216";
pub const SMALL_V6: &str =
    "test udp-stream size 64 family 6 rate 20kpps duration 600ms receive-buffer 16777216";
pub const LARGE: &str = "test udp-stream size 1472 rate 10kpps duration 600ms receive-buffer 16777216";
/// Requests and their answers, told apart from the probes by their length.
pub const REQUESTS: &str = "test udp-rr size 64 count 3000 rate 5kpps receive-buffer 16777216";
pub const FRAMES: &str = "test frames size 1514 rate 10kpps duration 600ms";

/// A rule of nftables that drops one datagram of the test in three, at a hook of a family of tables.
macro_rules! drop_one_in_three {
    ($family:literal, $hook:literal) => {
        drop_one_in_three!($family, $hook, "udp length 72")
    };
    ($family:literal, $hook:literal, $which:literal) => {
        concat!(
            "nft 'table ",
            $family,
            " t { chain c { type filter hook ",
            $hook,
            " priority 0; ",
            $which,
            " numgen inc mod 3 0 counter drop; }; }'"
        )
    };
}
pub(crate) use drop_one_in_three;

/// A rule that counts the datagrams of a test, and not the smaller probes before it.
macro_rules! counter {
    ($family:literal, $hook:literal, $length:literal) => {
        concat!(
            "nft 'table ",
            $family,
            " count { chain c { type filter hook ",
            $hook,
            " priority 0; udp length ",
            $length,
            " counter; }; }'"
        )
    };
}

impl Fault {
    /// Nothing is planted yet; the test is [`SMALL`].
    pub fn new(name: &'static str, topology: &'static str) -> Fault {
        Fault {
            name,
            topology,
            tests: SMALL,
            needs: vec![],
            plant: vec![],
            during: None,
            guilty: vec![],
            follows: None,
            is_beside: false,
            without_bpf: None,
            sees: &[],
        }
    }

    pub fn tests(self, tests: &'static str) -> Fault {
        Fault { tests, ..self }
    }

    /// What it is planted by, besides nft, ip, tc, bridge and sysctl.
    pub fn needs(mut self, program: &'static str) -> Fault {
        self.needs.push(program);
        self
    }

    pub fn plant(mut self, node: &'static str, line: &'static str) -> Fault {
        self.plant.push((node, line));
        self
    }

    /// Counts the datagrams of [`SMALL`] as they leave the sender's IP and as they are handed to the receiver's UDP: for faults
    /// between the two that no tool counts.
    pub fn counted(self) -> Fault {
        self.plant("a", counter!("ip", "postrouting", "72")).plant("b", counter!("ip", "input", "72"))
    }

    /// The same for [`LARGE`].
    pub fn large(self) -> Fault {
        let counting = self.tests(LARGE).plant("a", counter!("ip", "postrouting", "1480"));
        counting.plant("b", counter!("ip", "input", "1480"))
    }

    /// The same for [`SMALL_V6`].
    pub fn v6(self) -> Fault {
        let counting = self.tests(SMALL_V6).plant("a", counter!("ip6", "postrouting", "72"));
        counting.plant("b", counter!("ip6", "input", "72"))
    }

    /// A command inside a node, while traffic flows into `b`.
    pub fn in_mid_run(self, node: &'static str, line: &'static str) -> Fault {
        Fault { during: Some(During::Inside { node, line }), ..self }
    }

    pub fn during(self, by: fn(&TestLab, u32, &Path) -> Result<(), String>) -> Fault {
        let tests = if self.tests == SMALL { SMALL_FOR_LONG } else { self.tests };
        Fault { during: Some(During::By(by)), tests, ..self }
    }

    pub fn guilty(
        mut self,
        node: &'static str,
        station: &'static str,
        name: &'static str,
        truth: Truth,
    ) -> Fault {
        self.guilty.push(Guilty { node, station, name, truth });
        self
    }

    /// What the fault makes by the way, as often as it happens.
    pub fn may_follow(self, node: &'static str, name: &'static str) -> Fault {
        Fault { follows: Some((node, name)), ..self }
    }

    /// It takes all the CPU that it gets, which other labs on the same CPUs would feel: their frames wait in the same backlogs. Or others would take it
    /// from a program that has no room for what comes meanwhile: Open vSwitch then drops frames that nobody planted.
    pub fn is_alone(&self) -> bool {
        let is_paced = ["rate ", "ping", "udp-rr"].iter().any(|word| self.tests.contains(word));
        !is_paced || ["iperf3", "ovs-vswitchd"].iter().any(|tool| self.needs.contains(tool))
    }

    pub fn sees(self, sees: &'static [&'static str]) -> Fault {
        Fault { sees, ..self }
    }

    /// Without BPF the same place is called this.
    pub fn without_bpf(self, node: &'static str, station: &'static str) -> Fault {
        Fault { without_bpf: Some((node, station)), ..self }
    }

    pub fn beside_strangers(self) -> Fault {
        Fault { is_beside: true, ..self }
    }
}

/// A counter of a node's kernel, of `/proc/net/netstat` or `/proc/net/snmp`: a line of names, then one of values.
pub fn kernel(lab: &TestLab, node: &str, protocol: &str, name: &str) -> Option<u64> {
    let text = lab.inside(node, "cat /proc/net/netstat /proc/net/snmp").ok()?;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    lines.chunks(2).filter(|pair| pair[0][0] == protocol).find_map(|pair| {
        let column = pair[0].iter().position(|&column| column == name)?;
        pair[1].get(column)?.parse().ok()
    })
}

/// Waits until something is so; an error says what never was.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("within 10 s, {what}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Waits until so many datagrams of the test were handed to UDP at `b` ([`Fault::counted`]).
pub fn until_counted(lab: &TestLab, datagrams: u64) -> Result<(), String> {
    until("b counted no frame of the test", || counted(lab, "b").is_some_and(|many| many > datagrams))
}

/// Waits until an interface has received so many frames, i.e. until traffic flows.
pub fn until_received(lab: &TestLab, node: &str, interface: &str, frames: u64) -> Result<(), String> {
    let line = format!("cat /sys/class/net/{interface}/statistics/rx_packets");
    let received = || lab.must(node, &line).trim().parse::<u64>().expect("a counter");
    until(&format!("{node} {interface} did not receive {frames} frames"), || received() >= frames)
}

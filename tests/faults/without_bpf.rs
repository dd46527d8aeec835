//! The silent half where the kernel refuses BPF: neither the flow nor the drops of the kernel are counted, and the counters of
//! interfaces and hosts decide alone.
//!
//! **How.** A filter of seccomp answers `bpf(2)` with `EPERM`, as a container's usual profile does; the program under test has
//! no switch for it. Whatever it says must then be said without: the record has to tell that nothing was counted.
//!
//! **What must hold.** A fault that counters alone can name is named, with its place and its count. Of the others the place may be
//! told, or nothing. Nobody innocent is accused, and the verdict blames no place where nothing was planted.

use super::plan::{Fault, Guilty, Truth};
use super::support::{command, pathlab};
use super::{Accused, NOT_PLANTED, agrees, is_meant};
use serde_json::Value;
use std::process::Command;

/// Answers `bpf(2)` with `EPERM`, then becomes the program of its arguments. The instructions are those of classic BPF: load the
/// number of the system call (`seccomp_data`, offset 0), compare, refuse (`SECCOMP_RET_ERRNO`) or allow.
const REFUSE_BPF: &str = "import ctypes,os,struct,sys
number={'x86_64':321,'aarch64':280,'riscv64':280}[os.uname().machine]
filter=b''.join(struct.pack('=HBBI',*one) for one in
  ((0x20,0,0,0),(0x15,0,1,number),(0x06,0,0,0x00050001),(0x06,0,0,0x7fff0000)))
code=ctypes.create_string_buffer(filter)
program=ctypes.create_string_buffer(struct.pack('@HP',len(filter)//8,ctypes.addressof(code)))
libc=ctypes.CDLL(None,use_errno=True)
if libc.prctl(38,1,0,0,0) or libc.prctl(22,2,program,0,0): sys.exit('seccomp: '+os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1],sys.argv[1:])
";

/// `pathlab` with arguments, in a process that may not call `bpf(2)`.
pub fn refused(arguments: &[&str]) -> Command {
    let inside = pathlab(arguments);
    let mut tool = command("python3");
    tool.args(["-c", REFUSE_BPF]).arg(inside.get_program()).args(inside.get_args());
    tool
}

/// The argument that plays all of the silent half, and nothing else, without BPF.
pub const WORD: &str = "without-bpf";

/// The faults that the suite had before the flow was counted, which then had 21 of 21. They are played without BPF every
/// time, and must be named.
pub const NAMED_BEFORE: [&str; 21] = [
    "nothing (control)",
    "tbf with a small limit",
    "tbf at the sender",
    "small receive buffer",
    "frames, tbf at the sender",
    "frames, tbf on the way",
    "frames, small port buffer",
    "frames, small ring",
    "frames by ring, tbf on the way",
    "drop in forward",
    "drop in input",
    "MTU hole behind a bridge",
    "MTU hole at a bridge port",
    "txqueuelen 2 under a shaper",
    "rp_filter at the receiver",
    "rp_filter at a router",
    "stopped reader",
    "missing neighbour entry",
    "missing neighbour at a router",
    "the receiver's link down",
    "full accept queue",
];

/// How well a fault was told without BPF, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// Place, name and number.
    Named,
    /// Its place, and nobody else's.
    Placed,
    /// Nothing, and nobody was accused.
    Unsaid,
    /// Somebody innocent was accused.
    Wrong,
}

impl Told {
    pub const ALL: [(Told, &str); 4] = [
        (Told::Named, "named to the frame"),
        (Told::Placed, "its place told, not its name or number"),
        (Told::Unsaid, "nothing said, nobody accused"),
        (Told::Wrong, "somebody innocent accused"),
    ];
}

/// One line for each way of telling, with how many were told so.
pub fn summary(told: impl Iterator<Item = Told>) -> String {
    let told: Vec<Told> = told.collect();
    let of = |(is, words): (Told, &str)| {
        let many = told.iter().filter(|&&told| told == is).count();
        format!("  {many:>3} of {} without BPF: {words}\n", told.len())
    };
    if told.is_empty() { String::new() } else { Told::ALL.map(of).concat() }
}

/// Whether that is good enough for this fault, and how well it was told.
pub fn verdict(
    fault: &Fault,
    test: &Value,
    found: &[Accused],
    truth: &dyn Fn(Truth) -> Option<u64>,
) -> (Result<(), String>, Option<Told>) {
    match judge(fault, test, found, truth) {
        Err(void) => (Err(void), None),
        Ok((Told::Named, _)) => (Ok(()), Some(Told::Named)),
        Ok((told @ (Told::Placed | Told::Unsaid), why)) => {
            println!("  without BPF: {}: {told:?}: {why}", fault.name);
            (if NAMED_BEFORE.contains(&fault.name) { Err(why) } else { Ok(()) }, Some(told))
        }
        Ok((Told::Wrong, why)) => (Err(why), Some(Told::Wrong)),
    }
}

/// Compares a result with what was planted; an error when the experiment itself is void.
fn judge(
    fault: &Fault,
    test: &Value,
    found: &[Accused],
    truth: &dyn Fn(Truth) -> Option<u64>,
) -> Result<(Told, String), String> {
    let witness = test["ledger"]["witness"]["status"].as_str();
    if !test["ledger"].is_null() && (witness != Some("not_permitted") || !test["flow"]["absent"].is_string())
    {
        return Err(format!("BPF was not refused: witness {witness:?}, flow {}", test["flow"]["absent"]));
    }
    let mut notes = test["ledger"]["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if !test["ledger"].is_null() && !notes.any(|note| note.starts_with("the flow itself was not counted")) {
        return Err("no note says that the flow was not counted".into());
    }
    let mut why = vec![];
    for guilty in &fault.guilty {
        let lost = truth(guilty.truth).ok_or("the truth could not be read")?;
        match agrees(guilty, found, lost) {
            Err(missed) if missed == NOT_PLANTED => return Err(missed),
            Err(missed) => why.push(missed),
            Ok(()) => {}
        }
    }
    let is_of = |accused: &Accused, guilty: &Guilty| {
        (guilty.node == "*" || guilty.node == accused.node)
            && (guilty.station == "*" || guilty.station == accused.station)
    };
    let follows = |accused: &Accused| {
        fault.follows.is_some_and(|(node, name)| accused.node == node && accused.name.starts_with(name))
    };
    let is_moved = |accused: &Accused| fault.without_bpf == Some((&accused.node, &accused.station));
    let is_innocent = |accused: &&Accused| {
        let is_guilty = |guilty: &Guilty| is_meant(guilty, accused) || is_of(accused, guilty);
        !follows(accused) && !is_moved(accused) && !fault.guilty.iter().any(is_guilty)
    };
    if let Some(one) = found.iter().find(is_innocent) {
        return Ok((Told::Wrong, format!("{} {} is innocent: {}", one.node, one.station, one.name)));
    }
    if let Some(place) = blamed(test).filter(|place| !is_planted(fault, place)) {
        return Ok((Told::Wrong, format!("the verdict rests on {place}")));
    }
    let unexplained = test["ledger"]["unexplained"].as_i64().unwrap_or(0).unsigned_abs();
    if unexplained > test["ledger"]["uncertainty"].as_u64().unwrap_or(0) {
        why.push(format!("unexplained {unexplained}"));
    }
    if why.is_empty() {
        return Ok((Told::Named, String::new()));
    }
    let is_placed = fault
        .guilty
        .iter()
        .all(|guilty| found.iter().any(|accused| is_of(accused, guilty) || is_moved(accused)));
    Ok((if is_placed && !fault.guilty.is_empty() { Told::Placed } else { Told::Unsaid }, why.join("; ")))
}

/// The place that the verdict rests on, when it says that frames were lost there.
fn blamed(test: &Value) -> Option<&str> {
    let place = test["limit"]["where"].as_str()?;
    test["limit"]["sentence"].as_str().filter(|said| said.starts_with("Loss at "))?;
    Some(place.trim_start_matches("node "))
}

/// Whether a place of a verdict, `r, qdisc eth1`, is where a fault was planted.
fn is_planted(fault: &Fault, place: &str) -> bool {
    let (node, station) = place.split_once(", ").unwrap_or((place, "*"));
    let is = |(here, name): (&str, &str)| {
        (here == "*" || here == node) && (name == "*" || station == "*" || name == station)
    };
    fault.guilty.iter().map(|guilty| (guilty.node, guilty.station)).chain(fault.without_bpf).any(is)
}

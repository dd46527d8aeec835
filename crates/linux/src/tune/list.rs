//! The knobs that there are: of an interface, or of a namespace and the machine.

use std::fs;

use record::knob::KnobReading;
use record::{Problem, Result};

use super::row::{Access, PART, Row, Where};
use super::rows::{KNOBS, is_each, row};
use super::setting::{FLOWS, Setting};
use super::{Knob, Place};
use crate::netlink::{Netlink, Refusal};
use crate::sys::process;

/// The knobs of that name of an interface of the calling thread's namespace, or of that namespace or the machine: several where a `*` stands
/// for each queue or CPU.
///
/// # Errors
/// Input: no such knob or interface. Host: it is not there, or may not be read.
pub fn read(name: &str, interface: Option<&str>) -> Result<Vec<KnobReading>> {
    let one = |mut setting: Setting| {
        let value = setting.read().map_err(|refusal| told(&setting.name(), interface, &refusal))?;
        Ok(reading(&setting, interface, value))
    };
    meant(name, interface)?.into_iter().map(one).collect()
}

/// All knobs of an interface of the calling thread's namespace, or all of that namespace and the machine, which can be read.
///
/// # Errors
/// Input: no such interface.
pub fn list(interface: Option<&str>) -> Result<Vec<KnobReading>> {
    let place = interface.map(place).transpose()?;
    let rows = KNOBS.iter().filter(|row| row.place.is_of_interface() == interface.is_some());
    let settings = rows.flat_map(|row| parts(row, place.as_ref()).into_iter().map(move |part| (row, part)));
    let settings = settings.map(|(row, part)| Setting::new(row, &part, place.as_ref()));
    Ok(settings
        .filter_map(|mut setting| Some(reading(&setting.clone(), interface, setting.read().ok()?)))
        .collect())
}

fn reading(setting: &Setting, interface: Option<&str>, value: String) -> KnobReading {
    let (most, fixed) = (setting.most(), setting.is_fixed());
    KnobReading { name: setting.name(), interface: interface.map(str::to_owned), value, most, fixed }
}

/// The names of the interfaces of the calling thread's namespace.
///
/// # Errors
/// Host: they cannot be listed.
pub fn interfaces() -> Result<Vec<String>> {
    let failed = |refusal: Refusal| Problem::host(format!("the interfaces cannot be listed: {refusal}"));
    Ok(Netlink::open().links().map_err(failed)?.into_iter().map(|link| link.name).collect())
}

fn unknown(name: &str) -> Problem {
    Problem::input(format!("there is no knob '{name}'"))
        .help("'pathlab tune show' lists those of an interface")
}

/// The row of the knob of that name with what stands for its `*`, which is of that interface if it is of one. Nothing is looked at.
///
/// # Errors
/// Input: no such knob, or no interface.
pub(super) fn named<'a>(
    name: &str,
    interface: Option<&'a str>,
) -> Result<(&'static Row, String, Option<&'a str>)> {
    let (row, part) = row(name).ok_or_else(|| unknown(name))?;
    if !row.place.is_of_interface() {
        return Ok((row, part, None));
    }
    let missing = || {
        Problem::input(format!("{name} is a knob of an interface, and none was named"))
            .help(format!("'IF:{name}' names one"))
    };
    Ok((row, part, Some(interface.ok_or_else(missing)?)))
}

/// The knob of that name.
pub(super) fn find(name: &str, interface: Option<&str>) -> Result<Setting> {
    let (row, part, interface) = named(name, interface)?;
    let place = interface.map(place).transpose()?;
    let part = if row.place == Where::Interrupt { interrupt(&part)? } else { part };
    let is_plain =
        !part.contains("..") && (!part.contains('/') || matches!(row.place, Where::Route | Where::Namespace));
    if is_plain { Ok(Setting::new(row, &part, place.as_ref())) } else { Err(unknown(name)) }
}

/// The knobs that a name means: with a `*` for the queue or the CPU each that there is, else the one of that name.
pub(super) fn meant(name: &str, interface: Option<&str>) -> Result<Vec<Setting>> {
    let setting = find(name, interface)?;
    if !is_each(setting.row, &setting.part) {
        return Ok(vec![setting]);
    }
    let place = setting.interface.as_ref();
    let all = parts(setting.row, place).into_iter().map(|part| Setting::new(setting.row, &part, place));
    let there: Vec<Setting> = all.filter(|one| one.clone().read().is_ok()).collect();
    if !there.is_empty() {
        return Ok(there);
    }
    let of = interface.unwrap_or("this machine");
    Err(Problem::host(format!("{of} has no {name}")).help("'pathlab tune show' lists what there is"))
}

/// An interface of the calling thread's namespace.
fn place(name: &str) -> Result<Place> {
    let failed = |what: String| {
        Problem::host(format!("the interface cannot be looked at: {what}")).at(name.to_owned())
    };
    let links = Netlink::open().links().map_err(|refusal| failed(refusal.to_string()))?;
    let link = links.iter().find(|link| link.name == name);
    let link = link.ok_or_else(|| Problem::input(format!("there is no interface '{name}' here")))?;
    Place::here(link.index, name).map_err(|error| failed(error.to_string()))
}

/// The parts of a row that there are.
fn parts(row: &Row, place: Option<&Place>) -> Vec<String> {
    let numbers =
        |folder: &str| names(folder).into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    match (row.access, row.place) {
        _ if !row.name.contains(PART) => {
            vec![row.name.strip_prefix("sysctl ").unwrap_or_default().to_owned()]
        }
        (Access::Feature, _) => place.map(features).unwrap_or_default(),
        (Access::HashFields, _) => FLOWS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        (_, Where::Queue) => place.map(queues).unwrap_or_default(),
        (_, Where::Interrupt) => numbers("/proc/irq").collect(),
        (_, Where::Cpu) => cpus(),
        _ => vec![],
    }
}

/// Those that are on or can be.
fn features(place: &Place) -> Vec<String> {
    let all = Netlink::open().features(place.index).unwrap_or_default();
    all.into_iter().filter(|(_, state)| state.active || state.changeable).map(|(name, _)| name).collect()
}

fn queues(place: &Place) -> Vec<String> {
    let Ok(root) = crate::observe::llstat::sysfs() else { return vec![] };
    let root = std::os::fd::AsRawFd::as_raw_fd(&root);
    names(&format!("/proc/self/fd/{root}/class/net/{}/queues", place.name))
}

fn cpus() -> Vec<String> {
    let folders = names("/sys/devices/system/cpu");
    let number =
        |name: String| name.strip_prefix("cpu").filter(|n| n.parse::<u32>().is_ok()).map(str::to_owned);
    folders.into_iter().filter_map(number).collect()
}

/// The names in a folder, numbers by their size.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_by_key(|name| {
        (name.trim_end_matches(|c: char| c.is_ascii_digit()).len(), name.len(), name.clone())
    });
    names
}

/// The number of an interrupt that has a number, or the name that /proc/interrupts ends its line with.
fn interrupt(part: &str) -> Result<String> {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(part.to_owned());
    }
    let table = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let line = |line: &str| {
        let (number, rest) = line.trim().split_once(':')?;
        let is_it = rest.split_whitespace().next_back() == Some(part);
        (is_it && number.parse::<u32>().is_ok()).then(|| number.to_owned())
    };
    let found: Vec<String> = table.lines().filter_map(line).collect();
    match found.as_slice() {
        [number] => Ok(number.clone()),
        [] => Err(Problem::input(format!("no interrupt is called '{part}'"))),
        _ => Err(Problem::input(format!("several interrupts are called '{part}': {}", found.join(", ")))),
    }
}

const CONGESTION_CONTROL: &str = "sysctl net.ipv4.tcp_congestion_control";

/// Why a knob could not be read, in one sentence.
pub(super) fn told(name: &str, interface: Option<&str>, refusal: &Refusal) -> Problem {
    let none = interface.map_or("there is no".into(), |interface| format!("{interface} has no"));
    match refusal.errno {
        Some(libc::EOPNOTSUPP | libc::ENOENT) => Problem::input(format!("{none} {name} here: {refusal}")),
        _ => not_set(name, interface, refusal),
    }
}

/// Why a knob could not be set, in one sentence.
pub(super) fn not_set(name: &str, interface: Option<&str>, refusal: &Refusal) -> Problem {
    let of = interface.map(|name| format!("{name} ")).unwrap_or_default();
    let refused = || Problem::input(format!("{of}{name} cannot be set: {refusal}"));
    match refusal.errno {
        // tcp_set_default_congestion_control() in net/ipv4/tcp_cong.c
        Some(libc::EPERM) if name == CONGESTION_CONTROL => Problem::host(format!("{name} may not be changed so"))
            .help("run as root; another namespace than the first takes only what net.ipv4.tcp_allowed_congestion_control lists there"),
        Some(libc::EPERM | libc::EACCES) => Problem::host(format!("{of}{name} may not be changed or read"))
            .help("it needs CAP_NET_ADMIN (run as root)"),
        Some(libc::EROFS) => Problem::host(format!("{of}{name} can only be read here"))
            .help("another namespace of the machine may have it to set, mostly the first one; or its file is mounted read-only, as in many containers"),
        Some(libc::EBUSY) => refused().help("some drivers take it only while the interface is down"),
        _ => refused(),
    }
}

/// The process of irqbalance, which moves interrupts as it likes; none when it does not run.
pub fn irqbalance() -> Option<u32> {
    let pids = names("/proc").into_iter().filter_map(|name| name.parse().ok());
    pids.into_iter().find(|pid| process::name_of(*pid) == "irqbalance")
}

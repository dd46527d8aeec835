//! A knob of text at one place: read and written as its row says.
//!
//! **What.** [`Setting`] is a row of the table with its part, at an interface or in the namespace of the calling thread. What it reads has one
//! form only, so a value that was put back is byte for byte the one of before.
//!
//! **Why checks of its own.** Some settings take other things with them that no undo could give back: [`Setting::resolve`] refuses those.
//!
//! **Price.** Every reading asks the kernel anew, also where one answer has many settings.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use super::row::{Access, Kind, PART, Row};
use super::value::{self, UNSET, canonical};
use super::{Knob, Ours, Place, Scope};
use crate::netlink::root::Root;
use crate::netlink::settings::{self, Group, RSS, RSS_KEY, RSS_TABLE};
use crate::netlink::{Answer, Attributes, Netlink, Prefix, Refusal, u32_at};
use crate::observe::llstat::sysfs;
use crate::sys::{ethtool, packet};

/// The file that says and holds how long a CPU may take to wake up.
pub const LATENCY: &str = "/dev/cpu_dma_latency";

/// Flow types of the hash of received frames (`TCP_V4_FLOW`, … of linux/ethtool.h).
pub(super) const FLOWS: [(&str, u32); 8] = [
    ("tcp4", 1),
    ("udp4", 2),
    ("sctp4", 3),
    ("tcp6", 5),
    ("udp6", 6),
    ("sctp6", 7),
    ("ip4", 16),
    ("ip6", 17),
];

/// A knob of text.
#[derive(Debug, Clone)]
pub struct Setting {
    /// What it is.
    pub row: &'static Row,
    /// Which of several.
    pub part: String,
    pub(super) interface: Option<Place>,
    /// What was read before it was set: a number that the kernel rounds shall at least be another one.
    before: Option<String>,
    /// What this program made of it.
    ours: Option<Ours>,
}

impl Setting {
    pub(super) fn new(row: &'static Row, part: &str, interface: Option<&Place>) -> Setting {
        Setting { row, part: part.to_owned(), interface: interface.cloned(), before: None, ours: None }
    }

    pub(super) fn at(row: &'static Row, part: &str, at: &Scope) -> Setting {
        let place = if let Scope::Interface(place) = at { Some(place) } else { None };
        Setting::new(row, part, place)
    }

    /// The same, which this program has set.
    pub(super) fn of(self, ours: Option<Ours>) -> Setting {
        Setting { ours, ..self }
    }

    /// The same, that was that before.
    pub(super) fn before(self, was: &str) -> Setting {
        Setting { before: Some(was.to_owned()), ..self }
    }

    /// Its whole name.
    pub fn name(&self) -> String {
        self.row.named(&self.part)
    }

    /// The highest number that it can be, where the driver says so.
    pub(super) fn most(&self) -> Option<u64> {
        let Access::Ethtool(group, _, most) = self.row.access else { return None };
        let reply = Netlink::open().settings(group, self.index().ok()?).ok().filter(|_| most != 0)?;
        u32_at(Attributes(&reply).get(most)?, 0).map(u64::from)
    }

    /// It is there, and nothing can change it.
    pub(super) fn is_fixed(&self) -> bool {
        let features = || Netlink::open().features(self.index()?);
        match self.row.access {
            Access::Feature => {
                features().is_ok_and(|all| all.get(&self.part).is_some_and(|one| !one.changeable))
            }
            _ => !self.row.can_be_set(),
        }
    }

    fn place(&self) -> Answer<&Place> {
        self.interface.as_ref().ok_or_else(|| refusal(libc::ENODEV, "no interface was named"))
    }

    fn index(&self) -> Answer<u32> {
        Ok(self.place()?.index)
    }

    /// The file of a pattern of the row.
    fn file(&self, pattern: &str) -> String {
        pattern.replace(PART, &self.part)
    }

    /// Does something with a file of the interface.
    fn in_sysfs<T>(&self, file: &str, work: impl FnOnce(&str) -> io::Result<T>) -> Answer<T> {
        let root = sysfs()?;
        let name = &self.place()?.name;
        Ok(work(&format!("/proc/self/fd/{}/class/net/{name}/{}", root.as_raw_fd(), self.file(file)))?)
    }

    fn attribute(&self, group: Group, number: u16) -> Answer<Vec<u8>> {
        let reply = Netlink::open().settings(group, self.index()?)?;
        let found = Attributes(&reply).get(number).filter(|value| !value.is_empty()).map(<[u8]>::to_vec);
        found.ok_or_else(|| refusal(libc::EOPNOTSUPP, "the interface does not have it"))
    }

    fn read_feature(&self) -> Answer<String> {
        let features = Netlink::open().features(self.index()?)?;
        let missing = || refusal(libc::EOPNOTSUPP, "the interface does not have it");
        let state = features.get(&self.part).ok_or_else(missing)?;
        Ok(match (state.active, state.wanted) {
            (false, true) if state.changeable => ON_IN_VAIN.into(),
            (active, _) => on_off(active),
        })
    }

    fn read_root(&self) -> Answer<String> {
        Ok(root_text(Netlink::open().root(self.index()?)?.as_ref()))
    }

    fn write_root(&self, text: &str) -> Answer {
        let mut netlink = Netlink::open();
        if let Some(what) = netlink.root(self.index()?)?.and_then(|root| root.lost) {
            let text = format!("the qdisc has {what}, which could not be put back");
            return Err(refusal(libc::EEXIST, &text));
        }
        let root = asked_root(text)?;
        netlink.set_root(self.index()?, &root).map_err(|refused| {
            let lacks = refused.errno == Some(libc::EINVAL) && root.handle == 0 && root.options.is_empty();
            let text = format!("{refused}: a {} may want options, which are given with tc(8)", root.kind);
            if lacks { refusal(libc::EINVAL, &text) } else { refused }
        })
    }

    /// A list of CPUs or queues that is written.
    fn write_list(&self, file: &str, text: &str) -> Answer {
        match self.in_sysfs(file, |path| self.write_file(path, text)) {
            // bitmap_parse()
            Err(refused) if refused.errno == Some(libc::EOVERFLOW) => {
                Err(refusal(libc::EOVERFLOW, "one of them has a higher number than there can be here"))
            }
            other => other,
        }
    }

    /// A sysctl that can be read: what it was is to be put back.
    fn read_sysctl(&self) -> Answer<String> {
        use std::os::unix::fs::PermissionsExt;
        let path = sysctl_path(&self.part)?;
        let is_trigger = || fs::metadata(&path).is_ok_and(|about| about.permissions().mode() & 0o444 == 0);
        match fs::read_to_string(&path) {
            Err(_) if is_trigger() => Err(refusal(libc::EINVAL, "it has no value, it can only be written")),
            other => Ok(other?),
        }
    }

    fn prefix(&self) -> Answer<Prefix> {
        parse_prefix(&self.part)
            .ok_or_else(|| refusal(libc::EINVAL, "a route is named by its prefix (10.0.0.0/8) or 'default'"))
    }

    fn read_metric(&self, number: u16, per: u32) -> Answer<String> {
        let value = Netlink::open().route_metric(self.prefix()?, number)?;
        Ok(value.map_or(UNSET.into(), |value| match per {
            0 => settings::text(&value),
            per => (u32_at(&value, 0).unwrap_or(0) / per).to_string(),
        }))
    }

    fn write_metric(&self, number: u16, per: u32, text: &str) -> Answer {
        let value = match (text, per) {
            (UNSET, _) => None,
            (name, 0) => Some([name.as_bytes(), &[0]].concat()),
            (text, per) => Some(number_of(text)?.saturating_mul(per).to_ne_bytes().to_vec()),
        };
        Netlink::open().set_route_metric(self.prefix()?, number, value.as_deref())
    }

    fn flow(&self) -> Answer<u32> {
        let found = FLOWS.iter().find(|(name, _)| *name == self.part).map(|(_, number)| *number);
        found.ok_or_else(|| {
            refusal(libc::EINVAL, "a kind of flow is one of tcp4, udp4, sctp4, tcp6, udp6, sctp6, ip4, ip6")
        })
    }

    fn write_file(&self, path: &str, text: &str) -> io::Result<()> {
        // One write, and nothing is made or cut: a file that is not there stays so.
        let is_fixed = |about: fs::Metadata| about.permissions().readonly();
        let opened = fs::OpenOptions::new().write(true).open(path);
        let mut file = opened.map_err(|error| match fs::metadata(path).is_ok_and(is_fixed) {
            true => io::Error::from_raw_os_error(libc::EROFS),
            false => error,
        })?;
        io::Write::write_all(&mut file, text.as_bytes())
    }

    fn read_text(&self) -> Answer<String> {
        Ok(match self.row.access {
            Access::ForAWhile(..) => return Err(refusal(libc::EOPNOTSUPP, "other commands set it")),
            Access::Sysctl => self.read_sysctl()?,
            Access::Machine(pattern) => fs::read_to_string(self.file(pattern))?,
            Access::Interface(file) => self.read_interface(file)?,
            Access::Ethtool(group, number, _) => attribute_text(&self.attribute(group, number)?),
            Access::Feature => self.read_feature()?,
            Access::HashFields => {
                let name = &self.place()?.name;
                value::letters(ethtool::hashed_fields(packet::open()?, name, self.flow()?)?)
            }
            Access::HashTable => table_text(&self.attribute(RSS, RSS_TABLE)?),
            Access::HashKey => value::hex(&self.attribute(RSS, RSS_KEY)?),
            Access::Link(number) => {
                let value = Netlink::open().link_number(self.index()?, number)?;
                value.ok_or_else(|| refusal(libc::EOPNOTSUPP, "the interface does not have it"))?.to_string()
            }
            Access::Root => self.read_root()?,
            Access::Metric(number, per) => self.read_metric(number, per)?,
            Access::Latency => latency_text(&fs::read(LATENCY)?),
        })
    }

    fn read_interface(&self, file: &str) -> Answer<String> {
        let text = self.in_sysfs(file, |path| fs::read_to_string(path))?;
        let cpus = (self.row.kind == Kind::Cpus).then(|| value::cpus_of_mask(&text)).flatten();
        Ok(cpus.map_or(text, |cpus| value::cpu_list(&cpus)))
    }

    fn write_text(&self, text: &str) -> Answer {
        match self.row.access {
            Access::ForAWhile(..) => {
                Err(refusal(libc::EOPNOTSUPP, "other commands set it, for as long as they run"))
            }
            Access::Sysctl => Ok(self.write_file(&sysctl_path(&self.part)?, text)?),
            Access::Machine(pattern) => {
                let none = text == value::NONE;
                Ok(self.write_file(&self.file(pattern), if none { "" } else { text })?)
            }
            Access::Interface(file) if self.row.kind == Kind::Cpus => {
                let cpus = value::parse_cpus(text).map_err(io::Error::other)?;
                self.write_list(file, &value::mask_of_cpus(&cpus))
            }
            Access::Interface(file) => self.in_sysfs(file, |path| self.write_file(path, text)),
            Access::Ethtool(group, number, _) => Netlink::open().set_setting(
                group,
                self.index()?,
                number,
                &attribute_bytes(self.row.kind, text)?,
            ),
            Access::Feature => Netlink::open().set_feature(self.index()?, &self.part, text != OFF),
            Access::HashFields => {
                let fields = value::fields(text)
                    .ok_or_else(|| refusal(libc::EINVAL, "these are no fields of a hash"))?;
                Ok(ethtool::set_hashed_fields(packet::open()?, &self.place()?.name, self.flow()?, fields)?)
            }
            Access::HashTable => {
                let table: Answer<Vec<u32>> = text.split(',').map(number_of).collect();
                Ok(ethtool::set_hash(packet::open()?, &self.place()?.name, Some(&table?), &[])?)
            }
            Access::HashKey => {
                let key = value::parse_hex(text).ok_or_else(|| refusal(libc::EINVAL, "this is no key"))?;
                Ok(ethtool::set_hash(packet::open()?, &self.place()?.name, None, &key)?)
            }
            Access::Link(number) => Netlink::open().set_link_number(self.index()?, number, number_of(text)?),
            Access::Root => self.write_root(text),
            Access::Metric(number, per) => self.write_metric(number, per, text),
            Access::Latency => Err(refusal(
                libc::EOPNOTSUPP,
                "it holds only while a process keeps its file open: use 'pathlab tune hold'",
            )),
        }
    }

    /// The value that is meant by what somebody wrote.
    ///
    /// # Errors
    /// What is wrong with it, or why it is not set here.
    pub(super) fn resolve(&self, text: &str) -> Result<String, String> {
        match (self.row.access, text.trim().split_once(' ')) {
            (Access::Machine(_), None) if text.trim() == "local" => return self.local_cpus(),
            // As it may stand in a profile.
            (Access::Feature, Some(_)) if text.trim() == ON_IN_VAIN => return Ok(ON_IN_VAIN.into()),
            (Access::HashTable, Some(("equal", count))) => return self.equal(count),
            _ => {}
        }
        let wanted = canonical(self.row.kind, text)?;
        self.harm(&wanted).map_or(Ok(wanted), Err)
    }

    /// The CPUs beside the device of an interrupt.
    fn local_cpus(&self) -> Result<String, String> {
        let read = |path: String| fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"));
        let node = read(format!("/proc/irq/{}/node", self.part))?;
        let list = match node.trim() {
            "-1" => read("/sys/devices/system/cpu/online".into())?,
            node => read(format!("/sys/devices/system/node/node{node}/cpulist"))?,
        };
        canonical(Kind::Cpus, &list)
    }

    /// A table that spreads over the first queues.
    fn equal(&self, count: &str) -> Result<String, String> {
        let count = count.trim().parse::<usize>().ok().filter(|count| *count > 0);
        let count = count.ok_or("equal wants a number of queues")?;
        let table = self.read_text().map_err(|refusal| refusal.to_string())?;
        let numbers = table.split(',').enumerate().map(|(at, _)| (at % count).to_string());
        Ok(numbers.collect::<Vec<_>>().join(","))
    }

    /// What else a change would take with it that no undo can give back.
    fn harm(&self, wanted: &str) -> Option<String> {
        match self.row.access {
            Access::Metric(..) => None,
            _ if wanted == UNSET => Some("only what a route says can be unset".into()),
            Access::Sysctl => sysctl_harm(&self.part),
            Access::Link(IFLA_MTU) => {
                let small = number_of(wanted).is_ok_and(|mtu| mtu < LEAST_MTU_OF_IPV6);
                let name = &self.interface.as_ref()?.name;
                (small && has_ipv6(name)).then(|| {
                    format!("below {LEAST_MTU_OF_IPV6} the kernel takes the IPv6 addresses of {name} away, which no undo gives back")
                })
            }
            _ => None,
        }
    }
}

/// `IFLA_MTU`, and the smallest MTU with which IPv6 works (RFC 8200).
const IFLA_MTU: u16 = 4;
const LEAST_MTU_OF_IPV6: u32 = 1280;
const ON: &str = "on";
const OFF: &str = "off";
/// A feature that was asked for, and that something else which is off holds back.
const ON_IN_VAIN: &str = "off (requested on)";
/// A root that is the kernel's own.
const DEFAULT: &str = "default";

impl Knob for Setting {
    type Value = String;

    fn read(&mut self) -> Answer<String> {
        let text = self.read_text()?;
        canonical(self.row.kind, &text).or_else(|_| Ok(text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    fn write(&mut self, value: String) -> Answer {
        self.write_text(&value)
    }

    /// A number may be rounded; a qdisc has a handle and options that were not asked for.
    fn took(&self, wanted: &String, now: &String) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let rounded =
            is_number(wanted) && is_number(now) && self.before.as_ref().is_some_and(|was| was != now);
        if matches!(self.row.access, Access::Feature) {
            // It is asked for; what it depends on may come later.
            return (wanted == OFF) == (now == OFF);
        }
        let begins = || now.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.starts_with(' '));
        wanted == now || rounded || (matches!(self.row.access, Access::Root) && begins())
    }

    fn is_gone(&self, refusal: &Refusal) -> bool {
        let gone = [libc::EOPNOTSUPP, libc::ENOENT, libc::ENODEV, libc::ESRCH];
        refusal.errno.is_some_and(|errno| gone.contains(&errno))
    }

    fn is_theirs(&self, _was: &String, now: &String) -> bool {
        let Some(Ours::Is(ours)) = &self.ours else { return false };
        match self.row.access {
            // What it depends on may have changed meanwhile.
            Access::Feature => (ours == OFF) != (now == OFF),
            _ => ours != now,
        }
    }
}

pub(super) fn refusal(errno: i32, text: &str) -> Refusal {
    Refusal { errno: Some(errno), text: text.into() }
}

fn on_off(on: bool) -> String {
    if on { ON.into() } else { OFF.into() }
}

fn number_of(text: &str) -> Answer<u32> {
    text.trim().parse().map_err(|_| refusal(libc::ERANGE, "the number is too large"))
}

/// A value of ethtool's: a byte is a switch, four are a number.
fn attribute_text(value: &[u8]) -> String {
    match (value, u32_at(value, 0)) {
        ([byte], _) => on_off(*byte != 0),
        (_, number) => number.unwrap_or(0).to_string(),
    }
}

fn attribute_bytes(kind: Kind, text: &str) -> Answer<Vec<u8>> {
    Ok(match kind {
        Kind::Switch => vec![u8::from(text == ON)],
        _ => number_of(text)?.to_ne_bytes().to_vec(),
    })
}

fn table_text(table: &[u8]) -> String {
    let queues = table.chunks_exact(4).map(|queue| u32_at(queue, 0).unwrap_or(0).to_string());
    queues.collect::<Vec<_>>().join(",")
}

fn latency_text(bytes: &[u8]) -> String {
    u32_at(bytes, 0).unwrap_or(0).to_string()
}

/// A qdisc as text: `KIND handle H options HEX`.
fn root_text(root: Option<&Root>) -> String {
    let Some(root) = root.filter(|root| root.handle != 0) else { return DEFAULT.into() };
    let handle = format!("{} handle {:x}", root.kind, root.handle >> 16);
    if root.options.is_empty() { handle } else { format!("{handle} options {}", value::hex(&root.options)) }
}

/// A qdisc that is asked for.
fn asked_root(text: &str) -> Answer<Root> {
    let kind = text.split_whitespace().next().unwrap_or("fq");
    let help = format!("it is a kind alone ({kind}), or default; options are given with tc(8)");
    parse_root(text).ok_or_else(|| refusal(libc::EINVAL, &help))
}

fn parse_root(text: &str) -> Option<Root> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let handle =
        |text: &&str| u32::from_str_radix(text, 16).ok().filter(|major| (1..=0xffff).contains(major));
    let made = |kind: &&str, handle: u32, options| Root {
        kind: (*kind).into(),
        handle: handle << 16,
        options,
        lost: None,
    };
    match words.as_slice() {
        [DEFAULT] => Some(Root::default()),
        [kind] => Some(made(kind, 0, vec![])),
        [kind, "handle", major] => Some(made(kind, handle(major)?, vec![])),
        [kind, "handle", major, "options", hex] => Some(made(kind, handle(major)?, value::parse_hex(hex)?)),
        _ => None,
    }
}

fn parse_prefix(text: &str) -> Option<Prefix> {
    let written = match text {
        "default" => "0.0.0.0/0",
        "default6" => "::/0",
        other => other,
    };
    Prefix::parse(written).map(Prefix::whole)
}

/// The file of a sysctl: dots part the name, and a slash stands for a dot inside a part.
fn sysctl_path(name: &str) -> Answer<String> {
    let turned: String = name
        .chars()
        .map(|c| {
            if c == '.' {
                '/'
            } else if c == '/' {
                '.'
            } else {
                c
            }
        })
        .collect();
    let is_known = ["net/", "vm/", "kernel/"].iter().any(|folder| turned.starts_with(folder));
    let is_plain = turned.split('/').all(|part| !["", ".", ".."].contains(&part));
    if is_known && is_plain && !turned.contains('\0') {
        return Ok(format!("/proc/sys/{turned}"));
    }
    Err(refusal(libc::EINVAL, "a sysctl begins with net., vm. or kernel."))
}

/// Sysctls that change more than themselves.
fn sysctl_harm(name: &str) -> Option<String> {
    let is_forwarding = name == "net.ipv4.ip_forward" || name == "net.ipv4.conf.all.forwarding";
    if is_forwarding || name.starts_with("net.ipv6.conf.all.") {
        return Some(
            "it changes every interface at once, and what each was could not be put back; set it of each interface".into(),
        );
    }
    name.ends_with(".disable_ipv6")
        .then(|| "it takes addresses and routes away, which no undo gives back".into())
}

/// The interface has addresses of IPv6.
fn has_ipv6(name: &str) -> bool {
    let list = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    list.lines().any(|line| line.split_whitespace().next_back() == Some(name))
}

#[cfg(test)]
#[path = "setting_tests.rs"]
mod tests;

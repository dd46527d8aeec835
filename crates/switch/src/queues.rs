//! Queues of ports: classes of the kernel's HTB, one socket for each.
//!
//! **What.** [`Queues::start`] makes the queues that are asked for ([`crate::queue_config`]), finds
//! those that `tc` made before, and gives each to the datapath with a transmitter of its own, whose frames the kernel puts
//! into that class. [`Queues::refresh`] brings the kernel's counters into the model before a controller is answered.
//!
//! **Why a socket for each.** A slow queue fills the buffer of the socket that feeds it; with one socket for all of them the
//! fast queues would wait for the slow one. And the class is said once, not for every frame.
//!
//! **Price.** What `tc` changes later is seen where classes go away, not where new ones come: the sockets are opened at the
//! start. Only `int:` and `ring:` leave by the kernel's queues at all.

use crate::config::SwitchConfig;
use crate::datapath::{Datapath, name_of};
use crate::queue_config::check;
use flow::openflow::message::Body;
use flow::openflow::multipart::Request;
use flow::port::{PortNo, Queue, QueueCounters};
use linux::netlink::Netlink;
use linux::port::{Direction, PortOptions, Uri, open};
use linux::sys::clock;
use linux::tune::Change;
use linux::tune::queues::{self as htb, Htb, QueuePlan, Wanted};
use record::{PortKind, Problem, Result, Through};

/// The assumed speed of a port without a configured one: the speed that the switch reports to controllers.
pub const SPEED_BPS: u64 = 10_000_000_000;
/// Queues of one port that are used; each has a socket.
const MOST: usize = 256;
/// The queues of a switch; those that were made here go when this is dropped.
#[derive(Debug)]
pub struct Queues {
    /// The ports that have queues, with the index of their interface.
    shaped: Vec<(PortNo, u32)>,
    installed: Option<Change>,
    /// What was found or made, for people.
    pub said: Vec<String>,
}

/// A port that can have queues, while they are made.
struct Able<'a> {
    number: PortNo,
    uri: &'a str,
    index: u32,
    /// What was said of its speed.
    speed_bps: Option<u64>,
    /// Somebody else's HTB is there.
    was_there: bool,
}

/// Whether a message cannot be answered without what the kernel counted.
pub fn is_asked_for(body: &Body) -> bool {
    match body {
        Body::QueueConfigRequest(_) => true,
        Body::MultipartRequest(request) => {
            matches!(request.body, Request::QueueStats(_) | Request::QueueDesc(_))
        }
        _ => false,
    }
}

impl Queues {
    /// Makes and finds the queues of a switch whose ports are open.
    ///
    /// # Errors
    /// Input: queues are asked for where there can be none, or differ from those that are there. Host: the kernel
    /// refuses.
    pub fn start(config: &SwitchConfig, datapath: &mut Datapath) -> Result<Queues> {
        check(&config.ports, &config.queues, &config.speeds)?;
        let mut queues = Queues { shaped: vec![], installed: None, said: vec![] };
        let (mut able, mut plans, mut without) = (vec![], vec![], vec![]);
        for (number, uri) in &config.ports {
            let of_port = config.queues.iter().filter(|queue| queue.port == *number);
            let wanted: Vec<Wanted> = of_port.map(|queue| queue.wanted).collect();
            let speed = config.speeds.iter().find(|(port, _)| port == number).map(|(_, speed)| *speed);
            // It carries what is said, queues or not.
            if let Some((row, bps)) = datapath.pipeline().ports.get_mut(number).zip(speed) {
                row.speed_kbps = bps / 1000;
            }
            let Some((interface, index)) = interface(uri)? else {
                if !wanted.is_empty() {
                    let what = "this port has no queues: its frames pass by those of the kernel";
                    let help = "int: and ring: ports have, without bypass=on";
                    return Err(Problem::input(what).at(uri.clone()).help(help));
                }
                without.push(format!("{number} ({uri})"));
                continue;
            };
            let found = found(&interface, index)?;
            let was_there = found.is_some();
            let port = Able { number: *number, uri, index, speed_bps: speed, was_there };
            plans.extend(port.plan(interface, found, wanted)?);
            able.push(port);
        }
        if !without.is_empty() {
            let ports = without.join(", ");
            queues.said.push(format!("no queues on port {ports}: frames pass by those of the kernel"));
        }
        if !plans.is_empty() {
            let journal = format!("queues-{:x}-{}", config.dpid, std::process::id());
            queues.installed = Some(htb::install(&linux::undo::journals()?, &journal, &plans)?);
        }
        able.iter().try_for_each(|port| queues.take_over(datapath, port))?;
        Ok(queues)
    }

    /// Takes away what was made here. It happens by itself when this is dropped, but then errors are not reported.
    ///
    /// # Errors
    /// Host: the kernel refuses; the undo is still on disk then.
    pub fn end(&mut self) -> Result<()> {
        self.installed.take().map_or(Ok(()), Change::put_back)
    }
}

impl Able<'_> {
    /// What is to be made beside what was found.
    fn plan(&self, interface: String, found: Option<Htb>, wanted: Vec<Wanted>) -> Result<Option<QueuePlan>> {
        if let Some(htb) = found {
            return has_all(&htb, &wanted).map(|()| None).map_err(|problem| problem.at(interface));
        }
        let speed_bps = self.speed_bps.unwrap_or(SPEED_BPS);
        let plan = QueuePlan { interface, index: self.index, speed_bps, queues: wanted };
        fits(&plan, self.number)?;
        Ok((!plan.queues.is_empty()).then_some(plan))
    }
}

impl Queues {
    /// Opens a way into each queue of a port, and shows the queues to the model.
    fn take_over(&mut self, datapath: &mut Datapath, port: &Able<'_>) -> Result<()> {
        let Able { number, uri, index, .. } = *port;
        let htb = read(uri, index)?;
        let theirs = htb.as_ref().filter(|_| port.was_there).and_then(|htb| htb.speed_bps);
        let speed_bps = port.speed_bps.or(theirs).unwrap_or(SPEED_BPS);
        if let Some(row) = datapath.pipeline().ports.get_mut(&number) {
            row.speed_kbps = speed_bps / 1000;
        }
        let Some(htb) = htb else { return Ok(()) };
        let used = &htb.queues[..htb.queues.len().min(MOST)];
        for class in used {
            let wish = PortOptions {
                direction: Direction::Transmit,
                queue: Some(class.handle),
                ..PortOptions::default()
            };
            let way = open(&format!("int:{}{}", name_of(uri), vnet(uri)?), &wish)?;
            if let Some(transmitter) = way.transmitter {
                datapath.add_queue(number, u32::from(class.id()), transmitter);
            }
        }
        let now = clock::monotonic_ns();
        if let Some(row) = datapath.pipeline().ports.get_mut(&number) {
            row.queues = used.iter().map(|class| (u32::from(class.id()), queue(class, now))).collect();
        }
        let ids: Vec<String> = used.iter().map(|class| class.id().to_string()).collect();
        let whose = if port.was_there { "found there" } else { "made, and taken away at the end" };
        let more = htb.queues.len() - used.len();
        let more = if more > 0 { format!("; {more} more are not used") } else { String::new() };
        let (ids, mbit) = (ids.join(", "), speed_bps / 1_000_000);
        self.said.push(format!(
            "queues of port {number}: {ids} ({whose}; rates are reported as parts of {mbit} Mbit/s{more})"
        ));
        self.shaped.push((number, index));
        Ok(())
    }

    /// Brings the kernel's counters into the model. Queues that are gone, go; ones that cannot be read stay as they were.
    pub fn refresh(&self, datapath: &Datapath) {
        for (number, index) in &self.shaped {
            let Ok(classes) = htb::counters(*index) else { continue };
            let mut pipeline = datapath.pipeline();
            let Some(port) = pipeline.ports.get_mut(number) else { continue };
            port.queues.retain(|id, row| {
                let class = u16::try_from(*id).ok().and_then(|id| classes.get(&id));
                if let Some(class) = class {
                    *row = queue(class, row.created_ns);
                    // What the queue's own socket could not take never came to the class.
                    row.counters.tx_errors = row.counters.tx_errors.max(datapath.queue_dropped(*number, *id));
                }
                class.is_some()
            });
        }
    }
}

/// A class as the model has it.
fn queue(class: &htb::Class, created_ns: u64) -> Queue {
    let counters = QueueCounters { tx_frames: class.frames, tx_bytes: class.bytes, tx_errors: class.dropped };
    Queue { min_bps: Some(class.min_bps), max_bps: Some(class.max_bps), counters, created_ns }
}

fn read(at: &str, index: u32) -> Result<Option<Htb>> {
    htb::read(index).map_err(|e| Problem::host(format!("cannot read queues: {e}")).at(at.to_owned()))
}

/// The HTB of an interface that is not left of a switch that was killed.
fn found(interface: &str, index: u32) -> Result<Option<Htb>> {
    let found = read(interface, index)?;
    if found.as_ref().is_some_and(|htb| htb.handle == htb::HANDLE) {
        linux::undo::open()?.clean()?;
        return read(interface, index);
    }
    Ok(found)
}

/// What is guaranteed must be there.
fn fits(plan: &QueuePlan, port: PortNo) -> Result<()> {
    let (sum, speed) = (plan.guaranteed_bps(), plan.speed_bps);
    if sum <= speed {
        return Ok(());
    }
    let what =
        format!("the queues of port {port} are to get {sum} bit/s in any case, and it carries {speed}");
    Err(Problem::input(what).at(plan.interface.clone()).help("lower min=, or say its speed (1=40gbit)"))
}

/// An HTB that is there is not changed: it must have what is asked for.
fn has_all(htb: &Htb, wanted: &[Wanted]) -> Result<()> {
    match wanted.iter().find(|one| !htb.queues.iter().any(|class| class.id() == one.id)) {
        None => Ok(()),
        Some(missing) => {
            let what = format!("the interface has an HTB without a class for queue {}", missing.id);
            let class = format!("{:x}:{:x}", htb.handle >> 16, missing.id);
            Err(Problem::input(what)
                .help(format!("add it (tc class add … classid {class} htb rate …), or take the HTB away")))
        }
    }
}

/// The interface of a port that leaves by the kernel's queues, with its number.
fn interface(uri: &str) -> Result<Option<(String, u32)>> {
    let mut parts = Uri::parse(uri)?;
    let is_packet_socket = |kind: &PortKind| kind.through == Through::PacketSocket;
    if !PortKind::named(&parts.kind).is_some_and(is_packet_socket)
        || parts.take("bypass").as_deref() == Some("on")
    {
        return Ok(None);
    }
    let links = Netlink::open().links().map_err(|refusal| {
        Problem::host(format!("cannot look for the interface: {refusal}")).at(uri.to_owned())
    })?;
    Ok(links.into_iter().find(|link| link.name == parts.rest).map(|link| (link.name, link.index)))
}

/// The setting of a port that its queues must have, too.
fn vnet(uri: &str) -> Result<&'static str> {
    Ok(if Uri::parse(uri)?.take("vnet").as_deref() == Some("off") { "?vnet=off" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_guaranteed_than_the_port_carries() {
        let queues = |min: &[u64]| {
            min.iter().map(|min| Wanted { id: 1, min_bps: Some(*min), max_bps: None }).collect()
        };
        let plan =
            |min: &[u64]| QueuePlan { interface: "p1".into(), index: 1, speed_bps: 10, queues: queues(min) };
        assert!(fits(&plan(&[4, 6]), PortNo(1)).is_ok());
        for min in [&[4, 7][..], &[u64::MAX, u64::MAX]] {
            let problem = fits(&plan(min), PortNo(1)).unwrap_err().to_string();
            assert!(
                problem.starts_with("p1: the queues of port 1") && problem.contains("carries 10;"),
                "{problem}"
            );
        }
    }

    #[test]
    fn only_ports_that_leave_by_the_kernel_have_queues() {
        assert!(interface("int:lo").unwrap().is_some());
        assert!(interface("ring:lo?bypass=off&vnet=off").unwrap().is_some());
        for uri in [
            "ring:lo?bypass=on",
            "xdp:lo",
            "tap:lo",
            "mem:lo",
            "fault:int:lo?lose=1%",
            "int:no-such-interface",
        ] {
            assert!(interface(uri).unwrap().is_none(), "{uri}");
        }
        assert_eq!((vnet("int:a?batch=9&vnet=off").unwrap(), vnet("int:a").unwrap()), ("?vnet=off", ""));
    }
}

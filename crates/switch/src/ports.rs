//! The interfaces under the ports: up, down, gone, and there again.
//!
//! **What.** [`Ports::look`] compares the ports with the interfaces of the host. What a link says becomes the state of its port; an interface
//! that was deleted and made again is opened again, as another one with the same name. [`Ports::carry_down`] takes the interface of a port down
//! that a controller configured so, and up again.
//!
//! **Why.** A socket stays with the interface that it was opened for, so a port whose interface was deleted is dead whatever is made under its name.
//! And a controller (Faucet) may look at LINK_DOWN alone: a port that is closed must look like one without a cable, from here and from the other end.
//!
//! A socket whose name is that of the interface, in its network namespace, tells another switch that it is a port already: both forward then.
//!
//! **Price.** Every notice of the kernel asks for all links. An interface that was made again has no queues.

use crate::datapath::{self, Datapath, OpenedPort};
use crate::notice::{LastReason, SwitchNotice};
use flow::event::Event;
use flow::pipeline::Pipeline;
use flow::port::{PortConfig, PortNo, PortState};
use linux::netlink::{LinkState, Netlink};
use linux::tune::down;
use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// How long it takes until an interface that is there and could not be opened is tried again.
const RETRY_NS: u64 = 1_000_000_000;

/// The interface of a port.
struct Row {
    uri: String,
    name: String,
    /// The interface that was opened. None for a wire in memory.
    index: Option<u32>,
    /// Nothing comes from it any more.
    is_gone: bool,
    /// Why it could not be opened again.
    failed: LastReason,
    /// It was up when that was looked at last.
    is_up: bool,
    /// It was taken down for a controller.
    down: Option<down::Taken>,
    /// Says to other switches that the interface is a port.
    claim: Option<UnixDatagram>,
}

/// What a look found.
#[derive(Default)]
pub(crate) struct Found {
    /// Ports whose state changed.
    pub(crate) events: Vec<Event>,
    /// The interface of a port that a controller closed came up: one that was made again.
    pub(crate) is_open: bool,
    /// Ports that were opened again.
    pub(crate) inlets: Vec<OpenedPort>,
    /// What is to be said of a port.
    pub(crate) said: Vec<SwitchNotice>,
}

/// The interfaces under the ports of a switch.
pub(crate) struct Ports {
    rows: BTreeMap<PortNo, Row>,
    /// When to try again to open one.
    retry_ns: Option<u64>,
    /// What there is to say of interfaces that were opened at the start.
    said: Vec<SwitchNotice>,
}

impl Ports {
    /// Those of ports that were just opened.
    pub(crate) fn new<'a>(ports: impl Iterator<Item = (PortNo, &'a str)>) -> Ports {
        let links = Netlink::open().links().unwrap_or_default();
        let mut said = vec![];
        let row = |(number, uri): (PortNo, &str)| {
            let name = datapath::name_of(uri);
            let of_kernel = datapath::has_interface(uri);
            let link = links.iter().find(|link| of_kernel && link.name == name);
            let (index, is_up) = (link.map(|link| link.index), link.is_some_and(|link| link.up));
            let uri = uri.to_owned();
            let mut row = Row {
                uri,
                name,
                index,
                is_gone: false,
                failed: LastReason::default(),
                is_up,
                down: None,
                claim: None,
            };
            said.extend(index.and_then(|index| row.claim(number, index)));
            (number, row)
        };
        let rows = ports.map(row).collect();
        Ports { rows, retry_ns: None, said }
    }

    /// What there is to say after the start, once.
    pub(crate) fn news(&mut self) -> Vec<SwitchNotice> {
        std::mem::take(&mut self.said)
    }

    /// The thread of a port heard that its interface is gone.
    pub(crate) fn gone(&mut self, number: PortNo) {
        if let Some(row) = self.rows.get_mut(&number) {
            row.is_gone = true;
        }
    }

    /// The kernel said that an interface is gone. What was opened is dead, also when the interface is back under its number: one that was in
    /// another namespace for a moment.
    pub(crate) fn went(&mut self, index: u32) {
        self.rows.values_mut().filter(|row| row.index == Some(index)).for_each(|row| row.is_gone = true);
    }

    /// When to look without a notice.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.retry_ns
    }

    /// Brings the ports to what the interfaces are now.
    pub(crate) fn look(&mut self, now: u64, datapath: &Datapath) -> Found {
        let mut found = Found::default();
        let Ok(links) = Netlink::open().links() else { return found };
        self.retry_ns = None;
        for (number, row) in &mut self.rows {
            let same = links.iter().find(|link| row.index == Some(link.index) && !row.is_gone);
            let is_up = match (row.index, same) {
                // A wire in memory has no link to ask about.
                (None, _) => !row.is_gone,
                (Some(_), Some(link)) => is_up(link),
                (Some(_), None) => {
                    row.is_gone = true;
                    let is_up = row.open_again(*number, &links, datapath, &mut found);
                    if is_up.is_none() && links.iter().any(|link| link.name == row.name) {
                        self.retry_ns = Some(now + RETRY_NS);
                    }
                    is_up.unwrap_or(false)
                }
            };
            let has_link_up = row.has_link_up(&links);
            let was_up = std::mem::replace(&mut row.is_up, has_link_up);
            let pipeline = datapath.pipeline();
            found.is_open |= row.is_up && !was_up && is_closed(&pipeline, *number);
            // A port that a controller closed has no link, also where that is no business of the kernel's.
            let state = state(is_up && !is_closed(&pipeline, *number));
            let is_new = pipeline.ports.get(number).is_some_and(|port| port.state != state);
            drop(pipeline);
            if is_new {
                found.events.extend(datapath.change(|pipeline| pipeline.set_port_state(*number, state)));
            }
        }
        found
    }

    /// Takes the interfaces of the ports down that are configured so, and those up that are no longer; what cannot be done is said.
    pub(crate) fn carry_down(&mut self, datapath: &Datapath) -> Vec<SwitchNotice> {
        let mut said = vec![];
        for (&port, row) in &mut self.rows {
            let is_closed = is_closed(&datapath.pipeline(), port);
            let done = match (is_closed, row.down.is_some(), row.index) {
                (true, false, Some(index)) if !row.is_gone => linux::undo::open()
                    .and_then(|journals| down::take(&journals, &row.name, index))
                    .map(|taken| row.down = taken),
                (false, true, _) => row.down.take().map_or(Ok(()), down::Taken::put_back),
                _ => Ok(()),
            };
            said.extend(done.err().map(|problem| SwitchNotice::Port { port, what: problem.to_string() }));
        }
        said
    }
}

/// Whether a controller configured a port down.
fn is_closed(pipeline: &Pipeline, port: PortNo) -> bool {
    pipeline.ports.get(&port).is_some_and(|port| port.config.has(PortConfig::PORT_DOWN))
}

/// Takes the name of an interface of this network namespace among switches. The name is free again when the process ends.
fn claim(index: u32) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("pathlab/port/{index}"))?)
}

impl Row {
    /// Says to other switches that the interface is a port, and here when another one was first.
    fn claim(&mut self, port: PortNo, index: u32) -> Option<SwitchNotice> {
        // One that comes back under its number has the name that is held here.
        self.claim = None;
        let claimed = claim(index);
        let is_taken = claimed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
        self.claim = claimed.ok();
        let what = || {
            format!("the interface {} is a port of another switch, too: both forward its frames", self.name)
        };
        is_taken.then(|| SwitchNotice::Port { port, what: what() })
    }

    /// Whether the interface that was opened is up.
    fn has_link_up(&self, links: &[LinkState]) -> bool {
        !self.is_gone && links.iter().any(|link| self.index == Some(link.index) && link.up)
    }

    /// The interface is not the one that was opened: opens the one that has its name now. Returns whether that is up; `None` when there is none.
    fn open_again(
        &mut self,
        number: PortNo,
        links: &[LinkState],
        datapath: &Datapath,
        found: &mut Found,
    ) -> Option<bool> {
        let link = links.iter().find(|link| link.name == self.name);
        let gone = || format!("the interface {} is gone; it is opened again when it is back", self.name);
        let opened = link.ok_or_else(gone).and_then(|link| {
            let opened = datapath.open_again(number, &self.uri, links).map_err(|problem| {
                format!("the interface {} is back and cannot be opened: {problem}", self.name)
            });
            Ok((link, opened?))
        });
        match opened {
            Ok((link, (inlet, had_queues))) => {
                (self.index, self.is_gone) = (Some(link.index), false);
                self.failed.forget();
                self.is_up = false;
                // What was taken down went with the old one.
                self.down = None;
                found.inlets.push(inlet);
                found.said.extend(self.claim(number, link.index));
                let queues = if had_queues { ", without its queues" } else { "" };
                let what = format!("the interface {} is back and was opened again{queues}", self.name);
                found.said.push(SwitchNotice::Port { port: number, what });
                Some(is_up(link))
            }
            Err(what) => {
                if self.failed.is_new(&what) {
                    found.said.push(SwitchNotice::Port { port: number, what });
                }
                None
            }
        }
    }
}

/// The state of a port whose link is up or not.
fn state(up: bool) -> PortState {
    if up { PortState::default() } else { PortState::LINK_DOWN }
}

fn is_up(link: &LinkState) -> bool {
    link.up && link.carrier
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_switch_says_that_an_interface_is_a_port_already() {
        let of = |uri: &'static str| Ports::new([(PortNo(7), uri)].into_iter());
        let _first = of("int:lo");
        let said = of("ring:lo").news();
        assert!(
            matches!(&said[..], [SwitchNotice::Port { port: PortNo(7), what }] if what.contains("another switch")),
            "{said:?}"
        );
        assert_eq!(of("mem:lo").news(), []);
    }
}

//! A dying frame in words, and whether a filter wants it.

use super::DropsWish;
use linux::observe::{DeadFrame, DeadLink, Flow, FlowProtocol};
use linux::sys::libpcap;
use record::Result;
use record::drops::{DeadFrameLine, DropRow};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::filter::Program;
use wire::frame::{IPV4, IPV6, TCP, UDP};
use wire::layers::{Layers, SCTP};

/// `LINKTYPE_RAW`: an IP header.
pub(super) const RAW: u16 = 101;

/// Which frames are wanted.
#[derive(Default)]
pub(super) struct Filter {
    wanted: Wanted,
    /// What it cannot judge.
    pub(super) missing: Option<String>,
}

#[derive(Default)]
enum Wanted {
    #[default]
    All,
    /// Those that match an expression: its text, and its programs for frames with a link layer and for those without.
    Matching(String, Program, Option<Program>),
    /// Those of a test.
    Of(Flow),
}

impl Filter {
    /// What is wished, with an expression compiled.
    pub(super) fn of(wish: &DropsWish) -> Result<Filter> {
        match (&wish.filter, &wish.flow) {
            (Some(expression), _) => Filter::matching(expression, wish.snap),
            (None, Some(flow)) => Ok(Filter { wanted: Wanted::Of(flow.clone()), missing: None }),
            (None, None) => Ok(Filter::default()),
        }
    }

    fn matching(expression: &str, snap: u32) -> Result<Filter> {
        let ethernet = linux::filter::compile(expression, libpcap::ETHERNET, snap)?;
        let raw = linux::filter::compile(expression, RAW, snap);
        let missing = raw.as_ref().err().map(|_| {
            format!("frames without a link layer: '{expression}' asks for one, so none of them passes")
        });
        Ok(Filter { wanted: Wanted::Matching(expression.into(), ethernet, raw.ok()), missing })
    }

    /// The expression; of a test's flow one that takes the same frames where no tag or extension header is before its ports.
    pub(super) fn words(&self) -> Option<String> {
        match &self.wanted {
            Wanted::All => None,
            Wanted::Matching(expression, ..) => Some(expression.clone()),
            Wanted::Of(flow) => Some(expression_of(flow)),
        }
    }

    /// Whether it wants the frame. What begins with neither Ethernet nor IP passes only where there is no filter.
    pub(super) fn passes(&self, frame: &DeadFrame) -> bool {
        let (ethernet, raw) = match &self.wanted {
            Wanted::All => return true,
            Wanted::Of(flow) => return framed(frame).is_some_and(|bytes| flow.takes(&bytes)),
            Wanted::Matching(_, ethernet, raw) => (ethernet, raw),
        };
        let program = match frame.link {
            DeadLink::Ethernet => Some(ethernet),
            DeadLink::Ip => raw.as_ref(),
            DeadLink::Other(_) => None,
        };
        program.is_some_and(|program| program.run(&frame.bytes, frame.length) > 0)
    }
}

fn expression_of(flow: &Flow) -> String {
    let one = |number: &u16| match flow.protocol {
        FlowProtocol::Udp => format!("udp port {number}"),
        FlowProtocol::Tcp => format!("tcp port {number}"),
        FlowProtocol::Icmp => format!("icmp[4:2] = {number}"),
        FlowProtocol::Icmp6 => format!("icmp6[4:2] = {number}"),
    };
    flow.ports.iter().map(one).collect::<Vec<_>>().join(" or ")
}

/// The frame behind an Ethernet header: its own, or one that leads to its IP header; none where it begins with neither.
fn framed(frame: &DeadFrame) -> Option<Cow<'_, [u8]>> {
    match frame.link {
        DeadLink::Ethernet => Some(Cow::Borrowed(&frame.bytes)),
        DeadLink::Ip => Some([&[0; 12][..], &ip_kind(frame).to_be_bytes(), &frame.bytes].concat().into()),
        DeadLink::Other(_) => None,
    }
}

/// The type of a frame that begins with its IP header.
fn ip_kind(frame: &DeadFrame) -> u16 {
    if frame.bytes.first().is_some_and(|byte| byte >> 4 == 6) { IPV6 } else { IPV4 }
}

/// The frame as it is told.
pub(super) fn describe(frame: &DeadFrame, at_ns: u64, row: &DropRow) -> DeadFrameLine {
    let (link, line) = match frame.link {
        DeadLink::Ethernet => ("ethernet", wire::text::line(&frame.bytes)),
        DeadLink::Ip => ("ip", wire::text::packet(ip_kind(frame), &frame.bytes)),
        DeadLink::Other(kind) => ("other", wire::text::packet(kind, &frame.bytes)),
    };
    let ends = framed(frame).map(|bytes| ends(&bytes)).unwrap_or_default();
    DeadFrameLine {
        schema: "pathlab/dead-frame/1".into(),
        at_ns,
        reason: row.reason.clone(),
        name: row.name.clone(),
        place: row.place.clone(),
        node: row.node.clone(),
        interface: row.interface.clone(),
        length: frame.length,
        captured: frame.bytes.len() as u32,
        frames: frame.segments,
        link: link.into(),
        protocol: ends.protocol,
        source: ends.addresses.map(|(source, _)| source.to_string()),
        source_port: ends.ports.map(|(source, _)| source),
        destination: ends.addresses.map(|(_, destination)| destination.to_string()),
        destination_port: ends.ports.map(|(_, destination)| destination),
        line,
    }
}

/// The five-tuple, as far as it is there.
#[derive(Default)]
struct Ends {
    protocol: Option<u8>,
    addresses: Option<(IpAddr, IpAddr)>,
    ports: Option<(u16, u16)>,
}

fn ends(frame: &[u8]) -> Ends {
    let Some(layers) = Layers::of(frame) else { return Ends::default() };
    let address = |at: usize| -> Option<IpAddr> {
        let rest = frame.get(at..)?;
        Some(if layers.is_v6 {
            Ipv6Addr::from(*rest.first_chunk::<16>()?).into()
        } else {
            Ipv4Addr::from(*rest.first_chunk::<4>()?).into()
        })
    };
    let (source, destination) = if layers.is_v6 { (8, 24) } else { (12, 16) };
    let has_ports = !layers.is_later_fragment() && [TCP, UDP, SCTP].contains(&layers.protocol);
    let ports = frame.get(layers.transport..layers.transport + 4).filter(|_| has_ports);
    let number = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    Ends {
        protocol: Some(layers.protocol),
        addresses: address(layers.network + source).zip(address(layers.network + destination)),
        ports: ports.map(|ports| (number(ports), number(&ports[2..]))),
    }
}

//! A dying frame in words, and whether a filter wants it.

use linux::observe::{DeadFrame, DeadLink};
use linux::sys::libpcap;
use record::Result;
use record::drops::{DeadFrameLine, DropRow};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::filter::Program;
use wire::frame::{IPV4, IPV6, TCP, UDP};
use wire::layers::{Layers, SCTP};

/// `LINKTYPE_RAW`: an IP header.
pub(super) const RAW: u16 = 101;

/// A filter for frames with a link layer and for those without.
#[derive(Default)]
pub(super) struct Filter {
    programs: Option<(Program, Option<Program>)>,
    /// What it cannot judge.
    pub(super) missing: Option<String>,
}

impl Filter {
    /// Compiles the expression for both.
    pub(super) fn of(expression: Option<&str>, snap: u32) -> Result<Filter> {
        let Some(expression) = expression else { return Ok(Filter::default()) };
        let ethernet = linux::filter::compile(expression, libpcap::ETHERNET, snap)?;
        let raw = linux::filter::compile(expression, RAW, snap);
        let missing = raw.as_ref().err().map(|_| {
            format!("frames without a link layer: '{expression}' asks for one, so none of them passes")
        });
        Ok(Filter { programs: Some((ethernet, raw.ok())), missing })
    }

    /// Whether it wants the frame. What begins with neither Ethernet nor IP passes only where there is no filter.
    pub(super) fn passes(&self, frame: &DeadFrame) -> bool {
        let Some((ethernet, raw)) = &self.programs else { return true };
        let program = match frame.link {
            DeadLink::Ethernet => Some(ethernet),
            DeadLink::Ip => raw.as_ref(),
            DeadLink::Other(_) => None,
        };
        program.is_some_and(|program| program.run(&frame.bytes, frame.length) > 0)
    }
}

/// The frame as it is told.
pub(super) fn describe(frame: &DeadFrame, at_ns: u64, row: &DropRow) -> DeadFrameLine {
    let (link, line, ends) = match frame.link {
        DeadLink::Ethernet => ("ethernet", wire::text::line(&frame.bytes), ends(&frame.bytes)),
        DeadLink::Ip => {
            let kind = if frame.bytes.first().is_some_and(|byte| byte >> 4 == 6) { IPV6 } else { IPV4 };
            let framed = [&[0; 12][..], &kind.to_be_bytes(), &frame.bytes].concat();
            ("ip", wire::text::packet(kind, &frame.bytes), ends(&framed))
        }
        DeadLink::Other(kind) => ("other", wire::text::packet(kind, &frame.bytes), Ends::default()),
    };
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

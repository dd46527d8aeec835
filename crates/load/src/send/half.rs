//! The sender's half of a path: how its frames are numbered, and what the ledger must know of them.
//!
//! **What.** [`numbering`] says whether a template's frames can be found again in a capture, or why they cannot;
//! [`sent`] makes the half's own part of a sending.
//!
//! **Why refused early.** Frames without a number can be sent and captured, but nobody could say afterwards which of them
//! are missing; whoever asks for a record learns that before the first frame leaves.

use super::job::{Job, SendContent, Sending};
use super::live;
use super::template::{LayerKind, SHORTEST, Size, Template};
use record::half::{Numbering, SentHalf};
use record::{Problem, Result};

/// How the frames of a job are numbered.
///
/// # Errors
/// Input: they are not, or not in a way that a capture can follow.
pub fn numbering(job: &Job) -> Result<Numbering> {
    let refused = |what: &str, advice: &str| Err(Problem::input(what).at("--record").help(advice));
    let SendContent::Template(template) = &job.what else {
        return refused(
            "frames of a file are sent as they are, so no number tells which of them arrive",
            "send a template with a stamp layer",
        );
    };
    let Some((at, layer)) = template
        .layers
        .iter()
        .enumerate()
        .find(|(_, layer)| matches!(layer.kind, LayerKind::Stamp | LayerKind::Pktgen))
    else {
        return refused(
            "frames without a number cannot be found again",
            "add ' / stamp' behind the udp layer",
        );
    };
    if at == 0 || template.layers[at - 1].kind != LayerKind::Udp {
        return refused(
            "a capture looks for the stamp behind UDP only",
            "write the stamp right behind a udp layer",
        );
    }
    if layer.kind == LayerKind::Pktgen && live::is_live(&job.port) {
        return refused("live: does not count on the numbers of a pktgen layer", "use a stamp layer instead");
    }
    let fixed =
        ["magic", "flags", "seq", "time", "sec", "usec"].into_iter().find(|name| layer.get(name).is_some());
    if let Some(name) = fixed {
        return refused(&format!("the template sets '{name}' of the stamp itself"), "leave it out");
    }
    let stream = match layer.get("stream").map(|value| value.as_constant()) {
        None => 0,
        Some(Some(number)) => number as u8,
        Some(None) => return refused("the stream number of the stamp varies", "make it a constant"),
    };
    Ok(match layer.kind {
        LayerKind::Pktgen => Numbering { header: "pktgen".into(), stream: 0, first: 1 },
        _ => Numbering { header: "message".into(), stream, first: 0 },
    })
}

/// The sender's own part of its half.
pub fn sent(job: &Job, numbering: Numbering, sending: &Sending) -> SentHalf {
    let (frame_bytes, family) = match &job.what {
        SendContent::Template(template) => (length(template), family(template)),
        SendContent::Recording(..) => (0, 4),
    };
    SentHalf {
        numbering,
        frame_bytes,
        family,
        port_drops: sending.seen.port_drops.clone(),
        bypasses_qdisc: sending.seen.bypasses_qdisc,
        report: sending.report.clone(),
    }
}

/// The length of every frame; 0 when they differ or their headers are not just Ethernet, IP and UDP.
fn length(template: &Template) -> u32 {
    let plain = match template.layers.as_slice() {
        [eth, ip, udp, ..] => {
            let kinds = (eth.kind, udp.kind) == (LayerKind::Ethernet, LayerKind::Udp);
            kinds && matches!(ip.kind, LayerKind::Ipv4 | LayerKind::Ipv6) && ip.options.is_empty()
        }
        _ => false,
    };
    match template.size {
        None if plain => template.shortest().max(SHORTEST) as u32,
        Some(Size::Fixed(size)) if plain => size as u32,
        _ => 0,
    }
}

fn family(template: &Template) -> u8 {
    let outer = template.layers.iter().find(|layer| matches!(layer.kind, LayerKind::Ipv4 | LayerKind::Ipv6));
    if outer.is_some_and(|layer| layer.kind == LayerKind::Ipv6) { 6 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(port: &str, text: &str) -> Job {
        Job {
            port: port.into(),
            what: SendContent::Template(Template::parse(text, "t").unwrap()),
            rate: None,
            rate_text: "max".into(),
            on_the_wire: false,
            count: Some(1),
            duration_ms: 0,
            burst: 1,
            batch: 1,
            threads: 1,
            stamps: linux::port::StampSource::None,
        }
    }

    #[test]
    fn only_frames_that_a_capture_can_count_are_numbered() {
        let of = |text: &str| numbering(&job("int:a0", text));
        let message = of("eth / ip / udp / stamp stream=7").unwrap();
        assert_eq!((message.header.as_str(), message.stream, message.first), ("message", 7, 0));
        let pktgen = of("eth / vlan / ip / udp / pktgen").unwrap();
        assert_eq!((pktgen.header.as_str(), pktgen.first), ("pktgen", 1));
        for (text, word) in [
            ("eth / ip / udp / payload zero", "without a number"),
            ("eth / ip / udp / stamp seq=5", "sets 'seq'"),
            ("eth / ip / udp / pktgen sec=5", "sets 'sec'"),
            ("eth / ip / udp / stamp stream=1..3", "varies"),
            ("eth / ip / stamp", "behind UDP"),
        ] {
            assert!(of(text).unwrap_err().what.contains(word), "{text}");
        }
        assert!(numbering(&job("live:a0", "eth / ip / udp / pktgen")).is_err());
    }

    #[test]
    fn lengths_are_told_where_all_are_the_same_and_plain() {
        let length = |text: &str| length(&Template::parse(text, "t").unwrap());
        assert_eq!(length("eth / ip / udp / stamp"), 60);
        assert_eq!(length("size 500 / eth / ipv6 / udp / stamp"), 500);
        assert_eq!(length("size 60..99 / eth / ip / udp / stamp"), 0);
        assert_eq!(length("size 500 / eth / vlan / ip / udp / stamp"), 0);
        assert_eq!(family(&Template::parse("eth / ipv6 / udp / stamp", "t").unwrap()), 6);
    }
}

//! `pathlab flow queues`: the queues of a switch's ports, what they may carry and what they carried.
//!
//! **What.** Descriptions (OpenFlow 1.4 section 7.3.5.21; in 1.3 the message of section 7.2.2) and counters (7.3.5.9), joined by port and number.
//!
//! **Price.** OpenFlow gives rates in tenths of a percent of the port's speed, so a rate in bit/s is that, times the speed that the switch
//! reports (an older one of 1.3 may report none): to a thousandth of the port, no better.

use super::ask::{AskArgs, counted, multipart, nanoseconds};
use super::state::{cell, named, port_list, speed_kbps};
use crate::output::{Output, object, table};
use clap::Args;
use flow::PortNo;
use flow::openflow::bytes::{Tagged, Version};
use flow::openflow::message::Body;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::{Port, Queue, QueueConfigRequest, QueueProperty, QueueRequest, QueueStats};
use flow::text::{Piece, value};
use record::{Problem, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use switch::client::Client;

/// Every queue of a port.
const ALL_QUEUES: u32 = 0xffff_ffff;
/// A rate above this is switched off (`OFPQ_MIN_RATE_UNCFG`, `OFPQ_MAX_RATE_UNCFG`).
const WHOLE: u16 = 1000;
/// The first reserved number, which is not a port (`OFPP_MAX`).
const FIRST_RESERVED: u32 = 0xffff_ff00;

/// Flags of `pathlab flow queues`.
#[derive(Args)]
pub struct QueuesArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Only those of this port: its number, or its name.
    #[arg(value_name = "PORT")]
    port: Option<String>,
}

#[derive(Serialize, Default)]
struct OneQueue {
    port: String,
    name: Option<String>,
    queue: u32,
    min_permille: Option<u16>,
    max_permille: Option<u16>,
    min_bps: Option<u64>,
    max_bps: Option<u64>,
    frames: Option<u64>,
    bytes: Option<u64>,
    dropped: Option<u64>,
    age_ns: Option<u64>,
}

/// The number of the port that was asked for; every port when none was.
fn chosen(text: Option<&str>, ports: &[Port]) -> Result<u32> {
    let Some(text) = text else { return Ok(PortNo::ANY.0) };
    if let Some(port) = ports.iter().find(|port| port.name.text() == text) {
        return Ok(port.port_no);
    }
    value::port(Piece::line(text)).map(|port| port.0).map_err(|_| {
        let names: Vec<String> = ports.iter().map(named).collect();
        Problem::input(format!("the switch has no port '{text}'"))
            .help(format!("it has {}", names.join(", ")))
    })
}

/// What the queues are. 1.3 has a message for one port, and for all of them only where the switch knows `OFPP_ANY`.
fn described(client: &mut Client, port: u32, ports: &[Port]) -> Result<Vec<Queue>> {
    if client.version() != Version::V13 {
        return Ok(multipart!(client, QueueDesc(QueueRequest { port_no: port, queue_id: ALL_QUEUES })));
    }
    let mut ask = |port: u32| match client.ask(Body::QueueConfigRequest(QueueConfigRequest { port }))? {
        Body::QueueConfigReply(reply) => Ok(reply.queues),
        body => Err(Problem::input(format!("the switch answers with {}, not queues", body.name()))),
    };
    match ask(port) {
        Err(_) if port == PortNo::ANY.0 => {
            let real = ports.iter().map(|one| one.port_no).filter(|number| *number < FIRST_RESERVED);
            let each: Vec<Vec<Queue>> = real.map(ask).collect::<Result<_>>()?;
            Ok(each.into_iter().flatten().collect())
        }
        answer => answer,
    }
}

/// What they counted.
pub fn stats(client: &mut Client, port: u32) -> Result<Vec<QueueStats>> {
    Ok(multipart!(client, QueueStats(QueueRequest { port_no: port, queue_id: ALL_QUEUES })))
}

/// One row for each queue that was described or counted, by port and number.
fn join(described: &[Queue], stats: &[QueueStats], ports: &[Port]) -> Vec<OneQueue> {
    let mut rows: BTreeMap<(u32, u32), OneQueue> = BTreeMap::new();
    let of = |number: u32| ports.iter().find(|port| port.port_no == number);
    let new = |port: u32, queue: u32| OneQueue {
        port: PortNo(port).to_string(),
        name: of(port).map(|port| port.name.text()),
        queue,
        ..OneQueue::default()
    };
    for one in described {
        let key = (one.port_no, one.queue_id);
        let row = rows.entry(key).or_insert_with(|| new(key.0, key.1));
        let speed = of(key.0).and_then(speed_kbps).map(u64::from);
        for property in &one.properties {
            let (rate, permille, bps) = match property {
                QueueProperty::MinRate(rate) => (rate.rate, &mut row.min_permille, &mut row.min_bps),
                QueueProperty::MaxRate(rate) => (rate.rate, &mut row.max_permille, &mut row.max_bps),
                QueueProperty::Experimenter(_) => continue,
            };
            *permille = (rate <= WHOLE).then_some(rate);
            // Thousandths of kbit/s are bit/s.
            *bps = permille.and_then(|rate| Some(speed? * u64::from(rate)));
        }
    }
    for one in stats {
        let key = (one.port_no, one.queue_id);
        let row = rows.entry(key).or_insert_with(|| new(key.0, key.1));
        (row.frames, row.bytes) = (counted(one.tx_packets), counted(one.tx_bytes));
        row.dropped = counted(one.tx_errors);
        row.age_ns = (one.duration_sec != u32::MAX).then(|| nanoseconds(one.duration_sec, one.duration_nsec));
    }
    rows.into_values().collect()
}

/// A rate for people: `1.0 % = 10 Mbit/s`.
fn rate(permille: Option<u16>, bps: Option<u64>) -> String {
    let Some(permille) = permille else { return "-".to_owned() };
    let part = format!("{}.{} %", permille / 10, permille % 10);
    match bps {
        None => part,
        Some(bps) if bps >= 1_000_000_000 => format!("{part} = {} Gbit/s", bps as f64 / 1e9),
        Some(bps) if bps >= 1_000_000 => format!("{part} = {} Mbit/s", bps as f64 / 1e6),
        Some(bps) => format!("{part} = {} kbit/s", bps as f64 / 1e3),
    }
}

/// Prints the queues.
pub fn queues(args: &QueuesArgs, output: &Output) -> Result<()> {
    let (queues, openflow) = args.ask.ask(|client| {
        let ports = port_list(client)?;
        let port = chosen(args.port.as_deref(), &ports)?;
        Ok(join(&described(client, port, &ports)?, &stats(client, port)?, &ports))
    })?;
    let switch = &args.ask.switch;
    let document = object! { schema: "pathlab/flow-queues/1", switch, openflow, queues: &queues };
    output.result(&document, |_| {
        let row = |one: &OneQueue| {
            let port = one.name.as_ref().map_or(one.port.clone(), |name| format!("{} {name}", one.port));
            let (min, max) = (rate(one.min_permille, one.min_bps), rate(one.max_permille, one.max_bps));
            let words = vec![port, one.queue.to_string(), min, max];
            words.into_iter().chain([one.frames, one.bytes, one.dropped].map(cell)).collect()
        };
        let headers = ["port", "queue", "at least", "at most", "frames", "bytes", "dropped"];
        match queues.is_empty() {
            true => "no queues\n".to_owned(),
            false => table(4, &headers, queues.iter().map(row).collect()).text(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::openflow::port::QueueRate;

    #[test]
    fn a_queue_may_be_described_only_or_counted_only() {
        let described = [
            Queue {
                port_no: 2,
                queue_id: 10,
                properties: vec![
                    QueueProperty::MinRate(QueueRate { rate: 15 }),
                    QueueProperty::MaxRate(QueueRate { rate: u16::MAX }),
                ],
            },
            Queue { port_no: 1, queue_id: 7, properties: vec![] },
        ];
        let counted = |queue_id, tx_errors, duration_sec| QueueStats {
            port_no: 2,
            queue_id,
            tx_bytes: 900,
            tx_packets: 9,
            tx_errors,
            duration_sec,
            duration_nsec: 5,
            properties: vec![],
        };
        let rows = join(&described, &[counted(10, u64::MAX, u32::MAX), counted(3, 4, 1)], &[]);
        let told: Vec<_> = rows.iter().map(|row| (row.port.as_str(), row.queue, row.frames)).collect();
        assert_eq!(told, [("1", 7, None), ("2", 3, Some(9)), ("2", 10, Some(9))]);
        let ten = &rows[2];
        assert_eq!((ten.min_permille, ten.max_permille, ten.min_bps), (Some(15), None, None));
        assert_eq!((ten.dropped, ten.age_ns), (None, None));
        assert_eq!((rows[1].dropped, rows[1].age_ns), (Some(4), Some(1_000_000_005)));
        assert_eq!(rate(Some(15), Some(15_000_000)), "1.5 % = 15 Mbit/s");
        assert_eq!((rate(Some(7), None).as_str(), rate(None, None).as_str()), ("0.7 %", "-"));
    }
}

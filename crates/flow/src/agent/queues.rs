//! Questions about the queues of ports: what they are (1.3 §7.3.6, 1.4 §7.3.5.21) and what they counted (§7.3.5.9).
//!
//! What a queue is made of is not the model's business: the owner of the ports puts [`Queue`]s there and keeps their
//! counters. Rates travel as tenths of a percent of what the port carries.

use super::Answer;
use crate::error::QueueOpFailed;
use crate::openflow::bytes::duration;
use crate::openflow::port::{self as wire, QueueRequest};
use crate::pipeline::Pipeline;
use crate::port::{Port, PortNo, Queue};
use ::wire::refuse_if;

/// The queue number that means all.
const ALL: u32 = 0xffff_ffff;
/// The whole of a port.
const WHOLE: u64 = 1000;

/// The queues that a question is about. All of them may be none; a certain one that is not there is an error, as is a
/// port (§7.4.4, `ofp_queue_op_failed_code`).
fn chosen(of: &Pipeline, port: u32, queue: u32) -> Answer<impl Iterator<Item = (&Port, u32, &Queue)>> {
    let any = port == PortNo::ANY.0;
    // Those of the controllers are counted, but have no description.
    let is_known = port == PortNo::CONTROLLER.0 || of.ports.contains_key(&PortNo(port));
    refuse_if(!any && !is_known, QueueOpFailed::BadPort)?;
    let ports = move || of.ports.values().filter(move |one| any || one.number.0 == port);
    let is_known = queue == ALL || ports().any(|port| port.queues.contains_key(&queue));
    refuse_if(!is_known, QueueOpFailed::BadQueue)?;
    let all = ports().flat_map(|port| port.queues.iter().map(move |(id, row)| (port, *id, row)));
    Ok(all.filter(move |(_, id, _)| queue == ALL || *id == queue))
}

/// What they counted. A question about the port CONTROLLER gets the queues of packet-ins: one for each port by which frames came in, with
/// its number, what was sent as sent, and as errors ("dropped due to overrun", §7.3.5.9) what found no room. They are not among all queues, because
/// frames are not put into them by set_queue.
pub(super) fn stats(now: u64, pipeline: &Pipeline, wish: &QueueRequest) -> Answer<Vec<wire::QueueStats>> {
    let stats = |(port, queue_id, queue): (PortNo, u32, &Queue)| {
        let (duration_sec, duration_nsec) = duration(now.saturating_sub(queue.created_ns));
        wire::QueueStats {
            port_no: port.0,
            queue_id,
            tx_bytes: queue.counters.tx_bytes,
            tx_packets: queue.counters.tx_frames,
            tx_errors: queue.counters.tx_errors,
            duration_sec,
            duration_nsec,
            properties: vec![],
        }
    };
    if wish.port_no == PortNo::CONTROLLER.0 {
        let all = pipeline.packet_in_queues.iter();
        let all = all.filter(|(id, _)| [ALL, **id].contains(&wish.queue_id));
        return Ok(all.map(|(id, queue)| stats((PortNo::CONTROLLER, *id, queue))).collect());
    }
    let chosen = chosen(pipeline, wish.port_no, wish.queue_id)?;
    Ok(chosen.map(|(port, id, queue)| stats((port.number, id, queue))).collect())
}

/// What they are (1.4).
pub(super) fn describe(pipeline: &Pipeline, wish: &QueueRequest) -> Answer<Vec<wire::Queue>> {
    Ok(chosen(pipeline, wish.port_no, wish.queue_id)?.map(row).collect())
}

/// What those of a port are (1.3).
pub(super) fn config(pipeline: &Pipeline, port: u32) -> Answer<wire::QueueConfigReply> {
    Ok(wire::QueueConfigReply { port, queues: chosen(pipeline, port, ALL)?.map(row).collect() })
}

fn row((port, queue_id, queue): (&Port, u32, &Queue)) -> wire::Queue {
    let part = |bps: u64| wire::QueueRate { rate: part(bps, port.speed_kbps) };
    let min = queue.min_bps.map(|bps| wire::QueueProperty::MinRate(part(bps)));
    let max = queue.max_bps.map(|bps| wire::QueueProperty::MaxRate(part(bps)));
    wire::Queue { port_no: port.number.0, queue_id, properties: min.into_iter().chain(max).collect() }
}

/// A rate in tenths of a percent, to the nearest one. What is more than nothing is never reported as nothing, and what is
/// more than the port not as more than the whole: that would mean that the rate is switched off.
fn part(bps: u64, speed_kbps: u64) -> u16 {
    let whole = u128::from(speed_kbps.max(1)) * 1000;
    let tenths = (u128::from(bps) * u128::from(WHOLE) + whole / 2) / whole;
    (tenths.min(u128::from(WHOLE)) as u16).max(u16::from(bps > 0))
}

#[cfg(test)]
mod tests {
    use super::wire::{QueueProperty, QueueRate};
    use super::*;
    use crate::port::QueueCounters;

    const ANY: u32 = 0xffff_ffff;

    fn pipeline() -> Pipeline {
        let mut pipeline = Pipeline::default();
        for number in 1..=2 {
            let mut port = Port::new(PortNo(number), "p", [2, 0, 0, 0, 0, number as u8]);
            port.speed_kbps = 1_000_000;
            let counters = QueueCounters { tx_frames: 5, tx_bytes: 500, tx_errors: 1 };
            let queue = |min_bps| Queue { min_bps, max_bps: Some(50_000_000), counters, created_ns: 7 };
            port.queues.insert(10 * number, queue(Some(10_000_000)));
            port.queues.insert(50, queue(None));
            pipeline.add_port(port);
        }
        pipeline
    }

    fn ids(found: Answer<Vec<super::wire::Queue>>) -> Vec<(u32, u32)> {
        found.unwrap().iter().map(|queue| (queue.port_no, queue.queue_id)).collect()
    }

    #[test]
    fn a_question_is_about_one_queue_or_many() {
        let pipeline = pipeline();
        let ask = |port_no, queue_id| describe(&pipeline, &QueueRequest { port_no, queue_id });
        assert_eq!(ids(ask(ANY, ANY)), [(1, 10), (1, 50), (2, 20), (2, 50)]);
        assert_eq!(ids(ask(2, ANY)), [(2, 20), (2, 50)]);
        assert_eq!(ids(ask(ANY, 50)), [(1, 50), (2, 50)]);
        assert_eq!(ids(ask(2, 20)), [(2, 20)]);
        assert_eq!(ask(2, 10), Err(QueueOpFailed::BadQueue.into()));
        assert_eq!(ask(3, ANY), Err(QueueOpFailed::BadPort.into()));
        assert_eq!(ids(Ok(config(&pipeline, 1).unwrap().queues)), [(1, 10), (1, 50)]);
    }

    #[test]
    fn packet_ins_have_queues_for_who_asks_for_them_by_name() {
        let mut pipeline = pipeline();
        let counters = QueueCounters { tx_frames: 3, tx_bytes: 180, tx_errors: 4 };
        for port in [1, 2] {
            pipeline.packet_in_queues.insert(port, Queue { counters, ..Queue::default() });
        }
        let ask = |port_no, queue_id| {
            let rows = stats(0, &pipeline, &QueueRequest { port_no, queue_id }).unwrap();
            rows.iter()
                .map(|row| (row.port_no, row.queue_id, row.tx_packets, row.tx_errors))
                .collect::<Vec<_>>()
        };
        let controller = PortNo::CONTROLLER.0;
        assert_eq!(ask(controller, ANY), [(controller, 1, 3, 4), (controller, 2, 3, 4)]);
        assert_eq!(ask(controller, 2), [(controller, 2, 3, 4)]);
        assert!(ask(ANY, ANY).iter().all(|row| row.0 != controller));
    }

    #[test]
    fn counters_and_rates_are_told() {
        let pipeline = pipeline();
        let wish = QueueRequest { port_no: 1, queue_id: 10 };
        let stats = stats(2_000_000_007, &pipeline, &wish).unwrap();
        assert_eq!(
            (stats[0].tx_packets, stats[0].tx_bytes, stats[0].tx_errors, stats[0].duration_sec),
            (5, 500, 1, 2)
        );
        let queues = describe(&pipeline, &wish).unwrap();
        let rate = |rate| QueueRate { rate };
        assert_eq!(
            queues[0].properties,
            [QueueProperty::MinRate(rate(10)), QueueProperty::MaxRate(rate(50))]
        );
    }

    #[test]
    fn a_rate_is_a_part_of_the_port() {
        for (bps, kbps, expected) in [
            (10_000_000, 10_000_000, 1),
            (14_999_999, 10_000_000, 1),
            (15_000_000, 10_000_000, 2),
            (1, 10_000_000, 1),
            (0, 10_000_000, 0),
            (u64::MAX, 1, 1000),
            (8, 0, 8),
        ] {
            assert_eq!(part(bps, kbps), expected, "{bps} of {kbps}");
        }
    }
}

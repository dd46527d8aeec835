//! The latency of a test by layer of its path, from the stamps of chosen messages; and whether the parts are all of it.
//!
//! **What.** [`split`] finds the way that most messages went, takes the time between each two stamps that follow each other, and
//! compares the mean of the sums with what the application measured by itself. [`text`] is what people see, [`trace`] what viewers of
//! traces open.
//!
//! **Why one way.** A part has a meaning only between the same two stamps. A message that lacks a stamp, or went another way, is counted and in no
//! part.
//!
//! **The error.** Parts of one message add up to the time from its plan to its last stamp exactly. What the application measured goes on
//! from there to its own clock, and is the mean of all messages, not of the chosen ones, which the stamps delay: [`LayerSplit::error_ns`] is as large as these
//! three may make it.
//!
//! **Price.** A sort of each part.

pub mod trace;

use crate::table::{Table, folded};
use record::layers::{LayerObservation, LayerPart, LayerSplit, StampPlace, StampPoint, StampedMessage};
use record::unit::{count, many, number, time_ns};
use record::{Latency, TestRecord};
use std::collections::BTreeMap;

/// The most that it takes from the last stamp to the application's clock, but for what scales with the latency: the end of the program that stamps, the
/// return of the system call, the clock. A bound that was chosen, not a measurement; what was seen of the sums is in `docs/layers.md`.
const LAST_NS: f64 = 3_000.0;
/// The share of the latency by which that may be longer, because a thread can lose its CPU there as anywhere.
const LAST_SHARE: f64 = 0.02;
/// What a stamp takes where the kernel does not measure programs.
const STAMP_NS: f64 = 200.0;
/// Standard errors to each side of a mean. Two would call one of 20 sums that are whole not so.
const SIGMAS: f64 = 3.0;

/// Splits what was measured by layer; none where no message has stamps.
pub fn split(seen: &LayerObservation, measured: Option<&Latency>) -> Option<LayerSplit> {
    let ways = ways(seen);
    let (way, messages) = ways.iter().max_by_key(|(way, messages)| (messages.len(), way.len()))?;
    let first = usize::from(messages.iter().all(|stamps| is_unplanned(stamps)));
    let parts = (first..way.len()).map(|at| part(seen, way, at, messages)).collect();
    let sums: Vec<f64> = messages.iter().filter_map(|stamps| Some(stamps.last()?.1 as f64)).collect();
    let all: usize = ways.values().map(Vec::len).sum();
    let stamped = seen.messages.len().max(all);
    Some(LayerSplit {
        parts,
        complete: messages.len() as u64,
        incomplete: (stamped - messages.len()) as u64,
        sum_ns: mean(&sums),
        measured_ns: measured.map(|latency| latency.mean),
        error_ns: error_ns(&sums, measured) + stamping_ns(seen, way.len()),
    })
}

/// How far the mean of these sums may be from the measured one: half the width of the interval of a mean of so many of all messages, and the way from
/// the last stamp to the application's clock.
fn error_ns(sums: &[f64], measured: Option<&Latency>) -> f64 {
    let n = sums.len() as f64;
    let all = measured.map_or(n, |latency| latency.count as f64).max(n);
    let mean = mean(sums);
    let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    // The spread of all messages is known, too, and may be larger than that of the chosen.
    let spread = measured.map_or(0.0, |latency| latency.mdev).max(variance.sqrt());
    let chosen = SIGMAS * spread * (1.0 / n - 1.0 / all).max(0.0).sqrt();
    let last = LAST_NS + LAST_SHARE * measured.map_or(mean, |latency| latency.mean);
    chosen + last
}

/// What so many stamps make a chosen message later than the others: not more than so many runs of the programs, most of which found nothing to stamp.
fn stamping_ns(seen: &LayerObservation, stamps: usize) -> f64 {
    let run = seen.cost_ns.filter(|_| seen.runs > 0).map(|cost| cost as f64 / seen.runs as f64);
    run.unwrap_or(STAMP_NS) * stamps as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Messages by the places of their stamps.
fn ways(seen: &LayerObservation) -> BTreeMap<Vec<u32>, Vec<Vec<(u32, i64)>>> {
    let mut ways: BTreeMap<Vec<u32>, Vec<Vec<(u32, i64)>>> = BTreeMap::new();
    for message in &seen.messages {
        let stamps = sound(seen, message);
        if is_whole(seen, &stamps) {
            ways.entry(stamps.iter().map(|(place, _)| *place).collect()).or_default().push(stamps);
        }
    }
    ways
}

/// It is not known where one ended that has no stamp of an application behind that of a frame, nor where one began without a plan if its first stamp, from
/// which its times are then counted, is not that of a call.
fn is_whole(seen: &LayerObservation, stamps: &[(u32, i64)]) -> bool {
    let point = |stamp: Option<&(u32, i64)>| {
        stamp.and_then(|(place, _)| seen.places.get(*place as usize)).map(|place| place.point)
    };
    let begun =
        point(stamps.first()) == Some(StampPoint::Called) || stamps.first().is_some_and(|(_, at)| *at != 0);
    begun && point(stamps.last()) == Some(StampPoint::Returned)
}

/// Where no plan is known, times begin with the call: nothing lies in front of that.
pub(super) fn is_unplanned(stamps: &[(u32, i64)]) -> bool {
    stamps.first().is_some_and(|(_, at)| *at == 0)
}

/// The stamps of a message without those that cannot be its own: a socket that could be read is believed if the message was then read at that
/// node.
pub(super) fn sound(seen: &LayerObservation, message: &StampedMessage) -> Vec<(u32, i64)> {
    let place = |at: usize| seen.places.get(message.stamps.get(at)?.0 as usize);
    let holds = |at: usize| match place(at) {
        None => false,
        Some(own) if own.point == StampPoint::Delivered => {
            place(at + 1).is_some_and(|next| next.point == StampPoint::Returned && next.node == own.node)
        }
        Some(_) => true,
    };
    message.stamps.iter().enumerate().filter(|(at, _)| holds(*at)).map(|(_, stamp)| *stamp).collect()
}

/// The part that ends with that stamp of the way.
fn part(seen: &LayerObservation, way: &[u32], at: usize, messages: &[Vec<(u32, i64)>]) -> LayerPart {
    let before = |stamps: &[(u32, i64)]| at.checked_sub(1).map_or(0, |before| stamps[before].1);
    let mut took: Vec<u64> =
        messages.iter().map(|stamps| (stamps[at].1 - before(stamps)).max(0) as u64).collect();
    took.sort_unstable();
    let rank = |share: f64| took[((took.len() as f64 * share).ceil() as usize).clamp(1, took.len()) - 1];
    let (layer, place) = name(at.checked_sub(1).map(|before| place(seen, way[before])), place(seen, way[at]));
    LayerPart {
        layer,
        place,
        mean_ns: took.iter().map(|&ns| ns as f64).sum::<f64>() / took.len() as f64,
        p50_ns: rank(0.5),
        p99_ns: rank(0.99),
        max_ns: rank(1.0),
    }
}

fn place(seen: &LayerObservation, number: u32) -> &StampPlace {
    &seen.places[number as usize]
}

/// The stages of a message in an application and on a leg, each with the layer that it ends.
const STAGES: [(StampPoint, &str); 7] = [
    (StampPoint::Called, "application"),
    (StampPoint::Queued, "send"),
    (StampPoint::Started, "qdisc"),
    (StampPoint::Arrived, "driver"),
    (StampPoint::Polled, "softirq"),
    (StampPoint::Delivered, "protocols"),
    (StampPoint::Returned, "socket"),
];

/// The layer between two stamps, and where it is. Before the first one the message is the application's.
pub(super) fn name(from: Option<&StampPlace>, to: &StampPlace) -> (String, String) {
    let stage = |point: StampPoint| STAGES.iter().position(|(one, _)| *one == point).unwrap_or(0);
    let begin = from.map_or(StampPoint::Returned, |from| from.point);
    let layer = match (begin, to.point) {
        // A node hands it on: bridge, router, program, or the kernel's own answer to an echo.
        (StampPoint::Polled, StampPoint::Queued) => "forwarding".to_owned(),
        // So does a bridge whose own interface gets it.
        (StampPoint::Polled, StampPoint::Arrived | StampPoint::Polled) => "forwarding".to_owned(),
        (StampPoint::Polled, StampPoint::Started) => "forwarding+qdisc".to_owned(),
        // That of a VLAN, bond or tunnel hands it to the interface below.
        (StampPoint::Started, StampPoint::Queued) => "driver".to_owned(),
        (StampPoint::Started, StampPoint::Started) => "driver+qdisc".to_owned(),
        (begin, end) => {
            let first = if begin == StampPoint::Returned { 0 } else { stage(begin) + 1 };
            let names = STAGES.get(first..=stage(end)).unwrap_or_default().iter().map(|(_, layer)| *layer);
            names.collect::<Vec<_>>().join("+")
        }
    };
    let words = |place: &StampPlace| match place.interface.as_str() {
        "" => place.node.clone(),
        interface => format!("{}:{interface}", place.node),
    };
    let place = match from {
        Some(from) if from.node != to.node => format!("{} → {}", words(from), words(to)),
        Some(from)
            if from.interface != to.interface && !from.interface.is_empty() && !to.interface.is_empty() =>
        {
            format!("{} → {}", words(from), to.interface)
        }
        Some(from) if to.interface.is_empty() => from.node.clone(),
        _ if to.point == StampPoint::Queued && begin != StampPoint::Polled => to.node.clone(),
        _ => words(to),
    };
    (if layer.is_empty() { "unknown".into() } else { layer }, place)
}

/// What each layer took, in the order of the way.
pub fn table(split: &LayerSplit) -> Table {
    let ns = |ns: f64| time_ns(ns);
    let row = |part: &LayerPart| {
        vec![
            part.layer.clone(),
            part.place.clone(),
            ns(part.p50_ns as f64),
            ns(part.p99_ns as f64),
            ns(part.max_ns as f64),
            ns(part.mean_ns),
            format!("{} %", number(100.0 * part.mean_ns / split.sum_ns.max(1.0))),
        ]
    };
    let headers = ["layer", "where", "p50", "p99", "max", "mean", "of all"];
    let rows = split.parts.iter().map(row).collect();
    Table { headers: headers.map(str::to_owned).to_vec(), rows, words: 2 }
}

/// The sum beside what the application measured, what is missing, and what the stamps themselves took.
pub fn notes(test: &TestRecord) -> Vec<String> {
    let Some(seen) = &test.layers else { return vec![] };
    let mut notes: Vec<String> = seen.split.iter().flat_map(|split| sums(split, seen.every)).collect();
    notes.extend(seen.missing.iter().map(|why| format!("Not seen: {why}.")));
    if seen.split.is_none() && seen.missing.is_empty() {
        notes.push("No message has stamps from where it began to the application that received it.".into());
    }
    if seen.lost > 0 {
        notes.push(format!("{} found no room.", many(seen.lost, "stamp")));
    }
    notes.extend(seen.cost_ns.map(|cost| {
        // The programs run before and behind the traffic, too, and at events of others.
        let share = |window| format!(", {} % of one CPU", number(100.0 * cost as f64 / window as f64));
        let share = Some(seen.window_ns).filter(|window| *window > 0).map_or(String::new(), share);
        format!(
            "The stamps took {}{share}, for {} runs of their programs.",
            time_ns(cost as f64),
            count(seen.runs)
        )
    }));
    notes
}

fn sums(split: &LayerSplit, every: u64) -> Vec<String> {
    let ns = |ns: f64| time_ns(ns.abs());
    let sum = format!("The parts sum to {} (mean)", ns(split.sum_ns));
    let beside = match (split.measured_ns, split.difference_ns(), split.adds_up()) {
        (Some(measured), Some(difference), Some(adds_up)) => {
            let more = if difference < 0.0 { "less" } else { "more" };
            let words = if adds_up { "within" } else { "beyond" };
            format!(
                "; the application measured {}, {} {more}: {words} the error of {}.",
                ns(measured),
                ns(difference),
                ns(split.error_ns)
            )
        }
        _ => "; the application measured nothing beside.".into(),
    };
    let chosen = format!(
        "{} with all stamps, one in {every} chosen; {} without.",
        many(split.complete, "message"),
        count(split.incomplete)
    );
    vec![sum + &beside, chosen]
}

/// The table and what is to be known of it; nothing for a test without stamps.
pub fn text(test: &TestRecord) -> String {
    let table = test.layers.as_ref().and_then(|seen| seen.split.as_ref()).map(table);
    let table = table.map_or(String::new(), |table| table.text());
    let notes = notes(test).into_iter().map(|line| folded(&format!("{line}\n"), 2));
    table + &notes.collect::<String>()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

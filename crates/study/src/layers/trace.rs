//! Stamps as a trace that viewers open (ui.perfetto.dev, `chrome://tracing`).
//!
//! **What.** [`events`] makes the Trace Event Format: complete events (`ph` `X`, `ts` and `dur` in microseconds), and metadata (`ph` `M`) with the names and
//! the order of rows. Of each test there is a process for its messages, in whose rows the parts of a message lie inside the message,
//! and one for each node, with a row for each of its layers.
//!
//! **Why rows are split.** Events of one row must lie inside each other or apart. Messages that are on the way at the same time therefore get
//! rows of their own.
//!
//! **Price.** Some 100 bytes for each part of a message, twice; at most [`MOST_TRACED`] messages of a test.

use super::{is_unplanned, name, sound};
use crate::findings::title;
use crate::table::in_plan_order;
use record::layers::{LayerObservation, StampedMessage};
use record::{RunRecord, TestRecord};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Messages of a test in a trace.
pub const MOST_TRACED: usize = 400;

/// A part of a message, or a message.
#[derive(Debug, Clone)]
struct Slice {
    name: String,
    begin_ns: u64,
    end_ns: u64,
    sequence: u64,
}

/// How every trace begins; by it a file is known to be a trace of pathlab that may be written again.
pub const MARK: &str = r#"{"otherData":{"program":"pathlab"},"displayTimeUnit":"ns","traceEvents":"#;

/// The trace of a run as text; none where no test has stamps.
pub fn text(run: &RunRecord) -> Option<String> {
    let events = events(run);
    (!events.is_empty()).then(|| format!("{MARK}{}}}\n", Value::from(events)))
}

/// The events of a run.
pub fn events(run: &RunRecord) -> Vec<Value> {
    let tests: Vec<(&TestRecord, &LayerObservation)> =
        in_plan_order(run).into_iter().filter_map(|test| Some((test, test.layers.as_ref()?))).collect();
    let all = tests.iter().flat_map(|(_, seen)| &seen.messages);
    let zero_ns = all.map(|message| message.planned_ns).min().unwrap_or(0);
    let mut trace = Trace { zero_ns, events: vec![], last_id: 0 };
    for (test, seen) in tests {
        trace.test(test, seen);
    }
    trace.events
}

struct Trace {
    zero_ns: u64,
    events: Vec<Value>,
    /// The last number that a process or a row got. No two of them share one: to Perfetto row 0 and the row with the number of its process are the same.
    last_id: u32,
}

impl Trace {
    fn test(&mut self, test: &TestRecord, seen: &LayerObservation) {
        let (title, is_of_ports) = (&*title(test), test.spec.kind.is_bytes() && test.spec.streams > 1);
        if seen.messages.is_empty() {
            return;
        }
        let step = seen.messages.len().div_ceil(MOST_TRACED).max(1);
        let mut messages = vec![];
        let mut nodes: BTreeMap<(u32, String), Vec<(u32, Slice)>> = BTreeMap::new();
        for message in seen.messages.iter().step_by(step) {
            let parts = parts(seen, message);
            let Some((_, _, last)) = parts.last() else { continue };
            let whole = Slice {
                name: message_name(message.sequence, is_of_ports),
                begin_ns: message.planned_ns,
                end_ns: last.end_ns,
                sequence: message.sequence,
            };
            messages.push((whole, parts.iter().map(|(.., slice)| slice.clone()).collect::<Vec<_>>()));
            for (at, (node, order, slice)) in parts.into_iter().enumerate() {
                nodes.entry((order, node)).or_default().push((at as u32, slice));
            }
        }
        self.messages(title, messages);
        nodes.into_iter().for_each(|((_, node), slices)| self.node(title, &node, slices));
    }

    /// The messages, each with its parts inside it.
    fn messages(&mut self, title: &str, mut messages: Vec<(Slice, Vec<Slice>)>) {
        messages.sort_by_key(|(whole, _)| whole.begin_ns);
        let process = self.process(&format!("{title}: messages"));
        let mut rows = Rows::default();
        for (whole, parts) in &messages {
            let row = rows.of(whole, || self.row(process, "messages"));
            self.slice(process, row, whole);
            parts.iter().for_each(|part| self.slice(process, row, part));
        }
    }

    /// The layers of a node, in the order of the way.
    fn node(&mut self, title: &str, node: &str, slices: Vec<(u32, Slice)>) {
        let process = self.process(&format!("{title}: node {node}"));
        let mut layers: BTreeMap<(u32, String), Vec<Slice>> = BTreeMap::new();
        for (at, slice) in slices {
            layers.entry((at, slice.name.clone())).or_default().push(slice);
        }
        for ((_, layer), mut slices) in layers {
            slices.sort_by_key(|slice| slice.begin_ns);
            let mut rows = Rows::default();
            for slice in &slices {
                let row = rows.of(slice, || self.row(process, &layer));
                self.slice(process, row, slice);
            }
        }
    }

    fn id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    fn process(&mut self, name: &str) -> u32 {
        let pid = self.id();
        self.events.push(json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } }));
        self.events.push(
            json!({ "ph": "M", "name": "process_sort_index", "pid": pid, "args": { "sort_index": pid } }),
        );
        pid
    }

    /// A new row of a process, below those that it has.
    fn row(&mut self, pid: u32, name: &str) -> u32 {
        let tid = self.id();
        for (what, value) in [("name", json!(name)), ("sort_index", json!(tid))] {
            let event = format!("thread_{what}");
            self.events
                .push(json!({ "ph": "M", "name": event, "pid": pid, "tid": tid, "args": { what: value } }));
        }
        tid
    }

    fn slice(&mut self, pid: u32, tid: u32, slice: &Slice) {
        let us = |ns: u64| ns as f64 / 1000.0;
        self.events.push(json!({
            "ph": "X", "cat": "layer", "name": slice.name, "pid": pid, "tid": tid,
            "ts": us(slice.begin_ns.saturating_sub(self.zero_ns)),
            "dur": us(slice.end_ns.saturating_sub(slice.begin_ns)),
            "args": { "sequence": slice.sequence },
        }));
    }
}

/// What a message is called: of several connections those of each have numbers of their own.
fn message_name(sequence: u64, is_of_ports: bool) -> String {
    match is_of_ports {
        true => format!("message {} from port {}", sequence as u32, sequence >> 32),
        false => format!("message {sequence}"),
    }
}

/// Rows of one kind, each with the end of its last event.
#[derive(Default)]
struct Rows(Vec<(u32, u64)>);

impl Rows {
    /// The first row that is free then, or a new one. Slices come in the order of their begins.
    fn of(&mut self, slice: &Slice, new: impl FnOnce() -> u32) -> u32 {
        let free = self.0.iter().position(|(_, end)| *end <= slice.begin_ns).unwrap_or_else(|| {
            self.0.push((new(), 0));
            self.0.len() - 1
        });
        self.0[free].1 = slice.end_ns;
        self.0[free].0
    }
}

/// The parts of a message, each with the node where it begins and the place of that node among those of the test.
fn parts(seen: &LayerObservation, message: &StampedMessage) -> Vec<(String, u32, Slice)> {
    let (mut from, mut begin) = (None, message.planned_ns);
    let mut parts = vec![];
    let mut stamps = sound(seen, message);
    if is_unplanned(&stamps) {
        from = seen.places.get(stamps.remove(0).0 as usize);
    }
    for (number, ns) in stamps {
        let to = &seen.places[number as usize];
        let (layer, place) = name(from, to);
        let node = &from.unwrap_or(to).node;
        let order = seen.places.iter().position(|one| one.node == *node).unwrap_or(0) as u32;
        let end = message.planned_ns.saturating_add_signed(ns).max(begin);
        let slice = Slice {
            name: format!("{layer} {place}"),
            begin_ns: begin,
            end_ns: end,
            sequence: message.sequence,
        };
        parts.push((node.clone(), order, slice));
        (from, begin) = (Some(to), end);
    }
    parts
}

//! The path of one frame through the pipeline, step by step, like `ovs-appctl ofproto/trace`.
//!
//! **What.** [`trace`] does what the interpreter does and keeps every [`TraceLine`]: which rule matched in
//! which table, which actions did what, where copies went, and why a frame ended.
//!
//! **Why.** "Why is my frame not forwarded" is answered by reading. The steps come from the interpreter itself, so that
//! what is printed is what happens.
//!
//! **Price.** Tracing counts and learns as a frame does: trace on a copy of the pipeline.

use crate::action::Action;
use crate::drop::Drop;
use crate::interpret::{self, InputFrame, Step, StepObserver, Verdict};
use crate::pipeline::Pipeline;
use crate::text;

/// One step, as words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceLine {
    /// How deep in groups.
    pub depth: usize,
    /// The kind of step: `frame`, `table`, `instruction`, `action`, `changed`, `unchanged`, `bucket`, `meter`, `sent`,
    /// `packet-in`, `dropped`.
    pub kind: &'static str,
    /// What happened.
    pub text: String,
}

/// All steps, and what came of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The steps.
    pub lines: Vec<TraceLine>,
    /// The frames that left, and the packet-ins.
    pub verdict: Verdict,
}

impl Trace {
    /// The steps, one a line, indented by their depth.
    pub fn text(&self) -> String {
        let line = |line: &TraceLine| {
            format!("{:indent$}{}: {}\n", "", line.kind, line.text, indent = 2 * line.depth)
        };
        self.lines.iter().map(line).collect()
    }
}

/// What becomes of a controller's frame where there are actions, else of a frame that comes in by a port.
pub fn trace(pipeline: &mut Pipeline, now: u64, input: InputFrame<'_>, actions: Option<&[Action]>) -> Trace {
    let text = format!("in_port={}, {}", input.port, wire::text::line(input.frame));
    let lines = vec![TraceLine { depth: 0, kind: "frame", text }];
    let mut teller = TraceWriter { lines, depth: 0, before: input.frame.to_vec() };
    let mut verdict = Verdict::default();
    interpret::watched(pipeline, now, input, actions, &mut verdict, &mut teller);
    Trace { lines: teller.lines, verdict }
}

struct TraceWriter {
    lines: Vec<TraceLine>,
    depth: usize,
    /// The frame as it was in the step before.
    before: Vec<u8>,
}

impl TraceWriter {
    fn tell(&mut self, indent: usize, kind: &'static str, text: String) {
        self.lines.push(TraceLine { depth: self.depth + indent, kind, text });
    }
}

impl StepObserver for TraceWriter {
    fn step(&mut self, step: Step<'_>, frame: &[u8]) {
        match step {
            Step::Matched(table, rule) => self.tell(0, "table", text::rule::show(table, rule)),
            Step::Missed(table) => {
                self.tell(0, "table", format!("{table}: no rule matches; the frame is dropped"))
            }
            Step::Instruction(instruction) => {
                let shown = text::action::show_instruction(instruction);
                // Actions to apply tell themselves.
                if !matches!(instruction, crate::Instruction::ApplyActions(_)) {
                    self.tell(1, "instruction", shown);
                }
            }
            Step::Counted(_) => {}
            Step::ActionSet(set) if set.is_empty() => {}
            Step::ActionSet(set) => {
                let actions: Vec<Action> = set.in_order().cloned().collect();
                self.tell(0, "action set", text::action::show_list(&actions));
            }
            Step::Action(action) => self.tell(1, "action", text::action::show(action)),
            Step::Edited(Ok(())) => {
                let text = edited(&self.before, frame);
                self.tell(2, "changed", text);
            }
            Step::Edited(Err(why)) => self.tell(2, "unchanged", why.to_string()),
            Step::Bucket(group, index) => {
                self.depth += 1;
                self.tell(0, "bucket", format!("{index} of group {group}"));
            }
            Step::BucketEnd => self.depth -= 1,
            Step::NoBucket(group) => {
                self.tell(1, "bucket", format!("none of group {group} is live, or it has none"))
            }
            Step::Metered(id, None) => self.tell(2, "meter", format!("{id} lets it pass")),
            Step::Metered(id, Some(band)) => self.tell(2, "meter", format!("{id}: band {band} is exceeded")),
            Step::Sent(port) => self.tell(2, "sent", format!("by port {port}, {} bytes", frame.len())),
            Step::PacketIn(reason, bytes) => {
                self.tell(2, "packet-in", format!("{reason:?}, {bytes} of {} bytes", frame.len()));
            }
            Step::Dropped(why) => self.tell(1, "dropped", sentence(why).to_owned()),
        }
        frame.clone_into(&mut self.before);
    }
}

/// A frame after a change, and where its line does not show what changed (a TTL, a priority), the bytes.
fn edited(before: &[u8], after: &[u8]) -> String {
    let line = wire::text::line(after);
    if before.len() != after.len() || line != wire::text::line(before) {
        return line;
    }
    let places: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
    let run = |run: &[usize]| {
        let range = run[0]..run[0] + run.len();
        format!("{}: {} → {}", run[0], text::hex(&before[range.clone()]), text::hex(&after[range]))
    };
    let runs: Vec<String> = places.chunk_by(|at, next| at + 1 == *next).map(run).collect();
    match runs.is_empty() {
        true => format!("{line}; every byte is as it was"),
        false => format!("{line}; at byte {}", runs.join(", ")),
    }
}

/// Why a frame ended, and what may help.
fn sentence(why: Drop) -> &'static str {
    match why {
        Drop::NotReceived => "the port is configured not to receive (no_recv or port_down)",
        Drop::Fragment => "it is a fragment, and the switch is configured to drop those",
        Drop::Meter => "the meter drops it",
        Drop::InvalidTtl => "its TTL cannot be decremented",
        Drop::InPort => "it came in by this port; to send it back the action is IN_PORT",
        Drop::NoPort => "there is no such port",
        Drop::NotSent => "the port does not send (no_fwd, port_down, or no link)",
        Drop::NoBucket => "what goes to this group goes nowhere",
        Drop::NoOutput => "there is neither an output nor a group in the action set",
        Drop::Bridge => {
            "the bridge behind NORMAL keeps it: its destination is where it came from, or the bridge itself"
        }
        Drop::TooManyCopies => "groups made too many copies of one frame",
        Drop::NoPacketIn => {
            "no packet-in: the port is configured so (no_packet_in), or the controllers' meter drops it"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_the_line_does_not_show_has_its_bytes() {
        let frame = text::frame::parse("eth / ip6 ttl=64 / udp").unwrap();
        let line = wire::text::line(&frame);
        let changed = |at: &[usize]| {
            let mut after = frame.clone();
            at.iter().for_each(|at| after[*at] ^= 1);
            edited(&frame, &after)
        };
        assert_eq!(changed(&[]), line.clone() + "; every byte is as it was");
        assert_eq!(changed(&[21]), line.clone() + "; at byte 21: 40 → 41");
        assert_eq!(changed(&[16, 17, 21]), line.clone() + "; at byte 16: 0000 → 0101, 21: 40 → 41");
        assert!(!changed(&[5]).contains("at byte"), "an address is in the line");
    }
}

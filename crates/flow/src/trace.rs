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
    let (mut teller, mut verdict) = (TraceWriter { lines, depth: 0 }, Verdict::default());
    interpret::watched(pipeline, now, input, actions, &mut verdict, &mut teller);
    Trace { lines: teller.lines, verdict }
}

struct TraceWriter {
    lines: Vec<TraceLine>,
    depth: usize,
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
            Step::Edited(Ok(())) => self.tell(2, "changed", wire::text::line(frame)),
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

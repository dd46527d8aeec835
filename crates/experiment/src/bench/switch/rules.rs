//! The rules on the wire, and frames that meet them.
//!
//! **What.** So many rules: an access list in ClassBench's shape for what comes in by port 1, and below it the two rules of the switch journals.
//! All of port 1 goes to port 2 and back, so that whatever rule a frame meets, it arrives, and is counted.
//!
//! **Price.** Rules that drop or edit are not measured here.

use crate::bench::flow::classbench::{self, Family, Random};
use crate::bench::flow::pipelines::{FRAME, FlowHeader};
use flow::action::{Action, Instruction};
use flow::matching::MatchField;
use flow::rule::Rule;
use flow::text::rule::show;
use flow::{Field, Match, PortNo};
use record::{Problem, Result};

/// Rules as text, and frames of flows that meet them.
#[derive(Debug)]
pub struct WireRules {
    /// One line each, as ovs-ofctl writes them.
    pub lines: Vec<String>,
    /// One frame of each flow, without FCS.
    pub frames: Vec<Vec<u8>>,
}

/// More rules take minutes to be made and gigabytes to be kept.
const MOST: usize = 1_000_000;

/// So many rules, and one frame for each of so many flows.
///
/// # Errors
/// Input: fewer than two rules, or more than [`MOST`].
pub fn make(count: usize, flows: usize, seed: u64) -> Result<WireRules> {
    let listed = checked(count)? - 2;
    let access: Vec<Rule> =
        classbench::rules(Family::Acl, listed, seed).iter().map(from_port_1).collect::<Result<_>>()?;
    let mut lines: Vec<String> = access.iter().map(|rule| show(0, rule)).collect();
    lines.extend(
        ["in_port=1,priority=0 actions=output:2", "in_port=2,priority=0 actions=output:1"].map(String::from),
    );
    let mut random = Random(seed);
    let frames = (0..flows as u64).map(|flow| {
        let met = (!access.is_empty()).then(|| &access[random.below(access.len() as u64) as usize]);
        frame(met.map_or_else(FlowHeader::any, |rule| FlowHeader::of(&rule.matching)), flow)
    });
    Ok(WireRules { lines, frames: frames.collect() })
}

/// The number, if so many rules can be.
///
/// # Errors
/// Input: fewer than two rules, or more than [`MOST`].
pub fn checked(count: usize) -> Result<usize> {
    match count {
        2..=MOST => Ok(count),
        _ => Err(Problem::input(format!("{count} rules: there are 2 to {MOST}")).at("--rules")),
    }
}

/// The rule, for what comes in by port 1, and goes out by port 2.
fn from_port_1(rule: &Rule) -> Result<Rule> {
    let in_port = MatchField::exact(Field::InPort, 1u32);
    let fields = std::iter::once(in_port).chain(rule.matching.fields().iter().copied());
    let matching = Match::new(fields)
        .map_err(|error| Problem::host(format!("a rule of the generator is none: {error}")))?;
    let output = Action::Output { port: PortNo(2), max_len: 0 };
    // Priority 0 is that of the two rules below.
    Ok(Rule::new(rule.priority.max(1), matching, vec![Instruction::ApplyActions(vec![output])]))
}

/// A frame of a flow with this header, for a station that does not exist.
fn frame(header: FlowHeader, flow: u64) -> Vec<u8> {
    let mut bytes = [0; FRAME];
    header.write(flow, &mut bytes);
    // The source varies where the header leaves it open; the least significant bit of the first octet stays 0 (unicast).
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8]);
    wire::checksum::write_ipv4(&mut bytes[14..34]);
    match bytes[23] {
        6 => bytes[46] = 0x50,
        17 => bytes[38..40].copy_from_slice(&26u16.to_be_bytes()),
        _ => {}
    }
    bytes.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Pipeline;
    use flow::interpret::{InputFrame, Verdict, receive};
    use flow::port::Port;
    use flow::rule::FlowModCommand;

    /// Truth is the interpreter's: every frame leaves by port 2, and most meet a rule of the list.
    #[test]
    fn every_frame_goes_to_port_2() {
        for count in [2, 100, 1000] {
            let rules = make(count, 64, 7).unwrap();
            assert_eq!((rules.lines.len(), rules.frames.len()), (count, 64));
            let mut pipeline = Pipeline::default();
            for number in [1, 2] {
                pipeline.add_port(Port::new(PortNo(number), "p", [2, 0, 0, 0, 0, number as u8]));
            }
            for line in &rules.lines {
                let change = flow::text::rule::flow_mod(FlowModCommand::Add, line).unwrap();
                pipeline.flow_mod(0, &change).unwrap();
            }
            for frame in &rules.frames {
                let mut verdict = Verdict::default();
                receive(&mut pipeline, 0, InputFrame::new(PortNo(1), frame), &mut verdict);
                let ports: Vec<_> = verdict.sent.iter().map(|output| output.port).collect();
                assert_eq!(ports, [PortNo(2)]);
            }
            let listed = pipeline.table(0).unwrap().rules().filter(|(_, entry)| entry.rule.priority > 0);
            let met: u64 = listed.map(|(_, entry)| entry.frames).sum();
            assert_eq!(met > 32, count > 2, "{met} of 64 frames met a rule of the list");
        }
    }

    #[test]
    fn numbers_of_rules_that_cannot_be_are_refused() {
        for count in [1, MOST + 1] {
            assert!(make(count, 1, 1).unwrap_err().to_string().contains("there are 2 to 1000000"));
        }
    }
}

//! What a controller does with its switches, one scenario each.
//!
//! **What.** [`Scenario::begin`] gives the changes that a new switch gets, [`Learner::packet_in`] the answer to a frame that it
//! does not know where to send.
//!
//! **Why.** To measure a switch it has to be filled with rules, in the same way every time. `iperf` is the smallest: two
//! rules, each with a transaction and a cookie of its own. `learning` is the classic that every controller begins with.
//!
//! **Price.** One switch knows nothing of another: in a ring of them `hub` and `learning` flood forever.

use flow::action::{Action, Instruction, WHOLE_FRAME};
use flow::client;
use flow::field::Field;
use flow::group::{ALL_GROUPS, Group, GroupMod, GroupType};
use flow::matching::MatchField;
use flow::meter::{ALL_METERS, Meter, MeterFlags, MeterMod};
use flow::numbered::ModCommand;
use flow::openflow::message::Body;
use flow::openflow::rule::PacketIn;
use flow::pipeline::Change;
use flow::rule::{FlowMod, FlowModCommand, Rule};
use flow::{Match, PortNo};
use std::collections::HashMap;

/// Seconds without a frame after which a learned rule goes.
const LEARNED_SECONDS: u16 = 60;
/// Above the rule for unknown frames, below what people write.
const LEARNED_PRIORITY: u16 = 100;
/// Addresses that are remembered at most: a sender of invented ones fills no memory.
const MOST_ADDRESSES: usize = 1 << 16;

/// What a controller does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scenario {
    /// Port 1 to 2 and 2 to 1.
    Iperf,
    /// Learns where addresses are and makes rules for them.
    Learning,
    /// Everything everywhere.
    Hub,
    /// Nothing anywhere.
    DropAll,
    /// These changes of rules, groups and meters.
    Replay(Vec<Change>),
}

fn add(matching: Match, priority: u16, cookie: u64, port: Option<Action>) -> FlowMod {
    let instructions = port.map(|action| Instruction::ApplyActions(vec![action]));
    let mut rule = Rule::new(priority, matching, instructions.into_iter().collect());
    rule.cookie = cookie;
    FlowMod::new(FlowModCommand::Add, 0, rule)
}

fn output(port: PortNo) -> Action {
    let max_len = if port == PortNo::CONTROLLER { WHOLE_FRAME } else { 0 };
    Action::Output { port, max_len }
}

fn no_groups() -> Change {
    let group = Group { id: ALL_GROUPS, kind: GroupType::All, buckets: vec![] };
    Change::Group(GroupMod { command: ModCommand::Delete, group })
}

fn no_meters() -> Change {
    let meter = Meter { id: ALL_METERS, flags: MeterFlags::default(), bands: vec![] };
    Change::Meter(MeterMod { command: ModCommand::Delete, meter })
}

/// What a change says to a switch.
///
/// # Panics
/// Never for the changes of a scenario: rules, groups and meters.
pub fn body(change: &Change) -> Body {
    match change {
        Change::Flow(change) => client::flow_mod(change),
        Change::Group(change) => client::group_mod(change),
        Change::Meter(change) => client::meter_mod(change),
        Change::Port(_) | Change::Table(_) => unreachable!("no scenario changes ports or tables"),
    }
}

/// A change as text.
pub fn show(change: &Change) -> String {
    match change {
        Change::Flow(change) => flow::text::rule::show(change.table, &change.rule),
        Change::Group(change) => flow::text::group::show(&change.group),
        Change::Meter(change) => flow::text::meter::show(&change.meter),
        Change::Port(_) | Change::Table(_) => String::new(),
    }
}

impl Scenario {
    /// What a new switch gets: first every rule is deleted, and every group and meter when there will be some.
    pub fn begin(&self) -> Vec<Change> {
        let miss = |port: Option<PortNo>| vec![add(Match::all(), 0, 1, port.map(output))];
        let cross = |from: u32, to: u32| {
            let matching = Match::unchecked(vec![MatchField::exact(Field::InPort, from)]);
            add(matching, flow::text::rule::USUAL_PRIORITY, from.into(), Some(output(PortNo(to))))
        };
        let rules = match self {
            Scenario::Iperf => vec![cross(1, 2), cross(2, 1)],
            Scenario::Learning => miss(Some(PortNo::CONTROLLER)),
            Scenario::Hub => miss(Some(PortNo::FLOOD)),
            Scenario::DropAll => miss(None),
            Scenario::Replay(changes) => {
                let has = |is_one: fn(&Change) -> bool| changes.iter().any(is_one);
                let groups = has(|change| matches!(change, Change::Group(_))).then(no_groups);
                let meters = has(|change| matches!(change, Change::Meter(_))).then(no_meters);
                let emptied = [Change::Flow(client::delete_all())].into_iter().chain(groups).chain(meters);
                return emptied.chain(changes.iter().cloned()).collect();
            }
        };
        std::iter::once(client::delete_all()).chain(rules).map(Change::Flow).collect()
    }
}

/// What a learning controller knows of one switch.
#[derive(Debug, Default)]
pub struct Learner {
    places: HashMap<[u8; 6], PortNo>,
    rules: u64,
}

impl Learner {
    /// The answer to a frame: a rule when the way is known, and the frame on its way. Nothing for a frame that says not where
    /// it came from, or came in part.
    pub fn packet_in(&mut self, packet: &PacketIn) -> Vec<Body> {
        let port = packet.matching.fields.iter().find_map(|one| {
            let is_port = one.class == flow::openflow::oxm::BASIC && one.field == Field::InPort as u8;
            let bytes = one.value.as_slice().try_into().ok().filter(|_| is_port)?;
            Some(PortNo(u32::from_be_bytes(bytes)))
        });
        let frame = &packet.data.0;
        let (Some(port), Some(ends)) = (port, frame.first_chunk::<12>()) else { return vec![] };
        if frame.len() < usize::from(packet.total_len) {
            return vec![];
        }
        let to: [u8; 6] = std::array::from_fn(|byte| ends[byte]);
        let from: [u8; 6] = std::array::from_fn(|byte| ends[6 + byte]);
        let is_group = |address: [u8; 6]| address[0] & 1 == 1;
        let has_room = self.places.len() < MOST_ADDRESSES || self.places.contains_key(&from);
        if !is_group(from) && has_room {
            self.places.insert(from, port);
        }
        let known = self.places.get(&to).copied().filter(|_| !is_group(to));
        let mut answer = vec![];
        if let Some(place) = known.filter(|place| *place != port) {
            self.rules += 1;
            // With the port and the source: a station that moves is seen, because no rule knows it at its new place.
            let number =
                |address: [u8; 6]| address.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
            let matching = Match::unchecked(vec![
                MatchField::exact(Field::InPort, port.0),
                MatchField::exact(Field::EthDst, number(to)),
                MatchField::exact(Field::EthSrc, number(from)),
            ]);
            let mut change = add(matching, LEARNED_PRIORITY, 1 + self.rules, Some(output(place)));
            change.rule.idle_timeout = LEARNED_SECONDS;
            answer.push(client::flow_mod(&change));
        }
        match known {
            // Its receiver has seen it on the same cable.
            Some(place) if place == port => {}
            Some(place) => answer.push(client::packet_out(port, &[output(place)], frame)),
            None => answer.push(client::packet_out(port, &[output(PortNo::FLOOD)], frame)),
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::openflow::bytes::{Bytes, Tagged};
    use flow::openflow::oxm;

    fn came(port: u32, to: u8, from: u8) -> PacketIn {
        let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0];
        frame.resize(60, 0);
        let in_port = oxm::Oxm::basic(Field::InPort as u8, &port.to_be_bytes(), None);
        PacketIn {
            total_len: 60,
            matching: oxm::Match { fields: vec![in_port] },
            data: Bytes(frame),
            ..PacketIn::default()
        }
    }

    fn ports(answer: &[Body]) -> Vec<String> {
        let text = |body: &Body| match body {
            Body::PacketOut(out) => format!("{:?}", out.actions),
            other => other.name().to_owned(),
        };
        answer.iter().map(text).collect()
    }

    #[test]
    fn a_learner_floods_what_it_does_not_know_and_makes_rules_for_what_it_does() {
        let mut learner = Learner::default();
        let flooded = learner.packet_in(&came(1, 2, 1));
        assert_eq!(flooded.len(), 1);
        assert!(ports(&flooded)[0].contains(&PortNo::FLOOD.0.to_string()), "{flooded:?}");
        let known = learner.packet_in(&came(2, 1, 2));
        assert_eq!(ports(&known)[0], "flow_mod");
        assert!(ports(&known)[1].contains("port: 1,"), "{known:?}");
        // The station moved: the next answer says where it is now.
        learner.packet_in(&came(3, 9, 1));
        assert!(ports(&learner.packet_in(&came(2, 1, 2)))[1].contains("port: 3,"));
        // Both on one cable: nothing is to be done.
        learner.packet_in(&came(3, 9, 2));
        assert!(learner.packet_in(&came(3, 1, 2)).is_empty());
    }

    #[test]
    fn half_a_frame_is_not_sent_on() {
        let mut cut = came(1, 2, 1);
        cut.total_len = 1000;
        assert!(Learner::default().packet_in(&cut).is_empty());
        cut.data.0.truncate(9);
        cut.total_len = 9;
        assert!(Learner::default().packet_in(&cut).is_empty());
    }

    #[test]
    fn a_replay_with_groups_and_meters_empties_those_first() {
        let lines = "meter=1,kbps,band=type=drop,rate=5\ngroup_id=2,type=all,bucket=output:1\nactions=meter:1,group:2\n";
        let changes = flow::text::file::parse(lines).unwrap().into_iter().map(|(_, change)| change);
        let all = Scenario::Replay(changes.collect()).begin();
        let mut pipeline = flow::Pipeline::default();
        for number in [1, 2] {
            let port = PortNo(number);
            pipeline.ports.insert(port, flow::port::Port::new(port, "p", [2, 0, 0, 0, 0, number as u8]));
        }
        // Twice, as a switch gets it that calls again: nothing is there already.
        for change in all.iter().chain(&all) {
            pipeline.apply(0, change).unwrap_or_else(|error| panic!("{}: {error}", show(change)));
        }
        assert_eq!((all.len(), pipeline.table(0).unwrap().len()), (6, 1));
        assert!(
            all.iter().all(|change| matches!(
                body(change),
                Body::FlowMod(_) | Body::GroupMod(_) | Body::MeterMod(_)
            ))
        );
    }

    #[test]
    fn iperf_deletes_all_and_crosses_two_ports() {
        let changes = Scenario::Iperf.begin();
        assert_eq!(changes[0], Change::Flow(client::delete_all()));
        let texts: Vec<String> = changes[1..].iter().map(show).collect();
        assert_eq!(
            texts,
            [
                "cookie=0x1,table=0,priority=32768,in_port=1 actions=output:2",
                "cookie=0x2,table=0,priority=32768,in_port=2 actions=output:1"
            ]
        );
    }
}

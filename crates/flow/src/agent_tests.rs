//! The switch as controllers see it: channels of both sides joined in memory, the agent and the pipeline between them, the clock a
//! number. LINCX left half of OpenFlow out; each of its known defects is a test with its name here.

use crate::agent::{Effects, OpenFlowAgent, SwitchIdentity};
use crate::error::{BadRequest, FlowMonitorFailed, HelloFailed};
use crate::interpret::{self, InputFrame, OutputFrame, Verdict};
use crate::openflow::action::{Action, Actions, GotoTable, Instruction, Output, SetQueue, ToGroup, ToMeter};
use crate::openflow::bytes::{Bytes, Hex, Tagged, Version};
use crate::openflow::channel::{Channel, ChannelConfig, Event, Side};
use crate::openflow::fault::Fault;
use crate::openflow::group::*;
use crate::openflow::message::{Body, BundleAdd, Message, Raw, question};
use crate::openflow::misc::*;
use crate::openflow::multipart::{Reply, Request};
use crate::openflow::oxm::{ExperimenterKind, Match, Oxm};
use crate::openflow::port::{PortConfig, PortMod, PortStatsRequest, QueueConfigRequest, QueueRequest};
use crate::openflow::rule::*;
use crate::openflow::sample::Sampler;
use crate::pipeline::Pipeline;
use crate::port::{Port, PortNo};
use proptest::prelude::*;

mod roles;
mod tables;

const SECOND: u64 = 1_000_000_000;
const ANY: u32 = u32::MAX;
const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A switch with four ports and some controllers.
struct World {
    now: u64,
    agent: OpenFlowAgent,
    pipeline: Pipeline,
    /// Of each connection, the switch's end and the controller's.
    wires: Vec<(Channel, Channel)>,
    /// What the switch sent by packet-outs.
    sent: Vec<OutputFrame>,
}

impl World {
    fn new(versions: &[Version]) -> World {
        let mut pipeline = Pipeline::default();
        for number in 1..=4 {
            pipeline.add_port(Port::new(PortNo(number), &format!("p{number}"), ADDRESS));
        }
        let identity = SwitchIdentity { dpid: 0xabc, ..SwitchIdentity::default() };
        let agent = OpenFlowAgent::new(identity, 0);
        let mut world = World { now: 0, agent, pipeline, wires: vec![], sent: vec![] };
        for version in versions {
            world.connect(*version);
        }
        world
    }

    fn connect(&mut self, version: Version) {
        let config = ChannelConfig { versions: vec![version], ..ChannelConfig::default() };
        let client = Channel::new(Side::Client, config, self.now);
        self.wires.push((Channel::new(Side::Switch, ChannelConfig::default(), self.now), client));
        self.run();
        let number = self.wires.len() - 1;
        assert_eq!(self.wires[number].1.next_event(), Some(Event::Up { version }));
    }

    /// Carries bytes and carries out messages until nothing moves.
    fn run(&mut self) {
        loop {
            let mut moved = false;
            for number in 0..self.wires.len() {
                let (switch, client) = &mut self.wires[number];
                let there = std::mem::take(client.output());
                switch.input(self.now, &there);
                moved |= !there.is_empty();
                while let Some(event) = self.wires[number].0.next_event() {
                    self.happened(number, event);
                }
                let (switch, client) = &mut self.wires[number];
                let back = std::mem::take(switch.output());
                client.input(self.now, &back);
                moved |= !back.is_empty();
            }
            if !moved {
                return;
            }
        }
    }

    fn happened(&mut self, number: usize, event: Event) {
        let connection = number as u64;
        let mut effects = Effects::default();
        match event {
            Event::Up { version } => self.agent.up(connection, version, None).unwrap(),
            Event::Message(message) => {
                self.agent.message(self.now, connection, &message, &mut self.pipeline, &mut effects);
            }
            Event::Refused { .. } => {}
            Event::Down(_) => assert!(self.agent.down(connection).is_empty()),
        }
        self.act(effects);
    }

    fn act(&mut self, mut effects: Effects) {
        for packet_in in std::mem::take(&mut effects.verdict.packet_ins) {
            self.agent.packet_in(&packet_in, &mut effects);
        }
        self.sent.extend(effects.verdict.sent);
        for (connection, message) in effects.messages {
            self.wires[connection as usize].0.send(&message).unwrap();
        }
    }

    fn put(&mut self, number: usize, body: Body) -> u32 {
        let client = &mut self.wires[number].1;
        let (xid, version) = (client.next_xid(), client.version().unwrap());
        client.send(&Message { version, xid, body }).unwrap();
        xid
    }

    /// All that a controller hears after it said this; and that nothing of it is about another transaction.
    fn ask(&mut self, number: usize, body: Body) -> Vec<Body> {
        let xid = self.put(number, body);
        self.run();
        let told = self.told(number);
        told.into_iter().filter(|message| message.xid == xid).map(|message| message.body).collect()
    }

    fn told(&mut self, number: usize) -> Vec<Message> {
        let events = std::iter::from_fn(|| self.wires[number].1.next_event());
        events
            .map(|event| match event {
                Event::Message(message) => message,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// What was asked is done, without a word.
    fn done(&mut self, body: Body) {
        assert_eq!(self.ask(0, body), []);
    }

    /// What was asked is refused like this.
    fn refused(&mut self, body: Body) -> Fault {
        match &self.ask(0, body)[..] {
            [Body::Error(error)] => error.fault,
            other => panic!("not one error: {other:?}"),
        }
    }

    fn question(&mut self, request: Request) -> Reply {
        match self.ask(0, question(Version::V13, 0, request).body).pop() {
            Some(Body::MultipartReply(reply)) => reply.body,
            other => panic!("no answer: {other:?}"),
        }
    }

    fn rules(&mut self) -> Vec<FlowStats> {
        match self.question(Request::Flow(all_rules())) {
            Reply::Flow(rules) => rules,
            other => panic!("{other:?}"),
        }
    }

    /// A frame comes in; the ports that it leaves by.
    fn frame(&mut self, port: u32) -> Vec<(u32, Option<u32>)> {
        let mut verdict = Verdict::default();
        interpret::receive(&mut self.pipeline, self.now, InputFrame::new(PortNo(port), &udp()), &mut verdict);
        let sent = verdict.sent.iter().map(|sent| (sent.port.0, sent.queue)).collect();
        self.act(Effects { verdict, ..Effects::default() });
        self.run();
        sent
    }

    fn wait(&mut self, ns: u64) {
        self.now += ns;
        let mut effects = Effects::default();
        self.agent.expire(self.now, &mut self.pipeline, &mut effects);
        self.act(effects);
        self.run();
    }
}

/// UDP over IPv4 from 10.0.0.1 to 10.0.0.2.
fn udp() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 7, 0, 9, 0, 26, 0, 0]);
    frame.resize(60, 0x55);
    frame
}

fn output(port: u32) -> Action {
    Action::Output(Output { port, max_len: 0xffff })
}

fn apply(actions: Vec<Action>) -> Instruction {
    Instruction::ApplyActions(Actions { actions })
}

fn write(actions: Vec<Action>) -> Instruction {
    Instruction::WriteActions(Actions { actions })
}

fn all_rules() -> FlowStatsRequest {
    FlowStatsRequest { table_id: 255, out_port: ANY, out_group: ANY, ..FlowStatsRequest::default() }
}

fn rule(priority: u16, fields: Vec<Oxm>, instructions: Vec<Instruction>) -> FlowMod {
    FlowMod {
        priority,
        matching: Match { fields },
        instructions,
        buffer_id: Hex(ANY),
        out_port: ANY,
        out_group: ANY,
        ..FlowMod::default()
    }
}

fn in_port(port: u32) -> Oxm {
    Oxm::basic(0, &port.to_be_bytes(), None)
}

fn add(rule: FlowMod) -> Body {
    Body::FlowMod(rule)
}

fn group(command: GroupCommand, group_id: u32, kind: GroupType, ports: &[u32]) -> Body {
    let weight = u16::from(kind == GroupType::SELECT);
    let bucket = |port: &u32| Bucket {
        weight,
        watch_port: if kind == GroupType::FF { *port } else { ANY },
        watch_group: ANY,
        actions: vec![output(*port)],
    };
    Body::GroupMod(GroupMod { command, kind, group_id, buckets: ports.iter().map(bucket).collect() })
}

#[test]
fn every_question_of_both_versions_has_its_answer() {
    for version in Version::ALL {
        let mut world = World::new(&[version]);
        let features = world.ask(0, Body::FeaturesRequest(Empty {}));
        assert!(
            matches!(&features[..], [Body::FeaturesReply(features)] if features.datapath_id == Hex(0xabc) && features.n_tables >= 254)
        );
        assert!(matches!(world.ask(0, Body::GetConfigRequest(Empty {}))[..], [Body::GetConfigReply(_)]));
        assert!(matches!(world.ask(0, Body::GetAsyncRequest(Empty {}))[..], [Body::GetAsyncReply(_)]));
        assert!(matches!(world.ask(0, Body::BarrierRequest(Empty {}))[..], [Body::BarrierReply(_)]));
        let role = Body::RoleRequest(Role { role: RoleCode::MASTER, generation_id: Hex(4) });
        assert!(matches!(&world.ask(0, role)[..], [Body::RoleReply(role)] if role.role == RoleCode::MASTER));
        let queues = QueueRequest { port_no: ANY, queue_id: ANY };
        let mut questions = vec![
            Request::Desc(Empty {}),
            Request::Flow(all_rules()),
            Request::Aggregate(all_rules()),
            Request::Table(Empty {}),
            Request::PortStats(PortStatsRequest { port_no: ANY }),
            Request::QueueStats(queues.clone()),
            Request::Group(GroupStatsRequest { group_id: 0xffff_fffc }),
            Request::GroupDesc(Empty {}),
            Request::GroupFeatures(Empty {}),
            Request::Meter(MeterRequest { meter_id: ANY }),
            Request::MeterConfig(MeterRequest { meter_id: ANY }),
            Request::MeterFeatures(Empty {}),
            Request::TableFeatures(vec![]),
            Request::PortDesc(Empty {}),
        ];
        if version == Version::V14 {
            let monitor = MonitorRequest {
                monitor_id: 1,
                out_port: ANY,
                out_group: ANY,
                table_id: 255,
                ..Default::default()
            };
            questions.extend([
                Request::TableDesc(Empty {}),
                Request::QueueDesc(queues),
                Request::FlowMonitor(vec![monitor]),
            ]);
        } else {
            let config = Body::QueueConfigRequest(QueueConfigRequest { port: ANY });
            assert!(matches!(world.ask(0, config)[..], [Body::QueueConfigReply(_)]));
        }
        for request in questions {
            let (number, name) = (request.number(), request.name());
            assert_eq!(world.question(request).number(), number, "{name} in {version}");
        }
    }
}

#[test]
fn a_rule_reads_back_as_it_was_written() {
    for version in Version::ALL {
        let mut world = World::new(&[version]);
        world.done(group(GroupCommand::ADD, 7, GroupType::ALL, &[1]));
        let band = Band::Drop(BandDrop { rate: 1000, burst_size: 0 });
        let meter =
            MeterMod { command: MeterCommand::ADD, flags: MeterFlags::KBPS, meter_id: 9, bands: vec![band] };
        world.done(Body::MeterMod(meter.clone()));
        // Not in the order of the field numbers, and with a mask: as the controller has it.
        let fields = vec![
            Oxm::basic(5, &[8, 0], None),
            Oxm::basic(12, &[10, 0, 0, 0], Some(&[255, 0, 0, 0])),
            Oxm::basic(10, &[17], None),
            Oxm::basic(16, &[0, 9], None),
            in_port(1),
        ];
        let instructions = vec![
            Instruction::Meter(ToMeter { meter_id: 9 }),
            apply(vec![output(2), Action::Group(ToGroup { group_id: 7 })]),
            write(vec![output(3)]),
            Instruction::GotoTable(GotoTable { table_id: 5 }),
        ];
        let wish = FlowMod {
            cookie: Hex(0x1234),
            idle_timeout: 10,
            hard_timeout: 20,
            flags: FlowFlags::SEND_FLOW_REM,
            importance: if version == Version::V14 { 77 } else { 0 },
            ..rule(400, fields, instructions)
        };
        world.done(add(wish.clone()));
        let told = world.rules().remove(0);
        assert_eq!(
            (told.cookie, told.priority, told.flags, told.importance),
            (wish.cookie, 400, wish.flags, wish.importance)
        );
        assert_eq!((told.idle_timeout, told.hard_timeout, told.table_id), (10, 20, 0));
        assert_eq!((told.matching, told.instructions), (wish.matching, wish.instructions));
        // A burst of 0 stays 0.
        let Reply::MeterConfig(configs) = world.question(Request::MeterConfig(MeterRequest { meter_id: 9 }))
        else {
            panic!()
        };
        assert_eq!(configs, [MeterConfig { flags: meter.flags, meter_id: 9, bands: meter.bands }]);
    }
}

#[test]
fn the_frame_after_a_barrier_sees_the_rule_before_it() {
    let mut world = World::new(&[Version::V13]);
    for port in [2, 3, 4, 2] {
        world.put(0, add(rule(1, vec![in_port(1)], vec![apply(vec![output(port)])])));
        assert!(matches!(world.ask(0, Body::BarrierRequest(Empty {}))[..], [Body::BarrierReply(_)]));
        assert_eq!(world.frame(1), [(port, None)]);
    }
}

#[test]
fn lincx_1_a_packet_out_is_carried_out() {
    let mut world = World::new(&[Version::V13]);
    let out = |in_port, data| {
        let (buffer_id, actions) = (Hex(ANY), vec![output(2)]);
        Body::PacketOut(PacketOut { buffer_id, in_port, actions, data: Bytes(data) })
    };
    world.done(out(PortNo::CONTROLLER.0, udp()));
    assert_eq!(world.sent.len(), 1);
    assert_eq!((world.sent[0].port, &world.sent[0].frame), (PortNo(2), &udp()));
    assert_eq!(
        world.refused(out(PortNo::CONTROLLER.0, vec![1, 2])).error(),
        Some(crate::error::BadRequest::BadPacket.into())
    );
}

#[test]
fn lincx_2_timeouts_run_and_zero_is_for_ever() {
    let mut world = World::new(&[Version::V13]);
    for (port, idle_timeout, hard_timeout) in [(1, 0, 0), (2, 3, 0), (3, 0, 5)] {
        world.done(add(FlowMod {
            idle_timeout,
            hard_timeout,
            ..rule(1, vec![in_port(port)], vec![apply(vec![output(4)])])
        }));
    }
    let mut left = vec![];
    for _ in 0..6 {
        world.wait(SECOND);
        world.frame(3);
        left.push(world.rules().len());
    }
    assert_eq!(left, [3, 3, 2, 2, 1, 1]);
    world.wait(1_000_000 * SECOND);
    assert_eq!(world.rules().len(), 1);
}

#[test]
fn lincx_3_a_removed_rule_tells_its_timeouts_in_their_places() {
    for version in Version::ALL {
        let mut world = World::new(&[version]);
        let flags = FlowFlags::SEND_FLOW_REM;
        world.done(add(FlowMod {
            idle_timeout: 3,
            hard_timeout: 500,
            flags,
            ..rule(1, vec![in_port(1)], vec![])
        }));
        world.wait(4 * SECOND);
        let told = world.told(0);
        let [Message { body: Body::FlowRemoved(gone), xid: 0, .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (gone.idle_timeout, gone.hard_timeout, gone.reason),
            (3, 500, RemovedReason::IDLE_TIMEOUT)
        );
        assert_eq!(gone.duration_sec, 4);
    }
}

#[test]
fn lincx_4_an_overlap_is_refused_when_asked_for() {
    let mut world = World::new(&[Version::V13]);
    world.done(add(rule(5, vec![in_port(1)], vec![])));
    let wide = FlowMod { flags: FlowFlags::CHECK_OVERLAP, ..rule(5, vec![], vec![]) };
    let fault = world.refused(add(wide.clone()));
    assert_eq!(fault.error(), Some(crate::error::FlowModFailed::Overlap.into()));
    assert_eq!(world.rules().len(), 1);
    world.done(add(FlowMod { priority: 6, ..wide }));
}

#[test]
fn lincx_5_counters_of_a_table_outlive_its_changes_and_a_table_mod_is_heard() {
    let mut world = World::new(&[Version::V14]);
    for index in 0..3 {
        world.done(add(rule(index, vec![in_port(1)], vec![apply(vec![output(2)])])));
        world.frame(1);
    }
    let Reply::Table(tables) = world.question(Request::Table(Empty {})) else { panic!() };
    assert_eq!((tables[0].active_count, tables[0].lookup_count, tables[0].matched_count), (3, 3, 3));
    let eviction = TableModProperty::Eviction(Eviction { flags: EvictionFlags::IMPORTANCE });
    world.done(Body::TableMod(TableMod {
        table_id: 0,
        config: TableFlags::EVICTION,
        properties: vec![eviction.clone()],
    }));
    let Reply::TableDesc(tables) = world.question(Request::TableDesc(Empty {})) else { panic!() };
    assert_eq!(tables[0].config, TableFlags::EVICTION);
    assert!(tables[0].properties.contains(&eviction));
}

#[test]
fn lincx_6_groups_of_all_types_work_and_go_with_their_rules() {
    let mut world = World::new(&[Version::V13]);
    let use_group =
        |group_id| rule(1, vec![in_port(1)], vec![apply(vec![Action::Group(ToGroup { group_id })])]);
    let fault = world.refused(add(use_group(1)));
    assert_eq!(fault.error(), Some(crate::error::BadAction::BadOutGroup.into()));
    for (kind, ports, expected) in [
        (GroupType::ALL, &[2, 3][..], 2),
        (GroupType::SELECT, &[2, 3], 1),
        (GroupType::INDIRECT, &[2], 1),
        (GroupType::FF, &[2, 3], 1),
    ] {
        world.done(group(GroupCommand::ADD, 1, kind, ports));
        world.done(add(FlowMod { flags: FlowFlags::SEND_FLOW_REM, ..use_group(1) }));
        assert_eq!(world.frame(1).len(), expected, "{kind}");
        let Reply::Group(stats) = world.question(Request::Group(GroupStatsRequest { group_id: 1 })) else {
            panic!()
        };
        assert_eq!(
            (stats[0].packet_count, stats[0].ref_count, stats[0].bucket_stats.len()),
            (1, 1, ports.len())
        );
        world.put(0, group(GroupCommand::DELETE, 1, kind, &[]));
        world.run();
        let told = world.told(0);
        assert!(
            matches!(&told[..], [Message { body: Body::FlowRemoved(gone), .. }] if gone.reason == RemovedReason::GROUP_DELETE)
        );
        assert_eq!((world.rules(), world.frame(1)), (vec![], vec![]));
        assert_eq!(world.question(Request::GroupDesc(Empty {})), Reply::GroupDesc(vec![]));
    }
}

#[test]
fn lincx_7_meters_measure_and_queues_answer() {
    let mut world = World::new(&[Version::V13]);
    let band = Band::Drop(BandDrop { rate: 1, burst_size: 1 });
    let flags = MeterFlags::PKTPS.with(MeterFlags::BURST).with(MeterFlags::STATS);
    world.done(Body::MeterMod(MeterMod {
        command: MeterCommand::ADD,
        flags,
        meter_id: 1,
        bands: vec![band],
    }));
    let instructions = vec![Instruction::Meter(ToMeter { meter_id: 1 }), apply(vec![output(2)])];
    world.done(add(rule(1, vec![], instructions)));
    let sent: usize = (0..5).map(|_| world.frame(1).len()).sum();
    assert_eq!(sent, 1);
    let Reply::Meter(stats) = world.question(Request::Meter(MeterRequest { meter_id: 1 })) else { panic!() };
    assert_eq!(
        (stats[0].flow_count, stats[0].packet_in_count, stats[0].band_stats[0].packet_band_count),
        (1, 5, 4)
    );
    let queues = Request::QueueStats(QueueRequest { port_no: ANY, queue_id: ANY });
    assert_eq!(world.question(queues), Reply::QueueStats(vec![]));
}

#[test]
fn lincx_8_a_queue_in_the_action_set_keeps_output_and_group() {
    let mut world = World::new(&[Version::V13]);
    let queue = Action::SetQueue(SetQueue { queue_id: 5 });
    world.done(add(rule(1, vec![in_port(1)], vec![write(vec![queue.clone(), output(2)])])));
    assert_eq!(world.frame(1), [(2, Some(5))]);
    world.done(group(GroupCommand::ADD, 3, GroupType::ALL, &[3]));
    let to_group = Action::Group(ToGroup { group_id: 3 });
    world.done(add(rule(1, vec![in_port(2)], vec![write(vec![queue, to_group, output(4)])])));
    assert_eq!(world.frame(2), [(3, Some(5))], "a group in the set takes the place of the output");
}

#[test]
fn lincx_9_two_switches_have_rules_of_their_own() {
    let (mut one, mut other) = (World::new(&[Version::V13]), World::new(&[Version::V13]));
    one.done(add(rule(1, vec![], vec![apply(vec![output(2)])])));
    assert_eq!((one.frame(1), other.frame(1)), (vec![(2, None)], vec![]));
    assert_eq!((one.rules().len(), other.rules().len()), (1, 0));
}

#[test]
fn lincx_10_a_packet_in_has_the_whole_frame_because_nothing_is_buffered() {
    for version in Version::ALL {
        let mut world = World::new(&[version]);
        let to_controller = Action::Output(Output { port: PortNo::CONTROLLER.0, max_len: 20 });
        world.done(add(FlowMod { cookie: Hex(9), ..rule(1, vec![], vec![apply(vec![to_controller])]) }));
        world.frame(3);
        let told = world.told(0);
        let [Message { body: Body::PacketIn(packet_in), xid: 0, .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!((packet_in.total_len, &packet_in.data.0[..]), (60, &udp()[..]));
        assert_eq!((packet_in.cookie, packet_in.table_id, packet_in.buffer_id), (Hex(9), 0, Hex(ANY)));
        assert_eq!(packet_in.matching.fields, [in_port(3)]);
    }
}

#[test]
fn a_slave_changes_nothing_and_hears_of_ports_only() {
    let mut world = World::new(&[Version::V14, Version::V14]);
    let role = |role, generation| Body::RoleRequest(Role { role, generation_id: Hex(generation) });
    world.ask(0, role(RoleCode::MASTER, 1));
    world.put(1, role(RoleCode::MASTER, 2));
    world.run();
    let told = world.told(0);
    assert!(
        matches!(&told[..], [Message { body: Body::RoleStatus(status), .. }] if status.role == RoleCode::SLAVE)
    );
    world.told(1);
    assert_eq!(world.refused(add(rule(1, vec![], vec![]))).error(), Some(BadRequest::IsSlave.into()));
    assert_eq!(
        world.refused(role(RoleCode::MASTER, 1)).error(),
        Some(crate::error::RoleRequestFailed::Stale.into())
    );
    let fragments = SwitchConfig { flags: ConfigFlags::FRAG_DROP, miss_send_len: 0 };
    assert_eq!(world.refused(Body::SetConfig(fragments)).error(), Some(BadRequest::IsSlave.into()));
    let down = PortMod {
        port_no: 1,
        hw_addr: crate::openflow::bytes::HardwareAddress(ADDRESS),
        config: PortConfig::PORT_DOWN,
        mask: PortConfig::PORT_DOWN,
        ..PortMod::default()
    };
    world.put(1, Body::PortMod(down));
    let to_controller = Action::Output(Output { port: PortNo::CONTROLLER.0, max_len: 0xffff });
    world.put(1, add(rule(1, vec![], vec![apply(vec![to_controller])])));
    world.run();
    world.frame(2);
    let kinds = |told: Vec<Message>| told.iter().map(|message| message.body.name()).collect::<Vec<_>>();
    assert_eq!(kinds(world.told(0)), ["port_status"]);
    assert_eq!(kinds(world.told(1)), ["port_status", "packet_in"]);
}

fn bundle(kind: BundleCommand) -> Body {
    Body::BundleControl(BundleControl { bundle_id: 1, kind, flags: BundleFlags::ATOMIC, properties: vec![] })
}

/// Adds a message to the bundle, under the transaction that the outer message will have.
fn bundled(world: &mut World, body: Body) -> Vec<Body> {
    let version = world.wires[0].1.version().unwrap();
    let xid = world.wires[0].1.next_xid();
    let inner = Message { version, xid, body }.encode().unwrap();
    let add = BundleAdd { bundle_id: 1, flags: BundleFlags::ATOMIC, message: Raw(inner), properties: vec![] };
    let outer = Message { version, xid, body: Body::BundleAdd(add) };
    world.wires[0].1.send(&outer).unwrap();
    world.run();
    world.told(0).into_iter().map(|message| message.body).collect()
}

/// In 1.3 as extension 230 of the ONF.
#[test]
fn a_bundle_is_all_or_nothing_in_both_versions() {
    Version::ALL.into_iter().for_each(bundle_is_all_or_nothing);
}

fn bundle_is_all_or_nothing(version: Version) {
    let mut world = World::new(&[version]);
    let is =
        |told: Vec<Body>, kind| matches!(&told[..], [Body::BundleControl(control)] if control.kind == kind);
    // The second message fails when it is committed: nothing of the first stays.
    assert!(is(world.ask(0, bundle(BundleCommand::OPEN_REQUEST)), BundleCommand::OPEN_REPLY));
    assert_eq!(bundled(&mut world, add(rule(1, vec![], vec![]))), []);
    let unknown = vec![apply(vec![Action::Group(ToGroup { group_id: 77 })])];
    assert_eq!(bundled(&mut world, add(rule(2, vec![], unknown))), []);
    assert!(is(world.ask(0, bundle(BundleCommand::CLOSE_REQUEST)), BundleCommand::CLOSE_REPLY));
    let told = world.ask(0, bundle(BundleCommand::COMMIT_REQUEST));
    let last = told.last();
    assert!(
        matches!(last, Some(Body::Error(error)) if error.fault.error() == Some(crate::error::BundleFailed::MsgFailed.into())),
        "{told:?}"
    );
    assert_eq!(world.rules(), []);
    // The same without the bad one.
    assert!(is(world.ask(0, bundle(BundleCommand::OPEN_REQUEST)), BundleCommand::OPEN_REPLY));
    assert_eq!(bundled(&mut world, add(rule(1, vec![], vec![]))), []);
    assert_eq!(world.rules(), [], "not before the commit");
    assert!(is(world.ask(0, bundle(BundleCommand::COMMIT_REQUEST)), BundleCommand::COMMIT_REPLY));
    assert_eq!(world.rules().len(), 1);
    // An answer is no question, and there are no more than eight types.
    for kind in [BundleCommand::OPEN_REPLY, BundleCommand(8), BundleCommand(9)] {
        assert_eq!(world.refused(bundle(kind)), Fault::from(crate::error::BundleFailed::BadType), "{kind:?}");
    }
}

#[test]
fn a_controller_that_goes_in_the_middle_of_a_bundle_leaves_the_switch_as_it_was() {
    let mut world = World::new(&[Version::V14]);
    world.done(add(rule(1, vec![in_port(1)], vec![apply(vec![output(2)])])));
    world.ask(0, bundle(BundleCommand::OPEN_REQUEST));
    assert_eq!(
        bundled(&mut world, add(FlowMod { command: FlowCommand::DELETE, ..rule(1, vec![], vec![]) })),
        []
    );
    world.wires[0].0.closed("cut");
    world.run();
    assert!(!world.agent.is_connected());
    assert_eq!(world.frame(1), [(2, None)]);
}

#[test]
fn a_monitor_hears_of_rules_and_of_its_own_in_short() {
    let mut world = World::new(&[Version::V14, Version::V14]);
    world.done(add(rule(1, vec![in_port(1)], vec![])));
    let flags = MonitorFlags(MonitorFlags::ALL.0 & !MonitorFlags::ONLY_OWN.0 & !MonitorFlags::NO_ABBREV.0);
    let monitor = MonitorRequest {
        monitor_id: 1,
        out_port: ANY,
        out_group: ANY,
        table_id: 255,
        flags,
        ..Default::default()
    };
    let Reply::FlowMonitor(first) = world.question(Request::FlowMonitor(vec![monitor])) else { panic!() };
    assert!(matches!(&first[..], [Update::Initial(_)]));
    world.put(1, add(rule(2, vec![in_port(2)], vec![apply(vec![output(3)])])));
    world.run();
    let updates = |world: &mut World| -> Vec<Update> {
        world
            .told(0)
            .into_iter()
            .flat_map(|message| match message.body {
                Body::MultipartReply(reply) => match reply.body {
                    Reply::FlowMonitor(updates) => updates,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert!(
        matches!(&updates(&mut world)[..], [Update::Added(full)] if full.priority == 2 && full.instructions.len() == 1)
    );
    let xid = world.put(0, add(FlowMod { command: FlowCommand::DELETE, ..rule(0, vec![], vec![]) }));
    world.run();
    assert_eq!(updates(&mut world), [Update::Abbrev(UpdateAbbrev { xid: Hex(xid) })]);
}

/// In 1.3 by extension 187 of the ONF: `own` is in full what others have in short, and a message of its own cancels.
#[test]
fn a_monitor_of_1_3_hears_of_rules_until_it_is_cancelled() {
    let mut world = World::new(&[Version::V13, Version::V14]);
    world.done(add(rule(1, vec![in_port(1)], vec![])));
    let flags = MonitorFlags(MonitorFlags::ALL.0 & !MonitorFlags::ONLY_OWN.0);
    let wish = |flags: MonitorFlags| {
        let (monitor_id, out_port, out_group, table_id) = (1, ANY, ANY, 255);
        let wish = MonitorRequest { monitor_id, out_port, out_group, table_id, flags, ..Default::default() };
        question(Version::V13, 0, Request::FlowMonitor(vec![wish])).body
    };
    let failed = |code: FlowMonitorFailed| Fault { kind: 16, code: code as u16 };
    assert_eq!(world.refused(wish(MonitorFlags::ALL)), failed(FlowMonitorFailed::BadFlags));
    let [Body::MultipartReply(first)] = &world.ask(0, wish(flags))[..] else { panic!() };
    let Reply::FlowMonitor(first) = &first.body else { panic!() };
    assert!(matches!(&first[..], [Update::Added(full)] if full.priority == 1), "{first:?}");
    assert_eq!(world.refused(wish(flags)), failed(FlowMonitorFailed::MonitorExists));
    let heard = |world: &mut World, number: usize, body: Body| -> Vec<Update> {
        world.put(number, body);
        world.run();
        let updates = |message: Message| match message.body {
            Body::MultipartReply(reply) => match reply.body {
                Reply::FlowMonitor(updates) => updates,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        world.told(0).into_iter().flat_map(updates).collect()
    };
    let change = rule(2, vec![in_port(2)], vec![apply(vec![output(3)])]);
    for who in [0, 1] {
        let added = heard(&mut world, who, add(change.clone()));
        assert!(matches!(&added[..], [Update::Added(full)] if full.instructions.len() == 1), "{added:?}");
        let gone = heard(&mut world, who, add(FlowMod { command: FlowCommand::DELETE, ..change.clone() }));
        assert!(
            matches!(&gone[..], [Update::Removed(full)] if full.reason == RemovedReason::DELETE),
            "{gone:?}"
        );
    }
    let cancel = |data: Vec<u8>| {
        let (experimenter, exp_type) = (Hex(0x4f4e_4600), 1870);
        Body::Experimenter(ExperimenterKind { experimenter, exp_type, data: Bytes(data) })
    };
    assert_eq!(world.refused(cancel(vec![0, 0, 1])), Fault::from(BadRequest::BadLen));
    world.done(cancel(vec![0, 0, 0, 1]));
    assert_eq!(heard(&mut world, 1, add(change)), []);
    assert_eq!(world.refused(cancel(vec![0, 0, 0, 1])), failed(FlowMonitorFailed::UnknownMonitor));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever a controller says, the switch answers what must be answered, once and under its number, and lives on, unless the controller
    /// refuses its hello.
    #[test]
    fn any_messages_are_answered_or_refused(v14 in any::<bool>(), seeds in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..12)) {
        let version = Version::ALL[usize::from(v14)];
        let mut world = World::new(&[version]);
        for seed in &seeds {
            let body = Sampler::new(seed, version).message().body;
            // A question in several parts waits for the rest; bundles and roles have replies of their own kind.
            let more = matches!(&body, Body::MultipartRequest(part) if part.flags.0 != 0);
            let silent = matches!(&body, Body::Hello(_) | Body::Error(_) | Body::EchoReply(_));
            let must = matches!(
                &body,
                Body::FeaturesRequest(_) | Body::GetConfigRequest(_) | Body::GetAsyncRequest(_) | Body::BarrierRequest(_)
                    | Body::RoleRequest(_) | Body::MultipartRequest(_) | Body::BundleControl(_) | Body::QueueConfigRequest(_)
            );
            let refused = Fault::from(HelloFailed::Incompatible).kind;
            let ends = matches!(&body, Body::Error(error) if error.fault.kind == refused);
            let name = body.name();
            let replies = world.ask(0, body);
            prop_assert!(!silent || replies.is_empty(), "{} had {:?}", name, replies);
            prop_assert!(!must || more || !replies.is_empty(), "{} had no answer", name);
            prop_assert_eq!(world.wires[0].0.is_down(), ends);
            if ends {
                return Ok(());
            }
            world.frame(1);
            world.told(0);
        }
        world.wait(100 * SECOND);
        prop_assert!(!world.wires[0].0.is_down());
    }
}

proptest! {
    /// The counts in replies about all groups and meters are made in one pass; the slow twin makes one for each.
    #[test]
    fn references_of_one_pass_are_those_of_a_pass_for_each(
        rules in proptest::collection::vec((0u8..3, 1u16..50, 1u32..6, 0u32..4), 0..40),
    ) {
        let mut text = String::new();
        for meter in 1..4 {
            text += &format!("meter={meter},pktps,band=type=drop,rate=5\n");
        }
        for group in 1..6 {
            // The last two send to the first.
            let chain = if group > 3 { ",bucket=actions=group:1" } else { "" };
            text += &format!("group_id={group},type=all,bucket=actions=output:1{chain}\n");
        }
        for (table, priority, group, meter) in rules {
            let meter = if meter == 0 { String::new() } else { format!("meter:{meter},") };
            let twice = if priority % 5 == 0 { format!(",write_actions(group:{group})") } else { String::new() };
            text += &format!("table={table},priority={priority},actions={meter}group:{group}{twice}\n");
        }
        let mut world = World::new(&[Version::V13]);
        crate::text::file::load(&mut world.pipeline, &text).unwrap();
        let Reply::Group(groups) = world.question(Request::Group(GroupStatsRequest { group_id: 0xffff_fffc })) else {
            panic!()
        };
        prop_assert_eq!(groups.len(), 5);
        let pipeline = world.pipeline.clone();
        let rules = || pipeline.tables().flat_map(|table| table.rules().map(|(_, entry)| &entry.rule));
        for group in groups {
            let is_it = |id: &u32| *id == group.group_id;
            let buckets = pipeline.groups().targets().filter(is_it).count();
            let slow = buckets + rules().flat_map(|rule| rule.groups()).filter(is_it).count();
            prop_assert_eq!(group.ref_count as usize, slow);
        }
        let Reply::Meter(meters) = world.question(Request::Meter(MeterRequest { meter_id: u32::MAX })) else { panic!() };
        prop_assert_eq!(meters.len(), 3);
        for meter in meters {
            let uses = |rule: &&std::sync::Arc<crate::rule::Rule>| rule.meters().any(|id| id == meter.meter_id);
            prop_assert_eq!(meter.flow_count as usize, rules().filter(uses).count());
        }
    }
}

//! A controller that sends a million changes without waiting, many of them wrong, and hangs up inside a message. Frames go
//! their way meanwhile; afterwards the tables are those of a model that was given the same messages, and no table holds
//! more than it may.

use crate::client::{ANY, Client, PATIENCE, Running, add, rule};
use crate::random::Dice;
use crate::rough::Traffic;
use flow::agent::{Effects, OpenFlowAgent, SwitchIdentity};
use flow::openflow::bytes::Version;
use flow::openflow::message::{Body, Message, question};
use flow::openflow::misc::Empty;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::rule::{FlowStats, FlowStatsRequest};
use flow::pipeline::Pipeline;
use flow::port::{Port, PortNo};
use flow::rule::FlowModCommand;
use std::time::Duration;

const CHANGES: u32 = 1_000_000;
/// Rules that one table may hold: fewer than come.
const LIMIT: usize = 2_000;
const VERSION: Version = Version::V14;
/// The rule by which the traffic goes; no change below touches it.
const WAY: &str = "priority=60000,in_port=1 actions=output:2";

/// The switch's state machine without sockets and threads, told the same.
struct Model {
    agent: OpenFlowAgent,
    pipeline: Pipeline,
    effects: Effects,
    /// Transaction, type and code of every error.
    errors: Vec<(u32, u16, u16)>,
}

impl Model {
    fn new() -> Model {
        let mut pipeline = Pipeline::new(LIMIT);
        for number in 1..=2 {
            pipeline.add_port(Port::new(
                PortNo(number),
                &format!("p{number}"),
                [2, 0, 0, 0, 0, number as u8],
            ));
        }
        let mut agent = OpenFlowAgent::new(SwitchIdentity::default(), 0);
        agent.up(1, VERSION, None).unwrap();
        Model { agent, pipeline, effects: Effects::default(), errors: vec![] }
    }

    fn tell(&mut self, message: &Message) {
        self.agent.message(0, 1, message, &mut self.pipeline, &mut self.effects);
        for (_, answer) in self.effects.messages.drain(..) {
            match answer.body {
                Body::Error(error) => self.errors.push((answer.xid, error.fault.kind, error.fault.code)),
                other => panic!("a change is answered by {other:?}"),
            }
        }
    }

    fn rules(&mut self) -> Vec<FlowStats> {
        let request = FlowStatsRequest { table_id: 255, out_port: ANY, out_group: ANY, ..Default::default() };
        self.agent.message(
            0,
            1,
            &question(VERSION, 1, Request::Flow(request)),
            &mut self.pipeline,
            &mut self.effects,
        );
        let part = |(_, message): (_, Message)| match message.body {
            Body::MultipartReply(reply) => match reply.body {
                Reply::Flow(rules) => rules,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        self.effects.messages.drain(..).flat_map(part).collect()
    }
}

/// One change by chance; three in four are additions, so that tables fill.
fn change(dice: &mut Dice) -> Body {
    let mut below = |end: u64| dice.any() % end;
    let table = below(4);
    let matching = match below(4) {
        0 => format!("in_port={}", 10 + below(500)),
        1 => format!("ip,nw_dst=10.{}.{}.0/24", below(4), below(256)),
        2 => format!("tcp,tcp_dst={}", below(1000)),
        _ => format!("dl_src=02:00:00:00:{:02x}:{:02x}", below(4), below(256)),
    };
    let head = format!("table={table},priority={},{matching}", 1 + below(20));
    let output = 1 + below(9);
    let actions = match below(40) {
        // Wrong: an earlier table, a group that is not there, a field without its header.
        0 => "goto_table:0".to_owned(),
        1 => "group:7".to_owned(),
        2 => "set_field:5->mpls_label,output:1".to_owned(),
        3..6 => format!("set_field:02:00:00:00:00:07->eth_dst,output:{output}"),
        6..9 => format!("write_actions(output:{output})"),
        _ => format!("output:{output}"),
    };
    if below(4000) == 0 {
        // So that tables are now full and now empty; the first one, where the traffic's rule is, stays full.
        return rule(FlowModCommand::Delete, &format!("table={}", 1 + below(3)));
    }
    match below(100) {
        0..70 => add(&format!("{head},cookie={} actions={actions}", below(1000))),
        // Wrong whenever another rule of that priority meets the same frames.
        70..72 => add(&format!("{head},check_overlap actions={actions}")),
        72..84 => rule(FlowModCommand::ModifyStrict, &format!("{head} actions={actions}")),
        84..97 => rule(FlowModCommand::DeleteStrict, &head),
        97 => rule(FlowModCommand::Modify, &format!("table={table},{matching} actions={actions}")),
        98 => rule(FlowModCommand::Delete, &format!("table={table},{matching}")),
        // Wrong: no such table.
        _ => {
            let mut body = add(&format!("{matching} actions={actions}"));
            if let Body::FlowMod(change) = &mut body {
                change.table_id = 255;
            }
            body
        }
    }
}

/// The errors that are here, until nothing comes or the barrier is answered.
fn errors(client: &mut Client, wait: Duration, errors: &mut Vec<(u32, u16, u16)>) -> bool {
    while let Some(message) = client.next(wait) {
        match message.body {
            Body::Error(error) => errors.push((message.xid, error.fault.kind, error.fault.code)),
            Body::BarrierReply(_) => return true,
            other => panic!("{other:?}"),
        }
    }
    false
}

/// Rules without what depends on time and traffic.
fn timeless(mut rules: Vec<FlowStats>) -> Vec<FlowStats> {
    for rule in &mut rules {
        (rule.duration_sec, rule.duration_nsec, rule.packet_count, rule.byte_count) = (0, 0, 0, 0);
    }
    rules
}

#[test]
fn a_million_changes_and_a_hang_up_leave_the_tables_of_the_model() {
    let mut running = Running::with(2, |config| config.rules = LIMIT);
    let mut witness = running.client(VERSION);
    let mut client = running.client(VERSION);
    let mut model = Model::new();
    let mut dice = Dice::new(1);
    client.must([add(WAY)]);
    model.tell(&Message { version: VERSION, xid: 0, body: add(WAY) });
    let traffic = Traffic::start(&mut running);

    let mut found = vec![];
    let mut bytes = vec![];
    for number in 1..=CHANGES {
        let message = Message { version: VERSION, xid: number, body: change(&mut dice) };
        bytes.extend(message.encode().unwrap());
        model.tell(&message);
        if number % 1000 == 0 || number == CHANGES {
            client.write(&bytes);
            bytes.clear();
            errors(&mut client, Duration::ZERO, &mut found);
        }
    }
    client.send(Body::BarrierRequest(Empty::default()));
    assert!(errors(&mut client, 4 * PATIENCE, &mut found), "the barrier is not answered");
    assert_eq!(found.len(), model.errors.len());
    assert_eq!(found, model.errors);

    // A few more that are right, and half of one that never gets whole.
    for number in 0..500 {
        let body = rule(FlowModCommand::DeleteStrict, &format!("priority=1,in_port={number}"));
        model.tell(&Message { version: VERSION, xid: 0, body: body.clone() });
        bytes.extend(client.bytes(body).1);
    }
    let (_, last) = client.bytes(add("priority=50000,in_port=77 actions=drop"));
    bytes.extend(&last[..last.len() / 2]);
    client.write(&bytes);
    drop(client);

    let expected = timeless(model.rules());
    // The switch may still be reading when another controller asks.
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut rules = timeless(witness.rules());
    while rules != expected && std::time::Instant::now() < deadline {
        rules = timeless(witness.rules());
    }
    assert_eq!(rules.len(), expected.len());
    assert!(rules == expected, "the tables are not those of the model");
    let full = (5, flow::error::FlowModFailed::TableFull as u16);
    let refused = model.errors.iter().filter(|(_, kind, code)| (*kind, *code) == full).count();
    println!(
        "{} errors, {refused} of them because a table is full; {} rules",
        model.errors.len(),
        rules.len()
    );
    assert!(refused > 1000, "tables fill: {refused}");
    for table in 0..4 {
        assert!(rules.iter().filter(|rule| rule.table_id == table).count() <= LIMIT);
    }
    traffic.end();
}

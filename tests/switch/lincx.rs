//! The ten things that LINCX, the compiled switch before this one, left out or got wrong, in a running switch. What a
//! frame meets in one of them is in `tests/cases/lincx.case`.

use crate::client::{ANY, Client, PATIENCE, Running, add, frame, group, meter, packet_out, rule};
use flow::error::{BadAction, FlowModFailed, MeterModFailed};
use flow::numbered::ModCommand;
use flow::openflow::bytes::Version;
use flow::openflow::group::{GroupStatsRequest, MeterRequest};
use flow::openflow::message::Body;
use flow::openflow::misc::{Empty, TableMod};
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::QueueRequest;
use flow::openflow::rule::{FlowRemoved, RemovedReason};
use flow::rule::FlowModCommand;
use std::time::Instant;

fn udp(text: &str) -> Vec<u8> {
    frame(&format!("eth / ip / udp / raw {text}"))
}

fn removed(client: &mut Client) -> FlowRemoved {
    client.wait_for("flow-removed", |message| match &message.body {
        Body::FlowRemoved(removed) => Some(removed.clone()),
        _ => None,
    })
}

/// Frames looked up and matched in a table.
fn looked_up(client: &mut Client, table: u8) -> (u64, u64) {
    let parts = client.question(Request::Table(Empty::default()));
    let rows = parts.into_iter().flat_map(|part| if let Reply::Table(rows) = part { rows } else { vec![] });
    let mut of = rows.filter(|row| row.table_id == table);
    of.next().map(|row| (row.lookup_count, row.matched_count)).expect("the table is there")
}

#[test]
fn lincx_1_a_packet_out_is_done() {
    let mut running = Running::start(2);
    let mut client = running.client(Version::V13);
    client.must([packet_out(1, "output:2", &udp("01"))]);
    assert_eq!(running.end(2).must(), udp("01"));
}

#[test]
fn lincx_2_and_3_timeouts_run_and_flow_removed_says_which() {
    let running = Running::start(1);
    let mut client = running.client(Version::V13);
    client.must([
        add("priority=1,cookie=1,idle_timeout=1,hard_timeout=30,send_flow_rem actions=drop"),
        add("priority=2,cookie=2,send_flow_rem actions=drop"),
    ]);
    let gone = removed(&mut client);
    assert_eq!((gone.cookie.0, gone.reason), (1, RemovedReason::IDLE_TIMEOUT));
    assert_eq!((gone.idle_timeout, gone.hard_timeout), (1, 30));
    client.must([add("priority=1,cookie=3,idle_timeout=30,hard_timeout=1,send_flow_rem actions=drop")]);
    let gone = removed(&mut client);
    assert_eq!((gone.cookie.0, gone.reason), (3, RemovedReason::HARD_TIMEOUT));
    assert_eq!((gone.idle_timeout, gone.hard_timeout), (30, 1));
    // A rule without timeouts outlives them.
    assert_eq!(client.rules().iter().map(|rule| rule.cookie.0).collect::<Vec<_>>(), [2]);
    client.must([rule(FlowModCommand::Delete, "")]);
    assert_eq!(removed(&mut client).reason, RemovedReason::DELETE);
}

#[test]
fn lincx_4_an_overlap_is_refused_when_asked_for() {
    let running = Running::start(2);
    let mut client = running.client(Version::V13);
    client.must([add("in_port=1 actions=drop")]);
    let overlap = (5, FlowModFailed::Overlap as u16);
    assert_eq!(client.refused(add("check_overlap,ip actions=output:1")), overlap);
    client.must([add("ip actions=output:1")]);
    assert_eq!(client.rules().len(), 2);
}

#[test]
fn lincx_5_counters_of_a_table_survive_changes_and_a_table_mod_is_kept() {
    let mut running = Running::start(2);
    let mut client = running.client(Version::V14);
    client.must([add("in_port=1 actions=output:2")]);
    running.end(1).send(&udp("01"));
    running.end(2).must();
    assert_eq!(looked_up(&mut client, 0), (1, 1));
    client
        .must([add("priority=9,in_port=1,udp actions=output:2"), rule(FlowModCommand::Delete, "in_port=2")]);
    running.end(1).send(&udp("02"));
    running.end(2).must();
    assert_eq!(looked_up(&mut client, 0), (2, 2));
    // Eviction, and read back (1.4).
    let config = flow::openflow::misc::TableFlags::EVICTION;
    client.must([Body::TableMod(TableMod { table_id: 3, config, ..Default::default() })]);
    let parts = client.question(Request::TableDesc(Empty::default()));
    let mut rows =
        parts.iter().flat_map(|part| if let Reply::TableDesc(rows) = part { &rows[..] } else { &[] });
    let row = rows.find(|row| row.table_id == 3).expect("table 3");
    assert!(row.config.has(config));
}

#[test]
fn lincx_6_groups_are_checked_deleted_and_counted_all_four_types_work() {
    let mut running = Running::start(3);
    let mut client = running.client(Version::V13);
    let no_group = (2, BadAction::BadOutGroup as u16);
    assert_eq!(client.refused(add("actions=group:7")), no_group);
    for (kind, bucket) in [
        ("all", "bucket=actions=output:2"),
        ("select", "bucket=weight:1,actions=output:2"),
        ("indirect", "bucket=actions=output:2"),
        ("ff", "bucket=watch_port:2,actions=output:2"),
    ] {
        let text = format!("group_id=7,type={kind},{bucket}");
        client.must([group(ModCommand::Add, &text), add("send_flow_rem actions=group:7")]);
        running.end(1).send(&udp("01"));
        assert_eq!(running.end(2).must(), udp("01"), "{kind}");
        let parts = client.question(Request::Group(GroupStatsRequest { group_id: 7 }));
        let [Reply::Group(rows)] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!(
            (rows[0].packet_count, rows[0].ref_count, rows[0].bucket_stats.len()),
            (1, 1, 1),
            "{kind}"
        );
        client.must([group(ModCommand::Delete, &text)]);
        assert_eq!(removed(&mut client).reason, RemovedReason::GROUP_DELETE, "{kind}");
        assert!(client.rules().is_empty());
        assert_eq!(client.refused(add("actions=group:7")), no_group);
    }
}

#[test]
fn lincx_7_meters_measure_and_are_counted_and_queues_are_answered() {
    let mut running = Running::start(2);
    let mut client = running.client(Version::V13);
    let no_meter = (12, MeterModFailed::UnknownMeter as u16);
    assert_eq!(client.refused(add("actions=meter:1,output:2")), no_meter);
    client.must([
        meter("meter=1,pktps,burst,stats,band=type=drop,rate=0,burst_size=1"),
        add("actions=meter:1,output:2"),
    ]);
    for number in 0..5 {
        running.end(1).send(&udp(&format!("{number:02x}")));
    }
    assert_eq!(running.end(2).must(), udp("00"));
    let deadline = Instant::now() + PATIENCE;
    let counted = loop {
        let parts = client.question(Request::Meter(MeterRequest { meter_id: 1 }));
        let [Reply::Meter(rows)] = parts.as_slice() else { panic!("{parts:?}") };
        // Those behind the first may still be on their way.
        if rows[0].packet_in_count >= 5 || Instant::now() > deadline {
            break (rows[0].packet_in_count, rows[0].band_stats[0].packet_band_count);
        }
    };
    assert_eq!(counted, (5, 4));
    running.end(2).nothing();
    let every = QueueRequest { port_no: ANY, queue_id: ANY };
    assert_eq!(client.question(Request::QueueStats(every)), [Reply::QueueStats(vec![])]);
}

#[test]
fn lincx_8_a_queue_or_tunnel_in_the_action_set_leaves_group_and_output_alone() {
    let mut running = Running::start(3);
    let mut client = running.client(Version::V13);
    client.must([
        group(ModCommand::Add, "group_id=1,type=all,bucket=actions=output:3"),
        add("udp actions=write_actions(set_queue:7,set_field:0x5->tun_id,output:2)"),
        add("tcp actions=write_actions(set_queue:7,group:1)"),
    ]);
    running.end(1).send(&udp("01"));
    assert_eq!(running.end(2).must(), udp("01"));
    running.end(1).send(&frame("eth / ip / tcp"));
    assert_eq!(running.end(3).must(), frame("eth / ip / tcp"));
}

#[test]
fn lincx_9_logical_switches_are_apart_and_equal_priorities_keep_their_order() {
    let (mut one, mut other) = (Running::start(3), Running::start(3));
    let (mut first, mut second) = (one.client(Version::V13), other.client(Version::V13));
    first.must([add("ip actions=output:2"), add("in_port=1 actions=output:3")]);
    second.must([add("in_port=1 actions=output:3")]);
    one.end(1).send(&udp("01"));
    assert_eq!(one.end(2).must(), udp("01"));
    other.end(1).send(&udp("02"));
    assert_eq!(other.end(3).must(), udp("02"));
    other.end(2).nothing();
    second.must([rule(FlowModCommand::Delete, "")]);
    assert_eq!((first.rules().len(), second.rules().len()), (2, 0));
}

#[test]
fn lincx_10_a_packet_in_has_its_frame_table_cookie_and_length() {
    let mut running = Running::start(2);
    let mut client = running.client(Version::V13);
    client.must([add("actions=goto_table:1"), add("table=1,cookie=0x77,udp actions=CONTROLLER:20")]);
    running.end(1).send(&udp("0102030405060708"));
    let packet_in = client.wait_for("packet-in", |message| match &message.body {
        Body::PacketIn(packet_in) => Some(packet_in.clone()),
        _ => None,
    });
    let whole = udp("0102030405060708");
    assert_eq!((packet_in.table_id, packet_in.cookie.0), (1, 0x77));
    assert_eq!(usize::from(packet_in.total_len), whole.len());
    assert_eq!(packet_in.data.0, whole, "nothing is buffered, so 20 bytes are no limit");
}

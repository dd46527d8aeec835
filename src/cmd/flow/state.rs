//! `pathlab flow groups`, `meters`, `ports`, `tables`, `show` and `packet-out`: what a switch has besides rules.

use super::ask::{AskArgs, counted, nanoseconds};
use crate::output::Output;
use clap::Args;
use flow::group::{ALL_GROUPS, Group, GroupMod, GroupModCommand, GroupType};
use flow::meter::{ALL_METERS, Meter, MeterFlags, MeterMod, MeterModCommand};
use flow::openflow::group::{GroupStatsRequest, MeterRequest};
use flow::openflow::message::Body;
use flow::openflow::misc::Empty;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::{Port, PortProperty, PortStatsRequest};
use flow::text::{Piece, action, frame, group, meter, value};
use flow::{PortNo, client};
use record::{Problem, Result};
use serde::Serialize;
use study::table::{Table, count};
use switch::client::Client;

/// Flags of `pathlab flow groups` and `meters`.
#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Add this one first, as 'group_id=1,type=all,bucket=output:1' or 'meter=1,kbps,band=type=drop,rate=100'.
    #[arg(long, value_name = "TEXT")]
    add: Vec<String>,
    /// Change this one first; the same text.
    #[arg(long, value_name = "TEXT")]
    modify: Vec<String>,
    /// Delete the one with this number first, or all.
    #[arg(long, value_name = "NUMBER")]
    delete: Vec<String>,
}

/// Flags of `pathlab flow packet-out`.
#[derive(Args)]
pub struct PacketOutArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// What to do with the frame: output:2, TABLE, set_field…
    #[arg(value_name = "ACTIONS")]
    actions: String,
    /// The frame: layers ('eth / ip dst=10.0.0.2 / udp') or hexadecimal digits.
    #[arg(value_name = "FRAME")]
    frame: String,
    /// The port that it seems to have come in by.
    #[arg(long, value_name = "PORT", default_value = "CONTROLLER")]
    in_port: String,
}

#[derive(Serialize)]
struct Sent {
    schema: &'static str,
    switch: String,
    bytes: usize,
}

/// Lets the switch send a frame.
pub fn packet_out(args: &PacketOutArgs, output: &Output) -> Result<()> {
    let at = |place: &'static str| move |what: String| Problem::input(what).at(place);
    let port = value::port(Piece::line(&args.in_port)).map_err(|e| at("--in-port")(e.to_string()))?;
    let actions = action::list(Piece::line(&args.actions)).map_err(|e| at("ACTIONS")(e.to_string()))?;
    let frame = frame::parse(args.frame.trim()).map_err(|e| at("FRAME")(e.to_string()))?;
    let mut client = args.ask.call()?;
    let place = args.ask.place();
    let refused = client.change(&[client::packet_out(port, &actions, &frame)]).map_err(&place)?;
    if let Some(refusal) = refused.first() {
        let what = format!("the switch refuses to send with '{}': {}", args.actions, refusal.fault);
        return Err(place(Problem::input(what)));
    }
    let sent =
        Sent { schema: "pathlab/flow-packet-out/1", switch: args.ask.switch.clone(), bytes: frame.len() };
    output.result(&sent, |sent| format!("a frame of {} bytes given to the switch", sent.bytes))
}

/// What is said of an answer to another question.
pub(super) fn other(reply: &Reply) -> Problem {
    Problem::input(format!("the switch answers with {}, which was not asked for", reply.name()))
}

/// Makes the changes that the flags ask for; the first that is refused is the problem.
fn changes(client: &mut Client, args: &ListArgs, one: impl Fn(Verb, &str) -> Result<Body>) -> Result<()> {
    let lists = [
        (Verb::Add, "--add", &args.add),
        (Verb::Modify, "--modify", &args.modify),
        (Verb::Delete, "--delete", &args.delete),
    ];
    let texts = || lists.iter().flat_map(|(verb, flag, all)| all.iter().map(move |text| (verb, flag, text)));
    let bodies: Vec<Body> =
        texts().map(|(verb, flag, text)| one(*verb, text).map_err(|p| p.at(*flag))).collect::<Result<_>>()?;
    let refused = client.change(&bodies)?;
    match refused.first().and_then(|refusal| Some((refusal.fault, texts().nth(refusal.index)?))) {
        Some((fault, (_, flag, text))) => {
            Err(Problem::input(format!("the switch refuses '{text}': {fault}")).at(*flag))
        }
        None => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Modify,
    Delete,
}

fn number(text: &str, all: u32) -> Result<u32> {
    match text {
        "all" => Ok(all),
        _ => text.parse().map_err(|_| Problem::input(format!("'{text}' is neither a number nor all"))),
    }
}

fn group_change(verb: Verb, text: &str) -> Result<Body> {
    let read = || group::parse(text).map_err(|error| Problem::input(format!("{error} in '{text}'")));
    let (command, group) = match verb {
        Verb::Add => (GroupModCommand::Add, read()?),
        Verb::Modify => (GroupModCommand::Modify, read()?),
        Verb::Delete => {
            let id = number(text, ALL_GROUPS)?;
            (GroupModCommand::Delete, Group { id, kind: GroupType::All, buckets: vec![] })
        }
    };
    Ok(client::group_mod(&GroupMod { command, group }))
}

fn meter_change(verb: Verb, text: &str) -> Result<Body> {
    let read = || meter::parse(text).map_err(|error| Problem::input(format!("{error} in '{text}'")));
    let (command, meter) = match verb {
        Verb::Add => (MeterModCommand::Add, read()?),
        Verb::Modify => (MeterModCommand::Modify, read()?),
        Verb::Delete => {
            let id = number(text, ALL_METERS)?;
            (MeterModCommand::Delete, Meter { id, flags: MeterFlags::default(), bands: vec![] })
        }
    };
    Ok(client::meter_mod(&MeterMod { command, meter }))
}

/// What every list says of itself.
#[derive(Serialize)]
pub(super) struct List<T> {
    schema: &'static str,
    switch: String,
    openflow: String,
    #[serde(flatten)]
    pub(super) body: T,
}

/// A list of this switch.
pub(super) fn list<T>(args: &AskArgs, client: &Client, schema: &'static str, body: T) -> List<T> {
    List { schema, switch: args.switch.clone(), openflow: client.version().to_string(), body }
}

#[derive(Serialize)]
struct Groups {
    groups: Vec<OneGroup>,
}

#[derive(Serialize)]
struct OneGroup {
    group: String,
    id: u32,
    references: Option<u32>,
    frames: Option<u64>,
    bytes: Option<u64>,
    age_ns: Option<u64>,
    buckets: Vec<Counted>,
}

#[derive(Serialize)]
struct Counted {
    frames: Option<u64>,
    bytes: Option<u64>,
}

fn read_groups(client: &mut Client) -> Result<Groups> {
    let described = match client.multipart(Request::GroupDesc(Empty {}))? {
        Reply::GroupDesc(all) => all,
        reply => return Err(other(&reply)),
    };
    let which = GroupStatsRequest { group_id: ALL_GROUPS };
    let stats = match client.multipart(Request::Group(which))? {
        Reply::Group(all) => all,
        reply => return Err(other(&reply)),
    };
    let mut groups = vec![];
    for one in &described {
        let group = client::group(client.version(), one)
            .map_err(|e| Problem::input(format!("group {} cannot be read: {e}", one.group_id)))?;
        let stats = stats.iter().find(|stats| stats.group_id == one.group_id);
        let buckets = stats.iter().flat_map(|stats| &stats.bucket_stats);
        groups.push(OneGroup {
            group: group::show(&group),
            id: one.group_id,
            references: stats.map(|stats| stats.ref_count).filter(|count| *count != u32::MAX),
            frames: stats.and_then(|stats| counted(stats.packet_count)),
            bytes: stats.and_then(|stats| counted(stats.byte_count)),
            age_ns: stats.map(|stats| nanoseconds(stats.duration_sec, stats.duration_nsec)),
            buckets: buckets
                .map(|one| Counted { frames: counted(one.packet_count), bytes: counted(one.byte_count) })
                .collect(),
        });
    }
    groups.sort_by_key(|group| group.id);
    Ok(Groups { groups })
}

/// A counter, or a dash for one that the switch does not keep.
pub(super) fn cell(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), count)
}

/// A table whose first columns are words.
pub(super) fn table(words: usize, headers: &[&str], rows: Vec<Vec<String>>) -> String {
    Table { headers: headers.iter().map(|header| (*header).to_owned()).collect(), rows, words }.text()
}

/// Prints the groups, after changes.
pub fn groups(args: &ListArgs, output: &Output) -> Result<()> {
    let mut client = args.ask.call()?;
    let done = changes(&mut client, args, group_change).and_then(|()| read_groups(&mut client));
    let groups = done.map_err(args.ask.place())?;
    output.result(&list(&args.ask, &client, "pathlab/flow-groups/1", groups), |list| {
        let row = |one: &OneGroup| {
            vec![one.group.clone(), cell(one.references.map(u64::from)), cell(one.frames), cell(one.bytes)]
        };
        table(1, &["group", "references", "frames", "bytes"], list.body.groups.iter().map(row).collect())
    })
}

#[derive(Serialize)]
struct Meters {
    meters: Vec<OneMeter>,
}

#[derive(Serialize)]
struct OneMeter {
    meter: String,
    id: u32,
    rules: Option<u32>,
    frames: Option<u64>,
    bytes: Option<u64>,
    age_ns: Option<u64>,
    bands: Vec<Counted>,
}

fn read_meters(client: &mut Client) -> Result<Meters> {
    let which = MeterRequest { meter_id: ALL_METERS };
    let described = match client.multipart(Request::MeterConfig(which.clone()))? {
        Reply::MeterConfig(all) => all,
        reply => return Err(other(&reply)),
    };
    let stats = match client.multipart(Request::Meter(which))? {
        Reply::Meter(all) => all,
        reply => return Err(other(&reply)),
    };
    let mut meters = vec![];
    for one in &described {
        let meter = client::meter(one)
            .map_err(|e| Problem::input(format!("meter {} cannot be read: {e}", one.meter_id)))?;
        let stats = stats.iter().find(|stats| stats.meter_id == one.meter_id);
        let bands = stats.iter().flat_map(|stats| &stats.band_stats);
        let band = |one: &flow::openflow::group::BandStats| Counted {
            frames: counted(one.packet_band_count),
            bytes: counted(one.byte_band_count),
        };
        meters.push(OneMeter {
            meter: meter::show(&meter),
            id: one.meter_id,
            rules: stats.map(|stats| stats.flow_count).filter(|count| *count != u32::MAX),
            frames: stats.and_then(|stats| counted(stats.packet_in_count)),
            bytes: stats.and_then(|stats| counted(stats.byte_in_count)),
            age_ns: stats.map(|stats| nanoseconds(stats.duration_sec, stats.duration_nsec)),
            bands: bands.map(band).collect(),
        });
    }
    meters.sort_by_key(|meter| meter.id);
    Ok(Meters { meters })
}

/// Prints the meters, after changes.
pub fn meters(args: &ListArgs, output: &Output) -> Result<()> {
    let mut client = args.ask.call()?;
    let done = changes(&mut client, args, meter_change).and_then(|()| read_meters(&mut client));
    let meters = done.map_err(args.ask.place())?;
    output.result(&list(&args.ask, &client, "pathlab/flow-meters/1", meters), |list| {
        let row = |one: &OneMeter| {
            vec![one.meter.clone(), cell(one.rules.map(u64::from)), cell(one.frames), cell(one.bytes)]
        };
        table(1, &["meter", "rules", "frames", "bytes"], list.body.meters.iter().map(row).collect())
    })
}

#[derive(Serialize)]
struct Ports {
    ports: Vec<OnePort>,
}

#[derive(Serialize)]
struct OnePort {
    port: String,
    name: String,
    address: String,
    config: String,
    state: String,
    speed_kbps: Option<u32>,
    rx_frames: Option<u64>,
    tx_frames: Option<u64>,
    rx_bytes: Option<u64>,
    tx_bytes: Option<u64>,
    rx_dropped: Option<u64>,
    tx_dropped: Option<u64>,
    rx_errors: Option<u64>,
    tx_errors: Option<u64>,
}

/// The ports as the switch describes them.
pub(super) fn port_list(client: &mut Client) -> Result<Vec<Port>> {
    match client.multipart(Request::PortDesc(Empty {}))? {
        Reply::PortDesc(all) => Ok(all),
        reply => Err(other(&reply)),
    }
}

/// What a port carries, if the switch says it.
pub(super) fn speed_kbps(port: &Port) -> Option<u32> {
    let speed = port.properties.iter().find_map(|property| match property {
        PortProperty::Ethernet(ethernet) => Some(ethernet.curr_speed),
        _ => None,
    });
    speed.filter(|speed| *speed > 0)
}

fn read_ports(client: &mut Client) -> Result<Ports> {
    let described = port_list(client)?;
    let which = PortStatsRequest { port_no: PortNo::ANY.0 };
    let stats = match client.multipart(Request::PortStats(which))? {
        Reply::PortStats(all) => all,
        reply => return Err(other(&reply)),
    };
    let ports = described.iter().map(|one| {
        let stats = stats.iter().find(|stats| stats.port_no == one.port_no);
        OnePort {
            port: PortNo(one.port_no).to_string(),
            name: one.name.text(),
            address: one.hw_addr.0.map(|byte| format!("{byte:02x}")).join(":"),
            config: one.config.to_string(),
            state: one.state.to_string(),
            speed_kbps: speed_kbps(one),
            rx_frames: stats.and_then(|stats| counted(stats.rx_packets)),
            tx_frames: stats.and_then(|stats| counted(stats.tx_packets)),
            rx_bytes: stats.and_then(|stats| counted(stats.rx_bytes)),
            tx_bytes: stats.and_then(|stats| counted(stats.tx_bytes)),
            rx_dropped: stats.and_then(|stats| counted(stats.rx_dropped)),
            tx_dropped: stats.and_then(|stats| counted(stats.tx_dropped)),
            rx_errors: stats.and_then(|stats| counted(stats.rx_errors)),
            tx_errors: stats.and_then(|stats| counted(stats.tx_errors)),
        }
    });
    Ok(Ports { ports: ports.collect() })
}

/// Prints the ports.
pub fn ports(args: &AskArgs, output: &Output) -> Result<()> {
    let mut client = args.call()?;
    let ports = read_ports(&mut client).map_err(args.place())?;
    output.result(&list(args, &client, "pathlab/flow-ports/1", ports), |list| {
        let row = |one: &OnePort| {
            let words = [&one.port, &one.name, &one.address, &one.state].map(String::clone);
            let numbers = [one.rx_frames, one.tx_frames, one.rx_dropped, one.tx_dropped].map(cell);
            words.into_iter().chain(numbers).collect()
        };
        let headers =
            ["port", "name", "address", "state", "rx frames", "tx frames", "rx dropped", "tx dropped"];
        table(4, &headers, list.body.ports.iter().map(row).collect())
    })
}

#[derive(Serialize)]
struct Tables {
    tables: Vec<OneTable>,
}

#[derive(Serialize)]
struct OneTable {
    table: u8,
    rules: u32,
    lookups: Option<u64>,
    matched: Option<u64>,
}

fn read_tables(client: &mut Client) -> Result<Tables> {
    let stats = match client.multipart(Request::Table(Empty {}))? {
        Reply::Table(all) => all,
        reply => return Err(other(&reply)),
    };
    let tables = stats.iter().map(|one| OneTable {
        table: one.table_id,
        rules: one.active_count,
        lookups: counted(one.lookup_count),
        matched: counted(one.matched_count),
    });
    Ok(Tables { tables: tables.collect() })
}

/// Prints the tables; for people only those with rules or frames.
pub fn tables(args: &AskArgs, output: &Output) -> Result<()> {
    let mut client = args.call()?;
    let tables = read_tables(&mut client).map_err(args.place())?;
    output.result(&list(args, &client, "pathlab/flow-tables/1", tables), |list| {
        let all = &list.body.tables;
        let busy = |one: &&OneTable| one.rules > 0 || one.lookups.is_some_and(|frames| frames > 0);
        let row = |one: &OneTable| {
            vec![one.table.to_string(), count(one.rules.into()), cell(one.lookups), cell(one.matched)]
        };
        let rows: Vec<_> = all.iter().filter(busy).map(row).collect();
        let others = all.len() - rows.len();
        let rest = if others > 0 { format!("{others} more tables are empty\n") } else { String::new() };
        table(1, &["table", "rules", "lookups", "matched"], rows) + &rest
    })
}

#[derive(Serialize)]
struct Shown {
    dpid: String,
    tables: u8,
    buffers: u32,
    capabilities: String,
    fragments: String,
    miss_send_bytes: u16,
    manufacturer: String,
    hardware: String,
    software: String,
    serial: String,
    description: String,
    ports: Vec<String>,
}

fn read_shown(client: &mut Client) -> Result<Shown> {
    let wrong = |body: &Body| Problem::input(format!("the switch answers with {}", body.name()));
    let features = match client.ask(Body::FeaturesRequest(Empty {}))? {
        Body::FeaturesReply(features) => features,
        body => return Err(wrong(&body)),
    };
    let config = match client.ask(Body::GetConfigRequest(Empty {}))? {
        Body::GetConfigReply(config) => config,
        body => return Err(wrong(&body)),
    };
    let desc = match client.multipart(Request::Desc(Empty {}))? {
        Reply::Desc(desc) => desc,
        reply => return Err(other(&reply)),
    };
    let ports = port_list(client)?;
    let fragments = match config.flags.0 {
        0 => "normal".to_owned(),
        _ => config.flags.to_string(),
    };
    Ok(Shown {
        dpid: format!("{:016x}", features.datapath_id.0),
        tables: features.n_tables,
        buffers: features.n_buffers,
        capabilities: features.capabilities.to_string(),
        fragments,
        miss_send_bytes: config.miss_send_len,
        manufacturer: desc.mfr_desc.text(),
        hardware: desc.hw_desc.text(),
        software: desc.sw_desc.text(),
        serial: desc.serial_num.text(),
        description: desc.dp_desc.text(),
        ports: ports.iter().map(|port| format!("{} {}", PortNo(port.port_no), port.name.text())).collect(),
    })
}

/// Says what the switch is.
pub fn show(args: &AskArgs, output: &Output) -> Result<()> {
    let mut client = args.call()?;
    let shown = read_shown(&mut client).map_err(args.place())?;
    output.result(&list(args, &client, "pathlab/flow-show/1", shown), |list| {
        let one = &list.body;
        let rows = [
            ("openflow", list.openflow.clone()),
            ("dpid", one.dpid.clone()),
            ("name", one.description.clone()),
            ("made by", one.manufacturer.clone()),
            ("software", one.software.clone()),
            ("hardware", one.hardware.clone()),
            ("serial", one.serial.clone()),
            ("tables", one.tables.to_string()),
            ("buffers", one.buffers.to_string()),
            ("can", one.capabilities.replace('|', " ")),
            ("fragments", one.fragments.clone()),
            ("ports", one.ports.join(", ")),
        ];
        rows.iter().map(|(name, text)| format!("{name:<10} {text}\n")).collect()
    })
}

//! `pathlab flow groups`, `meters`, `ports`, `tables`, `show` and `packet-out`: what a switch has besides rules.

use super::ask::{AskArgs, counted, multipart, nanoseconds};
use crate::output::{Output, object, of_others, table, when_any};
use clap::Args;
use flow::group::{ALL_GROUPS, Group, GroupMod, GroupType};
use flow::meter::{ALL_METERS, Meter, MeterFlags, MeterMod};
use flow::numbered::ModCommand;
use flow::openflow::bytes::{Tagged, Version};
use flow::openflow::group::{
    GroupDesc, GroupStats, GroupStatsRequest, MeterConfig, MeterRequest, MeterStats,
};
use flow::openflow::message::Body;
use flow::openflow::misc::{Desc, Empty, Features, SwitchConfig};
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::{Port, PortProperty, PortStats, PortStatsRequest};
use flow::text::{Piece, action, frame, group, meter, value};
use flow::{Action, PortNo, client};
use record::{Problem, Result};
use serde::Serialize;
use std::fmt::Display;
use study::table::count;
use switch::client::Client;

/// Flags of `pathlab flow groups` and `meters`.
#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Add this one before printing, as 'group_id=1,type=all,bucket=output:1' or 'meter=1,kbps,band=type=drop,rate=100'.
    #[arg(long, value_name = "TEXT")]
    add: Vec<String>,
    /// Change this one before printing; same syntax.
    #[arg(long, value_name = "TEXT")]
    modify: Vec<String>,
    /// Delete the one with this number (of a meter also the name: controller, slowpath), or all, before printing.
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
    /// The port by which it appears to have come in.
    #[arg(long, value_name = "PORT", default_value = "CONTROLLER")]
    in_port: String,
}

/// Lets the switch send a frame.
pub fn packet_out(args: &PacketOutArgs, output: &Output) -> Result<()> {
    let (port, actions, frame) = args.read()?;
    let mut client = args.ask.call()?;
    let place = args.ask.place();
    let refused = client.change(&[client::packet_out(port, &actions, &frame)]).map_err(&place)?;
    if let Some(refusal) = refused.first() {
        let what = format!("the switch refuses to send with '{}': {}", args.actions, refusal.fault);
        return Err(place(Problem::input(what)));
    }
    let (switch, bytes) = (&args.ask.switch, frame.len());
    let document = object! { schema: "pathlab/flow-packet-out/1", switch, bytes };
    output.result(&document, |_| format!("a frame of {bytes} bytes given to the switch"))
}

impl PacketOutArgs {
    /// The port by which the frame appears to have come in, what to do with it, and its bytes.
    fn read(&self) -> Result<(PortNo, Vec<Action>, Vec<u8>)> {
        let at = |place: &'static str| move |what: String| Problem::input(what).at(place);
        let port = value::port(Piece::line(&self.in_port)).map_err(|e| at("--in-port")(e.to_string()))?;
        let actions = action::list(Piece::line(&self.actions)).map_err(|e| at("ACTIONS")(e.to_string()))?;
        let frame = frame::parse(self.frame.trim()).map_err(|e| at("FRAME")(e.to_string()))?;
        Ok((port, actions, frame))
    }
}

/// The message that does this with the group or meter of that text.
type Change = fn(ModCommand, &str) -> Result<Body>;

impl ListArgs {
    /// Makes the changes that the flags ask for, then reads the list.
    fn changed<T>(&self, one: Change, read: impl FnOnce(&mut Client) -> Result<T>) -> Result<(T, String)> {
        self.ask.ask(|client| self.change(client, one).and_then(|()| read(client)))
    }

    /// Makes the changes that the flags ask for, or returns the first that is refused.
    fn change(&self, client: &mut Client, one: Change) -> Result<()> {
        let lists = [
            (ModCommand::Add, "--add", &self.add),
            (ModCommand::Modify, "--modify", &self.modify),
            (ModCommand::Delete, "--delete", &self.delete),
        ];
        let texts = || {
            lists.iter().flat_map(|(command, flag, all)| all.iter().map(move |text| (command, flag, text)))
        };
        let bodies = texts().map(|(command, flag, text)| one(*command, text).map_err(|p| p.at(*flag)));
        let bodies: Vec<Body> = bodies.collect::<Result<_>>()?;
        let refused = client.change(&bodies)?;
        match refused.first().and_then(|refusal| Some((refusal.fault, texts().nth(refusal.index)?))) {
            Some((fault, (_, flag, text))) => {
                let more = when_any(refused.len() - 1, |more| format!(", and {more} more"));
                let made = bodies.len() - refused.len();
                let what = format!("the switch refuses '{text}': {fault}{more}{}", of_others(made, made));
                Err(Problem::input(what).at(*flag))
            }
            None => Ok(()),
        }
    }
}

fn parsed<T, E: Display>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<T> {
    parse(text).map_err(|error| Problem::input(format!("{error} in '{text}'")))
}

fn group_change(command: ModCommand, text: &str) -> Result<Body> {
    let of = |id| Group { id, kind: GroupType::All, buckets: vec![] };
    let is_delete = command == ModCommand::Delete;
    let group = if is_delete {
        parsed(text, |text| group::number(Piece::line(text))).map(of)
    } else {
        parsed(text, group::parse)
    }?;
    Ok(client::group_mod(&GroupMod { command, group }))
}

fn meter_change(command: ModCommand, text: &str) -> Result<Body> {
    let of = |id| Meter { id, flags: MeterFlags::default(), bands: vec![] };
    let is_delete = command == ModCommand::Delete;
    let meter = if is_delete {
        parsed(text, |text| meter::number(Piece::line(text))).map(of)
    } else {
        parsed(text, meter::parse)
    }?;
    Ok(client::meter_mod(&MeterMod { command, meter }))
}

/// A counter, or a dash for one that the switch does not keep.
pub(super) fn cell(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), count)
}

/// The rows of a list: each as JSON has it, and its cells in the table for people.
type Rows<T> = Result<(Vec<T>, Vec<Vec<String>>)>;
/// One of them.
type Row<T> = Result<(T, Vec<String>)>;

fn read_groups(client: &mut Client) -> Rows<impl Serialize + use<>> {
    let version = client.version();
    let mut described = multipart!(client, GroupDesc(Empty {}));
    let stats = multipart!(client, Group(GroupStatsRequest { group_id: ALL_GROUPS }));
    described.sort_by_key(|group| group.group_id);
    let of = |one: &GroupDesc| stats.iter().find(|stats| stats.group_id == one.group_id);
    described.iter().map(|one| group_row(version, one, of(one))).collect()
}

fn group_row(version: Version, one: &GroupDesc, stats: Option<&GroupStats>) -> Row<impl Serialize + use<>> {
    let id = one.group_id;
    let group =
        client::group(version, one).map_err(|e| Problem::input(format!("group {id} cannot be read: {e}")))?;
    let buckets = stats.iter().flat_map(|stats| &stats.bucket_stats);
    let buckets = buckets.map(|one| counters(one.packet_count, one.byte_count));
    let row = object! {
        group: group::show(&group),
        id,
        references: stats.map(|stats| stats.ref_count).filter(|count| *count != u32::MAX),
        frames: stats.and_then(|stats| counted(stats.packet_count)),
        bytes: stats.and_then(|stats| counted(stats.byte_count)),
        age_ns: stats.map(|stats| nanoseconds(stats.duration_sec, stats.duration_nsec)),
        buckets: buckets.collect::<Vec<_>>(),
    };
    let cells = cells(&row.group, row.references, [row.frames, row.bytes]);
    Ok((row, cells))
}

/// The counters of a bucket or a band.
fn counters(frames: u64, bytes: u64) -> impl Serialize {
    object! { frames: counted(frames), bytes: counted(bytes) }
}

/// Prints the groups, after changes.
pub fn groups(args: &ListArgs, output: &Output) -> Result<()> {
    let ((groups, rows), openflow) = args.changed(group_change, read_groups)?;
    let switch = &args.ask.switch;
    let document = object! { schema: "pathlab/flow-groups/1", switch, openflow, groups };
    output.result(&document, |_| table(1, &["group", "references", "frames", "bytes"], rows).text())
}

fn read_meters(client: &mut Client) -> Rows<impl Serialize + use<>> {
    let which = MeterRequest { meter_id: ALL_METERS };
    let mut described = multipart!(client, MeterConfig(which.clone()));
    let stats = multipart!(client, Meter(which));
    described.sort_by_key(|meter| meter.meter_id);
    let of = |one: &MeterConfig| stats.iter().find(|stats| stats.meter_id == one.meter_id);
    described.iter().map(|one| meter_row(one, of(one))).collect()
}

fn meter_row(one: &MeterConfig, stats: Option<&MeterStats>) -> Row<impl Serialize + use<>> {
    let id = one.meter_id;
    let meter = client::meter(one).map_err(|e| Problem::input(format!("meter {id} cannot be read: {e}")))?;
    let bands = stats.iter().flat_map(|stats| &stats.band_stats);
    let bands = bands.map(|one| counters(one.packet_band_count, one.byte_band_count));
    let row = object! {
        meter: meter::show(&meter),
        id,
        rules: stats.map(|stats| stats.flow_count).filter(|count| *count != u32::MAX),
        frames: stats.and_then(|stats| counted(stats.packet_in_count)),
        bytes: stats.and_then(|stats| counted(stats.byte_in_count)),
        age_ns: stats.map(|stats| nanoseconds(stats.duration_sec, stats.duration_nsec)),
        bands: bands.collect::<Vec<_>>(),
    };
    let cells = cells(&row.meter, row.rules, [row.frames, row.bytes]);
    Ok((row, cells))
}

/// The cells of a group or a meter: its text, how many use it, its frames and bytes.
fn cells(text: &str, users: Option<u32>, counters: [Option<u64>; 2]) -> Vec<String> {
    let numbers = std::iter::once(users.map(u64::from)).chain(counters);
    std::iter::once(text.to_owned()).chain(numbers.map(cell)).collect()
}

/// Prints the meters, after changes.
pub fn meters(args: &ListArgs, output: &Output) -> Result<()> {
    let ((meters, rows), openflow) = args.changed(meter_change, read_meters)?;
    let switch = &args.ask.switch;
    let document = object! { schema: "pathlab/flow-meters/1", switch, openflow, meters };
    output.result(&document, |_| table(1, &["meter", "rules", "frames", "bytes"], rows).text())
}

/// The ports as the switch describes them.
pub(super) fn port_list(client: &mut Client) -> Result<Vec<Port>> {
    Ok(multipart!(client, PortDesc(Empty {})))
}

/// The speed of a port, if the switch reports it.
pub(super) fn speed_kbps(port: &Port) -> Option<u32> {
    let speed = port.properties.iter().find_map(|property| match property {
        PortProperty::Ethernet(ethernet) => Some(ethernet.curr_speed),
        _ => None,
    });
    speed.filter(|speed| *speed > 0)
}

fn read_ports(client: &mut Client) -> Rows<impl Serialize + use<>> {
    let described = port_list(client)?;
    let stats = multipart!(client, PortStats(PortStatsRequest { port_no: PortNo::ANY.0 }));
    let of = |one: &Port| stats.iter().find(|stats| stats.port_no == one.port_no);
    Ok(described.iter().map(|one| port_row(one, of(one))).unzip())
}

fn port_row(one: &Port, stats: Option<&PortStats>) -> (impl Serialize + use<>, Vec<String>) {
    let count = |pick: fn(&PortStats) -> u64| stats.and_then(|stats| counted(pick(stats)));
    let row = object! {
        port: PortNo(one.port_no).to_string(),
        name: one.name.text(),
        address: one.hw_addr.0.map(|byte| format!("{byte:02x}")).join(":"),
        config: one.config.to_string(),
        state: one.state.to_string(),
        speed_kbps: speed_kbps(one),
        rx_frames: count(|stats| stats.rx_packets),
        tx_frames: count(|stats| stats.tx_packets),
        rx_bytes: count(|stats| stats.rx_bytes),
        tx_bytes: count(|stats| stats.tx_bytes),
        rx_dropped: count(|stats| stats.rx_dropped),
        tx_dropped: count(|stats| stats.tx_dropped),
        rx_errors: count(|stats| stats.rx_errors),
        tx_errors: count(|stats| stats.tx_errors),
    };
    let words = [&row.port, &row.name, &row.address, &row.state].map(String::clone);
    let numbers = [row.rx_frames, row.tx_frames, row.rx_dropped, row.tx_dropped].map(cell);
    (row, words.into_iter().chain(numbers).collect())
}

/// Prints the ports.
pub fn ports(args: &AskArgs, output: &Output) -> Result<()> {
    let ((ports, rows), openflow) = args.ask(read_ports)?;
    let document = object! { schema: "pathlab/flow-ports/1", switch: &args.switch, openflow, ports };
    let headers = ["port", "name", "address", "state", "rx frames", "tx frames", "rx dropped", "tx dropped"];
    output.result(&document, |_| table(4, &headers, rows).text())
}

/// The tables; for people only those with rules or frames.
fn read_tables(client: &mut Client) -> Rows<impl Serialize + use<>> {
    let (mut tables, mut rows) = (vec![], vec![]);
    for one in multipart!(client, Table(Empty {})) {
        let (lookups, matched) = (counted(one.lookup_count), counted(one.matched_count));
        let (table, rules) = (one.table_id, one.active_count);
        tables.push(object! { table, rules, lookups, matched });
        if rules > 0 || lookups.is_some_and(|frames| frames > 0) {
            rows.push(vec![table.to_string(), count(rules.into()), cell(lookups), cell(matched)]);
        }
    }
    Ok((tables, rows))
}

/// Prints the tables.
pub fn tables(args: &AskArgs, output: &Output) -> Result<()> {
    let ((tables, rows), openflow) = args.ask(read_tables)?;
    let (switch, others) = (&args.switch, tables.len() - rows.len());
    let document = object! { schema: "pathlab/flow-tables/1", switch, openflow, tables };
    output.result(&document, |_| tables_text(rows, others))
}

/// The tables that are not empty, and how many others there are.
fn tables_text(rows: Vec<Vec<String>>, others: usize) -> String {
    if rows.is_empty() {
        return format!("all {others} tables are empty\n");
    }
    let rest = match others {
        0 => String::new(),
        1 => "one more table is empty\n".to_owned(),
        more => format!("{more} more tables are empty\n"),
    };
    table(1, &["table", "rules", "lookups", "matched"], rows).text() + &rest
}

/// Describes the switch.
pub fn show(args: &AskArgs, output: &Output) -> Result<()> {
    let ((features, config, desc, ports), openflow) = args.ask(describe)?;
    let document = object! {
        schema: "pathlab/flow-show/1",
        switch: &args.switch,
        openflow,
        dpid: format!("{:016x}", features.datapath_id.0),
        tables: features.n_tables,
        buffers: features.n_buffers,
        capabilities: features.capabilities.to_string(),
        fragments: if config.flags.0 == 0 { "normal".to_owned() } else { config.flags.to_string() },
        miss_send_bytes: config.miss_send_len,
        manufacturer: desc.mfr_desc.text(),
        hardware: desc.hw_desc.text(),
        software: desc.sw_desc.text(),
        serial: desc.serial_num.text(),
        description: desc.dp_desc.text(),
        ports: ports.iter().map(named).collect::<Vec<_>>(),
    };
    output.result(&document, |one| {
        let (tables, buffers) = (one.tables.to_string(), one.buffers.to_string());
        let (can, ports) = (one.capabilities.replace('|', " "), one.ports.join(", "));
        let rows = [
            ("openflow", &one.openflow),
            ("dpid", &one.dpid),
            ("name", &one.description),
            ("made by", &one.manufacturer),
            ("software", &one.software),
            ("hardware", &one.hardware),
            ("serial", &one.serial),
            ("tables", &tables),
            ("buffers", &buffers),
            ("can", &can),
            ("fragments", &one.fragments),
            ("ports", &ports),
        ];
        rows.iter().map(|(name, text)| format!("{name:<10} {text}\n")).collect()
    })
}

fn describe(client: &mut Client) -> Result<(Features, SwitchConfig, Box<Desc>, Vec<Port>)> {
    let wrong = |body: &Body| Problem::input(format!("the switch answers with {}", body.name()));
    let features = match client.ask(Body::FeaturesRequest(Empty {}))? {
        Body::FeaturesReply(features) => features,
        body => return Err(wrong(&body)),
    };
    let config = match client.ask(Body::GetConfigRequest(Empty {}))? {
        Body::GetConfigReply(config) => config,
        body => return Err(wrong(&body)),
    };
    Ok((features, config, multipart!(client, Desc(Empty {})), port_list(client)?))
}

/// A port by number and name.
pub(super) fn named(port: &Port) -> String {
    format!("{} {}", PortNo(port.port_no), port.name.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_tables_are_more_only_where_others_are_listed() {
        let row = || vec!["0", "2", "5", "5"].into_iter().map(str::to_owned).collect();
        assert_eq!(tables_text(vec![], 255), "all 255 tables are empty\n");
        assert!(tables_text(vec![row()], 254).ends_with("\n254 more tables are empty\n"));
        assert!(tables_text(vec![row()], 1).ends_with("\none more table is empty\n"));
    }
}

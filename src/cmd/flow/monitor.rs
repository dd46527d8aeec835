//! `pathlab flow monitor`: what happens to the rules of a switch, as it happens.
//!
//! **What.** One line for each rule that is there, comes, changes or goes (OpenFlow 1.4.1 section 7.3.5.17), on demand also for ports and
//! for the frames that the switch sends to its controllers. It ends after a number of lines or a time, or when it is interrupted.
//!
//! **Why.** Two runs of `dump` miss what came and went between them. The switch reports every change, in order.
//!
//! **Price.** Only OpenFlow 1.4 has it. A switch may pause when there is too much to report, and says so.

use super::ask::AskArgs;
use super::rules::one_match;
use crate::cmd::amounts;
use crate::output::{Fields, Output};
use clap::Args;
use flow::openflow::bytes::{Hex, Version};
use flow::openflow::message::{Body, Message};
use flow::openflow::misc::{AsyncConfig, AsyncProperty};
use flow::openflow::multipart::{MultipartReply, Reply, Request};
use flow::openflow::oxm;
use flow::openflow::port::PortStatus;
use flow::openflow::rule::{
    FlowStats, MonitorCommand, MonitorFlags, MonitorRequest, PacketIn, Update, UpdateFull,
};
use flow::text::{hex, rule};
use flow::{Field, PortNo, client};
use linux::sys::process;
use record::{Problem, Result};
use serde_json::Value;
use std::time::{Duration, Instant};
use switch::client::Client;

/// The number of the one monitor.
const MONITOR: u32 = 1;
/// How often interrupts and the end of the time are looked for.
const TURN: Duration = Duration::from_millis(100);

/// Flags of `pathlab flow monitor`.
#[derive(Args)]
pub struct MonitorArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Only the rules within this match, as table=0,tcp.
    #[arg(value_name = "MATCH", default_value = "")]
    matching: String,
    /// Only what happens from now on, not the rules that are there.
    #[arg(long)]
    no_initial: bool,
    /// Also the frames that the switch sends to its controllers.
    #[arg(long)]
    packet_ins: bool,
    /// Also ports that come, go or change.
    #[arg(long)]
    ports: bool,
    /// End after N lines.
    #[arg(long, value_name = "LINES", value_parser = amounts::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    /// End after TIME: 5s, 500ms, 2m.
    #[arg(long, value_name = "TIME", value_parser = record::unit::duration)]
    duration: Option<Duration>,
}

/// What happened: the fields of its line as JSON, and in words.
struct MonitorEvent {
    event: &'static str,
    fields: Vec<(&'static str, Value)>,
    words: String,
}

/// Runs the command.
pub fn monitor(args: &MonitorArgs, output: &Output) -> Result<()> {
    let wish = wish(args)?;
    let until = args.duration.map(|time| Instant::now() + time);
    let mut client = args.ask.call()?;
    let place = args.ask.place();
    if client.version() == Version::V13 {
        return Err(place(Problem::input("OpenFlow 1.3 is spoken, and monitors came with 1.4"))
            .help("'pathlab flow dump' again and again shows what 1.3 can show"));
    }
    let (switch, openflow) = (args.ask.switch.clone(), client.version().to_string());
    let began = Instant::now();
    let mut teller = MonitorOutput { output, switch, openflow, began, until, left: args.count };
    teller.watch(args, wish, &mut client).map_err(place)
}

/// The rules within a match, with their instructions.
fn wish(args: &MonitorArgs) -> Result<MonitorRequest> {
    let which = client::flow_request(&one_match(&args.matching)?);
    let kinds = MonitorFlags::ADD.with(MonitorFlags::REMOVED).with(MonitorFlags::MODIFY);
    let flags = kinds.with(MonitorFlags::INSTRUCTIONS);
    Ok(MonitorRequest {
        monitor_id: MONITOR,
        out_port: which.out_port,
        out_group: which.out_group,
        flags: if args.no_initial { flags } else { flags.with(MonitorFlags::INITIAL) },
        table_id: which.table_id,
        command: MonitorCommand::ADD,
        matching: which.matching,
    })
}

/// The switch sends only what will be printed: all reasons of a kind, or none.
fn masks(args: &MonitorArgs) -> Body {
    let bits = |wanted: bool, all: u32| Hex(if wanted { all } else { 0 });
    let properties = vec![
        AsyncProperty::PacketInMaster(bits(args.packet_ins, 0x3f)),
        AsyncProperty::PortStatusMaster(bits(args.ports, 0x07)),
        AsyncProperty::FlowRemovedMaster(Hex(0)),
    ];
    Body::SetAsync(AsyncConfig { properties })
}

/// Who prints the lines.
struct MonitorOutput<'a> {
    output: &'a Output,
    switch: String,
    openflow: String,
    began: Instant,
    until: Option<Instant>,
    /// Lines that may still be printed.
    left: Option<u64>,
}

impl MonitorOutput<'_> {
    fn watch(&mut self, args: &MonitorArgs, wish: MonitorRequest, client: &mut Client) -> Result<()> {
        client.post(masks(args))?;
        let Reply::FlowMonitor(first) = client.multipart(Request::FlowMonitor(vec![wish]))? else {
            return Err(Problem::input("the switch answers with something else than a monitor"));
        };
        let version = client.version();
        self.tell(first.iter().map(|update| told(version, update)))?;
        while self.left != Some(0) && !process::interrupted() {
            let rest = self.until.map_or(TURN, |until| until.saturating_duration_since(Instant::now()));
            if rest.is_zero() {
                break;
            }
            if let Some(message) = client.next(rest.min(TURN))? {
                self.message(version, &message)?;
            }
        }
        Ok(())
    }

    fn message(&mut self, version: Version, message: &Message) -> Result<()> {
        match &message.body {
            Body::MultipartReply(MultipartReply { body: Reply::FlowMonitor(updates), .. }) => {
                self.tell(updates.iter().map(|update| told(version, update)))
            }
            Body::PacketIn(packet_in) => self.tell([frame(packet_in)]),
            Body::PortStatus(status) => self.tell([port(status)]),
            _ => Ok(()),
        }
    }

    fn tell(&mut self, all: impl IntoIterator<Item = MonitorEvent>) -> Result<()> {
        for told in all {
            if self.left == Some(0) {
                break;
            }
            let at_ns = self.began.elapsed().as_nanos() as u64;
            let mut line = Fields(vec![
                ("schema", "pathlab/flow-monitor/1".into()),
                ("switch", self.switch.as_str().into()),
                ("openflow", self.openflow.as_str().into()),
                ("at_ns", at_ns.into()),
                ("event", told.event.into()),
            ]);
            line.0.extend(told.fields);
            let people =
                |_: &Fields| format!("{:9.3} s {:<10} {}", at_ns as f64 / 1e9, told.event, told.words);
            let is_read = self.output.line(&line, people)?;
            self.left = if is_read { self.left.map(|left| left - 1) } else { Some(0) };
        }
        Ok(())
    }
}

/// An update of a monitor.
fn told(version: Version, update: &Update) -> MonitorEvent {
    let plain = |event, words: &str| MonitorEvent { event, fields: vec![], words: words.into() };
    match update {
        Update::Initial(full) => of_rule(version, "initial", full),
        Update::Added(full) => of_rule(version, "added", full),
        Update::Modified(full) => of_rule(version, "modified", full),
        Update::Removed(full) => {
            let mut told = of_rule(version, "removed", full);
            told.words += &format!(" ({})", full.reason);
            told.fields.insert(0, ("reason", full.reason.to_string().into()));
            told
        }
        Update::Abbrev(own) => MonitorEvent {
            event: "abbrev",
            fields: vec![("transaction", own.xid.0.into())],
            words: format!("a change of this connection, transaction {}", own.xid.0),
        },
        Update::Paused(_) => {
            plain("paused", "the switch has too much to report: changes are missing from here on")
        }
        Update::Resumed(_) => plain("resumed", "changes are reported again"),
    }
}

/// A rule; one that ovs-ofctl's language cannot express is identified by table, priority and cookie.
fn of_rule(version: Version, event: &'static str, full: &UpdateFull) -> MonitorEvent {
    let stats = FlowStats {
        table_id: full.table_id,
        idle_timeout: full.idle_timeout,
        hard_timeout: full.hard_timeout,
        priority: full.priority,
        cookie: full.cookie,
        matching: full.matching.clone(),
        instructions: full.instructions.clone(),
        ..FlowStats::default()
    };
    let text = client::rule(version, &stats).map(|(table, rule)| rule::show(table, &client::normal(&rule)));
    let cookie = format!("{:#x}", full.cookie.0);
    let (table, priority) = (full.table_id, full.priority);
    let words = text.clone().unwrap_or_else(|error| {
        format!("cookie={cookie},table={table},priority={priority} and what has no word here: {error}")
    });
    let mut fields: Vec<(&str, Value)> = text.ok().map(|text| ("rule", text.into())).into_iter().collect();
    fields.extend([("table", table.into()), ("priority", priority.into()), ("cookie", cookie.into())]);
    MonitorEvent { event, fields, words }
}

fn frame(packet_in: &PacketIn) -> MonitorEvent {
    let is_port = |one: &&oxm::Oxm| one.class == oxm::BASIC && one.field == Field::InPort as u8;
    let value = packet_in.matching.fields.iter().find(is_port).map(|one| one.value.as_slice());
    let port = value.and_then(|bytes| Some(PortNo(u32::from_be_bytes(bytes.try_into().ok()?)).to_string()));
    let (table, reason) = (packet_in.table_id, packet_in.reason.to_string());
    let cookie = format!("{:#x}", packet_in.cookie.0);
    let words = format!(
        "port {} table {table} cookie {cookie} {reason}: {}",
        port.as_deref().unwrap_or("?"),
        wire::text::line(&packet_in.data.0)
    );
    let mut fields = vec![("reason", reason.into()), ("table", table.into()), ("cookie", cookie.into())];
    fields.extend(port.map(|port| ("port", port.into())));
    fields.extend([("total_bytes", packet_in.total_len.into()), ("hex", hex(&packet_in.data.0).into())]);
    MonitorEvent { event: "packet_in", fields, words }
}

fn port(status: &PortStatus) -> MonitorEvent {
    let desc = &status.desc;
    let (number, name) = (PortNo(desc.port_no).to_string(), desc.name.text());
    let (config, state) = (desc.config.to_string(), desc.state.to_string());
    let words = format!("{number} ({name}) {}: config {config}, state {state}", status.reason);
    let fields = vec![
        ("reason", status.reason.to_string().into()),
        ("port", number.into()),
        ("name", name.into()),
        ("config", config.into()),
        ("state", state.into()),
    ];
    MonitorEvent { event: "port", fields, words }
}

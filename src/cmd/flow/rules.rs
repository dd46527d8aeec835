//! `pathlab flow add`, `mod`, `del`, `dump` and `diff`: the rules of a switch.

use super::ask::{AskArgs, counted, multipart, nanoseconds};
use super::queues;
use crate::cmd::read_text;
use crate::output::{Output, object, of_others, when_any};
use clap::Args;
use flow::PortNo;
use flow::client;
use flow::openflow::bytes::Version;
use flow::openflow::drops::DropRow;
use flow::openflow::message::Body;
use flow::openflow::multipart::{Reply, Request};
use flow::openflow::port::QueueStats;
use flow::openflow::rule::FlowStats;
use flow::pipeline::Change;
use flow::rule::{FlowMod, FlowModCommand};
use flow::text::{file, rule};
use record::{Problem, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use switch::client::{Client, Refusal};

/// Flags of the commands that change rules.
#[derive(Args)]
pub struct ChangeArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// A rule as ovs-ofctl writes it: 'priority=9,tcp,nw_dst=10.0.0.1 actions=output:2'; of del, a match alone.
    #[arg(value_name = "RULE")]
    rules: Vec<String>,
    /// Read rules from a file, one per line; - is standard input. A line may begin with add, modify, modify_strict, delete or
    /// delete_strict.
    #[arg(long, short, value_name = "FILE")]
    file: Vec<String>,
    /// Only the rule with exactly this match and priority (mod, del).
    #[arg(long)]
    strict: bool,
}

/// Flags of `pathlab flow dump`.
#[derive(Args)]
pub struct DumpArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Only the rules within this match, as table=0,tcp or cookie=7/-1.
    #[arg(value_name = "MATCH", default_value = "")]
    matching: String,
    /// Only the rules, in one form and order, without counters: what add, diff and ovs-ofctl read.
    #[arg(long)]
    rules: bool,
}

/// Flags of `pathlab flow diff`.
#[derive(Args)]
pub struct DiffArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// The file of the rules that the switch should have; - is standard input.
    #[arg(value_name = "FILE")]
    file: String,
}

/// What a line of a file may begin with.
const COMMANDS: [(&str, FlowModCommand); 5] = [
    ("add", FlowModCommand::Add),
    ("modify", FlowModCommand::Modify),
    ("modify_strict", FlowModCommand::ModifyStrict),
    ("delete", FlowModCommand::Delete),
    ("delete_strict", FlowModCommand::DeleteStrict),
];

/// A change with its text, to name it when it is refused.
pub struct Named {
    /// Where it stands.
    pub place: String,
    /// What was written.
    pub text: String,
    /// What it means.
    pub change: FlowMod,
}

/// What was done, for people.
fn sentence(command: FlowModCommand, sent: usize, removed: Option<u64>) -> String {
    let count = |number: u64, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let sent = sent as u64;
    match (command, removed) {
        (FlowModCommand::Add, _) => count(sent, "rule") + " added",
        (FlowModCommand::Delete, Some(removed)) => count(removed, "rule") + " deleted",
        (FlowModCommand::Delete, None) => {
            count(sent, "change") + " sent to delete rules; how many were deleted is not known"
        }
        _ => count(sent, "change") + " sent to modify rules",
    }
}

/// Makes changes of rules.
pub fn change(command: FlowModCommand, args: &ChangeArgs, output: &Output) -> Result<()> {
    let place = args.ask.place();
    let changes = wanted(command, args)?;
    let mut client = args.ask.call()?;
    sayable(client.version(), &changes).map_err(&place)?;
    let bodies: Vec<Body> = changes.iter().map(|named| client::flow_mod(&named.change)).collect();
    let before = held(&mut client, &changes);
    let refusals = client.change(&bodies).map_err(&place)?;
    let after = before.and_then(|_| held(&mut client, &changes));
    let removed = before.zip(after).and_then(|(before, after)| before.checked_sub(after));
    let made = made(client.is_all_or_none(&bodies), changes.len(), refusals.len());
    let problem = refused_sentence(&refusals, &changes, made);
    if problem.is_none() || output.json {
        let (switch, openflow, sent) = (&args.ask.switch, client.version().to_string(), changes.len());
        let refused: Vec<_> = refusals.iter().map(|refusal| refused_row(refusal, &changes)).collect();
        let document =
            object! { schema: "pathlab/flow-change/1", switch, openflow, sent, made, removed, refused };
        output.result(&document, |_| sentence(command, sent, removed))?;
    }
    problem.map_or(Ok(()), |problem| Err(place(problem)))
}

/// Refuses what would be lost on the way: OpenFlow 1.3 has no importance.
fn sayable(version: Version, changes: &[Named]) -> Result<()> {
    let lost = |named: &&Named| version == Version::V13 && named.change.rule.importance != 0;
    match changes.iter().find(lost) {
        Some(Named { place, text, .. }) => {
            let what = format!("importance is of OpenFlow 1.4, and 1.3 is spoken here: '{text}'");
            Err(Problem::input(what)
                .at(place)
                .help("leave the importance out, or ask a switch that speaks OpenFlow 1.4"))
        }
        None => Ok(()),
    }
}

fn refused_row(refusal: &Refusal, changes: &[Named]) -> impl Serialize {
    let Named { place, text, .. } = &changes[refusal.index];
    object! { place, rule: text, error: refusal.fault.to_string() }
}

/// The changes that the arguments ask for.
fn wanted(command: FlowModCommand, args: &ChangeArgs) -> Result<Vec<Named>> {
    let command = command_of(command, args.strict);
    let mut changes = vec![];
    for text in &args.rules {
        changes.push(named("RULE", text, command)?);
    }
    for file in &args.file {
        changes.extend(read(file, command)?);
    }
    if changes.is_empty() {
        if let Some(file) = args.file.first() {
            return Err(Problem::input("there is no rule").at(file).help("write one a line"));
        }
        if !is_delete(command) {
            return Err(Problem::input("there is no rule").help("write one, or --file FILE"));
        }
        // Without a match: every rule, as ovs-ofctl del-flows.
        changes.push(named("RULE", "", command)?);
    }
    Ok(changes)
}

fn command_of(command: FlowModCommand, strict: bool) -> FlowModCommand {
    match command {
        FlowModCommand::Modify if strict => FlowModCommand::ModifyStrict,
        FlowModCommand::Delete if strict => FlowModCommand::DeleteStrict,
        command => command,
    }
}

fn is_delete(command: FlowModCommand) -> bool {
    matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
}

/// How many of the rules that deletes may remove the switch has, by its own count (aggregate statistics, §7.3.5.3): the
/// difference of before and after is what was removed. `None` when other changes are among them, or the switch does not report it.
fn held(client: &mut Client, changes: &[Named]) -> Option<u64> {
    if !changes.iter().all(|named| is_delete(named.change.command)) {
        return None;
    }
    // Several deletes may be about the same rule: then all rules are counted.
    let all = client::delete_all();
    let which = if let [one] = changes { &one.change } else { &all };
    match client.multipart(Request::Aggregate(client::flow_request(which))) {
        Ok(Reply::Aggregate(sum)) => Some(sum.flow_count.into()),
        _ => None,
    }
}

/// How many changes were made: of a bundle all or none, else those that were not refused.
fn made(is_all_or_none: bool, sent: usize, refused: usize) -> usize {
    if is_all_or_none && refused > 0 { 0 } else { sent - refused }
}

/// One sentence about what was refused, and what became of the others.
fn refused_sentence(refusals: &[Refusal], changes: &[Named], made: usize) -> Option<Problem> {
    let first = refusals.first()?;
    let more = when_any(refusals.len() - 1, |more| format!(", and {more} more"));
    let Named { place, text, .. } = &changes[first.index];
    let others = of_others(changes.len() - refusals.len(), made);
    Some(Problem::input(format!("the switch refuses '{text}': {}{more}{others}", first.fault)).at(place))
}

fn named(place: &str, text: &str, command: FlowModCommand) -> Result<Named> {
    let change = rule::flow_mod(command, text).map_err(|error| {
        let problem = Problem::input(format!("{error} in '{}'", text.trim())).at(place);
        let mut kinds = [("group_id=", "groups"), ("meter=", "meters")].into_iter();
        match kinds.find(|(begin, _)| text.trim_start().starts_with(begin)) {
            Some((_, kind)) => problem.help(format!("pathlab flow {kind} SWITCH --add '{}'", text.trim())),
            None => problem,
        }
    })?;
    Ok(Named { place: place.to_owned(), text: text.trim().to_owned(), change })
}

/// The rules of a file; a line may name its own command.
pub fn read(file: &str, command: FlowModCommand) -> Result<Vec<Named>> {
    lines(file)?.iter().map(|(place, line)| read_line(place, line, command)).collect()
}

/// The rules, groups and meters of a file, in their order.
pub fn changes(file: &str) -> Result<Vec<Change>> {
    let read = lines(file)?.into_iter().map(|(place, line)| line_changes(&place, &line));
    Ok(read.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn line_changes(place: &str, line: &str) -> Result<Vec<Change>> {
    if !["group_id=", "meter="].iter().any(|begin| line.starts_with(begin)) {
        return Ok(vec![Change::Flow(read_line(place, line, FlowModCommand::Add)?.change)]);
    }
    let found = file::parse(line).map_err(|e| Problem::input(format!("{} in '{line}'", e.what)).at(place))?;
    Ok(found.into_iter().map(|(_, change)| change).collect())
}

fn read_line(place: &str, line: &str, command: FlowModCommand) -> Result<Named> {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match COMMANDS.iter().find(|(name, _)| *name == first) {
        Some((_, command)) => named(place, rest, *command),
        None => named(place, line, command),
    }
}

/// The lines of a file that say something, each with its place.
fn lines(path: &str) -> Result<Vec<(String, String)>> {
    let bare = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    let text = read_text(path, "cannot be read")?;
    let each = text.lines().enumerate().map(|(index, line)| (format!("{path}:{}", index + 1), bare(line)));
    Ok(each.filter(|(_, line)| !line.is_empty() && !file::is_heading(line)).collect())
}

#[derive(Serialize)]
struct Dumped {
    rule: String,
    table: u8,
    priority: u16,
    cookie: String,
    age_ns: u64,
    frames: Option<u64>,
    bytes: Option<u64>,
}

fn rules(client: &mut Client, which: &FlowMod) -> Result<Vec<Dumped>> {
    let stats = multipart!(client, Flow(client::flow_request(which)));
    let mut rules = stats.iter().map(|stats| dumped(client.version(), stats)).collect::<Result<Vec<_>>>()?;
    // By table, the highest priority first, then by text: one order for the same rules.
    rules.sort_by(|a, b| {
        let key = |one: &Dumped| (one.table, std::cmp::Reverse(one.priority));
        key(a).cmp(&key(b)).then_with(|| a.rule.cmp(&b.rule))
    });
    Ok(rules)
}

fn dumped(version: Version, stats: &FlowStats) -> Result<Dumped> {
    let (table, rule) = client::rule(version, stats).map_err(|error| {
        let place = format!("a rule of table {}, priority {}", stats.table_id, stats.priority);
        Problem::input(format!("cannot be expressed in OpenFlow {version}: {error}")).at(place)
    })?;
    Ok(Dumped {
        rule: rule::show(table, &client::normal(&rule)),
        table,
        priority: rule.priority,
        cookie: format!("{:#x}", rule.cookie),
        age_ns: nanoseconds(stats.duration_sec, stats.duration_nsec),
        frames: counted(stats.packet_count),
        bytes: counted(stats.byte_count),
    })
}

/// The rules that a match selects, written on the command line.
pub fn one_match(text: &str) -> Result<FlowMod> {
    Ok(named("MATCH", text, FlowModCommand::Delete)?.change)
}

/// Prints the rules.
pub fn dump(args: &DumpArgs, output: &Output) -> Result<()> {
    let which = one_match(&args.matching)?;
    let ((rules, packet_ins, drops), openflow) = args.ask.ask(|client| {
        let rules = rules(client, &which)?;
        let (packet_ins, drops) = if args.rules { (None, None) } else { (packet_ins(client), drops(client)) };
        Ok((rules, packet_ins, drops))
    })?;
    let (packet_ins, told) = apart(packet_ins);
    let (drops, ended) = apart(drops);
    let switch = &args.ask.switch;
    let document =
        object! { schema: "pathlab/flow-dump/1", switch, openflow, rules: &rules, packet_ins, drops };
    let line = |one: &Dumped| if args.rules { one.rule.clone() + "\n" } else { one.with_counters() };
    let none = (rules.is_empty() && !args.rules).then(|| "# no rules\n".to_owned());
    output.result(&document, |_| {
        none.into_iter().chain(rules.iter().map(line)).chain(told).chain(ended).collect()
    })
}

impl Dumped {
    /// A line as ovs-ofctl writes it.
    fn with_counters(&self) -> String {
        let (frames, bytes) = (self.frames.unwrap_or(u64::MAX), self.bytes.unwrap_or(u64::MAX));
        let seconds = self.age_ns as f64 / 1e9;
        format!("duration={seconds:.3}s,n_packets={frames},n_bytes={bytes},{}\n", self.rule)
    }
}

/// What became of packet-ins by the port that their frames came in by, as JSON and in words; `None` where the switch does not
/// report it.
fn packet_ins(client: &mut Client) -> Option<(Vec<impl Serialize + use<>>, Vec<String>)> {
    let row = |queue: QueueStats| {
        let (port, sent, dropped) = (PortNo(queue.queue_id).to_string(), queue.tx_packets, queue.tx_errors);
        let line = format!("# packet-ins of port {port}: {sent} sent, {dropped} dropped\n");
        (object! { port, sent, sent_bytes: queue.tx_bytes, dropped }, line)
    };
    Some(queues::stats(client, PortNo::CONTROLLER.0).ok()?.into_iter().map(row).unzip())
}

/// What is for JSON, and what for people.
fn apart<T>(rows: Option<(T, Vec<String>)>) -> (Option<T>, Vec<String>) {
    rows.map_or((None, vec![]), |(rows, lines)| (Some(rows), lines))
}

/// Frames that ended in the tables, by port and reason, as JSON and in words; `None` where the switch does not report it.
fn drops(client: &mut Client) -> Option<(Vec<impl Serialize + use<>>, Vec<String>)> {
    let row = |row: DropRow| {
        let (port, reason, frames) = (PortNo(row.port).to_string(), row.why.name(), row.frames);
        let line = format!("# dropped of port {port}, {reason}: {frames}\n");
        (object! { port, reason, frames }, line)
    };
    Some(client.drops()?.into_iter().map(row).unzip())
}

/// Compares the rules of a switch with a file.
pub fn diff(args: &DiffArgs, output: &Output) -> Result<()> {
    let wanted = read_rules(&args.file)?;
    let ask = |client: &mut Client| Ok((rules(client, &one_match("")?)?, client.version()));
    let ((there, version), openflow) = args.ask.ask(ask)?;
    let there: BTreeSet<String> = there.into_iter().map(|one| one.rule).collect();
    let wanted: BTreeSet<String> = wanted.iter().map(|named| normal_text(version, &named.change)).collect();
    let missing: Vec<&String> = wanted.difference(&there).collect();
    let extra: Vec<&String> = there.difference(&wanted).collect();
    let (switch, same) = (&args.ask.switch, there == wanted);
    let text = diff_text(&missing, &extra);
    let (schema, lost, more) = ("pathlab/flow-diff/1", missing.len(), extra.len());
    output.result(&object! { schema, switch, openflow, same, missing, extra }, |_| text)?;
    if same {
        return Ok(());
    }
    let what =
        format!("of the rules of {}, missing (-): {lost}; others that are there (+): {more}", args.file);
    Err(args.ask.place()(Problem::measured(what)))
}

/// The rules of a file that has nothing but rules.
fn read_rules(file: &str) -> Result<Vec<Named>> {
    let rules = read(file, FlowModCommand::Add)?;
    match rules.iter().find(|named| named.change.command != FlowModCommand::Add) {
        None => Ok(rules),
        Some(other) => Err(Problem::input("only rules can be compared, not changes").at(&other.place)),
    }
}

fn diff_text(missing: &[&String], extra: &[&String]) -> String {
    if missing.is_empty() && extra.is_empty() {
        return "the switch has these rules and no others\n".to_owned();
    }
    let missing = missing.iter().map(|rule| format!("- {rule}\n"));
    missing.chain(extra.iter().map(|rule| format!("+ {rule}\n"))).collect()
}

/// The text of a rule as a switch of this version reports it: 1.3 has no importance.
fn normal_text(version: Version, change: &FlowMod) -> String {
    let mut rule = client::normal(&change.rule);
    if version == Version::V13 {
        rule.importance = 0;
    }
    rule::show(change.table, &rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::client::delete_all;
    use flow::error::GroupModFailed;
    use flow::openflow::fault::Fault;

    #[test]
    fn what_is_refused_says_what_became_of_the_others() {
        let named = |line| Named { place: format!("f:{line}"), text: "r".into(), change: delete_all() };
        let changes = [1, 2, 3].map(named);
        let fault = Fault::from(GroupModFailed::GroupExists);
        let refusals = |some: &[usize]| -> Vec<Refusal> {
            some.iter().map(|index| Refusal { index: *index, fault }).collect()
        };
        let said = |is_all_or_none, some: &[usize]| {
            let made = made(is_all_or_none, 3, some.len());
            refused_sentence(&refusals(some), &changes, made).map(|problem| problem.to_string())
        };
        let ends = |is_all_or_none, some: &[usize], end: &str| {
            let said = said(is_all_or_none, some).unwrap();
            assert!(said.ends_with(end), "{said}");
        };
        assert_eq!(said(true, &[]), None);
        ends(true, &[1], "; nothing was changed, because all go together");
        ends(false, &[1], "; the other 2 were made");
        ends(false, &[0, 1], ", and 1 more; the other one was made");
        ends(false, &[0, 1, 2], ", and 2 more");
    }
}

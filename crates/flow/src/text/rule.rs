//! Rules and flow-mods as text.

use super::value::{MatchReader, port, show_match};
use super::{Piece, Result, action};
use crate::matching::Match;
use crate::rule::{ALL_TABLES, FlowMod, FlowModCommand, Rule, RuleFlags};

/// The priority of a rule that says none (ovs-ofctl's).
pub const USUAL_PRIORITY: u16 = 32768;

/// Names of the flags in their order.
const FLAGS: [&str; 5] =
    ["send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"];
/// What ovs-ofctl prints about a rule that is not of the rule.
const STATISTICS: [&str; 6] = ["duration", "n_packets", "n_bytes", "idle_age", "hard_age", "out_of_order"];

/// Writes a rule of a table.
pub fn show(table: u8, rule: &Rule) -> String {
    let mut parts = vec![];
    if rule.cookie != 0 {
        parts.push(format!("cookie={:#x}", rule.cookie));
    }
    parts.push(format!("table={table}"));
    parts.push(format!("priority={}", rule.priority));
    let numbers = [
        ("idle_timeout", rule.idle_timeout),
        ("hard_timeout", rule.hard_timeout),
        ("importance", rule.importance),
    ];
    parts.extend(numbers.iter().filter(|(_, n)| *n != 0).map(|(name, number)| format!("{name}={number}")));
    let set = FLAGS.iter().enumerate().filter(|(bit, _)| rule.flags.0 & 1 << bit != 0);
    parts.extend(set.map(|(_, name)| name.to_string()));
    let matching = show_match(&rule.matching);
    parts.extend((!matching.is_empty()).then_some(matching));
    format!("{} actions={}", parts.join(","), action::show_instructions(&rule.instructions))
}

/// Reads a rule; the table is 0 when the text names none.
pub fn parse(line: &str) -> Result<(u8, Rule)> {
    let change = flow_mod(FlowModCommand::Add, line)?;
    Ok((change.table, change.rule))
}

/// Reads the text of a match alone, e.g. `tcp,nw_dst=10.0.0.0/8`.
pub fn parse_match(line: &str) -> Result<Match> {
    let mut reader = MatchReader::default();
    for item in Piece::line(line).items() {
        if !reader.take(item)? {
            return item.error(format!("`{}` is not a field of a match", item.text));
        }
    }
    reader.finish()
}

/// Reads a flow-mod. Deletes are for all tables and have no actions; modify and delete may say `cookie=VALUE/MASK`,
/// deletes `out_port` and `out_group`. A word that the command would ignore is refused (§6.4): whoever writes
/// `priority=0` in a delete expects that other priorities stay.
pub fn flow_mod(command: FlowModCommand, line: &str) -> Result<FlowMod> {
    let is_delete = matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    let line = Piece::line(line).trimmed();
    let (head, actions) = line.cut("actions=");
    let table = if is_delete { ALL_TABLES } else { 0 };
    let mut change = FlowMod::new(command, table, Rule::new(USUAL_PRIORITY, Match::all(), vec![]));
    let mut reader = MatchReader::default();
    let mut flags = 0;
    for item in head.items() {
        if let Some(why) = disregarded(command, item) {
            return item.error(format!("`{}` {why}", item.text));
        }
        if let Some(bit) = FLAGS.iter().position(|name| *name == item.text) {
            flags |= 1 << bit;
        } else if !property(&mut change, item)? && !reader.take(item)? {
            return item.error(format!("`{}` {}", item.text, stranger(item)));
        }
    }
    change.rule.flags = RuleFlags(flags);
    change.rule.matching = reader.finish()?;
    match actions {
        Some(actions) if is_delete => {
            return actions.error("a delete has no actions: it takes rules by their match");
        }
        Some(actions) => {
            change.rule.instructions = action::instructions(actions, &change.rule.matching)?;
        }
        None if is_delete => {}
        None => return line.after(line.text.len()).error("a rule needs actions=… (actions=drop for none)"),
    }
    Ok(change)
}

/// Why an item does not belong into a rule.
fn stranger(item: Piece<'_>) -> &'static str {
    match item.split(&['=']).0.text {
        "group_id" => "begins a group, and a rule belongs here",
        "meter" => "begins a meter, and a rule belongs here",
        _ => "is neither a field nor a property of a rule",
    }
}

/// Why a command would not look at this item, if so (§6.4).
fn disregarded(command: FlowModCommand, item: Piece<'_>) -> Option<&'static str> {
    use FlowModCommand::*;
    let (name, text) = item.split(&['=']);
    match (command, name.text) {
        (Add, "out_port" | "out_group") => Some("selects rules to delete, and a rule is added here"),
        (Add, _) => None,
        (Modify | Delete, "priority") => Some(
            "selects nothing here: rules of every priority within the match are meant \
             (--strict, or modify_strict and delete_strict in a file, takes the one rule with this match and priority)",
        ),
        (_, "cookie") if !text.is_some_and(|text| text.text.contains('/')) => {
            Some("selects nothing without a mask: write cookie=VALUE/-1 for the rules with this cookie")
        }
        (Modify | ModifyStrict, "out_port" | "out_group") => Some("selects rules to delete, not to modify"),
        (Modify | ModifyStrict, "reset_counts") => None,
        (Modify | ModifyStrict, "idle_timeout" | "hard_timeout" | "importance") => {
            Some("is not changed by a modify: add the rule anew")
        }
        (Delete | DeleteStrict, "idle_timeout" | "hard_timeout" | "importance") => {
            Some("selects nothing: rules are deleted by match, cookie, out_port and out_group")
        }
        (_, name) if FLAGS.contains(&name) => Some("is a flag of rules that are added"),
        _ => None,
    }
}

/// Reads an item when it is a property of a rule.
fn property(change: &mut FlowMod, item: Piece<'_>) -> Result<bool> {
    let (name, Some(text)) = item.split(&['=']) else { return Ok(false) };
    let rule = &mut change.rule;
    match name.text {
        "table" if text.text.eq_ignore_ascii_case("all") => change.table = ALL_TABLES,
        "table" => change.table = text.int()?,
        "priority" => rule.priority = text.int()?,
        "idle_timeout" => rule.idle_timeout = text.int()?,
        "hard_timeout" => rule.hard_timeout = text.int()?,
        "importance" => rule.importance = text.int()?,
        "out_port" => change.out_port = port(text)?,
        "out_group" => change.out_group = text.int()?,
        "cookie" => {
            let (cookie, mask) = text.split(&['/']);
            rule.cookie = cookie.int()?;
            let Some(mask) = mask else { return Ok(true) };
            if change.command == FlowModCommand::Add {
                return mask.error("a rule that is added has a cookie without a mask");
            }
            // ovs-ofctl writes -1 for all bits.
            change.cookie_mask = if mask.text == "-1" { u64::MAX } else { mask.int()? };
        }
        other => return Ok(STATISTICS.contains(&other)),
    }
    Ok(true)
}

//! Actions and instructions as text.

use super::old::Frames;
use super::{Piece, Result, hex, value};
use crate::action::{Action, Instruction, WHOLE_FRAME};
use crate::field::{Field, Value};
use crate::matching::Match;
use crate::port::PortNo;

/// Writes one action.
pub fn show(action: &Action) -> String {
    match action {
        Action::Output { port: PortNo::CONTROLLER, max_len } => format!("CONTROLLER:{max_len}"),
        Action::Output { port, max_len: 0 } if PortNo::RESERVED.iter().any(|(one, _)| one == port) => {
            port.to_string()
        }
        Action::Output { port, max_len: 0 } => format!("output:{port}"),
        Action::Output { port, max_len } => format!("output(port={port},max_len={max_len})"),
        Action::CopyTtlOut => "copy_ttl_out".to_owned(),
        Action::CopyTtlIn => "copy_ttl_in".to_owned(),
        Action::SetMplsTtl(ttl) => format!("set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => "dec_mpls_ttl".to_owned(),
        Action::PushVlan(tag) => format!("push_vlan:{tag:#06x}"),
        Action::PopVlan => "pop_vlan".to_owned(),
        Action::PushMpls(tag) => format!("push_mpls:{tag:#06x}"),
        Action::PopMpls(tag) => format!("pop_mpls:{tag:#06x}"),
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::Group(id) => format!("group:{id}"),
        Action::SetNwTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::DecNwTtl => "dec_ttl".to_owned(),
        Action::SetField { field, value } => {
            format!("set_field:{}->{}", value::show(*field, *value), field.row().ovs)
        }
        Action::PushPbb(tag) => format!("push_pbb:{tag:#06x}"),
        Action::PopPbb => "pop_pbb".to_owned(),
        Action::Experimenter { experimenter, data } => {
            format!("experimenter({experimenter:#x},{})", hex(data))
        }
    }
}

/// Writes actions; none is `drop`.
pub fn show_list(actions: &[Action]) -> String {
    or_drop(joined(actions, show))
}

fn joined<T>(all: &[T], show: impl Fn(&T) -> String) -> String {
    all.iter().map(show).collect::<Vec<_>>().join(",")
}

fn or_drop(text: String) -> String {
    if text.is_empty() { "drop".to_owned() } else { text }
}

/// Writes one instruction; apply-actions as its actions alone.
pub fn show_instruction(instruction: &Instruction) -> String {
    match instruction {
        Instruction::GotoTable(table) => format!("goto_table:{table}"),
        Instruction::WriteMetadata { metadata, mask: u64::MAX } => format!("write_metadata:{metadata:#x}"),
        Instruction::WriteMetadata { metadata, mask } => format!("write_metadata:{metadata:#x}/{mask:#x}"),
        Instruction::WriteActions(actions) => format!("write_actions({})", joined(actions, show)),
        Instruction::ApplyActions(actions) if actions.is_empty() => "apply_actions()".to_owned(),
        Instruction::ApplyActions(actions) => joined(actions, show),
        Instruction::ClearActions => "clear_actions".to_owned(),
        Instruction::Meter(id) => format!("meter:{id}"),
        Instruction::Experimenter { experimenter, data } => {
            format!("experimenter_instruction({experimenter:#x},{})", hex(data))
        }
    }
}

/// Writes instructions in their order; none is `drop`.
pub fn show_instructions(instructions: &[Instruction]) -> String {
    or_drop(joined(instructions, show_instruction))
}

/// Reads the instructions of a rule for the frames of this match: what follows `actions=`.
pub fn instructions(text: Piece<'_>, matching: &Match) -> Result<Vec<Instruction>> {
    let mut frames = Frames::of(matching);
    let items = text.items();
    if let [only] = items[..]
        && only.text == "drop"
    {
        return Ok(vec![]);
    }
    let mut found: Vec<Instruction> = vec![];
    for item in items {
        if item.text == "drop" {
            return item.error("drop stands alone: to do nothing is to drop");
        }
        if let Some(instruction) = instruction(item, &mut frames)? {
            if found.iter().any(|one| one.place() == instruction.place()) {
                return item.error("this instruction is given twice");
            }
            found.push(instruction);
            continue;
        }
        let read = actions(item, &mut frames)?;
        let is_apply = |one: &Instruction| matches!(one, Instruction::ApplyActions(_));
        let has_apply = found.iter().any(is_apply);
        match found.last_mut() {
            Some(Instruction::ApplyActions(actions)) => actions.extend(read),
            _ if has_apply => {
                return item.error("actions to apply stand together, before or behind other instructions");
            }
            _ => found.push(Instruction::ApplyActions(read)),
        }
    }
    Ok(found)
}

/// Reads an item when it is an instruction other than actions to apply.
fn instruction(item: Piece<'_>, frames: &mut Frames) -> Result<Option<Instruction>> {
    if let Some((name, body)) = item.inside() {
        return Ok(Some(match name.text {
            "write_actions" => Instruction::WriteActions(list_for(body, frames)?),
            "apply_actions" => Instruction::ApplyActions(list_for(body, frames)?),
            "experimenter_instruction" => {
                let (experimenter, data) = experimenter(body)?;
                Instruction::Experimenter { experimenter, data }
            }
            _ => return Ok(None),
        }));
    }
    let (name, argument) = item.split(&[':']);
    Ok(Some(match (name.text, argument) {
        ("clear_actions", None) => Instruction::ClearActions,
        ("goto_table", Some(table)) => Instruction::GotoTable(table.int()?),
        ("meter", Some(id)) => Instruction::Meter(id.int()?),
        ("write_metadata", Some(argument)) => {
            let (metadata, mask) = argument.split(&['/']);
            let mask = mask.map_or(Ok(u64::MAX), Piece::int)?;
            Instruction::WriteMetadata { metadata: metadata.int()?, mask }
        }
        _ => return Ok(None),
    }))
}

fn experimenter(body: Piece<'_>) -> Result<(u32, Vec<u8>)> {
    let (id, data) = body.split(&[',']);
    let data = data.map_or(Ok(vec![]), Piece::hex)?;
    Ok((id.int()?, data))
}

/// Reads actions between commas; `drop` and nothing are none.
pub fn list(text: Piece<'_>) -> Result<Vec<Action>> {
    list_for(text, &mut Frames::of(&Match::all()))
}

fn list_for(text: Piece<'_>, frames: &mut Frames) -> Result<Vec<Action>> {
    match text.items()[..] {
        [only] if only.text == "drop" => Ok(vec![]),
        ref items => {
            let read: Result<Vec<Vec<Action>>> = items.iter().map(|item| actions(*item, frames)).collect();
            Ok(read?.concat())
        }
    }
}

/// Reads one action; one of OpenFlow 1.0 may be several here.
fn actions(item: Piece<'_>, frames: &mut Frames) -> Result<Vec<Action>> {
    let found = match frames.translate(item)? {
        Some(actions) => actions,
        None => vec![action(item)?],
    };
    frames.follow(item, &found)?;
    Ok(found)
}

/// Reads one action.
pub fn action(item: Piece<'_>) -> Result<Action> {
    if let Some((name, body)) = item.inside() {
        return with_parentheses(item, name, body);
    }
    let (name, argument) = item.split(&[':']);
    match argument {
        Some(argument) => with_argument(name, argument),
        None => plain(name),
    }
}

fn plain(name: Piece<'_>) -> Result<Action> {
    Ok(match name.text {
        "pop_vlan" | "strip_vlan" => Action::PopVlan,
        "pop_pbb" => Action::PopPbb,
        "dec_ttl" => Action::DecNwTtl,
        "dec_mpls_ttl" => Action::DecMplsTtl,
        "copy_ttl_in" => Action::CopyTtlIn,
        "copy_ttl_out" => Action::CopyTtlOut,
        other => {
            let is_port = other.starts_with(|letter: char| letter.is_ascii_digit())
                || PortNo::RESERVED.iter().any(|(_, name)| name.eq_ignore_ascii_case(other));
            if !is_port {
                return name.error(format!("`{other}` is not an action of OpenFlow 1.3 or 1.4"));
            }
            output(value::port(name)?)
        }
    })
}

fn output(port: PortNo) -> Action {
    Action::Output { port, max_len: if port == PortNo::CONTROLLER { WHOLE_FRAME } else { 0 } }
}

fn with_argument(name: Piece<'_>, argument: Piece<'_>) -> Result<Action> {
    let set = |field: Field, value: Value| Action::SetField { field, value };
    let read = |field| Ok(set(field, value::value(field, argument)?));
    Ok(match name.text {
        "output" => output(value::port(argument)?),
        "controller" | "CONTROLLER" => Action::Output { port: PortNo::CONTROLLER, max_len: argument.int()? },
        "group" => Action::Group(argument.int()?),
        "set_queue" => Action::SetQueue(argument.int()?),
        "push_vlan" => Action::PushVlan(argument.int()?),
        "push_mpls" => Action::PushMpls(argument.int()?),
        "pop_mpls" => Action::PopMpls(argument.int()?),
        "push_pbb" => Action::PushPbb(argument.int()?),
        "mod_nw_ttl" => Action::SetNwTtl(argument.int()?),
        "set_mpls_ttl" => Action::SetMplsTtl(argument.int()?),
        "mod_dl_src" => return read(Field::EthSrc),
        "mod_dl_dst" => return read(Field::EthDst),
        "mod_nw_src" => return read(Field::Ipv4Src),
        "mod_nw_dst" => return read(Field::Ipv4Dst),
        "set_field" => return set_field(argument),
        other => return name.error(format!("`{other}` is not an action of OpenFlow 1.3 or 1.4")),
    })
}

fn set_field(argument: Piece<'_>) -> Result<Action> {
    let Some(arrow) = argument.text.find("->") else {
        return argument.error("set_field is written set_field:VALUE->FIELD");
    };
    let (text, name) = (Piece { text: &argument.text[..arrow], ..argument }, argument.after(arrow + 2));
    let Some(field) = Field::from_name(name.text) else {
        return name.error(format!("OpenFlow 1.3 and 1.4 have no field {}", name.text));
    };
    if text.text.contains('/') {
        return text.error("a set-field of OpenFlow 1.3 and 1.4 takes no mask");
    }
    Ok(Action::SetField { field, value: value::value(field, text)? })
}

fn with_parentheses(item: Piece<'_>, name: Piece<'_>, body: Piece<'_>) -> Result<Action> {
    match name.text {
        "set_mpls_ttl" => Ok(Action::SetMplsTtl(body.int()?)),
        "experimenter" => {
            let (experimenter, data) = experimenter(body)?;
            Ok(Action::Experimenter { experimenter, data })
        }
        "output" | "controller" | "CONTROLLER" => {
            let mut port = (name.text != "output").then_some(PortNo::CONTROLLER);
            let mut max_len = None;
            for part in body.items() {
                match part.split(&['=']) {
                    (key, Some(text)) if key.text == "port" => port = Some(value::port(text)?),
                    (key, Some(text)) if key.text == "max_len" => max_len = Some(text.int()?),
                    (key, _) => return key.error(format!("{} has no `{}`", name.text, key.text)),
                }
            }
            let Some(port) = port else { return body.error("output(…) needs a port") };
            let Action::Output { max_len: usual, .. } = output(port) else { unreachable!("made above") };
            Ok(Action::Output { port, max_len: max_len.unwrap_or(usual) })
        }
        other => item.error(format!("`{other}(…)` is not an action of OpenFlow 1.3 or 1.4")),
    }
}

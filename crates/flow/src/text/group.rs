//! Groups as text.

use super::value::port;
use super::{Piece, Result, action};
use crate::group::{ALL_GROUPS, Bucket, Group, GroupType};
use crate::port::PortNo;
use crate::rule::ANY_GROUP;

const TYPES: [(GroupType, &str); 5] = [
    (GroupType::All, "all"),
    (GroupType::Select, "select"),
    (GroupType::Indirect, "indirect"),
    (GroupType::FastFailover, "ff"),
    (GroupType::FastFailover, "fast_failover"),
];

/// The weight of a bucket that says none.
fn usual_weight(kind: GroupType) -> u16 {
    u16::from(kind == GroupType::Select)
}

/// Writes a group.
pub fn show(group: &Group) -> String {
    let kind = TYPES.iter().find(|(kind, _)| *kind == group.kind).map_or("", |(_, name)| name);
    let mut text = format!("group_id={},type={kind}", group.id);
    for bucket in &group.buckets {
        text.push_str(",bucket=");
        if bucket.weight != usual_weight(group.kind) {
            text.push_str(&format!("weight:{},", bucket.weight));
        }
        if bucket.watch_port != PortNo::ANY {
            text.push_str(&format!("watch_port:{},", bucket.watch_port));
        }
        if bucket.watch_group != ANY_GROUP {
            text.push_str(&format!("watch_group:{},", bucket.watch_group));
        }
        text.push_str(&format!("actions={}", action::show_list(&bucket.actions)));
    }
    text
}

/// Reads the number of a group, or `all`.
pub fn number(text: Piece<'_>) -> Result<u32> {
    if text.text == "all" { Ok(ALL_GROUPS) } else { text.int() }
}

/// Reads a group.
pub fn parse(line: &str) -> Result<Group> {
    let line = Piece::line(line).trimmed();
    let (head, mut rest) = line.cut("bucket=");
    let (mut id, mut kind) = (None, None);
    for item in head.items() {
        let (name, text) = item.split(&['=']);
        match (name.text, text) {
            ("group_id", Some(text)) => id = Some(text.int()?),
            ("type", Some(text)) => match TYPES.iter().find(|(_, name)| *name == text.text) {
                Some((found, _)) => kind = Some(*found),
                None => return text.error("the type of a group is all, select, indirect or ff"),
            },
            _ => return item.error(format!("`{}` is not a property of a group", item.text)),
        }
    }
    let Some(id) = id else { return line.error("a group needs group_id=NUMBER") };
    let Some(kind) = kind else { return line.error("a group needs type=all, select, indirect or ff") };
    let mut group = Group { id, kind, buckets: vec![] };
    while let Some(text) = rest {
        let (one, next) = text.cut("bucket=");
        group.buckets.push(bucket(kind, one)?);
        rest = next;
    }
    Ok(group)
}

fn bucket(kind: GroupType, text: Piece<'_>) -> Result<Bucket> {
    let mut bucket = Bucket { weight: usual_weight(kind), ..Bucket::new(vec![]) };
    for item in text.items() {
        let (name, value) = item.split(&[':', '=']);
        match (name.text, value) {
            ("weight", Some(value)) => bucket.weight = value.int()?,
            ("watch_port", Some(value)) => bucket.watch_port = port(value)?,
            ("watch_group", Some(value)) => bucket.watch_group = value.int()?,
            // Of OpenFlow 1.5; ovs-ofctl prints it.
            ("bucket_id", Some(_)) => {}
            _ => {
                // The actions begin, with or without `actions=`.
                let begin = item.text.strip_prefix("actions=").map_or(0, |_| "actions=".len());
                bucket.actions = action::list(text.after(item.at - text.at + begin))?;
                break;
            }
        }
    }
    Ok(bucket)
}

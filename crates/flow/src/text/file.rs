//! Files of rules, groups and meters.
//!
//! **What.** One thing a line: a line that begins with `group_id=` is a group, one with `meter=` a meter, any other a rule;
//! `#` begins a comment, and the headings of ovs-ofctl's dumps are passed over. [`load`] puts them into a pipeline in their order.
//!
//! **Why.** A pipeline is one file that can be kept, compared and traced.
//!
//! **Price.** A rule that needs a group or a meter stands below it.

use super::{group, meter, rule};
use crate::action::Action;
use crate::field::Field;
use crate::group::GroupMod;
use crate::meter::MeterMod;
use crate::numbered::ModCommand;
use crate::pipeline::{Change, Pipeline};
use crate::port::{Port, PortNo};
use crate::rule::FlowModCommand;
use record::line::lines;
use std::collections::BTreeSet;
use std::fmt;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1; none when the text is right and the switch refuses what it says.
    pub column: Option<usize>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            Some(column) => write!(f, "line {}, column {column}: {}", self.line, self.what),
            None => write!(f, "line {}: {}", self.line, self.what),
        }
    }
}

impl std::error::Error for FileError {}

/// Reads a file: the changes that it means, each with the number of its line.
pub fn parse(text: &str) -> Result<Vec<(usize, Change)>, FileError> {
    let mut changes = vec![];
    for line in lines(text).filter(|line| !is_heading(line.code)) {
        let change = change(line.code.trim_start()).map_err(|error| FileError {
            line: line.number,
            column: Some(error.column + line.words[0].column - 1),
            what: error.what,
        })?;
        changes.push((line.number, change));
    }
    Ok(changes)
}

/// Whether a line is the one with which ovs-ofctl begins what it dumps: `OFPST_FLOW reply (OF1.3) (xid=0x2):`, `NXST_FLOW reply (xid=0x4):`.
pub fn is_heading(line: &str) -> bool {
    let line = line.trim();
    ["OFPST_", "NXST_"].iter().any(|begin| line.starts_with(begin))
        && line.contains(" reply ")
        && line.ends_with(':')
}

/// Reads one line: a rule, a group or a meter, which is added.
///
/// # Errors
/// The column and what is wrong there.
pub fn change(line: &str) -> super::Result<Change> {
    let command = ModCommand::Add;
    Ok(match () {
        () if line.starts_with("group_id=") => {
            Change::Group(GroupMod { command, group: group::parse(line)? })
        }
        () if line.starts_with("meter=") => Change::Meter(MeterMod { command, meter: meter::parse(line)? }),
        () => Change::Flow(rule::flow_mod(FlowModCommand::Add, line)?),
    })
}

/// The ports that actions send to.
fn outputs(actions: &[Action]) -> impl Iterator<Item = PortNo> + '_ {
    actions.iter().filter_map(|action| match action {
        Action::Output { port, .. } => Some(*port),
        _ => None,
    })
}

/// The ports that a change names.
fn named(change: &Change) -> Vec<PortNo> {
    match change {
        Change::Flow(change) => {
            let in_port = change.rule.matching.exact(Field::InPort).map(|port| PortNo(port as u32));
            let instructions = change.rule.instructions.iter();
            instructions.flat_map(|one| outputs(one.actions())).chain(in_port).collect()
        }
        Change::Group(change) => {
            let buckets = change.group.buckets.iter();
            buckets.flat_map(|bucket| outputs(&bucket.actions).chain([bucket.watch_port])).collect()
        }
        _ => vec![],
    }
}

/// The ordinary ports, and LOCAL, that changes name: in matches, in actions, to be watched.
pub fn ports(changes: &[(usize, Change)]) -> BTreeSet<PortNo> {
    let named = changes.iter().flat_map(|(_, change)| named(change));
    named.filter(|port| port.is_ordinary() || *port == PortNo::LOCAL).collect()
}

/// Puts what a file says into a pipeline; ports that it names and that are not there yet are added first.
pub fn load(pipeline: &mut Pipeline, text: &str) -> Result<(), FileError> {
    let changes = parse(text)?;
    for number in ports(&changes) {
        if !pipeline.ports.contains_key(&number) {
            let [_, b, c, d] = number.0.to_be_bytes();
            pipeline.add_port(Port::new(number, &format!("port{number}"), [2, 0, 0, b, c, d]));
        }
    }
    for (line, change) in &changes {
        pipeline.apply(0, change).map_err(|error| FileError {
            line: *line,
            column: None,
            what: format!("{error} ({})", error.name()),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_a_pipeline_or_an_error_with_its_place() {
        let mut pipeline = Pipeline::default();
        let text = "# a comment\nmeter=1,pktps,band=type=drop,rate=5\n\ngroup_id=1,type=ff,bucket=watch_port:7,actions=output:8\n\
                    table=1,in_port=3 actions=meter:1,group:1,LOCAL # and one behind\n";
        load(&mut pipeline, text).unwrap();
        let ports: Vec<u32> = pipeline.ports.keys().map(|port| port.0).collect();
        assert_eq!(ports, [3, 7, 8, PortNo::LOCAL.0]);
        assert_eq!(pipeline.table(1).unwrap().len(), 1);
        let dumped = "OFPST_GROUP_DESC reply (OF1.4) (xid=0x2):\n group_id=1,type=all,bucket=actions=output:2\n\
                      OFPST_FLOW reply (OF1.4) (xid=0x2):\n cookie=0x0, duration=0.1s, table=0, n_packets=7, n_bytes=9, \
                      priority=3,ip,in_port=1 actions=group:1\n";
        assert_eq!(parse(dumped).unwrap().iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4]);
        load(&mut Pipeline::default(), dumped).unwrap();
        let error = |text: &str| load(&mut Pipeline::default(), text).unwrap_err().to_string();
        assert_eq!(error("\n  in_port=x actions=drop"), "line 2, column 11: `x` is not a number");
        let refused = "line 1: an action was refused: the group does not exist (BadAction/BadOutGroup)";
        assert_eq!(error("actions=group:4"), refused);
    }
}

//! Any bytes as a file of rules, groups and meters, and as frames.

use flow::Pipeline;
use flow::pipeline::Change;
use flow::rule::FlowModCommand;
use flow::text::{file, frame, group, meter, rule};

/// A file is read or refused with a place that is in it; every line that is read is written, and reads back as what it was. The pipeline
/// takes or refuses it. Every line is also tried as what else a line can be: a change of every kind, a match, a frame.
pub fn rule_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match file::parse(text) {
        Ok(changes) => changes.iter().for_each(|(_, change)| comes_back(change)),
        Err(error) => assert!(error.line <= text.lines().count(), "{error}"),
    }
    // A number of a meter or a group may be a million; what is not bounded by the text is what this would find.
    let _ = file::load(&mut Pipeline::default(), text);
    for line in text.lines() {
        one_line(line);
    }
}

fn one_line(line: &str) {
    for command in [
        FlowModCommand::Add,
        FlowModCommand::Modify,
        FlowModCommand::ModifyStrict,
        FlowModCommand::Delete,
        FlowModCommand::DeleteStrict,
    ] {
        let _ = rule::flow_mod(command, line);
    }
    if let Ok(matching) = rule::parse_match(line)
        && let Ok(bytes) = frame::of_match(&matching)
    {
        assert!(bytes.len() >= 14);
    }
    if let Ok(bytes) = frame::parse(line) {
        assert!(!wire::text::line(&bytes).contains('\n'));
    }
}

fn comes_back(change: &Change) {
    match change {
        Change::Flow(change) => {
            let text = rule::show(change.table, &change.rule);
            let again = rule::parse(&text);
            assert_eq!(again.as_ref(), Ok(&(change.table, change.rule.clone())), "{text}");
        }
        Change::Group(change) => {
            let text = group::show(&change.group);
            assert_eq!(group::parse(&text).as_ref(), Ok(&change.group), "{text}");
        }
        Change::Meter(change) => {
            let text = meter::show(&change.meter);
            assert_eq!(meter::parse(&text).as_ref(), Ok(&change.meter), "{text}");
        }
        Change::Port(_) | Change::Table(_) => unreachable!("a file has no such line"),
    }
}

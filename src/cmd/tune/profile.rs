//! Profiles: knobs as text, a line each, as `tune set` takes them.

use super::{Target, set_all};
use crate::cmd::read_text;
use crate::output::{Output, object, write_whole};
use linux::tune::kept::{self, Ask};
use linux::tune::list;
use record::Result;
use record::knob::KnobReading;
use std::path::Path;

/// Writes the knobs that can be set.
pub fn save(interface: Option<&str>, file: &Path, target: &Target, output: &Output) -> Result<()> {
    let (namespace, mut knobs) = target.within(|space| Ok((space.to_owned(), readings(interface)?)))?;
    knobs.retain(|knob| !knob.fixed);
    let place = file.display().to_string();
    write_whole(file, &text(&namespace, &knobs))?;
    let document = object! { schema: "pathlab/tune-save/1", file: &place, namespace, knobs: knobs.len() };
    output.result(&document, |document| {
        format!("{}: {}", document.file, record::unit::many(document.knobs as u64, "knob"))
    })
}

/// The knobs of an interface, or all of the namespace, the machine and every interface.
fn readings(interface: Option<&str>) -> Result<Vec<KnobReading>> {
    if interface.is_some() {
        return list(interface);
    }
    let mut all = list(None)?;
    for name in linux::tune::interfaces()? {
        all.extend(list(Some(&name))?);
    }
    Ok(all)
}

fn text(namespace: &str, knobs: &[KnobReading]) -> String {
    let line = |knob: &KnobReading| {
        let interface = knob.interface.as_ref().map(|name| format!("{name}:")).unwrap_or_default();
        format!("{interface}{}={}\n", knob.name, knob.value)
    };
    let lines: String = knobs.iter().map(line).collect();
    format!("# pathlab tune save, of {namespace}: 'pathlab tune apply' sets what differs.\n{lines}")
}

/// The knobs of a profile, each with its line.
fn read(file: &Path) -> Result<Vec<Ask>> {
    let text = read_text(file, "the profile cannot be read")?;
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let ask = |(number, line): (usize, &str)| {
        Ask::parse(line, None).map_err(|problem| problem.at(format!("{}:{number}", file.display())))
    };
    lines.map(ask).collect()
}

/// Sets what a profile says.
pub fn apply(file: &Path, may_flap: bool, target: &Target, output: &Output) -> Result<()> {
    set_all(&read(file)?, may_flap, target, output)
}

/// Says where a profile differs.
pub fn diff(file: &Path, target: &Target, output: &Output) -> Result<()> {
    let asks = read(file)?;
    let changes = target.within(|space| kept::compare(space, &asks))?;
    output.result(&object! { schema: "pathlab/tune-diff/1", changes }, |document| {
        super::words::differing(&document.changes)
    })
}

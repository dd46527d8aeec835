//! The frames of a test that died, in words: how many, why and where, and the file that has them.

use crate::table::count;
use record::drops::{DropRow, DropsReport};
use record::ledger::WitnessDrop;
use record::{TestRecord, Witness};
use std::collections::BTreeMap;

/// One line of a test for which they were wanted: `dead frames: 20 in RUN/dead-1.pcapng: 20 filter at r`. Without the run's name the file has its
/// own alone.
pub fn line(run: &str, test: &TestRecord) -> Option<String> {
    let report = test.dead_frames.as_ref()?;
    let folder = if run.is_empty() { String::new() } else { format!("{run}/") };
    let place =
        report.written.as_ref().map(|written| format!(" in {folder}{}", written.file)).unwrap_or_default();
    let rows: Vec<String> = report.rows.iter().map(row).collect();
    let rows = if rows.is_empty() { String::new() } else { format!(": {}", rows.join(", ")) };
    // A super-frame is as many frames as it has segments, and one frame of the file.
    let buffers = match report.buffers < report.frames {
        true => format!(" (as {})", record::unit::many(report.buffers, "buffer")),
        false => String::new(),
    };
    Some(format!("dead frames: {}{buffers}{place}{rows}{}", count(report.frames), gaps(test, report)))
}

/// `20 filter at r`; what has no name is told by the kernel's reason.
fn row(row: &DropRow) -> String {
    let name = row.name.as_deref().unwrap_or(&row.reason);
    format!("{} {name} at {}", count(row.frames), row.node)
}

/// Frames that the drop witness, another program at the same event, counted in the ledger and that are not among these, by node and reason.
/// These begin before the witness and end after it, so there may be more of them, never fewer.
fn missed(witness: &Witness, report: &DropsReport) -> u64 {
    let mut counted: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for drop in &witness.details {
        *counted.entry((&drop.node, &drop.reason)).or_default() += drop.frames;
    }
    let here = |place: (&str, &str)| -> u64 {
        let of_place = |row: &&DropRow| (row.node.as_str(), row.reason.as_str()) == place;
        report.rows.iter().filter(of_place).map(|row| row.frames).sum()
    };
    counted.into_iter().map(|(place, frames)| frames.saturating_sub(here(place))).sum()
}

/// Frames that did not get lost: those are copies, of which [`crate::ledger::copies`] tells.
fn copies(test: &TestRecord, report: &DropsReport) -> u64 {
    let seen = |row: &DropRow| WitnessDrop {
        reason: row.reason.clone(),
        node: row.node.clone(),
        interface: row.interface.clone(),
        location: row.place.clone(),
        frames: row.frames,
        skbs: row.buffers,
    };
    crate::ledger::copies(test, &report.rows.iter().map(seen).collect::<Vec<_>>())
}

/// What the file has not, or not whole, and what is no loss.
fn gaps(test: &TestRecord, report: &DropsReport) -> String {
    let gaps = [
        (copies(test, report), "are a host's own copies of frames that a port took, and no loss"),
        (
            test.ledger.as_ref().map_or(0, |ledger| missed(&ledger.witness, report)),
            "more were counted by the drop witness of the ledger",
        ),
        (report.lost, "dying buffers of these nodes found no room and were not looked at"),
        (report.cut, "are not whole"),
        (report.hidden, "events of this host were hidden"),
    ];
    gaps.iter()
        .filter(|(many, _)| *many > 0)
        .map(|(many, what)| format!("; {} {what}", count(*many)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use record::TrafficKind;

    /// The line of a test of which the witness of the ledger saw these drops.
    fn told_beside(report: Option<DropsReport>, details: Vec<WitnessDrop>) -> Option<String> {
        let mut test = sample::test(TrafficKind::UdpStream, "udp-stream", 1, true);
        test.ledger.as_mut().unwrap().witness.details = details;
        line("R", &TestRecord { dead_frames: report, ..test })
    }

    fn told(report: Option<DropsReport>) -> Option<String> {
        told_beside(report, vec![])
    }

    #[test]
    fn what_the_receivers_host_does_with_its_copies_of_raw_frames_is_no_loss() {
        let mut report = sample::dead_frames();
        let end = TrafficKind::Frames;
        let mut test = sample::test(end, "frames", 1, true);
        let copy = DropRow {
            reason: "SOCKET_FILTER".into(),
            name: Some("socket_filter".into()),
            place: Some("sk_filter_trim_cap".into()),
            node: test.spec.to.clone(),
            frames: 3000,
            buffers: 3000,
            ..report.rows[0].clone()
        };
        report.rows.insert(0, copy);
        report.frames += 3000;
        let told = |test: &TestRecord| line("", test).unwrap();
        test.dead_frames = Some(report);
        let copies = "; 3,000 are a host's own copies of frames that a port took, and no loss";
        assert!(told(&test).contains(copies), "{}", told(&test));
        test.spec.kind = TrafficKind::UdpStream;
        assert!(!told(&test).contains("copies"), "its socket reads what it does not drop: {}", told(&test));
    }

    #[test]
    fn a_line_names_the_file_and_says_what_is_not_in_it() {
        let report = sample::dead_frames();
        assert_eq!(told(None), None);
        let words = "dead frames: 20 in R/dead-1.pcapng: 20 filter at r";
        assert_eq!(told(Some(report.clone())).as_deref(), Some(words));
        let alone = line("", &TestRecord { dead_frames: Some(report.clone()), ..TestRecord::default() });
        assert_eq!(alone.as_deref(), Some("dead frames: 20 in dead-1.pcapng: 20 filter at r"));
        let merged = told(Some(DropsReport { buffers: 1, ..report.clone() }));
        let as_one = "dead frames: 20 (as 1 buffer) in R/dead-1.pcapng: 20 filter at r";
        assert_eq!(merged.as_deref(), Some(as_one), "a super-frame is one frame of the file");
        let gaps = DropsReport { lost: 3, cut: 1, hidden: 2, ..report.clone() };
        let told_gaps = told(Some(gaps)).unwrap();
        assert!(told_gaps.ends_with("; 3 dying buffers of these nodes found no room and were not looked at; 1 are not whole; 2 events of this host were hidden"), "{told_gaps}");
        // Of what the witness of the ledger counted, nothing may be missing.
        let seen = |node: &str, reason: &str, frames| WitnessDrop {
            reason: reason.into(),
            node: node.into(),
            interface: None,
            location: None,
            frames,
            skbs: frames,
        };
        let witnessed = |details| told_beside(Some(report.clone()), details).unwrap();
        let filter = |frames| seen("r", "NETFILTER_DROP", frames);
        assert_eq!(witnessed(vec![filter(15), filter(4)]), words, "those that came before it or after it");
        let more = witnessed(vec![filter(15), filter(9), seen("b", "NETFILTER_DROP", 2)]);
        assert_eq!(more, format!("{words}; 6 more were counted by the drop witness of the ledger"));
        let none = DropsReport { frames: 0, rows: vec![], written: None, ..report };
        assert_eq!(told(Some(none)).as_deref(), Some("dead frames: 0"));
    }
}

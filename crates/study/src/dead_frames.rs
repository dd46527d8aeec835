//! The frames of a test that died, in words: how many, why and where, and the file that has them.

use crate::table::count;
use record::TestRecord;
use record::drops::{DropRow, DropsReport};

/// One line of a test for which they were wanted: `dead frames: 20 in RUN/dead-1.pcapng: 20 filter at r`. Without the run's name the file has its
/// own alone.
pub fn line(run: &str, test: &TestRecord) -> Option<String> {
    let report = test.dead_frames.as_ref()?;
    let folder = if run.is_empty() { String::new() } else { format!("{run}/") };
    let place =
        report.written.as_ref().map(|written| format!(" in {folder}{}", written.file)).unwrap_or_default();
    let rows: Vec<String> = report.rows.iter().map(row).collect();
    let rows = if rows.is_empty() { String::new() } else { format!(": {}", rows.join(", ")) };
    Some(format!("dead frames: {}{place}{rows}{}", count(report.frames), gaps(report)))
}

/// `20 filter at r`; what has no name is told by the kernel's reason.
fn row(row: &DropRow) -> String {
    let name = row.name.as_deref().unwrap_or(&row.reason);
    format!("{} {name} at {}", count(row.frames), row.node)
}

/// What the file has not, or not whole.
fn gaps(report: &DropsReport) -> String {
    let gaps = [
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

    fn told(report: Option<DropsReport>) -> Option<String> {
        let test = sample::test(TrafficKind::UdpStream, "udp-stream", 1, true);
        line("R", &TestRecord { dead_frames: report, ..test })
    }

    #[test]
    fn a_line_names_the_file_and_says_what_is_not_in_it() {
        let report = sample::dead_frames();
        assert_eq!(told(None), None);
        let words = "dead frames: 20 in R/dead-1.pcapng: 20 filter at r";
        assert_eq!(told(Some(report.clone())).as_deref(), Some(words));
        let alone = line("", &TestRecord { dead_frames: Some(report.clone()), ..TestRecord::default() });
        assert_eq!(alone.as_deref(), Some("dead frames: 20 in dead-1.pcapng: 20 filter at r"));
        let gaps = DropsReport { lost: 3, cut: 1, hidden: 2, ..report.clone() };
        let told_gaps = told(Some(gaps)).unwrap();
        assert!(told_gaps.ends_with("; 3 dying buffers of these nodes found no room and were not looked at; 1 are not whole; 2 events of this host were hidden"), "{told_gaps}");
        let none = DropsReport { frames: 0, rows: vec![], written: None, ..report };
        assert_eq!(told(Some(none)).as_deref(), Some("dead frames: 0"));
    }
}

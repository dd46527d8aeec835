//! Which runs of the list are wanted.

use super::RunSummary;
use record::{Problem, Result};

/// What a run must have to be listed; what is none is not asked. Texts are looked for anywhere inside, whatever their case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Inside the name of its plan.
    pub plan: Option<String>,
    /// Inside its label.
    pub label: Option<String>,
    /// Inside its path: a way or a topology.
    pub path: Option<String>,
    /// Begun then or later: the begin of a time by RFC 3339 in UTC, `2026-11`, `2026-11-22`, `2026-11-22T14:30`.
    pub since: Option<String>,
    /// Begun then or earlier; `2026-11-22` includes that day.
    pub until: Option<String>,
    /// Inside any of its name, label, plan, path, names of tests.
    pub text: Option<String>,
}

impl Filter {
    /// Sees that the times are times.
    ///
    /// # Errors
    /// Input: one is not.
    pub fn check(&self) -> Result<()> {
        for (flag, time) in [("--since", &self.since), ("--until", &self.until)] {
            if let Some(time) = time
                && !is_begin_of_time(time)
            {
                return Err(Problem::input(format!("'{time}' is not the begin of a time in UTC"))
                    .at(flag)
                    .help("write 2026, 2026-11, 2026-11-22 or 2026-11-22T14:30"));
            }
        }
        Ok(())
    }

    /// True when nothing is asked.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// True for a run that is wanted. A damaged one, of which only the name is known, is wanted if nothing else is asked.
    pub fn takes(&self, run: &RunSummary) -> bool {
        let has = |wanted: &Option<String>, texts: &[&str]| {
            wanted.as_ref().is_none_or(|wanted| {
                let wanted = wanted.to_lowercase();
                texts.iter().any(|text| text.to_lowercase().contains(&wanted))
            })
        };
        let label = run.label.as_deref().unwrap_or_default();
        let mut all = vec![run.id.as_str(), label, &run.plan, &run.path];
        all.extend(run.names.iter().map(String::as_str));
        // A begin of a time is compared with the begin of the other that is as long.
        let begun = |length: usize| run.begun.get(..length).unwrap_or(&run.begun);
        has(&self.plan, &[&run.plan])
            && has(&self.label, &[label])
            && has(&self.path, &[&run.path])
            && has(&self.text, &all)
            && self.since.as_ref().is_none_or(|since| begun(since.len()) >= since.as_str())
            && self
                .until
                .as_ref()
                .is_none_or(|until| !run.begun.is_empty() && begun(until.len()) <= until.as_str())
    }
}

/// True for `2026`, `2026-11`, `2026-11-22`, with `T14`, `:30`, `:05` behind it.
fn is_begin_of_time(text: &str) -> bool {
    const FORM: &str = "0000-00-00T00:00:00";
    let fits = |(given, form): (u8, u8)| if form == b'0' { given.is_ascii_digit() } else { given == form };
    [4, 7, 10, 13, 16, 19].contains(&text.len()) && text.bytes().zip(FORM.bytes()).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(begun: &str, label: Option<&str>, path: &str) -> RunSummary {
        RunSummary {
            id: "20261122T143000Z-abc123".into(),
            begun: begun.into(),
            label: label.map(Into::into),
            plan: "plans/paced.plan".into(),
            path: path.into(),
            names: vec!["udp-stream 64 B".into()],
            ..RunSummary::default()
        }
    }

    #[test]
    fn each_question_is_about_its_own_field_and_text_about_all() {
        let run = run("2026-11-22T14:30:00.123Z", Some("Before the patch"), "switch:xdp, offload off");
        let some = |text: &str| Some(text.to_owned());
        let takes = |filter: Filter| filter.takes(&run);
        assert!(takes(Filter::default()));
        assert!(takes(Filter {
            plan: some("PACED"),
            label: some("patch"),
            path: some("xdp"),
            ..Filter::default()
        }));
        for text in ["abc123", "before", "paced", "offload off", "udp-stream 64"] {
            assert!(takes(Filter { text: some(text), ..Filter::default() }), "{text}");
        }
        assert!(!takes(Filter { plan: some("patch"), ..Filter::default() }));
        assert!(!takes(Filter { text: some("ping"), ..Filter::default() }));
    }

    #[test]
    fn a_day_contains_its_evening_and_a_word_is_no_time() {
        let run = run("2026-11-22T14:30:00.123Z", None, "bridge");
        for (since, until, wanted) in [
            ("2026", "2026", true),
            ("2026-11-22", "2026-11-22", true),
            ("2026-11-22T14:30", "2026-11-22T14:30", true),
            ("2026-11-23", "2027", false),
            ("2025", "2026-11-21", false),
            ("2025", "2026-11-22T14:29", false),
        ] {
            let filter = Filter { since: Some(since.into()), until: Some(until.into()), ..Filter::default() };
            filter.check().unwrap();
            assert_eq!(filter.takes(&run), wanted, "{since} to {until}");
        }
        for wrong in ["", "today", "2026-1", "2026-11-22 14:30", "20261122"] {
            let filter = Filter { since: Some(wrong.into()), ..Filter::default() };
            assert_eq!(filter.check().unwrap_err().kind.exit_code(), 2, "{wrong}");
        }
    }
}

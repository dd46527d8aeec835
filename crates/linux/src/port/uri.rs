//! The name of a port: `KIND:REST?KEY=VALUE&KEY=VALUE`.

use record::{Problem, Result};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A port's name, taken apart. Keys are used up by [`Uri::take`]; [`Uri::finish`] refuses those that nobody knew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// As it was written.
    pub text: String,
    /// What comes before the colon: `int`, `ring`, `xdp`, `tap`, `pcap`, `mem`, `fault`, `live`.
    pub kind: String,
    /// What comes between the colon and the question mark: an interface, a file, a name.
    pub rest: String,
    /// Settings that are still to be taken.
    settings: Vec<(String, String)>,
    /// The keys that were asked for, for the message of [`Uri::finish`].
    known: Vec<&'static str>,
}

impl Uri {
    /// Takes a name apart.
    ///
    /// # Errors
    /// Input: without a colon, or with a setting that has no `=` or comes twice.
    pub fn parse(text: &str) -> Result<Uri> {
        let bad = |what: String| Problem::input(what).at(text);
        let Some((kind, rest)) = text.split_once(':') else {
            let what = format!("'{text}' is not a port");
            return Err(
                Problem::input(what).help("write KIND:NAME, for example ring:eth0 or pcap:file.pcapng")
            );
        };
        // A file may have a question mark in its name, so the settings begin at the last one that has an '=' behind.
        let (rest, query) = match rest.rsplit_once('?') {
            Some((rest, query)) if query.contains('=') => (rest, query),
            _ => (rest, ""),
        };
        let mut settings: Vec<(String, String)> = vec![];
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(bad(format!("setting '{setting}' has no value")).help("write KEY=VALUE"));
            };
            if settings.iter().any(|(other, _)| other == key) {
                return Err(bad(format!("setting '{key}' is given twice")));
            }
            settings.push((key.to_owned(), value.to_owned()));
        }
        Ok(Uri {
            text: text.to_owned(),
            kind: kind.to_owned(),
            rest: rest.to_owned(),
            settings,
            known: vec![],
        })
    }

    /// The value of a setting, none when it is not there. It counts as known from now on.
    pub fn take(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        let at = self.settings.iter().position(|(other, _)| other == key)?;
        Some(self.settings.remove(at).1)
    }

    /// The value of a setting that is a number within a range, in bytes ([`record::unit::bytes`]) or of something else
    /// ([`record::unit::amount`]).
    ///
    /// # Errors
    /// Input: what the reader says, or out of the range.
    pub fn take_number<T: TryFrom<u64> + PartialOrd + Display>(
        &mut self,
        key: &'static str,
        read: fn(&str) -> std::result::Result<u64, String>,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>> {
        let within = |value| T::try_from(value).ok().filter(|value| range.contains(value));
        let wanted = format!("{} to {}", range.start(), range.end());
        self.take_as(key, |text| read(text).map(within), &wanted)
    }

    /// The value of a setting as a reader understands it, who says what is wrong with the text, or none where it is only not
    /// `wanted`.
    ///
    /// # Errors
    /// Input: what the reader says, or what is wanted.
    pub fn take_as<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> std::result::Result<Option<T>, String>,
        wanted: &str,
    ) -> Result<Option<T>> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let read =
            read(&text).map_err(|what| Problem::input(format!("{key}={text}: {what}")).at(&self.text))?;
        read.map(Some).ok_or_else(|| self.bad(key, &text, wanted))
    }

    /// The value of a setting that is one of several words; none when it is not there.
    ///
    /// # Errors
    /// Input: another word; the message names those of the table.
    pub fn take_word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Result<Option<T>> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let wanted = match names.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            _ => names.concat(),
        };
        let find = |text: &str| words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        self.take_as(key, |text| Ok(find(text)), &wanted)
    }

    /// A switch, and what it is when it is not there.
    ///
    /// # Errors
    /// Input: neither `on` (or `yes`) nor `off` (or `no`).
    pub fn take_switch(&mut self, key: &'static str, otherwise: bool) -> Result<bool> {
        let read = |text: &str| match text {
            "on" | "yes" => Some(true),
            "off" | "no" => Some(false),
            _ => None,
        };
        Ok(self.take_as(key, |text| Ok(read(text)), "yes or no (on or off)")?.unwrap_or(otherwise))
    }

    /// What to say about a value that cannot be used.
    pub(in crate::port) fn bad(&self, key: &str, value: &str, wanted: &str) -> Problem {
        Problem::input(format!("{key}={value} cannot be used"))
            .at(&self.text)
            .help(format!("it must be {wanted}"))
    }

    /// Refuses settings that nobody took.
    ///
    /// # Errors
    /// Input: names the unknown setting and the known ones.
    pub fn finish(&self) -> Result<()> {
        let Some((key, _)) = self.settings.first() else { return Ok(()) };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        Err(Problem::input(format!("port kind '{}' has no setting '{key}'", self.kind))
            .at(&self.text)
            .help(format!("its settings are: {known}")))
    }

    /// The same name without the settings that were taken: what `fault:` hands on to the port inside.
    pub fn remaining(&self) -> String {
        let mut text = self.rest.clone();
        for (i, (key, value)) in self.settings.iter().enumerate() {
            text.push(if i == 0 { '?' } else { '&' });
            text.push_str(&format!("{key}={value}"));
        }
        text
    }
}

/// The word for a value, from a table as [`Uri::take_word`] takes it; empty when it is not there.
pub(in crate::port) fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, other)| *other == value).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use record::unit;

    #[test]
    fn a_name_is_taken_apart() {
        let mut uri = Uri::parse("fault:ring:eth0?block=64Ki&lose=1%&seed=7").unwrap();
        assert_eq!((uri.kind.as_str(), uri.rest.as_str()), ("fault", "ring:eth0"));
        assert_eq!(uri.take("lose").as_deref(), Some("1%"));
        assert_eq!(uri.take_number("seed", unit::amount, 0..=u64::MAX).unwrap(), Some(7));
        assert_eq!(uri.remaining(), "ring:eth0?block=64Ki");
        let problem = uri.finish().unwrap_err().to_string();
        assert!(problem.contains("no setting 'block'") && problem.contains("lose, seed"), "{problem}");
        assert_eq!(uri.take_number("block", unit::bytes, 1..=65536).unwrap(), Some(65536));
        uri.finish().unwrap();
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        assert!(Uri::parse("eth0").unwrap_err().to_string().contains("KIND:NAME"));
        assert!(Uri::parse("ring:eth0?a=1&a=2").unwrap_err().to_string().contains("twice"));
        assert!(
            Uri::parse("ring:eth0?a=x")
                .unwrap()
                .take_number("a", unit::amount, 0..=9)
                .unwrap_err()
                .to_string()
                .contains("a=x")
        );
        assert_eq!(Uri::parse("pcap:what?.pcap").unwrap().rest, "what?.pcap");
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_refused(text in ".{0,40}") {
            if let Ok(uri) = Uri::parse(&text) {
                let _ = (uri.remaining(), uri.finish());
            }
        }
    }
}

//! What every counter means: the table of `docs/counters/`, a row a counter.
//!
//! **What.** A row says what moves a counter, what does not although its name promises it, in which unit it counts, since which kernel, and
//! where that is written. A name may have several rows: `rx_packets` of an interface, of a queue and of a driver are three counters. The
//! reasons for drops have a table beside it.
//!
//! **Why the documentation is the table.** A second copy would be wrong one day; [`all`] reads the pages that people read.
//!
//! **Price.** The pages are in the program (110 KB) and read once, when the first name is asked for.

use std::sync::LazyLock;

/// What kind of number a counter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterKind {
    /// It only grows, until it wraps or whoever counts begins anew.
    Count,
    /// It goes up and down.
    Now,
    /// No quantity: a state, a setting, several fields in one number.
    State,
}

impl CounterKind {
    /// The word of the table.
    pub fn word(self) -> &'static str {
        match self {
            CounterKind::Count => "count",
            CounterKind::Now => "now",
            CounterKind::State => "state",
        }
    }

    fn of(word: &str) -> Option<CounterKind> {
        [CounterKind::Count, CounterKind::Now, CounterKind::State].into_iter().find(|one| one.word() == word)
    }
}

/// Counters that are read in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterSource {
    /// What stands before the colon of a full name: `interface`, `softnet`, `ixgbe`.
    pub key: &'static str,
    /// What they are about.
    pub title: &'static str,
    /// Where they are read.
    pub place: &'static str,
    /// Where their meaning is written.
    pub reference: &'static str,
}

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Where it is read.
    pub source: CounterSource,
    /// Its name; `<n>` stands for a number and `<w>` for any text.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: CounterKind,
    /// In what it counts.
    pub unit: &'static str,
    /// The first kernel that has it; empty when that is not known here.
    pub since: &'static str,
    /// What moves it.
    pub moves: &'static str,
    /// What does not, and what else it is good to know; empty when there is nothing to say.
    pub traps: &'static str,
}

impl Counter {
    /// Its name with its source: `interface:rx_packets`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.source.key, self.name)
    }

    /// Whether it is the counter of that name.
    pub fn is(&self, name: &str) -> bool {
        fits(self.name, name)
    }

    /// How much of the name is said by its row: rows that say more come first.
    fn told(&self) -> usize {
        self.name.replace("<n>", "").replace("<w>", "").len()
    }
}

/// The pages.
const PAGES: [&str; 4] = [
    include_str!("../../../docs/counters/host.md"),
    include_str!("../../../docs/counters/protocols.md"),
    include_str!("../../../docs/counters/tcp_info.md"),
    include_str!("../../../docs/counters/drivers.md"),
];
const REASONS: &str = include_str!("../../../docs/counters/reasons.md");

static ALL: LazyLock<Vec<Counter>> = LazyLock::new(|| PAGES.into_iter().flat_map(page).collect());

/// Every row, in the order of the pages.
pub fn all() -> &'static [Counter] {
    &ALL
}

/// The counters of that name, one of each source at most: the row that says most of the name. `interface:rx_packets` asks one source, and
/// only that is answered with a row for any text (`<w>`).
pub fn named(name: &str) -> Vec<&'static Counter> {
    match name.split_once(':') {
        Some((key, rest)) if all().iter().any(|row| row.source.key == key) => closest(Some(key), rest),
        _ => closest(None, name).into_iter().filter(|row| !row.name.contains("<w>")).collect(),
    }
}

/// The same with rows for any text, whatever their source.
pub fn perhaps(name: &str) -> Vec<&'static Counter> {
    closest(None, name)
}

fn closest(key: Option<&str>, name: &str) -> Vec<&'static Counter> {
    let mut found: Vec<&Counter> = vec![];
    for row in all().iter().filter(|row| key.is_none_or(|key| row.source.key == key) && row.is(name)) {
        match found.iter_mut().find(|other| other.source.key == row.source.key) {
            Some(other) if other.told() < row.told() => *other = row,
            Some(_) => {}
            None => found.push(row),
        }
    }
    found
}

/// The row of a source's counter.
pub fn of(key: &str, name: &str) -> Option<&'static Counter> {
    named(&format!("{key}:{name}")).pop()
}

/// The kernel's reasons for drops, each with its meaning.
pub fn reasons() -> impl Iterator<Item = (&'static str, &'static str)> {
    REASONS.lines().filter_map(|line| {
        let [name, meaning] = cells(line)?;
        Some((quoted(name)?, meaning))
    })
}

/// The counters of a page.
fn page(text: &'static str) -> Vec<Counter> {
    let (mut found, mut since) = (vec![], "");
    let mut source = CounterSource { key: "", title: "", place: "", reference: "" };
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("## ") {
            let (title, key) = head.split_once(": ").unwrap_or((head, ""));
            source = CounterSource { key: quoted(key).unwrap_or(key), title, place: "", reference: "" };
        } else if let Some(place) = line.strip_prefix("Source: ") {
            source.place = place.trim();
        } else if let Some(reference) = line.strip_prefix("Reference: ") {
            source.reference = reference.trim();
        } else if let Some(text) = line.strip_prefix("Since:") {
            since = text.trim();
        } else {
            found.extend(row(line, &source, since));
        }
    }
    found
}

fn row(line: &'static str, source: &CounterSource, usual: &'static str) -> Option<Counter> {
    let [name, kind, unit, since, moves, traps] = cells(line)?;
    Some(Counter {
        source: source.clone(),
        name: quoted(name)?,
        kind: CounterKind::of(kind)?,
        unit,
        since: if since.is_empty() { usual } else { since },
        moves,
        traps,
    })
}

/// The cells of a row of a table that has so many.
fn cells<const N: usize>(line: &'static str) -> Option<[&'static str; N]> {
    let inside = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    let found: Vec<&str> = inside.split('|').map(str::trim).collect();
    found.try_into().ok()
}

/// What stands in backquotes, alone.
fn quoted(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// Whether a name fits a pattern.
fn fits(pattern: &str, name: &str) -> bool {
    let next = pattern.find("<n>").into_iter().chain(pattern.find("<w>")).min();
    let Some(at) = next else { return pattern == name };
    let Some(rest) = name.strip_prefix(&pattern[..at]) else { return false };
    let (is_number, behind) = (pattern[at..].starts_with("<n>"), &pattern[at + 3..]);
    let longest = if is_number { rest.bytes().take_while(u8::is_ascii_digit).count() } else { rest.len() };
    (1..=longest).rev().any(|length| rest.is_char_boundary(length) && fits(behind, &rest[length..]))
}

#[cfg(test)]
#[path = "counter_tests.rs"]
mod tests;

//! From a reading of nodes and a host to series of counters for Prometheus and OpenTelemetry.
//!
//! **What.** [`gather`] makes samples of everything that `pathlab watch` reads, under the names of [`series`]; [`prometheus`] writes them as text,
//! [`otlp`] as a message. **Why counters and not rates.** Who collects takes the differences; a reading that is missed costs nothing.
//!
//! **Price.** Nothing unknown is told: a source that could not be read has no samples, and [`series::MISSING`] says why. Sockets are limited
//! ([`Limits`]), because each is a series of its own.

pub mod otlp;
pub mod prometheus;
pub mod run;
mod samples;
pub mod series;

use series::Series;
use std::collections::BTreeMap;

pub use samples::gather;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sockets of each kind that have series of their own: those with most bytes, or drops.
    pub sockets: usize,
}

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleValue {
    /// A count.
    Whole(u64),
    /// Seconds and other parts.
    Real(f64),
}

impl SampleValue {
    fn plus(self, other: SampleValue) -> SampleValue {
        match (self, other) {
            (SampleValue::Whole(a), SampleValue::Whole(b)) => SampleValue::Whole(a.saturating_add(b)),
            (a, b) => SampleValue::Real(a.real() + b.real()),
        }
    }

    /// As a floating-point number.
    pub fn real(self) -> f64 {
        match self {
            SampleValue::Whole(count) => count as f64,
            SampleValue::Real(real) => real,
        }
    }
}

/// A series with its samples: by the values of its labels, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleFamily {
    /// The series.
    pub series: &'static Series,
    /// Names of labels that its samples have in front of those of the series.
    pub also: &'static [&'static str],
    /// What was read.
    pub samples: BTreeMap<Vec<String>, SampleValue>,
}

impl SampleFamily {
    /// The series without samples.
    fn of(series: &'static Series) -> SampleFamily {
        SampleFamily { series, also: &[], samples: BTreeMap::new() }
    }

    /// The names of the labels, in the order of their values.
    pub fn labels(&self) -> impl Iterator<Item = &'static str> {
        self.also.iter().chain(self.series.labels).copied()
    }
}

/// Series with samples, in the order of the table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Families(pub Vec<SampleFamily>);

impl Families {
    /// Adds a sample; one with the same labels is added up.
    fn add(&mut self, series: &'static Series, labels: &[&str], value: SampleValue) {
        debug_assert_eq!(labels.len(), series.labels.len(), "{}", series.name);
        let place = match self.0.iter().position(|family| family.series == series) {
            Some(place) => place,
            None => {
                self.0.push(SampleFamily::of(series));
                self.0.len() - 1
            }
        };
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let sample = self.0[place].samples.entry(labels);
        sample.and_modify(|known| *known = known.plus(value)).or_insert(value);
    }

    /// With labels in front of those that each sample has.
    fn labelled(self, names: &'static [&'static str], values: &[String]) -> Families {
        let with = |family: SampleFamily| {
            let samples = family.samples.into_iter();
            let samples = samples.map(|(labels, value)| ([values, &labels].concat(), value)).collect();
            SampleFamily { also: names, samples, ..family }
        };
        Families(self.0.into_iter().map(with).collect())
    }

    /// The samples of a series.
    pub fn of(&self, series: &Series) -> Option<&SampleFamily> {
        self.0.iter().find(|family| family.series == series)
    }
}

#[cfg(test)]
mod tests;

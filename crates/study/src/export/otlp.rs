//! Series as a message of OTLP: the JSON form of `ExportMetricsServiceRequest` (OpenTelemetry protocol 1.x, proto3's JSON mapping).
//!
//! **What.** Counts are cumulative, monotonic sums, the others gauges; labels are attributes. Whole numbers are strings, as that mapping wants for 64 bits.
//! **Why by hand.** `docs/decisions/0017-export.md`. **Price.** When a kernel began to count is not known, so no start is told; of a test in a record it is.

use super::series::Series;
use super::{Families, SampleFamily, SampleValue};
use serde_json::{Value as Json, json};

/// What a collector answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Samples that it did not take.
    pub rejected: u64,
    /// Why, or what else it had to say.
    pub message: String,
}

/// When samples are of, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTime {
    /// When counting began; none where that is not known.
    pub since_ns: Option<u64>,
    /// When they were read.
    pub at_ns: u64,
}

/// The message, with everything read at one time (nanoseconds since 1970).
pub fn message(families: &Families, at_ns: u64, host: &str, version: &str) -> Json {
    message_of(&[(SampleTime { since_ns: None, at_ns }, families)], host, version)
}

/// The message with what was read at several times.
pub fn message_of(readings: &[(SampleTime, &Families)], host: &str, version: &str) -> Json {
    let mut metrics: Vec<(&'static Series, Vec<Json>)> = vec![];
    for (time, family) in readings.iter().flat_map(|(time, all)| all.0.iter().map(|one| (*time, one))) {
        match metrics.iter_mut().find(|(series, _)| *series == family.series) {
            Some((_, known)) => known.extend(points(family, time)),
            None => metrics.push((family.series, points(family, time).collect())),
        }
    }
    let metrics: Vec<Json> = metrics.into_iter().map(|(series, points)| metric(series, points)).collect();
    let resource = [("service.name", "pathlab"), ("service.version", version), ("host.name", host)];
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(resource.into_iter()) },
        "scopeMetrics": [{ "scope": { "name": "pathlab", "version": version }, "metrics": metrics }],
    }]})
}

fn points(family: &SampleFamily, time: SampleTime) -> impl Iterator<Item = Json> {
    let labelled = move |values: &'_ Vec<String>, value| {
        point(family.labels().zip(values.iter().map(String::as_str)), value, time)
    };
    family.samples.iter().map(move |(values, value)| labelled(values, *value))
}

fn metric(series: &Series, points: Vec<Json>) -> Json {
    let mut metric = json!({
        "name": series.opentelemetry(), "description": series.help(), "unit": series.unit.ucum(),
    });
    let (field, data) = if series.is_count {
        ("sum", json!({ "dataPoints": points, "aggregationTemporality": 2, "isMonotonic": true }))
    } else {
        ("gauge", json!({ "dataPoints": points }))
    };
    metric[field] = data;
    metric
}

fn point<'k, 'v>(
    labels: impl Iterator<Item = (&'k str, &'v str)>,
    value: SampleValue,
    time: SampleTime,
) -> Json {
    let mut point = json!({ "attributes": attributes(labels), "timeUnixNano": time.at_ns.to_string() });
    if let Some(since) = time.since_ns {
        point["startTimeUnixNano"] = json!(since.to_string());
    }
    match value {
        SampleValue::Whole(count) => {
            point["asInt"] = json!(i64::try_from(count).unwrap_or(i64::MAX).to_string())
        }
        SampleValue::Real(real) => point["asDouble"] = json!(real),
    }
    point
}

fn attributes<'k, 'v>(labels: impl Iterator<Item = (&'k str, &'v str)>) -> Vec<Json> {
    labels.map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } })).collect()
}

/// Reads what a collector answered (`ExportMetricsServiceResponse`); what is no such answer says nothing.
pub fn answer(text: &str) -> Answer {
    let answer: Json = serde_json::from_str(text).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let rejected = &partial["rejectedDataPoints"];
    let number = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok());
    Answer {
        rejected: number.unwrap_or(0),
        message: partial["errorMessage"].as_str().unwrap_or_default().to_owned(),
    }
}

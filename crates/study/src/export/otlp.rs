//! Series as a message of OTLP: the JSON form of `ExportMetricsServiceRequest` (OpenTelemetry protocol 1.x, proto3's JSON mapping).
//!
//! **What.** Counts are cumulative, monotonic sums, the others gauges; labels are attributes. Whole numbers are strings, as that mapping wants for 64 bits.
//! **Why by hand.** `docs/decisions/0017-export.md`. **Price.** When a kernel began to count is not known, so no start is told.

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

/// The message, with everything read at one time (nanoseconds since 1970).
pub fn message(families: &Families, at_ns: u64, host: &str, version: &str) -> Json {
    let metrics: Vec<Json> = families.0.iter().map(|family| metric(family, at_ns)).collect();
    let resource = [("service.name", "pathlab"), ("service.version", version), ("host.name", host)];
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(resource.into_iter()) },
        "scopeMetrics": [{ "scope": { "name": "pathlab", "version": version }, "metrics": metrics }],
    }]})
}

fn metric(family: &SampleFamily, at_ns: u64) -> Json {
    let series = family.series;
    let points: Vec<Json> = family
        .samples
        .iter()
        .map(|(values, value)| {
            let labels = series.labels.iter().copied().zip(values.iter().map(String::as_str));
            point(labels, *value, at_ns)
        })
        .collect();
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

fn point<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>, value: SampleValue, at_ns: u64) -> Json {
    let mut point = json!({ "attributes": attributes(labels), "timeUnixNano": at_ns.to_string() });
    match value {
        SampleValue::Whole(count) => {
            point["asInt"] = json!(i64::try_from(count).unwrap_or(i64::MAX).to_string())
        }
        SampleValue::Real(real) => point["asDouble"] = json!(real),
    }
    point
}

fn attributes<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Json> {
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

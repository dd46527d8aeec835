//! Series as the text that Prometheus reads: OpenMetrics 1.0, written by the library `prometheus-client`.

use super::series::Unit;
use super::{Families, SampleFamily, SampleValue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{self, Registry};
use std::fmt;

/// What `Content-Type` is to say of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl SampleFamily {
    fn encode(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let (name, unit) = (self.series.name.replace('.', "_"), unit(self.series.unit));
        // A quotation mark would have to be escaped in one version of the format, and must not be in the other.
        let help = self.series.help().replace('"', "'");
        let kind = if self.series.is_count { MetricType::Counter } else { MetricType::Gauge };
        let mut metric = encoder.encode_descriptor(&name, &help, unit.as_ref(), kind)?;
        for (values, value) in &self.samples {
            let labels: Vec<(&str, &str)> = self.labels().zip(values.iter().map(String::as_str)).collect();
            sample(&mut metric.encode_family(&labels)?, *value, self.series.is_count)?;
        }
        Ok(())
    }
}

fn sample(metric: &mut MetricEncoder, value: SampleValue, is_count: bool) -> fmt::Result {
    match (value, is_count) {
        (SampleValue::Whole(count), true) => metric.encode_counter::<NoLabelSet, _, u64>(&count, None),
        (SampleValue::Real(real), true) => metric.encode_counter::<NoLabelSet, _, u64>(&real, None),
        (SampleValue::Whole(count), false) => metric.encode_gauge(&count),
        (SampleValue::Real(real), false) => metric.encode_gauge(&real),
    }
}

fn unit(unit: Unit) -> Option<registry::Unit> {
    Some(match unit {
        Unit::Bytes => registry::Unit::Bytes,
        Unit::Seconds => registry::Unit::Seconds,
        other => registry::Unit::Other(other.word()?.to_owned()),
    })
}

/// The text.
pub fn text(families: Families) -> String {
    let mut registry = Registry::with_prefix("pathlab");
    registry.register_collector(Box::new(families));
    let mut text = String::new();
    // A String takes everything.
    let written = encode(&mut text, &registry);
    debug_assert!(written.is_ok());
    text
}

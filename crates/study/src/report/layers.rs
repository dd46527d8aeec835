//! Latency by layer: a bar for each repetition, as long as the mean of the sums, in which each part has its share.
//!
//! **Why means.** Those of parts add up to that of the whole; medians do not. The medians are in the table below the figure.

use super::svg::{WIDE, coloured, escape, figure, label, legend};
use super::{COLOURS, Value, json};
use record::TestRecord;
use record::layers::LayerSplit;
use record::unit::{number, time_ns};
use std::fmt::Write;

/// Layers in the order of a leg; a part that joins several has the colour of its first.
const LAYERS: [&str; 8] =
    ["application", "send", "qdisc", "driver", "softirq", "forwarding", "protocols", "socket"];
/// What no stamp covers, and what has no name.
const OTHER: &str = "#888888";
const LEFT: f64 = 40.0;
const HIGH: f64 = 26.0;

/// Figure, tables and notes of the tests that have stamps; none without any.
pub fn section(tests: &[&TestRecord]) -> Option<Value> {
    let splits: Vec<(&TestRecord, &LayerSplit)> =
        tests.iter().filter_map(|test| Some((*test, test.layers.as_ref()?.split.as_ref()?))).collect();
    let told = |test: &&TestRecord| {
        let seen = test.layers.as_ref()?;
        Some(json!({
            "title": format!("#{}", test.repetition),
            "table": seen.split.as_ref().map(crate::layers::table),
            "notes": crate::layers::notes(test),
        }))
    };
    let tables: Vec<Value> = tests.iter().filter_map(told).collect();
    (!tables.is_empty()).then(|| json!({ "figure": bars(&splits), "tests": tables }))
}

/// One bar for each test; none without tests.
fn bars(splits: &[(&TestRecord, &LayerSplit)]) -> Option<String> {
    let whole = |split: &LayerSplit| split.sum_ns.max(split.measured_ns.unwrap_or(0.0));
    let longest = splits.iter().map(|(_, split)| whole(split)).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    let (mut out, mut y) = (String::new(), 4.0);
    for (test, split) in splits {
        label(&mut out, "axis right", LEFT - 8.0, y + 15.0, &format!("#{}", test.repetition));
        draw(&mut out, y, split, (WIDE - LEFT - 90.0) / longest);
        y += HIGH;
    }
    let used = |layer: &str| {
        splits.iter().flat_map(|(_, split)| &split.parts).any(|part| first(&part.layer) == layer)
    };
    let known = LAYERS.into_iter().filter(|layer| used(layer)).map(|layer| coloured(colour(layer), layer));
    let rest = coloured(OTHER, "behind the last stamp");
    Some(figure("latency by layer", y, &out, &legend(known.chain([rest]))))
}

fn draw(out: &mut String, y: f64, split: &LayerSplit, scale: f64) {
    let mut x = LEFT;
    let mut part = |out: &mut String, colour: &str, ns: f64, words: &str| {
        let (wide, words) = (ns.max(0.0) * scale, escape(words));
        let _ = write!(
            out,
            r##"<rect x="{x:.1}" y="{y:.1}" width="{wide:.2}" height="20" fill="{colour}" stroke="#fff" stroke-width="0.4"><title>{words}</title></rect>"##
        );
        x += wide;
    };
    for one in &split.parts {
        let share = number(100.0 * one.mean_ns / split.sum_ns.max(1.0));
        let words = format!("{} {}: {} ({share} %)", one.layer, one.place, time_ns(one.mean_ns));
        part(out, colour(first(&one.layer)), one.mean_ns, &words);
    }
    let rest = split.difference_ns().unwrap_or(0.0);
    part(out, OTHER, rest, &format!("behind the last stamp: {}", time_ns(rest.max(0.0))));
    label(out, "axis", x + 34.0, y + 15.0, &time_ns(split.measured_ns.unwrap_or(split.sum_ns)));
}

fn first(layer: &str) -> &str {
    layer.split('+').next().unwrap_or_default()
}

fn colour(layer: &str) -> &'static str {
    let known = LAYERS.iter().position(|one| *one == layer);
    known.map_or(OTHER, |place| COLOURS.get(place).copied().unwrap_or("#5b5b9d"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use record::TrafficKind;

    #[test]
    fn each_part_is_as_wide_as_its_share_and_evil_names_are_text() {
        let test = TestRecord {
            layers: Some(sample::layers()),
            ..sample::test(TrafficKind::UdpRr, "udp-rr", 1, true)
        };
        let section = section(&[&test]).unwrap();
        let figure = section["figure"].as_str().unwrap();
        assert_eq!(figure.matches("<rect").count(), 3);
        let scale = (WIDE - LEFT - 90.0) / 11_000.0;
        assert!(figure.contains(&format!(r#"width="{:.2}""#, 7_000.0 * scale)), "{figure}");
        assert!(figure.contains("softirq &lt;b&gt;:eth0: 7.00 µs (70.0 %)"), "{figure}");
        assert_eq!(section["tests"][0]["table"]["rows"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_test_without_stamps_has_no_figure() {
        let mut test = sample::test(TrafficKind::UdpRr, "udp-rr", 1, true);
        assert!(super::section(&[&test]).is_none());
        test.layers = Some(record::LayerObservation { missing: vec!["why".into()], ..Default::default() });
        let section = section(&[&test]).unwrap();
        assert!(section["figure"].is_null() && section["tests"][0]["notes"][0] == "Not seen: why.");
    }
}

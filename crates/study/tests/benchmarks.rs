//! `docs/benchmarks.md` shows what the records in `bench/` hold: each block of text after `<!-- record NAME -->` is made from the
//! record of that name, here again.

use record::bench::{CAPTURE, CaptureResult, SendResult};
use serde_json::Value;
use std::path::{Path, PathBuf};
use study::bench::{Measured, conditions, problems, store, table, versus, versus_table};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of records on the page, each with the block that follows.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let block = |part| {
        let (name, rest): (&str, &str) = str::split_once(part, " -->").expect("a comment ends");
        let (_, rest) = rest.split_once("```text\n").expect("a block follows");
        (name, rest.split_once("\n```").expect("the block ends").0)
    };
    page.split("<!-- record ").skip(1).map(block).collect()
}

/// A median with its range.
fn ratio(median: &Value, range: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    format!("{:.2} ({:.2} … {:.2})", number(median), number(&range[0]), number(&range[1]))
}

/// What `bench capture` or `bench send` found, in lines as long as they need.
fn ports<R: Measured>(path: &Path, schema: &str) -> String {
    let bench = store::open::<R>(path, schema).unwrap();
    let ratios = versus_table(&versus(&bench), R::WORDS[1]);
    let tables = [table(&bench), ratios].map(|table| table.text_within(250, &[]));
    format!("{}\n\n{}\n{}{}", conditions(&bench.head).join("\n"), tables[0], tables[1], problems(&bench))
}

/// Where it was measured; offloads where the document has them.
fn place(document: &Value) -> String {
    let text = |name: &str| document[name].as_str().unwrap();
    let offloads = document["offloads"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let offloads: String = offloads.map(|interface| format!("\n  {interface}")).collect();
    let rounds = &document["rounds"];
    format!(
        "{rounds} rounds; Linux {}, {}; {}{offloads}\n",
        text("kernel"),
        text("cpu_model"),
        text("placement")
    )
}

/// What `bench peers` found: ours against each rival.
fn peers(document: &Value) -> String {
    let mut lines = vec![place(document)];
    for contest in document["contests"].as_array().unwrap() {
        lines.push(format!("{}: {}", contest["name"].as_str().unwrap(), contest["claim"].as_str().unwrap()));
        for c in contest["comparisons"].as_array().unwrap() {
            let rate = ratio(&c["rate_ratio"], &c["rate_range"]);
            let cost = ratio(&c["cost_ratio"], &c["cost_range"]);
            let rival = c["rival"].as_str().unwrap();
            lines.push(format!("  pathlab ÷ {rival:<22} rate {rate}  CPU per unit {cost}"));
        }
    }
    lines.join("\n")
}

/// What `bench null` found: each pairing of ports against the kernel's bridge.
fn null(document: &Value) -> String {
    let pairings = document["pairings"].as_array().unwrap();
    let bridge = pairings.iter().find(|pairing| pairing["to"] == "").unwrap()["mfps"].as_f64().unwrap();
    let of_bridge = |value: &Value| Value::from(value.as_f64().unwrap() / bridge);
    let line = |pairing: &Value| {
        let ports = format!("{} {}", pairing["from"].as_str().unwrap(), pairing["to"].as_str().unwrap());
        let range = Value::from(vec![of_bridge(&pairing["range"][0]), of_bridge(&pairing["range"][1])]);
        let frames = ratio(&of_bridge(&pairing["mfps"]), &range);
        format!("{ports:<14} frames ÷ bridge {frames}  copies {}", pairing["copies_per_frame"])
    };
    let lines: Vec<String> = pairings.iter().map(line).collect();
    format!("{}\n{}", place(document), lines.join("\n"))
}

/// A median with its range, as the documents of switches and pipelines have them.
fn spread(value: &Value, scale: f64) -> String {
    let number = |name: &str| value[name].as_f64().map(|number| number / scale);
    match (number("median"), number("low"), number("high")) {
        (Some(median), Some(low), Some(high)) => format!("{median:.2} ({low:.2} … {high:.2})"),
        _ => "–".to_owned(),
    }
}

/// What `bench switch` found: each arm against the bridge, its null twin and Open vSwitch.
fn switch(document: &Value) -> String {
    let mut lines = vec![place(document)];
    lines.push(format!(
        "{:<22} {:>6}  {:<20} {:<20} {:<20} {:>9} {:>9} {:>11} {:>8}",
        "",
        "rules",
        "frames ÷ bridge",
        "÷ null twin",
        "÷ OVS AF_PACKET",
        "CPU ns",
        "TCP Mbit",
        "no offloads",
        "ping µs"
    ));
    for one in document["results"].as_array().unwrap() {
        let number = |value: &Value, scale: f64, digits: usize| {
            value.as_f64().map_or("–".to_owned(), |value| format!("{:.digits$}", value / scale))
        };
        lines.push(format!(
            "{:<22} {:>6}  {:<20} {:<20} {:<20} {:>9} {:>9} {:>11} {:>8}",
            one["arm"].as_str().unwrap(),
            one["rules"].as_u64().unwrap(),
            spread(&one["of_bridge"], 1.0),
            spread(&one["of_null"], 1.0),
            spread(&one["of_ovs"], 1.0),
            number(&one["program_ns_per_frame"], 1.0, 0),
            number(&one["tcp_bps"]["median"], 1e6, 0),
            number(&one["tcp_bps_without_offloads"]["median"], 1e6, 0),
            number(&one["ping_ns"]["median"], 1e3, 1),
        ));
    }
    lines.extend(
        document["absent"]
            .as_array()
            .unwrap()
            .iter()
            .map(|why| format!("not measured: {}", why.as_str().unwrap())),
    );
    lines.join("\n")
}

/// What `bench flow` found: nanoseconds per frame, by pipeline, flows and engine.
fn flow(document: &Value) -> String {
    let mut lines = vec![format!(
        "{} rounds of {} ms; Linux {}, {}\n",
        document["rounds"],
        document["milliseconds"],
        document["kernel"].as_str().unwrap(),
        document["cpu_model"].as_str().unwrap()
    )];
    lines.push(format!(
        "{:<9} {:>6} {:>6}  {:<12} {}",
        "pipeline", "rules", "flows", "engine", "ns per frame"
    ));
    for one in document["results"].as_array().unwrap() {
        lines.push(format!(
            "{:<9} {:>6} {:>6}  {:<12} {}",
            one["pipeline"].as_str().unwrap(),
            // As numbers: a JSON value is printed without the width.
            one["rules"].as_u64().unwrap(),
            one["flows"].as_u64().unwrap(),
            one["engine"].as_str().unwrap(),
            spread(&one["ns_per_frame"], 1.0),
        ));
    }
    lines.join("\n")
}

#[test]
fn the_page_of_benchmarks_shows_the_records() {
    let page = std::fs::read_to_string(root().join("docs/benchmarks.md")).unwrap();
    let blocks = blocks(&page);
    assert!(blocks.len() >= 4, "only {} records are shown", blocks.len());
    for (name, shown) in blocks {
        let path = root().join("bench").join(name);
        let expected = match store::schema(&path) {
            Some(schema) if schema == CAPTURE => ports::<CaptureResult>(&path, &schema),
            Some(schema) => ports::<SendResult>(&path, &schema),
            None => {
                let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
                match name.split('-').next() {
                    Some("peers") => peers(&document),
                    Some("switch") => switch(&document),
                    Some("flow") => flow(&document),
                    _ => null(&document),
                }
            }
        };
        assert_eq!(
            shown.trim_end(),
            expected.trim_end(),
            "{name} is shown otherwise; it should read:\n{expected}"
        );
    }
}

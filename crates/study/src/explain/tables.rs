//! The tables, as explanations.

use super::{Explanation, Machine, NameKind};
use crate::export::series::{self, Series};
use record::counter::{self, Counter};
use record::drop::{self, DropName, Fate};
use record::kind::{KINDS, KindFacts, Shape, Takes, Transport};
use record::port::{PORT_KINDS, PortKind, Through};

const WORDS: &str = include_str!("../../../../docs/words.md");

/// Everything of that name.
pub(super) fn named(name: &str, machine: &Machine) -> Vec<Explanation> {
    let mut found: Vec<Explanation> = counter::named(name).into_iter().map(of_counter).collect();
    found.extend(drops_named(name).into_iter().map(of_drop));
    let others = reasons(machine).into_iter().chain(knobs(machine)).chain(kinds()).chain(words());
    found.extend(others.filter(|one| one.name == name));
    found.extend(series::named(name).map(of_series));
    found
}

/// Counters of drivers whose row is for any text.
pub(super) fn perhaps(name: &str) -> Vec<Explanation> {
    counter::perhaps(name).into_iter().map(of_counter).collect()
}

/// Everything.
pub(super) fn all(machine: &Machine) -> Vec<Explanation> {
    let mut found: Vec<Explanation> = counter::all().iter().map(of_counter).collect();
    found.extend(drop::DROPS.iter().map(of_drop));
    found.extend(reasons(machine));
    found.extend(knobs(machine));
    found.extend(kinds());
    found.extend(words());
    found.extend(series::SERIES.iter().map(of_series));
    found
}

fn of_counter(row: &'static Counter) -> Explanation {
    let series = series::SERIES.iter().filter(|series| series.is(row));
    let exported: Vec<String> = series.map(Series::prometheus).collect();
    let kind = match row.kind {
        counter::CounterKind::Count => "only grows",
        counter::CounterKind::Now => "goes up and down",
        counter::CounterKind::State => "no quantity",
    };
    let since = if row.since.is_empty() { String::new() } else { format!("Linux {}", row.since) };
    Explanation::new(NameKind::Counter, row.full_name(), row.moves)
        .and("traps", row.traps)
        .and("unit", format!("{} ({kind})", row.unit))
        .and("of", row.source.title)
        .and("source", row.source.place)
        .and("since", since)
        .and("reference", row.source.reference)
        .and("exported", exported.join(", "))
}

/// The drop of that name, or those that a verdict calls so.
fn drops_named(name: &str) -> Vec<&'static DropName> {
    let by_verdict = || drop::DROPS.iter().filter(|row| drop::verdict(row.name) == name).collect();
    drop::find(name).map_or_else(by_verdict, |row| vec![row])
}

fn of_drop(row: &'static DropName) -> Explanation {
    let name = if row.is_family { format!("{}_NAME", row.name) } else { row.name.to_owned() };
    let is_reason = |known: &&&str| known.starts_with(|c: char| c.is_uppercase());
    let list = |known: &[&'static str], reasons: bool| -> String {
        let wanted = known.iter().filter(|one| is_reason(one) == reasons);
        wanted.copied().collect::<Vec<_>>().join(", ")
    };
    let advice = drop::advice(row.name);
    let verdict = Some(drop::verdict(row.name)).filter(|word| *word != row.name).unwrap_or_default();
    Explanation::new(NameKind::Drop, name, row.meaning())
        .and("where", row.place)
        .and(
            "fate",
            match row.fate {
                Fate::Dropped => "dropped: where the kernel did it, the witness can see it",
                Fate::Refused => "refused: no socket buffer died, so no witness sees it",
                Fate::Surplus => "a surplus, no loss",
            },
        )
        .and("kernel_reasons", list(row.kernel, true))
        .and("may_be", list(row.may_be, true))
        .and("functions", list(row.kernel, false))
        .and("counted_below", row.below.unwrap_or_default())
        .and("verdict", verdict)
        .and("advice", if row.fate == Fate::Surplus { "" } else { advice })
}

/// Those of the table, and those that only the running kernel has.
fn reasons(machine: &Machine) -> Vec<Explanation> {
    let known = counter::reasons().map(|(name, meaning)| of_reason(name, meaning));
    let is_new = |name: &&String| counter::reasons().all(|(known, _)| known != name.as_str());
    let unknown = "The running kernel has this reason; it is newer than this program's table.";
    known.chain(machine.reasons.iter().filter(is_new).map(|name| of_reason(name, unknown))).collect()
}

fn of_reason(name: &str, meaning: &str) -> Explanation {
    let rows = drop::of_kernel(name, None);
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let advice = rows.first().map(|row| drop::advice(row.name)).unwrap_or_default();
    Explanation::new(NameKind::KernelReason, name, meaning)
        .and("drops", names.join(", "))
        .and("advice", advice)
        .and(
            "traps",
            if name == "NOT_SPECIFIED" {
                ""
            } else {
                "The number of a reason differs between kernels; the name does not."
            },
        )
        .and("source", "the event skb:kfree_skb (pathlab drops), Linux 5.17")
}

fn knobs(machine: &Machine) -> Vec<Explanation> {
    let of = |(name, about): &(String, String)| {
        Explanation::new(NameKind::Knob, name, about).and(
            "undo",
            "what it was is on disk before it is changed; pathlab undo puts it back after a crash",
        )
    };
    machine.knobs.iter().map(of).collect()
}

fn kinds() -> impl Iterator<Item = Explanation> {
    KINDS.iter().map(of_kind).chain(PORT_KINDS.iter().map(of_port))
}

fn of_kind(row: &'static KindFacts) -> Explanation {
    let takes: Vec<&str> = row
        .takes
        .iter()
        .map(|what| match what {
            Takes::Response => "a size of the response",
            Takes::Streams => "parallel connections",
            Takes::Segmentation => "segmentation offloads",
        })
        .collect();
    Explanation::new(NameKind::Workload, row.name, format!("{}.", capital(row.about)))
        .and(
            "transport",
            match row.transport {
                Transport::Tcp => "TCP",
                Transport::Udp => "UDP",
                Transport::Icmp => "ICMP",
            },
        )
        .and(
            "shape",
            match row.shape {
                Shape::Bytes => "bytes without borders: throughput, no latency",
                Shape::OneWay => "messages one way: the receiver counts and times them",
                Shape::RoundTrip => "request and response: latency of the round trip",
            },
        )
        .and("without_rate", row.unpaced)
        .and("takes", takes.join(", "))
}

fn of_port(row: &'static PortKind) -> Explanation {
    Explanation::new(NameKind::Port, format!("{}:", row.name), format!("{}.", capital(row.about)))
        .and(
            "through",
            match row.through {
                Through::PacketSocket => {
                    "a packet socket: the kernel filters, and what is sent goes through the qdisc"
                }
                Through::Driver => "the driver, past the qdisc",
                Through::Tap => "a tap",
                Through::File => "a file",
                Through::Memory => "memory of this process",
                Through::Port => "another port",
            },
        )
        .and("receives", if row.receives { "" } else { "it only sends" })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The table of `docs/words.md`.
fn words() -> impl Iterator<Item = Explanation> {
    let rows = WORDS.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.take_while(|line| line.starts_with('|')).filter_map(|line| {
        let mut cells = line.trim_matches('|').splitn(2, '|').map(str::trim);
        let (word, meaning) = (cells.next()?, cells.next()?);
        Some(Explanation::new(NameKind::Word, word, format!("{}.", capital(meaning))))
    })
}

fn of_series(row: &'static Series) -> Explanation {
    Explanation::new(NameKind::Series, row.full_name(), row.help())
        .and("prometheus", row.prometheus())
        .and("opentelemetry", row.opentelemetry())
        .and("unit", row.unit.word().unwrap_or("number").replace('_', " "))
        .and("labels", row.labels.join(", "))
        .and("counter", row.counter().map(Counter::full_name).unwrap_or_default())
}

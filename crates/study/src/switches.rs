//! What a switch's own counters say of a test.

use crate::ledger::table_misses;
use record::delta::sum;
use record::snapshot::SwitchSample;
use record::unit::{count, many};
use record::{Delta, Finding, Severity, Snapshot};

/// Of the frames that came, from how many on the controller it is said to get every one.
const NEARLY_ALL: f64 = 0.9;
/// Findings of every switch that was asked before and after; `test` is what they belong to.
pub fn findings(test: &str, before: &Snapshot, after: &Snapshot) -> Vec<Finding> {
    let asked = after.nodes.iter().filter_map(|(node, after)| {
        Some((node.as_str(), before.nodes.get(node)?.switch.as_ref()?, after.switch.as_ref()?))
    });
    asked.flat_map(|(node, before, after)| of_switch(test, node, before, after)).collect()
}

fn of_switch(test: &str, node: &str, before: &SwitchSample, after: &SwitchSample) -> Vec<Finding> {
    let received = |sample: &SwitchSample| sum(sample.ports.iter().map(|port| port.rx_frames));
    let came = Delta::of(received(before), received(after));
    let by_rules = Delta::of(before.to_controller, after.to_controller);
    let by_buckets = Delta::of(before.buckets_to_controller, after.buckets_to_controller);
    let mut found = vec![];
    if let (Delta::Known(came), Delta::Known(by_rules), Delta::Known(by_buckets)) =
        (came, by_rules, by_buckets)
        && came > 0
        && (by_rules + by_buckets) as f64 >= came as f64 * NEARLY_ALL
    {
        let sent = by_rules + by_buckets;
        let who = match (by_rules, by_buckets) {
            (_, 0) => "rules",
            (0, _) => "buckets of groups",
            _ => "rules and buckets of groups",
        };
        found.push(Finding {
            severity: Severity::Warning,
            test: test.into(),
            claim: format!("the switch of node {node} sends every frame to the controller"),
            evidence: format!(
                "{} came in, {who} that send to the controller counted {}",
                many(came, "frame"),
                count(sent)
            ),
            advice: "give it rules that match this traffic and lead to a port: a packet-in for each frame is as slow as \
                     the controller"
                .into(),
        });
    }
    for (table, missed) in table_misses(before, after) {
        found.push(Finding {
            severity: Severity::Loss,
            test: test.into(),
            claim: format!("frames that missed in table {table} of node {node} are dropped"),
            evidence: match came {
                Delta::Known(came) => {
                    format!("{} of {} frames that came in matched no rule there", count(missed), count(came))
                }
                came => {
                    format!("{} matched no rule there; how many came in is {came}", many(missed, "frame"))
                }
            },
            advice: "add a rule for them, or a rule of priority 0 that matches all".into(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::snapshot::{SwitchPortSample, SwitchTableSample};

    fn at(came: u64, lookups: u64, matched: u64, to_controller: u64) -> Snapshot {
        let ports = vec![SwitchPortSample { port: 1, rx_frames: came, ..SwitchPortSample::default() }];
        let tables = vec![SwitchTableSample { table: 3, rules: 1, lookups, matched }];
        let mut snapshot = Snapshot::default();
        snapshot.nodes.entry("s".into()).or_default().switch = Some(SwitchSample {
            ports,
            tables,
            to_controller,
            buckets_to_controller: 0,
            packet_ins_dropped: None,
            ..SwitchSample::default()
        });
        snapshot
    }

    #[test]
    fn every_frame_to_the_controller_and_misses_are_told_with_their_counts() {
        let claims = |after: &Snapshot| -> Vec<String> {
            findings("t #1", &at(10, 10, 10, 0), after).into_iter().map(|found| found.claim).collect()
        };
        assert_eq!(claims(&at(10, 10, 10, 0)), Vec::<String>::new());
        assert_eq!(claims(&at(1010, 1010, 1010, 100)), Vec::<String>::new());
        assert_eq!(
            claims(&at(1010, 1010, 1010, 1000)),
            ["the switch of node s sends every frame to the controller"]
        );
        // By a group: the rule that sends to it sends nowhere itself, its bucket counts.
        let mut by_group = at(1010, 1010, 1010, 0);
        by_group.nodes.get_mut("s").unwrap().switch.as_mut().unwrap().buckets_to_controller = 1000;
        let found = findings("t #1", &at(10, 10, 10, 0), &by_group);
        assert_eq!(found[0].claim, "the switch of node s sends every frame to the controller");
        assert_eq!(
            found[0].evidence,
            "1,000 frames came in, buckets of groups that send to the controller counted 1,000"
        );
        assert_eq!(claims(&at(1010, 1010, 1003, 0)), ["frames that missed in table 3 of node s are dropped"]);
        let found = findings("t #1", &at(10, 10, 10, 0), &at(1010, 1010, 1003, 0));
        assert_eq!(found[0].evidence, "7 of 1,000 frames that came in matched no rule there");
        assert!(found[0].severity == Severity::Loss && found[0].test == "t #1");
        // A switch that was not asked, and one that began anew, say nothing.
        assert!(findings("t", &Snapshot::default(), &at(5, 5, 0, 5)).is_empty());
        assert!(findings("t", &at(5, 5, 5, 5), &at(0, 0, 0, 0)).is_empty());
    }
}

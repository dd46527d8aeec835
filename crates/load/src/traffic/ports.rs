//! Ports by their names, and what they lose.

use record::{PlaceDrop, PortKind, PortSetting, Through};

/// XDP and live frames go to the driver; packet sockets do where they were asked to.
pub fn bypasses_qdisc(uri: &str, settings: &[PortSetting]) -> bool {
    let told = |setting: &PortSetting| setting.name == "bypass" && setting.effective.starts_with("on");
    PortKind::of(uri).is_some_and(|kind| kind.through == Through::Driver || settings.iter().any(told))
}

/// The name of a port with one more setting.
pub fn with_setting(uri: &str, setting: &str) -> String {
    let join = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{join}{setting}")
}

/// Adds losses to others, each to that of the same place and reason.
pub fn add_drops<'a>(sums: &mut Vec<PlaceDrop>, drops: impl IntoIterator<Item = &'a PlaceDrop>) {
    for drop in drops {
        match sums.iter_mut().find(|sum| (&sum.place, &sum.name) == (&drop.place, &drop.name)) {
            Some(sum) => sum.count += drop.count,
            None => sums.push(drop.clone()),
        }
    }
}

/// What a port lost since an earlier reading.
pub fn drops_since(before: &[PlaceDrop], after: Vec<PlaceDrop>) -> Vec<PlaceDrop> {
    let then = |drop: &PlaceDrop| {
        let same = before.iter().find(|then| (&then.place, &then.name) == (&drop.place, &drop.name));
        same.map_or(0, |then| then.count)
    };
    let since = |drop: PlaceDrop| PlaceDrop { count: drop.count.saturating_sub(then(&drop)), ..drop };
    after.into_iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_pass_the_qdisc_by_are_known() {
        let (name, asked, effective, note) = ("bypass".into(), "on".into(), "on".into(), String::new());
        let on = [PortSetting { name, asked, effective, note }];
        assert!(bypasses_qdisc("xdp:a0", &[]) && bypasses_qdisc("fault:xdp:a0?lose=1%", &[]));
        assert!(bypasses_qdisc("int:a0?bypass=on", &on) && !bypasses_qdisc("int:a0", &[]));
    }
}

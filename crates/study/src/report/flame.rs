//! A flame graph: what all CPUs did, as boxes below those that called them.
//!
//! **What.** [`graph`] adds the stacks of all repetitions of a test to one [`Calls`] tree (role, thread, functions) and draws it with the
//! outermost on top. A box is as wide as its share of the samples; boxes of one caller are in the order of their names, so that two
//! graphs can be laid beside each other.
//!
//! **Why an own renderer.** It is a hundred lines, follows the page's light or dark dress, and keeps its letters at any width: places are in
//! percent, and each box clips its name. A click and the search are the page's script.
//!
//! **Price.** What has less than [`LEAST`] of the samples is not drawn; its caller is as wide as ever.

use super::svg::escape;
use record::TestRecord;
use record::time::CpuProfile;
use record::unit::{count, number};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The share of the samples of the narrowest box.
const LEAST: f64 = 0.001;
/// Boxes below each other.
const DEEPEST: usize = 64;
/// How high a box is.
const HIGH: usize = 18;

/// Samples in a function and in what it called.
#[derive(Debug, Default, PartialEq, Eq)]
struct Calls<'p> {
    samples: u64,
    called: BTreeMap<&'p str, Calls<'p>>,
}

impl<'p> Calls<'p> {
    fn add(&mut self, way: impl Iterator<Item = &'p str>, samples: u64) {
        self.samples += samples;
        let mut at = self;
        for name in way.take(DEEPEST) {
            at = at.called.entry(name).or_default();
            at.samples += samples;
        }
    }

    /// All stacks of a profile below their role and thread. What an idle CPU did to be idle is of no interest.
    fn add_profile(&mut self, profile: &'p CpuProfile) {
        for stack in &profile.stacks {
            let is_idle = stack.role == "idle";
            let name = |&one: &u32| profile.functions.get(one as usize).map_or("[unknown]", String::as_str);
            let functions = stack.functions.iter().map(name);
            let way = [stack.role.as_str(), stack.thread.as_str()].into_iter().chain(functions);
            self.add(way.take(if is_idle { 1 } else { usize::MAX }), stack.count);
        }
    }
}

/// The graph of all repetitions that have a profile; none without any.
pub fn graph(tests: &[&TestRecord]) -> Option<String> {
    let profiles = tests.iter().filter_map(|test| test.time.as_ref()?.profile.as_ref());
    let mut all = Calls::default();
    profiles.for_each(|profile| all.add_profile(profile));
    if all.samples == 0 {
        return None;
    }
    let mut drawing = Drawing { out: String::new(), all: all.samples, deepest: 0 };
    drawing.draw("all", &all, 0, 0, "of-role");
    let high = (drawing.deepest + 1) * HIGH;
    let words = format!("flame graph of {} samples", count(all.samples));
    Some(format!(r#"<svg role="img" aria-label="{words}" style="height:{high}px">{}</svg>"#, drawing.out))
}

struct Drawing {
    out: String,
    all: u64,
    deepest: usize,
}

impl Drawing {
    /// Draws a box that begins after so many samples, and what is below it.
    fn draw(&mut self, name: &str, calls: &Calls<'_>, before: u64, depth: usize, of_role: &str) {
        let share = calls.samples as f64 / self.all as f64;
        if share < LEAST {
            return;
        }
        self.deepest = self.deepest.max(depth);
        let class = class(name, depth, of_role);
        self.single(name, calls.samples, before, depth, class);
        let mut begin = before;
        for (name, called) in &calls.called {
            let of_role = if depth == 0 && *name == "softirq" { "of-softirq" } else { of_role };
            self.draw(name, called, begin, depth + 1, of_role);
            begin += called.samples;
        }
    }

    fn single(&mut self, name: &str, samples: u64, before: u64, depth: usize, class: &str) {
        let part = |samples: u64| samples as f64 / self.all as f64;
        let (x, wide) = (part(before), part(samples));
        let (name, y) = (escape(name), depth * HIGH);
        // Some browsers take the width of an inner figure from its style, which the page's style sheet sets, and some do not.
        let wide_percent = wide * 100.0;
        let told = format!("{name}: {} %, {} samples", number(wide_percent), count(samples));
        let _ = write!(
            self.out,
            r#"<svg x="{:.4}%" y="{y}" width="{wide_percent:.4}%" height="{HIGH}" style="width:{wide_percent:.4}%" data-x="{x:.7}" data-w="{wide:.7}" data-d="{depth}" data-n="{name}"><rect class="{class}" width="100%" height="{HIGH}"/><text x="3" y="13">{name}</text><title>{told}</title></svg>"#,
            x * 100.0,
        );
    }
}

/// The colour of a box: roles and threads are grey, functions have that of the kernel or of programs.
fn class<'c>(name: &str, depth: usize, of_role: &'c str) -> &'c str {
    match depth {
        0..=2 => of_role,
        _ if name.ends_with("_[k]") => "of-kernel",
        _ => "of-user",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use record::TrafficKind;

    fn test(time: record::TimeObservation) -> TestRecord {
        TestRecord { time: Some(time), ..sample::test(TrafficKind::TcpStream, "tcp-stream", 1, false) }
    }

    #[test]
    fn boxes_are_as_wide_as_their_share_and_lie_below_their_callers() {
        let drawn = graph(&[&test(sample::time())]).unwrap();
        let boxed = |name: &str| {
            let at = drawn.find(&format!("data-n=\"{name}\"")).unwrap_or_else(|| panic!("{name}: {drawn}"));
            let tag = &drawn[drawn[..at].rfind("<svg").unwrap()..at];
            let value = |key: &str| {
                let at = tag.find(key).unwrap() + key.len();
                tag[at..].split('"').next().unwrap().parse::<f64>().unwrap()
            };
            [value("data-x=\""), value("data-w=\""), value("data-d=\"")]
        };
        assert_eq!(boxed("all"), [0.0, 1.0, 0.0]);
        assert_eq!(boxed("idle"), [0.0, 0.025, 1.0]);
        assert_eq!(boxed("other"), [0.025, 0.5, 1.0], "in the order of names");
        assert_eq!(boxed("burn_cycles"), [0.025, 0.5, 4.0]);
        assert!(!drawn.contains("idle_[k]"), "what an idle CPU does is left out");
        assert_eq!(boxed("process_backlog_[k]"), [0.75, 0.25, 4.0]);
    }

    #[test]
    fn repetitions_add_up_and_names_stay_text() {
        let mut time = sample::time();
        time.profile.as_mut().unwrap().functions[1] = "evil<T>\"&'".into();
        let test = test(time);
        let drawn = graph(&[&test, &test]).unwrap();
        assert!(drawn.contains("8,000 samples"), "{drawn}");
        assert!(drawn.contains("evil&lt;T&gt;&quot;&amp;&#39;") && !drawn.contains("evil<T>"), "{drawn}");
        assert_eq!(graph(&[&TestRecord::default()]), None);
    }

    #[test]
    fn a_stack_without_end_and_a_number_without_name_are_drawn() {
        let mut time = sample::time();
        let profile = time.profile.as_mut().unwrap();
        profile.stacks[0].functions = vec![77; 10_000];
        let drawn = graph(&[&test(time)]).unwrap();
        assert!(drawn.matches("[unknown]").count() >= DEEPEST - 2, "{drawn}");
    }
}

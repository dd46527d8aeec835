//! What is worth trying: the doctor looks at the nodes of a lab, or at two hosts, while a test runs, and each knob that it would turn becomes a change.
//!
//! **What.** Each test of a plan runs once, long enough for a window in its middle, and has a record with facts like one of `run --doctor`:
//! of those the rules are asked. What they advise is listed once, the largest estimated loss first.
//!
//! **Price.** A trial follows for each change.

use super::search;
use crate::change::{Changed, LabChange, Tunable};
use crate::notices::Notices;
use crate::plan::Plan;
use crate::session::Course;
use record::trial::Suspect;
use record::{Problem, Result, TestSpec};
use study::doctor::measured::of_test;
use study::doctor::{AdvisedChange, DoctorReport, Goal, RuleStatus};

/// How long a test must be for a window in it, with time to begin and to end.
const TEST_MS: u64 = 2_500;

/// The plan as it is looked at: the tests are long enough, and facts are taken of each.
pub fn plan(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.tests.iter_mut().for_each(|test| test.spec.duration_ms = test.spec.duration_ms.max(TEST_MS));
    plan.extra.facts = true;
    plan
}

/// What may be tried.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Changes that may take a link down for a moment, too.
    pub may_flap: bool,
    /// So many changes at most, of those that can be made.
    pub most: usize,
}

/// Runs each test of a [`plan`] once and asks the doctor. What is not to be tried is listed with the reason.
///
/// # Errors
/// As [`Course::measure`]. Host: facts cannot be taken.
pub fn find(
    place: &dyn Tunable,
    plan: &Plan,
    course: &mut Course<'_>,
    bounds: Bounds,
    notices: &dyn Notices,
) -> Result<Vec<Suspect>> {
    let mut all = vec![];
    for test in 0..plan.tests.len() {
        notices.part("asking the doctor", test as u64, plan.tests.len() as u64);
        let measured = course.measure(plan, test, 1, test as u32 + 1, notices)?;
        // One that could not be run is a finding of its record.
        let Some(measured) = measured else { continue };
        let reports = of_test(measured);
        if reports.is_empty() {
            let missing = Problem::host("the doctor cannot judge it without facts");
            return Err(missing.at(plan.tests[test].name.clone()));
        }
        let spec = &plan.tests[test].spec;
        all.extend(reports.iter().flat_map(|(_, report)| suspects(report, spec, bounds.may_flap)));
    }
    let mut all = ranked(all);
    choose(&mut all, bounds.most, &mut |change| refusal(place, change, bounds.may_flap))?;
    Ok(all)
}

/// Of those that are to be tried and can be, so many of the first; the others get the reason why not.
fn choose(
    all: &mut [Suspect],
    most: usize,
    refusal: &mut dyn FnMut(&str) -> Result<Option<String>>,
) -> Result<()> {
    let mut chosen = 0;
    for suspect in all.iter_mut().filter(|suspect| suspect.left_out.is_none()) {
        suspect.left_out = match chosen == most {
            true => Some(format!("--most {most}: others have a larger estimated loss")),
            false => refusal(&suspect.change)?,
        };
        chosen += usize::from(suspect.left_out.is_none());
    }
    Ok(())
}

/// Why a change cannot be made or is none; nothing when it can be tried.
fn refusal(place: &dyn Tunable, change: &str, may_flap: bool) -> Result<Option<String>> {
    let made = LabChange::parse(change).and_then(|change| match search::is_so(place, &change)? {
        true => Err(Problem::input(search::ALREADY)),
        false => Changed::make(&linux::undo::journals()?, place, &[change], may_flap),
    });
    made.map_or_else(|problem| Ok(Some(problem.to_string())), |made| made.put_back(place).map(|()| None))
}

/// The changes that a report advises.
fn suspects(report: &DoctorReport, spec: &TestSpec, may_flap: bool) -> Vec<Suspect> {
    let found = report.rules.iter().filter(|rule| rule.status == RuleStatus::Finding);
    let places = found.flat_map(|rule| rule.places.iter().map(move |place| (rule, place)));
    places
        .filter_map(|(rule, place)| {
            let change = place.change.as_ref()?;
            let goal = Goal::of(spec.kind).word();
            let is_between = ![&spec.from, &spec.to].contains(&&change.node);
            let is_wanted =
                |of_rule: &String| of_rule == goal || is_between && of_rule == Goal::Forwarding.word();
            let left_out = match () {
                () if !rule.goals.iter().any(is_wanted) => {
                    Some(format!("the rule is about whether figures can be trusted, not about {goal}"))
                }
                () if change.may_flap && !may_flap => {
                    Some("it may take the link down: --allow-link-flap".into())
                }
                () => None,
            };
            Some(Suspect {
                rule: rule.id.clone(),
                place: place.place.clone(),
                evidence: place.evidence.clone(),
                loss: place.loss,
                change: format!("{}/{}", node(change, spec), change.set),
                left_out,
            })
        })
        .collect()
}

/// Where a change belongs: the other end of a test is the one that the rule did not look at.
fn node<'a>(change: &'a AdvisedChange, spec: &'a TestSpec) -> &'a str {
    match change.at_peer {
        false => &change.node,
        true if change.node == spec.from => &spec.to,
        true => &spec.from,
    }
}

/// The largest loss first, each change once.
fn ranked(mut all: Vec<Suspect>) -> Vec<Suspect> {
    all.sort_by(|a, b| b.loss.total_cmp(&a.loss));
    let mut kept: Vec<Suspect> = vec![];
    for one in all {
        if !kept.iter().any(|other| other.change == one.change) {
            kept.push(one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_listed_once_by_its_loss() {
        let one = |change: &str, loss| Suspect { change: change.into(), loss, ..Suspect::default() };
        let order: Vec<String> = ranked(vec![one("x", 0.1), one("y", 0.5), one("x", 0.9)])
            .into_iter()
            .map(|one| one.change)
            .collect();
        assert_eq!(order, ["x", "y"]);
    }

    #[test]
    fn of_those_that_can_be_made_so_many_are_tried_and_no_other_is_made() {
        let one = |change: &str, left_out: Option<&str>| Suspect {
            change: change.into(),
            left_out: left_out.map(str::to_owned),
            ..Suspect::default()
        };
        let mut all =
            [one("u", Some("flaps")), one("v", None), one("x", None), one("y", None), one("z", None)];
        let mut asked = vec![];
        let mut refusal = |change: &str| {
            asked.push(change.to_owned());
            Ok((change == "v").then(|| "refused".to_owned()))
        };
        choose(&mut all, 2, &mut refusal).unwrap();
        assert_eq!(asked, ["v", "x", "y"]);
        let why = all.map(|suspect| suspect.left_out.unwrap_or_default());
        assert_eq!(why, ["flaps", "refused", "", "", "--most 2: others have a larger estimated loss"]);
    }

    #[test]
    fn a_change_at_the_other_end_goes_to_the_other_node_of_the_test() {
        let spec = TestSpec { from: "a".into(), to: "b".into(), ..TestSpec::default() };
        let change = |node: &str, at_peer| AdvisedChange {
            node: node.into(),
            at_peer,
            set: "x=1".into(),
            may_flap: false,
        };
        assert_eq!(node(&change("a", true), &spec), "b");
        assert_eq!(node(&change("b", true), &spec), "a");
        assert_eq!(node(&change("r", false), &spec), "r");
    }
}

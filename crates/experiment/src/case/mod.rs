//! Test cases as data: two arms of one question, and what is expected of the second.
//!
//! **What.** [`file`] reads them, [`needs`] says whether this kernel can run them, [`between`] what of them can be run between two hosts, [`carry`] makes the trial and, where the second arm is a bug
//! candidate, tries its settings alone. Those of the program are `cases/*.case`.
//!
//! **Why.** A performance bug shows itself beside something that should be no better: the same path without bonding, the same driver with the offload
//! on. A case keeps the two beside each other, with what a healthy kernel does, so that every kernel can be asked.
//!
//! **Price.** A case asks one question with one figure; a sweep is several cases (`for`).

pub mod between;
pub mod carry;
pub mod file;
pub mod needs;

use crate::change::LabChange;
use crate::hosts::HostPair;
use crate::plan::Plan;
use linux::lab::Topology;
use load::protocol::setup::EndRole;
use needs::Need;
use record::case::{CaseAbout, Expectation};
use record::unit::some_names;
use record::{Problem, Result};
use study::trial::figures::{FIGURES, Figure};

/// The cases of the program: the file's name, and its text.
pub const BUILTIN: [(&str, &str); 10] = [
    ("window-scaling", include_str!("../../../../cases/window-scaling.case")),
    ("jumbo-frames", include_str!("../../../../cases/jumbo-frames.case")),
    ("rx-coalescing", include_str!("../../../../cases/rx-coalescing.case")),
    ("gro", include_str!("../../../../cases/gro.case")),
    ("tso", include_str!("../../../../cases/tso.case")),
    ("bonding", include_str!("../../../../cases/bonding.case")),
    ("bonding-vlan", include_str!("../../../../cases/bonding-vlan.case")),
    ("ring-sweep", include_str!("../../../../cases/ring-sweep.case")),
    ("cpu-pinning", include_str!("../../../../cases/cpu-pinning.case")),
    ("packet-size", include_str!("../../../../cases/packet-size.case")),
];

/// How names of files end that have cases.
const FILE_END: &str = ".case";

/// A case.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// What it asks.
    pub question: String,
    /// Where it comes from.
    pub source: String,
    /// The plans of A and B, one test each.
    pub plans: Vec<Plan>,
    /// These plans as text.
    pub texts: [String; 2],
    /// Settings of both arms.
    pub both: Vec<LabChange>,
    /// Settings of A alone.
    pub only_a: Vec<LabChange>,
    /// Settings of B alone.
    pub only_b: Vec<LabChange>,
    /// What A and B are, in place of the names of topology and test.
    pub words: [String; 2],
    /// What is compared; none for the figure that the test is for.
    pub figure: Option<&'static Figure>,
    /// What is expected of B.
    pub expected: Expectation,
    /// What the kernel must have.
    pub needs: Vec<&'static Need>,
}

impl Case {
    /// The case in words; `cannot`: why it cannot be run here.
    pub fn about(&self, cannot: Option<String>) -> CaseAbout {
        let [a, b] = [0, 1].map(|arm| self.difference(arm));
        CaseAbout {
            name: self.name.clone(),
            question: self.question.clone(),
            source: self.source.clone(),
            a,
            b,
            expected: self.expected,
            arms: self.arms(None),
            cannot,
        }
    }

    /// All that each arm is: its plan, its settings, how long a test is, and its topology; between two hosts, where none is built, the version of
    /// IP of tests that say none, and whether traffic comes from the other one.
    pub fn arms(&self, between: Option<&HostPair>) -> Vec<String> {
        vec![self.arm(0, between), self.arm(1, between)]
    }

    fn arm(&self, arm: usize, between: Option<&HostPair>) -> String {
        let lines = self.texts[arm].lines().map(str::trim).filter(|line| !line.is_empty());
        let mut all: Vec<String> = lines.map(str::to_owned).collect();
        // A file of that name may be another one the next time.
        let topology = Topology::load(&self.plans[arm].topology);
        all.extend(match between {
            None => topology.ok().map(|topology| topology.to_string().trim().to_owned()),
            Some(pair) => {
                let comes_here = pair.near_end(&self.plans[arm].tests[0].spec) == EndRole::Receiver;
                let reverse = if comes_here { ", in reverse" } else { "" };
                Some(format!("between two hosts over IPv{}{reverse}", pair.family()))
            }
        });
        let changes = self.both.iter().chain([&self.only_a, &self.only_b][arm]);
        all.extend(changes.map(|change| format!("set {}", change.text)));
        all.extend(self.plans[arm].tests.iter().map(|test| format!("{} ms", load::length_ms(&test.spec))));
        all.join("\n")
    }

    /// What an arm has that the other one has not.
    fn difference(&self, arm: usize) -> Vec<String> {
        let (own, other) = (&self.plans[arm], &self.plans[1 - arm]);
        let mut all: Vec<String> = vec![];
        if self.words[arm].is_empty() {
            all.extend((own.topology != other.topology).then(|| own.topology.clone()));
            all.extend((own.tests != other.tests).then(|| own.tests[0].name.clone()));
        } else {
            all.push(self.words[arm].clone());
        }
        all.extend([&self.only_a, &self.only_b][arm].iter().map(|change| change.text.clone()));
        all
    }

    /// Refuses before anything is measured what could not be: a topology that is not there, a node that it has not, a figure that the test has not.
    fn check(&self) -> Result<()> {
        for (plan, own) in self.plans.iter().zip([&self.only_a, &self.only_b]) {
            let (topology, test) = (Topology::load(&plan.topology)?, &plan.tests[0]);
            let changed = self.both.iter().chain(own).map(|change| &change.node);
            let lost = [&test.spec.from, &test.spec.to].into_iter().chain(changed);
            if let Some(name) = lost.into_iter().find(|name| topology.node(name).is_none()) {
                let names: Vec<&str> = topology.nodes.iter().map(|node| &*node.name).collect();
                return Err(Problem::input(format!("topology {} has no node '{name}'", plan.topology))
                    .help(format!("the nodes are {}", some_names(&names))));
            }
            if let Some(figure) = self.figure.filter(|figure| !(figure.fits)(test.spec.kind)) {
                let fitting = FIGURES.iter().filter(|one| (one.fits)(test.spec.kind)).map(|one| one.name);
                let names = fitting.collect::<Vec<_>>().join(", ");
                return Err(Problem::input(format!("the test '{}' has no {}", test.name, figure.name))
                    .help(format!("its figures are {names}")));
            }
        }
        Ok(())
    }

    /// Shortens the tests to half a second.
    pub fn quick(&mut self) {
        self.plans.iter_mut().for_each(Plan::quick);
    }
}

/// The cases of these names: of a file (`*.case`), or built in; `all`, or none, means all that are built in. `ring-sweep` also means `ring-sweep/64` and
/// the others of its file. One that is meant twice is there once.
///
/// # Errors
/// Bad input: no such case, a file with a fault, or two cases of one name, by which results are told apart.
pub fn select(names: &[String]) -> Result<Vec<Case>> {
    let all = "all".to_owned();
    let names = if names.is_empty() { std::slice::from_ref(&all) } else { names };
    let mut all: Vec<(Case, &str)> = vec![];
    for name in names {
        let file = if name.ends_with(FILE_END) { name } else { "" };
        for case in of_name(name)? {
            match all.iter().find(|(known, _)| known.name == case.name) {
                None => all.push((case, file)),
                Some((_, from)) if *from == file => {}
                Some((_, from)) => {
                    let other = if from.is_empty() { "built in".into() } else { format!("in {from}") };
                    let what = format!("a case '{}' is {other}, too", case.name);
                    return Err(Problem::input(what).at(name).help("give one of them another name"));
                }
            }
        }
    }
    Ok(all.into_iter().map(|(case, _)| case).collect())
}

fn of_name(name: &str) -> Result<Vec<Case>> {
    if name.ends_with(FILE_END) {
        let text = std::fs::read_to_string(name)
            .map_err(|error| Problem::input(format!("cannot read the case: {error}")).at(name))?;
        let cases = file::parse(&text, name)?;
        cases.iter().try_for_each(|case| case.check().map_err(|problem| problem.at(name)))?;
        return Ok(cases);
    }
    let is_meant =
        |case: &Case| name == "all" || case.name == name || case.name.split('/').next() == Some(name);
    let found: Vec<Case> = builtin()?.into_iter().filter(is_meant).collect();
    if found.is_empty() {
        let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
        let help = format!("'all', a file that ends with .case, or one of {}", names.join(", "));
        return Err(Problem::input(format!("there is no case '{name}'")).help(help));
    }
    Ok(found)
}

fn builtin() -> Result<Vec<Case>> {
    let parsed = BUILTIN.iter().map(|(name, text)| file::parse(text, &format!("cases/{name}.case")));
    Ok(parsed.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_that_is_shipped_reads_and_is_built_in() {
        let mut files: Vec<String> = std::fs::read_dir("../../cases")
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort_unstable();
        let mut built_in: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
        built_in.sort_unstable();
        assert_eq!(files, built_in);
        for case in builtin().unwrap() {
            assert!(
                BUILTIN.iter().any(|(name, _)| case.name.split('/').next() == Some(name)),
                "{}",
                case.name
            );
            let about = case.about(None);
            assert!(!about.a.is_empty() || !about.b.is_empty(), "{}", case.name);
            assert_eq!(case.check().map_err(|problem| problem.to_string()), Ok(()));
            assert!(case.source.len() > 10 && case.question.ends_with('?'), "{}", case.name);
        }
    }

    #[test]
    fn a_name_means_a_case_its_variants_or_all() {
        let names = |asked: &[&str]| -> Vec<String> {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            select(&asked).unwrap().into_iter().map(|case| case.name).collect()
        };
        assert_eq!(names(&["tso"]), ["tso"]);
        let sweep = names(&["packet-size"]);
        assert!(sweep.len() > 2 && sweep.iter().all(|name| name.starts_with("packet-size/")), "{sweep:?}");
        assert_eq!(names(&[&sweep[1]]), [sweep[1].clone()]);
        assert_eq!(names(&[]), names(&["all"]));
        for wrong in ["ts", "no-such.case"] {
            assert_eq!(select(&[wrong.to_owned()]).unwrap_err().kind, record::ProblemKind::Input, "{wrong}");
        }
    }
    /// A file with this case, and another one with the same.
    fn select_text(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let files = ["one", "two"].map(|name| folder.path().join(format!("{name}.case")));
        let names = files.each_ref().map(|file| file.display().to_string());
        for file in &files {
            std::fs::write(file, text).unwrap();
        }
        let problem = select(&names).unwrap_err().to_string();
        problem.replace(&folder.path().display().to_string(), "")
    }

    #[test]
    fn what_could_not_be_measured_is_refused_before_anything_is() {
        let text = |line: &str| {
            format!("case own\nquestion Q?\ntest tcp-rr\nexpect same\nset-a a/eth0:mtu=1500\n{line}\n")
        };
        let lost = "/one.case: nosuch: cannot read the topology: ";
        assert!(select_text(&text("topology nosuch")).starts_with(lost));
        for (line, said) in [
            ("path a q", "/one.case: topology pair has no node 'q'; the nodes are a, b"),
            ("set-b c/eth0:mtu=1400", "/one.case: topology pair has no node 'c'; the nodes are a, b"),
            (
                "figure delivered",
                "/one.case: the test 'tcp-rr 64 B' has no delivered; its figures are throughput, rate, p50, p99",
            ),
            ("", "/two.case: a case 'own' is in /one.case, too; give one of them another name"),
        ] {
            assert_eq!(select_text(&text(&format!("topology pair\n{line}"))), said);
        }
    }

    #[test]
    fn a_case_that_is_meant_twice_is_there_once() {
        let names = |asked: &[&str]| -> Vec<String> {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            select(&asked).unwrap().into_iter().map(|case| case.name).collect()
        };
        assert_eq!(names(&["tso", "gro", "tso"]), ["tso", "gro"]);
        assert_eq!(names(&["tso", "all"]).len(), names(&["all"]).len());
    }
}

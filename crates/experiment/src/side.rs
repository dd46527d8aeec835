//! What a trial can be of: a way between two hosts, a topology, or a plan, each named by one word.

use crate::course;
use crate::plan::Plan;
use linux::lab::Topology;
use record::{Problem, Result};
use std::path::Path;

/// One side of a trial before anything is built.
#[derive(Clone)]
pub struct Described {
    /// How it was named.
    pub title: String,
    /// What is measured.
    pub plan: Plan,
    /// The plan as text.
    pub text: String,
    /// What is built.
    pub topology: Topology,
}

/// Reads a side: `NAME.plan` with its topology, `NAME.lab` or a built-in topology with the tests of `plan`, else a way
/// ([`course::choose`]).
///
/// # Errors
/// Bad input: a file that cannot be read or has a fault, or no such way.
pub fn read(name: &str, plan: (&Plan, &str)) -> Result<Described> {
    let has = |ending: &str| Path::new(name).extension().is_some_and(|found| found == ending);
    let (plan, text) = match has("plan") {
        true => read_plan(name)?,
        false => (plan.0.clone(), plan.1.to_owned()),
    };
    let topology = match () {
        () if has("plan") => Topology::load(&plan.topology)?,
        () if has("lab") => Topology::load(name)?,
        () => way(name)?,
    };
    Ok(Described { title: name.into(), plan, text, topology })
}

/// The tests of `plan` on a topology: a file, or a built-in one.
///
/// # Errors
/// Bad input: no such file or topology.
pub fn read_topology(name: &str, plan: (&Plan, &str)) -> Result<Described> {
    let topology = Topology::load(name)?;
    Ok(Described { title: name.into(), plan: plan.0.clone(), text: plan.1.to_owned(), topology })
}

fn read_plan(name: &str) -> Result<(Plan, String)> {
    let text = std::fs::read_to_string(name)
        .map_err(|error| Problem::input(format!("cannot read the plan: {error}")).at(name))?;
    Ok((Plan::parse(&text, name)?, text))
}

fn way(name: &str) -> Result<Topology> {
    if Topology::builtin(name).is_some() {
        return Topology::load(name);
    }
    let mut chosen = course::choose(&[name.to_owned()], &[None], "").map_err(|_| no_side(name))?;
    Ok(chosen.remove(0).1)
}

/// Who wrote it gave no flag, and may have meant what was measured before.
fn no_side(name: &str) -> Problem {
    if Path::new(name).is_dir() {
        return Problem::input(format!("'{name}' is a folder, and both sides are measured anew"))
            .help("name the topologies (FILE.lab) or plans (FILE.plan); of a record, 'pathlab show' tells");
    }
    let ways = course::WAYS;
    Problem::input(format!("'{name}' is no way, no topology and no plan"))
        .help(format!("name a topology (FILE.lab or a built-in one), a plan (FILE.plan) or a way: {ways}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_way_a_topology_or_a_plan() {
        let plan = Plan::parse(crate::plan::DEFAULT, "default").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let of = |name: &str| read(name, (&plan, "text"));
        for name in ["direct", "bridge", "router", "switch:xdp"] {
            let side = of(name).unwrap();
            assert!(side.topology.node("b").is_some() && side.plan == plan && side.text == "text", "{name}");
        }
        let own = of(&file("x.plan", "topology pair\ntest ping\n")).unwrap();
        assert!(own.plan.tests.len() == 1 && own.topology.node("s").is_none());
        assert!(
            of(&file("x.lab", "node a b\nlink a:eth0 -- b:eth0\n")).unwrap().topology.node("s").is_none()
        );
        let record = folder.path().display().to_string();
        for (name, expected) in [
            ("airship", "'airship' is no way, no topology and no plan; "),
            ("switch:airship", "'switch:airship' is no way, "),
            (&record, "is a folder, and both sides are measured anew; "),
            ("no-such.plan", "no-such.plan: cannot read the plan: "),
            ("no-such.lab", "no-such.lab: cannot read the topology: "),
        ] {
            let refused = of(name).err().unwrap();
            assert_eq!(refused.kind, record::ProblemKind::Input, "{name}");
            assert!(refused.to_string().contains(expected), "{refused}");
            assert!(!refused.to_string().contains("--path"), "{refused}");
        }
    }
}

//! What stands in the middle, and the lab around it.

use super::rules::WireRules;
use crate::programs;
use linux::lab::{Lab, Lifetime, NodeProgram, Topology};
use linux::observe::processes;
use record::snapshot::ProcessSample;
use record::{Problem, Result};

/// The kernel's bridge.
pub const BRIDGE: &str = "kernel bridge";
/// Open vSwitch as it comes.
pub const OVS: &str = "Open vSwitch AF_PACKET";

/// What is measured.
#[derive(Debug)]
pub struct Arm {
    /// Its name.
    pub name: &'static str,
    /// The smallest forwarder over the same kind of ports.
    pub null_twin: Option<&'static str>,
    /// The built-in lab.
    lab: &'static str,
    /// What is said of node s besides.
    statements: &'static str,
    /// It follows rules.
    pub has_rules: bool,
}

const fn switch(
    name: &'static str,
    null_twin: &'static str,
    lab: &'static str,
    statements: &'static str,
) -> Arm {
    Arm { name, null_twin: Some(null_twin), lab, statements, has_rules: true }
}

const fn plain(name: &'static str, lab: &'static str, statements: &'static str) -> Arm {
    Arm { name, null_twin: None, lab, statements, has_rules: false }
}

/// Everything that is measured; one more is a row.
pub static ARMS: &[Arm] = &[
    plain(BRIDGE, "bridge", ""),
    plain("null ring", "null", "ports on s ring\n"),
    plain("null xdp", "null", "ports on s xdp\n"),
    switch("interpreter ring", "null ring", "switch", "ports on s ring\nengine on s interpreter\n"),
    switch("interpreter xdp", "null xdp", "switch", "ports on s xdp\nengine on s interpreter\n"),
    switch("native ring", "null ring", "switch", "ports on s ring\nengine on s native\n"),
    switch("native xdp", "null xdp", "switch", "ports on s xdp\nengine on s native\n"),
    switch("switch xdp engine", "null xdp", "switch", "ports on s xdp\nengine on s xdp\n"),
    switch("switch tcx engine", "null ring", "switch", "ports on s ring\nengine on s tcx\n"),
    switch(OVS, "null ring", "ovs", ""),
    switch("Open vSwitch AF_XDP", "null xdp", "ovs", "ports on s xdp\n"),
];

/// An arm that is up; its programs are stopped unless it is measured. They go on when this value ends.
pub struct Standing {
    /// Which.
    pub arm: &'static Arm,
    /// None once it is down.
    lab: Option<Lab>,
}

impl Standing {
    /// Builds the lab, with these rules where the arm has any.
    pub fn up(arm: &'static Arm, rules: &WireRules) -> Result<Standing> {
        let none = || Problem::host(format!("there is no built-in lab {}", arm.lab));
        let built_in = Topology::builtin(arm.lab).ok_or_else(none)?;
        let own = built_in.lines().filter(|line| !line.starts_with("rule "));
        let mut text: String = own.map(|line| format!("{line}\n")).collect();
        text += arm.statements;
        if arm.has_rules {
            text.extend(rules.lines.iter().map(|line| format!("rule on s {line}\n")));
        }
        let topology = Topology::parse(&text, arm.name)?;
        let short: String = arm.name.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("bench-{short}-{}", std::process::id());
        let standing = Standing { arm, lab: Some(programs::up(&topology, &name, Lifetime::Ephemeral)?) };
        standing.stop(true)?;
        Ok(standing)
    }

    /// Its lab.
    pub(in crate::bench) fn lab(&self) -> Result<&Lab> {
        self.lab.as_ref().ok_or_else(|| Problem::host("the lab is down"))
    }

    fn programs(&self) -> &[NodeProgram] {
        self.lab.as_ref().map_or(&[], Lab::programs)
    }

    /// Stops the programs, or lets them go on.
    fn stop(&self, is_stopped: bool) -> Result<()> {
        let stop = |program: &NodeProgram| {
            let what = |error| {
                Problem::host(format!("cannot stop the {} of {}: {error}", program.role, self.arm.name))
            };
            program.process.stop(is_stopped).map_err(what)
        };
        self.programs().iter().try_for_each(stop)
    }

    /// The program that handles frames, if it is one.
    pub(in crate::bench) fn program(&self) -> Option<&NodeProgram> {
        self.programs().iter().find(|program| program.role != "ovsdb")
    }

    /// What the program in the middle has used.
    pub(in crate::bench) fn sample(&self) -> Option<ProcessSample> {
        let program = self.program()?;
        processes::read(program.process.pid, &program.role, &program.node)
    }

    /// Does something while the programs run.
    pub(in crate::bench) fn awake<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.stop(false)?;
        let value = work();
        self.stop(true)?;
        value
    }

    /// The lab, to be taken down.
    pub fn down(mut self) -> Lab {
        // A stopped program would not hear that it is to end.
        let _ = self.stop(false);
        match self.lab.take() {
            Some(lab) => lab,
            None => unreachable!("only this takes the lab, and once"),
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.stop(false);
    }
}

//! A node whose frames are handed on by a program in user space.
//!
//! **What.** [`Forwarder`] is what a topology says of such a node: which program, by which kind of ports it takes the frames
//! of the node's links, and for a switch its rules or the controller's scenario. The ends of the node's links, in the
//! order of the file, are its ports 1, 2, ….
//!
//! **Why here, as text.** A rule is OpenFlow's business and this crate does not know OpenFlow; whoever starts the program
//! reads the rules, and refuses them before anything is built.
//!
//! **Price.** A wrong rule is named with its node and text, not with its line.

use std::fmt;

use record::line;

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForwarderKind {
    /// `pathlab null`: every frame of one link goes to the other.
    Null,
    /// `pathlab switch`: OpenFlow.
    Switch,
    /// Open vSwitch with its datapath in user space.
    Ovs,
}

impl ForwarderKind {
    /// Every kind.
    pub const ALL: [ForwarderKind; 3] = [ForwarderKind::Null, ForwarderKind::Switch, ForwarderKind::Ovs];

    /// The word in a topology, and the role of its process in records.
    pub fn word(self) -> &'static str {
        match self {
            ForwarderKind::Null => "null",
            ForwarderKind::Switch => "switch",
            ForwarderKind::Ovs => "ovs",
        }
    }

    /// The kind of that word.
    pub fn of(word: &str) -> Option<ForwarderKind> {
        ForwarderKind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// It follows rules.
    pub fn has_rules(self) -> bool {
        self != ForwarderKind::Null
    }
}

/// What hands on the frames of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarder {
    /// Which program.
    pub kind: ForwarderKind,
    /// The kind of its ports with their settings, as `int` or `ring?frames=512`.
    pub ports: String,
    /// What carries the rules out, when it is said.
    pub engine: Option<String>,
    /// It is a learning bridge while no controller is there.
    pub standalone: bool,
    /// The scenario of a controller beside it.
    pub scenario: Option<String>,
    /// Rules, groups and meters as ovs-ofctl writes them.
    pub rules: Vec<String>,
    /// Files of such rules that were not read yet ([`super::Topology::load`] reads them).
    pub files: Vec<String>,
}

impl Forwarder {
    /// A forwarder of which nothing was said but its kind.
    pub fn new(kind: ForwarderKind) -> Forwarder {
        Forwarder {
            kind,
            ports: "int".into(),
            engine: None,
            standalone: false,
            scenario: None,
            rules: vec![],
            files: vec![],
        }
    }

    /// The name of the port on an interface, as `int:p1` or `ring:p1?frames=512`.
    pub fn port(&self, interface: &str) -> String {
        match self.ports.split_once('?') {
            Some((kind, settings)) => format!("{kind}:{interface}?{settings}"),
            None => format!("{}:{interface}", self.ports),
        }
    }

    /// Its statements, but for the node's own line.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, node: &str) -> fmt::Result {
        if self.ports != "int" {
            writeln!(f, "ports on {node} {}", self.ports)?;
        }
        if let Some(engine) = &self.engine {
            writeln!(f, "engine on {node} {engine}")?;
        }
        if self.standalone {
            writeln!(f, "fail on {node} standalone")?;
        }
        if let Some(scenario) = &self.scenario {
            writeln!(f, "scenario on {node} {scenario}")?;
        }
        for file in &self.files {
            writeln!(f, "rules on {node} {file}")?;
        }
        for rule in &self.rules {
            writeln!(f, "rule on {node} {rule}")?;
        }
        Ok(())
    }
}

/// The lines of a file of rules: without comments, one blank between words.
pub(super) fn rule_lines(text: &str) -> impl Iterator<Item = String> {
    line::lines(text).map(|line| line.words.iter().map(|word| word.text).collect::<Vec<_>>().join(" "))
}

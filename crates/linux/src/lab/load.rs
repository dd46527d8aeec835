//! Where topologies come from: files, and the labs that are part of the program.

use std::path::Path;

use record::{Problem, Result};

use super::forwarder::rule_lines;
use super::topology::Topology;

/// The labs that are part of the program: name and text.
const BUILTIN: [(&str, &str); 19] = [
    ("pair", include_str!("../../../../labs/pair.lab")),
    ("bridge", include_str!("../../../../labs/bridge.lab")),
    ("router", include_str!("../../../../labs/router.lab")),
    ("bottleneck", include_str!("../../../../labs/bottleneck.lab")),
    ("line3", include_str!("../../../../labs/line3.lab")),
    ("null", include_str!("../../../../labs/null.lab")),
    ("switch", include_str!("../../../../labs/switch.lab")),
    ("ovs", include_str!("../../../../labs/ovs.lab")),
    ("ecmp", include_str!("../../../../labs/ecmp.lab")),
    ("rule", include_str!("../../../../labs/rule.lab")),
    ("vxlan", include_str!("../../../../labs/vxlan.lab")),
    ("macvlan", include_str!("../../../../labs/macvlan.lab")),
    ("ipvlan", include_str!("../../../../labs/ipvlan.lab")),
    ("bond", include_str!("../../../../labs/bond.lab")),
    ("bond-vlan", include_str!("../../../../labs/bond-vlan.lab")),
    ("wan", include_str!("../../../../labs/wan.lab")),
    ("bridge-address", include_str!("../../../../labs/bridge-address.lab")),
    ("machines", include_str!("../../../../labs/machines.lab")),
    ("routed-machines", include_str!("../../../../labs/routed-machines.lab")),
];

impl Topology {
    /// Reads a topology from a file, or a built-in one by its name ([`builtin_names`](Self::builtin_names)). A word without `/` and `.` that names a built-in lab means that; write `./pair` for a file.
    ///
    /// # Errors
    /// An input problem when there is no such file or its text is wrong, with file, line and column.
    pub fn load(file_or_builtin: &str) -> Result<Self> {
        if let Some(text) = Self::builtin(file_or_builtin) {
            return Self::parse(text, file_or_builtin);
        }
        let text = std::fs::read_to_string(file_or_builtin).map_err(|error| {
            let names: Vec<_> = Self::builtin_names().collect();
            Problem::input(format!("cannot read the topology: {error}"))
                .at(file_or_builtin)
                .help(format!("give a file, or one of the built-in labs {}", names.join(", ")))
        })?;
        let mut topology = Self::parse(&text, file_or_builtin)?;
        let folder = Path::new(file_or_builtin).parent().unwrap_or(Path::new(""));
        topology.read_rules(folder)?;
        topology
            .nodes
            .iter_mut()
            .filter_map(|node| node.machine.as_mut())
            .for_each(|it| it.find_files(folder));
        Ok(topology)
    }

    /// Puts the rules of files in the place of the files' names; these are relative to the topology's folder.
    fn read_rules(&mut self, folder: &Path) -> Result<()> {
        for forwarder in self.nodes.iter_mut().filter_map(|node| node.forwarder.as_mut()) {
            let mut rules = vec![];
            for file in std::mem::take(&mut forwarder.files) {
                let path = folder.join(&file);
                let text = std::fs::read_to_string(&path).map_err(|error| {
                    Problem::input(format!("cannot read the rules: {error}"))
                        .at(path.display().to_string())
                        .help("the name is relative to the folder of the topology")
                })?;
                rules.extend(rule_lines(&text));
            }
            rules.append(&mut forwarder.rules);
            forwarder.rules = rules;
        }
        Ok(())
    }

    /// The text of a built-in lab.
    pub fn builtin(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// The names of the built-in labs.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The name that a lab of this file gets when none is given: the file's stem.
    pub fn default_name(file_or_builtin: &str) -> String {
        let stem = Path::new(file_or_builtin).file_stem().and_then(|stem| stem.to_str());
        stem.unwrap_or(file_or_builtin).to_string()
    }
}

//! The statement that declares a node that is a virtual machine: `vm NAME [nic MODEL] [kernel FILE] …`.

use record::Result;

use super::super::machine::{MachineSpec, WORDS};
use super::{Line, Reader};

impl Reader {
    pub(super) fn machine(&mut self, line: &mut Line) -> Result<()> {
        let name = line.want("the node's name")?;
        self.declare(line, name, "vm")?;
        let mut machine = MachineSpec::default();
        while let Some(word) = line.take() {
            let help = format!("the options are {}", WORDS.join(", "));
            let known = WORDS.iter().find(|known| **known == word.text);
            let known = line.meaning(known, word, format!("unknown option '{}'", word.text), &help)?;
            let twice = machine.0.iter().any(|(said, _)| said == known);
            line.refuse_if(twice, word, format!("'{}' is said twice", word.text), "")?;
            let value = line.want(&format!("the value of '{known}'"))?;
            machine.0.push((known, value.text.to_owned()));
        }
        if let Some(node) = self.topology.nodes.last_mut() {
            node.machine = Some(machine);
        }
        Ok(())
    }
}

//! The maps of a program, in the order that [`super::emit`] names them.

use super::act::{PORT_BYTES, PORT_COUNTER_BYTES, RECEIVES, RULE_COUNTER_BYTES, SENDS};
use super::emit::{SCRATCH, Source};
use super::{ARRAY, DEVMAP, Hook, KernelMap, KernelPort, MapRole, PER_CPU_ARRAY, XSKMAP};
use crate::pages::Pages;
use crate::record::{OPERANDS, ShapeStep};
use flow::Pipeline;
use flow::port::{PortConfig, PortState};

/// Words of the largest thing that an index of a table's data leads to: a block of a trie.
const LARGEST: usize = 128;
/// Tables that may be missed.
const TABLES: u32 = 256;

fn map(role: MapRole, kind: u32, value_size: u32, entries: u32) -> KernelMap {
    KernelMap { role, kind, key_size: 4, value_size, entries: entries.max(1), flags: 0, contents: vec![] }
}

/// A map of one value.
fn single(role: MapRole, bytes: Vec<u8>) -> KernelMap {
    KernelMap { contents: vec![(vec![0; 4], bytes.clone())], ..map(role, ARRAY, bytes.len() as u32, 1) }
}

/// Words in a row, as the machine has them, with room for what may be read behind the last one that is an index.
fn flat(pages: &Pages, room: usize) -> Vec<u8> {
    let words = pages.words().chain(std::iter::repeat_n(0, room + 1));
    words.flat_map(u64::to_ne_bytes).collect()
}

/// All of them. `slots` is how many rules count.
pub(super) fn maps(source: &Source<'_>, pipeline: &Pipeline, slots: usize) -> Vec<KernelMap> {
    let around = source.around;
    let ports = around.ports.len() as u32;
    let operands = |steps: &[ShapeStep]| steps.iter().map(|step| step.operands()).sum::<usize>();
    let longest = source.records.shapes.iter().map(|shape| operands(&shape.steps)).max().unwrap_or(0);
    let sets = source.sets.iter().chain(source.ir.maps.iter().flatten());
    let sets: Vec<u8> = sets.flat_map(|set| set.to_ne_bytes()).collect();
    let userspace = match around.hook {
        Hook::Xdp => map(MapRole::Userspace, XSKMAP, 4, ports * around.queues),
        Hook::Tcx => map(MapRole::Userspace, ARRAY, 4, ports),
    };
    let mut maps = vec![
        map(MapRole::Scratch, PER_CPU_ARRAY, SCRATCH, 1),
        single(MapRole::Ports, port_states(&around.ports, pipeline)),
        userspace,
        single(MapRole::Records, flat(&source.records.pages, OPERANDS + longest)),
        single(MapRole::Sets, sets),
        map(MapRole::RuleCounters, PER_CPU_ARRAY, RULE_COUNTER_BYTES, slots as u32),
        map(MapRole::PortCounters, PER_CPU_ARRAY, PORT_COUNTER_BYTES, ports),
        map(MapRole::MissCounters, PER_CPU_ARRAY, 8, TABLES),
    ];
    maps.extend((around.hook == Hook::Xdp).then(|| devices(&around.ports)));
    let tables = source.tables.iter().filter(|table| !table.probes().is_empty());
    maps.extend(tables.map(|table| single(MapRole::Table(table.number), flat(&table.data.pages, LARGEST))));
    maps
}

fn devices(ports: &[KernelPort]) -> KernelMap {
    let entry = |(index, port): (u32, &KernelPort)| {
        (index.to_ne_bytes().to_vec(), port.interface.to_ne_bytes().to_vec())
    };
    let contents = (0..).zip(ports).map(entry).collect();
    KernelMap { contents, ..map(MapRole::Devices, DEVMAP, 4, ports.len() as u32) }
}

/// What the ports do now, one behind the other.
pub(super) fn port_states(ports: &[KernelPort], pipeline: &Pipeline) -> Vec<u8> {
    let states = ports.iter().flat_map(|port| [flags(port, pipeline), port.interface]);
    let bytes: Vec<u8> = states.flat_map(u32::to_ne_bytes).collect();
    if bytes.is_empty() { vec![0; PORT_BYTES as usize] } else { bytes }
}

fn flags(port: &KernelPort, pipeline: &Pipeline) -> u32 {
    let Some(port) = pipeline.ports.get(&port.number) else { return RECEIVES };
    let has = |bit| port.config.has(bit);
    let is_down = has(PortConfig::PORT_DOWN);
    let receives = !has(PortConfig::NO_RECV) && !is_down;
    let sends = !has(PortConfig::NO_FWD) && !is_down && !port.state.has(PortState::LINK_DOWN);
    (if receives { RECEIVES } else { 0 }) | if sends { SENDS } else { 0 }
}

//! Messages that change something, alone: flow-mod, group-mod, meter-mod, port-mod, table-mod.

use super::{Answer, OpenFlowAgent, Scene, translate};
use crate::error::{BadProperty, BadRequest, Error, PortModFailed, TableModFailed};
use crate::openflow::bytes::Version;
use crate::openflow::fault::Fault;
use crate::openflow::message::{Body, Message};
use crate::openflow::misc::{self, TableModProperty};
use crate::openflow::port::PortMod as WirePortMod;
use crate::pipeline::{Change, TableMod};
use crate::port::{PortMod, PortNo};
use crate::table::TableFlags;
use wire::refuse_if;

impl OpenFlowAgent {
    /// Makes the change of a message, and reports it to all controllers that want to know.
    pub(super) fn change(&mut self, scene: &mut Scene<'_>, message: &Message) -> Result<(), Fault> {
        let change = read(scene.from.version, message)?.ok_or(BadRequest::BadType)?;
        let events = scene.pipeline.apply(scene.now, &change)?;
        self.forward_request(scene, message);
        self.publish(&events, Some(scene.from), scene.pipeline, scene.effects);
        Ok(())
    }
}

/// The change that a message asks for; nothing for a message that is about something else.
///
/// # Errors
/// What the standard has for it.
pub(super) fn read(version: Version, message: &Message) -> Answer<Option<Change>> {
    Ok(Some(match &message.body {
        Body::FlowMod(wish) => Change::Flow(translate::read_flow_mod(version, wish)?),
        Body::GroupMod(wish) => Change::Group(translate::read_group_mod(version, wish)?),
        Body::MeterMod(wish) => Change::Meter(translate::read_meter_mod(wish)?),
        Body::PortMod(wish) => Change::Port(read_port_mod(wish)?),
        Body::TableMod(wish) => Change::Table(read_table_mod(version, wish)?),
        _ => return Ok(None),
    }))
}

fn read_port_mod(wish: &WirePortMod) -> Result<PortMod, Error> {
    let mask = wish.mask.known().ok_or(PortModFailed::BadConfig)?;
    Ok(PortMod { port: PortNo(wish.port_no), address: wish.hw_addr.0, config: wish.config, mask })
}

/// What is not said stays as it is (1.4 §7.3.4.1). In 1.3 the bits are deprecated and mean nothing.
fn read_table_mod(version: Version, wish: &misc::TableMod) -> Result<TableMod, Error> {
    let known = TableFlags::ALL.0 | 3;
    refuse_if(wish.config.0 & !known != 0, TableModFailed::BadConfig)?;
    let flags = (version == Version::V14).then_some(TableFlags(wish.config.0 & TableFlags::ALL.0));
    let mut change = TableMod { table: wish.table_id, flags, ..TableMod::default() };
    for property in &wish.properties {
        let is_again = match property {
            TableModProperty::Eviction(eviction) => {
                let flags = eviction.flags.known().ok_or(TableModFailed::BadConfig)?;
                change.eviction_flags.replace(flags).is_some()
            }
            TableModProperty::Vacancy(vacancy) => {
                change.vacancy.replace((vacancy.vacancy_down, vacancy.vacancy_up)).is_some()
            }
            TableModProperty::Experimenter(_) => return Err(BadProperty::BadExperimenter.into()),
        };
        refuse_if(is_again, BadProperty::DupType)?;
    }
    Ok(change)
}

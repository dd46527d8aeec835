//! Several controllers of one switch: which may change it, and which hears what.
//!
//! **What.** [`Roles`] keeps every connection of a switch with its role (OpenFlow 1.3.5 section 6.3, Multiple Controllers), the generation of the last
//! election, the masks of asynchronous messages (1.3.5 section 7.3.10, 1.4.1 section 7.3.10) and which connections are
//! auxiliary ones of which (section 6.3, Auxiliary Connections).
//!
//! **Why.** One place that answers "may it?" and "does it hear of this?", without a socket or a clock.
//!
//! **Price.** A walk over the connections for each asynchronous message: a switch has a handful.

use super::bytes::{Hex, Reader, Tagged, Version, Writer};
use super::fault::Fault;
use super::message::Body;
use super::misc::{AsyncConfig, AsyncProperty, RoleCode, RoleReason, RoleStatus};
use super::multipart::Request;
use crate::error::{AsyncConfigFailed, BadProperty, BadRequest, HelloFailed, RoleRequestFailed};
use std::collections::BTreeMap;
use wire::refuse_if;

/// The number of a connection, given by the owner of the sockets.
pub type Conn = u64;

/// A kind of message that comes unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unasked {
    /// `packet_in`; bits by `PacketInReason`.
    PacketIn,
    /// `port_status`; bits by `PortReason`.
    PortStatus,
    /// `flow_removed`; bits by `RemovedReason`.
    FlowRemoved,
    /// `role_status` (1.4); bits by `RoleReason`.
    RoleStatus,
    /// `table_status` (1.4); bits by `TableReason`.
    TableStatus,
    /// `requestforward` (1.4); bit 0 for groups, bit 1 for meters.
    RequestForward,
}

impl Unasked {
    /// All of them, in the order of the standard's properties.
    const ALL: [Unasked; 6] = [
        Unasked::PacketIn,
        Unasked::PortStatus,
        Unasked::FlowRemoved,
        Unasked::RoleStatus,
        Unasked::TableStatus,
        Unasked::RequestForward,
    ];

    /// The reasons that the standard has in a version; none where it has not the message.
    fn reasons(self, version: Version) -> u32 {
        match (self, version) {
            (Unasked::PacketIn, Version::V13) => 0x07,
            (Unasked::PacketIn, Version::V14) => 0x3f,
            (Unasked::PortStatus, _) => 0x07,
            (Unasked::FlowRemoved, Version::V13) => 0x0f,
            (Unasked::FlowRemoved, Version::V14) => 0x3f,
            (_, Version::V13) => 0,
            (Unasked::RoleStatus, Version::V14) => 0x07,
            (Unasked::TableStatus, Version::V14) => 0x18,
            (Unasked::RequestForward, Version::V14) => 0x03,
        }
    }
}

/// Which reasons a connection hears of: for each kind those of a slave, then those of masters and equals. That is the order in which
/// the standard numbers the properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Masks([[u32; 2]; 6]);

impl Masks {
    /// What a new connection hears: 1.3.5 section 6.3, Multiple Controllers, says that a slave gets port status only, and 7.3.10 that a master gets all
    /// but frames whose TTL ran out. A controller whose role was changed must be informed (1.4.1 section 7.4.4); other controllers' changes
    /// only on demand.
    fn new(version: Version) -> Masks {
        Masks(Unasked::ALL.map(|kind| {
            let reasons = kind.reasons(version);
            match kind {
                Unasked::PacketIn => [0, reasons & !(1 << 2)],
                Unasked::PortStatus | Unasked::RoleStatus => [reasons, reasons],
                Unasked::FlowRemoved | Unasked::TableStatus => [0, reasons],
                Unasked::RequestForward => [0, 0],
            }
        }))
    }

    /// These masks with the properties set, or why not.
    fn with(mut self, version: Version, config: &AsyncConfig) -> Result<Masks, Fault> {
        let mut seen = vec![];
        for property in &config.properties {
            let (number, kind) = (property.number(), Unasked::ALL.get(usize::from(property.number() / 2)));
            let (kind, bits) = kind.zip(mask_of(property)).ok_or(BadProperty::BadExperimenter)?;
            // 1.3 has no error for it; there, bits without a meaning are kept and mean nothing.
            let is_strange = bits & !kind.reasons(version) != 0;
            refuse_if(version == Version::V14 && is_strange, AsyncConfigFailed::Invalid)?;
            refuse_if(seen.contains(&number), BadProperty::DupType)?;
            seen.push(number);
            self.0[*kind as usize][usize::from(number % 2)] = bits;
        }
        Ok(self)
    }

    /// As properties: all that the version has.
    fn config(&self, version: Version) -> AsyncConfig {
        let kinds = Unasked::ALL.into_iter().filter(|kind| kind.reasons(version) != 0);
        let numbers = kinds.flat_map(|kind| [(kind, 0), (kind, 1)]);
        let property = |(kind, who)| property(2 * kind as u16 + who, self.0[kind as usize][usize::from(who)]);
        AsyncConfig { properties: numbers.filter_map(property).collect() }
    }
}

/// The mask of a property, whose body is its 32 bits; an experimenter's has none.
fn mask_of(property: &AsyncProperty) -> Option<u32> {
    let mut body = Writer::new(Version::V14);
    property.write_body(&mut body);
    body.done().try_into().map(u32::from_be_bytes).ok()
}

/// The property of this number with a mask.
fn property(number: u16, mask: u32) -> Option<AsyncProperty> {
    let bytes = mask.to_be_bytes();
    let mut body = Reader::new(&bytes, Version::V14, BadProperty::BadLen);
    AsyncProperty::read_body(number, &mut body, BadProperty::BadType).ok()
}

#[derive(Debug, Clone)]
struct Controller {
    version: Version,
    role: RoleCode,
    masks: Masks,
    /// Its auxiliary connections, by their number in the features reply.
    auxiliary: BTreeMap<u8, Conn>,
}

/// Controllers that are not masters any more, each with what to tell it.
pub type Demoted = Vec<(Conn, RoleStatus)>;

/// The connections of a switch.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    controllers: BTreeMap<Conn, Controller>,
    /// Of the last request to be master or slave.
    generation: Option<u64>,
}

impl Roles {
    /// A controller's main connection came up: it is an equal and hears what is usual.
    pub fn add(&mut self, conn: Conn, version: Version) {
        let auxiliary = BTreeMap::new();
        let controller = Controller { version, role: RoleCode::EQUAL, masks: Masks::new(version), auxiliary };
        self.controllers.insert(conn, controller);
    }

    /// An auxiliary connection came up beside a main one; refused when there is no such main connection, when it speaks another
    /// version or when the number is 0 or taken (section 6.3, Auxiliary Connections).
    pub fn add_auxiliary(&mut self, conn: Conn, main: Conn, id: u8, version: Version) -> Result<(), Fault> {
        let controller = self.controllers.get_mut(&main).ok_or(HelloFailed::Eperm)?;
        let is_free = id != 0 && !controller.auxiliary.contains_key(&id);
        refuse_if(!is_free || controller.version != version, HelloFailed::Eperm)?;
        controller.auxiliary.insert(id, conn);
        Ok(())
    }

    /// A connection went down. With a main one go its auxiliary ones: they are the answer, to be closed.
    pub fn remove(&mut self, conn: Conn) -> Vec<Conn> {
        for controller in self.controllers.values_mut() {
            controller.auxiliary.retain(|_, auxiliary| *auxiliary != conn);
        }
        let gone = self.controllers.remove(&conn);
        gone.map(|controller| controller.auxiliary.into_values().collect()).unwrap_or_default()
    }

    /// How many controllers there are.
    pub fn controllers(&self) -> usize {
        self.controllers.len()
    }

    /// The main connection of a connection, itself if it is one.
    pub fn main(&self, conn: Conn) -> Option<Conn> {
        let is = |(main, one): (&Conn, &Controller)| {
            (*main == conn || one.auxiliary.values().any(|auxiliary| *auxiliary == conn)).then_some(*main)
        };
        self.controllers.iter().find_map(is)
    }

    fn controller(&self, conn: Conn) -> Option<&Controller> {
        self.controllers.get(&self.main(conn)?)
    }

    /// What a connection calls itself in its features reply; 0 for a main one.
    pub fn auxiliary_id(&self, conn: Conn) -> u8 {
        let numbers = self.controllers.values().flat_map(|one| &one.auxiliary);
        numbers.into_iter().find(|(_, auxiliary)| **auxiliary == conn).map_or(0, |(number, _)| *number)
    }

    /// The role of a connection's controller.
    pub fn role(&self, conn: Conn) -> Option<RoleCode> {
        self.controller(conn).map(|controller| controller.role)
    }

    /// The generation of the last request to be master or slave; all ones before the first.
    pub fn generation(&self) -> u64 {
        self.generation.unwrap_or(u64::MAX)
    }

    /// A role request. Gives the controllers that are not masters any more, with what to tell them (if they speak 1.4 and want to
    /// hear it: [`Roles::wants`]).
    pub fn set_role(&mut self, conn: Conn, role: RoleCode, generation: u64) -> Result<Demoted, Fault> {
        let main = self.main(conn).ok_or(RoleRequestFailed::BadRole)?;
        match role {
            RoleCode::NOCHANGE => return Ok(vec![]),
            RoleCode::EQUAL => {}
            RoleCode::MASTER | RoleCode::SLAVE => self.elect(generation)?,
            _ => return Err(RoleRequestFailed::BadRole.into()),
        }
        let mut demoted = vec![];
        if role == RoleCode::MASTER {
            for (other, controller) in &mut self.controllers {
                if *other != main && controller.role == RoleCode::MASTER {
                    controller.role = RoleCode::SLAVE;
                    demoted.push((*other, status(RoleCode::SLAVE, RoleReason::MASTER_REQUEST, generation)));
                }
            }
        }
        if let Some(controller) = self.controllers.get_mut(&main) {
            controller.role = role;
        }
        Ok(demoted)
    }

    /// 1.3.5 section 6.3, Multiple Controllers: a generation is stale when it is behind the last one, on a circle of 64 bits.
    fn elect(&mut self, generation: u64) -> Result<(), Fault> {
        match self.generation {
            Some(last) if (generation.wrapping_sub(last) as i64) < 0 => Err(RoleRequestFailed::Stale.into()),
            _ => {
                self.generation = Some(generation);
                Ok(())
            }
        }
    }

    /// Whether a connection may ask this: a slave may read, and not change (section 6.3, Multiple Controllers).
    pub fn may(&self, conn: Conn, body: &Body) -> Result<(), Fault> {
        let changes = match body {
            Body::PacketOut(_)
            | Body::SetConfig(_)
            | Body::FlowMod(_)
            | Body::GroupMod(_)
            | Body::PortMod(_)
            | Body::TableMod(_)
            | Body::MeterMod(_)
            | Body::BundleControl(_)
            | Body::BundleAdd(_) => true,
            Body::MultipartRequest(request) => {
                matches!(&request.body, Request::TableFeatures(features) if !features.is_empty())
            }
            _ => false,
        };
        match self.role(conn) {
            Some(RoleCode::SLAVE) if changes => Err(BadRequest::IsSlave.into()),
            _ => Ok(()),
        }
    }

    /// Sets masks: all three pairs in 1.3, the ones that are named in 1.4. All or nothing.
    pub fn set_async(&mut self, conn: Conn, config: &AsyncConfig) -> Result<(), Fault> {
        if let Some(controller) = self.main(conn).and_then(|main| self.controllers.get_mut(&main)) {
            controller.masks = controller.masks.with(controller.version, config)?;
        }
        Ok(())
    }

    /// The masks of a connection's controller.
    pub fn async_config(&self, conn: Conn) -> AsyncConfig {
        self.controller(conn).map(|one| one.masks.config(one.version)).unwrap_or_default()
    }

    /// Whether a controller hears of a message with this reason. `bit` is the reason's number in the controller's version.
    pub fn wants(&self, conn: Conn, kind: Unasked, bit: u8) -> bool {
        self.controller(conn).is_some_and(|controller| {
            let who = usize::from(controller.role != RoleCode::SLAVE);
            let named = controller.masks.0[kind as usize][who] & kind.reasons(controller.version);
            named.checked_shr(u32::from(bit)).is_some_and(|rest| rest & 1 == 1)
        })
    }

    /// The main connections that hear of a message, with their versions. `bit` gives the reason's number in each version.
    pub fn audience(&self, kind: Unasked, bit: impl Fn(Version) -> u8) -> Vec<(Conn, Version)> {
        let each = self.controllers.iter().map(|(conn, one)| (*conn, one.version));
        each.filter(|(conn, version)| self.wants(*conn, kind, bit(*version))).collect()
    }
}

fn status(role: RoleCode, reason: RoleReason, generation: u64) -> RoleStatus {
    RoleStatus { role, reason, generation_id: Hex(generation), properties: vec![] }
}

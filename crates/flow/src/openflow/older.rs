//! What OpenFlow 1.3 has in another shape than 1.4, and only that.
//!
//! **Why.** The rest of the code sees one shape, that of 1.4: what 1.3 prints as fixed fields (an Ethernet port's speeds and error
//! counters, the masks of asynchronous messages) is a property there. The differences are these layouts, the importance of a rule
//! (`rule::Importance`), the messages that one version lacks (`message`, `multipart`: `in V14`) and the error codes of properties
//! (`fault`). **Price.** What 1.3 cannot say (optical ports, experimenters' counters) is left out when it is written.

use super::bytes::{Bytes, HardwareAddress, Hex, Name, layout, tagged, tlv};
use super::fault;
use super::misc::{AsyncConfig, AsyncProperty, TableMod};
use super::oxm::ExperimenterKind;
use super::port::{
    Port, PortConfig, PortEthernet, PortFeatures, PortMod, PortModEthernet, PortModProperty, PortProperty,
    PortState, PortStats, PortStatsEthernet, PortStatsProperty, Queue, QueueProperty, QueueRate, QueueStats,
};

layout! {
    /// A port.
    pub struct Port13 "port" {
        /// Its number.
        port_no: u32;
        _ 4;
        /// Its address.
        hw_addr: HardwareAddress;
        _ 2;
        /// Its name.
        name: Name<16>;
        /// What the controller set.
        config: PortConfig;
        /// What it is.
        state: PortState;
        /// Now.
        curr: PortFeatures;
        /// Offered to the other end.
        advertised: PortFeatures;
        /// Possible.
        supported: PortFeatures;
        /// Offered by the other end.
        peer: PortFeatures;
        /// kbit/s now.
        curr_speed: u32;
        /// kbit/s at most.
        max_speed: u32;
    }
    /// `port_mod`.
    pub struct PortMod13 "port_mod" {
        /// Which.
        port_no: u32;
        _ 4;
        /// Its address, to be sure.
        hw_addr: HardwareAddress;
        _ 2;
        /// The new bits.
        config: PortConfig;
        /// Which of them.
        mask: PortConfig;
        /// What it is to offer.
        advertise: PortFeatures;
        _ 4;
    }
    /// Counters of a port.
    pub struct PortStats13 "port_stats" {
        /// Which.
        port_no: u32;
        _ 4;
        /// Frames in.
        rx_packets: u64;
        /// Frames out.
        tx_packets: u64;
        /// Bytes in.
        rx_bytes: u64;
        /// Bytes out.
        tx_bytes: u64;
        /// Dropped on the way in.
        rx_dropped: u64;
        /// Dropped on the way out.
        tx_dropped: u64;
        /// Errors on the way in.
        rx_errors: u64;
        /// Errors on the way out.
        tx_errors: u64;
        /// Alignment errors.
        rx_frame_err: u64;
        /// Overruns.
        rx_over_err: u64;
        /// Checksum errors.
        rx_crc_err: u64;
        /// Collisions.
        collisions: u64;
        /// How long it has been there.
        duration_sec: u32;
        /// And nanoseconds.
        duration_nsec: u32;
    }
    /// Counters of a queue.
    pub struct QueueStats13 "queue_stats" {
        /// On which port.
        port_no: u32;
        /// Which.
        queue_id: u32;
        /// Bytes out.
        tx_bytes: u64;
        /// Frames out.
        tx_packets: u64;
        /// Frames dropped by it.
        tx_errors: u64;
        /// How long it has been there.
        duration_sec: u32;
        /// And nanoseconds.
        duration_nsec: u32;
    }
    /// What a queue is.
    pub struct Queue13 "queue" [length at 8] {
        /// Which.
        queue_id: u32;
        /// On which port.
        port: u32;
        _ 8;
        /// Its rates.
        properties: Vec<QueueProperty13>;
    }
    /// A rate.
    pub struct QueueRate13 "rate" {
        _ 4;
        /// In tenths of a percent.
        rate: u16;
        _ 6;
    }
    /// An experimenter's property of a queue.
    pub struct QueueExperimenter13 "experimenter" {
        _ 4;
        /// Who.
        experimenter: Hex<u32>;
        _ 4;
        /// What.
        data: Bytes;
    }
    /// `table_mod`.
    pub struct TableMod13 "table_mod" {
        /// Which.
        table_id: u8;
        _ 3;
        /// Bits, all of them deprecated.
        config: Hex<u32>;
    }
    /// Which asynchronous messages: for masters and equals, then for slaves.
    pub struct AsyncConfig13 "async" {
        /// By reason.
        packet_in_mask: [Word; 2];
        /// By reason.
        port_status_mask: [Word; 2];
        /// By reason.
        flow_removed_mask: [Word; 2];
    }
}

/// Thirty-two bits.
type Word = Hex<u32>;

tagged! {
    /// A rate of a queue.
    pub enum QueueProperty13 {
        /// At least.
        1 "min_rate" => MinRate(QueueRate13);
        /// At most.
        2 "max_rate" => MaxRate(QueueRate13);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(QueueExperimenter13);
    }
}
tlv!(QueueProperty13, fault::property, Absent);

impl From<Port13> for Port {
    fn from(old: Port13) -> Port {
        let Port13 { port_no, hw_addr, name, config, state, .. } = old;
        let Port13 { curr, advertised, supported, peer, curr_speed, max_speed, .. } = old;
        let ethernet = PortEthernet { curr, advertised, supported, peer, curr_speed, max_speed };
        let properties = vec![PortProperty::Ethernet(ethernet)];
        Port { port_no, hw_addr, name, config, state, properties }
    }
}

impl From<&Port> for Port13 {
    fn from(port: &Port) -> Port13 {
        let ethernet = port.properties.iter().find_map(|property| match property {
            PortProperty::Ethernet(ethernet) => Some(ethernet.clone()),
            _ => None,
        });
        let PortEthernet { curr, advertised, supported, peer, curr_speed, max_speed } =
            ethernet.unwrap_or_default();
        let Port { port_no, hw_addr, name, config, state, .. } = port.clone();
        Port13 {
            port_no,
            hw_addr,
            name,
            config,
            state,
            curr,
            advertised,
            supported,
            peer,
            curr_speed,
            max_speed,
        }
    }
}

impl From<PortMod13> for PortMod {
    fn from(old: PortMod13) -> PortMod {
        let PortMod13 { port_no, hw_addr, config, mask, advertise } = old;
        let properties = vec![PortModProperty::Ethernet(PortModEthernet { advertise })];
        PortMod { port_no, hw_addr, config, mask, properties }
    }
}

impl From<&PortMod> for PortMod13 {
    fn from(new: &PortMod) -> PortMod13 {
        let advertise = new.properties.iter().find_map(|property| match property {
            PortModProperty::Ethernet(ethernet) => Some(ethernet.advertise),
            _ => None,
        });
        let PortMod { port_no, hw_addr, config, mask, .. } = *new;
        PortMod13 { port_no, hw_addr, config, mask, advertise: advertise.unwrap_or_default() }
    }
}

impl From<PortStats13> for PortStats {
    fn from(old: PortStats13) -> PortStats {
        let PortStats13 { rx_frame_err, rx_over_err, rx_crc_err, collisions, .. } = old;
        let ethernet = PortStatsEthernet { rx_frame_err, rx_over_err, rx_crc_err, collisions };
        PortStats {
            port_no: old.port_no,
            duration_sec: old.duration_sec,
            duration_nsec: old.duration_nsec,
            rx_packets: old.rx_packets,
            tx_packets: old.tx_packets,
            rx_bytes: old.rx_bytes,
            tx_bytes: old.tx_bytes,
            rx_dropped: old.rx_dropped,
            tx_dropped: old.tx_dropped,
            rx_errors: old.rx_errors,
            tx_errors: old.tx_errors,
            properties: vec![PortStatsProperty::Ethernet(ethernet)],
        }
    }
}

impl From<&PortStats> for PortStats13 {
    fn from(new: &PortStats) -> PortStats13 {
        let ethernet = new.properties.iter().find_map(|property| match property {
            PortStatsProperty::Ethernet(ethernet) => Some(ethernet.clone()),
            _ => None,
        });
        // What is not counted says all ones (1.3.5 section 7.3.5.6).
        let unknown = PortStatsEthernet {
            rx_frame_err: u64::MAX,
            rx_over_err: u64::MAX,
            rx_crc_err: u64::MAX,
            collisions: u64::MAX,
        };
        let ethernet = ethernet.unwrap_or(unknown);
        PortStats13 {
            port_no: new.port_no,
            rx_packets: new.rx_packets,
            tx_packets: new.tx_packets,
            rx_bytes: new.rx_bytes,
            tx_bytes: new.tx_bytes,
            rx_dropped: new.rx_dropped,
            tx_dropped: new.tx_dropped,
            rx_errors: new.rx_errors,
            tx_errors: new.tx_errors,
            rx_frame_err: ethernet.rx_frame_err,
            rx_over_err: ethernet.rx_over_err,
            rx_crc_err: ethernet.rx_crc_err,
            collisions: ethernet.collisions,
            duration_sec: new.duration_sec,
            duration_nsec: new.duration_nsec,
        }
    }
}

impl From<QueueStats13> for QueueStats {
    fn from(old: QueueStats13) -> QueueStats {
        let QueueStats13 { port_no, queue_id, tx_bytes, tx_packets, tx_errors, duration_sec, duration_nsec } =
            old;
        let properties = vec![];
        QueueStats {
            port_no,
            queue_id,
            tx_bytes,
            tx_packets,
            tx_errors,
            duration_sec,
            duration_nsec,
            properties,
        }
    }
}

impl From<&QueueStats> for QueueStats13 {
    fn from(new: &QueueStats) -> QueueStats13 {
        let QueueStats {
            port_no,
            queue_id,
            tx_bytes,
            tx_packets,
            tx_errors,
            duration_sec,
            duration_nsec,
            ..
        } = *new;
        QueueStats13 { port_no, queue_id, tx_bytes, tx_packets, tx_errors, duration_sec, duration_nsec }
    }
}

impl From<Queue13> for Queue {
    fn from(old: Queue13) -> Queue {
        let new = |property| match property {
            QueueProperty13::MinRate(QueueRate13 { rate }) => QueueProperty::MinRate(QueueRate { rate }),
            QueueProperty13::MaxRate(QueueRate13 { rate }) => QueueProperty::MaxRate(QueueRate { rate }),
            QueueProperty13::Experimenter(QueueExperimenter13 { experimenter, data }) => {
                QueueProperty::Experimenter(ExperimenterKind { experimenter, exp_type: 0, data })
            }
        };
        let properties = old.properties.into_iter().map(new).collect();
        Queue { port_no: old.port, queue_id: old.queue_id, properties }
    }
}

impl From<&Queue> for Queue13 {
    fn from(new: &Queue) -> Queue13 {
        let old = |property: &QueueProperty| match property.clone() {
            QueueProperty::MinRate(QueueRate { rate }) => QueueProperty13::MinRate(QueueRate13 { rate }),
            QueueProperty::MaxRate(QueueRate { rate }) => QueueProperty13::MaxRate(QueueRate13 { rate }),
            QueueProperty::Experimenter(ExperimenterKind { experimenter, data, .. }) => {
                QueueProperty13::Experimenter(QueueExperimenter13 { experimenter, data })
            }
        };
        let properties = new.properties.iter().map(old).collect();
        Queue13 { queue_id: new.queue_id, port: new.port_no, properties }
    }
}

impl From<TableMod13> for TableMod {
    fn from(old: TableMod13) -> TableMod {
        TableMod {
            table_id: old.table_id,
            config: super::misc::TableConfig(old.config.0),
            properties: vec![],
        }
    }
}

impl From<&TableMod> for TableMod13 {
    fn from(new: &TableMod) -> TableMod13 {
        TableMod13 { table_id: new.table_id, config: Hex(new.config.0) }
    }
}

impl From<AsyncConfig13> for AsyncConfig {
    fn from(old: AsyncConfig13) -> AsyncConfig {
        let AsyncConfig13 { packet_in_mask, port_status_mask, flow_removed_mask } = old;
        AsyncConfig {
            properties: vec![
                AsyncProperty::PacketInMaster(packet_in_mask[0]),
                AsyncProperty::PacketInSlave(packet_in_mask[1]),
                AsyncProperty::PortStatusMaster(port_status_mask[0]),
                AsyncProperty::PortStatusSlave(port_status_mask[1]),
                AsyncProperty::FlowRemovedMaster(flow_removed_mask[0]),
                AsyncProperty::FlowRemovedSlave(flow_removed_mask[1]),
            ],
        }
    }
}

impl From<&AsyncConfig> for AsyncConfig13 {
    fn from(new: &AsyncConfig) -> AsyncConfig13 {
        let mut old = AsyncConfig13::default();
        for property in &new.properties {
            match property {
                AsyncProperty::PacketInMaster(mask) => old.packet_in_mask[0] = *mask,
                AsyncProperty::PacketInSlave(mask) => old.packet_in_mask[1] = *mask,
                AsyncProperty::PortStatusMaster(mask) => old.port_status_mask[0] = *mask,
                AsyncProperty::PortStatusSlave(mask) => old.port_status_mask[1] = *mask,
                AsyncProperty::FlowRemovedMaster(mask) => old.flow_removed_mask[0] = *mask,
                AsyncProperty::FlowRemovedSlave(mask) => old.flow_removed_mask[1] = *mask,
                _ => {}
            }
        }
        old
    }
}

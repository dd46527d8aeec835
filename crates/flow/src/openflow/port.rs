//! Ports and queues as they travel. The types have the shape of OpenFlow 1.4: what 1.3 prints as fixed fields (an Ethernet port's
//! speeds and error counters) is a property here. What 1.3 cannot say (optical ports, experimenters' counters) is left out when it is
//! written.

use super::bytes::{
    Bytes, HardwareAddress, Hex, Name, Padding, Tagged, Tlv, Version, codes, flag_sets, layout, tagged, tlv,
};
use super::forms::{Fixed, In14};
use super::oxm::{ExperimenterKind, OnlyExperimenter};
use crate::error::BadRequest;
use crate::flags::flags;

pub use crate::port::{PortConfig, PortState};

flag_sets! { PortState, PortFeatures, PortConfig }

codes! {
    /// What happened to a port.
    pub PortReason(u8) { ADD = 0 "add", DELETE = 1 "delete", MODIFY = 2 "modify" }
}

flags! {
    /// Speeds and kinds of an Ethernet port.
    pub PortFeatures(u32) {
        HD_10MB = 1 "10mb_hd", FD_10MB = 2 "10mb_fd", HD_100MB = 4 "100mb_hd", FD_100MB = 8 "100mb_fd", HD_1GB = 16 "1gb_hd", FD_1GB = 32 "1gb_fd",
        FD_10GB = 64 "10gb_fd", FD_40GB = 128 "40gb_fd", FD_100GB = 256 "100gb_fd", FD_1TB = 512 "1tb_fd", OTHER = 1024 "other",
        COPPER = 2048 "copper", FIBER = 4096 "fiber", AUTONEG = 8192 "autoneg", PAUSE = 16384 "pause", PAUSE_ASYM = 32768 "pause_asym",
    }
}

layout! {
    /// A port.
    pub struct Port "port" [length at 4] {
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
        /// What kind it is.
        properties: Vec<PortProperty>;
    } in 1.3 {
        port_no; _ 4; hw_addr; _ 2; name; config; state; properties as Fixed(&[0], &[0; 24]);
    }
    /// An Ethernet port.
    pub struct PortEthernet "ethernet" {
        _ 4 in V14;
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
    /// An optical port.
    pub struct PortOptical "optical" {
        _ 4;
        /// Bits of what it can do.
        supported: Hex<u32>;
        /// Frequency or wavelength.
        tx_min_freq_lmda: u32;
        /// Frequency or wavelength.
        tx_max_freq_lmda: u32;
        /// Frequency or wavelength.
        tx_grid_freq_lmda: u32;
        /// Frequency or wavelength.
        rx_min_freq_lmda: u32;
        /// Frequency or wavelength.
        rx_max_freq_lmda: u32;
        /// Frequency or wavelength.
        rx_grid_freq_lmda: u32;
        /// Power.
        tx_pwr_min: u16;
        /// Power.
        tx_pwr_max: u16;
    }
    /// `port_status`.
    pub struct PortStatus "port_status" {
        /// What happened.
        reason: PortReason;
        _ 7;
        /// The port now.
        desc: Port;
    }
    /// `port_mod`.
    pub struct PortMod "port_mod" {
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
        /// What kind it is.
        properties: Vec<PortModProperty>;
    } in 1.3 {
        port_no; _ 4; hw_addr; _ 2; config; mask; properties as Fixed(&[0], &[0; 4]); _ 4;
    }
    /// What an Ethernet port is to offer.
    pub struct PortModEthernet "ethernet" {
        /// All of it; zero changes nothing.
        advertise: PortFeatures;
    }
    /// How an optical port is to be tuned.
    pub struct PortModOptical "optical" {
        /// Bits of what is set.
        configure: Hex<u32>;
        /// Frequency or wavelength.
        freq_lmda: u32;
        /// Signed offset of it.
        fl_offset: u32;
        /// Span of its grid.
        grid_span: u32;
        /// Power.
        tx_pwr: u32;
    }
    /// Which port's counters.
    pub struct PortStatsRequest "port_stats_request" {
        /// Which; all ones means all.
        port_no: u32;
        _ 4;
    }
    /// Counters of a port. All ones: the switch does not count it.
    pub struct PortStats "port_stats" [length at 0] {
        _ 4;
        /// Which.
        port_no: u32;
        /// How long it has been there.
        duration_sec: u32;
        /// And nanoseconds.
        duration_nsec: u32;
        /// Frames in.
        rx_packets: u64;
        /// Frames out.
        tx_packets: u64;
        /// Bytes in.
        rx_bytes: u64;
        /// Bytes out.
        tx_bytes: u64;
        /// Frames dropped on the way in.
        rx_dropped: u64;
        /// Frames dropped on the way out.
        tx_dropped: u64;
        /// Errors on the way in.
        rx_errors: u64;
        /// Errors on the way out.
        tx_errors: u64;
        /// Counters of its kind.
        properties: Vec<PortStatsProperty>;
    } in 1.3 {
        port_no; _ 4; rx_packets; tx_packets; rx_bytes; tx_bytes; rx_dropped; tx_dropped; rx_errors; tx_errors;
        // What is not counted says all ones (1.3.5 section 7.3.5.6).
        properties as Fixed(&[0], &[0xff; 32]);
        duration_sec; duration_nsec;
    }
    /// Counters of an Ethernet port.
    pub struct PortStatsEthernet "ethernet" {
        _ 4 in V14;
        /// Alignment errors.
        rx_frame_err: u64;
        /// Overruns.
        rx_over_err: u64;
        /// Checksum errors.
        rx_crc_err: u64;
        /// Collisions.
        collisions: u64;
    }
    /// Readings of an optical port.
    pub struct PortStatsOptical "optical" {
        _ 4;
        /// Which readings there are.
        flags: Hex<u32>;
        /// Frequency or wavelength.
        tx_freq_lmda: u32;
        /// Offset.
        tx_offset: u32;
        /// Span.
        tx_grid_span: u32;
        /// Frequency or wavelength.
        rx_freq_lmda: u32;
        /// Offset.
        rx_offset: u32;
        /// Span.
        rx_grid_span: u32;
        /// Power.
        tx_pwr: u16;
        /// Power.
        rx_pwr: u16;
        /// Current.
        bias_current: u16;
        /// Temperature.
        temperature: u16;
    }
    /// Which queues: their counters, or (1.4) what they are.
    pub struct QueueRequest "queue_request" {
        /// On which port; all ones means any.
        port_no: u32;
        /// Which; all ones means all.
        queue_id: u32;
    }
    /// Counters of a queue.
    pub struct QueueStats "queue_stats" [length at 0] {
        _ 8;
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
        /// Counters of experimenters.
        properties: Vec<OnlyExperimenter>;
    } in 1.3 {
        port_no; queue_id; tx_bytes; tx_packets; tx_errors; duration_sec; duration_nsec;
    }
    /// What a queue is.
    pub struct Queue "queue" [length at 8] {
        /// On which port.
        port_no: u32;
        /// Which.
        queue_id: u32;
        _ 8;
        /// Its rates.
        properties: Vec<QueueProperty>;
    } in 1.3 [length at 8] {
        queue_id; port_no; _ 8; properties;
    }
    /// A rate in tenths of a percent of the port's; more than 1000 means none.
    pub struct QueueRate "rate" {
        _ 4 in V13;
        /// The rate.
        rate: u16;
        _ 2;
        _ 4 in V13;
    }
    /// An experimenter's property of a queue; in 1.3 without a kind.
    pub struct QueueExperimenter "experimenter" {
        _ 4 in V13;
        /// Who.
        experimenter: Hex<u32>;
        /// Which of their kinds.
        exp_type: u32 as In14;
        /// What, until the end.
        data: Bytes;
    }
    /// Of which port the queues (1.3).
    pub struct QueueConfigRequest "queue_get_config_request" {
        /// Which; all ones means any.
        port: u32;
        _ 4;
    }
    /// The queues of a port (1.3).
    pub struct QueueConfigReply "queue_get_config_reply" {
        /// As asked.
        port: u32;
        _ 4;
        /// What they are.
        queues: Vec<Queue>;
    }
}

tagged! {
    /// What kind a port is.
    pub enum PortProperty {
        /// Ethernet.
        0 "ethernet" => Ethernet(PortEthernet);
        /// Light.
        1 "optical" => Optical(PortOptical);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(ExperimenterKind);
    }
}
tlv!(PortProperty, Tlv::property);

tagged! {
    /// What to set on a port of a kind.
    pub enum PortModProperty {
        /// Ethernet.
        0 "ethernet" => Ethernet(PortModEthernet);
        /// Light.
        1 "optical" => Optical(PortModOptical);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(ExperimenterKind);
    }
}
tlv!(PortModProperty, Tlv::property);

tagged! {
    /// Counters of a kind of port.
    pub enum PortStatsProperty {
        /// Ethernet.
        0 "ethernet" => Ethernet(PortStatsEthernet);
        /// Light.
        1 "optical" => Optical(PortStatsOptical);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(ExperimenterKind);
    }
}
tlv!(PortStatsProperty, Tlv::property);

tagged! {
    /// A rate of a queue.
    pub enum QueueProperty {
        /// At least.
        1 "min_rate" => MinRate(QueueRate);
        /// At most.
        2 "max_rate" => MaxRate(QueueRate);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(QueueExperimenter);
    }
}
tlv!(QueueProperty, queue_property);

fn queue_property(version: Version) -> Tlv {
    match version {
        Version::V13 => Tlv::new(Padding::Absent, BadRequest::BadType, BadRequest::BadLen),
        Version::V14 => Tlv::property(version),
    }
}

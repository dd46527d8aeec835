//! Groups and meters as they travel.

use super::action::Action;
use super::bytes::{Padding, Tagged, Tlv, codes, flag_sets, layout, tagged, tlv};
use super::oxm::Experimenter;
use crate::error::{BadRequest, MeterModFailed};
use crate::flags::flags;

pub use crate::meter::MeterFlags;

flag_sets! { GroupCapabilities, MeterFlags }

codes! {
    /// What a group-mod does.
    pub GroupCommand(u16) { ADD = 0 "add", MODIFY = 1 "modify", DELETE = 2 "delete" }
    /// How a group uses its buckets.
    pub GroupType(u8) { ALL = 0 "all", SELECT = 1 "select", INDIRECT = 2 "indirect", FF = 3 "ff" }
    /// What a meter-mod does.
    pub MeterCommand(u16) { ADD = 0 "add", MODIFY = 1 "modify", DELETE = 2 "delete" }
}

flags! {
    /// What groups can do.
    pub GroupCapabilities(u32) { SELECT_WEIGHT = 1 "select_weight", SELECT_LIVENESS = 2 "select_liveness", CHAINING = 4 "chaining", CHAINING_CHECKS = 8 "chaining_checks" }
}

layout! {
    /// One way out of a group.
    pub struct Bucket "bucket" [length at 0] {
        _ 2;
        /// Its share, in select groups.
        weight: u16;
        /// Lives as long as this port.
        watch_port: u32;
        /// Lives as long as this group.
        watch_group: u32;
        _ 4;
        /// What it does.
        actions: Vec<Action>;
    }
    /// `group_mod`.
    pub struct GroupMod "group_mod" {
        /// What to do.
        command: GroupCommand;
        /// How its buckets are used.
        kind: GroupType;
        _ 1;
        /// Which.
        group_id: u32;
        /// Its ways out.
        buckets: Vec<Bucket>;
    }
    /// Which group's counters.
    pub struct GroupStatsRequest "group_stats_request" {
        /// Which; all ones but three means all.
        group_id: u32;
        _ 4;
    }
    /// Counters of a bucket.
    pub struct BucketStats "bucket_stats" {
        /// Frames.
        packet_count: u64;
        /// Their bytes.
        byte_count: u64;
    }
    /// Counters of a group.
    pub struct GroupStats "group_stats" [length at 0] {
        _ 4;
        /// Which.
        group_id: u32;
        /// Rules and groups that use it.
        ref_count: u32;
        _ 4;
        /// Frames.
        packet_count: u64;
        /// Their bytes.
        byte_count: u64;
        /// How long it has been there.
        duration_sec: u32;
        /// And nanoseconds.
        duration_nsec: u32;
        /// Of each bucket.
        bucket_stats: Vec<BucketStats>;
    }
    /// What a group is.
    pub struct GroupDesc "group_desc" [length at 0] {
        _ 2;
        /// How its buckets are used.
        kind: GroupType;
        _ 1;
        /// Which.
        group_id: u32;
        /// Its ways out.
        buckets: Vec<Bucket>;
    }
    /// What groups of each type can do.
    pub struct GroupFeatures "group_features" {
        /// Bits by type.
        types: u32;
        /// What they can do.
        capabilities: GroupCapabilities;
        /// How many there may be, by type.
        max_groups: [u32; 4];
        /// Bits of the actions they may have, by type.
        actions: [u32; 4];
    }
    /// A band that drops.
    pub struct BandDrop "drop" {
        /// From this rate on.
        rate: u32;
        /// How much more may come at once.
        burst_size: u32;
        _ 4;
    }
    /// A band that raises the drop precedence.
    pub struct BandRemark "dscp_remark" {
        /// From this rate on.
        rate: u32;
        /// How much more may come at once.
        burst_size: u32;
        /// By this number.
        prec_level: u8;
        _ 3;
    }
    /// A band of an experimenter.
    pub struct BandExperimenter "experimenter" {
        /// From this rate on.
        rate: u32;
        /// How much more may come at once.
        burst_size: u32;
        /// Who, and what.
        body: Experimenter;
    }
    /// `meter_mod`.
    pub struct MeterMod "meter_mod" {
        /// What to do.
        command: MeterCommand;
        /// How it measures.
        flags: MeterFlags;
        /// Which.
        meter_id: u32;
        /// What it does from which rate on.
        bands: Vec<Band>;
    }
    /// Which meter's counters, or configuration.
    pub struct MeterRequest "meter_request" {
        /// Which; all ones means all.
        meter_id: u32;
        _ 4;
    }
    /// Counters of a band.
    pub struct BandStats "band_stats" {
        /// Frames.
        packet_band_count: u64;
        /// Their bytes.
        byte_band_count: u64;
    }
    /// Counters of a meter.
    pub struct MeterStats "meter_stats" [length at 4] {
        /// Which.
        meter_id: u32;
        _ 8;
        /// Rules that use it.
        flow_count: u32;
        /// Frames that came.
        packet_in_count: u64;
        /// Their bytes.
        byte_in_count: u64;
        /// How long it has been there.
        duration_sec: u32;
        /// And nanoseconds.
        duration_nsec: u32;
        /// Of each band.
        band_stats: Vec<BandStats>;
    }
    /// What a meter is.
    pub struct MeterConfig "meter_config" [length at 0] {
        _ 2;
        /// How it measures.
        flags: MeterFlags;
        /// Which.
        meter_id: u32;
        /// What it does from which rate on.
        bands: Vec<Band>;
    }
    /// What meters can do.
    pub struct MeterFeatures "meter_features" {
        /// How many there may be.
        max_meter: u32;
        /// Bits by type of band.
        band_types: u32;
        /// What they can do.
        capabilities: u32;
        /// Bands of one meter.
        max_bands: u8;
        /// Colours.
        max_color: u8;
        _ 2;
    }
}

tagged! {
    /// What a meter does above a rate.
    pub enum Band {
        /// Drops.
        1 "drop" => Drop(BandDrop);
        /// Raises the drop precedence.
        2 "dscp_remark" => Remark(BandRemark);
        /// An experimenter's.
        0xffff "experimenter" => Experimenter(BandExperimenter);
    }
}
tlv!(Band, |_| Tlv::new(Padding::Inside, MeterModFailed::BadBand, BadRequest::BadLen));

//! Meters: how fast is too fast.
//!
//! **What.** A [`Meter`] with its [`Band`]s (§5.7) and what a controller changes of them (§7.3.4.5).
//!
//! **Why.** A rule lets a meter measure its frames; the band with the highest rate that is exceeded drops or marks them.
//!
//! **Price.** A meter has a state per frame, so frames of one meter have an order.

/// The largest number of a meter (`OFPM_MAX`).
pub const MAX_METER: u32 = 0xffff_0000;
/// The meter for what goes through the slow path (`OFPM_SLOWPATH`).
pub const SLOWPATH_METER: u32 = 0xffff_fffd;
/// The meter for what goes to the controllers (`OFPM_CONTROLLER`).
pub const CONTROLLER_METER: u32 = 0xffff_fffe;
/// The meter number that means all meters (`OFPM_ALL`), for deletes and requests.
pub const ALL_METERS: u32 = 0xffff_ffff;

/// Flags of a meter (`ofp_meter_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct MeterFlags {
    /// Rates are thousands of bits per second.
    pub kbps: bool,
    /// Rates are frames per second.
    pub pktps: bool,
    /// Burst sizes are given.
    pub burst: bool,
    /// Count.
    pub stats: bool,
}

impl MeterFlags {
    /// The flags as the standard's bits.
    pub fn bits(self) -> u16 {
        let flags = [self.kbps, self.pktps, self.burst, self.stats];
        flags.iter().enumerate().map(|(bit, set)| u16::from(*set) << bit).sum()
    }

    /// The flags of these bits; none when there is a bit that the standard does not have.
    pub fn from_bits(bits: u16) -> Option<MeterFlags> {
        let set = |bit: u16| bits & (1 << bit) != 0;
        (bits < 1 << 4).then(|| MeterFlags { kbps: set(0), pktps: set(1), burst: set(2), stats: set(3) })
    }
}

/// What a band does with a frame that is too fast.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BandKind {
    /// Drop it.
    Drop,
    /// Raise its drop precedence: the second and third bit of the DSCP, by this many steps.
    DscpRemark {
        /// Steps.
        prec_level: u8,
    },
    /// Something that the standard leaves to others.
    Experimenter {
        /// Whose.
        experimenter: u32,
        /// What.
        data: Vec<u8>,
    },
}

/// One rate and what happens above it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Band {
    /// Thousands of bits, or frames, per second.
    pub rate: u32,
    /// Thousands of bits, or frames, that may come at once; 0 when the switch is to choose.
    pub burst_size: u32,
    /// What happens above the rate.
    pub kind: BandKind,
}

/// A meter, as a controller wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meter {
    /// Its number.
    pub id: u32,
    /// Flags.
    pub flags: MeterFlags,
    /// The bands.
    pub bands: Vec<Band>,
}

/// What a meter-mod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MeterModCommand {
    /// Add a meter that does not exist.
    Add = 0,
    /// Change one that does.
    Modify = 1,
    /// Delete it, or all.
    Delete = 2,
}

/// A change of meters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterMod {
    /// What to do.
    pub command: MeterModCommand,
    /// The meter. Deletes use its number only.
    pub meter: Meter,
}

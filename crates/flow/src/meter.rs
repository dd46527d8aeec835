//! Meters: how fast is too fast.
//!
//! **What.** A [`Meter`] with its [`Band`]s (§5.7) and what a controller changes of them (§7.3.4.5).
//!
//! **Why.** A rule lets a meter measure its frames; the band with the highest rate that is exceeded drops or marks them.
//!
//! **Price.** A meter has a state per frame, so frames of one meter have an order.

use crate::error::MeterModFailed;
use crate::flags::flags;
use crate::numbered::{Counters, ModCommand, Numbered};
use wire::refuse_if;

/// The largest number of a meter (`OFPM_MAX`).
pub const MAX_METER: u32 = 0xffff_0000;
/// The meter for what goes through the slow path (`OFPM_SLOWPATH`).
pub const SLOWPATH_METER: u32 = 0xffff_fffd;
/// The meter for what goes to the controllers (`OFPM_CONTROLLER`).
pub const CONTROLLER_METER: u32 = 0xffff_fffe;
/// The meter number that means all meters (`OFPM_ALL`), for deletes and requests.
pub const ALL_METERS: u32 = 0xffff_ffff;

flags! {
    /// Flags of a meter (`ofp_meter_flags`).
    pub MeterFlags(u16) {
        /// Rates are thousands of bits per second.
        KBPS = 1 "kbps",
        /// Rates are frames per second.
        PKTPS = 2 "pktps",
        /// Burst sizes are given.
        BURST = 4 "burst",
        /// Count.
        STATS = 8 "stats",
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

/// A change of meters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterMod {
    /// What to do.
    pub command: ModCommand,
    /// The meter. Deletes use its number only.
    pub meter: Meter,
}

/// A token bucket without rounding. A token is one bit, or one frame; the level is in 10⁻⁹ tokens, so that a rate times
/// nanoseconds needs no division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TokenBucket {
    rate_per_s: u64,
    capacity: i128,
    /// Below 0: a super-frame took more than there was.
    level: i128,
    filled_ns: u64,
}

impl TokenBucket {
    /// A full bucket.
    fn new(now: u64, rate_per_s: u64, burst: u64) -> TokenBucket {
        let capacity = i128::from(burst) * NANO;
        TokenBucket { rate_per_s, capacity, level: capacity, filled_ns: now }
    }

    /// Takes tokens when there are enough. What `may_owe` and asks for more than the bucket holds passes when it is full, and what
    /// comes next waits for that: a super-frame cannot pass in part, and must not wait for ever.
    fn take(&mut self, now: u64, tokens: u64, may_owe: bool) -> bool {
        let passed = now.saturating_sub(self.filled_ns);
        self.level = self.capacity.min(self.level + i128::from(self.rate_per_s) * i128::from(passed));
        self.filled_ns = self.filled_ns.max(now);
        let wanted = i128::from(tokens) * NANO;
        let enough = if may_owe { wanted.min(self.capacity) } else { wanted };
        let passes = self.level >= enough;
        self.level -= if passes { wanted } else { 0 };
        passes
    }
}

const NANO: i128 = 1_000_000_000;
/// Bits of the largest frame: a bucket that is smaller would let no super-frame pass, ever.
const LARGEST_FRAME_BITS: u64 = 8 * 65_536;

/// A meter with what happened to it.
#[derive(Debug, Clone)]
pub struct MeterEntry {
    /// The meter.
    pub meter: Meter,
    /// When it was added.
    pub created_ns: u64,
    /// What came to it.
    pub counters: Counters,
    /// What each band dropped or marked.
    pub bands: Vec<Counters>,
    buckets: Vec<TokenBucket>,
}

impl MeterEntry {
    fn new(now: u64, meter: &Meter) -> MeterEntry {
        let (counters, bands, buckets) = Default::default();
        let mut entry = MeterEntry { meter: meter.clone(), created_ns: now, counters, bands, buckets };
        entry.configure(now, meter);
        entry
    }

    fn configure(&mut self, now: u64, meter: &Meter) {
        self.meter.clone_from(meter);
        self.bands = vec![Counters::default(); meter.bands.len()];
        self.buckets = meter.bands.iter().map(|band| token_bucket(now, meter.flags, band)).collect();
    }

    /// Counts a frame, or the segments of a super-frame, with this many bytes altogether, and returns the band that it falls into: of those
    /// whose rate is exceeded the one with the highest rate (§5.7.1). Each band measures all frames of the meter.
    pub fn measure(&mut self, now: u64, frames: u64, bytes: u64) -> Option<usize> {
        let tokens = if self.meter.flags.has(MeterFlags::PKTPS) { frames } else { 8 * bytes };
        let mut hit: Option<usize> = None;
        for (index, bucket) in self.buckets.iter_mut().enumerate() {
            let is_higher = hit.is_none_or(|hit| self.meter.bands[index].rate > self.meter.bands[hit].rate);
            if !bucket.take(now, tokens, frames > 1) && is_higher {
                hit = Some(index);
            }
        }
        self.counters.count(frames, bytes);
        if let Some(index) = hit {
            self.bands[index].count(frames, bytes);
        }
        hit
    }
}

/// The bucket of a band. Without a burst size it holds half a second of its rate, and at least one large frame.
fn token_bucket(now: u64, flags: MeterFlags, band: &Band) -> TokenBucket {
    let unit = if flags.has(MeterFlags::PKTPS) { 1 } else { 1000 };
    let rate = u64::from(band.rate) * unit;
    let least = if flags.has(MeterFlags::PKTPS) { 1 } else { LARGEST_FRAME_BITS };
    let burst = match flags.has(MeterFlags::BURST) && band.burst_size != 0 {
        true => u64::from(band.burst_size) * unit,
        false => (rate / 2).max(least),
    };
    TokenBucket::new(now, rate, burst)
}

/// The code point with its drop precedence raised by this many steps (§5.7.1): of assured forwarding (RFC 2597) class and
/// precedence are three bits and two; it ends at 3. A code point without that form (an odd one, or of a class that is
/// not 1 … 4, or precedence 0) has no drop precedence and stays.
pub fn raise_drop_precedence(dscp: u8, steps: u8) -> u8 {
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    if dscp & 1 != 0 || !(1..=4).contains(&class) || precedence == 0 {
        return dscp;
    }
    class << 3 | precedence.saturating_add(steps).min(3) << 1
}

/// Meters that a switch holds.
pub const METER_LIMIT: usize = 1 << 16;
/// Bands of one meter.
pub const BAND_LIMIT: usize = 16;

/// The meters of a switch.
pub type Meters = Numbered<MeterEntry>;

impl Meters {
    /// Checks a change.
    pub fn check(&self, change: &MeterMod) -> Result<(), MeterModFailed> {
        let id = change.meter.id;
        let is_number = (1..=MAX_METER).contains(&id) || [SLOWPATH_METER, CONTROLLER_METER].contains(&id);
        match change.command {
            ModCommand::Add if !is_number => Err(MeterModFailed::InvalidMeter),
            ModCommand::Add if self.0.contains_key(&id) => Err(MeterModFailed::MeterExists),
            ModCommand::Add if self.0.len() >= METER_LIMIT => Err(MeterModFailed::OutOfMeters),
            ModCommand::Modify if !self.0.contains_key(&id) => Err(MeterModFailed::UnknownMeter),
            ModCommand::Add | ModCommand::Modify => check_bands(&change.meter),
            ModCommand::Delete if !is_number && id != ALL_METERS => Err(MeterModFailed::InvalidMeter),
            ModCommand::Delete => Ok(()),
        }
    }

    /// Makes a change, which was checked.
    pub fn apply(&mut self, now: u64, change: &MeterMod) {
        let meter = &change.meter;
        match (change.command, self.0.get_mut(&meter.id)) {
            (ModCommand::Delete, _) if meter.id == ALL_METERS => self.0.clear(),
            (ModCommand::Delete, _) => drop(self.0.remove(&meter.id)),
            // §6.8: the meter's own counters go on, those of its bands begin anew.
            (ModCommand::Modify, Some(entry)) => entry.configure(now, meter),
            (ModCommand::Add | ModCommand::Modify, _) => {
                drop(self.0.insert(meter.id, MeterEntry::new(now, meter)));
            }
        }
    }
}

fn check_bands(meter: &Meter) -> Result<(), MeterModFailed> {
    refuse_if(meter.flags.has(MeterFlags::KBPS.with(MeterFlags::PKTPS)), MeterModFailed::BadFlags)?;
    refuse_if(meter.bands.len() > BAND_LIMIT, MeterModFailed::OutOfBands)?;
    for band in &meter.bands {
        match band.kind {
            BandKind::Drop => {}
            // Three precedences: there are two steps, and none would change nothing.
            BandKind::DscpRemark { prec_level: 1..=2 } => {}
            BandKind::DscpRemark { .. } => return Err(MeterModFailed::BadBandValue),
            BandKind::Experimenter { .. } => return Err(MeterModFailed::BadBand),
        }
    }
    Ok(())
}

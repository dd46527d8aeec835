//! A template made ready to be sent by the million.
//!
//! **What.** Everything that never changes is laid out once ([`Source::prepare`] puts it into every place of a batch);
//! per frame only the varying fields are written, the lengths when sizes vary, and the checksums.
//!
//! **Why so.** A checksum is a sum, so it is split once for every size: the words that never change are added up
//! beforehand, and a frame adds only the words that do (RFC 1624 updates a sum by the difference of old and new words;
//! adding the new ones to the unchanging rest is the same sum, and needs no memory of the frame before).
//! The slow twin is [`super::build`]: it builds the frame from scratch; random templates compare the two.
//!
//! **Price.** Memory for the sums of every size that occurs.

use super::build::{self, Moment};
use super::engine::Source;
use super::template::fields::Default as Unsaid;
use super::template::{Template, Value};
use linux::port::{Frames, Meta};

/// Where the bits of a varying field go.
#[derive(Debug, Clone)]
enum Place {
    /// Whole bytes: the first one, how many.
    Bytes(usize, usize),
    /// Bits somewhere: the first one, how many.
    Bits(usize, usize),
}

/// What is written there.
#[derive(Debug, Clone)]
enum Content {
    Value(Value, u64),
    /// What follows the frame's number or time.
    Moving(Unsaid),
}

#[derive(Debug, Clone)]
struct Patch {
    place: Place,
    content: Content,
}

/// A checksum that changes from frame to frame.
#[derive(Debug, Clone)]
struct Check {
    field: usize,
    /// Offsets of the 16-bit words that change, from the start of the frame.
    words: Vec<u16>,
    zero_is_none: bool,
}

/// What belongs to one size.
#[derive(Debug, Clone)]
struct SizePlan {
    length: usize,
    /// Where the data ends (before the padding).
    end: usize,
    /// Lengths and checksums that depend on the size only: offset and word. Empty when there is one size.
    words: Vec<(u16, u16)>,
    /// For each check the sum of everything that does not change.
    sums: Vec<u64>,
}

/// Which size a frame takes.
#[derive(Debug, Clone)]
enum Sizes {
    One,
    Round(Vec<u32>),
    Random { seed: u64, span: usize },
}

/// A template, compiled.
#[derive(Debug, Clone)]
pub struct CompiledTemplate {
    flows: u64,
    patches: Vec<Patch>,
    checks: Vec<Check>,
    plans: Vec<SizePlan>,
    sizes: Sizes,
    image: Vec<u8>,
    /// The mean length over many frames.
    pub mean: f64,
}

impl CompiledTemplate {
    /// Compiles a template.
    pub fn new(template: &Template) -> CompiledTemplate {
        let starts = build::starts(template);
        let patches = patches(template, &starts);
        let (checks, coverages) = checks(template, &starts, &patches);
        let sizes: Vec<Option<usize>> = match &template.size {
            None => vec![None],
            Some(size) => size.all().into_iter().map(Some).collect(),
        };
        let constant = constant_words(template, &starts, &checks);
        let plan = |size: &Option<usize>| {
            let frame = build::build_sized(template, *size, 0, Moment::default());
            let end = size.unwrap_or(template.shortest());
            let word = |at: &u16| (*at, be16(&frame, usize::from(*at)));
            let words = if sizes.len() > 1 { constant.iter().map(word).collect() } else { vec![] };
            let sums = coverages.iter().zip(&checks);
            let sums =
                sums.map(|(coverage, check)| clean_sum(&frame[..end], coverage, &check.words)).collect();
            SizePlan { length: frame.len(), end, words, sums }
        };
        let plans: Vec<SizePlan> = sizes.iter().map(plan).collect();
        let image = build::build_sized(template, sizes.last().copied().flatten(), 0, Moment::default());
        let mean = template.size.as_ref().map_or(image.len() as f64, super::template::Size::mean);
        CompiledTemplate {
            flows: template.flows,
            patches,
            checks,
            plans,
            sizes: order(template, &sizes),
            image,
            mean,
        }
    }

    /// Frame `n` as bytes of its own.
    pub fn frame(&self, n: u64, moment: Moment) -> Vec<u8> {
        let plan = self.plan(n);
        let mut frame = self.image[..plan.length].to_vec();
        self.write(plan, &mut frame, n, moment);
        frame
    }

    #[inline]
    fn plan(&self, n: u64) -> &SizePlan {
        match &self.sizes {
            Sizes::One => &self.plans[0],
            Sizes::Round(round) => &self.plans[round[(n % round.len() as u64) as usize] as usize],
            Sizes::Random { seed, span } => &self.plans[super::template::random_offset(n, *seed, *span)],
        }
    }

    #[inline]
    fn write(&self, plan: &SizePlan, frame: &mut [u8], n: u64, moment: Moment) {
        for patch in &self.patches {
            let value = match &patch.content {
                Content::Value(value, seed) => value.at(n, self.flows, *seed),
                Content::Moving(field) => moment.of(*field, n).unwrap_or(0),
            };
            match patch.place {
                Place::Bytes(at, count) => {
                    frame[at..at + count].copy_from_slice(&value.to_be_bytes()[16 - count..]);
                }
                Place::Bits(at, bits) => put_bits(frame, at, bits, value as u64),
            }
        }
        for &(at, word) in &plan.words {
            put_word(frame, at, word);
        }
        for (check, &clean) in self.checks.iter().zip(&plan.sums) {
            let mut sum = clean;
            for &at in &check.words {
                sum += word_before(frame, usize::from(at), plan.end);
            }
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            let checksum = match !(sum as u16) {
                0 if check.zero_is_none => 0xffff,
                checksum => checksum,
            };
            put_word(frame, check.field as u16, checksum);
        }
    }
}

impl Source for CompiledTemplate {
    fn longest(&self) -> usize {
        self.image.len()
    }

    fn prepare(&self, frames: &mut Frames) {
        frames.clear();
        while frames.push(&self.image, Meta::default()) {}
        frames.clear();
    }

    #[inline]
    fn add(&self, frames: &mut Frames, n: u64, moment: Moment) -> bool {
        let plan = self.plan(n);
        let Some(frame) = frames.add(plan.length, Meta::default()) else { return false };
        self.write(plan, frame, n, moment);
        true
    }
}

#[inline]
fn put_word(frame: &mut [u8], at: u16, word: u16) {
    let at = usize::from(at);
    frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

fn be16(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// The word at `at`; what lies at or behind `end` counts as 0.
#[inline]
fn word_before(frame: &[u8], at: usize, end: usize) -> u64 {
    if at + 2 <= end {
        return u64::from(be16(frame, at));
    }
    if at < end { u64::from(frame[at]) << 8 } else { 0 }
}

/// Writes a field of at most 64 bits whose ends lie inside bytes.
#[inline]
fn put_bits(frame: &mut [u8], at: usize, bits: usize, value: u64) {
    let (first, last) = (at / 8, (at + bits - 1) / 8);
    let behind = (last + 1) * 8 - at - bits;
    let mask = ((1u128 << bits) - 1) << behind;
    let value = (u128::from(value) << behind) & mask;
    for (i, byte) in frame[first..=last].iter_mut().enumerate() {
        let shift = (last - first - i) * 8;
        *byte = (*byte & !((mask >> shift) as u8)) | (value >> shift) as u8;
    }
}

/// The fields that change from frame to frame.
fn patches(template: &Template, starts: &[usize]) -> Vec<Patch> {
    let (mut patches, moment) = (vec![], Moment::default());
    for (index, layer) in template.layers.iter().enumerate() {
        for (number, field) in layer.kind.facts().fields.iter().enumerate() {
            let content = match (layer.get(field.name), field.default) {
                (Some(value), _) if value.as_constant().is_some() => continue,
                (Some(value), _) => Content::Value(value.clone(), template.seed_of(index, number)),
                (None, field) if moment.of(field, 0).is_some() => Content::Moving(field),
                (None, _) => continue,
            };
            let at = starts[index] * 8 + field.bit;
            let whole = at.is_multiple_of(8) && field.bits.is_multiple_of(8);
            let place =
                if whole { Place::Bytes(at / 8, field.bits / 8) } else { Place::Bits(at, field.bits) };
            patches.push(Patch { place, content });
        }
    }
    patches
}

/// The checksums that change, innermost first, and what each covers.
fn checks(template: &Template, starts: &[usize], patches: &[Patch]) -> (Vec<Check>, Vec<build::Coverage>) {
    let mut changing = vec![false; template.shortest() + 1];
    for patch in patches {
        let bytes = match patch.place {
            Place::Bytes(at, count) => at..at + count,
            Place::Bits(at, bits) => at / 8..(at + bits).div_ceil(8),
        };
        changing[bytes].fill(true);
    }
    let (mut checks, mut coverages) = (vec![], vec![]);
    for index in (0..template.layers.len()).rev() {
        let Some(coverage) = build::coverage(template, index, starts) else { continue };
        let words = changing_words(&changing, &coverage);
        // A checksum that depends on the size alone is a word of the size.
        if words.is_empty() {
            continue;
        }
        changing[coverage.field..coverage.field + 2].fill(true);
        checks.push(Check { field: coverage.field, words, zero_is_none: coverage.zero_is_none });
        coverages.push(coverage);
    }
    (checks, coverages)
}

fn changing_words(changing: &[bool], coverage: &build::Coverage) -> Vec<u16> {
    let changes = |at: usize| changing.get(at).copied().unwrap_or(false);
    let word = |at: usize| (at != coverage.field && (changes(at) || changes(at + 1))).then_some(at as u16);
    let pseudo = coverage.pseudo.map_or(0..0, |(at, bytes, _)| at..at + bytes);
    let end = coverage.to.unwrap_or(changing.len());
    let all = pseudo.step_by(2).chain((coverage.from..end).step_by(2));
    all.filter_map(word).collect()
}

/// The sum of everything that a checksum covers but the words that change and itself.
fn clean_sum(frame: &[u8], coverage: &build::Coverage, words: &[u16]) -> u64 {
    let end = coverage.to.unwrap_or(frame.len());
    let mut sum = 0;
    let mut add = |at: usize, end: usize| {
        if at != coverage.field && !words.contains(&(at as u16)) {
            sum += word_before(frame, at, end);
        }
    };
    if let Some((at, bytes, _)) = coverage.pseudo {
        (at..at + bytes).step_by(2).for_each(|at| add(at, end));
    }
    (coverage.from..end).step_by(2).for_each(|at| add(at, end));
    let length = (end - coverage.from) as u64;
    coverage
        .pseudo
        .map_or(sum, |(_, _, protocol)| sum + u64::from(protocol) + (length & 0xffff) + (length >> 16))
}

/// Places of the words that depend on the size alone: lengths, and checksums that nothing else changes.
fn constant_words(template: &Template, starts: &[usize], checks: &[Check]) -> Vec<u16> {
    let mut words = vec![];
    for (index, layer) in template.layers.iter().enumerate() {
        for field in layer.kind.facts().fields {
            let unset = layer.get(field.name).is_none();
            let at = starts[index] + field.bit / 8;
            let ours = match field.default {
                Unsaid::Length(_) => true,
                Unsaid::Checksum => checks.iter().all(|check| check.field != at),
                _ => false,
            };
            if unset && ours {
                words.push(at as u16);
            }
        }
    }
    words
}

fn order(template: &Template, sizes: &[Option<usize>]) -> Sizes {
    let Some(size) = template.size.as_ref().filter(|_| sizes.len() > 1) else { return Sizes::One };
    match size.round() {
        None => Sizes::Random { seed: template.seed, span: sizes.len() - 1 },
        Some(round) => {
            let place =
                |size: &usize| sizes.iter().position(|other| *other == Some(*size)).unwrap_or(0) as u32;
            Sizes::Round(round.iter().map(place).collect())
        }
    }
}

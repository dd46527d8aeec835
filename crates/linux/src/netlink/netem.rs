//! Delay and faults at the roots of interfaces (`netem`).

use std::collections::BTreeMap;

use netlink_bindings::tc;
use record::snapshot::TC_ROOT;

use super::tc::ROOT_HANDLE;
use super::{Answer, Netlink};

/// A chance of 100 %, in the parts of [`Emulation`].
pub const WHOLE: u32 = 1_000_000;

/// Frames that may wait for their time; more are dropped.
const LIMIT_FRAMES: u32 = 100_000;

/// What happens to the frames that leave an interface (`netem`, `net/sched/sch_netem.c`). Chances are parts of a million ([`WHOLE`]) and
/// hit each socket buffer on its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Emulation {
    /// How long each is held, in nanoseconds.
    pub delay_ns: u64,
    /// By how much more or less, in nanoseconds, evenly spread; frames may overtake each other.
    pub jitter_ns: u64,
    /// Chance that it is lost.
    pub lose: u32,
    /// Chance that it is sent twice.
    pub duplicate: u32,
    /// Chance that it is not held, and so overtakes those that are.
    pub reorder: u32,
    /// Chance that one of its bits is turned.
    pub corrupt: u32,
}

impl Emulation {
    /// True when frames are neither held nor harmed.
    pub fn is_nothing(&self) -> bool {
        *self == Emulation::default()
    }
}

/// The kernel's chances are parts of `u32::MAX`.
fn to_kernel(parts: u32) -> u32 {
    let all = u64::from(u32::MAX);
    ((u64::from(parts.min(WHOLE)) * all + u64::from(WHOLE) / 2) / u64::from(WHOLE)) as u32
}

fn of_kernel(chance: u32) -> u32 {
    let all = u64::from(u32::MAX);
    ((u64::from(chance) * u64::from(WHOLE) + all / 2) / all) as u32
}

/// Writes the options of a netem that does this.
fn write(options: tc::PushAttrs<&mut Vec<u8>>, emulation: &Emulation) {
    let parameters = tc::TcNetemQopt {
        limit: LIMIT_FRAMES,
        loss: to_kernel(emulation.lose),
        duplicate: to_kernel(emulation.duplicate),
        // Each frame that is not held follows one that is.
        gap: u32::from(emulation.reorder > 0),
        ..Default::default()
    };
    let reorder = tc::TcNetemReorder { probability: to_kernel(emulation.reorder), ..Default::default() };
    let corrupt = tc::TcNetemCorrupt { probability: to_kernel(emulation.corrupt), ..Default::default() };
    let nanoseconds = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    options
        .nested_options_netem(&parameters)
        .push_latency64(nanoseconds(emulation.delay_ns))
        .push_jitter64(nanoseconds(emulation.jitter_ns))
        .push_reorder(reorder)
        .push_corrupt(corrupt);
}

/// What a qdisc does, if it is a netem.
fn read(attributes: &tc::IterableAttrs<'_>) -> Option<Emulation> {
    let Ok(tc::OptionsMsg::Netem(options, more)) = attributes.get_options() else { return None };
    let time = |found: Option<i64>| found.and_then(|time| u64::try_from(time).ok()).unwrap_or(0);
    Some(Emulation {
        delay_ns: time(more.get_latency64().ok()),
        jitter_ns: time(more.get_jitter64().ok()),
        lose: of_kernel(options.loss),
        duplicate: of_kernel(options.duplicate),
        reorder: of_kernel(more.get_reorder().map_or(0, |reorder| reorder.probability)),
        corrupt: of_kernel(more.get_corrupt().map_or(0, |corrupt| corrupt.probability)),
    })
}

impl Netlink {
    /// Holds and harms what leaves an interface. A rate limit of it is made afterwards, inside ([`Netlink::set_shaper`]).
    pub fn set_emulation(&mut self, index: u32, emulation: &Emulation) -> Answer {
        let header =
            tc::Tcmsg { ifindex: index as i32, handle: ROOT_HANDLE, parent: TC_ROOT, ..Default::default() };
        let mut request = tc::Request::new().set_create().set_replace().op_newqdisc_do(&header);
        write(request.encode(), emulation);
        self.acknowledged(&request)
    }

    /// What happens at the roots of all interfaces, by index.
    pub fn emulations(&mut self) -> Answer<BTreeMap<u32, Emulation>> {
        let request = tc::Request::new().op_getqdisc_dump(&tc::Tcmsg::default());
        let found = self.replies(&request, |(header, attributes)| {
            let emulation = read(&attributes)?;
            (header.parent == TC_ROOT).then_some((header.ifindex as u32, emulation))
        })?;
        Ok(found.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_bindings::traits::NetlinkRequest;
    use proptest::prelude::*;

    #[test]
    fn chances_come_back_from_the_kernel_as_they_were() {
        assert_eq!((to_kernel(0), to_kernel(WHOLE)), (0, u32::MAX));
        for parts in (0..=WHOLE).step_by(7) {
            assert_eq!(of_kernel(to_kernel(parts)), parts);
        }
    }

    proptest! {
        /// The kernel tells it in the attributes in which it was told (`netem_dump`).
        #[test]
        fn what_is_written_is_read(
            [delay_ns, jitter_ns]: [u32; 2],
            [lose, duplicate, reorder, corrupt] in [0..=WHOLE, 0..=WHOLE, 0..=WHOLE, 0..=WHOLE],
        ) {
            let (delay_ns, jitter_ns) = (delay_ns.into(), jitter_ns.into());
            let emulation = Emulation { delay_ns, jitter_ns, lose, duplicate, reorder, corrupt };
            let mut request = tc::Request::new().op_newqdisc_do(&tc::Tcmsg::default());
            write(request.encode(), &emulation);
            let (_, attributes) = tc::OpGetqdiscDump::decode_reply(request.payload());
            prop_assert_eq!(read(&attributes), Some(emulation));
        }
    }
}

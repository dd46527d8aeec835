//! Datagrams in fragments where the flow itself was counted.
//!
//! **What.** A counter of the flow counts a datagram by its first fragment, and beside it the later ones of datagrams whose first one passed
//! there. So a datagram of which only a later fragment is lost is counted up to the receiver, which cannot put it together. [`charge`]
//! takes such datagrams from the receiver and gives them to the sections that later fragments did not leave again.
//!
//! **How sure.** Nobody knows which of them went missing with their first fragment, nor whether two were of one datagram. Of what is lost as
//! many are taken for cut as of what came; how many fewer or more datagrams it may have been is the uncertainty.

use crate::way::Section;
use record::NodeRole;

/// Charges what the receiver could not put together to where later fragments went missing; a datagram has so many fragments, or one. Returns
/// how many datagrams that are.
pub fn charge(sections: &mut [Section], fragments: u64) -> u64 {
    let is_end = |section: &Section| !section.is_link && section.hop.role == NodeRole::Receiver;
    let Some(end) = sections.iter().position(is_end) else { return 0 };
    let on_the_way = |(at, section): &(usize, &mut Section)| *at != end && !section.is_off_the_way;
    let mut short = sections[end].entered.saturating_sub(sections[end].left);
    let way: Vec<&mut Section> =
        sections.iter_mut().enumerate().filter(on_the_way).map(|(_, section)| section).collect();
    let mut to_come: u64 = way.iter().map(|section| lost(section)).sum();
    let (mut charged, mut least, mut most, mut broken, mut twice) = (0u64, 0u64, 0u64, 0u64, 0u64);
    for section in way {
        let firsts = lost(section);
        to_come -= firsts;
        let [at_least, likely, at_most] = alone(section, fragments.saturating_sub(1).max(1), broken);
        // What is charged before does not come here any more.
        let gone = charged.min(section.entered).min(section.left);
        (section.entered, section.left) = (section.entered - gone, section.left - gone);
        let here = likely.min(short).min(section.left);
        let (fewer, again) = (at_least.min(here), firsts.min(broken));
        let more = at_most.min(short.saturating_add(charged).saturating_add(to_come));
        (section.left, section.incomplete) = (section.left - here, here);
        section.disputed = (here - fewer).saturating_add(again).max(more.saturating_sub(here));
        (charged, short) = (charged + here, short - here);
        (least, most) = (least + fewer, most.saturating_add(more));
        (broken, twice) = (broken.saturating_add(at_most), twice.saturating_add(again));
    }
    let end = &mut sections[end];
    end.entered -= charged;
    end.disputed = (charged - least.saturating_sub(twice)).max(short.min(most.saturating_sub(charged)));
    charged
}

/// Datagrams that did not leave a section, by their first fragments.
fn lost(section: &Section) -> u64 {
    section.entered.saturating_sub(section.left)
}

/// Later fragments that did not leave a section although their first one did, as many as is likely. Those of a datagram that lost its first one
/// are recognised nowhere behind, whether they came or not: as many are taken for its own as a datagram had on the mean.
pub fn missing(section: &Section) -> u64 {
    let ([came, left], firsts, entered) = (section.later, lost(section), u128::from(section.entered.max(1)));
    let with_firsts = (u128::from(firsts) * u128::from(came) + entered / 2) / entered;
    came.saturating_sub(left).saturating_sub(u64::try_from(with_firsts).unwrap_or(u64::MAX))
}

/// Datagrams that lost a later fragment in a section and not their first: the least, as many as is likely, the most. As many as `broken` may
/// have come without all of theirs.
fn alone(section: &Section, later: u64, broken: u64) -> [u64; 3] {
    let ([came, left], firsts) = (section.later, lost(section));
    let all = came.saturating_sub(left);
    let uncut = section.entered.saturating_sub(came / later);
    let surely_cut = firsts.saturating_sub(uncut.saturating_add(broken));
    let most = all.saturating_sub(surely_cut.saturating_mul(later));
    let likely = missing(section).min(most);
    let not_whole = firsts.saturating_add(broken).saturating_mul(later);
    [all.saturating_sub(not_whole).div_ceil(later), likely, most]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use record::Hop;

    fn section(role: NodeRole, is_link: bool) -> Section {
        let hop = Hop { node: "n".into(), role, ingress: None, egress: None, bridge: None };
        let (entered, left, later) = (0, 0, [0, 0]);
        let (uncounted, incomplete, disputed) = (0, 0, 0);
        Section {
            hop,
            next: None,
            entered,
            left,
            is_link,
            is_off_the_way: false,
            uncounted,
            later,
            incomplete,
            disputed,
        }
    }

    /// A link, a router, a link and the receiver.
    fn way() -> [Section; 4] {
        let (router, receiver) = (NodeRole::Router, NodeRole::Receiver);
        [section(router, true), section(router, false), section(router, true), section(receiver, false)]
    }

    /// For each datagram where each of its fragments is lost; beyond the link before the receiver nowhere.
    fn counted(datagrams: &[Vec<usize>]) -> ([Section; 4], [u64; 4]) {
        let (mut way, mut truth) = (way(), [0; 4]);
        for fragments in datagrams {
            for (at, section) in way.iter_mut().enumerate() {
                let (first, later) = (fragments[0], &fragments[1..]);
                let reached = |place: usize| later.iter().filter(|lost| **lost >= place).count() as u64;
                if first >= at {
                    (section.entered, section.later[0]) =
                        (section.entered + 1, section.later[0] + reached(at));
                }
                if first > at && at < 3 {
                    (section.left, section.later[1]) = (section.left + 1, section.later[1] + reached(at + 1));
                }
            }
            let lost = *fragments.iter().min().expect("there is one");
            if let Some(truth) = truth.get_mut(lost) {
                *truth += 1;
            } else {
                way[3].left += 1;
            }
        }
        (way, truth)
    }

    proptest! {
        /// Any fragment may be lost anywhere, whole datagrams (those of one fragment) too, and the receiver may drop what came.
        #[test]
        fn a_loss_is_where_it_was_within_the_uncertainty_and_the_sum_is_exact(
            pieces in 2..5usize,
            lost in prop::collection::vec((any::<bool>(), prop::collection::vec(prop_oneof![1 => 0..4usize, 4 => Just(9)], 4)), 0..100),
        ) {
            let datagrams = lost.into_iter().map(|(is_cut, lost)| lost[..if is_cut { pieces } else { 1 }].to_vec());
            let datagrams: Vec<Vec<usize>> = datagrams.collect();
            let (mut way, truth) = counted(&datagrams);
            let (sent, read) = (way[0].entered, way[3].left);
            charge(&mut way, pieces as u64);
            let mut at = sent;
            for (section, truth) in way.iter().zip(truth) {
                prop_assert_eq!(section.entered, at, "{:?}", way);
                at = section.left;
                let lost = section.entered - section.left;
                prop_assert!(lost.abs_diff(truth) <= section.disputed, "{} {:?}", truth, section);
            }
            prop_assert_eq!(at, read);
        }

        #[test]
        fn whole_datagrams_are_known_exactly(lost in prop::collection::vec(0..6usize, 0..100), cut: bool) {
            let datagrams: Vec<Vec<usize>> = lost.iter().map(|at| vec![*at; if cut { 3 } else { 1 }]).collect();
            let (mut way, truth) = counted(&datagrams);
            charge(&mut way, if cut { 3 } else { 1 });
            for (section, truth) in way.iter().zip(truth).take(3) {
                prop_assert_eq!(section.entered - section.left - section.incomplete, truth);
                prop_assert!(cut || section.disputed == 0);
            }
        }
    }

    #[test]
    fn a_link_that_loses_any_fragment_is_charged_and_not_the_receiver() {
        // Of 1,000 datagrams in three fragments each tenth fragment, as a router between two hosts dropped them.
        let lost = |at: usize| if at.is_multiple_of(10) { 0 } else { 9 };
        let datagrams: Vec<Vec<usize>> =
            (0..1000).map(|index| (0..3).map(|piece| lost(index * 3 + piece)).collect()).collect();
        let (mut way, _) = counted(&datagrams);
        assert_eq!((way[0].left, way[3].left), (900, 700));
        assert_eq!(charge(&mut way, 3), 200);
        let losses = way.clone().map(|section| (section.entered - section.left, section.disputed));
        assert_eq!(losses, [(300, 100), (0, 0), (0, 0), (0, 100)]);
    }
}

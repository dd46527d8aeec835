//! The action set: what is done with a frame when it leaves the pipeline.
//!
//! **What.** At most one action of each type (§5.10), carried out in the standard's order, whatever the order in which
//! they were written: copy TTL inwards, pop, push MPLS, push PBB, push VLAN, copy TTL outwards, decrement TTL, set, qos,
//! group, output. A group makes an output void.
//!
//! **Why.** Tables add to it as a frame goes along; buckets of groups are action sets, too (§5.6.1).
//!
//! **Price.** The standard leaves the order of different pops open. Here VLAN goes before PBB before MPLS, which is how
//! headers follow each other in a frame that has a backbone tag.

use crate::action::Action;

/// The place of an action in the order, and what is "the same type".
pub type Slot = (u8, u8);

/// The slot of an action; experimenters' come first of all.
pub fn slot(action: &Action) -> Slot {
    match action {
        Action::Experimenter { .. } => (0, 0),
        Action::CopyTtlIn => (1, 0),
        Action::PopVlan => (2, 0),
        Action::PopPbb => (2, 1),
        Action::PopMpls(_) => (2, 2),
        Action::PushMpls(_) => (3, 0),
        Action::PushPbb(_) => (4, 0),
        Action::PushVlan(_) => (5, 0),
        Action::CopyTtlOut => (6, 0),
        Action::DecMplsTtl => (7, 0),
        Action::DecNwTtl => (7, 1),
        // §5.10: "set-field" of different fields are different types.
        Action::SetField { field, .. } => (8, *field as u8),
        Action::SetMplsTtl(_) => (8, 0xfe),
        Action::SetNwTtl(_) => (8, 0xff),
        Action::SetQueue(_) => (9, 0),
        Action::Group(_) => (10, 0),
        Action::Output { .. } => (11, 0),
    }
}

/// An action set. Emptied and filled again it allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActionSet {
    /// By slot.
    actions: Vec<(Slot, Action)>,
}

impl ActionSet {
    /// The set of these actions; of two of a type the later one.
    pub fn of(actions: &[Action]) -> ActionSet {
        let mut set = ActionSet::default();
        set.write(actions);
        set
    }

    /// Merges actions into the set: each takes the place of one of its type (§5.9, Write-Actions).
    pub fn write(&mut self, actions: &[Action]) {
        for action in actions {
            let slot = slot(action);
            match self.actions.binary_search_by_key(&slot, |(slot, _)| *slot) {
                Ok(at) => self.actions[at].1.clone_from(action),
                Err(at) => self.actions.insert(at, (slot, action.clone())),
            }
        }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.actions.clear();
    }

    /// Whether there is nothing to do; then the frame is dropped (§5.10).
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The actions in the order in which they are carried out. With a group, there is no output.
    pub fn in_order(&self) -> impl Iterator<Item = &Action> {
        let has_group = self.actions.iter().any(|(_, action)| matches!(action, Action::Group(_)));
        let actions = self.actions.iter().map(|(_, action)| action);
        actions.filter(move |action| !(has_group && matches!(action, Action::Output { .. })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::PortNo;
    use proptest::prelude::*;

    fn output(port: u32) -> Action {
        Action::Output { port: PortNo(port), max_len: 0 }
    }

    #[test]
    fn the_order_is_that_of_section_5_10() {
        use Action::*;
        let queue = SetQueue(7);
        let field = SetField { field: crate::Field::EthDst, value: 1 };
        let ordered = [
            CopyTtlIn,
            PopVlan,
            PopMpls(0x800),
            PushMpls(0x8847),
            PushPbb(0x88e7),
            PushVlan(0x8100),
            CopyTtlOut,
            DecNwTtl,
            field,
            queue,
            output(1),
        ];
        let mut backwards = ordered.to_vec();
        backwards.reverse();
        let set = ActionSet::of(&backwards);
        assert_eq!(set.in_order().cloned().collect::<Vec<_>>(), ordered);
    }

    #[test]
    fn a_group_makes_the_output_void_and_the_queue_stays() {
        // LINCX let set_queue take the place of group and output.
        let set = ActionSet::of(&[output(1), Action::Group(5), Action::SetQueue(2)]);
        assert_eq!(set.in_order().cloned().collect::<Vec<_>>(), [Action::SetQueue(2), Action::Group(5)]);
    }

    proptest! {
        #[test]
        fn the_last_of_a_type_counts(ports in proptest::collection::vec(1..9u32, 1..9)) {
            let actions: Vec<_> = ports.iter().map(|port| output(*port)).collect();
            let set = ActionSet::of(&actions);
            prop_assert_eq!(set.in_order().collect::<Vec<_>>(), vec![actions.last().unwrap()]);
        }
    }
}

//! From an action to the change of bytes.
//!
//! **What.** One call for every action that changes a frame; the bytes are the business of [`wire::edit`].
//!
//! **Why.** Every engine, and a meter that marks, needs the same few lines between the model's actions and the edits.
//!
//! **Price.** An action that finds no header for it changes nothing and is no error (§5.12 leaves it open); whoever
//! watches sees it.

use crate::action::Action;
use wire::edit::{FrameBuf, Refused};

/// Carries out an action that changes the frame; others change nothing. Refused, the frame is as it was.
pub fn edit(frame: &mut FrameBuf, action: &Action) -> Result<(), Refused> {
    match action {
        Action::CopyTtlOut => frame.copy_ttl_out(),
        Action::CopyTtlIn => frame.copy_ttl_in(),
        Action::SetMplsTtl(ttl) => frame.set_mpls_ttl(*ttl),
        Action::DecMplsTtl => frame.dec_mpls_ttl(),
        Action::PushVlan(tag) => frame.push_vlan(*tag),
        Action::PopVlan => frame.pop_vlan(),
        Action::PushMpls(tag) => frame.push_mpls(*tag),
        Action::PopMpls(eth_type) => frame.pop_mpls(*eth_type),
        Action::SetNwTtl(ttl) => frame.set_nw_ttl(*ttl),
        Action::DecNwTtl => frame.dec_nw_ttl(),
        Action::PushPbb(tag) => frame.push_pbb(*tag),
        Action::PopPbb => frame.pop_pbb(),
        Action::SetField { field, value } => match wire::headers::Field::from_oxm(*field as u8) {
            Some(field) => frame.set(field, *value),
            None => Ok(()),
        },
        Action::Output { .. } | Action::SetQueue(_) | Action::Group(_) | Action::Experimenter { .. } => {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::field::TABLE;

    #[test]
    fn the_tables_of_fields_agree() {
        let of_frame: Vec<_> = TABLE
            .iter()
            .filter_map(|row| Some((row.oxm, wire::headers::Field::from_oxm(row.oxm)?.bits(), row.bits)))
            .collect();
        assert_eq!(of_frame.len(), wire::headers::Field::ALL.len());
        assert!(of_frame.iter().all(|(_, theirs, ours)| theirs == ours), "{of_frame:?}");
        assert_eq!(TABLE.len() - of_frame.len(), 4, "in_port, in_phy_port, metadata, tunnel_id");
    }
}

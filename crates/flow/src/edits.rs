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
        Action::SetField { field, value } => frame.set(*field, *value),
        Action::Output { .. } | Action::SetQueue(_) | Action::Group(_) | Action::Experimenter { .. } => {
            Ok(())
        }
    }
}

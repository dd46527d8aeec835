//! Whether a change of knobs helps: what is worth trying, and what of many is best. The arm that has a change is [`crate::trial::ArmSettings`].
//!
//! **Price.** Both arms are the same lab, so every measurement of the other arm changes the knobs first.

pub mod search;
pub mod suspects;
pub mod usual;

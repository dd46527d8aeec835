//! Counters and the witness against the running kernel, in namespaces that vanish with the test.
//!
//! Needs root (or a user namespace for the parts without the witness) and `ip`, `tc`, `nft`; without them a test says
//! `SKIP` and why.

#[allow(dead_code)]
#[path = "../../../../tests/support/again.rs"]
mod again;
mod agreement;
mod causes;
mod cost;
mod flows;
#[path = "../support/mod.rs"]
mod support;
mod units;
mod world;

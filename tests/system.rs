//! The whole program from outside, as a user meets it. One binary, because each links everything.

mod support;

#[path = "system/bench.rs"]
mod bench;
#[path = "system/capture.rs"]
mod capture;
#[path = "system/clients.rs"]
mod clients;
#[path = "system/commands.rs"]
mod commands;
#[path = "system/criteria.rs"]
mod criteria;
#[path = "system/dist.rs"]
mod dist;
#[path = "system/documents.rs"]
mod documents;
#[path = "system/filters.rs"]
mod filters;
#[path = "system/flow.rs"]
mod flow;
#[path = "system/forwarders.rs"]
mod forwarders;
#[path = "system/join.rs"]
mod join;
#[path = "system/memory.rs"]
mod memory;
#[path = "system/null.rs"]
mod null;
#[path = "system/readme.rs"]
mod readme;
#[path = "system/report.rs"]
mod report;
#[path = "system/runs.rs"]
mod runs;
#[path = "system/send.rs"]
mod send;
#[path = "system/senders.rs"]
mod senders;
#[path = "system/stopped.rs"]
mod stopped;
#[path = "system/trouble.rs"]
mod trouble;
#[path = "system/users.rs"]
mod users;

use std::sync::{Mutex, MutexGuard};

/// Measurements are made one at a time: two cores cannot measure and be measured by somebody else.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|broken| broken.into_inner())
}

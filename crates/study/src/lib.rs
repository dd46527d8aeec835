//! Records to statistics, ledger, findings, store and report. Never sees the machine.
pub mod ledger;

//! Records to statistics, ledger, verdict, findings, store and report.
//!
//! **What.** [`ledger`] says where every frame went, [`tcp`] what held a connection back, [`verdict`] what limited a
//! test, [`stats`] how sure a median is, [`test`] puts all of that together for one test, [`time`] who waited for a CPU and which functions ran, [`layers`] which layer of the path took how long, [`findings`] say what a reader must know, [`validity`] whether its figures are valid, [`criteria`] whether it reached what was asked; [`join`] makes one record of two halves;
//! [`store`] keeps runs, [`listing`], [`text`] and [`report`] show them; [`bench`] does both for benchmarks of ports.
//!
//! **Why here.** This crate never sees the machine: a run recorded on another host gives the same conclusions. Only
//! [`store`] and [`bench`] touch files.

pub mod bench;
pub mod capturing;
pub mod case;
pub mod connection;
pub mod criteria;
pub mod dead_frames;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod findings;
pub mod hosts;
pub mod join;
pub mod layers;
pub mod ledger;
pub mod listing;
pub mod llstat;
pub mod report;
#[cfg(test)]
mod sample;
pub mod sending;
pub mod stats;
pub mod store;
pub mod switches;
pub mod table;
pub mod tcp;
pub mod test;
pub mod text;
pub mod time;
pub mod trial;
pub mod validity;
pub mod verdict;
pub mod watch;
pub mod way;
pub mod ways;

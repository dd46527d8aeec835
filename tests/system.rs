//! The whole program from outside, as a user meets it. One binary, because each links everything.

mod support;

#[path = "system/bench.rs"]
mod bench;
#[path = "system/between.rs"]
mod between;
#[path = "system/capture.rs"]
mod capture;
#[path = "system/case.rs"]
mod case;
#[path = "system/clients.rs"]
mod clients;
#[path = "system/commands.rs"]
mod commands;
#[path = "system/compare.rs"]
mod compare;
#[path = "system/criteria.rs"]
mod criteria;
#[path = "system/dist.rs"]
mod dist;
#[path = "system/doctor.rs"]
mod doctor;
#[path = "system/documents.rs"]
mod documents;
#[path = "system/drops.rs"]
mod drops;
#[path = "system/explain.rs"]
mod explain;
#[path = "system/export.rs"]
mod export;
#[path = "system/figures.rs"]
mod figures;
#[path = "system/filters.rs"]
mod filters;
#[path = "system/flow.rs"]
mod flow;
#[path = "system/follow.rs"]
mod follow;
#[path = "system/forwarders.rs"]
mod forwarders;
#[path = "system/join.rs"]
mod join;
#[path = "system/layers.rs"]
mod layers;
#[path = "system/llstat.rs"]
mod llstat;
#[path = "system/memory.rs"]
mod memory;
#[path = "system/namespaces.rs"]
mod namespaces;
#[path = "system/null.rs"]
mod null;
#[path = "system/prove.rs"]
mod prove;
#[path = "system/readme.rs"]
mod readme;
#[path = "system/report.rs"]
mod report;
#[path = "system/routing.rs"]
mod routing;
#[path = "system/runs.rs"]
mod runs;
#[path = "system/search.rs"]
mod search;
#[path = "system/send.rs"]
mod send;
#[path = "system/senders.rs"]
mod senders;
#[path = "system/stopped.rs"]
mod stopped;
#[path = "system/switched.rs"]
mod switched;
#[path = "system/tcp.rs"]
mod tcp;
#[path = "system/tcp_verdicts.rs"]
mod tcp_verdicts;
#[path = "system/time.rs"]
mod time;
#[path = "system/trouble.rs"]
mod trouble;
#[path = "system/tune.rs"]
mod tune;
#[path = "system/uppers.rs"]
mod uppers;
#[path = "system/users.rs"]
mod users;
#[path = "system/validity.rs"]
mod validity;
#[path = "system/via.rs"]
mod via;
#[path = "system/vm.rs"]
mod vm;
#[path = "system/watch.rs"]
mod watch;

use support::turn::{alone, beside, beside_for_long, loud, loud_for_long};

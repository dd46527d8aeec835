//! `pathlab switch` in use: real controllers, traffic while rules change, peers that misbehave, links that go and come back.
//!
//! What a switch does with one message or one frame is tested beside the code (`crates/flow`) and by os-ken's suite
//! (`tests/openflow.rs`). Here the whole runs: ports, threads, sockets, and programs of other people.

#[path = "switch/auxiliary.rs"]
mod auxiliary;
#[path = "switch/barrier.rs"]
mod barrier;
#[path = "switch/client.rs"]
mod client;
#[path = "switch/controllers.rs"]
mod controllers;
#[path = "switch/crash.rs"]
mod crash;
#[path = "switch/differential.rs"]
mod differential;
#[path = "switch/doors.rs"]
mod doors;
#[path = "switch/engines.rs"]
mod engines;
#[path = "switch/flood.rs"]
mod flood;
#[path = "switch/kernel.rs"]
mod kernel;
#[path = "switch/lincx.rs"]
mod lincx;
#[path = "switch/links.rs"]
mod links;
#[path = "switch/million.rs"]
mod million;
#[path = "switch/mininet.rs"]
mod mininet;
#[path = "switch/pressure.rs"]
mod pressure;
#[path = "switch/queues.rs"]
mod queues;
#[path = "switch/random.rs"]
mod random;
#[path = "switch/rough.rs"]
mod rough;
#[path = "switch/site.rs"]
mod site;
mod support;
#[path = "switch/tls.rs"]
mod tls;
#[path = "switch/vswitch.rs"]
mod vswitch;

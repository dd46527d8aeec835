//! Counters of nodes and of the host, and the independent witness of drops.

pub mod assembler;
pub mod btf;
pub mod drops_program;
pub mod links;
pub mod netlink;
pub mod symbols;
pub mod witness;

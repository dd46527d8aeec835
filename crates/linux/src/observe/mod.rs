//! Counters of nodes and of the host, and the independent witness of drops.

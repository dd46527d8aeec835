//! Counters and the witness against the running kernel, in namespaces that vanish with the test.

mod causes;
mod causes2;
mod world;

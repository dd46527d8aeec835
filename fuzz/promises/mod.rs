//! What must hold for any bytes; run by the fuzzer and, over the kept corpus, by a test on the stable compiler.
#![allow(dead_code)] // each fuzz target keeps one promise and links them all

mod capture_file;
mod edit;
mod filter;
mod offload;

pub use capture_file::capture_file;
pub use edit::edit;
pub use filter::filter;
pub use offload::offload;

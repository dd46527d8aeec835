#![no_main]

#[path = "../promises/openflow.rs"]
mod promises;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| promises::openflow_message(bytes));

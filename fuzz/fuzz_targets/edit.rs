#![no_main]

#[path = "../promises/mod.rs"]
mod promises;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| promises::edit(bytes));

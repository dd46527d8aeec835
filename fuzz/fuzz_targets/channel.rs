#![no_main]

#[path = "../promises/channel.rs"]
mod promises;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| promises::channel(bytes));

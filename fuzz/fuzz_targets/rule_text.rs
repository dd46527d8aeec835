#![no_main]

#[path = "../promises/text.rs"]
mod promises;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| promises::rule_text(bytes));

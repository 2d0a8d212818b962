//! Any bytes are types that answer every question, or are refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::btf_ask(data));

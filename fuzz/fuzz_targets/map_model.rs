//! A map of any kind does what a plain model does.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::map_model(data));

//! The verifier survives any program.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::verify_hostile(data));

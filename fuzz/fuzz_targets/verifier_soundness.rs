//! What the verifier accepts does no harm.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::verifier_soundness(data));

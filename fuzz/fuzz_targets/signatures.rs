//! No bytes but those of the signer are a right signature.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::signatures(data));

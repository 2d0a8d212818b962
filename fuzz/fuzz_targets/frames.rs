//! Any bytes are a packet whose text builds them again, and any text is a packet or an error in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::frames(data));

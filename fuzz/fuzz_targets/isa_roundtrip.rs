//! Bytes, instructions and text are translated into each other without loss.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::isa_roundtrip(data));

//! Helpers over packets do the same in both engines, whatever their arguments.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::packet_helpers(data));

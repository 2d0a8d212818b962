//! Hostile calls of bpf(2) write only where they may, and leave nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::sys_calls(data));

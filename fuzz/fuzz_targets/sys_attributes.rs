//! One call of bpf(2), with attributes as the fuzzer gives them, writes only where it may.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::sys_attributes(data));

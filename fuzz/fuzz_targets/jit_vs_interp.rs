//! Compiled code does what the interpreter does.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::jit_vs_interp(data));

//! Any bytes load as an object or are refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::elf_load(data));

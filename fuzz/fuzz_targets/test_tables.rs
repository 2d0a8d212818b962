//! Any text is a table with tests, or an error at one of its lines.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::test_tables(data));

//! Any bytes are a format of `bpf_snprintf` whose pieces add up to it, or are refused where they are wrong.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_fuzz::format_parse(data));

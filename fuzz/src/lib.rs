//! The bodies of the fuzz targets as plain functions, one an oracle. Each returns where its promise holds for
//! the input and panics where it does not.
//!
//! The promises themselves stand beside the crates they are about, where tests on stable Rust make them for
//! bounded numbers of random inputs; here is only what turns a fuzzer's bytes into their arguments.

mod programs;

#[path = "../../crates/skep-btf/tests/oracle/ask.rs"]
mod ask;
#[path = "../../testgen/tests/common/mod.rs"]
mod common;
#[path = "../../crates/skep-abi/tests/oracle/format.rs"]
mod format;
#[path = "../../crates/skep-frames/tests/oracle/mod.rs"]
mod frames;
#[path = "../../crates/skep-verifier/tests/oracle/hostile.rs"]
mod hostile;
#[path = "../../crates/skep-elf/tests/oracle/load.rs"]
mod load;
#[path = "../../crates/skep-maps/tests/oracle/model.rs"]
mod model;
#[path = "../../crates/skep/tests/oracle/packets.rs"]
mod packets;
#[path = "../../crates/skep-isa/tests/oracle/roundtrip.rs"]
mod roundtrip;
#[path = "../../crates/skep/tests/oracle/signatures.rs"]
mod signed;
#[path = "../../crates/skep/tests/oracle/sys.rs"]
mod sys;
#[path = "../../crates/skep-test/tests/oracle/mod.rs"]
mod tables;

/// Bytes, instructions and text are translated into each other without loss, and no input makes the
/// decoder or the assembler panic. `data` is taken as a program, and as assembler text if it is UTF-8.
pub fn isa_roundtrip(data: &[u8]) {
    roundtrip::check(data);
    if let Ok(text) = str::from_utf8(data) {
        roundtrip::check_text(text);
    }
}

/// Any bytes are types that answer every question, or are refused. Start from real ones: objects, of which the
/// section `.BTF` is taken, and kernel modules' types.
pub fn btf_ask(data: &[u8]) {
    ask::check(data);
}

/// Any bytes load or are refused, also for a target with their own types, and every reference of a program that loads
/// leads somewhere. Start from real objects (`cargo fuzz run elf_load CORPUS examples bench/programs`): noise does not
/// get past the header.
pub fn elf_load(data: &[u8]) {
    load::check(data);
}

/// Any bytes are refused as a signature of a content that nobody signed, and as a list of certificates are one or are
/// refused. Start from real ones: `cargo fuzz run signatures CORPUS ../crates/skep/tests/signatures`.
pub fn signatures(data: &[u8]) {
    signed::check(data);
}

/// Helpers over packets do the same in both engines, whatever their arguments. `data` decides about packet and helpers.
pub fn packet_helpers(data: &[u8]) {
    packets::check(&mut skep_testgen::Source::from_bytes(data));
}

/// Any bytes are a format of `bpf_snprintf` whose pieces add up to it, or are refused where they are wrong.
pub fn format_parse(data: &[u8]) {
    format::check(data);
}

/// Any bytes are a packet whose text builds them again, and any text is a packet or an error in it.
pub fn frames(data: &[u8]) {
    frames::keeps(data);
    if let Ok(text) = std::str::from_utf8(data) {
        frames::reads(text);
    }
}

/// Any text is a table with tests, or an error at one of its lines.
pub fn test_tables(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        tables::reads(text);
    }
}

/// Compiled code does what the interpreter does with programs that the verifier accepts. `data` is what the
/// generator of programs decides by.
pub fn jit_vs_interp(data: &[u8]) {
    programs::compare(data);
}

/// Programs that the verifier accepts keep to their memory, end, and agree with what the verifier says of
/// them: before every instruction, every register and stack slot is within some state of its walk. `data` is a
/// program, or what a generator of hostile or changed programs decides by.
pub fn verifier_soundness(data: &[u8]) {
    programs::attack(data);
}

/// Whatever program of whatever type is verified, with whatever maps, the verifier comes to an end within its
/// limits and does not panic.
pub fn verify_hostile(data: &[u8]) {
    hostile::check(data);
}

/// A map of any kind does what a plain model does, asked by the host and by programs. `data` is the map and the
/// operations.
pub fn map_model(data: &[u8]) {
    model::check(data);
}

/// Sequences of calls of bpf(2) that name anything as anything keep the promises of the oracle. `data` decides the
/// calls.
pub fn sys_calls(data: &[u8]) {
    sys::check(&mut skep_testgen::Source::from_bytes(data), 200);
}

/// A few calls of bpf(2) whose attributes are `data`, after calls that make objects for them, keep the same promises.
pub fn sys_attributes(data: &[u8]) {
    sys::check_attributes(data);
}

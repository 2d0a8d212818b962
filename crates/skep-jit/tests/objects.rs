//! Whole objects, from clang's output through the verifier to running code.

#![allow(missing_docs)]

#[path = "objects/untrusted.rs"]
mod untrusted;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iced_x86::Mnemonic;
use skep_abi::{
    Context, Entry, HelperFn, InlineArray, LINUX, Linkage, MapDef, MapKind, MapLink, ProgramTable, RunEnv,
};
use skep_elf::Object;
use skep_isa::{CallTarget, Insn};
use skep_jit::{Emitted, Error, Options, SUPPORTED, Target, compile, emit};
use skep_text::{Arena, Config};
use skep_verifier::{Unverified, Verified, verify};
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

/// A helper for programs that are only compiled.
unsafe extern "C" fn none(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn objects(folder: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(root().join(folder)).expect("a folder of objects");
    let mut objects: Vec<PathBuf> = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "o"))
        .collect();
    objects.sort();
    objects
}

/// Its programs, verified; programs that take a buffer get one of that many bytes.
fn verified(path: &Path, buffer: u32) -> Vec<Verified> {
    let bytes = fs::read(path).expect("an object");
    let object = Object::parse(&bytes).expect("parses");
    let maps: Arc<[MapDef]> = object.maps().iter().map(|map| map.def.clone()).collect();
    let verify_one = |program: &skep_elf::Program| {
        let source = program.source(None).expect("links");
        let entry = match source.program_type.context {
            Context::Buffer => Entry::Buffer { len: buffer },
            _ => Entry::Context,
        };
        let unverified = Unverified { source, maps: Arc::clone(&maps), entry };
        verify(unverified, &skep_verifier::Config::default())
            .unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display()))
    };
    object.programs().iter().map(verify_one).collect()
}

/// Plausible addresses of maps and helpers, for programs that are only compiled.
fn linkage(program: &Verified) -> Linkage {
    let maps = program.maps().iter().enumerate().map(|(index, map)| {
        let base = 0x7f12_3400_0000 + 0x10_0000 * index as u64;
        let inline = matches!(map.kind, MapKind::Array | MapKind::PercpuArray).then_some(InlineArray {
            base,
            stride: map.value_size.next_multiple_of(8),
            cpu_stride: if map.kind == MapKind::PercpuArray { 4096 } else { 0 },
            max_entries: map.max_entries,
        });
        let value_base = (map.kind == MapKind::Array).then_some(base);
        let programs =
            (map.kind == MapKind::ProgArray).then_some(ProgramTable { entries: base, len: map.max_entries });
        MapLink { handle: base - 64, value_base, inline, programs, arena: None }
    });
    let helpers: Arc<[(u32, HelperFn)]> = LINUX.iter().map(|proto| (proto.id, none as HelperFn)).collect();
    Linkage { maps: maps.collect(), helpers, inline_linux_helpers: true, ..Linkage::default() }
}

/// Its code for the newest processor of an architecture, with nothing in reach.
fn emitted(program: &Verified, target: Target) -> Emitted {
    emitted_with(program, Options::default(), target)
}

fn emitted_with(program: &Verified, options: Options, target: Target) -> Emitted {
    let home = 0x7f12_0000_0000..0x7f12_0800_0000;
    emit(program, &linkage(program), options, target, home).expect("compiles")
}

/// Every example and benchmark.
fn everything() -> impl Iterator<Item = Verified> {
    let paths = objects("examples").into_iter().chain(objects("bench/programs"));
    paths.flat_map(|path| verified(&path, 4096))
}

fn slots(program: &Verified) -> usize {
    program.insns().iter().filter(|insn| **insn != Insn::LoadImm64Tail).count()
}

/// The offset of each instruction as a foreign disassembler reads the code, and whether it is padding; the end comes
/// last.
fn starts(program: &Verified, target: Target, code: &[u8]) -> Vec<(u32, bool)> {
    let mut starts = Vec::new();
    match target {
        Target::X86_64 => {
            for insn in &mut iced_x86::Decoder::with_ip(64, code, 0, iced_x86::DecoderOptions::NONE) {
                assert_ne!(insn.mnemonic(), Mnemonic::INVALID, "{} at {:#x}", program.name(), insn.ip());
                starts.push((insn.ip() as u32, insn.mnemonic() == Mnemonic::Nop));
            }
        }
        _ => {
            for (at, word) in (0..).step_by(4).zip(code.chunks(4)) {
                let insn = InstDecoder::default().decode(&mut U8Reader::new(word));
                let insn = insn.unwrap_or_else(|error| panic!("{} at {at:#x}: {error}", program.name()));
                let is_padding = insn.opcode == Opcode::HINT
                    && insn.operands[..2] == [Operand::ControlReg(0), Operand::Immediate(0)];
                starts.push((at, is_padding));
            }
        }
    }
    starts.push((code.len() as u32, true));
    starts
}

/// The number of tail calls. All of them are direct here: no-operations until their slots are filled.
fn tail_calls(program: &Verified) -> usize {
    let is_tail_call = |insn: &Insn| matches!(insn, Insn::Call { target: CallTarget::Helper(12) });
    program
        .insns()
        .iter()
        .zip(program.facts())
        .filter(|(insn, fact)| fact.reached && is_tail_call(insn))
        .count()
}

/// Asserts that the code decodes, has the counted instructions, and begins each slot with an instruction; returns the
/// number of padding instructions.
fn check(program: &Verified, target: Target, code: &Emitted) -> usize {
    let starts = starts(program, target, &code.bytes);
    let counted = starts.iter().filter(|(_, is_padding)| !is_padding).count();
    let told = code.instructions as usize;
    assert_eq!(told, counted + tail_calls(program), "{} for {}", program.name(), target.name());
    for offset in &code.offsets {
        let found = starts.binary_search_by_key(offset, |(start, _)| *start);
        assert!(found.is_ok(), "{} for {}: {offset:#x}", program.name(), target.name());
    }
    starts.len() - 1 - counted
}

#[test]
fn every_example_and_benchmark_compiles_to_code_that_decodes() {
    for target in Target::ALL {
        let padding: usize =
            everything().map(|program| check(&program, target, &emitted(&program, target))).sum();
        assert!(padding > 0, "no program for {} had padding", target.name());
    }
}

#[test]
fn code_compiled_to_run_decodes_too() {
    let arena = Arena::new(Config::new().near(none as *const () as usize)).expect("an arena");
    for program in everything() {
        match (compile(&program, &linkage(&program), Options::default(), &arena), Target::host()) {
            (Err(Error::Architecture(name)), None) if !SUPPORTED => assert_eq!(name, std::env::consts::ARCH),
            (Ok(compiled), Some(host)) => {
                // SAFETY: the text lives as long as the program, and is never written.
                let bytes =
                    unsafe { std::slice::from_raw_parts(compiled.text().as_ptr(), compiled.code_bytes()) };
                let (offsets, pieces) = (compiled.offsets().into(), compiled.pieces().into());
                let instructions = compiled.instructions();
                check(&program, host, &Emitted { bytes: bytes.into(), offsets, pieces, instructions });
            }
            (result, host) => panic!("{}: {result:?} on {host:?}", program.name()),
        }
    }
}

/// Bytes and native instructions of all programs, and BPF instructions.
fn sizes(target: Target, programs: impl Iterator<Item = Verified>) -> (usize, usize, usize) {
    let show = std::env::var_os("SKEP_SHOW_SIZES").is_some();
    let mut all = (0, 0, 0);
    for program in programs {
        let code = emitted(&program, target);
        let (bytes, native, insns) = (code.bytes.len(), code.instructions as usize, slots(&program));
        if show {
            let each = native as f64 / insns as f64;
            println!("{:8} {:24} {insns:5} {native:5} {each:.2} {bytes:6}", target.name(), program.name());
        }
        all = (all.0 + bytes, all.1 + native, all.2 + insns);
    }
    let (bytes, native, insns) = all;
    println!("{}: {bytes} bytes, {native} instructions for {insns}", target.name());
    all
}

#[test]
fn code_takes_at_most_five_bytes_an_instruction_on_x86_64() {
    let (bytes, _, insns) = sizes(Target::X86_64, everything());
    assert!(bytes <= 5 * insns, "{bytes} bytes for {insns} instructions");
}

#[test]
fn code_takes_at_most_five_instructions_for_four_on_aarch64() {
    let programs = objects("bench/programs").into_iter().flat_map(|path| verified(&path, 4096));
    let (bytes, native, insns) = sizes(Target::Aarch64, programs);
    assert!(4 * native <= 5 * insns, "{native} instructions for {insns}");
    // Only loop heads are padded.
    assert!(bytes <= 4 * native + native, "{bytes} bytes for {native} instructions");
}

//! Whole objects, from clang's output through the verifier to running code.

#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use skep_abi::{Context, Entry, HelperFn, InlineArray, LINUX, Linkage, MapDef, MapKind, MapLink, RunEnv};
use skep_elf::Object;
use skep_isa::Insn;
use skep_jit::{Compiled, Error, Options, SUPPORTED, compile};
use skep_text::{Arena, Config};
use skep_verifier::{Unverified, Verified, verify};

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

fn arena() -> Arena {
    Arena::new(Config::new().near(none as *const () as usize)).expect("an arena")
}

/// Its programs, verified for a buffer of that many bytes where they take one.
fn verified(path: &Path, buffer: u32) -> Vec<Verified> {
    let bytes = fs::read(path).expect("an object");
    let object = Object::parse(&bytes).expect("parses");
    let maps: Arc<[MapDef]> = object.maps().iter().map(|map| map.def.clone()).collect();
    let verify_one = |program: &skep_elf::Program| {
        let source = program.source(None).expect("links");
        let entry = match source.program_type.context {
            Context::Struct(_) => Entry::Context,
            Context::Buffer => Entry::Buffer { len: buffer },
        };
        let unverified = Unverified { source, maps: Arc::clone(&maps), entry };
        verify(unverified, &skep_verifier::Config::default())
            .unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display()))
    };
    object.programs().iter().map(verify_one).collect()
}

/// Maps and helpers at places where they might be, for programs that are only compiled.
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
        MapLink { handle: base - 64, value_base, inline }
    });
    let helpers: Vec<(u32, HelperFn)> = LINUX.iter().map(|proto| (proto.id, none as HelperFn)).collect();
    Linkage { maps: maps.collect(), helpers, inline_linux_helpers: true }
}

/// Compiles it; on machines without a backend, checks that this is said and returns nothing.
fn compiled(program: &Verified, arena: &Arena) -> Option<Compiled> {
    match compile(program, &linkage(program), Options::default(), arena) {
        Err(Error::Architecture(name)) if !SUPPORTED => {
            assert_eq!(name, std::env::consts::ARCH);
            None
        }
        result => Some(result.expect("compiles")),
    }
}

fn slots(program: &Verified) -> usize {
    program.insns().iter().filter(|insn| **insn != Insn::LoadImm64Tail).count()
}

#[test]
#[ignore = "prints"]
fn show_counts() {
    for target in skep_jit::Target::ALL {
        let (mut native, mut insns, mut bytes) = (0, 0, 0);
        for path in objects("bench/programs") {
            for program in verified(&path, 4096) {
                let e = skep_jit::emit(
                    &program,
                    &linkage(&program),
                    Options::default(),
                    target,
                    0x7f12_0000_0000..0x7f12_0800_0000,
                )
                .unwrap();
                native += e.instructions as usize;
                bytes += e.bytes.len();
                insns += slots(&program);
                println!(
                    "{:24} {:5} {:5} {:.2}",
                    program.name(),
                    slots(&program),
                    e.instructions,
                    e.instructions as f64 / slots(&program) as f64
                );
            }
        }
        println!(
            "{}: {native} for {insns}: {:.3}, {:.2} bytes",
            target.name(),
            native as f64 / insns as f64,
            bytes as f64 / insns as f64
        );
    }
}

fn code(compiled: &Compiled) -> &[u8] {
    // SAFETY: the text lives as long as the program, and nobody writes it.
    unsafe { std::slice::from_raw_parts(compiled.text().as_ptr(), compiled.code_bytes()) }
}

#[test]
fn every_example_and_benchmark_compiles_to_code_that_decodes() {
    let arena = arena();
    for path in objects("examples").into_iter().chain(objects("bench/programs")) {
        for program in verified(&path, 4096) {
            let Some(compiled) = compiled(&program, &arena) else { continue };
            let mut starts = Vec::new();
            for insn in &mut Decoder::with_ip(64, code(&compiled), 0, DecoderOptions::NONE) {
                assert_ne!(insn.mnemonic(), Mnemonic::INVALID, "{} at {:#x}", program.name(), insn.ip());
                starts.push(insn.ip() as u32);
            }
            starts.push(compiled.code_bytes() as u32);
            for offset in compiled.offsets() {
                assert!(starts.binary_search(offset).is_ok(), "{}: {offset:#x}", program.name());
            }
        }
    }
}

#[test]
fn code_takes_at_most_five_bytes_an_instruction() {
    let arena = arena();
    let (mut bytes, mut insns) = (0, 0);
    for path in objects("examples").into_iter().chain(objects("bench/programs")) {
        for program in verified(&path, 4096) {
            let Some(compiled) = compiled(&program, &arena) else { continue };
            bytes += compiled.code_bytes();
            insns += slots(&program);
            if std::env::var_os("SKEP_SHOW_SIZES").is_some() {
                let (bytes, insns) = (compiled.code_bytes(), slots(&program));
                println!("{:24} {insns:5} {bytes:5} {:.2}", program.name(), bytes as f64 / insns as f64);
            }
        }
    }
    println!("{bytes} bytes for {insns} instructions: {:.2}", bytes as f64 / insns as f64);
    assert!(bytes <= 5 * insns, "{bytes} bytes for {insns} instructions");
}

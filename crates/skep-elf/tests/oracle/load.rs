//! The promise for untrusted bytes: loading them ends without a panic, in an error or in programs whose references
//! are all valid.

use skep_abi::{Extern, ExternKind, MAX_SPECIAL, MapKind, ProgramSource, RAW, SpecialField};
use skep_elf::{EntryTarget, LinkOptions, Object};
use skep_isa::{CallTarget, Imm64, Insn};

/// Loads `bytes` and everything in them. Returns how many programs could be linked.
///
/// # Panics
///
/// If the promise is broken.
#[allow(unreachable_pub)] // the fuzzer and the tests include this file, each its own way
pub fn check(bytes: &[u8]) -> usize {
    let mut object = match Object::parse(bytes) {
        Ok(object) => object,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return 0;
        }
    };
    check_maps(&object);
    if let Err(error) = object.set_config("CONFIG_BPF=y\nCONFIG_HZ=100\n", Some("6.1")) {
        assert!(!error.to_string().is_empty());
    }
    // An equally untrusted target: the object's own types.
    let own = object.btf().cloned();
    // All programs of a hostile file may share one large function, so only a few are linked.
    let mut linked = 0;
    for program in object.programs().iter().take(16) {
        if let Err(error) = program.source(None) {
            assert!(!error.to_string().is_empty());
        }
        if let Ok(source) = program.source(Some(&RAW)) {
            check_source(&object, &source);
            linked += 1;
        }
        let options = LinkOptions { target: own.as_deref(), ..LinkOptions::default() };
        match program.link(Some(&RAW), &options) {
            Ok(source) => check_source(&object, &source),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    linked
}

fn check_maps(object: &Object) {
    for map in object.maps() {
        let def = &map.def;
        let in_value =
            |field: &SpecialField| u64::from(field.offset) + u64::from(field.size) <= def.value_size.into();
        assert!(def.fields.len() <= MAX_SPECIAL, "{}", def.name);
        assert!(def.fields.iter().all(in_value), "{}", def.name);
        if let Some(frozen) = &def.frozen {
            assert_eq!(Some(frozen), map.initial.as_ref(), "{}", def.name);
        }
        if let Some(initial) = &map.initial {
            assert_eq!(initial.len(), def.value_size as usize, "{}", def.name);
        }
        for variable in &map.variables {
            assert!(variable.range().end <= def.value_size as usize, "{}", variable.name);
        }
        for entry in &map.entries {
            assert!(entry.index < def.max_entries, "{}", def.name);
            match &entry.target {
                EntryTarget::Map(map) => assert!((*map as usize) < object.maps().len(), "{}", def.name),
                EntryTarget::Program(name) => assert!(object.program(name).is_ok(), "{}", def.name),
            }
        }
        if matches!(def.kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps) {
            assert!(def.inner.as_ref().is_some_and(|inner| inner.inner.is_none()), "{}", def.name);
        } else {
            assert!(def.inner.is_none(), "{}", def.name);
        }
    }
}

fn check_source(object: &Object, source: &ProgramSource) {
    let length = source.insns.len() as i64;
    let starts: Vec<_> = source.functions.iter().map(|function| i64::from(function.start)).collect();
    assert_eq!(starts.first(), Some(&0));
    assert!(starts.is_sorted_by(|a, b| a < b) && starts.iter().all(|&start| start < length));
    for (slot, insn) in (0i64..).zip(&source.insns) {
        match *insn {
            Insn::Call { target: CallTarget::Local(distance) }
            | Insn::LoadImm64 { value: Imm64::Function(distance), .. } => {
                assert!(starts.binary_search(&(slot + 1 + i64::from(distance))).is_ok(), "slot {slot}");
            }
            Insn::LoadImm64 { value: Imm64::Map(map), .. } => {
                assert!((map as usize) < object.maps().len(), "slot {slot}");
            }
            Insn::LoadImm64 { value: Imm64::MapValue { map, offset }, .. } => {
                assert!(offset <= object.maps()[map as usize].def.value_size, "slot {slot}");
            }
            Insn::LoadImm64 { value: Imm64::Variable { id, .. }, .. } => {
                let is_it = |found: &Extern| match found.kind {
                    ExternKind::Function(found) | ExternKind::Variable(found) => found.cast_signed() == id,
                    ExternKind::Address => false,
                };
                assert!(source.externs.iter().any(is_it), "slot {slot}");
            }
            Insn::LoadImm64 { value, .. } => assert!(matches!(value, Imm64::Value(_)), "slot {slot}"),
            _ => {}
        }
    }
    for function in source.functions.iter().filter_map(|function| function.prototype.as_ref()) {
        assert!(function.params.len() <= 5 && source.btf.is_some());
    }
    assert!(skep_isa::encode(&source.insns).is_ok());
    assert!(source.lines.is_sorted_by_key(|line| line.slot));
    assert!(source.lines.iter().all(|line| i64::from(line.slot) < length));
}

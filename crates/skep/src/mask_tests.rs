//! CPU masks of a runtime's own get the verdicts that Linux gives to those of a kernel, and what is accepted runs in
//! checking mode, in the interpreter and in the processor's JIT: the programs of `masks.verdicts`.

use crate::{Context, Engine, Error, Module, Object, Runtime};
use skep_abi::{CPU_MASK, MapDef, OWN_TYPE, Section, SpecialKind};
use skep_isa::{CallTarget, Insn};
use skep_verdicts::{Entry, Verdict, entries};

/// Programs that Linux accepts and a runtime refuses, and why.
const STRICTER: &[(&str, &str)] =
    &[("a-word-is-loaded", "only calls may touch the bytes of a CPU mask, found an access")];

fn all() -> Vec<Entry> {
    let text = include_str!("../../skep-verifier/verdicts/masks.verdicts");
    entries(text).expect("entries")
}

/// The maps of an entry: masks are the runtime's, and it has no other objects.
fn maps(entry: &Entry) -> Vec<MapDef> {
    let mut defs: Vec<MapDef> = entry.maps.iter().map(|map| map.def.clone()).collect();
    for (def, line) in defs.iter_mut().zip(&entry.maps) {
        for (field, of) in def.fields.iter_mut().zip(&line.fields) {
            if let SpecialKind::Kptr { to } = &mut field.kind {
                *to = if of.of.as_deref() == Some("bpf_cpumask") { OWN_TYPE | CPU_MASK } else { 1 };
            }
        }
    }
    defs
}

fn load(runtime: &Runtime, entry: &Entry) -> Result<Module, Error> {
    load_with(runtime, entry, maps(entry))
}

/// Loads an entry that calls a runtime's own functions, with those maps.
pub(crate) fn load_with(runtime: &Runtime, entry: &Entry, maps: Vec<MapDef>) -> Result<Module, Error> {
    let program = skep_verdicts::Program::of(entry).expect("a program");
    let mut insns = program.insns;
    for insn in &mut insns {
        if let Insn::Call { target: CallTarget::Kfunc { id, .. } } = insn {
            let name = &program.symbols[*id as usize];
            *id = skep_abi::own_kfunc_number(name).unwrap_or_else(|| panic!("{name}")) as i32;
        }
    }
    let kind = Section::parse(&entry.section).expect("a section").kind;
    let bytes = skep_isa::encode_bytes(&insns).expect("its bytes");
    runtime.load(&Object::from_bytecode_and_maps("main", kind, &bytes, maps)?)
}

#[test]
fn masks_of_a_runtime_get_linuxs_verdicts() {
    let (mut accepted, mut refused) = (0, 0);
    for entry in all() {
        let name = &entry.name;
        let runtime = Runtime::builder().privileged(true).cpus(4).build().expect("a runtime");
        match (load(&runtime, &entry), entry.linux.as_ref().expect("a verdict")) {
            (Ok(_), Verdict::Accept) => accepted += 1,
            (Err(Error::Refused(refusal)), verdict) => {
                let stricter = STRICTER.iter().find(|(known, _)| known == name);
                assert_eq!(*verdict == Verdict::Accept, stricter.is_some(), "{name}: {refusal}");
                if let Some((_, text)) = stricter {
                    assert!(refusal.to_string().contains(text), "{name}: {refusal}");
                }
                refused += 1;
            }
            (Ok(_), verdict) => panic!("{name}: it loads, but Linux says {verdict:?}"),
            (Err(error), _) => panic!("{name}: {error}"),
        }
    }
    assert!(accepted >= 12 && refused >= 46, "{accepted} accepted, {refused} refused");
}

#[test]
fn accepted_programs_run_and_leave_what_their_maps_keep() {
    for entry in all() {
        let name = &entry.name;
        let runtime = Runtime::builder().privileged(true).cpus(4).build().expect("a runtime");
        runtime.trace_objects();
        let Ok(module) = load(&runtime, &entry) else { continue };
        let program = &module.programs()[0];
        for engine in [None, Some(Engine::Interpreter), Some(Engine::Jit), None] {
            let mut context = Context::of(program).expect("a context");
            let result = match engine {
                None => program.run_context_checked(&mut context).expect("a run").map_err(|v| v.to_string()),
                Some(engine) => Ok(program.run_context_with(engine, &mut context).expect("a run")),
            };
            assert!(result.is_ok(), "{name}, {engine:?}: {result:?}");
            let keeps = usize::from(name.starts_with("kept") || name.contains("and-kept"));
            assert_eq!(runtime.objects(), keeps, "{name}, {engine:?}");
        }
        drop(module);
        assert_eq!(runtime.objects(), 0, "{name}");
    }
}

//! Symbols that objects declare and a kernel defines, and the types of objects' own functions and values.

use crate::support::btf::Types;
use skep_abi::{
    Extern, ExternKind, MISSING_FUNCTION, MapFlags, ParamTags, ProgramSource, RAW, SpecialField, SpecialKind,
};
use skep_btf::{Btf, Kind};
use skep_elf::{Error, LinkOptions, Object};
use skep_isa::{CallTarget, Imm64, Insn};

const KERNEL: &[u8] = include_bytes!("../objects/kernel.bpf.o");
const SECTIONS: &[u8] = include_bytes!("../objects/sections.bpf.o");

/// A kernel that has some of the requested symbols.
fn target() -> Btf {
    let mut types = Types::new();
    let int = types.signed("int", 4);
    let task = types.composite(4, "task", 4, &[("pid", int, 0)]);
    let pointer = types.pointer(task);
    types.function("task_acquire", 1, pointer, &[("task", pointer)]);
    // Its type differs from the object's; as it is weak there, it counts as missing.
    types.function("task_release", 1, 0, &[("task", pointer), ("flags", int)]);
    types.data_section(".data..percpu", &[("first_task", task, 0, 4)]);
    Btf::parse(types.build()).unwrap()
}

fn link(program: &str, target: Option<&Btf>) -> Result<ProgramSource, Error> {
    let object = Object::parse(KERNEL).unwrap();
    object.program(program)?.link(Some(&RAW), &LinkOptions { target, ..LinkOptions::default() })
}

fn loaded(source: &ProgramSource) -> Vec<Imm64> {
    let value = |insn: &Insn| match insn {
        Insn::LoadImm64 { value, .. } => Some(*value),
        _ => None,
    };
    source.insns.iter().filter_map(value).collect()
}

fn called(source: &ProgramSource) -> Vec<CallTarget> {
    let target = |insn: &Insn| match insn {
        Insn::Call { target } => Some(*target),
        _ => None,
    };
    source.insns.iter().filter_map(target).collect()
}

const CONFIG: &str = "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 6.18.44 Kernel Configuration\n#\n\
                      CONFIG_BPF=y\nCONFIG_MODULE=m\nCONFIG_HZ=1000\nCONFIG_LSM=\"yama,bpf,more\"\n# CONFIG_X is not set\n";

#[test]
fn configuration_values_are_constants_of_a_map() {
    let mut object = Object::parse(KERNEL).unwrap();
    object.set_config(CONFIG, None).unwrap();
    let (index, map) = object.map(".kconfig").unwrap();
    assert_eq!((map.def.flags, map.def.max_entries), (MapFlags::RDONLY_PROG, 1));
    assert_eq!(map.def.frozen, map.initial);
    let value = |name| object.initial_value(name).unwrap().unwrap();
    assert_eq!(value("LINUX_KERNEL_VERSION"), (6u32 << 16 | 18 << 8 | 44).to_ne_bytes());
    assert_eq!((value("CONFIG_BPF"), value("CONFIG_MODULE")), (&[1][..], &[2, 0, 0, 0][..]));
    assert_eq!((value("CONFIG_HZ"), value("CONFIG_LSM")), (&1000u64.to_ne_bytes()[..], &b"yama,bp\0"[..]));
    let source = object.program("configured").unwrap().source(Some(&RAW)).unwrap();
    let places: Vec<_> = loaded(&source);
    for name in ["LINUX_KERNEL_VERSION", "CONFIG_HZ"] {
        let offset = object.variable(name).unwrap().1.offset;
        assert!(places.contains(&Imm64::MapValue { map: index, offset }), "{name}: {places:?}");
    }
    let lsm = object.variable("CONFIG_LSM").unwrap().1;
    let into = Imm64::MapValue { map: index, offset: lsm.offset + 1 };
    let start = Imm64::MapValue { map: index, offset: lsm.offset };
    assert!(places.contains(&into) || places.contains(&start));
}

#[test]
fn a_configuration_value_may_be_missing_if_it_is_weak() {
    let error = link("configured", None).unwrap_err().to_string();
    assert!(error.contains("the configuration has no value LINUX_KERNEL_VERSION"), "{error}");
    assert_eq!(loaded(&link("optional", None).unwrap()).len(), 2);
    let mut object = Object::parse(KERNEL).unwrap();
    assert!(
        object.map(".kconfig").unwrap().1.def.frozen.iter().all(|bytes| bytes.iter().all(|byte| *byte == 0))
    );
    object.set_config("", Some("5.4.0")).unwrap();
    assert!(object.program("configured").unwrap().source(Some(&RAW)).is_ok());
    let error = object.set_config("CONFIG_BPF=m\n", None).unwrap_err().to_string();
    assert_eq!(
        error,
        "configuration value CONFIG_BPF=m is a choice, but the variable has another type; declare it with another \
         type"
    );
}

#[test]
fn kernel_functions_are_called_by_their_types() {
    let target = target();
    let source = link("functions", Some(&target)).unwrap();
    let acquire = target.find("task_acquire", Kind::Func).unwrap();
    let missing = CallTarget::Helper(MISSING_FUNCTION);
    let kfunc = CallTarget::Kfunc { id: acquire.cast_signed(), object: 0 };
    assert_eq!(called(&source), [kfunc, missing, missing]);
    assert_eq!(loaded(&source), [Imm64::Value(0); 2]);
    assert_eq!(source.externs, [Extern { name: "task_acquire".into(), kind: ExternKind::Function(acquire) }]);
    let error = link("strong", Some(&target)).unwrap_err().to_string();
    assert!(
        error.contains("strong_function is declared with __ksym, but the target has none of that name"),
        "{error}"
    );
    let error = link("functions", None).unwrap_err().to_string();
    assert!(
        error.contains("task_acquire is declared with __ksym, but the types of no kernel are given"),
        "{error}"
    );
}

#[test]
fn functions_of_the_runtime_come_first_and_need_no_kernel() {
    let own = |name: &str| (name == "task_acquire").then_some(77);
    for target in [None, Some(&target())] {
        let object = Object::parse(KERNEL).unwrap();
        let options = LinkOptions { target, functions: Some(&own), ..LinkOptions::default() };
        let source = object.program("functions").unwrap().link(Some(&RAW), &options).unwrap();
        let missing = CallTarget::Helper(MISSING_FUNCTION);
        assert_eq!(called(&source), [CallTarget::Kfunc { id: 77, object: 0 }, missing, missing]);
        assert_eq!(source.externs, [], "nothing of a kernel's");
    }
}

#[test]
fn kernel_variables_have_type_ids_and_addresses_have_names() {
    let target = target();
    let source = link("variables", Some(&target)).unwrap();
    let task = target.find("first_task", Kind::Var).unwrap();
    let mut loaded_values = loaded(&source);
    loaded_values.sort_by_key(|value| matches!(value, Imm64::Value(_)));
    assert_eq!(loaded_values, [Imm64::Variable { id: task.cast_signed(), object: 0 }, Imm64::Value(0)]);
    let address = |addresses| {
        let object = Object::parse(KERNEL).unwrap();
        let options = LinkOptions { addresses, ..LinkOptions::default() };
        object.program("address").unwrap().link(Some(&RAW), &options)
    };
    let known = |name: &str| (name == "bare_symbol").then_some(0xffff_ffff_8123_4567);
    assert_eq!(loaded(&address(Some(&known)).unwrap()), [Imm64::Value(0xffff_ffff_8123_4567)]);
    let unknown = address(None).unwrap();
    assert!(matches!(loaded(&unknown)[..], [Imm64::Value(1..)]));
    assert_eq!(unknown.externs, [Extern { name: "bare_symbol".into(), kind: ExternKind::Address }]);
    let error = address(Some(&|_: &str| None)).unwrap_err().to_string();
    assert!(error.ends_with("no address of that name is known"), "{error}");
}

#[test]
fn functions_have_prototypes_with_tagged_parameters() {
    let source = link("calls", None).unwrap();
    let btf = source.btf.as_ref().unwrap();
    let [calls, described] = &source.functions[..] else { panic!("{:?}", source.functions) };
    let prototype = described.prototype.as_ref().unwrap();
    assert_eq!(btf.name(prototype.function), Ok("described"));
    assert_eq!(btf.type_name(prototype.result).unwrap(), "int");
    let params: Vec<_> =
        prototype.params.iter().map(|param| (btf.type_name(param.ty).unwrap(), param.tags)).collect();
    let both = ParamTags::NONNULL.union(ParamTags::TRUSTED);
    assert_eq!(
        params,
        [
            ("void *".to_owned(), ParamTags::CTX),
            ("struct task *".to_owned(), both),
            ("u64".to_owned(), ParamTags::default())
        ]
    );
    assert_eq!(calls.prototype.as_ref().unwrap().params.len(), 1);
}

#[test]
fn locks_and_kept_pointers_are_found_in_values() {
    let object = Object::parse(KERNEL).unwrap();
    let btf = object.btf().unwrap();
    let def = &object.map("table").unwrap().1.def;
    assert_eq!(btf.type_name(def.value_btf.unwrap()).unwrap(), "struct value");
    assert_eq!(btf.type_name(def.key_btf.unwrap()).unwrap(), "u32");
    let to = btf.find("task", Kind::Struct).unwrap();
    let holds = btf.find("element", Kind::Struct).unwrap();
    assert_eq!(
        def.fields,
        [
            SpecialField { kind: SpecialKind::SpinLock, offset: 4, size: 4 },
            SpecialField { kind: SpecialKind::Kptr { to }, offset: 8, size: 8 },
            SpecialField { kind: SpecialKind::Kptr { to }, offset: 16, size: 8 },
            SpecialField { kind: SpecialKind::ListHead { holds, node: 8 }, offset: 24, size: 16 },
        ]
    );
}

#[test]
fn constants_change_with_the_values_that_a_host_gives_them() {
    let mut object = Object::parse(KERNEL).unwrap();
    let frozen = |object: &Object| object.map(".rodata").unwrap().1.def.frozen.clone().unwrap();
    let before = frozen(&object);
    assert_eq!(before[..4], 5u32.to_ne_bytes());
    object.set_initial_value("limit", &9u32.to_ne_bytes()).unwrap();
    assert_eq!(frozen(&object)[..4], 9u32.to_ne_bytes());
    assert_eq!(before[..4], 5u32.to_ne_bytes());
    assert_eq!(object.initial_value("limit").unwrap(), Some(&9u32.to_ne_bytes()[..]));
}

#[test]
fn unloadable_sections_do_not_prevent_loading_others() {
    let object = Object::parse(SECTIONS).unwrap();
    let linked: Vec<_> = object
        .programs()
        .iter()
        .filter(|program| program.source(Some(&RAW)).is_ok())
        .map(|p| p.name())
        .collect();
    assert_eq!(linked, ["start", "fine"]);
    let error = object.program("uses_arena").unwrap().source(None).unwrap_err().to_string();
    assert!(error.contains("in_arena is in section .arena.1, which is not loaded"), "{error}");
}

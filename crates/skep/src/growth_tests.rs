//! How the work of a load grows with what an object makes large: in steps, which do not depend on the machine.

#[path = "../../skep-elf/tests/support/mod.rs"]
mod support;

use crate::steps::counted;
use crate::{Module, Object, ProgramOptions, Runtime};
use skep_abi::{MapDef, MapKind, RAW};
use skep_btf::Btf;
use skep_isa::{assemble, encode_bytes};
use std::fmt::Write as _;
use std::sync::Arc;
use support::btf::{Attribute::*, Types};
use support::{LOAD_R1, ObjectFile, R_BPF_64_64, R_BPF_64_ABS64, RETURN_0};

/// `steps` for so many of something, and for twice as many, which may cost so many times as much.
fn assert_grows_no_faster(what: &str, count: usize, steps: impl Fn(usize) -> u64) {
    // Steps of drops that the keeper makes in one of the two are not counted: at most 3 of 8. A square would be 4.
    const GROWTH: f64 = 3.5;
    let (one, two) = (steps(count), steps(2 * count));
    assert!(one >= count as u64, "{what}: only {one} steps were counted");
    let growth = two as f64 / one as f64;
    assert!(growth < GROWTH, "{what}: {one} steps, and for twice as much {two}");
}

fn programs() -> MapDef {
    MapDef::new("programs", MapKind::ProgArray, 4, 4, 2)
}

fn object(text: &str, maps: Vec<MapDef>) -> Object {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    Object::from_bytecode_and_maps("main", &RAW, &bytes, maps).unwrap()
}

fn load(runtime: &Runtime, text: &str, map: MapDef) -> Module {
    runtime.linker(&object(text, vec![map])).load().unwrap()
}

/// So many tail calls to element 0.
fn sites(count: usize) -> String {
    let mut text = "r6 = r1\n".to_owned();
    for _ in 0..count {
        write!(text, "r1 = r6\nr2 = map[0] ll\nr3 = 0\ncall 12\n").unwrap();
    }
    text + "r0 = 7\nexit"
}

#[test]
fn sites_of_one_element_in_one_program() {
    assert_grows_no_faster("sites", 200, |count| {
        let runtime = Runtime::new().unwrap();
        let first = load(&runtime, "r0 = 5\nexit", programs());
        let array = first.program_array("programs").unwrap();
        array.set(0, &first.programs()[0]).unwrap();
        let main = object(&sites(count), vec![programs()]);
        counted(|| {
            let linker = runtime.linker(&main).map("programs", Arc::clone(array.map()));
            let module = linker.load().unwrap();
            array.remove(0).unwrap();
            array.set(0, &first.programs()[0]).unwrap();
            drop(module);
        })
    });
}

#[test]
fn programs_with_sites_of_one_element() {
    assert_grows_no_faster("programs", 200, |count| {
        let runtime = Runtime::new().unwrap();
        let first = load(&runtime, "r0 = 5\nexit", programs());
        let array = first.program_array("programs").unwrap();
        array.set(0, &first.programs()[0]).unwrap();
        let main = object(&sites(2), vec![programs()]);
        counted(|| {
            let load = |_| runtime.linker(&main).map("programs", Arc::clone(array.map())).load().unwrap();
            let modules: Vec<_> = (0..count).map(load).collect();
            drop(modules);
        })
    });
}

#[test]
fn arrays_in_a_map_of_maps_and_programs_that_name_it() {
    assert_grows_no_faster("arrays", 200, |count| {
        let runtime = Runtime::new().unwrap();
        let inner: Vec<_> = (0..count).map(|_| load(&runtime, "r0 = 5\nexit", programs())).collect();
        let entries = u32::try_from(count).unwrap();
        let def = MapDef::new("outer", MapKind::ArrayOfMaps, 4, 4, entries);
        let def = MapDef { inner: Some(Box::new(programs())), ..def };
        let names = object("r1 = map[0] ll\nr0 = 0\nexit", vec![def.clone()]);
        let holder = load(&runtime, "r0 = 0\nexit", def);
        let outer = holder.map_array("outer").unwrap();
        counted(|| {
            let set =
                |index: u32| outer.set(index, inner[index as usize].program_array("programs").unwrap().map());
            (0..entries / 2).for_each(|index| drop(set(index).unwrap()));
            let load = |_| runtime.linker(&names).map("outer", Arc::clone(outer.map())).load().unwrap();
            let modules: Vec<_> = (0..count).map(load).collect();
            (entries / 2..entries).for_each(|index| drop(set(index).unwrap()));
            drop(modules);
        })
    });
}

/// So many programs that name an array of programs, which holds all of them from the beginning.
fn programs_in_an_array(count: u32) -> Vec<u8> {
    let code = [&LOAD_R1[..], &[0; 8], &RETURN_0].concat();
    let mut file = ObjectFile::new();
    let section = file.code("xdp", &code.repeat(count as usize));
    let mut types = Types::new();
    let function = types.function_type();
    let pointer = types.pointer(function);
    let values = types.array(pointer, 0);
    let sizes = [("type", MapKind::ProgArray.number()), ("key_size", 4), ("max_entries", count)];
    let mut attributes: Vec<_> = sizes.map(|(name, number)| Number(name, number)).into();
    attributes.push(Member("values", values));
    let map = types.map(&attributes);
    let (elements, size) = (sizes.len() as u32 * 8, attributes.len() as u32 * 8);
    types.data_section(".maps", &[("programs", map, 0, size)]);
    let maps = file.data(".maps", &vec![0; (elements + 8 * count) as usize]);
    let symbol = file.variable("programs", maps, 0, size.into());
    for number in 0..count {
        let start = u64::from(number) * code.len() as u64;
        let program = file.function(&format!("program_{number}"), section, start, code.len() as u64);
        file.relocate(section, start, R_BPF_64_64, symbol);
        file.relocate(maps, u64::from(elements + 8 * number), R_BPF_64_ABS64, program);
    }
    file.info(".BTF", types.build());
    file.build()
}

#[test]
fn programs_that_an_object_puts_into_an_array() {
    assert_grows_no_faster("entries", 200, |count| {
        let object = Object::parse(&programs_in_an_array(count as u32)).unwrap();
        let runtime = Runtime::new().unwrap();
        counted(|| {
            let module = runtime.load(&object).unwrap();
            let array = module.program_array("programs").unwrap();
            let last = array.get(array.len() - 1).unwrap();
            assert_eq!(last.name(), format!("program_{}", count - 1));
        })
    });
}

/// As many programs as maps.
fn programs_and_maps(count: u32) -> Vec<u8> {
    let mut file = ObjectFile::new();
    let section = file.code("xdp", &RETURN_0.repeat(count as usize));
    let mut types = Types::new();
    let sizes = [("type", MapKind::Array.number()), ("key_size", 4), ("value_size", 8), ("max_entries", 1)];
    let map = types.map(&sizes.map(|(name, number)| Number(name, number)));
    let size = sizes.len() as u32 * 8;
    let maps = file.data(".maps", &vec![0; (count * size) as usize]);
    let names: Vec<_> = (0..count).map(|number| format!("map_{number}")).collect();
    let variables: Vec<_> = names.iter().zip(0..).map(|(name, at)| (&**name, map, at * size, size)).collect();
    types.data_section(".maps", &variables);
    for (name, number) in names.iter().zip(0..) {
        file.variable(name, maps, number * u64::from(size), size.into());
        let length = RETURN_0.len() as u64;
        file.function(&format!("program_{number}"), section, number * length, length);
    }
    file.info(".BTF", types.build());
    file.build()
}

#[test]
fn verifying_all_programs_of_an_object_for_a_host() {
    assert_grows_no_faster("programs and maps", 200, |count| {
        let mut object = Object::parse(&programs_and_maps(count as u32)).unwrap();
        let host = Arc::new(Btf::parse(Types::new().build()).unwrap());
        counted(|| {
            object.set_host_types(host);
            for number in 0..count {
                object.verify(&format!("program_{number}"), ProgramOptions::default()).unwrap();
            }
        })
    });
}

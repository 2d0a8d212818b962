//! Arrays of maps: of data maps, and of program arrays.

use crate::kit::{BYTES, Kit, counts_and_goes_to, returns};
use crate::lifetime::settled;
use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Map, MapArray, Module, Object, Program, UpdateFlags};
use std::sync::Arc;

fn outer_of(inner: MapDef) -> MapDef {
    MapDef { inner: Some(Box::new(inner)), ..MapDef::new("outer", MapKind::ArrayOfMaps, 4, 4, 4) }
}

fn object(text: &str, maps: Vec<MapDef>) -> Object {
    Object::from_bytecode_and_maps("main", &RAW, &encode_bytes(&assemble(text).unwrap()).unwrap(), maps)
        .unwrap()
}

/// Looks up the buffer's first number in the outer map.
const LOOK_UP: &str = "r6 = r1
    r4 = *(u32 *)(r1 + 0)
    *(u32 *)(r10 - 4) = r4
    r2 = r10
    r2 += -4
    r1 = map[0] ll
    call 1
    if r0 == 0 goto out
";

fn run(program: &Program, first: u8) -> u64 {
    let mut buffer = [0; BYTES];
    buffer[0] = first;
    crate::kit::run_on(program, &buffer).0
}

/// A standalone map of that shape.
fn map_like(kit: &Kit, def: &MapDef) -> (Module, Arc<Map>) {
    let module =
        kit.runtime.linker(&object("r0 = 0\nexit", vec![def.clone()])).buffer_len(BYTES as u32).load();
    let module = module.unwrap();
    let map = Arc::clone(&module.maps()[0]);
    (module, map)
}

#[test]
fn a_map_found_in_an_array_of_maps_can_be_looked_up_in() {
    let kit = Kit::new(1);
    let inner = MapDef::new("numbers", MapKind::Hash, 4, 8, 16);
    let text = format!(
        "{LOOK_UP}
         r1 = r0
         r2 = r10
         r2 += -4
         call 1
         if r0 == 0 goto out
         r0 = *(u64 *)(r0 + 0)
         exit
         out:
         r0 = 7
         exit"
    );
    let object = object(&text, vec![outer_of(inner.clone())]);
    let module = kit.runtime.linker(&object).buffer_len(BYTES as u32).load().unwrap();
    let (program, outer): (_, &MapArray) = (&module.programs()[0], module.map_array("outer").unwrap());
    assert_eq!([0, 1, 9].map(|first| run(program, first)), [7; 3], "empty, and beyond the end");
    for number in 0..2u32 {
        let (_, map) = map_like(&kit, &inner);
        let value = (100 + u64::from(number)).to_ne_bytes();
        map.update(&number.to_ne_bytes(), &value, UpdateFlags::Any).unwrap();
        assert!(outer.set(number, &map).unwrap().is_none());
    }
    assert_eq!([0, 1, 2].map(|first| run(program, first)), [100, 101, 7]);
    assert_eq!((outer.len(), module.maps()[0].len()), (4, 2));
    let old = outer.remove(0).unwrap().unwrap();
    assert_eq!((run(program, 0), outer.get(0).is_none(), old.len()), (7, true, 1));

    let error = outer.set(4, &old).unwrap_err().to_string();
    assert!(error.contains("4 elements"), "{error}");
    let (_, other) = map_like(&kit, &MapDef::new("numbers", MapKind::Hash, 4, 4, 16));
    let error = outer.set(0, &other).unwrap_err().to_string();
    assert!(error.contains("8-byte values") && error.contains("4-byte values"), "{error}");
    let error = outer.map().update(&[0; 4], &[0; 4], UpdateFlags::Any).unwrap_err().to_string();
    assert!(error.contains("holds maps"), "{error}");
}

#[test]
fn tail_calls_work_through_program_arrays_in_an_array_of_maps() {
    let kit = Kit::new(4);
    let inner = kit.array.map().def().clone();
    let text = format!("{LOOK_UP}r1 = r6\nr2 = r0\nr3 = 1\ncall 12\nout:\nr0 = 7\nexit");
    let module = kit.runtime.linker(&object(&text, vec![outer_of(inner)])).buffer_len(BYTES as u32).load();
    let module = module.unwrap();
    let (program, outer) = (&module.programs()[0], module.map_array("outer").unwrap());
    outer.set(2, kit.array.map()).unwrap();
    assert_eq!([1, 2].map(|first| run(program, first)), [7; 2]);
    kit.install(1, &returns(5));
    assert_eq!([1, 2].map(|first| run(program, first)), [7, 5]);
    kit.array.remove(1).unwrap();
    assert_eq!([1, 2].map(|first| run(program, first)), [7; 2]);
}

#[test]
fn reference_cycles_through_arrays_of_maps_are_collected() {
    let kit = Kit::new(4);
    let before = settled(&kit.runtime);
    // The program array is in an array of maps, to which its program refers.
    let def = MapDef::new("ring", MapKind::ProgArray, 4, 4, 4);
    let text = format!("{LOOK_UP}r1 = r6\nr2 = r0\nr3 = 1\ncall 12\nout:\nr0 = 7\nexit");
    let module =
        kit.runtime.linker(&object(&text, vec![outer_of(def.clone())])).buffer_len(BYTES as u32).load();
    let module = module.unwrap();
    let object = crate::kit::object("first", &counts_and_goes_to(0), &def);
    let first = kit.runtime.linker(&object).buffer_len(BYTES as u32).load().unwrap();
    let ring = first.program_array("ring").unwrap().clone();
    ring.set(0, &first.programs()[0]).unwrap();
    ring.set(1, &module.programs()[0]).unwrap();
    module.map_array("outer").unwrap().set(0, ring.map()).unwrap();
    drop((first, ring));
    assert!(settled(&kit.runtime) > before + 2, "held by the module");
    // Only the program refers to its array of maps and all that is in it.
    let program = module.programs()[0].clone();
    drop(module);
    assert_eq!(run(&program, 0), 7, "it calls itself until no call is left");
    assert!(settled(&kit.runtime) > before + 2, "held by a program");
    drop(program);
    assert_eq!(settled(&kit.runtime), before);
}

#[test]
fn arrays_in_an_array_of_maps_share_its_entry_contract() {
    let kit = Kit::new(4);
    let inner = kit.array.map().def().clone();
    let text = format!("{LOOK_UP}r1 = r6\nr2 = r0\nr3 = 1\ncall 12\nout:\nr0 = 7\nexit");
    let load = |len: usize| {
        kit.runtime
            .linker(&object(&text, vec![outer_of(inner.clone())]))
            .buffer_len(len as u32)
            .load()
            .unwrap()
    };
    let (short, long) = (load(8), load(BYTES));
    kit.install(1, &returns(5));
    let error = short.map_array("outer").unwrap().set(0, kit.array.map()).unwrap_err().to_string();
    assert!(error.contains("8 bytes") && error.contains("64 bytes"), "{error}");
    long.map_array("outer").unwrap().set(0, kit.array.map()).unwrap();
    // Nor in the other order: first into an array of maps, then a program that does not match.
    let free = Kit::new(4);
    let outer =
        free.runtime.linker(&object(&text, vec![outer_of(inner.clone())])).buffer_len(8).load().unwrap();
    outer.map_array("outer").unwrap().set(0, free.array.map()).unwrap();
    let error = free.array.set(1, &free.load("long", &returns(1))).unwrap_err().to_string();
    assert!(error.contains("8 bytes") && error.contains("64 bytes"), "{error}");
}

#[test]
fn a_given_array_of_maps_must_match_the_object() {
    let kit = Kit::new(1);
    let numbers = |value_size| outer_of(MapDef::new("numbers", MapKind::Hash, 4, value_size, 16));
    let load =
        |def: MapDef| kit.runtime.linker(&object("r0 = 0\nexit", vec![def])).buffer_len(8).load().unwrap();
    let given = load(numbers(8));
    let object = object("r0 = 0\nexit", vec![numbers(4096)]);
    let linker = kit.runtime.linker(&object).buffer_len(8).map("outer", Arc::clone(&given.maps()[0]));
    let error = linker.load().unwrap_err().to_string();
    assert!(error.contains("outer"), "{error}");
}

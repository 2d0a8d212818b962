//! Operations of hosts on maps do not take resources from programs, and failed operations change nothing.

use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Module, Object, Runtime};
use std::sync::Arc;
use std::time::Duration;

const BYTES: usize = 64;

fn object(text: &str, map: MapDef) -> Object {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    Object::from_bytecode_and_maps("main", &RAW, &bytes, vec![map]).unwrap()
}

fn load(runtime: &Runtime, text: &str, map: MapDef, bytes: usize) -> Module {
    runtime.linker(&object(text, map)).buffer_len(bytes as u32).load().unwrap()
}

fn table_of(inner: MapDef, entries: u32) -> MapDef {
    MapDef { inner: Some(Box::new(inner)), ..MapDef::new("table", MapKind::HashOfMaps, 8, 4, entries) }
}

fn programs() -> MapDef {
    MapDef::new("programs", MapKind::ProgArray, 4, 4, 2)
}

const GO: &str = "r6 = r1
    r2 = r1
    r1 = map[0] ll
    call 1
    if r0 == 0 goto out
    r1 = r6
    r2 = r0
    r3 = 1
    call 12
    out:
    r0 = 7
    exit";
const GO_FIRST: &str = "r2 = map[0] ll\nr3 = 0\ncall 12\nr0 = 7\nexit";

/// Threads of the host that read map statistics take no virtual CPU from threads that run programs.
#[test]
fn statistics_do_not_keep_programs_from_running() {
    let runtime = Runtime::builder().cpus(1).build().unwrap();
    let module =
        load(&runtime, "r1 = map[0] ll\nr0 = 0\nexit", MapDef::new("m", MapKind::Hash, 4, 8, 4), BYTES);
    let (looked, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            module.maps()[0].lookup(&[0; 4]).unwrap();
            looked.wait();
            go.wait();
        });
        looked.wait();
        let result = module.programs()[0].run_raw(&mut [0; BYTES]);
        go.wait();
        assert_eq!(result.ok(), Some(0));
    });
}

/// The keeper empties an unreachable hash table of maps, and has no virtual CPU afterwards.
#[test]
fn the_keeper_takes_no_virtual_cpu() {
    let runtime = Runtime::builder().cpus(2).build().unwrap();
    let module = load(&runtime, GO, table_of(programs(), 4), BYTES);
    let first = load(&runtime, GO_FIRST, programs(), BYTES);
    let ring = first.program_array("programs").unwrap().clone();
    ring.set(0, &first.programs()[0]).unwrap();
    ring.set(1, &module.programs()[0]).unwrap();
    module.map_hash("table").unwrap().set(&[0; 8], ring.map()).unwrap();
    drop((first, ring));
    let domain = runtime.arena().domain().clone();
    runtime.release_cpu();
    domain.barrier().unwrap();
    assert_eq!(domain.in_use(), 0, "before");
    drop(module);
    for _ in 0..20 {
        domain.barrier().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    runtime.release_cpu();
    assert_eq!(domain.in_use(), 0, "a virtual CPU is in use: only the keeper can have it");
}

/// A failed operation changes nothing, including the entry contract of a program array.
#[test]
fn a_failed_insertion_fixes_no_entry_contract() {
    let runtime = Runtime::builder().build().unwrap();
    let module = load(&runtime, GO, table_of(programs(), 1), BYTES);
    let arrays = [BYTES, 128].map(|bytes| {
        let module = load(&runtime, "r0 = 5\nexit", programs(), bytes);
        let array = module.program_array("programs").unwrap().clone();
        (module.programs()[0].clone(), array, Arc::clone(&module.maps()[0]))
    });
    let table = module.map_hash("table").unwrap();
    let fresh = load(&runtime, "r0 = 5\nexit", programs(), BYTES);
    table.set(&[1; 8], &fresh.maps()[0]).unwrap();
    let (program, array, map) = &arrays[1];
    assert!(table.set(&[2; 8], map).is_err(), "full");
    assert!(table.set(&[2; 7], map).is_err(), "no key");
    array.set(0, program).unwrap_or_else(|error| panic!("{error}"));
}

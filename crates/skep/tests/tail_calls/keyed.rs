//! Hash tables of maps: of data, of ring buffers, and of programs.

use crate::kit::{BYTES, Kit, counts_and_goes_to, returns, run_on};
use crate::lifetime::settled;
use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Map, MapHash, Module, Object, Program, RingBuffer, Runtime, UpdateFlags};
use std::sync::{Arc, Barrier, LazyLock};

/// A table of such maps with keys of 8 bytes and room for 4 elements.
pub(crate) fn table_of(inner: MapDef) -> MapDef {
    MapDef { inner: Some(Box::new(inner)), ..MapDef::new("table", MapKind::HashOfMaps, 8, 4, 4) }
}

fn object(text: &str, map: MapDef) -> Object {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    Object::from_bytecode_and_maps("main", &RAW, &bytes, vec![map]).unwrap()
}

pub(crate) fn load(kit: &Kit, text: &str, map: MapDef) -> Module {
    kit.runtime.linker(&object(text, map)).buffer_len(BYTES as u32).load().unwrap()
}

/// Looks up the buffer's first eight bytes in the table; the buffer is in `r6`.
const LOOK_UP: &str = "r6 = r1
    r2 = r1
    r1 = map[0] ll
    call 1
    if r0 == 0 goto out
";

const NUMBERS: &str = "
    r1 = r0
    *(u32 *)(r10 - 4) = 0
    r2 = r10
    r2 += -4
    call 1
    if r0 == 0 goto out
    r0 = *(u64 *)(r0 + 0)
    exit
    out:
    r0 = 7
    exit";

fn run(program: &Program, key: u64) -> u64 {
    let mut buffer = [0; BYTES];
    buffer[..8].copy_from_slice(&key.to_ne_bytes());
    run_on(program, &buffer).0
}

/// A standalone map of that shape.
fn map_like(kit: &Kit, def: &MapDef) -> Arc<Map> {
    Arc::clone(&load(kit, "r0 = 0\nexit", def.clone()).maps()[0])
}

/// An array whose element is that number.
pub(crate) fn holding(kit: &Kit, number: u64) -> Arc<Map> {
    let map = map_like(kit, &numbers());
    map.update(&[0; 4], &number.to_ne_bytes(), UpdateFlags::Any).unwrap();
    map
}

pub(crate) fn numbers() -> MapDef {
    MapDef::new("numbers", MapKind::Array, 4, 8, 1)
}

#[test]
fn a_map_found_by_key_can_be_looked_up_in() {
    let kit = Kit::new(1);
    let module = load(&kit, &format!("{LOOK_UP}{NUMBERS}"), table_of(numbers()));
    let (program, table): (_, &MapHash) = (&module.programs()[0], module.map_hash("table").unwrap());
    let key = |number: u64| number.to_ne_bytes();
    assert_eq!([0, 1].map(|key| run(program, key)), [7; 2], "empty");
    for number in [5, u64::MAX, 1 << 40] {
        assert!(table.set(&key(number), &holding(&kit, number ^ 100)).unwrap().is_none());
    }
    assert_eq!([5, u64::MAX, 1 << 40, 6].map(|key| run(program, key)), [97, !100, 1 << 40 ^ 100, 7]);
    let old = table.set(&key(5), &holding(&kit, 1)).unwrap().unwrap();
    assert_eq!(old.lookup(&[0; 4]).unwrap(), Some(97_u64.to_ne_bytes().to_vec()));
    assert_eq!((run(program, 5), table.len(), module.maps()[0].len()), (1, 3, 3));
    assert!(table.remove(&key(5)).unwrap().is_some() && table.remove(&key(5)).unwrap().is_none());
    assert!(table.get(&key(5)).is_none() && table.get(&key(u64::MAX)).is_some());
    assert_eq!((run(program, 5), table.keys().len()), (7, 2));

    for number in [7, 8] {
        table.set(&key(number), &old).unwrap();
    }
    let error = table.set(&key(9), &old).unwrap_err().to_string();
    assert!(error.contains("the map is full (4 elements)"), "{error}");
    assert_eq!((run(program, 9), run(program, 8)), (7, 97), "as it was");
    let error = table.set(&[0; 4], &old).unwrap_err().to_string();
    assert!(error.contains("the key has 4 bytes instead of 8"), "{error}");
    let other = map_like(&kit, &MapDef::new("numbers", MapKind::Array, 4, 4, 1));
    let error = table.set(&key(8), &other).unwrap_err().to_string();
    assert!(error.contains("8-byte values") && error.contains("4-byte values"), "{error}");
    let error = module.maps()[0].update(&[0; 8], &[0; 4], UpdateFlags::Any).unwrap_err().to_string();
    assert!(error.contains("holds maps"), "{error}");
    module.maps()[0].freeze().unwrap();
    let error = table.set(&key(8), &old).unwrap_err().to_string();
    assert!(error.contains("frozen"), "{error}");
}

#[test]
fn records_go_to_the_ring_buffer_found_by_key() {
    let kit = Kit::new(1);
    let text = format!(
        "{LOOK_UP}r1 = r0
         r2 = 8
         r3 = 0
         call 131
         if r0 == 0 goto out
         r1 = *(u64 *)(r6 + 8)
         *(u64 *)(r0 + 0) = r1
         r1 = r0
         r2 = 0
         call 132
         r0 = 1
         exit
         out:
         r0 = 0
         exit"
    );
    let def = MapDef::new("events", MapKind::Ringbuf, 0, 0, 4096);
    let module = load(&kit, &text, table_of(def.clone()));
    let table = module.map_hash("table").unwrap();
    let rings = [map_like(&kit, &def), map_like(&kit, &def)];
    for (number, ring) in rings.iter().enumerate() {
        table.set(&(number as u64).to_ne_bytes(), ring).unwrap();
    }
    // Once in each engine.
    assert_eq!([0, 1, 2, 1].map(|key| run(&module.programs()[0], key)), [1, 1, 0, 1]);
    assert_eq!(rings.map(|ring| RingBuffer::new(&ring).unwrap().for_each(|_| ())), [2, 4]);
}

/// Synchronisation between the program of the test below and the test.
static MEETING: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));

fn meet() {
    MEETING.wait();
}

#[test]
fn a_removed_map_lives_until_runs_that_found_it_end() {
    let kit = Kit::with(Runtime::builder().function(1000, "meet", meet), 1);
    let found = "r7 = r0\ncall meet#1000\ncall meet#1000\nr0 = r7\n";
    let module = load(&kit, &format!("{LOOK_UP}{found}{NUMBERS}"), table_of(numbers()));
    let (program, table) = (&module.programs()[0], module.map_hash("table").unwrap());
    for engine in crate::kit::ENGINES {
        table.set(&[0; 8], &holding(&kit, 55)).unwrap();
        let result = std::thread::scope(|scope| {
            let run = scope.spawn(|| program.run_raw_with(engine, &mut [0; BYTES]).unwrap());
            meet();
            let weak = Arc::downgrade(&table.remove(&[0; 8]).unwrap().unwrap());
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert_ne!(weak.strong_count(), 0, "{engine:?}: a run has found it");
            meet();
            let result = run.join().unwrap();
            settled(&kit.runtime);
            assert_eq!(weak.strong_count(), 0, "{engine:?}: unreferenced");
            result
        });
        assert_eq!(result, 55);
    }
}

#[test]
fn programs_find_the_old_or_the_new_map_during_updates() {
    const ROUNDS: u64 = 3_000;
    let kit = Kit::new(1);
    let module = load(&kit, &format!("{LOOK_UP}{NUMBERS}"), table_of(numbers()));
    let (program, table) = (&module.programs()[0], module.map_hash("table").unwrap());
    let maps: Vec<_> = (0..4).map(|number| holding(&kit, 1000 + number)).collect();
    table.set(&1_u64.to_ne_bytes(), &maps[0]).unwrap();
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for round in 0..ROUNDS {
                table.set(&1_u64.to_ne_bytes(), &maps[(round % 2) as usize]).unwrap();
                table.set(&2_u64.to_ne_bytes(), &maps[2]).unwrap();
                table.remove(&2_u64.to_ne_bytes()).unwrap();
            }
        });
        let mut runs = 0;
        while !changes.is_finished() || runs < 100 {
            for engine in crate::kit::ENGINES {
                let look = |key: u64| {
                    let mut buffer = [0; BYTES];
                    buffer[..8].copy_from_slice(&key.to_ne_bytes());
                    program.run_raw_with(engine, &mut buffer).unwrap()
                };
                let (one, two) = (look(1), look(2));
                // With immediate reuse, the element of another key may be found.
                assert!([1000, 1001, 1002].contains(&one), "{one}");
                assert!([7, 1000, 1001, 1002].contains(&two), "{two}");
            }
            runs += 1;
        }
    });
}

#[test]
fn reference_cycles_through_hash_tables_of_maps_are_collected() {
    let kit = Kit::new(4);
    let before = settled(&kit.runtime);
    let def = MapDef::new("ring", MapKind::ProgArray, 4, 4, 4);
    let text = format!("{LOOK_UP}r1 = r6\nr2 = r0\nr3 = 1\ncall 12\nout:\nr0 = 7\nexit");
    let module = load(&kit, &text, table_of(def.clone()));
    let object = crate::kit::object("first", &counts_and_goes_to(0), &def);
    let first = kit.runtime.linker(&object).buffer_len(BYTES as u32).load().unwrap();
    let ring = first.program_array("ring").unwrap().clone();
    ring.set(0, &first.programs()[0]).unwrap();
    ring.set(1, &module.programs()[0]).unwrap();
    module.map_hash("table").unwrap().set(&[0; 8], ring.map()).unwrap();
    drop((first, ring));
    assert!(settled(&kit.runtime) > before + 2, "held by the module");
    let program = module.programs()[0].clone();
    drop(module);
    assert_eq!(run(&program, 0), 7, "it calls itself until no call is left");
    drop(program);
    assert_eq!(settled(&kit.runtime), before);
}

#[test]
fn tail_calls_work_through_program_arrays_in_hash_tables() {
    let kit = Kit::new(4);
    let text = format!("{LOOK_UP}r1 = r6\nr2 = r0\nr3 = 1\ncall 12\nout:\nr0 = 7\nexit");
    let module = load(&kit, &text, table_of(kit.array.map().def().clone()));
    module.map_hash("table").unwrap().set(&3_u64.to_ne_bytes(), kit.array.map()).unwrap();
    kit.install(1, &returns(5));
    assert_eq!([1, 3].map(|key| run(&module.programs()[0], key)), [7, 5]);
}

//! For each fact that a proof takes for granted: a real map in which it is otherwise, through each door. Either the
//! map is refused in words that name both, or the program is verified without the fact and runs in both engines and
//! in checking mode.

use super::*;
use crate::checking;
use crate::{Engine, Module, Object, Runtime, UpdateFlags};
use skep_abi::{Entry, ProgramSource, RAW};
use skep_maps::Options;
use skep_verifier::{Config, Unverified};

/// What the door of a map of maps is given, and what it says; `None` where it is let in.
type Case<'a> = (&'a str, MapDef, Option<&'a [&'a str]>);

fn runtime() -> Runtime {
    Runtime::builder().cpus(2).log(|_, _| ()).build().expect("a runtime")
}

fn object(text: &str, maps: Vec<MapDef>) -> Object {
    let bytes = skep_isa::encode_bytes(&skep_isa::assemble(text).expect("assembles")).expect("encodes");
    Object::from_bytecode_and_maps("main", &RAW, &bytes, maps).expect("an object")
}

fn load(runtime: &Runtime, text: &str, maps: Vec<MapDef>) -> Result<Module, Error> {
    runtime.linker(&object(text, maps)).buffer_len(8).load()
}

/// A map of that definition, made by a load.
fn made(runtime: &Runtime, def: &MapDef) -> Arc<Map> {
    let module = load(runtime, "r0 = 0\nexit", vec![def.clone()]).expect("a map");
    Arc::clone(&module.maps()[0])
}

fn array(entries: u32) -> MapDef {
    MapDef::new("numbers", MapKind::Array, 4, 8, entries)
}

fn flexible(entries: u32) -> MapDef {
    MapDef { flags: MapFlags::INNER_MAP, ..array(entries) }
}

fn outer_of(kind: MapKind, inner: MapDef) -> MapDef {
    MapDef { inner: Some(Box::new(inner)), ..MapDef::new("outer", kind, 4, 4, 2) }
}

/// The result of a run in both engines, which is the same; checking mode finds nothing wrong.
fn run(module: &Module) -> u64 {
    let program = &module.programs()[0];
    let [jit, interpreted] = [Engine::Jit, Engine::Interpreter]
        .map(|engine| program.run_raw_with(engine, &mut [0, 0, 0, 0, 0x5a, 0, 0, 0]).expect("a run"));
    assert_eq!(jit, interpreted);
    checking::check_on(program, &[], &[0; 8]);
    jit
}

#[track_caller]
fn refused(result: Result<impl Sized, Error>, words: &[&str]) {
    let error = result.err().expect("a refusal").to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is missing in: {error}");
    }
}

/// Calls `body` for each element of the map that `find` puts into r1, with 72 bytes of stack that end where the stack
/// does.
fn each(find: &str, body: &str) -> String {
    let zeroes: String = (1..=9).map(|slot| format!("r9 = 0\n*(u64 *)(r10 - {}) = r9\n", slot * 8)).collect();
    format!(
        "r6 = r1
         {zeroes}
         {find}
         r2 = func[body] ll
         r3 = r10
         r3 += -72
         r4 = 0
         call 164
         r0 = *(u64 *)(r10 - 72)
         exit
         body:
         {body}
         r0 = 0
         exit"
    )
}

const OWN: &str = "r1 = map[0] ll";

/// The first of the maps in `map[0]`.
const FOUND: &str = "*(u32 *)(r10 - 76) = 0
    r2 = r10
    r2 += -76
    r1 = map[0] ll
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
    found:
    r1 = r0";

/// Writes 16 bytes further in each call: right for four calls, and beyond the stack's end in the fifth.
const FOUR_CALLS: &str = "r1 = *(u64 *)(r4 + 0)
    r2 = r4
    r2 += 8
    r2 += r1
    *(u8 *)(r2 + 0) = 1
    r1 += 16
    *(u64 *)(r4 + 0) = r1";

/// Counts the calls, up to a thousand.
const ANY_CALLS: &str = "r1 = *(u64 *)(r4 + 0)
    r1 += 1
    r1 &= 1023
    *(u64 *)(r4 + 0) = r1";

#[test]
fn an_array_has_no_more_elements_than_callbacks_were_walked() {
    let runtime = runtime();
    let text = each(OWN, FOUR_CALLS);
    assert_eq!(run(&load(&runtime, &text, vec![array(4)]).unwrap()), 64);
    let small = object(&text, vec![array(4)]);
    // The verifier is told of the map as it will be, through every door.
    let larger = runtime.linker(&small).buffer_len(8).max_entries("numbers", 1_000_000).load();
    refused(larger, &["512 bytes of stack", "r2"]);
    refused(load(&runtime, &text, vec![array(5)]), &["r2"]);
    let given = made(&runtime, &array(1_000));
    refused(runtime.linker(&small).buffer_len(8).map("numbers", Arc::clone(&given)).load(), &["r2"]);
    let smaller = runtime.linker(&small).buffer_len(8).max_entries("numbers", 3).load().unwrap();
    assert_eq!(run(&smaller), 48);
    // Who assumes nothing is content with any.
    let counts = object(&each(OWN, ANY_CALLS), vec![array(4)]);
    let counts = runtime.linker(&counts).buffer_len(8).map("numbers", given).load().unwrap();
    assert_eq!(run(&counts), 1_000);
}

#[test]
fn what_is_put_into_a_map_of_maps_is_like_its_template() {
    let runtime = runtime();
    let with = |kind, offset| {
        let fields = vec![SpecialField { kind, offset, size: 8 }];
        MapDef { fields, value_size: 16, ..array(4) }
    };
    let kept = |kind, name: &str| MapDef { field_types: vec![Some(name.into())], ..with(kind, 8) };
    let (timer, kptr) = (with(SpecialKind::Timer, 8), SpecialKind::Kptr { to: 7 });
    let of = |kind, key, value, entries| MapDef::new("numbers", kind, key, value, entries);
    let templates: [(MapDef, Vec<Case<'_>>); 6] = [
        (
            array(4),
            vec![
                ("the same", array(4), None),
                (
                    "larger",
                    array(1_000_000),
                    Some(&["max_entries", "4 entries", "1000000 entries", "BPF_F_INNER_MAP"]),
                ),
                ("smaller", array(3), Some(&["max_entries", "4 entries", "3 entries"])),
                ("kind", of(MapKind::Hash, 4, 8, 4), Some(&["kind", "array with", "hash with"])),
                (
                    "value size",
                    of(MapKind::Array, 4, 4, 4),
                    Some(&["value_size", "8-byte values", "4-byte values"]),
                ),
                ("flags", flexible(4), Some(&["map_flags", "0x0", "0x1000"])),
                ("access", MapDef { flags: MapFlags::RDONLY_PROG, ..array(4) }, Some(&["map_flags", "0x80"])),
            ],
        ),
        (flexible(4), vec![("larger", flexible(1_000_000), None), ("plain", array(4), Some(&["map_flags"]))]),
        (
            of(MapKind::Hash, 4, 8, 4),
            vec![
                ("larger", of(MapKind::Hash, 4, 8, 100), None),
                ("key size", of(MapKind::Hash, 8, 8, 4), Some(&["key_size", "4-byte keys", "8-byte keys"])),
            ],
        ),
        (of(MapKind::PercpuArray, 4, 8, 4), vec![("larger", of(MapKind::PercpuArray, 4, 8, 1_000), None)]),
        (
            timer.clone(),
            vec![
                ("the same", timer.clone(), None),
                (
                    "none",
                    MapDef { fields: Vec::new(), ..timer.clone() },
                    Some(&["special fields", "a struct bpf_timer of 8 bytes at 8"]),
                ),
                (
                    "another place",
                    with(SpecialKind::Timer, 0),
                    Some(&["special fields", "bytes at 8", "bytes at 0"]),
                ),
                (
                    "another kind",
                    with(SpecialKind::TaskWork, 8),
                    Some(&["special fields", "bpf_timer", "bpf_task_work"]),
                ),
            ],
        ),
        (
            kept(kptr, "struct task_struct"),
            vec![
                // Numbers are those of one object; names are everybody's.
                ("the same", kept(SpecialKind::Kptr { to: 9 }, "struct task_struct"), None),
                (
                    "another type",
                    kept(kptr, "struct cgroup"),
                    Some(&["special fields", "struct task_struct", "struct cgroup"]),
                ),
                (
                    "not owned",
                    kept(SpecialKind::KptrUntrusted { to: 7 }, "struct task_struct"),
                    Some(&["special fields"]),
                ),
            ],
        ),
    ];
    for (template, cases) in templates {
        let named = object("r1 = map[0] ll\nr0 = 0\nexit", vec![template.clone()]);
        for (what, def, words) in &cases {
            let given = runtime.linker(&named).buffer_len(8).map("numbers", made(&runtime, def)).load();
            match (*what, words) {
                // The program is verified for as many as there are.
                ("larger", _) | (_, None) => {
                    drop(given.unwrap_or_else(|error| panic!("given: {what}: {error}")))
                }
                (_, Some(words)) => refused(given, words),
            }
        }
        for kind in [MapKind::ArrayOfMaps, MapKind::HashOfMaps] {
            let outer = outer_of(kind, template.clone());
            let module = load(&runtime, "r1 = map[0] ll\nr0 = 0\nexit", vec![outer]).unwrap();
            for (what, def, words) in &cases {
                let inner = made(&runtime, def);
                let put = match kind {
                    MapKind::ArrayOfMaps => module.map_array("outer").unwrap().set(0, &inner),
                    _ => module.map_hash("outer").unwrap().set(&[0; 4], &inner),
                };
                match words {
                    None => drop(put.unwrap_or_else(|error| panic!("{kind}: {what}: {error}"))),
                    Some(words) => refused(put, words),
                }
            }
        }
    }
}

#[test]
fn the_capacity_of_inner_maps_is_known_where_all_have_the_same() {
    let runtime = runtime();
    for kind in [MapKind::ArrayOfMaps, MapKind::HashOfMaps] {
        let filled = |text: &str, inner: &MapDef, found: &MapDef| {
            let module = load(&runtime, text, vec![outer_of(kind, inner.clone())])?;
            let map = made(&runtime, found);
            match kind {
                MapKind::ArrayOfMaps => module.map_array("outer").unwrap().set(0, &map)?,
                _ => module.map_hash("outer").unwrap().set(&[0; 4], &map)?,
            };
            Ok(run(&module))
        };
        let (four, any) = (each(FOUND, FOUR_CALLS), each(FOUND, ANY_CALLS));
        assert_eq!(filled(&four, &array(4), &array(4)).unwrap(), 64);
        refused(filled(&four, &array(4), &array(5)), &["max_entries"]);
        // Of these nothing is known, so that one may be as large as it likes.
        let percpu = |entries| MapDef { kind: MapKind::PercpuArray, ..array(entries) };
        for of in [flexible, percpu] {
            refused(filled(&four, &of(4), &of(4)), &["r2"]);
            assert_eq!(filled(&any, &of(4), &of(1_000)).unwrap(), 1_000);
        }
    }
}

#[test]
fn a_given_map_of_maps_has_the_template_that_the_object_says() {
    let runtime = runtime();
    let outer = |entries| outer_of(MapKind::ArrayOfMaps, array(entries));
    let given = made(&runtime, &outer(1_000));
    let object = object(&each(FOUND, FOUR_CALLS), vec![outer(4)]);
    let result = runtime.linker(&object).buffer_len(8).map("outer", given).load();
    refused(result, &["map outer", "max_entries", "4 entries", "1000 entries"]);
}

#[test]
fn initial_elements_of_an_object_file_are_like_the_template() {
    let path = "../skep-cli/tests/objects/inner_too_large.bpf.o";
    let object = Object::open(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let words = ["map outer.inner", "max_entries", "4 entries", "1000000 entries", "BPF_F_INNER_MAP"];
    refused(runtime().load(&object), &words);
}

/// Reads the byte that lies as far behind the seventh before the buffer as the map says.
const INDEXED: &str = "r3 = r1
    r1 = map_value[0]+0 ll
    r2 = *(u32 *)(r1 + 0)
    r3 += r2
    r3 += -7
    r0 = *(u8 *)(r3 + 0)
    exit";

fn constants(contents: &[u8]) -> MapDef {
    let frozen = Some(contents.into());
    MapDef { flags: MapFlags::RDONLY_PROG, frozen, ..MapDef::new("constants", MapKind::Array, 4, 4, 1) }
}

#[test]
fn frozen_contents_are_what_the_map_holds() {
    let runtime = runtime();
    let eleven = constants(&11u32.to_le_bytes());
    let module = load(&runtime, INDEXED, vec![eleven.clone()]).unwrap();
    assert_eq!(run(&module), 0x5a);
    let map = &module.maps()[0];
    assert_eq!((map.lookup(&[0; 4]).unwrap(), map.is_frozen()), (Some(vec![11, 0, 0, 0]), true));
    refused(map.update(&[0; 4], &[0; 4], UpdateFlags::Any).map_err(Error::from), &["frozen"]);
    // The same as a given one, whatever the object says of its contents.
    let other = object(INDEXED, vec![constants(&[0; 4])]);
    let given = runtime.linker(&other).buffer_len(8).map("constants", Arc::clone(map)).load().unwrap();
    assert_eq!(run(&given), 0x5a);
    // Contents that a map cannot have, and those of a map that may change.
    for def in [
        constants(&[0; 3]),
        constants(&[0; 5]),
        MapDef { kind: MapKind::PercpuArray, ..eleven.clone() },
        MapDef { kind: MapKind::Hash, ..eleven.clone() },
    ] {
        refused(load(&runtime, "r1 = map[0] ll\nr0 = 0\nexit", vec![def]), &["constants", "frozen contents"]);
    }
    let writable = MapDef { flags: MapFlags(0), ..eleven.clone() };
    refused(load(&runtime, INDEXED, vec![writable]), &["r3"]);
    let thawed = made(&runtime, &MapDef { frozen: None, ..eleven.clone() });
    let object = object(INDEXED, vec![eleven]);
    refused(runtime.linker(&object).buffer_len(8).map("constants", thawed).load(), &["r3"]);
    // Where there are more elements than one, the others hold something else.
    refused(runtime.linker(&object).buffer_len(8).max_entries("constants", 2).load(), &["r3"]);
}

#[test]
fn maps_of_maps_of_maps_are_refused_by_name() {
    let runtime = runtime();
    let middle = |kind| MapDef { name: "middle".into(), ..outer_of(kind, array(4)) };
    for kind in [MapKind::ArrayOfMaps, MapKind::HashOfMaps] {
        let nested = outer_of(kind, middle(kind));
        let text = each(FOUND, ANY_CALLS);
        refused(load(&runtime, &text, vec![nested.clone()]), &["outer", "hold maps themselves"]);
        refused(load(&runtime, "r0 = 0\nexit", vec![nested]), &["outer", "inner maps are maps of maps"]);
    }
}

#[test]
fn a_value_has_one_lock() {
    let lock = |offset| SpecialField { kind: SpecialKind::SpinLock, offset, size: 4 };
    let def = MapDef { fields: vec![lock(0), lock(4)], value_size: 16, ..array(1) };
    let text = "r1 = map[0] ll\nr0 = 0\nexit";
    refused(
        object(text, vec![def.clone()]).verify("main", Default::default()),
        &["numbers", "a second struct bpf_spin_lock at 4"],
    );
    refused(
        load(&runtime(), "r0 = 0\nexit", vec![def]),
        &["numbers", "a second struct bpf_spin_lock at offset 4"],
    );
}

#[test]
fn a_map_for_each_cpu_has_a_value_for_all_of_them() {
    let runtime = runtime();
    let def = MapDef { kind: MapKind::PercpuArray, ..array(4) };
    let one = Arc::new(Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).unwrap());
    let object = object("r1 = map[0] ll\nr0 = 0\nexit", vec![def.clone()]);
    let given = runtime.linker(&object).buffer_len(8).map("numbers", Arc::clone(&one)).load();
    refused(given, &["number of CPUs", "2 CPUs", "1 CPUs"]);
    let outer = load(&runtime, "r0 = 0\nexit", vec![outer_of(MapKind::ArrayOfMaps, def)]).unwrap();
    refused(outer.map_array("outer").unwrap().set(0, &one), &["number of CPUs", "2 CPUs", "1 CPUs"]);
}

/// A program as a load would verify it.
fn verified(text: &str, maps: &[MapDef]) -> Verified {
    let insns = skep_isa::assemble(text).expect("assembles");
    let functions = crate::object::functions("main", &insns);
    let source = ProgramSource { functions, ..ProgramSource::new("main", &RAW, insns) };
    let program = Unverified { source, maps: maps.into(), entry: Entry::Buffer { len: 8 } };
    skep_verifier::verify(program, &Config::default()).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The last check: a load that forgot to tell the verifier of a map is refused all the same.
#[test]
fn every_assumption_is_compared_with_the_real_map() {
    const LOOK_UP: &str =
        "r2 = r1\nr1 = map[0] ll\ncall 1\nif r0 == 0 goto out\nr0 = *(u64 *)(r0 + 0)\nout:\nr0 = 0\nexit";
    const BOUNDED: &str = "*(u32 *)(r10 - 4) = 3\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\nr0 = 0\nexit";
    const WRITES: &str = "*(u64 *)(r3 + 0) = 1";
    let timer = |offset| MapDef {
        fields: vec![SpecialField { kind: SpecialKind::Timer, offset, size: 8 }],
        value_size: 24,
        ..array(4)
    };
    let in_array = |inner| outer_of(MapKind::ArrayOfMaps, inner);
    let writes = each(OWN, WRITES);
    let eleven = constants(&11u32.to_le_bytes());
    let cases: [(&str, &str, MapDef, MapDef); 13] = [
        ("kind", LOOK_UP, array(4), MapDef { kind: MapKind::PercpuArray, ..array(4) }),
        (
            "key_size",
            LOOK_UP,
            MapDef { kind: MapKind::Hash, ..array(4) },
            MapDef::new("n", MapKind::Hash, 8, 8, 4),
        ),
        ("value_size", LOOK_UP, array(4), MapDef::new("n", MapKind::Array, 4, 4, 4)),
        ("map_flags", &writes, array(4), MapDef { flags: MapFlags::RDONLY_PROG, ..array(4) }),
        ("special fields", LOOK_UP, timer(8), timer(16)),
        ("special fields", LOOK_UP, MapDef { value_size: 24, ..array(4) }, timer(0)),
        ("max_entries", &each(OWN, FOUR_CALLS), array(4), array(5)),
        ("max_entries", BOUNDED, array(4), array(3)),
        ("frozen contents", INDEXED, eleven.clone(), MapDef { frozen: None, ..eleven.clone() }),
        ("frozen contents", INDEXED, eleven, constants(&[0; 4])),
        (
            "value_size",
            &each(FOUND, WRITES),
            in_array(array(4)),
            in_array(MapDef { value_size: 4, ..array(4) }),
        ),
        ("max_entries", &each(FOUND, FOUR_CALLS), in_array(array(4)), in_array(array(5))),
        (
            "inner map",
            &each(FOUND, ANY_CALLS),
            in_array(array(4)),
            MapDef { inner: None, ..in_array(array(4)) },
        ),
    ];
    for (field, text, told, real) in cases {
        let program = verified(text, std::slice::from_ref(&told));
        let options = Options { cpus: 1, limit: 1 << 20 };
        let map =
            |def: &MapDef| Arc::new(Map::create(def, &options).unwrap_or_else(|error| panic!("{error}")));
        check(&program, &[Some(map(&told))]).unwrap_or_else(|error| panic!("{field}: {error}"));
        let error = check(&program, &[Some(map(&real))]).expect_err(field).to_string();
        let named = format!("map {}: {field} differs", told.name);
        let shapes = [describe(&told, 0), describe(&real, 0)];
        assert!(
            error.starts_with(&named) && shapes.iter().all(|shape| error.contains(shape)),
            "{field}: {error}"
        );
    }
}

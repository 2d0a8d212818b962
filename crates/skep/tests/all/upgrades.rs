//! A new version of a program takes over the state of the old one.

use skep::{Error, Migration, Module, Object, Runtime, UpdateFlags};
use std::sync::Arc;

fn object() -> Object {
    Object::parse(include_bytes!("../objects/typed/typed.bpf.o")).unwrap()
}

fn grown() -> Object {
    Object::parse(include_bytes!("../objects/typed/grown.bpf.o")).unwrap()
}

/// `struct flow_key`, and `struct flow` of the old version.
const KEY: [u8; 8] = [1, 0, 0, 10, 80, 0, 6, 1];

fn flow(score: i32) -> Vec<u8> {
    let mut bytes: Vec<u8> = [1u64, 2, 3, 4].iter().flat_map(|number| number.to_ne_bytes()).collect();
    bytes.extend(7u32.to_ne_bytes());
    bytes.extend(score.to_ne_bytes());
    bytes.extend(*b"eth0\0\0\0\0");
    bytes.extend([64, 0b0001_0101, 0, 0, 0, 0, 0, 0]); // ttl, flags 5 and mark 2
    bytes
}

/// A module with state, and its runtime.
fn old(score: i32) -> (Runtime, Module) {
    let runtime = Runtime::builder().cpus(2).build().unwrap();
    let module = runtime.load(&object()).unwrap();
    module.map("flows").unwrap().update(&KEY, &flow(score), UpdateFlags::Any).unwrap();
    let totals: Vec<u8> = [1u64, 2, 3, 4].iter().flat_map(|number| number.to_ne_bytes()).collect();
    module.map("totals").unwrap().update(&1u32.to_ne_bytes(), &totals, UpdateFlags::Any).unwrap();
    let route = [8, 0, 0, 0, 10, 0, 0, 0];
    module.map("routes").unwrap().update(&route, &[1, 2, 3, 4], UpdateFlags::Any).unwrap();
    module.set("seen", 1_000u64).unwrap();
    module.set("limit", 77u32).unwrap();
    (runtime, module)
}

#[test]
fn maps_of_the_same_shape_are_the_same_maps_after_an_upgrade() {
    let (runtime, old) = old(1);
    let object = object();
    let new = runtime.linker(&object).reuse_maps(&old).load().unwrap();
    for name in ["flows", "totals", "routes", "jobs", "events"] {
        assert!(Arc::ptr_eq(old.map(name).unwrap(), new.map(name).unwrap()), "{name}");
    }
    // Variables are the module's own.
    assert_eq!((old.get::<u64>("seen").unwrap(), new.get::<u64>("seen").unwrap()), (1_000, 0));
    let fresh =
        runtime.linker(&object).reuse_maps(&old).fresh_map("flows").max_entries("totals", 2).load().unwrap();
    assert!(!Arc::ptr_eq(old.map("flows").unwrap(), fresh.map("flows").unwrap()));
    assert_eq!(fresh.map("totals").unwrap().def().max_entries, 2);
    let error = runtime.linker(&object).fresh_map("flow").load().unwrap_err().to_string();
    assert!(error.contains("flows"), "{error}");
}

#[test]
fn strings_are_those_of_the_new_version() {
    let object = Object::parse(include_bytes!("../objects/printing/printing.bpf.o")).unwrap();
    let runtime = Runtime::new().unwrap();
    let old = runtime.load(&object).unwrap();
    let new = runtime.linker(&object).reuse_maps(&old).load().unwrap();
    let strings = |module: &Module| {
        module.maps().iter().filter(|map| map.name().starts_with(".rodata")).cloned().collect::<Vec<_>>()
    };
    assert!(!strings(&old).is_empty());
    for (was, is) in strings(&old).iter().zip(strings(&new)) {
        assert!(!Arc::ptr_eq(was, &is), "{}", is.name());
    }
    new.migrate_from(&old).unwrap();
}

#[test]
fn a_map_that_has_grown_is_refused_with_both_shapes() {
    let (runtime, old) = old(1);
    let error = runtime.linker(&grown()).reuse_maps(&old).load().unwrap_err();
    let Error::MapMismatch { name, field, wanted, given, .. } = &error else { panic!("{error}") };
    assert_eq!((&**name, *field), ("flows", "value_size"));
    assert_ne!(wanted, given);
}

#[test]
fn members_are_found_by_name_and_the_report_says_what_was_left_out() {
    let (runtime, old) = old(-7);
    let grown = grown();
    let new = runtime.linker(&grown).reuse_maps(&old).fresh_map("flows").fresh_map("totals").load().unwrap();
    let report = new.migrate_from(&old).unwrap();
    let value = new.map("flows").unwrap().lookup(&KEY).unwrap().unwrap();
    // struct flow { state, score, first_seen, directions[2] { bytes, packets, errors }, name[16], flags : 4 }
    let words: Vec<u64> =
        value.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[0] as u32, 7);
    assert_eq!(value[4] as i8, -7);
    assert_eq!(words[1..8], [0, 2, 1, 0, 4, 3, 0]);
    assert_eq!(&value[64..80], b"eth0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(value[80], 5);
    let totals = new.map("totals").unwrap().lookup(&1u32.to_ne_bytes()).unwrap().unwrap();
    let totals: Vec<u64> =
        totals.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(totals, [2, 1, 0, 4, 3, 0]);
    assert_eq!((new.get::<u64>("limit").unwrap(), new.get::<u64>("seen").unwrap()), (77, 1_000));
    let settings = new.variable("settings").unwrap();
    assert_eq!((settings[0], u64::from_ne_bytes(settings[8..16].try_into().unwrap())), (10, 1000));
    let Migration { copied, variables, dropped, added, .. } = report;
    assert_eq!(copied, [("totals".to_owned(), 1), ("flows".to_owned(), 1)]);
    assert_eq!(variables.len(), 3, "{variables:?}");
    assert_eq!(
        dropped,
        ["flows.value.mark", "flows.value.ttl", "map events", "settings.enabled", "variable balance"]
    );
    assert_eq!(
        added,
        ["flows.value.directions.errors", "flows.value.first_seen", "settings.window", "totals.value.errors"]
    );
}

#[test]
fn a_number_that_does_not_fit_ends_the_migration_with_its_place() {
    let (runtime, old) = old(300);
    let grown = grown();
    let new = runtime.linker(&grown).load().unwrap();
    let error = new.migrate_from(&old).unwrap_err().to_string();
    assert!(error.starts_with("flows.value.score: 300 does not fit (-128 to 127)"), "{error}");
}

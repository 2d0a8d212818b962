//! Typed views of maps and typed variables, against the bytes that the same maps have.

use skep::{Object, Packet, PerCpu, Prefix, Runtime, UpdateFlags, fields};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct FlowKey {
    source: u32,
    port: u16,
    protocol: u8,
    local: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Direction {
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Flow {
    directions: [Direction; 2],
    state: u32,
    score: i32,
    name: [u8; 8],
    ttl: u8,
    flags: u8,
    padding: [u8; 6],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Event {
    number: u32,
    length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Settings {
    rate: u64,
    burst: u32,
    enabled: u8,
    padding: [u8; 3],
}

const KEY: FlowKey = FlowKey { source: 0x0a00_0001, port: 80, protocol: 6, local: 0 };
const FLOW: Flow = Flow {
    directions: [Direction { packets: 1, bytes: 2 }, Direction { packets: 3, bytes: 4 }],
    state: 1,
    score: -7,
    name: *b"eth0\0\0\0\0",
    ttl: 64,
    flags: 0,
    padding: [0; 6],
};

fn object() -> Object {
    Object::parse(include_bytes!("../objects/typed/typed.bpf.o")).unwrap()
}

fn module() -> skep::Module {
    Runtime::new().unwrap().load(&object()).unwrap()
}

fn packet() -> Packet {
    Packet::new(&[0; 60])
}

#[test]
fn typed_maps_have_the_bytes_that_untyped_ones_have() {
    let module = module();
    let flows = module.typed_map::<FlowKey, Flow>("flows").unwrap();
    flows.insert(&KEY, &FLOW, UpdateFlags::NoExist).unwrap();
    let map = module.map("flows").unwrap();
    assert_eq!(map.lookup(KEY.as_bytes()).unwrap().unwrap(), FLOW.as_bytes());
    assert_eq!(flows.get(&KEY).unwrap(), Some(FLOW));
    assert_eq!(flows.iter().collect::<Vec<_>>(), [(KEY, FLOW)]);
    assert_eq!((flows.keys().count(), flows.values().count(), flows.len()), (1, 1, 1));
    assert!(flows.insert(&KEY, &FLOW, UpdateFlags::NoExist).is_err());
    flows.remove(&KEY).unwrap();
    assert_eq!(flows.get(&KEY).unwrap(), None);

    let routes = module.typed_map::<Prefix<4>, u32>("routes").unwrap();
    routes.insert(&Prefix::new(8, [10, 0, 0, 0]), &8, UpdateFlags::Any).unwrap();
    routes.insert(&Prefix::new(16, [10, 1, 0, 0]), &16, UpdateFlags::Any).unwrap();
    let longest = |address| routes.get(&Prefix::host(address)).unwrap();
    assert_eq!(
        [longest([10, 1, 2, 3]), longest([10, 2, 2, 3]), longest([11, 0, 0, 0])],
        [Some(16), Some(8), None]
    );

    let jobs = module.queue::<Event>("jobs").unwrap();
    let event = Event { number: 1, length: 2 };
    jobs.push(&event).unwrap();
    assert_eq!(module.map("jobs").unwrap().peek().unwrap().unwrap(), event.as_bytes());
    assert_eq!(
        [jobs.peek().unwrap(), jobs.pop().unwrap(), jobs.pop().unwrap()],
        [Some(event), Some(event), None]
    );
}

#[test]
fn a_per_cpu_value_is_a_slice_over_the_virtual_cpus() {
    let runtime = Runtime::builder().cpus(3).build().unwrap();
    let module = runtime.load(&object()).unwrap();
    let totals = module.per_cpu_map::<u32, Direction>("totals").unwrap();
    module.program("count").unwrap().run(&mut packet()).unwrap();
    let values = totals.get(&0).unwrap().unwrap();
    assert_eq!((values.len(), totals.cpus()), (3, 3));
    assert_eq!(values.iter().map(|one| one.packets).sum::<u64>(), 1);
    assert_eq!(values.iter().map(|one| one.bytes).sum::<u64>(), 120, "scaled by 2");
    let all: PerCpu<Direction> = (0..3).map(|cpu| Direction { packets: cpu, bytes: 9 }).collect();
    totals.insert(&1, &all, UpdateFlags::Any).unwrap();
    assert_eq!(totals.iter().find(|(key, _)| *key == 1), Some((1, all)));
    let two = PerCpu::from(vec![Direction { packets: 0, bytes: 0 }; 2]);
    let error = totals.insert(&1, &two, UpdateFlags::Any).unwrap_err().to_string();
    assert!(error.contains("32") && error.contains("48"), "{error}");
}

#[test]
fn types_of_wrong_size_sign_or_kind_are_refused_with_both_names() {
    let module = module();
    let error = |result: Result<(), skep::Error>| result.unwrap_err().to_string();
    let key = error(module.typed_map::<u32, Flow>("flows").map(drop));
    assert_eq!(key, "key of map flows: expected 8 bytes, found u32, which has 4 bytes");
    let value = error(module.typed_map::<FlowKey, Direction>("flows").map(drop));
    assert!(value.contains("value of map flows: expected 56 bytes"), "{value}");
    let sign = error(module.typed_map::<Prefix<4>, i32>("routes").map(drop));
    assert_eq!(sign, "value of map routes: expected __u32 of 4 bytes, found i32 of 4 bytes");
    assert!(module.typed_map::<Prefix<4>, f32>("routes").is_err());
    let per_cpu = error(module.typed_map::<u32, Direction>("totals").map(drop));
    assert!(per_cpu.contains("percpu_array") && per_cpu.contains("per_cpu_map"), "{per_cpu}");
    assert!(error(module.per_cpu_map::<FlowKey, Flow>("flows").map(drop)).contains("typed_map"));
    assert!(module.typed_map::<u32, Event>("jobs").is_err() && module.queue::<Event>("flows").is_err());
    assert!(error(module.typed_map::<u32, u32>("flow").map(drop)).contains("flows"));
}

#[test]
fn listed_fields_are_compared_by_name_offset_size_and_sign() {
    let module = module();
    module.check_key("flows", &fields!(FlowKey { source, port, protocol, local })).unwrap();
    module.check_value("flows", &fields!(Flow { directions, state, score, name, ttl })).unwrap();
    module.check_variable("settings", &fields!(Settings { rate, burst, enabled })).unwrap();

    #[repr(C)]
    #[allow(dead_code)]
    struct Moved {
        bytes: u64,
        packets: u64,
    }
    let error = module.check_value("totals", &fields!(Moved { packets })).unwrap_err().to_string();
    assert_eq!(error, "value of map totals: field packets: expected offset 0, found offset 8");
    #[repr(C)]
    #[allow(dead_code)]
    struct Other {
        packets: i64,
        octets: u64,
    }
    let error = module.check_value("totals", &fields!(Other { packets })).unwrap_err().to_string();
    assert_eq!(error, "value of map totals: field packets: expected __u64 of 8 bytes, found i64 of 8 bytes");
    let error = module.check_value("totals", &fields!(Other { octets })).unwrap_err().to_string();
    assert!(error.contains("field octets: expected a member of struct direction"), "{error}");
    // A ring buffer has no types to compare with.
    assert!(
        module.check_value("events", &fields!(Other { packets })).unwrap_err().to_string().contains("-g")
    );
}

#[test]
fn an_invalid_enumeration_that_a_program_writes_is_a_number_to_the_host() {
    let module = module();
    let flows = module.typed_map::<FlowKey, Flow>("flows").unwrap();
    flows.insert(&KEY, &FLOW, UpdateFlags::Any).unwrap();
    module.program("count").unwrap().run(&mut packet()).unwrap();
    assert_eq!(flows.get(&KEY).unwrap().unwrap().state, 99);
}

#[test]
fn setting_a_variable_changes_no_other_one() {
    let module = module();
    module.set::<u32>("limit", 2).unwrap();
    let verdict = || module.program("count").unwrap().run(&mut packet()).unwrap();
    assert_eq!([verdict(), verdict(), verdict()], [2, 2, 1]);
    assert_eq!(module.get::<u64>("seen").unwrap(), 3);
    assert_eq!(module.get::<i64>("balance").unwrap(), -5);
    let settings = Settings { rate: 7, burst: 8, enabled: 1, padding: [0; 3] };
    module.set("settings", settings).unwrap();
    assert_eq!(module.get::<Settings>("settings").unwrap(), settings);
    assert_eq!(module.get::<i64>("balance").unwrap(), -5);
    assert_eq!(module.variable("limit").unwrap(), 2u32.to_ne_bytes());
}

#[test]
fn increments_by_programs_survive_sets_of_other_variables() {
    let module = module();
    let program = module.program("spin").unwrap();
    let most: u64 = if std::env::var_os("SKEP_EMULATED").is_none() { 10_000 } else { 200 };
    let (runs, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                program.run(&mut packet()).unwrap();
                runs.fetch_add(1, Ordering::Release);
            }
        });
        // So many runs take longer than a thread's turn on a busy machine: sets are made beside them.
        let mut value = 0u32;
        while value < 20_000 || runs.load(Ordering::Acquire) < most {
            value += 1;
            module.set("limit", value).unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(module.get::<u64>("seen").unwrap(), 1000 * runs.load(Ordering::Acquire));
}

#[test]
fn a_constant_is_set_before_the_load_and_refused_after_it() {
    let object = object();
    let runtime = Runtime::new().unwrap();
    let module = runtime.linker(&object).set("scale", 5u32).set("limit", 9u32).load().unwrap();
    assert_eq!((module.get::<u32>("scale").unwrap(), module.get::<u32>("limit").unwrap()), (5, 9));
    let error = module.set::<u32>("scale", 1).unwrap_err().to_string();
    assert!(error.contains("scale is a constant") && error.contains("Linker::set"), "{error}");
    let error = runtime.linker(&object).set("scale", 5u64).load().unwrap_err().to_string();
    assert_eq!(error, "variable scale: expected __u32 of 4 bytes, found u64 of 8 bytes");
    let error = runtime.linker(&object).set("balance", 5u64).load().unwrap_err().to_string();
    assert_eq!(error, "variable balance: expected __s64 of 8 bytes, found u64 of 8 bytes");
    assert!(runtime.linker(&object).set("scael", 5u32).load().unwrap_err().to_string().contains("scale"));
    assert!(module.set::<u64>("limit", 1).is_err() && module.get::<i32>("limit").is_err());
}

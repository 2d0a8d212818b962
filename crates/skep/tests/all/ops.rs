//! Tables of functions that plug-ins fill in, called by their host.

use skep::{Btf, Engine, Error, Map, Module, Object, OpsArg, OpsSlot, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const HOST: &[u8] = include_bytes!("../objects/ops/host.bpf.o");
const POLICY: &[u8] = include_bytes!("../objects/ops/policy.bpf.o");
const WRONG: &[u8] = include_bytes!("../objects/ops/wrong.bpf.o");

fn host() -> Arc<Btf> {
    Arc::clone(Object::parse(HOST).unwrap().types().unwrap())
}

fn load(runtime: &Runtime, bytes: &[u8], only: Option<&str>) -> Result<Module, Error> {
    let mut object = Object::parse(bytes).unwrap();
    object.set_host_types(host());
    let linker = runtime.linker(&object);
    only.map_or(linker, |name| runtime.linker(&object).only(name)).load()
}

/// `struct request`, with the address of its owner.
fn request(size: u32, owner: u64) -> [u8; 24] {
    let mut request = [0; 24];
    request[8..12].copy_from_slice(&size.to_ne_bytes());
    request[16..].copy_from_slice(&owner.to_ne_bytes());
    request
}

/// `struct owner`.
fn owner(quota: i32) -> Box<[u64; 2]> {
    Box::new([1, u64::from(quota.cast_unsigned())])
}

fn address(owner: &[u64; 2]) -> u64 {
    owner.as_ptr().expose_provenance() as u64
}

#[test]
fn a_host_calls_the_members_that_a_plug_in_filled_in_and_reads_the_others() {
    let runtime = Runtime::new().unwrap();
    let module = load(&runtime, POLICY, None).unwrap();
    let names: Vec<_> = module.ops_tables().iter().map(|table| (table.name(), table.structure())).collect();
    assert_eq!(names, [("all", "cache_policy"), ("small", "cache_policy")]);
    let all = module.ops_table("all").unwrap();
    let members: Vec<_> = all.members().iter().map(|member| member.name()).collect();
    assert_eq!(members, ["admit", "evicted", "score", "busy"]);
    assert_eq!(
        (all.field("name").unwrap(), all.field("flags").unwrap()),
        (&b"all\0\0\0\0\0\0\0\0\0\0\0\0\0"[..], &[3, 0, 0, 0][..])
    );
    assert!(all.field("admit").is_none() && all.member("flags").is_none());
    let small = module.ops_table("small").unwrap();
    assert!(small.member("evicted").is_none() && small.member("admit").is_some());
    assert!(module.ops_table("large").is_none());

    let owners = [owner(5), owner(-5)];
    for engine in ENGINES {
        let admit = |size, owner: &[u64; 2], room| {
            let request = request(size, address(owner));
            let args = [OpsArg::Object(&request), OpsArg::Number(room)];
            small.member("admit").unwrap().call_with(engine, &args).unwrap()
        };
        assert_eq!(
            (admit(10, &owners[0], 10), admit(11, &owners[0], 10), admit(10, &owners[1], 10)),
            (1, 0, 0)
        );
        // 2^32 of room are more than 10.
        assert_eq!(admit(10, &owners[0], 1 << 32), 1);
    }
}

#[test]
fn numbers_are_those_of_the_members_types() {
    let runtime = Runtime::new().unwrap();
    let module = load(&runtime, POLICY, None).unwrap();
    let all = module.ops_table("all").unwrap();
    let reasons = |map: &Map, key: u64| {
        let value = map.lookup(&key.to_ne_bytes()).unwrap().unwrap();
        i64::from_ne_bytes(value.try_into().unwrap())
    };
    for engine in ENGINES {
        let evicted = all.member("evicted").unwrap();
        assert_eq!(evicted.call_with(engine, &[OpsArg::Number(u64::MAX), OpsArg::Number(0x1ff)]).unwrap(), 0);
        assert_eq!(reasons(module.map("gone").unwrap(), u64::MAX), -1, "a number of one byte with a sign");
        let score = |size, now, hot| {
            let request = request(size, 0);
            let args = [OpsArg::Object(&request), OpsArg::Number(now), OpsArg::Number(hot)];
            all.member("score").unwrap().call_with(engine, &args).unwrap()
        };
        // The result has two bytes and a sign.
        assert_eq!([score(0x8000, 0, 0), score(0x1_0007, 0, 0)], [0xffff_ffff_ffff_8000, 7]);
        assert_eq!(
            [score(0, 5, 1), score(0, 5 | 7 << 32, 1), score(9, 5, 0x100)],
            [-5i64 as u64, -5i64 as u64, 9]
        );
    }
}

#[test]
fn null_is_an_argument_where_the_host_says_so() {
    let runtime = Runtime::new().unwrap();
    let module = load(&runtime, POLICY, None).unwrap();
    let all = module.ops_table("all").unwrap();
    for engine in ENGINES {
        let busy = |arg: OpsArg<'_>| all.member("busy").unwrap().call_with(engine, &[arg]).unwrap();
        assert_eq!((busy(OpsArg::Null), busy(OpsArg::Object(&request(12, 0)))), (7, 12));
    }
}

#[test]
fn other_arguments_than_a_member_takes_are_refused() {
    let runtime = Runtime::new().unwrap();
    let module = load(&runtime, POLICY, None).unwrap();
    let all = module.ops_table("all").unwrap();
    let request = request(1, 0);
    let (object, number) = (OpsArg::Object(&request), OpsArg::Number(1));
    let cases: [(&str, &[OpsArg<'_>], &str); 7] = [
        ("admit", &[], "argument 1 must be 2 arguments, found 0"),
        ("admit", &[object, number, number], "2 arguments, found 3"),
        ("admit", &[number, number], "argument 1 must be a structure of 24 bytes"),
        ("admit", &[OpsArg::Null, number], "argument 1 must be a structure of 24 bytes"),
        ("admit", &[OpsArg::Object(&request[..23]), number], "a structure of 24 bytes"),
        ("admit", &[object, object], "argument 2 must be a number"),
        ("busy", &[number], "a structure of 24 bytes or null"),
    ];
    for (member, args, expected) in cases {
        let error = all.member(member).unwrap().call(args).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn addresses_in_a_structure_that_lead_nowhere_are_read_as_zero() {
    let runtime = Runtime::new().unwrap();
    let module = load(&runtime, POLICY, None).unwrap();
    let admit = module.ops_table("small").unwrap().member("admit").unwrap().clone();
    for engine in ENGINES {
        for nowhere in [0, 8, 4096, 1 << 47, u64::MAX - 7, 0xdead_beef_dead_beef] {
            let request = request(1, nowhere);
            assert_eq!(admit.call_with(engine, &[OpsArg::Object(&request), OpsArg::Number(1)]).unwrap(), 1);
        }
    }
}

#[test]
fn a_plug_in_of_another_header_is_refused_by_structure_and_member() {
    let runtime = Runtime::new().unwrap();
    for (program, expected) in [
        ("narrow", ["table_narrow, member admit", "(pointer, 8 bytes) to 4 bytes", "compile the plug-in"]),
        ("shorter", ["table_short", "8 in the plug-in", "compile the plug-in"]),
        ("renamed", ["table_renamed, member evicted", "at byte 8", "compile it with the host's header"]),
        ("useless", ["table_useless, member admit", "requires it", "leaves it 0"]),
    ] {
        let error = load(&runtime, WRONG, Some(program)).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn a_function_of_a_table_makes_no_tail_call() {
    // A program of another member would take the arguments of this one for its own: numbers for addresses.
    let error = load(&Runtime::new().unwrap(), WRONG, Some("jumps")).unwrap_err().to_string();
    assert!(error.contains("jumps") && error.contains("a tail call"), "{error}");
}

#[test]
fn without_the_hosts_types_a_table_is_refused() {
    let object = Object::parse(POLICY).unwrap();
    let error = Runtime::new().unwrap().load(&object).unwrap_err().to_string();
    assert!(error.contains("host") && error.contains("types"), "{error}");
}

#[test]
fn a_table_of_which_not_all_functions_are_loaded_is_not_there() {
    let runtime = Runtime::new().unwrap();
    let module = load(&runtime, POLICY, Some("admit")).unwrap();
    let names: Vec<_> = module.ops_tables().iter().map(|table| table.name()).collect();
    assert_eq!(names, ["small"]);
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_table_is_replaced_while_threads_call_it() {
    let runtime = Runtime::new().unwrap();
    let slot = OpsSlot::new(&runtime, "cache_policy");
    assert!(slot.get().unwrap().is_none());
    let table = || load(&runtime, POLICY, None).unwrap().ops_table("all").unwrap().clone();
    let (done, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let request = request(12, 0);
                while !done.load(Ordering::Relaxed) {
                    let size = slot.with(|table| {
                        table.map(|table| {
                            table.member("busy").unwrap().call(&[OpsArg::Object(&request)]).unwrap()
                        })
                    });
                    if let Some(size) = size.unwrap() {
                        assert_eq!(size, 12);
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Also if it fails: the others end.
        let _ends = Ends(&done);
        for round in 0..40 {
            slot.set((round % 4 != 0).then(table)).unwrap();
        }
        slot.set(Some(table())).unwrap();
        let before = calls.load(Ordering::Relaxed);
        while calls.load(Ordering::Relaxed) < before + 4 {
            std::thread::yield_now();
        }
    });
    assert_eq!(slot.get().unwrap().unwrap().name(), "all");
    let other = OpsSlot::new(&runtime, "scheduler");
    let error = other.set(Some(table())).unwrap_err().to_string();
    assert!(error.contains("cache_policy") && error.contains("scheduler"), "{error}");
}

#[test]
fn programs_of_tables_run_on_nothing_else() {
    let runtime = Runtime::new().unwrap();
    let module = load(&runtime, POLICY, None).unwrap();
    let program = module.program("admit").unwrap();
    let error = program.run(&mut skep::Packet::new(&[0; 64])).unwrap_err().to_string();
    assert!(error.contains("OpsMember::call"), "{error}");
    assert!(program.run_raw(&mut [0; 8]).is_err());
    assert!(skep::Context::of(program).is_err());
}

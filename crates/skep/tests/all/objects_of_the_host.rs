//! Programs that read objects of the host: loads through invalid pointers give 0, in both engines, and no program
//! can forge such a pointer.

use std::os::unix::process::ExitStatusExt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep::abi::{
    ArgKind, HelperProto, MapDef, MapFlags, MapKind, RAW, RetKind, RunEnv, SpecialField, SpecialKind, XDP,
};
use skep::isa::{assemble, encode_bytes};
use skep::{
    Btf, Engine, Error, MapError, Module, Object, Packet, Runtime, RuntimeBuilder, UpdateFlags, text,
};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

/// The helper that returns an address as an object of the type that [`types`] defines for it.
const OBJECT_AT: u32 = 2000;
/// A helper that dereferences an address itself.
const READ_AT: u32 = 2001;

unsafe extern "C" fn object_at(address: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    address
}

unsafe extern "C" fn read_at(address: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: none: the test provokes the fault.
    unsafe { ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}

/// Linux's types, as far as the verifier's recorded verdicts need them.
pub(super) fn types() -> Arc<Btf> {
    let bytes: &[u8] = include_bytes!("../../../skep-verifier/verdicts/linux.btf");
    Arc::new(Btf::parse(bytes).unwrap())
}

/// The type number of `task_struct`, and the offsets of some of its members.
fn task(types: &Btf) -> (u32, impl Fn(&str) -> i16 + use<>) {
    let (id, _) = (1..types.len())
        .filter_map(|id| Some((id, types.ty(id).ok()?)))
        .find(|(_, ty)| ty.name() == Ok("task_struct") && ty.members().len() > 0)
        .unwrap();
    let members: Vec<(String, u32)> = types
        .members(id)
        .unwrap()
        .map(|member| (member.name().unwrap().to_owned(), member.bit_offset / 8))
        .collect();
    (id, move |name: &str| {
        let found = members.iter().find(|(member, _)| member == name).unwrap_or_else(|| panic!("no {name}"));
        i16::try_from(found.1).unwrap()
    })
}

fn runtime(config: text::Config) -> Runtime {
    functions(Runtime::builder().code(config).log(|_, _| ())).build().unwrap()
}

/// Gives the runtime the functions.
pub(super) fn functions(builder: RuntimeBuilder) -> RuntimeBuilder {
    let ret = RetKind::Object { of: "task_struct", maybe_null: false };
    let (any, none) = (ArgKind::Anything, ArgKind::None);
    let args = [any, none, none, none, none];
    // SAFETY: the first does nothing with its argument, and programs read its result by probe loads. The second is
    // called with valid addresses, or in a process that is to die of the fault.
    unsafe {
        builder
            .helper(HelperProto::new(OBJECT_AT, "object_at", args, ret), object_at)
            .helper(HelperProto::new(READ_AT, "read_at", args, RetKind::Scalar), read_at)
    }
}

/// A program over a buffer of 16 bytes. Names of members in braces are replaced by their offsets.
pub(super) fn load(runtime: &Runtime, text: &str) -> Result<Module, Error> {
    let types = types();
    let (_, offset) = task(&types);
    let mut filled = text.to_owned();
    for name in ["pid", "start_time", "real_parent"] {
        filled = filled.replace(&format!("{{{name}}}"), &offset(name).to_string());
    }
    let bytes = encode_bytes(&assemble(&filled).unwrap()).unwrap();
    let mut object = Object::from_bytecode("reader", &RAW, &bytes).unwrap();
    object.set_host_types(types);
    runtime.linker(&object).buffer_len(16).load()
}

/// Reads the `pid` of the parent of the object at the first address, and two members of the object at the second.
pub(super) const READER: &str = "r6 = r1
    r1 = *(u64 *)(r6 + 0)
    call 2000
    r7 = *(u64 *)(r0 + {real_parent})
    r7 = *(s32 *)(r7 + {pid})
    r1 = *(u64 *)(r6 + 8)
    call 2000
    r8 = *(u64 *)(r0 + {start_time})
    r0 = *(u32 *)(r0 + {pid})
    r0 += r7
    r0 += r8
    exit";

/// A fake task: `pid`, `start_time` and `real_parent`.
pub(super) fn made_up(pid: u32, start_time: u64, parent: u64) -> Vec<u64> {
    let types = types();
    let (_, offset) = task(&types);
    let mut bytes = vec![0u8; 65536];
    let mut put = |name, value: &[u8]| {
        let at = offset(name) as usize;
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    put("pid", &pid.to_ne_bytes());
    put("start_time", &start_time.to_ne_bytes());
    put("real_parent", &parent.to_ne_bytes());
    bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

pub(super) fn run(module: &Module, engine: Engine, first: u64, second: u64) -> u64 {
    let mut buffer = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
    module.programs()[0].run_raw_with(engine, &mut buffer).unwrap()
}

#[test]
fn a_function_that_the_runtime_lacks_is_named_when_the_program_is_loaded() {
    let types = types();
    let number = |name| (1..types.len()).find(|id| types.name(*id) == Ok(name)).unwrap();
    let (from_pid, release) = (number("bpf_task_from_pid"), number("bpf_task_release"));
    let text = format!(
        "r1 = 1\ncall kfunc[{from_pid}]\nif r0 == 0 goto out\nr1 = r0\ncall kfunc[{release}]\nout:\nr0 = 2\nexit"
    );
    let bytes = encode_bytes(&assemble(&text).unwrap()).unwrap();
    let mut object = Object::from_bytecode("finder", &XDP, &bytes).unwrap();
    object.set_host_types(types);
    let runtime = runtime(text::Config::new());
    let Err(Error::NotProvided { slot, what, .. }) = runtime.linker(&object).load() else {
        panic!("the runtime has no tasks")
    };
    assert_eq!((slot, what.as_str()), (1, "a call of the kernel function bpf_task_from_pid"));
}

#[test]
fn loads_through_objects_give_the_value_or_0() {
    let module = load(&runtime(text::Config::new()), READER).unwrap();
    let probes = module.programs()[0].verified().facts().iter().filter(|fact| fact.probe).count();
    assert_eq!(probes, 4);
    let parent = made_up(100, 0, 0);
    let good = made_up(7, 1000, parent.as_ptr().expose_provenance() as u64);
    let stale = made_up(7, 1000, 0xdead_beef_dead_beef);
    let [parent, good, stale] = [&parent, &good, &stale].map(|task| task.as_ptr().expose_provenance() as u64);
    for engine in ENGINES {
        let run = |first, second| run(&module, engine, first, second);
        assert_eq!(run(good, good), 100 + 1000 + 7, "{engine:?}");
        assert_eq!(run(stale, good), 1000 + 7, "{engine:?}: a parent that is gone");
        assert_eq!(run(parent, parent), 100, "{engine:?}: no parent");
        for bad in [0, 1, 4096, 1 << 47, 0x4000_0000_0000_0000, 0xffff_8000_0000_0000, u64::MAX - 70000] {
            assert_eq!(run(bad, good), 1000 + 7, "{engine:?}: {bad:#x}");
            assert_eq!(run(good, bad), 100, "{engine:?}: {bad:#x}");
            assert_eq!(run(bad, bad), 0, "{engine:?}: {bad:#x}");
        }
    }
}

#[test]
fn threads_fault_at_once_in_both_engines() {
    let module = load(&runtime(text::Config::new()), READER).unwrap();
    let good = made_up(7, 1000, 0);
    let good = good.as_ptr().expose_provenance() as u64;
    let wrong = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (module, wrong) = (&module, &wrong);
            scope.spawn(move || {
                for round in 0..500 {
                    let engine = ENGINES[(thread + round) % 2];
                    let found = [
                        run(module, engine, 0, good),
                        run(module, engine, 8, 8),
                        run(module, engine, good, 1),
                    ];
                    if found != [1007, 0, 0] {
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn without_the_fault_handler_the_program_is_refused() {
    let runtime = runtime(text::Config::new().fault_handler(false));
    let error = load(&runtime, READER).unwrap_err().to_string();
    for part in ["program reader", "slot 3", "may be gone", "Config::fault_handler(false)", "with a helper"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    load(&runtime, "r0 = *(u64 *)(r1 + 8)\nexit").expect("it reads nothing of the host's");
}

/// Runs this test in a child process and returns its status; `None` in the child.
fn child() -> Option<std::process::ExitStatus> {
    const NAME: &str = "SKEP_TEST_DIES";
    if std::env::var_os(NAME).is_some() {
        // The child dies of a signal; a core dump is useless.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) }, 0);
        return None;
    }
    Some(skep_testkit::this_test().env(NAME, "1").output().unwrap().status)
}

#[test]
fn a_fault_in_a_helper_is_not_swallowed() {
    let Some(status) = child() else {
        let text = "r6 = r1
            r1 = *(u64 *)(r6 + 0)
            call 2000
            r7 = *(u32 *)(r0 + {pid})
            r1 = *(u64 *)(r6 + 8)
            call 2001
            r0 += r7
            exit";
        let module = load(&runtime(text::Config::new()), text).unwrap();
        let good = AtomicU64::new(5);
        let address = good.as_ptr().expose_provenance() as u64;
        for engine in ENGINES {
            assert_eq!(run(&module, engine, 0, address), 5, "the load faults, the helper does not");
        }
        run(&module, Engine::Jit, 0, 8);
        std::process::exit(0);
    };
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
}

/// An address that no program was given.
static SECRET: [u64; 8192] = [0x5ec2_e75e_c2e7; 8192];

/// A map of that kind whose values hold a pointer to a task at 8, and the code that stores a key of it at `r10 -
/// 8`.
fn keeping(kind: MapKind, to: u32) -> MapDef {
    let key_size = match kind {
        MapKind::Queue | MapKind::Stack | MapKind::BloomFilter => 0,
        MapKind::LpmTrie => 8,
        _ => 4,
    };
    let flags = if kind == MapKind::LpmTrie { MapFlags::NO_PREALLOC } else { MapFlags(0) };
    let fields = vec![SpecialField { kind: SpecialKind::KptrUntrusted { to }, offset: 8, size: 8 }];
    MapDef { flags, fields, ..MapDef::new("keeps", kind, key_size, 16, 4) }
}

/// If `writes`, writes a value with an address in place of the pointer; then reads through the pointer in the map.
fn forger(writes: bool) -> String {
    let address = SECRET.as_ptr().expose_provenance();
    let write = "r1 = map[0] ll
        r2 = r10
        r2 += -8
        r3 = r10
        r3 += -24
        r4 = 0
        call 2";
    format!(
        "*(u64 *)(r10 - 8) = 0
        r1 = {address} ll
        *(u64 *)(r10 - 24) = r1
        *(u64 *)(r10 - 16) = r1
        {}
        r1 = map[0] ll
        r2 = r10
        r2 += -8
        call 1
        if r0 == 0 goto none
        r1 = *(u64 *)(r0 + 8)
        if r1 == 0 goto null
        r0 = *(u32 *)(r1 + {{pid}})
        exit
  none: r0 = 1
        exit
  null: r0 = 2
        exit",
        if writes { write } else { "" }
    )
}

const NULL: u64 = 2;

fn forging(kind: MapKind, writes: bool) -> Result<Module, Error> {
    let types = types();
    let (id, offset) = task(&types);
    let text = forger(writes).replace("{pid}", &offset("pid").to_string());
    let bytes = encode_bytes(&assemble(&text).unwrap()).unwrap();
    let mut object = Object::from_bytecode_and_maps("forger", &XDP, &bytes, vec![keeping(kind, id)]).unwrap();
    object.set_host_types(types);
    Runtime::new().unwrap().load(&object)
}

/// No way to write a value lets a program store a forged pointer.
#[test]
fn kept_pointers_cannot_be_forged() {
    let keyed = [
        MapKind::Hash,
        MapKind::Array,
        MapKind::PercpuHash,
        MapKind::PercpuArray,
        MapKind::LruHash,
        MapKind::LruPercpuHash,
        MapKind::LpmTrie,
    ];
    let mut refused = Vec::new();
    for kind in keyed {
        for writes in [true, false] {
            let module = match forging(kind, writes) {
                Ok(module) => module,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("keeps") && text.contains("__kptr_untrusted pointer"), "{text}");
                    refused.push(kind);
                    continue;
                }
            };
            let map = &module.maps()[0];
            let secret = SECRET.as_ptr().expose_provenance() as u64;
            let value = secret.to_ne_bytes().repeat(map.host_value_size() / 8);
            let key = vec![0; map.def().key_size as usize];
            for engine in ENGINES {
                if !writes {
                    map.update(&key, &value, UpdateFlags::Any).unwrap();
                    map.update_batch([(&key, &value)], UpdateFlags::Any).unwrap();
                }
                let result = module.programs()[0].run_with(engine, &mut Packet::new(&[0; 64])).unwrap();
                assert_eq!(result, NULL, "{kind}, {engine:?}: something was read");
                assert_eq!(map.lookup(&key).unwrap().unwrap()[8..16], [0; 8], "{kind}: the host sees it");
            }
        }
    }
    assert_eq!(refused, [MapKind::LpmTrie; 2]);
}

/// Maps without keys have no values to look up, but a program could pop them as bytes.
#[test]
fn maps_that_copy_whole_values_hold_no_kept_pointers() {
    for kind in [MapKind::Queue, MapKind::Stack, MapKind::BloomFilter, MapKind::LpmTrie] {
        let bytes = encode_bytes(&assemble("r0 = 0\nexit").unwrap()).unwrap();
        let object = Object::from_bytecode_and_maps("holder", &RAW, &bytes, vec![keeping(kind, 1)]).unwrap();
        let error = Runtime::new().unwrap().linker(&object).buffer_len(8).load().unwrap_err();
        let Error::Map(MapError::FieldNotAllowed { kind: found, .. }) = &error else { panic!("{error}") };
        assert_eq!(*found, kind);
    }
}

/// A pointer stored by a verified store is visible to programs; the host reads zeroes.
#[test]
fn kept_pointers_are_visible_to_programs_but_not_to_the_host() {
    let types = types();
    let (id, offset) = task(&types);
    let text = "r6 = r1
        *(u32 *)(r10 - 4) = 0
        r1 = map[0] ll
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto out
        r7 = r0
        r8 = *(u64 *)(r7 + 8)
        r1 = *(u64 *)(r6 + 0)
        call 2000
        *(u64 *)(r7 + 8) = r0
        r0 = 0
        if r8 == 0 goto out
        r0 = *(u32 *)(r8 + {pid})
   out: exit"
        .replace("{pid}", &offset("pid").to_string());
    let bytes = encode_bytes(&assemble(&text).unwrap()).unwrap();
    let mut object =
        Object::from_bytecode_and_maps("keeper", &RAW, &bytes, vec![keeping(MapKind::Array, id)]).unwrap();
    object.set_host_types(types.clone());
    let module = runtime(text::Config::new()).linker(&object).buffer_len(16).load().unwrap();
    let task = made_up(77, 0, 0);
    let address = task.as_ptr().expose_provenance() as u64;
    assert_eq!(run(&module, Engine::Jit, address, 0), 0, "nothing was kept yet");
    for engine in ENGINES {
        assert_eq!(run(&module, engine, address, 0), 77, "{engine:?}");
        assert_eq!(module.maps()[0].lookup(&[0; 4]).unwrap().unwrap(), [0; 16], "{engine:?}");
    }
    // The object is freed, and the pointer stays: reading through it gives 0.
    run(&module, Engine::Jit, 64, 0);
    for engine in ENGINES {
        assert_eq!(run(&module, engine, 64, 0), 0, "{engine:?}");
    }
}

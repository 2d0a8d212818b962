//! Quotas: what a tenant takes is charged until its memory is free, and none of it can be hidden.

use skep::abi::{MapDef, MapFlags, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{
    Context, Engine, Error, Map, MapError, MapOptions, Module, Object, Packet, Quota, Resource, Runtime,
    Tenant, UpdateFlags,
};
use std::sync::Arc;

const OWNERS: &[u8] = include_bytes!("../objects/owners/owners.bpf.o");
const TREE: &[u8] = include_bytes!("../objects/arenas/tree.bpf.o");
const ALL: [Resource; 4] = [Resource::MapMemory, Resource::Maps, Resource::CodeMemory, Resource::Programs];

fn object(text: &str, maps: Vec<MapDef>) -> Object {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    Object::from_bytecode_and_maps("main", &RAW, &bytes, maps).unwrap()
}

fn with_map(def: MapDef) -> Object {
    object("r1 = map[0] ll\nr0 = 0\nexit", vec![def])
}

fn load(runtime: &Runtime, tenant: &Arc<Tenant>, object: &Object) -> Result<Module, Error> {
    runtime.linker(object).tenant(tenant).load()
}

fn used(tenant: &Tenant) -> [u64; 4] {
    ALL.map(|of| tenant.usage(of).used)
}

/// Waits until everything that was dropped is returned, as a load does.
fn settle(runtime: &Runtime, tenant: &Tenant) {
    settle_but(runtime, tenant, [0; 4]);
}

fn settle_but(runtime: &Runtime, tenant: &Tenant, expected: [u64; 4]) {
    for _ in 0..100 {
        runtime.synchronize().unwrap();
        runtime.arena().domain().barrier().unwrap();
        runtime.arena().reclaim();
        if used(tenant) == expected {
            return;
        }
    }
    assert_eq!(used(tenant), expected);
}

fn quota_of(error: Error) -> (String, &'static str, u64, u64, u64) {
    match error {
        Error::Quota { tenant, what, used, wanted, limit } => (tenant, what, used, wanted, limit),
        other => panic!("{other}"),
    }
}

#[test]
fn a_tenant_is_charged_for_all_that_a_load_makes_and_credited_in_the_end() {
    let runtime = Runtime::new().unwrap();
    let tenant = Tenant::new("t", Quota::new());
    let module = load(&runtime, &tenant, &with_map(MapDef::new("a", MapKind::Array, 4, 4096, 4))).unwrap();
    let memory = module.maps()[0].memory();
    let code = module.programs()[0].compiled().text().occupied() as u64;
    assert!(memory >= 4 * 4096 && code > 0);
    assert_eq!(used(&tenant), [memory, 1, code, 1]);
    let kept = Arc::clone(&module.maps()[0]);
    drop(module);
    settle_but(&runtime, &tenant, [memory, 1, 0, 0]);
    drop(kept);
    settle(&runtime, &tenant);
}

#[test]
fn a_refused_load_names_the_tenant_and_charges_nothing() {
    let runtime = Runtime::new().unwrap();
    let tenant = Tenant::new("t", Quota::new().map_memory(100_000).maps(1).programs(1));
    let big = with_map(MapDef::new("a", MapKind::Array, 4, 200_000, 1));
    let (name, what, used_now, wanted, limit) = quota_of(load(&runtime, &tenant, &big).unwrap_err());
    assert_eq!((&*name, what, used_now, limit), ("t", "bytes of maps", 0, 100_000));
    assert!(wanted >= 200_000);
    settle(&runtime, &tenant);
    let two = object(
        "r1 = map[0] ll\nr1 = map[1] ll\nr0 = 0\nexit",
        vec![MapDef::new("a", MapKind::Array, 4, 8, 1), MapDef::new("b", MapKind::Array, 4, 8, 1)],
    );
    assert_eq!(quota_of(load(&runtime, &tenant, &two).unwrap_err()), ("t".into(), "maps", 1, 1, 1));
    settle(&runtime, &tenant);
    tenant.set_limit(Resource::CodeMemory, 16);
    let error = load(&runtime, &tenant, &object("r0 = 0\nexit", vec![])).unwrap_err();
    assert_eq!(quota_of(error).1, "bytes of code");
    settle(&runtime, &tenant);
}

#[test]
fn a_program_that_takes_too_long_to_verify_for_its_tenant_is_refused() {
    let runtime = Runtime::new().unwrap();
    let tenant = Tenant::new("t", Quota::new().max_walked(10));
    let long = object(&format!("{}r0 = 0\nexit", "r1 = 1\n".repeat(20)), vec![]);
    assert!(matches!(load(&runtime, &tenant, &long), Err(Error::Refused(_))));
    runtime.load(&long).unwrap();
}

#[test]
fn loads_in_a_loop_under_a_quota_of_one_neither_leak_nor_fail() {
    let runtime = Runtime::new().unwrap();
    let object = with_map(MapDef::new("h", MapKind::Hash, 4, 64, 100));
    let tenant = Tenant::new("t", Quota::new());
    let fill = |module: &Module| {
        let map = &module.maps()[0];
        (0..100_u32).for_each(|key| map.update(&key.to_ne_bytes(), &[0; 64], UpdateFlags::Any).unwrap());
        module.programs()[0].run_raw(&mut []).unwrap();
    };
    let module = load(&runtime, &tenant, &object).unwrap();
    fill(&module);
    // Exactly room for one.
    ALL.iter().zip(used(&tenant)).for_each(|(of, used)| tenant.set_limit(*of, used));
    drop(module);
    for _ in 0..300 {
        let module = load(&runtime, &tenant, &object).unwrap_or_else(|error| panic!("{error}"));
        fill(&module);
    }
    settle(&runtime, &tenant);
}

#[test]
fn tenants_that_load_and_drop_in_a_hurry_on_four_threads_never_exceed_their_quotas() {
    let runtime = Runtime::new().unwrap();
    let object = with_map(MapDef::new("a", MapKind::Array, 4, 1000, 10));
    let tenant = Tenant::new("t", Quota::new());
    let module = load(&runtime, &tenant, &object).unwrap();
    // Exactly room for one.
    ALL.iter().zip(used(&tenant)).for_each(|(of, used)| tenant.set_limit(*of, used));
    drop(module);
    let loaded: usize = std::thread::scope(|scope| {
        let work = || (0..200).filter(|_| load(&runtime, &tenant, &object).is_ok()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(loaded > 0);
    for of in ALL {
        let usage = tenant.usage(of);
        assert!(0 < usage.peak && usage.peak <= usage.limit, "{of:?}: {usage:?}");
    }
    settle(&runtime, &tenant);
}

#[test]
fn a_run_that_is_in_the_code_keeps_it_charged() {
    let runtime = Runtime::new().unwrap();
    let tenant = Tenant::new("t", Quota::new());
    let module = load(&runtime, &tenant, &object("r0 = 0\nexit", vec![])).unwrap();
    let section = runtime.arena().domain().enter().unwrap();
    drop(module);
    runtime.arena().reclaim();
    assert!(tenant.usage(Resource::CodeMemory).used > 0, "a reader may be in it");
    // In a section a load does not wait, which would be for itself.
    tenant.set_limit(Resource::CodeMemory, tenant.usage(Resource::CodeMemory).used);
    let error = load(&runtime, &tenant, &object("r0 = 0\nexit", vec![])).unwrap_err();
    assert_eq!(quota_of(error).1, "bytes of code");
    drop(section);
    load(&runtime, &tenant, &object("r0 = 0\nexit", vec![])).unwrap();
}

#[test]
fn inner_maps_stay_charged_while_an_outer_map_holds_them() {
    let runtime = Runtime::new().unwrap();
    let tenant = Tenant::new("t", Quota::new().maps(4));
    let inner = MapDef::new("inner", MapKind::Array, 4, 1000, 1);
    let outer =
        MapDef { inner: Some(Box::new(inner.clone())), ..MapDef::new("outer", MapKind::HashOfMaps, 4, 4, 8) };
    let module = load(&runtime, &tenant, &with_map(outer)).unwrap();
    let table = module.map_hash("outer").unwrap();
    let options = MapOptions { cpus: 0, limit: u64::MAX };
    let create = || Map::create_in(&tenant.memory(&runtime), &inner, &options).map(Arc::new);
    let before = used(&tenant);
    for key in 0..3_u32 {
        // The attacker drops its own handle.
        table.set(&key.to_ne_bytes(), &create().unwrap()).unwrap();
    }
    assert_eq!(tenant.usage(Resource::Maps).used, 4);
    assert!(tenant.usage(Resource::MapMemory).used >= before[0] + 3 * 1000);
    let refused = create().unwrap_err();
    assert!(matches!(&refused, MapError::Quota { what: "maps", used: 4, limit: 4, .. }), "{refused}");
    // One that is replaced is charged until no run can have it.
    let section = runtime.arena().domain().enter().unwrap();
    drop(table.remove(&0_u32.to_ne_bytes()).unwrap());
    assert_eq!(tenant.usage(Resource::Maps).used, 4);
    drop(section);
    runtime.synchronize().unwrap();
    runtime.arena().domain().barrier().unwrap();
    assert_eq!(tenant.usage(Resource::Maps).used, 3);
    drop(module);
    settle(&runtime, &tenant);
}

#[test]
fn elements_that_come_and_go_are_charged_and_refused_with_the_quotas_error() {
    let runtime = Runtime::new().unwrap();
    for (kind, flags) in [
        (MapKind::Hash, MapFlags::NO_PREALLOC),
        (MapKind::Hash, MapFlags::default()),
        (MapKind::PercpuHash, MapFlags::NO_PREALLOC),
        (MapKind::LpmTrie, MapFlags::NO_PREALLOC),
    ] {
        let tenant = Tenant::new("t", Quota::new());
        let def = MapDef { flags, ..MapDef::new("m", kind, 8, 1000, 10_000) };
        let module = load(&runtime, &tenant, &with_map(def)).unwrap();
        let map = &module.maps()[0];
        assert_eq!(tenant.usage(Resource::MapMemory).used, map.memory());
        tenant.set_limit(Resource::MapMemory, map.memory() + 1_000_000);
        let value = vec![0; map.host_value_size()];
        let set = |key: u32| {
            let mut bytes = [32, 0, 0, 0, 0, 0, 0, 0];
            bytes[4..].copy_from_slice(&key.to_ne_bytes());
            map.update(&bytes, &value, UpdateFlags::Any)
        };
        let refused = (0..).find_map(|key| set(key).err()).unwrap();
        assert!(matches!(&refused, MapError::Quota { what: "bytes of maps", .. }), "{kind}: {refused}");
        assert_eq!(refused.errno(), 12, "ENOMEM");
        let usage = tenant.usage(Resource::MapMemory);
        assert!(usage.used == map.memory() && usage.peak <= usage.limit, "{kind}: {usage:?}");
        assert!(map.len() > 0, "{kind}");
        drop(module);
        settle(&runtime, &tenant);
    }
}

#[test]
fn pages_of_arenas_are_charged_until_their_memory_is_returned() {
    let runtime = Runtime::new().unwrap();
    let tenant = Tenant::new("t", Quota::new());
    let module = load(&runtime, &tenant, &Object::parse(TREE).unwrap()).unwrap();
    let (before, arena) =
        (tenant.usage(Resource::MapMemory).used, module.map("heap").unwrap().arena().unwrap());
    tenant.set_limit(Resource::MapMemory, before + 3 * 4096);
    let pages = arena.allocate(None, 3).unwrap();
    assert_eq!(tenant.usage(Resource::MapMemory).used, before + 3 * 4096);
    assert!(matches!(arena.allocate(None, 1), Err(MapError::Quota { .. })));
    // Freed pages are used again at once, without a second charge.
    for _ in 0..50 {
        arena.free(pages, 3).unwrap();
        assert_eq!(arena.allocate(None, 3).unwrap(), pages);
        assert!(tenant.usage(Resource::MapMemory).used <= before + 3 * 4096);
    }
    // A program finds no page, which it has to expect.
    let grow = module.program("grow").unwrap();
    for engine in [Engine::Jit, Engine::Interpreter] {
        assert_eq!(grow.run_context_with(engine, &mut Context::of(grow).unwrap()).unwrap(), 1);
    }
    arena.free(pages, 3).unwrap();
    for _ in 0..2000 {
        if tenant.usage(Resource::MapMemory).used <= before {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(tenant.usage(Resource::MapMemory).used, before);
    drop(module);
    settle(&runtime, &tenant);
}

#[test]
fn objects_that_programs_allocate_are_charged_to_their_own_tenant() {
    let runtime = Runtime::builder().cpus(4).build().unwrap();
    let tenants = [Tenant::new("a", Quota::new()), Tenant::new("b", Quota::new())];
    let object = Object::parse(OWNERS).unwrap();
    let modules = tenants.each_ref().map(|tenant| load(&runtime, tenant, &object).unwrap());
    let before = tenants.each_ref().map(|tenant| tenant.usage(Resource::MapMemory).used);
    let push = modules[0].program("push_front").unwrap();
    let refused = |tenant: &Tenant| tenant.usage(Resource::MapMemory).refused;
    tenants[0].set_limit(Resource::MapMemory, before[0] + 64 * 1024);
    for _ in 0..20_000 {
        push.run(&mut Packet::new(&[0; 64])).unwrap();
    }
    let after = tenants.each_ref().map(|tenant| tenant.usage(Resource::MapMemory).used);
    assert!(after[0] > before[0] && after[0] <= before[0] + 64 * 1024, "{before:?} {after:?}");
    assert_eq!(after[1], before[1]);
    assert!(refused(&tenants[0]) > 0 && refused(&tenants[1]) == 0);
    drop(modules);
    tenants.iter().for_each(|tenant| settle(&runtime, tenant));
}

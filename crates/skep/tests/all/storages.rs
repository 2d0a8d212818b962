//! Storages of sockets and of control groups.

use skep::abi::{MapDef, MapFlags, MapKind, ProgramType};
use skep::world::{Machine, Protocol, Socket, SocketState, World};
use skep::{Context, Engine, Map, Module, Object, Packet, Runtime, UpdateFlags};
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const ENOENT: i64 = -2;

fn of_sockets(value_size: u32) -> MapDef {
    let flags = MapFlags::NO_PREALLOC;
    MapDef { flags, ..MapDef::new("states", MapKind::SkStorage, 4, value_size, 0) }
}

fn world() -> (World, [Arc<Socket>; 2]) {
    let mut machine = Machine::new();
    let (local, remote) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:5000".parse().unwrap());
    let listening = machine.add_socket(Socket::listening(local)).unwrap();
    let connected = machine.add_socket(Socket::connected(Protocol::Tcp, local, remote)).unwrap();
    (World::new(machine), [listening, connected])
}

fn load(world: &World, section: &str, text: &str, maps: Vec<MapDef>) -> Result<Module, skep::Error> {
    let bytes = skep::isa::encode_bytes(&skep::isa::assemble(text).unwrap()).unwrap();
    let kind = ProgramType::from_name(section).unwrap();
    let object = Object::from_bytecode_and_maps("storages", kind, &bytes, maps)?;
    Runtime::builder().world(world).build()?.load(&object)
}

/// Gets the value of the packet's socket, counts its first word up and returns it; -1 where there is none.
fn counting(flags: u32, value: &str) -> String {
    format!(
        "r2 = *(u64 *)(r1 + 168)
         if r2 == 0 goto none
         r1 = map[0] ll
         {value}
         r4 = {flags}
         call sk_storage_get#107
         if r0 == 0 goto none
         r1 = *(u64 *)(r0 + 0)
         r1 += 1
         *(u64 *)(r0 + 0) = r1
         r0 = r1
         exit
   none: r0 = -1
         exit"
    )
}

fn run(module: &Module, engine: Engine, socket: Option<&Arc<Socket>>) -> i64 {
    let mut packet = Packet::new(&[0; 64]);
    packet.set_socket(socket.cloned());
    i64::from(module.programs()[0].run_with(engine, &mut packet).unwrap() as i32)
}

fn value(map: &Map, socket: &Socket) -> Option<u64> {
    let value = map.lookup(&(socket.cookie as u32).to_ne_bytes()).unwrap()?;
    Some(u64::from_ne_bytes(value[..8].try_into().unwrap()))
}

#[test]
fn each_socket_has_a_value_of_its_own_that_begins_with_zeroes() {
    for engine in ENGINES {
        let (world, [one, two]) = world();
        let module = load(&world, "tc", &counting(1, "r3 = 0"), vec![of_sockets(16)]).unwrap();
        assert_eq!([1, 2, 3].map(|_| run(&module, engine, Some(&one))), [1, 2, 3]);
        assert_eq!((run(&module, engine, Some(&two)), run(&module, engine, None)), (1, -1));
        let map = &module.maps()[0];
        assert_eq!((value(map, &one), value(map, &two), map.len()), (Some(3), Some(1), 2));
    }
}

#[test]
fn without_the_flag_no_value_is_made_and_other_flags_find_none() {
    let (world, [socket, _]) = world();
    let module = load(&world, "tc", &counting(0, "r3 = 0"), vec![of_sockets(8)]).unwrap();
    let map = &module.maps()[0];
    assert_eq!((run(&module, Engine::Jit, Some(&socket)), map.len()), (-1, 0));
    map.update(&(socket.cookie as u32).to_ne_bytes(), &9u64.to_ne_bytes(), UpdateFlags::Any).unwrap();
    assert_eq!(run(&module, Engine::Jit, Some(&socket)), 10);
    let module = load(&world, "tc", &counting(2, "r3 = 0"), vec![of_sockets(8)]).unwrap();
    assert_eq!(run(&module, Engine::Jit, Some(&socket)), -1);
}

#[test]
fn a_value_begins_with_what_the_program_says() {
    let (world, [socket, _]) = world();
    let first = "r3 = 41\n*(u64 *)(r10 - 8) = r3\nr3 = r10\nr3 += -8";
    let module = load(&world, "tc", &counting(1, first), vec![of_sockets(8)]).unwrap();
    assert_eq!([1, 2].map(|_| run(&module, Engine::Jit, Some(&socket))), [42, 43]);
}

#[test]
fn a_value_ends_with_its_socket_and_by_deletion() {
    let (world, [one, two]) = world();
    let module = load(&world, "tc", &counting(1, "r3 = 0"), vec![of_sockets(8)]).unwrap();
    let map = &module.maps()[0];
    for socket in [&one, &two] {
        run(&module, Engine::Jit, Some(socket));
    }
    world.change(|machine| Ok::<_, skep::Error>(machine.remove_socket(one.cookie))).unwrap();
    assert_eq!((value(map, &one), value(map, &two)), (None, Some(1)));
    let delete =
        "r2 = *(u64 *)(r1 + 168)\nif r2 == 0 goto end\nr1 = map[0] ll\ncall sk_storage_delete#108\nend: exit";
    let text = format!("r0 = 0\n{delete}");
    let bytes = skep::isa::encode_bytes(&skep::isa::assemble(&text).unwrap()).unwrap();
    let tc = ProgramType::from_name("tc").unwrap();
    let object = Object::from_bytecode_and_maps("deletes", tc, &bytes, vec![of_sockets(8)]).unwrap();
    let runtime = Runtime::builder().world(&world).build().unwrap();
    let deletes = runtime.load(&object).unwrap();
    for engine in ENGINES {
        deletes.maps()[0].update(&(two.cookie as u32).to_ne_bytes(), &[1; 8], UpdateFlags::Any).unwrap();
        assert_eq!([1, 2].map(|_| run(&deletes, engine, Some(&two))), [0, ENOENT]);
    }
}

#[test]
fn only_full_sockets_have_values() {
    let (world, _) = world();
    let module = load(&world, "tc", &counting(1, "r3 = 0"), vec![of_sockets(8)]).unwrap();
    let mut waiting =
        Socket::connected(Protocol::Tcp, "10.0.0.1:80".parse().unwrap(), "10.0.0.3:1".parse().unwrap());
    waiting.cookie = 77;
    waiting.state = SocketState::TimeWait;
    assert_eq!(run(&module, Engine::Jit, Some(&Arc::new(waiting))), -1);
    // Without a number it cannot be told from others.
    let nobody = Socket::bound("10.0.0.1:53".parse().unwrap());
    assert_eq!(run(&module, Engine::Jit, Some(&Arc::new(nobody))), -1);
}

#[test]
fn threads_that_make_a_value_at_once_get_one() {
    const THREADS: usize = 4;
    let (world, [socket, _]) = world();
    let text = counting(1, "r3 = 0").replace(
        "r1 = *(u64 *)(r0 + 0)\n         r1 += 1\n         *(u64 *)(r0 + 0) = r1\n         r0 = r1",
        "r1 = 1\nlock *(u64 *)(r0 + 0) += r1\nr0 = 0",
    );
    assert!(text.contains("lock"));
    let module = load(&world, "tc", &text, vec![of_sockets(8)]).unwrap();
    for _ in 0..50 {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| assert_eq!(run(&module, Engine::Jit, Some(&socket)), 0));
            }
        });
        let map = &module.maps()[0];
        assert_eq!((value(map, &socket), map.len()), (Some(THREADS as u64), 1));
        map.delete(&(socket.cookie as u32).to_ne_bytes()).unwrap();
    }
}

#[test]
fn a_context_that_is_a_socket_has_a_value() {
    let (world, [socket, _]) = world();
    let text =
        counting(1, "r3 = 0").replace("r2 = *(u64 *)(r1 + 168)", "r2 = r1").replace("r0 = r1", "r0 = 1");
    let text = text.replace("if r2 == 0 goto none\n", "").replace("r0 = -1", "r0 = 0");
    let module = load(&world, "cgroup/sock_create", &text, vec![of_sockets(8)]).unwrap();
    for engine in ENGINES {
        let mut context = Context::of(&module.programs()[0]).unwrap();
        context.set_socket("sk", Some(Arc::clone(&socket))).unwrap();
        assert_eq!(module.programs()[0].run_context_with(engine, &mut context).unwrap(), 1);
    }
    assert_eq!(value(&module.maps()[0], &socket), Some(2));
}

#[test]
fn what_is_no_socket_has_no_storage() {
    let (world, _) = world();
    for (text, expected) in [
        ("r2 = r1\nr1 = map[0] ll\nr3 = 0\nr4 = 1\ncall 107\nr0 = 0\nexit", "sk_storage_get"),
        ("r2 = *(u64 *)(r1 + 168)\nr1 = map[0] ll\nr3 = 0\nr4 = 1\ncall 107\nr0 = 0\nexit", "null"),
        (
            "r2 = *(u64 *)(r1 + 168)\nif r2 == 0 goto +4\nr1 = map[0] ll\nr3 = 4096\nr4 = 1\ncall 107\nr0 = 0\nexit",
            "sk_storage_get",
        ),
        ("*(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\nr0 = 0\nexit", "sk_storage"),
    ] {
        let error = load(&world, "tc", text, vec![of_sockets(8)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn hostile_definitions_of_storages_are_refused() {
    let sockets = of_sockets(8);
    let groups = |key, entries| MapDef::new("groups", MapKind::CgroupStorage, key, 8, entries);
    for (def, expected) in [
        (MapDef { flags: MapFlags(0), ..sockets.clone() }, "BPF_F_NO_PREALLOC"),
        (MapDef { max_entries: 5, ..sockets.clone() }, "leave it at 0"),
        (MapDef { key_size: 8, ..sockets.clone() }, "key size 8"),
        (MapDef { value_size: 0, ..sockets.clone() }, "value size 0"),
        (MapDef { flags: MapFlags(1 | 1 << 7), ..sockets.clone() }, "0x80"),
        (MapDef { extra: 1, ..sockets }, "map_extra"),
        (groups(4, 0), "bpf_cgroup_storage_key"),
        (groups(16, 1), "leave it at 0"),
    ] {
        let error = Map::create(&def, &skep::MapOptions { cpus: 1, limit: 1 << 20 }).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Counts up in the storage of the program's cgroup.
const IN_GROUP: &str = "r1 = map[0] ll\nr2 = 0\ncall get_local_storage#81\nr1 = *(u64 *)(r0 + 0)\nr1 += 1\n\
                        *(u64 *)(r0 + 0) = r1\nr0 = 1\nexit";

#[test]
fn a_control_group_has_a_value_for_each_attachment() {
    let (world, _) = world();
    for (kind, copies) in [(MapKind::CgroupStorage, 1), (MapKind::PercpuCgroupStorage, 4)] {
        for engine in ENGINES {
            let def = MapDef::new("groups", kind, 16, 8, 0);
            let text = IN_GROUP;
            let bytes = skep::isa::encode_bytes(&skep::isa::assemble(text).unwrap()).unwrap();
            let egress = ProgramType::from_name("cgroup_skb/egress").unwrap();
            let object = Object::from_bytecode_and_maps("counts", egress, &bytes, vec![def]).unwrap();
            let runtime = Runtime::builder().world(&world).cpus(copies).build().unwrap();
            let module = runtime.load(&object).unwrap();
            for cgroup in [7, 7, 9] {
                let mut packet = Packet::new(&[0; 64]);
                packet.set_attach_cgroup(cgroup);
                assert_eq!(module.programs()[0].run_with(engine, &mut packet).unwrap(), 1);
            }
            let map = &module.maps()[0];
            let key = |cgroup: u64| [cgroup.to_ne_bytes(), u64::to_ne_bytes(1)].concat();
            let sum = |cgroup: u64| {
                let value = map.lookup(&key(cgroup)).unwrap().unwrap();
                assert_eq!(value.len(), 8 * copies as usize);
                value.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).sum::<u64>()
            };
            assert_eq!((sum(7), sum(9)), (2, 1), "{kind} {engine:?}");
            assert_eq!(map.lookup(&key(8)).unwrap(), None);
            let value = vec![3; map.host_value_size()];
            map.update(&key(9), &value, UpdateFlags::Any).unwrap();
            let error = map.update(&key(9), &value, UpdateFlags::NoExist).unwrap_err();
            assert!(error.to_string().contains("bpf_get_local_storage"), "{error}");
            assert_eq!(map.update(&key(8), &value, UpdateFlags::Any).unwrap_err().errno(), 2);
            let error = map.delete(&key(9)).unwrap_err();
            assert!(error.to_string().contains("storage cannot be deleted"), "{error}");
        }
    }
}

#[test]
fn a_key_without_an_attachment_stands_for_all_of_them() {
    let (world, _) = world();
    let def = MapDef::new("groups", MapKind::CgroupStorage, 8, 8, 0);
    let module = load(&world, "cgroup/sock_create", IN_GROUP, vec![def]).unwrap();
    let mut context = Context::of(&module.programs()[0]).unwrap();
    context.set_attach_cgroup(5);
    module.programs()[0].run_context(&mut context).unwrap();
    let value = module.maps()[0].lookup(&5u64.to_ne_bytes()).unwrap().unwrap();
    assert_eq!(value, 1u64.to_ne_bytes());
}

#[test]
fn without_memory_a_program_gets_the_value_of_no_group() {
    let (world, _) = world();
    let def = MapDef::new("groups", MapKind::CgroupStorage, 8, 4096, 0);
    let bytes = skep::isa::encode_bytes(&skep::isa::assemble(IN_GROUP).unwrap()).unwrap();
    let egress = ProgramType::from_name("cgroup_skb/egress").unwrap();
    let object = Object::from_bytecode_and_maps("counts", egress, &bytes, vec![def]).unwrap();
    let runtime = Runtime::builder().world(&world).cpus(1).map_memory(8 << 20).build().unwrap();
    let module = runtime.load(&object).unwrap();
    let mut packet = Packet::new(&[0; 64]);
    for cgroup in 1..5000 {
        packet.set_attach_cgroup(cgroup);
        assert_eq!(module.programs()[0].run(&mut packet).unwrap(), 1);
    }
    let map = &module.maps()[0];
    let of_none = map.lookup(&[0; 8]).unwrap().unwrap();
    let extra = u64::from_ne_bytes(of_none[..8].try_into().unwrap());
    assert!(extra > 0 && extra + u64::from(map.len()) - 1 == 4999, "{extra} and {}", map.len());
}

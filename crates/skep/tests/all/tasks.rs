//! The current task, control groups and memory of a world, as programs see them.

use skep::abi::{MapDef, MapKind, ProgramType};
use skep::isa::{assemble, encode_bytes};
use skep::world::{Cgroup, Machine, Socket, Task};
use skep::{Context, Engine, Member, Object, Packet, Program, Runtime, UpdateFlags, World};
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const ENOENT: i64 = -2;
const E2BIG: i64 = -7;
const EAGAIN: i64 = -11;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const ERANGE: i64 = -34;
/// An address of the machine's kernel, and one of a process.
const KERNEL: u64 = 0xffff_8880_0000_1000;
const USER: u64 = 0x7fff_0000_1000;

fn kind(name: &str) -> &'static ProgramType {
    ProgramType::from_name(name).unwrap()
}

/// Cgroup 1 is the root, with 2 in it, in which 3 is; 9 and 8 are in each other.
fn machine() -> Machine {
    let mut machine = Machine::new();
    for (id, parent) in [(1, None), (2, Some(1)), (3, Some(2)), (8, Some(9)), (9, Some(8))] {
        machine.cgroups.insert(id, Cgroup { id, parent, ..Cgroup::default() });
    }
    machine.task = Some(Task {
        pid: 7,
        tgid: 5,
        uid: 1000,
        gid: 100,
        comm: "a-very-long-name-indeed".into(),
        cgroup: 3,
        ..Task::default()
    });
    machine.memory.add(KERNEL, *b"kernel\0...").unwrap();
    machine.memory.add(KERNEL + 10, *b"more").unwrap();
    machine.memory.add(USER, *b"user\0").unwrap();
    machine
}

fn load(world: &World, section: &str, text: &str) -> (Program, skep::Module) {
    let runtime = Runtime::builder().world(world).privileged(true).build().unwrap();
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let groups = MapDef::new("groups", MapKind::CgroupArray, 4, 4, 3);
    let object = Object::from_bytecode_and_maps("asks", kind(section), &bytes, [groups]).unwrap();
    let module = runtime.load(&object).unwrap();
    for (index, id) in [(0u32, 2u64), (1, 8)] {
        let set = module.maps()[0].set_member(
            &index.to_ne_bytes(),
            Member::new(id, Arc::new(())),
            UpdateFlags::Any,
        );
        set.unwrap();
    }
    (module.programs()[0].clone(), module)
}

/// The result of a program of a tracepoint, which must be the same in both engines.
fn ask(world: &World, text: &str) -> i64 {
    let (program, _module) = load(world, "tracepoint", text);
    let results = ENGINES.map(|engine| {
        let mut context = Context::of(&program).unwrap();
        context.set_bytes(b"0123456\0 bytes of the record").unwrap();
        program.run_context_with(engine, &mut context).unwrap() as i64
    });
    assert_eq!(results[0], results[1]);
    results[0]
}

#[test]
fn the_task_is_the_worlds() {
    let world = World::new(machine());
    assert_eq!(ask(&world, "call 14\nexit"), 5 << 32 | 7);
    assert_eq!(ask(&world, "call 15\nexit"), 100 << 32 | 1000);
    assert_eq!(ask(&world, "call 80\nexit"), 3);
    let levels = [0, 1, 2, 3, -1].map(|level| ask(&world, &format!("r1 = {level}\ncall 123\nexit")));
    assert_eq!(levels, [1, 2, 3, 0, 0]);
    let nobody = World::new(Machine::new());
    let asked = [14, 15, 80].map(|helper| ask(&nobody, &format!("call {helper}\nexit")));
    assert_eq!(asked, [EINVAL, EINVAL, 0]);
}

#[test]
fn a_name_is_cut_and_padded() {
    let name = |world: &World, len: u32, word: i32| {
        let text = format!(
            "*(u64 *)(r10 - 24) = -1\n*(u64 *)(r10 - 16) = -1\n*(u64 *)(r10 - 8) = -1
             r1 = r10\nr1 += -24\nr2 = {len}\ncall 16\nr0 = *(u64 *)(r10 - {word})\nexit"
        );
        (ask(world, &text) as u64).to_ne_bytes()
    };
    let world = World::new(machine());
    assert_eq!(&name(&world, 16, 24), b"a-very-l");
    assert_eq!(&name(&world, 16, 16), b"ong-nam\0");
    assert_eq!(&name(&world, 24, 8), &[0; 8], "beyond the name");
    assert_eq!(&name(&world, 4, 24), b"a-v\0\xff\xff\xff\xff", "no byte behind the memory");
    assert_eq!(&name(&World::new(Machine::new()), 16, 24), &[0; 8], "without a task");
}

#[test]
fn cgroups_are_compared_along_their_parents() {
    let world = World::new(machine());
    let task = |index: u32| ask(&world, &format!("r1 = map[0] ll\nr2 = {index}\ncall 37\nexit"));
    assert_eq!([0, 1, 2, 3].map(task), [1, 0, EAGAIN, E2BIG]);

    let packet = |cgroup: Option<u64>, text: &str| {
        let (program, _module) = load(&world, "tc", text);
        let results = ENGINES.map(|engine| {
            let mut packet = Packet::new(&[0; 60]);
            packet.set_socket(cgroup.map(|cgroup| {
                let mut socket = Socket::bound("10.0.0.1:53".parse().unwrap());
                socket.cgroup = cgroup;
                Arc::new(socket)
            }));
            i64::from(program.run_with(engine, &mut packet).unwrap() as i32)
        });
        assert_eq!(results[0], results[1]);
        results[0]
    };
    let under = |of, index: u32| packet(of, &format!("r2 = map[0] ll\nr3 = {index}\ncall 33\nexit"));
    assert_eq!([0, 1, 2, 3].map(|index| under(Some(3), index)), [1, 0, EAGAIN, E2BIG]);
    assert_eq!((under(Some(1), 0), under(None, 0)), (0, ENOENT));
    assert_eq!(under(Some(9), 1), 1, "numbers that go in a circle end");
    assert_eq!((packet(Some(3), "call 79\nexit"), packet(None, "call 79\nexit")), (3, 0));
    let level = |of, level: i32| packet(of, &format!("r2 = {level}\ncall 83\nexit"));
    assert_eq!([0, 1, 2, 3, -1].map(|at| level(Some(3), at)), [1, 2, 3, 0, 0]);
    assert_eq!(level(None, 0), 0);
}

/// Calls a helper on 16 bytes of the stack, all ones, and returns its result and those bytes.
fn probe(world: &World, helper: u32, len: u32, address: &str) -> (i64, [u8; 16]) {
    let text = |end: &str| {
        format!(
            "r6 = r1\n*(u64 *)(r10 - 16) = -1\n*(u64 *)(r10 - 8) = -1
             r1 = r10\nr1 += -16\nr2 = {len}\n{address}\ncall {helper}\n{end}\nexit"
        )
    };
    let result = ask(world, &text(""));
    let low = ask(world, &text("r0 = *(u64 *)(r10 - 16)")).to_ne_bytes();
    let high = ask(world, &text("r0 = *(u64 *)(r10 - 8)")).to_ne_bytes();
    (result, [low, high].concat().try_into().unwrap())
}

#[test]
fn memory_is_read_where_the_world_has_it_and_faults_elsewhere() {
    let world = World::new(machine());
    let at = |address: u64| format!("r3 = {address} ll");
    let ones = |bytes: &[u8]| {
        let mut all = [0xff; 16];
        all[..bytes.len()].copy_from_slice(bytes);
        all
    };
    for helper in [4, 113] {
        assert_eq!(
            probe(&world, helper, 12, &at(KERNEL)),
            (0, ones(b"kernel\0...mo")),
            "{helper}: two parts"
        );
        assert_eq!(probe(&world, helper, 5, &at(KERNEL + 10)), (EFAULT, ones(&[0; 5])), "{helper}: a gap");
        assert_eq!(probe(&world, helper, 0, &at(KERNEL + 10)), (0, [0xff; 16]), "{helper}: nothing");
    }
    for helper in [4, 112] {
        assert_eq!(probe(&world, helper, 5, &at(USER)), (0, ones(b"user\0")), "{helper}");
    }
    let (sleeps, _module) = load(
        &world,
        "syscall",
        &format!("r1 = r10\nr1 += -8\nr2 = 4\nr3 = {USER} ll\ncall 148\nr0 = *(u32 *)(r10 - 8)\nexit"),
    );
    for engine in ENGINES {
        let read = sleeps.run_context_with(engine, &mut Context::of(&sleeps).unwrap()).unwrap();
        assert_eq!(read as u32, u32::from_ne_bytes(*b"user"));
    }
    assert_eq!(probe(&world, 112, 4, &at(KERNEL)), (EFAULT, ones(&[0; 4])), "a kernel's address");
    assert_eq!(probe(&world, 113, 4, &at(USER)), (ERANGE, ones(&[0; 4])), "a process's address");
    // The stack, the program, null and the host's own memory.
    let host = Box::new([0x41u8; 16]);
    for address in ["r3 = r10".to_owned(), at(0), at(host.as_ptr().addr() as u64)] {
        assert_eq!(probe(&world, 4, 8, &address), (EFAULT, ones(&[0; 8])), "{address}");
    }
}

#[test]
fn strings_end_with_a_zero_and_say_how_long_they_are() {
    let world = World::new(machine());
    let at = |address: u64| format!("r3 = {address} ll");
    let text = |helper, len, address: u64| {
        let (result, bytes) = probe(&world, helper, len, &at(address));
        (result, bytes[..result.max(0) as usize].to_vec())
    };
    for helper in [45, 115] {
        assert_eq!(text(helper, 16, KERNEL), (7, b"kernel\0".to_vec()));
        assert_eq!(text(helper, 7, KERNEL), (7, b"kernel\0".to_vec()));
        assert_eq!(text(helper, 3, KERNEL), (3, b"ke\0".to_vec()));
        assert_eq!(text(helper, 1, KERNEL), (1, b"\0".to_vec()));
        assert_eq!(text(helper, 0, KERNEL), (0, Vec::new()));
        assert_eq!(text(helper, 16, KERNEL + 7), (EFAULT, Vec::new()), "it never ends");
    }
    assert_eq!(text(114, 16, USER), (5, b"user\0".to_vec()));
    assert_eq!(text(114, 16, KERNEL).0, EFAULT);
}

#[test]
fn a_record_is_read_by_its_address_and_not_beyond_it() {
    let world = World::new(Machine::new());
    let record = |offset: i32| format!("r3 = r6\nr3 += {offset}");
    let (result, bytes) = probe(&world, 113, 8, &record(9));
    assert_eq!((result, &bytes[..8]), (0, &b"bytes of"[..]));
    let (result, bytes) = probe(&world, 115, 16, &record(2));
    assert_eq!((result, &bytes[..6]), (6, &b"23456\0"[..]));
    assert_eq!(probe(&world, 113, 8, &record(-1)).0, ERANGE, "it is no address of a kernel");
    assert_eq!(probe(&world, 4, 16, &record(1 << 16)).0, EFAULT);
}

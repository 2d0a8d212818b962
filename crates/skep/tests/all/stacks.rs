//! Stacks of the world's task: as bytes, and as numbers in maps of stacks.

use skep::abi::{MapDef, MapKind, ProgramType};
use skep::world::{Machine, Task, World};
use skep::{Context, Engine, Map, Object, Program, Runtime, UpdateFlags};
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const EFAULT: i64 = -14;
const EEXIST: i64 = -17;
const EINVAL: i64 = -22;
const USER: u64 = 1 << 8;
const BY_HASH: u64 = 1 << 9;
const REPLACE: u64 = 1 << 10;
const BUILD_ID: u64 = 1 << 11;

fn world(kernel_stack: &[u64], user_stack: &[u64]) -> World {
    let mut machine = Machine::new();
    machine.task = Some(Task {
        pid: 7,
        tgid: 5,
        address: 0xffff_8880_0000_1000,
        kernel_stack: kernel_stack.to_vec(),
        user_stack: user_stack.to_vec(),
        pid_namespace: Some((4, 0xf000_0001)),
        ..Task::default()
    });
    World::new(machine)
}

fn load(world: &World, text: &str, maps: Vec<MapDef>) -> (Program, Vec<Arc<Map>>) {
    let bytes = skep::isa::encode_bytes(&skep::isa::assemble(text).unwrap()).unwrap();
    let kind = ProgramType::from_name("kprobe").unwrap();
    let object = Object::from_bytecode_and_maps("stacks", kind, &bytes, maps).unwrap();
    let runtime = Runtime::builder().world(world).build().unwrap();
    let module = runtime.load(&object).unwrap_or_else(|error| panic!("{error}\n{text}"));
    (module.programs()[0].clone(), module.maps().to_vec())
}

fn run(program: &Program, fill: impl Fn(&mut Context)) -> i64 {
    let results = ENGINES.map(|engine| {
        let mut context = Context::of(program).unwrap();
        fill(&mut context);
        program.run_context_with(engine, &mut context).unwrap() as i64
    });
    assert_eq!(results[0], results[1]);
    results[0]
}

fn traces(value_size: u32, max_entries: u32) -> MapDef {
    MapDef::new("traces", MapKind::StackTrace, 4, value_size, max_entries)
}

/// Asks for 32 bytes of a stack, and returns the result or the word at that offset.
fn word(world: &World, flags: u64, size: u32, offset: Option<u32>) -> i64 {
    let load_word = offset.map_or(String::new(), |offset| format!("r0 = *(u64 *)(r10 - {})", 64 - offset));
    let text = format!(
        "r2 = r10\nr2 += -64\nr3 = {size}\nr4 = {flags}\ncall get_stack#67\nif r0 s< 0 goto end\n{load_word}\nend: exit"
    );
    run(&load(world, &text, Vec::new()).0, |_| {})
}

#[test]
fn a_stack_is_the_worlds_without_the_addresses_that_are_skipped() {
    let world = world(&[0x11, 0x22, 0x33], &[0xaa, 0xbb]);
    assert_eq!(word(&world, 0, 32, None), 24);
    assert_eq!(word(&world, 0, 16, None), 16, "as many as there is room for");
    assert_eq!([0, 8, 16, 24].map(|at| word(&world, 0, 32, Some(at))), [0x11, 0x22, 0x33, 0]);
    assert_eq!([0, 8].map(|at| word(&world, 2, 32, Some(at))), [0x33, 0]);
    assert_eq!([0, 8, 16].map(|at| word(&world, USER, 32, Some(at))), [0xaa, 0xbb, 0]);
    assert_eq!((word(&world, 3, 32, None), word(&world, 4, 32, None)), (0, EFAULT));
}

#[test]
fn addresses_without_a_file_say_so_where_build_identifiers_are_asked_for() {
    let world = world(&[1], &[0xaa, 0xbb]);
    assert_eq!(word(&world, USER | BUILD_ID, 64, None), 64);
    assert_eq!([0, 24, 32, 56].map(|at| word(&world, USER | BUILD_ID, 64, Some(at))), [2, 0xaa, 2, 0xbb]);
    assert_eq!(word(&world, USER | BUILD_ID, 40, None), EINVAL, "whole records only");
    assert_eq!(word(&world, BUILD_ID, 64, None), EINVAL, "of processes only");
}

#[test]
fn flags_that_linux_does_not_know_are_refused() {
    let world = world(&[1], &[2]);
    for flags in [BY_HASH, REPLACE, 1 << 12] {
        assert_eq!(word(&world, flags, 32, None), EINVAL, "{flags:#x}");
    }
    let (program, _) = load(&world, &numbered(BUILD_ID | USER), vec![traces(64, 8)]);
    assert_eq!(run(&program, |_| {}), EINVAL);
    assert_eq!(word(&World::new(Machine::new()), 0, 32, None), EFAULT, "there is no task");
}

fn numbered(flags: u64) -> String {
    format!("r2 = map[0] ll\nr3 = {flags}\ncall get_stackid#27\nexit")
}

#[test]
fn equal_stacks_have_one_number_in_every_runtime() {
    let stacks = [&[1, 2, 3][..], &[1, 2], &[2, 1], &[3]];
    let ids = stacks.map(|stack| {
        let world = world(stack, &[]);
        let (program, maps) = load(&world, &numbered(0), vec![traces(64, 1 << 20)]);
        let id = run(&program, |_| {});
        assert_eq!(id, run(&program, |_| {}));
        let key = (id as u32).to_ne_bytes();
        let mut expected = [0; 64];
        for (to, from) in expected.chunks_exact_mut(8).zip(stack) {
            to.copy_from_slice(&u64::to_ne_bytes(*from));
        }
        assert_eq!(maps[0].lookup(&key).unwrap().unwrap(), expected);
        assert_eq!(maps[0].next_key(None).unwrap().unwrap(), key);
        maps[0].delete(&key).unwrap();
        assert_eq!(maps[0].len(), 0);
        id
    });
    assert!(ids.iter().all(|id| (0..1 << 20).contains(id)), "{ids:?}");
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
}

#[test]
fn only_as_many_addresses_are_kept_as_values_have_room_for() {
    let deep: Vec<u64> = (1..200).collect();
    let world = world(&deep, &[]);
    let (program, maps) = load(&world, &numbered(1), vec![traces(24, 4)]);
    let id = run(&program, |_| {}) as u32;
    let value = maps[0].lookup(&id.to_ne_bytes()).unwrap().unwrap();
    assert_eq!(value, [2u64, 3, 4].map(u64::to_ne_bytes).concat());
    assert_eq!(
        run(&load(&world, &numbered(127), vec![traces(24, 4)]).0, |_| {}),
        EFAULT,
        "127 are looked at"
    );
}

#[test]
fn another_stack_takes_a_number_only_if_it_is_asked_for() {
    // One number for all.
    let world = world(&[1, 2], &[8, 9]);
    let text = format!(
        "r6 = r1\nr2 = map[0] ll\nr3 = {USER}\ncall get_stackid#27\nr1 = r6\nr6 = r0\n{}",
        numbered(0)
    );
    let (first, maps) = load(&world, &text, vec![traces(16, 1)]);
    assert_eq!(run(&first, |_| {}), EEXIST, "the process's stack has it");
    let value = |maps: &[Arc<Map>]| maps[0].lookup(&[0; 4]).unwrap().unwrap();
    assert_eq!(value(&maps), [8u64, 9].map(u64::to_ne_bytes).concat());
    let (second, maps) =
        load(&world, &text.replace("r3 = 0", &format!("r3 = {REPLACE}")), vec![traces(16, 1)]);
    assert_eq!(run(&second, |_| {}), 0);
    assert_eq!(value(&maps), [1u64, 2].map(u64::to_ne_bytes).concat());
}

#[test]
fn the_host_does_not_write_stacks() {
    let (_, maps) = load(&world(&[1], &[]), &numbered(0), vec![traces(16, 4)]);
    let error = maps[0].update(&[0; 4], &[0; 16], UpdateFlags::Any).unwrap_err();
    assert_eq!(error.errno(), 22);
    assert!(error.to_string().contains("bpf_get_stackid"), "{error}");
}

#[test]
fn a_map_of_stacks_has_whole_addresses_and_room_for_one() {
    for (def, expected) in [
        (traces(12, 4), "at most 127"),
        (traces(0, 4), "at most 127"),
        (traces(8 * 128, 4), "at most 127"),
        (traces(16, 0), "max_entries"),
        (MapDef::new("traces", MapKind::StackTrace, 8, 16, 4), "4: a u32 index"),
    ] {
        let error = Map::create(&def, &skep::MapOptions { cpus: 1, limit: 1 << 20 }).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn programs_reach_stacks_by_no_other_call() {
    for call in ["lookup_elem#1", "delete_elem#3"] {
        let text = format!(
            "r2 = 0\n*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall {call}\nr0 = 0\nexit"
        );
        let bytes = skep::isa::encode_bytes(&skep::isa::assemble(&text).unwrap()).unwrap();
        let kind = ProgramType::from_name("kprobe").unwrap();
        let object = Object::from_bytecode_and_maps("stacks", kind, &bytes, vec![traces(16, 4)]).unwrap();
        let error = Runtime::new().unwrap().load(&object).unwrap_err().to_string();
        assert!(error.contains("stack_trace"), "{error}");
    }
}

#[test]
fn the_task_has_an_address_and_numbers_in_its_namespace() {
    let world = world(&[], &[]);
    let (program, _) = load(&world, "call get_current_task#35\nexit", Vec::new());
    assert_eq!(run(&program, |_| {}) as u64, 0xffff_8880_0000_1000);
    let ask = |device: u32, inode: u32, size: u32| {
        let text = format!(
            "w1 = {device}\nw2 = {inode}\nr3 = r10\nr3 += -16\nr4 = {size}\ncall get_ns_current_pid_tgid#120\n\
             if r0 != 0 goto end\nr0 = *(u64 *)(r10 - 16)\nend: exit"
        );
        run(&load(&world, &text, Vec::new()).0, |_| {})
    };
    assert_eq!(ask(4, 0xf000_0001, 8), 5 << 32 | 7);
    assert_eq!((ask(4, 1, 8), ask(4, 0xf000_0001, 16)), (EINVAL, EINVAL));
}

#[test]
fn a_probe_knows_the_function_that_the_host_says() {
    let (program, _) = load(&world(&[], &[]), "call get_func_ip#173\nexit", Vec::new());
    assert_eq!(run(&program, |context| context.set_func_ip(0x1234)), 0x1234);
    assert_eq!(run(&program, |_| {}), 0);
}

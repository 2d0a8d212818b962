//! Links to probes, as a client makes them that has no perf events.

use super::SysEngine;
use super::tests::{Attr, Process};
use crate::world::{Fired, Function, Machine, ProbePoint, Registers};
use crate::{Runtime, World};
use skep_sys::{Command, Errno, System};

const KPROBE: u32 = 2;
const KPROBE_MULTI: u32 = 42;
const KPROBE_SESSION: u32 = 56;
const RETURN: u32 = 1;

fn with_probes() -> (Process, World) {
    let mut machine = Machine::new();
    for (name, address) in [("late", 0xffff_ffff_8200_0000), ("early", 0xffff_ffff_8100_0000)] {
        machine.probes.add_function(Function { name: name.to_owned(), address, size: 64 }).unwrap();
    }
    let world = World::new(machine);
    let runtime = Runtime::builder().cpus(2).privileged(true).world(&world).build().unwrap();
    (Process::of(System::new(SysEngine::new(runtime, Some(world.clone())))), world)
}

impl Process {
    fn probe(&mut self, expected: u32, result: i32) -> i32 {
        let insns = skep_isa::assemble(&format!("r0 = {result}\nexit")).unwrap();
        let insns = skep_isa::encode_bytes(&insns).unwrap();
        let (at, licence) = (self.put(&insns), self.put(b"GPL\0"));
        let attr = Attr::default().u32(0, KPROBE).u32(4, insns.len() as u32 / 8).u64(8, at);
        self.call(Command::ProgLoad, &attr.u64(16, licence).u32(68, expected).u32(140, 0)).unwrap() as i32
    }

    fn watch(&mut self, program: i32, as_type: u32, flags: u32, names: &[&str]) -> Result<i32, Errno> {
        let texts: Vec<u64> = names.iter().map(|name| self.put(format!("{name}\0").as_bytes())).collect();
        let bytes: Vec<u8> = texts.iter().flat_map(|at| at.to_ne_bytes()).collect();
        let (names, count) = (self.put(&bytes), texts.len() as u32);
        let cookies: Vec<u8> = (1..=u64::from(count)).flat_map(u64::to_ne_bytes).collect();
        let cookies = self.put(&cookies);
        let attr = Attr::default().u32(0, program as u32).u32(8, as_type).u32(16, flags).u32(20, count);
        let attr = attr.u64(24, names).u64(32, 0).u64(40, cookies);
        self.call(Command::LinkCreate, &attr).map(|link| link as i32)
    }
}

fn fire(world: &World, name: &str) -> u64 {
    let (point, registers) = (&ProbePoint::function(name), &Registers::new());
    world.fire(Fired::Call { point, registers, result: 0 }, None).unwrap().programs
}

#[test]
fn a_link_to_many_functions_tells_their_addresses_in_order_with_their_cookies() {
    let (mut process, world) = with_probes();
    process.sees_addresses = true;
    let program = process.probe(KPROBE_MULTI, 0);
    let link = process.watch(program, KPROBE_MULTI, RETURN, &["late", "early"]).unwrap();
    assert_eq!((fire(&world, "late"), fire(&world, "early")), (1, 1));
    let (addresses, cookies) = (process.put(&[0; 16]), process.put(&[0; 16]));
    let mut asked = [0u8; 64];
    asked[16..24].copy_from_slice(&addresses.to_ne_bytes());
    asked[24] = 2;
    asked[40..48].copy_from_slice(&cookies.to_ne_bytes());
    let room = process.put(&asked);
    let attr = Attr::default().u32(0, link as u32).u32(4, 64).u64(8, room);
    process.call(Command::ObjGetInfoByFd, &attr).unwrap();
    let word = |process: &Process, at: u64| {
        let at = (at - super::tests::BASE) as usize;
        u64::from_ne_bytes(process.memory[at..at + 8].try_into().unwrap())
    };
    let both = |at| [word(&process, at), word(&process, at + 8)];
    assert_eq!(both(addresses), [0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000]);
    assert_eq!(both(cookies), [2, 1]);
    // How many there are, and the flags.
    assert_eq!(word(&process, room + 24), 2 | u64::from(RETURN) << 32);
    process.descriptors.remove(&link);
    assert_eq!((fire(&world, "late"), fire(&world, "early")), (0, 0));
}

#[test]
fn sessions_run_twice_unless_their_program_says_no() {
    let (mut process, world) = with_probes();
    for (result, runs) in [(0, 2), (1, 1)] {
        let program = process.probe(KPROBE_SESSION, result);
        let link = process.watch(program, KPROBE_SESSION, 0, &["early"]).unwrap();
        assert_eq!(fire(&world, "early"), runs);
        process.descriptors.remove(&link);
    }
}

#[test]
fn links_that_fit_no_function_are_refused() {
    let (mut process, _world) = with_probes();
    let (many, session, plain) =
        (process.probe(KPROBE_MULTI, 0), process.probe(KPROBE_SESSION, 0), process.probe(0, 0));
    for (program, as_type, flags, names, error) in [
        (many, KPROBE_MULTI, 0, &["bogus"][..], Errno::ESRCH),
        (many, KPROBE_MULTI, 2, &["early"], Errno::EINVAL),
        (many, KPROBE_MULTI, 0, &["early", "early"], Errno::EINVAL),
        (many, KPROBE_MULTI, 0, &[], Errno::EINVAL),
        (many, KPROBE_SESSION, 0, &["early"], Errno::EINVAL),
        (plain, KPROBE_MULTI, 0, &["early"], Errno::EINVAL),
        (session, KPROBE_SESSION, RETURN, &["early"], Errno::EINVAL),
    ] {
        assert_eq!(process.watch(program, as_type, flags, names), Err(error), "{as_type} {flags} {names:?}");
    }
}

//! Programs of type `syscall` make system calls for their client: what light skeletons do.

use super::tests::{Attr, Process};
use skep_sys::{Command, Errno, Object};

const SYSCALL: u32 = 31;
const SLEEPABLE: u32 = 1 << 4;
/// Numbers of the helpers.
const SYS_BPF: u32 = 166;
const SYS_CLOSE: u32 = 168;

/// A `syscall` program in which loads of 64 bits are addresses of the blob's value.
fn load(process: &mut Process, text: &str, blob: i32) -> i32 {
    let mut insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    for insn in insns.chunks_exact_mut(8) {
        // BPF_PSEUDO_MAP_VALUE.
        if insn[0] == 0x18 {
            insn[1] |= 2 << 4;
            insn[4..8].copy_from_slice(&blob.to_ne_bytes());
        }
    }
    let (at, licence, log) = (process.put(&insns), process.put(b"GPL\0"), process.put(&[0; 4096]));
    let attr = Attr::default().u32(0, SYSCALL).u32(4, insns.len() as u32 / 8).u64(8, at).u64(16, licence);
    let attr = attr.u32(24, 1).u32(28, 4096).u64(32, log).u32(44, SLEEPABLE).u32(140, 0);
    let loaded = process.call(Command::ProgLoad, &attr);
    let said = String::from_utf8_lossy(process.get(log, 4096)).into_owned();
    loaded.unwrap_or_else(|error| panic!("{error}: {}", said.trim_end_matches('\0'))) as i32
}

/// An array with one value: these bytes.
fn blob(process: &mut Process, bytes: &[u8]) -> i32 {
    let map = process.map(2, 4, bytes.len() as u32, 1).unwrap();
    process.update(map, &[0; 4], bytes, 0).unwrap();
    map
}

/// Runs it on a context of 16 bytes: its result, and the context afterwards.
fn run(process: &mut Process, program: i32) -> (i32, Vec<u8>) {
    let context = process.put(&[0; 16]);
    let attr = Attr::default().u32(0, program as u32).u32(40, 16).u64(48, context).u32(76, 0);
    process.call(Command::ProgTestRun, &attr).unwrap();
    (process.answer(4) as i32, process.get(context, 16).to_vec())
}

/// Instructions that make a system call with attributes at that place of the blob.
fn call(command: u32, offset: u32, size: u32) -> String {
    format!("r1 = {command}\nr2 = 0 ll\nr2 += {offset}\nr3 = {size}\ncall sys_bpf#{SYS_BPF}\n")
}

#[test]
fn a_program_makes_maps_and_fills_them_and_its_client_has_the_descriptors() {
    let mut process = Process::new();
    // Attributes of a map at 0, of an update at 32 with key and value at 96.
    let map = Attr::default().u32(0, 1).u32(4, 4).u32(8, 8).u32(12, 4);
    let bytes = map.bytes(96, &7u32.to_ne_bytes()).u64(104, 99).0;
    let blob = blob(&mut process, &bytes);
    let text = format!(
        "r6 = r1\n{}*(u32 *)(r6 + 0) = r0\nr7 = r0\n\
         r8 = 0 ll\n*(u32 *)(r8 + 32) = r7\nr1 = r8\nr1 += 96\n*(u64 *)(r8 + 40) = r1\n\
         r1 += 8\n*(u64 *)(r8 + 48) = r1\n{}*(u32 *)(r6 + 4) = r0\n\
         {}r9 = r0\nr1 = r9\ncall sys_close#{SYS_CLOSE}\n*(u32 *)(r6 + 8) = r0\nr1 = r9\ncall sys_close#{SYS_CLOSE}\n\
         *(u32 *)(r6 + 12) = r0\nr0 = 0\nexit",
        call(0, 0, 16),
        call(2, 32, 32),
        call(0, 0, 16),
    );
    let program = load(&mut process, &text, blob);
    let before = process.descriptors.len();
    let (result, context) = run(&mut process, program);
    let word = |at: usize| i32::from_ne_bytes(context[at..at + 4].try_into().unwrap());
    assert_eq!((result, word(4), word(8), word(12)), (0, 0, 0, -Errno::EBADF.0));
    let map = word(0);
    assert!(map > 0);
    assert_eq!(process.descriptors.len(), before + 1, "the second map is closed");
    assert_eq!(process.lookup(map, &7u32.to_ne_bytes(), 8).unwrap(), 99u64.to_ne_bytes());
}

#[test]
fn a_program_cannot_give_addresses_that_are_not_its_own() {
    let mut process = Process::new();
    let own = process.map(1, 4, 8, 4).unwrap();
    // The client's memory, the null page, the end of all addresses, where attributes are.
    let secret = process.put(&[7; 16]);
    for address in [secret, 0, 1, 8, u64::MAX - 7, u64::MAX << 16, 1 << 47, &raw const secret as u64] {
        let bytes = Attr::default().u32(0, own as u32).u64(8, address).u64(16, address).u64(24, 0).0;
        let blob = blob(&mut process, &bytes);
        let program = load(&mut process, &format!("{}exit", call(2, 0, 32)), blob);
        let (result, _) = run(&mut process, program);
        // Attributes may name themselves: these are the program's own bytes.
        let wanted = if address == u64::MAX << 16 { 0 } else { -Errno::EFAULT.0 };
        assert_eq!(result, wanted, "{address:#x}");
    }
    // Bytes that leave the value.
    let bytes = Attr::default().u32(0, own as u32).u64(24, 0).0;
    let blob = blob(&mut process, &bytes);
    let text = format!(
        "r8 = 0 ll\nr1 = r8\nr1 += 28\n*(u64 *)(r8 + 8) = r1\n*(u64 *)(r8 + 16) = r1\n{}exit",
        call(2, 0, 32)
    );
    let program = load(&mut process, &text, blob);
    assert_eq!(run(&mut process, program).0, -Errno::EFAULT.0);
}

#[test]
fn a_program_gives_only_commands_that_linux_lets_it_give() {
    let mut process = Process::new();
    let blob = blob(&mut process, &[0; 160]);
    for command in (0..40).filter(|command| ![0, 2, 3, 5, 14, 17, 18, 22, 28].contains(command)) {
        let program = load(&mut process, &format!("{}exit", call(command, 0, 152)), blob);
        assert_eq!(run(&mut process, program).0, -Errno::EINVAL.0, "{command}");
    }
    let before = process.descriptors.len();
    // Its client's own descriptors stay open.
    let text = format!("r1 = {blob}\ncall sys_close#{SYS_CLOSE}\nexit");
    let program = load(&mut process, &text, blob);
    assert_eq!(run(&mut process, program).0, -Errno::EBADF.0);
    assert_eq!(process.descriptors.len(), before + 1);
    assert!(process.descriptors.values().all(|handle| !matches!(handle.object(), Object::Btf(_))));
}

#[test]
fn a_program_copies_memory_of_its_client() {
    let mut process = Process::new();
    let secret = process.put(b"of the client...");
    let bytes = Attr::default().u64(0, secret).u64(8, 3).0;
    let blob = blob(&mut process, &bytes);
    let copy = |at: u32| {
        format!(
            "r6 = r1\nr1 = r10\nr1 += -16\nr2 = 16\nr3 = 0 ll\nr3 = *(u64 *)(r3 + {at})\ncall copy_from_user#148\n\
             r1 = *(u64 *)(r10 - 16)\n*(u64 *)(r6 + 0) = r1\nr1 = *(u64 *)(r10 - 8)\n*(u64 *)(r6 + 8) = r1\nexit"
        )
    };
    let program = load(&mut process, &copy(0), blob);
    assert_eq!(run(&mut process, program), (0, b"of the client...".to_vec()));
    let program = load(&mut process, &copy(8), blob);
    assert_eq!(run(&mut process, program), (-Errno::EFAULT.0, vec![0; 16]), "and nothing else");
}

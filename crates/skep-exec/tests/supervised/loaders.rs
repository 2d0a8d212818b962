//! Loader programs: they make objects for the application, which finds the descriptors when the run has ended.

use super::mapped::{close, map};
use super::{bpf, first_map, lookup, soon, supervised, update};

const SYSCALL: u64 = 31;
const SLEEPABLE: u64 = 1 << 4;

/// Two maps, of which it closes one; the other's number goes to the context.
const TEXT: &str = "
    r6 = r1
    r1 = 0
    r2 = 0 ll
    r3 = 16
    call sys_bpf#166
    *(u32 *)(r6 + 0) = r0
    r1 = 0
    r2 = 0 ll
    r3 = 16
    call sys_bpf#166
    *(u32 *)(r6 + 4) = r0
    r1 = r0
    call sys_close#168
    *(u32 *)(r6 + 8) = r0
    r0 = 0
    exit";

pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "loads by a program" => {
            // The attributes of a hash table.
            let blob = map(2, 4, 16, 1, 0);
            let (key, value) = (0u32, [1u32, 4, 8, 8]);
            let (key, value) = (&raw const key as u64, value.as_ptr() as u64);
            bpf(2, &[(0, blob as u64, 4), (8, key, 8), (16, value, 8)]).unwrap();
            let mut insns = skep::isa::encode_bytes(&skep::isa::assemble(TEXT).unwrap()).unwrap();
            for insn in insns.chunks_exact_mut(8).filter(|insn| insn[0] == 0x18) {
                insn[1] |= 2 << 4;
                insn[4..8].copy_from_slice(&blob.to_ne_bytes());
            }
            let (count, at, licence) =
                (insns.len() as u64 / 8, insns.as_ptr() as u64, c"GPL".as_ptr() as u64);
            let fields = [(0, SYSCALL, 4), (4, count, 4), (8, at, 8), (16, licence, 8), (44, SLEEPABLE, 4)];
            let program = bpf(5, &fields).unwrap();
            let mut context = [0i32; 4];
            let at = context.as_mut_ptr() as u64;
            let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let before = open();
            assert_eq!(bpf(10, &[(0, program as u64, 4), (40, 16, 4), (48, at, 8)]), Ok(0));
            let [made, closed, answer, _] = context;
            assert!((3..896).contains(&made) && (3..896).contains(&closed), "{context:?}");
            assert_eq!((answer, open()), (0, before + 1), "one is closed, and one is left");
            update(made, 1, 99).unwrap();
            assert_eq!(lookup(made, 1), Ok(99));
            assert_eq!(lookup(closed, 1), Err(libc::EBADF));
            // SAFETY: a number.
            assert_eq!(unsafe { libc::fcntl(made, libc::F_GETFD) }, libc::FD_CLOEXEC);
            [made, blob, program as i32].into_iter().for_each(close);
            assert!(soon(|| first_map() == Err(libc::ENOENT)), "nobody holds them");
        }
        _ => return false,
    }
    true
}

#[test]
fn descriptors_that_a_program_makes_are_its_clients_when_it_has_ended() {
    let Some((status, traced, _)) = supervised("loads by a program") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

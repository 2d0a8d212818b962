//! Applications with the library that answers look-ups and updates in arrays.
//!
//! What it has answered is not traced. Batches always reach the supervisor: they show what its side of a map holds.

use super::{Ran, bpf, first_map, forked, lookup, raw, soon, supervise, update, wait};
use skep_exec::{FrontChoice, possible_cpus};
use std::sync::atomic::{AtomicBool, Ordering};

const ARRAY: u64 = 2;
const PERCPU_ARRAY: u64 = 6;
const RDONLY: u64 = 1 << 3;
const WRONLY: u64 = 1 << 4;
const RDONLY_PROG: u64 = 1 << 7;
const MMAPABLE: u64 = 1 << 10;

fn map(kind: u64, value: u64, entries: u64, flags: u64) -> i32 {
    bpf(0, &[(0, kind, 4), (4, 4, 4), (8, value, 4), (12, entries, 4), (16, flags, 4)]).unwrap() as i32
}

/// A command about an element, with attributes as libbpf passes them.
pub(super) fn element(command: u32, map: i32, key: u32, value: &mut [u8], flags: u64) -> Result<(), i32> {
    at(command, map, &raw const key as u64, value.as_mut_ptr() as u64, flags)
}

pub(super) fn at(command: u32, map: i32, key: u64, value: u64, flags: u64) -> Result<(), i32> {
    let attributes = [map as u32 as u64, key, value, flags];
    raw(command, attributes.as_ptr() as u64, 32).map(|answer| assert_eq!(answer, 0))
}

/// All values, as the supervisor has them.
fn batch(map: i32, bytes: usize, entries: u64) -> Vec<u8> {
    let (mut keys, mut values, mut position) = (vec![0u32; entries as usize], vec![0u8; bytes], 0u32);
    let _end = bpf(
        24,
        &[
            (8, &raw mut position as u64, 8),
            (16, keys.as_mut_ptr() as u64, 8),
            (24, values.as_mut_ptr() as u64, 8),
            (32, entries, 4),
            (36, map as u64, 4),
        ],
    );
    values
}

fn close(file: i32) {
    // SAFETY: a descriptor of this test.
    unsafe { libc::close(file) };
}

fn replace(file: i32, by: i32) {
    // SAFETY: numbers; both are this test's.
    assert_eq!(unsafe { libc::dup2(by, file) }, file);
}

/// Lines of `/proc/self/maps` with maps' files.
pub(super) fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("/memfd:bpf-map")).count()
}

/// What the supervised application does.
pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "shares arrays" => shares_arrays(),
        "asks for errors" => asks_for_errors(),
        "fools the library" => fools_the_library(),
        "forks and threads" => forks_and_threads(),
        "creates many" => creates_many(),
        "creates from threads" => creates_from_threads(),
        "filters itself" => filters_itself(),
        "starts closed" => {
            // The first files that are opened get descriptors 0 to 2.
            (0..3).for_each(close);
            let array = map(ARRAY, 8, 4, 0);
            assert!(update(array, 1, 5).is_ok() && lookup(array, 1) == Ok(5));
            assert_eq!((mapped(), array), (1, 0));
        }
        _ => return false,
    }
    true
}

fn shares_arrays() {
    for size in [1, 4, 7, 8, 12, 33, 256, 5000] {
        for flags in [0, MMAPABLE, RDONLY_PROG] {
            let array = map(ARRAY, size as u64, 5, flags);
            let value: Vec<u8> = (0..size).map(|at| at as u8 ^ 0x5a).collect();
            element(2, array, 3, &mut value.clone(), 0).unwrap();
            element(2, array, 3, &mut value.clone(), 2).unwrap();
            let mut all = vec![0; size * 5];
            all[size * 3..size * 4].copy_from_slice(&value);
            assert_eq!(batch(array, size * 5, 5), all, "{size}, {flags:#x}");
            let mut found = vec![0xee; size + 8];
            element(1, array, 3, &mut found, 0).unwrap();
            assert_eq!((&found[..size], &found[size..]), (&value[..], &[0xee; 8][..]), "{size}, {flags:#x}");
            element(1, array, 4, &mut found, 0).unwrap();
            assert_eq!(&found[..size], &vec![0; size][..]);
            close(array);
        }
        let cpus = possible_cpus().unwrap() as usize;
        let (array, padded) = (map(PERCPU_ARRAY, size as u64, 3, 0), size.next_multiple_of(8));
        let mut value: Vec<u8> = (0..padded * cpus).map(|at| at as u8 ^ 0x33).collect();
        element(2, array, 1, &mut value, 0).unwrap();
        // The padding of each value is zero.
        let kept = |at: usize| if at % padded < size { value[at] } else { 0 };
        let kept: Vec<u8> = (0..value.len()).map(kept).collect();
        let mut found = vec![0xee; padded * cpus];
        element(1, array, 1, &mut found, 0).unwrap();
        assert_eq!(found, kept, "{size}");
        assert_eq!(batch(array, padded * cpus * 3, 3)[padded * cpus..padded * cpus * 2], kept);
        close(array);
    }
}

fn asks_for_errors() {
    let array = map(ARRAY, 8, 4, 0);
    let mut value = [1u8; 8];
    element(2, array, 0, &mut value, 0).unwrap();
    assert_eq!(mapped(), 1);
    assert_eq!(element(1, array, 4, &mut value, 0), Err(libc::ENOENT));
    assert_eq!(element(2, array, 4, &mut value, 0), Err(libc::E2BIG));
    assert_eq!(element(2, array, 0, &mut value, 1), Err(libc::EEXIST));
    assert_eq!(element(2, array, 0, &mut value, 3), Err(libc::EINVAL));
    assert_eq!(element(2, array, 0, &mut value, 4), Err(libc::EINVAL), "it has no lock");
    assert_eq!(element(1, array, 0, &mut value, 4), Err(libc::EINVAL));
    assert_eq!(element(1, array, 0, &mut value, 2), Err(libc::EINVAL));
    assert_eq!(element(1, -1, 0, &mut value, 0), Err(libc::EBADF));
    // Wild addresses.
    let (zero, constant) = (0u32, c"constant".as_ptr() as u64);
    let (key, good) = (&raw const zero as u64, value.as_mut_ptr() as u64);
    for wild in [0, 1, 1 << 47, u64::MAX - 3, u64::MAX - 4096] {
        for command in [1, 2] {
            assert_eq!(at(command, array, wild, good, 0), Err(libc::EFAULT), "{command}, {wild:#x}");
            assert_eq!(at(command, array, key, wild, 0), Err(libc::EFAULT), "{command}, {wild:#x}");
        }
        assert_eq!(raw(1, wild, 32), Err(libc::EFAULT));
    }
    assert_eq!(at(1, array, key, constant, 0), Err(libc::EFAULT), "what may only be read");
    assert_eq!(at(2, array, key, constant, 0), Ok(()));
    // Sizes of attributes.
    let mut attributes = [0u64; 20];
    attributes[..3].copy_from_slice(&[array as u64, key, good]);
    let address = attributes.as_mut_ptr() as u64;
    for (size, answer) in [(24, Ok(0)), (32, Ok(0)), (152, Ok(0)), (160, Ok(0)), (20, Err(libc::EFAULT))] {
        assert_eq!(raw(1, address, size), answer, "{size}");
    }
    attributes[4] = 1;
    let address = attributes.as_mut_ptr() as u64;
    assert_eq!(raw(1, address, 40), Err(libc::EINVAL), "a field that the command does not have");
    // Ways to open a map.
    let reader = map(ARRAY, 8, 1, RDONLY);
    assert_eq!(element(1, reader, 0, &mut value, 0), Ok(()));
    assert_eq!(element(2, reader, 0, &mut value, 0), Err(libc::EPERM));
    let writer = map(ARRAY, 8, 1, WRONLY);
    assert_eq!(element(1, writer, 0, &mut value, 0), Err(libc::EPERM));
    assert_eq!(element(2, writer, 0, &mut value, 0), Ok(()));
    let id = first_map().unwrap();
    let reader = bpf(14, &[(0, id.into(), 4), (8, RDONLY, 4)]).unwrap() as i32;
    assert_eq!(element(2, array, 1, &mut [9; 8], 0), Ok(()));
    assert_eq!(element(2, reader, 1, &mut value, 0), Err(libc::EPERM));
    assert_eq!((element(1, reader, 1, &mut value, 0), value), (Ok(()), [9; 8]));
    assert_eq!(mapped(), 1, "what may not be written through a descriptor is not mapped by it");
    // Frozen maps, and constants above all.
    for flags in [0, MMAPABLE, RDONLY_PROG, RDONLY_PROG | MMAPABLE] {
        let array = map(ARRAY, 8, 1, flags);
        assert_eq!(element(2, array, 0, &mut [7; 8], 0), Ok(()));
        assert_eq!((element(1, array, 0, &mut value, 0), value), (Ok(()), [7; 8]));
        assert_eq!(element(2, array, 0, &mut [6; 8], 0), Ok(()));
        assert_eq!((element(1, array, 0, &mut value, 0), value), (Ok(()), [6; 8]), "{flags:#x}");
        assert_eq!(element(2, array, 0, &mut [7; 8], 0), Ok(()));
        bpf(22, &[(0, array as u64, 4)]).unwrap();
        assert_eq!(element(2, array, 0, &mut [8; 8], 0), Err(libc::EPERM), "{flags:#x}");
        assert_eq!((element(1, array, 0, &mut value, 0), value), (Ok(()), [7; 8]));
    }
    // The errno of an earlier error stays.
    // SAFETY: this thread's own number.
    let errno = unsafe { &mut *libc::__errno_location() };
    *errno = 77;
    element(1, array, 0, &mut value, 0).unwrap();
    assert_eq!(*errno, 77);
}

fn fools_the_library() {
    let (one, other) = (map(ARRAY, 8, 4, 0), map(ARRAY, 8, 4, 0));
    update(one, 0, 1).unwrap();
    update(other, 0, 2).unwrap();
    let number = 200;
    replace(number, one);
    assert_eq!(lookup(number, 0), Ok(1));
    replace(number, other);
    assert_eq!(lookup(number, 0), Ok(2), "another map with the same number");
    update(number, 0, 3).unwrap();
    assert_eq!((lookup(one, 0), lookup(other, 0)), (Ok(1), Ok(3)));
    // SAFETY: a constant text.
    let null = unsafe { libc::open(c"/dev/zero".as_ptr(), libc::O_RDWR) };
    replace(number, null);
    assert_eq!(lookup(number, 0), Err(libc::EINVAL));
    // A file that is as long as it likes, and a position that looks like a map's.
    // SAFETY: a text and numbers.
    let plain = unsafe { libc::memfd_create(c"plain".as_ptr(), 0) };
    // SAFETY: numbers.
    let position = unsafe { libc::lseek(one, 0, libc::SEEK_CUR) };
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::lseek(plain, position + 7, libc::SEEK_SET) }, position + 7);
    assert_eq!(lookup(plain, 0), Err(libc::EINVAL));
    close(number);
    assert_eq!(lookup(number, 0), Err(libc::EBADF));
    // The position is gone: only the short way is.
    // SAFETY: numbers.
    unsafe { libc::lseek(one, 0, libc::SEEK_SET) };
    assert_eq!((update(one, 0, 8), lookup(one, 0)), (Ok(0), Ok(8)));
    // Maps end with their descriptors, although the library has mapped them.
    for flags in [0, MMAPABLE] {
        let array = map(ARRAY, 8, 4, flags);
        assert!(update(array, 0, 1).is_ok() && mapped() > 0);
        let id = (0..).scan(0, |id, _| next_map(*id).inspect(|next| *id = *next)).last().unwrap();
        close(array);
        assert!(soon(|| bpf(14, &[(0, id.into(), 4)]) == Err(libc::ENOENT)), "{flags:#x}");
    }
    // A map of the same number, by exec: the library begins anew.
    let arguments = [c"/bin/true".as_ptr(), std::ptr::null()];
    wait(forked(|| {
        // SAFETY: texts that end with zero, and a list that ends with null.
        unsafe { libc::execv(c"/bin/true".as_ptr(), arguments.as_ptr()) };
    }));
}

fn next_map(after: u32) -> Option<u32> {
    let mut attributes = [after, 0];
    raw(12, attributes.as_mut_ptr() as u64, 8).ok().map(|_| attributes[1])
}

fn forks_and_threads() {
    let array = map(ARRAY, 64, 8, 0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u8 {
            let stop = &stop;
            scope.spawn(move || {
                let mut round = writer;
                // Pairs with the store below.
                while !stop.load(Ordering::Acquire) {
                    round = round.wrapping_add(2);
                    element(2, array, 0, &mut [round; 64], 0).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let mut value = [0; 64];
                    element(1, array, 0, &mut value, 0).unwrap();
                    let words = value.chunks_exact(8);
                    assert!(
                        words.into_iter().all(|word| word.iter().all(|byte| *byte == word[0])),
                        "{value:?}"
                    );
                }
                // Pairs with the loads above.
                stop.store(true, Ordering::Release);
            });
        }
        // Children of a process whose threads are anywhere in the library.
        for round in 0..50u8 {
            wait(forked(|| {
                element(2, array, 1, &mut [round; 64], 0).unwrap();
                let mut value = [0; 64];
                element(1, array, 1, &mut value, 0).unwrap();
                assert_eq!(value, [round; 64]);
                let own = map(ARRAY, 8, 1, 0);
                assert_eq!((update(own, 0, 5), lookup(own, 0)), (Ok(0), Ok(5)));
            }));
            let mut value = [0; 64];
            element(1, array, 1, &mut value, 0).unwrap();
            assert_eq!(value, [round; 64], "what a child has written");
        }
    });
    // Descriptors that are replaced while others look up: the one map or the other.
    let (one, other) = (map(ARRAY, 8, 4, 0), map(ARRAY, 8, 4, 0));
    update(one, 0, 1).unwrap();
    update(other, 0, 2).unwrap();
    replace(201, one);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..20_000 {
                assert!(matches!(lookup(201, 0), Ok(1 | 2)));
            }
        });
        while !reader.is_finished() {
            replace(201, other);
            replace(201, one);
        }
    });
}

fn creates_many() {
    // More than the library knows at a time: those that have ended make room.
    let before = mapped();
    for round in 0..1500u64 {
        let array = map(ARRAY, 8, 4, 0);
        update(array, 1, round).unwrap();
        assert_eq!(lookup(array, 1), Ok(round));
        close(array);
    }
    assert!(mapped() < before + 300, "{} mappings are left", mapped());
    // Those that it has no room for are the supervisor's.
    let arrays: Vec<i32> = (0..400).map(|_| map(ARRAY, 8, 4, 0)).collect();
    for (round, array) in arrays.iter().enumerate() {
        update(*array, 1, round as u64).unwrap();
    }
    for (round, array) in arrays.iter().enumerate() {
        assert_eq!(lookup(*array, 1), Ok(round as u64));
    }
}

fn creates_from_threads() {
    let kept: Vec<i32> = (0..8).map(|_| map(ARRAY, 8, 4, 0)).collect();
    for (number, array) in kept.iter().enumerate() {
        update(*array, 0, number as u64).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Pairs with the store below.
                while !stop.load(Ordering::Acquire) {
                    for (number, array) in kept.iter().enumerate() {
                        assert_eq!(lookup(*array, 0), Ok(number as u64));
                    }
                }
            });
        }
        let creators = [1, 2, 3].map(|creator| {
            scope.spawn(move || {
                for round in 0..400 {
                    let array = map(ARRAY, 8, 4, 0);
                    update(array, 1, round * creator).unwrap();
                    assert_eq!((lookup(array, 1), lookup(array, 0)), (Ok(round * creator), Ok(0)));
                    close(array);
                }
            })
        });
        creators.into_iter().for_each(|creator| creator.join().unwrap());
        // Pairs with the loads above.
        stop.store(true, Ordering::Release);
    });
}

fn filters_itself() {
    let (array, later) = (map(ARRAY, 8, 4, 0), map(ARRAY, 8, 4, 0));
    assert!(update(array, 1, 7).is_ok() && mapped() == 1);
    // Kills who calls lseek(2) or madvise(2).
    let insn = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let equal = |number: libc::c_long, jt, jf| insn(libc::BPF_JMP | libc::BPF_JEQ, jt, jf, number as u32);
    let filter = [
        insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        equal(libc::SYS_lseek, 1, 0),
        equal(libc::SYS_madvise, 0, 1),
        insn(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        insn(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 5, filter: filter.as_ptr().cast_mut() };
    for by_prctl in [false, true] {
        let child = forked(|| {
            // SAFETY: the program lives.
            let done = unsafe {
                match by_prctl {
                    true => libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                        .into(),
                    false => {
                        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
                    }
                }
            };
            let right = done == 0 && lookup(array, 1) == Ok(7) && update(later, 1, 8) == Ok(0);
            // SAFETY: it ends, without a call that is forbidden.
            unsafe { libc::_exit(if right { 33 } else { 1 }) }
        });
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 33), "{status:#x}");
    }
    assert_eq!(lookup(later, 1), Ok(8));
}

/// How often the supervisor has answered that command.
pub(super) fn answered(traced: &[String], command: &str) -> usize {
    traced.iter().filter(|line| line.contains(&format!("bpf({command}, "))).count()
}

pub(super) fn preloaded(scenario: &str) -> Option<Ran> {
    if skep_preload::LIBRARY.is_none() {
        skep_testkit::skip("the library for applications", "it is not made for this target");
        return None;
    }
    supervise(scenario, FrontChoice::Preload, |run| run())
}

#[test]
fn arrays_are_read_and_written_without_the_supervisor() {
    let Some((status, traced, _)) = preloaded("shares arrays") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
    assert_eq!(answered(&traced, "BPF_MAP_LOOKUP_ELEM"), 0);
    // What programs take for constant is written by the supervisor alone.
    assert_eq!(answered(&traced, "BPF_MAP_UPDATE_ELEM"), 8 * 2);
}

#[test]
fn errors_are_those_of_the_supervisor() {
    let Some((status, traced, _)) = preloaded("asks for errors") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn a_descriptor_is_what_it_is_now_and_not_what_it_was() {
    let Some((status, traced, _)) = preloaded("fools the library") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn threads_and_forks_see_whole_words_of_each_other() {
    let Some((status, traced, _)) = preloaded("forks and threads") else { return };
    assert!(status.success(), "{status}");
    assert!(answered(&traced, "BPF_MAP_LOOKUP_ELEM") < 200, "most are answered by the library");
}

#[test]
fn maps_that_have_ended_make_room_in_the_library() {
    let Some((status, traced, _)) = preloaded("creates many") else { return };
    assert!(status.success(), "{status}");
    assert!(answered(&traced, "BPF_MAP_LOOKUP_ELEM") <= 400);
}

#[test]
fn maps_that_come_and_go_disturb_no_other() {
    let Some((status, ..)) = preloaded("creates from threads") else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn a_process_with_a_filter_of_its_own_is_left_to_the_supervisor() {
    let Some((status, traced, _)) = preloaded("filters itself") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn closed_standard_streams_are_no_obstacle() {
    let Some((status, traced, _)) = preloaded("starts closed") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

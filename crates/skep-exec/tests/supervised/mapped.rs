//! Maps that the application maps and waits for.

use super::{bpf, first_map, forked, raw, soon, supervised, wait};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const ARRAY: u64 = 2;
const RINGBUF: u64 = 27;
const USER_RINGBUF: u64 = 31;
const RDONLY_PROG: u64 = 1 << 7;
const MMAPABLE: u64 = 1 << 10;
const PAGE: usize = 4096;

pub(super) fn map(kind: u64, key: u64, value: u64, entries: u64, flags: u64) -> i32 {
    bpf(0, &[(0, kind, 4), (4, key, 4), (8, value, 4), (12, entries, 4), (16, flags, 4)]).unwrap() as i32
}

/// A shared mapping, or the error's number.
pub(super) fn mmap(file: i32, len: usize, protection: i32, offset: usize) -> Result<*mut u8, i32> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file, offset as i64) };
    if at == libc::MAP_FAILED {
        Err(io::Error::last_os_error().raw_os_error().unwrap())
    } else {
        Ok(at.cast())
    }
}

pub(super) fn unmap(at: *mut u8, len: usize) {
    // SAFETY: a mapping of this test.
    unsafe { libc::munmap(at.cast(), len) };
}

pub(super) fn close(file: i32) {
    // SAFETY: a descriptor of this test.
    unsafe { libc::close(file) };
}

pub(super) fn word(at: *mut u8, offset: usize) -> &'static AtomicU64 {
    // SAFETY: within a mapping that stays until the process ends, or is not used after its end.
    unsafe { &*at.add(offset).cast() }
}

const READ: i32 = libc::PROT_READ;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// What the supervised application does.
pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "maps arrays" => {
            let array = map(ARRAY, 4, 12, 1000, MMAPABLE);
            let values = mmap(array, 4 * PAGE, BOTH, 0).unwrap();
            let (key, value) = (3u32, [77u64; 2]);
            let (key, value) = (&raw const key as u64, value.as_ptr() as u64);
            bpf(2, &[(0, array as u64, 4), (8, key, 8), (16, value, 8)]).unwrap();
            assert_eq!(word(values, 3 * 16).load(Ordering::Relaxed), 77);
            word(values, 999 * 16).store(99, Ordering::Relaxed);
            assert_eq!(super::lookup_wide(array, 999), 99);
            wait(forked(|| word(values, 0).store(5, Ordering::Relaxed)));
            assert_eq!(super::lookup_wide(array, 0), 5, "a fork has the same mapping");
            close(array);
            assert!(first_map().is_ok(), "the mapping holds it");
            unmap(values, 4 * PAGE);
            assert!(soon(|| first_map() == Err(libc::ENOENT)));
        }
        "maps what it must not" => {
            let hash = super::hash();
            assert_eq!(mmap(hash, PAGE, READ, 0), Err(524), "ENOTSUPP");
            let plain = map(ARRAY, 4, 8, 10, 0);
            assert_eq!(mmap(plain, PAGE, READ, 0), Err(libc::EINVAL));
            let array = map(ARRAY, 4, 8, 10, MMAPABLE);
            assert_eq!(mmap(array, 2 * PAGE, READ, 0), Err(libc::EINVAL), "longer than the map");
            assert_eq!(mmap(array, PAGE, READ, PAGE), Err(libc::EINVAL));
            let written = mmap(array, PAGE, BOTH, 0).unwrap();
            assert_eq!(bpf(22, &[(0, array as u64, 4)]), Err(libc::EBUSY), "mapped for writing");
            let (mut reader, writer) = std::io::pipe().unwrap();
            let (stays, ends) = std::io::pipe().unwrap();
            let child = forked(|| {
                // It has a copy of the mapping until it is told to end.
                std::io::Write::write_all(&mut &writer, b"!").unwrap();
                close(std::os::fd::AsRawFd::as_raw_fd(&ends));
                let _end = std::io::Read::read(&mut &stays, &mut [0]);
            });
            std::io::Read::read_exact(&mut reader, &mut [0]).unwrap();
            unmap(written, PAGE);
            assert_eq!(bpf(22, &[(0, array as u64, 4)]), Err(libc::EBUSY), "by the child");
            drop(ends);
            wait(child);
            assert!(mmap(array, PAGE, READ, 0).is_ok());
            bpf(22, &[(0, array as u64, 4)]).unwrap();
            assert_eq!(mmap(array, PAGE, BOTH, 0), Err(libc::EPERM), "frozen");
            assert!(mmap(array, PAGE, READ, 0).is_ok());
            let constants = map(ARRAY, 4, 8, 10, MMAPABLE | RDONLY_PROG);
            assert_eq!(mmap(constants, PAGE, BOTH, 0), Err(libc::EACCES));
            let ring = map(RINGBUF, 0, 0, 4096, 0);
            assert_eq!(mmap(ring, PAGE, BOTH, PAGE), Err(libc::EPERM), "records are the programs'");
            assert_eq!(mmap(ring, 2 * PAGE, BOTH, 0), Err(libc::EPERM));
            assert!(mmap(ring, PAGE, BOTH, 0).is_ok());
            assert!(mmap(ring, 3 * PAGE, READ, PAGE).is_ok());
            assert_eq!(mmap(ring, 4 * PAGE, READ, PAGE), Err(libc::EINVAL));
            let requests = map(USER_RINGBUF, 0, 0, 4096, 0);
            assert_eq!(mmap(requests, PAGE, BOTH, 0), Err(libc::EPERM), "the position is the programs'");
            assert!(mmap(requests, PAGE, READ, 0).is_ok());
            assert!(mmap(requests, 3 * PAGE, BOTH, PAGE).is_ok());
            // Other files and other kinds of mappings are the kernel's.
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            assert!(mmap(std::os::fd::AsRawFd::as_raw_fd(&file), PAGE, READ, 0).is_ok());
        }
        "changes constants" => {
            // The mapping is made before the flag of the kernel's rule is known to anybody: through the open file
            // itself.
            let constants = map(ARRAY, 4, 8, 1, MMAPABLE | RDONLY_PROG);
            let path = format!("/proc/self/fd/{constants}\0");
            // SAFETY: a text that ends with zero.
            let again = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDWR) };
            assert!(again >= 0, "{}", io::Error::last_os_error());
            let one = 1u64;
            // SAFETY: eight bytes.
            assert_eq!(unsafe { libc::pwrite(again, (&raw const one).cast(), 8, 0) }, 8);
            assert_eq!(super::lookup(constants, 0), Ok(1));
            bpf(22, &[(0, constants as u64, 4)]).unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { libc::pwrite(again, (&raw const one).cast(), 8, 0) }, -1);
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: numbers.
            assert_eq!(unsafe { libc::fallocate(again, hole, 0, 4096) }, -1);
            // SAFETY: numbers.
            assert_eq!(unsafe { libc::ftruncate(again, 0) }, -1);
            assert_eq!(mmap(again, PAGE, BOTH, 0), Err(libc::EPERM));
            assert_eq!(super::lookup(constants, 0), Ok(1));
        }
        "waits for records" => waits_for_records(),
        _ => return false,
    }
    true
}

/// A program for raw tracepoints, which writes eight bytes to a ring buffer with these flags.
fn program(ring: i32, flags: u64) -> i32 {
    let insns: [u64; 10] = [
        0x7a | 10 << 8 | 0xfff8 << 16 | 42 << 32, // *(u64 *)(r10 - 8) = 42
        0x18 | 1 << 8 | 1 << 12 | (ring as u64) << 32,
        0,
        0xbf | 2 << 8 | 10 << 12,          // r2 = r10
        0x07 | 2 << 8 | 0xffff_fff8 << 32, // r2 -= 8
        0xb7 | 3 << 8 | 8 << 32,
        0xb7 | 4 << 8 | flags << 32,
        0x85 | 130 << 32, // bpf_ringbuf_output
        0xb7,
        0x95,
    ];
    let (text, at) = (c"GPL".as_ptr() as u64, insns.as_ptr() as u64);
    bpf(5, &[(0, 17, 4), (4, 10, 4), (8, at, 8), (16, text, 8)]).unwrap() as i32
}

fn run(program: i32) {
    // BPF_PROG_TEST_RUN of a raw tracepoint.
    bpf(10, &[(0, program as u64, 4)]).unwrap();
}

fn waits_for_records() {
    let ring = map(RINGBUF, 0, 0, 4096, 0);
    let (usual, silent) = (program(ring, 0), program(ring, 1));
    let consumer = mmap(ring, PAGE, BOTH, 0).unwrap();
    let producer = mmap(ring, 3 * PAGE, READ, PAGE).unwrap();
    // SAFETY: a number.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0x1234_5678_9abc_def0 };
    let mut change = |operation, file| {
        // SAFETY: an event that lives.
        let done = unsafe { libc::epoll_ctl(epoll, operation, file, &raw mut event) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap()) }
    };
    let waited = |milliseconds| {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        // SAFETY: room for four events.
        let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 4, milliseconds) };
        assert!(count <= 1);
        (count == 1).then(|| (events[0].events, events[0].u64))
    };
    let take = || {
        let mut position = word(consumer, 0).load(Ordering::Acquire);
        let mut taken = 0;
        while position < word(producer, 0).load(Ordering::Acquire) {
            let at = PAGE + position as usize % 4096;
            // SAFETY: within the mapping.
            let header = unsafe { &*producer.add(at).cast::<AtomicU32>() }.load(Ordering::Acquire);
            assert_eq!((header, word(producer, at + 8).load(Ordering::Relaxed)), (8, 42));
            position += 16;
            word(consumer, 0).store(position, Ordering::Release);
            taken += 1;
        }
        taken
    };
    change(libc::EPOLL_CTL_ADD, ring).unwrap();
    assert_eq!(change(libc::EPOLL_CTL_ADD, ring), Err(libc::EEXIST));
    assert_eq!(change(libc::EPOLL_CTL_ADD, usual), Err(libc::EPERM), "no program can be waited for");
    assert_eq!(waited(0), None);
    run(usual);
    let ready = Some((libc::EPOLLIN as u32, 0x1234_5678_9abc_def0));
    assert_eq!(waited(5000), ready);
    assert_eq!(take(), 1);
    run(silent);
    assert_eq!(waited(60), None, "nobody is woken for it");
    assert_eq!(take(), 1);
    // A record that is left is told of again.
    run(usual);
    assert_eq!(waited(5000), ready);
    assert_eq!(waited(5000), ready);
    assert_eq!(take(), 1);
    // A thread that waits while another one runs the program.
    let waits = std::thread::spawn(move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for an event.
        unsafe { libc::epoll_wait(epoll, &raw mut event, 1, 10_000) }
    });
    std::thread::sleep(std::time::Duration::from_millis(30));
    run(usual);
    assert_eq!(waits.join().unwrap(), 1);
    change(libc::EPOLL_CTL_DEL, ring).unwrap();
    assert_eq!(change(libc::EPOLL_CTL_DEL, ring), Err(libc::ENOENT));
    assert_eq!(change(libc::EPOLL_CTL_ADD, 999), Err(libc::EBADF));
    assert_eq!(raw(0, 1, 72), Err(libc::EFAULT), "and calls are served as ever");
}

#[test]
fn arrays_are_mapped_and_mappings_hold_them() {
    let Some((status, traced, _)) = supervised("maps arrays") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn mappings_are_refused_as_linux_refuses_them() {
    let Some((status, traced, _)) = supervised("maps what it must not") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn a_process_cannot_change_frozen_constants_by_any_door() {
    let Some((status, traced, _)) = supervised("changes constants") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn epoll_tells_of_records() {
    let Some((status, traced, _)) = supervised("waits for records") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

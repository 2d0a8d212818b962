//! Perf events that the application opens for the samples of programs.

use super::mapped::{close, map, mmap, unmap, word};
use super::{bpf, first_map, forked, possible_cpus, raw, soon, supervised, wait};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

const PERF_EVENT_ARRAY: u64 = 4;
const PRESERVE_ELEMS: u64 = 1 << 11;
const PAGE: usize = 4096;
const READ: i32 = libc::PROT_READ;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
const HEAD: usize = 1024;
const TAIL: usize = 1032;
const CLOEXEC: u64 = 8;
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const SET_BPF: u64 = 0x4004_2408;
const PAUSE_OUTPUT: u64 = 0x4004_2409;

/// perf_event_open(2) with an event of that type and number, woken for each sample.
fn open(kind: u32, config: u64, pid: i32, cpu: i32, flags: u64) -> Result<i32, i32> {
    let mut attr = [0u64; 16];
    attr[0] = u64::from(kind) | 128 << 32;
    attr[1] = config;
    attr[2] = 1;
    attr[3] = 1 << 10;
    attr[6] = 1;
    open_with(attr.as_ptr() as u64, pid, cpu, flags)
}

fn open_with(attr: u64, pid: i32, cpu: i32, flags: u64) -> Result<i32, i32> {
    // SAFETY: the supervisor or the kernel reads the attributes, wherever they are.
    let done = unsafe { libc::syscall(libc::SYS_perf_event_open, attr, pid, cpu, -1, flags) };
    if done < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(done as i32) }
}

fn event(cpu: i32) -> i32 {
    open(1, 10, -1, cpu, CLOEXEC).unwrap()
}

fn ioctl(file: i32, request: u64, argument: u64) -> Result<i32, i32> {
    // SAFETY: requests of this test have numbers as arguments.
    let done = unsafe { libc::ioctl(file, request, argument) };
    if done < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(done) }
}

fn put(map: i32, key: u32, event: i32) -> Result<i64, i32> {
    let (key, value) = (&raw const key as u64, &raw const event as u64);
    bpf(2, &[(0, map as u64, 4), (8, key, 8), (16, value, 8)])
}

fn delete(map: i32, key: u32) -> Result<i64, i32> {
    bpf(3, &[(0, map as u64, 4), (8, &raw const key as u64, 8)])
}

/// A program for raw tracepoints, which outputs eight bytes to this CPU's element and returns the helper's result.
fn program(map: i32) -> i32 {
    let insns: [u64; 9] = [
        0x7a | 10 << 8 | 0xfff8 << 16 | 42 << 32, // *(u64 *)(r10 - 8) = 42
        0x18 | 2 << 8 | 1 << 12 | (map as u64) << 32,
        0,
        0xb4 | 3 << 8 | 0xffff_ffff << 32, // w3 = -1
        0xbf | 4 << 8 | 10 << 12,          // r4 = r10
        0x07 | 4 << 8 | 0xffff_fff8 << 32, // r4 -= 8
        0xb7 | 5 << 8 | 8 << 32,
        0x85 | 25 << 32, // bpf_perf_event_output
        0x95,
    ];
    let (text, at) = (c"GPL".as_ptr() as u64, insns.as_ptr() as u64);
    bpf(5, &[(0, 17, 4), (4, insns.len() as u64, 4), (8, at, 8), (16, text, 8)]).unwrap() as i32
}

/// BPF_PROG_TEST_RUN of a raw tracepoint: the program's result.
fn run(program: i32) -> i32 {
    let mut attributes = [0u32; 20];
    attributes[0] = program as u32;
    raw(10, attributes.as_mut_ptr() as u64, 80).unwrap();
    attributes[1] as i32
}

/// An event for each CPU, mapped with so many pages and put into a map.
fn all(map: i32, pages: usize) -> Vec<(i32, *mut u8)> {
    let cpus = possible_cpus().unwrap() as i32;
    let open = |cpu| {
        let event = event(cpu);
        let ring = mmap(event, (pages + 1) * PAGE, BOTH, 0).unwrap();
        ioctl(event, ENABLE, 0).unwrap();
        put(map, cpu as u32, event).unwrap();
        (event, ring)
    };
    (0..cpus).map(open).collect()
}

/// Reads the samples of all rings, each of which is 24 bytes with 42 in it.
fn take(rings: &[(i32, *mut u8)]) -> usize {
    let mut taken = 0;
    for (_, ring) in rings {
        let size = word(*ring, 1048).load(Ordering::Relaxed);
        assert_eq!(word(*ring, 1040).load(Ordering::Relaxed), PAGE as u64);
        let head = word(*ring, HEAD).load(Ordering::Acquire);
        let mut tail = word(*ring, TAIL).load(Ordering::Relaxed);
        while tail < head {
            let at = |offset| word(*ring, PAGE + ((tail + offset) % size) as usize).load(Ordering::Relaxed);
            assert_eq!((at(0) & 0xffff_ffff, at(0) >> 48), (9, 24));
            // A length of 12, the bytes, and four more.
            assert_eq!((at(8) & 0xffff_ffff, at(8) >> 32, at(16)), (12, 42, 0));
            tail += 24;
            taken += 1;
        }
        word(*ring, TAIL).store(tail, Ordering::Release);
    }
    taken
}

/// What the supervised application does.
pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "reads samples" => reads_samples(),
        "opens perf events wrongly" => opens_wrongly(),
        "closes perf events" => closes(),
        "scribbles over its rings" => scribbles(),
        "dies with perf events" => {
            for _ in 0..20 {
                let child = forked(|| {
                    loop {
                        let array = map(PERF_EVENT_ARRAY, 4, 4, 8, 0);
                        let (event, ring) = all(array, 2)[0];
                        run(program(array));
                        unmap(ring, 3 * PAGE);
                        close(event);
                    }
                });
                std::thread::sleep(std::time::Duration::from_millis(10));
                // SAFETY: a child of this process.
                unsafe { libc::kill(child, libc::SIGKILL) };
                wait(child);
            }
            assert!(soon(|| first_map() == Err(libc::ENOENT)), "what they held is gone");
        }
        _ => return false,
    }
    true
}

fn reads_samples() {
    let array = map(PERF_EVENT_ARRAY, 4, 4, 16, 0);
    let program = program(array);
    assert_eq!(run(program), -libc::ENOENT, "there is no event");
    let rings = all(array, 1);
    // SAFETY: a number.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    for (event, _) in &rings {
        let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: *event as u64 };
        // SAFETY: an event that lives.
        assert_eq!(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, *event, &raw mut wanted) }, 0);
    }
    let waited = |milliseconds| {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for as many events.
        unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 64, milliseconds) }
    };
    let polled = |milliseconds| {
        let mut wanted = libc::pollfd { fd: epoll, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor.
        unsafe { libc::poll(&raw mut wanted, 1, milliseconds) }
    };
    assert_eq!((waited(0), polled(0)), (0, 0));
    assert_eq!(run(program), 0);
    assert_eq!(polled(5000), 1, "the epoll descriptor can be waited for in turn");
    assert!(waited(5000) > 0);
    assert_eq!(take(&rings), 1);
    assert_eq!(waited(60), 0, "one wakeup for one sample");
    // A thread that waits while another one runs the program.
    let waits = std::thread::spawn(move || {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for an event.
        unsafe { libc::epoll_wait(epoll, &raw mut event, 1, 10_000) }
    });
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(run(program), 0);
    assert_eq!(waits.join().unwrap(), 1);
    assert_eq!(take(&rings), 1);
    // So many that some find no room.
    let (mut kept, mut lost) = (0, 0);
    while lost < 3 {
        match run(program) {
            0 => kept += 1,
            status => {
                assert_eq!(status, -libc::ENOSPC);
                lost += 1;
            }
        }
    }
    assert_eq!(take(&rings), kept);
    // Requests, of all events since the next run may be on any CPU.
    let each = |request, argument| {
        for (event, _) in &rings {
            ioctl(*event, request, argument).unwrap();
        }
    };
    each(DISABLE, 0);
    assert_eq!(run(program), -libc::EOPNOTSUPP);
    each(ENABLE, 0);
    each(PAUSE_OUTPUT, 1);
    assert_eq!(run(program), -libc::ENOENT);
    each(PAUSE_OUTPUT, 0);
    for cpu in 0..rings.len() as u32 {
        delete(array, cpu).unwrap();
    }
    assert_eq!(delete(array, 0), Err(libc::ENOENT));
    assert_eq!(run(program), -libc::ENOENT);
    assert_eq!(super::lookup(array, 0), Err(524), "ENOTSUPP: an event has no value");
}

fn opens_wrongly() {
    let cpus = possible_cpus().unwrap() as i32;
    assert_eq!(open(1, 10, -1, -1, 0), Err(libc::EINVAL));
    assert_eq!(open(1, 10, -1, cpus, 0), Err(libc::EINVAL));
    assert_eq!(open(1, 10, -1, i32::MIN, 0), Err(libc::EINVAL));
    assert_eq!(open(1, 10, 0, 0, 0), Err(libc::EOPNOTSUPP), "of one process");
    assert_eq!(open(1, 10, -1, 0, 16), Err(libc::EINVAL));
    assert_eq!(open_with(0, -1, 0, 0), Err(libc::EFAULT));
    assert_eq!(open_with(u64::MAX - 2, -1, 0, 0), Err(libc::EFAULT));
    let chains = [1u64 | 112 << 32, 10, 1, 1 << 5, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(open_with(chains.as_ptr() as u64, -1, 0, 0), Err(libc::EINVAL));
    let small = [1u64 | 8 << 32, 10];
    assert_eq!(open_with(small.as_ptr() as u64, -1, 0, 0), Err(libc::E2BIG));
    let array = map(PERF_EVENT_ARRAY, 4, 4, 4, 0);
    for wrong in [array, 1, -1, 4000] {
        assert_eq!(put(array, 0, wrong), Err(libc::EBADF));
    }
    let event = event(0);
    assert_eq!(put(array, 4, event), Err(libc::E2BIG));
    assert_eq!(super::lookup(event, 0), Err(libc::EINVAL), "it is no map");
    for (len, offset) in [(PAGE, 0), (4 * PAGE, 0), (2 * PAGE, PAGE), (3 * PAGE, 4 * PAGE)] {
        assert_eq!(mmap(event, len, BOTH, offset), Err(libc::EINVAL), "{len} {offset}");
    }
    let ring = mmap(event, 3 * PAGE, BOTH, 0).unwrap();
    assert_eq!(mmap(event, 2 * PAGE, BOTH, 0), Err(libc::EINVAL), "it has another size");
    let again = mmap(event, 3 * PAGE, READ, 0).unwrap();
    word(ring, TAIL).store(5, Ordering::Relaxed);
    assert_eq!(word(again, TAIL).load(Ordering::Relaxed), 5, "the same ring");
    assert_eq!(ioctl(event, SET_BPF, array as u64), Err(libc::EINVAL));
    assert_eq!(ioctl(event, 0x24ff, 0), Err(libc::ENOTTY));
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::ftruncate(event, 0) }, -1, "it keeps its size");
    // A file that its owner has grown before is what it would have been; one that it keeps from growing is none.
    let grown = self::event(0);
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::ftruncate(grown, 1 << 20) }, 0);
    assert!(mmap(grown, 2 * PAGE, BOTH, 0).is_ok());
    let sealed = self::event(0);
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::fcntl(sealed, libc::F_ADD_SEALS, libc::F_SEAL_GROW) }, 0);
    assert_eq!(mmap(sealed, 2 * PAGE, BOTH, 0), Err(libc::ENOMEM));
    // Descriptors are kept on exec unless it was asked for.
    let kept = open(1, 10, -1, 0, 0).unwrap();
    // SAFETY: numbers.
    unsafe {
        assert_eq!(libc::fcntl(kept, libc::F_GETFD), 0);
        assert_eq!(libc::fcntl(event, libc::F_GETFD), libc::FD_CLOEXEC);
    }
    // Other events are the kernel's, which may refuse them; none gets a program.
    if let Ok(clock) = open(1, 0, 0, -1, 0) {
        let link = std::fs::read_link(format!("/proc/self/fd/{clock}")).unwrap();
        assert_eq!(link.to_string_lossy(), "anon_inode:[perf_event]");
        assert_eq!(ioctl(clock, SET_BPF, program(array) as u64), Err(libc::EOPNOTSUPP));
        assert_eq!(ioctl(clock, DISABLE, 0), Ok(0));
        assert_eq!(put(array, 0, clock), Err(libc::EBADF));
    }
}

fn closes() {
    let array = map(PERF_EVENT_ARRAY, 4, 4, 16, 0);
    let other = map(PERF_EVENT_ARRAY, 4, 4, 16, PRESERVE_ELEMS);
    let (usual, preserved) = (program(array), program(other));
    let rings = all(array, 1);
    for (cpu, (event, _)) in rings.iter().enumerate() {
        put(other, cpu as u32, *event).unwrap();
        close(*event);
    }
    assert_eq!((run(usual), run(preserved)), (0, 0), "the elements and the mappings hold the events");
    assert_eq!(take(&rings), 2);
    close(other);
    close(array);
    assert!(soon(|| run(usual) == -libc::ENOENT), "they were of the one who has closed the array");
    assert!(first_map().is_ok(), "which the program still has");
    assert_eq!(run(preserved), 0);
    rings.iter().for_each(|(_, ring)| unmap(*ring, 2 * PAGE));
    assert!(soon(|| run(preserved) == -libc::ENOENT), "nobody reads them");
}

fn scribbles() {
    let array = map(PERF_EVENT_ARRAY, 4, 4, 16, 0);
    let program = program(array);
    let rings = all(array, 2);
    let done = AtomicBool::new(false);
    let bases: Vec<usize> = rings.iter().map(|(_, ring)| *ring as usize).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 88172645463325252u64;
            // Pairs with the store below.
            while !done.load(Ordering::Acquire) {
                for base in &bases {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let ring = *base as *mut u8;
                    word(ring, random as usize % (3 * PAGE) / 8 * 8).store(random, Ordering::Relaxed);
                    word(ring, TAIL).store(random, Ordering::Relaxed);
                    word(ring, HEAD).store(!random, Ordering::Relaxed);
                }
            }
        });
        for _ in 0..500 {
            let status = run(program);
            assert!(status == 0 || status == -libc::ENOSPC, "{status}");
        }
        // Pairs with the load above.
        done.store(true, Ordering::Release);
    });
    // A ring whose positions make sense again works again.
    for (_, ring) in &rings {
        word(*ring, TAIL).store(0, Ordering::Relaxed);
    }
    let others = all(array, 1);
    assert_eq!(run(program), 0);
    assert_eq!(take(&others), 1);
    wait(forked(|| assert_eq!(run(program), 0)));
    assert_eq!(take(&others), 1, "a fork has the same ring");
}

#[test]
fn samples_come_by_rings_and_wake_who_waits() {
    let Some((status, traced, _)) = supervised("reads samples") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn perf_events_that_there_cannot_be_are_refused_and_others_are_the_kernel_s() {
    let Some((status, traced, _)) = supervised("opens perf events wrongly") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn perf_events_end_with_the_descriptors_of_their_array() {
    let Some((status, traced, _)) = supervised("closes perf events") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn a_process_that_scribbles_over_its_rings_spoils_its_own_samples() {
    let Some((status, traced, _)) = supervised("scribbles over its rings") else { return };
    assert!(status.success(), "{status}\n{}", traced[traced.len().saturating_sub(3)..].join("\n"));
}

#[test]
fn processes_that_are_killed_with_perf_events_leave_nothing() {
    let Some((status, traced, _)) = supervised("dies with perf events") else { return };
    assert!(status.success(), "{status}\n{}", traced[traced.len().saturating_sub(3)..].join("\n"));
}

//! Arenas that the application maps: both sides see the same pages, and no pointer of the application's is trusted.

use crate::mapped::{unmap, word};
use crate::{bpf, hash, lookup, supervised, update};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Types of a kernel, with the functions of arenas.
const TYPES: &[u8] = include_bytes!("../../../skep-verifier/verdicts/linux.btf");
const ARENA: u64 = 33;
const MMAPABLE: u64 = 1 << 10;
const PAGES: usize = 16;
const LEN: usize = PAGES * 4096;
const START: u64 = 1 << 44;
const SHARED: i32 = libc::MAP_SHARED;

/// Allocates a page at the address in the context or anywhere, and leaves its address there.
const ALLOCATE: &str = "r6 = r1
    r2 = *(u64 *)(r6 + 0)
    r1 = map ll
    r3 = 1
    r4 = -1
    r5 = 0
    call kfunc[bpf_arena_alloc_pages]
    *(u64 *)(r6 + 0) = r0
    if r0 == 0 goto out
    r1 = addr_space_cast(r0, 0x0, 0x1)
    *(u64 *)(r1 + 8) = 4660
    *(u64 *)(r1 + 16) = r0
    out: r0 = 0
    exit";

/// Frees the page of the address in the context.
const FREE: &str = "r2 = *(u64 *)(r1 + 0)
    r1 = map ll
    r3 = 1
    call kfunc[bpf_arena_free_pages]
    r0 = 0
    exit";

/// Reads the word at the address in the context, and adds one to it.
const TOUCH: &str = "r6 = r1
    r7 = map ll
    r2 = *(u64 *)(r6 + 0)
    r1 = addr_space_cast(r2, 0x0, 0x1)
    r3 = *(u64 *)(r1 + 0)
    *(u64 *)(r6 + 0) = r3
    r3 += 1
    *(u64 *)(r1 + 0) = r3
    r0 = 0
    exit";

/// Follows a thousand pointers from the address in the context on, and writes behind each.
const FOLLOW: &str = "r7 = map ll
    r2 = *(u64 *)(r1 + 0)
    r1 = addr_space_cast(r2, 0x0, 0x1)
    r6 = 1000
    more: *(u32 *)(r1 + 12) = r6
    r3 = 1
    lock *(u64 *)(r1 + 32760) += r3
    r2 = *(u64 *)(r1 + 0)
    r1 = addr_space_cast(r2, 0x0, 0x1)
    r6 += -1
    if r6 != 0 goto more
    r0 = 0
    exit";

/// The kernel's types that the application of a scenario sees.
pub(super) fn types(scenario: &str) -> Option<Arc<skep::Btf>> {
    scenario.contains("arena").then(|| Arc::new(skep::Btf::parse(TYPES).unwrap()))
}

fn arena(extra: u64) -> i32 {
    bpf(0, &[(0, ARENA, 4), (12, PAGES as u64, 4), (16, MMAPABLE, 4), (64, extra, 8)]).unwrap() as i32
}

/// A program of the type `syscall` with that arena, or why not.
fn program(arena: i32, text: &str) -> Result<i32, i32> {
    let types = skep::Btf::parse(TYPES).unwrap();
    let number =
        |name: &str| (1..100_000u32).find(|id| types.name(*id).is_ok_and(|known| known == name)).unwrap();
    let mut text = text.replace("= map ll", "= map[0] ll");
    for name in ["bpf_arena_alloc_pages", "bpf_arena_free_pages"] {
        text = text.replace(name, &number(name).to_string());
    }
    let mut insns = skep::isa::encode_bytes(&skep::isa::assemble(&text).unwrap()).unwrap();
    for at in (0..insns.len()).step_by(8) {
        if insns[at] == 0x18 {
            // By descriptor.
            insns[at + 1] = insns[at + 1] & 0xf | 1 << 4;
            insns[at + 4..at + 8].copy_from_slice(&arena.to_le_bytes());
        }
    }
    let (at, licence) = (insns.as_ptr() as u64, c"GPL".as_ptr() as u64);
    let count = insns.len() as u64 / 8;
    let load = [(0, 31, 4), (4, count, 4), (8, at, 8), (16, licence, 8), (44, 1 << 4, 4)];
    bpf(5, &load).map(|program| program as i32)
}

/// Runs it with a word as its context; what it has left there.
fn run(program: i32, given: u64) -> u64 {
    let mut context = given;
    let at = &raw mut context as u64;
    bpf(10, &[(0, program as u64, 4), (40, 8, 4), (48, at, 8)]).unwrap();
    context
}

fn mmap(file: i32, (address, flags): (u64, i32), len: usize, offset: i64) -> Result<*mut u8, i32> {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address where this process has none or one of an arena.
    let at = unsafe { libc::mmap(address as *mut libc::c_void, len, both, flags, file, offset) };
    match at == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        false => Ok(at.cast()),
    }
}

pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "shares an arena" => shares(),
        "chooses where an arena is" => chooses(),
        "attacks an arena" => attacks(),
        _ => return false,
    }
    true
}

fn shares() {
    let map = arena(START);
    let at = mmap(map, (START, SHARED | libc::MAP_FIXED), LEN, 0).unwrap();
    let (allocate, free) = (program(map, ALLOCATE).unwrap(), program(map, FREE).unwrap());
    let touch = program(map, TOUCH).unwrap();
    // What a program writes, pointers included, is what the application sees.
    let page = run(allocate, 0);
    assert_eq!(page, START);
    assert_eq!((word(at, 8).load(Relaxed), word(at, 16).load(Relaxed)), (4660, page));
    // What the application writes, also to a page that nobody has allocated, is what a program sees.
    word(at, 5 * 4096).store(77, Relaxed);
    assert_eq!(run(touch, START + 5 * 4096), 77);
    assert_eq!(word(at, 5 * 4096).load(Relaxed), 78);
    assert_eq!(run(allocate, START + 5 * 4096), 0, "there is one");
    // Programs store nothing into a page that is not there.
    assert_eq!(run(touch, START + 6 * 4096), 0);
    assert_eq!(run(touch, START + 6 * 4096), 0);
    assert_eq!(run(allocate, START + 6 * 4096), START + 6 * 4096);
    run(free, START + 5 * 4096);
    assert_eq!(run(touch, START + 5 * 4096), 0);
    assert_eq!(run(touch, START + 5 * 4096), 0);
    assert_eq!(word(at, 5 * 4096).load(Relaxed), 0, "touched, it is there again");
    assert_eq!((run(touch, START + 5 * 4096), run(touch, START + 5 * 4096)), (0, 1));
}

fn chooses() {
    let map = arena(0);
    assert_eq!(program(map, TOUCH), Err(libc::EINVAL), "nobody knows where it is");
    assert_eq!(mmap(map, (0, SHARED), LEN, 4096), Err(libc::EINVAL));
    assert_eq!(mmap(map, (0, SHARED), LEN + 4096, 0), Err(libc::EINVAL));
    assert_eq!(mmap(map, (0, SHARED), 2 << 32, 0), Err(libc::E2BIG));
    let at = mmap(map, (0, SHARED), LEN, 0).unwrap();
    let allocate = program(map, ALLOCATE).unwrap();
    let page = run(allocate, 0);
    assert_eq!(page, at as u64);
    assert_eq!(word(at, 16).load(Relaxed), page);
    // All mappings have the same addresses.
    assert_eq!(mmap(map, (0, SHARED), LEN, 0), Err(libc::EINVAL));
    assert_eq!(mmap(map, (START, SHARED | libc::MAP_FIXED), LEN, 0), Err(libc::EBUSY));
    unmap(at, LEN);
    assert_eq!(mmap(map, (page, SHARED), LEN, 0), Ok(at));
    assert_eq!(word(at, 8).load(Relaxed), 4660);

    let fixed = arena(START);
    assert_eq!(mmap(fixed, (0, SHARED), LEN, 0), Err(libc::EINVAL));
    assert_eq!(mmap(fixed, (START + 4096, SHARED | libc::MAP_FIXED), LEN, 0), Err(libc::EBUSY));
    assert!(program(fixed, TOUCH).is_ok(), "known without a mapping");
}

/// Threads of the application overwrite pointers, free the file's pages and try to seal it, while programs follow the
/// pointers, allocate and free.
fn attacks() {
    let map = arena(START);
    let at = mmap(map, (START, SHARED | libc::MAP_FIXED), LEN, 0).unwrap();
    let programs = [ALLOCATE, FREE, TOUCH, FOLLOW].map(|text| program(map, text).unwrap());
    for (page, place) in (0..PAGES).map(|page| (page, word(at, page * 4096))) {
        place.store(START + (page as u64 * 7 % 16) * 4096, Relaxed);
    }
    let path = format!("/proc/self/fd/{map}\0");
    // SAFETY: a text that ends with zero.
    let again = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDWR) };
    assert!(again >= 0);
    let (over, base) = (Arc::new(AtomicBool::new(false)), at as u64);
    let threads: Vec<_> = (0..2u64)
        .map(|thread| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut random = 0x9e37_79b9_7f4a_7c15u64 ^ thread;
                while !over.load(Relaxed) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let offset = (random >> 40) as usize % (LEN / 8) * 8;
                    let wild = match random >> 33 & 3 {
                        0 => base + (random >> 20) % (2 * LEN as u64),
                        1 => random,
                        2 => u64::MAX - (random >> 50),
                        _ => base | 0xffff_fff8,
                    };
                    word(at_of(base), offset).store(wild, Relaxed);
                    if random >> 50 & 0xff == 0 {
                        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                        // SAFETY: numbers, and a descriptor of this test.
                        unsafe {
                            libc::fallocate(again, hole, ((random >> 44) as i64 % LEN as i64) & !4095, 8192);
                            assert_eq!(libc::ftruncate(again, 0), -1);
                            assert_eq!(libc::fcntl(again, libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE), -1);
                        }
                    }
                }
            })
        })
        .collect();
    for round in 0..400u64 {
        let page = START + round * 11 % 16 * 4096;
        run(programs[3], page);
        run(programs[(round % 4) as usize], page + round % 3);
    }
    over.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // The supervisor serves on, and what it knows of the pages is right.
    let other = hash();
    update(other, 1, 5).unwrap();
    assert_eq!(lookup(other, 1), Ok(5));
    word(at, 0).store(41, Relaxed);
    assert_eq!((run(programs[2], START), word(at, 0).load(Relaxed)), (41, 42));
}

fn at_of(base: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(base as usize)
}

fn passes(scenario: &str) {
    let Some((status, traced, _)) = supervised(scenario) else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
    assert!(!traced.iter().any(|line| line.starts_with("refused: ")), "{traced:?}");
}

#[test]
fn an_application_and_its_programs_share_the_pages_of_an_arena() {
    passes("shares an arena");
}

#[test]
fn an_arena_is_where_the_application_has_mapped_it_first() {
    passes("chooses where an arena is");
}

#[test]
fn wild_pointers_and_holes_in_an_arena_harm_nobody_else() {
    passes("attacks an arena");
}

//! Arenas: which definitions are refused, pages, and the host's copies.

use std::thread;
use std::time::{Duration, Instant};

use skep_abi::{ArenaLink, MapDef, MapFlags, MapKind};
use skep_maps::{Arena, Map, MapError, Options};
use skep_rcu::Grace;

const LIMIT: u64 = 1 << 33;

fn def(pages: u32) -> MapDef {
    let mut def = MapDef::new("heap", MapKind::Arena, 0, 0, pages);
    def.flags = MapFlags::MMAPABLE;
    def
}

fn create(def: &MapDef) -> Map {
    Map::create(def, &Options { cpus: 2, limit: LIMIT }).unwrap()
}

fn refused(def: &MapDef) -> (String, i32) {
    let error = Map::create(def, &Options { cpus: 2, limit: LIMIT }).unwrap_err();
    (error.to_string(), error.errno())
}

/// A word of the arena as a program reads it.
fn word(link: ArenaLink, offset: u64) -> u64 {
    let at = std::ptr::with_exposed_provenance::<u64>((link.base + offset) as usize);
    // SAFETY: inside the window; no test writes there meanwhile.
    unsafe { at.read() }
}

/// A store of a program that has found the page there.
fn late_store(link: ArenaLink, offset: u64, value: u64) {
    let at = std::ptr::with_exposed_provenance_mut::<u64>((link.base + offset) as usize);
    // SAFETY: as above; a page that can be there.
    unsafe { at.write(value) };
}

fn get(arena: Arena<'_>, address: u64) -> u64 {
    let mut bytes = [0; 8];
    arena.read(address, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

#[test]
fn definitions_that_are_no_arena_are_refused_with_the_remedy() {
    let start = "map `heap`: ";
    let cases = [
        (MapDef { key_size: 4, ..def(1) }, "key size 4 is invalid: kind arena requires 0", 22),
        (MapDef { value_size: 8, ..def(1) }, "value size 8 is invalid: kind arena requires 0", 22),
        (def(0), "max_entries is 0: set it to the most elements that the map may hold", 22),
        (
            def((1 << 20) + 1),
            "an arena has at most 1048576 pages (4 GiB), found 1048577: lower max_entries, its number of pages",
            7,
        ),
        (
            MapDef { flags: MapFlags(0), ..def(1) },
            "an arena needs the flag BPF_F_MMAPABLE: add __uint(map_flags, BPF_F_MMAPABLE)",
            22,
        ),
        (
            MapDef { flags: MapFlags(1 << 10 | 1), ..def(1) },
            "flags 0x401 contain 0x1, which kind arena does not provide; it provides 0x60400",
            22,
        ),
    ];
    for (def, text, errno) in cases {
        assert_eq!(refused(&def), (format!("{start}{text}"), errno));
    }
    for extra in [1, 4095, (1 << 44) + 8, (1 << 32) - 4096, u64::MAX << 12] {
        let (text, errno) = refused(&MapDef { extra, ..def(2) });
        assert!(text.contains("or the address of the first page: a multiple of 4096"), "{text}");
        assert_eq!(errno, 22);
    }
    assert!(
        Map::create(&MapDef { extra: (1 << 32) - 8192, ..def(2) }, &Options { cpus: 2, limit: 1 }).is_ok()
    );
}

#[test]
fn addresses_are_those_of_the_definition_or_always_the_same() {
    let start = |extra, pages| create(&MapDef { extra, ..def(pages) }).arena().unwrap().start();
    assert_eq!(start(7 << 40, 3), 7 << 40);
    assert_eq!(start(0, 3), (1 << 44) + (16 << 12));
    assert_eq!(start(0, 1 << 20), 1 << 44, "all of the window");
    let link = create(&MapDef { extra: 0x1_2345_6000, ..def(4) }).link();
    assert_eq!(link.value_base, Some(0x1_2345_6000));
    let arena = link.arena.unwrap();
    assert_eq!(arena.user, 1 << 32);
    assert_eq!(arena.user_address(0xffff_ffff_2345_6008), 0x1_2345_6008);
    assert_eq!(arena.user_address(0xffff_ffff_0000_0000), 0);
    let flags = MapFlags::MMAPABLE.union(MapFlags::NO_USER_CONV);
    let bare = create(&MapDef { extra: 0x1_2345_6000, flags, ..def(4) }).link().arena.unwrap();
    assert_eq!(bare.user_address(0xffff_ffff_2345_6008), 0x2345_6008);
}

#[test]
fn pages_are_allocated_lowest_first_freed_and_reused() {
    let map = create(&def(4));
    let arena = map.arena().unwrap();
    let page = |number| arena.start() + number * Arena::PAGE;
    assert_eq!((arena.len(), arena.pages(), map.len()), (4 * 4096, 0, 0));
    assert_eq!(arena.allocate(None, 1), Ok(page(0)));
    assert_eq!(arena.allocate(None, 2), Ok(page(1)));
    assert!(matches!(
        arena.allocate(None, 2),
        Err(MapError::ArenaFull { pages: 2, used: 3, max_entries: 4, .. })
    ));
    assert_eq!(arena.allocate(Some(page(3)), 1), Ok(page(3)));
    assert!(arena.allocate(Some(page(3)), 1).is_err(), "it is there already");
    arena.write(page(1) + 5, b"some bytes").unwrap();
    assert_eq!(arena.free(page(1) + 77, 2), Ok(2));
    assert_eq!(arena.free(page(1), 3), Ok(1), "page 3 alone was there");
    assert_eq!((arena.pages(), arena.is_there(page(0)), arena.is_there(page(1))), (1, true, false));
    assert_eq!(get(arena, page(1) + 5), 0);
    assert_eq!(arena.allocate(None, 3), Ok(page(1)));
    assert_eq!(get(arena, page(1) + 5), 0);
}

#[test]
fn programs_get_null_where_the_host_gets_an_error() {
    let map = create(&def(4));
    let start = map.arena().unwrap().start();
    let alloc = |at, pages, node, flags| map.arena_alloc_ptr(at, pages, node, flags);
    assert_eq!(alloc(0, 0, -1, 0), 0);
    assert_eq!(alloc(0, 5, -1, 0), 0);
    assert_eq!(alloc(0, u32::MAX, -1, 0), 0);
    assert_eq!(alloc(0, 1, 1, 0), 0);
    assert_eq!(alloc(0, 1, -1, 1), 0);
    assert_eq!(alloc(start + 8, 1, -1, 0), 0);
    assert_eq!(alloc(start + 4 * 4096, 1, -1, 0), 0);
    assert_eq!(alloc(start + 3 * 4096, 2, -1, 0), 0);
    assert_eq!(alloc(start - 4096, 1, -1, 0), 0);
    assert_eq!(alloc(start + 3 * 4096, 1, 0, 0), start + 3 * 4096);
    // The upper half of an address does not count.
    assert_eq!(alloc((start + 4096) as u32 as u64, 1, -1, 0), start + 4096);
    map.arena_free_ptr(0, u32::MAX);
    assert_eq!(map.len(), 2, "no page of the arena");
    map.arena_free_ptr(start as u32 as u64, u32::MAX);
    assert_eq!(map.len(), 0);
    let array =
        Map::create(&MapDef::new("a", MapKind::Array, 4, 4, 1), &Options { cpus: 1, limit: LIMIT }).unwrap();
    assert_eq!(array.arena_alloc_ptr(0, 1, -1, 0), 0);
    array.arena_free_ptr(start, 1);
    assert!(array.arena().is_none());
}

#[test]
fn the_limit_of_memory_counts_pages_that_are_there() {
    let map = Map::create(&def(1 << 20), &Options { cpus: 1, limit: 3 * 4096 + 5 }).unwrap();
    let arena = map.arena().unwrap();
    let first = arena.allocate(None, 3).unwrap();
    assert!(arena.allocate(None, 1).is_err());
    assert_eq!(map.arena_alloc_ptr(0, 1, -1, 0), 0);
    assert_eq!(arena.free(first, 1), Ok(1));
    assert!(arena.allocate(None, 2).is_err());
    assert_eq!(arena.allocate(None, 1), Ok(first));
    assert!(map.memory() >= 3 * 4096);
}

#[test]
fn the_host_copies_any_bytes_and_allocates_what_it_writes_to() {
    let map = create(&def(3));
    let arena = map.arena().unwrap();
    let start = arena.start();
    let bytes: Vec<u8> = (0..9000).map(|at| (at % 251) as u8).collect();
    for (at, len) in [(0, 0), (1, 1), (3, 13), (4090, 12), (0, 9000), (4095, 4098), (8, 8)] {
        arena.write(start + at, &bytes[..len]).unwrap();
        let mut found = vec![0xee; len];
        arena.read(start + at, &mut found).unwrap();
        assert_eq!(found, bytes[..len], "{at} {len}");
    }
    assert_eq!(arena.pages(), 3);
    for (at, len) in [(3 * 4096, 1), (3 * 4096 - 1, 2), (u64::MAX - start, 1), (0, 3 * 4096 + 1)] {
        let error = arena.read(start.wrapping_add(at), &mut vec![0; len]).unwrap_err();
        assert!(matches!(error, MapError::OutsideArena { .. }), "{error}");
        assert_eq!(arena.write(start.wrapping_add(at), &vec![0; len]).unwrap_err(), error);
    }
    assert!(arena.read(start - 1, &mut [0]).is_err() && arena.read(8, &mut [0]).is_err());
    assert_eq!(arena.read(start + 3 * 4096, &mut []), Ok(()), "nothing, at the end");
}

#[test]
fn with_segv_on_fault_the_host_does_not_touch_what_is_not_there() {
    let flags = MapFlags::MMAPABLE.union(MapFlags::SEGV_ON_FAULT);
    let map = create(&MapDef { flags, ..def(3) });
    let arena = map.arena().unwrap();
    let page = arena.allocate(None, 1).unwrap();
    let missing = MapError::NoPage { map: "heap".into(), address: page + 4096 };
    assert_eq!(arena.write(page + 4090, &[1; 12]), Err(missing.clone()));
    assert_eq!(arena.read(page + 4090, &mut [1; 12]), Err(missing.clone()));
    assert_eq!(missing.errno(), 14);
    assert_eq!(arena.pages(), 1);
    arena.write(page + 4090, &[1; 6]).unwrap();
}

#[test]
fn a_frozen_arena_is_read_only_for_the_host() {
    let map = create(&def(3));
    let arena = map.arena().unwrap();
    let page = arena.allocate(None, 1).unwrap();
    map.freeze().unwrap();
    assert!(matches!(arena.write(page, &[1]), Err(MapError::Frozen { .. })));
    assert!(matches!(arena.allocate(None, 1), Err(MapError::Frozen { .. })));
    assert!(matches!(arena.free(page, 1), Err(MapError::Frozen { .. })));
    assert_eq!(arena.read(page, &mut [0]), Ok(()));
    assert_ne!(map.arena_alloc_ptr(0, 1, -1, 0), 0, "programs may");
}

#[test]
fn late_stores_vanish_with_the_page_that_they_were_for() {
    let map = create(&def(2));
    let arena = map.arena().unwrap();
    let link = map.link().arena.unwrap();
    let page = arena.allocate(None, 1).unwrap();
    let offset = page & u64::from(u32::MAX);
    arena.free(page, 1).unwrap();
    late_store(link, offset, 7);
    assert_eq!(arena.allocate(None, 1), Ok(page));
    assert_eq!(get(arena, page), 0, "allocated again at once");
    // A reader inside delays the return of the memory, and not the free. Another page: the first free's return of the
    // memory may still come.
    let page = arena.allocate(None, 1).unwrap();
    let offset = page & u64::from(u32::MAX);
    let section = map.reuse().domain.enter().unwrap();
    arena.free(page, 1).unwrap();
    late_store(link, offset, 8);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(word(link, offset), 8, "the reader that may have made it is inside");
    drop(section);
    let begin = Instant::now();
    while word(link, offset) != 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "the memory was not returned");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(arena.allocate(None, 1), Ok(page));
    assert_eq!(get(arena, page), 0);
}

#[test]
fn sleepable_readers_delay_the_return_of_memory_too() {
    let map = create(&def(2));
    let arena = map.arena().unwrap();
    let link = map.link().arena.unwrap();
    let page = arena.allocate(None, 1).unwrap();
    let offset = page & u64::from(u32::MAX);
    let section = map.reuse().domain.enter_sleepable().unwrap();
    arena.free(page, 1).unwrap();
    map.reuse().domain.synchronize(Grace::Normal).unwrap();
    late_store(link, offset, 8);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(word(link, offset), 8);
    drop(section);
}

#[test]
fn threads_that_allocate_and_free_never_share_a_page_and_find_it_zeroed() {
    let map = create(&def(8));
    let end = Instant::now() + Duration::from_millis(300);
    thread::scope(|scope| {
        for number in 1..=4_u64 {
            let map = &map;
            scope.spawn(move || {
                let arena = map.arena().unwrap();
                let mut turns = 0;
                while Instant::now() < end {
                    let count = 1 + (turns % 3) as u32;
                    turns += 1;
                    let Ok(page) = arena.allocate(None, count) else { continue };
                    let last = page + u64::from(count) * Arena::PAGE - 8;
                    assert_eq!((get(arena, page), get(arena, last)), (0, 0));
                    arena.write(page, &number.to_ne_bytes()).unwrap();
                    arena.write(last, &number.to_ne_bytes()).unwrap();
                    thread::yield_now();
                    assert_eq!(
                        (get(arena, page), get(arena, last)),
                        (number, number),
                        "another thread has it"
                    );
                    assert_eq!(arena.free(page, count), Ok(count));
                }
            });
        }
    });
    assert_eq!(map.arena().unwrap().pages(), 0);
}

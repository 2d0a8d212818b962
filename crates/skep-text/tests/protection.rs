//! No page is ever both writable and executable, at any step, through any interface.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::*;
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, mprotect};
use skep_text::{Arena, BRANCH_BYTES, BRANCH_OFFSET, Backing, Branch, Config, Draft, PACK_BYTES, Text};

/// Checks an arena's protection as /proc/self/smaps shows it.
fn check(arena: &Arena, step: &str) {
    // The keeper returns freed memory, which must not happen between two reads of smaps.
    arena.flush().unwrap();
    for mapping in mappings() {
        assert!(!(mapping.has('w') && mapping.has('x')), "{step}: {mapping:?}");
    }
    let executable = executable_views(arena);
    for mapping in &executable {
        assert_eq!(mapping.permissions, "r-xs", "{step}: {mapping:?}");
        assert!(!mapping.flag("mw"), "{step}: may be made writable: {mapping:?}");
    }
    let writable = writable_views(arena);
    for mapping in &writable {
        assert_eq!(mapping.permissions, "rw-s", "{step}: {mapping:?}");
        assert!(mapping.flag("dc") || !flags_are_told(), "{step}: would be copied into a child: {mapping:?}");
    }
    assert_eq!(executable.len(), writable.len(), "{step}");
    let accessible: usize = executable.iter().map(|mapping| mapping.range.len()).sum();
    assert_eq!(accessible, arena.occupancy().mapped_bytes, "{step}");
}

fn flags_are_told() -> bool {
    static ARE_TOLD: OnceLock<bool> = OnceLock::new();
    let what = "the writable view is marked as not for children";
    *ARE_TOLD.get_or_init(|| probe::shown(probe::flags_are_told(), Hidden::MappingFlags, what))
}

#[test]
fn no_page_is_writable_and_executable_in_a_text_s_life() {
    let arena = Arena::new(Config::new()).unwrap();
    check(&arena, "new arena");
    let mut draft = arena.draft(100).unwrap();
    check(&arena, "draft");
    draft.bytes_mut()[..returns(1).len()].copy_from_slice(&returns(1));
    check(&arena, "written draft");
    let text = draft.finalize().unwrap();
    check(&arena, "text");
    assert_eq!(call(&text), 1);
    check(&arena, "after a run");
    let filling = place(&arena, &returns(2), PACK_BYTES).unwrap();
    check(&arena, "second pack");
    let own = place(&arena, &returns(3), 2 * PACK_BYTES);
    assert!(own.is_ok());
    for mapping in mappings() {
        assert!(!(mapping.has('w') && mapping.has('x')), "{mapping:?}");
    }
    drop(own);
    check(&arena, "long text freed");
    drop(filling);
    check(&arena, "second pack empty");
    drop(text);
    check(&arena, "all freed");
}

#[test]
fn no_page_is_writable_and_executable_while_threads_load_and_free() {
    let arena = Arena::new(Config::new()).unwrap();
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        for value in 0..2 {
            let (arena, running) = (&arena, &running);
            scope.spawn(move || {
                while running.load(Ordering::Relaxed) {
                    // Half a pack each, three at a time: packs come and go all the while.
                    let texts = [0, 1, 2].map(|_| place(arena, &returns(value), PACK_BYTES / 2 + 1).unwrap());
                    assert!(texts.iter().all(|text| call(text) == value));
                }
            });
        }
        for _ in 0..if is_emulated() { 15 } else { 150 } {
            for mapping in mappings() {
                assert!(!(mapping.has('w') && mapping.has('x')), "{mapping:?}");
                let inside = arena.range().contains(&mapping.range.start);
                assert!(!(inside && mapping.has('w')), "{mapping:?}");
                assert!(
                    !(!inside && mapping.name.contains("skep-text") && mapping.has('x') && mapping.has('w'))
                );
            }
        }
        running.store(false, Ordering::Relaxed);
    });
}

#[test]
fn the_executable_view_cannot_be_made_writable() {
    let arena = Arena::new(Config::new()).unwrap();
    let text = place_returns(&arena, 7);
    let page = text.address() & !(rustix::param::page_size() - 1);
    let page = std::ptr::with_exposed_provenance_mut(page);
    for flags in [
        MprotectFlags::WRITE,
        MprotectFlags::READ | MprotectFlags::WRITE,
        MprotectFlags::READ | MprotectFlags::WRITE | MprotectFlags::EXEC,
    ] {
        // SAFETY: expected to change nothing.
        let result = unsafe { mprotect(page, rustix::param::page_size(), flags) };
        assert_eq!(result, Err(Errno::ACCESS));
    }
    check(&arena, "after mprotect");
    assert_eq!(call(&text), 7);
}

#[test]
fn the_code_cannot_be_written_through_proc_self_mem() {
    let arena = Arena::new(Config::new()).unwrap();
    let text = place_returns(&arena, 7);
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut first = [0];
    memory.read_exact_at(&mut first, text.address() as u64).unwrap();
    assert_eq!(first[0], text.bytes()[0], "reading shows that the address was right");
    memory.write_at(&[0x90], text.address() as u64).unwrap_err();
    assert_eq!(call(&text), 7);
}

#[test]
fn no_descriptor_of_code_memory_stays_open() {
    let arena = Arena::new(Config::new()).unwrap();
    let _text = place(&arena, &returns(7), PACK_BYTES + 1).unwrap();
    let inodes: Vec<u64> = executable_views(&arena).iter().map(|view| view.inode).collect();
    assert_eq!(inodes.len(), 2);
    for descriptor in std::fs::read_dir("/proc/self/fd").unwrap() {
        use std::os::unix::fs::MetadataExt;
        // The directory's own descriptor, and other tests', may be gone by now.
        let Ok(metadata) = std::fs::metadata(descriptor.unwrap().path()) else { continue };
        assert!(!inodes.contains(&metadata.ino()));
    }
}

#[test]
fn the_views_stand_between_inaccessible_pages() {
    let arena = Arena::new(Config::new().reserve(4 * PACK_BYTES)).unwrap();
    let _texts: Vec<_> = (0..4).map(|value| place(&arena, &returns(value), PACK_BYTES).unwrap()).collect();
    let all = mappings();
    let protected = |address: usize| {
        let mapping = all.iter().find(|mapping| mapping.range.contains(&address));
        mapping.is_some_and(|mapping| mapping.permissions.starts_with("---"))
    };
    let range = arena.range();
    assert!(protected(range.start - 1) && protected(range.end));
    let writable = writable_views(&arena);
    assert_eq!(writable.len(), 4);
    for view in writable {
        assert!(protected(view.range.start - 1) && protected(view.range.end), "{view:?}");
    }
}

#[test]
fn an_arena_works_where_memory_may_not_become_executable() {
    if is_child() {
        // SAFETY: two integers; it restricts only this process of its own.
        let done = unsafe {
            libc::prctl(libc::PR_SET_MDWE, libc::PR_MDWE_REFUSE_EXEC_GAIN as libc::c_ulong, 0, 0, 0)
        };
        if done != 0 {
            return hidden(Hidden::DenyWriteExecute, "an arena under PR_SET_MDWE");
        }
        let arena = Arena::new(Config::new()).unwrap();
        assert_eq!(call(&place_returns(&arena, 12)), 12);
        check(&arena, "under memory-deny-write-execute");
        for backing in BACKINGS {
            live_a_whole_life(Config::new(), backing, "under memory-deny-write-execute");
        }
        return;
    }
    let status = run_as_child();
    assert!(status.success(), "{status}");
}

const BACKINGS: [Backing; 3] = [Backing::Memfd, Backing::Hardened, Backing::Procmem];

/// Checks what holds in every backing at any time, and the further promises of each.
fn audit(arena: &Arena, backing: Backing, step: &str) {
    arena.flush().unwrap();
    let all = mappings();
    for mapping in &all {
        assert!(!(mapping.has('w') && mapping.has('x')), "{step}: {mapping:?}");
        let inside = arena.range().contains(&mapping.range.start);
        assert!(!(inside && mapping.has('w')), "{step}: {mapping:?}");
    }
    let executable = executable_views(arena);
    let accessible: usize = executable.iter().map(|mapping| mapping.range.len()).sum();
    assert_eq!(accessible, arena.occupancy().mapped_bytes, "{step}");
    let (permissions, file) = match backing {
        Backing::Procmem => ("r-xp", false),
        _ => ("r-xs", true),
    };
    for mapping in &executable {
        assert_eq!(mapping.permissions, permissions, "{step}: {mapping:?}");
        assert_eq!(mapping.inode != 0, file, "{step}: {mapping:?}");
        // Private memory may be made writable: `Backing::Procmem` says so.
        assert!(!(file && mapping.flag("mw")), "{step}: may be made writable: {mapping:?}");
    }
    match backing {
        Backing::Memfd => {
            for mapping in writable_views(arena) {
                assert!(!mapping.has('x'), "{step}: {mapping:?}");
                assert!(mapping.flag("dc") || !flags_are_told(), "{step}: {mapping:?}");
            }
        }
        // Nor a mapping that could become writable.
        Backing::Hardened => assert!(writable_views(arena).is_empty(), "{step}"),
        _ => {}
    }
}

/// Runs every kind of operation, with an audit after each.
fn live_a_whole_life(config: Config, backing: Backing, what: &str) {
    let arena = Arena::new(config.backing(backing)).unwrap();
    let audit = |step: &str| audit(&arena, backing, &format!("{backing}, {what}, {step}"));
    audit("birth");
    let mut draft = arena.draft(1000).unwrap();
    audit("draft");
    draft.bytes_mut()[..returns(1).len()].copy_from_slice(&returns(1));
    audit("writing a draft");
    draft.truncate(100).unwrap();
    audit("cutting a draft");
    let text = draft.finalize().unwrap();
    audit("finalizing");
    assert_eq!(call(&text), 1);
    audit("running");
    let several: Vec<Draft> = (0..5).map(|_| arena.draft(3000).unwrap()).collect();
    let several: Vec<Text> = Draft::finalize_all(several).unwrap();
    audit("finalizing several");
    drop(arena.draft(77).unwrap());
    audit("dropping a draft");

    let mut draft = arena.draft(BRANCH_OFFSET + BRANCH_BYTES).unwrap();
    let site = Branch::To(text.address()).encode(draft.address() + BRANCH_OFFSET).unwrap();
    let code = [&NOP.repeat(BRANCH_OFFSET / NOP.len())[..], &site].concat();
    draft.bytes_mut().copy_from_slice(&code);
    let switch = draft.finalize().unwrap();
    let stub = arena.stub(NOP, &[text.address()]).unwrap();
    audit("a stub");
    let mut pokes = arena.pokes().unwrap();
    // SAFETY: a patchable branch was put there, and the stub leads to a function of the same type.
    unsafe { pokes.branch(&switch, BRANCH_OFFSET, Branch::To(stub.address())) }.unwrap();
    audit("a poke");
    pokes.finish().unwrap();
    audit("finishing pokes");
    assert_eq!(call(&switch), 1);

    let grown = place(&arena, &returns(4), 500_000).unwrap();
    audit("growth");
    let full = place(&arena, &returns(2), PACK_BYTES).unwrap();
    audit("another pack");
    let long = place(&arena, &returns(3), 2 * PACK_BYTES + 100).unwrap();
    audit("a long text");
    // Refusals are reported, and other tests check them.
    let _ = arena.promote();
    audit("promotion");
    assert_eq!([&switch, &full, &long, &grown].map(call), [1, 2, 3, 4]);
    // Written after it became huge.
    let after = place(&arena, &returns(5), 10_000).unwrap();
    assert_eq!(call(&after), 5);
    audit("a text in a promoted pack");
    let section = arena.domain().enter().unwrap();
    drop(several);
    drop(section);
    audit("texts that waited for a reader");
    drop(long);
    audit("dropping a long text");
    drop((switch, stub, text, full, grown, after));
    audit("dropping all");

    let range = arena.range();
    let inodes: Vec<u64> =
        executable_views(&arena).iter().map(|view| view.inode).filter(|&inode| inode != 0).collect();
    drop(arena);
    let is_left = |mapping: &Mapping| {
        inodes.contains(&mapping.inode) || mapping.has('x') && range.contains(&mapping.range.start)
    };
    if what != "permanent" {
        assert!(eventually(|| !mappings().iter().any(is_left)), "{backing}, {what}: {:?}", mappings());
    }
    assert!(mappings().iter().all(|mapping| !(mapping.has('w') && mapping.has('x'))));
}

#[test]
fn no_operation_makes_a_page_writable_and_executable() {
    for backing in BACKINGS {
        live_a_whole_life(Config::new().huge(false), backing, "small pages");
        live_a_whole_life(Config::new().promote_at(0), backing, "huge pages");
        live_a_whole_life(Config::new().random(true).fault_handler(false), backing, "random places");
        live_a_whole_life(
            Config::new().promote_at(0).permanent(true).reserve(8 * PACK_BYTES),
            backing,
            "permanent",
        );
    }
}

#[test]
fn no_page_is_writable_and_executable_under_concurrent_use() {
    for backing in BACKINGS {
        let arena = Arena::new(Config::new().backing(backing).promote_at(128 << 10)).unwrap();
        let running = AtomicBool::new(true);
        thread::scope(|scope| {
            for value in 1..3 {
                let (arena, running) = (&arena, &running);
                scope.spawn(move || {
                    while running.load(Ordering::Relaxed) {
                        let texts: Vec<_> = [40, 5000, 300_000]
                            .into_iter()
                            .filter_map(|len| place(arena, &returns(value), len).ok())
                            .collect();
                        assert!(texts.iter().all(|text| call(text) == value));
                        if let Some(text) = texts.first() {
                            let mut pokes = arena.pokes().unwrap();
                            // SAFETY: the instructions that differ, one at most, are in one word.
                            unsafe { pokes.copy(text, 0, &returns(value + 5)) }.unwrap();
                            pokes.finish().unwrap();
                            assert_eq!(call(text), value + 5);
                        }
                    }
                });
            }
            for _ in 0..if is_emulated() { 4 } else { 40 } {
                for mapping in mappings() {
                    assert!(!(mapping.has('w') && mapping.has('x')), "{backing}: {mapping:?}");
                    let inside = arena.range().contains(&mapping.range.start);
                    assert!(!(inside && mapping.has('w')), "{backing}: {mapping:?}");
                }
                // Packs come and go, so the range's files are read at once with all others.
                assert!(backing != Backing::Hardened || writable_views(&arena).is_empty());
            }
            running.store(false, Ordering::Relaxed);
        });
    }
}

#[test]
fn memory_files_cannot_be_mapped_writable_by_map_files_names() {
    for backing in [Backing::Memfd, Backing::Hardened] {
        let arena = Arena::new(Config::new().backing(backing)).unwrap();
        let text = place_returns(&arena, 7);
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
        memory.write_at(&[0x90], text.address() as u64).unwrap_err();
        for view in executable_views(&arena).into_iter().chain(writable_views(&arena)) {
            let name = format!("/proc/self/map_files/{:x}-{:x}", view.range.start, view.range.end);
            // Only privileged processes may use this way (proc(5)).
            let Ok(file) = OpenOptions::new().read(true).write(true).open(name) else { continue };
            let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice; expected to fail.
            let mapped = unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    4096,
                    protection,
                    rustix::mm::MapFlags::SHARED,
                    &file,
                    0,
                )
            };
            match backing {
                Backing::Memfd => {
                    assert_eq!(mapped.unwrap_err(), Errno::PERM);
                    assert_eq!(rustix::io::pwrite(&file, b"x", 0).unwrap_err(), Errno::PERM);
                }
                // A process that may open the file may write it: `Backing::Hardened` has the same descriptor.
                _ => {
                    // SAFETY: the unused mapping made above.
                    unsafe { rustix::mm::munmap(mapped.unwrap(), 4096) }.unwrap();
                }
            }
        }
        assert_eq!(call(&text), 7, "{backing}");
        audit(&arena, backing, "after all");
    }
}

#[test]
fn a_sealed_arena_s_mappings_cannot_be_changed() {
    for backing in BACKINGS {
        let config = Config::new().backing(backing).permanent(true).promote_at(0).reserve(2 * PACK_BYTES);
        let arena = Arena::new(config).unwrap();
        let text = place(&arena, &returns(7), PACK_BYTES).unwrap();
        assert_eq!(call(&text), 7);
        if arena.occupancy().sealed_packs == 0 {
            return hidden(Hidden::SealedMappings, "an arena of permanent packs is sealed");
        }
        let page = rustix::param::page_size();
        let at = std::ptr::with_exposed_provenance_mut(text.address() / page * page);
        for flags in [MprotectFlags::empty(), MprotectFlags::READ | MprotectFlags::WRITE] {
            // SAFETY: expected to change nothing.
            let error = unsafe { mprotect(at, page, flags) }.unwrap_err();
            // A file's view has no right to it in the first place.
            assert!(matches!(error, Errno::PERM | Errno::ACCESS), "{backing}: {error}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { rustix::mm::munmap(at, page) }, Err(Errno::PERM), "{backing}");
        // SAFETY: as above.
        let moved = unsafe { rustix::mm::mremap(at, page, 2 * page, rustix::mm::MremapFlags::MAYMOVE) };
        assert!(moved.is_err(), "{backing}");
        assert_eq!(call(&text), 7);
    }
}

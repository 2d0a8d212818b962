//! Never writable and executable at once, at any step, by any road.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::*;
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, mprotect};
use skep_text::{Arena, Config, PACK_BYTES};

/// Everything that /proc/self/smaps can say about an arena's protection.
fn check(arena: &Arena, step: &str) {
    // What was freed before is given back by the keeper, which must not do it between two looks.
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
        assert!(mapping.flag("dc"), "{step}: would be copied into a child: {mapping:?}");
    }
    assert_eq!(executable.len(), writable.len(), "{step}");
    let accessible: usize = executable.iter().map(|mapping| mapping.range.len()).sum();
    assert_eq!(accessible, arena.occupancy().mapped_bytes, "{step}");
}

#[test]
fn no_page_is_writable_and_executable_at_any_step_of_a_texts_life() {
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
        for _ in 0..150 {
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
fn an_arena_works_where_the_system_forbids_memory_to_gain_execution() {
    if is_child() {
        // SAFETY: two integers; it restricts this process, which is here for nothing else.
        let done = unsafe {
            libc::prctl(libc::PR_SET_MDWE, libc::PR_MDWE_REFUSE_EXEC_GAIN as libc::c_ulong, 0, 0, 0)
        };
        if done != 0 {
            assert!(std::env::var_os("SKEP_REQUIRE_ALL").is_none_or(|all| all != "1"), "no PR_SET_MDWE here");
            eprintln!("SKIPPED: this kernel has no PR_SET_MDWE (Linux 6.3)");
            return;
        }
        let arena = Arena::new(Config::new()).unwrap();
        assert_eq!(call(&place_returns(&arena, 12)), 12);
        check(&arena, "under memory-deny-write-execute");
        return;
    }
    let status = run_as_child("an_arena_works_where_the_system_forbids_memory_to_gain_execution");
    assert!(status.success(), "{status}");
}

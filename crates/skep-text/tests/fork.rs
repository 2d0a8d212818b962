//! A forked child may run its parent's code, but cannot change or free its code memory.
//!
//! One thread and no test harness, because it forks.

mod common;

use common::*;
use skep_rcu::Domain;
use skep_text::{Arena, Backing, Config, Error, PACK_BYTES};

fn main() {
    let arena = Arena::new(Config::new()).unwrap();
    let text = place_returns(&arena, 21);
    let long = place(&arena, &returns(22), PACK_BYTES + 1).unwrap();
    let mut draft = arena.draft(5 * 64).unwrap();
    let before = arena.occupancy();
    let writable = writable_views(&arena);
    assert_eq!(writable.len(), 2);

    in_child("a child has no writable view of its parent's code", || {
        assert_eq!(executable_views(&arena).len(), 2);
        if children_lack_what_they_should() {
            assert!(writable_views(&arena).is_empty());
        }
        for view in writable.iter().filter(|_| children_lack_what_they_should()) {
            let inside = |mapping: &Mapping| view.range.contains(&mapping.range.start);
            assert!(!mappings().iter().any(inside), "something took the writable view's place");
        }
        for mapping in mappings() {
            assert!(!(mapping.has('w') && mapping.has('x')), "{mapping:?}");
            assert!(
                !(arena.range().contains(&mapping.range.start) && mapping.flag("mw") && mapping.inode != 0)
            );
        }
    });

    in_child("a child cannot make an arena with its parent's read sections", || {
        let inherited = Config::new().domain(arena.domain().clone());
        assert!(matches!(Arena::new(inherited), Err(Error::Forked)));
    });

    in_child("a child runs its parent's code", || {
        assert_eq!((call(&text), call(&long)), (21, 22));
    });

    in_child("a child is refused drafts, cuts and finalization", || {
        assert!(matches!(arena.draft(10), Err(Error::Forked)));
        assert!(matches!(draft.truncate(1), Err(Error::Forked)));
        assert_eq!(arena.occupancy(), Default::default());
        let error = arena.draft(10).unwrap_err().to_string();
        assert!(error.contains("make a new arena in the child"), "{error}");
    });

    in_child("a child that has an arena of its own uses it like any other", || {
        let own = Arena::new(Config::new()).unwrap();
        assert_eq!(call(&place_returns(&own, 5)), 5);
        assert_eq!(writable_views(&own).len(), 1);
        assert_eq!(own.occupancy().chunks_used, 0);
    });

    // Moves every handle into the child, which drops them all, and keeps them here as well.
    // SAFETY: one thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        exit_with(|| {
            assert!(matches!(draft.finalize().unwrap_err(), Error::Forked));
            drop((text, long, arena));
        });
    }
    wait_for(child, "a child's handles can be dropped and do nothing");

    assert_eq!((call(&text), call(&long)), (21, 22), "the parent's code is untouched");
    assert_eq!(arena.occupancy(), before);
    draft.bytes_mut()[..returns(1).len()].copy_from_slice(&returns(1));
    assert_eq!(call(&draft.finalize().unwrap()), 1);

    // A grandchild is as little the parent as its child.
    in_child("a grandchild", || {
        in_child("of a child", || {
            assert!(!children_lack_what_they_should() || writable_views(&arena).is_empty());
            assert!(matches!(arena.draft(10), Err(Error::Forked)));
        });
    });
    for backing in [Backing::Memfd, Backing::Hardened, Backing::Procmem] {
        every_operation_after_a_fork(backing);
    }
    println!("fork: all promises hold");
}

/// In every backing: the child runs the existing code and changes nothing of the parent's; the parent continues
/// undisturbed.
fn every_operation_after_a_fork(backing: Backing) {
    // Without a keeper there is one thread, as everywhere in this file.
    let domain = Domain::builder().keeper(false).build().unwrap();
    let config = Config::new().backing(backing).domain(domain.clone()).reserve(8 * PACK_BYTES);
    let arena = Arena::new(config.promote_at(1 << 20)).unwrap();
    let text = place_returns(&arena, 31);
    let long = place(&arena, &returns(32), PACK_BYTES + 1).unwrap();
    let _ = place(&arena, &returns(33), PACK_BYTES - 100).map(drop);
    let empty_chunks = arena.occupancy().chunks_used;

    // Unfinished operations: a batch of pokes, memory that waits for a reader.
    let section = domain.enter().unwrap();
    let waiting = place_returns(&arena, 34);
    let waiting_at = waiting.address();
    drop((waiting, place(&arena, &returns(35), 2 * PACK_BYTES).unwrap()));
    let mut pokes = arena.pokes().unwrap();
    // SAFETY: the instructions that differ, one at most, are in one word.
    unsafe { pokes.copy(&text, 0, &returns(41)) }.unwrap();
    assert_eq!(call(&text), 41);
    let before = arena.occupancy();
    let shared = backing != Backing::Procmem;

    // SAFETY: one thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        exit_with(|| {
            for mapping in mappings() {
                assert!(!(mapping.has('w') && mapping.has('x')), "{mapping:?}");
                let inside = arena.range().contains(&mapping.range.start);
                assert!(!(inside && mapping.has('w')), "{mapping:?}");
                assert!(!(inside && shared && mapping.inode != 0 && mapping.flag("mw")), "{mapping:?}");
            }
            assert!(!shared || !children_lack_what_they_should() || writable_views(&arena).is_empty());
            assert_eq!((call(&text), call(&long), call_at(waiting_at)), (41, 32, 34));

            // SAFETY: expected to change nothing.
            let poked = unsafe { pokes.copy(&text, 0, &returns(42)) };
            assert!(matches!(poked, Err(Error::Forked)), "{poked:?}");
            drop(pokes);
            assert!(matches!(arena.pokes().map(drop), Err(Error::Forked)));
            assert!(matches!(arena.draft(10).map(drop), Err(Error::Forked)));
            assert!(matches!(arena.stub(&[], &[text.address()]).map(drop), Err(Error::Forked)));
            assert!(matches!(arena.promote(), Err(Error::Forked)));
            assert!(arena.map().is_empty());
            assert!(arena.flush().is_err());
            assert_eq!(call(&text), 41);
        });
    }
    wait_for(child, &format!("{backing}: a child runs its parent's code and changes nothing"));
    pokes.finish().unwrap();

    // SAFETY: one thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        exit_with(|| {
            drop(section);
            drop((text, long));
            drop(arena);
            let own = Arena::new(Config::new().backing(backing)).unwrap();
            assert_eq!(call(&place_returns(&own, 5)), 5);
            for mapping in mappings() {
                assert!(!(mapping.has('w') && mapping.has('x')), "{mapping:?}");
            }
        });
    }
    wait_for(child, &format!("{backing}: a child lets go of its parent's code and has its own"));

    assert_eq!(arena.occupancy(), before, "{backing}");
    assert_eq!((call(&text), call(&long), call_at(waiting_at)), (41, 32, 34), "{backing}");
    drop(section);
    arena.flush().unwrap();
    let after = arena.occupancy();
    assert_eq!((after.waiting_bytes, after.chunks_used, after.texts), (0, empty_chunks, 2), "{backing}");
    drop((text, long));
    assert_eq!(call(&place_returns(&arena, 6)), 6);
}

fn children_lack_what_they_should() -> bool {
    let shown = probe::children_do_not_inherit_everything();
    probe::shown(shown, Hidden::DontFork, "a child has no writable view")
}

fn in_child(promise: &str, check: impl FnOnce()) {
    // SAFETY: this process has one thread, so the child may run any code.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        exit_with(check);
    }
    wait_for(child, promise);
}

fn exit_with(check: impl FnOnce()) -> ! {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    // SAFETY: ends the child without running the parent's destructors.
    unsafe { libc::_exit(i32::from(result.is_err())) }
}

fn wait_for(child: libc::pid_t, promise: &str) {
    let mut status = 0;
    // SAFETY: `status` is a place for an int.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    assert_eq!(status, 0, "broken promise: {promise}");
    println!("fork: {promise}");
}

//! What a forked child has of its parent's code memory: the right to run it, and nothing else.
//!
//! One thread and no test harness, because it forks.

mod common;

use common::*;
use skep_text::{Arena, Config, Error, PACK_BYTES};

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
        assert!(writable_views(&arena).is_empty());
        for view in &writable {
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
            assert!(writable_views(&arena).is_empty());
            assert!(matches!(arena.draft(10), Err(Error::Forked)));
        });
    });
    println!("fork: all promises hold");
}

fn in_child(promise: &str, check: impl FnOnce()) {
    // SAFETY: this process has one thread, so the child may do what it likes.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        exit_with(check);
    }
    wait_for(child, promise);
}

fn exit_with(check: impl FnOnce()) -> ! {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    // SAFETY: ends the child without running what belongs to the parent.
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

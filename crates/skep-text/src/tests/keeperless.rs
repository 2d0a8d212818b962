//! A domain may lack a keeper: because the host wants it so, or because no thread can be started. Then any thread
//! that passes by does the keeper's work, and must not meet a lock that it holds itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skep_rcu::Grace;

use super::*;

#[test]
fn without_a_keeper_the_loader_promotes_full_packs() {
    alone(|| {
        for backing in BACKINGS {
            for promote_at in [0, 1, 64 << 10, 1 << 20] {
                let arena = Arena::new(keeperless(backing).promote_at(promote_at)).unwrap();
                let texts: Vec<Text> = (0..60).map(|value| place(&arena, value, 100_000).unwrap()).collect();
                assert!(texts.iter().zip(0..).all(|(text, value)| call(text) == value));
                let occupancy = arena.occupancy();
                let asked = occupancy.huge_packs > 0 || occupancy.huge_refused.is_some();
                assert!(asked, "{backing}, {promote_at}: {occupancy:?}");
            }
        }
    });
}

#[test]
fn without_a_keeper_texts_freed_behind_a_reader_are_reclaimed() {
    alone(|| {
        // Both limits are so low that every path to reclamation is taken.
        let config = keeperless(Backing::Memfd).waiting(200_000).limit(2 * PACK_BYTES).promote_at(1 << 20);
        let arena = Arena::new(config).unwrap();
        let refused = AtomicUsize::new(0);
        thread::scope(|scope| {
            for seed in 0..4 {
                let (arena, refused) = (&arena, &refused);
                scope.spawn(move || {
                    for round in 0..3000 {
                        let section = (round % 3 == 0).then(|| arena.domain().enter().unwrap());
                        match place(arena, round, 500 + (round as usize * 97 + seed) % 60_000) {
                            Ok(text) => assert_eq!(call(&text), round),
                            Err(Error::Waiting { .. } | Error::Limit { .. }) => {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => panic!("{error}"),
                        }
                        drop(section);
                    }
                });
            }
        });
        arena.flush().unwrap();
        let after = arena.occupancy();
        assert_eq!((after.waiting_bytes, after.chunks_waiting, after.chunks_used, after.texts), (0, 0, 0, 0));
        assert!(refused.into_inner() < 12_000);
    });
}

#[test]
fn a_hosts_callback_may_use_the_arena_wherever_it_runs() {
    alone(|| {
        // Without a keeper, callbacks run in the middle of drafts and drops here.
        let arena = Arena::new(keeperless(Backing::Memfd).waiting(50_000).promote_at(64 << 10)).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for round in 0..500 {
            let section = arena.domain().enter().unwrap();
            for _ in 0..3 {
                let (mine, ran) = (arena.clone(), Arc::clone(&ran));
                arena.domain().call(Grace::Both, move || {
                    let text = place(&mine, round, 30_000);
                    assert!(text.is_ok_and(|text| call(&text) == round));
                    ran.fetch_add(1, Ordering::Relaxed);
                });
            }
            drop(place(&arena, round, 60_000));
            drop(section);
            let _ = place(&arena, round, 60_000);
        }
        arena.domain().barrier().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1500);
    });
}

#[test]
fn an_aligned_text_of_pack_size_takes_one_pack() {
    for random in [false, true] {
        let arena = Arena::new(keeperless(Backing::Memfd).random(random)).unwrap();
        for (len, align) in
            [(PACK_BYTES, 64), (PACK_BYTES, 4096), (PACK_BYTES - 32, 4096), (PACK_BYTES - 4096, 2048)]
        {
            let draft = arena.draft_aligned(len, align).unwrap();
            assert!(draft.address().is_multiple_of(align));
            drop(draft);
            assert_eq!(arena.occupancy().packs, 1, "{len} at {align}");
        }
    }
}

#[test]
fn growth_retries_a_promotion_only_after_a_temporary_refusal() {
    use crate::error::SystemCall;
    use crate::sys::inject;
    use rustix::io::Errno;

    alone(|| {
        if !packs_can_be_huge("a promotion that was refused is tried again") {
            return;
        }
        for (errno, again) in [(Errno::AGAIN, true), (Errno::INVAL, false)] {
            let arena = Arena::new(keeperless(Backing::Memfd).promote_at(64 << 10)).unwrap();
            let refusing = inject::fail_every(SystemCall::Collapse, errno);
            let mut texts = vec![place(&arena, 1, 100_000).unwrap()];
            drop(refusing);
            let refused = arena.occupancy();
            assert_eq!(refused.huge_packs, 0, "{errno}");
            assert!(refused.huge_refused.is_some(), "{errno}");
            // The pack is fully populated now; the next one grows.
            texts.extend((0..25).map(|value| place(&arena, value, 100_000).unwrap()));
            let later = arena.occupancy();
            assert_eq!(later.packs, 2, "{errno}");
            assert_eq!(later.huge_packs, if again { 2 } else { 1 }, "{errno}: {later:?}");
            assert_eq!(later.huge_refused.is_none(), again, "{errno}");
        }
    });
}

#[test]
fn a_failed_trap_fill_does_not_unmap_an_arena_under_readers() {
    use crate::error::SystemCall;
    use crate::sys::inject;
    use rustix::io::Errno;
    use std::sync::Arc;
    use std::sync::mpsc;

    let arena = Arena::new(keeperless(Backing::Hardened)).unwrap();
    let domain = arena.domain().clone();
    // A reader that stays until the signal to leave.
    let reader = || {
        let ((entered, is_in), (go, told)) = (mpsc::channel(), mpsc::channel::<()>());
        let domain = domain.clone();
        let thread = thread::spawn(move || {
            let _section = domain.enter().unwrap();
            entered.send(()).unwrap();
            told.recv().unwrap();
        });
        is_in.recv().unwrap();
        (go, thread)
    };
    let (first, second) = (place(&arena, 1, 64).unwrap(), place(&arena, 2, 64).unwrap());
    let address = second.address();

    let (first_goes, first_reader) = reader();
    drop(first);
    let (second_goes, second_reader) = reader();
    drop(second);
    first_goes.send(()).unwrap();
    first_reader.join().unwrap();
    let refusing = inject::fail_every(SystemCall::WriteCode, Errno::NOSPC);
    domain.defer(|| {}); // runs what is due, as a keeper does by itself
    assert_eq!(refusing.failed(), Some(SystemCall::WriteCode));
    drop(refusing);

    let shared = Arc::downgrade(arena.shared());
    drop(arena);
    assert!(shared.strong_count() > 0, "the range was unmapped while a reader was in it");
    assert_eq!(peek(address, returns(2).len()), returns(2));
    second_goes.send(()).unwrap();
    second_reader.join().unwrap();
    domain.defer(|| {});
    assert_eq!(shared.strong_count(), 0, "and it goes with the last reader");
}

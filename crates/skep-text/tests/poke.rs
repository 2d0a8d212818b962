//! Code is changed while it runs: each thread sees a valid old or new state, and nothing in between.

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::*;
use skep_text::{
    Arena, BRANCH_BYTES, BRANCH_OFFSET, Backing, Branch, Config, Error, PACK_BYTES, Text, WORD_BYTES,
};

const BACKINGS: [Backing; 3] = [Backing::Memfd, Backing::Hardened, Backing::Procmem];

fn arena(backing: Backing) -> Arena {
    Arena::new(Config::new().huge(false).backing(backing)).unwrap()
}

/// One-byte or one-word no-operations up to the first place for a patchable branch, the branch, and a function that
/// returns `otherwise`.
fn switch(arena: &Arena, branch: Branch, otherwise: u32) -> Text {
    let behind = returns(otherwise);
    let mut draft = arena.draft(BRANCH_OFFSET + BRANCH_BYTES + behind.len()).unwrap();
    let site = branch.encode(draft.address() + BRANCH_OFFSET).unwrap();
    let before = NOP.repeat(BRANCH_OFFSET / NOP.len());
    draft.bytes_mut().copy_from_slice(&[&before[..], &site, &behind].concat());
    draft.finalize().unwrap()
}

fn poke(arena: &Arena, text: &Text, branch: Branch) {
    let mut pokes = arena.pokes().unwrap();
    // SAFETY: `switch` put a patchable branch there; the targets are functions of the same type that outlive it.
    unsafe { pokes.branch(text, BRANCH_OFFSET, branch) }.unwrap();
    pokes.finish().unwrap();
}

#[test]
fn a_poked_branch_goes_to_its_target_or_falls_through() {
    for backing in BACKINGS {
        let arena = arena(backing);
        let one = place_returns(&arena, 1);
        // So far away that it is in another pack.
        let _between = place(&arena, &returns(9), PACK_BYTES).unwrap();
        let two = place(&arena, &returns(2), PACK_BYTES - 64).unwrap();
        let text = switch(&arena, Branch::Nop, 3);
        assert_eq!(call(&text), 3, "{backing}");
        for _ in 0..3 {
            poke(&arena, &text, Branch::To(one.address()));
            assert_eq!(call(&text), 1, "{backing}");
            poke(&arena, &text, Branch::To(two.address()));
            assert_eq!(call(&text), 2, "{backing}");
            poke(&arena, &text, Branch::Nop);
            assert_eq!(call(&text), 3, "{backing}");
        }
        assert_eq!(text.bytes(), switch(&arena, Branch::Nop, 3).bytes(), "neighbours were written over");
    }
}

#[test]
fn a_stub_runs_its_code_and_jumps_to_its_target() {
    let arena = arena(Backing::Memfd);
    let target = place_returns(&arena, 40);
    // The result shows that the stub's code ran.
    let code = NOP.repeat(2);
    let stub = arena.stub(&code, &[target.address()]).unwrap();
    assert_eq!(stub.len(), code.len() + BRANCH_BYTES);
    assert_eq!(stub.bytes()[..code.len()], code);
    assert_eq!(call(&stub), 40);
    let text = switch(&arena, Branch::To(stub.address()), 3);
    assert_eq!(call(&text), 40);
}

#[test]
fn copy_and_set_replace_only_their_words() {
    for backing in BACKINGS {
        let arena = arena(backing);
        let len = 3 * rustix::param::page_size();
        let before: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let text = place(&arena, &before, len).unwrap();
        let neighbour = place_returns(&arena, 5);

        let new: Vec<u8> = (0..len - 64).map(|at| (at % 241) as u8 ^ 0x55).collect();
        let mut pokes = arena.pokes().unwrap();
        // SAFETY: no thread runs it.
        unsafe { pokes.copy(&text, 32, &new[..len - 65 - (len - 65) % 4]) }.unwrap();
        pokes.finish().unwrap();
        let copied = len - 65 - (len - 65) % 4;
        let mut expected = before.clone();
        expected[32..32 + copied].copy_from_slice(&new[..copied]);
        assert!(text.bytes() == expected, "{backing}");

        let mut pokes = arena.pokes().unwrap();
        let count = (len - 16) / TRAP.len();
        // SAFETY: no thread runs it.
        unsafe { pokes.set(&text, 8, TRAP, count) }.unwrap();
        drop(pokes);
        expected[8..8 + count * TRAP.len()].copy_from_slice(&TRAP.repeat(count));
        assert!(text.bytes() == expected, "{backing}");
        assert_eq!(call(&neighbour), 5);
    }
}

#[test]
fn pokes_beyond_one_store_are_refused() {
    let arena = arena(Backing::Memfd);
    let text = switch(&arena, Branch::Nop, 3);
    let bytes = text.bytes();
    let other = Arena::new(Config::new()).unwrap();
    let mut pokes = arena.pokes().unwrap();
    // SAFETY: all are refused.
    unsafe {
        for offset in (0..text.len() - BRANCH_BYTES).filter(|offset| offset % WORD_BYTES != BRANCH_OFFSET) {
            let error = pokes.branch(&text, offset, Branch::Nop).unwrap_err();
            assert!(matches!(error, Error::Misaligned { .. }), "{offset}: {error:?}");
            assert!(error.to_string().contains("multiple of"), "{error}");
        }
        for offset in 1..WORD_BYTES {
            assert!(matches!(pokes.copy(&text, offset, TRAP), Err(Error::Misaligned { .. })), "{offset}");
            assert!(matches!(pokes.set(&text, offset, TRAP, 1), Err(Error::Misaligned { .. })), "{offset}");
        }
        assert!(matches!(pokes.set(&text, 0, &[0; 3], 1), Err(Error::Misaligned { .. })));
        assert!(matches!(pokes.set(&text, 0, &[], 1), Err(Error::OutOfText { .. })));
        assert!(matches!(pokes.set(&text, 0, TRAP, usize::MAX), Err(Error::OutOfText { .. })));
        for (offset, len) in [(0, text.len() + 1), (text.len(), 4), (usize::MAX - 7, 8), (0, 0)] {
            let error = pokes.copy(&text, offset, &vec![0; len]).unwrap_err();
            assert!(matches!(error, Error::OutOfText { .. }), "{offset} {len}: {error:?}");
        }
        let far = Branch::To(arena.range().start ^ 1 << 46);
        let error = pokes.branch(&text, BRANCH_OFFSET, far).unwrap_err();
        assert!(matches!(error, Error::OutOfReach { .. }), "{error:?}");
        assert!(error.to_string().contains("stub"), "{error}");
    }
    pokes.finish().unwrap();
    let mut pokes = other.pokes().unwrap();
    // SAFETY: refused.
    assert!(matches!(unsafe { pokes.branch(&text, BRANCH_OFFSET, Branch::Nop) }, Err(Error::WrongArena)));
    drop(pokes);
    assert!(matches!(arena.stub(&[], &[arena.range().start ^ 1 << 46]), Err(Error::OutOfReach { .. })));
    assert_eq!(arena.occupancy().drafts, 0, "a stub that was refused leaves nothing");
    assert_eq!(text.bytes(), bytes);
    assert_eq!(call(&text), 3);
}

#[test]
fn concurrent_pokes_of_neighbouring_branches_are_not_lost() {
    // Two sites in one text, each changed by its own thread; on x86-64 the words between are read and written back.
    let arena = arena(Backing::Memfd);
    let targets = [1, 2].map(|value| place_returns(&arena, value));
    let step = WORD_BYTES.max(8);
    let mut draft = arena.draft(BRANCH_OFFSET + step + BRANCH_BYTES).unwrap();
    for site in [0, step] {
        let bytes = Branch::Nop.encode(draft.address() + BRANCH_OFFSET + site).unwrap();
        draft.bytes_mut()[BRANCH_OFFSET + site..][..BRANCH_BYTES].copy_from_slice(&bytes);
    }
    let text = draft.finalize().unwrap();
    let address = text.address();
    thread::scope(|scope| {
        for (site, target) in [0, step].into_iter().zip(&targets) {
            let (arena, text) = (&arena, &text);
            scope.spawn(move || {
                for round in 0..2000 {
                    let branch = if round % 2 == 0 { Branch::To(target.address()) } else { Branch::Nop };
                    let mut pokes = arena.pokes().unwrap();
                    // SAFETY: no thread runs it.
                    unsafe { pokes.branch(text, BRANCH_OFFSET + site, branch) }.unwrap();
                    drop(pokes);
                    let bytes = peek(address..address + text.len());
                    let now = branch.encode(address + BRANCH_OFFSET + site).unwrap();
                    assert_eq!(bytes[BRANCH_OFFSET + site..][..BRANCH_BYTES], now, "round {round}");
                }
            });
        }
    });
}

#[test]
fn callers_never_see_a_target_older_than_the_last_batch() {
    const BATCHES: u64 = 20_000;
    for backing in [Backing::Memfd, Backing::Hardened] {
        let arena = arena(backing);
        let targets = [1, 2, 3].map(|value| place_returns(&arena, value));
        let text = switch(&arena, Branch::To(targets[0].address()), 9);
        // How many batches are finished; target number `finished % 3` is in force.
        let finished = AtomicU64::new(0);
        let running = AtomicBool::new(true);
        let ready = Barrier::new(3);
        let calls: u64 = thread::scope(|scope| {
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut calls = 0;
                        ready.wait();
                        // Once at least, even if this thread runs late.
                        loop {
                            for _ in 0..100 {
                                // Acquire pairs with the Release below: that batch was finished before this call.
                                let before = finished.load(Ordering::Acquire);
                                let seen = call(&text);
                                let after = finished.load(Ordering::Acquire);
                                assert!((1..=3).contains(&seen), "torn: {seen}");
                                // In force was something from `before` up to one batch beyond `after`, begun meanwhile.
                                let legal =
                                    (before..=after + 1).any(|batch| u64::from(seen) == batch % 3 + 1);
                                assert!(legal, "stale: {seen} between {before} and {after}");
                                calls += 1;
                            }
                            if !running.load(Ordering::Relaxed) {
                                break calls;
                            }
                        }
                    })
                })
                .collect();
            ready.wait();
            for batch in 1..=BATCHES {
                poke(&arena, &text, Branch::To(targets[(batch % 3) as usize].address()));
                // Release pairs with the Acquire above.
                finished.store(batch, Ordering::Release);
            }
            running.store(false, Ordering::Relaxed);
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert!(calls > 0, "there were no calls");
    }
}

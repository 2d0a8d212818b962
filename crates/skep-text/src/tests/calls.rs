//! Loading and dropping a program in populated memory makes no system call.

use super::*;
use crate::arch::NEEDS_SYNC_CORE;
use crate::error::SystemCall;
use crate::sys::inject;
use crate::{BRANCH_BYTES, BRANCH_OFFSET, Branch, CHUNK_BYTES, Draft};

const ROUNDS: usize = 50;

/// An arena with unused memory for everything that the tests place. The caller keeps the draft, of one chunk.
fn populated() -> (Arena, Draft) {
    let arena = Arena::new(keeperless(Backing::Memfd)).unwrap();
    let mut draft = arena.draft(1 << 20).unwrap();
    draft.truncate(CHUNK_BYTES).unwrap();
    (arena, draft)
}

#[test]
fn texts_in_populated_memory_need_no_system_calls() {
    let (arena, _draft) = populated();
    for round in 0..3 {
        // If every CPU must synchronise before it runs code in reused memory, that is the only call.
        let reused = round > 0 && NEEDS_SYNC_CORE;
        let calls = inject::record();
        let mut texts = Vec::new();
        for value in 0..ROUNDS as u32 {
            let mut draft = arena.draft_aligned(100 + 10 * value as usize, 64).unwrap();
            let code = returns(value);
            draft.bytes_mut()[..code.len()].copy_from_slice(&code);
            draft.truncate(90).unwrap();
            texts.push(draft.finalize().unwrap());
        }
        let expected = vec![SystemCall::SyncCores; if reused { ROUNDS } else { 0 }];
        assert_eq!(calls.made(), expected, "loading, {round}");
        drop(calls);

        let calls = inject::record();
        let drafts: Vec<Draft> = (1..=5).map(|len| arena.draft(100 * len).unwrap()).collect();
        texts.extend(Draft::finalize_all(drafts).unwrap());
        drop(arena.draft(1000).unwrap());
        let expected = vec![SystemCall::SyncCores; usize::from(reused)];
        assert_eq!(calls.made(), expected, "several at once, {round}");
        drop(calls);

        let calls = inject::record();
        let section = arena.domain().enter().unwrap();
        texts.truncate(30);
        drop(section);
        drop(texts);
        arena.flush().unwrap();
        assert_eq!(calls.made(), [], "retiring and reclaiming, {round}");
        drop(calls);
        assert_eq!(arena.occupancy().chunks_used, 1);
    }
}

#[test]
fn pokes_register_once_and_call_the_system_once_for_each_batch() {
    let (arena, _draft) = populated();
    let target = place(&arena, 7, 32).unwrap();
    let mut draft = arena.draft(BRANCH_OFFSET + BRANCH_BYTES).unwrap();
    let branch = Branch::Nop.encode(draft.address() + BRANCH_OFFSET).unwrap();
    draft.bytes_mut()[BRANCH_OFFSET..].copy_from_slice(&branch);
    let text = draft.finalize().unwrap();
    let batch = || {
        let calls = inject::record();
        let mut pokes = arena.pokes().unwrap();
        for branch in [Branch::To(target.address()), Branch::Nop] {
            // SAFETY: no thread runs the text.
            unsafe { pokes.branch(&text, BRANCH_OFFSET, branch) }.unwrap();
        }
        pokes.finish().unwrap();
        calls.made()
    };
    // An arena that synchronises CPUs for its texts as well is registered when it is made.
    let registers = usize::from(!NEEDS_SYNC_CORE);
    assert_eq!(batch(), vec![SystemCall::SyncCores; registers + 1], "registering, and the batch");
    for _ in 0..ROUNDS {
        assert_eq!(batch(), [SystemCall::SyncCores]);
    }
}

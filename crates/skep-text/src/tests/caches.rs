//! Cache maintenance makes written bytes executable: by the right addresses, after the last store and once for all
//! of it; and if other CPUs must synchronise, they do so after that, once.
//!
//! With coherent caches every other test would pass without any of this.

use super::*;
use crate::arch::recorder::{self, Published, Seen};
use crate::arch::{self, NEEDS_SYNC_CORE};
use crate::error::SystemCall;
use crate::reclaim::BATCH;
use crate::sizes::room;
use crate::sys::inject;
use crate::{BRANCH_BYTES, BRANCH_OFFSET, Branch, Draft, Probe, WORD_BYTES};

fn arena(backing: Backing) -> Arena {
    Arena::new(keeperless(backing)).unwrap()
}

fn draft(arena: &Arena, value: u32, len: usize) -> Draft {
    let code = returns(value);
    let mut draft = arena.draft(len).unwrap();
    draft.bytes_mut()[..code.len()].copy_from_slice(&code);
    draft
}

/// The expected bytes of a text that [`draft`] made, with the rest of its chunks.
fn code_and_traps(value: u32, len: usize) -> Vec<u8> {
    let code = returns(value);
    [&code[..], &arch::traps(room(len) - code.len())].concat()
}

/// The only publication.
fn only(mut published: Vec<Published>) -> Published {
    assert_eq!(published.len(), 1, "{published:x?}");
    published.remove(0)
}

fn is_all_traps(bytes: &[u8]) -> bool {
    bytes == arch::traps(bytes.len())
}

/// The mapping that contains an address: its permissions, its file, and the address's offset in the file.
fn mapping(address: usize) -> (String, u64, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |digits| usize::from_str_radix(digits, 16).unwrap();
    let found = maps.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let (start, end) = (number(start), number(end));
        let is_here = start <= address && address < end;
        is_here.then(|| (words[1].to_owned(), words[4].parse().unwrap(), number(words[2]) + address - start))
    });
    found.unwrap_or_else(|| panic!("nothing is mapped at {address:#x}"))
}

/// Asserts that it was cleaned by the view that it was stored through: the alias, or the executable view if there is
/// none.
fn assert_cleaned_where_it_was_stored(backing: Backing, view: &Seen) {
    let (permissions, file, offset) = mapping(view.executable);
    assert_eq!(&permissions[..3], "r-x", "{backing}");
    if backing != Backing::Memfd {
        assert_eq!(view.clean, view.executable, "{backing}");
        return;
    }
    assert_eq!(mapping(view.clean), ("rw-s".to_owned(), file, offset), "the alias of the same bytes");
    assert_ne!(file, 0);
}

#[test]
fn finalized_code_is_published_once_when_all_of_it_is_there() {
    for backing in BACKINGS {
        let arena = arena(backing);
        // The end of a chunk, one byte into the next, several pages, pages of its own.
        for (value, len) in (1..).zip([32, 33, 5000, PACK_BYTES + 1]) {
            let draft = draft(&arena, value, len);
            let recording = recorder::record();
            let text = draft.finalize().unwrap();
            let published = only(recording.take());
            let [view] = &published.views[..] else { panic!("{published:x?}") };
            assert_eq!(view.executable, text.address(), "{backing}");
            assert_eq!(
                view.bytes,
                code_and_traps(value, len),
                "{backing}, {len}: all of the room, code and traps"
            );
            assert_cleaned_where_it_was_stored(backing, view);
        }
    }
}

#[test]
fn drafts_that_are_finalized_together_are_published_together() {
    for backing in BACKINGS {
        let arena = arena(backing);
        let lens = [32, 33, 64, 1000, 4096];
        let drafts: Vec<Draft> = (0..).zip(lens).map(|(value, len)| draft(&arena, value, len)).collect();
        let recording = recorder::record();
        let texts = Draft::finalize_all(drafts).unwrap();
        let published = only(recording.take());
        assert_eq!(published.views.len(), 5, "{backing}");
        for (value, ((view, text), len)) in (0..).zip(published.views.iter().zip(&texts).zip(lens)) {
            assert_eq!((view.executable, text.len()), (text.address(), len), "{backing}");
            assert_eq!(view.bytes, code_and_traps(value, len), "{backing}");
            assert_cleaned_where_it_was_stored(backing, view);
        }
    }
}

#[test]
fn other_cpus_synchronise_for_code_in_reused_memory_only() {
    let arena = arena(Backing::Memfd);
    let expected = |reused: bool| vec![SystemCall::SyncCores; usize::from(reused && NEEDS_SYNC_CORE)];
    drop(draft(&arena, 0, 500)); // what a draft had is as fresh as before
    for reused in [false, true] {
        let drafts: Vec<Draft> = (0..5).map(|value| draft(&arena, value, 100)).collect();
        let (recording, calls) = (recorder::record(), inject::record());
        let texts = Draft::finalize_all(drafts).unwrap();
        assert_eq!(calls.made(), expected(reused), "reused: {reused}");
        assert_eq!(only(recording.take()).calls_before, 0, "the caches come first");
        drop((calls, recording, texts));
        arena.flush().unwrap();
    }
}

/// A text of `count` patchable branches without effect, at distances of `apart` bytes.
fn branches(arena: &Arena, count: usize, apart: usize) -> Text {
    let mut draft = arena.draft(count * apart).unwrap();
    let address = draft.address();
    for at in (0..count).map(|index| index * apart + BRANCH_OFFSET) {
        let branch = Branch::Nop.encode(address + at).unwrap();
        draft.bytes_mut()[at..at + BRANCH_BYTES].copy_from_slice(&branch);
    }
    draft.finalize().unwrap()
}

#[test]
fn a_batch_of_pokes_publishes_and_synchronises_once() {
    const COUNT: usize = 64;

    for backing in BACKINGS {
        let arena = arena(backing);
        let target = place(&arena, 7, 32).unwrap();
        drop(arena.pokes().unwrap()); // the process is registered from here on
        // Neighbours, which may become one view, and others, which must not.
        for (apart, views) in [(WORD_BYTES, 1), (2 * WORD_BYTES, COUNT), (256, COUNT)] {
            for is_dropped in [false, true] {
                let text = branches(&arena, COUNT, apart);
                let (recording, calls) = (recorder::record(), inject::record());
                let mut pokes = arena.pokes().unwrap();
                for at in (0..COUNT).map(|index| index * apart + BRANCH_OFFSET) {
                    // SAFETY: no thread runs the text.
                    unsafe { pokes.branch(&text, at, Branch::To(target.address())) }.unwrap();
                }
                assert!(recording.take().is_empty(), "{backing}: not before it is finished");
                assert!(
                    !calls.made().contains(&SystemCall::SyncCores),
                    "{backing}: not before it is finished"
                );
                let stores = calls.calls();
                assert_eq!(stores, if backing == Backing::Memfd { 0 } else { COUNT }, "{backing}");
                if is_dropped {
                    drop(pokes)
                } else {
                    pokes.finish().unwrap()
                }

                assert_eq!(calls.made()[stores..], [SystemCall::SyncCores], "{backing}");
                let published = only(recording.take());
                assert_eq!(published.calls_before, stores, "{backing}: the caches come first");
                assert_eq!(published.views.len(), views, "{backing}");
                for at in (0..COUNT).map(|index| text.address() + index * apart + BRANCH_OFFSET) {
                    let covers = |view: &&Seen| {
                        view.executable <= at && at + BRANCH_BYTES <= view.executable + view.bytes.len()
                    };
                    let view = published.views.iter().find(covers).expect("every branch is covered");
                    let branch = &view.bytes[at - view.executable..][..BRANCH_BYTES];
                    assert_eq!(branch, Branch::To(target.address()).encode(at).unwrap(), "{backing}");
                }
                assert_cleaned_where_it_was_stored(backing, &published.views[0]);
                assert_cleaned_where_it_was_stored(backing, &published.views[views - 1]);
            }
        }
    }
}

#[test]
fn a_batch_without_pokes_publishes_nothing_and_disturbs_no_cpu() {
    let arena = arena(Backing::Memfd);
    drop(arena.pokes().unwrap()); // the process is registered from here on
    let (recording, calls) = (recorder::record(), inject::record());
    arena.pokes().unwrap().finish().unwrap();
    drop(arena.pokes().unwrap());
    assert_eq!((calls.made(), recording.take().len()), (vec![], 0));
}

#[test]
fn retired_places_are_published_as_traps_once_for_each_batch() {
    for backing in BACKINGS {
        for (count, batches) in [(1, 1), (5, 1), (BATCH, 1), (BATCH + 1, 2)] {
            let arena = arena(backing);
            let texts: Vec<Text> = (0..count as u32).map(|value| place(&arena, value, 33).unwrap()).collect();
            let addresses: Vec<usize> = texts.iter().map(Text::address).collect();
            let recording = recorder::record();
            let section = arena.domain().enter().unwrap();
            drop(texts);
            assert!(recording.take().is_empty(), "{backing}: a reader is inside");
            drop(section);
            arena.flush().unwrap();
            let published = recording.take();
            assert_eq!(published.len(), batches, "{backing}, {count}");
            let views: Vec<Seen> = published.into_iter().flat_map(|published| published.views).collect();
            assert_eq!(views.iter().map(|view| view.executable).collect::<Vec<_>>(), addresses, "{backing}");
            for view in &views {
                assert!(view.bytes.len() == 64 && is_all_traps(&view.bytes), "{backing}: {view:x?}");
            }
            assert_cleaned_where_it_was_stored(backing, &views[0]);
        }
    }
}

#[test]
fn a_failed_draft_is_published_again_as_traps() {
    for backing in BACKINGS {
        let arena = arena(backing);
        let mut draft = draft(&arena, 1, 64);
        draft.probe(Probe { at: 48, resume: 52, register: None }).unwrap();
        draft.truncate(33).unwrap();
        let address = draft.address();
        let recording = recorder::record();
        assert!(matches!(draft.finalize(), Err(Error::Probe { .. })), "{backing}");
        let published = recording.take();
        assert_eq!(published.len(), 2, "{backing}");
        let views: Vec<&Seen> = published.iter().flat_map(|published| &published.views).collect();
        assert!(views.len() == 2 && views.iter().all(|view| view.executable == address), "{backing}");
        assert_eq!(views[0].bytes, code_and_traps(1, 33), "{backing}");
        assert!(views[1].bytes.len() == 64 && is_all_traps(&views[1].bytes), "{backing}");
    }
}

#[test]
fn memory_is_published_as_traps_when_it_becomes_executable() {
    for backing in BACKINGS {
        let recording = recorder::record();
        let arena = arena(backing);
        let mut published = recording.take();
        let start = arena.range().start;
        let mut populated = 0;
        for len in [1, 200_000, 400_000] {
            let _draft = arena.draft(len).unwrap();
            published.append(&mut recording.take());
            for view in published.drain(..).flat_map(|published| published.views) {
                assert_eq!(view.executable, start + populated, "{backing}: one part after the other");
                assert!(is_all_traps(&view.bytes), "{backing}");
                assert_cleaned_where_it_was_stored(backing, &view);
                populated += view.bytes.len();
            }
            assert_eq!(populated, arena.occupancy().mapped_bytes, "{backing}: all that there is");
        }
        assert!(populated >= 400_000);
    }
}

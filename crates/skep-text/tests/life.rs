//! The life of drafts, texts and their memory.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use common::*;
use skep_text::{Arena, CHUNK_BYTES, Config, Error, Occupancy, PACK_BYTES, SpanState, Text};

fn arena() -> Arena {
    Arena::new(Config::new().huge(false)).unwrap()
}

fn arena_of(packs: usize) -> Arena {
    Arena::new(Config::new().huge(false).reserve(packs * PACK_BYTES)).unwrap()
}

/// The occupancy after reclamation, without the fields on memory that existed earlier.
fn settled(arena: &Arena) -> Occupancy {
    arena.flush().unwrap();
    let mut occupancy = arena.occupancy();
    assert_eq!((occupancy.chunks_waiting, occupancy.waiting_bytes), (0, 0));
    assert_eq!(occupancy.mapped_bytes % rustix::param::page_size(), 0);
    (occupancy.mapped_bytes, occupancy.chunks_free, occupancy.largest_free_run) = (0, 0, 0);
    occupancy
}

#[test]
fn code_runs_at_its_draft_s_address() {
    let arena = arena();
    let code = returns(0x1234_5678);
    let mut draft = arena.draft(code.len()).unwrap();
    let address = draft.address();
    assert!(address.is_multiple_of(CHUNK_BYTES));
    assert!(arena.range().contains(&address));
    draft.bytes_mut().copy_from_slice(&code);
    assert!(is_all_traps(&peek(address..address + CHUNK_BYTES)), "nothing is written before finalize");
    let text = draft.finalize().unwrap();
    assert_eq!(text.address(), address);
    assert_eq!(text.range(), address..address + code.len());
    assert_eq!(text.bytes(), code);
    assert_eq!(call(&text), 0x1234_5678);
}

#[test]
fn drafts_have_addresses_before_any_is_encoded() {
    let arena = arena();
    let callee_code = returns(77);
    let mut callee = arena.draft(callee_code.len()).unwrap();
    let mut caller = arena.draft(16).unwrap();
    let jump = jump(caller.address(), callee.address());
    caller.bytes_mut()[..jump.len()].copy_from_slice(&jump);
    callee.bytes_mut().copy_from_slice(&callee_code);
    let caller = caller.finalize().unwrap();
    let callee = callee.finalize().unwrap();
    assert_eq!(call(&caller), 77);
    drop((caller, callee));
}

#[test]
fn everything_but_finalized_code_is_traps() {
    let arena = arena();
    let view = executable_views(&arena)[0].range.clone();
    assert!(is_all_traps(&peek(view.clone())), "at birth");

    let mut draft = arena.draft(100).unwrap();
    assert!(is_all_traps(draft.bytes_mut()), "a draft starts out as traps");
    let text = place(&arena, &returns(1), 100).unwrap();
    let after = text.range().end..view.end;
    assert_eq!(executable_views(&arena)[0].range, view, "there was memory enough");
    assert!(is_all_traps(&peek(after)), "behind a text");
    drop(draft);

    let place = text.range();
    drop(text);
    arena.flush().unwrap();
    assert!(is_all_traps(&peek(place)), "after a text");
    assert!(is_all_traps(&peek(view)), "everywhere");
}

#[test]
fn drafts_that_are_never_finalized_leak_nothing() {
    let arena = arena();
    let _text = place_returns(&arena, 1);
    let before = settled(&arena);
    let mut held = Vec::new();
    for index in 0..100_000usize {
        let mut draft = arena.draft(1 + index * 7919 % 5000).unwrap();
        draft.bytes_mut().fill(0xc3);
        held.push(draft);
        if held.len() == 50 {
            held.clear();
        }
    }
    drop(held);
    assert_eq!(settled(&arena), before);
    for view in executable_views(&arena) {
        let bytes = peek(view.range.clone());
        assert!(is_all_traps(&bytes[CHUNK_BYTES..]), "a draft was written to its place");
    }
}

#[test]
fn occupancy_counts_what_is_there() {
    let arena = arena();
    let empty = arena.occupancy();
    let bytes = empty.mapped_bytes;
    assert!(0 < bytes && bytes <= 64 << 10, "a pack begins with little memory, not {bytes}");
    assert_eq!(executable_views(&arena)[0].range.len(), bytes);
    let chunks = bytes / CHUNK_BYTES;
    assert_eq!((empty.packs, empty.empty_packs), (1, 1));
    assert_eq!((empty.chunks_used, empty.chunks_free, empty.chunks_waiting), (0, chunks, 0));
    assert_eq!((empty.used_bytes, empty.code_bytes, empty.largest_free_run), (0, 0, bytes));
    assert_eq!((empty.drafts, empty.texts, empty.own_mappings), (0, 0, 0));
    assert_eq!((empty.backing.name(), empty.huge_bytes, empty.huge_packs), ("memfd", Some(0), 0));

    let text = place(&arena, &returns(1), 65).unwrap();
    let draft = arena.draft(64).unwrap();
    let some = arena.occupancy();
    assert_eq!((some.packs, some.empty_packs, some.mapped_bytes), (1, 0, bytes));
    assert_eq!((some.chunks_used, some.chunks_free), (5, chunks - 5));
    assert_eq!((some.used_bytes, some.code_bytes), (160, 129));
    assert_eq!((some.drafts, some.texts), (1, 1));
    assert_eq!(some.largest_free_run, bytes - 160);
    assert_eq!(some.fragmentation(), 0.0);

    let section = arena.domain().enter().unwrap();
    drop((text, draft));
    let waiting = arena.occupancy();
    assert_eq!((waiting.chunks_used, waiting.chunks_waiting, waiting.waiting_bytes), (0, 3, 96));
    assert_eq!((waiting.drafts, waiting.texts, waiting.code_bytes), (0, 0, 0));
    drop(section);
    arena.flush().unwrap();
    assert_eq!(arena.occupancy(), empty);
}

#[test]
fn the_map_accounts_for_every_byte() {
    let arena = arena();
    let text = place(&arena, &returns(1), 100).unwrap();
    let gone = place(&arena, &returns(2), 40).unwrap();
    let draft = arena.draft(33).unwrap();
    let section = arena.domain().enter().unwrap();
    let (gone_at, after) = (gone.address(), draft.address() + 64);
    drop(gone);
    let map = arena.map();
    let memory = arena.occupancy().mapped_bytes;
    let start = arena.range().start;
    let expected = [
        (text.address(), 128, SpanState::Text),
        (gone_at, 64, SpanState::Waiting),
        (draft.address(), 64, SpanState::Draft),
        (after, start + memory - after, SpanState::Free),
        (start + memory, PACK_BYTES - memory, SpanState::NoMemory),
    ];
    let told: Vec<_> = map.iter().map(|span| (span.address, span.len, span.state)).collect();
    assert_eq!(told, expected);
    drop(section);
}

#[test]
fn a_draft_can_be_cut_short_and_keeps_its_address() {
    let arena = arena();
    let code = returns(5);
    let mut draft = arena.draft(10 * CHUNK_BYTES).unwrap();
    let address = draft.address();
    draft.bytes_mut()[..code.len()].copy_from_slice(&code);
    assert!(matches!(draft.truncate(0), Err(Error::Empty)));
    draft.truncate(20 * CHUNK_BYTES).unwrap();
    assert_eq!(draft.len(), 10 * CHUNK_BYTES, "longer is no cut");
    draft.truncate(code.len()).unwrap();
    assert_eq!(draft.bytes_mut(), code);
    assert_eq!(arena.occupancy().chunks_used, 1);
    assert_eq!(arena.occupancy().code_bytes, code.len());

    let text = draft.finalize().unwrap();
    let neighbour = place_returns(&arena, 6);
    assert_eq!(text.address(), address);
    assert_eq!(neighbour.address(), address + CHUNK_BYTES, "the rest was free at once");
    assert_eq!((call(&text), call(&neighbour)), (5, 6));
    drop((text, neighbour));
    assert_eq!(arena.occupancy().code_bytes, 0);
}

#[test]
fn empty_and_oversized_drafts_are_refused_with_a_remedy() {
    let arena = arena_of(2);
    let range = 2 * PACK_BYTES;
    assert!(matches!(arena.draft(0), Err(Error::Empty)));
    for len in [range + 1, usize::MAX] {
        match arena.draft(len) {
            Err(error @ Error::TooLong { len: told, range: size, .. }) => {
                assert_eq!((told, size), (len, range));
                assert!(error.to_string().contains("Config::reserve"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    for (config, setting) in [
        (Config::new().reserve(PACK_BYTES - 1), "Config::reserve"),
        (Config::new().limit(PACK_BYTES - 1), "Config::limit"),
    ] {
        let error = Arena::new(config).unwrap_err();
        assert!(matches!(&error, Error::TooSmall { setting: told, .. } if *told == setting), "{error:?}");
        assert!(error.to_string().starts_with(setting), "{error}");
    }
}

#[test]
fn the_memory_limit_holds_and_room_returns() {
    let limit = 2 * PACK_BYTES;
    let arena = Arena::new(Config::new().huge(false).limit(limit)).unwrap();
    let mut texts = Vec::new();
    let error = loop {
        match place(&arena, &returns(9), 100_000) {
            Ok(text) => texts.push(text),
            Err(error) => break error,
        }
    };
    assert!(texts.len() >= 2 * (PACK_BYTES / 100_000usize.next_multiple_of(CHUNK_BYTES)), "{}", texts.len());
    assert!(matches!(error, Error::Limit { limit: told, .. } if told == limit), "{error:?}");
    assert!(error.to_string().contains("Config::limit"), "{error}");
    let mapped = arena.occupancy().mapped_bytes;
    assert!(mapped <= limit && mapped + 100_000 > limit, "{mapped}");

    assert!(matches!(arena.draft(PACK_BYTES + 1), Err(Error::Limit { .. })));
    assert!(texts.iter().all(|text| call(text) == 9), "a refusal disturbs no other text");
    texts.pop();
    texts.push(place(&arena, &returns(9), 100_000).unwrap());
    texts.clear();
    let after = settled(&arena);
    assert_eq!((after.packs, after.chunks_used), (1, 0));
}

#[test]
fn a_full_range_is_an_error_and_room_returns() {
    let arena = arena_of(3);
    let mut texts: Vec<Text> = Vec::new();
    let error = loop {
        match place(&arena, &returns(9), PACK_BYTES / 2) {
            Ok(text) => texts.push(text),
            Err(error) => break error,
        }
    };
    assert_eq!(texts.len(), 6);
    assert!(matches!(error, Error::RangeFull { len: PACK_BYTES, .. }), "{error:?}");
    assert!(error.to_string().contains("Config::reserve"), "{error}");
    texts.clear();
    assert_eq!(settled(&arena).packs, 1);
    assert_eq!(call(&place_returns(&arena, 3)), 3);
}

#[test]
fn one_empty_pack_is_kept_and_others_are_returned() {
    let arena = arena_of(8);
    let texts: Vec<Text> = (0..8).map(|value| place(&arena, &returns(value), PACK_BYTES).unwrap()).collect();
    assert_eq!(arena.occupancy().packs, 8);
    assert_eq!(executable_views(&arena).len(), 8);
    assert!(texts.iter().enumerate().all(|(index, text)| call(text) == index as u32));
    drop(texts);
    arena.flush().unwrap();
    let after = arena.occupancy();
    assert_eq!((after.packs, after.empty_packs, after.mapped_bytes), (1, 1, PACK_BYTES));
    assert_eq!(executable_views(&arena).len(), 1);
    assert_eq!(writable_views(&arena).len(), 1);
    let kept = executable_views(&arena)[0].inode;

    // A single program that is loaded and freed repeatedly always gets the same pack.
    for _ in 0..10 {
        assert_eq!(call(&place(&arena, &returns(4), PACK_BYTES).unwrap()), 4);
        // A pack of traps takes the keeper of a busy machine so long that the next text would come before it has them.
        arena.flush().unwrap();
        assert_eq!(executable_views(&arena)[0].inode, kept);
    }
}

#[test]
fn a_text_longer_than_a_pack_has_pages_of_its_own() {
    let arena = arena_of(8);
    let before = arena.occupancy();
    let len = 2 * PACK_BYTES + 5000;
    let code = returns(0xabcd);
    let mut draft = arena.draft(len).unwrap();
    draft.bytes_mut()[len - code.len() - 4..][..code.len()].copy_from_slice(&code);
    let expected = draft.bytes_mut().to_vec();
    let text = draft.finalize().unwrap();
    assert_eq!(call_at(text.range().end - code.len() - 4), 0xabcd);
    assert_eq!(text.bytes(), expected);

    let during = arena.occupancy();
    let pages = len.next_multiple_of(rustix::param::page_size());
    assert_eq!(during.own_mappings, 1);
    assert_eq!(during.mapped_bytes, before.mapped_bytes + pages);
    assert_eq!((during.used_bytes, during.code_bytes), (pages, len));
    assert_eq!(executable_views(&arena).len(), 2);
    assert!(is_all_traps(&peek(text.range().end..text.address() + pages)));

    // It does not block other texts, nor they it.
    let small = place_returns(&arena, 8);
    let another = place(&arena, &returns(9), 3 * PACK_BYTES).unwrap();
    assert_eq!((call(&small), call(&another)), (8, 9));
    assert!(matches!(arena.draft(3 * PACK_BYTES), Err(Error::RangeFull { .. })));
    drop((small, text, another));
    arena.flush().unwrap();
    assert_eq!(arena.occupancy(), before);
    assert_eq!(executable_views(&arena).len(), 1);

    // The reserve gives way to a text that needs the whole range.
    let whole = place(&arena, &returns(10), 8 * PACK_BYTES).unwrap();
    assert_eq!(call(&whole), 10);
    assert_eq!(arena.occupancy().packs, 0);
    drop(whole);
    arena.flush().unwrap();
    assert_eq!(arena.occupancy().mapped_bytes, 0);
    assert_eq!(call(&place_returns(&arena, 11)), 11);
}

#[test]
fn long_texts_of_a_permanent_arena_are_unmapped_too() {
    let arena = Arena::new(Config::new().huge(false).permanent(true).reserve(8 * PACK_BYTES)).unwrap();
    let before = settled(&arena);
    for value in 0..20 {
        assert_eq!(call(&place(&arena, &returns(value), PACK_BYTES + 1).unwrap()), value);
        assert_eq!(settled(&arena), before);
    }
}

#[test]
fn drafts_and_texts_may_change_threads_and_outlive_the_arena() {
    let arena = arena();
    let code = returns(31);
    let mut draft = arena.draft(code.len()).unwrap();
    draft.bytes_mut().copy_from_slice(&code);
    drop(arena);
    let text = thread::spawn(move || draft.finalize().unwrap()).join().unwrap();
    assert_eq!(call(&text), 31);
    assert_eq!(thread::spawn(move || call(&text)).join().unwrap(), 31);
}

#[test]
fn dropping_the_last_handle_unmaps_everything() {
    let arena = arena_of(8);
    let range = arena.range();
    let texts: Vec<Text> = (0..3).map(|value| place(&arena, &returns(value), PACK_BYTES).unwrap()).collect();
    let own = place(&arena, &returns(3), 2 * PACK_BYTES).unwrap();
    let views: Vec<Mapping> = executable_views(&arena).into_iter().chain(writable_views(&arena)).collect();
    assert_eq!(views.len(), 8);
    let another = arena.clone();
    drop((arena, texts, own, another));
    // The keeper finishes last. It is fast, but it is another thread.
    let is_left = |mapping: &Mapping| {
        let same = |view: &Mapping| mapping.inode == view.inode && mapping.name == view.name;
        views.iter().any(same) || mapping.has('x') && range.contains(&mapping.range.start)
    };
    assert!(eventually(|| !mappings().iter().any(is_left)), "{:?}", mappings());
}

#[test]
fn threads_load_run_and_free_with_right_results() {
    const THREADS: u32 = 8;
    let arena = arena();
    let before = settled(&arena);
    let serial = AtomicU32::new(1);
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (arena, serial) = (&arena, &serial);
            scope.spawn(move || {
                let mut random = Random(seed.into());
                let mut held: Vec<(Text, u32)> = Vec::new();
                for _ in 0..4000 {
                    let value = serial.fetch_add(1, Ordering::Relaxed);
                    let len = match random.below(100) {
                        0 => 50_000 + random.below(400_000),
                        1..20 => 1000 + random.below(4000),
                        _ => 16 + random.below(600),
                    };
                    if random.below(10) == 0 {
                        drop(arena.draft(len).unwrap());
                    }
                    held.push((place(arena, &returns(value), len).unwrap(), value));
                    for _ in 0..3 {
                        let (text, value) = &held[random.below(held.len())];
                        assert_eq!(call(text), *value);
                    }
                    while held.len() > 40 {
                        let (text, value) = held.swap_remove(random.below(held.len()));
                        assert_eq!(call(&text), value);
                    }
                }
                for (text, value) in &held {
                    assert_eq!(call(text), *value);
                }
            });
        }
    });
    let after = settled(&arena);
    assert_eq!(after, before, "something leaked");
    for view in executable_views(&arena) {
        assert!(is_all_traps(&peek(view.range)));
    }
}

#[test]
fn texts_travel_between_threads_and_run_on_all_of_them() {
    const THREADS: usize = 4;
    const ROUNDS: u32 = 3000;
    let arena = arena();
    let shared: Mutex<Option<(std::sync::Arc<Text>, u32)>> = Mutex::new(None);
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (arena, shared, start) = (&arena, &shared, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    if index == 0 || round % 7 == 0 {
                        let value = round * THREADS as u32 + index as u32;
                        let text = std::sync::Arc::new(place_returns(arena, value));
                        *shared.lock().unwrap() = Some((text, value));
                    }
                    let current = shared.lock().unwrap().clone();
                    if let Some((text, value)) = current {
                        assert_eq!(call(&text), value);
                    }
                }
            });
        }
    });
    drop(shared);
    assert_eq!(settled(&arena).chunks_used, 0);
}

#[test]
fn no_limit_error_while_room_is_being_returned() {
    // Two threads, each with at most one text that fills a pack, and a limit of two packs: always room for both.
    let arena = Arena::new(Config::new().huge(false).limit(2 * PACK_BYTES)).unwrap();
    thread::scope(|scope| {
        for value in 0..2 {
            let arena = &arena;
            scope.spawn(move || {
                for _ in 0..150 {
                    let text = place(arena, &returns(value), PACK_BYTES - 100).unwrap();
                    assert_eq!(call(&text), value);
                }
            });
        }
    });
    arena.flush().unwrap();
    assert_eq!(arena.occupancy().packs, 1);
}

#[test]
fn a_draft_has_the_alignment_requested() {
    let page = rustix::param::page_size();
    for random in [false, true] {
        let config = || Config::new().huge(false).random(random).reserve(64 * PACK_BYTES);
        let mut align = 1;
        while align <= page {
            let arena = Arena::new(config()).unwrap();
            // Nothing later begins where a page does by itself.
            let _first = place_returns(&arena, 1);
            let check = |len: usize| {
                let mut draft = arena.draft_aligned(len, align).unwrap();
                let address = draft.address();
                assert!(
                    address.is_multiple_of(align.max(CHUNK_BYTES)),
                    "{len} bytes at {align}: {address:#x}"
                );
                assert_eq!(draft.len(), len);
                let code = returns(align as u32);
                draft.bytes_mut()[..code.len()].copy_from_slice(&code);
                let text = draft.finalize().unwrap();
                assert_eq!((text.address(), call(&text)), (address, align as u32));
                text
            };
            let mut texts = vec![check(33), check(5000), check(PACK_BYTES + 1)];
            // A pack is full when the next text has to have another.
            let before = arena.occupancy().packs;
            while arena.occupancy().packs == before {
                texts.push(place(&arena, &returns(2), 60_000).unwrap());
            }
            texts.extend([
                check(33),
                check(5000),
                check(100_000),
                check(PACK_BYTES),
                check(2 * PACK_BYTES + 1),
            ]);
            // Holes among neighbours.
            let mut index = 0;
            texts.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            arena.flush().unwrap();
            texts.extend([check(33), check(5000), check(50_000)]);
            let mut ranges: Vec<_> = texts.iter().map(Text::range).collect();
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start), "none lies over another");
            align *= 2;
        }
    }
}

#[test]
fn an_unsupported_alignment_is_refused_and_the_largest_named() {
    let page = rustix::param::page_size();
    for random in [false, true] {
        let arena = Arena::new(Config::new().huge(false).random(random)).unwrap();
        let before = arena.occupancy();
        for refused in [0, 3, page - 1, page + 1, 2 * page, usize::MAX, 1 << (usize::BITS - 1)] {
            for len in [1, 100, PACK_BYTES, PACK_BYTES + 1] {
                let error = arena.draft_aligned(len, refused).unwrap_err();
                let Error::Alignment { align, max } = error else { panic!("{refused}: {error:?}") };
                assert_eq!((align, max), (refused, page));
                assert!(error.to_string().contains(&format!("at most {page}")), "{error}");
            }
        }
        assert_eq!(arena.occupancy(), before, "nothing was taken");
    }
}

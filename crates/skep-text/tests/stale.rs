//! A call into dropped code is killed by a trap; it never runs other code. In children, because they are killed.

mod common;

use std::os::unix::process::ExitStatusExt;

use common::*;
use skep_text::{Arena, Backing, CHUNK_BYTES, Config, PACK_BYTES};

const SIGTRAP: i32 = 5;
const SIGSEGV: i32 = 11;

const BACKINGS: [Backing; 3] = [Backing::Memfd, Backing::Hardened, Backing::Procmem];

fn dies_of(signal: i32) {
    for backing in BACKINGS {
        let status = run_as_child_with(backing.name());
        assert_eq!(status.signal(), Some(signal), "{backing}: {status}");
    }
}

/// The arena that the parent requested.
fn arena() -> Arena {
    let wanted = child_argument();
    let backing = BACKINGS.into_iter().find(|backing| backing.name() == wanted).unwrap();
    Arena::new(Config::new().backing(backing)).unwrap()
}

#[test]
fn a_call_into_a_freed_text_dies_on_a_trap() {
    if is_child() {
        dump_no_core();
        let arena = arena();
        let text = place_returns(&arena, 1);
        assert_eq!(call(&text), 1);
        let address = text.address();
        drop(text);
        arena.flush().unwrap();
        std::process::exit(call_at(address) as i32);
    }
    dies_of(SIGTRAP);
}

#[test]
fn a_call_into_the_middle_of_a_freed_text_dies_on_a_trap() {
    if is_child() {
        dump_no_core();
        let arena = arena();
        let text = place(&arena, &returns(1).repeat(100), 100 * returns(1).len()).unwrap();
        let address = text.address() + 57 * returns(1).len();
        assert_eq!(call_at(address), 1);
        drop(text);
        arena.flush().unwrap();
        std::process::exit(call_at(address) as i32);
    }
    dies_of(SIGTRAP);
}

#[test]
fn a_call_into_a_draft_that_is_not_finalized_dies_on_a_trap() {
    if is_child() {
        dump_no_core();
        let arena = arena();
        let mut draft = arena.draft(CHUNK_BYTES).unwrap();
        draft.bytes_mut()[..returns(1).len()].copy_from_slice(&returns(1));
        std::process::exit(call_at(draft.address()) as i32);
    }
    dies_of(SIGTRAP);
}

#[test]
fn code_that_runs_past_its_end_dies_on_a_trap() {
    if is_child() {
        dump_no_core();
        let arena = arena();
        let code = returns(1);
        let no_return = &code[..code.len() - RETURN.len()];
        let text = place(&arena, no_return, no_return.len()).unwrap();
        std::process::exit(call(&text) as i32);
    }
    dies_of(SIGTRAP);
}

#[test]
fn a_call_into_a_pack_that_was_returned_dies_on_a_fault() {
    if is_child() {
        dump_no_core();
        let arena = arena();
        let text = place(&arena, &returns(1), 2 * PACK_BYTES).unwrap();
        assert_eq!(call(&text), 1);
        let address = text.address();
        drop(text);
        arena.flush().unwrap();
        std::process::exit(call_at(address) as i32);
    }
    dies_of(SIGSEGV);
}

#[test]
fn a_call_into_a_reclaimed_text_dies_on_a_trap() {
    if is_child() {
        dump_no_core();
        let arena = arena();
        let _neighbour = place_returns(&arena, 8);
        let text = place_returns(&arena, 1);
        let address = text.address();
        let section = arena.domain().enter().unwrap();
        drop(text);
        assert_eq!(call_at(address), 1, "the reader may still run it");
        drop(section);
        arena.flush().unwrap();
        assert!(is_all_traps(&peek(address..address + CHUNK_BYTES)));
        std::process::exit(call_at(address) as i32);
    }
    dies_of(SIGTRAP);
}

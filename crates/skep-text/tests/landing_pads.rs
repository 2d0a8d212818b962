//! If landing pads are enforced, an indirect call reaches only code that begins with one. In children, because the
//! others are killed.

mod common;

use std::os::unix::process::ExitStatusExt;

use common::*;
use skep_text::{Arena, BRANCH_OFFSET, Backing, Branch, Config, PACK_BYTES};

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;

const BACKINGS: [Backing; 3] = [Backing::Memfd, Backing::Hardened, Backing::Procmem];

fn with_pad(value: u32) -> Vec<u8> {
    [LANDING_PAD, &returns(value)].concat()
}

/// Whether this machine checks landing pads. One of an architecture that may and does not cannot show what happens.
fn is_checked() -> bool {
    let arena = Arena::new(Config::new().landing_pads(true)).unwrap();
    let checked = arena.occupancy().landing_pads;
    assert!(LANDING_PADS_ARE_CHECKED || !checked, "there is no such architecture");
    if LANDING_PADS_ARE_CHECKED && !checked {
        skip(&skep_testkit::test_name(), "this CPU or its kernel has no branch target identification");
    }
    checked
}

#[test]
fn code_with_landing_pads_runs_in_every_arena_and_every_backing() {
    for backing in BACKINGS {
        for landing_pads in [false, true] {
            let config = Config::new().backing(backing).huge(false).landing_pads(landing_pads);
            let arena = Arena::new(config).unwrap();
            assert!(landing_pads || !arena.occupancy().landing_pads);
            // The first memory of a pack, memory that it grows by, another pack, pages of its own.
            for (value, len) in (1..).zip([64, 1 << 20, PACK_BYTES, PACK_BYTES + 1]) {
                let text = place(&arena, &with_pad(value), len).unwrap();
                assert_eq!(call(&text), value, "{backing}, {landing_pads}, {len}");
            }
        }
    }
}

#[test]
fn an_enforced_indirect_call_without_a_landing_pad_dies() {
    if is_child() {
        dump_no_core();
        let wanted = child_argument();
        let (backing, len) = wanted.split_once(' ').unwrap();
        let backing = BACKINGS.into_iter().find(|known| known.name() == backing).unwrap();
        let config = Config::new().backing(backing).huge(false);
        let elsewhere = Arena::new(config.clone()).unwrap();
        assert_eq!(call(&place_returns(&elsewhere, 3)), 3);
        let arena = Arena::new(config.landing_pads(true)).unwrap();
        let text = place(&arena, &returns(3), len.parse().unwrap()).unwrap();
        std::process::exit(call(&text) as i32);
    }
    let checked = is_checked();
    for backing in BACKINGS {
        for len in [64, 1 << 20, PACK_BYTES + 1] {
            let status = run_as_child_with(&format!("{backing} {len}"));
            let (signal, code) = if checked { (Some(SIGILL), None) } else { (None, Some(3)) };
            assert_eq!((status.signal(), status.code()), (signal, code), "{backing}, {len}: {status}");
        }
    }
}

#[test]
fn only_indirect_targets_need_landing_pads() {
    let arena = Arena::new(Config::new().landing_pads(true)).unwrap();
    let plain = place_returns(&arena, 5);
    let stub = arena.stub(NOP, &[plain.address()]).unwrap();
    assert_eq!(call(&stub), 5, "called indirectly");

    // A function that begins with a landing pad and a branch to be poked.
    let at = (LANDING_PAD.len() - BRANCH_OFFSET).next_multiple_of(8) + BRANCH_OFFSET;
    let mut draft = arena.draft(64).unwrap();
    let branch = Branch::To(plain.address()).encode(draft.address() + at).unwrap();
    let between = NOP.repeat((at - LANDING_PAD.len()) / NOP.len());
    let code = [LANDING_PAD, &between, &branch].concat();
    draft.bytes_mut()[..code.len()].copy_from_slice(&code);
    let text = draft.finalize().unwrap();
    assert_eq!(call(&text), 5);
    let mut pokes = arena.pokes().unwrap();
    // SAFETY: a patchable branch, and a stub of the same type.
    unsafe { pokes.branch(&text, at, Branch::To(stub.address())) }.unwrap();
    pokes.finish().unwrap();
    assert_eq!(call(&text), 5);
}

#[test]
fn stray_calls_into_free_memory_trap_with_landing_pads() {
    if is_child() {
        dump_no_core();
        let arena = Arena::new(Config::new().landing_pads(true)).unwrap();
        let draft = arena.draft(64).unwrap();
        std::process::exit(call_at(draft.address()) as i32);
    }
    let status = run_as_child();
    assert_eq!(status.signal(), Some(SIGTRAP), "{status}");
}

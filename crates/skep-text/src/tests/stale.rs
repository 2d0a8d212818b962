//! Cache maintenance is needed, and done by the right address: with it new code runs, without it old code does.
//!
//! In three scenarios code replaces something that ran at its address: a trap in memory that held no code before,
//! another text, a poked branch. Each runs with correct maintenance, and then the new code must run; and with the
//! instruction caches not invalidated, or invalidated by the writable view's addresses, and then the old code must
//! run: a test of the maintenance that passes without it proves nothing.
//!
//! The trap runs before fresh code is placed, as after a stray jump: code that never ran is in an instruction cache
//! only by a CPU's speculation, and an emulator (QEMU translates code when it first runs) does not speculate. For
//! reused memory the defect begins when the older text is dropped, because filling its place with traps invalidates
//! it, too.
//!
//! QEMU's emulation of user programs shows stale code: it keeps what it has translated from a read-only mapping
//! until IC IVAU (which it obeys since version 8.1; seen with 10.0). A real machine may show it every time or only
//! sometimes, so several attempts are made. A machine that never does (CTR_EL0.DIC) is detected by storing code
//! repeatedly in memory outside of the crate.

use std::ffi::c_void;

use libc::{c_int, siginfo_t};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use skep_testkit::skip;

use super::arch::{CACHES_ARE_COHERENT, TRAPPED, return_from_trap};
use super::*;
use crate::arch::defect::{self, Defect};
use crate::{BRANCH_BYTES, BRANCH_OFFSET, Branch, CHUNK_BYTES};

const TRIES: u32 = 20;

/// Which code ran: the newest, or the one it replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    New,
    Old,
}

/// Which of two functions ran; they return different values.
fn ran(value: u32, old: u32, new: u32) -> Ran {
    match value {
        _ if value == new => Ran::New,
        _ if value == old => Ran::Old,
        _ => panic!("{value} is neither the old {old} nor the new {new}"),
    }
}

/// Replaces code that ran, with the defect if there is one, and runs it again. Keeps its texts, so that the next
/// attempt gets another place.
type Scenario = fn(&Arena, Option<Defect>, &mut Vec<Text>) -> Ran;

fn fresh_code(arena: &Arena, defect: Option<Defect>, texts: &mut Vec<Text>) -> Ran {
    let mut draft = arena.draft(CHUNK_BYTES).unwrap();
    let code = returns(1);
    draft.bytes_mut()[..code.len()].copy_from_slice(&code);
    assert_eq!(call_at(draft.address()), TRAPPED, "there is no code before it is finalized");
    let _wrong = defect.map(defect::begin);
    texts.push(draft.finalize().unwrap());
    ran(call(&texts[texts.len() - 1]), TRAPPED, 1)
}

fn code_in_reused_memory(arena: &Arena, defect: Option<Defect>, texts: &mut Vec<Text>) -> Ran {
    let older = place(arena, 1, CHUNK_BYTES).unwrap();
    let address = older.address();
    assert_eq!(call(&older), 1);
    let _wrong = defect.map(defect::begin);
    drop(older);
    arena.flush().unwrap();
    texts.push(place(arena, 2, CHUNK_BYTES).unwrap());
    assert_eq!(texts[texts.len() - 1].address(), address, "the place is used again");
    ran(call_at(address), 1, 2)
}

fn a_poked_branch(arena: &Arena, defect: Option<Defect>, texts: &mut Vec<Text>) -> Ran {
    let [one, two] = [1, 2].map(|value| place(arena, value, CHUNK_BYTES).unwrap());
    let mut draft = arena.draft(BRANCH_OFFSET + BRANCH_BYTES).unwrap();
    let branch = Branch::To(one.address()).encode(draft.address() + BRANCH_OFFSET).unwrap();
    draft.bytes_mut()[BRANCH_OFFSET..].copy_from_slice(&branch);
    let text = draft.finalize().unwrap();
    let entry = text.address() + BRANCH_OFFSET;
    assert_eq!(call_at(entry), 1);
    let wrong = defect.map(defect::begin);
    let mut pokes = arena.pokes().unwrap();
    // SAFETY: a patchable branch, and a function of the same type.
    unsafe { pokes.branch(&text, BRANCH_OFFSET, Branch::To(two.address())) }.unwrap();
    pokes.finish().unwrap();
    drop(wrong);
    let value = call_at(entry);
    texts.extend([one, two, text]);
    ran(value, 1, 2)
}

fn tries(backing: Backing, scenario: Scenario, defect: Option<Defect>) -> Vec<Ran> {
    let arena = Arena::new(keeperless(backing)).unwrap();
    let mut texts = Vec::new();
    (0..TRIES).map(|_| scenario(&arena, defect, &mut texts)).collect()
}

fn new_code_runs(scenario: Scenario) {
    alone(|| {
        return_from_traps();
        for backing in BACKINGS {
            assert_eq!(tries(backing, scenario, None), [Ran::New; TRIES as usize], "{backing}");
        }
    });
}

fn old_code_runs_without(scenario: Scenario) {
    alone(|| {
        return_from_traps();
        let shown = old_code_can_run();
        if !shown && !CACHES_ARE_COHERENT {
            return skip(&skep_testkit::test_name(), "this machine never runs old code (CTR_EL0.DIC)");
        }
        for backing in BACKINGS {
            let mut defects = vec![Defect::NothingIsInvalidated];
            // The others have no alias.
            defects.extend((backing == Backing::Memfd).then_some(Defect::TheAliasIsInvalidated));
            for defect in defects {
                let seen = tries(backing, scenario, Some(defect));
                assert_eq!(seen.contains(&Ran::Old), shown, "{backing}, {defect:?}: {seen:?}");
            }
        }
    });
}

#[test]
fn fresh_code_runs_instead_of_the_earlier_trap() {
    new_code_runs(fresh_code);
}

#[test]
fn without_invalidation_the_trap_runs_instead_of_fresh_code() {
    old_code_runs_without(fresh_code);
}

#[test]
fn reused_memory_runs_the_new_code() {
    new_code_runs(code_in_reused_memory);
}

#[test]
fn without_invalidation_the_older_text_runs_in_reused_memory() {
    old_code_runs_without(code_in_reused_memory);
}

#[test]
fn a_poked_branch_goes_to_its_new_target() {
    new_code_runs(a_poked_branch);
}

#[test]
fn without_invalidation_a_poked_branch_goes_to_its_old_target() {
    old_code_runs_without(a_poked_branch);
}

/// Makes a called trap return [`TRAPPED`], for the rest of the process.
fn return_from_traps() {
    extern "C" fn handler(_signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
        // SAFETY: the tests reach traps by calls.
        unsafe { return_from_trap(context) };
    }
    // SAFETY: a valid action, in a process of its own.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()), 0);
    }
}

/// Whether old code ever runs on this machine without invalidation.
fn old_code_can_run() -> bool {
    let len = rustix::param::page_size();
    let file = memfd_create(c"skep-text-probe", MemfdFlags::NOEXEC_SEAL).unwrap();
    ftruncate(&file, len as u64).unwrap();
    let map = |protection| {
        // SAFETY: a new mapping at an address of the kernel's choice.
        unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) }.unwrap()
    };
    let writable = map(ProtFlags::READ | ProtFlags::WRITE);
    let executable = map(ProtFlags::READ | ProtFlags::EXEC);
    let mut old = false;
    for value in 0..TRIES {
        let code = returns(value);
        // SAFETY: our own mapping, which nothing else uses.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), writable.cast::<u8>(), code.len()) };
        old |= call_at(executable.expose_provenance()) != value;
    }
    // SAFETY: as above.
    unsafe {
        munmap(writable, len).unwrap();
        munmap(executable, len).unwrap();
    }
    old
}

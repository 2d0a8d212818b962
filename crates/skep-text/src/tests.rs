//! The whole arena when the system refuses calls, and without a keeper; and behaviour that is invisible from
//! outside: which system calls it makes, and which cache maintenance.

/// The machine code of the other tests.
#[path = "../tests/common/arch/mod.rs"]
pub(crate) mod arch;
mod caches;
mod calls;
mod faults;
mod keeperless;
#[path = "../tests/common/probe.rs"]
pub(crate) mod probe;
mod reach;
mod stale;

use std::time::Duration;
use std::{ptr, thread};

use skep_rcu::Domain;
use skep_testkit::{Hidden, is_emulated, say};

use self::arch::returns;
use crate::{Arena, Backing, Config, Error, PACK_BYTES, Text};

const BACKINGS: [Backing; 3] = [Backing::Memfd, Backing::Hardened, Backing::Procmem];

/// Everything runs on the calling thread, so that thread makes all system calls, in the same order every time.
fn keeperless(backing: Backing) -> Config {
    let domain = Domain::builder().slots(8).keeper(false).membarrier(false).build().unwrap();
    Config::new().reserve(8 * PACK_BYTES).backing(backing).promote_at(usize::MAX).domain(domain)
}

/// Whether packs become huge pages on this system; if not, reports that the test is skipped.
fn packs_can_be_huge(what: &str) -> bool {
    let arena = Arena::new(keeperless(Backing::Memfd)).unwrap();
    probe::shown(arena.promote().is_ok(), Hidden::HugePages, what)
}

/// Places a function that returns `value`, and traps up to `len` bytes.
fn place(arena: &Arena, value: u32, len: usize) -> Result<Text, Error> {
    let code = returns(value);
    let mut draft = arena.draft(len)?;
    draft.bytes_mut()[..code.len()].copy_from_slice(&code);
    draft.finalize()
}

/// Calls the function that [`place`] made.
fn call(text: &Text) -> u32 {
    call_at(text.address())
}

/// Calls the function at `address`.
fn call_at(address: usize) -> u32 {
    let pointer = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the tests pass addresses of such functions, or of traps whose handler returns for them.
    let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u32>(pointer) };
    function()
}

/// The bytes at an address of a mapped pack.
fn peek(address: usize, len: usize) -> Vec<u8> {
    let at = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the tests pass spans of mapped packs, and no thread writes meanwhile.
    unsafe { std::slice::from_raw_parts(at, len) }.to_vec()
}

/// Runs `test`, the whole of the calling test, in a process of its own, so that no other test changes its counts,
/// and so that a timeout ends a deadlock.
fn alone(test: impl FnOnce()) {
    const CHILD: &str = "SKEP_TEXT_TEST_ALONE";
    const PATIENCE: Duration = Duration::from_secs(240);

    if std::env::var_os(CHILD).is_some() {
        thread::spawn(|| {
            thread::sleep(PATIENCE);
            eprintln!("the test hangs");
            std::process::abort();
        });
        return test();
    }
    let output = skep_testkit::this_test().env(CHILD, "1").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
    err.lines().filter(|line| line.starts_with("SKIPPED") || line.starts_with("HIDDEN")).for_each(say);
}

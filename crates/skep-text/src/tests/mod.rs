//! What the whole arena promises when the system refuses something in the middle, and when there is no keeper; and what
//! cannot be seen from outside: which system calls it makes, and which caches it makes right.

mod caches;
mod calls;
mod faults;
mod keeperless;

use std::process::Command;
use std::time::Duration;
use std::{ptr, thread};

use skep_rcu::Domain;

use crate::{Arena, Backing, Config, Error, PACK_BYTES, Text};

const BACKINGS: [Backing; 3] = [Backing::Memfd, Backing::Hardened, Backing::Procmem];

/// Everything happens on the thread that asks for it: so all system calls are made by that thread, in the same order
/// every time.
fn keeperless(backing: Backing) -> Config {
    let domain = Domain::builder().slots(8).keeper(false).membarrier(false).build().unwrap();
    Config::new().reserve(8 * PACK_BYTES).backing(backing).promote_at(usize::MAX).domain(domain)
}

/// A function that returns `value`.
fn returns(value: u32) -> Vec<u8> {
    if cfg!(target_arch = "x86_64") {
        [&[0xb8][..], &value.to_le_bytes(), &[0xc3]].concat() // mov eax, value; ret
    } else {
        // movz w0, #low; movk w0, #high, lsl #16; ret
        let words = [0x5280_0000 | (value & 0xffff) << 5, 0x72a0_0000 | (value >> 16) << 5, 0xd65f_03c0];
        words.map(u32::to_le_bytes).concat()
    }
}

/// Places a function that returns `value`, and traps up to `len` bytes.
fn place(arena: &Arena, value: u32, len: usize) -> Result<Text, Error> {
    let code = returns(value);
    let mut draft = arena.draft(len)?;
    draft.bytes_mut()[..code.len()].copy_from_slice(&code);
    draft.finalize()
}

/// Calls what [`place`] made.
fn call(text: &Text) -> u32 {
    // SAFETY: the text lives, and is such a function.
    let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u32>(text.as_ptr()) };
    function()
}

/// What is at an address of a pack that is mapped.
fn peek(address: usize, len: usize) -> Vec<u8> {
    let at = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the tests name spans of mapped packs, and nobody writes meanwhile.
    unsafe { std::slice::from_raw_parts(at, len) }.to_vec()
}

/// Runs `test`, the test called `name`, in a process of its own, where no other test changes what it counts, and a
/// deadlock ends.
fn alone(name: &str, test: impl FnOnce()) {
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
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(CHILD, "1");
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("1 passed"), "{name}: {}\n{out}\n{err}", output.status);
}

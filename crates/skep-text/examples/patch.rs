//! Replaces code while another thread runs it: a branch is poked from one version of a function to the next, and the
//! unreachable version is dropped, without waiting.
//!
//! ```text
//! cargo run --release -p skep-text --example patch
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skep_text::{Arena, BRANCH_BYTES, BRANCH_OFFSET, Branch, Config, Error, Text};

fn main() -> Result<(), Error> {
    let arena = Arena::new(Config::new())?;
    let mut version = returns(&arena, 0)?;
    let entry = entry(&arena, &version)?;
    let running = AtomicBool::new(true);

    std::thread::scope(|scope| {
        let (entry, running) = (&entry, &running);
        let domain = arena.domain().clone();
        let caller = scope.spawn(move || {
            let mut calls = 0u64;
            let mut last = 0;
            while running.load(Ordering::Relaxed) {
                // Whatever version the entry leads to now, it stays until this section ends.
                let section = domain.enter().expect("there are fewer threads than slots");
                let result = call(entry);
                drop(section);
                assert!(result >= last, "an old version came back");
                last = result;
                calls += 1;
            }
            calls
        });

        let (start, mut number) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(1) {
            number += 1;
            let next = returns(&arena, number)?;
            let mut pokes = arena.pokes()?;
            // SAFETY: `entry` has a patchable branch there; `next` is a function of the same type, and the version that
            // it replaces is dropped after the batch is finished, while callers are in read sections.
            unsafe { pokes.branch(entry, BRANCH_OFFSET, Branch::To(next.address()))? };
            pokes.finish()?;
            version = next; // drops the one before
        }
        running.store(false, Ordering::Relaxed);
        let calls = caller.join().expect("the caller saw only legal results");
        println!("{number} versions, {calls} calls, all of them right");
        Ok::<(), Error>(())
    })?;
    drop(version);
    arena.flush()?;
    println!("{} texts left, {} bytes of memory", arena.occupancy().texts, arena.occupancy().mapped_bytes);
    Ok(())
}

/// A function that is one patchable branch, to `version`.
fn entry(arena: &Arena, version: &Text) -> Result<Text, Error> {
    let mut draft = arena.draft(BRANCH_OFFSET + BRANCH_BYTES)?;
    let branch = Branch::To(version.address()).encode(draft.address() + BRANCH_OFFSET)?;
    // No-operations up to it: none are needed on aarch64, where any place will do.
    draft.bytes_mut()[..BRANCH_OFFSET].fill(0x90);
    draft.bytes_mut()[BRANCH_OFFSET..].copy_from_slice(&branch);
    draft.finalize()
}

fn returns(arena: &Arena, value: u32) -> Result<Text, Error> {
    let code = if cfg!(target_arch = "x86_64") {
        // mov eax, value; ret
        [&[0xb8][..], &value.to_le_bytes(), &[0xc3]].concat()
    } else {
        // movz w0, #low; movk w0, #high, lsl #16; ret
        let words = [0x5280_0000 | (value & 0xffff) << 5, 0x72a0_0000 | (value >> 16) << 5, 0xd65f_03c0];
        words.map(u32::to_le_bytes).concat()
    };
    let mut draft = arena.draft(code.len())?;
    draft.bytes_mut().copy_from_slice(&code);
    draft.finalize()
}

fn call(text: &Text) -> u32 {
    // SAFETY: the text and all that it ever leads to are functions of this type, alive while the caller is in a read
    // section.
    let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u32>(text.as_ptr()) };
    function()
}

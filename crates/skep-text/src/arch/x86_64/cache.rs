//! x86-64: what is stored becomes the code that is executed.
//!
//! What the hardware does: instruction caches snoop stores by physical address, so a store through the
//! writable view reaches the executable view without any cache maintenance (Intel SDM volume 3,
//! "Self-Modifying Code"; AMD64 APM volume 2, "Self-Modifying Code"). What a core has *already fetched* is
//! another matter: when the store used another linear address than the fetch, as ours always does, the manuals
//! ask for a serializing operation before the new bytes are executed.
//!
//! What we do: the thread that writes executes one serializing operation after the copy. Other threads get the
//! address of new code through an acquiring load, jump to a place that no thread was allowed to be in since the
//! traps were written there, and snooping does the rest. That is what JIT compilers for x86 rely on everywhere.
//!
//! What may be changed: another way to serialize. Not: leaving it out because it works on the desk.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use crate::arch::View;

/// Whether other CPUs must be made to synchronise before code in reused memory may be run.
pub(crate) const NEEDS_SYNC_CORE: bool = false;

/// The first step: what was stored is where instructions are fetched from.
pub(crate) fn clean(_views: impl Iterator<Item = View>) {
    // The compiler must not move stores past the serializing operation, and does not know what that one is for.
    compiler_fence(Ordering::SeqCst);
}

/// The second step: nothing that was fetched before is executed by this thread.
pub(crate) fn invalidate(_views: impl Iterator<Item = View>) {
    serialize();
}

/// How this CPU serializes from user mode. 0 is not known yet.
const SERIALIZE: u8 = 1;
const MFENCE: u8 = 2;
const CPUID: u8 = 3;

fn serialize() {
    static WAY: AtomicU8 = AtomicU8::new(0);

    // Relaxed, both: every thread computes the same value, and nothing else hangs on it.
    let mut way = WAY.load(Ordering::Relaxed);
    if way == 0 {
        way = cheapest_way();
        WAY.store(way, Ordering::Relaxed);
    }
    match way {
        // SAFETY: SERIALIZE (spelled out for assemblers that do not know it) touches no register, no memory;
        // `cheapest_way` found it present.
        SERIALIZE => unsafe { asm!(".byte 0x0f, 0x01, 0xe8", options(nostack, preserves_flags)) },
        // SAFETY: every x86-64 CPU has it; it touches nothing.
        MFENCE => unsafe { asm!("mfence", options(nostack, preserves_flags)) },
        // CPUID serializes everywhere. The answer does not matter; under a hypervisor it costs a microsecond.
        _ => {
            std::hint::black_box(cpuid(0, 0));
        }
    }
}

fn cheapest_way() -> u8 {
    let leaf0 = cpuid(0, 0);
    // SERIALIZE: CPUID.(EAX=7,ECX=0):EDX[14] (Intel SDM volume 2, "SERIALIZE").
    if leaf0.eax >= 7 && cpuid(7, 0).edx >> 14 & 1 == 1 {
        return SERIALIZE;
    }
    // AMD counts MFENCE among the serializing instructions (APM volume 2, "Serializing Instructions"); Intel
    // does not.
    let vendor = [leaf0.ebx, leaf0.edx, leaf0.ecx].map(u32::to_le_bytes).concat();
    if vendor == b"AuthenticAMD" || vendor == b"HygonGenuine" { MFENCE } else { CPUID }
}

fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    #[allow(unused_unsafe, reason = "it became a safe function after Rust 1.88")]
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe {
        __cpuid_count(leaf, subleaf)
    }
}

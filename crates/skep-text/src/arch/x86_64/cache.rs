//! x86-64: cache maintenance that makes stored bytes executable code.
//!
//! The hardware: instruction caches snoop stores by physical address, so a store through the writable view reaches
//! the executable view without any cache maintenance (Intel SDM volume 3, "Self-Modifying Code"; AMD64 APM volume 2,
//! "Self-Modifying Code"). What a core has *already fetched* is a different matter: if the store used another linear
//! address than the fetch, as ours always does, the manuals require a serializing operation before the new bytes are
//! executed.
//!
//! So the writing thread executes one serializing operation after the copy. Other threads get the address of new
//! code through an acquiring load, and jump to a place that no thread was allowed to run since it was filled with
//! traps; snooping does the rest. JIT compilers for x86 rely on that everywhere.
//!
//! What may be changed: the way to serialize. Not its presence, although tests pass without it.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use crate::arch::View;

/// Whether other CPUs must synchronise before code in reused memory may run.
pub(crate) const NEEDS_SYNC_CORE: bool = false;

/// The first step: instruction fetches will find the stored bytes.
pub(crate) fn clean(_views: impl Iterator<Item = View>) {
    // The compiler must not move stores past the serializing operation, whose purpose it does not know.
    compiler_fence(Ordering::SeqCst);
}

/// The second step: this thread executes no bytes that it fetched earlier.
pub(crate) fn invalidate(_views: impl Iterator<Item = View>) {
    serialize();
}

/// How this CPU serializes from user mode. 0: not determined yet.
const SERIALIZE: u8 = 1;
const MFENCE: u8 = 2;
const CPUID: u8 = 3;

fn serialize() {
    static WAY: AtomicU8 = AtomicU8::new(0);

    // Relaxed, both: every thread computes the same value, and no other data depends on it.
    let mut way = WAY.load(Ordering::Relaxed);
    if way == 0 {
        way = cheapest_way();
        WAY.store(way, Ordering::Relaxed);
    }
    match way {
        // SAFETY: SERIALIZE (spelled out for assemblers that do not know it) touches no register, no memory;
        // `cheapest_way` found it present.
        SERIALIZE => unsafe { asm!(".byte 0x0f, 0x01, 0xe8", options(nostack, preserves_flags)) },
        // SAFETY: every x86-64 CPU has the instruction; it changes nothing.
        MFENCE => unsafe { asm!("mfence", options(nostack, preserves_flags)) },
        // CPUID always serializes. Its result is not used; under a hypervisor it costs a microsecond.
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

//! x86-64.
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
//! Code that *is* being executed is replaced by one aligned store of 8 bytes, within one cache line: a fetch gets all
//! of it or nothing. Measured, not promised by the manuals (their cross-modifying protocol stops the other CPUs): no
//! torn execution in 1e9 calls against 3.7e7 stores (`skep bench poke --full`). When a CPU goes over to the new
//! instruction is up to it until it serializes, which the membarrier that ends a batch of pokes makes it do.
//!
//! What may be changed: another way to serialize. Not: leaving it out because it works on the desk.

pub(crate) mod fault;

use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::arch::{asm, naked_asm};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use super::View;

/// Any two places in a range of this size are within a `rel32` of each other, with much to spare.
pub(crate) const MAX_RANGE: usize = 1 << 30;

/// How far a direct call reaches: `rel32` counts from the end of the instruction; a page is kept for that.
pub(crate) const REACH: usize = (1 << 31) - 4096;

/// How far from a hint a range may be. Less than [`REACH`], so that the hint's neighbours are reached too.
pub(crate) const NEAR: usize = 3 << 29;

/// Whether other CPUs must be made to synchronise before code in reused memory may be run.
pub(crate) const NEEDS_SYNC_CORE: bool = false;

/// The trap that holes are filled with: `int3`, one byte, so that every entry point traps.
pub(crate) const TRAP: [u8; 1] = [0xcc];

/// So many bytes of traps; on a machine with longer traps, up to the end of the last.
pub(crate) fn traps(len: usize) -> Vec<u8> {
    vec![TRAP[0]; len]
}

/// What one store replaces in live code.
pub(crate) type Word = u64;

/// A [`Word`] in memory that other CPUs run.
pub(crate) type AtomicWord = std::sync::atomic::AtomicU64;

/// The 5-byte no-operation (Intel SDM volume 2, "NOP"), as long as a `jmp rel32`.
pub(crate) const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// `jmp rel32` at `from`, as long as [`NOP`]; `None` when it does not reach.
pub(crate) fn branch(from: usize, to: usize) -> Option<[u8; 5]> {
    let next = from.wrapping_add(5);
    let displacement = i32::try_from(to.wrapping_sub(next) as isize).ok()?;
    let [a, b, c, d] = displacement.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// What ELF calls this machine: EM_X86_64.
pub(crate) const ELF_MACHINE: u16 = 62;

/// Fills `len` bytes with [`TRAP`]s.
///
/// # Safety
///
/// The bytes are writable and nobody else reads or writes them.
pub(crate) unsafe fn fill_with_traps(writable: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { writable.write_bytes(TRAP[0], len) };
}

/// Makes what was stored the code that is executed.
pub(crate) fn publish(_views: impl Iterator<Item = View> + Clone) {
    // The compiler must not move stores past the serializing operation, and does not know what that one is for.
    compiler_fence(Ordering::SeqCst);
    serialize();
}

/// The address of `__jit_debug_descriptor`, the head of the list that GDB reads (24 bytes: 1 as a version, and zeros).
///
/// The symbol is local to this assembler block, so that it cannot clash with another compiler's in the process.
#[unsafe(naked)]
pub(crate) extern "C" fn gdb_descriptor() -> *mut c_void {
    naked_asm!(
        ".pushsection .data.skep_text_gdb, \"aw\", @progbits",
        ".balign 8",
        ".type __jit_debug_descriptor, @object",
        ".size __jit_debug_descriptor, 24",
        "__jit_debug_descriptor:",
        ".long 1, 0",
        ".quad 0, 0",
        ".popsection",
        "lea rax, [rip + __jit_debug_descriptor]",
        "ret",
    )
}

/// `__jit_debug_register_code`, in which GDB has a breakpoint. Does nothing. Local as well.
#[unsafe(naked)]
pub(crate) extern "C" fn gdb_notify() {
    naked_asm!(
        ".type __jit_debug_register_code, @function",
        "__jit_debug_register_code:",
        "nop",
        "ret",
        ".size __jit_debug_register_code, . - __jit_debug_register_code",
    )
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

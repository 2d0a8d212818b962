//! Access to real memory at addresses that programs computed.
//!
//! Other threads may work on the same map values and packets. Accesses that are aligned to their size are therefore
//! atomic (relaxed, unless the program asked for more), which makes races between programs defined. They pair with
//! each other and with the accesses of compiled programs and the host. A misaligned access is split into bytes in
//! no particular order, so a misaligned atomic operation is not atomic; the verifier refuses it.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use skep_isa::{AtomicOp, Size};

/// Reads `size` bytes, zero-extended.
///
/// # Safety
///
/// They must be readable and must not be written non-atomically meanwhile.
pub(crate) unsafe fn load(address: u64, size: Size, order: Ordering) -> u64 {
    let at = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    if !is_aligned(address, size) {
        // SAFETY: the caller's promise; alignment is not required.
        return unsafe {
            match size {
                Size::B1 => u64::from(at.read()),
                Size::B2 => u64::from(at.cast::<u16>().read_unaligned()),
                Size::B4 => u64::from(at.cast::<u32>().read_unaligned()),
                Size::B8 => at.cast::<u64>().read_unaligned(),
            }
        };
    }
    // SAFETY: the caller's promise, and the alignment checked above.
    unsafe {
        match size {
            Size::B1 => u64::from(AtomicU8::from_ptr(at).load(order)),
            Size::B2 => u64::from(AtomicU16::from_ptr(at.cast()).load(order)),
            Size::B4 => u64::from(AtomicU32::from_ptr(at.cast()).load(order)),
            Size::B8 => AtomicU64::from_ptr(at.cast()).load(order),
        }
    }
}

/// Writes the lower `size` bytes of `value`.
///
/// # Safety
///
/// They must be writable and must not be accessed non-atomically meanwhile.
pub(crate) unsafe fn store(address: u64, size: Size, value: u64, order: Ordering) {
    let at = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    if !is_aligned(address, size) {
        // SAFETY: the caller's promise; alignment is not required.
        unsafe {
            match size {
                Size::B1 => at.write(value as u8),
                Size::B2 => at.cast::<u16>().write_unaligned(value as u16),
                Size::B4 => at.cast::<u32>().write_unaligned(value as u32),
                Size::B8 => at.cast::<u64>().write_unaligned(value),
            }
        }
        return;
    }
    // SAFETY: the caller's promise, and the alignment checked above.
    unsafe {
        match size {
            Size::B1 => AtomicU8::from_ptr(at).store(value as u8, order),
            Size::B2 => AtomicU16::from_ptr(at.cast()).store(value as u16, order),
            Size::B4 => AtomicU32::from_ptr(at.cast()).store(value as u32, order),
            Size::B8 => AtomicU64::from_ptr(at.cast()).store(value, order),
        }
    }
}

/// Modifies 4 or 8 bytes and returns their old value, zero-extended. `expected` is only used by compare-exchange.
/// Sequentially consistent, as RFC 9669 section 5.3 requires for fetching operations.
///
/// # Safety
///
/// They must be readable and writable and must not be accessed non-atomically meanwhile.
pub(crate) unsafe fn modify(address: u64, size: Size, op: AtomicOp, operand: u64, expected: u64) -> u64 {
    if !is_aligned(address, size) {
        // SAFETY: the caller's promise.
        unsafe {
            let old = load(address, size, Ordering::Relaxed);
            store(address, size, applied(size, op, old, operand, expected), Ordering::Relaxed);
            return old;
        }
    }
    let at = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    match size {
        Size::B8 => {
            // SAFETY: the caller's promise, and the alignment checked above.
            let cell = unsafe { AtomicU64::from_ptr(at.cast()) };
            match op {
                AtomicOp::Add { .. } => cell.fetch_add(operand, Ordering::SeqCst),
                AtomicOp::Or { .. } => cell.fetch_or(operand, Ordering::SeqCst),
                AtomicOp::And { .. } => cell.fetch_and(operand, Ordering::SeqCst),
                AtomicOp::Xor { .. } => cell.fetch_xor(operand, Ordering::SeqCst),
                AtomicOp::Xchg => cell.swap(operand, Ordering::SeqCst),
                AtomicOp::CmpXchg => cell
                    .compare_exchange(expected, operand, Ordering::SeqCst, Ordering::SeqCst)
                    .unwrap_or_else(|old| old),
            }
        }
        Size::B4 | Size::B2 | Size::B1 => {
            let (operand, expected) = (operand as u32, expected as u32);
            // SAFETY: the caller's promise, and the alignment checked above. No instruction has a smaller size.
            let cell = unsafe { AtomicU32::from_ptr(at.cast()) };
            u64::from(match op {
                AtomicOp::Add { .. } => cell.fetch_add(operand, Ordering::SeqCst),
                AtomicOp::Or { .. } => cell.fetch_or(operand, Ordering::SeqCst),
                AtomicOp::And { .. } => cell.fetch_and(operand, Ordering::SeqCst),
                AtomicOp::Xor { .. } => cell.fetch_xor(operand, Ordering::SeqCst),
                AtomicOp::Xchg => cell.swap(operand, Ordering::SeqCst),
                AtomicOp::CmpXchg => cell
                    .compare_exchange(expected, operand, Ordering::SeqCst, Ordering::SeqCst)
                    .unwrap_or_else(|old| old),
            })
        }
    }
}

/// The new value of memory after an operation on `old`.
fn applied(size: Size, op: AtomicOp, old: u64, operand: u64, expected: u64) -> u64 {
    match op {
        AtomicOp::Add { .. } => old.wrapping_add(operand),
        AtomicOp::Or { .. } => old | operand,
        AtomicOp::And { .. } => old & operand,
        AtomicOp::Xor { .. } => old ^ operand,
        AtomicOp::Xchg => operand,
        AtomicOp::CmpXchg => {
            let mask = u64::MAX >> (64 - size.bits());
            if old & mask == expected & mask { operand } else { old }
        }
    }
}

fn is_aligned(address: u64, size: Size) -> bool {
    address.is_multiple_of(u64::from(size.bytes()))
}

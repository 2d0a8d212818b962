//! Copies of a program's memory, which other threads may write at the same time. As in maps, each aligned word of 8
//! bytes is copied as a whole.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// Plain data types: integers, arrays of them, and structures of them.
///
/// # Safety
///
/// Every pattern of bytes is a value of the type, it has no padding, and it holds no pointer, reference or cell.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($integer:ty)*) => {
        $(
            // SAFETY: integers are all their bytes and any bytes.
            unsafe impl Plain for $integer {}
        )*
    };
}

plain!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

// SAFETY: arrays have no padding of their own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Copies bytes out of a program's memory, aligned words as a whole.
///
/// # Safety
///
/// `from` is readable for `to.len()` bytes, which do not overlap `to`.
#[inline]
pub(super) unsafe fn read(from: u64, to: &mut [u8]) {
    let from = std::ptr::with_exposed_provenance_mut::<u8>(from as usize);
    let mut at = 0;
    while at < to.len() {
        // SAFETY: in range by contract; programs on other threads may write it, so these are atomic accesses.
        unsafe {
            let place = from.add(at);
            if to.len() - at >= WORD && place.addr().is_multiple_of(WORD) {
                let word = AtomicU64::from_ptr(place.cast()).load(Relaxed);
                to[at..at + WORD].copy_from_slice(&word.to_ne_bytes());
                at += WORD;
            } else {
                to[at] = AtomicU8::from_ptr(place).load(Relaxed);
                at += 1;
            }
        }
    }
}

/// Copies bytes into a program's memory, aligned words as a whole.
///
/// # Safety
///
/// `to` is writable for `from.len()` bytes, which do not overlap `from`.
#[inline]
pub(super) unsafe fn write(from: &[u8], to: u64) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    let mut at = 0;
    while at < from.len() {
        // SAFETY: in range by contract; programs on other threads may access it, so these are atomic accesses.
        unsafe {
            let place = to.add(at);
            if from.len() - at >= WORD && place.addr().is_multiple_of(WORD) {
                let word: [u8; WORD] = std::array::from_fn(|byte| from[at + byte]);
                AtomicU64::from_ptr(place.cast()).store(u64::from_ne_bytes(word), Relaxed);
                at += WORD;
            } else {
                AtomicU8::from_ptr(place).store(from[at], Relaxed);
                at += 1;
            }
        }
    }
}

/// Reads a value from a program's memory.
///
/// # Safety
///
/// `from` is readable for the size of `T`.
pub(super) unsafe fn read_value<T: Plain>(from: u64) -> T {
    let mut value = zeroed();
    // SAFETY: by contract; the value is this function's own.
    unsafe { read(from, bytes_mut(&mut value)) };
    value
}

/// A value of zeroes.
pub(super) fn zeroed<T: Plain>() -> T {
    // SAFETY: any bytes are a value of a plain type.
    unsafe { std::mem::zeroed() }
}

pub(super) fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a plain type has no padding, so all its bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

fn bytes_mut<T: Plain>(value: &mut T) -> &mut [u8] {
    // SAFETY: as above, and any bytes are a value.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(value).cast(), size_of::<T>()) }
}

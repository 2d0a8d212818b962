//! Copies of a program's memory, which other threads may write at the same time.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

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

/// Copies bytes out of a program's memory.
///
/// # Safety
///
/// `from` is readable for `to.len()` bytes, which do not overlap `to`.
pub(super) unsafe fn read(from: u64, to: &mut [u8]) {
    let from = std::ptr::with_exposed_provenance_mut::<u8>(from as usize);
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: in range by contract; programs on other threads may write it, so it is an atomic access.
        *byte = unsafe { AtomicU8::from_ptr(from.add(at)) }.load(Relaxed);
    }
}

/// Copies bytes into a program's memory.
///
/// # Safety
///
/// `to` is writable for `from.len()` bytes, which do not overlap `from`.
pub(super) unsafe fn write(from: &[u8], to: u64) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    for (at, byte) in from.iter().enumerate() {
        // SAFETY: in range by contract; programs on other threads may access it, so it is an atomic access.
        unsafe { AtomicU8::from_ptr(to.add(at)) }.store(*byte, Relaxed);
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

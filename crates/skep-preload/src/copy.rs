//! Copies between the values of a map, which others access at the same time, and memory of the application's.
//!
//! As in `skep-maps`: each aligned word of 8 bytes is read and written as a whole, and words of one value may be from
//! different writes. The application's side is accessed as memcpy(3) would: volatile, so that no copy becomes one
//! that libc makes in parts of its own choice.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Copies a value out.
///
/// # Safety
///
/// `from` is 8-byte aligned memory of a map, of `len` bytes rounded up to 8; `to` is writable for `len` bytes.
#[inline]
pub(crate) unsafe fn read(from: *const u8, to: *mut u8, len: usize) {
    let words = len / 8;
    for i in 0..words {
        // SAFETY: word `i` is within both sides.
        unsafe { to.add(i * 8).cast::<u64>().write_unaligned(word(from, i).load(Relaxed)) };
    }
    let rest = len % 8;
    if rest != 0 {
        // SAFETY: values are padded to whole words.
        let last = unsafe { word(from, words) }.load(Relaxed).to_ne_bytes();
        for (i, byte) in last.iter().take(rest).enumerate() {
            // SAFETY: within the `len` bytes.
            unsafe { to.add(words * 8 + i).write_volatile(*byte) };
        }
    }
}

/// Copies a value in, and zeroes its padding.
///
/// # Safety
///
/// `from` is readable for `len` bytes; `to` is 8-byte aligned memory of a map, of `len` bytes rounded up to 8.
#[inline]
pub(crate) unsafe fn write(from: *const u8, to: *mut u8, len: usize) {
    let words = len / 8;
    for i in 0..words {
        // SAFETY: word `i` is within both sides.
        unsafe { word(to, i).store(from.add(i * 8).cast::<u64>().read_unaligned(), Relaxed) };
    }
    let rest = len % 8;
    if rest != 0 {
        let mut last = [0; 8];
        for (i, byte) in last.iter_mut().take(rest).enumerate() {
            // SAFETY: within the `len` bytes.
            *byte = unsafe { from.add(words * 8 + i).read_volatile() };
        }
        // SAFETY: values are padded to whole words.
        unsafe { word(to, words) }.store(u64::from_ne_bytes(last), Relaxed);
    }
}

/// Copies a key of the application's into whole words, the last one filled up with zeroes.
///
/// # Safety
///
/// `from` is readable for `len` bytes, and `to` has as many words as these fill.
#[inline]
pub(crate) unsafe fn key(from: *const u8, len: usize, to: &mut [u64]) {
    for (i, word) in to.iter_mut().enumerate() {
        // SAFETY: the bytes of this word are within the `len` bytes.
        *word = unsafe {
            match len - i * 8 {
                8.. => from.add(i * 8).cast::<u64>().read_unaligned(),
                4 => u64::from(from.add(i * 8).cast::<u32>().read_unaligned().to_le()),
                rest => (0..rest)
                    .fold(0, |word, at| word | u64::from(from.add(i * 8 + at).read_volatile()) << (at * 8)),
            }
        };
    }
}

/// # Safety
///
/// `base` is 8-byte aligned memory of a map that has a word of that number, valid while the result is used.
#[inline(always)]
unsafe fn word<'a>(base: *const u8, index: usize) -> &'a AtomicU64 {
    // SAFETY: by the caller's contract.
    unsafe { &*base.cast::<AtomicU64>().add(index) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(8))]
    struct Aligned([u8; 80]);

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let source = Aligned(std::array::from_fn(|i| i as u8 + 1));
        for offset in 0..8 {
            for len in 0..=64 {
                let mut map = Aligned([0xee; 80]);
                // SAFETY: all offsets and lengths stay within the 80 bytes.
                unsafe { write(source.0.as_ptr().add(offset), map.0.as_mut_ptr(), len) };
                assert_eq!(map.0[..len], source.0[offset..offset + len], "write {len} at {offset}");
                let padded = len.next_multiple_of(8);
                assert!(map.0[len..padded].iter().all(|&byte| byte == 0), "write {len} at {offset}: padding");
                assert!(map.0[padded..].iter().all(|&byte| byte == 0xee), "write {len} at {offset}: beyond");
                let mut out = [0xee; 80];
                // SAFETY: as above.
                unsafe { read(map.0.as_ptr(), out.as_mut_ptr().add(offset), len) };
                assert_eq!(out[offset..offset + len], source.0[offset..offset + len], "read {len}");
                assert!(out[..offset].iter().chain(&out[offset + len..]).all(|&byte| byte == 0xee));
            }
        }
    }
}

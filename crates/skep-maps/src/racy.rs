//! Copies of memory that others write concurrently.
//!
//! Programs read and write map values through plain pointers, without locks, while the host and other programs do the
//! same: BPF maps allow such races. In Rust a racing plain access is undefined behaviour, so every access of this
//! crate to memory that programs can reach is a relaxed atomic one, and all of them are in this file. The guarantee:
//! each aligned word of 8 bytes is read and written as a whole (a 64-bit counter is never half written); different
//! words of a value may be from different writes.
//!
//! Programs are machine code and may access part of a word. The language's memory model does not cover atomic
//! accesses of different sizes to one address; the supported processors treat them as accesses to bytes that travel
//! together. An interpreter written in Rust must use atomic accesses as well.
//!
//! Relaxed is always enough: the publication of an element orders its contents.
//!
//! Keys and values that a host or a program passes are read the same way, though they may be in read-only memory (a
//! host's `&[u8]`, a program's constants). Relaxed loads of at most 8 bytes are allowed there on the supported 64-bit
//! targets (`std::sync::atomic`, "Atomic accesses to read-only memory"), and no load here is larger. One question is
//! open: in Stacked Borrows the `&AtomicU64` of an atomic load claims a right to write, which a `&[u8]` does not
//! give; in Tree Borrows it does not. So run Miri with Tree Borrows.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Copies `len` bytes out of a map, word by word, into memory of the caller's own.
///
/// # Safety
///
/// `from` is 8-byte aligned map memory of `len` bytes rounded up to 8; `to` is writable for `len` bytes, and no other
/// thread accesses it meanwhile.
#[inline]
pub(crate) unsafe fn read(from: *const u8, to: *mut u8, len: usize) {
    let words = len / 8;
    for i in 0..words {
        // SAFETY: both sides have `len` bytes by contract, and word `i` is within them; `from` is aligned.
        unsafe { to.cast::<u64>().add(i).write_unaligned(word(from, i).load(Relaxed)) };
    }
    let rest = len % 8;
    if rest != 0 {
        // SAFETY: map memory is padded to whole words, so the last word may be loaded as a whole; `to` gets only the
        // bytes that it has room for.
        unsafe {
            let last = word(from, words).load(Relaxed).to_ne_bytes();
            to.add(words * 8).copy_from_nonoverlapping(last.as_ptr(), rest);
        }
    }
}

/// Copies `len` bytes into a map, word by word, and zeroes the rest of the last word.
///
/// # Safety
///
/// `from` is readable for `len` bytes, and may be written by others meanwhile; `to` is 8-byte aligned map memory
/// of `len` bytes rounded up to 8.
#[inline]
pub(crate) unsafe fn write(from: *const u8, to: *mut u8, len: usize) {
    let words = len / 8;
    for i in 0..words {
        // SAFETY: word `i` is within the `len` bytes of both sides; `to` is aligned.
        unsafe { word(to, i).store(load8(from.add(i * 8)), Relaxed) };
    }
    if !len.is_multiple_of(8) {
        // SAFETY: the last bytes of `from` are read one by one; `to` is padded to a whole word.
        unsafe { word(to, words).store(load_short(from.add(words * 8), len % 8), Relaxed) };
    }
}

/// As [`write`], in one access for a single word, the most common size.
///
/// # Safety
///
/// As for [`write`].
#[inline(always)]
pub(crate) unsafe fn write_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller's contract, both; in the first case `from` is aligned. The references live for the
    // accesses only.
    unsafe {
        match len == 8 && from.addr().is_multiple_of(8) {
            true => word(to, 0).store((*from.cast::<AtomicU64>()).load(Relaxed), Relaxed),
            false => write(from, to, len),
        }
    }
}

/// Copies `len` bytes out of a map into a program's memory, which may be in a map as well.
///
/// # Safety
///
/// `from` is 8-byte aligned map memory of `len` bytes rounded up to 8; `to` is writable for `len` bytes, at any
/// alignment, and others may access it meanwhile.
#[inline]
pub(crate) unsafe fn give(from: *const u8, to: *mut u8, len: usize) {
    for at in (0..len).step_by(8) {
        // SAFETY: map memory is padded to whole words; the rest of `to` is at least as large as each store.
        unsafe { store(to.add(at), word(from, at / 8).load(Relaxed), (len - at).min(8)) };
    }
}

/// Copies `len` bytes out of a map at any alignment, in the largest aligned [`piece`]s.
///
/// # Safety
///
/// `from` is map memory of `len` bytes; `to` is writable for `len` bytes, and no other thread accesses it meanwhile.
pub(crate) unsafe fn read_any(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    while at < len {
        let piece = piece(from.wrapping_add(at), len - at);
        // SAFETY: within the `len` bytes of both sides, and aligned at `from`. The references live for the loads only.
        unsafe {
            let (from, to) = (from.add(at), to.add(at));
            match piece {
                8 => to.cast::<u64>().write_unaligned(word(from, 0).load(Relaxed)),
                4 => to.cast::<u32>().write_unaligned((*from.cast::<AtomicU32>()).load(Relaxed)),
                2 => to.cast::<u16>().write_unaligned((*from.cast::<AtomicU16>()).load(Relaxed)),
                _ => to.write((*from.cast::<AtomicU8>()).load(Relaxed)),
            }
        }
        at += piece;
    }
}

/// Copies `len` bytes into a map at any alignment, in the largest aligned [`piece`]s, and writes nothing else.
///
/// # Safety
///
/// `from` is readable for `len` bytes; `to` is map memory of `len` bytes.
pub(crate) unsafe fn write_any(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    while at < len {
        let piece = piece(to.wrapping_add(at), len - at);
        // SAFETY: within the `len` bytes of both sides, and aligned at `to`. The references live for the stores only.
        unsafe {
            let (from, to) = (from.add(at), to.add(at));
            let [a, b, c, d, ..] = load_short(from, piece.min(7)).to_ne_bytes();
            match piece {
                8 => word(to, 0).store(load8(from), Relaxed),
                4 => (*to.cast::<AtomicU32>()).store(u32::from_ne_bytes([a, b, c, d]), Relaxed),
                2 => (*to.cast::<AtomicU16>()).store(u16::from_ne_bytes([a, b]), Relaxed),
                _ => (*to.cast::<AtomicU8>()).store(a, Relaxed),
            }
        }
        at += piece;
    }
}

/// The most bytes, 1, 2, 4 or 8, that one access at that address takes, if `left` are wanted; `left` is not 0.
fn piece(at: *const u8, left: usize) -> usize {
    1 << at.addr().trailing_zeros().min(left.ilog2()).min(3)
}

/// Zeroes `len` bytes of a program's memory, which may be in a map as well.
///
/// # Safety
///
/// `to` is writable for `len` bytes, at any alignment, and others may access it meanwhile.
#[inline]
pub(crate) unsafe fn clear(to: *mut u8, len: usize) {
    for at in (0..len).step_by(8) {
        // SAFETY: by the caller's contract.
        unsafe { store(to.add(at), 0, (len - at).min(8)) };
    }
}

/// Writes the first 1 to 8 bytes of a word: in one access if they are 8 and aligned, else one by one.
///
/// # Safety
///
/// `to` is writable for `len` bytes, and others may access it meanwhile.
#[inline(always)]
unsafe fn store(to: *mut u8, value: u64, len: usize) {
    if len == 8 && to.addr().is_multiple_of(8) {
        // SAFETY: writable by contract, and aligned. The reference lives for the store only.
        return unsafe { (*to.cast::<AtomicU64>()).store(value, Relaxed) };
    }
    for (i, byte) in value.to_ne_bytes().into_iter().take(len).enumerate() {
        // SAFETY: by the caller's contract; bytes are always aligned. The reference lives for the store only.
        unsafe { (*to.add(i).cast::<AtomicU8>()).store(byte, Relaxed) };
    }
}

/// Copies `len` bytes into a map and writes little beyond them: in words, and in halves of words at the ends.
///
/// Zeroes up to three bytes behind them, to a multiple of 4; up to seven if five to seven bytes remain after a
/// multiple of 8.
///
/// # Safety
///
/// `from` is readable for `len` bytes, and may be written by others meanwhile; `to` is 4-byte aligned map memory, and
/// the zeroed bytes behind it are padding.
pub(crate) unsafe fn write_part(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    if !to.addr().is_multiple_of(8) && len > 0 {
        at = len.min(4);
        // SAFETY: the first bytes, up to the next word.
        unsafe { store_half(from, to, at) };
    }
    let whole = (len - at) / 8 * 8;
    // SAFETY: whole words of both sides, aligned ones at `to`.
    unsafe { write(from.add(at), to.add(at), whole) };
    at += whole;
    match len - at {
        0 => {}
        // SAFETY: the rest, which is padded to half a word or to a whole one.
        rest @ 1..=4 => unsafe { store_half(from.add(at), to.add(at), rest) },
        // SAFETY: as above.
        rest => unsafe { write(from.add(at), to.add(at), rest) },
    }
}

/// Writes 1 to 4 bytes as half a word; the others are 0.
///
/// # Safety
///
/// `from` is readable for `len` bytes; `to` is 4-byte aligned map memory.
unsafe fn store_half(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller's contract. The first bytes of a word are those of its first half.
    unsafe {
        let bytes = load_short(from, len).to_ne_bytes();
        let half = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (*to.cast::<AtomicU32>()).store(half, Relaxed);
    }
}

/// Zeroes `len` bytes of a map, rounded up to whole words.
///
/// # Safety
///
/// `to` is 8-byte aligned map memory of `len` bytes rounded up to 8.
#[inline]
pub(crate) unsafe fn zero(to: *mut u8, len: usize) {
    for i in 0..len.div_ceil(8) {
        // SAFETY: by the caller's contract.
        unsafe { word(to, i).store(0, Relaxed) };
    }
}

/// Reads `len` bytes into `out`, whose last word they must reach; the rest of that word is 0.
///
/// Bytes keep their order in memory: `out` as bytes equals `from`.
///
/// # Safety
///
/// `from` is readable for `len` bytes, at any alignment, and may be written by others meanwhile.
#[inline(always)]
pub(crate) unsafe fn load_words(from: *const u8, len: usize, out: &mut [u64]) {
    debug_assert_eq!(out.len(), len.div_ceil(8));
    for (i, word) in out.iter_mut().enumerate() {
        let at = i * 8;
        // SAFETY: bytes `at..len` are within the memory that the caller guarantees.
        *word =
            unsafe { if len - at >= 8 { load8(from.add(at)) } else { load_short(from.add(at), len - at) } };
    }
}

/// Reads a `u32` at any alignment.
///
/// # Safety
///
/// `from` is readable for 4 bytes, and may be written by others meanwhile.
#[inline(always)]
pub(crate) unsafe fn load4(from: *const u8) -> u32 {
    if from.addr().is_multiple_of(4) {
        // SAFETY: readable by contract, and aligned. The reference lives for the load only.
        unsafe { (*from.cast::<AtomicU32>()).load(Relaxed) }
    } else {
        // SAFETY: by the caller's contract.
        unsafe { u32::from_ne_bytes([byte(from), byte(from.add(1)), byte(from.add(2)), byte(from.add(3))]) }
    }
}

/// Reads 8 bytes at any alignment: as a whole if aligned to 8, in halves if aligned to 4.
///
/// # Safety
///
/// `from` is readable for 8 bytes, and may be written by others meanwhile.
#[inline(always)]
unsafe fn load8(from: *const u8) -> u64 {
    if from.addr().is_multiple_of(8) {
        // SAFETY: readable by contract, and aligned. The reference lives for the load only.
        return unsafe { (*from.cast::<AtomicU64>()).load(Relaxed) };
    }
    // SAFETY: both halves are within the 8 bytes.
    let (low, high) = unsafe { (load4(from), load4(from.add(4))) };
    place(low, 4, 0) | place(high, 4, 4)
}

/// Reads 1 to 7 bytes into the first bytes of a word; the others are 0.
///
/// # Safety
///
/// `from` is readable for `len` bytes, and may be written by others meanwhile.
#[inline(always)]
unsafe fn load_short(from: *const u8, len: usize) -> u64 {
    debug_assert!((1..8).contains(&len));
    let (mut word, mut at) = (0, 0);
    // SAFETY (all loads): the parts of 4, 2 and 1 bytes that `len` consists of follow each other.
    if len & 4 != 0 {
        // SAFETY: see above.
        word = place(unsafe { load4(from) }, 4, 0);
        at = 4;
    }
    if len & 2 != 0 {
        // SAFETY: see above.
        word |= place(unsafe { load2(from.add(at)) }, 2, at);
        at += 2;
    }
    if len & 1 != 0 {
        // SAFETY: see above.
        word |= place(unsafe { byte(from.add(at)) }, 1, at);
    }
    word
}

/// A word whose bytes from `at` on are those of a number of `size` bytes; the others are 0.
#[inline(always)]
fn place(number: impl Into<u64>, size: usize, at: usize) -> u64 {
    let bytes = if cfg!(target_endian = "little") { at } else { 8 - size - at };
    number.into() << (bytes * 8)
}

/// Reads a `u16` at any alignment.
///
/// # Safety
///
/// `from` is readable for 2 bytes, and may be written by others meanwhile.
#[inline(always)]
unsafe fn load2(from: *const u8) -> u16 {
    if from.addr().is_multiple_of(2) {
        // SAFETY: readable by contract, and aligned. The reference lives for the load only.
        unsafe { (*from.cast::<AtomicU16>()).load(Relaxed) }
    } else {
        // SAFETY: by the caller's contract.
        unsafe { u16::from_ne_bytes([byte(from), byte(from.add(1))]) }
    }
}

/// # Safety
///
/// `from` is readable.
#[inline(always)]
unsafe fn byte(from: *const u8) -> u8 {
    // SAFETY: by the caller's contract; bytes are always aligned. The reference lives for the load only.
    unsafe { (*from.cast::<AtomicU8>()).load(Relaxed) }
}

/// # Safety
///
/// `base` is 8-byte aligned map memory that has a word of that number, valid while the result is used.
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

    fn numbered() -> Aligned {
        Aligned(std::array::from_fn(|i| i as u8 + 1))
    }

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let source = numbered();
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
                assert_eq!(
                    out[offset..offset + len],
                    source.0[offset..offset + len],
                    "read {len} at {offset}"
                );
                assert!(out[..offset].iter().chain(&out[offset + len..]).all(|&byte| byte == 0xee));

                let mut given = [0xee; 80];
                // SAFETY: as above.
                unsafe { give(map.0.as_ptr(), given.as_mut_ptr().add(offset), len) };
                assert_eq!(given, out, "give {len} at {offset}");
                // SAFETY: as above.
                unsafe { clear(given.as_mut_ptr().add(offset), len) };
                assert!(given[offset..offset + len].iter().all(|&byte| byte == 0), "clear {len} at {offset}");
                assert!(given[..offset].iter().chain(&given[offset + len..]).all(|&byte| byte == 0xee));

                let mut words = vec![u64::MAX; len.div_ceil(8)];
                // SAFETY: as above.
                unsafe { load_words(source.0.as_ptr().add(offset), len, &mut words) };
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(bytes, map.0[..padded], "load {len} at {offset}");
            }
        }
    }

    #[test]
    fn zeroing_covers_whole_words_and_no_more() {
        let mut map = Aligned([0xee; 80]);
        // SAFETY: 12 bytes round up to 16, which the memory has.
        unsafe { zero(map.0.as_mut_ptr(), 12) };
        assert!(map.0[..16].iter().all(|&byte| byte == 0) && map.0[16..].iter().all(|&byte| byte == 0xee));
    }

    #[test]
    fn words_are_never_seen_half_written() {
        let base = &[const { AtomicU64::new(0) }; 8];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..20_000_u64 {
                    let value = [round * 0x0001_0001_0001_0001; 8];
                    // SAFETY: `base` is 64 bytes of atomics, `value` as long.
                    unsafe { write(value.as_ptr().cast(), base.as_ptr().cast_mut().cast(), 64) };
                }
            });
            while !writer.is_finished() {
                let mut bytes = [0_u8; 65];
                // SAFETY: as above; the private side is misaligned on purpose.
                unsafe { read(base.as_ptr().cast(), bytes.as_mut_ptr().add(1), 64) };
                for word in bytes[1..].as_chunks::<8>().0 {
                    let value = u64::from_ne_bytes(*word);
                    assert_eq!(
                        value % 0x0001_0001_0001_0001,
                        0,
                        "half of one word, half of another: {value:x}"
                    );
                }
            }
        });
    }
}

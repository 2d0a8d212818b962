//! Texts for C: names copied into the caller's buffers, and longer ones that the caller frees.

use crate::status::guard;
use std::ffi::{CString, c_char};

/// Copies a text and a zero byte to a buffer, cut if it is too long. Returns the bytes of the whole text without the
/// zero.
///
/// # Safety
///
/// `buffer` is null or writable for `size` bytes.
pub(crate) unsafe fn put(text: &str, buffer: *mut c_char, size: usize) -> usize {
    // In C a text ends at its first zero byte.
    let text = text.split('\0').next().unwrap_or_default();
    if !buffer.is_null() && size > 0 {
        let most = text.floor_char_boundary_at(size - 1);
        // SAFETY: the caller's promise; `most` is less than `size`.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), most);
            buffer.add(most).write(0);
        }
    }
    text.len()
}

/// Texts that can be cut between characters.
trait Cut {
    /// The last boundary of a character at or before `most`.
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl Cut for str {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        (0..=most.min(self.len())).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// The text as one of C: up to its first zero byte.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// Gives the caller a text, which it frees by [`skep_text_free`].
///
/// # Safety
///
/// `to` is writable.
pub(crate) unsafe fn give_text(to: *mut *mut c_char, text: &str) {
    // SAFETY: the caller's promise.
    unsafe { to.write(c_string(text).into_raw()) };
}

/// Frees a text.
///
/// # Safety
///
/// `text` is null, or from a function of this library that says so, and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_text_free(text: *mut c_char) {
    if !text.is_null() {
        guard(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { CString::from_raw(text) });
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_end_in_a_zero_byte() {
        for size in 0..8 {
            let mut buffer = [0x7f_u8; 8];
            // SAFETY: the buffer has as many bytes.
            assert_eq!(unsafe { put("aéz\0hidden", buffer.as_mut_ptr().cast(), size) }, 4);
            let expected: &[u8] =
                [b"", &b"\0"[..], b"a\0", b"a\0", b"a\xc3\xa9\0", b"a\xc3\xa9z\0"][size.min(5)];
            assert_eq!(&buffer[..expected.len()], expected, "{size}");
            assert!(buffer[size..].iter().all(|byte| *byte == 0x7f), "{size}");
        }
    }
}

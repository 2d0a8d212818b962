//! Helpers over strings: comparison, parsing numbers, formatting.

use super::errno::{EINVAL, ERANGE};
use super::format::{Output, copy_string, copy_values, print, take_printed};
use super::print::values_of;
use skep_abi::{MAX_FORMAT, MAX_PRINTED, RunEnv};

/// The bits of the flags that are the base of a number.
const BASE: u64 = 0x1f;

#[inline]
pub(super) unsafe fn strncmp(a: u64, size: u64, b: u64, _: *mut RunEnv) -> u64 {
    for at in 0..u64::from(size as u32) {
        // SAFETY: the verifier proved that `a` is readable for `size` bytes, and `b` is a string with an end,
        // beyond which this does not read.
        let (x, y) = unsafe { (*((a + at) as *const u8), *((b + at) as *const u8)) };
        if x != y {
            return (i64::from(x) - i64::from(y)) as u64;
        }
        if x == 0 {
            break;
        }
    }
    0
}

#[inline]
pub(super) unsafe fn strtol(text: u64, size: u64, flags: u64, result: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `text` is readable for `size` bytes.
    let text = unsafe { bytes(text, size) };
    let parsed = parse(&text, flags, true).and_then(|(negative, number, used)| {
        if number > i64::MAX as u64 + u64::from(negative) {
            return Err(ERANGE);
        }
        Ok((if negative { number.wrapping_neg() } else { number }, used))
    });
    // SAFETY: the verifier proved that `result` is writable for 8 bytes.
    unsafe { tell(parsed, result) }
}

#[inline]
pub(super) unsafe fn strtoul(text: u64, size: u64, flags: u64, result: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let text = unsafe { bytes(text, size) };
    let parsed = parse(&text, flags, false).map(|(_, number, used)| (number, used));
    // SAFETY: as above.
    unsafe { tell(parsed, result) }
}

/// Writes the number, 0 if there is none: the program takes `result` for written. Returns the number of bytes
/// parsed, or the error.
///
/// # Safety
///
/// `result` is writable for 8 bytes.
unsafe fn tell(parsed: Result<(u64, u64), u64>, result: u64) -> u64 {
    let (number, answer) = match parsed {
        Ok((number, used)) => (number, used),
        Err(error) => (0, error),
    };
    // SAFETY: the caller's promise.
    unsafe { (result as *mut u64).write_unaligned(number) };
    answer
}

/// Formats like [`super::format`]; returns the length including the final zero byte, which may be more than was
/// written. The rest of `out` is zeroed: the program takes all of it for written.
#[inline]
pub(super) unsafe fn snprintf(
    out: u64,
    size: u64,
    format: u64,
    values: u64,
    bytes: u64,
    env: *mut RunEnv,
) -> u64 {
    let size = size as u32 as usize;
    // SAFETY: the verifier proved that `format` is a string with an end, beyond which this does not read, and that
    // `values` is readable for `bytes`, or null with 0 bytes; the record in the environment is of this call.
    let text = unsafe {
        let printed = take_printed(env);
        let format = copy_string(format, MAX_FORMAT);
        let mut copies = [0; MAX_PRINTED];
        match values_of(bytes).and_then(|count| copies.get_mut(..count)) {
            Some(copies) if format.len() < MAX_FORMAT => {
                copy_values(values, copies);
                print(&format, copies, &printed, size.saturating_sub(1)).ok()
            }
            _ => None,
        }
    };
    let kept = text.as_ref().map_or(&[][..], Output::kept);
    if size > 0 {
        // SAFETY: the verifier proved that `out` is writable for `size` bytes; the text takes at most one less.
        unsafe {
            std::ptr::copy_nonoverlapping(kept.as_ptr(), out as *mut u8, kept.len());
            clear(out + kept.len() as u64, size - kept.len());
        }
    }
    text.map_or(EINVAL, |text| text.len as u64 + 1)
}

/// Zeroes memory.
///
/// # Safety
///
/// `address` is writable for `size` bytes, or `size` is 0.
unsafe fn clear(address: u64, size: usize) {
    if size > 0 {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, size) };
    }
}

/// A copy of memory that other threads may write.
///
/// # Safety
///
/// `address` is readable for `size` bytes.
unsafe fn bytes(address: u64, size: u64) -> Vec<u8> {
    // Bytes beyond what any number needs are ignored.
    let size = u64::from(size as u32).min(512);
    // SAFETY: the caller's promise.
    (0..size).map(|at| unsafe { ((address + at) as *const u8).read_volatile() }).collect()
}

/// Parses the number at the start of a text: its sign, its absolute value, and the number of bytes parsed.
fn parse(text: &[u8], flags: u64, signed: bool) -> Result<(bool, u64, u64), u64> {
    let space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let mut at = text.iter().take_while(|byte| space(byte)).count();
    let negative = signed && text.get(at) == Some(&b'-');
    at += usize::from(negative);
    let prefix = matches!(text.get(at..at + 2), Some([b'0', b'x' | b'X']));
    let is_hex = |at: usize| prefix && text.get(at + 2).is_some_and(u8::is_ascii_hexdigit);
    let base = match flags {
        0 if is_hex(at) => 16,
        0 if text.get(at) == Some(&b'0') => 8,
        0 => 10,
        8 | 10 | 16 => flags & BASE,
        _ => return Err(EINVAL),
    };
    // Linux takes the prefix for one in base 16 even if no digit follows.
    if base == 16 && prefix {
        at += 2;
    }
    let first = at;
    let mut number = Some(0u64);
    while let Some(digit) = text.get(at).and_then(|byte| char::from(*byte).to_digit(base as u32)) {
        number = number
            .and_then(|number| number.checked_mul(base))
            .and_then(|number| number.checked_add(digit.into()));
        at += 1;
    }
    match number {
        _ if at == first => Err(EINVAL),
        None => Err(ERANGE),
        Some(number) => Ok((negative, number, at as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    fn number(signed: bool, text: &str, base: u64) -> (i64, i64) {
        let mut result = -1i64;
        let (from, to) = (text.as_ptr() as u64, &raw mut result as u64);
        let function = if signed { strtol } else { strtoul };
        // SAFETY: the text is readable, the result writable.
        let used = unsafe { function(from, text.len() as u64, base, to, null_mut()) };
        (used as i64, result)
    }

    #[test]
    fn numbers_are_parsed_in_the_given_base() {
        assert_eq!(number(true, "42", 0), (2, 42));
        assert_eq!(number(true, " \t-42 more", 10), (5, -42));
        assert_eq!(number(true, "0x1F", 0), (4, 31));
        assert_eq!(number(true, "0x1f", 16), (4, 31));
        assert_eq!(number(true, "1f", 16), (2, 31));
        assert_eq!(number(true, "017", 0), (3, 15));
        assert_eq!(number(true, "0", 0), (1, 0));
        assert_eq!(number(true, "0x", 0), (1, 0));
        assert_eq!(number(true, "0x", 16).0, -22);
        assert_eq!(number(true, "019", 8), (2, 1));
        assert_eq!(number(false, "18446744073709551615", 10), (20, -1));
    }

    #[test]
    fn invalid_and_too_large_numbers_are_refused() {
        for text in ["", "x", "-", " ", "--1"] {
            assert_eq!(number(true, text, 0), (-22, 0), "{text}");
        }
        assert_eq!(number(false, "-1", 0).0, -22);
        assert_eq!(number(true, "1", 7).0, -22);
        assert_eq!(number(true, "1", 1 << 8).0, -22);
        assert_eq!(number(true, "9223372036854775808", 10).0, -34);
        assert_eq!(number(true, "-9223372036854775808", 10), (20, i64::MIN));
        assert_eq!(number(true, "-9223372036854775809", 10).0, -34);
        assert_eq!(number(false, "18446744073709551616", 10).0, -34);
    }

    #[test]
    fn strings_compare_to_their_first_difference_the_size_or_their_end() {
        let compare = |a: &[u8], b: &std::ffi::CStr| {
            // SAFETY: `a` is readable for its length, `b` has an end.
            unsafe { strncmp(a.as_ptr() as u64, a.len() as u64, b.as_ptr() as u64, null_mut()) as i64 }
        };
        assert_eq!(compare(b"skep", c"skep"), 0);
        assert_eq!(compare(b"skepxx", c"skep"), i64::from(b'x'));
        assert_eq!(compare(b"ske", c"skep"), 0, "only that many bytes are compared");
        assert_eq!(compare(b"ske\0x", c"skep"), -i64::from(b'p'));
        assert_eq!(compare(b"", c"skep"), 0);
        assert_eq!(compare(b"a\0b", c"a"), 0, "bytes after the end do not count");
    }
}

//! Tables of strings that end with NUL, as BTF and ELF have them.

use std::ffi::CStr;

/// The longest name that is accepted, in bytes.
pub const MAX_NAME: usize = 1024;

/// The string that starts at `offset` of a table, up to its NUL.
///
/// # Errors
///
/// Why it is no name: it lies outside, has no end, is too long, or is not UTF-8.
pub fn string_at(strings: &[u8], offset: u32) -> Result<&str, &'static str> {
    let rest = strings.get(offset as usize..).ok_or("it lies beyond the strings")?;
    let window = &rest[..rest.len().min(MAX_NAME + 1)];
    match CStr::from_bytes_until_nul(window) {
        Ok(name) => name.to_str().map_err(|_| "it is not UTF-8"),
        Err(_) if window.len() > MAX_NAME => Err("it is longer than 1024 bytes"),
        Err(_) => Err("it has no end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_their_nul() {
        assert_eq!(string_at(b"\0one\0two\0", 1), Ok("one"));
        assert_eq!(string_at(b"\0one\0two\0", 2), Ok("ne"));
        assert_eq!(string_at(b"\0", 0), Ok(""));
        assert_eq!(string_at(b"ab", 0), Err("it has no end"));
        assert_eq!(string_at(b"ab", 2), Err("it has no end"));
        assert_eq!(string_at(b"ab", 3), Err("it lies beyond the strings"));
        assert_eq!(string_at(b"\xff\0", 0), Err("it is not UTF-8"));
    }

    #[test]
    fn a_name_may_have_the_greatest_length_and_no_more() {
        let mut strings = vec![b'n'; MAX_NAME + 1];
        strings.push(0);
        assert_eq!(string_at(&strings, 1).map(str::len), Ok(MAX_NAME));
        assert_eq!(string_at(&strings, 0), Err("it is longer than 1024 bytes"));
    }
}

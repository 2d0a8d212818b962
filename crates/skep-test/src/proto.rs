//! The message in `suite_result_map`, which macros in C write byte by byte in the encoding of Protocol Buffers.
//!
//! ```text
//!   result   1: part, 2: log                       all of them repeated
//!   part     1: name, 2: status (a number), 3: log
//!   log      1: format, 2: argument (64 bits)
//! ```
//!
//! The bytes are a program's: lengths may point anywhere. Reading ends at the first that makes no sense, and at the
//! first field number 0, with which the unused part of the map begins.

/// What a test in C has written.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) parts: Vec<Part>,
    pub(crate) log: Vec<String>,
}

/// A part of a test.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// 0 error, 1 passed, 2 failed, 3 skipped.
    pub(crate) status: u64,
    pub(crate) log: Vec<String>,
}

/// Reads a message.
pub(crate) fn results(bytes: &[u8]) -> Results {
    let mut results = Results::default();
    for (field, value) in fields(bytes) {
        match (field, value) {
            (1, Field::Bytes(bytes)) => results.parts.push(part(bytes)),
            (2, Field::Bytes(bytes)) => results.log.push(line(bytes)),
            _ => {}
        }
    }
    results
}

fn part(bytes: &[u8]) -> Part {
    let mut part = Part::default();
    for (field, value) in fields(bytes) {
        match (field, value) {
            (1, Field::Bytes(bytes)) => part.name = text(bytes),
            (2, Field::Number(status)) => part.status = status,
            (3, Field::Bytes(bytes)) => part.log.push(line(bytes)),
            _ => {}
        }
    }
    part
}

fn line(bytes: &[u8]) -> String {
    let (mut format, mut arguments) = (String::new(), Vec::new());
    for (field, value) in fields(bytes) {
        match (field, value) {
            (1, Field::Bytes(bytes)) => format = text(bytes),
            (2, Field::Number(argument)) => arguments.push(argument),
            _ => {}
        }
    }
    formatted(&format, &arguments)
}

/// Text up to its first zero.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// A line of a log: `%d`, `%i`, `%u`, `%x`, `%p` with one or two `l`, and `%%`.
fn formatted(format: &str, arguments: &[u64]) -> String {
    let (mut out, mut arguments) = (String::new(), arguments.iter().copied());
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut longs = 0;
        let conversion = loop {
            match letters.next() {
                Some('l') => longs += 1,
                other => break other,
            }
        };
        match (conversion, longs) {
            (Some('%'), _) => out.push('%'),
            (Some(letter @ ('d' | 'i' | 'u' | 'x' | 'p')), longs) => {
                let argument = arguments.next().unwrap_or(0);
                out.push_str(&match (letter, longs) {
                    ('d' | 'i', 0) => (argument as i32).to_string(),
                    ('d' | 'i', _) => argument.cast_signed().to_string(),
                    ('u', 0) => (argument as u32).to_string(),
                    ('u', _) => argument.to_string(),
                    ('x', 0) => format!("{:x}", argument as u32),
                    ('p', _) => format!("0x{argument:x}"),
                    _ => format!("{argument:x}"),
                });
            }
            (Some(other), longs) => {
                out.push('%');
                out.extend(std::iter::repeat_n('l', longs));
                out.push(other);
            }
            (None, _) => out.push('%'),
        }
    }
    out
}

#[derive(Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, by number.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let tag = varint(&mut bytes)?;
        let field = match (tag >> 3, tag & 7) {
            (0, _) => return None,
            (_, 0) => Field::Number(varint(&mut bytes)?),
            (_, 1) => Field::Number(u64::from_le_bytes(*take(&mut bytes, 8)?.first_chunk()?)),
            (_, 2) => {
                let len = usize::try_from(varint(&mut bytes)?).ok()?;
                Field::Bytes(take(&mut bytes, len)?)
            }
            (_, 5) => Field::Number(u32::from_le_bytes(*take(&mut bytes, 4)?.first_chunk()?).into()),
            _ => return None,
        };
        Some((tag >> 3, field))
    })
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// A number in groups of seven bits, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_lines_are_read_as_macros_in_c_write_them() {
        // A part of 12 bytes, its length in two bytes as the macros write it, and a line of the whole test.
        let mut bytes = vec![0x0a, 12 | 0x80, 0, 0x0a, 5, b'p', b'a', b'r', b't', 0, 0x10, 2, 0x1a, 1, 0x20];
        bytes.extend([0x12, 17, 0x0a, 6, b'n', b' ', b'%', b'd', b'%', b'%', 0x11]);
        bytes.extend((-3i64).to_le_bytes());
        bytes.extend([0; 64]);
        let read = results(&bytes);
        assert_eq!((read.parts[0].name.as_str(), read.parts[0].status), ("part", 2));
        assert_eq!(read.log, ["n -3%"]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut state = 1u32;
        for len in 0..600 {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8 & if len % 2 == 0 { 0x1f } else { 0xff }
                })
                .collect();
            let _ = results(&bytes);
        }
        assert_eq!(results(&[0x0a, 0xff, 0xff, 0xff]), Results::default());
    }
}

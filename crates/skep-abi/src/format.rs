//! Formats of the helpers that print: `bpf_trace_printk`, `bpf_trace_vprintk`, `bpf_snprintf`, `bpf_seq_printf`.
//!
//! One parser serves the verifier, which refuses a wrong constant format, and the runtime, which returns an error
//! for one. This is the grammar:
//!
//! ```text
//!   '%' [flags] [width] spelling          spelling: the longest that fits, of CONVERSIONS
//!   '%' '%'                               a percent sign
//!   anything else                         printable ASCII, or white space
//! ```
//!
//! It matches Linux 6.12. `crates/skep-verifier/verdicts/formats.verdicts` has a case for each line of the grammar and
//! for what is just outside of it; the runtime's tests compare the printed texts.

use std::fmt;

/// The most values that one call prints. `bpf_trace_printk` has registers for 3.
pub const MAX_PRINTED: usize = 12;

/// The longest format that is parsed, in bytes.
pub const MAX_FORMAT: usize = 1024;

/// How a conversion prints its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    /// A signed number; `long` for 64 bits, otherwise the lower 32.
    Signed {
        /// 64 bits.
        long: bool,
    },
    /// An unsigned number.
    Unsigned {
        /// 64 bits.
        long: bool,
    },
    /// A number in hexadecimal digits.
    Hex {
        /// 64 bits.
        long: bool,
        /// Digits above 9 are capital letters.
        upper: bool,
    },
    /// The character in the lowest 8 bits.
    Char,
    /// The string that the value points to.
    String,
    /// The same; the width is ignored.
    PlainString,
    /// A string in another process's memory. There is none here, so it always prints as empty.
    UserString,
    /// The IPv4 address of 4 bytes that the value points to; `padded` to three digits each.
    Ipv4 {
        /// Pads each byte to three digits.
        padded: bool,
    },
    /// The IPv6 address of 16 bytes that the value points to, in groups of four digits, or all `joined`.
    Ipv6 {
        /// Without colons.
        joined: bool,
    },
    /// A number in place of the value, the same for equal values in one process.
    Hashed,
    /// The value in 16 hexadecimal digits.
    Address,
    /// The symbol at that address. No symbols are known here, so the number is printed.
    Symbol,
}

/// One spelling of a conversion.
struct Spelling {
    text: &'static str,
    shown: Shown,
    /// What may follow it.
    before: Before,
}

/// What may follow a conversion.
#[derive(PartialEq, Eq)]
enum Before {
    /// Any byte.
    Any,
    /// The end, white space or punctuation.
    End,
    /// Letters and digits after the spelling are part of the conversion and have no meaning.
    Ignored,
}

const fn number(text: &'static str, shown: Shown) -> Spelling {
    Spelling { text, shown, before: Before::Any }
}

const fn string(text: &'static str, shown: Shown) -> Spelling {
    Spelling { text, shown, before: Before::End }
}

const fn pointer(text: &'static str, shown: Shown) -> Spelling {
    Spelling { text, shown, before: Before::Ignored }
}

/// Every conversion.
static CONVERSIONS: &[Spelling] = &[
    number("d", Shown::Signed { long: false }),
    number("i", Shown::Signed { long: false }),
    number("u", Shown::Unsigned { long: false }),
    number("x", Shown::Hex { long: false, upper: false }),
    number("X", Shown::Hex { long: false, upper: true }),
    number("ld", Shown::Signed { long: true }),
    number("li", Shown::Signed { long: true }),
    number("lu", Shown::Unsigned { long: true }),
    number("lx", Shown::Hex { long: true, upper: false }),
    number("lX", Shown::Hex { long: true, upper: true }),
    number("lld", Shown::Signed { long: true }),
    number("lli", Shown::Signed { long: true }),
    number("llu", Shown::Unsigned { long: true }),
    number("llx", Shown::Hex { long: true, upper: false }),
    number("llX", Shown::Hex { long: true, upper: true }),
    number("c", Shown::Char),
    string("s", Shown::String),
    string("pks", Shown::PlainString),
    string("pus", Shown::UserString),
    pointer("pi4", Shown::Ipv4 { padded: true }),
    pointer("pI4", Shown::Ipv4 { padded: false }),
    pointer("pi6", Shown::Ipv6 { joined: true }),
    pointer("pI6", Shown::Ipv6 { joined: false }),
    string("p", Shown::Hashed),
    pointer("pK", Shown::Hashed),
    pointer("px", Shown::Address),
    pointer("ps", Shown::Symbol),
    pointer("pS", Shown::Symbol),
    pointer("pB", Shown::Symbol),
];

/// A conversion of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// How the value is printed.
    pub shown: Shown,
    /// Minimum number of characters, filled with spaces; 0 if the format has no width.
    pub width: u32,
    /// `-`: left-aligned, filled on the right.
    pub left: bool,
    /// `0`: filled with zeroes.
    pub zero: bool,
    /// `+`: always with a sign.
    pub plus: bool,
    /// ` `: with a space in place of a plus sign.
    pub space: bool,
}

/// A part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Literal text.
    Text(&'a [u8]),
    /// A conversion of the next value.
    Value(Conversion),
}

/// What is wrong with a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// Unknown conversion, and its place in bytes from the start.
    Conversion {
        /// The text from the percent sign, a few characters.
        text: String,
        /// Its place in bytes.
        at: usize,
    },
    /// A byte that is neither printable ASCII nor white space.
    Byte {
        /// The byte.
        byte: u8,
        /// Its place in bytes.
        at: usize,
    },
    /// More conversions than values.
    TooFewValues {
        /// Number of values.
        values: usize,
    },
}

/// Parses a format, given without its terminating zero byte, for `values` values.
///
/// # Errors
///
/// The first unknown conversion or byte, or more conversions than values.
pub fn parse_format(format: &[u8], values: usize) -> Result<Vec<Piece<'_>>, FormatError> {
    let mut pieces = Vec::new();
    let mut taken = 0;
    let (mut start, mut at) = (0, 0);
    while let Some(&byte) = format.get(at) {
        if byte != b'%' {
            if !byte.is_ascii_graphic() && !is_space(byte) {
                return Err(FormatError::Byte { byte, at });
            }
            at += 1;
            continue;
        }
        let percent = format.get(at + 1) == Some(&b'%');
        let text = &format[start..at + usize::from(percent)];
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        if percent {
            at += 2;
        } else {
            let conversion = Conversion::parse(&format[at + 1..]);
            let (conversion, len) = conversion.ok_or_else(|| FormatError::unknown(format, at))?;
            taken += 1;
            if taken > values {
                return Err(FormatError::TooFewValues { values });
            }
            pieces.push(Piece::Value(conversion));
            at += 1 + len;
        }
        start = at;
    }
    if start < format.len() {
        pieces.push(Piece::Text(&format[start..]));
    }
    Ok(pieces)
}

impl Conversion {
    /// The conversion after a percent sign, and its length.
    fn parse(text: &[u8]) -> Option<(Self, usize)> {
        let flags = text.iter().take_while(|byte| b"0+- ".contains(byte)).count();
        let digits = text[flags..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let has = |flag: u8| text[..flags].contains(&flag);
        let found = &text[flags + digits..];
        let spelling = CONVERSIONS
            .iter()
            .filter(|spelling| found.starts_with(spelling.text.as_bytes()))
            .max_by_key(|spelling| spelling.text.len())?;
        let mut len = flags + digits + spelling.text.len();
        match spelling.before {
            Before::Any => {}
            Before::End => {
                let ends = |byte: &u8| byte.is_ascii_punctuation() || is_space(*byte);
                if !text.get(len).is_none_or(ends) {
                    return None;
                }
            }
            Before::Ignored => {
                len += text[len..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            }
        }
        let conversion = Self {
            shown: spelling.shown,
            width: width(&text[flags..flags + digits]),
            left: has(b'-'),
            zero: has(b'0'),
            plus: has(b'+'),
            space: has(b' '),
        };
        Some((conversion, len))
    }
}

/// Parses a number, of which 24 bits with a sign are kept, as in Linux. Never below 0.
fn width(digits: &[u8]) -> u32 {
    let number = digits
        .iter()
        .fold(0u32, |number, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
    (number.cast_signed() << 8 >> 8).max(0).cast_unsigned()
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

impl FormatError {
    fn unknown(format: &[u8], at: usize) -> Self {
        let end = format.len().min(at + 8);
        Self::Conversion { text: format[at..end].escape_ascii().to_string(), at }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conversion { text, at } => {
                write!(f, "unknown conversion \"{text}\" at byte {at}")
            }
            Self::Byte { byte, at } => {
                write!(f, "expected printable ASCII or white space, found the byte {byte:#04x} at byte {at}")
            }
            Self::TooFewValues { values: 1 } => {
                f.write_str("the format needs more than the 1 value that the call passes")
            }
            Self::TooFewValues { values } => {
                write!(f, "the format needs more than the {values} values that the call passes")
            }
        }
    }
}

impl std::error::Error for FormatError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(format: &str) -> Option<Conversion> {
        match parse_format(format.as_bytes(), 1).ok()?[..] {
            [Piece::Value(conversion)] => Some(conversion),
            _ => None,
        }
    }

    #[test]
    fn every_spelling_is_matched_whole() {
        for spelling in CONVERSIONS {
            let found = only(&format!("%{}", spelling.text));
            assert_eq!(found.map(|found| found.shown), Some(spelling.shown), "{}", spelling.text);
        }
    }

    #[test]
    fn flags_and_widths_are_read() {
        let found = only("%+- 012d").unwrap();
        assert!(found.left && found.zero && found.plus && found.space);
        assert_eq!(found.width, 12);
        let plain = only("%x").unwrap();
        assert!(!plain.left && !plain.zero && !plain.plus && !plain.space && plain.width == 0);
        assert_eq!(only("%99999999999d").unwrap().width, 7_792_639);
        assert_eq!(only("%2147483648d").unwrap().width, 0);
        assert_eq!(only("%8388608d").unwrap().width, 0, "the smallest that has a sign");
    }

    #[test]
    fn text_and_percent_signs_are_separate_pieces() {
        let pieces = parse_format(b"100%% of %d%%", 1).unwrap();
        let text: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| match piece {
                Piece::Text(text) => text.to_vec(),
                Piece::Value(_) => b"N".to_vec(),
            })
            .collect();
        assert_eq!(text, b"100% of N%");
        assert_eq!(parse_format(b"", 0), Ok(Vec::new()));
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        let error = |format: &[u8], values| parse_format(format, values).unwrap_err().to_string();
        assert_eq!(error(b"a %f", 1), "unknown conversion \"%f\" at byte 2");
        assert_eq!(error(b"50%", 1), "unknown conversion \"%\" at byte 2");
        assert_eq!(
            error(b"\xff", 1),
            "expected printable ASCII or white space, found the byte 0xff at byte 0"
        );
        assert_eq!(error(b"%d %d", 1), "the format needs more than the 1 value that the call passes");
        assert_eq!(error(b"%d", 0), "the format needs more than the 0 values that the call passes");
    }

    #[test]
    fn a_space_separates_two_formats() {
        let alphabet: Vec<u8> = b"%dlspkI4-5c\xff".to_vec();
        let mut formats: Vec<Vec<u8>> = vec![Vec::new()];
        for len in 0..3 {
            let longer = |format: &Vec<u8>| {
                let format = format.clone();
                alphabet.iter().map(move |byte| [&format[..], &[*byte]].concat()).collect::<Vec<_>>()
            };
            let made: Vec<_> = formats.iter().filter(|format| format.len() == len).flat_map(longer).collect();
            formats.extend(made);
        }
        // The number of values that each takes; `None` if the format is wrong. A space may be a flag of the
        // preceding conversion.
        let taken = |format: &[u8]| {
            let pieces = parse_format(format, usize::MAX).ok()?;
            Some(pieces.iter().filter(|piece| matches!(piece, Piece::Value(_))).count())
        };
        let all: Vec<_> = formats.iter().map(|format| (format, taken(format))).collect();
        assert!(all.iter().filter(|(_, taken)| taken.is_none()).count() > 300);
        for (first, count) in &all {
            let Some(count) = count else { continue };
            for (second, more) in all.iter().step_by(7) {
                let both = [&first[..], b" ", second].concat();
                assert_eq!(taken(&both), more.map(|more| count + more), "{}", both.escape_ascii());
            }
        }
    }
}

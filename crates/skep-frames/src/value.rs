//! Values of fields as text.

use crate::layers::{FieldDef, Kind};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The number that a text stands for; `None` if it is no value of the field.
pub(crate) fn parse(field: &FieldDef, text: &str) -> Option<u128> {
    let value = match field.kind {
        Kind::Decimal | Kind::Hexadecimal => number(text)?,
        Kind::Mac => mac(text).or_else(|| number(text))?,
        Kind::Ip4 => u32::from(text.parse::<Ipv4Addr>().ok()?).into(),
        Kind::Ip6 => text.parse::<Ipv6Addr>().ok()?.into(),
        Kind::Letters(letters) => letters_of(letters, text).or_else(|| number(text))?,
        Kind::Names(names) => {
            let named = names.iter().find(|(name, _)| *name == text);
            named.map(|(_, value)| u128::from(*value)).or_else(|| number(text))?
        }
    };
    (value <= field.most()).then_some(value)
}

/// The text of a value, of which [`parse`] makes the same.
pub(crate) fn show(field: &FieldDef, value: u128) -> String {
    match field.kind {
        Kind::Decimal => value.to_string(),
        Kind::Hexadecimal => format!("0x{value:0width$x}", width = field.bits.div_ceil(4)),
        Kind::Mac => {
            let bytes = (value as u64).to_be_bytes();
            bytes[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        }
        Kind::Ip4 => Ipv4Addr::from(value as u32).to_string(),
        Kind::Ip6 => Ipv6Addr::from(value).to_string(),
        Kind::Letters(letters) => shown_letters(letters, value).unwrap_or_else(|| format!("0x{value:x}")),
        Kind::Names(names) => match names.iter().find(|(_, known)| u128::from(*known) == value) {
            Some((name, _)) => (*name).to_owned(),
            None => value.to_string(),
        },
    }
}

/// What can be given for a field, for people.
pub(crate) fn expected(field: &FieldDef) -> String {
    let most = field.most();
    match field.kind {
        Kind::Decimal => format!("a number from 0 to {most}"),
        Kind::Hexadecimal => format!("a number from 0 to 0x{most:x}"),
        Kind::Mac => "an address like 02:00:00:00:00:01".to_owned(),
        Kind::Ip4 => "an address like 10.0.0.1".to_owned(),
        Kind::Ip6 => "an address like 2001:db8::1".to_owned(),
        Kind::Letters(letters) => format!("some of the letters {letters}, 0, or a number up to 0x{most:x}"),
        Kind::Names(names) => {
            let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            format!("{}, or a number from 0 to {most}", names.join(", "))
        }
    }
}

/// A number in decimal or, after `0x`, in hexadecimal.
pub(crate) fn number(text: &str) -> Option<u128> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // A sign is no digit.
    digits.chars().all(|digit| digit.is_digit(radix)).then(|| u128::from_str_radix(digits, radix).ok())?
}

fn mac(text: &str) -> Option<u128> {
    let parts: Vec<&str> = text.split(':').collect();
    let byte = |part: &&str| {
        let fits = part.len() == 2 && part.chars().all(|digit| digit.is_ascii_hexdigit());
        fits.then(|| u128::from_str_radix(part, 16).ok())?
    };
    let bytes: Vec<u128> = parts.iter().map(byte).collect::<Option<_>>()?;
    (bytes.len() == 6).then(|| bytes.into_iter().fold(0, |value, byte| value << 8 | byte))
}

fn letters_of(letters: &str, text: &str) -> Option<u128> {
    let mut value = 0;
    for letter in text.chars() {
        let bit = letters.chars().position(|known| known == letter)?;
        value |= 1 << bit;
    }
    (!text.is_empty()).then_some(value)
}

/// The letters of the bits that are set; `None` if a bit has no letter, or none is set.
fn shown_letters(letters: &str, value: u128) -> Option<String> {
    let named = letters.chars().enumerate().filter(|(bit, _)| value >> bit & 1 == 1);
    let text: String = named.map(|(_, letter)| letter).collect();
    let all = letters.chars().count();
    match value {
        0 => Some("0".to_owned()),
        value => (value >> all == 0).then_some(text),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a string takes everything
        text
    })
}

/// The bytes of hexadecimal digits, between which there may be spaces.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Whether bytes are shown as text in quotes.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'))
}

/// Text in quotes.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
    text
}

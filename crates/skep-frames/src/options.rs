//! Options of IPv4 and TCP: `options=[mss(1460),nop,wscale(7)]`.
//!
//! Each option has a kind, and all but two a length and a value. What has no name here is `hex(...)`. The bytes of a
//! list are those of its members one after the other; the builder fills up the header with zeroes.

use crate::value::{hex, number, unhex};

/// An option with a name: its kind, and the sizes of the numbers in it.
struct Named {
    name: &'static str,
    kind: u8,
    numbers: &'static [usize],
}

const TCP: &[Named] = &[
    Named { name: "mss", kind: 2, numbers: &[2] },
    Named { name: "wscale", kind: 3, numbers: &[1] },
    Named { name: "sackok", kind: 4, numbers: &[] },
    Named { name: "sack", kind: 5, numbers: &[4, 4] },
    Named { name: "ts", kind: 8, numbers: &[4, 4] },
];

const IP4: &[Named] = &[Named { name: "alert", kind: 148, numbers: &[2] }];

/// The bytes of a list without its brackets; where it is wrong otherwise, in characters from its start.
pub(crate) fn parse(tcp: bool, list: &str) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::new();
    let mut at = 0;
    if list.trim().is_empty() {
        return Ok(bytes);
    }
    for word in split(list) {
        let one = option(tcp, word.trim()).ok_or(at)?;
        bytes.extend(one);
        at += word.chars().count() + 1;
    }
    Ok(bytes)
}

/// The members of a list: at commas outside of parentheses.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (at, letter) in list.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

fn option(tcp: bool, word: &str) -> Option<Vec<u8>> {
    let (name, values) = match word.split_once('(') {
        Some((name, rest)) => (name.trim(), rest.strip_suffix(')')?),
        None => (word, ""),
    };
    match name {
        "eol" if values.is_empty() => return Some(vec![0]),
        "nop" if values.is_empty() => return Some(vec![1]),
        "hex" => return unhex(values),
        _ => {}
    }
    let named = if tcp { TCP } else { IP4 }.iter().find(|named| named.name == name)?;
    let values: Vec<u128> = match values.trim() {
        "" => Vec::new(),
        values => values.split(',').map(|value| number(value.trim())).collect::<Option<_>>()?,
    };
    if values.len() != named.numbers.len() {
        return None;
    }
    let mut bytes = vec![named.kind, 2 + named.numbers.iter().sum::<usize>() as u8];
    for (value, size) in values.into_iter().zip(named.numbers) {
        if value >> (8 * size) != 0 {
            return None;
        }
        bytes.extend(&value.to_be_bytes()[16 - size..]);
    }
    Some(bytes)
}

/// The bytes up to the end of the last option that is no zero.
pub(crate) fn used(bytes: &[u8]) -> usize {
    let (mut at, mut end) = (0, 0);
    while let Some(kind) = bytes.get(at) {
        at += if *kind < 2 { 1 } else { len(&bytes[at..]) };
        end = if *kind == 0 { end } else { at };
    }
    end
}

/// The length of the option with a length that begins the bytes; all bytes, if it says something impossible.
fn len(bytes: &[u8]) -> usize {
    let said = bytes.get(1).map_or(0, |len| usize::from(*len));
    if (2..=bytes.len()).contains(&said) { said } else { bytes.len() }
}

/// The list that makes these bytes, without brackets.
pub(crate) fn show(tcp: bool, bytes: &[u8]) -> String {
    let mut words = Vec::new();
    let mut rest = bytes;
    while let [kind, ..] = rest {
        let (word, used) = match kind {
            0 => ("eol".to_owned(), 1),
            1 => ("nop".to_owned(), 1),
            _ => shown(tcp, rest).unwrap_or_else(|| {
                let used = len(rest);
                (format!("hex({})", hex(&rest[..used])), used)
            }),
        };
        words.push(word);
        rest = &rest[used..];
    }
    words.join(",")
}

/// An option with a name, at the start of the bytes, and its length.
fn shown(tcp: bool, bytes: &[u8]) -> Option<(String, usize)> {
    let named = if tcp { TCP } else { IP4 }.iter().find(|named| named.kind == bytes[0])?;
    let len = 2 + named.numbers.iter().sum::<usize>();
    if usize::from(*bytes.get(1)?) != len || bytes.len() < len {
        return None;
    }
    let mut at = 2;
    let values: Vec<String> = named
        .numbers
        .iter()
        .map(|size| {
            at += size;
            bytes[at - size..at].iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)).to_string()
        })
        .collect();
    let values = if values.is_empty() { String::new() } else { format!("({})", values.join(",")) };
    Some((format!("{}{values}", named.name), len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_the_bytes_of_their_specifications() {
        let list = "mss(1460),nop,wscale(7),sackok,ts(1,2),sack(3,4),hex(fd04 0102)";
        let bytes = parse(true, list).unwrap();
        assert_eq!(bytes[..9], [2, 4, 5, 180, 1, 3, 3, 7, 4]);
        assert_eq!(show(true, &bytes), list.replace(' ', ""));
        assert_eq!(parse(false, "alert(0)"), Ok(vec![148, 4, 0, 0]));
        assert_eq!(show(false, &[148, 4, 0, 0, 0]), "alert(0),eol");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        assert_eq!(parse(true, "nop,mss(70000)"), Err(4));
        assert_eq!(parse(true, "nop,,nop"), Err(4));
        assert_eq!(parse(false, "mss(1)"), Err(0));
        assert_eq!(show(true, &[2, 4]), "hex(0204)", "a length behind the end");
        assert_eq!(show(true, &[2, 1, 1]), "hex(020101)", "a length below the least");
    }
}

//! Formats as Linux prints them, from recorded answers.

use super::*;

/// Recorded results of Linux: lines of format, values, size, result and text.
const ANSWERS: &str = include_str!("../../tests/data/formats.tsv");

const MEMORY: &[u8; 64] = b"skep\0xyz\xc0\0\x02\x01\0\0\0\0\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\
                            abcdefghijklmnopqrstuvwxyz012345";

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = if text == "-" { "" } else { text };
    while let Some(at) = rest.find("\\x") {
        bytes.extend(rest[..at].bytes());
        bytes.push(u8::from_str_radix(&rest[at + 2..at + 4], 16).unwrap());
        rest = &rest[at + 4..];
    }
    bytes.extend(rest.bytes());
    bytes
}

/// The value that a word stands for, and the verifier's record of it.
fn value(word: &str) -> (u64, Printable) {
    match word.strip_prefix("s+") {
        Some(at) => {
            let at: usize = at.parse().unwrap();
            let bytes = (MEMORY.len() - at) as u32;
            ((&raw const MEMORY[at]).expose_provenance() as u64, Printable::Memory { bytes })
        }
        None => (word.parse::<i64>().unwrap() as u64, Printable::Number),
    }
}

/// The text and its length.
fn printed(format: &str, values: &[(u64, Printable)], most: usize) -> Result<(Vec<u8>, usize), FormatError> {
    let mut note = Printed::default();
    for (place, (_, printable)) in note.values.iter_mut().zip(values) {
        *place = *printable;
    }
    let values: Vec<u64> = values.iter().map(|(value, _)| *value).collect();
    // SAFETY: all addresses are those of `MEMORY` and of constants, with the lengths that are left there.
    let out = unsafe { print(format.as_bytes(), &values, &note, most) }?;
    Ok((out.kept().to_vec(), out.len))
}

fn shown(format: &str, value: (u64, Printable)) -> String {
    String::from_utf8(printed(format, &[value], 64).unwrap().0).unwrap()
}

#[test]
fn every_text_is_the_one_that_linux_prints() {
    let mut count = 0;
    for line in ANSWERS.lines().filter(|line| !line.starts_with('#')) {
        let [format, values, size, result, text] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("five columns: {line}")
        };
        let format = String::from_utf8(unescaped(format)).unwrap();
        let values: Vec<_> = values.split(',').filter(|word| *word != "-").map(value).collect();
        let size: usize = size.parse().unwrap();
        let result: i64 = result.parse().unwrap();
        // The helper must reject too many values before anything is printed.
        if result < 0 {
            assert!(values.len() > skep_abi::MAX_PRINTED, "{line}");
            continue;
        }
        let (kept, len) = printed(&format, &values, size.saturating_sub(1)).unwrap();
        assert_eq!((len as i64 + 1, kept), (result, unescaped(text)), "{line}");
        count += 1;
    }
    assert!(count > 90, "{count} answers");
}

#[test]
fn addresses_are_printed_as_a_hash_by_every_conversion() {
    let address = (&raw const MEMORY[0]).expose_provenance() as u64;
    for printable in [Printable::Hidden, Printable::Memory { bytes: 64 }, Printable::String { bytes: 64 }] {
        for conversion in ["lld", "llu", "llx", "llX", "p", "pK", "px", "ps", "pS", "pB", "20px"] {
            let text = shown(&format!("%{conversion}"), (address, printable)).to_lowercase();
            let decimal = text.trim().parse() == Ok(address);
            assert!(!decimal && !text.contains(&format!("{address:x}")), "%{conversion} prints {text}");
        }
        assert_ne!(shown("%d", (address, printable)), (address as i32).to_string());
    }
    assert_eq!(shown("%px", (0x1234, Printable::Number)), "0000000000001234", "a number is no address");
    assert_ne!(
        shown("%p", (0x1234, Printable::Number)),
        "0000000000001234",
        "the address itself was not requested"
    );
    let twice = printed("%p %p", &[(0x1234, Printable::Number); 2], 64).unwrap().0;
    let (first, second) = std::str::from_utf8(&twice).unwrap().split_once(' ').unwrap();
    assert_eq!(first, second);
    assert_ne!(shown("%p", (0x1235, Printable::Number)), first);
}

#[test]
fn a_number_is_never_followed() {
    let address = (&raw const MEMORY[0]).expose_provenance() as u64;
    for printable in [Printable::Number, Printable::Hidden] {
        assert_eq!(shown("[%s]", (address, printable)), "[]");
        assert_eq!(shown("[%pks]", (address, printable)), "[]");
        assert_eq!(shown("[%pI4]", (address, printable)), "[0.0.0.0]");
    }
}

#[test]
fn a_string_ends_where_its_memory_does() {
    let at =
        |at: usize, bytes| ((&raw const MEMORY[at]).expose_provenance() as u64, Printable::Memory { bytes });
    assert_eq!(shown("%s", at(32, 3)), "abc");
    assert_eq!(shown("%pI4", at(8, 3)), "0.0.0.0", "four bytes are not there");
    assert_eq!(shown("%pI4", at(8, 4)), "192.0.2.1");
    let long = [b'a'; 600];
    let long = ((&raw const long[0]).expose_provenance() as u64, Printable::Memory { bytes: 600 });
    assert_eq!(printed("%s", &[long], 1000).unwrap().1, STRING_MAX);
}

#[test]
fn a_width_of_millions_takes_no_memory() {
    let (kept, len) = printed("%8000000d", &[(1, Printable::Number)], 10).unwrap();
    assert_eq!((kept.len(), kept.capacity() < 1000, len), (10, true, 8_000_000));
}

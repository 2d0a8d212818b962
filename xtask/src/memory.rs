//! Memory images for benchmark programs that need more than random bytes: a sorted table, the table of a checksum,
//! frames, strings. Each is the contents of a `bench/programs/NAME.mem`.

use crate::capture;
use crate::random::Random;

/// Every image: its file name and its bytes.
pub(crate) fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("binary_search.mem", binary_search()),
        ("crc32.mem", crc32()),
        ("dissector.mem", dissector()),
        ("string_compare.mem", string_compare()),
    ]
}

/// A sorted table of 512 numbers, then 64 keys: every other one is in the table.
fn binary_search() -> Vec<u8> {
    let mut random = Random::new(3);
    let mut table: Vec<u32> = (0..512).map(|_| random.next() as u32).collect();
    table.sort_unstable();
    let keys = (0..64).map(|index| if index % 2 == 0 { random.pick(&table) } else { random.next() as u32 });
    let keys: Vec<u32> = keys.collect();
    table.iter().chain(&keys).flat_map(|number| number.to_le_bytes()).collect()
}

/// The table of Ethernet's CRC-32 (the polynomial 0x04c11db7, bits reversed), then 512 bytes of data.
fn crc32() -> Vec<u8> {
    let table = (0..256)
        .map(|byte| (0..8).fold(byte, |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }));
    let mut bytes: Vec<u8> = table.flat_map(u32::to_le_bytes).collect();
    bytes.extend(Random::new(8).bytes(512));
    bytes
}

/// Sixteen slots of 128 bytes: a frame's length in two bytes, then as many of its bytes as fit.
fn dissector() -> Vec<u8> {
    const SLOT: usize = 128;
    let mut bytes = Vec::new();
    for frame in capture::sample_frames(16) {
        let length = frame.len().min(SLOT - 2);
        bytes.extend((length as u16).to_le_bytes());
        bytes.extend(&frame[..length]);
        bytes.resize(bytes.len().next_multiple_of(SLOT), 0);
    }
    bytes
}

/// Eight bytes with the start, then eight pairs of strings in slots of 64 bytes; two pairs differ.
fn string_compare() -> Vec<u8> {
    const SLOT: usize = 64;
    let mut random = Random::new(20);
    let mut bytes = random.bytes(8);
    for pair in 0..8 {
        let length = random.between(40, SLOT - 1);
        let left: Vec<u8> = (0..length).map(|_| b'a' + random.below(26) as u8).collect();
        let mut right = left.clone();
        if pair % 4 == 3 {
            right[length - 5] ^= 1;
        }
        for string in [left, right] {
            bytes.extend(string);
            bytes.resize(8 + (bytes.len() - 8 + 1).next_multiple_of(SLOT), 0);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_the_sizes_that_the_programs_expect() {
        let sizes: Vec<_> = files().iter().map(|(name, bytes)| (*name, bytes.len())).collect();
        assert_eq!(
            sizes,
            [
                ("binary_search.mem", 2304),
                ("crc32.mem", 1536),
                ("dissector.mem", 2048),
                ("string_compare.mem", 1032),
            ]
        );
    }

    #[test]
    fn the_checksum_table_is_the_known_one() {
        let image = crc32();
        let entry = |index: usize| u32::from_le_bytes(image[index * 4..][..4].try_into().unwrap());
        assert_eq!((entry(0), entry(1), entry(255)), (0, 0x7707_3096, 0x2d02_ef8d));
        let crc = b"123456789"
            .iter()
            .fold(!0, |crc: u32, byte| crc >> 8 ^ entry(((crc ^ u32::from(*byte)) & 255) as usize));
        assert_eq!(!crc, 0xcbf4_3926);
    }
}

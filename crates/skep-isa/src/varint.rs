//! Numbers of 32 bits in as few bytes as they need: zigzag, then groups of seven bits, the lowest first.
//!
//! ```text
//!   0, -1, 1, -2, ...  become  0, 1, 2, 3, ...
//!   each byte: 7 bits of the number | 0x80 if another byte follows; at most five bytes
//! ```
//!
//! For what is kept of loaded programs and seldom asked for: small numbers of both signs take one byte.

/// Bits of the number in a byte.
const BITS: u32 = 7;
/// Another byte follows.
const MORE: u8 = 1 << BITS;

/// Appends a number.
pub fn write(bytes: &mut Vec<u8>, number: i32) {
    let mut rest = ((number << 1) ^ (number >> (i32::BITS - 1))).cast_unsigned();
    while rest >= u32::from(MORE) {
        bytes.push(rest as u8 | MORE);
        rest >>= BITS;
    }
    bytes.push(rest as u8);
}

/// Takes a number from the front; 0 behind the end. Never fails: for bytes that [`write()`] wrote.
pub fn read(bytes: &mut &[u8]) -> i32 {
    let mut zigzag = 0;
    for shift in (0..u32::BITS).step_by(BITS as usize) {
        let Some((byte, rest)) = bytes.split_first() else { break };
        *bytes = rest;
        zigzag |= u32::from(byte & !MORE) << shift;
        if byte & MORE == 0 {
            break;
        }
    }
    ((zigzag >> 1) ^ (zigzag & 1).wrapping_neg()).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_when_they_are_read_and_small_ones_take_a_byte() {
        let edges =
            (0..=32).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits]).map(|number| number as u32 as i32);
        let numbers: Vec<i32> = edges.flat_map(|number| [number, number.wrapping_neg(), !number]).collect();
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| write(&mut bytes, *number));
        let mut rest = &*bytes;
        for number in numbers {
            let before = rest.len();
            assert_eq!(read(&mut rest), number);
            let taken = before - rest.len();
            assert_eq!(taken == 1, (-64..64).contains(&number), "{number} takes {taken}");
            assert!(taken <= 5);
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn any_bytes_are_numbers_and_so_is_nothing() {
        let mut rest: &[u8] = &[0xff; 12];
        (0..4).for_each(|_| _ = read(&mut rest));
        assert!(rest.is_empty());
        assert_eq!(read(&mut rest), 0);
    }
}

//! The helpers with numbers 0 to 5 that the public `bpf_conformance` suite expects.

use skep_abi::{HelperFn, RunEnv};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

/// Implementations in the order of their numbers; the prototypes are [`skep_abi::CONFORMANCE`].
pub(crate) static HELPERS: [HelperFn; 6] = [
    helper!(gather_bytes, 5),
    helper!(memfrob, 2),
    helper!(trash_registers, 0),
    helper!(sqrti, 1),
    helper!(strcmp_ext, 2),
    helper!(unwind, 1),
];

/// The longest strings that are compared, in bytes.
const STRING_MAX: u64 = 4096;

#[inline]
unsafe fn gather_bytes(a: u64, b: u64, c: u64, d: u64, e: u64, _: *mut RunEnv) -> u64 {
    a << 32 | u64::from((b as u32) << 24) | u64::from((c as u32) << 16) | u64::from((d as u16) << 8) | e
}

#[inline]
unsafe fn memfrob(memory: u64, size: u64, _: *mut RunEnv) -> u64 {
    for i in 0..size as u32 as usize {
        // SAFETY: the verifier proved that `memory` is readable and writable for `size` bytes.
        unsafe { *(memory as *mut u8).add(i) ^= 42 };
    }
    0
}

/// Leaves other values in the registers that calls may clobber.
#[inline]
unsafe fn trash_registers(env: *mut RunEnv) -> u64 {
    let junk = black_box(0x5eed_5eed_5eed_5eed_u64);
    // SAFETY: `gather_bytes` only uses its numeric arguments; called through memory so that they are passed in
    // registers.
    black_box(unsafe {
        black_box(helper!(gather_bytes, 5))(junk, !junk, junk << 1, junk >> 1, junk ^ 1, env)
    });
    0
}

#[inline]
unsafe fn sqrti(number: u64, _: *mut RunEnv) -> u64 {
    number.isqrt()
}

/// Compares two strings: 0 if equal, otherwise the difference of the first bytes that differ.
///
/// No prototype can prove where a string ends, so memory is read through a system call, which returns an error for
/// a bad address instead of faulting; an unreadable byte ends the string.
#[inline]
unsafe fn strcmp_ext(a: u64, b: u64, _: *mut RunEnv) -> u64 {
    let Ok(memory) = File::open("/proc/self/mem") else { return u64::MAX };
    let byte = |address: u64| {
        let mut byte = [0];
        match memory.read_at(&mut byte, address) {
            Ok(1) => byte[0],
            _ => 0,
        }
    };
    for i in 0..STRING_MAX {
        let (x, y) = (byte(a.wrapping_add(i)), byte(b.wrapping_add(i)));
        if x != y {
            return (i64::from(x) - i64::from(y)) as u64;
        }
        if x == 0 {
            break;
        }
    }
    0
}

/// Returns its argument; the program ends if it is 0 (`skep conformance` arranges that).
#[inline]
unsafe fn unwind(value: u64, _: *mut RunEnv) -> u64 {
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: usize, args: [u64; 5]) -> u64 {
        let [a, b, c, d, e] = args;
        // SAFETY: each test passes arguments that satisfy the prototype.
        unsafe { HELPERS[id](a, b, c, d, e, std::ptr::null_mut()) }
    }

    #[test]
    fn bytes_are_gathered_most_significant_first() {
        assert_eq!(call(0, [1, 2, 3, 4, 5]), 0x01_0203_0405);
    }

    #[test]
    fn frobbing_twice_gives_the_memory_back() {
        let mut memory = *b"skep";
        let address = memory.as_mut_ptr() as u64;
        call(1, [address, 4, 0, 0, 0]);
        assert_ne!(&memory, b"skep");
        call(1, [memory.as_mut_ptr() as u64, 4, 0, 0, 0]);
        assert_eq!(&memory, b"skep");
    }

    #[test]
    fn roots_are_rounded_down() {
        assert_eq!(call(3, [80, 0, 0, 0, 0]), 8);
        assert_eq!(call(3, [u64::MAX, 0, 0, 0, 0]), u64::from(u32::MAX));
    }

    #[test]
    fn strings_compare_to_their_first_difference_and_bad_addresses_do_not_fault() {
        let (a, b) = (c"abcd", c"abce");
        let (a, b) = (a.as_ptr() as u64, b.as_ptr() as u64);
        assert_eq!(call(4, [a, a, 0, 0, 0]), 0);
        assert_eq!(call(4, [a, b, 0, 0, 0]) as i64, -1);
        assert_eq!(call(4, [16, 16, 0, 0, 0]), 0);
        assert_eq!(call(4, [a, 16, 0, 0, 0]), u64::from(b'a'));
    }
}

//! Random keys for constants that are not to appear in code.
//!
//! An attacker writes `r1 = 0x0f05c3`, and the compiler writes `mov edi, 0x0f05c3`: three bytes of the attacker's
//! choice in executable memory, for another bug to jump to. A backend that blinds computes the constant from two
//! numbers of which the attacker knows none:
//!
//! ```text
//!   mov edi, 0x0f05c3             mov edi, 0x0f05c3 ^ key
//!                                 xor edi, key
//! ```
//!
//! Each constant has a key of its own, and each load new ones: from the kernel's generator, not from one of this
//! process, whose state could leak. This is done by the backends and not by a pass over the instructions before them.
//! A pass would need a scratch register that BPF lacks, would change the slots by which facts, lines and offsets are
//! found, and would miss the constants that the compiler makes of the program's: magic numbers of divisions, sizes of
//! maps, sums of offsets.
//!
//! A key that repeats, or that a program can predict, would break it.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// What the kernel gives at once without being interrupted (getrandom(2)).
const POOL: usize = 256;

/// Keys of one load.
#[derive(Debug)]
pub(crate) struct Keys {
    pool: [u8; POOL],
    /// Bytes of the pool that no key has used.
    left: usize,
    /// The kernel gave none.
    failed: bool,
}

impl Keys {
    /// Nothing is asked for yet.
    pub(crate) fn new() -> Self {
        Self { pool: [0; POOL], left: 0, failed: false }
    }

    /// A key.
    pub(crate) fn next(&mut self) -> u64 {
        if self.left < 8 {
            self.fill();
        }
        self.left -= 8;
        self.pool[self.left..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether some key was not random. The code must not be used then.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    fn fill(&mut self) {
        let mut filled = 0;
        while filled < POOL {
            match getrandom(&mut self.pool[filled..], GetRandomFlags::empty()) {
                Ok(bytes) if bytes > 0 => filled += bytes,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => {
                    self.failed = true;
                    break;
                }
            }
        }
        self.left = POOL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_repeats_within_a_load_or_in_the_next_one() {
        let mut seen = HashSet::new();
        for _ in 0..4 {
            let mut keys = Keys::new();
            assert!((0..100).all(|_| seen.insert(keys.next())));
            assert!(!keys.failed());
        }
    }
}

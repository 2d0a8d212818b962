//! For any input, the verifier ends within its limits and does not panic.

use crate::oracle::{Outcome, check};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = (self.next() >> 32) % most;
        // Small numbers are registers, short jumps and useful sizes.
        (0..len)
            .map(|_| if self.next() & 1 == 0 { (self.next() >> 60) as u8 } else { (self.next() >> 56) as u8 })
            .collect()
    }
}

#[test]
fn no_bytes_make_the_verifier_panic_or_exceed_its_limits() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for iteration in 0..30_000 {
        let bytes = random.bytes(match iteration % 8 {
            0 => 4000,
            1..=4 => 60,
            _ => 200,
        });
        accepted += u32::from(check(&bytes) == Outcome::Accepted);
    }
    assert!(accepted > 30, "only {accepted} of 30000 were accepted: most of the verifier was not reached");
}

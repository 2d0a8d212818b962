//! Fingerprints: the keys under which explored states are filed, so that a visit compares with few.
//!
//! A state can only be subsumed by one with the same calls, and the same pointers and constants in the same registers.
//! A hash of these is the key. So a loop that counts to a thousand costs one comparison an iteration, not five hundred.

use crate::domain::state::State;
use crate::domain::value::Kind;
use crate::explore::snapshot::bits;
use skep_abi::StructKind;
use std::hash::Hasher;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(key: u64, part: u64) -> u64 {
    (key.rotate_left(23) ^ part).wrapping_mul(MIX)
}

/// What keys are made of.
pub(crate) struct Fingerprint {
    /// A hash of what a state and one that subsumes it have in common: the calls, and the pointers without their
    /// variable parts.
    pub(crate) hash: u64,
    /// The registers of the innermost frame that hold constants.
    pub(crate) constants: u16,
    /// By register: a hash of its constant.
    hashes: [u64; 10],
}

impl Fingerprint {
    /// `made` are the registers of the innermost frame that have a value.
    pub(crate) fn of(state: &State, made: u16, slot: usize) -> Self {
        let mut hash = mix(slot as u64, 0);
        for frame in state.frames() {
            hash = mix(hash, frame.call_slot.into());
        }
        let (mut constants, mut hashes) = (0, [0; 10]);
        // Four bits for each register, so that numbers and unreadable values need no hashing.
        let mut tags = 0;
        let regs = &state.top().regs.0;
        for at in bits(made) {
            let value = &regs[at];
            // A pointer that may be null subsumes one that is not.
            let (tag, object) = match value.kind {
                Kind::Uninit | Kind::Clobbered { .. } => continue,
                Kind::Scalar => {
                    tags |= 1 << (4 * at);
                    if let Some(constant) = value.num.as_constant() {
                        constants |= 1 << at;
                        hashes[at] = hash_of(at, constant);
                    }
                    continue;
                }
                Kind::Context => (2, 0),
                Kind::Stack { frame } => (3, frame.into()),
                Kind::Packet => (4, 0),
                Kind::PacketMeta => (5, 0),
                Kind::PacketEnd => (6, 0),
                Kind::Map { map } => (7, map),
                Kind::MapValue { map, .. } => (8, map),
                Kind::Buffer { bytes } => (9, bytes),
                Kind::PacketHalf => (10, 0),
                Kind::MapKey { map } => (11, map),
                Kind::Memory { bytes, .. } => (12, bytes),
                Kind::InnerMap { map, .. } => (13, map),
                Kind::Function { function } => (14, function),
                Kind::Struct { of: StructKind::Host(number), .. } => (15, !(u32::from(number) + 2)),
                Kind::Struct { .. } => (15, 0),
                Kind::Slice { slice, .. } => (15, !(u32::from(slice) + 0x102)),
                Kind::SliceEnd { slice } => (15, !(u32::from(slice) + 0x202)),
                Kind::Object { ty, .. } => (15, ty + 16),
                Kind::Own { ty, .. } => (15, !ty),
                Kind::Opaque { .. } => (15, u32::MAX),
                Kind::Arena => (15, u32::MAX - 1),
                // Bits that arithmetic made subsume all other stale addresses.
                Kind::Stale { .. } => {
                    tags |= 15 << (4 * at);
                    continue;
                }
            };
            tags |= tag << (4 * at);
            hash = mix(hash, u64::from(object) << 32 | u64::from(value.offset as u32));
        }
        Self { hash: mix(hash, tags), constants, hashes }
    }

    /// The key of a state by these of its constants.
    pub(crate) fn key(&self, mask: u16) -> u64 {
        key(self.hash, mask, bits(mask).map(|reg| self.hashes[reg]))
    }
}

/// The hash of a constant in a register: rotated, so that exchanged numbers make another sum.
pub(crate) fn hash_of(reg: usize, constant: u64) -> u64 {
    mix(0, constant).rotate_left(6 * reg as u32)
}

/// The key of a state with that hash by these of its constants, given their hashes.
pub(crate) fn key(hash: u64, mask: u16, hashes: impl Iterator<Item = u64>) -> u64 {
    // A sum, so that no hash waits for another.
    let sum = hashes.fold(0, u64::wrapping_add);
    let key = mix(mix(hash, mask.into()), sum);
    key ^ key >> 32
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

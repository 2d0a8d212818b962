//! The eight bytes of an instruction slot, little-endian as BPF objects for x86-64 and aarch64 hold them.
//!
//! ```text
//!   byte 0     byte 1            bytes 2..4      bytes 4..8
//!  +--------+---------+---------+--------------+--------------------+
//!  | opcode | dst 0:4 | src 4:8 | offset (i16) | immediate (i32)    |
//!  +--------+---------+---------+--------------+--------------------+
//! ```

/// One instruction slot with its fields taken apart and nothing checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The opcode byte.
    pub opcode: u8,
    /// Destination register field, 0 to 15.
    pub dst: u8,
    /// Source register field, 0 to 15.
    pub src: u8,
    /// Signed 16-bit offset.
    pub offset: i16,
    /// Signed 32-bit immediate.
    pub imm: i32,
}

impl Slot {
    /// Bytes in a slot.
    pub const BYTES: usize = 8;

    /// Takes the fields out of eight little-endian bytes.
    #[inline]
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        let [opcode, regs, o0, o1, i0, i1, i2, i3] = bytes;
        Self {
            opcode,
            dst: regs & 0xf,
            src: regs >> 4,
            offset: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    /// The eight little-endian bytes of this slot.
    #[inline]
    pub fn to_bytes(self) -> [u8; 8] {
        let [o0, o1] = self.offset.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        [self.opcode, (self.dst & 0xf) | (self.src << 4), o0, o1, i0, i1, i2, i3]
    }
}

//! What layout knows of a machine. Each backend implements it.

use std::fmt::Debug;

/// How long branches and padding are on a machine, and their bytes.
pub(crate) trait Encoding: Copy + Debug + 'static {
    /// The condition of a jump, as the machine encodes it.
    type Jump: Copy + Debug + PartialEq;

    /// The alignment of instructions in bytes; their lengths are multiples of it.
    const STEP: usize;
    /// Length in bytes of a branch that can be replaced while it runs.
    const SITE: u32;

    /// The shortest length of a jump in bytes.
    fn jump_start(jump: Self::Jump) -> u32;

    /// The length of a jump over `distance` bytes from its start, if it had `len` when the distance was taken; never
    /// less than `len`. `forward` means that the target is after the jump.
    fn jump_len(jump: Self::Jump, distance: i64, forward: bool, len: u32) -> u32;

    /// The greatest length of a jump.
    fn jump_longest(jump: Self::Jump) -> u32;

    /// How many instructions a jump of that length is.
    fn jump_count(len: u32) -> u32;

    /// Writes a jump over `distance` bytes from its start into the bytes of the length that was chosen for it;
    /// `None` where it is too far for every form.
    fn write_jump(jump: Self::Jump, distance: i64, out: &mut [u8]) -> Option<()>;

    /// Writes the distance to `target` into four bytes of an instruction that will be at address `place`; `None` if it
    /// is too far.
    fn write_distance(place: u64, target: u64, out: &mut [u8]) -> Option<()>;

    /// Padding before a loop or function of `size` bytes at offset `start`, which aligns it to fetch blocks or cache
    /// lines.
    fn alignment_padding(start: u32, size: u32) -> u32;

    /// Padding before such a branch that would otherwise be at offset `start` of a text.
    fn site_padding(start: u32) -> u32;

    /// Fills the bytes with as few no-operation instructions as possible.
    fn write_padding(out: &mut [u8]);
}

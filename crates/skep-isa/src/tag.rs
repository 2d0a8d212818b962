//! The program tag: eight bytes that name a program by its instructions, as Linux shows them.
//!
//! Linux hashes the bytes of the program as loaded and keeps the first eight bytes of the digest: SHA-1 until
//! version 6.17, SHA-256 since 6.18. The file descriptors that map loads carry differ from load to load, so
//! the immediates of both slots of such a load count as zero. Jump distances, calls and map indices count
//! as they are.

use std::fmt;

use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::encode::{EncodeError, encode};
use crate::insn::Insn;
use crate::slot::Slot;

/// The eight bytes. Prints as the sixteen hexadecimal digits that Linux prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 8]);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The tag that Linux 6.18 and later give to these instructions (SHA-256).
///
/// # Errors
///
/// Where an instruction has no encoding.
pub fn tag(insns: &[Insn]) -> Result<Tag, EncodeError> {
    hash::<Sha256>(insns)
}

/// The tag that Linux 6.17 and earlier give to these instructions (SHA-1).
///
/// # Errors
///
/// Where an instruction has no encoding.
pub fn tag_sha1(insns: &[Insn]) -> Result<Tag, EncodeError> {
    hash::<Sha1>(insns)
}

fn hash<D: Digest>(insns: &[Insn]) -> Result<Tag, EncodeError> {
    let mut digest = D::new();
    let mut in_map_load = false;
    for (insn, slot) in insns.iter().zip(encode(insns)?) {
        in_map_load = is_map_load(insn) || in_map_load && matches!(insn, Insn::LoadImm64Tail);
        let slot = if in_map_load { Slot { imm: 0, ..slot } } else { slot };
        digest.update(slot.to_bytes());
    }
    let mut tag = Tag([0; 8]);
    tag.0.copy_from_slice(&digest.finalize()[..8]);
    Ok(tag)
}

/// Whether Linux leaves out the immediates of this instruction and its tail.
fn is_map_load(insn: &Insn) -> bool {
    use crate::insn::Imm64;
    let Insn::LoadImm64 { value, .. } = insn else { return false };
    matches!(value, Imm64::MapFd(_) | Imm64::MapFdValue { .. })
}

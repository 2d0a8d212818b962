//! The program tag: eight bytes that name a program by its instructions, as Linux shows them.
//!
//! Linux hashes the program's bytes and keeps the first eight bytes of the digest: of SHA-1 until version
//! 6.17, of SHA-256 since 6.18. A map's file descriptor differs from load to load, so in loads by descriptor
//! (`src` 1 and 2) the immediates of both slots count as zero, the offset into a map's value among them.
//! Loads by index (`src` 5 and 6), jump distances and calls count as they are. The tests hold tags that
//! running kernels gave.

use std::fmt;

use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::codes;
use crate::encode::{EncodeError, encode_each};
use crate::insn::{Imm64, Insn};
use crate::slot::Slot;

/// The eight bytes. Prints as the sixteen hexadecimal digits that Linux prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 8]);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The tag that Linux 6.18 and later give to these very instructions.
///
/// # Errors
///
/// Where an instruction has no encoding.
pub fn tag(insns: &[Insn]) -> Result<Tag, EncodeError> {
    hash::<Sha256>(insns, false)
}

/// The [`tag`] of [`with_map_descriptors`] of these instructions, which need not be made for it.
///
/// # Errors
///
/// Where an instruction has no encoding.
pub fn tag_with_map_descriptors(insns: &[Insn]) -> Result<Tag, EncodeError> {
    hash::<Sha256>(insns, true)
}

/// The tag that Linux 6.17 and earlier give to these very instructions.
///
/// # Errors
///
/// Where an instruction has no encoding.
pub fn tag_sha1(insns: &[Insn]) -> Result<Tag, EncodeError> {
    hash::<Sha1>(insns, false)
}

/// The program with its loads of maps by index turned into loads by descriptor.
///
/// Loaders differ: skep's refers to maps by index, libbpf by descriptor. The [`tag`] of this program is what
/// Linux shows for the same object when libbpf loads it. The descriptors are made up; tags do not see them.
pub fn with_map_descriptors(insns: &[Insn]) -> Vec<Insn> {
    let by_descriptor = |insn: &Insn| match *insn {
        Insn::LoadImm64 { dst, value: Imm64::Map(_) } => Insn::LoadImm64 { dst, value: Imm64::MapFd(0) },
        Insn::LoadImm64 { dst, value: Imm64::MapValue { offset, .. } } => {
            Insn::LoadImm64 { dst, value: Imm64::MapFdValue { fd: 0, offset } }
        }
        insn => insn,
    };
    insns.iter().map(by_descriptor).collect()
}

/// The opcode of the 64-bit immediate load.
const LOAD_IMM64: u8 = codes::LD | codes::IMM | codes::DW;
/// The source field of loads of a map by descriptor and of an address in its value, and the same by index
/// (RFC 9669 section 5.4).
const BY_DESCRIPTOR: [u8; 2] = [1, 2];
const BY_INDEX: [u8; 2] = [5, 6];

/// Hashes a program; with `link`, loads by index count as loads by descriptor.
fn hash<D: Digest>(insns: &[Insn], link: bool) -> Result<Tag, EncodeError> {
    let mut digest = D::new();
    // Many slots at once: hashing eight bytes at a time costs as much again in calls.
    let mut buffer = [0; 512 * Slot::BYTES];
    let mut filled = 0;
    let mut zero_next = false;
    encode_each(insns, |mut slot| {
        if zero_next {
            (slot.imm, zero_next) = (0, false);
        } else if slot.opcode == LOAD_IMM64 {
            if let Some(at) = BY_INDEX.iter().position(|&src| link && src == slot.src) {
                slot.src = BY_DESCRIPTOR[at];
            }
            if BY_DESCRIPTOR.contains(&slot.src) {
                (slot.imm, zero_next) = (0, true);
            }
        }
        buffer[filled..filled + Slot::BYTES].copy_from_slice(&slot.to_bytes());
        filled += Slot::BYTES;
        if filled == buffer.len() {
            digest.update(buffer);
            filled = 0;
        }
    })?;
    digest.update(&buffer[..filled]);
    let mut tag = Tag([0; 8]);
    tag.0.copy_from_slice(&digest.finalize()[..8]);
    Ok(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asm::assemble;

    /// Program and the tag that Linux 6.18.44 showed for it (socket filters, by `BPF_OBJ_GET_INFO_BY_FD`).
    const LINUX_6_18: [(&str, &str); 9] = [
        ("r0 = 0\nexit", "59f4a931744dcdc6"),
        ("r0 = 2\nexit", "614b434cd8324ecc"),
        ("r1 = map_fd[3] ll\nr0 = 0\nexit", "0bd0168676c7c779"),
        ("r1 = map_fd[77] ll\nr0 = 0\nexit", "0bd0168676c7c779"),
        ("r1 = map_fd_value[77]+8 ll\nr0 = 0\nexit", "28813e616f1f93d1"),
        ("r1 = map[1] ll\nr0 = 0\nexit", "a21f8a2c54979fac"),
        ("r1 = map_value[1]+8 ll\nr0 = 0\nexit", "114c5c0d091c4cb6"),
        ("call pc+1\nexit\nr0 = 7\nexit", "9683c4e123f7f629"),
        ("r1 = 0x1122334455667788 ll\nr0 = r1\nexit", "93192a8577168235"),
    ];

    /// Program and the tag that older kernels are widely quoted with: the smallest XDP program, and the one
    /// that systemd attaches to control groups for `IPAddressDeny`.
    const OLDER_LINUX: [(&str, &str); 2] = [
        ("r0 = 2\nexit", "3b185187f1855c4c"),
        (
            "r6 = r1
             r7 = *(u32 *)(r6 + 16)
             w8 = 0
             w8 |= 2
             r0 = 1
             if r8 != 2 goto +1
             r0 = 0
             exit",
            "6deef7357e7b4530",
        ),
    ];

    #[test]
    fn tags_are_those_of_linux_6_18() {
        for (text, expected) in LINUX_6_18 {
            let program = assemble(text).expect(text);
            assert_eq!(tag(&program).map(|tag| tag.to_string()), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn sha1_tags_are_those_of_older_kernels() {
        for (text, expected) in OLDER_LINUX {
            let program = assemble(text).expect(text);
            assert_eq!(tag_sha1(&program).map(|tag| tag.to_string()), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn tags_of_programs_longer_than_the_buffer_are_those_of_their_bytes() {
        // Miri takes a quarter of a second for a line.
        let lengths: &[usize] = if cfg!(miri) { &[513] } else { &[511, 512, 513, 2000] };
        for &slots in lengths {
            let mut text = String::from("r1 = map_fd[3] ll\n");
            (0..slots - 3).for_each(|at| text.push_str(&format!("r{} = {at}\n", at % 10)));
            let program = assemble(&(text + "exit")).expect("assembles");
            let mut bytes = crate::encode_bytes(&program).expect("encodes");
            assert_eq!(bytes.len(), slots * Slot::BYTES);
            bytes[4] = 0; // the descriptor
            assert_eq!(tag(&program).expect("a tag").0, Sha256::digest(&bytes)[..8], "{slots} slots");
        }
    }

    #[test]
    fn maps_by_index_get_the_tag_of_maps_by_descriptor_on_request() {
        for (by_index, by_descriptor) in [(5, 2), (6, 4)] {
            let program = assemble(LINUX_6_18[by_index].0).expect("assembles");
            let expected = Ok(LINUX_6_18[by_descriptor].1.to_owned());
            assert_eq!(tag(&with_map_descriptors(&program)).map(|tag| tag.to_string()), expected);
            assert_eq!(tag_with_map_descriptors(&program).map(|tag| tag.to_string()), expected);
        }
    }
}

//! What `.BTF` and `.BTF.ext` begin with: magic, version, flags, the header's length, then pairs of offset
//! and length, counted from the header's end.

use std::ops::Range;

use crate::error::Error;

pub(crate) const MAGIC: u16 = 0xeb9f;

/// The header of a section whose bytes these are.
pub(crate) struct Header<'a> {
    section: &'static str,
    /// The header alone.
    head: &'a [u8],
    /// Length of the section.
    length: usize,
}

impl<'a> Header<'a> {
    pub(crate) fn parse(bytes: &'a [u8], section: &'static str) -> Result<Self, Error> {
        let bad = |offset, reason| Error::Damaged { section, offset, reason };
        let head = bytes.get(..8).ok_or(bad(bytes.len(), "the header is cut off"))?;
        match u16::from_le_bytes([head[0], head[1]]) {
            MAGIC => {}
            magic if magic == MAGIC.swap_bytes() => return Err(bad(0, "it is big-endian")),
            _ => return Err(bad(0, "it does not begin with 9f eb")),
        }
        if head[2] != 1 {
            return Err(bad(2, "its version is not 1"));
        }
        let length = u32_at(head, 4) as usize;
        match bytes.get(..length) {
            Some(head) if length >= 24 => Ok(Self { section, head, length: bytes.len() }),
            _ => Err(bad(4, "the length of its header is impossible")),
        }
    }

    /// The part of the section whose offset and length stand `at` bytes after the common fields; empty where
    /// the header is too short to have these fields.
    pub(crate) fn part(&self, at: usize, reason: &'static str) -> Result<Range<usize>, Error> {
        let at = at + 8;
        if self.head.len() < at + 8 {
            return Ok(self.length..self.length);
        }
        let start = self.head.len() as u64 + u64::from(u32_at(self.head, at));
        let end = start + u64::from(u32_at(self.head, at + 4));
        if end > self.length as u64 {
            return Err(Error::Damaged { section: self.section, offset: at, reason });
        }
        // At most the end of the section, which is an index.
        Ok(start as usize..end as usize)
    }
}

/// Reads a word whose presence the caller has seen to.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

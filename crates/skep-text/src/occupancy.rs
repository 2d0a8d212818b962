//! What an arena tells about itself.

use std::fmt;

/// How full an arena is, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// What the memory is made of.
    pub backing: Backing,
    /// Packs mapped.
    pub packs: usize,
    /// Packs with nothing in them: kept as reserve.
    pub empty_packs: usize,
    /// Texts and drafts longer than a pack, each with memory of its own.
    pub own_mappings: usize,
    /// Memory for code: the packs' and the own mappings' bytes. This is what [`Config::limit`](crate::Config::limit) limits.
    pub mapped_bytes: usize,
    /// Chunks taken by drafts and texts in packs.
    pub chunks_used: usize,
    /// Chunks free in packs.
    pub chunks_free: usize,
    /// Chunks of retired texts that wait until they may be reused. Always 0 in this version, which reuses at once.
    pub chunks_waiting: usize,
    /// Bytes of the chunks taken, and of the own mappings.
    pub used_bytes: usize,
    /// Bytes asked for: what remains of `used_bytes` when the rounding is left out.
    pub code_bytes: usize,
    /// Drafts alive.
    pub drafts: usize,
    /// Texts alive.
    pub texts: usize,
    /// Bytes of the longest free run in the packs; far below the bytes free means fragmentation.
    pub largest_free_run: usize,
    /// Bytes of the range that the kernel maps by huge pages, by its own account in `/proc/self/smaps`. `None` where
    /// that cannot be read.
    pub huge_bytes: Option<u64>,
}

/// What code memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Sealed memory files, mapped twice: readable and executable in the range, writable elsewhere.
    #[default]
    SealedMemfd,
}

impl Backing {
    /// A short name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SealedMemfd => "memfd",
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

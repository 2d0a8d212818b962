//! `.BTF.ext`: which type a function has, which source line an instruction comes from, and which instructions
//! CO-RE changes.
//!
//! Each of its parts is a sequence of blocks, one for a section of code:
//!
//! ```text
//!   bytes in a record | name of section | number of records | records ... | name | number | records ...
//! ```
//!
//! Blocks are found once; records are read when a program is linked, and only those of its sections.

use std::ops::Range;
use std::sync::Arc;

use crate::btf::Btf;
use crate::error::Error;
use crate::header::{Header, u32_at};

const SECTION: &str = ".BTF.ext";

/// Where the records of each part are.
#[derive(Clone, Debug)]
pub struct Ext {
    bytes: Arc<[u8]>,
    /// `struct bpf_func_info`: instruction, type.
    pub functions: Vec<Block>,
    /// `struct bpf_line_info`: instruction, file name, line, line and column.
    pub lines: Vec<Block>,
    /// `struct bpf_core_relo`: instruction, type, accessor, kind.
    pub core: Vec<Block>,
}

/// The records about one section.
#[derive(Clone, Debug)]
pub struct Block {
    /// The section, as the caller numbers it.
    pub section: usize,
    /// Where its records are.
    records: Range<usize>,
    /// Bytes in each.
    size: usize,
}

impl Ext {
    /// Finds the blocks in the section's bytes. `number` says which section a name is of; blocks about
    /// sections that it does not know are dropped, for tools that remove sections leave such behind.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn parse(
        bytes: impl Into<Arc<[u8]>>,
        btf: &Btf,
        number: impl Fn(&str) -> Option<usize>,
    ) -> Result<Self, Error> {
        let bytes = bytes.into();
        let header = Header::parse(&bytes, SECTION)?;
        let parse = |at, reason| -> Result<Vec<Block>, Error> {
            blocks(&bytes, btf, &number, header.part(at, reason)?)
        };
        let functions = parse(0, "the function records lie beyond the section")?;
        let lines = parse(8, "the line records lie beyond the section")?;
        let core = parse(16, "the CO-RE records lie beyond the section")?;
        Ok(Self { functions, lines, core, bytes })
    }

    /// The records of a block: the offset of an instruction in bytes, and the three words after it (zero
    /// where records are shorter).
    pub fn records(&self, block: &Block) -> impl Iterator<Item = (u32, [u32; 3])> + use<'_> {
        let size = block.size;
        let records = self.bytes.get(block.records.clone()).unwrap_or_default();
        records.chunks_exact(size).map(move |record| {
            let word = |at| if at + 4 <= size { u32_at(record, at) } else { 0 };
            (word(0), [word(4), word(8), word(12)])
        })
    }
}

/// Takes a part apart.
fn blocks(
    bytes: &[u8],
    btf: &Btf,
    number: impl Fn(&str) -> Option<usize>,
    part: Range<usize>,
) -> Result<Vec<Block>, Error> {
    let bad = |offset: usize, reason| Error::Damaged { section: SECTION, offset, reason };
    let mut blocks = Vec::new();
    if part.is_empty() {
        return Ok(blocks);
    }
    let word = |at: usize| match bytes[..part.end].get(at..at + 4) {
        Some(word) => Ok(u32_at(word, 0)),
        None => Err(bad(at, "records are cut off")),
    };
    let size = word(part.start)? as usize;
    if size < 8 || !size.is_multiple_of(4) {
        return Err(bad(part.start, "the size of a record is impossible"));
    }
    let mut at = part.start + 4;
    while at < part.end {
        let (name, count) = (word(at)?, word(at + 4)? as usize);
        let start = at + 8;
        let end = count.checked_mul(size).and_then(|bytes| start.checked_add(bytes));
        at = match end {
            Some(end) if end <= part.end => end,
            _ => return Err(bad(at + 4, "there are fewer records than it says")),
        };
        if let Some(section) = number(btf.string(name)?) {
            blocks.push(Block { section, records: start..at, size });
        }
    }
    Ok(blocks)
}

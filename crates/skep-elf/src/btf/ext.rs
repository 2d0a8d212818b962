//! `.BTF.ext`: which source line an instruction comes from, and which instructions CO-RE would change.
//!
//! Each of its parts is a sequence of blocks, one for a section of code:
//!
//! ```text
//!   bytes in a record | name of section | number of records | records ... | name | number | records ...
//! ```
//!
//! Blocks are found once; records are read when a program is linked, and only those of its sections.

use std::collections::HashMap;
use std::ops::Range;

use super::{Btf, Header, u32_at};
use crate::elf::{Content, Elf};
use crate::error::Error;

const SECTION: &str = ".BTF.ext";

/// Where the records of each part are.
#[derive(Debug, Default)]
pub(crate) struct Ext {
    /// `struct bpf_line_info`: instruction, file name, line, line and column.
    pub(crate) lines: Vec<Block>,
    /// `struct bpf_core_relo`: instruction, type, accessor, kind.
    pub(crate) core: Vec<Block>,
}

/// The records about one section.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Number of the section.
    pub(crate) section: usize,
    /// Where its records are in the file.
    records: Range<usize>,
    /// Bytes in each.
    size: usize,
}

impl Ext {
    /// Finds the blocks in section number `section` of the file.
    pub(crate) fn parse(elf: &Elf, btf: &Btf, section: usize) -> Result<Self, Error> {
        let range = elf.sections[section].data.clone();
        let bytes = &elf.bytes()[range.clone()];
        let header = Header::parse(bytes, SECTION)?;
        let mut code = HashMap::new();
        for (index, section) in elf.sections.iter().enumerate() {
            if section.content == Content::Code {
                code.entry(&*section.name).or_insert(index);
            }
        }
        let parse = |at, reason| -> Result<Vec<Block>, Error> {
            let part = header.part(at, range.clone(), reason)?;
            blocks(elf.bytes(), btf, &code, range.start, part)
        };
        parse(0, "the function records lie beyond the section")?; // looked at, but nothing needs them yet
        Ok(Self {
            lines: parse(8, "the line records lie beyond the section")?,
            core: parse(16, "the CO-RE records lie beyond the section")?,
        })
    }
}

impl Block {
    /// Its records: the offset of an instruction in bytes, and the three words after it (zero where records
    /// are shorter).
    pub(crate) fn records<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (u32, [u32; 3])> + use<'a> {
        let size = self.size;
        bytes[self.records.clone()].chunks_exact(size).map(move |record| {
            let word = |at| if at + 4 <= size { u32_at(record, at) } else { 0 };
            (word(0), [word(4), word(8), word(12)])
        })
    }
}

/// Takes a part apart. Blocks about sections that the object does not have are dropped: tools that remove
/// sections leave such behind.
fn blocks(
    bytes: &[u8],
    btf: &Btf,
    code: &HashMap<&str, usize>,
    section_start: usize,
    part: Range<usize>,
) -> Result<Vec<Block>, Error> {
    let bad = |at: usize, reason| Error::BtfDamaged { section: SECTION, offset: at - section_start, reason };
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
        if let Some(&section) = code.get(btf.name(name)?) {
            blocks.push(Block { section, records: start..at, size });
        }
    }
    Ok(blocks)
}

//! The records of `.BTF.ext`, sorted by the instruction that they describe.
//!
//! The file groups them by section, in any order. All records are sorted once, so that each program finds its own by
//! binary search: a file may have as many programs as records.

use std::collections::HashMap;

use skep_btf::{Block, Btf, Ext};

use crate::elf::{Content, Elf};
use crate::error::Error;
use crate::functions::CodeRange;
use crate::steps::steps;

/// All records of an object.
#[derive(Debug)]
pub(crate) struct Records {
    /// Types of functions.
    pub(crate) functions: Part,
    /// Source lines.
    pub(crate) lines: Part,
    /// CO-RE relocations.
    pub(crate) core: Part,
}

/// Records of one kind, ascending by section and offset; those of one instruction are in the file's order.
#[derive(Debug)]
pub(crate) struct Part(Vec<Record>);

#[derive(Debug)]
struct Record {
    section: usize,
    /// Offset of the instruction in bytes.
    offset: u32,
    words: [u32; 3],
}

impl Records {
    /// Parses `.BTF.ext`, if the object has one.
    pub(crate) fn parse(elf: &Elf, btf: &Btf) -> Result<Option<Self>, Error> {
        let Some(section) = elf.section(".BTF.ext") else { return Ok(None) };
        let mut code = HashMap::new();
        for (index, section) in elf.sections.iter().enumerate() {
            if section.content == Content::Code {
                code.entry(&*section.name).or_insert(index);
            }
        }
        let ext = Ext::parse(elf.data(section), btf, |name| code.get(name).copied())?;
        Ok(Some(Self::new(&ext)))
    }

    fn new(ext: &Ext) -> Self {
        let part = |blocks: &[Block]| {
            let all = blocks.iter().flat_map(|block| {
                let section = block.section;
                ext.records(block).map(move |(offset, words)| Record { section, offset, words })
            });
            let mut all: Vec<_> = all.collect();
            all.sort_by_key(|record| (record.section, record.offset));
            Part(all)
        };
        Self { functions: part(&ext.functions), lines: part(&ext.lines), core: part(&ext.core) }
    }
}

impl Part {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The records about a function: the offset of an instruction in the section, and the words.
    pub(crate) fn of(&self, function: CodeRange) -> impl Iterator<Item = (u32, [u32; 3])> {
        let before = |end: u64| {
            self.0.partition_point(|record| {
                (record.section, u64::from(record.offset)) < (function.section, end)
            })
        };
        let own = &self.0[before(function.start)..before(function.end)];
        steps(own.len() + 1);
        own.iter().map(|record| (record.offset, record.words))
    }
}

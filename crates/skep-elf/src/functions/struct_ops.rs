//! Structures of functions that a host calls: which member each program implements.
//!
//! ```text
//!   SEC(".struct_ops.link")                      .rel.struct_ops.link
//!   struct tcp_congestion_ops ops = {            +-- offset 32: symbol `threshold`
//!       .ssthresh = (void *)threshold,           |
//!       .name = "own",                           v  the member at 32: tcp_congestion_ops.ssthresh
//!   };
//! ```
//!
//! The section of a program does not say which member it implements. All such words of an object are read once, when it
//! is parsed, since it may have as many structures as programs.

use std::collections::HashMap;
use std::ops::Range;

use skep_btf::{Btf, Kind, Type, Variable, essential_name};

use crate::elf::{Elf, Place, Relocation};
use crate::error::Error;
use crate::steps::steps;
use crate::types::data_sections;

use super::CodeRange;

const SECTIONS: [&str; 4] = [".struct_ops", ".struct_ops.link", "?.struct_ops", "?.struct_ops.link"];

/// The member that each function was written into; the first, where there are several.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// By section and first byte of the function. Names are made on request: a file can give one long name to many
    /// members.
    of: HashMap<(usize, u64), MemberPlace>,
    /// The variables, in the order of the file.
    tables: Vec<TablePlace>,
}

/// A variable of a structure of functions.
#[derive(Debug)]
struct TablePlace {
    name: String,
    structure: u32,
    section: usize,
    bytes: Range<usize>,
    /// The functions in it, by the numbers of their members.
    functions: Vec<(usize, (usize, u64))>,
}

/// A structure of functions that an object fills in for its host to call (`SEC(".struct_ops")`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// The name of the variable.
    pub name: String,
    /// The number of its structure in the object's types.
    pub structure: u32,
    /// Its bytes. Those of functions are 0.
    pub bytes: Vec<u8>,
    /// The members that are functions of the object: the number of the member, and the name of the program.
    pub functions: Vec<(usize, String)>,
}

/// A member of a structure.
#[derive(Clone, Copy, Debug)]
struct MemberPlace {
    structure: u32,
    number: usize,
}

impl Members {
    /// Reads what the object writes into such structures.
    pub(crate) fn parse(elf: &Elf, btf: Option<&Btf>) -> Result<Self, Error> {
        let (mut of, mut tables) = (HashMap::new(), Vec::new());
        let here = |name: &str| SECTIONS.contains(&name);
        let Some(btf) = btf.filter(|_| elf.sections.iter().any(|section| here(&section.name))) else {
            return Ok(Self { of, tables });
        };
        let types = data_sections(btf)?;
        let mut layouts = Layouts::default();
        for (index, section) in elf.sections.iter().enumerate().filter(|(_, section)| here(&section.name)) {
            let Some(ty) = types.get(&*section.name) else { continue };
            let variables = Variables::of(ty);
            let first = tables.len();
            for variable in &variables.0 {
                let ty = btf.resolve(variable.var.target())?;
                let start = variable.offset as usize;
                let bytes = start..start.saturating_add(variable.size as usize);
                if ty.kind == Kind::Struct && bytes.end <= elf.data(index).len() {
                    let name = variable.var.name()?.to_owned();
                    let functions = Vec::new();
                    tables.push(TablePlace { name, structure: ty.id, section: index, bytes, functions });
                }
            }
            for relocation in &section.relocations {
                steps(1);
                let Some(function) = function_at(elf, index, relocation) else { continue };
                let Some(variable) = variables.at(relocation.offset) else { continue };
                let ty = btf.resolve(variable.var.target())?;
                let offset = relocation.offset - u64::from(variable.offset);
                if let Some(number) = layouts.member(&ty, offset) {
                    of.entry(function).or_insert(MemberPlace { structure: ty.id, number });
                    // They are in the order of the variables' offsets, and there are as many as structures.
                    let at =
                        tables[first..].partition_point(|table| table.bytes.end as u64 <= relocation.offset);
                    if let Some(table) = tables[first..].get_mut(at) {
                        table.functions.push((number, function));
                    }
                }
            }
        }
        Ok(Self { of, tables })
    }

    /// The variables, with the programs in them: `program` knows those of the object by section and first byte.
    pub(crate) fn tables(&self, elf: &Elf, program: impl Fn((usize, u64)) -> Option<String>) -> Vec<Table> {
        let table = |place: &TablePlace| {
            let functions = place.functions.iter();
            Table {
                name: place.name.clone(),
                structure: place.structure,
                bytes: elf.data(place.section)[place.bytes.clone()].to_vec(),
                functions: functions.filter_map(|(member, at)| Some((*member, program(*at)?))).collect(),
            }
        };
        self.tables.iter().map(table).collect()
    }

    /// The member that a function was written into, as `structure.member`.
    pub(crate) fn name(&self, btf: &Btf, function: CodeRange) -> Result<Option<String>, Error> {
        let Some(found) = self.of.get(&(function.section, function.start)) else { return Ok(None) };
        let structure = btf.ty(found.structure)?;
        let Some(member) = structure.member(found.number) else { return Ok(None) };
        Ok(Some(format!("{}.{}", essential_name(structure.name()?), member.name()?)))
    }
}

/// The section and offset to which a word of data points.
fn function_at(elf: &Elf, section: usize, relocation: &Relocation) -> Option<(usize, u64)> {
    let symbol = elf.target(relocation);
    let Place::Section(code) = symbol.place else { return None };
    let word = usize::try_from(relocation.offset).ok().and_then(|at| elf.data(section).get(at..));
    let added = word.and_then(|rest| rest.first_chunk::<8>()).map_or(0, |word| u64::from_le_bytes(*word));
    Some((code, symbol.value.wrapping_add(added)))
}

/// The variables of a section, by their offsets.
struct Variables<'a>(Vec<Variable<'a>>);

impl<'a> Variables<'a> {
    fn of(section: &Type<'a>) -> Self {
        let mut variables: Vec<_> = section.variables().inspect(|_| steps(1)).collect();
        variables.sort_by_key(|variable| variable.offset);
        Self(variables)
    }

    /// The variable that contains this byte.
    fn at(&self, offset: u64) -> Option<&Variable<'a>> {
        let behind = self.0.partition_point(|variable| u64::from(variable.offset) <= offset);
        let variable = self.0.get(behind.checked_sub(1)?)?;
        (offset < u64::from(variable.offset) + u64::from(variable.size)).then_some(variable)
    }
}

/// By structure: the numbers of its members by their offsets in bits.
#[derive(Default)]
struct Layouts(HashMap<u32, HashMap<u32, usize>>);

impl Layouts {
    /// The number of the member at an offset in bytes.
    fn member(&mut self, structure: &Type<'_>, offset: u64) -> Option<usize> {
        if structure.kind != Kind::Struct {
            return None;
        }
        let layout = self.0.entry(structure.id).or_insert_with(|| {
            let mut layout = HashMap::new();
            for (number, member) in structure.members().enumerate() {
                steps(1);
                layout.entry(member.bit_offset).or_insert(number);
            }
            layout
        });
        layout.get(&u32::try_from(offset.checked_mul(8)?).ok()?).copied()
    }
}

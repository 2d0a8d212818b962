//! The mutants of an object: each instruction of its programs with each change, numbered.
//!
//! An instruction is changed only if the file has it as it runs. What a relocation fills in (maps, variables, calls of
//! functions in other sections) stays, because the loader would write over the change. A function of several programs
//! has its mutants once.

use crate::change::{Change, changes};
use crate::error::Error;
use skep::{Object, ProgramOptions, Verified};
use skep_abi::Context;
use skep_isa::{Insn, Slot};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The length of the buffer with which programs over a buffer are verified here.
const BUFFER: u32 = 4096;

/// An object with its mutants.
#[derive(Debug)]
pub struct Mutants {
    bytes: Vec<u8>,
    pub(crate) programs: Vec<Subject>,
    all: Vec<Mutant>,
}

/// A program that is changed.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) options: ProgramOptions,
    pub(crate) verified: Verified,
}

/// One changed instruction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mutant {
    /// Its number in the object, from 1.
    pub number: usize,
    /// Where the instruction is from.
    pub place: Place,
    /// What is changed.
    pub change: Change,
    /// The programs that have the instruction, and its slot in each.
    pub(crate) slots: Vec<(usize, usize)>,
    /// Where its bytes are in the file, and those that replace them.
    at: usize,
    bytes: Vec<u8>,
}

/// Where an instruction is from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The function.
    pub function: String,
    /// The instruction's slot in the function, from 0.
    pub slot: usize,
    /// The source file as the compiler named it; empty without line records.
    pub file: Arc<str>,
    /// The line, from 1; 0 without line records.
    pub line: u32,
    /// The line's text.
    pub text: Arc<str>,
}

impl Mutants {
    /// Finds the mutants of an object's programs, or of one of them. Programs in sections of tests
    /// (`xdp/test/NAME/check`) are not changed, nor are those that the verifier refuses as they are.
    ///
    /// # Errors
    ///
    /// The object is damaged, has no such program, or nothing that can be changed.
    pub fn of(bytes: Vec<u8>, only: Option<&str>) -> Result<Self, Error> {
        let object = Object::parse(&bytes)?;
        let elf = skep_elf::Object::parse(&bytes)?;
        if let Some(name) = only.filter(|name| !object.programs().contains(name)) {
            return Err(Error::UnknownProgram { name: name.to_owned(), known: object.programs().join(", ") });
        }
        let mut programs = Vec::new();
        let mut found = BTreeMap::new();
        let mut refused = 0;
        for program in elf.programs() {
            if only.is_some_and(|name| name != program.name()) || program.section().contains("/test/") {
                continue;
            }
            let kind = program.program_type();
            let is_buffer = kind.is_ok_and(|kind| matches!(kind.context, Context::Buffer));
            let options = ProgramOptions {
                buffer_len: if is_buffer { BUFFER } else { 0 },
                ..ProgramOptions::default()
            };
            let Ok(verified) = object.verify(program.name(), options) else {
                refused += 1;
                continue;
            };
            add(&bytes, program, programs.len(), &mut found)?;
            programs.push(Subject { name: program.name().to_owned(), options, verified });
        }
        let number = |(index, mutant): (usize, Mutant)| Mutant { number: index + 1, ..mutant };
        let all: Vec<Mutant> = found.into_values().flatten().enumerate().map(number).collect();
        if all.is_empty() {
            return Err(Error::Nothing { refused });
        }
        Ok(Self { bytes, programs, all })
    }

    /// All of them, by number.
    pub fn all(&self) -> &[Mutant] {
        &self.all
    }

    /// The mutant of that number, from 1.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownNumber`].
    pub fn mutant(&self, number: usize) -> Result<&Mutant, Error> {
        let found = number.checked_sub(1).and_then(|index| self.all.get(index));
        found.ok_or(Error::UnknownNumber { number, last: self.all.len() })
    }

    /// A number of mutants, spread evenly over all; all of them if there are no more.
    pub fn sample(&self, count: usize) -> Vec<&Mutant> {
        let total = self.all.len();
        let count = count.min(total);
        // Ascending, and different as long as there are no more than all.
        (0..count).map(|index| &self.all[index * total / count]).collect()
    }

    /// The object's bytes.
    pub fn original(&self) -> &[u8] {
        &self.bytes
    }

    /// The object's bytes with one instruction changed.
    pub fn bytes(&self, mutant: &Mutant) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[mutant.range()].copy_from_slice(&mutant.bytes);
        bytes
    }
}

impl Mutant {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.bytes.len()
    }
}

/// Adds a program's mutants to those that were found, by where their instructions are in the file.
fn add(
    bytes: &[u8],
    program: &skep_elf::Program,
    index: usize,
    found: &mut BTreeMap<usize, Vec<Mutant>>,
) -> Result<(), Error> {
    let source = program.source(None)?;
    let places = program.places()?;
    for (slot, (&insn, &at)) in source.insns.iter().zip(&places).enumerate() {
        if let Some(known) = found.get_mut(&at) {
            known.iter_mut().for_each(|mutant| mutant.slots.push((index, slot)));
            continue;
        }
        if encoded(insn).is_none_or(|as_linked| bytes.get(at..at + as_linked.len()) != Some(&as_linked)) {
            continue;
        }
        let after = source.functions.partition_point(|function| function.start as usize <= slot);
        let (name, start) = match after.checked_sub(1).map(|before| &source.functions[before]) {
            Some(function) => (function.name.clone(), function.start as usize),
            None => (source.name.clone(), 0),
        };
        let line = source.lines.partition_point(|line| line.slot as usize <= slot).checked_sub(1);
        let line = line.map(|index| &source.lines[index]).filter(|line| line.slot as usize >= start);
        let place = Place {
            function: name,
            slot: slot - start,
            file: line.map_or_else(|| "".into(), |line| Arc::clone(&line.file)),
            line: line.map_or(0, |line| line.line),
            text: line.map_or_else(|| "".into(), |line| line.text.trim().into()),
        };
        let mutants = changes(insn).into_iter().filter_map(|(change, changed)| {
            let bytes = encoded(changed)?;
            Some(Mutant { number: 0, place: place.clone(), change, slots: vec![(index, slot)], at, bytes })
        });
        found.insert(at, mutants.collect());
    }
    Ok(())
}

/// An instruction's bytes, both slots of those that have two.
fn encoded(insn: Insn) -> Option<Vec<u8>> {
    let bytes = match insn {
        Insn::LoadImm64 { .. } => skep_isa::encode_bytes(&[insn, Insn::LoadImm64Tail]),
        _ => skep_isa::encode_bytes(&[insn]),
    };
    bytes.ok().filter(|bytes| bytes.len() % Slot::BYTES == 0)
}

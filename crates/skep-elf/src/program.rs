//! A program of an object: its name, its type, and how to link it.

use std::sync::Arc;

use skep_abi::{AttachTo, Context, ProgramSource, ProgramType, Section};

use crate::error::Error;
use crate::link::{self, LinkOptions};
use crate::parsed::Parsed;

/// A program of an object, not yet linked.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    section: String,
    pub(crate) function: usize,
    object: Arc<Parsed>,
    /// By configuration value: whether it is known.
    config: Arc<[bool]>,
}

/// All programs of an object, in the order of their sections.
pub(crate) fn programs(object: &Arc<Parsed>) -> Result<Vec<Program>, Error> {
    let config: Arc<[bool]> = vec![false; object.externs.config.len()].into();
    let program = |&(symbol, function): &(usize, usize)| {
        let section = object.functions.function(function).section;
        Ok(Program {
            name: object.elf.symbol_name(&object.elf.symbols[symbol])?.into(),
            section: object.elf.sections[section].name.to_string(),
            function,
            object: Arc::clone(object),
            config: Arc::clone(&config),
        })
    };
    object.functions.programs.iter().map(program).collect()
}

impl Program {
    /// Its name: that of its function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The section it is in.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// The type that its section names.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSection`].
    pub fn program_type(&self) -> Result<&'static ProgramType, Error> {
        ProgramType::from_section(&self.section).ok_or_else(|| Error::UnknownSection {
            program: self.name.clone(),
            section: self.section.clone(),
        })
    }

    /// Links the program with the functions that it calls. `program_type` overrides the type that its section names.
    /// Source lines are cut to 512 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSection`] without an override, and all errors of instructions, relocations and line records of
    /// the functions that it reaches.
    pub fn source(&self, program_type: Option<&'static ProgramType>) -> Result<ProgramSource, Error> {
        self.link(program_type, &LinkOptions::default())
    }

    /// The same for a system whose types are known.
    ///
    /// # Errors
    ///
    /// As [`Program::source`], and [`Error::CoreRelocation`], [`Error::KernelSymbol`] and [`Error::ConfigMissing`] if
    /// the system lacks what the program needs.
    pub fn link(
        &self,
        program_type: Option<&'static ProgramType>,
        options: &LinkOptions<'_>,
    ) -> Result<ProgramSource, Error> {
        let program_type = match program_type {
            Some(program_type) => program_type,
            None => self.program_type()?,
        };
        let object = &*self.object;
        let linked = link::link(object, (&self.name, self.function), &self.config, options)?;
        Ok(ProgramSource {
            name: self.name.clone(),
            program_type,
            insns: linked.insns,
            functions: linked.functions,
            lines: linked.lines,
            gpl_compatible: object.gpl_compatible(),
            sleepable: program_type.always_sleeps
                || (program_type.may_sleep
                    && Section::parse(&self.section).is_some_and(|found| found.sleepable)),
            target: self.target_as(program_type)?,
            btf: object.btf.clone(),
            externs: linked.externs,
            unresolved: linked.unresolved,
            of: None,
        })
    }

    /// For each slot of the linked program ([`ProgramSource::insns`]), where its 8 bytes begin in the object's file,
    /// for tools that change instructions there.
    ///
    /// # Errors
    ///
    /// As [`Program::source`], but for line records.
    pub fn places(&self) -> Result<Vec<usize>, Error> {
        link::places(&self.object, &self.name, self.function, &self.config)
    }

    /// Its attachment: the member of a structure that it implements (`tcp_congestion_ops.ssthresh`), or the rest of its
    /// section's name (`vfs_read` of `fentry/vfs_read`).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSection`], and damaged types.
    pub fn target(&self) -> Result<Option<String>, Error> {
        self.target_as(self.program_type()?)
    }

    fn target_as(&self, program_type: &ProgramType) -> Result<Option<String>, Error> {
        let object = &*self.object;
        let member = matches!(program_type.context, Context::Arguments { of: AttachTo::StructOps });
        if let Some(btf) = object.btf.as_deref().filter(|_| member) {
            let function = object.functions.function(self.function);
            if let Some(member) = object.members.name(btf, function)? {
                return Ok(Some(member));
            }
        }
        Ok(Section::parse(&self.section).and_then(|found| found.target).map(str::to_owned))
    }

    /// Sets which configuration values are known.
    pub(crate) fn set_config(&mut self, known: Arc<[bool]>) {
        self.config = known;
    }
}

//! The object as its users see it.

use std::collections::HashMap;
use std::sync::Arc;

use skep_btf::Btf;

use crate::error::Error;
use crate::externs::Declaration;
use crate::functions::Table;
use crate::maps::{ObjectMap, Variable};
use crate::parsed::Parsed;
use crate::program::{Program, programs};
use crate::steps::steps;

/// A BPF object file, taken apart and checked.
///
/// [`Object::parse`] checks the file as a whole. [`Program::source`] checks one program (relocations, instructions,
/// lines), so an unusable program does not keep the others from running.
#[derive(Clone, Debug)]
pub struct Object {
    programs: Vec<Program>,
    /// Numbers of programs, ascending by their names, which differ.
    by_name: Vec<u32>,
    maps: Vec<ObjectMap>,
    parsed: Arc<Parsed>,
}

impl Object {
    /// Reads an object file. Memory is bounded by a multiple of the file's size.
    ///
    /// # Errors
    ///
    /// If the file is no BPF object or is damaged, its type information is damaged, or the declaration of a map is
    /// invalid. [`Error`] says what is wrong and where.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (parsed, maps) = Parsed::read(bytes)?;
        let parsed = Arc::new(parsed);
        let programs = programs(&parsed)?;
        // Fits: there are fewer programs than bytes in the file, and a name's offset has 32 bits.
        let mut by_name: Vec<u32> = (0..programs.len() as u32).collect();
        by_name.sort_unstable_by(|a, b| programs[*a as usize].name().cmp(programs[*b as usize].name()));
        Ok(Self { programs, by_name, maps, parsed })
    }

    /// Its programs, in the order of their sections.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The program of that name.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchProgram`], which lists those that exist, or [`Error::NoProgram`].
    pub fn program(&self, name: &str) -> Result<&Program, Error> {
        let place = self.by_name.binary_search_by(|&number| {
            steps(1);
            self.programs[number as usize].name().cmp(name)
        });
        match place {
            Ok(place) => Ok(&self.programs[self.by_name[place] as usize]),
            Err(_) if self.programs.is_empty() => Err(Error::NoProgram),
            Err(_) => Err(Error::NoSuchProgram { name: name.into(), known: self.program_names() }),
        }
    }

    /// The only program.
    ///
    /// # Errors
    ///
    /// [`Error::SeveralPrograms`] or [`Error::NoProgram`].
    pub fn only_program(&self) -> Result<&Program, Error> {
        match &*self.programs {
            [] => Err(Error::NoProgram),
            [program] => Ok(program),
            _ => Err(Error::SeveralPrograms { known: self.program_names() }),
        }
    }

    /// Its maps. Programs name them by their index here.
    pub fn maps(&self) -> &[ObjectMap] {
        &self.maps
    }

    /// The map of that name with its index.
    pub fn map(&self, name: &str) -> Option<(u32, &ObjectMap)> {
        (0..).zip(&self.maps).find(|(_, map)| map.def.name == name)
    }

    /// The global variable of that name, with the index of the map it is in.
    pub fn variable(&self, name: &str) -> Option<(u32, &Variable)> {
        let maps = (0..).zip(&self.maps);
        maps.flat_map(|(index, map)| map.variables.iter().map(move |variable| (index, variable)))
            .find(|(_, variable)| variable.name == name)
    }

    /// The value that a global variable has before any program runs; `None` stands for zeroes.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVariable`].
    pub fn initial_value(&self, name: &str) -> Result<Option<&[u8]>, Error> {
        let (map, variable) =
            self.variable(name).ok_or_else(|| Error::NoSuchVariable { name: name.into() })?;
        Ok(self.maps[map as usize].initial.as_ref().map(|bytes| &bytes[variable.range()]))
    }

    /// Sets the value that a global variable has before any program runs. This is the only way to change those in
    /// `.rodata`, which the verifier takes for constants. The first change in a section of zeroes allocates all of it.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchVariable`], and [`Error::VariableSize`] if `value` has another size than the variable.
    pub fn set_initial_value(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        let (map, variable) =
            self.variable(name).ok_or_else(|| Error::NoSuchVariable { name: name.into() })?;
        if value.len() != variable.size as usize {
            return Err(Error::VariableSize { name: name.into(), size: variable.size, given: value.len() });
        }
        let range = variable.range();
        self.maps[map as usize].change(|bytes| bytes[range].copy_from_slice(value));
        Ok(())
    }

    /// Whether anything in it depends on the host's types: relocations of fields, names of the host's functions and
    /// variables, or programs of types whose contexts are the host's own structures.
    pub fn refers_to_host(&self) -> bool {
        let given = |program: &Program| program.program_type().is_ok_and(|kind| kind.meets_host_types());
        self.is_linked_to_host() || self.programs.iter().any(given)
    }

    /// Whether linking depends on the host's types: fields are relocated, or the host's functions or variables are
    /// named.
    pub fn is_linked_to_host(&self) -> bool {
        self.parsed.ext.as_ref().is_some_and(|ext| !ext.core.is_empty()) || self.parsed.externs.names_host()
    }

    /// Sets the variables that are declared with `__kconfig`, from the text of a configuration (`CONFIG_HZ=250`) and
    /// the release of the kernel that programs are for (`6.18.1`; default: that in the heading of the text). Until then
    /// all of them are unknown.
    ///
    /// # Errors
    ///
    /// [`Error::ConfigValue`] if a variable cannot take its value.
    pub fn set_config(&mut self, text: &str, release: Option<&str>) -> Result<(), Error> {
        let object = &self.parsed;
        let Some(map) = object.config_map.and_then(|map| self.maps.get_mut(map as usize)) else {
            return Ok(());
        };
        let mut known = Ok(Vec::new());
        map.change(|bytes| {
            bytes.fill(0);
            known = object.externs.fill(text, release, bytes);
        });
        let known: Arc<[bool]> = known?.into();
        for program in &mut self.programs {
            program.set_config(Arc::clone(&known));
        }
        Ok(())
    }

    /// What it declares and a kernel defines, in the order of its symbols.
    pub fn declarations(&self) -> Vec<Declaration<'_>> {
        self.parsed.externs.declarations(&self.parsed.elf)
    }

    /// Whether it has a section of that name.
    pub fn has_section(&self, name: &str) -> bool {
        self.parsed.elf.section(name).is_some()
    }

    /// The structures of functions that it fills in for its host.
    pub fn tables(&self) -> Vec<Table> {
        let functions = &self.parsed.functions;
        let mut names = HashMap::new();
        for program in &self.programs {
            let of = functions.function(program.function);
            names.insert((of.section, of.start), program.name());
        }
        self.parsed.members.tables(&self.parsed.elf, |at| names.get(&at).map(|name| (*name).to_owned()))
    }

    /// The types of the object, if it has any.
    pub fn btf(&self) -> Option<&Arc<Btf>> {
        self.parsed.btf.as_ref()
    }

    /// The contents of the section `license`; empty if there is none.
    pub fn license(&self) -> &str {
        &self.parsed.license
    }

    /// Whether its programs may call helpers that are for GPL-compatible programs.
    pub fn gpl_compatible(&self) -> bool {
        self.parsed.gpl_compatible()
    }

    fn program_names(&self) -> Vec<String> {
        self.programs.iter().map(|program| program.name().to_owned()).collect()
    }
}
